// tests/test_sinks.c: StreamingLLM (Xiao et al. 2023) in float64 as the reference: it stores keys before RoPE, and in
// every step rotates each key to its index in the cache.
//
// quill stores rotated keys: those of the window at their positions in the text, those of the sinks at positions
// directly before the window. Both must give the same scores. Each layer is compared separately: both start from
// quill's residual stream, so that an error shows in the layer that causes it.
#include "tests/rig/testing.h"

#include "cpu/backend.h"
#include "kv/evict.h"
#include "tests/rig/model_rig.h"
#include "tests/rig/tiny_model.h"

#include <math.h>

enum { N_LAYERS = 3, N_HEADS = 6, N_KV_HEADS = 2, HEAD_DIM = 24, DIM = 64 };
enum { KV_DIM = N_KV_HEADS * HEAD_DIM, Q_DIM = N_HEADS * HEAD_DIM, GROUP = N_HEADS / N_KV_HEADS };
enum { N_CTX = 64, MOST_ROWS = 8 };

typedef struct {
    const char *name;
    TinyModel model;
    const char *plan;
    // far: tokens between the sinks and the compared tokens, which are removed without a comparison
    int sink, type, chunk, far;
    bool rotate;
    double limit; // of K and of the attention output: relative L2; of a score: times the lengths of its vectors
} SinkCase;

// F16 and BF16 round the K of a sink twice, and V: by 2^-11 and 2^-8 each.
static const SinkCase cases[] = {
    {"pairs side by side", {.arch = "llama"}, "sinks,sink=4,window=28", 4, TYPE_F32, 3, 0, false, 1e-5},
    {"pairs in halves, biases", {.arch = "qwen2"}, "sinks,sink=4,window=28", 4, TYPE_F32, 1, 0, false, 1e-5},
    {"norms of Q and K", {.arch = "qwen3"}, "sinks,sink=1,window=40", 1, TYPE_F32, 5, 0, false, 1e-5},
    {"half the context goes", {.arch = "llama"}, "shift,sink=2", 2, TYPE_F32, 8, 0, false, 1e-5},
    {"YaRN, side by side", {.arch = "llama", .rope = "yarn"}, "sinks,sink=4,window=28", 4, TYPE_F32, 3, 0, false, 1e-5},
    {"YaRN, in halves", {.arch = "qwen3", .rope = "yarn"}, "sinks,sink=3,window=29", 3, TYPE_F32, 7, 0, false, 1e-5},
    {"linear", {.arch = "qwen2", .rope = "linear"}, "sinks,sink=4,window=28", 4, TYPE_F32, 3, 0, false, 1e-5},
    {"far, side by side", {.arch = "llama"}, "sinks,sink=4,window=28", 4, TYPE_F32, 3, 3000000, false, 1e-5},
    {"far, in halves, YaRN",
     {.arch = "qwen2", .rope = "yarn"},
     "sinks,sink=4,window=28",
     4,
     TYPE_F32,
     3,
     4000000,
     false,
     1e-5},
    {"f16", {.arch = "llama", .rope = "yarn"}, "sinks,sink=4,window=28", 4, TYPE_F16, 3, 3000000, false, 2e-3},
    {"bf16", {.arch = "qwen3"}, "sinks,sink=4,window=28", 4, TYPE_BF16, 3, 0, false, 1.6e-2},
    {"f16 turned", {.arch = "qwen3", .rope = "yarn"}, "sinks,sink=4,window=28", 4, TYPE_F16, 3, 0, true, 2e-3},
};

// ---- the reference --------------------------------------------------------------------------------------------------

// The contents of the cache, in the order of its slots: K before RoPE, and V.
typedef struct {
    double k[N_LAYERS][N_CTX][KV_DIM], v[N_LAYERS][N_CTX][KV_DIM];
    int n;
} SinkRows;

static void drop(SinkRows *h, int first, int n) {
    for (int l = 0; l < N_LAYERS; l++) {
        size_t after = (size_t)(h->n - first - n);
        memmove(h->k[l][first], h->k[l][first + n], after * sizeof *h->k[l]);
        memmove(h->v[l][first], h->v[l][first + n], after * sizeof *h->v[l]);
    }
    h->n -= n;
}

static void normalise(const double *x, const float *weight, int n, float eps, double *out) {
    double square = 0;
    for (int i = 0; i < n; i++) square += x[i] * x[i];
    for (int i = 0; i < n; i++) out[i] = x[i] / sqrt(square / n + (double)eps) * (double)weight[i];
}

static void project(const Tensor *t, const double *x, double *out) {
    const float *row = t->data;
    for (int i = 0; i < t->n_out; i++, row += t->n_in) {
        out[i] = t->bias ? (double)t->bias[i] : 0;
        for (int k = 0; k < t->n_in; k++) out[i] += (double)row[k] * x[k];
    }
}

static void normalise_heads(double *x, const float *weight, int n_heads, float eps) {
    for (int i = 0; weight && i < n_heads; i++, x += HEAD_DIM) normalise(x, weight, HEAD_DIM, eps, x);
}

static void before_rope(const Layer *l, const float *residual, double *q, double *k, double *v) {
    double x[DIM];
    for (int i = 0; i < DIM; i++) x[i] = (double)residual[i];
    normalise(x, l->norm_att, DIM, l->kind.eps, x);
    project(&l->wq, x, q);
    project(&l->wk, x, k);
    project(&l->wv, x, v);
    normalise_heads(q, l->norm_q, N_HEADS, l->kind.eps);
    normalise_heads(k, l->norm_k, N_KV_HEADS, l->kind.eps);
}

static void turn(const Rope *r, const double *from, double position, double *to) {
    memcpy(to, from, HEAD_DIM * sizeof *to);
    for (int i = 0; i < r->n_rot / 2; i++) {
        int a = r->adjacent ? 2 * i : i, b = r->adjacent ? 2 * i + 1 : i + r->n_rot / 2;
        double c = cos(position * r->freq[i]), s = sin(position * r->freq[i]), m = (double)r->mscale;
        to[a] = m * (from[a] * c - from[b] * s);
        to[b] = m * (from[a] * s + from[b] * c);
    }
}

static double dot(const double *x, const double *y) {
    double sum = 0;
    for (int i = 0; i < HEAD_DIM; i++) sum += x[i] * y[i];
    return sum;
}

// The softmax of the scores of slots [0, slot], multiplied with V.
static void mix(const SinkRows *held, int layer, int head, const double *scores, int slot, double *out) {
    double most = -INFINITY, sum = 0;
    for (int t = 0; t <= slot; t++) most = fmax(most, scores[t]);
    memset(out, 0, HEAD_DIM * sizeof *out);
    for (int t = 0; t <= slot; t++) {
        double p = exp(scores[t] - most);
        sum += p;
        for (int i = 0; i < HEAD_DIM; i++) out[i] += p * held->v[layer][t][head / GROUP * HEAD_DIM + i];
    }
    for (int i = 0; i < HEAD_DIM; i++) out[i] /= sum;
}

// ---- a run ----------------------------------------------------------------------------------------------------------

typedef struct {
    Rig rig;
    Gguf *gguf;
    Evict *evict;
    Sequence s;
    SinkRows held;
    double q[N_LAYERS][MOST_ROWS][Q_DIM]; // of the rows of the step, before RoPE
    const SinkCase *c;
    bool compare; // whether this step is compared
    double worst_k, worst_score, worst_out;
} SinkRun;

static void open_run(SinkRun *r, const SinkCase *c) {
    const Backend *be;
    EvictPlan plan;
    TinyModel shape = c->model;
    memset(r, 0, sizeof *r);
    r->c = c;
    shape.dim = DIM, shape.n_layers = N_LAYERS, shape.n_heads = N_HEADS, shape.n_kv_heads = N_KV_HEADS;
    shape.head_dim = HEAD_DIM, shape.seed = 7;
    r->gguf = tiny_model(&shape);
    assert_ok(cpu_backend("scalar", &be));
    assert_ok(model_load(&r->rig.m, r->gguf, be));
    r->rig.pool = threads_new(1);
    assert_ok(workspace_new(&r->rig.w, &r->rig.m, r->rig.pool, MOST_ROWS, MOST_ROWS, N_CTX));
    KvShape kv = {.n_layers = N_LAYERS,
                  .n_kv_heads = N_KV_HEADS,
                  .head_dim = HEAD_DIM,
                  .type_k = c->type,
                  .type_v = c->type,
                  .block = 16,
                  .n_ctx = N_CTX,
                  .n_seqs = 1,
                  .rotate = c->rotate};
    assert_ok(kvcache_new(&r->rig.kv, &kv));
    kvcache_shuffle(&r->rig.kv, 3);
    assert_ok(evict_parse(c->plan, &plan));
    assert_ok(evict_new(&plan, &r->rig.m, &r->rig.kv, &r->evict));
}

static void close_run(SinkRun *r) {
    sequence_end(&r->rig.kv, &r->s);
    evict_free(r->evict);
    rig_close(&r->rig);
    gguf_close(r->gguf);
}

// A head of quill without the rotation of --kv-rotate.
static void plain_head(const SinkRun *r, float *head, double *out) {
    if (r->c->rotate) sealed_hadamard(head, HEAD_DIM);
    for (int i = 0; i < HEAD_DIM; i++) out[i] = (double)head[i];
}

static void key_at(const SinkRun *r, int layer, int head, int slot, double *out) {
    const KvPool *kv = r->rig.kv.pool;
    float k[HEAD_DIM];
    size_t at = kv_index(kv, layer, r->s.blocks[slot / kv->block], head, slot % kv->block);
    type_info(kv->type_k)->dequantize(kv->k + at * kv_slot_bytes(kv->type_k, 1), k, HEAD_DIM);
    plain_head(r, k, out);
}

static void note(double *worst, double error, double size) { *worst = test_worse(*worst, error / size); }

static void note_distance(double *worst, const double *got, const double *want) {
    double d[HEAD_DIM];
    for (int i = 0; i < HEAD_DIM; i++) d[i] = got[i] - want[i];
    note(worst, sqrt(dot(d, d)), sqrt(dot(want, want)));
}

// The position to which quill has rotated the key of a slot, in positions of the text.
static double place_of(const SinkRun *r, int slot) { return slot + r->s.n_gone; }

// Compares K in the cache, the scores and the attention output of one row and head with the reference.
static void compare_row(SinkRun *r, const Layer *l, int row, int head) {
    const Workspace *w = &r->rig.w;
    int slot = sequence_slots(&r->s) + row, of_kv = head / GROUP;
    double q[HEAD_DIM], turned[HEAD_DIM], k[HEAD_DIM], want[HEAD_DIM], scores[N_CTX], out[HEAD_DIM], found[HEAD_DIM];
    float copy[HEAD_DIM];
    memcpy(copy, w->q + (size_t)row * Q_DIM + head * HEAD_DIM, sizeof copy);
    plain_head(r, copy, q);
    turn(&l->rope, &r->q[l->index][row][head * HEAD_DIM], slot, turned);
    for (int t = 0; t <= slot; t++) {
        const double *key = &r->held.k[l->index][t][of_kv * HEAD_DIM];
        key_at(r, l->index, of_kv, t, k);
        turn(&l->rope, key, place_of(r, t), want);
        note_distance(&r->worst_k, k, want);
        turn(&l->rope, key, t, want);
        scores[t] = (double)l->heads.scale * dot(turned, want);
        note(&r->worst_score, fabs((double)l->heads.scale * dot(q, k) - scores[t]),
             (double)l->heads.scale * sqrt(dot(turned, turned) * dot(want, want)));
    }
    mix(&r->held, l->index, head, scores, slot, out);
    for (int i = 0; i < HEAD_DIM; i++) found[i] = (double)w->a[(size_t)row * Q_DIM + (size_t)(head * HEAD_DIM + i)];
    note_distance(&r->worst_out, found, out);
}

// After the attention of a layer, the residual stream still holds the layer's input.
static void attended(void *arg, const Workspace *w, const Layer *l, const Batch *b) {
    SinkRun *r = arg;
    int slots = sequence_slots(&r->s);
    for (int row = 0; row < b->n_rows; row++)
        before_rope(l, w->x + (size_t)row * DIM, r->q[l->index][row], r->held.k[l->index][slots + row],
                    r->held.v[l->index][slots + row]);
    for (int row = 0; r->compare && row < b->n_rows; row++)
        for (int head = 0; head < N_HEADS; head++) compare_row(r, l, row, head);
}

// Computes up to `most` of the next tokens. Between evict_room and the end of the step the cache holds s.n_cached -
// s.n_gone slots.
static void one_step(SinkRun *r, int most, bool compare) {
    Sequence *s = &r->s;
    int pos[MOST_ROWS], slot[MOST_ROWS], seq[MOST_ROWS] = {0}, held = sequence_slots(s);
    int n = int_min(most, evict_room(r->evict, s, s->n_tokens));
    if (held > sequence_slots(s)) drop(&r->held, r->c->sink, held - sequence_slots(s));
    assert_int_equal(r->held.n, sequence_slots(s));
    assert_true(n > 0 && kvcache_reserve(&r->rig.kv, s, sequence_slots(s) + n));
    for (int i = 0; i < n; i++) pos[i] = s->n_cached + i, slot[i] = sequence_slots(s) + i;
    Batch b = {.n_rows = n,
               .n_seqs = 1,
               .max_blocks = s->n_blocks,
               .token = s->tokens + s->n_cached,
               .pos = pos,
               .slot = slot,
               .seq = seq,
               .block_table = s->blocks};
    r->compare = compare;
    b.watch = &(Watch){.attended = attended, .arg = r};
    model_hidden(&r->rig.m, &r->rig.w, r->rig.kv.pool, &b, NULL);
    s->n_cached += n;
    r->held.n += n;
}

static void more_tokens(SinkRun *r, int n, uint64_t *random) {
    for (int i = 0; i < n; i++)
        sequence_push(&r->s, &(int){(int)(test_random(random) % (uint64_t)r->rig.m.c.n_vocab)}, 1);
}

// Slots are removed once. If the case has `far`, that many tokens follow, until every slot of the window is new.
static void run_case(SinkRun *r, const SinkCase *c) {
    uint64_t random = 5;
    open_run(r, c);
    more_tokens(r, 100 + c->far + 200, &random);
    while (r->s.n_cached < 100) one_step(r, int_min(c->chunk, 100 - r->s.n_cached), true);
    assert_true(r->s.n_gone > 0);
    r->s.n_cached += c->far;
    r->s.n_gone += c->far;
    while (r->s.n_cached < r->s.n_tokens) {
        bool flushed = !c->far || r->s.n_gone >= 100 + c->far;
        one_step(r, int_min(c->chunk, r->s.n_tokens - r->s.n_cached), flushed);
    }
    assert_true(r->s.n_gone >= 200 + c->far);
    close_run(r);
}

static void test_as_with_keys_before_rope(void **state) {
    (void)state;
    static SinkRun r;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        run_case(&r, &cases[i]);
        print_message("%-24s K %.1e, scores %.1e, output %.1e\n", cases[i].name, r.worst_k, r.worst_score, r.worst_out);
        if (!(test_worse(r.worst_k, test_worse(r.worst_score, r.worst_out)) <= cases[i].limit))
            fail_msg("%s: within %g expected", cases[i].name, cases[i].limit);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_with_keys_before_rope)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
