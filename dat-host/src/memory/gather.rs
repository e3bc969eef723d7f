//! Several pieces of memory for one operation.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use dat_core::memory::LmrTriplet;
use dat_core::{Cause, Error as CoreError, Parameter};

use super::lend::{Lend, Memory, MemoryMut, check_same_adapter, total};
use crate::error::Failed;
use crate::flight::{AdapterState, Lent, Object};

/// Several pieces of memory that one operation sends, or fills, in their order.
///
/// The endpoint needs attributes with as many segments per request, or per receive.
///
/// ```
/// # use dat_host::{Adapter, Endpoint, Result};
/// # fn connected(zone: &dat_host::Zone) -> Result<(Endpoint, Endpoint)> {
/// #     let listener = zone.listen_with(None, 1)?;
/// #     let near = zone.connect((zone.address()?, listener.qualifier())).start();
/// #     let far = listener.next().wait()?.accept().wait()?;
/// #     Ok((near.wait()?, far))
/// # }
/// # fn main() -> Result<()> {
/// use dat_host::Gather;
///
/// # let zone = Adapter::open("mock://gather")?.zone()?;
/// # let (near, far) = connected(&zone)?;
/// let receive = far.recv(zone.buffer(64)?);
/// let parts = vec![zone.copy(b"head")?, zone.copy(b"and body")?];
/// let parts = near.send(Gather::new(parts)?).wait()?.into_parts();
/// assert_eq!(parts.len(), 2);
/// assert_eq!(&receive.wait()?.memory[..], b"headand body");
/// # Ok(())
/// # }
/// ```
pub struct Gather<M> {
    /// Not empty, and all of one adapter.
    parts: Vec<M>,
}

impl<M: Memory> Gather<M> {
    /// Joins pieces of one adapter.
    ///
    /// # Errors
    /// Returns the pieces, and
    /// - [`Refused`](crate::Error::Refused) INVALID_PARAMETER (`segment`): there is none.
    /// - INVALID_HANDLE: they are of different adapters.
    pub fn new(parts: Vec<M>) -> Result<Self, Failed<Vec<M>>> {
        let Some(first) = parts.first() else {
            let empty = CoreError::invalid_argument(2)
                .about(Parameter::Segment)
                .because(Cause::ZeroCount);
            return Err(Failed::new(empty, parts));
        };
        let foreign = parts
            .iter()
            .find_map(|part| check_same_adapter(first.adapter(), part.adapter()).err());
        match foreign {
            None => Ok(Self { parts }),
            Some(foreign) => Err(Failed::new(foreign, parts)),
        }
    }
}

impl<M> Gather<M> {
    /// Returns the pieces.
    pub fn into_parts(self) -> Vec<M> {
        self.parts
    }
}

impl<M> fmt::Debug for Gather<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gather")
            .field("parts", &self.parts.len())
            .finish()
    }
}

impl<M: Send + 'static> Object for Gather<M> {
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }

    fn release(self: Box<Self>) {}
}

impl<M: Memory> Memory for Gather<M> {}

impl<M: MemoryMut> MemoryMut for Gather<M> {}

impl<M: Memory> Lend for Gather<M> {
    type Segments = Vec<LmrTriplet>;

    fn segments(&self) -> Vec<LmrTriplet> {
        let mut all = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            all.extend_from_slice(part.segments().as_ref());
        }
        all
    }

    fn adapter(&self) -> &Arc<AdapterState> {
        match self.parts.first() {
            Some(first) => first.adapter(),
            None => unreachable!("there is at least one piece"),
        }
    }

    fn lend(self) -> Lent {
        Lent::new(Box::new(self), 0, 0)
    }

    fn take_back(lent: Lent) -> Self {
        *lent.take()
    }

    fn set_received(&mut self, mut length: usize) {
        for part in &mut self.parts {
            let room = total(part.segments().as_ref()) as usize;
            part.set_received(length.min(room));
            length = length.saturating_sub(room);
        }
    }
}
