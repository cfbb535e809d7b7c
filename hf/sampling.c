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

static void keep_text(const HfModel *m, const char *key, const json_t *v) {
    Buf text = {0};
    jsonio_print(v, JSON_ENCODE_ANY | JSON_COMPACT, &text);
    gguf_set_str(m->g, key, text.data);
    buf_free(&text);
}

void hf_read_sampling(const HfModel *m, const json_t *generation) {
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        const json_t *v = json_object_get(generation, numbers[i].name);
        double x = json_number_value(v);
        if (!v || json_is_null(v)) continue;
        if (!json_is_number(v)) keep_text(m, numbers[i].key, v);
        else if (numbers[i].whole && x == floor(x) && fabs(x) <= INT_MAX)
            gguf_set_u32(m->g, numbers[i].key, x > 0 ? (uint32_t)x : 0); // -1: all tokens
        else gguf_set_f32(m->g, numbers[i].key, (float)x);
    }
}
