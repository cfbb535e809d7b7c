// tests/test_imatrix.c: importance matrices: both file formats, invalid files, and pruning of rows.
#include "tests/rig/testing.h"

#include "files/gguf.h"
#include "files/imatrix.h"
#include "formats/types.h"
#include "quantize/importance.h"
#include "quantize/prune.h"

static void check_entry(const Imatrix *m, const char *weight, const float *want, int n) {
    int found, n_mat;
    const float *mean = imatrix_of(m, str_of(weight), &found, &n_mat);
    assert_non_null(mean);
    assert_int_equal(found, n);
    assert_int_equal(n_mat, 1);
    for (int i = 0; i < n; i++) assert_true(fabsf(mean[i] - want[i]) < 1e-6f);
}

static void test_written_and_read(void **state) {
    (void)state;
    const double a[] = {8, 4, 0}, b[] = {1, 2}, counts[] = {4, 1};
    const ImatrixSums sums[] = {{str_of("blk.0.attn_q.weight"), a, 3, 1, counts},
                                {str_of("output.weight"), b, 2, 1, counts + 1}};
    const char *path = test_tmp("imatrix.gguf");
    assert_ok(imatrix_save(path, sums, 2, "text.txt", 7, 512));
    Imatrix *m;
    assert_ok(imatrix_open(path, &m));
    assert_int_equal(imatrix_count(m), 2);
    assert_int_equal(imatrix_chunks(m), 7);
    assert_string_equal(imatrix_text(m), "text.txt");
    check_entry(m, "blk.0.attn_q.weight", (float[]){2, 1, 0}, 3);
    check_entry(m, "output.weight", (float[]){1, 2}, 2);
    int n, n_mat;
    assert_null(imatrix_of(m, str_of("blk.1.attn_q.weight"), &n, &n_mat));
    imatrix_close(m);
}

// Experts have a row of counts. An expert that no token has chosen gets equal values for all columns.
static void test_experts(void **state) {
    (void)state;
    const float sums[] = {2, 4, 5, 6, 0, 0}, counts[] = {2, 1, 0};
    Gguf *g = gguf_new("experts");
    gguf_add_tensor(g, "blk.0.ffn_up_exps.weight.in_sum2", TYPE_F32, 2, 3, sums, NULL, 0);
    gguf_add_tensor(g, "blk.0.ffn_up_exps.weight.counts", TYPE_F32, 1, 3, counts, NULL, 0);
    assert_ok(gguf_save(g, test_tmp("experts.gguf")));
    gguf_close(g);
    Imatrix *m;
    assert_ok(imatrix_open(test_tmp("experts.gguf"), &m));
    int n, n_mat;
    const float *mean = imatrix_of(m, str_of("blk.0.ffn_up_exps.weight"), &n, &n_mat);
    assert_int_equal(n, 2);
    assert_int_equal(n_mat, 3);
    const float want[] = {1, 2, 5, 6, 1, 1};
    assert_memory_equal(mean, want, sizeof want);
    imatrix_close(m);
}

// ---- the older form -------------------------------------------------------------------------------------------------

static void put_int(Buf *b, int32_t v) { buf_append(b, &v, sizeof v); }

static Buf dat_bytes(int n_entries, float first) {
    Buf b = {0};
    const float values[] = {first, 6};
    put_int(&b, n_entries);
    put_int(&b, 8);
    buf_str(&b, "a.weight");
    put_int(&b, 2); // number of chunks
    put_int(&b, 2);
    buf_append(&b, values, sizeof values);
    put_int(&b, 5);
    put_int(&b, 4);
    buf_str(&b, "text");
    return b;
}

// The older form has the values of all experts in one row.
static void test_older_form_of_experts(void **state) {
    (void)state;
    Buf b = {0};
    const float values[] = {2, 6, 5, 5, 0, 0};
    put_int(&b, 1);
    put_int(&b, 3);
    buf_str(&b, "e.w");
    put_int(&b, 1);
    put_int(&b, 6);
    buf_append(&b, values, sizeof values);
    Imatrix *m;
    assert_ok(imatrix_read_dat("old.dat", b.data, b.n, &m));
    buf_free(&b);
    Gguf *g = gguf_new("experts");
    float weights[12] = {0};
    gguf_add_tensor(g, "e.w", TYPE_F32, 2, 2, weights, NULL, 0);
    GgufTensor t = *gguf_tensor(g, "e.w");
    t.dims[2] = 3;
    float *importance = importance_of(m, &t);
    const float want[] = {0.5f, 1.5f, 1, 1, 1, 1};
    for (int i = 0; i < 6; i++) assert_true(fabsf(importance[i] - want[i]) < 1e-6f);
    free(importance);
    gguf_close(g);
    imatrix_close(m);
}

static void test_older_form(void **state) {
    (void)state;
    Buf b = dat_bytes(1, 3);
    Imatrix *m;
    assert_ok(imatrix_read_dat("old.dat", b.data, b.n, &m));
    check_entry(m, "a.weight", (float[]){1.5f, 3}, 2);
    assert_int_equal(imatrix_chunks(m), 5);
    assert_string_equal(imatrix_text(m), "text");
    imatrix_close(m);
    assert_ok(imatrix_read_dat("old.dat", b.data, b.n - 12, &m)); // without the name of the text
    assert_string_equal(imatrix_text(m), "");
    imatrix_close(m);
    buf_free(&b);
}

static void refused(const void *bytes, size_t n, const char *part) {
    Imatrix *m;
    char *exact = mem_copy(bytes, n); // exact size: a sanitizer sees a read past the end
    Status st = imatrix_read_dat("bad.dat", exact, n, &m);
    free(exact);
    assert_int_equal(st.code, QUILL_MODEL);
    assert_null(m);
    if (!strstr(st.message, part) || !strstr(st.message, "bad.dat")) fail_msg("%s", st.message);
}

static void test_damaged_files_are_refused(void **state) {
    (void)state;
    Buf b = dat_bytes(1, 3);
    for (size_t n = 0; n < b.n; n++)
        if (n != b.n - 12) refused(b.data, n, "");
    buf_free(&b);
    b = dat_bytes(2, 3);
    refused(b.data, b.n, "");
    buf_free(&b);
    b = dat_bytes(1, NAN);
    refused(b.data, b.n, "a finite number that is not negative expected");
    buf_free(&b);
    b = dat_bytes(1, -1);
    refused(b.data, b.n, "a finite number that is not negative expected");
    buf_free(&b);
}

static void test_gguf_files_that_are_none(void **state) {
    (void)state;
    static const float values[4] = {1, 2, 3, 4};
    Imatrix *m;
    for (int kind = 0; kind < 3; kind++) {
        Gguf *g = gguf_new("none");
        if (kind == 0) gguf_add_tensor(g, "a.weight", TYPE_F32, 4, 1, values, NULL, 0);
        else gguf_add_tensor(g, "a.weight.in_sum2", TYPE_F32, 2, 2, values, NULL, 0);
        if (kind == 2) gguf_add_tensor(g, "a.weight.counts", TYPE_F32, 1, 1, values, NULL, 0);
        assert_ok(gguf_save(g, test_tmp("none.gguf")));
        gguf_close(g);
        Status st = imatrix_open(test_tmp("none.gguf"), &m);
        assert_int_equal(st.code, QUILL_MODEL);
        assert_non_null(strstr(st.message, kind ? "a.weight.counts" : "*.in_sum2"));
    }
}

// ---- pruning --------------------------------------------------------------------------------------------------------

static void prune(const char *what, const char *by, float *x, const float *norms, int n) {
    PruneRule rule;
    float *scratch = mem_alloc((size_t)n * sizeof *scratch);
    assert_ok(prune_parse(what, by, &rule));
    prune_row(&rule, x, norms, (size_t)n, scratch);
    free(scratch);
}

static void test_groups(void **state) {
    (void)state;
    float x[] = {1, -4, 3, 2, 5, 5, 5, 5, 9, 1};
    prune("2:4", "magnitude", x, NULL, 10);
    // of equal weights the later ones are removed; an incomplete group does not change
    const float want[] = {0, -4, 3, 0, 5, 5, 0, 0, 9, 1};
    assert_memory_equal(x, want, sizeof want);
    float y[] = {1, -4, 3, 2}, norms[] = {10, 1, 1, 3};
    prune("2:4", "wanda", y, norms, 4);
    const float by_norm[] = {1, 0, 0, 2};
    assert_memory_equal(y, by_norm, sizeof by_norm);
}

static void test_shares(void **state) {
    (void)state;
    uint64_t random = 1;
    for (int n = 1; n < 300; n += 13)
        for (int kind = 0; kind < 3; kind++) {
            float x[300], norms[300], score[300], least_kept = INFINITY, most_gone = 0;
            for (int i = 0; i < n; i++) {
                x[i] = kind == 2 ? 1 : (float)(1 + test_random(&random) % 9) * (i % 2 ? -1.0f : 1.0f);
                norms[i] = (float)(1 + test_random(&random) % 4);
                score[i] = fabsf(x[i]) * (kind ? norms[i] : 1);
            }
            prune("0.4", kind ? "wanda" : "magnitude", x, kind ? norms : NULL, n);
            int gone = 0;
            for (int i = 0; i < n; i++) {
                gone += x[i] == 0;
                if (x[i] == 0) most_gone = fmaxf(most_gone, score[i]);
                else least_kept = fminf(least_kept, score[i]);
            }
            assert_int_equal(gone, (int)(0.4 * n));
            assert_true(most_gone <= least_kept);
        }
}

// A share in hundredths of a row of hundreds is a whole number, although most shares have no exact double.
static void test_whole_shares(void **state) {
    (void)state;
    for (int hundredths = 1; hundredths < 100; hundredths++)
        for (int hundreds = 1; hundreds <= 40; hundreds++) {
            int n = 100 * hundreds, gone = 0;
            float *x = mem_alloc((size_t)n * sizeof *x);
            char share[8];
            snprintf(share, sizeof share, "0.%02d", hundredths);
            for (int i = 0; i < n; i++) x[i] = (float)(i + 1);
            prune(share, "magnitude", x, NULL, n);
            for (int i = 0; i < n; i++) gone += x[i] == 0;
            assert_int_equal(gone, hundredths * hundreds);
            free(x);
        }
}

static void test_rules_that_are_none(void **state) {
    (void)state;
    PruneRule rule;
    const char *bad[] = {"", "1", "0", "-0.5", "nan", "4:2", "0:4", "2:4x", "2:400", "half"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) assert_int_equal(prune_parse(bad[i], "wanda", &rule).code, QUILL_USAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_and_read),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_older_form),
        cmocka_unit_test(test_older_form_of_experts),
        cmocka_unit_test(test_damaged_files_are_refused),
        cmocka_unit_test(test_gguf_files_that_are_none),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_whole_shares),
        cmocka_unit_test(test_rules_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
