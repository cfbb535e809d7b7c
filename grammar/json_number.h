// grammar/json_number.h: numbers between bounds, and multiples, as rules over their digits.
//
// Integers have 16 digits at most, fractions too; exponents have two and come only without bounds. So any reader of
// JSON takes them.
#ifndef QUILL_JSON_NUMBER_H
#define QUILL_JSON_NUMBER_H

#include "grammar/rules.h"

typedef struct {
    bool integer;
    bool has_low, has_high, low_open, high_open; // open: the bound itself is not allowed
    double low, high;
    double multiple; // 0: any number
} NumberBounds;

// QUILL_USAGE: bounds or multiples that are not supported.
Status json_number_rules(Rules *r, const NumberBounds *b, int *expr);

#endif
