/* Two adapters of one process: connection, messages, RDMA in both directions, a window, and the
 * end. */
#include "check.h"

int main(void)
{
    struct side near = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG), far = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
    DAT_EP_ATTR attributes;
    DAT_EP_PARAM param;
    DAT_EP_STATE state;
    DAT_BOOLEAN receives_idle, requests_idle;
    DAT_LMR_TRIPLET pieces[2];
    DAT_RMR_TRIPLET remote;
    DAT_RMR_HANDLE window;
    DAT_RMR_PARAM window_param;
    DAT_RMR_CONTEXT context = 0;
    DAT_EVENT event;
    DAT_COUNT more;

    memset(&attributes, 0, sizeof attributes);
    attributes.service_type = DAT_SERVICE_TYPE_RC;
    /* Zero is the default of the other attributes. */
    attributes.max_rdma_size = BYTES;
    attributes.max_recv_dtos = attributes.max_request_dtos = 8;
    attributes.max_recv_iov = attributes.max_request_iov = 2;
    attributes.max_rdma_read_in = attributes.max_rdma_read_out = 2;
    attributes.max_rdma_write_iov = 2;
    attributes.srq_soft_hw = DAT_HW_DEFAULT;
    OK(dat_ep_create(near.ia, near.zone, near.receives, near.requests, near.connections, &attributes, &near.endpoint));
    OK(dat_ep_create(far.ia, far.zone, far.receives, far.requests, far.connections, NULL, &far.endpoint));
    OK(dat_ep_query(far.endpoint, DAT_EP_FIELD_ALL, &param));
    CHECK(param.ia_handle == far.ia && param.ep_state == DAT_EP_STATE_UNCONNECTED);
    CHECK(param.ep_attr.max_rdma_read_in == 16 && param.ep_attr.max_rdma_read_out == 16);
    param.ep_attr.max_rdma_read_in = 2;
    OK(dat_ep_modify(far.endpoint, DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN, &param));
    EXPECT(DAT_INVALID_PARAMETER, dat_ep_modify(far.endpoint, DAT_EP_FIELD_EP_STATE, &param));

    pieces[0] = piece(&near, 0, 8);
    remote = target(&far, 0, 8);
    EXPECT_CODE(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED,
                dat_ep_post_rdma_write(near.endpoint, 1, pieces, cookie(1), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    connect_sides(&near, &far, 4711);
    OK(dat_ep_query(near.endpoint, DAT_EP_FIELD_ALL, &param));
    CHECK(param.ia_handle == near.ia && param.ep_state == DAT_EP_STATE_CONNECTED);
    CHECK(param.pz_handle == near.zone && param.recv_evd_handle == near.receives);
    CHECK(param.request_evd_handle == near.requests && param.connect_evd_handle == near.connections);
    CHECK(param.srq_handle == DAT_HANDLE_NULL && param.remote_ia_address_ptr->sa_family == AF_INET);
    CHECK(param.ep_attr.max_recv_dtos == 8 && param.ep_attr.max_request_iov == 2 && param.ep_attr.max_rdma_read_iov == 2);
    CHECK(param.ep_attr.max_message_size >= 1 << 20);
#ifdef EDITION_1_2
    CHECK(param.ep_attr.max_rdma_size == BYTES);
#else
    /* The endpoint has at least the requested size. */
    CHECK(param.ep_attr.max_rdma_size >= 1 << 20);
#endif

    /* A message of two segments. */
    strcpy(near.memory, "hello, ");
    strcpy(near.memory + 100, "world");
    pieces[0] = piece(&far, 200, 64);
    OK(dat_ep_post_recv(far.endpoint, 1, pieces, cookie(10), DAT_COMPLETION_DEFAULT_FLAG));
    OK(dat_ep_get_status(far.endpoint, &state, &receives_idle, &requests_idle));
    CHECK(state == DAT_EP_STATE_CONNECTED && !receives_idle && requests_idle);
    pieces[0] = piece(&near, 0, 7);
    pieces[1] = piece(&near, 100, 6);
    OK(dat_ep_post_send(near.endpoint, 2, pieces, cookie(11), DAT_COMPLETION_DEFAULT_FLAG));
    completed(far.receives, far.endpoint, 10, DAT_DTO_RECEIVE, 13);
    completed(near.requests, near.endpoint, 11, DAT_DTO_SEND, 13);
    CHECK(strcmp(far.memory + 200, "hello, world") == 0);

    /* A Write, and a Read of the same bytes. */
    pieces[0] = piece(&near, 0, 7);
    remote = target(&far, 1000, 7);
    OK(dat_ep_post_rdma_write(near.endpoint, 1, pieces, cookie(12), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    completed(near.requests, near.endpoint, 12, DAT_DTO_RDMA_WRITE, 7);
    CHECK(strcmp(far.memory + 1000, "hello, ") == 0);
    pieces[0] = piece(&near, 2000, 8);
    remote = target(&far, 1000, 8);
    OK(dat_ep_post_rdma_read(near.endpoint, 1, pieces, cookie(13), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    completed(near.requests, near.endpoint, 13, DAT_DTO_RDMA_READ, 8);
    CHECK(strcmp(near.memory + 2000, "hello, ") == 0);

    /* Invalid transfers are refused at once. */
    remote = target(&far, 0, 8);
    pieces[0] = piece(&near, BYTES - 4, 8);
    EXPECT(DAT_INVALID_PARAMETER,
           dat_ep_post_rdma_write(near.endpoint, 1, pieces, cookie(1), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    pieces[0] = piece(&near, 0, 8);
    pieces[0].lmr_context ^= 0x10000;
    EXPECT(DAT_PRIVILEGES_VIOLATION,
           dat_ep_post_rdma_write(near.endpoint, 1, pieces, cookie(1), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    pieces[0] = piece(&near, 0, 16);
    EXPECT(DAT_LENGTH_ERROR,
           dat_ep_post_rdma_write(near.endpoint, 1, pieces, cookie(1), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    pieces[0] = piece(&near, 0, 8);
    EXPECT(DAT_INVALID_PARAMETER,
           dat_ep_post_rdma_write(near.endpoint, 1, pieces, cookie(1), &remote, (DAT_COMPLETION_FLAGS)0x8000));
    EXPECT(DAT_INVALID_PARAMETER,
           dat_ep_post_rdma_write(near.endpoint, -1, pieces, cookie(1), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    EXPECT(DAT_INVALID_PARAMETER,
           dat_ep_post_rdma_write(near.endpoint, 1000000, pieces, cookie(1), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    EXPECT(DAT_INVALID_PARAMETER,
           dat_ep_post_rdma_write(near.endpoint, 1, NULL, cookie(1), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    EXPECT(DAT_INVALID_PARAMETER,
           dat_ep_post_rdma_write(near.endpoint, 1, pieces, cookie(1), NULL, DAT_COMPLETION_DEFAULT_FLAG));

    /* A window of eight bytes on the far side. */
    OK(dat_rmr_create(far.zone, &window));
    OK(dat_rmr_query(window, DAT_RMR_FIELD_ALL, &window_param));
    CHECK(window_param.mem_priv == DAT_MEM_PRIV_NONE_FLAG && window_param.rmr_context == 0);
    pieces[0] = piece(&far, 4000, 8);
#ifndef EDITION_1_2
    EXPECT(DAT_INVALID_HANDLE, dat_rmr_bind(window, far.zone, pieces, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, DAT_VA_TYPE_VA,
                                            far.endpoint, cookie(20), DAT_COMPLETION_DEFAULT_FLAG, &context));
    EXPECT(DAT_MODEL_NOT_SUPPORTED, dat_rmr_bind(window, far.region, pieces, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, DAT_VA_TYPE_ZB,
                                                 far.endpoint, cookie(20), DAT_COMPLETION_DEFAULT_FLAG, &context));
    CHECK(context == 0);
#endif
    OK(dat_rmr_bind(window, far.region, pieces, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, DAT_VA_TYPE_VA, far.endpoint, cookie(20),
                    DAT_COMPLETION_DEFAULT_FLAG, &context));
    event = next_event(far.requests, DAT_RMR_BIND_COMPLETION_EVENT);
    CHECK(event.event_data.rmr_completion_event_data.rmr_handle == window);
    CHECK(event.event_data.rmr_completion_event_data.user_cookie.as_64 == 20);
    CHECK(event.event_data.rmr_completion_event_data.status == DAT_DTO_SUCCESS);
    OK(dat_rmr_query(window, DAT_RMR_FIELD_ALL, &window_param));
    CHECK(window_param.rmr_context == context && window_param.lmr_triplet.segment_length == 8);
    CHECK(window_param.pz_handle == far.zone && window_param.ia_handle == far.ia);
    CHECK(window_param.mem_priv == DAT_MEM_PRIV_REMOTE_WRITE_FLAG);
    remote = target(&far, 4000, 8);
    remote.rmr_context = context;
    pieces[0] = piece(&near, 0, 8);
    OK(dat_ep_post_rdma_write(near.endpoint, 1, pieces, cookie(21), &remote, DAT_COMPLETION_DEFAULT_FLAG));
    completed(near.requests, near.endpoint, 21, DAT_DTO_RDMA_WRITE, 8);
    CHECK(memcmp(far.memory + 4000, near.memory, 8) == 0);
    OK(dat_rmr_free(window));
    EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RMR, dat_rmr_free(window));

    /* The queues are empty, and no event comes. */
    CHECK(dat_evd_dequeue(near.requests, &event) == DAT_QUEUE_EMPTY);
    EXPECT(DAT_QUEUE_EMPTY, dat_evd_dequeue(near.connections, &event));
    more = -1;
    EXPECT(DAT_TIMEOUT_EXPIRED, dat_evd_wait(near.requests, 1000, 1, &event, &more));
    CHECK(more == 0);

    /* A posted receive is flushed when the connection ends. */
    pieces[0] = piece(&far, 200, 64);
    OK(dat_ep_post_recv(far.endpoint, 1, pieces, cookie(30), DAT_COMPLETION_DEFAULT_FLAG));
    OK(dat_ep_disconnect(near.endpoint, DAT_CLOSE_GRACEFUL_FLAG));
    next_event(near.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    next_event(far.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    event = next_event(far.receives, DAT_DTO_COMPLETION_EVENT);
    CHECK(event.event_data.dto_completion_event_data.status == DAT_DTO_ERR_FLUSHED);
    OK(dat_ep_reset(near.endpoint));
    OK(dat_ep_get_status(near.endpoint, &state, &receives_idle, &requests_idle));
    CHECK(state == DAT_EP_STATE_UNCONNECTED && receives_idle && requests_idle);
    OK(dat_ep_free(near.endpoint));
    OK(dat_ep_free(far.endpoint));
    EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP, dat_ep_free(far.endpoint));
    free_side(&near);
    free_side(&far);
    return 0;
}
