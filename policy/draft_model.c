// policy/draft_model.c: see policy/draft_model.h.
#include "policy/draft_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "policy/draft_steps.h"

enum { CHUNK = 256 }; // the most rows of one sequence in a step

struct DraftModel {
    Gguf *gguf;
    Model m;
    DraftSteps steps;
    int n_vocab;   // of the target
    float *logits; // (n_seqs, n_vocab); NULL: the draft model's own logits have this width
};

// ---- the vocabulary -------------------------------------------------------------------------------------------------

static Status other_piece(const char *draft_name, Str draft, const char *target_name, Str target, int id) {
    Buf found = {0}, wanted = {0};
    utf8_escape(&found, draft.data, draft.n);
    utf8_escape(&wanted, target.data, target.n);
    Status st =
        status_error(QUILL_MODEL,
                     "%.300s: the vocabulary of %.300s expected in a draft model, another one found: token %d is "
                     "\"%.100s\" here and \"%.100s\" there",
                     draft_name, target_name, id, found.data, wanted.data);
    buf_free(&found);
    buf_free(&wanted);
    return st;
}

Status draft_model_check_vocabulary(const Tokenizer *draft, const char *draft_name, const Tokenizer *target,
                                    const char *target_name) {
    int n = tokenizer_n(draft), wanted = tokenizer_n(target);
    for (int i = 0; i < int_min(n, wanted); i++) {
        Str a = tokenizer_piece(draft, i), b = tokenizer_piece(target, i);
        if (a.n != b.n || memcmp(a.data, b.data, a.n) != 0) return other_piece(draft_name, a, target_name, b, i);
    }
    if (n == wanted) return OK;
    return status_error(QUILL_MODEL, "%.300s: the %d tokens of %.300s expected in a draft model, %d found", draft_name,
                        wanted, target_name, n);
}

// ---- open, close ----------------------------------------------------------------------------------------------------

Status draft_model_open(Gguf *g, const Backend *be, int n_vocab, DraftModel **out) {
    DraftModel *d = mem_alloc(sizeof *d);
    *d = (DraftModel){.gguf = g, .n_vocab = n_vocab};
    Status st = model_load(&d->m, d->gguf, be);
    if (st.code) draft_model_free(d);
    *out = st.code ? NULL : d;
    return st;
}

DraftMemory draft_model_memory(const DraftModel *d, int n_threads, int n_seqs, int n_back) {
    return draft_steps_memory(&d->m, n_threads, draft_steps_rows(CHUNK, n_seqs), n_seqs, n_back);
}

Status draft_model_begin(DraftModel *d, ThreadPool *pool, KvShape kv) {
    model_set_context(&d->m, kv.n_ctx);
    TRY(draft_steps_begin(&d->steps, &d->m, pool, kv, draft_steps_rows(CHUNK, kv.n_seqs)));
    if (d->m.c.n_vocab != d->n_vocab) d->logits = mem_alloc((size_t)kv.n_seqs * (size_t)d->n_vocab * sizeof(float));
    return OK;
}

void draft_model_free(DraftModel *d) {
    if (!d) return;
    draft_steps_free(&d->steps);
    model_free(&d->m);
    gguf_close(d->gguf);
    free(d->logits);
    free(d);
}

const Model *draft_model_weights(const DraftModel *d) { return &d->m; }

// ---- sequences ------------------------------------------------------------------------------------------------------

// What the draft model keeps of a text is a sequence of its own: the same tokens, then drafts.
static void leave(void *arg, void *t, const Sequence *text) {
    DraftModel *d = arg;
    (void)text;
    if (!t) return;
    sequence_end(&d->steps.kv, t);
    free(t);
}

static bool follow(void *arg, void **t, const Sequence *text, int most) {
    DraftModel *d = arg;
    if (!*t) *t = mem_alloc(sizeof(Sequence));
    Sequence *own = *t;
    int same = sequence_common(own, text->tokens, text->n_tokens - 1); // the last token's row gives the logits
    kvcache_truncate(&d->steps.kv, own, same);
    sequence_push(own, text->tokens + own->n_tokens, text->n_tokens - own->n_tokens);
    if (own->n_cached == 0) kvcache_match_prefix(&d->steps.kv, own);
    if (own->n_tokens + most <= d->steps.kv.max_slots && kvcache_reserve(&d->steps.kv, own, own->n_tokens + most))
        return true;
    leave(d, own, text);
    *t = NULL;
    return false;
}

static int behind(const void *t, const Sequence *text) {
    return text->n_tokens - (t ? ((const Sequence *)t)->n_cached : 0);
}

static void push(void *t, int token) { sequence_push(t, &token, 1); }
static const Sequence *tokens(const void *t) { return t; }

// ---- steps ----------------------------------------------------------------------------------------------------------

static const float *forward(DraftModel *d) {
    const float *logits = draft_steps_run(&d->steps);
    draft_steps_count(&d->steps);
    return logits;
}

// If a sequence has many uncomputed tokens, computes all but a few of them, without logits.
static void catch_up(DraftModel *d, Sequence *q) {
    for (int n; (n = int_min(CHUNK, q->n_tokens - q->n_cached - 1)) >= DRAFT_STEPS_FEW;) {
        step_clear(&d->steps.step);
        step_add(&d->steps.step, NULL, q, n, false);
        forward(d);
    }
}

static const float *step(void *arg, void *const *texts, int n) {
    DraftModel *d = arg;
    for (int i = 0; i < n; i++) catch_up(d, texts[i]);
    step_clear(&d->steps.step);
    for (int i = 0; i < n; i++) {
        Sequence *own = texts[i];
        step_add(&d->steps.step, NULL, own, own->n_tokens - own->n_cached, true);
    }
    const float *logits = forward(d);
    if (!d->logits) return logits;
    int mine = d->m.c.n_vocab, both = int_min(mine, d->n_vocab);
    for (int i = 0; i < n; i++) {
        float *out = d->logits + (size_t)i * (size_t)d->n_vocab;
        memcpy(out, logits + (size_t)i * (size_t)mine, (size_t)both * sizeof *out);
        for (int k = both; k < d->n_vocab; k++) out[k] = -INFINITY;
    }
    return d->logits;
}

Drafter draft_model_drafter(DraftModel *d) {
    return (Drafter){
        .follow = follow, .behind = behind, .step = step, .push = push, .tokens = tokens, .leave = leave, .arg = d};
}
