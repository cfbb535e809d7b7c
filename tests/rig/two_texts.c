// tests/rig/two_texts.c: see tests/rig/two_texts.h.
#include "tests/rig/two_texts.h"

void two_texts_random(TwoTexts *t, int n, int alike) {
    t->n = n, t->alike = alike;
    random_tokens(t->tokens[0], n, TEXT_VOCAB, 3);
    random_tokens(t->tokens[1], n, TEXT_VOCAB, 4);
    memcpy(t->tokens[1], t->tokens[0], (size_t)alike * sizeof(int));
}

void two_texts_close(TwoTexts *t) {
    const KvStates *states = &t->r.kv.states;
    for (int i = 0; i < states->pool.n_states; i++) // only checkpoints of named blocks
        assert_true(states->refs[i] == (states->block_of[i] >= 0));
    for (int i = 0; i < 2; i++) free(t->want[i]);
    rig_close(&t->r);
}

void two_texts_expect_row(const TwoTexts *t, int text, int at, const float *row, const char *what) {
    const float *want = t->want[text] + (size_t)at * TEXT_VOCAB;
    double d = test_distance(row, want, TEXT_VOCAB);
    bool equal = t->limit > 0 ? d <= t->limit : memcmp(want, row, TEXT_VOCAB * sizeof *row) == 0;
    if (!equal) fail_msg("%s: token %d: distance %.3g", what, at, d);
}

void two_texts_drop(TwoTexts *t, Sequence *s) { sequence_end(&t->r.kv, s); }

void two_texts_finish(TwoTexts *t, Sequence *s, int text, int chunk, const char *what) {
    float *got = malloc((size_t)chunk * TEXT_VOCAB * sizeof *got);
    while (s->n_cached < s->n_tokens) {
        int first = s->n_cached, n = int_min(chunk, s->n_tokens - first);
        step(&t->r, &(RowsOfSequence){s, n, got}, 1);
        kvcache_commit(&t->r.kv, s, s->n_cached);
        for (int i = 0; i < n; i++) two_texts_expect_row(t, text, first + i, got + (size_t)i * TEXT_VOCAB, what);
    }
    free(got);
}

void two_texts_return(TwoTexts *t, Sequence *s, int to, int text, int chunk) {
    kvcache_truncate(&t->r.kv, s, to);
    assert_true(s->n_cached <= to && s->n_tokens == to);
    sequence_push(s, t->tokens[text] + to, t->n - to);
    two_texts_finish(t, s, text, chunk, "after a return");
}

void two_texts_check_fork(TwoTexts *t, int n_steps) {
    Sequence a = {0}, b = {0};
    float logits[2][TEXT_VOCAB];
    sequence_push(&a, t->tokens[0], t->alike);
    two_texts_finish(t, &a, 0, t->alike, "before the fork");
    kvcache_fork(&t->r.kv, &a, &b);
    sequence_push(&a, t->tokens[0] + t->alike, t->n - t->alike);
    sequence_push(&b, t->tokens[1] + t->alike, t->n - t->alike);
    for (int i = t->alike; i < t->alike + n_steps; i++) {
        step(&t->r, (RowsOfSequence[]){{&b, 1, logits[1]}, {&a, 1, logits[0]}}, 2);
        two_texts_expect_row(t, 1, i, logits[1], "the fork");
        two_texts_expect_row(t, 0, i, logits[0], "what was forked");
    }
    two_texts_drop(t, &a);
    two_texts_drop(t, &b);
}

void two_texts_check_preemption(TwoTexts *t, int chunk) {
    Sequence a = {0}, b = {0};
    sequence_push(&a, t->tokens[0], t->n);
    sequence_push(&b, t->tokens[1], t->n);
    step(&t->r, &(RowsOfSequence){&a, t->alike, NULL}, 1);
    kvcache_release(&t->r.kv, &a);
    two_texts_finish(t, &b, 1, chunk, "in the blocks of the preempted one");
    two_texts_finish(t, &a, 0, chunk, "after the preemption");
    two_texts_drop(t, &a);
    two_texts_drop(t, &b);
}

void two_texts_forward(TwoTexts *t, const Sequence *s, int first, const int *token, int n) {
    int rows[TEXT_DRAFTS + 2], seq[TEXT_DRAFTS + 1] = {0}, at[TEXT_DRAFTS + 1], table[TEXT_MOST];
    assert_true(n <= TEXT_DRAFTS + 1 && s->n_blocks <= TEXT_MOST);
    kvcache_table(&t->r.kv, s, KV_FULL, table);
    for (int i = 0; i < n; i++) at[i] = first + i;
    Batch b = {.n_rows = n,
               .n_seqs = 1,
               .max_blocks = s->n_blocks,
               .token = (int *)(uintptr_t)token, // which is only read
               .pos = at,
               .slot = at,
               .seq = seq,
               .block_table = table,
               .state_in = rows,
               .state_out = rows + 1};
    kvcache_put_states(&t->r.kv, s, first, 0, 0, &b);
    model_forward(&t->r.m, &t->r.w, t->r.kv.pool, &b);
}

void two_texts_check_drafts(TwoTexts *t, int kept, int chunk) {
    Sequence s = {0};
    int token[TEXT_DRAFTS + 1];
    sequence_push(&s, t->tokens[0], TEXT_KNOWN + 1);
    step(&t->r, &(RowsOfSequence){&s, TEXT_KNOWN, NULL}, 1);
    kvcache_commit(&t->r.kv, &s, s.n_cached);
    assert_true(kvcache_reserve_drafts(&t->r.kv, &s, TEXT_KNOWN + 1 + TEXT_DRAFTS, TEXT_DRAFTS));
    for (int i = 0; i <= TEXT_DRAFTS; i++) token[i] = i <= kept ? t->tokens[0][TEXT_KNOWN + i] : 5;
    two_texts_forward(t, &s, TEXT_KNOWN, token, TEXT_DRAFTS + 1);
    for (int i = 0; i <= kept; i++) kvcache_advance(&t->r.kv, &s, 1);
    sequence_push(&s, t->tokens[0] + TEXT_KNOWN + 1, t->n - TEXT_KNOWN - 1);
    kvcache_truncate(&t->r.kv, &s, t->n);
    assert_int_equal(s.n_cached, TEXT_KNOWN + 1 + kept);
    two_texts_finish(t, &s, 0, chunk, "after the drafts");
    two_texts_drop(t, &s);
}
