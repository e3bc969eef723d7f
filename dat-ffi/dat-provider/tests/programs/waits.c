/* Threads: waiters are released, notification objects wake waiters and call agents, and a close
 * during calls does no harm. */
#include "check.h"

#include <stdatomic.h>

static DAT_EVD_HANDLE waited_on;
static atomic_int released;

static void *wait_for_abort(void *unused)
{
    DAT_EVENT event;
    DAT_COUNT more;
    (void)unused;
    EXPECT(DAT_ABORT, dat_evd_wait(waited_on, DAT_TIMEOUT_INFINITE, 1, &event, &more));
    released++;
    return NULL;
}

static void *wait_for_unwaitable(void *unused)
{
    DAT_EVENT event;
    DAT_COUNT more;
    (void)unused;
    EXPECT(DAT_INVALID_STATE, dat_evd_wait(waited_on, DAT_TIMEOUT_INFINITE, 1, &event, &more));
    released++;
    return NULL;
}

static atomic_int calls;
static _Atomic(DAT_EVD_HANDLE) called_with;

static void agent(DAT_PVOID data, DAT_EVD_HANDLE evd)
{
    CHECK(data == (DAT_PVOID)&calls);
    called_with = evd;
    calls++;
}

static atomic_int begun, finished;

/* An agent whose call takes long. */
static void slow_agent(DAT_PVOID data, DAT_EVD_HANDLE evd)
{
    (void)data;
    (void)evd;
    begun++;
    usleep(100000);
    finished++;
}

static DAT_EVD_HANDLE posted_to;

static void *post(void *unused)
{
    DAT_EVENT event;
    (void)unused;
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    (void)dat_evd_post_se(posted_to, &event);
    return NULL;
}

static DAT_CNO_HANDLE notified_by;
static atomic_int has_waited;

static void *wait_for_the_end(void *side)
{
    DAT_EVD_HANDLE fired = ((struct side *)side)->requests;
    DAT_RETURN returned = dat_cno_wait(notified_by, DAT_TIMEOUT_INFINITE, &fired);
    if (DAT_GET_TYPE(returned) != DAT_INVALID_HANDLE) {
        EXPECT(DAT_ABORT, returned);
        CHECK(fired == DAT_HANDLE_NULL);
        has_waited = 1;
    }
    return NULL;
}

/* A close ends the wait of a thread on a notification object, which gets a null dispatcher. */
static void closed_during_a_wait(void)
{
    pthread_t waiter;
    int round;
    has_waited = 0;
    for (round = 1; !has_waited; round++) {
        struct side side = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
        CHECK(round < 100);
        OK(dat_cno_create(side.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &notified_by));
        CHECK(pthread_create(&waiter, NULL, wait_for_the_end, &side) == 0);
        /* If the thread has not begun its wait by then, it finds no object: once more. */
        usleep(round * 20000);
        OK(dat_ia_close(side.ia, DAT_CLOSE_ABRUPT_FLAG));
        CHECK(pthread_join(waiter, NULL) == 0);
    }
}

static atomic_int stop;

/* Dequeues until it is told to stop; the adapter may be closed at any time. */
static void *ask(void *given)
{
    DAT_EVD_HANDLE evd = given;
    DAT_EVENT event;
    while (!stop) {
        DAT_RETURN returned = dat_evd_dequeue(evd, &event);
        CHECK(DAT_GET_TYPE(returned) == DAT_QUEUE_EMPTY || DAT_GET_TYPE(returned) == DAT_INVALID_HANDLE
              || DAT_GET_TYPE(returned) == DAT_ABORT);
    }
    return NULL;
}

/* Waits until a number has this value. */
static void becomes(atomic_int *number, int value)
{
    int round;
    for (round = 0; round < (int)(PATIENCE / 1000) && *number != value; round++) {
        usleep(1000);
    }
    CHECK(*number == value);
}

static DAT_EVD_HANDLE shared_evd;
static atomic_int timeouts;

/* Waits in turn with another thread: refused while the other one waits, or timed out with the
 * number of events. */
static void *wait_in_turn(void *unused)
{
    int round;
    (void)unused;
    for (round = 0; round < 20000; round++) {
        DAT_EVENT event;
        DAT_COUNT more = -1;
        DAT_RETURN returned = dat_evd_wait(shared_evd, 0, 2, &event, &more);
        if (DAT_GET_TYPE(returned) == DAT_TIMEOUT_EXPIRED) {
            CHECK(more == 1);
            timeouts++;
        } else {
            EXPECT(DAT_INVALID_STATE, returned);
        }
    }
    return NULL;
}

int main(void)
{
    struct side side = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
    DAT_OS_WAIT_PROXY_AGENT calling = {(DAT_PVOID)&calls, agent};
    DAT_CNO_PARAM param;
    DAT_CNO_HANDLE cno, with_agent;
    DAT_EVD_HANDLE evd, other, fired;
    DAT_EVENT event;
    DAT_COUNT more;
    pthread_t waiter, askers[3];
    int round, thread;

    /* Two threads whose time runs out while the other one begins to wait. */
    OK(dat_evd_create(side.ia, 4, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &shared_evd));
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    OK(dat_evd_post_se(shared_evd, &event));
    for (thread = 0; thread < 2; thread++)
        CHECK(pthread_create(&askers[thread], NULL, wait_in_turn, NULL) == 0);
    for (thread = 0; thread < 2; thread++)
        CHECK(pthread_join(askers[thread], NULL) == 0);
    CHECK(timeouts > 0);
    OK(dat_evd_dequeue(shared_evd, &event));
    OK(dat_evd_free(shared_evd));

    /* A notification object with a waiter. */
    OK(dat_cno_create(side.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
    OK(dat_evd_create(side.ia, 4, cno, DAT_EVD_SOFTWARE_FLAG, &evd));
    fired = side.async;
    EXPECT(DAT_QUEUE_EMPTY, dat_cno_wait(cno, 1000, &fired));
    CHECK(fired == DAT_HANDLE_NULL);
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    event.event_data.software_event_data.pointer = &side;
    OK(dat_evd_post_se(evd, &event));
    OK(dat_cno_wait(cno, PATIENCE, &fired));
    CHECK(fired == evd);
    event = next_event(evd, DAT_SOFTWARE_EVENT);
    CHECK(event.event_data.software_event_data.pointer == &side);
    event.event_number = DAT_DTO_COMPLETION_EVENT;
    EXPECT(DAT_INVALID_PARAMETER, dat_evd_post_se(evd, &event));
    EXPECT(DAT_INVALID_PARAMETER, dat_evd_post_se(evd, NULL));
    event.event_number = DAT_SOFTWARE_EVENT;
    for (round = 0; round < 3; round++) {
        OK(dat_evd_post_se(evd, &event));
    }
    OK(dat_evd_wait(evd, 0, 3, &event, &more));
    CHECK(more == 2);
    more = -1;
    EXPECT(DAT_TIMEOUT_EXPIRED, dat_evd_wait(evd, 1000, 3, &event, &more));
    CHECK(more == 2);
    EXPECT(DAT_INVALID_PARAMETER, dat_evd_wait(evd, 0, 0, &event, &more));

    /* A notification object with an agent, which is called once for each trigger, also for
     * events of the device. */
    OK(dat_cno_create(side.ia, calling, &with_agent));
    OK(dat_cno_query(with_agent, DAT_CNO_FIELD_ALL, &param));
#ifdef EDITION_1_2
    CHECK(param.agent.proxy_agent_func == agent && param.agent.instance_data == (DAT_PVOID)&calls);
#else
    CHECK(param.proxy_type == DAT_PROXY_TYPE_AGENT && param.proxy.agent.proxy_agent_func == agent);
#endif
    OK(dat_evd_modify_cno(evd, with_agent));
    event.event_number = DAT_SOFTWARE_EVENT;
    OK(dat_evd_post_se(evd, &event));
    becomes(&calls, 1);
    CHECK(called_with == evd);
    OK(dat_cno_modify_agent(with_agent, calling));
    OK(dat_evd_modify_cno(side.arrivals, with_agent));
    {
        DAT_PSP_HANDLE listener;
        DAT_IA_ATTR attributes;
        OK(dat_ep_create(side.ia, side.zone, side.receives, side.requests, side.connections, NULL, &side.endpoint));
        OK(dat_psp_create(side.ia, 5556, side.arrivals, DAT_PSP_CONSUMER_FLAG, &listener));
        OK(dat_ia_query(side.ia, NULL, DAT_IA_FIELD_IA_ADDRESS_PTR, &attributes, 0, NULL));
        OK(dat_ep_connect(side.endpoint, attributes.ia_address_ptr, 5556, DAT_TIMEOUT_INFINITE, 0, NULL, DAT_QOS_BEST_EFFORT, 0));
        /* The program makes no call. */
        becomes(&calls, 2);
        CHECK(called_with == side.arrivals);
    }

    /* A dispatcher becomes unwaitable, and its adapter is closed, during waits. */
    OK(dat_evd_create(side.ia, 4, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &other));
    waited_on = other;
    CHECK(pthread_create(&waiter, NULL, wait_for_unwaitable, NULL) == 0);
    usleep(20000);
    OK(dat_evd_set_unwaitable(other));
    becomes(&released, 1);
    CHECK(pthread_join(waiter, NULL) == 0);
    OK(dat_evd_clear_unwaitable(other));
    CHECK(pthread_create(&waiter, NULL, wait_for_abort, NULL) == 0);
    /* While the other thread waits, a dequeue is refused. */
    while (DAT_GET_TYPE(dat_evd_dequeue(other, &event)) == DAT_QUEUE_EMPTY)
        usleep(1000);
    /* An agent waits: it gets a null dispatcher. */
    OK(dat_cno_modify_agent(with_agent, calling));
    called_with = evd;
    OK(dat_ia_close(side.ia, DAT_CLOSE_ABRUPT_FLAG));
    CHECK(calls == 3 && called_with == DAT_HANDLE_NULL);
    becomes(&released, 2);
    CHECK(pthread_join(waiter, NULL) == 0);
    closed_during_a_wait();

    /* If an agent is being called when the adapter is closed, the call ends before the close
     * does. */
    for (round = 0; round < 3; round++) {
        DAT_OS_WAIT_PROXY_AGENT slow = {NULL, slow_agent};
        side = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
        OK(dat_cno_create(side.ia, slow, &with_agent));
        OK(dat_evd_create(side.ia, 4, with_agent, DAT_EVD_SOFTWARE_FLAG, &posted_to));
        CHECK(pthread_create(&waiter, NULL, post, NULL) == 0);
        becomes(&begun, round + 1);
        OK(dat_ia_close(side.ia, DAT_CLOSE_ABRUPT_FLAG));
        CHECK(finished == round + 1);
        CHECK(pthread_join(waiter, NULL) == 0);
        CHECK(begun == round + 1);
    }

    /* Many threads dequeue while adapters are opened and closed. */
    for (round = 0; round < 30; round++) {
        side = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
        stop = 0;
        for (thread = 0; thread < 3; thread++) {
            CHECK(pthread_create(&askers[thread], NULL, ask, thread == 0 ? side.async : side.receives) == 0);
        }
        usleep(1000);
        OK(dat_ia_close(side.ia, DAT_CLOSE_ABRUPT_FLAG));
        stop = 1;
        for (thread = 0; thread < 3; thread++) {
            CHECK(pthread_join(askers[thread], NULL) == 0);
        }
    }
    return 0;
}
