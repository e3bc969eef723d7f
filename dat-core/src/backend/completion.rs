//! Completion queues.

use crate::flags::DtoStatus;

/// One completion as the device reports it; the core trusts none of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Token of the request.
    pub token: u64,
    /// Result of the request.
    ///
    /// The backend reports an unknown kind of failure as `LocalEndpoint` or `Transport`. It ends
    /// the queue pair, but neither the completion queue nor the device.
    pub status: DtoStatus,
    /// Bytes received; ignored for requests.
    pub length: u32,
    /// Token of the request's queue pair; needed only for shared receive queues.
    pub queue_pair: u64,
    /// Set if the peer requested a solicited completion; for receives only.
    ///
    /// Some devices cannot tell. While armed for solicited completions only, their backend reports
    /// false. If the device then notifies, the backend raises
    /// [`SolicitedCompletions`](super::ControlEvent::SolicitedCompletions). In all other cases it
    /// reports true, also for completions that `arm` missed.
    pub solicited: bool,
}

/// Head of a completion queue, as [`CompletionQueue::peek`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek {
    /// A success without further details: no receive of a shared queue, no immediate data.
    ///
    /// [`skip`](CompletionQueue::skip) takes it.
    Success {
        /// Token of the request.
        token: u64,
        /// Bytes received, for receives; `u32::MAX` for requests.
        length: u32,
    },
    /// The queue is empty.
    Empty,
    /// Any other completion, or a failure; [`poll`](CompletionQueue::poll) returns it.
    Other,
}

/// Permanent failure of the device or of one of its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum DeviceFailure {
    /// Completions were lost because the completion queue was full.
    CompletionQueueOverrun,
    /// The device reported an impossible value, or vanished.
    Broken,
}

/// Result of arming a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// The next completion raises [`ControlEvent::Completions`](super::ControlEvent).
    Armed,
    /// The queue has completions: poll again, then arm again.
    Missed,
}

/// A completion queue, owned by the core and called under the event dispatcher's lock.
pub trait CompletionQueue {
    /// Takes the next completion, if any.
    ///
    /// A backend that fetches completions in batches keeps the rest.
    ///
    /// # Errors
    /// The queue or the device failed; no more completions follow.
    /// - [`DeviceFailure::CompletionQueueOverrun`]: completions were lost. The queue returns the
    ///   others first.
    /// - [`DeviceFailure::Broken`]: the device reported an impossible value, or vanished.
    ///
    /// A backend that flushes the requests of a failed device returns no error. It reports
    /// [`ControlEvent::DeviceFailed`](super::ControlEvent::DeviceFailed) and returns their
    /// completions here.
    fn poll(&mut self) -> Result<Option<Completion>, DeviceFailure>;

    /// Returns the head of the queue without taking it.
    ///
    /// A dequeue on the common way calls it first, and takes a plain success by `skip`. For
    /// anything else, or where events are queued, the core calls `poll`. With this default it calls
    /// `poll` for all completions, which costs more instructions and has the same results. A caller
    /// that waits for solicited completions calls `poll` only.
    #[inline(always)]
    fn peek(&mut self) -> Peek {
        Peek::Other
    }

    /// Takes the success that the last `peek` returned.
    #[inline(always)]
    fn skip(&mut self) {}

    /// Returns the immediate data of the receive that the last `poll` took, if any.
    #[inline(always)]
    fn immediate(&mut self) -> Option<u32> {
        None
    }

    /// Returns true if the last `poll` found nothing because it would have waited for a call of the
    /// context that this one interrupts.
    ///
    /// The core then looks again in the next `progress`.
    #[inline(always)]
    fn was_refused(&self) -> bool {
        false
    }

    /// Arms one notification of the next completion.
    ///
    /// With `solicited_only`, of the next solicited or failed one. A failed queue, and one that the
    /// device cannot arm, returns [`Armed::Missed`]: poll it.
    fn arm(&mut self, solicited_only: bool) -> Armed;

    /// Returns a file descriptor for a host thread to sleep on, if the device has one.
    fn wait_object(&self) -> Option<i32> {
        None
    }
}
