/* A child's access to its parent's adapters, and adapters of its own, `fork [ADAPTER]`. GEN-03,
 * GEN-04 */
#include "check.h"

#include <stdatomic.h>
#include <sys/wait.h>

static struct side near, far;
static DAT_CNO_HANDLE notifier;
static DAT_RMR_HANDLE window;
static const char *name = "mock0";

/* Every call on an open object of the parent is refused. */
static void refused(void)
{
    DAT_REGION_DESCRIPTION description;
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_CONTEXT context = {0};
    DAT_HANDLE made = NULL;
    DAT_HANDLE_TYPE type;
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT remote;
    DAT_VLEN size;
    DAT_VADDR address;
    DAT_EP_STATE state;
    DAT_BOOLEAN receives, requests;
    DAT_IA_ATTR attributes;
    DAT_EP_PARAM param;
    DAT_LMR_TRIPLET whole = piece(&near, 0, 64);
    DAT_RMR_TRIPLET there = target(&far, 0, 64);
    DAT_SOCK_ADDR to = {0};
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    description.for_va = near.memory;
#define REFUSED(call) EXPECT(DAT_INVALID_HANDLE, call)
    REFUSED(dat_ia_query(near.ia, NULL, DAT_IA_FIELD_ALL, &attributes, 0, NULL));
    REFUSED(dat_get_handle_type(near.ia, &type));
    REFUSED(dat_set_consumer_context(near.endpoint, context));
    REFUSED(dat_pz_create(near.ia, &made));
    REFUSED(dat_pz_free(near.zone));
    REFUSED(dat_lmr_create(near.ia, DAT_MEM_TYPE_VIRTUAL, description, BYTES, near.zone, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &made,
                           &local, &remote, &size, &address));
    REFUSED(dat_lmr_free(near.region));
    REFUSED(dat_rmr_create(near.zone, &made));
    REFUSED(dat_rmr_bind(window, near.region, &whole, DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_VA_TYPE_VA, near.endpoint, context, 0, &remote));
    REFUSED(dat_rmr_free(window));
    REFUSED(dat_cno_create(near.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &made));
    REFUSED(dat_cno_wait(notifier, 0, &made));
    REFUSED(dat_cno_free(notifier));
    REFUSED(dat_evd_create(near.ia, 4, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &made));
    REFUSED(dat_evd_wait(near.requests, 0, 1, &event, &more));
    REFUSED(dat_evd_dequeue(near.requests, &event));
    REFUSED(dat_evd_post_se(near.requests, &event));
    REFUSED(dat_evd_resize(near.requests, 64));
    REFUSED(dat_evd_free(near.requests));
    REFUSED(dat_ep_create(near.ia, near.zone, near.receives, near.requests, near.connections, NULL, &made));
    REFUSED(dat_ep_get_status(near.endpoint, &state, &receives, &requests));
    REFUSED(dat_ep_query(near.endpoint, DAT_EP_FIELD_ALL, &param));
    REFUSED(dat_ep_post_recv(near.endpoint, 1, &whole, context, 0));
    REFUSED(dat_ep_post_send(near.endpoint, 1, &whole, context, 0));
    REFUSED(dat_ep_post_rdma_write(near.endpoint, 1, &whole, context, &there, 0));
    REFUSED(dat_ep_post_rdma_read(near.endpoint, 1, &whole, context, &there, 0));
    REFUSED(dat_ep_connect(near.endpoint, &to, 1, 0, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    REFUSED(dat_ep_disconnect(near.endpoint, DAT_CLOSE_ABRUPT_FLAG));
    REFUSED(dat_ep_reset(near.endpoint));
    REFUSED(dat_ep_free(near.endpoint));
    REFUSED(dat_psp_create(near.ia, 5678, near.arrivals, DAT_PSP_CONSUMER_FLAG, &made));
    REFUSED(dat_lmr_sync_rdma_read(near.ia, &whole, 1));
    REFUSED(dat_ia_close(near.ia, DAT_CLOSE_ABRUPT_FLAG));
}

/* Transfers a message and a Write from one side to the other, with other bytes each time. */
static void move(struct side *from, struct side *to)
{
    static int round;
    DAT_LMR_TRIPLET sent = piece(from, 0, 64), written = piece(from, 64, 64), received = piece(to, 128, 64);
    DAT_RMR_TRIPLET there = target(to, 192, 64);
    round++;
    memset(from->memory, round, 64);
    memset(from->memory + 64, ~round, 64);
    OK(dat_ep_post_recv(to->endpoint, 1, &received, cookie(1), DAT_COMPLETION_DEFAULT_FLAG));
    OK(dat_ep_post_rdma_write(from->endpoint, 1, &written, cookie(2), &there, DAT_COMPLETION_DEFAULT_FLAG));
    OK(dat_ep_post_send(from->endpoint, 1, &sent, cookie(3), DAT_COMPLETION_DEFAULT_FLAG));
    completed(from->requests, from->endpoint, 2, DAT_DTO_RDMA_WRITE, 64);
    completed(from->requests, from->endpoint, 3, DAT_DTO_SEND, 64);
    completed(to->receives, to->endpoint, 1, DAT_DTO_RECEIVE, 64);
    CHECK(memcmp(from->memory, to->memory + 128, 64) == 0);
    CHECK(memcmp(from->memory + 64, to->memory + 192, 64) == 0);
}

static void connected(struct side *from, struct side *to, DAT_CONN_QUAL qualifier)
{
    OK(dat_ep_create(from->ia, from->zone, from->receives, from->requests, from->connections, NULL, &from->endpoint));
    OK(dat_ep_create(to->ia, to->zone, to->receives, to->requests, to->connections, NULL, &to->endpoint));
    connect_sides(from, to, qualifier);
}

static void disconnected(struct side *from, struct side *to)
{
    OK(dat_ep_disconnect(from->endpoint, DAT_CLOSE_GRACEFUL_FLAG));
    (void)next_event(from->connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    (void)next_event(to->connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    OK(dat_ep_free(from->endpoint));
    OK(dat_ep_free(to->endpoint));
}

static void child(int talks)
{
    struct side own, other;
    DAT_EVENT event;
    DAT_COUNT more;
    refused();
    own = open_side(name, DAT_MEM_PRIV_ALL_FLAG);
    /* No handle of the child equals one of the parent. */
    CHECK(own.ia != near.ia && own.zone != near.zone && own.region != near.region);
    EXPECT(DAT_INVALID_HANDLE, dat_ia_close(near.ia, DAT_CLOSE_ABRUPT_FLAG));
    EXPECT(DAT_TIMEOUT_EXPIRED, dat_evd_wait(own.requests, 1000, 1, &event, &more));
    CHECK(more == 0);
    if (talks) {
        other = open_side(name, DAT_MEM_PRIV_ALL_FLAG);
        connected(&own, &other, 9000 + getpid() % 1000);
        move(&own, &other);
        disconnected(&own, &other);
        free_side(&other);
    }
    free_side(&own);
}

static atomic_int over;

/* Holds the locks of calls. */
static void *busy(void *unused)
{
    DAT_PZ_HANDLE zone;
    DAT_EVENT event;
    DAT_COUNT more;
    (void)unused;
    while (!over) {
        OK(dat_pz_create(far.ia, &zone));
        OK(dat_pz_free(zone));
        EXPECT(DAT_TIMEOUT_EXPIRED, dat_evd_wait(far.arrivals, 10, 1, &event, &more));
    }
    return NULL;
}

/* Forks a child, which forks its own for a greater depth; `ends` is `exit` or `_exit`. */
static void forked(int depth, int talks, void (*ends)(int))
{
    int status;
    pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        alarm(PATIENCE / SECOND);
        child(talks);
        if (depth > 1)
            forked(depth - 1, talks, ends);
        ends(0);
    }
    CHECK(waitpid(process, &status, 0) == process);
    CHECK(status == 0);
}

int main(int count, char **arguments)
{
    pthread_t thread;
    int round, status;
    pid_t process;
    if (count > 1)
        name = arguments[1];
    near = open_side(name, DAT_MEM_PRIV_ALL_FLAG);
    far = open_side(name, DAT_MEM_PRIV_ALL_FLAG);
    OK(dat_cno_create(near.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &notifier));
    OK(dat_rmr_create(near.zone, &window));
    connected(&near, &far, 7654);
    move(&near, &far);
    forked(2, 1, _exit);
    move(&near, &far);
    forked(2, 1, exit);
    move(&near, &far);
    CHECK(pthread_create(&thread, NULL, busy, NULL) == 0);
    for (round = 0; round < 20; round++) {
        process = fork();
        CHECK(process >= 0);
        if (process == 0) {
            alarm(PATIENCE / SECOND);
            child(0);
            (round % 2 ? _exit : exit)(0);
        }
        /* Bytes are transferred while the child lives, and after its end. */
        move(&near, &far);
        CHECK(waitpid(process, &status, 0) == process && status == 0);
        move(&far, &near);
    }
    over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    disconnected(&near, &far);
    OK(dat_rmr_free(window));
    OK(dat_cno_free(notifier));
    free_side(&far);
    free_side(&near);
    return 0;
}
