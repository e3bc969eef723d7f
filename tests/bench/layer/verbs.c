/* A device that is not there: what the provider calls of libibverbs and librdmacm, preloaded before them. Queue pairs of one process talk to
 * each other, and every request completes when it is posted, or when the program goes to sleep if it asks for that. Only so much of it is there that
 * a provider for DAT opens the device, connects two endpoints and moves data; memory is not touched. */
#define _GNU_SOURCE
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#undef ibv_query_port
#undef ibv_reg_mr

#define PLACES 4096
#define PAIRS 1024
#define LISTENERS 16

struct notified {
    struct ibv_comp_channel channel;
    struct queue *by;
};
struct queue {
    struct ibv_cq cq;
    int armed;
    struct ibv_wc done[PLACES];
    unsigned produced, consumed;
};
struct receives {
    uint64_t ids[PLACES];
    unsigned produced, consumed;
};
struct pair {
    struct ibv_qp qp;
    struct receives receives;
    struct pair *peer;
};
struct identifier {
    struct rdma_cm_id id;
    struct identifier *peer;
    uint32_t pair;
    uint16_t port;
};
struct told {
    struct rdma_cm_event event;
    struct told *next;
    uint8_t private_data[256];
};

static struct ibv_device device = {.node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB, .name = "counted0", .dev_name = "counted0"};
static struct ibv_context context;
static struct rdma_event_channel channel;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static struct told *first, **last = &first;
static struct identifier *listeners[LISTENERS];
static unsigned listening;
static struct pair *pairs[PAIRS];
static uint32_t next_pair = 1, next_key = 1;

static void complete(struct ibv_cq *cq, uint64_t id, enum ibv_wc_opcode opcode, uint32_t length, uint32_t pair)
{
    struct queue *queue = (struct queue *)cq;
    struct ibv_wc *done = &queue->done[queue->produced++ % PLACES];
    done->wr_id = id;
    done->status = IBV_WC_SUCCESS;
    done->opcode = opcode;
    done->byte_len = length;
    done->qp_num = pair;
    done->wc_flags = 0;
}

/* The next request completes when somebody sleeps, and wakes who does. */
static int holds;
static struct {
    struct ibv_qp *qp;
    uint64_t id;
    enum ibv_wc_opcode opcode;
    uint32_t length;
} held;
void hold_next_request(void) { holds = 1; }

static void release(void)
{
    struct queue *queue;
    struct notified *notified;
    uint64_t one = 1;
    pthread_mutex_lock(&turn);
    if (held.qp) {
        queue = (struct queue *)held.qp->send_cq;
        complete(&queue->cq, held.id, held.opcode, held.length, held.qp->qp_num);
        held.qp = NULL;
        notified = (struct notified *)queue->cq.channel;
        if (queue->armed && notified) {
            queue->armed = 0;
            notified->by = queue;
            if (write(notified->channel.fd, &one, sizeof one) != sizeof one)
                abort();
        }
    }
    pthread_mutex_unlock(&turn);
}
int epoll_wait(int set, struct epoll_event *events, int most, int milliseconds)
{
    if (milliseconds != 0)
        release();
    return syscall(SYS_epoll_wait, set, events, most, milliseconds);
}
int poll(struct pollfd *polled, nfds_t count, int milliseconds)
{
    if (milliseconds != 0)
        release();
    return syscall(SYS_poll, polled, count, milliseconds);
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *request, struct ibv_send_wr **bad)
{
    struct pair *pair = (struct pair *)qp;
    for (; request; request = request->next) {
        uint32_t length = 0;
        for (int index = 0; index < request->num_sge; index++)
            length += request->sg_list[index].length;
        if (request->opcode == IBV_WR_SEND) {
            struct receives *receives = &pair->peer->receives;
            if (receives->produced == receives->consumed) {
                *bad = request;
                return ENOMEM;
            }
            complete(pair->peer->qp.recv_cq, receives->ids[receives->consumed++ % PLACES], IBV_WC_RECV, length, pair->peer->qp.qp_num);
        }
        if (request->send_flags & IBV_SEND_SIGNALED) {
            enum ibv_wc_opcode opcode =
                request->opcode == IBV_WR_SEND ? IBV_WC_SEND : request->opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE;
            if (holds) {
                holds = 0;
                held.id = request->wr_id;
                held.opcode = opcode;
                held.length = length;
                held.qp = qp;
            } else {
                complete(qp->send_cq, request->wr_id, opcode, length, qp->qp_num);
            }
        }
    }
    return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *request, struct ibv_recv_wr **bad)
{
    struct receives *receives = &((struct pair *)qp)->receives;
    (void)bad;
    for (; request; request = request->next)
        receives->ids[receives->produced++ % PLACES] = request->wr_id;
    return 0;
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *done)
{
    struct queue *queue = (struct queue *)cq;
    int count = 0;
    while (count < most && queue->consumed != queue->produced)
        done[count++] = queue->done[queue->consumed++ % PLACES];
    return count;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
    (void)solicited;
    ((struct queue *)cq)->armed = 1;
    return 0;
}

__attribute__((constructor)) static void begin(void)
{
    context.device = &device;
    context.ops.post_send = post_send;
    context.ops.post_recv = post_recv;
    context.ops.poll_cq = poll_cq;
    context.ops.req_notify_cq = req_notify_cq;
    context.async_fd = eventfd(0, EFD_NONBLOCK);
    context.cmd_fd = -1;
    context.num_comp_vectors = 1;
    channel.fd = eventfd(0, 0);
}

static void *zeroed(size_t size)
{
    void *place = calloc(1, size);
    if (!place)
        abort();
    return place;
}

/* libibverbs */

struct ibv_device **ibv_get_device_list(int *count)
{
    static struct ibv_device *list[2] = {&device, NULL};
    if (count)
        *count = 1;
    return list;
}
void ibv_free_device_list(struct ibv_device **list) { (void)list; }
const char *ibv_get_device_name(struct ibv_device *of) { return of->name; }
__be64 ibv_get_device_guid(struct ibv_device *of) { return (void)of, 1; }
struct ibv_context *ibv_open_device(struct ibv_device *of) { return (void)of, &context; }
int ibv_close_device(struct ibv_context *of) { return (void)of, 0; }

int ibv_query_device(struct ibv_context *of, struct ibv_device_attr *told)
{
    (void)of;
    *told = (struct ibv_device_attr){.fw_ver = "1.0", .vendor_id = 0x02C9, .max_mr_size = ~0ull, .max_qp = PAIRS, .max_qp_wr = PLACES / 4, .max_sge = 32,
        .max_sge_rd = 32, .max_cq = 65536, .max_cqe = PLACES, .max_mr = 65536, .max_pd = 65536, .max_qp_rd_atom = 16, .max_res_rd_atom = 1024,
        .max_qp_init_rd_atom = 16, .phys_port_cnt = 1};
    return 0;
}
int ibv_query_port(struct ibv_context *of, uint8_t number, struct _compat_ibv_port_attr *place)
{
    struct ibv_port_attr *told = (struct ibv_port_attr *)place;
    (void)of, (void)number;
    told->state = IBV_PORT_ACTIVE;
    told->max_mtu = told->active_mtu = IBV_MTU_4096;
    told->gid_tbl_len = 1;
    told->max_msg_sz = 1u << 30;
    return 0;
}
/* The interface of the port is the one to this host itself, and its address 127.0.0.1. */
static const union ibv_gid own_gid = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
ssize_t _ibv_query_gid_table(struct ibv_context *of, struct ibv_gid_entry *entries, size_t room, uint32_t flags, size_t size)
{
    (void)of, (void)flags;
    if (room == 0 || size != sizeof *entries)
        return -EINVAL;
    *entries = (struct ibv_gid_entry){.gid = own_gid, .port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2, .ndev_ifindex = if_nametoindex("lo")};
    return 1;
}
int ibv_query_gid(struct ibv_context *of, uint8_t number, int index, union ibv_gid *gid)
{
    (void)of, (void)number, (void)index;
    *gid = own_gid;
    return 0;
}
struct ibv_pd *ibv_alloc_pd(struct ibv_context *of)
{
    struct ibv_pd *pd = zeroed(sizeof *pd);
    pd->context = of;
    return pd;
}
int ibv_dealloc_pd(struct ibv_pd *pd) { return free(pd), 0; }
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
    struct ibv_mr *mr = zeroed(sizeof *mr);
    (void)access;
    *mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = address, .length = length, .lkey = next_key, .rkey = next_key};
    next_key++;
    return mr;
}
int ibv_dereg_mr(struct ibv_mr *mr) { return free(mr), 0; }
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *of)
{
    struct notified *made = zeroed(sizeof *made);
    made->channel.context = of;
    made->channel.fd = eventfd(0, 0);
    return &made->channel;
}
int ibv_destroy_comp_channel(struct ibv_comp_channel *of)
{
    close(of->fd);
    free(of);
    return 0;
}
struct ibv_cq *ibv_create_cq(struct ibv_context *of, int count, void *cq_context, struct ibv_comp_channel *events, int vector)
{
    struct queue *queue = zeroed(sizeof *queue);
    (void)vector;
    queue->cq.context = of;
    queue->cq.channel = events;
    queue->cq.cq_context = cq_context;
    queue->cq.cqe = count;
    return &queue->cq;
}
int ibv_resize_cq(struct ibv_cq *cq, int count) { return (void)cq, (void)count, 0; }
int ibv_destroy_cq(struct ibv_cq *cq) { return free(cq), 0; }
int ibv_get_cq_event(struct ibv_comp_channel *of, struct ibv_cq **cq, void **cq_context)
{
    struct notified *notified = (struct notified *)of;
    struct queue *by;
    uint64_t count;
    pthread_mutex_lock(&turn);
    by = notified->by;
    notified->by = NULL;
    if (by && read(of->fd, &count, sizeof count) < 0)
        abort();
    pthread_mutex_unlock(&turn);
    if (!by) {
        errno = EAGAIN;
        return -1;
    }
    *cq = &by->cq;
    *cq_context = by->cq.cq_context;
    return 0;
}
void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count) { (void)cq, (void)count; }
int ibv_get_async_event(struct ibv_context *of, struct ibv_async_event *event)
{
    (void)of, (void)event;
    errno = EAGAIN;
    return -1;
}
void ibv_ack_async_event(struct ibv_async_event *event) { (void)event; }
struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *wanted)
{
    (void)pd, (void)wanted;
    errno = ENOSYS;
    return NULL;
}
int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *wanted, int mask) { return (void)srq, (void)wanted, (void)mask, ENOSYS; }
int ibv_destroy_srq(struct ibv_srq *srq) { return (void)srq, ENOSYS; }
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *wanted)
{
    struct pair *pair = zeroed(sizeof *pair);
    pair->qp.context = pd->context;
    pair->qp.pd = pd;
    pair->qp.send_cq = wanted->send_cq;
    pair->qp.recv_cq = wanted->recv_cq;
    pair->qp.qp_type = wanted->qp_type;
    pair->qp.qp_context = wanted->qp_context;
    pair->qp.qp_num = next_pair;
    pairs[next_pair++ % PAIRS] = pair;
    return &pair->qp;
}
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *wanted, int mask) { return (void)qp, (void)wanted, (void)mask, 0; }
int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *told, int mask, struct ibv_qp_init_attr *made)
{
    (void)qp, (void)mask, (void)made;
    memset(told, 0, sizeof *told);
    told->qp_state = IBV_QPS_RTS;
    return 0;
}
int ibv_destroy_qp(struct ibv_qp *qp) { return free(qp), 0; }

/* librdmacm */

static void tell(struct identifier *to, enum rdma_cm_event_type what, struct identifier *listener, const void *data, uint8_t length)
{
    struct told *told = zeroed(sizeof *told);
    uint64_t one = 1;
    told->event.event = what;
    told->event.id = &to->id;
    told->event.listen_id = listener ? &listener->id : NULL;
    told->event.param.conn.responder_resources = told->event.param.conn.initiator_depth = 4;
    if (length) {
        memcpy(told->private_data, data, length);
        told->event.param.conn.private_data = told->private_data;
        told->event.param.conn.private_data_len = length;
    }
    pthread_mutex_lock(&turn);
    *last = told;
    last = &told->next;
    pthread_mutex_unlock(&turn);
    if (write(channel.fd, &one, sizeof one) != sizeof one)
        abort();
}
static struct identifier *own(struct rdma_cm_id *id) { return (struct identifier *)id; }

struct rdma_event_channel *rdma_create_event_channel(void) { return &channel; }
void rdma_destroy_event_channel(struct rdma_event_channel *of) { (void)of; }
int rdma_create_id(struct rdma_event_channel *of, struct rdma_cm_id **id, void *id_context, enum rdma_port_space space)
{
    struct identifier *made = zeroed(sizeof *made);
    made->id.channel = of;
    made->id.context = id_context;
    made->id.ps = space;
    *id = &made->id;
    return 0;
}
/* Of a provider that lets the connection manager have its queue pairs, that is all there is to an answer. */
int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *wanted)
{
    id->qp = ibv_create_qp(pd, wanted);
    return 0;
}
void rdma_destroy_qp(struct rdma_cm_id *id) { id->qp = NULL; }
int rdma_destroy_id(struct rdma_cm_id *id) { return (void)id, 0; }
static void place(struct rdma_cm_id *id)
{
    id->verbs = &context;
    id->port_num = 1;
}
int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
    place(id);
    memcpy(&id->route.addr.src_addr, address, sizeof(struct sockaddr_in));
    own(id)->port = ((struct sockaddr_in *)address)->sin_port;
    return 0;
}
int rdma_listen(struct rdma_cm_id *id, int backlog)
{
    (void)backlog;
    listeners[listening++ % LISTENERS] = own(id);
    return 0;
}
int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to, int milliseconds)
{
    (void)from, (void)milliseconds;
    place(id);
    memcpy(&id->route.addr.dst_addr, to, sizeof(struct sockaddr_in));
    tell(own(id), RDMA_CM_EVENT_ADDR_RESOLVED, NULL, NULL, 0);
    return 0;
}
int rdma_resolve_route(struct rdma_cm_id *id, int milliseconds)
{
    (void)milliseconds;
    tell(own(id), RDMA_CM_EVENT_ROUTE_RESOLVED, NULL, NULL, 0);
    return 0;
}
int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *wanted, int *mask)
{
    enum ibv_qp_state state = wanted->qp_state;
    (void)id;
    memset(wanted, 0, sizeof *wanted);
    wanted->qp_state = state;
    *mask = IBV_QP_STATE;
    return 0;
}
int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *wanted)
{
    uint16_t port = ((struct sockaddr_in *)&id->route.addr.dst_addr)->sin_port;
    for (unsigned index = 0; index < listening; index++) {
        struct identifier *listener = listeners[index % LISTENERS];
        struct rdma_cm_id *made;
        if (listener->port != port)
            continue;
        rdma_create_id(&channel, &made, listener->id.context, RDMA_PS_TCP);
        place(made);
        memcpy(&made->route.addr.src_addr, &id->route.addr.dst_addr, sizeof(struct sockaddr_in));
        memcpy(&made->route.addr.dst_addr, &id->route.addr.dst_addr, sizeof(struct sockaddr_in));
        own(made)->peer = own(id);
        own(id)->peer = own(made);
        own(id)->pair = wanted->qp_num;
        tell(own(made), RDMA_CM_EVENT_CONNECT_REQUEST, listener, wanted->private_data, wanted->private_data_len);
        return 0;
    }
    tell(own(id), RDMA_CM_EVENT_UNREACHABLE, NULL, NULL, 0);
    return 0;
}
int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *wanted)
{
    struct identifier *peer = own(id)->peer;
    struct pair *here = id->qp ? (struct pair *)id->qp : pairs[wanted->qp_num % PAIRS];
    struct pair *there = peer->id.qp ? (struct pair *)peer->id.qp : pairs[peer->pair % PAIRS];
    here->peer = there;
    there->peer = here;
    if (peer->id.qp) {
        tell(own(id), RDMA_CM_EVENT_ESTABLISHED, NULL, NULL, 0);
        tell(peer, RDMA_CM_EVENT_ESTABLISHED, NULL, wanted->private_data, wanted->private_data_len);
        return 0;
    }
    tell(peer, RDMA_CM_EVENT_CONNECT_RESPONSE, NULL, wanted->private_data, wanted->private_data_len);
    return 0;
}
int rdma_establish(struct rdma_cm_id *id)
{
    tell(own(id)->peer, RDMA_CM_EVENT_ESTABLISHED, NULL, NULL, 0);
    return 0;
}
int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t length)
{
    tell(own(id)->peer, RDMA_CM_EVENT_REJECTED, NULL, data, length);
    return 0;
}
int rdma_reject_ece(struct rdma_cm_id *id, const void *data, uint8_t length) { return rdma_reject(id, data, length); }
int rdma_disconnect(struct rdma_cm_id *id) { return (void)id, 0; }
int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t length)
{
    return (void)id, (void)level, (void)name, (void)value, (void)length, 0;
}
__be16 rdma_get_src_port(struct rdma_cm_id *id) { return ((struct sockaddr_in *)&id->route.addr.src_addr)->sin_port; }
int rdma_get_cm_event(struct rdma_event_channel *of, struct rdma_cm_event **event)
{
    struct told *told;
    uint64_t count;
    (void)of;
    pthread_mutex_lock(&turn);
    told = first;
    if (told && !(first = told->next)) {
        last = &first;
        if (read(channel.fd, &count, sizeof count) < 0)
            abort();
    }
    pthread_mutex_unlock(&turn);
    if (!told) {
        errno = EAGAIN;
        return -1;
    }
    *event = &told->event;
    return 0;
}
int rdma_ack_cm_event(struct rdma_cm_event *event) { return free(event), 0; }
