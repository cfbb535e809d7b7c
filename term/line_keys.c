// term/line_keys.c: see term/line_keys.h.
#include "term/line_keys.h"

#include <stddef.h>
#include <string.h>

#include "base/base.h"

bool line_keys_vi(EditLine *el) {
    const char *name = NULL;
    return el_get(el, EL_EDITOR, &name) == 0 && name && strcmp(name, "vi") == 0;
}

// The beginning and the end of the message's line that contains `at`.
static const wchar_t *line_start(const LineInfoW *all, const wchar_t *at) {
    while (at > all->buffer && at[-1] != '\n') at--;
    return at;
}
static const wchar_t *line_end(const LineInfoW *all, const wchar_t *at) {
    while (at < all->lastchar && *at != '\n') at++;
    return at;
}

// Up and Down: move to the line above or below in a message of several lines; on its first or last line, use the
// history.
static unsigned char go_up(EditLine *el, int key) {
    (void)key;
    const LineInfoW *all = el_wline(el);
    const wchar_t *start = line_start(all, all->cursor);
    if (start == all->buffer) {
        el_push(el, "\020"); // Ctrl-P
        return CC_NORM;
    }
    const wchar_t *above = line_start(all, start - 1);
    ptrdiff_t column = all->cursor - start, most = start - 1 - above;
    el_cursor(el, (int)(above + (column < most ? column : most) - all->cursor));
    return CC_CURSOR;
}

static unsigned char go_down(EditLine *el, int key) {
    (void)key;
    const LineInfoW *all = el_wline(el);
    const wchar_t *end = line_end(all, all->cursor);
    if (end == all->lastchar) {
        el_push(el, "\016"); // Ctrl-N
        return CC_NORM;
    }
    ptrdiff_t column = all->cursor - line_start(all, all->cursor), most = line_end(all, end + 1) - (end + 1);
    el_cursor(el, (int)(end + 1 + (column < most ? column : most) - all->cursor));
    return CC_CURSOR;
}

static unsigned char go_start(EditLine *el, int key) {
    (void)key;
    const LineInfoW *all = el_wline(el);
    el_cursor(el, (int)(line_start(all, all->cursor) - all->cursor));
    return CC_CURSOR;
}

static unsigned char go_end(EditLine *el, int key) {
    (void)key;
    const LineInfoW *all = el_wline(el);
    el_cursor(el, (int)(line_end(all, all->cursor) - all->cursor));
    return CC_CURSOR;
}

// Keys that no terminal sends. With them Ctrl-U and Ctrl-K are libedit's own kill of a region, so that Ctrl-Y gives the
// text back: libedit has no function that stores a text for it.
#define SET_MARK "\033[9001~"
#define KILL_REGION "\033[9002~"
#define GO_START "\033[9003~"
#define GO_END "\033[9004~"

static unsigned char kill_before(EditLine *el, int key) {
    (void)key;
    const LineInfoW *all = el_wline(el);
    int n = (int)(all->cursor - line_start(all, all->cursor));
    bool vi = line_keys_vi(el);
    if (vi) el_deletestr(el, n); // vi's keys have no mark
    else if (n > 0) el_push(el, SET_MARK GO_START KILL_REGION);
    return vi ? CC_REFRESH : CC_NORM;
}

static unsigned char kill_after(EditLine *el, int key) {
    (void)key;
    const LineInfoW *all = el_wline(el);
    int n = (int)(line_end(all, all->cursor) - all->cursor);
    bool vi = line_keys_vi(el);
    if (vi) el_cursor(el, n), el_deletestr(el, n);
    else if (n > 0) el_push(el, SET_MARK GO_END KILL_REGION);
    return vi ? CC_REFRESH : CC_NORM;
}

void line_keys_add(EditLine *el) {
    el_wset(el, EL_ADDFN, L"quill-up", L"the line above, or the history", go_up);
    el_wset(el, EL_ADDFN, L"quill-down", L"the line below, or the history", go_down);
    el_wset(el, EL_ADDFN, L"quill-line-start", L"the beginning of the line", go_start);
    el_wset(el, EL_ADDFN, L"quill-line-end", L"the end of the line", go_end);
    el_wset(el, EL_ADDFN, L"quill-kill-before", L"delete the line up to the cursor", kill_before);
    el_wset(el, EL_ADDFN, L"quill-kill-after", L"delete the line from the cursor on", kill_after);
}

void line_keys_bind_emacs(EditLine *el) {
    static const char *const keys[][2] = {
        {"^A", "quill-line-start"}, {"^E", "quill-line-end"},        {"\033[A", "quill-up"},
        {"\033OA", "quill-up"},     {"\033[B", "quill-down"},        {"\033OB", "quill-down"},
        {SET_MARK, "em-set-mark"},  {KILL_REGION, "em-kill-region"}, {GO_START, "quill-line-start"},
        {GO_END, "quill-line-end"},
    };
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) el_set(el, EL_BIND, keys[i][0], keys[i][1], NULL);
}
