// engine.h: an opened model, ready to compute: file, tokenizer, weights, threads, scratch, KV cache, scheduler.
//
// Every mode that computes opens an Engine, which creates all of these from one EngineConfig.
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
    EngineConfig config; // the configuration that the engine was opened with
    Gguf *gguf;
    Tokenizer *tok; // NULL unless needs.need_tokenizer
    Model model;
    const Backend *be;  // the CPU's backend
    DevicePlan devices; // which layers the CPU and a GPU compute
    ThreadPool *pool;
    Workspace work;
    KvShape shape; // n_ctx: slots of one sequence; n_seqs: in a pool it may be fewer than needs.n_seqs
    KvCache kv;
    KvDir kv_dir; // --kv-dir
    Sampler *sampler;
    GrammarCache *grammars; // of constrained answers
    Evict *evict;           // NULL: a full context ends a sequence
    Scheduler *sched;       // NULL under --dry-run: everything is planned, no memory is allocated
    bool begun;             // the device is already computing the step that scheduler_next returns next
    size_t scratch;         // bytes of the workspace
    HugePages hugepages;    // of the weights
    int n_small;            // number of steps of few rows so far
    double load_seconds;
    Progress progress;
    bool (*stop)(void); // abandons steps in the middle, where that is allowed (scheduler_may_abandon); NULL: never
    bool may_abandon;   // the step that is being computed
    double run_start;   // time; 0: engine_run is not running, and no prefill is shown
    double shown;       // time of the last line of progress
    void (*on_step)(void *arg); // called by engine_run after each step; NULL: no callback
    void *step_arg;
    Drafters drafters; // --speculate
    // The first policy of the requests' chain: those of --speculate, --evict and --kv-dir, as far as they are used,
    // then plain decoding.
    const Policy *policy;
    Policy evicting, speculating;
} Engine;

// Opens the model that engine_file_open finds. The QUILL_MEMORY message has the memory budget and two flags to try.
Status engine_open(Engine *e, const EngineConfig *config, EngineNeeds needs);
// The same for a Gguf that is open already (random models of `bench`). The engine owns it from now on, also on failure.
Status engine_open_view(Engine *e, const EngineConfig *config, EngineNeeds needs, Gguf *g);
void engine_close(Engine *e); // also allowed after a failed open

// The unit of the CPU that computes matrix products in prefill, by the names of bench/roofline.h; it depends on the
// type of the weights.
const char *engine_prefill_unit(const Engine *e);
// If a step reads fewer bytes, its weights stay in the processor's caches, and memory bandwidth does not limit it.
#define BANDWIDTH_BYTES 64e6

// With --kv-dir, K and V of a prompt are loaded from the directory when its request begins. In pooled mode, full blocks
// are saved there after each step; this is skipped while the device computes another step. engine_keep saves the part
// of a finished sequence that the directory does not have.
void engine_keep(Engine *e, const Sequence *q);

// One step: computes the scheduler's rows, adds the cost to the requests' timelines, and emits tokens. If the device
// draws the tokens, the next step may have started when this returns. False: every request has finished. The scheduler
// owns *b. If e->stop has abandoned the step, it leaves no trace; the caller then finishes the requests.
// After the first few steps of few rows, each further one also moves a part of the weights into huge pages.
bool engine_step(Engine *e, Batch **b);
// Moves all weights into huge pages at once, for callers that only care about the speed of later steps.
void engine_use_hugepages(Engine *e);
// Runs steps until every request has finished. SIGINT, SIGTERM and SIGHUP (base/signals.h) finish all requests: after
// the layer that is being computed, or after the step if that may not be abandoned.
void engine_run(Engine *e);

// The option that a longer context needs: "--kv-mem" if that has made the context shorter than the model's, else "-c".
const char *engine_context_option(const Engine *e);
enum { CONTEXT_ADVICE = 160 };
// For an error that says what to shorten: how else n tokens fit. ", or start with -c 1024", with a warning beyond the
// length that the model was trained for; if memory is too small, that and the context which fits. `more`: tokens after
// the n that should fit, too, unless they go beyond the trained length.
void engine_context_advice(const Engine *e, int64_t n, int more, char out[static CONTEXT_ADVICE]);
// What the drafters of --speculate need to know of this engine; all pointers stay the engine's.
DraftTarget engine_draft_target(const Engine *e);
// Whether --evict lets a text grow past the context.
bool engine_endless(const Engine *e);
// The first failure of the GPU, of the model's file or of a router; all later results are void. QUILL_MODEL,
// QUILL_MEMORY.
Status engine_fault(const Engine *e);
// The QUILL_MODEL error for logits after n_tokens tokens that are all not finite. `more` is appended to the message.
Status engine_no_logit(const Engine *e, int n_tokens, const char *more);

// The bytes of a token as text; empty for ids of the model that the vocabulary does not have.
Str engine_piece(const Engine *e, int token, bool first);

#endif
