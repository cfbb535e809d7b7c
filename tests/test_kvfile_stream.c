// tests/test_kvfile_stream.c: a prefill that is sent while it is computed: continuing from it, and refused streams.
#define _GNU_SOURCE // tests/rig/directory.h
#include "tests/rig/kvfile_rig.h"

// Computes a prompt of n tokens and sends it as `quill prefill` does: after each step the complete chunks.
static void send_prompt(Engine *e, Sequence *s, int n, const char *path) {
    GreedyRun *run = mem_alloc(sizeof *run);
    push_random(s, n, 5);
    KvWriter w = {.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666)};
    assert_true(w.fd >= 0);
    assert_ok(kvfile_begin(&w, e, s, n));
    Request r = {.seq = s, .sampling = sampler_defaults(), .max_new = 1, .emit = keep, .arg = run};
    scheduler_add(e->sched, &r);
    for (Batch *b; scheduler_next(e->sched, &b);) {
        off_t before = lseek(w.fd, 0, SEEK_CUR);
        uint32_t sent = w.s.next.first;
        scheduler_take(e->sched, model_forward(&e->model, &e->work, e->kv.pool, b));
        assert_ok(kvfile_send(&w, e, r.seq));
        int whole = r.seq->n_cached == n ? n : r.seq->n_cached / 64 * 64;
        assert_int_equal(w.s.next.first, whole); // all complete chunks have been sent
        assert_int_equal(lseek(w.fd, 0, SEEK_CUR) > before, w.s.next.first > sent);
    }
    assert_ok(kvfile_end(&w, e, r.seq, run->logits));
    kvwriter_free(&w);
    close(w.fd);
    timeline_free(&r.time);
    free(run);
}

static Status receive(const char *path, Engine *e, Sequence *s, float *logits, bool *has_logits) {
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    Status st = kvfile_receive(fd, path, e, s, logits, has_logits);
    close(fd);
    return st;
}

// An answer that continues from the stream must be that of one process, also with another layout, and no row of the
// prompt may be computed.
static void stream(int type, bool rotate) {
    const int n = ENGINE_CTX * 3 / 4, n_new = 12;
    const EngineSetup from[] = {{.type_k = type, .type_v = type, .rotate = rotate},
                                {.type_k = type, .type_v = type, .rotate = rotate, .ubatch = 7, .block = 8},
                                {.type_k = type, .type_v = type, .rotate = rotate, .ubatch = 100}};
    char first[1024], path[1024];
    snprintf(first, sizeof first, "%s", test_tmp("streamed0.kv"));
    snprintf(path, sizeof path, "%s", test_tmp("streamed.kv"));
    GreedyRun *want = mem_alloc(sizeof *want), *got = mem_alloc(sizeof *got);
    float logits[ENGINE_VOCAB];
    for (size_t i = 0; i < ARRAY_LEN(from); i++) {
        Engine a, b;
        Sequence s = {0}, t = {0}, u = {0};
        bool has_logits;
        open_engine(&a, &from[i]);
        open_engine(&b, &from[(i + 1) % ARRAY_LEN(from)]);
        send_prompt(&a, &s, n, i ? path : first);
        if (i) { // the bytes do not depend on the steps
            Bytes x = read_bytes(first), y = read_bytes(path);
            assert_int_equal(x.n, y.n);
            assert_memory_equal(x.bytes, y.bytes, x.n);
            free(x.bytes);
            free(y.bytes);
        }
        push_random(&t, n, 5);
        generate(&a, &t, n_new, want);
        assert_ok(receive(i ? path : first, &b, &u, logits, &has_logits));
        assert_true(has_logits);
        generate_from(&b, &u, logits, n_new, got);
        assert_same(want, &t, got, &u);
        assert_int_equal(got->n_rows, n_new - 1);
        release(&a, &s);
        release(&a, &t);
        release(&b, &u);
        engine_close(&a);
        engine_close(&b);
    }
    free(want);
    free(got);
}

static void test_streamed(void **state) {
    (void)state;
    static const int types[] = {TYPE_F16, TYPE_FP8, TYPE_Q8_0, TYPE_Q4_0, TYPE_KIVI2};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) stream(types[i], i % 2);
}

// A changed K with a right checksum: the first token comes from the logits in the stream, the others must change.
static void test_changed_stream(void **state) {
    (void)state;
    Engine e;
    GreedyRun *run = mem_alloc(sizeof *run);
    const char *path = test_tmp("changed_stream.kv");
    float logits[ENGINE_VOCAB];
    bool has_logits;
    Sequence s = {0}, said[2] = {{0}};
    open_engine(&e, &smallest);
    send_prompt(&e, &s, 6, path);
    Bytes f = read_bytes(path);
    size_t rows = KV_BYTES_START + 16 + KV_HEAD + 16 + 6 * 4;
    for (int change = 0; change < 2; change++) {
        for (int slot = 0; slot < 6 && change; slot++) { // K of one head, four elements
            float k[4] = {9.0f - (float)slot, -7, 5, (float)slot};
            memcpy(f.bytes + rows + 8 + 12 + (size_t)slot * sizeof k, k, sizeof k);
        }
        kv_mend(f.bytes, f.n);
        write_bytes(path, f.bytes, f.n);
        assert_ok(receive(path, &e, &said[change], logits, &has_logits));
        generate_from(&e, &said[change], logits, 16, run);
    }
    assert_int_equal(said[0].n_tokens, said[1].n_tokens);
    assert_int_equal(said[0].tokens[6], said[1].tokens[6]);
    assert_memory_not_equal(said[0].tokens, said[1].tokens, (size_t)said[0].n_tokens * sizeof(int));
    release(&e, &s);
    release(&e, &said[0]);
    release(&e, &said[1]);
    engine_close(&e);
    free(f.bytes);
    free(run);
}

static void test_hostile_logits(void **state) {
    (void)state;
    Engine e;
    Sequence s = {0};
    const char *path = test_tmp("logits.kv");
    open_engine(&e, &smallest);
    send_prompt(&e, &s, 6, path);
    Bytes f = read_bytes(path);
    size_t last = f.n - 16 - 4 - 16 - ENGINE_VOCAB * 4, rows = KV_BYTES_START + 16 + KV_HEAD + 16 + 6 * 4;
    assert_memory_equal(f.bytes + last, "LAST", 4);
    Guard g;
    guard_open(&g, &smallest);
    assert_number_refused(&g, &f, last + 4, 0, QUILL_MODEL, "LAST of 1280 bytes expected, 0 found");
    assert_number_refused(&g, &f, last + 4, ENGINE_VOCAB * 4 + 4, QUILL_MODEL,
                          "LAST of 1280 bytes expected, 1284 found");
    assert_number_refused(&g, &f, last + 4, ENGINE_VOCAB * 4 - 3, QUILL_MODEL,
                          "LAST of 1280 bytes expected, 1277 found");
    assert_number_refused(&g, &f, last + 4, UINT32_MAX, QUILL_MODEL, "LAST of 1280 bytes expected, 4294967295 found");
    assert_number_refused(&g, &f, last, 0x53574f52, QUILL_MODEL, "a frame DONE expected, ROWS found");
    // Logits without the rows of the last slot must be refused.
    uint8_t *copy = (uint8_t *)mem_copy((const char *)f.bytes, f.n);
    uint32_t five = 5, length = 12 + 5 * 32;
    memcpy(copy + KV_BYTES_HEAD + offsetof(KvHead, n_slots), &five, 4);
    size_t at = rows, from = rows;
    for (int layer = 0; layer < 2; layer++) { // K of five slots, then V of five
        memmove(copy + at, f.bytes + from, 8 + 12 + 5 * 16);
        memmove(copy + at + 20 + 5 * 16, f.bytes + from + 20 + 6 * 16, 5 * 16);
        memcpy(copy + at + 4, &length, 4);
        memcpy(copy + at + 16, &five, 4);
        at += 8 + length + 8;
        from += 8 + 12 + 6 * 32 + 8;
    }
    memmove(copy + at, f.bytes + last, f.n - last);
    kv_mend(copy, f.n - (last - at));
    assert_bytes_refused(&g, copy, f.n - (last - at), QUILL_MODEL, "after the K and V of all 6 tokens expected");
    guard_close(&g);
    release(&e, &s);
    engine_close(&e);
    free(copy);
    free(f.bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streamed),
        cmocka_unit_test(test_changed_stream),
        cmocka_unit_test(test_hostile_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
