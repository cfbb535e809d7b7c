// tests/test_grammar_latency.c: the time of a mask over a vocabulary of 150,000 tokens, along random answers of schemas
// and grammars; every answer must find a token at each step.
#include "tests/rig/testing.h"

#include "grammar/cache.h"

enum { N_ANSWERS = 12, N_TOKENS = 120 };

static const char recursive[] =
    "{\"$ref\":\"#/$defs/"
    "t\",\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"id\":{\"type\":"
    "\"string\",\"pattern\":\"^[a-z]{3}-[0-9]+$\"},\"note\":{\"type\":\"string\",\"maxLength\":40},\"kids\":{\"type\":"
    "\"array\",\"items\":"
    "{\"$ref\":\"#/$defs/t\"}}},\"required\":[\"name\",\"id\",\"note\",\"kids\"]}}}";
static const char gbnf[] =
    "root ::= expr\nexpr ::= term ([-+*] term)*\nterm ::= [0-9]+ | \"(\" expr \")\" | [a-z]+ \"(\" expr \")\"\n";

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct {
    double *seconds;
    int n;
} Times;

// Draws one answer under its masks and measures each mask at its first use.
static void answer(GrammarCache **cache, const Tokenizer *t, GrammarSource source, uint64_t *random, Times *times) {
    int n = tokenizer_n(t), tokens[N_TOKENS], at = 0;
    float *logits = mem_alloc((size_t)n * sizeof *logits), *out = mem_alloc((size_t)n * sizeof *out);
    Constraint *c;
    assert_int_equal(grammar_cache_get(cache, t, n, source, false, &c).code, 0);
    for (; at < N_TOKENS && !constraint_over(c, tokens, at); at++) {
        double start = clock_now();
        constraint_apply(c, tokens, at, -1, logits, n, out);
        times->seconds[times->n++] = clock_now() - start;
        int id = (int)(test_random(random) % (uint64_t)n), tries = 0;
        while (tries++ < n && out[id] != 0) id = (id + 1) % n;
        assert_true(out[id] == 0);
        if (tokenizer_is_eog(t, id)) break;
        tokens[at] = id;
    }
    grammar_cache_drop(*cache, c);
    free(logits);
    free(out);
}

static void measure(GrammarCache **cache, const Tokenizer *t, const char *name, GrammarSource source) {
    uint64_t random = 5;
    Times times = {.seconds = mem_alloc(N_ANSWERS * N_TOKENS * sizeof(double))};
    for (int i = 0; i < N_ANSWERS; i++) answer(cache, t, source, &random, &times);
    qsort(times.seconds, (size_t)times.n, sizeof *times.seconds, compare);
    double p50 = 1e6 * times.seconds[times.n / 2], p99 = 1e6 * times.seconds[times.n * 99 / 100];
    print_message("%s: %d masks applied to %d logits, p50 %.0f us, p99 %.0f us, most %.0f us\n", name, times.n,
                  tokenizer_n(t), p50, p99, 1e6 * times.seconds[times.n - 1]);
    free(times.seconds);
}

static void test_latency(void **state) {
    (void)state;
    Gguf *g;
    Tokenizer *t;
    assert_int_equal(gguf_open(test_data("tokenizers/ggml-vocab-qwen2.gguf"), &g).code, 0);
    assert_int_equal(tokenizer_load(g, &t).code, 0);
    GrammarCache *cache = NULL;
    double start = clock_now();
    Constraint *c;
    assert_int_equal(grammar_cache_get(&cache, t, tokenizer_n(t),
                                       (GrammarSource){.kind = GRAMMAR_CHOICE, .text = str_of("a")}, false, &c)
                         .code,
                     0);
    grammar_cache_drop(cache, c);
    print_message("the trees of %d tokens: %.1f ms, once a model\n", tokenizer_n(t), 1e3 * (clock_now() - start));
    measure(&cache, t, "recursive schema", (GrammarSource){.kind = GRAMMAR_SCHEMA, .text = str_of(recursive)});
    measure(&cache, t, "any JSON object",
            (GrammarSource){.kind = GRAMMAR_SCHEMA, .text = str_of("{\"type\":\"object\"}")});
    measure(&cache, t, "arithmetic", (GrammarSource){.kind = GRAMMAR_GBNF, .text = str_of(gbnf)});
    measure(&cache, t, "words", (GrammarSource){.kind = GRAMMAR_REGEX, .text = str_of("([a-z]{1,12} ){5,80}")});
    grammar_cache_free(cache);
    tokenizer_free(t);
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_latency)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
