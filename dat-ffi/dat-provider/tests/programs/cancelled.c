/* A cancellation is pending in every call but waits, `cancelled [ADAPTER]`: all calls complete.
 * GEN-01 */
#include "check.h"

#include <sched.h>

static const char *name = "mock0";

/* The current call of the thread, and a flag that it made them all. */
static const char *volatile now = "none";
static volatile int ended;
#define DONE(call)                                                                                                      \
    do {                                                                                                                \
        now = #call;                                                                                                    \
        OK(call);                                                                                                       \
    } while (0)

/* Polls for the next event. */
static DAT_EVENT polled(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number)
{
    DAT_EVENT event;
    DAT_RETURN code;
    now = "dat_evd_dequeue";
    do {
        code = dat_evd_dequeue(evd, &event);
        sched_yield();
    } while (DAT_GET_TYPE(code) == DAT_QUEUE_EMPTY);
    CHECK(code == DAT_SUCCESS && event.event_number == number);
    return event;
}

static struct side opened(void)
{
    struct side side;
    DAT_REGION_DESCRIPTION description;
    DAT_VLEN size;
    DAT_VADDR address;
    memset(&side, 0, sizeof side);
    side.memory = calloc(1, BYTES);
    description.for_va = side.memory;
    DONE(dat_ia_open((DAT_NAME_PTR)name, 8, &side.async, &side.ia));
    DONE(dat_pz_create(side.ia, &side.zone));
    DONE(dat_evd_create(side.ia, 16, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG, &side.requests));
    DONE(dat_evd_create(side.ia, 16, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &side.receives));
    DONE(dat_evd_create(side.ia, 16, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &side.connections));
    DONE(dat_evd_create(side.ia, 16, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &side.arrivals));
    DONE(dat_lmr_create(side.ia, DAT_MEM_TYPE_VIRTUAL, description, BYTES, side.zone, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA,
                        &side.region, &side.local, &side.remote, &size, &address));
    DONE(dat_ep_create(side.ia, side.zone, side.receives, side.requests, side.connections, NULL, &side.endpoint));
    return side;
}

static void closed(struct side *side)
{
    DONE(dat_ep_free(side->endpoint));
    DONE(dat_lmr_free(side->region));
    DONE(dat_evd_free(side->arrivals));
    DONE(dat_evd_free(side->connections));
    DONE(dat_evd_free(side->receives));
    DONE(dat_evd_free(side->requests));
    DONE(dat_pz_free(side->zone));
    DONE(dat_ia_close(side->ia, DAT_CLOSE_GRACEFUL_FLAG));
    free(side->memory);
}

static void *everything(void *unused)
{
    struct side near, far;
    DAT_IA_ATTR attributes;
    DAT_PSP_HANDLE listener;
    DAT_CNO_HANDLE cno;
    DAT_EVD_HANDLE software;
    DAT_RMR_HANDLE window;
    DAT_RMR_CONTEXT context;
    DAT_EVENT event;
    DAT_CR_PARAM asked;
    DAT_EP_PARAM param;
    DAT_LMR_TRIPLET first, second, whole;
    DAT_RMR_TRIPLET there;
    const char *type, *subtype;
    int round;
    (void)unused;
    CHECK(pthread_cancel(pthread_self()) == 0);
    near = opened();
    far = opened();
    DONE(dat_ia_query(far.ia, NULL, DAT_IA_FIELD_ALL, &attributes, 0, NULL));
    DONE(dat_psp_create(far.ia, 8123, far.arrivals, DAT_PSP_CONSUMER_FLAG, &listener));
    DONE(dat_ep_connect(near.endpoint, attributes.ia_address_ptr, 8123, DAT_TIMEOUT_INFINITE, 0, NULL, DAT_QOS_BEST_EFFORT,
                        DAT_CONNECT_DEFAULT_FLAG));
    event = polled(far.arrivals, DAT_CONNECTION_REQUEST_EVENT);
    DONE(dat_cr_query(event.event_data.cr_arrival_event_data.cr_handle, DAT_CR_FIELD_ALL, &asked));
    DONE(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, far.endpoint, 0, NULL));
    polled(near.connections, DAT_CONNECTION_EVENT_ESTABLISHED);
    polled(far.connections, DAT_CONNECTION_EVENT_ESTABLISHED);
    DONE(dat_psp_free(listener));
    DONE(dat_ep_query(near.endpoint, DAT_EP_FIELD_ALL, &param));
    whole = piece(&near, 0, 64);
    DONE(dat_rmr_create(near.zone, &window));
    first = piece(&far, 0, 64);
    second = piece(&near, 0, 64);
    there = target(&far, 64, 64);
    for (round = 0; round < 20; round++) {
        DONE(dat_rmr_bind(window, near.region, &whole, DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_VA_TYPE_VA, near.endpoint, cookie(1),
                          DAT_COMPLETION_DEFAULT_FLAG, &context));
        polled(near.requests, DAT_RMR_BIND_COMPLETION_EVENT);
        DONE(dat_ep_post_recv(far.endpoint, 1, &first, cookie(2), DAT_COMPLETION_DEFAULT_FLAG));
        DONE(dat_ep_post_rdma_write(near.endpoint, 1, &second, cookie(3), &there, DAT_COMPLETION_DEFAULT_FLAG));
        DONE(dat_ep_post_rdma_read(near.endpoint, 1, &second, cookie(4), &there, DAT_COMPLETION_DEFAULT_FLAG));
        DONE(dat_ep_post_send(near.endpoint, 1, &second, cookie(5), DAT_COMPLETION_DEFAULT_FLAG));
        polled(near.requests, DAT_DTO_COMPLETION_EVENT);
        polled(near.requests, DAT_DTO_COMPLETION_EVENT);
        polled(near.requests, DAT_DTO_COMPLETION_EVENT);
        polled(far.receives, DAT_DTO_COMPLETION_EVENT);
    }
    DONE(dat_rmr_free(window));
    DONE(dat_lmr_sync_rdma_read(near.ia, &second, 1));
    DONE(dat_cno_create(near.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
    DONE(dat_evd_create(near.ia, 4, cno, DAT_EVD_SOFTWARE_FLAG, &software));
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    DONE(dat_evd_post_se(software, &event));
    DONE(dat_evd_resize(software, 8));
    polled(software, DAT_SOFTWARE_EVENT);
    DONE(dat_evd_free(software));
    DONE(dat_cno_free(cno));
    DONE(dat_ep_disconnect(near.endpoint, DAT_CLOSE_GRACEFUL_FLAG));
    polled(near.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    polled(far.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    DONE(dat_ep_reset(near.endpoint));
    closed(&near);
    closed(&far);
    DONE(dat_strerror(DAT_SUCCESS, &type, &subtype));
    ended = 1;
    pthread_testcancel();
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t thread;
    void *result = NULL;
    if (count > 1)
        name = arguments[1];
    CHECK(pthread_create(&thread, NULL, everything, NULL) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    if (!ended)
        fprintf(stderr, "the thread ended in %s\n", now);
    CHECK(ended && result == PTHREAD_CANCELED);
    return 0;
}
