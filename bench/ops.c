// bench/ops.c: see bench/ops.h.
#include "bench/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "base/output.h"
#include "base/stats.h"
#include "bench/shape.h"
#include "bench/steps.h"
#include "costs.h"
#include "cli/values.h"
#include "gpu/cuda.h"

typedef enum { OP_ATTN_IN, OP_ATTENTION, OP_ATTN_OUT, OP_FFN_IN, OP_FFN_OUT, OP_HEAD, OP_SAMPLING, N_OPS } BenchOp;

static const char *const op_names[N_OPS] = {"attn_in", "attention", "attn_out", "ffn_in",
                                            "ffn_out", "head",      "sampling"};

enum { LEAST_TRIES = 5, MOST_TRIES = 100 };
#define SECONDS_AN_OP 0.4 // total time of the repetitions of an operation

typedef struct {
    double seconds, early; // early: with kernels that begin early; 0: not supported
    double bytes;
} OpFigures;

typedef struct {
    Engine e;
    Sequence *seqs; // (n_seqs) computed up to the depth, with one more token
    int n_seqs, depth;
    Step step; // a row of each sequence
    SamplerParams sampling;
    const float *logits; // logits of the step in host memory; NULL on a GPU
    BenchOp op;          // the operation being timed
    volatile int sink;   // the last sampled token, stored so that the compiler keeps the sampling
} Ops;

// ---- one operation --------------------------------------------------------------------------------------------------

static void run_layer(Ops *o, const Layer *l, Batch *b) {
    Workspace *w = &o->e.work;
    KvPool *kv = l->kv_kind < 0 ? NULL : &o->e.kv.pool[l->kv_kind];
    bool mixes = l->kind.mixer != MIXER_NONE, feeds = l->kind.ffn != FFN_NONE;
    if (l->host_ffn && l->be->memory) feeds = false; // the host computes it: not part of the GPU's time
    switch (o->op) {
    case OP_ATTN_IN:
        if (mixes) l->be->attn_in(w, l, kv, b);
        break;
    case OP_ATTENTION:
        if (mixes) l->be->attention(w, l, kv, b);
        break;
    case OP_ATTN_OUT:
        if (mixes) l->be->attn_out(w, l, b);
        break;
    case OP_FFN_IN:
        if (feeds) l->be->ffn_in(w, l, b);
        break;
    default:
        if (feeds) l->be->ffn_out(w, l, b);
        break;
    }
}

static void sample(Ops *o) {
    for (int i = 0; i < o->n_seqs; i++) {
        const Sequence *q = &o->seqs[i];
        const float *logits = o->logits + (size_t)i * (size_t)o->e.model.c.n_vocab;
        o->sink = sampler_sample(o->e.sampler, &o->sampling, logits, q->tokens, q->n_tokens, (uint64_t)i,
                                 (uint64_t)q->n_tokens);
    }
}

// Runs the operation over all layers; on a GPU, queues it.
static void run_op(void *arg) {
    Ops *o = arg;
    const Model *m = &o->e.model;
    Batch b = o->step.batch;
    b.n_step = b.n_rows;
    if (o->op == OP_SAMPLING) {
        if (m->device) cuda_queue_draws(&o->e.work);
        else sample(o);
    } else if (o->op == OP_HEAD) {
        if (m->device) cuda_queue_head(&o->e.work, &m->ends);
        else model_logits(m, &o->e.work, &b, b.out_row, b.n_out);
    } else
        for (int i = 0; i < m->c.n_layers; i++) run_layer(o, &m->layers[i], &b);
}

static double seconds_of(Ops *o) {
    if (o->e.model.device) return cuda_replay_seconds(run_op, o);
    double times[MOST_TRIES], sum = 0;
    int n = 0;
    run_op(o);
    while (n < LEAST_TRIES || (n < MOST_TRIES && sum < SECONDS_AN_OP)) {
        double start = clock_now();
        run_op(o);
        sum += times[n++] = clock_now() - start;
    }
    return stats_median(times, n);
}

static double bytes_of(const Ops *o) {
    const Model *m = &o->e.model;
    const Batch *b = &o->step.batch;
    if (o->op == OP_SAMPLING) return (double)b->n_out * m->c.n_vocab * (double)sizeof(float);
    if (o->op == OP_HEAD) return costs_matrix_bytes(NULL, &m->ends.head, b->n_out);
    double n = o->op == OP_ATTENTION ? costs_attention(m, o->e.kv.pool, b).bytes : 0;
    for (int i = 0; i < m->c.n_layers; i++) {
        const Layer *l = &m->layers[i];
        const Tensor *in[] = {&l->wq, &l->wk, &l->wv, &l->q_a, &l->w_mix, &l->w_z, &l->w_beta, &l->w_alpha};
        const Tensor *out[] = {&l->wo};
        const Tensor *up[] = {&l->w_gate, &l->w_up, &l->router, &l->shared_gate, &l->shared_up, &l->shared_route};
        const Tensor *down[] = {&l->w_down, &l->shared_down, &l->per_gate, &l->per_out};
        const Tensor *const *all[] = {in, NULL, out, up, down};
        const size_t counts[] = {ARRAY_LEN(in), 0, ARRAY_LEN(out), ARRAY_LEN(up), ARRAY_LEN(down)};
        for (size_t k = 0; k < counts[o->op]; k++) n += costs_matrix_bytes(l, all[o->op][k], b->n_rows);
        // The matrices of compressed K and V for each head: the CPU's attention multiplies with them.
        if (o->op == (m->device ? OP_ATTN_IN : OP_ATTENTION)) n += costs_matrix_bytes(l, &l->k_b, b->n_rows);
        if (o->op == (m->device ? OP_ATTN_OUT : OP_ATTENTION)) n += costs_matrix_bytes(l, &l->v_b, b->n_rows);
    }
    return n;
}

static void measure(Ops *o, OpFigures out[N_OPS]) {
    if (o->e.model.device) cuda_begin_early(false); // the plain time first, whatever QUILL_GPU_TRY says
    for (int i = 0; i < N_OPS; i++) {
        // The attention comes last: recurrent layers overwrite its input, which grows when it is computed again.
        BenchOp op = i == N_OPS - 1 ? OP_ATTENTION : i < OP_ATTENTION ? (BenchOp)i : (BenchOp)(i + 1);
        o->op = op;
        out[op] = (OpFigures){.seconds = seconds_of(o), .bytes = bytes_of(o)};
        if (!o->e.model.device || !cuda_begin_early(true)) continue;
        out[op].early = seconds_of(o);
        cuda_begin_early(false);
    }
}

// ---- the step -------------------------------------------------------------------------------------------------------

// Makes a step with one row of each sequence, with logits, and computes it once.
static Status make_step(Ops *o) {
    uint64_t drawn = 0;
    o->step.batch.draw = NULL;
    for (int i = 0; i < o->n_seqs; i++) { // compute up to the depth; the row is one more token
        steps_push(&o->e, &o->seqs[i], o->depth + 1, &drawn);
        TRY(steps_compute(&o->e, &o->step, &o->seqs[i], o->depth));
    }
    step_clear(&o->step);
    for (int i = 0; i < o->n_seqs; i++) {
        step_add(&o->step, NULL, &o->seqs[i], 1, true);
        o->step.draw[i] = (Draw){&o->sampling, (uint64_t)i, o->seqs[i].tokens, o->seqs[i].n_tokens, false};
    }
    if (model_draws(&o->e.model)) o->step.batch.draw = o->step.draw;
    o->logits = steps_forward(&o->e, &o->step);
    return engine_fault(&o->e);
}

// ---- printing -------------------------------------------------------------------------------------------------------

static json_t *figures_json(const Ops *o, const OpFigures f[N_OPS]) {
    json_t *list = json_array();
    for (int op = 0; op < N_OPS; op++) {
        json_t *one = json_pack("{s:s, s:f, s:f, s:f}", "op", op_names[op], "us", 1e6 * f[op].seconds, "bytes",
                                f[op].bytes, "gb_s", f[op].seconds > 0 ? 1e-9 * f[op].bytes / f[op].seconds : 0);
        if (f[op].early > 0) jsonio_put(one, "early_us", json_real(1e6 * f[op].early));
        jsonio_append(list, one);
    }
    return json_pack("{s:i, s:i, s:i, s:o}", "depth", o->depth, "sequences", o->n_seqs, "threads",
                     threads_count(o->e.pool), "operations", list);
}

static void put_row(Buf *out, const char *name, const OpFigures *f, bool early) {
    buf_printf(out, "%-10s %10.1f", name, 1e6 * f->seconds);
    if (early) buf_printf(out, " %12.1f", 1e6 * f->early);
    buf_printf(out, " %10.2f %8.1f\n", 1e-6 * f->bytes, f->seconds > 0 ? 1e-9 * f->bytes / f->seconds : 0);
}

static void put_table(const Ops *o, const OpFigures f[N_OPS], Buf *out) {
    const Model *m = &o->e.model;
    bool early = f[0].early > 0;
    OpFigures all = {0};
    buf_printf(out, "%s, %d layers, %d row%s after %d tokens\n\n", m->device ? m->device->name : m->be->isa,
               m->c.n_layers, o->n_seqs, o->n_seqs == 1 ? "" : "s", o->depth);
    buf_printf(out, "%-10s %10s%s %10s %8s\n", "operation", "us", early ? "    us, early" : "", "MB", "GB/s");
    for (int op = 0; op < N_OPS; op++) {
        put_row(out, op_names[op], &f[op], early);
        all.seconds += f[op].seconds, all.early += f[op].early, all.bytes += f[op].bytes;
    }
    put_row(out, "all", &all, early);
}

// ---- the mode -------------------------------------------------------------------------------------------------------

static void free_sequences(Ops *o) {
    for (int i = 0; i < o->n_seqs; i++) {
        sequence_end(&o->e.kv, &o->seqs[i]);
        o->seqs[i] = (Sequence){0};
    }
}

// Appends the figures at a depth to `all` (json) or `out`.
static Status run_depth(Ops *o, bool json, json_t *all, Buf *out) {
    OpFigures f[N_OPS];
    TRY(make_step(o));
    measure(o, f);
    TRY(engine_fault(&o->e));
    if (json) jsonio_append(all, figures_json(o, f));
    else {
        if (out->n) buf_str(out, "\n");
        put_table(o, f, out);
    }
    free_sequences(o);
    return OK;
}

static Status open_model(const Options *o, Ops *ops) {
    EngineConfig config = o->engine;
    EngineNeeds needs = {
        .n_ctx = cli_largest(&o->bench.depth) + 1, .n_seqs = ops->n_seqs, .max_out = ops->n_seqs, .whole = true};
    config.threads = int_max(0, o->bench.threads.at[0]);
    Gguf *g = NULL;
    if (o->bench.shape) TRY(shape_model(o->bench.shape, type_by_name(o->bench.type)->id, 1, &g));
    TRY(g ? engine_open_view(&ops->e, &config, needs, g) : engine_open(&ops->e, &config, needs));
    const Model *m = &ops->e.model;
    if (m->n_device == 0 || m->n_device == m->c.n_layers) return OK;
    Status st =
        status_error(QUILL_USAGE, "--ops: all layers on one device expected, %d of %d on the GPU found; see -ngl",
                     m->n_device, m->c.n_layers);
    engine_close(&ops->e);
    return st;
}

Status bench_ops(const Options *o) {
    Ops ops = {.n_seqs = o->bench.sequences, .sampling = sampler_defaults()};
    bool json = strcmp(o->bench.output, "json") == 0;
    if (!json && strcmp(o->bench.output, "table") != 0)
        return status_error(QUILL_USAGE, "-o %s: table or json expected with --ops", o->bench.output);
    TRY(open_model(o, &ops));
    Buf out = {0};
    json_t *all = json_array();
    ops.seqs = mem_alloc((size_t)ops.n_seqs * sizeof *ops.seqs);
    step_new(&ops.step, &ops.e.kv, int_max(ops.n_seqs, scheduler_max_rows(ops.e.sched)), ops.n_seqs);
    engine_use_hugepages(&ops.e);
    Status st = OK;
    for (int i = 0; i < o->bench.depth.n && !st.code; i++) {
        ops.depth = o->bench.depth.at[i];
        st = run_depth(&ops, json, all, &out);
    }
    if (json) jsonio_print(all, JSON_INDENT(2) | JSON_REAL_PRECISION(9), &out), buf_str(&out, "\n");
    if (!st.code) st = output_buf(&out);
    free_sequences(&ops);
    step_free(&ops.step);
    free(ops.seqs);
    json_decref(all);
    buf_free(&out);
    engine_close(&ops.e);
    return st;
}
