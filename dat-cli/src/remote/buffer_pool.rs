//! The memory that a server shares out among its clients.

use crate::host::{Memory, PAGE};

/// Memory of a fixed size; lends parts and takes them back.
pub(crate) struct BufferPool {
    memory: Memory,
    /// Start and length of each lent part, in order.
    lent: Vec<(usize, usize)>,
}

impl BufferPool {
    pub(crate) fn new(length: usize) -> Self {
        Self {
            memory: Memory::new(length),
            lent: Vec::new(),
        }
    }

    pub(crate) fn length(&self) -> usize {
        self.memory.length()
    }

    /// Lends a page-aligned part, or returns `None` if no gap is large enough.
    ///
    /// The part may hold data of an earlier client.
    pub(crate) fn lend(&mut self, length: usize) -> Option<Memory> {
        let taken = length.max(1).checked_next_multiple_of(PAGE)?;
        let mut start = 0;
        let mut position = self.lent.len();
        for (number, &(other, extent)) in self.lent.iter().enumerate() {
            if other - start >= taken {
                position = number;
                break;
            }
            start = other + extent;
        }
        if start.checked_add(taken)? > self.memory.length() {
            return None;
        }
        self.lent.insert(position, (start, taken));
        Some(self.memory.part(start, length))
    }

    /// Takes back a part that is no longer used.
    pub(crate) fn give_back(&mut self, part: Memory) {
        let start = part.offset_in(self.memory);
        self.lent.retain(|&(other, _)| Some(other) != start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(memory: Memory) -> Vec<u8> {
        let mut bytes = vec![1; memory.length()];
        memory.load(0, &mut bytes);
        bytes
    }

    #[test]
    fn parts_do_not_touch() {
        let mut pool = BufferPool::new(4 * PAGE);
        let first = pool.lend(1).unwrap();
        let second = pool.lend(2 * PAGE).unwrap();
        let third = pool.lend(PAGE).unwrap();
        assert!(pool.lend(1).is_none(), "it is all lent");
        for (number, part) in [first, second, third].into_iter().enumerate() {
            part.store(0, &vec![number as u8 + 7; part.length()]);
        }
        assert_eq!(bytes(first), [7]);
        assert_eq!(bytes(second), vec![8; 2 * PAGE]);
        assert_eq!(bytes(third), vec![9; PAGE]);
        pool.give_back(second);
        assert!(pool.lend(2 * PAGE + 1).is_none());
        let again = pool.lend(PAGE + 1).unwrap();
        again.store(0, &[7; PAGE + 1]);
        assert_eq!(bytes(third), vec![9; PAGE]);
        for part in [first, again, third] {
            pool.give_back(part);
        }
        assert_eq!(pool.lend(4 * PAGE).map(Memory::length), Some(4 * PAGE));
        assert!(BufferPool::new(PAGE).lend(usize::MAX).is_none());
    }
}
