// gpu/flash_sm90.cu: the launch of gpu/flash_sm90.cuh; compiled for sm_90a only, whose instructions no later GPU has.
// QUILL_NO_SM90: the binary is for other GPUs.
#include "gpu/flash_job.cuh"

#ifdef QUILL_NO_SM90
bool flash_sm90_supported() { return false; }
bool flash_sm90_can(const FlashJob &) { return false; }
void flash_sm90_launch(FlashJob, int, GpuStream) {}
#else
#include "gpu/flash_sm90.cuh"

typedef Sm90Shape<128, 2, true, true, false> BestShape;

bool flash_sm90_supported() {
    int device, major, minor;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess && major == 9 &&
           minor == 0 && gpu_has(flash_sm90<TYPE_F16, 128, BestShape>);
}

bool flash_sm90_can(const FlashJob &j) {
    const KvPool &kv = j.kv;
    int n = j.heads.head_dim;
    bool types = kv.type_k == kv.type_v && (kv.type_k == TYPE_F16 || kv.type_k == TYPE_BF16);
    bool sizes = (n == 64 || n == 128) && kv.head_dim == n && kv_v_dim(&kv) == n && !kv.v_in_k && j.stride % 4 == 0;
    bool scores = j.heads.softcap == 0 && j.heads.scale > 0; // the largest score is found before it is scaled
    return types && sizes && scores;
}

template <int TYPE, int HD> static void launch(const FlashJob &j, dim3 grid, GpuStream stream) {
    LAUNCH((flash_sm90<TYPE, HD, BestShape>), grid, SM90_THREADS, sm90_smem(HD, BestShape::keys, BestShape::stages),
           stream, j);
}

void flash_sm90_launch(FlashJob j, int n_tiles, GpuStream stream) {
    flash_pack(&j, n_tiles, SM90_QUERIES);
    dim3 grid = flash_grid(j, n_tiles);
    bool wide = j.heads.head_dim == 128, half = j.kv.type_k == TYPE_F16;
    if (wide && half) launch<TYPE_F16, 128>(j, grid, stream);
    else if (wide) launch<TYPE_BF16, 128>(j, grid, stream);
    else if (half) launch<TYPE_F16, 64>(j, grid, stream);
    else launch<TYPE_BF16, 64>(j, grid, stream);
}
#endif
