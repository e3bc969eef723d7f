//! Pending faults, and those that have had an effect.

use alloc::vec::Vec;

use crate::fault::{ConnectionEnd, Fault, Happened, RemoteError};

/// Effect of a fault on one completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompletionFault {
    Drop,
    Delay(u32),
    Duplicate,
    Reorder,
    Overrun,
}

/// Pending faults, and those that have had an effect.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pending: Vec<Fault>,
    happened: Vec<Happened>,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) {
        self.pending.push(fault);
    }

    /// Notes the effect of a fault.
    pub(crate) fn note(&mut self, fault: Fault, end: Option<ConnectionEnd>) {
        self.happened.push(Happened {
            fault,
            connection: end,
        });
    }

    /// Notes the connection that the last noted fault hit.
    pub(crate) fn note_connection(&mut self, end: Option<ConnectionEnd>) {
        if let Some(last) = self.happened.last_mut() {
            last.connection = end;
        }
    }

    /// Returns the faults that have had an effect, in order.
    pub(crate) fn happened(&self) -> &[Happened] {
        &self.happened
    }

    /// Removes the first pending fault that `pick` accepts.
    fn draw<R>(&mut self, mut pick: impl FnMut(&Fault) -> Option<R>) -> Option<(Fault, R)> {
        let (index, found) = self
            .pending
            .iter()
            .enumerate()
            .find_map(|(index, fault)| Some((index, pick(fault)?)))?;
        Some((self.pending.remove(index), found))
    }

    /// As [`draw`](Self::draw), and notes the effect of the fault.
    fn take<R>(&mut self, pick: impl FnMut(&Fault) -> Option<R>) -> Option<R> {
        let (fault, found) = self.draw(pick)?;
        self.note(fault, None);
        Some(found)
    }

    pub(crate) fn completion(&mut self, of: (u16, u32), count: u32) -> Option<CompletionFault> {
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

    pub(crate) fn loses_notification(&mut self, of: (u16, u32), count: u32) -> bool {
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

    /// Returns true if a pending fault refuses a post.
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

    /// Removes the fault that makes a receiver not ready from this message on.
    ///
    /// It has an effect only if its sender gives up.
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
