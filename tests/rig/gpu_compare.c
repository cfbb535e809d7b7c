// tests/rig/gpu_compare.c: see tests/rig/gpu_compare.h.
#include "tests/rig/gpu_compare.h"

static const char *const op_names[N_OPS] = {"embed", "rmsnorm", "attn_in", "qkv_finish", "K and V", "attention",
                                            "flash", "probe",   "o, down", "gate, up",   "logits",  "dequantize"};
static const double limits[N_WAYS] = {1e-5, 5e-3, 1e-2};
static double worst[N_OPS][N_WAYS];
const char *gpu_compare_case;

void gpu_compare_note(GpuOp op, int way, double distance) {
    if (!(distance <= limits[way])) // also true for NaN
        fail_msg("%s, %s: distance up to %g expected, %g found", gpu_compare_case, op_names[op], limits[way], distance);
    if (distance > worst[op][way]) worst[op][way] = distance;
}

void gpu_compare_launched(void) {
    const Status *error = gpu_launch_error();
    if (error) fail_msg("%s: %s", gpu_compare_case, error->message);
}

float gpu_compare_float(int type, const void *p, size_t i) {
    if (type == TYPE_F32) return ((const float *)p)[i];
    uint16_t bits = ((const uint16_t *)p)[i];
    return type == TYPE_F16 ? half_float(bits) : bf16_float(bits);
}

void gpu_compare_as(GpuOp op, int way, int type, const float *ref, const void *device, size_t n) {
    gpu_compare_launched();
    void *bytes = malloc(n * kv_type_bytes(type));
    float *out = malloc(n * sizeof *out);
    device_read(bytes, device, n * kv_type_bytes(type));
    for (size_t i = 0; i < n; i++) out[i] = gpu_compare_float(type, bytes, i);
    gpu_compare_note(op, way, test_distance(out, ref, n));
    free(bytes);
    free(out);
}

void gpu_compare_f32(GpuOp op, int way, const float *ref, const void *device, size_t n) {
    gpu_compare_as(op, way, TYPE_F32, ref, device, n);
}

int gpu_compare_print(void **state) {
    (void)state;
    print_message("largest relative L2 distance       f32      half      int8\n");
    for (int op = 0; op < N_OPS; op++)
        print_message("  %-24s%10.1e%10.1e%10.1e\n", op_names[op], worst[op][F32_IN], worst[op][HALF_IN],
                      worst[op][INT8_IN]);
    return 0;
}

// ---- memory ---------------------------------------------------------------------------------------------------------

void *host_copy(const void *p, size_t n) {
    void *copy = malloc(n);
    memcpy(copy, p, n);
    return copy;
}

bool device_same(const void *host, const void *device, size_t n) {
    void *copy = malloc(n);
    device_read(copy, device, n);
    bool same = memcmp(host, copy, n) == 0;
    free(copy);
    return same;
}

void *device_random(float *host, size_t n, uint64_t *random) {
    for (size_t i = 0; i < n; i++) host[i] = test_uniform(random);
    return device_new(host, n * sizeof *host);
}

DeviceTensor device_tensor(const Tensor *t) {
    DeviceTensor d;
    size_t bytes = gpu_tensor_bytes(t, &d), groups = 0;
    gpu_tensor_place(&d, device_new(NULL, bytes));
    if (t->type == TYPE_I8G) groups = ((size_t)t->n_out * (size_t)t->n_in + (size_t)t->group - 1) / (size_t)t->group;
    const float *scales = groups ? device_new(t->scales, groups * sizeof(float)) : NULL;
    for (int first = 0, n; first < t->n_out; first += n) { // uploads the rows in pieces
        n = int_min(t->n_out - first, t->n_out / 2 + 1);
        const char *rows = (const char *)t->data + (size_t)first * t->row_bytes;
        gpu_tensor_fill(&d, t, first, n, device_new(rows, (size_t)n * t->row_bytes), scales, NULL);
    }
    d.bias = t->bias ? device_new(t->bias, (size_t)t->n_out * sizeof(float)) : NULL;
    gpu_compare_launched();
    return d;
}

const int *device_ints(const int *p, int n, int padding) { // with one more number, for the row of padding
    int *copy = malloc((size_t)(n + 1) * sizeof *copy);
    memcpy(copy, p, (size_t)n * sizeof *copy);
    copy[n] = padding;
    int *d = device_new(copy, (size_t)(n + 1) * sizeof *copy);
    free(copy);
    return d;
}

// ---- K and V of a pool on the host ----------------------------------------------------------------------------------

void pool_make_tails(KvPool *kv) {
    kv->n_tails = kv->n_blocks;
    kv->tail_of = malloc((size_t)kv->n_blocks * sizeof(int));
    for (int i = 0; i < kv->n_blocks; i++) kv->tail_of[i] = kv->n_blocks - 1 - i;
    for (int v = 0; v < 2; v++) {
        if (!kv_is_sealed(pool_type(kv, v))) continue;
        float *pages = malloc(pool_tail_floats(kv) * sizeof *pages);
        memset(pages, 0xff, pool_tail_floats(kv) * sizeof *pages);
        *(v ? &kv->tail_v : &kv->tail_k) = pages;
    }
}

void pool_seal_at(const KvPool *kv, bool value, int layer, const int *table, int head, int first,
                  const float *const *rows) {
    uint8_t group[SEAL_MOST];
    size_t bytes = kv_slot_bytes(pool_type(kv, value), kv->head_dim);
    sealed_pack_group(pool_type(kv, value), !value, rows, kv->head_dim, group);
    for (int s = 0; s < SEAL; s++) {
        size_t at = kv_slot(kv, layer, table[(first + s) / kv->block], head, (first + s) % kv->block);
        memcpy(pool_plane(kv, value) + at * bytes, group + (size_t)s * bytes, bytes);
    }
}

void pool_free(KvPool *kv) {
    free(kv->k);
    free(kv->v);
    free(kv->tail_k);
    free(kv->tail_v);
    free(kv->tail_of);
}
