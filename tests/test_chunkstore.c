// tests/test_chunkstore.c: which chunks stay, in memory and in a directory.
#define _GNU_SOURCE
#include "tests/rig/kvstore_rig.h"

#include "blend/chunkstore.h"

enum { CHUNK = 20 };

// A cache with the chunk of this seed, computed.
static void chunk_open(Cache *c, uint64_t seed) {
    cache_open(c, BLOCK, 0);
    push(&c->seq, CHUNK, seed);
    compute(c, CHUNK);
}

static void save_chunk(ChunkStore *chunks, uint64_t seed) {
    Cache c;
    chunk_open(&c, seed);
    assert_ok(chunkstore_save(chunks, &c.kv, &c.seq));
    cache_close(&c);
}

static bool has_chunk(const ChunkStore *chunks, uint64_t seed) {
    Sequence q = {0};
    push(&q, CHUNK, seed);
    bool has = chunkstore_has(chunks, q.tokens, CHUNK);
    sequence_free(&q);
    return has;
}

static void open_chunk(ChunkStore *chunks, uint64_t seed, ChunkFile *out) {
    Sequence q = {0};
    Status st = OK;
    push(&q, CHUNK, seed);
    assert_true(chunkstore_open(chunks, q.tokens, CHUNK, out, &st));
    assert_ok(st);
    sequence_free(&q);
}

static void use_chunk(ChunkStore *chunks, uint64_t seed) {
    ChunkFile f;
    open_chunk(chunks, seed, &f);
    chunkstore_close(&f, false);
}

// Bytes of one chunk's file.
static size_t chunk_bytes(void) {
    Store s;
    store_open(&s, 1 << 30);
    ChunkStore *chunks = chunkstore_new(s.s, 0, &like);
    save_chunk(chunks, 1);
    size_t n = kvstore_stats(s.s).saved_bytes;
    chunkstore_free(chunks);
    store_close(&s);
    return n;
}

// A chunk that does not fit into memory takes the place of the one that was saved or opened longest ago.
static void test_the_longest_unused_is_dropped(void **state) {
    (void)state;
    ChunkStore *chunks = chunkstore_new(NULL, 3 * chunk_bytes(), &like);
    for (uint64_t i = 1; i <= 5; i++) {
        save_chunk(chunks, i);
        for (uint64_t k = 1; k <= i; k++) assert_int_equal(has_chunk(chunks, k), k + 3 > i);
    }
    use_chunk(chunks, 3);
    save_chunk(chunks, 5); // is there already
    assert_true(has_chunk(chunks, 4));
    save_chunk(chunks, 6);
    assert_false(has_chunk(chunks, 4));
    use_chunk(chunks, 5);
    save_chunk(chunks, 7);
    assert_false(has_chunk(chunks, 3));
    for (uint64_t i = 5; i <= 7; i++) assert_true(has_chunk(chunks, i));
    chunkstore_free(chunks);
}

// A chunk that is dropped while it is being read can be read to its end.
static void test_dropped_while_read(void **state) {
    (void)state;
    ChunkStore *chunks = chunkstore_new(NULL, chunk_bytes(), &like);
    Cache c;
    ChunkFile f;
    StoreRow rows[CHUNK];
    save_chunk(chunks, 1);
    open_chunk(chunks, 1, &f);
    save_chunk(chunks, 2);
    assert_false(has_chunk(chunks, 1));
    chunk_open(&c, 1);
    for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
        KvChunk at;
        const uint8_t *got;
        assert_ok(kvreader_rows(&f.r, &at, &got));
        assert_true(at.layer == layer && at.first == 0 && at.n == CHUNK);
        kvcache_load_rows(&c.kv, &c.seq, (int)layer, 0, CHUNK, rows);
        assert_memory_equal(got, rows, sizeof rows);
    }
    assert_ok(kvreader_end(&f.r));
    cache_close(&c);
    chunkstore_close(&f, false);
    chunkstore_free(chunks);
}

// In a directory, too, opening a chunk counts as use.
static void test_an_opened_file_stays(void **state) {
    (void)state;
    size_t one = chunk_bytes();
    Store s;
    store_open(&s, 2 * one + one / 2);
    ChunkStore *chunks = chunkstore_new(s.s, 0, &like);
    save_chunk(chunks, 1);
    set_used(&s, KVSTORE_CHUNK, 0, (struct timespec){1000, 0});
    save_chunk(chunks, 2);
    set_used(&s, KVSTORE_CHUNK, 1000, (struct timespec){2000, 0});
    use_chunk(chunks, 1);
    save_chunk(chunks, 3);
    assert_int_equal(count_files(&s, KVSTORE_CHUNK), 2);
    assert_true(has_chunk(chunks, 1) && has_chunk(chunks, 3));
    chunkstore_free(chunks);
    store_close(&s);
}

// A chunk whose rows a frame's length cannot count is an error, not a frame of another length.
static void test_a_chunk_longer_than_a_frame(void **state) {
    (void)state;
    ChunkStore *chunks = chunkstore_new(NULL, SIZE_MAX, &like);
    Cache c;
    chunk_open(&c, 1);
    Sequence longer = c.seq;
    longer.n_cached = (int)(UINT32_MAX / kv_frame_rows(&like, 0, 1)) + 1;
    assert_false(kv_frame_holds(&like, (size_t)longer.n_cached));
    assert_true(kv_frame_holds(&like, (size_t)longer.n_cached - 1));
    Status st = chunkstore_save(chunks, &c.kv, &longer);
    assert_int_equal(st.code, QUILL_IO);
    assert_non_null(strstr(st.message, "less than 4 GiB of K and V per layer expected"));
    cache_close(&c);
    chunkstore_free(chunks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_longest_unused_is_dropped),
        cmocka_unit_test(test_dropped_while_read),
        cmocka_unit_test(test_an_opened_file_stays),
        cmocka_unit_test(test_a_chunk_longer_than_a_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
