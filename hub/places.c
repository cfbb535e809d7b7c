// hub/places.c: see hub/places.h.
#define _GNU_SOURCE
#include "hub/places.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

// Appends a path from the environment, with ~/ replaced by the home directory. False: not set, or empty.
static bool from_environment(const char *variable, Buf *out) {
    const char *value = getenv(variable), *home = getenv("HOME");
    if (!value || !*value) return false;
    if (strncmp(value, "~/", 2) == 0 && home) buf_printf(out, "%s%s", home, value + 1);
    else buf_str(out, value);
    return true;
}

static Status home_dir(Buf *out) {
    if (from_environment("HF_HOME", out)) return OK;
    if (from_environment("XDG_CACHE_HOME", out)) buf_str(out, "/huggingface");
    else if (from_environment("HOME", out)) buf_str(out, "/.cache/huggingface");
    else return status_error(QUILL_USAGE, "the Hugging Face cache: HF_HOME or HOME expected, neither is set");
    return OK;
}

Status hub_places_cache(Buf *out) {
    if (from_environment("HF_HUB_CACHE", out) || from_environment("HUGGINGFACE_HUB_CACHE", out)) return OK;
    TRY(home_dir(out));
    buf_str(out, "/hub");
    return OK;
}

const char *hub_places_offline(void) {
    static const char *const yes[] = {"1", "on", "yes", "true"};
    const char *name = "HF_HUB_OFFLINE", *value = getenv(name);
    if (!value || !*value) value = getenv(name = "TRANSFORMERS_OFFLINE");
    for (size_t i = 0; value && i < ARRAY_LEN(yes); i++)
        if (strcasecmp(value, yes[i]) == 0) return name;
    return NULL;
}

// Copies the token without white space around it. Other white space is refused: it could end the header's line.
static Status plain_token(const char *where, const char *text, char **out) {
    while (isspace((unsigned char)*text)) text++;
    size_t n = strlen(text);
    while (n && isspace((unsigned char)text[n - 1])) n--;
    for (size_t i = 0; i < n; i++)
        if (text[i] <= 0x20 || text[i] >= 0x7f)
            return status_error(QUILL_USAGE, "%s: a token of printable ASCII characters expected, another found",
                                where);
    if (n) *out = mem_copy(text, n);
    return OK;
}

Status hub_places_token(char **out) {
    const char *said = getenv("HF_TOKEN");
    *out = NULL;
    if (said && *said) return plain_token("HF_TOKEN", said, out);
    Buf path = {0}, text = {0};
    if (!from_environment("HF_TOKEN_PATH", &path)) {
        if (home_dir(&path).code) return OK;
        buf_str(&path, "/token");
    }
    Status st = OK;
    if (access(path.data, R_OK) == 0) {
        st = file_read(path.data, &text);
        if (!st.code) st = plain_token(path.data, text.data, out);
    }
    if (text.data) explicit_bzero(text.data, text.n);
    buf_free(&text);
    buf_free(&path);
    return st;
}
