// grammar/intern.c: see grammar/intern.h.
#include "grammar/intern.h"

#include <stdlib.h>
#include <string.h>

void intern_start(Intern *t) {
    *t = (Intern){.cap = 64, .cap_words = 256, .mask = 127, .key = hash_key()};
    t->words = mem_alloc(t->cap_words * sizeof *t->words);
    t->at = mem_alloc(((size_t)t->cap + 1) * sizeof *t->at);
    t->slots = mem_alloc(((size_t)t->mask + 1) * sizeof *t->slots);
}

void intern_free(Intern *t) {
    free(t->words);
    free(t->at);
    free(t->slots);
    *t = (Intern){0};
}

size_t intern_bytes(const Intern *t) {
    return t->cap_words * sizeof *t->words + (size_t)t->cap * sizeof *t->at + ((size_t)t->mask + 1) * sizeof *t->slots;
}

static uint64_t hash_of(const Intern *t, const int *words, int n) {
    return hash_bytes(t->key, (const char *)words, (size_t)n * sizeof *words);
}

static void grow_slots(Intern *t) {
    free(t->slots);
    t->mask = 2 * t->mask + 1;
    t->slots = mem_alloc(((size_t)t->mask + 1) * sizeof *t->slots);
    for (int i = 0; i < t->n; i++) {
        uint32_t at = (uint32_t)hash_of(t, intern_words(t, i), intern_length(t, i)) & t->mask;
        while (t->slots[at]) at = (at + 1) & t->mask;
        t->slots[at] = i + 1;
    }
}

static int add(Intern *t, const int *words, int n) {
    if (t->n == t->cap) {
        t->cap *= 2;
        t->at = mem_resize(t->at, ((size_t)t->cap + 1) * sizeof *t->at);
    }
    while (t->n_words + (size_t)n > t->cap_words) {
        t->cap_words *= 2;
        t->words = mem_resize(t->words, t->cap_words * sizeof *t->words);
    }
    if (n) memcpy(t->words + t->n_words, words, (size_t)n * sizeof *words);
    t->n_words += (size_t)n;
    t->at[t->n + 1] = t->n_words;
    return t->n++;
}

int intern_number(Intern *t, const int *words, int n, bool *fresh) {
    uint32_t at = (uint32_t)hash_of(t, words, n) & t->mask;
    for (; t->slots[at]; at = (at + 1) & t->mask) {
        int i = t->slots[at] - 1;
        if (intern_length(t, i) == n && (n == 0 || memcmp(intern_words(t, i), words, (size_t)n * sizeof *words) == 0)) {
            *fresh = false;
            return i;
        }
    }
    *fresh = true;
    t->slots[at] = t->n + 1;
    int number = add(t, words, n);
    if ((uint32_t)t->n > t->mask / 2) grow_slots(t);
    return number;
}

static int compare_ints(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

int intern_set(Intern *t, int *set, int n, bool *fresh) {
    qsort(set, (size_t)n, sizeof *set, compare_ints);
    return intern_number(t, set, n, fresh);
}
