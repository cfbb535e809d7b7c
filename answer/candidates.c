// answer/candidates.c: see answer/candidates.h.
#include "answer/candidates.h"

#include <stdio.h>

#include "sampler.h"

bool candidates_wanted(const AnswerConfig *config) { return config->beams > 0 || config->best_of > 0; }

int candidates_at_once(const AnswerConfig *config) { return int_max(1, int_max(config->beams, config->best_of)); }

// The name of a sampling option that the user has chosen and that differs from its default; NULL: none.
static const char *drawing_option(const AnswerConfig *config) {
    const SamplerParams *p = &config->sampling;
    SamplerParams usual = sampler_defaults();
#define CHOSEN(field) (config->sampling_given & sampling_bit(offsetof(SamplerParams, field)) && p->field != usual.field)
    if (CHOSEN(temp) && p->temp > 0) return "temp";
    if (CHOSEN(top_k)) return "top-k";
    if (CHOSEN(top_p)) return "top-p";
    if (CHOSEN(min_p)) return "min-p";
    if (CHOSEN(typical)) return "typical";
    return CHOSEN(xtc_probability) ? "xtc-probability" : NULL;
}

// The name of an option as a flag or as a key of a job.
static const char *shown(const char *name, bool flags, char out[32]) {
    snprintf(out, 32, "%s%s", flags ? "--" : "", name);
    for (char *c = out; !flags && *c; c++)
        if (*c == '-') *c = '_';
    return out;
}

Status candidates_check(const AnswerConfig *config, int n, int n_chunks, bool flags) {
    char a[32], b[32];
    const char *drawn = drawing_option(config), *own = config->beams ? "beams" : "best-of";
    if (config->beams && config->best_of)
        return status_error(QUILL_USAGE, "%s and %s: one of them expected, found both", shown("beams", flags, a),
                            shown("best-of", flags, b));
    if (config->beams && drawn)
        return status_error(QUILL_USAGE,
                            "%s and %s: one of them expected, found both; a beam search does not draw tokens",
                            shown("beams", flags, a), shown(drawn, flags, b));
    bool cold = config->sampling_given & sampling_bit(offsetof(SamplerParams, temp)) && config->sampling.temp <= 0;
    if (config->best_of > 1 && (config->sampling.greedy || cold)) // a file's temperature of 0 yields
        return status_error(
            QUILL_USAGE,
            "%s %d: sampling expected, found greedy decoding, whose answers are all the same; leave one of the two out",
            shown("best-of", flags, a), config->best_of);
    if (candidates_wanted(config) && n_chunks > 0)
        return status_error(QUILL_USAGE, "%s and %s: one of them expected, found both", shown(own, flags, a),
                            flags ? "--chunk" : "chunks");
    if (candidates_wanted(config) && n > candidates_at_once(config))
        return status_error(QUILL_USAGE, "n: at most the %d of %s expected, found %d", candidates_at_once(config),
                            shown(own, flags, a), n);
    return OK;
}
