// tests/test_jinja.c: the template interpreter: its output, the trust of each byte, and that no template breaks it.
// Expected texts are Jinja2's; tests/rig/jinja_reference.py compares many more.
#include "tests/rig/testing.h"

#include "jinja/jinja.h"
#include "jinja/run.h"

static const struct tm now = {.tm_year = 126, .tm_mday = 2};

typedef struct {
    Status st;
    Buf text, trusted;
} Result;

static Value string(Heap *h, const char *s) { return value_string(h, str_of(s), false); }

// Messages of a user and an assistant; the user's text is untrusted, roles are trusted.
static Value variables(Heap *h, const char *user) {
    Value v = value_dict(h), list = value_new_list(h, V_LIST, 2);
    const char *roles[] = {"user", "assistant"}, *texts[] = {user, "Yes."};
    for (int i = 0; i < 2; i++) {
        Value m = value_dict(h);
        dict_set_str(h, m.dict, "role", value_string(h, str_of(roles[i]), true));
        dict_set_str(h, m.dict, "content", string(h, texts[i]));
        list.list->items[i] = m;
    }
    dict_set_str(h, v.dict, "messages", list);
    dict_set_str(h, v.dict, "u", string(h, user));
    dict_set_str(h, v.dict, "n", value_int(7));
    return v;
}

static Result render_within(const char *source, size_t n, const char *user, size_t room, int64_t steps) {
    Result r = {0};
    Jinja *t;
    r.st = jinja_parse((Str){source, n}, &t);
    if (r.st.code) return r;
    Heap *h = heap_new(room, steps);
    r.st = jinja_render(t, h, variables(h, user).dict, &now, &r.text, &r.trusted);
    assert_int_equal(r.text.n, r.trusted.n);
    heap_free(h);
    jinja_free(t);
    return r;
}

static Result render(const char *source, const char *user) {
    return render_within(source, strlen(source), user, 64 << 20, 2000000);
}

static void result_free(Result *r) {
    buf_free(&r->text);
    buf_free(&r->trusted);
}

static void check(const char *source, const char *user, const char *expected) {
    Result r = render(source, user);
    if (r.st.code) fail_msg("%s: %s", source, r.st.message);
    if (strcmp(r.text.data ? r.text.data : "", expected) != 0)
        fail_msg("%s: \"%s\", expected \"%s\"", source, r.text.data, expected);
    result_free(&r);
}

static void test_prints(void **state) {
    (void)state;
    static const struct {
        const char *source, *expected;
    } cases[] = {
        {"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 10 / 4 }} {{ 2 ** 10 }} {{ 1e16 }} {{ 0.1 + 0.2 }}",
         "3 -4 2 2.5 1024 1e+16 0.30000000000000004"},
        {"{{ none }}{{ true }}{{ missing }}{{ [1, 'a', none] }}{{ {'k': \"it's\"} }}{{ (1,) }}",
         "NoneTrue[1, 'a', None]{'k': \"it's\"}(1,)"},
        {"{{ 'abc'[::-1] }}{{ [1, 2, 3][-2:] }}{{ 'caf\\u00e9'[-1] }}{{ 'caf\\u00e9'|length }}", "cba[2, 3]é4"},
        {"{% for m in messages %}{{ loop.index }}{{ m.role }}{{ ', ' if not loop.last }}{% endfor %}",
         "1user, 2assistant"},
        {"{% set ns = namespace(x=0) %}{% for i in range(4) %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "6"},
        {"{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}", "231"},
        {"{% macro f(a, b='z') %}<{{ a }}{{ b }}>{% endmacro %}{{ f(1) }}{{ f(b=2, a=n) }}", "<1z><72>"},
        {"{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i > 3 %}{% break %}{% endif %}{{ i }}{% endfor "
         "%}",
         "023"},
        {"{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1) }}{{ f(1, 2, x=3) }}",
         "1(){}1(2,){'x': 3}"},
        {"{% for x in [[1, [2, []]], [3, []]] recursive %}{{ loop.depth }}{{ x[0] }}{% if x[1] %}({{ loop([x[1]]) }})"
         "{% endif %}{% endfor %}",
         "11(22)13"},
        {"{{ 'one two three'|truncate(9, leeway=0) }}{{ 'one two three'|truncate(7, true, '') }}", "one...one two"},
        {"{% set x %} hi {% endset %}{{ x|trim|upper }}{% filter replace('a', 'b') %}aa{% endfilter %}", "HIbb"},
        {"a\n  {% if true %}\n b\n  {% endif %}\n c {{- n -}}  \nd", "a\n b\n c7d"},
        {"{# gone #}{% raw %}{{ n }}{% endraw %}\n", "{{ n }}"},
        {"{{ {'b': [1.5, none], 'a': 'q\"\\n'}|tojson }}{{ [1]|tojson(indent=2) }}",
         "{\"b\": [1.5, null], \"a\": \"q\\\"\\n\"}[\n  1\n]"},
        {"{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|join('+') }}", "hello"},
        {"{{ strftime_now('%d %b %Y') }} {{ 'x' is in 'xyz' }} {{ n is divisibleby 7 }} {{ 1 < n <= 7 }}",
         "02 Jan 2026 True True True"},
        {"{{ 'a,b,c'.split(',', 1) }}{{ ' a b '.split() }}{{ 'abc'.replace('b', '-') }}{{ '%s-%03d'|format('x', n) }}",
         "['a', 'b,c']['a', 'b']a-cx-007"},
        {"{% for i in range(20) %}{% set x = {'a': i} %}{% endfor %}{{ {'a': 1, 'b': 2, 'c': 3, 'd': 4, 'e': 5, 'f': "
         "6, "
         "'g': 7, 'h': 8, 'i': 9, 'j': 10, 1: 11, 'a': 12}['a'] }}",
         "12"},
        {"{{ range(0, 10, 9223372036854775807) }}{{ range(0, 10, 9223372036854775807)|list }}",
         "range(0, 10, 9223372036854775807)[0]"},
        {"{% set low = 0 - 9223372036854775807 - 1 %}{% set high = 9223372036854775807 %}"
         "{{ range(low, high, high)|list }}{{ range(high, low, low)|list }}{{ range(0, low, low)|list }}"
         "{{ range(high - 1, high, 2)|list }}{{ range(high, low, 1)|list }}{{ range(low, low + 3)|length }}",
         "[-9223372036854775808, -1, 9223372036854775806][9223372036854775807, -1][0][9223372036854775806][]3"},
        {"{{ none|select|list }}{{ missing|reject('odd')|list }}{{ false|selectattr('x')|list }}{{ "
         "0|rejectattr('x')|list "
         "}}{{ ''|map('upper')|list }}{{ none|map(attribute='x')|list }}",
         "[][][][][][]"},
        // the name of an attribute that is not a number (UBSan finds an overflow)
        {"{{ [{'\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf': 3}]"
         "|map(attribute='\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf\xbf')|list }}",
         "[3]"},
        {"{{ '\u0130'.lower() }}{{ '\u0130I'|lower }}", "i\xcc\x87i\xcc\x87i"},
        {"", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) check(cases[i].source, "hello", cases[i].expected);
}

// Parts of Python that few templates use. The texts are those of Jinja2 3.1.6.
static void test_rare_parts(void **state) {
    (void)state;
    static const struct {
        const char *source, *expected;
    } cases[] = {
        {"{{ {'a': [1, {}]}|tojson(indent='\\t') }}", "{\n\t\"a\": [\n\t\t1,\n\t\t{}\n\t]\n}"},
        {"{{ '{:.2f}|{:5d}|{:<4}|{:*^7}|{:,}|{:05d}|{:+d}|{:#x}|{:.1%}'.format(2.5, 7, 'a', 'd', 1234567, -42, 5, 255, "
         "0.257) }}",
         "2.50|    7|a   |***d***|1,234,567|-0042|+5|0xff|25.7%"},
        {"{{ '{x!r:>6}|{x:.1}|{y:e}|{{}}|{0:8.3f}|{1}'.format(3.14159, true, x='bc', y=12345.678) }}",
         "  'bc'|b|1.234568e+04|{}|   3.142|True"},
        {"{{ [1, 2, 3, 4, 5, 6, 7]|slice(3)|list }}{{ [1, 2, 3, 4]|slice(3, 'x')|list }}",
         "[[1, 2, 3], [4, 5], [6, 7]][[1, 2], [3, 'x'], [4, 'x']]"},
        {"{{ 'a b/c?\\u00e9'|urlencode }} {{ {'a b': 1, 'c': 'd/e'}|urlencode }}", "a%20b/c%3F%C3%A9 a+b=1&c=d%2Fe"},
        {"{{ 'a\\vb\\x1cc\\x85d\\u2028e\\rf\\r\\ng\\n'.splitlines() }}", "['a', 'b', 'c', 'd', 'e', 'f', 'g']"},
        {"{{ 'a\\u2028b\\n'|indent(2) }}|{{ 'a\\u2029'|indent(2, blank=true) }}|", "a\n  b\n|a\n  |"},
        {"{{ range(5)[:2] }}{{ range(0, 10, 3)[:] }}{{ range(10)[::-1] }}{{ range(9)[7:]|list }}{{ range(10)[2:][0] }}",
         "range(0, 2)range(0, 12, 3)range(9, -1, -1)[7, 8]2"},
        {"{{ '\\ufb01'.upper() }}{{ '\\ufb01n'.title() }} {{ 'a-b c_d  12'|wordcount }}", "FIFin 4"},
        {"{% set c = cycler('a', 'b') %}{{ c.current }}{{ c.next() }}{{ c.current }}", "aab"},
        {"{{ 1234|round(-2) }} {{ 1250|round(-2) }} {{ -1350|round(-2) }} {{ 7|round(-30) }} {{ "
         "9007199254740993|round(-1) }}",
         "1200 1200 -1400 0 9007199254740990"},
        {"{% for k, g in [{'k': 'b'}, {}, {'k': 'A'}, {'k': 'Z'}]|groupby('k', default='z') %}{{ k }}{{ g }}{% endfor "
         "%}"
         "{{ [{}, {'a': {'b': 2}}]|map(attribute='a.b', default=7)|list }}",
         "A[{'k': 'A'}]b[{'k': 'b'}]z[{}, {'k': 'Z'}][7, 2]"},
        {"{{ [['B'], ['a']]|sort(attribute=0) }}{{ [['B'], ['a']]|max(attribute=0) }}{{ [['B'], "
         "['a']]|min(attribute=0) "
         "}}{{ [['a'], ['A']]|unique(attribute=0)|list }}{{ [['a'], ['A']]|groupby(0) }}{{ [['a'], "
         "['B']]|sort(attribute=0, case_sensitive=true) }}",
         "[['a'], ['B']]['B']['a'][['a']][('a', [['a'], ['A']])][['B'], ['a']]"},
        {"{{ [{'a,b': 2}, {'a,b': 1}]|min(attribute='a,b') }}{{ [none, none]|sort }}", "{'a,b': 1}[None, None]"},
        {"{{ {'b': 'C', 'A': 'd'}|dictsort }}{{ {'b': 'C', 'A': 'd'}|dictsort(by='value') }}{{ {'b': 1, 'A': "
         "2}|dictsort(true) }}{{ {'b': 1}|dictsort(by='key') }}",
         "[('A', 'd'), ('b', 'C')][('b', 'C'), ('A', 'd')][('A', 2), ('b', 1)][('b', 1)]"},
        {"{{ {'a': 1}|attr('a') is defined }}{{ {'a': 1}|attr('items') is callable }}{{ namespace(a=1)|attr('a') }}"
         "{{ messages|groupby('role')|first|attr('grouper') }}",
         "FalseTrue1assistant"},
        {"{{ '%x' % -1 }} {{ '%o' % -9 }} {{ '%+x' % 5 }} {{ '%#X' % -255 }} {{ '%#o' % 8 }} {{ '%-5x|% 05o' % (-1, 8) "
         "}} "
         "{{ '%05.3d|%.0d' % (7, 0) }}",
         "-1 -11 +5 -0XFF 0o10 -1   | 0010 00007|0"},
        {"{{ '%d' % 9223372036854775807 }} {{ '%d %x' % (0 - 9223372036854775807 - 1, 0 - 9223372036854775807 - 1) }} "
         "{{ '%d' % -3.9 }}",
         "9223372036854775807 -9223372036854775808 -8000000000000000 -3"},
        {"{% macro f(a, b) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, *[2, 3], x=4, **{'y': 5}) }}"
         "{{ f(x=4, *[1]) }}",
         "12(3,){'x': 4, 'y': 5}1(){'x': 4}"},
        {"{{ '1_0'|int }} {{ '1__0'|int }} {{ '_1'|int }} {{ '1_'|int }} {{ '12\\0x'|int }} {{ '1_0.5'|float }} {{ "
         "'1_.5'|float }}",
         "10 0 0 0 0 10.5 0.0"},
        {"{{ '0b11'|int(0, 2) }} {{ '0o17'|int(0, 8) }} {{ '-0x_f'|int(0, 16) }} {{ '0x0x1'|int(9, 16) }} {{ "
         "'0b11'|int(0, 0) }} {{ '010'|int(0, 0) }} {{ '7'|int(0, 99) }}",
         "3 15 -15 9 3 10 7"},
        {"{{ 0x_f }} {{ 0b1_1 }} {{ 00 }} {{ '-9223372036854775808'|int }}", "15 3 0 -9223372036854775808"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) check(cases[i].source, "hello", cases[i].expected);
}

// Each letter of `marks` stands for a byte: T trusted, u untrusted.
static void check_marks(const char *source, const char *user, const char *expected, const char *marks) {
    Result r = render(source, user);
    if (r.st.code) fail_msg("%s: %s", source, r.st.message);
    assert_string_equal(r.text.data, expected);
    for (size_t i = 0; i < r.trusted.n; i++)
        if ((marks[i] == 'T') != (r.trusted.data[i] == 1)) fail_msg("%s: byte %zu of %s", source, i, expected);
    assert_int_equal(strlen(marks), r.text.n);
    result_free(&r);
}

static void test_trust(void **state) {
    (void)state;
    static const struct {
        const char *source, *user, *expected, *marks;
    } cases[] = {
        {"<{{ u }}>", "ab", "<ab>", "TuuT"},
        {"{{ '<' + u + '>' }}", "ab", "<ab>", "TuuT"},
        {"{{ '<' ~ u ~ n }}", "ab", "<ab7", "TuuT"},
        {"{{ ('<' + u + '>')[1:3] }}{{ ('<' + u)[::-1] }}", "ab", "abba<", "uuuuT"},
        {"{{ (' ' + u + ' x ')|trim }}", " a ", "a  x", "uuTT"},
        {"{{ ('<' + u)|upper }}{{ u.title() }}", "ab", "<ABAb", "Tuuuu"},
        {"{{ u|replace('b', '|') }}{{ 'xbx'|replace('b', u) }}", "ab", "a|xabx", "uTTuuT"},
        {"{{ u.split('b')|join('-') }}", "abc", "a-c", "uTu"},
        {"{{ [u, 'x']|join(u) }}", "a", "aax", "uuT"},
        {"{{ u|tojson }}", "a\n", "\"a\\n\"", "uuuuu"},
        {"{{ [u] }}", "a", "['a']", "uuuuu"},
        {"{{ '[%s]' % u }}{{ '{}!'.format(u) }}", "a", "[a]a!", "TuTuT"},
        {"{{ '{:>3}{:<2}|'.format(u, u) }}", "a", "  aa |", "TTuuTT"},
        {"{{ '{:04d}'.format(u|int) }}{{ (u ~ ':{:2}').format(n) }}", "5", "00055: 7", "TTTuuTTT"},
        {"{{ (' ' ~ u)|urlencode }}{{ [u]|tojson(indent='-') }}", " ", "%20%20[\n-\" \"\n]", "TTTuuuuuTuuuuu"},
        {"{% set x %}<{{ u }}{% endset %}{{ x|lower }}", "A", "<a", "Tu"},
        {"{% macro f(x) %}({{ x }}){% endmacro %}{{ f(u)|e }}", "<", "(&lt;)", "TuuuuT"},
        {"{% for c in u %}{{ c }}.{% endfor %}", "ab", "a.b.", "uTuT"},
        {"{{ u|int + 1 }}{{ u|int }}", "4", "54", "uu"},
        {"{{ u|indent(1, true) }}{{ u.center(3) }}", "a", " a a ", "TuTuT"},
        {"{{ strftime_now(u) }}{{ strftime_now('<%d>') }}", "<%d>", "<02><02>", "uuuuTTTT"},
        {"{{ 'x'.center(3, u) }}{{ u.ljust(2, '-') }}", "<", "<x<<-", "uTuuT"},
        {"{{ u.partition('|')|join }}", "a|b", "a|b", "uuu"},
        {"{% for i in range(u|int, 8) %}{{ i }}{% endfor %}{{ range(u|int) }}", "6", "67range(0, 6)", "uuuuuuuuuuuuu"},
        {"{{ u % 7 }}{{ u|format(7) }}", "%03d", "007007", "uuuuuu"},
        {"{{ '%#4x|%-3d' % (n, u|int) }}", "5", " 0x7|5  ", "TTTTTuuu"},
        {"{% for m in messages %}<{{ m.role }}{{ m.content }}{% endfor %}", "|>", "<user|><assistantYes.",
         "TTTTTuuTTTTTTTTTTuuuu"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_marks(cases[i].source, cases[i].user, cases[i].expected, cases[i].marks);
}

// A template that fails, and what its message says.
typedef struct {
    const char *source, *says;
} Failing;

static void check_failing(const Failing *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        Result r = render(cases[i].source, "hi");
        assert_int_equal(r.st.code, QUILL_MODEL);
        if (!strstr(r.st.message, cases[i].says)) fail_msg("%s: %s", cases[i].source, r.st.message);
        assert_int_equal(r.text.n, 0);
        result_free(&r);
    }
}

static void test_syntax_errors(void **state) {
    (void)state;
    static const Failing cases[] = {
        {"{% if n %}", "endif"},
        {"{% for x in n", "the end of a tag"},
        {"{% include 'x' %}", "a tag that templates may use"},
        {"{{ 1 +", "the end of a tag"},
        {"{{ 'abc", "a string that ends"},
        {"{% set x is lower %}ABC{% endset %}", "%} expected, found \"is\""},
        {"{% set x | upper is lower %}ABC{% endset %}", "%} expected, found \"is\""},
        {"{% filter upper is lower %}ABC{% endfilter %}", "%} expected, found \"is\""},
        {"{% filter upper()() %}ABC{% endfilter %}", "%} expected, found \"(\""},
        {"{{ dict(**a, **b) }}", "a last ** expected, found \"**\""},
        {"{{ dict(*a, *b) }}", "one * and a last ** expected, found \"*\""},
        {"{{ dict(**a, b=1) }}", "a last ** expected, found \"b\""},
        {"{{ dict(a=1, 2) }}", "then by name, one * and a last ** expected, found \"2\""},
        {"{# never", "comment"},
        {"{% break %}", "for loop"},
        {"{{ 0x1__f }}", "a number of 64 bits"},
    };
    check_failing(cases, ARRAY_LEN(cases));
}

static void test_errors(void **state) {
    (void)state;
    static const Failing cases[] = {
        {"{{ raise_exception('Roles must alternate') }}", "Roles must alternate"},
        {"\n\n{{ missing.x }}", "line 3: 'missing' is undefined"},
        {"{{ messages[0].nope.x }}", "'dict object' has no attribute 'nope'"},
        {"{{ messages.append(1) }}", "unsafe"},
        {"{{ ''.__class__.__mro__ }}", "unsafe"},
        {"{{ 1 + 'a' }}", "unsupported operand"},
        {"{{ '{:s}'.format(n) }}", "format: a specification for a value of type int expected, found \"s\""},
        {"{{ '{:.2f}'.format('a') }}", "a specification for a value of type str expected, found \".2f\""},
        {"{{ '{:5}'.format(none) }}", "unsupported format string passed to NoneType.__format__"},
        {"{{ '{:99999d}'.format(1) }}", "a width of at most 10000"},
        {"{{ [1]|slice(0) }}", "a number of slices other than 0"},
        {"{{ n|nope }}", "No filter named 'nope'"},
        {"{{ n is nope }}", "No test named 'nope'"},
        {"{% for x in range(5) %}{{ loop([x]) }}{% endfor %}", "'recursive' marker"},
        {"{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", "takes not more than 1 argument(s)"},
        {"{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}", "no such keyword argument"},
        {"{{ 'abc'|truncate(2) }}", "a length of 3 or more"},
        {"{% set x = 1 %}{% set x.y = 2 %}", "non-namespace"},
        {"{{ 9223372036854775807 + 1 }}", "64 bits"},
        {"{{ '9223372036854775808'|int }}", "64 bits"},
        {"{{ '%d' % 1e400 }}", "a whole number of 64 bits"},
        {"{{ '%x' % 1.5 }}", "%x format: an integer is required, not float"},
        {"{{ '%\\0' % 5 }}", "unsupported format character"},
        {"{{ {1: 2}|attr(1) }}", "attr: a name expected, found int"},
        {"{{ ({'a': {'b': 1}}|attr('a')).b }}", "has no attribute 'a'"},
        {"{{ {'b': 1}|dictsort(by='zz') }}", "either \"key\" or \"value\""},
        {"{{ [{'k': 'x'}, {}]|groupby('k', default=none) }}", "has no attribute 'k'"},
        {"{{ 1e30|int }}", "64 bits"},
        {"{{ range(1000000) }}", "Range too big"},
        {"{{ range(0 - 9223372036854775807, 9223372036854775807) }}", "Range too big"},
        {"{% macro f() %}{% endmacro %}{{ f(**{7: 2}) }}", "keywords must be strings"},
        {"{{ dict(**{none: 2}) }}", "keywords must be strings"},
    };
    check_failing(cases, ARRAY_LEN(cases));
}

// Templates that run for ever, use too much memory or are nested too deeply.
static void test_bounds(void **state) {
    (void)state;
    static const char *const sources[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}",
        "{% set n = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
        "{{ 'a' * 9223372036854775807 }}",
        "{{ [1] * 9223372036854775807 }}",
        "{{ 'a'|center(9223372036854775807) }}",
        "{{ '%1000000000s' % 'a' }}",
        "{{ ('a' * 100000)|replace('', 'b' * 100000) }}",
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
        "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x|tojson }}{{ ns.x == ns.x }}",
        "{{ [[1]|list * 1000] * 100000 }}",
        "{{ range(99999)|list|tojson(indent=1000) }}",
    };
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        Result r = render(sources[i], "hi");
        if (r.st.code != QUILL_MODEL) fail_msg("%s: %d", sources[i], r.st.code);
        result_free(&r);
    }
    static const char *const repeated[] = {"(",
                                           "[",
                                           "{",
                                           "{{",
                                           "{%if 1%}",
                                           "-",
                                           "not ",
                                           "a.b.",
                                           "1+",
                                           "'a'~",
                                           "{%for x in y%}",
                                           "x|trim|",
                                           "((",
                                           "x if x else ",
                                           "{#",
                                           "\\",
                                           "{% raw %}",
                                           "[1,",
                                           "f(",
                                           "a["};
    for (size_t i = 0; i < ARRAY_LEN(repeated); i++) {
        Buf source = {0};
        buf_str(&source, repeated[i][0] == '{' && repeated[i][1] ? "" : "{{ ");
        for (int k = 0; k < 400000; k++) buf_str(&source, repeated[i]); // nested more deeply than any stack allows
        Result r = render_within(source.data, source.n, "hi", 64 << 20, 2000000);
        assert_int_equal(r.st.code, QUILL_MODEL);
        result_free(&r);
        buf_free(&source);
    }
}

// ---- bytes of messages stay untrusted -------------------------------------------------------------------------------

// No template below writes one of the characters of the user's texts.
static bool is_users(char c) { return c && strchr("qzQZ9~", c); }

static void check_provenance(const char *source) {
    static const char user[] = "Qz~ %Y|{}qZ%s9";
    Result r = render_within(source, strlen(source), user, 1 << 20, 20000);
    for (size_t i = 0; i < r.text.n; i++)
        if (is_users(r.text.data[i]) && r.trusted.data[i])
            fail_msg("%s: byte %zu of \"%s\" is the user's, and trusted", source, i, r.text.data);
    result_free(&r);
}

// Arguments of functions: texts, numbers and collections of the user, and some of the template.
static const char *const values[] = {
    "u", "[u, u, 'b']", "{'k': u, u: 1}", "(u[-1]|int * 11)", "u[-1]|int", "u[:1]", "'b'", "'%s {} %d'", "3"};

// Prints a value and its contents.
static void check_value(const char *value) {
    char source[700];
    static const char *const shapes[] = {
        "{{ %s }}", "{%% for x in %s %%}{{ x }}{%% for y in x %%}{{ y }}{%% endfor %%}{%% endfor %%}",
        "{%% set v = %s %%}{{ v ~ '' }}{{ v() if v is callable }}{{ v() if v is callable }}{{ v.next() }}"};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        snprintf(source, sizeof source, shapes[i], value);
        check_provenance(source);
    }
}

// Calls a function with zero to two arguments in every combination, and with three equal ones. `form` takes the value
// that is called on (some functions need none), the name and the arguments.
static int check_calls(BuiltinTable table, const char *form, const char *of) {
    enum { N = ARRAY_LEN(values), PAIRS = 1 + N + N * N }; // numbers written with the digits 1 to N; 111 is PAIRS
    for (size_t f = 0; f < table.n; f++)
        for (size_t i = 0; i < PAIRS + N; i++) {
            size_t k = i < PAIRS ? i : PAIRS * (i - PAIRS + 1);
            char args[200] = "", call[400];
            for (size_t left = k; left > 0; left = (left - 1) / N) {
                if (*args) strcat(args, ", ");
                strcat(args, values[(left - 1) % N]);
            }
            snprintf(call, sizeof call, form, of, table.rows[f].name, args);
            check_value(call);
        }
    return (int)table.n;
}

static void test_provenance(void **state) {
    (void)state;
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(values); i++) n = check_calls(builtin_filters(), "(%s|%s(%s))", values[i]);
    n += check_calls(builtin_functions(), "(%.0s%s(%s))", "");
    n += check_calls(builtin_methods(V_STRING), "(%s).%s(%s)", "u");
    check_calls(builtin_methods(V_STRING), "(%s).%s(%s)", "'ab{}%s'");
    n += check_calls(builtin_methods(V_DICT), "(%s).%s(%s)", "{'k': u, u: 1}");
    n += check_calls(builtin_methods(V_LIST), "(%s).%s(%s)", "[u, 'b']");
    n += check_calls(builtin_methods(V_CYCLER), "(%s).%s(%s)", "cycler(u, 'b')");
    // Jinja's tests give only true and false, and `loop` has two methods.
    BuiltinTable tests = builtin_tests(), loop = builtin_methods(V_LOOP);
    for (size_t i = 0; i < tests.n; i++) {
        char source[200];
        snprintf(source, sizeof source, "{{ u is %s }}{{ u is %s(u) }}", tests.rows[i].name, tests.rows[i].name);
        check_provenance(source);
    }
    for (size_t i = 0; i < loop.n; i++) {
        char source[200];
        snprintf(source, sizeof source, "{%% for x in u %%}{{ loop.%s(u, x) }}{{ loop.previtem }}{%% endfor %%}",
                 loop.rows[i].name);
        check_provenance(source);
    }
    assert_true(n > 90);
}

// ---- time -----------------------------------------------------------------------------------------------------------

// With the step limit of a conversation's template, each template must end within seconds.
static void test_step_budget(void **state) {
    (void)state;
    Buf many = {0};
    for (int i = 0; i < 100000; i++) buf_printf(&many, "{%% set v%d = 1 %%}", i);
    buf_str(&many, "{% for a in range(10) %}{% for b in range(100000) %}{% if v0 and v99999 and not v5 %}x{% endif %}"
                   "{% endfor %}{% endfor %}");
    Buf sources[6] = {many};
    static const char *const bodies[] = {"x.strip(y)", "x.rfind(y)", "x.startswith(x)", "x.isalpha()",
                                         "x|upper|length"};
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++)
        buf_printf(&sources[i + 1],
                   "{%% set x = 'a' * 1000000 %%}{%% set y = 'a' * 400000 ~ 'b' %%}{%% for a in range(1000) %%}"
                   "{%% for b in range(100000) %%}{%% set z = %s %%}{%% endfor %%}{%% endfor %%}",
                   bodies[i]);
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
        clock_t start = clock(); // CPU time of this process, so that other load has no effect
        Result r = render_within(sources[i].data, sources[i].n, "hi", 256 << 20, 20000000);
        double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        print_message("%.40s...: %.2f s, %s\n", i ? bodies[i - 1] : "100,000 variables", seconds,
                      r.st.code ? r.st.message : "done");
        assert_true(seconds < 20);
        assert_int_equal(r.st.code, i ? QUILL_MODEL : QUILL_OK);
        result_free(&r);
        buf_free(&sources[i]);
    }
}

// Every beginning of a template, and bytes that are not UTF-8.
static void test_cut_off(void **state) {
    (void)state;
    static const char source[] = "{%- macro f(a, b=[1, {'x': 2}]) -%}{{ a ~ b|tojson(indent=2) }}{%- endmacro %}\n{% "
                                 "for m in messages if m.role != 'x' %}"
                                 "{{- f(m.content[::-1]|upper, b=1 if loop.first else none) }}{# c #}{% else %}{% raw "
                                 "%}{{{% endraw %}{% endfor %}\xff\xc3{{ u.split('\\u00e9') }}";
    for (size_t n = 0; n <= sizeof source - 1; n++) {
        Result r = render_within(source, n, "\xff\xe4\xb8 caf\xc3\xa9", 1 << 20, 100000);
        assert_true(r.st.code == QUILL_OK || r.st.code == QUILL_MODEL);
        result_free(&r);
    }
    // Memory and steps may run out anywhere.
    for (size_t room = 0; room < 6000; room += 16) {
        Result r = render_within(source, sizeof source - 1, "hi", room, (int64_t)room / 8);
        assert_true(r.st.code == QUILL_OK || r.st.code == QUILL_MODEL);
        result_free(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prints),  cmocka_unit_test(test_rare_parts),    cmocka_unit_test(test_trust),
        cmocka_unit_test(test_errors),  cmocka_unit_test(test_syntax_errors), cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_cut_off), cmocka_unit_test(test_provenance),    cmocka_unit_test(test_step_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
