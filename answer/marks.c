// answer/marks.c: see answer/marks.h.
#include "answer/marks.h"

#include "grammar/vocabulary.h"

void marks_bytes(const Tokenizer *t, Str mark, Buf *out) {
    static const char control = (char)VOCABULARY_CONTROL;
    Buf name = {0};
    buf_append(&name, mark.data, mark.n);
    buf_append(&name, "", 1);
    int id = t ? tokenizer_find(t, name.data) : -1;
    buf_free(&name);
    if (id >= 0 && tokenizer_is_control(t, id)) buf_append(out, &control, 1);
    buf_append(out, mark.data, mark.n);
}

int marks_rule(const Tokenizer *t, Str mark, Rules *r) {
    Buf bytes = {0};
    marks_bytes(t, mark, &bytes);
    int e = rules_text(r, bytes.data, bytes.n);
    buf_free(&bytes);
    return e;
}
