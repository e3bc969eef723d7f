//! A buffer from the pool of a zone.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use dat_core::id::LmrId;
use dat_core::memory::LmrTriplet;

use super::lend::{Lend, Memory, MemoryMut};
use super::slot::Slot;
use crate::flight::{AdapterState, Lent};

/// Registered memory from the pool of a [`Zone`](crate::Zone); returns to it when dropped.
///
/// It has the length that it was made with. A receive changes the length to that of the message.
///
/// ```
/// # fn main() -> dat_host::Result<()> {
/// let zone = dat_host::Adapter::open("mock://buffer")?.zone()?;
/// let mut buffer = zone.buffer(5)?;
/// buffer.copy_from_slice(b"hello");
/// assert_eq!(&buffer[..], b"hello");
/// # Ok(())
/// # }
/// ```
///
/// An operation owns its buffer until it completes:
///
/// ```compile_fail,E0382
/// # fn send(endpoint: &dat_host::Endpoint, buffer: dat_host::Buffer) {
/// let sent = endpoint.send(buffer);
/// println!("{:?}", &buffer[..]); // in flight
/// # drop(sent);
/// # }
/// ```
pub struct Buffer {
    /// `None` after `lend`.
    slot: Option<Box<Slot>>,
    length: usize,
}

impl Buffer {
    pub(crate) fn new(slot: Box<Slot>, length: usize) -> Self {
        Self {
            slot: Some(slot),
            length,
        }
    }

    fn slot(&self) -> &Slot {
        match &self.slot {
            Some(slot) => slot,
            None => unreachable!("a lent buffer has no owner that could use it"),
        }
    }

    /// Returns the maximum length in bytes.
    pub fn capacity(&self) -> usize {
        self.slot().capacity()
    }

    /// Changes the length; bytes beyond the old one have undefined values.
    ///
    /// Returns false, and changes nothing, if `length` is above the capacity.
    pub fn resize(&mut self, length: usize) -> bool {
        let fits = length <= self.capacity();
        if fits {
            self.length = length;
        }
        fits
    }

    /// Returns the local region that holds the buffer, among others.
    pub fn id(&self) -> LmrId {
        self.slot().id()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.slot().bytes(self.length)
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let length = self.length;
        match &mut self.slot {
            Some(slot) => &mut slot.memory.bytes_mut()[..length],
            None => unreachable!("a lent buffer has no owner that could use it"),
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.go_home();
        }
    }
}

impl Memory for Buffer {}

impl MemoryMut for Buffer {}

impl Lend for Buffer {
    type Segments = [LmrTriplet; 1];

    fn segments(&self) -> [LmrTriplet; 1] {
        [self.slot().segment(self.length)]
    }

    fn adapter(&self) -> &Arc<AdapterState> {
        self.slot().adapter()
    }

    fn lend(mut self) -> Lent {
        match self.slot.take() {
            Some(slot) => Lent::new(slot, 0, self.length),
            None => unreachable!("a lent buffer has no owner that could use it"),
        }
    }

    fn take_back(lent: Lent) -> Self {
        let length = lent.length;
        Self::new(lent.take(), length)
    }

    fn set_received(&mut self, length: usize) {
        self.length = length.min(self.length);
    }
}
