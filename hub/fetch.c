// hub/fetch.c: see hub/fetch.h.
#define _GNU_SOURCE
#include "hub/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/note.h"
#include "base/signals.h"
#include "hub/digest.h"

// ---- the progress line ----------------------------------------------------------------------------------------------

void hub_meter_text(const HubMeter *m, Buf *out) {
    char done[24], all[24], rate[24];
    const char *name = file_base(m->file);
    uint64_t n = m->before + m->now;
    double left = m->rate > 0 && m->all > n ? (double)(m->all - n) / m->rate : 0;
    buf_printf(out, "%.30s %s of %s", name, units_bytes((double)n, done), units_bytes((double)m->all, all));
    if (m->rate <= 0) return;
    buf_printf(out, ", %s/s", units_bytes(m->rate, rate));
    int seconds = left < 1e6 ? (int)(left + 0.5) : 1000000;
    if (seconds >= 3600) buf_printf(out, ", %d h %02d min left", seconds / 3600, seconds / 60 % 60);
    else if (seconds > 0) buf_printf(out, ", %d:%02d left", seconds / 60, seconds % 60);
}

// Updates the rate, a moving average over the last seconds: the newest second has a weight of one third.
static void meter_tick(HubMeter *m) {
    double now = clock_now();
    uint64_t n = m->before + m->now;
    if (m->rated == 0 || n < m->rated_at) m->rated = now, m->rated_at = n;
    else if (now - m->rated >= 1) {
        double rate = (double)(n - m->rated_at) / (now - m->rated);
        m->rate = m->rate > 0 ? m->rate + (rate - m->rate) / 3 : rate;
        m->rated = now;
        m->rated_at = n;
    }
    if (!m->progress.on || now - m->shown < 0.2) return;
    m->shown = now;
    Buf text = {0};
    hub_meter_text(m, &text);
    progress_show(&m->progress, text.data, (double)n, (double)m->all);
    buf_free(&text);
}

// ---- a transfer -----------------------------------------------------------------------------------------------------

typedef struct {
    HubFetch *f;
    const char *what; // "user/repo:FILE"
    const char *path; // path of the .incomplete file
    char etag[256];
    uint64_t size; // size of the whole file
    int fd;
    uint64_t have; // bytes in the file
    bool checked;  // begin_answer was called for the current answer
    HubDigest digest;
} Transfer;

static Status disk_failure(const Transfer *t, const char *what) {
    int e = errno;
    const char *advice =
        e == ENOSPC || e == EDQUOT || e == EFBIG ? "; what came is kept: make room and run the same command again" : "";
    return status_error(QUILL_IO, "%s: %s: %s%s", t->path, what, strerror(e), advice);
}

// Empties the file and starts the hash again.
static Status restart(Transfer *t) {
    if (ftruncate(t->fd, 0) != 0 || lseek(t->fd, 0, SEEK_SET) != 0) return disk_failure(t, "cannot empty");
    t->have = 0;
    hub_digest_start(&t->digest, t->etag, t->size);
    return OK;
}

// Checks where the body of an answer begins: a server without ranges sends the whole file again.
static Status begin_answer(Transfer *t, const HubReply *reply) {
    uint64_t from = reply->status == 206 && reply->from >= 0 ? (uint64_t)reply->from : 0;
    t->checked = true;
    if (from == t->have) return OK;
    if (from == 0) return restart(t);
    return status_error(QUILL_IO, "%s: bytes from %" PRIu64 " on expected, from %" PRIu64 " on found", t->what, t->have,
                        from);
}

static Status write_body(void *arg, const HubReply *reply, const void *bytes, size_t n) {
    Transfer *t = arg;
    if (!t->checked) TRY(begin_answer(t, reply));
    if (n > t->size - t->have) { // never writes more than the announced size
        t->have = t->size + 1;
        return status_error(QUILL_IO, "%s: %" PRIu64 " bytes expected, more found", t->what, t->size);
    }
    Status st = fd_write_all(t->fd, bytes, n);
    if (st.code == QUILL_IO) {
        st = disk_failure(t, "cannot write");
        struct stat info; // a part may have been written, and the next run continues from it
        if (fstat(t->fd, &info) == 0) t->have = (uint64_t)info.st_size;
    }
    if (st.code) return st;
    hub_digest_add(&t->digest, bytes, n);
    t->have += n;
    t->f->meter.now = t->have;
    meter_tick(&t->f->meter);
    return OK;
}

static void tick(void *arg) { meter_tick(&((Transfer *)arg)->f->meter); }

// Reads and hashes the part that an earlier run has left.
static Status read_rest(Transfer *t) {
    struct stat info;
    hub_digest_start(&t->digest, t->etag, t->size);
    if (fstat(t->fd, &info) != 0) return disk_failure(t, "cannot stat");
    if ((uint64_t)info.st_size > t->size) return restart(t);
    uint8_t *bytes = mem_alloc(1 << 20);
    Status st = OK;
    while (!st.code && t->have < (uint64_t)info.st_size) {
        ssize_t n = fd_read(t->fd, bytes, 1 << 20);
        if (n <= 0) st = n < 0 && errno == EINTR ? fd_stopped() : disk_failure(t, "cannot read");
        else hub_digest_add(&t->digest, bytes, (size_t)n), t->have += (uint64_t)n;
        if (!st.code && signals_caught()) st = fd_stopped();
    }
    free(bytes);
    return st;
}

Status hub_fetch_check_room(const HubFetch *f, const char *what, uint64_t missing) {
    struct statvfs disk;
    char need[24], have[24];
    Buf blobs = {0};
    buf_printf(&blobs, "%s/blobs", f->folder);
    bool known = statvfs(blobs.data, &disk) == 0; // otherwise writing will report the error
    buf_free(&blobs);
    if (!known) return OK;
    double room = (double)disk.f_bavail * (double)disk.f_frsize;
    if ((double)missing <= room) return OK;
    return status_error(QUILL_IO,
                        "%s: %s more are needed on the disk of %s, %s are free; make room, or set HF_HUB_CACHE to a "
                        "directory on another disk",
                        what, units_bytes((double)missing, need), f->root, units_bytes(room, have));
}

// Fetches the missing bytes, and continues after interrupted connections. OK: the server has sent everything; the
// caller checks size and hash.
static Status transfer(Transfer *t, const char *url) {
    int failures = 0;
    while (t->have < t->size) {
        HubReply reply;
        uint64_t had = t->have;
        HubRequest q = {.url = url, .from = t->have, .take = write_body, .tick = tick, .arg = t};
        t->checked = false;
        t->f->meter.now = t->have;
        Status st = hub_http_do(t->f->http, &q, &reply);
        if (!st.code && reply.status == 416) { // the server's file ends before t->have, so t->have is not its beginning
            TRY(restart(t));
            st = status_error(QUILL_IO, "%s: 416: no range of the file is given", t->what);
            reply.is_transient = true;
        }
        if (!st.code) st = hub_http_judge(t->f->http, t->what, &reply);
        if (!st.code || t->have > t->size) return OK; // the caller checks the length
        if (t->have > had) failures = 0;
        TRY(hub_http_wait(t->f->http, t->what, st, &reply, &failures));
    }
    return OK;
}

// Whether size or hash are wrong; appends what was expected and what was found.
static bool is_wrong(Transfer *t, Buf *why) {
    char digits[65];
    if (t->have != t->size) {
        if (t->have > t->size) buf_printf(why, "%" PRIu64 " bytes expected, more found", t->size);
        else buf_printf(why, "%" PRIu64 " bytes expected, %" PRIu64 " found", t->size, t->have);
        return true;
    }
    hub_digest_end(&t->digest, digits);
    if (t->digest.kind == HUB_DIGEST_NONE || strcmp(digits, t->etag) == 0) return false;
    buf_printf(why, "%s %.12s... expected, %.12s... found",
               t->digest.kind == HUB_DIGEST_SHA256 ? "SHA-256" : "git's SHA-1", t->etag, digits);
    return true;
}

static Status fill(Transfer *t, const char *url) {
    TRY(read_rest(t));
    TRY(hub_fetch_check_room(t->f, t->what, t->size - t->have));
    for (int again = 0;; again++) {
        Buf why = {0};
        TRY(transfer(t, url));
        if (!is_wrong(t, &why)) return OK;
        Status st = restart(t);
        if (!st.code && again)
            st = status_error(QUILL_IO, "%s: %s, twice; removed: what the server sends is not what it announces",
                              t->what, why.data);
        progress_erase(&t->f->meter.progress);
        if (!st.code) note_print(t->f->http->quiet, "%s: %s; removed and fetched again", t->what, why.data);
        buf_free(&why);
        if (st.code && again) unlink(t->path);
        TRY(st);
    }
}

// ---- a file ---------------------------------------------------------------------------------------------------------

// Fetches a blob while holding its lock. Another process may have fetched it before the lock was taken.
static Status fetch_blob(HubFetch *f, const char *what, const char *url, const HubReply *head, const char *blob) {
    Buf path = {0};
    int lock = -1;
    Transfer t = {.f = f, .what = what, .size = (uint64_t)head->size, .fd = -1};
    snprintf(t.etag, sizeof t.etag, "%s", head->etag);
    buf_printf(&path, "%s.incomplete", blob);
    t.path = path.data;
    Status st = hub_cache_lock(f->root, f->repo, head->etag, f->http->quiet, &lock);
    if (!st.code && access(blob, F_OK) != 0) {
        t.fd = open(path.data, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        st = t.fd < 0 ? disk_failure(&t, "cannot create") : fill(&t, url);
        if (!st.code && fsync(t.fd) != 0) st = disk_failure(&t, "cannot sync");
        if (!st.code && rename(path.data, blob) != 0) st = disk_failure(&t, "cannot rename");
        if (t.fd >= 0) close(t.fd);
    }
    if (lock >= 0) close(lock);
    buf_free(&path);
    return st;
}

// Checks the size and the ETag, which becomes a file name.
static Status check_head(const char *what, const HubReply *head) {
    size_t n = strlen(head->etag);
    bool named = n > 0 && n < 200 && head->etag[0] != '.' &&
                 strspn(head->etag, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-") == n;
    if (named && head->size >= 0) return OK;
    return status_error(QUILL_IO,
                        "%s: an ETag of letters, digits, . _ - and a size expected in the server's answer, %s", what,
                        named    ? "the size is missing"
                        : n == 0 ? "the ETag is missing"
                                 : "others found");
}

static Status fetch_missing(HubFetch *f, const HubFile *file, const char *what) {
    HubReply head;
    Buf url = {0}, blob = {0};
    buf_printf(&url, "%s/%s/resolve/%s/", f->http->endpoint, f->repo, f->commit);
    hub_http_escape(file->path, &url);
    HubRequest q = {.url = url.data, .head = true};
    Status st = hub_http_get(f->http, what, &q, &head);
    if (!st.code) st = check_head(what, &head);
    if (!st.code) {
        buf_printf(&blob, "%s/blobs/%s", f->folder, head.etag);
        if (access(blob.data, F_OK) != 0) st = fetch_blob(f, what, url.data, &head, blob.data);
    }
    if (!st.code) st = hub_cache_link(f->folder, f->commit, file->path, head.etag);
    buf_free(&url);
    buf_free(&blob);
    return st;
}

Status hub_fetch_file(HubFetch *f, const HubFile *file) {
    Buf path = {0}, what = {0};
    buf_printf(&path, "%s/snapshots/%s/%s", f->folder, f->commit, file->path);
    buf_printf(&what, "%s:%s", f->repo, file->path);
    f->meter.file = file->path;
    f->meter.now = 0;
    Status st = access(path.data, F_OK) == 0 ? OK : fetch_missing(f, file, what.data);
    progress_erase(&f->meter.progress);
    if (!st.code) f->meter.before += file->size;
    f->meter.now = 0;
    buf_free(&path);
    buf_free(&what);
    return st;
}
