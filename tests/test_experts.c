// tests/test_experts.c: layers of experts on the CPU: results do not depend on the batch; quantised stacks are compared
// with their weights in F32; ties and NaN in the router; the groups of a batch; counts of active weights; experts that
// no row chooses are not read; activations that are packed as they are computed.
#define _GNU_SOURCE
#include "tests/rig/engine_rig.h"

#include "costs.h"
#include "tests/rig/cpu_rig.h"
#include "tests/rig/tiny_model.h"

#include <math.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TOKENS = 48, VOCAB = 320 };

static const char *const archs[] = {"llama", "qwen2moe", "qwen3moe", "gpt-oss"};

static TinyModel wide(const char *arch, int type) { // whole blocks of every type, deeper than a panel
    return (TinyModel){.arch = arch,
                       .type = type,
                       .dim = 512,
                       .n_layers = 1,
                       .head_dim = 64,
                       .n_heads = 4,
                       .n_kv_heads = 2,
                       .ffn = 256,
                       .n_experts = 10,
                       .n_used = 3,
                       .seed = 5};
}

// ---- --deterministic ------------------------------------------------------------------------------------------------

static void one_result(const char *arch, int type) {
    static const int chunks[] = {TOKENS, 7, 1};
    TinyModel shape = wide(arch, type);
    Gguf *g = tiny_model(&shape);
    int tokens[TOKENS];
    random_tokens(tokens, TOKENS, VOCAB, 5);
    for (int isa = 0; isa_name(isa); isa++) {
        float *want = NULL;
        for (size_t i = 0; i < ARRAY_LEN(chunks); i++) {
            Rig r;
            if (type == TYPE_F32 && isa_is_of_integers(isa_name(isa))) break;
            Setup s = {.isa = isa_name(isa), .deterministic = isa > 0, .threads = 1 + (int)i, .block = 16};
            if (!rig_open(&r, g, s)) break;
            float *got = run_tokens(&r, tokens, TOKENS, chunks[i]);
            if (want && memcmp(got, want, sizeof *got * TOKENS * VOCAB) != 0)
                fail_msg("%s, %s, %s: other bits in chunks of %d", arch, type_name(type), s.isa, chunks[i]);
            if (want) free(got);
            else want = got;
            rig_close(&r);
        }
        for (int k = 0; want && k < TOKENS * VOCAB; k++) assert_true(isfinite(want[k]));
        free(want);
    }
    gguf_close(g);
}

static void test_deterministic(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(archs); i++) {
        one_result(archs[i], TYPE_F32);
        one_result(archs[i], i % 2 ? TYPE_Q8_0 : TYPE_MXFP4);
    }
    one_result("qwen3moe", TYPE_Q4_K);
    one_result("qwen2moe", TYPE_BF16);
}

// ---- types ----------------------------------------------------------------------------------------------------------

// The number of rows whose distance from the reference is within the rounding of int8 and bf16 activations. If rounding
// changes the choice of an expert, a row is far from the reference.
static int near_rows(const float *got, const float *want, int n, double limit) {
    int near = 0;
    for (int i = 0; i < n; i++) near += test_distance(got + i * VOCAB, want + i * VOCAB, VOCAB) < limit;
    return near;
}

// Every instruction set is compared with the scalar code over the same blocks, with few and with many rows for each
// expert.
static void test_types(void **state) {
    (void)state;
    for (int type = 0; type < TINY_TYPES; type++) {
        enum { MANY = 64, FEW = 9 };
        TinyModel shape = wide(archs[1 + type % 3], tiny_types[type]);
        Gguf *g = tiny_model(&shape);
        int tokens[MANY];
        float *want = NULL;
        random_tokens(tokens, MANY, VOCAB, 6);
        for (int isa = 0; isa_name(isa); isa++)
            for (int chunk = MANY; chunk > 0; chunk = chunk > FEW ? FEW : 0) {
                Rig r;
                if (!rig_open(&r, g, (Setup){.isa = isa_name(isa), .threads = 2})) continue;
                float *got = run_tokens(&r, tokens, MANY, chunk);
                rig_close(&r);
                if (want) {
                    bool exact = tiny_types[type] == TYPE_F32;
                    int near = near_rows(got, want, MANY, exact ? 1e-3 : 8e-2);
                    if (near < (exact ? MANY : MANY * 3 / 4))
                        fail_msg("%s, %s, %s, chunks of %d: %d of %d rows", shape.arch, type_name(tiny_types[type]),
                                 isa_name(isa), chunk, near, MANY);
                    free(got);
                } else want = got;
                if (isa == 0) break; // isa 0 is the reference
            }
        free(want);
        gguf_close(g);
    }
}

// ---- packed activations ---------------------------------------------------------------------------------------------

static void look_at_nothing(void *arg, WatchFeed feed, const Workspace *w, const Layer *l, const Batch *b) {
    (void)feed, (void)w, (void)l, (void)b;
    ++*(int *)arg;
}

// The activations of an expert with enough rows are packed for the next product as they are computed, unless a callback
// wants to see them: both must give the same bits.
static void test_packed_activations(void **state) {
    (void)state;
    enum { MANY = 100, FEW = 25 }; // rows of a step; an expert gets about 30 or 8 of them
    int tokens[MANY], seen = 0;
    Watch watch = {.feeds = look_at_nothing, .arg = &seen};
    random_tokens(tokens, MANY, VOCAB, 6);
    for (int type = 0; type < TINY_TYPES; type++) {
        TinyModel shape = wide(archs[type % 4], tiny_types[type]);
        Gguf *g = tiny_model(&shape);
        for (int i = 0; isa_name(1 + i / 2); i++) {
            const char *isa = isa_name(1 + i / 2);
            int chunk = i % 2 ? FEW : MANY;
            Rig r;
            if (!rig_open(&r, g, (Setup){.isa = isa, .threads = 2})) continue;
            float *packed = run_tokens(&r, tokens, MANY, chunk);
            r.watch = &watch;
            float *plain = run_tokens(&r, tokens, MANY, chunk);
            rig_close(&r);
            if (memcmp(packed, plain, sizeof *packed * MANY * VOCAB) != 0)
                fail_msg("%s, %s, %s, steps of %d: other bits", shape.arch, type_name(shape.type), isa, chunk);
            free(packed);
            free(plain);
        }
        gguf_close(g);
    }
    assert_true(seen > 0);
}

// Gate and up have different types, whose activations are packed differently.
static void test_mixed_types(void **state) {
    (void)state;
    static const int types[] = {TYPE_Q8_0, TYPE_F32, TYPE_Q4_0, TYPE_BF16};
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        TinyModel shape = wide("qwen3moe", TYPE_Q4_K), other = wide("qwen3moe", types[t]);
        Gguf *g = tiny_model(&shape), *h = tiny_model(&other);
        const char *name = "blk.0.ffn_up_exps.weight";
        GgufTensor *to = tiny_tensor(g, name), *from = tiny_tensor(h, name);
        to->type = from->type, to->data = from->data, to->n_bytes = from->n_bytes;
        int tokens[TOKENS];
        float *want = NULL;
        random_tokens(tokens, TOKENS, VOCAB, 6);
        for (int isa = 0; isa_name(isa); isa++) {
            Rig r;
            if (!rig_open(&r, g, (Setup){.isa = isa_name(isa), .threads = 2})) continue;
            float *got = run_tokens(&r, tokens, TOKENS, TOKENS);
            rig_close(&r);
            if (!want) {
                want = got;
                continue;
            }
            assert_true(near_rows(got, want, TOKENS, 8e-2) >= TOKENS * 3 / 4);
            free(got);
        }
        free(want);
        gguf_close(g);
        gguf_close(h);
    }
}

// ---- the router -----------------------------------------------------------------------------------------------------

// If all experts have the same score, the first ones must be chosen with equal weights, on every instruction set.
static void test_ties(void **state) {
    (void)state;
    for (int isa = 0; isa_name(isa); isa++)
        for (int n = 1; n <= 40; n += 39) {
            Gguf *g = tiny_model(&(TinyModel){.arch = "qwen3moe", .n_experts = 9, .n_used = 4, .seed = 2});
            for (int layer = 0; layer < 2; layer++) {
                char name[64];
                snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", layer);
                float *w = (float *)tiny_tensor(g, name)->data;
                for (int i = 0; i < 9; i++) memcpy(w + i * 64, w, 64 * sizeof *w);
            }
            Rig r;
            int tokens[40];
            if (rig_open(&r, g, (Setup){.isa = isa_name(isa)})) {
                random_tokens(tokens, 40, VOCAB, 6);
                free(run_tokens(&r, tokens, n, n));
                const ExpertRows *e = &r.w.experts;
                for (int i = 0; i < 4; i++) {
                    assert_int_equal(e->chosen[i], i);
                    assert_true(e->weight[i] == 0.25f);
                }
                for (int i = 0; i <= 9; i++) assert_int_equal(e->first[i], int_min(i, 4) * n);
                rig_close(&r);
            }
            gguf_close(g);
        }
}

// The pairs of a batch must be sorted by expert, then by row, and each row must name its pairs.
static void test_groups(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.arch = "qwen2moe", .n_experts = 12, .n_used = 5, .seed = 2});
    Rig r;
    int tokens[TOKENS];
    assert_true(rig_open(&r, g, (Setup){.threads = 2}));
    random_tokens(tokens, TOKENS, VOCAB, 6);
    free(run_tokens(&r, tokens, TOKENS, TOKENS));
    const ExpertRows *e = &r.w.experts;
    assert_int_equal(e->first[0], 0);
    assert_int_equal(e->first[12], TOKENS * 5);
    for (int i = 0; i < 12; i++)
        for (int pair = e->first[i]; pair < e->first[i + 1]; pair++) {
            assert_true(pair == e->first[i] || e->row[pair] > e->row[pair - 1]);
            int found = 0;
            for (int k = 0; k < 5; k++)
                found += e->chosen[e->row[pair] * 5 + k] == i && e->place[e->row[pair] * 5 + k] == pair;
            assert_int_equal(found, 1);
        }
    for (int i = 0; i < TOKENS * 5; i++) { // weights must fall
        const float *logits = e->logits + i / 5 * 12;
        if (i % 5) assert_true(logits[e->chosen[i]] <= logits[e->chosen[i - 1]]);
    }
    assert_int_equal(e->broken, 0);
    rig_close(&r);
    gguf_close(g);
}

// A NaN in a router must be an error of one line that names the layer.
static void test_broken_router(void **state) {
    (void)state;
    const float values[] = {NAN, INFINITY, NAN};
    for (size_t v = 0; v < ARRAY_LEN(values); v++) {
        Engine e;
        EngineSetup setup = {.model = {.arch = v < 2 ? "qwen3moe" : "qwen2moe", .vocab = ENGINE_VOCAB, .seed = 2}};
        open_engine(&e, &setup);
        Layer *l = &e.model.layers[1];
        ((float *)(v < 2 ? l->router : l->shared_route).data)[v < 2 ? 5 * 64 + 3 : 3] = values[v];
        assert_ok(engine_fault(&e));
        Sequence s = {0};
        sequence_push(&s, (int[]){1, 2, 3}, 3);
        Rig r = {.m = e.model, .w = e.work, .kv = e.kv};
        float logits[3 * ENGINE_VOCAB];
        step(&r, &(RowsOfSequence){&s, 1, logits}, 1);
        e.work = r.w;
        e.kv = r.kv;
        assert_true(isnan(logits[0]));
        Status st = engine_fault(&e);
        assert_int_equal(st.code, QUILL_MODEL);
        assert_non_null(strstr(st.message, "layer 1"));
        assert_non_null(strstr(st.message, "blk.1.ffn_gate_inp"));
        assert_null(strchr(st.message, '\n'));
        sequence_end(&e.kv, &s);
        engine_close(&e);
    }
}

// ---- counts of active weights ---------------------------------------------------------------------------------------

static void test_active(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.arch = "qwen3moe", .n_experts = 8, .n_used = 2, .ffn = 48, .seed = 2});
    const Backend *be;
    Model m;
    assert_ok(cpu_backend("scalar", &be));
    assert_ok(model_load(&m, g, be));
    size_t expert = 3 * 64 * 48, idle = (size_t)m.c.n_layers * 6 * expert;
    assert_true(model_n_params(&m) - model_active_params(&m) == idle);
    assert_true(model_weight_bytes(&m) - model_active_bytes(&m) == idle * 4);
    KvShape shape = memory_plan_kv_shape(&m);
    shape.type_k = shape.type_v = TYPE_F16;
    shape.n_ctx = 64, shape.n_seqs = 1;
    Cost one = costs_rows(&m, &shape, 0, 1, 1), many = costs_rows(&m, &shape, 0, 64, 64);
    double kv = 2.0 * 2 * 2 * (double)kvshape_bytes_per_slot(&shape) / 4; // written and read, one slot of all layers
    assert_true(fabs(one.bytes - ((double)model_active_bytes(&m) - 320.0 * 64 * 4 + 64 * 4 + kv)) < 1);
    double dense = 2.0 * ((double)model_active_params(&m) - 320 * 64);
    assert_true(one.flops < dense * 1.1 && one.flops > dense * 0.9);
    assert_true(many.bytes > one.bytes && many.bytes < (double)model_weight_bytes(&m) + 1e6);
    model_free(&m);
    gguf_close(g);
}

// The number of pages of a file's private mapping that this process has touched.
static size_t touched(const void *data, size_t n) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), found = 0;
    FILE *f = fopen("/proc/self/pagemap", "rb");
    if (!f) return SIZE_MAX;
    for (uintptr_t at = round_up((uintptr_t)data, page); at + page <= (uintptr_t)data + n; at += page) {
        uint64_t entry = 0;
        if (fseek(f, (long)(at / page * 8), SEEK_SET) != 0 || fread(&entry, 8, 1, f) != 1) break;
        found += entry >> 63; // the bit "present"
    }
    fclose(f);
    return found;
}

static const TinyModel many_experts = {
    .arch = "qwen3moe", .dim = 256, .n_heads = 4, .ffn = 1024, .n_experts = 64, .n_used = 2, .seed = 3};

// In a stack where each page costs a fault, the pages of experts that were not chosen must stay untouched.
static void test_untouched(void **state) {
    (void)state;
    assert_ok(tiny_model_file(&many_experts, test_tmp("experts.gguf")));
    for (int isa = 0; isa_name(isa); isa++) {
        Gguf *g;
        Rig r;
        int tokens[3];
        assert_ok(gguf_open(test_tmp("experts.gguf"), &g));
        const FileMap *map = gguf_maps(g, &(int){0});
        madvise((void *)map->data, map->n, MADV_RANDOM); // a fault maps one page
        madvise((void *)map->data, map->n, MADV_NOHUGEPAGE);
        if (rig_open(&r, g, (Setup){.isa = isa_name(isa), .threads = 2})) {
            random_tokens(tokens, 3, VOCAB, 6);
            free(run_tokens(&r, tokens, 3, 1));
            const GgufTensor *t = gguf_tensor(g, "blk.0.ffn_down_exps.weight");
            size_t pages = touched(t->data, t->n_bytes), all = t->n_bytes / (size_t)sysconf(_SC_PAGESIZE);
            if (pages != SIZE_MAX && pages > all / 4) // reads at most 6 of 64 experts, and neighbouring pages
                fail_msg("%s: %zu of %zu pages of the experts were touched", isa_name(isa), pages, all);
            rig_close(&r);
        }
        gguf_close(g);
    }
}

// Pages of these bytes that are in the system's cache, of all their pages.
static size_t cached(const void *data, size_t n, size_t *all) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), found = 0;
    uintptr_t first = round_up((uintptr_t)data, page), end = ((uintptr_t)data + n) & ~(page - 1);
    *all = (end - first) / page;
    unsigned char *there = mem_alloc(*all);
    assert_int_equal(mincore((void *)first, end - first, there), 0);
    for (size_t i = 0; i < *all; i++) found += there[i] & 1;
    free(there);
    return found;
}

// Of a file that is not in memory, only the chosen experts are read.
static void test_unread(void **state) {
    (void)state;
    const char *path = test_tmp("unread.gguf");
    assert_ok(tiny_model_file(&many_experts, path));
    int fd = open(path, O_RDONLY), tokens[3];
    assert_true(fd >= 0);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    Gguf *g;
    Rig r;
    assert_ok(gguf_open(path, &g));
    const GgufTensor *t = gguf_tensor(g, "blk.0.ffn_down_exps.weight");
    size_t all, before = cached(t->data, t->n_bytes, &all);
    assert_true(rig_open(&r, g, (Setup){.isa = "scalar", .threads = 2}));
    random_tokens(tokens, 3, VOCAB, 6);
    free(run_tokens(&r, tokens, 3, 1));
    size_t after = cached(t->data, t->n_bytes, &all);
    if (before > all / 10) print_message("not tested: the file system keeps its files in memory\n");
    else if (after > all / 3) fail_msg("%zu of %zu pages were read", after, all); // 6 of 64 experts, and their edges
    else assert_true(after > before);
    rig_close(&r);
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deterministic), cmocka_unit_test(test_types),
        cmocka_unit_test(test_mixed_types),   cmocka_unit_test(test_ties),
        cmocka_unit_test(test_groups),        cmocka_unit_test(test_broken_router),
        cmocka_unit_test(test_active),        cmocka_unit_test(test_untouched),
        cmocka_unit_test(test_unread),        cmocka_unit_test(test_packed_activations),
    };
    return cmocka_run_group_tests(tests, isa_print, NULL);
}
