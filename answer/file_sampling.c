// answer/file_sampling.c: see answer/file_sampling.h.
#include "answer/file_sampling.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sampler.h"

// Keys of other programs' kinds of sampling (mirostat, an order of the steps) have no option here and are ignored.
#define AT(field) offsetof(SamplerParams, field)
static const struct {
    const char *key, *option;
    size_t at;
    bool whole;
    double least, most; // as of the option; top_k also has -1, which is "all" in other programs
} keys[] = {
    {"general.sampling.temp", "temp", AT(temp), false, 0, SAMPLER_MOST_TEMP},
    {"general.sampling.top_k", "top-k", AT(top_k), true, -1, INT_MAX},
    {"general.sampling.top_p", "top-p", AT(top_p), false, 0, 1},
    {"general.sampling.min_p", "min-p", AT(min_p), false, 0, 1},
    {"general.sampling.xtc_probability", "xtc-probability", AT(xtc_probability), false, 0, 1},
    {"general.sampling.xtc_threshold", "xtc-threshold", AT(xtc_threshold), false, 0, 1},
    {"general.sampling.penalty_repeat", "repeat-penalty", AT(repeat_penalty), false, 1.0 / SAMPLER_MOST_PENALTY,
     SAMPLER_MOST_PENALTY},
    {"general.sampling.penalty_last_n", "repeat-last-n", AT(repeat_last_n), true, -1, INT_MAX},
};

// Reads a number of any type. False: it is none.
static bool read_number(const Gguf *g, const char *key, const GgufValue *v, double *out) {
    uint64_t magnitude;
    bool negative;
    float f;
    if (gguf_integer(v, &magnitude, &negative)) {
        *out = negative ? -(double)magnitude : (double)magnitude;
        return true;
    }
    if (gguf_f32(g, key, &f, true, 0).code) return false;
    *out = (double)f;
    return true;
}

static Status wrong(const Gguf *g, size_t i, const char *found) {
    char range[64];
    snprintf(range, sizeof range, keys[i].whole ? "whole number from %.0f to %.0f" : "number from %g to %g",
             keys[i].least, keys[i].most);
    return status_error(QUILL_MODEL, "%s: %s: a %s expected, found %s; the option %s replaces it", gguf_name(g),
                        keys[i].key, range, found, keys[i].option);
}

static Status take(const Gguf *g, size_t i, const GgufValue *v, SamplerParams *out) {
    double x;
    char found[48];
    Str text;
    if (!read_number(g, keys[i].key, v, &x)) {
        bool is_text = !gguf_str(g, keys[i].key, &text, true).code;
        if (is_text) snprintf(found, sizeof found, "%.*s", (int)(text.n < 40 ? text.n : 40), text.data);
        return wrong(g, i, is_text ? found : gguf_type_name(v->type));
    }
    if (!(x >= keys[i].least && x <= keys[i].most) || (keys[i].whole && x != floor(x))) {
        snprintf(found, sizeof found, "%.15g", x);
        return wrong(g, i, found);
    }
    if (keys[i].at == AT(top_k) && x < 0) x = 0;
    void *at = (char *)out + keys[i].at;
    if (keys[i].whole) *(int *)at = (int)x;
    else *(float *)at = (float)x;
    return OK;
}

Status file_sampling_take(const Gguf *g, AnswerConfig *config) {
    SamplerParams usual = sampler_defaults();
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const GgufValue *v = gguf_value(g, keys[i].key);
        if (config->sampling_given & sampling_bit(keys[i].at)) continue;
        if (v) TRY(take(g, i, v, &usual));
        // Samples of a greedy model would all be the same.
        if (config->best_of > 1 && usual.temp <= 0) usual.temp = sampler_defaults().temp;
        memcpy((char *)&config->sampling + keys[i].at, (char *)&usual + keys[i].at, sizeof(float));
    }
    return OK;
}

bool file_sampling_knows(const char *option) {
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (strcmp(keys[i].option, option) == 0) return true;
    return false;
}

void file_sampling_names(const Gguf *g, const AnswerConfig *config, Buf *out) {
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (gguf_value(g, keys[i].key) && !(config->sampling_given & sampling_bit(keys[i].at)))
            buf_printf(out, "%s%s", out->n ? ", " : "", keys[i].option);
}
