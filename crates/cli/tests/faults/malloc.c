// A preloaded library that counts allocations in a file of eight bytes (KIBAN_ALLOCATIONS), which a program shares with the
// programs that it executes. It makes the n-th allocation fail, once (KIBAN_REFUSE_ALLOCATION=n, from 1; 0: none).
//
// The file is mapped into memory, so the count is kept however the program ends.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);
static long nth, *count;

__attribute__((constructor)) static void begin(void) {
    const char *n = getenv("KIBAN_REFUSE_ALLOCATION"), *path = getenv("KIBAN_ALLOCATIONS");
    if (!path) return;
    int file = open(path, O_RDWR | O_CLOEXEC);
    void *at = file < 0 ? MAP_FAILED : mmap(0, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) {
        perror(path);
        _exit(125);
    }
    close(file);
    nth = n ? atol(n) : 0;
    __atomic_store_n(&count, at, __ATOMIC_SEQ_CST);
}

static int refused(void) {
    long *to = __atomic_load_n(&count, __ATOMIC_RELAXED);
    if (!to || __atomic_add_fetch(to, 1, __ATOMIC_SEQ_CST) != nth) return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t bytes) { return refused() ? 0 : __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes) { return refused() ? 0 : __libc_calloc(count, bytes); }
void *realloc(void *old, size_t bytes) { return refused() ? 0 : __libc_realloc(old, bytes); }
void *memalign(size_t at, size_t bytes) { return refused() ? 0 : __libc_memalign(at, bytes); }
void *aligned_alloc(size_t at, size_t bytes) { return refused() ? 0 : __libc_memalign(at, bytes); }
int posix_memalign(void **to, size_t at, size_t bytes) {
    *to = refused() ? 0 : __libc_memalign(at, bytes);
    return *to ? 0 : ENOMEM;
}
