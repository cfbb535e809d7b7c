// jinja/text.c: see jinja/text.h.
#define _GNU_SOURCE
#include "jinja/text.h"

#include <ctype.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <wctype.h>

// ---- building strings -----------------------------------------------------------------------------------------------

static bool room_for(TextOut *o, size_t n) {
    return heap_work(o->h, n / 64) && heap_fits(o->h, n > SIZE_MAX / 8 ? n : (o->bytes.n + n) * 2);
}

void text_put(TextOut *o, MarkedText t) {
    if (!room_for(o, t.n)) return;
    size_t at = o->marks.n;
    buf_append(&o->bytes, t.data, t.n);
    buf_append(&o->marks, t.marks ? (const char *)t.marks : t.data, t.n);
    if (!t.marks && t.n) memset(o->marks.data + at, t.trusted, t.n);
}

void text_put_bytes(TextOut *o, const char *bytes, size_t n, bool trusted) {
    text_put(o, (MarkedText){.data = bytes, .n = n, .trusted = trusted});
}

void text_put_str(TextOut *o, const char *c_string, bool trusted) {
    text_put_bytes(o, c_string, strlen(c_string), trusted);
}

MarkedText text_done(TextOut *o) {
    size_t n = o->bytes.n;
    MarkedText t = {.data = "", .trusted = true};
    if (n && heap_fits(o->h, 2 * n)) {
        char *bytes = heap_alloc(o->h, n);
        memcpy(bytes, o->bytes.data, n);
        t = (MarkedText){.data = bytes, .n = n, .trusted = o->marks.data[0]};
        if (memchr(o->marks.data, !t.trusted, n)) {
            uint8_t *marks = heap_alloc(o->h, n);
            memcpy(marks, o->marks.data, n);
            t.marks = marks;
        }
    }
    text_drop(o);
    return t;
}

void text_drop(TextOut *o) {
    buf_free(&o->bytes);
    buf_free(&o->marks);
}

// ---- characters -----------------------------------------------------------------------------------------------------

enum { NO_CHAR = 0x110000 };

int text_char(const char *s, size_t n, uint32_t *code) {
    *code = NO_CHAR + (uint8_t)s[0];
    return int_max(1, utf8_read(s, n, code));
}

int text_encode(char out[4], uint32_t c) {
    if (c >= NO_CHAR) {
        out[0] = (char)(c - NO_CHAR);
        return 1;
    }
    return utf8_write(out, c);
}

// Python also counts the four separators of ASCII (1c to 1f) as white space.
bool text_is_space(uint32_t c) { return utf8_is_space(c) || (c >= 0x1c && c <= 0x1f); }

// A locale with the C library's Unicode tables; 0: there is none, and only ASCII is supported.
static locale_t unicode(void) {
    static locale_t l;
    static bool tried;
    if (!tried) l = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    tried = true;
    return l;
}

static bool is_class(uint32_t c, const char *name) {
    locale_t l = unicode();
    if (c >= NO_CHAR || (c >= 0x80 && !l)) return false;
    return l ? iswctype_l(c, wctype_l(name, l), l) : iswctype(c, wctype(name));
}

bool text_is_printable(uint32_t c) {
    if (c < 0x80) return c >= 0x20 && c != 0x7f;
    bool format = c == 0xad || (c >= 0x200b && c <= 0x200f) || (c >= 0x202a && c <= 0x202e) ||
                  (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xe000 && c <= 0xf8ff);
    return !format && !text_is_space(c) && is_class(c, "print");
}

static uint32_t to_case(uint32_t c, bool upper) {
    locale_t l = unicode();
    if (c >= NO_CHAR || (c >= 0x80 && !l)) return c;
    if (!l) return (uint32_t)(upper ? towupper(c) : towlower(c));
    return (uint32_t)(upper ? towupper_l(c, l) : towlower_l(c, l));
}

static bool mark_at(MarkedText t, size_t i) { return t.marks ? t.marks[i] : t.trusted; }

static bool starts_word(uint32_t c) {
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || text_is_space(c);
}

enum { A_STEP = 2 }; // bytes for each step, in functions that read a text character by character

// Python's case mappings of one letter to several characters; NULL: the letter has none.
static const char *long_case(uint32_t c, TextCase to, bool upper) {
    static const char *const ligatures[][2] = {{"FF", "Ff"},   {"FI", "Fi"}, {"FL", "Fl"}, {"FFI", "Ffi"},
                                               {"FFL", "Ffl"}, {"ST", "St"}, {"ST", "St"}}; // from U+FB00 on
    if (upper && c >= 0xfb00 && c < 0xfb00 + ARRAY_LEN(ligatures)) return ligatures[c - 0xfb00][to != CASE_UPPER];
    if (upper && c == 0xdf) return to == CASE_UPPER ? "SS" : "Ss"; // the sharp s
    if (!upper && c == 0x130) return "i\xcc\x87";                  // I with a dot: i and a combining dot
    return NULL;
}

MarkedText text_case(Heap *h, MarkedText t, TextCase to) {
    TextOut out = {.h = h};
    heap_work(h, t.n / A_STEP);
    bool begin = true; // at the beginning of a word, or of the text
    for (size_t i = 0; i < t.n && !h->failed.code;) {
        uint32_t c;
        size_t len = (size_t)text_char(t.data + i, t.n - i, &c);
        bool upper = to == CASE_UPPER || (to == CASE_SWAP && is_class(c, "lower")) ||
                     (to > CASE_LOWER && to != CASE_SWAP && begin);
        if (to == CASE_TITLE) begin = !is_class(c, "alpha");
        else begin = to == CASE_FILTER_TITLE && starts_word(c);
        char bytes[4];
        const char *longer = long_case(c, to, upper);
        if (longer) text_put_str(&out, longer, mark_at(t, i));
        else text_put_bytes(&out, bytes, (size_t)text_encode(bytes, to_case(c, upper)), mark_at(t, i));
        i += len;
    }
    return text_done(&out);
}

bool text_is(Heap *h, MarkedText t, const char *kind) {
    if (!heap_work(h, t.n / A_STEP)) return false;
    bool cased = strcmp(kind, "lower") == 0 || strcmp(kind, "upper") == 0, some = !cased && t.n > 0;
    for (size_t i = 0; i < t.n;) {
        uint32_t c;
        i += (size_t)text_char(t.data + i, t.n - i, &c);
        if (cased) {
            some = some || is_class(c, kind);
            if (is_class(c, strcmp(kind, "lower") == 0 ? "upper" : "lower")) return false;
        } else if (strcmp(kind, "space") == 0 ? !text_is_space(c) : !is_class(c, kind)) return false;
    }
    return some;
}

// ---- views and copies -----------------------------------------------------------------------------------------------

MarkedText text_cut(MarkedText t, size_t at, size_t n) {
    return (MarkedText){t.data + at, t.marks ? t.marks + at : NULL, n, t.trusted, t.markup};
}

bool text_trusted(MarkedText t) {
    if (!t.marks) return t.trusted;
    return t.n == 0 || !memchr(t.marks, 0, t.n);
}

MarkedText text_concat(Heap *h, MarkedText a, MarkedText b) {
    if (a.n == 0 && a.markup == b.markup) return b;
    if (b.n == 0 && a.markup == b.markup) return a;
    if (a.markup && !b.markup) b = text_escape(h, b);
    else if (b.markup && !a.markup) a = text_escape(h, a);
    TextOut out = {.h = h};
    text_put(&out, a);
    text_put(&out, b);
    MarkedText t = text_done(&out);
    t.markup = a.markup || b.markup;
    return t;
}

MarkedText text_repeat(Heap *h, MarkedText t, int64_t n) {
    TextOut out = {.h = h};
    for (int64_t i = 0; i < n && t.n && heap_work(h, 1); i++) text_put(&out, t);
    return text_done(&out);
}

static bool is_one_of(uint32_t c, const MarkedText *chars) {
    if (!chars) return text_is_space(c);
    for (size_t i = 0; i < chars->n;) {
        uint32_t other;
        i += (size_t)text_char(chars->data + i, chars->n - i, &other);
        if (other == c) return true;
    }
    return false;
}

// The offset at which the character that ends at `end` begins.
static size_t char_before(MarkedText t, size_t end) {
    for (size_t len = 4; len > 1; len--)
        if (len <= end && utf8_next(t.data + end - len, len) == (int)len) return end - len;
    return end - 1;
}

MarkedText text_strip(Heap *h, MarkedText t, const MarkedText *chars, bool left, bool right) {
    size_t from = 0, to = t.n, each = chars ? 1 + chars->n / A_STEP : 1; // each: steps for each character
    uint32_t c;
    while (left && from < to && heap_work(h, each)) {
        size_t len = (size_t)text_char(t.data + from, to - from, &c);
        if (!is_one_of(c, chars)) break;
        from += len;
    }
    while (right && to > from && heap_work(h, each)) {
        size_t at = char_before(t, to);
        text_char(t.data + at, to - at, &c);
        if (!is_one_of(c, chars)) break;
        to = at;
    }
    return text_cut(t, from, to - from);
}

MarkedText text_escape(Heap *h, MarkedText t) {
    static const char from[] = "&<>\"'", *const to[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    TextOut out = {.h = h};
    heap_work(h, t.n / A_STEP);
    for (size_t i = 0; i < t.n && !h->failed.code; i++) {
        const char *found = t.data[i] ? strchr(from, t.data[i]) : NULL;
        if (found) text_put_str(&out, to[found - from], mark_at(t, i));
        else text_put(&out, text_cut(t, i, 1));
    }
    MarkedText escaped = text_done(&out);
    escaped.markup = true;
    return escaped;
}

MarkedText text_pad(Heap *h, MarkedText t, int64_t width, MarkedText fill, int side) {
    int64_t n = value_length(h, value_text(h, t)), all = width > n ? width - n : 0;
    int64_t left = side < 0 ? 0 : side > 0 ? all : all / 2 + (all & width & 1);
    if (!heap_fits(h, (size_t)all) || !heap_work(h, (size_t)all / A_STEP)) return t;
    TextOut out = {.h = h};
    for (int64_t i = 0; i < left; i++) text_put(&out, fill);
    text_put(&out, t);
    for (int64_t i = left; i < all; i++) text_put(&out, fill);
    return text_done(&out);
}

// The bytes of the line break at `at`, as in Python's splitlines; 0: there is none.
static size_t break_at(MarkedText t, size_t at) {
    uint32_t c = (unsigned char)t.data[at];
    size_t n = c < 0x80 ? 1 : (size_t)text_char(t.data + at, t.n - at, &c);
    if (c == '\r') return at + 1 < t.n && t.data[at + 1] == '\n' ? 2 : 1;
    bool ascii = (c >= '\n' && c <= '\f') || (c >= 0x1c && c <= 0x1e);
    return ascii || c == 0x85 || c == 0x2028 || c == 0x2029 ? n : 0;
}

// The end of the line that begins at `at`, without its line break; *next is where the next line begins.
static size_t line_end(MarkedText t, size_t at, size_t *next) {
    size_t n = 0;
    while (at < t.n && !(n = break_at(t, at))) at++;
    *next = at + n;
    return at;
}

MarkedText text_indent(Heap *h, MarkedText t, MarkedText by, bool first, bool blank) {
    TextOut out = {.h = h};
    bool open_end = false;
    for (size_t at = 0, next; at < t.n && !h->failed.code; at = next) {
        size_t end = line_end(t, at, &next);
        open_end = next > end;
        if (at == 0 ? first : blank || end > at) text_put(&out, by);
        text_put(&out, text_cut(t, at, end - at));
        if (next > end) text_put_str(&out, "\n", mark_at(t, end));
    }
    if (blank && open_end) text_put(&out, by);
    return text_done(&out);
}

// ---- searching ------------------------------------------------------------------------------------------------------

// The offset of the first `part` at or after `at`; SIZE_MAX: there is none.
static size_t find_from(Heap *h, MarkedText t, MarkedText part, size_t at) {
    if (part.n > t.n - at) return SIZE_MAX;
    if (part.n == 0) return at;
    const char *found = memmem(t.data + at, t.n - at, part.data, part.n);
    size_t where = found ? (size_t)(found - t.data) : SIZE_MAX;
    return heap_work(h, ((found ? where : t.n) - at) / 64 + 1) ? where : SIZE_MAX;
}

// The offset of the last `part` that ends at or before `end`; SIZE_MAX: there is none.
static size_t find_back(Heap *h, MarkedText t, MarkedText part, size_t end) {
    for (size_t at = end + 1; at-- > 0;) {
        if (!heap_work(h, at % 64 == 0)) return SIZE_MAX;
        if (part.n > end - at || (part.n && t.data[at] != part.data[0])) continue;
        if (!heap_work(h, part.n / 64)) return SIZE_MAX;
        if (memcmp(t.data + at, part.data, part.n) == 0) return at;
    }
    return SIZE_MAX;
}

static int64_t chars_before(MarkedText t, size_t at) {
    int64_t n = 0;
    for (size_t i = 0; i < at; n++) i += (size_t)int_max(1, utf8_next(t.data + i, t.n - i));
    return n;
}

int64_t text_find(Heap *h, MarkedText t, MarkedText part, bool from_right) {
    size_t at = from_right ? find_back(h, t, part, t.n) : find_from(h, t, part, 0);
    return at == SIZE_MAX ? -1 : chars_before(t, at);
}

int64_t text_count(Heap *h, MarkedText t, MarkedText part) {
    if (part.n == 0) return chars_before(t, t.n) + 1;
    int64_t n = 0;
    for (size_t at = 0; (at = find_from(h, t, part, at)) != SIZE_MAX; at += part.n) n++;
    return n;
}

int64_t text_count_words(Heap *h, MarkedText t) {
    int64_t n = 0;
    bool inside = false;
    heap_work(h, t.n / A_STEP);
    for (size_t i = 0; i < t.n && !h->failed.code;) {
        uint32_t c;
        i += (size_t)text_char(t.data + i, t.n - i, &c);
        bool word = c == '_' || is_class(c, "alnum");
        n += word && !inside;
        inside = word;
    }
    return n;
}

MarkedText text_replace(Heap *h, MarkedText t, MarkedText old, MarkedText new, int64_t most) {
    TextOut out = {.h = h};
    size_t done = 0;
    for (int64_t k = 0; k != most && !h->failed.code; k++) {
        size_t at = find_from(h, t, old, done);
        if (old.n == 0 && k > 0)
            at = done < t.n ? done + (size_t)int_max(1, utf8_next(t.data + done, t.n - done)) : SIZE_MAX;
        if (at == SIZE_MAX) break;
        text_put(&out, text_cut(t, done, at - done));
        text_put(&out, new);
        done = at + old.n;
    }
    text_put(&out, text_cut(t, done, t.n - done));
    return text_done(&out);
}

// ---- splitting ------------------------------------------------------------------------------------------------------

// A growing list of texts.
typedef struct {
    Heap *h;
    Value list; // items has room for cap
    size_t cap;
} SplitParts;

static void add_part(SplitParts *p, MarkedText t) {
    List *l = p->list.list;
    if (!heap_work(p->h, 1)) return;
    if (l->n == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 8;
        if (!heap_fits(p->h, cap * sizeof(Value))) return;
        Value *items = heap_alloc(p->h, cap * sizeof *items);
        if (l->n) memcpy(items, l->items, l->n * sizeof *items);
        l->items = items;
        p->cap = cap;
    }
    l->items[l->n++] = value_text(p->h, t);
}

static SplitParts new_parts(Heap *h) { return (SplitParts){.h = h, .list = value_new_list(h, V_LIST, 0)}; }

static void reverse(List *l) {
    for (size_t i = 0; i < l->n / 2; i++) {
        Value v = l->items[i];
        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = v;
    }
}

static size_t word_end(MarkedText t, size_t at) {
    for (uint32_t c; at < t.n;) {
        size_t len = (size_t)text_char(t.data + at, t.n - at, &c);
        if (text_is_space(c)) break;
        at += len;
    }
    return at;
}

static size_t word_begin(MarkedText t, size_t end) {
    for (uint32_t c; end > 0;) {
        size_t at = char_before(t, end);
        text_char(t.data + at, end - at, &c);
        if (text_is_space(c)) break;
        end = at;
    }
    return end;
}

static void split_words(SplitParts *p, MarkedText t, int64_t most, bool from_right) {
    t = text_strip(p->h, t, NULL, !from_right, from_right);
    for (int64_t k = 0; t.n > 0 && k != most && !p->h->failed.code; k++) {
        size_t at = from_right ? word_begin(t, t.n) : word_end(t, 0);
        add_part(p, from_right ? text_cut(t, at, t.n - at) : text_cut(t, 0, at));
        t = from_right ? text_cut(t, 0, at) : text_cut(t, at, t.n - at);
        t = text_strip(p->h, t, NULL, !from_right, from_right);
    }
    if (t.n > 0) add_part(p, t);
}

static void split_at(SplitParts *p, MarkedText t, MarkedText by, int64_t most, bool from_right) {
    for (int64_t k = 0; k != most && !p->h->failed.code; k++) {
        size_t at = from_right ? find_back(p->h, t, by, t.n) : find_from(p->h, t, by, 0);
        if (at == SIZE_MAX) break;
        size_t after = at + by.n;
        add_part(p, from_right ? text_cut(t, after, t.n - after) : text_cut(t, 0, at));
        t = from_right ? text_cut(t, 0, at) : text_cut(t, after, t.n - after);
    }
    add_part(p, t);
}

Value text_split(Heap *h, MarkedText t, const MarkedText *separator, int64_t most, bool from_right) {
    SplitParts p = new_parts(h);
    if (separator && separator->n == 0) heap_fail(h, "empty separator");
    else if (separator) split_at(&p, t, *separator, most, from_right);
    else split_words(&p, t, most, from_right);
    if (from_right) reverse(p.list.list);
    return p.list;
}

Value text_lines(Heap *h, MarkedText t, bool keep_ends) {
    SplitParts p = new_parts(h);
    for (size_t at = 0, next; at < t.n && !h->failed.code; at = next) {
        size_t end = line_end(t, at, &next);
        add_part(&p, text_cut(t, at, (keep_ends ? next : end) - at));
    }
    return p.list;
}

Value text_partition(Heap *h, MarkedText t, MarkedText by, bool from_right) {
    if (by.n == 0) heap_fail(h, "empty separator");
    size_t at = from_right ? find_back(h, t, by, t.n) : find_from(h, t, by, 0);
    bool found = at != SIZE_MAX;
    SplitParts p = new_parts(h);
    add_part(&p, found ? text_cut(t, 0, at) : text_cut(t, 0, from_right ? 0 : t.n));
    add_part(&p, found ? text_cut(t, at, by.n) : text_cut(t, 0, 0)); // cut from t, so that it is trusted as t is
    add_part(&p, found ? text_cut(t, at + by.n, t.n - at - by.n) : text_cut(t, 0, from_right ? t.n : 0));
    p.list.type = V_TUPLE;
    return p.list;
}

MarkedText text_slice(Heap *h, MarkedText t, int64_t from, int64_t to, int64_t step) {
    int64_t chars = chars_before(t, t.n), i = 0;
    if (!heap_work(h, (size_t)chars / 16) || !heap_fits(h, (size_t)(chars + 1) * sizeof(size_t))) return t;
    size_t *at = mem_alloc((size_t)(chars + 1) * sizeof *at); // offsets of the characters
    for (size_t byte = 0; byte < t.n; at[i] = byte)
        byte += (size_t)int_max(1, utf8_next(t.data + byte, t.n - byte)), i++;
    MarkedText out = {.data = "", .trusted = true};
    if (step == 1) out = from < to ? text_cut(t, at[from], at[to] - at[from]) : text_cut(t, 0, 0);
    else {
        TextOut o = {.h = h};
        for (i = from; step > 0 ? i < to : i > to; i += step) text_put(&o, text_cut(t, at[i], at[i + 1] - at[i]));
        out = text_done(&o);
    }
    free(at);
    return out;
}

size_t text_width(Heap *h, Str s, size_t i, int *out) {
    for (*out = 0; i < s.n && isdigit((unsigned char)s.data[i]); i++)
        if (*out < 100000) *out = *out * 10 + s.data[i] - '0';
    if (*out > 10000) heap_fail(h, "a width of at most 10000 expected in a format, found more");
    return i;
}
