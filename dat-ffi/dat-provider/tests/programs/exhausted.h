/* Calls that `exhausted.c` makes without memory, their preparation and undoing, and the state
 * that they could change. */
#ifndef EXHAUSTED_H
#define EXHAUSTED_H

#include "check.h"

#ifdef EDITION_1_2
#include <dat/dat_registry.h>
#else
#include <dat2/dat_registry.h>
#endif

#define CODE DAT_RETURN
#define DONE(code) ((code) == DAT_SUCCESS)
#define REFUSED(code) (DAT_GET_TYPE(code) == DAT_INSUFFICIENT_RESOURCES)

#include "sweep.h"

static struct side here, there;
/* The object that a call makes or uses. */
static DAT_HANDLE made;
/* An endpoint here that connects, and one there that accepts. */
static DAT_EP_HANDLE asker, answerer;
static DAT_IA_HANDLE opened;
static DAT_IA_ADDRESS_PTR address;
static DAT_PSP_HANDLE listener, other_listener;
static DAT_CNO_HANDLE cno;
static DAT_OS_WAIT_PROXY_AGENT no_agent = DAT_OS_WAIT_PROXY_AGENT_NULL;
static atomic_int agent_calls;
/* Set if no thread has waited on the adapter of `made` yet, and none may. */
static int is_unwaited;

static void count_call(DAT_PVOID data, DAT_EVD_HANDLE evd)
{
    (void)data, (void)evd;
    agent_calls++;
}

static void look_at_endpoint(char *text, DAT_EP_HANDLE endpoint)
{
    DAT_EP_PARAM param;
    DAT_BOOLEAN receives, requests;
    DAT_EP_STATE state;
    OK(dat_ep_query(endpoint, DAT_EP_FIELD_ALL, &param));
    OK(dat_ep_get_status(endpoint, &state, &receives, &requests));
    tell(text, "endpoint %p: %d %d %d, %p %p %p %p %p, ", endpoint, state, receives, requests, param.pz_handle, param.recv_evd_handle,
         param.request_evd_handle, param.connect_evd_handle, param.srq_handle);
    tell(text, "%d %d %d %d %d %d, %d %d\n", param.ep_attr.max_recv_dtos, param.ep_attr.max_request_dtos, param.ep_attr.max_recv_iov,
         param.ep_attr.max_request_iov, param.ep_attr.max_rdma_read_in, param.ep_attr.max_rdma_read_out, param.ep_attr.srq_soft_hw,
         (int)param.remote_port_qual);
}

static void look_at_evd(char *text, DAT_EVD_HANDLE evd)
{
    DAT_EVD_PARAM param;
    DAT_EVENT event;
    DAT_COUNT count = -1;
    OK(dat_evd_query(evd, DAT_EVD_FIELD_ALL, &param));
    if (param.evd_state & DAT_EVD_STATE_WAITABLE && !(is_unwaited && evd == made)) {
        /* A wait for more events than are queued returns their number. */
        EXPECT(DAT_TIMEOUT_EXPIRED, dat_evd_wait(evd, 0, param.evd_qlen, &event, &count));
    }
    tell(text, "dispatcher %p: %d %#x %p %#x, %d\n", evd, param.evd_qlen, param.evd_state, param.cno_handle, param.evd_flags, count);
}

static void look_at_cno(char *text)
{
    DAT_CNO_PARAM param;
    OK(dat_cno_query(made, DAT_CNO_FIELD_ALL, &param));
#ifdef EDITION_1_2
    tell(text, "%d %p\n", param.agent.proxy_agent_func == count_call, param.agent.instance_data);
#else
    tell(text, "%d %d %p\n", param.proxy_type, param.proxy.agent.proxy_agent_func == count_call, param.proxy.agent.instance_data);
#endif
}

static void look_at_request(char *text)
{
    DAT_CR_PARAM param;
    OK(dat_cr_query(made, DAT_CR_FIELD_ALL, &param));
    tell(text, "request: %d %p\n", param.private_data_size, param.local_ep_handle);
}

static void look_at_region(char *text)
{
    DAT_LMR_PARAM param;
    OK(dat_lmr_query(made, DAT_LMR_FIELD_ALL, &param));
    tell(text, "region: %lld %p %#x %#x %#x\n", (long long)param.length, param.pz_handle, param.mem_priv, param.lmr_context,
         param.rmr_context);
}

static void look_at_window(char *text)
{
    DAT_RMR_PARAM param;
    OK(dat_rmr_query(made, DAT_RMR_FIELD_ALL, &param));
    tell(text, "window: %p %#x %#x %lld\n", param.pz_handle, param.mem_priv, param.rmr_context,
         (long long)param.lmr_triplet.segment_length);
}

static void look_at_queue(char *text)
{
    DAT_SRQ_PARAM param;
    OK(dat_srq_query(made, DAT_SRQ_FIELD_ALL, &param));
    tell(text, "queue: %d %d %d %d, %d %d\n", param.srq_state, param.max_recv_dtos, param.max_recv_iov, param.low_watermark,
         param.available_dto_count, param.outstanding_dto_count);
}

/* Describes the objects that rows use, and the numbers of queued events. */
static void look(char *text)
{
    DAT_EP_HANDLE endpoints[] = {here.endpoint, there.endpoint, asker, answerer};
    DAT_EVD_HANDLE evds[] = {here.async,     here.requests,  here.receives,     here.connections, here.arrivals,
                             there.requests, there.receives, there.connections, there.arrivals};
    DAT_HANDLE_TYPE type;
    DAT_CONTEXT context;
    size_t index;
    *text = 0;
    tell(text, "%p %p %d\n", made, opened, agent_calls);
    for (index = 0; index < sizeof endpoints / sizeof *endpoints; index++) {
        if (endpoints[index] != DAT_HANDLE_NULL) {
            look_at_endpoint(text, endpoints[index]);
        }
    }
    for (index = 0; index < sizeof evds / sizeof *evds; index++) {
        if (evds[index] != DAT_HANDLE_NULL) {
            look_at_evd(text, evds[index]);
        }
    }
    if (made == DAT_HANDLE_NULL) {
        return;
    }
    OK(dat_get_consumer_context(made, &context));
    OK(dat_get_handle_type(made, &type));
    tell(text, "%d %llu ", type, (unsigned long long)context.as_64);
    switch (type) {
    case DAT_HANDLE_TYPE_EP:
        look_at_endpoint(text, made);
        break;
    case DAT_HANDLE_TYPE_EVD:
        look_at_evd(text, made);
        break;
    case DAT_HANDLE_TYPE_CNO:
        look_at_cno(text);
        break;
    case DAT_HANDLE_TYPE_CR:
        look_at_request(text);
        break;
    case DAT_HANDLE_TYPE_LMR:
        look_at_region(text);
        break;
    case DAT_HANDLE_TYPE_RMR:
        look_at_window(text);
        break;
    case DAT_HANDLE_TYPE_SRQ:
        look_at_queue(text);
        break;
    default:
        /* Zones and service points cannot change. */
        break;
    }
}

/* Defines a function for a call that succeeds; FREE also clears `made`. */
#define DO(name, call) \
    static void name(void) { OK(call); }
#define FREE(name, call) \
    static void name(void) \
    { \
        OK(call); \
        made = DAT_HANDLE_NULL; \
    }
#define CALL(name, call) \
    static DAT_RETURN name(void) { return call; }

static void forget(void) { made = DAT_HANDLE_NULL; }

/* Adapters and the registry. */
static DAT_RETURN open_adapter(void)
{
    DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
    return dat_ia_open((DAT_NAME_PTR) "mock0", 8, &async, &opened);
}
CALL(close_opened, dat_ia_close(opened, DAT_CLOSE_GRACEFUL_FLAG))
CALL(close_abruptly, dat_ia_close(opened, DAT_CLOSE_ABRUPT_FLAG))
static void forget_opened(void) { opened = DAT_HANDLE_NULL; }
static void before_close(void) { OK(open_adapter()); }
static void after_open(void)
{
    OK(close_opened());
    forget_opened();
}
/* An adapter with objects of all kinds for an abrupt close, including an agent that the close
 * calls. */
static void before_abrupt_close(void)
{
    DAT_OS_WAIT_PROXY_AGENT agent = {NULL, count_call};
    DAT_CNO_HANDLE called;
    DAT_EVD_HANDLE evd;
    DAT_PZ_HANDLE zone;
    DAT_EP_HANDLE endpoint;
    OK(open_adapter());
    OK(dat_cno_create(opened, agent, &called));
    OK(dat_evd_create(opened, 8, called, DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG, &evd));
    OK(dat_pz_create(opened, &zone));
    OK(dat_ep_create(opened, zone, evd, evd, evd, NULL, &endpoint));
}
static DAT_RETURN query_ia(void)
{
    DAT_IA_ATTR attributes;
    DAT_PROVIDER_ATTR provider;
    return dat_ia_query(here.ia, NULL, DAT_IA_FIELD_ALL, &attributes, DAT_PROVIDER_FIELD_ALL, &provider);
}
static DAT_RETURN strerror_of(void)
{
    const char *type, *subtype;
    return dat_strerror((DAT_RETURN)DAT_CLASS_ERROR | DAT_INVALID_STATE, &type, &subtype);
}
static DAT_RETURN list_providers(void)
{
    DAT_PROVIDER_INFO infos[4], *list[4] = {infos, infos + 1, infos + 2, infos + 3};
    DAT_COUNT entries = -1;
    DAT_RETURN code = dat_registry_list_providers(4, &entries, list);
    /* The mock comes last. */
    CHECK(code != DAT_SUCCESS || (entries >= 1 && entries <= 4 && strcmp(infos[entries - 1].ia_name, "mock0") == 0));
    return code;
}
static DAT_PROVIDER provider;
static DAT_PROVIDER_INFO provider_info = {"own0", DAT_VERSION_MAJOR, DAT_VERSION_MINOR, DAT_FALSE};
CALL(add_provider, dat_registry_add_provider(&provider, &provider_info))
CALL(remove_provider, dat_registry_remove_provider(&provider, &provider_info))
DO(after_add, remove_provider())
DO(before_remove, add_provider())

static DAT_RETURN fork_child(void)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    return DAT_SUCCESS;
}

/* Zones, regions, windows. */
CALL(make_zone, dat_pz_create(here.ia, &made))
FREE(free_zone, dat_pz_free(made))
DO(before_zone, make_zone())
CALL(destroy_zone, dat_pz_free(made))
static DAT_RETURN query_zone(void)
{
    DAT_PZ_PARAM param;
    return dat_pz_query(made, DAT_PZ_FIELD_ALL, &param);
}
static DAT_RETURN make_region(void)
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
FREE(free_region, dat_lmr_free(made))
DO(before_region, make_region())
CALL(destroy_region, dat_lmr_free(made))
static DAT_RETURN query_region(void)
{
    DAT_LMR_PARAM param;
    return dat_lmr_query(made, DAT_LMR_FIELD_ALL, &param);
}
static DAT_RETURN sync_read(void)
{
    DAT_LMR_TRIPLET segment = piece(&here, 0, 64);
    return dat_lmr_sync_rdma_read(here.ia, &segment, 1);
}
static DAT_RETURN sync_write(void)
{
    DAT_LMR_TRIPLET segment = piece(&here, 0, 64);
    return dat_lmr_sync_rdma_write(here.ia, &segment, 1);
}
CALL(make_window, dat_rmr_create(here.zone, &made))
FREE(free_window, dat_rmr_free(made))
DO(before_window, make_window())
CALL(destroy_window, dat_rmr_free(made))
static DAT_RETURN query_window(void)
{
    DAT_RMR_PARAM param;
    return dat_rmr_query(made, DAT_RMR_FIELD_ALL, &param);
}
static DAT_RETURN bind_window(void)
{
    DAT_LMR_TRIPLET segment = piece(&here, 0, 64);
    DAT_RMR_CONTEXT context;
    return dat_rmr_bind(made, here.region, &segment, DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_VA_TYPE_VA, here.endpoint, cookie(5),
                        DAT_COMPLETION_DEFAULT_FLAG, &context);
}
static void after_bind(void)
{
    next_event(here.requests, DAT_RMR_BIND_COMPLETION_EVENT);
    free_window();
}

/* Event dispatchers and notification objects. */
CALL(make_evd, dat_evd_create(here.ia, 200, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG, &made))
FREE(free_evd, dat_evd_free(made))
static void before_software(void) { OK(dat_evd_create(here.ia, 8, cno, DAT_EVD_SOFTWARE_FLAG, &made)); }
static DAT_RETURN query_evd(void)
{
    DAT_EVD_PARAM param;
    return dat_evd_query(made, DAT_EVD_FIELD_ALL, &param);
}
CALL(resize_evd, dat_evd_resize(made, 300))
CALL(modify_cno, dat_evd_modify_cno(made, DAT_HANDLE_NULL))
CALL(enable_evd, dat_evd_enable(made))
CALL(disable_evd, dat_evd_disable(made))
CALL(set_unwaitable, dat_evd_set_unwaitable(made))
CALL(clear_unwaitable, dat_evd_clear_unwaitable(made))
CALL(destroy_evd, dat_evd_free(made))
static DAT_RETURN post_event(void)
{
    DAT_EVENT event;
    memset(&event, 0, sizeof event);
    event.event_number = DAT_SOFTWARE_EVENT;
    return dat_evd_post_se(made, &event);
}
static DAT_RETURN dequeue_event(void)
{
    DAT_EVENT event;
    return dat_evd_dequeue(made, &event);
}
static DAT_RETURN wait_for_event(void)
{
    DAT_EVENT event;
    DAT_COUNT more;
    return dat_evd_wait(made, PATIENCE, 1, &event, &more);
}
static void before_event(void)
{
    before_software();
    OK(post_event());
}
static void free_notified(void)
{
    DAT_EVD_HANDLE fired;
    (void)dat_cno_wait(cno, 0, &fired);
    free_evd();
}
static void after_post_event(void)
{
    OK(dequeue_event());
    EXPECT(DAT_QUEUE_EMPTY, dequeue_event());
    free_notified();
}
static DAT_RETURN wait_nothing(void)
{
    DAT_EVENT event;
    DAT_COUNT more;
    DAT_RETURN code = dat_evd_wait(here.arrivals, 1000, 1, &event, &more);
    return DAT_GET_TYPE(code) == DAT_TIMEOUT_EXPIRED ? DAT_SUCCESS : code;
}
static DAT_RETURN dequeue_nothing(void)
{
    DAT_EVENT event;
    DAT_RETURN code = dat_evd_dequeue(here.arrivals, &event);
    return DAT_GET_TYPE(code) == DAT_QUEUE_EMPTY ? DAT_SUCCESS : code;
}
CALL(make_cno, dat_cno_create(here.ia, no_agent, &made))
static DAT_RETURN make_called(void)
{
    DAT_OS_WAIT_PROXY_AGENT agent = {NULL, count_call};
    return dat_cno_create(here.ia, agent, &made);
}
static DAT_RETURN give_agent(void)
{
    DAT_OS_WAIT_PROXY_AGENT agent = {&made, count_call};
    return dat_cno_modify_agent(made, agent);
}
CALL(take_agent, dat_cno_modify_agent(made, no_agent))
CALL(destroy_cno, dat_cno_free(made))
FREE(free_cno, dat_cno_free(made))
DO(before_cno, make_cno())
DO(before_called, make_called())
static DAT_RETURN query_cno(void)
{
    DAT_CNO_PARAM param;
    return dat_cno_query(made, DAT_CNO_FIELD_ALL, &param);
}
static DAT_RETURN wait_cno(void)
{
    DAT_EVD_HANDLE evd;
    DAT_RETURN code = dat_cno_wait(made, 1000, &evd);
    return DAT_GET_TYPE(code) == DAT_QUEUE_EMPTY || DAT_GET_TYPE(code) == DAT_TIMEOUT_EXPIRED ? DAT_SUCCESS : code;
}
/* A dispatcher whose notification object has an agent. */
static DAT_CNO_HANDLE called;
static int calls_before;
static void before_agent(void)
{
    OK(make_called());
    called = made;
    OK(dat_evd_create(here.ia, 8, called, DAT_EVD_SOFTWARE_FLAG, &made));
    calls_before = agent_calls;
}
static void after_agent(void)
{
    int rounds;
    for (rounds = 0; rounds < (int)(PATIENCE / 1000) && agent_calls == calls_before; rounds++)
        usleep(1000);
    CHECK(agent_calls == calls_before + 1);
    free_evd();
    OK(dat_cno_free(called));
}

/* Objects of any kind. */
static DAT_RETURN set_context(void)
{
    DAT_CONTEXT context = {0};
    context.as_64 = 77;
    return dat_set_consumer_context(made, context);
}
static DAT_RETURN get_context(void)
{
    DAT_CONTEXT context;
    return dat_get_consumer_context(made, &context);
}
static DAT_RETURN type_of(void)
{
    DAT_HANDLE_TYPE type;
    return dat_get_handle_type(made, &type);
}

/* Service points. */
CALL(make_psp, dat_psp_create(here.ia, 4242, here.arrivals, DAT_PSP_CONSUMER_FLAG, &made))
FREE(free_psp, dat_psp_free(made))
DO(before_psp, make_psp())
static DAT_RETURN query_psp(void)
{
    DAT_PSP_PARAM param;
    return dat_psp_query(made, DAT_PSP_FIELD_ALL, &param);
}
static DAT_RETURN make_any(void)
{
    DAT_CONN_QUAL qualifier;
    return dat_psp_create_any(here.ia, &qualifier, here.arrivals, DAT_PSP_CONSUMER_FLAG, &made);
}
CALL(make_endpoint, dat_ep_create(here.ia, here.zone, here.receives, here.requests, here.connections, NULL, &made))
FREE(free_endpoint, dat_ep_free(made))
DO(before_endpoint, make_endpoint())
static void make_asker(void)
{
    OK(dat_ep_create(here.ia, here.zone, here.receives, here.requests, here.connections, NULL, &asker));
}
static void free_asker(void)
{
    OK(dat_ep_free(asker));
    asker = DAT_HANDLE_NULL;
}
CALL(make_rsp, dat_rsp_create(here.ia, 4243, asker, here.arrivals, &made))
static void free_rsp(void)
{
    OK(dat_rsp_free(made));
    made = DAT_HANDLE_NULL;
    free_asker();
}
static void before_rsp(void)
{
    make_asker();
    OK(make_rsp());
}
static DAT_RETURN query_rsp(void)
{
    DAT_RSP_PARAM param;
    return dat_rsp_query(made, DAT_RSP_FIELD_ALL, &param);
}
CALL(destroy_psp, dat_psp_free(made))
CALL(destroy_rsp, dat_rsp_free(made))
static void after_rsp_free(void)
{
    made = DAT_HANDLE_NULL;
    free_asker();
}

/* Endpoints. */
static DAT_RETURN query_endpoint(void)
{
    DAT_EP_PARAM param;
    return dat_ep_query(here.endpoint, DAT_EP_FIELD_ALL, &param);
}
static DAT_RETURN status_of_endpoint(void)
{
    DAT_EP_STATE state;
    DAT_BOOLEAN receives, requests;
    return dat_ep_get_status(here.endpoint, &state, &receives, &requests);
}
static DAT_RETURN modify_endpoint(void)
{
    DAT_EP_PARAM param;
    memset(&param, 0, sizeof param);
    param.ep_attr.max_rdma_read_out = 1;
    return dat_ep_modify(made, DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT, &param);
}
static DAT_RETURN query_receives(void)
{
    DAT_COUNT allocated, span;
    return dat_ep_recv_query(there.endpoint, &allocated, &span);
}
CALL(destroy_endpoint, dat_ep_free(made))

/* The first wait on an adapter. */
static void before_first_wait(void)
{
    OK(open_adapter());
    OK(dat_evd_create(opened, 8, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &made));
    OK(post_event());
    is_unwaited = 1;
}
static void before_first_cno_wait(void)
{
    OK(open_adapter());
    OK(dat_cno_create(opened, no_agent, &made));
}
static void after_first_wait(void)
{
    is_unwaited = 0;
    made = DAT_HANDLE_NULL;
    OK(close_abruptly());
    forget_opened();
}

/* Connections. */
CALL(connect_asker,
     dat_ep_connect(asker, address, 4711, PATIENCE, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG))
CALL(connect_again, dat_ep_dup_connect(asker, here.endpoint, PATIENCE, 0, NULL, DAT_QOS_BEST_EFFORT))
static void take_arrival(void)
{
    DAT_EVENT event = next_event(there.arrivals, DAT_CONNECTION_REQUEST_EVENT);
    made = event.event_data.cr_arrival_event_data.cr_handle;
}
static void before_arrival(void)
{
    char greeting[] = "please";
    DAT_EVENT event;
    DAT_COUNT count = 0;
    make_asker();
    OK(dat_ep_connect(asker, address, 4711, PATIENCE, sizeof greeting, greeting, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    while (count == 0) {
        EXPECT(DAT_TIMEOUT_EXPIRED, dat_evd_wait(there.arrivals, 1000, 16, &event, &count));
    }
}
static DAT_RETURN dequeue_request(void)
{
    DAT_EVENT event;
    DAT_RETURN code = dat_evd_dequeue(there.arrivals, &event);
    if (code == DAT_SUCCESS) {
        made = event.event_data.cr_arrival_event_data.cr_handle;
    }
    return code;
}
CALL(reject, dat_cr_reject(made, 0, NULL))
static void after_reject(void)
{
    made = DAT_HANDLE_NULL;
    next_event(here.connections, DAT_CONNECTION_EVENT_PEER_REJECTED);
    free_asker();
}
static void reject_request(void)
{
    OK(reject());
    after_reject();
}
static void reject_arrival(void)
{
    take_arrival();
    reject_request();
}
static void before_request(void)
{
    make_asker();
    OK(connect_asker());
    take_arrival();
}
/* A request that was never queried; `look` would query `made`. */
static DAT_CR_HANDLE unqueried;
static void before_query(void)
{
    before_request();
    unqueried = made;
    made = DAT_HANDLE_NULL;
}
static DAT_RETURN query_request(void)
{
    DAT_CR_PARAM param;
    return dat_cr_query(unqueried, DAT_CR_FIELD_ALL, &param);
}
static void after_query(void)
{
    made = unqueried;
    reject_request();
}
CALL(hand_off, dat_cr_handoff(made, 4712))
static void after_hand_off(void)
{
    DAT_CR_PARAM param;
    DAT_HANDLE former = made;
    take_arrival();
    CHECK(made != former);
    OK(dat_cr_query(made, DAT_CR_FIELD_ALL, &param));
    reject_request();
}
CALL(accept_request, dat_cr_accept(made, answerer, 0, NULL))
static void before_accept(void)
{
    before_request();
    OK(dat_ep_create(there.ia, there.zone, there.receives, there.requests, there.connections, NULL, &answerer));
}
static void established(void)
{
    made = DAT_HANDLE_NULL;
    next_event(here.connections, DAT_CONNECTION_EVENT_ESTABLISHED);
    next_event(there.connections, DAT_CONNECTION_EVENT_ESTABLISHED);
}
static void before_disconnect(void)
{
    before_accept();
    OK(accept_request());
    established();
}
CALL(disconnect, dat_ep_disconnect(asker, DAT_CLOSE_ABRUPT_FLAG))
CALL(disconnect_gracefully, dat_ep_disconnect(asker, DAT_CLOSE_GRACEFUL_FLAG))
static void free_answerer(void)
{
    OK(dat_ep_free(answerer));
    answerer = DAT_HANDLE_NULL;
}
static void disconnected(void)
{
    next_event(here.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    next_event(there.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
}
static void after_disconnect(void)
{
    disconnected();
    free_asker();
    free_answerer();
}
static void after_accept(void)
{
    established();
    OK(disconnect());
    after_disconnect();
}
static void before_reset(void)
{
    before_disconnect();
    OK(disconnect());
    disconnected();
}
CALL(reset, dat_ep_reset(asker))
static void after_reset(void)
{
    DAT_EP_STATE state;
    OK(dat_ep_get_status(asker, &state, NULL, NULL));
    CHECK(state == DAT_EP_STATE_UNCONNECTED);
    free_asker();
    free_answerer();
}
CALL(destroy_asker, dat_ep_free(asker))
/* A free of a connected endpoint, whose peer gets an event. */
static void after_connected_free(void)
{
    asker = DAT_HANDLE_NULL;
    next_event(there.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    free_answerer();
}

/* Transfers. */
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
static void take_request(void) { next_event(here.requests, DAT_DTO_COMPLETION_EVENT); }
static void give_receive(void)
{
    take_request();
    next_event(there.receives, DAT_DTO_COMPLETION_EVENT);
}
static void take_receive(void)
{
    OK(post_send());
    give_receive();
}
DO(before_send, post_recv())

/* Shared receive queues. */
static DAT_RETURN make_srq(void)
{
    DAT_SRQ_ATTR attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.max_recv_dtos = 100;
    attributes.max_recv_iov = 2;
    attributes.low_watermark = DAT_SRQ_LW_DEFAULT;
    return dat_srq_create(here.ia, here.zone, &attributes, &made);
}
FREE(free_srq, dat_srq_free(made))
DO(before_srq, make_srq())
static DAT_RETURN query_srq(void)
{
    DAT_SRQ_PARAM param;
    return dat_srq_query(made, DAT_SRQ_FIELD_ALL, &param);
}
CALL(resize_srq, dat_srq_resize(made, 300))
CALL(set_low_watermark, dat_srq_set_lw(made, 3))
CALL(destroy_srq, dat_srq_free(made))
static DAT_RETURN post_shared(void)
{
    DAT_LMR_TRIPLET to = piece(&here, 0, 64);
    return dat_srq_post_recv(made, 1, &to, cookie(6));
}
static DAT_RETURN make_sharing(void)
{
    DAT_EP_PARAM param;
    OK(dat_ep_query(here.endpoint, DAT_EP_FIELD_ALL, &param));
    return dat_ep_create_with_srq(here.ia, here.zone, here.receives, here.requests, here.connections, made, &param.ep_attr, &asker);
}
static void before_watermark(void)
{
    OK(make_srq());
    OK(make_sharing());
}
CALL(set_watermark, dat_ep_set_watermark(asker, 4, 8))
static void after_sharing(void)
{
    free_asker();
    free_srq();
}

#endif
