//! What makes of an event that a dequeue hands on in parts the event that it is.

use dat_core::Result;
use dat_core::event::{DtoCompletion, Event, EventSink};

/// Makes of an event that event.
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
