// hf/experts.c: converts the experts of a directory to GGUF's stacks. A directory has one tensor for each expert, or
// fused tensors of all experts.
//
// Shapes in the directory, slowest dimension first; E experts of width W, dim H:
//   mlp.experts.N.gate_proj|up_proj|down_proj.weight, block_sparse_moe.experts.N.w1|w3|w2.weight   one expert's matrix
//   mlp.experts.gate_up_proj (E, 2W, H): gate's rows, then up's; mlp.experts.down_proj (E, H, W)
//   block_sparse_moe.input_linear.weight and output_linear.weight, the same; with a shared expert of width S also
//   shared_mlp.input_linear.weight (2S, H)
// these also in FP8, with scales (hf/fp8.h), which become BF16. Qwen3-VL's fused tensors are transposed:
//   gate_up_proj (E, H, 2W), down_proj (E, W, H);
// and in gpt-oss rows of gate and up alternate, too:
//   gate_up_proj (E, H, 2W), down_proj (E, W, H), gate_up_proj_bias (E, 2W), down_proj_bias (E, H); in MXFP4
//   gate_up_proj_blocks (E, 2W, H/32, 16) with _scales (E, 2W, H/32), down_proj_blocks (E, H, W/32, 16) with _scales
// Stacks are copies, except a fused down_proj that already has GGUF's layout. The two parts of input_linear of a shared
// expert are used in place.
#include "hf/experts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/types.h"
#include "hf/config.h"
#include "hf/view.h"

enum { GATE, UP, DOWN, PARTS };
static const char *const stack_names[PARTS] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};

static void name_of(char out[64], long layer, int part, const char *kind) {
    snprintf(out, 64, "blk.%ld.%s.%s", layer, stack_names[part], kind);
}

// Whether a tensor has n dimensions that fit an int.
static bool has_dims(const SafeTensor *t, int n) {
    bool fits = t->n_dims == n;
    for (int d = 0; fits && d < n; d++) fits = t->dims[d] >= 1 && t->dims[d] <= INT32_MAX;
    return fits;
}
static bool is_shaped(const SafeTensor *t, int n) { return has_dims(t, n) && hf_type_of(t) >= 0; }

// ---- a tensor for each expert ---------------------------------------------------------------------------------------

void hf_experts_free(HfExperts *x) {
    for (int i = 0; i < x->n; i++) free(x->stacks[i].seen);
    free(x->stacks);
    *x = (HfExperts){0};
}

static HfStack *stack_of(HfExperts *x, long layer, int part) {
    for (int i = 0; i < x->n; i++)
        if (x->stacks[i].layer == layer && x->stacks[i].part == part) return &x->stacks[i];
    x->stacks = mem_resize(x->stacks, (size_t)(x->n + 1) * sizeof *x->stacks);
    x->stacks[x->n] = (HfStack){.layer = layer, .part = part};
    return &x->stacks[x->n++];
}

static Status take_one(HfExperts *x, const HfModel *m, const SafeFiles *files, long layer, int part, long expert,
                       const SafeTensor *t) {
    int64_t n;
    int type = fp8_is(t) ? TYPE_BF16 : hf_type_of(t);
    size_t n_bytes = fp8_is(t) ? 2 * t->n_bytes : t->n_bytes, all;
    hf_config_experts(m, &n);
    if (expert < 0 || expert >= n || n > 1 << 16)
        return status_error(QUILL_MODEL, "%s: tensor %.*s: an expert below config.json's %d expected", t->file,
                            SAFE_SHOW(t->name), (int)n);
    if (!has_dims(t, 2) || type < 0) return hf_refuse(t, "F32, F16, BF16 or F8_E4M3 of 2 dimensions");
    HfStack *s = stack_of(x, layer, part);
    if (!s->data) {
        if (!size_mul(n_bytes, (size_t)n, &all)) return hf_refuse(t, "a smaller tensor");
        s->type = type, s->n_out = t->dims[0], s->n_in = t->dims[1], s->n_experts = n;
        s->data = hf_view_alloc(m->g, all);
        s->seen = mem_alloc((size_t)n * sizeof *s->seen);
    }
    if (s->type != type || s->n_out != t->dims[0] || s->n_in != t->dims[1])
        return hf_refuse(t, "type and shape of the layer's other experts");
    if (s->seen[expert])
        return status_error(QUILL_MODEL, "%s: tensor %.*s: another one is expert %ld of this layer already", t->file,
                            SAFE_SHOW(t->name), expert);
    s->seen[expert] = true;
    uint8_t *to = s->data + (size_t)expert * n_bytes;
    if (fp8_is(t)) TRY(fp8_dequantize(t, fp8_scale_of(files, t), m->fp8, (uint16_t *)(void *)to));
    else memcpy(to, t->data, t->n_bytes);
    s->n_found++;
    return OK;
}

Status hf_experts_end(HfExperts *x, const HfModel *m) {
    for (int i = 0; i < x->n; i++) {
        const HfStack *s = &x->stacks[i];
        char name[64];
        name_of(name, s->layer, s->part, "weight");
        if (s->n_found != s->n_experts)
            return status_error(QUILL_MODEL, "%s: tensor %s: %d experts expected in the safetensors files, %d found",
                                m->dir, name, (int)s->n_experts, (int)s->n_found);
        TRY(hf_view_add(m, NULL, name, s->type, (size_t)s->n_in, (size_t)s->n_out, (size_t)s->n_experts, s->data));
    }
    return OK;
}

// ---- fused ----------------------------------------------------------------------------------------------------------

// Copies a stack of E n_out rows of n_in elements. Row o of expert e begins at element e * expert + first + o * row of
// the tensor; its elements are `step` apart.
static void *copy_rows(const HfModel *m, const SafeTensor *t, size_t n_experts, size_t n_out, size_t n_in,
                       size_t expert, size_t first, size_t row, size_t step) {
    size_t size = t->element;
    uint8_t *out = hf_view_alloc(m->g, n_experts * n_out * n_in * size), *to = out;
    for (size_t e = 0; e < n_experts; e++)
        for (size_t o = 0; o < n_out; o++) {
            const uint8_t *from = t->data + (e * expert + first + o * row) * size;
            if (step == 1) memcpy(to, from, n_in * size);
            else
                for (size_t i = 0; i < n_in; i++) memcpy(to + i * size, from + i * step * size, size);
            to += n_in * size;
        }
    return out;
}

static Status add(const HfModel *m, const SafeTensor *t, long layer, int part, const char *kind, int type, size_t n_in,
                  size_t n_out, size_t n_experts, const void *data) {
    char name[64];
    name_of(name, layer, part, kind);
    return hf_view_add(m, t, name, type, n_in, n_out, n_experts, data);
}

// Whether a fused tensor is transposed; otherwise it has n_out rows.
static bool is_turned(const HfModel *m, const SafeTensor *t, int parts, const char *n_out, const char *n_in) {
    int64_t out, in;
    if (m->family->names == HF_NAMES_OSS) return true;
    if (!m->family->turns_experts) return false;
    bool known = hf_config_int(m->config, n_out, &out) && hf_config_int(m->config, n_in, &in);
    return !known || t->dims[1] != (uint64_t)(parts * out) || t->dims[2] != (uint64_t)in;
}

static Status take_gate_up(const HfModel *m, long layer, const SafeTensor *t) {
    if (!is_shaped(t, 3)) return hf_refuse(t, "F32, F16 or BF16 of 3 dimensions, gate and up,");
    bool alternate = m->family->names == HF_NAMES_OSS;
    bool turns = is_turned(m, t, 2, "moe_intermediate_size", "hidden_size");
    if (t->dims[turns ? 2 : 1] % 2) return hf_refuse(t, "F32, F16 or BF16 of 3 dimensions, gate and up,");
    size_t n = (size_t)t->dims[0], both = (size_t)t->dims[turns ? 2 : 1], dim = (size_t)t->dims[turns ? 1 : 2],
           width = both / 2;
    for (size_t part = 0; part < 2; part++) {
        size_t first = alternate ? part : part * width * (turns ? 1 : dim), row = alternate ? 2 : turns ? 1 : dim;
        TRY(add(m, t, layer, (int)part, "weight", hf_type_of(t), dim, width, n,
                copy_rows(m, t, n, width, dim, both * dim, first, row, turns ? both : 1)));
    }
    return OK;
}

// down, or up of experts without a gate.
static Status take_whole(const HfModel *m, long layer, int part, const SafeTensor *t) {
    if (!is_shaped(t, 3)) return hf_refuse(t, "F32, F16 or BF16 of 3 dimensions");
    bool turns = is_turned(m, t, 1, "hidden_size", "moe_intermediate_size");
    size_t n = (size_t)t->dims[0], dim = (size_t)t->dims[turns ? 2 : 1], width = (size_t)t->dims[turns ? 1 : 2];
    const void *data = t->data;
    if (turns || (uintptr_t)data % t->element)
        data = copy_rows(m, t, n, dim, width, dim * width, 0, turns ? 1 : width, turns ? dim : 1);
    TRY(add(m, t, layer, part, "weight", hf_type_of(t), width, dim, n, data));
    return OK;
}

static Status take_down(const HfModel *m, long layer, const SafeTensor *t) { return take_whole(m, layer, DOWN, t); }

// Gate and up of the shared expert in one tensor. Without experts they are those of the feed-forward.
static Status take_shared(const HfModel *m, long layer, const SafeTensor *t) {
    static const char *const names[] = {"ffn_gate", "ffn_up"};
    int64_t n;
    const char *kind = hf_config_experts(m, &n) ? "_shexp" : "";
    if (!is_shaped(t, 2) || t->dims[0] % 2) return hf_refuse(t, "F32, F16 or BF16 of 2 dimensions, gate and up,");
    const char *data = hf_aligned_data(m, t);
    for (size_t part = 0; part < 2; part++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%ld.%s%s.weight", layer, names[part], kind);
        TRY(hf_view_add(m, t, name, hf_type_of(t), (size_t)t->dims[1], (size_t)t->dims[0] / 2, 0,
                        data + part * t->n_bytes / 2));
    }
    return OK;
}

static Status take_bias(const HfModel *m, long layer, const SafeTensor *t, bool gate_up) {
    if (!is_shaped(t, 2) || (gate_up && t->dims[1] % 2)) return hf_refuse(t, "F32, F16 or BF16 of 2 dimensions");
    size_t n = (size_t)t->dims[0], width = (size_t)t->dims[1] / (gate_up ? 2 : 1);
    for (size_t part = 0; part < (gate_up ? 2 : 1); part++)
        TRY(add(m, t, layer, gate_up ? (int)part : DOWN, "bias", hf_type_of(t), width, n, 0,
                copy_rows(m, t, 1, n, width, 0, part, (size_t)t->dims[1], gate_up ? 2 : 1)));
    return OK;
}

// A fused tensor in FP8, as BF16.
static Status take_fp8(const HfModel *m, const SafeFiles *files, long layer, const SafeTensor *t, bool gate_up) {
    if (!has_dims(t, 3) || m->family->names == HF_NAMES_OSS || m->family->turns_experts)
        return hf_refuse(t, "F32, F16 or BF16, or F8_E4M3 of 3 dimensions,");
    SafeTensor whole = *t;
    size_t n_bytes = 2 * t->n_bytes;
    uint16_t *out = gate_up ? mem_alloc(n_bytes) : hf_view_alloc(m->g, n_bytes); // gate and up are copied from it
    whole.dtype = "BF16", whole.element = 2, whole.n_bytes = n_bytes, whole.data = (const uint8_t *)out;
    Status st = fp8_dequantize_stack(t, fp8_scale_of(files, t), m->fp8, out);
    if (!st.code) st = gate_up ? take_gate_up(m, layer, &whole) : take_down(m, layer, &whole);
    if (gate_up) free(out);
    return st;
}

// Reorders an MXFP4 block for GGUF, where byte k has elements k (low half) and k + 16. In the directory byte k has
// elements 2k and 2k + 1.
static void turn_block(uint8_t scale, const uint8_t *from, uint8_t *to) {
    to[0] = scale;
    for (int k = 0; k < 16; k++) {
        int low = from[k / 2] >> (k % 2 * 4) & 15, high = from[8 + k / 2] >> (k % 2 * 4) & 15;
        to[1 + k] = (uint8_t)(low | high << 4);
    }
}

static Status take_blocks(const HfModel *m, const SafeFiles *files, long layer, const SafeTensor *t, bool gate_up) {
    char name[200];
    snprintf(name, sizeof name, "%.*sscales", (int)(t->name.n < 180 ? t->name.n - 6 : 0), t->name.data); // for "blocks"
    const SafeTensor *s = safetensors_find(files, name);
    bool fits = t->n_dims == 4 && strcmp(t->dtype, "U8") == 0 && t->dims[3] == 16 && (!gate_up || t->dims[1] % 2 == 0);
    fits = fits && s && s->n_dims == 3 && strcmp(s->dtype, "U8") == 0 && t->n_bytes > 0;
    for (int d = 0; fits && d < 3; d++) fits = s->dims[d] == t->dims[d] && t->dims[d] <= INT32_MAX / 32;
    if (!fits) return hf_refuse(t, "U8 of 4 dimensions, the last one 16, and its scales");
    size_t n = (size_t)t->dims[0], rows = (size_t)t->dims[1], blocks = (size_t)t->dims[2], parts = gate_up ? 2 : 1;
    for (size_t part = 0; part < parts; part++) {
        size_t n_out = rows / parts;
        uint8_t *out = hf_view_alloc(m->g, n * n_out * blocks * 17), *to = out;
        for (size_t o = 0; o < n * n_out; o++)
            for (size_t b = 0; b < blocks; b++, to += 17) {
                size_t at = (o * parts + part) * blocks + b;
                turn_block(s->data[at], t->data + at * 16, to);
            }
        TRY(add(m, t, layer, gate_up ? (int)part : DOWN, "weight", TYPE_MXFP4, blocks * 32, n_out, n, out));
    }
    return OK;
}

// ---- names ----------------------------------------------------------------------------------------------------------

static int part_of(const char *word) {
    static const char *const words[][PARTS] = {{"gate_proj.weight", "up_proj.weight", "down_proj.weight"},
                                               {"w1.weight", "w3.weight", "w2.weight"}};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < PARTS; i++)
            if (strcmp(word, words[k][i]) == 0) return i;
    return -1;
}

bool hf_experts_take(HfExperts *x, const HfModel *m, const SafeFiles *files, long layer, const char *part,
                     const SafeTensor *t, Status *st) {
    static const char *const roots[] = {"mlp.experts.", "block_sparse_moe.experts.", "feed_forward.experts.",
                                        "mixer.experts.", "experts."};
    static const struct {
        const char *part;
        Status (*take)(const HfModel *m, long layer, const SafeTensor *t);
    } whole[] = {{"block_sparse_moe.input_linear.weight", take_gate_up},
                 {"block_sparse_moe.output_linear.weight", take_down},
                 {"shared_mlp.input_linear.weight", take_shared}};
    const char *word = NULL;
    const char *end;
    long expert;
    for (size_t i = 0; i < ARRAY_LEN(whole); i++)
        if (strcmp(part, whole[i].part) == 0) {
            *st = whole[i].take(m, layer, t);
            return true;
        }
    for (size_t i = 0; i < ARRAY_LEN(roots) && !word; i++)
        if (strncmp(part, roots[i], strlen(roots[i])) == 0) word = part + strlen(roots[i]);
    if (!word) return false;
    *st = OK;
    if (hf_number(word, &end, &expert) && *end == '.' && part_of(end + 1) >= 0)
        *st = take_one(x, m, files, layer, part_of(end + 1), expert, t);
    else if (fp8_is(t) && strcmp(word, "gate_up_proj") == 0) *st = take_fp8(m, files, layer, t, true);
    else if (fp8_is(t) && strcmp(word, "down_proj") == 0) *st = take_fp8(m, files, layer, t, false);
    else if (strcmp(word, "gate_up_proj") == 0) *st = take_gate_up(m, layer, t);
    else if (strcmp(word, "down_proj") == 0) *st = take_down(m, layer, t);
    else if (strcmp(word, "up_proj") == 0) *st = take_whole(m, layer, UP, t); // of experts without a gate
    else if (strcmp(word, "gate_up_proj_bias") == 0) *st = take_bias(m, layer, t, true);
    else if (strcmp(word, "down_proj_bias") == 0) *st = take_bias(m, layer, t, false);
    else if (strcmp(word, "gate_up_proj_blocks") == 0) *st = take_blocks(m, files, layer, t, true);
    else if (strcmp(word, "down_proj_blocks") == 0) *st = take_blocks(m, files, layer, t, false);
    else return strstr(word, "_proj_scale") != NULL; // scales are read with their weights
    return true;
}
