// base/nearest.h: finds the known word that is nearest to a mistyped one.
//
//     Nearest n = {.word = written};
//     for (each known word) nearest_try(&n, known);
//     const char *meant = nearest_found(&n);
#ifndef QUILL_NEAREST_H
#define QUILL_NEAREST_H

typedef struct {
    const char *word; // the mistyped word
    char best[64];
    int distance; // of best
} Nearest;

void nearest_try(Nearest *n, const char *candidate);
const char *nearest_found(const Nearest *n); // NULL: none is near enough

// ---- for the tests ----

// The edit distance of two words: inserted, removed and replaced letters, two letters swapped counting once.
int nearest_distance(const char *a, const char *b);

#endif
