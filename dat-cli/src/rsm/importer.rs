//! A connection to a segment, and the transfers over it.

use dat_host::Pages;
use dat_host::rsm::{
    Barrier, BarrierMode, BarrierScope, Get, Import, LocalMemory, LocalSlice, Node, Permission,
    Put, SegmentId, VectorFlags,
};
use twox_hash::XxHash3_128;

use super::arguments::{ImportArguments, ModeName};
use super::failure::{CONNECT, DuringRsm};
use super::place::EXPORTER;
use crate::failure::{During, Failure, FailureKind, Result};
use crate::memory::{self, MOST_MEMORY};
use crate::size::{argument, counted, size};

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
        memory::room(2 * bytes, |room| {
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
    fn entries_of(self, length: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..length)
            .step_by(self.entry_size)
            .map(move |offset| (offset, self.entry_size.min(length - offset)))
    }
}

/// Returns the length that an exporter names, unless no segment of this program has so many bytes.
fn plausible(length: u64) -> Result<u64> {
    if length <= MOST_MEMORY {
        return Ok(length);
    }
    Err(Failure {
        kind: FailureKind::Operation,
        what: "the segment is too large".into(),
        why: format!(
            "the exporter says that it has {}, and segments of this program have at most {}",
            counted(length, "byte"),
            size(MOST_MEMORY)
        ),
        remedy: "check that `dat rsm export` runs there, or export less".into(),
    })
}

/// The totals of a transfer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    pub(crate) bytes: u64,
    pub(crate) vectors: u64,
    pub(crate) entries: u64,
    pub(crate) checksum: u128,
}

/// A connection to a segment, with local memory for its vectors.
pub(crate) struct Importer {
    pub(crate) import: Import,
    barrier: Barrier,
    pub(crate) local: LocalMemory<Pages>,
    pub(crate) shape: Shape,
}

impl Importer {
    /// Connects to the segment and creates the local memory and the barrier.
    ///
    /// # Errors
    /// - Operation: a call failed.
    pub(crate) fn connect(
        node: &Node,
        segment: SegmentId,
        permission: Permission,
        shape: Shape,
    ) -> Result<Self> {
        let import = node.import(EXPORTER, segment, permission).wait();
        let import = import.during_rsm(CONNECT)?;
        let pages = Pages::anonymous(shape.vector() * shape.vectors());
        let local = node
            .local_memory(pages.during("allocating the local memory")?)
            .during_rsm("rsm_create_localmemory_handle")?;
        let barrier = import
            .barrier(BarrierScope::default())
            .during_rsm("rsm_memseg_import_init_barrier")?;
        let mode = if shape.explicit {
            BarrierMode::Explicit
        } else {
            BarrierMode::Implicit
        };
        import
            .set_mode(mode)
            .during_rsm("rsm_memseg_import_set_mode")?;
        Ok(Self {
            import,
            barrier,
            local,
            shape,
        })
    }

    /// Returns the bytes of the segment.
    ///
    /// # Errors
    /// - Operation: the call failed, or the exporter names more than a segment can have.
    pub(crate) fn length(&self) -> Result<u64> {
        let length = self.import.length();
        plausible(length.during_rsm("querying the length of the segment")?)
    }

    /// Makes the entries of a vector of `length` bytes.
    ///
    /// `make` gets a part of the local memory, from `local` on, and its place in the segment, from
    /// `remote` on.
    fn entries<E>(
        &self,
        local: usize,
        remote: u64,
        length: usize,
        make: impl Fn(LocalSlice, u64) -> E,
    ) -> Result<Vec<E>> {
        let entries = self.shape.entries_of(length).map(|(offset, length)| {
            let from = local + offset;
            let slice = self.local.slice(from..from + length)?;
            Ok(make(slice, remote + offset as u64))
        });
        let entries: dat_host::Result<Vec<E>> = entries.collect();
        entries.during("making a vector")
    }

    /// Makes a vector that puts `length` bytes from an offset of the local memory.
    pub(crate) fn puts(
        &self,
        from: usize,
        remote: u64,
        length: usize,
    ) -> Result<Vec<Put<LocalSlice>>> {
        self.entries(from, remote, length, |memory, offset| Put {
            memory,
            offset,
        })
    }

    /// Makes a vector that gets `length` bytes into an offset of the local memory.
    pub(crate) fn gets(
        &self,
        into: usize,
        remote: u64,
        length: usize,
    ) -> Result<Vec<Get<LocalSlice>>> {
        self.entries(into, remote, length, |memory, offset| Get {
            memory,
            offset,
        })
    }

    /// Puts a vector; returns its entries.
    pub(crate) fn putv(&self, entries: Vec<Put<LocalSlice>>) -> Result<Vec<Put<LocalSlice>>> {
        let put = self.import.putv(entries, VectorFlags::empty()).wait();
        put.during_rsm("rsm_memseg_import_putv")
    }

    /// Gets a vector; returns its entries.
    pub(crate) fn getv(&self, entries: Vec<Get<LocalSlice>>) -> Result<Vec<Get<LocalSlice>>> {
        let got = self.import.getv(entries, VectorFlags::empty()).wait();
        got.during_rsm("rsm_memseg_import_getv")
    }

    /// Signals the exporter.
    pub(crate) fn signal(&self) -> Result<()> {
        self.import
            .signal()
            .wait()
            .during_rsm("rsm_intr_signal_post")
    }

    /// Opens the barrier, in explicit mode.
    pub(crate) fn begin(&self) -> Result<()> {
        if self.shape.explicit {
            self.barrier
                .open()
                .during_rsm("rsm_memseg_import_open_barrier")?;
        }
        Ok(())
    }

    /// Closes the barrier, in explicit mode; all transfers since `begin` are then complete.
    pub(crate) fn end(&self) -> Result<()> {
        if self.shape.explicit {
            self.barrier
                .close()
                .wait()
                .during_rsm("rsm_memseg_import_close_barrier")?;
        }
        Ok(())
    }

    /// Puts the bytes of `read` at an offset of the segment, until `read` ends.
    pub(crate) fn put_all(
        &self,
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
                self.local
                    .store(index * vector, read)
                    .during("filling the local memory")?;
                let remote = offset + moved.bytes;
                let put = self.putv(self.puts(index * vector, remote, count)?)?;
                moved.entries += put.len() as u64;
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
        &self,
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
                let got = self.getv(self.gets(index * vector, offset + next, count)?)?;
                moved.entries += got.len() as u64;
                moved.vectors += 1;
                next += count as u64;
                counts.push(count);
            }
            self.end()?;
            for (index, count) in counts.into_iter().enumerate() {
                let got = bytes.get_mut(..count).unwrap_or_default();
                self.local
                    .load(index * vector, got)
                    .during("reading the local memory")?;
                hasher.write(got);
                write(got)?;
            }
            moved.bytes = next;
        }
        moved.checksum = hasher.finish_128();
        Ok(moved)
    }

    /// Frees the barrier and the local memory, and disconnects.
    pub(crate) fn disconnect(self) -> Result<()> {
        drop(self.barrier);
        let freed = self.local.free().wait();
        freed.during_rsm("rsm_free_localmemory_handle")?;
        let disconnected = self.import.disconnect().wait();
        disconnected.during_rsm("rsm_memseg_import_disconnect")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_no_segment_has_is_not_believed() {
        assert_eq!(plausible(MOST_MEMORY), Ok(MOST_MEMORY));
        for length in [MOST_MEMORY + 1, u64::MAX] {
            let refused = plausible(length).unwrap_err();
            assert!(refused.why.contains("at most 1 GiB"), "{}", refused.why);
        }
    }
}
