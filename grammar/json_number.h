// grammar/json_number.h: makes rules over digits for numbers within bounds and for multiples of a number.
//
// Integers and fractions have at most 16 digits. Exponents have at most two digits and are allowed only without bounds.
// Every JSON parser can read such numbers. Bounds are compared as decimals: the shortest one that reads as the double.
#ifndef QUILL_JSON_NUMBER_H
#define QUILL_JSON_NUMBER_H

#include <jansson.h>

#include "grammar/rules.h"

typedef struct {
    bool integer;
    bool has_low, has_high, low_open, high_open; // open: the bound itself is not allowed
    double low, high;
    double multiple; // 0: any number
} NumberBounds;

// QUILL_USAGE: bounds or multiples that are not supported.
Status json_number_rules(Rules *r, const NumberBounds *b, int *expr);

// Whether a number is within the bounds of `schema`, and a multiple where that is asked for. Removes these keywords: as
// texts, an automaton could compare only numbers of few digits.
bool json_number_within(json_t *schema, double x);

#endif
