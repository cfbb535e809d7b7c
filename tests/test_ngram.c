// tests/test_ngram.c: compares the index of n-grams with a search of all texts; tests the choice of the number of
// drafts.
#include "policy/draft_length.h"
#include "policy/ngram.h"
#include "tests/rig/testing.h"

// ---- the index ------------------------------------------------------------------------------------------------------

enum { TEXTS = 6, LONGEST_TEXT = 400, MOST = 16 };

typedef struct {
    int tokens[TEXTS][LONGEST_TEXT], n[TEXTS], number[TEXTS];
    Ngram *g;
} Library;

// The length of the longest match of a text's end that is followed by a token; at most NGRAM_LONGEST.
static int longest_by_search(const Library *l, int text) {
    int best = 0;
    const int *end = l->tokens[text] + l->n[text] - 1;
    for (int other = 0; other < TEXTS; other++)
        for (int at = 0; at + 1 < l->n[other]; at++) {
            int n = 0;
            while (n < NGRAM_LONGEST && n <= at && n < l->n[text] && l->tokens[other][at - n] == end[-n]) n++;
            if (n > best) best = n;
        }
    return best;
}

// Whether the last `length` tokens of the text, followed by the draft, occur in the texts.
static bool follows(const Library *l, int text, const int *draft, NgramMatch m) {
    for (int other = 0; other < TEXTS; other++)
        for (int at = m.length; at < l->n[other]; at++) {
            bool same =
                m.length == 0 || memcmp(l->tokens[other] + at - m.length, l->tokens[text] + l->n[text] - m.length,
                                        (size_t)m.length * sizeof(int)) == 0;
            for (int i = 0; same && i < m.n; i++) {
                if (at + i < l->n[other]) same = l->tokens[other][at + i] == draft[i];
                else same = other == text && draft[at + i - l->n[other]] == draft[i];
            }
            if (same) return true;
        }
    return false;
}

static void grow(Library *l, int text, const int *tokens, int n) {
    memcpy(l->tokens[text] + l->n[text], tokens, (size_t)n * sizeof *tokens);
    l->n[text] += n;
}

// Random texts over few tokens, with copies of parts of each other. Every draft must follow a match of the reported
// length, and a match of 8 or more tokens must never be missed.
static void test_as_by_search(void **state) {
    (void)state;
    uint64_t random = 3;
    for (int round = 0; round < 6; round++) {
        Library l = {.g = ngram_new()};
        int n_vocab = round % 2 ? 200 : 12, found = 0, long_ones = 0;
        for (int i = 0; i < TEXTS; i++) {
            int begin[3] = {(int)(test_random(&random) % 7), i, i + 1};
            grow(&l, i, begin, 3);
            l.number[i] = ngram_begin(l.g, l.tokens[i], 3);
        }
        for (int step = 0; step < 250; step++) {
            int text = (int)(test_random(&random) % TEXTS), from = (int)(test_random(&random) % TEXTS);
            int n = 1 + (int)(test_random(&random) % 12), had = l.n[text], piece[12], draft[MOST];
            if (had + n > LONGEST_TEXT) continue;
            int at = (int)(test_random(&random) % (uint64_t)l.n[from]);
            bool copies = test_random(&random) % 3 > 0 && at + n <= l.n[from];
            for (int i = 0; i < n; i++)
                piece[i] = copies ? l.tokens[from][at + i] : (int)(test_random(&random) % (uint64_t)n_vocab);
            grow(&l, text, piece, n);
            ngram_extend(l.g, l.number[text], piece, n);
            assert_int_equal(ngram_tokens(l.g, l.number[text]), l.n[text]);
            NgramMatch m = ngram_find(l.g, l.number[text], draft, MOST);
            int longest = longest_by_search(&l, text);
            assert_true(m.n <= MOST && m.length <= longest);
            if (m.n > 0) assert_true(follows(&l, text, draft, m));
            if (longest >= 8 && n_vocab == 200) assert_int_equal(m.length, longest);
            if (longest >= 2) assert_true(m.length >= 1);
            found += m.n > 0;
            long_ones += longest >= 8;
        }
        assert_true(found > 40 && (n_vocab == 12 || long_ones > 20));
        for (int i = 0; i < TEXTS; i++) ngram_end(l.g, l.number[i]);
        ngram_free(l.g);
    }
}

static void test_edit_is_followed(void **state) {
    (void)state;
    Ngram *g = ngram_new();
    int text[100], draft[MOST];
    for (int i = 0; i < 50; i++) text[i] = 1000 + i; // a text without repeats
    int number = ngram_begin(g, text, 50);
    ngram_extend(g, number, text + 10, 9); // a copy of a part
    NgramMatch m = ngram_find(g, number, draft, MOST);
    assert_true(m.length == 9 && m.n == MOST && draft[0] == 1019);
    ngram_extend(g, number, &(int){5}, 1); // another token in place of 1019: the copy may go on after it
    m = ngram_find(g, number, draft, MOST);
    assert_true(m.length == 0 && m.n == MOST && draft[0] == 1020);
    ngram_extend(g, number, &(int){6}, 1); // the guess 1020 was wrong: no draft
    assert_int_equal(ngram_find(g, number, draft, MOST).n, 0);
    ngram_extend(g, number, &(int){1023}, 1); // a match of only one token, but near the end of the copied part
    m = ngram_find(g, number, draft, 3);
    assert_true(m.length == 1 && m.n == 3 && draft[0] == 1024 && draft[2] == 1026);
    ngram_extend(g, number, &(int){7}, 1); // a second edit, after the copy was found again
    m = ngram_find(g, number, draft, 3);
    assert_true(m.length == 0 && m.n == 3 && draft[0] == 1025);
    ngram_free(g);
}

// After a changed token a text goes on with its copy, unless a match elsewhere is longer by two tokens or more.
static void test_the_copy_is_preferred(void **state) {
    (void)state;
    static const struct { int before, length, draft; } cases[] = {{77, 1, 1011}, {1008, 3, 888}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        Ngram *g = ngram_new();
        int copied[30], elsewhere[] = {cases[i].before, 5, 1010, 888}, draft[MOST];
        for (int k = 0; k < 30; k++) copied[k] = 1000 + k;
        ngram_begin(g, copied, 30);
        ngram_begin(g, elsewhere, 4);
        int text = ngram_begin(g, copied, 9);
        assert_int_equal(ngram_find(g, text, draft, MOST).length, 9);
        ngram_extend(g, text, (int[]){5, 1010}, 2); // after 1008
        NgramMatch m = ngram_find(g, text, draft, MOST);
        assert_int_equal(m.length, cases[i].length);
        assert_int_equal(draft[0], cases[i].draft);
        ngram_free(g);
    }
}

static void test_repeats_itself(void **state) {
    (void)state;
    Ngram *g = ngram_new();
    int text[] = {1, 2, 3, 1, 2, 3, 1, 2}, draft[MOST];
    int number = ngram_begin(g, text, 8);
    NgramMatch m = ngram_find(g, number, draft, 7);
    assert_true(m.n == 7 && m.length == 5);
    for (int i = 0; i < 7; i++) assert_int_equal(draft[i], (i + 2) % 3 + 1);
    ngram_free(g);
}

// The next turn of a chat extends the text of the turn before. Other texts can still be found. The oldest texts are
// removed when there are many.
static void test_texts_come_and_go(void **state) {
    (void)state;
    Ngram *g = ngram_new();
    int text[64], draft[MOST];
    for (int i = 0; i < 64; i++) text[i] = i;
    int first = ngram_begin(g, text, 40);
    ngram_end(g, first);
    int again = ngram_begin(g, text, 64);
    assert_int_equal(again, first);
    assert_int_equal(ngram_tokens(g, again), 64);
    int other = ngram_begin(g, text + 20, 10);
    assert_true(other != again);
    assert_int_equal(ngram_find(g, other, draft, MOST).length, 10);
    assert_int_equal(draft[0], 30);
    ngram_end(g, other);
    ngram_end(g, again);
    enum { PIECE = 4096 };
    int *piece = mem_alloc(PIECE * sizeof *piece), most = 0;
    uint64_t random = 1;
    for (int i = 0; i < 5 * (NGRAM_TOKENS / PIECE) / 4; i++) {
        for (int k = 0; k < PIECE; k++) piece[k] = (int)(test_random(&random) % 30000);
        int number = ngram_begin(g, piece, PIECE);
        most = int_max(most, number);
        ngram_end(g, number);
    }
    assert_true(most < NGRAM_TOKENS / PIECE + 4); // the numbers of removed texts are used again
    int seen = ngram_begin(g, piece + 100, 20);
    assert_int_equal(ngram_find(g, seen, draft, MOST).length, 20);
    int gone = ngram_begin(g, text, 30); // one of the first texts
    assert_int_equal(ngram_find(g, gone, draft, MOST).n, 0);
    free(piece);
    ngram_free(g);
}

static int random_text(Ngram *g, uint64_t *random, int n) {
    int *tokens = mem_alloc((size_t)n * sizeof *tokens);
    for (int i = 0; i < n; i++) tokens[i] = 1000 + (int)(test_random(random) % 30000);
    int number = ngram_begin(g, tokens, n);
    free(tokens);
    return number;
}

// A copy of a text that was removed has ended, also when another text has its number. A copy of another text goes on.
static void test_copies_of_removed_texts(void **state) {
    (void)state;
    Ngram *g = ngram_new();
    int text[2][40], copied[2], copy[2], draft[MOST], number = -1, last;
    uint64_t random = 3;
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 40; k++) text[i][k] = 100 * (i + 1) + k;
        copied[i] = ngram_begin(g, text[i], 40);
        copy[i] = ngram_begin(g, text[i], 9);
        assert_int_equal(ngram_find(g, copy[i], draft, MOST).length, 9);
    }
    ngram_end(g, copied[0]);
    do { // until the oldest texts are removed and a number is used again
        last = number;
        number = random_text(g, &random, 4096);
        ngram_end(g, number);
    } while (number > last);
    while (number != copied[0]) number = random_text(g, &random, 40);
    for (int i = 0; i < 2; i++) ngram_extend(g, copy[i], &(int){5 + i}, 1); // a changed token
    assert_int_equal(ngram_find(g, copy[0], draft, MOST).n, 0);
    NgramMatch m = ngram_find(g, copy[1], draft, MOST);
    assert_true(m.n > 0 && m.length == 0 && draft[0] == text[1][10]);
    ngram_free(g);
}

// Many short texts, as the jobs of a long batch: memory follows from the tokens of the texts, and has a bound.
static void test_many_short_texts(void **state) {
    (void)state;
    enum { BATCH = 300000, PROMPT = 9, ANSWER = 2, OPEN = 16 };
    Ngram *g = ngram_new();
    int open[OPEN], token[PROMPT], most = 0;
    uint64_t random = 5;
    for (int i = 0; i < BATCH; i++) {
        int *slot = &open[i % OPEN];
        if (i >= OPEN) ngram_end(g, *slot);
        for (int k = 0; k < PROMPT; k++) token[k] = (int)(test_random(&random) % 30000);
        *slot = ngram_begin(g, token, PROMPT);
        most = int_max(most, *slot);
        ngram_extend(g, *slot, token, ANSWER);
        if (i % 10000 != 9999) continue;
        size_t bytes = ngram_bytes(g);
        assert_true(bytes < (size_t)(i + 1) * (PROMPT + ANSWER + 4) * (28 + 48));
        assert_true(bytes < (size_t)NGRAM_TOKENS * 52);
    }
    assert_true(most < NGRAM_TOKENS / (PROMPT + ANSWER)); // the numbers of removed texts are used again
    ngram_free(g);
}

// A text that ended long ago is found, but not continued: a new prompt is compared with the latest texts only.
static void test_recent_texts_are_continued(void **state) {
    (void)state;
    Ngram *g = ngram_new();
    enum { N = 2 * NGRAM_RECENT, TURN = 12 };
    int text[N][2 * TURN], number[N], draft[MOST];
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < 2 * TURN; k++) text[i][k] = i * 2 * TURN + k;
        number[i] = ngram_begin(g, text[i], TURN);
        ngram_end(g, number[i]);
    }
    for (int i = N - 1; i > N - NGRAM_RECENT; i -= 9) { // each becomes the latest
        assert_int_equal(ngram_begin(g, text[i], TURN + 2), number[i]);
        ngram_end(g, number[i]);
    }
    int again = ngram_begin(g, text[3], TURN);
    assert_int_equal(again, N);
    ngram_end(g, again);
    assert_int_equal(ngram_begin(g, text[3], TURN + 1), N); // the copy, which ended last
    int other = ngram_begin(g, text[7] + 1, TURN - 3);
    assert_int_equal(ngram_find(g, other, draft, MOST).length, TURN - 3);
    assert_int_equal(draft[0], text[7][TURN - 2]);
    ngram_free(g);
}

// ---- lengths --------------------------------------------------------------------------------------------------------

static double rate_of(const StepCosts *c, const StepPlan *p, const double *chances, int k, double each) {
    double tokens = p->tokens, likely = 1;
    for (int i = 0; i < k; i++) tokens += likely *= chances[i];
    return tokens / (step_costs_at(c, p->rows + k) + p->extra + k * each);
}

// An ended text that is longer than a prompt does not continue it.
static void test_longer_text_is_not_continued(void **state) {
    (void)state;
    Ngram *g = ngram_new();
    const int tokens[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    ngram_end(g, ngram_begin(g, tokens, 10));
    assert_int_equal(ngram_tokens(g, ngram_begin(g, tokens, 5)), 5);
    ngram_free(g);
}

// No other length has more tokens per time, for any unit, chances and step.
static void test_best_length(void **state) {
    (void)state;
    static const char *const units[] = {"amx", "vnni", "maddubs", "none"};
    uint64_t random = 11;
    int n_none = 0, n_some = 0;
    for (int round = 0; round < 4000; round++) {
        StepCosts c = step_costs_of(units[round % 4], round % 3 ? 8.5 : 4.5, (WeightsPlace)(round / 4 % 3));
        double chances[DRAFT_MOST], level = 0.5 + 0.5 * (double)test_uniform(&random), gain;
        StepPlan p = {.rows = 1 + (double)(test_random(&random) % 40), .tokens = 1};
        p.tokens += (double)(test_random(&random) % (uint64_t)p.rows);
        double each = 0.1 * (double)(test_random(&random) % 3);
        int n = (int)(test_random(&random) % 20);
        for (int i = 0; i < n; i++) chances[i] = level;
        int k = draft_length(&c, &p, chances, n, each, &gain);
        assert_true(k >= 0 && k <= n && gain >= 1);
        double best = rate_of(&c, &p, chances, k, each);
        for (int i = 0; i <= n; i++) assert_true(rate_of(&c, &p, chances, i, each) <= best * (1 + 1e-12));
        assert_true(fabs(gain - best / rate_of(&c, &p, chances, 0, each)) < 1e-9);
        n_none += k == 0;
        n_some += k > 0;
    }
    assert_true(n_none > 400 && n_some > 400);
}

// The table that belongs to a matrix unit, to the bits of a weight and to the place of the weights, at two rows.
static void test_tables_of_costs(void **state) {
    (void)state;
    static const struct {
        const char *unit;
        double bits;
        WeightsPlace place;
        double two_rows;
    } cases[] = {{"vnni", 8.5, WEIGHTS_IN_MEMORY, 1.27},  {"vnni", 4.5, WEIGHTS_IN_MEMORY, 1.05},
                 {"vnni", 8.5, WEIGHTS_IN_CACHES, 1.52},  {"vnni", 8.5, WEIGHTS_ON_GPU, 1.02},
                 {"vnni", 6.56, WEIGHTS_IN_MEMORY, 1.05}, {"amx", 8.5, WEIGHTS_IN_MEMORY, 1.15},
                 {"amx", 4.5, WEIGHTS_IN_MEMORY, 1.3},    {"avx2", 4.5, WEIGHTS_IN_MEMORY, 1.23}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        StepCosts c = step_costs_of(cases[i].unit, cases[i].bits, cases[i].place);
        if (fabs(step_costs_at(&c, 2) - cases[i].two_rows) > 1e-12)
            fail_msg("%s, %g bits: %g expected, %g found", cases[i].unit, cases[i].bits, cases[i].two_rows,
                     step_costs_at(&c, 2));
    }
}

// Time that was spent on drafting already makes a step more worth while: here one more row costs as much as the first,
// and a draft that is certain to be accepted raises 1 token in 2 units of time to 2 tokens in 3.
static void test_time_already_spent(void **state) {
    (void)state;
    StepCosts rows;
    double gain, certain = 1;
    for (int i = 0; i < STEP_COSTS; i++) rows.at[i] = step_cost_rows[i];
    assert_int_equal(draft_length(&rows, &(StepPlan){.rows = 1, .tokens = 1, .extra = 1}, &certain, 1, 0, &gain), 1);
    assert_true(fabs(gain - 4.0 / 3) < 1e-12);
    assert_int_equal(draft_length(&rows, &(StepPlan){.rows = 1, .tokens = 1}, &certain, 1, 0, &gain), 0);
    assert_true(gain == 1);
}

static void test_costs_and_chances(void **state) {
    (void)state;
    StepCosts c = step_costs_of("vnni", 8.5, WEIGHTS_IN_MEMORY);
    for (int i = 0; i < STEP_COSTS; i++) assert_true(fabs(step_costs_at(&c, step_cost_rows[i]) - c.at[i]) < 1e-12);
    for (int rows = 1; rows < 600; rows++) assert_true(step_costs_at(&c, rows + 1) > step_costs_at(&c, rows));
    for (int i = 1; i <= NGRAM_LONGEST; i++) assert_true(chance_of_match(i) >= chance_of_match(i - 1));
    assert_int_equal(chance_of_match(NGRAM_LONGEST), NGRAM_CHANCES - 1);
    assert_int_equal(chance_of_p(1), MODEL_CHANCES - 1);
    assert_int_equal(chance_of_p(0), 0);
    Chance ngram[NGRAM_CHANCES], model[MODEL_CHANCES];
    chance_init(ngram, model);
    for (int i = 0; i < 2000; i++) chance_count(&ngram[3], i % 4 == 0);
    assert_true(fabs(chance_of(&ngram[3]) - 0.25) < 0.02);
    for (int i = 0; i < 300; i++) chance_count(&ngram[3], true); // the text has changed
    assert_true(chance_of(&ngram[3]) > 0.8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_by_search),
        cmocka_unit_test(test_edit_is_followed),
        cmocka_unit_test(test_the_copy_is_preferred),
        cmocka_unit_test(test_repeats_itself),
        cmocka_unit_test(test_texts_come_and_go),
        cmocka_unit_test(test_copies_of_removed_texts),
        cmocka_unit_test(test_many_short_texts),
        cmocka_unit_test(test_recent_texts_are_continued),
        cmocka_unit_test(test_longer_text_is_not_continued),
        cmocka_unit_test(test_best_length),
        cmocka_unit_test(test_tables_of_costs),
        cmocka_unit_test(test_time_already_spent),
        cmocka_unit_test(test_costs_and_chances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
