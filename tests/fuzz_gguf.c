// tests/fuzz_gguf.c: libFuzzer over both model parsers. Whatever they accept is walked through the public API, and the
// ends of every tensor's data and scales are read. The input's first byte picks the parser; for llama2.c the rest is
// two little-endian bytes with the model's length, the model, and then the tokenizer.
//
// `make fuzz-build` builds it.
#include "files/llama2c.h"
#include "model.h"

#include <stdlib.h>
#include <string.h>

static volatile unsigned sink;

static void touch(const void *bytes, size_t n) {
    if (n) sink += ((const uint8_t *)bytes)[0] + ((const uint8_t *)bytes)[n - 1];
}

static void walk_value(const Gguf *g, const GgufValue *v) {
    char *key = mem_copy(v->key.data, v->key.n);
    if (gguf_value(g, key) != v) abort(); // names contain no NUL and are unique
    uint32_t u;
    float f;
    bool b;
    Str s;
    if (!gguf_u32(g, key, &u, true, 0).code) sink += u;
    if (!gguf_f32(g, key, &f, true, 0).code) touch(&f, sizeof f);
    if (!gguf_bool(g, key, &b, false).code) sink += b;
    if (!gguf_str(g, key, &s, true).code) touch(s.data, s.n);
    free(key);
    touch(v->data, v->n_bytes);
    // limited by the file's size: every element has at least one byte
    size_t n = v->type == GGUF_ARRAY ? (size_t)v->n : 0;
    Str *strings = malloc((n + 1) * sizeof *strings);
    if (!gguf_strings(g, v, strings).code)
        for (size_t i = 0; i < n; i++) touch(strings[i].data, strings[i].n);
    if (!gguf_floats(g, v, (float *)strings).code) touch(strings, n * sizeof(float));
    if (!gguf_ints(g, v, (int32_t *)strings).code) touch(strings, n * sizeof(int32_t));
    free(strings);
}

static void walk(const Gguf *g) {
    for (int i = 0; i < gguf_n_values(g); i++) walk_value(g, gguf_value_at(g, i));
    for (int i = 0; i < gguf_n_tensors(g); i++) {
        const GgufTensor *t = gguf_tensor_at(g, i);
        char *name = mem_copy(t->name.data, t->name.n);
        if (gguf_tensor(g, name) != t) abort();
        free(name);
        touch(t->data, t->n_bytes);
        if (t->group) touch(t->scales, t->n_bytes / (size_t)t->group * sizeof(float));
    }
}

// Loads a model from the file. If it is accepted, the data of every matrix and expert must lie inside the file.
static void load(const Gguf *g) {
    Model m;
    Status st = model_load(&m, g, NULL); // loads only; computes nothing
    if (st.code && (st.code != QUILL_MODEL || !st.message[0] || strchr(st.message, '\n'))) abort();
    if (!st.code) {
        for (int i = 0; i < m.c.n_layers; i++) {
#define ADDRESS(field) &m.layers[i].field,
            const Tensor *all[] = {EACH_LAYER_MATRIX(ADDRESS)};
            for (size_t k = 0; k < ARRAY_LEN(all); k++) {
                touch(all[k]->data, tensor_rows(all[k]) * all[k]->row_bytes * (all[k]->data != NULL));
                if (all[k]->bias) touch(all[k]->bias, tensor_rows(all[k]) * sizeof(float));
            }
        }
        sink += (unsigned)model_active_bytes(&m);
    }
    model_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 3) return 0;
    Gguf *g;
    Status st;
    void *tokenizer = NULL;
    size_t n_model = n - 1;
    bool llama2c = data[0] & 1;
    if (llama2c) {
        size_t n_wanted = (size_t)data[1] | (size_t)data[2] << 8;
        data += 2;
        n_model = n - 3 < n_wanted ? n - 3 : n_wanted;
    }
    // A separate copy, aligned like a mapping, so that a sanitizer sees reads past its end.
    void *model = mem_copy((const char *)data + 1, n_model);
    model = mem_resize(model, n_model);
    if (llama2c) {
        size_t n_tokenizer = n - 3 - n_model;
        tokenizer = mem_resize(mem_copy((const char *)data + 1 + n_model, n_tokenizer), n_tokenizer);
        st = llama2c_open_memory("fuzz.bin", model, n_model, "tok.bin", tokenizer, n_tokenizer, &g);
    } else st = gguf_open_memory("fuzz.gguf", model, n_model, &g);
    if (!st.code) walk(g);
    if (!st.code) load(g);
    else if (st.code != QUILL_MODEL || !st.message[0]) abort();
    gguf_close(st.code ? NULL : g);
    free(model);
    free(tokenizer);
    return 0;
}
