/* Calls while the heap is exhausted. Each one succeeds, or returns INSUFFICIENT_RESOURCES and
 * changes nothing. The process goes on, and the call succeeds once there is memory again. The
 * argument names the call to sweep; without one, all calls are swept in turn. */
#include "exhausted.h"

static const struct call CALLS[] = {
    {"dat_ia_openv", nothing, open_adapter, after_open},
    {"dat_ia_close", before_close, close_opened, forget_opened},
    {"dat_ia_close, abruptly", before_abrupt_close, close_abruptly, forget_opened},
    {"dat_ia_query", nothing, query_ia, nothing},
    {"dat_strerror", nothing, strerror_of, nothing},
    {"dat_registry_list_providers", nothing, list_providers, nothing},
    {"dat_registry_add_provider", nothing, add_provider, after_add},
    {"dat_registry_remove_provider", before_remove, remove_provider, nothing},
    {"fork", nothing, fork_child, nothing},
    {"dat_pz_create", nothing, make_zone, free_zone},
    {"dat_pz_query", before_zone, query_zone, free_zone},
    {"dat_pz_free", before_zone, destroy_zone, forget},
    {"dat_lmr_create", nothing, make_region, free_region},
    {"dat_lmr_query", before_region, query_region, free_region},
    {"dat_lmr_free", before_region, destroy_region, forget},
    {"dat_lmr_sync_rdma_read", nothing, sync_read, nothing},
    {"dat_lmr_sync_rdma_write", nothing, sync_write, nothing},
    {"dat_rmr_create", nothing, make_window, free_window},
    {"dat_rmr_query", before_window, query_window, free_window},
    {"dat_rmr_free", before_window, destroy_window, forget},
    {"dat_rmr_bind", before_window, bind_window, after_bind},
    {"dat_evd_create", nothing, make_evd, free_evd},
    {"dat_evd_query", before_software, query_evd, free_evd},
    {"dat_evd_resize", before_software, resize_evd, free_evd},
    {"dat_evd_modify_cno", before_software, modify_cno, free_evd},
    {"dat_evd_enable", before_software, enable_evd, free_evd},
    {"dat_evd_disable", before_software, disable_evd, free_evd},
    {"dat_evd_set_unwaitable", before_software, set_unwaitable, free_evd},
    {"dat_evd_clear_unwaitable", before_software, clear_unwaitable, free_evd},
    {"dat_evd_post_se", before_software, post_event, after_post_event},
    {"dat_evd_post_se, an agent", before_agent, post_event, after_agent},
    {"dat_evd_dequeue", before_event, dequeue_event, free_notified},
    {"dat_evd_dequeue, nothing", nothing, dequeue_nothing, nothing},
    {"dat_evd_wait", before_event, wait_for_event, free_notified},
    {"dat_evd_wait, nothing", nothing, wait_nothing, nothing},
    {"dat_evd_wait, the first", before_first_wait, wait_for_event, after_first_wait},
    {"dat_cno_wait, the first", before_first_cno_wait, wait_cno, after_first_wait},
    {"dat_evd_dequeue, a request", before_arrival, dequeue_request, reject_request},
    {"dat_evd_free", before_software, destroy_evd, forget},
    {"dat_cno_create", nothing, make_cno, free_cno},
    {"dat_cno_create, an agent", nothing, make_called, free_cno},
    {"dat_cno_modify_agent", before_cno, give_agent, free_cno},
    {"dat_cno_modify_agent, none", before_called, take_agent, free_cno},
    {"dat_cno_query", before_called, query_cno, free_cno},
    {"dat_cno_wait", before_cno, wait_cno, free_cno},
    {"dat_cno_free", before_called, destroy_cno, forget},
    {"dat_set_consumer_context", before_zone, set_context, free_zone},
    {"dat_get_consumer_context", before_zone, get_context, free_zone},
    {"dat_get_handle_type", before_zone, type_of, free_zone},
    {"dat_psp_create", nothing, make_psp, free_psp},
    {"dat_psp_create_any", nothing, make_any, free_psp},
    {"dat_psp_query", before_psp, query_psp, free_psp},
    {"dat_psp_free", before_psp, destroy_psp, forget},
    {"dat_rsp_create", make_asker, make_rsp, free_rsp},
    {"dat_rsp_query", before_rsp, query_rsp, free_rsp},
    {"dat_rsp_free", before_rsp, destroy_rsp, after_rsp_free},
    {"dat_ep_create", nothing, make_endpoint, free_endpoint},
    {"dat_ep_query", nothing, query_endpoint, nothing},
    {"dat_ep_get_status", nothing, status_of_endpoint, nothing},
    {"dat_ep_modify", before_endpoint, modify_endpoint, free_endpoint},
    {"dat_ep_free", before_endpoint, destroy_endpoint, forget},
    {"dat_ep_free, connected", before_disconnect, destroy_asker, after_connected_free},
    {"dat_ep_connect", make_asker, connect_asker, reject_arrival},
    {"dat_ep_dup_connect", make_asker, connect_again, reject_arrival},
    {"dat_ep_disconnect", before_disconnect, disconnect, after_disconnect},
    {"dat_ep_disconnect, gracefully", before_disconnect, disconnect_gracefully, after_disconnect},
    {"dat_ep_reset", before_reset, reset, after_reset},
    {"dat_cr_query", before_query, query_request, after_query},
    {"dat_cr_accept", before_accept, accept_request, after_accept},
    {"dat_cr_reject", before_request, reject, after_reject},
    {"dat_cr_handoff", before_request, hand_off, after_hand_off},
    {"dat_ep_post_recv", nothing, post_recv, take_receive},
    {"dat_ep_post_send", before_send, post_send, give_receive},
    {"dat_ep_post_rdma_write", nothing, post_write, take_request},
    {"dat_ep_post_rdma_read", nothing, post_read, take_request},
    {"dat_srq_create", nothing, make_srq, free_srq},
    {"dat_srq_query", before_srq, query_srq, free_srq},
    {"dat_srq_resize", before_srq, resize_srq, free_srq},
    {"dat_srq_set_lw", before_srq, set_low_watermark, free_srq},
    {"dat_srq_post_recv", before_srq, post_shared, free_srq},
    {"dat_srq_free", before_srq, destroy_srq, forget},
    {"dat_ep_create_with_srq", before_srq, make_sharing, after_sharing},
    {"dat_ep_set_watermark", before_watermark, set_watermark, after_sharing},
    {"dat_ep_recv_query", nothing, query_receives, nothing},
};

/* Calls that can be the first one of a process. */
static const struct call FIRST[] = {
    {"dat_ia_openv", nothing, open_adapter, after_open},
    {"dat_strerror", nothing, strerror_of, nothing},
    {"dat_registry_list_providers", nothing, list_providers, nothing},
    {"dat_registry_add_provider", nothing, add_provider, after_add},
};

/* Returns true if a call succeeded while no allocation does; only lack of memory may refuse it. */
static int made_it(const char *name, DAT_RETURN code)
{
    if (code != DAT_SUCCESS && DAT_GET_TYPE(code) != DAT_INSUFFICIENT_RESOURCES) {
        atomic_store(&is_scarce, 0);
        fprintf(stderr, "%s without memory: %#x\n", name, code);
        exit(1);
    }
    return code == DAT_SUCCESS;
}

#define KINDS 12
#define ROUNDS 3000

static void close_one(void) { OK(close_opened()); }

/* Makes objects again and again with an exhausted heap; once there is memory, all calls succeed. */
static void go_on_without_memory(void)
{
    static const struct {
        DAT_RETURN (*make)(void);
        void (*undo)(void);
    } KIND[KINDS] = {{open_adapter, close_one}, {make_zone, free_zone}, {make_evd, free_evd}, {make_cno, free_cno},
                     {make_called, free_cno}, {make_endpoint, free_endpoint}, {make_srq, free_srq}, {make_region, free_region},
                     {make_window, free_window}, {make_any, free_psp}, {make_psp, free_psp}, {add_provider, after_add}};
    static DAT_HANDLE all[KINDS][ROUNDS];
    static unsigned number[KINDS];
    unsigned kind, round, posted = 0, received = 0, refusals = 0;
    DAT_CNO_HANDLE modified;
    OK(make_cno());
    modified = made;
    OK(post_recv());
    atomic_store(&left, 0);
    atomic_store(&is_scarce, 1);
    for (round = 0; round < ROUNDS; round++) {
        for (kind = 0; kind < KINDS; kind++) {
            /* Only one service point can have the qualifier, and only one provider the name. */
            if ((KIND[kind].make == make_psp || KIND[kind].make == add_provider) && number[kind] != 0) {
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
        query_endpoint();
        query_ia();
        strerror_of();
        made = modified;
        made_it("an agent", give_agent());
    }
    /* Objects can be freed without memory. */
    for (kind = 0; kind < KINDS; kind++) {
        while (number[kind] != 0) {
            made = opened = all[kind][--number[kind]];
            KIND[kind].undo();
        }
    }
    made = modified;
    free_cno();
    opened = DAT_HANDLE_NULL;
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
    opened = made = DAT_HANDLE_NULL;
}

/* Connects, hands off, accepts, rejects and disconnects without memory, as far as that succeeds. */
static void connect_without_memory(void)
{
    unsigned round, asked = 0;
    make_asker();
    OK(dat_ep_create(there.ia, there.zone, there.receives, there.requests, there.connections, NULL, &answerer));
    for (round = 0; round < 200; round++) {
        /* In every third round some allocations succeed. */
        atomic_store(&left, round % 3 == 0 ? (long)round : 0);
        atomic_store(&is_scarce, 1);
        if (made_it("dat_ep_connect", connect_asker())) {
            asked++;
            take_arrival();
            unqueried = made;
            (void)made_it("dat_cr_query", query_request());
            if (made_it("dat_cr_handoff", hand_off())) {
                take_arrival();
            }
            if (made_it("dat_cr_accept", accept_request())) {
                established();
                OK(disconnect());
                disconnected();
                OK(dat_ep_reset(answerer));
            } else {
                OK(reject());
                next_event(here.connections, DAT_CONNECTION_EVENT_PEER_REJECTED);
            }
            OK(reset());
        }
        atomic_store(&is_scarce, 0);
    }
    CHECK(asked != 0);
    made = DAT_HANDLE_NULL;
    free_asker();
    free_answerer();
}

int main(int count, char **arguments)
{
    DAT_IA_ATTR attributes;
    const char *name = count > 1 ? arguments[1] : NULL;
    sweep(FIRST, sizeof FIRST / sizeof *FIRST, name, try_first);
    here = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
    there = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
    OK(dat_ia_query(there.ia, NULL, DAT_IA_FIELD_ALL, &attributes, 0, NULL));
    address = attributes.ia_address_ptr;
    OK(dat_cno_create(here.ia, no_agent, &cno));
    OK(dat_psp_create(there.ia, 4711, there.arrivals, DAT_PSP_CONSUMER_FLAG, &listener));
    OK(dat_psp_create(there.ia, 4712, there.arrivals, DAT_PSP_CONSUMER_FLAG, &other_listener));
    OK(dat_ep_create(here.ia, here.zone, here.receives, here.requests, here.connections, NULL, &here.endpoint));
    OK(dat_ep_create(there.ia, there.zone, there.receives, there.requests, there.connections, NULL, &there.endpoint));
    OK(dat_ep_connect(here.endpoint, address, 4711, PATIENCE, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    take_arrival();
    OK(dat_cr_accept(made, there.endpoint, 0, NULL));
    established();

    sweep(CALLS, sizeof CALLS / sizeof *CALLS, name, try);
    if (count == 1) {
        connect_without_memory();
        go_on_without_memory();
    }
    OK(dat_ep_disconnect(here.endpoint, DAT_CLOSE_ABRUPT_FLAG));
    disconnected();
    OK(dat_ep_free(here.endpoint));
    OK(dat_ep_free(there.endpoint));
    OK(dat_psp_free(listener));
    OK(dat_psp_free(other_listener));
    OK(dat_cno_free(cno));
    free_side(&here);
    free_side(&there);
    return 0;
}
