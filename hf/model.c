// hf/model.c: see hf/model.h.
#include "hf/model.h"

#include <math.h>
#include <stdio.h>

#include "base/jsonio.h"

bool hf_config_number(const json_t *object, const char *key, double *out) {
    const json_t *v = json_object_get(object, key);
    if (json_is_number(v)) *out = json_number_value(v);
    return json_is_number(v);
}

bool hf_config_int(const json_t *object, const char *key, int64_t *out) {
    double v;
    if (!hf_config_number(object, key, &v) || v != floor(v) || fabs(v) > 1e15) return false;
    *out = (int64_t)v;
    return true;
}

int hf_config_id(const json_t *v) {
    double id = json_is_number(v) ? json_number_value(v) : -1;
    return id >= 0 && id <= INT32_MAX && id == floor(id) ? (int)id : -1;
}

bool hf_class_has(const HfModel *m, const char *key) {
    json_t *defaults = json_loads(m->family->defaults, 0, NULL);
    bool has = json_object_get(defaults, key);
    json_decref(defaults);
    return has;
}

Status hf_config_wrong(const HfModel *m, const char *name, const char *expected) {
    const json_t *v = json_object_get(m->config, name);
    Buf found = {0};
    if (json_is_number(v)) buf_printf(&found, "%.15g", json_number_value(v));
    else if (v) jsonio_print(v, JSON_ENCODE_ANY | JSON_COMPACT, &found);
    Status st = status_error(QUILL_MODEL, "%s/config.json: %s: %s expected, %.60s found", m->dir, name, expected,
                             v ? found.data : "nothing");
    buf_free(&found);
    return st;
}

const char *hf_key(const HfModel *m, const char *suffix, char key[96]) {
    snprintf(key, 96, "%s.%s", m->family->arch, suffix);
    return key;
}

void hf_set_ints(const HfModel *m, const char *suffix, const int32_t *all, int64_t n) {
    char key[96];
    gguf_set_ints(m->g, hf_key(m, suffix, key), all, (size_t)n);
}

void hf_set_flags(const HfModel *m, const char *suffix, const uint8_t *all, int64_t n) {
    char key[96];
    gguf_set(m->g, &(GgufValue){.key = str_of(hf_key(m, suffix, key)),
                                .type = GGUF_ARRAY,
                                .elem_type = GGUF_BOOL,
                                .n = (uint64_t)n,
                                .data = all,
                                .n_bytes = (size_t)n});
}
