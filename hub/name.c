// hub/name.c: see hub/name.h.
#include "hub/name.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/control.h"

// ---- repositories ---------------------------------------------------------------------------------------------------

// The part after an address of the Hub; `text` itself if it does not begin with one.
static const char *without_host(const char *text) {
    static const char *const hosts[] = {"huggingface.co/", "www.huggingface.co/", "hf.co/"};
    const char *at = strncasecmp(text, "https://", 8) == 0  ? text + 8
                     : strncasecmp(text, "http://", 7) == 0 ? text + 7
                                                            : text;
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++)
        if (strncasecmp(at, hosts[i], strlen(hosts[i])) == 0) return at + strlen(hosts[i]);
    return text;
}

// Whether the n bytes at s are a valid user or repository name.
static bool is_part(const char *s, size_t n) {
    if (n == 0 || !isalnum((unsigned char)s[0]) || s[n - 1] == '.' || s[n - 1] == '-') {
        if (n == 0 || s[0] != '_') return false; // users may begin with an underscore
    }
    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)s[i]) && !strchr("._-", s[i])) return false;
        if (i && s[i] == s[i - 1] && (s[i] == '.' || s[i] == '-')) return false;
    }
    return s[n - 1] != '.' && s[n - 1] != '-';
}

static bool set_text(char *out, size_t most, const char *s, size_t n) {
    if (n > most) return false;
    memcpy(out, s, n);
    out[n] = 0;
    return true;
}

// Parses "/blob/main/FILE" or "/resolve/main/FILE?download=true" after a repository; *tag is a view of FILE.
static bool read_address(const char *rest, Str *tag) {
    static const char *const words[] = {"/blob/main/", "/resolve/main/"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strncmp(rest, words[i], strlen(words[i])) == 0) {
            const char *file = rest + strlen(words[i]);
            *tag = (Str){file, strcspn(file, "?#")};
            return tag->n > 0;
        }
    return strcmp(rest, "/") == 0 || strcmp(rest, "/tree/main") == 0;
}

bool hub_name_read(const char *text, bool bare, HubName *out) {
    *out = (HubName){0};
    const char *at = without_host(text);
    size_t n = strcspn(at, ":/"), whole = n;
    if (!is_part(at, n)) return false;
    if (at[n] == '/') {
        size_t second = strcspn(at + n + 1, ":/?#");
        if (!is_part(at + n + 1, second)) return false;
        whole = n + 1 + second;
    } else if (!bare) return false;
    if (!set_text(out->repo, HUB_REPO_MOST, at, whole)) return false;
    const char *rest = at + whole;
    Str tag = {rest, 0};
    if (*rest == ':') tag = str_of(rest + 1);
    else if (*rest && !(at[n] == '/' && read_address(rest, &tag))) return false;
    if ((*rest == ':' && tag.n == 0) || !set_text(out->tag, HUB_TAG_MOST, tag.data, tag.n)) return false;
    for (const char *c = out->tag; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) return false;
    return true;
}

Status hub_name_parse(const char *text, HubName *out) {
    if (hub_name_read(text, false, out)) return OK;
    return status_error(QUILL_USAGE,
                        "\"%.200s\": a repository of the Hugging Face Hub expected, as user/repo or user/repo:Q4_K_M",
                        text);
}

// ---- types ----------------------------------------------------------------------------------------------------------

// Length of the type at the beginning of `s`, which ends at a '-', a '.' or the end; 0: none. Types are Q4_0, Q4_K_M,
// IQ4_XS, TQ1_0, F16, BF16, F32, MXFP4, MXFP4_MOE and so on.
static size_t type_length(const char *s, size_t n) {
    static const char *const floats[] = {"BF16", "FP16", "F16", "F32", "FP32", "MXFP4"};
    size_t word = 0;
    while (word < n && s[word] != '-' && s[word] != '.') word++;
    for (size_t i = 0; i < ARRAY_LEN(floats); i++) {
        size_t m = strlen(floats[i]);
        if (word >= m && strncasecmp(s, floats[i], m) == 0 && (word == m || s[m] == '_')) return word;
    }
    size_t at = word && strchr("iItT", s[0]) ? 1 : 0;
    if (word < at + 4 || (s[at] != 'q' && s[at] != 'Q') || !isdigit((unsigned char)s[at + 1]) || s[at + 2] != '_')
        return 0;
    for (size_t i = at + 3; i < word; i++)
        if (!isalnum((unsigned char)s[i]) && s[i] != '_') return 0;
    return word;
}

void hub_name_type(const char *path, char type[HUB_TYPE_MOST + 1]) {
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    size_t n = strlen(base), from = 0, length = 0;
    for (size_t at = 0; at < n; at++) { // the last one counts
        bool begins = at == 0 || strchr("-._", base[at - 1]);
        size_t word = begins ? type_length(base + at, n - at) : 0;
        if (word == 0) continue;
        from = at;
        length = word;
        at += word - 1;
    }
    bool own = from >= 3 && strncasecmp(base + from - 3, "UD-", 3) == 0; // Unsloth's own mixes
    if (own) from -= 3, length += 3;
    if (length > HUB_TYPE_MOST) length = 0;
    for (size_t i = 0; i < length; i++) type[i] = (char)toupper((unsigned char)base[from + i]);
    type[length] = 0;
}

bool hub_name_is_safe_path(const char *path) {
    size_t n = strlen(path);
    if (n == 0 || n > 1000) return false;
    for (const char *part = path;; part++) {
        size_t m = strcspn(part, "/");
        if (m == 0 || m > 255 || (m == 1 && part[0] == '.') || (m == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        for (size_t i = 0; i < m; i++)
            if (control_length(part + i) || part[i] == '\\') return false;
        part += m;
        if (!*part) return true;
    }
}
