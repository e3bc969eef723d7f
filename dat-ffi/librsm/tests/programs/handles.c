/* Every call with every value that is no handle of its kind: null, freed, of another kind,
 * garbage, addresses. */
#include "check.h"

#define VALUES 40

static void *values[VALUES];
static size_t count;

static void add(void *value)
{
    CHECK(count < VALUES);
    values[count++] = value;
}

static void not_a_controller(void *value)
{
    rsmapi_controller_handle_t controller = value;
    rsm_memseg_export_handle_t export = NULL;
    rsm_memseg_import_handle_t import = NULL;
    rsm_localmemory_handle_t local = NULL;
    rsmapi_controller_attr_t attributes, untouched;
    unsigned char *memory = pages(1);
    memset(&attributes, 0xEE, sizeof attributes);
    untouched = attributes;
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_get_controller_attr(controller, &attributes));
    CHECK(memcmp(&attributes, &untouched, sizeof attributes) == 0);
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_release_controller(controller));
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_memseg_export_create(controller, &export, memory, PAGE, 0));
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_memseg_import_connect(controller, 1, SEGMENT, RSM_PERM_READ, &import));
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_create_localmemory_handle(controller, &local, (char *)memory, PAGE));
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_free_localmemory_handle(controller, local));
    CHECK(export == NULL && import == NULL && local == NULL);
    free(memory);
}

static void not_an_export(void *value)
{
    rsm_memseg_export_handle_t export = value;
    rsm_memseg_id_t id = 0;
    unsigned char *memory = pages(1);
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_export_destroy(export));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_export_rebind(export, memory, 0, PAGE));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_export_publish(export, &id, NULL, 0));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_export_unpublish(export));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_export_republish(export, NULL, 0));
    CHECK(id == 0);
    free(memory);
}

static void not_an_import(void *value)
{
    rsm_memseg_import_handle_t import = value;
    uint64_t item[1] = {5};
    void *address = item;
    rsmapi_barrier_t barrier;
    rsm_barrier_mode_t mode = RSM_BARRIER_MODE_EXPLICIT;
    rsm_iovec_t entry;
    rsm_scat_gath_t vector;
    memset(&entry, 0, sizeof entry);
    memset(&vector, 0, sizeof vector);
    entry.io_type = RSM_VA_TYPE;
    entry.local.vaddr = (char *)item;
    entry.transfer_length = 8;
    vector.remote_handle = import;
    vector.io_request_count = 1;
    vector.iovec = &entry;
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_disconnect(import));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_map(import, &address, RSM_MAP_NONE, RSM_PERM_READ, 0, PAGE));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_unmap(import));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_get8(import, 0, (uint8_t *)item, 1));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_get16(import, 0, (uint16_t *)item, 1));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_get32(import, 0, (uint32_t *)item, 1));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_get64(import, 0, item, 1));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_get(import, 0, item, 8));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_put8(import, 0, (uint8_t *)item, 1));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_put16(import, 0, (uint16_t *)item, 1));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_put32(import, 0, (uint32_t *)item, 1));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_put64(import, 0, item, 1));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_put(import, 0, item, 8));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_putv(&vector));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_getv(&vector));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_init_barrier(import, RSM_BAR_DEFAULT, &barrier));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_set_mode(import, RSM_BARRIER_MODE_EXPLICIT));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_get_mode(import, &mode));
    CHECK(item[0] == 5 && address == item && mode == RSM_BARRIER_MODE_EXPLICIT && vector.io_residual_count == 1);
}

static void not_a_segment(void *value)
{
    struct pollfd entry;
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_intr_signal_post(value, 0));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_intr_signal_wait(value, -1));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_get_pollfd(value, &entry));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_release_pollfd(value));
}

static void not_a_barrier(void *value)
{
    rsmapi_barrier_t barrier;
    int way;
    for (way = 0; way < 2; way++) {
        memset(&barrier, way ? 0x42 : 0, sizeof barrier);
        barrier.seg = value;
        barrier.gnum = 0x5242;
        barrier.privdata = value;
        EXPECT(RSMERR_BARRIER_UNINITIALIZED, rsm_memseg_import_open_barrier(&barrier));
        EXPECT(RSMERR_BARRIER_UNINITIALIZED, rsm_memseg_import_order_barrier(&barrier));
        EXPECT(RSMERR_BARRIER_UNINITIALIZED, rsm_memseg_import_close_barrier(&barrier));
        EXPECT(RSMERR_BARRIER_UNINITIALIZED, rsm_memseg_import_destroy_barrier(&barrier));
    }
}

int main(void)
{
    struct pair pair = open_pair(1, 0, RSM_PERM_RDWR), gone = open_pair(1, 0, RSM_PERM_RDWR);
    rsm_localmemory_handle_t local, freed;
    uint64_t local_variable = 1;
    uint64_t bits;
    size_t at;
    int shift;
    OK(rsm_create_localmemory_handle(pair.controller, &local, (char *)pair.memory, PAGE));
    OK(rsm_create_localmemory_handle(pair.controller, &freed, (char *)pair.memory, PAGE));
    OK(rsm_free_localmemory_handle(pair.controller, freed));
    /* Other programs test calls before the first controller is got and after the last one is
     * released. */
    add(NULL);
    add((void *)1);
    add((void *)-1);
    add((void *)0x5A5A5A5A5A5A5A5A);
    add(&local_variable);
    add(&values);
    add(pair.memory);
    add((void *)(uintptr_t)main);
    add(gone.import);
    add(gone.export);
    add(freed);
    memcpy(&bits, &pair.import, sizeof bits);
    for (shift = 0; shift < 64; shift += 7)
        add((void *)(uintptr_t)(bits ^ (1ull << shift)));
    close_pair(&gone);
    for (at = 0; at < count; at++) {
        not_a_controller(values[at]);
        not_an_export(values[at]);
        not_an_import(values[at]);
        not_a_segment(values[at]);
        not_a_barrier(values[at]);
        EXPECT(RSMERR_BAD_LOCALMEM_HNDL, rsm_free_localmemory_handle(pair.controller, values[at]));
        rsm_free_interconnect_topology(values[at]);
    }
    /* Live handles of other kinds. */
    not_a_controller(pair.export);
    not_a_controller(pair.import);
    not_a_controller(local);
    not_an_export(pair.controller);
    not_an_export(pair.import);
    not_an_export(local);
    not_an_import(pair.controller);
    not_an_import(pair.export);
    not_an_import(local);
    not_a_segment(pair.controller);
    not_a_segment(local);
    not_a_barrier(pair.controller);
    not_a_barrier(pair.export);
    not_a_barrier(pair.import);
    not_a_barrier(local);
    EXPECT(RSMERR_BAD_LOCALMEM_HNDL, rsm_free_localmemory_handle(pair.controller, (rsm_localmemory_handle_t)pair.import));
    OK(rsm_free_localmemory_handle(pair.controller, local));
    close_pair(&pair);
    return 0;
}
