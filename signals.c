// signals.c: see signals.h.
#define _GNU_SOURCE
#include "signals.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t caught;

static void on_signal(int number) { caught = number; }

static void set(int number, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler};
    if (handler == on_signal) action.sa_flags = (int)SA_RESETHAND; // the second one finds the default again
    sigemptyset(&action.sa_mask);                                  // no SA_RESTART: a read that waits for input returns
    sigaction(number, &action, NULL);
}

void signals_catch(void) {
    caught = 0;
    set(SIGINT, on_signal);
    set(SIGTERM, on_signal);
}

int signals_caught(void) { return caught; }

void signals_release(void) {
    set(SIGINT, SIG_DFL);
    set(SIGTERM, SIG_DFL);
}
