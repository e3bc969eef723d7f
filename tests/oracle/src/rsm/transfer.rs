//! Transfers by the catalogue: refused entries, and moved bytes.

use std::ops::Range;

use dat_rsm::{Permission, RsmError};

use super::world::World;
use crate::op::Side;

/// Local memory of an iov entry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EntryMemory {
    /// Registered memory, if the handle is valid.
    Registered(Option<usize>),
    /// Buffer of the caller: number and length.
    Buffer(usize, usize),
    /// Range of the memory that handles are made of: start and length.
    Shared(usize, usize),
}

/// One iov entry of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IovEntry {
    pub(crate) memory: EntryMemory,
    pub(crate) local_offset: u64,
    pub(crate) remote_offset: u64,
    pub(crate) length: u64,
}

/// Direction and form of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) put: bool,
    /// Item size of a single put or get; `None` for vectors.
    pub(crate) single: Option<u64>,
}

/// Memory that bytes are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Pages of a node's segments.
    Pages(Side),
    /// Local memory of a node.
    Local(Side),
    /// Buffer of the call.
    Buffer(usize),
}

/// Bytes to move.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    /// Index of their iov entry.
    pub(crate) entry: usize,
    pub(crate) local: (Memory, Range<usize>),
    pub(crate) remote: (Memory, Range<usize>),
}

/// Planned effect of a call.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) moves: Vec<Move>,
    /// Error and residual.
    pub(crate) outcome: Result<(), (RsmError, usize)>,
    pub(crate) explicit: bool,
}

impl World {
    /// Spec: RSMPV-02..06, RSMPV-50..61, RSMPV-80..84, RSMGP-01..08
    pub(crate) fn plan(
        &self,
        side: Side,
        import: Option<usize>,
        form: Form,
        iov: &[IovEntry],
    ) -> Plan {
        let mut plan = Plan {
            moves: Vec::new(),
            outcome: Ok(()),
            explicit: false,
        };
        if let Err(error) = self.begin(side, import, form, iov) {
            plan.outcome = Err((error, iov.len()));
            return plan;
        }
        let Some(import) = import.and_then(|index| self.node(side).imports.get(index)) else {
            return plan;
        };
        // The segment is gone and the importer does not know: entries are checked nevertheless.
        let export = self.node(import.exporter).exports.get(import.export);
        let segment = export.map_or(0, |export| export.start);
        plan.explicit = import.explicit;
        for (index, entry) in iov.iter().enumerate() {
            let checked = self.check(side, form, import.length, entry);
            let needs_barrier = form.single.is_some() && !import.explicit && import.barriers == 0;
            let error = match checked {
                Ok(_) if needs_barrier => RsmError::BarrierUninitialized,
                Ok((memory, start)) => {
                    let length = entry.length as usize;
                    let remote = segment + entry.remote_offset as usize;
                    if length != 0 {
                        plan.moves.push(Move {
                            entry: index,
                            local: (memory, start..start + length),
                            remote: (Memory::Pages(import.exporter), remote..remote + length),
                        });
                    }
                    continue;
                }
                Err(error) => error,
            };
            plan.outcome = Err((error, iov.len() - index));
            break;
        }
        plan
    }

    /// Checks the call as a whole, in the order of the catalogue.
    fn begin(
        &self,
        side: Side,
        import: Option<usize>,
        form: Form,
        iov: &[IovEntry],
    ) -> Result<(), RsmError> {
        let import = import.and_then(|index| self.node(side).imports.get(index));
        let import = import.ok_or(RsmError::BadSegmentHandle)?;
        if iov.is_empty() {
            return Err(RsmError::BadScatterGather);
        }
        if let (Some(size), [entry]) = (form.single, iov)
            && !entry.remote_offset.is_multiple_of(size)
        {
            return Err(RsmError::BadMemoryAlignment);
        }
        if import.aborted {
            return Err(RsmError::ConnectionAborted);
        }
        let right = if form.put {
            Permission::WRITE
        } else {
            Permission::READ
        };
        if !import.permission.contains(right) {
            return Err(RsmError::PermissionDenied);
        }
        Ok(())
    }

    /// Checks an iov entry; returns its start in local memory.
    fn check(
        &self,
        side: Side,
        form: Form,
        remote_length: usize,
        entry: &IovEntry,
    ) -> Result<(Memory, usize), RsmError> {
        let (memory, base, local_length) = match entry.memory {
            EntryMemory::Registered(index) => {
                let local = index.and_then(|index| self.node(side).locals.get(index));
                let local = local.ok_or(RsmError::BadScatterGather)?;
                if local.read_only && !form.put {
                    return Err(RsmError::BadAddress);
                }
                (Memory::Local(side), local.start, local.length)
            }
            EntryMemory::Buffer(index, length) => (Memory::Buffer(index), 0, length),
            EntryMemory::Shared(start, length) => (Memory::Local(side), start, length),
        };
        let ends = [
            (entry.local_offset, local_length as u64),
            (entry.remote_offset, remote_length as u64),
        ];
        if ends.iter().any(|(offset, length)| offset > length) {
            return Err(RsmError::BadOffset);
        }
        let fits = |(offset, length): &(u64, u64)| entry.length <= length - offset;
        if !ends.iter().all(fits) {
            return Err(RsmError::BadLength);
        }
        Ok((memory, base + entry.local_offset as usize))
    }

    pub(crate) fn memory<'m>(
        &'m mut self,
        memory: Memory,
        buffers: &'m mut [Vec<u8>],
    ) -> &'m mut [u8] {
        match memory {
            Memory::Pages(side) => &mut self.node_mut(side).pages,
            Memory::Local(side) => &mut self.node_mut(side).local,
            Memory::Buffer(index) => &mut buffers[index],
        }
    }
}

/// Returns true if two memory ranges overlap.
pub(crate) fn overlap(one: &(Memory, Range<usize>), other: &(Memory, Range<usize>)) -> bool {
    one.0 == other.0 && one.1.start < other.1.end && other.1.start < one.1.end
}
