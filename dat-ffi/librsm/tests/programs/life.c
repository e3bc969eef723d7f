/* Every object from creation to destruction, with transfers in between. */
#include "check.h"

/* RSMCT-01..03, RSMCT-10, RSMCT-20, RSMCT-21 */
static void controllers(void)
{
    rsmapi_controller_handle_t first = NULL, second = NULL, third = NULL;
    rsmapi_controller_attr_t attributes;
    OK(rsm_get_controller("loopback", &first));
    OK(rsm_get_controller("LoopBack7", &second));
    OK(rsm_get_controller(NULL, &third));
    CHECK(first != NULL && first == second && second == third);
    OK(rsm_get_controller_attr(first, &attributes));
    CHECK(attributes.attr_direct_access_sizes == (RSM_DAS8 | RSM_DAS16 | RSM_DAS32 | RSM_DAS64));
    CHECK(attributes.attr_atomic_sizes == 0);
    CHECK(attributes.attr_page_size == (size_t)sysconf(_SC_PAGESIZE));
    CHECK(attributes.attr_max_export_segments > 0 && attributes.attr_max_import_segments > 0);
    OK(rsm_release_controller(first));
    OK(rsm_release_controller(first));
    OK(rsm_get_controller_attr(first, &attributes));
    OK(rsm_release_controller(first));
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_release_controller(first));
    OK(rsm_get_controller("loopback", &second));
    CHECK(second != first);
    OK(rsm_release_controller(second));
}

/* RSMEX-01, RSMPB-01, RSMPB-02, RSMPB-10, RSMPB-20, RSMIM-01, RSMIM-04, RSMIM-06, RSMMD-01,
 * RSMGP-01, RSMGP-05 */
static void bytes(void)
{
    struct pair pair = open_pair(2, 0, RSM_PERM_RDWR);
    unsigned char source[1000], target[1000];
    rsm_barrier_mode_t mode = RSM_BARRIER_MODE_EXPLICIT;
    rsmapi_barrier_t barrier;
    CHECK(pair.id >= 0x80000000u);
    OK(rsm_memseg_import_get_mode(pair.import, &mode));
    CHECK(mode == RSM_BARRIER_MODE_IMPLICIT);
    fill(source, sizeof source, 3);
    EXPECT(RSMERR_BARRIER_UNINITIALIZED, rsm_memseg_import_put(pair.import, 0, source, 1));
    OK(rsm_memseg_import_init_barrier(pair.import, RSM_BAR_DEFAULT, &barrier));
    OK(rsm_memseg_import_put(pair.import, 4001, source, sizeof source));
    CHECK(memcmp(pair.memory + 4001, source, sizeof source) == 0);
    CHECK(pair.memory[4000] == 0 && pair.memory[5001] == 0);
    OK(rsm_memseg_import_get(pair.import, 4001, target, sizeof target));
    CHECK(memcmp(target, source, sizeof source) == 0);
    /* A transfer of no bytes succeeds. */
    OK(rsm_memseg_import_put(pair.import, 8192, source, 0));
    OK(rsm_memseg_import_get(pair.import, 0, target, 0));
    OK(rsm_memseg_import_destroy_barrier(&barrier));
    close_pair(&pair);
}

#define ITEMS(bits)                                                                                                     \
    static void items##bits(void)                                                                                       \
    {                                                                                                                   \
        struct pair pair = open_pair(4, 0, RSM_PERM_RDWR);                                                              \
        uint##bits##_t source[700], target[700];                                                                        \
        rsmapi_barrier_t barrier;                                                                                       \
        size_t at;                                                                                                      \
        for (at = 0; at < 700; at++)                                                                                    \
            source[at] = (uint##bits##_t)(at * 0x123456789abcdfull + 5);                                                \
        OK(rsm_memseg_import_init_barrier(pair.import, RSM_BARRIER_SEGMENT_THREAD, &barrier));                          \
        OK(rsm_memseg_import_put##bits(pair.import, 64, source, 700));                                                  \
        CHECK(memcmp(pair.memory + 64, source, sizeof source) == 0);                                                    \
        CHECK(pair.memory[63] == 0 && pair.memory[64 + sizeof source] == 0);                                            \
        memset(target, 0, sizeof target);                                                                               \
        OK(rsm_memseg_import_get##bits(pair.import, 64, target, 700));                                                  \
        CHECK(memcmp(target, source, sizeof source) == 0);                                                              \
        OK(rsm_memseg_import_put##bits(pair.import, 0, source, 0));                                                     \
        OK(rsm_memseg_import_get##bits(pair.import, 0, target, 0));                                                     \
        OK(rsm_memseg_import_destroy_barrier(&barrier));                                                                \
        close_pair(&pair);                                                                                              \
    }

/* RSMGP-01, RSMGP-02, RSMGP-04, RSMGP-07 */
ITEMS(8)
ITEMS(16)
ITEMS(32)
ITEMS(64)

/* RSMMD-01..03, RSMBR-01..05, RSMBR-07, RSMBR-10, RSMPV-40 */
static void barriers(void)
{
    struct pair pair = open_pair(2, 0, RSM_PERM_RDWR);
    rsmapi_barrier_t barriers[5];
    const rsm_barrier_type_t types[5] = {RSM_BARRIER_SEGMENT, RSM_BARRIER_NODE, RSM_BARRIER_SEGMENT_THREAD, RSM_BARRIER_NODE_THREAD,
                                         RSM_BAR_DEFAULT};
    rsm_barrier_mode_t mode;
    unsigned char source[64];
    int at;
    fill(source, sizeof source, 9);
    for (at = 0; at < 5; at++)
        OK(rsm_memseg_import_init_barrier(pair.import, types[at], &barriers[at]));
    OK(rsm_memseg_import_set_mode(pair.import, RSM_BARRIER_MODE_EXPLICIT));
    OK(rsm_memseg_import_get_mode(pair.import, &mode));
    CHECK(mode == RSM_BARRIER_MODE_EXPLICIT);
    for (at = 0; at < 5; at++) {
        OK(rsm_memseg_import_open_barrier(&barriers[at]));
        OK(rsm_memseg_import_put(pair.import, at * 100, source, sizeof source));
        OK(rsm_memseg_import_order_barrier(&barriers[at]));
        CHECK(memcmp(pair.memory + at * 100, source, sizeof source) == 0);
        OK(rsm_memseg_import_put(pair.import, 4096 + at * 100, source, sizeof source));
        OK(rsm_memseg_import_close_barrier(&barriers[at]));
        CHECK(memcmp(pair.memory + 4096 + at * 100, source, sizeof source) == 0);
    }
    OK(rsm_memseg_import_open_barrier(&barriers[0]));
    OK(rsm_memseg_import_open_barrier(&barriers[0]));
    for (at = 0; at < 5; at++)
        OK(rsm_memseg_import_destroy_barrier(&barriers[at]));
    OK(rsm_memseg_import_set_mode(pair.import, RSM_BARRIER_MODE_IMPLICIT));
    close_pair(&pair);
}

/* RSMEX-10, RSMEX-20, RSMEX-22, RSMPB-10, RSMST-03, RSMIM-11 */
static void segments(void)
{
    struct pair pair = open_pair(1, RSM_ALLOW_REBIND, RSM_PERM_RDWR);
    unsigned char *other = pages(1);
    rsmapi_barrier_t barrier;
    rsmapi_access_entry_t entry;
    rsm_memseg_import_handle_t import;
    rsm_memseg_id_t id = SEGMENT;
    uint32_t item = 77, back = 0;
    OK(rsm_memseg_import_init_barrier(pair.import, RSM_BAR_DEFAULT, &barrier));
    OK(rsm_memseg_import_put32(pair.import, 0, &item, 1));
    CHECK(memcmp(pair.memory, &item, 4) == 0);
    OK(rsm_memseg_export_rebind(pair.export, pair.memory, 0, PAGE));
    OK(rsm_memseg_export_rebind(pair.export, other, 0, PAGE));
    item = 78;
    OK(rsm_memseg_import_put32(pair.import, 0, &item, 1));
    CHECK(memcmp(other, &item, 4) == 0 && pair.memory[0] == 77);
    OK(rsm_memseg_import_get32(pair.import, 0, &back, 1));
    CHECK(back == 78);
    /* A new access list applies to later connections. */
    entry.ae_node = own_node();
    entry.ae_permission = 0444;
    OK(rsm_memseg_export_republish(pair.export, &entry, 1));
    OK(rsm_memseg_import_put32(pair.import, 0, &item, 1));
    EXPECT(RSMERR_PERM_DENIED, rsm_memseg_import_connect(pair.controller, entry.ae_node, pair.id, RSM_PERM_WRITE, &import));
    OK(rsm_memseg_import_connect(pair.controller, entry.ae_node, pair.id, RSM_PERM_READ, &import));
    OK(rsm_memseg_import_disconnect(import));
    /* Unpublished, and published again with an id of the program. */
    OK(rsm_memseg_export_unpublish(pair.export));
    EXPECT(RSMERR_CONN_ABORTED, rsm_memseg_import_put32(pair.import, 0, &item, 1));
    OK(rsm_memseg_export_publish(pair.export, &id, NULL, 0));
    CHECK(id == SEGMENT);
    EXPECT(RSMERR_CONN_ABORTED, rsm_memseg_import_get32(pair.import, 0, &item, 1));
    OK(rsm_memseg_import_destroy_barrier(&barrier));
    OK(rsm_memseg_import_disconnect(pair.import));
    /* Destroying a segment unpublishes it. */
    OK(rsm_memseg_import_connect(pair.controller, entry.ae_node, id, RSM_PERM_WRITE, &import));
    OK(rsm_memseg_export_destroy(pair.export));
    EXPECT(RSMERR_CONN_ABORTED, rsm_intr_signal_post(import, 0));
    OK(rsm_memseg_import_disconnect(import));
    OK(rsm_release_controller(pair.controller));
    free(pair.memory);
    free(other);
}

/* RSMCT-10, RSMCT-11: the last release of a controller ends its objects. */
static void released(void)
{
    struct pair pair = open_pair(1, 0, RSM_PERM_RDWR);
    rsm_localmemory_handle_t local;
    rsmapi_barrier_t barrier;
    uint32_t item = 1;
    rsm_iovec_t entry;
    rsm_scat_gath_t vector;
    OK(rsm_create_localmemory_handle(pair.controller, &local, (char *)pages(1), PAGE));
    OK(rsm_memseg_import_init_barrier(pair.import, RSM_BAR_DEFAULT, &barrier));
    OK(rsm_release_controller(pair.controller));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_export_unpublish(pair.export));
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_free_localmemory_handle(pair.controller, local));
    CHECK(rsm_memseg_import_put32(pair.import, 0, &item, 1) != RSM_SUCCESS);
    memset(&vector, 0, sizeof vector);
    memset(&entry, 0, sizeof entry);
    vector.remote_handle = pair.import;
    vector.io_request_count = 1;
    vector.iovec = &entry;
    /* RSMPV-E03 */
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_memseg_import_putv(&vector));
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_memseg_import_getv(&vector));
    OK(rsm_memseg_import_destroy_barrier(&barrier));
    OK(rsm_memseg_import_disconnect(pair.import));
}

int main(void)
{
    controllers();
    bytes();
    items8();
    items16();
    items32();
    items64();
    barriers();
    segments();
    released();
    return 0;
}
