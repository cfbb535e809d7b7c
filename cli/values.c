// cli/values.c: see cli/values.h.
#define _GNU_SOURCE
#include "cli/values.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "formats/kv_types.h"

// ---- values ---------------------------------------------------------------------------------------------------------

// A whole number with an optional k, M or G (1024 each). False: not one, or too large for 64 bits.
static bool parse_whole(const char *s, int64_t *out) {
    const char *digits = s + (*s == '-' || *s == '+');
    if (!isdigit((unsigned char)*digits)) return false;
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno == ERANGE) return false;
    int64_t unit = *end == 'k' || *end == 'K' ? 1024 : *end == 'm' || *end == 'M' ? 1 << 20 : 1;
    if (*end == 'g' || *end == 'G') unit = 1 << 30;
    if (unit > 1) end++;
    return *end == 0 && !__builtin_mul_overflow((int64_t)v, unit, out);
}

// A size in bytes: a number without a sign, then k, M, G or T (1024 each), then B or iB, as 8G, 1.5G, 100MB or 2GiB.
static bool parse_size(const char *s, int64_t *out) {
    static const char units[] = "kmgt";
    char *end;
    if (parse_whole(s, out)) return true;
    double bytes = strtod(s, &end);
    if (!isdigit((unsigned char)*s) || (size_t)(end - s) > strspn(s, "0123456789.")) return false; // 0x10, 1e5
    const char *unit = *end ? strchr(units, tolower((unsigned char)*end)) : NULL;
    if (unit) bytes = ldexp(bytes, 10 * (int)(unit - units + 1)), end++;
    bool named = !*end || strcasecmp(end, "B") == 0 || (unit && strcasecmp(end, "iB") == 0);
    if (!named || bytes >= 0x1p63 || (!unit && bytes != floor(bytes))) return false;
    *out = (int64_t)bytes;
    return true;
}

// A plain decimal number: no hexadecimal, no inf, no NaN.
static bool parse_real(const char *s, double *out) {
    if (!*s || s[strspn(s, "+-.0123456789eE")]) return false;
    char *end;
    *out = strtod(s, &end);
    return *end == 0 && end != s && isfinite(*out);
}

Status cli_bad_value(const char *flag, const char *value, const char *allowed) {
    return status_error(QUILL_USAGE, "%s: %s expected, found \"%.200s\"", flag, allowed, value);
}

static Status number_out_of_range(const Option *o, const char *flag, const char *value) {
    char allowed[160];
    const char *kind = o->kind == REAL   ? "a number"
                       : o->kind == SIZE ? "a size (bytes, or with k, M, G, T, as 1.5G)"
                       : o->kind == INTS ? "whole numbers or ranges, as 16,32 or 1-8*2,"
                                         : "a whole number";
    if (o->kind == SIZE) snprintf(allowed, sizeof allowed, "%s", kind);
    else if (o->kind == INT || o->kind == INTS)
        snprintf(allowed, sizeof allowed, "%s from %.0f to %.0f", kind, o->least, o->most);
    else snprintf(allowed, sizeof allowed, "%s from %g to %g", kind, o->least, o->most);
    if (o->fallback)
        snprintf(allowed + strlen(allowed), sizeof allowed - strlen(allowed), " (default %s)", o->fallback);
    return cli_bad_value(flag, value, allowed);
}

// Appends an element of a list: "8", "1-8", "128-512+128" or "1-8*2", given as n bytes at s.
static bool parse_range(const Option *o, const char *s, size_t n, IntList *out) {
    char part[64], *dash, *step;
    int64_t first, last, by = 1;
    if (n >= sizeof part) return false;
    snprintf(part, sizeof part, "%.*s", (int)n, s);
    if ((dash = strchr(part + 1, '-')) != NULL) *dash++ = 0;
    bool times = dash && strchr(dash, '*');
    if (dash && (step = strpbrk(dash, "+*")) != NULL) {
        *step++ = 0;
        if (!parse_whole(step, &by) || by < 1 + times) return false;
    }
    if (!parse_whole(part, &first) || (dash && !parse_whole(dash, &last))) return false;
    if (!dash) last = first;
    if ((double)first < o->least || (double)last > o->most || last < first || (times && first < 1)) return false;
    for (int64_t i = first; i <= last; i = times ? i * by : i + by) {
        if (out->n == ARRAY_LEN(out->at)) return false;
        out->at[out->n++] = (int)i;
    }
    return true;
}

static Status parse_list(const Option *o, const char *flag, const char *value, IntList *out) {
    IntList list = {.n = out->added ? out->n : 0, .added = true};
    memcpy(list.at, out->at, sizeof list.at);
    for (const char *at = value;; at++) {
        size_t n = strcspn(at, ",");
        bool read = parse_range(o, at, n, &list);
        if (!read && list.n == ARRAY_LEN(list.at))
            return status_error(QUILL_USAGE, "%s: at most %zu numbers expected, more found in \"%.100s\"", flag,
                                ARRAY_LEN(list.at), value);
        if (!read) return number_out_of_range(o, flag, value);
        at += n;
        if (!*at) break;
    }
    *out = list;
    return OK;
}

int cli_largest(const IntList *list) {
    int most = 0;
    for (int i = 0; i < list->n; i++) most = int_max(most, list->at[i]);
    return most;
}

bool cli_is_choice(const char *choices, const char *value) {
    size_t n = strlen(value);
    for (const char *at = choices;; at++) {
        size_t len = strcspn(at, "|");
        if (len == n && memcmp(at, value, n) == 0) return true;
        at += len;
        if (!*at) return false;
    }
}

static Status parse_layers(const char *flag, const char *value, int *out) {
    int64_t n;
    if (strcmp(value, "auto") == 0) *out = -1;
    else if (strcmp(value, "all") == 0) *out = INT_MAX;
    else if (parse_whole(value, &n) && n >= -1 && n <= INT_MAX) *out = (int)n;
    else return cli_bad_value(flag, value, "auto, all or a whole number");
    return OK;
}

// Parses ID+B, ID-B or ID-inf, which forbids a token.
static Status parse_bias(const char *flag, const char *value, SamplerParams *s) {
    char *end;
    errno = 0;
    long id = isdigit((unsigned char)*value) ? strtol(value, &end, 10) : -1;
    double bias = 0;
    bool good = id >= 0 && id <= INT_MAX && errno == 0 && (*end == '+' || *end == '-');
    if (good && strcmp(end, "-inf") == 0) bias = -INFINITY;
    else good = good && parse_real(end, &bias) && fabs(bias) <= 1e6;
    if (!good) return cli_bad_value(flag, value, "a token id and a number with its sign, as 15043+1.5 or 15043-inf,");
    LogitBias *all = mem_resize((void *)s->bias, (size_t)(s->n_bias + 1) * sizeof *all);
    all[s->n_bias++] = (LogitBias){(int)id, (float)bias};
    s->bias = all;
    return OK;
}

static Status parse_seed(const char *flag, const char *value, AnswerConfig *out) {
    char *end;
    errno = 0;
    if (strcmp(value, "-1") == 0) {
        out->seed_given = false;
        return OK;
    }
    long long v = isdigit((unsigned char)*value) ? strtoll(value, &end, 10) : -1;
    if (v < 0 || *end || errno == ERANGE) // the range of a JSON integer
        return cli_bad_value(flag, value, "a whole number from 0 to 9223372036854775807, or -1 for a random one,");
    out->sampling.seed = (uint64_t)v;
    out->seed_given = true;
    return OK;
}

void cli_draw_seed(AnswerConfig *config) {
    if (getrandom(&config->sampling.seed, sizeof config->sampling.seed, 0) < 0)
        config->sampling.seed = (uint64_t)(clock_now() * 1e9);
    config->sampling.seed &= 0xffffffff; // short enough to be typed again
}

static Status parse_stop(const char *flag, const char *value, AnswerConfig *out) {
    if (!*value) return cli_bad_value(flag, value, "a text of at least one byte");
    out->stop = mem_resize(out->stop, (size_t)(out->n_stop + 1) * sizeof *out->stop);
    out->stop[out->n_stop++] = value;
    return OK;
}

static void add_file(const char *value, AnswerConfig *out) {
    out->chunks = mem_resize(out->chunks, (size_t)(out->n_chunks + 1) * sizeof *out->chunks);
    out->chunks[out->n_chunks++] = value;
}

// Whether the text begins with a word and "=".
static bool is_setting(const char *s) {
    const char *end = s;
    while (isalpha((unsigned char)*end)) end++;
    return end > s && *end == '=';
}

// Parses DIR or DIR,size=N. Another setting is an error: it would be a part of the directory's name.
static Status parse_store(const Option *o, const char *flag, const char *value, EngineConfig *out) {
    static const char key[] = ",size=";
    const char *comma = strrchr(value, ',');
    bool sized = comma && strncmp(comma, key, strlen(key)) == 0;
    int64_t size = 8ll << 30;
    if (!sized && comma && is_setting(comma + 1))
        return cli_bad_value(flag, value, "a directory, and after its last comma only size=N, as cache,size=8G,");
    if (sized && (!parse_size(comma + strlen(key), &size) || size < 1 || (double)size > o->most))
        return cli_bad_value(flag, value, "a directory and a size from 1, as cache,size=8G,");
    size_t n = sized ? (size_t)(comma - value) : strlen(value);
    if (n == 0) return cli_bad_value(flag, value, "a directory");
    free((void *)out->kv_dir);
    out->kv_dir = mem_copy(value, n);
    out->kv_dir_size = (size_t)size;
    return OK;
}

Status cli_add_part(const Option *o, const char *value, int at, Options *out) {
    PromptConfig *p = &out->prompt;
    bool file = o->kind == PROMPT_FILE;
    p->parts = mem_resize(p->parts, (size_t)(p->n_parts + 1) * sizeof *p->parts);
    memmove(p->parts + at + 1, p->parts + at, (size_t)(p->n_parts++ - at) * sizeof *p->parts);
    p->parts[at] = (PromptPart){file ? NULL : mem_copy(value, strlen(value)), file ? value : NULL};
    return OK;
}

void cli_keep(Options *o, char *text) {
    o->kept = mem_resize(o->kept, (size_t)(o->n_kept + 1) * sizeof *o->kept);
    o->kept[o->n_kept++] = text;
}

static Status set_input(const char *flag, const char *value, const char **at) {
    if (*at)
        return status_error(QUILL_USAGE, "%s: one file expected, found \"%.200s\" and \"%.200s\"", flag, *at, value);
    *at = value;
    return OK;
}

// Where values are stored: in all options, or in the AnswerConfig of a chat or a job (then `all` is NULL).
typedef struct {
    Options *all;
    AnswerConfig *answer;
} ValueTarget;

static ValueTarget in_options(Options *o) { return (ValueTarget){o, &o->answer}; }

static void *address(const Option *o, ValueTarget t) {
    if (t.all) return (char *)t.all + o->at;
    size_t at = o->at - offsetof(Options, answer); // wraps to a large number if the value is before `answer`
    assert(at < sizeof *t.answer);
    return (char *)t.answer + at;
}

// A script whose variable is not set gives an empty text where a file is expected. `value` is NULL for no file.
static Status check_file(const Option *o, const char *flag, const char *value) {
    if (!value || *value || !o->arg || strcmp(o->arg, "FILE") != 0) return OK;
    bool model = o->at == offsetof(Options, engine.model);
    return status_error(QUILL_USAGE, "%s: a file%s expected, found an empty text", flag, model ? " or name" : "");
}

// The option's bit of AnswerConfig.sampling_given; 0: it is no number of SamplerParams.
static uint32_t given_bit(const Option *o) {
    size_t at = o->at - offsetof(Options, answer.sampling); // wraps to a large number if the value is before it
    bool number = (o->kind == INT || o->kind == REAL) && at < sizeof(SamplerParams);
    return number ? sampling_bit(at) : 0;
}

static Status set_value(const Option *o, const char *flag, const char *value, ValueTarget out) {
    void *at = address(o, out);
    int64_t n;
    double x;
    TRY(check_file(o, flag, value));
    bool choice = o->kind == CHOICE || o->kind == LAYOUT || o->kind == KVTYPE;
    if (choice && !cli_is_choice(o->arg, value)) return cli_bad_value(flag, value, o->arg);
    switch (o->kind) {
    case FLAG: *(bool *)at = true; return OK;
    case INT:
        if (!parse_whole(value, &n) || (double)n < o->least || (double)n > o->most)
            return number_out_of_range(o, flag, value);
        *(int *)at = (int)n;
        out.answer->sampling_given |= given_bit(o);
        return OK;
    case INTS: return parse_list(o, flag, value, at);
    case SIZE:
        if (!parse_size(value, &n) || (double)n < o->least || (double)n > o->most)
            return number_out_of_range(o, flag, value);
        *(size_t *)at = (size_t)n;
        return OK;
    case REAL:
        if (!parse_real(value, &x) || x < o->least || x > o->most) return number_out_of_range(o, flag, value);
        *(float *)at = (float)x;
        out.answer->sampling_given |= given_bit(o);
        return OK;
    case TEXT: *(const char **)at = value; return OK;
    case TEXT_FILE: *(OptionFile *)at = (OptionFile){.path = value}; return OK;
    case INPUT: return set_input(flag, value, at);
    case PROMPT_TEXT:
    case PROMPT_FILE: return cli_add_part(o, value, out.all->prompt.n_parts, out.all);
    case CHOICE: *(const char **)at = value; return OK;
    case COLOR:
        if (!cli_is_choice("on|off", value) && !cli_is_choice(o->arg, value)) return cli_bad_value(flag, value, o->arg);
        *(const char **)at = strcmp(value, "on") == 0 ? "always" : strcmp(value, "off") == 0 ? "never" : value;
        return OK;
    case LAYOUT: *(bool *)at = strcmp(value, "paged") == 0; return OK;
    case STOPS: return parse_stop(flag, value, out.answer);
    case FILES: add_file(value, out.answer); return OK;
    case BIAS: return parse_bias(flag, value, &out.answer->sampling);
    case SEED: return parse_seed(flag, value, out.answer);
    case KVTYPE:
        n = kv_type_find(value);
        *(int *)at = n < 0 ? KV_TYPE_AUTO : (int)n;
        return OK;
    case LAYERS: return parse_layers(flag, value, at);
    case STORE: return parse_store(o, flag, value, &out.all->engine);
    default: return OK;
    }
}

// ---- as text --------------------------------------------------------------------------------------------------------

static void write_value(const Option *o, ValueTarget values, Buf *out) {
    const void *at = address(o, values);
    const AnswerConfig *a = values.answer;
    const SamplerParams *s = &a->sampling;
    switch (o->kind) {
    case FLAG: buf_str(out, *(const bool *)at ? "on" : "off"); break;
    case INT: buf_printf(out, "%d", *(const int *)at); break;
    case INTS:
        for (int i = 0; i < ((const IntList *)at)->n; i++)
            buf_printf(out, "%s%d", i ? "," : "", ((const IntList *)at)->at[i]);
        break;
    case REAL: buf_printf(out, "%g", (double)*(const float *)at); break;
    case SIZE: buf_printf(out, "%zu", *(const size_t *)at); break;
    case TEXT_FILE:
    case TEXT:
    case INPUT:
    case COLOR:
    case CHOICE: buf_str(out, *(const char *const *)at ? *(const char *const *)at : ""); break;
    case KVTYPE: buf_str(out, *(const int *)at == KV_TYPE_AUTO ? "auto" : kv_type_name(*(const int *)at)); break;
    case LAYOUT: buf_str(out, *(const bool *)at ? "paged" : "contiguous"); break;
    case LAYERS:
        if (*(const int *)at < 0 || *(const int *)at == INT_MAX) buf_str(out, *(const int *)at < 0 ? "auto" : "all");
        else buf_printf(out, "%d", *(const int *)at);
        break;
    case STORE: buf_printf(out, "%s,size=%zu", values.all->engine.kv_dir, values.all->engine.kv_dir_size); break;
    case SEED:
        if (a->seed_given) buf_printf(out, "%llu", (unsigned long long)s->seed);
        else buf_str(out, "-1");
        break;
    case STOPS:
        for (int i = 0; i < a->n_stop; i++) {
            buf_str(out, i ? " \"" : "\"");
            utf8_escape(out, a->stop[i], strlen(a->stop[i]));
            buf_str(out, "\"");
        }
        break;
    case FILES:
        for (int i = 0; i < a->n_chunks; i++) buf_printf(out, "%s%s", i ? " " : "", a->chunks[i]);
        break;
    case BIAS:
        for (int i = 0; i < s->n_bias; i++)
            buf_printf(out, "%s%d%+g", i ? " " : "", s->bias[i].id, (double)s->bias[i].bias);
        break;
    default: break; // other kinds have no text
    }
    if (!out->n) buf_str(out, "none");
}

void cli_value(const Option *o, const Options *values, Buf *out) { write_value(o, in_options((Options *)values), out); }

void cli_answer_value(const Option *o, const AnswerConfig *values, Buf *out) {
    write_value(o, (ValueTarget){.answer = (AnswerConfig *)values}, out);
}

bool cli_answer_given(const Option *o, const AnswerConfig *values) {
    const void *at = address(o, (ValueTarget){.answer = (AnswerConfig *)values});
    if (o->kind == TEXT || o->kind == TEXT_FILE) return *(const char *const *)at != NULL;
    return o->kind != FLAG || *(const bool *)at;
}

bool cli_answer_usual(const Option *o, const AnswerConfig *values) {
    uint32_t bit = given_bit(o);
    if (bit) return !(values->sampling_given & bit);
    if (o->kind == SEED) return !values->seed_given;
    Buf value = {0};
    cli_answer_value(o, values, &value);
    bool same = strcmp(value.data, o->fallback ? o->fallback : o->kind == FLAG ? "off" : "none") == 0;
    buf_free(&value);
    return same;
}

// ---- setting --------------------------------------------------------------------------------------------------------

static Status set_default(const Option *o, const char *name, ValueTarget out) {
    if (o->kind == STOPS) out.answer->n_stop = 0;
    else if (o->kind == BIAS) out.answer->sampling.n_bias = 0;
    else if (o->kind == FLAG) *(bool *)address(o, out) = false;
    else if (!o->fallback && o->kind != TEXT && o->kind != TEXT_FILE) return cli_bad_value(name, "default", "a value");
    else TRY(set_value(o, name, o->fallback, out));
    out.answer->sampling_given &= ~given_bit(o);
    return OK;
}

// Sets a value; also accepts "default", and on and off for a flag.
static Status set_word(const Option *o, const char *name, const char *value, ValueTarget out) {
    if (strcmp(value, "default") == 0) TRY(set_default(o, name, out));
    else if (o->kind == FLAG && strcmp(value, "off") == 0) TRY(set_default(o, name, out));
    else if (o->kind == FLAG && strcmp(value, "on") != 0) return cli_bad_value(name, value, "on or off");
    else TRY(set_value(o, name, value, out));
    if (o->kind == SEED && !out.answer->seed_given) cli_draw_seed(out.answer);
    return OK;
}

// An empty value turns the option off.
static void turn_off(const Option *o, Options *out) {
    AnswerConfig *a = &out->answer;
    void *at = (char *)out + o->at;
    switch (o->kind) {
    case STOPS: a->n_stop = 0; break;
    case BIAS: a->sampling.n_bias = 0; break;
    case INT: *(int *)at = at == (void *)&a->logprobs ? -1 : 0; break;
    case TEXT_FILE: *(OptionFile *)at = (OptionFile){0}; break;
    case STORE:
        free((void *)out->engine.kv_dir);
        out->engine.kv_dir = NULL;
        break;
    default: *(const char **)at = NULL;
    }
    cli_origin(out, o)->alone = true;
}

bool cli_is_off(const Option *o, const Options *values) {
    const AnswerConfig *a = &values->answer;
    const void *at = (const char *)values + o->at;
    if (o->kind == FLAG) return !*(const bool *)at;
    if (!cli_can_be_off(o)) return false;
    if (o->kind == STOPS) return a->n_stop == 0;
    if (o->kind == BIAS) return a->sampling.n_bias == 0;
    if (o->kind == INT) return *(const int *)at <= (at == (const void *)&a->logprobs ? -1 : 0);
    return !*(const char *const *)at;
}

Status cli_set_value(const Option *o, const char *flag, const char *value, Options *out) {
    if (value && !*value && cli_can_be_off(o)) {
        turn_off(o, out);
        return OK;
    }
    return set_value(o, flag, value, in_options(out));
}

Status cli_set_default(const Option *o, const char *flag, Options *out) {
    return set_default(o, flag, in_options(out));
}

Status cli_set_option(const Option *o, const char *name, const char *value, Options *out) {
    if (!*value && cli_can_be_off(o)) return cli_set_value(o, name, value, out);
    return set_word(o, name, value, in_options(out));
}

Status cli_set_answer(const Option *o, const char *name, const char *value, AnswerConfig *out) {
    return set_word(o, name, value, (ValueTarget){.answer = out});
}

const Option *cli_job_option(const char *name) {
    const Option *o = cli_find_long(name, MODE_BIT(BATCH));
    return o && cli_job_settable(o) ? o : NULL;
}

Status cli_chat_option(const char *name, const char *value, const Option **out) {
    char flag[40];
    snprintf(flag, sizeof flag, "-%.32s", name);
    const Option *o = cli_find_long(name, MODE_BIT(RUN));
    if (!o) o = cli_find(flag, 1u << MODE_RUN);
    *out = o;
    if (o && o->at == offsetof(Options, engine.ctx_size))
        return status_error(QUILL_USAGE, "%s: cannot change while the model is open; start again with -c %.40s", name,
                            *value ? value : "N");
    if (o && cli_chat_settable(o)) return OK;
    Nearest nearest = {.word = name};
    char known[32];
    for (int i = 0; i < cli_n_options; i++) {
        if (!cli_chat_settable(&cli_options[i])) continue;
        cli_long_name(&cli_options[i], known);
        nearest_try(&nearest, known);
    }
    const char *meant = nearest_found(&nearest);
    return status_error(QUILL_USAGE, "%.100s: not a setting; %s%s%s/set lists all settings", name,
                        meant ? "did you mean " : "", meant ? meant : "", meant ? "? " : "");
}

Status cli_chat_set(AnswerConfig *out, const char *name, const char *value) {
    const Option *o;
    TRY(cli_chat_option(name, value, &o));
    return cli_set_answer(o, name, value, out);
}

bool cli_is_usual(const Options *o, const char *flag) {
    const Option *row = cli_find(flag, 1u << o->mode);
    return row && cli_origin(o, row)->by != BY_FLAG;
}
