/* Exact codes, `codes [CONTROLLER]`: pointers that cannot be followed, vectors with two faults, and
 * vectors while the heap is exhausted. */
#include "check.h"
#include "scarce.h"

#include <poll.h>
#include <sys/mman.h>

#define COUNT 5

static struct pair pair;
static unsigned char *local;
static rsm_localmemory_handle_t handle;
/* A page that can only be read, and no page after it. */
static unsigned char *fixed;

typedef int (*mover)(rsm_scat_gath_t *);
static const mover movers[2] = {rsm_memseg_import_putv, rsm_memseg_import_getv};

static rsm_iovec_t good(size_t at)
{
    rsm_iovec_t entry;
    memset(&entry, 0, sizeof entry);
    entry.io_type = at % 2 ? RSM_HANDLE_TYPE : RSM_VA_TYPE;
    if (at % 2)
        entry.local.handle = handle;
    else
        entry.local.vaddr = (char *)local;
    entry.local_offset = entry.remote_offset = at * 16;
    entry.transfer_length = 8;
    return entry;
}

static rsm_scat_gath_t vector(rsm_iovec_t *entries, unsigned long count)
{
    rsm_scat_gath_t vector;
    memset(&vector, 0, sizeof vector);
    vector.io_request_count = count;
    vector.io_residual_count = 99;
    vector.remote_handle = pair.import;
    vector.iovec = entries;
    return vector;
}

/* RSMPV-E01, RSMPV-E04, RSMPV-58: the structure or the list cannot be read or written. */
static void vectors_out_of_reach(void)
{
    rsm_iovec_t entries[2] = {good(0), good(1)};
    rsm_scat_gath_t moved, *in_fixed = (rsm_scat_gath_t *)(void *)fixed;
    rsm_iovec_t *last = (rsm_iovec_t *)(void *)(fixed + PAGE - sizeof *last);
    int way;
    CHECK(mprotect(fixed, PAGE, PROT_READ | PROT_WRITE) == 0);
    *in_fixed = vector(entries, 2);
    *last = entries[0];
    CHECK(mprotect(fixed, PAGE, PROT_READ) == 0);
    for (way = 0; way < 2; way++) {
        EXPECT(RSMERR_BAD_SGIO, movers[way](NULL));
        EXPECT(RSMERR_BAD_SGIO, movers[way]((rsm_scat_gath_t *)(void *)HOLE));
        /* The residual could not be stored. */
        EXPECT(RSMERR_BAD_SGIO, movers[way](in_fixed));
        EXPECT(RSMERR_BAD_SGIO, movers[way]((rsm_scat_gath_t *)(void *)(fixed + PAGE - 8)));
        moved = vector((rsm_iovec_t *)(void *)HOLE, 2);
        EXPECT(RSMERR_BAD_ADDR, movers[way](&moved));
        CHECK(moved.io_residual_count == 2);
        /* Errors of the handle and the count come first. */
        moved.io_request_count = RSM_MAX_SGIOREQS + 1;
        EXPECT(RSMERR_BAD_SGIO, movers[way](&moved));
        moved.remote_handle = NULL;
        EXPECT(RSMERR_BAD_SEG_HNDL, movers[way](&moved));
        CHECK(moved.io_residual_count == RSM_MAX_SGIOREQS + 1);
        /* Only the first entry can be read. */
        moved = vector(last, 2);
        EXPECT(RSMERR_BAD_ADDR, movers[way](&moved));
        CHECK(moved.io_residual_count == 2);
        /* The list is only read. */
        moved = vector(last, 1);
        OK(movers[way](&moved));
        CHECK(moved.io_residual_count == 0);
    }
}

/* Each pointer of each other call: to no memory, and to memory that can only be read. */
static void pointers(void)
{
    void *wrong[] = {HOLE, fixed};
    rsmapi_access_entry_t list = {own_node(), 0666};
    rsmapi_controller_handle_t controller;
    rsm_memseg_export_handle_t export;
    struct pollfd polled;
    rsm_memseg_id_t base, id;
    uint32_t length;
    size_t at;
    int count;
    OK(rsm_memseg_export_create(pair.controller, &export, local + PAGE, PAGE, 0));
    OK(rsm_memseg_get_pollfd(pair.export, &polled));
    for (at = 0; at < 2; at++) {
        void *where = wrong[at];
        EXPECT(RSMERR_BAD_ADDR, rsm_get_controller(NULL, where));
        EXPECT(RSMERR_BAD_ADDR, rsm_get_controller_attr(pair.controller, where));
        EXPECT(RSMERR_BAD_ADDR, rsm_get_interconnect_topology(where));
        EXPECT(RSMERR_BAD_ADDR, rsm_get_segmentid_range("web", where, &length));
        EXPECT(RSMERR_BAD_ADDR, rsm_get_segmentid_range("web", &base, where));
        EXPECT(RSMERR_BAD_ADDR, rsm_memseg_export_create(pair.controller, where, local, PAGE, 0));
        EXPECT(RSMERR_BAD_ADDR, rsm_memseg_export_publish(export, where, NULL, 0));
        EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_connect(pair.controller, own_node(), pair.id, RSM_PERM_READ, where));
        EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_map(pair.import, where, RSM_MAP_NONE, RSM_PERM_READ, 0, PAGE));
        EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_get_mode(pair.import, where));
        EXPECT(RSMERR_BAD_ADDR, rsm_create_localmemory_handle(pair.controller, where, (char *)local, PAGE));
        EXPECT(RSMERR_BAD_ADDR, rsm_memseg_get_pollfd(pair.export, where));
        EXPECT(RSMERR_BAD_ADDR, rsm_intr_signal_wait_pollfd(where, 1, 0, &count));
        EXPECT(RSMERR_BAD_ADDR, rsm_intr_signal_wait_pollfd(&polled, 1, 0, where));
        EXPECT(RSMERR_BAD_BARRIER_PTR, rsm_memseg_import_init_barrier(pair.import, RSM_BAR_DEFAULT, where));
        EXPECT(RSMERR_BAD_BARRIER_PTR, rsm_memseg_import_destroy_barrier(where));
        rsm_free_interconnect_topology(where);
    }
    EXPECT(RSMERR_BAD_ADDR, rsm_get_controller((char *)HOLE, &controller));
    EXPECT(RSMERR_BAD_BARRIER_PTR, rsm_memseg_import_open_barrier((rsmapi_barrier_t *)(void *)HOLE));
    EXPECT(RSMERR_BAD_BARRIER_PTR, rsm_memseg_import_order_barrier((rsmapi_barrier_t *)(void *)HOLE));
    EXPECT(RSMERR_BAD_BARRIER_PTR, rsm_memseg_import_close_barrier((rsmapi_barrier_t *)(void *)HOLE));
    EXPECT(RSMERR_BAD_ADDR, rsm_get_segmentid_range((char *)HOLE, &base, &length));
    /* A string without an end in the mapped memory, and one that ends with it. */
    CHECK(mprotect(fixed, PAGE, PROT_READ | PROT_WRITE) == 0);
    memset(fixed, 'x', PAGE);
    EXPECT(RSMERR_BAD_ADDR, rsm_get_segmentid_range((char *)fixed + PAGE - 4, &base, &length));
    fixed[PAGE - 1] = 0;
    EXPECT(RSMERR_BAD_CONF, rsm_get_segmentid_range((char *)fixed + PAGE - 4, &base, &length));
    /* An access list in its turn, and an id that is only read. */
    id = 1;
    EXPECT(RSMERR_RESERVED_SEGID, rsm_memseg_export_publish(export, &id, (void *)HOLE, 1));
    id = SEGMENT;
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_export_publish(export, &id, (void *)HOLE, 1));
    EXPECT(RSMERR_BAD_ACL, rsm_memseg_export_publish(export, &id, (void *)HOLE, 1000));
    EXPECT(RSMERR_SEG_NOT_PUBLISHED, rsm_memseg_export_republish(export, (void *)HOLE, 1));
    memcpy(fixed, &id, sizeof id);
    CHECK(mprotect(fixed, PAGE, PROT_READ) == 0);
    OK(rsm_memseg_export_publish(export, (rsm_memseg_id_t *)(void *)fixed, &list, 1));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_export_republish(export, (void *)HOLE, 1));
    OK(rsm_memseg_release_pollfd(pair.export));
    OK(rsm_memseg_export_destroy(export));
}

/* RSMPV-15, RSMPV-E04: the memory of a handle is changed by the program. */
static void memory_of_handle(void)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS, all = PROT_READ | PROT_WRITE;
    unsigned char *memory = mmap(NULL, PAGE, all, flags, -1, 0);
    rsm_iovec_t entries[2] = {good(0), good(1)};
    rsm_scat_gath_t moved;
    int way;
    CHECK(memory != MAP_FAILED);
    OK(rsm_create_localmemory_handle(pair.controller, &entries[1].local.handle, (char *)memory, PAGE));
    CHECK(munmap(memory, PAGE) == 0);
    for (way = 0; way < 2; way++) {
        moved = vector(entries, 2);
        EXPECT(RSMERR_BAD_ADDR, movers[way](&moved));
        CHECK(moved.io_residual_count == 1);
    }
    CHECK(mmap(memory, PAGE, PROT_READ, flags | MAP_FIXED_NOREPLACE, -1, 0) == memory);
    moved = vector(entries, 2);
    OK(rsm_memseg_import_putv(&moved));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_getv(&moved));
    CHECK(moved.io_residual_count == 1);
    CHECK(mprotect(memory, PAGE, all) == 0);
    OK(rsm_memseg_import_getv(&moved));
    OK(rsm_free_localmemory_handle(pair.controller, entries[1].local.handle));
    CHECK(munmap(memory, PAGE) == 0);
}

/* RSMPV-50, RSMPV-51, RSMPV-52: of two faults the first one ends the vector. */
static void two_faults(void)
{
    struct fault {
        rsm_iovec_t entry;
        int error;
    } faults[5];
    size_t first, second, at, kind;
    int way;
    for (kind = 0; kind < 5; kind++)
        faults[kind].entry = good(1);
    faults[0].entry.io_type = 7;
    faults[0].error = RSMERR_BAD_SGIO;
    faults[1].entry = good(0);
    faults[1].entry.local.vaddr = (char *)HOLE;
    faults[1].error = RSMERR_BAD_ADDR;
    faults[2].entry.remote_offset = pair.length + 1;
    faults[2].error = RSMERR_BAD_OFFSET;
    faults[3].entry.transfer_length = pair.length + 1;
    faults[3].error = RSMERR_BAD_LENGTH;
    faults[4].entry.local.handle = NULL;
    faults[4].error = RSMERR_BAD_SGIO;
    for (way = 0; way < 2; way++)
        for (kind = 0; kind < 25; kind++)
            for (first = 0; first < COUNT; first++)
                for (second = first + 1; second < COUNT; second++) {
                    const struct fault *fault = &faults[kind / 5];
                    rsm_iovec_t entries[COUNT];
                    rsm_scat_gath_t moved = vector(entries, COUNT);
                    for (at = 0; at < COUNT; at++)
                        entries[at] = good(at);
                    entries[first] = fault->entry;
                    entries[second] = faults[kind % 5].entry;
                    EXPECT(fault->error, movers[way](&moved));
                    CHECK(moved.io_residual_count == COUNT - first);
                }
}

/* RSMPV-E10, RSMPV-58, RSMLH-01: without memory, a lack of it is told in its turn. */
static void scarce(void)
{
    static rsm_localmemory_handle_t many[4096];
    rsm_iovec_t entries[2] = {good(0), good(1)}, bad[2] = {good(0), good(1)};
    rsm_scat_gath_t moved;
    rsmapi_controller_attr_t attributes;
    rsm_localmemory_handle_t made = (void *)1;
    rsmapi_barrier_t barrier;
    int way, code = RSM_SUCCESS;
    size_t count = 0;
    bad[0].remote_offset = pair.length + 1;
    atomic_store(&left, 0);
    atomic_store(&is_scarce, 1);
    /* The reserve of the library carries some calls. */
    while (code == RSM_SUCCESS && count < 4096)
        code = rsm_create_localmemory_handle(pair.controller, &many[count++], (char *)local, PAGE);
    CHECK(code == RSMERR_INSUFFICIENT_MEM && many[--count] == NULL);
    for (way = 0; way < 2; way++) {
        moved = vector(entries, 2);
        EXPECT(RSMERR_INSUFFICIENT_RESOURCES, movers[way](&moved));
        CHECK(moved.io_residual_count == 2);
        moved = vector(bad, 2);
        EXPECT(RSMERR_BAD_OFFSET, movers[way](&moved));
        CHECK(moved.io_residual_count == 2);
        moved = vector(entries, 0);
        EXPECT(RSMERR_BAD_SGIO, movers[way](&moved));
        CHECK(moved.io_residual_count == 0);
        moved = vector(entries, 2);
        moved.remote_handle = NULL;
        EXPECT(RSMERR_BAD_SEG_HNDL, movers[way](&moved));
        CHECK(moved.io_residual_count == 2);
        EXPECT(RSMERR_BAD_SGIO, movers[way](NULL));
    }
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_create_localmemory_handle(NULL, &made, (char *)local, PAGE));
    EXPECT(RSMERR_BAD_LOCALMEM_HNDL, rsm_create_localmemory_handle(pair.controller, NULL, (char *)local, PAGE));
    EXPECT(RSMERR_BAD_LENGTH, rsm_create_localmemory_handle(pair.controller, &made, (char *)local, 0));
    EXPECT(RSMERR_BAD_ADDR, rsm_create_localmemory_handle(pair.controller, &made, (char *)HOLE, PAGE));
    EXPECT(RSMERR_INSUFFICIENT_MEM, rsm_create_localmemory_handle(pair.controller, &made, (char *)local, PAGE));
    CHECK(made == NULL);
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_intr_signal_post(NULL, 0));
    EXPECT(RSMERR_INSUFFICIENT_RESOURCES, rsm_intr_signal_post(pair.import, 0));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_put(NULL, 0, local, 8));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_init_barrier(NULL, RSM_BAR_DEFAULT, &barrier));
    EXPECT(RSMERR_INSUFFICIENT_MEM, rsm_memseg_import_init_barrier(pair.import, RSM_BAR_DEFAULT, &barrier));
    OK(rsm_get_controller_attr(pair.controller, &attributes));
    while (count != 0)
        OK(rsm_free_localmemory_handle(pair.controller, many[--count]));
    atomic_store(&is_scarce, 0);
    moved = vector(entries, 2);
    OK(rsm_memseg_import_putv(&moved));
    CHECK(moved.io_residual_count == 0);
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "loopback";
    local = pages(2);
    fixed = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(fixed != MAP_FAILED && mprotect(fixed + PAGE, PAGE, PROT_NONE) == 0);
    pair = open_pair_of(name, 1, 0, RSM_PERM_RDWR);
    OK(rsm_create_localmemory_handle(pair.controller, &handle, (char *)local, PAGE));
    vectors_out_of_reach();
    pointers();
    memory_of_handle();
    two_faults();
    scarce();
    OK(rsm_free_localmemory_handle(pair.controller, handle));
    close_pair(&pair);
    return 0;
}
