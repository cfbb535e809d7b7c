// answer/form.c: see answer/form.h.
#include "answer/form.h"

#include <string.h>

typedef struct {
    const char *flag, *text, *file;
    GrammarKind kind;
} NamedForm;

enum { N_FORMS = 5 };

static void list_forms(const AnswerForm *f, NamedForm out[N_FORMS]) {
    out[0] = (NamedForm){"--json-schema", f->schema, f->schema_file, GRAMMAR_SCHEMA};
    out[1] = (NamedForm){"--json-object", f->object ? "{\"type\":\"object\"}" : NULL, NULL, GRAMMAR_SCHEMA};
    out[2] = (NamedForm){"--regex", f->regex, NULL, GRAMMAR_REGEX};
    out[3] = (NamedForm){"--choice", f->choice, NULL, GRAMMAR_CHOICE};
    out[4] = (NamedForm){"--grammar", f->grammar, f->grammar_file, GRAMMAR_GBNF};
}

Status form_check(const AnswerForm *form) {
    NamedForm all[N_FORMS], *first = NULL;
    list_forms(form, all);
    for (int i = 0; i < N_FORMS; i++) {
        if (all[i].text && all[i].file)
            return status_error(QUILL_USAGE, "%s and %s-file: one of them expected, found both", all[i].flag,
                                all[i].flag);
        if (!all[i].text && !all[i].file) continue;
        if (first)
            return status_error(QUILL_USAGE, "%s and %s: one of them expected, found both", first->flag, all[i].flag);
        first = &all[i];
    }
    return OK;
}

static Status constrain(Engine *e, const NamedForm *f, bool fresh, Request *r) {
    Buf text = {0};
    if (f->file) TRY(file_read(f->file, &text));
    else buf_str(&text, f->text);
    Str source = {text.data ? text.data : "", text.n};
    Status st = grammar_cache_get(&e->grammars, e->tok, e->model.c.n_vocab,
                                  (GrammarSource){.kind = f->kind, .text = source}, fresh, &r->constraint);
    buf_free(&text);
    if (!st.code) return OK;
    return status_error(st.code, "%s%s%s: %s", f->flag, f->file ? "-file " : "", f->file ? f->file : "", st.message);
}

Status form_constrain(Engine *e, const AnswerForm *form, bool fresh, Request *r) {
    NamedForm all[N_FORMS];
    r->constraint = NULL;
    TRY(form_check(form));
    list_forms(form, all);
    for (int i = 0; i < N_FORMS; i++)
        if (all[i].text || all[i].file) return constrain(e, &all[i], fresh, r);
    return OK;
}

void form_drop(Engine *e, Request *r) {
    grammar_cache_drop(e->grammars, r->constraint);
    r->constraint = NULL;
}

void form_settle(Request *r) {
    if (r->constraint) constraint_continue(r->constraint, r->seq->tokens + r->n_prompt, r->seq->n_tokens - r->n_prompt);
}

Status form_complete(const Request *r) {
    if (!r->constraint || r->finish == FINISH_INTERRUPT) return OK;
    if (constraint_complete(r->constraint, NULL, 0)) return OK;
    Buf missing = {0}, shown = {0};
    constraint_missing(r->constraint, NULL, 0, &missing);
    size_t most = missing.n < 60 ? missing.n : 60;
    utf8_escape(&shown, missing.data ? missing.data : "", most);
    const char *why = r->finish == FINISH_BROKEN ? "no token that is allowed goes on"
                      : r->finish == FINISH_STOP ? "a stop text ended it"
                                                 : "no tokens were left; -n or -c gives more";
    Status st = status_error(QUILL_CUT, "answer cut before it was complete: %s; what was open: at least %s%s", why,
                             shown.data ? shown.data : "", missing.n > most ? "..." : "");
    buf_free(&missing);
    buf_free(&shown);
    return st;
}
