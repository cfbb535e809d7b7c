// files/llama2c.c: see files/llama2c.h. The header gives all shapes. The weights are walked in file order twice: first
// to compute the file size that the header implies; then, if the file has exactly that size, to add each weight to the
// view under its GGUF name.
#include "files/llama2c.h"
#include "formats/types.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

enum {
    MAGIC = 0x616b3432, // "ak42"
    LEGACY_HEADER = 7 * 4,
    HEADER = 256,
    MAX_DIM = 1 << 20,
    MAX_LAYERS = 1 << 10,
    MAX_VOCAB = 1 << 22,
    MAX_CONTEXT = 1 << 24,
    MAX_PIECE = 16 << 20,
};

typedef struct {
    int version; // 0: legacy
    size_t header;
    int32_t dim, ffn, n_layers, n_heads, n_kv_heads, vocab, context;
    bool shared;   // output is the embedding
    int32_t group; // version 2: number of weights with one scale
} Llama2cShape;

// ---- header ---------------------------------------------------------------------------------------------------------

static int32_t int_at(const uint8_t *data, size_t pos) {
    int32_t v;
    memcpy(&v, data + pos, sizeof v);
    return v;
}

static Status check_shape(const char *name, const Llama2cShape *s, size_t at) {
    const struct {
        const char *what;
        int32_t value, max;
    } fields[] = {
        {"dim", s->dim, MAX_DIM},
        {"hidden_dim", s->ffn, MAX_DIM},
        {"n_layers", s->n_layers, MAX_LAYERS},
        {"n_heads", s->n_heads, MAX_DIM},
        {"n_kv_heads", s->n_kv_heads, MAX_DIM},
        {"vocab_size", s->vocab, MAX_VOCAB},
        {"seq_len", s->context, MAX_CONTEXT},
    };
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (fields[i].value < 1 || fields[i].value > fields[i].max)
            return status_error(QUILL_MODEL, "%s: byte %zu: %s from 1 to %d expected, %d found", name, at + 4 * i,
                                fields[i].what, fields[i].max, fields[i].value);
    if (s->dim % s->n_heads != 0 || s->dim / s->n_heads % 2 != 0)
        return status_error(QUILL_MODEL,
                            "%s: byte %zu: n_heads that divides dim %d into even head sizes expected, %d found", name,
                            at + 12, s->dim, s->n_heads);
    if (s->n_heads % s->n_kv_heads != 0)
        return status_error(QUILL_MODEL, "%s: byte %zu: n_kv_heads that divides n_heads %d expected, %d found", name,
                            at + 16, s->n_heads, s->n_kv_heads);
    return OK;
}

static Status read_shape(const char *name, const uint8_t *data, size_t n, Llama2cShape *s) {
    *s = (Llama2cShape){.header = LEGACY_HEADER};
    if (n >= 4 && int_at(data, 0) == MAGIC) {
        if (n < HEADER)
            return status_error(QUILL_MODEL, "%s: byte 0: llama2.c header of %d bytes expected, %zu found", name,
                                HEADER, n);
        s->version = int_at(data, 4);
        s->header = HEADER;
        if (s->version != 1 && s->version != 2)
            return status_error(QUILL_MODEL, "%s: byte 4: llama2.c version 1 or 2 expected, %d found", name,
                                s->version);
    }
    if (n < s->header)
        return status_error(QUILL_MODEL, "%s: byte 0: llama2.c header of %d bytes expected, %zu found", name,
                            LEGACY_HEADER, n);
    size_t at = s->version ? 8 : 0;
    int32_t *fields[] = {&s->dim, &s->ffn, &s->n_layers, &s->n_heads, &s->n_kv_heads, &s->vocab, &s->context};
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) *fields[i] = int_at(data, at + 4 * i);
    if (s->version == 0) { // the sign of the vocabulary says whether the output is the embedding
        s->shared = s->vocab > 0;
        if (s->vocab < 0 && s->vocab != INT32_MIN) s->vocab = -s->vocab;
    } else {
        if (data[36] > 1)
            return status_error(QUILL_MODEL, "%s: byte 36: shared classifier 0 or 1 expected, %u found", name,
                                data[36]);
        s->shared = data[36];
    }
    TRY(check_shape(name, s, at));
    if (s->version == 2) s->group = int_at(data, 37); // unaligned: it follows a single byte
    if (s->version == 2 && s->group < 1)
        return status_error(QUILL_MODEL, "%s: byte 37: group size of at least 1 expected, %d found", name, s->group);
    return OK;
}

// ---- weights --------------------------------------------------------------------------------------------------------

// One pass over the weights. Without a view it only adds up sizes, with a check for overflow.
typedef struct {
    Gguf *g;             // NULL: only add up sizes
    const uint8_t *data; // the file's bytes; not read if there is no view
    size_t pos;
    bool overflow;
    const char *bad_group; // name of the first weight that the group size does not divide
} WeightWalk;

static void advance(WeightWalk *w, size_t count, size_t size) {
    size_t n;
    if (!size_mul(count, size, &n) || !size_add(w->pos, n, &w->pos)) w->overflow = true;
}

// Adds the next weight. `format` is its name, with %d for the layer. n_out 0: a vector, which is f32 in every version.
static void add_weight(WeightWalk *w, const Llama2cShape *s, const char *format, int layer, int n_in, int n_out) {
    size_t n = (size_t)n_in * (size_t)(n_out ? n_out : 1), group = (size_t)s->group;
    bool grouped = group && n_out;
    const uint8_t *at = w->data + (w->g ? w->pos : 0);
    if (grouped && n % group != 0 && !w->bad_group) w->bad_group = format;
    advance(w, n, grouped ? 1 : sizeof(float));
    const uint8_t *scales = w->data + (w->g ? w->pos : 0);
    if (grouped) advance(w, n / group, sizeof(float));
    if (!w->g) return;
    char name[64];
    if (layer < 0) snprintf(name, sizeof name, "%s.weight", format);
    else snprintf(name, sizeof name, "blk.%d.%s.weight", layer, format);
    // Scales are unaligned, since they follow any number of bytes: the cast to (const void *) avoids a warning.
    if (grouped) gguf_add_tensor(w->g, name, TYPE_I8G, (size_t)n_in, (size_t)n_out, at, (const void *)scales, s->group);
    else gguf_add_tensor(w->g, name, TYPE_F32, (size_t)n_in, (size_t)n_out, at, NULL, 0);
}

static void add_layers(WeightWalk *w, const Llama2cShape *s, const char *format, int n_in, int n_out) {
    for (int layer = 0; layer < s->n_layers; layer++) add_weight(w, s, format, layer, n_in, n_out);
}

static void walk_weights(WeightWalk *w, const Llama2cShape *s) {
    int head = s->dim / s->n_heads, kv = s->n_kv_heads * head;
    w->pos = s->header;
    if (s->version == 0) {
        add_weight(w, s, "token_embd", -1, s->dim, s->vocab);
        add_layers(w, s, "attn_norm", s->dim, 0);
    } else {
        add_layers(w, s, "attn_norm", s->dim, 0);
        add_layers(w, s, "ffn_norm", s->dim, 0);
        add_weight(w, s, "output_norm", -1, s->dim, 0);
        add_weight(w, s, "token_embd", -1, s->dim, s->vocab);
    }
    add_layers(w, s, "attn_q", s->dim, s->dim);
    add_layers(w, s, "attn_k", s->dim, kv);
    add_layers(w, s, "attn_v", s->dim, kv);
    add_layers(w, s, "attn_output", s->dim, s->dim);
    if (s->version == 0) add_layers(w, s, "ffn_norm", s->dim, 0);
    add_layers(w, s, "ffn_gate", s->dim, s->ffn); // w1
    add_layers(w, s, "ffn_down", s->ffn, s->dim); // w2
    add_layers(w, s, "ffn_up", s->dim, s->ffn);   // w3
    if (s->version == 0) {
        add_weight(w, s, "output_norm", -1, s->dim, 0);
        advance(w, (size_t)s->context * (size_t)(head / 2), 2 * sizeof(float)); // skips cos and sin of RoPE
    }
    if (!s->shared) add_weight(w, s, "output", -1, s->dim, s->vocab);
}

static Status read_weights(Gguf *g, const char *name, const uint8_t *data, size_t n, const Llama2cShape *s) {
    WeightWalk sum = {.data = data};
    walk_weights(&sum, s);
    if (sum.bad_group)
        return status_error(QUILL_MODEL,
                            "%s: byte 37: group size that divides every weight expected, %d does not divide %s", name,
                            s->group, sum.bad_group);
    if (sum.overflow)
        return status_error(QUILL_MODEL, "%s: byte %d: sizes that fit 64 bits expected, larger ones found", name,
                            s->version ? 8 : 0);
    if (sum.pos != n)
        return status_error(QUILL_MODEL, "%s: %zu bytes expected by the llama2.c header (version %d), %zu found%s",
                            name, sum.pos, s->version, n, n < sum.pos ? "; the file is cut off" : "");
    WeightWalk w = {.g = g, .data = data};
    walk_weights(&w, s);
    return OK;
}

static void set_keys(Gguf *g, const char *name, const Llama2cShape *s) {
    const char *base = file_base(name);
    size_t n = strlen(base);
    if (n > 4 && strcmp(base + n - 4, ".bin") == 0) n -= 4;
    char *title = mem_copy(base, n);
    gguf_set_str(g, "general.architecture", "llama");
    gguf_set_str(g, "general.name", title);
    free(title);
    gguf_set_u32(g, "llama.vocab_size", (uint32_t)s->vocab);
    gguf_set_u32(g, "llama.context_length", (uint32_t)s->context);
    gguf_set_u32(g, "llama.embedding_length", (uint32_t)s->dim);
    gguf_set_u32(g, "llama.block_count", (uint32_t)s->n_layers);
    gguf_set_u32(g, "llama.feed_forward_length", (uint32_t)s->ffn);
    gguf_set_u32(g, "llama.attention.head_count", (uint32_t)s->n_heads);
    gguf_set_u32(g, "llama.attention.head_count_kv", (uint32_t)s->n_kv_heads);
    gguf_set_u32(g, "llama.rope.dimension_count", (uint32_t)(s->dim / s->n_heads));
    gguf_set_f32(g, "llama.rope.freq_base", 10000.0f); // the same two numbers as in the code of llama2.c
    gguf_set_f32(g, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

// ---- vocabulary -----------------------------------------------------------------------------------------------------

static int token_type(int id, Str text) {
    if (id == 0) return GGUF_TOKEN_UNKNOWN;
    if (id <= 2) return GGUF_TOKEN_CONTROL;
    bool byte = text.n == 6 && memcmp(text.data, "<0x", 3) == 0 && str_hex_digit(text.data[3]) >= 0 &&
                str_hex_digit(text.data[4]) >= 0 && text.data[5] == '>';
    return byte ? GGUF_TOKEN_BYTE : GGUF_TOKEN_NORMAL;
}

// Undoes two changes of llama2.c's tokenizer.py: it replaced U+2581 by a space, and put line feeds around <s> and </s>.
static void append_piece(Buf *out, int id, Str text) {
    if ((id == 1 || id == 2) && text.n > 2 && text.data[0] == '\n' && text.data[text.n - 1] == '\n')
        text = (Str){text.data + 1, text.n - 2};
    for (size_t i = 0; i < text.n; i++)
        if (text.data[i] == ' ') buf_str(out, "\xe2\x96\x81");
        else buf_append(out, text.data + i, 1);
}

typedef struct {
    float *scores;  // (n)
    int32_t *types; // (n)
    size_t *ends;   // (n) where each piece ends in `text`
    Buf text;
} Llama2cVocabulary;

// tokenizer.bin: the length of the longest piece, which is not needed here; then a score, a length and a piece per
// token.
static Status read_pieces(const char *name, const uint8_t *data, size_t n, int n_tokens, Llama2cVocabulary *v) {
    size_t pos = 4;
    for (int id = 0; id < n_tokens; id++) {
        if (n - pos < 8)
            return status_error(QUILL_MODEL,
                                "%s: byte %zu: token %d of %d expected, found the end of the file; does it belong to "
                                "this model?",
                                name, pos, id, n_tokens);
        memcpy(&v->scores[id], data + pos, 4);
        int32_t len = int_at(data, pos + 4);
        if (v->scores[id] != v->scores[id])
            return status_error(QUILL_MODEL, "%s: byte %zu: token %d: a score expected, NaN found", name, pos, id);
        pos += 8;
        if (len < 0 || len > MAX_PIECE || (size_t)len > n - pos)
            return status_error(QUILL_MODEL, "%s: byte %zu: token %d: length 0 to %zu expected, %" PRId32 " found",
                                name, pos - 4, id, n - pos < MAX_PIECE ? n - pos : (size_t)MAX_PIECE, len);
        Str text = {(const char *)data + pos, (size_t)len};
        append_piece(&v->text, id, text);
        v->types[id] = token_type(id, text);
        v->ends[id] = v->text.n;
        pos += (size_t)len;
    }
    if (pos != n)
        return status_error(
            QUILL_MODEL,
            "%s: byte %zu: the end after %d tokens expected, %zu more bytes found; does it belong to this "
            "model's?",
            name, pos, n_tokens, n - pos);
    return OK;
}

static void set_vocabulary(Gguf *g, const Llama2cVocabulary *v, int n) {
    Str *tokens = mem_alloc((size_t)n * sizeof *tokens);
    for (int i = 0; i < n; i++) {
        size_t start = i ? v->ends[i - 1] : 0;
        tokens[i] = (Str){v->text.data + start, v->ends[i] - start};
    }
    gguf_set_str(g, "tokenizer.ggml.model", "llama");
    gguf_set_strings(g, "tokenizer.ggml.tokens", tokens, (size_t)n);
    gguf_set_floats(g, "tokenizer.ggml.scores", v->scores, (size_t)n);
    gguf_set_ints(g, "tokenizer.ggml.token_type", v->types, (size_t)n);
    gguf_set_u32(g, "tokenizer.ggml.unknown_token_id", 0);
    gguf_set_u32(g, "tokenizer.ggml.bos_token_id", 1);
    gguf_set_u32(g, "tokenizer.ggml.eos_token_id", 2);
    gguf_set_u32(g, "tokenizer.ggml.eot_token_id", 1); // these models were trained on texts separated by BOS
    gguf_set_bool(g, "tokenizer.ggml.add_bos_token", true);
    gguf_set_bool(g, "tokenizer.ggml.add_eos_token", false);
    gguf_set_bool(g, "tokenizer.ggml.add_space_prefix", true);
    free(tokens);
}

static Status read_vocabulary(Gguf *g, const char *name, const uint8_t *data, size_t n, int n_tokens) {
    if (n < 4 || (size_t)n_tokens > (n - 4) / 8) // each token has at least a score and a length
        return status_error(QUILL_MODEL,
                            "%s: %d tokens in at least %zu bytes expected, %zu bytes found; does it belong to this "
                            "model?",
                            name, n_tokens, 4 + 8 * (size_t)n_tokens, n);
    size_t room = (size_t)n_tokens;
    Llama2cVocabulary v = {
        mem_alloc(room * sizeof(float)), mem_alloc(room * sizeof(int32_t)), mem_alloc(room * sizeof(size_t)), {0}};
    buf_str(&v.text, "");
    Status st = read_pieces(name, data, n, n_tokens, &v);
    if (!st.code) set_vocabulary(g, &v, n_tokens);
    free(v.scores);
    free(v.types);
    free(v.ends);
    buf_free(&v.text);
    return st;
}

// ---- opening --------------------------------------------------------------------------------------------------------

Status llama2c_open_memory(const char *name, const void *bytes, size_t n, const char *tokenizer_name,
                           const void *tokenizer, size_t n_tokenizer, Gguf **out) {
    *out = NULL;
    Llama2cShape s;
    TRY(read_shape(name, bytes, n, &s));
    Gguf *g = gguf_new(name);
    gguf_set_format(g, "llama2.c");
    Status st = read_weights(g, name, bytes, n, &s);
    if (!st.code) set_keys(g, name, &s);
    if (!st.code && tokenizer_name) st = read_vocabulary(g, tokenizer_name, tokenizer, n_tokenizer, s.vocab);
    if (st.code) {
        gguf_close(g);
        return st;
    }
    *out = g;
    return OK;
}

// Maps a file. A model or tokenizer that cannot be read gives QUILL_MODEL, not QUILL_IO.
static Status map_model(const char *path, FileMap *out) {
    Status st = file_map(path, out);
    if (st.code) st.code = QUILL_MODEL;
    return st;
}

// Finds DIR/tokenizer.bin for DIR/model.bin. False: there is none.
static bool find_tokenizer(const char *path, Buf *out) {
    const char *slash = strrchr(path, '/');
    if (slash) buf_append(out, path, (size_t)(slash - path) + 1);
    buf_str(out, "tokenizer.bin");
    return access(out->data, F_OK) == 0;
}

// Takes ownership of the model's mapping, also after an error.
static Status open_mapped(const char *path, FileMap model, const char *tokenizer_path, Gguf **out) {
    Buf found = {0};
    FileMap tokenizer = {0};
    if (!tokenizer_path && find_tokenizer(path, &found)) tokenizer_path = found.data;
    Status st = tokenizer_path ? map_model(tokenizer_path, &tokenizer) : OK;
    if (!st.code) // an empty tokenizer has no bytes, but it exists
        st = llama2c_open_memory(path, model.data, model.n, tokenizer_path, tokenizer.data, tokenizer.n, out);
    if (!st.code) gguf_own_map(*out, model);
    else file_unmap(&model);
    file_unmap(&tokenizer); // pieces and scores were copied
    buf_free(&found);
    return st;
}

Status llama2c_open(const char *path, const char *tokenizer_path, Gguf **out) {
    FileMap model;
    *out = NULL;
    TRY(map_model(path, &model));
    return open_mapped(path, model, tokenizer_path, out);
}

bool llama2c_is_likely(const uint8_t *data, size_t n) {
    if (n >= 4 && int_at(data, 0) == MAGIC) return true;
    if (n < LEGACY_HEADER) return false;
    for (int i = 0; i < 5; i++)
        if (int_at(data, 4 * (size_t)i) < 0 || int_at(data, 4 * (size_t)i) > MAX_DIM) return false;
    return true;
}
