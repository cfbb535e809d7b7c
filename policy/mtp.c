// policy/mtp.c: see policy/mtp.h.
#include "policy/mtp.h"

#include <stdlib.h>
#include <string.h>

enum { ENDED = 8 }; // ended texts that are kept

typedef struct MtpText MtpText;
struct MtpText { // the head's rows of a text
    // Slot i holds the head's K and V of token base + i. n_cached of the rows are computed from vectors of the model;
    // n_chained rows after them from vectors of the head, for drafts.
    Sequence rows;
    int base, n_chained;
    // The vectors that the next rows take: of tokens base + rows.n_cached - 1, and so on. seen: the tokens that the
    // model computed these vectors from, some of which may be refused drafts.
    float *hidden; // (cap, dim)
    int *seen, n_hidden, cap;
    float *last;              // (dim) the vector that row n_cached - 1 took
    float *chain;             // (dim) the head's vector behind its last row
    Sequence text;            // all tokens of the text, then drafts; without blocks
    const Sequence *followed; // the model's sequence; NULL: the text has ended
    MtpText *next;            // in Mtp.texts
};

struct Mtp {
    Model head;
    const Model *m;
    DraftSteps steps;
    float *given;   // (max_rows, dim) Batch.given
    MtpText *texts; // the newest first
};

// ---- open, close ----------------------------------------------------------------------------------------------------

static size_t dim_of(const Mtp *h) { return (size_t)h->head.c.dim; }

Status mtp_open(const Model *m, Mtp **out) {
    Mtp *h = mem_alloc(sizeof *h);
    *h = (Mtp){.m = m};
    Status st = model_load_head(&h->head, m);
    if (st.code) mtp_free(h);
    *out = st.code ? NULL : h;
    return st;
}

// The bytes of those ends that are the model's.
static size_t shared_bytes(const Mtp *h) {
    const Ends *own = &h->head.ends, *theirs = &h->m->ends;
    size_t n = own->tok_embd.data == theirs->tok_embd.data ? tensor_bytes(&own->tok_embd) : 0;
    bool counted = h->head.c.tied; // model_weight_bytes counts a tied head once
    return n + (!counted && own->head.data == theirs->head.data ? tensor_bytes(&own->head) : 0);
}

size_t mtp_row_bytes(const Mtp *h) { return model_row_bytes(&h->head); }

DraftMemory mtp_memory(const Mtp *h, int n_threads, int n_seqs) {
    DraftMemory memory = draft_steps_memory(&h->head, n_threads, draft_steps_rows(MTP_WAITING, n_seqs), n_seqs, 0);
    size_t vectors = (size_t)(draft_steps_rows(MTP_WAITING, n_seqs) + (n_seqs + ENDED) * MTP_WAITING);
    memory.weights -= shared_bytes(h);
    memory.scratch += vectors * dim_of(h) * sizeof(float);
    return memory;
}

Status mtp_begin(Mtp *h, ThreadPool *pool, KvShape kv) {
    int most = draft_steps_rows(MTP_WAITING, kv.n_seqs);
    kv.share = false; // equal tokens do not mean equal rows: a text may lack some
    TRY(draft_steps_begin(&h->steps, &h->head, pool, kv, most));
    h->given = mem_alloc((size_t)most * dim_of(h) * sizeof *h->given);
    h->steps.step.batch.given = h->given;
    return OK;
}

static void drop(Mtp *h, MtpText *t) {
    MtpText **at = &h->texts;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    sequence_end(&h->steps.kv, &t->rows);
    sequence_free(&t->text);
    free(t->hidden);
    free(t->seen);
    free(t->chain);
    free(t->last);
    free(t);
}

void mtp_free(Mtp *h) {
    if (!h) return;
    while (h->texts) drop(h, h->texts);
    draft_steps_free(&h->steps);
    free(h->given);
    model_free(&h->head);
    free(h);
}

// ---- hidden vectors that wait ---------------------------------------------------------------------------------------

// The token whose vector the next row takes. That row is of the token after it.
static int next_hidden(const MtpText *t) { return t->base + t->rows.n_cached - 1; }

static int same_tokens(const Sequence *a, const Sequence *b) { return sequence_common(a, b->tokens, b->n_tokens); }

static void drop_drafts(Mtp *h, MtpText *t) {
    kvcache_truncate(&h->steps.kv, &t->rows, t->rows.n_cached);
    t->n_chained = 0;
}

// Drops the drafts and those vectors that do not belong to tokens of the text.
static void forget_drafts(Mtp *h, MtpText *t, const Sequence *text) {
    int n = 0, first = next_hidden(t);
    drop_drafts(h, t);
    while (n < t->n_hidden && first + n < text->n_tokens && t->seen[n] == text->tokens[first + n]) n++;
    t->n_hidden = n;
}

// The number of rows that can be computed: those with a vector and a token.
static int n_computable(const MtpText *t, const Sequence *text) {
    return int_max(0, int_min(t->n_hidden, text->n_tokens - next_hidden(t) - 1));
}

// Forgets all rows and vectors. The head begins again with the vector of token `from`.
static void begin_at(Mtp *h, MtpText *t, int from) {
    kvcache_release(&h->steps.kv, &t->rows);
    t->rows.n_tokens = t->n_hidden = t->n_chained = 0;
    t->base = from + 1;
}

// Frees slots for t: those of the oldest ended text, or else of the newest one that was preempted, whose vectors come
// again. False: there is none.
static bool free_slots(Mtp *h, const MtpText *t) {
    MtpText *ended = NULL, *preempted = NULL;
    for (MtpText *other = h->texts; other; other = other->next) {
        if (other == t) continue;
        if (!other->followed) ended = other;
        else if (!preempted && other->followed->n_blocks == 0 && other->rows.n_blocks > 0) preempted = other;
    }
    if (ended) drop(h, ended);
    else if (preempted) begin_at(h, preempted, 0);
    return ended || preempted;
}

// Gives `rows` slots up to n_slots, if need be those of texts that do not run.
static bool reserve(Mtp *h, MtpText *t, int n_slots) {
    while (n_slots <= h->steps.kv.max_slots && !kvcache_reserve(&h->steps.kv, &t->rows, n_slots))
        if (!free_slots(h, t)) return false;
    return n_slots <= h->steps.kv.max_slots;
}

// Appends the tokens of the next n rows, and reserves their slots and `more` for drafts.
static bool prepare(Mtp *h, MtpText *t, const Sequence *text, int n, int more) {
    sequence_push(&t->rows, text->tokens + next_hidden(t) + 1, n);
    return reserve(h, t, t->rows.n_cached + n + more);
}

// Adds rows of a text to the step: the next n that have a vector, or one draft.
static void add_rows(Mtp *h, MtpText *t, int n, bool wants_logits) {
    Step *step = &h->steps.step;
    bool chained = n == 0;
    const float *from = chained ? t->chain : t->hidden;
    n = int_max(1, n);
    memcpy(h->given + (size_t)step->batch.n_rows * dim_of(h), from, (size_t)n * dim_of(h) * sizeof *from);
    StepRows *rows = step_add(step, NULL, &t->rows, n, wants_logits);
    rows->wants_hidden = true;
    rows->first += chained ? t->n_chained : 0;
    rows->slot += chained ? t->n_chained : 0;
}

// Computes the step's rows. Then each text has the hidden vector of its last row.
static const float *run(Mtp *h, void *const *texts, int n) {
    const float *logits = draft_steps_run(&h->steps);
    const Batch *b = &h->steps.step.batch;
    const float *vectors = model_last_hidden(&h->head, &h->steps.work, b->n_rows);
    for (int i = 0; i < n; i++) {
        vectors += (size_t)h->steps.step.rows[i].n_known * dim_of(h);
        memcpy(((MtpText *)texts[i])->chain, vectors - dim_of(h), dim_of(h) * sizeof *vectors);
    }
    return logits;
}

// Counts n rows as computed; their vectors are not needed any more.
static void count(Mtp *h, MtpText *t, int n) {
    if (n == 0) return;
    kvcache_advance(&h->steps.kv, &t->rows, n);
    memcpy(t->last, t->hidden + (size_t)(n - 1) * dim_of(h), dim_of(h) * sizeof *t->last);
    t->n_hidden -= n;
    memmove(t->hidden, t->hidden + (size_t)n * dim_of(h), (size_t)t->n_hidden * dim_of(h) * sizeof *t->hidden);
    memmove(t->seen, t->seen + n, (size_t)t->n_hidden * sizeof *t->seen);
}

// Computes the next n rows without logits.
static void compute(Mtp *h, MtpText *t, int n) {
    if (n == 0) return;
    step_clear(&h->steps.step);
    add_rows(h, t, n, false);
    run(h, &(void *){t}, 1);
    count(h, t, n);
}

// Computes all rows that can be computed.
static void flush(Mtp *h, MtpText *t, const Sequence *text) {
    int n = n_computable(t, text);
    if (prepare(h, t, text, n, 0)) compute(h, t, n);
    else begin_at(h, t, next_hidden(t) + t->n_hidden);
}

static void keep_hidden(const Mtp *h, MtpText *t, int token, const float *vector) {
    if (t->n_hidden == t->cap) {
        t->cap = int_min(MTP_WAITING, int_max(8, 2 * t->cap));
        t->hidden = mem_resize(t->hidden, (size_t)t->cap * dim_of(h) * sizeof *t->hidden);
        t->seen = mem_resize(t->seen, (size_t)t->cap * sizeof *t->seen);
    }
    memcpy(t->hidden + (size_t)t->n_hidden * dim_of(h), vector, dim_of(h) * sizeof *vector);
    t->seen[t->n_hidden++] = token;
}

// ---- texts that begin with the same tokens --------------------------------------------------------------------------

static const Sequence *tokens_of(const MtpText *t) { return t->followed ? t->followed : &t->text; }

// The number of rows of a text that depend on the tokens of another one only. 0: not all of its first n are the same.
static int rows_in_common(const MtpText *t, const Sequence *text, int n) {
    int same = same_tokens(tokens_of(t), text);
    return same < n ? 0 : int_max(0, int_min(t->rows.n_cached, same - t->base));
}

// The text with most rows in common, whose first n tokens are the same; among equals an ended one.
static MtpText *find_same(const Mtp *h, const Sequence *text, int n) {
    MtpText *best = NULL;
    int most = 0;
    for (MtpText *t = h->texts; t; t = t->next) {
        int rows = rows_in_common(t, text, n);
        if (rows < 1 || rows < most || (rows == most && t->followed)) continue;
        best = t;
        most = rows;
    }
    return best;
}

// t continues the rows of another text, whose first n tokens are the same.
static void take_rows(Mtp *h, MtpText *t, MtpText *from, const Sequence *text, int n) {
    int rows = rows_in_common(from, text, n), n_more = from->rows.n_cached - rows;
    drop_drafts(h, from);
    kvcache_fork(&h->steps.kv, &from->rows, &t->rows);
    kvcache_truncate(&h->steps.kv, &t->rows, rows);
    t->base = from->base;
    if (n_more == 1) keep_hidden(h, t, text->tokens[next_hidden(t)], from->last);
    for (int i = 0; n_more == 0 && i < from->n_hidden && next_hidden(t) + i < n; i++)
        keep_hidden(h, t, from->seen[i], from->hidden + (size_t)i * dim_of(h));
    if (!from->followed) drop(h, from);
}

// Computes rows that wait in other texts of the head. A text counts if its first n tokens are those of `text`. Its rows
// are computed up to the first token that differs: the vectors behind it may be of refused drafts.
static void catch_up(Mtp *h, const Sequence *text, int n) {
    for (MtpText *t = h->texts; t; t = t->next) {
        int same = same_tokens(tokens_of(t), text), first = next_hidden(t), n_right = 0;
        int most = same < n ? 0 : int_min(t->n_hidden, same - first - 1);
        while (n_right < most && t->seen[n_right] == text->tokens[first + n_right]) n_right++;
        if (n_right == 0) continue;
        drop_drafts(h, t);
        if (prepare(h, t, text, n_right, 0)) compute(h, t, n_right);
        else kvcache_truncate(&h->steps.kv, &t->rows, t->rows.n_cached);
    }
}

static MtpText *new_text(Mtp *h, const Sequence *text, int first) {
    if (first > 0) catch_up(h, text, first); // the model does not compute these tokens again
    MtpText *t = mem_alloc(sizeof *t), *same = find_same(h, text, first);
    *t = (MtpText){.base = first + 1, .followed = text, .next = h->texts};
    t->chain = mem_alloc(dim_of(h) * sizeof *t->chain);
    t->last = mem_alloc(dim_of(h) * sizeof *t->last);
    h->texts = t;
    if (same) take_rows(h, t, same, text, first);
    return t;
}

// ---- observing ------------------------------------------------------------------------------------------------------

// Takes the vector of token i, after flushing what fills the memory. If vectors before it are missing, the next rows
// follow the rows before them at once.
static void take_hidden(Mtp *h, MtpText *t, const Sequence *text, int i, int token, const float *vector) {
    int gap = i - next_hidden(t) - t->n_hidden;
    if (gap < 0) return; // it is there: the model computes the token once more
    if (gap > 0 || t->n_hidden == MTP_WAITING) flush(h, t, text);
    if (gap > 0) {
        t->n_hidden = 0; // of tokens whose row would need a missing token
        t->base += i - next_hidden(t);
    }
    if (t->n_hidden < MTP_WAITING) keep_hidden(h, t, token, vector);
}

static void observe(void *arg, void **at, const StepRows *rows) {
    Mtp *h = arg;
    const Sequence *text = rows->seq;
    if (!*at) *at = new_text(h, text, rows->first);
    MtpText *t = *at;
    forget_drafts(h, t, text);
    for (int i = 0; i < rows->n_known + rows->n_draft; i++) {
        int token = i < rows->n_known ? text->tokens[rows->first + i] : rows->draft[i - rows->n_known];
        take_hidden(h, t, text, rows->first + i, token, rows->hidden + (size_t)i * dim_of(h));
    }
}

// ---- drafts ---------------------------------------------------------------------------------------------------------

// Gives MtpText.text the tokens of a text.
static void copy_tokens(MtpText *t, const Sequence *text) {
    int same = same_tokens(&t->text, text);
    t->text.n_tokens = same;
    sequence_push(&t->text, text->tokens + same, text->n_tokens - same);
}

static bool follow(void *arg, void **at, const Sequence *text, int most) {
    Mtp *h = arg;
    MtpText *t = *at;
    if (!t) return false;
    forget_drafts(h, t, text);
    int n = n_computable(t, text);
    if (n < 1 || next_hidden(t) + n != text->n_tokens - 1) return false;
    copy_tokens(t, text);
    t->n_hidden = n; // the model computes the last token again
    if (prepare(h, t, text, n, most)) return true;
    begin_at(h, t, text->n_tokens - 1);
    return false;
}

static int behind(const void *at, const Sequence *text) {
    const MtpText *t = at;
    (void)text;
    return t ? t->n_hidden : 0;
}

static const float *step(void *arg, void *const *texts, int n) {
    Mtp *h = arg;
    for (int i = 0; i < n; i++) {
        MtpText *t = texts[i];
        if (t->n_hidden > DRAFT_STEPS_FEW) compute(h, t, t->n_hidden - 1);
    }
    step_clear(&h->steps.step);
    for (int i = 0; i < n; i++) add_rows(h, texts[i], ((const MtpText *)texts[i])->n_hidden, true);
    const float *logits = run(h, texts, n);
    for (int i = 0; i < n; i++) {
        MtpText *t = texts[i];
        if (t->n_hidden == 0) t->n_chained++;
        count(h, t, t->n_hidden);
    }
    return logits;
}

static void push(void *at, int token) {
    MtpText *t = at;
    sequence_push(&t->text, &token, 1);
    sequence_push(&t->rows, &token, 1);
}

static const Sequence *tokens(const void *t) { return &((const MtpText *)t)->text; }

static void leave(void *arg, void *at, const Sequence *text) {
    Mtp *h = arg;
    MtpText *t = at;
    int n_ended = 0;
    if (!t) return;
    copy_tokens(t, text);
    forget_drafts(h, t, text);
    t->followed = NULL;
    MtpText *oldest = NULL;
    for (MtpText *other = h->texts; other; other = other->next) {
        if (other->followed) continue;
        n_ended++;
        oldest = other;
    }
    if (n_ended > ENDED) drop(h, oldest);
}

Drafter mtp_drafter(Mtp *h) {
    return (Drafter){.observe = observe,
                     .follow = follow,
                     .behind = behind,
                     .step = step,
                     .push = push,
                     .tokens = tokens,
                     .leave = leave,
                     .arg = h};
}
