// look/text.c: see look/text.h.
#include "look/text.h"

#include "answer/chat_template.h"
#include "answer/prompt.h"

Status look_text_tokens(const Options *o, const Tokenizer *t, bool add_bos, int **ids, int *n) {
    Buf text = {0};
    bool given;
    Status st = prompt_read(&o->prompt, &text, &given);
    if (!st.code && !given)
        st = status_error(QUILL_USAGE, "no text: words, -p, -f or a pipe on stdin expected%s",
                          o->prompt.no_stdin ? "; --no-stdin reads no pipe" : "");
    Rendered r = {0};
    if (!st.code) {
        rendered_add(&r, text.data, text.n, o->answer.parse_special);
        st = chat_template_encode(t, &r, add_bos, ids, n);
    }
    rendered_free(&r);
    buf_free(&text);
    return st;
}
