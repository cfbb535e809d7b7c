// tests/test_kvfile_damage.c: every KV file that is not exact must be refused: flipped bytes, truncated files, wrong
// numbers.
#define _GNU_SOURCE // tests/rig/directory.h
#include "tests/rig/kvfile_rig.h"

// ---- damage ---------------------------------------------------------------------------------------------------------

static void flip_bytes(const EngineSetup *u, int n, const uint8_t *flips, size_t n_flips) {
    Bytes f = saved(u, n);
    Guard g;
    guard_open(&g, u);
    for (size_t i = 0; i < f.n; i++)
        for (size_t k = 0; k < n_flips; k++) {
            f.bytes[i] ^= flips[k];
            assert_bytes_refused(&g, f.bytes, f.n, QUILL_MODEL, "expected");
            f.bytes[i] ^= flips[k];
        }
    guard_close(&g);
    free(f.bytes);
}

static void test_flipped_bytes(void **state) {
    (void)state;
    static const uint8_t flips[] = {0x01, 0x80, 0xff};
    flip_bytes(&smallest, 6, flips, 3);
    flip_bytes(&smallest_sealed, SEALED_TOKENS, flips, 1);
}

static void cut_and_lengthen(const EngineSetup *u, int n_tokens) {
    Bytes f = saved(u, n_tokens);
    Guard g;
    guard_open(&g, u);
    for (size_t n = 0; n < f.n; n++) assert_bytes_refused(&g, f.bytes, n, QUILL_MODEL, "the file was cut");
    f.bytes = mem_resize(f.bytes, f.n + 1);
    f.bytes[f.n] = 0;
    assert_bytes_refused(&g, f.bytes, f.n + 1, QUILL_MODEL, "the end of the file expected");
    guard_close(&g);
    free(f.bytes);
}

static void test_cut_and_longer(void **state) {
    (void)state;
    cut_and_lengthen(&smallest, 6);
    cut_and_lengthen(&smallest_sealed, SEALED_TOKENS);
}

// Complete frames in a wrong order or number must be refused, although their checksums are right.
static void test_wrong_frames(void **state) {
    (void)state;
    Bytes f = saved(&smallest, 6), other = saved(&smallest, 5);
    Guard g;
    guard_open(&g, &smallest);
    size_t at[8], n = 0, end = KV_BYTES_START;
    for (size_t size; (size = kv_frame_bytes(f.bytes, f.n, end)) > 0; end += size) at[n++] = end;
    assert_int_equal(n, 5); // head, tokens, two layers, end
    assert_int_equal(end, f.n);
    size_t layer = at[3] - at[2];
    uint8_t *copy = mem_alloc(f.n + layer);
    for (int mended = 0; mended < 2; mended++) {
        const char *words = mended ? "layer 0, slots 0 + 5 expected, layer 1" : "checksum";
        memcpy(copy, f.bytes, f.n); // swaps two layers
        memcpy(copy + at[2], f.bytes + at[3], layer);
        memcpy(copy + at[3], f.bytes + at[2], layer);
        if (mended) kv_mend(copy, f.n);
        assert_bytes_refused(&g, copy, f.n, QUILL_MODEL, words);

        memcpy(copy, f.bytes, f.n); // drops one frame
        memmove(copy + at[3], copy + at[4], f.n - at[4]);
        if (mended) kv_mend(copy, f.n - layer);
        assert_bytes_refused(&g, copy, f.n - layer, QUILL_MODEL, "a frame ROWS expected, DONE found");

        memcpy(copy, f.bytes, at[4]); // repeats one frame
        memcpy(copy + at[4], f.bytes + at[3], f.n - at[3]);
        if (mended) kv_mend(copy, f.n + layer);
        assert_bytes_refused(&g, copy, f.n + layer, QUILL_MODEL, "a frame DONE expected, ROWS found");
    }
    // A frame of another file, whose checksum is right there.
    memcpy(copy, f.bytes, f.n);
    memcpy(copy + KV_BYTES_START, other.bytes + KV_BYTES_START, at[1] - at[0]);
    assert_bytes_refused(&g, copy, f.n, QUILL_MODEL, "a frame TOKS of 20 bytes expected, 24 found");
    free(copy);
    guard_close(&g);
    free(f.bytes);
    free(other.bytes);
}

// ---- hostile numbers ------------------------------------------------------------------------------------------------

typedef struct {
    size_t field;
    uint32_t value;
    int code;
    const char *words;
} HostileNumber;

static void assert_header_refused(Guard *g, const Bytes *f, const HostileNumber *cases, size_t n) {
    for (size_t i = 0; i < n; i++)
        assert_number_refused(g, f, KV_BYTES_HEAD + cases[i].field, cases[i].value, cases[i].code, cases[i].words);
}

static void test_hostile_header(void **state) {
    (void)state;
    Bytes f = saved(&smallest, 6);
    Guard g;
    guard_open(&g, &smallest);
    static const HostileNumber cases[] = {
        {offsetof(KvHead, model), 7, QUILL_MODEL, "the model's fingerprint"},
        {offsetof(KvHead, tokenizer), 7, QUILL_MODEL, "the tokenizer's fingerprint"},
        {offsetof(KvHead, rope), 7, QUILL_MODEL, "the RoPE's fingerprint"},
        {offsetof(KvHead, type_k), TYPE_F16, QUILL_MODEL, "K in F32 expected, F16 found; start with the -ctk"},
        {offsetof(KvHead, type_v), TYPE_BF16, QUILL_MODEL, "V in F32 expected, BF16 found; start with the -ctv"},
        {offsetof(KvHead, type_k), TYPE_Q6_K, QUILL_MODEL, "a type of KV expected"},
        {offsetof(KvHead, type_v), UINT32_MAX, QUILL_MODEL, "Q4_0, KIVI2), 4294967295 found"},
        {offsetof(KvHead, exactness), 2, QUILL_MODEL, "0 to 0 (class of exactness) expected, 2 found"},
        {offsetof(KvHead, n_layers), 3, QUILL_MODEL, "2 layers expected, 3 found"},
        {offsetof(KvHead, n_layers), 0, QUILL_MODEL, "layers expected, 0 found"},
        {offsetof(KvHead, n_layers), UINT32_MAX, QUILL_MODEL, "layers expected, 4294967295 found"},
        {offsetof(KvHead, n_kv_heads), 2, QUILL_MODEL, "1 KV heads expected, 2 found"},
        {offsetof(KvHead, n_kv_heads), 0, QUILL_MODEL, "KV heads expected, 0 found"},
        {offsetof(KvHead, n_kv_heads), 1u << 31, QUILL_MODEL, "KV heads expected"},
        {offsetof(KvHead, head_dim), 8, QUILL_MODEL, "4 elements per head expected, 8 found"},
        {offsetof(KvHead, head_dim), 0x80000001, QUILL_MODEL, "elements per head expected"},
        {offsetof(KvHead, n_tokens), UINT32_MAX, QUILL_MODEL, "tokens expected"},
        {offsetof(KvHead, n_tokens), 1u << 28, QUILL_CONTEXT, "at most the"},
        {offsetof(KvHead, n_tokens), ENGINE_CTX + 2, QUILL_CONTEXT, "load a shorter file, or start with -c 256"},
        {offsetof(KvHead, n_slots), 7, QUILL_MODEL, "0 to 6 slots expected, 7 found"},
        {offsetof(KvHead, n_slots), UINT32_MAX, QUILL_MODEL, "0 to 6 slots expected"},
        {offsetof(KvHead, group), 32, QUILL_MODEL, "1 to 1 slots per group expected, 32 found"},
        {offsetof(KvHead, rotated), 2, QUILL_MODEL, "0 to 1 (whether K is rotated) expected, 2 found"},
        {offsetof(KvHead, rotated), 1, QUILL_MODEL, "plain K expected, rotated K found; start with --kv-rotate"},
    };
    assert_header_refused(&g, &f, cases, ARRAY_LEN(cases));
    assert_number_refused(&g, &f, 0, 0x46554747, QUILL_MODEL, "not a KV file of quill"); // "GGUF"
    assert_number_refused(&g, &f, 8, 1, QUILL_MODEL, "version 3 expected, 1 found");
    guard_close(&g);
    free(f.bytes);
}

static void test_hostile_sealed(void **state) {
    (void)state;
    Bytes f = saved(&smallest_sealed, SEALED_TOKENS);
    Guard g;
    guard_open(&g, &smallest_sealed);
    static const HostileNumber cases[] = {
        {offsetof(KvHead, type_k), TYPE_FP8, QUILL_MODEL, "K in Q8_0 expected, FP8 found; start with the -ctk"},
        {offsetof(KvHead, type_v), TYPE_F32, QUILL_MODEL, "V in KIVI2 expected, F32 found; start with the -ctv"},
        {offsetof(KvHead, group), 1, QUILL_MODEL, "32 to 32 slots per group expected, 1 found"},
        {offsetof(KvHead, group), 0, QUILL_MODEL, "32 to 32 slots per group expected, 0 found"},
        {offsetof(KvHead, head_dim), 577, QUILL_MODEL, "1 to 576 elements per head expected, 577 found"},
        {offsetof(KvHead, rotated), 1, QUILL_MODEL, "plain K expected, rotated K found"},
    };
    assert_header_refused(&g, &f, cases, ARRAY_LEN(cases));
    // A group takes 32 x (34 + 12) bytes, and the three slots after it 3 x (16 + 16).
    size_t rows = KV_BYTES_START + 16 + KV_HEAD + 16 + SEALED_TOKENS * 4, group = 32 * (34 + 12);
    assert_int_equal(rows + 2 * (16 + 12 + group + 3 * 32) + 16 + 4, f.n);
    static const uint32_t lengths[] = {0, 12, 13, 12 + 5 * 32};
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
        assert_number_refused(&g, &f, rows + 4, lengths[i], QUILL_MODEL, "ROWS of 1484 bytes expected");
    assert_number_refused(&g, &f, rows + 4, UINT32_MAX, QUILL_MODEL, "ROWS of 1580 bytes expected");
    guard_close(&g);
    free(f.bytes);
}

static void test_hostile_frames(void **state) {
    (void)state;
    Bytes f = saved(&smallest, 6);
    Guard g;
    guard_open(&g, &smallest);
    size_t head = KV_BYTES_START, tokens = head + 16 + KV_HEAD, rows = tokens + 16 + 6 * 4, layer = 16 + 12 + 5 * 4 * 8,
           end = rows + 2 * layer;
    assert_int_equal(end + 16 + 4, f.n);
    assert_number_refused(&g, &f, head + 4, 0, QUILL_MODEL, "a frame HEAD of 84 bytes expected, 0 found");
    assert_number_refused(&g, &f, head + 4, UINT32_MAX, QUILL_MODEL, "84 bytes expected, 4294967295 found");
    assert_number_refused(&g, &f, tokens + 4, 28, QUILL_MODEL, "a frame TOKS of 24 bytes expected, 28 found");
    assert_number_refused(&g, &f, tokens + 8 + 4, ENGINE_VOCAB, QUILL_MODEL,
                          "a token from 0 to 319 expected, 320 found");
    assert_number_refused(&g, &f, tokens + 8 + 20, UINT32_MAX, QUILL_MODEL, "a token from 0 to 319 expected, -1 found");
    assert_number_refused(&g, &f, tokens, 0x0a1b2c0d, QUILL_MODEL, "a frame TOKS expected, \\r");
    assert_number_refused(&g, &f, rows + 4, 0, QUILL_MODEL, "ROWS of 44 bytes expected, 0 found");
    assert_number_refused(&g, &f, rows + 4, 12, QUILL_MODEL, "ROWS of 44 bytes expected, 12 found");
    assert_number_refused(&g, &f, rows + 4, 12 + 5 * 32 + 1, QUILL_MODEL, "172 bytes expected, 173 found");
    assert_number_refused(&g, &f, rows + 4, 12 + 6 * 32, QUILL_MODEL, "172 bytes expected, 204 found");
    assert_number_refused(&g, &f, rows + 4, UINT32_MAX, QUILL_MODEL, "172 bytes expected, 4294967295 found");
    assert_number_refused(&g, &f, rows + layer + 4, 12 + 4 * 32, QUILL_MODEL, "172 bytes expected, 140 found");
    assert_number_refused(&g, &f, rows + 8, 1, QUILL_MODEL, "layer 0, slots 0 + 5 expected, layer 1");
    guard_close(&g);
    // A bad field is located by its offset in the frame's payload.
    guard_open(&g, &smallest);
    for (size_t field = 1; field < 3; field++) {
        uint8_t *copy = (uint8_t *)mem_copy((const char *)f.bytes, f.n);
        copy[rows + 8 + 4 * field + 3] = 0x7f;
        kv_mend(copy, f.n);
        assert_bytes_refused(&g, copy, f.n, QUILL_MODEL, "layer 0, slots 0 + 5 expected, layer 0, slots");
        free(copy);
    }
    assert_number_refused(&g, &f, end + 8, 5, QUILL_MODEL, "a count of 4 frames expected, 5 found");
    guard_close(&g);
    free(f.bytes);
}

// A changed K with a right checksum cannot be detected. It must change the logits, which shows that the file's rows are
// used.
static void test_changed_value(void **state) {
    (void)state;
    Bytes f = saved(&smallest, 6);
    Engine e;
    GreedyRun *want = mem_alloc(sizeof *want), *got = mem_alloc(sizeof *got);
    const char *path = test_tmp("changed.kv");
    open_engine(&e, &smallest);
    size_t rows = KV_BYTES_START + 16 + KV_HEAD + 16 + 6 * 4;
    for (int change = 0; change < 3; change++) { // changes nothing, the first K, or the last V of the first layer
        size_t at = rows + 8 + 12 + (change == 2 ? 5 * 32 - 4 : 0);
        float x;
        memcpy(&x, f.bytes + at, sizeof x);
        x += change ? 1 : 0;
        memcpy(f.bytes + at, &x, sizeof x);
        kv_mend(f.bytes, f.n);
        write_bytes(path, f.bytes, f.n);
        Sequence s = {0};
        assert_ok(kvfile_load(path, &e, &s));
        generate(&e, &s, 1, change ? got : want);
        if (change) assert_memory_not_equal(want->logits, got->logits, ENGINE_VOCAB * sizeof(float));
        release(&e, &s);
    }
    engine_close(&e);
    free(want);
    free(got);
    free(f.bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flipped_bytes),  cmocka_unit_test(test_cut_and_longer),
        cmocka_unit_test(test_wrong_frames),   cmocka_unit_test(test_hostile_header),
        cmocka_unit_test(test_hostile_sealed), cmocka_unit_test(test_hostile_frames),
        cmocka_unit_test(test_changed_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
