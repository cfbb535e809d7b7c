// chat.c: see chat.h.
#define _GNU_SOURCE
#include "chat.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "template.h"

static bool contains(Str text, const char *word) {
    return text.n > 0 && memmem(text.data, text.n, word, strlen(word)) != NULL;
}

static bool is_token(const Tokenizer *t, const char *piece) {
    int id = tokenizer_find(t, piece);
    return id >= 0 && tokenizer_is_control(t, id);
}

Status chat_choose(const Gguf *g, const Tokenizer *t, const Options *o, ChatForm *out, Buf *system) {
    *out = CHAT_RAW;
    Buf theirs = {0};
    char why[80];
    if (o->raw) return OK;
    Str template;
    TRY(gguf_str(g, "tokenizer.chat_template", &template, false));
    if (contains(template, IM_START) && contains(template, IM_END) && is_token(t, IM_START) && is_token(t, IM_END)) {
        bool plain = template_is_chatml(template, &theirs, why);
        *out = plain ? CHAT_CHATML : CHAT_RAW;
        if (plain && system && !o->system && !o->system_file && theirs.data) buf_append(system, theirs.data, theirs.n);
        buf_free(&theirs);
        if (plain) return OK;
        return status_error(QUILL_MODEL,
                            "%s: key tokenizer.chat_template: plain ChatML expected, which this version knows; this "
                            "one also puts \"%s\" into the prompt; --raw completes the bare text",
                            gguf_name(g), why);
    }
    if (template.n > 0)
        return status_error(QUILL_MODEL,
                            "%s: key tokenizer.chat_template: ChatML expected, another template found, which this "
                            "version does not know yet; --raw completes the bare text",
                            gguf_name(g));
    if (o->chat)
        return status_error(QUILL_MODEL, "%s: --chat: a chat template expected, the model has none; leave --chat out",
                            gguf_name(g));
    if (o->system || o->system_file)
        return status_error(QUILL_MODEL,
                            "%s: -sys: a chat template expected, the model has none; put the text into the prompt",
                            gguf_name(g));
    return OK;
}

const char *chat_name(ChatForm f) { return f == CHAT_CHATML ? "ChatML" : "none (raw text)"; }

void rendered_add(Rendered *r, const char *bytes, size_t n, bool trusted) {
    size_t at = r->text.n;
    buf_append(&r->text, bytes, n);
    buf_append(&r->trusted, bytes, n); // for the room; the marks come over it
    if (n) memset(r->trusted.data + at, trusted, n);
}

void rendered_free(Rendered *r) {
    buf_free(&r->text);
    buf_free(&r->trusted);
}

static void add_form(Rendered *r, const char *text) { rendered_add(r, text, strlen(text), true); }

void chat_render(ChatForm f, const Message *messages, int n, bool answer, Rendered *out) {
    for (int i = 0; i < n; i++) {
        const Message *m = &messages[i];
        if (f == CHAT_CHATML) {
            add_form(out, IM_START);
            add_form(out, m->role);
            add_form(out, "\n");
        }
        rendered_add(out, m->text.data, m->text.n, false);
        if (f == CHAT_CHATML) add_form(out, IM_END "\n");
    }
    if (answer && f == CHAT_CHATML) add_form(out, IM_START "assistant\n");
}

Status chat_encode(const Tokenizer *t, const Rendered *r, bool add_bos, int **out, int *n) {
    *out = NULL;
    *n = 0;
    size_t bound = tokenizer_bound(t, r->text.n);
    if (r->text.n > INT_MAX || bound >= INT_MAX)
        return status_error(QUILL_CONTEXT, "the text has %zu bytes, more than any context holds", r->text.n);
    int *ids = mem_alloc((bound + 1) * sizeof *ids);
    size_t count = tokenizer_encode(t, r->text.data ? r->text.data : "", r->text.n, (const uint8_t *)r->trusted.data,
                                    ids + 1, bound);
    int bos = tokenizer_bos(t);
    if (count > bound) { // SIZE_MAX: longer than the tokenizer takes
        free(ids);
        return status_error(QUILL_CONTEXT, "the prompt has %zu bytes, more than any context holds; shorten it",
                            r->text.n);
    }
    bool has_bos = count > 0 && ids[1] == bos;
    // An empty prompt has to begin with something, whether or not the model usually wants it.
    bool put = add_bos && bos >= 0 && !has_bos && (tokenizer_add_bos(t) || count == 0);
    if (put) ids[0] = bos;
    else memmove(ids, ids + 1, count * sizeof *ids);
    count += put;
    if (count == 0 && add_bos) {
        free(ids);
        return status_error(QUILL_USAGE,
                            "the prompt is empty, and this model has no token to begin with; give it a text");
    }
    *out = ids;
    *n = (int)count;
    return OK;
}
