// tests/test_evict.c: eviction: which slots a sequence drops and when, the positions of sinks, and that nothing changes
// before the first removal.
//
// Uses a tiny random model in F32 with the scalar kernels. Each step is one forward whose slots and positions differ.
#include "tests/rig/testing.h"

#include "cpu/backend.h"
#include "engine.h"
#include "policy/plain.h"
#include "tests/rig/tiny_model.h"

#include <math.h>

enum { N_CTX = 96, MOST_ROWS = 128, TEXT = 400 };

typedef struct {
    Gguf *g;
    Model m;
    ThreadPool *pool;
    Workspace w;
    KvCache kv;
    int tokens[TEXT];
} EvictRig;

static void rig_open_typed(EvictRig *r, int block, int type_k, int type_v) {
    const Backend *be;
    uint64_t random = 4;
    *r = (EvictRig){.g = tiny_model(&(TinyModel){.n_heads = 6, .n_kv_heads = 2, .head_dim = 24, .ffn = 96, .seed = 3})};
    assert_ok(cpu_backend("scalar", &be));
    assert_ok(model_load(&r->m, r->g, be));
    r->pool = threads_new(2);
    assert_ok(workspace_new(&r->w, &r->m, r->pool, MOST_ROWS, MOST_ROWS, TEXT));
    KvShape shape = memory_plan_kv_shape(&r->m);
    shape.type_k = type_k;
    shape.type_v = type_v;
    shape.block = block;
    shape.n_ctx = N_CTX;
    shape.n_seqs = 2;
    assert_ok(kvcache_new(&r->kv, &shape));
    memset(r->kv.pool->k, 0xff, r->kv.pool->bytes_k);
    memset(r->kv.pool->v, 0xff, r->kv.pool->bytes_v);
    kvcache_shuffle(&r->kv, 9);
    for (int i = 0; i < TEXT; i++) r->tokens[i] = (int)(test_random(&random) % (uint64_t)r->m.c.n_vocab);
}

static void rig_open(EvictRig *r, int block) { rig_open_typed(r, block, TYPE_F32, TYPE_F32); }

static void rig_close(EvictRig *r) {
    kvcache_free(&r->kv);
    workspace_free(&r->w);
    threads_free(r->pool);
    model_free(&r->m);
    gguf_close(r->g);
}

static Evict *evict_of(EvictRig *r, const char *text) {
    EvictPlan plan;
    Evict *e;
    assert_ok(evict_parse(text, &plan));
    assert_ok(evict_new(&plan, &r->m, &r->kv, &e));
    return e;
}

// Computes the next n tokens at positions that are larger by `turned`; returns the logits of the last.
static const float *forward(EvictRig *r, Sequence *s, int n, int turned, Probe *probe) {
    int pos[MOST_ROWS], slot[MOST_ROWS], seq[MOST_ROWS] = {0}, out = n - 1;
    assert_true(kvcache_reserve(&r->kv, s, sequence_slots(s) + n));
    for (int i = 0; i < n; i++) {
        pos[i] = s->n_cached + i + turned;
        slot[i] = sequence_slots(s) + i;
    }
    Batch b = {.n_rows = n,
               .n_out = 1,
               .n_seqs = 1,
               .max_blocks = s->n_blocks,
               .token = s->tokens + s->n_cached,
               .pos = pos,
               .slot = slot,
               .seq = seq,
               .out_row = &out,
               .block_table = s->blocks,
               .probe = probe};
    const float *logits = model_forward(&r->m, &r->w, r->kv.pool, &b);
    s->n_cached += n;
    return logits;
}

// Computes a step of up to `most` tokens, for which e makes room (NULL: no eviction).
static const float *step(EvictRig *r, Evict *e, Sequence *s, int n_prompt, int most) {
    int n = int_min(most, s->n_tokens - s->n_cached);
    if (e) n = int_min(n, evict_room(e, s, n_prompt));
    assert_true(n > 0);
    return forward(r, s, n, 0, e ? evict_probe(e, s, n_prompt, n) : NULL);
}

static const float *key_at(const EvictRig *r, const Sequence *s, int layer, int head, int slot) {
    const KvPool *kv = r->kv.pool;
    return (const float *)(const void *)kv->k +
           kv_index(kv, layer, s->blocks[slot / kv->block], head, slot % kv->block);
}

static const char *const plans[] = {"sinks,sink=4,window=28", "sink=0,window=32", "shift,sink=2",
                                    "h2o,heavy=16,recent=16", "snapkv,cap=40,window=8"};

// ---- parsing --evict ------------------------------------------------------------------------------------------------

static void test_plans_are_read(void **state) {
    (void)state;
    EvictPlan p;
    assert_ok(evict_parse("sinks", &p));
    assert_true(p.kind == EVICT_SINKS && p.sink == 4 && p.window == 1024);
    assert_ok(evict_parse("sink=2,window=30", &p));
    assert_true(p.kind == EVICT_SINKS && p.sink == 2 && p.window == 30);
    assert_ok(evict_parse("h2o,recent=20,heavy=10", &p));
    assert_true(p.kind == EVICT_H2O && p.most == 30 && p.window == 20);
    assert_ok(evict_parse("snapkv,cap=100", &p));
    assert_true(p.kind == EVICT_SNAPKV && p.most == 100 && p.window == 32);
    assert_ok(evict_parse("shift", &p));
    assert_true(p.kind == EVICT_SHIFT && p.sink == 1);
    static const char *const bad[] = {"",
                                      "sink",
                                      "window",
                                      "sinks,window=",
                                      "sinks,window=0",
                                      "sinks,4",
                                      "shift,heavy=2",
                                      "h2o,window=3",
                                      "h2o,recent=0",
                                      "h2o,heavy=0",
                                      "snapkv,-1",
                                      "sink=1e3",
                                      "sink=-1",
                                      "sink=999999999999",
                                      "snapkv,cap=32",
                                      "SINKS",
                                      "sinks,",
                                      "sink=4,",
                                      "sinks,sink=4,sink=8",
                                      "sinks,,sink=4",
                                      "sinks,sink=4.5"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (evict_parse(bad[i], &p).code != QUILL_USAGE) fail_msg("\"%s\": an error expected", bad[i]);
}

static void test_what_cannot_be_is_refused(void **state) {
    (void)state;
    EvictRig r;
    EvictPlan p;
    Evict *e;
    rig_open(&r, 16);
    assert_ok(evict_parse("sinks", &p));
    Status st = evict_new(&p, &r.m, &r.kv, &e);
    assert_int_equal(st.code, QUILL_USAGE);
    assert_non_null(strstr(st.message, "-c 1028 fits"));
    rig_close(&r);
    rig_open_typed(&r, 16, TYPE_F16, TYPE_Q8_0);
    assert_ok(evict_parse("shift", &p));
    st = evict_new(&p, &r.m, &r.kv, &e);
    assert_int_equal(st.code, QUILL_USAGE);
    assert_non_null(strstr(st.message, "dense KV expected"));
    rig_close(&r);
}

// ---- before the first removal ---------------------------------------------------------------------------------------

static void test_a_budget_that_suffices_changes_no_bit(void **state) {
    (void)state;
    static const int chunks[] = {30, 7, 1};
    for (size_t p = 0; p < ARRAY_LEN(plans); p++)
        for (size_t c = 0; c < ARRAY_LEN(chunks); c++) {
            EvictRig r;
            rig_open(&r, 16);
            Evict *e = evict_of(&r, plans[p]);
            Sequence a = {0}, b = {0};
            sequence_push(&a, r.tokens, 32);
            sequence_push(&b, r.tokens, 32);
            float *want = malloc((size_t)r.m.c.n_vocab * sizeof *want);
            while (a.n_cached < 32) {
                memcpy(want, step(&r, NULL, &a, 20, chunks[c]), (size_t)r.m.c.n_vocab * sizeof *want);
                const float *got = step(&r, e, &b, 20, chunks[c]);
                assert_memory_equal(got, want, (size_t)r.m.c.n_vocab * sizeof *want);
                assert_int_equal(b.n_gone, 0);
            }
            free(want);
            kvcache_release(&r.kv, &a);
            kvcache_release(&r.kv, &b);
            sequence_free(&a);
            sequence_free(&b);
            evict_free(e);
            rig_close(&r);
        }
}

// ---- texts past the context -----------------------------------------------------------------------------------------

static void test_slots_stay_within_the_budget(void **state) {
    (void)state;
    static const int budgets[] = {32, 32, N_CTX, 32}, chunks[] = {1, 5, 64}, blocks[] = {0, 1, 16};
    for (size_t p = 0; p < 4; p++)
        for (size_t c = 0; c < 3; c++) {
            EvictRig r;
            rig_open(&r, blocks[(p + c) % 3]);
            Evict *e = evict_of(&r, plans[p]);
            assert_true(evict_endless(e));
            Sequence s = {0};
            sequence_push(&s, r.tokens, TEXT);
            while (s.n_cached < TEXT) {
                int before = s.n_cached;
                const float *logits = step(&r, e, &s, TEXT, chunks[c]);
                for (int i = 0; i < r.m.c.n_vocab; i++) assert_true(isfinite(logits[i]));
                assert_in_range(sequence_slots(&s), 1, budgets[p]);
                assert_true(s.n_cached > before && s.n_cached - before <= chunks[c]);
                assert_int_equal(s.n_blocks, (sequence_slots(&s) + r.kv.pool->block - 1) / r.kv.pool->block);
            }
            assert_true(s.n_gone >= TEXT - budgets[p]);
            // the tokens of the other slots are unknown, so all slots are dropped
            kvcache_truncate(&r.kv, &s, TEXT - 1);
            assert_int_equal(s.n_cached, 0);
            assert_int_equal(s.n_gone, 0);
            step(&r, e, &s, TEXT, 10);
            assert_int_equal(sequence_slots(&s), 10);
            sequence_end(&r.kv, &s);
            evict_free(e);
            rig_close(&r);
        }
}

// How many slots an eviction drops: a quarter of the window, half of the context's slots, an eighth of h2o's window.
static void test_how_much_is_dropped(void **state) {
    (void)state;
    static const int full[] = {32, 32, N_CTX, 32}, left[] = {32 - 7, 32 - 8, N_CTX - 47, 32 - 2};
    for (size_t p = 0; p < 4; p++) {
        EvictRig r;
        rig_open(&r, 16);
        Evict *e = evict_of(&r, plans[p]);
        Sequence s = {0};
        sequence_push(&s, r.tokens, TEXT);
        step(&r, e, &s, TEXT, full[p]);
        assert_int_equal(sequence_slots(&s), full[p]);
        assert_int_equal(evict_room(e, &s, TEXT), full[p] - left[p]);
        assert_int_equal(sequence_slots(&s), left[p]);
        sequence_end(&r.kv, &s);
        evict_free(e);
        rig_close(&r);
    }
}

static void assert_near(const float *got, const float *want, int n, double limit) {
    double error = 0, norm = 0;
    for (int i = 0; i < n; i++) {
        error += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        norm += (double)want[i] * (double)want[i];
    }
    if (!(sqrt(error / norm) <= limit)) fail_msg("a distance of %g expected, %g found", limit, sqrt(error / norm));
}

// In the first layer K depends only on token and position. The K of a sink must be that of its token directly before
// the window; the K of the window must be unchanged.
static void test_sinks_stand_before_the_window(void **state) {
    (void)state;
    EvictRig r;
    rig_open(&r, 16);
    Evict *e = evict_of(&r, "sinks,sink=4,window=28");
    Sequence s = {0}, all = {0}, moved = {0};
    sequence_push(&s, r.tokens, 300);
    while (s.n_cached < 300) step(&r, e, &s, 300, 3);
    int hd = r.m.c.head_dim, slots = sequence_slots(&s);
    assert_int_equal(slots + s.n_gone, 300);
    sequence_push(&moved, r.tokens, 4);
    forward(&r, &moved, 4, s.n_gone, NULL);
    for (int head = 0; head < r.m.c.n_kv_heads; head++)
        for (int slot = 0; slot < 4; slot++)
            assert_near(key_at(&r, &s, 0, head, slot), key_at(&r, &moved, 0, head, slot), hd, 1e-5);
    kvcache_release(&r.kv, &moved);
    // The window: the last tokens, each at its own position.
    sequence_push(&all, r.tokens + 4 + s.n_gone, slots - 4);
    forward(&r, &all, slots - 4, 4 + s.n_gone, NULL);
    for (int head = 0; head < r.m.c.n_kv_heads; head++)
        for (int slot = 4; slot < slots; slot++)
            assert_memory_equal(key_at(&r, &s, 0, head, slot), key_at(&r, &all, 0, head, slot - 4), (size_t)hd * 4);
    kvcache_release(&r.kv, &all);
    sequence_end(&r.kv, &s);
    sequence_free(&all);
    sequence_free(&moved);
    evict_free(e);
    rig_close(&r);
}

// ---- through the scheduler ------------------------------------------------------------------------------------------

// Checks the rows of a step after `before` computed tokens: positions count all tokens, slots only those that are kept.
static void check_positions(const Batch *b, const Sequence *s, int before, int budget) {
    assert_int_equal(b->n_seqs, 1);
    for (int i = 0; i < b->n_rows; i++) {
        assert_int_equal(b->pos[i], before + i);
        assert_int_equal(b->slot[i], before + i - s->n_gone);
        assert_int_equal(b->token[i], s->tokens[before + i]);
        assert_in_range(b->slot[i], 0, budget - 1);
    }
}

// Appends the likeliest tokens after the prompt, one step for each.
static void write_on(EvictRig *r, Evict *e, Sequence *s, int n_prompt, int n_new, int chunk) {
    Sampler *sampler = sampler_new(r->m.c.n_vocab);
    SamplerParams how = sampler_defaults();
    how.greedy = true;
    for (int i = 0; i < n_new; i++) {
        const float *logits = NULL;
        while (s->n_cached < s->n_tokens) logits = step(r, e, s, n_prompt, chunk);
        int token = sampler_sample(sampler, &how, logits, s->tokens, s->n_tokens, 0, (uint64_t)s->n_tokens);
        sequence_push(s, &token, 1);
    }
    sampler_free(sampler);
}

static void schedule(const char *plan, int n_prompt, int n_new, int budget, int chunk) {
    EvictRig r;
    Sequence alone = {0}, scheduled = {0};
    Request q = {.seq = &scheduled, .max_new = n_new, .sampling = sampler_defaults()};
    rig_open(&r, 16);
    Evict *e = evict_of(&r, plan);
    Sampler *sampler = sampler_new(r.m.c.n_vocab);
    const Policy policy = evict_policy(e, &plain_policy);
    Scheduler *sched = scheduler_new(
        &r.kv, sampler, (SchedulerShape){.n_vocab = r.m.c.n_vocab, .max_rows = chunk, .max_out = 1, .max_seqs = 1},
        &policy);
    q.sampling.greedy = true;
    sequence_push(q.seq, r.tokens, n_prompt);
    sequence_push(&alone, r.tokens, n_prompt);
    scheduler_add(sched, &q);
    Batch *b;
    for (int before = 0; scheduler_next(sched, &b); before = q.seq->n_cached) {
        check_positions(b, q.seq, before, q.n_new > 0 || strncmp(plan, "snapkv", 6) != 0 ? budget : N_CTX);
        scheduler_take(sched, model_forward(&r.m, &r.w, r.kv.pool, b));
        assert_int_equal(q.seq->n_cached, before + b->n_rows); // n_cached counts the dropped slots too
    }
    assert_int_equal(q.finish, FINISH_LENGTH);
    assert_int_equal(q.seq->n_cached, n_prompt + n_new - 1);
    assert_true(q.seq->n_gone > 0);
    kvcache_release(&r.kv, q.seq);
    write_on(&r, e, &alone, n_prompt, n_new, chunk);
    assert_int_equal(alone.n_tokens, q.seq->n_tokens);
    assert_memory_equal(alone.tokens, q.seq->tokens, (size_t)alone.n_tokens * sizeof *alone.tokens);
    sequence_end(&r.kv, &alone);
    sequence_free(q.seq);
    timeline_free(&q.time);
    scheduler_free(sched);
    sampler_free(sampler);
    evict_free(e);
    rig_close(&r);
}

static void test_positions_go_on_in_the_scheduler(void **state) {
    (void)state;
    static const int chunks[] = {1, 7, 64};
    for (size_t c = 0; c < ARRAY_LEN(chunks); c++) {
        schedule("sinks,sink=4,window=28", 150, 100, 32, chunks[c]); // the prompt is longer than the context
        schedule("sink=0,window=32", 20, 80, 32, chunks[c]);
        schedule("shift,sink=2", 90, 150, N_CTX, chunks[c]);
        schedule("h2o,heavy=16,recent=16", 150, 60, 32, chunks[c]);
        schedule("snapkv,cap=40,window=8", 80, 30, 40 + 30, chunks[c]);
    }
}

// ---- sums of attention weights --------------------------------------------------------------------------------------

// The probe's sums in the last layer must equal those computed in double from its queries and keys.
static void test_mass_is_what_softmax_gave(void **state) {
    (void)state;
    EvictRig r;
    rig_open(&r, 16);
    Evict *e = evict_of(&r, "h2o,heavy=40,recent=40");
    Sequence s = {0};
    sequence_push(&s, r.tokens, 50);
    step(&r, e, &s, 50, 50);
    Probe *probe = evict_probe(e, &s, 50, 1);
    const Heads *h = &r.m.layers[0].heads;
    int hd = h->head_dim, group = h->n_heads / h->n_kv_heads, layer = r.m.c.n_layers - 1;
    for (int head = 0; head < h->n_kv_heads; head++) {
        double mass[50] = {0}, p[50];
        for (int row = 0; row < 50; row++)
            for (int g = 0; g < group; g++) {
                const float *q = r.w.q + row * r.w.q_dim + (head * group + g) * hd;
                double max = -INFINITY, sum = 0;
                for (int t = 0; t <= row; t++) {
                    p[t] = 0;
                    for (int i = 0; i < hd; i++) p[t] += (double)q[i] * (double)key_at(&r, &s, layer, head, t)[i];
                    max = fmax(max, p[t] *= (double)h->scale);
                }
                for (int t = 0; t <= row; t++) sum += p[t] = exp(p[t] - max);
                for (int t = 0; t <= row; t++) mass[t] += p[t] / sum;
            }
        const float *got = probe->mass + (layer * h->n_kv_heads + head) * probe->n_slots;
        for (int t = 0; t < 50; t++) assert_true(fabs((double)got[t] - mass[t]) <= 1e-4 * (mass[t] + 0.01));
    }
    sequence_end(&r.kv, &s);
    evict_free(e);
    rig_close(&r);
}

// snapkv records the last `window` tokens of the prompt, in any chunks: each adds a weight of 1 for each query head.
static void test_the_window_is_watched(void **state) {
    (void)state;
    static const int chunks[] = {1, 7, 40, 70};
    for (size_t c = 0; c < ARRAY_LEN(chunks); c++) {
        EvictRig r;
        rig_open(&r, 16);
        Evict *e = evict_of(&r, "snapkv,cap=40,window=8");
        Sequence s = {0};
        sequence_push(&s, r.tokens, 70);
        while (s.n_cached < 70) step(&r, e, &s, 70, chunks[c]);
        const Heads *h = &r.m.layers[0].heads;
        const Probe *probe = evict_probe(e, &s, 71, 1);
        for (int i = 0; i < r.m.c.n_layers * h->n_kv_heads; i++) {
            double sum = 0;
            for (int slot = 0; slot < 70; slot++) sum += (double)probe->mass[i * probe->n_slots + slot];
            assert_true(fabs(sum - 8.0 * h->n_heads / h->n_kv_heads) < 1e-4);
        }
        sequence_end(&r.kv, &s);
        evict_free(e);
        rig_close(&r);
    }
}

// Writes a mark into each slot of all layers and heads, and a sum of weights into the probe.
static void mark(EvictRig *r, const Sequence *s, const Probe *probe, uint64_t *random) {
    const KvPool *kv = r->kv.pool;
    for (int layer = 0; layer < kv->n_layers; layer++)
        for (int head = 0; head < kv->n_kv_heads; head++)
            for (int slot = 0; slot < sequence_slots(s); slot++) {
                size_t at = kv_index(kv, layer, s->blocks[slot / kv->block], head, slot % kv->block);
                memset((float *)(void *)kv->k + at, 0, (size_t)kv->head_dim * sizeof(float));
                ((float *)(void *)kv->k)[at] = (float)(slot + 1);
                ((float *)(void *)kv->v)[at] = (float)slot + 0.5f;
                probe->mass[(layer * kv->n_kv_heads + head) * probe->n_slots + slot] =
                    (float)(test_random(random) % 20); // some are equal
            }
}

// Whether `slot` belongs to the `most` heaviest of the first `old` slots; of equal ones the earlier is heavier.
static bool is_heavy(const double *mass, int old, int most, int slot) {
    int before = 0;
    for (int i = 0; i < old; i++) before += mass[i] > mass[slot] || (mass[i] == mass[slot] && i < slot);
    return before < most;
}

// Rotates a head by `positions`, with products in double.
static void turn(const Rope *r, float *head, double positions) {
    for (int i = 0; i < r->n_rot / 2; i++) {
        double angle = positions * r->freq[i], c = cos(angle), s = sin(angle);
        float *a = &head[r->adjacent ? 2 * i : i], *b = &head[r->adjacent ? 2 * i + 1 : i + r->n_rot / 2];
        double x = (double)*a, y = (double)*b;
        *a = (float)(x * c - y * s);
        *b = (float)(x * s + y * c);
    }
}

// A key whose first value is `slot` + 1 and whose other values are zero, after a rotation by `turned` positions.
static void assert_turned(const float *key, const Layer *l, int slot, int turned) {
    float want[64] = {(float)(slot + 1)};
    turn(&l->rope, want, turned);
    assert_near(key, want, l->heads.head_dim, 1e-6);
}

// After n slots e makes room. For each head, the `most` heaviest of the first `old` slots and all later slots must
// remain. In a text beyond the trained context, heavy keys are rotated to the positions of their new slots.
static void check_kept(const char *plan, int n, int old, int most, bool pooled, int n_prompt, int trained) {
    EvictRig r;
    rig_open(&r, 16);
    r.m.c.n_ctx_train = trained;
    Evict *e = evict_of(&r, plan);
    uint64_t random = 77;
    Sequence s = {0};
    sequence_push(&s, r.tokens, n + 1);
    s.n_tokens = n;
    while (s.n_cached < n) step(&r, e, &s, n_prompt, 40);
    s.n_tokens = n + 1;
    const KvPool *kv = r.kv.pool;
    Probe *probe = evict_probe(e, &s, n_prompt + n, 1000);
    assert_non_null(probe);
    mark(&r, &s, probe, &random);
    size_t n_mass = (size_t)(kv->n_layers * kv->n_kv_heads * probe->n_slots);
    float *before = malloc(n_mass * sizeof *before);
    memcpy(before, probe->mass, n_mass * sizeof *before);
    evict_room(e, &s, n_prompt);
    assert_int_equal(sequence_slots(&s), most + n - old);
    assert_int_equal(s.n_cached, n);
    for (int layer = 0; layer < kv->n_layers; layer++)
        for (int head = 0; head < kv->n_kv_heads; head++) {
            const float *mass = before + (layer * kv->n_kv_heads + head) * probe->n_slots;
            const float *after = probe->mass + (mass - before);
            double judged[N_CTX];
            for (int i = 0; i < old; i++) {
                judged[i] = 0;
                float sum = 0; // in the same order of slots as in f32
                for (int k = int_max(0, i - 2); k <= int_min(old - 1, i + 2); k++) sum += mass[k] / 5;
                judged[i] = pooled ? (double)sum : (double)mass[i];
            }
            for (int slot = 0, at = 0; slot < n; slot++) {
                if (slot < old && !is_heavy(judged, old, most, slot)) continue;
                size_t index = kv_index(kv, layer, s.blocks[at / kv->block], head, at % kv->block);
                bool turns = n + 1 > trained && slot < old;
                assert_turned((float *)(void *)kv->k + index, &r.m.layers[layer], slot,
                              turns ? old - most - (slot - at) : 0);
                assert_true(((float *)(void *)kv->v)[index] == (float)slot + 0.5f);
                assert_true(after[at++] == mass[slot]); // its sum stays with it
            }
            // new tokens begin with a sum of zero
            for (int slot = sequence_slots(&s); slot < probe->n_slots; slot++) assert_true(after[slot] == 0);
        }
    free(before);
    sequence_end(&r.kv, &s);
    evict_free(e);
    rig_close(&r);
}

static void test_the_heaviest_stay(void **state) {
    (void)state;
    check_kept("h2o,heavy=16,recent=16", 32, 16, 14, false, 32, TEXT);
    check_kept("h2o,heavy=30,recent=50", 80, 30, 24, false, 80, TEXT);
    check_kept("h2o,heavy=30,recent=50", 80, 30, 24, false, 80, 40);
    check_kept("snapkv,cap=40,window=8", 70, 62, 32, true, 70, TEXT);
}

// Attention does not depend on the order of slots: moving slots changes only roundings.
static void test_places_do_not_matter(void **state) {
    (void)state;
    EvictRig r;
    rig_open(&r, 16);
    Evict *e = evict_of(&r, "h2o,heavy=16,recent=16");
    Sequence s = {0};
    sequence_push(&s, r.tokens, 61);
    s.n_tokens = 60;
    while (s.n_cached < 60) step(&r, e, &s, 60, 40);
    s.n_tokens = 61;
    const KvPool *kv = r.kv.pool;
    int n = sequence_slots(&s), hd = kv->head_dim;
    float *want = malloc((size_t)r.m.c.n_vocab * sizeof *want);
    memcpy(want, forward(&r, &s, 1, 0, NULL), (size_t)r.m.c.n_vocab * sizeof *want);
    s.n_cached--;
    for (int layer = 0; layer < kv->n_layers; layer++)
        for (int head = 0; head < kv->n_kv_heads; head++)
            for (int v = 0; v < 2; v++) {
                float *plane = (float *)(void *)(v ? kv->v : kv->k);
                for (int i = 0; i < n / 2; i++)
                    for (int k = 0; k < hd; k++) {
                        float *x = plane + kv_index(kv, layer, s.blocks[i / kv->block], head, i % kv->block) + k;
                        int j = n - 1 - i;
                        float *y = plane + kv_index(kv, layer, s.blocks[j / kv->block], head, j % kv->block) + k;
                        float t = *x;
                        *x = *y, *y = t;
                    }
            }
    assert_near(forward(&r, &s, 1, 0, NULL), want, r.m.c.n_vocab, 1e-5);
    free(want);
    sequence_end(&r.kv, &s);
    evict_free(e);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans_are_read),
        cmocka_unit_test(test_what_cannot_be_is_refused),
        cmocka_unit_test(test_a_budget_that_suffices_changes_no_bit),
        cmocka_unit_test(test_slots_stay_within_the_budget),
        cmocka_unit_test(test_how_much_is_dropped),
        cmocka_unit_test(test_sinks_stand_before_the_window),
        cmocka_unit_test(test_positions_go_on_in_the_scheduler),
        cmocka_unit_test(test_mass_is_what_softmax_gave),
        cmocka_unit_test(test_the_window_is_watched),
        cmocka_unit_test(test_the_heaviest_stay),
        cmocka_unit_test(test_places_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
