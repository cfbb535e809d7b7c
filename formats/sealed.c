// formats/sealed.c: see formats/sealed.h.
#include "formats/sealed.h"

// ---- the f32 values of a slot ---------------------------------------------------------------------------------------

static float unpack_2_bits(const uint8_t qs[8], int i) { return (float)(qs[i % 8] >> 2 * (i / 8) & 3); }

static void unseal_kivi2(const BlockKivi2 *b, float *out) {
    for (int i = 0; i < 32; i++) out[i] = half_float(b->m) + half_float(b->d) * unpack_2_bits(b->qs, i);
}

static void unseal_fp8(const uint8_t *from, int n, float *out) {
    half_bits d;
    memcpy(&d, from, sizeof d);
    for (int i = 0; i < n; i++) out[i] = half_float(d) * (half_float(fp8_half(from[2 + i])) * 256);
}

// ---- groups ---------------------------------------------------------------------------------------------------------

static void unseal_slot(int type, const uint8_t *from, float out[32]) {
    if (type == TYPE_KIVI2) unseal_kivi2((const BlockKivi2 *)from, out);
    else type_info(type)->dequantize(from, out, 32);
}

static void seal_panel(const float x[SEAL][32], PanelKivi2 *p) {
    TwoBits channels[32];
    for (int c = 0; c < 32; c++) {
        channels[c] = two_bits_of(&x[0][c], 32);
        p->d[c] = channels[c].d;
        p->m[c] = channels[c].m;
    }
    for (int s = 0; s < SEAL; s++) seal_of_channels(x[s], channels, p->qs[s]);
}

void sealed_pack_group(int type, bool keys, const float *const *rows, int head_dim, uint8_t *group) {
    size_t slot_bytes = kv_slot_bytes(type, head_dim), block_bytes = slot_bytes / (size_t)((head_dim + 31) / 32);
    if (type == TYPE_FP8) {
        for (int s = 0; s < SEAL; s++) seal_fp8(rows[s], head_dim, group + (size_t)s * slot_bytes);
        return;
    }
    for (int i = 0; i < head_dim; i += 32) {
        float x[SEAL][32] = {{0}};
        for (int s = 0; s < SEAL; s++) memcpy(x[s], rows[s] + i, (size_t)(head_dim - i < 32 ? head_dim - i : 32) * 4);
        if (type == TYPE_KIVI2 && keys) seal_panel((const float(*)[32])x, (PanelKivi2 *)group + i / 32);
        else
            for (int s = 0; s < SEAL; s++)
                seal_slot(type, x[s], group + (size_t)s * slot_bytes + (size_t)(i / 32) * block_bytes);
    }
}

static void unseal_panel(const PanelKivi2 *p, int slot, float *out) {
    for (int c = 0; c < 32; c++) out[c] = half_float(p->m[c]) + half_float(p->d[c]) * unpack_2_bits(p->qs[slot], c);
}

void sealed_unpack_group(int type, bool keys, const uint8_t *group, int head_dim, float *rows, size_t stride) {
    size_t slot_bytes = kv_slot_bytes(type, head_dim), block_bytes = slot_bytes / (size_t)((head_dim + 31) / 32);
    for (int s = 0; s < SEAL; s++) {
        const uint8_t *slot = group + (size_t)s * slot_bytes;
        float *row = rows + (size_t)s * stride;
        if (type == TYPE_FP8) unseal_fp8(slot, head_dim, row);
        else
            for (int i = 0; i < head_dim; i += 32) {
                float x[32];
                if (type == TYPE_KIVI2 && keys) unseal_panel((const PanelKivi2 *)group + i / 32, s, x);
                else unseal_slot(type, slot + (size_t)(i / 32) * block_bytes, x);
                memcpy(row + i, x, (size_t)(head_dim - i < 32 ? head_dim - i : 32) * 4);
            }
    }
}

// ---- Hadamard -------------------------------------------------------------------------------------------------------

void sealed_hadamard(float *head, int head_dim) {
    int n = head_dim & -head_dim;
    float scale = 1 / sqrtf((float)n);
    for (int half = 1; half < n; half *= 2)
        for (int i = 0; i < head_dim; i++)
            if (!(i & half)) {
                float a = head[i], b = head[i + half];
                head[i] = a + b;
                head[i + half] = a - b;
            }
    for (int i = 0; i < head_dim; i++) head[i] *= scale;
}
