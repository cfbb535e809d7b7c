// tests/rig/tiny_vocabulary.c: the vocabulary of a small random model: see tests/rig/tiny_model.h.
#include "tests/rig/tiny_vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void too_small(int n) {
    fprintf(stderr, "tiny_model: a larger vocabulary than %d is needed for these tokens\n", n);
    exit(QUILL_USAGE);
}

typedef struct {
    char (*text)[32];
    int32_t *types;
    float *scores;
    int n, cap;
    Buf merges; // one "left right" on each line
} Tokens;

static void add_token(Tokens *t, int type, float score, const char *text) {
    if (t->n == t->cap) too_small(t->cap);
    snprintf(t->text[t->n], sizeof t->text[0], "%s", text);
    t->types[t->n] = type;
    t->scores[t->n++] = score;
}

// Adds the text of the pair as a token, unless it exists. `space` is the vocabulary's space character.
static void add_merge(Tokens *t, int limit, const char *space, const char *left, const char *right) {
    char a[16], b[16], both[32];
    snprintf(a, sizeof a, "%s%s", *left == ' ' ? space : "", *left == ' ' ? left + 1 : left);
    snprintf(b, sizeof b, "%s", right);
    snprintf(both, sizeof both, "%s%s", a, b);
    if (t->n >= limit) return;
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->text[i], both) == 0) return;
    buf_printf(&t->merges, "%s %s\n", a, b);
    add_token(t, GGUF_TOKEN_NORMAL, (float)-t->n, both);
}

// Adds common English pieces first, then pairs of letters until the vocabulary is full.
static void add_merges(Tokens *t, int limit, const char *space) {
    static const char *const common[][2] = {
        {" ", "t"},  {"h", "e"},   {" t", "he"}, {" ", "a"},   {"i", "n"}, {"n", "d"}, {" a", "nd"}, {" ", "w"},
        {"a", "s"},  {" w", "as"}, {"o", "n"},   {"e", "r"},   {" ", "s"}, {"r", "e"}, {"o", "u"},   {" ", "o"},
        {"in", "g"}, {" ", "he"},  {"i", "t"},   {"a", "t"},   {"e", "s"}, {"l", "l"}, {"o", "r"},   {"v", "er"},
        {" t", "o"}, {"u", "s"},   {"er", "s"},  {"us", "er"}, {" ", "i"}, {"1", "2"},
    };
    for (size_t i = 0; i < ARRAY_LEN(common); i++) add_merge(t, limit, space, common[i][0], common[i][1]);
    for (char a = 'a'; a <= 'z'; a++)
        for (char b = 'a'; b <= 'z'; b++) add_merge(t, limit, space, (char[2]){a, 0}, (char[2]){b, 0});
    for (int i = 0; t->n < limit; i++) { // filler tokens, which no text contains
        char unused[32];
        snprintf(unused, sizeof unused, "<unused%d>", i);
        add_token(t, GGUF_TOKEN_NORMAL, (float)-t->n, unused);
    }
}

static void llama_tokens(Tokens *t, int limit) {
    char text[32];
    add_token(t, GGUF_TOKEN_UNKNOWN, 0, "<unk>");
    add_token(t, GGUF_TOKEN_CONTROL, 0, "<s>");
    add_token(t, GGUF_TOKEN_CONTROL, 0, "</s>");
    for (int i = 0; i < 256; i++) {
        snprintf(text, sizeof text, "<0x%02X>", i);
        add_token(t, GGUF_TOKEN_BYTE, 0, text);
    }
    if (t->n < limit) add_token(t, GGUF_TOKEN_NORMAL, -1e6f, "\xe2\x96\x81");
    for (const char *c = "etaoinshrdlu"; *c && t->n < limit; c++)
        add_token(t, GGUF_TOKEN_NORMAL, -1e6f, (char[2]){*c, 0});
    add_merges(t, limit, "\xe2\x96\x81");
}

// GPT-2's alphabet: printable bytes are characters of Latin-1, the other 68 bytes are characters from U+0100 on.
static void gpt2_tokens(Tokens *t, int limit) {
    for (int byte = 0, shifted = 0; byte < 256; byte++) {
        bool printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        int c = printable ? byte : 0x100 + shifted++;
        char text[3] = {(char)c, 0, 0};
        if (c >= 0x80) text[0] = (char)(0xc0 | c >> 6), text[1] = (char)(0x80 | (c & 0x3f));
        add_token(t, GGUF_TOKEN_NORMAL, 0, text);
    }
    add_merges(t, limit, "\xc4\xa0");
}

static void set_strings(Gguf *g, const char *key, const Tokens *t) {
    Str *s = mem_alloc((size_t)t->n * sizeof *s);
    for (int i = 0; i < t->n; i++) s[i] = str_of(t->text[i]);
    gguf_set_strings(g, key, s, (size_t)t->n);
    free(s);
}

static void set_merges(Gguf *g, Tokens *t) {
    size_t n = 0;
    Str *s = mem_alloc((t->merges.n + 1) * sizeof *s);
    for (char *line = t->merges.data, *end; line && (end = strchr(line, '\n')); line = end + 1)
        s[n++] = (Str){line, (size_t)(end - line)};
    gguf_set_strings(g, "tokenizer.ggml.merges", s, n);
    free(s);
}

static const char chatml[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

void tiny_vocabulary(Gguf *g, const TinyModel *m) {
    bool gpt2 = strcmp(m->tokens, "gpt2") == 0;
    size_t cap = (size_t)m->vocab;
    Tokens t = {
        mem_alloc(cap * 32), mem_alloc(cap * sizeof(int32_t)), mem_alloc(cap * sizeof(float)), 0, m->vocab, {0}};
    int n_last = (gpt2 ? 1 : 0) + (m->chat_template ? 2 : 0); // number of control tokens at the end
    if (gpt2) gpt2_tokens(&t, m->vocab - n_last);
    else llama_tokens(&t, m->vocab - n_last);
    int bos = 1, eos = 2;
    if (gpt2) {
        bos = eos = t.n;
        add_token(&t, GGUF_TOKEN_CONTROL, 0, "<|endoftext|>");
    }
    if (m->chat_template) {
        add_token(&t, GGUF_TOKEN_CONTROL, 0, "<|im_start|>");
        eos = t.n;
        add_token(&t, GGUF_TOKEN_CONTROL, 0, "<|im_end|>");
        gguf_set_str(g, "tokenizer.chat_template", strcmp(m->chat_template, "chatml") == 0 ? chatml : m->chat_template);
    }
    gguf_set_str(g, "tokenizer.ggml.model", m->tokens);
    if (gpt2) gguf_set_str(g, "tokenizer.ggml.pre", m->pre);
    set_strings(g, "tokenizer.ggml.tokens", &t);
    gguf_set_ints(g, "tokenizer.ggml.token_type", t.types, (size_t)t.n);
    if (gpt2) set_merges(g, &t);
    else gguf_set_floats(g, "tokenizer.ggml.scores", t.scores, (size_t)t.n);
    gguf_set_u32(g, "tokenizer.ggml.bos_token_id", (uint32_t)bos);
    gguf_set_u32(g, "tokenizer.ggml.eos_token_id", (uint32_t)eos);
    if (!gpt2) gguf_set_u32(g, "tokenizer.ggml.unknown_token_id", 0);
    gguf_set_bool(g, "tokenizer.ggml.add_bos_token", !gpt2);
    free(t.text);
    free(t.types);
    free(t.scores);
    buf_free(&t.merges);
}
