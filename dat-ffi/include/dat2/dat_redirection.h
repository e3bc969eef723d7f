/* DAT 2.0: calls that go straight to a provider, through the table at its handles. */
#ifndef DAT2_DAT_REDIRECTION_H
#define DAT2_DAT_REDIRECTION_H

#include <dat2/udat.h>
#include <dat_common/redirection.h>

#define DAT_HANDLE_TO_PROVIDER(handle) (*(DAT_PROVIDER **)(handle))

/* The first argument is a handle of the provider, even for an adapter. It is evaluated twice. */
/* Generated from dat-ffi/src/list.rs, until the end mark. */
#define DAT_IA_QUERY(ia_handle, async_evd_handle, ia_attr_mask, ia_attributes, provider_attr_mask, \
    provider_attributes) \
    (DAT_HANDLE_TO_PROVIDER(ia_handle)->ia_query_func((ia_handle), (async_evd_handle), (ia_attr_mask), \
        (ia_attributes), (provider_attr_mask), (provider_attributes)))
#define DAT_SET_CONSUMER_CONTEXT(dat_handle, context) \
    (DAT_HANDLE_TO_PROVIDER(dat_handle)->set_consumer_context_func((dat_handle), (context)))
#define DAT_GET_CONSUMER_CONTEXT(dat_handle, context) \
    (DAT_HANDLE_TO_PROVIDER(dat_handle)->get_consumer_context_func((dat_handle), (context)))
#define DAT_GET_HANDLE_TYPE(dat_handle, handle_type) \
    (DAT_HANDLE_TO_PROVIDER(dat_handle)->get_handle_type_func((dat_handle), (handle_type)))
#define DAT_CNO_CREATE(ia_handle, agent, cno_handle) \
    (DAT_HANDLE_TO_PROVIDER(ia_handle)->cno_create_func((ia_handle), (agent), (cno_handle)))
#define DAT_CNO_MODIFY_AGENT(cno_handle, agent) \
    (DAT_HANDLE_TO_PROVIDER(cno_handle)->cno_modify_agent_func((cno_handle), (agent)))
#define DAT_CNO_QUERY(cno_handle, cno_param_mask, cno_param) \
    (DAT_HANDLE_TO_PROVIDER(cno_handle)->cno_query_func((cno_handle), (cno_param_mask), (cno_param)))
#define DAT_CNO_FREE(cno_handle) (DAT_HANDLE_TO_PROVIDER(cno_handle)->cno_free_func((cno_handle)))
#define DAT_CNO_WAIT(cno_handle, timeout, evd_handle) \
    (DAT_HANDLE_TO_PROVIDER(cno_handle)->cno_wait_func((cno_handle), (timeout), (evd_handle)))
#define DAT_CR_QUERY(cr_handle, cr_param_mask, cr_param) \
    (DAT_HANDLE_TO_PROVIDER(cr_handle)->cr_query_func((cr_handle), (cr_param_mask), (cr_param)))
#define DAT_CR_ACCEPT(cr_handle, ep_handle, private_data_size, private_data) \
    (DAT_HANDLE_TO_PROVIDER(cr_handle)->cr_accept_func((cr_handle), (ep_handle), (private_data_size), (private_data)))
#define DAT_CR_REJECT(cr_handle, private_data_size, private_data) \
    (DAT_HANDLE_TO_PROVIDER(cr_handle)->cr_reject_func((cr_handle), (private_data_size), (private_data)))
#define DAT_CR_HANDOFF(cr_handle, handoff) \
    (DAT_HANDLE_TO_PROVIDER(cr_handle)->cr_handoff_func((cr_handle), (handoff)))
#define DAT_EVD_CREATE(ia_handle, evd_min_qlen, cno_handle, evd_flags, evd_handle) \
    (DAT_HANDLE_TO_PROVIDER(ia_handle)->evd_create_func((ia_handle), (evd_min_qlen), (cno_handle), (evd_flags), \
        (evd_handle)))
#define DAT_EVD_QUERY(evd_handle, evd_param_mask, evd_param) \
    (DAT_HANDLE_TO_PROVIDER(evd_handle)->evd_query_func((evd_handle), (evd_param_mask), (evd_param)))
#define DAT_EVD_MODIFY_CNO(evd_handle, cno_handle) \
    (DAT_HANDLE_TO_PROVIDER(evd_handle)->evd_modify_cno_func((evd_handle), (cno_handle)))
#define DAT_EVD_ENABLE(evd_handle) (DAT_HANDLE_TO_PROVIDER(evd_handle)->evd_enable_func((evd_handle)))
#define DAT_EVD_DISABLE(evd_handle) (DAT_HANDLE_TO_PROVIDER(evd_handle)->evd_disable_func((evd_handle)))
#define DAT_EVD_WAIT(evd_handle, timeout, threshold, event, nmore) \
    (DAT_HANDLE_TO_PROVIDER(evd_handle)->evd_wait_func((evd_handle), (timeout), (threshold), (event), (nmore)))
#define DAT_EVD_RESIZE(evd_handle, evd_min_qlen) \
    (DAT_HANDLE_TO_PROVIDER(evd_handle)->evd_resize_func((evd_handle), (evd_min_qlen)))
#define DAT_EVD_POST_SE(evd_handle, event) \
    (DAT_HANDLE_TO_PROVIDER(evd_handle)->evd_post_se_func((evd_handle), (event)))
#define DAT_EVD_DEQUEUE(evd_handle, event) \
    (DAT_HANDLE_TO_PROVIDER(evd_handle)->evd_dequeue_func((evd_handle), (event)))
#define DAT_EVD_FREE(evd_handle) (DAT_HANDLE_TO_PROVIDER(evd_handle)->evd_free_func((evd_handle)))
#define DAT_EP_CREATE(ia_handle, pz_handle, recv_evd_handle, request_evd_handle, connect_evd_handle, ep_attributes, \
    ep_handle) \
    (DAT_HANDLE_TO_PROVIDER(ia_handle)->ep_create_func((ia_handle), (pz_handle), (recv_evd_handle), \
        (request_evd_handle), (connect_evd_handle), (ep_attributes), (ep_handle)))
#define DAT_EP_QUERY(ep_handle, ep_param_mask, ep_param) \
    (DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_query_func((ep_handle), (ep_param_mask), (ep_param)))
#define DAT_EP_MODIFY(ep_handle, ep_param_mask, ep_param) \
    (DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_modify_func((ep_handle), (ep_param_mask), (ep_param)))
#define DAT_EP_CONNECT(ep_handle, remote_ia_address, remote_conn_qual, timeout, private_data_size, private_data, \
    quality_of_service, connect_flags) \
    (DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_connect_func((ep_handle), (remote_ia_address), (remote_conn_qual), \
        (timeout), (private_data_size), (private_data), (quality_of_service), (connect_flags)))
#define DAT_EP_DUP_CONNECT(ep_handle, dup_ep_handle, timeout, private_data_size, private_data, quality_of_service) \
    (DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_dup_connect_func((ep_handle), (dup_ep_handle), (timeout), \
        (private_data_size), (private_data), (quality_of_service)))
#define DAT_EP_DISCONNECT(ep_handle, close_flags) \
    (DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_disconnect_func((ep_handle), (close_flags)))
#define DAT_EP_POST_SEND(ep_handle, num_segments, local_iov, user_cookie, completion_flags) \
    (DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_post_send_func((ep_handle), (num_segments), (local_iov), (user_cookie), \
        (completion_flags)))
#define DAT_EP_POST_RECV(ep_handle, num_segments, local_iov, user_cookie, completion_flags) \
    (DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_post_recv_func((ep_handle), (num_segments), (local_iov), (user_cookie), \
        (completion_flags)))
#define DAT_EP_POST_RDMA_READ(ep_handle, num_segments, local_iov, user_cookie, remote_buffer, completion_flags) \
    (DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_post_rdma_read_func((ep_handle), (num_segments), (local_iov), \
        (user_cookie), (remote_buffer), (completion_flags)))
#define DAT_EP_POST_RDMA_WRITE(ep_handle, num_segments, local_iov, user_cookie, remote_buffer, completion_flags) \
    (DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_post_rdma_write_func((ep_handle), (num_segments), (local_iov), \
        (user_cookie), (remote_buffer), (completion_flags)))
#define DAT_EP_GET_STATUS(ep_handle, ep_state, recv_idle, request_idle) \
    (DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_get_status_func((ep_handle), (ep_state), (recv_idle), (request_idle)))
#define DAT_EP_FREE(ep_handle) (DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_free_func((ep_handle)))
#define DAT_LMR_CREATE(ia_handle, mem_type, region_description, length, pz_handle, mem_privileges, va_type, \
    lmr_handle, lmr_context, rmr_context, registered_size, registered_address) \
    (DAT_HANDLE_TO_PROVIDER(ia_handle)->lmr_create_func((ia_handle), (mem_type), (region_description), (length), \
        (pz_handle), (mem_privileges), (va_type), (lmr_handle), (lmr_context), (rmr_context), (registered_size), \
        (registered_address)))
#define DAT_LMR_QUERY(lmr_handle, lmr_param_mask, lmr_param) \
    (DAT_HANDLE_TO_PROVIDER(lmr_handle)->lmr_query_func((lmr_handle), (lmr_param_mask), (lmr_param)))
#define DAT_LMR_FREE(lmr_handle) (DAT_HANDLE_TO_PROVIDER(lmr_handle)->lmr_free_func((lmr_handle)))
#define DAT_RMR_CREATE(pz_handle, rmr_handle) \
    (DAT_HANDLE_TO_PROVIDER(pz_handle)->rmr_create_func((pz_handle), (rmr_handle)))
#define DAT_RMR_QUERY(rmr_handle, rmr_param_mask, rmr_param) \
    (DAT_HANDLE_TO_PROVIDER(rmr_handle)->rmr_query_func((rmr_handle), (rmr_param_mask), (rmr_param)))
#define DAT_RMR_BIND(rmr_handle, lmr_handle, lmr_triplet, mem_privileges, va_type, ep_handle, user_cookie, \
    completion_flags, rmr_context) \
    (DAT_HANDLE_TO_PROVIDER(rmr_handle)->rmr_bind_func((rmr_handle), (lmr_handle), (lmr_triplet), (mem_privileges), \
        (va_type), (ep_handle), (user_cookie), (completion_flags), (rmr_context)))
#define DAT_RMR_FREE(rmr_handle) (DAT_HANDLE_TO_PROVIDER(rmr_handle)->rmr_free_func((rmr_handle)))
#define DAT_PSP_CREATE(ia_handle, conn_qual, evd_handle, psp_flags, psp_handle) \
    (DAT_HANDLE_TO_PROVIDER(ia_handle)->psp_create_func((ia_handle), (conn_qual), (evd_handle), (psp_flags), \
        (psp_handle)))
#define DAT_PSP_QUERY(psp_handle, psp_param_mask, psp_param) \
    (DAT_HANDLE_TO_PROVIDER(psp_handle)->psp_query_func((psp_handle), (psp_param_mask), (psp_param)))
#define DAT_PSP_FREE(psp_handle) (DAT_HANDLE_TO_PROVIDER(psp_handle)->psp_free_func((psp_handle)))
#define DAT_RSP_CREATE(ia_handle, conn_qual, ep_handle, evd_handle, rsp_handle) \
    (DAT_HANDLE_TO_PROVIDER(ia_handle)->rsp_create_func((ia_handle), (conn_qual), (ep_handle), (evd_handle), \
        (rsp_handle)))
#define DAT_RSP_QUERY(rsp_handle, rsp_param_mask, rsp_param) \
    (DAT_HANDLE_TO_PROVIDER(rsp_handle)->rsp_query_func((rsp_handle), (rsp_param_mask), (rsp_param)))
#define DAT_RSP_FREE(rsp_handle) (DAT_HANDLE_TO_PROVIDER(rsp_handle)->rsp_free_func((rsp_handle)))
#define DAT_PZ_CREATE(ia_handle, pz_handle) \
    (DAT_HANDLE_TO_PROVIDER(ia_handle)->pz_create_func((ia_handle), (pz_handle)))
#define DAT_PZ_QUERY(pz_handle, pz_param_mask, pz_param) \
    (DAT_HANDLE_TO_PROVIDER(pz_handle)->pz_query_func((pz_handle), (pz_param_mask), (pz_param)))
#define DAT_PZ_FREE(pz_handle) (DAT_HANDLE_TO_PROVIDER(pz_handle)->pz_free_func((pz_handle)))
#define DAT_PSP_CREATE_ANY(ia_handle, conn_qual, evd_handle, psp_flags, psp_handle) \
    (DAT_HANDLE_TO_PROVIDER(ia_handle)->psp_create_any_func((ia_handle), (conn_qual), (evd_handle), (psp_flags), \
        (psp_handle)))
#define DAT_EP_RESET(ep_handle) (DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_reset_func((ep_handle)))
#define DAT_EVD_SET_UNWAITABLE(evd_handle) (DAT_HANDLE_TO_PROVIDER(evd_handle)->evd_set_unwaitable_func((evd_handle)))
#define DAT_EVD_CLEAR_UNWAITABLE(evd_handle) \
    (DAT_HANDLE_TO_PROVIDER(evd_handle)->evd_clear_unwaitable_func((evd_handle)))
#define DAT_LMR_SYNC_RDMA_READ(ia_handle, local_segments, num_segments) \
    (DAT_HANDLE_TO_PROVIDER(ia_handle)->lmr_sync_rdma_read_func((ia_handle), (local_segments), (num_segments)))
#define DAT_LMR_SYNC_RDMA_WRITE(ia_handle, local_segments, num_segments) \
    (DAT_HANDLE_TO_PROVIDER(ia_handle)->lmr_sync_rdma_write_func((ia_handle), (local_segments), (num_segments)))
#define DAT_EP_CREATE_WITH_SRQ(ia_handle, pz_handle, recv_evd_handle, request_evd_handle, connect_evd_handle, \
    srq_handle, ep_attributes, ep_handle) \
    (DAT_HANDLE_TO_PROVIDER(ia_handle)->ep_create_with_srq_func((ia_handle), (pz_handle), (recv_evd_handle), \
        (request_evd_handle), (connect_evd_handle), (srq_handle), (ep_attributes), (ep_handle)))
#define DAT_EP_RECV_QUERY(ep_handle, nbufs_allocated, bufs_alloc_span) \
    (DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_recv_query_func((ep_handle), (nbufs_allocated), (bufs_alloc_span)))
#define DAT_EP_SET_WATERMARK(ep_handle, soft_high_watermark, hard_high_watermark) \
    (DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_set_watermark_func((ep_handle), (soft_high_watermark), \
        (hard_high_watermark)))
#define DAT_SRQ_CREATE(ia_handle, pz_handle, srq_attr, srq_handle) \
    (DAT_HANDLE_TO_PROVIDER(ia_handle)->srq_create_func((ia_handle), (pz_handle), (srq_attr), (srq_handle)))
#define DAT_SRQ_FREE(srq_handle) (DAT_HANDLE_TO_PROVIDER(srq_handle)->srq_free_func((srq_handle)))
#define DAT_SRQ_POST_RECV(srq_handle, num_segments, local_iov, user_cookie) \
    (DAT_HANDLE_TO_PROVIDER(srq_handle)->srq_post_recv_func((srq_handle), (num_segments), (local_iov), (user_cookie)))
#define DAT_SRQ_QUERY(srq_handle, srq_param_mask, srq_param) \
    (DAT_HANDLE_TO_PROVIDER(srq_handle)->srq_query_func((srq_handle), (srq_param_mask), (srq_param)))
#define DAT_SRQ_RESIZE(srq_handle, srq_max_recv_dto) \
    (DAT_HANDLE_TO_PROVIDER(srq_handle)->srq_resize_func((srq_handle), (srq_max_recv_dto)))
#define DAT_SRQ_SET_LW(srq_handle, low_watermark) \
    (DAT_HANDLE_TO_PROVIDER(srq_handle)->srq_set_lw_func((srq_handle), (low_watermark)))
#define DAT_CSP_CREATE(ia_handle, comm, address, evd_handle, csp_handle) \
    (DAT_HANDLE_TO_PROVIDER(ia_handle)->csp_create_func((ia_handle), (comm), (address), (evd_handle), (csp_handle)))
#define DAT_CSP_QUERY(csp_handle, csp_param_mask, csp_param) \
    (DAT_HANDLE_TO_PROVIDER(csp_handle)->csp_query_func((csp_handle), (csp_param_mask), (csp_param)))
#define DAT_CSP_FREE(csp_handle) (DAT_HANDLE_TO_PROVIDER(csp_handle)->csp_free_func((csp_handle)))
#define DAT_EP_COMMON_CONNECT(ep_handle, remote_ia_address, timeout, private_data_size, private_data) \
    (DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_common_connect_func((ep_handle), (remote_ia_address), (timeout), \
        (private_data_size), (private_data)))
#define DAT_RMR_CREATE_FOR_EP(pz_handle, rmr_handle) \
    (DAT_HANDLE_TO_PROVIDER(pz_handle)->rmr_create_for_ep_func((pz_handle), (rmr_handle)))
#define DAT_EP_POST_SEND_WITH_INVALIDATE(ep_handle, num_segments, local_iov, user_cookie, completion_flags, \
    invalidate_flag, rmr_context) \
    (DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_post_send_with_invalidate_func((ep_handle), (num_segments), (local_iov), \
        (user_cookie), (completion_flags), (invalidate_flag), (rmr_context)))
#define DAT_EP_POST_RDMA_READ_TO_RMR(ep_handle, local_iov, user_cookie, remote_buffer, completion_flags) \
    (DAT_HANDLE_TO_PROVIDER(ep_handle)->ep_post_rdma_read_to_rmr_func((ep_handle), (local_iov), (user_cookie), \
        (remote_buffer), (completion_flags)))
#define DAT_CNO_FD_CREATE(ia_handle, file_descriptor, cno_handle) \
    (DAT_HANDLE_TO_PROVIDER(ia_handle)->cno_fd_create_func((ia_handle), (file_descriptor), (cno_handle)))
#define DAT_CNO_TRIGGER(cno_handle, evd_handle) \
    (DAT_HANDLE_TO_PROVIDER(cno_handle)->cno_trigger_func((cno_handle), (evd_handle)))
#define DAT_IA_HA_RELATED(ia_handle, provider, answer) \
    (DAT_HANDLE_TO_PROVIDER(ia_handle)->ia_ha_related_func((ia_handle), (provider), (answer)))
#define DAT_HANDLE_EXTENDEDOP(handle, operation, arguments) \
    (DAT_HANDLE_TO_PROVIDER(handle)->handle_extendedop_func((handle), (operation), (arguments)))
/* End of what is generated. */

#endif
