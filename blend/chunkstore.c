// blend/chunkstore.c: see blend/chunkstore.h.
#define _GNU_SOURCE // memfd_create
#include "blend/chunkstore.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kv/kvrows.h"

typedef struct {
    ChainHash name;
    int fd; // a memfd with the chunk file
    size_t n_bytes;
    uint64_t used;
} KeptChunk;

struct ChunkStore {
    KvStore *dir; // NULL: chunks are stored in memory
    KvHead head;
    ChainHash root;
    KeptChunk *kept; // (n_kept)
    int n_kept;
    size_t n_bytes;
    uint64_t clock;
};

ChunkStore *chunkstore_new(KvStore *dir, const KvHead *like) {
    static const char domain[] = "chunk alone";
    Buf all = {0};
    ChunkStore *s = mem_alloc(sizeof *s);
    *s = (ChunkStore){.dir = dir, .head = *like};
    buf_append(&all, domain, sizeof domain);
    if (dir) buf_append(&all, kvstore_root(dir), sizeof(ChainHash));
    s->root = chain_root(all.data, all.n);
    buf_free(&all);
    return s;
}

static void drop_kept(ChunkStore *s, int i) {
    close(s->kept[i].fd);
    s->n_bytes -= s->kept[i].n_bytes;
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
    ssize_t got = pread(f->fd, out, n, f->at);
    if (got > 0) f->at += got;
    return got;
}

// Opens a chunk's bytes; the caller closes the descriptor. -1: there is no such chunk, or *st is an error.
static int open_bytes(const ChunkStore *s, const ChainHash *name, char **path, Status *st) {
    *path = NULL;
    if (s->dir) return kvstore_open_file(s->dir, name, KVSTORE_CHUNK, path, st);
    KeptChunk *kept = find_kept(s, name);
    int fd = kept ? dup(kept->fd) : -1;
    if (kept && fd < 0) *st = status_error(QUILL_IO, "a chunk's KV: cannot open: %s", strerror(errno));
    return fd;
}

bool chunkstore_has(const ChunkStore *s, const int *tokens, int n) {
    Status st = OK;
    char *path;
    ChainHash name = chain_next(&s->root, tokens, n);
    int fd = open_bytes(s, &name, &path, &st);
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

bool chunkstore_open(ChunkStore *s, const int *tokens, int n, ChunkFile *out, Status *st) {
    ChainHash name = chain_next(&s->root, tokens, n);
    *out = (ChunkFile){.fd = -1};
    out->fd = open_bytes(s, &name, &out->path, st);
    KeptChunk *kept = find_kept(s, &name);
    if (kept) kept->used = ++s->clock;
    if (out->fd < 0) {
        free(out->path);
        return false;
    }
    out->r = (KvReader){.name = out->path ? out->path : "a chunk's KV", .read = read_on, .arg = out};
    *st = check_tokens(s, &out->r, tokens, n);
    if (!st->code) return true;
    chunkstore_close(s, out, st->code == QUILL_MODEL);
    return false;
}

void chunkstore_close(ChunkStore *s, ChunkFile *f, bool damaged) {
    (void)s;
    if (damaged && f->path) unlink(f->path);
    kvreader_free(&f->r);
    if (f->fd >= 0) close(f->fd);
    free(f->path);
    *f = (ChunkFile){.fd = -1};
}

// ---- writing --------------------------------------------------------------------------------------------------------

typedef struct {
    const ChunkStore *s;
    const KvCache *kv;
    const Sequence *q;
} ChunkToWrite;

// Writes all slots of a layer as one frame, so that a reader gets one layer after the other.
static Status write_chunk(void *arg, KvWriter *w) {
    const ChunkToWrite *c = arg;
    KvHead head = c->s->head;
    head.n_tokens = head.n_slots = (uint32_t)c->q->n_cached;
    TRY(kvwriter_head(w, &head));
    TRY(kvwriter_tokens(w, c->q->tokens));
    for (uint32_t layer = 0; layer < head.n_layers; layer++) {
        uint8_t *room = kvwriter_room(w, (KvChunk){layer, 0, head.n_slots});
        kvcache_load_rows(c->kv, c->q, (int)layer, 0, c->q->n_cached, room);
        TRY(kvwriter_rows(w));
    }
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
    KvWriter w = {.fd = memfd_create("quill-chunk", MFD_CLOEXEC)};
    if (w.fd < 0) return status_error(QUILL_IO, "memory for a chunk's KV: %s", strerror(errno));
    Status st = write_chunk(what, &w);
    kvwriter_free(&w);
    if (st.code) {
        close(w.fd);
        return st;
    }
    size_t n = (size_t)lseek(w.fd, 0, SEEK_CUR);
    while (s->n_kept > 0 && s->n_bytes + n > CHUNKSTORE_MEMORY) drop_kept(s, longest_unused(s));
    s->kept = mem_resize(s->kept, (size_t)(s->n_kept + 1) * sizeof *s->kept);
    s->kept[s->n_kept++] = (KeptChunk){*name, w.fd, n, ++s->clock};
    s->n_bytes += n;
    return OK;
}

Status chunkstore_save(ChunkStore *s, const KvCache *kv, const Sequence *q) {
    ChunkToWrite what = {s, kv, q};
    ChainHash name = chain_next(&s->root, q->tokens, q->n_cached);
    if (s->dir) return kvstore_write_file(s->dir, &name, KVSTORE_CHUNK, write_chunk, &what);
    return find_kept(s, &name) ? OK : keep_in_memory(s, &name, &what);
}
