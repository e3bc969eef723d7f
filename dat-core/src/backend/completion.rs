//! Completion queues.

use crate::flags::DtoStatus;

/// One completion as the device reports it; the core trusts none of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The token of the request.
    pub token: u64,
    /// How it ended.
    pub status: DtoStatus,
    /// Bytes received, for receives; ignored for requests.
    pub length: u32,
    /// The token of the queue pair that the request ran on; needed for shared receive queues only.
    pub queue_pair: u64,
    /// Whether the peer asked for a solicited completion (receives).
    pub solicited: bool,
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
    fn poll(&mut self) -> Result<Option<Completion>, DeviceFailure>;

    /// Asks for one notification at the next completion (the next solicited or failed one if
    /// `solicited_only`).
    fn arm(&mut self, solicited_only: bool) -> Armed;

    /// Something a host thread can sleep on (a file descriptor), if the device has it.
    fn wait_object(&self) -> Option<i32> {
        None
    }
}
