// base/util.c: see base/util.h.
#define _GNU_SOURCE
#include "base/util.h"

#include "base/cgroup.h"
#include "base/guard.h"
#include "base/hash.h"
#include "base/signals.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// ---- errors ---------------------------------------------------------------------------------------------------------

Status status_error(int code, const char *format, ...) {
    Status st = {.code = code};
    va_list args;
    va_start(args, format);
    vsnprintf(st.message, sizeof st.message, format, args);
    va_end(args);
    for (char *c = st.message; *c; c++) { // one line that no terminal obeys, whatever the input's names carry
        bool c1 = (unsigned char)c[0] == 0xc2 && (unsigned char)c[1] >= 0x80 && (unsigned char)c[1] < 0xa0;
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
        if (c1) c[0] = c[1] = '?';
    }
    return st;
}

// ---- memory ---------------------------------------------------------------------------------------------------------

void mem_refused(size_t n) {
    fprintf(stderr, "quill: out of memory: %zu bytes more were refused by the system\n", n);
    exit(QUILL_MEMORY);
}

void *mem_alloc(size_t n) {
    void *p = calloc(1, n ? n : 1);
    if (!p) mem_refused(n);
    return p;
}

void *mem_resize(void *p, size_t n) {
    void *q = realloc(p, n ? n : 1);
    if (!q) mem_refused(n);
    return q;
}

char *mem_copy(const char *bytes, size_t n) {
    char *p = mem_alloc(n + 1);
    if (n) memcpy(p, bytes, n);
    return p;
}

// Addresses of n bytes, beginning with a huge page where they can hold one: Linux before 6.7 begins anywhere, and later
// ones do for files of some file systems. NULL: refused.
static uint8_t *map_anonymous(size_t n, int protection) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), more = n >= HUGE_PAGE ? HUGE_PAGE : 0, all;
    if (!size_add(n ? n : 1, more + page - 1, &all)) return NULL;
    all = all / page * page;
    uint8_t *p = mmap(NULL, all, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    size_t front = more ? round_up((uintptr_t)p, more) - (uintptr_t)p : 0;
    if (front) munmap(p, front);
    if (front < more) munmap(p + all - (more - front), more - front);
    return p + front;
}

void *pages_alloc(size_t n, bool huge) {
    void *p = map_anonymous(n, PROT_READ | PROT_WRITE);
    if (p && huge) madvise(p, n, MADV_HUGEPAGE);
    return p;
}

void pages_free(void *p, size_t n) {
    if (p) munmap(p, n ? n : 1);
}

bool pages_replace(const void *at, void *with, size_t n) {
    unsigned char there;
    if (mprotect(with, n, PROT_READ) == 0 &&
        mremap(with, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)at) != MAP_FAILED)
        return true;
    if (mincore((void *)at, 1, &there) != 0) mem_refused(n); // it was taken away, and nothing could take its place
    return false;
}

size_t file_number(const char *path, const char *key) {
    FILE *f = fopen(path, "r");
    if (!f) return SIZE_MAX;
    char line[256];
    size_t value = SIZE_MAX;
    while (fgets(line, sizeof line, f)) {
        if (key && !str_has_prefix(str_of(line), key)) continue;
        unsigned long long v;
        if (sscanf(line + (key ? strlen(key) : 0), " %llu", &v) == 1) value = (size_t)v;
        break;
    }
    fclose(f);
    return value;
}

// Counts whole mappings that overlap the range, as smaps has them; pages_replace makes a mapping of its own.
size_t pages_huge(const void *at, size_t n) {
    static const char *const fields[] = {"AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:"};
    FILE *f = fopen("/proc/self/smaps", "r");
    if (!f) return 0;
    uintptr_t first = (uintptr_t)at, last = first + n;
    char line[512];
    size_t huge = 0;
    for (bool within = false; fgets(line, sizeof line, f);) {
        unsigned long from, to, kib;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) within = from < last && to > first;
        for (size_t i = 0; within && i < ARRAY_LEN(fields); i++)
            if (str_has_prefix(str_of(line), fields[i]) && sscanf(line + strlen(fields[i]), "%lu", &kib) == 1)
                huge += (size_t)kib * 1024;
    }
    fclose(f);
    return huge < n ? huge : n;
}

size_t memory_available(void) {
    size_t system_kib = file_number("/proc/meminfo", "MemAvailable:");
    size_t available = system_kib == SIZE_MAX ? SIZE_MAX : system_kib * 1024;
    size_t left = cgroup_memory(CGROUP_PROC, CGROUP_MOUNT);
    return left < available ? left : available;
}

size_t memory_peak(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (size_t)u.ru_maxrss * 1024;
}

// ---- bytes ----------------------------------------------------------------------------------------------------------

bool str_eq(Str a, Str b) { return a.n == b.n && (a.n == 0 || memcmp(a.data, b.data, a.n) == 0); }
bool str_is(Str a, const char *c_string) { return str_eq(a, str_of(c_string)); }
bool str_has_prefix(Str a, const char *c_string) {
    size_t n = strlen(c_string);
    return a.n >= n && (n == 0 || memcmp(a.data, c_string, n) == 0);
}

static void buf_room(Buf *b, size_t n) {
    size_t need;
    if (!size_add(b->n, n, &need) || !size_add(need, 1, &need)) mem_refused(n);
    if (need <= b->cap) return;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need) cap = cap > SIZE_MAX / 2 ? need : cap * 2;
    b->data = mem_resize(b->data, cap);
    b->cap = cap;
}

void buf_append(Buf *b, const void *bytes, size_t n) {
    buf_room(b, n);
    if (n) memcpy(b->data + b->n, bytes, n);
    b->n += n;
    b->data[b->n] = 0;
}

void buf_str(Buf *b, const char *c_string) { buf_append(b, c_string, strlen(c_string)); }

void buf_printf(Buf *b, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    assert(n >= 0);
    buf_room(b, (size_t)n);
    vsnprintf(b->data + b->n, (size_t)n + 1, format, again);
    va_end(again);
    b->n += (size_t)n;
}

void buf_free(Buf *b) {
    free(b->data);
    *b = (Buf){0};
}

void status_append(Status *st, const Buf *lines) {
    size_t at = strlen(st->message);
    snprintf(st->message + at, sizeof st->message - at, "\n%.*s", (int)lines->n - 1, lines->data);
}

int edit_distance(const char *a, const char *b) {
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
    int distance = edit_distance(n->word, candidate);
    if (n->best[0] && distance >= n->distance) return;
    n->distance = distance;
    snprintf(n->best, sizeof n->best, "%s", candidate);
}

const char *nearest_found(const Nearest *n) {
    bool near = n->best[0] && n->distance <= int_max(1, (int)strlen(n->word) / 3);
    return near ? n->best : NULL;
}

// ---- UTF-8 ----------------------------------------------------------------------------------------------------------

int utf8_next(const char *s, size_t n) {
    const unsigned char *u = (const unsigned char *)s;
    if (n == 0) return 0;
    if (u[0] < 0x80) return 1;
    int len = u[0] >= 0xc2 && u[0] < 0xe0 ? 2 : u[0] >= 0xe0 && u[0] < 0xf0 ? 3 : u[0] >= 0xf0 && u[0] < 0xf5 ? 4 : 0;
    if (len == 0) return 0;
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n) return -1;
        unsigned char low = 0x80, high = 0xbf; // the second byte's range rules out overlong forms and surrogates
        if (i == 1 && u[0] == 0xe0) low = 0xa0;
        if (i == 1 && u[0] == 0xed) high = 0x9f;
        if (i == 1 && u[0] == 0xf0) low = 0x90;
        if (i == 1 && u[0] == 0xf4) high = 0x8f;
        if (u[i] < low || u[i] > high) return 0;
    }
    return len;
}

size_t utf8_whole(const char *s, size_t n) {
    // Only the last three bytes can begin a character that is cut off.
    for (size_t back = 1; back <= 3 && back <= n; back++)
        if (utf8_next(s + n - back, back) == -1) return n - back;
    return n;
}

Str utf8_without_mark(Str text) {
    size_t n = str_has_prefix(text, "\xef\xbb\xbf") ? 3 : 0;
    return (Str){text.data + n, text.n - n};
}

void utf8_repair(Buf *out, const char *s, size_t n) {
    buf_room(out, n);
    for (size_t i = 0; i < n;) {
        int len = utf8_next(s + i, n - i);
        if (len > 0) {
            buf_append(out, s + i, (size_t)len);
            i += (size_t)len;
        } else {
            buf_append(out, "\xef\xbf\xbd", 3);
            i++;
        }
    }
    if (n == 0) buf_append(out, "", 0);
}

void utf8_escape(Buf *out, const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        int len = utf8_next(s + i, n - i);
        unsigned char c = (unsigned char)s[i];
        if (c == '\n') buf_str(out, "\\n"), i++;
        else if (c == '\t') buf_str(out, "\\t"), i++;
        else if (c == '\r') buf_str(out, "\\r"), i++;
        else if (c == '\\') buf_str(out, "\\\\"), i++;
        else if (len <= 0 || c < 0x20 || c == 0x7f) buf_printf(out, "\\x%02x", c), i++;
        else if (c == 0xc2 && (unsigned char)s[i + 1] < 0xa0) // the C1 controls, which terminals obey
            buf_printf(out, "\\xc2\\x%02x", (unsigned char)s[i + 1]), i += 2;
        else buf_append(out, s + i, (size_t)len), i += (size_t)len;
    }
    if (n == 0) buf_append(out, "", 0);
}

// ---- hashing --------------------------------------------------------------------------------------------------------

HashKey hash_key(void) {
    HashKey k;
    if (getrandom(&k, sizeof k, GRND_NONBLOCK) != (ssize_t)sizeof k) { // too early after boot: the next best
        uint64_t now = (uint64_t)(clock_now() * 1e9);
        k = (HashKey){now * 0x9e3779b97f4a7c15u, (uint64_t)(uintptr_t)&k ^ now << 32};
    }
    k.factor |= 1;
    return k;
}

// ---- clock, files ---------------------------------------------------------------------------------------------------

double clock_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

Status file_map(const char *path, FileMap *out) {
    *out = (FileMap){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a FIFO without a writer must not hang
    if (fd < 0) return status_error(QUILL_IO, "%s: cannot open: %s", path, strerror(errno));
    struct stat info;
    if (fstat(fd, &info) != 0) {
        int e = errno;
        close(fd);
        return status_error(QUILL_IO, "%s: cannot stat: %s", path, strerror(e));
    }
    if (!S_ISREG(info.st_mode)) {
        close(fd);
        return status_error(QUILL_IO, "%s: expected a regular file, found %s", path,
                            S_ISDIR(info.st_mode) ? "a directory" : "a device, pipe or socket");
    }
    if (info.st_size > 0) {
        size_t n = (size_t)info.st_size;
        uint8_t *p = map_anonymous(n, PROT_NONE);
        if (!p || mmap(p, n, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
            int e = errno;
            if (p) munmap(p, n);
            close(fd);
            return status_error(QUILL_IO, "%s: cannot map %lld bytes: %s", path, (long long)info.st_size, strerror(e));
        }
        madvise(p, n, MADV_HUGEPAGE);
        *out = (FileMap){p, n};
        guard_add(p, n, path);
    }
    close(fd);
    return OK;
}

void file_unmap(FileMap *m) {
    if (m->data) {
        guard_remove(m->data);
        munmap((void *)m->data, m->n);
    }
    *m = (FileMap){0};
}

// What a signal ends says nothing: its code is enough.
static Status stopped(void) {
    errno = EINTR;
    return (Status){.code = 128 + signals_caught()};
}

// Until the descriptor is ready for reading or writing, an error or a signal; one that blocks waits by itself.
static void wait_until(int fd, short ready) {
    struct pollfd p = {.fd = fd, .events = ready};
    poll(&p, 1, -1);
}

ssize_t fd_read(int fd, void *out, size_t n) {
    for (;;) {
        ssize_t got = read(fd, out, n);
        if (got >= 0 || (errno != EINTR && errno != EAGAIN)) return got;
        if (errno == EAGAIN) wait_until(fd, POLLIN);
        if (!signals_caught()) continue;
        errno = EINTR;
        return -1;
    }
}

Status fd_read_all(int fd, const char *name, Buf *out) {
    buf_append(out, "", 0);
    for (;;) {
        buf_room(out, 65536);
        ssize_t n = fd_read(fd, out->data + out->n, out->cap - out->n - 1);
        if (n < 0 && errno == EINTR) return stopped();
        if (n < 0) return status_error(QUILL_IO, "%s: cannot read: %s", name, strerror(errno));
        out->n += (size_t)n;
        out->data[out->n] = 0;
        if (n == 0) return OK;
        if (out->n > INT_MAX) // `yes | quill` is an error and not the end of the machine's memory
            return status_error(QUILL_CONTEXT, "%s: a text of at most %d bytes expected, found more", name, INT_MAX);
    }
}

Status file_read(const char *path, Buf *out) {
    if (strcmp(path, "-") == 0) return fd_read_all(STDIN_FILENO, "stdin", out);
    int fd = open(path, O_RDONLY | O_CLOEXEC); // waits for a FIFO's writer
    if (fd < 0 && errno == EINTR && signals_caught()) return stopped();
    if (fd < 0) return status_error(QUILL_IO, "%s: cannot open: %s", path, strerror(errno));
    Status st = fd_read_all(fd, path, out);
    close(fd);
    return st;
}

enum { PATIENCE = 2000 }; // ms that a reader may take nothing after a signal

// Whether there is room for PIPE_BUF bytes.
static bool soon_room(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, PATIENCE) > 0;
}

Status fd_write_all(int fd, const void *bytes, size_t n) {
    const char *p = bytes;
    while (n > 0) {
        bool ending = signals_caught() != 0;
        if (ending && !soon_room(fd)) return stopped();
        ssize_t w = write(fd, p, ending && n > PIPE_BUF ? PIPE_BUF : n);
        if (w < 0 && errno == EAGAIN) wait_until(fd, POLLOUT);
        if (w < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (w < 0) {
            int e = errno;
            Status st = status_error(QUILL_IO, "cannot write %zu bytes: %s", n, strerror(e));
            errno = e;
            return st;
        }
        p += w;
        n -= (size_t)w;
    }
    return OK;
}

// Makes every missing directory of the path.
static bool make_dirs(char *path, mode_t mode) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        bool made = mkdir(path, 0777) == 0 || errno == EEXIST;
        *slash = '/';
        if (!made) return false;
    }
    return mkdir(path, mode) == 0 || errno == EEXIST;
}

// $variable/quill or ~/fallback/quill, as the XDG base directories have it.
static bool own_dir(const char *variable, const char *fallback, mode_t mode, char *out, size_t cap) {
    const char *xdg = getenv(variable), *home = getenv("HOME");
    int n;
    if (xdg && xdg[0] == '/') n = snprintf(out, cap, "%s/quill", xdg);
    else if (home && home[0] == '/') n = snprintf(out, cap, "%s/%s/quill", home, fallback);
    else return false;
    return (size_t)n < cap && make_dirs(out, mode);
}

bool cache_dir(char *out, size_t cap) { return own_dir("XDG_CACHE_HOME", ".cache", 0777, out, cap); }
bool state_dir(char *out, size_t cap) { return own_dir("XDG_STATE_HOME", ".local/state", 0700, out, cap); }
