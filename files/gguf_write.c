// files/gguf_write.c: see files/gguf.h. Sets values of C types through gguf_set, and writes a view as a GGUF v3 file.
// It does not need files/gguf_view.h: a view stores values in the file's form, and they are written unchanged.
#include "base/tempfile.h"
#include "files/gguf.h"
#include "formats/types.h"

#include <string.h>

enum { ALIGNMENT = 32 };

// ---- values ---------------------------------------------------------------------------------------------------------

static void set_scalar(Gguf *g, const char *key, GgufType type, const void *data, size_t n_bytes) {
    gguf_set(g, &(GgufValue){str_of(key), type, type, 1, data, n_bytes});
}

static void set_array(Gguf *g, const char *key, GgufType elem_type, size_t n, const void *data, size_t n_bytes) {
    gguf_set(g, &(GgufValue){str_of(key), GGUF_ARRAY, elem_type, n, data, n_bytes});
}

static void append_str(Buf *b, Str s) {
    uint64_t n = s.n;
    buf_append(b, &n, sizeof n);
    buf_append(b, s.data, s.n);
}

void gguf_set_u32(Gguf *g, const char *key, uint32_t v) { set_scalar(g, key, GGUF_U32, &v, sizeof v); }
void gguf_set_f32(Gguf *g, const char *key, float v) { set_scalar(g, key, GGUF_F32, &v, sizeof v); }

void gguf_set_bool(Gguf *g, const char *key, bool v) {
    uint8_t byte = v;
    set_scalar(g, key, GGUF_BOOL, &byte, sizeof byte);
}

void gguf_set_str(Gguf *g, const char *key, const char *v) {
    Buf b = {0};
    append_str(&b, str_of(v));
    set_scalar(g, key, GGUF_STR, b.data, b.n);
    buf_free(&b);
}

void gguf_set_strings(Gguf *g, const char *key, const Str *v, size_t n) {
    Buf b = {0};
    for (size_t i = 0; i < n; i++) append_str(&b, v[i]);
    set_array(g, key, GGUF_STR, n, b.data, b.n);
    buf_free(&b);
}

void gguf_set_floats(Gguf *g, const char *key, const float *v, size_t n) {
    set_array(g, key, GGUF_F32, n, v, n * sizeof *v);
}

void gguf_set_ints(Gguf *g, const char *key, const int32_t *v, size_t n) {
    set_array(g, key, GGUF_I32, n, v, n * sizeof *v);
}

// ---- the file -------------------------------------------------------------------------------------------------------

// Whether the key describes the source file and not the model: its alignment, its part number.
static bool is_dropped(Str key) { return str_is(key, "general.alignment") || str_has_prefix(key, "split."); }

static void append_u32(Buf *b, uint32_t v) { buf_append(b, &v, sizeof v); }
static void append_u64(Buf *b, uint64_t v) { buf_append(b, &v, sizeof v); }

static void append_values(Buf *b, const Gguf *g) {
    for (int i = 0; i < gguf_n_values(g); i++) {
        const GgufValue *v = gguf_value_at(g, i);
        if (is_dropped(v->key)) continue;
        append_str(b, v->key);
        append_u32(b, v->type);
        if (v->type == GGUF_ARRAY) {
            append_u32(b, v->elem_type);
            append_u64(b, v->n);
        }
        buf_append(b, v->data, v->n_bytes);
    }
}

static void append_tensors(Buf *b, const Gguf *g) {
    uint64_t offset = 0;
    for (int i = 0; i < gguf_n_tensors(g); i++) {
        const GgufTensor *t = gguf_tensor_at(g, i);
        append_str(b, t->name);
        append_u32(b, (uint32_t)t->n_dims);
        for (int d = 0; d < t->n_dims; d++) append_u64(b, t->dims[d]);
        append_u32(b, (uint32_t)t->type);
        append_u64(b, offset);
        offset += round_up(t->n_bytes, ALIGNMENT);
    }
}

static Status pad(int fd, size_t n) {
    static const char zeros[ALIGNMENT];
    return fd_write_all(fd, zeros, round_up(n, ALIGNMENT) - n);
}

// Writes the file: collects everything in front of the weights in memory first.
static Status write_all(int fd, const Gguf *g, GgufMaker *make, void *arg) {
    uint64_t n_values = 0;
    for (int i = 0; i < gguf_n_values(g); i++) n_values += !is_dropped(gguf_value_at(g, i)->key);
    Buf head = {0};
    buf_str(&head, "GGUF");
    append_u32(&head, 3);
    append_u64(&head, (uint64_t)gguf_n_tensors(g));
    append_u64(&head, n_values);
    append_values(&head, g);
    append_tensors(&head, g);
    Status st = fd_write_all(fd, head.data, head.n);
    if (!st.code) st = pad(fd, head.n);
    buf_free(&head);
    for (int i = 0; i < gguf_n_tensors(g) && !st.code; i++) {
        st = make(arg, i, fd);
        if (!st.code) st = pad(fd, gguf_tensor_at(g, i)->n_bytes);
    }
    return st;
}

Status gguf_save_made(const Gguf *g, const char *path, GgufMaker *make, void *arg) {
    TempFile temp;
    TRY(tempfile_open(path, 0666, &temp));
    return tempfile_publish(&temp, write_all(temp.fd, g, make, arg));
}

// The GgufMaker of gguf_save: writes the tensor's data.
static Status write_data(void *arg, int i, int fd) {
    const GgufTensor *t = gguf_tensor_at(arg, i);
    return fd_write_all(fd, t->data, t->n_bytes);
}

Status gguf_save(const Gguf *g, const char *path) {
    for (int i = 0; i < gguf_n_tensors(g); i++) {
        const GgufTensor *t = gguf_tensor_at(g, i);
        if (t->scales)
            return status_error(QUILL_MODEL,
                                "%s: tensor %.*s: a type that GGUF can store expected, llama2.c's int8 groups found; "
                                "start from the f32 model",
                                gguf_name(g), (int)t->name.n, t->name.data);
    }
    return gguf_save_made(g, path, write_data, (void *)g);
}
