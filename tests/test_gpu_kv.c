// tests/test_gpu_kv.c: K and V in the GPU's memory: sealed groups must have the host's bytes; copies of blocks; slots
// and rows that move.
#include "cpu/backend.h"
#include "tests/rig/testing.h"

#include "cpu/cpu.h"
#include "tests/rig/gpu_compare.h"

#include <math.h>

// Ties, both zeros, values that f16 cannot represent, and sometimes values that are not finite.
static float odd_value(uint64_t *random) {
    static const float chosen[] = {0, -0.0f, 0.5f, -0.5f, 1, -1, 3e-8f, 1e-40f, 448, -448, 65504, 1e5f};
    static const float broken[] = {INFINITY, -INFINITY, NAN};
    uint64_t u = test_random(random);
    if (u % 2000 == 0) return broken[u / 2000 % 3];
    if (u % 10 == 0) return chosen[u / 10 % ARRAY_LEN(chosen)];
    return test_uniform(random) * (u & 1 ? 1 : 0.01f);
}

// A pool of one layer, the rows that are stored in it, and their slots.
enum { PAST = 19, ROWS = 50, HEADS = 2 }; // groups at 0 and 32
typedef struct {
    KvPool kv, device;
    float *qkv; // (ROWS, stride)
    int table[PAST + ROWS], stride;
    int slot[ROWS], seq[ROWS], since[ROWS], page[ROWS]; // as in GpuBatch
} SealingCase;

static void sealing_open(SealingCase *c, int type, int head_dim, int block, uint64_t *random) {
    int n_blocks = (PAST + ROWS - 1) / block + 1;
    *c = (SealingCase){.stride = 3 * HEADS * head_dim};
    KvPool *kv = &c->kv;
    *kv = (KvPool){.n_layers = 1, .n_blocks = n_blocks, .n_kv_heads = HEADS, .block = block, .head_dim = head_dim};
    kv->type_k = kv->type_v = type;
    pool_make_tails(kv);
    c->qkv = malloc((size_t)(ROWS * c->stride) * sizeof *c->qkv);
    for (int k = 0; k < ROWS * c->stride; k++) c->qkv[k] = odd_value(random);
    for (int k = 0; k < n_blocks; k++) c->table[k] = n_blocks - 1 - k;
    for (int v = 0; v < 2; v++) {
        for (size_t k = 0; k < pool_tail_floats(kv); k++) pool_tail(kv, v)[k] = odd_value(random);
        *(v ? &kv->v : &kv->k) = malloc(pool_plane_bytes(kv, v));
        memset(pool_plane(kv, v), 0xff, pool_plane_bytes(kv, v));
    }
    for (int k = 0; k < ROWS; k++) {
        c->slot[k] = PAST + k;
        c->since[k] = PAST;
        c->page[k] = kv_tail(kv, c->table, PAST + k);
    }
    c->device = *kv;
    for (int v = 0; v < 2; v++) {
        *(v ? &c->device.v : &c->device.k) = device_new(pool_plane(kv, v), pool_plane_bytes(kv, v));
        *(v ? &c->device.tail_v : &c->device.tail_k) =
            device_new(pool_tail(kv, v), pool_tail_floats(kv) * sizeof(float));
    }
}

static void sealing_launch(const SealingCase *c) {
    GpuBatch b = {.n_rows = ROWS,
                  .table_step = c->kv.n_blocks,
                  .slot = device_new(c->slot, sizeof c->slot),
                  .seq = device_new(c->seq, sizeof c->seq),
                  .since = device_new(c->since, sizeof c->since),
                  .page = device_new(c->page, sizeof c->page),
                  .block_table = device_new(c->table, (size_t)c->kv.n_blocks * sizeof *c->table)};
    GpuLayer l = {.heads = {.n_heads = HEADS, .n_kv_heads = HEADS, .head_dim = c->kv.head_dim}};
    GpuScratch s = {.qkv = device_new(c->qkv, (size_t)(ROWS * c->stride) * sizeof *c->qkv)};
    gpu_seal(&l, &c->device, &b, &s, NULL);
    gpu_compare_launched();
}

// Seals the same groups on the host: their first rows are in the page, the others in qkv.
static void sealing_on_host(const SealingCase *c, bool value) {
    for (int i = 0; i < 2 * HEADS; i++) {
        int first = i / HEADS * SEAL, head = i % HEADS;
        const float *rows[SEAL];
        for (int k = 0; k < SEAL; k++)
            rows[k] = first + k < PAST
                          ? pool_tail(&c->kv, value) + kv_tail_index(&c->kv, 0, c->page[0], head, k)
                          : c->qkv + (first + k - PAST) * c->stride + (HEADS * (1 + value) + head) * c->kv.head_dim;
        pool_seal_at(&c->kv, value, 0, c->table, head, first, rows);
    }
}

// Values of every kind, in groups that a step completes, from rows in the page and rows of the step, in blocks of every
// size.
static void sealed_to_the_byte(void **state) {
    (void)state;
    static const int types[] = {TYPE_FP8, TYPE_Q8_0, TYPE_Q4_0, TYPE_KIVI2};
    static const int head_dims[] = {2, 24, 64, 80, 96, 128, 256}, blocks[] = {1, 16, 32, 64, 70};
    uint64_t random = 9;
    for (size_t i = 0; i < ARRAY_LEN(types) * ARRAY_LEN(head_dims); i++) {
        SealingCase c;
        int type = types[i / ARRAY_LEN(head_dims)], hd = head_dims[i % ARRAY_LEN(head_dims)];
        int block = blocks[i % ARRAY_LEN(blocks)];
        gpu_compare_case = type_name(type);
        sealing_open(&c, type, hd, block, &random);
        sealing_launch(&c);
        for (int v = 0; v < 2; v++) {
            sealing_on_host(&c, v);
            if (!device_same(pool_plane(&c.kv, v), pool_plane(&c.device, v), pool_plane_bytes(&c.kv, v)))
                fail_msg("%s of %s, head_dim %d, blocks of %d: other bytes", v ? "V" : "K", type_name(type), hd, block);
        }
        pool_free(&c.kv);
        free(c.qkv);
        device_free_all();
    }
}

// Copies of blocks, with their pages if KV is sealed, also of blocks of 34 bytes.
static void copies_in_order(void **state) {
    (void)state;
    gpu_compare_case = "copies";
    enum { BLOCKS = 5, SHAPES = 3 };
    KvPool pools[SHAPES] = {{.n_kv_heads = 2, .block = 3, .head_dim = 6, .type_k = TYPE_F32, .type_v = TYPE_F16},
                            {.n_kv_heads = 1, .block = 1, .head_dim = 32, .type_k = TYPE_Q8_0, .type_v = TYPE_KIVI2},
                            {.n_kv_heads = 2, .block = 32, .head_dim = 24, .type_k = TYPE_F16, .type_v = TYPE_FP8}};
    const Backend *be;
    assert_ok(cpu_backend("scalar", &be));
    for (int i = 0; i < SHAPES; i++) {
        KvPool kv = pools[i];
        kv.n_layers = 2;
        kv.n_blocks = BLOCKS;
        int copy[][2] = {{0, 3}, {3, 4}, {1, 3}}, pages[3][2]; // afterwards 4 has the bytes of 0, and 3 those of 1
        if (i > 0) {
            pool_make_tails(&kv);
            kv.tail_of[i] = -1; // a block without a page must be copied too
        }
        for (int k = 0; k < 6; k++) pages[k / 2][k % 2] = i ? kv.tail_of[copy[k / 2][k % 2]] : -1;
        kv.bytes_k = pool_plane_bytes(&kv, false);
        kv.bytes_v = pool_plane_bytes(&kv, true);
        KvPool d = kv;
        for (int v = 0; v < 2; v++) {
            uint8_t *bytes = *(v ? &kv.v : &kv.k) = malloc(pool_plane_bytes(&kv, v));
            for (size_t k = 0; k < pool_plane_bytes(&kv, v); k++) bytes[k] = (uint8_t)(k * (v ? 13 : 7) >> 1);
            for (size_t k = 0; pool_tail(&kv, v) && k < pool_tail_floats(&kv); k++) pool_tail(&kv, v)[k] = (float)k;
            *(v ? &d.v : &d.k) = device_new(bytes, pool_plane_bytes(&kv, v));
            if (pool_tail(&kv, v))
                *(v ? &d.tail_v : &d.tail_k) = device_new(pool_tail(&kv, v), pool_tail_floats(&kv) * sizeof(float));
        }
        Batch b = {.n_copies = 3, .copy = copy};
        be->copy_blocks(NULL, &kv, &b);
        gpu_copy_blocks(&d, device_new(copy, sizeof copy), device_new(pages, sizeof pages), 3, NULL);
        gpu_compare_launched();
        for (int v = 0; v < 2; v++) {
            assert_true(device_same(pool_plane(&kv, v), pool_plane(&d, v), pool_plane_bytes(&kv, v)));
            if (pool_tail(&kv, v))
                assert_true(device_same(pool_tail(&kv, v), pool_tail(&d, v), pool_tail_floats(&kv) * sizeof(float)));
        }
        device_free_all();
        pool_free(&kv);
    }
}

static void rows_that_go_on(void **state) {
    (void)state;
    gpu_compare_case = "rows that go on";
    enum { MOVED_ROWS = 50, KEPT = 4, WIDTH = 301 };
    // in the second list each slot moves to a place that another one has left
    static const int keep[2][KEPT] = {{0, 1, 30, 49}, {3, 4, 5, 6}};
    uint64_t random = 6;
    for (int i = 0; i < 2; i++) {
        float x[MOVED_ROWS * WIDTH], expected[MOVED_ROWS * WIDTH];
        float *d = device_random(x, MOVED_ROWS * WIDTH, &random);
        memcpy(expected, x, sizeof x);
        for (int k = 0; k < KEPT; k++) memcpy(expected + k * WIDTH, x + keep[i][k] * WIDTH, WIDTH * sizeof *x);
        gpu_move_rows(d, WIDTH, device_new(keep[i], sizeof keep[i]), KEPT, NULL);
        gpu_compare_launched();
        assert_true(device_same(expected, d, sizeof expected));
        device_free_all();
    }
}

static void slots_that_stay(void **state) {
    (void)state;
    gpu_compare_case = "close up";
    enum { SLOTS = 40, KEPT = 23, LAYERS = 2, KV_HEADS = 3 };
    uint64_t random = 4;
    KvPool kv = {.n_layers = LAYERS,
                 .n_blocks = 6,
                 .n_kv_heads = KV_HEADS,
                 .block = 7,
                 .head_dim = 6,
                 .type_k = TYPE_F32,
                 .type_v = TYPE_BF16};
    const int table[6] = {3, 0, 5, 1, 4, 2};
    int keep[LAYERS][KV_HEADS][KEPT];
    for (int i = 0; i < LAYERS * KV_HEADS; i++)
        for (int slot = 0, n = 0; n < KEPT; slot++) // each remaining slot is equally likely, as long as enough remain
            if (SLOTS - slot == KEPT - n || test_random(&random) % (uint64_t)(SLOTS - slot) < (uint64_t)(KEPT - n))
                keep[i / KV_HEADS][i % KV_HEADS][n++] = slot;
    KvPool d = kv;
    for (int v = 0; v < 2; v++) {
        uint8_t *bytes = *(v ? &kv.v : &kv.k) = malloc(pool_plane_bytes(&kv, v));
        for (size_t i = 0; i < pool_plane_bytes(&kv, v); i++) bytes[i] = (uint8_t)test_random(&random);
        *(v ? &d.v : &d.k) = device_new(bytes, pool_plane_bytes(&kv, v));
    }
    gpu_close_up(&d, device_new(table, sizeof table), device_new(keep, sizeof keep), KEPT, NULL);
    gpu_compare_launched();
    for (int v = 0; v < 2; v++) {
        size_t bytes = kv_slot_bytes(pool_type(&kv, v), kv.head_dim);
        uint8_t *expected = host_copy(pool_plane(&kv, v), pool_plane_bytes(&kv, v));
        for (int i = 0; i < LAYERS * KV_HEADS * KEPT; i++) {
            int layer = i / KEPT / KV_HEADS, head = i / KEPT % KV_HEADS, to = i % KEPT, from = keep[layer][head][to];
            memcpy(expected + kv_slot(&kv, layer, table[to / 7], head, to % 7) * bytes,
                   pool_plane(&kv, v) + kv_slot(&kv, layer, table[from / 7], head, from % 7) * bytes, bytes);
        }
        assert_true(device_same(expected, pool_plane(&d, v), pool_plane_bytes(&kv, v)));
        free(expected);
    }
    device_free_all();
    pool_free(&kv);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sealed_to_the_byte),
        cmocka_unit_test(copies_in_order),
        cmocka_unit_test(rows_that_go_on),
        cmocka_unit_test(slots_that_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
