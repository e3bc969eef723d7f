/* Processes that end with objects.
 *
 * ends stay: node 1, which sees three lives of node 2 end.
 * ends leave HOW: a life of node 2, which ends by `exit`, `_exit` or `kill`. */
#include "check.h"
#include <signal.h>

#define STAYS 0x500000
#define LEAVES 0x500001

static rsmapi_controller_handle_t controller;

static rsm_memseg_export_handle_t exported(unsigned char *memory, rsm_memseg_id_t id)
{
    rsm_memseg_export_handle_t export;
    OK(rsm_memseg_export_create(controller, &export, memory, PAGE, 0));
    OK(rsm_memseg_export_publish(export, &id, NULL, 0));
    return export;
}

static rsm_memseg_import_handle_t connected(rsm_node_id_t node, rsm_memseg_id_t id, rsmapi_barrier_t *barrier)
{
    rsm_memseg_import_handle_t import = NULL;
    int code;
    while ((code = rsm_memseg_import_connect(controller, node, id, RSM_PERM_RDWR, &import)) != RSM_SUCCESS) {
        CHECK(code == RSMERR_REMOTE_NODE_UNREACHABLE || code == RSMERR_SEG_NOT_PUBLISHED);
        usleep(10000);
    }
    OK(rsm_memseg_import_init_barrier(import, RSM_BAR_DEFAULT, barrier));
    return import;
}

/* RSMGEN-04, RSMLH-10, RSMST-01, RSMST-03: with a process its exports and imports end. */
static void stay(void)
{
    unsigned char *memory = pages(1), byte = 7;
    rsm_memseg_export_handle_t export = exported(memory, STAYS);
    rsm_memseg_id_t id = STAYS;
    int life;
    for (life = 0; life < 3; life++) {
        rsm_memseg_import_handle_t import;
        rsmapi_barrier_t barrier;
        int code;
        OK(rsm_intr_signal_wait(export, PATIENCE));
        CHECK(memory[0] == life + 1);
        import = connected(2, LEAVES, &barrier);
        OK(rsm_memseg_import_put(import, 0, &byte, 1));
        OK(rsm_intr_signal_post(import, 0));
        /* Requests under way may fail before the end is known. */
        while ((code = rsm_memseg_import_put(import, 0, &byte, 1)) != RSMERR_CONN_ABORTED)
            CHECK(code == RSM_SUCCESS || code == RSMERR_BARRIER_FAILURE);
        EXPECT(RSMERR_CONN_ABORTED, rsm_intr_signal_wait(import, -1));
        OK(rsm_memseg_import_destroy_barrier(&barrier));
        OK(rsm_memseg_import_disconnect(import));
    }
    /* No importer has disconnected, and none is left. */
    OK(rsm_memseg_export_unpublish(export));
    OK(rsm_memseg_export_publish(export, &id, NULL, 0));
    OK(rsm_memseg_export_destroy(export));
    OK(rsm_release_controller(controller));
}

static void leave(const char *how)
{
    const char *ways[] = {"exit", "_exit", "kill"};
    unsigned char *memory = pages(2), life = 0;
    rsm_memseg_export_handle_t export = exported(memory, LEAVES);
    rsm_memseg_import_handle_t import;
    rsm_localmemory_handle_t local;
    rsmapi_barrier_t barrier;
    struct pollfd polled;
    while (strcmp(how, ways[life++]) != 0)
        CHECK(life < 3);
    import = connected(1, STAYS, &barrier);
    OK(rsm_create_localmemory_handle(controller, &local, (char *)memory + PAGE, PAGE));
    OK(rsm_memseg_get_pollfd(export, &polled));
    OK(rsm_memseg_import_open_barrier(&barrier));
    OK(rsm_memseg_import_put(import, 0, &life, 1));
    OK(rsm_intr_signal_post(import, 0));
    OK(rsm_intr_signal_wait(export, PATIENCE));
    CHECK(memory[0] == 7);
    /* Everything is in use. */
    if (life == 1)
        exit(0);
    if (life == 2)
        _exit(0);
    raise(SIGKILL);
}

int main(int count, char **arguments)
{
    OK(rsm_get_controller("verbs0", &controller));
    if (count == 2 && strcmp(arguments[1], "stay") == 0)
        stay();
    else if (count == 3 && strcmp(arguments[1], "leave") == 0)
        leave(arguments[2]);
    else
        return 2;
    return 0;
}
