/* DAT 1.2 and 2.0: objects of user programs, and attributes of adapters and providers. */
#ifndef DAT_COMMON_OBJECTS_H
#define DAT_COMMON_OBJECTS_H

#include <dat_common/types.h>

typedef DAT_HANDLE DAT_CNO_HANDLE;

/* Instead of the asynchronous event dispatcher: one exists elsewhere; this consumer cannot have
 * it. */
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
#if DAT_COMMON_EDITION >= 20
    DAT_HANDLE_TYPE_CSP = 11,
    DAT_HANDLE_TYPE_EXTENSION_BASE = 12,
#endif
    DAT_HANDLE_TYPE_SRQ = 10
} DAT_HANDLE_TYPE;

/* One value of each of three groups: enabled or disabled, waitable or not, and the wake-up mode. */
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

/* Called once when a notification object is triggered, on any thread. */
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

#if DAT_COMMON_EDITION >= 20
typedef enum dat_proxy_type { DAT_PROXY_TYPE_NONE = 0, DAT_PROXY_TYPE_AGENT = 1, DAT_PROXY_TYPE_FD = 2 } DAT_PROXY_TYPE;

typedef struct dat_cno_param {
    DAT_IA_HANDLE ia_handle;
    DAT_PROXY_TYPE proxy_type;
    union {
        DAT_OS_WAIT_PROXY_AGENT agent;
        DAT_FD fd;
        DAT_PVOID none;
    } proxy;
} DAT_CNO_PARAM;

/* DAT_CNO_FIELD_ALL is not a mask of the others; programs pass it all the same. */
typedef enum dat_cno_param_mask {
    DAT_CNO_FIELD_IA_HANDLE = 0x1,
    DAT_CNO_FIELD_PROXY_TYPE = 0x2,
    DAT_CNO_FIELD_PROXY = 0x3,
    DAT_CNO_FIELD_ALL = 0x4
} DAT_CNO_PARAM_MASK;
#else
typedef struct dat_cno_param {
    DAT_IA_HANDLE ia_handle;
    DAT_OS_WAIT_PROXY_AGENT agent;
} DAT_CNO_PARAM;

typedef enum dat_cno_param_mask {
    DAT_CNO_FIELD_IA_HANDLE = 0x1,
    DAT_CNO_FIELD_AGENT = 0x2,
    DAT_CNO_FIELD_ALL = 0x3
} DAT_CNO_PARAM_MASK;
#endif

/* Name of shared memory for all that share it; all bytes are compared. */
#define DAT_LMR_COOKIE_SIZE 40
typedef char (*DAT_LMR_COOKIE)[DAT_LMR_COOKIE_SIZE];

typedef struct dat_shared_memory {
    DAT_PVOID virtual_address;
    DAT_LMR_COOKIE shared_memory_id;
} DAT_SHARED_MEMORY;

/* The memory type selects the member. */
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
#if DAT_COMMON_EDITION >= 20
    DAT_VA_TYPE va_type;
#endif
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
#if DAT_COMMON_EDITION >= 20
    DAT_LMR_FIELD_VA_TYPE = 0x040,
    DAT_LMR_FIELD_LMR_CONTEXT = 0x080,
    DAT_LMR_FIELD_RMR_CONTEXT = 0x100,
    DAT_LMR_FIELD_REGISTERED_SIZE = 0x200,
    DAT_LMR_FIELD_REGISTERED_ADDRESS = 0x400,
    DAT_LMR_FIELD_ALL = 0x7FF
#else
    DAT_LMR_FIELD_LMR_CONTEXT = 0x040,
    DAT_LMR_FIELD_RMR_CONTEXT = 0x080,
    DAT_LMR_FIELD_REGISTERED_SIZE = 0x100,
    DAT_LMR_FIELD_REGISTERED_ADDRESS = 0x200,
    DAT_LMR_FIELD_ALL = 0x3FF
#endif
} DAT_LMR_PARAM_MASK;

#if DAT_COMMON_EDITION >= 20
/* Owner of an adapter's extensions. */
typedef enum dat_extension { DAT_EXTENSION_NONE = 0, DAT_EXTENSION_IB = 1, DAT_EXTENSION_IW = 2 } DAT_EXTENSION;
#endif

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
    DAT_COMMON_LENGTH max_lmr_block_size;
    DAT_VADDR max_lmr_virtual_address;
    DAT_COUNT max_pzs;
    DAT_COMMON_LENGTH max_message_size;
    DAT_COMMON_LENGTH max_rdma_size;
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
#if DAT_COMMON_EDITION >= 20
    DAT_BOOLEAN zb_supported;
    DAT_EXTENSION extension_supported;
    DAT_COUNT extension_version;
#endif
    DAT_COUNT num_transport_attr;
    DAT_NAMED_ATTR *transport_attr;
    DAT_COUNT num_vendor_attr;
    DAT_NAMED_ATTR *vendor_attr;
};

#if DAT_COMMON_EDITION >= 20
typedef enum dat_pz_support { DAT_PZ_UNIQUE = 0, DAT_PZ_SHAREABLE = 1 } DAT_PZ_SUPPORT;

/* Load balancing between related adapters. */
typedef unsigned int DAT_HA_LB;
#define DAT_HA_LB_NONE ((DAT_HA_LB)0)
#define DAT_HA_LB_INTERCOMM ((DAT_HA_LB)1)
#define DAT_HA_LB_INTRACOMM ((DAT_HA_LB)2)
#else
typedef enum dat_pz_support { DAT_PZ_UNIQUE = 0, DAT_PZ_SAME = 1, DAT_PZ_SHAREABLE = 2 } DAT_PZ_SUPPORT;
#endif

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
    /* Streams that may share a dispatcher, in this order: software, requests, transfers,
     * connections, binds, asynchronous. */
    DAT_BOOLEAN evd_stream_merging_supported[6][6];
    DAT_BOOLEAN srq_supported;
    DAT_COUNT srq_watermarks_supported;
    DAT_BOOLEAN srq_ep_pz_difference_supported;
    DAT_COUNT srq_info_supported;
    DAT_COUNT ep_recv_info_supported;
    DAT_BOOLEAN lmr_sync_req;
    DAT_BOOLEAN dto_async_return_guaranteed;
    DAT_BOOLEAN rdma_write_for_rdma_read_req;
#if DAT_COMMON_EDITION >= 20
    DAT_BOOLEAN rdma_read_lmr_rmr_context_exposure;
    DAT_RMR_SCOPE rmr_scope_supported;
    DAT_BOOLEAN is_signal_safe;
    DAT_BOOLEAN ha_supported;
    DAT_HA_LB ha_loadbalancing;
#endif
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
#if DAT_COMMON_EDITION >= 20
#define DAT_PROVIDER_FIELD_RDMA_READ_LMR_RMR_CONTEXT_EXPOSURE ((DAT_PROVIDER_ATTR_MASK)1 << 24)
#define DAT_PROVIDER_FIELD_RMR_SCOPE_SUPPORTED ((DAT_PROVIDER_ATTR_MASK)1 << 25)
#define DAT_PROVIDER_FIELD_IS_SIGNAL_SAFE ((DAT_PROVIDER_ATTR_MASK)1 << 26)
#define DAT_PROVIDER_FIELD_HA_SUPPORTED ((DAT_PROVIDER_ATTR_MASK)1 << 27)
#define DAT_PROVIDER_FIELD_HA_LB ((DAT_PROVIDER_ATTR_MASK)1 << 28)
#define DAT_PROVIDER_FIELD_NUM_PROVIDER_SPECIFIC_ATTR ((DAT_PROVIDER_ATTR_MASK)1 << 29)
#define DAT_PROVIDER_FIELD_PROVIDER_SPECIFIC_ATTR ((DAT_PROVIDER_ATTR_MASK)1 << 30)
#define DAT_PROVIDER_FIELD_ALL ((DAT_PROVIDER_ATTR_MASK)0x7FFFFFFF)
#else
#define DAT_PROVIDER_FIELD_NUM_PROVIDER_SPECIFIC_ATTR ((DAT_PROVIDER_ATTR_MASK)1 << 24)
#define DAT_PROVIDER_FIELD_PROVIDER_SPECIFIC_ATTR ((DAT_PROVIDER_ATTR_MASK)1 << 25)
#define DAT_PROVIDER_FIELD_ALL ((DAT_PROVIDER_ATTR_MASK)0x3FFFFFF)
#endif
#define DAT_PROVIDER_FIELD_NONE ((DAT_PROVIDER_ATTR_MASK)0)

#endif
