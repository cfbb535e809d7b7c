// tests/test_kernels_attention.c: the attention kernels of every CPU kernel table, on odd shapes, against double
// arithmetic.
#define _POSIX_C_SOURCE 200112L // posix_memalign
#include "tests/rig/kernel_rig.h"

enum { N_KV_HEADS = 2, N_LAYERS = 2, LAYER = 1 };

typedef struct {
    int head_dim, group, block, context, n_rows, window;
    bool chunked; // Heads.chunked
    int v_dim;    // 0: head_dim
    bool v_in_k;  // V is the first part of K
    float softcap;
    int type_k, type_v;
    bool gaps;
    uint64_t seed;
} AttendShape;

typedef struct {
    AttendShape s;
    Heads heads;
    KvPool kv;
    int *table, *slot;
    float *q;
    double *want; // (n_rows, n_heads, v_dim)
} AttendCase;

static bool sees(const AttendShape *s, int row_slot, int slot) {
    if (s->chunked && slot / s->window != row_slot / s->window) return false;
    return slot <= row_slot && (s->window == 0 || slot > row_slot - s->window);
}

static double kv_value(const uint8_t *plane, int type, size_t at) {
    uint16_t half;
    float f;
    if (type == TYPE_F32) memcpy(&f, plane + 4 * at, 4);
    else {
        memcpy(&half, plane + 2 * at, 2);
        f = type == TYPE_F16 ? half_float(half) : bf16_float(half);
    }
    return (double)f;
}

static void put_kv(uint8_t *plane, int type, size_t at, float x) {
    uint16_t half = type == TYPE_F16 ? float_half(x) : float_bf16(x);
    if (type == TYPE_F32) memcpy(plane + 4 * at, &x, 4);
    else memcpy(plane + 2 * at, &half, 2);
}

// The first element of K or V of a slot, in its plane.
static size_t value_at(const AttendCase *c, bool value, int slot, int head) {
    int dim = value && !c->s.v_in_k ? c->s.v_dim : c->s.head_dim;
    return kv_slot(&c->kv, LAYER, c->table[slot / c->s.block], head, slot % c->s.block) * (size_t)dim;
}

// Slots that a row sees get values; all other memory of the pool stays NaN.
static void fill_pool(AttendCase *c, uint64_t *random) {
    const AttendShape *s = &c->s;
    for (int slot = 0; slot < s->context; slot++) {
        bool seen = false;
        for (int r = 0; r < s->n_rows; r++) seen |= sees(s, c->slot[r], slot);
        for (int h = 0; h < N_KV_HEADS && seen; h++) {
            for (int i = 0; i < s->head_dim; i++) {
                put_kv(c->kv.k, s->type_k, value_at(c, false, slot, h) + (size_t)i, 2 * test_uniform(random));
                if (i < s->v_dim && !s->v_in_k)
                    put_kv(c->kv.v, s->type_v, value_at(c, true, slot, h) + (size_t)i, test_uniform(random));
            }
        }
    }
}

static void shuffled(int *out, int n, uint64_t *random) {
    for (int i = 0; i < n; i++) out[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = pick(random, i + 1), t = out[i];
        out[i] = out[j];
        out[j] = t;
    }
}

// Chooses ascending slots, of which the last is the context's last; without gaps they are adjacent.
static void choose_slots(AttendCase *c, uint64_t *random) {
    int n = c->s.n_rows, context = c->s.context;
    for (int r = n - 1, top = context - 1; r >= 0; r--, top--) {
        if (c->s.gaps && r < n - 1) top -= pick(random, (top - r) / (r + 1) + 1);
        c->slot[r] = top;
    }
}

static void reference(AttendCase *c) {
    const AttendShape *s = &c->s;
    double *p = malloc((size_t)s->context * sizeof *p);
    for (int r = 0; r < s->n_rows; r++)
        for (int h = 0; h < c->heads.n_heads; h++) {
            const float *q = c->q + (size_t)(r * c->heads.n_heads + h) * (size_t)s->head_dim;
            double *out = c->want + (size_t)(r * c->heads.n_heads + h) * (size_t)s->v_dim, max = -INFINITY, sum = 0;
            memset(out, 0, (size_t)s->v_dim * sizeof *out);
            for (int pass = 0; pass < 2; pass++)
                for (int t = 0; t <= c->slot[r]; t++) {
                    if (!sees(s, c->slot[r], t)) continue;
                    size_t at = value_at(c, pass > 0, t, h / s->group);
                    if (pass == 0) {
                        p[t] = 0;
                        for (int i = 0; i < s->head_dim; i++)
                            p[t] += (double)q[i] * kv_value(c->kv.k, s->type_k, at + (size_t)i);
                        p[t] *= (double)c->heads.scale;
                        if (s->softcap != 0) p[t] = (double)s->softcap * tanh(p[t] / (double)s->softcap);
                        max = fmax(max, p[t]);
                    } else {
                        double weight = exp(p[t] - max);
                        sum += weight;
                        const uint8_t *plane = s->v_in_k ? c->kv.k : c->kv.v;
                        for (int i = 0; i < s->v_dim; i++)
                            out[i] += weight * kv_value(plane, s->v_in_k ? s->type_k : s->type_v, at + (size_t)i);
                    }
                }
            for (int i = 0; i < s->v_dim; i++) out[i] /= sum;
        }
    free(p);
}

static AttendCase attend_new(const AttendShape *shape) {
    AttendCase c = {.s = *shape};
    AttendShape *s = &c.s;
    uint64_t random = s->seed;
    s->n_rows = int_min(s->n_rows, s->context);
    if (s->block == 0) s->block = s->context; // contiguous
    if (s->v_dim == 0) s->v_dim = s->head_dim;
    int used = (s->context + s->block - 1) / s->block, n_heads = N_KV_HEADS * s->group;
    size_t n_q = (size_t)(s->n_rows * n_heads * s->head_dim);
    c.heads = (Heads){.n_heads = n_heads,
                      .n_kv_heads = N_KV_HEADS,
                      .head_dim = s->head_dim,
                      .v_dim = s->v_dim,
                      .window = s->window,
                      .chunked = s->chunked,
                      .softcap = s->softcap,
                      .scale = (float)(1 / sqrt(s->head_dim))};
    c.kv = (KvPool){.n_layers = N_LAYERS,
                    .n_blocks = used + 2,
                    .n_kv_heads = N_KV_HEADS,
                    .block = s->block,
                    .head_dim = s->head_dim,
                    .v_dim = s->v_dim,
                    .v_in_k = s->v_in_k,
                    .type_k = s->type_k,
                    .type_v = s->type_v};
    size_t n = (size_t)(N_LAYERS * c.kv.n_blocks * N_KV_HEADS * s->block) * (size_t)s->head_dim;
    c.kv.k = poisoned(c.kv.bytes_k = n * kv_type_bytes(s->type_k));
    c.kv.v = poisoned(c.kv.bytes_v = n * kv_type_bytes(s->type_v));
    c.table = malloc((size_t)c.kv.n_blocks * sizeof *c.table);
    c.slot = malloc((size_t)s->n_rows * sizeof *c.slot);
    shuffled(c.table, c.kv.n_blocks, &random);
    choose_slots(&c, &random);
    fill_pool(&c, &random);
    c.q = random_floats(n_q, &random);
    for (size_t i = 0; i < n_q; i++) c.q[i] *= 4; // so that a few keys matter more than others
    c.want = malloc(n_q * sizeof *c.want);
    reference(&c);
    return c;
}

static void attend_free(AttendCase *c) {
    free(c->kv.k);
    free(c->kv.v);
    free(c->table);
    free(c->slot);
    free(c->q);
    free(c->want);
}

static AttendTask attend_task(const AttendCase *c, int head, int first, int last, float *out, void *scratch) {
    return (AttendTask){.heads = &c->heads,
                        .kv = &c->kv,
                        .table = c->table,
                        .slot = c->slot,
                        .q = c->q,
                        .out = out,
                        .stride = (size_t)(c->heads.n_heads * c->s.head_dim),
                        .layer = LAYER,
                        .kv_head = head,
                        .first = first,
                        .last = last,
                        .scratch = scratch};
}

// Computes all pairs of both KV heads, in tasks of up to `pairs`, the last task first.
static void run_attend(const AttendCase *c, const AttendKernel *k, int pairs, float *out) {
    int n_pairs = c->s.n_rows * c->s.group;
    void *scratch = poisoned(k->scratch);
    for (int h = 0; h < N_KV_HEADS; h++)
        for (int first = (n_pairs - 1) / pairs * pairs; first >= 0; first -= pairs) {
            AttendTask t = attend_task(c, h, first, int_min(first + pairs, n_pairs), out, scratch);
            k->run(&t);
            memset(scratch, 0xff, k->scratch);
        }
    free(scratch);
}

// A kernel of an instruction set: the plain one, or the one that rounds to 16 bits (NULL: there is none).
typedef struct {
    const AttendKernel *kernel;
    int isa;
    bool rounds; // kernel is attend_16bit
} AttendChoice;

static AttendChoice attend_choice(int isa, bool rounds) {
    const CpuKernels *k = kernels(isa);
    return (AttendChoice){rounds ? k->attend_16bit : has_own(isa) ? &k->attend : NULL, isa, rounds};
}

// The AMX unit needs a 16-bit cache, and rounds queries, keys, weights and values to bf16. The others take any cache,
// and round all four to integers of 16 bits.
static bool rounds_attention(const AttendCase *c, AttendChoice choice) {
    bool halves = c->s.type_k != TYPE_F32 && c->s.type_v != TYPE_F32;
    return choice.rounds && (halves || strcmp(isa_name(choice.isa), "amx") != 0);
}

static void check_attend(const AttendCase *c, AttendChoice choice, int pairs) {
    const AttendShape *s = &c->s;
    size_t row = (size_t)(c->heads.n_heads * s->v_dim), stride = (size_t)(c->heads.n_heads * s->head_dim);
    int n = s->n_rows * (int)row;
    float *out = poisoned((size_t)s->n_rows * stride * sizeof *out);
    char what[200];
    snprintf(what, sizeof what,
             "head_dim %d group %d block %d K %s V %s context %d rows %d window %d%s softcap %g%s, %d pairs a task",
             s->head_dim, s->group, s->block, type_name(s->type_k), type_name(s->type_v), s->context, s->n_rows,
             s->window, s->chunked ? " (chunks)" : "", (double)s->softcap, s->gaps ? " gaps" : "", pairs);
    run_attend(c, choice.kernel, pairs, out);
    for (size_t r = 1; r < (size_t)s->n_rows; r++) memmove(out + r * row, out + r * stride, row * sizeof *out);
    bool rounded = rounds_attention(c, choice);
    take_distance(rounded ? ATTEND_16BIT : ATTEND, choice.isa, distance_of(out, c->want, n), rounded ? 1e-2 : 1e-5,
                  what);
    free(out);
}

// A task must write only the outputs of its own pairs and head.
static void check_attend_range(const AttendCase *c, AttendChoice choice, uint64_t *random) {
    const AttendKernel *k = choice.kernel;
    int n_pairs = c->s.n_rows * c->s.group, hd = c->s.head_dim, n = c->s.n_rows * c->heads.n_heads * hd;
    int first = pick(random, n_pairs), last = int_min(n_pairs, first + 1 + pick(random, k->pairs));
    int head = pick(random, N_KV_HEADS);
    float *out = poisoned((size_t)n * sizeof *out);
    void *scratch = poisoned(k->scratch);
    AttendTask t = attend_task(c, head, first, last, out, scratch);
    k->run(&t);
    for (int i = 0; i < n; i++) {
        int row = i / hd / c->heads.n_heads, h = i / hd % c->heads.n_heads, pair = row * c->s.group + h % c->s.group;
        bool mine = h / c->s.group == head && pair >= first && pair < last;
        if (!mine) assert_int_equal(float_bits(out[i]), 0xffffffff);
        else assert_true(fabs((double)out[i] - c->want[i]) < (rounds_attention(c, choice) ? 3e-2 : 1e-4));
    }
    free(out);
    free(scratch);
}

// If the keys of a row are divided into parts, the sum of the parts' outputs times their weights must be the whole
// output.
static void check_attend_parts(const AttendCase *c, AttendChoice choice, uint64_t *random) {
    enum { PARTS = 3 };
    const AttendKernel *k = choice.kernel;
    int slot = c->slot[0], hd = c->s.v_dim, heads = c->heads.n_heads, n = heads * hd, keys = slot + 1;
    if (!k->in_parts || c->s.n_rows != 1 || keys < PARTS) return;
    if (c->s.window) keys = c->s.chunked ? slot % c->s.window + 1 : int_min(keys, c->s.window);
    if (keys < PARTS) return;
    int cut[PARTS + 1] = {slot + 1 - keys, 0, 0, slot + 1};
    cut[1] = cut[0] + 1 + pick(random, keys - 2);
    cut[2] = cut[1] + 1 + pick(random, slot - cut[1]);
    float *out = poisoned((size_t)(PARTS * n) * sizeof *out), *lse = poisoned((size_t)(PARTS * heads) * sizeof *lse);
    float *merged = calloc((size_t)n, sizeof *merged);
    void *scratch = poisoned(k->scratch);
    for (int part = 0; part < PARTS; part++)
        for (int h = 0; h < N_KV_HEADS; h++)
            for (int first = 0; first < c->s.group; first += k->pairs) {
                int last = int_min(c->s.group, first + k->pairs);
                AttendTask t = attend_task(c, h, first, last, out + part * n, scratch);
                t.from = cut[part], t.end = cut[part + 1], t.lse = lse + part * heads;
                k->run(&t);
            }
    for (int i = 0; i < n; i++) {
        double sum = 0, value = 0;
        for (int part = 0; part < PARTS; part++) {
            double weight = exp((double)lse[part * heads + i / hd] - (double)lse[i / hd]);
            sum += weight;
            value += weight * (double)out[part * n + i];
        }
        merged[i] = (float)(value / sum);
    }
    bool rounded = rounds_attention(c, choice);
    take_distance(rounded ? ATTEND_16BIT : ATTEND, choice.isa, distance_of(merged, c->want, n), rounded ? 1e-2 : 1e-5,
                  "parts");
    free(out);
    free(lse);
    free(merged);
    free(scratch);
}

// The sums of a head's weights from some row on must be the scalar ones.
static void check_attend_mass(const AttendCase *c, int isa, uint64_t *random) {
    int n_slots = c->slot[c->s.n_rows - 1] + 1, first = pick(random, c->s.n_rows) * c->s.group;
    const CpuKernels *all[] = {&cpu_scalar, kernels(isa)};
    for (int h = 0; h < N_KV_HEADS; h++) {
        float *mass[2];
        for (int i = 0; i < 2; i++) {
            void *scratch = poisoned(all[i]->attend.scratch);
            AttendTask t = attend_task(c, h, first, c->s.n_rows * c->s.group, NULL, scratch);
            mass[i] = calloc((size_t)n_slots, sizeof *mass[i]);
            all[i]->attend_mass(&t, mass[i]);
            free(scratch);
        }
        for (int s = 0; s < n_slots; s++) assert_true(fabsf(mass[1][s] - mass[0][s]) <= 1e-4f * (mass[0][s] + 0.01f));
        free(mass[0]);
        free(mass[1]);
    }
}

static void attend_shape(const AttendShape *s) {
    AttendCase c = attend_new(s);
    uint64_t random = s->seed;
    for (int i = 0; i < 2 * isa_count(); i++) {
        AttendChoice choice = attend_choice(i / 2, i % 2);
        if (!choice.kernel) continue;
        int most = choice.kernel->pairs;
        check_attend(&c, choice, most);
        check_attend(&c, choice, 1 + pick(&random, most)); // the pairs divided differently, also inside a row
        if (c.s.v_dim == c.s.head_dim) check_attend_range(&c, choice, &random);
        check_attend_parts(&c, choice, &random);
        if (!choice.rounds) check_attend_mass(&c, choice.isa, &random);
    }
    attend_free(&c);
}

static void test_attend(void **state) {
    (void)state;
    static const int head_dims[] = {8, 16, 64, 80, 96, 128, 256}, groups[] = {1, 2, 3, 4, 7, 8};
    static const int blocks[] = {1, 16, 64, 0}, contexts[] = {1, 5, 95, 96, 97, 300}, rows[] = {1, 2, 5, 17, 40, 150};
    static const int types[] = {TYPE_F32, TYPE_F16, TYPE_BF16};
    int n = 0;
    // Every head_dim with every group size. The other values rotate, so that every pair of values occurs many times.
    for (size_t d = 0; d < ARRAY_LEN(head_dims); d++)
        for (size_t g = 0; g < ARRAY_LEN(groups); g++)
            for (int round = 0; round < 10; round++, n++) {
                AttendShape s = {.head_dim = head_dims[d],
                                 .group = groups[g],
                                 .block = blocks[n % 4],
                                 .context = contexts[n / 5 % 6],
                                 .n_rows = rows[n / 4 % 6],
                                 .window = n / 2 % 3 == 0 ? 7 : 0,
                                 .chunked = n / 2 % 3 == 0 && n / 6 % 2,
                                 .softcap = n % 5 < 2 ? 3 : 0,
                                 .type_k = types[n % 3],
                                 .type_v = types[n / 7 % 3],
                                 .gaps = n / 3 % 2,
                                 .seed = (uint64_t)n};
                attend_shape(&s);
            }
}

// Compressed K and V, which have the widest heads, and V narrower than K in a plane of its own.
static void test_attend_narrow_values(void **state) {
    (void)state;
    static const AttendShape shapes[] = {{.head_dim = 576, .v_dim = 512, .v_in_k = true, .group = 16},
                                         {.head_dim = 576, .v_dim = 512, .v_in_k = true, .group = 3},
                                         {.head_dim = 48, .v_dim = 32, .v_in_k = true, .group = 4},
                                         {.head_dim = 38, .v_dim = 21, .v_in_k = true, .group = 1},
                                         {.head_dim = 96, .v_dim = 64, .group = 2},
                                         {.head_dim = 30, .v_dim = 7, .group = 7}};
    static const int types[] = {TYPE_F32, TYPE_F16, TYPE_BF16}, rows[] = {1, 5, 40}, contexts[] = {3, 97, 200};
    for (size_t i = 0; i < ARRAY_LEN(shapes) * 9; i++) {
        AttendShape s = shapes[i / 9];
        s.block = i % 2 ? 16 : 0;
        s.type_k = s.type_v = types[i % 3];
        s.n_rows = rows[i / 3 % 3];
        s.context = contexts[(i + i / 3) % 3];
        s.window = i % 4 == 3 ? 50 : 0;
        s.chunked = i % 8 == 7;
        s.gaps = i % 5 == 0;
        s.seed = i;
        attend_shape(&s);
    }
}

// Rows of a tile whose windows do not overlap, with keys between them that no row sees.
static void test_attend_windows_apart(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++)
        attend_shape(&(AttendShape){.head_dim = 16,
                                    .group = 8,
                                    .block = 16,
                                    .context = 300,
                                    .n_rows = 5,
                                    .window = 7,
                                    .chunked = seed % 3 == 1,
                                    .gaps = true,
                                    .seed = seed});
}

// Scores of hundreds: the softmax must subtract the maximum first, and one key gets all weight.
static void test_attend_large_scores(void **state) {
    (void)state;
    for (int rows = 1; rows <= 40; rows += 39) {
        AttendCase c = attend_new(
            &(AttendShape){.head_dim = 64, .group = 2, .block = 16, .context = 200, .n_rows = rows, .seed = 5});
        for (int i = 0; i < c.s.n_rows * c.heads.n_heads * 64; i++) c.q[i] *= 100;
        reference(&c);
        for (int isa = 0; isa < isa_count(); isa++) {
            AttendChoice choice = attend_choice(isa, false);
            if (!choice.kernel) continue;
            float *out = poisoned((size_t)(c.s.n_rows * c.heads.n_heads * 64) * sizeof *out);
            run_attend(&c, choice.kernel, choice.kernel->pairs, out);
            // A score of 1000 has an ulp of 6e-5, which the exponential passes on.
            assert_true(distance_of(out, c.want, c.s.n_rows * c.heads.n_heads * 64) < 1e-3);
            free(out);
        }
        attend_free(&c);
    }
}

// Scores near 0 under a low cap: a key that fills up a tile must have no weight, where e^-cap would be a third of a
// key.
static void test_attend_low_softcap(void **state) {
    (void)state;
    for (int context = 97; context <= 161; context += 32) {
        AttendCase c = attend_new(&(AttendShape){.head_dim = 64,
                                                 .group = 4,
                                                 .block = 16,
                                                 .context = context,
                                                 .n_rows = 1,
                                                 .softcap = 1,
                                                 .type_k = TYPE_F16,
                                                 .type_v = TYPE_F16,
                                                 .seed = 6});
        for (int i = 0; i < c.heads.n_heads * 64; i++) c.q[i] *= 0.01f;
        reference(&c);
        for (int i = 0; i < 2 * isa_count(); i++) {
            AttendChoice choice = attend_choice(i / 2, i % 2);
            if (choice.kernel) check_attend(&c, choice, choice.kernel->pairs);
        }
        attend_free(&c);
    }
}

static void check_nan(const AttendCase *c, const AttendKernel *k, bool one_element, const char *what, const char *isa) {
    size_t n = (size_t)(c->s.n_rows * c->heads.n_heads * 64);
    float *out = poisoned(n * sizeof *out);
    run_attend(c, k, k->pairs, out);
    for (size_t i = 0; i < n; i++) {
        int head = (int)(i / 64) % c->heads.n_heads, element = (int)(i % 64);
        bool want = head < c->s.group && (!one_element || element == 21);
        if (!isfinite(out[i]) != want) fail_msg("%s: NaN in %s: output %zu is %g", isa, what, i, (double)out[i]);
    }
    free(out);
}

// NaN in Q, K or V of KV head 0 must reach the outputs that depend on it, and no others: a damaged model must not
// answer.
static void test_attend_nan(void **state) {
    (void)state;
    for (int rows = 1; rows <= 40; rows += 39)
        for (int i = 0; i < 2 * isa_count(); i++) {
            AttendChoice choice = attend_choice(i / 2, i % 2);
            if (!choice.kernel || strcmp(isa_name(choice.isa), "amx") == 0) continue;
            for (int of = 0; of < 3; of++) {
                AttendCase c = attend_new(&(AttendShape){
                    .head_dim = 64, .group = 2, .block = 16, .context = 200, .n_rows = rows, .seed = (uint64_t)i});
                for (int r = 0; r < c.s.n_rows && of == 0; r++)
                    for (int h = 0; h < c.s.group; h++) c.q[(r * c.heads.n_heads + h) * 64 + (9 * r + 40) % 64] = NAN;
                if (of == 1) put_kv(c.kv.k, c.s.type_k, value_at(&c, false, 0, 0) + 21, NAN);
                if (of == 2) put_kv(c.kv.v, c.s.type_v, value_at(&c, true, 0, 0) + 21, NAN);
                check_nan(&c, choice.kernel, of == 2, of == 0 ? "Q" : of == 1 ? "K" : "V", isa_name(choice.isa));
                attend_free(&c);
            }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attend),
        cmocka_unit_test(test_attend_narrow_values),
        cmocka_unit_test(test_attend_large_scores),
        cmocka_unit_test(test_attend_low_softcap),
        cmocka_unit_test(test_attend_nan),
        cmocka_unit_test(test_attend_windows_apart),
    };
    return cmocka_run_group_tests(tests, isa_print, print_distances);
}
