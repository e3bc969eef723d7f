/* A shared receive queue, and reserved service points, rejections and hand-offs. */
#include "check.h"

int main(void)
{
    struct side near = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG), far = open_side("mock0", DAT_MEM_PRIV_ALL_FLAG);
    DAT_SRQ_ATTR wanted = {8, 2, 0}, none = {-1, 2, 0};
    DAT_EP_ATTR attributes;
    DAT_SRQ_HANDLE queue = NULL;
    DAT_SRQ_PARAM queue_param;
    DAT_LMR_TRIPLET pieces[1];
    DAT_RSP_HANDLE reserved;
    DAT_PSP_HANDLE listener;
    DAT_CONN_QUAL qualifier = 0;
    DAT_IA_ATTR adapter;
    DAT_EVENT event;
    DAT_CR_HANDLE request;
    DAT_EP_PARAM param;
    char reason[] = "no";

    EXPECT(DAT_INVALID_PARAMETER, dat_srq_create(far.ia, far.zone, NULL, &queue));
    EXPECT(DAT_INVALID_PARAMETER, dat_srq_create(far.ia, far.zone, &none, &queue));
    EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ, dat_srq_create(far.ia, near.zone, &wanted, &queue));
    CHECK(queue == NULL);
    OK(dat_srq_create(far.ia, far.zone, &wanted, &queue));
    OK(dat_ep_create(near.ia, near.zone, near.receives, near.requests, near.connections, NULL, &near.endpoint));
    OK(dat_ep_query(near.endpoint, DAT_EP_FIELD_ALL, &param));
    attributes = param.ep_attr;
    EXPECT(DAT_INVALID_PARAMETER,
           dat_ep_create_with_srq(far.ia, far.zone, far.receives, far.requests, far.connections, queue, NULL, &far.endpoint));
    OK(dat_ep_create_with_srq(far.ia, far.zone, far.receives, far.requests, far.connections, queue, &attributes, &far.endpoint));
    OK(dat_ep_query(far.endpoint, DAT_EP_FIELD_ALL, &param));
    CHECK(param.srq_handle == queue);
    EXPECT(DAT_INVALID_STATE, dat_srq_free(queue));

    pieces[0] = piece(&far, 0, 64);
    OK(dat_srq_post_recv(queue, 1, pieces, cookie(5)));
    pieces[0] = piece(&far, BYTES - 4, 64);
    EXPECT(DAT_INVALID_PARAMETER, dat_srq_post_recv(queue, 1, pieces, cookie(6)));
    OK(dat_srq_query(queue, DAT_SRQ_FIELD_ALL, &queue_param));
    CHECK(queue_param.outstanding_dto_count == 1 && queue_param.max_recv_dtos >= 8 && queue_param.max_recv_iov >= 2);
    CHECK(queue_param.available_dto_count == 1 && queue_param.low_watermark == DAT_SRQ_LW_DEFAULT);
    connect_sides(&near, &far, 4711);
    strcpy(near.memory, "shared");
    pieces[0] = piece(&near, 0, 7);
    OK(dat_ep_post_send(near.endpoint, 1, pieces, cookie(7), DAT_COMPLETION_DEFAULT_FLAG));
    completed(far.receives, far.endpoint, 5, DAT_DTO_RECEIVE, 7);
    completed(near.requests, near.endpoint, 7, DAT_DTO_SEND, 7);
    CHECK(strcmp(far.memory, "shared") == 0);
    OK(dat_srq_resize(queue, 32));
    OK(dat_srq_query(queue, DAT_SRQ_FIELD_ALL, &queue_param));
    CHECK(queue_param.available_dto_count == 0 && queue_param.outstanding_dto_count == 0 && queue_param.max_recv_dtos >= 32);
    /* Fewer buffers are available than the watermark, so its event comes at once. */
    OK(dat_srq_set_lw(queue, 3));
    OK(dat_srq_query(queue, DAT_SRQ_FIELD_ALL, &queue_param));
    CHECK(queue_param.low_watermark == 3);
    event = next_event(far.async, DAT_ASYNC_ERROR_EP_BROKEN);
    CHECK(event.event_data.asynch_error_event_data.dat_handle == queue);
    CHECK(event.event_data.asynch_error_event_data.reason == DAT_SRQ_LOW_WATERMARK_EVENT);
    OK(dat_ep_disconnect(near.endpoint, DAT_CLOSE_ABRUPT_FLAG));
    next_event(near.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    next_event(far.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    OK(dat_ep_free(far.endpoint));
    OK(dat_srq_free(queue));

    /* A service point for one request, and one that chooses its qualifier and whose request is
     * rejected. */
    OK(dat_ep_create(far.ia, far.zone, far.receives, far.requests, far.connections, NULL, &far.endpoint));
    OK(dat_ep_reset(near.endpoint));
    OK(dat_ia_query(far.ia, NULL, DAT_IA_FIELD_IA_ADDRESS_PTR, &adapter, 0, NULL));
    OK(dat_rsp_create(far.ia, 99, far.endpoint, far.arrivals, &reserved));
    EXPECT(DAT_CONN_QUAL_IN_USE, dat_psp_create(far.ia, 99, far.arrivals, DAT_PSP_CONSUMER_FLAG, &listener));
    EXPECT(DAT_INVALID_PARAMETER, dat_psp_create(far.ia, 98, far.arrivals, (DAT_PSP_FLAGS)3, &listener));
    OK(dat_ep_connect(near.endpoint, adapter.ia_address_ptr, 99, PATIENCE, 0, NULL, DAT_QOS_BEST_EFFORT, 0));
    event = next_event(far.arrivals, DAT_CONNECTION_REQUEST_EVENT);
    request = event.event_data.cr_arrival_event_data.cr_handle;
    EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RSP, dat_rsp_free(reserved));
    OK(dat_cr_reject(request, sizeof reason, reason));
    event = next_event(near.connections, DAT_CONNECTION_EVENT_PEER_REJECTED);
#ifdef EDITION_1_2
    CHECK(event.event_data.connect_event_data.private_data_size == 0);
#else
    CHECK(strcmp(event.event_data.connect_event_data.private_data, reason) == 0);
#endif
    EXPECT_CODE(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CR, dat_cr_reject(request, 0, NULL));

    OK(dat_ep_reset(near.endpoint));
    OK(dat_psp_create_any(far.ia, &qualifier, far.arrivals, DAT_PSP_PROVIDER_FLAG, &listener));
    CHECK(qualifier != 0);
    OK(dat_ep_connect(near.endpoint, adapter.ia_address_ptr, qualifier, PATIENCE, 0, NULL, DAT_QOS_BEST_EFFORT, 0));
    event = next_event(far.arrivals, DAT_CONNECTION_REQUEST_EVENT);
    request = event.event_data.cr_arrival_event_data.cr_handle;
    {
        /* The provider made an endpoint, which the consumer completes. */
        DAT_CR_PARAM asked;
        OK(dat_cr_query(request, DAT_CR_FIELD_ALL, &asked));
        CHECK(asked.local_ep_handle != DAT_HANDLE_NULL && asked.private_data_size == 0);
        OK(dat_ep_query(asked.local_ep_handle, DAT_EP_FIELD_ALL, &param));
        CHECK(param.ep_state == DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING);
        param.pz_handle = far.zone;
        param.recv_evd_handle = far.receives;
        param.request_evd_handle = far.requests;
        param.connect_evd_handle = far.connections;
        OK(dat_ep_modify(asked.local_ep_handle,
                         DAT_EP_FIELD_PZ_HANDLE | DAT_EP_FIELD_RECV_EVD_HANDLE | DAT_EP_FIELD_REQUEST_EVD_HANDLE
                             | DAT_EP_FIELD_CONNECT_EVD_HANDLE,
                         &param));
        OK(dat_cr_accept(request, DAT_HANDLE_NULL, 0, NULL));
        next_event(near.connections, DAT_CONNECTION_EVENT_ESTABLISHED);
        event = next_event(far.connections, DAT_CONNECTION_EVENT_ESTABLISHED);
        CHECK(event.event_data.connect_event_data.ep_handle == asked.local_ep_handle);
    }
    OK(dat_ia_close(near.ia, DAT_CLOSE_ABRUPT_FLAG));
    next_event(far.connections, DAT_CONNECTION_EVENT_DISCONNECTED);
    OK(dat_ia_close(far.ia, DAT_CLOSE_ABRUPT_FLAG));
    return 0;
}
