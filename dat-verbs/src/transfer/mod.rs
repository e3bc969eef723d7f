//! Queue pairs, shared receive queues and address handles, and the requests that go through them.

mod address;
mod attributes;
mod building;
mod pair;
mod posts;
mod shared;
mod transitions;
mod window;

pub(crate) use address::{
    HOPS, ibv_create_ah, ibv_create_ah_from_wc, ibv_destroy_ah, ibv_init_ah_from_wc,
};
pub(crate) use attributes::{EVERY_ACCESS, agreed};
pub(crate) use pair::{
    Pair, Wanted, create, create_qp_ex, destroy, ibv_create_qp, ibv_destroy_qp, ibv_modify_qp,
    ibv_qp_to_qp_ex, ibv_query_qp,
};
pub(crate) use posts::{post_recv, post_send, post_srq_recv};
pub(crate) use shared::{
    SharedQueue, ibv_create_srq, ibv_destroy_srq, ibv_modify_srq, ibv_query_srq,
};
pub(crate) use transitions::needs;
#[cfg(test)]
pub(crate) use window::Window;
pub(crate) use window::{alloc_mw, bind_mw, dealloc_mw};
