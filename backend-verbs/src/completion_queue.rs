//! Completion queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use dat_core::backend::{Armed, Completion, CompletionQueue, DeviceFailure, Peek};
use dat_core::flags::DtoStatus;

use crate::completion_room::{each, request_notifications};
use crate::directory::Directory;
use crate::hal::{Batch, CompletionQueue as HalQueue, RECEIVED, WorkCompletion};
use crate::signal::Signal;

/// State of a completion queue that the adapter and the owner of the queue share.
#[derive(Debug, Default)]
pub(crate) struct QueueMarks {
    /// The queue was armed, and has not notified since.
    pub(crate) armed: AtomicBool,
    /// The queue was armed for solicited completions only, and has not notified since.
    pub(crate) narrow: AtomicBool,
    /// Receives were taken meanwhile, and reported as not solicited.
    pub(crate) taken: AtomicBool,
    /// The device lost completions of the queue.
    pub(crate) overrun: AtomicBool,
    /// Queue pairs with shared receive queues complete here.
    pub(crate) serves_shared: AtomicBool,
    /// Queue pairs that complete here.
    pub(crate) users: AtomicU32,
    /// Arming waits for the first queue pair that completes here.
    pub(crate) deferred: AtomicBool,
}

impl QueueMarks {
    /// Notes that the device notified.
    ///
    /// Returns true if the solicited completion may be among those reported as not solicited.
    pub(crate) fn notified(&self) -> bool {
        self.narrow.store(false, Ordering::SeqCst);
        self.taken.swap(false, Ordering::SeqCst)
    }

    /// Returns true if a receive that was just taken counts as solicited.
    ///
    /// A completion of verbs has no such flag. While the device is armed for solicited completions,
    /// the receive does not count: for a solicited one, the device notifies. A receive from before
    /// the arming, or one taken after the notification, may have been solicited.
    fn may_be_solicited(&self) -> bool {
        if !self.narrow.load(Ordering::SeqCst) {
            return true;
        }
        self.taken.store(true, Ordering::SeqCst);
        // Either this sees a notification that is read now, or its reader sees `taken`.
        !self.narrow.load(Ordering::SeqCst)
    }

    /// Adds a queue pair that completes here; arms the device if that was deferred.
    pub(crate) fn attach(&self, first: &Arc<HalQueue>, solicited_only: bool) {
        self.users.fetch_add(1, Ordering::SeqCst);
        if self.deferred.swap(false, Ordering::SeqCst) {
            self.narrow.store(solicited_only, Ordering::SeqCst);
            // A device that cannot be armed is polled whenever a caller looks.
            let _armed = request_notifications(first, solicited_only);
        }
    }

    /// Arms a queue that was just added to the dispatcher's, if the others are armed.
    ///
    /// Its first queue pair does not exist yet, so nothing was missed.
    pub(crate) fn arm_added(&self, added: &HalQueue) {
        // Either this sees a concurrent arming, or that sees the added queue.
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::SeqCst) && !self.deferred.load(Ordering::SeqCst) {
            let _armed = added.request_notification(self.narrow.load(Ordering::SeqCst));
        }
    }

    /// Removes a queue pair that completed here.
    pub(crate) fn detach(&self) {
        self.users.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns true if arming can wait until there is a queue pair.
    fn may_defer(&self) -> bool {
        if self.users.load(Ordering::SeqCst) != 0 {
            return false;
        }
        self.deferred.store(true, Ordering::SeqCst);
        // A queue pair that came meanwhile saw `deferred`, or is seen here.
        self.users.load(Ordering::SeqCst) == 0
    }
}

/// A completion queue of a device, which is polled for 16 completions at a time.
///
/// More queue pairs than one completion queue of the device has room for get further ones, which
/// are polled in turn.
#[derive(Debug)]
pub struct VerbsCompletionQueue {
    /// First completion queue of the dispatcher.
    pub(crate) device: Arc<HalQueue>,
    /// Completion queue that was polled last, if there are several.
    pub(crate) turn: Option<Arc<HalQueue>>,
    pub(crate) batch: Batch,
    pub(crate) marks: Arc<QueueMarks>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) signal: Arc<Signal>,
}

impl VerbsCompletionQueue {
    /// Polls the device for a batch of completions; returns true if there were any.
    ///
    /// The batch must be empty.
    #[inline(always)]
    fn fill(&mut self) -> Result<bool, DeviceFailure> {
        if self.device.next.get().is_some() {
            return self.fill_in_turn();
        }
        self.device.fill(&mut self.batch)
    }

    /// Polls all completion queues of the dispatcher, from the one after the last polled.
    ///
    /// So a queue that is never empty does not hold up the others.
    #[cold]
    fn fill_in_turn(&mut self) -> Result<bool, DeviceFailure> {
        for _ in each(&self.device) {
            let next = self.turn.as_ref().and_then(|last| last.next.get());
            let next = Arc::clone(next.unwrap_or(&self.device));
            let filled = next.fill(&mut self.batch);
            self.turn = Some(next);
            if filled != Ok(false) {
                return filled;
            }
        }
        Ok(false)
    }

    fn convert(&self, found: &WorkCompletion) -> Completion {
        let (mut status, mut solicited, mut queue_pair) = (DtoStatus::Success, false, 0);
        if found.status != 0 || found.opcode & RECEIVED != 0 {
            (status, solicited) = self.examine(found.status, found.opcode, found.queue_pair);
            queue_pair = self.token_of(found.queue_pair);
        }
        Completion {
            token: found.token,
            status,
            length: found.length,
            queue_pair,
            solicited,
        }
    }

    /// Returns the status of a receive or a failed request, and whether it counts as solicited.
    fn examine(&self, code: u32, opcode: u32, queue_pair: u32) -> (DtoStatus, bool) {
        let received = opcode & RECEIVED != 0;
        let status = status(code);
        if status != DtoStatus::Success {
            // The operation code of a failed request is undefined.
            self.note_failure(queue_pair);
        } else if received && self.directory.is_waiting() {
            self.note_data(queue_pair);
        }
        (status, received && self.marks.may_be_solicited())
    }

    /// Returns the core's token of the queue pair if shared receive queues complete here, else 0.
    fn token_of(&self, queue_pair: u32) -> u64 {
        if self.marks.serves_shared.load(Ordering::Relaxed) {
            self.directory.token(queue_pair)
        } else {
            0
        }
    }

    #[cold]
    fn note_failure(&self, queue_pair: u32) {
        if self.directory.note_failure(queue_pair) {
            self.signal.alert();
        }
    }

    #[cold]
    fn note_data(&self, queue_pair: u32) {
        if self.directory.note_data(queue_pair) {
            self.signal.alert();
        }
    }

    /// Gives up a device that returned nonsense, with all of its connections.
    #[cold]
    fn note_nonsense(&self, failure: DeviceFailure) -> DeviceFailure {
        if self.directory.note_nonsense() {
            self.signal.alert();
        }
        failure
    }
}

impl CompletionQueue for VerbsCompletionQueue {
    fn poll(&mut self) -> Result<Option<Completion>, DeviceFailure> {
        if self.batch.is_broken() {
            return Err(self.note_nonsense(DeviceFailure::Broken));
        }
        if self.batch.is_empty() {
            self.fill().map_err(|failure| self.note_nonsense(failure))?;
        }
        match self.batch.take() {
            Some(found) => Ok(Some(self.convert(&found))),
            None if self.marks.overrun.load(Ordering::Relaxed) => {
                Err(DeviceFailure::CompletionQueueOverrun)
            }
            None => Ok(None),
        }
    }

    // A lost completion is not seen here: the control event that reports it makes the core poll.
    #[inline(always)]
    fn peek(&mut self) -> Peek {
        if self.batch.is_empty() && self.fill().is_err() {
            return Peek::Other;
        }
        let (directory, marks) = (&self.directory, &self.marks);
        self.batch.peek(|| are_plain(directory, marks))
    }

    #[inline(always)]
    fn skip(&mut self) {
        self.batch.skip();
    }

    fn immediate(&mut self) -> Option<u32> {
        self.batch.immediate()
    }

    /// Arms the device, then polls once more: completions that came in between may not notify.
    ///
    /// Arming waits for the first queue pair. Only then is it known which completions count, and a
    /// device that is armed for all of them cannot be told to wait for solicited ones.
    fn arm(&mut self, solicited_only: bool) -> Armed {
        if self.batch.is_empty() {
            if !self.marks.armed.swap(true, Ordering::AcqRel) {
                self.signal.armed();
            }
            if self.marks.may_defer() {
                self.marks.narrow.store(false, Ordering::SeqCst);
                return Armed::Armed;
            }
            self.marks.narrow.store(solicited_only, Ordering::SeqCst);
            // Either this sees a queue that is being added, or `arm_added` sees the arming.
            fence(Ordering::SeqCst);
            // A device that cannot be armed never notifies, so the caller has to poll again.
            let armed = request_notifications(&self.device, solicited_only);
            let nothing_new = self.fill() == Ok(false);
            if armed && nothing_new && !self.marks.overrun.load(Ordering::Relaxed) {
                return Armed::Armed;
            }
        }
        // A missed completion may have come before the arming, so no notification reports it.
        self.marks.narrow.store(false, Ordering::SeqCst);
        Armed::Missed
    }

    fn wait_object(&self) -> Option<i32> {
        Some(self.device.fd())
    }
}

impl Drop for VerbsCompletionQueue {
    fn drop(&mut self) {
        if self.marks.armed.swap(false, Ordering::AcqRel) {
            self.signal.disarmed();
        }
    }
}

/// Returns true if token and length tell all of a receive that succeeded.
#[inline(always)]
fn are_plain(directory: &Directory, marks: &QueueMarks) -> bool {
    !(directory.is_waiting() || marks.serves_shared.load(Ordering::Relaxed))
}

/// Returns the status of DAT for a status of verbs.
fn status(code: u32) -> DtoStatus {
    if code == 0 {
        return DtoStatus::Success;
    }
    failure(code)
}

#[cold]
fn failure(code: u32) -> DtoStatus {
    match code {
        1 => DtoStatus::LocalLength,
        2 => DtoStatus::LocalEndpoint,
        4 | 8 => DtoStatus::LocalProtection,
        5 => DtoStatus::Flushed,
        6 => DtoStatus::RmrOperationFailed,
        7 => DtoStatus::BadResponse,
        9 | 11 => DtoStatus::RemoteResponder,
        10 => DtoStatus::RemoteAccess,
        13 => DtoStatus::ReceiverNotReady,
        // Retries are exhausted, or a status that is not known yet.
        _ => DtoStatus::Transport,
    }
}

#[cfg(test)]
mod tests;
