/* Calls while the heap is exhausted: each one succeeds or says INSUFFICIENT_RESOURCES, the process goes on, and when there is memory
 * again the call succeeds. All allocations of the process fail from the nth of a call on, for n = 0, 1, 2 ... until a call makes no
 * more than n. The argument names the call to sweep; without one, all are, one after the other. */
#include "check.h"
#include "scarce.h"

static struct side here, there;
static DAT_HANDLE made;
static DAT_IA_HANDLE opened;
static DAT_EVD_HANDLE async_of_opened;
static DAT_IA_ADDRESS_PTR address;
static DAT_PSP_HANDLE listener;

#define UNDO(name, call) \
    static void name(void) { OK(call); }
UNDO(free_zone, dat_pz_free(made))
UNDO(free_evd, dat_evd_free(made))
UNDO(free_cno, dat_cno_free(made))
UNDO(free_ep, dat_ep_free(made))
UNDO(free_srq, dat_srq_free(made))
UNDO(free_psp, dat_psp_free(made))
UNDO(free_lmr, dat_lmr_free(made))
UNDO(free_rmr, dat_rmr_free(made))
UNDO(close_opened, dat_ia_close(opened, DAT_CLOSE_GRACEFUL_FLAG))
static void nothing(void) {}

static DAT_RETURN open_adapter(void)
{
    async_of_opened = DAT_HANDLE_NULL;
    return dat_ia_open((DAT_NAME_PTR) "mock0", 8, &async_of_opened, &opened);
}
static DAT_RETURN make_zone(void) { return dat_pz_create(here.ia, &made); }
static DAT_RETURN make_evd(void)
{
    return dat_evd_create(here.ia, 200, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG, &made);
}
static DAT_RETURN make_cno(void) { return dat_cno_create(here.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &made); }
static DAT_RETURN make_ep(void)
{
    return dat_ep_create(here.ia, here.zone, here.receives, here.requests, here.connections, NULL, &made);
}
static DAT_RETURN make_srq(void)
{
    DAT_SRQ_ATTR attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.max_recv_dtos = 100;
    attributes.max_recv_iov = 2;
    attributes.low_watermark = DAT_SRQ_LW_DEFAULT;
    return dat_srq_create(here.ia, here.zone, &attributes, &made);
}
static DAT_RETURN make_psp(void) { return dat_psp_create(here.ia, 4242, here.arrivals, DAT_PSP_CONSUMER_FLAG, &made); }
static DAT_RETURN make_lmr(void)
{
    DAT_REGION_DESCRIPTION description;
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT remote;
    DAT_VLEN size;
    DAT_VADDR start;
    description.for_va = here.memory;
    return dat_lmr_create(here.ia, DAT_MEM_TYPE_VIRTUAL, description, 4096, here.zone, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &made,
                          &local, &remote, &size, &start);
}
static DAT_RETURN make_rmr(void) { return dat_rmr_create(here.zone, &made); }
static DAT_RETURN query_ia(void)
{
    DAT_IA_ATTR attributes;
    DAT_PROVIDER_ATTR provider;
    return dat_ia_query(here.ia, NULL, DAT_IA_FIELD_ALL, &attributes, DAT_PROVIDER_FIELD_ALL, &provider);
}
static DAT_RETURN query_ep(void)
{
    DAT_EP_PARAM param;
    return dat_ep_query(here.endpoint, DAT_EP_FIELD_ALL, &param);
}
static DAT_RETURN query_evd(void)
{
    DAT_EVD_PARAM param;
    return dat_evd_query(here.requests, DAT_EVD_FIELD_ALL, &param);
}
static DAT_RETURN query_lmr(void)
{
    DAT_LMR_PARAM param;
    return dat_lmr_query(here.region, DAT_LMR_FIELD_ALL, &param);
}
static DAT_RETURN resize_evd(void)
{
    static DAT_COUNT length = 16;
    return dat_evd_resize(here.requests, length += 16);
}
static DAT_RETURN strerror_of(void)
{
    const char *type, *subtype;
    return dat_strerror((DAT_RETURN)DAT_CLASS_ERROR | DAT_INVALID_STATE, &type, &subtype);
}
static DAT_RETURN list_providers(void)
{
    DAT_PROVIDER_INFO infos[4], *list[4] = {infos, infos + 1, infos + 2, infos + 3};
    DAT_COUNT entries;
    return dat_registry_list_providers(4, &entries, list);
}
static DAT_RETURN wait_nothing(void)
{
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_RETURN code = dat_evd_wait(here.arrivals, 1000, 1, &event, &more);
    return DAT_GET_TYPE(code) == DAT_TIMEOUT_EXPIRED ? DAT_SUCCESS : code;
}
static DAT_RETURN wait_cno(void)
{
    DAT_EVD_HANDLE evd;
    DAT_RETURN code = dat_cno_wait(made, 1000, &evd);
    return DAT_GET_TYPE(code) == DAT_QUEUE_EMPTY || DAT_GET_TYPE(code) == DAT_TIMEOUT_EXPIRED ? DAT_SUCCESS : code;
}
static DAT_RETURN dequeue_nothing(void)
{
    DAT_EVENT event;
    DAT_RETURN code = dat_evd_dequeue(here.arrivals, &event);
    return DAT_GET_TYPE(code) == DAT_QUEUE_EMPTY ? DAT_SUCCESS : code;
}
static DAT_RETURN post_send(void)
{
    DAT_LMR_TRIPLET from = piece(&here, 0, 64);
    return dat_ep_post_send(here.endpoint, 1, &from, cookie(1), DAT_COMPLETION_DEFAULT_FLAG);
}
static DAT_RETURN post_recv(void)
{
    DAT_LMR_TRIPLET to = piece(&there, 0, 64);
    return dat_ep_post_recv(there.endpoint, 1, &to, cookie(2), DAT_COMPLETION_DEFAULT_FLAG);
}
static DAT_RETURN post_write(void)
{
    DAT_LMR_TRIPLET from = piece(&here, 0, 64);
    DAT_RMR_TRIPLET to = target(&there, 4096, 64);
    return dat_ep_post_rdma_write(here.endpoint, 1, &from, cookie(3), &to, DAT_COMPLETION_DEFAULT_FLAG);
}
static DAT_RETURN post_read(void)
{
    DAT_LMR_TRIPLET to = piece(&here, 0, 64);
    DAT_RMR_TRIPLET from = target(&there, 4096, 64);
    return dat_ep_post_rdma_read(here.endpoint, 1, &to, cookie(4), &from, DAT_COMPLETION_DEFAULT_FLAG);
}
static void take_request(void)
{
    next_event(here.requests, DAT_DTO_COMPLETION_EVENT);
}
static void take_receive(void)
{
    OK(post_send());
    next_event(there.receives, DAT_DTO_COMPLETION_EVENT);
    take_request();
}
static void give_receive(void)
{
    take_request();
    next_event(there.receives, DAT_DTO_COMPLETION_EVENT);
}
static void before_send(void) { OK(post_recv()); }
static void before_cno(void) { OK(make_cno()); }
static void before_ep(void) { OK(make_ep()); }
static DAT_RETURN connect_ep(void)
{
    return dat_ep_connect(made, address, 4711, 5 * SECOND, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG);
}
static void end_connect(void)
{
    DAT_EVENT event = next_event(there.arrivals, DAT_CONNECTION_REQUEST_EVENT);
    OK(dat_cr_reject(event.event_data.cr_arrival_event_data.cr_handle, 0, NULL));
    next_event(here.connections, DAT_CONNECTION_EVENT_PEER_REJECTED);
    free_ep();
}

static const struct call {
    const char *name;
    void (*prepare)(void);
    DAT_RETURN (*call)(void);
    /* What undoes a success, and what undoes the preparation alone. */
    void (*undo)(void), (*abandon)(void);
} CALLS[] = {
    {"dat_ia_open", nothing, open_adapter, close_opened, nothing},
    {"dat_pz_create", nothing, make_zone, free_zone, nothing},
    {"dat_evd_create", nothing, make_evd, free_evd, nothing},
    {"dat_cno_create", nothing, make_cno, free_cno, nothing},
    {"dat_ep_create", nothing, make_ep, free_ep, nothing},
    {"dat_srq_create", nothing, make_srq, free_srq, nothing},
    {"dat_psp_create", nothing, make_psp, free_psp, nothing},
    {"dat_lmr_create", nothing, make_lmr, free_lmr, nothing},
    {"dat_rmr_create", nothing, make_rmr, free_rmr, nothing},
    {"dat_ia_query", nothing, query_ia, nothing, nothing},
    {"dat_ep_query", nothing, query_ep, nothing, nothing},
    {"dat_evd_query", nothing, query_evd, nothing, nothing},
    {"dat_lmr_query", nothing, query_lmr, nothing, nothing},
    {"dat_evd_resize", nothing, resize_evd, nothing, nothing},
    {"dat_strerror", nothing, strerror_of, nothing, nothing},
    {"dat_registry_list_providers", nothing, list_providers, nothing, nothing},
    {"dat_evd_wait", nothing, wait_nothing, nothing, nothing},
    {"dat_cno_wait", before_cno, wait_cno, free_cno, free_cno},
    {"dat_evd_dequeue", nothing, dequeue_nothing, nothing, nothing},
    {"dat_ep_connect", before_ep, connect_ep, end_connect, free_ep},
    {"dat_ep_post_recv", nothing, post_recv, take_receive, nothing},
    {"dat_ep_post_send", before_send, post_send, give_receive, NULL},
    {"dat_ep_post_rdma_write", nothing, post_write, take_request, nothing},
    {"dat_ep_post_rdma_read", nothing, post_read, take_request, nothing},
};

/* Whether the call made more allocations than there were. */
static int try(const struct call *it, long allocations)
{
    DAT_RETURN code;
    int was_short;
    it->prepare();
    atomic_store(&failed, 0);
    atomic_store(&left, allocations);
    atomic_store(&is_scarce, 1);
    code = it->call();
    atomic_store(&is_scarce, 0);
    was_short = atomic_load(&failed);
    if (code != DAT_SUCCESS && (!was_short || DAT_GET_TYPE(code) != DAT_INSUFFICIENT_RESOURCES)) {
        fprintf(stderr, "%s with %ld allocations: %#x\n", it->name, allocations, code);
        exit(1);
    }
    if (code == DAT_SUCCESS) {
        it->undo();
    } else {
        if (it->abandon == NULL) {
            /* The receive stays: a send takes it. */
            OK(it->call());
            it->undo();
        } else {
            it->abandon();
        }
        /* There is memory again: the same call succeeds. */
        it->prepare();
        OK(it->call());
        it->undo();
    }
    return was_short;
}

/* Whether a call made something while nothing can be allocated; it may be refused for that reason alone. */
static int made_it(const char *name, DAT_RETURN code)
{
    if (code != DAT_SUCCESS && DAT_GET_TYPE(code) != DAT_INSUFFICIENT_RESOURCES) {
        atomic_store(&is_scarce, 0);
        fprintf(stderr, "%s without memory: %#x\n", name, code);
        exit(1);
    }
    return code == DAT_SUCCESS;
}

#define KINDS 9
#define ROUNDS 3000

/* The heap is exhausted for long, and the program makes whatever it can, again and again; then there is memory again, and all goes. */
static void go_on_without_memory(void)
{
    static const struct {
        DAT_RETURN (*make)(void);
        void (*undo)(void);
    } KIND[KINDS] = {{open_adapter, close_opened}, {make_zone, free_zone}, {make_evd, free_evd}, {make_cno, free_cno}, {make_ep, free_ep},
                     {make_srq, free_srq}, {make_lmr, free_lmr}, {make_rmr, free_rmr}, {make_psp, free_psp}};
    static DAT_HANDLE all[KINDS][ROUNDS];
    static unsigned number[KINDS];
    unsigned kind, round, posted = 0, received = 0, refusals = 0;
    OK(post_recv());
    atomic_store(&left, 0);
    atomic_store(&is_scarce, 1);
    for (round = 0; round < ROUNDS; round++) {
        for (kind = 0; kind < KINDS; kind++) {
            /* One service point has the qualifier. */
            if (KIND[kind].make == make_psp && number[kind] != 0) {
                continue;
            }
            if (made_it("a call", KIND[kind].make())) {
                all[kind][number[kind]++] = kind == 0 ? opened : made;
            } else {
                refusals++;
            }
        }
        if (posted < 8) {
            posted += made_it("a write", post_write());
        }
        if (received < 4) {
            received += made_it("a receive", post_recv());
        }
        wait_nothing();
        dequeue_nothing();
        query_ep();
        query_ia();
        strerror_of();
    }
    /* What exists can be freed without memory. */
    for (kind = 0; kind < KINDS; kind++) {
        while (number[kind] != 0) {
            made = opened = all[kind][--number[kind]];
            KIND[kind].undo();
        }
    }
    atomic_store(&is_scarce, 0);
    CHECK(refusals != 0);
    while (posted-- != 0) {
        take_request();
    }
    for (received++; received != 0; received--) {
        take_receive();
    }
    for (kind = 0; kind < KINDS; kind++) {
        OK(KIND[kind].make());
        KIND[kind].undo();
    }
}

int main(int count, char **arguments)
{
    DAT_IA_ATTR attributes;
    DAT_EVENT event;
    size_t index, swept = 0;
    here = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
    there = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
    OK(dat_ia_query(there.ia, NULL, DAT_IA_FIELD_ALL, &attributes, 0, NULL));
    address = attributes.ia_address_ptr;
    OK(dat_psp_create(there.ia, 4711, there.arrivals, DAT_PSP_CONSUMER_FLAG, &listener));
    OK(dat_ep_create(here.ia, here.zone, here.receives, here.requests, here.connections, NULL, &here.endpoint));
    OK(dat_ep_create(there.ia, there.zone, there.receives, there.requests, there.connections, NULL, &there.endpoint));
    OK(dat_ep_connect(here.endpoint, address, 4711, 5 * SECOND, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    event = next_event(there.arrivals, DAT_CONNECTION_REQUEST_EVENT);
    OK(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, there.endpoint, 0, NULL));
    next_event(here.connections, DAT_CONNECTION_EVENT_ESTABLISHED);
    next_event(there.connections, DAT_CONNECTION_EVENT_ESTABLISHED);

    for (index = 0; index < sizeof CALLS / sizeof *CALLS; index++) {
        long allocations = 0;
        if (count > 1 && strcmp(arguments[1], CALLS[index].name) != 0) {
            continue;
        }
        while (try(&CALLS[index], allocations)) {
            allocations++;
            CHECK(allocations < 10000);
        }
        printf("%s: %ld\n", CALLS[index].name, allocations);
        swept++;
    }
    if (count == 1) {
        go_on_without_memory();
    }
    CHECK(swept == (count > 1 ? 1 : sizeof CALLS / sizeof *CALLS));
    OK(dat_ep_disconnect(here.endpoint, DAT_CLOSE_ABRUPT_FLAG));
    next_event(here.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    next_event(there.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    OK(dat_ep_free(here.endpoint));
    OK(dat_ep_free(there.endpoint));
    OK(dat_psp_free(listener));
    free_side(&here);
    free_side(&there);
    return 0;
}
