// tests/rig/tiny_model.c: see tests/rig/tiny_model.h.
#include "tests/rig/tiny_model.h"

#include "tests/rig/tiny_ssd.h"
#include "tests/rig/tiny_archs.h"
#include "tests/rig/tiny_vocabulary.h"
#include "tests/rig/tiny_weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TYPE_COMMA(type) type,
const int tiny_types[TINY_TYPES] = {EACH_TYPE(TYPE_COMMA)};

static const Arch *arch_of(const TinyModel *m) { // any other name: like qwen, without differences
    static const Arch other;
    for (size_t i = 0; i < ARRAY_LEN(archs); i++)
        if (strcmp(archs[i].name, m->arch) == 0) return &archs[i];
    return &other;
}

static const char *layer_name(char out[64], int layer, const char *what) {
    snprintf(out, 64, "blk.%d.%s", layer, what);
    return out;
}

// ---- layers ---------------------------------------------------------------------------------------------------------

// In gemma4 every third layer has no window, the last n_shared layers have no K and V, and layers with a window have
// heads of half the width.
static bool slides(const TinyModel *m, int layer) { return arch_of(m)->gemma4 && (layer + 1) % 3 != 0; }
static int head_dim(const TinyModel *m, int layer) { return slides(m, layer) ? m->head_dim / 4 * 2 : m->head_dim; }
static int kv_heads(const TinyModel *m, int layer) {
    return arch_of(m)->gemma4 && !slides(m, layer) ? (m->n_kv_heads + 1) / 2 : m->n_kv_heads;
}
static bool has_kv(const TinyModel *m, int layer) { return m->n_shared == 0 || layer < m->n_layers - m->n_shared; }
static int ffn_width(const TinyModel *m, int layer) {
    return has_kv(m, layer) && !arch_of(m)->llama4 ? m->ffn : 2 * m->ffn;
}
static bool has_experts(const TinyModel *m, int layer) {
    const Arch *a = arch_of(m);
    if (a->llama4) return layer % 2 == 1;
    return m->n_experts && !a->gemma4 && !((a->latent || a->dense_first) && layer == 0);
}

static void add_latent(Gguf *g, const TinyModel *m, int layer, uint64_t *random) {
    char name[64];
    int plain = m->head_dim - m->n_rot, n_in = m->q_rank ? m->q_rank : m->dim;
    if (m->q_rank) {
        add_matrix(g, layer_name(name, layer, "attn_q_a.weight"), m->type, m->dim, m->q_rank, random);
        add_vector(g, layer_name(name, layer, "attn_q_a_norm.weight"), m->q_rank, 1, 0.2f, random);
    }
    add_matrix(g, layer_name(name, layer, m->q_rank ? "attn_q_b.weight" : "attn_q.weight"), m->type, n_in,
               m->n_heads * m->head_dim, random);
    add_matrix(g, layer_name(name, layer, "attn_kv_a_mqa.weight"), m->type, m->dim, m->kv_rank + m->n_rot, random);
    add_vector(g, layer_name(name, layer, "attn_kv_a_norm.weight"), m->kv_rank, 1, 0.2f, random);
    add_stack(g, layer_name(name, layer, "attn_k_b.weight"), m->type, plain, m->kv_rank, m->n_heads, random);
    add_stack(g, layer_name(name, layer, "attn_v_b.weight"), m->type, m->kv_rank, m->v_dim, m->n_heads, random);
    add_matrix(g, layer_name(name, layer, "attn_output.weight"), m->type, m->n_heads * m->v_dim, m->dim, random);
}

static void add_gemma4_layer(Gguf *g, const TinyModel *m, int layer, uint64_t *random) {
    char name[64];
    add_vector(g, layer_name(name, layer, "layer_output_scale.weight"), 1, 0.8f, 0.2f, random);
    if (m->n_experts) {
        static const char *const norms[] = {"pre_ffw_norm_2.weight", "post_ffw_norm_1.weight", "post_ffw_norm_2.weight",
                                            "ffn_gate_inp.scale"};
        for (int i = 0; i < 4; i++) add_vector(g, layer_name(name, layer, norms[i]), m->dim, 1, 0.2f, random);
        add_vector(g, layer_name(name, layer, "ffn_down_exps.scale"), m->n_experts, 1, 0.5f, random);
        add_matrix(g, layer_name(name, layer, "ffn_gate_inp.weight"), TYPE_F32, m->dim, m->n_experts, random);
        add_stack(g, layer_name(name, layer, "ffn_gate_up_exps.weight"), m->type, m->dim, 2 * m->ffn, m->n_experts,
                  random);
        add_stack(g, layer_name(name, layer, "ffn_down_exps.weight"), m->type, m->ffn, m->dim, m->n_experts, random);
    }
    if (m->per == 0) return;
    add_matrix(g, layer_name(name, layer, "inp_gate.weight"), m->type, m->dim, m->per, random);
    add_matrix(g, layer_name(name, layer, "proj.weight"), m->type, m->per, m->dim, random);
    add_vector(g, layer_name(name, layer, "post_norm.weight"), m->dim, 1, 0.2f, random);
}

static void add_experts(Gguf *g, const TinyModel *m, int layer, uint64_t *random) {
    static const char *const stacks[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
    static const char *const shared[] = {"ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"};
    const Arch *a = arch_of(m);
    char name[64], part[32];
    add_matrix(g, layer_name(name, layer, "ffn_gate_inp.weight"), TYPE_F32, m->dim, m->n_experts, random);
    if (a->all_biases) add_vector(g, layer_name(name, layer, "ffn_gate_inp.bias"), m->n_experts, 0, 0.5f, random);
    for (int i = a->apart; i < 3; i++) {
        int n_in = i < 2 ? m->dim : m->ffn, n_out = i < 2 ? m->ffn : m->dim;
        snprintf(part, sizeof part, "%s.weight", stacks[i]);
        add_stack(g, layer_name(name, layer, part), m->expert_type ? m->expert_type : m->type, n_in, n_out,
                  m->n_experts, random);
        snprintf(part, sizeof part, "%s.bias", stacks[i]);
        if (a->all_biases) // large, so that gates reach their limits
            add_vectors(g, layer_name(name, layer, part), n_out, m->n_experts, 0, i < 2 ? 8 : 0.5f, random);
    }
    for (int i = a->apart; i < 3 && m->ffn_shared; i++) {
        snprintf(part, sizeof part, "%s.weight", shared[i]);
        add_matrix(g, layer_name(name, layer, part), m->type, i < 2 ? m->dim : m->ffn_shared,
                   i < 2 ? m->ffn_shared : m->dim, random);
    }
    if (m->ffn_shared && !a->latent && !a->plain_shared && !a->ssd)
        add_matrix(g, layer_name(name, layer, "ffn_gate_inp_shexp.weight"), TYPE_F32, m->dim, 1, random);
    if ((m->n_groups && !m->softmax) || a->choice_bias || a->apart)
        add_vector(g, layer_name(name, layer, a->bare_bias ? "exp_probs_b" : "exp_probs_b.bias"), m->n_experts, 0, 0.5f,
                   random);
}

// Arch.apart: 'M' Mamba-2, '*' attention, '-' a feed-forward. Other families: ' '
static char part_of(const TinyModel *m, int layer) { return arch_of(m)->apart ? "M-*MM-"[layer % 6] : ' '; }

static int width_of_part(const TinyModel *m, int layer) { return part_of(m, layer) == '-' ? m->ffn : 0; }

// Every third layer has attention.
static bool is_recurrent(const TinyModel *m, int layer) {
    if (arch_of(m)->apart) return part_of(m, layer) == 'M';
    return (arch_of(m)->delta || arch_of(m)->conv || arch_of(m)->ssd) && (layer + 1) % 3 != 0 && layer < m->n_layers;
}

static void add_delta(Gguf *g, const TinyModel *m, int layer, uint64_t *random) {
    char name[64];
    int nv = m->value_heads, inner = nv * m->state, channels = 2 * m->key_heads * m->state + inner;
    add_matrix(g, layer_name(name, layer, "attn_qkv.weight"), m->type, m->dim, channels, random);
    add_matrix(g, layer_name(name, layer, "attn_gate.weight"), m->type, m->dim, inner, random);
    if (arch_of(m)->delta_grouped) {
        add_matrix(g, layer_name(name, layer, "ssm_ba.weight"), m->type, m->dim, 2 * nv, random);
    } else {
        add_matrix(g, layer_name(name, layer, "ssm_beta.weight"), m->type, m->dim, nv, random);
        add_matrix(g, layer_name(name, layer, "ssm_alpha.weight"), m->type, m->dim, nv, random);
    }
    add_vectors(g, layer_name(name, layer, "ssm_conv1d.weight"), m->taps, channels, 0, 0.7f, random);
    add_vector(g, layer_name(name, layer, "ssm_a"), nv, -0.5f, 0.4f, random);
    add_vector(g, layer_name(name, layer, "ssm_dt.bias"), nv, 0, 1, random);
    add_vector(g, layer_name(name, layer, "ssm_norm.weight"), m->state, 1, 0.2f, random);
    add_matrix(g, layer_name(name, layer, "ssm_out.weight"), m->type, inner, m->dim, random);
}

static void add_conv(Gguf *g, const TinyModel *m, int layer, uint64_t *random) {
    char name[64];
    add_matrix(g, layer_name(name, layer, "shortconv.in_proj.weight"), m->type, m->dim, 3 * m->dim, random);
    add_vectors(g, layer_name(name, layer, "shortconv.conv.weight"), m->taps, m->dim, 0, 1, random);
    add_matrix(g, layer_name(name, layer, "shortconv.out_proj.weight"), m->type, m->dim, m->dim, random);
}

static void add_attention(Gguf *g, const TinyModel *m, int layer, uint64_t *random) {
    char name[64];
    const Arch *a = arch_of(m);
    int q = m->n_heads * head_dim(m, layer), kv = kv_heads(m, layer) * head_dim(m, layer);
    bool own = has_kv(m, layer), v_is_k = a->gemma4 && m->n_experts && !slides(m, layer);
    if (a->fused_qkv) {
        add_matrix(g, layer_name(name, layer, "attn_qkv.weight"), m->type, m->dim, q + 2 * kv, random);
        if (m->qkv_bias) add_vector(g, layer_name(name, layer, "attn_qkv.bias"), q + 2 * kv, 0, 0.5f, random);
    } else if (a->latent) add_latent(g, m, layer, random);
    else {
        add_matrix(g, layer_name(name, layer, "attn_q.weight"), m->type, m->dim, a->gated ? 2 * q : q, random);
        if (own) add_matrix(g, layer_name(name, layer, "attn_k.weight"), m->type, m->dim, kv, random);
        if (own && !v_is_k) add_matrix(g, layer_name(name, layer, "attn_v.weight"), m->type, m->dim, kv, random);
    }
    if (m->qkv_bias && !a->fused_qkv) {
        add_vector(g, layer_name(name, layer, "attn_q.bias"), q, 0, 0.5f, random);
        add_vector(g, layer_name(name, layer, "attn_k.bias"), kv, 0, 0.5f, random);
        add_vector(g, layer_name(name, layer, "attn_v.bias"), kv, 0, 0.5f, random);
    }
    if (m->qk_norm) { // of Muse Glimmer: one factor for Q, none for K
        float spread = a->gate_own ? 0 : 0.2f;
        add_vector(g, layer_name(name, layer, "attn_q_norm.weight"), a->norms_of_rows ? q : head_dim(m, layer),
                   a->gate_own ? 1.5f : 1, spread, random);
        if (own)
            add_vector(g, layer_name(name, layer, "attn_k_norm.weight"), a->norms_of_rows ? kv : head_dim(m, layer), 1,
                       spread, random);
    }
    if (a->gate_own) add_matrix(g, layer_name(name, layer, "attn_gate.weight"), m->type, m->dim, q, random);
    if (!a->latent) add_matrix(g, layer_name(name, layer, "attn_output.weight"), m->type, q, m->dim, random);
    if (a->all_biases) add_vector(g, layer_name(name, layer, "attn_output.bias"), m->dim, 0, 0.5f, random);
    if (a->sinks) add_vector(g, layer_name(name, layer, "attn_sinks.weight"), m->n_heads, 0.5f, 1, random);
}

static void add_ungated(Gguf *g, const TinyModel *m, int layer, uint64_t *random) {
    char name[64];
    if (m->n_experts) {
        add_experts(g, m, layer, random);
        return;
    }
    add_matrix(g, layer_name(name, layer, "ffn_up.weight"), m->type, m->dim, m->ffn, random);
    add_matrix(g, layer_name(name, layer, "ffn_down.weight"), m->type, m->ffn, m->dim, random);
}

static void add_layer(Gguf *g, const TinyModel *m, int layer, uint64_t *random) {
    char name[64];
    const Arch *a = arch_of(m);
    int ffn = ffn_width(m, layer);
    if (!a->no_norms_before) add_vector(g, layer_name(name, layer, "attn_norm.weight"), m->dim, 1, 0.2f, random);
    if (part_of(m, layer) == '-') return add_ungated(g, m, layer, random);
    if (!is_recurrent(m, layer)) add_attention(g, m, layer, random);
    else if (a->delta) add_delta(g, m, layer, random);
    else if (a->ssd) tiny_ssd(g, m, layer, random);
    else add_conv(g, m, layer, random);
    if (a->apart) return;
    if (a->norms_behind) {
        add_vector(g, layer_name(name, layer, "post_attention_norm.weight"), m->dim, 1, 0.2f, random);
        add_vector(g, layer_name(name, layer, "post_ffw_norm.weight"), m->dim, 1, 0.2f, random);
    }
    bool post = a->sinks || a->delta || a->ffn_norm_post;
    const char *ffn_norm = post ? "post_attention_norm.weight" : "ffn_norm.weight";
    if (!a->no_norms_before && !a->cohere) add_vector(g, layer_name(name, layer, ffn_norm), m->dim, 1, 0.2f, random);
    if (a->gemma4) add_gemma4_layer(g, m, layer, random);
    if (has_experts(m, layer)) {
        add_experts(g, m, layer, random);
        return;
    }
    if (!a->fused_ffn && !a->ungated)
        add_matrix(g, layer_name(name, layer, "ffn_gate.weight"), m->type, m->dim, ffn, random);
    add_matrix(g, layer_name(name, layer, "ffn_up.weight"), m->type, m->dim, (a->fused_ffn ? 2 : 1) * ffn, random);
    add_matrix(g, layer_name(name, layer, "ffn_down.weight"), m->type, ffn, m->dim, random);
}

// RoPE rotates only the first n pairs.
static void turn_first(Gguf *g, int n) {
    float *divisors = (float *)tiny_tensor(g, "rope_freqs.weight")->data;
    for (int i = 0; i < n; i++) divisors[i] = i < (n + 1) / 2 ? 1 : 1e30f;
}

static void add_prediction_head(Gguf *g, const TinyModel *m, uint64_t *random) {
    static const char *const norms[] = {"nextn.enorm.weight", "nextn.hnorm.weight", "nextn.shared_head_norm.weight"};
    char name[64];
    int at = m->n_layers;
    add_layer(g, m, at, random);
    add_matrix(g, layer_name(name, at, "nextn.eh_proj.weight"), m->type, 2 * m->dim, m->dim, random);
    for (int i = 0; i < 2 + m->own_ends; i++) add_vector(g, layer_name(name, at, norms[i]), m->dim, 1, 0.2f, random);
    if (!m->own_ends) return;
    add_matrix(g, layer_name(name, at, "nextn.embed_tokens.weight"), m->type, m->dim, m->vocab, random);
    add_matrix(g, layer_name(name, at, "nextn.shared_head_head.weight"), m->type, m->dim, m->vocab, random);
}

// Sets the outputs of all layers to 0. The head passes the norm of the embedding on.
static void make_bigrams(Gguf *g, const TinyModel *m) {
    static const char *const outputs[] = {"attn_output", "ssm_out", "ffn_down", "ffn_down_exps", "ffn_down_shexp"};
    char name[64], part[32];
    for (int layer = 0; layer < m->n_layers + m->mtp; layer++)
        for (size_t i = 0; i < ARRAY_LEN(outputs); i++) {
            snprintf(part, sizeof part, "%s.weight", outputs[i]);
            const GgufTensor *t = gguf_tensor(g, layer_name(name, layer, part));
            if (t) memset((void *)t->data, 0, t->n_bytes);
        }
    if (!m->mtp) return;
    GgufTensor *join = tiny_tensor(g, layer_name(name, m->n_layers, "nextn.eh_proj.weight"));
    float *weights = (float *)join->data, *norm;
    memset(weights, 0, join->n_bytes);
    for (size_t i = 0; i < (size_t)m->dim; i++) weights[i * 2 * (size_t)m->dim + i] = 1;
    norm = (float *)tiny_tensor(g, layer_name(name, m->n_layers, "nextn.enorm.weight"))->data;
    for (int i = 0; i < m->dim; i++) norm[i] = 1;
}

static void add_tensors(Gguf *g, const TinyModel *m) {
    uint64_t random = m->seed;
    add_matrix(g, "token_embd.weight", m->type, m->dim, m->vocab, &random);
    for (int layer = 0; layer < m->n_layers; layer++) add_layer(g, m, layer, &random);
    char norm_out[64];
    snprintf(norm_out, sizeof norm_out, "%s.weight", arch_of(m)->norm_out ? arch_of(m)->norm_out : "output_norm");
    add_vector(g, norm_out, m->dim, 1, 0.2f, &random);
    if (!m->tied) add_matrix(g, "output.weight", m->type, m->dim, m->vocab, &random);
    if (m->rope_freqs) add_vector(g, "rope_freqs.weight", m->n_rot / 2, 4.5f, 3.5f, &random);
    if (arch_of(m)->gemma4) turn_first(g, m->n_rot / 2);
    if (m->per) {
        add_matrix(g, "per_layer_token_embd.weight", m->type, m->n_layers * m->per, m->vocab, &random);
        add_matrix(g, "per_layer_model_proj.weight", m->type, m->dim, m->n_layers * m->per, &random);
        add_vector(g, "per_layer_proj_norm.weight", m->per, 1, 0.2f, &random);
    }
    if (m->mtp) add_prediction_head(g, m, &random);
    if (m->bigrams) make_bigrams(g, m);
    if (!arch_of(m)->long_rope) return;
    add_vector(g, "rope_factors_short.weight", m->n_rot / 2, 1.5f, 0.5f, &random);
    add_vector(g, "rope_factors_long.weight", m->n_rot / 2, 5, 3, &random);
}

// ---- the model ------------------------------------------------------------------------------------------------------

static void set_u32(Gguf *g, const char *arch, const char *key, int v) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    gguf_set_u32(g, name, (uint32_t)v);
}

static void set_f32(Gguf *g, const char *arch, const char *key, float v) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    gguf_set_f32(g, name, v);
}

static void set_scaling(Gguf *g, const TinyModel *m) {
    const Arch *a = arch_of(m);
    char name[96];
    snprintf(name, sizeof name, "%s.rope.scaling.type", m->arch);
    if (m->rope) {
        gguf_set_str(g, name, m->rope);
        set_f32(g, m->arch, "rope.scaling.factor", m->rope_factor);
    }
    if (m->rope || m->ctx_orig) set_u32(g, m->arch, "rope.scaling.original_context_length", m->ctx_orig);
    if (a->long_rope) set_f32(g, m->arch, "rope.scaling.attn_factor", 1.2f);
    if (a->temperature != 0) {
        set_f32(g, m->arch, "attention.temperature_scale", a->temperature);
        set_f32(g, m->arch, "rope.scaling.yarn_beta_fast", 0.3f);
        set_f32(g, m->arch, "rope.scaling.yarn_beta_slow", 0.02f);
        set_f32(g, m->arch, "rope.scaling.yarn_log_multiplier", 0.5f);
    }
    if (m->halves) gguf_set_bool(g, "quill.rope.halves", true);
    snprintf(name, sizeof name, "%s.rope.scaling.finetuned", m->arch);
    if (a->ssd && a->scales && m->n_rot == 0) gguf_set_bool(g, name, false);
}

static void set_scales(Gguf *g, const TinyModel *m) {
    set_f32(g, m->arch, "embedding_scale", 3);
    if (strcmp(m->arch, "minicpm") != 0) set_f32(g, m->arch, "attention.scale", 0.5f);
    set_f32(g, m->arch, "residual_scale", 0.6f);
    set_f32(g, m->arch, "logit_scale", 0.7f);
}

static void set_list(Gguf *g, const TinyModel *m, const char *key, int (*of)(const TinyModel *m, int layer)) {
    char name[96];
    int32_t all[64];
    if (m->n_layers > (int)ARRAY_LEN(all)) impossible("at most 64 layers expected in such a model", m->n_layers, 0);
    snprintf(name, sizeof name, "%s.%s", m->arch, key);
    for (int i = 0; i < m->n_layers; i++) all[i] = of(m, i);
    gguf_set_ints(g, name, all, (size_t)m->n_layers);
}

static void set_gemma4(Gguf *g, const TinyModel *m) {
    uint8_t windows[64];
    char name[96];
    snprintf(name, sizeof name, "%s.attention.sliding_window_pattern", m->arch);
    set_list(g, m, "feed_forward_length", ffn_width);
    set_list(g, m, "attention.head_count_kv", kv_heads);
    for (int i = 0; i < m->n_layers; i++) windows[i] = slides(m, i);
    gguf_set(g, &(GgufValue){str_of(name), GGUF_ARRAY, GGUF_BOOL, (uint64_t)m->n_layers, windows, (size_t)m->n_layers});
    set_u32(g, m->arch, "attention.key_length_swa", head_dim(m, 0));
    set_u32(g, m->arch, "attention.value_length_swa", head_dim(m, 0));
    set_u32(g, m->arch, "rope.dimension_count_swa", head_dim(m, 0));
    set_u32(g, m->arch, "attention.shared_kv_layers", m->n_shared);
    set_u32(g, m->arch, "embedding_length_per_layer_input", m->per);
    if (m->n_experts) set_u32(g, m->arch, "expert_feed_forward_length", m->ffn);
}

static void set_latent(Gguf *g, const TinyModel *m) {
    char name[96];
    set_u32(g, m->arch, "attention.head_count_kv", 1);
    set_u32(g, m->arch, "attention.key_length", m->kv_rank + m->n_rot);
    set_u32(g, m->arch, "attention.value_length", m->kv_rank);
    set_u32(g, m->arch, "attention.kv_lora_rank", m->kv_rank);
    if (m->q_rank) set_u32(g, m->arch, "attention.q_lora_rank", m->q_rank);
    set_u32(g, m->arch, "attention.key_length_mla", m->head_dim);
    set_u32(g, m->arch, "attention.value_length_mla", m->v_dim);
    set_f32(g, m->arch, "rope.scaling.yarn_log_multiplier", 0.08f);
    set_u32(g, m->arch, "leading_dense_block_count", 1);
    set_u32(g, m->arch, "expert_gating_func", m->n_groups && !m->softmax ? 2 : 1);
    set_f32(g, m->arch, "expert_weights_scale", 1.7f);
    if (m->n_groups == 0) return;
    set_u32(g, m->arch, "expert_group_count", m->n_groups);
    set_u32(g, m->arch, "expert_group_used_count", (m->n_groups + 1) / 2);
    snprintf(name, sizeof name, "%s.expert_weights_norm", m->arch);
    gguf_set_bool(g, name, true);
}

// Keys of families whose experts begin behind a dense layer or are chosen by sigmoids.
static void set_choice(Gguf *g, const TinyModel *m) {
    const Arch *a = arch_of(m);
    char name[96];
    if (a->dense_first) set_u32(g, m->arch, "leading_dense_block_count", 1);
    if (!a->gating) set_u32(g, m->arch, "interleave_moe_layer_step", 1);
    if (!a->gating) return;
    set_u32(g, m->arch, "expert_gating_func", a->gating);
    if (a->plain_shared) {
        snprintf(name, sizeof name, "%s.expert_weights_norm", m->arch);
        gguf_set_bool(g, name, !m->softmax);
        set_f32(g, m->arch, "expert_weights_scale", 1.7f);
        set_u32(g, m->arch, "expert_shared_count", m->ffn_shared / m->ffn);
    }
    if (m->n_groups == 0) return;
    set_u32(g, m->arch, "expert_group_count", m->n_groups);
    set_u32(g, m->arch, "expert_group_used_count", (m->n_groups + 1) / 2);
}

static void set_xielu(Gguf *g, const TinyModel *m) {
    static const char *const keys[] = {"xielu.alpha_n", "xielu.alpha_p", "xielu.beta", "xielu.eps"};
    float all[64];
    if (m->n_layers > (int)ARRAY_LEN(all)) impossible("at most 64 layers expected in such a model", m->n_layers, 0);
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < m->n_layers; i++) all[i] = k == 3 ? -9.98377799987793e-07f : 0.5f - 0.3f * (float)(i + k);
        gguf_set_floats(g, keys[k], all, (size_t)m->n_layers);
    }
}

static void set_llama4(Gguf *g, const TinyModel *m) {
    set_u32(g, m->arch, "feed_forward_length", ffn_width(m, 0));
    set_u32(g, m->arch, "interleave_moe_layer_step", 2);
    set_u32(g, m->arch, "attention.chunk_size", m->window);
    set_f32(g, m->arch, "attention.temperature_scale", 0.4f);
    set_u32(g, m->arch, "attention.temperature_length", 7);
}

static void set_recurrent(Gguf *g, const TinyModel *m) {
    const Arch *a = arch_of(m);
    if (a->delta || a->ssd) {
        if (a->delta) set_u32(g, m->arch, "full_attention_interval", 3);
        set_u32(g, m->arch, "ssm.group_count", m->key_heads);
        set_u32(g, m->arch, "ssm.time_step_rank", m->value_heads);
        set_u32(g, m->arch, "ssm.state_size", m->state);
        set_u32(g, m->arch, "ssm.inner_size", a->ssd ? 2 * m->dim : m->value_heads * m->state);
        set_u32(g, m->arch, "ssm.conv_kernel", m->taps);
    }
    if (!a->conv && !a->ssd) return;
    int32_t *heads = mem_alloc((size_t)m->n_layers * sizeof *heads);
    char key[96];
    for (int i = 0; i < m->n_layers; i++) heads[i] = is_recurrent(m, i) || part_of(m, i) == '-' ? 0 : m->n_kv_heads;
    snprintf(key, sizeof key, "%s.attention.head_count_kv", m->arch);
    gguf_set_ints(g, key, heads, (size_t)m->n_layers);
    if (a->conv) set_u32(g, m->arch, "shortconv.l_cache", m->taps);
    free(heads);
}

static void set_shape(Gguf *g, const TinyModel *m) {
    gguf_set_str(g, "general.architecture", m->arch);
    gguf_set_str(g, "general.name", "tiny");
    set_u32(g, m->arch, "vocab_size", m->vocab);
    set_u32(g, m->arch, "context_length", m->ctx);
    set_u32(g, m->arch, "embedding_length", m->dim);
    set_u32(g, m->arch, "block_count", m->n_layers + m->mtp);
    if (m->mtp) set_u32(g, m->arch, "nextn_predict_layers", 1);
    set_u32(g, m->arch, "feed_forward_length", m->ffn);
    if (m->n_experts) {
        set_u32(g, m->arch, "expert_count", m->n_experts);
        set_u32(g, m->arch, "expert_used_count", m->n_used);
        if (arch_of(m)->experts && !arch_of(m)->no_width) set_u32(g, m->arch, "expert_feed_forward_length", m->ffn);
        if (m->ffn_shared && !arch_of(m)->llama4)
            set_u32(g, m->arch, "expert_shared_feed_forward_length", m->ffn_shared);
        if (arch_of(m)->dense_first || arch_of(m)->gating) set_choice(g, m);
    }
    set_u32(g, m->arch, "attention.head_count", m->n_heads);
    if (!arch_of(m)->conv && !arch_of(m)->ssd) set_u32(g, m->arch, "attention.head_count_kv", m->n_kv_heads);
    set_recurrent(g, m);
    set_u32(g, m->arch, "attention.key_length", m->head_dim);
    set_u32(g, m->arch, "attention.value_length", m->head_dim);
    if (m->n_rot) set_u32(g, m->arch, "rope.dimension_count", m->n_rot);
    set_f32(g, m->arch, "rope.freq_base", m->freq_base);
    set_f32(g, m->arch, arch_of(m)->cohere ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
            1e-5f);
    if (arch_of(m)->llama4) set_llama4(g, m);
    else if (m->window) set_u32(g, m->arch, "attention.sliding_window", m->window);
    if (m->score_cap != 0) set_f32(g, m->arch, "attn_logit_softcapping", m->score_cap);
    if (m->logit_cap != 0) set_f32(g, m->arch, "final_logit_softcapping", m->logit_cap);
    if (m->swa_base != 0) set_f32(g, m->arch, "rope.freq_base_swa", m->swa_base);
    if (arch_of(m)->logit_factor) set_f32(g, m->arch, "logit_scale", 1.4f);
    if (arch_of(m)->scales) set_scales(g, m);
    if (arch_of(m)->apart) set_list(g, m, "feed_forward_length", width_of_part);
    if (arch_of(m)->gemma4) set_gemma4(g, m);
    if (arch_of(m)->xielu) set_xielu(g, m);
    if (arch_of(m)->latent) set_latent(g, m);
    set_scaling(g, m);
}

static TinyModel with_defaults(const TinyModel *shape) {
    TinyModel m = *shape;
    if (!m.arch) m.arch = "llama";
    const Arch *arch = arch_of(&m);
    if (!m.dim) m.dim = 64;
    if (!m.n_layers) m.n_layers = arch->n_layers ? arch->n_layers : 2;
    if (!m.n_heads) m.n_heads = 4;
    if (!m.n_kv_heads) m.n_kv_heads = m.n_heads > 1 ? m.n_heads / 2 : 1;
    if (!m.head_dim) m.head_dim = m.dim / m.n_heads;
    if (!m.per && arch->gemma4 && !m.n_experts) m.per = 32;
    if (!m.n_shared && arch->gemma4 && !m.n_experts) m.n_shared = m.n_layers / 2;
    if (!m.kv_rank && arch->latent) m.kv_rank = 2 * m.head_dim;
    if (!m.v_dim && arch->latent) m.v_dim = m.head_dim;
    if (!m.ffn) m.ffn = 2 * m.dim;
    if (!m.n_experts && arch->experts) m.n_experts = 8;
    if (!m.n_used && m.n_experts) m.n_used = m.n_experts < 3 ? 1 : 3;
    if (!m.ffn_shared && (arch->shared || (arch->ssd && m.n_experts))) m.ffn_shared = m.ffn;
    if (!m.key_heads) m.key_heads = 2;
    if (!m.value_heads) m.value_heads = 2 * m.key_heads;
    if (!m.state) m.state = 16;
    if (!m.taps) m.taps = arch->conv ? 3 : 4;
    if (!m.vocab) m.vocab = 320;
    if (!m.ctx) m.ctx = 256;
    if (m.freq_base == 0) m.freq_base = arch->freq_base != 0 ? arch->freq_base : 10000;
    if (m.rope_factor == 0) m.rope_factor = 4;
    if (!m.rope) m.rope = arch->rope;
    if (!m.ctx_orig) m.ctx_orig = arch->ctx_orig;
    if (!m.ctx_orig && m.rope) m.ctx_orig = (int)((float)m.ctx / m.rope_factor);
    if (!m.n_rot && !arch->ssd) m.n_rot = arch->half_rope || arch->latent ? m.head_dim / 4 * 2 : m.head_dim;
    m.qkv_bias |= arch->qkv_bias;
    m.qk_norm |= arch->qk_norm;
    m.rope_freqs |= arch->gemma4;
    if (!m.window) m.window = arch->window;
    if (m.score_cap == 0) m.score_cap = arch->score_cap;
    if (m.logit_cap == 0) m.logit_cap = arch->logit_cap;
    if (m.swa_base == 0) m.swa_base = arch->swa_base;
    if (!m.tokens) m.tokens = arch->tokens ? arch->tokens : "gpt2";
    if (!m.pre) m.pre = arch->pre ? arch->pre : "qwen2";
    return m;
}

Gguf *tiny_model(const TinyModel *shape) {
    TinyModel m = with_defaults(shape);
    Gguf *g = gguf_new("tiny");
    set_shape(g, &m);
    if (strcmp(m.tokens, "none") != 0) tiny_vocabulary(g, &m);
    add_tensors(g, &m);
    return g;
}

Status tiny_model_file(const TinyModel *shape, const char *path) {
    Gguf *g = tiny_model(shape);
    Status st = gguf_save(g, path);
    gguf_close(g);
    return st;
}

Gguf *tiny_without(const Gguf *g, const char *name) {
    Gguf *out = gguf_new("tiny");
    for (int i = 0; i < gguf_n_values(g); i++) gguf_set(out, gguf_value_at(g, i));
    for (int i = 0; i < gguf_n_tensors(g); i++) {
        const GgufTensor *t = gguf_tensor_at(g, i);
        char own[128];
        snprintf(own, sizeof own, "%.*s", (int)t->name.n, t->name.data);
        if (strcmp(own, name) == 0) continue;
        gguf_add_like(out, t, t->type);
        GgufTensor *copy = tiny_tensor(out, own);
        copy->data = t->data;
        copy->scales = t->scales;
    }
    return out;
}

GgufTensor *tiny_tensor(Gguf *g, const char *name) {
    GgufTensor *t = (GgufTensor *)gguf_tensor(g, name);
    if (t) return t;
    fprintf(stderr, "tiny_model: tensor %s expected, none found\n", name);
    exit(1);
}
