// complete.c: see complete.h.
#include "complete.h"

#include "answer/answer.h"
#include "answer/prepare.h"
#include "answer/report.h"

static Status answer(Engine *e, const AnswerConfig *config, Str prompt) {
    Sequence seq = {0};
    Request r = {.seq = &seq};
    ChatTemplate *template;
    Rendered text = {0};
    Status st = chat_template_choose(e->gguf, e->tok, config, &template);
    if (!st.code) st = answer_prepare(e, config, prompt, template, &text, r.seq);
    if (!st.code)
        st = answer_run(e, config, template, (Str){text.text.data, text.text.n}, !template && prompt.n == 0,
                        config->echo ? prompt : (Str){0}, &r);
    kvcache_release(&e->kv, &seq);
    sequence_free(&seq);
    timeline_free(&r.time);
    rendered_free(&text);
    chat_template_free(template);
    return st;
}

Status complete_run(const EngineConfig *engine, const AnswerConfig *config, Str prompt) {
    Engine e;
    TRY(engine_open(&e, engine, (EngineNeeds){.need_tokenizer = true}));
    Status st = OK;
    if (engine->dry_run) report_budget(&e);
    else st = answer(&e, config, prompt);
    engine_close(&e);
    return st;
}
