// A libibverbs with one loopback device, preloaded into QEMU.
//
// It lets QEMU's paravirtual adapter run on a machine without RDMA. It has reliable connected queue
// pairs, sends and receives, and only the calls that QEMU makes. A message longer than its buffer
// fails both sides; a failed queue pair flushes. Completions arrive with a delay, as over a
// network: an immediate poll finds none, and the program needs a notification.
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

enum { WORK = 1024, PAIRS = 64, SEGMENTS = 32 };

struct completions {
    struct ibv_cq cq;
    struct ibv_wc ring[WORK];
    // Positions after the polled entries, the arrived ones, which a poll finds, and the sent ones.
    unsigned first, arrived, next;
    int armed;
    struct completions *other;
};

struct work {
    uint64_t id;
    int count;
    struct ibv_sge segments[SEGMENTS];
};

struct queue {
    struct work ring[WORK];
    unsigned first, next;
};

struct pair {
    struct ibv_qp qp;
    uint32_t peer;
    struct queue sends, receives;
};

// Delay of completions in microseconds.
enum { LATENCY = 200 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t departed = PTHREAD_COND_INITIALIZER;
static int under_way;
static struct completions *queues;
static struct ibv_device device;
static struct ibv_context context;
static struct ibv_comp_channel channel;
static int events;
static struct pair *pairs[PAIRS];
static uint32_t next_key = 1;

static void notify(struct completions *queue) {
    queue->armed = 0;
    if (write(events, &queue, sizeof queue) != sizeof queue)
        abort();
}

static void complete(struct ibv_cq *cq, struct pair *pair, uint64_t id, enum ibv_wc_opcode opcode,
                     enum ibv_wc_status status, uint32_t length) {
    struct completions *queue = (struct completions *)cq;
    struct ibv_wc *entry = &queue->ring[queue->next++ % WORK];
    memset(entry, 0, sizeof *entry);
    entry->wr_id = id;
    entry->status = status;
    entry->opcode = opcode;
    entry->byte_len = length;
    entry->qp_num = pair->qp.qp_num;
    entry->src_qp = pair->peer;
    under_way = 1;
    pthread_cond_signal(&departed);
}

// Thread that makes completions arrive; never ends.
static void *network(void *nothing) {
    for (;;) {
        pthread_mutex_lock(&lock);
        while (!under_way)
            pthread_cond_wait(&departed, &lock);
        pthread_mutex_unlock(&lock);
        usleep(LATENCY);
        pthread_mutex_lock(&lock);
        under_way = 0;
        for (struct completions *queue = queues; queue; queue = queue->other) {
            int any = queue->arrived != queue->next;
            queue->arrived = queue->next;
            if (any && queue->armed)
                notify(queue);
        }
        pthread_mutex_unlock(&lock);
    }
    return nothing;
}

static uint64_t length_of(const struct work *work) {
    uint64_t length = 0;
    for (int i = 0; i < work->count; i++)
        length += work->segments[i].length;
    return length;
}

static struct work *take(struct queue *queue) {
    return queue->first == queue->next ? NULL : &queue->ring[queue->first++ % WORK];
}

static void flush(struct pair *pair) {
    struct work *work;
    pair->qp.state = IBV_QPS_ERR;
    while ((work = take(&pair->sends)))
        complete(pair->qp.send_cq, pair, work->id, IBV_WC_SEND, IBV_WC_WR_FLUSH_ERR, 0);
    while ((work = take(&pair->receives)))
        complete(pair->qp.recv_cq, pair, work->id, IBV_WC_RECV, IBV_WC_WR_FLUSH_ERR, 0);
}

static void copy(const struct work *from, const struct work *to) {
    int place = 0;
    uint32_t done = 0;
    for (int i = 0; i < from->count; i++) {
        const struct ibv_sge *source = &from->segments[i];
        for (uint32_t offset = 0; offset < source->length;) {
            const struct ibv_sge *target = &to->segments[place];
            uint32_t count = target->length - done;
            if (count > source->length - offset)
                count = source->length - offset;
            memcpy((char *)target->addr + done, (char *)source->addr + offset, count);
            offset += count;
            done += count;
            if (done == target->length) {
                place++;
                done = 0;
            }
        }
    }
}

// Delivers the sends of a pair to its peer as long as there are receives.
static void carry(struct pair *from) {
    struct pair *to = NULL;
    for (int i = 0; i < PAIRS; i++)
        if (pairs[i] && pairs[i]->qp.qp_num == from->peer)
            to = pairs[i];
    if (from->qp.state == IBV_QPS_ERR) {
        flush(from);
        return;
    }
    while (from->qp.state == IBV_QPS_RTS && to && from->sends.first != from->sends.next) {
        if (to->receives.first == to->receives.next)
            return;
        struct work *send = take(&from->sends), *receive = take(&to->receives);
        uint64_t length = length_of(send);
        if (length > length_of(receive)) {
            complete(to->qp.recv_cq, to, receive->id, IBV_WC_RECV, IBV_WC_LOC_LEN_ERR, 0);
            complete(from->qp.send_cq, from, send->id, IBV_WC_SEND, IBV_WC_REM_INV_REQ_ERR, 0);
            flush(to);
            flush(from);
            return;
        }
        copy(send, receive);
        complete(to->qp.recv_cq, to, receive->id, IBV_WC_RECV, IBV_WC_SUCCESS, (uint32_t)length);
        complete(from->qp.send_cq, from, send->id, IBV_WC_SEND, IBV_WC_SUCCESS, 0);
    }
}

static int put(struct queue *queue, uint64_t id, int count, const struct ibv_sge *segments) {
    if (count > SEGMENTS || queue->next - queue->first == WORK)
        return ENOMEM;
    struct work *work = &queue->ring[queue->next++ % WORK];
    work->id = id;
    work->count = count;
    memcpy(work->segments, segments, (size_t)count * sizeof *segments);
    return 0;
}

static void carry_all(void) {
    for (int i = 0; i < PAIRS; i++)
        if (pairs[i])
            carry(pairs[i]);
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *list, struct ibv_send_wr **bad) {
    int failed = 0;
    pthread_mutex_lock(&lock);
    for (; list && !failed; list = list->next)
        if ((failed = put(&((struct pair *)qp)->sends, list->wr_id, list->num_sge, list->sg_list)))
            *bad = list;
    carry_all();
    pthread_mutex_unlock(&lock);
    return failed;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *list, struct ibv_recv_wr **bad) {
    int failed = 0;
    pthread_mutex_lock(&lock);
    for (; list && !failed; list = list->next)
        if ((failed = put(&((struct pair *)qp)->receives, list->wr_id, list->num_sge, list->sg_list)))
            *bad = list;
    carry_all();
    pthread_mutex_unlock(&lock);
    return failed;
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *into) {
    struct completions *queue = (struct completions *)cq;
    int count = 0;
    pthread_mutex_lock(&lock);
    while (count < most && queue->first != queue->arrived)
        into[count++] = queue->ring[queue->first++ % WORK];
    pthread_mutex_unlock(&lock);
    return count;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only) {
    struct completions *queue = (struct completions *)cq;
    (void)solicited_only;
    pthread_mutex_lock(&lock);
    queue->armed = 1;
    if (queue->first != queue->arrived)
        notify(queue);
    pthread_mutex_unlock(&lock);
    return 0;
}

struct ibv_device **ibv_get_device_list(int *count) {
    struct ibv_device **list = calloc(2, sizeof *list);
    strcpy(device.name, "loop0");
    strcpy(device.dev_name, "uverbs0");
    if (list)
        list[0] = &device;
    if (count)
        *count = list != NULL;
    return list;
}

void ibv_free_device_list(struct ibv_device **list) { free(list); }

const char *ibv_get_device_name(struct ibv_device *which) { return which->name; }

struct ibv_context *ibv_open_device(struct ibv_device *which) {
    context.device = which;
    context.ops.poll_cq = poll_cq;
    context.ops.req_notify_cq = req_notify_cq;
    context.ops.post_send = post_send;
    context.ops.post_recv = post_recv;
    return &context;
}

int ibv_close_device(struct ibv_context *which) {
    (void)which;
    return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *of) {
    int ends[2];
    if (pipe(ends))
        return NULL;
    pthread_t thread;
    if (pthread_create(&thread, NULL, network, NULL))
        return NULL;
    pthread_detach(thread);
    channel.context = of;
    channel.fd = ends[0];
    events = ends[1];
    return &channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *which) {
    (void)which;
    return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *from, struct ibv_cq **cq, void **cq_context) {
    *cq_context = NULL;
    return read(from->fd, cq, sizeof *cq) == sizeof *cq && *cq ? 0 : -1;
}

// Replaces the sleep of QEMU by an event without a queue, which wakes its thread.
//
// When its device ends, QEMU sleeps 2 s at a time until its thread, which waits for events 5 s at a
// time, sees the end.
unsigned sleep(unsigned seconds) {
    const struct completions *nothing = NULL;
    (void)seconds;
    if (events && write(events, &nothing, sizeof nothing) != sizeof nothing)
        abort();
    usleep(10000);
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count) {
    (void)cq;
    (void)count;
}

int ibv_query_device(struct ibv_context *of, struct ibv_device_attr *into) {
    (void)of;
    memset(into, 0, sizeof *into);
    into->max_mr_size = UINT64_MAX;
    into->max_qp = into->max_cq = into->max_mr = into->max_pd = into->max_ah = into->max_srq = 1 << 16;
    into->max_sge = SEGMENTS;
    into->max_qp_rd_atom = into->max_qp_init_rd_atom = 16;
    return 0;
}

int ibv_query_port(struct ibv_context *of, uint8_t port, struct _compat_ibv_port_attr *compatible) {
    struct ibv_port_attr *into = (struct ibv_port_attr *)compatible;
    (void)of;
    (void)port;
    into->state = IBV_PORT_ACTIVE;
    into->max_mtu = IBV_MTU_4096;
    into->active_mtu = IBV_MTU_1024;
    into->gid_tbl_len = 16;
    into->pkey_tbl_len = 1;
    return 0;
}

int ibv_query_gid(struct ibv_context *of, uint8_t port, int index, union ibv_gid *into) {
    static const uint8_t internet[16] = {[10] = 0xff, 0xff, 10, 9, 0, 1};
    (void)of;
    (void)port;
    if (index > 1)
        return -1;
    memset(into, 0, sizeof *into);
    if (index) {
        memcpy(into, internet, sizeof internet);
    } else {
        into->raw[0] = 0xfe;
        into->raw[1] = 0x80;
    }
    return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *of) {
    struct ibv_pd *domain = calloc(1, sizeof *domain);
    if (domain)
        domain->context = of;
    return domain;
}

int ibv_dealloc_pd(struct ibv_pd *domain) {
    free(domain);
    return 0;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *domain, void *address, size_t length, int access) {
    struct ibv_mr *region = calloc(1, sizeof *region);
    (void)access;
    if (region) {
        region->pd = domain;
        region->context = domain->context;
        region->addr = address;
        region->length = length;
        region->lkey = region->rkey = next_key++;
    }
    return region;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *domain, void *address, size_t length, uint64_t seen_at,
                                unsigned access) {
    (void)seen_at;
    return ibv_reg_mr(domain, address, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *region) {
    free(region);
    return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *of, int entries, void *cq_context, struct ibv_comp_channel *on,
                             int vector) {
    struct completions *queue = calloc(1, sizeof *queue);
    (void)entries;
    (void)vector;
    if (!queue)
        return NULL;
    queue->cq.context = of;
    queue->cq.channel = on;
    queue->cq.cq_context = cq_context;
    pthread_mutex_lock(&lock);
    queue->other = queues;
    queues = queue;
    pthread_mutex_unlock(&lock);
    return &queue->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq) {
    // Not freed: an event of it may still be in the pipe, and the network thread uses it.
    (void)cq;
    return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *domain, struct ibv_qp_init_attr *asked) {
    static uint32_t next_number = 17;
    for (int i = 0; i < PAIRS; i++) {
        if (pairs[i])
            continue;
        struct pair *pair = calloc(1, sizeof *pair);
        if (!pair)
            return NULL;
        pair->qp.context = domain->context;
        pair->qp.pd = domain;
        pair->qp.send_cq = asked->send_cq;
        pair->qp.recv_cq = asked->recv_cq;
        pair->qp.qp_type = asked->qp_type;
        pair->qp.qp_num = next_number++;
        pairs[i] = pair;
        return &pair->qp;
    }
    errno = ENOMEM;
    return NULL;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *change, int mask) {
    pthread_mutex_lock(&lock);
    if (mask & IBV_QP_DEST_QPN)
        ((struct pair *)qp)->peer = change->dest_qp_num;
    if (mask & IBV_QP_STATE)
        qp->state = change->qp_state;
    carry_all();
    pthread_mutex_unlock(&lock);
    return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < PAIRS; i++)
        if (pairs[i] == (struct pair *)qp)
            pairs[i] = NULL;
    pthread_mutex_unlock(&lock);
    free(qp);
    return 0;
}
