// tests/test_policy_model.c: drafts and forks with a real model and through the engine: the bits of K and V, the texts,
// the saved blocks and the counts must be those of plain decoding.
#define _GNU_SOURCE
enum { FAKE_CTX = 160 };
#include "engine.h"
#include "cpu/backend.h"
#include "kv/kvrows.h"
#include "tests/rig/directory.h"
#include "tests/rig/drafting.h"
#include "tests/rig/fake_model.h"
#include "tests/rig/model_rig.h"
#include "tests/rig/tiny_model.h"

#include <math.h>

// ---- over a real model ----------------------------------------------------------------------------------------------

enum { TEXTS = 5, N_NEW = 40 };

typedef struct {
    const char *isa;
    bool exact; // the deterministic backend
    int type_k, type_v, block, n_blocks, n_seqs, max_rows;
    bool share, greedy;
} Plan;

// The results of a run for each text.
typedef struct {
    int tokens[FAKE_CTX + 1], n_prompt, n_tokens, n_cached, n_blocks;
    uint8_t *rows; // (n_layers) K and V of the slots, in the format of kvrows_read
    size_t n_bytes;
    float *logits; // (N_NEW, n_vocab) the logits that tokens were drawn from
} DraftedText;

static void open_plan(Rig *r, const Gguf *g, const Plan *p) {
    const Backend *be;
    *r = (Rig){0};
    assert_ok((p->exact ? cpu_backend_deterministic : cpu_backend)(p->isa, &be));
    assert_ok(model_load(&r->m, g, be));
    r->pool = threads_new(2);
    KvShape shape = {.n_layers = r->m.c.n_layers - r->m.c.n_recurrent,
                     .n_recurrent = r->m.c.n_recurrent,
                     .rec = r->m.c.rec,
                     .n_checkpoints = 20,
                     .n_kv_heads = r->m.c.n_kv_heads,
                     .head_dim = r->m.c.head_dim,
                     .type_k = p->type_k,
                     .type_v = p->type_v,
                     .block = p->block,
                     .n_blocks = p->n_blocks,
                     .n_ctx = FAKE_CTX,
                     .n_seqs = p->n_seqs,
                     .share = p->share};
    assert_ok(kvcache_new(&r->kv, &shape));
    memset(r->kv.pool->k, 0xff, r->kv.pool->bytes_k); // NaN, so that reading a slot that was never written shows
    memset(r->kv.pool->v, 0xff, r->kv.pool->bytes_v);
    kvcache_shuffle(&r->kv, 7);
    assert_ok(workspace_new(&r->w, &r->m, r->pool, p->max_rows, p->max_rows, FAKE_CTX));
}

static uint8_t *read_kv(const Rig *r, const Sequence *q, int n, size_t *n_bytes) {
    size_t one = kvrows_bytes(r->kv.pool, n), layers = (size_t)r->m.c.n_layers - (size_t)r->m.c.n_recurrent;
    uint8_t *rows = mem_alloc(layers * one + 1);
    for (size_t layer = 0; layer < layers; layer++)
        kvrows_read(r->kv.pool, (int)layer, q->blocks, 0, n, rows + layer * one);
    *n_bytes = layers * one;
    return rows;
}

static void keep_text(const Rig *r, const Request *q, DraftedText *out) {
    out->n_prompt = q->n_prompt;
    out->n_tokens = q->seq->n_tokens;
    out->n_cached = q->seq->n_cached;
    out->n_blocks = q->seq->n_blocks;
    memcpy(out->tokens, q->seq->tokens, (size_t)q->seq->n_tokens * sizeof(int));
    out->rows = read_kv(r, q->seq, q->seq->n_cached, &out->n_bytes);
}

static void free_texts(DraftedText *texts) {
    for (int i = 0; i < TEXTS; i++) {
        free(texts[i].rows);
        free(texts[i].logits);
    }
}

static Finish keep_logits(Request *q, int token, const float *logits) {
    DraftedText *text = q->arg;
    size_t n_vocab = 320;
    memcpy(text->logits + (size_t)(q->n_new - 1) * n_vocab, logits, n_vocab * sizeof *logits);
    return token < 2 ? FINISH_EOG : RUNNING;
}

static void real_request(Request *q, Sequence *seq, const Plan *p, int i, DraftedText *out) {
    static const int prompts[] = {3, 40, 66, 17, 31};
    int prompt[80];
    *q = (Request){
        .seq = seq, .sampling = sampler_defaults(), .sequence_key = (uint64_t)i, .max_new = N_NEW - i, .arg = out};
    q->sampling.greedy = p->greedy;
    q->sampling.repeat_penalty = 1.1f;
    q->emit = keep_logits;
    out->logits = mem_alloc((size_t)N_NEW * 320 * sizeof(float));
    random_tokens(prompt, prompts[i], 320, i == 2 ? 1 : (uint64_t)i); // texts 1 and 2 have the same prompt beginning
    sequence_push(q->seq, prompt, prompts[i]);
}

// Runs the texts, some of which begin a few steps later; returns the number of preemptions.
static int run_texts(Rig *r, const Plan *p, const Policy *policy, const DraftedText *foreseen, DraftedText *texts) {
    Sampler *sampler = sampler_new(r->m.c.n_vocab);
    SchedulerShape shape = {
        .n_vocab = r->m.c.n_vocab, .max_rows = p->max_rows, .max_out = p->max_rows, .max_seqs = p->n_seqs};
    Scheduler *s = scheduler_new(&r->kv, sampler, shape, policy);
    Request q[TEXTS];
    Sequence seqs[TEXTS] = {0};
    Foreseen known[TEXTS];
    memset(texts, 0, TEXTS * sizeof *texts);
    int added = 0;
    for (bool any = true; any || added < TEXTS;) {
        if (added < TEXTS) {
            real_request(&q[added], &seqs[added], p, added, &texts[added]);
            if (foreseen) known[added] = (Foreseen){(int *)foreseen[added].tokens, foreseen[added].n_tokens};
            q[added].state = foreseen ? &known[added] : NULL;
            scheduler_add(s, &q[added++]);
        }
        Batch *b;
        any = scheduler_next(s, &b);
        if (any) scheduler_take(s, model_forward(&r->m, &r->w, r->kv.pool, b));
        for (int i = 0; i < added; i++) {
            if (q[i].finish == RUNNING || texts[i].rows) continue;
            keep_text(r, &q[i], &texts[i]);
            kvcache_release(&r->kv, q[i].seq);
        }
    }
    for (int i = 0; i < TEXTS; i++) {
        assert_true(q[i].finish == FINISH_LENGTH || q[i].finish == FINISH_EOG);
        assert_int_equal(q[i].time.n_gaps, q[i].n_new - 1);
        sequence_free(q[i].seq);
        timeline_free(&q[i].time);
    }
    assert_int_equal(r->kv.n_free, r->kv.pool->n_blocks);
    assert_int_equal(r->kv.n_free_tails, r->kv.pool->n_tails);
    int n_preempted = (int)scheduler_preemptions(s);
    scheduler_free(s);
    sampler_free(sampler);
    return n_preempted;
}

static void assert_same_texts(const DraftedText *a, const DraftedText *b, bool same_blocks) {
    for (int i = 0; i < TEXTS; i++) {
        assert_int_equal(a[i].n_tokens, b[i].n_tokens);
        assert_memory_equal(a[i].tokens, b[i].tokens, (size_t)a[i].n_tokens * sizeof(int));
        assert_int_equal(a[i].n_cached, b[i].n_cached);
        if (same_blocks) assert_int_equal(a[i].n_blocks, b[i].n_blocks);
        assert_int_equal(a[i].n_bytes, b[i].n_bytes);
        if (memcmp(a[i].rows, b[i].rows, a[i].n_bytes) != 0) fail_msg("text %d: other K and V", i);
    }
}

// Compares plain decoding in a contiguous cache with drafts in all layouts. With kernels whose numbers do not depend on
// the batch all bits must be the same; with sealed types also those of every sealed group. Returns the number of
// preemptions.
static int same_bits(const Gguf *g, const char *isa, int type_k, int type_v) {
    static const Plan plans[] = {{.block = 0, .n_seqs = 3, .max_rows = 64},
                                 {.block = 0, .n_seqs = 3, .max_rows = 7},
                                 {.block = 16, .n_seqs = 4, .max_rows = 64, .share = true},
                                 {.block = 32, .n_seqs = 5, .max_rows = 20, .share = true},
                                 {.block = 64, .n_seqs = 5, .max_rows = 64},
                                 {.block = 32, .n_blocks = 4, .n_seqs = 5, .max_rows = 30, .share = true},
                                 {.block = 16, .n_blocks = 7, .n_seqs = 5, .max_rows = 64}};
    Rig r;
    DraftedText want[TEXTS], got[TEXTS], plain[TEXTS];
    int n_kept = 0, n_preempted = 0;
    const Plan first = {.isa = isa, .exact = true, .type_k = type_k, .type_v = type_v, .n_seqs = 1, .max_rows = 128};
    open_plan(&r, g, &first);
    run_texts(&r, &first, &plain_policy, NULL, want);
    rig_close(&r);
    for (size_t i = 0; i < ARRAY_LEN(plans); i++) {
        Plan p = plans[i];
        p.isa = isa, p.exact = true, p.type_k = type_k, p.type_v = type_v;
        Proposer d = {.random = i, .n_vocab = 320};
        const Policy drafting = proposer_policy(&d, &plain_policy);
        open_plan(&r, g, &p);
        run_texts(&r, &p, &plain_policy, NULL, plain);
        rig_close(&r);
        open_plan(&r, g, &p);
        n_preempted += run_texts(&r, &p, &drafting, want, got);
        rig_close(&r);
        assert_same_texts(want, got, false);
        assert_same_texts(plain, got, true);
        n_kept += d.n_kept;
        free_texts(got);
        free_texts(plain);
    }
    assert_true(n_kept > 100);
    free_texts(want);
    return n_preempted;
}

static const int kv_types[][2] = {{TYPE_F32, TYPE_F32},   {TYPE_F16, TYPE_F16},   {TYPE_FP8, TYPE_FP8},
                                  {TYPE_Q8_0, TYPE_Q8_0}, {TYPE_Q4_0, TYPE_Q4_0}, {TYPE_KIVI2, TYPE_KIVI2}};

static const char *const isas[] = {"scalar", "portable", "avx2", "avxvnni", "avx512", "amx"};

static void test_same_bits(void **state) {
    (void)state;
    static const int types[] = {TYPE_F32, TYPE_Q8_0};
    int n_preempted = 0;
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        Gguf *g = tiny_model(&(TinyModel){.type = types[t], .seed = 5});
        for (size_t i = 0; i < ARRAY_LEN(isas); i++)
            // F32 is tested with dense KV only
            for (size_t k = 0; k < (t ? ARRAY_LEN(kv_types) : 2) && cpu_has_isa(isas[i]); k++)
                n_preempted += same_bits(g, isas[i], kv_types[k][0], kv_types[k][1]);
        gguf_close(g);
    }
    assert_true(n_preempted > 10);
}

// The states of recurrent layers must be right after refused drafts, after dropped steps, and after preemptions.
static void test_recurrent_bits(void **state) {
    (void)state;
    int n_preempted = 0;
    for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
        if (!cpu_has_isa(isas[i])) continue;
        Gguf *g = tiny_model(&(TinyModel){.arch = i % 2 ? "lfm2" : "qwen35", .seed = 5});
        n_preempted += same_bits(g, isas[i], TYPE_F16, i % 2 ? TYPE_Q8_0 : TYPE_F16);
        gguf_close(g);
    }
    assert_true(n_preempted > 0);
}

// The fast kernels, where the numbers of a row depend on the number of rows.
static void near_texts(const Gguf *g, const char *isa, int type_k, int type_v, double distance) {
    Plan p = {.isa = isa, .type_k = type_k, .type_v = type_v, .block = 32, .n_seqs = 3, .max_rows = 64, .greedy = true};
    Rig r;
    DraftedText want[TEXTS], got[TEXTS];
    open_plan(&r, g, &p);
    run_texts(&r, &p, &plain_policy, NULL, want);
    rig_close(&r);
    Proposer d = {.random = 3, .n_vocab = 320};
    const Policy drafting = proposer_policy(&d, &plain_policy);
    open_plan(&r, g, &p);
    run_texts(&r, &p, &drafting, want, got);
    rig_close(&r);
    for (int i = 0; i < TEXTS; i++)
        check_margin(want[i].tokens + want[i].n_prompt, want[i].logits, got[i].tokens + got[i].n_prompt, got[i].logits,
                     int_min(want[i].n_tokens, got[i].n_tokens) - want[i].n_prompt, 320, distance);
    assert_true(d.n_kept > 10);
    free_texts(want);
    free_texts(got);
}

static void test_near_texts(void **state) {
    (void)state;
    static const struct {
        int type;
        double dense, sealed;
    } weights[] = {{TYPE_F32, 1e-3, 0.05}, {TYPE_Q8_0, 0.05, 0.2}}; // Q8_0: decoding rounds activations to int8
    for (size_t t = 0; t < ARRAY_LEN(weights); t++) {
        Gguf *g = tiny_model(&(TinyModel){.type = weights[t].type, .seed = 5});
        for (size_t i = 0; i < ARRAY_LEN(isas); i++)
            for (size_t k = 0; k < ARRAY_LEN(kv_types) && cpu_has_isa(isas[i]); k++)
                near_texts(g, isas[i], kv_types[k][0], kv_types[k][1], k < 2 ? weights[t].dense : weights[t].sealed);
        gguf_close(g);
    }
}

// At the end of a request with several sequences, each must have the K and V, and the logits after them, of a sequence
// that is computed alone.
typedef struct {
    Rig *alone;
    int n;
} ForkReference;

static void as_computed_alone(void *arg, Scheduler *s, Request *r) {
    ForkReference *a = arg;
    Rig *rig = a->alone;
    Rig of_scheduler = {.m = rig->m, .kv = *scheduler_kv(s)};
    for (int i = 0; i <= r->n_more; i++, a->n++) {
        const Sequence *q = request_sequence(r, i);
        Sequence alone = {0};
        size_t n_got, n_want;
        assert_int_equal(q->n_cached, q->n_tokens - 1);
        sequence_push(&alone, q->tokens, q->n_cached);
        while (alone.n_cached < alone.n_tokens)
            step(rig, &(RowsOfSequence){&alone, int_min(50, alone.n_tokens - alone.n_cached), NULL}, 1);
        uint8_t *got = read_kv(&of_scheduler, q, q->n_cached, &n_got);
        uint8_t *want = read_kv(rig, &alone, q->n_cached, &n_want);
        assert_int_equal(n_got, n_want);
        if (memcmp(got, want, n_got) != 0) fail_msg("sequence %d: other K and V", i);
        free(got);
        free(want);
        sequence_end(&rig->kv, &alone);
    }
}

static void real_forks(const Gguf *g, const char *isa, int type_k, int type_v, bool share) {
    Plan p = {.isa = isa,
              .exact = true,
              .type_k = type_k,
              .type_v = type_v,
              .block = 32,
              .n_seqs = 6,
              .max_rows = 64,
              .share = share};
    Plan contiguous = {.isa = isa, .exact = true, .type_k = type_k, .type_v = type_v, .n_seqs = 1, .max_rows = 64};
    Rig r, alone;
    open_plan(&r, g, &p);
    open_plan(&alone, g, &contiguous);
    ForkReference look = {.alone = &alone};
    Sampler *sampler = sampler_new(r.m.c.n_vocab);
    Forker forker = {.n = 4, .random = 5, .sampler = sampler, .last = as_computed_alone, .arg = &look};
    const Policy policy = forker_policy(&forker, &plain_policy);
    SchedulerShape shape = {.n_vocab = r.m.c.n_vocab, .max_rows = 64, .max_out = 64, .max_seqs = 6};
    Scheduler *s = scheduler_new(&r.kv, sampler, shape, &plain_policy);
    Request q[2];
    Sequence seqs[2] = {0};
    for (int i = 0; i < 2; i++) {
        int prompt[45];
        random_tokens(prompt, 45, 320, (uint64_t)i);
        q[i] = (Request){.seq = &seqs[i], .sampling = sampler_defaults(), .max_new = 30, .policy = i ? NULL : &policy};
        q[i].width = i ? 0 : 4;
        sequence_push(q[i].seq, prompt, 45);
        scheduler_add(s, &q[i]);
    }
    for (Batch *b; scheduler_next(s, &b);) scheduler_take(s, model_forward(&r.m, &r.w, r.kv.pool, b));
    assert_true(look.n == 4 && forker.n_parents > 3);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(q[i].n_new, 30);
        sequence_end(&r.kv, q[i].seq);
        timeline_free(&q[i].time);
    }
    assert_int_equal(r.kv.n_free, r.kv.pool->n_blocks);
    assert_int_equal(r.kv.n_free_tails, r.kv.pool->n_tails);
    scheduler_free(s);
    sampler_free(sampler);
    rig_close(&alone);
    rig_close(&r);
}

static void test_forks_as_alone(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.type = TYPE_Q8_0, .seed = 5});
    for (size_t i = 0; i < ARRAY_LEN(isas); i++)
        for (size_t k = 0; k < ARRAY_LEN(kv_types) && cpu_has_isa(isas[i]); k++)
            real_forks(g, isas[i], kv_types[k][0], kv_types[k][1], k % 2);
    gguf_close(g);
}

// ---- through the engine ---------------------------------------------------------------------------------------------

typedef struct {
    int tokens[2][FAKE_CTX + 1], n_new[2], n_reused[2];
    double flops[2]; // of the prompts, and after them
    uint64_t files;  // a hash of the files in the directory
    int n_files;
} Kept;

static void hash_files(const char *dir, Kept *out) {
    DIR *d = opendir(dir);
    for (struct dirent *entry; (entry = readdir(d));) {
        char path[2048];
        Buf bytes = {0};
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        assert_ok(file_read(path, &bytes));
        uint64_t hash = 0;
        for (const char *at = entry->d_name; *at; at++) hash = mix(hash, (uint64_t)*at);
        for (size_t i = 0; i < bytes.n; i++) hash = mix(hash, (uint8_t)bytes.data[i]);
        out->files += hash; // a sum, because the order of files does not matter
        out->n_files++;
        buf_free(&bytes);
    }
    closedir(d);
}

// Runs two requests with the same beginning, with a directory for their blocks; drafter NULL: plain decoding.
static void run_engine(Proposer *d, Foreseen *foreseen, Kept *out) {
    Engine e;
    const char *dir = test_tmp("policy_kv");
    EngineConfig o = {.device = "cpu",
                      .isa = "scalar",
                      .quiet = true,
                      .threads = 1,
                      .ubatch = 32,
                      .type_k = TYPE_F32,
                      .type_v = TYPE_F32,
                      .kv_block = 16,
                      .kv_dir = dir,
                      .kv_dir_size = 1 << 26};
    *out = (Kept){0};
    remove_directory(dir);
    assert_ok(engine_open_view(&e, &o, (EngineNeeds){.n_ctx = FAKE_CTX, .n_seqs = 2, .max_out = 32, .pooled = true},
                               tiny_model(&(TinyModel){.seed = 5})));
    const Policy drafting = d ? proposer_policy(d, e.policy) : (Policy){0};
    for (int i = 0; i < 2; i++) {
        int prompt[50];
        Sequence seq = {0};
        Request r = {.seq = &seq, .sampling = sampler_defaults(), .max_new = 60, .policy = d ? &drafting : NULL};
        r.state = d ? &foreseen[i] : NULL;
        random_tokens(prompt, 50, 320, 1);
        sequence_push(r.seq, prompt, 50 - i);
        scheduler_add(e.sched, &r);
        engine_run(&e);
        engine_keep(&e, r.seq);
        memcpy(out->tokens[i], r.seq->tokens, (size_t)r.seq->n_tokens * sizeof(int));
        out->n_new[i] = r.n_new;
        out->n_reused[i] = r.n_reused;
        out->flops[0] += r.time.prefill_flops;
        out->flops[1] += r.time.decode_flops;
        sequence_end(&e.kv, r.seq);
        timeline_free(&r.time);
    }
    engine_close(&e);
    hash_files(dir, out);
    remove_directory(dir);
}

// Saved blocks, counts and reused slots must be those of plain decoding, and the cost of drafts must not be added to a
// prompt.
static void test_nothing_of_drafts_is_kept(void **state) {
    (void)state;
    static Kept want, got;
    run_engine(NULL, NULL, &want);
    Foreseen text[2] = {{want.tokens[0], 110}, {want.tokens[1], 109}};
    Proposer d = {.random = 7, .n_vocab = 320};
    run_engine(&d, text, &got);
    assert_true(d.n_kept > 10 && d.n_drafts > 2 * d.n_kept);
    assert_memory_equal(want.tokens, got.tokens, sizeof want.tokens);
    assert_memory_equal(want.n_new, got.n_new, sizeof want.n_new);
    assert_memory_equal(want.n_reused, got.n_reused, sizeof want.n_reused);
    assert_int_equal(want.n_reused[1], 48);
    assert_int_equal(want.n_files, 6 + 6 - 3); // files of 16 slots; three blocks are shared
    assert_int_equal(want.n_files, got.n_files);
    assert_true(want.files == got.files);
    assert_true(got.flops[0] < 1.5 * want.flops[0] && got.flops[1] > 1.5 * want.flops[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_recurrent_bits),
        cmocka_unit_test(test_near_texts),
        cmocka_unit_test(test_forks_as_alone),
        cmocka_unit_test(test_nothing_of_drafts_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
