// tests/test_schema.c: JSON schemas as automata: texts that a schema admits and texts that it does not, refused schemas
// with the place of the error, and that a large schema compiles quickly.
#define _GNU_SOURCE // strsep
#include "tests/rig/testing.h"

#include <signal.h>

#include "base/signals.h"
#include "grammar/grammar.h"
#include "grammar/schema.h"

typedef struct {
    Rules rules;
    Nfa nfa;
    Automaton *a;
} Compiled;

static Status compile(const char *schema, bool compact, Compiled *c) {
    rules_start(&c->rules);
    c->a = NULL;
    c->nfa = (Nfa){0};
    Status st = schema_parse(str_of(schema), compact, &c->rules);
    if (!st.code) st = nfa_build(&c->rules, NULL, &c->nfa);
    if (!st.code) c->a = automaton_new(&c->nfa);
    return st;
}

static void drop(Compiled *c) {
    automaton_free(c->a);
    nfa_free(&c->nfa);
    rules_free(&c->rules);
}

static bool takes(const Compiled *c, const char *text) {
    int state = automaton_start(c->a);
    for (; *text; text++) state = automaton_step(c->a, state, (uint8_t)*text);
    return automaton_state(c->a, state)->accepts;
}

// texts: separated by
// ; want: whether the schema admits them.
static void check(const char *schema, const char *texts, bool want) {
    Compiled c;
    Status st = compile(schema, true, &c);
    if (st.code) fail_msg("%s: %s", schema, st.message);
    char *copy = mem_copy(texts, strlen(texts)), *rest = copy;
    for (char *one; (one = strsep(&rest, "|"));)
        if (takes(&c, one) != want) fail_msg("%s: %s: %s expected", schema, one, want ? "admitted" : "refused");
    free(copy);
    drop(&c);
}

typedef struct {
    const char *schema, *yes, *no;
} Example;

static void check_examples(const Example *all, size_t n) {
    for (size_t i = 0; i < n; i++) {
        check(all[i].schema, all[i].yes, true);
        check(all[i].schema, all[i].no, false);
    }
}

static void test_numbers(void **state) {
    (void)state;
    static const Example all[] = {
        {"{\"type\":\"integer\",\"minimum\":-5,\"maximum\":12}", "-5|-1|0|7|12", "-6|13|01|1.5|-"},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":99,\"maximum\":1000}", "100|555|1000", "99|1001|0"},
        {"{\"type\":\"integer\",\"maximum\":-10}", "-10|-99|-100", "-9|0|10"},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":2.5}", "0.01|2|2.5|1.9999|2.4", "0|0.0|2.6|-1|2.51"},
        {"{\"type\":\"number\",\"minimum\":-1.5,\"exclusiveMaximum\":1}", "-1.5|-1.4|-0.25|0|0.999", "-1.6|1|1.0|-2"},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":0.5}", "0.05|0.0000000000000001|0.5000|0.4999",
         "0|0.0|0.00000000000000001|0.51|0.5001"},
        {"{\"type\":\"number\",\"minimum\":36.6,\"maximum\":37.2}", "36.6|36.65|36.999|37|37.0|37.1999999|37.20",
         "36.5999|37.201|36|38"},
        {"{\"type\":\"number\",\"minimum\":0.30000000000000004}", "0.3000000000000001|0.31|1|9999999999999999.0",
         "0.3|0.3000000000000000|-1|10000000000000000"},
        {"{\"type\":\"integer\",\"minimum\":-0.5}", "0|9999999999999999", "-1|10000000000000000"},
        {"{\"type\":\"integer\",\"minimum\":-9007199254740991,\"maximum\":9007199254740991}",
         "0|9007199254740991|-9007199254740991", "9007199254740992|-9007199254740992"},
        {"{\"type\":\"integer\",\"minimum\":0,\"maximum\":9223372036854775807}", "0|9999999999999999", "-1"},
        {"{\"type\":\"number\",\"minimum\":-1e300,\"maximum\":2}", "2|-9999999999999998.5", "2.1|1e9"},
        {"{\"type\":\"number\",\"minimum\":1e-10,\"maximum\":1}", "1|0.5|0.0000000001", "0|0.00000000009"},
        {"{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":10,\"maximum\":100}", "14|98", "7|15|105"},
        {"{\"type\":\"integer\",\"multipleOf\":3}", "0|-3|123456", "1|-4"},
        {"{\"type\":\"number\",\"multipleOf\":0.25}", "1|-2.5|3.75", "1.1|0.2"},
        {"{\"type\":\"number\",\"multipleOf\":0.1,\"minimum\":0.15,\"maximum\":0.35}", "0.2|0.3", "0.1|0.4|0.25|0"},
        {"{\"type\":\"number\",\"multipleOf\":0.25,\"minimum\":0.2,\"maximum\":0.3}", "0.25", "0.2|0.3|0.5|0.0"},
        {"{\"type\":\"number\",\"multipleOf\":0.01,\"minimum\":0.015,\"maximum\":0.025}", "0.02", "0.01|0.03|0.015"},
        {"{\"type\":\"number\",\"multipleOf\":0.1,\"minimum\":0.15,\"maximum\":1.05}", "0.2|0.9|1|1.0", "0.1|1.1|0"},
        {"{\"type\":\"number\",\"multipleOf\":0.5,\"exclusiveMinimum\":-1.5,\"maximum\":0.75}", "-1|-1.0|-0.5|0|0.5",
         "-1.5|1|0.75|-0.25"},
        {"{\"type\":\"integer\",\"multipleOf\":0.5,\"minimum\":0.5,\"maximum\":2.5}", "1|2", "0|3|1.0"},
        {"{\"type\":\"number\"}", "0|-1.5e10|3E-2", "+1|.5|1.|1e100"},
    };
    check_examples(all, ARRAY_LEN(all));
}

// Schemas as other programs write them.
static void test_of_other_programs(void **state) {
    (void)state;
    static const Example all[] = {
        {"{\"type\":\"string\",\"format\":\"password\",\"minLength\":2}", "\"ab\"", "\"a\"|2"},
        {"{\"type\":\"object\",\"propertyNames\":{\"type\":\"string\"},\"additionalProperties\":{\"type\":\"integer\"}"
         "}",
         "{}|{\"a\":1,\"b\":2}", "{\"a\":\"x\"}"},
        // pydantic's tags have a default and are not required
        {"{\"discriminator\":{\"propertyName\":\"t\"},\"oneOf\":[{\"$ref\":\"#/$defs/A\"},{\"$ref\":\"#/$defs/B\"}],"
         "\"$defs\":{\"A\":{\"type\":\"object\",\"properties\":{\"t\":{\"const\":\"a\",\"default\":\"a\"}}},"
         "\"B\":{\"type\":\"object\",\"properties\":{\"t\":{\"enum\":[\"b\"]},\"n\":{\"type\":\"integer\"}}}}}",
         "{\"t\":\"a\"}|{\"t\":\"b\"}|{\"t\":\"b\",\"n\":3}", "{}|{\"n\":3}|{\"t\":\"c\"}"},
        {"{\"$ref\":\"#/$defs/"
         "N\",\"$defs\":{\"L\":{\"type\":\"object\",\"properties\":{\"t\":{\"const\":\"l\",\"default\":\"l\"}}},"
         "\"N\":{\"type\":\"object\",\"properties\":{\"t\":{\"const\":\"n\",\"default\":\"n\"},\"left\":{"
         "\"discriminator\":{},"
         "\"oneOf\":[{\"$ref\":\"#/$defs/L\"},{\"$ref\":\"#/$defs/N\"}]}},\"required\":[\"left\"]}}}",
         "{\"left\":{\"t\":\"l\"}}|{\"t\":\"n\",\"left\":{\"t\":\"n\",\"left\":{\"t\":\"n\",\"left\":{\"t\":\"l\"}}}}",
         "{\"left\":{}}|{\"t\":\"n\"}"},
        // items of one schema apply to prefixItems of the other
        {"{\"allOf\":[{\"type\":\"array\",\"items\":{\"type\":[\"integer\",\"null\"]}},{\"prefixItems\":[{\"type\":["
         "\"string\",\"integer\"]}],\"minItems\":2,\"maxItems\":3}]}",
         "[1,null]|[1,2,3]", "[\"a\",1]|[null,1]|[1]"},
        {"{\"allOf\":[{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"integer\"}]},{"
         "\"prefixItems\":"
         "[{\"minimum\":5}],\"minItems\":2}]}",
         "[5,1]|[9,0]", "[4,1]|[5]"},
    };
    check_examples(all, ARRAY_LEN(all));
}

static void test_values(void **state) {
    (void)state;
    static const Example all[] = {
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"ab\"|\"\\u00e9\\n\xc3\xa9\"|\"\\ud83d\\ude00x\"",
         "\"a\"|\"abcd\"|\"\\ud83d\"|ab|\"a\tb\""},
        {"{\"type\":\"string\",\"pattern\":\"^a+\\\\n?$\",\"maxLength\":3}", "\"aaa\"|\"aa\\n\"",
         "\"aaaa\"|\"aaa\\n\"|\"\""},
        {"{\"type\":\"string\",\"pattern\":\"b\"}", "\"b\"|\"abc\"|\"\\\"b\"", "\"ac\""},
        {"{\"type\":\"string\",\"format\":\"date\"}", "\"2024-02-29\"|\"2000-02-29\"|\"1999-12-31\"",
         "\"2023-02-29\"|\"1900-02-29\"|\"2023-04-31\"|\"0000-01-01\""},
        {"{\"type\":\"string\",\"format\":\"date-time\"}", "\"2024-02-29T23:59:59Z\"|\"1999-01-01T00:00:00.5+01:00\"",
         "\"2024-02-29\"|\"2024-02-29T24:00:00Z\""},
        {"{\"type\":\"string\",\"format\":\"ipv4\"}", "\"1.2.3.4\"|\"255.0.10.199\"",
         "\"256.1.1.1\"|\"1.2.3\"|\"01.2.3.4\""},
        {"{\"type\":\"string\",\"format\":\"email\"}", "\"a.b@c.org\"", "\"a@\"|\"a b@c.org\""},
        {"{\"type\":\"string\",\"format\":\"uri\"}", "\"https://a.org:80/x?y=1#z\"", "\"a.org\""},
        {"{\"type\":[\"null\",\"boolean\"]}", "null|true|false", "0|\"\""},
        {"{\"enum\":[1,\"a\",{\"k\":[null]}]}", "1|\"a\"|{\"k\":[null]}", "2|a"},
        {"{\"type\":\"string\",\"enum\":[1,\"a\"]}", "\"a\"", "1"},
        {"{\"type\":\"integer\",\"enum\":[1.0,2.5,3]}", "1.0|3", "2.5"},
        {"{\"enum\":[10000000001,10000000002],\"multipleOf\":2}", "10000000002", "10000000001"},
        {"{\"enum\":[2.5,0],\"multipleOf\":1e300}", "0", "2.5"},
        {"{\"type\":\"integer\",\"anyOf\":[true]}", "5", "5.5|\"a\""},
        {"{\"type\":\"boolean\",\"oneOf\":[true,false]}", "true", "1|\"a\""},
        {"{\"$ref\":\"#/%24defs/a~1b\",\"$defs\":{\"a/b\":{\"const\":5}}}", "5", "6"},
        {"{\"enum\":[1,2.5,9,\"a\",\"bcd\",null,[1]],\"minimum\":2,\"maxLength\":2,\"minItems\":1}",
         "2.5|9|\"a\"|null|[1]", "1|\"bcd\"|[]"},
        {"{\"type\":\"object\",\"enum\":[{\"a\":1},{\"a\":\"x\"}],\"properties\":{\"a\":{\"type\":\"integer\"}}}",
         "{\"a\":1}", "{\"a\":\"x\"}|{}"},
        {"{\"oneOf\":[{\"const\":\"x\"},{\"type\":\"integer\"},{\"enum\":[null,true]}]}", "\"x\"|3|null|true",
         "false|\"y\""},
        {"{\"oneOf\":[{\"type\":\"string\",\"maxLength\":2},{\"type\":\"string\",\"minLength\":4,\"maxLength\":4}]}",
         "\"ab\"|\"\"|\"abcd\"", "\"abc\""},
        {"{\"type\":\"string\",\"format\":\"hostname\"}", "\"a\"|\"www.example.org\"|\"a-1.b2\"",
         "\"-a\"|\"a..b\"|\"a_b\"|\"\""},
        {"{\"type\":\"string\",\"format\":\"ipv6\"}",
         "\"::\"|\"::1\"|\"2001:db8::ff00:42:8329\"|\"1:2:3:4:5:6:7:8\"|\"1::\"",
         "\":::\"|\"1:2:3\"|\"1::2::3\"|\"12345::\"|\"1:2:3:4:5:6:7:8:9\""},
        {"{\"type\":\"string\",\"format\":\"duration\"}", "\"P1D\"|\"PT5M\"|\"P1Y2M3DT4H5M6S\"|\"P3W\"",
         "\"P\"|\"PT\"|\"1D\"|\"P1DT\""},
        {"{\"type\":\"string\",\"format\":\"json-pointer\"}", "\"\"|\"/a/0\"|\"/a~1b\"", "\"a\"|\"/~2\""},
        {"true", "1|[{\"a\":[]}]|\"x\"|-2.5e3", "[1,]|{a:1}"},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"const\":\"x\"}]}", "12|\"x\"", "\"y\""},
        {"{\"oneOf\":[{\"type\":\"integer\",\"maximum\":3},{\"type\":\"integer\",\"minimum\":8,\"maximum\":9}]}", "3|8",
         "4|10"},
    };
    check_examples(all, ARRAY_LEN(all));
}

// Writes value / 10^6 with `decimals` decimals, which must hold it.
static const char *decimal_text(long long value, int decimals, char out[40]) {
    long long size = llabs(value);
    snprintf(out, 40, "%s%lld.%06lld", value < 0 ? "-" : "", size / 1000000, size % 1000000);
    out[strlen(out) - (size_t)(decimals ? 6 - decimals : 7)] = '\0';
    return out;
}

// A number in millionths with `decimals` decimals.
static long long random_decimal(uint64_t *seed, int decimals, long long most) {
    long long unit = 1;
    for (int i = decimals; i < 6; i++) unit *= 10;
    most = most / unit + 1;
    return ((long long)(test_random(seed) % (uint64_t)(2 * most + 1)) - most) * unit;
}

// Random bounds against the comparison of numbers in millionths.
static void test_bounds_by_comparison(void **state) {
    (void)state;
    uint64_t seed = 7;
    for (int round = 0; round < 400; round++) {
        long long most = round % 2 ? 1500000 : 25000000,
                  low = random_decimal(&seed, (int)(test_random(&seed) % 4), most),
                  high = random_decimal(&seed, (int)(test_random(&seed) % 4), most);
        if (low > high) low ^= high, high ^= low, low ^= high;
        bool low_open = test_random(&seed) % 2, high_open = test_random(&seed) % 2;
        if (low == high) low_open = high_open = false;
        char schema[200], a[40], b[40];
        snprintf(schema, sizeof schema, "{\"type\":\"number\",\"%s\":%s,\"%s\":%s}",
                 low_open ? "exclusiveMinimum" : "minimum", decimal_text(low, 6, a),
                 high_open ? "exclusiveMaximum" : "maximum", decimal_text(high, 6, b));
        Compiled c;
        Status st = compile(schema, true, &c);
        if (st.code) fail_msg("%s: %s", schema, st.message);
        for (int i = 0; i < 300; i++) {
            int decimals = (int)(test_random(&seed) % 7);
            long long x = random_decimal(&seed, decimals, i % 3 ? most : most / 100 + 1);
            if (i % 3 == 1) x = (i % 2 ? low : high) + random_decimal(&seed, decimals = 6, 3);
            if (i < 4) x = i % 2 ? low : high, decimals = 6;
            bool want = (low_open ? x > low : x >= low) && (high_open ? x < high : x <= high);
            if (takes(&c, decimal_text(x, decimals, a)) != want)
                fail_msg("%s: %s: %s expected", schema, a, want ? "admitted" : "refused");
        }
        drop(&c);
    }
}

static void test_objects_and_arrays(void **state) {
    (void)state;
    const char *object =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"const\":1},\"c\":{\"const\":2}},"
        "\"required\":[\"b\"]}";
    check(object, "{\"b\":1}|{\"a\":null,\"b\":1}|{\"a\":null,\"b\":1,\"c\":2}|{\"b\":1,\"c\":2}", true);
    check(object, "{}|{\"a\":null}|{\"b\":1,\"a\":null}|{\"b\":1,}|{\"b\":1,\"d\":1}|{,\"b\":1}", false);
    const char *open = "{\"properties\":{\"abc\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":\"integer\"}}";
    check(open, "{}|{\"ab\":1}|{\"abc\":null,\"abcd\":2,\"\":3}|{\"x\":1}|{\"\xc3\xa9\":1}", true);
    check(open, "{\"abc\":1}|{\"x\":1,\"abc\":1}|{\"x\":null}", false);
    check("{\"type\":\"object\"}", "{}|{\"a\":[{\"b\":null}]}", true);
    check("{\"type\":\"array\",\"items\":{\"const\":1},\"minItems\":2,\"maxItems\":3}", "[1,1]|[1,1,1]", true);
    check("{\"type\":\"array\",\"items\":{\"const\":1},\"minItems\":2,\"maxItems\":3}", "[]|[1]|[1,1,1,1]|[1,1,]",
          false);
    const char *tuple =
        "{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":3},\"minItems\":1,"
        "\"maxItems\":4}";
    check(tuple, "[1]|[1,2]|[1,2,3]|[1,2,3,3]", true);
    check(tuple, "[]|[2]|[1,3]|[1,2,3,3,3]", false);
    check("{\"type\":\"array\",\"prefixItems\":[{\"const\":1}]}", "[]|[1]", true);
    check("{\"type\":\"array\",\"maxItems\":0}", "[]", true);
}

static void test_references_and_merges(void **state) {
    (void)state;
    const char *tree =
        "{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"v\":{\"const\":1},"
        "\"kids\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/t\"}}},\"required\":[\"v\"]}}}";
    check(tree, "{\"v\":1}|{\"v\":1,\"kids\":[{\"v\":1,\"kids\":[]},{\"v\":1}]}", true);
    check(tree, "{}|{\"v\":1,\"kids\":[{}]}", false);
    const char *merged = "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"number\",\"minimum\":0}},"
                         "\"required\":[\"x\"]},"
                         "{\"properties\":{\"x\":{\"maximum\":3},\"y\":{\"type\":\"null\"}},\"required\":[\"y\"]}]}";
    check(merged, "{\"x\":2.5,\"y\":null}|{\"x\":3,\"y\":null}", true);
    check(merged, "{\"x\":3.5,\"y\":null}|{\"x\":1}|{\"x\":-1,\"y\":null}", false);
    const char *base =
        "{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"string\"}},\"required\":[\"k\"],\"oneOf\":[{"
        "\"properties\":"
        "{\"k\":{\"const\":\"a\"}},\"type\":\"object\",\"required\":[\"k\"]},{\"properties\":{\"k\":{\"const\":\"b\"},"
        "\"n\":{\"const\":1}},\"type\":\"object\",\"required\":[\"k\",\"n\"]}]}";
    check(base, "{\"k\":\"a\"}|{\"k\":\"b\",\"n\":1}", true);
    check(base, "{\"k\":\"b\"}|{\"k\":\"c\"}", false);
}

static void test_spaces(void **state) {
    (void)state;
    Compiled c;
    assert_int_equal(compile("{\"type\":\"array\",\"items\":{\"const\":1}}", false, &c).code, 0);
    assert_true(takes(&c, "[1, 1,1]"));
    assert_false(takes(&c, "[1,  1]"));
    assert_false(takes(&c, "[ 1]"));
    drop(&c);
}

static void test_errors(void **state) {
    (void)state;
    static const struct {
        const char *schema, *says;
    } bad[] = {
        {"{\"a\"", "line 1, column"},
        {"{\n  \"type\": }", "line 2, column"},
        {"3", "at #: a schema expected"},
        {"{\"not\":{}}", "at #: the keyword \"not\" is not supported"},
        {"{\"properties\":{\"x\":{\"items\":{\"uniqueItems\":true}}}}",
         "at #/properties/x/items: the keyword \"uniqueItems\""},
        {"{\"type\":\"text\"}", "type: null, boolean"},
        {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"a\"}}", "propertyNames: \"type\": \"string\" alone"},
        {"{\"type\":\"string\",\"pattern\":\"(\"}", "pattern: column 2"},
        {"{\"$ref\":\"#/$defs/x\"}", "$ref: a part that is there"},
        {"{\"$ref\":\"http://a/b\"}", "$ref: a part of this schema"},
        {"{\"$ref\":\"#\"}", ""},
        {"{\"allOf\":{},\"anyOf\":[{\"allOf\":[true]}]}", "allOf: a list of schemas"},
        {"{\"allOf\":5,\"pattern\":\"a\",\"anyOf\":[{\"pattern\":\"b\"}]}", "allOf: a list of schemas"},
        {"{\"minLength\":1e300}", "minLength: a whole number"},
        {"{\"multipleOf\":-1,\"const\":2.5}", "multipleOf: a number above 0"},
        {"{\"anyOf\":[5]}", "a schema expected"},
        {"{\"allOf\":[{\"$ref\":\"#\"}]}", "reference in allOf to itself"},
        {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"string\",\"maxLength\":3}]}", "exclude each other"},
        {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "no text matches"},
        {"{\"type\":\"object\",\"properties\":{\"a\":false},\"required\":[\"a\"]}", "no text matches"},
        {"{\"type\":\"integer\",\"multipleOf\":1.7}", "multipleOf"},
        {"{\"type\":\"number\",\"minimum\":1e-30}", "20 decimals at most expected, found 1"},
        {"{\"type\":\"number\",\"maximum\":-1e16}", "bounds below 1e16"},
        {"{\"type\":\"string\",\"maxLength\":1000000}", "maxLength: a whole number"},
        {"{\"enum\":[1],\"minimum\":3}", "no text matches"},
        {"{\"enum\":1,\"minimum\":3}", "enum: a list"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        Compiled c;
        Status st = compile(bad[i].schema, true, &c);
        if (st.code != QUILL_USAGE || !strstr(st.message, bad[i].says))
            fail_msg("%s: \"%s\" expected, found \"%s\"", bad[i].schema, bad[i].says, st.message);
        drop(&c);
    }
}

// A schema of 10 kB: nested objects with bounds, patterns and recursion.
static void test_large(void **state) {
    (void)state;
    Buf s = {0};
    buf_str(&s, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; s.n < 10000; i++)
        buf_printf(&s,
                   "%s\"p%d\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":20},\"b\":{"
                   "\"type\":\"array\","
                   "\"items\":{\"type\":\"integer\",\"minimum\":%d,\"maximum\":900}},\"c\":{\"anyOf\":[{\"type\":"
                   "\"null\"},{\"$ref\":"
                   "\"#\"}]}},\"required\":[\"a\"]}",
                   i ? "," : "", i, i);
    buf_str(&s, "}}");
    double start = clock_now();
    Compiled c;
    assert_int_equal(compile(s.data, true, &c).code, 0);
    print_message("%zu bytes of schema: %d nodes, %.2f ms\n", s.n, c.nfa.n_nodes, 1e3 * (clock_now() - start));
    assert_true(takes(&c, "{\"p1\":{\"a\":\"x\",\"b\":[1,900],\"c\":{\"p0\":{\"a\":\"\"}}}}"));
    assert_false(takes(&c, "{\"p1\":{\"a\":\"x\",\"b\":[0]}}"));
    drop(&c);
    buf_free(&s);
}

// `levels` times `outer`, whose %s is the next level; the innermost is an object.
static char *nested(const char *outer, int levels) {
    const char *hole = strstr(outer, "%s");
    Buf s = {0};
    for (int i = 0; i < levels; i++) buf_append(&s, outer, (size_t)(hole - outer));
    buf_str(&s, "{\"type\":\"object\"}");
    for (int i = 0; i < levels; i++) buf_str(&s, hole + 2);
    return s.data;
}

// Small schemas whose parts apply to many values: compiling them takes no longer than a large one.
static void test_bounded(void **state) {
    (void)state;
    static const struct {
        const char *outer, *says; // NULL: it compiles
        int levels;
    } all[] = {
        {"{\"required\":[\"a\",\"b\"],\"additionalProperties\":%s}", NULL, 14},
        {"{\"type\":[\"object\",\"object\"],\"properties\":{\"a\":%s}}", "type: each name once expected", 25},
        {"{\"enum\":[{},{\"a\":{}}],\"properties\":{\"a\":%s}}", "at #/properties/a/properties/a/properties/a", 25},
        {"{\"minLength\":1,\"properties\":{\"a\":{\"$ref\":\"#/properties/a\",\"title\":\"x\"}},\"items\":%s}", NULL,
         3},
        {"{\"allOf\":[{\"anyOf\":[true,{\"minLength\":2}]},{\"anyOf\":[true,{\"maxLength\":5}]}],\"items\":%s}",
         "expected", 20},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        Compiled c;
        char *schema = nested(all[i].outer, all[i].levels);
        double start = clock_now();
        Status st = compile(schema, true, &c);
        if (all[i].says ? st.code != QUILL_USAGE || !strstr(st.message, all[i].says) : st.code)
            fail_msg("%s: %s expected, found \"%s\"", all[i].outer, all[i].says ? all[i].says : "success", st.message);
        if (clock_now() - start > 30) fail_msg("%s: it took %.1f s", all[i].outer, clock_now() - start);
        if (!all[i].says && i == 0) assert_true(takes(&c, "{\"a\":1,\"b\":2}") == false);
        drop(&c);
        free(schema);
    }
}

// Patterns with a bound on the length: pairs of sets share the steps of each side, and all products share one limit.
static void test_patterns_with_lengths(void **state) {
    (void)state;
    Buf s = {0};
    Compiled c;
    double start = clock_now();
    check("{\"type\":\"string\",\"pattern\":\"^(a|b)*a(a|b){7}$\",\"maxLength\":150}", "\"abbbbbbb\"|\"aaaaaaaaaa\"",
          true);
    check("{\"type\":\"string\",\"pattern\":\"^(a|b)*a(a|b){7}$\",\"maxLength\":9}", "\"bbbbbbbb\"|\"aaaaaaaaaa\"",
          false);
    buf_str(&s, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < 20; i++)
        buf_printf(&s, "%s\"p%d\":{\"type\":\"string\",\"pattern\":\"^(a|b)*a(a|b){7}$\",\"maxLength\":%d}",
                   i ? "," : "", i, 150 + i);
    buf_str(&s, "}}");
    Status st = compile(s.data, true, &c);
    assert_int_equal(st.code, QUILL_USAGE);
    assert_non_null(strstr(st.message, "repeat less"));
    drop(&c);
    buf_free(&s);
    if (clock_now() - start > 30) fail_msg("patterns with lengths took %.1f s", clock_now() - start);
}

// A signal ends the compilation.
static void test_signal(void **state) {
    (void)state;
    Compiled c;
    signal(SIGINT, SIG_DFL); // a shell starts background jobs with SIGINT ignored, and signals_catch keeps that
    signals_catch();
    raise(SIGINT);
    Status st = compile("{\"type\":\"string\"}", true, &c);
    signals_catch(); // forgets it
    signals_release();
    assert_int_equal(st.code, 128 + SIGINT);
    drop(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_of_other_programs),
        cmocka_unit_test(test_bounds_by_comparison),
        cmocka_unit_test(test_objects_and_arrays),
        cmocka_unit_test(test_references_and_merges),
        cmocka_unit_test(test_spaces),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_patterns_with_lengths),
        cmocka_unit_test(test_signal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
