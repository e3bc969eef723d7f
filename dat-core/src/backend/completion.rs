//! Completion queues.

use crate::flags::DtoStatus;

/// One completion as the device reports it; the core trusts none of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The token of the request.
    pub token: u64,
    /// How it ended.
    ///
    /// A failure of a kind that the backend does not know is `LocalEndpoint` or `Transport`. It ends
    /// its queue pair, and neither the completion queue nor the device.
    pub status: DtoStatus,
    /// Bytes received, for receives; ignored for requests.
    pub length: u32,
    /// The token of the queue pair that the request ran on; needed for shared receive queues only.
    pub queue_pair: u64,
    /// Whether the peer asked for a solicited completion (receives).
    ///
    /// A device that cannot tell says no while it is armed for solicited completions, and
    /// [`SolicitedCompletions`](super::ControlEvent::SolicitedCompletions) where that was wrong; at all other times,
    /// and of what `arm` missed, it says yes.
    pub solicited: bool,
}

/// The head of a completion queue, as [`CompletionQueue::peek`] sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek {
    /// A success about which there is no more to say: no receive from a shared queue, and no
    /// number with it. [`skip`](CompletionQueue::skip) takes it.
    Success {
        /// The token of the request.
        token: u64,
        /// Bytes received, for receives; `u32::MAX` for requests.
        length: u32,
    },
    /// The queue is empty.
    Empty,
    /// Any other completion, or a failure: [`poll`](CompletionQueue::poll) tells.
    Other,
}

/// The device or one of its queues is broken beyond repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum DeviceFailure {
    /// Completions were lost because the completion queue was full.
    CompletionQueueOverrun,
    /// The device reported nonsense, or vanished.
    Broken,
}

/// What arming a completion queue led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// The next completion raises [`ControlEvent::Completions`](super::ControlEvent).
    Armed,
    /// Completions are there already: poll again, then arm again.
    Missed,
}

/// A completion queue, owned by the core and called under the event dispatcher's lock.
pub trait CompletionQueue {
    /// Takes the next completion, if there is one. A backend that gets them in batches keeps the rest.
    ///
    /// # Errors
    /// The queue or the device failed; no more is expected from it.
    /// - [`DeviceFailure::CompletionQueueOverrun`]: completions were lost. Those that were not are returned first.
    /// - [`DeviceFailure::Broken`]: the device reported nonsense, or vanished.
    ///
    /// A backend that flushes what was posted on a device that failed returns no error: it reports
    /// [`ControlEvent::DeviceFailed`](super::ControlEvent::DeviceFailed), and the completions here.
    fn poll(&mut self) -> Result<Option<Completion>, DeviceFailure>;

    /// Returns the head of the queue and takes nothing.
    ///
    /// The common way of a dequeue. A backend without it leaves everything to `poll`. The caller
    /// does not wait for solicited completions, so a success is one whether it is solicited or not.
    #[inline]
    fn peek(&mut self) -> Peek {
        Peek::Other
    }

    /// Takes the success that the last `peek` returned.
    #[inline]
    fn skip(&mut self) {}

    /// The number that came with the receive which the last `poll` took: the peer wrote with
    /// immediate data.
    #[inline]
    fn immediate(&mut self) -> Option<u32> {
        None
    }

    /// Asks for one notification at the next completion (the next solicited or failed one if
    /// `solicited_only`).
    ///
    /// A queue that failed, and one that the device cannot arm, answers [`Armed::Missed`]: a poll tells.
    fn arm(&mut self, solicited_only: bool) -> Armed;

    /// Something a host thread can sleep on (a file descriptor), if the device has it.
    fn wait_object(&self) -> Option<i32> {
        None
    }
}
