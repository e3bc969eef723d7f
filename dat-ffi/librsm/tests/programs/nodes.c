/*
 * Segments between processes over an RDMA device.
 *
 * nodes serve: exports a segment until it gets a signal. nodes use: puts, gets and signals.
 * nodes hold: exports a segment and makes no further call until it is killed.
 * nodes hammer: puts into that segment until it is gone.
 * nodes talk ROUNDS: two nodes, 1 and 2, which both export and import.
 * nodes look: a second process of node 1 during `talk`.
 */
#include "check.h"
#include <signal.h>
#include <sys/time.h>
#include <time.h>

#define SERVED 0x500000
#define TALKING 0x400000
#define BYTES (64 * PAGE)

static rsmapi_controller_handle_t controller;

static volatile int rung;

static void ring(int number)
{
    (void)number;
    rung++;
}

/* Starts a signal every two milliseconds, or stops it. */
static void alarms(int on)
{
    struct sigaction action;
    struct itimerval often;
    memset(&action, 0, sizeof action);
    action.sa_handler = ring;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    memset(&often, 0, sizeof often);
    often.it_interval.tv_usec = often.it_value.tv_usec = on ? 2000 : 0;
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
}

static long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Connects once the other process has published. */
static rsm_memseg_import_handle_t connected(rsm_node_id_t node, rsm_memseg_id_t id)
{
    rsm_memseg_import_handle_t import = NULL;
    int tries, code = 0;
    for (tries = 0; tries < PATIENCE / 50; tries++) {
        code = rsm_memseg_import_connect(controller, node, id, RSM_PERM_RDWR, &import);
        if (code == RSM_SUCCESS)
            return import;
        CHECK(code == RSMERR_REMOTE_NODE_UNREACHABLE || code == RSMERR_SEG_NOT_PUBLISHED);
        usleep(50000);
    }
    fprintf(stderr, "nobody exports %#x on node %u: %d\n", id, node, code);
    exit(1);
}

/* RSMTP-01, RSMTP-03, RSMCT-20: the nodes that the controller reaches. */
static void look_around(unsigned nodes)
{
    rsm_topology_t *topology;
    rsm_connections_t *connections;
    rsmapi_controller_attr_t attributes;
    int at;
    OK(rsm_get_interconnect_topology(&topology));
    CHECK(topology->topology_hdr.local_cntlr_count == 2);
    connections = topology->connections[0];
    CHECK(strcmp(connections->hdr.cntlr_name, "verbs0") == 0);
    CHECK(connections->hdr.remote_cntlr_count == (int)nodes);
    for (at = 0; at < (int)nodes; at++) {
        CHECK(connections->remote_cntlr[at].remote_nodeid == (rsm_node_id_t)at + 1);
        CHECK(connections->remote_cntlr[at].connection_state == RSM_CONNECTION_ACTIVE);
        CHECK(connections->remote_cntlr[at].remote_hwaddr == connections->hdr.local_hwaddr);
    }
    rsm_free_interconnect_topology(topology);
    OK(rsm_get_controller_attr(controller, &attributes));
    CHECK(attributes.attr_direct_access_sizes == RSM_DAS8);
}

static rsm_memseg_export_handle_t exported(unsigned char *memory, rsm_memseg_id_t id)
{
    rsm_memseg_export_handle_t export;
    OK(rsm_memseg_export_create(controller, &export, memory, BYTES, 0));
    OK(rsm_memseg_export_publish(export, &id, NULL, 0));
    return export;
}

static void serve(void)
{
    unsigned char *memory = pages(BYTES / PAGE);
    rsm_memseg_export_handle_t export = exported(memory, SERVED);
    struct pollfd entry;
    int count;
    OK(rsm_memseg_get_pollfd(export, &entry));
    OK(rsm_intr_signal_wait_pollfd(&entry, 1, PATIENCE, &count));
    CHECK(count == 1 && entry.revents == POLLRDNORM);
    CHECK(memory[5] == 77 && memory[BYTES - 1] == 78);
    OK(rsm_memseg_release_pollfd(export));
    OK(rsm_intr_signal_post(export, 0));
    /* The other process signals when it is done. */
    OK(rsm_intr_signal_wait(export, PATIENCE));
    OK(rsm_memseg_export_unpublish(export));
    EXPECT(RSMERR_TIMEOUT, rsm_intr_signal_wait(export, 300));
    OK(rsm_memseg_export_destroy(export));
}

static void hold(void)
{
    exported(pages(BYTES / PAGE), SERVED);
    for (;;)
        pause();
}

/* RSMGEN-04, RSMST-01, RSMST-03: the connection ends with the exporter. */
static void hammer(void)
{
    rsm_memseg_import_handle_t import = connected(own_node(), SERVED);
    unsigned char bytes[100];
    rsmapi_barrier_t barrier;
    int code;
    OK(rsm_memseg_import_init_barrier(import, RSM_BAR_DEFAULT, &barrier));
    fill(bytes, sizeof bytes, 1);
    OK(rsm_memseg_import_put(import, 0, bytes, sizeof bytes));
    printf("hammering\n");
    fflush(stdout);
    while ((code = rsm_memseg_import_put(import, 0, bytes, sizeof bytes)) == RSM_SUCCESS)
        ;
    /* Requests under way may fail before the end of the exporter is known. */
    CHECK(code == RSMERR_CONN_ABORTED || code == RSMERR_BARRIER_FAILURE);
    while (code == RSMERR_BARRIER_FAILURE)
        code = rsm_memseg_import_put(import, 0, bytes, sizeof bytes);
    CHECK(code == RSMERR_CONN_ABORTED);
    EXPECT(RSMERR_CONN_ABORTED, rsm_memseg_import_get(import, 0, bytes, sizeof bytes));
    EXPECT(RSMERR_CONN_ABORTED, rsm_intr_signal_wait(import, -1));
    OK(rsm_memseg_import_destroy_barrier(&barrier));
    OK(rsm_memseg_import_disconnect(import));
}

static void use(void)
{
    rsm_memseg_import_handle_t import = connected(own_node(), SERVED);
    rsmapi_barrier_t barrier;
    unsigned char first = 77, last = 78;
    uint64_t numbers[300], back[300];
    void *address;
    size_t at;
    long begin;
    int code;
    OK(rsm_memseg_import_init_barrier(import, RSM_BAR_DEFAULT, &barrier));
    OK(rsm_memseg_import_put(import, 5, &first, 1));
    OK(rsm_memseg_import_put8(import, BYTES - 1, &last, 1));
    for (at = 0; at < 300; at++)
        numbers[at] = at * at;
    OK(rsm_memseg_import_put64(import, PAGE, numbers, 300));
    OK(rsm_memseg_import_get64(import, PAGE, back, 300));
    CHECK(memcmp(numbers, back, sizeof back) == 0);
    EXPECT(RSMERR_BAD_LENGTH, rsm_memseg_import_put(import, BYTES - 1, numbers, 2));
    /* RSMMP-01: the device cannot map the memory of a peer. */
    EXPECT(RSMERR_MAP_FAILED, rsm_memseg_import_map(import, &address, RSM_MAP_NONE, RSM_PERM_RDWR, 0, PAGE));
    /* Signals of the system interrupt only calls that have an error for this. */
    alarms(1);
    begin = milliseconds();
    for (at = 0; at < 100 || rung == 0; at++)
        OK(rsm_memseg_import_put(import, 100, numbers, 8));
    printf("a put takes %ld us, under %d alarms\n", (milliseconds() - begin) * 1000 / (long)at, rung);
    alarms(0);
    OK(rsm_intr_signal_post(import, 0));
    OK(rsm_intr_signal_wait(import, PATIENCE));
    /* The other process may unpublish before it acknowledges this. */
    code = rsm_intr_signal_post(import, 0);
    CHECK(code == RSM_SUCCESS || code == RSMERR_CONN_ABORTED);
    /* RSMPB-20, RSMST-01: until the segment is unpublished. */
    while ((code = rsm_memseg_import_put(import, 5, &last, 1)) == RSM_SUCCESS)
        ;
    CHECK(code == RSMERR_CONN_ABORTED);
    OK(rsm_memseg_import_destroy_barrier(&barrier));
    OK(rsm_memseg_import_disconnect(import));
}

/* Waits for the bytes that the other node puts in a round. */
static void hear(rsm_memseg_export_handle_t export, const unsigned char *memory, unsigned char *expected, int round)
{
    const rsm_node_id_t other = 3 - own_node();
    size_t at;
    OK(rsm_intr_signal_wait(export, PATIENCE));
    fill(expected, BYTES, (unsigned)round * 5 + other);
    for (at = 0; at < 4; at++)
        CHECK(memcmp(memory + (at * 2 + other) * PAGE + 11, expected + at * PAGE + 3, 3000 + at) == 0);
}

/* RSMIM-02, RSMPB-03, RSMGEN-08: errors for another node, and for all nodes. Both nodes run this
 * in step. */
static void refused(rsm_memseg_import_handle_t told, rsm_memseg_export_handle_t heard, rsm_node_id_t own, rsm_node_id_t other)
{
    unsigned char *memory = pages(1);
    rsm_memseg_export_handle_t export;
    rsm_memseg_import_handle_t import = NULL;
    rsmapi_controller_handle_t absent = NULL;
    rsmapi_access_entry_t list[3];
    rsm_memseg_id_t id = TALKING + 16 + own;
    list[0].ae_node = own;
    list[1].ae_node = other;
    list[2].ae_node = 9;
    list[0].ae_permission = list[1].ae_permission = list[2].ae_permission = 0444;
    OK(rsm_memseg_export_create(controller, &export, memory, PAGE, 0));
    EXPECT(RSMERR_BAD_ACL, rsm_memseg_export_publish(export, &id, &list[2], 1));
    EXPECT(RSMERR_BAD_ACL, rsm_memseg_export_publish(export, &id, list, 3));
    OK(rsm_memseg_export_publish(export, &id, list, 1));
    OK(rsm_intr_signal_post(told, 0));
    OK(rsm_intr_signal_wait(heard, PATIENCE));
    EXPECT(RSMERR_SEG_NOT_PUBLISHED_TO_NODE,
           rsm_memseg_import_connect(controller, other, TALKING + 16 + other, RSM_PERM_READ, &import));
    EXPECT(RSMERR_SEG_NOT_PUBLISHED, rsm_memseg_import_connect(controller, other, TALKING + 99, RSM_PERM_READ, &import));
    EXPECT(RSMERR_REMOTE_NODE_UNREACHABLE, rsm_memseg_import_connect(controller, 9, id, RSM_PERM_READ, &import));
    CHECK(import == NULL);
    EXPECT(RSMERR_CTLR_NOT_PRESENT, rsm_get_controller("verbs7", &absent));
    OK(rsm_intr_signal_post(told, 0));
    OK(rsm_intr_signal_wait(heard, PATIENCE));
    OK(rsm_memseg_export_republish(export, list, 2));
    OK(rsm_intr_signal_post(told, 0));
    OK(rsm_intr_signal_wait(heard, PATIENCE));
    EXPECT(RSMERR_PERM_DENIED, rsm_memseg_import_connect(controller, other, TALKING + 16 + other, RSM_PERM_WRITE, &import));
    OK(rsm_memseg_import_connect(controller, other, TALKING + 16 + other, RSM_PERM_READ, &import));
    OK(rsm_memseg_import_disconnect(import));
    OK(rsm_intr_signal_post(told, 0));
    OK(rsm_intr_signal_wait(heard, PATIENCE));
    OK(rsm_memseg_export_destroy(export));
    free(memory);
}

static void talk(int rounds)
{
    const rsm_node_id_t own = own_node(), other = 3 - own;
    unsigned char *memory = pages(BYTES / PAGE), *local = pages(BYTES / PAGE);
    rsm_memseg_export_handle_t export;
    rsm_memseg_import_handle_t import;
    rsm_memseg_export_handle_t nothing;
    rsm_localmemory_handle_t handle, none;
    rsm_iovec_t entries[4];
    rsm_scat_gath_t vector;
    rsmapi_barrier_t barrier;
    int round;
    size_t at;
    look_around(2);
    export = exported(memory, TALKING + own);
    import = connected(other, TALKING + other);
    OK(rsm_create_localmemory_handle(controller, &handle, (char *)local, BYTES));
    EXPECT(RSMERR_BAD_ADDR, rsm_create_localmemory_handle(controller, &none, (char *)PAGE, PAGE));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_export_create(controller, &nothing, (void *)PAGE, PAGE, 0));
    memset(entries, 0, sizeof entries);
    memset(&vector, 0, sizeof vector);
    for (at = 0; at < 4; at++) {
        entries[at].io_type = at % 2 ? RSM_HANDLE_TYPE : RSM_VA_TYPE;
        if (at % 2)
            entries[at].local.handle = handle;
        else
            entries[at].local.vaddr = (char *)local;
        entries[at].local_offset = at * PAGE + 3;
        entries[at].remote_offset = (at * 2 + own) * PAGE + 11;
        entries[at].transfer_length = 3000 + at;
    }
    vector.io_request_count = 4;
    vector.flags = RSM_IMPLICIT_SIGPOST;
    vector.remote_handle = import;
    vector.iovec = entries;
    OK(rsm_memseg_import_init_barrier(import, RSM_BARRIER_SEGMENT, &barrier));
    for (round = 0; round < rounds; round++) {
        if (round == rounds / 2)
            OK(rsm_memseg_import_set_mode(import, RSM_BARRIER_MODE_EXPLICIT));
        /* Node 1 puts first. After a put, a node waits for the answer before it changes the
         * bytes. */
        if (own == 2)
            hear(export, memory, local, round);
        fill(local, BYTES, (unsigned)round * 5 + own);
        OK(rsm_memseg_import_open_barrier(&barrier));
        OK(rsm_memseg_import_putv(&vector));
        CHECK(vector.io_residual_count == 0);
        OK(rsm_memseg_import_close_barrier(&barrier));
        if (own == 1)
            hear(export, memory, local, round);
    }
    OK(rsm_memseg_import_set_mode(import, RSM_BARRIER_MODE_IMPLICIT));
    refused(import, export, own, other);
    /* A get returns the bytes that were put. A bad entry ends a vector, but not the connection. */
    vector.flags = 0;
    memset(local, 0, BYTES);
    OK(rsm_memseg_import_getv(&vector));
    fill(memory + BYTES / 2, BYTES / 2, (unsigned)(rounds - 1) * 5 + own);
    for (at = 0; at < 4; at++)
        CHECK(memcmp(memory + BYTES / 2 + at * PAGE + 3, local + at * PAGE + 3, 3000 + at) == 0);
    entries[2].remote_offset = BYTES + 1;
    EXPECT(RSMERR_BAD_OFFSET, rsm_memseg_import_getv(&vector));
    CHECK(vector.io_residual_count == 2);
    entries[2].remote_offset = 0;
    entries[2].local.vaddr = (char *)8;
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_getv(&vector));
    CHECK(vector.io_residual_count == 2);
    entries[2].local.vaddr = (char *)local;
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_get(import, 0, (void *)8, 100));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_put(import, 0, (void *)8, 100));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_put64(import, 0, (void *)8, 100));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_get64(import, 0, (void *)8, 100));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_put8(import, 0, (void *)8, 1));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_get16(import, 0, (void *)8, 1));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_import_get32(import, 0, (void *)8, 1));
    OK(rsm_memseg_import_getv(&vector));
    /* No node leaves before the other one is done. The node that receives the last signal may be
     * gone before its device acknowledges it; then the sender gets an error. */
    if (own == 2) {
        OK(rsm_intr_signal_post(import, 0));
        OK(rsm_intr_signal_wait(export, PATIENCE));
    } else {
        int code;
        OK(rsm_intr_signal_wait(export, PATIENCE));
        code = rsm_intr_signal_post(import, 0);
        CHECK(code == RSM_SUCCESS || code == RSMERR_CONN_ABORTED);
    }
    OK(rsm_free_localmemory_handle(controller, handle));
    OK(rsm_memseg_import_destroy_barrier(&barrier));
    OK(rsm_memseg_import_disconnect(import));
    OK(rsm_memseg_export_unpublish(export));
    OK(rsm_memseg_export_destroy(export));
}

/* Another process of a node that talks can import, but not publish. */
static void look(void)
{
    rsm_memseg_import_handle_t import = connected(own_node(), TALKING + own_node());
    rsm_memseg_export_handle_t export;
    rsm_memseg_id_t id = 0;
    uint32_t number;
    rsmapi_barrier_t barrier;
    OK(rsm_memseg_import_init_barrier(import, RSM_BAR_DEFAULT, &barrier));
    OK(rsm_memseg_import_get32(import, 0, &number, 1));
    OK(rsm_memseg_export_create(controller, &export, pages(BYTES / PAGE), BYTES, 0));
    EXPECT(RSMERR_INSUFFICIENT_RESOURCES, rsm_memseg_export_publish(export, &id, NULL, 0));
    CHECK(id == 0);
    OK(rsm_memseg_export_destroy(export));
    OK(rsm_memseg_import_destroy_barrier(&barrier));
    OK(rsm_memseg_import_disconnect(import));
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    OK(rsm_get_controller("verbs0", &controller));
    if (strcmp(what, "serve") == 0)
        serve();
    else if (strcmp(what, "use") == 0)
        use();
    else if (strcmp(what, "hold") == 0)
        hold();
    else if (strcmp(what, "hammer") == 0)
        hammer();
    else if (strcmp(what, "talk") == 0)
        talk(count > 2 ? atoi(arguments[2]) : 10);
    else if (strcmp(what, "look") == 0)
        look();
    else
        return 2;
    OK(rsm_release_controller(controller));
    return 0;
}
