// kv/kvturn.c: see kv/kvturn.h.
#include "kv/kvturn.h"

#include <stdlib.h>
#include <string.h>

void kvturn_load(const KvPool *kv, const void *at, float *head) {
    type_info(kv->type_k)->dequantize(at, head, (size_t)kv->head_dim);
    if (kv->rotate) sealed_hadamard(head, kv->head_dim);
}

void kvturn_store(const KvPool *kv, float *head, void *at) {
    uint8_t *out = at;
    if (kv->rotate) sealed_hadamard(head, kv->head_dim);
    for (int i = 0; i < kv->head_dim; i++) {
        uint16_t half = kv->type_k == TYPE_F16 ? float_half(head[i]) : float_bf16(head[i]);
        if (kv->type_k == TYPE_F32) memcpy(out + 4 * i, &head[i], 4);
        else memcpy(out + 2 * i, &half, 2);
    }
}

static void turn_head(const Rope *r, const float *c, const float *s, float *head) {
    int half = r->n_rot / 2;
    for (int i = 0; i < half; i++) {
        float *a = &head[r->adjacent ? 2 * i : i], *b = &head[r->adjacent ? 2 * i + 1 : i + half];
        float x = *a, y = *b;
        *a = x * c[i] - y * s[i];
        *b = x * s[i] + y * c[i];
    }
}

void kvturn_keys(const KvPool *kv, const Rope *r, double positions, void *keys, size_t n) {
    size_t half = (size_t)r->n_rot / 2, size = kv_slot_bytes(kv->type_k, kv->head_dim);
    if (half == 0 || positions == 0) return;
    float *c = mem_alloc((2 * half + (size_t)kv->head_dim) * sizeof *c), *s = c + half, *head = s + half;
    for (size_t i = 0; i < half; i++) {
        c[i] = (float)cos(positions * r->freq[i]);
        s[i] = (float)sin(positions * r->freq[i]);
    }
    uint8_t *at = keys;
    for (size_t i = 0; i < n; i++, at += size) {
        kvturn_load(kv, at, head);
        turn_head(r, c, s, head);
        kvturn_store(kv, head, at);
    }
    free(c);
}
