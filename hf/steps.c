// hf/steps.c: see hf/steps.h.
#include "hf/steps.h"

#include <stdlib.h>
#include <string.h>

#include "hf/model.h"
#include "hf/regex.h"

#define SPACE_MARK "\xe2\x96\x81" // U+2581, which stands for a space

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static bool is(const json_t *object, const char *key, const char *text) {
    return strcmp(text_of(object, key), text) == 0;
}

static bool is_true(const json_t *object, const char *key, bool fallback) {
    const json_t *v = json_object_get(object, key);
    return json_is_boolean(v) ? json_is_true(v) : fallback;
}

typedef struct {
    const char *name;
    Gguf *g;
    bool marks;         // spaces are replaced by U+2581
    bool bytes;         // byte-level BPE
    const char *form;   // Unicode normal form: "NFC"
    const char *prefix; // when a space is added in front of a text: "always", "missing", "first"; NULL: never
    Buf patterns;       // each ends with a NUL
    size_t n_patterns;
    bool template; // the post-processor has a template
} HfSteps;

static Status refuse(const HfSteps *s, const char *where, const json_t *part, const char *why) {
    return status_error(QUILL_MODEL, "%s: %s: %.60s%s is not supported", s->name, where, text_of(part, "type"), why);
}

// Calls visit with a part, or with each part of a Sequence.
static Status each_part(HfSteps *s, const json_t *part, const char *list,
                        Status (*visit)(HfSteps *s, const json_t *part)) {
    size_t i;
    json_t *one;
    if (!part || json_is_null(part)) return OK;
    if (!is(part, "type", "Sequence")) return visit(s, part);
    json_array_foreach(json_object_get(part, list), i, one) TRY(visit(s, one));
    return OK;
}

// ---- the normalizer -------------------------------------------------------------------------------------------------

static Status read_normalizer(HfSteps *s, const json_t *part) {
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    for (size_t i = 0; i < ARRAY_LEN(forms); i++)
        if (is(part, "type", forms[i])) {
            if (s->form || s->marks || s->prefix) return refuse(s, "normalizer", part, " behind another part");
            s->form = forms[i];
            return OK;
        }
    const json_t *pattern = json_object_get(part, "pattern");
    if (is(part, "type", "Replace") && is(pattern, "String", " ") && is(part, "content", SPACE_MARK)) s->marks = true;
    else if (is(part, "type", "Prepend") && is(part, "prepend", SPACE_MARK) && !s->prefix) s->prefix = "always";
    else return refuse(s, "normalizer", part, is(part, "type", "Replace") ? " of other texts than a space" : "");
    return OK;
}

// ---- the pre-tokenizer ----------------------------------------------------------------------------------------------

static void add_pattern(HfSteps *s, const char *pattern) {
    buf_append(&s->patterns, pattern, strlen(pattern) + 1);
    s->n_patterns++;
}

static Status read_regex(HfSteps *s, const char *pattern) {
    Buf translated = {0};
    buf_str(&translated, "");
    Status st = hf_regex(s->name, pattern, &translated);
    if (!st.code) add_pattern(s, translated.data);
    buf_free(&translated);
    return st;
}

static Status read_split(HfSteps *s, const json_t *part) {
    const json_t *pattern = json_object_get(part, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *string = json_string_value(json_object_get(pattern, "String"));
    if (string && s->marks && strcmp(string, " ") == 0) return OK; // the normalizer has replaced spaces already
    bool isolated = is(part, "behavior", "Isolated");
    // "Removed" with `invert` keeps only matches; tokenizers use it with patterns that match all of the text.
    bool matches = is(part, "behavior", "Removed") && is_true(part, "invert", false);
    if (!isolated && !matches) return refuse(s, "pre_tokenizer", part, " with another behavior than Isolated");
    if (s->marks) return refuse(s, "pre_tokenizer", part, " of text whose spaces are replaced");
    if (regex) return read_regex(s, regex);
    if (!string || !*string) return refuse(s, "pre_tokenizer", part, " without a pattern");
    Buf quoted = {0};
    for (const char *c = string; *c; c++) {
        if (strchr("\\^$.[]|()?*+{}-# ", *c)) buf_str(&quoted, "\\");
        buf_append(&quoted, c, 1);
    }
    add_pattern(s, quoted.data);
    buf_free(&quoted);
    return OK;
}

static Status read_metaspace(HfSteps *s, const json_t *part) {
    if (s->marks || s->n_patterns) return refuse(s, "pre_tokenizer", part, " behind another part");
    if (!is(part, "replacement", SPACE_MARK)) return refuse(s, "pre_tokenizer", part, " with another character");
    s->marks = true;
    bool prepends = is_true(part, "add_prefix_space", true); // files from before 2024
    bool first = is(part, "prepend_scheme", "first"), never = is(part, "prepend_scheme", "never");
    if (json_object_get(part, "prepend_scheme")) prepends = !never;
    if (prepends && !s->prefix) s->prefix = first ? "first" : "missing"; // behind Prepend no text lacks a space
    if (is_true(part, "split", true)) add_pattern(s, " [^ ]*");          // pieces begin with a space
    return OK;
}

static Status read_pretokenizer(HfSteps *s, const json_t *part) {
    if (s->bytes) return refuse(s, "pre_tokenizer", part, " behind ByteLevel");
    if (is(part, "type", "Split")) return read_split(s, part);
    if (is(part, "type", "Metaspace")) return read_metaspace(s, part);
    if (is(part, "type", "Digits")) {
        add_pattern(s, is_true(part, "individual_digits", false) ? "\\p{N}" : "\\p{N}+");
        return OK;
    }
    if (!is(part, "type", "ByteLevel")) return refuse(s, "pre_tokenizer", part, "");
    if (s->marks) return refuse(s, "pre_tokenizer", part, " of text whose spaces are replaced");
    if (is_true(part, "add_prefix_space", false)) return refuse(s, "pre_tokenizer", part, " with add_prefix_space");
    s->bytes = true;
    if (!is_true(part, "use_regex", true)) return OK;
    return read_regex(s, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+");
}

// ---- the post-processor ---------------------------------------------------------------------------------------------

static bool has_ids(const json_t *tokens, const char *name) {
    return json_array_size(json_object_get(json_object_get(tokens, name), "ids")) > 1;
}

// The id of a template's special token; -1: `name` is "", or the list of tokens does not have it.
static int template_id(const json_t *tokens, const char *name) {
    return hf_config_id(json_array_get(json_object_get(json_object_get(tokens, name), "ids"), 0));
}

// Reads the tokens that are put in front of and after a text. ByteLevel does not change ids.
static Status read_postprocessor(HfSteps *s, const json_t *part) {
    if (is(part, "type", "ByteLevel")) return OK;
    if (!is(part, "type", "TemplateProcessing")) return refuse(s, "post_processor", part, "");
    const json_t *single = json_object_get(part, "single"), *tokens = json_object_get(part, "special_tokens");
    size_t n = json_array_size(single), n_before = 0;
    while (n_before < n && json_object_get(json_array_get(single, n_before), "SpecialToken")) n_before++;
    if (n_before > 1 || n > n_before + 2)
        return refuse(s, "post_processor", part, " with more than one token on a side");
    bool text = json_object_get(json_array_get(single, n_before), "Sequence");
    bool behind = n == n_before + 1 || json_object_get(json_array_get(single, n - 1), "SpecialToken");
    if (!text || !behind) return refuse(s, "post_processor", part, " without one text");
    if (s->template) return refuse(s, "post_processor", part, " behind another one");
    s->template = true;
    const char *first = text_of(json_object_get(json_array_get(single, 0), "SpecialToken"), "id");
    const char *last = n > 1 ? text_of(json_object_get(json_array_get(single, n - 1), "SpecialToken"), "id") : "";
    gguf_set_bool(s->g, "tokenizer.ggml.add_bos_token", *first);
    gguf_set_bool(s->g, "tokenizer.ggml.add_eos_token", *last);
    if (has_ids(tokens, first) || has_ids(tokens, last))
        return refuse(s, "post_processor", part, " whose token has several ids");
    int before = template_id(tokens, first), after = template_id(tokens, last);
    if (before >= 0) gguf_set_u32(s->g, "tokenizer.ggml.bos_token_id", (uint32_t)before);
    if (after >= 0) gguf_set_u32(s->g, "quill.tokenizer.last_id", (uint32_t)after);
    return OK;
}

// ---- everything together --------------------------------------------------------------------------------------------

static void set_keys(const HfSteps *s) {
    if (s->form) gguf_set_str(s->g, "quill.tokenizer.form", s->form);
    if (s->marks) gguf_set_bool(s->g, "tokenizer.ggml.add_space_prefix", s->prefix);
    if (s->marks && s->prefix) gguf_set_str(s->g, "quill.tokenizer.space_prefix", s->prefix);
    if (s->n_patterns == 0 && s->marks) return;
    Str *patterns = mem_alloc((s->n_patterns + 1) * sizeof *patterns);
    const char *at = s->patterns.data;
    for (size_t i = 0; i < s->n_patterns; i++, at += patterns[i - 1].n + 1) patterns[i] = str_of(at);
    gguf_set_strings(s->g, "quill.tokenizer.patterns", patterns, s->n_patterns);
    free(patterns);
}

static Status read_steps(HfSteps *s, const json_t *parts, bool byte_fallback) {
    TRY(each_part(s, json_object_get(parts, "normalizer"), "normalizers", read_normalizer));
    TRY(each_part(s, json_object_get(parts, "pre_tokenizer"), "pretokenizers", read_pretokenizer));
    if (s->prefix && !s->marks)
        return status_error(QUILL_MODEL, "%s: normalizer: Prepend without Replace is not supported", s->name);
    if (s->bytes && (s->marks || byte_fallback))
        return status_error(QUILL_MODEL, "%s: pre_tokenizer: ByteLevel with byte_fallback is not supported", s->name);
    if (!s->bytes && !s->marks)
        return status_error(QUILL_MODEL,
                            "%s: pre_tokenizer: ByteLevel, or parts that put U+2581 in place of spaces expected, found "
                            "neither",
                            s->name);
    return each_part(s, json_object_get(parts, "post_processor"), "processors", read_postprocessor);
}

Status hf_read_steps(const char *name, const json_t *parts, bool byte_fallback, Gguf *g, bool *byte_level) {
    HfSteps s = {.name = name, .g = g};
    buf_str(&s.patterns, "");
    Status st = read_steps(&s, parts, byte_fallback);
    if (!st.code) set_keys(&s);
    *byte_level = s.bytes;
    buf_free(&s.patterns);
    return st;
}
