/* Signals, and descriptors that become readable for them. */
#include "check.h"
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

static struct pair pair;

static long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* RSMSG-01, RSMSG-02, RSMSG-04, RSMSG-07 */
static void counted(void)
{
    rsm_memseg_import_handle_t other;
    long begin;
    int at;
    EXPECT(RSMERR_TIMEOUT, rsm_intr_signal_wait(pair.export, 0));
    for (at = 0; at < 3; at++)
        OK(rsm_intr_signal_post(pair.import, 0));
    for (at = 0; at < 3; at++)
        OK(rsm_intr_signal_wait(pair.export, -1));
    begin = milliseconds();
    EXPECT(RSMERR_TIMEOUT, rsm_intr_signal_wait(pair.export, 60));
    CHECK(milliseconds() - begin >= 60);
    for (at = 0; at < 3; at++)
        OK(rsm_intr_signal_post(pair.import, RSM_SIGPOST_NO_ACCUMULATE));
    /* The receiver decides which signals become pending. All have arrived once the exporter has
     * answered a later request. */
    OK(rsm_memseg_import_connect(pair.controller, own_node(), pair.id, RSM_PERM_READ, &other));
    OK(rsm_intr_signal_wait(pair.export, PATIENCE));
    EXPECT(RSMERR_TIMEOUT, rsm_intr_signal_wait(pair.export, 20));
    /* From the exporter to all connections. RSMSG-03 */
    OK(rsm_intr_signal_post(pair.export, 0));
    OK(rsm_intr_signal_wait(pair.import, PATIENCE));
    OK(rsm_intr_signal_wait(other, PATIENCE));
    EXPECT(RSMERR_TIMEOUT, rsm_intr_signal_wait(other, 20));
    OK(rsm_memseg_import_disconnect(other));
}

/* RSMSG-06 */
static void to_nobody(void)
{
    struct pair alone = open_pair(1, 0, RSM_PERM_READ);
    OK(rsm_memseg_import_disconnect(alone.import));
    OK(rsm_intr_signal_post(alone.export, 0));
    OK(rsm_memseg_export_unpublish(alone.export));
    OK(rsm_intr_signal_post(alone.export, 0));
    OK(rsm_memseg_export_destroy(alone.export));
    OK(rsm_release_controller(alone.controller));
    free(alone.memory);
}

static atomic_int taken;

static void *take_one(void *segment)
{
    int code = rsm_intr_signal_wait(segment, -1);
    taken += code == RSM_SUCCESS;
    return (void *)(intptr_t)code;
}

/* RSMSG-07, RSMSG-08: one signal ends one of several waits; the end of the segment ends all. */
static void waited_for(void)
{
    struct pair other = open_pair(1, 0, RSM_PERM_RDWR);
    pthread_t threads[6];
    void *code;
    int at, gone = 0;
    for (at = 0; at < 6; at++)
        CHECK(pthread_create(&threads[at], NULL, take_one, at < 4 ? (void *)other.export : (void *)other.import) == 0);
    OK(rsm_intr_signal_post(other.import, 0));
    OK(rsm_intr_signal_post(other.import, 0));
    while (taken < 2)
        usleep(1000);
    /* Time for a wait that would take a signal twice, or for a third one to end. */
    usleep(50000);
    OK(rsm_memseg_export_destroy(other.export));
    for (at = 0; at < 6; at++) {
        CHECK(pthread_join(threads[at], &code) == 0);
        gone += (intptr_t)code == (at < 4 ? RSMERR_BAD_SEG_HNDL : RSMERR_CONN_ABORTED);
    }
    CHECK(taken == 2 && gone == 4);
    OK(rsm_memseg_import_disconnect(other.import));
    OK(rsm_release_controller(other.controller));
    free(other.memory);
}

static void handler(int number)
{
    (void)number;
}

struct interrupting {
    pthread_t whom;
    volatile int over;
};

static void *interrupt(void *argument)
{
    struct interrupting *interrupting = argument;
    while (!interrupting->over) {
        usleep(20000);
        pthread_kill(interrupting->whom, SIGUSR1);
    }
    return NULL;
}

/* RSMSG-07, RSMPF-10: a signal of the system ends a wait, even if system calls are restarted
 * after it. */
static void interrupted(void)
{
    struct sigaction action;
    struct interrupting interrupting;
    struct pollfd entry;
    pthread_t thread;
    int count = 7;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    interrupting.whom = pthread_self();
    interrupting.over = 0;
    CHECK(pthread_create(&thread, NULL, interrupt, &interrupting) == 0);
    EXPECT(RSMERR_INTERRUPTED, rsm_intr_signal_wait(pair.export, -1));
    EXPECT(RSMERR_INTERRUPTED, rsm_intr_signal_wait(pair.import, PATIENCE));
    OK(rsm_memseg_get_pollfd(pair.export, &entry));
    EXPECT(RSMERR_INTERRUPTED, rsm_intr_signal_wait_pollfd(&entry, 1, -1, &count));
    CHECK(count == 0);
    OK(rsm_memseg_release_pollfd(pair.export));
    interrupting.over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

/* RSMPF-01..04, RSMPB-21 */
static void polled(void)
{
    struct pollfd entry, same, none;
    memset(&entry, 0xEE, sizeof entry);
    memset(&none, 0xEE, sizeof none);
    OK(rsm_memseg_get_pollfd(pair.export, &entry));
    CHECK(entry.events == POLLRDNORM && entry.revents == 0 && entry.fd >= 0);
    OK(rsm_memseg_get_pollfd(pair.export, &same));
    CHECK(same.fd == entry.fd);
    CHECK(poll(&entry, 1, 0) == 0);
    OK(rsm_intr_signal_post(pair.import, 0));
    CHECK(poll(&entry, 1, PATIENCE) == 1 && entry.revents == POLLRDNORM);
    /* Polling takes no signal. */
    CHECK(poll(&entry, 1, 0) == 1);
    OK(rsm_intr_signal_wait(pair.export, 0));
    CHECK(poll(&entry, 1, 0) == 0);
    EXPECT(RSMERR_POLLFD_IN_USE, rsm_memseg_export_destroy(pair.export));
    OK(rsm_memseg_release_pollfd(pair.export));
    CHECK(poll(&entry, 1, 0) == 0);
    OK(rsm_memseg_get_pollfd(pair.import, &same));
    EXPECT(RSMERR_POLLFD_IN_USE, rsm_memseg_import_disconnect(pair.import));
    OK(rsm_memseg_release_pollfd(pair.import));
    OK(rsm_memseg_release_pollfd(pair.export));
    OK(rsm_memseg_release_pollfd(pair.export));
    OK(rsm_memseg_release_pollfd(pair.import));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_get_pollfd(pair.export, NULL));
    EXPECT(RSMERR_BAD_ADDR, rsm_memseg_get_pollfd(pair.import, NULL));
}

/* RSMPF-10, RSMPF-11 */
static void mixed(void)
{
    struct pair other = open_pair(1, 0, RSM_PERM_RDWR);
    struct pollfd entries[4];
    int pipes[2], count = -1;
    long begin;
    CHECK(pipe(pipes) == 0);
    OK(rsm_memseg_get_pollfd(pair.export, &entries[0]));
    OK(rsm_memseg_get_pollfd(other.export, &entries[1]));
    OK(rsm_memseg_get_pollfd(other.import, &entries[2]));
    entries[3].fd = pipes[0];
    entries[3].events = POLLIN;
    entries[3].revents = 0;
    begin = milliseconds();
    EXPECT(RSMERR_TIMEOUT, rsm_intr_signal_wait_pollfd(entries, 4, 50, &count));
    CHECK(count == 0 && milliseconds() - begin >= 50);
    EXPECT(RSMERR_TIMEOUT, rsm_intr_signal_wait_pollfd(entries, 4, 0, NULL));
    OK(rsm_intr_signal_post(other.import, 0));
    OK(rsm_intr_signal_post(other.import, 0));
    OK(rsm_intr_signal_wait_pollfd(entries, 4, -1, &count));
    CHECK(count == 1 && entries[1].revents == POLLRDNORM && entries[0].revents == 0 && entries[2].revents == 0);
    /* One signal per call. */
    OK(rsm_intr_signal_wait_pollfd(entries, 4, PATIENCE, &count));
    CHECK(count == 1 && entries[1].revents == POLLRDNORM);
    EXPECT(RSMERR_TIMEOUT, rsm_intr_signal_wait_pollfd(entries, 4, 20, &count));
    CHECK(entries[1].revents == 0);
    CHECK(write(pipes[1], "x", 1) == 1);
    OK(rsm_intr_signal_wait_pollfd(entries, 4, PATIENCE, &count));
    CHECK(count == 1 && entries[3].revents == POLLIN);
    OK(rsm_intr_signal_post(other.export, 0));
    do {
        OK(rsm_intr_signal_wait_pollfd(entries, 4, PATIENCE, NULL));
        CHECK(entries[3].revents == POLLIN);
    } while (entries[2].revents == 0);
    CHECK(entries[2].revents == POLLRDNORM);
    /* Only the timeout. */
    EXPECT(RSMERR_TIMEOUT, rsm_intr_signal_wait_pollfd(NULL, 0, 20, &count));
    count = 9;
    EXPECT(RSMERR_BAD_ADDR, rsm_intr_signal_wait_pollfd(NULL, 3, 20, &count));
    CHECK(count == 0);
    EXPECT(RSMERR_BAD_ARGS_ERRORS, rsm_intr_signal_wait_pollfd(entries, (nfds_t)-1, 20, &count));
    OK(rsm_memseg_release_pollfd(pair.export));
    OK(rsm_memseg_release_pollfd(other.export));
    OK(rsm_memseg_release_pollfd(other.import));
    /* RSMPF-12: a descriptor that was released is like any other. */
    CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
    OK(rsm_intr_signal_wait_pollfd(entries, 4, PATIENCE, &count));
    CHECK(entries[0].revents == POLLNVAL);
    close_pair(&other);
}

/* RSMPF-02 */
static void only_what_is_connected(void)
{
    struct pair other = open_pair(1, 0, RSM_PERM_RDWR);
    struct pollfd entry;
    memset(&entry, 0xEE, sizeof entry);
    OK(rsm_memseg_export_unpublish(other.export));
    EXPECT(RSMERR_BAD_SEG_HNDL, rsm_memseg_get_pollfd(other.export, &entry));
    CHECK(entry.fd == (int)0xEEEEEEEE);
    EXPECT(RSMERR_CONN_ABORTED, rsm_intr_signal_post(other.import, 0));
    EXPECT(RSMERR_CONN_ABORTED, rsm_intr_signal_wait(other.import, -1));
    OK(rsm_memseg_import_disconnect(other.import));
    OK(rsm_memseg_export_destroy(other.export));
    OK(rsm_release_controller(other.controller));
    free(other.memory);
}

int main(void)
{
    pair = open_pair(1, 0, RSM_PERM_RDWR);
    counted();
    to_nobody();
    waited_for();
    interrupted();
    polled();
    mixed();
    only_what_is_connected();
    close_pair(&pair);
    return 0;
}
