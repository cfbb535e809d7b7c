// tests/test_cuda.c: the GPU's backend, whole, where there is no GPU: its kernels run on the CPU, its runtime is the
// twin. Tiny models of every family, tensor type, KV type and batch shape against the scalar reference, layers split
// between both.
#include "tests/rig/testing.h"

#include "gpu/cuda.h"
#include "gpu/launch.h"
#include "policy/plain.h"
#include "scheduler.h"
#include "tests/rig/drafting.h"
#include "tests/rig/gpu_rt_host.h"
#include "tests/rig/model_rig.h"
#include "tests/rig/tiny_model.h"

#include <math.h>

// PROMPT rows at once are more than the fused kernels take, whatever the type.
enum { PROMPT = 34, MOST_ROWS = 64, N_CTX = 300, ALL = 1000 };

static const char *const archs[] = {"llama", "qwen2", "qwen3", "gemma2", "gemma3"};

typedef struct {
    int n_gpu; // layers; 0: the scalar reference
    int kv_type;
    int block;        // 0: contiguous
    uint64_t shuffle; // of the blocks
    size_t spare;     // bytes for dense copies
    int type_v;       // 0: as kv_type
    bool rotate;
    bool scarce; // as few blocks of layers with a window as steps of MOST_ROWS rows need
    bool keep;   // KvShape.keep
    bool bare;   // without_parts
} Setup;

// The first layer loses its feed-forward, the second one its mixer, and with it K and V.
static void without_parts(Model *m) {
    Layer *first = &m->layers[0], *second = &m->layers[1];
    const Tensor none = {0};
    first->kind.ffn = FFN_NONE;
    first->w_gate = first->w_up = first->w_down = none;
    first->norm_ffn = first->norm_ffn_out = NULL;
    second->kind.mixer = MIXER_NONE;
    second->wq = second->wk = second->wv = second->wo = none;
    second->norm_att = second->norm_att_out = second->norm_q = second->norm_k = NULL;
    second->kv_kind = second->kv_layer = -1;
}

static Status rig_try(Rig *r, const Gguf *g, Setup s) {
    const Backend *cpu, *gpu = NULL;
    *r = (Rig){0};
    TRY(cpu_backend("scalar", &cpu));
    TRY(model_load(&r->m, g, cpu));
    if (s.bare) without_parts(&r->m);
    r->pool = threads_new(1);
    int n = int_min(s.n_gpu, r->m.c.n_layers);
    if (n > 0) TRY(cuda_backend(&gpu));
    if (n > 0) TRY(model_to_device(&r->m, gpu, n, (DeviceLoad){.pool = r->pool, .spare = s.spare}));
    KvShape shape = engine_kv_shape(&r->m);
    shape.type_k = s.kv_type;
    shape.type_v = s.type_v ? s.type_v : s.kv_type;
    shape.rotate = s.rotate;
    shape.block = s.block;
    shape.n_ctx = N_CTX;
    shape.n_seqs = 3;
    shape.n_device = n;
    for (int i = r->m.c.n_layers - n; i < r->m.c.n_layers; i++)
        shape.n_windowed_device += r->m.layers[i].kv_kind == KV_WINDOW;
    shape.be = gpu;
    shape.keep = s.keep;
    if (s.scarce) shape.n_partners = kvcache_partners_needed(&shape, MOST_ROWS);
    TRY(kvcache_new(&r->kv, &shape));
    poison_pools(&r->kv);
    for (int kind = 0; kind < KV_KINDS; kind++)
        if (r->kv.pool[kind].device) poison_pool(r->kv.pool[kind].device); // which is the host's memory here
    if (s.shuffle) kvcache_shuffle(&r->kv, s.shuffle);
    return workspace_new(&r->w, &r->m, r->pool, MOST_ROWS, MOST_ROWS, N_CTX);
}

static void rig_open(Rig *r, const Gguf *g, Setup s) {
    Status st = rig_try(r, g, s);
    if (st.code) fail_msg("code %d: %s", st.code, st.message);
}

// ---- running --------------------------------------------------------------------------------------------------------

// All logits of n tokens, `chunk` of them a step; with two strangers beside them, or alone. The caller frees.
static float *run_tokens(Rig *r, const int *tokens, int n, int chunk, bool strangers) {
    int strange[N_CTX];
    size_t n_vocab = (size_t)r->m.c.n_vocab;
    float *logits = malloc((size_t)n * n_vocab * sizeof *logits);
    Sequence s = {0}, before = {0}, after = {0};
    random_tokens(strange, N_CTX, r->m.c.n_vocab, 99);
    sequence_push(&s, tokens, n);
    sequence_push(&before, strange, 9);
    sequence_push(&after, strange + 9, 2);
    while (s.n_cached < n) {
        Part parts[3];
        int n_parts = 0;
        if (strangers && before.n_cached < 30)
            parts[n_parts++] = (Part){&before, int_min(6, 9 - before.n_cached), NULL};
        parts[n_parts++] = (Part){&s, int_min(chunk, n - s.n_cached), logits + (size_t)s.n_cached * n_vocab};
        if (strangers && after.n_cached < 2) parts[n_parts++] = (Part){&after, 1, NULL};
        step(r, parts, n_parts);
    }
    Sequence *all[] = {&s, &before, &after};
    for (int i = 0; i < 3; i++) {
        kvcache_release(&r->kv, all[i]);
        sequence_free(all[i]);
    }
    assert_null(model_failure(&r->m));
    return logits;
}

static float *run(Rig *r, int n, int chunk, bool strangers) {
    int tokens[N_CTX];
    random_tokens(tokens, n, r->m.c.n_vocab, 5);
    return run_tokens(r, tokens, n, chunk, strangers);
}

static double distance(const float *got, const float *want, size_t n) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        norm += (double)want[i] * (double)want[i];
    }
    return sqrt(error / norm);
}

// A prompt at once; few rows a step, beside strangers; single steps.
static const struct {
    int n, chunk;
    bool strangers;
} batchings[] = {{PROMPT, PROMPT, false}, {12, 5, true}, {4, 1, false}};

// The largest distance from the scalar reference over all batchings.
static double furthest(const Gguf *g, Setup s) {
    Rig reference, r;
    rig_open(&reference, g, (Setup){.kv_type = s.kv_type, .block = s.block, .bare = s.bare});
    float *want = run(&reference, PROMPT, PROMPT, false);
    size_t n_vocab = (size_t)reference.m.c.n_vocab;
    rig_close(&reference);
    size_t used = twin_used();
    double worst = 0;
    rig_open(&r, g, s);
    for (size_t b = 0; b < ARRAY_LEN(batchings); b++) {
        float *got = run(&r, batchings[b].n, batchings[b].chunk, batchings[b].strangers);
        double d = distance(got, want, (size_t)batchings[b].n * n_vocab);
        if (!(d <= worst)) worst = d; // NaN too
        free(got);
    }
    rig_close(&r);
    assert_int_equal(twin_used(), used); // nothing is left on the GPU
    free(want);
    return worst;
}

static void expect_near(const Gguf *g, Setup s, double limit, const char *what) {
    double d = furthest(g, s);
    print_message("  %-44s %.1e\n", what, d);
    if (!(d <= limit)) fail_msg("%s: distance up to %g expected, %g found", what, limit, d);
}

static TinyModel tiny(const char *arch) { // head_dim is not dim / n_heads, groups of 3
    return (TinyModel){.arch = arch, .n_heads = 6, .n_kv_heads = 2, .head_dim = 24, .dim = 64, .ffn = 96, .seed = 3};
}

// ---- against the reference ------------------------------------------------------------------------------------------

static void test_families_and_kv_types(void **state) {
    (void)state;
    static const int kv_types[] = {TYPE_F32, TYPE_F16, TYPE_BF16};
    for (size_t a = 0; a < ARRAY_LEN(archs); a++)
        for (size_t k = 0; k < ARRAY_LEN(kv_types); k++) {
            TinyModel shape = tiny(archs[a]);
            if (k > 0) shape.head_dim = 64, shape.n_heads = 4, shape.n_kv_heads = 1; // what tiles can attend to
            Gguf *g = tiny_model(&shape);
            char what[64];
            snprintf(what, sizeof what, "%s, F32, KV %s", archs[a], type_name(kv_types[k]));
            expect_near(g, (Setup){.n_gpu = ALL, .kv_type = kv_types[k], .block = 16}, k ? 5e-3 : 1e-5, what);
            gguf_close(g);
        }
}

// Prompts in tiles, chunks, beside strangers and token by token: groups are sealed in the middle of steps and at their
// ends, and open ones go from step to step; blocks that no row sees any more are handed to others.
static double furthest_of_many(const Gguf *g, Setup s) {
    enum { N = 100 };
    static const struct {
        int n, chunk;
        bool strangers;
    } steps[] = {{N, 64, false}, {N, 37, false}, {75, 7, true}, {68, 1, false}};
    Rig reference, r;
    Setup host = s;
    double worst = 0;
    host.n_gpu = 0;
    host.scarce = false;
    rig_open(&reference, g, host);
    float *want = run(&reference, N, N / 2, false);
    size_t n_vocab = (size_t)reference.m.c.n_vocab;
    rig_close(&reference);
    rig_open(&r, g, s);
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        float *got = run(&r, steps[i].n, steps[i].chunk, steps[i].strangers);
        double d = distance(got, want, (size_t)steps[i].n * n_vocab);
        if (!(d <= worst)) worst = d;
        free(got);
    }
    rig_close(&r);
    free(want);
    return worst;
}

static void test_sealed_kv(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int head_dim, n_heads, n_kv_heads;
        Setup s;
        double limit;
    } all[] = {
        {"fp8", 24, 6, 2, {.n_gpu = ALL, .kv_type = TYPE_FP8, .block = 32}, 1e-5},
        {"q8_0, contiguous", 24, 6, 2, {.n_gpu = ALL, .kv_type = TYPE_Q8_0}, 1e-5},
        {"q4_0, rotated, blocks of 16", 24, 6, 2, {ALL, TYPE_Q4_0, 16, .shuffle = 4, .rotate = true}, 1e-5},
        {"kivi2, blocks of 7, a layer on the CPU", 24, 6, 2, {1, TYPE_KIVI2, 7, .shuffle = 2}, 1e-5},
        {"fp8, tiles, rotated", 64, 4, 1, {ALL, TYPE_FP8, 64, .rotate = true}, 5e-3},
        {"q8_0, tiles", 64, 4, 1, {ALL, TYPE_Q8_0, 32, .shuffle = 3}, 5e-3},
        {"q4_0, tiles, contiguous", 80, 2, 2, {.n_gpu = ALL, .kv_type = TYPE_Q4_0}, 5e-3},
        {"kivi2, tiles, a layer on the CPU", 64, 4, 1, {.n_gpu = 1, .kv_type = TYPE_KIVI2, .block = 32}, 5e-3},
        {"K q8_0 and V q4_0, tiles", 64, 4, 1, {ALL, TYPE_Q8_0, 16, .type_v = TYPE_Q4_0}, 5e-3},
        {"K f16 and V kivi2, tiles, rotated",
         64,
         4,
         1,
         {ALL, TYPE_F16, 32, .type_v = TYPE_KIVI2, .rotate = true},
         5e-3},
        {"f16, rotated", 24, 6, 2, {ALL, TYPE_F16, 16, .rotate = true}, 5e-3},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        TinyModel shape = tiny(archs[i % 3]); // windows: test_windows
        shape.head_dim = all[i].head_dim, shape.n_heads = all[i].n_heads, shape.n_kv_heads = all[i].n_kv_heads;
        Gguf *g = tiny_model(&shape);
        size_t used = twin_used();
        double d = furthest_of_many(g, all[i].s);
        print_message("  %-44s %.1e\n", all[i].name, d);
        if (!(d <= all[i].limit)) fail_msg("%s: distance up to %g expected, %g found", all[i].name, all[i].limit, d);
        assert_int_equal(twin_used(), used);
        gguf_close(g);
    }
}

static const int types[] = {TYPE_F16,  TYPE_BF16, TYPE_Q4_0, TYPE_Q4_1, TYPE_Q5_0,   TYPE_Q5_1,   TYPE_Q8_0, TYPE_Q2_K,
                            TYPE_Q3_K, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K, TYPE_IQ4_NL, TYPE_IQ4_XS, TYPE_I8G};

static void test_tensor_types(void **state) {
    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        bool dense = types[t] == TYPE_F16 || types[t] == TYPE_BF16;
        Gguf *g = tiny_model(&(TinyModel){.arch = archs[t % ARRAY_LEN(archs)],
                                          .type = types[t],
                                          .dim = 256,
                                          .n_heads = 4,
                                          .n_kv_heads = 2,
                                          .ffn = 256,
                                          .seed = t});
        expect_near(g, (Setup){.n_gpu = ALL, .kv_type = TYPE_F16}, dense ? 2e-2 : 5e-2, type_name(types[t]));
        gguf_close(g);
    }
}

// 12 rows a step, in part of other sequences: the matrix unit takes them in one pass, but for those of F32.
static void test_few_rows_on_the_matrix_unit(void **state) {
    (void)state;
    static const int some[] = {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_Q8_0, TYPE_Q4_K};
    gpu_tune((GpuTuning){.skinny = true});
    for (size_t t = 0; t < ARRAY_LEN(some); t++) {
        Gguf *g = tiny_model(&(TinyModel){.arch = archs[t % ARRAY_LEN(archs)],
                                          .type = some[t],
                                          .dim = 256,
                                          .n_heads = 4,
                                          .n_kv_heads = 2,
                                          .ffn = 512,
                                          .seed = t});
        double limit = some[t] == TYPE_F32 ? 5e-3 : some[t] == TYPE_F16 || some[t] == TYPE_BF16 ? 2e-2 : 5e-2;
        expect_near(g, (Setup){.n_gpu = ALL, .kv_type = TYPE_F16, .spare = 1 << 24}, limit, type_name(some[t]));
        gguf_close(g);
    }
    gpu_tune((GpuTuning){0});
}

// Kernels that begin before the one before them has ended write nothing until then, and give the same bits.
static void test_early_beginnings(void **state) {
    (void)state;
    static const int some[] = {TYPE_BF16, TYPE_Q4_K};
    for (size_t t = 0; t < ARRAY_LEN(some); t++) {
        Gguf *g = tiny_model(&(TinyModel){.type = some[t], .dim = 256, .n_heads = 4, .n_kv_heads = 2, .ffn = 256});
        Setup s = {.n_gpu = ALL, .kv_type = TYPE_F16, .block = 16};
        Rig plain, early;
        for (int few = 0; few < 2; few++) {
            gpu_tune((GpuTuning){.skinny = few});
            rig_open(&plain, g, s);
            float *want = run(&plain, 12, 6, true), *got;
            rig_close(&plain);
            gpu_tune((GpuTuning){.skinny = few, .early = true});
            rig_open(&early, g, s);
            got = run(&early, 12, 6, true);
            rig_close(&early);
            assert_memory_equal(got, want, 12 * 320 * sizeof *got);
            free(got), free(want);
        }
        gpu_tune((GpuTuning){0});
        gguf_close(g);
    }
}

static void test_rope_kinds(void **state) {
    (void)state;
    static const char *const ropes[] = {"linear", "yarn"};
    for (int i = 0; i < 2; i++) {
        TinyModel shape = tiny("llama");
        shape.rope = ropes[i];
        shape.rope_freqs = i == 0;
        shape.tied = true;
        Gguf *g = tiny_model(&shape);
        expect_near(g, (Setup){.n_gpu = ALL, .kv_type = TYPE_F32}, 1e-5, ropes[i]);
        gguf_close(g);
    }
}

static void test_layers_on_both(void **state) {
    (void)state;
    TinyModel shape = tiny("qwen3");
    shape.n_layers = 3;
    Gguf *g = tiny_model(&shape);
    for (int n = 1; n <= 3; n++) {
        char what[64];
        snprintf(what, sizeof what, "%d of 3 layers on the GPU", n);
        expect_near(g, (Setup){.n_gpu = n, .kv_type = TYPE_F32, .block = 16, .shuffle = 3}, 1e-5, what);
    }
    gguf_close(g);
}

static void test_layers_without_a_part(void **state) {
    (void)state;
    TinyModel shape = tiny("gemma2");
    shape.n_layers = 3;
    Gguf *g = tiny_model(&shape);
    for (int n = 1; n <= 3; n += 2) {
        char what[64];
        snprintf(what, sizeof what, "no feed-forward, no mixer, %d on the GPU", n);
        expect_near(g, (Setup){.n_gpu = n, .kv_type = TYPE_F32, .block = 16, .bare = true}, 1e-5, what);
    }
    gguf_close(g);
}

// ---- windows by layer -----------------------------------------------------------------------------------------------

static void test_windows(void **state) {
    (void)state;
    static const struct {
        const char *arch;
        int type, n_layers, head_dim, n_heads, n_kv_heads, window;
        Setup s;
        double limit;
    } all[] = {
        {"gemma2", TYPE_F32, 4, 24, 6, 2, 12, {ALL, TYPE_F32, 4, 3, .scarce = true}, 1e-5},
        {"gemma2", TYPE_F32, 4, 24, 6, 2, 12, {2, TYPE_F32, 7, 5, .scarce = true}, 1e-5},
        {"gemma2", TYPE_F32, 2, 64, 4, 1, 30, {ALL, TYPE_F16, 16, 7, .scarce = true}, 5e-3},
        {"gemma2", TYPE_F32, 2, 64, 4, 2, 40, {ALL, TYPE_F16, .keep = true}, 5e-3},
        {"gemma2", TYPE_F32, 3, 64, 4, 1, 40, {2, TYPE_Q8_0, 16, 4, .scarce = true}, 5e-3},
        {"gemma2", TYPE_F32, 2, 24, 6, 2, 12, {ALL, TYPE_KIVI2, 7, 2, .scarce = true, .rotate = true}, 1e-5},
        {"gemma3", TYPE_F32, 7, 24, 6, 2, 12, {ALL, TYPE_F32, 4, 9, .scarce = true}, 1e-5},
        {"gemma3", TYPE_F32, 2, 24, 6, 2, 12, {ALL, TYPE_F32, 8, 2, .scarce = true}, 1e-5}, // no layer sees all
        {"gemma3", TYPE_Q4_K, 6, 64, 4, 2, 20, {ALL, TYPE_F16, 16, 3, .scarce = true}, 6e-2},
        {"gemma2", TYPE_BF16, 2, 64, 4, 2, 20, {ALL, TYPE_F16, 16, 3, .scarce = true, .spare = 1 << 24}, 3e-2},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        char what[80];
        TinyModel shape = tiny(all[i].arch);
        shape.n_layers = all[i].n_layers, shape.head_dim = all[i].head_dim, shape.window = all[i].window;
        shape.n_heads = all[i].n_heads, shape.n_kv_heads = all[i].n_kv_heads, shape.type = all[i].type;
        if (type_info(shape.type)->block > 1) shape.dim = 256, shape.ffn = 256;
        Gguf *g = tiny_model(&shape);
        size_t used = twin_used();
        double d = furthest_of_many(g, all[i].s);
        snprintf(what, sizeof what, "%s, %s, KV %s in blocks of %d, %d of %d layers", all[i].arch,
                 type_name(all[i].type), type_name(all[i].s.kv_type), all[i].s.block,
                 int_min(all[i].s.n_gpu, shape.n_layers), shape.n_layers);
        print_message("  %-64s %.1e\n", what, d);
        if (!(d <= all[i].limit)) fail_msg("%s: distance up to %g expected, %g found", what, all[i].limit, d);
        assert_int_equal(twin_used(), used);
        gguf_close(g);
    }
}

// Logits that others have computed in float64.
static void test_golden_families(void **state) {
    (void)state;
    static const char *const files[] = {"gemma2", "gemma3"};
    Buf text = {0};
    int tokens[N_CTX], n = 0;
    assert_ok(file_read(test_data("golden/families/tokens.txt"), &text));
    for (char *at = text.data, *end; n < N_CTX; at = end) {
        tokens[n] = (int)strtol(at, &end, 10);
        if (end == at) break;
        n++;
        end += *end == ',';
    }
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char name[64];
        FileMap want;
        Gguf *g;
        Rig r;
        snprintf(name, sizeof name, "golden/families/%s.logits.f32", files[i]);
        assert_ok(file_map(test_data(name), &want));
        snprintf(name, sizeof name, "golden/families/%s.gguf", files[i]);
        assert_ok(gguf_open(test_data(name), &g));
        for (int n_gpu = 2; n_gpu <= ALL; n_gpu += ALL - 2)
            for (int chunk = n; chunk > 0; chunk = chunk > 7 ? 7 : chunk > 1 ? 1 : 0) {
                rig_open(&r, g, (Setup){.n_gpu = n_gpu, .kv_type = TYPE_F32, .block = 4, .scarce = true});
                assert_int_equal(want.n, (size_t)(n * r.m.c.n_vocab) * sizeof(float));
                float *got = run_tokens(&r, tokens, n, chunk, false);
                double d = distance(got, (const float *)(const void *)want.data, (size_t)(n * r.m.c.n_vocab));
                print_message("  %s, %2d rows a step%-21s %.1e\n", files[i], chunk,
                              n_gpu < ALL ? ", layers on both" : "", d);
                if (!(d <= 1e-3)) fail_msg("%s: distance up to 1e-3 expected, %g found", files[i], d);
                free(got);
                rig_close(&r);
            }
        gguf_close(g);
        file_unmap(&want);
    }
    buf_free(&text);
}

// ---- rows that end before the others --------------------------------------------------------------------------------

// Rows without logits end in the last layer; later steps read the K and V that they left.
static void test_rows_that_end(void **state) {
    (void)state;
    enum { A = 20, B = 40, LATER = 3 };
    for (int i = 0; i < 4; i++) { // in a graph's step nothing is narrowed; behind layers of the CPU; in tiles
        Rig gpu, cpu, *rigs[] = {&cpu, &gpu};
        TinyModel shape = tiny(i % 2 ? "gemma2" : "qwen3");
        shape.n_layers = 3, shape.head_dim = 64;
        int tokens[A + B + LATER], n_wanted = i < 2 ? B : 4, type = i < 2 ? TYPE_F16 : TYPE_F32;
        Gguf *g = tiny_model(&shape);
        rig_open(&cpu, g, (Setup){.kv_type = type, .block = 16});
        rig_open(&gpu, g, (Setup){.n_gpu = i == 3 ? 2 : ALL, .kv_type = type, .block = 16, .scarce = true});
        assert_int_equal(model_last_rows(&gpu.m, false, A + B, n_wanted), n_wanted);
        assert_int_equal(model_last_rows(&gpu.m, false, 32, n_wanted), 32);
        assert_int_equal(model_last_rows(&gpu.m, true, A + B, n_wanted), A + B);
        size_t n_vocab = (size_t)gpu.m.c.n_vocab, n = (size_t)(n_wanted + 2 * LATER) * n_vocab;
        float *logits[2] = {malloc(n * sizeof(float)), malloc(n * sizeof(float))};
        random_tokens(tokens, A + B + LATER, (int)n_vocab, 5);
        for (int k = 0; k < 2; k++) {
            Sequence a = {0}, b = {0};
            float *out = logits[k];
            sequence_push(&a, tokens, A + LATER);
            sequence_push(&b, tokens + A - 3, B + LATER);
            if (n_wanted < B) step(rigs[k], &(Part){&b, B - n_wanted, NULL}, 1); // no row goes on
            step(rigs[k], (Part[]){{&a, A, NULL}, {&b, n_wanted, out}}, 2);
            out += (size_t)n_wanted * n_vocab;
            for (int t = 0; t < LATER; t++, out += 2 * n_vocab)
                step(rigs[k], (Part[]){{&a, 1, out}, {&b, 1, out + n_vocab}}, 2);
            kvcache_release(&rigs[k]->kv, &a);
            kvcache_release(&rigs[k]->kv, &b);
            sequence_free(&a);
            sequence_free(&b);
        }
        double d = distance(logits[1], logits[0], n), limit = i < 2 ? 5e-3 : 1e-5;
        print_message("  %2d rows of %d go on%-26s %.1e\n", n_wanted, A + n_wanted,
                      i == 3 ? ", a layer on the CPU" : "", d);
        if (!(d <= limit)) fail_msg("distance up to %g expected, %g found", limit, d);
        free(logits[0]), free(logits[1]);
        rig_close(&cpu);
        rig_close(&gpu);
        gguf_close(g);
    }
}

// Every third row of those that go before the last 4, and these.
static int choose_some(void *arg, const Workspace *w, const Layer *l, const KvPool *kv, const Batch *b, int *rows) {
    (void)w, (void)l, (void)kv;
    int n = 0;
    for (int i = 0; i < b->n_rows; i++)
        if (i >= b->n_rows - 4 || i % 3 == 0) rows[n++] = i;
    ++*(int *)arg;
    return n;
}

// Any layer may end rows, in steps that would run as a graph too; positions move with their rows.
static void test_a_layer_that_narrows(void **state) {
    (void)state;
    TinyModel shape = tiny("gemma3");
    shape.n_layers = 7;
    Gguf *g = tiny_model(&shape);
    for (int layer = 0; layer < 3; layer++)
        for (int n_rows = 24; n_rows <= 60; n_rows += 36) {
            float *logits[2];
            int tokens[60], asked = 0;
            size_t n = 0;
            Narrow narrow = {layer, choose_some, &asked};
            for (int k = 0; k < 2; k++) {
                Rig r;
                Sequence ending = {0}, s = {0};
                rig_open(&r, g, (Setup){.n_gpu = k ? 5 + layer : 0, .kv_type = TYPE_F32, .block = 16});
                random_tokens(tokens, n_rows, r.m.c.n_vocab, 5);
                sequence_push(&ending, tokens, n_rows - 4);
                sequence_push(&s, tokens, 13);
                n = 4 * (size_t)r.m.c.n_vocab;
                logits[k] = malloc(n * sizeof(float));
                step(&r, &(Part){&s, 9, NULL}, 1);
                step_narrowed(&r, (Part[]){{&ending, n_rows - 4, NULL}, {&s, 4, logits[k]}}, 2, &narrow);
                kvcache_release(&r.kv, &ending);
                kvcache_release(&r.kv, &s);
                sequence_free(&ending);
                sequence_free(&s);
                rig_close(&r);
            }
            assert_int_equal(asked, 2);
            double d = distance(logits[1], logits[0], n);
            if (!(d <= 1e-5)) fail_msg("layer %d of %d rows: distance up to 1e-5 expected, %g found", layer, n_rows, d);
            free(logits[0]), free(logits[1]);
        }
    gguf_close(g);
}

// ---- the same bits --------------------------------------------------------------------------------------------------

static void assert_same_run(Rig *r, const float *want, int n, int chunk, const char *what) {
    float *got = run(r, n, chunk, false);
    if (memcmp(got, want, (size_t)(n * r->m.c.n_vocab) * sizeof *got) != 0) fail_msg("%s: other bits", what);
    free(got);
}

static void test_layouts_and_repetitions(void **state) {
    (void)state;
    static const Setup setups[] = {{.block = 0}, {.block = 16}, {.block = 1, .shuffle = 8}, {.block = 7, .shuffle = 9}};
    static const int chunks[] = {12, 3}, kv_types[] = {TYPE_F16, TYPE_Q8_0, TYPE_KIVI2};
    TinyModel shape = tiny("llama");
    shape.head_dim = 64;
    shape.n_heads = 2;
    shape.n_kv_heads = 1;
    Gguf *g = tiny_model(&shape);
    for (size_t c = 0; c < ARRAY_LEN(chunks) * ARRAY_LEN(kv_types); c++) {
        float *want = NULL;
        int type = kv_types[c / 2], chunk = chunks[c % 2] * (type == TYPE_F16 ? 1 : 3), n = type == TYPE_F16 ? 12 : 72;
        for (size_t i = 0; i < ARRAY_LEN(setups); i++) {
            Rig r;
            Setup s = setups[i];
            s.n_gpu = ALL;
            s.kv_type = type;
            rig_open(&r, g, s);
            if (!want) want = run(&r, n, chunk, false);
            assert_same_run(&r, want, n, chunk, "another layout of the blocks, or once more");
            rig_close(&r);
        }
        free(want);
    }
    gguf_close(g);
}

// Weights that are made dense slice by slice and those that stay so give the same products.
static void test_resident_copies(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.type = TYPE_Q8_0, .dim = 64, .n_heads = 2, .n_kv_heads = 1, .ffn = 96});
    Rig sliced, resident;
    rig_open(&sliced, g, (Setup){.n_gpu = ALL, .kv_type = TYPE_F16});
    float *want = run(&sliced, PROMPT, PROMPT, false);
    rig_close(&sliced);
    int dense = cuda_counts().dense_layers;
    long products = twin_products();
    rig_open(&resident, g, (Setup){.n_gpu = ALL, .kv_type = TYPE_F16, .spare = 1 << 24});
    assert_int_equal(cuda_counts().dense_layers, dense + 2);
    assert_same_run(&resident, want, PROMPT, PROMPT, "dense copies");
    assert_true(twin_products() > products);
    rig_close(&resident);
    free(want);
    gguf_close(g);
}

// ---- graphs ---------------------------------------------------------------------------------------------------------

static void test_a_graph_a_step(void **state) {
    (void)state;
    enum { BEFORE = 252, STEPS = 8, N = BEFORE + STEPS }; // past the first bound on slots, 256
    TinyModel shape = tiny("llama");
    Gguf *g = tiny_model(&shape);
    Rig r, reference;
    int tokens[N];
    rig_open(&r, g, (Setup){.n_gpu = ALL, .kv_type = TYPE_F32, .block = 16});
    rig_open(&reference, g, (Setup){.kv_type = TYPE_F32});
    size_t n_vocab = (size_t)r.m.c.n_vocab;
    float *want = run(&reference, N, MOST_ROWS, false), *got = malloc(STEPS * n_vocab * sizeof *got);
    random_tokens(tokens, N, (int)n_vocab, 5);
    Sequence s = {0};
    sequence_push(&s, tokens, N);
    while (s.n_cached < BEFORE) step(&r, &(Part){&s, BEFORE / 4, NULL}, 1);
    CudaCounts before = cuda_counts();
    for (int i = 0; i < STEPS; i++) step(&r, &(Part){&s, 1, got + (size_t)i * n_vocab}, 1);
    CudaCounts after = cuda_counts();
    assert_int_equal(after.steps - before.steps, STEPS);
    assert_int_equal(after.replays - before.replays, STEPS - 1); // the first of its size warms up
    assert_int_equal(after.captures - before.captures, 2);       // up to 256 slots, and up to 512
    double d = distance(got, want + BEFORE * n_vocab, STEPS * n_vocab);
    if (!(d <= 1e-5)) fail_msg("distance up to 1e-5 expected, %g found", d);
    free(got);
    free(want);
    kvcache_release(&r.kv, &s);
    sequence_free(&s);
    rig_close(&reference);
    rig_close(&r);
    gguf_close(g);
}

// ---- tokens ---------------------------------------------------------------------------------------------------------

enum { TEXTS = 2, LONGEST = 12 };

// As engine_step does it.
static bool generate_step(Rig *r, Scheduler *sched, bool *begun) {
    Batch *b, *next;
    if (!scheduler_next(sched, &b)) return false;
    const float *logits = *begun ? NULL : model_forward(&r->m, &r->w, r->kv.pool, b);
    *begun = b->draw && scheduler_ahead(sched, &next);
    if (*begun) model_forward(&r->m, &r->w, r->kv.pool, next);
    if (b->draw) scheduler_take_tokens(sched, model_drawn(&r->m, &r->w));
    else scheduler_take(sched, logits);
    return true;
}

static Finish until_a_small_one(Request *r, int token, const float *logits) {
    assert_true(r->blind || logits);
    return token < 4 ? FINISH_STOP : RUNNING;
}

// The texts of two prompts that come one after the other, drawn by the device or by the host.
static void generate(Rig *r, const SamplerParams *how, int shortest, bool device, int texts[TEXTS][LONGEST],
                     int n[TEXTS]) {
    Sampler *sampler = sampler_new(r->m.c.n_vocab);
    Scheduler *sched = scheduler_new(&r->kv, sampler,
                                     (SchedulerShape){.n_vocab = r->m.c.n_vocab,
                                                      .max_rows = MOST_ROWS,
                                                      .max_out = TEXTS,
                                                      .max_seqs = TEXTS,
                                                      .draws = device,
                                                      .draws_ahead = device && model_draws_ahead(&r->m)},
                                     &plain_policy);
    Request requests[TEXTS] = {0};
    bool begun = false;
    for (int i = 0; i < TEXTS; i++) {
        Request *q = &requests[i];
        int prompt[N_CTX];
        random_tokens(prompt, N_CTX, r->m.c.n_vocab, (uint64_t)i);
        sequence_push(&q->seq, prompt, shortest * (i + 1));
        q->sampling = *how;
        q->sequence_key = (uint64_t)i;
        q->max_new = LONGEST - 5 * i;
        q->emit = until_a_small_one;
        q->blind = true;
        scheduler_add(sched, q);
        for (int k = 0; k < 4; k++) generate_step(r, sched, &begun);
    }
    while (generate_step(r, sched, &begun)) {
    }
    for (int i = 0; i < TEXTS; i++) {
        Request *q = &requests[i];
        n[i] = q->n_new;
        assert_int_not_equal(q->finish, FINISH_BROKEN);
        memcpy(texts[i], q->seq.tokens + q->n_prompt, (size_t)q->n_new * sizeof(int));
        kvcache_release(&r->kv, &q->seq);
        sequence_free(&q->seq);
        timeline_free(&q->time);
    }
    scheduler_free(sched);
    sampler_free(sampler);
}

static void test_draws_of_the_device(void **state) {
    (void)state;
    static const LogitBias bias[] = {{0, -INFINITY}, {7, 2}};
    SamplerParams p = sampler_defaults();
    SamplerParams all[] = {p, p, p, p, p, p};
    all[0].greedy = true;
    all[2].top_k = 0, all[2].top_p = 1, all[2].min_p = 0, all[2].temp = 1.5f;
    all[3].repeat_penalty = 1.3f, all[3].frequency_penalty = 0.4f, all[3].presence_penalty = 0.2f;
    all[4].repeat_penalty = 1.5f, all[4].repeat_last_n = -1, all[4].greedy = true;
    all[5].bias = bias, all[5].n_bias = ARRAY_LEN(bias), all[5].seed = 5, all[5].top_p = 0.5f;
    for (int k = 0; k < 4; k++) { // with a layer on the CPU tokens are drawn, but go through the host
        int n_gpu = 1 + k % 2, shortest = k < 2 ? 3 : 20; // of the longer prompts most rows end before the head
        TinyModel shape = tiny(k < 2 ? "llama" : "gemma2");
        shape.n_layers = 2;
        Gguf *g = tiny_model(&shape);
        Rig r;
        rig_open(&r, g, (Setup){.n_gpu = n_gpu, .kv_type = TYPE_F32, .block = 8, .scarce = true});
        for (size_t i = 0; i < (n_gpu == 1 ? 1 : ARRAY_LEN(all)); i++) {
            int want[TEXTS][LONGEST], got[TEXTS][LONGEST], n_want[TEXTS], n_got[TEXTS];
            CudaCounts before = cuda_counts();
            generate(&r, &all[i], shortest, false, want, n_want);
            CudaCounts between = cuda_counts();
            generate(&r, &all[i], shortest, true, got, n_got);
            CudaCounts after = cuda_counts();
            assert_int_equal(between.drawn, before.drawn);
            assert_int_equal(after.rows_fetched, between.rows_fetched);
            assert_true(after.drawn > between.drawn);
            assert_int_equal(after.drawn_ahead > between.drawn_ahead, n_gpu == 2);
            for (int t = 0; t < TEXTS; t++) {
                assert_int_equal(n_got[t], n_want[t]);
                assert_memory_equal(got[t], want[t], (size_t)n_got[t] * sizeof(int));
            }
        }
        rig_close(&r);
        gguf_close(g);
    }
}

enum { DRAFTED = 24 };

typedef struct {
    int tokens[16 + DRAFTED];
    float *logits; // (DRAFTED, n_vocab)
    size_t n_vocab;
} Drafted;

static Finish keep_logits(Request *r, int token, const float *logits) {
    (void)token;
    Drafted *text = r->arg;
    memcpy(text->logits + (size_t)(r->n_new - 1) * text->n_vocab, logits, text->n_vocab * sizeof *logits);
    return RUNNING;
}

// Two texts beside each other, the first of them drawn by nobody but the policy.
static void generate_with(Rig *r, const Policy *policy, const Drafted *foreseen, Drafted out[TEXTS]) {
    Sampler *sampler = sampler_new(r->m.c.n_vocab);
    SchedulerShape shape = {.n_vocab = r->m.c.n_vocab, .max_rows = 24, .max_out = 24, .max_seqs = TEXTS, .draws = true};
    Scheduler *sched = scheduler_new(&r->kv, sampler, shape, policy);
    Request requests[TEXTS] = {0};
    Foreseen known[TEXTS];
    for (int i = 0; i < TEXTS; i++) {
        Request *q = &requests[i];
        int n_prompt = 5 + 10 * i, prompt[16];
        random_tokens(prompt, n_prompt, r->m.c.n_vocab, (uint64_t)i);
        sequence_push(&q->seq, prompt, n_prompt);
        q->sampling = (SamplerParams){.greedy = true, .repeat_penalty = 1};
        q->max_new = DRAFTED;
        q->emit = keep_logits;
        q->arg = &out[i];
        out[i].n_vocab = (size_t)r->m.c.n_vocab;
        out[i].logits = mem_alloc(DRAFTED * out[i].n_vocab * sizeof(float));
        if (foreseen) known[i] = (Foreseen){(int *)foreseen[i].tokens, n_prompt + DRAFTED};
        q->state = foreseen ? &known[i] : NULL;
        scheduler_add(sched, q);
    }
    for (bool begun = false; generate_step(r, sched, &begun);) {
    }
    for (int i = 0; i < TEXTS; i++) {
        Request *q = &requests[i];
        assert_int_equal(q->finish, FINISH_LENGTH);
        memcpy(out[i].tokens, q->seq.tokens, (size_t)q->seq.n_tokens * sizeof(int));
        kvcache_release(&r->kv, &q->seq);
        sequence_free(&q->seq);
        timeline_free(&q->time);
    }
    assert_int_equal(r->kv.n_free, r->kv.pool->n_blocks);
    assert_int_equal(r->kv.n_free_tails, r->kv.pool->n_tails);
    scheduler_free(sched);
    sampler_free(sampler);
}

// Steps of one row and of several run on other kernels: texts with drafts part by the margin alone.
static void test_drafts(void **state) {
    (void)state;
    static const struct {
        int kv_type;
        double distance;
    } types[] = {{TYPE_F32, 1e-5}, {TYPE_F16, 1e-3}, {TYPE_Q8_0, 1e-3}, {TYPE_KIVI2, 1e-3}};
    TinyModel shape = tiny("llama");
    Gguf *g = tiny_model(&shape);
    for (size_t t = 0; t < ARRAY_LEN(types); t++)
        for (int n_gpu = 1; n_gpu <= 2; n_gpu++) {
            Rig r;
            Drafted want[TEXTS], got[TEXTS];
            Drafter d = {.random = t, .n_vocab = 320};
            const Policy drafting = drafter_policy(&d, &plain_policy);
            rig_open(&r, g, (Setup){.n_gpu = n_gpu, .kv_type = types[t].kv_type, .block = 32});
            generate_with(&r, &plain_policy, NULL, want);
            generate_with(&r, &drafting, want, got);
            for (int i = 0; i < TEXTS; i++) {
                int n_prompt = 5 + 10 * i;
                check_margin(want[i].tokens + n_prompt, want[i].logits, got[i].tokens + n_prompt, got[i].logits,
                             DRAFTED, (int)want[i].n_vocab, types[t].distance);
                free(want[i].logits);
                free(got[i].logits);
            }
            assert_true(d.n_kept > 10 && d.n_dropped > 0);
            assert_null(model_failure(&r.m));
            rig_close(&r);
        }
    gguf_close(g);
}

// Nothing that is finite to draw from: -1, and what was begun after it harms nobody.
static void test_a_draw_of_nothing(void **state) {
    (void)state;
    TinyModel shape = tiny("llama");
    Gguf *g = tiny_model(&shape);
    Rig r;
    rig_open(&r, g, (Setup){.n_gpu = ALL, .kv_type = TYPE_F32});
    LogitBias none[1000];
    for (int i = 0; i < 1000; i++) none[i] = (LogitBias){i, -INFINITY};
    Sampler *sampler = sampler_new(r.m.c.n_vocab);
    Scheduler *sched = scheduler_new(&r.kv, sampler,
                                     (SchedulerShape){.n_vocab = r.m.c.n_vocab,
                                                      .max_rows = MOST_ROWS,
                                                      .max_out = 1,
                                                      .max_seqs = 1,
                                                      .draws = true,
                                                      .draws_ahead = true},
                                     &plain_policy);
    Request q = {.sampling = sampler_defaults(), .max_new = 9};
    q.sampling.bias = none;
    q.sampling.n_bias = ARRAY_LEN(none);
    sequence_push(&q.seq, (int[]){1, 2, 3}, 3);
    scheduler_add(sched, &q);
    for (bool begun = false; generate_step(&r, sched, &begun);) {
    }
    assert_int_equal(q.finish, FINISH_BROKEN);
    assert_null(model_failure(&r.m));
    kvcache_release(&r.kv, &q.seq);
    sequence_free(&q.seq);
    timeline_free(&q.time);
    scheduler_free(sched);
    sampler_free(sampler);
    rig_close(&r);
    gguf_close(g);
}

// ---- KV rows and copies ---------------------------------------------------------------------------------------------

// Rows that one backend computed go on on the other; of sealed types a group, and two rows that are open.
static void rows_move(const char *arch, int kv_type) {
    TinyModel shape = tiny(arch);
    shape.n_layers = 3;
    Gguf *g = tiny_model(&shape);
    Rig cpu, gpu;
    int tokens[PROMPT + 1];
    rig_open(&cpu, g, (Setup){.kv_type = kv_type, .block = 7, .shuffle = 2, .keep = true});
    rig_open(&gpu, g, (Setup){.n_gpu = 2, .kv_type = kv_type, .block = 16, .shuffle = 5, .keep = true});
    size_t n_vocab = (size_t)cpu.m.c.n_vocab, bytes = kv_rows_bytes(cpu.kv.pool, PROMPT);
    random_tokens(tokens, PROMPT + 1, (int)n_vocab, 1);
    Sequence there = {0}, here = {0};
    sequence_push(&there, tokens, PROMPT + 1);
    sequence_push(&here, tokens, PROMPT + 1);
    step(&gpu, &(Part){&there, PROMPT, NULL}, 1);
    assert_true(kvcache_reserve(&cpu.kv, &here, PROMPT));
    uint8_t *rows = malloc(bytes), *again = malloc(bytes);
    for (int layer = 0; layer < 3; layer++) {
        kvcache_load_rows(&gpu.kv, &there, layer, 0, PROMPT, rows);
        kvcache_store_rows(&cpu.kv, &here, layer, 0, PROMPT, rows);
        memset(again, 0, bytes);
        kvcache_store_rows(&gpu.kv, &there, layer, 0, PROMPT, again);
        kvcache_store_rows(&gpu.kv, &there, layer, 0, PROMPT, rows);
        kvcache_load_rows(&gpu.kv, &there, layer, 0, PROMPT, again);
        assert_memory_equal(again, rows, bytes);
    }
    here.n_cached = PROMPT;
    float *a = malloc(n_vocab * sizeof *a), *b = malloc(n_vocab * sizeof *b);
    step(&cpu, &(Part){&here, 1, a}, 1);
    step(&gpu, &(Part){&there, 1, b}, 1);
    assert_true(distance(b, a, n_vocab) <= 1e-4);
    free(a), free(b), free(rows), free(again);
    kvcache_release(&cpu.kv, &here);
    kvcache_release(&gpu.kv, &there);
    sequence_free(&here);
    sequence_free(&there);
    rig_close(&cpu);
    rig_close(&gpu);
    gguf_close(g);
}

static void test_rows_move_between_devices(void **state) {
    (void)state;
    static const int kv_types[] = {TYPE_F16, TYPE_FP8, TYPE_Q8_0, TYPE_Q4_0, TYPE_KIVI2};
    for (size_t i = 0; i < ARRAY_LEN(kv_types); i++) {
        rows_move("llama", kv_types[i]);
        rows_move("gemma2", kv_types[i]); // whose layers are in two pools
    }
}

// A fork writes into copies, of open groups too: the other branch goes on as if there were none.
static void test_forks_copy_blocks(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        Rig r;
        int n_gpu = 1 + i % 2;
        TinyModel shape = tiny(i < 4 ? "llama" : "gemma2");
        Gguf *g = tiny_model(&shape);
        rig_open(&r, g, (Setup){.n_gpu = n_gpu, .kv_type = i % 4 < 2 ? TYPE_F32 : TYPE_Q8_0, .block = 16});
        size_t n_vocab = (size_t)r.m.c.n_vocab;
        int tokens[22];
        float *want = run(&r, 22, 1, false), *got = malloc(n_vocab * sizeof *got);
        random_tokens(tokens, 22, (int)n_vocab, 5);
        Sequence s = {0}, branch = {0};
        sequence_push(&s, tokens, 22);
        step(&r, &(Part){&s, 20, NULL}, 1);
        kvcache_fork(&r.kv, &s, &branch);
        sequence_push(&branch, (int[]){1, 2}, 2);
        step(&r, &(Part){&branch, 2, NULL}, 1);
        step(&r, &(Part){&s, 1, NULL}, 1);
        step(&r, &(Part){&s, 1, got}, 1);
        assert_true(distance(got, want + 21 * n_vocab, n_vocab) <= 1e-5);
        free(got), free(want);
        kvcache_release(&r.kv, &s);
        kvcache_release(&r.kv, &branch);
        sequence_free(&s);
        sequence_free(&branch);
        rig_close(&r);
        gguf_close(g);
    }
}

// ---- what goes wrong ------------------------------------------------------------------------------------------------

static void test_every_shortage_of_memory(void **state) {
    (void)state;
    TinyModel shape = tiny("llama");
    Gguf *g = tiny_model(&shape);
    Setup s = {.n_gpu = ALL, .kv_type = TYPE_Q8_0}; // whose pages are memory of their own
    Rig r;
    rig_open(&r, g, s);
    size_t before = twin_used();
    rig_close(&r);
    size_t after = twin_used(), all = before - after;
    int refused = 0;
    for (size_t n = 0; n < all; n += all / 16 + 1) {
        twin_memory(after + n);
        Status st = rig_try(&r, g, s);
        if (st.code) {
            assert_int_equal(st.code, QUILL_MEMORY);
            assert_non_null(strstr(st.message, "try"));
            refused++;
        }
        rig_close(&r);
        assert_int_equal(twin_used(), after);
        assert_null(rt_failure());
    }
    twin_memory((size_t)1 << 30);
    assert_true(refused > 10);
    gguf_close(g);
}

static void test_what_the_kernels_cannot(void **state) {
    (void)state;
    Heads h = {.n_heads = 2, .n_kv_heads = 1, .head_dim = 256};
    assert_ok(cuda_can(&h));
    h.head_dim = 258;
    assert_int_equal(cuda_can(&h).code, QUILL_MODEL);
    h.head_dim = 63;
    assert_int_equal(cuda_can(&h).code, QUILL_MODEL);
}

static void test_a_failure_voids_what_follows(void **state) {
    (void)state;
    TinyModel shape = tiny("llama");
    Gguf *g = tiny_model(&shape);
    Rig r;
    rig_open(&r, g, (Setup){.n_gpu = ALL, .kv_type = TYPE_F16});
    float logits[400];
    Sequence s = {0};
    sequence_push(&s, (int[]){1, 2, 3}, 3);
    step(&r, &(Part){&s, 1, logits}, 1);
    assert_true(isfinite(logits[0]));
    rt_fail("the GPU: it has fallen off the bus");
    step(&r, &(Part){&s, 1, logits}, 1);
    assert_true(isnan(logits[0]) && isnan(logits[319]));
    assert_string_equal(model_failure(&r.m), "the GPU: it has fallen off the bus");
    twin_clear();
    kvcache_release(&r.kv, &s);
    sequence_free(&s);
    rig_close(&r);
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families_and_kv_types),
        cmocka_unit_test(test_sealed_kv),
        cmocka_unit_test(test_tensor_types),
        cmocka_unit_test(test_few_rows_on_the_matrix_unit),
        cmocka_unit_test(test_early_beginnings),
        cmocka_unit_test(test_rope_kinds),
        cmocka_unit_test(test_layers_on_both),
        cmocka_unit_test(test_layers_without_a_part),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_golden_families),
        cmocka_unit_test(test_rows_that_end),
        cmocka_unit_test(test_a_layer_that_narrows),
        cmocka_unit_test(test_layouts_and_repetitions),
        cmocka_unit_test(test_resident_copies),
        cmocka_unit_test(test_a_graph_a_step),
        cmocka_unit_test(test_draws_of_the_device),
        cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_a_draw_of_nothing),
        cmocka_unit_test(test_rows_move_between_devices),
        cmocka_unit_test(test_forks_copy_blocks),
        cmocka_unit_test(test_every_shortage_of_memory),
        cmocka_unit_test(test_what_the_kernels_cannot),
        cmocka_unit_test(test_a_failure_voids_what_follows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
