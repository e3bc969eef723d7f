/* A cancellation is pending in every call but waits, `cancelled [CONTROLLER]`: all calls
 * complete. RSMGEN-01 */
#include "check.h"

static const char *name = "loopback";

/* The current call of the thread, and a flag that it made them all. */
static const char *volatile now = "none";
static volatile int ended;
#define DONE(call)                                                                                                      \
    do {                                                                                                                \
        now = #call;                                                                                                    \
        OK(call);                                                                                                       \
    } while (0)

static void *everything(void *unused)
{
    rsmapi_controller_handle_t controller;
    rsmapi_controller_attr_t attributes;
    rsm_memseg_export_handle_t export;
    rsm_memseg_import_handle_t import;
    rsm_localmemory_handle_t local;
    rsmapi_barrier_t barrier;
    rsm_memseg_id_t id = 0;
    rsm_topology_t *topology;
    rsm_scat_gath_t vector;
    rsm_iovec_t entry;
    struct pollfd polled;
    unsigned char *memory = pages(2), bytes[64] = {7};
    uint8_t item = 3;
    int round;
    (void)unused;
    CHECK(pthread_cancel(pthread_self()) == 0);
    DONE(rsm_get_controller((char *)name, &controller));
    DONE(rsm_get_controller_attr(controller, &attributes));
    DONE(rsm_get_interconnect_topology(&topology));
    DONE(rsm_memseg_export_create(controller, &export, memory, PAGE, RSM_ALLOW_REBIND));
    DONE(rsm_memseg_export_publish(export, &id, NULL, 0));
    DONE(rsm_memseg_import_connect(controller, topology->topology_hdr.local_nodeid, id, RSM_PERM_RDWR, &import));
    rsm_free_interconnect_topology(topology);
    DONE(rsm_create_localmemory_handle(controller, &local, (caddr_t)memory + PAGE, PAGE));
    DONE(rsm_memseg_import_init_barrier(import, RSM_BAR_DEFAULT, &barrier));
    memset(&vector, 0, sizeof vector);
    memset(&entry, 0, sizeof entry);
    entry.io_type = RSM_HANDLE_TYPE;
    entry.local.handle = local;
    entry.transfer_length = 64;
    vector.io_request_count = 1;
    vector.iovec = &entry;
    vector.remote_handle = import;
    for (round = 0; round < 20; round++) {
        DONE(rsm_memseg_import_open_barrier(&barrier));
        DONE(rsm_memseg_import_put(import, 0, bytes, sizeof bytes));
        DONE(rsm_memseg_import_put8(import, 5, &item, 1));
        DONE(rsm_memseg_import_close_barrier(&barrier));
        DONE(rsm_memseg_import_get(import, 0, bytes, sizeof bytes));
        DONE(rsm_memseg_import_get8(import, 5, &item, 1));
        DONE(rsm_memseg_import_putv(&vector));
        vector.io_residual_count = 0;
        DONE(rsm_memseg_import_getv(&vector));
        vector.io_residual_count = 0;
        DONE(rsm_intr_signal_post(import, 0));
    }
    DONE(rsm_memseg_get_pollfd(export, &polled));
    DONE(rsm_memseg_release_pollfd(export));
    DONE(rsm_memseg_import_destroy_barrier(&barrier));
    DONE(rsm_free_localmemory_handle(controller, local));
    DONE(rsm_memseg_import_disconnect(import));
    DONE(rsm_memseg_export_rebind(export, memory + PAGE, 0, PAGE));
    DONE(rsm_memseg_export_unpublish(export));
    DONE(rsm_memseg_export_destroy(export));
    DONE(rsm_release_controller(controller));
    free(memory);
    ended = 1;
    pthread_testcancel();
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t thread;
    void *result = NULL;
    if (count > 1)
        name = arguments[1];
    CHECK(pthread_create(&thread, NULL, everything, NULL) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    if (!ended)
        fprintf(stderr, "the thread ended in %s\n", now);
    CHECK(ended && result == PTHREAD_CANCELED);
    return 0;
}
