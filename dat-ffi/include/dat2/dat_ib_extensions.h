/* DAT 2.0: the extensions for InfiniBand. The attributes of a provider say which it supports. */
#ifndef DAT2_DAT_IB_EXTENSIONS_H
#define DAT2_DAT_IB_EXTENSIONS_H

#include <dat2/udat.h>

#define DAT_IB_EXTENSION_VERSION 209

/* Names of provider attributes, for abilities beyond the interface. */
#define DAT_IB_ATTR_CMP_AND_SWAP "DAT_IB_CMP_AND_SWAP"
#define DAT_IB_ATTR_COUNTERS "DAT_COUNTERS"
#define DAT_IB_ATTR_FETCH_AND_ADD "DAT_IB_FETCH_AND_ADD"
#define DAT_IB_ATTR_IMMED_DATA "DAT_IB_IMMED_DATA"
#define DAT_IB_ATTR_UD "DAT_IB_UD"
#define DAT_ATTR_COUNTERS DAT_IB_ATTR_COUNTERS
#define DAT_IB_COLL_ALLGATHER "DAT_COLL_ALLGATHER"
#define DAT_IB_COLL_ALLGATHERV "DAT_COLL_ALLGATHERV"
#define DAT_IB_COLL_ALLREDUCE "DAT_COLL_ALLREDUCE"
#define DAT_IB_COLL_ALLTOALL "DAT_COLL_ALLTOALL"
#define DAT_IB_COLL_ALLTOALLV "DAT_COLL_ALLTOALLV"
#define DAT_IB_COLL_BARRIER "DAT_COLL_BARRIER"
#define DAT_IB_COLL_BROADCAST "DAT_COLL_BROADCAST"
#define DAT_IB_COLL_GATHER "DAT_COLL_GATHER"
#define DAT_IB_COLL_GATHERV "DAT_COLL_GATHERV"
#define DAT_IB_COLL_READ_CLOCK "DAT_COLL_READ_CLOCK"
#define DAT_IB_COLL_REDUCE "DAT_COLL_REDUCE"
#define DAT_IB_COLL_REDUCE_SCATTER "DAT_COLL_REDUCE_SCATTER"
#define DAT_IB_COLL_SCAN "DAT_COLL_SCAN"
#define DAT_IB_COLL_SCATTER "DAT_COLL_SCATTER"
#define DAT_IB_COLL_SCATTERV "DAT_COLL_SCATTERV"
#define DAT_IB_COLL_SET_CLOCK "DAT_COLL_SET_CLOCK"

/* Operations of dat_extension_op. */
typedef enum dat_ib_op {
    DAT_IB_FETCH_AND_ADD_OP = 0x0,
    DAT_IB_CMP_AND_SWAP_OP = 0x1,
    DAT_IB_RDMA_WRITE_IMMED_OP = 0x2,
    DAT_IB_UD_SEND_OP = 0x3,
    DAT_IB_QUERY_COUNTERS_OP = 0x4,
    DAT_IB_PRINT_COUNTERS_OP = 0x5,
    DAT_IB_COLLECTIVE_CREATE_MEMBER_OP = 0x6,
    DAT_IB_COLLECTIVE_FREE_MEMBER_OP = 0x7,
    DAT_IB_COLLECTIVE_CREATE_GROUP_OP = 0x8,
    DAT_IB_COLLECTIVE_FREE_GROUP_OP = 0x9,
    DAT_IB_COLLECTIVE_SET_CLOCK_OP = 0xA,
    DAT_IB_COLLECTIVE_READ_CLOCK_OP = 0xB,
    DAT_IB_COLLECTIVE_SCATTER_OP = 0xC,
    DAT_IB_COLLECTIVE_SCATTERV_OP = 0xD,
    DAT_IB_COLLECTIVE_GATHER_OP = 0xE,
    DAT_IB_COLLECTIVE_GATHERV_OP = 0xF,
    DAT_IB_COLLECTIVE_ALLGATHER_OP = 0x10,
    DAT_IB_COLLECTIVE_ALLGATHERV_OP = 0x11,
    DAT_IB_COLLECTIVE_ALLTOALL_OP = 0x12,
    DAT_IB_COLLECTIVE_ALLTOALLV_OP = 0x13,
    DAT_IB_COLLECTIVE_REDUCE_OP = 0x14,
    DAT_IB_COLLECTIVE_ALLREDUCE_OP = 0x15,
    DAT_IB_COLLECTIVE_REDUCE_SCATTER_OP = 0x16,
    DAT_IB_COLLECTIVE_SCAN_OP = 0x17,
    DAT_IB_COLLECTIVE_BROADCAST_OP = 0x18,
    DAT_IB_COLLECTIVE_BARRIER_OP = 0x19,
    DAT_IB_START_COUNTERS_OP = 0x1A,
    DAT_IB_STOP_COUNTERS_OP = 0x1B,
    DAT_IB_UD_CM_FREE_OP = 0x1C,
    DAT_IB_UD_AH_FREE_OP = 0x1D,
    DAT_IB_OPEN_QUERY_OP = 0x1000,
    DAT_IB_CLOSE_QUERY_OP = 0x2000
} DAT_IB_OP;

#define DAT_QUERY_COUNTERS_OP DAT_IB_QUERY_COUNTERS_OP
#define DAT_PRINT_COUNTERS_OP DAT_IB_PRINT_COUNTERS_OP

typedef enum dat_ib_event_number {
    DAT_IB_DTO_EVENT = 0x40000,
    DAT_IB_UD_CONNECTION_REQUEST_EVENT = 0x40001,
    DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED = 0x40002,
    DAT_IB_UD_CONNECTION_REJECT_EVENT = 0x40003,
    DAT_IB_UD_CONNECTION_ERROR_EVENT = 0x40004,
    DAT_IB_COLLECTIVE_EVENT = 0x40005
} DAT_IB_EVENT_NUMBER;

/* Types of extension events. */
typedef enum dat_ib_ext_type {
    DAT_IB_FETCH_AND_ADD = 0,
    DAT_IB_CMP_AND_SWAP = 1,
    DAT_IB_RDMA_WRITE_IMMED = 2,
    DAT_IB_RDMA_WRITE_IMMED_DATA = 3,
    DAT_IB_RECV_IMMED_DATA = 4,
    DAT_IB_UD_CONNECT_REQUEST = 5,
    DAT_IB_UD_REMOTE_AH = 6,
    DAT_IB_UD_PASSIVE_REMOTE_AH = 7,
    DAT_IB_UD_SEND = 8,
    DAT_IB_UD_RECV = 9,
    DAT_IB_UD_CONNECT_REJECT = 10,
    DAT_IB_UD_CONNECT_ERROR = 11,
    DAT_IB_COLLECTIVE_CREATE_STATUS = 12,
    DAT_IB_COLLECTIVE_CREATE_DATA = 13,
    DAT_IB_COLLECTIVE_CLOCK_SET_STATUS = 14,
    DAT_IB_COLLECTIVE_SCATTER_STATUS = 15,
    DAT_IB_COLLECTIVE_SCATTERV_STATUS = 16,
    DAT_IB_COLLECTIVE_GATHER_STATUS = 17,
    DAT_IB_COLLECTIVE_GATHERV_STATUS = 18,
    DAT_IB_COLLECTIVE_ALLGATHER_STATUS = 19,
    DAT_IB_COLLECTIVE_ALLGATHERV_STATUS = 20,
    DAT_IB_COLLECTIVE_ALLTOALL_STATUS = 21,
    DAT_IB_COLLECTIVE_ALLTOALLV_STATUS = 22,
    DAT_IB_COLLECTIVE_REDUCE_STATUS = 23,
    DAT_IB_COLLECTIVE_ALLREDUCE_STATUS = 24,
    DAT_IB_COLLECTIVE_REDUCE_SCATTER_STATUS = 25,
    DAT_IB_COLLECTIVE_SCAN_STATUS = 26,
    DAT_IB_COLLECTIVE_BROADCAST_STATUS = 27,
    DAT_IB_COLLECTIVE_BARRIER_STATUS = 28
} DAT_IB_EXT_TYPE;

/* Continues DAT_DTOS. */
typedef enum dat_ib_dtos {
    DAT_IB_DTO_RDMA_WRITE_IMMED = 8,
    DAT_IB_DTO_RECV_IMMED = 9,
    DAT_IB_DTO_FETCH_ADD = 10,
    DAT_IB_DTO_CMP_SWAP = 11,
    DAT_IB_DTO_RECV_MSG_IMMED = 12,
    DAT_IB_DTO_SEND_UD = 13,
    DAT_IB_DTO_RECV_UD = 14,
    DAT_IB_DTO_RECV_UD_IMMED = 15,
    DAT_IB_DTO_COLLECTIVES = 16
} DAT_IB_DTOS;

typedef enum dat_ib_return { DAT_IB_ERR = 0x10000000, DAT_IB_COLLECTIVE_ERR = 0x10000001 } DAT_IB_RETURN;

typedef enum dat_ib_status { DAT_OP_SUCCESS = 0, DAT_IB_OP_ERR = 1, DAT_IB_COLL_COMP_ERR = 2 } DAT_IB_STATUS;

typedef enum dat_ib_handle_type {
    DAT_IB_HANDLE_TYPE_EXT = 12,
    DAT_IB_HANDLE_TYPE_COLLECTIVE = 13
} DAT_IB_HANDLE_TYPE;

typedef enum dat_ib_evd_extension_flags { DAT_IB_EVD_EXTENSION_FLAG = 0x200 } DAT_IB_EVD_EXTENSION_FLAGS;

typedef enum dat_ib_mem_priv_flags { DAT_IB_MEM_PRIV_REMOTE_ATOMIC = 64 } DAT_IB_MEM_PRIV_FLAGS;

typedef enum dat_ib_service_type { DAT_IB_SERVICE_TYPE_UD = 1 } DAT_IB_SERVICE_TYPE;

/* Groups of processes for collective operations. */
typedef DAT_HANDLE DAT_IB_COLLECTIVE_HANDLE;
typedef DAT_PVOID DAT_IB_COLLECTIVE_MEMBER;
typedef DAT_UINT32 DAT_IB_COLLECTIVE_RANK;
typedef DAT_UINT32 DAT_IB_COLLECTIVE_ID;

typedef enum dat_ib_collective_data_type {
    DAT_IB_COLLECTIVE_TYPE_INT8 = 0,
    DAT_IB_COLLECTIVE_TYPE_UINT8 = 1,
    DAT_IB_COLLECTIVE_TYPE_INT16 = 2,
    DAT_IB_COLLECTIVE_TYPE_UINT16 = 3,
    DAT_IB_COLLECTIVE_TYPE_INT32 = 4,
    DAT_IB_COLLECTIVE_TYPE_UINT32 = 5,
    DAT_IB_COLLECTIVE_TYPE_INT64 = 6,
    DAT_IB_COLLECTIVE_TYPE_UINT64 = 7,
    DAT_IB_COLLECTIVE_TYPE_FLOAT = 8,
    DAT_IB_COLLECTIVE_TYPE_DOUBLE = 9,
    DAT_IB_COLLECTIVE_TYPE_LONG_DOUBLE = 10,
    DAT_IB_COLLECTIVE_TYPE_SHORT_INT = 11,
    DAT_IB_COLLECTIVE_TYPE_2INT = 12,
    DAT_IB_COLLECTIVE_TYPE_FLOAT_INT = 13,
    DAT_IB_COLLECTIVE_TYPE_LONG_INT = 14,
    DAT_IB_COLLECTIVE_TYPE_DOUBLE_INT = 15
} DAT_IB_COLLECTIVE_DATA_TYPE;

typedef enum dat_ib_collective_reduce_data_op {
    DAT_IB_COLLECTIVE_REDUCE_OP_MAX = 0,
    DAT_IB_COLLECTIVE_REDUCE_OP_MIN = 1,
    DAT_IB_COLLECTIVE_REDUCE_OP_SUM = 2,
    DAT_IB_COLLECTIVE_REDUCE_OP_PROD = 3,
    DAT_IB_COLLECTIVE_REDUCE_OP_LAND = 4,
    DAT_IB_COLLECTIVE_REDUCE_OP_BAND = 5,
    DAT_IB_COLLECTIVE_REDUCE_OP_LOR = 6,
    DAT_IB_COLLECTIVE_REDUCE_OP_BOR = 7,
    DAT_IB_COLLECTIVE_REDUCE_OP_LXOR = 8,
    DAT_IB_COLLECTIVE_REDUCE_OP_BXOR = 9,
    DAT_IB_COLLECTIVE_REDUCE_OP_MAXLOC = 10,
    DAT_IB_COLLECTIVE_REDUCE_OP_MINLOC = 11
} DAT_IB_COLLECTIVE_REDUCE_DATA_OP;

typedef struct dat_ib_collective_group {
    int local_size;
    int local_rank;
    int *local_ranks;
    int external_size;
    int external_rank;
    int *external_ranks;
    int *intranode_table;
    int *internode_table;
    int is_comm_world;
} DAT_IB_COLLECTIVE_GROUP;

typedef struct dat_ib_collective_event_data {
    DAT_HANDLE handle;
    DAT_CONTEXT context;
} DAT_IB_COLLECTIVE_EVENT_DATA;

/* Destination of datagrams. */
typedef struct dat_ib_addr_handle {
    struct ibv_ah *ah;
    DAT_UINT32 qpn;
    DAT_SOCK_ADDR6 ia_addr;
} DAT_IB_ADDR_HANDLE;

typedef struct dat_ib_immed_data {
    DAT_UINT32 data;
} DAT_IB_IMMED_DATA;

/* Contents of event_extension_data in an extension event. */
typedef struct dat_ib_extension_event_data {
    DAT_IB_EXT_TYPE type;
    DAT_IB_STATUS status;
    union {
        DAT_IB_IMMED_DATA immed;
    } val;
#ifdef __GNUC__
    __extension__
#endif
    union {
        DAT_IB_ADDR_HANDLE remote_ah;
        DAT_IB_COLLECTIVE_EVENT_DATA coll;
    };
    DAT_CONTEXT context;
} DAT_IB_EXTENSION_EVENT_DATA;

typedef enum dat_ia_counter_type { DCNT_IA_CM = 0, DCNT_IA_LNK = 1, DCNT_IA_DIAG = 2 } DAT_IA_COUNTER_TYPE;

/* Counters of adapters. */
typedef enum dat_ia_counters {
    DCNT_IA_PZ_CREATE = 0, DCNT_IA_PZ_FREE, DCNT_IA_LMR_CREATE, DCNT_IA_LMR_FREE, DCNT_IA_RMR_CREATE,
    DCNT_IA_RMR_FREE, DCNT_IA_PSP_CREATE, DCNT_IA_PSP_CREATE_ANY, DCNT_IA_PSP_FREE, DCNT_IA_RSP_CREATE,
    DCNT_IA_RSP_FREE, DCNT_IA_EVD_CREATE, DCNT_IA_EVD_FREE, DCNT_IA_EP_CREATE, DCNT_IA_EP_FREE, DCNT_IA_SRQ_CREATE,
    DCNT_IA_SRQ_FREE, DCNT_IA_SP_CR, DCNT_IA_SP_CR_ACCEPTED, DCNT_IA_SP_CR_REJECTED, DCNT_IA_MEM_ALLOC,
    DCNT_IA_MEM_ALLOC_DATA, DCNT_IA_MEM_FREE, DCNT_IA_ASYNC_ERROR, DCNT_IA_ASYNC_QP_ERROR, DCNT_IA_ASYNC_CQ_ERROR,
    DCNT_IA_CM_LISTEN, DCNT_IA_CM_REQ_TX, DCNT_IA_CM_REQ_RX, DCNT_IA_CM_REP_TX, DCNT_IA_CM_REP_RX, DCNT_IA_CM_RTU_TX,
    DCNT_IA_CM_RTU_RX, DCNT_IA_CM_USER_REJ_TX, DCNT_IA_CM_USER_REJ_RX, DCNT_IA_CM_ACTIVE_EST, DCNT_IA_CM_PASSIVE_EST,
    DCNT_IA_CM_AH_REQ_TX, DCNT_IA_CM_AH_REQ_RX, DCNT_IA_CM_AH_RESOLVED, DCNT_IA_CM_DREQ_TX, DCNT_IA_CM_DREQ_RX,
    DCNT_IA_CM_DREP_TX, DCNT_IA_CM_DREP_RX, DCNT_IA_CM_MRA_TX, DCNT_IA_CM_MRA_RX, DCNT_IA_CM_REQ_FULLQ_POLL,
    DCNT_IA_CM_ERR, DCNT_IA_CM_ERR_REQ_FULLQ, DCNT_IA_CM_ERR_REQ_DUP, DCNT_IA_CM_ERR_REQ_RETRY,
    DCNT_IA_CM_ERR_REP_DUP, DCNT_IA_CM_ERR_REP_RETRY, DCNT_IA_CM_ERR_RTU_DUP, DCNT_IA_CM_ERR_RTU_RETRY,
    DCNT_IA_CM_ERR_REFUSED, DCNT_IA_CM_ERR_RESET, DCNT_IA_CM_ERR_TIMEOUT, DCNT_IA_CM_ERR_REJ_TX,
    DCNT_IA_CM_ERR_REJ_RX, DCNT_IA_CM_ERR_DREQ_DUP, DCNT_IA_CM_ERR_DREQ_RETRY, DCNT_IA_CM_ERR_DREP_DUP,
    DCNT_IA_CM_ERR_DREP_RETRY, DCNT_IA_CM_ERR_MRA_DUP, DCNT_IA_CM_ERR_MRA_RETRY, DCNT_IA_CM_ERR_UNEXPECTED,
    DCNT_IA_LNK_ERR_RCV, DCNT_IA_LNK_ERR_RCV_REM_PHYS, DCNT_IA_LNK_ERR_RCV_CONSTRAINT, DCNT_IA_LNK_ERR_XMT_DISCARDS,
    DCNT_IA_LNK_ERR_XMT_CONTRAINT, DCNT_IA_LNK_ERR_INTEGRITY, DCNT_IA_LNK_ERR_EXC_BUF_OVERRUN,
    DCNT_IA_LNK_WARN_RCV_SW_RELAY, DCNT_IA_LNK_WARN_XMT_WAIT, DCNT_IA_DIAG_ERR_RQ_RAE, DCNT_IA_DIAG_ERR_RQ_OOS,
    DCNT_IA_DIAG_ERR_RQ_RIRE, DCNT_IA_DIAG_ERR_RQ_UDSDPRD, DCNT_IA_DIAG_ERR_SQ_RAE, DCNT_IA_DIAG_ERR_SQ_OOS,
    DCNT_IA_DIAG_ERR_SQ_RIRE, DCNT_IA_DIAG_ERR_SQ_RREE, DCNT_IA_DIAG_ERR_SQ_TREE, DCNT_IA_ALL_COUNTERS
} DAT_IA_COUNTERS;

/* Counters of endpoints. */
typedef enum dat_ep_counters {
    DCNT_EP_CONNECT = 0, DCNT_EP_DISCONNECT, DCNT_EP_POST_SEND, DCNT_EP_POST_SEND_DATA, DCNT_EP_POST_SEND_UD,
    DCNT_EP_POST_SEND_UD_DATA, DCNT_EP_POST_RECV, DCNT_EP_POST_RECV_DATA, DCNT_EP_POST_WRITE, DCNT_EP_POST_WRITE_DATA,
    DCNT_EP_POST_WRITE_IMM, DCNT_EP_POST_WRITE_IMM_DATA, DCNT_EP_POST_READ, DCNT_EP_POST_READ_DATA,
    DCNT_EP_POST_CMP_SWAP, DCNT_EP_POST_FETCH_ADD, DCNT_EP_RECV, DCNT_EP_RECV_DATA, DCNT_EP_RECV_UD,
    DCNT_EP_RECV_UD_DATA, DCNT_EP_RECV_IMM, DCNT_EP_RECV_IMM_DATA, DCNT_EP_RECV_RDMA_IMM, DCNT_EP_RECV_RDMA_IMM_DATA,
    DCNT_EP_ALL_COUNTERS
} DAT_EP_COUNTERS;

/* Counters of dispatchers. */
typedef enum dat_evd_counters {
    DCNT_EVD_WAIT = 0,
    DCNT_EVD_WAIT_BLOCKED = 1,
    DCNT_EVD_WAIT_NOTIFY = 2,
    DCNT_EVD_DEQUEUE = 3,
    DCNT_EVD_DEQUEUE_FOUND = 4,
    DCNT_EVD_DEQUEUE_NOT_FOUND = 5,
    DCNT_EVD_DEQUEUE_POLL = 6,
    DCNT_EVD_DEQUEUE_POLL_FOUND = 7,
    DCNT_EVD_CONN_CALLBACK = 8,
    DCNT_EVD_DTO_CALLBACK = 9,
    DCNT_EVD_ALL_COUNTERS = 10
} DAT_EVD_COUNTERS;

/* Transfers, which complete by an event DAT_IB_DTO_EVENT. */
#define dat_ib_post_fetch_and_add(ep, add, local, cookie, remote, flags) \
    dat_extension_op((DAT_EP_HANDLE)(ep), (int)DAT_IB_FETCH_AND_ADD_OP, (DAT_UINT64)(add), (DAT_LMR_TRIPLET *)(local), \
        (cookie), (DAT_RMR_TRIPLET *)(remote), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_post_cmp_and_swap(ep, compare, swap, local, cookie, remote, flags) \
    dat_extension_op((DAT_EP_HANDLE)(ep), (int)DAT_IB_CMP_AND_SWAP_OP, (DAT_UINT64)(compare), (DAT_UINT64)(swap), \
        (DAT_LMR_TRIPLET *)(local), (cookie), (DAT_RMR_TRIPLET *)(remote), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_post_rdma_write_immed(ep, count, local, cookie, remote, number, flags) \
    dat_extension_op((DAT_EP_HANDLE)(ep), (int)DAT_IB_RDMA_WRITE_IMMED_OP, (DAT_COUNT)(count), \
        (DAT_LMR_TRIPLET *)(local), (cookie), (DAT_RMR_TRIPLET *)(remote), (DAT_UINT32)(number), \
        (DAT_COMPLETION_FLAGS)(flags))

/* Datagrams. */
#define dat_ib_post_send_ud(ep, count, local, address, cookie, flags) \
    dat_extension_op((DAT_EP_HANDLE)(ep), (int)DAT_IB_UD_SEND_OP, (DAT_COUNT)(count), (DAT_LMR_TRIPLET *)(local), \
        (DAT_IB_ADDR_HANDLE *)(address), (cookie), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_post_recv_ud dat_ep_post_recv
#define dat_ib_ud_cm_free(ep, connection) \
    dat_extension_op((DAT_EP_HANDLE)(ep), (int)DAT_IB_UD_CM_FREE_OP, (connection))
#define dat_ib_ud_ah_free(ep, address) \
    dat_extension_op((DAT_EP_HANDLE)(ep), (int)DAT_IB_UD_AH_FREE_OP, (DAT_IB_ADDR_HANDLE *)(address))

/* Attributes of an adapter by its name, which is opened for the query only. */
#define dat_ib_open_query(name, ia, ia_mask, ia_attributes, provider_mask, provider_attributes) \
    dat_extension_op((DAT_HANDLE)NULL, (int)DAT_IB_OPEN_QUERY_OP, (DAT_NAME_PTR)(name), (DAT_HANDLE *)(ia), \
        (DAT_IA_ATTR_MASK)(ia_mask), (DAT_IA_ATTR *)(ia_attributes), (DAT_PROVIDER_ATTR_MASK)(provider_mask), \
        (DAT_PROVIDER_ATTR *)(provider_attributes))
#define dat_ib_close_query(ia) dat_extension_op((DAT_HANDLE)(ia), (int)DAT_IB_CLOSE_QUERY_OP)

/* Counters of adapters, endpoints and dispatchers, by the numbers above. */
#define dat_ib_query_counters(handle, counter, values, reset) \
    dat_extension_op((DAT_HANDLE)(handle), (int)DAT_IB_QUERY_COUNTERS_OP, (int)(counter), (DAT_UINT64 *)(values), \
        (int)(reset))
#define dat_ib_print_counters(handle, counter, reset) \
    dat_extension_op((DAT_HANDLE)(handle), (int)DAT_IB_PRINT_COUNTERS_OP, (int)(counter), (int)(reset))
#define dat_ib_start_counter(handle, type) \
    dat_extension_op((DAT_HANDLE)(handle), (int)DAT_IB_START_COUNTERS_OP, (int)(type))
#define dat_ib_stop_counter(handle, type) \
    dat_extension_op((DAT_HANDLE)(handle), (int)DAT_IB_STOP_COUNTERS_OP, (int)(type))
#define dat_query_counters dat_ib_query_counters
#define dat_print_counters dat_ib_print_counters

/* Collective operations: groups, the shared clock of a group, and transfers. */
#define dat_ib_collective_create_member(ia, progress, member, size) \
    dat_extension_op((DAT_IA_HANDLE)(ia), (int)DAT_IB_COLLECTIVE_CREATE_MEMBER_OP, (void *)(progress), \
        (DAT_IB_COLLECTIVE_MEMBER *)(member), (DAT_UINT32 *)(size))
#define dat_ib_collective_free_member(ia, member) \
    dat_extension_op((DAT_IA_HANDLE)(ia), (int)DAT_IB_COLLECTIVE_FREE_MEMBER_OP, (DAT_IB_COLLECTIVE_MEMBER)(member))
#define dat_ib_collective_create_group(members, count, self, id, group, evd, pz, context) \
    dat_extension_op((DAT_EVD_HANDLE)(evd), (int)DAT_IB_COLLECTIVE_CREATE_GROUP_OP, \
        (DAT_IB_COLLECTIVE_MEMBER *)(members), (DAT_COUNT)(count), (DAT_IB_COLLECTIVE_RANK)(self), \
        (DAT_IB_COLLECTIVE_ID)(id), (DAT_IB_COLLECTIVE_GROUP *)(group), (DAT_PZ_HANDLE)(pz), (context))
#define dat_ib_collective_free_group(handle) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(handle), (int)DAT_IB_COLLECTIVE_FREE_GROUP_OP)
#define dat_ib_collective_set_clock(handle, clock, context) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(handle), (int)DAT_IB_COLLECTIVE_SET_CLOCK_OP, (DAT_UINT64)(clock), \
        (context))
#define dat_ib_collective_read_clock(handle, clock) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(handle), (int)DAT_IB_COLLECTIVE_READ_CLOCK_OP, (DAT_UINT64 *)(clock))
#define dat_ib_collective_scatter(handle, from, from_size, to, to_size, root, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(handle), (int)DAT_IB_COLLECTIVE_SCATTER_OP, (DAT_PVOID)(from), \
        (DAT_COUNT)(from_size), (DAT_PVOID)(to), (DAT_COUNT)(to_size), (DAT_IB_COLLECTIVE_RANK)(root), (context), \
        (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_scatterv(handle, from, from_sizes, places, to, to_size, root, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(handle), (int)DAT_IB_COLLECTIVE_SCATTERV_OP, (DAT_PVOID)(from), \
        (DAT_COUNT *)(from_sizes), (DAT_COUNT *)(places), (DAT_PVOID)(to), (DAT_COUNT)(to_size), \
        (DAT_IB_COLLECTIVE_RANK)(root), (context), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_gather(handle, from, from_size, to, to_size, root, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(handle), (int)DAT_IB_COLLECTIVE_GATHER_OP, (DAT_PVOID)(from), \
        (DAT_COUNT)(from_size), (DAT_PVOID)(to), (DAT_COUNT)(to_size), (DAT_IB_COLLECTIVE_RANK)(root), (context), \
        (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_gatherv(handle, from, from_size, to, to_sizes, places, root, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(handle), (int)DAT_IB_COLLECTIVE_GATHERV_OP, (DAT_PVOID)(from), \
        (DAT_COUNT)(from_size), (DAT_PVOID)(to), (DAT_COUNT *)(to_sizes), (DAT_COUNT *)(places), \
        (DAT_IB_COLLECTIVE_RANK)(root), (context), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_allgather(handle, from, from_size, to, to_size, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(handle), (int)DAT_IB_COLLECTIVE_ALLGATHER_OP, (DAT_PVOID)(from), \
        (DAT_COUNT)(from_size), (DAT_PVOID)(to), (DAT_COUNT)(to_size), (context), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_allgatherv(handle, from, from_size, to, to_sizes, places, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(handle), (int)DAT_IB_COLLECTIVE_ALLGATHERV_OP, (DAT_PVOID)(from), \
        (DAT_COUNT)(from_size), (DAT_PVOID)(to), (DAT_COUNT *)(to_sizes), (DAT_COUNT *)(places), (context), \
        (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_alltoall(handle, from, from_size, to, to_size, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(handle), (int)DAT_IB_COLLECTIVE_ALLTOALL_OP, (DAT_PVOID)(from), \
        (DAT_COUNT)(from_size), (DAT_PVOID)(to), (DAT_COUNT)(to_size), (context), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_alltoallv(handle, from, from_sizes, from_places, to, to_sizes, to_places, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(handle), (int)DAT_IB_COLLECTIVE_ALLTOALLV_OP, (DAT_PVOID)(from), \
        (DAT_COUNT *)(from_sizes), (DAT_COUNT *)(from_places), (DAT_PVOID)(to), (DAT_COUNT *)(to_sizes), \
        (DAT_COUNT *)(to_places), (context), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_reduce(handle, from, from_size, to, to_size, operation, type, root, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(handle), (int)DAT_IB_COLLECTIVE_REDUCE_OP, (DAT_PVOID)(from), \
        (DAT_COUNT)(from_size), (DAT_PVOID)(to), (DAT_COUNT)(to_size), \
        (DAT_IB_COLLECTIVE_REDUCE_DATA_OP)(operation), (DAT_IB_COLLECTIVE_DATA_TYPE)(type), \
        (DAT_IB_COLLECTIVE_RANK)(root), (context), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_allreduce(handle, from, from_size, to, to_size, operation, type, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(handle), (int)DAT_IB_COLLECTIVE_ALLREDUCE_OP, (DAT_PVOID)(from), \
        (DAT_COUNT)(from_size), (DAT_PVOID)(to), (DAT_COUNT)(to_size), \
        (DAT_IB_COLLECTIVE_REDUCE_DATA_OP)(operation), (DAT_IB_COLLECTIVE_DATA_TYPE)(type), (context), \
        (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_reduce_scatter(handle, from, from_size, to, to_sizes, operation, type, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(handle), (int)DAT_IB_COLLECTIVE_REDUCE_SCATTER_OP, (DAT_PVOID)(from), \
        (DAT_COUNT)(from_size), (DAT_PVOID)(to), (DAT_COUNT *)(to_sizes), \
        (DAT_IB_COLLECTIVE_REDUCE_DATA_OP)(operation), (DAT_IB_COLLECTIVE_DATA_TYPE)(type), (context), \
        (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_scan(handle, from, from_size, to, to_size, operation, type, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(handle), (int)DAT_IB_COLLECTIVE_SCAN_OP, (DAT_PVOID)(from), \
        (DAT_COUNT)(from_size), (DAT_PVOID)(to), (DAT_COUNT)(to_size), \
        (DAT_IB_COLLECTIVE_REDUCE_DATA_OP)(operation), (DAT_IB_COLLECTIVE_DATA_TYPE)(type), (context), \
        (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_broadcast(handle, buffer, size, root, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(handle), (int)DAT_IB_COLLECTIVE_BROADCAST_OP, (DAT_PVOID)(buffer), \
        (DAT_COUNT)(size), (DAT_IB_COLLECTIVE_RANK)(root), (context), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_barrier(handle, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(handle), (int)DAT_IB_COLLECTIVE_BARRIER_OP, (context), \
        (DAT_COMPLETION_FLAGS)(flags))

#if defined(__cplusplus)
#define DAT_IB_INLINE_ static inline
#elif defined(__GNUC__)
#define DAT_IB_INLINE_ static __inline__
#else
#define DAT_IB_INLINE_ static inline
#endif

/* Texts for the return values of extensions and the statuses of their events. */
DAT_IB_INLINE_ DAT_RETURN dat_strerror_extension(DAT_IB_RETURN value, const char **message)
{
    *message = (DAT_GET_TYPE(value) == DAT_EXTENSION_BASE) ? "DAT_IB_ERR" : "DAT_SUCCESS";
    return DAT_SUCCESS;
}

DAT_IB_INLINE_ DAT_RETURN dat_strerror_ext_status(DAT_IB_STATUS value, const char **message)
{
    switch ((int)value) {
    case DAT_OP_SUCCESS:
        *message = " ";
        return DAT_SUCCESS;
    case DAT_IB_OP_ERR:
        *message = "DAT_IB_OP_ERR";
        return DAT_SUCCESS;
    case DAT_IB_COLL_COMP_ERR:
        *message = "DAT_IB_COLL_COMP_ERR";
        return DAT_SUCCESS;
    default:
        *message = "no status of an extension";
        return DAT_INVALID_PARAMETER;
    }
}
#undef DAT_IB_INLINE_

#endif
