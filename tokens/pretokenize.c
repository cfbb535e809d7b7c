// tokens/pretokenize.c: see tokens/pretokenize.h. The patterns are equivalent to those in llama.cpp's
// src/llama-vocab.cpp, so that the ids are equal; PCRE2 runs them.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokens/pretokenize.h"

#include <assert.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

// ---- the patterns ---------------------------------------------------------------------------------------------------

// Each pattern must run in linear time on any text: no repeated group may backtrack (use a class or a possessive
// group), and a match attempt that fails must not have read far.

// Unicode's White_Space: WS for use inside a class, SPACE as a class. PCRE2's \s would add U+180E.
#define WS "\\p{Z}\\t-\\r\\x{85}"
#define SPACE "[" WS "]"
#define LAST "(?![^" WS "])"                // before the last space of a run, or at the end
#define SPACES SPACE "+" LAST "|" SPACE "+" // all but the last space before a word
#define LINES SPACE "*[\\r\\n]+"

// Written without (?i), which would let U+017F, the long s, match as s.
#define SUFFIX "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SIGNS " ?[^" WS "\\p{L}\\p{N}]+"
#define CODE_WORD "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" SIGNS "|" SPACE "+" LAST
#define LLAMA3(number) SUFFIX "|" WORD "|" number "|" SIGNS "[\\r\\n]*|" LINES "|" SPACES
#define QWEN2 LLAMA3("\\p{N}")

// A word ends where upper case follows lower case. As in llama.cpp only ASCII letters have case: every other letter
// counts as both.
#define CASED(not_letter, suffix)                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?[^" not_letter "a-z]*[^" not_letter "A-Z]+" suffix "|[^\\r\\n\\p{L}\\p{N}]?[^" not_letter   \
    "a-z]+[^" not_letter "A-Z]*" suffix
#define CASED_TAIL SIGNS "[\\r\\n/]*|" LINES "|" SPACES
#define NOT_LETTER "\\P{L}"
#define NOT_LETTER_OR_MARK "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}"

#define DEEPSEEK3(lines) CODE_WORD "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+" lines "|" SPACES
#define KANA_HAN "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}]+"
#define DEEPSEEK_HAN "[\\x{0800}-\\x{9fa5}\\x{ac00}-\\x{d7ff}]+"
// DeepSeek LLM's own list of letters that have case, as of Unicode 11.
#define DEEPSEEK_LETTERS                                                                                               \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}"   \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}"     \
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}"       \
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"                  \
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}"                  \
    "\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}"          \
    "\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}"         \
    "\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}"          \
    "\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}"                    \
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}"          \
    "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}"                   \
    "\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}"                  \
    "\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}"          \
    "\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

#define HAN                                                                                                            \
    "\\x{3400}-\\x{4dbf}\\x{4e00}-\\x{9fff}\\x{f900}-\\x{faff}\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2ebef}"              \
    "\\x{2f800}-\\x{2fa1f}"
#define EAST_ASIA                                                                                                      \
    "\\x{3400}-\\x{4dbf}\\x{4e00}-\\x{9fff}\\x{f900}-\\x{faff}\\x{3040}-\\x{30ff}\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{"    \
    "2fdf}"                                                                                                            \
    "\\x{e40}-\\x{eff}\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}" \
    "\\x{1100}-\\x{11ff}"
#define BLOOM " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"

enum { MAX_PATTERNS = 8 };
enum { WHOLE = 1, BOS = 2 }; // WHOLE: a piece that is itself a token is not split. BOS: is put in front by default

typedef struct {
    const char *names; // separated by spaces
    int flags;
    const char *patterns[MAX_PATTERNS];
} PretokenizerRow;

// clang-format off
static const PretokenizerRow rows[] = {
    {"default", 0, {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"gpt-2 phi-2 jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code gigachat a.x-4.0 mellum modern-bert "
     "roberta-bpe exaone4 mpt olmo jais trillion granite-docling", 0, {GPT2}},
    {"starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", 0, {"\\p{N}", GPT2}},
    {"falcon", 0, {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", WHOLE | BOS,
     {LLAMA3("\\p{N}{1,3}")}},
    {"smaug-bpe dbrx glm4 chatglm-bpe", 0, {LLAMA3("\\p{N}{1,3}")}},
    {"qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", 0, {QWEN2}},
    {"qwen35", 0,
     {SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|"
      LINES "|" SPACES}},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", 0, {CASED(NOT_LETTER, SUFFIX "?") "|\\p{N}{1,3}|" CASED_TAIL}},
    {"granite-embed-multi-97m", WHOLE, {CASED(NOT_LETTER_OR_MARK, SUFFIX "?") "|\\p{N}{1,3}|" CASED_TAIL}},
    {"tekken", WHOLE | BOS, {CASED(NOT_LETTER, "") "|\\p{N}|" CASED_TAIL}},
    {"deepseek-llm", 0,
     {"[\\r\\n]",
      SPACE "?[" DEEPSEEK_LETTERS "]+",
      SPACE "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
      "(?<!" SPACE ")" SPACE "++\\z", // the lookbehind fails at once inside a run: linear time
      DEEPSEEK_HAN,
      "\\p{N}+"}},
    {"deepseek-coder", 0, {"[\\r\\n]", SPACE "?\\p{L}+", SPACE "?\\p{P}+", DEEPSEEK_HAN, "\\p{N}"}},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", 0, {"\\p{N}{1,3}", KANA_HAN, DEEPSEEK3("[\\r\\n]*|" LINES)}},
    {"spark2_5", 0, {"\\p{N}{1,3}", KANA_HAN, DEEPSEEK3("|[\\r\\n]"), "\\p{N}"}},
    {"kimi-k2", 0,
     {"[" HAN "]+|[^\\r\\n\\p{L}\\p{N}]?[^\\P{L}" HAN "]+" SUFFIX "?|\\p{N}{1,3}|" SIGNS "[\\r\\n]*|"
      LINES "|" SPACES}},
    {"minicpm5", WHOLE, {"\\p{N}{1,3}", LLAMA3("\\p{N}+")}},
    {"laguna", 0, {"[^\\n]+|\\n+", QWEN2}},
    {"ufakzeka", 0, {WORD "|\\p{N}|" SIGNS "[\\r\\n]*|" LINES "|" SPACES}},
    {"seed-coder", 0, {SUFFIX "|" WORD "|\\p{N}|" SIGNS "|" LINES "|" SPACES}},
    {"bailingmoe bailingmoe2 llada-moe", 0,
     {"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|" WORD "|\\p{N}|" SIGNS "[\\r\\n]*|" SPACE "*[\\r\\n]|" SPACES}},
    {"exaone-moe", 0,
     {SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}|" SIGNS "[\\r\\n/]?|"
      SPACE "*[\\r\\n]|" SPACES}},
    {"jais-2", 0, // the lookbehind fails at once inside a long run: linear time
     {SUFFIX "|" WORD "|\\p{N}{1,3}|" SIGNS "[\\r\\n]*|(?<![\\p{Z}\\t\\x0b\\x0c\\x{85}])" LINES
      "|" SPACE "{512}" LAST "|" SPACE "{256}" LAST "|" SPACE "{128}" LAST "|" SPACE "{64}" LAST "|" SPACE "{32}" LAST
      "|" SPACE "{16}" LAST "|" SPACE "{8}" LAST "|" SPACE "{4}" LAST "|" SPACE "{1,2}" LAST "|" SPACE}},
    {"youtu", WHOLE,
     {"[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+"
      "|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}"
      "\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+|" KANA_HAN,
      "[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+" SUFFIX "?|\\p{N}|" CASED_TAIL}},
    // Groups of three digits counted from the right. Only the first group of a run looks ahead to the end of the run.
    {"tiny_aya cohere2moe", 0,
     {"(?<!\\p{Nd})\\p{Nd}{1,3}(?=(?:\\p{Nd}{3})*+(?![\\p{Nd}A-Za-z_]))|\\G(?<=\\p{Nd})\\p{Nd}{3}",
      "[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+" SUFFIX "?|\\p{N}{1,3}|" CASED_TAIL}},
    {"afmoe", 0, // the text before a number is one piece with its first digits, as in llama.cpp
     {"(?<!\\P{N})\\P{N}*+(?:(?<!\\p{N})\\p{N}{1,2}(?=(?:\\p{N}{3})*+(?!\\p{N}))|\\p{N}{3})",
      "[" EAST_ASIA "]+",
      DEEPSEEK3("[\\r\\n]*|" LINES)}},
    {"bloom poro-chat gpt3-finnish", 0, {BLOOM}},
    {"viking", 0, {BLOOM, "\\p{N}"}},
    {"chameleon", BOS,
     {"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", "\\p{N}", "[\\p{P}!-/:-@\\[-`{-~]", GPT2}},
};
// clang-format on

// ---- compiling ------------------------------------------------------------------------------------------------------

enum { JIT_STACK_START = 32 * 1024, JIT_STACK_MAX = 32 * 1024 * 1024 };
// Steps of PCRE2 (its match limit) for a vocabulary's own patterns. Nearly every match of a real one takes below 100.
enum {
    FEW_STEPS = 1000,      // of a match at each place: a megabyte of them takes seconds at worst
    MORE_STEPS = 16,       // factor of a second try, and of the next ones
    SPLIT_STEPS = 2000000, // for all further tries in a split, about 0.1 s,
    STEPS_OF_A_BYTE = 100, // and for each byte of its text: a run of blanks as long as the text may be read back
};

typedef struct {
    PretokenPiece *at;
    int n, cap;
} PretokenPieces;

struct Pretokenizer {
    const PretokenizerRow *row;
    PretokenizerRow *own; // patterns of the vocabulary; NULL: a row of this file's table is used
    int n_patterns;       // 0: not compiled yet
    pcre2_code *code[MAX_PATTERNS];
    bool jit[MAX_PATTERNS];
    pcre2_general_context *memory;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    pcre2_jit_stack *jit_stack;
    PretokenPieces pieces, next;
    int64_t steps_left; // for further tries in this split
};

static const PretokenizerRow *find_row(Str name) {
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (const char *at = rows[i].names; *at;) {
            size_t n = strcspn(at, " ");
            if (str_eq(name, (Str){at, n})) return &rows[i];
            at += n + (at[n] == ' ');
        }
    return NULL;
}

Pretokenizer *pretokenizer_new(Str name) {
    const PretokenizerRow *row = find_row(name);
    if (!row) return NULL;
    Pretokenizer *p = mem_alloc(sizeof *p);
    p->row = row;
    return p;
}

void pretokenizer_free(Pretokenizer *p) {
    if (!p) return;
    for (int i = 0; p->own && p->own->patterns[i]; i++) free((char *)p->own->patterns[i]);
    free(p->own);
    for (int i = 0; i < MAX_PATTERNS; i++) pcre2_code_free(p->code[i]);
    pcre2_match_data_free(p->match);
    pcre2_match_context_free(p->limits);
    pcre2_jit_stack_free(p->jit_stack);
    pcre2_general_context_free(p->memory);
    free(p->pieces.at);
    free(p->next.at);
    free(p);
}

void pretokenizer_names(Buf *out) {
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (i) buf_str(out, " ");
        buf_append(out, rows[i].names, strcspn(rows[i].names, " "));
    }
}

bool pretokenizer_ignores_merges(const Pretokenizer *p) { return p->row->flags & WHOLE; }
bool pretokenizer_adds_bos(const Pretokenizer *p) { return p->row->flags & BOS; }

static void *allocate(size_t n, void *unused) {
    (void)unused;
    return mem_alloc(n);
}
static void release(void *p, void *unused) {
    (void)unused;
    free(p);
}

static pcre2_code *compile_pattern(const Pretokenizer *p, const char *pattern, int *error) {
    size_t at;
    pcre2_compile_context *c = pcre2_compile_context_create(p->memory);
    if (p->own) pcre2_set_newline(c, PCRE2_NEWLINE_LF);
    uint32_t options = PCRE2_UTF | PCRE2_UCP | (p->own ? PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C : 0);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, error, &at, c);
    pcre2_compile_context_free(c);
    return code;
}

// Called by the first split and not at load: compiling takes milliseconds, and some modes (inspect) never split a text.
// A vocabulary's own patterns were compiled at load, to find mistakes in them; here the JIT compiles them.
static void compile(Pretokenizer *p) {
    if (!p->memory) p->memory = pcre2_general_context_create(allocate, release, NULL); // `allocate` never fails
    for (; p->n_patterns < MAX_PATTERNS && p->row->patterns[p->n_patterns]; p->n_patterns++) {
        int error, i = p->n_patterns;
        if (!p->code[i]) p->code[i] = compile_pattern(p, p->row->patterns[i], &error);
        assert(p->code[i]); // the pattern is a constant of this file
        p->jit[i] = pcre2_jit_compile(p->code[i], PCRE2_JIT_COMPLETE) == 0;
    }
    p->match = pcre2_match_data_create(1, p->memory);
    p->limits = pcre2_match_context_create(p->memory);
    p->jit_stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, p->memory);
    pcre2_jit_stack_assign(p->limits, NULL, p->jit_stack);
    // The patterns of this file run in linear time and need no limit.
    pcre2_set_match_limit(p->limits, p->own ? FEW_STEPS : UINT32_MAX);
    pcre2_set_depth_limit(p->limits, UINT32_MAX);
    pcre2_set_heap_limit(p->limits, UINT32_MAX);
}

Status pretokenizer_of_patterns(const Str *patterns, size_t n, Pretokenizer **out) {
    Pretokenizer *p = mem_alloc(sizeof *p);
    Status st = OK;
    p->memory = pcre2_general_context_create(allocate, release, NULL);
    p->row = p->own = mem_alloc(sizeof *p->own);
    p->own->names = "regex";
    if (n >= MAX_PATTERNS)
        st = status_error(QUILL_MODEL, "fewer than %d pre-tokenizer patterns expected, %zu found", MAX_PATTERNS, n);
    for (size_t i = 0; i < n && !st.code; i++) {
        int error;
        p->own->patterns[i] = mem_copy(patterns[i].data, patterns[i].n);
        p->code[i] = compile_pattern(p, p->own->patterns[i], &error);
        if (!p->code[i]) {
            char why[160] = "";
            pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
            st = status_error(QUILL_MODEL, "pre-tokenizer pattern: %s: %.200s", why, p->own->patterns[i]);
        }
    }
    if (st.code) pretokenizer_free(p);
    else *out = p;
    return st;
}

// ---- splitting ------------------------------------------------------------------------------------------------------

static void push(PretokenPieces *p, int begin, int end, bool valid) {
    if (begin == end) return;
    if (p->n == p->cap) {
        p->cap = p->cap > INT32_MAX / 2 ? INT32_MAX : p->cap ? p->cap * 2 : 256;
        p->at = mem_resize(p->at, (size_t)p->cap * sizeof *p->at);
    }
    p->at[p->n++] = (PretokenPiece){begin, end, valid};
}

// Splits the text into runs of valid and of invalid UTF-8. Only valid runs are matched, with PCRE2's own check turned
// off: it would read the rest of the text again at every match.
static void split_invalid(PretokenPieces *out, const char *text, int n) {
    int begin = 0;
    bool valid = true;
    for (int i = 0; i < n;) {
        int len = (unsigned char)text[i] < 0x80 ? 1 : utf8_next(text + i, (size_t)(n - i));
        if ((len > 0) != valid) {
            push(out, begin, i, valid);
            begin = i;
            valid = !valid;
        }
        i += len > 0 ? len : 1;
    }
    push(out, begin, n, valid);
}

static int match_from(Pretokenizer *p, int pattern, PCRE2_SPTR s, int n, int from, uint32_t options) {
    int rc = PCRE2_ERROR_JIT_BADOPTION;
    if (p->jit[pattern])
        rc = pcre2_jit_match(p->code[pattern], s, (size_t)n, (size_t)from, options, p->match, p->limits);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH &&
        rc != PCRE2_ERROR_MATCHLIMIT) // JIT stack is full: interpret, on the heap
        rc = pcre2_match(p->code[pattern], s, (size_t)n, (size_t)from, options | PCRE2_NO_JIT, p->match, p->limits);
    return rc;
}

// Tries a match at one place with more and more steps, while the split has steps left.
static int try_longer(Pretokenizer *p, int pattern, PCRE2_SPTR s, int n, int at, uint32_t options) {
    int rc = PCRE2_ERROR_MATCHLIMIT;
    for (int64_t steps = FEW_STEPS * MORE_STEPS; rc == PCRE2_ERROR_MATCHLIMIT; steps *= MORE_STEPS) {
        p->steps_left -= steps + (n - at); // and the search for the next match, which begins again after this place
        if (p->steps_left < 0 || steps > UINT32_MAX) break;
        pcre2_set_match_limit(p->limits, (uint32_t)steps);
        rc = pcre2_match(p->code[pattern], s, (size_t)n, (size_t)at, options | PCRE2_NO_JIT | PCRE2_ANCHORED, p->match,
                         p->limits);
    }
    pcre2_set_match_limit(p->limits, FEW_STEPS);
    return rc;
}

static bool next_match(Pretokenizer *p, int pattern, const char *text, int n, int from, int *begin, int *end) {
    PCRE2_SPTR s = (PCRE2_SPTR)text;
    uint32_t options = PCRE2_NO_UTF_CHECK;
    int rc = match_from(p, pattern, s, n, from, options);
    for (int at = from; rc == PCRE2_ERROR_MATCHLIMIT && at < n;) {
        rc = try_longer(p, pattern, s, n, at, options);
        if (rc != PCRE2_ERROR_NOMATCH) break;
        do at++;
        while (at < n && (text[at] & 0xc0) == 0x80);
        rc = match_from(p, pattern, s, n, at, options);
    }
    assert(rc >= 0 || rc == PCRE2_ERROR_NOMATCH || p->own); // no limit is set, and without memory the process ends
    if (rc < 0) return false;
    const size_t *at = pcre2_get_ovector_pointer(p->match);
    *begin = (int)at[0];
    *end = (int)at[1];
    return *begin >= from && *end >= *begin; // not so with \K in a pattern
}

// As in the tokenizers library, an empty match cuts the text, but not right after another match: the search then goes
// on after the next character.
static void split_piece(Pretokenizer *p, int pattern, const char *text, PretokenPiece piece, PretokenPieces *out) {
    const char *s = text + piece.begin;
    int n = piece.end - piece.begin, from = 0, begin, end;
    int cut = 0, last = -1; // ends of the last piece and of the last match
    while (from < n && next_match(p, pattern, s, n, from, &begin, &end)) {
        if (begin == end && end == last) {
            do from++;
            while (from < n && (s[from] & 0xc0) == 0x80);
            continue;
        }
        push(out, piece.begin + cut, piece.begin + begin, true);
        push(out, piece.begin + begin, piece.begin + end, true);
        from = cut = last = end;
    }
    push(out, piece.begin + cut, piece.end, true);
}

const PretokenPiece *pretokenizer_split(Pretokenizer *p, const char *text, int n, int *n_pieces) {
    if (!p->match) compile(p);
    p->pieces.n = 0;
    p->steps_left = SPLIT_STEPS + (int64_t)STEPS_OF_A_BYTE * n;
    split_invalid(&p->pieces, text, n);
    for (int pattern = 0; pattern < p->n_patterns; pattern++) {
        p->next.n = 0;
        for (int i = 0; i < p->pieces.n; i++) {
            PretokenPiece piece = p->pieces.at[i];
            if (piece.valid) split_piece(p, pattern, text, piece, &p->next);
            else push(&p->next, piece.begin, piece.end, false);
        }
        PretokenPieces swap = p->pieces;
        p->pieces = p->next;
        p->next = swap;
    }
    *n_pieces = p->pieces.n;
    return p->pieces.at;
}
