// tests/test_sealed.c: the sealed KV types: the rounding error of a group, the same bytes in all layouts, and attention
// over groups on every instruction set against double arithmetic over the unpacked values.
//
// Slots that were never written, unused pages and scratch memory hold NaN, so that reading them shows.
#define _POSIX_C_SOURCE 200112L // posix_memalign
#include "tests/rig/testing.h"

#include "formats/sealed.h"
#include "tests/rig/isas.h"

#include <math.h>

static const int types[] = {TYPE_FP8, TYPE_Q8_0, TYPE_Q4_0, TYPE_KIVI2};

static int pick(uint64_t *random, int n) { return (int)(test_random(random) % (uint64_t)n); }

// ---- rounding error of a group --------------------------------------------------------------------------------------

typedef struct {
    float x[SEAL][SEAL_HEAD], y[SEAL][SEAL_HEAD];
    uint8_t bytes[SEAL_MOST + 1];
} SealedGroup;

static void round_trip(SealedGroup *g, int type, bool keys, int head_dim) {
    const float *rows[SEAL];
    size_t n = SEAL * kv_slot_bytes(type, head_dim);
    for (int s = 0; s < SEAL; s++) rows[s] = g->x[s];
    memset(g->bytes, 0xa5, sizeof g->bytes);
    memset(g->y, 0xff, sizeof g->y);
    sealed_pack_group(type, keys, rows, head_dim, g->bytes);
    for (size_t i = n; i < sizeof g->bytes; i++) assert_int_equal(g->bytes[i], 0xa5);
    sealed_unpack_group(type, keys, g->bytes, head_dim, g->y[0], SEAL_HEAD);
}

typedef struct {
    double least, most;
} ScaleRange;

// The range of the elements that share a scale with x[slot][i].
static ScaleRange range_of(const SealedGroup *g, int type, bool keys, int head_dim, int slot, int i) {
    ScaleRange r = {INFINITY, -INFINITY};
    bool channel = type == TYPE_KIVI2 && keys;
    int first = type == TYPE_FP8 ? 0 : i / 32 * 32, last = type == TYPE_FP8 ? head_dim : int_min(first + 32, head_dim);
    for (int k = 0; k < (channel ? SEAL : last - first); k++) {
        double v = (double)(channel ? g->x[k][i] : g->x[slot][first + k]);
        r.least = fmin(r.least, v);
        r.most = fmax(r.most, v);
    }
    if (!channel && type != TYPE_FP8 && last - first < 32)
        r.least = fmin(r.least, 0), r.most = fmax(r.most, 0); // the block is padded with zeros
    return r;
}

// Q4_0 has codes from -8 to 7, with a step of an eighth of the largest magnitude, whose element gets code -8. On its
// side the error is at most half a step. The other side may need code 8, which does not exist: there the error is the
// part beyond 7 steps.
static double q4_0_step(ScaleRange r, double x) {
    double most = fmax(fabs(r.least), fabs(r.most)), step = most / 8;
    bool same_side = fabs(r.least) != fabs(r.most) && (x < 0) == (fabs(r.least) > fabs(r.most));
    return same_side ? step / 2 : fmax(step / 2, fabs(x) - 7 * step);
}

// Half a step, plus the rounding of the f16 scale (and of the minimum): a relative error of 2^-11, at least 2^-25.
static double bound_of(ScaleRange r, int type, double x) {
    double most = fmax(fabs(r.least), fabs(r.most)), tiny = 0x1p-25;
    if (type == TYPE_Q8_0) return most / 127 / 2 + most * 0x1p-11 + 128 * tiny;
    if (type == TYPE_Q4_0) return q4_0_step(r, x) + most * 0x1p-11 + 9 * tiny;
    if (type == TYPE_KIVI2)
        return (r.most - r.least) / 3 / 2 + most * 0x1p-10 + (r.most - r.least) * 0x1p-10 + 5 * tiny;
    return fabs(x) / 16 + most / 448 * 0x1p-10 + most * 0x1p-10 + 449 * tiny;
}

static void check_bounds(SealedGroup *g, int type, bool keys, int head_dim) {
    round_trip(g, type, keys, head_dim);
    for (int s = 0; s < SEAL; s++)
        for (int i = 0; i < head_dim; i++) {
            double x = (double)g->x[s][i], y = (double)g->y[s][i];
            double bound = bound_of(range_of(g, type, keys, head_dim, s, i), type, x);
            if (!(fabs(x - y) <= bound))
                fail_msg("%s %s, slot %d, element %d of %d: %g within %g expected, %g found", type_name(type),
                         keys ? "K" : "V", s, i, head_dim, x, bound, y);
        }
}

static void test_rounding_is_bounded(void **state) {
    (void)state;
    static const int head_dims[] = {1, 5, 24, 32, 48, 64, 80, 128, 512};
    static const float sizes[] = {1, 1e-3f, 3e-7f, 1e-40f, 300, 6e4f, 1e5f};
    static SealedGroup g;
    uint64_t random = 1;
    for (size_t t = 0; t < ARRAY_LEN(types); t++)
        for (int keys = 0; keys < 2; keys++)
            for (size_t d = 0; d < ARRAY_LEN(head_dims); d++)
                for (size_t z = 0; z < ARRAY_LEN(sizes); z++) {
                    if (sizes[z] > 65504 && types[t] == TYPE_KIVI2) continue; // its minimum is stored in f16
                    for (int s = 0; s < SEAL; s++)
                        for (int i = 0; i < head_dims[d]; i++)
                            g.x[s][i] = sizes[z] * test_uniform(&random) * (pick(&random, 9) ? 1 : 0.01f);
                    check_bounds(&g, types[t], keys, head_dims[d]);
                }
}

// Groups of equal values keep them as exactly as f16 does: there is no division by a range of 0.
static void test_constant_groups(void **state) {
    (void)state;
    static const float values[] = {0, -0.0f, 1, -3.7f, 1e-6f, 5000};
    static SealedGroup g;
    for (size_t t = 0; t < ARRAY_LEN(types); t++)
        for (int keys = 0; keys < 2; keys++)
            for (size_t v = 0; v < ARRAY_LEN(values); v++) {
                for (int s = 0; s < SEAL; s++)
                    for (int i = 0; i < 64; i++) g.x[s][i] = values[v];
                round_trip(&g, types[t], keys, 64);
                for (int s = 0; s < SEAL; s++)
                    for (int i = 0; i < 64; i++)
                        assert_true(fabsf(g.y[s][i] - values[v]) <= fabsf(values[v]) * 0x1p-10f + 0x1p-18f);
            }
}

// A value that is not finite stays so, and affects only its own block.
static void test_what_is_not_finite_shows(void **state) {
    (void)state;
    static const float broken[] = {INFINITY, -INFINITY, NAN};
    static SealedGroup g;
    for (size_t t = 0; t < ARRAY_LEN(types); t++)
        for (int keys = 0; keys < 2; keys++)
            for (size_t b = 0; b < 3; b++) {
                for (int s = 0; s < SEAL; s++)
                    for (int i = 0; i < 64; i++) g.x[s][i] = (float)(s - i);
                g.x[7][40] = broken[b];
                round_trip(&g, types[t], keys, 64);
                for (int s = 0; s < SEAL; s++)
                    for (int i = 0; i < 64; i++) {
                        bool channel = types[t] == TYPE_KIVI2 && keys;
                        bool shares = channel ? i == 40 : s == 7 && (i >= 32 || types[t] == TYPE_FP8);
                        if (isfinite(g.y[s][i]) == shares)
                            fail_msg("%s keys %d slot %d element %d: %g", type_name(types[t]), keys, s, i,
                                     (double)g.y[s][i]);
                    }
            }
}

static float fp8_float(uint8_t x) { return half_float(fp8_half(x)) * 256; }

static void test_fp8_rounds_to_the_nearest(void **state) {
    (void)state;
    for (int x = 0; x < 256; x++) {
        if ((x & 0x7f) == 0x7f) continue; // NaN in E4M3, which is never written
        double e = x >> 3 & 15, m = x & 7;
        double want = (e ? ldexp(1 + m / 8, (int)e - 7) : ldexp(m / 8, -6)) * (x & 0x80 ? -1 : 1);
        assert_true((double)fp8_float((uint8_t)x) == want);
        assert_int_equal(float_fp8((float)want), x);
    }
    // a value between two neighbours becomes the nearer one; a value in the middle the even one
    for (int x = 0; x < 0x7e; x++) {
        float a = fp8_float((uint8_t)x), b = fp8_float((uint8_t)(x + 1)), middle = (a + b) / 2;
        assert_int_equal(float_fp8(middle), x & 1 ? x + 1 : x);
        assert_int_equal(float_fp8(nextafterf(middle, a)), x);
        assert_int_equal(float_fp8(nextafterf(middle, b)), x + 1);
    }
    assert_int_equal(float_fp8(1e9f), 0x7e);
    assert_int_equal(float_fp8(-INFINITY), 0xfe);
}

static void test_hadamard_keeps_products(void **state) {
    (void)state;
    static const int head_dims[] = {1, 2, 5, 24, 48, 64, 80, 128, 512};
    uint64_t random = 3;
    for (size_t d = 0; d < ARRAY_LEN(head_dims); d++) {
        float a[SEAL_HEAD], b[SEAL_HEAD];
        double before = 0, after = 0, size = 0;
        int n = head_dims[d];
        for (int i = 0; i < n; i++) a[i] = test_uniform(&random), b[i] = test_uniform(&random);
        for (int i = 0; i < n; i++) before += (double)a[i] * (double)b[i], size += fabs((double)a[i] * (double)b[i]);
        sealed_hadamard(a, n);
        sealed_hadamard(b, n);
        for (int i = 0; i < n; i++) after += (double)a[i] * (double)b[i];
        assert_true(fabs(before - after) <= 1e-6 * size);
    }
    float spike[64] = {0}; // one channel is spread over all
    spike[13] = 8;
    sealed_hadamard(spike, 64);
    for (int i = 0; i < 64; i++) assert_true(fabsf(spike[i]) == 1);
}

// ---- attention ------------------------------------------------------------------------------------------------------

enum { N_KV_HEADS = 2, N_LAYERS = 2, LAYER = 1 };

typedef struct {
    int type_k, type_v, head_dim, group, block, first, n_rows, window;
    bool chunked;
    uint64_t seed;
} SealedAttendShape;

typedef struct {
    SealedAttendShape s;
    Heads heads;
    KvPool kv;
    int *table, *slot;
    float *q, *k, *v; // for the rows of the batch
    double *seen[2];  // (slots, n_kv_heads, head_dim) the K and V that the rows of the last group read
    double *want;
} SealedAttendCase;

static void *poisoned(size_t n) {
    void *p = NULL;
    if (posix_memalign(&p, 128, n ? n : 1) != 0) fail_msg("no memory for %zu bytes", n);
    memset(p, 0xff, n);
    return p;
}

static uint8_t *slot_at(const SealedAttendCase *c, bool value, int head, int slot) {
    const KvPool *kv = &c->kv;
    size_t size = kv_slot_bytes(value ? kv->type_v : kv->type_k, kv->head_dim);
    return (value ? kv->v : kv->k) + kv_slot(kv, LAYER, c->table[slot / kv->block], head, slot % kv->block) * size;
}

// Fills one plane of one head with random rows. Groups before the last row's group are sealed. The earlier slots of
// that group are in the tail page, the others in the batch's rows. Or all of it is dense.
static void fill_plane(SealedAttendCase *c, bool value, int head, uint64_t *random) {
    const SealedAttendShape *s = &c->s;
    int hd = s->head_dim, last = s->first + s->n_rows - 1, open = last / SEAL * SEAL;
    int type = value ? s->type_v : s->type_k;
    size_t size = kv_slot_bytes(type, hd);
    static float x[SEAL][SEAL_HEAD], y[SEAL][SEAL_HEAD];
    static uint8_t bytes[SEAL_MOST];
    for (int g = 0; g <= open; g += SEAL) {
        const float *rows[SEAL];
        for (int i = 0; i < SEAL; i++)
            for (int k = 0; k < hd; k++) rows[i] = x[i], x[i][k] = test_uniform(random) * (k == 3 ? 9 : 1);
        memcpy(y, x, sizeof y);
        if (g < open && kv_is_sealed(type)) {
            sealed_pack_group(type, !value, rows, hd, bytes);
            sealed_unpack_group(type, !value, bytes, hd, y[0], SEAL_HEAD);
        }
        for (int i = 0; i < SEAL && g + i <= last; i++) {
            int slot = g + i, row = slot - s->first;
            if (!kv_is_sealed(type)) memcpy(slot_at(c, value, head, slot), x[i], size);
            else if (g < open) memcpy(slot_at(c, value, head, slot), bytes + (size_t)i * size, size);
            else if (row < 0)
                memcpy((value ? c->kv.tail_v : c->kv.tail_k) + kv_tail_index(&c->kv, LAYER, 1, head, i), x[i],
                       (size_t)hd * sizeof(float));
            else memcpy((value ? c->v : c->k) + (row * N_KV_HEADS + head) * hd, x[i], (size_t)hd * sizeof(float));
            for (int k = 0; k < hd; k++) c->seen[value][(slot * N_KV_HEADS + head) * hd + k] = (double)y[i][k];
        }
    }
}

static void reference(SealedAttendCase *c) {
    const SealedAttendShape *s = &c->s;
    int hd = s->head_dim, n_heads = c->heads.n_heads;
    double p[512];
    for (int r = 0; r < s->n_rows; r++)
        for (int h = 0; h < n_heads; h++) {
            int slot = c->slot[r], first = s->window ? int_max(0, slot - s->window + 1) : 0, kv_head = h / s->group;
            if (s->window && s->chunked) first = slot - slot % s->window;
            double max = -INFINITY, sum = 0, *out = c->want + (r * n_heads + h) * hd;
            for (int t = first; t <= slot; t++) {
                p[t] = 0;
                for (int k = 0; k < hd; k++)
                    p[t] += (double)c->q[(r * n_heads + h) * hd + k] * c->seen[0][(t * N_KV_HEADS + kv_head) * hd + k];
                max = fmax(max, p[t] *= (double)c->heads.scale);
            }
            memset(out, 0, (size_t)hd * sizeof *out);
            for (int t = first; t <= slot; t++) {
                sum += p[t] = exp(p[t] - max);
                for (int k = 0; k < hd; k++) out[k] += p[t] * c->seen[1][(t * N_KV_HEADS + kv_head) * hd + k];
            }
            for (int k = 0; k < hd; k++) out[k] /= sum;
        }
}

static void case_new(SealedAttendCase *c, const SealedAttendShape *shape) {
    *c = (SealedAttendCase){.s = *shape};
    SealedAttendShape *s = &c->s;
    int hd = s->head_dim, n_slots = s->first + s->n_rows, used = (n_slots + s->block - 1) / s->block;
    uint64_t random = s->seed;
    c->heads = (Heads){.n_heads = N_KV_HEADS * s->group,
                       .n_kv_heads = N_KV_HEADS,
                       .head_dim = hd,
                       .window = s->window,
                       .chunked = s->chunked,
                       .scale = (float)(1 / sqrt(hd))};
    c->kv = (KvPool){.n_layers = N_LAYERS,
                     .n_blocks = used + 2,
                     .n_kv_heads = N_KV_HEADS,
                     .block = s->block,
                     .head_dim = hd,
                     .type_k = s->type_k,
                     .type_v = s->type_v,
                     .n_tails = 2};
    size_t slots = (size_t)(N_LAYERS * c->kv.n_blocks * N_KV_HEADS * s->block),
           tail = kv_tail_index(&c->kv, N_LAYERS, 0, 0, 0);
    c->kv.k = poisoned(slots * kv_slot_bytes(s->type_k, hd));
    c->kv.v = poisoned(slots * kv_slot_bytes(s->type_v, hd));
    c->kv.tail_k = poisoned(tail * sizeof(float));
    c->kv.tail_v = poisoned(tail * sizeof(float));
    c->table = malloc((size_t)c->kv.n_blocks * sizeof(int));
    for (int i = 0; i < c->kv.n_blocks; i++) c->table[i] = i;
    for (int i = c->kv.n_blocks - 1; i > 0; i--) {
        int j = pick(&random, i + 1), t = c->table[i];
        c->table[i] = c->table[j], c->table[j] = t;
    }
    c->slot = malloc((size_t)s->n_rows * sizeof(int));
    for (int r = 0; r < s->n_rows; r++) c->slot[r] = s->first + r;
    size_t n_q = (size_t)(s->n_rows * c->heads.n_heads * hd), n_kv = (size_t)(s->n_rows * N_KV_HEADS * hd);
    c->q = malloc(n_q * sizeof(float));
    for (size_t i = 0; i < n_q; i++) c->q[i] = 4 * test_uniform(&random);
    c->k = poisoned(n_kv * sizeof(float));
    c->v = poisoned(n_kv * sizeof(float));
    c->want = malloc(n_q * sizeof(double));
    for (int v = 0; v < 2; v++) {
        c->seen[v] = malloc((size_t)(n_slots * N_KV_HEADS * hd) * sizeof(double));
        for (int h = 0; h < N_KV_HEADS; h++) fill_plane(c, v, h, &random);
    }
    reference(c);
}

static void case_free(SealedAttendCase *c) {
    void *all[] = {c->kv.k, c->kv.v, c->kv.tail_k, c->kv.tail_v, c->table,   c->slot,
                   c->q,    c->k,    c->v,         c->want,      c->seen[0], c->seen[1]};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) free(all[i]);
}

// The AMX unit does not compute with sealed K and V; f32 kernels do. AVX-512 with BF16 rounds values of any type.
static void check_attend(const SealedAttendCase *c, const AttendKernel *k, bool bf16, const char *isa, int pairs) {
    const SealedAttendShape *s = &c->s;
    double limit = bf16 && strcmp(isa, "amx") != 0 ? 1e-2 : 1e-5;
    int n = s->n_rows * c->heads.n_heads * s->head_dim, n_pairs = s->n_rows * s->group;
    float *out = poisoned((size_t)n * sizeof *out);
    void *scratch = poisoned(k->scratch);
    for (int h = 0; h < N_KV_HEADS; h++)
        for (int first = 0; first < n_pairs; first += pairs) {
            AttendTask t = {.heads = &c->heads,
                            .kv = &c->kv,
                            .table = c->table,
                            .slot = c->slot,
                            .q = c->q,
                            .out = out,
                            .stride = (size_t)(c->heads.n_heads * s->head_dim),
                            .kv_stride = (size_t)(N_KV_HEADS * s->head_dim),
                            .layer = LAYER,
                            .kv_head = h,
                            .first = first,
                            .last = int_min(first + pairs, n_pairs),
                            .scratch = scratch,
                            .k = c->k,
                            .v = c->v,
                            .first_slot = s->first,
                            .page = s->first % SEAL ? 1 : -1};
            k->run(&t);
            memset(scratch, 0xff, k->scratch);
        }
    double error = 0, norm = 0;
    for (int i = 0; i < n; i++) {
        error += ((double)out[i] - c->want[i]) * ((double)out[i] - c->want[i]);
        norm += c->want[i] * c->want[i];
    }
    if (!(sqrt(error / norm) <= limit))
        fail_msg("%s, K %s V %s, head_dim %d, group %d, block %d, slots %d + %d, window %d, %d pairs a task: %g", isa,
                 type_name(s->type_k), type_name(s->type_v), s->head_dim, s->group, s->block, s->first, s->n_rows,
                 s->window, pairs, sqrt(error / norm));
    free(out);
    free(scratch);
}

static void test_attention_over_groups(void **state) {
    (void)state;
    static const int head_dims[] = {5, 24, 64, 80, 128}, groups[] = {1, 2, 3, 8}, blocks[] = {1, 16, 32, 48, 64, 512};
    static const int firsts[] = {0, 1, 31, 32, 33, 95, 96, 100, 160, 300}, rows[] = {1, 2, 17, 31, 32};
    static const int all[] = {TYPE_FP8, TYPE_Q8_0, TYPE_Q4_0, TYPE_KIVI2, TYPE_F32};
    uint64_t random = 8;
    for (int n = 0; n < 400; n++) {
        SealedAttendShape s = {.type_k = all[n % 5],
                               .type_v = all[pick(&random, 5)],
                               .head_dim = head_dims[pick(&random, 5)],
                               .group = groups[pick(&random, 4)],
                               .block = blocks[pick(&random, 6)],
                               .first = firsts[pick(&random, 10)],
                               .n_rows = rows[pick(&random, 5)],
                               .window = pick(&random, 3) ? 0 : 1 + pick(&random, 80),
                               .chunked = n % 2,
                               .seed = (uint64_t)n};
        s.n_rows = int_min(s.n_rows, SEAL - s.first % SEAL); // the rows of a task belong to one group
        SealedAttendCase c;
        case_new(&c, &s);
        for (int i = 0; i < isa_count(); i++) {
            const Backend *be;
            assert_ok(isa_backend(isa_name(i), false, &be));
            const CpuKernels *k = be->impl;
            const AttendKernel *both[] = {&k->attend, k->attend_16bit};
            for (size_t j = 0; j < ARRAY_LEN(both) && both[j]; j++) {
                check_attend(&c, both[j], j == 1, isa_name(i), both[j]->pairs);
                check_attend(&c, both[j], j == 1, isa_name(i), 1 + pick(&random, both[j]->pairs));
            }
        }
        case_free(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding_is_bounded),      cmocka_unit_test(test_constant_groups),
        cmocka_unit_test(test_what_is_not_finite_shows), cmocka_unit_test(test_fp8_rounds_to_the_nearest),
        cmocka_unit_test(test_hadamard_keeps_products),  cmocka_unit_test(test_attention_over_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
