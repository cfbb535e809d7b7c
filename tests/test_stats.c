// tests/test_stats.c: percentiles and timelines, the cost formulas against numbers computed by hand, random models.
#define _GNU_SOURCE
#include "tests/rig/testing.h"

#include "bench/shape.h"
#include "costs.h"
#include "base/stats.h"
#include "tests/rig/tiny_model.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- stats ----------------------------------------------------------------------------------------------------------

static void test_percentile(void **state) {
    (void)state;
    const float v[] = {4, 1, 3, 2, 5};
    assert_true(stats_percentile(v, 5, 0) == 1);
    assert_true(stats_percentile(v, 5, 50) == 3);
    assert_true(stats_percentile(v, 5, 100) == 5);
    assert_true(stats_percentile(v, 5, 25) == 2);
    assert_float_equal(stats_percentile(v, 5, 99), 4.96, 1e-12); // rank 3.96: between values 4 and 5
    assert_float_equal(stats_percentile(v, 4, 50), 2.5, 1e-12);
    assert_true(stats_percentile(v, 1, 99) == 4);
    assert_true(stats_percentile(v, 5, -3) == 1 && stats_percentile(v, 5, 200) == 5);
    assert_true(stats_percentile(NULL, 0, 50) == 0);
    assert_true(v[0] == 4 && v[4] == 5); // the order of the caller's values does not change
}

static void test_median(void **state) {
    (void)state;
    const double v[] = {9, 1, 5, 3};
    assert_true(stats_median(v, 4) == 4);
    assert_true(stats_median(v, 3) == 5);
    assert_true(stats_median(v, 1) == 9);
    assert_true(stats_median(NULL, 0) == 0);
}

static void test_timeline(void **state) {
    (void)state;
    Timeline t = {.start = 100};
    assert_true(timeline_ttft(&t) == 0 && timeline_tpot(&t) == 0);
    timeline_token(&t, 100.5);
    assert_true(timeline_ttft(&t) == 0.5 && timeline_tpot(&t) == 0);
    uint64_t seed = 1;
    double now = 100.5;
    enum { N = 1000 };
    for (int i = 1; i < N; i++) timeline_token(&t, now += 0.01 + 0.005 * (double)test_uniform(&seed));
    assert_int_equal(t.n_gaps, N - 1);
    assert_float_equal(timeline_ttft(&t) + timeline_tpot(&t) * (N - 1), now - 100, 1e-9); // equals the total time
    assert_float_equal(timeline_tpot(&t), 0.01, 0.001);
    double p50 = stats_percentile(t.gaps, t.n_gaps, 50), p99 = stats_percentile(t.gaps, t.n_gaps, 99);
    assert_true(p50 > 0.008 && p50 < 0.012 && p99 > p50 && p99 < 0.0151);
    timeline_free(&t);
    assert_null(t.gaps);
}

// ---- costs ----------------------------------------------------------------------------------------------------------

#define SMALL "dim=64,layers=2,heads=4,kv_heads=2,ffn=96,vocab=300"

static void open_model(const char *shape, int type, Gguf **g, Model *m) {
    assert_ok(shape_model(shape, type, 1, g));
    assert_ok(model_load(m, *g, NULL)); // without a backend: nothing is computed
}

// For SMALL: the matrices of a layer have 64*64 + 2*32*64 + 64*64 + 3*64*96 = 30720 elements. 8192 of these belong to
// the matrices that a row without logits passes in the last layer. The attention of a row in a layer takes 4 * seen *
// 64 FLOPs. K and V of a slot in f16 take 128 bytes in each layer.
static const KvShape small_kv = {
    .n_layers = 2, .n_kv_heads = 2, .head_dim = 16, .type_k = TYPE_F16, .type_v = TYPE_F16};

static void test_cost_rows(void **state) {
    (void)state;
    Gguf *g;
    Model m;
    open_model(SMALL, TYPE_F32, &g, &m);
    Cost c = costs_rows(&m, &small_kv, 3, 2, 1); // the rows at slots 3 and 4 attend to 4 and 5 slots
    assert_true(c.flops == (2 * 61440 + 256 * (4 + 5)) + (61440 + 2 * 8192 + 256 * 5) + 2 * 300 * 64);
    double weights = 2 * (30720 * 4 + 2 * 64 * 4), head = 300 * 64 * 4 + 64 * 4, rows = 2 * 64 * 4;
    assert_true(c.bytes == weights + head + rows + 2 * 128 * (5 + 2)); // slots 0..4 are read, 2 are written

    c = costs_rows(&m, &small_kv, 0, 1, 0); // no logits: without the head, and only K and V in the last layer
    assert_true(c.flops == 61440 + 256 + 2 * 8192);
    assert_true(c.bytes == weights - (30720 - 8192) * 4 + rows / 2 + 128 * 2 + 128);

    KvShape sealed = small_kv; // with sealed KV every row passes the last layer
    sealed.type_k = TYPE_Q8_0;
    assert_true(costs_rows(&m, &sealed, 3, 2, 1).flops == 2 * (2 * 61440 + 256 * (4 + 5)) + 2 * 300 * 64);

    m.layers[1].heads.window = 3; // in that layer rows 3 and 4 attend to 3 slots each, to slots 1..4 together
    c = costs_rows(&m, &small_kv, 3, 2, 1);
    assert_true(c.flops == 2 * 61440 + 256 * (4 + 5) + 61440 + 2 * 8192 + 256 * 3 + 2 * 300 * 64);
    assert_true(c.bytes == weights + head + rows + 128 * (5 + 2) + 128 * (3 + 2));
    model_free(&m);
    gguf_close(g);
}

static void test_cost_batch(void **state) {
    (void)state;
    Gguf *g;
    Model m;
    open_model(SMALL, TYPE_F32, &g, &m);
    KvPool kv[KV_KINDS] = {{.n_layers = 2, .n_kv_heads = 2, .head_dim = 16, .type_k = TYPE_F16, .type_v = TYPE_F16}};
    int slot[] = {9, 0, 1, 2}, seq[] = {0, 1, 1, 1};
    int out_row[] = {0, 3};
    Batch b = {.n_rows = 4, .n_out = 2, .n_seqs = 2, .slot = slot, .seq = seq, .out_row = out_row};
    Cost both = costs_batch(&m, kv, &b), one = costs_rows(&m, &small_kv, 9, 1, 1),
         three = costs_rows(&m, &small_kv, 0, 3, 1);
    double weights = 2 * (30720 * 4 + 2 * 64 * 4) + 300 * 64 * 4 + 64 * 4;
    assert_true(both.flops == one.flops + three.flops);
    assert_true(both.bytes == one.bytes + three.bytes - weights); // the weights are read once for both

    int gapped[] = {9, 2, 5, 7}; // slots between the rows were computed before, and are read
    b.slot = gapped;
    both = costs_batch(&m, kv, &b);
    assert_true(both.flops ==
                4 * 61440 + 256 * (10 + 3 + 6 + 8) + 2 * 61440 + 2 * 2 * 8192 + 256 * (10 + 8) + 2 * 2 * 300 * 64);
    assert_true(both.bytes == weights + 4 * 64 * 4 + 2 * 128 * ((10 + 1) + (8 + 3)));
    Probe probe;
    b.probe = &probe; // with a probe all rows attend in all layers
    assert_true(costs_batch(&m, kv, &b).flops == 4 * 2 * 61440 + 2 * 256 * (10 + 3 + 6 + 8) + 2 * 2 * 300 * 64);
    model_free(&m);
    gguf_close(g);
}

// Rows that end in a layer before the last need nothing of the layers after it.
static void test_cost_ended(void **state) {
    (void)state;
    Gguf *g;
    Model m;
    open_model(SMALL, TYPE_F32, &g, &m);
    KvPool kv[KV_KINDS] = {{.n_layers = 2, .n_kv_heads = 2, .head_dim = 16, .type_k = TYPE_F16, .type_v = TYPE_F16}};
    int slot[] = {0, 1, 2, 3}, seq[4] = {0}, out_row[] = {3}, ended[] = {0, 2, 0, 2};
    Batch b = {.n_rows = 4, .n_out = 1, .n_seqs = 1, .slot = slot, .seq = seq, .out_row = out_row, .ended = ended};
    double weights = 2 * (30720 * 4 + 2 * 64 * 4), head = 300 * 64 * 4 + 64 * 4, rows = 4 * 64 * 4;
    Cost c = costs_batch(&m, kv, &b); // rows 1 and 3 pass both layers, the others store K and V in the first
    assert_true(c.flops == 2 * 2 * 61440 + 2 * 2 * 8192 + 2 * 256 * (2 + 4) + 2 * 300 * 64);
    assert_true(c.bytes == weights + head + rows + 128 * (4 + 4) + 128 * (4 + 2));
    for (int i = 0; i < 4; i++) ended[i] = 0;
    b.n_out = 0; // no row enters the second layer
    c = costs_batch(&m, kv, &b);
    assert_true(c.flops == 4 * 2 * 8192);
    assert_true(c.bytes == 8192 * 4 + 2 * 64 * 4 + rows + 128 * 4);
    for (int i = 0; i < 4; i++) ended[i] = i == 3 ? 2 : 1;
    b.n_out = 1; // a plain prefill, as it is counted when nothing was computed
    c = costs_batch(&m, kv, &b);
    Cost plain = costs_rows(&m, &small_kv, 0, 4, 1);
    assert_true(c.flops == plain.flops && c.bytes == plain.bytes);
    model_free(&m);
    gguf_close(g);
}

static void test_cost_types(void **state) {
    (void)state;
    Gguf *g;
    Model m;
    open_model("dim=256,layers=1,heads=4,ffn=256,vocab=300,tied=1", TYPE_Q4_K, &g, &m);
    KvShape kv = {.n_layers = 1, .n_kv_heads = 4, .head_dim = 64, .type_k = TYPE_F32, .type_v = TYPE_F16};
    Cost c =
        // every row of every matrix is one block of 144 bytes; K and V take 1.5 bytes per element
        costs_rows(&m, &kv, 0, 1, 1);
    assert_true(c.bytes == 7 * 256 * 144 + 3 * 256 * 4 + 300 * 144 + 144 + 2 * 4 * 64 * 6);
    assert_true(c.flops == 2 * 7 * 256 * 256 + 4 * 256 + 2 * 300 * 256);
    model_free(&m);
    gguf_close(g);

    open_model("dim=64,layers=1,heads=4,ffn=64,vocab=300", TYPE_I8G, &g, &m); // one scale in f32 for 32 bytes
    kv.head_dim = 16;
    c = costs_rows(&m, &kv, 0, 1, 0);
    assert_true(c.bytes == 3 * 64 * 64 * 9 / 8 + 2 * 64 * 4 + 64 * 9 / 8 + 4 * 16 * 6);
    model_free(&m);
    gguf_close(g);
}

// ---- shapes ---------------------------------------------------------------------------------------------------------

// Every element must be finite. The mean of a matrix must be near 0 and its mean square near 1 / n_in, so that no
// forward overflows.
static void check_tensor(const GgufTensor *t) {
    const TypeInfo *info = type_info(t->type);
    size_t n = (size_t)(t->dims[0] * t->dims[1]);
    float *x = malloc(n * sizeof *x);
    info->dequantize(t->data, x, n);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            fail_msg("%.*s %s: element %zu is %g", (int)t->name.n, t->name.data, info->name, i, (double)x[i]);
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    double unit = 1 / sqrt((double)t->dims[0]), rms = sqrt(squares / (double)n) / unit, mean = sum / (double)n / unit;
    if (t->n_dims == 1) assert_true(x[0] == 1 && x[n - 1] == 1);
    // the elements of a block have a common mean
    else if (rms < 0.6 || rms > 1.6 || fabs(mean) > 4 / sqrt((double)n / 32))
        fail_msg("%.*s %s: root mean square %.3f, mean %.3f of 1/sqrt(n_in)", (int)t->name.n, t->name.data, info->name,
                 rms, mean);
    free(x);
}

static void test_shape_blocks(void **state) {
    (void)state;
    for (size_t i = 0; i < TINY_TYPES; i++) {
        if (tiny_types[i] == TYPE_I8G) continue; // no GGUF file has it
        Gguf *g;
        assert_ok(shape_model("dim=256,layers=2,heads=4,kv_heads=2,ffn=512,vocab=400", tiny_types[i], 3, &g));
        assert_int_equal(gguf_n_tensors(g), 3 + 2 * 9);
        for (int t = 0; t < gguf_n_tensors(g); t++) check_tensor(gguf_tensor_at(g, t));
        Model m;
        assert_ok(model_load(&m, g, NULL));
        assert_ok(model_check_tensors(&m));
        char name[64];
        snprintf(name, sizeof name, "random-custom-%s", type_name(tiny_types[i]));
        assert_string_equal(m.c.name, name);
        model_free(&m);
        gguf_close(g);
    }
}

static void test_shape_seed(void **state) {
    (void)state;
    Gguf *g[3];
    for (int i = 0; i < 3; i++) assert_ok(shape_model(SMALL, TYPE_Q8_0, i == 2 ? 2 : 1, &g[i]));
    const GgufTensor *t[3];
    for (int i = 0; i < 3; i++) t[i] = gguf_tensor(g[i], "blk.1.ffn_up.weight");
    assert_memory_equal(t[0]->data, t[1]->data, t[0]->n_bytes);
    assert_memory_not_equal(t[0]->data, t[2]->data, t[0]->n_bytes);
    const GgufTensor *other = gguf_tensor(g[0], "blk.1.ffn_gate.weight");
    assert_memory_not_equal(t[0]->data, other->data, other->n_bytes);
    for (int i = 0; i < 3; i++) gguf_close(g[i]);
}

static int compare_strs(const void *a, const void *b) {
    const Str *x = a, *y = b;
    int c = memcmp(x->data, y->data, x->n < y->n ? x->n : y->n);
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

static void test_shape_vocabulary(void **state) {
    (void)state;
    enum { N = 40000 };
    Gguf *g;
    char shape[96];
    snprintf(shape, sizeof shape, "dim=32,layers=1,heads=1,ffn=32,vocab=%d", N);
    assert_ok(shape_model(shape, TYPE_Q4_0, 1, &g));
    const GgufValue *v = gguf_value(g, "tokenizer.ggml.tokens");
    assert_true(v && v->n == N);
    Str *pieces = malloc(N * sizeof *pieces);
    int32_t *types = malloc(N * sizeof *types);
    assert_ok(gguf_strings(g, v, pieces));
    assert_ok(gguf_ints(g, gguf_value(g, "tokenizer.ggml.token_type"), types));
    assert_true(str_is(pieces[0], "<unk>") && str_is(pieces[1], "<s>") && str_is(pieces[2], "</s>"));
    assert_true(str_is(pieces[3], "<0x00>") && str_is(pieces[258], "<0xFF>") && str_is(pieces[259 + 33], "A"));
    assert_true(types[0] == 2 && types[1] == 3 && types[3] == 6 && types[258] == 6 && types[259] == 1);
    qsort(pieces, N, sizeof *pieces, compare_strs);
    for (int i = 1; i < N; i++)
        if (compare_strs(&pieces[i - 1], &pieces[i]) == 0)
            fail_msg("piece %.*s twice", (int)pieces[i].n, pieces[i].data);
    free(pieces);
    free(types);
    gguf_close(g);
}

static void test_shape_file(void **state) {
    (void)state;
    Gguf *g, *back;
    const char *path = test_tmp("test_stats.gguf");
    assert_ok(shape_model(SMALL ",tied=1", TYPE_Q5_0, 1, &g));
    assert_null(gguf_tensor(g, "output.weight"));
    assert_ok(gguf_save(g, path));
    assert_ok(gguf_open(path, &back));
    unlink(path);
    assert_int_equal(gguf_n_tensors(back), gguf_n_tensors(g));
    const GgufTensor *a = gguf_tensor(g, "blk.1.ffn_down.weight"), *b = gguf_tensor(back, "blk.1.ffn_down.weight");
    assert_true(a->n_bytes == b->n_bytes && a->type == b->type);
    assert_memory_equal(a->data, b->data, a->n_bytes);
    gguf_close(g);
    gguf_close(back);
}

static void test_shape_presets(void **state) {
    (void)state;
    Gguf *g;
    Model m;
    open_model("1.1b,layers=1,vocab=300", TYPE_Q4_K, &g, &m);
    assert_true(m.c.dim == 2048 && m.c.n_heads == 32 && m.c.n_kv_heads == 4 && m.c.ffn == 5632 && m.c.head_dim == 64);
    model_free(&m);
    gguf_close(g);
    open_model("1b,layers=1,vocab=300", TYPE_Q4_0, &g, &m);
    assert_true(m.c.ffn == 8192 && m.c.n_kv_heads == 8 && m.c.tied);
    model_free(&m);
    gguf_close(g);
}

static void test_shape_errors(void **state) {
    (void)state;
    const struct {
        const char *shape;
        int type, code;
        const char *says;
    } bad[] = {
        {"7b", TYPE_F32, QUILL_USAGE, "1.1b, 1b, 8b, moe-7b-a1b"},
        {"", TYPE_F32, QUILL_USAGE, "1.1b, 1b, 8b, moe-7b-a1b"},
        {"dim=64,layer=2", TYPE_F32, QUILL_USAGE, "layer=2"},
        {"dim=64,layers=2,heads=4,ffn=96", TYPE_F32, QUILL_USAGE, "vocab"},
        {SMALL ",", TYPE_F32, QUILL_USAGE, "expected"},
        {SMALL ",ctx=", TYPE_F32, QUILL_USAGE, "ctx"},
        {SMALL ",ctx=4x", TYPE_F32, QUILL_USAGE, "4x"},
        {SMALL ",ctx=-1", TYPE_F32, QUILL_USAGE, "1 to"},
        {SMALL ",layers=99999999999999999999", TYPE_F32, QUILL_USAGE, "layers"},
        {SMALL ",tied=2", TYPE_F32, QUILL_USAGE, "0 to 1"},
        {SMALL ",kv_heads=3", TYPE_F32, QUILL_USAGE, "divisor"},
        {SMALL ",heads=5,kv_heads=5", TYPE_F32, QUILL_USAGE, "divisor of dim"},
        {SMALL ",head_dim=15", TYPE_F32, QUILL_USAGE, "even"},
        {SMALL ",vocab=258", TYPE_F32, QUILL_USAGE, "vocab"},
        {SMALL, TYPE_Q4_K, QUILL_USAGE, "multiple of 256"},
        {SMALL ",ffn=100", TYPE_Q4_0, QUILL_USAGE, "ffn"},
        {SMALL ",head_dim=6", TYPE_Q8_0, QUILL_USAGE, "heads * head_dim"},
        {SMALL, 9, QUILL_USAGE, "Q8_1"},
        {"dim=65536,layers=1024,heads=1024,ffn=1048576,vocab=1048576", TYPE_F32, QUILL_MEMORY, "GB"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        Gguf *g;
        Status st = shape_model(bad[i].shape, bad[i].type, 1, &g);
        if (st.code != bad[i].code || !strstr(st.message, bad[i].says))
            fail_msg("%s: code %d and \"%s\" expected, %d \"%s\" found", bad[i].shape, bad[i].code, bad[i].says,
                     st.code, st.message);
        assert_null(g);
    }
}

// ---- samples --------------------------------------------------------------------------------------------------------

// If there are more numbers than the maximum, the stored ones must be a fair sample of all of them.
static void test_samples(void **state) {
    (void)state;
    Sample s = {0};
    for (int i = 0; i < 1000; i++) sample_add(&s, i);
    assert_int_equal(s.n, 1000);
    assert_true(stats_percentile(s.values, s.n, 50) == 499.5);
    for (int i = 1000; i < 8 * SAMPLE_MOST; i++) sample_add(&s, i);
    assert_int_equal(s.n, SAMPLE_MOST);
    assert_int_equal(s.n_seen, 8 * SAMPLE_MOST);
    for (int p = 10; p <= 90; p += 20) {
        double want = 8 * SAMPLE_MOST * 0.01 * p, got = stats_percentile(s.values, s.n, p);
        assert_true(fabs(got - want) < 0.01 * 8 * SAMPLE_MOST); // more than five standard deviations
    }
    sample_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percentile),   cmocka_unit_test(test_median),
        cmocka_unit_test(test_timeline),     cmocka_unit_test(test_cost_rows),
        cmocka_unit_test(test_cost_batch),   cmocka_unit_test(test_cost_ended),
        cmocka_unit_test(test_cost_types),   cmocka_unit_test(test_shape_blocks),
        cmocka_unit_test(test_shape_seed),   cmocka_unit_test(test_shape_vocabulary),
        cmocka_unit_test(test_shape_file),   cmocka_unit_test(test_shape_presets),
        cmocka_unit_test(test_shape_errors), cmocka_unit_test(test_samples),
    };
    return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
