//! A connection to a segment, and the transfers over it.

use dat_core::event::Wait;
use dat_rsm::{
    BarrierId, BarrierMode, BarrierScope, ControllerId, GetEntry, ImportId, LocalAccess,
    LocalMemoryId, NodeId, Permission, PutEntry, SegmentId, Source, Target, VectorFlags,
};
use twox_hash::XxHash3_128;

use super::arguments::{ImportArguments, ModeName};
use super::pair::{DuringRsm, Engine};
use crate::failure::{Failure, Result};
use crate::host::{self, HostBackend, MOST_MEMORY, Memory};
use crate::size::argument;

/// Vectors between two barriers in explicit mode.
const VECTORS: usize = 4;

/// The shape of vectors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Bytes per entry.
    pub(crate) entry_size: usize,
    pub(crate) entries: usize,
    pub(crate) explicit: bool,
}

impl Shape {
    /// Takes the shape from the arguments.
    ///
    /// # Errors
    /// - Usage: the buffers are too large.
    /// - Memory: the system lacks the memory for them.
    pub(crate) fn new(arguments: &ImportArguments) -> Result<Self> {
        let explicit = arguments.mode == ModeName::Explicit;
        let entries = usize::from(arguments.entries);
        let vectors = if explicit { VECTORS as u64 } else { 1 };
        let bytes = arguments.piece.saturating_mul(entries as u64 * vectors);
        if bytes > MOST_MEMORY {
            let most = MOST_MEMORY / (entries as u64 * vectors);
            return Err(Failure::usage(
                "the buffers are too large",
                "--piece x --entries, times four in explicit mode, is limited to 1 GiB",
                format!("use --piece {} or less", argument(most)),
            ));
        }
        host::room(2 * bytes, |room| {
            let most = (room / 2 / vectors / entries as u64).max(1);
            format!("use --piece {} or less", argument(most))
        })?;
        let entry_size = usize::try_from(arguments.piece).unwrap_or(usize::MAX);
        Ok(Self {
            entry_size,
            entries,
            explicit,
        })
    }

    /// Returns the bytes of a vector.
    pub(crate) const fn vector(self) -> usize {
        self.entry_size * self.entries
    }

    /// Returns the number of vectors that share a buffer and complete together.
    const fn vectors(self) -> usize {
        if self.explicit { VECTORS } else { 1 }
    }

    /// Returns the offsets and lengths of the entries for `length` bytes.
    fn entries_of(self, length: usize) -> impl Iterator<Item = (u64, u64)> {
        (0..length).step_by(self.entry_size).map(move |offset| {
            let bytes = self.entry_size.min(length - offset);
            (offset as u64, bytes as u64)
        })
    }
}

/// The totals of a transfer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    pub(crate) bytes: u64,
    pub(crate) vectors: u64,
    pub(crate) entries: u64,
    pub(crate) checksum: u128,
}

/// A connection to a segment, with a registered local buffer.
pub(crate) struct Importer<'e, B: HostBackend, W: Wait> {
    pub(crate) engine: &'e Engine<B>,
    controller: ControllerId,
    pub(crate) import: ImportId,
    pub(crate) memory: Memory,
    local: LocalMemoryId,
    barrier: BarrierId,
    pub(crate) shape: Shape,
    pub(crate) wait: W,
}

impl<'e, B: HostBackend, W: Wait> Importer<'e, B, W> {
    /// Connects to the segment and creates the buffer and the barrier.
    ///
    /// # Errors
    /// - Operation: a call failed.
    pub(crate) fn connect(
        (engine, controller): (&'e Engine<B>, ControllerId),
        (node, segment): (NodeId, SegmentId),
        permission: Permission,
        shape: Shape,
        mut wait: W,
    ) -> Result<Self> {
        let import = engine
            .import_connect(controller, node, segment, permission, &mut wait)
            .during_rsm("rsm_memseg_import_connect")?;
        let memory = Memory::new(shape.vector() * shape.vectors());
        let local = engine
            .create_local_memory(controller, memory.region(), LocalAccess::ReadWrite)
            .during_rsm("rsm_create_localmemory_handle")?;
        let barrier = engine
            .init_barrier(import, BarrierScope::default())
            .during_rsm("rsm_memseg_import_init_barrier")?;
        let mode = if shape.explicit {
            BarrierMode::Explicit
        } else {
            BarrierMode::Implicit
        };
        engine
            .set_mode(import, mode)
            .during_rsm("rsm_memseg_import_set_mode")?;
        Ok(Self {
            engine,
            controller,
            import,
            memory,
            local,
            barrier,
            shape,
            wait,
        })
    }

    /// Returns the bytes of the segment.
    pub(crate) fn length(&self) -> Result<u64> {
        self.engine
            .import_length(self.import)
            .during_rsm("querying the length of the segment")
    }

    /// Puts `length` bytes from an offset of the buffer.
    pub(crate) fn putv(
        &mut self,
        from: usize,
        remote: u64,
        length: usize,
        flags: VectorFlags,
    ) -> Result<u64> {
        let entries: Vec<PutEntry<'_>> = self
            .shape
            .entries_of(length)
            .map(|(offset, length)| PutEntry {
                local: Source::Handle(self.local),
                local_offset: from as u64 + offset,
                remote_offset: remote + offset,
                length,
            })
            .collect();
        self.engine
            .putv(self.import, &entries, flags, &mut self.wait)
            .during_rsm("rsm_memseg_import_putv")?;
        Ok(entries.len() as u64)
    }

    /// Gets `length` bytes into an offset of the buffer.
    pub(crate) fn getv(&mut self, into: usize, remote: u64, length: usize) -> Result<u64> {
        let mut entries: Vec<GetEntry<'_>> = self
            .shape
            .entries_of(length)
            .map(|(offset, length)| GetEntry {
                local: Target::Handle(self.local),
                local_offset: into as u64 + offset,
                remote_offset: remote + offset,
                length,
            })
            .collect();
        let none = VectorFlags::empty();
        self.engine
            .getv(self.import, &mut entries, none, &mut self.wait)
            .during_rsm("rsm_memseg_import_getv")?;
        Ok(entries.len() as u64)
    }

    /// Opens the barrier, in explicit mode.
    pub(crate) fn begin(&mut self) -> Result<()> {
        if self.shape.explicit {
            self.engine
                .open_barrier(self.barrier)
                .during_rsm("rsm_memseg_import_open_barrier")?;
        }
        Ok(())
    }

    /// Closes the barrier, in explicit mode; all transfers since `begin` are then complete.
    pub(crate) fn end(&mut self) -> Result<()> {
        if self.shape.explicit {
            self.engine
                .close_barrier(self.barrier, &mut self.wait)
                .during_rsm("rsm_memseg_import_close_barrier")?;
        }
        Ok(())
    }

    /// Puts the bytes of `read` at an offset of the segment, until `read` ends.
    pub(crate) fn put_all(
        &mut self,
        offset: u64,
        mut read: impl FnMut(&mut [u8]) -> Result<usize>,
    ) -> Result<Moved> {
        let mut moved = Moved::default();
        let mut hasher = XxHash3_128::new();
        let vector = self.shape.vector();
        let mut bytes = vec![0; vector];
        loop {
            self.begin()?;
            let mut more = true;
            for index in 0..self.shape.vectors() {
                let count = read(&mut bytes)?;
                more = count == vector;
                let Some(read) = bytes.get(..count).filter(|read| !read.is_empty()) else {
                    break;
                };
                hasher.write(read);
                self.memory.store(index * vector, read);
                let remote = offset + moved.bytes;
                let flags = VectorFlags::empty();
                moved.entries += self.putv(index * vector, remote, count, flags)?;
                moved.vectors += 1;
                moved.bytes += count as u64;
                if !more {
                    break;
                }
            }
            self.end()?;
            if !more {
                moved.checksum = hasher.finish_128();
                return Ok(moved);
            }
        }
    }

    /// Gets `length` bytes from an offset of the segment and passes them to `write`.
    pub(crate) fn get_all(
        &mut self,
        offset: u64,
        length: u64,
        mut write: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<Moved> {
        let mut moved = Moved::default();
        let mut hasher = XxHash3_128::new();
        let vector = self.shape.vector();
        let mut bytes = vec![0; vector];
        while moved.bytes < length {
            self.begin()?;
            let mut counts = Vec::new();
            let mut next = moved.bytes;
            for index in 0..self.shape.vectors() {
                let left = usize::try_from(length - next).unwrap_or(usize::MAX);
                let count = vector.min(left);
                if count == 0 {
                    break;
                }
                moved.entries += self.getv(index * vector, offset + next, count)?;
                moved.vectors += 1;
                next += count as u64;
                counts.push(count);
            }
            self.end()?;
            for (index, count) in counts.into_iter().enumerate() {
                let got = bytes.get_mut(..count).unwrap_or_default();
                self.memory.load(index * vector, got);
                hasher.write(got);
                write(got)?;
            }
            moved.bytes = next;
        }
        moved.checksum = hasher.finish_128();
        Ok(moved)
    }

    /// Frees the barrier and the buffer, and disconnects.
    pub(crate) fn disconnect(mut self) -> Result<()> {
        self.engine
            .destroy_barrier(self.barrier)
            .during_rsm("rsm_memseg_import_destroy_barrier")?;
        self.engine
            .free_local_memory(self.controller, self.local, &mut self.wait)
            .during_rsm("rsm_free_localmemory_handle")?;
        self.engine
            .import_disconnect(self.import, &mut self.wait)
            .during_rsm("rsm_memseg_import_disconnect")
    }
}
