/* Waits for signals while no file can be opened: none ends early, though other threads wait too.
 * RSMSG-07, RSMSG-08 */
#include "check.h"
#include "../../../dat-provider/tests/programs/waiter.h"
#include <sys/resource.h>

static struct pair pair, other;
static atomic_int sleepers[2], over;

static void *wait_for_signal(void *number)
{
    *(atomic_int *)number = gettid();
    OK(rsm_intr_signal_wait(pair.export, -1));
    return NULL;
}

/* Waits again and again, and takes the descriptors that the waits above return. */
static void *wait_often(void *unused)
{
    (void)unused;
    while (!over) {
        int code = rsm_intr_signal_wait(other.export, 1);
        CHECK(code == RSMERR_TIMEOUT || code == RSMERR_INSUFFICIENT_RESOURCES);
    }
    return NULL;
}

int main(void)
{
    pthread_t waiters[2], hammers[2];
    struct rlimit before, none;
    int at;
    pair = open_pair(1, 0, RSM_PERM_RDWR);
    other = open_pair(1, 0, RSM_PERM_RDWR);
    for (at = 0; at < 2; at++)
        CHECK(pthread_create(&waiters[at], NULL, wait_for_signal, &sleepers[at]) == 0);
    /* A wait that has not begun may be refused. A thread may sleep for a lock before it waits. */
    for (at = 0; at < 4; at++) {
        until_asleep(&sleepers[at % 2]);
        usleep(50000);
    }
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = 3;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    for (at = 0; at < 2; at++)
        CHECK(pthread_create(&hammers[at], NULL, wait_often, NULL) == 0);
    sleep(3);
    over = 1;
    for (at = 0; at < 2; at++)
        CHECK(pthread_join(hammers[at], NULL) == 0);
    for (at = 0; at < 2; at++)
        OK(rsm_intr_signal_post(pair.import, 0));
    for (at = 0; at < 2; at++)
        CHECK(pthread_join(waiters[at], NULL) == 0);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    close_pair(&other);
    close_pair(&pair);
    return 0;
}
