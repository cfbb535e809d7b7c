// jinja/ops.c: see jinja/ops.h.
#include "jinja/ops.h"

#include <math.h>

#include "jinja/print.h"

void op_undefined(Heap *h, Value v) { heap_fail(h, "%.*s", int_min((int)v.text->n, 400), v.text->data); }

bool op_integer(Heap *h, const char *who, Value v, int64_t *out) {
    if (value_is(v, V_UNDEFINED)) op_undefined(h, v);
    else if (!value_is(v, V_INT) && !value_is(v, V_BOOL))
        heap_fail(h, "%s: an integer expected, found %s", who, value_type_name(v));
    *out = value_is(v, V_INT) ? v.i : value_is(v, V_BOOL) ? v.b : 0;
    return !h->failed.code;
}

// ---- numbers --------------------------------------------------------------------------------------------------------

static const char *op_name(int op) {
    static char one[2];
    one[0] = (char)op;
    return op == 'F' ? "//" : op == 'P' ? "** or pow()" : one;
}

static Value cannot(Heap *h, int op, Value a, Value b) {
    heap_fail(h, "unsupported operand type(s) for %s: '%s' and '%s'", op_name(op), value_type_name(a),
              value_type_name(b));
    return value_none();
}

static double floor_mod(double a, double b) {
    double m = fmod(a, b);
    return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

static Value float_op(Heap *h, int op, double a, double b) {
    if (b == 0 && (op == '/' || op == 'F' || op == '%')) heap_fail(h, "division by zero");
    switch (op) {
    case '+': return value_float(a + b);
    case '-': return value_float(a - b);
    case '*': return value_float(a * b);
    case '/': return value_float(a / b);
    case 'F': return value_float(floor(a / b));
    case '%': return value_float(floor_mod(a, b));
    default: return value_float(pow(a, b));
    }
}

// a ** b with b >= 0. True: the result does not fit 64 bits.
static bool int_power(int64_t a, int64_t b, int64_t *out) {
    bool wraps = false;
    for (*out = 1; b > 0 && !wraps; b >>= 1) {
        if (b & 1) wraps = __builtin_mul_overflow(*out, a, out);
        if (b > 1 && __builtin_mul_overflow(a, a, &a)) wraps = true;
    }
    return wraps;
}

static Value int_op(Heap *h, int op, int64_t a, int64_t b) {
    int64_t out = 0;
    bool wraps = false, divides = op == 'F' || op == '%';
    if (op == '/' || (op == 'P' && b < 0)) return float_op(h, op, (double)a, (double)b);
    if (divides && b == 0) {
        heap_fail(h, "integer division or modulo by zero");
        return value_none();
    }
    if (op == '+') wraps = __builtin_add_overflow(a, b, &out);
    else if (op == '-') wraps = __builtin_sub_overflow(a, b, &out);
    else if (op == '*') wraps = __builtin_mul_overflow(a, b, &out);
    else if (op == 'P') wraps = int_power(a, b, &out);
    else if (b == -1) wraps = op == 'F' && __builtin_sub_overflow(0, a, &out);
    else {
        int64_t rest = a % b, down = rest != 0 && (rest < 0) != (b < 0);
        out = op == 'F' ? a / b - down : rest + down * b;
    }
    if (wraps) heap_fail(h, "an integer of 64 bits expected, found one that is larger");
    return value_int(out);
}

static int64_t whole(Value v) { return value_is(v, V_INT) ? v.i : v.b; }

static Value number_op(Heap *h, int op, Value a, Value b) {
    bool floats = value_is(a, V_FLOAT) || value_is(b, V_FLOAT);
    Value out = floats ? float_op(h, op, value_number(a), value_number(b)) : int_op(h, op, whole(a), whole(b));
    out.foreign = a.foreign || b.foreign;
    return out;
}

Value op_negative(Heap *h, Value v) {
    if (value_is(v, V_UNDEFINED)) op_undefined(h, v);
    else if (!value_is_number(v)) heap_fail(h, "bad operand type for unary -: '%s'", value_type_name(v));
    if (h->failed.code) return value_none();
    Value zero = value_is(v, V_FLOAT) ? value_float(-0.0) : value_int(0);
    return number_op(h, '-', zero, v);
}

// ---- sequences ------------------------------------------------------------------------------------------------------

static Value join_lists(Heap *h, Value a, Value b) {
    Value out = value_new_list(h, (ValueType)a.type, a.list->n + b.list->n);
    if (!heap_work(h, out.list->n / 4)) return value_none();
    for (size_t i = 0; i < a.list->n; i++) out.list->items[i] = a.list->items[i];
    for (size_t i = 0; i < b.list->n; i++) out.list->items[a.list->n + i] = b.list->items[i];
    return out;
}

static Value repeat(Heap *h, Value v, int64_t n) {
    if (value_is(v, V_STRING)) return value_text(h, text_repeat(h, *v.text, n));
    size_t each = v.list->n, total;
    if (n < 0) n = 0;
    if (!size_mul(each, (size_t)n, &total)) total = SIZE_MAX;
    Value out = value_new_list(h, (ValueType)v.type, total);
    if (!heap_work(h, out.list->n / 4)) return value_none();
    for (size_t i = 0; i < out.list->n; i++) out.list->items[i] = v.list->items[i % each];
    return out;
}

static bool repeats(Value v, Value by) {
    return (value_is(v, V_STRING) || value_is(v, V_LIST) || value_is(v, V_TUPLE)) &&
           (value_is(by, V_INT) || value_is(by, V_BOOL));
}

Value op_binary(Heap *h, int op, Value a, Value b) {
    if (h->failed.code) return value_none();
    bool lists = a.type == b.type && (value_is(a, V_LIST) || value_is(a, V_TUPLE));
    if (op == '%' && value_is(a, V_STRING)) return value_text(h, print_percent(h, *a.text, b));
    if (value_is(a, V_UNDEFINED)) op_undefined(h, a);
    else if (value_is(b, V_UNDEFINED)) op_undefined(h, b);
    if (h->failed.code) return value_none();
    if (value_is_number(a) && value_is_number(b)) return number_op(h, op, a, b);
    if (op == '+' && value_is(a, V_STRING) && value_is(b, V_STRING))
        return value_text(h, text_concat(h, *a.text, *b.text));
    if (op == '+' && lists) return join_lists(h, a, b);
    if (op == '*' && repeats(a, b)) return repeat(h, a, whole(b));
    if (op == '*' && repeats(b, a)) return repeat(h, b, whole(a));
    if (op == '+' && value_is(a, V_STRING))
        heap_fail(h, "can only concatenate str (not \"%s\") to str", value_type_name(b));
    return cannot(h, op, a, b);
}

bool op_compare(Heap *h, int op, Value a, Value b) {
    if (h->failed.code) return false;
    switch (op) {
    case '=': return value_equal(h, a, b);
    case '!': return !value_equal(h, a, b);
    case 'i': return value_contains(h, b, a);
    case 'n': return !value_contains(h, b, a);
    }
    bool nan = (value_is(a, V_FLOAT) && isnan(a.f)) || (value_is(b, V_FLOAT) && isnan(b.f));
    int order = value_compare(h, a, b, op == 'l' ? "<=" : op == 'g' ? ">=" : op == '<' ? "<" : ">");
    if (nan) return false;
    return op == '<' ? order < 0 : op == '>' ? order > 0 : op == 'l' ? order <= 0 : order >= 0;
}

// ---- subscripts -----------------------------------------------------------------------------------------------------

Value op_index(Heap *h, Value of, Value key, bool *found) {
    *found = true;
    if (value_is(of, V_DICT)) {
        bool hashes = !value_is(key, V_LIST) && !value_is(key, V_DICT);
        const Value *v = hashes ? dict_get(h, of.dict, key) : NULL;
        if (v) return *v;
    }
    bool number = value_is(key, V_INT) || value_is(key, V_BOOL);
    if (number && (value_has_index(of) || value_is(of, V_STRING))) {
        int64_t n = value_length(h, of), i = whole(key);
        if (i < 0) i += n;
        if (i >= 0 && i < n && value_is(of, V_STRING)) return value_text(h, text_slice(h, *of.text, i, i + 1, 1));
        if (i >= 0 && i < n) return of.list->items[i];
    }
    *found = false;
    return value_none();
}

// Computes a bound of a slice of n items by Python's rules.
static bool bound(Heap *h, Value v, int64_t n, int64_t step, int64_t missing, int64_t *out) {
    if (value_is(v, V_NONE) || value_is(v, V_ABSENT)) {
        *out = missing;
        return true;
    }
    if (!op_integer(h, "slice", v, out)) return false;
    int64_t least = step > 0 ? 0 : -1, most = step > 0 ? n : n - 1;
    if (*out < 0) *out += n;
    *out = *out < least ? least : *out > most ? most : *out;
    return true;
}

// The range that a slice of a range prints.
static void slice_range(Value of, int64_t from, int64_t to, int64_t step, Value *out) {
    const int64_t *r = of.list->range;
    uint64_t begin = (uint64_t)r[0], stride = (uint64_t)r[2]; // unsigned, as the end of a range may overflow
    out->list->range[0] = (int64_t)(begin + (uint64_t)from * stride);
    out->list->range[1] = (int64_t)(begin + (uint64_t)to * stride);
    out->list->range[2] = (int64_t)((uint64_t)step * stride);
    out->foreign = of.foreign;
}

Value op_slice(Heap *h, Value of, const Value parts[3]) {
    if (value_is(of, V_UNDEFINED)) op_undefined(h, of);
    else if (!value_has_index(of) && !value_is(of, V_STRING))
        heap_fail(h, "'%s' object is not subscriptable", value_type_name(of));
    if (h->failed.code) return value_none();
    int64_t n = value_length(h, of), from, to, step = 1;
    bool given = !value_is(parts[2], V_NONE) && !value_is(parts[2], V_ABSENT);
    if (given && !op_integer(h, "slice", parts[2], &step)) return value_none();
    if (step == 0) heap_fail(h, "slice step cannot be zero");
    if (step < -INT32_MAX) step = -INT32_MAX; // large enough to pass any end
    if (step > INT32_MAX) step = INT32_MAX;
    if (h->failed.code || !bound(h, parts[0], n, step, step > 0 ? 0 : n - 1, &from) ||
        !bound(h, parts[1], n, step, step > 0 ? n : -1, &to))
        return value_none();
    if (value_is(of, V_STRING)) return value_text(h, text_slice(h, *of.text, from, to, step));
    int64_t count = step > 0 ? (to - from + step - 1) / step : (from - to - step - 1) / -step;
    bool range = value_is(of, V_RANGE), tuple = value_is(of, V_TUPLE);
    Value out = value_new_list(h, range ? V_RANGE : tuple ? V_TUPLE : V_LIST, count > 0 ? (size_t)count : 0);
    if (range && !h->failed.code) slice_range(of, from, to, step, &out);
    if (!heap_work(h, out.list->n / 4)) return value_none();
    for (size_t i = 0; i < out.list->n; i++) out.list->items[i] = of.list->items[from + (int64_t)i * step];
    return out;
}
