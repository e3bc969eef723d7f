//! The plain memory copies that a transfer is compared with.
//!
//! The data of an RDMA Write from slot to slot is copied once more, between two plain buffers of
//! the same shape. They are filled and emptied together with the slots, so both copies find their
//! data and buffers in the same state. The two kinds of copy alternate, so other load on the
//! machine slows both. A pair has the time of some writes and that of their plain copies. The pair
//! with the median ratio is reported: both rates and their ratio.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::link::Geometry;
use crate::host::PAGE;

/// Bytes that start at a page boundary, as those of the slots do.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    fn new(length: usize) -> Self {
        // Nonzero, so that the pages are mapped.
        let bytes = vec![0xFF; length + PAGE - 1];
        let start = bytes.as_ptr().align_offset(PAGE).min(PAGE - 1);
        Self { bytes, start }
    }

    fn segment(&mut self, offset: usize, length: usize) -> &mut [u8] {
        let start = self.start + offset;
        self.bytes
            .get_mut(start..start + length)
            .unwrap_or_default()
    }
}

/// The times of a transfer and of plain copies of the same bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pair {
    bytes: u64,
    transfer: Duration,
    plain: Duration,
}

impl Pair {
    /// Returns the bytes per second of the transfer.
    pub(crate) fn transfer_rate(self) -> f64 {
        self.bytes as f64 / self.transfer.as_secs_f64()
    }

    /// Returns the bytes per second of the plain copies.
    pub(crate) fn plain_rate(self) -> f64 {
        self.bytes as f64 / self.plain.as_secs_f64()
    }

    /// Returns the speed of the transfer relative to the plain copies.
    pub(crate) fn ratio(self) -> f64 {
        self.plain.as_secs_f64() / self.transfer.as_secs_f64()
    }
}

/// The buffers of the plain copies, and the measured pairs.
pub(crate) struct Plain {
    slot: usize,
    sender: Buffer,
    receiver: Buffer,
    /// Bytes of the incomplete pair; `current` is the time of their plain copies.
    bytes: u64,
    current: Duration,
    pairs: Vec<Pair>,
}

impl Plain {
    pub(crate) fn new(geometry: Geometry) -> Self {
        let length = geometry.slot() * geometry.depth;
        Self {
            slot: geometry.slot(),
            sender: Buffer::new(length),
            receiver: Buffer::new(length),
            bytes: 0,
            current: Duration::ZERO,
            pairs: Vec::new(),
        }
    }

    /// Stores data to copy, as the transfer stores it in a slot of the sender.
    pub(crate) fn fill(&mut self, offset: usize, data: &[u8]) {
        self.sender
            .segment(offset, data.len())
            .copy_from_slice(black_box(data));
    }

    /// Loads copied data, as the transfer loads it from a slot of the receiver.
    pub(crate) fn empty(&mut self, offset: usize, data: &mut [u8]) {
        data.copy_from_slice(self.receiver.segment(offset, data.len()));
        black_box(data);
    }

    /// Copies the data of a slot.
    pub(crate) fn copy(&mut self, slot: usize, length: usize) {
        let offset = slot * self.slot;
        let from = self.sender.segment(offset, length);
        let to = self.receiver.segment(offset, length);
        let begin = Instant::now();
        to.copy_from_slice(black_box(from));
        black_box(to);
        self.current += begin.elapsed();
        self.bytes += length as u64;
    }

    /// Completes a pair; `transfer` is the time of the transfer since the last pair.
    pub(crate) fn pair(&mut self, transfer: Duration) {
        let bytes = std::mem::take(&mut self.bytes);
        let plain = std::mem::take(&mut self.current);
        if !plain.is_zero() && !transfer.is_zero() {
            self.pairs.push(Pair {
                bytes,
                transfer,
                plain,
            });
        }
    }

    /// Returns the number of pairs.
    pub(crate) fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Returns the pair with the median ratio.
    pub(crate) fn median(&self) -> Option<Pair> {
        let mut pairs = self.pairs.clone();
        pairs.sort_by(|one, other| one.ratio().total_cmp(&other.ratio()));
        pairs.get(pairs.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pair_in_the_middle_is_the_median() {
        let geometry = Geometry {
            depth: 2,
            segments: 1,
            chunk: 5000,
        };
        let mut plain = Plain::new(geometry);
        assert_eq!(plain.median(), None);
        let mut data = [7; 5000];
        plain.fill(5000, &data);
        plain.copy(1, 5000);
        plain.empty(5000, &mut data);
        assert_eq!(data, [7; 5000]);
        assert_eq!(plain.bytes, 5000);
        for (plain_nanos, transfer) in [(50, 100), (0, 10), (300, 100), (10, 0), (90, 100)] {
            plain.bytes = plain_nanos;
            plain.current = Duration::from_nanos(plain_nanos);
            plain.pair(Duration::from_nanos(transfer));
        }
        assert_eq!(plain.pairs(), 3, "a pair with a zero time");
        let median = plain.median().unwrap();
        assert_eq!(median.ratio(), 0.9);
        assert_eq!(median.bytes, 90);
        assert_eq!(median.plain_rate().round(), 1e9);
        assert_eq!(median.transfer_rate().round(), 0.9e9);
    }
}
