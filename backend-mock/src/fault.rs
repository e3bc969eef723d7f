//! Faults as data.

use alloc::vec::Vec;

/// What shall go wrong in a run. The same seed, plan and operations give the same run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct FaultPlan {
    /// Each happens once, where it says.
    pub faults: Vec<Fault>,
}

/// One fault.
///
/// Adapters are numbered from 0 in the order they were made, completion queues by their own numbers, and everything that is
/// counted ("the `nth`") from 0. Times are microseconds of the fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Fault {
    /// The nth completion of a queue is never delivered.
    DropCompletion {
        /// The adapter.
        adapter: u16,
        /// The completion queue.
        queue: u16,
        /// Which completion.
        nth: u32,
    },
    /// The nth completion of a queue is delivered late; later ones overtake it.
    DelayCompletion {
        /// The adapter.
        adapter: u16,
        /// The completion queue.
        queue: u16,
        /// Which completion.
        nth: u32,
        /// By how much.
        by: u32,
    },
    /// The nth completion of a queue is delivered twice.
    DuplicateCompletion {
        /// The adapter.
        adapter: u16,
        /// The completion queue.
        queue: u16,
        /// Which completion.
        nth: u32,
    },
    /// The nth completion of a queue is delivered after the one that follows it.
    ReorderCompletion {
        /// The adapter.
        adapter: u16,
        /// The completion queue.
        queue: u16,
        /// Which completion.
        nth: u32,
    },
    /// The nth completion of a queue finds no room, however much there is.
    OverrunQueue {
        /// The adapter.
        adapter: u16,
        /// The completion queue.
        queue: u16,
        /// Which completion.
        nth: u32,
    },
    /// The nth notification of a queue is never raised.
    LoseNotification {
        /// The adapter.
        adapter: u16,
        /// The completion queue.
        queue: u16,
        /// Which notification.
        nth: u32,
    },
    /// Nothing passes between the hosts of two adapters for a while.
    LinkDown {
        /// One end.
        a: u16,
        /// The other end.
        b: u16,
        /// From when.
        at: u64,
        /// For how long; `None` for good.
        duration: Option<u32>,
    },
    /// The nth control call of an adapter that can fail finds no resources.
    AllocationFailure {
        /// The adapter.
        adapter: u16,
        /// Which call.
        nth: u32,
    },
    /// The nth post of an adapter (sends, receives and binds together) is refused by the device.
    RefusePost {
        /// The adapter.
        adapter: u16,
        /// Which post.
        nth: u32,
    },
    /// The nth operation that an adapter starts is answered with an error.
    RemoteError {
        /// The adapter.
        adapter: u16,
        /// Which operation.
        nth: u32,
        /// The answer.
        error: RemoteError,
    },
    /// From the nth message that arrives at an adapter on, so many attempts find no receive buffer.
    ReceiverNotReady {
        /// The adapter.
        adapter: u16,
        /// Which message.
        nth: u32,
        /// How many attempts.
        attempts: u8,
    },
    /// A shared receive queue of an adapter fails when the nth buffer is to be taken from any of them.
    FailSharedReceive {
        /// The adapter.
        adapter: u16,
        /// Which buffer.
        nth: u32,
    },
    /// The host of an adapter dies without a word.
    Crash {
        /// The adapter.
        adapter: u16,
        /// When.
        at: u64,
    },
}

/// What a faulty peer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum RemoteError {
    /// That access is not allowed.
    Access,
    /// It could not carry the operation out.
    Responder,
    /// Something that is no answer to the operation.
    BadResponse,
    /// Nothing: retries run out.
    Silence,
}

/// Where a fault struck: an end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The adapter of this end.
    pub from: u16,
    /// The adapter of the other end.
    pub to: u16,
    /// Whether this end asked for the connection.
    pub asked: bool,
}

/// A fault that had an effect.
///
/// What is within the patience of the fabric has none: a receiver that is ready again before the retries run out, a link that is
/// back before anything is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// The fault, as it was planned.
    pub fault: Fault,
    /// The connection it struck, if it struck one alone.
    pub way: Option<Way>,
}

/// What a fault does to one completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompletionFault {
    Drop,
    Delay(u32),
    Duplicate,
    Reorder,
    Overrun,
}

/// The faults still to come, and those that happened.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pending: Vec<Fault>,
    happened: Vec<Happened>,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) {
        self.pending.push(fault);
    }

    /// A fault had an effect.
    pub(crate) fn note(&mut self, fault: Fault, way: Option<Way>) {
        self.happened.push(Happened { fault, way });
    }

    /// What happened last struck this connection.
    pub(crate) fn note_way(&mut self, way: Option<Way>) {
        if let Some(last) = self.happened.last_mut() {
            last.way = way;
        }
    }

    /// Those that had an effect, the first one first.
    pub(crate) fn happened(&self) -> &[Happened] {
        &self.happened
    }

    /// Takes the first fault for which `pick` has an answer.
    fn draw<R>(&mut self, mut pick: impl FnMut(&Fault) -> Option<R>) -> Option<(Fault, R)> {
        let (index, found) = self
            .pending
            .iter()
            .enumerate()
            .find_map(|(index, fault)| Some((index, pick(fault)?)))?;
        Some((self.pending.remove(index), found))
    }

    /// The same, of one that has its effect with that.
    fn take<R>(&mut self, pick: impl FnMut(&Fault) -> Option<R>) -> Option<R> {
        let (fault, found) = self.draw(pick)?;
        self.note(fault, None);
        Some(found)
    }

    pub(crate) fn completion(&mut self, of: (u16, u16), count: u32) -> Option<CompletionFault> {
        self.take(|fault| {
            let (adapter, queue, nth, effect) = match *fault {
                Fault::DropCompletion {
                    adapter,
                    queue,
                    nth,
                } => (adapter, queue, nth, CompletionFault::Drop),
                Fault::DelayCompletion {
                    adapter,
                    queue,
                    nth,
                    by,
                } => (adapter, queue, nth, CompletionFault::Delay(by)),
                Fault::DuplicateCompletion {
                    adapter,
                    queue,
                    nth,
                } => (adapter, queue, nth, CompletionFault::Duplicate),
                Fault::ReorderCompletion {
                    adapter,
                    queue,
                    nth,
                } => (adapter, queue, nth, CompletionFault::Reorder),
                Fault::OverrunQueue {
                    adapter,
                    queue,
                    nth,
                } => (adapter, queue, nth, CompletionFault::Overrun),
                _ => return None,
            };
            ((adapter, queue) == of && nth == count).then_some(effect)
        })
    }

    pub(crate) fn loses_notification(&mut self, of: (u16, u16), count: u32) -> bool {
        self.take(|fault| match *fault {
            Fault::LoseNotification {
                adapter,
                queue,
                nth,
            } if (adapter, queue) == of && nth == count => Some(()),
            _ => None,
        })
        .is_some()
    }

    pub(crate) fn fails_allocation(&mut self, of: u16, count: u32) -> bool {
        self.take(|fault| match *fault {
            Fault::AllocationFailure { adapter, nth } if adapter == of && nth == count => Some(()),
            _ => None,
        })
        .is_some()
    }

    pub(crate) fn fails_shared_receive(&mut self, of: u16, count: u32) -> bool {
        self.take(|fault| match *fault {
            Fault::FailSharedReceive { adapter, nth } if adapter == of && nth == count => Some(()),
            _ => None,
        })
        .is_some()
    }

    pub(crate) fn refuses_post(&mut self, of: u16, count: u32) -> bool {
        self.take(|fault| match *fault {
            Fault::RefusePost { adapter, nth } if adapter == of && nth == count => Some(()),
            _ => None,
        })
        .is_some()
    }

    /// Whether any post may still be refused.
    pub(crate) fn watches_posts(&self) -> bool {
        self.pending
            .iter()
            .any(|fault| matches!(fault, Fault::RefusePost { .. }))
    }

    pub(crate) fn remote_error(&mut self, of: u16, count: u32) -> Option<RemoteError> {
        self.take(|fault| match *fault {
            Fault::RemoteError {
                adapter,
                nth,
                error,
            } if adapter == of && nth == count => Some(error),
            _ => None,
        })
    }

    /// A receiver that is not ready from now on; it has an effect only if its sender gives up.
    pub(crate) fn not_ready(&mut self, of: u16, count: u32) -> Option<(Fault, u8)> {
        self.draw(|fault| match *fault {
            Fault::ReceiverNotReady {
                adapter,
                nth,
                attempts,
            } if adapter == of && nth == count => Some(attempts),
            _ => None,
        })
    }
}
