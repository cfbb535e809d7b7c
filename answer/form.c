// answer/form.c: see answer/form.h.
#include "answer/form.h"

#include <string.h>
#include <unistd.h>

#include "answer/call_format.h"
#include "answer/think.h"

typedef struct {
    const char *flag, *text;
    OptionFile file;
    GrammarKind kind;
} NamedForm;

enum { N_FORMS = 5 };

static void list_forms(const AnswerForm *f, NamedForm out[N_FORMS]) {
    static const OptionFile none;
    out[0] = (NamedForm){"--json-schema", f->schema, f->schema_file, GRAMMAR_SCHEMA};
    out[1] = (NamedForm){"--json-object", f->object ? "{\"type\":\"object\"}" : NULL, none, GRAMMAR_SCHEMA};
    out[2] = (NamedForm){"--regex", f->regex, none, GRAMMAR_REGEX};
    out[3] = (NamedForm){"--choice", f->choice, none, GRAMMAR_CHOICE};
    out[4] = (NamedForm){"--grammar", f->grammar, f->grammar_file, GRAMMAR_GBNF};
}

// Finds the form that is given; its flag is NULL if there is none. QUILL_USAGE: two forms at once.
static Status choose_form(const AnswerForm *form, NamedForm *out) {
    NamedForm all[N_FORMS];
    list_forms(form, all);
    *out = (NamedForm){0};
    for (int i = 0; i < N_FORMS; i++) {
        if (all[i].text && all[i].file.path)
            return status_error(QUILL_USAGE, "%s and %s-file: one of them expected, found both", all[i].flag,
                                all[i].flag);
        if (!all[i].text && !all[i].file.path) continue;
        if (out->flag)
            return status_error(QUILL_USAGE, "%s and %s: one of them expected, found both", out->flag, all[i].flag);
        *out = all[i];
    }
    return OK;
}

// The inputs of write_parts.
typedef struct {
    const AnswerSetup *setup;
    const Tokenizer *t;
    GrammarSource form;       // the form of the answer; used if there are no tools
    const Tools *tools;       // json NULL: no tools
    const CallFormat *format; // the format of their calls
    ThinkStream think;
    bool thinks; // new thoughts may be opened
} FormParts;

static Status write_parts(Rules *r, const void *arg) {
    const FormParts *p = arg;
    int said = 0;
    if (p->tools->json) {
        rules_rule(r, str_of("root"));
        TRY(call_format_rules(p->format, p->tools, p->t, r, &said));
    } else {
        TRY(grammar_rules(p->form, r));
        said = rules_call(r, r->start);
    }
    r->start = rules_anonymous(r, think_rules(&p->think, p->t, p->tools, p->thinks, said, r));
    return OK;
}

// Appends the key of the parts in the grammar cache: everything that write_parts depends on.
static void describe_parts(const FormParts *p, Buf *out) {
    think_describe(&p->think, p->thinks, out);
    buf_append(out, "", 1);
    if (p->tools->json) {
        buf_printf(out, "%s:", call_format_name(p->format));
        tools_describe(p->tools, out);
    } else {
        buf_printf(out, "%d:", (int)p->form.kind);
        buf_append(out, p->form.text.data, p->form.text.n);
    }
}

static Status constrain_parts(Engine *e, FormParts *p, Request *r) {
    Buf name = {0};
    GrammarSource source = p->form;
    if (p->tools->json || p->think.family) {
        describe_parts(p, &name);
        source = (GrammarSource){.kind = GRAMMAR_WRITTEN, .text = {name.data, name.n}, .write = write_parts, .arg = p};
    }
    Status st = grammar_cache_get(&e->grammars, e->tok, e->model.c.n_vocab, source, p->setup->fresh, &r->constraint);
    buf_free(&name);
    return st;
}

static FormParts parts_of(Engine *e, const AnswerSetup *setup, const Tools *tools) {
    const AnswerConfig *config = setup->config;
    FormParts p = {.setup = setup, .t = e->tok, .tools = tools};
    Str source = chat_template_source(setup->template, tools->json);
    if (!config->special) p.think = think_begin(source, setup->prompt);
    p.thinks = !config->think || strcmp(config->think, "off") != 0;
    p.format = call_format_find(source);
    return p;
}

static Status constrain(Engine *e, const AnswerSetup *setup, const NamedForm *f, Request *r) {
    static const Tools none;
    const char *path = f->file.path;
    FormParts p = parts_of(e, setup, &none);
    p.form = (GrammarSource){.kind = f->kind, .text = path ? f->file.text : str_of(f->text)};
    Status st = constrain_parts(e, &p, r);
    if (!st.code) return OK;
    bool file = !path && (f->kind == GRAMMAR_SCHEMA || f->kind == GRAMMAR_GBNF) && access(f->text, R_OK) == 0;
    return status_error(st.code, "%s%s%s: %s%s%s%s", f->flag, path ? "-file " : "", path ? path : "", st.message,
                        file ? "; " : "", file ? f->flag : "", file ? "-file reads this file" : "");
}

static Status constrain_calls(Engine *e, const AnswerSetup *setup, Request *r) {
    Tools tools;
    Status st = tools_read(&setup->config->tools, &tools);
    FormParts p = parts_of(e, setup, &tools);
    if (!st.code && tools.json) {
        st = p.format ? constrain_parts(e, &p, r)
                      : status_error(QUILL_USAGE, "no format of function calls is known for this chat template");
        if (st.code) st = status_error(st.code, "--tools: %.900s", st.message);
    }
    tools_free(&tools);
    return st;
}

Status form_constrain(Engine *e, const AnswerSetup *setup, Request *r) {
    bool tools = tools_given(&setup->config->tools);
    NamedForm form;
    r->constraint = NULL;
    TRY(choose_form(&setup->config->form, &form));
    if (form.flag && tools)
        return status_error(QUILL_USAGE, "%s and --tools: one of them expected, found both", form.flag);
    if (form.flag) return constrain(e, setup, &form, r);
    return tools ? constrain_calls(e, setup, r) : OK;
}

void form_drop(Engine *e, Request *r) {
    grammar_cache_drop(e->grammars, r->constraint);
    r->constraint = NULL;
}

void form_settle(Request *r, size_t n_cut) {
    if (!r->constraint) return;
    constraint_continue(r->constraint, r->seq->tokens + r->n_prompt, r->seq->n_tokens - r->n_prompt, n_cut);
}

Status form_complete(const Request *r) {
    if (!r->constraint || r->finish == FINISH_INTERRUPT) return OK;
    if (r->finish == FINISH_BROKEN && r->no_logit) return OK; // the model's fault, not the form's: answer_broken
    if (constraint_complete(r->constraint, NULL, 0, 0)) return OK;
    Buf missing = {0}, shown = {0};
    constraint_missing(r->constraint, NULL, 0, &missing);
    size_t kept = 0; // length of `missing` without the marks in front of control tokens
    for (size_t i = 0; i < missing.n; i++)
        if ((unsigned char)missing.data[i] != VOCABULARY_CONTROL) missing.data[kept++] = missing.data[i];
    missing.n = kept;
    size_t most = missing.n < 60 ? missing.n : 60;
    utf8_escape(&shown, missing.data ? missing.data : "", most);
    const char *why = r->finish == FINISH_BROKEN ? "no allowed token can follow"
                      : r->finish == FINISH_STOP ? "a stop string ended it"
                                                 : "the limit of tokens was reached; a larger -n or -c allows more";
    Status st =
        status_error(QUILL_CUT, "the answer ended before its form was complete: %s; at least this was missing: %s%s",
                     why, shown.data ? shown.data : "", missing.n > most ? "..." : "");
    buf_free(&missing);
    buf_free(&shown);
    return st;
}
