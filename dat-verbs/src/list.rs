//! The list of the public functions of libibverbs and librdmacm, of rdma-core 44: the only one.
//!
//! It makes the exports, their versions (`build.rs` reads these), and the check that none is missing.

/// Passes the list to a macro, after what is given with its name.
///
/// - `NAME = MODULE`: the module of this crate that has the function.
/// - `NAME: REFUSAL`: the function is not supported; `refusals` says how it tells.
/// - `old`: forms for programs of 2006, whose structures are others; all are refused.
///
/// A public function that is missing would run the original on objects of this library.
#[macro_export]
#[doc(hidden)]
macro_rules! calls_of_verbs {
    ($with:ident $($given:tt)*) => {
        $with! {
            $($given)*
            "IBVERBS_1.0" {
                ibv_copy_path_rec_from_kern: nothing;
                ibv_copy_path_rec_to_kern: nothing;
                ibv_copy_qp_attr_from_kern: nothing;
                ibv_create_comp_channel = completion;
                ibv_destroy_comp_channel = completion;
                ibv_get_sysfs_path = sysfs;
                ibv_rate_to_mult = rates;
                ibv_read_sysfs_file = sysfs;
                mult_to_ibv_rate = rates;
            }
            "IBVERBS_1.1" {
                ibv_ack_async_event = opening;
                ibv_ack_cq_events = completion;
                ibv_alloc_pd = memory;
                ibv_attach_mcast: code;
                ibv_close_device = opening;
                ibv_copy_ah_attr_from_kern: nothing;
                ibv_create_ah = transfer;
                ibv_create_ah_from_wc = transfer;
                ibv_create_cq = completion;
                ibv_create_qp = transfer;
                ibv_create_srq = transfer;
                ibv_dealloc_pd = memory;
                ibv_dereg_mr = memory;
                ibv_destroy_ah = transfer;
                ibv_destroy_cq = completion;
                ibv_destroy_qp = transfer;
                ibv_destroy_srq = transfer;
                ibv_detach_mcast: code;
                ibv_dofork_range = forks;
                ibv_dontfork_range = forks;
                ibv_event_type_str = text;
                ibv_fork_init = forks;
                ibv_free_device_list = device;
                ibv_get_async_event = opening;
                ibv_get_cq_event = completion;
                ibv_get_device_guid = device;
                ibv_get_device_list = device;
                ibv_get_device_name = device;
                ibv_init_ah_from_wc = transfer;
                ibv_modify_qp = transfer;
                ibv_modify_srq = transfer;
                ibv_node_type_str = text;
                ibv_open_device = opening;
                ibv_port_state_str = text;
                ibv_query_device = query;
                ibv_query_gid = query;
                ibv_query_pkey = query;
                ibv_query_port = query;
                ibv_query_qp = transfer;
                ibv_query_srq = transfer;
                ibv_rate_to_mbps = rates;
                ibv_reg_mr = memory;
                ibv_rereg_mr = memory;
                ibv_resize_cq = completion;
                ibv_resolve_eth_l2_from_gid: code;
                ibv_wc_status_str = text;
                mbps_to_ibv_rate = rates;
            }
            "IBVERBS_1.5" {
                ibv_get_pkey_index = query;
            }
            "IBVERBS_1.6" {
                ibv_qp_to_qp_ex = transfer;
            }
            "IBVERBS_1.7" {
                ibv_reg_mr_iova = memory;
            }
            "IBVERBS_1.8" {
                ibv_reg_mr_iova2 = memory;
            }
            "IBVERBS_1.9" {
                ibv_get_device_index = device;
            }
            "IBVERBS_1.10" {
                ibv_import_device: null;
                ibv_import_mr: null;
                ibv_import_pd: null;
                ibv_query_ece: code;
                ibv_set_ece: code;
                ibv_unimport_mr: nothing;
                ibv_unimport_pd: nothing;
            }
            "IBVERBS_1.11" {
                _ibv_query_gid_ex = query;
                _ibv_query_gid_table = query;
            }
            "IBVERBS_1.12" {
                ibv_reg_dmabuf_mr: null;
            }
            "IBVERBS_1.13" {
                ibv_import_dm: null;
                ibv_is_fork_initialized = forks;
                ibv_unimport_dm: nothing;
            }
            "IBVERBS_1.14" {
                ibv_query_qp_data_in_order: zero;
            }
            "RDMACM_1.0" {
                raccept: minus;
                rbind: minus;
                rclose: minus;
                rconnect: minus;
                rdma_accept = connection;
                rdma_ack_cm_event = connection;
                rdma_bind_addr = connection;
                rdma_connect = connection;
                rdma_create_ep = connection;
                rdma_create_event_channel = connection;
                rdma_create_id = connection;
                rdma_create_qp = connection;
                rdma_create_qp_ex = connection;
                rdma_create_srq: minus;
                rdma_create_srq_ex: minus;
                rdma_destroy_ep = connection;
                rdma_destroy_event_channel = connection;
                rdma_destroy_id = connection;
                rdma_destroy_qp = connection;
                rdma_destroy_srq: nothing;
                rdma_disconnect = connection;
                rdma_event_str = text;
                rdma_free_devices = connection;
                rdma_freeaddrinfo = connection;
                rdma_get_cm_event = connection;
                rdma_get_devices = connection;
                rdma_get_dst_port = connection;
                rdma_get_request = connection;
                rdma_get_src_port = connection;
                rdma_getaddrinfo = connection;
                rdma_join_multicast: minus;
                rdma_leave_multicast: minus;
                rdma_listen = connection;
                rdma_migrate_id = connection;
                rdma_notify: minus;
                rdma_reject = connection;
                rdma_resolve_addr = connection;
                rdma_resolve_route = connection;
                rdma_set_option = connection;
                rfcntl: minus;
                rgetpeername: minus;
                rgetsockname: minus;
                rgetsockopt: minus;
                riomap: minus;
                riounmap: minus;
                riowrite: minus;
                rlisten: minus;
                rpoll: minus;
                rread: minus;
                rreadv: minus;
                rrecv: minus;
                rrecvfrom: minus;
                rrecvmsg: minus;
                rselect: minus;
                rsend: minus;
                rsendmsg: minus;
                rsendto: minus;
                rsetsockopt: minus;
                rshutdown: minus;
                rsocket: minus;
                rwrite: minus;
                rwritev: minus;
            }
            "RDMACM_1.1" {
                rdma_join_multicast_ex: minus;
            }
            "RDMACM_1.2" {
                rdma_establish = connection;
                rdma_init_qp_attr = connection;
            }
            "RDMACM_1.3" {
                rdma_get_remote_ece: minus;
                rdma_reject_ece = connection;
                rdma_set_local_ece: minus;
            }
            old {
                "IBVERBS_1.0" ibv_ack_async_event: nothing;
                "IBVERBS_1.0" ibv_ack_cq_events: nothing;
                "IBVERBS_1.0" ibv_alloc_pd: null;
                "IBVERBS_1.0" ibv_attach_mcast: code;
                "IBVERBS_1.0" ibv_close_device: code;
                "IBVERBS_1.0" ibv_create_ah: null;
                "IBVERBS_1.0" ibv_create_cq: null;
                "IBVERBS_1.0" ibv_create_qp: null;
                "IBVERBS_1.0" ibv_create_srq: null;
                "IBVERBS_1.0" ibv_dealloc_pd: code;
                "IBVERBS_1.0" ibv_dereg_mr: code;
                "IBVERBS_1.0" ibv_destroy_ah: code;
                "IBVERBS_1.0" ibv_destroy_cq: code;
                "IBVERBS_1.0" ibv_destroy_qp: code;
                "IBVERBS_1.0" ibv_destroy_srq: code;
                "IBVERBS_1.0" ibv_detach_mcast: code;
                "IBVERBS_1.0" ibv_free_device_list: nothing;
                "IBVERBS_1.0" ibv_get_async_event: minus;
                "IBVERBS_1.0" ibv_get_cq_event: minus;
                "IBVERBS_1.0" ibv_get_device_guid: zero;
                "IBVERBS_1.0" ibv_get_device_list: null;
                "IBVERBS_1.0" ibv_get_device_name: null;
                "IBVERBS_1.0" ibv_modify_qp: code;
                "IBVERBS_1.0" ibv_modify_srq: code;
                "IBVERBS_1.0" ibv_open_device: null;
                "IBVERBS_1.0" ibv_query_device: code;
                "IBVERBS_1.0" ibv_query_gid: minus;
                "IBVERBS_1.0" ibv_query_pkey: minus;
                "IBVERBS_1.0" ibv_query_port: code;
                "IBVERBS_1.0" ibv_query_qp: code;
                "IBVERBS_1.0" ibv_query_srq: code;
                "IBVERBS_1.0" ibv_reg_mr: null;
                "IBVERBS_1.1" ibv_register_driver: nothing;
                "IBVERBS_1.0" ibv_resize_cq: code;
            }
        }
    };
}

pub(crate) use calls_of_verbs;
