/* Allocators for the program and its libraries that fail on request. */
#ifndef SCARCE_H
#define SCARCE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

/* Number of allocations that still succeed, in all threads together. */
static atomic_long left = -1;
static atomic_int is_scarce, failed;

static int refused(void)
{
    if (!atomic_load(&is_scarce) || atomic_fetch_sub(&left, 1) > 0) {
        return 0;
    }
    atomic_store(&failed, 1);
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) { return refused() ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return refused() ? NULL : __libc_calloc(count, size); }
void *realloc(void *memory, size_t size) { return refused() ? NULL : __libc_realloc(memory, size); }
void *aligned_alloc(size_t alignment, size_t size) { return refused() ? NULL : __libc_memalign(alignment, size); }
int posix_memalign(void **memory, size_t alignment, size_t size)
{
    *memory = refused() ? NULL : __libc_memalign(alignment, size);
    return *memory == NULL ? ENOMEM : 0;
}

#endif
