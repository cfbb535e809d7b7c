// tests/test_rounding.c: the logits of every instruction set may differ from the scalar ones only by the rounding of
// activations.
//
// The effect of rounding is computed: a scalar forward over rounded inputs (tests/rig/rounded.h). The distance of its
// logits from those of the plain scalar forward is called the cost of the rounding. On the mean of SEQUENCES random
// sequences no kernel may be further away than SLACK times this cost. Kernels that round nothing must be within
// EXACT_LIMIT. A single sequence varies by a tenth.
#include "tests/rig/testing.h"

#include "tests/rig/cpu_rig.h"
#include "tests/rig/rounded.h"
#include "tests/rig/tiny_model.h"

enum { SEQUENCES = 20, LENGTH = 20, TOKENS = SEQUENCES * LENGTH };
#define SLACK 1.05
#define EXACT_LIMIT 1e-5

// ---- ways to compute the sequences, and their rounding --------------------------------------------------------------

// A step computes `rows` tokens of each of `together` sequences.
typedef struct {
    const char *name;
    int rows, together;
    bool deterministic;
} Way;

static const Way at_once = {.rows = LENGTH, .together = SEQUENCES};
static const Way ways[] = {
    {"short prompt", LENGTH, 1, false},      {"many rows", LENGTH, SEQUENCES, false}, {"single steps", 1, 1, false},
    {"steps together", 1, SEQUENCES, false}, {"--deterministic", LENGTH, 1, true},
};

// The rounding of products with this type of weights, by the rules of cpu/matmul.c: the matrix unit multiplies bf16, or
// int8 if a few sequences decode together; few rows are multiplied in int8, and all rows with --deterministic.
static Rounding rounding_of(const CpuKernels *k, int type, const Way *way) {
    enum { FEW_ROWS = 32 };
    int n_rows = way->rows * way->together;
    const MatrixKernel *many = k->bf16_panels ? k->bf16_panels(type) : NULL,
                       *few = k->int8_rows ? k->int8_rows(type) : NULL;
    if (k->int8_panels && k->int8_panels(type) && !k->in_order && n_rows >= k->int8_panels(type)->min_rows) return INT8;
    if (k->bf16_lanes && k->bf16_lanes(type) && !k->in_order && n_rows >= k->bf16_lanes(type)->min_rows) return BF16;
    const MatrixKernel *tiles = way->rows == 1 && k->int8_tiles ? k->int8_tiles(type) : NULL;
    bool bytes = tiles && n_rows <= tiles->most_rows;
    if (many && (k->in_order || (n_rows >= many->min_rows && !bytes))) return BF16;
    return few && (k->in_order || n_rows <= FEW_ROWS) ? INT8 : EXACT;
}

// Logits (SEQUENCES, LENGTH, n_vocab) of all sequences; the caller frees them.
static float *compute(const Gguf *g, const Backend *be, const Way *way, const int *tokens) {
    Rig r;
    assert_true(rig_open(&r, g, (Setup){.be = be, .block = 16, .n_ctx = TOKENS, .n_seqs = SEQUENCES}));
    size_t n_vocab = (size_t)r.m.c.n_vocab;
    float *logits = mem_alloc(TOKENS * n_vocab * sizeof *logits);
    Sequence s[SEQUENCES] = {{0}};
    for (int first = 0; first < SEQUENCES; first += way->together) {
        for (int i = first; i < first + way->together; i++) sequence_push(&s[i], tokens + i * LENGTH, LENGTH);
        for (int at = 0; at < LENGTH; at += way->rows) {
            RowsOfSequence parts[SEQUENCES];
            for (int i = first; i < first + way->together; i++)
                parts[i - first] = (RowsOfSequence){&s[i], way->rows, logits + (size_t)(i * LENGTH + at) * n_vocab};
            step(&r, parts, way->together);
        }
        for (int i = first; i < first + way->together; i++) sequence_end(&r.kv, &s[i]);
    }
    rig_close(&r);
    return logits;
}

static double mean_distance(const float *got, const float *want, size_t n_vocab) {
    double sum = 0;
    for (size_t i = 0; i < SEQUENCES; i++)
        sum += test_distance(got + i * LENGTH * n_vocab, want + i * LENGTH * n_vocab, LENGTH * n_vocab);
    return sum / SEQUENCES;
}

// ---- the comparison -------------------------------------------------------------------------------------------------

typedef struct {
    const Gguf *g;
    const char *name;
    int tokens[TOKENS];
    size_t n_vocab;
    float *want;            // the plain scalar logits
    double cost[ROUNDINGS]; // the cost of each rounding
} RoundingCase;

static void case_open(RoundingCase *c) {
    random_tokens(c->tokens, TOKENS, (int)c->n_vocab, 11);
    c->want = compute(c->g, rounded_backend(EXACT), &at_once, c->tokens);
    c->cost[EXACT] = EXACT_LIMIT / SLACK;
    for (Rounding r = INT8; r < ROUNDINGS; r++) {
        float *near = compute(c->g, rounded_backend(r), &at_once, c->tokens);
        c->cost[r] = mean_distance(near, c->want, c->n_vocab);
        free(near);
    }
    print_message("%-16s int8 alone %.2e, bf16 alone %.2e;", c->name, c->cost[INT8], c->cost[BF16]);
}

// The costliest rounding of the products of a way: the matrices of a file may have several types.
static Rounding costliest(const RoundingCase *c, const CpuKernels *k, const Way *way) {
    static const char *const matrices[] = {"blk.0.attn_q.weight",      "blk.0.attn_k.weight",   "blk.0.attn_v.weight",
                                           "blk.0.attn_output.weight", "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight",
                                           "blk.0.ffn_down.weight",    "output.weight",         "token_embd.weight"};
    Rounding most = EXACT;
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(matrices); i++) {
        const GgufTensor *t = gguf_tensor(c->g, matrices[i]);
        if (!t || (i + 1 == ARRAY_LEN(matrices) && gguf_tensor(c->g, "output.weight"))) continue; // only looked up
        Rounding r = rounding_of(k, t->type, way);
        if (c->cost[r] > c->cost[most]) most = r;
        n++;
    }
    assert_true(n > 0);
    return most;
}

// Prints the largest ratio to the cost for each instruction set; returns the number of ways that are too far away.
static int compare(RoundingCase *c) {
    int n_far = 0;
    for (int isa = 1; isa_name(isa); isa++) { // all but the reference
        double worst[ROUNDINGS] = {0};
        for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
            const Backend *be;
            assert_ok(isa_backend(isa_name(isa), ways[w].deterministic, &be));
            Rounding rounding = costliest(c, be->impl, &ways[w]);
            float *got = compute(c->g, be, &ways[w], c->tokens);
            double ratio = mean_distance(got, c->want, c->n_vocab) / c->cost[rounding];
            worst[rounding] = fmax(worst[rounding], isnan(ratio) ? INFINITY : ratio);
            if (!(ratio <= SLACK)) print_message(" TOO FAR: %s, %s", isa_name(isa), ways[w].name);
            n_far += !(ratio <= SLACK);
            free(got);
        }
        print_message("  %s", isa_name(isa));
        if (worst[INT8] > 0) print_message(" %.3f", worst[INT8]);
        if (worst[BF16] > 0) print_message(" bf16 %.3f", worst[BF16]);
        if (worst[EXACT] > 0) print_message(" %.1e", worst[EXACT] * c->cost[EXACT]);
    }
    print_message("\n");
    free(c->want);
    return n_far;
}

static int compare_file(const Gguf *g, const char *name) {
    RoundingCase c = {.g = g, .name = name, .n_vocab = (size_t)gguf_tensor(g, "token_embd.weight")->dims[1]};
    case_open(&c);
    return compare(&c);
}

static void test_random_models(void **state) {
    (void)state;
    static const char *const archs[] = {"llama", "qwen2", "qwen3"};
    int n_far = 0;
    for (size_t t = 0; t < TINY_TYPES; t++) {
        Gguf *g = tiny_model(&(TinyModel){.arch = archs[t % 3],
                                          .type = tiny_types[t],
                                          .dim = 256,
                                          .n_heads = 4,
                                          .n_kv_heads = 2,
                                          .ffn = 256,
                                          .seed = t});
        n_far += compare_file(g, type_name(tiny_types[t]));
        gguf_close(g);
    }
    assert_int_equal(n_far, 0);
}

// The files of quantised and 16-bit types, by their names in the list of llama.cpp's distances.
static void test_golden_models(void **state) {
    (void)state;
    Buf list = {0};
    int n_far = 0, n_files = 0;
    assert_ok(file_read(test_data("golden/llama_cpp_distance.txt"), &list));
    for (char *at = strstr(list.data, "quants/"); at; at = strstr(at, "quants/")) {
        char name[64], file[96];
        Gguf *g;
        assert_int_equal(sscanf(at, "%63s", name), 1);
        at += strlen(name);
        snprintf(file, sizeof file, "golden/%s", name);
        assert_ok(gguf_open(test_data(file), &g));
        n_far += compare_file(g, name);
        n_files++;
        gguf_close(g);
    }
    buf_free(&list);
    assert_true(n_files > 0);
    assert_int_equal(n_far, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_models),
        cmocka_unit_test(test_golden_models),
    };
    return cmocka_run_group_tests(tests, isa_print, NULL);
}
