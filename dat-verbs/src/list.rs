//! The list of the public functions of libibverbs and librdmacm, of rdma-core 44: the only one.
//!
//! It makes the exports, their versions (`build.rs` reads these), and the check that none is
//! missing.

/// Passes the list to a macro, after what is given with its name.
///
/// - `MODULE = NAMES`: functions that a module of this crate has.
/// - `REFUSAL: NAMES`: functions that are not supported; `refusals` says how each tells.
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
                sysfs = ibv_get_sysfs_path ibv_read_sysfs_file;
                completion = ibv_create_comp_channel ibv_destroy_comp_channel;
                rates = ibv_rate_to_mult mult_to_ibv_rate;
                nothing: ibv_copy_path_rec_from_kern ibv_copy_path_rec_to_kern
                    ibv_copy_qp_attr_from_kern;
            }
            "IBVERBS_1.1" {
                opening = ibv_ack_async_event ibv_close_device ibv_get_async_event
                    ibv_open_device;
                device = ibv_free_device_list ibv_get_device_guid ibv_get_device_list
                    ibv_get_device_name;
                query = ibv_query_device ibv_query_gid ibv_query_pkey ibv_query_port;
                memory = ibv_alloc_pd ibv_dealloc_pd ibv_dereg_mr ibv_reg_mr ibv_rereg_mr;
                completion = ibv_ack_cq_events ibv_create_cq ibv_destroy_cq ibv_get_cq_event
                    ibv_resize_cq;
                transfer = ibv_create_ah ibv_create_ah_from_wc ibv_create_qp ibv_create_srq
                    ibv_destroy_ah ibv_destroy_qp ibv_destroy_srq ibv_init_ah_from_wc
                    ibv_modify_qp ibv_modify_srq ibv_query_qp ibv_query_srq;
                text = ibv_event_type_str ibv_node_type_str ibv_port_state_str
                    ibv_wc_status_str;
                rates = ibv_rate_to_mbps mbps_to_ibv_rate;
                forks = ibv_dofork_range ibv_dontfork_range ibv_fork_init;
                code: ibv_attach_mcast ibv_detach_mcast ibv_resolve_eth_l2_from_gid;
                nothing: ibv_copy_ah_attr_from_kern;
            }
            "IBVERBS_1.5" {
                query = ibv_get_pkey_index;
            }
            "IBVERBS_1.6" {
                transfer = ibv_qp_to_qp_ex;
            }
            "IBVERBS_1.7" {
                memory = ibv_reg_mr_iova;
            }
            "IBVERBS_1.8" {
                memory = ibv_reg_mr_iova2;
            }
            "IBVERBS_1.9" {
                device = ibv_get_device_index;
            }
            "IBVERBS_1.10" {
                null: ibv_import_device ibv_import_mr ibv_import_pd;
                code: ibv_query_ece ibv_set_ece;
                nothing: ibv_unimport_mr ibv_unimport_pd;
            }
            "IBVERBS_1.11" {
                query = _ibv_query_gid_ex _ibv_query_gid_table;
            }
            "IBVERBS_1.12" {
                null: ibv_reg_dmabuf_mr;
            }
            "IBVERBS_1.13" {
                forks = ibv_is_fork_initialized;
                null: ibv_import_dm;
                nothing: ibv_unimport_dm;
            }
            "IBVERBS_1.14" {
                zero: ibv_query_qp_data_in_order;
            }
            "RDMACM_1.0" {
                connection = rdma_accept rdma_ack_cm_event rdma_bind_addr rdma_connect
                    rdma_create_ep rdma_create_event_channel rdma_create_id rdma_create_qp
                    rdma_create_qp_ex rdma_destroy_ep rdma_destroy_event_channel rdma_destroy_id
                    rdma_destroy_qp rdma_disconnect rdma_free_devices rdma_freeaddrinfo
                    rdma_get_cm_event rdma_get_devices rdma_get_dst_port rdma_get_request
                    rdma_get_src_port rdma_getaddrinfo rdma_listen rdma_migrate_id rdma_reject
                    rdma_resolve_addr rdma_resolve_route rdma_set_option;
                text = rdma_event_str;
                minus: raccept rbind rclose rconnect rdma_create_srq rdma_create_srq_ex
                    rdma_join_multicast rdma_leave_multicast rdma_notify rfcntl rgetpeername
                    rgetsockname rgetsockopt riomap riounmap riowrite rlisten rpoll rread rreadv
                    rrecv rrecvfrom rrecvmsg rselect rsend rsendmsg rsendto rsetsockopt
                    rshutdown rsocket rwrite rwritev;
                nothing: rdma_destroy_srq;
            }
            "RDMACM_1.1" {
                minus: rdma_join_multicast_ex;
            }
            "RDMACM_1.2" {
                connection = rdma_establish rdma_init_qp_attr;
            }
            "RDMACM_1.3" {
                connection = rdma_reject_ece;
                minus: rdma_get_remote_ece rdma_set_local_ece;
            }
            old {
                "IBVERBS_1.0" {
                    zero: ibv_get_device_guid;
                    null: ibv_alloc_pd ibv_create_ah ibv_create_cq ibv_create_qp ibv_create_srq
                        ibv_get_device_list ibv_get_device_name ibv_open_device ibv_reg_mr;
                    minus: ibv_get_async_event ibv_get_cq_event ibv_query_gid ibv_query_pkey;
                    code: ibv_attach_mcast ibv_close_device ibv_dealloc_pd ibv_dereg_mr
                        ibv_destroy_ah ibv_destroy_cq ibv_destroy_qp ibv_destroy_srq
                        ibv_detach_mcast ibv_modify_qp ibv_modify_srq ibv_query_device
                        ibv_query_port ibv_query_qp ibv_query_srq ibv_resize_cq;
                    nothing: ibv_ack_async_event ibv_ack_cq_events ibv_free_device_list;
                }
                "IBVERBS_1.1" {
                    nothing: ibv_register_driver;
                }
            }
        }
    };
}

pub(crate) use calls_of_verbs;
