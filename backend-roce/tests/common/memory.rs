//! Memory of an end: regions with keys, segments of requests and receives.

use std::collections::{HashMap, VecDeque};

use backend_roce::proto::memory::{
    AccessError, AtomicOperation, LocalError, Receive, ReceiveQueue, RemoteAddress, RemoteMemory,
    RequestMemory, Right,
};

/// A range of the memory that a key grants.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    pub key: u32,
    pub address: u64,
    pub length: u64,
    pub read: bool,
    pub write: bool,
    pub atomic: bool,
}

/// The key that a peer may invalidate.
pub const ENDS: u32 = 0x5EC2_E7FF;

/// Address of the first byte of the memory of each end.
pub const BASE: u64 = 0x7000_0000_0000;

/// The memory that a peer may name.
#[derive(Default)]
pub struct Exposed {
    pub bytes: Vec<u8>,
    pub grants: Vec<Grant>,
    /// Number of calls that were refused.
    pub refused: usize,
}

impl Exposed {
    fn range(
        &mut self,
        at: RemoteAddress,
        length: u64,
        right: Right,
    ) -> Result<std::ops::Range<usize>, AccessError> {
        let end = at.address.checked_add(length);
        let covers = |grant: &&Grant| {
            let has_right = match right {
                Right::Read => grant.read,
                Right::Write => grant.write,
                Right::Atomic => grant.atomic,
            };
            let inside = at.address >= grant.address
                && end.is_some_and(|end| end <= grant.address + grant.length);
            grant.key == at.key && has_right && inside
        };
        if !self.grants.iter().any(|grant| covers(&grant)) {
            self.refused += 1;
            return Err(AccessError);
        }
        let start = (at.address - BASE) as usize;
        Ok(start..start + length as usize)
    }
}

impl RemoteMemory for Exposed {
    fn check(&mut self, at: RemoteAddress, length: u32, right: Right) -> Result<(), AccessError> {
        self.range(at, u64::from(length), right).map(|_| ())
    }

    fn read(&mut self, at: RemoteAddress, bytes: &mut [u8]) -> Result<(), AccessError> {
        let range = self.range(at, bytes.len() as u64, Right::Read)?;
        bytes.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn write(&mut self, at: RemoteAddress, bytes: &[u8]) -> Result<(), AccessError> {
        let range = self.range(at, bytes.len() as u64, Right::Write)?;
        self.bytes[range].copy_from_slice(bytes);
        Ok(())
    }

    fn atomic(
        &mut self,
        at: RemoteAddress,
        operation: AtomicOperation,
    ) -> Result<u64, AccessError> {
        let range = self.range(at, 8, Right::Atomic)?;
        let place = &mut self.bytes[range];
        let value = u64::from_ne_bytes(place.try_into().unwrap());
        place.copy_from_slice(&operation.apply(value).to_ne_bytes());
        Ok(value)
    }

    fn check_invalidation(&mut self, key: u32) -> Result<(), AccessError> {
        (key == ENDS).then_some(()).ok_or(AccessError)
    }
}

/// The local memory of requests: one buffer for each token.
#[derive(Default)]
pub struct Buffers(pub HashMap<u64, Vec<u8>>);

impl RequestMemory for Buffers {
    fn gather(&mut self, token: u64, offset: u32, bytes: &mut [u8]) -> Result<(), LocalError> {
        let buffer = self.0.get(&token).ok_or(LocalError)?;
        let offset = offset as usize;
        bytes.copy_from_slice(&buffer[offset..offset + bytes.len()]);
        Ok(())
    }

    fn scatter(&mut self, token: u64, offset: u32, bytes: &[u8]) -> Result<(), LocalError> {
        let buffer = self.0.get_mut(&token).ok_or(LocalError)?;
        let offset = offset as usize;
        buffer[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// Posted receives and their buffers.
#[derive(Default)]
pub struct Receives {
    pub posted: VecDeque<Receive>,
    pub buffers: HashMap<u64, Vec<u8>>,
}

impl Receives {
    pub fn post(&mut self, token: u64, length: u32) {
        self.posted.push_back(Receive { token, length });
        self.buffers.insert(token, vec![0; length as usize]);
    }
}

impl ReceiveQueue for Receives {
    fn take(&mut self) -> Option<Receive> {
        self.posted.pop_front()
    }

    fn place(&mut self, token: u64, offset: u32, bytes: &[u8]) -> Result<(), LocalError> {
        let buffer = self.buffers.get_mut(&token).ok_or(LocalError)?;
        let offset = offset as usize;
        buffer[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// The memory of a queue pair: that of its requests, and that which its peer may name.
#[derive(Default)]
pub struct PairMemory {
    pub buffers: Buffers,
    pub exposed: Exposed,
}

impl RequestMemory for PairMemory {
    fn gather(&mut self, token: u64, offset: u32, bytes: &mut [u8]) -> Result<(), LocalError> {
        self.buffers.gather(token, offset, bytes)
    }

    fn scatter(&mut self, token: u64, offset: u32, bytes: &[u8]) -> Result<(), LocalError> {
        self.buffers.scatter(token, offset, bytes)
    }
}

impl RemoteMemory for PairMemory {
    fn check(&mut self, at: RemoteAddress, length: u32, right: Right) -> Result<(), AccessError> {
        self.exposed.check(at, length, right)
    }

    fn read(&mut self, at: RemoteAddress, bytes: &mut [u8]) -> Result<(), AccessError> {
        self.exposed.read(at, bytes)
    }

    fn write(&mut self, at: RemoteAddress, bytes: &[u8]) -> Result<(), AccessError> {
        self.exposed.write(at, bytes)
    }

    fn atomic(
        &mut self,
        at: RemoteAddress,
        operation: AtomicOperation,
    ) -> Result<u64, AccessError> {
        self.exposed.atomic(at, operation)
    }
}
