/* Signals end waits, of several threads at once, even if system calls are restarted after them. No
 * event is taken. */
#include "check.h"

#include <signal.h>
#include <stdatomic.h>

#define WAITERS 3

static struct side side;
static DAT_CNO_HANDLE cno;
static pthread_t threads[WAITERS];
static atomic_int over;

static void handler(int number) { (void)number; }

/* Sends signals to all waiting threads until they are done. */
static void *interrupt(void *unused)
{
    (void)unused;
    while (over < WAITERS) {
        int at;
        usleep(5000);
        for (at = 0; at < WAITERS; at++)
            pthread_kill(threads[at], SIGUSR1);
    }
    return NULL;
}

static void *wait_for_event(void *given)
{
    DAT_EVD_HANDLE evd = given;
    DAT_TIMEOUT timeouts[] = {DAT_TIMEOUT_INFINITE, PATIENCE};
    int round;
    for (round = 0; round < 20; round++) {
        DAT_EVENT event;
        DAT_COUNT more = -1;
        EXPECT_CODE(DAT_INTERRUPTED_CALL, DAT_NO_SUBTYPE, dat_evd_wait(evd, timeouts[round % 2], 2, &event, &more));
    }
    over++;
    return NULL;
}

static void *wait_for_notification(void *given)
{
    int round;
    for (round = 0; round < 20; round++) {
        DAT_EVD_HANDLE fired = given;
        EXPECT_CODE(DAT_INTERRUPTED_CALL, DAT_NO_SUBTYPE, dat_cno_wait(cno, round % 2 ? PATIENCE : DAT_TIMEOUT_INFINITE, &fired));
    }
    over++;
    return NULL;
}

int main(void)
{
    struct sigaction action;
    DAT_EVD_HANDLE evds[2], fired;
    DAT_EVENT event;
    DAT_COUNT more;
    pthread_t sender;
    sigset_t signals;
    int at;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    side = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
    OK(dat_cno_create(side.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    for (at = 0; at < 2; at++) {
        OK(dat_evd_create(side.ia, 4, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &evds[at]));
        OK(dat_evd_post_se(evds[at], &event));
        CHECK(pthread_create(&threads[at], NULL, wait_for_event, evds[at]) == 0);
    }
    CHECK(pthread_create(&threads[2], NULL, wait_for_notification, evds[0]) == 0);
    CHECK(pthread_create(&sender, NULL, interrupt, NULL) == 0);
    CHECK(pthread_join(sender, NULL) == 0);
    for (at = 0; at < WAITERS; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
    /* The events are still there, and waits work. */
    for (at = 0; at < 2; at++) {
        OK(dat_evd_post_se(evds[at], &event));
        OK(dat_evd_wait(evds[at], PATIENCE, 2, &event, &more));
        CHECK(more == 1);
        OK(dat_evd_dequeue(evds[at], &event));
        EXPECT(DAT_TIMEOUT_EXPIRED, dat_evd_wait(evds[at], 1000, 1, &event, &more));
        CHECK(more == 0);
    }
    /* A signal that the thread blocks interrupts nothing. */
    CHECK(sigemptyset(&signals) == 0 && sigaddset(&signals, SIGUSR1) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0);
    CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
    EXPECT(DAT_TIMEOUT_EXPIRED, dat_evd_wait(evds[0], 1000, 1, &event, &more));
    EXPECT(DAT_QUEUE_EMPTY, dat_cno_wait(cno, 1000, &fired));
    CHECK(fired == DAT_HANDLE_NULL);
    OK(dat_ia_close(side.ia, DAT_CLOSE_ABRUPT_FLAG));
    return 0;
}
