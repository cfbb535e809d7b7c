// bench/shape.c: makes models with random weights (see bench/shape.h).
//
// Every tensor is filled with random bytes, in pieces that fit the cache. Then its scales are set so that the elements
// of a matrix have mean 0 and mean square 1/n_in. The product of a row with a normalised vector is then about 1, as in
// a trained model, and activations stay finite through any number of layers. Exponent bits of floats are masked to
// valid values.
#include "bench/shape.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "formats/random_blocks.h"
#include "formats/types.h"

typedef struct {
    const char *name;
    int dim, layers, heads, kv_heads, ffn, vocab, head_dim, ctx, tied;
    int experts, used; // 0: llama; otherwise qwen3moe, ffn the width of one expert
    // full_every 0: all layers have attention. Otherwise each full_every-th layer has attention, and the others have a
    // state. width 0: the model is a qwen35, with gated attention and gated DeltaNet, whose heads have `state`
    // elements. Otherwise it is a granitehybrid: attention without RoPE, and Mamba-2 with key_heads groups and
    // value_heads heads of `width` elements
    int full_every, key_heads, value_heads, state, width;
    // 0: K and V as they are; otherwise deepseek2: a slot has kv_rank elements and `rot` rotated ones; V has v_dim
    int kv_rank, rot, v_dim;
} BenchShape;

// Shapes with a name, written as on the command line. `complete` gives all of them a context of 32768 tokens, which is
// longer than that of the models, so that depth can be measured.
static const struct {
    const char *name, *keys;
} presets[] = {
    // TinyLlama; Llama 3.2 1B; Llama 3.1 8B
    {"1.1b", "dim=2048,layers=22,heads=32,kv_heads=4,ffn=5632,vocab=32000"},
    {"1b", "dim=2048,layers=16,heads=32,kv_heads=8,ffn=8192,vocab=128256,tied=1"},
    {"8b", "dim=4096,layers=32,heads=32,kv_heads=8,ffn=14336,vocab=128256"},
    // OLMoE
    {"moe-7b-a1b", "dim=2048,layers=16,heads=16,kv_heads=16,ffn=1024,vocab=50304,experts=64,used=8"},
    // a 1B model like Qwen3.5
    {"delta-1b", "dim=2048,layers=16,heads=8,kv_heads=2,ffn=6144,vocab=128256,tied=1,full_every=4,key_heads=16,"
                 "value_heads=16,state=128"},
    // Granite 4.0 H 1B
    {"ssd-1b", "dim=1536,layers=40,heads=12,kv_heads=4,ffn=4096,vocab=100352,tied=1,full_every=10,key_heads=1,"
               "value_heads=48,state=128,width=64"},
    // DeepSeek-V2-Lite without its shared experts and its dense layer
    {"mla-16b-a2b", "dim=2048,layers=27,heads=16,kv_heads=16,ffn=1408,vocab=102400,head_dim=192,experts=64,used=6,"
                    "kv_rank=512,rot=64,v_dim=128"},
};

// ---- parsing a shape ------------------------------------------------------------------------------------------------

enum { N_BYTE_TOKENS = 3 + 256 }; // <unk> <s> </s> and the bytes: the smallest vocabulary

#define AT(field) offsetof(BenchShape, field)
static const struct {
    const char *key;
    size_t at;
    int least, most;
} keys[] = {
    {"experts", AT(experts), 0, 1024},
    {"used", AT(used), 0, 1024},
    {"dim", AT(dim), 1, 1 << 16},
    {"layers", AT(layers), 1, 1024},
    {"heads", AT(heads), 1, 1024},
    {"kv_heads", AT(kv_heads), 1, 1024},
    {"ffn", AT(ffn), 1, 1 << 20},
    {"vocab", AT(vocab), N_BYTE_TOKENS, 1 << 20},
    {"head_dim", AT(head_dim), 2, 512},
    {"ctx", AT(ctx), 1, 1 << 24},
    {"tied", AT(tied), 0, 1},
    {"full_every", AT(full_every), 0, 1024},
    {"key_heads", AT(key_heads), 1, 1024},
    {"value_heads", AT(value_heads), 1, 1024},
    {"state", AT(state), 1, 512},
    {"width", AT(width), 1, 512},
    {"kv_rank", AT(kv_rank), 0, 512},
    {"rot", AT(rot), 2, 512},
    {"v_dim", AT(v_dim), 1, 512},
};

#define SHAPE_FORMS                                                                                                    \
    "1.1b, 1b, 8b, moe-7b-a1b, delta-1b, ssd-1b, mla-16b-a2b, or "                                                     \
    "dim=..,layers=..,heads=..,ffn=..,vocab=..[,kv_heads=..][,head_dim=..][,ctx=..]"                                   \
    "[,tied=0|1][,experts=..,used=..][,full_every=..,key_heads=..,value_heads=..,state=..[,width=..]]"                 \
    "[,kv_rank=..,rot=..,v_dim=..], also after a name to change it: 8b,layers=4"

static Status set_key(BenchShape *s, const char *text, size_t n) {
    const char *equals = memchr(text, '=', n);
    size_t n_key = equals ? (size_t)(equals - text) : n;
    for (size_t i = 0; equals && i < ARRAY_LEN(keys); i++) {
        if (strlen(keys[i].key) != n_key || memcmp(keys[i].key, text, n_key) != 0) continue;
        char *end;
        long v = strtol(equals + 1, &end, 10);
        if (end != text + n || end == equals + 1 || v < keys[i].least || v > keys[i].most)
            return status_error(QUILL_USAGE, "--shape: %s: %d to %d expected, \"%.*s\" found", keys[i].key,
                                keys[i].least, keys[i].most, (int)(n - n_key - 1), equals + 1);
        memcpy((char *)s + keys[i].at, &(int){(int)v}, sizeof(int));
        return OK;
    }
    return status_error(QUILL_USAGE, "--shape: expected %s; found \"%.*s\"", SHAPE_FORMS, (int)(n < 64 ? n : 64), text);
}

// Fills in the keys that were not given, and checks that the keys fit together.
static Status complete(BenchShape *s) {
    const int required[] = {s->dim, s->layers, s->heads, s->ffn, s->vocab};
    const char *names[] = {"dim", "layers", "heads", "ffn", "vocab"};
    for (size_t i = 0; i < ARRAY_LEN(required); i++)
        if (!required[i])
            return status_error(QUILL_USAGE, "--shape: %s=N is missing; expected %s", names[i], SHAPE_FORMS);
    if (!s->kv_heads) s->kv_heads = s->heads;
    if (!s->ctx) s->ctx = 32768;
    if (s->used > s->experts || (s->experts && !s->used))
        return status_error(QUILL_USAGE, "--shape: used: 1 to experts=%d expected, %d found", s->experts, s->used);
    if (s->full_every && s->experts)
        return status_error(QUILL_USAGE, "--shape: full_every or experts expected, both found");
    if (s->full_every > 1 && (!s->key_heads || !s->value_heads || !s->state || s->value_heads % s->key_heads))
        return status_error(QUILL_USAGE,
                            "--shape: full_every=%d: key_heads, value_heads (a multiple of these) and state "
                            "expected, %d, %d and %d found",
                            s->full_every, s->key_heads, s->value_heads, s->state);
    if (s->width && !s->full_every)
        return status_error(QUILL_USAGE, "--shape: width=%d: full_every expected, none found", s->width);
    if (s->kv_rank && (s->full_every || s->rot % 2 || !s->rot || !s->v_dim || s->rot >= s->head_dim))
        return status_error(QUILL_USAGE,
                            "--shape: kv_rank=%d: rot (even, below head_dim=%d), v_dim and no full_every expected, "
                            "%d, %d and %d found",
                            s->kv_rank, s->head_dim, s->rot, s->v_dim, s->full_every);
    if (s->heads % s->kv_heads)
        return status_error(QUILL_USAGE, "--shape: kv_heads: a divisor of heads=%d expected, %d found", s->heads,
                            s->kv_heads);
    if (!s->head_dim && s->dim % s->heads)
        return status_error(QUILL_USAGE, "--shape: heads: a divisor of dim=%d expected, %d found; or give head_dim too",
                            s->dim, s->heads);
    if (!s->head_dim) s->head_dim = s->dim / s->heads;
    if (s->head_dim % 2 || s->head_dim > 512)
        return status_error(QUILL_USAGE, "--shape: head_dim: an even number up to 512 expected, %d found", s->head_dim);
    return OK;
}

static Status set_keys(BenchShape *s, const char *at) {
    for (size_t n;; at += n + 1) {
        n = strcspn(at, ",");
        TRY(set_key(s, at, n));
        if (!at[n]) return OK;
    }
}

static Status parse_shape(const char *text, BenchShape *s) {
    *s = (BenchShape){.name = "custom"};
    size_t n = strcspn(text, ",");
    for (size_t i = 0; i < ARRAY_LEN(presets); i++) {
        if (strlen(presets[i].name) != n || memcmp(presets[i].name, text, n) != 0) continue;
        TRY(set_keys(s, presets[i].keys));
        if (text[n]) TRY(set_keys(s, text + n + 1));
        else s->name = presets[i].name;
        return complete(s);
    }
    TRY(set_keys(s, text));
    return complete(s);
}

// ---- random bits ----------------------------------------------------------------------------------------------------

// A hash of the counter in two rounds of multiply and xor-shift. Not cryptographic.
static inline uint64_t random_bits(uint64_t counter) {
    uint64_t z = counter * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93u;
    return z ^ (z >> 29);
}

// Writes n bytes; each 8 bytes are (random & keep) + base.
static void fill(void *out, size_t n, uint64_t counter, uint64_t keep, uint64_t base) {
    uint8_t *p = out;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t v = (random_bits(counter++) & keep) + base;
        memcpy(p, &v, 8);
    }
    uint64_t v = (random_bits(counter) & keep) + base;
    memcpy(p, &v, n);
}

// ---- floats ---------------------------------------------------------------------------------------------------------

// Writes floats of `bits` bits with `mantissa` bits of mantissa. Sign, mantissa and the two low exponent bits are
// random, so magnitudes are in [1, 16) 2^k with a root mean square of 7.04 2^k; k is chosen to give `rms`.
static void fill_floats(void *out, size_t n_bytes, uint64_t counter, int bits, int mantissa, float rms) {
    int bias = bits == 16 && mantissa == 10 ? 15 : 127;
    int low = int_max(1, bias + (int)lrint(log2((double)rms / 7.04)));
    uint64_t keep = (uint64_t)1 << (bits - 1) | (((uint64_t)4 << mantissa) - 1), base = (uint64_t)low << mantissa;
    for (int i = bits; i < 64; i *= 2) { // repeat the masks for every float in 64 bits
        keep |= keep << i;
        base |= base << i;
    }
    fill(out, n_bytes, counter, keep, base);
}

// ---- blocks ---------------------------------------------------------------------------------------------------------

typedef struct {
    half_bits d, min;
} ScalePair;

// Makes 256 scales within 25% of the one that gives `rms`. Blocks choose among them, because conversion to half is
// slow.
static void make_scales(const BlockScales *r, float rms, ScalePair out[256]) {
    double centre = (double)rms / (double)r->rms;
    for (int i = 0; i < 256; i++) {
        float d = (float)(centre * (0.75 + (i / 2 + 0.5) / 256));
        out[i].d = random_blocks_d(r, r->signed_d && i % 2 ? -d : d);
        out[i].min = r->min_at >= 0 ? float_half(r->min_per_d * half_float(out[i].d)) : 0;
    }
}

static void fill_blocks(void *out, size_t n_blocks, int block_bytes, uint64_t counter, const BlockScales *r,
                        float rms) {
    enum { CHUNK = 32768 }; // bytes that are filled and then get their scales while they are in the cache
    ScalePair scales[256];
    make_scales(r, rms, scales);
    size_t a_chunk = (size_t)CHUNK / (size_t)block_bytes, n;
    for (uint8_t *p = out; n_blocks; n_blocks -= n, p += n * (size_t)block_bytes) {
        n = n_blocks < a_chunk ? n_blocks : a_chunk;
        fill(p, n * (size_t)block_bytes, counter, UINT64_MAX, 0);
        counter += CHUNK / 8;
        for (size_t i = 0; i < n; i++) {
            uint8_t *block = p + i * (size_t)block_bytes;
            const ScalePair *s = &scales[block[r->d_at]]; // chosen by the random byte at this place
            random_blocks_put_d(r, block, s->d);
            if (r->min_at >= 0) memcpy(block + r->min_at, &s->min, sizeof s->min);
        }
    }
}

// ---- tensors --------------------------------------------------------------------------------------------------------

enum { I8G_GROUP = 32 };

static size_t data_bytes(int type, size_t n) {
    const TypeInfo *info = type_info(type);
    return n / (size_t)info->block * (size_t)info->bytes;
}

static void fill_matrix(void *data, float *scales, int type, size_t n_in, size_t n, uint64_t counter) {
    const TypeInfo *info = type_info(type);
    float rms = 1 / sqrtf((float)n_in);
    if (type == TYPE_F32) fill_floats(data, 4 * n, counter, 32, 23, rms);
    else if (type == TYPE_F16) fill_floats(data, 2 * n, counter, 16, 10, rms);
    else if (type == TYPE_BF16) fill_floats(data, 2 * n, counter, 16, 7, rms);
    else if (type == TYPE_I8G) {
        fill(data, n, counter, UINT64_MAX, 0);
        for (size_t i = 0; i < n / I8G_GROUP; i++) scales[i] = rms / 73.9f;
    }
    const BlockScales *block = random_blocks_scales(type);
    if (block) fill_blocks(data, n / (size_t)info->block, info->bytes, counter, block, rms);
}

// State of a pass over all tensors in the order of the file. The first pass, without `pages`, only counts bytes; the
// second fills the tensors and adds them to the model.
typedef struct {
    Gguf *g;
    uint8_t *pages; // NULL: count only
    size_t at;      // bytes used so far
    int type;
    uint64_t seed;
    int n_tensors;
} Maker;

static void *take(Maker *k, size_t n) {
    void *p = k->pages ? k->pages + k->at : NULL;
    k->at += round_up(n, 64);
    return p;
}

// Adds a stack of n_stack matrices; 0: a single matrix.
static void add_stack(Maker *k, const char *name, int type, int n_in, int n_out, int n_stack) {
    size_t n = (size_t)n_in * (size_t)n_out * (size_t)(n_stack ? n_stack : 1);
    void *data = take(k, data_bytes(type, n));
    float *scales = type == TYPE_I8G ? take(k, n / I8G_GROUP * sizeof *scales) : NULL;
    uint64_t counter = k->seed + ((uint64_t)++k->n_tensors << 40);
    if (!k->pages) return;
    fill_matrix(data, scales, type, (size_t)n_in, n, counter);
    gguf_add_stack(k->g, name, type, (size_t)n_in, (size_t)n_out, (size_t)n_stack, data, scales,
                   scales ? I8G_GROUP : 0);
}

static void add_matrix(Maker *k, const char *name, int n_in, int n_out) { add_stack(k, name, k->type, n_in, n_out, 0); }

static void add_norm(Maker *k, const char *name, int n) {
    float *data = take(k, (size_t)n * sizeof *data);
    if (!k->pages) return;
    for (int i = 0; i < n; i++) data[i] = 1;
    gguf_add_tensor(k->g, name, TYPE_F32, (size_t)n, 0, data, NULL, 0);
}

static bool is_recurrent(const BenchShape *s, int layer) { return s->full_every && (layer + 1) % s->full_every; }

static bool gates_attention(const BenchShape *s) { return s->full_every && !s->width; }

// Elements of the values of a recurrent layer, and of what goes through its convolution.
static int inner_of(const BenchShape *s) { return s->value_heads * (s->width ? s->width : s->state); }
static int channels_of(const BenchShape *s) { return 2 * s->key_heads * s->state + inner_of(s); }

// Adds an F32 tensor of n x n_each numbers from v / 10 to v: decays and convolutions of a recurrent layer.
static void add_floats(Maker *k, const char *name, int n_each, int n, float v) {
    size_t all = (size_t)n_each * (size_t)(n ? n : 1);
    float *data = take(k, all * sizeof *data);
    if (!k->pages) return;
    for (size_t i = 0; i < all; i++) data[i] = v * (float)(1 + i % 10) / 10;
    gguf_add_tensor(k->g, name, TYPE_F32, (size_t)n_each, (size_t)n, data, NULL, 0);
}

enum { TAPS = 4 }; // of a recurrent layer's convolution

static void add_delta(Maker *k, const BenchShape *s, int i) {
    int inner = inner_of(s);
    const struct {
        const char *part;
        int n_in, n_out;
    } parts[] = {{"attn_qkv", s->dim, channels_of(s)},
                 {"attn_gate", s->dim, inner},
                 {"ssm_beta", s->dim, s->value_heads},
                 {"ssm_alpha", s->dim, s->value_heads},
                 {"ssm_out", inner, s->dim}};
    char name[64];
    for (size_t p = 0; p < ARRAY_LEN(parts); p++) {
        bool heads = parts[p].n_out == s->value_heads; // always F32
        snprintf(name, sizeof name, "blk.%d.%s.weight", i, parts[p].part);
        add_stack(k, name, heads ? TYPE_F32 : k->type, parts[p].n_in, parts[p].n_out, 0);
    }
    snprintf(name, sizeof name, "blk.%d.ssm_conv1d.weight", i);
    add_floats(k, name, TAPS, channels_of(s), 1);
    snprintf(name, sizeof name, "blk.%d.ssm_a", i);
    add_floats(k, name, s->value_heads, 0, -0.5f);
    snprintf(name, sizeof name, "blk.%d.ssm_dt.bias", i);
    add_floats(k, name, s->value_heads, 0, -1);
    snprintf(name, sizeof name, "blk.%d.ssm_norm.weight", i);
    add_norm(k, name, s->state);
}

static void add_ssd(Maker *k, const BenchShape *s, int i) {
    int inner = inner_of(s), heads = s->value_heads;
    char name[64];
    snprintf(name, sizeof name, "blk.%d.ssm_in.weight", i);
    add_matrix(k, name, s->dim, inner + channels_of(s) + heads);
    snprintf(name, sizeof name, "blk.%d.ssm_out.weight", i);
    add_matrix(k, name, inner, s->dim);
    const struct {
        const char *part;
        int n_each, n;
        float most;
    } parts[] = {{"ssm_conv1d.weight", TAPS, channels_of(s), 1},
                 {"ssm_conv1d.bias", channels_of(s), 0, 0.1f},
                 {"ssm_dt.bias", heads, 0, -1},
                 {"ssm_a", 1, heads, -0.5f},
                 {"ssm_d", 1, heads, 1},
                 {"ssm_norm.weight", inner / s->key_heads, s->key_heads, 1}};
    for (size_t p = 0; p < ARRAY_LEN(parts); p++) {
        snprintf(name, sizeof name, "blk.%d.%s", i, parts[p].part);
        add_floats(k, name, parts[p].n_each, parts[p].n, parts[p].most);
    }
}

// The matrices and norms of one layer that are not a recurrence.
static void add_layer(Maker *k, const BenchShape *s, int i) {
    bool attends = !is_recurrent(s, i), latent = s->kv_rank > 0, gated = gates_attention(s);
    int q_dim = s->heads * s->head_dim, kv_dim = s->kv_heads * s->head_dim, gates = gated ? 2 : 1;
    enum { ALL, DENSE, EXPERTS, ATTENDS, PLAIN, NORMED, LATENT };
    const bool has[] = {
        [ALL] = true,        [DENSE] = !s->experts,        [EXPERTS] = s->experts > 0,
        [ATTENDS] = attends, [PLAIN] = attends && !latent, [NORMED] = attends && !latent && (s->experts || gated),
        [LATENT] = latent};
    const struct {
        const char *part;
        int n_in, n_out; // n_out 0: a norm
        int of, stack;
    } parts[] = {
        {"attn_norm", s->dim, 0, ALL, 0},
        {"attn_q", s->dim, gates * q_dim, ATTENDS, 0},
        {"attn_k", s->dim, kv_dim, PLAIN, 0},
        {"attn_v", s->dim, kv_dim, PLAIN, 0},
        {"attn_kv_a_mqa", s->dim, s->kv_rank + s->rot, LATENT, 0},
        {"attn_kv_a_norm", s->kv_rank, 0, LATENT, 0},
        {"attn_k_b", s->head_dim - s->rot, s->kv_rank, LATENT, s->heads},
        {"attn_v_b", s->kv_rank, s->v_dim, LATENT, s->heads},
        {"attn_output", latent ? s->heads * s->v_dim : q_dim, s->dim, ATTENDS, 0},
        {gated ? "post_attention_norm" : "ffn_norm", s->dim, 0, ALL, 0},
        {"ffn_gate", s->dim, s->ffn, DENSE, 0},
        {"ffn_up", s->dim, s->ffn, DENSE, 0},
        {"ffn_down", s->ffn, s->dim, DENSE, 0},
        {"attn_q_norm", s->head_dim, 0, NORMED, 0},
        {"attn_k_norm", s->head_dim, 0, NORMED, 0},
        {"ffn_gate_inp", s->dim, s->experts, EXPERTS, 0},
        {"ffn_gate_exps", s->dim, s->ffn, EXPERTS, s->experts},
        {"ffn_up_exps", s->dim, s->ffn, EXPERTS, s->experts},
        {"ffn_down_exps", s->ffn, s->dim, EXPERTS, s->experts},
    };
    for (size_t p = 0; p < ARRAY_LEN(parts); p++) {
        char name[64];
        bool router = strcmp(parts[p].part, "ffn_gate_inp") == 0; // always F32
        if (!has[parts[p].of]) continue;
        snprintf(name, sizeof name, "blk.%d.%s.weight", i, parts[p].part);
        if (parts[p].n_out)
            add_stack(k, name, router ? TYPE_F32 : k->type, parts[p].n_in, parts[p].n_out, parts[p].stack);
        else add_norm(k, name, parts[p].n_in);
    }
    if (!attends) (s->width ? add_ssd : add_delta)(k, s, i);
}

static size_t add_tensors(Maker *k, const BenchShape *s) {
    add_matrix(k, "token_embd.weight", s->dim, s->vocab);
    add_norm(k, "output_norm.weight", s->dim);
    if (!s->tied) add_matrix(k, "output.weight", s->dim, s->vocab);
    for (int i = 0; i < s->layers; i++) add_layer(k, s, i);
    return k->at;
}

// ---- metadata -------------------------------------------------------------------------------------------------------

static const char *arch_of(const BenchShape *s) {
    return s->kv_rank      ? "deepseek2"
           : s->experts    ? "qwen3moe"
           : s->width      ? "granitehybrid"
           : s->full_every ? "qwen35"
                           : "llama";
}

static void set_count(Gguf *g, const BenchShape *s, const char *key, int n) {
    char name[64];
    snprintf(name, sizeof name, "%s.%s", arch_of(s), key);
    gguf_set_u32(g, name, (uint32_t)n);
}

static void set_recurrent(Gguf *g, const BenchShape *s) {
    set_count(g, s, "ssm.group_count", int_max(1, s->key_heads));
    set_count(g, s, "ssm.time_step_rank", int_max(1, s->value_heads));
    set_count(g, s, "ssm.state_size", int_max(1, s->state));
    set_count(g, s, "ssm.inner_size", int_max(1, inner_of(s)));
    set_count(g, s, "ssm.conv_kernel", TAPS);
    if (!s->width) {
        set_count(g, s, "full_attention_interval", s->full_every);
        return;
    }
    int32_t *kv_heads = mem_alloc((size_t)s->layers * sizeof *kv_heads);
    for (int i = 0; i < s->layers; i++) kv_heads[i] = is_recurrent(s, i) ? 0 : s->kv_heads;
    gguf_set_ints(g, "granitehybrid.attention.head_count_kv", kv_heads, (size_t)s->layers);
    gguf_set_bool(g, "granitehybrid.rope.scaling.finetuned", false); // attention without RoPE
    free(kv_heads);
}

static void set_hyper(Gguf *g, const BenchShape *s, int type) {
    char name[64];
    const char *arch = arch_of(s);
    snprintf(name, sizeof name, "random-%s-%s", s->name, type_name(type));
    gguf_set_str(g, "general.architecture", arch);
    gguf_set_str(g, "general.name", name);
    gguf_set_u32(g, "general.quantization_version", 2);
    set_count(g, s, "context_length", s->ctx);
    set_count(g, s, "embedding_length", s->dim);
    set_count(g, s, "block_count", s->layers);
    set_count(g, s, "feed_forward_length", s->ffn);
    if (s->experts) {
        set_count(g, s, "expert_feed_forward_length", s->ffn);
        set_count(g, s, "expert_count", s->experts);
        set_count(g, s, "expert_used_count", s->used);
    }
    set_count(g, s, "attention.head_count", s->heads);
    if (!s->width) set_count(g, s, "attention.head_count_kv", s->kv_heads);
    set_count(g, s, "attention.key_length", s->head_dim);
    set_count(g, s, "attention.value_length", s->head_dim);
    snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_set_f32(g, name, 1e-5f);
    set_count(g, s, "rope.dimension_count",
              s->kv_rank           ? s->rot
              : gates_attention(s) ? s->head_dim / 4 / 2 * 2
                                   : s->head_dim);
    if (s->full_every) set_recurrent(g, s);
    if (s->kv_rank) {
        set_count(g, s, "attention.kv_lora_rank", s->kv_rank);
        set_count(g, s, "attention.key_length_mla", s->head_dim);
        set_count(g, s, "attention.value_length_mla", s->v_dim);
    }
    snprintf(name, sizeof name, "%s.rope.freq_base", arch);
    gguf_set_f32(g, name, 500000);
    set_count(g, s, "vocab_size", s->vocab);
}

// The i-th piece after the byte tokens: the word mark, printable ASCII, then different words of two or more letters.
static void filler_piece(int i, Buf *out) {
    out->n = 0;
    if (i == 0) buf_str(out, "\xe2\x96\x81"); // U+2581, SentencePiece's space
    else if (i < 95) buf_printf(out, "%c", ' ' + i);
    else {
        int n_letters = 2, n_words = 26 * 26;
        for (i -= 95; i >= n_words; n_letters++) {
            i -= n_words;
            n_words *= 26;
        }
        char word[8] = {0};
        for (int k = n_letters; k-- > 0; i /= 26) word[k] = (char)('a' + i % 26);
        buf_str(out, word);
    }
}

enum { PIECE_NORMAL = 1, PIECE_UNKNOWN = 2, PIECE_CONTROL = 3, PIECE_BYTE = 6 }; // token types of GGUF

static void set_vocabulary(Gguf *g, int n) {
    Buf text = {0}, piece = {0}; // text: all pieces, 16 bytes each
    Str *pieces = mem_alloc((size_t)n * sizeof *pieces);
    float *scores = mem_alloc((size_t)n * sizeof *scores);
    int32_t *types = mem_alloc((size_t)n * sizeof *types);
    static const char *const specials[] = {"<unk>", "<s>", "</s>"};
    for (int i = 0; i < n; i++) {
        bool is_byte = i >= 3 && i < N_BYTE_TOKENS;
        piece.n = 0;
        if (i < 3) buf_str(&piece, specials[i]);
        else if (is_byte) buf_printf(&piece, "<0x%02X>", i - 3);
        else filler_piece(i - N_BYTE_TOKENS, &piece);
        types[i] = i == 0 ? PIECE_UNKNOWN : i < 3 ? PIECE_CONTROL : is_byte ? PIECE_BYTE : PIECE_NORMAL;
        scores[i] = i < N_BYTE_TOKENS ? 0 : (float)(N_BYTE_TOKENS - i);
        pieces[i].n = piece.n;
        buf_append(&text, piece.data, piece.n);
    }
    size_t at = 0;
    for (int i = 0; i < n; at += pieces[i++].n) pieces[i].data = text.data + at;
    gguf_set_str(g, "tokenizer.ggml.model", "llama");
    gguf_set_strings(g, "tokenizer.ggml.tokens", pieces, (size_t)n);
    gguf_set_floats(g, "tokenizer.ggml.scores", scores, (size_t)n);
    gguf_set_ints(g, "tokenizer.ggml.token_type", types, (size_t)n);
    gguf_set_u32(g, "tokenizer.ggml.unknown_token_id", 0);
    gguf_set_u32(g, "tokenizer.ggml.bos_token_id", 1);
    gguf_set_u32(g, "tokenizer.ggml.eos_token_id", 2);
    gguf_set_bool(g, "tokenizer.ggml.add_bos_token", true);
    gguf_set_bool(g, "tokenizer.ggml.add_eos_token", false);
    free(pieces);
    free(scores);
    free(types);
    buf_free(&text);
    buf_free(&piece);
}

// ---- the model ------------------------------------------------------------------------------------------------------

static Status check_rows(const BenchShape *s, const TypeInfo *info) {
    int unit = info->id == TYPE_I8G ? I8G_GROUP : info->block;
    const int rows[] = {s->dim,
                        s->ffn,
                        s->heads * s->head_dim,
                        inner_of(s),
                        s->kv_rank,
                        s->v_dim,
                        s->kv_rank ? s->head_dim - s->rot : 0};
    const char *names[] = {
        "dim",     "ffn",   "heads * head_dim", s->width ? "value_heads * width" : "value_heads * state",
        "kv_rank", "v_dim", "head_dim - rot"};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i] % unit)
            return status_error(QUILL_USAGE, "--shape: %s: a multiple of %d expected for --type %s, %d found", names[i],
                                unit, info->name, rows[i]);
    return OK;
}

Status shape_model(const char *shape, int type, uint64_t seed, Gguf **out) {
    *out = NULL;
    const TypeInfo *info = type_info(type);
    if (!info)
        return status_error(QUILL_USAGE, "--type: one of %s expected, %s found", type_name_list(), type_name(type));
    BenchShape s;
    TRY(parse_shape(shape, &s));
    TRY(check_rows(&s, info));
    // The table of keys bounds every factor, so no sum of products can overflow.
    size_t n = add_tensors(&(Maker){.type = type}, &s), available = memory_available();
    if (n > available)
        return status_error(QUILL_MEMORY,
                            "--shape %s in %s: %.2f GB needed, %.2f GB available; try fewer layers=", shape, info->name,
                            (double)n * 1e-9, (double)available * 1e-9);
    void *pages = pages_alloc(n, true);
    if (!pages) return status_error(QUILL_MEMORY, "--shape %s: %zu bytes were refused by the system", shape, n);
    Gguf *g = gguf_new(shape);
    gguf_own_pages(g, pages, n);
    set_hyper(g, &s, type);
    set_vocabulary(g, s.vocab);
    add_tensors(&(Maker){.g = g, .pages = pages, .type = type, .seed = seed}, &s);
    *out = g;
    return OK;
}
