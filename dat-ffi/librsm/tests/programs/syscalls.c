/* Counts the system calls of transfers. */
#include "check.h"
#include "counted.h"
#include <sys/mman.h>

#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif

enum layout { TOGETHER, APART, HANDLES, LAYOUTS };
static const char *const layouts[LAYOUTS] = {"one buffer", "16 buffers", "a handle"};
typedef int (*mover)(rsm_scat_gath_t *);
static const mover movers[2] = {rsm_memseg_import_putv, rsm_memseg_import_getv};
static const char *const names[2] = {"putv", "getv"};

/* Vector and entries on one page. */
static struct {
    rsm_scat_gath_t vector;
    rsm_iovec_t entries[RSM_MAX_SGIOREQS];
} __attribute__((aligned(2048))) request;

/* Makes each call twice, the second time between marks. */
static void transfers(void)
{
    struct pair pair = open_pair(1, 0, RSM_PERM_RDWR);
    unsigned char *local = pages(2 * RSM_MAX_SGIOREQS);
    rsm_localmemory_handle_t handle;
    int layout, way, at, turn;
    OK(rsm_create_localmemory_handle(pair.controller, &handle, (char *)local, 2 * RSM_MAX_SGIOREQS * PAGE));
    for (layout = 0; layout < LAYOUTS; layout++) {
        for (way = 0; way < 2; way++) {
            memset(&request, 0, sizeof request);
            for (at = 0; at < RSM_MAX_SGIOREQS; at++) {
                rsm_iovec_t *entry = &request.entries[at];
                entry->io_type = layout == HANDLES ? RSM_HANDLE_TYPE : RSM_VA_TYPE;
                if (layout == HANDLES)
                    entry->local.handle = handle;
                else
                    entry->local.vaddr = (char *)local;
                entry->local_offset = layout == APART ? 2 * at * PAGE : 8 * at;
                entry->remote_offset = 8 * at;
                entry->transfer_length = 8;
            }
            request.vector.io_request_count = RSM_MAX_SGIOREQS;
            request.vector.remote_handle = pair.import;
            request.vector.iovec = request.entries;
            for (turn = 0; turn < 2; turn++) {
                if (turn == 1)
                    mark();
                OK(movers[way](&request.vector));
                if (turn == 1)
                    mark();
            }
        }
    }
    OK(rsm_free_localmemory_handle(pair.controller, handle));
    close_pair(&pair);
}

/* Returns true if the system takes a list of ranges. */
static int takes_lists(void)
{
    unsigned char *page = pages(1);
    struct { void *base; size_t length; } range = {page, PAGE};
    long advised = syscall(SYS_process_madvise, -10000, &range, 1, MADV_POPULATE_READ, 0);
    free(page);
    return advised == PAGE;
}

static int of_scattered;

static void counted(int part, int calls)
{
    int layout = part / 2;
    printf("%s of 16 entries in %s: %d system calls\n", names[part % 2], layouts[layout], calls);
    /* One about the vector and its entries, one about the local memory. */
    CHECK(calls == 1 + (layout == APART ? of_scattered : 1));
}

int main(void)
{
    of_scattered = takes_lists() ? 1 : RSM_MAX_SGIOREQS;
    CHECK(count_calls(transfers, counted) == 2 * LAYOUTS);
    return 0;
}
