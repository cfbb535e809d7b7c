// kv/kvstore.c: see kv/kvstore.h.
#define _GNU_SOURCE
#include "kv/kvstore.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/tempfile.h"
#include "kv/kvchunk.h"
#include "kv/kvrows.h"

enum {
    NAME = 64,                          // hexadecimal digits of a block's name
    TEMP = NAME + 1 + TEMPFILE_LETTERS, // a temporary file's name: the block's, a dot, letters
};

struct KvStore {
    char *dir;
    size_t most_bytes;
    int block;
    KvHead head; // of every block's file
    ChainHash root;
    bool refused;      // writing has failed: the store only reads
    size_t look;       // the directory is listed again when saved_bytes is larger
    size_t file_bytes; // bytes of one block's file; 0: none was written
    KvStoreStats stats;
};

// ---- names ----------------------------------------------------------------------------------------------------------

// Iterates over the blocks of a sequence; starts before the first one.
typedef struct {
    ChainHash parent, name;
    int first; // slot
} BlockCursor;

static BlockCursor place_before(const KvStore *s) { return (BlockCursor){.name = s->root, .first = -s->block}; }

static void place_next(const KvStore *s, const Sequence *q, BlockCursor *p) {
    p->parent = p->name;
    p->first += s->block;
    p->name = chain_next(&p->parent, q->tokens + p->first, s->block);
}

// The path of the file with this name and ending; the caller frees it.
static char *path_of(const KvStore *s, const ChainHash *name, const char *ending) {
    Buf path = {0};
    buf_printf(&path, "%s/", s->dir);
    for (size_t i = 0; i < sizeof name->bytes; i++) buf_printf(&path, "%02x", name->bytes[i]);
    buf_str(&path, ending);
    return path.data;
}

static bool begins_with_name(const char *file) { return strspn(file, "0123456789abcdef") == NAME; }

const char *kvstore_ending(const char *file) {
    static const char *const endings[] = {KVSTORE_BLOCK, KVSTORE_CHUNK};
    for (size_t i = 0; begins_with_name(file) && i < ARRAY_LEN(endings); i++)
        if (strcmp(file + NAME, endings[i]) == 0) return endings[i];
    return NULL;
}

// Whether a file has the name of one that is being written.
static bool is_temp(const char *file) { return begins_with_name(file) && file[NAME] == '.' && strlen(file) == TEMP; }

// ---- reading --------------------------------------------------------------------------------------------------------

static Status another(const KvReader *r, const char *what) {
    return status_error(
        QUILL_MODEL,
        "%.300s: the block that the file's name says expected, one with other %s found: the file is damaged", r->name,
        what);
}

// Checks that the file holds this block of this sequence.
static Status check_place(const KvStore *s, KvReader *r, const Sequence *q, const BlockCursor *p) {
    KvLink link;
    const int *tokens;
    TRY(kvreader_head(r));
    TRY(kvreader_match(r, &s->head));
    if (r->s.head.n_tokens != s->head.n_tokens || r->s.head.n_slots != s->head.n_slots) return another(r, "slots");
    TRY(kvreader_link(r, &link));
    if (memcmp(link.parent, p->parent.bytes, sizeof link.parent) != 0 || link.first != (uint32_t)p->first)
        return another(r, "blocks before it");
    TRY(kvreader_tokens(r, INT32_MAX, &tokens));
    if (memcmp(tokens, q->tokens + p->first, (size_t)s->block * sizeof *tokens) != 0) return another(r, "tokens");
    return OK;
}

// Reads the recurrent states after slot `end`, if the file has them. *goes_on: the sequence can continue after the
// block; false: the model has recurrent layers and the file lacks their states.
static Status read_states(KvReader *r, KvCache *kv, const Sequence *q, int end, bool *goes_on) {
    const StatePool *states = &kv->states.pool;
    *goes_on = true;
    for (int layer = 0; layer < states->n_layers && *goes_on; layer++) {
        const float *values;
        size_t n = states->floats;
        TRY(kvreader_state(r, (uint32_t)layer, &values, &n));
        *goes_on = values != NULL;
        if (values) kvstates_store(&kv->states, kvcache_state(q, end), layer, values);
    }
    return OK;
}

static Status read_block(const KvStore *s, KvReader *r, KvCache *kv, const Sequence *q, const BlockCursor *p,
                         bool *goes_on) {
    TRY(check_place(s, r, q, p));
    while (kvreader_more(r)) {
        KvChunk c;
        const uint8_t *rows;
        TRY(kvreader_rows(r, &c, &rows));
        kvcache_store_rows(kv, q, (int)c.layer, p->first + (int)c.first, (int)c.n, rows);
    }
    TRY(read_states(r, kv, q, p->first + s->block, goes_on));
    return kvreader_end(r);
}

// Opens a block's file; -1: there is none, or *st says why it cannot be read.
static int open_block(const char *path, Status *st) {
    int fd;
    struct stat info;
    *st = file_open(path, O_NOFOLLOW, &fd, &info);
    if (fd < 0 && !info.st_mode && errno == ENOENT) *st = OK;
    if (info.st_mode && st->code) *st = status_error(QUILL_IO, "%.800s; remove it", st->message);
    return fd;
}

// A block counts as a little older than the one before it, so that of one sequence the last goes first.
// `used`: of clock_now(), which stands still while the machine sleeps.
static void mark_used(const char *path, double used, int nth) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t ago = (int64_t)(1e9 * (clock_now() - used)) + (int64_t)nth * 1000;
    int64_t ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - ago;
    struct timespec at = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    utimensat(AT_FDCWD, path, (const struct timespec[2]){at, at},
              AT_SYMLINK_NOFOLLOW); // fails for another user's file, whose time stays
}

// Loads one block and advances the sequence past it, unless the file lacks the states of recurrent layers. False: there
// is no file or no free block, or *st says what is wrong with the file.
static bool load_block(KvStore *s, KvCache *kv, Sequence *q, const BlockCursor *p, double now, Status *st) {
    char *path = path_of(s, &p->name, KVSTORE_BLOCK);
    int fd = open_block(path, st);
    bool good = fd >= 0 && kvcache_reserve_loaded(kv, q, p->first + s->block), goes_on = false;
    if (good) {
        KvReader r = {.name = path, .read = kvreader_from_fd, .arg = &fd};
        *st = read_block(s, &r, kv, q, p, &goes_on);
        good = !st->code;
        kvreader_free(&r);
        if (good) mark_used(path, now, p->first / s->block);
        if (st->code == QUILL_MODEL) unlink(path); // so that a good one is written in its place
    }
    if (fd >= 0) close(fd);
    free(path);
    if (good && goes_on) kvcache_advance(kv, q, p->first + s->block - q->n_cached);
    return good;
}

Status kvstore_load(KvStore *s, KvCache *kv, Sequence *q, int most) {
    assert(kv->n_copies == 0); // a pending copy could overwrite the loaded rows
    Status st = OK;
    double start = clock_now();
    int had = q->n_cached;
    if (!sequence_shares(q) || had % s->block || had + s->block >= q->n_tokens) return OK;
    BlockCursor p = place_before(s);
    while (p.first + s->block < had) place_next(s, q, &p);
    do place_next(s, q, &p);
    while (load_block(s, kv, q, &p, start, &st) && q->n_cached - had < most && p.first + 2 * s->block < q->n_tokens);
    kvcache_truncate(kv, q, q->n_tokens); // gives back slots reserved for a block that was not loaded
    kvcache_commit(kv, q, q->n_cached);
    s->stats.n_loaded += q->n_cached - had;
    s->stats.load_seconds += clock_now() - start;
    return st;
}

// ---- writing --------------------------------------------------------------------------------------------------------

typedef struct {
    const KvStore *s;
    const KvCache *kv;
    const Sequence *q;
    const BlockCursor *p;
} BlockToWrite;

// WriteFile
static Status write_block(void *arg, KvWriter *w) {
    const BlockToWrite *b = arg;
    const KvCache *kv = b->kv;
    int first = b->p->first, block = b->s->block;
    KvLink link = {.first = (uint32_t)first};
    memcpy(link.parent, b->p->parent.bytes, sizeof link.parent);
    TRY(kvwriter_head(w, &b->s->head));
    TRY(kvwriter_link(w, &link));
    TRY(kvwriter_tokens(w, b->q->tokens + first));
    TRY(kvchunk_write(w, kv, b->q, first, block, 0));
    int state = kv->states.pool.n_layers ? kv->states.of_block[b->q->blocks[first / block]] : -1;
    TRY(kvwriter_states(w, &kv->states, state));
    TRY(kvrows_intact(kv->pool));
    return kvwriter_end(w);
}

// Each writer uses its own temporary name, so that processes which write the same block only meet in rename().
static Status open_temp(const KvStore *s, const ChainHash *name, char **path, int *fd) {
    char *stem = path_of(s, name, ".");
    Status st = tempfile_create(stem, 0600, path, fd);
    if (st.code) st = status_error(st.code, "%.300s: %.600s", stem, st.message);
    free(stem);
    return st;
}

// Renames the file before closing it releases the lock. There is no fsync, which would take longer than everything
// else: after a power failure the checksums detect an incomplete file.
static Status publish_temp(const char *temp, int fd, const char *path, Status written) {
    Status st = written;
    if (st.code) st = status_error(st.code, "%.300s: %.600s", temp, written.message);
    else if (rename(temp, path) != 0)
        st = status_error(QUILL_IO, "%.300s: cannot rename to %.300s: %s", temp, path, strerror(errno));
    if (st.code) unlink(temp);
    close(fd);
    return st;
}

typedef Status WriteFile(void *arg, KvWriter *w);

// Writes a file through a temporary one. *n_bytes: its size.
static Status write_named(const KvStore *s, const ChainHash *name, const char *path, WriteFile *write, void *arg,
                          size_t *n_bytes) {
    char *temp;
    int fd;
    TRY(open_temp(s, name, &temp, &fd));
    KvWriter w = {.fd = fd};
    Status st = write(arg, &w);
    *n_bytes = (size_t)lseek(fd, 0, SEEK_CUR);
    kvwriter_free(&w);
    if (!st.code && *n_bytes > s->most_bytes)
        st = status_error(QUILL_IO, "%zu bytes at most expected (size=), %zu found; give the directory a larger size",
                          s->most_bytes, *n_bytes);
    st = publish_temp(temp, fd, path, st);
    free(temp);
    return st;
}

static Status save_block(KvStore *s, const KvCache *kv, const Sequence *q, const BlockCursor *p, const char *path) {
    BlockToWrite block = {s, kv, q, p};
    size_t size;
    TRY(write_named(s, &p->name, path, write_block, &block, &size));
    s->stats.n_saved += s->block;
    s->stats.saved_bytes += s->file_bytes = size;
    return OK;
}

// ---- keeping the directory within most_bytes ------------------------------------------------------------------------

typedef struct {
    char name[TEMP + 1];
    size_t size;
    struct timespec used;
} StoredBlock;

typedef struct {
    StoredBlock *entries;
    size_t n, cap, n_bytes;
} Listing;

static void list_file(Listing *l, int dir, const char *name) {
    struct stat info;
    bool temp = is_temp(name);
    if ((!temp && !kvstore_ending(name)) || fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode))
        return;
    if (temp && tempfile_remove_dead(dir, name)) return;
    l->n_bytes += (size_t)info.st_size;
    if (temp) return;
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 256;
        l->entries = mem_resize(l->entries, l->cap * sizeof *l->entries);
    }
    StoredBlock *e = &l->entries[l->n++];
    *e = (StoredBlock){.size = (size_t)info.st_size, .used = info.st_mtim};
    memcpy(e->name, name, strlen(name) + 1);
}

static int longest_unused_first(const void *a, const void *b) {
    const struct timespec *x = &((const StoredBlock *)a)->used, *y = &((const StoredBlock *)b)->used;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

// Lists the directory and removes the least recently used files if it is too large. Other processes may do so at the
// same time: a missing file counts as removed.
static void make_room(KvStore *s) {
    DIR *dir = opendir(s->dir);
    if (!dir) return;
    Listing l = {0};
    for (struct dirent *d; (d = readdir(dir));) list_file(&l, dirfd(dir), d->d_name);
    // Frees more room than is needed, since listing a large directory takes a while.
    size_t most = l.n_bytes > s->most_bytes ? s->most_bytes - s->most_bytes / 16 : s->most_bytes;
    if (l.n && l.n_bytes > most) qsort(l.entries, l.n, sizeof *l.entries, longest_unused_first);
    for (size_t i = 0; i < l.n && l.n_bytes > most; i++) {
        s->stats.n_removed += unlinkat(dirfd(dir), l.entries[i].name, 0) == 0;
        l.n_bytes -= l.entries[i].size;
    }
    // Other processes may write too: this one lists again when it has used half of the free room.
    s->look = s->stats.saved_bytes + (l.n_bytes < s->most_bytes ? (s->most_bytes - l.n_bytes) / 2 : 0);
    free(l.entries);
    closedir(dir);
}

Status kvstore_save_some(KvStore *s, const KvCache *kv, const Sequence *q, double began, int *first, int most) {
    Status st = OK;
    double start = clock_now();
    int64_t end = s->stats.n_saved + most;
    BlockCursor p = place_before(s);
    for (int i = 0, n = sequence_shares(q) ? q->n_cached / s->block : 0; i < n && s->stats.n_saved < end; i++) {
        place_next(s, q, &p);
        if (p.first < *first) continue;
        char *path = path_of(s, &p.name, KVSTORE_BLOCK);
        // A block that does not fit into the directory would be removed again.
        bool wanted = !s->refused && (size_t)(i + 1) * s->file_bytes <= s->most_bytes;
        if (wanted && access(path, F_OK) != 0) st = save_block(s, kv, q, &p, path);
        s->refused = s->refused || st.code;
        mark_used(path, began, i);
        free(path);
        *first = p.first + s->block;
    }
    if (s->stats.saved_bytes > s->look) make_room(s);
    s->stats.save_seconds += clock_now() - start;
    return st;
}

Status kvstore_save(KvStore *s, const KvCache *kv, const Sequence *q) {
    return kvstore_save_some(s, kv, q, clock_now(), &(int){0}, INT_MAX);
}

// ---- files of another class -----------------------------------------------------------------------------------------

const ChainHash *kvstore_root(const KvStore *s) { return &s->root; }

int kvstore_open_file(const KvStore *s, const ChainHash *name, const char *ending, char **path, Status *st) {
    *path = path_of(s, name, ending);
    int fd = open_block(*path, st);
    if (fd >= 0) mark_used(*path, clock_now(), 0);
    return fd;
}

Status kvstore_write_file(KvStore *s, const ChainHash *name, const char *ending, WriteFile *write, void *arg) {
    if (s->refused) return OK;
    size_t size = 0;
    char *path = path_of(s, name, ending);
    Status st = write_named(s, name, path, write, arg, &size);
    free(path);
    s->refused = st.code && size <= s->most_bytes; // a smaller one may fit
    if (st.code) return st;
    s->stats.saved_bytes += size;
    if (s->stats.saved_bytes > s->look) make_room(s);
    return OK;
}

// ---- open, close ----------------------------------------------------------------------------------------------------

static ChainHash root_of(KvHead head, const char *kernels) {
    Buf all = {0};
    uint8_t start[KV_START];
    head.n_tokens = head.n_slots = 0;
    kv_start(start);
    buf_append(&all, start, sizeof start);
    buf_append(&all, &head, KV_HEAD); // without the padding at the end of the struct
    buf_str(&all, kernels);
    ChainHash root = chain_root(all.data, all.n);
    buf_free(&all);
    return root;
}

Status kvstore_open(const char *dir, size_t most_bytes, int block, const KvHead *like, const char *kernels,
                    KvStore **out) {
    struct stat info;
    *out = NULL;
    if (block % (int)like->group)
        return status_error(QUILL_USAGE,
                            "--kv-dir with %s and %s: blocks of whole groups of %u slots expected, found --kv-block "
                            "%d; use --kv-block %u",
                            type_name((int)like->type_k), type_name((int)like->type_v), like->group, block,
                            like->group);
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return status_error(QUILL_IO, "--kv-dir %.300s: cannot make the directory: %s", dir, strerror(errno));
    if (stat(dir, &info) != 0 || !S_ISDIR(info.st_mode))
        return status_error(QUILL_IO,
                            "--kv-dir %.300s: a directory expected, something else found; choose another name", dir);
    KvStore *s = mem_alloc(sizeof *s);
    *s = (KvStore){.dir = mem_copy(dir, strlen(dir)),
                   .most_bytes = most_bytes,
                   .block = block,
                   .head = *like,
                   .root = root_of(*like, kernels)};
    s->head.n_tokens = s->head.n_slots = (uint32_t)block;
    *out = s;
    return OK;
}

void kvstore_close(KvStore *s) {
    if (!s) return;
    free(s->dir);
    free(s);
}

const char *kvstore_dir(const KvStore *s) { return s->dir; }

KvStoreStats kvstore_stats(const KvStore *s) { return s->stats; }
