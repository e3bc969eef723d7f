/* Each call is refused with each error in its manual page that the mock can cause. A refused
 * call changes no result. */
#include "check.h"
#include <sys/mman.h>

#define NOTHING ((void *)0x5555)

static rsmapi_controller_handle_t controller;
static rsm_node_id_t node;

/* RSMCT-01, RSMCT-05, RSMGEN-06 */
static void controllers(void)
{
    rsmapi_controller_handle_t got;
    rsmapi_controller_attr_t attributes;
    char name[300];
    const char *absent[] = {"sci0", "", "loopback x", "verbs9999999999", "mock0", "\xFF\xFE"};
    size_t at;
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_get_controller("loopback", NULL));
    for (at = 0; at < sizeof absent / sizeof *absent; at++) {
        got = NOTHING;
        EXPECT(RSMERR_CTLR_NOT_PRESENT, rsm_get_controller((char *)absent[at], &got));
        CHECK(got == NULL);
    }
    memset(name, '0', sizeof name);
    memcpy(name, "loopback", 8);
    for (at = 250; at < 300; at++) {
        name[at] = 0;
        EXPECT(at < 256 ? RSM_SUCCESS : RSMERR_CTLR_NOT_PRESENT, rsm_get_controller(name, &got));
        if (at < 256)
            OK(rsm_release_controller(got));
        name[at] = '0';
    }
    EXPECT(RSMERR_BAD_ADDR, rsm_get_controller_attr(controller, NULL));
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_get_controller_attr(NULL, &attributes));
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_get_controller_attr(NULL, NULL));
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_release_controller(NULL));
}

/* RSMEX-01..03 */
static void creating(void)
{
    rsm_memseg_export_handle_t made = NOTHING;
    unsigned char *memory = pages(2);
    unsigned char *read_only = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    /* So low that its neighbours stay unmapped: the system maps no pages there by itself. */
    unsigned char *lowest = mmap((void *)0x10000, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    rsm_memseg_id_t id = 0;
    CHECK(read_only != MAP_FAILED && lowest != MAP_FAILED);
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_memseg_export_create(NULL, NULL, NULL, 0, 0));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_export_create(controller, NULL, NULL, 0, 0));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_export_create(controller, &made, NULL, 0, 0));
    CHECK(made == NULL);
    EXPECT(RSMERR_BAD_LENGTH, rsm_memseg_export_create(controller, &made, memory + 1, 0, 0));
    EXPECT(RSMERR_BAD_MEM_ALIGNMENT, rsm_memseg_export_create(controller, &made, memory + 1, PAGE, 0));
    EXPECT(RSMERR_BAD_MEM_ALIGNMENT, rsm_memseg_export_create(controller, &made, memory, PAGE + 8, 0));
    CHECK(mprotect(read_only, PAGE, PROT_READ) == 0);
    EXPECT(RSMERR_PERM_DENIED, rsm_memseg_export_create(controller, &made, read_only, 2 * PAGE, 0));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_export_create(controller, &made, lowest - PAGE, 2 * PAGE, 0));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_export_create(controller, &made, memory, (size_t)-PAGE, 0));
    /* Locks are not supported; unknown flags are ignored. */
    OK(rsm_memseg_export_create(controller, &made, memory, 2 * PAGE, RSM_LOCK_OPS | RSM_CREATE_SEG_DONTWAIT | 0xFF00));
    EXPECT(RSMERR_LOCKS_NOT_SUPPORTED, rsm_memseg_export_publish(made, &id, NULL, 0));
    CHECK(id == 0);
    EXPECT(RSMERR_REBIND_NOT_ALLOWED, rsm_memseg_export_rebind(made, memory, 0, 2 * PAGE));
    OK(rsm_memseg_export_destroy(made));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_export_destroy(made));
    CHECK(munmap(read_only, 2 * PAGE) == 0 && munmap(lowest, PAGE) == 0);
    free(memory);
}

/* RSMEX-20, RSMEX-22, RSMEX-23 */
static void rebinding(void)
{
    struct pair pair = open_pair(1, RSM_ALLOW_REBIND, RSM_PERM_RDWR), fixed = open_pair(1, 0, RSM_PERM_READ);
    unsigned char *read_only = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    rsmapi_barrier_t barrier;
    uint8_t item = 5;
    CHECK(read_only != MAP_FAILED);
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_export_rebind(NULL, NULL, 0, 0));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_export_rebind(fixed.export, NULL, 0, 0));
    EXPECT(RSMERR_REBIND_NOT_ALLOWED, rsm_memseg_export_rebind(fixed.export, HOLE, 0, 1));
    EXPECT(RSMERR_BAD_LENGTH, rsm_memseg_export_rebind(pair.export, HOLE, 0, 2 * PAGE));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_export_rebind(pair.export, HOLE, 0, PAGE));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_export_rebind(pair.export, pair.memory + 1, 0, PAGE));
    EXPECT(RSMERR_PERM_DENIED, rsm_memseg_export_rebind(pair.export, read_only, 0, PAGE));
    OK(rsm_memseg_import_init_barrier(pair.import, RSM_BAR_DEFAULT, &barrier));
    OK(rsm_memseg_import_put8(pair.import, 0, &item, 1));
    CHECK(pair.memory[0] == 5);
    OK(rsm_memseg_import_destroy_barrier(&barrier));
    CHECK(munmap(read_only, PAGE) == 0);
    close_pair(&fixed);
    close_pair(&pair);
}

/* RSMPB-01..06, RSMPB-10, RSMPB-20 */
static void publishing(void)
{
    struct pair pair = open_pair(1, 0, RSM_PERM_READ);
    rsm_memseg_export_handle_t other;
    unsigned char *memory = pages(1);
    const rsm_memseg_id_t reserved[] = {1, 0xFFFFF, 0x100000, 0x200000, 0x3FFFFF, 0x80000000u, 0xFFFFFFFFu};
    rsmapi_access_entry_t list[2];
    rsm_memseg_id_t id = SEGMENT;
    size_t at;
    list[0].ae_node = list[1].ae_node = node;
    list[0].ae_permission = list[1].ae_permission = 0666;
    OK(rsm_memseg_export_create(controller, &other, memory, PAGE, 0));
    EXPECT(RSMERR_BAD_SEGID, rsm_memseg_export_publish(NULL, NULL, NULL, 1));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_export_publish(NULL, &id, NULL, 1));
    EXPECT(RSMERR_BAD_ACL, rsm_memseg_export_publish(pair.export, &id, NULL, 1));
    EXPECT(RSMERR_SEG_ALREADY_PUBLISHED, rsm_memseg_export_publish(pair.export, &id, list, 9));
    for (at = 0; at < sizeof reserved / sizeof *reserved; at++) {
        id = reserved[at];
        EXPECT(RSMERR_RESERVED_SEGID, rsm_memseg_export_publish(other, &id, list, 9));
        CHECK(id == reserved[at]);
    }
    id = 0;
    EXPECT(RSMERR_BAD_ACL, rsm_memseg_export_publish(other, &id, list, 2));
    EXPECT(RSMERR_BAD_ACL, rsm_memseg_export_publish(other, &id, list, 0xFFFFFFFFu));
    list[0].ae_node = node + 1;
    EXPECT(RSMERR_BAD_ACL, rsm_memseg_export_publish(other, &id, list, 1));
    list[0].ae_node = node;
    list[0].ae_permission = 0777;
    EXPECT(RSMERR_BAD_ACL, rsm_memseg_export_publish(other, &id, list, 1));
    CHECK(id == 0);
    EXPECT(RSMERR_SEG_NOT_PUBLISHED, rsm_memseg_export_republish(other, NULL, 3));
    EXPECT(RSMERR_SEG_NOT_PUBLISHED, rsm_memseg_export_republish(other, list, 1));
    EXPECT(RSMERR_SEG_NOT_PUBLISHED, rsm_memseg_export_unpublish(other));
    EXPECT(RSMERR_BAD_ACL, rsm_memseg_export_republish(pair.export, NULL, 3));
    EXPECT(RSMERR_BAD_ACL, rsm_memseg_export_republish(pair.export, list, 1));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_export_republish(NULL, NULL, 3));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_export_unpublish(NULL));
    list[0].ae_permission = 0600;
    /* A list of length 0 counts as no list. RSMPB-04 */
    id = SEGMENT;
    OK(rsm_memseg_export_publish(other, &id, list, 0));
    OK(rsm_memseg_export_unpublish(other));
    OK(rsm_memseg_export_publish(other, &id, list, 1));
    OK(rsm_memseg_export_unpublish(pair.export));
    EXPECT(RSMERR_SEGID_IN_USE, rsm_memseg_export_publish(pair.export, &id, NULL, 0));
    EXPECT(RSMERR_SEG_NOT_PUBLISHED, rsm_memseg_export_unpublish(pair.export));
    EXPECT(RSMERR_RESERVED_SEGID, rsm_memseg_export_publish(pair.export, &pair.id, NULL, 0));
    pair.id = 0;
    OK(rsm_memseg_export_publish(pair.export, &pair.id, NULL, 0));
    OK(rsm_memseg_export_destroy(other));
    free(memory);
    close_pair(&pair);
}

/* RSMIM-01, RSMIM-02, RSMIM-06, RSMIM-10, RSMIM-11, RSMPB-03 */
static void connecting(void)
{
    struct pair pair = open_pair(1, 0, RSM_PERM_READ);
    const rsm_permission_t none[] = {0, 0100, 0444, 0666, 0700, 01600, 0xFFFFFFFFu};
    rsm_memseg_import_handle_t made;
    rsmapi_access_entry_t entry;
    size_t at;
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_memseg_import_connect(NULL, node, pair.id, RSM_PERM_READ, NULL));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_connect(controller, node, pair.id, 0, NULL));
    for (at = 0; at < sizeof none / sizeof *none; at++) {
        made = NOTHING;
        EXPECT(RSMERR_PERM_DENIED, rsm_memseg_import_connect(controller, node, pair.id, none[at], &made));
        CHECK(made == NULL);
    }
    EXPECT(RSMERR_CTLR_NOT_PRESENT, rsm_memseg_import_connect(controller, node + 1, pair.id, RSM_PERM_READ, &made));
    EXPECT(RSMERR_SEG_NOT_PUBLISHED, rsm_memseg_import_connect(controller, node, SEGMENT + 5, RSM_PERM_READ, &made));
    entry.ae_node = node;
    entry.ae_permission = 0466;
    OK(rsm_memseg_export_republish(pair.export, &entry, 1));
    EXPECT(RSMERR_PERM_DENIED, rsm_memseg_import_connect(controller, node, pair.id, RSM_PERM_RDWR, &made));
    CHECK(made == NULL);
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_disconnect(NULL));
    OK(rsm_memseg_import_connect(controller, node, pair.id, RSM_PERM_READ, &made));
    OK(rsm_memseg_import_disconnect(made));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_disconnect(made));
    close_pair(&pair);
}

#define ITEMS(bits)                                                                                                     \
    do {                                                                                                                \
        uint##bits##_t item[4] = {0, 0, 0, 0};                                                                          \
        const long size = sizeof item[0];                                                                               \
        EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_get##bits(NULL, 0, NULL, 1));                                     \
        EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_put##bits(NULL, 0, NULL, 1));                                     \
        EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_get##bits(pair.import, 0, NULL, 1));                                  \
        EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_put##bits(pair.import, 0, NULL, 0));                                  \
        EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_get##bits(pair.import, 0, (void *)HOLE, 1));                          \
        EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_put##bits(pair.import, 0, (void *)HOLE, 1));                          \
        EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_get##bits(pair.import, 0, (void *)fixed, 1));                         \
        if (size > 1) {                                                                                                 \
            EXPECT(RSMERR_BAD_MEM_ALIGNMENT, rsm_memseg_import_get##bits(pair.import, 1, item, 1));                     \
            EXPECT(RSMERR_BAD_MEM_ALIGNMENT, rsm_memseg_import_put##bits(pair.import, size + 1, item, 1));              \
            EXPECT(RSMERR_BAD_MEM_ALIGNMENT, rsm_memseg_import_get##bits(pair.import, 0, (void *)((char *)item + 1), 1)); \
            EXPECT(RSMERR_BAD_MEM_ALIGNMENT, rsm_memseg_import_put##bits(pair.import, 0, (void *)((char *)item + 1), 1)); \
        }                                                                                                               \
        EXPECT(RSMERR_BAD_OFFSET, rsm_memseg_import_get##bits(pair.import, -8, item, 1));                               \
        EXPECT(RSMERR_BAD_OFFSET, rsm_memseg_import_put##bits(pair.import, PAGE + 8, item, 1));                         \
        EXPECT(RSMERR_BAD_OFFSET, rsm_memseg_import_get##bits(pair.import, PAGE + 8, item, 1));                         \
        EXPECT(RSMERR_BAD_OFFSET, rsm_memseg_import_put##bits(pair.import, -8, item, 1));                               \
        EXPECT(RSMERR_BAD_LENGTH, rsm_memseg_import_get##bits(pair.import, PAGE, item, 1));                             \
        EXPECT(RSMERR_BAD_LENGTH, rsm_memseg_import_put##bits(pair.import, 0, item, PAGE / size + 1));                  \
        EXPECT(RSMERR_BAD_LENGTH, rsm_memseg_import_get##bits(pair.import, 8, item, ~0ul));                             \
        EXPECT(RSMERR_BAD_LENGTH, rsm_memseg_import_put##bits(pair.import, 8, item, (~0ul >> 3) + 1));                  \
        EXPECT(RSMERR_BARRIER_UNINITIALIZED, rsm_memseg_import_get##bits(pair.import, 0, item, 1));                     \
        EXPECT(RSMERR_BARRIER_UNINITIALIZED, rsm_memseg_import_put##bits(pair.import, 0, item, 1));                     \
        EXPECT(RSMERR_PERM_DENIED, rsm_memseg_import_get##bits(writer.import, 0, item, 1));                             \
        EXPECT(RSMERR_PERM_DENIED, rsm_memseg_import_put##bits(reader.import, PAGE + 8, item, ~0ul));                   \
        EXPECT(RSMERR_CONN_ABORTED, rsm_memseg_import_get##bits(gone.import, 0, item, 1));                              \
        EXPECT(RSMERR_CONN_ABORTED, rsm_memseg_import_put##bits(gone.import, PAGE + 8, item, ~0ul));                    \
    } while (0)

/* RSMGP-01, RSMGP-02, RSMGP-05..07, RSMST-01 */
static void moving(void)
{
    struct pair pair = open_pair(1, 0, RSM_PERM_RDWR), writer = open_pair(1, 0, RSM_PERM_WRITE);
    struct pair reader = open_pair(1, 0, RSM_PERM_READ), gone = open_pair(1, 0, RSM_PERM_RDWR);
    unsigned char *fixed = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char bytes[8];
    CHECK(fixed != MAP_FAILED);
    OK(rsm_memseg_export_unpublish(gone.export));
    ITEMS(8);
    ITEMS(16);
    ITEMS(32);
    ITEMS(64);
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_get(NULL, 0, NULL, 1));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_put(NULL, 0, NULL, 1));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_get(pair.import, 0, NULL, 0));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_put(pair.import, 0, NULL, 1));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_get(pair.import, 0, HOLE, 1));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_put(pair.import, 0, HOLE, 1));
    EXPECT(RSMERR_BAD_OFFSET, rsm_memseg_import_get(pair.import, -1, bytes, 1));
    EXPECT(RSMERR_BAD_OFFSET, rsm_memseg_import_put(pair.import, PAGE + 1, bytes, 1));
    EXPECT(RSMERR_BAD_OFFSET, rsm_memseg_import_get(pair.import, PAGE + 1, bytes, 1));
    EXPECT(RSMERR_BAD_OFFSET, rsm_memseg_import_put(pair.import, -1, bytes, 1));
    EXPECT(RSMERR_BAD_LENGTH, rsm_memseg_import_get(pair.import, 1, bytes, PAGE));
    EXPECT(RSMERR_BAD_LENGTH, rsm_memseg_import_put(pair.import, 1, bytes, (size_t)-1));
    EXPECT(RSMERR_BARRIER_UNINITIALIZED, rsm_memseg_import_get(pair.import, 0, bytes, 1));
    EXPECT(RSMERR_BARRIER_UNINITIALIZED, rsm_memseg_import_put(pair.import, 0, bytes, 1));
    EXPECT(RSMERR_PERM_DENIED, rsm_memseg_import_get(writer.import, 0, bytes, 1));
    EXPECT(RSMERR_PERM_DENIED, rsm_memseg_import_put(reader.import, 0, bytes, (size_t)-1));
    EXPECT(RSMERR_CONN_ABORTED, rsm_memseg_import_get(gone.import, 0, bytes, 1));
    EXPECT(RSMERR_CONN_ABORTED, rsm_memseg_import_put(gone.import, PAGE + 1, bytes, 1));
    gone.id = 0;
    OK(rsm_memseg_export_publish(gone.export, &gone.id, NULL, 0));
    close_pair(&gone);
    close_pair(&reader);
    close_pair(&writer);
    close_pair(&pair);
    CHECK(munmap(fixed, PAGE) == 0);
}

/* RSMLH-03, RSMLH-04, RSMLH-11 */
static void local_memory(void)
{
    rsm_localmemory_handle_t made = NOTHING;
    char *memory = (char *)pages(1);
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_create_localmemory_handle(NULL, NULL, NULL, 0));
    EXPECT(RSMERR_BAD_LOCALMEM_HNDL, rsm_create_localmemory_handle(controller, NULL, NULL, 0));
    EXPECT(RSMERR_BAD_LENGTH, rsm_create_localmemory_handle(controller, &made, NULL, 0));
    CHECK(made == NULL);
    EXPECT(RSMERR_BAD_ADDR, rsm_create_localmemory_handle(controller, &made, NULL, 1));
    EXPECT(RSMERR_BAD_ADDR, rsm_create_localmemory_handle(controller, &made, (char *)HOLE, 1));
    EXPECT(RSMERR_BAD_CTLR_HNDL, rsm_free_localmemory_handle(NULL, NULL));
    EXPECT(RSMERR_BAD_LOCALMEM_HNDL, rsm_free_localmemory_handle(controller, NULL));
    OK(rsm_create_localmemory_handle(controller, &made, memory + 3, 17));
    OK(rsm_free_localmemory_handle(controller, made));
    EXPECT(RSMERR_BAD_LOCALMEM_HNDL, rsm_free_localmemory_handle(controller, made));
    free(memory);
}

/* RSMBR-01, RSMBR-02, RSMBR-10, RSMBR-11, RSMMD-01, RSMST-01, RSMST-03 */
static void barriers(void)
{
    struct pair pair = open_pair(1, 0, RSM_PERM_RDWR);
    rsmapi_barrier_t barrier, zero, garbage, untouched;
    rsm_barrier_mode_t mode = RSM_BARRIER_MODE_EXPLICIT;
    int (*calls[])(rsmapi_barrier_t *) = {rsm_memseg_import_open_barrier, rsm_memseg_import_order_barrier,
                                          rsm_memseg_import_close_barrier, rsm_memseg_import_destroy_barrier};
    size_t at;
    memset(&zero, 0, sizeof zero);
    memset(&garbage, 0xA5, sizeof garbage);
    memset(&barrier, 0xEE, sizeof barrier);
    untouched = barrier;
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_init_barrier(NULL, RSM_BAR_DEFAULT, NULL));
    EXPECT(RSMERR_BAD_BARRIER_PTR, rsm_memseg_import_init_barrier(pair.import, RSM_BAR_DEFAULT, NULL));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_init_barrier(NULL, RSM_BAR_DEFAULT, &barrier));
    CHECK(memcmp(&barrier, &untouched, sizeof barrier) == 0);
    for (at = 0; at < 4; at++) {
        EXPECT(RSMERR_BAD_BARRIER_PTR, calls[at](NULL));
        EXPECT(RSMERR_BARRIER_UNINITIALIZED, calls[at](&zero));
        EXPECT(RSMERR_BARRIER_UNINITIALIZED, calls[at](&garbage));
    }
    /* Any type is accepted. */
    OK(rsm_memseg_import_init_barrier(pair.import, (rsm_barrier_type_t)0x77, &barrier));
    garbage = barrier;
    EXPECT(RSMERR_BARRIER_NOT_OPENED, rsm_memseg_import_close_barrier(&barrier));
    EXPECT(RSMERR_BARRIER_NOT_OPENED, rsm_memseg_import_order_barrier(&barrier));
    OK(rsm_memseg_import_open_barrier(&barrier));
    OK(rsm_memseg_import_close_barrier(&barrier));
    EXPECT(RSMERR_BARRIER_NOT_OPENED, rsm_memseg_import_close_barrier(&barrier));
    OK(rsm_memseg_import_destroy_barrier(&barrier));
    for (at = 0; at < 4; at++) {
        EXPECT(RSMERR_BARRIER_UNINITIALIZED, calls[at](&barrier));
        /* Earlier copies of the storage are no barriers any more. */
        EXPECT(RSMERR_BARRIER_UNINITIALIZED, calls[at](&garbage));
    }
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_get_mode(NULL, NULL));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_get_mode(pair.import, NULL));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_set_mode(NULL, (rsm_barrier_mode_t)2));
    EXPECT(RSMERR_BAD_MODE, rsm_memseg_import_set_mode(pair.import, (rsm_barrier_mode_t)2));
    EXPECT(RSMERR_BAD_MODE, rsm_memseg_import_set_mode(pair.import, (rsm_barrier_mode_t)-1));
    OK(rsm_memseg_import_get_mode(pair.import, &mode));
    CHECK(mode == RSM_BARRIER_MODE_IMPLICIT);
    OK(rsm_memseg_import_init_barrier(pair.import, RSM_BAR_DEFAULT, &barrier));
    OK(rsm_memseg_import_open_barrier(&barrier));
    OK(rsm_memseg_export_unpublish(pair.export));
    EXPECT(RSMERR_CONN_ABORTED, rsm_memseg_import_order_barrier(&barrier));
    EXPECT(RSMERR_CONN_ABORTED, rsm_memseg_import_close_barrier(&barrier));
    OK(rsm_memseg_import_disconnect(pair.import));
    for (at = 0; at < 3; at++)
        EXPECT(RSMERR_BAD_SEG_HNDL, calls[at](&barrier));
    OK(rsm_memseg_import_destroy_barrier(&barrier));
    OK(rsm_memseg_export_destroy(pair.export));
    OK(rsm_release_controller(pair.controller));
    free(pair.memory);
}

/* RSMST-05: up to the limit and no more; freed objects can be made again. */
static void exhausted(void)
{
    static rsm_localmemory_handle_t locals[4096];
    static rsm_memseg_export_handle_t exports[4096];
    static rsmapi_barrier_t barriers[4096];
    struct pair pair = open_pair(1, 0, RSM_PERM_RDWR);
    rsmapi_controller_attr_t attributes;
    size_t count, at;
    int code = 0;
    for (count = 0; count < 4096 && code == RSM_SUCCESS; count++)
        code = rsm_create_localmemory_handle(controller, &locals[count], (char *)pair.memory, PAGE);
    CHECK(code == RSMERR_INSUFFICIENT_RESOURCES && locals[--count] == NULL && count >= 512);
    for (at = 0; at < count; at++)
        OK(rsm_free_localmemory_handle(controller, locals[at]));
    OK(rsm_get_controller_attr(controller, &attributes));
    for (code = 0, count = 0; count < 4096 && code == RSM_SUCCESS; count++)
        code = rsm_memseg_export_create(controller, &exports[count], pair.memory, PAGE, 0);
    CHECK(code == RSMERR_INSUFFICIENT_RESOURCES && exports[--count] == NULL);
    /* The pair has one of them. */
    CHECK(count + 1 == attributes.attr_max_export_segments);
    for (at = 0; at < count; at++)
        OK(rsm_memseg_export_destroy(exports[at]));
    for (code = 0, count = 0; count < 4096 && code == RSM_SUCCESS; count++)
        code = rsm_memseg_import_init_barrier(pair.import, RSM_BAR_DEFAULT, &barriers[count]);
    CHECK(code == RSMERR_INSUFFICIENT_RESOURCES && --count >= 512);
    for (at = 0; at < count; at++)
        OK(rsm_memseg_import_destroy_barrier(&barriers[at]));
    OK(rsm_memseg_import_init_barrier(pair.import, RSM_BAR_DEFAULT, &barriers[0]));
    OK(rsm_memseg_import_destroy_barrier(&barriers[0]));
    close_pair(&pair);
}

int main(void)
{
    OK(rsm_get_controller("loopback", &controller));
    node = own_node();
    controllers();
    creating();
    rebinding();
    publishing();
    connecting();
    moving();
    local_memory();
    barriers();
    exhausted();
    OK(rsm_release_controller(controller));
    return 0;
}
