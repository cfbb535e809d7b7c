// kv/kvturn.c: see kv/kvturn.h.
#include "kv/kvturn.h"

#include <stdlib.h>
#include <string.h>

void kvturn_load(const KvPool *kv, const void *at, float *head) {
    type_info(kv->type_k)->dequantize(at, head, (size_t)kv->head_dim);
    if (kv->rotate) sealed_hadamard(head, kv->head_dim);
}

// Converts back, and overwrites `head`.
static void store(const KvPool *kv, float *head, void *at) {
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

// Cosines and sines of a rotation by `positions`, (n_rot / 2) each.
static void angles(const Rope *r, double positions, float *c, float *s) {
    for (int i = 0; i < r->n_rot / 2; i++) {
        c[i] = (float)cos(positions * r->freq[i]);
        s[i] = (float)sin(positions * r->freq[i]);
    }
}

static void turn_key(const KvPool *kv, const Rope *r, const float *c, const float *s, float *head, void *at) {
    kvturn_load(kv, at, head);
    turn_head(r, c, s, head);
    store(kv, head, at);
}

void kvturn_keys(const KvPool *kv, const Rope *r, double positions, void *keys, size_t n) {
    size_t half = (size_t)r->n_rot / 2, size = kv_slot_bytes(kv->type_k, kv->head_dim);
    if (half == 0 || positions == 0) return;
    float *c = mem_alloc((2 * half + (size_t)kv->head_dim) * sizeof *c), *s = c + half;
    angles(r, positions, c, s);
    for (size_t i = 0; i < n; i++) turn_key(kv, r, c, s, s + half, (uint8_t *)keys + i * size);
    free(c);
}

void kvturn_each(const KvPool *kv, const Rope *r, const int *positions, void *keys, int n, size_t stride) {
    size_t half = (size_t)r->n_rot / 2;
    float *c = mem_alloc((2 * half + (size_t)kv->head_dim) * sizeof *c), *s = c + half;
    for (int i = 0; i < n && half > 0; i++) {
        if (i == 0 || positions[i] != positions[i - 1]) angles(r, positions[i], c, s);
        if (positions[i] != 0) turn_key(kv, r, c, s, s + half, (uint8_t *)keys + (size_t)i * stride);
    }
    free(c);
}
