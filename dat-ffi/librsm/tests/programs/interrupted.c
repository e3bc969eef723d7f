/* Signals of the system, and a peer that does not answer.
 *
 * interrupted: calls on `loopback`, under many alarms.
 * interrupted peer: node 2. Node 1, which runs `nodes hold`, is stopped and goes on when this asks.
 * interrupted failing: node 2, while node 1 is stopped and goes on again and again. */
#include "check.h"
#include <signal.h>
#include <sys/time.h>

#define COUNT 4
/* The segment of `nodes hold`. */
#define SERVED 0x500000

static struct pair pair;
static unsigned char *local;
static rsm_iovec_t entries[COUNT];
static rsm_localmemory_handle_t handle;

typedef int (*mover)(rsm_scat_gath_t *);
static const mover movers[2] = {rsm_memseg_import_putv, rsm_memseg_import_getv};

static void ring(int number) { (void)number; }

/* Starts an alarm every `interval` microseconds; 0 stops them. */
static void alarms(long interval)
{
    struct sigaction action;
    struct itimerval often;
    memset(&action, 0, sizeof action);
    action.sa_handler = ring;
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    memset(&often, 0, sizeof often);
    often.it_interval.tv_sec = often.it_value.tv_sec = interval / 1000000;
    often.it_interval.tv_usec = often.it_value.tv_usec = interval % 1000000;
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
}

static int move(int way, unsigned long *residual)
{
    rsm_scat_gath_t vector;
    int code;
    memset(&vector, 0, sizeof vector);
    vector.io_request_count = COUNT;
    vector.io_residual_count = 99;
    vector.remote_handle = pair.import;
    vector.iovec = entries;
    code = movers[way](&vector);
    CHECK(vector.io_residual_count <= COUNT && (code != RSM_SUCCESS || vector.io_residual_count == 0));
    *residual = vector.io_residual_count;
    return code;
}

static void prepare(size_t length)
{
    size_t at;
    local = pages(COUNT * length / PAGE + 1);
    OK(rsm_create_localmemory_handle(pair.controller, &handle, (char *)local, COUNT * length));
    memset(entries, 0, sizeof entries);
    for (at = 0; at < COUNT; at++) {
        entries[at].io_type = at % 2 ? RSM_HANDLE_TYPE : RSM_VA_TYPE;
        if (at % 2)
            entries[at].local.handle = handle;
        else
            entries[at].local.vaddr = (char *)local;
        entries[at].local_offset = entries[at].remote_offset = at * length;
        entries[at].transfer_length = length;
    }
}

/* RSMPV-E11, RSMPV-83, RSMIM-01: each call is interrupted at some time, and works afterwards. */
static void on_loopback(void)
{
    unsigned long residual;
    rsmapi_barrier_t barrier;
    int way, code;
    pair = open_pair(256, 0, RSM_PERM_RDWR);
    prepare(64 * PAGE);
    for (way = 0; way < 2; way++) {
        alarms(300);
        while ((code = move(way, &residual)) == RSM_SUCCESS)
            ;
        alarms(0);
        EXPECT(RSMERR_INTERRUPTED, code);
        OK(move(way, &residual));
    }
    alarms(300);
    do {
        rsm_memseg_import_handle_t import = NULL;
        code = rsm_memseg_import_connect(pair.controller, own_node(), pair.id, RSM_PERM_READ, &import);
        CHECK((code == RSM_SUCCESS) == (import != NULL));
        if (code == RSM_SUCCESS)
            OK(rsm_memseg_import_disconnect(import));
    } while (code == RSM_SUCCESS);
    EXPECT(RSMERR_INTERRUPTED, code);
    /* Signals end no other call. */
    OK(rsm_memseg_import_init_barrier(pair.import, RSM_BAR_DEFAULT, &barrier));
    for (way = 0; way < 200; way++) {
        rsm_localmemory_handle_t made;
        OK(rsm_memseg_import_open_barrier(&barrier));
        OK(rsm_memseg_import_put(pair.import, 0, local, 64 * PAGE));
        OK(rsm_memseg_import_order_barrier(&barrier));
        OK(rsm_memseg_import_get(pair.import, 0, local, 64 * PAGE));
        OK(rsm_memseg_import_close_barrier(&barrier));
        OK(rsm_intr_signal_post(pair.import, RSM_SIGPOST_NO_ACCUMULATE));
        OK(rsm_create_localmemory_handle(pair.controller, &made, (char *)local, PAGE));
        OK(rsm_free_localmemory_handle(pair.controller, made));
    }
    alarms(0);
    OK(rsm_memseg_import_destroy_barrier(&barrier));
    OK(rsm_free_localmemory_handle(pair.controller, handle));
    close_pair(&pair);
}

/* Connects to the segment of node 1. */
static int join(rsm_memseg_import_handle_t *import)
{
    return rsm_memseg_import_connect(pair.controller, 1, SERVED, RSM_PERM_RDWR, import);
}

static void join_peer(void)
{
    int code;
    while ((code = join(&pair.import)) != RSM_SUCCESS) {
        CHECK(code == RSMERR_REMOTE_NODE_UNREACHABLE || code == RSMERR_SEG_NOT_PUBLISHED);
        usleep(10000);
    }
}

/* Asks the test for something, and waits until it is done. */
static void ask(const char *what)
{
    printf("%s\n", what);
    fflush(stdout);
    CHECK(getchar() == '\n');
}

/* RSMPV-E11, RSMPV-58, RSMPV-83: calls wait for a node that is stopped, until a signal comes. */
static void peer(void)
{
    rsm_memseg_import_handle_t other;
    unsigned long residual;
    int way;
    OK(rsm_get_controller("verbs0", &pair.controller));
    prepare(PAGE);
    join_peer();
    for (way = 0; way < 2; way++)
        OK(move(way, &residual));
    ask("stop");
    alarms(300000);
    EXPECT(RSMERR_INTERRUPTED, join(&other));
    CHECK(other == NULL);
    for (way = 0; way < 2; way++) {
        EXPECT(RSMERR_INTERRUPTED, move(way, &residual));
        CHECK(residual == COUNT);
    }
    alarms(0);
    ask("go on");
    for (way = 0; way < 2; way++)
        OK(move(way, &residual));
}

/* RSMPV-E08, RSMPV-52: a node that is stopped for long, and comes back before it is given up. */
static void failing(void)
{
    unsigned long residual;
    int way, code;
    OK(rsm_get_controller("verbs0", &pair.controller));
    prepare(PAGE);
    join_peer();
    for (way = 0; way < 2; way++) {
        while ((code = move(way, &residual)) != RSMERR_BARRIER_FAILURE)
            if (code != RSM_SUCCESS) {
                /* It was away for too long. */
                EXPECT(RSMERR_CONN_ABORTED, code);
                OK(rsm_memseg_import_disconnect(pair.import));
                join_peer();
            }
        CHECK(residual > 0);
    }
}

int main(int count, char **arguments)
{
    if (count == 1)
        on_loopback();
    else if (strcmp(arguments[1], "peer") == 0)
        peer();
    else if (strcmp(arguments[1], "failing") == 0)
        failing();
    else
        return 2;
    return 0;
}
