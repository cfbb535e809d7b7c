// base/nearest.c: see base/nearest.h.
#define _GNU_SOURCE // strnlen
#include "base/nearest.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/sizes.h"

int nearest_distance(const char *a, const char *b) {
    enum { MAX = 64 };
    int rows[3][MAX + 1];
    int na = (int)strnlen(a, MAX), nb = (int)strnlen(b, MAX);
    for (int j = 0; j <= nb; j++) rows[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            row[j] = int_min(above[j - 1] + (a[i - 1] != b[j - 1]), int_min(above[j], row[j - 1]) + 1);
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped) row[j] = int_min(row[j], two_above[j - 2] + 1);
        }
    }
    return rows[na % 3][nb];
}

void nearest_try(Nearest *n, const char *candidate) {
    int distance = nearest_distance(n->word, candidate);
    if (n->best[0] && distance >= n->distance) return;
    n->distance = distance;
    snprintf(n->best, sizeof n->best, "%s", candidate);
}

const char *nearest_found(const Nearest *n) {
    int length = (int)strlen(n->word); // a word of one letter is one edit away from every other one
    bool near = n->best[0] && length > 1 && n->distance <= int_max(1, length / 3);
    return near ? n->best : NULL;
}
