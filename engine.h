// engine.h: a model opened and ready: file, tokenizer, weights, threads, scratch, KV cache, scheduler.
//
// The one place where a configuration becomes the pieces of the core; every mode that computes starts here.
#ifndef QUILL_ENGINE_H
#define QUILL_ENGINE_H

#include "base/progress.h"
#include "files/hugepages.h"
#include "grammar/cache.h"
#include "kv/evict.h"
#include "kv/kvdir.h"
#include "memory_plan.h"
#include "model.h"
#include "policy/drafters.h"
#include "scheduler.h"
#include "tokenizer.h"

typedef struct {
    EngineConfig config; // as the engine was opened
    Gguf *gguf;
    Tokenizer *tok; // NULL unless needs.need_tokenizer
    Model model;
    const Backend *be;  // the CPU's
    DevicePlan devices; // of the layers, between the CPU and a GPU
    ThreadPool *pool;
    Workspace work;
    KvShape shape; // n_ctx is what one sequence may use; n_seqs of a pool may be fewer than were asked for
    KvCache kv;
    KvDir kv_dir; // --kv-dir
    Sampler *sampler;
    GrammarCache *grammars; // of constrained answers
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
    Drafters drafters; // --speculate
    // The policy of the requests: plain decoding, behind those of --kv-dir, --evict and --speculate where they are
    // asked for.
    const Policy *policy;
    Policy evicting, speculating;
} Engine;

// Opens the model that engine_file_open finds. QUILL_MEMORY comes with the memory budget and two flags to try.
Status engine_open(Engine *e, const EngineConfig *config, EngineNeeds needs);
// The same over a view that is already there (bench's random models); the engine owns it from here on, failing or not.
Status engine_open_view(Engine *e, const EngineConfig *config, EngineNeeds needs, Gguf *g);
void engine_close(Engine *e); // also after a failed open

// The unit that the matrices of a prefill run on, as bench/roofline.h names units: by the first layer's type of
// weights.
const char *engine_prefill_unit(const Engine *e);
// A step that reads less than this has its weights in the caches, and memory bandwidth is no ceiling of it.
#define BANDWIDTH_BYTES 64e6

// Gives a request to the scheduler. With --kv-dir the request takes what the directory has of its prompt when it
// begins; over a pool, full blocks are written there after each step, unless a device has begun the next one.
void engine_add(Engine *e, Request *r);
// With --kv-dir: writes what the directory lacks of a sequence that has run.
void engine_keep(Engine *e, const Sequence *q);

// One step: the scheduler's rows through the model, its cost counted into the requests' timelines, tokens emitted.
// Where the device draws them the next step may have been begun by then. False: every request has finished. *b is the
// scheduler's.
// From the time on when a text shows that it goes on, steps of few rows move the file's weights into huge pages, a
// bounded part of them after each.
bool engine_step(Engine *e, Batch **b);
// All of that at once: where it is the later steps that matter.
void engine_use_hugepages(Engine *e);
// Steps until every request has finished. SIGINT and SIGTERM (base/signals.h) finish them all after a step.
void engine_run(Engine *e);

// The largest -c of which memory has room for the KV cache, as things are now.
int engine_most_context(const Engine *e);
// Whether --evict lets a text grow past the context.
bool engine_endless(const Engine *e);
// What went wrong on the GPU or with the model's file, if anything did: what was computed since is void. QUILL_MODEL,
// QUILL_MEMORY.
Status engine_fault(const Engine *e);
// QUILL_MODEL: the logits behind n_tokens are no numbers; `more` goes on with what to do.
Status engine_no_logit(const Engine *e, int n_tokens, const char *more);

// The bytes of a token for showing: empty for ids that the model has and the vocabulary does not name.
Str engine_piece(const Engine *e, int token, bool first);

#endif
