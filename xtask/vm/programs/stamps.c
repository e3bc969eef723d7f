/* A preloaded library (LD_PRELOAD) that measures dat_ep_free and the calls that it makes. For each call it prints the count, and the means of the elapsed time and of
 * the thread's processor time, in nanoseconds. The elapsed time includes other work of the processor. It writes one line per call to standard output:
 *
 *     stamps CALL COUNT CLOCK PROCESSOR
 *
 * and one with the first begin and the last end of dat_ep_free on the clock, in microseconds since the guest began:
 *
 *     stamps-span BEGIN END
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum call { EP_FREE, DESTROY_ID, DESTROY_QP, MUNMAP, CALLS };

static const char *const names[CALLS] = {"dat_ep_free", "rdma_destroy_id", "ibv_destroy_qp", "munmap"};

struct stamp {
    uint64_t clock;
    uint64_t processor;
};

static struct sum {
    uint64_t count;
    struct stamp taken;
} sums[CALLS];

static uint64_t begin, end;

/* Set during dat_ep_free; other calls do not count. */
static _Thread_local int is_freeing;

static uint64_t nanoseconds(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static struct stamp now(void)
{
    struct stamp stamp = {nanoseconds(CLOCK_MONOTONIC), nanoseconds(CLOCK_THREAD_CPUTIME_ID)};
    return stamp;
}

/* Programs free from one thread. */
static void add(enum call call, struct stamp before)
{
    struct stamp after = now();
    if (!is_freeing)
        return;
    sums[call].count++;
    sums[call].taken.clock += after.clock - before.clock;
    sums[call].taken.processor += after.processor - before.processor;
}

typedef unsigned (*free_t)(void *);
typedef int (*destroy_t)(void *);

static void *next(enum call call)
{
    return dlsym(RTLD_NEXT, names[call]);
}

unsigned dat_ep_free(void *endpoint)
{
    static free_t function;
    unsigned result;
    struct stamp before;
    if (!function)
        function = (free_t)next(EP_FREE);
    is_freeing = 1;
    before = now();
    if (begin == 0)
        begin = before.clock;
    result = function(endpoint);
    add(EP_FREE, before);
    is_freeing = 0;
    end = nanoseconds(CLOCK_MONOTONIC);
    return result;
}

int rdma_destroy_id(void *id)
{
    static destroy_t function;
    struct stamp before;
    int result;
    if (!function)
        function = (destroy_t)next(DESTROY_ID);
    before = now();
    result = function(id);
    add(DESTROY_ID, before);
    return result;
}

int ibv_destroy_qp(void *queue_pair)
{
    static destroy_t function;
    struct stamp before;
    int result;
    if (!function)
        function = (destroy_t)next(DESTROY_QP);
    before = now();
    result = function(queue_pair);
    add(DESTROY_QP, before);
    return result;
}

int munmap(void *address, size_t length)
{
    struct stamp before = now();
    int result = (int)syscall(SYS_munmap, address, length);
    add(MUNMAP, before);
    return result;
}

__attribute__((destructor)) static void tell(void)
{
    for (int call = 0; call < CALLS; call++) {
        const struct sum *sum = &sums[call];
        if (sum->count > 0)
            printf("stamps %s %lu %lu %lu\n", names[call], (unsigned long)sum->count, (unsigned long)(sum->taken.clock / sum->count),
                   (unsigned long)(sum->taken.processor / sum->count));
    }
    if (begin != 0)
        printf("stamps-span %lu %lu\n", (unsigned long)(begin / 1000), (unsigned long)(end / 1000));
}
