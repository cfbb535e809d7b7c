// blend/chunkstore.c: see blend/chunkstore.h.
#define _GNU_SOURCE // pread
#include "blend/chunkstore.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kv/kvchunk.h"
#include "kv/kvrows.h"

struct ChunkBytes {
    Buf file;
    int n_users; // the store, and the readers
};

typedef struct {
    ChainHash name;
    ChunkBytes *bytes;
    uint64_t used;
} KeptChunk;

struct ChunkStore {
    KvStore *dir; // NULL: chunks are stored in memory
    KvHead head;
    ChainHash root;
    KeptChunk *kept; // (n_kept)
    int n_kept, cap_kept;
    size_t n_bytes, most_bytes; // of the kept chunks
    uint64_t clock;
};

// Allows as many open files as the system does: a prompt has the files of all its chunks open at once, and the usual
// limit of 1024 is there for programs that call select().
static void raise_file_limit(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files); // if it fails, chunks that cannot be opened are computed again
}

ChunkStore *chunkstore_new(KvStore *dir, size_t most_bytes, const KvHead *like) {
    static const char domain[] = "chunk alone";
    if (dir) raise_file_limit();
    Buf all = {0};
    ChunkStore *s = mem_alloc(sizeof *s);
    *s = (ChunkStore){.dir = dir, .most_bytes = most_bytes, .head = *like};
    buf_append(&all, domain, sizeof domain);
    if (dir) buf_append(&all, kvstore_root(dir), sizeof(ChainHash));
    s->root = chain_root(all.data, all.n);
    buf_free(&all);
    return s;
}

static void release(ChunkBytes *c) {
    if (!c || --c->n_users > 0) return;
    buf_free(&c->file);
    free(c);
}

static void drop_kept(ChunkStore *s, int i) {
    s->n_bytes -= s->kept[i].bytes->file.n;
    release(s->kept[i].bytes);
    s->kept[i] = s->kept[--s->n_kept];
}

void chunkstore_free(ChunkStore *s) {
    if (!s) return;
    while (s->n_kept > 0) drop_kept(s, 0);
    free(s->kept);
    free(s);
}

static KeptChunk *find_kept(const ChunkStore *s, const ChainHash *name) {
    for (int i = 0; i < s->n_kept; i++)
        if (memcmp(&s->kept[i].name, name, sizeof *name) == 0) return &s->kept[i];
    return NULL;
}

// ---- reading --------------------------------------------------------------------------------------------------------

// KvReader.read
static ssize_t read_on(void *arg, void *out, size_t n) {
    ChunkFile *f = arg;
    if (!f->memory) {
        ssize_t got = pread(f->fd, out, n, (off_t)f->at);
        if (got > 0) f->at += (size_t)got;
        return got;
    }
    const Buf *file = &f->memory->file;
    if (n > file->n - f->at) n = file->n - f->at;
    memcpy(out, file->data + f->at, n);
    f->at += n;
    return (ssize_t)n;
}

bool chunkstore_has(const ChunkStore *s, const int *tokens, int n) {
    Status st = OK;
    char *path;
    ChainHash name = chain_next(&s->root, tokens, n);
    if (!s->dir) return find_kept(s, &name) != NULL;
    int fd = kvstore_open_file(s->dir, &name, KVSTORE_CHUNK, &path, &st);
    free(path);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static Status check_tokens(const ChunkStore *s, KvReader *r, const int *tokens, int n) {
    const int *found;
    TRY(kvreader_head(r));
    TRY(kvreader_match(r, &s->head));
    if (r->s.head.n_tokens != (uint32_t)n || r->s.head.n_slots != (uint32_t)n)
        return status_error(QUILL_MODEL, "%.300s: %d tokens and slots expected, %u and %u found: the file is damaged",
                            r->name, n, r->s.head.n_tokens, r->s.head.n_slots);
    TRY(kvreader_tokens(r, INT32_MAX, &found));
    if (memcmp(found, tokens, (size_t)n * sizeof *tokens) != 0)
        return status_error(QUILL_MODEL,
                            "%.300s: the chunk that the file's name says expected, another found: the file is damaged",
                            r->name);
    return OK;
}

// Opens the bytes of a chunk. False: there is no such chunk, or *st is an error.
static bool open_bytes(ChunkStore *s, const ChainHash *name, ChunkFile *out, Status *st) {
    if (s->dir) {
        out->fd = kvstore_open_file(s->dir, name, KVSTORE_CHUNK, &out->path, st);
        if (out->fd < 0) free(out->path);
        return out->fd >= 0;
    }
    KeptChunk *kept = find_kept(s, name);
    if (!kept) return false;
    kept->used = ++s->clock;
    kept->bytes->n_users++;
    out->memory = kept->bytes;
    return true;
}

bool chunkstore_open(ChunkStore *s, const int *tokens, int n, ChunkFile *out, Status *st) {
    ChainHash name = chain_next(&s->root, tokens, n);
    *out = (ChunkFile){.fd = -1};
    if (!open_bytes(s, &name, out, st)) return false;
    out->r = (KvReader){.name = out->path ? out->path : "a chunk's KV", .read = read_on, .arg = out};
    *st = check_tokens(s, &out->r, tokens, n);
    if (!st->code) return true;
    chunkstore_close(out, st->code == QUILL_MODEL);
    return false;
}

void chunkstore_close(ChunkFile *f, bool damaged) {
    if (damaged && f->path) unlink(f->path);
    kvreader_free(&f->r);
    if (f->fd >= 0) close(f->fd);
    release(f->memory);
    free(f->path);
    *f = (ChunkFile){.fd = -1};
}

// ---- writing --------------------------------------------------------------------------------------------------------

typedef struct {
    const ChunkStore *s;
    const KvCache *kv;
    const Sequence *q;
} ChunkToWrite;

// Writes the whole text as one chunk, so that a reader gets one layer after the other.
static Status write_chunk(void *arg, KvWriter *w) {
    const ChunkToWrite *c = arg;
    KvHead head = c->s->head;
    head.n_tokens = head.n_slots = (uint32_t)c->q->n_cached;
    TRY(kvwriter_head(w, &head));
    TRY(kvwriter_tokens(w, c->q->tokens));
    TRY(kvchunk_write(w, c->kv, c->q, 0, c->q->n_cached, 0));
    TRY(kvrows_intact(c->kv->pool));
    return kvwriter_end(w);
}

static int longest_unused(const ChunkStore *s) {
    int oldest = 0;
    for (int i = 1; i < s->n_kept; i++)
        if (s->kept[i].used < s->kept[oldest].used) oldest = i;
    return oldest;
}

static Status keep_in_memory(ChunkStore *s, const ChainHash *name, ChunkToWrite *what) {
    Buf file = {0};
    KvWriter w = {.fd = -1, .memory = &file};
    Status st = write_chunk(what, &w);
    kvwriter_free(&w);
    if (st.code) {
        buf_free(&file);
        return st;
    }
    file.data = mem_resize(file.data, file.cap = file.n + 1);
    while (s->n_kept > 0 && s->n_bytes + file.n > s->most_bytes) drop_kept(s, longest_unused(s));
    ChunkBytes *bytes = mem_alloc(sizeof *bytes);
    *bytes = (ChunkBytes){.file = file, .n_users = 1};
    if (s->n_kept == s->cap_kept) {
        s->cap_kept = s->cap_kept ? 2 * s->cap_kept : 16;
        s->kept = mem_resize(s->kept, (size_t)s->cap_kept * sizeof *s->kept);
    }
    s->kept[s->n_kept++] = (KeptChunk){*name, bytes, ++s->clock};
    s->n_bytes += file.n;
    return OK;
}

Status chunkstore_save(ChunkStore *s, const KvCache *kv, const Sequence *q) {
    if (!kv_frame_holds(&s->head, (size_t)q->n_cached))
        return status_error(QUILL_IO, "a chunk of %d tokens: less than 4 GiB of K and V per layer expected",
                            q->n_cached);
    ChunkToWrite what = {s, kv, q};
    ChainHash name = chain_next(&s->root, q->tokens, q->n_cached);
    if (s->dir) return kvstore_write_file(s->dir, &name, KVSTORE_CHUNK, write_chunk, &what);
    return find_kept(s, &name) ? OK : keep_in_memory(s, &name, &what);
}
