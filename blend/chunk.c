// blend/chunk.c: see blend/chunk.h.
#include "blend/chunk.h"

#include <stdio.h>
#include <string.h>

#include "base/signals.h"
#include "blend/blender.h"

static Status add(Engine *e, const AnswerConfig *config) {
    BlenderChunks chunks;
    Blender *b = NULL;
    BlenderPrompt p = {0};
    int n = 0;
    Status st = blender_read(config, &chunks);
    if (!st.code) st = blender_open(e, "full", true, &b);
    for (int i = 0; i < chunks.n && !st.code; i++) st = blender_add_chunk(b, chunks.texts[i], &p);
    signals_catch();
    if (!st.code) n = blender_compute(b, &p);
    if (!st.code) st = blender_unkept(b);
    if (!st.code && signals_caught()) st = signals_status();
    signals_release();
    if (!st.code && !config->quiet)
        fprintf(stderr, "%d chunk%s, %d tokens: %d computed, %d already stored\n", p.n_spans, p.n_spans == 1 ? "" : "s",
                p.n, n, p.n_spans - n);
    blender_close(b);
    blender_prompt_free(&p);
    blender_chunks_free(&chunks);
    return st;
}

Status chunk_run(const Options *o) {
    const char *word = o->kv.n_words ? o->kv.words[0] : "nothing";
    if (strcmp(word, "add") != 0)
        return status_error(QUILL_USAGE, "quill chunk: add FILE... expected, found %.100s", word);
    if (o->kv.n_words < 2) return status_error(QUILL_USAGE, "quill chunk add: a file expected, found none");
    if (!o->engine.kv_dir)
        return status_error(QUILL_USAGE, "quill chunk add: --kv-dir DIR expected, found none; chunks are stored there");
    AnswerConfig config = o->answer;
    config.chunks = o->kv.words + 1;
    config.n_chunks = o->kv.n_words - 1;
    Engine e;
    TRY(engine_open(&e, &o->engine, (EngineNeeds){.need_tokenizer = true, .whole = true}));
    Status st = add(&e, &config);
    engine_close(&e);
    return st;
}
