//! Event dispatchers and notification objects on the test device.

mod aftermath;
mod completions;
mod connected;
mod dispatcher;
mod drivers;
mod failures;
#[cfg(feature = "std")]
mod forged;
mod next_life;
mod notification;
mod quick_waits;
mod records;
mod shared_buffers;
mod sleeps;
mod streams;
mod waits;
mod wake_ups;

use super::{Aftermath, DtoCompletion, Event, EventSink};
use crate::error::{Error, ErrorKind, Result, Subtype};
use crate::ia::Ia;
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
    let mut aftermath = Aftermath::default();
    ia.push_event(evd, event, &mut aftermath);
    ia.settle(&mut aftermath);
}

/// Returns the result of a dequeue as `evd_dequeue` does.
struct Whole;

impl EventSink for Whole {
    type Output = Result<Event>;

    fn transfer(self, completion: DtoCompletion) -> Self::Output {
        Ok(Event::Dto(completion))
    }

    fn otherwise(self, found: Result<Event>) -> Self::Output {
        found
    }
}

/// Dequeues all events; returns the pointers of software events and the numbers of others.
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
