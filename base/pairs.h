// base/pairs.h: reads values of options such as --evict, --blend and --slo: "word,name=number,name=number".
//
//   const char *at = text;
//   int mode = pairs_word(&at, words, n_words);              // moves `at` to the first name
//   if (mode < 0 || !pairs_read(at, numbers, n_numbers)) ... // a wrong spelling
//
// A comma is followed by a name, and a name is given once.
#ifndef QUILL_PAIRS_H
#define QUILL_PAIRS_H

#include <stdbool.h>

typedef struct {
    const char *name;
    double *to;         // keeps its value if the text does not have the name
    double least, most; // the range of the number
    bool whole;         // digits alone, no decimal point
    bool *by_auto;      // set if the value is "auto", which leaves *to as it is; NULL: "auto" is wrong
} PairsNumber;

// Reads one of n words at the beginning of *at, and moves *at behind it and its comma. Returns its index; -1: another
// word, and *at is unchanged. A comma that ends the text sets *at to NULL.
int pairs_word(const char **at, const char *const *words, int n);
// Reads the pairs of a text. False: a wrong spelling, a name that is not in `numbers` or is given twice, a number out
// of its range, or NULL. An empty text is right. n <= 8.
bool pairs_read(const char *at, const PairsNumber *numbers, int n);

#endif
