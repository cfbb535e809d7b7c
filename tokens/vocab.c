// tokens/vocab.c: see tokens/vocab.h.
#include "tokens/vocab.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/falling.h"

// Limit the memory that a hostile file can take: its strings may be empty, but each token takes some 40 bytes here.
// They are four times the largest vocabularies in use.
enum { MAX_TOKENS = 1 << 20, MAX_MERGES = 4 << 20 };

// ---- tables ---------------------------------------------------------------------------------------------------------

static uint32_t piece_hash(const Vocab *v, const char *s, size_t n) { return (uint32_t)hash_bytes(v->key, s, n); }

static uint32_t pair_hash(const Vocab *v, int32_t left, int32_t right) {
    return (uint32_t)hash_step(v->key, 0, (uint64_t)(uint32_t)left << 32 | (uint32_t)right);
}

// The mask of a table for n entries: a power of two, less one, that leaves at least a third of the slots free.
static uint32_t table_mask(size_t n) {
    size_t slots = 16;
    while (slots < n + n / 2) slots *= 2;
    return (uint32_t)(slots - 1);
}

static size_t table_bytes(uint32_t mask, size_t slot_bytes) { return ((size_t)mask + 1) * slot_bytes; }

// Uses huge pages: tables are filled in random order, and with small pages half of the loading time went into page
// table walks.
static void *table_alloc(uint32_t mask, size_t slot_bytes) {
    void *table = pages_alloc(table_bytes(mask, slot_bytes), true);
    if (!table) mem_refused(table_bytes(mask, slot_bytes));
    return table;
}

// The slot that holds these bytes, or the free slot where they would be inserted.
static PieceSlot *piece_slot(const Vocab *v, uint32_t hash, const char *s, size_t n) {
    for (uint32_t i = hash & v->by_piece_mask;; i = (i + 1) & v->by_piece_mask) {
        PieceSlot *slot = &v->by_piece[i];
        if (slot->id_plus_1 == 0) return slot;
        if (slot->hash == hash && str_eq(v->pieces[slot->id_plus_1 - 1], (Str){s, n})) return slot;
    }
}

int vocab_piece(const Vocab *v, const char *s, size_t n) {
    return n > (size_t)v->max_piece ? -1 : piece_slot(v, piece_hash(v, s, n), s, n)->id_plus_1 - 1;
}

static MergeSlot *merge_slot(const Vocab *v, int32_t left, int32_t right) {
    for (uint32_t i = pair_hash(v, left, right) & v->by_pair_mask;; i = (i + 1) & v->by_pair_mask) {
        MergeSlot *slot = &v->by_pair[i];
        if (slot->rank_plus_1 == 0 || (slot->left == left && slot->right == right)) return slot;
    }
}

// ---- loading: strings -----------------------------------------------------------------------------------------------

// GPT-2's alphabet: printable characters of Latin-1 stand for themselves, the other bytes for U+0100 and up, in order.
static int byte_of_character(int c) {
    if ((c > 0x20 && c < 0x7f) || (c > 0xa0 && c < 0x100 && c != 0xad)) return c;
    if (c >= 0x100 && c <= 0x120) return c - 0x100;        // bytes 00 to 20
    if (c >= 0x121 && c <= 0x142) return c - 0x121 + 0x7f; // bytes 7f to a0
    return c == 0x143 ? 0xad : -1;
}

// Translates a string of that alphabet into bytes; they take no more room than the string. False: it has characters
// outside of the alphabet, which were copied; no text can give this token.
static bool alphabet_decode(Str s, char *out, size_t *n_out) {
    bool whole = true;
    size_t n = 0;
    for (size_t i = 0; i < s.n;) {
        unsigned char c = (unsigned char)s.data[i];
        if (c > 0x20 && c < 0x7f) { // the usual case
            out[n++] = (char)c;
            i++;
            continue;
        }
        int two = c >= 0xc2 && c <= 0xc5 && i + 1 < s.n && ((unsigned char)s.data[i + 1] & 0xc0) == 0x80;
        int byte = byte_of_character(two ? (c & 0x1f) << 6 | ((unsigned char)s.data[i + 1] & 0x3f) : c < 0x80 ? c : 0);
        if (byte >= 0) out[n++] = (char)byte;
        else {
            whole = false;
            out[n++] = s.data[i];
            if (two) out[n++] = s.data[i + 1];
        }
        i += two ? 2 : 1;
    }
    *n_out = n;
    return whole;
}

size_t vocab_decode_spaces(Str s, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < s.n;) {
        bool space = s.n - i >= 3 && memcmp(s.data + i, "\xe2\x96\x81", 3) == 0;
        out[n++] = space ? ' ' : s.data[i];
        i += space ? 3 : 1;
    }
    return n;
}

// The byte that a string "<0xNN>" names; -1: the string has another form.
static int named_byte(Str s) {
    if (s.n != 6 || memcmp(s.data, "<0x", 3) != 0 || s.data[5] != '>') return -1;
    int high = str_hex_digit(s.data[3]), low = str_hex_digit(s.data[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

// ---- loading: vocabulary --------------------------------------------------------------------------------------------

// Tokens with these names are control tokens, whatever type the file gives them: many files mark them as normal. A row
// with a key applies only if the file does not give the token's id under that key.
static const struct {
    const char *names;
    bool ends_generation;
    const char *key;
} known_names[] = {
    {"<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|calls|> <|flush|> <end_of_turn> <|endoftext|> </s> "
     "<|eom_id|> <|eot|> <|eom|> <|assistant_end|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> "
     "<turn|> "
     "<|tool_response> [e~[ "
     "<\xef\xbd\x9c"
     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
     true, NULL},
    {"<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD]", true, "tokenizer.ggml.fim_pad_token_id"},
    {"<|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame>", true, "tokenizer.ggml.fim_rep_token_id"},
    {"<|file_sep|>", true, "tokenizer.ggml.fim_sep_token_id"},
    {"<|fim_prefix|> <fim-prefix> <fim_prefix> <PRE> \xe2\x96\x81<PRE> <|code_prefix|> <|prefix|> "
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "begin\xef\xbd\x9c>",
     false, "tokenizer.ggml.fim_pre_token_id"},
    {"<|fim_suffix|> <fim-suffix> <fim_suffix> <SUF> \xe2\x96\x81<SUF> <|code_suffix|> <|suffix|> "
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81hole\xef\xbd\x9c>",
     false, "tokenizer.ggml.fim_suf_token_id"},
    {"<|fim_middle|> <fim-middle> <fim_middle> <MID> \xe2\x96\x81<MID> <|code_middle|> <|middle|> "
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "end\xef\xbd\x9c>",
     false, "tokenizer.ggml.fim_mid_token_id"},
};

static bool is_word_of(const char *words, Str word) {
    for (const char *at = words; *at;) {
        size_t n = strcspn(at, " ");
        if (str_eq(word, (Str){at, n})) return true;
        at += n + (at[n] == ' ');
    }
    return false;
}

static void add_eog(Vocab *v, int id) {
    if (id < 0) return;
    int at = v->n_eog;
    while (at > 0 && v->eog[at - 1] >= id) at--;
    if (at < v->n_eog && v->eog[at] == id) return;
    v->eog = mem_resize(v->eog, (size_t)(v->n_eog + 1) * sizeof *v->eog);
    memmove(v->eog + at + 1, v->eog + at, (size_t)(v->n_eog - at) * sizeof *v->eog);
    v->eog[at] = id;
    v->n_eog++;
}

static void remove_eog(Vocab *v, int id) {
    int n = 0;
    for (int i = 0; i < v->n_eog; i++)
        if (v->eog[i] != id) v->eog[n++] = v->eog[i];
    v->n_eog = n;
}

// With types_hold, an added token </s> that is not special is text, as Gemma's HTML tag.
static bool is_html_tag(const Vocab *v, int id, const Str *texts) {
    return v->types_hold && v->types[id] == GGUF_TOKEN_USER_DEFINED && str_is(texts[id], "</s>");
}

static void apply_known_names(Vocab *v, const Gguf *g, const Str *texts) {
    for (int id = 0; id < v->n; id++) {
        Str s = texts[id];
        if (s.n < 4 || is_html_tag(v, id, texts)) continue;
        char first = s.data[0], last = s.data[s.n - 1];
        if ((first != '<' && first != '[' && first != '_' && first != '\xe2') ||
            (last != '>' && last != ']' && last != '['))
            continue;
        for (size_t i = 0; i < ARRAY_LEN(known_names); i++) {
            if (!is_word_of(known_names[i].names, s)) continue;
            if (known_names[i].key && gguf_value(g, known_names[i].key)) continue;
            if (v->types_hold && v->types[id] == GGUF_TOKEN_NORMAL) continue;
            v->types[id] = GGUF_TOKEN_CONTROL;
            if (known_names[i].ends_generation) add_eog(v, id);
        }
    }
}

static Status array_of_n(const Vocab *v, const Gguf *g, const char *key, const GgufValue **out) {
    *out = gguf_value(g, key);
    if (*out && (*out)->type == GGUF_ARRAY && (*out)->n != (uint64_t)v->n)
        return status_error(QUILL_MODEL,
                            "%s: %s: %d elements expected, one for each token, %llu found; convert the model again",
                            gguf_name(g), key, v->n, (unsigned long long)(*out)->n);
    return OK;
}

static Status load_types(Vocab *v, const Gguf *g) {
    v->types = mem_alloc((size_t)v->n);
    memset(v->types, GGUF_TOKEN_NORMAL, (size_t)v->n);
    const GgufValue *value;
    TRY(array_of_n(v, g, "tokenizer.ggml.token_type", &value));
    if (!value) return OK;
    int32_t *types = mem_alloc((size_t)v->n * sizeof *types);
    Status st = gguf_ints(g, value, types);
    for (int i = 0; i < v->n && !st.code; i++)
        if (types[i] >= GGUF_TOKEN_NORMAL && types[i] <= GGUF_TOKEN_BYTE) v->types[i] = (uint8_t)types[i];
    free(types);
    return st;
}

// Some writers give whole scores as integers.
static Status read_scores(const Vocab *v, const Gguf *g, const GgufValue *value, float *out) {
    if (value->type != GGUF_ARRAY || value->elem_type != GGUF_I32) return gguf_floats(g, value, out);
    int32_t *whole = mem_alloc((size_t)v->n * sizeof *whole);
    Status st = gguf_ints(g, value, whole);
    for (int i = 0; i < v->n; i++) out[i] = (float)whole[i];
    free(whole);
    return st;
}

// Without scores all pairs have the same priority, and the leftmost is merged first, as in llama.cpp.
static Status load_scores(Vocab *v, const Gguf *g) {
    const GgufValue *value;
    TRY(array_of_n(v, g, "tokenizer.ggml.scores", &value));
    float *scores = mem_alloc((size_t)v->n * sizeof *scores);
    Status st = value ? read_scores(v, g, value, scores) : OK;
    v->priority = mem_alloc((size_t)v->n * sizeof *v->priority);
    for (int i = 0; i < v->n && !st.code; i++) v->priority[i] = falling_bits(isnan(scores[i]) ? -INFINITY : scores[i]);
    free(scores);
    return st;
}

// Writes the token's bytes. True: merging may produce this token.
static bool decode_text(Vocab *v, int id, Str text, char *out, size_t *n_out) {
    int type = v->types[id], byte = named_byte(text);
    bool by_name = v->spm && type == GGUF_TOKEN_NORMAL && !v->types_hold;
    if (byte >= 0 && (type == GGUF_TOKEN_BYTE || by_name)) {
        v->types[id] = GGUF_TOKEN_BYTE;
        if (v->spm && v->byte_id[byte] < 0) v->byte_id[byte] = id;
        *out = (char)byte;
        *n_out = 1;
        return false;
    }
    bool special = type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_UNKNOWN || type == GGUF_TOKEN_USER_DEFINED;
    if (!v->spm && !special) return alphabet_decode(text, out, n_out);
    if (v->spm && (!special || type == GGUF_TOKEN_USER_DEFINED)) {
        *n_out = vocab_decode_spaces(text, out);
        // Merges do not produce an added token with spaces: llama.cpp merges text in which spaces are U+2581. So does
        // the tokenizers library, for all tokens; in a llama2.c vocabulary tokens have spaces.
        return (type != GGUF_TOKEN_USER_DEFINED && !v->types_hold) || !memchr(text.data, ' ', text.n);
    }
    if (text.n) memcpy(out, text.data, text.n);
    *n_out = text.n;
    return false;
}

static void load_pieces(Vocab *v, const Str *texts) {
    size_t n_bytes = 1; // so that the allocation is never empty
    for (int i = 0; i < v->n; i++) n_bytes += texts[i].n;
    v->bytes = mem_alloc(n_bytes);
    v->pieces = mem_alloc((size_t)v->n * sizeof *v->pieces);
    v->by_piece_mask = table_mask((size_t)v->n);
    v->by_piece = table_alloc(v->by_piece_mask, sizeof *v->by_piece);
    memset(v->byte_id, -1, sizeof v->byte_id);
    char *at = v->bytes;
    for (int id = 0; id < v->n; id++) {
        Str *piece = &v->pieces[id];
        piece->data = at;
        bool mergeable = decode_text(v, id, texts[id], at, &piece->n) && piece->n > 0 && piece->n <= INT_MAX;
        at += piece->n;
        if (!mergeable) continue;
        uint32_t hash = piece_hash(v, piece->data, piece->n);
        PieceSlot *slot = piece_slot(v, hash, piece->data, piece->n);
        if (slot->id_plus_1 == 0) *slot = (PieceSlot){hash, id + 1}; // the lowest id of duplicate pieces stays
        v->max_piece = int_max(v->max_piece, (int)piece->n);
    }
    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        if (v->byte_id[b] < 0) v->byte_id[b] = vocab_piece(v, &c, 1);
    }
}

static bool decode_part(const Vocab *v, Str s, char *out, size_t *n_out) {
    if (!v->spm) return alphabet_decode(s, out, n_out);
    *n_out = vocab_decode_spaces(s, out);
    return true;
}

typedef struct {
    Str text;
    uint32_t hash;
    int32_t id; // -1: not a piece
} PieceLookup;

// Merges whose pieces are looked up together, so that the latencies of the memory overlap.
enum { AHEAD = 32 };
typedef struct {
    int n;
    PieceLookup piece[AHEAD * 3]; // of each merge left, right, and both together
    uint32_t rank[AHEAD];
} MergeGroup;

// Decodes a merge, given as "left right", to `both`, which has room for six times the longest piece, and adds it to the
// group. Returns the number of bytes written; 0: it is no merge of pieces.
static size_t decode_merge(const Vocab *v, Str merge, uint32_t rank, char *both, MergeGroup *group) {
    const char *space = merge.n > 1 ? memchr(merge.data + 1, ' ', merge.n - 1) : NULL;
    if (!space) return 0;
    Str left = {merge.data, (size_t)(space - merge.data)}, right = {space + 1, merge.n - left.n - 1};
    size_t max = 3 * (size_t)v->max_piece, n_left, n_right; // in the file a byte takes up to 3 (U+2581), or 2 otherwise
    if (left.n > max || right.n > max) return 0;
    if (!decode_part(v, left, both, &n_left) || !decode_part(v, right, both + n_left, &n_right)) return 0;
    if (n_left + n_right > (size_t)v->max_piece) return 0;
    PieceLookup *piece = group->piece + (size_t)group->n * 3;
    piece[0].text = (Str){both, n_left};
    piece[1].text = (Str){both + n_left, n_right};
    piece[2].text = (Str){both, n_left + n_right};
    group->rank[group->n++] = rank;
    return n_left + n_right;
}

// Each loop fetches what the next one reads.
static void find_pieces(const Vocab *v, PieceLookup *l, int n) {
    for (int i = 0; i < n; i++) {
        l[i].hash = piece_hash(v, l[i].text.data, l[i].text.n);
        __builtin_prefetch(&v->by_piece[l[i].hash & v->by_piece_mask]);
    }
    for (int i = 0; i < n; i++) {
        l[i].id = v->by_piece[l[i].hash & v->by_piece_mask].id_plus_1 - 1;
        if (l[i].id >= 0) __builtin_prefetch(&v->pieces[l[i].id]);
    }
    for (int i = 0; i < n; i++)
        if (l[i].id >= 0) __builtin_prefetch(v->pieces[l[i].id].data);
    for (int i = 0; i < n; i++) l[i].id = piece_slot(v, l[i].hash, l[i].text.data, l[i].text.n)->id_plus_1 - 1;
}

// Adds the merges of the group, without those that have a part that is no piece, and empties the group.
static void add_merges(Vocab *v, MergeGroup *group) {
    PieceLookup *end = group->piece + (size_t)group->n * 3;
    const uint32_t *rank = group->rank;
    find_pieces(v, group->piece, group->n * 3);
    for (const PieceLookup *l = group->piece; l < end; l += 3)
        __builtin_prefetch(&v->by_pair[pair_hash(v, l[0].id, l[1].id) & v->by_pair_mask]);
    for (const PieceLookup *l = group->piece; l < end; l += 3, rank++) {
        if (l[0].id < 0 || l[1].id < 0 || l[2].id < 0) continue;
        MergeSlot *slot = merge_slot(v, l[0].id, l[1].id);
        // Of duplicate merges the first one counts, as in llama.cpp; in the tokenizers library the last one.
        if (slot->rank_plus_1 == 0 || v->types_hold) *slot = (MergeSlot){l[0].id, l[1].id, l[2].id, *rank + 1};
    }
    group->n = 0;
}

static Status load_merges(Vocab *v, const Gguf *g) {
    const GgufValue *value = gguf_value(g, "tokenizer.ggml.merges");
    if (!value)
        return status_error(QUILL_MODEL,
                            "%s: tokenizer.ggml.merges: expected with tokenizer.ggml.model \"gpt2\", found "
                            "none; convert the model again",
                            gguf_name(g));
    if (value->type != GGUF_ARRAY || value->elem_type != GGUF_STR)
        return status_error(QUILL_MODEL, "%s: tokenizer.ggml.merges: an array of strings expected, GGUF type %d found",
                            gguf_name(g), (int)value->elem_type);
    if (value->n > MAX_MERGES)
        return status_error(QUILL_MODEL, "%s: tokenizer.ggml.merges: at most %d strings expected, %llu found",
                            gguf_name(g), MAX_MERGES, (unsigned long long)value->n);
    v->by_pair_mask = table_mask((size_t)value->n);
    v->by_pair = table_alloc(v->by_pair_mask, sizeof *v->by_pair);
    enum { ROOM = 1 << 16 }; // bytes of merges that are looked up together, besides the last one
    char *both = mem_alloc(ROOM + 6 * (size_t)v->max_piece + 1);
    MergeGroup group = {0};
    const uint8_t *at = value->data;
    size_t used = 0;
    for (uint32_t rank = 0; rank < value->n; rank++) {
        used += decode_merge(v, gguf_next_string(&at), rank, both + used, &group);
        if (group.n < AHEAD && used < ROOM && rank + 1 < value->n) continue;
        add_merges(v, &group);
        used = 0;
    }
    free(both);
    return OK;
}

// ---- loading: added tokens, roles -----------------------------------------------------------------------------------

// Longer added tokens are ignored: at every position of a text a whole one may have to be compared.
enum { ADDED_MAX = 1024 };

static int compare_added(const void *a, const void *b) {
    const Added *x = a, *y = b;
    int order = memcmp(x->text.data, y->text.data, x->text.n < y->text.n ? x->text.n : y->text.n);
    if (order) return order;
    if (x->text.n != y->text.n) return x->text.n < y->text.n ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool is_added(const Vocab *v, int id, const Str *texts) {
    int type = v->types[id];
    if (texts[id].n == 0 || texts[id].n > ADDED_MAX) return false;
    // SentencePiece: a token with U+2581 (a space) comes from merging, not from a search in the text.
    if (v->spm && type == GGUF_TOKEN_USER_DEFINED) return v->pieces[id].n == texts[id].n;
    return type == GGUF_TOKEN_USER_DEFINED || type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_UNKNOWN;
}

// Of equal texts keeps the lowest user-defined id and the lowest other id: a hostile file may hold a million of them.
static int drop_duplicates(Vocab *v, int n) {
    int kept = 0;
    bool seen[2] = {false, false};
    for (int i = 0; i < n; i++) {
        if (i == 0 || !str_eq(v->added[i].text, v->added[i - 1].text)) seen[0] = seen[1] = false;
        bool user_defined = v->types[v->added[i].id] == GGUF_TOKEN_USER_DEFINED;
        Added one = v->added[i];
        if (!seen[user_defined]) v->added[kept++] = one;
        seen[user_defined] = true;
    }
    return kept;
}

static void load_added(Vocab *v, const Str *texts) {
    for (int id = 0; id < v->n; id++) v->n_added += is_added(v, id, texts);
    v->added = mem_alloc((size_t)v->n_added * sizeof *v->added);
    int n = 0;
    for (int id = 0; id < v->n; id++) {
        if (!is_added(v, id, texts)) continue;
        v->added[n++] = (Added){v->pieces[id], id};
        v->n_user_defined += v->types[id] == GGUF_TOKEN_USER_DEFINED;
    }
    qsort(v->added, (size_t)n, sizeof *v->added, compare_added);
    v->n_added = n = drop_duplicates(v, n);
    for (int i = 0, c = 0; c <= 256; c++) {
        while (i < n && (unsigned char)v->added[i].text.data[0] < c) i++;
        v->added_first[c] = i;
    }
}

// An id that is out of range means none: many files write -1 or the size of the vocabulary.
static Status load_id(const Vocab *v, const Gguf *g, const char *key, int fallback, int *out) {
    *out = fallback < v->n ? fallback : -1;
    const GgufValue *value = gguf_value(g, key);
    if (!value) return OK;
    uint64_t id;
    bool negative;
    if (!gguf_integer(value, &id, &negative))
        return status_error(QUILL_MODEL, "%s: %s: an integer expected, a value of GGUF type %d found", gguf_name(g),
                            key, (int)value->type);
    *out = !negative && id < (uint64_t)v->n ? (int)id : -1;
    return OK;
}

static int find_eog(const Vocab *v, const Str *texts, const char *text) {
    for (int i = 0; i < v->n_eog; i++)
        if (str_is(texts[v->eog[i]], text)) return v->eog[i];
    return -1;
}

// Removes some ids from the end-of-generation ids: in some families a token ends only a part of an answer, while a
// token of the same name ends the whole answer in other families.
static void apply_eog_exceptions(Vocab *v, const Str *texts) {
    bool harmony = find_eog(v, texts, "<|return|>") >= 0 || find_eog(v, texts, "<|flush|>") >= 0;
    bool calls = find_eog(v, texts, "<|call|>") >= 0 || find_eog(v, texts, "<|calls|>") >= 0;
    if (harmony && calls) remove_eog(v, find_eog(v, texts, "<|end|>"));
    // Gemma's </s> is an HTML tag. As in llama.cpp, which has this rule for Gemma 4, it becomes normal text.
    int tag = find_eog(v, texts, "</s>");
    bool gemma4 = find_eog(v, texts, "<|tool_response>") >= 0, gemma = find_eog(v, texts, "<end_of_turn>") >= 0;
    if (tag < 0 || (!gemma4 && (!gemma || tag == v->eos))) return;
    remove_eog(v, tag);
    if (!v->types_hold) v->types[tag] = GGUF_TOKEN_NORMAL;
}

// Reads an array of ids and keeps the *n that are in the vocabulary's range. The caller frees *out.
static Status load_ids(const Vocab *v, const Gguf *g, const char *key, int32_t **out, size_t *n) {
    const GgufValue *value = gguf_value(g, key);
    size_t n_all = value && value->type == GGUF_ARRAY ? (size_t)value->n : 0;
    *out = mem_alloc((n_all + 1) * sizeof **out);
    *n = 0;
    if (!value) return OK;
    Status st = gguf_ints(g, value, *out);
    for (size_t i = 0; i < n_all && !st.code; i++)
        if ((*out)[i] >= 0 && (*out)[i] < v->n) (*out)[(*n)++] = (*out)[i];
    return st;
}

enum { MOST_EOG = 1024 };
static Status load_eog_ids(Vocab *v, const Gguf *g) {
    int32_t *ids;
    size_t n;
    Status st = load_ids(v, g, "quill.tokenizer.eog_ids", &ids, &n);
    if (!st.code && n > MOST_EOG)
        st = status_error(QUILL_MODEL, "%s: quill.tokenizer.eog_ids: at most %d ids expected, %zu found", gguf_name(g),
                          MOST_EOG, n);
    for (size_t i = 0; i < n && !st.code; i++) add_eog(v, ids[i]);
    free(ids);
    return st;
}

// A tag that ends an answer is protected like all other ends.
static void protect_tag(Vocab *v, const Str *texts) {
    for (int i = 0; i < v->n_eog; i++)
        if (is_html_tag(v, v->eog[i], texts)) v->types[v->eog[i]] = GGUF_TOKEN_CONTROL;
}

static Status load_strips(Vocab *v, const Gguf *g) {
    static const char *const keys[] = {"quill.tokenizer.strip_left", "quill.tokenizer.strip_right"};
    for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
        int32_t *ids;
        size_t n;
        Status st = load_ids(v, g, keys[k], &ids, &n);
        if (n && !v->strips) v->strips = mem_alloc((size_t)v->n);
        for (size_t i = 0; i < n; i++) v->strips[ids[i]] |= k ? STRIP_RIGHT : STRIP_LEFT;
        free(ids);
        TRY(st);
    }
    return OK;
}

// Phi-3: added tokens absorb the white space after them. tokenizer.json says so; GGUF files do not.
static Status load_phi_strips(Vocab *v, const Gguf *g, const Str *texts) {
    Str arch;
    TRY(gguf_str(g, "general.architecture", &arch, false));
    if (!v->spm || v->types_hold || !str_is(arch, "phi3")) return OK;
    v->strips = mem_alloc((size_t)v->n);
    for (int id = 0; id < v->n; id++) {
        bool added = v->types[id] == GGUF_TOKEN_CONTROL || v->types[id] == GGUF_TOKEN_USER_DEFINED;
        if (added && id != v->bos && !str_is(texts[id], "<|endoftext|>")) v->strips[id] = STRIP_RIGHT;
    }
    return OK;
}

static bool is_gemma4(const Gguf *g) {
    Str model;
    return !gguf_str(g, "tokenizer.ggml.model", &model, false).code && str_is(model, "gemma4");
}

static Status load_space_prefix(Vocab *v, const Gguf *g) {
    static const char *const words[] = {"always", "missing", "first"};
    Str word;
    TRY(gguf_bool(g, "tokenizer.ggml.add_space_prefix", &v->add_space_prefix, !is_gemma4(g)));
    TRY(gguf_str(g, "quill.tokenizer.space_prefix", &word, false));
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_is(word, words[i])) v->prefix = (SpacePrefix)i;
    return OK;
}

// Some files mark a letter as special, for example "!" as the padding token. The letter has no other token and would
// vanish from every text, so it is text, unless it begins a text or ends an answer.
static void free_letters(Vocab *v, const Str *texts) {
    for (int id = 0; id < v->n; id++) {
        bool letter = texts[id].n == 1 && texts[id].data[0] > ' ' && texts[id].data[0] < 0x7f;
        bool special = v->types[id] == GGUF_TOKEN_CONTROL || v->types[id] == GGUF_TOKEN_UNKNOWN;
        if (!letter || !special || id == v->bos || id == v->last) continue;
        int i = 0;
        while (i < v->n_eog && v->eog[i] != id) i++;
        if (i == v->n_eog) v->types[id] = v->types_hold ? GGUF_TOKEN_USER_DEFINED : GGUF_TOKEN_NORMAL;
    }
}

// Finds BOS, EOS, the unknown token and the end-of-generation ids. Needs the types, and comes before the pieces.
static Status load_roles(Vocab *v, const Gguf *g, const Str *texts) {
    apply_known_names(v, g, texts);
    // llama.cpp's default for "gpt2" is 11, Falcon's <|endoftext|>. In other vocabularies 11 is a comma, which must not
    // end an answer.
    bool falcon = v->n > 11 && v->types[11] == GGUF_TOKEN_CONTROL;
    TRY(load_id(v, g, "tokenizer.ggml.bos_token_id", v->spm ? 1 : falcon ? 11 : -1, &v->bos));
    TRY(load_id(v, g, "tokenizer.ggml.eos_token_id", v->spm ? 2 : falcon ? 11 : -1, &v->eos));
    TRY(load_id(v, g, "tokenizer.ggml.unknown_token_id", v->spm ? 0 : -1, &v->unk));
    TRY(load_id(v, g, "quill.tokenizer.last_id", -1, &v->last));
    add_eog(v, v->eos);
    static const char *const ends[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id",
                                       "tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_rep_token_id",
                                       "tokenizer.ggml.fim_sep_token_id"};
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        int id;
        TRY(load_id(v, g, ends[i], -1, &id));
        add_eog(v, id);
    }
    apply_eog_exceptions(v, texts);
    TRY(load_eog_ids(v, g));
    protect_tag(v, texts);
    free_letters(v, texts);
    if (!gguf_value(g, "tokenizer.ggml.token_type")) { // without types only the roles tell which tokens are not text
        if (v->bos >= 0) v->types[v->bos] = GGUF_TOKEN_CONTROL;
        if (v->eos >= 0) v->types[v->eos] = GGUF_TOKEN_CONTROL;
        if (v->unk >= 0) v->types[v->unk] = GGUF_TOKEN_UNKNOWN;
    }
    TRY(gguf_bool(g, "tokenizer.ggml.add_bos_token", &v->add_bos, v->add_bos));
    TRY(gguf_bool(g, "tokenizer.ggml.add_eos_token", &v->add_eos, false));
    v->add_bos = v->add_bos || is_gemma4(g); // whatever the file says, as llama.cpp has it
    return load_space_prefix(v, g);
}

// ---- loading --------------------------------------------------------------------------------------------------------

static Status load_all(Vocab *v, const Gguf *g, const Str *texts) {
    TRY(load_types(v, g));
    TRY(gguf_bool(g, "quill.tokenizer.types_hold", &v->types_hold, false));
    bool ranks = !v->spm || is_gemma4(g);
    TRY(gguf_bool(g, "quill.tokenizer.by_merges", &v->by_merges, ranks));
    v->by_merges = v->by_merges || ranks;
    if (!v->by_merges) TRY(load_scores(v, g));
    TRY(gguf_bool(g, "quill.tokenizer.fuse_unknown", &v->fuse_unk, false));
    TRY(load_roles(v, g, texts));
    TRY(load_ids(v, g, "tokenizer.ggml.suppress_tokens", &v->suppressed, &v->n_suppressed));
    TRY(load_strips(v, g));
    TRY(load_phi_strips(v, g, texts));
    load_pieces(v, texts);
    if (v->by_merges) TRY(load_merges(v, g));
    load_added(v, texts);
    return OK;
}

Status vocab_load(Vocab *v, const Gguf *g, bool spm, bool add_bos) {
    *v = (Vocab){.spm = spm, .add_bos = add_bos, .key = hash_key()};
    const char *key = "tokenizer.ggml.tokens";
    const GgufValue *value = gguf_value(g, key);
    if (!value || value->type != GGUF_ARRAY || value->elem_type != GGUF_STR || value->n == 0)
        return status_error(QUILL_MODEL, "%s: %s: an array of strings expected, %s found; the file has no vocabulary",
                            gguf_name(g), key,
                            !value                      ? "nothing"
                            : value->type != GGUF_ARRAY ? "a single value"
                            : value->n == 0             ? "an empty one"
                                                        : "one of another type");
    if (value->n > MAX_TOKENS)
        return status_error(QUILL_MODEL, "%s: %s: at most %d strings expected, %llu found", gguf_name(g), key,
                            MAX_TOKENS, (unsigned long long)value->n);
    v->n = (int)value->n;
    Str *texts = mem_alloc((size_t)v->n * sizeof *texts);
    Status st = gguf_strings(g, value, texts);
    if (!st.code) st = load_all(v, g, texts);
    free(texts);
    return st;
}

void vocab_free(Vocab *v) {
    free(v->pieces);
    free(v->bytes);
    free(v->types);
    free(v->strips);
    free(v->eog);
    free(v->suppressed);
    free(v->priority);
    free(v->added);
    if (v->by_piece) pages_free(v->by_piece, table_bytes(v->by_piece_mask, sizeof *v->by_piece));
    if (v->by_pair) pages_free(v->by_pair, table_bytes(v->by_pair_mask, sizeof *v->by_pair));
    *v = (Vocab){0};
}

// ---- looking up -----------------------------------------------------------------------------------------------------

const MergeSlot *vocab_merge(const Vocab *v, int32_t left, int32_t right) {
    if (left < 0 || right < 0) return NULL;
    const MergeSlot *slot = merge_slot(v, left, right);
    return slot->rank_plus_1 ? slot : NULL;
}

bool vocab_is_control(const Vocab *v, int id) {
    return v->types[id] == GGUF_TOKEN_CONTROL || v->types[id] == GGUF_TOKEN_UNKNOWN;
}

static int lower_bound(const Vocab *v, int low, int high, size_t at, int byte) {
    while (low < high) {
        int middle = low + (high - low) / 2;
        if ((unsigned char)v->added[middle].text.data[at] < byte) low = middle + 1;
        else high = middle;
    }
    return low;
}

int vocab_added(const Vocab *v, const char *text, size_t n, const uint8_t *trusted, size_t *n_found) {
    int found = -1, c = (unsigned char)text[0];
    int low = v->added_first[c], high = v->added_first[c + 1];
    bool trust = trusted && trusted[0];
    for (size_t k = 1; low < high; k++) { // added[low..high) share the text's first k bytes
        for (; low < high && v->added[low].text.n == k; low++) {
            int id = v->added[low].id;
            if ((!trust && v->types[id] != GGUF_TOKEN_USER_DEFINED) || (found >= 0 && *n_found == k)) continue;
            found = id;
            *n_found = k;
        }
        if (k == n) break;
        c = (unsigned char)text[k];
        trust = trust && trusted[k];
        low = lower_bound(v, low, high, k, c);
        high = lower_bound(v, low, high, k, c + 1);
    }
    return found;
}
