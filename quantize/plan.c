// quantize/plan.c: see quantize/plan.h.
#define _GNU_SOURCE // memmem, memrchr
#include "quantize/plan.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "encode/encode.h"
#include "formats/types.h"

// ---- the mixes ------------------------------------------------------------------------------------------------------

// The role of a matrix, which follows from its name.
typedef enum { PART_OTHER, PART_HEAD, PART_VALUE, PART_QKV, PART_ATTENTION_OUT, PART_FFN_DOWN } MixPart;

static const struct {
    const char *ending;
    MixPart part;
} parts[] = {
    {"attn_v.weight", PART_VALUE},
    {"attn_qkv.weight", PART_QKV},
    {"attn_output.weight", PART_ATTENTION_OUT},
    {"ffn_down.weight", PART_FFN_DOWN},
    {"ffn_down_exps.weight", PART_FFN_DOWN},
    {"ffn_down_shexp.weight", PART_FFN_DOWN},
};

// LAYERS_8TH, LAYERS_16TH: the first eighth, the first sixteenth. LAYERS_2, LAYERS_4: the first layers. LAYERS_SOME:
// the first and the last eighth, and every third layer between them. For Wv only the layers that have it count.
typedef enum { LAYERS_ALL, LAYERS_8TH, LAYERS_16TH, LAYERS_2, LAYERS_4, LAYERS_SOME } MixLayers;

typedef struct {
    MixPart part;
    MixLayers layers;
    int type;
} MixRule;

// The types of a mix. The head gets Q6_K; another matrix gets the type of the first rule that applies to it, or the
// base type. Names and meanings are those under which quantised models are published.
typedef struct {
    const char *name;
    int file_type; // llama.cpp's number (general.file_type)
    int base;
    MixRule rules[6]; // the first PART_OTHER ends the list
} TypeMix;

static const TypeMix mixes[] = {
    {"Q2_K_S", 21, TYPE_Q2_K, {{PART_VALUE, LAYERS_ALL, TYPE_Q4_K}, {PART_FFN_DOWN, LAYERS_8TH, TYPE_Q4_K}}},
    {"Q3_K_S", 11, TYPE_Q3_K, {{PART_OTHER, LAYERS_ALL, TYPE_F32}}},
    {"Q3_K_M",
     12,
     TYPE_Q3_K,
     {{PART_VALUE, LAYERS_2, TYPE_Q5_K},
      {PART_VALUE, LAYERS_ALL, TYPE_Q4_K},
      {PART_QKV, LAYERS_ALL, TYPE_Q4_K},
      {PART_ATTENTION_OUT, LAYERS_ALL, TYPE_Q4_K},
      {PART_FFN_DOWN, LAYERS_16TH, TYPE_Q5_K},
      {PART_FFN_DOWN, LAYERS_ALL, TYPE_Q4_K}}},
    {"Q3_K_L",
     13,
     TYPE_Q3_K,
     {{PART_VALUE, LAYERS_ALL, TYPE_Q5_K},
      {PART_QKV, LAYERS_ALL, TYPE_Q4_K},
      {PART_ATTENTION_OUT, LAYERS_ALL, TYPE_Q5_K},
      {PART_FFN_DOWN, LAYERS_ALL, TYPE_Q5_K}}},
    {"Q4_K_S", 14, TYPE_Q4_K, {{PART_VALUE, LAYERS_4, TYPE_Q5_K}, {PART_FFN_DOWN, LAYERS_8TH, TYPE_Q5_K}}},
    {"Q4_K_M",
     15,
     TYPE_Q4_K,
     {{PART_VALUE, LAYERS_SOME, TYPE_Q6_K},
      {PART_QKV, LAYERS_ALL, TYPE_Q5_K},
      {PART_FFN_DOWN, LAYERS_SOME, TYPE_Q6_K}}},
    {"Q5_K_S", 16, TYPE_Q5_K, {{PART_OTHER, LAYERS_ALL, TYPE_F32}}},
    {"Q5_K_M",
     17,
     TYPE_Q5_K,
     {{PART_VALUE, LAYERS_SOME, TYPE_Q6_K},
      {PART_QKV, LAYERS_ALL, TYPE_Q6_K},
      {PART_FFN_DOWN, LAYERS_SOME, TYPE_Q6_K}}},
};

// general.file_type of a file whose matrices are all of one type.
static int file_type_of(int type) {
    static const int numbers[][2] = {
        {TYPE_F32, 0},     {TYPE_F16, 1},     {TYPE_Q4_0, 2},  {TYPE_Q4_1, 3},   {TYPE_Q8_0, 7},   {TYPE_Q5_0, 8},
        {TYPE_Q5_1, 9},    {TYPE_Q2_K, 10},   {TYPE_Q3_K, 11}, {TYPE_Q4_K, 14},  {TYPE_Q5_K, 16},  {TYPE_Q6_K, 18},
        {TYPE_IQ4_NL, 25}, {TYPE_IQ4_XS, 30}, {TYPE_BF16, 32}, {TYPE_TQ1_0, 36}, {TYPE_TQ2_0, 37}, {TYPE_MXFP4, 38},
    };
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        if (numbers[i][0] == type) return numbers[i][1];
    return -1;
}

static bool applies(MixLayers layers, int layer, int n_layers) {
    int eighth = n_layers / 8;
    switch (layers) {
    case LAYERS_ALL: return true;
    case LAYERS_8TH: return layer < eighth;
    case LAYERS_16TH: return layer < n_layers / 16;
    case LAYERS_2: return layer < 2;
    case LAYERS_4: return layer < 4;
    default: return layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2;
    }
}

static bool contains(Str name, const char *part) { return memmem(name.data, name.n, part, strlen(part)) != NULL; }

static MixPart part_of(Str name, bool tied) {
    if (str_is(name, tied ? "token_embd.weight" : "output.weight")) return PART_HEAD;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (str_has_suffix(name, parts[i].ending)) return parts[i].part;
    return PART_OTHER;
}

static int layer_of(Str name) { // -1: none
    int layer = -1;
    char text[64];
    snprintf(text, sizeof text, "%.*s", (int)name.n, name.data);
    return sscanf(text, "blk.%d.", &layer) == 1 && layer >= 0 ? layer : -1;
}

// Where a matrix is among the layers of a model.
typedef struct {
    int layer, n_layers;
} MixPlace;

static MixPlace place_of(const Gguf *g, Str name, MixPart part, int n_layers) {
    int layer = layer_of(name);
    MixPlace among = {0};
    if (part != PART_VALUE) return (MixPlace){layer, n_layers};
    for (int i = 0; i < gguf_n_tensors(g); i++) {
        Str other = gguf_tensor_at(g, i)->name;
        if (part_of(other, false) != PART_VALUE) continue;
        among.layer += layer_of(other) < layer;
        among.n_layers++;
    }
    return among;
}

static int type_in_mix(const TypeMix *mix, const Gguf *g, Str name, bool tied, int n_layers) {
    MixPart part = part_of(name, tied);
    if (part == PART_HEAD) return TYPE_Q6_K;
    MixPlace at = place_of(g, name, part, n_layers);
    for (size_t i = 0; i < ARRAY_LEN(mix->rules) && mix->rules[i].part != PART_OTHER; i++)
        if (mix->rules[i].part == part && applies(mix->rules[i].layers, at.layer, at.n_layers))
            return mix->rules[i].type;
    return mix->base;
}

// ---- names ----------------------------------------------------------------------------------------------------------

const char *plan_type_list(void) {
    static _Thread_local char list[320];
    snprintf(list, sizeof list, "%s", encode_list());
    for (size_t i = 0; i < ARRAY_LEN(mixes); i++) str_list(list, sizeof list, mixes[i].name);
    return list;
}

static const TypeMix *mix_by_name(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(mixes); i++)
        if (strcasecmp(mixes[i].name, name) == 0) return &mixes[i];
    return NULL;
}

// The type of this name if quill can write it; NULL: unknown, or only read.
static const TypeInfo *writable(const char *name) {
    const TypeInfo *t = type_by_name(name);
    return t && encode_has(t->id) ? t : NULL;
}

// The error for an unknown type. names: the types that are expected.
static Status unknown_type(const char *where, const char *names, const char *name) {
    const TypeInfo *t = type_by_name(name);
    if (t && t->dequantize)
        return status_error(QUILL_USAGE, "%s: quill reads %s but cannot write it; one of %s expected", where, t->name,
                            names);
    return status_error(QUILL_USAGE, "%s: one of %s expected (%s are read and not written), found \"%.60s\"", where,
                        names, encode_read_only_list(), name);
}

// ---- overrides by the user ------------------------------------------------------------------------------------------

typedef struct {
    char *pattern;
    int type;
    bool used;
} TensorOverride;

static void free_overrides(TensorOverride *o, int n) {
    for (int i = 0; i < n; i++) free(o[i].pattern);
    free(o);
}

static Status parse_override(const char *text, size_t n, TensorOverride *out) {
    const char *equals = memrchr(text, '=', n);
    if (!equals || equals == text)
        return status_error(QUILL_USAGE, "--tensor: PATTERN=TYPE expected, found \"%.*s\"", (int)(n < 100 ? n : 100),
                            text);
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)(n - (size_t)(equals + 1 - text)), equals + 1);
    const TypeInfo *t = writable(name);
    if (!t) {
        char where[100];
        snprintf(where, sizeof where, "--tensor: %.*s", int_min((int)(equals - text), 80), text);
        return unknown_type(where, encode_list(), name);
    }
    *out = (TensorOverride){mem_copy(text, (size_t)(equals - text)), t->id, false};
    return OK;
}

static Status parse_overrides(const char *text, TensorOverride **out, int *n) {
    for (size_t length; text && *text; text += length + (text[length] == ',')) {
        length = strcspn(text, ",");
        *out = mem_resize(*out, (size_t)(*n + 1) * sizeof **out);
        TRY(parse_override(text, length, &(*out)[*n]));
        ++*n;
    }
    return OK;
}

static int overridden(TensorOverride *o, int n, Str name, int type) {
    char text[128];
    snprintf(text, sizeof text, "%.*s", (int)name.n, name.data);
    for (int i = 0; i < n; i++) {
        if (fnmatch(o[i].pattern, text, 0) != 0) continue;
        o[i].used = true;
        return o[i].type;
    }
    return type;
}

// ---- types that divide a row ----------------------------------------------------------------------------------------

// The type itself if its blocks divide rows of n_in; otherwise a type of the same or better quality whose blocks do.
static int fitting(int type, uint64_t n_in) {
    if (n_in % (uint64_t)type_info(type)->block == 0) return type;
    if (n_in % QK != 0) return TYPE_F16;
    switch (type) {
    case TYPE_Q4_K: return TYPE_Q5_0;
    case TYPE_Q5_K: return TYPE_Q5_1;
    case TYPE_Q6_K: return TYPE_Q8_0;
    default: return TYPE_IQ4_NL; // Q2_K, Q3_K, IQ4_XS, TQ1_0, TQ2_0
    }
}

// ---- the plan -------------------------------------------------------------------------------------------------------

// Norms, biases, factors, convolutions, decays and the experts' router are not quantised: they are small, and their
// errors do not average out.
static bool is_matrix(const GgufTensor *t) {
    return t->n_dims >= 2 && str_has_suffix(t->name, ".weight") && !contains(t->name, "_norm") &&
           !contains(t->name, "ffn_gate_inp") && !contains(t->name, "ssm_conv1d") && !contains(t->name, "ssm_ba") &&
           !contains(t->name, "ssm_beta") && !contains(t->name, "ssm_alpha") && !contains(t->name, "shortconv.conv");
}

static Status plan_tensor(const Gguf *g, PlanTensor *p) {
    const GgufTensor *t = p->from;
    const TypeInfo *from = type_info(t->type);
    if (p->matrix && !from)
        return status_error(QUILL_MODEL, "%s: tensor %.*s: a type that quill reads expected, %s found", gguf_name(g),
                            (int)t->name.n, t->name.data, type_name(t->type));
    if (!p->matrix) {
        p->type = p->wished = t->type == TYPE_F16 || t->type == TYPE_BF16 ? TYPE_F32 : t->type;
        p->n_bytes = p->type == t->type ? t->n_bytes : gguf_tensor_weights(t) * sizeof(float);
        return OK;
    }
    p->type = fitting(p->wished, t->dims[0]);
    const TypeInfo *to = type_info(p->type);
    p->n_bytes = gguf_tensor_weights(t) / (size_t)to->block * (size_t)to->bytes;
    return OK;
}

static Status fill(const Gguf *g, const TypeMix *mix, int type, TensorOverride *o, int n_over, QuantizePlan *out) {
    int n_layers = 0;
    bool tied = !gguf_tensor(g, "output.weight");
    for (int i = 0; i < out->n; i++) n_layers = int_max(n_layers, layer_of(gguf_tensor_at(g, i)->name) + 1);
    for (int i = 0; i < out->n; i++) {
        PlanTensor *p = &out->tensor[i];
        p->from = gguf_tensor_at(g, i);
        p->matrix = is_matrix(p->from);
        p->wished = mix ? type_in_mix(mix, g, p->from->name, tied, n_layers) : type;
        if (p->matrix) p->wished = overridden(o, n_over, p->from->name, p->wished);
        TRY(plan_tensor(g, p));
        out->n_weights += gguf_tensor_weights(p->from);
        out->n_bytes += p->n_bytes;
        out->n_from += gguf_tensor_bytes(p->from);
        out->again |= p->matrix && type_info(p->from->type)->block > 1;
    }
    for (int i = 0; i < n_over; i++)
        if (!o[i].used)
            return status_error(QUILL_USAGE,
                                "--tensor: %.100s: a pattern that matches a matrix expected, but no matrix of %s "
                                "matches; quill inspect lists their names; vectors, as those of norms, stay in F32",
                                o[i].pattern, gguf_name(g));
    return OK;
}

Status plan_make(const Gguf *g, const char *type, const char *overrides, QuantizePlan *out) {
    *out = (QuantizePlan){.file_type = -1};
    const TypeMix *mix = mix_by_name(type);
    const TypeInfo *one = writable(type);
    if (!mix && !one) return unknown_type("quill quantize: TYPE", plan_type_list(), type);
    out->name = mix ? mix->name : one->name;
    out->file_type = mix ? mix->file_type : file_type_of(one->id);
    out->n = gguf_n_tensors(g);
    out->tensor = mem_alloc((size_t)int_max(out->n, 1) * sizeof *out->tensor);
    TensorOverride *o = NULL;
    int n = 0;
    Status st = parse_overrides(overrides, &o, &n);
    if (!st.code) st = fill(g, mix, one ? one->id : 0, o, n, out);
    free_overrides(o, n);
    if (st.code) plan_free(out);
    return st;
}

void plan_free(QuantizePlan *p) {
    free(p->tensor);
    *p = (QuantizePlan){0};
}
