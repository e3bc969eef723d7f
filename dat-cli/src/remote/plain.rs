//! The plain memory copies that a transfer is compared with.
//!
//! The data of an RDMA Write from slot to slot is copied once more, between two plain buffers of
//! the same shape, so both copies find their data and buffers in the same state. Which of the two
//! comes first alternates, so other load on the machine slows both. A pair has the time of a write
//! and that of its plain copy. The pair with the median ratio is reported: both rates and their
//! ratio.

use std::hint::black_box;
use std::time::{Duration, Instant};

use dat_host::Pages;

use super::transfer::Shape;
use crate::failure::{During, Result};

/// Minimum number of pairs.
pub(crate) const LEAST_PAIRS: u64 = 9;

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
    /// They start at a page boundary, as the slots do.
    sender: Pages,
    receiver: Pages,
    rounds: usize,
    pairs: Vec<Pair>,
}

impl Plain {
    /// # Errors
    /// - Operation: the system lacks the memory.
    pub(crate) fn new(shape: Shape) -> Result<Self> {
        let length = shape.slot() * usize::from(shape.depth);
        let pages = || {
            let mut pages = Pages::anonymous(length).during("allocating the buffers")?;
            // So the pages are mapped before the first copy.
            pages.fill(0xFF);
            Ok(pages)
        };
        Ok(Self {
            slot: shape.slot(),
            sender: pages()?,
            receiver: pages()?,
            rounds: 0,
            pairs: Vec::new(),
        })
    }

    /// Stores data to copy, as the transfer stores it in a slot of the sender.
    pub(crate) fn fill(&mut self, slot: usize, offset: usize, data: &[u8]) {
        part(&mut self.sender, slot * self.slot + offset, data.len())
            .copy_from_slice(black_box(data));
    }

    /// Runs the transfer of a slot before or after the plain copy of its data; returns its time.
    ///
    /// # Errors
    /// - Those of the transfer.
    pub(crate) fn beside<T>(
        &mut self,
        slot: usize,
        length: usize,
        transfer: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Duration)> {
        let is_first = self.rounds % 2 == 1;
        let before = is_first.then(|| self.copy(slot, length));
        let begin = Instant::now();
        let done = transfer()?;
        let transfer = begin.elapsed();
        let plain = before.unwrap_or_else(|| self.copy(slot, length));
        self.rounds += 1;
        if !plain.is_zero() && !transfer.is_zero() {
            self.pairs.push(Pair {
                bytes: length as u64,
                transfer,
                plain,
            });
        }
        Ok((done, transfer))
    }

    /// Copies the data of a slot; returns the time that it takes.
    fn copy(&mut self, slot: usize, length: usize) -> Duration {
        let offset = slot * self.slot;
        let from = part(&mut self.sender, offset, length);
        let to = part(&mut self.receiver, offset, length);
        let begin = Instant::now();
        to.copy_from_slice(black_box(from));
        black_box(to);
        begin.elapsed()
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

fn part(pages: &mut Pages, offset: usize, length: usize) -> &mut [u8] {
    let part = pages.get_mut(offset..offset + length);
    part.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pair_in_the_middle_is_the_median() {
        let shape = Shape {
            depth: 2,
            segments: 1,
            chunk: 5000,
        };
        let mut plain = Plain::new(shape).unwrap();
        assert_eq!(plain.median(), None);
        plain.fill(1, 0, &[7; 5000]);
        for _ in 0..2 {
            let (done, _) = plain.beside(1, 5000, || Ok(1)).unwrap();
            assert_eq!(done, 1);
        }
        assert_eq!(plain.receiver[5000..10_000], [7; 5000]);
        plain.pairs.clear();
        for (bytes, transfer) in [(50, 100), (300, 100), (90, 100)] {
            plain.pairs.push(Pair {
                bytes,
                transfer: Duration::from_nanos(transfer),
                plain: Duration::from_nanos(bytes),
            });
        }
        let median = plain.median().unwrap();
        assert_eq!(median.ratio(), 0.9);
        assert_eq!(median.bytes, 90);
        assert_eq!(median.plain_rate().round(), 1e9);
        assert_eq!(median.transfer_rate().round(), 0.9e9);
    }
}
