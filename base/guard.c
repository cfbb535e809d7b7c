// base/guard.c: see base/guard.h.
#define _GNU_SOURCE
#include "base/guard.h"

#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

typedef struct GuardedRange {
    struct GuardedRange *next;
    uintptr_t begin, end;
    char name[];
} GuardedRange;

// Global, because a signal handler gets no argument.
static GuardedRange *ranges;
static uintptr_t page;
static char lost_name[PATH_MAX];
static atomic_bool lost;
static struct sigaction before;
static void (*at_crash)(void);

static const char gone[] = "the file became shorter while it was in use, or its disk failed; the results computed from "
                           "it are void: start again, and do not change the file meanwhile";

static const GuardedRange *range_of(uintptr_t at) {
    for (const GuardedRange *r = ranges; r; r = r->next)
        if (at >= r->begin && at < r->end) return r;
    return NULL;
}

static void remember(const GuardedRange *r) {
    if (atomic_load(&lost)) return;
    size_t n = strlen(r->name);
    if (n >= sizeof lost_name) n = sizeof lost_name - 1;
    memcpy(lost_name, r->name, n); // two threads at once write the same name, unless two files were cut
    lost_name[n] = 0;
    atomic_store(&lost, true);
}

// Maps zeros from the page of `at` to the end of the range: in a truncated file, all of it is missing.
static bool put_zeros(const GuardedRange *r, uintptr_t at) {
    uintptr_t from = at / page * page;
    return mmap((void *)from, r->end - from, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
                0) != MAP_FAILED;
}

static void say(const char *text) {
    ssize_t n = write(STDERR_FILENO, text, strlen(text));
    (void)n;
}

static void on_bus(int number, siginfo_t *info, void *context) {
    (void)context;
    bool fault = info->si_code > 0; // false: the signal was sent by kill(2)
    const GuardedRange *r = fault ? range_of((uintptr_t)info->si_addr) : NULL;
    if (r && put_zeros(r, (uintptr_t)info->si_addr)) {
        remember(r);
        return;
    }
    if (at_crash) at_crash();
    if (r) {
        say("quill: ");
        say(r->name);
        say(": ");
        say(gone);
        say("\n");
        _exit(QUILL_MODEL);
    }
    sigaction(SIGBUS, &before, NULL);
    if (!fault) raise(number); // after a fault, the instruction runs again and raises the signal
}

static void install(void) {
    static bool installed;
    if (installed) return;
    installed = true;
    page = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &before);
}

void guard_add(const void *at, size_t n, const char *name) {
    install();
    GuardedRange *r = mem_alloc(sizeof *r + strlen(name) + 1);
    r->begin = (uintptr_t)at;
    r->end = r->begin + n;
    r->next = ranges;
    strcpy(r->name, name);
    ranges = r;
}

void guard_remove(const void *at) {
    for (GuardedRange **r = &ranges; *r; r = &(*r)->next)
        if ((*r)->begin == (uintptr_t)at) {
            GuardedRange *found = *r;
            *r = found->next;
            free(found);
            return;
        }
}

Status guard_lost(void) {
    if (!atomic_load(&lost)) return OK;
    return status_error(QUILL_MODEL, "%.700s: %s", lost_name, gone);
}

void guard_at_crash(void (*then)(void)) { at_crash = then; }
