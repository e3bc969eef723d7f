//! Event dispatchers and notification objects on the test device.

#[cfg(feature = "std")]
mod agents;
mod completions;
mod connected;
mod deferred;
mod dispatcher;
mod drivers;
mod failures;
#[cfg(feature = "std")]
mod forged;
mod next_generation;
mod notification;
mod quick_waits;
mod records;
mod shared_buffers;
mod sleeps;
mod streams;
mod waits;
mod wake_ups;

use super::{Deferred, Event};
use crate::adapter::Ia;
use crate::error::{Error, ErrorKind, Subtype};
use crate::id::EvdId;
use crate::sync::NoLock;
use crate::testing::TestBackend;

type TestIa<'s> = Ia<'s, TestBackend, NoLock>;

/// Returns the kind and the subtype of an error.
fn code(error: Error) -> (ErrorKind, Subtype) {
    (error.kind(), error.subtype())
}

/// Pushes an unsolicited event on a dispatcher.
fn push(ia: &TestIa<'_>, evd: EvdId, event: &Event) {
    let mut deferred = Deferred::default();
    ia.push_event(evd, event, &mut deferred);
    ia.run_deferred(&mut deferred);
}

/// Dequeues all events; returns the value of each software event and the number of each other one.
fn drain(ia: &TestIa<'_>, evd: EvdId) -> std::vec::Vec<u64> {
    let mut events = std::vec::Vec::new();
    while let Ok(event) = ia.evd_dequeue(evd) {
        events.push(match event {
            Event::Software { pointer } => pointer,
            other => u64::from(other.number()),
        });
    }
    events
}
