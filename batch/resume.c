// batch/resume.c: see batch/resume.h.
#define _GNU_SOURCE
#include "batch/resume.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/guard.h"
#include "base/jsonio.h"

// Appends the key of a job: its id, or without one its line number. Appends nothing if it has neither.
static void key_of(const json_t *id, int64_t line, Buf *out) {
    char *text = json_is_string(id) || json_is_integer(id) ? json_dumps(id, JSON_ENCODE_ANY) : NULL; // escapes NUL
    if (text) buf_printf(out, "id %s", text);
    else if (line > 0) buf_printf(out, "line %lld", (long long)line);
    free(text);
}

static bool is_whole(const json_t *answer) {
    const char *finish = json_string_value(json_object_get(answer, "finish_reason"));
    return finish && strcmp(finish, "interrupt") != 0;
}

static bool all_whole(const json_t *choices) {
    for (size_t i = 0; i < json_array_size(choices); i++)
        if (!is_whole(json_array_get(choices, i))) return false;
    return json_array_size(choices) > 0;
}

// Whether a line of the output has a complete answer. Appends the key of its job.
static bool answer_key(const json_t *line, Buf *key) {
    const json_t *response = json_object_get(line, "response");
    if (response) { // OpenAI's format; a job that was cancelled has no response there
        const json_t *body = json_object_get(response, "body");
        const json_t *number = json_object_get(json_object_get(body, "quill"), "line");
        if (!all_whole(json_object_get(body, "choices"))) return false;
        key_of(json_object_get(line, "custom_id"), json_integer_value(number), key);
    } else {
        if (!is_whole(line) && !all_whole(json_object_get(line, "choices"))) return false;
        key_of(json_object_get(line, "id"), json_integer_value(json_object_get(line, "line")), key);
    }
    return key->n > 0;
}

static void add(Resume *r, const char *key, int change) {
    json_int_t n = json_integer_value(json_object_get(r->answered, key));
    jsonio_put(r->answered, key, json_integer(n + change));
}

// Whether the line has what batch/replies.c writes, so that the file is an output of an earlier run.
static bool is_reply(const json_t *line) {
    return (json_object_get(line, "text") && json_object_get(line, "finish_reason")) ||
           json_object_get(line, "choices") || json_object_get(line, "error") || json_object_get(line, "response");
}

// Nothing but white space and NUL bytes, which a file system may leave at the end of a file after a crash.
static bool is_blank(Str line) {
    size_t n = 0;
    while (n < line.n && (!line.data[n] || isspace((unsigned char)line.data[n]))) n++;
    return n == line.n;
}

// Counts the answers in the output. *end: the length of the output without an incomplete last line. False: line *number
// is not one of an output, so that nothing may be appended or removed.
static bool read_answers(Resume *r, Str text, size_t *end, long long *number) {
    size_t begin = 0;
    for (*number = 1; begin < text.n; ++*number) {
        const char *stop = memchr(text.data + begin, '\n', text.n - begin);
        Str bytes = {text.data + begin, stop ? (size_t)(stop - text.data) - begin : text.n - begin};
        json_t *line = jsonio_read(bytes, JSON_ALLOW_NUL, NULL);
        Buf key = {0};
        bool cut = !line && !stop && bytes.data[0] == '{', ours = cut || is_reply(line) || is_blank(bytes);
        if (line && answer_key(line, &key)) {
            add(r, key.data, 1);
            r->n++;
        }
        json_decref(line);
        buf_free(&key);
        if (!ours) return false;
        if (cut) break;
        begin += bytes.n + (stop != NULL);
    }
    *end = begin;
    return true;
}

static Status io_error(const char *path, const char *what) {
    return status_error(QUILL_IO, "--resume %.500s: cannot %s: %s", path, what, strerror(errno));
}

// Truncates the file from n to `end` bytes, ends its last line if that is open, and redirects stdout to it.
static Status append_to(const char *path, int fd, size_t n, size_t end, bool open_line) {
    if (end < n && ftruncate(fd, (off_t)end) != 0) return io_error(path, "remove the line that was cut");
    if (open_line) TRY(fd_write_all(fd, "\n", 1));
    if (dup2(fd, STDOUT_FILENO) < 0) return io_error(path, "write there");
    return OK;
}

Status resume_open(const char *path, Resume *out) {
    FileMap map = {0}; // an output may be larger than memory
    *out = (Resume){.answered = json_object()};
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) return io_error(path, "open");
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) { // reading a pipe would wait for its own end
        close(fd);
        return status_error(QUILL_USAGE, "--resume %.500s: a regular file expected, found something else", path);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) { // stdout keeps the lock until the process ends
        close(fd);
        return status_error(
            QUILL_IO, "--resume %.500s: a file that no other quill is writing expected; wait for it to end", path);
    }
    Status st = file_map(path, &map);
    Str text = {(const char *)map.data, map.n};
    size_t end = 0;
    long long number = 0;
    if (!st.code && !read_answers(out, text, &end, &number))
        st = status_error(QUILL_USAGE,
                          "--resume %.500s: line %lld: an answer of quill batch expected, found something else; the "
                          "file was not changed",
                          path, number);
    if (!st.code) st = guard_lost(); // bytes that could not be read are zeros
    bool open_line = end > 0 && text.data[end - 1] != '\n';
    file_unmap(&map);
    if (!st.code) st = append_to(path, fd, text.n, end, open_line);
    close(fd);
    return st;
}

bool resume_skips(Resume *r, Str line, int64_t number) {
    if (!r->answered) return false;
    json_t *job = jsonio_read(line, JSON_ALLOW_NUL, NULL);
    Buf key = {0};
    const json_t *custom = json_object_get(job, "custom_id");
    if (job && !json_object_get(job, "cancel")) key_of(custom ? custom : json_object_get(job, "id"), number, &key);
    bool skips = key.n > 0 && json_integer_value(json_object_get(r->answered, key.data)) > 0;
    if (skips) add(r, key.data, -1);
    json_decref(job);
    buf_free(&key);
    return skips;
}

void resume_close(Resume *r) {
    json_decref(r->answered);
    *r = (Resume){0};
}
