// tests/rig/faults.c: a library for LD_PRELOAD that makes one call of the C library fail, as any call may.
//
//   FAULT_CLASS=alloc FAULT_N=17 LD_PRELOAD=./faults.so quill ...   the 17th allocation is refused
//   FAULT_CLASS=alloc FAULT_N=0 FAULT_COUNT=FILE ...                none fails; FILE gets the number of calls
//
// Classes of calls, and how the chosen call fails:
//   alloc          malloc, calloc, realloc give NULL
//   mmap           MAP_FAILED, ENOMEM
//   open           open, openat, fopen, opendir: EMFILE
//   read write     EIO; ENOSPC, except on stderr, which must report the error
//   fsync rename   EIO; EACCES
//   stat           fstat, stat, fstatat, access, lseek, flock: EIO
//   thread         pthread_create: EAGAIN
//   short-read short-write    half of the bytes, at least one
//   again-read again-write    EAGAIN, as from a non-blocking descriptor; the caller waits and tries again
//   break-read break-write    EINTR
// Calls inside the C library are seen only if they go through its own symbol table: mostly allocations.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char class[32];
static long turn;
static atomic_long seen;
static atomic_bool ready;

// Calls count while the program's main runs. Calls that libraries make before and after main are ignored: the CUDA
// runtime registers its kernels then, and does not check the result of malloc.
static int (*program)(int, char **, char **);

static int watched(int argc, char **argv, char **environment) {
    const char *name = getenv("FAULT_CLASS"), *n = getenv("FAULT_N");
    if (name && n) {
        strncpy(class, name, sizeof class - 1);
        turn = atol(n);
        atomic_store(&ready, true);
    }
    int code = program(argc, argv, environment);
    atomic_store(&ready, false);
    return code;
}

typedef int Start(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

int __libc_start_main(int (*entry)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*finish)(void), void (*unload)(void), void *stack) {
    program = entry;
    return ((Start *)dlsym(RTLD_NEXT, "__libc_start_main"))(watched, argc, argv, init, finish, unload, stack);
}

__attribute__((destructor)) static void end(void) {
    const char *path = getenv("FAULT_COUNT");
    if (!path) return;
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", atomic_load(&seen));
    long fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd >= 0) syscall(SYS_write, (int)fd, text, (size_t)n), syscall(SYS_close, (int)fd);
}

// Whether this call must fail; sets errno.
static bool strike(const char *of, int error) {
    if (!atomic_load(&ready) || strcmp(class, of) != 0) return false;
    if (atomic_fetch_add(&seen, 1) + 1 != turn) return false;
    errno = error;
    return true;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

// ---- memory ---------------------------------------------------------------------------------------------------------

extern void *__libc_malloc(size_t n), *__libc_calloc(size_t n, size_t size), *__libc_realloc(void *p, size_t n);

void *malloc(size_t n) { return strike("alloc", ENOMEM) ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return strike("alloc", ENOMEM) ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return strike("alloc", ENOMEM) ? NULL : __libc_realloc(p, n); }

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    if (strike("mmap", ENOMEM)) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
}

// ---- files ----------------------------------------------------------------------------------------------------------

int open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return strike("open", EMFILE) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return strike("open", EMFILE) ? -1 : (int)syscall(SYS_openat, dir, path, flags, mode);
}

FILE *fopen(const char *path, const char *how) { return strike("open", EMFILE) ? NULL : NEXT(fopen)(path, how); }
DIR *opendir(const char *path) { return strike("open", EMFILE) ? NULL : NEXT(opendir)(path); }

ssize_t read(int fd, void *out, size_t n) {
    if (strike("read", EIO) || strike("again-read", EAGAIN) || strike("break-read", EINTR)) return -1;
    if (strike("short-read", 0)) n = n > 1 ? n / 2 : n;
    return syscall(SYS_read, fd, out, n);
}

ssize_t write(int fd, const void *bytes, size_t n) {
    if ((fd != STDERR_FILENO && strike("write", ENOSPC)) || strike("again-write", EAGAIN) ||
        strike("break-write", EINTR))
        return -1;
    if (strike("short-write", 0)) n = n > 1 ? n / 2 : n;
    return syscall(SYS_write, fd, bytes, n);
}

int fsync(int fd) { return strike("fsync", EIO) ? -1 : (int)syscall(SYS_fsync, fd); }
int rename(const char *from, const char *to) { return strike("rename", EACCES) ? -1 : NEXT(rename)(from, to); }
int fstat(int fd, struct stat *out) { return strike("stat", EIO) ? -1 : NEXT(fstat)(fd, out); }
int stat(const char *path, struct stat *out) { return strike("stat", EIO) ? -1 : NEXT(stat)(path, out); }
int fstatat(int dir, const char *path, struct stat *out, int flags) {
    return strike("stat", EIO) ? -1 : NEXT(fstatat)(dir, path, out, flags);
}
int access(const char *path, int how) { return strike("stat", EIO) ? -1 : NEXT(access)(path, how); }
off_t lseek(int fd, off_t at, int from) { return strike("stat", EIO) ? -1 : NEXT(lseek)(fd, at, from); }
int flock(int fd, int how) { return strike("stat", EIO) ? -1 : NEXT(flock)(fd, how); }

// ---- threads --------------------------------------------------------------------------------------------------------

int pthread_create(pthread_t *out, const pthread_attr_t *how, void *(*run)(void *), void *arg) {
    return strike("thread", 0) ? EAGAIN : NEXT(pthread_create)(out, how, run, arg);
}
