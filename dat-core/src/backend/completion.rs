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

impl Completion {
    /// A success, not solicited, that needs no queue pair.
    pub(crate) const fn success(token: u64, length: u32) -> Self {
        Self {
            token,
            status: DtoStatus::Success,
            length,
            queue_pair: 0,
            solicited: false,
        }
    }
}

/// What a short look at a completion queue found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glance {
    /// The next completion, which was taken: a success, of which there is no more to say.
    Success {
        /// The token of the request.
        token: u64,
        /// Bytes received, for receives; `u32::MAX` for requests.
        length: u32,
    },
    /// There are no completions.
    Nothing,
    /// From `glance`: none is at hand, the device has to be asked. From `ask`: it was, and `glance` tells.
    Again,
    /// It takes [`poll`](CompletionQueue::poll) to tell; nothing was taken.
    Unclear,
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

    /// Takes the next completion if it is plain: a success, and no receive from a shared queue. Whoever glances is
    /// not waiting for solicited ones, so that it makes no difference whether it is one.
    ///
    /// The way of most dequeues; a backend without one for them alone leaves everything to `poll`. One for which it
    /// takes a call to ask the device only looks at what it has, and says [`Glance::Again`] if that is nothing.
    #[inline(always)]
    fn glance(&mut self) -> Glance {
        Glance::Unclear
    }

    /// As `glance`, which has just said `Again`: asks the device.
    #[inline(always)]
    fn ask(&mut self) -> Glance {
        Glance::Unclear
    }

    /// The number that the peer sent along with what the last `poll` took, a receive of an endpoint's own queue: of an RDMA
    /// Write that tells so. `glance` leaves such ones.
    #[inline(always)]
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
