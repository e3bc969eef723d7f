/* DAT 1.2, the interface for user programs: transfers between hosts by RDMA. Link with -ldat. */
#ifndef UDAT_H
#define UDAT_H

#include <dat/dat.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DAT_VERSION_MAJOR 1
#define DAT_VERSION_MINOR 2

/* What dat_ia_open asks for; a program may define it before. Every call of this library is safe from any thread either way. */
#ifndef DAT_THREADSAFE
#define DAT_THREADSAFE DAT_FALSE
#endif

typedef DAT_HANDLE DAT_CNO_HANDLE;

/* In place of the dispatcher for asynchronous events: there is one elsewhere; there is one, but not for this consumer. */
#define DAT_EVD_ASYNC_EXISTS ((DAT_EVD_HANDLE)1)
#define DAT_EVD_OUT_OF_SCOPE ((DAT_EVD_HANDLE)2)

typedef enum dat_mem_type {
    DAT_MEM_TYPE_VIRTUAL = 0,
    DAT_MEM_TYPE_LMR = 1,
    DAT_MEM_TYPE_SHARED_VIRTUAL = 2
} DAT_MEM_TYPE;

typedef enum dat_handle_type {
    DAT_HANDLE_TYPE_CR = 0,
    DAT_HANDLE_TYPE_EP = 1,
    DAT_HANDLE_TYPE_EVD = 2,
    DAT_HANDLE_TYPE_IA = 3,
    DAT_HANDLE_TYPE_LMR = 4,
    DAT_HANDLE_TYPE_PSP = 5,
    DAT_HANDLE_TYPE_PZ = 6,
    DAT_HANDLE_TYPE_RMR = 7,
    DAT_HANDLE_TYPE_RSP = 8,
    DAT_HANDLE_TYPE_CNO = 9,
    DAT_HANDLE_TYPE_SRQ = 10
} DAT_HANDLE_TYPE;

/* One value of each of three bands: enabled or disabled, waitable or not, and what wakes a waiter. */
typedef enum dat_evd_state {
    DAT_EVD_STATE_ENABLED = 0x01,
    DAT_EVD_STATE_DISABLED = 0x02,
    DAT_EVD_STATE_WAITABLE = 0x04,
    DAT_EVD_STATE_UNWAITABLE = 0x08,
    DAT_EVD_STATE_CONFIG_NOTIFY = 0x10,
    DAT_EVD_STATE_CONFIG_SOLICITED = 0x20,
    DAT_EVD_STATE_CONFIG_THRESHOLD = 0x30
} DAT_EVD_STATE;

struct dat_evd_param {
    DAT_IA_HANDLE ia_handle;
    DAT_COUNT evd_qlen;
    DAT_EVD_STATE evd_state;
    DAT_CNO_HANDLE cno_handle;
    DAT_EVD_FLAGS evd_flags;
};

typedef enum dat_evd_param_mask {
    DAT_EVD_FIELD_IA_HANDLE = 0x01,
    DAT_EVD_FIELD_EVD_QLEN = 0x02,
    DAT_EVD_FIELD_EVD_STATE = 0x04,
    DAT_EVD_FIELD_CNO = 0x08,
    DAT_EVD_FIELD_EVD_FLAGS = 0x10,
    DAT_EVD_FIELD_ALL = 0x1F
} DAT_EVD_PARAM_MASK;

/* Called when a notification object is set, once, on any thread. */
typedef void (*DAT_AGENT_FUNC)(DAT_PVOID instance_data, DAT_EVD_HANDLE evd_handle);

typedef struct dat_os_wait_proxy_agent {
    DAT_PVOID instance_data;
    DAT_AGENT_FUNC proxy_agent_func;
} DAT_OS_WAIT_PROXY_AGENT;

#if defined(__cplusplus)
#define DAT_OS_WAIT_PROXY_AGENT_NULL (DAT_OS_WAIT_PROXY_AGENT())
#elif defined(__GNUC__)
#define DAT_OS_WAIT_PROXY_AGENT_NULL (__extension__(DAT_OS_WAIT_PROXY_AGENT){NULL, NULL})
#else
#define DAT_OS_WAIT_PROXY_AGENT_NULL ((DAT_OS_WAIT_PROXY_AGENT){NULL, NULL})
#endif

typedef struct dat_cno_param {
    DAT_IA_HANDLE ia_handle;
    DAT_OS_WAIT_PROXY_AGENT agent;
} DAT_CNO_PARAM;

typedef enum dat_cno_param_mask {
    DAT_CNO_FIELD_IA_HANDLE = 0x1,
    DAT_CNO_FIELD_AGENT = 0x2,
    DAT_CNO_FIELD_ALL = 0x3
} DAT_CNO_PARAM_MASK;

/* What all who share memory know it by: all bytes count. */
#define DAT_LMR_COOKIE_SIZE 40
typedef char (*DAT_LMR_COOKIE)[DAT_LMR_COOKIE_SIZE];

typedef struct dat_shared_memory {
    DAT_PVOID virtual_address;
    DAT_LMR_COOKIE shared_memory_id;
} DAT_SHARED_MEMORY;

/* By the memory type. */
typedef union dat_region_description {
    DAT_PVOID for_va;
    DAT_LMR_HANDLE for_lmr_handle;
    DAT_SHARED_MEMORY for_shared_memory;
} DAT_REGION_DESCRIPTION;

struct dat_lmr_param {
    DAT_IA_HANDLE ia_handle;
    DAT_MEM_TYPE mem_type;
    DAT_REGION_DESCRIPTION region_desc;
    DAT_VLEN length;
    DAT_PZ_HANDLE pz_handle;
    DAT_MEM_PRIV_FLAGS mem_priv;
    DAT_LMR_CONTEXT lmr_context;
    DAT_RMR_CONTEXT rmr_context;
    DAT_VLEN registered_size;
    DAT_VADDR registered_address;
};

typedef enum dat_lmr_param_mask {
    DAT_LMR_FIELD_IA_HANDLE = 0x001,
    DAT_LMR_FIELD_MEM_TYPE = 0x002,
    DAT_LMR_FIELD_REGION_DESC = 0x004,
    DAT_LMR_FIELD_LENGTH = 0x008,
    DAT_LMR_FIELD_PZ_HANDLE = 0x010,
    DAT_LMR_FIELD_MEM_PRIV = 0x020,
    DAT_LMR_FIELD_LMR_CONTEXT = 0x040,
    DAT_LMR_FIELD_RMR_CONTEXT = 0x080,
    DAT_LMR_FIELD_REGISTERED_SIZE = 0x100,
    DAT_LMR_FIELD_REGISTERED_ADDRESS = 0x200,
    DAT_LMR_FIELD_ALL = 0x3FF
} DAT_LMR_PARAM_MASK;

struct dat_ia_attr {
    char adapter_name[DAT_NAME_MAX_LENGTH];
    char vendor_name[DAT_NAME_MAX_LENGTH];
    DAT_UINT32 hardware_version_major;
    DAT_UINT32 hardware_version_minor;
    DAT_UINT32 firmware_version_major;
    DAT_UINT32 firmware_version_minor;
    DAT_IA_ADDRESS_PTR ia_address_ptr;
    DAT_COUNT max_eps;
    DAT_COUNT max_dto_per_ep;
    DAT_COUNT max_rdma_read_per_ep_in;
    DAT_COUNT max_rdma_read_per_ep_out;
    DAT_COUNT max_evds;
    DAT_COUNT max_evd_qlen;
    DAT_COUNT max_iov_segments_per_dto;
    DAT_COUNT max_lmrs;
    DAT_VLEN max_lmr_block_size;
    DAT_VADDR max_lmr_virtual_address;
    DAT_COUNT max_pzs;
    DAT_VLEN max_message_size;
    DAT_VLEN max_rdma_size;
    DAT_COUNT max_rmrs;
    DAT_VADDR max_rmr_target_address;
    DAT_COUNT max_srqs;
    DAT_COUNT max_ep_per_srq;
    DAT_COUNT max_recv_per_srq;
    DAT_COUNT max_iov_segments_per_rdma_read;
    DAT_COUNT max_iov_segments_per_rdma_write;
    DAT_COUNT max_rdma_read_in;
    DAT_COUNT max_rdma_read_out;
    DAT_BOOLEAN max_rdma_read_per_ep_in_guaranteed;
    DAT_BOOLEAN max_rdma_read_per_ep_out_guaranteed;
    DAT_COUNT num_transport_attr;
    DAT_NAMED_ATTR *transport_attr;
    DAT_COUNT num_vendor_attr;
    DAT_NAMED_ATTR *vendor_attr;
};

typedef enum dat_pz_support { DAT_PZ_UNIQUE = 0, DAT_PZ_SAME = 1, DAT_PZ_SHAREABLE = 2 } DAT_PZ_SUPPORT;

struct dat_provider_attr {
    char provider_name[DAT_NAME_MAX_LENGTH];
    DAT_UINT32 provider_version_major;
    DAT_UINT32 provider_version_minor;
    DAT_UINT32 dapl_version_major;
    DAT_UINT32 dapl_version_minor;
    DAT_MEM_TYPE lmr_mem_types_supported;
    DAT_IOV_OWNERSHIP iov_ownership_on_return;
    DAT_QOS dat_qos_supported;
    DAT_COMPLETION_FLAGS completion_flags_supported;
    DAT_BOOLEAN is_thread_safe;
    DAT_COUNT max_private_data_size;
    DAT_BOOLEAN supports_multipath;
    DAT_EP_CREATOR_FOR_PSP ep_creator;
    DAT_PZ_SUPPORT pz_support;
    DAT_UINT32 optimal_buffer_alignment;
    /* Which streams may share a dispatcher: software, requests, transfers, connections, binds, asynchronous. */
    DAT_BOOLEAN evd_stream_merging_supported[6][6];
    DAT_BOOLEAN srq_supported;
    DAT_COUNT srq_watermarks_supported;
    DAT_BOOLEAN srq_ep_pz_difference_supported;
    DAT_COUNT srq_info_supported;
    DAT_COUNT ep_recv_info_supported;
    DAT_BOOLEAN lmr_sync_req;
    DAT_BOOLEAN dto_async_return_guaranteed;
    DAT_BOOLEAN rdma_write_for_rdma_read_req;
    DAT_COUNT num_provider_specific_attr;
    DAT_NAMED_ATTR *provider_specific_attr;
};

/* One bit for each field of DAT_PROVIDER_ATTR, in their order. */
typedef DAT_UINT64 DAT_PROVIDER_ATTR_MASK;
#define DAT_PROVIDER_FIELD_PROVIDER_NAME ((DAT_PROVIDER_ATTR_MASK)1 << 0)
#define DAT_PROVIDER_FIELD_PROVIDER_VERSION_MAJOR ((DAT_PROVIDER_ATTR_MASK)1 << 1)
#define DAT_PROVIDER_FIELD_PROVIDER_VERSION_MINOR ((DAT_PROVIDER_ATTR_MASK)1 << 2)
#define DAT_PROVIDER_FIELD_DAPL_VERSION_MAJOR ((DAT_PROVIDER_ATTR_MASK)1 << 3)
#define DAT_PROVIDER_FIELD_DAPL_VERSION_MINOR ((DAT_PROVIDER_ATTR_MASK)1 << 4)
#define DAT_PROVIDER_FIELD_LMR_MEM_TYPE_SUPPORTED ((DAT_PROVIDER_ATTR_MASK)1 << 5)
#define DAT_PROVIDER_FIELD_IOV_OWNERSHIP ((DAT_PROVIDER_ATTR_MASK)1 << 6)
#define DAT_PROVIDER_FIELD_DAT_QOS_SUPPORTED ((DAT_PROVIDER_ATTR_MASK)1 << 7)
#define DAT_PROVIDER_FIELD_COMPLETION_FLAGS_SUPPORTED ((DAT_PROVIDER_ATTR_MASK)1 << 8)
#define DAT_PROVIDER_FIELD_IS_THREAD_SAFE ((DAT_PROVIDER_ATTR_MASK)1 << 9)
#define DAT_PROVIDER_FIELD_MAX_PRIVATE_DATA_SIZE ((DAT_PROVIDER_ATTR_MASK)1 << 10)
#define DAT_PROVIDER_FIELD_SUPPORTS_MULTIPATH ((DAT_PROVIDER_ATTR_MASK)1 << 11)
#define DAT_PROVIDER_FIELD_EP_CREATOR ((DAT_PROVIDER_ATTR_MASK)1 << 12)
#define DAT_PROVIDER_FIELD_PZ_SUPPORT ((DAT_PROVIDER_ATTR_MASK)1 << 13)
#define DAT_PROVIDER_FIELD_OPTIMAL_BUFFER_ALIGNMENT ((DAT_PROVIDER_ATTR_MASK)1 << 14)
#define DAT_PROVIDER_FIELD_EVD_STREAM_MERGING_SUPPORTED ((DAT_PROVIDER_ATTR_MASK)1 << 15)
#define DAT_PROVIDER_FIELD_SRQ_SUPPORTED ((DAT_PROVIDER_ATTR_MASK)1 << 16)
#define DAT_PROVIDER_FIELD_SRQ_WATERMARKS_SUPPORTED ((DAT_PROVIDER_ATTR_MASK)1 << 17)
#define DAT_PROVIDER_FIELD_SRQ_EP_PZ_DIFFERENCE_SUPPORTED ((DAT_PROVIDER_ATTR_MASK)1 << 18)
#define DAT_PROVIDER_FIELD_SRQ_INFO_SUPPORTED ((DAT_PROVIDER_ATTR_MASK)1 << 19)
#define DAT_PROVIDER_FIELD_EP_RECV_INFO_SUPPORTED ((DAT_PROVIDER_ATTR_MASK)1 << 20)
#define DAT_PROVIDER_FIELD_LMR_SYNC_REQ ((DAT_PROVIDER_ATTR_MASK)1 << 21)
#define DAT_PROVIDER_FIELD_DTO_ASYNC_RETURN_GUARANTEED ((DAT_PROVIDER_ATTR_MASK)1 << 22)
#define DAT_PROVIDER_FIELD_RDMA_WRITE_FOR_RDMA_READ_REQ ((DAT_PROVIDER_ATTR_MASK)1 << 23)
#define DAT_PROVIDER_FIELD_NUM_PROVIDER_SPECIFIC_ATTR ((DAT_PROVIDER_ATTR_MASK)1 << 24)
#define DAT_PROVIDER_FIELD_PROVIDER_SPECIFIC_ATTR ((DAT_PROVIDER_ATTR_MASK)1 << 25)
#define DAT_PROVIDER_FIELD_ALL ((DAT_PROVIDER_ATTR_MASK)0x3FFFFFF)
#define DAT_PROVIDER_FIELD_NONE ((DAT_PROVIDER_ATTR_MASK)0)

/* The registry. */
DAT_RETURN dat_registry_list_providers(DAT_COUNT max_to_return, DAT_COUNT *entries_returned,
    DAT_PROVIDER_INFO *(dat_provider_list[]));

/* What a return value means: type and subtype. */
DAT_RETURN dat_strerror(DAT_RETURN value, const char **major_message, const char **minor_message);

/* Interface adapters. */
DAT_RETURN dat_ia_openv(const char *ia_name, DAT_COUNT async_evd_min_qlen, DAT_EVD_HANDLE *async_evd_handle,
    DAT_IA_HANDLE *ia_handle, DAT_UINT32 dapl_major, DAT_UINT32 dapl_minor, DAT_BOOLEAN thread_safety);
#define dat_ia_open(name, qlen, async_evd, ia) \
    dat_ia_openv((name), (qlen), (async_evd), (ia), DAT_VERSION_MAJOR, DAT_VERSION_MINOR, DAT_THREADSAFE)
DAT_RETURN dat_ia_query(DAT_IA_HANDLE ia_handle, DAT_EVD_HANDLE *async_evd_handle, DAT_IA_ATTR_MASK ia_attr_mask,
    DAT_IA_ATTR *ia_attributes, DAT_PROVIDER_ATTR_MASK provider_attr_mask, DAT_PROVIDER_ATTR *provider_attributes);
DAT_RETURN dat_ia_close(DAT_IA_HANDLE ia_handle, DAT_CLOSE_FLAGS ia_flags);

/* Any object. */
DAT_RETURN dat_set_consumer_context(DAT_HANDLE dat_handle, DAT_CONTEXT context);
DAT_RETURN dat_get_consumer_context(DAT_HANDLE dat_handle, DAT_CONTEXT *context);
DAT_RETURN dat_get_handle_type(DAT_HANDLE dat_handle, DAT_HANDLE_TYPE *handle_type);

/* Notification objects. */
DAT_RETURN dat_cno_create(DAT_IA_HANDLE ia_handle, DAT_OS_WAIT_PROXY_AGENT agent, DAT_CNO_HANDLE *cno_handle);
DAT_RETURN dat_cno_modify_agent(DAT_CNO_HANDLE cno_handle, DAT_OS_WAIT_PROXY_AGENT agent);
DAT_RETURN dat_cno_query(DAT_CNO_HANDLE cno_handle, DAT_CNO_PARAM_MASK cno_param_mask, DAT_CNO_PARAM *cno_param);
DAT_RETURN dat_cno_free(DAT_CNO_HANDLE cno_handle);
DAT_RETURN dat_cno_wait(DAT_CNO_HANDLE cno_handle, DAT_TIMEOUT timeout, DAT_EVD_HANDLE *evd_handle);

/* Event dispatchers. */
DAT_RETURN dat_evd_create(DAT_IA_HANDLE ia_handle, DAT_COUNT evd_min_qlen, DAT_CNO_HANDLE cno_handle,
    DAT_EVD_FLAGS evd_flags, DAT_EVD_HANDLE *evd_handle);
DAT_RETURN dat_evd_query(DAT_EVD_HANDLE evd_handle, DAT_EVD_PARAM_MASK evd_param_mask, DAT_EVD_PARAM *evd_param);
DAT_RETURN dat_evd_modify_cno(DAT_EVD_HANDLE evd_handle, DAT_CNO_HANDLE cno_handle);
DAT_RETURN dat_evd_enable(DAT_EVD_HANDLE evd_handle);
DAT_RETURN dat_evd_disable(DAT_EVD_HANDLE evd_handle);
DAT_RETURN dat_evd_wait(DAT_EVD_HANDLE evd_handle, DAT_TIMEOUT timeout, DAT_COUNT threshold, DAT_EVENT *event,
    DAT_COUNT *nmore);
DAT_RETURN dat_evd_resize(DAT_EVD_HANDLE evd_handle, DAT_COUNT evd_min_qlen);
DAT_RETURN dat_evd_post_se(DAT_EVD_HANDLE evd_handle, const DAT_EVENT *event);
DAT_RETURN dat_evd_dequeue(DAT_EVD_HANDLE evd_handle, DAT_EVENT *event);
DAT_RETURN dat_evd_free(DAT_EVD_HANDLE evd_handle);
DAT_RETURN dat_evd_set_unwaitable(DAT_EVD_HANDLE evd_handle);
DAT_RETURN dat_evd_clear_unwaitable(DAT_EVD_HANDLE evd_handle);

/* Public service points. */
DAT_RETURN dat_psp_create(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual, DAT_EVD_HANDLE evd_handle,
    DAT_PSP_FLAGS psp_flags, DAT_PSP_HANDLE *psp_handle);
DAT_RETURN dat_psp_query(DAT_PSP_HANDLE psp_handle, DAT_PSP_PARAM_MASK psp_param_mask, DAT_PSP_PARAM *psp_param);
DAT_RETURN dat_psp_free(DAT_PSP_HANDLE psp_handle);
DAT_RETURN dat_psp_create_any(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL *conn_qual, DAT_EVD_HANDLE evd_handle,
    DAT_PSP_FLAGS psp_flags, DAT_PSP_HANDLE *psp_handle);

/* Reserved service points. */
DAT_RETURN dat_rsp_create(DAT_IA_HANDLE ia_handle, DAT_CONN_QUAL conn_qual, DAT_EP_HANDLE ep_handle,
    DAT_EVD_HANDLE evd_handle, DAT_RSP_HANDLE *rsp_handle);
DAT_RETURN dat_rsp_query(DAT_RSP_HANDLE rsp_handle, DAT_RSP_PARAM_MASK rsp_param_mask, DAT_RSP_PARAM *rsp_param);
DAT_RETURN dat_rsp_free(DAT_RSP_HANDLE rsp_handle);

/* Connection requests. */
DAT_RETURN dat_cr_query(DAT_CR_HANDLE cr_handle, DAT_CR_PARAM_MASK cr_param_mask, DAT_CR_PARAM *cr_param);
DAT_RETURN dat_cr_accept(DAT_CR_HANDLE cr_handle, DAT_EP_HANDLE ep_handle, DAT_COUNT private_data_size,
    const void *private_data);
DAT_RETURN dat_cr_reject(DAT_CR_HANDLE cr_handle);
DAT_RETURN dat_cr_handoff(DAT_CR_HANDLE cr_handle, DAT_CONN_QUAL handoff);

/* Endpoints. */
DAT_RETURN dat_ep_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_EVD_HANDLE recv_evd_handle,
    DAT_EVD_HANDLE request_evd_handle, DAT_EVD_HANDLE connect_evd_handle, const DAT_EP_ATTR *ep_attributes,
    DAT_EP_HANDLE *ep_handle);
DAT_RETURN dat_ep_query(DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK ep_param_mask, DAT_EP_PARAM *ep_param);
DAT_RETURN dat_ep_modify(DAT_EP_HANDLE ep_handle, DAT_EP_PARAM_MASK ep_param_mask, const DAT_EP_PARAM *ep_param);
DAT_RETURN dat_ep_connect(DAT_EP_HANDLE ep_handle, DAT_IA_ADDRESS_PTR remote_ia_address,
    DAT_CONN_QUAL remote_conn_qual, DAT_TIMEOUT timeout, DAT_COUNT private_data_size, const void *private_data,
    DAT_QOS quality_of_service, DAT_CONNECT_FLAGS connect_flags);
DAT_RETURN dat_ep_dup_connect(DAT_EP_HANDLE ep_handle, DAT_EP_HANDLE dup_ep_handle, DAT_TIMEOUT timeout,
    DAT_COUNT private_data_size, const void *private_data, DAT_QOS quality_of_service);
DAT_RETURN dat_ep_disconnect(DAT_EP_HANDLE ep_handle, DAT_CLOSE_FLAGS close_flags);
DAT_RETURN dat_ep_post_send(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov,
    DAT_DTO_COOKIE user_cookie, DAT_COMPLETION_FLAGS completion_flags);
DAT_RETURN dat_ep_post_recv(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov,
    DAT_DTO_COOKIE user_cookie, DAT_COMPLETION_FLAGS completion_flags);
DAT_RETURN dat_ep_post_rdma_read(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov,
    DAT_DTO_COOKIE user_cookie, const DAT_RMR_TRIPLET *remote_buffer, DAT_COMPLETION_FLAGS completion_flags);
DAT_RETURN dat_ep_post_rdma_write(DAT_EP_HANDLE ep_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov,
    DAT_DTO_COOKIE user_cookie, const DAT_RMR_TRIPLET *remote_buffer, DAT_COMPLETION_FLAGS completion_flags);
DAT_RETURN dat_ep_get_status(DAT_EP_HANDLE ep_handle, DAT_EP_STATE *ep_state, DAT_BOOLEAN *recv_idle,
    DAT_BOOLEAN *request_idle);
DAT_RETURN dat_ep_free(DAT_EP_HANDLE ep_handle);
DAT_RETURN dat_ep_reset(DAT_EP_HANDLE ep_handle);
DAT_RETURN dat_ep_create_with_srq(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_EVD_HANDLE recv_evd_handle,
    DAT_EVD_HANDLE request_evd_handle, DAT_EVD_HANDLE connect_evd_handle, DAT_SRQ_HANDLE srq_handle,
    const DAT_EP_ATTR *ep_attributes, DAT_EP_HANDLE *ep_handle);
DAT_RETURN dat_ep_recv_query(DAT_EP_HANDLE ep_handle, DAT_COUNT *nbufs_allocated, DAT_COUNT *bufs_alloc_span);
DAT_RETURN dat_ep_set_watermark(DAT_EP_HANDLE ep_handle, DAT_COUNT soft_high_watermark,
    DAT_COUNT hard_high_watermark);

/* Shared receive queues. */
DAT_RETURN dat_srq_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE pz_handle, DAT_SRQ_ATTR *srq_attr,
    DAT_SRQ_HANDLE *srq_handle);
DAT_RETURN dat_srq_free(DAT_SRQ_HANDLE srq_handle);
DAT_RETURN dat_srq_post_recv(DAT_SRQ_HANDLE srq_handle, DAT_COUNT num_segments, DAT_LMR_TRIPLET *local_iov,
    DAT_DTO_COOKIE user_cookie);
DAT_RETURN dat_srq_query(DAT_SRQ_HANDLE srq_handle, DAT_SRQ_PARAM_MASK srq_param_mask, DAT_SRQ_PARAM *srq_param);
DAT_RETURN dat_srq_resize(DAT_SRQ_HANDLE srq_handle, DAT_COUNT srq_max_recv_dto);
DAT_RETURN dat_srq_set_lw(DAT_SRQ_HANDLE srq_handle, DAT_COUNT low_watermark);

/* Protection zones. */
DAT_RETURN dat_pz_create(DAT_IA_HANDLE ia_handle, DAT_PZ_HANDLE *pz_handle);
DAT_RETURN dat_pz_query(DAT_PZ_HANDLE pz_handle, DAT_PZ_PARAM_MASK pz_param_mask, DAT_PZ_PARAM *pz_param);
DAT_RETURN dat_pz_free(DAT_PZ_HANDLE pz_handle);

/* Local memory regions. */
DAT_RETURN dat_lmr_create(DAT_IA_HANDLE ia_handle, DAT_MEM_TYPE mem_type, DAT_REGION_DESCRIPTION region_description,
    DAT_VLEN length, DAT_PZ_HANDLE pz_handle, DAT_MEM_PRIV_FLAGS mem_privileges, DAT_LMR_HANDLE *lmr_handle,
    DAT_LMR_CONTEXT *lmr_context, DAT_RMR_CONTEXT *rmr_context, DAT_VLEN *registered_size,
    DAT_VADDR *registered_address);
DAT_RETURN dat_lmr_query(DAT_LMR_HANDLE lmr_handle, DAT_LMR_PARAM_MASK lmr_param_mask, DAT_LMR_PARAM *lmr_param);
DAT_RETURN dat_lmr_free(DAT_LMR_HANDLE lmr_handle);
DAT_RETURN dat_lmr_sync_rdma_read(DAT_IA_HANDLE ia_handle, const DAT_LMR_TRIPLET *local_segments,
    DAT_VLEN num_segments);
DAT_RETURN dat_lmr_sync_rdma_write(DAT_IA_HANDLE ia_handle, const DAT_LMR_TRIPLET *local_segments,
    DAT_VLEN num_segments);

/* Remote memory regions. */
DAT_RETURN dat_rmr_create(DAT_PZ_HANDLE pz_handle, DAT_RMR_HANDLE *rmr_handle);
DAT_RETURN dat_rmr_query(DAT_RMR_HANDLE rmr_handle, DAT_RMR_PARAM_MASK rmr_param_mask, DAT_RMR_PARAM *rmr_param);
DAT_RETURN dat_rmr_bind(DAT_RMR_HANDLE rmr_handle, const DAT_LMR_TRIPLET *lmr_triplet,
    DAT_MEM_PRIV_FLAGS mem_privileges, DAT_EP_HANDLE ep_handle, DAT_RMR_COOKIE user_cookie,
    DAT_COMPLETION_FLAGS completion_flags, DAT_RMR_CONTEXT *rmr_context);
DAT_RETURN dat_rmr_free(DAT_RMR_HANDLE rmr_handle);

#ifdef __cplusplus
}

/* Flags and masks are put together in C++ as they are in C. */
#define DAT_COMBINED_(type) \
    inline type operator|(type one, type other) \
    { \
        return static_cast<type>(static_cast<DAT_UINT32>(one) | static_cast<DAT_UINT32>(other)); \
    }
DAT_COMBINED_(DAT_COMPLETION_FLAGS)
DAT_COMBINED_(DAT_QOS)
DAT_COMBINED_(DAT_CONNECT_FLAGS)
DAT_COMBINED_(DAT_EVD_FLAGS)
DAT_COMBINED_(DAT_MEM_PRIV_FLAGS)
DAT_COMBINED_(DAT_CNO_PARAM_MASK)
DAT_COMBINED_(DAT_CR_PARAM_MASK)
DAT_COMBINED_(DAT_EVD_PARAM_MASK)
DAT_COMBINED_(DAT_LMR_PARAM_MASK)
DAT_COMBINED_(DAT_PSP_PARAM_MASK)
DAT_COMBINED_(DAT_RMR_PARAM_MASK)
DAT_COMBINED_(DAT_RSP_PARAM_MASK)
DAT_COMBINED_(DAT_SRQ_PARAM_MASK)
#undef DAT_COMBINED_
#endif

#endif
