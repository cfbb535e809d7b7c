// hf/regex.c: see hf/regex.h.
#include "hf/regex.h"

#include <string.h>

// The characters of Oniguruma's \s and \w, for use inside a class.
#define WHITE "\\p{Z}\\t-\\r\\x{85}"
#define WORD "\\p{L}\\p{M}\\p{N}\\p{Pc}"
#define IN_WORD "(?=[" WORD "])"
#define NOT_IN_WORD "(?![" WORD "])"
#define AFTER_WORD "(?<=[" WORD "])"
#define NOT_AFTER_WORD "(?<![" WORD "])"

static Status refuse(const char *name, const char *pattern, const char *what) {
    return status_error(QUILL_MODEL, "%s: pre_tokenizer: a regular expression without %s expected, found %.200s", name,
                        what, pattern);
}

// Translates the escape \c. NULL: it stays as it is. *bad: it has another meaning in PCRE2 and cannot be translated.
static const char *translate(char c, bool in_class, const char **bad) {
    switch (c) {
    case 's': return in_class ? WHITE : "[" WHITE "]";
    case 'S': return in_class ? (*bad = "\\S inside of [...]", NULL) : "[^" WHITE "]";
    case 'w': return in_class ? WORD : "[" WORD "]";
    case 'W': return in_class ? (*bad = "\\W inside of [...]", NULL) : "[^" WORD "]";
    case 'v': return "\\x0b";
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

// Whether a {m,n}+ begins at s. Oniguruma repeats the repetition; PCRE2 makes it possessive.
static bool repeats_repetition(const char *s, const char *pattern) {
    size_t n = *s == '{' ? strspn(s + 1, "0123456789,") : 0;
    bool code = s - pattern >= 2 && s[-1] == 'x' && s[-2] == '\\';
    return n > 0 && !code && s[n + 1] == '}' && s[n + 2] == '+';
}

// Whether the group at s, "(?...", sets Ruby's option m, with which a dot matches line ends.
static bool sets_m(const char *s) {
    if (strncmp(s, "(?", 2) != 0) return false;
    size_t n = strspn(s + 2, "imx-");
    return memchr(s + 2, 'm', n) && (s[2 + n] == ':' || s[2 + n] == ')');
}

Status hf_regex(const char *name, const char *pattern, Buf *out) {
    bool in_class = false;
    for (const char *s = pattern; *s; s++) {
        if (*s == '\\' && s[1]) {
            const char *bad = NULL, *other = translate(*++s, in_class, &bad);
            if (bad) return refuse(name, pattern, bad);
            size_t n = *s == 'p' || *s == 'P' ? translate_script(s, out) : 0;
            if (n) {
                s += n - 1;
                continue;
            }
            if (other) buf_str(out, other);
            else buf_append(out, s - 1, 2);
            continue;
        }
        if (in_class && *s == '[' && s[1] != ':') return refuse(name, pattern, "a set inside of a set");
        if (in_class && *s == '&' && s[1] == '&') return refuse(name, pattern, "&& inside of [...]");
        if (!in_class && sets_m(s)) return refuse(name, pattern, "(?m)");
        if (!in_class && repeats_repetition(s, pattern)) return refuse(name, pattern, "+ behind {m,n}");
        buf_append(out, s, 1);
        if (in_class && *s == '[') { // a class such as [:alpha:]
            const char *end = strstr(s, ":]");
            if (!end) return refuse(name, pattern, "a set inside of a set");
            buf_append(out, s + 1, (size_t)(end + 2 - (s + 1)));
            s = end + 1;
        } else if (in_class && *s == ']') in_class = false;
        else if (!in_class && *s == '[') {
            in_class = true;
            if (s[1] == '^') buf_append(out, ++s, 1);
            if (s[1] == ']') buf_append(out, ++s, 1); // a ] right after [ is a member of the class
        }
    }
    return OK;
}
