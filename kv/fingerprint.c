// kv/fingerprint.c: see kv/fingerprint.h.
#include "kv/fingerprint.h"

#define XXH_STATIC_LINKING_ONLY // needed for a hash state on the stack
#include <xxhash.h>

enum {
    PIECE = 65536,
    N_PIECES = 16, // pieces that are hashed of a large tensor: 1 MiB
};

static void add(XXH3_state_t *hash, const void *bytes, size_t n) { XXH3_64bits_update(hash, bytes, n); }
static void add_u64(XXH3_state_t *hash, uint64_t v) { add(hash, &v, sizeof v); }
static void add_f32(XXH3_state_t *hash, float v) { add(hash, &v, sizeof v); }
static void add_str(XXH3_state_t *hash, Str s) {
    add_u64(hash, s.n);
    add(hash, s.data, s.n);
}

// Hashes all bytes of a small tensor, or evenly spaced pieces of a large one from its first byte to its last. Pieces
// suffice, since training changes every part of a matrix; reading all of a large model would take as long as computing
// the prompt.
static void add_sample(XXH3_state_t *hash, const uint8_t *data, size_t n) {
    if (n <= (size_t)PIECE * N_PIECES) {
        add(hash, data, n);
        return;
    }
    for (size_t i = 0; i < N_PIECES; i++) add(hash, data + (n - PIECE) * i / (N_PIECES - 1), PIECE);
}

static void add_tensor(XXH3_state_t *hash, const GgufTensor *t) {
    add_str(hash, t->name);
    add_u64(hash, (uint64_t)t->type);
    for (size_t i = 0; i < ARRAY_LEN(t->dims); i++) add_u64(hash, t->dims[i]);
    add_sample(hash, t->data, t->n_bytes);
    if (t->group) add_sample(hash, (const uint8_t *)t->scales, t->n_bytes / (size_t)t->group * sizeof(float));
}

// Heads, LayerKind up to eps_out, and Recurrence consist of words without padding and are hashed as bytes. A new field
// of a layer fails these assertions: hash it here if it influences K and V. Fields that are 0 in the families that they
// are not for are hashed only where they are not 0, so that saved KV of these families stays valid.
_Static_assert(sizeof(Heads) == 8 * 4, "Heads is words of 4 bytes without padding");
_Static_assert(sizeof(LayerKind) == 19 * 4, "LayerKind is words of 4 bytes without padding");
_Static_assert(sizeof(Recurrence) == 7 * 4, "Recurrence is words of 4 bytes without padding");
_Static_assert(sizeof(Rope) == (7 * 4 + 7) / 8 * 8 + sizeof(const double *), "add_rope hashes every field of Rope");
_Static_assert(
    sizeof(Layer) == (sizeof(LayerKind) + sizeof(Heads) + sizeof(Recurrence) + 7) / 8 * 8 + sizeof(Rope) +
                         21 * sizeof(Tensor) + 22 * sizeof(const float *) + 6 * sizeof(int) + 2 * sizeof(void *),
    "add_layer hashes what decides K and V; weights are tensors that model_uses names; index, kv_kind, "
    "state_layer and kv_used_later follow from the layers' order, kinds and windows; host_ffn decides where, not what");
_Static_assert(sizeof(Ends) == 5 * sizeof(Tensor) + 4 * sizeof(const float *) + 4 * sizeof(float) +
                                   ROPE_TABLES * sizeof(Rope) + 4 * sizeof(int),
               "add_ends hashes what decides K and V; the norm and the head come after all K and V");

static void add_layer(XXH3_state_t *hash, const Layer *l) {
    const bool norms[] = {l->norm_att,     l->norm_ffn,     l->norm_q,          l->norm_k,
                          l->norm_att_out, l->norm_ffn_out, l->sinks,           l->norm_v,
                          l->norm_q_a,     l->norm_per,     l->norm_router,     l->norm_experts,
                          l->expert_bias,  l->expert_scale, l->norm_shared_out, l->norm_experts_out};
    add(hash, &l->kind, offsetof(LayerKind, eps_out));
    if (l->kind.eps_out != 0) add_f32(hash, l->kind.eps_out); // files from before this field stay valid
    if (l->kind.centred || l->kind.parallel) add_u64(hash, (uint64_t)(l->kind.centred + 2 * l->kind.parallel));
    const Xielu *x = &l->kind.xielu;
    if (x->p != 0 || x->n != 0 || x->b != 0) add(hash, x, sizeof *x);
    add(hash, &l->heads, offsetof(Heads, chunked));
    if (l->heads.chunked) add_u64(hash, 1);
    if (mixer_is_recurrent(l->kind.mixer)) add(hash, &l->rec, sizeof l->rec);
    add(hash, norms, sizeof norms);
    add_u64(hash, (uint64_t)l->rope.table);
    add_u64(hash, (uint64_t)l->kv_layer); // layers may share one
    add_u64(hash, layer_owns_kv(l) + 2 * (l->wv.data != NULL));
}

static void add_ends(XXH3_state_t *hash, const Ends *e) {
    add_f32(hash, e->embd_scale);
    if (e->embd_eps != 0) add_f32(hash, e->embd_eps);
    add_u64(hash, (uint64_t)e->per);
}

static void add_model(XXH3_state_t *hash, const Model *m) {
    const ModelConfig *c = &m->c;
    const int shape[] = {c->n_layers, c->dim, c->ffn, c->n_vocab};
    add_str(hash, str_of(c->arch));
    for (size_t i = 0; i < ARRAY_LEN(shape); i++) add_u64(hash, (uint64_t)shape[i]);
    add_ends(hash, &m->ends);
    for (int i = 0; i < c->n_layers; i++) add_layer(hash, &m->layers[i]);
    for (int i = 0; i < gguf_n_tensors(m->gguf); i++)
        if (model_uses(m, i)) add_tensor(hash, gguf_tensor_at(m->gguf, i));
}

static void add_tokenizer(XXH3_state_t *hash, const Model *m) {
    for (int i = 0; i < gguf_n_values(m->gguf); i++) {
        const GgufValue *v = gguf_value_at(m->gguf, i);
        if (!str_has_prefix(v->key, "tokenizer.ggml.") && !str_has_prefix(v->key, "quill.tokenizer.")) continue;
        add_str(hash, v->key);
        add_u64(hash, (uint64_t)v->elem_type);
        add_str(hash, (Str){(const char *)v->data, v->n_bytes});
    }
}

// Hashes frequencies in f32, so that last-bit differences of pow() between machines do not change the fingerprint.
static void add_rope(XXH3_state_t *hash, const Model *m) {
    for (int k = 0; k < m->ends.n_ropes; k++) {
        const Rope *r = &m->ends.ropes[k];
        const int words[] = {r->table, r->n_rot, r->adjacent, r->span};
        for (size_t i = 0; i < ARRAY_LEN(words); i++) add_u64(hash, (uint64_t)words[i]);
        add_f32(hash, r->mscale);
        add_f32(hash, r->temperature);
        if (r->ahead) add_u64(hash, (uint64_t)r->ahead);
        for (int i = 0; i < r->n_rot / 2; i++) add_f32(hash, (float)r->freq[i]);
    }
}

static uint64_t digest(const Model *m, void (*add_all)(XXH3_state_t *, const Model *)) {
    XXH3_state_t hash;
    XXH3_INITSTATE(&hash);
    XXH3_64bits_reset(&hash);
    add_all(&hash, m);
    return XXH3_64bits_digest(&hash);
}

KvHead fingerprint(const Model *m, const KvPool kv[KV_KINDS]) {
    const KvPool *full = &kv[KV_FULL], *window = &kv[KV_WINDOW];
    bool windowed = window->n_layers > 0;
    return (KvHead){.model = digest(m, add_model),
                    .tokenizer = digest(m, add_tokenizer),
                    .rope = digest(m, add_rope),
                    .type_k = (uint32_t)kv->type_k,
                    .type_v = (uint32_t)kv->type_v,
                    .exactness = KV_EXACT,
                    .n_layers = (uint32_t)kv_n_layers(kv),
                    .n_kv_heads = (uint32_t)full->n_kv_heads,
                    .head_dim = (uint32_t)full->head_dim,
                    .v_dim = full->v_in_k ? 0 : (uint32_t)kv_v_dim(full),
                    .n_windowed = (uint32_t)window->n_layers,
                    .window_heads = windowed ? (uint32_t)window->n_kv_heads : 0,
                    .window_dim = windowed ? (uint32_t)window->head_dim : 0,
                    .window_v_dim = windowed && !window->v_in_k ? (uint32_t)kv_v_dim(window) : 0,
                    .group = kv_group(kv->type_k, kv->type_v),
                    .rotated = kv->rotate};
}
