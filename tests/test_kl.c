// tests/test_kl.c: the divergence between the logits of two runs, against its definition; files of logits that do not
// match.
#include "tests/rig/testing.h"

#include "look/kl.h"

enum { VOCAB = 5, ROWS = 40 };

static void draw_logits(float logits[ROWS][VOCAB], uint64_t *random) {
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < VOCAB; i++) logits[r][i] = 8 * test_uniform(random);
}

static void write_base(const char *path, float logits[ROWS][VOCAB]) {
    KlRun k;
    assert_ok(kl_write(&k, path, VOCAB, ROWS, 7));
    for (int r = 0; r < ROWS; r++) assert_ok(kl_put(&k, logits[r]));
    assert_ok(kl_end(&k, OK));
}

static int softmax(const float *logits, double *p) {
    double sum = 0;
    int top = 0;
    for (int i = 0; i < VOCAB; i++) sum += p[i] = exp((double)logits[i]);
    for (int i = 0; i < VOCAB; i++) p[i] /= sum;
    for (int i = 1; i < VOCAB; i++)
        if (logits[i] > logits[top]) top = i;
    return top;
}

static void test_against_the_definition(void **state) {
    (void)state;
    static float a[ROWS][VOCAB], b[ROWS][VOCAB];
    uint64_t random = 1;
    draw_logits(a, &random);
    draw_logits(b, &random);
    memcpy(b[3], a[3], sizeof a[3]); // equal logits: no divergence
    a[4][2] = -INFINITY;             // a token with probability 0
    write_base(test_tmp("base.kl"), a);
    KlRun k;
    assert_ok(kl_open(&k, test_tmp("base.kl"), VOCAB, ROWS, 7));
    double mean = 0, most = 0, same = 0;
    for (int r = 0; r < ROWS; r++) {
        double p[VOCAB], q[VOCAB], want = 0;
        same += softmax(a[r], p) == softmax(b[r], q);
        for (int i = 0; i < VOCAB; i++) want += p[i] > 0 ? p[i] * log(p[i] / q[i]) : 0;
        kl_compare(&k, r, b[r]);
        assert_true(fabs(k.kl[r] - want) < 1e-12 * (1 + want));
        mean += want / ROWS;
        most = fmax(most, want);
    }
    KlSummary s = kl_summary(&k, ROWS);
    assert_true(k.kl[3] == 0);
    assert_true(fabs(s.mean - mean) < 1e-12 && fabs(s.most - most) < 1e-12);
    assert_true(fabs(s.same - same / ROWS) < 1e-12);
    assert_true(s.median > 0 && s.median < s.p99 && s.p99 <= s.most * 1.000001 && s.error > 0);
    assert_ok(kl_end(&k, OK));
}

static void refused(const char *path, int n_vocab, int n_rows, uint64_t text, const char *part) {
    KlRun k;
    Status st = kl_open(&k, path, n_vocab, n_rows, text);
    assert_int_equal(st.code, QUILL_MODEL);
    if (!strstr(st.message, part)) fail_msg("%s", st.message);
}

static void test_files_that_do_not_fit(void **state) {
    (void)state;
    static float a[ROWS][VOCAB];
    const char *path = test_tmp("fits.kl"), *cut = test_tmp("cut.kl");
    write_base(path, a);
    refused(path, VOCAB + 1, ROWS, 7, "logits of another model");
    refused(path, VOCAB, ROWS - 1, 7, "another text");
    refused(path, VOCAB, ROWS, 8, "another text");
    Buf bytes = {0};
    assert_ok(file_read(path, &bytes));
    for (size_t n = 0; n < bytes.n; n += 50) {
        FILE *f = fopen(cut, "wb");
        assert_int_equal(fwrite(bytes.data, 1, n, f), n);
        fclose(f);
        refused(cut, VOCAB, ROWS, 7, n < 24 ? "found another format" : "bytes expected");
    }
    buf_free(&bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_the_definition),
                                       cmocka_unit_test(test_files_that_do_not_fit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
