// tests/fuzz_tools.c: any bytes as definitions of tools, in every format of calls. There must be no crash, and an error
// must be one line. If the definitions compile, an answer drawn under the masks must be read back as calls. Any bytes
// are also read as an answer.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer/call_format.h"
#include "base/jsonio.h"
#include "grammar/grammar.h"

static const char *const templates[] = {
    "<|channel|>commentary",
    "<seed:tool_call>",
    "<function=<tool_call>",
    "<atem:function_calls>",
    "<|tool_call>call:",
    "List of tools: ",
    "<TOOLCALL>[",
    "<minimax:tool_call>",
    "<arg_key>",
    "<tool_calls{}>':opensource'",
    "<|tool_calls_section_begin|>",
    "<｜tool▁calls▁begin｜>```json",
    "<｜tool▁calls▁begin｜>",
    "<|START_ACTION|>",
    "<|tools_prefix|>",
    "[TOOL_CALLS][ARGS]",
    "[TOOL_CALLS]",
    "<tool_calls>[",
    "<|tool_call|>",
    "<use_mcp_tool>",
    "<tool_call>",
    "{\"name\": function name",
};

static void require(bool truth, const char *what) {
    if (truth) return;
    fprintf(stderr, "fuzz_tools: %s\n", what);
    abort();
}

static char bytes[256];

static Vocabulary *every_byte(void) {
    static Str pieces[257];
    static Vocabulary *v;
    for (int i = 0; i < 255 && !v; i++) {
        bytes[i] = (char)i;
        pieces[i] = (Str){&bytes[i], 1};
    }
    if (!v) v = vocabulary_new(pieces, 257, 257, (int[]){256}, 1);
    return v;
}

typedef struct {
    const CallFormat *f;
    const Tools *tools;
} FuzzedCalls;

static Status write_calls(Rules *r, const void *arg) {
    const FuzzedCalls *w = arg;
    int e = 0;
    TRY(call_format_rules(w->f, w->tools, NULL, r, &e));
    r->start = rules_anonymous(r, e);
    return OK;
}

// Draws an answer. Returns whether it was complete; its bytes are in *out.
static bool walk(Grammar *g, const uint8_t *choices, size_t n, Buf *out) {
    int state = grammar_start(g);
    for (int left = 300; left > 0; left--) {
        const uint64_t *mask = grammar_mask_within(g, state, left);
        int id = n ? choices[(size_t)left % n] : 0, tries = 0;
        while (tries++ < 257 && !mask_has(mask, id)) id = (id + 1) % 257;
        if (tries > 257) return false;
        if (id == 256) return true;
        buf_append(out, &bytes[id], 1);
        state = grammar_step(g, state, (Str){&bytes[id], 1});
    }
    return grammar_accepts(g, state);
}

static json_t *read_back(const CallFormat *f, const Tools *tools, Str text) {
    Buf rest = {0};
    json_t *calls = call_format_read(f, tools, text, &rest);
    require(rest.n <= text.n, "no more text than there was");
    buf_free(&rest);
    return calls;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool started;
    if (!started) jsonio_start();
    started = true;
    if (size < 3 || size > 500) return 0;
    const CallFormat *f = call_format_find(str_of(templates[data[0] % ARRAY_LEN(templates)]));
    char *text = mem_copy((const char *)data + 2, size - 2);
    Tools tools;
    Status st = tools_read(&(AnswerTools){.text = text, .choice = data[1] % 2 ? "required" : "auto"}, &tools);
    require(!st.code || (st.code == QUILL_USAGE && st.message[0] && !strchr(st.message, '\n')), "one line of an error");
    if (!st.code && tools.json) {
        FuzzedCalls w = {f, &tools};
        Grammar *g;
        st = grammar_compile((GrammarSource){.kind = GRAMMAR_WRITTEN, .write = write_calls, .arg = &w}, every_byte(),
                             &g);
        Buf answer = {0};
        bool whole = !st.code && walk(g, data, size, &answer);
        json_t *calls = read_back(f, &tools, (Str){answer.data ? answer.data : "", answer.n});
        require(!whole || data[1] % 2 == 0 || calls, "an answer of calls alone is read as calls");
        json_decref(calls);
        buf_free(&answer);
        grammar_free(g);
    }
    json_decref(read_back(f, &tools, (Str){(const char *)data + 2, size - 2}));
    tools_free(&tools);
    free(text);
    return 0;
}
