// test_kvquality.c: what quantised KV changes in what the built-in model says: the distance of its distributions from
// those over a cache in f32, bounded.
#include "testing.h"

#include <math.h>

#include "../builtin.h"
#include "../tokenizer.h"
#include "model_rig.h"

enum { MOST_TOKENS = 600 };

static const char text[] =
    "<|endoftext|>Once upon a time there was a girl called Anna. She lived in a small house by the river with her "
    "grandfather. "
    "One morning she went to the mill and put the blue cup there. A snail crossed the path little by little, and a "
    "thrush tried out a new song. \"Shall we rest a little?\" said the miller. Anna laughed out loud. She thought of a "
    "story from long ago and told it to him. Then she walked home, past the station and the harbour, where a boy "
    "called Tom was painting a boat. Tom had a green lamp and a yellow book. He gave the book to Anna, because she "
    "loved stories best of all. In the evening the wind came and went in the tall grass, and her grandfather asked "
    "where the blue cup was. \"It is at the mill,\" said Anna. \"I will go there tomorrow.\" The next day was showery. "
    "She found the cup on the windowsill, washed it and brought it home. Tom came to visit them with his lamp, and "
    "they drank tea and read the yellow book until the lamp burned low. The rooks crossed the sky in a line while the "
    "chestnut trees swayed. Everybody was glad that nothing had been lost.";

typedef struct {
    Gguf *gguf;
    Tokenizer *tok;
    int tokens[MOST_TOKENS], n, n_vocab;
    float *exact; // (n, n_vocab) over a cache in f32
    Rig rig;
} Text;

static void open_cache(Text *t, int type_k, int type_v, bool rotate) {
    const Config *c = &t->rig.m.c;
    KvShape shape = {.n_layers = c->n_layers,
                     .n_kv_heads = c->n_kv_heads,
                     .head_dim = c->head_dim,
                     .type_k = type_k,
                     .type_v = type_v,
                     .n_ctx = MOST_TOKENS,
                     .n_seqs = 1,
                     .rotate = rotate};
    assert_ok(kv_new(&t->rig.kv, &shape));
}

// In steps of 64 tokens, so that most of what a row reads has been sealed before.
static float *logits_over(Text *t, int type_k, int type_v, bool rotate) {
    float *all = mem_alloc((size_t)t->n * (size_t)t->n_vocab * sizeof *all);
    Sequence s = {0};
    open_cache(t, type_k, type_v, rotate);
    sequence_push(&s, t->tokens, t->n);
    while (s.n_cached < t->n) {
        float *at = all + (size_t)s.n_cached * (size_t)t->n_vocab;
        step(&t->rig, &(Part){&s, int_min(64, t->n - s.n_cached), at}, 1);
    }
    kv_release(&t->rig.kv, &s);
    sequence_free(&s);
    kv_free(&t->rig.kv);
    return all;
}

static int open_text(void **state) {
    static Text t;
    const Backend *be;
    *state = NULL;
    if (!builtin_there()) return 0;
    assert_ok(builtin_open(&t.gguf));
    assert_ok(tokenizer_load(t.gguf, &t.tok));
    assert_ok(cpu_backend("portable", &be)); // activations in f32: nothing but the cache rounds
    assert_ok(model_load(&t.rig.m, t.gguf, be));
    t.rig.pool = threads_new(1);
    assert_ok(workspace_new(&t.rig.w, &t.rig.m, t.rig.pool, 64, 64, MOST_TOKENS));
    t.n_vocab = t.rig.m.c.n_vocab;
    uint8_t *trusted = mem_alloc(sizeof text);
    memset(trusted, 1, sizeof text);
    t.n = tokenizer_encode(t.tok, text, sizeof text - 1, trusted, t.tokens, MOST_TOKENS);
    free(trusted);
    assert_in_range(t.n, 200, MOST_TOKENS);
    t.exact = logits_over(&t, TYPE_F32, TYPE_F32, false);
    *state = &t;
    return 0;
}

static int close_text(void **state) {
    Text *t = *state;
    if (!t) return 0;
    free(t->exact);
    rig_close(&t->rig);
    tokenizer_free(t->tok);
    gguf_close(t->gguf);
    return 0;
}

static void log_softmax(const float *logits, int n, double *out) {
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) most = fmax(most, (double)logits[i]);
    for (int i = 0; i < n; i++) sum += exp((double)logits[i] - most);
    for (int i = 0; i < n; i++) out[i] = (double)logits[i] - most - log(sum);
}

// Mean over the rows of sum p log(p / q), in nats: p over f32, q over this cache.
static double divergence(Text *t, int type_k, int type_v, bool rotate) {
    float *got = logits_over(t, type_k, type_v, rotate);
    double *p = mem_alloc(2 * (size_t)t->n_vocab * sizeof *p), *q = p + t->n_vocab, sum = 0;
    for (size_t row = 0; row < (size_t)t->n; row++) {
        log_softmax(t->exact + row * (size_t)t->n_vocab, t->n_vocab, p);
        log_softmax(got + row * (size_t)t->n_vocab, t->n_vocab, q);
        for (int i = 0; i < t->n_vocab; i++) sum += exp(p[i]) * (p[i] - q[i]);
    }
    free(p);
    free(got);
    return sum / t->n;
}

static void test_distance_from_f32(void **state) {
    Text *t = *state;
    if (!t) {
        print_message("skipped: built with NO_MODEL=1\n");
        skip();
    }
    static const struct {
        const char *name;
        int type_k, type_v;
        bool rotate;
        double most; // nats a token
    } cases[] = {{"f32", TYPE_F32, TYPE_F32, false, 0},          {"f16", TYPE_F16, TYPE_F16, false, 2e-5},
                 {"bf16", TYPE_BF16, TYPE_BF16, false, 5e-4},    {"q8_0", TYPE_Q8_0, TYPE_Q8_0, false, 6e-4},
                 {"fp8", TYPE_FP8, TYPE_FP8, false, 4e-2},       {"q8_0, q4_0", TYPE_Q8_0, TYPE_Q4_0, false, 2e-2},
                 {"q4_0", TYPE_Q4_0, TYPE_Q4_0, false, 8e-2},    {"q4_0 turned", TYPE_Q4_0, TYPE_Q4_0, true, 8e-2},
                 {"kivi2", TYPE_KIVI2, TYPE_KIVI2, false, 4e-1}, {"kivi2 turned", TYPE_KIVI2, TYPE_KIVI2, true, 4e-1}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        double found = divergence(t, cases[i].type_k, cases[i].type_v, cases[i].rotate);
        print_message("%-12s %.2e nats a token\n", cases[i].name, found);
        if (!(found >= -1e-9 && found <= cases[i].most))
            fail_msg("%s: at most %.0e nats a token expected, %.2e found", cases[i].name, cases[i].most, found);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_distance_from_f32)};
    return cmocka_run_group_tests(tests, open_text, close_text);
}
