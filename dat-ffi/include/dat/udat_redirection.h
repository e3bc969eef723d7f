/* DAT 1.2: the table of functions by which a provider is called. */
#ifndef UDAT_REDIRECTION_H
#define UDAT_REDIRECTION_H

#include <dat/udat.h>

/* Objects of a provider begin with the address of its table: a handle is the address of an object. */
typedef struct dat_provider {
    const char *device_name;
    DAT_PVOID extension;
    DAT_RETURN (*ia_open_func)(const char *ia_name, DAT_COUNT async_evd_min_qlen, DAT_EVD_HANDLE *async_evd_handle,
        DAT_IA_HANDLE *ia_handle);
    DAT_RETURN (*ia_query_func)(DAT_IA_HANDLE ia_handle, DAT_EVD_HANDLE *async_evd_handle,
        DAT_IA_ATTR_MASK ia_attr_mask, DAT_IA_ATTR *ia_attributes, DAT_PROVIDER_ATTR_MASK provider_attr_mask,
        DAT_PROVIDER_ATTR *provider_attributes);
    DAT_RETURN (*ia_close_func)(DAT_IA_HANDLE ia_handle, DAT_CLOSE_FLAGS ia_flags);
    DAT_RETURN (*set_consumer_context_func)(DAT_HANDLE dat_handle, DAT_CONTEXT context);
    DAT_RETURN (*get_consumer_context_func)(DAT_HANDLE dat_handle, DAT_CONTEXT *context);
    DAT_RETURN (*get_handle_type_func)(DAT_HANDLE dat_handle, DAT_HANDLE_TYPE *handle_type);
    DAT_RETURN (*cno_create_func)(DAT_IA_HANDLE ia_handle, DAT_OS_WAIT_PROXY_AGENT agent, DAT_CNO_HANDLE *cno_handle);
    DAT_RETURN (*cno_modify_agent_func)(DAT_CNO_HANDLE cno_handle, DAT_OS_WAIT_PROXY_AGENT agent);
    DAT_RETURN (*cno_query_func)(DAT_CNO_HANDLE cno_handle, DAT_CNO_PARAM_MASK cno_param_mask,
        DAT_CNO_PARAM *cno_param);
    DAT_RETURN (*cno_free_func)(DAT_CNO_HANDLE cno_handle);
    DAT_RETURN (*cno_wait_func)(DAT_CNO_HANDLE cno_handle, DAT_TIMEOUT timeout, DAT_EVD_HANDLE *evd_handle);
    DAT_RETURN (*cr_query_func)(DAT_CR_HANDLE cr_handle, DAT_CR_PARAM_MASK cr_param_mask, DAT_CR_PARAM *cr_param);
    DAT_RETURN (*cr_accept_func)(DAT_CR_HANDLE cr_handle, DAT_EP_HANDLE ep_handle, DAT_COUNT private_data_size,
        const void *private_data);
    DAT_RETURN (*cr_reject_func)(DAT_CR_HANDLE cr_handle);
    DAT_RETURN (*cr_handoff_func)(DAT_CR_HANDLE cr_handle, DAT_CONN_QUAL handoff);
    DAT_RETURN (*evd_create_func)(DAT_IA_HANDLE ia_handle, DAT_COUNT evd_min_qlen, DAT_CNO_HANDLE cno_handle,
        DAT_EVD_FLAGS evd_flags, DAT_EVD_HANDLE *evd_handle);
    DAT_RETURN (*evd_query_func)(DAT_EVD_HANDLE evd_handle, DAT_EVD_PARAM_MASK evd_param_mask,
        DAT_EVD_PARAM *evd_param);
    DAT_RETURN (*evd_modify_cno_func)(DAT_EVD_HANDLE evd_handle, DAT_CNO_HANDLE cno_handle);
    DAT_RETURN (*evd_enable_func)(DAT_EVD_HANDLE evd_handle);
    DAT_RETURN (*evd_disable_func)(DAT_EVD_HANDLE evd_handle);
    DAT_RETURN (*evd_wait_func)(DAT_EVD_HANDLE evd_handle, DAT_TIMEOUT timeout, DAT_COUNT threshold, DAT_EVENT *event,
        DAT_COUNT *nmore);
    DAT_RETURN (*evd_resize_func)(DAT_EVD_HANDLE evd_handle, DAT_COUNT evd_min_qlen);
    DAT_RETURN (*evd_post_se_func)(DAT_EVD_HANDLE evd_handle, const DAT_EVENT *event);
    DAT_RETURN (*evd_dequeue_func)(DAT_EVD_HANDLE evd_handle, DAT_EVENT *event);
    DAT_RETURN (*evd_free_func)(DAT_EVD_HANDLE evd_handle);
    DAT_RETURN (*ep_create_func)(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_EVD_HANDLE recv_evd_handle,
        DAT_EVD_HANDLE request_evd_handle, DAT_EVD_HANDLE connect_evd_handle, const DAT_EP_ATTR *ep_attributes,
        DAT_EP_HANDLE *ep_handle);
    DAT_RETURN (*ep_query_func)(DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK ep_param_mask, DAT_EP_PARAM *ep_param);
    DAT_RETURN (*ep_modify_func)(DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK ep_param_mask,
        const DAT_EP_PARAM *ep_param);
    DAT_RETURN (*ep_connect_func)(DAT_EP_HANDLE ep_handle, DAT_IA_ADDRESS_PTR remote_ia_address,
        DAT_CONN_QUAL remote_conn_qual, DAT_TIMEOUT timeout, DAT_COUNT private_data_size, const void *private_data,
        DAT_QOS quality_of_service, DAT_CONNECT_FLAGS connect_flags);
    DAT_RETURN (*ep_dup_connect_func)(DAT_EP_HANDLE ep_handle, DAT_EP_HANDLE dup_ep_handle, DAT_TIMEOUT timeout,
        DAT_COUNT private_data_size, const void *private_data, DAT_QOS quality_of_service);
    DAT_RETURN (*ep_disconnect_func)(DAT_EP_HANDLE ep_handle, DAT_CLOSE_FLAGS close_flags);
    DAT_RETURN (*ep_post_send_func)(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov,
        DAT_DTO_COOKIE user_cookie, DAT_COMPLETION_FLAGS completion_flags);
    DAT_RETURN (*ep_post_recv_func)(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov,
        DAT_DTO_COOKIE user_cookie, DAT_COMPLETION_FLAGS completion_flags);
    DAT_RETURN (*ep_post_rdma_read_func)(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov,
        DAT_DTO_COOKIE user_cookie, const DAT_RMR_TRIPLET *remote_buffer, DAT_COMPLETION_FLAGS completion_flags);
    DAT_RETURN (*ep_post_rdma_write_func)(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov,
        DAT_DTO_COOKIE user_cookie, const DAT_RMR_TRIPLET *remote_buffer, DAT_COMPLETION_FLAGS completion_flags);
    DAT_RETURN (*ep_get_status_func)(DAT_EP_HANDLE ep_handle, DAT_EP_STATE *ep_state, DAT_BOOLEAN *recv_idle,
        DAT_BOOLEAN *request_idle);
    DAT_RETURN (*ep_free_func)(DAT_EP_HANDLE ep_handle);
    DAT_RETURN (*lmr_create_func)(DAT_IA_HANDLE ia_handle, DAT_MEM_TYPE mem_type,
        DAT_REGION_DESCRIPTION region_description, DAT_VLEN length, DAT_PZ_HANDLE pz_handle,
        DAT_MEM_PRIV_FLAGS mem_privileges, DAT_LMR_HANDLE *lmr_handle, DAT_LMR_CONTEXT *lmr_context,
        DAT_RMR_CONTEXT *rmr_context, DAT_VLEN *registered_size, DAT_VADDR *registered_address);
    DAT_RETURN (*lmr_query_func)(DAT_LMR_HANDLE lmr_handle, DAT_LMR_PARAM_MASK lmr_param_mask,
        DAT_LMR_PARAM *lmr_param);
    DAT_RETURN (*lmr_free_func)(DAT_LMR_HANDLE lmr_handle);
    DAT_RETURN (*rmr_create_func)(DAT_PZ_HANDLE pz_handle, DAT_RMR_HANDLE *rmr_handle);
    DAT_RETURN (*rmr_query_func)(DAT_RMR_HANDLE rmr_handle, DAT_RMR_PARAM_MASK rmr_param_mask,
        DAT_RMR_PARAM *rmr_param);
    DAT_RETURN (*rmr_bind_func)(DAT_RMR_HANDLE rmr_handle, const DAT_LMR_TRIPLET *lmr_triplet,
        DAT_MEM_PRIV_FLAGS mem_privileges, DAT_EP_HANDLE ep_handle, DAT_RMR_COOKIE user_cookie,
        DAT_COMPLETION_FLAGS completion_flags, DAT_RMR_CONTEXT *rmr_context);
    DAT_RETURN (*rmr_free_func)(DAT_RMR_HANDLE rmr_handle);
    DAT_RETURN (*psp_create_func)(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual, DAT_EVD_HANDLE evd_handle,
        DAT_PSP_FLAGS psp_flags, DAT_PSP_HANDLE *psp_handle);
    DAT_RETURN (*psp_query_func)(DAT_PSP_HANDLE psp_handle, DAT_PSP_PARAM_MASK psp_param_mask,
        DAT_PSP_PARAM *psp_param);
    DAT_RETURN (*psp_free_func)(DAT_PSP_HANDLE psp_handle);
    DAT_RETURN (*rsp_create_func)(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual, DAT_EP_HANDLE ep_handle,
        DAT_EVD_HANDLE evd_handle, DAT_RSP_HANDLE *rsp_handle);
    DAT_RETURN (*rsp_query_func)(DAT_RSP_HANDLE rsp_handle, DAT_RSP_PARAM_MASK rsp_param_mask,
        DAT_RSP_PARAM *rsp_param);
    DAT_RETURN (*rsp_free_func)(DAT_RSP_HANDLE rsp_handle);
    DAT_RETURN (*pz_create_func)(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE *pz_handle);
    DAT_RETURN (*pz_query_func)(DAT_PZ_HANDLE pz_handle, DAT_PZ_PARAM_MASK pz_param_mask, DAT_PZ_PARAM *pz_param);
    DAT_RETURN (*pz_free_func)(DAT_PZ_HANDLE pz_handle);
    DAT_RETURN (*psp_create_any_func)(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL *conn_qual, DAT_EVD_HANDLE evd_handle,
        DAT_PSP_FLAGS psp_flags, DAT_PSP_HANDLE *psp_handle);
    DAT_RETURN (*ep_reset_func)(DAT_EP_HANDLE ep_handle);
    DAT_RETURN (*evd_set_unwaitable_func)(DAT_EVD_HANDLE evd_handle);
    DAT_RETURN (*evd_clear_unwaitable_func)(DAT_EVD_HANDLE evd_handle);
    DAT_RETURN (*lmr_sync_rdma_read_func)(DAT_IA_HANDLE ia_handle, const DAT_LMR_TRIPLET *local_segments,
        DAT_VLEN num_segments);
    DAT_RETURN (*lmr_sync_rdma_write_func)(DAT_IA_HANDLE ia_handle, const DAT_LMR_TRIPLET *local_segments,
        DAT_VLEN num_segments);
    DAT_RETURN (*ep_create_with_srq_func)(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle,
        DAT_EVD_HANDLE recv_evd_handle, DAT_EVD_HANDLE request_evd_handle, DAT_EVD_HANDLE connect_evd_handle,
        DAT_SRQ_HANDLE srq_handle, const DAT_EP_ATTR *ep_attributes, DAT_EP_HANDLE *ep_handle);
    DAT_RETURN (*ep_recv_query_func)(DAT_EP_HANDLE ep_handle, DAT_COUNT *nbufs_allocated, DAT_COUNT *bufs_alloc_span);
    DAT_RETURN (*ep_set_watermark_func)(DAT_EP_HANDLE ep_handle, DAT_COUNT soft_high_watermark,
        DAT_COUNT hard_high_watermark);
    DAT_RETURN (*srq_create_func)(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_SRQ_ATTR *srq_attr,
        DAT_SRQ_HANDLE *srq_handle);
    DAT_RETURN (*srq_free_func)(DAT_SRQ_HANDLE srq_handle);
    DAT_RETURN (*srq_post_recv_func)(DAT_SRQ_HANDLE srq_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov,
        DAT_DTO_COOKIE user_cookie);
    DAT_RETURN (*srq_query_func)(DAT_SRQ_HANDLE srq_handle, DAT_SRQ_PARAM_MASK srq_param_mask,
        DAT_SRQ_PARAM *srq_param);
    DAT_RETURN (*srq_resize_func)(DAT_SRQ_HANDLE srq_handle, DAT_COUNT srq_max_recv_dto);
    DAT_RETURN (*srq_set_lw_func)(DAT_SRQ_HANDLE srq_handle, DAT_COUNT low_watermark);
} DAT_PROVIDER;

#endif
