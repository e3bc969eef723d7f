//! The control events of an adapter until they are polled.

use alloc::collections::{BTreeMap, BTreeSet};
use core::sync::atomic::{AtomicUsize, Ordering};

use dat_core::backend::ControlEvent;
use dat_queues::Arc;

use crate::steps::step;

/// Subject of control events that may be withdrawn, with its token or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// The connection of a queue pair.
    Connection(u64),
    /// The soft high watermark of a queue pair.
    Watermark(u64),
    /// An armed completion queue.
    Completions(u32),
    /// The limit of a shared receive queue.
    Limit(u64),
    /// The failure of a shared receive queue.
    Failure(u64),
}

impl Subject {
    fn of(event: &ControlEvent) -> Option<Self> {
        Some(match *event {
            ControlEvent::Answered { queue_pair }
            | ControlEvent::Established { queue_pair, .. }
            | ControlEvent::ConnectFailed { queue_pair, .. }
            | ControlEvent::Disconnected { queue_pair }
            | ControlEvent::Broken { queue_pair } => Self::Connection(queue_pair),
            ControlEvent::SoftHighWatermark { queue_pair } => Self::Watermark(queue_pair),
            ControlEvent::Completions { queue } => Self::Completions(queue),
            ControlEvent::SharedReceiveLimit { queue } => Self::Limit(queue),
            ControlEvent::SharedReceiveFailed { queue } => Self::Failure(queue),
            _ => return None,
        })
    }
}

/// Control events in the order in which they were raised, and by subject.
#[derive(Debug)]
pub(crate) struct ControlEvents {
    /// Events by their numbers, which count up.
    events: BTreeMap<u64, ControlEvent>,
    /// Numbers of the events of each subject.
    subjects: BTreeSet<(Subject, u64)>,
    raised: u64,
    /// Number of events; read without the lock.
    ready: Arc<AtomicUsize>,
}

impl ControlEvents {
    pub(crate) fn new(ready: Arc<AtomicUsize>) -> Self {
        Self {
            events: BTreeMap::new(),
            subjects: BTreeSet::new(),
            raised: 0,
            ready,
        }
    }

    pub(crate) fn push(&mut self, event: ControlEvent) {
        self.raised += 1;
        if let Some(subject) = Subject::of(&event) {
            self.subjects.insert((subject, self.raised));
        }
        self.events.insert(self.raised, event);
        self.publish();
    }

    pub(crate) fn pop(&mut self) -> Option<ControlEvent> {
        let (number, event) = self.events.pop_first()?;
        if let Some(subject) = Subject::of(&event) {
            self.subjects.remove(&(subject, number));
        }
        self.publish();
        Some(event)
    }

    /// Withdraws all events of a subject; returns true if there were any.
    pub(crate) fn forget(&mut self, subject: Subject) -> bool {
        let mut found = false;
        let all = (subject, 0)..=(subject, u64::MAX);
        while let Some(entry) = self.subjects.range(all.clone()).next().copied() {
            step();
            self.subjects.remove(&entry);
            self.events.remove(&entry.1);
            found = true;
        }
        self.publish();
        found
    }

    fn publish(&self) {
        self.ready.store(self.events.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_removed_object_are_removed() {
        let ready = Arc::new(AtomicUsize::new(0));
        let mut control = ControlEvents::new(Arc::clone(&ready));
        for queue_pair in [1, 2] {
            control.push(ControlEvent::Answered { queue_pair });
            control.push(ControlEvent::SoftHighWatermark { queue_pair });
            control.push(ControlEvent::Broken { queue_pair });
        }
        control.push(ControlEvent::DeviceFailed);
        assert!(control.forget(Subject::Connection(1)));
        assert!(!control.forget(Subject::Connection(1)));
        assert!(!control.forget(Subject::Completions(1)));
        assert_eq!(ready.load(Ordering::Relaxed), 5);
        let left: Vec<ControlEvent> = core::iter::from_fn(|| control.pop()).collect();
        let expected = [
            ControlEvent::SoftHighWatermark { queue_pair: 1 },
            ControlEvent::Answered { queue_pair: 2 },
            ControlEvent::SoftHighWatermark { queue_pair: 2 },
            ControlEvent::Broken { queue_pair: 2 },
            ControlEvent::DeviceFailed,
        ];
        assert_eq!(left, expected);
        assert_eq!(ready.load(Ordering::Relaxed), 0);
        assert!(control.subjects.is_empty());
    }
}
