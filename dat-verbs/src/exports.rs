//! Names with versions: those of libibverbs and librdmacm.
//!
//! Each is a jump in assembly, since a version belongs to a symbol of the same object file.

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {f}"
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {f}"
    };
}

macro_rules! export {
    ($node:literal: $($name:ident => $function:path),* $(,)?) => {$(
        core::arch::global_asm!(
            concat!(".pushsection .text.dat_", stringify!($name), ",\"ax\",@progbits"),
            concat!(".globl dat_", stringify!($name)),
            concat!(".type dat_", stringify!($name), ",@function"),
            concat!("dat_", stringify!($name), ":"),
            jump!(),
            concat!(".size dat_", stringify!($name), ", . - dat_", stringify!($name)),
            concat!(".symver dat_", stringify!($name), ", ", stringify!($name), "@@", $node),
            ".popsection",
            f = sym $function,
        );
    )*};
}

export! { "IBVERBS_1.0":
    ibv_copy_path_rec_from_kern => crate::lacks::nothing,
    ibv_copy_path_rec_to_kern => crate::lacks::nothing,
    ibv_copy_qp_attr_from_kern => crate::lacks::nothing,
    ibv_create_comp_channel => crate::channels::create_comp_channel,
    ibv_destroy_comp_channel => crate::channels::destroy_comp_channel,
    ibv_get_sysfs_path => crate::names::get_sysfs_path,
    ibv_rate_to_mult => crate::names::rate_to_mult,
    ibv_read_sysfs_file => crate::names::read_sysfs_file,
    mult_to_ibv_rate => crate::names::mult_to_rate,
}

export! { "IBVERBS_1.1":
    ibv_ack_async_event => crate::devices::ack_async_event,
    ibv_ack_cq_events => crate::queues::ack_cq_events,
    ibv_alloc_pd => crate::regions::alloc_pd,
    ibv_attach_mcast => crate::lacks::number,
    ibv_close_device => crate::devices::close_device,
    ibv_copy_ah_attr_from_kern => crate::lacks::nothing,
    ibv_create_ah => crate::addresses::create_ah,
    ibv_create_ah_from_wc => crate::addresses::create_ah_from_wc,
    ibv_create_cq => crate::queues::create_cq,
    ibv_create_qp => crate::pairs::create_qp,
    ibv_create_srq => crate::shared::create_srq,
    ibv_dealloc_pd => crate::regions::dealloc_pd,
    ibv_dereg_mr => crate::regions::dereg_mr,
    ibv_destroy_ah => crate::addresses::destroy_ah,
    ibv_destroy_cq => crate::queues::destroy_cq,
    ibv_destroy_qp => crate::pairs::destroy_qp,
    ibv_destroy_srq => crate::shared::destroy_srq,
    ibv_detach_mcast => crate::lacks::number,
    ibv_dofork_range => crate::regions::dofork_range,
    ibv_dontfork_range => crate::regions::dontfork_range,
    ibv_event_type_str => crate::names::event_type_str,
    ibv_fork_init => crate::devices::fork_init,
    ibv_free_device_list => crate::devices::free_device_list,
    ibv_get_async_event => crate::devices::get_async_event,
    ibv_get_cq_event => crate::channels::get_cq_event,
    ibv_get_device_guid => crate::devices::get_device_guid,
    ibv_get_device_list => crate::devices::get_device_list,
    ibv_get_device_name => crate::devices::get_device_name,
    ibv_init_ah_from_wc => crate::addresses::init_ah_from_wc,
    ibv_modify_qp => crate::pairs::modify_qp,
    ibv_modify_srq => crate::shared::modify_srq,
    ibv_node_type_str => crate::names::node_type_str,
    ibv_open_device => crate::devices::open_device,
    ibv_port_state_str => crate::names::port_state_str,
    ibv_query_device => crate::devices::query_device,
    ibv_query_gid => crate::ports::query_gid,
    ibv_query_pkey => crate::ports::query_pkey,
    ibv_query_port => crate::ports::query_port,
    ibv_query_qp => crate::pairs::query_qp,
    ibv_query_srq => crate::shared::query_srq,
    ibv_rate_to_mbps => crate::names::rate_to_mbps,
    ibv_reg_mr => crate::regions::reg_mr,
    ibv_rereg_mr => crate::lacks::minus_one,
    ibv_resize_cq => crate::queues::resize_cq,
    ibv_resolve_eth_l2_from_gid => crate::lacks::number,
    ibv_wc_status_str => crate::names::wc_status_str,
    mbps_to_ibv_rate => crate::names::mbps_to_rate,
}

export! { "IBVERBS_1.5": ibv_get_pkey_index => crate::ports::get_pkey_index }
export! { "IBVERBS_1.6": ibv_qp_to_qp_ex => crate::pairs::qp_to_qp_ex }
export! { "IBVERBS_1.7": ibv_reg_mr_iova => crate::regions::reg_mr_iova }
export! { "IBVERBS_1.8": ibv_reg_mr_iova2 => crate::regions::reg_mr_iova2 }
export! { "IBVERBS_1.9": ibv_get_device_index => crate::devices::get_device_index }

export! { "IBVERBS_1.10":
    ibv_import_device => crate::lacks::null,
    ibv_import_mr => crate::lacks::null,
    ibv_import_pd => crate::lacks::null,
    ibv_query_ece => crate::lacks::number,
    ibv_set_ece => crate::lacks::number,
    ibv_unimport_mr => crate::lacks::nothing,
    ibv_unimport_pd => crate::lacks::nothing,
}

export! { "IBVERBS_1.11":
    _ibv_query_gid_ex => crate::ports::query_gid_ex,
    _ibv_query_gid_table => crate::ports::query_gid_table,
}

export! { "IBVERBS_1.12": ibv_reg_dmabuf_mr => crate::lacks::null }

export! { "IBVERBS_1.13":
    ibv_import_dm => crate::lacks::null,
    ibv_is_fork_initialized => crate::devices::is_fork_initialized,
    ibv_unimport_dm => crate::lacks::nothing,
}

export! { "IBVERBS_1.14": ibv_query_qp_data_in_order => crate::pairs::query_qp_data_in_order }
export! { "IBVERBS_PRIVATE_34": ibv_query_gid_type => crate::ports::query_gid_type }

export! { "RDMACM_1.0":
    raccept => crate::lacks::minus_one,
    rbind => crate::lacks::minus_one,
    rclose => crate::lacks::minus_one,
    rconnect => crate::lacks::minus_one,
    rdma_accept => crate::connections::accept,
    rdma_ack_cm_event => crate::events::ack_cm_event,
    rdma_bind_addr => crate::ids::bind_addr,
    rdma_connect => crate::connections::connect,
    rdma_create_ep => crate::infos::create_ep,
    rdma_create_event_channel => crate::events::create_event_channel,
    rdma_create_id => crate::ids::create_id,
    rdma_create_qp => crate::connections::create_qp,
    rdma_create_qp_ex => crate::connections::create_qp_ex,
    rdma_create_srq => crate::lacks::minus_one,
    rdma_create_srq_ex => crate::lacks::minus_one,
    rdma_destroy_ep => crate::infos::destroy_ep,
    rdma_destroy_event_channel => crate::events::destroy_event_channel,
    rdma_destroy_id => crate::ids::destroy_id,
    rdma_destroy_qp => crate::connections::destroy_qp,
    rdma_destroy_srq => crate::lacks::nothing,
    rdma_disconnect => crate::connections::disconnect,
    rdma_event_str => crate::events::event_str,
    rdma_free_devices => crate::ids::free_devices,
    rdma_freeaddrinfo => crate::infos::freeaddrinfo,
    rdma_get_cm_event => crate::events::get_cm_event,
    rdma_get_devices => crate::ids::get_devices,
    rdma_get_dst_port => crate::ids::get_dst_port,
    rdma_get_request => crate::connections::get_request,
    rdma_get_src_port => crate::ids::get_src_port,
    rdma_getaddrinfo => crate::infos::getaddrinfo,
    rdma_join_multicast => crate::lacks::minus_one,
    rdma_leave_multicast => crate::lacks::minus_one,
    rdma_listen => crate::ids::listen,
    rdma_migrate_id => crate::ids::migrate_id,
    rdma_notify => crate::lacks::minus_one,
    rdma_reject => crate::connections::reject,
    rdma_resolve_addr => crate::ids::resolve_addr,
    rdma_resolve_route => crate::ids::resolve_route,
    rdma_set_option => crate::ids::set_option,
    rfcntl => crate::lacks::minus_one,
    rgetpeername => crate::lacks::minus_one,
    rgetsockname => crate::lacks::minus_one,
    rgetsockopt => crate::lacks::minus_one,
    riomap => crate::lacks::minus_one_long,
    riounmap => crate::lacks::minus_one,
    riowrite => crate::lacks::minus_one_long,
    rlisten => crate::lacks::minus_one,
    rpoll => crate::lacks::minus_one,
    rread => crate::lacks::minus_one_long,
    rreadv => crate::lacks::minus_one_long,
    rrecv => crate::lacks::minus_one_long,
    rrecvfrom => crate::lacks::minus_one_long,
    rrecvmsg => crate::lacks::minus_one_long,
    rselect => crate::lacks::minus_one,
    rsend => crate::lacks::minus_one_long,
    rsendmsg => crate::lacks::minus_one_long,
    rsendto => crate::lacks::minus_one_long,
    rsetsockopt => crate::lacks::minus_one,
    rshutdown => crate::lacks::minus_one,
    rsocket => crate::lacks::minus_one,
    rwrite => crate::lacks::minus_one_long,
    rwritev => crate::lacks::minus_one_long,
}

export! { "RDMACM_1.1": rdma_join_multicast_ex => crate::lacks::minus_one }

export! { "RDMACM_1.2":
    rdma_establish => crate::lacks::minus_one,
    rdma_init_qp_attr => crate::lacks::minus_one,
}

export! { "RDMACM_1.3":
    rdma_get_remote_ece => crate::lacks::minus_one,
    rdma_reject_ece => crate::lacks::minus_one,
    rdma_set_local_ece => crate::lacks::minus_one,
}
