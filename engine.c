// engine.c: opens a model and runs steps. See engine.h.
#include "engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/guard.h"
#include "base/note.h"
#include "base/signals.h"
#include "costs.h"
#include "cpu/backend.h"
#include "engine_file.h"
#include "kv/fingerprint.h"
#include "policy/plain.h"

const char *engine_prefill_unit(const Engine *e) {
    return cpu_prefill_unit(e->be, model_first_matrix(&e->model)->type);
}

// ---- open, close ----------------------------------------------------------------------------------------------------

// Warns even without --verbose: beyond its training a model often writes garbage, and no other message says why.
static void warn_beyond_training(const EngineConfig *config, int trained) {
    if (config->ctx_size > trained)
        note_print(config->quiet,
                   "-c %d: the model was trained for a context of %d; what it says beyond may be nonsense",
                   config->ctx_size, trained);
}

DraftTarget engine_draft_target(const Engine *e) {
    return (DraftTarget){.gguf = e->gguf,
                         .tok = e->tok,
                         .model = &e->model,
                         .be = e->be,
                         .pool = e->pool,
                         .kv = &e->shape,
                         .unit = engine_prefill_unit(e)};
}

// Finds the model's shape and weights in its file, and reads its vocabulary. Opens a GPU, starts the threads, and opens
// the model that drafts.
static Status open_model(Engine *e, EngineNeeds needs) {
    const EngineConfig *config = &e->config;
    TRY((config->deterministic ? cpu_backend_deterministic : cpu_backend)(config->isa, &e->be));
    TRY(model_load(&e->model, e->gguf, e->be));
    model_keep_experts(&e->model, config->cpu_moe ? e->model.c.n_layers : config->n_cpu_moe);
    TRY(device_plan_open(&e->devices, config, &e->model));
    if (needs.need_tokenizer) TRY(engine_file_tokenizer(e->gguf, &e->tok));
    if (e->tok && tokenizer_n(e->tok) > e->model.c.n_vocab)
        return status_error(QUILL_MODEL,
                            "%s: tensor token_embd.weight: a row for each of the %d tokens expected, %d found",
                            gguf_name(e->gguf), tokenizer_n(e->tok), e->model.c.n_vocab);
    e->pool = threads_new(config->threads);
    DraftTarget target = engine_draft_target(e);
    return config->speculate ? drafters_open(config, &target, needs.n_seqs, &e->drafters) : OK;
}

// Decides the context, the layers of each device and the rows of a step.
static Status plan_memory(Engine *e, EngineNeeds needs, MemoryPlan *plan) {
    const EngineConfig *config = &e->config;
    *plan = (MemoryPlan){.config = config,
                         .needs = needs,
                         .model = &e->model,
                         .draft = e->drafters.memory,
                         .devices = &e->devices,
                         .n_threads = threads_count(e->pool)};
    TRY(memory_plan_make(plan));
    e->shape = plan->shape;
    e->scratch = plan->scratch;
    if (e->drafters.mtp && e->devices.gpu && e->devices.n_layers > 0)
        return status_error(QUILL_USAGE,
                            "--speculate mtp: a model that the CPU computes expected, %d layers on a GPU "
                            "found; add --device cpu, or try --speculate ngram",
                            e->devices.n_layers);
    warn_beyond_training(config, int_max(1, e->model.c.n_ctx_train));
    model_set_context(&e->model, config->ctx_size ? config->ctx_size : e->shape.n_ctx);
    return OK;
}

// Copies the weights of a GPU's layers into its memory. The CPU uses its weights where they are, in the mapped file;
// only --check-tensors and --mlock read them here.
static Status load_weights(Engine *e, const MemoryPlan *plan) {
    const EngineConfig *config = &e->config;
    e->hugepages =
        (HugePages){.gguf = e->gguf, .pool = e->pool, .spare = kvshape_host_bytes(&e->shape)}; // room for the KV cache
    if (config->mlock) TRY(memory_plan_check_lock(plan, gguf_file_bytes(e->gguf)));
    if (config->check_tensors) TRY(model_check_tensors(&e->model));
    TRY(device_plan_load(&e->devices, &e->model, e->pool, config->quiet));
    if (config->mlock) { // locking reads the whole file, so the weights move into huge pages first
        engine_use_hugepages(e);
        engine_file_lock(config, e->gguf);
    }
    return OK;
}

// --kv-dir
static Status open_store(Engine *e) {
    const EngineConfig *config = &e->config;
    KvStore *store;
    KvHead like = fingerprint(&e->model, e->kv.pool);
    Buf kernels = {0};
    if (kv_n_layers(e->kv.pool) == 0)
        return status_error(QUILL_USAGE,
                            "--kv-dir: a model with attention expected, found %s, whose %d layers have none",
                            e->model.c.arch, e->model.c.n_layers);
    device_plan_kernels(&e->devices, e->be->isa, &kernels);
    if (config->deterministic) buf_str(&kernels, " in order");
    Status st = kvstore_open(config->kv_dir, config->kv_dir_size, config->kv_block, &like, kernels.data, &store);
    buf_free(&kernels);
    if (st.code) return st;
    kvdir_init(&e->kv_dir, store, &e->kv, e->policy, config->quiet);
    e->policy = &e->kv_dir.policy;
    return OK;
}

// --evict
static Status open_eviction(Engine *e) {
    EvictPlan plan;
    TRY(evict_parse(e->config.evict, &plan));
    TRY(evict_new(&plan, &e->model, &e->kv, &e->evict));
    e->evicting = evict_policy(e->evict, e->policy);
    e->policy = &e->evicting;
    return OK;
}

// --speculate
static Status open_speculation(Engine *e) {
    DraftTarget target = engine_draft_target(e);
    TRY(drafters_begin(&e->drafters, &e->config, &target));
    e->speculating = speculate_policy(e->drafters.speculate, e->policy);
    e->policy = &e->speculating;
    return OK;
}

// Makes the chain of policies for all requests, beginning at its end: each policy is put in front of those before it.
// Plain decoding is the last: it accepts tokens and calls no other policy. Speculation is the first: its `accept` and
// its `end` call those of the policies behind it.
static Status open_policies(Engine *e) {
    e->policy = &plain_policy;
    if (e->config.kv_dir) TRY(open_store(e));
    if (e->config.evict) TRY(open_eviction(e));
    if (e->config.speculate) TRY(open_speculation(e));
    return OK;
}

static Scheduler *new_scheduler(Engine *e, const MemoryPlan *plan) {
    SchedulerShape steps = {.n_vocab = e->model.c.n_vocab,
                            .max_rows = plan->max_rows,
                            .max_out = plan->max_out,
                            .max_seqs = e->shape.n_seqs,
                            .draws = model_draws(&e->model),
                            .draws_ahead = model_draws_ahead(&e->model)};
    return scheduler_new(&e->kv, e->sampler, steps, e->policy);
}

// Makes what the plan has planned. Each part needs those before it.
static Status make_parts(Engine *e, const MemoryPlan *plan) {
    TRY(load_weights(e, plan));
    TRY(kvcache_new(&e->kv, &e->shape));
    TRY(open_policies(e));
    TRY(workspace_new(&e->work, &e->model, e->pool, plan->max_rows, plan->max_out, e->shape.n_ctx));
    e->sampler = sampler_new(e->model.c.n_vocab);
    e->sched = new_scheduler(e, plan);
    return OK;
}

// Makes the parts of the engine from its configuration and its file.
static Status load(Engine *e, EngineNeeds needs) {
    MemoryPlan plan;
    TRY(open_model(e, needs));
    TRY(plan_memory(e, needs, &plan));
    return e->config.dry_run ? OK : memory_plan_explain(&plan, make_parts(e, &plan));
}

Status engine_open_view(Engine *e, const EngineConfig *config, EngineNeeds needs, Gguf *g) {
    double start = clock_now();
    *e = (Engine){.config = *config, .gguf = g, .progress = progress_new(config->quiet)};
    needs.n_seqs = int_max(1, needs.n_seqs);
    needs.max_out = int_max(needs.n_seqs, needs.max_out);
    if (config->speculate) needs.max_out = int_max(needs.max_out, drafters_rows(config, needs.n_seqs));
    Status st = load(e, needs);
    if (st.code) engine_close(e);
    e->load_seconds = clock_now() - start;
    return st;
}

Status engine_open(Engine *e, const EngineConfig *config, EngineNeeds needs) {
    double start = clock_now();
    *e = (Engine){0};
    Gguf *g;
    DevicePlan early;
    TRY(device_plan_open(&early, config, NULL)); // reports a missing GPU before the file is read, which may take long
    TRY(engine_file_open(config, &g));
    TRY(engine_open_view(e, config, needs, g));
    e->load_seconds = clock_now() - start;
    return OK;
}

void engine_close(Engine *e) {
    scheduler_free(e->sched);
    drafters_close(&e->drafters);
    evict_free(e->evict);
    sampler_free(e->sampler);
    workspace_free(&e->work);
    kvdir_free(&e->kv_dir);
    kvcache_free(&e->kv);
    threads_free(e->pool);
    grammar_cache_free(e->grammars);
    tokenizer_free(e->tok);
    model_free(&e->model);
    gguf_close(e->gguf);
    *e = (Engine){0};
}

// ---- the loop -------------------------------------------------------------------------------------------------------

// Divides the cost of a computed step among its requests in proportion to their rows, each counted once for every layer
// that it entered and once for the head. Rows of the prompt count as prefill, the others as decoding. A step that
// scheduler_ahead has begun has the sequences of scheduler_batch, with the same indices.
static void count_costs(Engine *e, const Batch *b) {
    Cost c = costs_batch(&e->model, e->kv.pool, b);
    double all = 0;
    for (int row = 0; row < b->n_rows; row++) all += b->ended[row] + 1;
    for (int row = 0; row < b->n_rows; row++) {
        Request *r = scheduler_rows(e->sched, b->seq[row])->request;
        int n_prompt = r->n_prompt - r->seq->n_gone; // slots of the prompt; token i is in slot i - n_gone
        double part = (b->ended[row] + 1) / all;
        timeline_cost(&r->time, b->slot[row] < n_prompt, part * c.flops, part * c.bytes);
    }
}

// Computes a step. If the model file was truncated meanwhile, all logits become NAN: then the requests end as with
// broken weights. False: `stop` has abandoned the step.
static bool forward(Engine *e, const Batch *b, const ModelStop *stop, float **logits) {
    if (!model_forward_until(&e->model, &e->work, e->kv.pool, b, stop, logits)) return false;
    count_costs(e, b);
    size_t n = *logits && guard_lost().code ? (size_t)b->n_out * (size_t)e->model.c.n_vocab : 0;
    for (size_t i = 0; i < n; i++) (*logits)[i] = NAN;
    return true;
}

// Starts the next step, if its rows are certain, and then waits for the tokens of this one: so the device computes
// while the host writes out tokens.
static const int *draw_tokens(Engine *e, const Batch *b) {
    Batch *next;
    float *none;
    e->begun = scheduler_ahead(e->sched, &next);
    if (e->begun) forward(e, next, NULL, &none);
    int *tokens = model_drawn(&e->model, &e->work);
    int n = tokens && guard_lost().code ? b->n_out : 0;
    for (int i = 0; i < n; i++) tokens[i] = -1;
    return tokens;
}

// ---- huge pages -----------------------------------------------------------------------------------------------------

// Huge pages help steps of at most SMALL_ROWS rows, which are limited by memory. A file below SMALL_FILE bytes gains
// nothing: the TLB covers its small pages.
enum { SMALL_ROWS = 16, SMALL_FILE = 64 << 20 };
// After the first HUGEPAGES_AFTER small steps, each further one converts 1/HUGEPAGES_STEPS of the file, which takes as
// long as a few steps. If it takes as long as HUGEPAGES_WORTH steps, it does not pay within one text.
enum { HUGEPAGES_AFTER = 8, HUGEPAGES_STEPS = 8, HUGEPAGES_WORTH = 16 };

static bool worth_hugepages(const Engine *e) {
    return e->model.n_device == 0 && gguf_file_bytes(e->gguf) >= SMALL_FILE;
}

void engine_use_hugepages(Engine *e) {
    if (worth_hugepages(e)) hugepages_convert(&e->hugepages, SIZE_MAX);
}

// Skips models with experts, since converting also reads the experts that no row uses.
static void hugepages_after_step(Engine *e, const Batch *b, double step_seconds) {
    if (e->model.c.n_experts > 0) return;
    if (b->n_rows > SMALL_ROWS || !worth_hugepages(e) || ++e->n_small <= HUGEPAGES_AFTER) return;
    e->hugepages.patience = HUGEPAGES_WORTH * step_seconds;
    hugepages_convert(&e->hugepages, gguf_file_bytes(e->gguf) / HUGEPAGES_STEPS);
}

// ---- requests -------------------------------------------------------------------------------------------------------

void engine_keep(Engine *e, const Sequence *q) { kvdir_sequence(&e->kv_dir, q); }

// ---- steps ----------------------------------------------------------------------------------------------------------

// Shows how much of a prompt is computed. A step may have the whole prompt, so its layers count too.
static void show_prefill(Engine *e, const Batch *b, int n_layers) {
    const double after = 1, between = 0.2; // seconds
    if (e->run_start == 0) return;
    const Request *r = scheduler_rows(e->sched, 0)->request;
    double now = clock_now(), part = (double)n_layers / e->model.c.n_layers;
    if (!r || b->n_seqs != 1 || r->n_new > 0 || now - e->run_start < after || now - e->shown < between) return;
    e->shown = now;
    progress_show(&e->progress, "prefill", r->seq->n_cached + part * b->n_rows, r->n_prompt);
}

static bool between_layers(void *arg, int n_layers) {
    Engine *e = arg;
    show_prefill(e, scheduler_batch(e->sched), n_layers);
    return e->may_abandon && e->stop();
}

bool engine_step(Engine *e, Batch **b) {
    double start = clock_now();
    if (!scheduler_next(e->sched, b)) return false;
    float *logits = NULL;
    ModelStop stop = {between_layers, e};
    e->may_abandon = scheduler_may_abandon(e->sched);
    if (!e->begun && !forward(e, *b, e->stop ? &stop : NULL, &logits)) {
        scheduler_abandon(e->sched);
        return true;
    }
    e->begun = false;
    const int *tokens = (*b)->draw ? draw_tokens(e, *b) : NULL;
    if ((*b)->whole) scheduler_observe(e->sched, model_last_hidden(&e->model, &e->work, (*b)->n_rows), e->model.c.dim);
    if ((*b)->n_out > 0) progress_erase(&e->progress); // the answer may go to the same terminal
    if (tokens) scheduler_take_tokens(e->sched, tokens);
    else scheduler_take(e->sched, logits);
    if (!e->begun) kvdir_step(&e->kv_dir, e->sched, *b); // reading K and V from a device waits for the step in flight
    hugepages_after_step(e, *b, clock_now() - start);
    return true;
}

void engine_run(Engine *e) {
    Batch *b;
    e->stop = signals_came;
    e->run_start = clock_now();
    for (;;) {
        if (signals_came()) scheduler_interrupt(e->sched);
        if (!engine_step(e, &b)) break;
        if (e->on_step) e->on_step(e->step_arg);
        show_prefill(e, b, 0);
    }
    e->stop = NULL;
    e->run_start = 0;
    progress_erase(&e->progress);
}

// ---- asking the engine ---------------------------------------------------------------------------------------------

// The largest -c whose KV cache fits into memory: what is available beside this engine, or the context that it has.
static int most_context(const Engine *e) {
    return int_max(e->shape.n_ctx, memory_plan_most_context(&e->shape, e->work.max_rows, e->config.kv_mem));
}

const char *engine_context_option(const Engine *e) {
    int wished = e->config.ctx_size ? e->config.ctx_size : e->model.c.n_ctx_train;
    return e->config.kv_mem && e->shape.n_ctx < wished ? "--kv-mem" : "-c";
}

void engine_context_advice(const Engine *e, int64_t n, int more, char out[static CONTEXT_ADVICE]) {
    int trained = e->model.c.n_ctx_train, most = most_context(e);
    int64_t fits = (n + more + 255) / 256 * 256;
    if (fits > trained && n <= trained) fits = trained;
    if (fits > most)
        snprintf(out, CONTEXT_ADVICE, "; %s has room for a context of %d at most",
                 e->config.kv_mem ? "--kv-mem" : "memory", most);
    else if (fits > trained)
        snprintf(out, CONTEXT_ADVICE,
                 ", or start with -c %lld; the model was trained for %d: beyond that length it may write nonsense",
                 (long long)fits, trained);
    else snprintf(out, CONTEXT_ADVICE, ", or start with -c %lld", (long long)fits);
}

bool engine_endless(const Engine *e) { return e->evict && evict_endless(e->evict); }

Status engine_fault(const Engine *e) {
    TRY(guard_lost());
    int broken = e->work.experts.broken;
    if (broken)
        return status_error(QUILL_MODEL,
                            "%s: layer %d: finite numbers of the router expected, others found (blk.%d.ffn_gate_inp*, "
                            "or what comes before it); --check-tensors looks for broken weights",
                            gguf_name(e->gguf), broken - 1, broken - 1);
    const Status *why = model_failure(&e->model);
    if (!why) return OK;
    return status_error(why->code,
                        "%s failed: %.600s; what it computed since is void: start again, with a smaller -c or -ngl if "
                        "memory was short, or with --device cpu",
                        e->model.device->name, why->message);
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
