/* DAT 1.2, the interface for user programs: transfers between hosts by RDMA. Link with -ldat. */
#ifndef UDAT_H
#define UDAT_H

#include <dat/dat.h>
#include <dat_common/calls.h>

#define DAT_VERSION_MAJOR 1
#define DAT_VERSION_MINOR 2

/* Thread safety that dat_ia_open requests; a program may define it first. This library is
 * thread-safe with either value. */
#ifndef DAT_THREADSAFE
#define DAT_THREADSAFE DAT_FALSE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* These differ in DAT 2.0. */
DAT_RETURN dat_ia_openv(const char *ia_name, DAT_COUNT async_evd_min_qlen, DAT_EVD_HANDLE *async_evd_handle,
    DAT_IA_HANDLE *ia_handle, DAT_UINT32 dapl_major, DAT_UINT32 dapl_minor, DAT_BOOLEAN thread_safety);
#define dat_ia_open(name, qlen, async_evd, ia) \
    dat_ia_openv((name), (qlen), (async_evd), (ia), DAT_VERSION_MAJOR, DAT_VERSION_MINOR, DAT_THREADSAFE)
/* Generated from dat-ffi/src/list.rs, until the end mark. */
DAT_RETURN dat_cr_accept(DAT_CR_HANDLE cr_handle, DAT_EP_HANDLE ep_handle, DAT_COUNT private_data_size,
    const void *private_data);
DAT_RETURN dat_cr_reject(DAT_CR_HANDLE cr_handle);
DAT_RETURN dat_ep_connect(DAT_EP_HANDLE ep_handle, DAT_IA_ADDRESS_PTR remote_ia_address,
    DAT_CONN_QUAL remote_conn_qual, DAT_TIMEOUT timeout, DAT_COUNT private_data_size, const void *private_data,
    DAT_QOS quality_of_service, DAT_CONNECT_FLAGS connect_flags);
DAT_RETURN dat_ep_dup_connect(DAT_EP_HANDLE ep_handle, DAT_EP_HANDLE dup_ep_handle, DAT_TIMEOUT timeout,
    DAT_COUNT private_data_size, const void *private_data, DAT_QOS quality_of_service);
DAT_RETURN dat_lmr_create(DAT_IA_HANDLE ia_handle, DAT_MEM_TYPE mem_type, DAT_REGION_DESCRIPTION region_description,
    DAT_VLEN length, DAT_PZ_HANDLE pz_handle, DAT_MEM_PRIV_FLAGS mem_privileges, DAT_LMR_HANDLE *lmr_handle,
    DAT_LMR_CONTEXT *lmr_context, DAT_RMR_CONTEXT *rmr_context, DAT_VLEN *registered_size,
    DAT_VADDR *registered_address);
DAT_RETURN dat_rmr_bind(DAT_RMR_HANDLE rmr_handle, const DAT_LMR_TRIPLET *lmr_triplet,
    DAT_MEM_PRIV_FLAGS mem_privileges, DAT_EP_HANDLE ep_handle, DAT_RMR_COOKIE user_cookie,
    DAT_COMPLETION_FLAGS completion_flags, DAT_RMR_CONTEXT *rmr_context);
/* End of what is generated. */

#ifdef __cplusplus
}
#endif

#endif
