// tests/test_memory.c: the memory of a context of 32k tokens: what the plan, --dry-run and `quill inspect` compute is
// what is allocated, to the byte, and what the layers of the model need.
// Counts the bytes of every allocation that follows the model or the user's flags. The test's own pages_alloc takes the
// place of that in the library.
#define pages_alloc system_pages_alloc
#include "base/pages.c"
#undef pages_alloc

#include "tests/rig/testing.h"

#include "costs.h"
#include "engine.h"
#include "memory_plan.h"
#include "tests/rig/tiny_model.h"

static size_t n_allocated;

void *pages_alloc(size_t n, bool huge);
void *pages_alloc(size_t n, bool huge) {
    n_allocated += n;
    return system_pages_alloc(n, huge);
}

enum { CTX = 32768, BLOCK = 32, ROWS = 512 };

static const TinyModel models[] = {{.arch = "qwen3next", .n_layers = 6},
                                   {.arch = "qwen35", .n_layers = 6},
                                   {.arch = "qwen35moe", .n_layers = 3},
                                   {.arch = "lfm2", .n_layers = 6},
                                   {.arch = "granitehybrid", .n_layers = 6},
                                   {.arch = "nemotron_h_moe", .n_layers = 6},
                                   {.arch = "gemma4", .n_layers = 7, .n_heads = 4, .head_dim = 32},
                                   {.arch = "gemma4", .n_layers = 7, .n_experts = 6},
                                   {.arch = "deepseek2", .n_layers = 3, .kv_rank = 64, .head_dim = 32, .n_rot = 16},
                                   {.arch = "deepseek2", .q_rank = 27, .kv_rank = 48, .head_dim = 32, .n_rot = 16},
                                   {.arch = "llama"}};

static Gguf *model_at(size_t i) {
    TinyModel shape = models[i];
    shape.ctx = CTX;
    shape.seed = 3 + i;
    return tiny_model(&shape);
}

static EngineConfig config_of(int type, bool paged, bool dry_run) {
    return (EngineConfig){.device = "cpu",
                          .quiet = true,
                          .threads = 2,
                          .ctx_size = CTX,
                          .type_k = type,
                          .type_v = type,
                          .paged = paged,
                          .kv_block = BLOCK,
                          .dry_run = dry_run};
}

// ---- what the layers need -------------------------------------------------------------------------------------------

// Bytes of K and V of one slot of a layer in f32 or f16, from the definition of its mixer.
static size_t slot_of(const Layer *l, int type) {
    size_t k = (size_t)l->heads.n_kv_heads * (size_t)l->heads.head_dim, size = type == TYPE_F32 ? 4 : 2;
    return l->kind.mixer == MIXER_LATENT ? k * size : 2 * k * size;
}

// Bytes of the state of one sequence in a recurrent layer.
static size_t state_of(const Layer *l) {
    const Recurrence *r = &l->rec;
    return ((size_t)(r->taps - 1) * (size_t)r->channels +
            (size_t)r->n_values * (size_t)r->key_dim * (size_t)r->value_dim) *
           sizeof(float);
}

// Bytes of a cache for n_seqs contexts: all slots of the layers that see them all, the window's blocks of the others,
// and the states. Checkpoints take a quarter of the memory of K and V of a context, but are at least 8 and at most 64.
static size_t cache_of(const Model *m, int type, int n_seqs) {
    size_t full = 0, window = 0, state = 0, n = (size_t)n_seqs;
    for (int i = 0; i < m->c.n_layers; i++) {
        const Layer *l = &m->layers[i];
        if (mixer_is_recurrent(l->kind.mixer)) state += state_of(l);
        else if (layer_owns_kv(l)) *(l->heads.window ? &window : &full) += slot_of(l, type);
    }
    size_t most = state ? (full + window) * CTX / 4 / state : 0, states = n + (most < 8 ? 8 : most > 64 ? 64 : most);
    // a window of w slots lies in (w + a sealed group) / block blocks, plus one at either end and one being freed
    size_t blocks = n * (size_t)((m->c.window + SEAL + BLOCK - 1) / BLOCK + 3) + ROWS / BLOCK;
    return full * CTX * n + window * blocks * BLOCK + state * states;
}

// ---- plans and allocations ------------------------------------------------------------------------------------------

static void check_engine(size_t at, int type, bool paged, int n_seqs) {
    EngineNeeds needs = {.n_seqs = n_seqs};
    EngineConfig dry = config_of(type, paged, true), real = config_of(type, paged, false);
    Engine planned, e;
    assert_ok(engine_open_view(&planned, &dry, needs, model_at(at)));
    Gguf *g = model_at(at);
    n_allocated = 0;
    assert_ok(engine_open_view(&e, &real, needs, g));
    const char *arch = e.model.c.arch;
    size_t kv = kvshape_bytes(&e.shape), taken = 0;
    if (n_allocated != kv + e.scratch)
        fail_msg("%s, KV %s: %zu bytes of KV and states and %zu of scratch planned, %zu allocated", arch,
                 type_name(type), kv, e.scratch, n_allocated);
    assert_int_equal(e.work.n_bytes, e.scratch);
    assert_int_equal(kvshape_bytes(&planned.shape), kv);
    assert_int_equal(planned.scratch, e.scratch);
    assert_int_equal(kvshape_host_bytes(&e.shape), kv);
    for (int kind = 0; kind < KV_KINDS; kind++) {
        const KvPool *p = &e.kv.pool[kind];
        taken += p->bytes_k + (p->v_in_k ? 0 : p->bytes_v);
    }
    taken += kvshape_state_bytes(&e.shape);
    if (!kv_is_sealed(type)) assert_int_equal(taken, kv);
    if (!kv_is_sealed(type) && cache_of(&e.model, type, n_seqs) != kv)
        fail_msg("%s, KV %s: the layers need %zu bytes, %zu planned", arch, type_name(type),
                 cache_of(&e.model, type, n_seqs), kv);
    engine_close(&planned);
    engine_close(&e);
}

static void test_allocated_as_planned(void **state) {
    (void)state;
    static const int types[] = {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_Q8_0, TYPE_KIVI2};
    for (size_t i = 0; i < ARRAY_LEN(models); i++)
        for (size_t t = 0; t < ARRAY_LEN(types); t++)
            for (int paged = 0; paged < 2; paged++) check_engine(i, types[t], paged, 1 + 2 * paged);
}

// ---- inspect --------------------------------------------------------------------------------------------------------

// `inspect` shows what a run with the default options allocates.
static void test_inspect_shows_the_same(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        EngineConfig config = config_of(KV_TYPE_AUTO, false, true);
        Engine e;
        assert_ok(engine_open_view(&e, &config, (EngineNeeds){.n_seqs = 1}, model_at(i)));
        KvShape s = memory_plan_default_shape(&e.model, CTX, ROWS);
        assert_int_equal(kvshape_bytes(&s), kvshape_bytes(&e.shape));
        assert_int_equal(kvshape_state_bytes(&s), kvshape_state_bytes(&e.shape));
        assert_int_equal(workspace_bytes(&e.model, 2, ROWS, 1), e.scratch);
        engine_close(&e);
    }
}

// ---- costs ----------------------------------------------------------------------------------------------------------

// The last token of the context reads all that the cache holds of its layers: each layer's slots within its window,
// also where they are another layer's, and the states, which are written too.
static void test_costs_of_the_last_token(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        EngineConfig config = config_of(TYPE_F16, false, true);
        Engine e;
        assert_ok(engine_open_view(&e, &config, (EngineNeeds){.n_seqs = 1}, model_at(i)));
        double grown = 0, states = 0;
        for (int k = 0; k < e.model.c.n_layers; k++) {
            const Layer *l = &e.model.layers[k];
            if (mixer_is_recurrent(l->kind.mixer)) states += 2 * (double)state_of(l);
            else if (layer_attends(l))
                grown += ((l->heads.window ? l->heads.window : CTX) - 1) * (double)slot_of(l, TYPE_F16);
        }
        Cost first = costs_rows(&e.model, &e.shape, 0, 1, 1), last = costs_rows(&e.model, &e.shape, CTX - 1, 1, 1);
        assert_true(last.bytes - first.bytes == grown);
        e.model.c.n_recurrent = 0;
        assert_true(first.bytes - costs_rows(&e.model, &e.shape, 0, 1, 1).bytes == states);
        engine_close(&e);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_allocated_as_planned),
                                       cmocka_unit_test(test_inspect_shows_the_same),
                                       cmocka_unit_test(test_costs_of_the_last_token)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
