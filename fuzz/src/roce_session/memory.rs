//! The memory of both ends of a connection, and a model of its content.

use std::collections::{BTreeMap, VecDeque};

use backend_roce::proto::memory::{
    AccessError, AtomicOperation, LocalError, Receive, ReceiveQueue, RemoteAddress, RemoteMemory,
    RequestMemory, Right,
};

/// The key of the memory that the peer may name.
pub(super) const KEY: u32 = 77;
/// The key that the peer may invalidate.
pub(super) const ENDS: u32 = 78;
/// Address of its first byte.
pub(super) const BASE: u64 = 0x7000_0000_0000;
/// Bytes that the peer may write; as many behind them may be read, and eight behind those hold a
/// number.
pub(super) const HALF: usize = 2048;

/// Memory that the peer may name.
pub(super) struct Exposed(pub(super) Vec<u8>);

impl Exposed {
    /// Makes memory whose second half has a pattern.
    pub(super) fn new() -> Self {
        let mut bytes = vec![0; HALF];
        bytes.extend((0..HALF).map(readable));
        bytes.extend([0; 8]);
        Self(bytes)
    }

    /// Returns the number at the end.
    pub(super) fn number(&self) -> u64 {
        let bytes = self.0[2 * HALF..].try_into();
        u64::from_ne_bytes(bytes.expect("eight bytes"))
    }

    fn place(
        &mut self,
        at: RemoteAddress,
        length: usize,
        right: Right,
    ) -> Result<&mut [u8], AccessError> {
        let (first, end) = match right {
            Right::Write => (0, HALF),
            Right::Read => (HALF, 2 * HALF),
            Right::Atomic => (2 * HALF, 2 * HALF + 8),
        };
        let start = at.address.checked_sub(BASE).ok_or(AccessError)?;
        let start = usize::try_from(start).map_err(|_| AccessError)?;
        let stop = start.checked_add(length).ok_or(AccessError)?;
        if at.key != KEY || start < first || stop > end {
            return Err(AccessError);
        }
        self.0.get_mut(start..stop).ok_or(AccessError)
    }
}

/// Returns a byte of the memory that may be read.
pub(super) fn readable(at: usize) -> u8 {
    (at * 7 % 251) as u8
}

impl RemoteMemory for Exposed {
    fn check(&mut self, at: RemoteAddress, length: u32, right: Right) -> Result<(), AccessError> {
        self.place(at, length as usize, right).map(|_| ())
    }

    fn read(&mut self, at: RemoteAddress, bytes: &mut [u8]) -> Result<(), AccessError> {
        bytes.copy_from_slice(self.place(at, bytes.len(), Right::Read)?);
        Ok(())
    }

    fn write(&mut self, at: RemoteAddress, bytes: &[u8]) -> Result<(), AccessError> {
        self.place(at, bytes.len(), Right::Write)?
            .copy_from_slice(bytes);
        Ok(())
    }

    fn atomic(
        &mut self,
        at: RemoteAddress,
        operation: AtomicOperation,
    ) -> Result<u64, AccessError> {
        let place = self.place(at, 8, Right::Atomic)?;
        let before = u64::from_ne_bytes(place.try_into().map_err(|_| AccessError)?);
        place.copy_from_slice(&operation.apply(before).to_ne_bytes());
        Ok(before)
    }

    fn check_invalidation(&mut self, key: u32) -> Result<(), AccessError> {
        (key == ENDS).then_some(()).ok_or(AccessError)
    }
}

/// The buffers of requests, by token.
#[derive(Default)]
pub(super) struct Buffers(pub(super) BTreeMap<u64, Vec<u8>>);

impl RequestMemory for Buffers {
    fn gather(&mut self, token: u64, offset: u32, bytes: &mut [u8]) -> Result<(), LocalError> {
        let buffer = self.0.get(&token).ok_or(LocalError)?;
        bytes.copy_from_slice(&buffer[offset as usize..][..bytes.len()]);
        Ok(())
    }

    fn scatter(&mut self, token: u64, offset: u32, bytes: &[u8]) -> Result<(), LocalError> {
        let buffer = self.0.get_mut(&token).ok_or(LocalError)?;
        buffer[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// Posted receives and their buffers.
#[derive(Default)]
pub(super) struct Receives {
    posted: VecDeque<Receive>,
    pub(super) buffers: Vec<Vec<u8>>,
}

impl Receives {
    pub(super) fn post(&mut self, length: u32) {
        let token = self.buffers.len() as u64;
        self.posted.push_back(Receive { token, length });
        self.buffers.push(vec![0; length as usize]);
    }
}

impl ReceiveQueue for Receives {
    fn take(&mut self) -> Option<Receive> {
        self.posted.pop_front()
    }

    fn place(&mut self, token: u64, offset: u32, bytes: &[u8]) -> Result<(), LocalError> {
        let buffer = self.buffers.get_mut(token as usize).ok_or(LocalError)?;
        buffer[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}
