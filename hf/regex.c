// hf/regex.c: see hf/regex.h.
#include "hf/regex.h"

#include <string.h>

// The characters of Oniguruma's \s and \w, for use inside a class. Outside of a class its \w also has the numbers of
// Latin-1 that are no digits; no other number of this kind is a word's.
#define WHITE "\\p{Z}\\t-\\r\\x{85}"
#define WORD                                                                                                           \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{"    \
    "1f189}"
#define WORD_ALONE WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define IN_WORD "(?=[" WORD_ALONE "])"
#define NOT_IN_WORD "(?![" WORD_ALONE "])"
#define AFTER_WORD "(?<=[" WORD_ALONE "])"
#define NOT_AFTER_WORD "(?<![" WORD_ALONE "])"

static Status refuse(const char *name, const char *pattern, const char *what) {
    return status_error(QUILL_MODEL, "%s: pre_tokenizer: a regular expression without %s expected, found %.200s", name,
                        what, pattern);
}

// Translates the escape \c. NULL: it stays as it is. *bad: it has another meaning in PCRE2 and cannot be translated.
static const char *translate(char c, bool in_class, const char **bad) {
    switch (c) {
    case 's': return in_class ? WHITE : "[" WHITE "]";
    case 'S': return in_class ? (*bad = "\\S inside of [...]", NULL) : "[^" WHITE "]";
    case 'w': return in_class ? WORD : "[" WORD_ALONE "]";
    case 'W': return in_class ? (*bad = "\\W inside of [...]", NULL) : "[^" WORD_ALONE "]";
    case 'v': return "\\x0b";
    case 'V': *bad = "\\V"; return NULL;
    case 'b': return in_class ? NULL : "(?:" AFTER_WORD NOT_IN_WORD "|" NOT_AFTER_WORD IN_WORD ")";
    case 'B': return in_class ? NULL : "(?:" AFTER_WORD IN_WORD "|" NOT_AFTER_WORD NOT_IN_WORD ")";
    case 'h':
    case 'H': *bad = "\\h"; return NULL;
    case 'u': *bad = "\\u"; return NULL;
    default: return NULL;
    }
}

// Translates \p{Name} or \P{Name}, s at its letter, to the script's own characters: PCRE2 adds characters that several
// scripts share. Returns the number of characters read; 0: it is another property, as \p{L}.
static size_t translate_script(const char *s, Buf *out) {
    size_t no = s[1] == '{' && s[2] == '^', n = s[1] == '{' ? strcspn(s + 2 + no, "}") : 0;
    if (n < 3 || s[2 + no + n] != '}') return 0;
    buf_printf(out, "\\%c{%ssc:%.*s}", *s, no ? "^" : "", (int)n, s + 2 + no);
    return 3 + no + n;
}

// Translates the escape at s, behind its backslash. Returns the number of characters read.
static size_t translate_escape(const char *s, bool in_class, Buf *out, const char **bad) {
    const char *other = translate(*s, in_class, bad);
    bool property = *s == 'p' || *s == 'P';
    if (property && s[1] != '{') *bad = "\\p that no { follows";
    if (*s == 'N' && s[1] == '{') *bad = "\\N{"; // a character by its number, in PCRE2
    size_t n = property ? translate_script(s, out) : 0;
    if (n) return n;
    if (other) buf_str(out, other);
    else buf_append(out, s - 1, 2);
    return 1;
}

// Translates a class such as [:alpha:], at s. Returns the number of characters read.
static size_t translate_posix(const char *s, Buf *out, const char **bad) {
    static const char *const classes[][2] = {
        {"[:alpha:]", "\\p{Alphabetic}"},
        {"[:alnum:]", "\\p{Alphabetic}\\p{Nd}"},
        {"[:digit:]", "\\p{Nd}"},
        {"[:punct:]", "\\p{P}\\p{S}"},
        {"[:space:]", WHITE},
        {"[:blank:]", "\\p{Zs}\\t"},
        {"[:word:]", WORD},
        {"[:cntrl:]", "\\p{Cc}"},
        {"[:xdigit:]", "0-9A-Fa-f"},
        {"[:ascii:]", "\\x00-\\x7f"},
    };
    for (size_t i = 0; i < ARRAY_LEN(classes); i++)
        if (str_has_prefix(str_of(s), classes[i][0])) {
            buf_str(out, classes[i][1]);
            return strlen(classes[i][0]);
        }
    *bad =
        strncmp(s, "[:", 2) == 0 ? "[:^...:] and classes other than [:digit:] and its like" : "a set inside of a set";
    return 1;
}

// Whether a repetition such as {2,3} begins at s; *end is behind it.
static bool is_repetition(const char *s, const char *pattern, const char **end) {
    size_t n = *s == '{' ? strspn(s + 1, "0123456789,") : 0;
    bool code = s - pattern >= 2 && s[-1] == 'x' && s[-2] == '\\';
    *end = s + n + 2;
    return n > 0 && !code && s[n + 1] == '}';
}

// What PCRE2 understands differently at s, outside of [...]; NULL: nothing.
static const char *differs(const char *s, const char *pattern) {
    const char *end;
    if (is_repetition(s, pattern, &end)) {
        if (*end == '+') return "+ behind {m,n}";                                     // possessive in PCRE2
        if (*end == '?' && !memchr(s, ',', (size_t)(end - s))) return "? behind {n}"; // optional in Oniguruma
    }
    if (strncmp(s, "(?", 2) != 0) return NULL;
    size_t n = strspn(s + 2, "imx-");
    if (s[2 + n] != ':' && s[2 + n] != ')') return NULL;
    if (memchr(s + 2, 'm', n)) return "(?m)"; // Ruby's m: a dot matches line ends
    // Inside of an alternative Oniguruma makes a group of all that follows, with its |.
    bool begins = s == pattern || s[-1] == '|' || s[-1] == '(' || (s - pattern >= 3 && strncmp(s - 3, "(?:", 3) == 0);
    return n > 0 && s[2 + n] == ')' && !begins ? "(?i) behind another part" : NULL;
}

Status hf_regex(const char *name, const char *pattern, Buf *out) {
    bool in_class = false;
    const char *bad = NULL, *end;
    for (const char *s = pattern; *s && !bad; s++) {
        if (*s == '\\' && s[1]) {
            s += translate_escape(s + 1, in_class, out, &bad);
        } else if (in_class && *s == '[') {
            s += translate_posix(s, out, &bad) - 1;
        } else if (in_class) {
            if (*s == '&' && s[1] == '&') bad = "&& inside of [...]";
            buf_append(out, s, 1);
            in_class = *s != ']';
        } else {
            bad = differs(s, pattern);
            buf_append(out, s, 1);
            if (s[0] == '{' && s[1] == ',' && is_repetition(s, pattern, &end)) buf_str(out, "0"); // text in old PCRE2
            if (*s != '[') continue;
            in_class = true;
            if (s[1] == '^') buf_append(out, ++s, 1);
            if (s[1] == ']') buf_append(out, ++s, 1); // a ] right after [ is a member of the class
        }
    }
    return bad ? refuse(name, pattern, bad) : OK;
}
