//! Completion queues, as the core holds them.

use core::sync::atomic::{AtomicUsize, Ordering};

use dat_core::backend::{Armed, Completion, DeviceFailure, Peek};

use crate::arc::Arc;
use crate::executor::Executor;
use crate::ring::{CompletionRing, Entry};

/// A completion queue.
#[derive(Debug)]
pub struct CompletionQueue<X> {
    executor: X,
    number: u32,
    ready: Arc<AtomicUsize>,
    /// Immediate data of the completion that was polled last.
    immediate: Option<u32>,
    /// Set if the last poll met a call of the context that it interrupts.
    was_refused: bool,
    /// Token of the success that was peeked last.
    peeked: Option<u64>,
}

impl<X: Executor> CompletionQueue<X> {
    /// Makes the queue of the ring with this number; `ready` is the ring's.
    pub fn new(executor: X, number: u32, ready: Arc<AtomicUsize>) -> Self {
        Self {
            executor,
            number,
            ready,
            immediate: None,
            was_refused: false,
            peeked: None,
        }
    }

    /// Returns the number of the queue.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Takes at most `most` completions in order, under one lock; returns how many.
    ///
    /// # Errors
    /// The queue failed, and all of its completions are taken.
    pub fn take(
        &self,
        most: usize,
        mut each: impl FnMut(&Entry<X::Key>),
    ) -> Result<usize, DeviceFailure> {
        if self.executor.is_gone() {
            return Err(DeviceFailure::Broken);
        }
        if !self.is_ready() {
            return Ok(0);
        }
        let taken = self.executor.with_ring(self.number, |ring| {
            for taken in 0..most {
                match ring.take() {
                    Ok(Some(entry)) => each(&entry),
                    Err(failure) if taken == 0 => return Err(failure),
                    Ok(None) | Err(_) => return Ok(taken),
                }
            }
            Ok(most)
        });
        taken.unwrap_or(Err(DeviceFailure::Broken))
    }

    /// Arms the queue for the next completion, even if others wait.
    pub fn arm_for_next(&self, solicited_only: bool) {
        if !self.executor.is_gone() {
            self.executor
                .with_ring(self.number, |ring| ring.arm_for_next(solicited_only));
        }
    }

    /// Returns how many polls find something.
    pub fn ready(&self) -> usize {
        self.ready.load(Ordering::Acquire)
    }

    /// Returns true if a poll finds something, perhaps after the executor has advanced.
    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire) > 0 || {
            self.executor.advance();
            self.ready.load(Ordering::Acquire) > 0
        }
    }
}

impl<X: Executor> dat_core::backend::CompletionQueue for CompletionQueue<X> {
    fn poll(&mut self) -> Result<Option<Completion>, DeviceFailure> {
        self.immediate = None;
        self.was_refused = false;
        if self.executor.is_gone() {
            return Err(DeviceFailure::Broken);
        }
        if !self.is_ready() {
            return Ok(None);
        }
        let taken = self.executor.with_ring(self.number, CompletionRing::take);
        self.was_refused = taken.is_none();
        let taken = taken.unwrap_or(Ok(None))?;
        self.immediate = taken.and_then(|entry| entry.immediate);
        Ok(taken.map(|entry| entry.completion))
    }

    fn peek(&mut self) -> Peek {
        if !X::PEEKS || self.executor.is_gone() {
            return Peek::Other;
        }
        if !self.is_ready() {
            return Peek::Empty;
        }
        let head = self.executor.with_ring(self.number, |ring| ring.peek());
        let head = head.unwrap_or(Peek::Other);
        self.peeked = match head {
            Peek::Success { token, .. } => Some(token),
            Peek::Empty | Peek::Other => None,
        };
        head
    }

    fn skip(&mut self) {
        if let Some(token) = self.peeked.take() {
            self.executor
                .with_ring(self.number, |ring| ring.skip(token));
        }
    }

    fn immediate(&mut self) -> Option<u32> {
        self.immediate
    }

    fn was_refused(&self) -> bool {
        self.was_refused
    }

    fn arm(&mut self, solicited_only: bool) -> Armed {
        if self.executor.is_gone() {
            return Armed::Missed;
        }
        self.executor.before_arming();
        let armed = self
            .executor
            .with_ring(self.number, |ring| ring.arm(solicited_only));
        armed.unwrap_or(Armed::Missed)
    }
}
