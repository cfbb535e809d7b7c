// look/tokenize.c: `quill tokenize`: a text as tokens.
#include "look/look.h"

#include <stdlib.h>

#include "base/output.h"
#include "engine_file.h"
#include "look/text.h"

static Status print_tokens(const Options *o, const Tokenizer *t, const int *ids, int n) {
    Buf out = {0};
    bool gone = false;
    Status st = OK;
    for (int i = 0; i < n && !st.code && !gone; i++) {
        if (o->look.ids) buf_printf(&out, "%s%d", i ? " " : "", ids[i]);
        else {
            Str piece = tokenizer_piece(t, ids[i]);
            buf_printf(&out, "%d\t", ids[i]);
            utf8_escape(&out, piece.data, piece.n);
            buf_str(&out, "\n");
        }
        if (out.n > 1 << 16) st = output_write(out.data, out.n, &gone), out.n = 0;
    }
    if (o->look.ids) buf_str(&out, "\n");
    if (!st.code) st = output_write(out.data, out.n, &gone);
    buf_free(&out);
    return st;
}

Status look_tokenize(const Options *o) {
    Gguf *g;
    Tokenizer *t = NULL;
    int *ids = NULL, n = 0;
    TRY(engine_file_open(&o->engine, &g));
    Status st = engine_file_tokenizer(g, &t);
    if (!st.code) st = look_text_tokens(o, t, !o->look.no_bos && tokenizer_add_bos(t), &ids, &n);
    int last = st.code || o->look.no_bos || !tokenizer_add_eos(t) ? -1 : tokenizer_last(t);
    if (last >= 0 && (n == 0 || ids[n - 1] != last)) {
        ids = mem_resize(ids, (size_t)(n + 1) * sizeof *ids);
        ids[n++] = last;
    }
    if (!st.code) st = print_tokens(o, t, ids, n);
    free(ids);
    tokenizer_free(t);
    gguf_close(g);
    return st;
}
