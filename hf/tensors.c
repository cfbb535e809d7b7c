// hf/tensors.c: see hf/tensors.h.
#include "hf/tensors.h"

#include <stdio.h>
#include <string.h>

#include "formats/types.h"
#include "hf/experts.h"
#include "hf/muse.h"
#include "hf/recurrent.h"
#include "hf/view.h"
#include "hf/xielu.h"

enum { NAME_BYTES = 64 }; // bytes of a name in GGUF, including its NUL

// The name of a part of a layer in transformers, the families with this name, and its name in GGUF.
enum {
    ALL = HF_NAMES_LLAMA | HF_NAMES_GEMMA | HF_NAMES_OLMO | HF_NAMES_GLM | HF_NAMES_OSS | HF_NAMES_DEEPSEEK |
          HF_NAMES_GEMMA4 | HF_NAMES_NEXT | HF_NAMES_GLM_MOE | HF_NAMES_SEED | HF_NAMES_HUNYUAN |
          HF_NAMES_GRANITE_HYBRID | HF_NAMES_AFMOE | HF_NAMES_HY | HF_NAMES_EXAONE | HF_NAMES_LLAMA4 | HF_NAMES_APERTUS,
    SHARED = HF_NAMES_LLAMA | HF_NAMES_DEEPSEEK | HF_NAMES_GLM_MOE | HF_NAMES_AFMOE | HF_NAMES_HY,
};
static const struct {
    const char *part, *gguf;
    int names;
} layer_parts[] = {
    {"input_layernorm", "attn_norm", ALL},
    {"attention_layernorm", "attn_norm", HF_NAMES_APERTUS},
    {"feedforward_layernorm", "ffn_norm", HF_NAMES_APERTUS},
    {"self_attn.q_proj", "attn_q", ALL | HF_NAMES_LFM},
    {"self_attn.k_proj", "attn_k", ALL | HF_NAMES_LFM},
    {"self_attn.v_proj", "attn_v", ALL | HF_NAMES_LFM},
    {"self_attn.qkv_proj", "attn_qkv", ALL},
    {"self_attn.o_proj", "attn_output", ALL},
    {"self_attn.gate_proj", "attn_gate", HF_NAMES_GEMMA | HF_NAMES_AFMOE}, // HF_NAMES_GEMMA: Muse Glimmer's
    {"self_attn.q_norm", "attn_q_norm", ALL},
    {"self_attn.k_norm", "attn_k_norm", ALL},
    {"mlp.gate_proj", "ffn_gate", ALL},
    {"mlp.up_proj", "ffn_up", ALL},
    {"mlp.gate_up_proj", "ffn_up", ALL},
    {"mlp.down_proj", "ffn_down", ALL},
    {"self_attn.q_a_proj", "attn_q_a", HF_NAMES_DEEPSEEK},
    {"self_attn.q_a_layernorm", "attn_q_a_norm", HF_NAMES_DEEPSEEK},
    {"self_attn.q_b_proj", "attn_q_b", HF_NAMES_DEEPSEEK},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa", HF_NAMES_DEEPSEEK},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm", HF_NAMES_DEEPSEEK},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp", SHARED},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp", SHARED},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp", SHARED},
    {"post_attention_layernorm", "ffn_norm",
     HF_NAMES_LLAMA | HF_NAMES_GLM | HF_NAMES_DEEPSEEK | HF_NAMES_HUNYUAN | HF_NAMES_GRANITE_HYBRID | HF_NAMES_HY |
         HF_NAMES_EXAONE | HF_NAMES_LLAMA4},
    {"post_attention_layernorm", "post_attention_norm",
     HF_NAMES_GEMMA | HF_NAMES_OLMO | HF_NAMES_OSS | HF_NAMES_GEMMA4 | HF_NAMES_NEXT | HF_NAMES_GLM_MOE |
         HF_NAMES_SEED | HF_NAMES_AFMOE},
    {"self_attn.query_layernorm", "attn_q_norm", HF_NAMES_HUNYUAN},
    {"self_attn.key_layernorm", "attn_k_norm", HF_NAMES_HUNYUAN},
    {"mlp.gate", "ffn_gate_inp", SHARED | HF_NAMES_NEXT},
    {"block_sparse_moe.gate", "ffn_gate_inp", HF_NAMES_LLAMA},
    {"block_sparse_moe.router", "ffn_gate_inp", HF_NAMES_LLAMA | HF_NAMES_GRANITE_HYBRID},
    {"block_sparse_moe.router.layer", "ffn_gate_inp", HF_NAMES_LLAMA | HF_NAMES_GRANITE_HYBRID},
    {"shared_mlp.output_linear", "ffn_down_shexp", HF_NAMES_LLAMA},
    {"mlp.router", "ffn_gate_inp", HF_NAMES_OSS},
    {"mlp.router.gate", "ffn_gate_inp", HF_NAMES_AFMOE | HF_NAMES_HY},
    {"mlp.shared_mlp.gate_proj", "ffn_gate_shexp", HF_NAMES_HY},
    {"mlp.shared_mlp.up_proj", "ffn_up_shexp", HF_NAMES_HY},
    {"mlp.shared_mlp.down_proj", "ffn_down_shexp", HF_NAMES_HY},
    {"pre_mlp_layernorm", "ffn_norm", HF_NAMES_AFMOE},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp", HF_NAMES_LLAMA | HF_NAMES_NEXT},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp", HF_NAMES_LLAMA | HF_NAMES_NEXT},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp", HF_NAMES_LLAMA | HF_NAMES_NEXT},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp", HF_NAMES_LLAMA | HF_NAMES_NEXT},
    {"pre_feedforward_layernorm", "ffn_norm", HF_NAMES_GEMMA | HF_NAMES_GEMMA4},
    {"post_feedforward_layernorm", "post_ffw_norm", HF_NAMES_GEMMA | HF_NAMES_OLMO | HF_NAMES_GEMMA4},
    {"pre_feedforward_layernorm_2", "pre_ffw_norm_2", HF_NAMES_GEMMA4},
    {"post_feedforward_layernorm_1", "post_ffw_norm_1", HF_NAMES_GEMMA4},
    {"post_feedforward_layernorm_2", "post_ffw_norm_2", HF_NAMES_GEMMA4},
    {"per_layer_input_gate", "inp_gate", HF_NAMES_GEMMA4},
    {"per_layer_projection", "proj", HF_NAMES_GEMMA4},
    {"post_per_layer_input_norm", "post_norm", HF_NAMES_GEMMA4},
    {"router.proj", "ffn_gate_inp", HF_NAMES_GEMMA4},
    {"post_self_attn_layernorm", "post_attention_norm", HF_NAMES_GLM},
    {"post_mlp_layernorm", "post_ffw_norm", HF_NAMES_GLM | HF_NAMES_AFMOE},
    {"ln_1", "attn_norm", HF_NAMES_EXAONE},
    {"ln_2", "ffn_norm", HF_NAMES_EXAONE},
    {"attn.attention.q_proj", "attn_q", HF_NAMES_EXAONE},
    {"attn.attention.k_proj", "attn_k", HF_NAMES_EXAONE},
    {"attn.attention.v_proj", "attn_v", HF_NAMES_EXAONE},
    {"attn.attention.out_proj", "attn_output", HF_NAMES_EXAONE},
    {"mlp.c_fc_0", "ffn_gate", HF_NAMES_EXAONE},
    {"mlp.c_fc_1", "ffn_up", HF_NAMES_EXAONE},
    {"mlp.c_proj", "ffn_down", HF_NAMES_EXAONE},
    {"linear_attn.in_proj_qkv", "attn_qkv", HF_NAMES_NEXT},
    {"linear_attn.in_proj_z", "attn_gate", HF_NAMES_NEXT},
    {"linear_attn.in_proj_ba", "ssm_ba", HF_NAMES_NEXT},
    {"linear_attn.in_proj_b", "ssm_beta", HF_NAMES_NEXT},
    {"linear_attn.in_proj_a", "ssm_alpha", HF_NAMES_NEXT},
    {"linear_attn.out_proj", "ssm_out", HF_NAMES_NEXT},
    {"norm", "attn_norm", HF_NAMES_NEMOTRON},
    {"mixer.in_proj", "ssm_in", HF_NAMES_NEMOTRON},
    {"mixer.out_proj", "ssm_out", HF_NAMES_NEMOTRON},
    {"mixer.q_proj", "attn_q", HF_NAMES_NEMOTRON},
    {"mixer.k_proj", "attn_k", HF_NAMES_NEMOTRON},
    {"mixer.v_proj", "attn_v", HF_NAMES_NEMOTRON},
    {"mixer.o_proj", "attn_output", HF_NAMES_NEMOTRON},
    {"mixer.up_proj", "ffn_up", HF_NAMES_NEMOTRON},
    {"mixer.down_proj", "ffn_down", HF_NAMES_NEMOTRON},
    {"mixer.gate", "ffn_gate_inp", HF_NAMES_NEMOTRON},
    {"mixer.shared_experts.up_proj", "ffn_up_shexp", HF_NAMES_NEMOTRON},
    {"mixer.shared_experts.down_proj", "ffn_down_shexp", HF_NAMES_NEMOTRON},
    {"mamba.in_proj", "ssm_in", HF_NAMES_GRANITE_HYBRID},
    {"mamba.out_proj", "ssm_out", HF_NAMES_GRANITE_HYBRID},
    {"operator_norm", "attn_norm", HF_NAMES_LFM},
    {"ffn_norm", "ffn_norm", HF_NAMES_LFM},
    {"self_attn.out_proj", "attn_output", HF_NAMES_LFM},
    {"self_attn.q_layernorm", "attn_q_norm", HF_NAMES_LFM},
    {"self_attn.k_layernorm", "attn_k_norm", HF_NAMES_LFM},
    {"conv.in_proj", "shortconv.in_proj", HF_NAMES_LFM},
    {"conv.out_proj", "shortconv.out_proj", HF_NAMES_LFM},
    {"feed_forward.w1", "ffn_gate", HF_NAMES_LFM},
    {"feed_forward.w3", "ffn_up", HF_NAMES_LFM},
    {"feed_forward.w2", "ffn_down", HF_NAMES_LFM},
    {"feed_forward.gate", "ffn_gate_inp", HF_NAMES_LFM},
    {"feed_forward.gate_proj", "ffn_gate", HF_NAMES_LLAMA4},
    {"feed_forward.up_proj", "ffn_up", HF_NAMES_LLAMA4},
    {"feed_forward.down_proj", "ffn_down", HF_NAMES_LLAMA4},
    {"feed_forward.router", "ffn_gate_inp", HF_NAMES_LLAMA4},
    {"feed_forward.shared_expert.gate_proj", "ffn_gate_shexp", HF_NAMES_LLAMA4},
    {"feed_forward.shared_expert.up_proj", "ffn_up_shexp", HF_NAMES_LLAMA4},
    {"feed_forward.shared_expert.down_proj", "ffn_down_shexp", HF_NAMES_LLAMA4},
};

// Parts whose names have no last word, with their complete names in GGUF.
static const struct {
    const char *part, *gguf;
    int names;
} bare_parts[] = {
    {"self_attn.sinks", "attn_sinks.weight", ALL},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias", HF_NAMES_DEEPSEEK | HF_NAMES_GLM_MOE | HF_NAMES_LLAMA},
    {"mlp.expert_bias", "exp_probs_b.bias", HF_NAMES_AFMOE},
    {"mlp.expert_bias", "exp_probs_b", HF_NAMES_HY},
    {"mlp.e_score_correction_bias", "exp_probs_b", HF_NAMES_HY},
    {"mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias", HF_NAMES_LLAMA},
    {"mlp.gate.moe_statics.e_score_correction_bias", "exp_probs_b.bias", HF_NAMES_LLAMA},
    {"mlp.e_score_correction_bias", "exp_probs_b.bias", HF_NAMES_LLAMA},
    {"block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias", HF_NAMES_LLAMA},
    {"feed_forward.expert_bias", "exp_probs_b.bias", HF_NAMES_LFM},
    {"mixer.gate.e_score_correction_bias", "exp_probs_b.bias", HF_NAMES_NEMOTRON},
    {"layer_scalar", "layer_output_scale.weight", HF_NAMES_GEMMA4},
    {"router.scale", "ffn_gate_inp.scale", HF_NAMES_GEMMA4},
    {"router.per_expert_scale", "ffn_down_exps.scale", HF_NAMES_GEMMA4}};

// Last words of the names of unused tensors: constants, scales of activations and caches, and scales of weights, which
// read_fp8 reads together with the weights.
static const char *const left_out[] = {
    "inv_freq",    "k_scale",      "v_scale",      "kv_scale",        "activation_scale", "activation_scale_inv",
    "input_scale", "output_scale", "weight_scale", "weight_scale_inv"};

// The prefixes of the text model's tensors: of a text model, of a model with images, and of a model saved without its
// head.
static const char *const prefixes[] = {"model.",    "model.language_model.", "language_model.model.",
                                       "backbone.", "transformer.",          ""};

typedef struct {
    const HfModel *m;
    const SafeFiles *files;
    const char *prefix;
    const SafeTensor *embedding; // NULL: there is none; a tied embedding may have been saved only as lm_head
    bool tied, untied;           // tie_word_embeddings is true, is false
    int64_t n_layers;
    HfExperts experts;
} TensorReader;

static bool lfm(const TensorReader *r) { return r->m->family->names == HF_NAMES_LFM; }
static bool nemotron(const TensorReader *r) { return r->m->family->names == HF_NAMES_NEMOTRON; }
// EXAONE 3's own names, which directories of newer versions of transformers do not have.
static bool exaone(const TensorReader *r) {
    return r->m->family->names == HF_NAMES_EXAONE && r->prefix && strcmp(r->prefix, "transformer.") == 0;
}
static const char *last_norm(const TensorReader *r) {
    return lfm(r) ? "embedding_norm.weight" : nemotron(r) ? "norm_f.weight" : exaone(r) ? "ln_f.weight" : "norm.weight";
}
static const char *embedding(const TensorReader *r) {
    return nemotron(r) ? "embeddings.weight" : exaone(r) ? "wte.weight" : "embed_tokens.weight";
}
static const char *layers(const TensorReader *r) { return exaone(r) ? "h." : "layers."; }

static Status refuse_type(const SafeTensor *t, const char *expected) {
    return status_error(QUILL_MODEL, "%s: tensor %.*s: type %s expected, %s found", t->file, SAFE_SHOW(t->name),
                        expected, t->dtype);
}

// ---- names ----------------------------------------------------------------------------------------------------------

// Converts the part of a name after the prefix to GGUF. `out` is empty: the tensor is not used. False: there is no such
// part.
static bool layer_name(const TensorReader *r, Str rest, char out[NAME_BYTES]) {
    const char *end;
    char text[160];
    long layer;
    *out = 0;
    snprintf(text, sizeof text, "%.*s", (int)(rest.n < 159 ? rest.n : 159), rest.data);
    if (!hf_number(text, &end, &layer) || *end != '.') return false;
    if (layer >= r->n_layers) return true; // layers for multi-token prediction come after the others
    char *part = text + (end + 1 - text), *kind = strrchr(part, '.');
    for (size_t i = 0; i < ARRAY_LEN(bare_parts); i++)
        if (strcmp(part, bare_parts[i].part) == 0 && bare_parts[i].names & (int)r->m->family->names) {
            snprintf(out, NAME_BYTES, "blk.%ld.%s", layer, bare_parts[i].gguf);
            return true;
        }
    if (!kind) return false;
    *kind++ = 0;
    for (size_t i = 0; i < ARRAY_LEN(left_out); i++)
        if (strcmp(kind, left_out[i]) == 0) return true;
    if (strcmp(kind, "weight") != 0 && strcmp(kind, "bias") != 0) return false;
    for (size_t i = 0; i < ARRAY_LEN(layer_parts); i++) {
        if (strcmp(part, layer_parts[i].part) != 0 || !(layer_parts[i].names & (int)r->m->family->names)) continue;
        snprintf(out, NAME_BYTES, "blk.%ld.%s.%s", layer, layer_parts[i].gguf, kind);
        return true;
    }
    return false;
}

static Str behind(Str s, const char *prefix) {
    size_t n = strlen(prefix);
    return str_has_prefix(s, prefix) ? (Str){s.data + n, s.n - n} : (Str){NULL, 0};
}

// Whether lm_head is a copy of the embedding. As in transformers 5, tie_word_embeddings does not tie tensors that
// differ.
static bool is_copy(const TensorReader *r, const SafeTensor *head) {
    const SafeTensor *e = r->embedding;
    return e && strcmp(e->dtype, head->dtype) == 0 && e->n_bytes == head->n_bytes &&
           memcmp(e->data, head->data, e->n_bytes) == 0;
}

// The same for any tensor of the directory. Tensors outside the text model are not used.
static Status gguf_name_of(const TensorReader *r, const SafeTensor *t, char out[NAME_BYTES]) {
    *out = 0;
    if (str_is(t->name, "lm_head.weight") || str_is(t->name, "language_model.lm_head.weight")) {
        if (!r->embedding && !r->untied) strcpy(out, "token_embd.weight");
        else if (!r->tied || !is_copy(r, t)) strcpy(out, "output.weight");
        return OK;
    }
    Str rest = behind(t->name, r->prefix);
    if (!rest.data) return OK;
    if (str_is(rest, embedding(r))) strcpy(out, "token_embd.weight");
    if (str_is(rest, last_norm(r))) strcpy(out, lfm(r) ? "token_embd_norm.weight" : "output_norm.weight");
    static const char *const per_layer[][2] = {{"embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
                                               {"per_layer_model_projection.weight", "per_layer_model_proj.weight"},
                                               {"per_layer_projection_norm.weight", "per_layer_proj_norm.weight"}};
    for (size_t i = 0; i < ARRAY_LEN(per_layer); i++)
        if (str_is(rest, per_layer[i][0])) strcpy(out, per_layer[i][1]);
    rest = behind(rest, layers(r));
    if (!rest.data || layer_name(r, rest, out)) return OK;
    return status_error(QUILL_MODEL,
                        "%s: tensor %.*s: no part of a %s model; is the directory's config.json this one's?", t->file,
                        SAFE_SHOW(t->name), r->m->family->model_type);
}

// ---- data -----------------------------------------------------------------------------------------------------------

static float *norm_with_one(const TensorReader *r, const SafeTensor *t, int type, size_t n) {
    float *v = gguf_alloc(r->m->g, n * sizeof *v);
    type_info(type)->dequantize(hf_aligned_data(r->m, t), v, n);
    for (size_t i = 0; i < n; i++) v[i] += 1;
    return v;
}

// Whether the vector of this name in GGUF is a norm that is stored minus one.
static bool is_less_one(const HfFamily *f, const char *name) {
    bool last = strcmp(name, "output_norm.weight") == 0;
    return f->norm_plus_one && str_has_suffix(str_of(name), "norm.weight") && !(last && f->last_norm_plain);
}

static Status read_fp8(const TensorReader *r, const SafeTensor *t, const void **out) {
    uint16_t *weights = hf_view_alloc(r->m->g, 2 * t->n_bytes);
    *out = weights;
    return fp8_dequantize(t, fp8_scale_of(r->files, t), r->m->fp8, weights);
}

static Status add_tensor(const TensorReader *r, const SafeTensor *t, const char *name) {
    size_t n = 1;
    if (t->n_dims < 1 || t->n_dims > 2)
        return status_error(QUILL_MODEL, "%s: tensor %.*s: one or two dimensions expected, %d found", t->file,
                            SAFE_SHOW(t->name), t->n_dims);
    for (int d = 0; d < t->n_dims; d++) {
        if (t->dims[d] < 1 || t->dims[d] > INT32_MAX)
            return status_error(QUILL_MODEL, "%s: tensor %.*s: dimensions of 1 to %d expected, %llu found", t->file,
                                SAFE_SHOW(t->name), INT32_MAX, (unsigned long long)t->dims[d]);
        n *= (size_t)t->dims[d];
    }
    int type = hf_type_of(t);
    const void *data = NULL;
    if (type >= 0 && t->n_dims == 1 && is_less_one(r->m->family, name)) {
        data = norm_with_one(r, t, type, n);
        type = TYPE_F32;
    } else if (type >= 0) data = hf_aligned_data(r->m, t);
    else if (fp8_is(t) && t->n_dims == 2) {
        TRY(read_fp8(r, t, &data));
        type = TYPE_BF16;
    } else return refuse_type(t, t->n_dims == 2 ? "F32, F16, BF16 or F8_E4M3" : "F32, F16 or BF16");
    bool vector = t->n_dims == 1 || (t->dims[0] == 1 && str_has_suffix(str_of(name), ".bias")); // (1, n) too
    size_t n_in = (size_t)t->dims[t->n_dims - 1], n_out = vector ? 0 : (size_t)t->dims[0];
    return hf_view_add(r->m, t, name, type, n_in, n_out, 0, data);
}

// kv_b_proj (heads * (n + v), rank) computes K and V of every head from the stored vector: for each head the rows of K,
// then those of V. GGUF has two stacks: attn_k_b (heads, rank, n), which is K's part transposed, as it is applied to Q,
// and attn_v_b (heads, v, rank).
static Status add_kv_b(const TensorReader *r, const SafeTensor *t, long layer) {
    int64_t n_heads = 0, n = 0, v = 0;
    const json_t *c = r->m->config;
    hf_config_int(c, "num_attention_heads", &n_heads);
    hf_config_int(c, "qk_nope_head_dim", &n);
    hf_config_int(c, "v_head_dim", &v);
    bool sized = n_heads > 0 && n_heads < 1 << 12 && n > 0 && n < 1 << 16 && v > 0 && v < 1 << 16;
    if (!sized || t->n_dims != 2 || t->dims[0] != (uint64_t)(n_heads * (n + v)) || t->dims[1] < 1 ||
        t->dims[1] > INT32_MAX)
        return status_error(QUILL_MODEL,
                            "%s: tensor %.*s: num_attention_heads * (qk_nope_head_dim + v_head_dim) rows "
                            "expected, others found",
                            t->file, SAFE_SHOW(t->name));
    int type = hf_type_of(t);
    size_t rank = (size_t)t->dims[1], size = type == TYPE_F32 ? 4 : 2;
    const void *whole = t->data;
    if (fp8_is(t)) {
        TRY(read_fp8(r, t, &whole));
        type = TYPE_BF16;
    } else if (type < 0) return refuse_type(t, "F32, F16, BF16 or F8_E4M3");
    uint8_t *k = hf_view_alloc(r->m->g, (size_t)(n_heads * n) * rank * size), *to = k;
    uint8_t *values = hf_view_alloc(r->m->g, (size_t)(n_heads * v) * rank * size);
    for (size_t head = 0; head < (size_t)n_heads; head++) {
        const uint8_t *from = (const uint8_t *)whole + head * (size_t)(n + v) * rank * size;
        for (size_t i = 0; i < rank; i++)
            for (size_t d = 0; d < (size_t)n; d++, to += size) memcpy(to, from + (d * rank + i) * size, size);
        memcpy(values + head * (size_t)v * rank * size, from + (size_t)n * rank * size, (size_t)v * rank * size);
    }
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "blk.%ld.attn_k_b.weight", layer);
    TRY(hf_view_add(r->m, t, name, type, (size_t)n, rank, (size_t)n_heads, k));
    snprintf(name, sizeof name, "blk.%ld.attn_v_b.weight", layer);
    return hf_view_add(r->m, t, name, type, rank, (size_t)v, (size_t)n_heads, values);
}

// ---- all tensors ----------------------------------------------------------------------------------------------------

static const SafeTensor *find_tensor(const TensorReader *r, const char *name) {
    char whole[96];
    snprintf(whole, sizeof whole, "%s%s", r->prefix, name);
    return safetensors_find(r->files, whole);
}

static Status missing(const TensorReader *r, const char *name, const char *why) {
    return status_error(QUILL_MODEL, "%s: tensor %s%s: expected in the safetensors files%s, none found", r->m->dir,
                        r->prefix, name, why);
}

static Status begin(TensorReader *r) {
    const json_t *tied = json_object_get(r->m->config, "tie_word_embeddings");
    size_t i = 0;
    do r->prefix = prefixes[i];
    while (!find_tensor(r, last_norm(r)) && ++i < ARRAY_LEN(prefixes));
    if (i == ARRAY_LEN(prefixes)) r->prefix = prefixes[0];
    if (i == ARRAY_LEN(prefixes)) return missing(r, last_norm(r), "");
    r->embedding = find_tensor(r, embedding(r));
    r->tied = json_is_true(tied);
    r->untied = json_is_false(tied);
    hf_config_int(r->m->config, "num_hidden_layers", &r->n_layers);
    return OK;
}

// Takes tensors that need a conversion: experts, fused tensors, and tensors of recurrent layers with another shape in
// GGUF. False: the tensor is none of these.
static bool take_other(TensorReader *r, const SafeTensor *t, Status *st) {
    Str rest = behind(t->name, r->prefix);
    if (rest.data) rest = behind(rest, layers(r));
    if (!rest.data) return false;
    const char *end;
    char text[160];
    long layer;
    snprintf(text, sizeof text, "%.*s", (int)(rest.n < 159 ? rest.n : 159), rest.data);
    if (!hf_number(text, &end, &layer) || *end != '.' || layer >= r->n_layers) return false;
    if (r->m->family->names == HF_NAMES_DEEPSEEK && strcmp(end + 1, "self_attn.kv_b_proj.weight") == 0) {
        *st = add_kv_b(r, t, layer);
        return true;
    }
    return hf_recurrent_take(r->m, layer, end + 1, t, st) || hf_xielu_take(r->m, layer, end + 1, t, st) ||
           hf_experts_take(&r->experts, r->m, r->files, layer, end + 1, t, st);
}

static Status read_all(TensorReader *r) {
    char name[NAME_BYTES];
    TRY(begin(r));
    for (int i = 0; i < r->files->tensors.n; i++) {
        const SafeTensor *t = names_at(&r->files->tensors, i);
        Status st = OK;
        if (take_other(r, t, &st)) {
            TRY(st);
            continue;
        }
        TRY(gguf_name_of(r, t, name));
        if (*name) TRY(add_tensor(r, t, name));
    }
    TRY(hf_experts_end(&r->experts, r->m));
    if (hf_is_muse(r->m)) TRY(hf_muse_norms(r->m));
    TRY(hf_xielu_end(r->m));
    if (!gguf_tensor(r->m->g, "token_embd.weight")) return missing(r, embedding(r), "");
    if (r->untied && !gguf_tensor(r->m->g, "output.weight")) {
        r->prefix = "";
        return missing(r, "lm_head.weight", ", as tie_word_embeddings is false in config.json");
    }
    return OK;
}

Status hf_read_tensors(const HfModel *m) {
    SafeFiles files;
    Status st = safetensors_open(m->dir, &files);
    TensorReader r = {.m = m, .files = &files};
    if (!st.code) st = read_all(&r);
    if (!st.code) {
        char format[64];
        snprintf(format, sizeof format, "safetensors in %d file%s", files.n_files, files.n_files == 1 ? "" : "s");
        gguf_set_format(m->g, format);
        for (int i = 0; i < files.n_maps; i++) gguf_own_map(m->g, files.maps[i]);
        files.n_maps = 0;
    }
    hf_experts_free(&r.experts);
    safetensors_close(&files);
    return st;
}
