/* Late events and threads: events of freed endpoints, events before a call returns, threads of
 * closed adapters, signals. */
#include "check.h"
#include <signal.h>
#include <time.h>

#define ADAPTERS 60
#define LISTENERS 100

static void agent(void *data, DAT_EVD_HANDLE evd)
{
    (void)data, (void)evd;
}

static int threads(void)
{
    char line[200];
    int count = -1;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status);
    while (fgets(line, sizeof line, status))
        sscanf(line, "Threads: %d", &count);
    fclose(status);
    CHECK(count > 0);
    return count;
}

/* An endpoint is freed while its events are queued, and other endpoints get its slot. */
static void events_of_a_freed_endpoint(void)
{
    struct side near = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG), far = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
    DAT_EP_HANDLE freed, others[3];
    DAT_LMR_TRIPLET room = piece(&near, 0, 64);
    DAT_EP_STATE state;
    DAT_EVENT event;
    int index, told = 0;

    OK(dat_ep_create(near.ia, near.zone, near.receives, near.requests, near.connections, NULL, &near.endpoint));
    OK(dat_ep_create(far.ia, far.zone, far.receives, far.requests, far.connections, NULL, &far.endpoint));
    connect_sides(&near, &far, 4711);
    for (index = 0; index < 4; index++)
        OK(dat_ep_post_recv(near.endpoint, 1, &room, cookie(index), DAT_COMPLETION_DEFAULT_FLAG));
    freed = near.endpoint;
    OK(dat_ep_disconnect(freed, DAT_CLOSE_ABRUPT_FLAG));
    do
        OK(dat_ep_get_status(freed, &state, NULL, NULL));
    while (state != DAT_EP_STATE_DISCONNECTED);
    OK(dat_ep_free(freed));
    /* The first event comes while the slot is empty, and still has its handle. */
    OK(dat_evd_dequeue(near.connections, &event));
    CHECK(event.event_number == DAT_CONNECTION_EVENT_DISCONNECTED);
    CHECK(event.event_data.connect_event_data.ep_handle == freed);
    for (index = 0; index < 3; index++)
        OK(dat_ep_create(near.ia, near.zone, near.receives, near.requests, near.connections, NULL, &others[index]));
    while (dat_evd_dequeue(near.receives, &event) == DAT_SUCCESS) {
        DAT_DTO_COMPLETION_EVENT_DATA *data = &event.event_data.dto_completion_event_data;
        CHECK(data->status == DAT_DTO_ERR_FLUSHED && data->user_cookie.as_64 == (DAT_UINT64)told++);
        CHECK(data->ep_handle == freed || data->ep_handle == DAT_HANDLE_NULL);
    }
    for (index = 0; index < 3; index++) {
        OK(dat_ep_get_status(others[index], &state, NULL, NULL));
        CHECK(state == DAT_EP_STATE_UNCONNECTED);
        OK(dat_ep_free(others[index]));
    }
    EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP, dat_ep_free(freed));
    OK(dat_ep_free(far.endpoint));
    free_side(&near);
    free_side(&far);
}

struct asking {
    struct side *side;
    DAT_IA_ADDRESS_PTR address;
    volatile int done;
};

/* Connects to a service point that may not exist yet, again and again. */
static void *connecting(void *argument)
{
    struct asking *asking = argument;
    struct side *side = asking->side;
    DAT_EVENT event;
    DAT_COUNT more;
    while (!asking->done) {
        OK(dat_ep_connect(side->endpoint, asking->address, 4712, PATIENCE, 0, NULL, DAT_QOS_BEST_EFFORT,
                          DAT_CONNECT_DEFAULT_FLAG));
        OK(dat_evd_wait(side->connections, PATIENCE, 1, &event, &more));
        OK(dat_ep_reset(side->endpoint));
    }
    return NULL;
}

/* A peer connects before the call that makes the service point returns; both give the same
 * handle. */
static void requests_before_the_call_returns(void)
{
    struct side near = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG), far = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
    struct asking asking = { &near, NULL, 0 };
    DAT_IA_ATTR attributes;
    DAT_PSP_HANDLE listener;
    DAT_EVENT event;
    pthread_t thread;
    int round;

    OK(dat_ep_create(near.ia, near.zone, near.receives, near.requests, near.connections, NULL, &near.endpoint));
    OK(dat_ia_query(far.ia, NULL, DAT_IA_FIELD_IA_ADDRESS_PTR, &attributes, 0, NULL));
    asking.address = attributes.ia_address_ptr;
    CHECK(pthread_create(&thread, NULL, connecting, &asking) == 0);
    for (round = 0; round < LISTENERS; round++) {
        OK(dat_psp_create(far.ia, 4712, far.arrivals, DAT_PSP_CONSUMER_FLAG, &listener));
        event = next_event(far.arrivals, DAT_CONNECTION_REQUEST_EVENT);
        CHECK(event.event_data.cr_arrival_event_data.sp_handle.psp_handle == listener);
        OK(dat_psp_free(listener));
        OK(dat_cr_reject(event.event_data.cr_arrival_event_data.cr_handle, 0, NULL));
        while (dat_evd_dequeue(far.arrivals, &event) == DAT_SUCCESS)
            OK(dat_cr_reject(event.event_data.cr_arrival_event_data.cr_handle, 0, NULL));
    }
    asking.done = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    while (dat_evd_dequeue(far.arrivals, &event) == DAT_SUCCESS)
        OK(dat_cr_reject(event.event_data.cr_arrival_event_data.cr_handle, 0, NULL));
    OK(dat_ep_free(near.endpoint));
    free_side(&near);
    free_side(&far);
}

/* Threads that call agents end with their adapters, even if the close comes before their start. */
static void threads_of_closed_adapters(void)
{
    DAT_OS_WAIT_PROXY_AGENT proxy = { NULL, agent };
    int round, before = threads();
    for (round = 0; round < ADAPTERS; round++) {
        DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
        DAT_IA_HANDLE ia;
        DAT_CNO_HANDLE cno;
        OK(dat_ia_open((DAT_NAME_PTR)"mock0", 8, &async, &ia));
        OK(dat_cno_create(ia, proxy, &cno));
        OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
    }
    for (round = 0; round < (int)(PATIENCE / 10000) && threads() > before; round++)
        usleep(10000);
    /* Threads of adapters that were closed before may have been counted, and have ended since. */
    CHECK(threads() <= before);
}

/* A signal that all threads of the program block must not reach a thread of the library, where
 * it would end the program. */
static void signals_of_the_program(void)
{
    DAT_OS_WAIT_PROXY_AGENT proxy = { NULL, agent };
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    DAT_IA_HANDLE ia;
    DAT_CNO_HANDLE cno;
    struct timespec patience = { PATIENCE / SECOND, 0 };
    sigset_t wanted;
    OK(dat_ia_open((DAT_NAME_PTR)"mock0", 8, &async, &ia));
    OK(dat_cno_create(ia, proxy, &cno));
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &wanted, NULL) == 0);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(sigtimedwait(&wanted, NULL, &patience) == SIGUSR1);
    OK(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
}

int main(void)
{
    signals_of_the_program();
    events_of_a_freed_endpoint();
    requests_before_the_call_returns();
    threads_of_closed_adapters();
    return 0;
}
