// hf/rope.c: see hf/rope.h. transformers 4 wrote rope_theta and rope_scaling; version 5 writes rope_parameters,
// separately for each kind of layer if they differ. Arithmetic: transformers' modeling_rope_utils.
#include "hf/rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/types.h"

typedef struct {
    const HfModel *m;
    const json_t *full;    // parameters of layers with full attention; may be NULL
    const json_t *sliding; // parameters of layers with a window, if they differ
    int n_rot;
    double theta;
} RopeReader;

static void set_f32(const RopeReader *r, const char *suffix, double v) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", r->m->family->arch, suffix);
    gguf_set_f32(r->m->g, key, (float)v);
}

static void set_u32(const RopeReader *r, const char *suffix, int64_t v) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", r->m->family->arch, suffix);
    gguf_set_u32(r->m->g, key, (uint32_t)v);
}

static Status wrong(const RopeReader *r, const char *what) {
    return status_error(QUILL_MODEL, "%s/config.json: RoPE: %s", r->m->dir, what);
}

static const char *rope_type(const json_t *rope) {
    const char *type = json_string_value(json_object_get(rope, "rope_type"));
    if (!type) type = json_string_value(json_object_get(rope, "type"));
    return type ? type : "default";
}

// A positive number of the scaling; absent or null: the fallback, 0 if it is required.
static Status get_number(const RopeReader *r, const char *key, double fallback, double *out) {
    *out = fallback;
    const json_t *v = json_object_get(r->full, key);
    if (v && !json_is_null(v) && !hf_config_number(r->full, key, out)) *out = 0;
    if (*out > 0 && isfinite(*out)) return OK;
    return status_error(QUILL_MODEL, "%s/config.json: RoPE of type %.20s: %s: a positive number expected", r->m->dir,
                        rope_type(r->full), key);
}

// The context that the model was trained for before its RoPE was scaled.
static Status get_original(const RopeReader *r, double *out) {
    double whole = 0;
    hf_config_number(r->m->config, "max_position_embeddings", &whole);
    hf_config_number(r->m->config, "original_max_position_embeddings", &whole);
    TRY(get_number(r, "original_max_position_embeddings", whole, out));
    return *out >= 1 && *out <= 1 << 30 ? OK : wrong(r, "original_max_position_embeddings: 1 to 2^30 expected");
}

static float *add_vector(const RopeReader *r, const char *name) {
    size_t n = (size_t)(r->n_rot / 2);
    float *v = gguf_alloc(r->m->g, n * sizeof *v);
    gguf_add_tensor(r->m->g, name, TYPE_F32, n, 0, v, NULL, 0);
    return v;
}

// Llama 3.1: long wavelengths are stretched by the factor, short ones stay, those between are interpolated.
static Status read_llama3(const RopeReader *r) {
    double factor, low, high, original;
    TRY(get_number(r, "factor", 0, &factor));
    TRY(get_number(r, "low_freq_factor", 0, &low));
    TRY(get_number(r, "high_freq_factor", 0, &high));
    TRY(get_original(r, &original));
    if (high < low) return wrong(r, "high_freq_factor of at least low_freq_factor expected");
    float *divisors = add_vector(r, "rope_freqs.weight");
    for (int i = 0; i < r->n_rot / 2; i++) {
        double wave = 2 * 3.14159265358979323846 * pow(r->theta, 2.0 * i / r->n_rot);
        double turns = original / wave; // Llama 4: low and high are equal
        double smooth = high > low ? fmin(1, fmax(0, (turns - low) / (high - low))) : turns >= high;
        divisors[i] = (float)(1 / ((1 - smooth) / factor + smooth));
    }
    return OK;
}

static double yarn_magnitude(double factor, double mscale) { return factor <= 1 ? 1 : 1 + 0.1 * mscale * log(factor); }

static Status read_yarn(const RopeReader *r) {
    double factor, original, fast, slow, attention, mscale = 0, all_dim = 0;
    TRY(get_number(r, "factor", 0, &factor));
    TRY(get_original(r, &original));
    TRY(get_number(r, "beta_fast", 32, &fast));
    TRY(get_number(r, "beta_slow", 1, &slow));
    // the loader rounds the limits of the ramp for all families but gpt-oss (yarn_unrounded)
    bool rounds = !json_is_false(json_object_get(r->full, "truncate"));
    if (rounds == (r->m->family->names == HF_NAMES_OSS))
        return wrong(r, rounds ? "yarn: truncate: false expected" : "yarn: truncate: true expected, false found");
    hf_config_number(r->full, "mscale", &mscale);
    hf_config_number(r->full, "mscale_all_dim", &all_dim);
    attention = mscale != 0 && all_dim != 0 ? yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all_dim)
                                            : yarn_magnitude(factor, 1);
    TRY(get_number(r, "attention_factor", attention, &attention));
    char key[96];
    snprintf(key, sizeof key, "%s.rope.scaling.type", r->m->family->arch);
    gguf_set_str(r->m->g, key, "yarn");
    set_f32(r, "rope.scaling.factor", factor);
    set_u32(r, "rope.scaling.original_context_length", (int64_t)original);
    set_f32(r, "rope.scaling.yarn_beta_fast", fast);
    set_f32(r, "rope.scaling.yarn_beta_slow", slow);
    bool latent = r->m->family->names == HF_NAMES_DEEPSEEK;
    double usual = latent ? 1 : 1 + 0.1 * log(factor); // the model loader multiplies GGUF's attn_factor by this
    // the scale of the scores grows with log(factor)
    if (latent && all_dim != 0) set_f32(r, "rope.scaling.yarn_log_multiplier", 0.1 * all_dim);
    if (attention != usual) set_f32(r, "rope.scaling.attn_factor", attention / usual);
    return OK;
}

static Status read_factors(const RopeReader *r, const char *key, const char *tensor) {
    const json_t *list = json_object_get(r->full, key);
    size_t n = (size_t)(r->n_rot / 2);
    if (json_array_size(list) != n)
        return status_error(QUILL_MODEL, "%s/config.json: RoPE of type longrope: %s: %zu numbers expected, %zu found",
                            r->m->dir, key, n, json_array_size(list));
    float *v = add_vector(r, tensor);
    for (size_t i = 0; i < n; i++) {
        v[i] = (float)json_number_value(json_array_get(list, i));
        if (!(v[i] > 0)) return wrong(r, "longrope: positive factors expected");
    }
    return OK;
}

static Status read_longrope(const RopeReader *r) {
    double original, whole = 0, factor, attention;
    TRY(get_original(r, &original));
    hf_config_number(r->m->config, "max_position_embeddings", &whole);
    bool known = json_is_number(json_object_get(r->m->config, "original_max_position_embeddings"));
    if (known) factor = whole / original;
    else TRY(get_number(r, "factor", whole / original, &factor));
    attention = factor <= 1 || original <= 1 ? 1 : sqrt(1 + log(factor) / log(original));
    TRY(get_number(r, "attention_factor", attention, &attention));
    set_u32(r, "rope.scaling.original_context_length", (int64_t)original);
    set_f32(r, "rope.scaling.attn_factor", attention);
    TRY(read_factors(r, "short_factor", "rope_factors_short.weight"));
    return read_factors(r, "long_factor", "rope_factors_long.weight");
}

// Gemma 4: the frequencies are those of the whole head, and only the first part of the pairs is rotated.
static Status read_proportional(const RopeReader *r, double part) {
    double factor;
    TRY(get_number(r, "factor", 1, &factor));
    int turned = (int)(part * r->n_rot) / 2;
    float *divisors = add_vector(r, "rope_freqs.weight");
    for (int i = 0; i < r->n_rot / 2; i++) divisors[i] = i < turned ? (float)factor : 1e30f;
    return OK;
}

// Ministral 3 and Mistral 4: Q of later positions is multiplied by a factor that grows with the multiple of the
// original context.
static Status read_temperature(const RopeReader *r) {
    double temperature, original;
    const char *arch = r->m->family->arch;
    if (strcmp(arch, "mistral3") != 0 && strcmp(arch, "mistral4") != 0) return OK;
    if (!hf_config_number(r->full, "llama_4_scaling_beta", &temperature) || temperature == 0) return OK;
    TRY(get_number(r, "llama_4_scaling_beta", 0, &temperature));
    TRY(get_original(r, &original));
    set_u32(r, "rope.scaling.original_context_length", (int64_t)original);
    set_f32(r, "attention.temperature_scale", temperature);
    set_u32(r, "attention.temperature_length", (int64_t)original);
    return OK;
}

// Hunyuan: type "dynamic" with a number alpha is a larger base, whatever the length of the text.
static bool has_alpha(const RopeReader *r) {
    double alpha;
    return r->m->family->names == HF_NAMES_HUNYUAN && strcmp(rope_type(r->full), "dynamic") == 0 &&
           hf_config_number(r->full, "alpha", &alpha) && alpha != 0;
}

static Status read_alpha(RopeReader *r) {
    double alpha;
    if (!has_alpha(r)) return OK;
    TRY(get_number(r, "alpha", 0, &alpha));
    if (r->n_rot < 4) return wrong(r, "dynamic with alpha: heads of at least 4 elements expected");
    r->theta *= pow(alpha, r->n_rot / (r->n_rot - 2.0));
    return isfinite((float)r->theta) ? OK : wrong(r, "alpha: a smaller number expected");
}

// Sets the parts of a head that have the positions of time, height and width. A text has equal positions in all parts,
// but other programs need the key.
static Status read_sections(const RopeReader *r) {
    const json_t *list = json_object_get(r->full, "mrope_section");
    int32_t sections[4] = {0};
    char key[96];
    if (!r->m->family->sections || !list) return OK;
    for (size_t i = 0; i < 3; i++) sections[i] = hf_config_id(json_array_get(list, i));
    if (json_array_size(list) != 3 || sections[0] < 1 || sections[1] < 1 || sections[2] < 1)
        return wrong(r, "mrope_section: three whole numbers from 1 on expected");
    snprintf(key, sizeof key, "%s.rope.dimension_sections", r->m->family->arch);
    gguf_set_ints(r->m->g, key, sections, 4);
    return OK;
}

static Status read_scaling(const RopeReader *r) {
    const char *type = rope_type(r->full);
    if (strcmp(type, "default") == 0 || has_alpha(r)) return OK;
    if (r->m->family->sections && strcmp(type, "mrope") == 0) return OK;
    if (strcmp(type, "llama3") == 0) return read_llama3(r);
    if (strcmp(type, "yarn") == 0) return read_yarn(r);
    if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0) return read_longrope(r);
    if (strcmp(type, "linear") != 0)
        return status_error(
            QUILL_MODEL, "%s/config.json: rope_type: default, linear, llama3, yarn or longrope expected, %.60s found",
            r->m->dir, type);
    double factor;
    TRY(get_number(r, "factor", 0, &factor));
    char key[96];
    snprintf(key, sizeof key, "%s.rope.scaling.type", r->m->family->arch);
    gguf_set_str(r->m->g, key, "linear");
    set_f32(r, "rope.scaling.factor", factor);
    return OK;
}

// Reads the RoPE base of layers with a window, if it differs.
static Status read_sliding(const RopeReader *r) {
    double theta;
    if (r->sliding && strcmp(rope_type(r->sliding), "default") != 0)
        return wrong(r, "rope_parameters.sliding_attention: rope_type default expected");
    if (!hf_config_number(r->sliding, "rope_theta", &theta) &&
        !hf_config_number(r->m->config, "rope_local_base_freq", &theta))
        return OK;
    if (!(theta > 0)) return wrong(r, "the base of layers with a window: a positive number expected");
    set_f32(r, "rope.freq_base_swa", theta);
    return OK;
}

// Numbers that are not required: another type must not turn them into their defaults without a word.
static Status check_types(const RopeReader *r) {
    static const char *const names[] = {"rope_theta", "partial_rotary_factor", "mscale", "mscale_all_dim",
                                        "llama_4_scaling_beta"};
    const json_t *places[] = {r->full, r->sliding};
    for (size_t i = 0; i < ARRAY_LEN(names) * ARRAY_LEN(places); i++) {
        const json_t *v = json_object_get(places[i % 2], names[i / 2]);
        if (v && !json_is_null(v) && !json_is_number(v))
            return status_error(QUILL_MODEL, "%s/config.json: RoPE: %s: a number expected", r->m->dir, names[i / 2]);
    }
    return OK;
}

// Refuses a file that has both rope_parameters and the older rope_scaling, if they differ: transformers takes the older
// one, and with it another rope_theta.
static Status refuse_two(const RopeReader *r) {
    const json_t *parameters = json_object_get(r->m->config, "rope_parameters");
    json_t *older = json_object_get(r->m->config, "rope_scaling"), *value;
    const char *key;
    if (!json_is_object(parameters) || json_object_size(older) == 0) return OK;
    bool same = strcmp(rope_type(older), rope_type(r->full)) == 0;
    json_object_foreach(older, key, value) {
        if (strcmp(key, "type") == 0 || strcmp(key, "rope_type") == 0) continue;
        same = same && json_equal(value, json_object_get(r->full, key));
    }
    return same ? OK
                : wrong(r, "rope_scaling: the values of rope_parameters, which is there too, expected, others found");
}

// Reads the part of a head that is rotated. Only some classes have it; MiniMax-M2 has the number of rotated elements.
static Status read_part(const RopeReader *r, bool whole, double *part) {
    double n_rot;
    *part = 1;
    if (hf_class_has(r->m, "rotary_dim") && hf_config_number(r->m->config, "rotary_dim", &n_rot))
        *part = n_rot / r->m->head_dim;
    hf_config_number(r->m->config, "partial_rotary_factor", part);
    hf_config_number(r->full, "partial_rotary_factor", part);
    // the part of a head of DeepSeek and its like is qk_rope_head_dim, from which some files compute this number
    if (r->m->family->names == HF_NAMES_DEEPSEEK) *part = 1;
    if (!(*part > 0 && *part <= 1)) return wrong(r, "partial_rotary_factor: a number in (0, 1] expected");
    if (*part == 1 || whole || hf_class_has(r->m, "partial_rotary_factor")) return OK;
    return status_error(QUILL_MODEL, "%s/config.json: RoPE: partial_rotary_factor: 1 in %s models expected, %g found",
                        r->m->dir, r->m->family->model_type, *part);
}

Status hf_read_rope(const HfModel *m) {
    RopeReader r = {.m = m, .theta = 10000};
    const json_t *parameters = json_object_get(m->config, "rope_parameters");
    r.full = json_is_object(parameters) ? parameters : json_object_get(m->config, "rope_scaling");
    if (json_is_object(json_object_get(parameters, "full_attention"))) {
        r.full = json_object_get(parameters, "full_attention");
        r.sliding = json_object_get(parameters, "sliding_attention");
    }
    bool whole = strcmp(rope_type(r.full), "proportional") == 0;
    double part;
    TRY(check_types(&r));
    TRY(refuse_two(&r));
    TRY(read_part(&r, whole, &part));
    if (!hf_config_number(r.full, "rope_theta", &r.theta)) hf_config_number(m->config, "rope_theta", &r.theta);
    if (!(r.theta > 0 && isfinite((float)r.theta))) return wrong(&r, "rope_theta: a positive number expected");
    r.n_rot = whole ? m->head_dim : (int)(m->head_dim * part);
    if (r.n_rot < 2 || r.n_rot % 2)
        return status_error(QUILL_MODEL, "%s/config.json: RoPE: an even number of dimensions expected, %d found",
                            m->dir, r.n_rot);
    TRY(read_alpha(&r));
    set_u32(&r, "rope.dimension_count", r.n_rot);
    set_f32(&r, "rope.freq_base", r.theta);
    TRY(whole ? read_proportional(&r, part) : read_scaling(&r));
    TRY(read_sections(&r));
    TRY(read_temperature(&r));
    return read_sliding(&r);
}
