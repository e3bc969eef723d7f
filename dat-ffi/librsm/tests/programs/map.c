/* Mappings. */
#include "check.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

static sigjmp_buf back;

static void caught(int number)
{
    (void)number;
    siglongjmp(back, 1);
}

/* Returns true if a store ends in a fault. */
static int faults(volatile unsigned char *place)
{
    if (sigsetjmp(back, 1) != 0)
        return 1;
    *place = 1;
    return 0;
}

/* RSMMP-01, RSMMP-03, RSMMP-05, RSMMP-10, RSMIM-10 */
static void plain(void)
{
    struct pair pair = open_pair(3, 0, RSM_PERM_RDWR), reader = open_pair(1, 0, RSM_PERM_READ);
    rsmapi_barrier_t barrier;
    unsigned char *mapped = NULL, item = 4;
    void *address = (void *)0x5555, *elsewhere = pages(1);
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_map(NULL, NULL, RSM_MAP_NONE, RSM_PERM_RDWR, 0, PAGE));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_map(pair.import, NULL, RSM_MAP_NONE, RSM_PERM_RDWR, 0, PAGE));
    EXPECT(RSMERR_BAD_PERMS, rsm_memseg_import_map(pair.import, &address, RSM_MAP_NONE, 0666, 0, 0));
    EXPECT(RSMERR_BAD_PERMS, rsm_memseg_import_map(pair.import, &address, RSM_MAP_NONE, 0, 0, PAGE));
    EXPECT(RSMERR_BAD_PERMS, rsm_memseg_import_map(reader.import, &address, RSM_MAP_NONE, RSM_PERM_WRITE, 0, PAGE));
    EXPECT(RSMERR_BAD_LENGTH, rsm_memseg_import_map(pair.import, &address, RSM_MAP_NONE, RSM_PERM_RDWR, 0, 0));
    EXPECT(RSMERR_BAD_OFFSET, rsm_memseg_import_map(pair.import, &address, RSM_MAP_NONE, RSM_PERM_RDWR, 3 * PAGE, PAGE));
    EXPECT(RSMERR_BAD_OFFSET, rsm_memseg_import_map(pair.import, &address, RSM_MAP_NONE, RSM_PERM_RDWR, -PAGE, PAGE));
    EXPECT(RSMERR_BAD_LENGTH, rsm_memseg_import_map(pair.import, &address, RSM_MAP_NONE, RSM_PERM_RDWR, PAGE, 2 * PAGE + 1));
    EXPECT(RSMERR_BAD_MEM_ALIGNMENT, rsm_memseg_import_map(pair.import, &address, RSM_MAP_NONE, RSM_PERM_RDWR, 8, PAGE));
    EXPECT(RSMERR_BAD_MEM_ALIGNMENT, rsm_memseg_import_map(pair.import, &address, RSM_MAP_FIXED, RSM_PERM_RDWR, 0, PAGE));
    CHECK(address == (void *)0x5555);
    address = elsewhere;
    EXPECT(RSMERR_MAP_FAILED, rsm_memseg_import_map(pair.import, &address, RSM_MAP_FIXED, RSM_PERM_RDWR, 0, PAGE));
    CHECK(address == elsewhere);
    EXPECT(RSMERR_SEG_NOT_MAPPED, rsm_memseg_import_unmap(pair.import));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_import_unmap(NULL));
    /* The bit of RSM_MAP_RESERVED is ignored. */
    OK(rsm_memseg_import_map(pair.import, &address, RSM_MAP_RESERVED, RSM_PERM_RDWR, PAGE, PAGE));
    mapped = address;
    mapped[10] = 3;
    CHECK(pair.memory[PAGE + 10] == 3);
    pair.memory[PAGE + 11] = 8;
    CHECK(mapped[11] == 8);
    EXPECT(RSMERR_SEG_ALREADY_MAPPED, rsm_memseg_import_map(pair.import, &address, RSM_MAP_NONE, 0, 0, PAGE));
    EXPECT(RSMERR_SEG_STILL_MAPPED, rsm_memseg_import_disconnect(pair.import));
    OK(rsm_memseg_import_init_barrier(pair.import, RSM_BAR_DEFAULT, &barrier));
    EXPECT(RSMERR_BAD_OFFSET, rsm_memseg_import_put(pair.import, 0, &item, 1));
    OK(rsm_memseg_import_put(pair.import, PAGE, &item, 1));
    CHECK(mapped[0] == 4);
    OK(rsm_memseg_import_unmap(pair.import));
    /* Mapped at the memory's own address. RSMMP-02 */
    address = pair.memory + PAGE;
    OK(rsm_memseg_import_map(pair.import, &address, RSM_MAP_FIXED, RSM_PERM_RDWR, PAGE, PAGE));
    CHECK(address == pair.memory + PAGE);
    OK(rsm_memseg_import_unmap(pair.import));
    OK(rsm_memseg_import_destroy_barrier(&barrier));
    OK(rsm_memseg_export_unpublish(reader.export));
    EXPECT(RSMERR_CONN_ABORTED, rsm_memseg_import_map(reader.import, &address, RSM_MAP_NONE, RSM_PERM_READ, 0, PAGE));
    OK(rsm_memseg_import_disconnect(reader.import));
    OK(rsm_memseg_export_destroy(reader.export));
    OK(rsm_release_controller(reader.controller));
    free(reader.memory);
    free(elsewhere);
    close_pair(&pair);
}

/* RSMMP-01, RSMMP-02, RSMST-02: shared memory is mapped at an address of its own, which outlives
 * the segment. */
static void shared(int windows)
{
    unsigned char *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned char *other = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned char *wanted = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    rsmapi_controller_handle_t controller;
    rsm_memseg_export_handle_t export;
    rsm_memseg_import_handle_t import;
    rsm_memseg_id_t id = 0;
    unsigned char *mapped;
    void *address = wanted;
    CHECK(memory != MAP_FAILED && other != MAP_FAILED && wanted != MAP_FAILED);
    OK(rsm_get_controller("loopback", &controller));
    OK(rsm_memseg_export_create(controller, &export, memory, 2 * PAGE, RSM_ALLOW_REBIND));
    OK(rsm_memseg_export_publish(export, &id, NULL, 0));
    OK(rsm_memseg_import_connect(controller, own_node(), id, RSM_PERM_RDWR, &import));
    OK(rsm_memseg_import_map(import, &address, RSM_MAP_NONE, RSM_PERM_READ, PAGE, PAGE));
    mapped = address;
    memory[PAGE] = 7;
    CHECK(mapped[0] == 7);
    if (windows) {
        CHECK(mapped != memory + PAGE && faults(mapped));
        OK(rsm_memseg_import_unmap(import));
        CHECK(faults(mapped));
        address = wanted;
        OK(rsm_memseg_import_map(import, &address, RSM_MAP_FIXED, RSM_PERM_RDWR, 0, 2 * PAGE));
        CHECK(address == wanted && wanted[PAGE] == 7);
        wanted[1] = 9;
        CHECK(memory[1] == 9);
        /* After a rebind the mapping shows the new memory. RSMEX-20 */
        other[1] = 33;
        OK(rsm_memseg_export_rebind(export, other, 0, 2 * PAGE));
        CHECK(wanted[1] == 33);
        wanted[2] = 34;
        CHECK(other[2] == 34);
        /* Without the segment the address stays mapped, and stores do not reach any segment. */
        OK(rsm_memseg_export_unpublish(export));
        wanted[1] = 99;
        CHECK(other[1] == 33);
    }
    OK(rsm_memseg_import_unmap(import));
    OK(rsm_memseg_import_disconnect(import));
    OK(rsm_memseg_export_destroy(export));
    OK(rsm_release_controller(controller));
    CHECK(munmap(memory, 2 * PAGE) == 0 && munmap(other, 2 * PAGE) == 0);
}

/* RSMMP-01: pages that are not contiguous in one object are not mapped a second time, because
 * the system would map other pages after the first one. The call returns their own address. */
static void apart(void)
{
    unsigned char *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    rsmapi_controller_handle_t controller;
    rsm_memseg_export_handle_t export;
    rsm_memseg_import_handle_t import;
    rsm_memseg_id_t id = 0;
    unsigned char *mapped;
    void *address = NULL;
    CHECK(memory != MAP_FAILED);
    CHECK(mmap(memory + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory + PAGE);
    memory[1] = 5;
    memory[PAGE + 1] = 6;
    OK(rsm_get_controller("loopback", &controller));
    OK(rsm_memseg_export_create(controller, &export, memory, 2 * PAGE, 0));
    OK(rsm_memseg_export_publish(export, &id, NULL, 0));
    OK(rsm_memseg_import_connect(controller, own_node(), id, RSM_PERM_RDWR, &import));
    OK(rsm_memseg_import_map(import, &address, RSM_MAP_NONE, RSM_PERM_RDWR, 0, 2 * PAGE));
    mapped = address;
    CHECK(mapped == memory && mapped[1] == 5 && mapped[PAGE + 1] == 6);
    OK(rsm_memseg_import_unmap(import));
    OK(rsm_memseg_import_disconnect(import));
    OK(rsm_memseg_export_destroy(export));
    OK(rsm_release_controller(controller));
    CHECK(munmap(memory, 2 * PAGE) == 0);
}

int main(int count, char **arguments)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = caught;
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    plain();
    apart();
    /* Memory checkers do not allow a second mapping. */
    shared(!(count > 1 && strcmp(arguments[1], "watched") == 0));
    return 0;
}
