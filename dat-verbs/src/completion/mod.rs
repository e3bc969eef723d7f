//! Completion queues and their channels.

mod channel;
mod extended;
mod queue;

pub(crate) use channel::{
    Channel, create_channel, ibv_ack_cq_events, ibv_create_comp_channel, ibv_destroy_comp_channel,
    ibv_get_cq_event,
};
pub(crate) use extended::create_cq_ex;
#[cfg(test)]
pub(crate) use extended::start_poll;
pub(crate) use queue::{
    Queue, create, ibv_create_cq, ibv_destroy_cq, ibv_resize_cq, poll_cq, req_notify_cq,
};
