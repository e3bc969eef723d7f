//! Events that a program waits for on a descriptor.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::ReadWriteFlags;

use crate::errors::Result;
use crate::locks::lock;

/// Events with a descriptor that polls as readable while there are some.
///
/// The program sets the descriptor to block or not. No other end is closed with it, so the end of
/// the queue wakes nobody.
pub(crate) struct EventQueue<T> {
    descriptor: OwnedFd,
    events: Mutex<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    /// Makes a queue without events.
    pub(crate) fn new() -> Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC).map_err(of_call)?;
        Ok(Self {
            descriptor,
            events: Mutex::default(),
        })
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<T>> {
        lock(&self.events)
    }

    /// Adds an event.
    pub(crate) fn push(&self, event: T) {
        let mut events = self.events();
        events.push_back(event);
        self.raise();
    }

    /// Takes the next event; waits for it if the descriptor blocks.
    ///
    /// `take` runs before a concurrent [`remove`](Self::remove) does.
    ///
    /// # Errors
    /// Those of `read`: `EAGAIN`, `EINTR`.
    pub(crate) fn take<R>(&self, take: impl FnOnce(T) -> R) -> Result<R> {
        loop {
            let mut count = [0; 8];
            rustix::io::read(&self.descriptor, &mut count).map_err(of_call)?;
            let mut events = self.events();
            let event = events.pop_front();
            if !events.is_empty() {
                self.raise();
            }
            // Events may have been removed meanwhile.
            if let Some(event) = event {
                return Ok(take(event));
            }
        }
    }

    /// Removes the events that `is_gone` names, and returns them.
    pub(crate) fn remove(&self, mut is_gone: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut events = self.events();
        let (gone, kept) = events.drain(..).partition(|event| is_gone(event));
        *events = kept;
        if events.is_empty() {
            self.lower();
        }
        gone.into()
    }

    fn raise(&self) {
        // It cannot fail: the count is far from its end.
        let _written = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable; a reader may have done so.
    fn lower(&self) {
        let mut count = [0; 8];
        let room = &mut [std::io::IoSliceMut::new(&mut count)];
        // Where the system cannot (before Linux 5.8), the next read finds no event.
        let _read = rustix::io::preadv2(&self.descriptor, room, u64::MAX, ReadWriteFlags::NOWAIT);
    }
}

fn of_call(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error())
}

impl<T> AsFd for EventQueue<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Events that a program has taken and has yet to acknowledge.
#[derive(Default)]
pub(crate) struct Unacknowledged {
    count: Mutex<u64>,
    none: Condvar,
}

impl Unacknowledged {
    fn count(&self) -> MutexGuard<'_, u64> {
        lock(&self.count)
    }

    /// Notes an event that the program takes.
    pub(crate) fn add(&self) {
        *self.count() += 1;
    }

    /// Notes acknowledgements.
    pub(crate) fn acknowledge(&self, events: u64) {
        let mut count = self.count();
        *count = count.saturating_sub(events);
        if *count == 0 {
            self.none.notify_all();
        }
    }

    /// Waits until all events are acknowledged.
    pub(crate) fn wait(&self) {
        let waited = self.none.wait_while(self.count(), |count| *count > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fs::{OFlags, fcntl_setfl};

    fn is_readable(queue: &EventQueue<u8>) -> bool {
        let mut set = [PollFd::new(&queue.descriptor, PollFlags::IN)];
        let now = rustix::event::Timespec::default();
        poll(&mut set, Some(&now)).expect("a poll") == 1
    }

    fn queue() -> EventQueue<u8> {
        let queue = EventQueue::new().expect("a queue");
        fcntl_setfl(&queue.descriptor, OFlags::NONBLOCK).expect("flags");
        queue
    }

    #[test]
    fn a_descriptor_is_readable_while_there_are_events() {
        let queue = queue();
        assert!(!is_readable(&queue));
        assert_eq!(queue.take(|event| event), Err(Errno::EAGAIN));
        queue.push(1);
        queue.push(2);
        for event in [1, 2] {
            assert!(is_readable(&queue));
            assert_eq!(queue.take(|event| event), Ok(event));
        }
        assert!(!is_readable(&queue));
    }

    #[test]
    fn removed_events_are_not_taken() {
        let queue = queue();
        for event in 1..=4 {
            queue.push(event);
        }
        assert_eq!(queue.remove(|event| event % 2 == 0), [2, 4]);
        assert!(is_readable(&queue));
        assert_eq!(queue.take(|event| event), Ok(1));
        assert_eq!(queue.remove(|_| true), [3]);
        assert!(!is_readable(&queue));
        assert_eq!(queue.take(|event| event), Err(Errno::EAGAIN));
    }

    #[test]
    fn a_reader_that_blocks_gets_the_next_event() {
        let queue: EventQueue<u8> = EventQueue::new().expect("a queue");
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| queue.take(|event| event));
            queue.push(7);
            assert_eq!(reader.join().expect("a reader"), Ok(7));
        });
    }

    #[test]
    fn a_wait_ends_with_the_last_acknowledgement() {
        let events = Unacknowledged::default();
        events.wait();
        events.add();
        events.add();
        events.acknowledge(1);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| events.wait());
            events.acknowledge(1);
            waiter.join().expect("the wait ends");
        });
    }
}
