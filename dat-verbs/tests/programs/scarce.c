/* Makes, uses and ends one object of each kind while memory or descriptors are scarce.
 *
 * scarce MODE NUMBER: `once` fails the allocation of that number, `from` it and all later ones,
 * `files` leaves so many descriptors. Every call succeeds or tells of what is scarce; 0 is returned
 * if so, and 3 if no call was refused. `pairs` makes so many queue pairs and connects some. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static atomic_long number, failing = -1;
static atomic_int is_last;

static int fails(void) {
    long at = failing, now = at < 0 ? 0 : atomic_fetch_add(&number, 1);
    if (at < 0 || now < at || (!is_last && now > at))
        return 0;
    errno = ENOMEM;
    return 1;
}
void *malloc(size_t size) { return fails() ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return fails() ? NULL : __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return fails() ? NULL : __libc_realloc(old, size); }
void *memalign(size_t to, size_t size) { return fails() ? NULL : __libc_memalign(to, size); }
void *aligned_alloc(size_t to, size_t size) { return memalign(to, size); }
int posix_memalign(void **made, size_t to, size_t size) {
    *made = memalign(to, size);
    return *made ? 0 : ENOMEM;
}

static int wanted_error, refused;

/* Expects success, or the error of what is scarce; returns true for success. */
static int made(const char *call, int is_made) {
    if (is_made)
        return 1;
    /* A thread is refused with EAGAIN. */
    if (errno != wanted_error && !(errno == EAGAIN && wanted_error == ENOMEM)) {
        dprintf(2, "%s: error %d\n", call, errno);
        _exit(1);
    }
    refused = 1;
    return 0;
}
#define MADE(call) made(#call, (call) != NULL)
#define DONE(call) made(#call, (call) == 0)
/* A call that returns the error. */
#define CODE(call) made(#call, (errno = (call)) == 0)
#define ENDS(call) do if ((call) != 0) { dprintf(2, "%s\n", #call); _exit(2); } while (0)

static struct ibv_context *context;
static struct ibv_pd *domain;
static struct ibv_mr *region;
static struct ibv_comp_channel *channel;
static struct ibv_cq *queue;
static struct ibv_srq *shared;
static struct ibv_qp *pair;
static struct ibv_ah *address;
static char memory[4096];

/* Leads the queue pair, which is its own peer, to RTS. */
static int lead(void) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1,
        .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, .path_mtu = IBV_MTU_1024,
        .dest_qp_num = pair->qp_num, .max_rd_atomic = 1, .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
        .ah_attr = {.is_global = 1, .port_num = 1}};
    if (!DONE(ibv_query_gid(context, 1, 0, &a.ah_attr.grh.dgid)))
        return 0;
    if (!CODE(ibv_modify_qp(pair, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)))
        return 0;
    a.qp_state = IBV_QPS_RTR;
    if (!CODE(ibv_modify_qp(pair, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)))
        return 0;
    a.qp_state = IBV_QPS_RTS;
    return CODE(ibv_modify_qp(pair, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
        IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Sends a message, and waits for both completions. */
static void transfer(void) {
    int left = 2;
    struct ibv_sge to = {(uintptr_t)memory, 64, region->lkey};
    struct ibv_sge from = {(uintptr_t)memory + 64, 64, region->lkey};
    struct ibv_recv_wr receive = {.sg_list = &to, .num_sge = 1}, *bad_receive;
    struct ibv_send_wr send = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED}, *bad_send;
    struct ibv_wc done;
    if (!CODE(ibv_post_srq_recv(shared, &receive, &bad_receive)) ||
        !CODE(ibv_req_notify_cq(queue, 0)) || !CODE(ibv_post_send(pair, &send, &bad_send)))
        return;
    while (left > 0) {
        int taken = ibv_poll_cq(queue, 1, &done);
        if (taken < 0)
            return;
        left -= taken;
    }
}

/* Makes and uses the objects of verbs. */
static void use_verbs(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    if (!made("ibv_get_device_list", list != NULL))
        return;
    int is_open = MADE(context = ibv_open_device(*list));
    ibv_free_device_list(list);
    if (!is_open || !MADE(domain = ibv_alloc_pd(context)) ||
        !MADE(region = ibv_reg_mr(domain, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE)) ||
        !MADE(channel = ibv_create_comp_channel(context)) ||
        !MADE(queue = ibv_create_cq(context, 64, NULL, channel, 0)))
        return;
    struct ibv_srq_init_attr with = {.attr = {.max_wr = 16, .max_sge = 1}};
    if (!MADE(shared = ibv_create_srq(domain, &with)))
        return;
    struct ibv_qp_init_attr wanted = {.send_cq = queue, .recv_cq = queue, .srq = shared,
        .cap = {.max_send_wr = 16, .max_send_sge = 1}, .qp_type = IBV_QPT_RC};
    if (!MADE(pair = ibv_create_qp(domain, &wanted)) || !lead())
        return;
    transfer();
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1};
    ENDS(ibv_query_gid(context, 1, 0, &to.grh.dgid));
    if (MADE(address = ibv_create_ah(domain, &to)))
        ENDS(ibv_destroy_ah(address));
}

/* Makes queue pairs, of which every hundredth is connected and sends; ends them in another order. */
static void make_pairs(long count) {
    struct ibv_qp **pairs = __libc_calloc(count, sizeof *pairs);
    struct ibv_qp_init_attr wanted = {.send_cq = queue, .recv_cq = queue, .srq = shared,
        .cap = {.max_send_wr = 1, .max_send_sge = 1}, .qp_type = IBV_QPT_RC};
    struct ibv_qp *own = pair;
    for (long i = 0; i < count; i++) {
        if (!MADE(pairs[i] = ibv_create_qp(domain, &wanted)))
            return;
        pair = pairs[i];
        if (i % 100 == 0 && lead())
            transfer();
    }
    for (long i = 0; i < count; i++)
        ENDS(ibv_destroy_qp(pairs[i * 7 % count]));
    pair = own;
    free(pairs);
}

static void end_verbs(void) {
    if (pair) ENDS(ibv_destroy_qp(pair));
    if (shared) ENDS(ibv_destroy_srq(shared));
    if (queue) ENDS(ibv_destroy_cq(queue));
    if (channel) ENDS(ibv_destroy_comp_channel(channel));
    if (region) ENDS(ibv_dereg_mr(region));
    if (domain) ENDS(ibv_dealloc_pd(domain));
    if (context) ENDS(ibv_close_device(context));
}

/* Takes the next event of a channel, if one comes; returns its kind, and the identifier of a request. */
static int event(struct rdma_event_channel *events, struct rdma_cm_id **request) {
    struct rdma_cm_event *taken;
    struct pollfd set = {events->fd, POLLIN, 0};
    /* Without memory or descriptors no event of the peer may come. */
    if (poll(&set, 1, wanted_error ? 100 : 20000) != 1 || rdma_get_cm_event(events, &taken))
        return -1;
    int kind = taken->event;
    if (request)
        *request = taken->id;
    ENDS(rdma_ack_cm_event(taken));
    return kind;
}

/* Connects two identifiers of this process. */
static void use_connections(void) {
    struct rdma_event_channel *here = NULL, *there = NULL;
    struct rdma_cm_id *listener = NULL, *client = NULL, *server = NULL;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct ibv_qp_init_attr wanted = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    if (MADE(here = rdma_create_event_channel()) && MADE(there = rdma_create_event_channel()) &&
        DONE(rdma_create_id(there, &listener, NULL, RDMA_PS_TCP)) &&
        DONE(rdma_bind_addr(listener, (struct sockaddr *)&to)) && DONE(rdma_listen(listener, 4)) &&
        DONE(rdma_create_id(here, &client, NULL, RDMA_PS_TCP))) {
        to.sin_port = rdma_get_src_port(listener);
        if (DONE(rdma_resolve_addr(client, NULL, (struct sockaddr *)&to, 1000)) &&
            event(here, NULL) == RDMA_CM_EVENT_ADDR_RESOLVED &&
            DONE(rdma_resolve_route(client, 1000)) &&
            event(here, NULL) == RDMA_CM_EVENT_ROUTE_RESOLVED &&
            DONE(rdma_create_qp(client, NULL, &wanted)) && DONE(rdma_connect(client, NULL)) &&
            event(there, &server) == RDMA_CM_EVENT_CONNECT_REQUEST &&
            DONE(rdma_create_qp(server, NULL, &wanted)) && DONE(rdma_accept(server, NULL)) &&
            event(here, NULL) == RDMA_CM_EVENT_ESTABLISHED)
            DONE(rdma_disconnect(client));
    }
    if (client && client->qp) rdma_destroy_qp(client);
    if (client) ENDS(rdma_destroy_id(client));
    if (server && server->qp) rdma_destroy_qp(server);
    if (server) ENDS(rdma_destroy_id(server));
    if (listener) ENDS(rdma_destroy_id(listener));
    if (here) rdma_destroy_event_channel(here);
    if (there) rdma_destroy_event_channel(there);
}

int main(int count, char **arguments) {
    long scarce = count > 2 ? atol(arguments[2]) : 0;
    if (count > 2 && strcmp(arguments[1], "pairs") == 0) {
        use_verbs();
        make_pairs(scarce);
        end_verbs();
        return 0;
    }
    if (count > 2 && strcmp(arguments[1], "files") == 0) {
        struct rlimit limit = {3 + scarce, 3 + scarce};
        wanted_error = EMFILE;
        ENDS(setrlimit(RLIMIT_NOFILE, &limit));
    } else if (count > 2) {
        wanted_error = ENOMEM;
        is_last = strcmp(arguments[1], "from") == 0;
        failing = scarce;
    }
    use_verbs();
    use_connections();
    end_verbs();
    failing = -1;
    return refused ? 0 : 3;
}
