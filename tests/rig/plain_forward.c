// tests/rig/plain_forward.c: see tests/rig/plain_forward.h.
#include "tests/rig/plain_forward.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/types.h"

typedef struct {
    const Gguf *g;
    char arch[32];
    int dim, n_layers, n_heads, n_kv_heads, head_dim, ffn, n_rot, window, n_ctx;
    double eps;
} Plain;

// ---- what the file says ---------------------------------------------------------------------------------------------

static double number(const Plain *p, const char *suffix, double fallback) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", p->arch, suffix);
    const GgufValue *v = gguf_value(p->g, key);
    if (!v) return fallback;
    uint64_t magnitude;
    bool negative;
    float f = 0;
    if (gguf_integer(v, &magnitude, &negative)) return negative ? -(double)magnitude : (double)magnitude;
    return gguf_f32(p->g, key, &f, true, 0).code ? fallback : (double)f;
}

static bool is(const Plain *p, const char *arch) { return strcmp(p->arch, arch) == 0; }

static const GgufTensor *tensor_of(const Plain *p, int layer, const char *part, const char *kind) {
    char name[96];
    if (layer < 0) snprintf(name, sizeof name, "%s.%s", part, kind);
    else snprintf(name, sizeof name, "blk.%d.%s.%s", layer, part, kind);
    return gguf_tensor(p->g, name);
}

static void row_of(const GgufTensor *t, uint64_t row, double *out) {
    const TypeInfo *info = type_info(t->type);
    size_t n = (size_t)t->dims[0], bytes = n / (size_t)info->block * (size_t)info->bytes;
    float *values = malloc(n * sizeof *values);
    info->dequantize((const char *)t->data + row * bytes, values, n);
    for (size_t i = 0; i < n; i++) out[i] = (double)values[i];
    free(values);
}

// y (n) = rows [first, first + n) of a matrix times x, with their bias where there is one.
static void product(const Plain *p, int layer, const char *part, int first, int n, const double *x, double *y) {
    const GgufTensor *w = tensor_of(p, layer, part, "weight"), *bias = tensor_of(p, layer, part, "bias");
    double *row = malloc((size_t)w->dims[0] * sizeof *row);
    for (int i = 0; i < n; i++) {
        row_of(w, (uint64_t)(first + i), row);
        y[i] = bias ? (double)((const float *)bias->data)[first + i] : 0;
        for (uint64_t k = 0; k < w->dims[0]; k++) y[i] += row[k] * x[k];
    }
    free(row);
}

// In place, in pieces of the norm's own length; nothing where the file has no such norm.
static void norm(const Plain *p, int layer, const char *part, double *x, int n) {
    const GgufTensor *w = tensor_of(p, layer, part, "weight");
    if (!w) return;
    int width = (int)w->dims[0];
    for (int at = 0; at < n; at += width) {
        double squares = 0;
        for (int i = 0; i < width; i++) squares += x[at + i] * x[at + i];
        double scale = 1 / sqrt(squares / width + p->eps);
        for (int i = 0; i < width; i++) x[at + i] *= scale * (double)((const float *)w->data)[i];
    }
}

// ---- positions ------------------------------------------------------------------------------------------------------

static bool slides(const Plain *p, int layer) {
    int every = is(p, "gemma2") || is(p, "gpt-oss") ? 2 : is(p, "gemma3") ? 6 : is(p, "olmo2") ? 4 : 0;
    return p->window > 0 && (every == 0 || (layer + 1) % every != 0);
}

static bool has_rope(const Plain *p, int layer) {
    bool on = true;
    if (is(p, "granite")) gguf_bool(p->g, "granite.rope.scaling.finetuned", &on, true);
    return on && !(is(p, "smollm3") && (layer + 1) % 4 == 0);
}

// Radians a position for pair i, and the factor of cosine and sine.
static double frequency(const Plain *p, int layer, int i, double *magnitude) {
    static const char *const factors[] = {"rope_factors_short", "rope_factors_long"};
    double theta = number(p, "rope.freq_base", 10000), s = number(p, "rope.scaling.factor", 1);
    double original = number(p, "rope.scaling.original_context_length", number(p, "context_length", 0));
    bool own = slides(p, layer) && (is(p, "gemma3") || is(p, "olmo2"));
    if (own) theta = number(p, "rope.freq_base_swa", is(p, "gemma3") ? 10000 : theta);
    double f = pow(theta, -2.0 * i / p->n_rot);
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
    *magnitude *= (0.1 * log(s) + 1) / (0.1 * m * log(s) + 1);
    return f * (1 - ramp) + f / s * ramp;
}

static bool turns_pairs(const Plain *p) {
    static const char *const families[] = {"llama", "granite", "smollm3", "mistral3", "glm4"};
    bool halves = true;
    for (size_t i = 0; i < ARRAY_LEN(families); i++) halves = halves && !is(p, families[i]);
    gguf_bool(p->g, "quill.rope.halves", &halves, halves);
    return !halves;
}

static void turn(const Plain *p, int layer, int pos, double *head) {
    for (int i = 0; i < p->n_rot / 2 && has_rope(p, layer); i++) {
        double m, angle = pos * frequency(p, layer, i, &m), c = m * cos(angle), s = m * sin(angle);
        double *a = &head[turns_pairs(p) ? 2 * i : i], *b = &head[turns_pairs(p) ? 2 * i + 1 : i + p->n_rot / 2];
        double x = *a, y = *b;
        *a = x * c - y * s;
        *b = x * s + y * c;
    }
}

// ---- a layer --------------------------------------------------------------------------------------------------------

static double capped(double v, double cap) { return cap > 0 ? cap * tanh(v / cap) : v; }

static double score_scale(const Plain *p) {
    bool by_dim = (is(p, "gemma2") && p->n_layers == 46) || (is(p, "gemma3") && p->n_layers == 62);
    double usual = 1 / sqrt(by_dim ? p->dim / p->n_heads : p->head_dim);
    return is(p, "granite") ? number(p, "attention.scale", usual) : usual;
}

// a (head_dim) of one head at position t, from K and V (.., kv_dim) of all positions up to it.
static void attend(const Plain *p, int layer, int head, int t, const double *q, const double *k, const double *v,
                   double *a) {
    int kv_dim = p->n_kv_heads * p->head_dim, first = slides(p, layer) && t >= p->window ? t - p->window + 1 : 0;
    double cap = number(p, "attn_logit_softcapping", 0), sum = 0, most = -INFINITY, *s = malloc((size_t)(t + 1) * 8);
    for (int j = first; j <= t; j++) {
        s[j] = 0;
        for (int i = 0; i < p->head_dim; i++) s[j] += q[i] * k[(size_t)(j * kv_dim + i)];
        s[j] = capped(s[j] * score_scale(p), cap);
        most = fmax(most, s[j]);
    }
    memset(a, 0, (size_t)p->head_dim * sizeof *a);
    const GgufTensor *sinks = tensor_of(p, layer, "attn_sinks", "weight");
    if (sinks) sum = exp((double)((const float *)sinks->data)[head] - most);
    for (int j = first; j <= t; j++) {
        double weight = exp(s[j] - most);
        sum += weight;
        for (int i = 0; i < p->head_dim; i++) a[i] += weight * v[(size_t)(j * kv_dim + i)];
    }
    for (int i = 0; i < p->head_dim; i++) a[i] /= sum;
    free(s);
}

// Q, K and V of one row, as attention takes them.
static void project(const Plain *p, int layer, int pos, const double *x, double *q, double *k, double *v) {
    int q_dim = p->n_heads * p->head_dim, kv_dim = p->n_kv_heads * p->head_dim;
    bool fused = tensor_of(p, layer, "attn_qkv", "weight");
    double h[4096], span = number(p, "rope.scaling.original_context_length", number(p, "context_length", 0));
    memcpy(h, x, (size_t)p->dim * sizeof *h);
    norm(p, layer, "attn_norm", h, p->dim);
    product(p, layer, fused ? "attn_qkv" : "attn_q", 0, q_dim, h, q);
    product(p, layer, fused ? "attn_qkv" : "attn_k", fused ? q_dim : 0, kv_dim, h, k);
    product(p, layer, fused ? "attn_qkv" : "attn_v", fused ? q_dim + kv_dim : 0, kv_dim, h, v);
    norm(p, layer, "attn_q_norm", q, q_dim);
    norm(p, layer, "attn_k_norm", k, kv_dim);
    for (int i = 0; i < p->n_heads; i++) turn(p, layer, pos, q + i * p->head_dim);
    for (int i = 0; i < p->n_kv_heads; i++) turn(p, layer, pos, k + i * p->head_dim);
    double temperature = 1 + number(p, "attention.temperature_scale", 0) * log(1 + floor(pos / span));
    for (int i = 0; i < q_dim; i++) q[i] *= temperature;
}

// x += residual_scale * norm(branch)
static void add_branch(const Plain *p, int layer, const char *behind, double *branch, double *x) {
    double scale = is(p, "granite") ? number(p, "residual_scale", 1) : 1;
    norm(p, layer, behind, branch, p->dim);
    for (int i = 0; i < p->dim; i++) x[i] += scale * branch[i];
}

static void feed_forward(const Plain *p, int layer, double *x) {
    bool fused = !tensor_of(p, layer, "ffn_gate", "weight"), gelu = is(p, "gemma2") || is(p, "gemma3");
    double h[4096], gate[4096], up[4096];
    memcpy(h, x, (size_t)p->dim * sizeof *h);
    norm(p, layer, "ffn_norm", h, p->dim);
    product(p, layer, fused ? "ffn_up" : "ffn_gate", 0, p->ffn, h, gate);
    product(p, layer, "ffn_up", fused ? p->ffn : 0, p->ffn, h, up);
    for (int i = 0; i < p->ffn; i++) {
        double g = gate[i];
        double cubic = sqrt(2 / acos(-1.0)) * (g + 0.044715 * g * g * g);
        gate[i] = (gelu ? 0.5 * g * (1 + tanh(cubic)) : g / (1 + exp(-g))) * up[i];
    }
    product(p, layer, "ffn_down", 0, p->dim, gate, h);
    add_branch(p, layer, "post_ffw_norm", h, x);
}

// y = down(act(gate(h)) * up(h)) of expert e of a stack, or of a matrix.
static void one_expert(const Plain *p, int layer, const char *kind, int e, const double *h, double *y) {
    char name[3][32];
    static const char *const parts[] = {"gate", "up", "down"};
    for (int i = 0; i < 3; i++) snprintf(name[i], sizeof name[i], "ffn_%s_%s", parts[i], kind);
    int width = (int)tensor_of(p, layer, name[0], "weight")->dims[1];
    double gate[4096], up[4096];
    product(p, layer, name[0], e * width, width, h, gate);
    product(p, layer, name[1], e * width, width, h, up);
    for (int i = 0; i < width; i++) {
        double g = gate[i], u = up[i];
        if (is(p, "gpt-oss")) {
            g = fmin(g, 7), u = fmax(-7, fmin(u, 7));
            gate[i] = (u + 1) * g / (1 + exp(-1.702 * g));
        } else gate[i] = g / (1 + exp(-g)) * u;
    }
    product(p, layer, name[2], e * p->dim, p->dim, gate, y);
}

static void experts(const Plain *p, int layer, double *x) {
    double h[4096], logits[512], y[4096], sum[4096] = {0}, all = 0, chosen = 0;
    int n = (int)number(p, "expert_count", 0), n_used = (int)number(p, "expert_used_count", 0);
    bool used[512] = {false}, normed = !is(p, "qwen2moe");
    char key[96];
    snprintf(key, sizeof key, "%s.expert_weights_norm", p->arch);
    if (gguf_bool(p->g, key, &normed, normed).code) abort();
    memcpy(h, x, (size_t)p->dim * sizeof *h);
    norm(p, layer, is(p, "gpt-oss") ? "post_attention_norm" : "ffn_norm", h, p->dim);
    product(p, layer, "ffn_gate_inp", 0, n, h, logits);
    for (int i = 0; i < n; i++) all += exp(logits[i]);
    for (int k = 0; k < n_used; k++) {
        int best = -1;
        for (int i = 0; i < n; i++)
            if (!used[i] && (best < 0 || logits[i] > logits[best])) best = i;
        used[best] = true;
        chosen += exp(logits[best]);
    }
    for (int e = 0; e < n; e++) {
        if (!used[e]) continue;
        one_expert(p, layer, "exps", e, h, y);
        double weight = exp(logits[e]) / (normed ? chosen : all) * number(p, "expert_weights_scale", 1);
        for (int i = 0; i < p->dim; i++) sum[i] += weight * y[i];
    }
    if (tensor_of(p, layer, "ffn_gate_shexp", "weight")) {
        product(p, layer, "ffn_gate_inp_shexp", 0, 1, h, logits);
        one_expert(p, layer, "shexp", 0, h, y);
        for (int i = 0; i < p->dim; i++) sum[i] += y[i] / (1 + exp(-logits[0]));
    }
    add_branch(p, layer, "none", sum, x);
}

static void run_layer(const Plain *p, int layer, double *x, int n) {
    int kv_dim = p->n_kv_heads * p->head_dim, group = p->n_heads / p->n_kv_heads;
    double *k = malloc((size_t)(n * kv_dim) * sizeof *k), *v = malloc((size_t)(n * kv_dim) * sizeof *v);
    double q[4096], a[4096], out[4096];
    for (int t = 0; t < n; t++) { // rows after this one do not matter to it
        project(p, layer, t, x + t * p->dim, q, k + t * kv_dim, v + t * kv_dim);
        for (int i = 0; i < p->n_heads; i++)
            attend(p, layer, i, t, q + i * p->head_dim, k + i / group * p->head_dim, v + i / group * p->head_dim,
                   a + i * p->head_dim);
        product(p, layer, "attn_output", 0, p->dim, a, out);
        add_branch(p, layer, is(p, "gpt-oss") ? "none" : "post_attention_norm", out, x + t * p->dim);
        if (tensor_of(p, layer, "ffn_gate_inp", "weight")) experts(p, layer, x + t * p->dim);
        else feed_forward(p, layer, x + t * p->dim);
    }
    free(k);
    free(v);
}

float *plain_forward(const Gguf *g, int n_ctx, const int *tokens, int n) {
    Plain p = {.g = g, .n_ctx = n_ctx};
    Str arch;
    if (gguf_str(g, "general.architecture", &arch, true).code) abort();
    snprintf(p.arch, sizeof p.arch, "%.*s", (int)arch.n, arch.data);
    p.dim = (int)number(&p, "embedding_length", 0);
    p.n_layers = (int)number(&p, "block_count", 0);
    p.n_heads = (int)number(&p, "attention.head_count", 0);
    p.n_kv_heads = (int)number(&p, "attention.head_count_kv", p.n_heads);
    p.head_dim = (int)number(&p, "attention.key_length", p.dim / p.n_heads);
    p.ffn = (int)number(&p, "feed_forward_length", 0);
    p.n_rot = (int)number(&p, "rope.dimension_count", p.head_dim);
    p.window = (int)number(&p, "attention.sliding_window", 0);
    p.eps = number(&p, "attention.layer_norm_rms_epsilon", 0);
    const GgufTensor *embedding = gguf_tensor(g, "token_embd.weight");
    const char *head = gguf_tensor(g, "output.weight") ? "output" : "token_embd";
    int n_vocab = (int)embedding->dims[1];
    double scale = is(&p, "gemma2") || is(&p, "gemma3") ? sqrt(p.dim) : number(&p, "embedding_scale", 1);
    double *x = malloc((size_t)(n * p.dim) * sizeof *x), *out = malloc((size_t)n_vocab * sizeof *out);
    float *logits = malloc((size_t)(n * n_vocab) * sizeof *logits);
    for (int t = 0; t < n; t++) {
        row_of(embedding, (uint64_t)tokens[t], x + t * p.dim);
        for (int i = 0; i < p.dim; i++) x[t * p.dim + i] *= scale;
    }
    for (int layer = 0; layer < p.n_layers; layer++) run_layer(&p, layer, x, n);
    for (int t = 0; t < n; t++) {
        norm(&p, -1, "output_norm", x + t * p.dim, p.dim);
        product(&p, -1, head, 0, n_vocab, x + t * p.dim, out);
        for (int i = 0; i < n_vocab; i++)
            logits[t * n_vocab + i] =
                (float)capped(out[i] / number(&p, "logit_scale", 1), number(&p, "final_logit_softcapping", 0));
    }
    free(x);
    free(out);
    return logits;
}
