// tests/fuzz_safetensors.c: libFuzzer over the reader of safetensors files: the data of every accepted tensor must lie
// inside the file. `make fuzz-build` builds it.
#include "hf/safetensors.h"

#include <stdlib.h>
#include <string.h>

static volatile unsigned sink;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    // A separate copy, aligned like a mapping, so that a sanitizer sees reads past its end.
    uint8_t *bytes = mem_resize(mem_copy((const char *)data, n), n + (n == 0));
    SafeFiles s = {0};
    Status st = safetensors_add(&s, "fuzz.safetensors", bytes, n);
    if (st.code && (st.code != QUILL_MODEL || !st.message[0])) abort();
    for (int i = 0; i < s.tensors.n && !st.code; i++) {
        const SafeTensor *t = names_at(&s.tensors, i);
        size_t elements = 1;
        for (int d = 0; d < t->n_dims; d++) elements *= (size_t)t->dims[d];
        if (t->element && elements * t->element != t->n_bytes) abort();
        if (t->data < bytes || t->n_bytes > (size_t)(bytes + n - t->data)) abort();
        if (t->n_bytes) sink += t->data[0] + t->data[t->n_bytes - 1];
        char *name = mem_copy(t->name.data, t->name.n);
        if (safetensors_find(&s, name) != t) abort();
        free(name);
    }
    safetensors_close(&s);
    free(bytes);
    return 0;
}
