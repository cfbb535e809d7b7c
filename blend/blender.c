// blend/blender.c: see blend/blender.h.
#define _GNU_SOURCE // memmem
#include "blend/blender.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer/prepare.h"
#include "base/file.h"
#include "base/note.h"
#include "base/paragraph.h"
#include "kv/fingerprint.h"

// A request that computes the lead-in and a chunk.
typedef struct ChunkRequest ChunkRequest;
struct ChunkRequest {
    Sequence seq;
    Request request;
    ChunkRequest *next;
};

struct Blender {
    Engine *e;
    BlendContext context;
    int *lead;
    ChunkRequest *running;
    Status unkept; // the first failure to store a chunk
};

// ---- files ----------------------------------------------------------------------------------------------------------

Status blender_text(const char *name, Str text, Str *out) {
    Str s = str_trim(utf8_without_mark(text));
    if (s.n == 0)
        return status_error(QUILL_USAGE, "%.500s: a text expected, found %s", name,
                            text.n ? "only white space" : "none");
    for (size_t i = 0; i < s.n;) {
        int length = utf8_next(s.data + i, s.n - i);
        if (s.data[i] == 0 || length < 1)
            return status_error(QUILL_USAGE,
                                "%.500s: text in UTF-8 expected, found byte 0x%02x at %zu of %zu; is it a binary file?",
                                name, (unsigned char)s.data[i], (size_t)(s.data - text.data) + i, text.n);
        i += (size_t)length;
    }
    *out = s;
    return OK;
}

static Status add_text(BlenderChunks *c, const char *name, Str text) {
    Str found;
    TRY(blender_text(name, text, &found));
    c->texts = mem_resize(c->texts, (size_t)(c->n + 1) * sizeof *c->texts);
    c->texts[c->n++] = found;
    return OK;
}

// Cuts a file at each occurrence of `split`, and skips blank parts.
static Status cut_file(BlenderChunks *c, const char *name, Str text, const char *split) {
    int before = c->n;
    for (const char *end; (end = memmem(text.data, text.n, split, strlen(split)));) {
        Str part = {text.data, (size_t)(end - text.data)};
        if (str_trim(part).n > 0) TRY(add_text(c, name, part));
        text.n -= part.n + strlen(split);
        text.data = end + strlen(split);
    }
    return str_trim(text).n == 0 && c->n > before ? OK : add_text(c, name, text);
}

Status blender_read(const AnswerConfig *config, BlenderChunks *out) {
    *out = (BlenderChunks){0};
    out->files = mem_alloc((size_t)(config->n_chunks + 1) * sizeof *out->files);
    for (int i = 0; i < config->n_chunks; i++) {
        const char *name = config->chunks[i];
        Buf *file = &out->files[out->n_files++];
        TRY(file_read(name, file));
        buf_append(file, "", 0);
        Str text = {file->data, file->n};
        if (config->chunk_split) TRY(cut_file(out, name, text, config->chunk_split));
        else TRY(add_text(out, name, text));
    }
    return OK;
}

void blender_chunks_free(BlenderChunks *c) {
    for (int i = 0; i < c->n_files; i++) buf_free(&c->files[i]);
    free(c->files);
    free(c->texts);
    *c = (BlenderChunks){0};
}

// ---- prompts --------------------------------------------------------------------------------------------------------

static void push_tokens(BlenderPrompt *p, const int *ids, int n) {
    p->tokens = mem_resize(p->tokens, (size_t)(p->n + n + 1) * sizeof *p->tokens);
    if (n) memcpy(p->tokens + p->n, ids, (size_t)n * sizeof *ids);
    p->n += n;
}

Status blender_add_chunk(Blender *b, Str text, BlenderPrompt *p) {
    const Engine *e = b->e;
    Buf whole = {0}; // with the blank line after it
    buf_append(&whole, text.data, text.n);
    buf_str(&whole, "\n\n");
    size_t bound = tokenizer_bound(e->tok, whole.n);
    int *ids = mem_alloc((bound + 1) * sizeof *ids), most = e->shape.n_ctx - b->context.n_lead;
    size_t n = tokenizer_encode(e->tok, whole.data, whole.n, NULL, ids, bound);
    Status st = OK;
    if (n > (size_t)most)
        st = status_error(QUILL_CONTEXT,
                          "a chunk of %zu bytes has %zu tokens, but the context has room for %d; cut it with "
                          "--chunk-split, or give a larger -c",
                          text.n, n, most);
    else {
        p->spans = mem_resize(p->spans, (size_t)(p->n_spans + 1) * sizeof *p->spans);
        p->spans[p->n_spans++] = (BlendSpan){p->n, (int)n};
        push_tokens(p, ids, (int)n);
    }
    free(ids);
    buf_free(&whole);
    return st;
}

// Encodes bytes [begin, end) of the text and appends their tokens.
static Status add_bytes(const Engine *e, const Rendered *text, size_t begin, size_t end, BlenderPrompt *p) {
    const uint8_t *trusted = (const uint8_t *)text->trusted.data;
    size_t bound = tokenizer_bound(e->tok, end - begin), n;
    int *ids = mem_alloc((bound + 1) * sizeof *ids);
    const uint8_t *marks = trusted ? trusted + begin : NULL;
    if (begin == end) n = 0;
    else if (p->n == 0) n = tokenizer_encode(e->tok, text->text.data, end, marks, ids, bound);
    else
        n = tokenizer_encode_after(e->tok, p->tokens[p->n - 1], text->text.data + begin, end - begin, marks, ids,
                                   bound);
    if (n <= bound) push_tokens(p, ids, (int)n);
    free(ids);
    return n <= bound ? OK : status_error(QUILL_CONTEXT, "the prompt has more bytes than any context holds");
}

// Encodes the first `end` bytes of the text, with the BOS token in front if the model wants it and the text has none.
static Status add_head(const Engine *e, const Rendered *text, size_t end, BlenderPrompt *p) {
    int bos = tokenizer_bos(e->tok);
    TRY(add_bytes(e, text, 0, end, p));
    if (bos < 0 || !tokenizer_add_bos(e->tok) || (p->n > 0 && p->tokens[0] == bos)) return OK;
    push_tokens(p, &bos, 1);
    memmove(p->tokens + 1, p->tokens, (size_t)(p->n - 1) * sizeof *p->tokens);
    p->tokens[0] = bos;
    return OK;
}

// Finds the last occurrence of `part` in the text. False: none.
static bool find_last(const Rendered *text, const Buf *part, size_t *at) {
    bool found = false;
    const char *data = text->text.data;
    for (size_t from = 0; data && from < text->text.n;) {
        const char *next = memmem(data + from, text->text.n - from, part->data, part->n);
        if (!next) break;
        *at = (size_t)(next - data);
        found = true;
        from = *at + 1;
    }
    return found;
}

void blender_join(const Str *chunks, int n_chunks, Buf *out) {
    for (int i = 0; i < n_chunks; i++) {
        buf_append(out, chunks[i].data, chunks[i].n);
        buf_str(out, "\n\n");
    }
}

Status blender_encode(Blender *b, const Rendered *text, size_t from, const Buf *joined, const Str *chunks, int n_chunks,
                      BlenderPrompt *out) {
    size_t at = 0;
    if (!find_last(text, joined, &at) || at < from)
        return status_error(QUILL_MODEL,
                            "the chat template: the unchanged text of the user's message expected in its output, found "
                            "a changed one, in which chunks cannot be located; give another --chat-template, or --raw");
    if (out->n > 0) TRY(add_bytes(b->e, text, from, at, out));
    else TRY(add_head(b->e, text, at, out));
    for (int i = 0; i < n_chunks; i++) TRY(blender_add_chunk(b, chunks[i], out));
    return add_bytes(b->e, text, at + joined->n, text->text.n, out);
}

Status blender_prompt(Blender *b, const AnswerConfig *config, const ChatTemplate *template, const Message *messages,
                      int n_messages, const Str *chunks, int n_chunks, Rendered *text, BlenderPrompt *out) {
    *out = (BlenderPrompt){0};
    Message *all = mem_alloc((size_t)n_messages * sizeof *all);
    Buf joined = {0}, last = {0};
    blender_join(chunks, n_chunks, &joined);
    memcpy(all, messages, (size_t)n_messages * sizeof *all);
    buf_append(&last, joined.data, joined.n);
    buf_append(&last, messages[n_messages - 1].text.data, messages[n_messages - 1].text.n);
    all[n_messages - 1].text = str_of_buf(&last);
    // Without a question the message ends with the blank line of the last chunk, which a template may strip.
    if (str_trim(messages[n_messages - 1].text).n == 0) joined.n -= 2;
    Status st = answer_render(config, template, all, n_messages, true, text);
    if (!st.code) st = blender_encode(b, text, 0, &joined, chunks, n_chunks, out);
    if (!st.code) answer_dump(b->e, config, text, out->tokens, out->n);
    if (!st.code) st = answer_fits(b->e, config, out->n);
    free(all);
    buf_free(&joined);
    buf_free(&last);
    return st;
}

void blender_prompt_free(BlenderPrompt *p) {
    free(p->tokens);
    free(p->spans);
    *p = (BlenderPrompt){0};
}

// ---- chunks that are not stored -------------------------------------------------------------------------------------

static bool is_running(const Blender *b, const int *ids, int n) {
    for (const ChunkRequest *c = b->running; c; c = c->next)
        if (c->seq.n_tokens == n && memcmp(c->seq.tokens, ids, (size_t)n * sizeof *ids) == 0) return true;
    return false;
}

// Adds a request for a chunk unless it is stored or being computed. True: added.
static bool begin_chunk(Blender *b, const int *tokens, BlendSpan s) {
    int n, *ids = blend_chunk_tokens(&b->context, tokens, s, &n);
    bool wanted = !chunkstore_has(b->context.store, ids, n) && !is_running(b, ids, n);
    if (wanted) {
        ChunkRequest *c = mem_alloc(sizeof *c);
        *c = (ChunkRequest){.seq = {.alone = true}, .request = {.max_new = 0}, .next = b->running};
        c->request.seq = &c->seq;
        c->request.sampling = sampler_defaults();
        sequence_push(&c->seq, ids, n);
        b->running = c;
        scheduler_add(b->e->sched, &c->request);
    }
    free(ids);
    return wanted;
}

static void end_chunk(Blender *b, ChunkRequest *c) {
    Status st = OK;
    if (c->request.finish == FINISH_LENGTH && !engine_fault(b->e).code)
        st = chunkstore_save(b->context.store, &b->e->kv, &c->seq);
    if (!b->unkept.code) b->unkept = st;
    if (st.code) note_print(b->context.quiet, "%s; the answer is complete, but this chunk is not saved", st.message);
    sequence_end(&b->e->kv, &c->seq);
    timeline_free(&c->request.time);
    free(c);
}

void blender_collect(Blender *b) {
    for (ChunkRequest **at = &b->running; *at;) {
        ChunkRequest *c = *at;
        if (c->request.finish == RUNNING) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        end_chunk(b, c);
    }
}

Status blender_unkept(const Blender *b) {
    TRY(engine_fault(b->e));
    return b->unkept;
}

bool blender_lacks(const Blender *b, const BlenderPrompt *p) {
    bool lacks = false;
    for (int i = 0; i < p->n_spans && !lacks; i++) {
        int n, *ids = blend_chunk_tokens(&b->context, p->tokens, p->spans[i], &n);
        lacks = !chunkstore_has(b->context.store, ids, n);
        free(ids);
    }
    return lacks;
}

int blender_compute(Blender *b, const BlenderPrompt *p) {
    int n = 0;
    for (int i = 0; i < p->n_spans; i++) {
        if (!begin_chunk(b, p->tokens, p->spans[i])) continue;
        engine_run(b->e);
        blender_collect(b);
        n++;
    }
    return n;
}

void blender_begin(Blender *b, const BlenderPrompt *p) {
    if (!blender_uses_kept(b)) return;
    for (int i = 0; i < p->n_spans; i++) begin_chunk(b, p->tokens, p->spans[i]);
}

// BlendContext.ready
static bool is_ready(void *arg, const int *tokens, const BlendSpan *spans, int n_spans) {
    Blender *b = arg;
    bool ready = true;
    blender_collect(b);
    for (int i = 0; i < n_spans && ready && b->running; i++) {
        int n, *ids = blend_chunk_tokens(&b->context, tokens, spans[i], &n);
        ready = !is_running(b, ids, n);
        free(ids);
    }
    return ready;
}

Blend *blender_request(Blender *b, const BlenderPrompt *p) {
    return blend_new(&b->context, p->spans, p->n_spans, b->e->policy);
}

void blender_report(const BlendStats *s, int n_computed) {
    if (s->n_chunks == 0) return; // --blend full, or a cached prefix had all chunks
    paragraph_item("chunks", "%d; %d computed now, %d without stored K and V", s->n_chunks, n_computed, s->n_lost);
    paragraph_item("blended", "%d tokens with stored K and V, %d of them computed again; %.1f ms waiting for files",
                   s->n_kept, s->n_again, 1e3 * s->load_seconds);
}

// ---- open, close ----------------------------------------------------------------------------------------------------

// Sets the lead-in of every chunk: the BOS token, or a newline if the model has none, so that no chunk has the first
// position of its sequence.
static void set_lead(Blender *b) {
    const Tokenizer *t = b->e->tok;
    size_t bound = tokenizer_bound(t, 1);
    b->lead = mem_alloc((bound + 1) * sizeof *b->lead);
    bool bos = tokenizer_bos(t) >= 0 && tokenizer_add_bos(t);
    if (bos) b->lead[0] = tokenizer_bos(t);
    b->context.n_lead = bos ? 1 : (int)tokenizer_encode(t, "\n", 1, NULL, b->lead, bound);
    b->context.lead = b->lead;
}

Status blender_open(Engine *e, const char *plan, bool quiet, Blender **out) {
    BlendPlan p;
    *out = NULL;
    TRY(plan_parse(plan, &p));
    TRY(blend_check(&e->model, e->kv.pool));
    if (e->evict)
        return status_error(QUILL_USAGE, "chunks: the whole KV cache expected, found --evict, which frees parts of it; "
                                         "leave one of them out");
    if (p.mode != BLEND_FULL && e->kv.partner && !e->kv.keep_partners)
        return status_error(QUILL_USAGE,
                            "chunks: K and V of whole texts expected, found a model with windows, which "
                            "frees parts of them; start with --blend %s, or with --blend full",
                            plan ? plan : BLEND_DEFAULT);
    KvHead like = fingerprint(&e->model, e->kv.pool);
    Blender *b = mem_alloc(sizeof *b);
    b->e = e;
    b->context = (BlendContext){.m = &e->model,
                                .kv = &e->kv,
                                .store = chunkstore_new(e->kv_dir.store, CHUNKSTORE_MEMORY, &like),
                                .plan = p,
                                .quiet = quiet,
                                .ready = is_ready,
                                .arg = b};
    set_lead(b);
    *out = b;
    return OK;
}

bool blender_uses_kept(const Blender *b) { return b->context.plan.mode != BLEND_FULL; }

void blender_close(Blender *b) {
    if (!b) return;
    while (b->running) {
        ChunkRequest *c = b->running;
        b->running = c->next;
        scheduler_cancel(b->e->sched, &c->request);
        end_chunk(b, c);
    }
    chunkstore_free(b->context.store);
    free(b->lead);
    free(b);
}
