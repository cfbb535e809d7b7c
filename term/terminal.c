// term/terminal.c: see term/terminal.h.
#define _GNU_SOURCE
#include "term/terminal.h"

#include "base/guard.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

// Global, since a signal handler gets no argument.
static struct termios found;
static int from = -1, to = -1;
static volatile sig_atomic_t lent;

static void send(const char *sequence) {
    ssize_t n = write(to, sequence, strlen(sequence));
    (void)n;
}

void terminal_give_back(void) {
    if (!lent) return;
    lent = 0;
    send("\033[?2004l");
    tcsetattr(from, TCSADRAIN, &found);
}

static void on_crash(int number) {
    terminal_give_back();
    raise(number); // the default action follows when this handler returns
}

// Leaves handlers that are already installed, such as a sanitizer's.
static void catch_crash(int number) {
    static char stack[1 << 16]; // a stack of its own: the crash may be a stack overflow
    struct sigaction old, action = {.sa_handler = on_crash, .sa_flags = (int)(SA_RESETHAND | SA_ONSTACK)};
    if (sigaction(number, NULL, &old) != 0 || old.sa_handler != SIG_DFL) return;
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&other, NULL);
    sigaction(number, &action, NULL);
}

bool terminal_color(const char *when, int fd) {
    if (strcmp(when, "auto") != 0) return strcmp(when, "always") == 0;
    const char *no = getenv("NO_COLOR");
    return fd_is_capable_terminal(fd) && !(no && *no);
}

int terminal_columns(int fd) {
    struct winsize size;
    return fd_is_capable_terminal(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool terminal_open(int in, int out) {
    if (tcgetattr(in, &found) != 0) return false;
    from = in;
    to = out;
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGQUIT, SIGSYS, SIGTRAP};
    for (size_t i = 0; i < ARRAY_LEN(crashes); i++) catch_crash(crashes[i]);
    guard_at_crash(terminal_give_back); // base/guard.c has the handler of SIGBUS while a file is mapped
    static bool registered;
    if (!registered) atexit(terminal_give_back);
    registered = true;
    return true;
}

void terminal_lend(void) {
    lent = 1;
    send("\033[?2004h");
}

void terminal_suspend(void) {
    terminal_give_back();
    struct sigaction usual = {.sa_handler = SIG_DFL}, ours;
    sigaction(SIGTSTP, &usual, &ours);
    raise(SIGTSTP); // the system ignores it if there is no shell that could continue the process
    sigaction(SIGTSTP, &ours, NULL);
}
