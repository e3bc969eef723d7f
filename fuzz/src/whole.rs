//! A sink that rebuilds the event that a dequeue passes in parts.

use dat_core::Result;
use dat_core::event::{DtoCompletion, Event, EventSink};

/// Rebuilds the event.
pub(crate) struct Whole;

impl EventSink for Whole {
    type Output = Result<Event>;

    fn transfer(self, completion: DtoCompletion) -> Result<Event> {
        Ok(Event::Dto(completion))
    }

    fn otherwise(self, outcome: Result<Event>) -> Result<Event> {
        outcome
    }
}
