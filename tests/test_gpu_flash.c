// tests/test_gpu_flash.c: attention of many rows by the kernel for compute capability 9.0 (gpu/flash_sm90.cuh) and by
// the plain kernel, against the scalar reference.
//
// Runs on the host that stands for a GPU of that kind (tests/rig/gpu_host.h), or on such a GPU (make gpu-tests).
#include "tests/rig/testing.h"

#include "cpu/cpu.h"
#include "tests/rig/gpu_case.h"

// Computes the layer's attention on the host, with large scores, so that weights differ much.
static void attend_on_host(GpuCaseRig *r, float sharp) {
    const Layer *l = &r->m.layers[1];
    r->m.be->embed(&r->w, r->m.be, &r->m.ends, &r->kv, &r->b);
    for (size_t i = 0; i < (size_t)r->b.n_rows * (size_t)r->w.dim; i++) r->w.x[i] = test_uniform(&r->random);
    l->be->attn_in(&r->w, l, &r->kv, &r->b);
    for (size_t i = 0; i < (size_t)r->b.n_rows * (size_t)r->w.q_dim; i++) r->w.q[i] *= sharp;
    l->be->attention(&r->w, l, &r->kv, &r->b);
    device_write(r->dkv.k, r->kv.k, r->kv.bytes_k);
    device_write(r->dkv.v, r->kv.v, r->kv.bytes_v);
}

// The tiles of the device's batch, which has a row of padding; most: the most rows of a tile.
static int tiles_of(const GpuCaseRig *r, int most, const GpuTile **tiles) {
    int n = r->b.n_rows + 1;
    Batch b = {.n_rows = n, .slot = malloc((size_t)n * sizeof(int)), .seq = malloc((size_t)n * sizeof(int))};
    memcpy(b.slot, r->b.slot, (size_t)(n - 1) * sizeof(int));
    memcpy(b.seq, r->b.seq, (size_t)(n - 1) * sizeof(int));
    b.slot[n - 1] = -1;
    b.seq[n - 1] = r->b.seq[n - 2];
    GpuTile *host = malloc((size_t)n * sizeof *host);
    int n_tiles = gpu_tiles(&b, host), n_cut = 0;
    GpuTile *cut = malloc((size_t)n * sizeof *cut);
    for (int i = 0; i < n_tiles; i++)
        for (int at = 0; at < host[i].n; at += most)
            cut[n_cut++] = (GpuTile){host[i].first + at, int_min(most, host[i].n - at)};
    *tiles = device_new(cut, (size_t)n_cut * sizeof *cut);
    free(host);
    free(cut);
    free(b.slot);
    free(b.seq);
    return n_cut;
}

// The result must not depend on how the rows are divided among tiles, nor on the order of blocks and threads.
static void check_type(GpuCaseRig *r, const float *q, int type) {
    size_t n = (size_t)r->b.n_rows * (size_t)r->w.q_dim, width = (size_t)r->w.q_dim, bytes = type == TYPE_F32 ? 4 : 2;
    void *a = device_new(NULL, (n + width) * bytes), *again = device_new(NULL, (n + width) * bytes);
    const GpuTile *tiles;
    int n_tiles = tiles_of(r, GPU_TILE_ROWS, &tiles);
    gpu_flash(a, type, q, width, &r->l, &r->dkv, &r->db, &r->s, tiles, n_tiles, NULL);
    gpu_compare_as(FLASH, HALF_IN, type, r->w.a, a, n);
    n_tiles = tiles_of(r, 13, &tiles);
    device_order(r->random);
    gpu_flash(again, type, q, width, &r->l, &r->dkv, &r->db, &r->s, tiles, n_tiles, NULL);
    gpu_compare_launched();
    uint8_t *bits = malloc((n + width) * bytes), *zeros = calloc(width, bytes);
    device_read(bits, a, (n + width) * bytes);
    assert_true(device_same(bits, again, (n + width) * bytes));
    assert_memory_equal(bits + n * bytes, zeros, width * bytes); // the row of padding
    free(bits);
    free(zeros);
}

static void run_case(const GpuCase *c, bool sinks, float sharp, uint64_t seed) {
    GpuCaseRig r;
    gpu_case_open(&r, c, seed);
    float values[16], *on_device = device_random(values, (size_t)c->model.n_heads, &r.random);
    if (sinks) r.m.layers[1].sinks = values, r.l.sinks = on_device;
    attend_on_host(&r, sharp);
    size_t n = (size_t)r.b.n_rows * (size_t)r.w.q_dim, width = (size_t)r.w.q_dim;
    float *padded = calloc(n + width, sizeof *padded);
    memcpy(padded, r.w.q, n * sizeof *padded);
    const float *q = device_new(padded, (n + width) * sizeof *padded);
    free(padded);
    assert_true(gpu_flash_can(&r.l.heads, &r.dkv));
    for (int plain = 0; plain < 2; plain++) {
        if (gpu_tune((GpuTuning){.wgmma = !plain}).wgmma == plain) {
            print_message("skipped: attention with wgmma needs compute capability 9.0 and code for sm_90a\n");
            continue;
        }
        check_type(&r, q, TYPE_F32);
        check_type(&r, q, TYPE_BF16);
        if (!plain) check_type(&r, q, TYPE_F16);
    }
    gpu_tune((GpuTuning){0});
    r.m.layers[1].sinks = NULL;
    gpu_case_close(&r);
}

static const GpuCase cases[] = {
    {"one tile of keys, groups of 4, f16",
     {.arch = "qwen3", .dim = 64, .n_heads = 4, .n_kv_heads = 1, .head_dim = 128},
     {TYPE_F16, TYPE_F16, 32, 0, false},
     {1, 33, 0, false}},
    {"several tiles of keys, bf16, 2 sequences",
     {.arch = "qwen3", .dim = 64, .n_heads = 4, .n_kv_heads = 2, .head_dim = 128},
     {TYPE_BF16, TYPE_BF16, 32, 0, false},
     {2, 70, 450, false}},
    {"no groups, blocks of 16, rows from the middle",
     {.arch = "qwen3", .dim = 64, .n_heads = 2, .n_kv_heads = 2, .head_dim = 128},
     {TYPE_F16, TYPE_F16, 16, 0, false},
     {1, 130, 201, false}},
    {"groups of 7, blocks of one slot",
     {.arch = "qwen3", .dim = 64, .n_heads = 7, .n_kv_heads = 1, .head_dim = 128},
     {TYPE_BF16, TYPE_BF16, 1, 0, false},
     {3, 21, 140, false}},
    {"window over tiles of keys",
     {.arch = "qwen3", .dim = 64, .n_heads = 6, .n_kv_heads = 2, .head_dim = 128},
     {TYPE_F16, TYPE_F16, 16, 150, false},
     {2, 70, 400, false}},
    {"chunks over tiles of keys",
     {.arch = "qwen3", .dim = 64, .n_heads = 6, .n_kv_heads = 2, .head_dim = 128},
     {TYPE_F16, TYPE_F16, 16, -150, false},
     {2, 70, 400, false}},
    {"window of 5 slots, bf16",
     {.arch = "qwen3", .dim = 64, .n_heads = 2, .n_kv_heads = 1, .head_dim = 128},
     {TYPE_BF16, TYPE_BF16, 64, 5, false},
     {1, 100, 340, false}},
    {"gaps between rows",
     {.arch = "qwen3", .dim = 64, .n_heads = 4, .n_kv_heads = 1, .head_dim = 128},
     {TYPE_F16, TYPE_F16, 48, 0, false},
     {1, 66, 100, true}},
    {"head_dim 64, groups of 16, f16",
     {.arch = "qwen3", .dim = 64, .n_heads = 16, .n_kv_heads = 1, .head_dim = 64},
     {TYPE_F16, TYPE_F16, 32, 0, false},
     {1, 40, 260, false}},
    {"head_dim 64, window, bf16",
     {.arch = "qwen3", .dim = 64, .n_heads = 6, .n_kv_heads = 2, .head_dim = 64},
     {TYPE_BF16, TYPE_BF16, 32, 200, false},
     {2, 67, 300, false}},
    {"a border of tiles: slots 127, 128 and 256",
     {.arch = "qwen3", .dim = 64, .n_heads = 2, .n_kv_heads = 1, .head_dim = 128},
     {TYPE_F16, TYPE_F16, 32, 0, false},
     {1, 130, 127, false}},
};

static void against_the_reference(void **state) {
    (void)state;
    if (!device_sm90(true)) skip();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) run_case(&cases[i], i % 2, i % 3 ? 1 : 4, 900 + i);
    device_sm90(false);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(against_the_reference)};
    return cmocka_run_group_tests(tests, NULL, gpu_compare_print);
}
