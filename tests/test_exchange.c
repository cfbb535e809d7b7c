// tests/test_exchange.c: the file of a Hugging Face directory for other programs: rows of Q and K, the name of the
// patterns, and scores in place of merges.
#define _GNU_SOURCE
#include "tests/rig/testing.h"

#include "families.h"
#include "hf/hf.h"
#include "quantize/exchange.h"
#include "quantize/merge_scores.h"
#include "quantize/pre_name.h"
#include "tests/rig/hf_compare.h"
#include "tests/rig/hf_directory.h"
#include "tests/rig/tiny_model.h"

static bool differs(const FileExchange *e, const char *what) { return e->differs.n && strstr(e->differs.data, what); }

// The rig undoes GGUF's order of rows when it writes a directory; the exchange must give the same order again.
static void check_rows(const Gguf *want, const Gguf *found, const FileExchange *e) {
    int n_moved = 0;
    for (int i = 0; i < gguf_n_tensors(found); i++) {
        const GgufTensor *t = gguf_tensor_at(found, i), *w = NULL;
        if (!exchange_moves(e, t)) continue;
        for (int k = 0; k < gguf_n_tensors(want) && !w; k++)
            if (str_eq(gguf_tensor_at(want, k)->name, t->name)) w = gguf_tensor_at(want, k);
        assert_non_null(w);
        assert_int_equal(t->type, TYPE_F32);
        size_t n = t->n_dims == 1 ? (size_t)t->dims[0] : (size_t)t->dims[1], bytes = t->n_bytes / n;
        bool moved = false;
        for (size_t r = 0; r < n; r++) {
            size_t from = exchange_row(e, r);
            assert_memory_equal((const char *)w->data + r * bytes, (const char *)t->data + from * bytes, bytes);
            moved |= from != r;
        }
        assert_true(moved);
        n_moved++;
    }
    assert_true(n_moved > 0);
}

static void test_rows(void **state) {
    (void)state;
    for (int f = 0; families_at(f); f++) {
        const Family *family = families_at(f);
        if (!hf_directory_permutes(family->arch)) continue;
        TinyModel shape = {.arch = family->arch, .qkv_bias = strcmp(family->arch, "llama") == 0};
        Gguf *g = tiny_model(&shape), *view, *out = gguf_new("out");
        char *dir = hf_made_directory("exchange");
        FileExchange e;
        hf_directory_write(g, dir, &(HfDirectory){.no_tokenizer = true});
        assert_ok(hf_open(dir, &view));
        exchange_make(view, &e);
        check_rows(g, view, &e);
        assert_false(differs(&e, "rows of Q and K"));
        exchange_copy(&e, view, out);
        assert_null(gguf_value(out, "quill.rope.halves"));
        exchange_free(&e);
        gguf_close(out);
        gguf_close(view);
        gguf_close(g);
    }
}

// Other programs compute with the numbers of Scout and Maverick.
static void test_llama4(void **state) {
    (void)state;
    static const char *const notes[] = {"chunks of attention", "temperature of scores", "norms of Q and K"};
    for (int other = 0; other < 4; other++) { // 0: as they are
        Gguf *g = tiny_model(&(TinyModel){.arch = "llama4"});
        FileExchange e;
        gguf_set_u32(g, "llama4.attention.chunk_size", other == 1 ? 4096 : 8192);
        gguf_set_f32(g, "llama4.attention.temperature_scale", other == 2 ? 0 : 0.1f);
        gguf_set_u32(g, "llama4.attention.temperature_length", 8192);
        gguf_set_bool(g, "llama4.use_qk_norm", other != 3);
        exchange_make(g, &e);
        for (int k = 0; k < 3; k++) assert_int_equal(differs(&e, notes[k]), other == k + 1);
        exchange_free(&e);
        gguf_close(g);
    }
}

// A part of a head is rotated: the other rows stay. Fused rows of Q, K and V cannot move.
static void test_part_of_a_head(void **state) {
    (void)state;
    static const float rows[16];
    static const size_t order[] = {0, 2, 1, 3, 4, 5, 6, 7, 8, 10, 9, 11, 12, 13, 14, 15};
    for (int fused = 0; fused < 2; fused++) {
        Gguf *g = gguf_new("made"), *out = gguf_new("out");
        FileExchange e;
        gguf_set_str(g, "general.architecture", "llama");
        gguf_set_u32(g, "llama.attention.key_length", 8);
        gguf_set_u32(g, "llama.rope.dimension_count", 4);
        gguf_set_bool(g, "quill.rope.halves", true);
        gguf_add_tensor(g, fused ? "blk.0.attn_qkv.weight" : "blk.0.attn_q.weight", TYPE_F32, 1, 16, rows, NULL, 0);
        exchange_make(g, &e);
        assert_int_equal(differs(&e, "the order of rows of Q and K"), fused);
        assert_int_equal(exchange_moves(&e, gguf_tensor_at(g, 0)), !fused);
        for (size_t r = 0; r < ARRAY_LEN(order) && !fused; r++) assert_int_equal(exchange_row(&e, r), order[r]);
        exchange_copy(&e, g, out);
        assert_int_equal(gguf_value(out, "quill.rope.halves") != NULL, fused);
        exchange_free(&e);
        gguf_close(out);
        gguf_close(g);
    }
}

static void test_pre_name(void **state) {
    (void)state;
    static const char qwen[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
                               "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    static const char llama[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
                                "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    const Str two[] = {str_of("\\p{N}"), str_of(gpt2)};
    const Str q = str_of(qwen), l = str_of(llama), g = str_of(gpt2), other = str_of("[a-m]+|\\s+");
    bool exact;
    assert_string_equal(pre_name(&q, 1, false, &exact), "qwen2");
    assert_true(exact);
    assert_string_equal(pre_name(&l, 1, true, &exact), "llama-bpe");
    assert_string_equal(pre_name(&l, 1, false, &exact), "smaug-bpe");
    assert_string_equal(pre_name(&g, 1, false, &exact), "gpt-2");
    assert_string_equal(pre_name(two, 2, false, &exact), "starcoder");
    static const char tekken[] =
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    const Str t = str_of(tekken);
    assert_string_equal(pre_name(&t, 1, true, &exact), "tekken"); // its patterns know the case of ASCII letters alone
    assert_false(exact);
    assert_null(pre_name(&q, 1, true, &exact));
    assert_null(pre_name(&other, 1, false, &exact));
}

static void test_scores(void **state) {
    (void)state;
    const Str tokens[] = {str_of("a"), str_of("b"), str_of("ab"), str_of("aab"), str_of("aa")};
    const Str merges[] = {str_of("a b"), str_of("a ab"), str_of("a a"), str_of("aa b")};
    const Str good[] = {str_of("a a"), str_of("a b"), str_of("a ab"), str_of("aa b")};
    float scores[5];
    assert_false(merge_scores(tokens, NULL, 5, merges, 4, scores)); // those of aab are apart
    assert_false(merge_scores(tokens, NULL, 5, good, 3, scores));   // aa and b are neighbours without a merge
    assert_true(merge_scores(tokens, NULL, 5, good, 4, scores));
    const int32_t types[] = {1, 1, 1, GGUF_TOKEN_USER_DEFINED, 1};
    assert_true(merge_scores(tokens, types, 5, good, 2, scores)); // aab is cut out, and needs no merges
    assert_true(merge_scores(tokens, NULL, 5, good, 4, scores));
    assert_true(scores[4] > scores[2] && scores[2] > scores[3] && scores[3] > scores[0]);
}

// The reference directories get the standard keys; what they have of quill's own stays.
static void test_golden(void **state) {
    (void)state;
    static const char *const names[] = {"llama", "qwen3", "gemma3"};
    const char *folder = test_data("golden/hf");
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char dir[1200];
        Gguf *g, *out = gguf_new("out");
        FileExchange e;
        Str pre;
        snprintf(dir, sizeof dir, "%s/%s", folder, names[i]);
        assert_ok(hf_open(dir, &g));
        exchange_make(g, &e);
        exchange_copy(&e, g, out);
        assert_int_equal(e.n_rot > 0, i == 0);
        const GgufValue *tokens = gguf_value(out, "tokenizer.ggml.tokens");
        const GgufValue *scores = gguf_value(out, "tokenizer.ggml.scores");
        assert_int_equal(tokens->n, gguf_tensor(g, "token_embd.weight")->dims[1]);
        assert_int_equal(scores != NULL, i != 1);
        if (scores) assert_int_equal(scores->n, tokens->n);
        assert_ok(gguf_str(out, "tokenizer.ggml.pre", &pre, false));
        assert_int_equal(pre.data && str_is(pre, "qwen2"), i == 1);
        assert_int_equal(gguf_value(out, "quill.tokenizer.patterns") != NULL, i == 1);
        assert_non_null(gguf_value(out, "quill.tokenizer.by_merges"));
        exchange_free(&e);
        gguf_close(out);
        gguf_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),     cmocka_unit_test(test_part_of_a_head), cmocka_unit_test(test_llama4),
        cmocka_unit_test(test_pre_name), cmocka_unit_test(test_scores),         cmocka_unit_test(test_golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
