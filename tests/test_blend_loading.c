// tests/test_blend_loading.c: chunks that are loaded while others compute: a request that is preempted meanwhile or
// afterwards, chunks that cannot be read, and which tokens count as computed.
#define _GNU_SOURCE
#include "tests/rig/testing.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "policy/plain.h"
#include "tests/rig/blend_rig.h"
#include "tests/rig/directory.h"

static const int sizes[] = {31, 9, 40};

// Opens an engine with an empty --kv-dir.
static void open_with_directory(BlendRig *r, BlendSetup u, char *dir, size_t n_dir, const char *name) {
    snprintf(dir, n_dir, "%s", test_tmp(name));
    remove_directory(dir);
    u.dir = dir;
    assert_true(blend_rig_open(r, &u));
}

// Reads of chunk files, of this program's own. With `gated`, all but the first n_open reads wait until `held` is false.
// The first five reads in the second half of files of broken_size bytes fail.
static struct {
    _Atomic bool gated, held;
    _Atomic int n_reads, n_open, n_broken;
    _Atomic off_t broken_size;
} reads;

ssize_t pread(int fd, void *out, size_t n, off_t at) {
    struct timespec tenth = {.tv_nsec = 100000000}, brief = {.tv_nsec = 1000000};
    struct stat info;
    if (reads.gated && reads.n_reads >= reads.n_open) {
        while (reads.held) nanosleep(&brief, NULL);
        nanosleep(&tenth, NULL);
    }
    reads.n_reads++;
    if (reads.broken_size > 0 && reads.n_broken < 5 && at > reads.broken_size / 2 && fstat(fd, &info) == 0 &&
        info.st_size == reads.broken_size) {
        reads.n_broken++;
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, fd, out, n, at);
}

// ---- preemption -----------------------------------------------------------------------------------------------------

// An older request that takes all free blocks of the cache, so that a newer one with chunks is preempted.
typedef struct {
    KvCache *kv;
    Sequence rest[8];
    int n_tokens, n_reads; // reads until the request preempts the other
    int n_all;             // reads of all chunks
    bool looked;
} Elder;

static Finish decode_and_take(Request *r, int token, const float *logits) {
    Elder *elder = r->arg;
    KvCache *kv = elder->kv;
    int block = kv->pool->block;
    (void)token;
    (void)logits;
    if (elder->n_reads > 0 && !elder->looked) { // the other was preempted: its loader may write nothing any more
        elder->looked = true;
        reads.gated = false;
        assert_int_equal(reads.n_reads, elder->n_all);
    }
    if (++elder->n_tokens == 6) {
        for (int i = 0; i < 8; i++) kvcache_release(kv, &elder->rest[i]);
        return FINISH_STOP;
    }
    if (r->seq->n_tokens % block != 1 || elder->n_tokens == 1) return RUNNING;
    for (int i = 0; kv->n_free > 0; i++) // the next token then needs a block of the other request
        assert_true(i < 8 && kvcache_reserve(kv, &elder->rest[i], int_min(kv->n_free * block, kv->max_slots)));
    elder->n_reads = reads.n_reads;
    reads.held = false;
    return RUNNING;
}

// The older request, whose 17th token takes the blocks, and a prompt with chunks.
typedef struct {
    BlendRig r;
    char dir[1024];
    BlendText t;
    BlendResult alone; // of the prompt with chunks
    Elder elder;
    Sequence q[2];
    Request requests[2];
    Blend *blend;
} Rivals;

static BlendSetup rivals_setup(int ubatch) {
    return (BlendSetup){.model = {.seed = 5, .n_layers = 5}, .ubatch = ubatch, .block = 16};
}

static void rivals_open(Rivals *p, const char *plan, int ubatch, int max_new) {
    *p = (Rivals){0};
    open_with_directory(&p->r, rivals_setup(ubatch), p->dir, sizeof p->dir, "preempted");
    blend_text(&p->t, 2, sizes, 3, 3, 5, 11);
    blend_rig_add(&p->r, &p->t);
    reads.n_reads = 0;
    blend_rig_run(&p->r, &p->t, plan, &p->alone);
    p->elder = (Elder){.kv = &p->r.e.kv, .n_all = reads.n_reads};
    p->blend = blend_new(&p->r.context, p->t.spans, 3, p->r.e.policy);
    for (int i = 0; i < 2; i++)
        p->requests[i] = (Request){.seq = &p->q[i], .sampling = sampler_defaults(), .max_new = i ? max_new : 6};
    p->requests[0].emit = decode_and_take;
    p->requests[0].arg = &p->elder;
    p->requests[1].policy = blend_policy(p->blend);
    sequence_push(&p->q[0], p->t.tokens, 14);
    sequence_push(&p->q[1], p->t.tokens, p->t.n);
    reads.n_reads = 0;
}

static void rivals_run(Rivals *p) {
    for (int i = 0; i < 2; i++) scheduler_add(p->r.e.sched, &p->requests[i]);
    engine_run(&p->r.e);
    assert_true(p->elder.looked);
    assert_int_equal(scheduler_preemptions(p->r.e.sched), 1);
}

static void rivals_close(Rivals *p) {
    for (int i = 0; i < 2; i++) {
        sequence_end(&p->r.e.kv, &p->q[i]);
        timeline_free(&p->requests[i].time);
    }
    for (int i = 0; i < 8; i++) sequence_free(&p->elder.rest[i]);
    blend_free(p->blend);
    free(p->alone.rows);
    blend_rig_close(&p->r);
    remove_directory(p->dir);
}

// A request that is preempted while its chunks are being loaded ends its loader before another gets its blocks, loads
// the chunks again when it is its turn, and gives the logits that it gives alone.
static void test_preempted_while_loading(void **state) {
    (void)state;
    static Rivals p;
    BlendResult together;
    rivals_open(&p, "cacheblend,ratio=0.3", 24, 1);
    int n_all = p.elder.n_all;
    p.requests[1].emit = blend_keep_logits;
    p.requests[1].arg = &together;
    reads.n_open = n_all * 3 / 5; // the layers up to the check layer
    reads.held = true;
    reads.gated = true;
    rivals_run(&p);
    assert_in_range(p.elder.n_reads, 1, n_all - 1);
    assert_int_equal(reads.n_reads, 2 * n_all);
    assert_memory_equal(together.logits, p.alone.logits, sizeof together.logits);
    rivals_close(&p);
}

// A request that is preempted during its answer loads no chunk again: prompt and answer are computed in full.
static void test_preempted_in_the_answer(void **state) {
    (void)state;
    static Rivals p;
    BlendRig other;
    BlendResult got, full;
    rivals_open(&p, "reuse", 140, 9);
    rivals_run(&p);
    const Sequence *q = &p.q[1];
    assert_int_equal(p.requests[1].n_new, 9);
    assert_int_equal(reads.n_reads, p.elder.n_all);
    blend_read(&p.r.e, q, q->n_cached, &got);
    BlendSetup setup = rivals_setup(140);
    assert_true(blend_rig_open(&other, &setup));
    blend_run(&other.e, q->tokens, q->n_cached, NULL, &full);
    assert_int_equal(got.n_bytes, full.n_bytes);
    assert_memory_equal(got.rows, full.rows, full.n_bytes);
    free(got.rows);
    free(full.rows);
    blend_rig_close(&other);
    rivals_close(&p);
}

// ---- chunks that cannot be read -------------------------------------------------------------------------------------

// The path of the smallest chunk file, and its size.
static off_t smallest_chunk(const char *dir, char *path, size_t n_path) {
    off_t least = 0;
    DIR *d = opendir(dir);
    for (struct dirent *f; (f = readdir(d));) {
        struct stat info;
        if (!strstr(f->d_name, ".chunk") || fstatat(dirfd(d), f->d_name, &info, 0) != 0) continue;
        if (least > 0 && info.st_size > least) continue;
        least = info.st_size;
        snprintf(path, n_path, "%s/%s", dir, f->d_name);
    }
    closedir(d);
    return least;
}

// If a chunk cannot be read, the request begins again without this chunk alone, and its file stays.
static void test_a_chunk_that_cannot_be_read(void **state) {
    (void)state;
    static const char *const plans[] = {"reuse", "cacheblend,ratio=0.2"};
    for (size_t i = 0; i < ARRAY_LEN(plans); i++) {
        BlendRig r;
        BlendText t;
        BlendResult got, without;
        char dir[1024], path[1200];
        BlendSetup setup = {.model = {.n_layers = 4, .seed = 3}, .ubatch = 24, .block = 16};
        open_with_directory(&r, setup, dir, sizeof dir, "broken");
        blend_text(&t, 5, sizes, 3, 0, 13, 7);
        blend_rig_add(&r, &t);
        reads.n_broken = 0;
        reads.broken_size = smallest_chunk(dir, path, sizeof path); // that of the second chunk
        blend_rig_run(&r, &t, plans[i], &got);
        reads.broken_size = 0;
        assert_int_equal(reads.n_broken, 1);
        assert_int_equal(got.stats.n_lost, 1);
        assert_int_equal(got.stats.n_kept, 31 + 40);
        assert_int_equal(unlink(path), 0);
        blend_rig_run(&r, &t, plans[i], &without);
        blend_assert_same(&got, &without, plans[i]);
        free(got.rows);
        free(without.rows);
        blend_rig_close(&r);
        remove_directory(dir);
    }
}

// K and V of a prompt with loaded chunks are not shared. If no chunk could be loaded in the end, they are.
static void test_what_is_shared(void **state) {
    (void)state;
    for (int broken = 0; broken < 2; broken++) {
        BlendRig r;
        BlendText t;
        Sequence q = {0};
        char dir[1024], path[1200];
        BlendSetup setup = {.model = {.n_layers = 4, .seed = 3}, .ubatch = 24, .block = 16};
        open_with_directory(&r, setup, dir, sizeof dir, "shared");
        blend_text(&t, 5, (int[]){60}, 1, 0, 13, 7);
        blend_rig_add(&r, &t);
        reads.n_broken = 0;
        if (broken) reads.broken_size = smallest_chunk(dir, path, sizeof path);
        assert_ok(plan_parse("reuse", &r.context.plan));
        Blend *b = blend_new(&r.context, t.spans, 1, r.e.policy);
        Request request = {.seq = &q, .sampling = sampler_defaults(), .max_new = 1, .policy = blend_policy(b)};
        sequence_push(&q, t.tokens, t.n);
        scheduler_add(r.e.sched, &request);
        engine_run(&r.e);
        reads.broken_size = 0;
        assert_int_equal(request.finish, FINISH_LENGTH);
        assert_int_equal(blend_stats(b).n_lost, broken);
        assert_int_equal(sequence_shares(&q), broken);
        blend_free(b);
        sequence_end(&r.e.kv, &q);
        timeline_free(&request.time);
        blend_rig_close(&r);
        remove_directory(dir);
    }
}

// ---- which tokens count as computed ---------------------------------------------------------------------------------

typedef struct {
    const Sequence *other;
    int n, n_cached[8];
} Witness;

// Request.emit of an older request: keeps how many tokens of the other one count as computed after the step before.
static Finish count_computed(Request *r, int token, const float *logits) {
    Witness *w = r->arg;
    (void)token;
    (void)logits;
    w->n_cached[w->n++] = w->other->n_cached;
    return RUNNING;
}

// Computes a prompt with two chunks beside an older request, which keeps in `w` what it sees of the prompt.
static void run_beside(const Policy *next, Witness *w) {
    BlendRig r;
    BlendText t;
    Sequence q[2] = {0};
    Request requests[2];
    assert_true(blend_rig_open(&r, &(BlendSetup){.model = {.n_layers = 4, .seed = 3}, .ubatch = 24, .block = 16}));
    blend_text(&t, 40, (int[]){31, 9}, 2, 0, 13, 7);
    blend_rig_add(&r, &t);
    assert_ok(plan_parse("cacheblend,ratio=0.2", &r.context.plan));
    Blend *b = blend_new(&r.context, t.spans, 2, next ? next : r.e.policy);
    for (int i = 0; i < 2; i++) {
        requests[i] = (Request){.seq = &q[i], .sampling = sampler_defaults(), .max_new = i ? 1 : 8};
        sequence_push(&q[i], t.tokens, i ? t.n : 5);
    }
    *w = (Witness){.other = &q[1]};
    requests[0].emit = count_computed;
    requests[0].arg = w;
    requests[1].policy = blend_policy(b);
    for (int i = 0; i < 2; i++) scheduler_add(r.e.sched, &requests[i]);
    engine_run(&r.e);
    assert_int_equal(w->n, 8);
    assert_int_equal(q[1].n_cached, t.n);
    assert_int_equal(blend_stats(b).n_kept, 40);
    for (int i = 0; i < 2; i++) {
        sequence_end(&r.e.kv, &q[i]);
        timeline_free(&requests[i].time);
    }
    blend_free(b);
    blend_rig_close(&r);
}

// While rows end in the check layer, only the tokens before the first chunk are computed.
static void test_tokens_of_chunks_are_not_computed_by_the_check(void **state) {
    (void)state;
    static const int want[] = {0, 19, 40, 40, 40};
    Witness w;
    run_beside(NULL, &w);
    assert_memory_equal(w.n_cached, want, sizeof want); // 5 rows and then one belong to the older request
}

// Policy.fetch that needs several steps.
static bool fetch_late(const Policy *p, Request *r, int most) {
    int *n_left = p->arg;
    (void)r;
    (void)most;
    return --*n_left == 0;
}

// Chunks are loaded after what the next policy fetches, as from --kv-dir, which may take several steps.
static void test_the_next_policy_fetches_first(void **state) {
    (void)state;
    int n_left = 3;
    const Policy late = {.fetch = fetch_late, .arg = &n_left, .next = &plain_policy};
    static const int want[] = {0, 0, 0, 23};
    Witness w;
    run_beside(&late, &w);
    assert_int_equal(n_left, 0);
    assert_memory_equal(w.n_cached, want, sizeof want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_preempted_while_loading),
        cmocka_unit_test(test_preempted_in_the_answer),
        cmocka_unit_test(test_a_chunk_that_cannot_be_read),
        cmocka_unit_test(test_what_is_shared),
        cmocka_unit_test(test_tokens_of_chunks_are_not_computed_by_the_check),
        cmocka_unit_test(test_the_next_policy_fetches_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
