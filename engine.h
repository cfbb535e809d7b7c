// engine.h: a model opened and ready: file, tokenizer, weights, threads, scratch, KV cache, scheduler.
//
// The one place where the options become the pieces of the core; every mode that computes starts here.
#ifndef QUILL_ENGINE_H
#define QUILL_ENGINE_H

#include "costs.h"
#include "kv/evict.h"
#include "kv/kvstore.h"
#include "model.h"
#include "cli/options.h"
#include "device_plan.h"
#include "policy/plain.h"
#include "base/progress.h"
#include "scheduler.h"
#include "files/hugepages.h"
#include "tokenizer.h"

typedef struct {
    Gguf *gguf;
    Tokenizer *tok; // NULL unless needs.need_tokenizer
    Model model;
    const Backend *be;  // the CPU's
    DevicePlan devices; // of the layers, between the CPU and a GPU
    ThreadPool *pool;
    Workspace work;
    KvShape shape; // n_ctx is what one sequence may use; n_seqs of a pool may be fewer than were asked for
    KvCache kv;
    KvStore *store; // --kv-dir, or NULL
    int n_from_dir; // slots that requests had from there since one was added
    bool quiet;     // what goes wrong there is not said
    Sampler *sampler;
    Evict *evict;        // NULL: a full context ends a sequence
    Scheduler *sched;    // NULL under --dry-run: everything is planned, nothing reserved
    bool begun;          // the step that scheduler_next gives next is on its way
    size_t scratch;      // bytes of the workspace
    HugePages hugepages; // of the weights
    int n_small;         // steps of few rows so far
    double load_seconds;
    Progress progress;
    void (*on_step)(void *arg); // called by engine_run after each step; NULL: nothing is
    void *step_arg;
    // The policy of the requests: plain decoding, behind those of --kv-dir and --evict where they are asked for.
    const Policy *policy;
    Policy fetching, evicting;
} Engine;

typedef struct {
    bool need_tokenizer;
    int n_ctx;      // slots a sequence; 0: by the options and the model
    int n_seqs;     // sequences at once; 0: 1
    int max_out;    // rows of logits at once; 0: n_seqs
    int ctx_of_use; // where neither says: the model's context, but no more than this; 0: no limit
    // The sequences share one pool of blocks, and blocks where they begin alike: --kv-mem, or half of the memory that
    // is free, one context at least. Otherwise each has a context of its own.
    bool pooled;
    // K and V of every token are looked at again, as they are saved, sent on, or taken back to an earlier token.
    // Otherwise layers with a window give theirs up as the text goes on.
    bool whole;
} EngineNeeds;

// Opens the model that engine_file finds. QUILL_MEMORY comes with the memory budget and two flags to try.
Status engine_open(Engine *e, const Options *o, EngineNeeds needs);
// The same over a view that is already there (bench's random models); the engine owns it from here on, failing or not.
Status engine_open_view(Engine *e, const Options *o, EngineNeeds needs, Gguf *g);
void engine_close(Engine *e); // also after a failed open
// The file of o->model alone, mapped or read as the options say, or the built-in model: for modes that look without
// computing.
Status engine_file(const Options *o, Gguf **out);

// The vocabulary of the file; a llama2.c model without one is told where it is looked for.
Status engine_tokenizer(const Gguf *g, Tokenizer **out);
// A cache of the model's layers: their number, kinds and sizes; all else is the caller's.
KvShape engine_kv_shape(const Model *m);
// The type that a run's KV cache has where `asked` for (KV_TYPE_AUTO: f16, and f32 for a model in F32).
int engine_kv_type(const Model *m, int asked);
// The instruction set that the matrices of a prefill run on: the backend's, but AMX does not multiply F32.
const char *engine_prefill_isa(const Engine *e);
// A step that reads less than this has its weights in the caches, and memory bandwidth is no ceiling of it.
#define BANDWIDTH_BYTES 64e6

// Gives a request to the scheduler, and --kv-dir the slots of a sequence that has run; without one the second is
// nothing. When the request begins it has what the directory has of it. Of a pool blocks are kept as they fill, after
// each step as many slots as it had rows and a block's more, so that who decodes waits for little, and none while a
// device has begun the next one; what is left then is the sequence's end. What goes wrong with that is a note.
void engine_add(Engine *e, Request *r);
void engine_keep(Engine *e, const Sequence *s);

// One step: the scheduler's rows through the model, its cost counted into the requests' timelines, tokens emitted.
// Where the device draws them the next step may have been begun by then. False: every request has finished. *b is the
// scheduler's.
// From the time on when a text shows that it goes on, steps of few rows move the file's weights into huge pages, a
// bounded part of them after each.
bool engine_step(Engine *e, Batch **b);
// All of that at once: where it is the later steps that matter.
void engine_use_hugepages(Engine *e);
// Steps until every request has finished. SIGINT and SIGTERM (signals.h) finish them all after a step.
void engine_run(Engine *e);

// The largest -c of which memory has room for the KV cache, as things are now.
int engine_most_context(const Engine *e, const Options *o);
// Whether --evict lets a text grow past the context.
bool engine_endless(const Engine *e);
// What went wrong on the GPU or with the model's file, if anything did: what was computed since is void. QUILL_MODEL,
// QUILL_MEMORY.
Status engine_fault(const Engine *e);
// QUILL_MODEL: the logits behind n_tokens are no numbers; `more` goes on with what to do.
Status engine_no_logit(const Engine *e, int n_tokens, const char *more);

// The bytes of a token for showing: empty for ids that the model has and the vocabulary does not name.
Str engine_piece(const Engine *e, int token, bool first);
// The four lines of the memory budget: weights, KV, scratch, what is available.
void engine_budget(const Model *m, const KvShape *s, size_t scratch, Buf *out);

#endif
