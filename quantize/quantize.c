// quantize/quantize.c: see quantize/quantize.h.
#include "quantize/quantize.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/note.h"
#include "base/output.h"
#include "base/signals.h"
#include "base/threads.h"
#include "cli/outputs.h"
#include "engine_file.h"
#include "formats/types.h"
#include "quantize/convert.h"
#include "quantize/exchange.h"
#include "quantize/importance.h"
#include "quantize/plan.h"
#include "quantize/prune.h"

// ---- checks and notes -----------------------------------------------------------------------------------------------

// Notes on tensors whose rows are not whole blocks of the type: one line for each pair of types.
static void note_fallbacks(const QuantizePlan *p) {
    for (int i = 0; i < p->n; i++) {
        const PlanTensor *t = &p->tensor[i];
        int n = 0;
        bool told = false;
        for (int k = 0; k < p->n; k++) {
            const PlanTensor *other = &p->tensor[k];
            if (other->type != t->type || other->wished != t->wished) continue;
            told |= k < i;
            n++;
        }
        if (t->type == t->wished || told) continue;
        note_print(false, "%d tensor%s (%.*s%s): rows of %llu weights are not whole blocks of %s: using %s", n,
                   n == 1 ? "" : "s", (int)t->from->name.n, t->from->name.data, n == 1 ? "" : ", ...",
                   (unsigned long long)t->from->dims[0], type_name(t->wished), type_name(t->type));
    }
}

static void notes(const Options *o, const FileExchange *e, const QuantizePlan *p) {
    if (o->answer.quiet) return;
    note_fallbacks(p);
    if (e->differs.n)
        note_print(false, "%s: other programs do not read it as quill does: %s", o->quantize.out, e->differs.data);
    if (p->again)
        note_print(false,
                   "%s is quantised already: its loss of precision remains; start from F16, BF16 or "
                   "F32 if there is such a file",
                   o->engine.model);
}

static double bits_per_weight(const QuantizePlan *p) { return 8.0 * (double)p->n_bytes / (double)p->n_weights; }

static Status print_plan(const QuantizePlan *p) {
    Buf out = {0};
    char bytes[24];
    for (int i = 0; i < p->n; i++) {
        const PlanTensor *t = &p->tensor[i];
        Buf shape = {0};
        for (int d = 0; d < t->from->n_dims; d++)
            buf_printf(&shape, "%s%llu", d ? " x " : "", (unsigned long long)t->from->dims[d]);
        buf_printf(&out, "%-32.*s %-18s %-7s %-7s %s\n", (int)t->from->name.n, t->from->name.data, shape.data,
                   type_name(t->from->type), type_name(t->type), units_bytes((double)t->n_bytes, bytes));
        buf_free(&shape);
    }
    buf_printf(&out, "%d tensors, %s, %.3f bits per weight\n", p->n, units_bytes((double)p->n_bytes, bytes),
               bits_per_weight(p));
    return output_buf(&out);
}

// ---- the file -------------------------------------------------------------------------------------------------------

// The plan and the importance matrix of a run.
typedef struct {
    QuantizePlan plan;
    Imatrix *imatrix; // NULL: none
    int n_important;  // matrices of the plan that it has
    PruneRule prune;
    FileExchange exchange;
} QuantizeRun;

// Builds the new view: the source's metadata, and keys that describe the quantisation. The keys about importance are
// llama.cpp's.
static Gguf *new_view(const Options *o, const Gguf *g, const QuantizeRun *r) {
    Gguf *out = gguf_new(o->quantize.out);
    exchange_copy(&r->exchange, g, out);
    if (r->plan.file_type >= 0) gguf_set_u32(out, "general.file_type", (uint32_t)r->plan.file_type);
    gguf_set_u32(out, "general.quantization_version", 2);
    gguf_set_str(out, "quill.quantize.source", file_base(o->engine.model));
    gguf_set_str(out, "quill.quantize.type", r->plan.name);
    if (o->quantize.tensors) gguf_set_str(out, "quill.quantize.tensors", o->quantize.tensors);
    if (o->quantize.prune) gguf_set_str(out, "quill.quantize.prune", o->quantize.prune);
    if (o->quantize.prune) gguf_set_str(out, "quill.quantize.prune_by", r->prune.wanda ? "wanda" : "magnitude");
    if (r->imatrix) {
        gguf_set_str(out, "quantize.imatrix.file", file_base(o->quantize.imatrix));
        gguf_set_str(out, "quantize.imatrix.dataset", imatrix_text(r->imatrix));
        gguf_set_u32(out, "quantize.imatrix.entries_count", (uint32_t)r->n_important);
        gguf_set_u32(out, "quantize.imatrix.chunks_count", (uint32_t)imatrix_chunks(r->imatrix));
    }
    for (int i = 0; i < r->plan.n; i++) gguf_add_like(out, r->plan.tensor[i].from, r->plan.tensor[i].type);
    return out;
}

static Status write_file(const Options *o, const Gguf *g, const QuantizeRun *r) {
    Gguf *out = new_view(o, g, r);
    TensorConversion c = {.g = g,
                          .plan = &r->plan,
                          .exchange = &r->exchange,
                          .imatrix = r->imatrix,
                          .prune = o->quantize.prune ? &r->prune : NULL};
    c.progress = progress_new(o->answer.quiet);
    c.pool = threads_new(o->engine.threads);
    signals_catch();
    Status st = gguf_save_made(out, o->quantize.out, convert_tensor, &c);
    progress_erase(&c.progress);
    threads_free(c.pool);
    gguf_close(out);
    return st;
}

static Status prepare(const Options *o, const Gguf *g, QuantizeRun *r) {
    TRY(plan_make(g, o->quantize.type, o->quantize.tensors, &r->plan));
    if (o->quantize.imatrix) TRY(imatrix_open(o->quantize.imatrix, &r->imatrix));
    if (r->imatrix) TRY(importance_check(r->imatrix, &r->plan, o->quantize.imatrix, &r->n_important));
    exchange_make(g, &r->exchange);
    notes(o, &r->exchange, &r->plan);
    return OK;
}

// The sizes are those of the tensors: metadata and the vocabulary stay as large as they are.
static void tell(const Options *o, const QuantizePlan *p, double seconds) {
    char from[24], to[24];
    note_print(false, "%s: %s, %s from %s, %.3f bits per weight, in %.1f s", o->quantize.out, p->name,
               units_bytes((double)p->n_bytes, to), units_bytes((double)p->n_from, from), bits_per_weight(p), seconds);
}

Status quantize_run(const Options *o) {
    Gguf *g;
    QuantizeRun r = {0};
    double start = clock_now();
    TRY(outputs_check(o, "OUT", o->quantize.out));
    if (o->quantize.prune) TRY(prune_parse(o->quantize.prune, o->quantize.by, &r.prune));
    TRY(engine_file_open(&o->engine, &g));
    Status st = prepare(o, g, &r);
    if (!st.code) st = o->engine.dry_run ? print_plan(&r.plan) : write_file(o, g, &r);
    if (!st.code && !o->engine.dry_run && !o->answer.quiet) tell(o, &r.plan, clock_now() - start);
    plan_free(&r.plan);
    exchange_free(&r.exchange);
    imatrix_close(r.imatrix);
    gguf_close(g);
    return st;
}
