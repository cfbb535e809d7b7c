// tests/rig/hf_directory.c: see tests/rig/hf_directory.h.
#include "tests/rig/hf_directory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/jsonio.h"
#include "formats/types.h"
#include "tests/rig/hf_directory_parts.h"
#include "tests/rig/hf_styles.h"

_Noreturn void hf_directory_impossible(const char *what, const char *name) {
    fprintf(stderr, "hf_directory: %s: %s\n", what, name);
    exit(QUILL_USAGE);
}

void hf_directory_text(const char *dir, const char *file, const char *text) {
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(text, 1, strlen(text), f) != strlen(text) || fclose(f) != 0)
        hf_directory_impossible("cannot write", path);
}

void hf_directory_json(const char *dir, const char *file, json_t *value) {
    Buf text = {0};
    jsonio_print(value, JSON_INDENT(2), &text);
    hf_directory_text(dir, file, text.data);
    buf_free(&text);
    json_decref(value);
}

// ---- names ----------------------------------------------------------------------------------------------------------

bool hf_directory_permutes(const char *arch) {
    bool permutes = false; // also for a family that transformers has no class for
    for (size_t i = 0; i < ARRAY_LEN(styles); i++)
        permutes = permutes || (strcmp(styles[i].arch, arch) == 0 && styles[i].permuted);
    return permutes;
}

// False: the directory has no tensor for this one.
static bool name_of(const Style *style, const char *gguf, char out[160]) {
    int layer, at = 0;
    if (sscanf(gguf, "blk.%d.%n", &layer, &at) == 1 && at > 0) {
        char part[64];
        snprintf(part, sizeof part, "%s", gguf + at);
        char *kind = strrchr(part, '.');
        if (kind) *kind++ = 0;
        if (style->no_qk_norms && (strcmp(part, "attn_q_norm") == 0 || strcmp(part, "attn_k_norm") == 0)) return false;
        const char *hf = find_name(style->names, style->n_names, part);
        if (!hf) hf = find_name(usual, ARRAY_LEN(usual), part);
        if (!hf) hf_directory_impossible("a name in directories expected", gguf);
        snprintf(out, 160, "%s%d.%s.%s", style->layers ? style->layers : "model.layers.", layer, hf,
                 kind ? kind : "bias");
        if (strcmp(hf, "self_attn.sinks") == 0 || strstr(hf, "correction_bias") || strstr(hf, "expert_bias"))
            *strrchr(out, '.') = 0;
        return true;
    }
    const NamePair ends[] = {{"token_embd.weight", "model.embed_tokens.weight"},
                             {"output_norm.weight", "model.norm.weight"},
                             {"output.weight", "lm_head.weight"},
                             {"token_embd_norm.weight", "model.embedding_norm.weight"},
                             {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
                             {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
                             {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"}};
    const char *hf = find_name(style->names, style->n_names, gguf);
    if (!hf) hf = find_name(ends, ARRAY_LEN(ends), gguf);
    snprintf(out, 160, "%s", hf ? hf : "");
    return hf;
}

// ---- tensors --------------------------------------------------------------------------------------------------------

typedef struct {
    const Gguf *g;
    const Style *style;
    const HfDirectory *how;
    const char *arch;
    int n_heads, n_kv_heads;
    json_t *header;
    Buf data;
} DirectoryWriter;

// In GGUF the rows of a head are the pairs (0, hd/2), (1, hd/2 + 1), ...; a directory stores the two halves one after
// the other.
static void add_rows(DirectoryWriter *w, const GgufTensor *t, int n_heads) {
    size_t rows = (size_t)t->dims[t->n_dims == 2], bytes = t->n_bytes / rows, head = rows / (size_t)n_heads;
    for (size_t row = 0; row < rows; row++) {
        size_t in_head = row % head, from = row - in_head;
        from += in_head < head / 2 ? 2 * in_head : 2 * (in_head - head / 2) + 1;
        buf_append(&w->data, (const char *)t->data + from * bytes, bytes);
    }
}

static void add_header(DirectoryWriter *w, const char *name, const char *dtype, const size_t *dims, int n_dims,
                       size_t begin) {
    json_t *entry = json_object(), *shape = json_array();
    for (int d = 0; d < n_dims; d++) jsonio_append(shape, json_integer((json_int_t)dims[d]));
    jsonio_put(entry, "dtype", json_string(dtype));
    jsonio_put(entry, "shape", shape);
    jsonio_put(entry, "data_offsets", json_pack("[I, I]", (json_int_t)begin, (json_int_t)w->data.n));
    jsonio_put(w->header, name, entry);
}

// One matrix, or a stack, with its scales.
static void add_fp8(DirectoryWriter *w, const char *name, const HfFp8 *f, const float *v, bool stack) {
    char scale[200];
    size_t begin = w->data.n, dims[] = {f->n, f->n_out, f->n_in};
    hf_fp8_weights(&w->data, f, v);
    add_header(w, name, "F8_E4M3", stack ? dims : dims + 1, stack ? 3 : 2, begin);
    while (w->data.n % 4) buf_append(&w->data, "", 1);
    begin = w->data.n;
    hf_fp8_scales(&w->data, f, dims);
    snprintf(scale, sizeof scale, "%s_scale_inv", name);
    add_header(w, scale, "F32", stack ? dims : dims + 1, stack ? 3 : 2, begin);
}

static bool is_norm(const char *name) {
    return strlen(name) > 11 && strcmp(name + strlen(name) - 11, "norm.weight") == 0;
}

static void add_tensor(DirectoryWriter *w, const GgufTensor *t, const char *gguf, const char *name) {
    size_t begin = w->data.n, dims[2] = {(size_t)(t->n_dims == 2 ? t->dims[1] : t->dims[0]), (size_t)t->dims[0]};
    bool matrix = t->n_dims == 2, q = strstr(gguf, ".attn_q."), k = strstr(gguf, ".attn_k.");
    if (w->how->fp8 && matrix && strstr(gguf, "blk.")) {
        HfFp8 f = {(size_t)w->how->fp8, 0, 1, (size_t)t->dims[0], (size_t)t->dims[1]};
        add_fp8(w, name, &f, t->data, false);
        return;
    }
    const char *dtype = t->type == TYPE_F32    ? "F32"
                        : t->type == TYPE_F16  ? "F16"
                        : t->type == TYPE_BF16 ? "BF16"
                                               : NULL;
    if (!dtype) hf_directory_impossible("F32, F16 or BF16 expected", gguf);
    if (w->style->permuted && (q || k)) add_rows(w, t, q ? w->n_heads : w->n_kv_heads);
    else if (w->style->norm_minus_one && is_norm(gguf) &&
             !(w->style->last_norm_plain && strcmp(gguf, "output_norm.weight") == 0))
        for (size_t i = 0; i < dims[0]; i++) buf_append(&w->data, &(float){((const float *)t->data)[i] - 1}, 4);
    else buf_append(&w->data, t->data, t->n_bytes);
    bool row = strstr(name, "moe_statics"); // ERNIE: (1, n)
    add_header(w, name, dtype, row ? (size_t[]){1, dims[0]} : dims, matrix || row ? 2 : 1, begin);
}

// ---- experts --------------------------------------------------------------------------------------------------------

static const char *dtype_of(const GgufTensor *t) {
    return t->type == TYPE_F32 ? "F32" : t->type == TYPE_F16 ? "F16" : t->type == TYPE_BF16 ? "BF16" : "U8";
}

static size_t element_of(const GgufTensor *t) { return t->type == TYPE_F32 ? 4 : 2; }

static void begin_expert(DirectoryWriter *w, json_t *map, const char *base, char name[160], int layer,
                         const char *part) {
    (void)w;
    snprintf(name, 160, "model.layers.%d.%s", layer, part);
    jsonio_put(map, name, json_string(base));
}

// One tensor for each expert: gate_proj, up_proj, down_proj, or Mixtral's w1, w3, w2.
static void each_expert(DirectoryWriter *w, json_t *map, const char *base, int layer, int which, const GgufTensor *t) {
    static const char *const words[2][3] = {{"gate_proj", "up_proj", "down_proj"}, {"w1", "w3", "w2"}};
    const char *root = w->style->experts;
    size_t bytes = t->n_bytes / (size_t)t->dims[2];
    for (size_t e = 0; e < t->dims[2]; e++) {
        char part[96], name[160];
        size_t begin = w->data.n;
        snprintf(part, sizeof part, "%s.experts.%zu.%s.weight", root ? root : "mlp", e, words[root != NULL][which]);
        begin_expert(w, map, base, name, layer, part);
        const char *data = (const char *)t->data + e * bytes;
        if (w->how->fp8) {
            HfFp8 f = {(size_t)w->how->fp8, e, 1, (size_t)t->dims[0], (size_t)t->dims[1]};
            add_fp8(w, name, &f, (const float *)(const void *)data, false);
            continue;
        }
        buf_append(&w->data, data, bytes);
        add_header(w, name, dtype_of(t), (size_t[]){(size_t)t->dims[1], (size_t)t->dims[0]}, 2, begin);
    }
}

static bool is_granite(const DirectoryWriter *w) { return strcmp(w->arch, "granitemoe") == 0; }

static const char *fused_name(const DirectoryWriter *w, bool gate_up) {
    static const char *const names[][2] = {
        {"mlp.experts.down_proj", "mlp.experts.gate_up_proj"},
        {"block_sparse_moe.output_linear.weight", "block_sparse_moe.input_linear.weight"},
        {"feed_forward.experts.down_proj", "feed_forward.experts.gate_up_proj"}};
    return names[is_granite(w) ? 1 : strcmp(w->arch, "lfm2moe") == 0 ? 2 : 0][gate_up];
}

// For each expert the rows of gate, then those of up; or the rows of down.
static void fused_experts(DirectoryWriter *w, json_t *map, const char *base, int layer, const GgufTensor *t,
                          const GgufTensor *up) {
    char name[160];
    size_t begin = w->data.n, n = (size_t)t->dims[2], bytes = t->n_bytes / n;
    begin_expert(w, map, base, name, layer, fused_name(w, up));
    for (size_t e = 0; e < n; e++) {
        buf_append(&w->data, (const char *)t->data + e * bytes, bytes);
        if (up) buf_append(&w->data, (const char *)up->data + e * bytes, bytes);
    }
    add_header(w, name, dtype_of(t), (size_t[]){n, (size_t)t->dims[1] * (up ? 2 : 1), (size_t)t->dims[0]}, 3, begin);
}

// The same in FP8. A block may have rows of both gate and up.
static void fused_fp8(DirectoryWriter *w, json_t *map, const char *base, int layer, const GgufTensor *t,
                      const GgufTensor *up) {
    char name[160];
    size_t n = (size_t)t->dims[2], bytes = t->n_bytes / n;
    HfFp8 f = {(size_t)w->how->fp8, 0, n, (size_t)t->dims[0], (size_t)t->dims[1] * (up ? 2 : 1)};
    Buf all = {0};
    begin_expert(w, map, base, name, layer, up ? "mlp.experts.gate_up_proj" : "mlp.experts.down_proj");
    for (size_t i = 0; i < (up ? 2 : 1) * n; i++)
        buf_append(&all, (const char *)(up && i % 2 ? up : t)->data + (up ? i / 2 : i) * bytes, bytes);
    add_fp8(w, name, &f, (const float *)(const void *)all.data, true);
    buf_free(&all);
}

// Transposed matrices. gpt-oss: columns of gate and up alternate; a bias has one dimension less.
static void turned_experts(DirectoryWriter *w, json_t *map, const char *base, int layer, const GgufTensor *t,
                           const GgufTensor *up, bool bias) {
    char name[160], part[64];
    size_t begin = w->data.n, size = element_of(t), n = (size_t)t->dims[bias ? 1 : 2],
           rows = (size_t)t->dims[bias ? 0 : 1], columns = bias ? 1 : (size_t)t->dims[0], parts = up ? 2 : 1;
    bool alternate = strcmp(w->arch, "gpt-oss") == 0;
    snprintf(part, sizeof part, "%s.experts.%s%s", w->style->experts ? w->style->experts : "mlp",
             up ? "gate_up_proj" : "down_proj", bias ? "_bias" : "");
    begin_expert(w, map, base, name, layer, part);
    for (size_t e = 0; e < n; e++)
        for (size_t i = 0; i < columns; i++)
            for (size_t k = 0; k < parts * rows; k++) {
                size_t part = alternate ? k % parts : k / rows, o = alternate ? k / parts : k % rows;
                buf_append(&w->data, (const char *)(part ? up : t)->data + ((e * rows + o) * columns + i) * size, size);
            }
    if (bias) add_header(w, name, dtype_of(t), (size_t[]){n, rows * (up ? 2 : 1)}, 2, begin);
    else add_header(w, name, dtype_of(t), (size_t[]){n, columns, rows * (up ? 2 : 1)}, 3, begin);
}

// gpt-oss in MXFP4: the bytes of 32 weights, with two neighbours in each byte, and their scales as a separate tensor.
static void block_experts(DirectoryWriter *w, json_t *map, const char *base, int layer, const GgufTensor *t,
                          const GgufTensor *up) {
    size_t n = (size_t)t->dims[2], rows = (size_t)t->dims[1], blocks = (size_t)t->dims[0] / 32, parts = up ? 2 : 1;
    for (int scales = 0; scales < 2; scales++) {
        char name[160], part[64];
        size_t begin = w->data.n;
        snprintf(part, sizeof part, "mlp.experts.%s_%s", up ? "gate_up_proj" : "down_proj",
                 scales ? "scales" : "blocks");
        begin_expert(w, map, base, name, layer, part);
        for (size_t i = 0; i < n * rows * parts; i++)
            for (size_t b = 0; b < blocks; b++) {
                const uint8_t *from = (const uint8_t *)(i % parts ? up : t)->data + (i / parts * blocks + b) * 17;
                uint8_t to[16];
                for (int k = 0; k < 32; k++) { // element k of the block
                    int v = k < 16 ? from[1 + k] & 15 : from[1 + k - 16] >> 4;
                    to[k / 2] = (uint8_t)(k % 2 ? (to[k / 2] & 15) | v << 4 : v);
                }
                buf_append(&w->data, scales ? from : to, scales ? 1 : 16);
            }
        size_t dims[] = {n, rows * parts, blocks, 16};
        add_header(w, name, "U8", dims, scales ? 3 : 4, begin);
    }
}

// False: the tensor does not belong to experts. Up is written together with gate.
static bool add_experts(DirectoryWriter *w, json_t *map, const char *base, const GgufTensor *t, const char *gguf) {
    static const char *const parts[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
    int layer, at = 0, which = 0;
    char other[80];
    if (sscanf(gguf, "blk.%d.%n", &layer, &at) != 1 || !strstr(gguf, "_exps.")) return false;
    while (strncmp(gguf + at, parts[which], strlen(parts[which])) != 0) which++;
    bool bias = strstr(gguf, ".bias"), turned = strcmp(w->arch, "gpt-oss") == 0 || strcmp(w->arch, "llama4") == 0 ||
                                                (strcmp(w->arch, "qwen3vlmoe") == 0 && w->how->v5);
    snprintf(other, sizeof other, "blk.%d.ffn_up_exps.%s", layer, bias ? "bias" : "weight");
    const GgufTensor *up = which == 0 ? gguf_tensor(w->g, other) : NULL;
    while (w->data.n % 4) buf_append(&w->data, "", 1);
    if (!turned && !w->how->v5 && !is_granite(w)) each_expert(w, map, base, layer, which, t);
    else if (which == 1) return true;
    else if (!turned && w->how->fp8) fused_fp8(w, map, base, layer, t, up);
    else if (!turned) fused_experts(w, map, base, layer, t, up);
    else if (t->type == TYPE_MXFP4) block_experts(w, map, base, layer, t, up);
    else turned_experts(w, map, base, layer, t, up, bias);
    return true;
}

// Granite: the rows of the shared expert's gate, then those of its up. False: the tensor is neither.
static bool add_shared_mlp(DirectoryWriter *w, json_t *map, const char *base, const GgufTensor *gate,
                           const char *gguf) {
    int layer;
    char name[160], other[80];
    if (!is_granite(w)) return false;
    if (strstr(gguf, ".ffn_up_shexp.")) return true; // written together with the gate
    if (sscanf(gguf, "blk.%d.ffn_gate_shexp.", &layer) != 1 || !strstr(gguf, ".ffn_gate_shexp.")) return false;
    snprintf(other, sizeof other, "blk.%d.ffn_up_shexp.weight", layer);
    const GgufTensor *up = gguf_tensor(w->g, other);
    while (w->data.n % 4) buf_append(&w->data, "", 1);
    size_t begin = w->data.n;
    begin_expert(w, map, base, name, layer, "shared_mlp.input_linear.weight");
    buf_append(&w->data, gate->data, gate->n_bytes);
    buf_append(&w->data, up->data, up->n_bytes);
    add_header(w, name, dtype_of(gate), (size_t[]){2 * (size_t)gate->dims[1], (size_t)gate->dims[0]}, 2, begin);
    return true;
}

// The router, the experts and the scale of a Gemma 4 layer. False: the tensor is none of them.
static bool add_gemma4(DirectoryWriter *w, json_t *map, const char *base, const GgufTensor *t, const char *gguf) {
    static const NamePair pairs[] = {{"layer_output_scale.weight", "layer_scalar"},
                                     {"ffn_gate_inp.weight", "router.proj.weight"},
                                     {"ffn_gate_inp.scale", "router.scale"},
                                     {"ffn_down_exps.scale", "router.per_expert_scale"},
                                     {"ffn_gate_up_exps.weight", "experts.gate_up_proj"},
                                     {"ffn_down_exps.weight", "experts.down_proj"}};
    int layer, at = 0;
    char name[160];
    if (strcmp(w->arch, "gemma4") != 0 || sscanf(gguf, "blk.%d.%n", &layer, &at) != 1) return false;
    const char *part = find_name(pairs, ARRAY_LEN(pairs), gguf + at);
    if (!part) return false;
    while (w->data.n % 4) buf_append(&w->data, "", 1);
    size_t begin = w->data.n, dims[3];
    for (int d = 0; d < t->n_dims; d++) dims[d] = (size_t)t->dims[t->n_dims - 1 - d];
    begin_expert(w, map, base, name, layer, part);
    buf_append(&w->data, t->data, t->n_bytes);
    add_header(w, name, dtype_of(t), dims, t->n_dims, begin);
    return true;
}

// kv_b_proj: for each head the rows of K, which GGUF has transposed, then those of V. False: the tensor is neither.
static bool add_kv_b(DirectoryWriter *w, json_t *map, const char *base, const GgufTensor *k, const char *gguf) {
    int layer;
    char name[160], other[80];
    if (strstr(gguf, ".attn_v_b.")) return true; // written together with K
    if (sscanf(gguf, "blk.%d.attn_k_b.", &layer) != 1 || !strstr(gguf, ".attn_k_b.")) return false;
    snprintf(other, sizeof other, "blk.%d.attn_v_b.weight", layer);
    const GgufTensor *v = gguf_tensor(w->g, other);
    size_t size = element_of(k), n = (size_t)k->dims[0], rank = (size_t)k->dims[1], heads = (size_t)k->dims[2];
    size_t n_v = (size_t)v->dims[1];
    while (w->data.n % 4) buf_append(&w->data, "", 1);
    size_t begin = w->data.n;
    begin_expert(w, map, base, name, layer, "self_attn.kv_b_proj.weight");
    for (size_t head = 0; head < heads; head++) {
        for (size_t d = 0; d < n; d++)
            for (size_t i = 0; i < rank; i++)
                buf_append(&w->data, (const char *)k->data + ((head * rank + i) * n + d) * size, size);
        buf_append(&w->data, (const char *)v->data + head * n_v * rank * size, n_v * rank * size);
    }
    add_header(w, name, dtype_of(k), (size_t[]){heads * (n + n_v), rank}, 2, begin);
    return true;
}

// False: the tensor has the same form in GGUF and in directories.
static bool add_recurrent(DirectoryWriter *w, json_t *map, const char *base, const GgufTensor *t, const char *gguf) {
    int layer, at = 0;
    char name[160];
    HfRecurrent r;
    if (sscanf(gguf, "blk.%d.%n", &layer, &at) != 1 || at == 0) return false;
    if (!hf_recurrent_write(w->g, w->arch, layer, gguf + at, t, &r)) return false;
    size_t begin = w->data.n;
    if (*r.name) {
        begin_expert(w, map, base, name, layer, r.name);
        buf_append(&w->data, r.data.data, r.data.n);
        add_header(w, name, dtype_of(t), r.dims, r.n_dims, begin);
    }
    buf_free(&r.data);
    return true;
}

static void write_file(DirectoryWriter *w, const char *dir, const char *file) {
    Buf text = {0};
    jsonio_print(w->header, JSON_COMPACT, &text);
    while (text.n % 8) buf_str(&text, " ");
    for (size_t i = 0; i < w->how->shift; i++) buf_str(&text, " ");
    uint64_t n = text.n;
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(&n, 1, 8, f) != 8 || fwrite(text.data, 1, text.n, f) != text.n ||
        fwrite(w->data.data ? w->data.data : "", 1, w->data.n, f) != w->data.n || fclose(f) != 0)
        hf_directory_impossible("cannot write", path);
    buf_free(&text);
    buf_free(&w->data);
    json_decref(w->header);
    w->header = json_object();
}

// Apertus: the lists of a GGUF file as tensors of one number.
static void add_xielu(DirectoryWriter *w, json_t *map, const char *base) {
    static const NamePair lists[] = {
        {"xielu.alpha_p", "alpha_p"}, {"xielu.alpha_n", "alpha_n"}, {"xielu.beta", "beta"}, {"xielu.eps", "eps"}};
    for (size_t k = 0; k < ARRAY_LEN(lists); k++) {
        const GgufValue *v = gguf_value(w->g, lists[k].gguf);
        for (uint64_t i = 0; v && i < v->n; i++) {
            char name[160], part[64];
            while (w->data.n % 4) buf_append(&w->data, "", 1);
            size_t begin = w->data.n;
            snprintf(part, sizeof part, "mlp.act_fn.%s", lists[k].hf);
            begin_expert(w, map, base, name, (int)i, part);
            buf_append(&w->data, (const char *)v->data + 4 * i, 4);
            add_header(w, name, "F32", (size_t[]){1}, k < 2, begin);
        }
    }
}

static void write_tensors(DirectoryWriter *w, const char *dir) {
    int n = gguf_n_tensors(w->g), n_files = int_max(1, w->how->n_shards);
    bool tied = !gguf_tensor(w->g, "output.weight");
    const char *head = tied && w->how->head ? w->how->head : "";
    json_t *map = json_object();
    w->header = json_object();
    for (int file = 0; file < n_files; file++) {
        char base[64], gguf[80], name[160];
        snprintf(base, sizeof base, "model-%05d-of-%05d.safetensors", file + 1, n_files);
        for (int i = n * file / n_files; i < n * (file + 1) / n_files; i++) {
            const GgufTensor *t = gguf_tensor_at(w->g, i);
            snprintf(gguf, sizeof gguf, "%.*s", (int)t->name.n, t->name.data);
            if (add_recurrent(w, map, base, t, gguf) || add_gemma4(w, map, base, t, gguf) ||
                add_experts(w, map, base, t, gguf) || add_shared_mlp(w, map, base, t, gguf) ||
                add_kv_b(w, map, base, t, gguf) || !name_of(w->style, gguf, name))
                continue;
            bool embedding = strcmp(gguf, "token_embd.weight") == 0;
            if (embedding && *head) {
                add_tensor(w, t, gguf, "lm_head.weight");
                jsonio_put(map, "lm_head.weight", json_string(base));
            }
            if (embedding && strcmp(head, "alone") == 0) continue;
            add_tensor(w, t, gguf, name);
            jsonio_put(map, name, json_string(base));
        }
        if (file == 0) add_xielu(w, map, base);
        write_file(w, dir, w->how->n_shards ? base : "model.safetensors");
    }
    json_decref(w->header);
    if (w->how->n_shards)
        hf_directory_json(dir, "model.safetensors.index.json", json_pack("{s:{}, s:o}", "metadata", "weight_map", map));
    else json_decref(map);
}

// ---- everything together
// ---------------------------------------------------------------------------------------------

void hf_directory_write(const Gguf *g, const char *dir, const HfDirectory *how) {
    static const HfDirectory plain;
    char arch[64];
    Str name;
    gguf_str(g, "general.architecture", &name, true);
    snprintf(arch, sizeof arch, "%.*s", (int)name.n, name.data);
    bool mixtral_model = strcmp(arch, "llama") == 0 && hf_number_of(g, arch, "expert_count") > 0;
    DirectoryWriter w = {
        .g = g, .style = style_of(mixtral_model ? "mixtral" : arch), .how = how ? how : &plain, .arch = arch};
    w.n_heads = (int)hf_number_of(g, arch, "attention.head_count");
    double kv_heads = hf_number_of(g, arch, "attention.head_count_kv");
    w.n_kv_heads = isnan(kv_heads) ? hf_recurrent_kv_heads(g, arch, w.n_heads) : (int)kv_heads; // NaN for a list
    mkdir(dir, 0777);
    hf_directory_config(
        &(HfConfigSource){.g = g, .how = w.how, .arch = arch, .model_type = w.style->model_type, .n_heads = w.n_heads},
        dir);
    write_tensors(&w, dir);
    if (!w.how->no_tokenizer) hf_directory_tokenizer(g, dir, w.how->merges_as_text);
}
