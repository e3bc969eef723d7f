/* Many threads make all kinds of calls. RSMGEN-02, RSMPV-84, RSMPV-14, RSMST-04, RSMCT-03 */
#include "check.h"

#define THREADS 6
#define ROUNDS 60

static struct pair shared;

/* Each thread has a page of the shared segment, and a segment of its own. */
static void *work(void *argument)
{
    const size_t number = (size_t)(uintptr_t)argument;
    unsigned char *local = pages(1), *back = pages(1);
    int round;
    for (round = 0; round < ROUNDS; round++) {
        struct pair own = open_pair(1, 0, RSM_PERM_RDWR);
        rsm_localmemory_handle_t handle;
        rsmapi_barrier_t barrier;
        rsm_iovec_t entries[2];
        rsm_scat_gath_t vector;
        struct pollfd entry;
        fill(local, PAGE, (unsigned)(number * 31 + round));
        OK(rsm_create_localmemory_handle(own.controller, &handle, (char *)local, PAGE));
        memset(entries, 0, sizeof entries);
        memset(&vector, 0, sizeof vector);
        entries[0].io_type = RSM_HANDLE_TYPE;
        entries[0].local.handle = handle;
        entries[0].remote_offset = number * PAGE;
        entries[0].transfer_length = 2000;
        entries[1].io_type = RSM_VA_TYPE;
        entries[1].local.vaddr = (char *)local;
        entries[1].local_offset = 2000;
        entries[1].remote_offset = number * PAGE + 2000;
        entries[1].transfer_length = PAGE - 2000;
        vector.remote_handle = shared.import;
        vector.io_request_count = 2;
        vector.iovec = entries;
        OK(rsm_memseg_import_putv(&vector));
        CHECK(memcmp(shared.memory + number * PAGE, local, PAGE) == 0);
        OK(rsm_memseg_import_get(shared.import, number * PAGE, back, PAGE));
        CHECK(memcmp(back, local, PAGE) == 0);
        OK(rsm_memseg_import_init_barrier(own.import, RSM_BAR_DEFAULT, &barrier));
        OK(rsm_memseg_import_put64(own.import, 0, (uint64_t *)local, 100));
        OK(rsm_memseg_get_pollfd(own.export, &entry));
        OK(rsm_intr_signal_post(own.import, 0));
        if (round % 2)
            OK(rsm_intr_signal_wait(own.export, PATIENCE));
        else
            OK(rsm_intr_signal_wait_pollfd(&entry, 1, PATIENCE, NULL));
        OK(rsm_memseg_release_pollfd(own.export));
        OK(rsm_memseg_import_destroy_barrier(&barrier));
        OK(rsm_free_localmemory_handle(own.controller, handle));
        close_pair(&own);
    }
    free(local);
    free(back);
    return NULL;
}

/* Transfers vectors until the segment is gone. */
static void *move(void *argument)
{
    const struct pair *pair = argument;
    unsigned char *local = pages(1);
    rsm_iovec_t entry;
    rsm_scat_gath_t vector;
    intptr_t code;
    memset(&entry, 0, sizeof entry);
    memset(&vector, 0, sizeof vector);
    entry.io_type = RSM_VA_TYPE;
    entry.local.vaddr = (char *)local;
    entry.transfer_length = PAGE;
    vector.remote_handle = pair->import;
    vector.io_request_count = 1;
    vector.iovec = &entry;
    while ((code = rsm_memseg_import_putv(&vector)) == RSM_SUCCESS)
        ;
    CHECK(vector.io_residual_count == 1);
    free(local);
    return (void *)code;
}

static void taken_back(void)
{
    int round, at;
    for (round = 0; round < 10; round++) {
        struct pair pair = open_pair(1, 0, RSM_PERM_RDWR);
        pthread_t threads[3];
        void *code;
        for (at = 0; at < 3; at++)
            CHECK(pthread_create(&threads[at], NULL, move, &pair) == 0);
        usleep(2000);
        OK(rsm_memseg_export_unpublish(pair.export));
        /* The memory is the exporter's again: no transfer reaches it any more. */
        memset(pair.memory, 0xC3, PAGE);
        for (at = 0; at < 3; at++) {
            CHECK(pthread_join(threads[at], &code) == 0);
            CHECK((intptr_t)code == RSMERR_CONN_ABORTED);
        }
        for (at = 0; at < PAGE; at++)
            CHECK(pair.memory[at] == 0xC3);
        OK(rsm_memseg_import_disconnect(pair.import));
        OK(rsm_memseg_export_destroy(pair.export));
        OK(rsm_release_controller(pair.controller));
        free(pair.memory);
    }
}

static void *get_and_release(void *argument)
{
    int round;
    (void)argument;
    for (round = 0; round < 200; round++) {
        rsmapi_controller_handle_t controller;
        rsmapi_controller_attr_t attributes;
        OK(rsm_get_controller("loopback", &controller));
        OK(rsm_get_controller_attr(controller, &attributes));
        OK(rsm_release_controller(controller));
    }
    return NULL;
}

static void at_once(void *(*what)(void *))
{
    pthread_t threads[THREADS];
    size_t at;
    for (at = 0; at < THREADS; at++)
        CHECK(pthread_create(&threads[at], NULL, what, (void *)(uintptr_t)at) == 0);
    for (at = 0; at < THREADS; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
}

int main(void)
{
    rsmapi_barrier_t barrier;
    at_once(get_and_release);
    shared = open_pair(THREADS, 0, RSM_PERM_RDWR);
    OK(rsm_memseg_import_init_barrier(shared.import, RSM_BAR_DEFAULT, &barrier));
    at_once(work);
    OK(rsm_memseg_import_destroy_barrier(&barrier));
    taken_back();
    close_pair(&shared);
    at_once(get_and_release);
    return 0;
}
