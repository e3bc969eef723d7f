/* Calls while the heap is exhausted. Each one succeeds, or returns INSUFFICIENT_MEM and changes
 * nothing. The process goes on, and the call succeeds once there is memory again.
 *
 * exhausted [CONTROLLER [CALL]]: sweeps the call, or all calls in turn. */
#include "check.h"

#include <poll.h>

#define CODE int
#define DONE(code) ((code) == RSM_SUCCESS)
#define REFUSED(code) ((code) == RSMERR_INSUFFICIENT_MEM || (code) == RSMERR_INSUFFICIENT_RESOURCES)
#include "sweep.h"

#define ROUNDS 300

static char *here = "loopback";
static struct pair pair;
static rsmapi_controller_handle_t controller;
static rsm_memseg_export_handle_t segment;
static rsm_memseg_import_handle_t import;
static rsm_localmemory_handle_t local;
/* The first one is for the implicit mode. */
static rsmapi_barrier_t implicit, barrier;
static rsm_topology_t *topology;
static unsigned char *memory, bytes[64];
static rsm_node_id_t node;
static rsm_memseg_id_t id;
static struct pollfd polled;

/* Returns a sum of bytes, weighted by their offsets. */
static unsigned long sum(const unsigned char *of, size_t length)
{
    unsigned long all = 0;
    while (length != 0)
        all = all * 31 + of[--length];
    return all;
}

static void look(char *text)
{
    rsm_barrier_mode_t mode;
    *text = 0;
    tell(text, "%lu ", sum(bytes, sizeof bytes));
    if (pair.import == NULL)
        return;
    OK(rsm_memseg_import_get_mode(pair.import, &mode));
    tell(text, "%lu %lu %d ", sum(pair.memory, pair.length), sum(memory, PAGE), mode);
    tell(text, "%p %d %p\n", barrier.seg, barrier.gnum, barrier.privdata);
}

#define DO(name, call) \
    static void name(void) { OK(call); }
#define CALL(name, call) \
    static int name(void) { return call; }

/* Controllers, the topology, names. */
CALL(take_controller, rsm_get_controller(here, &controller))
CALL(give_controller, rsm_release_controller(controller))
DO(before_release, take_controller())
DO(release_controller, give_controller())
static int attributes_of_controller(void)
{
    rsmapi_controller_attr_t attributes;
    return rsm_get_controller_attr(controller, &attributes);
}
CALL(take_topology, rsm_get_interconnect_topology(&topology))
static void free_topology(void) { rsm_free_interconnect_topology(topology); }
static int give_topology(void)
{
    free_topology();
    return RSM_SUCCESS;
}
DO(before_free, take_topology())
static int range_of_ids(void)
{
    rsm_memseg_id_t base;
    uint32_t length;
    return rsm_get_segmentid_range("web", &base, &length);
}

/* Exports. */
CALL(create, rsm_memseg_export_create(pair.controller, &segment, memory, PAGE, RSM_ALLOW_REBIND))
CALL(destroy, rsm_memseg_export_destroy(segment))
CALL(rebind, rsm_memseg_export_rebind(segment, memory + PAGE, 0, PAGE))
static int publish(void)
{
    rsmapi_access_entry_t list[1];
    list[0].ae_node = node;
    list[0].ae_permission = 0660;
    id = 0;
    return rsm_memseg_export_publish(segment, &id, list, 1);
}
CALL(unpublish, rsm_memseg_export_unpublish(segment))
static int republish(void)
{
    rsmapi_access_entry_t list[1];
    list[0].ae_node = node;
    list[0].ae_permission = 0600;
    return rsm_memseg_export_republish(segment, list, 1);
}
DO(before_segment, create())
DO(after_segment, destroy())
static void before_published(void)
{
    OK(create());
    OK(publish());
}
static void after_published(void)
{
    OK(unpublish());
    OK(destroy());
}

/* Imports. */
CALL(join, rsm_memseg_import_connect(pair.controller, node, pair.id, RSM_PERM_RDWR, &import))
CALL(leave, rsm_memseg_import_disconnect(import))
DO(before_leave, join())
DO(after_join, leave())
static int map(void)
{
    void *address = NULL;
    return rsm_memseg_import_map(import, &address, RSM_MAP_NONE, RSM_PERM_RDWR, 0, PAGE);
}
CALL(unmap, rsm_memseg_import_unmap(import))
static void before_unmap(void)
{
    OK(join());
    OK(map());
}
static void after_map(void)
{
    OK(unmap());
    OK(leave());
}

/* Transfers. */
CALL(put, rsm_memseg_import_put(pair.import, 0, bytes, sizeof bytes))
CALL(get, rsm_memseg_import_get(pair.import, 0, bytes, sizeof bytes))
CALL(put8, rsm_memseg_import_put8(pair.import, 0, bytes, 8))
CALL(get8, rsm_memseg_import_get8(pair.import, 0, bytes, 8))
CALL(put16, rsm_memseg_import_put16(pair.import, 0, (uint16_t *)(void *)memory, 8))
CALL(get16, rsm_memseg_import_get16(pair.import, 0, (uint16_t *)(void *)memory, 8))
CALL(put32, rsm_memseg_import_put32(pair.import, 0, (uint32_t *)(void *)memory, 8))
CALL(get32, rsm_memseg_import_get32(pair.import, 0, (uint32_t *)(void *)memory, 8))
CALL(put64, rsm_memseg_import_put64(pair.import, 0, (uint64_t *)(void *)memory, 8))
CALL(get64, rsm_memseg_import_get64(pair.import, 0, (uint64_t *)(void *)memory, 8))
CALL(create_local, rsm_create_localmemory_handle(pair.controller, &local, (char *)memory, PAGE))
CALL(free_local, rsm_free_localmemory_handle(pair.controller, local))
DO(before_local, create_local())
DO(after_local, free_local())
/* Stores other bytes than those in the segment. */
static void differ(void)
{
    static unsigned char seed;
    fill(bytes, sizeof bytes, ++seed);
    fill(memory, PAGE, seed);
}
static void before_vector(void)
{
    differ();
    OK(create_local());
}
/* One entry with a handle, one with an address, and a signal. */
static int move(int (*mover)(rsm_scat_gath_t *))
{
    rsm_iovec_t entries[2];
    rsm_scat_gath_t vector;
    int code;
    memset(entries, 0, sizeof entries);
    memset(&vector, 0, sizeof vector);
    entries[0].io_type = RSM_HANDLE_TYPE;
    entries[0].local.handle = local;
    entries[0].transfer_length = 64;
    entries[1].io_type = RSM_VA_TYPE;
    entries[1].local.vaddr = (char *)bytes;
    entries[1].remote_offset = 128;
    entries[1].transfer_length = sizeof bytes;
    vector.io_request_count = 2;
    vector.io_residual_count = 99;
    vector.flags = RSM_IMPLICIT_SIGPOST;
    vector.remote_handle = pair.import;
    vector.iovec = entries;
    code = mover(&vector);
    if (code == RSM_SUCCESS)
        CHECK(vector.io_residual_count == 0);
    else
        CHECK(code == RSMERR_INSUFFICIENT_RESOURCES && vector.io_residual_count == 2);
    return code;
}
CALL(putv, move(rsm_memseg_import_putv))
CALL(getv, move(rsm_memseg_import_getv))
static void take_signal(void)
{
    OK(rsm_intr_signal_wait(pair.export, 20000));
    EXPECT(RSMERR_TIMEOUT, rsm_intr_signal_wait(pair.export, 0));
}
static void after_vector(void)
{
    take_signal();
    OK(free_local());
}

/* Barriers and modes. */
CALL(init_barrier, rsm_memseg_import_init_barrier(pair.import, RSM_BAR_DEFAULT, &barrier))
CALL(open_barrier, rsm_memseg_import_open_barrier(&barrier))
CALL(order_barrier, rsm_memseg_import_order_barrier(&barrier))
CALL(close_barrier, rsm_memseg_import_close_barrier(&barrier))
CALL(destroy_barrier, rsm_memseg_import_destroy_barrier(&barrier))
static int explicit_mode(void) { return rsm_memseg_import_set_mode(pair.import, RSM_BARRIER_MODE_EXPLICIT); }
static void implicit_mode(void) { OK(rsm_memseg_import_set_mode(pair.import, RSM_BARRIER_MODE_IMPLICIT)); }
static int mode_of_import(void)
{
    rsm_barrier_mode_t mode;
    return rsm_memseg_import_get_mode(pair.import, &mode);
}
static void before_barrier(void)
{
    OK(explicit_mode());
    OK(init_barrier());
}
static void after_barrier(void)
{
    OK(destroy_barrier());
    implicit_mode();
}
static void before_close(void)
{
    before_barrier();
    OK(open_barrier());
    OK(put());
}
static void after_order(void)
{
    OK(close_barrier());
    after_barrier();
}
DO(before_init, explicit_mode())

/* Signals. */
CALL(post_signal, rsm_intr_signal_post(pair.import, 0))
CALL(wait_for_signal, rsm_intr_signal_wait(pair.export, 20000))
CALL(get_descriptor, rsm_memseg_get_pollfd(pair.export, &polled))
CALL(release_descriptor, rsm_memseg_release_pollfd(pair.export))
DO(before_signal, post_signal())
DO(before_descriptor, get_descriptor())
DO(after_descriptor, release_descriptor())
static void before_poll(void)
{
    OK(get_descriptor());
    OK(post_signal());
}
static int wait_for_descriptor(void)
{
    int count;
    return rsm_intr_signal_wait_pollfd(&polled, 1, 20000, &count);
}

static const struct call CALLS[] = {
    {"rsm_get_controller", nothing, take_controller, release_controller},
    {"rsm_get_controller_attr", before_release, attributes_of_controller, release_controller},
    {"rsm_release_controller", before_release, give_controller, nothing},
    {"rsm_get_interconnect_topology", nothing, take_topology, free_topology},
    {"rsm_free_interconnect_topology", before_free, give_topology, nothing},
    {"rsm_get_segmentid_range", nothing, range_of_ids, nothing},
    {"rsm_memseg_export_create", nothing, create, after_segment},
    {"rsm_memseg_export_destroy", before_segment, destroy, nothing},
    {"rsm_memseg_export_rebind", before_segment, rebind, after_segment},
    {"rsm_memseg_export_publish", before_segment, publish, after_published},
    {"rsm_memseg_export_unpublish", before_published, unpublish, after_segment},
    {"rsm_memseg_export_republish", before_published, republish, after_published},
    {"rsm_memseg_import_connect", nothing, join, after_join},
    {"rsm_memseg_import_disconnect", before_leave, leave, nothing},
    {"rsm_memseg_import_put", differ, put, nothing},
    {"rsm_memseg_import_get", differ, get, nothing},
    {"rsm_memseg_import_put8", differ, put8, nothing},
    {"rsm_memseg_import_get8", differ, get8, nothing},
    {"rsm_memseg_import_put16", differ, put16, nothing},
    {"rsm_memseg_import_get16", differ, get16, nothing},
    {"rsm_memseg_import_put32", differ, put32, nothing},
    {"rsm_memseg_import_get32", differ, get32, nothing},
    {"rsm_memseg_import_put64", differ, put64, nothing},
    {"rsm_memseg_import_get64", differ, get64, nothing},
    {"rsm_create_localmemory_handle", nothing, create_local, after_local},
    {"rsm_free_localmemory_handle", before_local, free_local, nothing},
    {"rsm_memseg_import_putv", before_vector, putv, after_vector},
    {"rsm_memseg_import_getv", before_vector, getv, after_vector},
    {"rsm_memseg_import_init_barrier", before_init, init_barrier, after_barrier},
    {"rsm_memseg_import_open_barrier", before_barrier, open_barrier, after_order},
    {"rsm_memseg_import_order_barrier", before_close, order_barrier, after_order},
    {"rsm_memseg_import_close_barrier", before_close, close_barrier, after_barrier},
    {"rsm_memseg_import_destroy_barrier", before_barrier, destroy_barrier, implicit_mode},
    {"rsm_memseg_import_set_mode", nothing, explicit_mode, implicit_mode},
    {"rsm_memseg_import_get_mode", nothing, mode_of_import, nothing},
    {"rsm_intr_signal_post", nothing, post_signal, take_signal},
    {"rsm_intr_signal_wait", before_signal, wait_for_signal, nothing},
    {"rsm_intr_signal_wait_pollfd", before_poll, wait_for_descriptor, after_descriptor},
    {"rsm_memseg_get_pollfd", nothing, get_descriptor, after_descriptor},
    {"rsm_memseg_release_pollfd", before_descriptor, release_descriptor, nothing},
    /* Only memory of this host can be mapped. */
    {"rsm_memseg_import_map", before_leave, map, after_map},
    {"rsm_memseg_import_unmap", before_unmap, unmap, after_join},
};
#define COUNT (sizeof CALLS / sizeof *CALLS)
#define MAPPING 2

/* Calls that can be the first one of a process. */
static const struct call FIRST[] = {
    {"rsm_get_controller", nothing, take_controller, release_controller},
    {"rsm_get_interconnect_topology", nothing, take_topology, free_topology},
    {"rsm_get_segmentid_range", nothing, range_of_ids, nothing},
};

int main(int count, char **arguments)
{
    const char *name = count > 2 ? arguments[2] : NULL;
    FILE *file = fopen("rsm.segmentid", "w");
    size_t index, round, calls = COUNT;
    if (count > 1) {
        here = arguments[1];
        calls -= MAPPING;
    }
    CHECK(file != NULL && fputs("reserved web 0x600000 16\n", file) >= 0 && fclose(file) == 0);
    sweep(FIRST, sizeof FIRST / sizeof *FIRST, name, try_first);
    pair = open_pair_of(here, 2, 0, RSM_PERM_RDWR);
    OK(rsm_memseg_import_init_barrier(pair.import, RSM_BAR_DEFAULT, &implicit));
    implicit_mode();
    memory = pages(2);
    node = own_node();
    sweep(CALLS, calls, name, try);
    for (round = 0; name == NULL && round < ROUNDS; round++) {
        for (index = 0; index < calls; index++) {
            try(&CALLS[index], 0);
        }
    }
    OK(rsm_memseg_import_destroy_barrier(&implicit));
    close_pair(&pair);
    free(memory);
    return 0;
}
