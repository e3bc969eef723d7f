//! Asynchronous events of a device.

use core::mem::MaybeUninit;
use core::ptr;
use std::os::fd::RawFd;

use rdma_sys::{ibv_ack_async_event, ibv_async_event, ibv_get_async_event};

use dat_core::backend::BackendError;

use super::Context;
use super::sleep::set_nonblocking;

/// An asynchronous event.
///
/// It names its object by the number that the object was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AsyncEvent {
    /// A completion queue overran.
    CompletionQueueFailed(usize),
    /// A queue pair failed.
    QueuePairFailed(usize),
    /// Data arrived before the last message of the connection's handshake.
    Established(usize),
    /// A shared receive queue fell below its limit.
    SharedReceiveLimit(usize),
    /// A shared receive queue failed.
    SharedReceiveFailed(usize),
    /// The device failed.
    DeviceFailed,
    /// Port and address changes, and kinds that later libraries may add.
    Other,
}

pub(super) const CQ_ERR: u32 = 0;
pub(super) const QP_FATAL: u32 = 1;
const QP_REQ_ERR: u32 = 2;
const QP_ACCESS_ERR: u32 = 3;
const COMM_EST: u32 = 4;
const PATH_MIG_ERR: u32 = 7;
pub(super) const DEVICE_FATAL: u32 = 8;
const SRQ_ERR: u32 = 14;
pub(super) const SRQ_LIMIT_REACHED: u32 = 15;

impl AsyncEvent {
    /// Splits the object's number; returns the first part, and the event with the second one.
    ///
    /// The first part is `None` if the event concerns the whole device.
    pub(crate) fn split<T>(mut self, split: impl FnOnce(usize) -> (T, usize)) -> (Option<T>, Self) {
        let object = match &mut self {
            Self::CompletionQueueFailed(object)
            | Self::QueuePairFailed(object)
            | Self::Established(object)
            | Self::SharedReceiveLimit(object)
            | Self::SharedReceiveFailed(object) => object,
            Self::DeviceFailed | Self::Other => return (None, self),
        };
        let (first, second) = split(*object);
        *object = second;
        (Some(first), self)
    }
}

impl Context {
    /// Makes `next` return if there is no event.
    pub(crate) fn do_not_block(&self) -> Result<(), BackendError> {
        set_nonblocking(self.fd())
    }

    /// Returns a descriptor that is readable while there are events.
    pub(crate) fn fd(&self) -> RawFd {
        // SAFETY: the context lives.
        unsafe { (*self.raw()).async_fd }
    }

    /// Takes the next event, if there is one.
    ///
    /// Only one caller at a time.
    pub(crate) fn next(&self) -> Option<AsyncEvent> {
        let mut space = MaybeUninit::<ibv_async_event>::zeroed();
        let event = space.as_mut_ptr();
        // SAFETY: the context lives, and the event has room.
        if unsafe { ibv_get_async_event(self.raw(), event) } != 0 {
            return None;
        }
        // SAFETY: the event was filled in. Its kind is read as a number, because the library may
        // report kinds that `rdma-sys` does not know. The object in it lives: destroying an object
        // drops its events, and waits for those that are not acknowledged yet.
        let event = unsafe {
            match (&raw const (*event).event_type).cast::<u32>().read() {
                CQ_ERR => {
                    AsyncEvent::CompletionQueueFailed((*(*event).element.cq).cq_context as usize)
                }
                QP_FATAL | QP_REQ_ERR | QP_ACCESS_ERR | PATH_MIG_ERR => {
                    AsyncEvent::QueuePairFailed((*(*event).element.qp).qp_context as usize)
                }
                COMM_EST => AsyncEvent::Established((*(*event).element.qp).qp_context as usize),
                DEVICE_FATAL => AsyncEvent::DeviceFailed,
                SRQ_ERR => {
                    AsyncEvent::SharedReceiveFailed((*(*event).element.srq).srq_context as usize)
                }
                SRQ_LIMIT_REACHED => {
                    AsyncEvent::SharedReceiveLimit((*(*event).element.srq).srq_context as usize)
                }
                _ => AsyncEvent::Other,
            }
        };
        // SAFETY: `ibv_get_async_event` filled it in.
        unsafe { ibv_ack_async_event(ptr::from_mut(&mut space).cast()) };
        Some(event)
    }
}
