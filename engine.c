// engine.c: see engine.h.
#define _GNU_SOURCE
#include "engine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu/backend.h"
#include "files/builtin.h"
#include "kv/fingerprint.h"
#include "base/guard.h"
#include "files/llama2c.h"
#include "base/signals.h"

static void note(const Options *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(const Options *o, const char *format, ...) {
    if (!o->verbose) return;
    va_list args;
    va_start(args, format);
    fputs("quill: note: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

// ---- the file -------------------------------------------------------------------------------------------------------

static Status read_pages(const Options *o, int fd, size_t n, uint8_t **out) {
    uint8_t *bytes = pages_alloc(n, true);
    if (!bytes) return status_error(QUILL_MEMORY, "%s: --no-mmap: %zu bytes were refused by the system", o->model, n);
    Progress progress = progress_new(o->quiet);
    double start = clock_now();
    Status st = OK;
    for (size_t at = 0; at < n && !st.code;) {
        ssize_t got = fd_read(fd, bytes + at, n - at < 64u << 20 ? n - at : 64u << 20);
        if (got <= 0)
            st = status_error(QUILL_IO, "%s: cannot read at byte %zu of %zu: %s", o->model, at, n,
                              got < 0 ? strerror(errno) : "the file has become shorter");
        else at += (size_t)got;
        if (clock_now() - start > 1) progress_show(&progress, "load", (double)at, (double)n);
    }
    progress_erase(&progress);
    if (st.code) pages_free(bytes, n);
    else *out = bytes;
    return st;
}

// The system promises more memory than there is, and ends the process when it is used.
static Status check_room(const Options *o, size_t n) {
    char need[24], have[24];
    size_t available = memory_available();
    if (n <= available) return OK;
    Status st = status_error(QUILL_MEMORY,
                             "%.700s: --no-mmap: the file needs %s of memory, %s can be had; leave --no-mmap out, or "
                             "take a smaller model",
                             o->model, size_text((double)n, need), size_text((double)available, have));
    Buf budget = {0};
    buf_printf(&budget, "  file       %9s\n  available  %9s\n", need, have);
    status_append(&st, &budget);
    buf_free(&budget);
    return st;
}

// --no-mmap: the whole file in memory of our own.
static Status open_in_memory(const Options *o, Gguf **out) {
    int fd = open(o->model, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // as file_map: a FIFO without a writer must not hang
    if (fd < 0) return status_error(QUILL_MODEL, "%s: cannot open: %s", o->model, strerror(errno));
    struct stat info;
    char magic[4] = "";
    bool is_gguf =
        fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && pread(fd, magic, 4, 0) == 4 && memcmp(magic, "GGUF", 4) == 0;
    uint8_t *bytes = NULL;
    size_t n = is_gguf ? (size_t)info.st_size : 0;
    Status st = OK;
    if (!is_gguf || o->tokenizer)
        st = status_error(QUILL_USAGE, "%s: --no-mmap: a GGUF file expected; leave --no-mmap out for others", o->model);
    if (!st.code) st = check_room(o, n);
    if (!st.code) st = read_pages(o, fd, n, &bytes);
    close(fd);
    if (st.code) return st;
    Gguf *g;
    st = gguf_open_memory(o->model, bytes, n, &g);
    if (st.code) {
        pages_free(bytes, n);
        return st;
    }
    gguf_own_pages(g, bytes, n);
    uint32_t parts;
    st = gguf_u32(g, "split.count", &parts, false, 1);
    if (!st.code && parts > 1)
        st = status_error(QUILL_USAGE, "%s: --no-mmap: one file expected, part of a split model found; leave it out",
                          o->model);
    if (st.code) gguf_close(g);
    else *out = g;
    return st;
}

static Status open_builtin(const Options *o, Gguf **out) {
    if (o->no_mmap)
        return status_error(QUILL_USAGE, "--no-mmap: a file expected, found the built-in model, which comes with the "
                                         "binary; leave --no-mmap out, or name a file with -m");
    if (o->tokenizer)
        return status_error(QUILL_USAGE,
                            "--tokenizer: a llama2.c model expected with it, found the built-in one, which "
                            "has its own vocabulary; leave it out, or name a file with -m");
    return builtin_open(out);
}

Status engine_file(const Options *o, Gguf **out) {
    *out = NULL;
    if (!o->model || strcmp(o->model, BUILTIN_WORD) == 0) return open_builtin(o, out);
    return o->no_mmap ? open_in_memory(o, out) : model_file_open(o->model, o->tokenizer, out);
}

// Tensors that follow each other are locked together: a huge page that is locked in part is no huge page any more.
static void lock_weights(const Options *o, const Gguf *g) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = 0, to = 0;
    size_t locked = 0;
    for (int i = 0; i <= gguf_n_tensors(g); i++) {
        const GgufTensor *t = i < gguf_n_tensors(g) ? gguf_tensor_at(g, i) : NULL;
        uintptr_t at = t ? (uintptr_t)t->data : 0;
        if (t && at >= to && at - to < page) {
            to = at + t->n_bytes;
            continue;
        }
        if (to > from && mlock((const void *)from, to - from) != 0) {
            note(o, "--mlock: the system locked %zu bytes and then refused (%s); ulimit -l is the limit", locked,
                 strerror(errno));
            return;
        }
        locked += to - from;
        from = at / page * page;
        to = t ? at + t->n_bytes : 0;
    }
}

// ---- memory ---------------------------------------------------------------------------------------------------------

const char *size_text(double bytes, char out[24]) {
    const char *unit = bytes < 1e3 ? "B" : bytes < 1e6 ? "KB" : bytes < 1e9 ? "MB" : "GB";
    double scale = bytes < 1e3 ? 1 : bytes < 1e6 ? 1e3 : bytes < 1e9 ? 1e6 : 1e9;
    double value = bytes / scale;
    int digits = scale == 1 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
    snprintf(out, 24, "%.*f %s", digits, value, unit);
    return out;
}

const char *count_text(double n, char out[24]) {
    const char *unit = n < 1e3 ? "" : n < 1e6 ? " K" : n < 1e9 ? " M" : n < 1e12 ? " B" : " T";
    double value = n / (n < 1e3 ? 1 : n < 1e6 ? 1e3 : n < 1e9 ? 1e6 : n < 1e12 ? 1e9 : 1e12);
    snprintf(out, 24, "%.*f%s", n < 1e3 || value >= 100 ? 0 : value >= 10 ? 1 : 2, value, unit);
    return out;
}

void engine_budget(const Model *m, const KvShape *s, size_t scratch, Buf *out) {
    char a[24], b[24];
    size_t available = memory_available();
    buf_printf(out, "  weights    %9s  %d layers\n", size_text((double)model_weight_bytes(m), a), m->c.n_layers);
    buf_printf(out, "  KV cache   %9s  %d x %d slots of %s (%s, %s)\n", size_text((double)kvcache_bytes(s), a),
               s->n_blocks ? s->n_blocks : s->n_seqs, s->n_blocks ? s->block : s->n_ctx,
               size_text((double)kvcache_bytes_per_growth(s), b), type_name(s->type_k), type_name(s->type_v));
    if (kvcache_bytes_per_growth(s) < kvcache_bytes_per_slot(s))
        buf_printf(out, "  of it      %9s  %d x %d slots of the %d layers that see %d\n",
                   size_text((double)kvcache_fixed_bytes(s), a), s->n_partners, s->block, s->n_windowed, s->window);
    buf_printf(out, "  scratch    %9s\n", size_text((double)scratch, a));
    buf_printf(out, "  available  %9s\n", available == SIZE_MAX ? "unknown" : size_text((double)available, a));
}

static size_t scratch_for(const Engine *e, const Options *o, EngineNeeds needs, int n_ctx, int *rows) {
    *rows =
        int_min(device_plan_ubatch(&e->devices, o), n_ctx > INT_MAX / needs.n_seqs ? INT_MAX : n_ctx * needs.n_seqs);
    return workspace_bytes(&e->model, threads_count(e->pool), *rows, int_min(needs.max_out, *rows));
}

static size_t less(size_t a, size_t b) { return a > b ? a - b : 0; }

// The largest context whose KV cache keeps within `limit` bytes of the host's memory and --kv-mem bytes in all; of
// a pool, that of one sequence.
static int context_within(const KvShape *s, size_t limit, size_t kv_mem) {
    size_t growth = kvcache_bytes_per_growth(s), slot = kvcache_host_bytes_per_growth(s);
    size_t bytes = slot ? less(limit, kvcache_fixed_bytes(s)) / slot : SIZE_MAX;
    size_t all = kv_mem && growth ? less(kv_mem, kvcache_fixed_bytes(s)) / growth : SIZE_MAX;
    size_t slots = (bytes < all ? bytes : all) / (size_t)(s->n_blocks ? 1 : s->n_seqs);
    if (s->block) slots = slots / (size_t)s->block * (size_t)s->block;
    return slots < 1 << 30 ? (int)slots : (1 << 30) - 1;
}

static Status with_budget(const Engine *e, Status st) {
    Buf budget = {0};
    engine_budget(&e->model, &e->shape, e->scratch, &budget);
    device_plan_budget(&e->devices, &budget);
    status_append(&st, &budget);
    buf_free(&budget);
    return st;
}

// A refusal in several lines: what, two flags to try, and the budget.
static Status too_large(const Engine *e, const Options *o, size_t limit) {
    char need[24], have[24], smaller[32] = "a shorter -c";
    const KvShape *s = &e->shape;
    int fits = context_within(s, limit, o->kv_mem);
    if (o->kv_mem && o->kv_mem < limit) limit = o->kv_mem;
    if (fits > 512) fits = fits / 256 * 256;
    if (fits > 0) snprintf(smaller, sizeof smaller, "-c %d", fits);
    bool wide = s->type_k == TYPE_F32 || s->type_v == TYPE_F32;
    bool dense = !kv_is_sealed(s->type_k) || !kv_is_sealed(s->type_v);
    Status st = status_error(QUILL_MEMORY, "-c %d: the KV cache needs %s, %s can be had%s; try %s or %s", s->n_ctx,
                             size_text((double)kvcache_bytes(s), need), size_text((double)limit, have),
                             o->kv_mem ? " within --kv-mem" : "", smaller,
                             o->kv_mem ? "a larger --kv-mem"
                             : wide    ? "-ctk f16 -ctv f16"
                             : dense   ? "-ctk q8_0 -ctv q8_0"
                                       : "a smaller -ub");
    return with_budget(e, st);
}

// --mlock keeps all of the file in memory, and moving it into huge pages first reads all of it.
static Status check_lock(const Engine *e) {
    char need[24], have[24];
    size_t all, available = memory_available();
    bool fits = size_add(gguf_file_bytes(e->gguf), kvcache_host_bytes(&e->shape), &all) &&
                size_add(all, e->scratch, &all) && all <= available;
    if (fits) return OK;
    return with_budget(e, status_error(QUILL_MEMORY,
                                       "--mlock: %s of memory needed for the file, the KV cache and scratch, %s can be "
                                       "had; leave --mlock out, or try a smaller -c",
                                       size_text((double)all, need), size_text((double)available, have)));
}

// A model in F32 is computed in f32 throughout, so that its cache does not round either; for all others f16 is as good.
int engine_kv_type(const Model *m, int asked) {
    if (asked != KV_TYPE_AUTO) return asked;
    return m->layers[0].wk.type == TYPE_F32 ? TYPE_F32 : TYPE_F16;
}

// How many blocks layers with a window need: those of all windows, where that is fewer than there are.
static void plan_partners(KvShape *s, int rows) {
    s->n_partners = s->n_windowed > 0 && !s->keep ? kvcache_partners_needed(s, rows) : 0;
}

// Whether as many sequences as s has may run at once within so many bytes. They all have pages for their open groups
// (sealed types), blocks for their windows, and a context each; or pages and windows take no more than half and leave
// the context that was asked for.
static bool width_fits(const KvShape *s, size_t limit, size_t n_blocks, bool asked) {
    size_t fixed = kvcache_fixed_bytes(s), rest = less(limit, fixed);
    size_t context_bytes = n_blocks * (size_t)s->block * kvcache_bytes_per_growth(s);
    if (fixed == 0 || context_bytes == 0 || rest / context_bytes >= (size_t)s->n_seqs) return true;
    return fixed <= limit / 2 && (!asked || rest >= context_bytes);
}

// The blocks of a pool: as many as memory allows, no more than all sequences can use, and a whole context at least.
// Half of what is free stays free: a pool's blocks are kept for those who begin alike, so that in time it is used up.
static Status plan_pool(Engine *e, const Options *o, size_t limit, bool asked, int rows) {
    KvShape *s = &e->shape;
    size_t one = ((size_t)s->n_ctx - 1) / (size_t)s->block + 1, slot = kvcache_bytes_per_slot(s);
    int wished = s->n_seqs;
    size_t room = o->kv_mem || limit == SIZE_MAX ? limit : limit / 2, blocks = room / (slot * (size_t)s->block);
    s->n_blocks = blocks < 1 ? 1 : blocks < INT_MAX ? (int)blocks : INT_MAX; // there are no more pages
    plan_partners(s, rows);
    while (s->n_seqs > 1 && !width_fits(s, room, one, asked)) {
        s->n_seqs--;
        plan_partners(s, rows);
    }
    if (s->n_seqs < wished) note(o, "-np %d: memory has room for %d at once", wished, s->n_seqs);
    size_t block_bytes = kvcache_bytes_per_growth(s) * (size_t)s->block;
    size_t most = block_bytes ? less(limit, kvcache_fixed_bytes(s)) / block_bytes : SIZE_MAX;
    if (!o->kv_mem && limit != SIZE_MAX && most > one) most = most / 2 > one ? most / 2 : one;
    if (most < one && (asked || most < 1)) {
        s->n_blocks = (int)one;
        return too_large(e, o, limit);
    }
    if (most < one) {
        note(o, "a context of %zu fits, of the model's %d; -c chooses another", most * (size_t)s->block, s->n_ctx);
        one = most;
        s->n_ctx = (int)most * s->block;
    }
    size_t all = one * (size_t)s->n_seqs;
    if (all > most) all = most;
    s->n_blocks = all < INT_MAX ? (int)all : INT_MAX;
    return OK;
}

KvShape engine_kv_shape(const Model *m) {
    const Config *c = &m->c;
    return (KvShape){.n_layers = c->n_layers,
                     .n_kv_heads = c->n_kv_heads,
                     .head_dim = c->head_dim,
                     .n_windowed = c->n_windowed,
                     .window = c->window};
}

// Not a matter of --verbose: what is said beyond is often garbage, and nothing else tells.
static void warn_beyond_training(const Options *o, int trained) {
    if (o->ctx_size > trained && !o->quiet)
        fprintf(stderr,
                "quill: note: -c %d: the model was trained for a context of %d; what it says beyond may be nonsense\n",
                o->ctx_size, trained);
}

int engine_most_context(const Engine *e, const Options *o) {
    size_t available = memory_available();
    return context_within(&e->shape, available == SIZE_MAX ? available : less(available, e->scratch), o->kv_mem);
}

// Settles the context: what was asked for, or the model's own if that fits, or what fits.
static Status plan_memory(Engine *e, const Options *o, EngineNeeds needs, int *rows) {
    const Config *c = &e->model.c;
    int asked = needs.n_ctx ? needs.n_ctx : o->ctx_size, trained = int_max(1, c->n_ctx_train);
    int own = needs.ctx_of_use ? int_min(needs.ctx_of_use, trained) : trained;
    KvShape *s = &e->shape;
    *s = engine_kv_shape(&e->model);
    s->keep = o->kv_dir || o->evict || needs.whole;
    s->type_k = engine_kv_type(&e->model, o->type_k);
    s->type_v = engine_kv_type(&e->model, o->type_v);
    s->block = o->paged || needs.pooled || (s->n_windowed > 0 && !s->keep) ? o->kv_block : 0;
    s->n_ctx = asked ? asked : own;
    s->n_seqs = needs.n_seqs;
    s->share = needs.pooled;
    s->rotate = o->kv_rotate;
    e->scratch = scratch_for(e, o, needs, s->n_ctx, rows);
    plan_partners(s, *rows);
    TRY(device_plan_make(&e->devices, o, &e->model, s, !asked, *rows, int_min(needs.max_out, *rows)));
    int n_host = s->n_layers - s->n_device;
    e->scratch = scratch_for(e, o, needs, s->n_ctx, rows); // another context, or another device's steps
    if (n_host == 0) e->scratch = 0;
    size_t available = memory_available(), limit = available;
    if (limit != SIZE_MAX) limit = limit > e->scratch ? limit - e->scratch : 0;
    // Left to us, the weights keep their room; asked for, a context may push them out of memory.
    size_t weights = o->no_mmap ? 0 : model_weight_bytes(&e->model) / (size_t)s->n_layers * (size_t)n_host;
    if (!asked && limit != SIZE_MAX) limit -= weights < limit / 2 ? weights : limit / 2;
    if (needs.pooled) return plan_pool(e, o, o->kv_mem && o->kv_mem < limit ? o->kv_mem : limit, asked, *rows);
    bool countable = s->n_ctx < 1 << 30 && (size_t)s->n_ctx * (size_t)s->n_seqs < 1 << 30;
    if (countable && kvcache_host_bytes(s) <= limit && (!o->kv_mem || kvcache_bytes(s) <= o->kv_mem)) return OK;
    int fits = context_within(s, limit, o->kv_mem);
    if (asked || fits < 1) return too_large(e, o, limit);
    note(o, "a context of %d fits, of the model's %d; -c chooses another", fits, s->n_ctx);
    s->n_ctx = int_min(fits, s->n_ctx);
    e->scratch = n_host ? scratch_for(e, o, needs, s->n_ctx, rows) : 0;
    return OK;
}

const char *engine_prefill_isa(const Engine *e) {
    bool f32 = e->model.layers[0].wq.type == TYPE_F32;
    return f32 && strcmp(e->be->isa, "amx") == 0 ? "avx512" : e->be->isa;
}

// ---- --kv-dir -------------------------------------------------------------------------------------------------------

static const char no_more_kept[] = "the answer is whole, but no more is kept there";

static void note_of_store(const Engine *e, Status st, const char *what) {
    if (st.code && !e->quiet) fprintf(stderr, "quill: note: --kv-dir: %s; %s\n", st.message, what);
}

// Policy.fetch
static bool fetch_from_dir(const Policy *p, Request *r, int most) {
    Engine *e = p->arg;
    int had = r->seq.n_cached;
    note_of_store(e, kvstore_load(e->store, &e->kv, &r->seq, most), "computed again from there on");
    e->n_from_dir += r->seq.n_cached - had;
    return r->seq.n_cached - had < most;
}

// Of the blocks that r's rows have filled, about `most` slots; returns how many were written.
static int keep_some(Engine *e, Request *r, int most) {
    int block = e->kv.pool->block, had = kvstore_stats(e->store).n_saved;
    int first = int_max(r->n_kept, r->n_reused) / block * block;
    if (r->seq.n_cached < first + block) return 0;
    note_of_store(e, kvstore_save_some(e->store, &e->kv, &r->seq, r->time.begun, &first, most), no_more_kept);
    r->n_kept = first;
    return kvstore_stats(e->store).n_saved - had;
}

static void keep_filled(Engine *e, const Batch *b) {
    int room = b->n_rows + e->kv.pool->block;
    for (int i = 0; i < b->n_seqs && room > 0; i++) {
        Request *r = scheduler_request(e->sched, i);
        if (r) room -= keep_some(e, r, room);
    }
}

void engine_add(Engine *e, Request *r) {
    e->n_from_dir = r->n_kept = 0;
    scheduler_add(e->sched, r);
}

void engine_keep(Engine *e, const Sequence *s) {
    if (e->store && !guard_lost().code) note_of_store(e, kvstore_save(e->store, &e->kv, s), no_more_kept);
}

// ---- open, close ----------------------------------------------------------------------------------------------------

Status engine_tokenizer(const Gguf *g, Tokenizer **out) {
    *out = NULL;
    bool llama2c = gguf_version(g) == 0 && !gguf_value(g, "tokenizer.ggml.model");
    if (llama2c)
        return status_error(QUILL_MODEL,
                            "%s: a vocabulary expected, none found: a llama2.c file has it beside it; -z tokenizer.bin "
                            "names it",
                            gguf_name(g));
    return tokenizer_load(g, out);
}

static Status open_store(Engine *e, const Options *o) {
    KvHead like = fingerprint(&e->model, e->kv.pool);
    Buf kernels = {0};
    device_plan_kernels(&e->devices, e->be->isa, &kernels);
    if (o->deterministic) buf_str(&kernels, " in order");
    Status st = kvstore_open(o->kv_dir, o->kv_dir_size, o->kv_block, &like, kernels.data, &e->store);
    buf_free(&kernels);
    e->fetching = (Policy){.fetch = fetch_from_dir, .arg = e, .next = e->policy};
    e->policy = &e->fetching;
    return st;
}

static Status plan_eviction(Engine *e, const Options *o) {
    EvictPlan plan;
    if (!o->evict) return OK;
    if (o->kv_dir)
        return status_error(QUILL_USAGE, "--evict and --kv-dir: one of them expected, found both; what is given up as "
                                         "it goes is no cache of its prompt");
    TRY(evict_parse(o->evict, &plan));
    TRY(evict_new(&plan, &e->model, &e->kv, &e->evict));
    e->evicting = evict_policy(e->evict, e->policy);
    e->policy = &e->evicting;
    return OK;
}

static Status load(Engine *e, const Options *o, EngineNeeds needs) {
    TRY((o->deterministic ? cpu_backend_deterministic : cpu_backend)(o->isa, &e->be));
    TRY(model_load(&e->model, e->gguf, e->be));
    TRY(device_plan_open(&e->devices, o, &e->model));
    if (needs.need_tokenizer) TRY(engine_tokenizer(e->gguf, &e->tok));
    if (e->tok && tokenizer_n(e->tok) > e->model.c.n_vocab)
        return status_error(QUILL_MODEL,
                            "%s: tensor token_embd.weight: a row for each of the %d tokens expected, %d found",
                            gguf_name(e->gguf), tokenizer_n(e->tok), e->model.c.n_vocab);
    e->pool = threads_new(o->threads);
    int rows;
    TRY(plan_memory(e, o, needs, &rows));
    warn_beyond_training(o, int_max(1, e->model.c.n_ctx_train));
    if (o->dry_run) return OK;
    e->settle =
        (Settle){.gguf = e->gguf, .pool = e->pool, .spare = kvcache_host_bytes(&e->shape)}; // comes as it is written
    if (o->mlock) TRY(check_lock(e));
    if (o->check_tensors) TRY(model_check_tensors(&e->model));
    TRY(device_plan_load(&e->devices, &e->model, e->pool, o->quiet));
    if (o->mlock) { // which reads all of the file now
        engine_settle(e);
        lock_weights(o, e->gguf);
    }
    TRY(kvcache_new(&e->kv, &e->shape));
    e->policy = &plain_policy;
    if (o->kv_dir) TRY(open_store(e, o));
    TRY(plan_eviction(e, o));
    TRY(workspace_new(&e->work, &e->model, e->pool, rows, int_min(needs.max_out, rows), e->shape.n_ctx));
    e->sampler = sampler_new(e->model.c.n_vocab);
    SchedulerShape steps = {.n_vocab = e->model.c.n_vocab,
                            .max_rows = rows,
                            .max_out = int_min(needs.max_out, rows),
                            .max_seqs = int_min(e->shape.n_seqs, rows),
                            .draws = model_draws(&e->model),
                            .draws_ahead = model_draws_ahead(&e->model)};
    e->sched = scheduler_new(&e->kv, e->sampler, steps, e->policy);
    return OK;
}

Status engine_open_view(Engine *e, const Options *o, EngineNeeds needs, Gguf *g) {
    double start = clock_now();
    *e = (Engine){.gguf = g, .quiet = o->quiet, .progress = progress_new(o->quiet)};
    needs.n_seqs = int_max(1, needs.n_seqs);
    needs.max_out = int_max(needs.n_seqs, needs.max_out);
    Status st = load(e, o, needs);
    if (st.code) engine_close(e);
    e->load_seconds = clock_now() - start;
    return st;
}

Status engine_open(Engine *e, const Options *o, EngineNeeds needs) {
    double start = clock_now();
    *e = (Engine){0};
    Gguf *g;
    DevicePlan early;
    TRY(device_plan_open(&early, o, NULL)); // before a minute of reading
    TRY(engine_file(o, &g));
    TRY(engine_open_view(e, o, needs, g));
    e->load_seconds = clock_now() - start;
    return OK;
}

void engine_close(Engine *e) {
    scheduler_free(e->sched);
    evict_free(e->evict);
    if (e->sampler) sampler_free(e->sampler);
    workspace_free(&e->work);
    kvstore_close(e->store);
    kvcache_free(&e->kv);
    if (e->pool) threads_free(e->pool);
    tokenizer_free(e->tok);
    model_free(&e->model);
    gguf_close(e->gguf);
    *e = (Engine){0};
}

// ---- the loop -------------------------------------------------------------------------------------------------------

// A step's cost is shared by the rows in it: those of a sequence that are its prompt's, and those behind the prompt.
static void count_costs(Engine *e, const Batch *b) {
    Cost c = costs_batch(&e->model, e->kv.pool, b);
    for (int row = 0, n; row < b->n_rows; row += n) {
        Request *r = scheduler_request(e->sched, b->seq[row]);
        bool prefill = b->slot[row] < r->n_prompt;
        for (n = 1; row + n < b->n_rows && b->seq[row + n] == b->seq[row];) {
            if ((b->slot[row + n] < r->n_prompt) != prefill) break;
            n++;
        }
        double share = (double)n / b->n_rows;
        *(prefill ? &r->time.prefill_flops : &r->time.decode_flops) += share * c.flops;
        *(prefill ? &r->time.prefill_bytes : &r->time.decode_bytes) += share * c.bytes;
    }
}

// What was computed from a file that was cut is no number: the requests end as those of broken weights do.
static const float *forward(Engine *e, const Batch *b) {
    count_costs(e, b);
    const float *logits = model_forward(&e->model, &e->work, e->kv.pool, b);
    size_t n = logits && guard_lost().code ? (size_t)b->n_out * (size_t)e->model.c.n_vocab : 0;
    for (size_t i = 0; i < n; i++) ((float *)logits)[i] = NAN; // they are the workspace's
    return logits;
}

// While the device draws the tokens of a step and the host writes out those before it, the next step is begun.
static const int *draw_tokens(Engine *e, const Batch *b) {
    Batch *next;
    e->begun = scheduler_ahead(e->sched, &next);
    if (e->begun) forward(e, next);
    const int *tokens = model_drawn(&e->model, &e->work);
    int n = tokens && guard_lost().code ? b->n_out : 0;
    for (int i = 0; i < n; i++) ((int *)tokens)[i] = -1;
    return tokens;
}

// ---- huge pages -----------------------------------------------------------------------------------------------------

// Few rows are bound by memory, and a file whose pages the caches of address translation can count gains nothing.
enum { SMALL_ROWS = 16, SMALL_FILE = 64 << 20 };
// A part of the file after each step from a certain one on. It takes as long as a few steps; as long as so many and
// more and it does not pay within a text.
enum { SETTLE_AFTER = 8, SETTLE_STEPS = 8, SETTLE_WORTH = 16 };

static bool worth_settling(const Engine *e) { return e->model.n_device == 0 && gguf_file_bytes(e->gguf) >= SMALL_FILE; }

void engine_settle(Engine *e) {
    if (worth_settling(e)) settle(&e->settle, SIZE_MAX);
}

static void settle_after(Engine *e, const Batch *b, double step_seconds) {
    if (b->n_rows > SMALL_ROWS || !worth_settling(e) || ++e->n_small <= SETTLE_AFTER) return;
    e->settle.patience = SETTLE_WORTH * step_seconds;
    settle(&e->settle, gguf_file_bytes(e->gguf) / SETTLE_STEPS);
}

// ---- steps ----------------------------------------------------------------------------------------------------------

bool engine_step(Engine *e, Batch **b) {
    double start = clock_now();
    if (!scheduler_next(e->sched, b)) return false;
    const float *logits = e->begun ? NULL : forward(e, *b);
    e->begun = false;
    const int *tokens = (*b)->draw ? draw_tokens(e, *b) : NULL;
    if ((*b)->n_out > 0) progress_erase(&e->progress); // the answer may go to the same terminal
    if (tokens) scheduler_take_tokens(e->sched, tokens);
    else scheduler_take(e->sched, logits);
    if (e->store && e->kv.ids && !e->begun && !guard_lost().code)
        keep_filled(e, *b); // reading a device waits for the step on its way
    settle_after(e, *b, clock_now() - start);
    return true;
}

void engine_run(Engine *e) {
    Batch *b;
    double start = clock_now();
    for (;;) {
        if (signals_caught()) scheduler_interrupt(e->sched);
        if (!engine_step(e, &b)) break;
        if (e->on_step) e->on_step(e->step_arg);
        const Request *r = scheduler_request(e->sched, 0);
        if (r && b->n_seqs == 1 && r->n_new == 0 && clock_now() - start > 1)
            progress_show(&e->progress, "prefill", r->seq.n_cached, r->n_prompt);
    }
    progress_erase(&e->progress);
}

bool engine_endless(const Engine *e) { return e->evict && evict_endless(e->evict); }

Status engine_fault(const Engine *e) {
    TRY(guard_lost());
    const char *why = model_failure(&e->model);
    if (!why) return OK;
    bool memory = strstr(why, "out of memory") != NULL;
    return status_error(memory ? QUILL_MEMORY : QUILL_MODEL,
                        "%s failed: %.600s; what it computed since is void: start again, with a smaller -c or -ngl if "
                        "memory was short, or with --device cpu",
                        e->model.device->name, why);
}

Status engine_no_logit(const Engine *e, int n_tokens, const char *more) {
    return status_error(QUILL_MODEL,
                        "%s: a finite logit expected after %d tokens, none found; --check-tensors looks for broken "
                        "weights%s",
                        gguf_name(e->gguf), n_tokens, more);
}

Str engine_piece(const Engine *e, int token, bool first) {
    if (token < 0 || token >= tokenizer_n(e->tok)) return (Str){"", 0};
    return tokenizer_stream_piece(e->tok, token, first);
}
