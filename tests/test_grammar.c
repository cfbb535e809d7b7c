// tests/test_grammar.c: compares the automaton of grammars with a matcher that tries every way, for random rules over
// four characters and all texts of up to five characters; compares masks with tokens that are tried one by one; tests
// examples of regular expressions and GBNF, and the line and column in errors.
#include "tests/rig/testing.h"

#include "grammar/gbnf.h"
#include "grammar/grammar.h"
#include "grammar/regex.h"

enum { LONGEST = 5, N_LETTERS = 4 };
static const char letters[] = "ab()";

// ---- the matcher: which ends a text has, as a set of bits -----------------------------------------------------------

static uint32_t ends_of(const Rules *r, int expr, const char *text, int n, uint32_t begins);
static long fuel; // number of steps that the matcher may still take; at 0 it gives up

static uint32_t repeat_ends(const Rules *r, const Expr *e, int kid, const char *text, int n, uint32_t begins) {
    uint32_t all = e->least == 0 ? begins : 0, now = begins, seen = 0;
    for (int i = 1; now && (e->most < 0 || i <= e->most); i++) {
        now = ends_of(r, kid, text, n, now);
        if (i < e->least) continue;
        if ((now & ~(all)) == 0 && (seen & now) == now) break;
        all |= now;
        seen |= now;
    }
    return all;
}

static uint32_t text_ends(const Rules *r, const Expr *e, const char *text, int n, uint32_t begins) {
    uint32_t out = 0;
    for (int at = 0; at + e->n <= n; at++)
        if (begins >> at & 1 && memcmp(text + at, r->bytes.data + e->at, (size_t)e->n) == 0) out |= 1u << (at + e->n);
    return out;
}

static uint32_t class_ends(const Rules *r, const Expr *e, const char *text, int n, uint32_t begins) {
    const CharRange *ranges = (const CharRange *)(const void *)(r->ranges.data + e->at);
    uint32_t out = 0;
    for (int at = 0; at < n; at++)
        for (int i = 0; begins >> at & 1 && i < e->n; i++)
            if (ranges[i].first <= (uint32_t)text[at] && (uint32_t)text[at] <= ranges[i].last) out |= 1u << (at + 1);
    return out;
}

// The ends that both rules reach from the same beginning.
static uint32_t both_ends(const Rules *r, const int *kids, const char *text, int n, uint32_t begins) {
    uint32_t out = 0;
    for (int at = 0; at <= n; at++)
        if (begins >> at & 1) out |= ends_of(r, kids[0], text, n, 1u << at) & ends_of(r, kids[1], text, n, 1u << at);
    return out;
}

static uint32_t ends_of(const Rules *r, int expr, const char *text, int n, uint32_t begins) {
    const Expr *e = &r->exprs[expr];
    const int *kids = (const int *)(const void *)r->kids.data + e->at / sizeof(int);
    uint32_t out = 0;
    if (!begins || --fuel < 0) return 0;
    switch (e->kind) {
    case EXPR_TEXT: return text_ends(r, e, text, n, begins);
    case EXPR_CLASS: return class_ends(r, e, text, n, begins);
    case EXPR_SEQ:
        for (int i = 0; i < e->n; i++) begins = ends_of(r, kids[i], text, n, begins);
        return begins;
    case EXPR_ALT:
        for (int i = 0; i < e->n; i++) out |= ends_of(r, kids[i], text, n, begins);
        return out;
    case EXPR_REPEAT: return repeat_ends(r, e, kids[0], text, n, begins);
    case EXPR_RULE: return ends_of(r, r->rules[e->n].expr, text, n, begins);
    default: return both_ends(r, kids, text, n, begins);
    }
}

// ---- random rules ---------------------------------------------------------------------------------------------------

static int pick(uint64_t *random, int n) { return (int)(test_random(random) % (uint64_t)n); }

static int random_text(Rules *r, uint64_t *random) {
    char text[2] = {letters[pick(random, N_LETTERS)], letters[pick(random, N_LETTERS)]};
    return rules_text(r, text, (size_t)(1 + pick(random, 2)));
}

static int random_expr(Rules *r, uint64_t *random, int depth, int n_rules) {
    int kids[3], n = 1 + pick(random, 3), kind = depth <= 0 ? pick(random, 2) : pick(random, n_rules ? 8 : 7);
    if (kind == 0) return random_text(r, random);
    if (kind == 1)
        return rules_class(r, (CharRange[]){{'a', (uint32_t)('a' + pick(random, 2))}, {'(', '('}}, n < 2 ? n : 2);
    if (kind == 7) return rules_call(r, pick(random, n_rules));
    if (kind == 6) return rules_both(r, random_expr(r, random, depth - 1, 0), random_expr(r, random, depth - 1, 0));
    if (kind == 5) {
        int least = pick(random, 3), most = pick(random, 2) ? -1 : least + pick(random, 7);
        return rules_repeat(r, random_expr(r, random, depth - 1, n_rules), least, most);
    }
    for (int i = 0; i < n; i++) kids[i] = random_expr(r, random, depth - 1, n_rules);
    return kind < 4 ? rules_seq(r, kids, n) : rules_alt(r, kids, n);
}

static void random_rules(Rules *r, uint64_t *random) {
    static const char *const names[] = {"root", "x", "y"};
    rules_start(r);
    for (int i = 0; i < 3; i++) rules_rule(r, str_of(names[i]));
    // Each rule has an alternative without calls, one with a call after a text, and sometimes a random one.
    for (int i = 0; i < 3; i++) {
        int call = rules_call(r, pick(random, 3)), end = random_expr(r, random, 1, 0);
        int inner[3] = {random_text(r, random), call, random_expr(r, random, 1, 3)};
        int ways[3] = {end, rules_seq(r, inner, 3), random_expr(r, random, 2, 3)};
        rules_define(r, i, rules_alt(r, ways, 2 + pick(random, 2)));
    }
}

// Reads a text; STATE_DEAD: no answer begins with it.
static int read_text(Automaton *a, const char *text, int n) {
    int state = automaton_start(a);
    for (int i = 0; i < n; i++) state = automaton_step(a, state, (uint8_t)text[i]);
    return state;
}

// The bytes that complete an answer soonest.
static int shortest(const Nfa *nfa, Automaton *a, int state, char *out, int most) {
    int n = 0;
    while (automaton_state(a, state)->distance > 0 && n < most) {
        int want = automaton_state(a, state)->distance - 1, found = STATE_DEAD;
        for (int c = 0; c < nfa->n_classes && found == STATE_DEAD; c++) {
            int to = automaton_step(a, state, nfa->byte_of[c]);
            if (to != STATE_DEAD && automaton_state(a, to)->distance == want)
                found = to, out[n] = (char)nfa->byte_of[c];
        }
        assert_int_not_equal(found, STATE_DEAD); // the stated distance must be reachable
        state = found;
        n++;
    }
    return n;
}

// Compares the automaton with the matcher on one text; returns whether an answer may begin with it.
static bool check_text(const Rules *r, const Nfa *nfa, Automaton *a, const char *text, int n) {
    int state = read_text(a, text, n);
    fuel = 2000;
    bool accepts = ends_of(r, r->rules[0].expr, text, n, 1) >> n & 1;
    if (fuel < 0) return false;
    if (state == STATE_DEAD) {
        if (accepts) fail_msg("\"%.*s\" is dead, and the matcher takes it", n, text);
        return false;
    }
    if (automaton_state(a, state)->accepts != accepts)
        fail_msg("\"%.*s\": the matcher says %d, the automaton does not", n, text, accepts);
    char whole[32];
    memcpy(whole, text, (size_t)n);
    int rest = shortest(nfa, a, state, whole + n, 31 - LONGEST), distance = automaton_state(a, state)->distance;
    if (distance > 31 - LONGEST) return true;
    assert_int_equal(rest, distance);
    fuel = 20000;
    if (!(ends_of(r, r->rules[0].expr, whole, n + rest, 1) >> (n + rest) & 1) && fuel >= 0)
        fail_msg("\"%.*s\" and then \"%.*s\": the matcher does not take it", n, text, rest, whole + n);
    return true;
}

static void check_texts(const Rules *r, const Nfa *nfa, Automaton *a, char *text, int n) {
    bool alive = check_text(r, nfa, a, text, n);
    for (int i = 0; i < N_LETTERS && n < (alive ? LONGEST : 2); i++) {
        text[n] = letters[i];
        check_texts(r, nfa, a, text, n + 1);
    }
}

static void test_random_rules(void **state) {
    (void)state;
    uint64_t random = 30;
    int compiled = 0, refused = 0, recursive = 0;
    for (int i = 0; i < 1500; i++) {
        Rules r;
        Nfa nfa;
        random_rules(&r, &random);
        Status st = nfa_build(&r, NULL, &nfa);
        if (!st.code) {
            Automaton *a = automaton_new(&nfa);
            char text[LONGEST + 1];
            check_texts(&r, &nfa, a, text, 0);
            automaton_free(a);
            compiled++;
            recursive += nfa.n_rules > 1;
        } else refused++;
        nfa_free(&nfa);
        rules_free(&r);
    }
    print_message("%d grammars, %d of them recursive, %d refused\n", compiled, recursive, refused);
    assert_true(compiled > 500 && refused > 50 && recursive > 100); // all kinds must have occurred
}

// ---- masks ----------------------------------------------------------------------------------------------------------

enum { N_TOKENS = 700 };

typedef struct {
    Str pieces[N_TOKENS];
    char bytes[N_TOKENS][8];
    Vocabulary *v;
} TokenSet;

// Makes a token of every byte, then random pieces of the alphabet and other characters, some of them twice. The last
// two tokens end an answer.
static void make_tokens(TokenSet *t, uint64_t *random) {
    static const char *const parts[] = {"a", "b", "(", ")", "\xc3\xa9", "\xc3", "\"", "\xe4\xb8\xad", "x"};
    for (int i = 0; i < N_TOKENS; i++) {
        size_t n = 0;
        if (i < 256) t->bytes[i][n++] = (char)i;
        else
            for (int k = pick(random, 5); k >= 0; k--) {
                const char *part = parts[pick(random, i % 2 ? 4 : 9)];
                if (n + strlen(part) > 8) break;
                memcpy(t->bytes[i] + n, part, strlen(part));
                n += strlen(part);
            }
        t->pieces[i] = (Str){t->bytes[i], i < N_TOKENS - 2 ? n : 0};
    }
    t->v = vocabulary_new(t->pieces, N_TOKENS, N_TOKENS + 20, (int[]){N_TOKENS - 2, N_TOKENS - 1}, 2);
}

// Compares a mask with all tokens, tried one by one. With `left`, the answer must also be completable within that many
// tokens.
static void check_mask(Grammar *g, const TokenSet *t, int state, const uint64_t *mask, int left) {
    for (int i = 0; i < N_TOKENS + 20; i++) {
        bool end = i == N_TOKENS - 2 || i == N_TOKENS - 1, want = end && grammar_accepts(g, state);
        int to = i < N_TOKENS - 2 ? grammar_step(g, state, t->pieces[i]) : STATE_DEAD;
        if (to != STATE_DEAD) want = grammar_distance(g, to) < left;
        if (mask_has(mask, i) != want) fail_msg("token %d: %d expected, %d found", i, want, !want);
    }
}

static void check_masks(const char *name, GrammarKind kind, const TokenSet *t, uint64_t *random) {
    Grammar *g;
    Status st = grammar_compile((GrammarSource){.kind = kind, .text = str_of(name)}, t->v, &g);
    if (st.code) fail_msg("%s: %s", name, st.message);
    int state = grammar_start(g);
    for (int i = 0; i < 60; i++) {
        check_mask(g, t, state, grammar_mask(g, state), NFA_FAR);
        int left = grammar_distance(g, state) + pick(random, 4);
        if (left > 0) check_mask(g, t, state, grammar_mask_within(g, state, left), left);
        const uint64_t *mask = grammar_mask(g, state);
        int id = pick(random, N_TOKENS - 2);
        while (!mask_has(mask, id) && !grammar_accepts(g, state)) id = (id + 1) % (N_TOKENS - 2);
        state = mask_has(mask, id) ? grammar_step(g, state, t->pieces[id]) : grammar_start(g);
    }
    grammar_free(g);
}

static void test_masks(void **state) {
    (void)state;
    static const char *const regexes[] = {
        "[ab]+",
        "[^\"\\\\\\x00-\\x1f\\x7f]*\"",
        "[^\"\\\\\\x00-\\x1f\\x7f]{0,7}\"",
        "(a|b\\(){2,5}x?",
        ".*",
        "a.{3}b",
        "[^b]*",
        "(é|中|a)+x",
        "\\(\\)|a{0,40}",
    };
    static const char *const grammars[] = {
        "root ::= \"(\" root* \")\" | [a-b]+ (\"x\" root)?",
        "root ::= item (\"x\" item){0,9}\nitem ::= \"a\" [^x]{0,2} | \"(\" root \")\"",
        "root ::= s+\ns ::= \"\\\"\" [^\"]* \"\\\"\" | \"(\" s \")\"",
    };
    uint64_t random = 7;
    TokenSet *t = mem_alloc(sizeof *t);
    make_tokens(t, &random);
    for (size_t i = 0; i < ARRAY_LEN(regexes); i++) check_masks(regexes[i], GRAMMAR_REGEX, t, &random);
    for (size_t i = 0; i < ARRAY_LEN(grammars); i++) check_masks(grammars[i], GRAMMAR_GBNF, t, &random);
    vocabulary_free(t->v);
    free(t);
}

// ---- examples -------------------------------------------------------------------------------------------------------

static bool takes(GrammarKind kind, const char *source, const char *text) {
    Rules r;
    Nfa nfa;
    rules_start(&r);
    Status st = kind == GRAMMAR_REGEX ? regex_parse_root(str_of(source), &r) : gbnf_parse(str_of(source), &r);
    if (!st.code) st = nfa_build(&r, NULL, &nfa);
    if (st.code) fail_msg("%s: %s", source, st.message);
    Automaton *a = automaton_new(&nfa);
    int end = read_text(a, text, (int)strlen(text));
    bool accepts = automaton_state(a, end)->accepts;
    automaton_free(a);
    nfa_free(&nfa);
    rules_free(&r);
    return accepts;
}

static void test_regex(void **state) {
    (void)state;
    static const struct {
        const char *regex, *yes, *no;
    } examples[] = {
        {"\\d{4}-\\d\\d", "2026-01", "2026-1"},
        {"[^a-z]+", "A1é", "Ab"},
        {"^(?:yes|no)$", "no", "nope"},
        {"(?<n>ab)+?c*?", "ababc", "ca"},
        {"[\\w.+-]+@\\S+", "a.b-c@d", "a b@c"},
        {".", "é", "\n"},
        {"\\x41\\u00e9\\u{1F600}", "Aé😀", "Aé"},
        {"\\ud83d\\ude00", "😀", "x"},
        {"[]a]", "]", "b"},
        {"[a-]{2}", "-a", "b-"},
        {"\\p{Lu}\\p{Ll}*", "Éa", "éa"},
        {"\\P{L}", "1", "a"},
        {"a{,2}b", "aab", "aaab"},
        {"|a", "", "b"},
        {"\\.\\*\\/\\-", ".*/-", "aaaa"},
        {"[\\b\\t]", "\b", "b"},
    };
    for (size_t i = 0; i < ARRAY_LEN(examples); i++) {
        if (!takes(GRAMMAR_REGEX, examples[i].regex, examples[i].yes)) fail_msg("%s", examples[i].regex);
        if (takes(GRAMMAR_REGEX, examples[i].regex, examples[i].no)) fail_msg("%s: not", examples[i].regex);
    }
}

static void test_gbnf(void **state) {
    (void)state;
    const char *g = "# a list\nroot ::= \"[\" ws\n  | list # or so\nlist ::= (\n  item (\",\" ws item)* # items\n)\n"
                    "item ::= [a-z] {2} | \"\\x41\\u00e9\" .\nws ::= [ \\t\\n]*\n";
    assert_true(takes(GRAMMAR_GBNF, g, "[ \n"));
    assert_true(takes(GRAMMAR_GBNF, g, "ab, \tcd,A\xc3\xa9z"));
    assert_false(takes(GRAMMAR_GBNF, g, "ab,c"));
    assert_true(takes(GRAMMAR_GBNF, "root ::= \"a\"{,2} \"b\"{1,}", "aabb"));
    assert_true(takes(GRAMMAR_GBNF, "root::=[^\\]\\-x]+[-a]", "ab-"));
}

static void test_errors(void **state) {
    (void)state;
    static const struct {
        GrammarKind kind;
        const char *source, *says;
    } bad[] = {
        {GRAMMAR_REGEX, "a(b", "column 4: ) expected, found the end"},
        {GRAMMAR_REGEX, "é)", "column 2: the end"},
        {GRAMMAR_REGEX, "*a", "column 1: something to repeat"},
        {GRAMMAR_REGEX, "[b-a]", "column 2: a range"},
        {GRAMMAR_REGEX, "a{2,1}", "a range that rises"},
        {GRAMMAR_REGEX, "a{9999999}", "a count of 100000 at most"},
        {GRAMMAR_REGEX, "(a)\\1", "column 5: no reference to a group"},
        {GRAMMAR_REGEX, "(?=a)", "look-around"},
        {GRAMMAR_REGEX, "\\bword", "\\b"},
        {GRAMMAR_REGEX, "a^", "column 2: ^ and $"},
        {GRAMMAR_REGEX, "[a", "column 3: ] expected, found the end"},
        {GRAMMAR_REGEX, "[^\\x00-\\u{10ffff}]", "no text matches"},
        {GRAMMAR_REGEX, "((((a{0,100000}){4}){4}){4}){4}", "steps when it is written out"},
        {GRAMMAR_GBNF, "", "line 1, column 1: a rule"},
        {GRAMMAR_GBNF, "root ::= x", "rule \"x\" expected, found none of that name"},
        {GRAMMAR_GBNF, "x ::= \"a\"", "rule \"root\" expected"},
        {GRAMMAR_GBNF, "root ::= root \"a\" | \"b\"", "rule \"root\" begins with itself (left recursion)"},
        {GRAMMAR_GBNF, "root ::= x? y\nx ::= \"a\"\ny ::= x* root \"b\" | \"c\"", "left recursion"},
        {GRAMMAR_GBNF, "root ::= \"a\" root", "no text matches"},
        {GRAMMAR_GBNF, "root ::= \"a\nb\"", "line 1, column 10: \" before the end of the line"},
        {GRAMMAR_GBNF, "root ::= \"a\"\n  x = 1", "line 2, column 5: ::= expected, found \"=\""},
        {GRAMMAR_GBNF, "root ::= (\"a\"", "line 1, column 14: ) expected, found the end"},
        {GRAMMAR_GBNF, "root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: a rule that is not defined yet"},
        {GRAMMAR_GBNF, "root ::= \"\\q\"", "line 1, column 11: one of"},
        {GRAMMAR_CHOICE, ",,", "texts with commas"},
    };
    uint64_t random = 1;
    TokenSet *t = mem_alloc(sizeof *t);
    make_tokens(t, &random);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        Grammar *g;
        Status st = grammar_compile((GrammarSource){.kind = bad[i].kind, .text = str_of(bad[i].source)}, t->v, &g);
        if (st.code != QUILL_USAGE || !strstr(st.message, bad[i].says))
            fail_msg("%s: \"%s\" expected, found \"%s\"", bad[i].source, bad[i].says, st.message);
    }
    vocabulary_free(t->v);
    free(t);
}

// Ambiguous grammars, which need exponential time elsewhere, must need a bounded number of states.
static void test_ambiguous(void **state) {
    (void)state;
    static const char *const sources[] = {
        "root ::= (\"a\"* \"a\"*)* (\"a\" | \"a\" \"a\")* \"b\"",
        "root ::= x \"b\"\nx ::= \"a\" x \"a\" | \"a\" x | \"a\"",
        "root ::= y\ny ::= \"(\" y y? \")\" | \"a\" y \"a\" | \"a\"",
        "root ::= (z z z z)* \nz ::= \"a\"? (\"a\" | \"(\" root \")\")?",
    };
    char text[2000];
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        Rules r;
        Nfa nfa;
        rules_start(&r);
        assert_int_equal(gbnf_parse(str_of(sources[i]), &r).code, 0);
        Status st = nfa_build(&r, NULL, &nfa);
        if (i == 3) assert_int_equal(st.code, 0);
        if (!st.code) {
            Automaton *a = automaton_new(&nfa);
            read_text(a, text, 2000);
            assert_true(automaton_bytes(a) < 256u << 20);
            automaton_free(a);
        }
        nfa_free(&nfa);
        rules_free(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_rules), cmocka_unit_test(test_masks),  cmocka_unit_test(test_regex),
        cmocka_unit_test(test_gbnf),         cmocka_unit_test(test_errors), cmocka_unit_test(test_ambiguous),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
