// tests/test_tempfile.c: files that appear complete or not at all, and the removal of temporary files whose writers
// were killed.
#define _GNU_SOURCE // tests/rig/directory.h
#include "tests/rig/testing.h"

#include "base/signals.h"
#include "base/tempfile.h"
#include "tests/rig/directory.h"

#include <errno.h>
#include <fcntl.h>
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
        snprintf(name, sizeof name, "%s.quill-tmp-a%05d", path, i);
        write_text(name, "old");
    }
    assert_ok(tempfile_open(path, 0666, &d));
    assert_ok(tempfile_publish(&d, OK));
    assert_int_equal(entries(), 1);
}

typedef enum { BEFORE_CATCH, TWICE, AFTER_RELEASE, HELD } Killed;

// A child process that has published one file and writes two others when a signal kills it.
static void die_of_a_signal(int number, Killed when) {
    pid_t child = fork();
    if (child == 0) {
        TempFile whole, half[2];
        char other[4200];
        snprintf(other, sizeof other, "%s.other", path);
        signal(number, SIG_DFL); // SIGINT is ignored where the tests run in the background
        if (tempfile_open(path, 0666, &whole).code || tempfile_publish(&whole, OK).code) _exit(1);
        if (tempfile_open(path, 0666, &half[0]).code || tempfile_open(other, 0666, &half[1]).code) _exit(1);
        if (when != BEFORE_CATCH) signals_catch();
        if (when == TWICE && (raise(number) != 0 || signals_caught() != number || entries() != 3)) _exit(1);
        if (when == AFTER_RELEASE) signals_release();
        if (when == HELD) signals_release(), signals_hold(true);
        raise(number);
        if (when == HELD && !tempfile_publish(&half[1], OK).code) signals_hold(false);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == number);
}

// The signal that kills a process removes its temporary files. The published file remains.
static void test_signals(void **state) {
    (void)state;
    static const int numbers[] = {SIGINT, SIGTERM};
    char other[4200];
    snprintf(other, sizeof other, "%s.other", path);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        for (Killed when = BEFORE_CATCH; when <= HELD; when++) {
            die_of_a_signal(numbers[i], when);
            expect_text(path, "");
            assert_int_equal(entries(), 1 + (when == HELD)); // with the file that the process published meanwhile
        }
        unlink(other);
    }
}

// Files whose names only resemble temporary files, and temporary files of other files, must stay.
static void test_not_ours(void **state) {
    (void)state;
    static const char *const endings[] = {".tmp",
                                          ".quill-tmp-",
                                          ".quill-tmp-abc12",
                                          ".quill-tmp-abc1234",
                                          ".quill-tmp-ABC123",
                                          ".quill-tmp-abc123.txt",
                                          "2.quill-tmp-abc123",
                                          ".quill-backup"};
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

static mode_t mode_of(const char *where) {
    struct stat info;
    assert_int_equal(lstat(where, &info), 0);
    return info.st_mode;
}

static Status put(const char *where, const char *text) {
    TempFile d;
    TRY(tempfile_check(where));
    TRY(tempfile_open(where, 0666, &d));
    return tempfile_publish(&d, fd_write_all(d.fd, text, strlen(text)));
}

// A file keeps its mode, and a link leads to the new file, also one that led nowhere and one through another folder.
static void test_links(void **state) {
    (void)state;
    char link[4200], far[4200];
    mode_t mask = umask(022);
    for (mode_t mode = 0600; mode <= 0666; mode += 066) {
        write_text(path, "old");
        assert_int_equal(chmod(path, mode), 0);
        assert_ok(put(path, "new"));
        assert_int_equal(mode_of(path), S_IFREG | mode);
    }
    umask(mask);
    snprintf(link, sizeof link, "%s.link", path);
    snprintf(far, sizeof far, "%s.far", path);
    assert_int_equal(symlink("file.kv", link), 0);
    assert_int_equal(symlink(link, far), 0); // an absolute link to a relative one
    for (int i = 0; i < 2; i++) {
        assert_ok(put(far, i ? "third" : "second"));
        assert_true(S_ISLNK(mode_of(link)) && S_ISLNK(mode_of(far)) && S_ISREG(mode_of(path)));
        expect_text(path, i ? "third" : "second");
        assert_int_equal(entries(), 3);
        if (i == 0) unlink(path);
    }
    unlink(link);
    assert_int_equal(symlink("file.kv.far", link), 0); // the two lead to each other
    assert_int_equal(put(link, "none").code, QUILL_IO);
    assert_int_equal(entries(), 3);
}

// What is no file is never replaced: it is written, or refused before any work.
static void test_not_files(void **state) {
    (void)state;
    char got[8] = {0}, open_file[64];
    Status st = put("", "none");
    assert_int_equal(st.code, QUILL_USAGE);
    st = put(test_tmp("temp"), "none");
    assert_int_equal(st.code, QUILL_IO);
    assert_non_null(strstr(st.message, "/temp: a file to write expected, found a directory"));
    assert_int_equal(mkfifo(path, 0600), 0);
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    assert_ok(put(path, "text"));
    assert_int_equal(read(fd, got, sizeof got), 4);
    assert_string_equal(got, "text");
    close(fd);
    assert_true(S_ISFIFO(mode_of(path)));
    unlink(path);
    write_text(path, "before,");
    fd = open(path, O_WRONLY);
    snprintf(open_file, sizeof open_file, "/proc/self/fd/%d", fd); // as >(...) and /dev/stdout are
    assert_ok(put(open_file, "after"));
    close(fd);
    expect_text(path, "before,after");
    assert_int_equal(entries(), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_publish, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_signals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_ours, setup, teardown),
        cmocka_unit_test_setup_teardown(test_links, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_files, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
