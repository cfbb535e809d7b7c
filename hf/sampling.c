// hf/sampling.c: see hf/sampling.h.
//
// Whether do_sample is set is not asked, as in vLLM and in llama.cpp's converter: the numbers are those with which the
// model's authors sample.
#include "hf/sampling.h"

#include <limits.h>
#include <math.h>

#include "base/jsonio.h"

static const struct {
    const char *name, *key;
    bool whole;
} numbers[] = {
    {"temperature", "general.sampling.temp", false},
    {"top_k", "general.sampling.top_k", true},
    {"top_p", "general.sampling.top_p", false},
    {"min_p", "general.sampling.min_p", false},
    {"repetition_penalty", "general.sampling.penalty_repeat", false},
};

static Status wrong(const HfModel *m, const char *name, bool whole, const json_t *v) {
    Buf found = {0};
    jsonio_print(v, JSON_ENCODE_ANY | JSON_COMPACT, &found);
    Status st = status_error(QUILL_MODEL, "%s/generation_config.json: %s: a %snumber expected, %.60s found", m->dir,
                             name, whole ? "whole " : "", found.data);
    buf_free(&found);
    return st;
}

Status hf_read_sampling(const HfModel *m, const json_t *generation) {
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        const json_t *v = json_object_get(generation, numbers[i].name);
        bool whole = numbers[i].whole;
        double x = json_number_value(v);
        if (!v || json_is_null(v)) continue;
        if (!json_is_number(v) || (whole && (x != floor(x) || x > INT_MAX))) return wrong(m, numbers[i].name, whole, v);
        if (whole) gguf_set_u32(m->g, numbers[i].key, x > 0 ? (uint32_t)x : 0); // -1: all tokens
        else gguf_set_f32(m->g, numbers[i].key, (float)x);
    }
    return OK;
}
