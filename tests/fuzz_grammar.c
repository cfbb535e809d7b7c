// tests/fuzz_grammar.c: any bytes as a regular expression, a list of choices, a grammar or a JSON schema. There must be
// no crash, and an error must be one line. If the source compiles, random tokens are drawn under the masks until the
// answer ends.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"

static void require(bool truth, const char *what) {
    if (truth) return;
    fprintf(stderr, "fuzz_grammar: %s\n", what);
    abort();
}

static Vocabulary *every_byte(void) {
    static char bytes[256];
    static Str pieces[257];
    static Vocabulary *v;
    for (int i = 0; i < 256 && !v; i++) {
        bytes[i] = (char)i;
        pieces[i] = (Str){&bytes[i], 1};
    }
    if (!v) v = vocabulary_new(pieces, 257, 257, (int[]){256}, 1);
    return v;
}

// Draws tokens under the masks, with `left` more allowed. The answer must be complete at the end if it could be.
static void walk(Grammar *g, const uint8_t *choices, size_t n) {
    int state = grammar_start(g), left = 40;
    bool possible = grammar_distance(g, state) <= left;
    for (; left > 0; left--) {
        const uint64_t *mask = grammar_mask_within(g, state, left);
        int id = n ? choices[(size_t)left % n] : 0, tries = 0;
        while (tries++ < 257 && !mask_has(mask, id)) id = (id + 1) % 257;
        if (tries > 257) break;
        if (id == 256) return;
        state = grammar_step(g, state, (Str){&(char){(char)id}, 1});
        require(state != STATE_DEAD, "a token of the mask is refused");
    }
    require(!possible || grammar_accepts(g, state), "an answer that could be completed is not");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2 || size > 400) return 0;
    Grammar *g;
    GrammarSource source = {.kind = (GrammarKind)(data[0] % 4), .text = {(const char *)data + 1, size - 1}};
    Status st = grammar_compile(source, every_byte(), &g);
    require(!st.code || (st.code == QUILL_USAGE && st.message[0] && !strchr(st.message, '\n')), "one line of an error");
    if (!st.code) walk(g, data, size);
    grammar_free(g);
    return 0;
}
