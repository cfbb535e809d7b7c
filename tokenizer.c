// tokenizer.c: see tokenizer.h. Both kinds merge neighbours in a linked list of symbols, the best pair first, taken
// from a heap whose stale entries are skipped: O(n log n) for any text. SentencePiece BPE finds a pair by its bytes and
// rates it by the token's score; byte-level BPE finds it by its two ids and rates it by the merge's rank.
//
// Ids equal llama.cpp's, with three intended exceptions: invalid UTF-8 keeps its bytes; merges never produce a control
// token; among overlapping added tokens the leftmost is taken, and among those at one place the longest.
#include "tokenizer.h"

#include "tokens/normalize.h"
#include "tokens/pretokenize.h"
#include "tokens/vocab.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A span of the text that is a token or will be merged into one.
typedef struct {
    int32_t begin, n;   // bytes; n == 0: merged into its left neighbour
    int32_t prev, next; // -1: none
    int32_t id;         // -1: no token
} Symbol;

typedef struct {
    uint64_t order; // priority << 32 | left symbol: the lowest goes first
    int32_t n; // bytes of both symbols when the pair was added; if the sum differs now, one of them has been merged
    int32_t merged;
} MergePair;

typedef struct {
    Symbol *symbols;
    size_t symbols_cap;
    MergePair *heap;
    size_t n_heap, heap_cap;
    char *text; // SentencePiece: the fragment with the space put in front
    size_t text_cap;
    Buf normal; // the fragment in the normal form
} MergeScratch;

struct Tokenizer {
    char kind[80];
    Vocab vocab;
    Pretokenizer *pre; // NULL: a fragment is one piece
    NormalForm form;
    bool whole;    // ignore_merges: a piece that is itself a token is not merged from smaller ones
    bool newlines; // the same for pieces that are newlines alone
    MergeScratch *scratch;
};

// ---- loading --------------------------------------------------------------------------------------------------------

static Status load_patterns(Tokenizer *t, const Gguf *g, const GgufValue *value) {
    size_t n = value->type == GGUF_ARRAY ? (size_t)value->n : 0;
    Str *patterns = mem_alloc((n + 1) * sizeof *patterns);
    Status st = gguf_strings(g, value, patterns), bad = OK;
    if (!st.code) bad = pretokenizer_of_patterns(patterns, n, &t->pre);
    if (bad.code) st = status_error(bad.code, "%s: %s", gguf_name(g), bad.message);
    free(patterns);
    return st;
}

// Reads quill's own keys, which the view of a Hugging Face directory has (tokenizer.h).
static Status load_own_keys(Tokenizer *t, const Gguf *g) {
    Str form;
    TRY(gguf_bool(g, "quill.tokenizer.ignore_merges", &t->whole, t->pre && pretokenizer_ignores_merges(t->pre)));
    TRY(gguf_str(g, "quill.tokenizer.form", &form, false));
    if (form.data && !normalize_form(form, &t->form))
        return status_error(QUILL_MODEL, "%s: quill.tokenizer.form: NFC, NFD, NFKC or NFKD expected, %.*s found",
                            gguf_name(g), int_min((int)form.n, 20), form.data);
    return OK;
}

static Status load_kind(Tokenizer *t, const Gguf *g, bool *spm) {
    Str model, pre;
    TRY(gguf_str(g, "tokenizer.ggml.model", &model, true));
    t->newlines = str_is(model, "gemma4");
    *spm = t->newlines || str_is(model, "llama");
    if (!*spm && !str_is(model, "gpt2"))
        return status_error(
            QUILL_MODEL,
            "%s: tokenizer.ggml.model: \"llama\", \"gemma4\" or \"gpt2\" expected, \"%.*s\" found; quill does not "
            "support models with this kind of vocabulary",
            gguf_name(g), int_min((int)model.n, 64), model.data);
    const GgufValue *patterns = gguf_value(g, "quill.tokenizer.patterns");
    snprintf(t->kind, sizeof t->kind, "%.*s%s", (int)model.n, model.data, patterns ? "/regex" : "");
    if (patterns) return load_patterns(t, g, patterns);
    const Str lines = str_of("[^\\n]+|[\\n]+"); // whatever tokenizer.ggml.pre says
    if (t->newlines) return pretokenizer_of_patterns(&lines, 1, &t->pre);
    if (*spm) return OK;
    TRY(gguf_str(g, "tokenizer.ggml.pre", &pre, false));
    if (pre.n == 0) pre = str_of("default"); // files from before 2024
    t->pre = pretokenizer_new(pre);
    if (!t->pre) {
        Buf names = {0};
        pretokenizer_names(&names);
        Status st =
            status_error(QUILL_MODEL, "%s: tokenizer.ggml.pre: \"%.*s\" is not a known pre-tokenizer; expected: %s",
                         gguf_name(g), int_min((int)pre.n, 64), pre.data, names.data);
        buf_free(&names);
        return st;
    }
    snprintf(t->kind, sizeof t->kind, "gpt2/%.*s", (int)pre.n, pre.data);
    return OK;
}

Status tokenizer_load(const Gguf *g, Tokenizer **out) {
    *out = NULL;
    Tokenizer *t = mem_alloc(sizeof *t);
    t->scratch = mem_alloc(sizeof *t->scratch);
    bool spm = false;
    Status st = load_kind(t, g, &spm);
    if (!st.code) st = load_own_keys(t, g);
    if (!st.code) st = vocab_load(&t->vocab, g, spm, spm || pretokenizer_adds_bos(t->pre));
    if (st.code) tokenizer_free(t);
    else *out = t;
    return st;
}

void tokenizer_free(Tokenizer *t) {
    if (!t) return;
    vocab_free(&t->vocab);
    pretokenizer_free(t->pre);
    free(t->scratch->symbols);
    free(t->scratch->heap);
    free(t->scratch->text);
    buf_free(&t->scratch->normal);
    free(t->scratch);
    free(t);
}

// ---- merging --------------------------------------------------------------------------------------------------------

typedef struct {
    int *ids;
    size_t n, max;
} TokenIds;

static void emit(TokenIds *out, int id) {
    if (id < 0) return;
    if (out->n < out->max) out->ids[out->n] = id;
    out->n++;
}

static void heap_push(MergeScratch *s, MergePair pair) {
    if (s->n_heap == s->heap_cap) {
        s->heap_cap = s->heap_cap ? s->heap_cap * 2 : 256;
        s->heap = mem_resize(s->heap, s->heap_cap * sizeof *s->heap);
    }
    size_t at = s->n_heap++;
    for (; at > 0 && s->heap[(at - 1) / 2].order > pair.order; at = (at - 1) / 2) s->heap[at] = s->heap[(at - 1) / 2];
    s->heap[at] = pair;
}

static MergePair heap_pop(MergeScratch *s) {
    MergePair top = s->heap[0], last = s->heap[--s->n_heap];
    size_t at = 0;
    for (size_t child = 1; child < s->n_heap; child = 2 * at + 1) {
        if (child + 1 < s->n_heap && s->heap[child + 1].order < s->heap[child].order) child++;
        if (s->heap[child].order >= last.order) break;
        s->heap[at] = s->heap[child];
        at = child;
    }
    s->heap[at] = last;
    return top;
}

// Adds the pair that starts at this symbol to the heap, if it can merge.
static void consider(const Tokenizer *t, const char *text, int left) {
    MergeScratch *s = t->scratch;
    if (left < 0 || s->symbols[left].next < 0) return;
    const Symbol *a = &s->symbols[left], *b = &s->symbols[a->next];
    int n = a->n + b->n;
    uint32_t priority;
    int merged;
    if (!t->vocab.by_merges) {
        merged = vocab_piece(&t->vocab, text + a->begin, (size_t)n);
        if (merged < 0) return;
        priority = t->vocab.priority[merged];
    } else {
        const MergeSlot *slot = vocab_merge(&t->vocab, a->id, b->id);
        if (!slot) return;
        merged = slot->merged;
        priority = slot->rank_plus_1;
    }
    heap_push(s, (MergePair){(uint64_t)priority << 32 | (uint32_t)left, n, merged});
}

static void merge(const Tokenizer *t, const char *text, int n_symbols) {
    MergeScratch *s = t->scratch;
    s->n_heap = 0;
    for (int i = 0; i + 1 < n_symbols; i++) consider(t, text, i);
    while (s->n_heap > 0) {
        MergePair pair = heap_pop(s);
        int left = (int)(uint32_t)pair.order, right = s->symbols[left].next;
        Symbol *a = &s->symbols[left];
        if (a->n == 0 || right < 0 || a->n + s->symbols[right].n != pair.n) continue; // one of them has merged since
        a->id = pair.merged;
        a->n = pair.n;
        a->next = s->symbols[right].next;
        s->symbols[right].n = 0;
        if (a->next >= 0) s->symbols[a->next].prev = left;
        consider(t, text, a->prev);
        consider(t, text, left);
    }
}

static void append_symbol(MergeScratch *s, int i, int begin, int n, int id) {
    if ((size_t)i == s->symbols_cap) {
        s->symbols_cap = s->symbols_cap ? s->symbols_cap * 2 : 256;
        s->symbols = mem_resize(s->symbols, s->symbols_cap * sizeof *s->symbols);
    }
    s->symbols[i] = (Symbol){begin, n, i - 1, -1, id};
    if (i > 0) s->symbols[i - 1].next = i;
}

static bool has_byte_tokens(const Vocab *v, const char *s, int n) {
    for (int i = 0; i < n; i++)
        if (v->byte_id[(unsigned char)s[i]] < 0) return false;
    return true;
}

// Adds a symbol for a character or a byte. As in the tokenizers library, an unknown one is left out if the vocabulary
// has no unknown token, and its neighbours may merge.
static int append_known(const Tokenizer *t, const char *text, int i, int begin, int n, int id) {
    const Vocab *v = &t->vocab;
    if (id < 0 && v->types_hold && v->unk < 0 && !has_byte_tokens(v, text + begin, n)) return i;
    append_symbol(t->scratch, i, begin, n, id);
    return i + 1;
}

// A symbol without a token is written as the tokens of its bytes. If a byte has no token, SentencePiece and the
// tokenizers library give the unknown token for the symbol; byte-level BPE of a GGUF file drops the byte, as llama.cpp
// does. Returns whether it was the unknown token. `after`: the symbol before was one too; if the vocabulary fuses
// unknown tokens, this one is not written again.
static bool emit_unmerged(const Vocab *v, const char *s, int n, bool after, TokenIds *out) {
    if ((v->spm || v->types_hold) && !has_byte_tokens(v, s, n)) {
        if (!after || !v->fuse_unk) emit(out, v->unk);
        return true;
    }
    for (int i = 0; i < n; i++) emit(out, v->byte_id[(unsigned char)s[i]]);
    return false;
}

static void emit_symbols(const Tokenizer *t, const char *text, int n_symbols, TokenIds *out) {
    const Symbol *symbols = t->scratch->symbols;
    bool unknown = false;
    for (int i = n_symbols ? 0 : -1; i >= 0; i = symbols[i].next) {
        if (symbols[i].id < 0) unknown = emit_unmerged(&t->vocab, text + symbols[i].begin, symbols[i].n, unknown, out);
        else {
            emit(out, symbols[i].id);
            unknown = false;
        }
    }
}

// ---- encoding -------------------------------------------------------------------------------------------------------

static void encode_word(const Tokenizer *t, const char *text, int n, TokenIds *out) {
    int whole = n == 1 || t->whole ? vocab_piece(&t->vocab, text, (size_t)n) : -1;
    if (whole >= 0) {
        emit(out, whole);
        return;
    }
    int n_symbols = 0;
    for (int i = 0; i < n; i++)
        n_symbols = append_known(t, text, n_symbols, i, 1, t->vocab.byte_id[(unsigned char)text[i]]);
    merge(t, text, n_symbols);
    emit_symbols(t, text, n_symbols, out);
}

static void encode_bytes(const Tokenizer *t, const char *text, int n, TokenIds *out) {
    int n_words;
    const PretokenPiece *words = pretokenizer_split(t->pre, text, n, &n_words);
    for (int i = 0; i < n_words; i++) encode_word(t, text + words[i].begin, words[i].end - words[i].begin, out);
}

// Encodes one piece of SentencePiece text: splits it into characters and merges them.
static void encode_characters(const Tokenizer *t, const char *text, int n, TokenIds *out) {
    bool ask = t->whole || (t->newlines && *text == '\n');
    int whole = ask ? vocab_piece(&t->vocab, text, (size_t)n) : -1, n_symbols = 0;
    if (whole >= 0) {
        emit(out, whole);
        return;
    }
    for (int i = 0, len; i < n; i += len) {
        len = int_max(1, utf8_next(text + i, (size_t)(n - i)));
        n_symbols = append_known(t, text, n_symbols, i, len, vocab_piece(&t->vocab, text + i, (size_t)len));
    }
    merge(t, text, n_symbols);
    emit_symbols(t, text, n_symbols, out);
}

static bool begins_with_space(Str s) { return str_has_prefix(s, " ") || str_has_prefix(s, "\xe2\x96\x81"); }

// Puts a space in front at the start of the text and after an added token, as llama.cpp does; not if the text goes on.
static void encode_sentence(const Tokenizer *t, const char *fragment, int n_fragment, bool goes_on, TokenIds *out) {
    MergeScratch *s = t->scratch;
    if (s->text_cap < (size_t)n_fragment + 1) {
        s->text_cap = (size_t)n_fragment + 1;
        s->text = mem_resize(s->text, s->text_cap);
    }
    Str all = {fragment, (size_t)n_fragment};
    bool there = t->vocab.prefix != SPACE_PREFIX_ALWAYS && begins_with_space(all);
    size_t prefix = t->vocab.add_space_prefix && !goes_on && !there;
    s->text[0] = ' ';
    int n = (int)(prefix + vocab_decode_spaces(all, s->text + prefix)), n_pieces = 1;
    const PretokenPiece whole = {0, n, true}, *pieces = &whole;
    if (t->pre) pieces = pretokenizer_split(t->pre, s->text, n, &n_pieces);
    for (int i = 0; i < n_pieces; i++)
        encode_characters(t, s->text + pieces[i].begin, pieces[i].end - pieces[i].begin, out);
}

static void encode_fragment(const Tokenizer *t, const char *text, size_t n, bool goes_on, TokenIds *out) {
    if (n == 0) return;
    if (t->form != NORMALIZE_NONE) {
        Buf *normal = &t->scratch->normal;
        normal->n = 0;
        normalize_append(normal, t->form, (Str){text, n});
        text = normal->data;
        n = normal->n;
    }
    if (t->vocab.spm) encode_sentence(t, text, (int)n, goes_on, out);
    else encode_bytes(t, text, (int)n, out);
}

// The length in bytes of the white-space character at s; 0: the character at s is not white space.
static size_t white(const char *s, size_t n) {
    uint32_t c = 0;
    int len = utf8_read(s, n, &c);
    return len > 0 && utf8_is_space(c) ? (size_t)len : 0;
}

static size_t white_end(const char *text, size_t at, size_t n) {
    for (size_t len; at < n && (len = white(text + at, n - at)) > 0;) at += len;
    return at;
}

// Returns where the run of white space that ends at `at` begins, but not before `first`.
static size_t white_begin(const char *text, size_t first, size_t at) {
    for (;;) {
        size_t before = at;
        while (before > first && ((unsigned char)text[--before] & 0xc0) == 0x80) {
        }
        if (before == at || white(text + before, at - before) != at - before) return at;
        at = before;
    }
}

static size_t encode(const Tokenizer *t, bool goes_on, const char *text, size_t n, const uint8_t *trusted, int *ids,
                     size_t max) {
    TokenIds out = {ids, 0, max};
    if (n == 0) return 0;
    const Vocab *v = &t->vocab;
    if (n >= INT_MAX / 2 / normalize_growth(t->form)) return SIZE_MAX; // offsets are ints
    size_t begin = 0;
    bool search = v->n_user_defined > 0 || (trusted && v->n_added > 0);
    for (size_t i = 0; i < n && search;) {
        size_t n_found = 1;
        int id = vocab_added(v, text + i, n - i, trusted ? trusted + i : NULL, &n_found);
        if (id >= 0) {
            int strips = v->strips ? v->strips[id] : 0;
            size_t end = strips & STRIP_LEFT ? white_begin(text, begin, i) : i;
            encode_fragment(t, text + begin, end - begin, goes_on, &out);
            emit(&out, id);
            begin = i + n_found;
            if (strips & STRIP_RIGHT) begin = white_end(text, begin, n);
            n_found = begin - i;
            goes_on = v->prefix == SPACE_PREFIX_FIRST;
        }
        i += n_found;
    }
    encode_fragment(t, text + begin, n - begin, goes_on, &out);
    return out.n;
}

size_t tokenizer_encode(const Tokenizer *t, const char *text, size_t n, const uint8_t *trusted, int *ids, size_t max) {
    return encode(t, false, text, n, trusted, ids, max);
}

size_t tokenizer_encode_after(const Tokenizer *t, int last, const char *text, size_t n, const uint8_t *trusted,
                              int *ids, size_t max) {
    int type = last < t->vocab.n ? t->vocab.types[last] : GGUF_TOKEN_UNUSED; // a model may have more rows than tokens
    bool added = type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_USER_DEFINED;
    bool goes_on = !added || t->vocab.prefix == SPACE_PREFIX_FIRST;
    size_t skip = added && t->vocab.strips && t->vocab.strips[last] & STRIP_RIGHT ? white_end(text, 0, n) : 0;
    return encode(t, goes_on, text + skip, n - skip, trusted ? trusted + skip : NULL, ids, max);
}

size_t tokenizer_bound(const Tokenizer *t, size_t n_bytes) {
    // SentencePiece: every other byte may be an added token, with a space put in front of what follows.
    size_t spaces = t->vocab.spm ? n_bytes / 2 + 1 : 0, bound;
    if (!size_mul(n_bytes, normalize_growth(t->form), &n_bytes)) return SIZE_MAX;
    return size_add(n_bytes, spaces, &bound) ? bound : SIZE_MAX;
}

// ---- decoding and look-ups ------------------------------------------------------------------------------------------

Str tokenizer_piece(const Tokenizer *t, int id) {
    assert(id >= 0 && id < t->vocab.n);
    return t->vocab.pieces[id];
}

Str tokenizer_stream_piece(const Tokenizer *t, int id, bool first) {
    Str s = tokenizer_piece(t, id);
    const Vocab *v = &t->vocab;
    if (!first || !v->spm || !v->add_space_prefix || s.n == 0 || s.data[0] != ' ') return s;
    // A token of text or a byte: no space was put in front of an added token.
    bool from_text = v->types[id] == GGUF_TOKEN_BYTE || vocab_piece(v, s.data, s.n) == id;
    return from_text ? (Str){s.data + 1, s.n - 1} : s;
}

void tokenizer_decode(const Tokenizer *t, const int *ids, size_t n, bool special, Buf *out) {
    bool first = true;
    for (size_t i = 0; i < n; i++) {
        bool control = tokenizer_is_control(t, ids[i]);
        if (control && !special) continue;
        Str s = tokenizer_stream_piece(t, ids[i], first);
        buf_append(out, s.data, s.n);
        first = first && control;
    }
}

int tokenizer_n(const Tokenizer *t) { return t->vocab.n; }
const char *tokenizer_kind(const Tokenizer *t) { return t->kind; }

int tokenizer_find(const Tokenizer *t, Str piece) {
    for (int id = 0; id < t->vocab.n; id++)
        if (str_eq(t->vocab.pieces[id], piece)) return id;
    return -1;
}

bool tokenizer_is_control(const Tokenizer *t, int id) { return vocab_is_control(&t->vocab, id); }

bool tokenizer_is_eog(const Tokenizer *t, int id) {
    for (int i = 0; i < t->vocab.n_eog; i++)
        if (t->vocab.eog[i] == id) return true;
    return false;
}

int tokenizer_eog_ids(const Tokenizer *t, int *ids, int max) {
    for (int i = 0; i < t->vocab.n_eog && i < max; i++) ids[i] = t->vocab.eog[i];
    return t->vocab.n_eog;
}

int tokenizer_suppressed_ids(const Tokenizer *t, int *ids, int max) {
    for (int i = 0; i < (int)t->vocab.n_suppressed && i < max; i++) ids[i] = t->vocab.suppressed[i];
    return (int)t->vocab.n_suppressed;
}

int tokenizer_bos(const Tokenizer *t) { return t->vocab.bos; }
int tokenizer_eos(const Tokenizer *t) { return t->vocab.eos; }
bool tokenizer_add_bos(const Tokenizer *t) { return t->vocab.add_bos && t->vocab.bos >= 0; }
bool tokenizer_add_eos(const Tokenizer *t) { return t->vocab.add_eos && tokenizer_last(t) >= 0; }
int tokenizer_last(const Tokenizer *t) { return t->vocab.last >= 0 ? t->vocab.last : t->vocab.eos; }
