// tests/fuzz_imatrix.c: libFuzzer over importance matrices of the older form (tests/fuzz_gguf.c has the GGUF form).
// Values that are read must be finite, and an error must be one printable line.
#include "files/imatrix.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Imatrix *m;
    Status st = imatrix_read_dat("fuzz.dat", data, size, &m);
    if (st.code) {
        if (st.code != QUILL_MODEL || !st.message[0] || m) abort();
        for (const char *c = st.message; *c; c++)
            if ((unsigned char)*c < ' ') abort();
        return 0;
    }
    int n, n_mat;
    const float *mean = size > 13 ? imatrix_of(m, (Str){(const char *)data + 8, data[4]}, &n, &n_mat) : NULL;
    for (int i = 0; mean && i < n * n_mat; i++)
        if (!isfinite(mean[i]) || mean[i] < 0) abort();
    if (imatrix_count(m) < 1) abort();
    imatrix_close(m);
    return 0;
}
