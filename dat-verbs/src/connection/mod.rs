//! Identifiers, events and connections of librdmacm.

mod attributes;
mod channel;
mod connect;
mod devices;
mod endpoint;
mod id;
mod info;
mod listen;
mod pair;
mod resolve;

pub(crate) use attributes::rdma_init_qp_attr;
#[cfg(test)]
pub(crate) use channel::{Event, EventChannel};
pub(crate) use channel::{
    rdma_ack_cm_event, rdma_create_event_channel, rdma_destroy_event_channel, rdma_get_cm_event,
};
pub(crate) use connect::{
    rdma_accept, rdma_connect, rdma_disconnect, rdma_establish, rdma_reject, rdma_reject_ece,
};
pub(crate) use devices::{rdma_free_devices, rdma_get_devices};
pub(crate) use endpoint::{rdma_create_ep, rdma_destroy_ep};
#[cfg(test)]
pub(crate) use id::Id;
pub(crate) use id::{
    rdma_create_id, rdma_destroy_id, rdma_get_dst_port, rdma_get_src_port, rdma_migrate_id,
    rdma_set_option,
};
pub(crate) use info::{rdma_freeaddrinfo, rdma_getaddrinfo};
pub(crate) use listen::{rdma_get_request, rdma_listen};
pub(crate) use pair::{rdma_create_qp, rdma_create_qp_ex, rdma_destroy_qp};
pub(crate) use resolve::{rdma_bind_addr, rdma_resolve_addr, rdma_resolve_route};
