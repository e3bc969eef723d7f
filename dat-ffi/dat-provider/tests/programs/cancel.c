/* Threads that are cancelled in waits: they end, and hold nothing afterwards. */
#include "check.h"
#include "waiter.h"

static DAT_EVD_HANDLE evd;
static DAT_CNO_HANDLE cno;
static atomic_int cleaned;

static void clean(void *unused)
{
    (void)unused;
    /* The wait is over before the cleanup handler of the program runs. */
    OK(dat_evd_set_unwaitable(evd));
    OK(dat_evd_clear_unwaitable(evd));
    cleaned++;
}

static void *wait_for_two(void *unused)
{
    DAT_EVENT event;
    DAT_COUNT more;
    (void)unused;
    pthread_cleanup_push(clean, NULL);
    begun++;
    (void)dat_evd_wait(evd, DAT_TIMEOUT_INFINITE, 2, &event, &more);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *wait_again_and_again(void *unused)
{
    DAT_EVENT event;
    DAT_COUNT more;
    (void)unused;
    begun++;
    for (;;)
        EXPECT(DAT_TIMEOUT_EXPIRED, dat_evd_wait(evd, 1000, 2, &event, &more));
    return NULL;
}

static void *wait_for_notification(void *unused)
{
    DAT_EVD_HANDLE fired;
    (void)unused;
    begun++;
    (void)dat_cno_wait(cno, DAT_TIMEOUT_INFINITE, &fired);
    return NULL;
}

/* Disables cancellation in two ways and ends by an event. */
static void *wait_undisturbed(void *unused)
{
    DAT_EVENT event;
    DAT_COUNT more;
    int before;
    (void)unused;
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before) == 0);
    CHECK(before == PTHREAD_CANCEL_ENABLE);
    begun++;
    OK(dat_evd_wait(evd, DAT_TIMEOUT_INFINITE, 2, &event, &more));
    CHECK(more == 1);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before) == 0);
    CHECK(before == PTHREAD_CANCEL_DISABLE);
    return &begun;
}

static void post(void)
{
    DAT_EVENT event;
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    OK(dat_evd_post_se(evd, &event));
}

int main(void)
{
    struct side side = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
    DAT_EVD_HANDLE fired;
    DAT_EVENT event;
    DAT_COUNT more;
    pthread_t waiter;
    void *result = NULL;
    int round;

    OK(dat_cno_create(side.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
    OK(dat_evd_create(side.ia, 4, cno, DAT_EVD_SOFTWARE_FLAG, &evd));

    /* Of two events that the wait needs, one comes, and stays queued. */
    for (round = 1; round <= 3; round++) {
        waiter = begin(wait_for_two);
        post();
        cancel(waiter);
        CHECK(cleaned == round);
        more = -1;
        EXPECT(DAT_TIMEOUT_EXPIRED, dat_evd_wait(evd, 1000, 2, &event, &more));
        CHECK(more == 1);
        OK(dat_evd_dequeue(evd, &event));
        EXPECT(DAT_QUEUE_EMPTY, dat_evd_dequeue(evd, &event));
    }
    cancel(begin(wait_again_and_again));

    /* A wait of several slices is one wait: no other wait begins meanwhile, and its threshold
     * stays. */
    waiter = begin(wait_for_two);
    /* While the thread waits, a dequeue is refused. */
    while (DAT_GET_TYPE(dat_evd_dequeue(evd, &event)) == DAT_QUEUE_EMPTY)
        usleep(1000);
    post();
    for (round = 0; round < 400; round++) {
        EXPECT(DAT_INVALID_STATE, dat_evd_wait(evd, 0, 1, &event, &more));
        EXPECT(DAT_INVALID_STATE, dat_evd_dequeue(evd, &event));
        usleep(1000);
    }
    cancel(waiter);
    OK(dat_evd_dequeue(evd, &event));

    waiter = begin(wait_undisturbed);
    CHECK(pthread_cancel(waiter) == 0);
    usleep(250000);
    post();
    post();
    CHECK(pthread_join(waiter, &result) == 0);
    CHECK(result == &begun);
    OK(dat_evd_dequeue(evd, &event));

    /* A notification object: after the cancellation, the next waiter gets the notification. */
    (void)dat_cno_wait(cno, 0, &fired);
    EXPECT(DAT_QUEUE_EMPTY, dat_cno_wait(cno, 1000, &fired));
    for (round = 0; round < 3; round++) {
        cancel(begin(wait_for_notification));
        post();
        OK(dat_cno_wait(cno, PATIENCE, &fired));
        CHECK(fired == evd);
        OK(dat_evd_dequeue(evd, &event));
    }

    /* No wait holds the objects or the adapter any more. */
    OK(dat_evd_free(evd));
    OK(dat_cno_free(cno));
    free_side(&side);
    return 0;
}
