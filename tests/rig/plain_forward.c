// tests/rig/plain_forward.c: see tests/rig/plain_forward.h.
#include "tests/rig/plain_forward.h"

#include "tests/rig/plain_file.h"
#include "tests/rig/plain_route.h"
#include "tests/rig/plain_ssd.h"

// ---- positions ------------------------------------------------------------------------------------------------------

// Families whose files have scales.
static bool is_granite(const Plain *p) {
    return is(p, "granite") || is(p, "granitemoe") || is(p, "granitehybrid") || is(p, "minicpm");
}
// Families whose layers without a window have no RoPE.
static bool turns_in_windows(const Plain *p) {
    return is(p, "exaone4") || is(p, "cohere2") || is(p, "muse-glimmer") || is(p, "exaone-moe") || is(p, "afmoe") ||
           is(p, "llama4");
}

static bool slides(const Plain *p, int layer) {
    char key[96];
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", p->arch);
    const GgufValue *v = gguf_value(p->g, key);
    if (v && v->elem_type == GGUF_BOOL && v->type == GGUF_ARRAY) return p->window > 0 && v->data[layer];
    int every = is(p, "gemma2") || is(p, "gpt-oss")                        ? 2
                : is(p, "gemma3")                                          ? 6
                : is(p, "olmo2") || is(p, "mellum") || turns_in_windows(p) ? 4
                                                                           : 0;
    return p->window > 0 && (every == 0 || (layer + 1) % every != 0);
}

static bool has_rope(const Plain *p, int layer) {
    bool on = true;
    if (is_apart(p)) return false;
    if (is_granite(p)) plain_switch(p, "rope.scaling.finetuned", &on);
    if (turns_in_windows(p)) on = p->window == 0 || slides(p, layer);
    return on && !(is(p, "smollm3") && (layer + 1) % 4 == 0);
}

// The size of a layer's heads.
static int head_dim(const Plain *p, int layer) {
    return slides(p, layer) ? (int)number(p, "attention.key_length_swa", p->head_dim) : p->head_dim;
}
static int turned(const Plain *p, int layer) {
    return slides(p, layer) ? (int)number(p, "rope.dimension_count_swa", fmin(p->n_rot, head_dim(p, layer))) : p->n_rot;
}
// The layer whose K and V this layer uses.
static int source(const Plain *p, int layer) {
    int from = layer, own = p->n_layers - (int)number(p, "attention.shared_kv_layers", 0);
    if (layer == p->n_layers) return layer; // the prediction head
    while (from >= own || slides(p, from) != slides(p, layer)) from--;
    return from;
}
static int kv_heads(const Plain *p, int layer) {
    const GgufTensor *k = tensor_of(p, source(p, layer), "attn_k", "weight");
    return k ? (int)k->dims[1] / head_dim(p, layer) : p->n_kv_heads;
}

// Radians per position for pair i, and the factor for cosine and sine.
static double frequency(const Plain *p, int layer, int i, double *magnitude) {
    static const char *const factors[] = {"rope_factors_short", "rope_factors_long"};
    double theta = number(p, "rope.freq_base", 10000), s = number(p, "rope.scaling.factor", 1);
    double original = number(p, "rope.scaling.original_context_length", number(p, "context_length", 0));
    bool gemma = is(p, "gemma3") || is(p, "gemma4"),
         own = slides(p, layer) && (gemma || is(p, "olmo2") || is(p, "mellum"));
    if (own) theta = number(p, "rope.freq_base_swa", gemma ? 10000 : theta);
    double f = pow(theta, -2.0 * i / turned(p, layer));
    *magnitude = 1;
    if (own) return f;
    const GgufTensor *divisors = tensor_of(p, -1, "rope_freqs", "weight");
    if (!divisors) divisors = tensor_of(p, -1, factors[p->n_ctx > original], "weight");
    if (divisors) f /= (double)((const float *)divisors->data)[i];
    *magnitude = number(p, "rope.scaling.attn_factor", 1);
    Str type = {0};
    char key[96];
    snprintf(key, sizeof key, "%s.rope.scaling.type", p->arch);
    if (gguf_str(p->g, key, &type, false).code || !type.data) return f;
    if (str_is(type, "linear")) return f / s;
    if (!str_is(type, "yarn")) return f;
    double beta[2] = {number(p, "rope.scaling.yarn_beta_fast", 32), number(p, "rope.scaling.yarn_beta_slow", 1)}, c[2];
    for (int k = 0; k < 2; k++) c[k] = p->n_rot * log(original / (2 * acos(-1.0) * beta[k])) / (2 * log(theta));
    if (!is(p, "gpt-oss")) c[0] = floor(c[0]), c[1] = ceil(c[1]);
    double low = fmax(c[0], 0), high = fmin(c[1], p->n_rot - 1);
    double ramp = fmin(fmax((i - low) / fmax(high - low, 0.001), 0), 1);
    double m = number(p, "rope.scaling.yarn_log_multiplier", 0);
    if (!is_latent(p)) *magnitude *= (0.1 * log(s) + 1) / (0.1 * m * log(s) + 1);
    return f * (1 - ramp) + f / s * ramp;
}

static bool turns_pairs(const Plain *p) {
    static const char *const families[] = {"llama",     "granite",      "smollm3",    "mistral3",     "glm4",
                                           "deepseek2", "ernie4_5",     "arcee",      "command-r",    "cohere2",
                                           "mistral4",  "muse-glimmer", "granitemoe", "ernie4_5-moe", "granitehybrid",
                                           "internlm2", "minicpm",      "maincoder",  "llama4"};
    bool halves = true;
    for (size_t i = 0; i < ARRAY_LEN(families); i++) halves = halves && !is(p, families[i]);
    gguf_bool(p->g, "quill.rope.halves", &halves, halves);
    return !halves;
}

static void turn(const Plain *p, int layer, int pos, double *head) {
    int n_rot = turned(p, layer);
    for (int i = 0; i < n_rot / 2 && has_rope(p, layer); i++) {
        double m, angle = pos * frequency(p, layer, i, &m), c = m * cos(angle), s = m * sin(angle);
        double *a = &head[turns_pairs(p) ? 2 * i : i], *b = &head[turns_pairs(p) ? 2 * i + 1 : i + n_rot / 2];
        double x = *a, y = *b;
        *a = x * c - y * s;
        *b = x * s + y * c;
    }
}

// ---- a layer --------------------------------------------------------------------------------------------------------

static double capped(double v, double cap) { return cap > 0 ? cap * tanh(v / cap) : v; }

static double score_scale(const Plain *p) {
    bool by_dim = (is(p, "gemma2") && p->n_layers == 46) || (is(p, "gemma3") && p->n_layers == 62);
    double usual = is(p, "gemma4") ? 1 : 1 / sqrt(by_dim ? p->dim / p->n_heads : p->head_dim);
    return is_granite(p) ? number(p, "attention.scale", usual) : usual;
}

// a (head_dim) of one head at position t, from K and V (.., kv_dim) of all positions up to it.
static void attend(const Plain *p, int layer, int head, int t, const double *q, const double *k, const double *v,
                   double *a) {
    int hd = head_dim(p, layer), kv_dim = kv_heads(p, layer) * hd,
        first = slides(p, layer) && t >= p->window ? t - p->window + 1 : 0;
    if (is(p, "llama4") && slides(p, layer)) first = t - t % p->window; // the chunk of this row
    double cap = number(p, "attn_logit_softcapping", 0), sum = 0, most = -INFINITY, *s = malloc((size_t)(t + 1) * 8);
    for (int j = first; j <= t; j++) {
        s[j] = 0;
        for (int i = 0; i < hd; i++) s[j] += q[i] * k[(size_t)(j * kv_dim + i)];
        s[j] = capped(s[j] * score_scale(p), cap);
        most = fmax(most, s[j]);
    }
    memset(a, 0, (size_t)hd * sizeof *a);
    const GgufTensor *sinks = tensor_of(p, layer, "attn_sinks", "weight");
    if (sinks) sum = exp((double)((const float *)sinks->data)[head] - most);
    for (int j = first; j <= t; j++) {
        double weight = exp(s[j] - most);
        sum += weight;
        for (int i = 0; i < hd; i++) a[i] += weight * v[(size_t)(j * kv_dim + i)];
    }
    for (int i = 0; i < hd; i++) a[i] /= sum;
    free(s);
}

// The factor of Q that grows with the multiple of the original context.
static double temperature_at(const Plain *p, int layer, int pos) {
    if (is(p, "llama4") && has_rope(p, layer)) return 1;
    if (is(p, "llama4"))
        return 1 + number(p, "attention.temperature_scale", 0) *
                       log(1 + floor((pos + 1) / number(p, "attention.temperature_length", 0)));
    double span = number(p, "rope.scaling.original_context_length", number(p, "context_length", 0));
    return 1 + number(p, "attention.temperature_scale", 0) * log(1 + floor(pos / span));
}

// Computes Q, K and V of one row, as attention needs them.
static void project(const Plain *p, int layer, int pos, const double *x, double *q, double *k, double *v,
                    double *gate) {
    int hd = head_dim(p, layer), q_dim = p->n_heads * hd, n_kv = kv_heads(p, layer), kv_dim = n_kv * hd;
    bool own = source(p, layer) == layer, has_v = tensor_of(p, layer, "attn_v", "weight");
    bool fused = tensor_of(p, layer, "attn_qkv", "weight");
    bool gated = is_qwen35(p), gate_own = tensor_of(p, layer, "attn_gate", "weight");
    double h[4096], both[8192];
    memcpy(h, x, (size_t)p->dim * sizeof *h);
    norm(p, layer, "attn_norm", h, p->dim);
    product(p, layer, fused ? "attn_qkv" : "attn_q", 0, gated ? 2 * q_dim : q_dim, h, both);
    for (int i = 0; i < q_dim; i++) {
        int at = gated ? i / hd * 2 * hd + i % hd : i;
        q[i] = both[at];
        gate[i] = gated ? 1 / (1 + exp(-both[at + hd])) : 1;
    }
    if (gate_own) product(p, layer, "attn_gate", 0, q_dim, h, gate);
    for (int i = 0; i < q_dim && gate_own; i++) gate[i] = 1 / (1 + exp(-gate[i]));
    if (own) product(p, layer, fused ? "attn_qkv" : "attn_k", fused ? q_dim : 0, kv_dim, h, k);
    if (own && (fused || has_v))
        product(p, layer, fused ? "attn_qkv" : "attn_v", fused ? q_dim + kv_dim : 0, kv_dim, h, v);
    else if (own) memcpy(v, k, (size_t)kv_dim * sizeof *v);
    bool turned = is(p, "hunyuan-dense") || is(p, "hunyuan-moe") || is(p, "maincoder");
    for (int behind = 0; behind < 2; behind++) { // norms come before RoPE or behind it
        if (behind == turned) norm(p, layer, "attn_q_norm", q, q_dim);
        if (behind == turned && own) norm(p, layer, "attn_k_norm", k, kv_dim);
        for (int i = 0; i < p->n_heads && !behind; i++) turn(p, layer, pos, q + i * hd);
        for (int i = 0; i < n_kv && own && !behind; i++) turn(p, layer, pos, k + i * hd);
    }
    if (own && is(p, "gemma4")) norm_by(p, NULL, v, kv_dim, hd);
    bool plain_norms = is(p, "llama4") && has_rope(p, layer) && number(p, "expert_count", 0) != 128;
    if (plain_norms) norm_by(p, NULL, q, q_dim, hd), norm_by(p, NULL, k, kv_dim, hd);
    double temperature = temperature_at(p, layer, pos);
    for (int i = 0; i < q_dim; i++) q[i] *= temperature;
}

// What a file calls post_attention_norm: a norm of the mixer's output, or the norm before the feed-forward.
static bool norm_is_behind(const Plain *p) {
    return !is(p, "gpt-oss") && !is(p, "seed_oss") && !is(p, "glm4moe") && !is_qwen35(p);
}

// x += residual_scale * norm(branch)
static void add_branch(const Plain *p, int layer, const char *behind, double *branch, double *x) {
    double scale = is_granite(p) ? number(p, "residual_scale", 1) : 1;
    Plain of = *p;
    if (is(p, "muse-glimmer")) of.eps = 1e-8;
    norm(&of, layer, behind, branch, p->dim);
    for (int i = 0; i < p->dim; i++) x[i] += scale * branch[i];
}

static double activated(const Plain *p, double g) {
    double cubic = sqrt(2 / acos(-1.0)) * (g + 0.044715 * g * g * g);
    if (is(p, "arcee") || is_apart(p)) return fmax(g, 0);
    bool gelu = is(p, "gemma") || is(p, "gemma2") || is(p, "gemma3") || is(p, "gemma4");
    return gelu ? 0.5 * g * (1 + tanh(cubic)) : g / (1 + exp(-g));
}

// The activation of apertus, with the numbers of the layer.
static double xielu(const Plain *p, int layer, double v) {
    static const char *const keys[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
    double of[4];
    for (int k = 0; k < 4; k++) {
        float f;
        memcpy(&f, gguf_value(p->g, keys[k])->data + sizeof f * (size_t)layer, sizeof f);
        of[k] = (double)f;
    }
    double above = log1p(exp(of[0])), below = of[2] + log1p(exp(of[1]));
    return v > 0 ? above * v * v + of[2] * v : (expm1(fmin(v, of[3])) - v) * below + of[2] * v;
}

// y = down(act(gate(norm(x))) * up(norm(x))). arcee has no gate: act(up) * up.
static void dense(const Plain *p, int layer, const double *x, double *y) {
    bool fused = !tensor_of(p, layer, "ffn_gate", "weight");
    int ffn = (int)tensor_of(p, layer, "ffn_down", "weight")->dims[0];
    double h[4096], gate[4096], up[4096];
    memcpy(h, x, (size_t)p->dim * sizeof *h);
    bool one = fused && (is(p, "arcee") || is(p, "apertus") || is_apart(p)); // no gate
    norm(p, layer,
         is_cohere(p) || is_apart(p) ? "attn_norm"
         : norm_is_behind(p)         ? "ffn_norm"
                                     : "post_attention_norm",
         h, p->dim);
    product(p, layer, fused ? "ffn_up" : "ffn_gate", 0, ffn, h, gate);
    product(p, layer, "ffn_up", fused && !one ? ffn : 0, ffn, h, up);
    for (int i = 0; i < ffn; i++) gate[i] = is(p, "apertus") ? xielu(p, layer, gate[i]) : activated(p, gate[i]) * up[i];
    product(p, layer, "ffn_down", 0, p->dim, gate, y);
}

// Adds the feed-forward of `from` to x.
static void feed_forward(const Plain *p, int layer, const double *from, double *x) {
    double y[4096];
    dense(p, layer, from, y);
    add_branch(p, layer, "post_ffw_norm", y, x);
}

// y = down(act(gate(h)) * up(h)) of expert e of a stack, or of a matrix.
static void one_expert(const Plain *p, int layer, const char *kind, int e, const double *h, double *y) {
    char name[4][32];
    static const char *const parts[] = {"gate", "up", "down", "gate_up"};
    for (int i = 0; i < 4; i++) snprintf(name[i], sizeof name[i], "ffn_%s_%s", parts[i], kind);
    int width = (int)tensor_of(p, layer, name[2], "weight")->dims[0];
    double gate[4096], up[4096];
    bool fused = tensor_of(p, layer, name[3], "weight");
    product(p, layer, name[fused ? 3 : is_apart(p)], fused ? 2 * e * width : e * width, width, h, gate);
    product(p, layer, name[fused ? 3 : 1], fused ? (2 * e + 1) * width : e * width, width, h, up);
    for (int i = 0; i < width; i++) {
        double g = gate[i], u = up[i];
        if (is(p, "gpt-oss")) {
            g = fmin(g, 7), u = fmax(-7, fmin(u, 7));
            gate[i] = (u + 1) * g / (1 + exp(-1.702 * g));
        } else gate[i] = activated(p, g) * u;
    }
    product(p, layer, name[2], e * p->dim, p->dim, gate, y);
}

// Computes the router's input: in gemma4 it has its own norm of x.
static void router_input(const Plain *p, int layer, const double *x, const double *h, double *out) {
    const GgufTensor *scale = tensor_of(p, layer, "ffn_gate_inp", "scale");
    memcpy(out, is(p, "gemma4") ? x : h, (size_t)p->dim * sizeof *out);
    if (!is(p, "gemma4")) return;
    norm_by(p, NULL, out, p->dim, p->dim);
    for (int i = 0; i < p->dim; i++) out[i] *= (scale ? (double)((const float *)scale->data)[i] : 1) / sqrt(p->dim);
}

static void experts(const Plain *p, int layer, double *x) {
    double h[4096], in[4096], logits[512], weight[512], y[4096], sum[4096] = {0};
    int n = (int)number(p, "expert_count", 0);
    bool beside = is(p, "gemma4"), before = is(p, "llama4"); // llama4 weighs the inputs of experts
    memcpy(h, x, (size_t)p->dim * sizeof *h);
    norm(p, layer,
         beside              ? "pre_ffw_norm_2"
         : is_apart(p)       ? "attn_norm"
         : norm_is_behind(p) ? "ffn_norm"
                             : "post_attention_norm",
         h, p->dim);
    router_input(p, layer, x, h, in);
    product(p, layer, "ffn_gate_inp", 0, n, in, logits);
    plain_route(p, layer, logits, n, weight);
    for (int e = 0; e < n; e++) {
        if (weight[e] == 0) continue;
        for (int i = 0; i < p->dim; i++) in[i] = (before ? weight[e] : 1) * h[i];
        one_expert(p, layer, "exps", e, in, y);
        for (int i = 0; i < p->dim; i++) sum[i] += (before ? 1 : weight[e]) * y[i];
    }
    if (beside) {
        norm(p, layer, "post_ffw_norm_2", sum, p->dim);
        dense(p, layer, x, y);
        norm(p, layer, "post_ffw_norm_1", y, p->dim);
        for (int i = 0; i < p->dim; i++) sum[i] += y[i];
    }
    if (tensor_of(p, layer, "ffn_up_shexp", "weight")) {
        bool gated = tensor_of(p, layer, "ffn_gate_inp_shexp", "weight");
        if (gated) product(p, layer, "ffn_gate_inp_shexp", 0, 1, h, logits);
        one_expert(p, layer, "shexp", 0, h, y);
        for (int i = 0; i < p->dim; i++) sum[i] += gated ? y[i] / (1 + exp(-logits[0])) : y[i];
    }
    add_branch(p, layer, "post_ffw_norm", sum, x);
}

// ---- compressed K and V ---------------------------------------------------------------------------------------------

// Computes K and V of every head at a position from the file's latent vector: k (n_heads, key), v (n_heads, value).
static void expand(const Plain *p, int layer, int pos, const double *h, double *k, double *v) {
    int rank = (int)number(p, "attention.kv_lora_rank", 0), key = (int)number(p, "attention.key_length_mla", 0);
    int value = (int)number(p, "attention.value_length_mla", 0), plain = key - p->n_rot;
    double c[1024], row[1024];
    product(p, layer, "attn_kv_a_mqa", 0, rank + p->n_rot, h, c);
    norm(p, layer, "attn_kv_a_norm", c, rank);
    turn(p, layer, pos, c + rank);
    const GgufTensor *k_b = tensor_of(p, layer, "attn_k_b", "weight");
    for (int head = 0; head < p->n_heads; head++) {
        double *to = k + head * key;
        memset(to, 0, (size_t)plain * sizeof *to);
        for (int i = 0; i < rank; i++) { // K = k_b^T c
            row_of(k_b, (uint64_t)(head * rank + i), row);
            for (int d = 0; d < plain; d++) to[d] += row[d] * c[i];
        }
        memcpy(to + plain, c + rank, (size_t)p->n_rot * sizeof *to);
        product(p, layer, "attn_v_b", head * value, value, c, v + head * value);
    }
}

static void latent_query(const Plain *p, int layer, int pos, const double *h, double *q) {
    int key = (int)number(p, "attention.key_length_mla", 0), rank = (int)number(p, "attention.q_lora_rank", 0);
    double small[4096];
    if (tensor_of(p, layer, "attn_q_a", "weight")) {
        product(p, layer, "attn_q_a", 0, rank, h, small);
        norm(p, layer, "attn_q_a_norm", small, rank);
        product(p, layer, "attn_q_b", 0, p->n_heads * key, small, q);
    } else product(p, layer, "attn_q", 0, p->n_heads * key, h, q);
    for (int head = 0; head < p->n_heads; head++) turn(p, layer, pos, q + head * key + key - p->n_rot);
    for (int i = 0; i < p->n_heads * key; i++) q[i] *= temperature_at(p, layer, pos);
}

// Attention of the row at position t; k and v hold K and V of all heads and positions.
static void attend_latent(const Plain *p, int layer, int t, const double *x, double *k, double *v, double *a) {
    int key = (int)number(p, "attention.key_length_mla", 0), value = (int)number(p, "attention.value_length_mla", 0);
    double h[4096], q[8192], *s = malloc((size_t)(t + 1) * 8);
    double m = 1 + number(p, "rope.scaling.yarn_log_multiplier", 0) * log(number(p, "rope.scaling.factor", 1));
    memcpy(h, x, (size_t)p->dim * sizeof *h);
    norm(p, layer, "attn_norm", h, p->dim);
    expand(p, layer, t, h, k + t * p->n_heads * key, v + t * p->n_heads * value);
    latent_query(p, layer, t, h, q);
    for (int head = 0; head < p->n_heads; head++) {
        double most = -INFINITY, sum = 0, *out = a + head * value;
        for (int j = 0; j <= t; j++) {
            s[j] = 0;
            for (int i = 0; i < key; i++) s[j] += q[head * key + i] * k[(j * p->n_heads + head) * key + i];
            s[j] *= m * m / sqrt(key);
            most = fmax(most, s[j]);
        }
        memset(out, 0, (size_t)value * sizeof *out);
        for (int j = 0; j <= t; j++) {
            double weight = exp(s[j] - most);
            sum += weight;
            for (int i = 0; i < value; i++) out[i] += weight * v[(j * p->n_heads + head) * value + i];
        }
        for (int i = 0; i < value; i++) out[i] /= sum;
    }
    free(s);
}

// ---- layers ---------------------------------------------------------------------------------------------------------

static void attend_heads(const Plain *p, int layer, int t, const double *x, double *a) {
    int hd = head_dim(p, layer), n_kv = kv_heads(p, layer), group = p->n_heads / n_kv, from = source(p, layer);
    double *k = p->k[from], *v = p->v[from], q[4096], gate[4096];
    project(p, layer, t, x, q, k + t * n_kv * hd, v + t * n_kv * hd, gate);
    for (int i = 0; i < p->n_heads; i++)
        attend(p, layer, i, t, q + i * hd, k + i / group * hd, v + i / group * hd, a + i * hd);
    for (int i = 0; i < p->n_heads * hd; i++) a[i] *= gate[i];
}

// Adds the layer's part for each token (per-layer embeddings) to x; then multiplies x by the layer's scale.
static void end_layer(const Plain *p, int layer, int t, double *x) {
    int per = (int)number(p, "embedding_length_per_layer_input", 0);
    const GgufTensor *scale = tensor_of(p, layer, "layer_output_scale", "weight");
    double from[4096], own[8192], gate[4096], out[4096];
    if (per > 0) {
        product(p, -1, "per_layer_model_proj", layer * per, per, p->x0 + t * p->dim, from);
        for (int i = 0; i < per; i++) from[i] /= sqrt(p->dim);
        norm(p, -1, "per_layer_proj_norm", from, per);
        row_of(tensor_of(p, -1, "per_layer_token_embd", "weight"), (uint64_t)p->tokens[t], own);
        product(p, layer, "inp_gate", 0, per, x, gate);
        for (int i = 0; i < per; i++)
            gate[i] = activated(p, gate[i]) * (from[i] + own[layer * per + i] * sqrt(per)) / sqrt(2);
        product(p, layer, "proj", 0, p->dim, gate, out);
        add_branch(p, layer, "post_norm", out, x);
    }
    for (int i = 0; scale && i < p->dim; i++) x[i] *= (double)((const float *)scale->data)[0];
}

// ---- recurrent layers -----------------------------------------------------------------------------------------------

static double silu(double v) { return v / (1 + exp(-v)); }

// u (n, width) = the causal convolution of in (n, width), each channel with its own taps.
static void convolve(const Plain *p, int layer, const char *part, const double *in, double *u, int n, int width) {
    const GgufTensor *w = tensor_of(p, layer, part, "weight");
    int taps = (int)w->dims[0];
    for (int t = 0; t < n; t++)
        for (int c = 0; c < width; c++) {
            double sum = 0;
            for (int j = 0; j < taps; j++)
                if (t - taps + 1 + j >= 0)
                    sum += (double)((const float *)w->data)[c * taps + j] * in[(t - taps + 1 + j) * width + c];
            u[t * width + c] = sum;
        }
}

static void short_convolution(const Plain *p, int layer, double *x, int n) {
    int dim = p->dim;
    size_t bytes = (size_t)(n * dim) * sizeof(double);
    double h[4096], bcx[3 * 4096], *in = calloc(1, bytes), *gate = malloc(bytes), *u = malloc(bytes);
    for (int t = 0; t < n; t++) {
        memcpy(h, x + t * dim, (size_t)dim * sizeof *h);
        norm(p, layer, "attn_norm", h, dim);
        product(p, layer, "shortconv.in_proj", 0, 3 * dim, h, bcx);
        for (int i = 0; i < dim; i++) {
            in[t * dim + i] = bcx[i] * bcx[2 * dim + i];
            gate[t * dim + i] = bcx[dim + i];
        }
    }
    convolve(p, layer, "shortconv.conv", in, u, n, dim);
    for (int t = 0; t < n; t++) {
        for (int i = 0; i < dim; i++) u[t * dim + i] *= gate[t * dim + i];
        product(p, layer, "shortconv.out_proj", 0, dim, u + t * dim, h);
        add_branch(p, layer, "none", h, x + t * dim);
    }
    free(in);
    free(gate);
    free(u);
}

typedef struct {
    int nk, nv, s, width; // heads of keys and values, a head's size, channels of the convolution
} Delta;

// x / sqrt(x.x + 1e-6)
static void make_unit(double *x, int n) {
    double squares = 1e-6;
    for (int i = 0; i < n; i++) squares += x[i] * x[i];
    for (int i = 0; i < n; i++) x[i] /= sqrt(squares);
}

// One value head over all rows: u (n, width) has q, k, v; ba (n, 2 nv) beta's and alpha's products; out (n, nv s).
static void delta_head(const Plain *p, const Delta *d, int layer, int head, const double *u, const double *ba,
                       double *out, int n) {
    bool grouped = is(p, "qwen3next");
    int s = d->s, group = d->nv / d->nk, key = grouped ? head / group : head % d->nk;
    int b_at = grouped ? key * 2 * group + head % group : head, a_at = grouped ? b_at + group : d->nv + head;
    char name[64];
    snprintf(name, sizeof name, "blk.%d.ssm_a", layer);
    double a = (double)((const float *)gguf_tensor(p->g, name)->data)[head];
    double dt = (double)((const float *)tensor_of(p, layer, "ssm_dt", "bias")->data)[head];
    double *m = calloc((size_t)(s * s), sizeof *m), q[512], k[512];
    for (int t = 0; t < n; t++) {
        const double *row = u + t * d->width, *v = row + 2 * d->nk * s + head * s;
        double *o = out + (t * d->nv + head) * s, beta = 1 / (1 + exp(-ba[t * 2 * d->nv + b_at]));
        double decay = exp(a * log1p(exp(ba[t * 2 * d->nv + a_at] + dt)));
        memcpy(q, row + key * s, (size_t)s * sizeof *q);
        memcpy(k, row + (d->nk + key) * s, (size_t)s * sizeof *k);
        make_unit(q, s);
        make_unit(k, s);
        for (int j = 0; j < s; j++) {
            double found = 0;
            for (int i = 0; i < s; i++) found += (m[i * s + j] *= decay) * k[i];
            o[j] = 0;
            for (int i = 0; i < s; i++) o[j] += (m[i * s + j] += k[i] * beta * (v[j] - found)) * q[i] / sqrt(s);
        }
    }
    free(m);
}

static void gated_delta(const Plain *p, int layer, double *x, int n) {
    Delta d = {(int)number(p, "ssm.group_count", 0), (int)number(p, "ssm.time_step_rank", 0),
               (int)number(p, "ssm.state_size", 0), 0};
    int inner = d.nv * d.s;
    d.width = 2 * d.nk * d.s + inner;
    size_t rows = (size_t)n * sizeof(double);
    double *in = calloc((size_t)d.width, rows), *u = malloc(rows * (size_t)d.width), *z = malloc(rows * (size_t)inner);
    double *ba = malloc(rows * 2 * (size_t)d.nv), *out = malloc(rows * (size_t)inner), h[4096];
    for (int t = 0; t < n; t++) {
        memcpy(h, x + t * p->dim, (size_t)p->dim * sizeof *h);
        norm(p, layer, "attn_norm", h, p->dim);
        product(p, layer, "attn_qkv", 0, d.width, h, in + t * d.width);
        product(p, layer, "attn_gate", 0, inner, h, z + t * inner);
        if (is(p, "qwen3next")) product(p, layer, "ssm_ba", 0, 2 * d.nv, h, ba + t * 2 * d.nv);
        else {
            product(p, layer, "ssm_beta", 0, d.nv, h, ba + t * 2 * d.nv);
            product(p, layer, "ssm_alpha", 0, d.nv, h, ba + t * 2 * d.nv + d.nv);
        }
    }
    convolve(p, layer, "ssm_conv1d", in, u, n, d.width);
    for (int i = 0; i < n * d.width; i++) u[i] = silu(u[i]);
    for (int head = 0; head < d.nv; head++) delta_head(p, &d, layer, head, u, ba, out, n);
    for (int t = 0; t < n; t++) {
        norm(p, layer, "ssm_norm", out + t * inner, inner);
        for (int i = 0; i < inner; i++) out[t * inner + i] *= silu(z[t * inner + i]);
        product(p, layer, "ssm_out", 0, p->dim, out + t * inner, h);
        add_branch(p, layer, "none", h, x + t * p->dim);
    }
    free(in);
    free(u);
    free(z);
    free(ba);
    free(out);
}

static void feed(const Plain *p, int layer, double *row) {
    if (is_apart(p) && !tensor_of(p, layer, "ffn_up", "weight") && !tensor_of(p, layer, "ffn_gate_inp", "weight"))
        return;
    if (tensor_of(p, layer, "ffn_gate_inp", "weight")) experts(p, layer, row);
    else feed_forward(p, layer, row, row);
}

// Computes a recurrent layer; false: the layer is not recurrent.
static bool run_recurrent(const Plain *p, int layer, double *x, int n) {
    bool delta = tensor_of(p, layer, "ssm_out", "weight");
    double *branch = plain_ssd(p, layer, x, n);
    for (int t = 0; branch && t < n; t++) {
        add_branch(p, layer, "none", branch + t * p->dim, x + t * p->dim);
        feed(p, layer, x + t * p->dim);
    }
    free(branch);
    if (branch) return true;
    if (!delta && !tensor_of(p, layer, "shortconv.conv", "weight")) return false;
    (delta ? gated_delta : short_convolution)(p, layer, x, n);
    for (int t = 0; t < n; t++) feed(p, layer, x + t * p->dim);
    return true;
}

static void run_layer(const Plain *p, int layer, double *x, int n) {
    bool latent = is_latent(p);
    if (run_recurrent(p, layer, x, n)) return;
    bool attends = tensor_of(p, layer, "attn_output", "weight");
    for (int t = 0; t < n && !attends; t++) feed(p, layer, x + t * p->dim);
    if (!attends) return;
    int a_dim = (int)tensor_of(p, layer, "attn_output", "weight")->dims[0];
    size_t room = (size_t)n * (size_t)p->n_heads * (size_t)(p->head_dim + p->n_rot) * 4;
    double a[8192], out[4096], before[4096];
    if (a_dim > (int)ARRAY_LEN(a)) abort();
    p->k[layer] = malloc(room * sizeof **p->k);
    p->v[layer] = malloc(room * sizeof **p->v);
    for (int t = 0; t < n; t++) { // later rows have no effect on row t
        double *row = x + t * p->dim;
        memcpy(before, row, (size_t)p->dim * sizeof *row);
        if (latent) attend_latent(p, layer, t, row, p->k[layer], p->v[layer], a);
        else attend_heads(p, layer, t, row, a);
        product(p, layer, "attn_output", 0, p->dim, a, out);
        add_branch(p, layer, norm_is_behind(p) ? "post_attention_norm" : "none", out, row);
        if (is_cohere(p)) feed_forward(p, layer, before, row);
        else feed(p, layer, row);
        end_layer(p, layer, t, row);
    }
}

static Plain open_plain(const Gguf *g, int n_ctx) {
    Plain p = {.g = g, .n_ctx = n_ctx};
    Str arch;
    if (gguf_str(g, "general.architecture", &arch, true).code) abort();
    snprintf(p.arch, sizeof p.arch, "%.*s", (int)arch.n, arch.data);
    p.dim = (int)number(&p, "embedding_length", 0);
    p.n_layers = (int)number(&p, "block_count", 0) - (int)number(&p, "nextn_predict_layers", 0);
    p.n_heads = (int)number(&p, "attention.head_count", 0);
    p.n_kv_heads = (int)number(&p, "attention.head_count_kv", p.n_heads);
    p.head_dim = (int)number(&p, "attention.key_length", p.dim / p.n_heads);
    p.n_rot = (int)number(&p, "rope.dimension_count", p.head_dim);
    p.window = (int)number(&p, "attention.chunk_size", number(&p, "attention.sliding_window", 0));
    p.eps = number(&p, "attention.layer_norm_rms_epsilon", number(&p, "attention.layer_norm_epsilon", 0));
    p.k = calloc((size_t)p.n_layers + 1, sizeof *p.k); // the last one is the prediction head's
    p.v = calloc((size_t)p.n_layers + 1, sizeof *p.v);
    return p;
}

static void close_plain(Plain *p) {
    for (int layer = 0; layer <= p->n_layers; layer++) free(p->k[layer]), free(p->v[layer]);
    free(p->k);
    free(p->v);
}

// The hidden vectors of n tokens, behind the last layer and its norm: (n, dim), which the caller frees.
static double *hidden_of(Plain *p, const int *tokens, int n) {
    bool root = is(p, "gemma") || is(p, "gemma2") || is(p, "gemma3") || is(p, "gemma4") || is(p, "afmoe");
    double scale = root ? sqrt(p->dim) : number(p, "embedding_scale", 1);
    double *x = malloc((size_t)(n * p->dim) * sizeof *x);
    for (int t = 0; t < n; t++) {
        row_of(gguf_tensor(p->g, "token_embd.weight"), (uint64_t)tokens[t], x + t * p->dim);
        for (int i = 0; i < p->dim; i++) x[t * p->dim + i] *= scale;
        if (is(p, "muse-glimmer")) norm_by(p, NULL, x + t * p->dim, p->dim, p->dim);
    }
    double *x0 = malloc((size_t)(n * p->dim) * sizeof *x0);
    memcpy(x0, x, (size_t)(n * p->dim) * sizeof *x0);
    p->x0 = x0;
    p->tokens = tokens;
    for (int layer = 0; layer < p->n_layers; layer++) run_layer(p, layer, x, n);
    for (int t = 0; t < n; t++)
        norm(p, -1, gguf_tensor(p->g, "output_norm.weight") ? "output_norm" : "token_embd_norm", x + t * p->dim,
             p->dim);
    free(x0);
    return x;
}

// The name and the number of rows of the output matrix.
static const char *output_of(const Gguf *g, int *n_vocab) {
    *n_vocab = (int)gguf_tensor(g, "token_embd.weight")->dims[1];
    return gguf_tensor(g, "output.weight") ? "output" : "token_embd";
}

float *plain_forward(const Gguf *g, int n_ctx, const int *tokens, int n) {
    Plain p = open_plain(g, n_ctx);
    int n_vocab;
    const char *head = output_of(g, &n_vocab);
    double *x = hidden_of(&p, tokens, n), *out = malloc((size_t)n_vocab * sizeof *out);
    float *logits = malloc((size_t)(n * n_vocab) * sizeof *logits);
    double scale = number(&p, "logit_scale", 1);
    if (!is(&p, "muse-glimmer") && !is_cohere(&p)) scale = 1 / scale;
    for (int t = 0; t < n; t++) {
        product(&p, -1, head, 0, n_vocab, x + t * p.dim, out);
        for (int i = 0; i < n_vocab; i++)
            logits[t * n_vocab + i] = (float)capped(out[i] * scale, number(&p, "final_logit_softcapping", 0));
    }
    close_plain(&p);
    free(x);
    free(out);
    return logits;
}

// ---- the prediction head --------------------------------------------------------------------------------------------

// x = eh_proj [norm of the token's embedding, norm of a hidden vector]
static void join(const Plain *p, int token, const double *given, double *x) {
    int at = p->n_layers;
    double both[8192];
    const GgufTensor *own = tensor_of(p, at, "nextn.embed_tokens", "weight");
    row_of(own ? own : gguf_tensor(p->g, "token_embd.weight"), (uint64_t)token, both);
    memcpy(both + p->dim, given, (size_t)p->dim * sizeof *both);
    norm(p, at, "nextn.enorm", both, p->dim);
    norm(p, at, "nextn.hnorm", both + p->dim, p->dim);
    product(p, at, "nextn.eh_proj", 0, p->dim, both, x);
}

// The head's own hidden vector behind row t of its inputs, which are (t + 1, dim). Computes all rows before it again.
static void head_hidden(Plain *p, const double *inputs, int t, double *out) {
    int at = p->n_layers;
    size_t n = (size_t)((t + 1) * p->dim);
    double *x = malloc(n * sizeof *x);
    memcpy(x, inputs, n * sizeof *x);
    free(p->k[at]);
    free(p->v[at]);
    run_layer(p, at, x, t + 1);
    bool own = tensor_of(p, at, "nextn.shared_head_norm", "weight");
    memcpy(out, x + t * p->dim, (size_t)p->dim * sizeof *out);
    norm(p, own ? at : -1, own ? "nextn.shared_head_norm" : "output_norm", out, p->dim);
    free(x);
}

float *plain_head(const Gguf *g, const int *tokens, int n, const int *drafts, int n_drafts) {
    Plain p = open_plain(g, 0);
    int n_vocab, n_rows = n - 1 + n_drafts;
    const char *head = output_of(g, &n_vocab);
    bool own = tensor_of(&p, p.n_layers, "nextn.shared_head_head", "weight");
    double *hidden = hidden_of(&p, tokens, n), *x = malloc((size_t)(n_rows * p.dim) * sizeof *x);
    double *out = malloc((size_t)n_vocab * sizeof *out), state[4096];
    float *logits = malloc((size_t)(n_rows * n_vocab) * sizeof *logits);
    for (int t = 0; t < n_rows; t++) {
        bool draft = t >= n - 1;
        join(&p, draft ? drafts[t - n + 1] : tokens[t + 1], draft ? state : hidden + t * p.dim, x + t * p.dim);
        head_hidden(&p, x, t, state);
        product(&p, own ? p.n_layers : -1, own ? "nextn.shared_head_head" : head, 0, n_vocab, state, out);
        for (int i = 0; i < n_vocab; i++) logits[t * n_vocab + i] = (float)out[i];
    }
    close_plain(&p);
    free(hidden);
    free(x);
    free(out);
    return logits;
}
