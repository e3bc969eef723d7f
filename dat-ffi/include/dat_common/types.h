/* DAT 1.2 and 2.0: common part of the user and kernel interfaces. */
#ifndef DAT_COMMON_TYPES_H
#define DAT_COMMON_TYPES_H

#include <dat_common/error.h>
#include <dat_common/platform.h>

/* Maximum number of bytes of an adapter's or attribute's name, with its zero byte. */
#define DAT_NAME_MAX_LENGTH 256
typedef char *DAT_NAME_PTR;

typedef struct dat_named_attr {
    const char *name;
    const char *value;
} DAT_NAMED_ATTR;

typedef enum dat_boolean { DAT_FALSE = 0, DAT_TRUE = 1 } DAT_BOOLEAN;

/* 64 bits of the consumer, which events and queries return unchanged. */
typedef union dat_context {
    DAT_PVOID as_ptr;
    DAT_UINT64 as_64;
    DAT_UVERYLONG as_index;
} DAT_CONTEXT;

typedef DAT_CONTEXT DAT_DTO_COOKIE;
typedef DAT_CONTEXT DAT_RMR_COOKIE;

/* Completion of a transfer or bind; for endpoints, of all transfers in a direction. */
typedef enum dat_completion_flags {
    DAT_COMPLETION_DEFAULT_FLAG = 0x00,
    DAT_COMPLETION_SUPPRESS_FLAG = 0x01,
    DAT_COMPLETION_SOLICITED_WAIT_FLAG = 0x02,
    DAT_COMPLETION_UNSIGNALLED_FLAG = 0x04,
    DAT_COMPLETION_BARRIER_FENCE_FLAG = 0x08,
#if DAT_COMMON_EDITION >= 20
    /* For the kernel. */
    DAT_COMPLETION_LMR_INVALIDATE_FENCE_FLAG = 0x20,
#endif
    DAT_COMPLETION_EVD_THRESHOLD_FLAG = 0x10
} DAT_COMPLETION_FLAGS;

/* Microseconds. */
typedef DAT_UINT32 DAT_TIMEOUT;
#define DAT_TIMEOUT_INFINITE ((DAT_TIMEOUT)0xFFFFFFFFU)

typedef DAT_PVOID DAT_HANDLE;
typedef DAT_HANDLE DAT_CR_HANDLE;
typedef DAT_HANDLE DAT_EP_HANDLE;
typedef DAT_HANDLE DAT_EVD_HANDLE;
typedef DAT_HANDLE DAT_IA_HANDLE;
typedef DAT_HANDLE DAT_LMR_HANDLE;
typedef DAT_HANDLE DAT_PSP_HANDLE;
typedef DAT_HANDLE DAT_PZ_HANDLE;
typedef DAT_HANDLE DAT_RMR_HANDLE;
typedef DAT_HANDLE DAT_RSP_HANDLE;
typedef DAT_HANDLE DAT_SRQ_HANDLE;
#if DAT_COMMON_EDITION >= 20
typedef DAT_HANDLE DAT_CSP_HANDLE;
#endif
#define DAT_HANDLE_NULL ((DAT_HANDLE)NULL)

typedef DAT_SOCK_ADDR *DAT_IA_ADDRESS_PTR;
#if DAT_COMMON_EDITION >= 20
/* A kind of communication, as in the arguments of socket(). */
typedef struct dat_comm {
    int domain;
    int type;
    int protocol;
} DAT_COMM;
#endif
typedef DAT_UINT64 DAT_CONN_QUAL;
typedef DAT_UINT64 DAT_PORT_QUAL;

typedef enum dat_qos {
    DAT_QOS_BEST_EFFORT = 0x00,
    DAT_QOS_HIGH_THROUGHPUT = 0x01,
    DAT_QOS_LOW_LATENCY = 0x02,
    DAT_QOS_ECONOMY = 0x04,
    DAT_QOS_PREMIUM = 0x08
} DAT_QOS;

typedef enum dat_connect_flags {
    DAT_CONNECT_DEFAULT_FLAG = 0x00,
#if DAT_COMMON_EDITION >= 20
    DAT_CONNECT_MULTIPATH_REQUIRED_FLAG = 0x02,
#endif
    DAT_CONNECT_MULTIPATH_FLAG = 0x01
} DAT_CONNECT_FLAGS;
#if DAT_COMMON_EDITION >= 20
#define DAT_CONNECT_MULTIPATH_REQUESTED_FLAG DAT_CONNECT_MULTIPATH_FLAG
#endif

typedef enum dat_close_flags {
    DAT_CLOSE_ABRUPT_FLAG = 0x00,
    DAT_CLOSE_GRACEFUL_FLAG = 0x01
} DAT_CLOSE_FLAGS;
#define DAT_CLOSE_DEFAULT DAT_CLOSE_ABRUPT_FLAG

/* Streams of events that a dispatcher receives. */
typedef enum dat_evd_flags {
    DAT_EVD_SOFTWARE_FLAG = 0x001,
    DAT_EVD_CR_FLAG = 0x010,
    DAT_EVD_DTO_FLAG = 0x020,
    DAT_EVD_CONNECTION_FLAG = 0x040,
    DAT_EVD_RMR_BIND_FLAG = 0x080,
    DAT_EVD_ASYNC_FLAG = 0x100,
#if DAT_COMMON_EDITION >= 20
    DAT_EVD_EXTENSION_BASE = 0x200,
#endif
    DAT_EVD_DEFAULT_FLAG = 0x1F0
} DAT_EVD_FLAGS;

/* Creator of the endpoint for a connection request. */
typedef enum dat_psp_flags {
    DAT_PSP_CONSUMER_FLAG = 0x00,
    DAT_PSP_PROVIDER_FLAG = 0x01
} DAT_PSP_FLAGS;

typedef DAT_UINT32 DAT_LMR_CONTEXT;
typedef DAT_UINT32 DAT_RMR_CONTEXT;
typedef DAT_UINT64 DAT_VLEN;
typedef DAT_UINT64 DAT_VADDR;

/* Lengths of segments and of transfers. */
#if DAT_COMMON_EDITION >= 20
typedef DAT_UINT32 DAT_SEG_LENGTH;
typedef DAT_SEG_LENGTH DAT_COMMON_LENGTH;
#else
typedef DAT_VLEN DAT_COMMON_LENGTH;
#endif

/* A segment of a local region, and one of a remote region. If a local one has no length, its
 * other fields have no meaning. */
#if DAT_COMMON_EDITION >= 20
typedef struct dat_lmr_triplet {
    DAT_VADDR virtual_address;
    DAT_SEG_LENGTH segment_length;
    DAT_LMR_CONTEXT lmr_context;
} DAT_LMR_TRIPLET;

typedef struct dat_rmr_triplet {
    DAT_VADDR virtual_address;
    DAT_SEG_LENGTH segment_length;
    DAT_RMR_CONTEXT rmr_context;
} DAT_RMR_TRIPLET;
#else
typedef struct dat_lmr_triplet {
    DAT_LMR_CONTEXT lmr_context;
    DAT_UINT32 pad;
    DAT_VADDR virtual_address;
    DAT_VLEN segment_length;
} DAT_LMR_TRIPLET;

typedef struct dat_rmr_triplet {
    DAT_RMR_CONTEXT rmr_context;
    DAT_UINT32 pad;
    DAT_VADDR target_address;
    DAT_VLEN segment_length;
} DAT_RMR_TRIPLET;
#endif

typedef enum dat_mem_priv_flags {
    DAT_MEM_PRIV_NONE_FLAG = 0x00,
    DAT_MEM_PRIV_LOCAL_READ_FLAG = 0x01,
    DAT_MEM_PRIV_REMOTE_READ_FLAG = 0x02,
    DAT_MEM_PRIV_LOCAL_WRITE_FLAG = 0x10,
    DAT_MEM_PRIV_REMOTE_WRITE_FLAG = 0x20,
#if DAT_COMMON_EDITION >= 20
    DAT_MEM_PRIV_EXTENSION_BASE = 0x40,
#endif
    DAT_MEM_PRIV_ALL_FLAG = 0x33
} DAT_MEM_PRIV_FLAGS;
#define DAT_MEM_PRIV_READ_FLAG (DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_REMOTE_READ_FLAG)
#define DAT_MEM_PRIV_WRITE_FLAG (DAT_MEM_PRIV_LOCAL_WRITE_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG)

#if DAT_COMMON_EDITION >= 20
/* Addresses of a region: virtual addresses of this host, or offsets from zero. */
typedef enum dat_va_type { DAT_VA_TYPE_VA = 0, DAT_VA_TYPE_ZB = 1 } DAT_VA_TYPE;

typedef enum dat_rmr_scope { DAT_RMR_SCOPE_EP = 0, DAT_RMR_SCOPE_PZ = 1, DAT_RMR_SCOPE_ANY = 2 } DAT_RMR_SCOPE;
#endif

typedef struct dat_rmr_param {
    DAT_IA_HANDLE ia_handle;
    DAT_PZ_HANDLE pz_handle;
    DAT_LMR_TRIPLET lmr_triplet;
    DAT_MEM_PRIV_FLAGS mem_priv;
    DAT_RMR_CONTEXT rmr_context;
#if DAT_COMMON_EDITION >= 20
    DAT_RMR_SCOPE rmr_scope;
    DAT_VA_TYPE va_type;
#endif
} DAT_RMR_PARAM;

typedef enum dat_rmr_param_mask {
    DAT_RMR_FIELD_IA_HANDLE = 0x01,
    DAT_RMR_FIELD_PZ_HANDLE = 0x02,
    DAT_RMR_FIELD_LMR_TRIPLET = 0x04,
    DAT_RMR_FIELD_MEM_PRIV = 0x08,
    DAT_RMR_FIELD_RMR_CONTEXT = 0x10,
#if DAT_COMMON_EDITION >= 20
    DAT_RMR_FIELD_RMR_SCOPE = 0x20,
    DAT_RMR_FIELD_VA_TYPE = 0x40,
    DAT_RMR_FIELD_ALL = 0x7F
#else
    DAT_RMR_FIELD_ALL = 0x1F
#endif
} DAT_RMR_PARAM_MASK;

/* Owner of the list of segments after a post: the consumer, or the provider until the
 * completion. */
typedef enum dat_iov_ownership {
    DAT_IOV_CONSUMER = 0,
    DAT_IOV_PROVIDER_NOMOD = 1,
    DAT_IOV_PROVIDER_MOD = 2
} DAT_IOV_OWNERSHIP;

typedef enum dat_ep_creator_for_psp {
    DAT_PSP_CREATES_EP_NEVER = 0,
    DAT_PSP_CREATES_EP_IFASKED = 1,
    DAT_PSP_CREATES_EP_ALWAYS = 2
} DAT_EP_CREATOR_FOR_PSP;

/* Names of 1.0 and 1.1. */
#define max_rdma_read_per_ep max_rdma_read_per_ep_in
#define max_mtu_size max_message_size

typedef struct dat_ia_attr DAT_IA_ATTR;
typedef struct dat_provider_attr DAT_PROVIDER_ATTR;
typedef struct dat_evd_param DAT_EVD_PARAM;
typedef struct dat_lmr_param DAT_LMR_PARAM;

/* One bit for each field of DAT_IA_ATTR, in their order. */
typedef DAT_UINT64 DAT_IA_ATTR_MASK;
#define DAT_IA_FIELD_IA_ADAPTER_NAME ((DAT_IA_ATTR_MASK)1 << 0)
#define DAT_IA_FIELD_IA_VENDOR_NAME ((DAT_IA_ATTR_MASK)1 << 1)
#define DAT_IA_FIELD_IA_HARDWARE_MAJOR_VERSION ((DAT_IA_ATTR_MASK)1 << 2)
#define DAT_IA_FIELD_IA_HARDWARE_MINOR_VERSION ((DAT_IA_ATTR_MASK)1 << 3)
#define DAT_IA_FIELD_IA_FIRMWARE_MAJOR_VERSION ((DAT_IA_ATTR_MASK)1 << 4)
#define DAT_IA_FIELD_IA_FIRMWARE_MINOR_VERSION ((DAT_IA_ATTR_MASK)1 << 5)
#define DAT_IA_FIELD_IA_ADDRESS_PTR ((DAT_IA_ATTR_MASK)1 << 6)
#define DAT_IA_FIELD_IA_MAX_EPS ((DAT_IA_ATTR_MASK)1 << 7)
#define DAT_IA_FIELD_IA_MAX_DTO_PER_EP ((DAT_IA_ATTR_MASK)1 << 8)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_IN ((DAT_IA_ATTR_MASK)1 << 9)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_OUT ((DAT_IA_ATTR_MASK)1 << 10)
#define DAT_IA_FIELD_IA_MAX_EVDS ((DAT_IA_ATTR_MASK)1 << 11)
#define DAT_IA_FIELD_IA_MAX_EVD_QLEN ((DAT_IA_ATTR_MASK)1 << 12)
#define DAT_IA_FIELD_IA_MAX_IOV_SEGMENTS_PER_DTO ((DAT_IA_ATTR_MASK)1 << 13)
#define DAT_IA_FIELD_IA_MAX_LMRS ((DAT_IA_ATTR_MASK)1 << 14)
#define DAT_IA_FIELD_IA_MAX_LMR_BLOCK_SIZE ((DAT_IA_ATTR_MASK)1 << 15)
#define DAT_IA_FIELD_IA_MAX_LMR_VIRTUAL_ADDRESS ((DAT_IA_ATTR_MASK)1 << 16)
#define DAT_IA_FIELD_IA_MAX_PZS ((DAT_IA_ATTR_MASK)1 << 17)
#define DAT_IA_FIELD_IA_MAX_MESSAGE_SIZE ((DAT_IA_ATTR_MASK)1 << 18)
#define DAT_IA_FIELD_IA_MAX_RDMA_SIZE ((DAT_IA_ATTR_MASK)1 << 19)
#define DAT_IA_FIELD_IA_MAX_RMRS ((DAT_IA_ATTR_MASK)1 << 20)
#define DAT_IA_FIELD_IA_MAX_RMR_TARGET_ADDRESS ((DAT_IA_ATTR_MASK)1 << 21)
#define DAT_IA_FIELD_IA_MAX_SRQS ((DAT_IA_ATTR_MASK)1 << 22)
#define DAT_IA_FIELD_IA_MAX_EP_PER_SRQ ((DAT_IA_ATTR_MASK)1 << 23)
#define DAT_IA_FIELD_IA_MAX_RECV_PER_SRQ ((DAT_IA_ATTR_MASK)1 << 24)
#define DAT_IA_FIELD_IA_MAX_IOV_SEGMENTS_PER_RDMA_READ ((DAT_IA_ATTR_MASK)1 << 25)
#define DAT_IA_FIELD_IA_MAX_IOV_SEGMENTS_PER_RDMA_WRITE ((DAT_IA_ATTR_MASK)1 << 26)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_IN ((DAT_IA_ATTR_MASK)1 << 27)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_OUT ((DAT_IA_ATTR_MASK)1 << 28)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_IN_GUARANTEED ((DAT_IA_ATTR_MASK)1 << 29)
#define DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_OUT_GUARANTEED ((DAT_IA_ATTR_MASK)1 << 30)
#if DAT_COMMON_EDITION >= 20
#define DAT_IA_FIELD_IA_ZB_SUPPORTED ((DAT_IA_ATTR_MASK)1 << 31)
#define DAT_IA_FIELD_IA_EXTENSION ((DAT_IA_ATTR_MASK)1 << 32)
#define DAT_IA_FIELD_IA_EXTENSION_VERSION ((DAT_IA_ATTR_MASK)1 << 33)
#define DAT_IA_FIELD_IA_NUM_TRANSPORT_ATTR ((DAT_IA_ATTR_MASK)1 << 34)
#define DAT_IA_FIELD_IA_TRANSPORT_ATTR ((DAT_IA_ATTR_MASK)1 << 35)
#define DAT_IA_FIELD_IA_NUM_VENDOR_ATTR ((DAT_IA_ATTR_MASK)1 << 36)
#define DAT_IA_FIELD_IA_VENDOR_ATTR ((DAT_IA_ATTR_MASK)1 << 37)
#define DAT_IA_FIELD_ALL ((DAT_IA_ATTR_MASK)0x3F << 32 | 0xFFFFFFFFU)
#define DAT_IA_FIELD_IA_EXTENSIONS_SUPPORTED DAT_IA_FIELD_IA_EXTENSION
#else
#define DAT_IA_FIELD_IA_NUM_TRANSPORT_ATTR ((DAT_IA_ATTR_MASK)1 << 31)
#define DAT_IA_FIELD_IA_TRANSPORT_ATTR ((DAT_IA_ATTR_MASK)1 << 32)
#define DAT_IA_FIELD_IA_NUM_VENDOR_ATTR ((DAT_IA_ATTR_MASK)1 << 33)
#define DAT_IA_FIELD_IA_VENDOR_ATTR ((DAT_IA_ATTR_MASK)1 << 34)
#define DAT_IA_FIELD_ALL ((DAT_IA_ATTR_MASK)0x7 << 32 | 0xFFFFFFFFU)
#endif
#define DAT_IA_FIELD_NONE ((DAT_IA_ATTR_MASK)0)
#define DAT_IA_ALL DAT_IA_FIELD_ALL
#define DAT_IA_FIELD_IA_MAX_MTU_SIZE DAT_IA_FIELD_IA_MAX_MESSAGE_SIZE
#define DAT_IA_FIELD_IA_MAX_DTO_PER_OP DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_IN

#if DAT_COMMON_EDITION >= 20
typedef enum dat_service_type { DAT_SERVICE_TYPE_RC = 0, DAT_SERVICE_TYPE_EXTENSION_BASE = 1 } DAT_SERVICE_TYPE;
#else
typedef enum dat_service_type { DAT_SERVICE_TYPE_RC = 0 } DAT_SERVICE_TYPE;
#endif

typedef struct dat_ep_attr {
    DAT_SERVICE_TYPE service_type;
    DAT_COMMON_LENGTH max_message_size;
    DAT_COMMON_LENGTH max_rdma_size;
    DAT_QOS qos;
    DAT_COMPLETION_FLAGS recv_completion_flags;
    DAT_COMPLETION_FLAGS request_completion_flags;
    DAT_COUNT max_recv_dtos;
    DAT_COUNT max_request_dtos;
    DAT_COUNT max_recv_iov;
    DAT_COUNT max_request_iov;
    DAT_COUNT max_rdma_read_in;
    DAT_COUNT max_rdma_read_out;
    DAT_COUNT srq_soft_hw;
    DAT_COUNT max_rdma_read_iov;
    DAT_COUNT max_rdma_write_iov;
    DAT_COUNT ep_transport_specific_count;
    DAT_NAMED_ATTR *ep_transport_specific;
    DAT_COUNT ep_provider_specific_count;
    DAT_NAMED_ATTR *ep_provider_specific;
} DAT_EP_ATTR;

typedef enum dat_ep_state {
    DAT_EP_STATE_UNCONNECTED = 0,
    DAT_EP_STATE_UNCONFIGURED_UNCONNECTED = 1,
    DAT_EP_STATE_RESERVED = 2,
    DAT_EP_STATE_UNCONFIGURED_RESERVED = 3,
    DAT_EP_STATE_PASSIVE_CONNECTION_PENDING = 4,
    DAT_EP_STATE_UNCONFIGURED_PASSIVE = 5,
    DAT_EP_STATE_ACTIVE_CONNECTION_PENDING = 6,
    DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING = 7,
    DAT_EP_STATE_UNCONFIGURED_TENTATIVE = 8,
    DAT_EP_STATE_CONNECTED = 9,
    DAT_EP_STATE_DISCONNECT_PENDING = 10,
    DAT_EP_STATE_DISCONNECTED = 11,
#if DAT_COMMON_EDITION >= 20
    DAT_EP_STATE_CONNECTED_SINGLE_PATH = 13,
    DAT_EP_STATE_CONNECTED_MULTI_PATH = 14,
#endif
    DAT_EP_STATE_COMPLETION_PENDING = 12
} DAT_EP_STATE;
#define DAT_EP_STATE_ERROR DAT_EP_STATE_DISCONNECTED

typedef struct dat_ep_param {
    DAT_IA_HANDLE ia_handle;
    DAT_EP_STATE ep_state;
#if DAT_COMMON_EDITION >= 20
    DAT_COMM comm;
#endif
    DAT_IA_ADDRESS_PTR local_ia_address_ptr;
    DAT_PORT_QUAL local_port_qual;
    DAT_IA_ADDRESS_PTR remote_ia_address_ptr;
    DAT_PORT_QUAL remote_port_qual;
    DAT_PZ_HANDLE pz_handle;
    DAT_EVD_HANDLE recv_evd_handle;
    DAT_EVD_HANDLE request_evd_handle;
    DAT_EVD_HANDLE connect_evd_handle;
    DAT_SRQ_HANDLE srq_handle;
    DAT_EP_ATTR ep_attr;
} DAT_EP_PARAM;

typedef DAT_UINT64 DAT_EP_PARAM_MASK;
#define DAT_EP_FIELD_IA_HANDLE ((DAT_EP_PARAM_MASK)1 << 0)
#define DAT_EP_FIELD_EP_STATE ((DAT_EP_PARAM_MASK)1 << 1)
#if DAT_COMMON_EDITION >= 20
#define DAT_EP_FIELD_COMM ((DAT_EP_PARAM_MASK)1 << 2)
#define DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR ((DAT_EP_PARAM_MASK)1 << 3)
#define DAT_EP_FIELD_LOCAL_PORT_QUAL ((DAT_EP_PARAM_MASK)1 << 4)
#define DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR ((DAT_EP_PARAM_MASK)1 << 5)
#define DAT_EP_FIELD_REMOTE_PORT_QUAL ((DAT_EP_PARAM_MASK)1 << 6)
#define DAT_EP_FIELD_PZ_HANDLE ((DAT_EP_PARAM_MASK)1 << 7)
#define DAT_EP_FIELD_RECV_EVD_HANDLE ((DAT_EP_PARAM_MASK)1 << 8)
#define DAT_EP_FIELD_REQUEST_EVD_HANDLE ((DAT_EP_PARAM_MASK)1 << 9)
#define DAT_EP_FIELD_CONNECT_EVD_HANDLE ((DAT_EP_PARAM_MASK)1 << 10)
#define DAT_EP_FIELD_SRQ_HANDLE ((DAT_EP_PARAM_MASK)1 << 11)
#define DAT_EP_FIELD_ALL ((DAT_EP_PARAM_MASK)0x7FFFFFFF)
#else
#define DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR ((DAT_EP_PARAM_MASK)1 << 2)
#define DAT_EP_FIELD_LOCAL_PORT_QUAL ((DAT_EP_PARAM_MASK)1 << 3)
#define DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR ((DAT_EP_PARAM_MASK)1 << 4)
#define DAT_EP_FIELD_REMOTE_PORT_QUAL ((DAT_EP_PARAM_MASK)1 << 5)
#define DAT_EP_FIELD_PZ_HANDLE ((DAT_EP_PARAM_MASK)1 << 6)
#define DAT_EP_FIELD_RECV_EVD_HANDLE ((DAT_EP_PARAM_MASK)1 << 7)
#define DAT_EP_FIELD_REQUEST_EVD_HANDLE ((DAT_EP_PARAM_MASK)1 << 8)
#define DAT_EP_FIELD_CONNECT_EVD_HANDLE ((DAT_EP_PARAM_MASK)1 << 9)
#define DAT_EP_FIELD_SRQ_HANDLE ((DAT_EP_PARAM_MASK)1 << 10)
#define DAT_EP_FIELD_ALL ((DAT_EP_PARAM_MASK)0x7FFFF7FF)
#endif
#define DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE ((DAT_EP_PARAM_MASK)1 << 12)
#define DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE ((DAT_EP_PARAM_MASK)1 << 13)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE ((DAT_EP_PARAM_MASK)1 << 14)
#define DAT_EP_FIELD_EP_ATTR_QOS ((DAT_EP_PARAM_MASK)1 << 15)
#define DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS ((DAT_EP_PARAM_MASK)1 << 16)
#define DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS ((DAT_EP_PARAM_MASK)1 << 17)
#define DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS ((DAT_EP_PARAM_MASK)1 << 18)
#define DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS ((DAT_EP_PARAM_MASK)1 << 19)
#define DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV ((DAT_EP_PARAM_MASK)1 << 20)
#define DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_IOV ((DAT_EP_PARAM_MASK)1 << 21)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN ((DAT_EP_PARAM_MASK)1 << 22)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT ((DAT_EP_PARAM_MASK)1 << 23)
#define DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW ((DAT_EP_PARAM_MASK)1 << 24)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IOV ((DAT_EP_PARAM_MASK)1 << 25)
#define DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV ((DAT_EP_PARAM_MASK)1 << 26)
#define DAT_EP_FIELD_EP_ATTR_NUM_TRANSPORT_ATTR ((DAT_EP_PARAM_MASK)1 << 27)
#define DAT_EP_FIELD_EP_ATTR_TRANSPORT_SPECIFIC_ATTR ((DAT_EP_PARAM_MASK)1 << 28)
#define DAT_EP_FIELD_EP_ATTR_NUM_PROVIDER_ATTR ((DAT_EP_PARAM_MASK)1 << 29)
#define DAT_EP_FIELD_EP_ATTR_PROVIDER_SPECIFIC_ATTR ((DAT_EP_PARAM_MASK)1 << 30)
#define DAT_EP_FIELD_EP_ATTR_ALL ((DAT_EP_PARAM_MASK)0x7FFFF000)

/* No limit, for endpoints with a shared receive queue. */
#define DAT_WATERMARK_INFINITE ((DAT_COUNT)-1)
#define DAT_HW_DEFAULT DAT_WATERMARK_INFINITE
#define DAT_SRQ_LW_DEFAULT 0
/* A count that the provider does not report. */
#define DAT_VALUE_UNKNOWN ((DAT_COUNT)-2)

#if DAT_COMMON_EDITION >= 20
typedef enum dat_srq_state {
    DAT_SRQ_STATE_ERROR = 0,
    DAT_SRQ_STATE_OPERATIONAL = 1,
    DAT_SRQ_STATE_SHUTDOWN = 2
} DAT_SRQ_STATE;
#else
typedef enum dat_srq_state { DAT_SRQ_STATE_OPERATIONAL = 0, DAT_SRQ_STATE_ERROR = 1 } DAT_SRQ_STATE;
#endif

typedef struct dat_srq_attr {
    DAT_COUNT max_recv_dtos;
    DAT_COUNT max_recv_iov;
    DAT_COUNT low_watermark;
} DAT_SRQ_ATTR;

typedef struct dat_srq_param {
    DAT_IA_HANDLE ia_handle;
    DAT_SRQ_STATE srq_state;
    DAT_PZ_HANDLE pz_handle;
    DAT_COUNT max_recv_dtos;
    DAT_COUNT max_recv_iov;
    DAT_COUNT low_watermark;
    DAT_COUNT available_dto_count;
    DAT_COUNT outstanding_dto_count;
} DAT_SRQ_PARAM;

typedef enum dat_srq_param_mask {
    DAT_SRQ_FIELD_IA_HANDLE = 0x01,
    DAT_SRQ_FIELD_SRQ_STATE = 0x02,
    DAT_SRQ_FIELD_PZ_HANDLE = 0x04,
    DAT_SRQ_FIELD_MAX_RECV_DTO = 0x08,
    DAT_SRQ_FIELD_MAX_RECV_IOV = 0x10,
    DAT_SRQ_FIELD_LOW_WATERMARK = 0x20,
    DAT_SRQ_FIELD_AVAILABLE_DTO_COUNT = 0x40,
    DAT_SRQ_FIELD_OUTSTANDING_DTO_COUNT = 0x80,
    DAT_SRQ_FIELD_ALL = 0xFF
} DAT_SRQ_PARAM_MASK;

typedef struct dat_pz_param {
    DAT_IA_HANDLE ia_handle;
} DAT_PZ_PARAM;

typedef enum dat_pz_param_mask { DAT_PZ_FIELD_IA_HANDLE = 0x01, DAT_PZ_FIELD_ALL = 0x01 } DAT_PZ_PARAM_MASK;

typedef struct dat_psp_param {
    DAT_IA_HANDLE ia_handle;
    DAT_CONN_QUAL conn_qual;
    DAT_EVD_HANDLE evd_handle;
    DAT_PSP_FLAGS psp_flags;
} DAT_PSP_PARAM;

typedef enum dat_psp_param_mask {
    DAT_PSP_FIELD_IA_HANDLE = 0x01,
    DAT_PSP_FIELD_CONN_QUAL = 0x02,
    DAT_PSP_FIELD_EVD_HANDLE = 0x04,
    DAT_PSP_FIELD_PSP_FLAGS = 0x08,
    DAT_PSP_FIELD_ALL = 0x0F
} DAT_PSP_PARAM_MASK;

#if DAT_COMMON_EDITION >= 20
typedef struct dat_csp_param {
    DAT_IA_HANDLE ia_handle;
    DAT_COMM *comm;
    DAT_IA_ADDRESS_PTR address_ptr;
    DAT_EVD_HANDLE evd_handle;
} DAT_CSP_PARAM;

typedef enum dat_csp_param_mask {
    DAT_CSP_FIELD_IA_HANDLE = 0x01,
    DAT_CSP_FIELD_COMM = 0x02,
    DAT_CSP_FIELD_IA_ADDRESS = 0x04,
    DAT_CSP_FIELD_EVD_HANDLE = 0x08,
    DAT_CSP_FIELD_ALL = 0x0F
} DAT_CSP_PARAM_MASK;
#endif

typedef struct dat_rsp_param {
    DAT_IA_HANDLE ia_handle;
    DAT_CONN_QUAL conn_qual;
    DAT_EVD_HANDLE evd_handle;
    DAT_EP_HANDLE ep_handle;
} DAT_RSP_PARAM;

typedef enum dat_rsp_param_mask {
    DAT_RSP_FIELD_IA_HANDLE = 0x01,
    DAT_RSP_FIELD_CONN_QUAL = 0x02,
    DAT_RSP_FIELD_EVD_HANDLE = 0x04,
    DAT_RSP_FIELD_EP_HANDLE = 0x08,
    DAT_RSP_FIELD_ALL = 0x0F
} DAT_RSP_PARAM_MASK;

/* Address and private data belong to the provider until the request is accepted, rejected or
 * handed off. */
typedef struct dat_cr_param {
    DAT_IA_ADDRESS_PTR remote_ia_address_ptr;
    DAT_PORT_QUAL remote_port_qual;
    DAT_COUNT private_data_size;
    DAT_PVOID private_data;
    DAT_EP_HANDLE local_ep_handle;
} DAT_CR_PARAM;

typedef enum dat_cr_param_mask {
    DAT_CR_FIELD_REMOTE_IA_ADDRESS_PTR = 0x01,
    DAT_CR_FIELD_REMOTE_PORT_QUAL = 0x02,
    DAT_CR_FIELD_PRIVATE_DATA_SIZE = 0x04,
    DAT_CR_FIELD_PRIVATE_DATA = 0x08,
    DAT_CR_FIELD_LOCAL_EP_HANDLE = 0x10,
    DAT_CR_FIELD_ALL = 0x1F
} DAT_CR_PARAM_MASK;

/* Result of a transfer or a bind. */
typedef enum dat_dto_completion_status {
    DAT_DTO_SUCCESS = 0,
    DAT_DTO_ERR_FLUSHED = 1,
    DAT_DTO_ERR_LOCAL_LENGTH = 2,
    DAT_DTO_ERR_LOCAL_EP = 3,
    DAT_DTO_ERR_LOCAL_PROTECTION = 4,
    DAT_DTO_ERR_BAD_RESPONSE = 5,
    DAT_DTO_ERR_REMOTE_ACCESS = 6,
    DAT_DTO_ERR_REMOTE_RESPONDER = 7,
    DAT_DTO_ERR_TRANSPORT = 8,
    DAT_DTO_ERR_RECEIVER_NOT_READY = 9,
    DAT_DTO_ERR_PARTIAL_PACKET = 10,
#if DAT_COMMON_EDITION >= 20
    /* For the kernel. */
    DAT_DTO_ERR_LOCAL_MM_ERROR = 12,
#endif
    DAT_RMR_OPERATION_FAILED = 11
} DAT_DTO_COMPLETION_STATUS;
#define DAT_DTO_LENGTH_ERROR DAT_DTO_ERR_LOCAL_LENGTH
#define DAT_DTO_FAILURE DAT_DTO_ERR_FLUSHED
#define DAT_RMR_BIND_SUCCESS DAT_DTO_SUCCESS
#define DAT_RMR_BIND_FAILURE DAT_DTO_ERR_FLUSHED
#define DAT_RMR_BIND_COMPLETION_STATUS DAT_DTO_COMPLETION_STATUS

#if DAT_COMMON_EDITION >= 20
/* The operation that completed. */
typedef enum dat_dtos {
    DAT_DTO_SEND = 0,
    DAT_DTO_RDMA_WRITE = 1,
    DAT_DTO_RDMA_READ = 2,
    DAT_DTO_RECEIVE = 3,
    DAT_DTO_RECEIVE_WITH_INVALIDATE = 4,
    DAT_DTO_BIND_MW = 5,
    DAT_DTO_LMR_FMR = 6,
    DAT_DTO_LMR_INVALIDATE = 7,
    DAT_DTO_EXTENSION_BASE = 8
} DAT_DTOS;
#endif

/* The length is valid if the status is success. */
typedef struct dat_dto_completion_event_data {
    DAT_EP_HANDLE ep_handle;
    DAT_DTO_COOKIE user_cookie;
    DAT_DTO_COMPLETION_STATUS status;
    DAT_COMMON_LENGTH transfered_length;
#if DAT_COMMON_EDITION >= 20
    DAT_DTOS operation;
    DAT_RMR_CONTEXT rmr_context;
#endif
} DAT_DTO_COMPLETION_EVENT_DATA;

typedef struct dat_rmr_bind_completion_event_data {
    DAT_RMR_HANDLE rmr_handle;
    DAT_RMR_COOKIE user_cookie;
    DAT_RMR_BIND_COMPLETION_STATUS status;
} DAT_RMR_BIND_COMPLETION_EVENT_DATA;

typedef union dat_sp_handle {
    DAT_RSP_HANDLE rsp_handle;
    DAT_PSP_HANDLE psp_handle;
#if DAT_COMMON_EDITION >= 20
    DAT_CSP_HANDLE csp_handle;
#endif
} DAT_SP_HANDLE;

typedef struct dat_cr_arrival_event_data {
    DAT_SP_HANDLE sp_handle;
    DAT_IA_ADDRESS_PTR local_ia_address_ptr;
    DAT_CONN_QUAL conn_qual;
    DAT_CR_HANDLE cr_handle;
#if DAT_COMMON_EDITION >= 20
    DAT_BOOLEAN truncate_flag;
#endif
} DAT_CR_ARRIVAL_EVENT_DATA;

typedef struct dat_connection_event_data {
    DAT_EP_HANDLE ep_handle;
    DAT_COUNT private_data_size;
    DAT_PVOID private_data;
} DAT_CONNECTION_EVENT_DATA;

/* The kind of the handle determines the meaning of the reason; see below. */
typedef struct dat_asynch_error_event_data {
    DAT_HANDLE dat_handle;
    DAT_COUNT reason;
} DAT_ASYNCH_ERROR_EVENT_DATA;

typedef enum ia_async_error_reason {
    DAT_IA_CATASTROPHIC_ERROR = 0,
    DAT_IA_OTHER_ERROR = 1
} DAT_IA_ASYNC_ERROR_REASON;

typedef enum ep_async_error_reason {
    DAT_EP_TRANSFER_TO_ERROR = 0,
    DAT_EP_OTHER_ERROR = 1,
    DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT = 2
} DAT_EP_ASYNC_ERROR_REASON;

typedef enum evd_async_error_reason {
    DAT_EVD_OVERFLOW_ERROR = 0,
    DAT_EVD_OTHER_ERROR = 1
} DAT_EVD_ASYNC_ERROR_REASON;

typedef enum srq_async_error_reason {
    DAT_SRQ_TRANSFER_TO_ERROR = 0,
    DAT_SRQ_OTHER_ERROR = 1,
    DAT_SRQ_LOW_WATERMARK_EVENT = 2
} DAT_SRQ_ASYNC_ERROR_REASON;

typedef enum lmr_async_error_reason { DAT_LMR_OTHER_ERROR = 0 } DAT_LMR_ASYNC_ERROR_REASON;
typedef enum rmr_async_error_reason { DAT_RMR_OTHER_ERROR = 0 } DAT_RMR_ASYNC_ERROR_REASON;
typedef enum pz_async_error_reason { DAT_PZ_OTHER_ERROR = 0 } DAT_PZ_ASYNC_ERROR_REASON;

typedef struct dat_software_event_data {
    DAT_PVOID pointer;
} DAT_SOFTWARE_EVENT_DATA;

typedef enum dat_event_number {
    DAT_DTO_COMPLETION_EVENT = 0x00001,
    DAT_RMR_BIND_COMPLETION_EVENT = 0x01001,
    DAT_CONNECTION_REQUEST_EVENT = 0x02001,
    DAT_CONNECTION_EVENT_ESTABLISHED = 0x04001,
    DAT_CONNECTION_EVENT_PEER_REJECTED = 0x04002,
    DAT_CONNECTION_EVENT_NON_PEER_REJECTED = 0x04003,
    DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR = 0x04004,
    DAT_CONNECTION_EVENT_DISCONNECTED = 0x04005,
    DAT_CONNECTION_EVENT_BROKEN = 0x04006,
    DAT_CONNECTION_EVENT_TIMED_OUT = 0x04007,
    DAT_CONNECTION_EVENT_UNREACHABLE = 0x04008,
    DAT_ASYNC_ERROR_EVD_OVERFLOW = 0x08001,
    DAT_ASYNC_ERROR_IA_CATASTROPHIC = 0x08002,
    DAT_ASYNC_ERROR_EP_BROKEN = 0x08003,
    DAT_ASYNC_ERROR_TIMED_OUT = 0x08004,
    DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR = 0x08005,
#if DAT_COMMON_EDITION >= 20
    DAT_HA_DOWN_TO_1 = 0x08101,
    DAT_HA_UP_TO_MULTI_PATH = 0x08102,
    DAT_EXTENSION_EVENT = 0x20000,
    DAT_IB_EXTENSION_RANGE_BASE = 0x40000,
    DAT_IW_EXTENSION_RANGE_BASE = 0x80000,
#endif
    DAT_SOFTWARE_EVENT = 0x10001
} DAT_EVENT_NUMBER;

/* The number of the event selects the member. */
typedef union dat_event_data {
    DAT_DTO_COMPLETION_EVENT_DATA dto_completion_event_data;
    DAT_RMR_BIND_COMPLETION_EVENT_DATA rmr_completion_event_data;
    DAT_CR_ARRIVAL_EVENT_DATA cr_arrival_event_data;
    DAT_CONNECTION_EVENT_DATA connect_event_data;
    DAT_ASYNCH_ERROR_EVENT_DATA asynch_error_event_data;
    DAT_SOFTWARE_EVENT_DATA software_event_data;
} DAT_EVENT_DATA;

typedef struct dat_event {
    DAT_EVENT_NUMBER event_number;
    DAT_EVD_HANDLE evd_handle;
    DAT_EVENT_DATA event_data;
#if DAT_COMMON_EDITION >= 20
    /* Data of extensions. */
    DAT_UINT64 event_extension_data[8];
#endif
} DAT_EVENT;

/* A registered provider. */
typedef struct dat_provider_info {
    char ia_name[DAT_NAME_MAX_LENGTH];
    DAT_UINT32 dapl_version_major;
    DAT_UINT32 dapl_version_minor;
    DAT_BOOLEAN is_thread_safe;
} DAT_PROVIDER_INFO;

#endif
