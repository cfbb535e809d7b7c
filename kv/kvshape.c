// kv/kvshape.c: see kv/kvshape.h.
#include "kv/kvshape.h"

void kvshape_set_layers(KvShape *s, const Layer *layers, int n) {
    s->n_layers = s->n_windowed = s->window = s->chunked = s->n_kv_heads = s->head_dim = s->v_dim = 0;
    int n_full = 0;
    s->window_heads = s->window_dim = 0;
    s->v_in_k = false;
    s->n_recurrent = 0;
    for (int i = 0; i < n; i++) {
        const Layer *l = &layers[i];
        const Heads *h = &l->heads;
        if (mixer_is_recurrent(l->kind.mixer)) {
            s->n_recurrent++;
            s->rec = l->rec;
        }
        if (!layer_owns_kv(l)) continue;
        s->v_in_k = l->kind.mixer == MIXER_LATENT;
        if (l->kv_kind == KV_WINDOW) {
            s->n_windowed = int_max(s->n_windowed, l->kv_layer + 1);
            s->window = h->window, s->chunked = h->chunked, s->window_heads = h->n_kv_heads,
            s->window_dim = h->head_dim;
        } else {
            n_full = int_max(n_full, l->kv_layer + 1);
            s->n_kv_heads = h->n_kv_heads, s->head_dim = h->head_dim, s->v_dim = heads_v_dim(h);
        }
    }
    s->n_layers = n_full + s->n_windowed;
    if (n_full > 0) return;
    s->n_kv_heads = s->window_heads; // every layer has a window
    s->head_dim = s->v_dim = s->window_dim;
}

void kvshape_set_device(KvShape *s, const Layer *layers, int n, int n_device) {
    s->n_device = s->n_windowed_device = s->n_recurrent_device = 0;
    for (int i = n - n_device; i < n; i++) {
        s->n_recurrent_device += mixer_is_recurrent(layers[i].kind.mixer);
        if (!layer_owns_kv(&layers[i])) continue;
        s->n_device++;
        s->n_windowed_device += layers[i].kv_kind == KV_WINDOW;
    }
}

static int block_slots(const KvShape *s) { return s->block > 0 ? s->block : s->n_ctx; }

int kvshape_blocks_of_one(const KvShape *s) {
    int block = block_slots(s);
    return (int)(((int64_t)s->n_ctx + block - 1) / block);
}

static int block_count(const KvShape *s) {
    return s->n_blocks > 0 ? s->n_blocks : (int)((int64_t)kvshape_blocks_of_one(s) * s->n_seqs);
}

static int kind_layers(const KvShape *s, int kind) {
    return kind == KV_WINDOW ? s->n_windowed : s->n_layers - s->n_windowed;
}

static int kind_device_layers(const KvShape *s, int kind) {
    return kind == KV_WINDOW ? s->n_windowed_device : s->n_device - s->n_windowed_device;
}

static bool few_partners(const KvShape *s) { return s->n_partners > 0 && !s->keep_partners; }

static int kind_blocks(const KvShape *s, int kind) {
    return kind == KV_WINDOW && few_partners(s) ? int_min(s->n_partners, block_count(s)) : block_count(s);
}

int64_t kvshape_partners_of_one(int window, int block) { return ((int64_t)window + SEAL + block - 1) / block + 3; }

int kvshape_partners_needed(const KvShape *s, int step_rows) {
    int size = block_slots(s);
    int64_t n = s->n_seqs * kvshape_partners_of_one(s->window, size) + (step_rows + size - 1) / size;
    return n < block_count(s) ? (int)n : block_count(s);
}

static int kind_heads(const KvShape *s, int kind) {
    return kind == KV_WINDOW && s->window_heads > 0 ? s->window_heads : s->n_kv_heads;
}

static int kind_k_dim(const KvShape *s, int kind) {
    return kind == KV_WINDOW && s->window_dim > 0 ? s->window_dim : s->head_dim;
}

static int kind_v_dim(const KvShape *s, int kind) {
    if (kind == KV_WINDOW && s->window_dim > 0) return s->window_dim;
    return s->v_dim > 0 ? s->v_dim : s->head_dim;
}

// Bytes of one slot of one head in one plane, K or V.
static size_t head_bytes(const KvShape *s, int kind, bool value) {
    if (value) return s->v_in_k ? 0 : kv_slot_bytes(s->type_v, kind_v_dim(s, kind));
    return kv_slot_bytes(s->type_k, kind_k_dim(s, kind));
}

// Bytes of K or V in n_layers layers of a kind.
static size_t plane_bytes(const KvShape *s, int kind, int n_layers, bool value) {
    size_t n = head_bytes(s, kind, value);
    int factors[] = {n_layers, kind_blocks(s, kind), kind_heads(s, kind), block_slots(s)};
    for (size_t i = 0; i < ARRAY_LEN(factors); i++)
        if (!size_mul(n, (size_t)factors[i], &n)) return SIZE_MAX;
    return n;
}

// Tail pages: one per sequence, and a second one for up to 16 sequences whose step crosses a group's end.
static int tail_count(const KvShape *s) {
    if (!kv_any_sealed(s->type_k, s->type_v)) return 0;
    int n_seqs = int_max(1, s->n_seqs);
    return int_min(block_count(s), n_seqs + int_min(n_seqs, 16));
}

// Bytes of the tail pages of K or V in n_layers layers.
static size_t tail_plane_bytes(const KvShape *s, int kind, int n_layers, bool value) {
    int dim = value ? kind_v_dim(s, kind) : kind_k_dim(s, kind);
    if (!kv_is_sealed(value ? s->type_v : s->type_k) || (value && s->v_in_k)) return 0;
    return (size_t)tail_count(s) * (size_t)n_layers * (size_t)kind_heads(s, kind) * SEAL * (size_t)dim * sizeof(float);
}

static size_t tail_bytes(const KvShape *s, int kind, int n_layers) {
    return tail_plane_bytes(s, kind, n_layers, false) + tail_plane_bytes(s, kind, n_layers, true);
}

// Bytes of K, V and tail pages in n_layers layers of a kind.
static size_t kind_bytes(const KvShape *s, int kind, int n_layers) {
    size_t n, k = plane_bytes(s, kind, n_layers, false), v = plane_bytes(s, kind, n_layers, true);
    size_t tails = tail_bytes(s, kind, n_layers);
    return size_add(k, v, &n) && size_add(n, tails, &n) ? n : SIZE_MAX;
}

int kvshape_states_of_one(const KvShape *s) { return s->n_back > 0 ? s->n_back + 2 : 1; } // one is for the next rows

StatePool kvshape_states(const KvShape *s) {
    int n_owned = int_max(1, s->n_seqs) * kvshape_states_of_one(s);
    return (StatePool){.n_layers = s->n_recurrent,
                       .n_states = s->n_recurrent > 0 ? n_owned + s->n_checkpoints : 0,
                       .floats = s->n_recurrent > 0 ? recurrence_floats(&s->rec) : 0,
                       .n_device = s->n_recurrent_device,
                       .be = s->be};
}

size_t kvshape_one_state_bytes(const KvShape *s) {
    return (size_t)s->n_recurrent * kvshape_states(s).floats * sizeof(float);
}

size_t kvshape_state_bytes(const KvShape *s) {
    size_t n;
    return size_mul(kvshape_one_state_bytes(s), (size_t)kvshape_states(s).n_states, &n) ? n : SIZE_MAX;
}

size_t kvshape_bytes(const KvShape *s) {
    size_t n, full = kind_bytes(s, KV_FULL, kind_layers(s, KV_FULL));
    if (!size_add(full, kind_bytes(s, KV_WINDOW, kind_layers(s, KV_WINDOW)), &n)) return SIZE_MAX;
    return size_add(n, kvshape_state_bytes(s), &n) ? n : SIZE_MAX;
}

size_t kvshape_host_bytes(const KvShape *s) {
    if (kvshape_bytes(s) == SIZE_MAX) return SIZE_MAX;
    size_t n = 0;
    for (int kind = 0; kind < KV_KINDS; kind++)
        n += kind_bytes(s, kind, kind_layers(s, kind) - kind_device_layers(s, kind));
    StatePool p = kvshape_states(s);
    return n + (size_t)(p.n_layers - p.n_device) * (size_t)p.n_states * p.floats * sizeof(float);
}

static size_t slot_bytes(const KvShape *s, int kind, int n_layers) {
    return (head_bytes(s, kind, false) + head_bytes(s, kind, true)) * (size_t)n_layers * (size_t)kind_heads(s, kind);
}

size_t kvshape_bytes_per_slot(const KvShape *s) {
    return slot_bytes(s, KV_FULL, kind_layers(s, KV_FULL)) + slot_bytes(s, KV_WINDOW, kind_layers(s, KV_WINDOW));
}

// The fixed bytes of some layers: of KV_FULL, of KV_WINDOW and recurrent ones.
static size_t fixed_bytes(const KvShape *s, int n_full, int n_windowed, int n_recurrent) {
    StatePool p = kvshape_states(s);
    size_t tails = tail_bytes(s, KV_FULL, n_full) + tail_bytes(s, KV_WINDOW, n_windowed), states;
    size_t blocks = (size_t)kind_blocks(s, KV_WINDOW) * (size_t)block_slots(s);
    if (!size_mul((size_t)n_recurrent * p.floats * sizeof(float), (size_t)p.n_states, &states)) return SIZE_MAX;
    return tails + states + (few_partners(s) ? slot_bytes(s, KV_WINDOW, n_windowed) * blocks : 0);
}

size_t kvshape_fixed_bytes(const KvShape *s) {
    return fixed_bytes(s, kind_layers(s, KV_FULL), s->n_windowed, s->n_recurrent);
}

size_t kvshape_host_fixed_bytes(const KvShape *s) {
    return fixed_bytes(s, kind_layers(s, KV_FULL) - kind_device_layers(s, KV_FULL),
                       s->n_windowed - s->n_windowed_device, s->n_recurrent - s->n_recurrent_device);
}

size_t kvshape_bytes_per_growth(const KvShape *s) {
    return few_partners(s) ? slot_bytes(s, KV_FULL, kind_layers(s, KV_FULL)) : kvshape_bytes_per_slot(s);
}

size_t kvshape_host_bytes_per_growth(const KvShape *s) {
    size_t n = slot_bytes(s, KV_FULL, kind_layers(s, KV_FULL) - kind_device_layers(s, KV_FULL));
    if (few_partners(s)) return n;
    return n + slot_bytes(s, KV_WINDOW, kind_layers(s, KV_WINDOW) - kind_device_layers(s, KV_WINDOW));
}

KvPool kvshape_pool(const KvShape *s, int kind) {
    int n_host = kind_layers(s, kind) - kind_device_layers(s, kind);
    return (KvPool){.kind = kind,
                    .n_layers = kind_layers(s, kind),
                    .n_blocks = kind_blocks(s, kind),
                    .n_kv_heads = kind_heads(s, kind),
                    .block = block_slots(s),
                    .head_dim = kind_k_dim(s, kind),
                    .v_dim = kind_v_dim(s, kind),
                    .v_in_k = s->v_in_k,
                    .type_k = s->type_k,
                    .type_v = s->type_v,
                    .rotate = s->rotate,
                    .n_tails = tail_count(s),
                    .bytes_k = plane_bytes(s, kind, n_host, false),
                    .bytes_v = plane_bytes(s, kind, n_host, true),
                    .n_device = kind_device_layers(s, kind),
                    .be = s->be};
}
