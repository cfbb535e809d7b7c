// tests/test_tempfile.c: files that appear complete or not at all, and the removal of temporary files whose writers
// were killed.
#define _GNU_SOURCE // tests/rig/directory.h
#include "tests/rig/testing.h"

#include "base/tempfile.h"
#include "tests/rig/directory.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char path[2048];

static int setup(void **state) {
    (void)state;
    mkdir(test_tmp("temp"), 0777);
    snprintf(path, sizeof path, "%s", test_tmp("temp/file.kv"));
    return 0;
}

static int teardown(void **state) {
    (void)state;
    remove_directory(test_tmp("temp"));
    return 0;
}

static int entries(void) { return count_entries(test_tmp("temp"), "") - 2; }

static void write_text(const char *where, const char *text) {
    FILE *f = fopen(where, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void expect_text(const char *where, const char *text) {
    Buf found = {0};
    assert_ok(file_read(where, &found));
    assert_string_equal(found.data, text);
    buf_free(&found);
}

// Two writers of the same file do not disturb each other. After a failure the old file remains, and no temporary file.
static void test_publish(void **state) {
    (void)state;
    TempFile a, b;
    assert_ok(tempfile_open(path, 0640, &a));
    assert_ok(tempfile_open(path, 0666, &b)); // the first temporary file is locked, so it stays
    assert_string_not_equal(a.tmp, b.tmp);
    assert_ok(fd_write_all(a.fd, "first", 5));
    assert_ok(fd_write_all(b.fd, "second", 6));
    assert_ok(tempfile_publish(&a, OK));
    expect_text(path, "first");
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777 & ~0640u, 0);
    assert_ok(tempfile_publish(&b, OK));
    expect_text(path, "second");
    assert_int_equal(entries(), 1);
    assert_ok(tempfile_open(path, 0666, &a));
    Status st = tempfile_publish(&a, status_error(QUILL_IO, "the disk is full"));
    assert_int_equal(st.code, QUILL_IO);
    assert_non_null(strstr(st.message, "the disk is full"));
    assert_ok(tempfile_open(path, 0666, &a));
    st = tempfile_publish(&a, (Status){.code = 130}); // a status of a signal has no message
    assert_int_equal(st.code, 130);
    assert_string_equal(st.message, "");
    expect_text(path, "second");
    assert_int_equal(entries(), 1);
}

// A child process that is killed while it writes.
static void die_writing(void) {
    pid_t child = fork();
    if (child == 0) {
        TempFile d;
        if (tempfile_open(path, 0666, &d).code) _exit(1);
        if (fd_write_all(d.fd, "half", 4).code) _exit(1);
        kill(getpid(), SIGKILL);
    }
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status));
}

static void test_killed(void **state) {
    (void)state;
    TempFile d;
    for (int i = 0; i < 20; i++) {
        die_writing();
        assert_int_equal(entries(), 1); // each writer removes the file of the killed one before it
    }
    assert_ok(tempfile_open(path, 0666, &d));
    assert_int_equal(entries(), 1);
    assert_ok(tempfile_publish(&d, OK));
    assert_int_equal(entries(), 1);
    // Thousands of files in the folder: opening must only list them once.
    char name[4200];
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "%s.quill-a%05d", path, i);
        write_text(name, "old");
    }
    assert_ok(tempfile_open(path, 0666, &d));
    assert_ok(tempfile_publish(&d, OK));
    assert_int_equal(entries(), 1);
}

// Files whose names only resemble temporary files, and temporary files of other files, must stay.
static void test_not_ours(void **state) {
    (void)state;
    static const char *const endings[] = {".tmp",          ".quill-",           ".quill-abc12",  ".quill-abc1234",
                                          ".quill-ABC123", ".quill-abc123.txt", "2.quill-abc123"};
    char name[4200];
    for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
        snprintf(name, sizeof name, "%s%s", path, endings[i]);
        write_text(name, "theirs");
    }
    TempFile d;
    assert_ok(tempfile_open(path, 0666, &d));
    assert_ok(tempfile_publish(&d, OK));
    for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
        snprintf(name, sizeof name, "%s%s", path, endings[i]);
        expect_text(name, "theirs");
    }
    Status st = tempfile_open(test_tmp("temp/none/file"), 0666, &d);
    assert_int_equal(st.code, QUILL_IO);
    assert_non_null(strstr(st.message, "cannot create: No such file"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_publish, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_ours, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
