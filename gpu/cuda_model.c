// gpu/cuda_model.c: loads weights from the file into the GPU's memory, in the layout of its kernels.
//
// A tensor is uploaded in pieces through two pinned buffers: threads copy the next piece from the mapped file, with
// read-ahead, while the previous piece is being uploaded; the GPU then splits the file's blocks into planes. The
// functions that place tensors in memory also count their bytes, if called without memory.
#define _GNU_SOURCE
#include "gpu/cuda_model.h"

#include "gpu/cuda.h"
#include "gpu/cuda_device.h"
#include "gpu/rt.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PIECE = 16 << 20, ALIGN = 256 };

// ---- placing --------------------------------------------------------------------------------------------------------

// Memory that is handed out from its start on; base NULL: only counts the bytes.
typedef struct {
    uint8_t *base;
    size_t at;
} Room;

static void *take(Room *r, size_t n) {
    void *p = r->base ? r->base + r->at : NULL;
    r->at += round_up(n, ALIGN);
    return p;
}

static int n_rows(const Tensor *t) { return (int)tensor_rows(t); } // gpu_tensor_bytes asserts that they fit an int

static void take_tensor(Room *r, const Tensor *t, DeviceTensor *out) { // takes nothing if the layer has no such matrix
    void *p = take(r, gpu_tensor_bytes(t, out));
    if (p) gpu_tensor_place(out, p);
}

static const float *take_vector(Room *r, const float *v, int n) { return v ? take(r, (size_t)n * sizeof *v) : NULL; }

typedef struct {
    Tensor from;
    DeviceTensor *to;
} WeightMatrix;

#define COUNT_FIELD(...) +1
// The numbers of matrices and vectors of a GpuLayer.
enum {
    N_MATRICES = 0 EACH_ATTENTION_MATRIX(COUNT_FIELD) EACH_LATENT_MATRIX(COUNT_FIELD) EACH_FFN_MATRIX(COUNT_FIELD)
        EACH_PER_LAYER_MATRIX(COUNT_FIELD) EACH_RECURRENT_MATRIX(COUNT_FIELD),
    N_VECTORS = 1 EACH_LAYER_VECTOR(COUNT_FIELD, 0, 0, 0, 0) EACH_RECURRENT_VECTOR(COUNT_FIELD, 0)
        EACH_FAMILY_VECTOR(COUNT_FIELD, 0, 0) // the 1 is norm_v, which is in no list
};

// Wq of gated attention has for each head rows of Q, then rows of its gate. Returns the rows of Q of all heads, or with
// `gate` those of the gates.
static Tensor query_rows(const Layer *l, bool gate) {
    Tensor t = l->wq;
    int n = l->heads.head_dim;
    t.data = (const char *)t.data + (gate ? (size_t)n * t.row_bytes : 0);
    t.n_out = n;
    t.stack = l->heads.n_heads;
    t.stack_rows = 2 * n;
    return t;
}

// Lists the matrices of a layer. If its feed-forward stays on the host, the matrices of the feed-forward and those that
// are applied after it are empty.
static void matrices_of(const Layer *l, GpuLayer *g, WeightMatrix out[N_MATRICES]) {
    static const Tensor none;
    int i = 0;
#define MATRIX(field) out[i++] = (WeightMatrix){l->field, &g->field};
#define FFN_MATRIX(field) out[i++] = (WeightMatrix){l->host_ffn ? none : l->field, &g->field};
    EACH_ATTENTION_MATRIX(MATRIX)
    EACH_LATENT_MATRIX(MATRIX)
    EACH_FFN_MATRIX(FFN_MATRIX)
    EACH_PER_LAYER_MATRIX(FFN_MATRIX)
    EACH_RECURRENT_MATRIX(MATRIX)
    for (i = 0; l->kind.gate == GATE_IN_WQ && i < N_MATRICES; i++) {
        if (out[i].to == &g->wq) out[i].from = query_rows(l, false);
        if (out[i].to == &g->w_mix) out[i].from = query_rows(l, true);
    }
}

typedef struct {
    const float *from, **to;
    int n;
} Vector;

static void vectors_of(const Layer *l, GpuLayer *g, Vector out[N_VECTORS]) {
    int dim = l->kind.mixer == MIXER_NONE ? l->w_gate.n_in : l->wo.n_out;
#define NORM(field, size) *out++ = (Vector){l->field, &g->field, size};
    EACH_LAYER_VECTOR(NORM, dim, l->heads.n_heads, layer_norm_q(l), layer_norm_k(l))
    EACH_RECURRENT_VECTOR(NORM, l)
    EACH_FAMILY_VECTOR(NORM, dim, l)
    NORM(norm_v, heads_v_dim(&l->heads))
}

static void place_layer(Room *r, const Layer *l, GpuLayer *g) {
    WeightMatrix m[N_MATRICES];
    Vector v[N_VECTORS];
    matrices_of(l, g, m);
    vectors_of(l, g, v);
    for (int i = 0; i < N_MATRICES; i++) take_tensor(r, &m[i].from, m[i].to);
    for (int i = 0; i < N_MATRICES; i++) m[i].to->bias = take_vector(r, m[i].from.bias, n_rows(&m[i].from));
    // The kernels of experts multiply the activation of one product by another product. Without w_up both are the same.
    bool experts = l->kind.ffn == FFN_EXPERTS;
    if (experts && g->w_up.n_out == 0) g->w_up = g->w_gate;
    if (experts && g->shared_up.n_out == 0) g->shared_up = g->shared_gate;
    for (int i = 0; i < N_VECTORS; i++) *v[i].to = take_vector(r, v[i].from, v[i].n);
}

size_t cuda_layer_bytes(const Layer *l) {
    Room r = {0};
    GpuLayer g = {0};
    place_layer(&r, l, &g);
    return r.at;
}

// norm_size: elements of its norm; 0: it has none
static void place_matrix(Room *r, const Tensor *t, int norm_size, CudaMatrix *out) {
    take_tensor(r, t, &out->t);
    if (norm_size > 0) out->norm = take(r, (size_t)norm_size * sizeof *out->norm);
}

static bool is_tied(const Ends *e) { return e->tok_embd.data == e->head.data; }

size_t cuda_ends_bytes(const Ends *e, bool embeds) {
    Room r = {0};
    CudaMatrix m = {0};
    place_matrix(&r, &e->head, e->head.n_in, &m);
    if (embeds && !is_tied(e)) place_matrix(&r, &e->tok_embd, 0, &m);
    if (embeds && e->per > 0) {
        place_matrix(&r, &e->per_embd, e->per, &m);
        place_matrix(&r, &e->per_proj, 0, &m);
    }
    return r.at;
}

// ---- stacks ---------------------------------------------------------------------------------------------------------

static bool is_dense(int type) { return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16; }

// Whether the tensors are dense, of one type and adjacent in memory.
static bool is_contiguous(const Stack *s) {
    for (int i = 0; i < s->n_parts; i++) {
        const DeviceTensor *t = &s->part[i], *last = &s->part[i > 0 ? i - 1 : 0];
        if (t->type != s->type || t->stride_bytes != last->stride_bytes) return false;
        if (i > 0 && t->quants != last->quants + (size_t)last->n_out * last->stride_bytes) return false;
    }
    return true;
}

// The type of the product: F32 if any tensor is F32, so that nothing is rounded; F16 or BF16 if all are; otherwise
// BF16.
static int product_type(const Stack *s) {
    int type = s->part[0].type;
    for (int i = 0; i < s->n_parts; i++) {
        if (s->part[i].type == TYPE_F32) return TYPE_F32;
        if (s->part[i].type != type) type = TYPE_BF16;
    }
    return is_dense(type) ? type : TYPE_BF16;
}

// type: the type of the product; -1: product_type decides
static Stack stack_as(const DeviceTensor *const *parts, int n, int type) {
    Stack s = {.n_parts = n, .n_in = parts[0]->n_in};
    for (int i = 0; i < n; i++) {
        s.part[i] = *parts[i];
        s.n_out += parts[i]->n_out;
    }
    s.type = type < 0 ? product_type(&s) : type;
    s.stride = round_up((size_t)s.n_in, 16 / dense_bytes(s.type)); // rows begin at multiples of 16 bytes
    if (is_contiguous(&s) && s.part[0].quants) {
        s.dense = s.part[0].quants;
        s.stride = s.part[0].stride_bytes / dense_bytes(s.type);
    }
    return s;
}

static Stack stack_of(const DeviceTensor *const *parts, int n) { return stack_as(parts, n, -1); }

static void stack_layer(CudaLayer *c) {
    const GpuLayer *g = &c->gpu;
    bool experts = g->kind.ffn == FFN_EXPERTS;
    bool latent = g->kind.mixer == MIXER_LATENT, first = g->q_a.n_out > 0;
    // V may be K, and a layer may use K and V of another layer.
    int qkv = latent ? 2 : g->wv.n_out > 0 ? 3 : g->wk.n_out > 0 ? 2 : 1;
    c->stack[QKV] = stack_of((const DeviceTensor *[]){first ? &g->q_a : &g->wq, &g->wk, &g->wv}, qkv);
    c->stack[Q_B] = stack_of((const DeviceTensor *[]){first ? &g->wq : &g->q_a}, 1);
    c->stack[K_B] = stack_of((const DeviceTensor *[]){&g->k_b}, 1);
    c->stack[V_B] = stack_of((const DeviceTensor *[]){&g->v_b}, 1);
    c->stack[PER_GATE] = stack_of((const DeviceTensor *[]){&g->per_gate}, 1);
    c->stack[PER_OUT] = stack_of((const DeviceTensor *[]){&g->per_out}, 1);
    c->stack[OUT] = stack_of((const DeviceTensor *[]){&g->wo}, 1);
    bool ungated = experts ? g->shared_up.quants == g->shared_gate.quants : g->w_up.n_out == 0; // place_layer
    c->stack[GATE_UP] = stack_of(experts ? (const DeviceTensor *[]){&g->shared_gate, &g->shared_up}
                                         : (const DeviceTensor *[]){&g->w_gate, &g->w_up},
                                 ungated ? 1 : 2);
    c->stack[DOWN] = stack_of((const DeviceTensor *[]){experts ? &g->shared_down : &g->w_down}, 1);
    c->stack[MIX] = stack_of((const DeviceTensor *[]){&g->w_mix, &g->w_z}, g->w_z.n_out > 0 ? 2 : 1);
    c->stack[RATES] =
        stack_as((const DeviceTensor *[]){&g->w_beta, &g->w_alpha}, g->w_alpha.n_out > 0 ? 2 : 1, TYPE_F32);
    c->stack[ROUTER] =
        stack_as((const DeviceTensor *[]){&g->router, &g->shared_route}, g->shared_route.n_out > 0 ? 2 : 1, TYPE_F32);
}

static size_t dense_size(const Stack *s) {
    return round_up((size_t)s->n_out * s->stride * dense_bytes(s->type), ALIGN);
}

// Bytes of dense copies of the stacks that are not dense.
static size_t resident_size(const CudaLayer *c) {
    size_t n = 0;
    for (int i = 0; i < ROUTER; i++)
        if (!c->stack[i].dense) n += dense_size(&c->stack[i]);
    return n;
}

// ---- going up -------------------------------------------------------------------------------------------------------

typedef struct {
    GpuStream stream;
    uint8_t *pinned, *raw; // buffers of a piece, on the host and on the device
} Lane;

typedef struct {
    Lane lane[2];
    int next;     // index of the lane that is used next
    size_t piece; // bytes of a buffer: PIECE, or the longest row if that is longer
    const DeviceLoad *what;
    double done, all;
} Lift;

static bool lanes_sync(Lift *f) { return rt_sync(f->lane[0].stream) && rt_sync(f->lane[1].stream); }

typedef struct {
    const uint8_t *from;
    uint8_t *to;
    size_t n, step;
} PieceCopy;

static void copy_task(void *arg, int task, int thread) {
    (void)thread;
    const PieceCopy *c = arg;
    size_t at = (size_t)task * c->step, n = c->n - at < c->step ? c->n - at : c->step;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)(c->from + at) / page * page;
#ifdef MADV_POPULATE_READ
    madvise((void *)first, (uintptr_t)(c->from + at + n) - first, MADV_POPULATE_READ); // reads all pages at once
#endif
    memcpy(c->to + at, c->from + at, n);
}

// Queues the copy of n bytes, at most a piece, to the lane's `raw`; later operations on the lane's stream can read
// them.
static const Lane *lift(Lift *f, const void *bytes, size_t n) {
    Lane *l = &f->lane[f->next];
    f->next = 1 - f->next;
    rt_sync(l->stream); // waits until this lane's last piece has been used
    PieceCopy c = {.from = bytes, .to = l->pinned, .n = n, .step = 1 << 20};
    threads_run(f->what->pool, copy_task, &c, (int)((n + c.step - 1) / c.step));
    rt_upload(l->raw, l->pinned, n, l->stream);
    f->done += (double)n;
    if (f->what->progress) f->what->progress(f->what->arg, f->done, f->all);
    return l;
}

static bool lift_to(Lift *f, void *device, const void *bytes, size_t n) {
    for (size_t at = 0, now; at < n; at += now) {
        now = n - at < f->piece ? n - at : f->piece;
        const Lane *l = lift(f, (const uint8_t *)bytes + at, now);
        rt_copy((uint8_t *)device + at, l->raw, now, l->stream);
    }
    return !rt_failure();
}

// scales: all scales of the tensor, on the device; NULL: its type has none
static bool lift_rows(Lift *f, const Tensor *t, const DeviceTensor *to, const float *scales) {
    int all = n_rows(t), rows = f->piece / t->row_bytes < (size_t)all ? (int)(f->piece / t->row_bytes) : all;
    bool apart = t->stack_rows > t->n_out; // rows of other matrices are between them
    for (int first = 0, n; first < all; first += n) {
        n = int_min(rows, apart ? t->n_out - first % t->n_out : all - first);
        size_t at = apart ? (size_t)(first / t->n_out * t->stack_rows + first % t->n_out) : (size_t)first;
        const Lane *l = lift(f, (const uint8_t *)t->data + at * t->row_bytes, (size_t)n * t->row_bytes);
        gpu_tensor_fill(to, t, first, n, l->raw, scales, l->stream);
    }
    return !rt_failure();
}

static bool lift_tensor(Lift *f, const Tensor *t, const DeviceTensor *to) {
    if (!t->data) return true; // a layer without such a matrix
    if (t->type != TYPE_I8G) return lift_rows(f, t, to, NULL);
    size_t n = tensor_rows(t) * (size_t)t->n_in / (size_t)t->group * sizeof(float);
    float *scales = rt_alloc(n);
    bool good = scales && lift_to(f, scales, t->scales, n) && lanes_sync(f) && lift_rows(f, t, to, scales);
    good = lanes_sync(f) && good;
    rt_free(scales);
    return good;
}

static bool lift_vector(Lift *f, const float *v, const float *to, int n) {
    return !v || lift_to(f, (void *)to, v, (size_t)n * sizeof *v); // `to` is writable: place_layer's memory
}

static bool lift_bias(Lift *f, const Tensor *t, const float *to) {
    if (!t->bias || t->stack_rows <= t->n_out) return lift_vector(f, t->bias, to, n_rows(t));
    for (int i = 0; i < t->stack; i++)
        if (!lift_vector(f, tensor_of_stack(t, i).bias, to + (size_t)i * (size_t)t->n_out, t->n_out)) return false;
    return true;
}

static bool lift_layer(Lift *f, const Layer *l, CudaLayer *c) {
    WeightMatrix m[N_MATRICES];
    Vector v[N_VECTORS];
    matrices_of(l, &c->gpu, m);
    vectors_of(l, &c->gpu, v);
    for (int i = 0; i < N_MATRICES; i++)
        if (!lift_tensor(f, &m[i].from, m[i].to) || !lift_bias(f, &m[i].from, m[i].to->bias)) return false;
    for (int i = 0; i < N_VECTORS; i++)
        if (!lift_vector(f, v[i].from, *v[i].to, v[i].n)) return false;
    return true;
}

// Makes resident dense copies of stacks that are not dense, if the spare memory suffices.
static void densify(CudaLayer *c, size_t *spare, GpuStream stream) {
    size_t need = resident_size(c);
    c->dense = need == 0;
    if (c->dense || need > *spare) return;
    Room r = {.base = c->resident = rt_alloc(need)};
    if (!r.base) return; // without this memory the products are only slower
    *spare -= need;
    for (int i = 0; i < ROUTER; i++) {
        Stack *s = &c->stack[i];
        if (s->dense || s->n_out == 0) continue; // n_out 0: the layer has no such matrices
        uint8_t *to = take(&r, dense_size(s));
        s->dense = to;
        for (int k = 0; k < s->n_parts; k++) {
            gpu_dequantize(&s->part[k], 0, s->part[k].n_out, s->type, to, s->stride, stream);
            to += (size_t)s->part[k].n_out * s->stride * dense_bytes(s->type);
        }
    }
    c->dense = true;
}

// Does the same for the head. Steps of many rows would otherwise unpack it every time.
static void densify_head(CudaMatrix *m, size_t *spare, GpuStream stream) {
    Stack *s = &m->stack;
    size_t need = dense_size(s);
    if (s->dense || need > *spare) return;
    s->dense = m->resident = rt_alloc(need);
    if (!s->dense) return;
    *spare -= need;
    gpu_dequantize(&s->part[0], 0, s->n_out, s->type, m->resident, s->stride, stream);
}

// ---- the whole ------------------------------------------------------------------------------------------------------

static Status no_room(const char *what, size_t n) {
    return status_error(
        QUILL_MEMORY,
        "the GPU: %s: %zu bytes expected, %zu are free; try a smaller -ngl, a smaller -c or a smaller -ub", what, n,
        rt_free_bytes());
}

static Status not_loaded(void) {
    const Status *why = cuda_device_failure();
    return why ? status_error(why->code, "the GPU failed while the model was loaded: %s", why->message)
               : no_room("a part of the model", 0);
}

// The index of a layer's K and V in the GPU's pool, which has those of the pool's last layers; of a recurrent layer the
// number of recurrent ones before it.
static int index_in_pool(const DeviceLoad *what, int index) {
    const Layer *l = &what->layers[index];
    bool recurrent = mixer_is_recurrent(l->kind.mixer);
    int n = 0;
    for (int i = 0; i < index; i++) {
        const Layer *before = &what->layers[i];
        if (!recurrent && before->kv_kind == l->kv_kind) return l->kv_layer - before->kv_layer;
        n += recurrent && mixer_is_recurrent(before->kind.mixer);
    }
    return n;
}

static Status load_layer(Lift *f, Layer *l, int index, CudaModel *m, size_t *spare) {
    CudaLayer *c = &m->layers[index];
    size_t n = cuda_layer_bytes(l);
    Room r = {.base = c->memory = rt_alloc(n)};
    if (!r.base) return no_room("the weights of a layer", n);
    place_layer(&r, l, &c->gpu);
    c->at = index;
    c->ropes = &m->ropes;
    c->gpu.kind = l->kind;
    c->gpu.heads = l->heads;
    c->gpu.rope = l->rope;
    c->gpu.rec = l->rec;
    c->gpu.index = index_in_pool(f->what, index);
    c->gpu.number = l->index;
    if (!lift_layer(f, l, c)) return not_loaded();
    stack_layer(c);
    if (!lanes_sync(f)) return not_loaded();
    densify(c, spare, f->lane[0].stream);
    return OK;
}

// norm (norm_size); norm_size 0: it has none
static Status load_matrix(Lift *f, const Tensor *t, const float *norm, int norm_size, CudaMatrix *out) {
    Room count = {0};
    place_matrix(&count, t, norm_size, out);
    Room r = {.base = out->memory = rt_alloc(count.at)};
    if (!r.base) return no_room("the embedding or the head", count.at);
    place_matrix(&r, t, norm_size, out);
    if (!lift_tensor(f, t, &out->t) || !lift_vector(f, norm, out->norm, norm_size)) return not_loaded();
    out->stack = stack_of((const DeviceTensor *[]){&out->t}, 1);
    return OK;
}

static Status load_rope(Lift *f, const Rope *r, GpuRopes *out) {
    size_t n = (size_t)(r->n_rot / 2) * sizeof *r->freq;
    double *freq = rt_alloc(n ? n : sizeof *r->freq); // n is 0 if the layer has no RoPE
    if (!freq) return no_room("RoPE's frequencies", n);
    out->of[out->n] = *r;
    out->of[out->n++].freq = freq;
    return lift_to(f, freq, r->freq, n) ? OK : not_loaded();
}

static Status load_parts(Lift *f, CudaModel *m) {
    const DeviceLoad *what = f->what;
    size_t spare = what->spare;
    const Ends *e = what->ends;
    for (int i = 0; i < e->n_ropes; i++) TRY(load_rope(f, &e->ropes[i], &m->ropes));
    TRY(load_matrix(f, &e->head, e->norm_out, e->head.n_in, &m->head));
    m->tok.ropes = &m->ropes;
    if (is_tied(e)) m->tok.t = m->head.t;
    else if (what->embeds) TRY(load_matrix(f, &e->tok_embd, NULL, 0, &m->tok));
    if (what->embeds && e->per > 0) {
        TRY(load_matrix(f, &e->per_embd, e->norm_per, e->per, &m->per_embd));
        TRY(load_matrix(f, &e->per_proj, NULL, 0, &m->per_proj));
    }
    for (int i = 0; i < what->n; i++) TRY(load_layer(f, &what->layers[i], i, m, &spare));
    densify_head(&m->head, &spare, f->lane[0].stream);
    return lanes_sync(f) && !cuda_device_failure() ? OK : not_loaded();
}

static size_t longest_row(const DeviceLoad *what) {
    const Ends *e = what->ends;
    size_t n = e->head.row_bytes;
    if (e->per > 0 && e->per_embd.row_bytes > n) n = e->per_embd.row_bytes;
    if (e->per > 0 && e->per_proj.row_bytes > n) n = e->per_proj.row_bytes;
    for (int i = 0; i < what->n; i++) {
        WeightMatrix m[N_MATRICES];
        GpuLayer g;
        matrices_of(&what->layers[i], &g, m);
        for (int k = 0; k < N_MATRICES; k++) n = m[k].from.row_bytes > n ? m[k].from.row_bytes : n;
    }
    return n;
}

static double all_bytes(const DeviceLoad *what) {
    double n = (double)cuda_ends_bytes(what->ends, what->embeds);
    for (int i = 0; i < what->n; i++) n += (double)cuda_layer_bytes(&what->layers[i]);
    return n;
}

static Status lift_open(Lift *f) {
    f->piece = longest_row(f->what) > PIECE ? longest_row(f->what) : PIECE;
    f->all = all_bytes(f->what);
    if (f->all < PIECE) f->piece = longest_row(f->what) > f->all ? longest_row(f->what) : (size_t)f->all;
    for (int i = 0; i < 2; i++) {
        Lane *l = &f->lane[i];
        l->stream = rt_stream();
        l->pinned = rt_pinned(f->piece);
        l->raw = rt_alloc(f->piece);
        if (!l->raw) return no_room("the pieces that the model goes up in", f->piece);
        if (!l->pinned)
            return status_error(QUILL_MEMORY, "%zu bytes of pinned memory were refused by the system; try --device cpu",
                                f->piece);
    }
    return OK;
}

static void lift_close(Lift *f) {
    lanes_sync(f); // no copy may still be running, even after a failure
    for (int i = 0; i < 2; i++) {
        rt_unpin(f->lane[i].pinned);
        rt_free(f->lane[i].raw);
        rt_stream_free(f->lane[i].stream);
    }
}

Status cuda_model_load(const DeviceLoad *what, CudaModel **out) {
    Lift f = {.what = what};
    CudaModel *m = mem_alloc(sizeof *m);
    m->layers = mem_alloc((size_t)what->n * sizeof *m->layers);
    m->n_layers = what->n;
    Status st = lift_open(&f);
    if (!st.code) st = load_parts(&f, m);
    lift_close(&f);
    if (st.code) {
        cuda_model_free(m);
        return st;
    }
    for (int i = 0; i < what->n; i++) what->layers[i].device = &m->layers[i];
    what->ends->head.device = &m->head;
    if (what->embeds) what->ends->tok_embd.device = &m->tok;
    if (what->embeds) what->ends->per_embd.device = &m->per_embd, what->ends->per_proj.device = &m->per_proj;
    *out = m;
    return OK;
}

void cuda_model_free(CudaModel *m) {
    for (int i = 0; i < m->n_layers; i++) {
        rt_free(m->layers[i].memory);
        rt_free(m->layers[i].resident);
    }
    rt_free(m->tok.memory);
    rt_free(m->head.memory);
    rt_free(m->head.resident);
    rt_free(m->per_embd.memory);
    rt_free(m->per_proj.memory);
    for (int i = 0; i < m->ropes.n; i++) rt_free((double *)m->ropes.of[i].freq);
    free(m->layers);
    free(m);
}
