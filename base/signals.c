// base/signals.c: see base/signals.h.
#define _GNU_SOURCE
#include "base/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#include "base/sizes.h"

static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT, SIGWINCH};
static const int flagged[] = {SIGINT, SIGTERM, SIGHUP}; // set the flag
static volatile sig_atomic_t caught, times, most = 1;
static const char *volatile second; // written to stderr by the second signal
static void (*volatile clean_up)(void);
static volatile sig_atomic_t held;    // signals_hold(true) was called
static volatile sig_atomic_t waiting; // the killing signal that came meanwhile; 0: none

static void set(int number, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler};
    sigemptyset(&action.sa_mask); // no SA_RESTART: a read that waits for input returns
    sigaction(number, &action, NULL);
}

static void say(const char *text) {
    size_t n = 0;
    while (text[n]) n++;
    ssize_t written = write(STDERR_FILENO, text, n);
    (void)written;
}

// The signal that kills the process. It is raised again, so that the shell sees its number.
static void on_last(int number) {
    if (held) {
        waiting = number;
        return;
    }
    if (clean_up) clean_up();
    set(number, SIG_DFL);
    raise(number);
}

static void on_signal(int number) {
    int before = errno;
    if (!signals_ends()) caught = number;
    if (++times >= most && number != SIGHUP) set(number, on_last);
    if (times == 2 && second) say(second);
    errno = before;
}

static bool does(int number, void (*handler)(int)) {
    struct sigaction now;
    return sigaction(number, NULL, &now) == 0 && now.sa_handler == handler;
}

static bool ignored(int number) { return does(number, SIG_IGN); }

void signals_catch(void) {
    if (caught == SIGINT) caught = 0;
    times = 0;
    most = 1;
    second = NULL;
    for (size_t i = 0; i < ARRAY_LEN(flagged); i++)
        if (!ignored(flagged[i])) set(flagged[i], on_signal);
}

void signals_catch_two(const char *said) {
    signals_catch();
    second = said;
    most = 2;
}

void signals_before_kill(void (*clean)(void)) {
    clean_up = clean;
    for (size_t i = 0; i < ARRAY_LEN(flagged); i++)
        if (does(flagged[i], SIG_DFL)) set(flagged[i], on_last);
}

void signals_hold(bool hold) {
    held = hold;
    if (!hold && waiting) on_last(waiting);
}

int signals_caught(void) { return caught; }
bool signals_came(void) { return caught != 0; }
Status signals_status(void) { return (Status){.code = 128 + (int)caught}; }
bool signals_ends(void) { return caught == SIGTERM || caught == SIGHUP; }
int signals_times(void) { return times; }

void signals_release(void) {
    for (size_t i = 0; i < ARRAY_LEN(flagged); i++)
        if (!ignored(flagged[i])) set(flagged[i], on_last);
}

void signals_leave(void) {
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(watched); i++) sigaddset(&set, watched[i]);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

// ---- as bytes -------------------------------------------------------------------------------------------------------

static int ends[2] = {-1, -1}; // ends of the pipe: for reading, for writing

// Whether the terminal on stdin has another job in front, so that a read of it or a change of its modes stops this one.
static bool in_background(void) {
    pid_t front = tcgetpgrp(STDIN_FILENO); // -1: no terminal, or another session's
    return front >= 0 && front != getpgrp();
}

// A signal that ends the chat must not wait in the pipe of a job in the background, which the first access to the
// terminal stops: it kills at once then.
static void tell(int number) {
    if ((number == SIGTERM || number == SIGHUP) && in_background()) {
        on_last(number);
        return;
    }
    int before = errno;
    ssize_t n = write(ends[1], &(char){(char)number}, 1); // a full pipe already wakes the reader
    (void)n;
    errno = before;
}

int signals_watch(void) {
    if (ends[0] < 0 && pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return -1;
    for (size_t i = 0; i < ARRAY_LEN(watched); i++)
        if (!ignored(watched[i]) || watched[i] == SIGINT)
            set(watched[i], tell); // a signal that was ignored stays ignored, except SIGINT
    return ends[0];
}

void signals_unwatch(void) {
    for (size_t i = 0; i < ARRAY_LEN(watched); i++)
        if (does(watched[i], tell)) set(watched[i], SIG_DFL);
}
