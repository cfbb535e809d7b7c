// jinja/parse.c: see jinja/parse.h. One function for each level of the grammar; the heap's depth limits nesting.
#include "jinja/parse.h"

#include <stdio.h>
#include <string.h>

#include "jinja/lex.h"
#include "jinja/number.h"

typedef struct {
    Heap *h;
    Lexer lexer;
    LexToken now, ahead;
    int loops; // number of enclosing for loops, for break and continue
    int takes; // TAKES_ of the enclosing function
} Parser;

static void advance(Parser *p) {
    p->now = p->ahead;
    p->ahead = lex_next(&p->lexer);
    if (p->h->failed.code) p->now = p->ahead = (LexToken){.kind = LEX_END, .text = {"", 0}, .line = p->now.line};
}

static void fail(Parser *p, const char *expected) {
    p->h->line = p->now.line;
    if (p->now.kind == LEX_END) heap_fail(p->h, "%s expected, found the end of the template", expected);
    else
        heap_fail(p->h, "%s expected, found \"%.*s\"", expected, int_min((int)p->now.text.n, 40),
                  p->now.text.n ? p->now.text.data : "");
    p->now = p->ahead = (LexToken){.kind = LEX_END, .text = {"", 0}, .line = p->now.line};
}

static bool is_op(const LexToken *t, const char *op) { return t->kind == LEX_OPERATOR && str_is(t->text, op); }
static bool is_name(const LexToken *t, const char *name) { return t->kind == LEX_NAME && str_is(t->text, name); }

static bool skip_op(Parser *p, const char *op) {
    bool found = is_op(&p->now, op);
    if (found) advance(p);
    return found;
}

static bool skip_name(Parser *p, const char *name) {
    bool found = is_name(&p->now, name);
    if (found) advance(p);
    return found;
}

static void expect_op(Parser *p, const char *op) {
    if (!skip_op(p, op)) fail(p, op);
}

static Str expect_name(Parser *p) {
    Str name = p->now.text;
    if (p->now.kind == LEX_NAME) advance(p);
    else fail(p, "a name");
    return name;
}

static Node *new_node(Parser *p, NodeKind kind) {
    Node *n = heap_alloc(p->h, sizeof *n);
    n->kind = kind;
    n->line = p->now.line;
    n->name = n->field = (Str){"", 0};
    return n;
}

static Node *new_pair(Parser *p, NodeKind kind, Node *a, Node *b) {
    Node *n = new_node(p, kind);
    n->a = a;
    n->b = b;
    return n;
}

// Appends to a list; `tail` points to the last next pointer. Returns the new tail.
static Node **append_node(Node **tail, Node *n) {
    *tail = n;
    return &n->next;
}

// ---- literals and brackets ------------------------------------------------------------------------------------------

static Node *parse_expression(Parser *p);
static Node *parse_level(Parser *p, int level);

static Node *parse_number(Parser *p) {
    Node *n = new_node(p, N_CONST);
    bool whole = p->now.kind == LEX_INTEGER;
    n->value = whole ? value_int(0) : value_float(0);
    if (whole ? number_integer(p->now.text, 0, &n->value.i) != NUMBER_FITS : !number_float(p->now.text, &n->value.f))
        fail(p, "a number of 64 bits");
    advance(p);
    return n;
}

static Node *parse_string(Parser *p) {
    Node *n = new_node(p, N_CONST);
    MarkedText all = {.data = "", .trusted = true};
    while (p->now.kind == LEX_STRING) { // adjacent strings are concatenated
        MarkedText more = lex_unescape(p->h, p->now.text);
        if (all.n) {
            char *both = heap_alloc(p->h, all.n + more.n);
            memcpy(both, all.data, all.n);
            memcpy(both + all.n, more.data, more.n);
            more = (MarkedText){.data = both, .n = all.n + more.n, .trusted = true};
        }
        all = more;
        advance(p);
    }
    n->value = value_text(p->h, all);
    return n;
}

// Whether the current token ends a tuple without brackets.
static bool at_tuple_end(const Parser *p) {
    const LexToken *t = &p->now;
    return t->kind == LEX_END || t->kind == LEX_VAR_END || t->kind == LEX_BLOCK_END || is_op(t, ")") ||
           is_name(t, "in");
}

typedef Node *ParsePart(Parser *p);

// Parses one part, or several parts separated by commas as a tuple.
static Node *parse_tuple(Parser *p, ParsePart *part, bool may_be_empty) {
    Node *tuple = new_node(p, N_TUPLE), **tail = &tuple->items;
    bool comma = false;
    while (!at_tuple_end(p)) {
        tail = append_node(tail, part(p));
        if (!skip_op(p, ",")) break;
        comma = true;
    }
    if (!tuple->items && !may_be_empty) fail(p, "an expression");
    return comma || !tuple->items ? tuple : tuple->items;
}

static Node *parse_list(Parser *p) {
    Node *list = new_node(p, N_LIST), **tail = &list->items;
    expect_op(p, "[");
    while (p->now.kind != LEX_END && !is_op(&p->now, "]")) {
        tail = append_node(tail, parse_expression(p));
        if (!skip_op(p, ",")) break;
    }
    expect_op(p, "]");
    return list;
}

static Node *parse_dict(Parser *p) {
    Node *dict = new_node(p, N_DICT), **tail = &dict->items;
    expect_op(p, "{");
    while (p->now.kind != LEX_END && !is_op(&p->now, "}")) {
        tail = append_node(tail, parse_expression(p));
        expect_op(p, ":");
        tail = append_node(tail, parse_expression(p));
        if (!skip_op(p, ",")) break;
    }
    expect_op(p, "}");
    return dict;
}

static int takes_of(Str name) {
    return str_is(name, "varargs") ? TAKES_MORE : str_is(name, "kwargs") ? TAKES_NAMED : 0;
}

static Node *parse_word(Parser *p) {
    Node *n = new_node(p, N_CONST);
    bool yes = is_name(&p->now, "true") || is_name(&p->now, "True");
    if (yes || is_name(&p->now, "false") || is_name(&p->now, "False")) n->value = value_bool(yes);
    else if (is_name(&p->now, "none") || is_name(&p->now, "None")) n->value = value_none();
    else {
        n->kind = N_NAME;
        n->name = p->now.text;
        p->takes |= takes_of(n->name);
    }
    advance(p);
    return n;
}

static Node *parse_primary(Parser *p) {
    LexKind kind = p->now.kind;
    if (kind == LEX_NAME) return parse_word(p);
    if (kind == LEX_STRING) return parse_string(p);
    if (kind == LEX_INTEGER || kind == LEX_FLOAT) return parse_number(p);
    if (is_op(&p->now, "[")) return parse_list(p);
    if (is_op(&p->now, "{")) return parse_dict(p);
    if (!is_op(&p->now, "(")) {
        fail(p, "an expression");
        return new_node(p, N_NOTHING);
    }
    advance(p);
    Node *n = parse_tuple(p, parse_expression, true);
    expect_op(p, ")");
    return n;
}

// ---- calls, subscripts, filters, tests ------------------------------------------------------------------------------

// The op of the argument at the current token; 0: by position.
static int argument_op(const Parser *p) {
    if (is_op(&p->now, "*")) return '*';
    if (is_op(&p->now, "**")) return 'P';
    return p->now.kind == LEX_NAME && is_op(&p->ahead, "=") ? '=' : 0;
}

enum { SEEN_NAME = 1, SEEN_MORE = 2, SEEN_MORE_NAMED = 4 }; // arguments of a call so far: name=, *, **

static Node *parse_argument(Parser *p, int *seen) {
    Node *n = new_node(p, N_ARGUMENT);
    n->op = argument_op(p);
    int kind = n->op == '=' ? SEEN_NAME : n->op == '*' ? SEEN_MORE : n->op ? SEEN_MORE_NAMED : 0;
    int not_after = SEEN_MORE_NAMED;
    if (n->op == '*') not_after |= SEEN_MORE;
    if (n->op == 0) not_after |= SEEN_MORE | SEEN_NAME;
    if (*seen & not_after) fail(p, "arguments by position, then by name, one * and a last **");
    *seen |= kind;
    if (n->op == '=') n->name = expect_name(p);
    if (n->op) advance(p);
    n->a = parse_expression(p);
    return n;
}

static Node *parse_arguments(Parser *p) {
    Node *first = NULL, **tail = &first;
    int seen = 0;
    expect_op(p, "(");
    while (p->now.kind != LEX_END && !is_op(&p->now, ")")) {
        tail = append_node(tail, parse_argument(p, &seen));
        if (!skip_op(p, ",")) break;
    }
    expect_op(p, ")");
    return first;
}

static Node *parse_call(Parser *p, Node *function) {
    Node *n = new_pair(p, N_CALL, function, NULL);
    n->items = parse_arguments(p);
    return n;
}

static bool at_slice_part_end(const Parser *p) {
    return is_op(&p->now, ":") || is_op(&p->now, "]") || is_op(&p->now, ",");
}

static Node *parse_subscript(Parser *p, Node *of) {
    Node *n = new_pair(p, N_INDEX, of, NULL), *parts[3] = {0};
    int n_colons = 0;
    advance(p);
    while (p->now.kind != LEX_END && n_colons < 3) {
        parts[n_colons] = at_slice_part_end(p) ? new_node(p, N_NOTHING) : parse_expression(p);
        if (!skip_op(p, ":")) break;
        n_colons++;
    }
    expect_op(p, "]");
    if (n_colons == 0) {
        n->b = parts[0];
        if (n->b && n->b->kind == N_NOTHING) fail(p, "an expression");
        return n;
    }
    n->kind = N_SLICE;
    Node **tail = &n->items;
    for (int i = 0; i < 3; i++) tail = append_node(tail, parts[i] ? parts[i] : new_node(p, N_NOTHING));
    return n;
}

static Node *parse_dot(Parser *p, Node *of) {
    Node *n = new_pair(p, N_ATTRIBUTE, of, NULL);
    advance(p);
    if (p->now.kind == LEX_INTEGER) {
        n->kind = N_INDEX;
        n->b = parse_number(p);
    } else n->name = expect_name(p);
    return n;
}

static Node *parse_postfix(Parser *p, Node *n) {
    for (;;) {
        if (is_op(&p->now, ".")) n = parse_dot(p, n);
        else if (is_op(&p->now, "[")) n = parse_subscript(p, n);
        else if (is_op(&p->now, "(")) n = parse_call(p, n);
        else return n;
    }
}

// Parses the name of a filter or test, and its arguments if there are any.
static Node *parse_filter(Parser *p, Node *of) {
    Node *n = new_pair(p, N_FILTER, of, NULL);
    n->name = expect_name(p);
    if (is_op(&p->now, "(")) n->items = parse_arguments(p);
    return n;
}

static bool starts_argument(const Parser *p) {
    const LexToken *t = &p->now;
    if (t->kind == LEX_NAME) return !is_name(t, "else") && !is_name(t, "or") && !is_name(t, "and");
    return t->kind == LEX_STRING || t->kind == LEX_INTEGER || t->kind == LEX_FLOAT || is_op(t, "[") || is_op(t, "{");
}

static Node *parse_test(Parser *p, Node *of) {
    bool negated = skip_name(p, "not");
    Node *n = new_pair(p, N_TEST, of, NULL);
    n->name = expect_name(p);
    if (is_op(&p->now, "(")) n->items = parse_arguments(p);
    else if (is_name(&p->now, "is")) fail(p, "one test");
    else if (starts_argument(p)) n->items = new_pair(p, N_ARGUMENT, parse_postfix(p, parse_primary(p)), NULL);
    return negated ? new_pair(p, N_NOT, n, NULL) : n;
}

static Node *parse_filters(Parser *p, Node *n) {
    for (;;) {
        if (skip_op(p, "|")) n = parse_filter(p, n);
        else if (skip_name(p, "is")) n = parse_test(p, n);
        else if (is_op(&p->now, "(")) n = parse_call(p, n);
        else return n;
    }
}

// Parses the filters of a block's text, each after a |. n: the filters so far, or NULL.
static Node *parse_block_filters(Parser *p, Node *n) {
    while (skip_op(p, "|")) n = parse_filter(p, n);
    return n;
}

static Node *parse_unary(Parser *p, bool with_filters) {
    if (!heap_enter(p->h)) return new_node(p, N_NOTHING);
    Node *n;
    if (skip_op(p, "-")) n = new_pair(p, N_NEGATIVE, parse_unary(p, false), NULL);
    else if (skip_op(p, "+")) n = new_pair(p, N_POSITIVE, parse_unary(p, false), NULL);
    else n = parse_primary(p);
    n = parse_postfix(p, n);
    if (with_filters) n = parse_filters(p, n);
    heap_leave(p->h);
    return n;
}

// ---- operators ------------------------------------------------------------------------------------------------------

enum { L_OR, L_AND, L_NOT, L_COMPARE, L_ADD, L_CONCAT, L_MULTIPLY, L_POWER, L_UNARY };

static int compare_op(Parser *p) {
    static const struct {
        const char *op;
        int code;
    } all[] = {{"==", '='}, {"!=", '!'}, {"<=", 'l'}, {">=", 'g'}, {"<", '<'}, {">", '>'}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (skip_op(p, all[i].op)) return all[i].code;
    if (skip_name(p, "in")) return 'i';
    if (!is_name(&p->now, "not") || !is_name(&p->ahead, "in")) return 0;
    advance(p);
    advance(p);
    return 'n';
}

static Node *parse_compare(Parser *p) {
    Node *n = parse_level(p, L_ADD), *compare = NULL, **tail = NULL;
    for (int op; (op = compare_op(p));) {
        if (!compare) {
            compare = new_pair(p, N_COMPARE, n, NULL);
            tail = &compare->items;
        }
        Node *operand = new_pair(p, N_OPERAND, parse_level(p, L_ADD), NULL);
        operand->op = op;
        tail = append_node(tail, operand);
    }
    return compare ? compare : n;
}

static Node *parse_concat(Parser *p) {
    Node *first = parse_level(p, L_MULTIPLY);
    if (!is_op(&p->now, "~")) return first;
    Node *n = new_node(p, N_CONCAT), **tail = append_node(&n->items, first);
    while (skip_op(p, "~")) tail = append_node(tail, parse_level(p, L_MULTIPLY));
    return n;
}

// The operator of this level at the current token: an op of N_BINARY, or a letter for another kind of node; 0: none.
static int binary_op(Parser *p, int level) {
    if (level == L_OR) return skip_name(p, "or") ? 'o' : 0;
    if (level == L_AND) return skip_name(p, "and") ? 'a' : 0;
    if (level == L_ADD) return skip_op(p, "+") ? '+' : skip_op(p, "-") ? '-' : 0;
    if (level == L_POWER) return skip_op(p, "**") ? 'P' : 0;
    if (skip_op(p, "//")) return 'F';
    return skip_op(p, "*") ? '*' : skip_op(p, "/") ? '/' : skip_op(p, "%") ? '%' : 0;
}

static Node *parse_binary(Parser *p, int level) {
    Node *n = parse_level(p, level + 1);
    for (int op; (op = binary_op(p, level));) {
        NodeKind kind = op == 'o' ? N_OR : op == 'a' ? N_AND : N_BINARY;
        Node *right = parse_level(p, level + 1);
        n = new_pair(p, kind, n, right);
        n->op = op;
    }
    return n;
}

static Node *parse_level(Parser *p, int level) {
    if (!heap_enter(p->h)) return new_node(p, N_NOTHING);
    Node *n;
    if (level == L_NOT && skip_name(p, "not")) n = new_pair(p, N_NOT, parse_level(p, L_NOT), NULL);
    else if (level == L_NOT) n = parse_level(p, L_COMPARE);
    else if (level == L_COMPARE) n = parse_compare(p);
    else if (level == L_CONCAT) n = parse_concat(p);
    else if (level == L_UNARY) n = parse_unary(p, true);
    else n = parse_binary(p, level);
    heap_leave(p->h);
    return n;
}

static Node *parse_plain(Parser *p) { return parse_level(p, L_OR); } // without the operator `a if b else c`

static Node *parse_expression(Parser *p) {
    if (!heap_enter(p->h)) return new_node(p, N_NOTHING); // a if b else c if d else ... recurses
    Node *n = parse_plain(p);
    while (skip_name(p, "if")) {
        Node *choice = new_pair(p, N_CHOICE, parse_plain(p), n);
        if (skip_name(p, "else")) choice->c = parse_expression(p);
        n = choice;
    }
    heap_leave(p->h);
    return n;
}

// ---- statements -----------------------------------------------------------------------------------------------------

// Parses statements up to one of the tags in `ends` (words between spaces); the tag's word stays the current token.
static Node *parse_body(Parser *p, const char *ends);

static Node *finish_body(Parser *p, const char *end) {
    char ends[32];
    snprintf(ends, sizeof ends, " %s ", end);
    Node *body = parse_body(p, ends);
    advance(p);
    return body;
}

static Node *parse_field(Parser *p) {
    if (p->now.kind != LEX_NAME || !is_op(&p->ahead, ".")) return parse_primary(p);
    Node *n = new_node(p, N_FIELD);
    n->name = expect_name(p);
    advance(p);
    n->field = expect_name(p);
    return n;
}

// Fails unless the node can be assigned to. The recursion is bounded by the parser's nesting.
static void check_target(Parser *p, const Node *n) {
    if (n->kind == N_TUPLE)
        for (const Node *part = n->items; part; part = part->next) check_target(p, part);
    else if (n->kind != N_NAME && n->kind != N_FIELD) fail(p, "a name to assign to");
}

// Parses the target of an assignment: a name, with `fields` also a field of a namespace, or a tuple of them.
static Node *parse_target(Parser *p, bool fields) {
    Node *n = parse_tuple(p, fields ? parse_field : parse_primary, false);
    check_target(p, n);
    return n;
}

static Node *parse_for(Parser *p) {
    Node *n = new_node(p, N_FOR);
    n->a = parse_target(p, false);
    if (!skip_name(p, "in")) fail(p, "in");
    n->b = parse_tuple(p, parse_plain, false);
    if (skip_name(p, "if")) n->c = parse_expression(p);
    n->op = skip_name(p, "recursive");
    p->loops++;
    n->body = parse_body(p, " endfor else ");
    p->loops--;
    bool other = is_name(&p->now, "else");
    advance(p);
    if (other) n->other = finish_body(p, "endfor");
    return n;
}

static Node *parse_if(Parser *p) {
    Node *n = new_node(p, N_IF), **tail = &n->items;
    for (;;) {
        Node *branch = new_pair(p, N_BRANCH, parse_tuple(p, parse_plain, false), NULL);
        tail = append_node(tail, branch);
        branch->body = parse_body(p, " elif else endif ");
        if (!skip_name(p, "elif")) break;
    }
    if (skip_name(p, "else")) {
        Node *branch = new_node(p, N_BRANCH);
        append_node(tail, branch);
        branch->body = finish_body(p, "endif");
    } else advance(p);
    return n;
}

static Node *parse_set(Parser *p) {
    Node *n = new_node(p, N_SET);
    n->a = parse_target(p, true);
    if (skip_op(p, "=")) {
        n->b = parse_tuple(p, parse_expression, false);
        return n;
    }
    n->kind = N_SET_BLOCK;
    n->b = parse_block_filters(p, NULL);
    n->body = finish_body(p, "endset");
    return n;
}

static Node *parse_parameters(Parser *p) {
    Node *first = NULL, **tail = &first;
    expect_op(p, "(");
    while (p->now.kind != LEX_END && !is_op(&p->now, ")")) {
        Node *n = new_node(p, N_PARAMETER);
        n->name = expect_name(p);
        if (skip_op(p, "=")) n->a = parse_expression(p);
        tail = append_node(tail, n);
        if (!skip_op(p, ",")) break;
    }
    expect_op(p, ")");
    return first;
}

// Parses the body of a function: break and continue in it do not apply to loops around it. If it uses varargs or
// kwargs, enclosing functions take them too.
static void finish_function(Parser *p, Node *n, const char *end) {
    int loops = p->loops, takes = p->takes;
    p->loops = p->takes = 0;
    n->body = finish_body(p, end);
    n->op = p->takes;
    for (const Node *at = n->items; at; at = at->next) n->op &= ~takes_of(at->name); // a parameter with the same name
    p->loops = loops;
    p->takes |= takes;
}

static Node *parse_macro(Parser *p) {
    Node *n = new_node(p, N_MACRO);
    n->name = expect_name(p);
    n->items = parse_parameters(p);
    finish_function(p, n, "endmacro");
    return n;
}

static Node *parse_call_block(Parser *p) {
    Node *n = new_node(p, N_CALL_BLOCK);
    if (is_op(&p->now, "(")) n->items = parse_parameters(p);
    n->a = parse_expression(p);
    if (n->a->kind != N_CALL) fail(p, "a call");
    finish_function(p, n, "endcall");
    return n;
}

static Node *parse_filter_block(Parser *p) {
    Node *n = new_node(p, N_FILTER_BLOCK);
    n->a = parse_block_filters(p, parse_filter(p, NULL));
    n->body = finish_body(p, "endfilter");
    return n;
}

static Node *parse_with(Parser *p) {
    Node *n = new_node(p, N_WITH), **tail = &n->items;
    while (p->now.kind == LEX_NAME) {
        Node *set = new_node(p, N_SET);
        set->a = parse_primary(p);
        if (set->a->kind != N_NAME) fail(p, "a name to assign to");
        expect_op(p, "=");
        set->b = parse_expression(p);
        tail = append_node(tail, set);
        if (!skip_op(p, ",")) break;
    }
    n->body = finish_body(p, "endwith");
    return n;
}

// generation, block, autoescape: parses only the body; the rest of the tag has no effect.
static Node *parse_scope(Parser *p, const char *end) {
    Node *n = new_node(p, N_SCOPE);
    while (p->now.kind == LEX_NAME) advance(p);
    n->body = finish_body(p, end);
    if (p->now.kind == LEX_NAME) advance(p); // the block's name may be repeated
    return n;
}

static Node *parse_jump(Parser *p, NodeKind kind) {
    if (!p->loops) fail(p, "a for loop around break and continue");
    return new_node(p, kind);
}

static Node *parse_print(Parser *p) { // {% print x %}
    return new_pair(p, N_PRINT, parse_tuple(p, parse_expression, false), NULL);
}

static Node *parse_statement(Parser *p) {
    if (skip_name(p, "for")) return parse_for(p);
    if (skip_name(p, "if")) return parse_if(p);
    if (skip_name(p, "set")) return parse_set(p);
    if (skip_name(p, "macro")) return parse_macro(p);
    if (skip_name(p, "call")) return parse_call_block(p);
    if (skip_name(p, "filter")) return parse_filter_block(p);
    if (skip_name(p, "with")) return parse_with(p);
    if (skip_name(p, "print")) return parse_print(p);
    if (skip_name(p, "break")) return parse_jump(p, N_BREAK);
    if (skip_name(p, "continue")) return parse_jump(p, N_CONTINUE);
    if (skip_name(p, "generation")) return parse_scope(p, "endgeneration");
    if (skip_name(p, "block")) return parse_scope(p, "endblock");
    if (skip_name(p, "autoescape")) return parse_scope(p, "endautoescape");
    fail(p, "a tag that templates may use (for, if, set, macro, call, filter, with)");
    return new_node(p, N_NOTHING);
}

static Node *parse_text(Parser *p) {
    Node *n = new_node(p, N_TEXT);
    n->value = value_string(p->h, p->now.text, true);
    advance(p);
    return n;
}

static Node *parse_variable(Parser *p) {
    advance(p);
    Node *n = new_node(p, N_PRINT);
    n->a = parse_tuple(p, parse_expression, false);
    if (p->now.kind == LEX_VAR_END) advance(p);
    else fail(p, "}}");
    return n;
}

static bool is_end(const Parser *p, const char *ends) {
    char word[32];
    if (!ends || p->now.kind != LEX_NAME || p->now.text.n > 20) return false;
    snprintf(word, sizeof word, " %.*s ", (int)p->now.text.n, p->now.text.data);
    return strstr(ends, word) != NULL;
}

static Node *parse_statements(Parser *p, const char *ends) {
    Node *first = NULL, **tail = &first;
    while (!p->h->failed.code) {
        if (p->now.kind == LEX_DATA) tail = append_node(tail, parse_text(p));
        else if (p->now.kind == LEX_VAR_BEGIN) tail = append_node(tail, parse_variable(p));
        else if (p->now.kind == LEX_BLOCK_BEGIN) {
            advance(p);
            if (is_end(p, ends)) return first;
            tail = append_node(tail, parse_statement(p));
            if (p->now.kind == LEX_BLOCK_END) advance(p);
            else fail(p, "%}");
        } else break;
    }
    char expected[64];
    snprintf(expected, sizeof expected, "a tag that ends the block (one of%s)", ends ? ends : "");
    if (ends) fail(p, expected);
    return first;
}

static Node *parse_body(Parser *p, const char *ends) {
    if (!heap_enter(p->h)) return NULL;
    skip_op(p, ":");
    if (p->now.kind == LEX_BLOCK_END) advance(p);
    else fail(p, "%}");
    Node *first = parse_statements(p, ends);
    heap_leave(p->h);
    return first;
}

Node *jinja_tree(Heap *h, Str source) {
    Parser p = {.h = h};
    lex_start(&p.lexer, h, source);
    advance(&p);
    advance(&p);
    Node *first = parse_statements(&p, NULL);
    if (p.now.kind != LEX_END) fail(&p, "the end of the template");
    h->line = 0;
    return h->failed.code ? NULL : first;
}
