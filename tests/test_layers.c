// tests/test_layers.c: properties of layers: layers of several kinds in one model, rows that end in a layer, and a
// fingerprint that covers every field.
#include "tests/rig/testing.h"

#include "kv/fingerprint.h"
#include "tests/rig/cpu_rig.h"
#include "tests/rig/tiny_model.h"

#include <math.h>

enum { MOST_TOKENS = N_CTX, VOCAB = 320 };

// ---- one model, several kinds of layers -----------------------------------------------------------------------------

// Every type of weights and of KV, compared with the scalar kernels: soft caps, windows and GELU, with few rows and
// with many.
static void check_types(const char *arch, int type, int kv_type, double limit) {
    Gguf *g = tiny_model(
        &(TinyModel){.arch = arch, .dim = 256, .ffn = 512, .head_dim = 64, .n_heads = 4, .type = type, .seed = 4});
    int tokens[MOST_TOKENS];
    float *want[2] = {NULL, NULL};
    random_tokens(tokens, MOST_TOKENS, VOCAB, 6);
    for (int i = 0; isa_name(i); i++) {
        Rig r;
        if (!rig_open(&r, g, (Setup){.isa = isa_name(i), .kv_type = kv_type, .block = 32})) continue;
        for (int few = 0; few < 2; few++) {
            float *got = run_tokens(&r, tokens, MOST_TOKENS, few ? 3 : MOST_TOKENS);
            double d = want[few] ? test_distance(got, want[few], (size_t)MOST_TOKENS * VOCAB) : 0;
            if (!(d <= limit))
                fail_msg("%s %s, KV %s, %s, %s rows: distance %.3g", arch, type_name(type), type_name(kv_type),
                         isa_name(i), few ? "few" : "many", d);
            if (want[few]) free(got);
            else want[few] = got;
        }
        rig_close(&r);
    }
    free(want[0]);
    free(want[1]);
    gguf_close(g);
}

static void test_kinds_on_every_isa(void **state) {
    (void)state;
    static const char *const archs[] = {"gemma2", "gemma3", "phi3", "olmo2"};
    for (size_t a = 0; a < ARRAY_LEN(archs); a++) {
        check_types(archs[a], TYPE_F32, TYPE_F32, 1e-5);
        check_types(archs[a], TYPE_F32, TYPE_Q8_0,
                    5e-4); // a score that differs in its last bit may round the other way
        // activations of many rows are rounded to bf16, also those that later layers get
        check_types(archs[a], TYPE_BF16, TYPE_F16, 1.2e-2);
        check_types(archs[a], TYPE_Q8_0, TYPE_F16, 3e-2); // activations of few rows are rounded to int8
    }
}

// A layer whose mixer or feed-forward adds zeros must give the same bits as a layer without that part.
static void test_layers_without_parts(void **state) {
    (void)state;
    int tokens[MOST_TOKENS];
    float *got[2][2];
    random_tokens(tokens, MOST_TOKENS, VOCAB, 7);
    for (int part = 0; part < 2; part++) // part of layer 1: the mixer or the feed-forward
        for (int absent = 0; absent < 2; absent++) {
            Gguf *g = tiny_model(&(TinyModel){.n_layers = 3, .seed = 9});
            GgufTensor *t = tiny_tensor(g, part ? "blk.1.ffn_down.weight" : "blk.1.attn_output.weight");
            memset((void *)t->data, 0, t->n_bytes);
            Rig r;
            assert_true(rig_open(&r, g, (Setup){.isa = "scalar", .block = 16}));
            Layer *l = &r.m.layers[1];
            if (absent && part) l->kind.ffn = FFN_NONE;
            if (absent && !part) l->kind.mixer = MIXER_NONE, l->kv_kind = -1;
            got[part][absent] = run_tokens(&r, tokens, MOST_TOKENS, 30);
            rig_close(&r);
            gguf_close(g);
        }
    for (int part = 0; part < 2; part++) {
        assert_memory_equal(got[part][0], got[part][1], (size_t)MOST_TOKENS * VOCAB * sizeof(float));
        free(got[part][0]);
        free(got[part][1]);
    }
}

// ---- rows that end in a layer ---------------------------------------------------------------------------------------

enum { N_ROWS = 40 };

typedef struct {
    int n, rows[N_ROWS], n_asked;
} Chosen;

static int choose(void *arg, const Layer *l, const KvPool *kv, const Batch *b, int *rows) {
    Chosen *c = arg;
    (void)kv;
    assert_int_equal(b->n_rows, N_ROWS);
    assert_int_equal(l->index, 1);
    c->n_asked++;
    memcpy(rows, c->rows, (size_t)c->n * sizeof *rows);
    return c->n;
}

// If only some rows of a step pass the layers after a given one, these rows must have the same logits as in a step
// where all rows pass them. The cache holds the whole text.
static void check_narrowing(const char *arch, const char *isa) {
    Gguf *g = tiny_model(&(TinyModel){.arch = arch, .n_layers = 7, .seed = 5});
    Rig r;
    if (rig_open(&r, g, (Setup){.isa = isa, .deterministic = true, .block = 0})) {
        int tokens[N_ROWS], zeros[N_ROWS] = {0}, slots[N_ROWS], table[1];
        Sequence s = {0};
        Chosen chosen = {.n = 0};
        Narrow narrow = {.layer = 1, .choose = choose, .arg = &chosen};
        float all[N_ROWS * VOCAB];
        int out[N_ROWS], n_out = 0;
        uint64_t random = 8;
        random_tokens(tokens, N_ROWS, VOCAB, 6);
        for (int i = 0; i < N_ROWS; i++) {
            slots[i] = i;
            bool goes_on = i == N_ROWS - 1 || test_random(&random) % 3 == 0;
            if (goes_on) chosen.rows[chosen.n++] = i;
            if (goes_on && (i == N_ROWS - 1 || test_random(&random) % 2)) out[n_out++] = i;
        }
        sequence_push(&s, tokens, N_ROWS);
        step(&r, &(RowsOfSequence){&s, N_ROWS, all}, 1);
        Batch b = {.n_rows = N_ROWS,
                   .n_out = n_out,
                   .n_seqs = 1,
                   .max_blocks = 1,
                   .token = tokens,
                   .pos = slots,
                   .slot = slots,
                   .seq = zeros,
                   .out_row = out,
                   .block_table = s.blocks,
                   .window_table = table,
                   .narrow = &narrow};
        kvcache_table(&r.kv, &s, KV_WINDOW, table);
        const float *some = model_forward(&r.m, &r.w, r.kv.pool, &b);
        assert_int_equal(chosen.n_asked, 1);
        for (int i = 0; i < n_out; i++)
            assert_memory_equal(some + i * VOCAB, all + out[i] * VOCAB, VOCAB * sizeof(float));
        sequence_end(&r.kv, &s);
        rig_close(&r);
    }
    gguf_close(g);
}

static void test_any_layer_narrows(void **state) {
    (void)state;
    for (int i = 0; isa_name(i); i++) {
        check_narrowing("qwen3", isa_name(i));
        check_narrowing("gemma3", isa_name(i));
    }
}

// ---- the fingerprint ------------------------------------------------------------------------------------------------

static void flip_and_compare(const Rig *r, const KvHead *whole, uint32_t *word, const char *what, size_t i) {
    *word ^= 1;
    KvHead other = fingerprint(&r->m, r->kv.pool);
    *word ^= 1;
    if (other.model == whole->model && other.rope == whole->rope) fail_msg("%s: word %zu is not hashed", what, i);
}

// Every field of LayerKind and Heads must change the fingerprint, also fields that are added later.
static void test_every_word_is_hashed(void **state) {
    (void)state;
    Gguf *g = tiny_model(&(TinyModel){.arch = "gemma3", .seed = 5});
    Rig r;
    assert_true(rig_open(&r, g, (Setup){.isa = "scalar"}));
    KvHead whole = fingerprint(&r.m, r.kv.pool);
    for (int i = 0; i < r.m.c.n_layers; i++) {
        Layer *l = &r.m.layers[i];
        for (size_t k = 0; k < sizeof l->kind / 4; k++)
            flip_and_compare(&r, &whole, (uint32_t *)&l->kind + k, "kind", k);
        for (size_t k = 0; k < sizeof l->heads / 4; k++)
            flip_and_compare(&r, &whole, (uint32_t *)&l->heads + k, "heads", k);
        flip_and_compare(&r, &whole, (uint32_t *)&l->rope.table, "the layer's RoPE", 0);
    }
    for (int i = 0; i < r.m.ends.n_ropes; i++) {
        Rope *rope = &r.m.ends.ropes[i];
        int *words[] = {&rope->table, &rope->n_rot, &rope->adjacent, &rope->span, &rope->ahead};
        for (size_t k = 0; k < ARRAY_LEN(words); k++) flip_and_compare(&r, &whole, (uint32_t *)words[k], "RoPE", k);
        flip_and_compare(&r, &whole, (uint32_t *)&rope->mscale, "RoPE's magnitude", 0);
        flip_and_compare(&r, &whole, (uint32_t *)&rope->temperature, "the temperature of Q", 0);
    }
    flip_and_compare(&r, &whole, (uint32_t *)&r.m.ends.embd_scale, "the embedding's scale", 0);
    flip_and_compare(&r, &whole, (uint32_t *)&r.m.ends.embd_eps, "the embedding's norm", 0);
    rig_close(&r);
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds_on_every_isa),
        cmocka_unit_test(test_layers_without_parts),
        cmocka_unit_test(test_any_layer_narrows),
        cmocka_unit_test(test_every_word_is_hashed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
