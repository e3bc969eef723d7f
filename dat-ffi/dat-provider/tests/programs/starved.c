/* Waits while no file can be opened, `starved [ADAPTER]`: none ends early, though other threads
 * wait too. EVW-01, CNW-01 */
#include "check.h"
#include "waiter.h"

#include <sys/resource.h>

static struct side side;
static DAT_CNO_HANDLE cno;
static DAT_EVD_HANDLE awaited, notifying, others[2];
static atomic_int sleepers[2], over;

static void *wait_for_event(void *unused)
{
    DAT_EVENT event;
    DAT_COUNT more;
    (void)unused;
    sleepers[0] = gettid();
    OK(dat_evd_wait(awaited, DAT_TIMEOUT_INFINITE, 1, &event, &more));
    return NULL;
}

static void *wait_for_notification(void *unused)
{
    DAT_EVD_HANDLE fired;
    (void)unused;
    sleepers[1] = gettid();
    OK(dat_cno_wait(cno, DAT_TIMEOUT_INFINITE, &fired));
    CHECK(fired == notifying);
    return NULL;
}

/* Waits again and again, and takes the sleepers that the waits above return. */
static void *wait_often(void *evd)
{
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_RETURN code;
    while (!over) {
        code = dat_evd_wait(*(DAT_EVD_HANDLE *)evd, 500, 1, &event, &more);
        CHECK(DAT_GET_TYPE(code) == DAT_TIMEOUT_EXPIRED || DAT_GET_TYPE(code) == DAT_INSUFFICIENT_RESOURCES);
    }
    return NULL;
}

static void post(DAT_EVD_HANDLE evd)
{
    DAT_EVENT event;
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    OK(dat_evd_post_se(evd, &event));
}

int main(int count, char **arguments)
{
    pthread_t waiters[2], hammers[2];
    struct rlimit before, none;
    DAT_EVENT event;
    int at;
    side = open_side(count > 1 ? arguments[1] : "mock0", DAT_MEM_PRIV_ALL_FLAG);
    OK(dat_cno_create(side.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
    OK(dat_evd_create(side.ia, 4, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &awaited));
    OK(dat_evd_create(side.ia, 4, cno, DAT_EVD_SOFTWARE_FLAG, &notifying));
    for (at = 0; at < 2; at++)
        OK(dat_evd_create(side.ia, 4, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &others[at]));
    CHECK(pthread_create(&waiters[0], NULL, wait_for_event, NULL) == 0);
    CHECK(pthread_create(&waiters[1], NULL, wait_for_notification, NULL) == 0);
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
        CHECK(pthread_create(&hammers[at], NULL, wait_often, &others[at]) == 0);
    sleep(3);
    over = 1;
    for (at = 0; at < 2; at++)
        CHECK(pthread_join(hammers[at], NULL) == 0);
    post(awaited);
    post(notifying);
    for (at = 0; at < 2; at++)
        CHECK(pthread_join(waiters[at], NULL) == 0);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    OK(dat_evd_dequeue(notifying, &event));
    for (at = 0; at < 2; at++)
        OK(dat_evd_free(others[at]));
    OK(dat_evd_free(notifying));
    OK(dat_evd_free(awaited));
    OK(dat_cno_free(cno));
    free_side(&side);
    return 0;
}
