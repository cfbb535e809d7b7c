// tests/test_cuda_rows.c: the backend on a GPU: rows that end in an early layer; other layouts and repetitions, which
// must give the same bits; rows of KV that are copied between devices and between sequences.
#include "tests/rig/testing.h"

#include "gpu/cuda.h"
#include "gpu/launch.h"
#include "kv/kvrows.h"
#include "tests/rig/cuda_rig.h"
#include "tests/rig/gpu_rt_host.h"

// ---- rows that end before the others --------------------------------------------------------------------------------

// Rows without logits end in the last layer; later steps must still read their K and V.
static void test_rows_that_end(void **state) {
    (void)state;
    enum { A = 20, B = 40, LATER = 3 };
    for (int i = 0; i < 4; i++) { // steps in a graph, where all rows pass all layers; after layers on the CPU; in tiles
        Rig gpu, cpu, *rigs[] = {&cpu, &gpu};
        TinyModel shape = cuda_rig_shape(i % 2 ? "gemma2" : "qwen3");
        shape.n_layers = 3, shape.head_dim = 64;
        int tokens[A + B + LATER], n_wanted = i < 2 ? B : 4, type = i < 2 ? TYPE_F16 : TYPE_F32;
        Gguf *g = tiny_model(&shape);
        cuda_rig_open(&cpu, g, (CudaSetup){.kv_type = type, .block = 16});
        cuda_rig_open(&gpu, g,
                      (CudaSetup){.n_gpu = i == 3 ? 2 : ALL_LAYERS, .kv_type = type, .block = 16, .scarce = true});
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
            if (n_wanted < B) step(rigs[k], &(RowsOfSequence){&b, B - n_wanted, NULL}, 1); // no row has logits
            step(rigs[k], (RowsOfSequence[]){{&a, A, NULL}, {&b, n_wanted, out}}, 2);
            out += (size_t)n_wanted * n_vocab;
            for (int t = 0; t < LATER; t++, out += 2 * n_vocab)
                step(rigs[k], (RowsOfSequence[]){{&a, 1, out}, {&b, 1, out + n_vocab}}, 2);
            kvcache_release(&rigs[k]->kv, &a);
            kvcache_release(&rigs[k]->kv, &b);
            sequence_free(&a);
            sequence_free(&b);
        }
        double d = test_distance(logits[1], logits[0], n), limit = i < 2 ? 5e-3 : 1e-5;
        print_message("  %2d rows of %d go on%-26s %.1e\n", n_wanted, A + n_wanted,
                      i == 3 ? ", a layer on the CPU" : "", d);
        if (!(d <= limit)) fail_msg("distance up to %g expected, %g found", limit, d);
        free(logits[0]), free(logits[1]);
        rig_close(&cpu);
        rig_close(&gpu);
        gguf_close(g);
    }
}

// Chooses every third row before the last 4, and the last 4.
static int choose_some(void *arg, const Layer *l, const KvPool *kv, const Batch *b, int *rows) {
    (void)l, (void)kv;
    int n = 0;
    for (int i = 0; i < b->n_rows; i++)
        if (i >= b->n_rows - 4 || i % 3 == 0) rows[n++] = i;
    ++*(int *)arg;
    return n;
}

// Rows may end in any layer, also in steps that would be replayed as a graph; the positions of the other rows move with
// them.
static void test_a_layer_that_narrows(void **state) {
    (void)state;
    TinyModel shape = cuda_rig_shape("gemma3");
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
                cuda_rig_open(&r, g, (CudaSetup){.n_gpu = k ? 5 + layer : 0, .kv_type = TYPE_F32, .block = 16});
                random_tokens(tokens, n_rows, r.m.c.n_vocab, 5);
                sequence_push(&ending, tokens, n_rows - 4);
                sequence_push(&s, tokens, 13);
                n = 4 * (size_t)r.m.c.n_vocab;
                logits[k] = malloc(n * sizeof(float));
                step(&r, &(RowsOfSequence){&s, 9, NULL}, 1);
                step_narrowed(&r, (RowsOfSequence[]){{&ending, n_rows - 4, NULL}, {&s, 4, logits[k]}}, 2, &narrow);
                kvcache_release(&r.kv, &ending);
                kvcache_release(&r.kv, &s);
                sequence_free(&ending);
                sequence_free(&s);
                rig_close(&r);
            }
            assert_int_equal(asked, 2);
            double d = test_distance(logits[1], logits[0], n);
            if (!(d <= 1e-5)) fail_msg("layer %d of %d rows: distance up to 1e-5 expected, %g found", layer, n_rows, d);
            free(logits[0]), free(logits[1]);
        }
    gguf_close(g);
}

// ---- the same bits --------------------------------------------------------------------------------------------------

static void assert_same_run(Rig *r, const float *want, int n, int chunk, const char *what) {
    float *got = cuda_rig_run(r, n, chunk, false);
    if (memcmp(got, want, (size_t)(n * r->m.c.n_vocab) * sizeof *got) != 0) fail_msg("%s: other bits", what);
    free(got);
}

static void test_layouts_and_repetitions(void **state) {
    (void)state;
    static const CudaSetup setups[] = {
        {.block = 0}, {.block = 16}, {.block = 1, .shuffle = 8}, {.block = 7, .shuffle = 9}};
    static const int chunks[] = {12, 3}, kv_types[] = {TYPE_F16, TYPE_Q8_0, TYPE_KIVI2};
    TinyModel shape = cuda_rig_shape("llama");
    shape.head_dim = 64;
    shape.n_heads = 2;
    shape.n_kv_heads = 1;
    Gguf *g = tiny_model(&shape);
    for (size_t c = 0; c < ARRAY_LEN(chunks) * ARRAY_LEN(kv_types); c++) {
        float *want = NULL;
        int type = kv_types[c / 2], chunk = chunks[c % 2] * (type == TYPE_F16 ? 1 : 3), n = type == TYPE_F16 ? 12 : 72;
        for (size_t i = 0; i < ARRAY_LEN(setups); i++) {
            Rig r;
            CudaSetup s = setups[i];
            s.n_gpu = ALL_LAYERS;
            s.kv_type = type;
            cuda_rig_open(&r, g, s);
            if (!want) want = cuda_rig_run(&r, n, chunk, false);
            assert_same_run(&r, want, n, chunk, "another layout of the blocks, or once more");
            rig_close(&r);
        }
        free(want);
    }
    gguf_close(g);
}

// Kernels that begin before the previous one has ended must not write until then, and must give the same bits; so must
// those whose weights come through a ring.
static void test_early_beginnings(void **state) {
    (void)state;
    static const int some[] = {TYPE_BF16, TYPE_Q4_K};
    for (size_t t = 0; t < ARRAY_LEN(some); t++) {
        Gguf *g = tiny_model(&(TinyModel){.type = some[t], .dim = 256, .n_heads = 4, .n_kv_heads = 2, .ffn = 256});
        CudaSetup s = {.n_gpu = ALL_LAYERS, .kv_type = TYPE_F16, .block = 16};
        Rig plain, early;
        for (int few = 0; few < 2; few++) {
            gpu_tune((GpuTuning){.skinny = few});
            cuda_rig_open(&plain, g, s);
            float *want = cuda_rig_run(&plain, 12, 6, true), *got;
            rig_close(&plain);
            for (int ring = 0; ring < 2; ring++) {
                gpu_tune((GpuTuning){.skinny = few, .ring = ring, .early = true});
                cuda_rig_open(&early, g, s);
                got = cuda_rig_run(&early, 12, 6, true);
                rig_close(&early);
                assert_memory_equal(got, want, 12 * 320 * sizeof *got);
                free(got);
            }
            free(want);
        }
        gpu_tune((GpuTuning){0});
        gguf_close(g);
    }
}

// Weights that are unpacked slice by slice and weights that stay unpacked must give the same products.
static void test_resident_copies(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.type = TYPE_Q8_0, .dim = 64, .n_heads = 2, .n_kv_heads = 1, .ffn = 96});
    Rig sliced, resident;
    cuda_rig_open(&sliced, g, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = TYPE_F16});
    float *want = cuda_rig_run(&sliced, CUDA_PROMPT, CUDA_PROMPT, false);
    rig_close(&sliced);
    int dense = cuda_counts().dense_layers;
    long products = twin_products();
    cuda_rig_open(&resident, g, (CudaSetup){.n_gpu = ALL_LAYERS, .kv_type = TYPE_F16, .spare = 1 << 24});
    assert_int_equal(cuda_counts().dense_layers, dense + 2);
    assert_same_run(&resident, want, CUDA_PROMPT, CUDA_PROMPT, "dense copies");
    assert_true(twin_products() > products);
    rig_close(&resident);
    free(want);
    gguf_close(g);
}

// ---- KV rows and copies ---------------------------------------------------------------------------------------------

// Continues on one backend with rows that the other one computed; with sealed types one group and two rows of an open
// group.
static void rows_move(const char *arch, int kv_type) {
    TinyModel shape = cuda_rig_shape(arch);
    shape.n_layers = 3;
    Gguf *g = tiny_model(&shape);
    Rig cpu, gpu;
    int tokens[CUDA_PROMPT + 1];
    cuda_rig_open(&cpu, g, (CudaSetup){.kv_type = kv_type, .block = 7, .shuffle = 2, .keep = true});
    cuda_rig_open(&gpu, g, (CudaSetup){.n_gpu = 2, .kv_type = kv_type, .block = 16, .shuffle = 5, .keep = true});
    size_t n_vocab = (size_t)cpu.m.c.n_vocab, bytes = kvrows_bytes(cpu.kv.pool, CUDA_PROMPT);
    random_tokens(tokens, CUDA_PROMPT + 1, (int)n_vocab, 1);
    Sequence there = {0}, here = {0};
    sequence_push(&there, tokens, CUDA_PROMPT + 1);
    sequence_push(&here, tokens, CUDA_PROMPT + 1);
    step(&gpu, &(RowsOfSequence){&there, CUDA_PROMPT, NULL}, 1);
    assert_true(kvcache_reserve(&cpu.kv, &here, CUDA_PROMPT));
    uint8_t *rows = malloc(bytes), *again = malloc(bytes);
    for (int layer = 0; layer < 3; layer++) {
        kvcache_load_rows(&gpu.kv, &there, layer, 0, CUDA_PROMPT, rows);
        kvcache_store_rows(&cpu.kv, &here, layer, 0, CUDA_PROMPT, rows);
        memset(again, 0, bytes);
        kvcache_store_rows(&gpu.kv, &there, layer, 0, CUDA_PROMPT, again);
        kvcache_store_rows(&gpu.kv, &there, layer, 0, CUDA_PROMPT, rows);
        kvcache_load_rows(&gpu.kv, &there, layer, 0, CUDA_PROMPT, again);
        assert_memory_equal(again, rows, bytes);
    }
    here.n_cached = CUDA_PROMPT;
    float *a = malloc(n_vocab * sizeof *a), *b = malloc(n_vocab * sizeof *b);
    step(&cpu, &(RowsOfSequence){&here, 1, a}, 1);
    step(&gpu, &(RowsOfSequence){&there, 1, b}, 1);
    assert_true(test_distance(b, a, n_vocab) <= 1e-4);
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
        rows_move("gemma2", kv_types[i]); // its layers are in two pools
    }
}

// A fork writes into copies of blocks and of open groups: the other sequence must not change.
static void test_forks_copy_blocks(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        Rig r;
        int n_gpu = 1 + i % 2;
        TinyModel shape = cuda_rig_shape(i < 4 ? "llama" : "gemma2");
        Gguf *g = tiny_model(&shape);
        cuda_rig_open(&r, g, (CudaSetup){.n_gpu = n_gpu, .kv_type = i % 4 < 2 ? TYPE_F32 : TYPE_Q8_0, .block = 16});
        size_t n_vocab = (size_t)r.m.c.n_vocab;
        int tokens[22];
        float *want = cuda_rig_run(&r, 22, 1, false), *got = malloc(n_vocab * sizeof *got);
        random_tokens(tokens, 22, (int)n_vocab, 5);
        Sequence s = {0}, branch = {0};
        sequence_push(&s, tokens, 22);
        step(&r, &(RowsOfSequence){&s, 20, NULL}, 1);
        kvcache_fork(&r.kv, &s, &branch);
        sequence_push(&branch, (int[]){1, 2}, 2);
        step(&r, &(RowsOfSequence){&branch, 2, NULL}, 1);
        step(&r, &(RowsOfSequence){&s, 1, NULL}, 1);
        step(&r, &(RowsOfSequence){&s, 1, got}, 1);
        assert_true(test_distance(got, want + 21 * n_vocab, n_vocab) <= 1e-5);
        free(got), free(want);
        kvcache_release(&r.kv, &s);
        kvcache_release(&r.kv, &branch);
        sequence_free(&s);
        sequence_free(&branch);
        rig_close(&r);
        gguf_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_that_end),           cmocka_unit_test(test_a_layer_that_narrows),
        cmocka_unit_test(test_layouts_and_repetitions), cmocka_unit_test(test_early_beginnings),
        cmocka_unit_test(test_resident_copies),         cmocka_unit_test(test_rows_move_between_devices),
        cmocka_unit_test(test_forks_copy_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
