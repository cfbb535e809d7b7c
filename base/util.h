// base/util.h: what every file needs: errors, checked sizes, memory, growable bytes, the clock, file mapping, UTF-8.
//
// Three kinds of failure, three treatments. Bad input: return a Status, which travels to main and becomes one line on
// stderr and an exit code. An expected shortage (no free KV block): return false with nothing changed. A bug: assert.
#ifndef QUILL_UTIL_H
#define QUILL_UTIL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// ---- errors ---------------------------------------------------------------------------------------------------------

// The codes are the process's exit codes.
enum {
    QUILL_OK = 0,
    QUILL_INTERNAL = 1, // a bug or something the system refused
    QUILL_USAGE = 2,    // flags and arguments
    QUILL_MODEL = 3,    // model, tokenizer, template or device unusable
    QUILL_MEMORY = 4,   // out of memory
    QUILL_CONTEXT = 5,  // prompt longer than the context
    QUILL_IO = 6,       // reading or writing failed
};

typedef struct {
    int code;           // QUILL_OK or the exit code
    char message[1020]; // one line: what, where, expected, found, what to do; no newline at its end
} Status;

#define OK ((Status){0})
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        Status try_status_ = (call);                                                                                   \
        if (try_status_.code) return try_status_;                                                                      \
    } while (0)

Status status_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

// ---- memory ---------------------------------------------------------------------------------------------------------

// For sizes that are small or already bounded: never return NULL, print one line and exit with QUILL_MEMORY instead.
void *mem_alloc(size_t n);                            // zeroed; free with free()
void *mem_resize(void *p, size_t n);                  // like realloc
char *mem_copy(const char *bytes, size_t n);          // n bytes and a NUL
void mem_refused(size_t n) __attribute__((noreturn)); // what they do when the system refuses n bytes

// For sizes that follow the model or the user's flags: NULL when the system refuses. Page-aligned, zeroed, committed
// when first touched; `huge` asks for huge pages. What can hold one begins where one may.
void *pages_alloc(size_t n, bool huge);
void pages_free(void *p, size_t n);
// What lies at `with` lies at `at` from here on, read-only, in place of what was mapped there: n bytes, whole pages.
// False: nothing has changed.
bool pages_replace(const void *at, void *with, size_t n);
size_t pages_huge(const void *at, size_t n); // of these bytes, those that lie in huge pages; 0: unknown
#define HUGE_PAGE ((size_t)2 << 20)          // where pages are of 4 KiB, as on x86-64
size_t memory_available(void); // bytes that can be used now without swapping, cgroup limits counted; SIZE_MAX unknown
size_t memory_peak(void);      // bytes, the process's peak resident set

static inline bool size_mul(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool size_add(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
static inline int int_min(int a, int b) { return a < b ? a : b; }
static inline int int_max(int a, int b) { return a > b ? a : b; }
static inline size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// ---- bytes ----------------------------------------------------------------------------------------------------------

// A view of bytes owned by somebody else; not NUL-terminated.
typedef struct {
    const char *data;
    size_t n;
} Str;

static inline Str str_of(const char *c_string) { return (Str){c_string, __builtin_strlen(c_string)}; }
bool str_eq(Str a, Str b);
bool str_is(Str a, const char *c_string);
bool str_has_prefix(Str a, const char *c_string);

// Growable bytes, always NUL-terminated once something was appended. Start from (Buf){0}; the owner calls buf_free.
typedef struct {
    char *data;
    size_t n, cap;
} Buf;

void buf_append(Buf *b, const void *bytes, size_t n);
void buf_str(Buf *b, const char *c_string);
void buf_printf(Buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_free(Buf *b);
// Appends lines to an error, whose message has one of its own; the last newline is left out.
void status_append(Status *st, const Buf *lines);

// The edit distance of two words, two letters swapped counting once; did-you-mean uses it.
int edit_distance(const char *a, const char *b);

// The did-you-mean: the nearest of the words it is shown. Start from (Nearest){.word = what was written}.
typedef struct {
    const char *word;
    char best[32];
    int distance; // of best
} Nearest;

void nearest_try(Nearest *n, const char *candidate);
const char *nearest_found(const Nearest *n); // NULL: none is near enough to have been meant

// ---- UTF-8 ----------------------------------------------------------------------------------------------------------

// Length of the character that starts at s (1..4), 0 if the n bytes there cannot start one, -1 if they are the
// beginning of one that is cut off.
int utf8_next(const char *s, size_t n);
// The longest prefix of s that does not end inside a character; invalid bytes count as whole.
size_t utf8_whole(const char *s, size_t n);
// The text without the byte order mark (EF BB BF) that it may begin with.
Str utf8_without_mark(Str text);
// Appends s with every invalid byte replaced by U+FFFD.
void utf8_repair(Buf *out, const char *s, size_t n);
// Appends s as one readable line: \n \t \r \\ and \xNN for control and invalid bytes.
void utf8_escape(Buf *out, const char *s, size_t n);

// ---- clock, files ---------------------------------------------------------------------------------------------------

double clock_now(void); // seconds, monotonic

// A file mapped read-only. An empty file gives data == NULL, n == 0. Where it is cut while it is mapped, what is gone
// reads as zeros, and guard.h says so. What is not cached yet is read into huge pages
// where the file system has them.
typedef struct {
    const uint8_t *data;
    size_t n;
} FileMap;

Status file_map(const char *path, FileMap *out); // QUILL_IO: missing, a directory, unreadable
void file_unmap(FileMap *m);
// As read(2), for descriptors that block and for those that do not: waits until there is something, or the end. -1 and
// EINTR: a signal of signals.h has come meanwhile; others do not end the wait.
ssize_t fd_read(int fd, void *out, size_t n);
// The whole file or stream, appended; "-" is stdin. QUILL_IO; QUILL_CONTEXT: more bytes than an int can count; 128 and
// the signal's number, without a message: it waited when one came (signals.h).
Status file_read(const char *path, Buf *out);
Status fd_read_all(int fd, const char *name, Buf *out);
// Writes all of it, and waits where there is no room, also of a descriptor that does not block. QUILL_IO, errno kept;
// 128 and the signal's number, without a message: one has come, and the reader has taken nothing for two seconds.
Status fd_write_all(int fd, const void *bytes, size_t n);
// The number behind `key` at the beginning of a line (NULL: of the file), as /proc and /sys have it; SIZE_MAX: none.
size_t file_number(const char *path, const char *key);

// Where quill keeps what it measured: $XDG_CACHE_HOME/quill or ~/.cache/quill, made if missing; false if there is none.
bool cache_dir(char *out, size_t cap);
// The same for what people would miss: $XDG_STATE_HOME/quill or ~/.local/state/quill, for its owner alone.
bool state_dir(char *out, size_t cap);

#endif
