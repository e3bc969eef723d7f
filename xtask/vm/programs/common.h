/* Shared by the programs over libdat: chance, patterns of bytes, memory, and the end by a signal. */
#ifndef COMMON_H
#define COMMON_H

#include <signal.h>

#define LOCAL ((DAT_MEM_PRIV_FLAGS)(DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG))

static inline unsigned next_random(unsigned long long *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (unsigned)(*state >> 20);
}

/* Returns byte `at` of the message or transfer of that number. */
static inline unsigned char byte_of(unsigned long long number, unsigned at)
{
    return (unsigned char)(number * 31 + at * 7 + (at >> 8));
}

static inline void fill(unsigned char *bytes, unsigned length, unsigned long long number)
{
    unsigned at;
    for (at = 0; at < length; at++)
        bytes[at] = byte_of(number, at);
}

/* Returns 1 if these are the bytes of that number; otherwise prints the first wrong one. */
static inline int is_intact(const unsigned char *bytes, unsigned length, unsigned long long number, const char *subject)
{
    unsigned at;
    for (at = 0; at < length && bytes[at] == byte_of(number, at); at++)
        ;
    if (at < length)
        fprintf(stderr, "%s: byte %u of number %llu is %#x and not %#x\n", subject, at, number, bytes[at], byte_of(number, at));
    return at == length;
}

/* Returns pages of zeros. */
static inline unsigned char *new_memory(size_t bytes)
{
    unsigned char *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    CHECK(memory != NULL);
    memset(memory, 0, bytes);
    return memory;
}

struct region {
    DAT_LMR_HANDLE handle;
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT remote;
};

static inline struct region registered(DAT_IA_HANDLE ia, DAT_PZ_HANDLE zone, void *memory, DAT_VLEN bytes, DAT_MEM_PRIV_FLAGS privileges)
{
    struct region region;
    DAT_REGION_DESCRIPTION description;
    DAT_VLEN size;
    DAT_VADDR address;
    description.for_va = memory;
    OK(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, description, bytes, zone, privileges, DAT_VA_TYPE_VA, &region.handle, &region.local,
                      &region.remote, &size, &address));
    return region;
}

static inline DAT_LMR_TRIPLET segment_of(DAT_LMR_CONTEXT context, const void *begin, DAT_VLEN length)
{
    DAT_LMR_TRIPLET segment;
    memset(&segment, 0, sizeof segment);
    segment.lmr_context = context;
    segment.virtual_address = (DAT_VADDR)(uintptr_t)begin;
    segment.segment_length = length;
    return segment;
}

static inline DAT_RMR_TRIPLET remote_segment(DAT_RMR_CONTEXT context, DAT_VADDR begin, DAT_VLEN length)
{
    DAT_RMR_TRIPLET segment;
    memset(&segment, 0, sizeof segment);
    segment.rmr_context = context;
    segment.target_address = begin;
    segment.segment_length = length;
    return segment;
}

static volatile int over;

static inline void end(int number)
{
    (void)number;
    over = 1;
}

/* Sets `over` at SIGTERM. */
static inline void end_by_signal(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = end;
    CHECK(sigaction(SIGTERM, &action, NULL) == 0);
}

#endif
