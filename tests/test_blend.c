// tests/test_blend.c: prompts with chunks whose K and V were computed separately, compared with prompts computed as a
// whole.
#define _GNU_SOURCE
#include "tests/rig/testing.h"

#include <math.h>

#include "costs.h"
#include "kv/kvrows.h"
#include "kv/kvturn.h"
#include "tests/rig/blend_rig.h"
#include "tests/rig/cpu_rig.h"
#include "tests/rig/directory.h"
#include "tests/rig/gaps.h"

static void free_results(BlendResult *r, int n) {
    for (int i = 0; i < n; i++) free(r[i].rows);
}

static const int sizes[] = {31, 9, 40};

// ---- everything computed again is a prefill -------------------------------------------------------------------------

static void check_full(const BlendSetup *u, const char *what) {
    BlendRig r;
    if (!blend_rig_open(&r, u)) return;
    BlendText t;
    BlendResult got[4];
    blend_text(&t, 5, sizes, 3, 2, 13, 7);
    blend_rig_add(&r, &t);
    blend_run(&r.e, t.tokens, t.n, NULL, &got[0]);
    blend_rig_run(&r, &t, "cacheblend,gradual=0.7,ratio=1", &got[3]);
    blend_assert_same(&got[3], &got[0], what);
    blend_rig_run(&r, &t, "cacheblend,ratio=1", &got[1]);
    blend_rig_run(&r, &t, "epic,k=1000", &got[2]);
    blend_assert_same(&got[1], &got[0], what);
    blend_assert_same(&got[2], &got[0], what);
    assert_int_equal(got[1].stats.n_kept, 80);
    assert_int_equal(got[1].stats.n_again, 84);
    free_results(got, 4);
    blend_rig_close(&r);
}

static void test_ratio_one_is_a_prefill(void **state) {
    (void)state;
    static const char *const archs[] = {"llama", "qwen3", "gemma3", "smollm3", "mistral3", "glm4"};
    for (size_t a = 0; a < ARRAY_LEN(archs); a++)
        for (int ubatch = 19; ubatch <= 140; ubatch += 121)
            check_full(&(BlendSetup){.model = {.arch = archs[a], .n_layers = a == 2 ? 0 : 4, .seed = 3},
                                     .ubatch = ubatch,
                                     .block = a % 2 ? 16 : 0},
                       archs[a]);
    for (int i = 0; isa_name(i); i++)
        check_full(&(BlendSetup){.model = {.n_layers = 4, .dim = 256, .ffn = 512, .type = TYPE_Q8_0, .seed = 3},
                                 .isa = isa_name(i),
                                 .type = TYPE_F16,
                                 .block = 16,
                                 .ubatch = 50},
                   isa_name(i));
}

// ---- what it costs --------------------------------------------------------------------------------------------------

// FLOPs of 5 tokens, which pass all layers, and of a chunk of 60 after them, which ends in the second.
static double check_flops(const Engine *e) {
    int slot[65], seq[65] = {0}, ended[65];
    for (int i = 0; i < 65; i++) slot[i] = i, ended[i] = i < 5 ? e->model.c.n_layers - 1 : 1;
    Batch b = {.n_rows = 65, .n_seqs = 1, .slot = slot, .seq = seq, .ended = ended};
    return costs_batch(&e->model, e->kv.pool, &b).flops;
}

static void test_rows_that_end_are_not_counted(void **state) {
    (void)state;
    for (int ubatch = 30; ubatch <= 140; ubatch += 110) {
        BlendRig r;
        BlendText t;
        BlendResult got[3];
        assert_true(blend_rig_open(&r, &(BlendSetup){.model = {.n_layers = 4, .seed = 3}, .ubatch = ubatch}));
        blend_text(&t, 5, (int[]){60}, 1, 0, 13, 7);
        blend_rig_add(&r, &t);
        blend_run(&r.e, t.tokens, t.n, NULL, &got[0]);
        blend_rig_run(&r, &t, "cacheblend,ratio=1", &got[1]);
        blend_rig_run(&r, &t, "cacheblend,ratio=0.1", &got[2]);
        double again = costs_rows(&r.e.model, &r.e.shape, 5, t.n - 5, 1).flops;
        assert_true(fabs(got[0].flops - costs_rows(&r.e.model, &r.e.shape, 0, t.n, 1).flops) < 1);
        assert_true(fabs(got[1].flops - check_flops(&r.e) - again) < 1);
        assert_true(got[2].flops < got[0].flops);
        free_results(got, 3);
        blend_rig_close(&r);
    }
}

// ---- no second computation ------------------------------------------------------------------------------------------

// The K and V of the chunks must be the stored ones, with keys rotated to their new positions.
static void check_kept_rows(BlendRig *r, const BlendText *t, const BlendResult *got) {
    const KvPool *kv = r->e.kv.pool;
    size_t k_row = (size_t)kv->n_kv_heads * kv_slot_bytes(kv->type_k, kv->head_dim), v_row = k_row;
    for (int i = 0; i < t->n_spans; i++) {
        BlendSpan s = t->spans[i];
        int alone[BLEND_CTX] = {1};
        BlendResult lone;
        memcpy(alone + 1, t->tokens + s.first, (size_t)s.n * sizeof(int));
        blend_run(&r->e, alone, s.n + 1, NULL, &lone);
        for (int l = 0; l < r->e.model.c.n_layers; l++) {
            uint8_t *rows = lone.rows + (size_t)l * lone.layer_bytes;
            const uint8_t *have = got->rows + (size_t)l * got->layer_bytes;
            kvturn_keys(kv, &r->e.model.layers[l].rope, s.first - 1, rows + k_row, (size_t)(s.n * kv->n_kv_heads));
            assert_memory_equal(have + (size_t)s.first * k_row, rows + k_row, (size_t)s.n * k_row);
            assert_memory_equal(have + (size_t)t->n * k_row + (size_t)s.first * v_row,
                                rows + (size_t)(s.n + 1) * k_row + v_row, (size_t)s.n * v_row);
        }
        free(lone.rows);
    }
}

static void test_reuse_takes_what_was_kept(void **state) {
    (void)state;
    for (int type = 0; type < 2; type++) {
        BlendRig r;
        BlendText t;
        BlendResult got[3];
        assert_true(blend_rig_open(&r, &(BlendSetup){.model = {.n_layers = 4, .seed = 3},
                                                     .type = type ? TYPE_F16 : TYPE_F32,
                                                     .block = 16,
                                                     .ubatch = 11}));
        blend_text(&t, 5, sizes, 3, 2, 13, 7);
        blend_rig_add(&r, &t);
        blend_rig_run(&r, &t, "reuse", &got[0]);
        blend_rig_run(&r, &t, "cacheblend,ratio=0", &got[1]);
        blend_rig_run(&r, &t, "epic,k=0", &got[2]);
        blend_assert_same(&got[1], &got[0], "ratio 0");
        blend_assert_same(&got[2], &got[0], "k 0");
        assert_int_equal(got[0].stats.n_again, 4); // those between the chunks
        check_kept_rows(&r, &t, &got[0]);
        free_results(got, 3);
        blend_rig_close(&r);
    }
}

// ---- a chunk that is the prefix -------------------------------------------------------------------------------------

static void test_a_chunk_that_is_the_prefix(void **state) {
    (void)state;
    static const char *const plans[] = {"reuse", "epic,k=4", "cacheblend,ratio=0.2", "cacheblend,ratio=0.5,k=3"};
    for (int i = 0; isa_name(i); i++) {
        BlendRig r;
        BlendText t;
        BlendResult full;
        if (!blend_rig_open(&r,
                            &(BlendSetup){.model = {.n_layers = 4, .seed = 5}, .isa = isa_name(i), .type = TYPE_F16}))
            continue;
        blend_text(&t, 1, (int[]){70}, 1, 0, 9, 2);
        blend_rig_add(&r, &t);
        blend_run(&r.e, t.tokens, t.n, NULL, &full);
        for (size_t p = 0; p < ARRAY_LEN(plans); p++) {
            BlendResult got;
            blend_rig_run(&r, &t, plans[p], &got);
            blend_assert_same(&got, &full, plans[p]);
            free(got.rows);
        }
        free(full.rows);
        blend_rig_close(&r);
    }
}

// The last token of a prompt is computed again for its logits, also where it belongs to a chunk.
static void test_a_chunk_at_the_end(void **state) {
    (void)state;
    BlendRig r;
    BlendText t;
    BlendResult got[4];
    assert_true(blend_rig_open(&r, &(BlendSetup){.model = {.n_layers = 4, .seed = 3}, .block = 16, .ubatch = 19}));
    blend_text(&t, 5, (int[]){31, 40}, 2, 2, 0, 7);
    blend_rig_add(&r, &t);
    blend_run(&r.e, t.tokens, t.n, NULL, &got[0]);
    blend_rig_run(&r, &t, "cacheblend,ratio=1", &got[1]);
    blend_rig_run(&r, &t, "epic,k=1000", &got[2]);
    for (int i = 1; i < 3; i++) blend_assert_same(&got[i], &got[0], "all tokens again");
    blend_rig_run(&r, &t, "reuse", &got[3]);
    assert_int_equal(got[3].stats.n_kept, 71);
    assert_int_equal(got[3].stats.n_again, 2 + 1); // those between the chunks, and the last one
    free_results(got, 4);
    blend_rig_close(&r);
}

// ---- distance from a prefill ----------------------------------------------------------------------------------------

// The relative L2 distance of K and V in a layer, F32.
static double layer_error(const BlendResult *a, const BlendResult *full, int layer) {
    const float *x = (const float *)(a->rows + (size_t)layer * a->layer_bytes);
    const float *y = (const float *)(full->rows + (size_t)layer * full->layer_bytes);
    double by = 0, all = 0;
    for (size_t i = 0; i < a->layer_bytes / sizeof(float); i++) {
        by += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        all += (double)y[i] * y[i];
    }
    return sqrt(by / all);
}

static void test_error_falls_with_the_ratio(void **state) {
    (void)state;
    static const char *const plans[] = {"reuse", "cacheblend,ratio=0.1", "cacheblend,ratio=0.3", "cacheblend,ratio=0.6",
                                        "cacheblend,ratio=1"};
    BlendRig r;
    BlendText t;
    BlendResult full, got[5];
    double error[5] = {0};
    assert_true(blend_rig_open(&r, &(BlendSetup){.model = {.n_layers = 6, .seed = 8}, .ubatch = 33}));
    blend_text(&t, 3, sizes, 3, 1, 11, 9);
    blend_rig_add(&r, &t);
    blend_run(&r.e, t.tokens, t.n, NULL, &full);
    for (int i = 0; i < 5; i++) {
        blend_rig_run(&r, &t, plans[i], &got[i]);
        for (int l = 2; l < 6; l++) error[i] += layer_error(&got[i], &full, l) / 4;
        for (int l = 0; l < 2 && i > 0; l++) // the first two layers must be those of a prefill
            assert_memory_equal(got[i].rows + (size_t)l * full.layer_bytes, full.rows + (size_t)l * full.layer_bytes,
                                full.layer_bytes);
        if (i > 0 && !(error[i] < error[i - 1]))
            fail_msg("%s: an error below %g expected, %g found", plans[i], error[i - 1], error[i]);
    }
    printf("relative K and V error: reuse %.3g, 0.1 %.3g, 0.3 %.3g, 0.6 %.3g, 1 %.3g\n", error[0], error[1], error[2],
           error[3], error[4]);
    assert_true(error[4] == 0);
    free_results(got, 5);
    free(full.rows);
    blend_rig_close(&r);
}

// The number of slots of a layer whose K or V differ.
static int n_other_slots(const BlendResult *a, const BlendResult *b, int layer, int n) {
    size_t slot = a->layer_bytes / (size_t)n / 2;
    int found = 0;
    for (int i = 0; i < n; i++) {
        size_t k = (size_t)layer * a->layer_bytes + (size_t)i * slot, v = k + (size_t)n * slot;
        found += memcmp(a->rows + k, b->rows + k, slot) != 0 || memcmp(a->rows + v, b->rows + v, slot) != 0;
    }
    return found;
}

// Of 80 tokens 45% pass the first layer after the check layer, then 28, 20 and 12 tokens the following ones. A layer
// stores K and V also of the tokens that end in it.
static void test_gradually_fewer(void **state) {
    (void)state;
    static const int fresh[] = {36, 36, 28, 20};
    for (int paged = 0; paged < 2; paged++) {
        BlendRig r;
        BlendText t;
        BlendResult full, reuse, got, even;
        double by[3] = {0};
        if (!blend_rig_open(&r,
                            &(BlendSetup){.model = {.n_layers = 6, .seed = 8}, .block = paged ? 16 : 0, .ubatch = 140}))
            continue;
        blend_text(&t, 3, sizes, 3, 0, 11, 9);
        blend_rig_add(&r, &t);
        blend_run(&r.e, t.tokens, t.n, NULL, &full);
        blend_rig_run(&r, &t, "reuse", &reuse);
        blend_rig_run(&r, &t, "cacheblend,ratio=0.3,gradual=0.5", &got);
        blend_rig_run(&r, &t, "cacheblend,ratio=0.15", &even);
        for (int l = 2; l < 6; l++) {
            int tail = n_other_slots(&got, &reuse, l, t.n) - fresh[l - 2];
            if (tail != 11)
                fail_msg("layer %d: 11 slots of the question besides the chunks' expected, %d found", l, tail);
            by[0] += layer_error(&reuse, &full, l), by[1] += layer_error(&even, &full, l);
            by[2] += layer_error(&got, &full, l);
        }
        if (!(by[2] < by[1] && by[1] < by[0]))
            fail_msg("errors that fall expected, %g %g %g found", by[0], by[1], by[2]);
        assert_int_equal(got.stats.n_again, 36);
        free(full.rows), free(reuse.rows), free(got.rows), free(even.rows);
        blend_rig_close(&r);
    }
}

// ---- rotated keys ---------------------------------------------------------------------------------------------------

// In the first layer, a key that is rotated to another position must equal the key that is computed there.
static void check_turn(const TinyModel *model, int type, double limit) {
    BlendRig r;
    assert_true(blend_rig_open(&r, &(BlendSetup){.model = *model, .type = type}));
    int tokens[100];
    BlendResult got;
    for (int i = 0; i < 100; i++) tokens[i] = 3 + i % 50;
    blend_run(&r.e, tokens, 100, NULL, &got);
    const KvPool *kv = r.e.kv.pool;
    const Layer *l = &r.e.model.layers[0]; // in files, layers with a window come last
    size_t size = kv_slot_bytes(type, kv->head_dim);
    size_t place = (size_t)(l->kv_layer + (l->kv_kind == KV_WINDOW ? kv->n_layers : 0));
    const uint8_t *rows = got.rows + place * got.layer_bytes;
    int n_heads = kv->n_kv_heads;
    uint8_t *first = malloc(50 * (size_t)n_heads * size);
    memcpy(first, rows, 50 * (size_t)n_heads * size);
    kvturn_keys(kv, &l->rope, 50, first, 50 * (size_t)n_heads);
    for (int i = 0; i < 50 * n_heads; i++) {
        float a[512], b[512];
        double by = 0, all = 0;
        kvturn_load(kv, first + (size_t)i * size, a);
        kvturn_load(kv, rows + (size_t)(50 * n_heads + i) * size, b);
        for (int k = 0; k < kv->head_dim; k++) by += (a[k] - b[k]) * (a[k] - b[k]), all += b[k] * b[k];
        if (!(sqrt(by / all) <= limit))
            fail_msg("%s %s: up to %g expected, %g found", model->arch, type_name(type), limit, sqrt(by / all));
    }
    free(first);
    free(got.rows);
    blend_rig_close(&r);
}

static void test_turned_keys(void **state) {
    (void)state;
    static const char *const archs[] = {"llama", "qwen3", "gemma3", "mistral3", "glm4"};
    for (size_t a = 0; a < ARRAY_LEN(archs); a++) {
        TinyModel model = {.arch = archs[a], .seed = 4};
        check_turn(&model, TYPE_F32, 2e-6);
        check_turn(&model, TYPE_F16, 1.0 / 1024);
        check_turn(&model, TYPE_BF16, 1.0 / 128);
    }
}

// ---- which tokens ---------------------------------------------------------------------------------------------------

static void test_chosen_tokens(void **state) {
    (void)state;
    uint64_t random = 5;
    for (int turn = 0; turn < 400; turn++) {
        int n = 1 + (int)(test_random(&random) % 90), first = (int)(test_random(&random) % (uint64_t)n), out[90];
        uint8_t kept[90];
        double deviation[90], ratio = (double)(test_random(&random) % 101) / 100;
        int n_kept = 0, n_missing = 0, taken = 0;
        for (int i = 0; i < n; i++) {
            kept[i] = test_random(&random) % 4 != 0;
            deviation[i] = (double)(test_random(&random) % 7); // many values are equal
            if (i >= first) kept[i] ? n_kept++ : n_missing++;
        }
        int got = plan_choose(ratio, kept, deviation, first, n, out), want = (int)floor(ratio * n_kept + 1e-9);
        assert_int_equal(got, want + n_missing);
        bool chosen[90] = {false};
        for (int i = 0; i < got; i++) {
            assert_true(out[i] >= first && out[i] < n && (i == 0 || out[i] > out[i - 1]));
            chosen[out[i]] = true;
            taken += kept[out[i]];
        }
        assert_int_equal(taken, want);
        for (int i = first; i < n; i++) assert_true(kept[i] || chosen[i]);
        for (int i = first; i < n; i++) // the remaining tokens must deviate less, or equally and come later
            for (int k = first; k < n; k++)
                if (kept[i] && kept[k] && chosen[i] && !chosen[k])
                    assert_true(deviation[i] > deviation[k] || (deviation[i] == deviation[k] && i < k));
    }
}

static void test_plans(void **state) {
    (void)state;
    BlendPlan p;
    assert_ok(plan_parse(NULL, &p));
    assert_true(p.mode == BLEND_CACHEBLEND && p.ratio == 0.15 && p.k == 0);
    assert_ok(plan_parse("cacheblend,k=8,ratio=.3", &p));
    assert_true(p.mode == BLEND_CACHEBLEND && p.ratio == 0.3 && p.k == 8);
    assert_ok(plan_parse("cacheblend,gradual=0.5,ratio=0.2", &p));
    assert_true(fabs(plan_share(&p, 0, 5) - 0.3) < 1e-12 && fabs(plan_share(&p, 4, 5) - 0.1) < 1e-12);
    assert_true(fabs(plan_share(&p, 2, 5) - 0.2) < 1e-12 && plan_share(&p, 0, 1) == 0.2);
    assert_ok(plan_parse("cacheblend,gradual=1,ratio=0.8", &p));
    assert_true(plan_share(&p, 0, 5) == 1 && fabs(plan_share(&p, 4, 5) - 0.6) < 1e-12);
    assert_ok(plan_parse("cacheblend,ratio=auto", &p));
    assert_true(p.by_loading && p.ratio == 0.15);
    assert_true(plan_ratio_by_loading(&p, 1e-3, 1) == 0.15 && plan_ratio_by_loading(&p, 1, 2) == 0.5);
    assert_true(plan_ratio_by_loading(&p, 3, 2) == 1 && plan_ratio_by_loading(&p, 3, 0) == 0.15);
    assert_ok(plan_parse("epic", &p));
    assert_true(p.mode == BLEND_EPIC && p.k == 16);
    static const char *const bad[] = {"",
                                      "epic,ratio=0.1",
                                      "reuse,k=1",
                                      "cacheblend,ratio=1.5",
                                      "cacheblend,ratio=",
                                      "cacheblend,k=-1",
                                      "cache",
                                      "cacheblend,gradual=2",
                                      "epic,gradual=0.5",
                                      "cacheblend,ratio=aut",
                                      "cacheblend,gradual=auto",
                                      "epic,k=auto",
                                      "epic,",
                                      "epic,k=1e3",
                                      "full,k=0",
                                      "epic,k=4,k=5",
                                      "reuse,",
                                      "cacheblend,ratio=0.1,",
                                      "cacheblend,ratio=0.1,ratio=auto",
                                      "epic,k=4.0",
                                      "epic,k=99999999999"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) assert_int_equal(plan_parse(bad[i], &p).code, QUILL_USAGE);
}

// ---- files ----------------------------------------------------------------------------------------------------------

static char *only_chunk(const char *dir, Buf *bytes, int *n) {
    char *found = NULL;
    DIR *d = opendir(dir);
    *n = 0;
    for (struct dirent *f; (f = readdir(d));) {
        size_t length = strlen(f->d_name);
        if (length < 6 || strcmp(f->d_name + length - 6, ".chunk") != 0) continue;
        Buf path = {0};
        buf_printf(&path, "%s/%s", dir, f->d_name);
        free(found);
        found = path.data;
        ++*n;
    }
    closedir(d);
    bytes->n = 0;
    if (found) assert_ok(file_read(found, bytes));
    return found;
}

static void test_files_stay_and_damage_shows(void **state) {
    (void)state;
    char dir[1024];
    snprintf(dir, sizeof dir, "%s", test_tmp("chunks"));
    remove_directory(dir);
    BlendRig r;
    BlendText t;
    BlendResult full, got;
    Buf before = {0}, after = {0};
    int n;
    assert_true(blend_rig_open(&r, &(BlendSetup){.model = {.n_layers = 4, .seed = 3}, .dir = dir}));
    blend_text(&t, 5, (int[]){60}, 1, 0, 13, 7);
    blend_run(&r.e, t.tokens, t.n, NULL, &full);
    blend_rig_add(&r, &t);
    char *path = only_chunk(dir, &before, &n);
    assert_int_equal(n, 1);
    blend_rig_run(&r, &t, "cacheblend,ratio=0.2", &got);
    assert_int_equal(got.stats.n_lost, 0);
    assert_int_equal(got.stats.n_again, 12);
    free(got.rows);
    free(only_chunk(dir, &after, &n));
    assert_int_equal(after.n, before.n);
    assert_memory_equal(after.data, before.data, before.n);
    for (size_t at = 3; at < before.n; at += before.n / 9) { // damages the header, tokens, and rows of several layers
        Buf bytes = {0};
        buf_append(&bytes, before.data, before.n);
        bytes.data[at] ^= 4;
        FILE *f = fopen(path, "w");
        assert_true(f && fwrite(bytes.data, 1, bytes.n, f) == bytes.n);
        fclose(f);
        buf_free(&bytes);
        blend_rig_run(&r, &t, at % 2 ? "cacheblend,ratio=0.2" : "reuse", &got);
        blend_assert_same(&got, &full, "a damaged chunk");
        assert_int_equal(got.stats.n_lost, 1);
        free(got.rows);
        free(only_chunk(dir, &after, &n));
        if (n != 0) fail_msg("byte %zu is damaged: the file removed expected, found", at);
    }
    assert_int_equal(truncate(path, 0), -1);
    FILE *f = fopen(path, "w"); // truncates the file
    assert_true(f && fwrite(before.data, 1, before.n / 2, f) == before.n / 2);
    fclose(f);
    blend_rig_run(&r, &t, "epic", &got);
    blend_assert_same(&got, &full, "a chunk that was cut");
    assert_int_equal(got.stats.n_lost, 1);
    free(got.rows);
    free(full.rows);
    free(path);
    buf_free(&before);
    buf_free(&after);
    blend_rig_close(&r);
    remove_directory(dir);
}

// ---- several in one step --------------------------------------------------------------------------------------------

static void test_several_at_once(void **state) {
    (void)state;
    static const char *const plans[] = {"cacheblend,ratio=0.2", "epic,k=5", "cacheblend,ratio=0.4,k=2"};
    BlendRig r;
    BlendText t[3];
    BlendResult alone[4], together[4];
    BlendContext contexts[3];
    Blend *b[3];
    Sequence q[4] = {0};
    Request requests[4];
    assert_true(blend_rig_open(&r, &(BlendSetup){.model = {.arch = "gemma3", .seed = 3}, .ubatch = 90, .block = 16}));
    for (int i = 0; i < 3; i++) {
        // two prompts share the tokens of their chunks
        blend_text(&t[i], 2 + i, sizes, 3, i, 4 + i, 7 + (uint64_t)(i / 2));
        blend_rig_add(&r, &t[i]);
        blend_rig_run(&r, &t[i], plans[i], &alone[i]);
    }
    blend_run(&r.e, t[2].tokens, 50, NULL, &alone[3]);
    for (int i = 0; i < 4; i++) {
        requests[i] = (Request){
            .seq = &q[i], .sampling = sampler_defaults(), .max_new = 1, .emit = blend_keep_logits, .arg = &together[i]};
        sequence_push(&q[i], t[i % 3].tokens, i < 3 ? t[i].n : 0);
        if (i == 3) sequence_push(&q[3], t[2].tokens, 50);
        if (i < 3) {
            contexts[i] = r.context;
            assert_ok(plan_parse(plans[i], &contexts[i].plan));
            b[i] = blend_new(&contexts[i], t[i].spans, 3, r.e.policy);
            requests[i].policy = blend_policy(b[i]);
        }
        scheduler_add(r.e.sched, &requests[i]);
    }
    engine_run(&r.e);
    for (int i = 0; i < 4; i++) {
        if (memcmp(together[i].logits, alone[i].logits, sizeof alone[i].logits) != 0) fail_msg("%d: other logits", i);
        sequence_end(&r.e.kv, &q[i]);
        timeline_free(&requests[i].time);
        if (i < 3) blend_free(b[i]);
    }
    free_results(alone, 4);
    blend_rig_close(&r);
}

// ---- the mask -------------------------------------------------------------------------------------------------------

// Every attention kernel, for few and for many rows, with windows, blocks and all dense types.
static void test_rows_with_gaps_see_nothing_behind(void **state) {
    (void)state;
    static const int types[] = {TYPE_F32, TYPE_F16, TYPE_BF16};
    static const char *const archs[] = {"llama", "gemma2"};
    for (int i = 0; isa_name(i); i++)
        for (int kind = 0; kind < 12;
             kind += isa_name(i)[0] == 's' ? 4 : 1) { // scalar code is slow and has only one kernel
            int type = types[kind % 3], weights = kind % 2 ? TYPE_Q8_0 : TYPE_F32;
            const char *arch = archs[kind / 6];
            Gguf *g = tiny_model(&(TinyModel){.arch = arch,
                                              .dim = 256,
                                              .ffn = 256,
                                              .head_dim = 64,
                                              .n_heads = 4,
                                              .n_layers = 2,
                                              .type = weights,
                                              .seed = 5});
            for (int order = 0; order < 2; order++) {
                Rig r;
                Setup u = {.isa = isa_name(i), .deterministic = order, .kv_type = type, .block = kind % 2 ? 16 : 0};
                if (!rig_open(&r, g, u)) continue;
                Buf what = {0};
                buf_printf(&what, "%s, %s, KV in %s, %s%s", isa_name(i), arch, type_name(type), type_name(weights),
                           order ? ", in order" : "");
                double limit = order ? 0 : weights == TYPE_Q8_0 || type == TYPE_BF16 ? 5e-2 : 5e-3;
                gaps_check(&r, GAPS_TOKENS, 7, limit, what.data);
                gaps_check(&r, GAPS_TOKENS, GAPS_TOKENS, limit, what.data);
                buf_free(&what);
                rig_close(&r);
            }
            gguf_close(g);
        }
}

// ---- refused input --------------------------------------------------------------------------------------------------

static void test_refused(void **state) {
    (void)state;
    BlendRig r;
    assert_true(blend_rig_open(&r, &(BlendSetup){.model = {.arch = "phi3", .seed = 3}}));
    Status st = blend_check(&r.e.model, r.e.kv.pool);
    assert_int_equal(st.code, QUILL_MODEL);
    assert_non_null(strstr(st.message, "phi3"));
    blend_rig_close(&r);
    assert_true(blend_rig_open(&r, &(BlendSetup){.model = {.seed = 3}, .type = TYPE_Q8_0, .block = 32}));
    assert_int_equal(blend_check(&r.e.model, r.e.kv.pool).code, QUILL_USAGE);
    blend_rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ratio_one_is_a_prefill),
        cmocka_unit_test(test_rows_that_end_are_not_counted),
        cmocka_unit_test(test_reuse_takes_what_was_kept),
        cmocka_unit_test(test_a_chunk_that_is_the_prefix),
        cmocka_unit_test(test_a_chunk_at_the_end),
        cmocka_unit_test(test_error_falls_with_the_ratio),
        cmocka_unit_test(test_gradually_fewer),
        cmocka_unit_test(test_turned_keys),
        cmocka_unit_test(test_chosen_tokens),
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_files_stay_and_damage_shows),
        cmocka_unit_test(test_several_at_once),
        cmocka_unit_test(test_rows_with_gaps_see_nothing_behind),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
