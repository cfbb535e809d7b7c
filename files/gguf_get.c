// files/gguf_get.c: see files/gguf.h. Reads values as C types: scalars by key, arrays into the caller's memory.
#include "files/gguf_view.h"

#include <inttypes.h>
#include <string.h>

static Status wrong_type(const Gguf *g, const GgufValue *v, const char *expected) {
    bool array = v->type == GGUF_ARRAY;
    return status_error(QUILL_MODEL, "%s: key %.*s: %s expected, %s%s found", g->name, GGUF_SHOW(v->key), expected,
                        array ? "array of " : "", gguf_type_name(v->elem_type));
}

static Status absent(const Gguf *g, const char *key, const char *expected) {
    return status_error(QUILL_MODEL, "%s: key %s: %s expected, none found", g->name, key, expected);
}

bool gguf_integer(const GgufValue *v, uint64_t *out, bool *negative) {
    bool is_signed = v->type == GGUF_I8 || v->type == GGUF_I16 || v->type == GGUF_I32 || v->type == GGUF_I64;
    if (!is_signed && v->type != GGUF_U8 && v->type != GGUF_U16 && v->type != GGUF_U32 && v->type != GGUF_U64)
        return false;
    size_t size = gguf_type_bytes(v->type);
    *out = 0;
    memcpy(out, v->data, size);
    *negative = is_signed && v->data[size - 1] >= 0x80;
    if (*negative) {
        uint64_t extended = size == 8 ? *out : *out | ~(uint64_t)0 << (8 * size);
        *out = 0 - extended;
    }
    return true;
}

Status gguf_u32(const Gguf *g, const char *key, uint32_t *out, bool required, uint32_t fallback) {
    *out = fallback;
    const GgufValue *v = gguf_value(g, key);
    if (!v) return required ? absent(g, key, "an integer") : OK;
    uint64_t n;
    bool negative;
    if (!gguf_integer(v, &n, &negative)) return wrong_type(g, v, "an integer");
    if (negative || n > UINT32_MAX)
        return status_error(QUILL_MODEL, "%s: key %s: 0 to %" PRIu32 " expected, %s%" PRIu64 " found", g->name, key,
                            UINT32_MAX, negative ? "-" : "", n);
    *out = (uint32_t)n;
    return OK;
}

Status gguf_f32(const Gguf *g, const char *key, float *out, bool required, float fallback) {
    *out = fallback;
    const GgufValue *v = gguf_value(g, key);
    if (!v) return required ? absent(g, key, "a number") : OK;
    double d;
    if (v->type == GGUF_F32) memcpy(out, v->data, sizeof *out);
    else if (v->type == GGUF_F64) {
        memcpy(&d, v->data, sizeof d);
        // A double beyond float's range has no defined conversion; it becomes an infinity, which callers refuse.
        *out = d > 3.4028234663852886e38 ? __builtin_inff() : d < -3.4028234663852886e38 ? -__builtin_inff() : (float)d;
    } else return wrong_type(g, v, "F32 or F64");
    return OK;
}

Status gguf_bool(const Gguf *g, const char *key, bool *out, bool fallback) {
    *out = fallback;
    const GgufValue *v = gguf_value(g, key);
    if (!v) return OK;
    if (v->type != GGUF_BOOL) return wrong_type(g, v, "BOOL");
    if (v->data[0] > 1)
        return status_error(QUILL_MODEL, "%s: key %s: 0 or 1 expected, %u found", g->name, key, v->data[0]);
    *out = v->data[0];
    return OK;
}

Status gguf_str(const Gguf *g, const char *key, Str *out, bool required) {
    *out = (Str){0};
    const GgufValue *v = gguf_value(g, key);
    if (!v) return required ? absent(g, key, "a string") : OK;
    if (v->type != GGUF_STR) return wrong_type(g, v, "STRING");
    *out = (Str){(const char *)v->data + 8, v->n_bytes - 8};
    return OK;
}

Str gguf_next_string(const uint8_t **at) {
    uint64_t n;
    memcpy(&n, *at, sizeof n);
    Str s = {(const char *)*at + sizeof n, (size_t)n};
    *at += sizeof n + n;
    return s;
}

Status gguf_strings(const Gguf *g, const GgufValue *v, Str *out) {
    if (v->type != GGUF_ARRAY || v->elem_type != GGUF_STR) return wrong_type(g, v, "array of STRING");
    const uint8_t *at = v->data;
    for (uint64_t i = 0; i < v->n; i++) out[i] = gguf_next_string(&at);
    return OK;
}

Status gguf_floats(const Gguf *g, const GgufValue *v, float *out) {
    if (v->type != GGUF_ARRAY || v->elem_type != GGUF_F32) return wrong_type(g, v, "array of F32");
    if (v->n) memcpy(out, v->data, v->n_bytes);
    return OK;
}

Status gguf_ints(const Gguf *g, const GgufValue *v, int32_t *out) {
    if (v->type != GGUF_ARRAY || (v->elem_type != GGUF_I32 && v->elem_type != GGUF_U32))
        return wrong_type(g, v, "array of I32 or U32");
    if (v->n) memcpy(out, v->data, v->n_bytes);
    return OK;
}
