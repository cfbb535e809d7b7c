// policy/plain.c: plain decoding, with verification of drafts. See policy/plain.h.
#include "policy/plain.h"

#include "scheduler.h"

#include <assert.h>

static void accept(const Policy *p, Scheduler *s, StepRows *rows, int n) {
    (void)p;
    assert(n == 1 && rows->n_out == 1 + rows->n_draft);
    for (int i = 0; i < rows->n_out; i++) {
        const float *logits = rows->logits ? rows->logits + (size_t)i * (size_t)scheduler_n_vocab(s) : NULL;
        int token = logits ? scheduler_draw(s, rows->request, rows->seq, logits) : rows->tokens[i];
        if (!scheduler_emit(s, rows, token, logits)) return;
        if (i < rows->n_draft && token != rows->draft[i]) return;
    }
}

const Policy plain_policy = {.accept = accept, .takes_drawn = true};
