/* DAT 2.0, the interface for user programs: transfers between hosts by RDMA. Link with -ldat2. */
#ifndef DAT2_UDAT_H
#define DAT2_UDAT_H

#include <dat2/dat.h>
#include <dat2/udat_config.h>
#include <dat2/udat_vendor_specific.h>
#include <dat_common/calls.h>

#ifdef __cplusplus
extern "C" {
#endif

/* These differ from DAT 1.2. */
DAT_RETURN dat_ia_openv(const DAT_NAME_PTR ia_name, DAT_COUNT async_evd_min_qlen, DAT_EVD_HANDLE *async_evd_handle,
    DAT_IA_HANDLE *ia_handle, DAT_UINT32 dapl_major, DAT_UINT32 dapl_minor, DAT_BOOLEAN thread_safety);
#define dat_ia_open(name, qlen, async_evd, ia) \
    dat_ia_openv((name), (qlen), (async_evd), (ia), DAT_VERSION_MAJOR, DAT_VERSION_MINOR, DAT_THREADSAFE)
/* Generated from dat-ffi/src/list.rs, until the end mark. */
DAT_RETURN dat_cr_accept(DAT_CR_HANDLE cr_handle, DAT_EP_HANDLE ep_handle, DAT_COUNT private_data_size,
    const DAT_PVOID private_data);
DAT_RETURN dat_cr_reject(DAT_CR_HANDLE cr_handle, DAT_COUNT private_data_size, const DAT_PVOID private_data);
DAT_RETURN dat_ep_connect(DAT_EP_HANDLE ep_handle, DAT_IA_ADDRESS_PTR remote_ia_address,
    DAT_CONN_QUAL remote_conn_qual, DAT_TIMEOUT timeout, DAT_COUNT private_data_size, const DAT_PVOID private_data,
    DAT_QOS quality_of_service, DAT_CONNECT_FLAGS connect_flags);
DAT_RETURN dat_ep_dup_connect(DAT_EP_HANDLE ep_handle, DAT_EP_HANDLE dup_ep_handle, DAT_TIMEOUT timeout,
    DAT_COUNT private_data_size, const DAT_PVOID private_data, DAT_QOS quality_of_service);
DAT_RETURN dat_lmr_create(DAT_IA_HANDLE ia_handle, DAT_MEM_TYPE mem_type, DAT_REGION_DESCRIPTION region_description,
    DAT_VLEN length, DAT_PZ_HANDLE pz_handle, DAT_MEM_PRIV_FLAGS mem_privileges, DAT_VA_TYPE va_type,
    DAT_LMR_HANDLE *lmr_handle, DAT_LMR_CONTEXT *lmr_context, DAT_RMR_CONTEXT *rmr_context, DAT_VLEN *registered_size,
    DAT_VADDR *registered_address);
DAT_RETURN dat_rmr_bind(DAT_RMR_HANDLE rmr_handle, DAT_LMR_HANDLE lmr_handle, const DAT_LMR_TRIPLET *lmr_triplet,
    DAT_MEM_PRIV_FLAGS mem_privileges, DAT_VA_TYPE va_type, DAT_EP_HANDLE ep_handle, DAT_RMR_COOKIE user_cookie,
    DAT_COMPLETION_FLAGS completion_flags, DAT_RMR_CONTEXT *rmr_context);
/* End of what is generated. */

/* Not in DAT 1.2. libdat2 exports only the last one; the macros of <dat2/udat_redirection.h>
 * call the others. */
/* Generated from dat-ffi/src/list.rs, until the end mark. */
DAT_RETURN dat_csp_create(DAT_IA_HANDLE ia_handle, DAT_COMM *comm, DAT_IA_ADDRESS_PTR address,
    DAT_EVD_HANDLE evd_handle, DAT_CSP_HANDLE *csp_handle);
DAT_RETURN dat_csp_query(DAT_CSP_HANDLE csp_handle, DAT_CSP_PARAM_MASK csp_param_mask, DAT_CSP_PARAM *csp_param);
DAT_RETURN dat_csp_free(DAT_CSP_HANDLE csp_handle);
DAT_RETURN dat_ep_common_connect(DAT_EP_HANDLE ep_handle, DAT_IA_ADDRESS_PTR remote_ia_address, DAT_TIMEOUT timeout,
    DAT_COUNT private_data_size, const DAT_PVOID private_data);
DAT_RETURN dat_rmr_create_for_ep(DAT_PZ_HANDLE pz_handle, DAT_RMR_HANDLE *rmr_handle);
DAT_RETURN dat_ep_post_send_with_invalidate(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments,
    DAT_LMR_TRIPLET *local_iov, DAT_DTO_COOKIE user_cookie, DAT_COMPLETION_FLAGS completion_flags,
    DAT_BOOLEAN invalidate_flag, DAT_RMR_CONTEXT rmr_context);
DAT_RETURN dat_ep_post_rdma_read_to_rmr(DAT_EP_HANDLE ep_handle, const DAT_RMR_TRIPLET *local_iov,
    DAT_DTO_COOKIE user_cookie, const DAT_RMR_TRIPLET *remote_buffer, DAT_COMPLETION_FLAGS completion_flags);
DAT_RETURN dat_cno_fd_create(DAT_IA_HANDLE ia_handle, DAT_FD *file_descriptor, DAT_CNO_HANDLE *cno_handle);
DAT_RETURN dat_cno_trigger(DAT_CNO_HANDLE cno_handle, DAT_EVD_HANDLE *evd_handle);
/* End of what is generated. */

/* An extended operation with arguments of its own: see <dat2/dat_ib_extensions.h>. */
DAT_RETURN dat_extension_op(DAT_HANDLE handle, DAT_EXTENDED_OP operation, ...);

#ifdef __cplusplus
}
#endif

#endif
