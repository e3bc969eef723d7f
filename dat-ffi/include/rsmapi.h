/*
 * Remote shared memory: segments of memory that other nodes import, and calls that copy bytes to
 * and from them.
 *
 * Link with -lrsm. Calls return RSM_SUCCESS or the number of an error; errno has no meaning. Any
 * thread may make any call. Define RSM_NO_SOLARIS_TYPES to leave out uint_t, ulong_t, uchar_t and
 * offset_t. Define RSM_GUIDE_NAMES for the names HANDLE and VA_IMMEDIATE of the programming guide.
 */
#ifndef RSMAPI_H
#define RSMAPI_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/param.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RSM_VERSION 5
#define RSM_MAXNAMELEN 256

/* poll.h defines this only for programs that request more than the C standard. */
#ifndef POLLRDNORM
#define POLLRDNORM 0x040
#endif

#ifndef RSM_NO_SOLARIS_TYPES
typedef unsigned char uchar_t;
typedef unsigned int uint_t;
typedef unsigned long ulong_t;
typedef int64_t offset_t;
#endif

/* Numbers. */

typedef uint64_t rsm_addr_t;
typedef uint32_t rsm_node_id_t;
typedef uint32_t rsm_memseg_id_t;
typedef uint32_t rsm_permission_t;

/* Handles. NULL is no handle. Calls refuse any value that is not a live handle of the right
 * kind. */

typedef struct rsmapi_controller_handle *rsmapi_controller_handle_t;
typedef struct rsm_memseg_export_handle *rsm_memseg_export_handle_t;
typedef struct rsm_memseg_import_handle *rsm_memseg_import_handle_t;
typedef struct rsm_localmemory_handle *rsm_localmemory_handle_t;

/* Errors. */

#define RSM_SUCCESS 0
#define RSMERR_BAD_LIBRARY_VERSION 1
#define RSMERR_BAD_TOPOLOGY_PTR 2
#define RSMERR_BAD_CTLR_HNDL 3
#define RSMERR_CTLR_NOT_PRESENT 4
#define RSMERR_BAD_SEG_HNDL 5
#define RSMERR_SEG_ALREADY_PUBLISHED 6
#define RSMERR_SEG_NOT_PUBLISHED 7
#define RSMERR_SEG_NOT_PUBLISHED_TO_NODE 8
#define RSMERR_SEG_ALREADY_MAPPED 9
#define RSMERR_SEG_STILL_MAPPED 10
#define RSMERR_SEG_NOT_MAPPED 11
#define RSMERR_NOT_CREATOR 12
#define RSMERR_BAD_BARRIER_PTR 13
#define RSMERR_BAD_SGIO 14
#define RSMERR_BAD_LOCALMEM_HNDL 15
#define RSMERR_BAD_ADDR 16
#define RSMERR_BAD_MEM_ALIGNMENT 17
#define RSMERR_BAD_OFFSET 18
#define RSMERR_MISALIGNED_OFFSET 19
#define RSMERR_BAD_LENGTH 20
#define RSMERR_BAD_ACL 21
#define RSMERR_BAD_SEGID 22
#define RSMERR_RESERVED_SEGID 23
#define RSMERR_SEGID_IN_USE 24
#define RSMERR_BAD_MODE 25
#define RSMERR_BAD_PERMS 26
#define RSMERR_PERM_DENIED 27
#define RSMERR_LOCKS_NOT_SUPPORTED 28
#define RSMERR_LOCKS_NOT_ENABLED 29
#define RSMERR_REBIND_NOT_ALLOWED 30
#define RSMERR_INSUFFICIENT_RESOURCES 31
#define RSMERR_INSUFFICIENT_MEM 32
#define RSMERR_MAP_FAILED 33
#define RSMERR_POLLFD_IN_USE 34
#define RSMERR_BARRIER_UNINITIALIZED 35
#define RSMERR_BARRIER_OPEN_FAILED 36
#define RSMERR_BARRIER_NOT_OPENED 37
#define RSMERR_BARRIER_FAILURE 38
#define RSMERR_REMOTE_NODE_UNREACHABLE 39
#define RSMERR_CONN_ABORTED 40
#define RSMERR_INTERRUPTED 41
#define RSMERR_TIMEOUT 42
#define RSMERR_BAD_APPID 43
#define RSMERR_BAD_CONF 44
#define RSMERR_SEG_NOT_CONNECTED 45
#define RSMERR_INTERNAL_ERROR 100
#define RSMERR_BAD_ARGS_ERRORS 117

/* Permissions of connections. Entries of access lists have three octal digits: user, group,
 * others. */

#define RSM_PERM_NONE 0
#define RSM_PERM_READ 0400
#define RSM_PERM_WRITE 0200
#define RSM_PERM_RDWR (RSM_PERM_READ | RSM_PERM_WRITE)

/* Flags of rsm_memseg_export_create. Segments with RSM_LOCK_OPS cannot be published. */

#define RSM_ALLOW_REBIND 0x01
#define RSM_CREATE_SEG_DONTWAIT 0x02
#define RSM_LOCK_OPS 0x04

/* Types of vector entries, flags of vectors, flags of signals. */

#define RSM_HANDLE_TYPE 0x01
#define RSM_VA_TYPE 0x02
#ifdef RSM_GUIDE_NAMES
#define HANDLE RSM_HANDLE_TYPE
#define VA_IMMEDIATE RSM_VA_TYPE
#endif
#define RSM_IMPLICIT_SIGPOST 0x01
#define RSM_SIGPOST_NO_ACCUMULATE 0x02
#define RSM_SIG_POST_NO_ACCUMULATE RSM_SIGPOST_NO_ACCUMULATE
#define RSM_MAX_SGIOREQS 16

/* Segment ids. 0 lets the system choose. Applications may choose ids of HPC and OPS, and others
 * up to 0x7FFFFFFF. */

#define RSM_DRIVER_PRIVATE_ID_BASE 0x000000
#define RSM_DRIVER_PRIVATE_ID_END 0x0FFFFF
#define RSM_CLUSTER_TRANSPORT_ID_BASE 0x100000
#define RSM_CLUSTER_TRANSPORT_ID_END 0x1FFFFF
#define RSM_RSMLIB_ID_BASE 0x200000
#define RSM_RSMLIB_ID_END 0x2FFFFF
#define RSM_DLPI_ID_BASE 0x300000
#define RSM_DLPI_ID_END 0x3FFFFF
#define RSM_HPC_ID_BASE 0x400000
#define RSM_HPC_ID_END 0x4FFFFF
#define RSM_OPS_ID_BASE 0x500000
#define RSM_OPS_ID_END 0x5FFFFF
#define RSM_USER_APP_ID_BASE 0x80000000
#define RSM_USER_APP_ID_END 0xFFFFFFFF

/* State of a path that can be used. */

#define RSM_CONNECTION_ACTIVE 3

typedef enum {
    RSM_DAS8 = 0x01,
    RSM_DAS16 = 0x02,
    RSM_DAS32 = 0x04,
    RSM_DAS64 = 0x08
} rsm_access_size_t;

typedef enum {
    RSM_BARRIER_MODE_EXPLICIT = 0,
    RSM_BARRIER_MODE_IMPLICIT = 1
} rsm_barrier_mode_t;

typedef enum {
    RSM_BARRIER_SEGMENT = 0x01,
    RSM_BARRIER_NODE = 0x02,
    RSM_BARRIER_SEGMENT_THREAD = 0x11,
    RSM_BARRIER_NODE_THREAD = 0x12
} rsm_barrier_type_t;
#define RSM_BAR_DEFAULT RSM_BARRIER_NODE

typedef enum {
    RSM_MAP_NONE = 0,
    RSM_MAP_FIXED = 1,
    RSM_MAP_RESERVED = 2
} rsm_attribute_t;
typedef rsm_attribute_t rsm_map_attr_t;

/* Structures. */

typedef struct {
    rsm_node_id_t ae_node;
    rsm_permission_t ae_permission;
} rsmapi_access_entry_t;

/* Storage of a barrier in the program, with contents of the library. Zeros are no barrier. */
typedef struct {
    void *seg;
    uint16_t gnum;
    void *privdata;
} rsmapi_barrier_t;

typedef union {
    uint64_t u64;
    int64_t i64;
    uint32_t u32[2];
    int32_t i32[2];
    uint16_t u16[4];
    int16_t i16[4];
    uint8_t u8[8];
    int8_t i8[8];
    unsigned char uc[8];
    char c[8];
    void *vp;
} rsm_barrier_component_t;

typedef struct {
    rsm_barrier_component_t comp[4];
} rsm_barrier_t;

/* Sizes are in bytes; 0 means no limit. */
typedef struct {
    unsigned int attr_direct_access_sizes;
    unsigned int attr_atomic_sizes;
    size_t attr_page_size;
    size_t attr_max_export_segment_size;
    size_t attr_tot_export_segment_size;
    unsigned long attr_max_export_segments;
    size_t attr_max_import_map_size;
    size_t attr_tot_import_map_size;
    unsigned long attr_max_import_segments;
} rsmapi_controller_attr_t;

/* An entry of a vector. */
typedef struct {
    int io_type; /* RSM_HANDLE_TYPE or RSM_VA_TYPE */
    union {
        rsm_localmemory_handle_t handle;
        char *vaddr;
        char *virtual_addr;
    } local;
    size_t local_offset; /* from the start of the handle's memory, or from the address */
#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L)
    union {
        size_t remote_offset; /* from the start of the segment */
        size_t import_segment_offset;
    };
#else
    size_t remote_offset; /* from the start of the segment */
#define import_segment_offset remote_offset
#endif
    size_t transfer_length;
} rsm_iovec_t;

/* A vector. Calls write io_residual_count only. */
typedef struct {
    rsm_node_id_t local_nodeid; /* ignored */
    unsigned long io_request_count;
    unsigned long io_residual_count;
    unsigned int flags;
    rsm_memseg_import_handle_t remote_handle;
    rsm_iovec_t *iovec;
} rsm_scat_gath_t;

typedef struct {
    rsm_node_id_t local_nodeid;
    unsigned int local_cntlr_count;
} rsm_topology_hdr_t;

typedef struct {
    char cntlr_name[RSM_MAXNAMELEN];
    rsm_addr_t local_hwaddr;
    int remote_cntlr_count;
} rsm_connections_hdr_t;

typedef struct {
    rsm_node_id_t remote_nodeid;
    char remote_cntlrname[RSM_MAXNAMELEN];
    rsm_addr_t remote_hwaddr;
    unsigned int connection_state;
} rsm_remote_cntlr_t;

/* remote_cntlr has remote_cntlr_count entries. */
typedef struct {
    rsm_connections_hdr_t hdr;
    rsm_remote_cntlr_t remote_cntlr[1];
} rsm_connections_t;

/* connections has local_cntlr_count entries. */
typedef struct {
    rsm_topology_hdr_t topology_hdr;
    rsm_connections_t *connections[1];
} rsm_topology_t;

/* Controllers. */

int rsm_get_controller(char *name, rsmapi_controller_handle_t *controller);
int rsm_get_controller_attr(rsmapi_controller_handle_t controller, rsmapi_controller_attr_t *attr);
int rsm_release_controller(rsmapi_controller_handle_t controller);

int rsm_get_interconnect_topology(rsm_topology_t **topology);
void rsm_free_interconnect_topology(rsm_topology_t *topology);

int rsm_get_segmentid_range(const char *appid, rsm_memseg_id_t *baseid, uint32_t *length);

/* Exports. */

int rsm_memseg_export_create(rsmapi_controller_handle_t controller, rsm_memseg_export_handle_t *memseg, void *vaddr, size_t length,
                             unsigned int flags);
int rsm_memseg_export_destroy(rsm_memseg_export_handle_t memseg);
int rsm_memseg_export_rebind(rsm_memseg_export_handle_t memseg, void *vaddr, int64_t off, size_t length);
int rsm_memseg_export_publish(rsm_memseg_export_handle_t memseg, rsm_memseg_id_t *segment_id, rsmapi_access_entry_t access_list[],
                              unsigned int access_list_length);
int rsm_memseg_export_unpublish(rsm_memseg_export_handle_t memseg);
int rsm_memseg_export_republish(rsm_memseg_export_handle_t memseg, rsmapi_access_entry_t access_list[],
                                unsigned int access_list_length);

/* Imports. */

int rsm_memseg_import_connect(rsmapi_controller_handle_t controller, rsm_node_id_t nodeid, rsm_memseg_id_t segment_id,
                              rsm_permission_t perm, rsm_memseg_import_handle_t *memseg);
int rsm_memseg_import_disconnect(rsm_memseg_import_handle_t memseg);
int rsm_memseg_import_map(rsm_memseg_import_handle_t memseg, void **address, rsm_attribute_t attr, rsm_permission_t perm, off_t offset,
                          size_t length);
int rsm_memseg_import_unmap(rsm_memseg_import_handle_t memseg);

int rsm_memseg_import_get8(rsm_memseg_import_handle_t memseg, off_t offset, uint8_t *datap, unsigned long rep_cnt);
int rsm_memseg_import_get16(rsm_memseg_import_handle_t memseg, off_t offset, uint16_t *datap, unsigned long rep_cnt);
int rsm_memseg_import_get32(rsm_memseg_import_handle_t memseg, off_t offset, uint32_t *datap, unsigned long rep_cnt);
int rsm_memseg_import_get64(rsm_memseg_import_handle_t memseg, off_t offset, uint64_t *datap, unsigned long rep_cnt);
int rsm_memseg_import_get(rsm_memseg_import_handle_t memseg, off_t offset, void *dst_addr, size_t length);
int rsm_memseg_import_put8(rsm_memseg_import_handle_t memseg, off_t offset, uint8_t *datap, unsigned long rep_cnt);
int rsm_memseg_import_put16(rsm_memseg_import_handle_t memseg, off_t offset, uint16_t *datap, unsigned long rep_cnt);
int rsm_memseg_import_put32(rsm_memseg_import_handle_t memseg, off_t offset, uint32_t *datap, unsigned long rep_cnt);
int rsm_memseg_import_put64(rsm_memseg_import_handle_t memseg, off_t offset, uint64_t *datap, unsigned long rep_cnt);
int rsm_memseg_import_put(rsm_memseg_import_handle_t memseg, off_t offset, void *src_addr, size_t length);
int rsm_memseg_import_getv(rsm_scat_gath_t *sg_io);
int rsm_memseg_import_putv(rsm_scat_gath_t *sg_io);

int rsm_create_localmemory_handle(rsmapi_controller_handle_t controller, rsm_localmemory_handle_t *local_handle, char *local_vaddr,
                                  size_t length);
int rsm_free_localmemory_handle(rsmapi_controller_handle_t controller, rsm_localmemory_handle_t handle);

/* Barriers. */

int rsm_memseg_import_init_barrier(rsm_memseg_import_handle_t memseg, rsm_barrier_type_t type, rsmapi_barrier_t *barrier);
int rsm_memseg_import_open_barrier(rsmapi_barrier_t *barrier);
int rsm_memseg_import_order_barrier(rsmapi_barrier_t *barrier);
int rsm_memseg_import_close_barrier(rsmapi_barrier_t *barrier);
int rsm_memseg_import_destroy_barrier(rsmapi_barrier_t *barrier);
int rsm_memseg_import_get_mode(rsm_memseg_import_handle_t memseg, rsm_barrier_mode_t *mode);
int rsm_memseg_import_set_mode(rsm_memseg_import_handle_t memseg, rsm_barrier_mode_t mode);

/* Signals. */

int rsm_intr_signal_post(void *memseg, unsigned int flags);
int rsm_intr_signal_wait(void *memseg, int timeout);
int rsm_intr_signal_wait_pollfd(struct pollfd fds[], nfds_t nfds, int timeout, int *numfdsp);
int rsm_memseg_get_pollfd(void *memseg, struct pollfd *fd);
int rsm_memseg_release_pollfd(void *memseg);

#ifdef __cplusplus
}
#endif

#endif
