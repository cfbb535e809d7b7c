// quantize/exchange.c: see quantize/exchange.h.
#include "quantize/exchange.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families.h"
#include "quantize/merge_scores.h"
#include "quantize/pre_name.h"

static void differ(FileExchange *e, const char *what) {
    buf_printf(&e->differs, "%s%s", e->differs.n ? "; " : "", what);
}

// ---- rows of Q and K ------------------------------------------------------------------------------------------------

// An integer of the architecture; 0: absent, or not one number.
static size_t arch_int(const Gguf *g, const Family *f, const char *suffix) {
    char key[96];
    uint32_t v = 0;
    snprintf(key, sizeof key, "%s.%s", f->arch, suffix);
    if (gguf_u32(g, key, &v, false, 0).code) return 0;
    return v;
}

static bool moves(Str name) {
    static const char *const ends[] = {".attn_q.weight", ".attn_k.weight",      ".attn_q.bias",
                                       ".attn_k.bias",   ".attn_q_norm.weight", ".attn_k_norm.weight"};
    if (!str_has_prefix(name, "blk.")) return false;
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        if (str_has_suffix(name, ends[i])) return true;
    return false;
}

// Whether each tensor of Q and K consists of whole heads, and no other tensor has such rows.
static bool whole_heads(const Gguf *g, size_t head) {
    for (int i = 0; i < gguf_n_tensors(g); i++) {
        const GgufTensor *t = gguf_tensor_at(g, i);
        Str name = t->name;
        for (size_t k = 0; k + 9 <= name.n; k++)
            if (memcmp(name.data + k, ".attn_qkv", 9) == 0) return false;
        size_t rows = (size_t)(t->n_dims == 1 ? t->dims[0] : t->dims[1]);
        if (moves(name) && (t->n_dims > 2 || t->scales || rows % head != 0)) return false;
    }
    return true;
}

// Families whose GGUF files have pairs (2i, 2i+1) get them. Compressed K (deepseek2) has other tensors and stays.
static void read_rows(FileExchange *e, const Gguf *g) {
    Str arch;
    bool halves;
    char key[96];
    if (gguf_bool(g, "quill.rope.halves", &halves, false).code || !halves) return;
    if (gguf_str(g, "general.architecture", &arch, false).code || !arch.data) return;
    const Family *f = family_find(arch);
    if (!f) return;
    size_t heads = arch_int(g, f, "attention.head_count"), head = arch_int(g, f, "attention.key_length");
    if (!head && heads) head = arch_int(g, f, "embedding_length") / heads;
    size_t n_rot = arch_int(g, f, "rope.dimension_count");
    if (!n_rot) n_rot = head;
    snprintf(key, sizeof key, "%s.rope.dimension_sections", f->arch);
    bool can = f->rope_adjacent && !f->latent && head > 0 && n_rot <= head && n_rot % 2 == 0;
    if (can && !gguf_value(g, key) && whole_heads(g, head)) e->head = head, e->n_rot = n_rot;
    else if (f->rope_adjacent) differ(e, "the order of rows of Q and K");
}

bool exchange_moves(const FileExchange *e, const GgufTensor *t) { return e->n_rot > 0 && moves(t->name); }

size_t exchange_row(const FileExchange *e, size_t row) {
    size_t at = row % e->head;
    if (at >= e->n_rot) return row;
    return row - at + at % 2 * (e->n_rot / 2) + at / 2;
}

// ---- the tokenizer --------------------------------------------------------------------------------------------------

static Str *strings_of(const Gguf *g, const char *key, size_t *n) {
    const GgufValue *v = gguf_value(g, key);
    *n = v && v->type == GGUF_ARRAY ? (size_t)v->n : 0;
    Str *out = mem_alloc((*n + 1) * sizeof *out);
    if (*n && gguf_strings(g, v, out).code) *n = 0;
    return out;
}

// Whether the source has this flag of quill's.
static bool own_flag(const Gguf *g, const char *key) {
    bool v;
    return !gguf_bool(g, key, &v, false).code && v;
}

// Byte-level BPE: the name of the patterns.
static void read_pre(FileExchange *e, const Gguf *g) {
    size_t n;
    bool exact;
    if (!gguf_value(g, "quill.tokenizer.patterns")) return;
    Str *patterns = strings_of(g, "quill.tokenizer.patterns", &n);
    const char *name = pre_name(patterns, n, own_flag(g, "quill.tokenizer.ignore_merges"), &exact);
    if (name) gguf_set_str(e->keys, "tokenizer.ggml.pre", name);
    if (name && !exact) differ(e, "where the tokenizer cuts a text with accents or marks");
    if (!name) differ(e, "where the tokenizer cuts a text, for which there is no name");
    free(patterns);
}

// Text whose spaces are U+2581: scores in place of merges.
static void read_scores(FileExchange *e, const Gguf *g) {
    size_t n_tokens, n_merges;
    Str prefix;
    if (!own_flag(g, "quill.tokenizer.by_merges")) return;
    Str *tokens = strings_of(g, "tokenizer.ggml.tokens", &n_tokens);
    Str *merges = strings_of(g, "tokenizer.ggml.merges", &n_merges);
    float *scores = mem_alloc((n_tokens + 1) * sizeof *scores);
    const GgufValue *v = gguf_value(g, "tokenizer.ggml.token_type");
    int32_t *types = mem_alloc((n_tokens + 1) * sizeof *types);
    if (v && v->n == n_tokens && gguf_ints(g, v, types).code) memset(types, 0, n_tokens * sizeof *types);
    if (!merge_scores(tokens, types, n_tokens, merges, n_merges, scores))
        differ(e, "perhaps the order of some merges of tokens");
    gguf_set_floats(e->keys, "tokenizer.ggml.scores", scores, n_tokens);
    free(types);
    free(scores);
    free(tokens);
    free(merges);
    if (gguf_value(g, "quill.tokenizer.patterns")) differ(e, "where the tokenizer cuts a text");
    if (own_flag(g, "quill.tokenizer.ignore_merges")) differ(e, "words that are tokens without a merge");
    Status st = gguf_str(g, "quill.tokenizer.space_prefix", &prefix, false);
    if (!st.code && prefix.data && !str_is(prefix, "always")) differ(e, "which texts get a space in front");
}

// Other programs expect as many tokens as the embedding has rows.
static void pad_tokens(FileExchange *e, const Gguf *g) {
    const GgufTensor *embedding = gguf_tensor(g, "token_embd.weight");
    const GgufValue *types = gguf_value(g, "tokenizer.ggml.token_type"), *scores;
    size_t n, rows = embedding && embedding->n_dims == 2 ? (size_t)embedding->dims[1] : 0;
    Str *tokens = strings_of(g, "tokenizer.ggml.tokens", &n);
    if (n > 0 && n < rows && types && types->n == n) {
        tokens = mem_resize(tokens, rows * sizeof *tokens);
        int32_t *type = mem_alloc(rows * sizeof *type);
        float *score = mem_alloc(rows * sizeof *score);
        Status st = gguf_ints(g, types, type);
        scores = gguf_value(e->keys, "tokenizer.ggml.scores");
        if (!st.code && scores) st = gguf_floats(e->keys, scores, score);
        for (size_t i = n; i < rows; i++) tokens[i] = (Str){"", 0}, type[i] = GGUF_TOKEN_UNUSED, score[i] = 0;
        if (!st.code) {
            gguf_set_strings(e->keys, "tokenizer.ggml.tokens", tokens, rows);
            gguf_set_ints(e->keys, "tokenizer.ggml.token_type", type, rows);
            if (scores) gguf_set_floats(e->keys, "tokenizer.ggml.scores", score, rows);
        }
        free(type);
        free(score);
    }
    free(tokens);
}

static void read_tokenizer(FileExchange *e, const Gguf *g) {
    Str model, form;
    if (!own_flag(g, "quill.tokenizer.types_hold")) return; // not from a directory
    if (gguf_str(g, "tokenizer.ggml.model", &model, false).code || !model.data) return;
    if (str_is(model, "gpt2")) read_pre(e, g);
    else read_scores(e, g);
    pad_tokens(e, g);
    if (!gguf_str(g, "quill.tokenizer.form", &form, false).code && form.data) differ(e, "the Unicode form of texts");
    if (gguf_value(g, "quill.tokenizer.strip_left") || gguf_value(g, "quill.tokenizer.strip_right"))
        differ(e, "white space beside some special tokens");
    uint32_t last, eos;
    bool adds = own_flag(g, "tokenizer.ggml.add_eos_token");
    if (gguf_u32(g, "quill.tokenizer.last_id", &last, false, 0).code) return;
    if (gguf_u32(g, "tokenizer.ggml.eos_token_id", &eos, false, UINT32_MAX).code) return;
    if (adds && gguf_value(g, "quill.tokenizer.last_id") && last != eos) differ(e, "the token after a text");
}

// ---- the scale of attention -----------------------------------------------------------------------------------------

// Other programs derive the scale of Gemma 2 and 3 from the shape: 1 / sqrt(length of a head), in the models of 27B
// with 46 and 62 layers 1 / sqrt(width / heads).
static void check_scale(FileExchange *e, const Gguf *g) {
    Str arch;
    char key[96];
    float scale;
    if (gguf_str(g, "general.architecture", &arch, false).code || !arch.data) return;
    const Family *f = family_find(arch);
    if (!f || (!str_is(arch, "gemma2") && !str_is(arch, "gemma3"))) return;
    snprintf(key, sizeof key, "%s.attention.scale", f->arch);
    if (gguf_f32(g, key, &scale, false, 0).code || scale <= 0) return;
    size_t heads = arch_int(g, f, "attention.head_count"), n = arch_int(g, f, "attention.key_length");
    size_t layers = arch_int(g, f, "block_count");
    if (heads && layers == (str_is(arch, "gemma2") ? 46 : 62)) n = arch_int(g, f, "embedding_length") / heads;
    if (fabsf(scale * scale * (float)n - 1) > 1e-3f) differ(e, "the scale of attention");
}

// ---- Llama 4 --------------------------------------------------------------------------------------------------------

// Other programs know no keys for these and compute with the values of Scout and Maverick.
static void check_llama4(FileExchange *e, const Gguf *g) {
    Str arch;
    float scale;
    bool normed;
    if (gguf_str(g, "general.architecture", &arch, false).code || !str_is(arch, "llama4")) return;
    const Family *f = family_find(arch);
    size_t chunk = arch_int(g, f, "attention.chunk_size"), span = arch_int(g, f, "attention.temperature_length");
    if (chunk && chunk != (size_t)f->window) differ(e, "the chunks of attention");
    bool other = !gguf_f32(g, "llama4.attention.temperature_scale", &scale, false, f->temperature).code &&
                 scale != f->temperature;
    if (other || (span && span != (size_t)f->window)) differ(e, "the temperature of scores");
    bool usual = arch_int(g, f, "expert_count") != 128;
    if (!gguf_bool(g, "llama4.use_qk_norm", &normed, usual).code && normed != usual) differ(e, "norms of Q and K");
}

// ---- everything together --------------------------------------------------------------------------------------------

void exchange_make(const Gguf *g, FileExchange *out) {
    *out = (FileExchange){.keys = gguf_new("exchange")};
    read_rows(out, g);
    read_tokenizer(out, g);
    check_scale(out, g);
    check_llama4(out, g);
}

void exchange_copy(const FileExchange *e, const Gguf *g, Gguf *out) {
    for (int i = 0; i < gguf_n_values(g); i++) {
        Str key = gguf_value_at(g, i)->key;
        bool stale = str_has_prefix(key, "quill.quantize.") || str_has_prefix(key, "quantize.imatrix.");
        if (!stale && !(e->n_rot && str_is(key, "quill.rope.halves"))) gguf_set(out, gguf_value_at(g, i));
    }
    for (int i = 0; i < gguf_n_values(e->keys); i++) gguf_set(out, gguf_value_at(e->keys, i));
}

void exchange_free(FileExchange *e) {
    gguf_close(e->keys);
    buf_free(&e->differs);
    *e = (FileExchange){0};
}
