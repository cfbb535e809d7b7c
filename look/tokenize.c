// look/tokenize.c: `quill tokenize`: a text as tokens.
#include "look/look.h"

#include <stdlib.h>

#include "base/jsonio.h"
#include "base/output.h"
#include "engine_file.h"
#include "look/text.h"

static void print_token(const Options *o, const Tokenizer *t, int id, bool first, Buf *out) {
    Str piece = tokenizer_piece(t, id);
    if (o->look.ids) buf_printf(out, "%s%d", first ? "" : " ", id);
    else if (o->answer.json) {
        json_t *j = json_object();
        jsonio_put_token(j, id, piece);
        buf_str(out, first ? "" : ",\n ");
        jsonio_print(j, JSON_COMPACT, out);
        json_decref(j);
    } else {
        buf_printf(out, "%d\t", id);
        utf8_escape(out, piece.data, piece.n);
        buf_str(out, "\n");
    }
}

static Status print_tokens(const Options *o, const Tokenizer *t, const int *ids, int n) {
    Buf out = {0};
    bool gone = false;
    Status st = OK;
    buf_str(&out, o->answer.json ? "[" : "");
    for (int i = 0; i < n && !st.code && !gone; i++) {
        print_token(o, t, ids[i], i == 0, &out);
        if (out.n > 1 << 16) st = output_write(out.data, out.n, &gone), out.n = 0;
    }
    if (o->look.ids || o->answer.json) buf_str(&out, o->answer.json ? "]\n" : "\n");
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
