// answer/marks.c: see answer/marks.h.
#include "answer/marks.h"

#include <string.h>

#include "grammar/vocabulary.h"

static bool is_control(const Tokenizer *t, Str name) {
    int id = t ? tokenizer_find(t, name) : -1;
    return id >= 0 && tokenizer_is_control(t, id);
}

// The length of the control token at the beginning of the text: the whole text, or up to a closing bracket. 0: none.
static size_t control_length(const Tokenizer *t, Str text) {
    if (is_control(t, text)) return text.n;
    for (size_t i = 1; i < text.n && strchr("<[", text.data[0]); i++)
        if (strchr(">]", text.data[i]) && is_control(t, (Str){text.data, i + 1})) return i + 1;
    return 0;
}

void marks_bytes(const Tokenizer *t, Str mark, Buf *out) {
    static const char control = (char)VOCABULARY_CONTROL;
    for (size_t i = 0; i < mark.n;) {
        size_t length = control_length(t, (Str){mark.data + i, mark.n - i});
        if (length) buf_append(out, &control, 1);
        buf_append(out, mark.data + i, length ? length : 1);
        i += length ? length : 1;
    }
}

int marks_rule(const Tokenizer *t, Str mark, Rules *r) {
    Buf bytes = {0};
    marks_bytes(t, mark, &bytes);
    int e = rules_text(r, bytes.data, bytes.n);
    buf_free(&bytes);
    return e;
}
