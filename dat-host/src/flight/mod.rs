//! Operations in flight, which own their memory, and the adapter that carries them out.

mod adapter_state;
mod dispatch;
mod interface;
mod lent;
mod objects;
mod operation;
mod pass;
mod table;
mod trace;

pub(crate) use adapter_state::{AdapterState, Guard};
pub(crate) use dispatch::Scope;
pub(crate) use interface::{Inherited, Interface};
pub(crate) use lent::{Lent, Object};
pub(crate) use objects::{BufferQueue, EndpointEvents, Offers};
pub(crate) use operation::Operation;
#[cfg(feature = "rsm")]
pub(crate) use pass::POLL_MICROS;
pub(crate) use pass::{Pass, first};
pub(crate) use table::{Effects, Outcome, Owner};
pub(crate) use trace::Span;
