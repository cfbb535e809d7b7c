// look/logits.c: `quill logits`: the raw logits of every token, as f32, to stdout.
#include "look/look.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answer/report.h"
#include "base/output.h"
#include "look/all_logits.h"
#include "look/text.h"

// Parses ids such as "1,2,3" or "1 2 3", as quill tokenize --ids prints them; the caller frees *out.
static Status parse_ids(const char *text, int **out, int *n) {
    static const char blanks[] = " \t\n";
    *out = NULL;
    *n = 0;
    for (const char *at = text + strspn(text, blanks);; at += strspn(at, blanks)) {
        char *end;
        errno = 0;
        long v = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1;
        if (v < 0 || v > INT_MAX || errno || (*end && !strchr(", \t\n", *end)))
            return status_error(QUILL_USAGE, "--tokens: ids as 1,2,3 expected, found \"%.100s\" at byte %td", at,
                                at - text);
        *out = mem_resize(*out, (size_t)(*n + 1) * sizeof **out);
        (*out)[(*n)++] = (int)v;
        at = end + strspn(end, blanks);
        if (!*at) return OK;
        if (*at == ',') at++;
    }
}

typedef struct {
    int n_vocab;
    bool gone;
    Status st;
} LogitsOut;

static bool write_slice(void *arg, const float *logits, int first, int n) {
    (void)first;
    LogitsOut *out = arg;
    out->st = output_write(logits, (size_t)n * (size_t)out->n_vocab * sizeof *logits, &out->gone);
    return !out->st.code && !out->gone;
}

static Status check_ids(const Engine *e, const int *ids, int n) {
    for (int i = 0; i < n; i++)
        if (ids[i] >= e->model.c.n_vocab)
            return status_error(QUILL_USAGE, "--tokens: ids below %d expected, found %d", e->model.c.n_vocab, ids[i]);
    if (n <= e->shape.n_ctx) return OK;
    char advice[CONTEXT_ADVICE];
    engine_context_advice(e, n, 0, advice);
    return status_error(QUILL_CONTEXT, "the text has %d tokens, the context %d; shorten the text%s", n, e->shape.n_ctx,
                        advice);
}

Status look_logits(const Options *o) {
    if (isatty(STDOUT_FILENO))
        return status_error(QUILL_USAGE,
                            "quill logits: writes raw float32; a file or a pipe on stdout expected, found a "
                            "terminal");
    int *ids = NULL, n = 0;
    Engine e;
    Status st = o->look.tokens ? parse_ids(o->look.tokens, &ids, &n) : OK;
    if (!st.code)
        st = engine_open(&e, &o->engine,
                         (EngineNeeds){.need_tokenizer = !o->look.tokens, .max_out = LOOK_SLICE, .ctx_of_use = n});
    if (st.code) {
        free(ids);
        return st;
    }
    if (!o->look.tokens) st = look_text_tokens(o, e.tok, !o->look.no_bos, &ids, &n);
    if (!st.code) st = check_ids(&e, ids, n);
    if (!st.code) {
        if (o->answer.verbose) report_before(&e, &o->answer, NULL);
        LogitsOut out = {.n_vocab = e.model.c.n_vocab};
        look_all_logits(&e, ids, n, NULL, write_slice, &out);
        st = out.st;
        if (!st.code) st = engine_fault(&e);
    }
    free(ids);
    engine_close(&e);
    return st;
}
