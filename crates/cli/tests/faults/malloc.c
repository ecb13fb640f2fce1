// To be preloaded: the n-th allocation of a program fails, once (KIBAN_REFUSE_ALLOCATION=n, from 1).
#include <errno.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);
static long left;

__attribute__((constructor)) static void begin(void) {
    const char *n = getenv("KIBAN_REFUSE_ALLOCATION");
    __atomic_store_n(&left, n ? atol(n) : 0, __ATOMIC_SEQ_CST);
}

static int refused(void) {
    if (__atomic_load_n(&left, __ATOMIC_RELAXED) <= 0 || __atomic_sub_fetch(&left, 1, __ATOMIC_SEQ_CST) != 0) return 0;
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
