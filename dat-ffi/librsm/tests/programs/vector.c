/* putv and getv. */
#include "check.h"
#include <sys/mman.h>

#define ENTRIES 3

static struct pair pair;
static unsigned char *local;
static rsm_localmemory_handle_t handle;

static rsm_iovec_t by_handle(size_t local_offset, size_t remote_offset, size_t length)
{
    rsm_iovec_t entry;
    memset(&entry, 0, sizeof entry);
    entry.io_type = RSM_HANDLE_TYPE;
    entry.local.handle = handle;
    entry.local_offset = local_offset;
    entry.remote_offset = remote_offset;
    entry.transfer_length = length;
    return entry;
}

static rsm_iovec_t by_address(void *address, size_t local_offset, size_t remote_offset, size_t length)
{
    rsm_iovec_t entry = by_handle(local_offset, remote_offset, length);
    entry.io_type = RSM_VA_TYPE;
    entry.local.vaddr = address;
    return entry;
}

static rsm_scat_gath_t vector(rsm_iovec_t *entries, unsigned long count, unsigned flags)
{
    rsm_scat_gath_t vector;
    memset(&vector, 0xEE, sizeof vector);
    vector.io_request_count = count;
    vector.io_residual_count = 99;
    vector.flags = flags;
    vector.remote_handle = pair.import;
    vector.iovec = entries;
    return vector;
}

typedef int (*mover)(rsm_scat_gath_t *);
static const mover movers[2] = {rsm_memseg_import_putv, rsm_memseg_import_getv};

/* RSMPV-01..06, RSMPV-09, RSMPV-10, RSMPV-11, RSMPV-30, RSMPV-53, RSMPV-61 */
static void both_ways(void)
{
    rsm_iovec_t entries[5], before[5];
    rsm_scat_gath_t moved, asked;
    fill(local, 2 * PAGE, 1);
    memset(pair.memory, 0, pair.length);
    entries[0] = by_handle(10, 100, 50);
    entries[1] = by_address(local + 1000, 24, 301, 77);
    entries[2] = by_handle(4096, 4000, 200);
    entries[3] = by_address(local, 0, pair.length, 0);
    entries[4] = by_handle(2 * PAGE, 5, 0);
    memcpy(before, entries, sizeof entries);
    moved = vector(entries, 5, 0);
    asked = moved;
    asked.io_residual_count = 0;
    OK(rsm_memseg_import_putv(&moved));
    CHECK(memcmp(&moved, &asked, sizeof moved) == 0);
    CHECK(memcmp(before, entries, sizeof entries) == 0);
    CHECK(memcmp(pair.memory + 100, local + 10, 50) == 0);
    CHECK(memcmp(pair.memory + 301, local + 1024, 77) == 0);
    CHECK(memcmp(pair.memory + 4000, local + 4096, 200) == 0);
    CHECK(pair.memory[99] == 0 && pair.memory[150] == 0 && pair.memory[300] == 0 && pair.memory[378] == 0);
    memset(local, 0, 2 * PAGE);
    moved.io_residual_count = 99;
    OK(rsm_memseg_import_getv(&moved));
    CHECK(moved.io_residual_count == 0);
    CHECK(memcmp(pair.memory + 100, local + 10, 50) == 0);
    CHECK(memcmp(pair.memory + 301, local + 1024, 77) == 0);
    CHECK(memcmp(pair.memory + 4000, local + 4096, 200) == 0);
    CHECK(local[9] == 0 && local[60] == 0 && local[1023] == 0 && local[1101] == 0);
}

/* RSMPV-08, RSMPV-33: the maximum number of entries; a later entry overwrites an earlier one. */
static void many(void)
{
    rsm_iovec_t entries[RSM_MAX_SGIOREQS + 1];
    rsm_scat_gath_t moved;
    int at;
    for (at = 0; at <= RSM_MAX_SGIOREQS; at++) {
        local[at] = (unsigned char)(at + 1);
        entries[at] = at % 2 ? by_handle(at, 7, 1) : by_address(local, at, 7, 1);
    }
    moved = vector(entries, RSM_MAX_SGIOREQS, 0);
    OK(rsm_memseg_import_putv(&moved));
    CHECK(pair.memory[7] == RSM_MAX_SGIOREQS);
    /* RSMPV-58 */
    for (at = 0; at < 2; at++) {
        moved = vector(entries, RSM_MAX_SGIOREQS + 1, 0);
        EXPECT(RSMERR_BAD_SGIO, movers[at](&moved));
        CHECK(moved.io_residual_count == RSM_MAX_SGIOREQS + 1);
        moved = vector(entries, 0, 0);
        EXPECT(RSMERR_BAD_SGIO, movers[at](&moved));
        CHECK(moved.io_residual_count == 0);
        moved = vector(entries, ~0ul, 0);
        EXPECT(RSMERR_BAD_SGIO, movers[at](&moved));
        CHECK(moved.io_residual_count == ~0ul);
    }
}

/* RSMPV-50..57, RSMPV-E01, RSMPV-E04..E06: a bad entry at each position; earlier entries are
 * transferred, later ones are not started. */
static void bad_entries(void)
{
    struct bad {
        rsm_iovec_t entry;
        int error;
    } bad[16];
    size_t kinds = 0, kind;
    int way, at, place;
    unsigned char *read_only = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    rsm_localmemory_handle_t other = NULL, reading = NULL;
    rsm_scat_gath_t moved;
    CHECK(read_only != MAP_FAILED);
    OK(rsm_create_localmemory_handle(pair.controller, &other, (char *)local, PAGE));
    OK(rsm_create_localmemory_handle(pair.controller, &reading, (char *)read_only, PAGE));
    OK(rsm_free_localmemory_handle(pair.controller, other));
#define BAD(code, made)                                                                                                 \
    do {                                                                                                                \
        bad[kinds].entry = (made);                                                                                      \
        bad[kinds++].error = (code);                                                                                    \
    } while (0)
    BAD(RSMERR_BAD_SGIO, by_handle(0, 0, 1));
    bad[0].entry.io_type = 0;
    BAD(RSMERR_BAD_SGIO, by_handle(0, 0, 1));
    bad[1].entry.io_type = 3;
    BAD(RSMERR_BAD_SGIO, by_handle(0, 0, 1));
    bad[2].entry.local.handle = other;
    BAD(RSMERR_BAD_SGIO, by_handle(0, 0, 1));
    bad[3].entry.local.handle = NULL;
    BAD(RSMERR_BAD_SGIO, by_handle(0, 0, 1));
    memcpy(&bad[4].entry.local.handle, &pair.import, sizeof pair.import);
    BAD(RSMERR_BAD_ADDR, by_address(NULL, 0, 0, 1));
    BAD(RSMERR_BAD_ADDR, by_address(HOLE, 0, 0, 1));
    BAD(RSMERR_BAD_OFFSET, by_address(local, 0, pair.length + 1, 1));
    BAD(RSMERR_BAD_LENGTH, by_address(local, 0, pair.length, 1));
    BAD(RSMERR_BAD_LENGTH, by_handle(2 * PAGE, 0, 1));
    BAD(RSMERR_BAD_OFFSET, by_handle(2 * PAGE + 1, 0, 1));
    BAD(RSMERR_BAD_OFFSET, by_address(local, 0, (size_t)-1, 1));
    BAD(RSMERR_BAD_LENGTH, by_address(local, (size_t)-4, 0, 1));
    BAD(RSMERR_BAD_LENGTH, by_address(local, 0, 0, (size_t)-1));
    BAD(RSMERR_BAD_LENGTH, by_handle(0, 1, (size_t)-1));
    for (way = 0; way < 2; way++)
        for (kind = 0; kind < kinds; kind++)
            for (place = 0; place < ENTRIES; place++) {
                rsm_iovec_t entries[ENTRIES];
                memset(pair.memory, way ? 9 : 0, pair.length);
                memset(local, way ? 0 : 9, 2 * PAGE);
                for (at = 0; at < ENTRIES; at++)
                    entries[at] = at % 2 ? by_handle(at * 10, at * 10, 5) : by_address(local, at * 10, at * 10, 5);
                entries[place] = bad[kind].entry;
                moved = vector(entries, ENTRIES, RSM_IMPLICIT_SIGPOST);
                if (movers[way](&moved) != bad[kind].error || moved.io_residual_count != (unsigned long)(ENTRIES - place)) {
                    fprintf(stderr, "kind %zu at %d, way %d: residual %lu, error %d\n", kind, place, way,
                            moved.io_residual_count, movers[way](&moved));
                    exit(1);
                }
                for (at = 0; at < ENTRIES; at++)
                    CHECK((way ? local : pair.memory)[at * 10] == (at < place ? 9 : 0));
            }
    /* RSMPV-71: no signal was posted. */
    EXPECT(RSMERR_TIMEOUT, rsm_intr_signal_wait(pair.export, 50));
    /* RSMPV-15, RSMLH-05: read-only memory can be put from, but not got into. */
    for (at = 0; at < 2; at++) {
        rsm_iovec_t entry = by_address(read_only, 0, 0, 8);
        if (at) {
            entry = by_handle(0, 0, 8);
            entry.local.handle = reading;
        }
        moved = vector(&entry, 1, 0);
        OK(rsm_memseg_import_putv(&moved));
        EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_getv(&moved));
        CHECK(moved.io_residual_count == 1);
    }
    OK(rsm_free_localmemory_handle(pair.controller, reading));
    CHECK(munmap(read_only, PAGE) == 0);
}

/* RSMPV-E01, RSMPV-E02, RSMPV-E04, RSMPV-E07, RSMPV-E09, RSMPV-81 */
static void refused(void)
{
    rsm_iovec_t entry = by_address(local, 0, 0, 8), bad = by_address(NULL, 0, 0, 8);
    rsm_scat_gath_t moved;
    struct pair other;
    int way;
    for (way = 0; way < 2; way++) {
        EXPECT(RSMERR_BAD_SGIO, movers[way](NULL));
        moved = vector(NULL, 2, 0);
        EXPECT(RSMERR_BAD_ADDR, movers[way](&moved));
        CHECK(moved.io_residual_count == 2);
        moved = vector(&entry, 1, 0);
        moved.remote_handle = NULL;
        EXPECT(RSMERR_BAD_SEG_HNDL, movers[way](&moved));
        CHECK(moved.io_residual_count == 1);
        memcpy(&moved.remote_handle, &pair.export, sizeof pair.export);
        EXPECT(RSMERR_BAD_SEG_HNDL, movers[way](&moved));
        memset(&moved.remote_handle, 0x5A, sizeof moved.remote_handle);
        EXPECT(RSMERR_BAD_SEG_HNDL, movers[way](&moved));
        /* Errors of the handle come before those of the count. */
        moved.io_request_count = 0;
        EXPECT(RSMERR_BAD_SEG_HNDL, movers[way](&moved));
        other = open_pair(1, 0, way ? RSM_PERM_WRITE : RSM_PERM_READ);
        moved = vector(&bad, 1, 0);
        moved.remote_handle = other.import;
        EXPECT(RSMERR_PERM_DENIED, movers[way](&moved));
        moved.iovec = &entry;
        EXPECT(RSMERR_PERM_DENIED, movers[way](&moved));
        CHECK(moved.io_residual_count == 1);
        OK(movers[!way](&moved));
        OK(rsm_memseg_export_unpublish(other.export));
        EXPECT(RSMERR_CONN_ABORTED, movers[!way](&moved));
        CHECK(moved.io_residual_count == 1);
        OK(rsm_memseg_import_disconnect(other.import));
        EXPECT(RSMERR_BAD_SEG_HNDL, movers[way](&moved));
        OK(rsm_memseg_export_destroy(other.export));
        OK(rsm_release_controller(other.controller));
        free(other.memory);
    }
}

/* RSMPV-70, RSMPV-72, RSMPV-73, RSMPV-75, RSMSG-04 */
static void signals(void)
{
    rsm_iovec_t entry = by_address(local, 0, 50, 8);
    rsm_scat_gath_t moved;
    int way, round, attempt, count;
    for (way = 0; way < 2; way++) {
        fill(local, 8, way);
        moved = vector(&entry, 1, RSM_IMPLICIT_SIGPOST);
        OK(movers[way](&moved));
        OK(rsm_intr_signal_wait(pair.export, 10000));
        CHECK(memcmp(pair.memory + 50, local, 8) == 0);
        EXPECT(RSMERR_TIMEOUT, rsm_intr_signal_wait(pair.export, 20));
        moved = vector(&entry, 1, RSM_SIGPOST_NO_ACCUMULATE | 0xFF00);
        OK(movers[way](&moved));
        EXPECT(RSMERR_TIMEOUT, rsm_intr_signal_wait(pair.export, 20));
        moved = vector(&entry, 1, RSM_IMPLICIT_SIGPOST | RSM_SIGPOST_NO_ACCUMULATE);
        /* Signals merge while none was taken; a busy machine may deliver the last one later. */
        for (attempt = 0, count = 0; count != 1; attempt++) {
            CHECK(attempt < 100);
            for (round = 0; round < 3; round++)
                OK(movers[way](&moved));
            OK(rsm_intr_signal_wait(pair.export, 10000));
            for (count = 1; rsm_intr_signal_wait(pair.export, 20) == RSM_SUCCESS; count++)
                CHECK(count < 3);
        }
    }
}

/* RSMPV-20, RSMPV-40, RSMPV-43, RSMPV-44, RSMBR-05 */
static void explicitly(void)
{
    rsm_iovec_t entries[4];
    rsm_scat_gath_t moved;
    rsmapi_barrier_t barrier;
    int at;
    fill(local, 2 * PAGE, 77);
    memset(pair.memory, 0, pair.length);
    for (at = 0; at < 4; at++)
        entries[at] = at % 2 ? by_handle(at * 1000, at * 2000, 900) : by_address(local, at * 1000, at * 2000, 900);
    OK(rsm_memseg_import_set_mode(pair.import, RSM_BARRIER_MODE_EXPLICIT));
    OK(rsm_memseg_import_init_barrier(pair.import, RSM_BARRIER_NODE, &barrier));
    OK(rsm_memseg_import_open_barrier(&barrier));
    moved = vector(entries, 4, 0);
    OK(rsm_memseg_import_putv(&moved));
    CHECK(moved.io_residual_count == 0);
    OK(rsm_memseg_import_close_barrier(&barrier));
    for (at = 0; at < 4; at++)
        CHECK(memcmp(pair.memory + at * 2000, local + at * 1000, 900) == 0);
    memset(local, 0, 2 * PAGE);
    OK(rsm_memseg_import_open_barrier(&barrier));
    OK(rsm_memseg_import_getv(&moved));
    OK(rsm_memseg_import_close_barrier(&barrier));
    for (at = 0; at < 4; at++)
        CHECK(memcmp(pair.memory + at * 2000, local + at * 1000, 900) == 0);
    OK(rsm_memseg_import_putv(&moved));
    OK(rsm_memseg_import_destroy_barrier(&barrier));
    OK(rsm_memseg_import_set_mode(pair.import, RSM_BARRIER_MODE_IMPLICIT));
}

/* RSMPV-06, RSMEX-01: the segment's own memory can be local memory. */
static void onto_itself(void)
{
    rsm_iovec_t entry = by_address(pair.memory, 0, PAGE, 1000);
    rsm_scat_gath_t moved = vector(&entry, 1, 0);
    fill(pair.memory, 1000, 5);
    OK(rsm_memseg_import_putv(&moved));
    CHECK(memcmp(pair.memory, pair.memory + PAGE, 1000) == 0);
}

int main(void)
{
    pair = open_pair(2, 0, RSM_PERM_RDWR);
    local = pages(2);
    OK(rsm_create_localmemory_handle(pair.controller, &handle, (char *)local, 2 * PAGE));
    both_ways();
    many();
    bad_entries();
    refused();
    signals();
    explicitly();
    onto_itself();
    OK(rsm_free_localmemory_handle(pair.controller, handle));
    close_pair(&pair);
    free(local);
    return 0;
}
