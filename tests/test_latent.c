// tests/test_latent.c: attention to compressed K and V in its two forms: prompts computed in the expanded form have the
// logits of rows computed one by one in the absorbed form. Older files of such models, and groups of their experts.
#include "tests/rig/testing.h"

#include "cpu/cpu.h"
#include "cpu/latent_expand.h"
#include "tests/rig/cpu_rig.h"
#include "tests/rig/plain_forward.h"
#include "tests/rig/tiny_model.h"

enum { VOCAB = 320, CONTEXT = 300, LAST_ROWS = 90 };

static const TinyModel shapes[] = {
    {.arch = "deepseek2", .head_dim = 32, .n_rot = 16, .kv_rank = 64, .dim = 96},
    {.arch = "deepseek2", .head_dim = 18, .n_rot = 8, .kv_rank = 20, .v_dim = 12, .q_rank = 27, .n_heads = 5},
    {.arch = "deepseek2", .head_dim = 26, .n_rot = 4, .kv_rank = 52, .v_dim = 27, .rope = "yarn", .ctx_orig = 40},
};

// Whether the rows of slots [first, first + n) use the expanded form in the model's layers.
static bool expands(const Rig *r, int first, int n) {
    int slot[CONTEXT];
    for (int i = 0; i < n; i++) slot[i] = first + i;
    Batch b = {.n_rows = n, .slot = slot};
    return latent_expand_pays(&r->w, r->m.layers, r->kv.pool, &b, &(SequenceRows){.n = n, .slot = first});
}

static void check(const char *isa, const TinyModel *shape, int kv_type, int block, int chunk, double limit) {
    TinyModel m = *shape;
    m.seed = 11;
    m.n_experts = m.n_used = 3; // all are used, so that no rounding chooses others
    m.ctx = CONTEXT;
    Gguf *g = tiny_model(&m);
    Rig r;
    Setup setup = {.isa = isa, .kv_type = kv_type, .block = block, .n_ctx = CONTEXT, .threads = 2};
    if (rig_open(&r, g, setup)) {
        int tokens[CONTEXT];
        random_tokens(tokens, CONTEXT, VOCAB, 6);
        if (strcmp(isa, "scalar") != 0)
            assert_true(expands(&r, 0, chunk) && expands(&r, CONTEXT - chunk, chunk) && !expands(&r, CONTEXT - 1, 1));
        float *want = run_tokens(&r, tokens, CONTEXT, 1), *got = run_tokens(&r, tokens, CONTEXT, chunk);
        double d = test_distance(got, want, (size_t)CONTEXT * VOCAB);
        if (!(d < limit))
            fail_msg("%s, KV %s, blocks of %d, steps of %d rows, rank %d: distance %.3g", isa, type_name(kv_type),
                     block, chunk, m.kv_rank, d);
        free(want);
        free(got);
        rig_close(&r);
    }
    gguf_close(g);
}

// Steps of all rows, and of rows behind earlier slots, which are expanded in several pieces.
static void test_expanded_is_absorbed(void **state) {
    (void)state;
    for (int i = 0; i < isa_count(); i++)
        for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
            check(isa_name(i), &shapes[s], TYPE_F32, 0, CONTEXT, 1e-5);
            check(isa_name(i), &shapes[s], TYPE_F32, 16, 100, 1e-5);
            check(isa_name(i), &shapes[s], TYPE_F16, 32, 150, 1e-3); // a K may be rounded the other way
            check(isa_name(i), &shapes[s], TYPE_BF16, 0, 100, 1e-2);
        }
}

// Sequences of one step: two prompts, and rows that decode before, between and behind them.
static void test_forms_in_one_step(void **state) {
    (void)state;
    static const int first[] = {5, 0, 40, 60, 9}, rows[] = {1, 120, 2, LAST_ROWS, 1};
    enum { SEQS = ARRAY_LEN(first) };
    Gguf *g = tiny_model(&(TinyModel){.arch = "deepseek2", .head_dim = 32, .n_rot = 16, .kv_rank = 64, .ctx = CONTEXT});
    for (int i = 0; i < isa_count(); i++) {
        Rig r;
        if (!rig_open(&r, g, (Setup){.isa = isa_name(i), .block = 16, .n_ctx = CONTEXT, .threads = 2})) continue;
        if (strcmp(isa_name(i), "scalar") != 0)
            assert_true(expands(&r, first[1], rows[1]) && expands(&r, first[3], rows[3]) &&
                        !expands(&r, first[2], rows[2]));
        Sequence s[SEQS] = {0};
        RowsOfSequence parts[SEQS];
        float *want[SEQS];
        for (int k = 0; k < SEQS; k++) {
            int tokens[CONTEXT];
            random_tokens(tokens, first[k] + rows[k], VOCAB, 20 + (uint64_t)k);
            want[k] = run_tokens(&r, tokens, first[k] + rows[k], 1);
            sequence_push(&s[k], tokens, first[k] + rows[k]);
            parts[k] = (RowsOfSequence){&s[k], rows[k], malloc((size_t)rows[k] * VOCAB * sizeof(float))};
            for (int n = first[k]; n > 0; n--) step(&r, &(RowsOfSequence){&s[k], 1, NULL}, 1);
        }
        step(&r, parts, SEQS);
        for (int k = 0; k < SEQS; k++) {
            double d = test_distance(parts[k].logits, want[k] + (size_t)first[k] * VOCAB, (size_t)rows[k] * VOCAB);
            if (!(d < 1e-5)) fail_msg("%s: sequence %d: distance %.3g", isa_name(i), k, d);
            free(want[k]);
            free(parts[k].logits);
            sequence_end(&r.kv, &s[k]);
        }
        rig_close(&r);
    }
    gguf_close(g);
}

// With --deterministic, with sealed K and V, and with the scalar kernels, all rows use the absorbed form.
static void test_where_it_is_not_used(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.arch = "deepseek2", .head_dim = 32, .n_rot = 16, .kv_rank = 64, .ctx = CONTEXT});
    Setup setups[] = {{.n_ctx = CONTEXT, .isa = "portable", .deterministic = true},
                      {.n_ctx = CONTEXT, .kv_type = TYPE_Q8_0, .block = 32, .isa = "portable"},
                      {.n_ctx = CONTEXT}};
    for (size_t i = 0; i < ARRAY_LEN(setups); i++) {
        Rig r;
        assert_true(rig_open(&r, g, setups[i]));
        assert_false(expands(&r, 0, CONTEXT));
        rig_close(&r);
    }
    gguf_close(g);
}

// ---- older files ----------------------------------------------------------------------------------------------------

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

// The row of K_h that gives element d of head h: K_h is stored transposed.
static void put_k_row(const GgufTensor *k, size_t head, size_t d, float *row) {
    size_t plain = (size_t)k->dims[0], rank = (size_t)k->dims[1];
    for (size_t r = 0; r < rank; r++) row[r] = ((const float *)k->data)[(head * rank + r) * plain + d];
}

// The model as older programs converted it: K and V of a layer in one tensor, the sizes of heads under other names.
static Gguf *older(const Gguf *g, int type) {
    Gguf *out = gguf_new("older");
    for (int i = 0; i < gguf_n_values(g); i++) {
        const GgufValue *v = gguf_value_at(g, i);
        char key[96];
        snprintf(key, sizeof key, "%.*s", (int)v->key.n, v->key.data);
        if (strstr(key, "attention.key_length") || strstr(key, "attention.value_length")) continue;
        gguf_set(out, v);
    }
    uint32_t width, v_width;
    assert_ok(gguf_u32(g, "deepseek2.attention.key_length_mla", &width, true, 0));
    assert_ok(gguf_u32(g, "deepseek2.attention.value_length_mla", &v_width, true, 0));
    gguf_set_u32(out, "deepseek2.attention.key_length", width);
    gguf_set_u32(out, "deepseek2.attention.value_length", v_width);
    for (int i = 0, layer = 0; i < gguf_n_tensors(g); i++) {
        const GgufTensor *t = gguf_tensor_at(g, i);
        char name[96];
        snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.data);
        if (ends_with(name, "attn_v_b.weight")) continue;
        if (!ends_with(name, "attn_k_b.weight")) {
            gguf_add_like(out, t, t->type);
            tiny_tensor(out, name)->data = t->data;
            continue;
        }
        size_t plain = (size_t)t->dims[0], rank = (size_t)t->dims[1], n_heads = (size_t)t->dims[2],
               rows = plain + v_width;
        snprintf(name, sizeof name, "blk.%d.attn_v_b.weight", layer);
        const float *v = gguf_tensor(g, name)->data;
        float *all = gguf_alloc(out, n_heads * rows * rank * sizeof *all);
        for (size_t head = 0; head < n_heads; head++) {
            for (size_t d = 0; d < plain; d++) put_k_row(t, head, d, all + (head * rows + d) * rank);
            memcpy(all + (head * rows + plain) * rank, v + head * v_width * rank, v_width * rank * sizeof *all);
        }
        half_bits *halves = gguf_alloc(out, n_heads * rows * rank * sizeof *halves);
        for (size_t k = 0; k < n_heads * rows * rank; k++) halves[k] = float_half(all[k]);
        snprintf(name, sizeof name, "blk.%d.attn_kv_b.weight", layer++);
        gguf_add_tensor(out, name, type, rank, n_heads * rows, type == TYPE_F32 ? (void *)all : halves, NULL, 0);
    }
    return out;
}

static void test_older_files(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        TinyModel shape = shapes[i];
        shape.seed = 5;
        shape.n_experts = shape.n_used = 3; // all are used, so that no rounding chooses others
        Gguf *g = tiny_model(&shape), *files[] = {g, older(g, TYPE_F32), older(g, TYPE_F16)};
        float *logits[ARRAY_LEN(files)];
        int tokens[60];
        random_tokens(tokens, 60, VOCAB, 6);
        for (size_t k = 0; k < ARRAY_LEN(files); k++) {
            Rig r;
            assert_true(rig_open(&r, files[k], (Setup){.isa = "scalar", .block = 16}));
            logits[k] = run_tokens(&r, tokens, 60, 20);
            rig_close(&r);
        }
        assert_memory_equal(logits[0], logits[1], 60 * VOCAB * sizeof(float));
        double d = test_distance(logits[2], logits[0], 60 * VOCAB);
        if (!(d > 0 && d < 5e-3)) fail_msg("shape %zu in f16: distance %.3g", i, d);
        for (size_t k = 0; k < ARRAY_LEN(files); k++) free(logits[k]);
        for (size_t k = ARRAY_LEN(files); k-- > 0;) gguf_close(files[k]);
    }
}

// ---- groups of experts ----------------------------------------------------------------------------------------------

// DeepSeek-V2 chooses groups by their best expert, with a softmax over all experts.
static void test_groups_by_softmax(void **state) {
    (void)state;
    enum { N = 40 };
    for (int normed = 0; normed < 2; normed++) {
        Gguf *g =
            tiny_model(&(TinyModel){.arch = "deepseek2", .n_experts = 12, .n_groups = 4, .softmax = true, .seed = 8});
        int tokens[N];
        gguf_set_bool(g, "deepseek2.expert_weights_norm", normed);
        random_tokens(tokens, N, VOCAB, 6);
        float *want = plain_forward(g, N_CTX, tokens, N);
        gguf_set_u32(g, "deepseek2.expert_group_count", 1);
        float *all = plain_forward(g, N_CTX, tokens, N);
        assert_true(test_distance(all, want, N * VOCAB) > 1e-2); // groups matter in this model
        gguf_set_u32(g, "deepseek2.expert_group_count", 4);
        for (int isa = 0; isa_name(isa); isa++) {
            Rig r;
            if (isa_is_of_integers(isa_name(isa))) continue;
            if (!rig_open(&r, g, (Setup){.isa = isa_name(isa), .block = 16})) continue;
            float *got = run_tokens(&r, tokens, N, 15);
            double d = test_distance(got, want, N * VOCAB);
            if (!(d < 1e-5)) fail_msg("%s: distance %.3g", isa_name(isa), d);
            free(got);
            rig_close(&r);
        }
        free(want);
        free(all);
        gguf_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_expanded_is_absorbed),
                                       cmocka_unit_test(test_forms_in_one_step),
                                       cmocka_unit_test(test_where_it_is_not_used), cmocka_unit_test(test_older_files),
                                       cmocka_unit_test(test_groups_by_softmax)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
