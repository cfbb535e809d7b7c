// term/lines.c: see term/lines.h.
#define _GNU_SOURCE
#include "term/lines.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "term/keys.h"
#include "term/line_keys.h"
#include "term/recall.h"
#include "base/signals.h"
#include "term/terminal.h"

struct Lines {
    LinesSetup setup;
    bool terminal; // stdin is a terminal
    Buf ahead;     // for a stream: bytes that were read and not returned yet
    // the editor
    EditLine *el; // NULL: there is none, the stream is read
    FILE *out;
    HistoryW *past;
    Buf keys;             // input that was read and not passed to libedit yet
    size_t n_judged;      // leading bytes of `keys` that were checked: libedit gets them unchanged
    bool pasting;         // inside a bracketed paste: escape sequences are text
    bool searching;       // inside Ctrl-R's search, which does not look keys up in the table
    struct termios modes; // the terminal's modes while the editor reads
    int columns;          // width of the terminal when the line was drawn
    int signals;          // the descriptor of signals_watch
    int stopped;          // the signal that ended the line
    int ended;            // a signal that ended a question, and ends the chat; 0: none
    bool stopped_bare;    // the line was empty when the signal arrived
    bool closed;          // the terminal was closed
    bool goes_on;         // this is not the message's first line
    bool quoted;          // the last message was between """
    const char *question; // lines_ask: shown instead of the prompt; NULL: none
};

bool lines_terminal(const Lines *l) { return l->terminal; }
bool lines_quoted(const Lines *l) { return l->quoted; }

// ---- wide characters, for libedit -----------------------------------------------------------------------------------

static wchar_t *wide_of(Str text) {
    wchar_t *out = mem_alloc((text.n + 1) * sizeof *out);
    size_t n = 0;
    for (size_t i = 0; i < text.n;) {
        uint32_t c = 0xfffd;
        int len = utf8_read(text.data + i, text.n - i, &c);
        if (c) out[n++] = (wchar_t)c; // libedit's texts end at a zero
        i += (size_t)int_max(1, len);
    }
    return out;
}

static void narrow(const wchar_t *text, size_t n, Buf *out) {
    buf_append(out, "", 0);
    for (size_t i = 0; i < n; i++) {
        char s[4];
        buf_append(out, s, (size_t)utf8_write(s, (uint32_t)text[i]));
    }
}

#define CTRL_KEY(letter) ((letter)&0x1f)

// ---- keys -----------------------------------------------------------------------------------------------------------

static Lines *lines_of(EditLine *el) {
    void *l = NULL;
    el_get(el, EL_CLIENTDATA, &l);
    return l;
}

// Replaces the first n bytes of the input. libedit gets the replacement unchanged.
static void replace_keys(Lines *l, size_t n, Str with) {
    Buf all = {0};
    buf_append(&all, with.data, with.n);
    buf_append(&all, l->keys.data + n, l->keys.n - n);
    buf_free(&l->keys);
    l->keys = all;
    l->n_judged = with.n;
}

// Whether libedit has a binding for the sequence, its own or one of ~/.editrc. libedit has no function for this, so the
// output of its `bind` command is used: it is empty for an unbound sequence.
static bool has_binding(Lines *l, const char *map, Str sequence) {
    Buf name = {0};
    for (size_t i = 0; i < sequence.n; i++) {
        bool special = sequence.data[i] == '^' || sequence.data[i] == '\\';
        buf_printf(&name, "%s%c", special ? "\\" : "", sequence.data[i]);
    }
    char *shown = NULL;
    size_t n = 0;
    FILE *answer = open_memstream(&shown, &n), *errors = fopen("/dev/null", "w");
    if (answer && errors) {
        el_set(l->el, EL_SETFP, 1, answer);
        el_set(l->el, EL_SETFP, 2, errors);
        if (map) el_set(l->el, EL_BIND, map, name.data, NULL);
        else el_set(l->el, EL_BIND, name.data, NULL);
        el_set(l->el, EL_SETFP, 1, l->out);
        el_set(l->el, EL_SETFP, 2, l->out);
    }
    if (answer) fclose(answer);
    if (errors) fclose(errors);
    free(shown);
    buf_free(&name);
    return n > 0;
}

// Decides what to pass to libedit for the escape sequence of n bytes at the beginning of the input. An unbound sequence
// is dropped: libedit would insert its bytes from the third one on into the line.
static void judge_sequence(Lines *l, size_t n) {
    Str sequence = {l->keys.data, n};
    Buf text = {0};
    bool meta = n == 2 && (unsigned char)sequence.data[1] < 0x80;
    if (keys_text(sequence, &text)) replace_keys(l, n, str_of_buf(&text));
    else if (l->searching && n > 2) replace_keys(l, n, str_of("\033"));
    else if (meta || has_binding(l, NULL, sequence) || has_binding(l, "-a", (Str){sequence.data + 1, n - 1}))
        l->n_judged = n;
    else replace_keys(l, n, (Str){"", 0});
    buf_free(&text);
}

// Keeps track of Ctrl-R's search: it continues while text is typed or deleted, or Ctrl-R or Ctrl-S is pressed again.
static void note_search(Lines *l, wchar_t c) {
    static const char goes_on[] = {CTRL_KEY('R'), CTRL_KEY('S'), CTRL_KEY('H'), CTRL_KEY('W'), 0x7f, 0};
    if (c == CTRL_KEY('R')) l->searching = true;
    else if (c < ' ' && !strchr(goes_on, (int)c)) l->searching = false;
}

// Called when an incomplete escape sequence got no more bytes in time: ESC and Alt-P are keys of their own, anything
// longer is dropped.
static void end_waiting(Lines *l) {
    if (l->n_judged || l->keys.n == 0 || l->keys.data[0] != '\033') return;
    bool twice = l->keys.n == 2 && l->keys.data[1] == '\033';
    if (twice) replace_keys(l, 2, str_of("\033")); // libedit would take the second one as the beginning of a sequence
    else if (l->keys.n == 1 || (l->keys.n == 2 && l->keys.data[1] == 'P')) l->n_judged = l->keys.n;
    else replace_keys(l, l->keys.n, (Str){"", 0});
}

// Takes the next whole character for libedit out of the input. False: it is not complete yet.
static bool take_key(Lines *l, wchar_t *out) {
    while (l->n_judged == 0) {
        int n = l->pasting ? int_min(1, (int)l->keys.n) : keys_length(str_of_buf(&l->keys));
        if (n <= 0) return false;
        if (n > 1 && l->keys.data[0] == '\033') judge_sequence(l, (size_t)n);
        else l->n_judged = (size_t)n;
    }
    int n = utf8_next(l->keys.data, l->keys.n);
    if (n < 0) return false;
    n = int_max(1, n);
    wchar_t *wide = wide_of((Str){l->keys.data, (size_t)n});
    *out = wide[0];
    free(wide);
    l->n_judged -= (size_t)int_min(n, (int)l->n_judged);
    buf_drop(&l->keys, (size_t)n);
    note_search(l, *out);
    return true;
}

static void note_columns(Lines *l) {
    struct winsize size;
    bool known = ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    l->columns = known ? size.ws_col : 80;
}

// Reads what was typed before the editor set the terminal's modes. The terminal has translated Enter to \n there.
static void take_typed_ahead(Lines *l) {
    struct pollfd wait = {.fd = STDIN_FILENO, .events = POLLIN};
    char bytes[4096];
    while (poll(&wait, 1, 0) == 1 && wait.revents & POLLIN) {
        ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
        if (n <= 0) return; // next_key will see the end of input or the error again
        for (ssize_t i = 0; i < n; i++)
            if (bytes[i] == '\n') bytes[i] = '\r';
        buf_append(&l->keys, bytes, (size_t)n);
    }
}

// True if the terminal's modes are still the editor's, as they were after the last start_editing.
static bool has_modes(const Lines *l) {
    struct termios now;
    return tcgetattr(STDIN_FILENO, &now) == 0 && now.c_iflag == l->modes.c_iflag && now.c_oflag == l->modes.c_oflag &&
           now.c_lflag == l->modes.c_lflag && memcmp(now.c_cc, l->modes.c_cc, sizeof now.c_cc) == 0;
}

// Sets the editor's modes. Called before the prompt is shown, since the user may type at once.
static void start_editing(Lines *l) {
    el_set(l->el, EL_PREP_TERM, 1);
    tcgetattr(STDIN_FILENO, &l->modes);
    take_typed_ahead(l);
}

// Sets the modes that were found, which the editor must do before it can set its own again.
static void stop_editing(Lines *l) { el_set(l->el, EL_PREP_TERM, 0); }

// Draws the line again after the process was continued.
static void show_again(Lines *l) {
    if (!has_modes(l)) { // Enter typed between the two calls is a line feed
        stop_editing(l);
        start_editing(l);
    }
    terminal_lend();
    el_resize(l->el);
    fputc('\r', l->out);
    el_set(l->el, EL_REFRESH);
}

// The number of screen rows from the beginning of the prompt to the cursor.
static int rows_above(Lines *l, int columns) {
    const LineInfoW *line = el_wline(l->el);
    int rows = 0, column = 2; // the prompt
    for (const wchar_t *c = line->buffer; c < line->cursor; c++) {
        int width = *c == '\n' ? 0 : int_max(1, wcwidth(*c));
        if (*c == '\n' || column + width > columns) rows++, column = 0;
        column += width;
    }
    return rows + (column >= columns);
}

// Draws the line again after the terminal's size has changed. Some terminals have already rewrapped the line and some
// have not: only the rows that belong to it in both cases are overwritten.
static void show_resized(Lines *l) {
    int before = l->columns;
    el_resize(l->el);
    note_columns(l);
    int rows = int_min(rows_above(l, before), rows_above(l, l->columns));
    if (rows > 0) fprintf(l->out, "\033[%dA", rows);
    fputs("\r\033[J", l->out);
    el_set(l->el, EL_REFRESH);
}

// Handles a signal while a line is edited. False: the signal ends the line.
static bool take_signal(Lines *l) {
    unsigned char number = 0;
    if (read(l->signals, &number, 1) != 1) return true;
    switch (number) {
    case SIGWINCH: show_resized(l); return true;
    case SIGTSTP:
        stop_editing(l);
        fputc('\n', l->out);
        fflush(l->out);
        terminal_suspend();
        show_again(l);
        return true;
    case SIGCONT: // after SIGTSTP above, or after SIGSTOP from another process: the shell has used the terminal
        show_again(l);
        return true;
    }
    const LineInfoW *line = el_wline(l->el);
    l->stopped = number;
    l->stopped_bare = line->lastchar == line->buffer && !l->goes_on;
    l->keys.n = l->n_judged = 0;
    return false;
}

// How many milliseconds to wait for more input; -1: no limit. After ESC alone the wait is short, since it may be the
// Escape key, which is frequent in vi mode. The rest of a longer sequence may be delayed by a slow connection.
static int patience(const Lines *l) {
    bool begun = l->n_judged == 0 && l->keys.n > 0 && l->keys.data[0] == '\033';
    bool escapes = l->keys.n == 1 || (l->keys.n == 2 && l->keys.data[1] == '\033');
    return !begun ? -1 : escapes ? 50 : 500;
}

// libedit's callback that reads a character. Returns 1: a character, 0: the end of input, -1: an error or a signal.
static int next_key(EditLine *el, wchar_t *out) {
    Lines *l = lines_of(el);
    while (!take_key(l, out)) {
        struct pollfd wait[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = l->signals, .events = POLLIN}};
        int n_ready = poll(wait, 2, patience(l));
        if (n_ready < 0 && errno != EINTR) return -1;
        if (n_ready == 0) end_waiting(l);
        if (wait[1].revents && !take_signal(l)) return -1;
        if (!wait[0].revents) continue;
        char bytes[4096];
        ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        l->closed = n <= 0;
        if (l->closed) return 0;
        buf_append(&l->keys, bytes, (size_t)n);
    }
    return 1;
}

static bool ends_with(const Buf *b, const char *end) { return str_has_suffix(str_of_buf(b), end); }

static void insert(EditLine *el, Str text) {
    wchar_t *wide = wide_of(text);
    el_winsertstr(el, wide);
    free(wide);
}

// Bound to ESC [200~, a bracketed paste: inserts everything up to ESC [201~ as text, including line ends.
static unsigned char paste(EditLine *el, int key) {
    (void)key;
    Lines *l = lines_of(el);
    Buf text = {0};
    wchar_t c, last = 0;
    int got = 1;
    l->pasting = true;
    while (got == 1 && !ends_with(&text, "\033[201~")) {
        got = el_wgetc(el, &c);
        bool second = got == 1 && c == '\n' && last == '\r';
        last = c;
        if (c == '\r') c = '\n'; // terminals send \r for a line end; a text from elsewhere may have \r\n
        if (got == 1 && !second) narrow(&c, 1, &text);
    }
    l->pasting = false;
    if (got != 1) {
        buf_free(&text);
        return CC_EOF;
    }
    if (line_keys_vi(el)) el_cursor(el, 1); // ESC moved the cursor back by one
    insert(el, (Str){text.data, text.n - 6});
    const LineInfoW *line = el_wline(el);
    bool at_end = line->cursor == line->lastchar;          // after the last character, only `a` inserts
    if (line_keys_vi(el)) el_push(el, at_end ? "a" : "i"); // returns to insert mode
    buf_free(&text);
    return CC_REFRESH;
}

// Inserts a line end: Ctrl-J, and the keys that keys_text translates to it.
static unsigned char new_line(EditLine *el, int key) {
    (void)key;
    insert(el, str_of("\n"));
    return CC_REFRESH;
}

// ---- Tab ------------------------------------------------------------------------------------------------------------

// Length of the longest common prefix of all words.
static size_t common(const Buf *words) {
    size_t n = strlen(words->data);
    for (const char *w = words->data; w < words->data + words->n; w += strlen(w) + 1)
        for (size_t i = 0; i < n; i++)
            if (w[i] != words->data[i]) n = i;
    return utf8_whole(words->data, n);
}

static void list_words(Lines *l, const Buf *words) {
    Buf shown = {0}; // escaped, since file names may hold control characters
    for (const char *w = words->data; w < words->data + words->n; w += strlen(w) + 1) {
        utf8_escape(&shown, w, strlen(w));
        buf_str(&shown, "  ");
    }
    fprintf(l->out, "\n%s\n", shown.data);
    buf_free(&shown);
}

static unsigned char complete(EditLine *el, int key) {
    (void)key;
    Lines *l = lines_of(el);
    const LineInfoW *line = el_wline(el);
    Buf before = {0}, words = {0};
    size_t from = 0;
    narrow(line->buffer, (size_t)(line->cursor - line->buffer), &before);
    unsigned char result = CC_REFRESH;
    if (!l->setup.complete || !l->setup.complete(l->setup.arg, str_of_buf(&before), &from, &words)) {
        insert(el, str_of("\t"));
    } else if (words.n == 0) {
        result = CC_REFRESH_BEEP;
    } else {
        size_t n = common(&words), typed = before.n - from;
        bool only = strlen(words.data) + 1 == words.n, whole = only && words.data[n - 1] != '/';
        if (n > typed) insert(el, (Str){words.data + typed, n - typed});
        if (whole) insert(el, str_of(" "));
        if (!only && n <= typed) {
            list_words(l, &words);
            result = CC_REDISPLAY;
        }
    }
    buf_free(&before);
    buf_free(&words);
    return result;
}

// ---- the editor -----------------------------------------------------------------------------------------------------

static const char *prompt_text(const Lines *l) { return l->question ? l->question : l->goes_on ? ". " : "> "; }

// The prompt for libedit; \1 encloses sequences without width.
static char *edit_prompt(EditLine *el) {
    Lines *l = lines_of(el);
    if (!l->setup.color || l->question) return (char *)prompt_text(l);
    return l->goes_on ? "\1\033[1;32m\1.\1\033[0m\1 " : "\1\033[1;32m\1>\1\033[0m\1 ";
}

static void remember(void *arg, Str message) {
    Lines *l = arg;
    wchar_t *wide = wide_of(message);
    HistEventW event;
    history_w(l->past, &event, H_ENTER, wide);
    free(wide);
}

static void bind_keys(EditLine *el) {
    static const char *const keys[][2] = {
        {"\033[200~", "quill-paste"},
        {"\t", "quill-complete"},
        {"^J", "quill-newline"},
        {"^R", "em-inc-search-prev"},
        {"^W", "ed-delete-prev-word"},
        {"^U", "quill-kill-before"},
        {"^K", "quill-kill-after"},
        {"\033[3~", "ed-delete-next-char"},
        {"\033[3;5~", "em-delete-next-word"}, // with Ctrl
        {"\033[3;3~", "em-delete-next-word"}, // with Alt
        {"\033[1~", "quill-line-start"},
        {"\033[4~", "quill-line-end"},
        {"\033[H", "quill-line-start"},
        {"\033[F", "quill-line-end"},
        {"\033OH", "quill-line-start"}, // of a keypad in application mode
        {"\033OF", "quill-line-end"},
        {"\033[1;2H", "quill-line-start"}, // with Shift
        {"\033[1;2F", "quill-line-end"},
        {"\033[1;5H", "quill-line-start"}, // with Ctrl
        {"\033[1;5F", "quill-line-end"},
        {"\033[1;2D", "ed-prev-char"}, // with Shift
        {"\033[1;2C", "ed-next-char"},
        {"\033[1;5D", "ed-prev-word"}, // with Ctrl
        {"\033[1;5C", "em-next-word"},
        {"\033[1;3D", "ed-prev-word"}, // with Alt
        {"\033[1;3C", "em-next-word"},
        {"\033\033[D", "ed-prev-word"},
        {"\033\033[C", "em-next-word"},
        {"\033Od", "ed-prev-word"}, // with Ctrl, as rxvt sends it
        {"\033Oc", "em-next-word"},
        {"\033[7~", "quill-line-start"}, // Home and End of rxvt
        {"\033[8~", "quill-line-end"},
    };
    bool vi = line_keys_vi(el);
    if (!vi) line_keys_bind_emacs(el);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        bool escaped = keys[i][0][0] == '\033';
        if (vi && escaped) el_set(el, EL_BIND, "-a", keys[i][0] + 1, keys[i][1], NULL);
        else el_set(el, EL_BIND, keys[i][0], keys[i][1], NULL);
    }
}

// Makes libedit read and write UTF-8, whatever the user's locale is.
static void use_utf8(void) {
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
}

static bool can_edit(void) {
    const char *term = getenv("TERM");
    return term && *term && fd_is_capable_terminal(STDERR_FILENO);
}

static void open_editor(Lines *l) {
    l->signals = signals_watch();
    signals_unwatch();
    if (l->signals < 0 || !terminal_open(STDIN_FILENO, STDERR_FILENO)) return;
    use_utf8();
    int out = dup(STDERR_FILENO); // stderr itself is unbuffered: it would write each character separately
    l->out = out < 0 ? NULL : fdopen(out, "w");
    l->el = l->out ? el_init_fd("quill", stdin, l->out, l->out, STDIN_FILENO, out, out) : NULL;
    if (!l->el) return;
    HistEventW event;
    l->past = history_winit();
    history_w(l->past, &event, H_SETSIZE, RECALL_MAX);
    el_set(l->el, EL_CLIENTDATA, l);
    el_set(l->el, EL_EDITOR, "emacs");
    el_set(l->el, EL_SIGNAL, 0);
    el_set(l->el, EL_PROMPT_ESC, edit_prompt, '\1');
    el_wset(l->el, EL_GETCFN, next_key);
    el_wset(l->el, EL_HIST, history_w, l->past);
    el_wset(l->el, EL_ADDFN, L"quill-paste", L"insert a bracketed paste", paste); // el_set would leak the names
    el_wset(l->el, EL_ADDFN, L"quill-newline", L"begin a new line", new_line);
    line_keys_add(l->el);
    el_wset(l->el, EL_ADDFN, L"quill-complete", L"complete a command", complete);
    // libedit moves the rest of a line by the terminal's insert and delete of characters, and counts a wide character
    // as one column there. Without them it writes the rest again.
    static const char *const shifts[] = {"ic", "IC", "im", "dc", "DC", "dm"};
    for (size_t i = 0; i < ARRAY_LEN(shifts); i++) el_set(l->el, EL_SETTC, shifts[i], "", NULL);
    el_set(l->el, EL_SETTY, "-d", "-icrnl", "-inlcr", NULL); // Enter is \r, Ctrl-J \n
    el_source(l->el, NULL); // reads ~/.editrc, before quill's own bindings: its `bind -v` clears the table
    bind_keys(l->el);
    if (!l->setup.no_history) recall_each(remember, l);
}

// Reads one line with the editor. *end: as in lines_read, or a signal, which l->stopped names, has ended the line.
static void edit_line(Lines *l, Buf *line, bool *end) {
    int n = 0;
    l->stopped = 0;
    signals_watch();
    start_editing(l);
    terminal_lend();
    note_columns(l);
    l->searching = false;
    const wchar_t *text = el_wgets(l->el, &n);
    terminal_give_back();
    signals_unwatch();
    line->n = 0;
    *end = !text || n <= 0;
    if (*end) {
        if (l->stopped) fputs("\033[J", l->out); // the rows of the line below the cursor
        fputs(l->stopped == SIGINT ? "^C\n" : "\n", l->out);
        fflush(l->out);
    } else narrow(text, (size_t)n, line);
}

// ---- the stream -----------------------------------------------------------------------------------------------------

// Input without an end must not fill memory: the limit is that of a prompt from a pipe.
static Status too_long(const char *what) {
    return status_error(QUILL_CONTEXT, "stdin: a %s of at most %d bytes expected, found more", what, FD_STREAM_MOST);
}

// Appends the next line of stdin with its line end, or the rest of the input if it has none. Returns 1; 0: the end of
// the input (a terminal may give more later); -1: cannot be read, a signal came, or the line is longer than
// FD_STREAM_MOST.
static int next_line(Lines *l, Buf *line) {
    enum { AT_ONCE = 1 << 16 };
    static char bytes[AT_ONCE];
    const char *end = NULL;
    size_t searched = 0, whole;
    for (ssize_t n = 1;;) {
        if (l->ahead.n > searched) end = memchr(l->ahead.data + searched, '\n', l->ahead.n - searched);
        searched = l->ahead.n;
        whole = end ? (size_t)(end - l->ahead.data) : l->ahead.n;
        if (whole > FD_STREAM_MOST) return -1;
        if (signals_caught()) return -1; // reads that find bytes at once are never interrupted
        if (end || n == 0) break;
        n = fd_read(STDIN_FILENO, bytes, sizeof bytes);
        if (n < 0) return -1;
        buf_append(&l->ahead, bytes, (size_t)n);
    }
    whole += end != NULL;
    if (whole == 0) return 0;
    buf_append(line, l->ahead.data, whole);
    buf_drop(&l->ahead, whole);
    return 1;
}

// Reads one line without the editor. SIGINT ends the wait, as in edit_line.
static Status stream_line(Lines *l, Buf *line, bool *end) {
    signals_catch(); // before the prompt is shown, since the user may press Ctrl-C at once
    if (l->terminal) {
        bool color = l->setup.color && !l->question;
        fprintf(stderr, "%s%s%s", color ? "\033[1;32m" : "", prompt_text(l), color ? "\033[0m" : "");
        fflush(stderr);
    }
    line->n = 0;
    int found = signals_caught() ? -1 : next_line(l, line);
    int error = errno;
    *end = found <= 0;
    l->stopped = *end ? signals_caught() : 0;
    l->stopped_bare = !l->goes_on;
    if (*end && l->terminal) fputc('\n', stderr);
    l->closed = *end && !l->terminal; // on a terminal Ctrl-D ends only the message
    if (found >= 0 || l->stopped) return OK;
    return l->ahead.n > FD_STREAM_MOST ? too_long("line")
                                       : status_error(QUILL_IO, "stdin: cannot read: %s", strerror(error));
}

// ---- messages -------------------------------------------------------------------------------------------------------

typedef enum { WHOLE, CONTINUED, IN_BLOCK } Shape;

#define QUOTES "\"\"\""

static Shape shape_of(const Buf *typed) {
    bool block = str_has_prefix(str_of_buf(typed), QUOTES);
    if (block) return typed->n >= 6 && ends_with(typed, QUOTES) ? WHOLE : IN_BLOCK;
    return ends_with(typed, "\\") ? CONTINUED : WHOLE;
}

// The text of a block without its quotes and the line ends beside them. Ctrl-D may have ended it before the closing
// quotes.
static Str unwrapped(const Buf *typed) {
    Str text = {typed->data, typed->n};
    bool closed = shape_of(typed) == WHOLE;
    text = (Str){text.data + 3, text.n - (closed ? 6 : 3)};
    if (text.n && text.data[0] == '\n') text = (Str){text.data + 1, text.n - 1};
    if (text.n && text.data[text.n - 1] == '\n') {
        text.n--;
        if (text.n && text.data[text.n - 1] == '\r') text.n--;
    }
    return text;
}

// Removes the line end: \n, or \r\n after the quotes of a block. Other lines keep their \r.
static void remove_end(const Lines *l, const Buf *typed, Buf *line) {
    if (line->n && line->data[line->n - 1] == '\n') line->n--;
    Str text = str_of_buf(line), first = l->goes_on ? str_of_buf(typed) : text;
    if (str_has_prefix(first, QUOTES) && str_has_suffix(text, QUOTES "\r")) line->n--;
}

// Reads lines until the message is complete. Ctrl-D in the middle of a message ends it there.
static Status typed_message(Lines *l, Buf *typed, bool *end) {
    Buf line = {0};
    Status st = OK;
    l->goes_on = false;
    typed->n = 0;
    buf_append(typed, "", 0);
    do {
        if (l->el) edit_line(l, &line, end);
        else st = stream_line(l, &line, end);
        bool cut = *end && !l->stopped && l->goes_on; // Ctrl-D, or the end of a stream
        if (cut && !(l->closed && l->terminal)) {
            *end = false;
            break;
        }
        if (*end || st.code) break;
        remove_end(l, typed, &line);
        if (l->goes_on) buf_str(typed, "\n");
        buf_append(typed, line.data, line.n);
        Shape shape = shape_of(typed);
        l->goes_on = shape == IN_BLOCK || (l->terminal && shape == CONTINUED);
        if (l->goes_on && shape == CONTINUED) typed->data[--typed->n] = 0; // removes the backslash
        if (typed->n > FD_STREAM_MOST) st = too_long("message");
    } while (l->goes_on && !st.code);
    buf_free(&line);
    return st;
}

static void keep(Lines *l, const Buf *typed) {
    if (!l->el || typed->n == 0 || typed->data[0] == ' ') return; // a leading space: not in the history, as in shells
    HistEventW event;
    Buf before = {0};
    if (history_w(l->past, &event, H_FIRST) == 0) narrow(event.str, wcslen(event.str), &before);
    bool again = before.n == typed->n && memcmp(before.data, typed->data, typed->n) == 0;
    buf_free(&before);
    if (again) return;
    remember(l, str_of_buf(typed));
    if (!l->setup.no_history) recall_add(str_of_buf(typed));
}

Status lines_read(Lines *l, Buf *message, bool *end) {
    bool warned = false;
    Buf typed = {0};
    Status st;
    *end = l->ended != 0;
    if (*end) return (Status){.code = 128 + l->ended};
    for (;;) {
        st = typed_message(l, &typed, end);
        bool interrupted = *end && l->stopped == SIGINT && l->terminal;
        if (!interrupted || (warned && l->stopped_bare)) break;
        warned = l->stopped_bare;
        if (warned) fputs("(press Ctrl-C again or Ctrl-D to leave)\n", stderr);
    }
    if (*end) {
        if (!st.code && l->stopped) st = (Status){.code = 128 + l->stopped};
    } else {
        keep(l, &typed);
        Str whole = {typed.data, typed.n}, text = whole;
        l->quoted = str_has_prefix(whole, QUOTES);
        if (l->quoted) text = unwrapped(&typed);
        message->n = 0;
        buf_append(message, text.data, text.n);
    }
    buf_free(&typed);
    return st;
}

bool lines_ask(Lines *l, const char *question) {
    Buf line = {0};
    bool end = false;
    l->goes_on = false;
    l->question = question;
    if (l->el) edit_line(l, &line, &end);
    else if (stream_line(l, &line, &end).code) end = true;
    l->question = NULL;
    if (end && l->stopped && l->stopped != SIGINT) l->ended = l->stopped;
    bool yes = !end && str_is_yes(str_of_buf(&line));
    buf_free(&line);
    return yes;
}

Lines *lines_open(const LinesSetup *setup) {
    Lines *l = mem_alloc(sizeof *l);
    *l = (Lines){.setup = *setup, .terminal = isatty(STDIN_FILENO)};
    if (l->terminal && can_edit()) open_editor(l);
    return l;
}

void lines_close(Lines *l) {
    if (!l) return;
    // Without this, el_end would set the terminal's modes, and stop a job in the background. They are restored already.
    if (l->el) el_set(l->el, EL_EDITMODE, 0), el_end(l->el);
    if (l->past) history_wend(l->past);
    if (l->out) fclose(l->out);
    buf_free(&l->keys);
    buf_free(&l->ahead);
    free(l);
}
