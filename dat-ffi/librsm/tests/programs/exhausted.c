/* Calls while the heap is exhausted: each one succeeds or says INSUFFICIENT_MEM, and the process goes on. All allocations fail from
 * the nth of a call on, for n = 0, 1, 2 ... until a call makes no more than n; and then all of them for many calls. */
#include "check.h"
#include "scarce.h"

#define ROUNDS 500

static struct pair pair;
static rsmapi_controller_handle_t controller;
static rsm_memseg_export_handle_t segment;
static rsm_memseg_import_handle_t import;
static unsigned char *memory, bytes[64];
static rsm_node_id_t node;

static int take_controller(void) { return rsm_get_controller("loopback9", &controller); }
static void release_controller(void) { OK(rsm_release_controller(controller)); }
static int create(void) { return rsm_memseg_export_create(pair.controller, &segment, memory, PAGE, 0); }
static void destroy(void) { OK(rsm_memseg_export_destroy(segment)); }
static int import_it(void) { return rsm_memseg_import_connect(pair.controller, node, pair.id, RSM_PERM_RDWR, &import); }
static void disconnect(void) { OK(rsm_memseg_import_disconnect(import)); }
static int put(void) { return rsm_memseg_import_put(pair.import, 0, bytes, sizeof bytes); }
static int get(void) { return rsm_memseg_import_get(pair.import, 0, bytes, sizeof bytes); }
static void nothing(void) {}

static const struct call {
    const char *name;
    int (*call)(void);
    void (*undo)(void);
} CALLS[] = {
    {"rsm_get_controller", take_controller, release_controller},
    {"rsm_memseg_export_create", create, destroy},
    {"rsm_memseg_import_connect", import_it, disconnect},
    {"rsm_memseg_import_put", put, nothing},
    {"rsm_memseg_import_get", get, nothing},
};
#define COUNT (sizeof CALLS / sizeof *CALLS)

/* Whether the call made more allocations than there were. */
static int try(const struct call *it, long allocations)
{
    int code, was_short;
    atomic_store(&failed, 0);
    atomic_store(&left, allocations);
    atomic_store(&is_scarce, 1);
    code = it->call();
    atomic_store(&is_scarce, 0);
    was_short = atomic_load(&failed);
    if (code == RSM_SUCCESS) {
        it->undo();
    } else if (!was_short || (code != RSMERR_INSUFFICIENT_MEM && code != RSMERR_INSUFFICIENT_RESOURCES)) {
        fprintf(stderr, "%s with %ld allocations: %d\n", it->name, allocations, code);
        exit(1);
    }
    OK(it->call());
    it->undo();
    return was_short;
}

int main(void)
{
    rsmapi_barrier_t barrier;
    size_t index, round;
    pair = open_pair(2, 0, RSM_PERM_RDWR);
    OK(rsm_memseg_import_init_barrier(pair.import, RSM_BAR_DEFAULT, &barrier));
    memory = pages(1);
    node = own_node();
    for (index = 0; index < COUNT; index++) {
        long allocations = 0;
        while (try(&CALLS[index], allocations)) {
            allocations++;
            CHECK(allocations < 10000);
        }
        printf("%s: %ld\n", CALLS[index].name, allocations);
    }
    for (round = 0; round < ROUNDS; round++) {
        for (index = 0; index < COUNT; index++) {
            try(&CALLS[index], 0);
        }
    }
    OK(rsm_memseg_import_destroy_barrier(&barrier));
    close_pair(&pair);
    free(memory);
    return 0;
}
