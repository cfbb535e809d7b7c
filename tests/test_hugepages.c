// tests/test_hugepages.c: weights that are moved into huge pages must keep their addresses and their bytes.
#define _GNU_SOURCE
#include "tests/rig/testing.h"

#include "files/hugepages.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { N_PAGES = 4, ODD = 12345 }; // N_PAGES: whole huge pages that a mapping contains at any address

static size_t file_bytes(void) { return (N_PAGES + 1) * HUGE_PAGE + ODD; }

// A file that is removed when it is closed: on the disk, or in memory, where the system itself makes huge pages.
static FILE *new_file(bool in_memory, char path[1024]) {
    int fd = in_memory ? memfd_create("hugepages", 0) : -1;
    if (in_memory) snprintf(path, 1024, "/proc/self/fd/%d", fd);
    else snprintf(path, 1024, "%s", test_tmp("hugepages.bin"));
    FILE *f = in_memory ? fdopen(fd, "wb") : fopen(path, "wb");
    assert_non_null(f);
    return f;
}

static void map_file(Gguf *g, FILE *f, const char *path) {
    FileMap map;
    assert_int_equal(fflush(f), 0);
    assert_ok(file_map(path, &map));
    gguf_own_map(g, map);
    fclose(f);
    unlink(path);
}

// A view of `n_files` mapped files of random bytes.
static Gguf *mapped(int n_files, bool in_memory) {
    Gguf *g = gguf_new("hugepages");
    uint64_t seed = 7;
    for (int i = 0; i < n_files; i++) {
        char path[1024];
        FILE *f = new_file(in_memory, path);
        for (size_t at = 0; at < file_bytes(); at += 8) {
            uint64_t word = test_random(&seed);
            size_t n = file_bytes() - at < 8 ? file_bytes() - at : 8;
            assert_int_equal(fwrite(&word, 1, n, f), n);
        }
        map_file(g, f, path);
    }
    return g;
}

static void assert_unchanged(const Gguf *g) {
    int n;
    const FileMap *maps = gguf_maps(g, &n);
    uint64_t seed = 7;
    for (int i = 0; i < n; i++)
        for (size_t at = 0; at < maps[i].n; at += 8) {
            uint64_t word = test_random(&seed);
            if (memcmp(maps[i].data + at, &word, maps[i].n - at < 8 ? maps[i].n - at : 8) != 0)
                fail_msg("map %d: byte %zu has changed", i, at);
        }
}

// The permissions of the mapping that contains an address, such as "r--s".
static void permissions_at(const void *at, char out[5]) {
    FILE *f = fopen("/proc/self/maps", "r");
    char line[512];
    out[0] = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        unsigned long from, to;
        char found[5];
        if (sscanf(line, "%lx-%lx %4s", &from, &to, found) == 3 && (uintptr_t)at >= from && (uintptr_t)at < to)
            memcpy(out, found, 5);
    }
    fclose(f);
}

static const uint8_t *middle_of(const Gguf *g) {
    int n;
    return gguf_maps(g, &n)[0].data + file_bytes() / 2;
}

static void check_moves(int threads, size_t most, bool in_memory) {
    Gguf *g = mapped(2, in_memory);
    int n, calls = 1;
    const uint8_t *before[] = {gguf_maps(g, &n)[0].data, gguf_maps(g, &n)[1].data};
    HugePages s = {.gguf = g, .pool = threads_new(threads)};
    while (hugepages_convert(&s, most)) assert_true(++calls < 100);
    assert_int_equal(s.how, HUGEPAGES_OVER);
    for (int i = 0; i < 2; i++) assert_ptr_equal(gguf_maps(g, &n)[i].data, before[i]);
    assert_unchanged(g);
    char found[5];
    permissions_at(middle_of(g), found);
    assert_memory_equal(found, "r--", 3);
    assert_false(hugepages_convert(&s, SIZE_MAX)); // nothing is left to move
    assert_unchanged(g);
    threads_free(s.pool);
    gguf_close(g);
}

static void test_bytes_and_addresses(void **state) {
    (void)state;
    for (int threads = 1; threads <= 3; threads += 2)
        for (int in_memory = 0; in_memory < 2; in_memory++) {
            check_moves(threads, 1, in_memory);
            check_moves(threads, SIZE_MAX, in_memory);
        }
}

// If the system has huge pages, all bytes are in them now, except the parts at the ends of two files.
static void test_they_are_huge(void **state) {
    (void)state;
    Gguf *g = mapped(2, false);
    HugePages s = {.gguf = g, .pool = threads_new(2)};
    hugepages_convert(&s, HUGE_PAGE);
    bool first_was = s.done > 0 && s.how != HUGEPAGES_OVER;
    hugepages_convert(&s, SIZE_MAX);
    if (first_was) assert_true(gguf_huge_bytes(g) >= N_PAGES * HUGE_PAGE); // less than all if memory is fragmented
    threads_free(s.pool);
    gguf_close(g);
    if (!first_was) {
        print_message("skipped: the system gives no huge pages\n");
        skip();
    }
}

static void test_no_huge_pages(void **state) {
    (void)state;
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
    Gguf *g = mapped(1, false);
    HugePages s = {.gguf = g, .pool = threads_new(2)};
    assert_false(hugepages_convert(&s, SIZE_MAX));
    assert_int_equal(gguf_huge_bytes(g), 0);
    assert_true(s.done <= HUGE_PAGE); // it stopped after the first page
    assert_unchanged(g);
    threads_free(s.pool);
    gguf_close(g);
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
}

// If another mapping of the file has moved it into huge pages, they are huge for this mapping too, and nothing is
// moved.
static void test_huge_already(void **state) {
    (void)state;
    Gguf *first = mapped(1, true), *second = gguf_new("again");
    char path[1024];
    FILE *f = new_file(true, path);
    int n;
    const FileMap *map = gguf_maps(first, &n);
    assert_int_equal(fwrite(map->data, 1, map->n, f), map->n);
    assert_int_equal(fflush(f), 0);
    FileMap twice[2];
    assert_ok(file_map(path, &twice[0]));
    assert_ok(file_map(path, &twice[1]));
    fclose(f);
    gguf_close(first);
    first = gguf_new("first");
    gguf_own_map(first, twice[0]);
    gguf_own_map(second, twice[1]);
    HugePages s = {.gguf = first, .pool = threads_new(1)}, again = {.gguf = second, .pool = s.pool};
    hugepages_convert(&s, 1);
    bool collapses = s.how == HUGEPAGES_COLLAPSE;
    hugepages_convert(&s, SIZE_MAX);
    assert_false(collapses && hugepages_convert(&again, SIZE_MAX));
    assert_int_equal(again.done, 0);
    assert_unchanged(second);
    threads_free(s.pool);
    gguf_close(first);
    gguf_close(second);
}

// If the system takes too long, moving stops: moved pages stay, and the rest stays where it is.
static void test_patience(void **state) {
    (void)state;
    Gguf *g = mapped(3, false);
    HugePages s = {.gguf = g, .pool = threads_new(1), .patience = 1e-9};
    assert_false(hugepages_convert(&s, SIZE_MAX));
    assert_true(s.done < 2 * file_bytes());
    assert_unchanged(g);
    threads_free(s.pool);
    gguf_close(g);
}

// Without memory for a copy, the file stays mapped, or its own pages become huge.
static void test_no_memory(void **state) {
    (void)state;
    Gguf *g = mapped(1, false);
    HugePages s = {.gguf = g, .pool = threads_new(1), .spare = SIZE_MAX - file_bytes()};
    hugepages_convert(&s, SIZE_MAX);
    char found[5];
    permissions_at(middle_of(g), found);
    assert_string_equal(found, "r--s");
    assert_unchanged(g);
    threads_free(s.pool);
    gguf_close(g);
}

static void test_nothing_to_convert(void **state) {
    (void)state;
    Gguf *g = gguf_new("small");
    HugePages none = {.gguf = g, .pool = threads_new(1)};
    assert_false(hugepages_convert(&none, SIZE_MAX)); // a view without a file
    char path[1024];
    FILE *f = new_file(false, path);
    fputs("less than a page", f);
    map_file(g, f, path);
    HugePages small = {.gguf = g, .pool = none.pool};
    assert_false(hugepages_convert(&small, SIZE_MAX));
    int n;
    assert_memory_equal(gguf_maps(g, &n)[0].data, "less than a page", 16);
    threads_free(none.pool);
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_and_addresses),
        cmocka_unit_test(test_they_are_huge),
        cmocka_unit_test(test_no_huge_pages),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_nothing_to_convert),
        cmocka_unit_test(test_huge_already),
        cmocka_unit_test(test_patience),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
