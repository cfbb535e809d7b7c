// answer/think.c: see answer/think.h.
#define _GNU_SOURCE
#include "answer/think.h"

#include "answer/marks.h"

#include <stdint.h>
#include <string.h>

// States, also used as bit masks:
//   BEFORE   only white space so far
//   THOUGHT  in a thought
//   SAID     in the answer
//   BEHIND   after a thought, only white space since
//   WRAPPED  in an answer that ends with a marker
enum { BEFORE = 1, THOUGHT = 2, SAID = 4, BEHIND = 8, WRAPPED = 16, ANY = 31 };
enum { MOST_BETWEEN = 64, MOST_MARKER = 128 }; // the most bytes that a * matches; the most bytes of a marker

typedef struct {
    const char *text; // may have one *, which matches at most MOST_BETWEEN bytes
    unsigned from;    // the states in which it counts as a marker
    unsigned to;      // the state after it
} Marker;

struct ThinkFamily {
    Marker markers[4]; // matched in this order
    const char *also;  // another text in the templates of the family; NULL: the markers are enough
    const char *sign;  // what templates contain in place of the markers; NULL: the markers
    const char *said;  // what the * of an answer's marker stands for in a form
    bool to_tools;     // the * may also be the name of a tool, which is then called
};

static const struct ThinkFamily families[] = {
    {.also = "<response></response>", // Granite 3
     .markers = {{"<think>", BEFORE, THOUGHT},
                 {"</think>", THOUGHT, BEHIND},
                 {"<response>", BEHIND, WRAPPED},
                 {"</response>", WRAPPED, SAID}}},
    {.markers = {{"<think>", BEFORE, THOUGHT},
                 {"</think>", THOUGHT, SAID}}}, // DeepSeek-R1, Qwen3, SmolLM3 and most others
    {.markers = {{"<seed:think>", BEFORE, THOUGHT}, {"</seed:think>", THOUGHT, SAID}}}, // Seed-OSS
    {.sign = "'<think{}>'", // Hy3, whose template puts :opensource into the markers
     .also = "':opensource'",
     .markers = {{"<think:opensource>", BEFORE, THOUGHT}, {"</think:opensource>", THOUGHT, SAID}}},
    {.markers = {{"[THINK]", BEFORE, THOUGHT}, {"[/THINK]", THOUGHT, SAID}}},                  // Magistral, Ministral 3
    {.markers = {{"<thought>", BEFORE, THOUGHT}, {"</thought>", THOUGHT, SAID}}},              // EXAONE Deep
    {.markers = {{"◁think▷", BEFORE, THOUGHT}, {"◁/think▷", THOUGHT, SAID}}},                  // Kimi
    {.markers = {{"<|inner_prefix|>", BEFORE, THOUGHT}, {"<|inner_suffix|>", THOUGHT, SAID}}}, // Apertus
    {.markers = {{"<|START_THINKING|>", BEFORE, THOUGHT},                                      // Command
                 {"<|END_THINKING|>", THOUGHT, SAID},
                 {"<|START_RESPONSE|>", BEFORE | SAID, SAID},
                 {"<|END_RESPONSE|>", SAID, SAID}}},
    {.markers = {{"<|channel>thought", BEFORE, THOUGHT}, {"<channel|>", THOUGHT, SAID}}}, // Gemma 4
    {.said = "user", // Muse Glimmer, which names the recipient of everything that it writes
     .to_tools = true,
     .markers = {{"to=self<|message|>", BEFORE, THOUGHT},
                 {"to=*<|message|>", BEFORE, SAID},
                 {"<|start|>assistant", ANY, BEFORE},
                 {"<|eom|>", ANY, BEFORE}}},
    {.said = "final", // gpt-oss
     .markers = {{"<|channel|>analysis*<|message|>", ANY, THOUGHT},
                 {"<|channel|>*<|message|>", ANY, SAID},
                 {"<|start|>assistant", ANY, BEFORE},
                 {"<|end|>", ANY, BEFORE}}},
};

// ---- markers --------------------------------------------------------------------------------------------------------

#define MAYBE SIZE_MAX

// The length of the marker at the beginning of the n bytes at s. 0: no marker; MAYBE: more bytes are needed to decide.
static size_t marker_length(const char *marker, const char *s, size_t n) {
    size_t head = strcspn(marker, "*");
    if (memcmp(s, marker, n < head ? n : head) != 0) return 0;
    if (n < head) return MAYBE;
    if (!marker[head]) return head;
    const char *tail = marker + head + 1;
    size_t n_tail = strlen(tail);
    for (size_t at = head; at <= head + MOST_BETWEEN; at++) {
        size_t left = n - at;
        if (memcmp(s + at, tail, left < n_tail ? left : n_tail) == 0) return left < n_tail ? MAYBE : at + n_tail;
    }
    return 0;
}

// The length of the first marker of the family that matches (or may match) at s in one of the states; as marker_length.
// *to: the state after it.
static size_t find_marker(const struct ThinkFamily *f, unsigned states, const char *s, size_t n, unsigned *to) {
    for (size_t i = 0; f && i < ARRAY_LEN(f->markers) && f->markers[i].text; i++) {
        size_t length = f->markers[i].from & states ? marker_length(f->markers[i].text, s, n) : 0;
        *to = f->markers[i].to;
        if (length) return length;
    }
    return 0;
}

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// ---- the beginning --------------------------------------------------------------------------------------------------

static bool has_text(Str template, const char *text) {
    return !text || memmem(template.data, template.n, text, strlen(text));
}

static bool speaks_of(Str template, const Marker *m) {
    bool of_thoughts = m->text && (m->to == THOUGHT || m->from == THOUGHT);
    return of_thoughts && template.n > 0 && memmem(template.data, template.n, m->text, strcspn(m->text, "*"));
}

// Whether a template is one of the family's.
static bool is_of(Str template, const struct ThinkFamily *f) {
    bool speaks = f->sign && template.n > 0 && has_text(template, f->sign);
    for (size_t i = 0; i < ARRAY_LEN(f->markers) && !f->sign; i++)
        speaks = speaks || speaks_of(template, &f->markers[i]);
    return speaks && has_text(template, f->also);
}

ThinkStream think_begin(Str template, Str prompt) {
    ThinkStream t = {.state = BEFORE};
    for (size_t i = 0; i < ARRAY_LEN(families) && !t.family; i++)
        if (is_of(template, &families[i])) t.family = &families[i];
    while (prompt.n && is_space(prompt.data[prompt.n - 1])) prompt.n--;
    for (size_t at = prompt.n > MOST_MARKER ? prompt.n - MOST_MARKER : 0; at < prompt.n; at++) {
        unsigned to;
        if (find_marker(t.family, ANY, prompt.data + at, prompt.n - at, &to) != prompt.n - at) continue;
        t.state = to;
        t.after_marker = true;
        break;
    }
    return t;
}

// ---- the stream -----------------------------------------------------------------------------------------------------

void think_add(ThinkStream *t, const char *bytes, size_t n, bool hidden) {
    size_t left = t->held.n - t->n_given;
    if (t->n_given) {
        memmove(t->held.data, t->held.data + t->n_given, left);
        memmove(t->hidden.data, t->hidden.data + t->n_given, left);
    }
    t->held.n = t->hidden.n = left;
    t->n_given = 0;
    buf_append(&t->held, bytes, n);
    buf_append(&t->hidden, bytes, n); // grows the buffer; memset overwrites the bytes
    if (n) memset(t->hidden.data + left, hidden, n);
}

void think_end(ThinkStream *t) { t->ended = true; }

static bool give(ThinkStream *t, PartKind kind, size_t end, Part *out) {
    *out = (Part){kind, {t->held.data + t->n_given, end - t->n_given}};
    t->n_given = end;
    return true;
}

// Returns the bytes up to `end`, which are not a marker, or the first of them that are of one kind.
static bool give_text(ThinkStream *t, size_t end, Part *out) {
    size_t at = t->n_given;
    bool hidden = t->hidden.data[at];
    while (at < end && t->hidden.data[at] == hidden) at++;
    return give(t, hidden ? PART_HIDDEN : t->state == THOUGHT ? PART_THOUGHT : PART_SAID, at, out);
}

bool think_next(ThinkStream *t, Part *out) {
    const char *s = t->held.data;
    size_t n = t->held.n, at = t->n_given, length = 0;
    unsigned to = t->state;
    while (t->after_marker && at < n && (s[at] == '\n' || s[at] == '\r')) at++;
    if (at > t->n_given) return give(t, PART_MARKER, at, out);
    if (at == n) return false;
    t->after_marker = false;
    for (; at < n; at++) {
        length = find_marker(t->family, t->state, s + at, n - at, &to);
        if (length && !(length == MAYBE && t->ended)) break;
        if ((t->state & (BEFORE | BEHIND)) && !t->hidden.data[at] && !is_space(s[at])) t->state = SAID;
    }
    // White space is held back if a marker may follow it.
    size_t end = at;
    bool waits = t->family && t->state != SAID && (at < n || !t->ended);
    while (waits && end > t->n_given && !t->hidden.data[end - 1] && is_space(s[end - 1])) end--;
    if (end > t->n_given) return give_text(t, end, out);
    if (at == n || length == MAYBE) return false;
    t->state = to;
    t->after_marker = true;
    return give(t, PART_MARKER, at + length, out);
}

void think_free(ThinkStream *t) {
    buf_free(&t->held);
    buf_free(&t->hidden);
    *t = (ThinkStream){0};
}

// ---- as rules -------------------------------------------------------------------------------------------------------

typedef struct {
    const struct ThinkFamily *family;
    const Tokenizer *t;
    const Tools *tools;
    bool allowed;
    int said, rules[ANY + 1]; // rules: for each state its rule + 1; 0: not written yet
    Rules *r;
} ThinkRules;

static int spaces(Rules *r, bool lines) { // lines: line ends after a mark; otherwise white space in front of one
    CharRange some[] = {{'\n', '\n'}, {'\r', '\r'}, {' ', ' '}, {'\t', '\t'}};
    return rules_repeat(r, rules_class(r, some, lines ? 2 : 4), 0, 8);
}

// What the * of a marker stands for: in a marker of the answer Family.said or the name of a tool, otherwise nothing.
static int star_rule(ThinkRules *w, const Marker *m) {
    Rules *r = w->r;
    int ways[TOOLS_MOST + 1], n = 0;
    if (m->to != SAID) return rules_seq(r, NULL, 0);
    ways[n++] = rules_text(r, w->family->said, strlen(w->family->said));
    for (int i = 0; w->family->to_tools && w->tools && i < w->tools->n; i++)
        ways[n++] = rules_text(r, w->tools->all[i].name, strlen(w->tools->all[i].name));
    return rules_alt(r, ways, n);
}

static int marker_rule(ThinkRules *w, const Marker *m) {
    size_t head = strcspn(m->text, "*");
    int first = marks_rule(w->t, (Str){m->text, head}, w->r);
    if (!m->text[head]) return first;
    return rules_seq(w->r, (int[]){first, star_rule(w, m), marks_rule(w->t, str_of(m->text + head + 1), w->r)}, 3);
}

// Any text up to the marker, which has no *, and the marker.
static int thought_rule(ThinkRules *w, const Marker *m) {
    Buf bytes = {0};
    marks_bytes(w->t, str_of(m->text), &bytes);
    int all = rules_until(w->r, bytes.data, bytes.n);
    buf_free(&bytes);
    return all;
}

static int state_rule(ThinkRules *w, unsigned state);

static int way_through(ThinkRules *w, const Marker *m, bool thought) {
    Rules *r = w->r;
    int mark = thought ? thought_rule(w, m) : rules_pair(r, spaces(r, false), marker_rule(w, m));
    return rules_seq(r, (int[]){mark, spaces(r, true), state_rule(w, m->to)}, 3);
}

// The rule of the answer, with the optional markers around it.
static int said_rule(ThinkRules *w, unsigned state) {
    Rules *r = w->r;
    const Marker *markers = w->family->markers;
    int before = rules_seq(r, NULL, 0), behind = before;
    for (size_t i = 0; i < ARRAY_LEN(w->family->markers) && markers[i].text; i++) {
        if (!(markers[i].from & state) || markers[i].from == ANY) continue;
        int mark = marks_rule(w->t, str_of(markers[i].text), r);
        if (markers[i].from & BEFORE) before = rules_repeat(r, mark, 0, 1);
        else behind = rules_repeat(r, rules_pair(r, spaces(r, false), mark), 0, 1);
    }
    return rules_seq(r, (int[]){before, w->said, behind}, 3);
}

static int state_ways(ThinkRules *w, unsigned state) {
    int ways[ARRAY_LEN(w->family->markers) + 1], n = 0;
    const Marker *markers = w->family->markers;
    bool thought = state == THOUGHT;
    if (state == SAID || state == WRAPPED) return said_rule(w, state);
    if (!thought) ways[n++] = w->said;
    for (size_t i = 0; i < ARRAY_LEN(w->family->markers) && markers[i].text; i++) {
        const Marker *m = &markers[i];
        bool opens = m->to == THOUGHT, starred = strchr(m->text, '*') != NULL;
        if (!(m->from & state) || (thought && starred) || (opens && (thought || !w->allowed))) continue;
        ways[n++] = way_through(w, m, thought);
    }
    return rules_alt(w->r, ways, n);
}

static int state_rule(ThinkRules *w, unsigned state) {
    if (!w->rules[state]) {
        int rule = rules_anonymous(w->r, -1);
        w->rules[state] = rule + 1;
        rules_define(w->r, rule, state_ways(w, state));
    }
    return rules_call(w->r, w->rules[state] - 1);
}

int think_rules(const ThinkStream *begin, const Tokenizer *t, const Tools *tools, bool allowed, int said, Rules *r) {
    ThinkRules w = {begin->family, t, tools, allowed, .said = said, .r = r};
    return begin->family ? state_rule(&w, begin->state) : said;
}

void think_describe(const ThinkStream *begin, bool allowed, Buf *out) {
    if (begin->family) buf_printf(out, "%d:%u:%d", (int)(begin->family - families), begin->state, allowed);
}
