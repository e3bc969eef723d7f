//! Maintained lines of every range, and a cache that loses bytes on wrong operations.

use core::cell::RefCell;
use std::collections::BTreeMap;
use std::vec::Vec;

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Clean(u64),
    CleanAndInvalidate(u64),
    Barrier,
}

/// Records the operations.
struct Recorder {
    size: LineSize,
    steps: RefCell<Vec<Step>>,
}

impl CacheLines for Recorder {
    fn line_size(&self) -> LineSize {
        self.size
    }

    fn clean(&self, line: u64) {
        self.steps.borrow_mut().push(Step::Clean(line));
    }

    fn clean_and_invalidate(&self, line: u64) {
        self.steps.borrow_mut().push(Step::CleanAndInvalidate(line));
    }

    fn barrier(&self) {
        self.steps.borrow_mut().push(Step::Barrier);
    }
}

const DIRECTIONS: [SyncDirection; 2] = [SyncDirection::RdmaRead, SyncDirection::RdmaWrite];
const SIZES: [u64; 4] = [16, 32, 64, 128];

fn line_size(bytes: u64) -> LineSize {
    LineSize::new(bytes).expect("a power of two")
}

fn steps(size: u64, direction: SyncDirection, address: u64, length: u64) -> Vec<Step> {
    let recorder = Recorder {
        size: line_size(size),
        steps: RefCell::default(),
    };
    maintain(&recorder, direction, address, length);
    recorder.steps.into_inner()
}

/// Computes the expected steps byte by byte, without line arithmetic.
fn expected(size: u64, direction: SyncDirection, address: u64, length: u64) -> Vec<Step> {
    let mut lines: Vec<u64> = (0..length)
        .map(|offset| (address + offset) / size * size)
        .collect();
    lines.dedup();
    let step = match direction {
        SyncDirection::RdmaRead => Step::Clean,
        SyncDirection::RdmaWrite => Step::CleanAndInvalidate,
    };
    let lines = lines.into_iter().map(step);
    [Step::Barrier]
        .into_iter()
        .chain(lines)
        .chain([Step::Barrier])
        .collect()
}

/// Spec: LSR-04, LSW-03, LSW-24, LSW-26, LSW-27
#[test]
fn every_line_is_maintained_once_for_every_alignment_of_both_ends() {
    for size in SIZES {
        for direction in DIRECTIONS {
            for start in 0..size {
                for length in 1..=3 * size {
                    let address = 0x1_0000 + start;
                    assert_eq!(
                        steps(size, direction, address, length),
                        expected(size, direction, address, length),
                        "lines of {size}, {direction:?}, {address:#x}, {length}"
                    );
                }
            }
        }
    }
}

/// Spec: LSW-30
#[test]
fn an_empty_range_has_no_line() {
    for address in [0, 1, 64, u64::MAX] {
        for direction in DIRECTIONS {
            assert_eq!(steps(64, direction, address, 0), []);
        }
    }
}

/// Spec: LSW-24, LSW-30
#[test]
fn the_last_line_of_all_memory_ends_a_range() {
    for size in SIZES {
        let last = u64::MAX - (size - 1);
        for start in 0..size {
            for (address, length) in [
                (last + start, size - start),
                (last + start, size),
                (last + start, u64::MAX),
            ] {
                let done = steps(size, SyncDirection::RdmaWrite, address, length);
                let line = Step::CleanAndInvalidate(last);
                assert_eq!(done, [Step::Barrier, line, Step::Barrier]);
            }
        }
        let done = steps(size, SyncDirection::RdmaRead, last - 1, size);
        let lines = [Step::Clean(last - size), Step::Clean(last)];
        assert_eq!(done[1..3], lines);
        assert_eq!(done.len(), 4);
    }
}

#[test]
fn line_sizes_must_be_powers_of_two() {
    for bytes in [0, 3, 24, 65, u64::MAX] {
        assert_eq!(LineSize::new(bytes), None);
    }
    assert_eq!(line_size(64).bytes(), 64);
}

const LINE: usize = 16;
const MEMORY: usize = 6 * LINE;

/// A line in the cache.
struct CachedLine {
    bytes: [u8; LINE],
    is_dirty: bool,
}

/// Device memory, with a processor cache that writes nothing back by itself.
struct Machine {
    memory: RefCell<[u8; MEMORY]>,
    lines: RefCell<BTreeMap<usize, CachedLine>>,
}

impl Machine {
    fn new() -> Self {
        Self {
            memory: RefCell::new([0; MEMORY]),
            lines: RefCell::default(),
        }
    }

    /// Acts on the byte's line in the cache; loads the line from memory if missing.
    fn with<R>(&self, at: usize, act: impl FnOnce(&mut CachedLine) -> R) -> R {
        let first = at / LINE * LINE;
        let mut lines = self.lines.borrow_mut();
        act(lines.entry(first).or_insert_with(|| CachedLine {
            bytes: self.memory.borrow()[first..first + LINE]
                .try_into()
                .expect("a line"),
            is_dirty: false,
        }))
    }

    fn load(&self, at: usize) -> u8 {
        self.with(at, |line| line.bytes[at % LINE])
    }

    fn store(&self, at: usize, byte: u8) {
        self.with(at, |line| {
            line.bytes[at % LINE] = byte;
            line.is_dirty = true;
        });
    }

    fn fill(&self, range: core::ops::Range<usize>, byte: u8) {
        range.for_each(|at| self.store(at, byte));
    }

    /// Returns all bytes as the processor reads them.
    fn content(&self) -> [u8; MEMORY] {
        core::array::from_fn(|at| self.load(at))
    }

    fn device_writes(&self, range: core::ops::Range<usize>, byte: u8) {
        self.memory.borrow_mut()[range].fill(byte);
    }

    /// Evicts every line; writes back the dirty ones.
    fn evict(&self) {
        for first in (0..MEMORY).step_by(LINE) {
            self.clean_and_invalidate(first as u64);
        }
    }

    fn invalidate(&self, line: u64) {
        self.lines.borrow_mut().remove(&(line as usize));
    }
}

impl CacheLines for Machine {
    fn line_size(&self) -> LineSize {
        line_size(LINE as u64)
    }

    fn clean(&self, line: u64) {
        let first = line as usize;
        if let Some(line) = self.lines.borrow_mut().get_mut(&first) {
            if line.is_dirty {
                self.memory.borrow_mut()[first..first + LINE].copy_from_slice(&line.bytes);
            }
            line.is_dirty = false;
        }
    }

    fn clean_and_invalidate(&self, line: u64) {
        self.clean(line);
        self.invalidate(line);
    }

    fn barrier(&self) {}
}

type Maintenance = fn(&Machine, SyncDirection, u64, u64);

/// Defect: invalidates lines partly in the range without writing them back.
fn partial_lines_invalidated(machine: &Machine, direction: SyncDirection, start: u64, length: u64) {
    by_line(machine, direction, start, length, |_, is_whole| !is_whole);
}

/// Defect: invalidates lines wholly in the range without writing them back.
fn whole_lines_invalidated(machine: &Machine, direction: SyncDirection, start: u64, length: u64) {
    by_line(machine, direction, start, length, |_, is_whole| is_whole);
}

/// Defect: skips the last line.
fn last_line_left_out(machine: &Machine, direction: SyncDirection, start: u64, length: u64) {
    let end = (start + length - 1) / LINE as u64 * LINE as u64;
    if end > start {
        maintain(machine, direction, start, end - start);
    }
}

fn by_line(
    machine: &Machine,
    direction: SyncDirection,
    start: u64,
    length: u64,
    is_invalidated: impl Fn(u64, bool) -> bool,
) {
    let (size, end) = (LINE as u64, start + length);
    for line in (start / size * size..end).step_by(LINE) {
        let is_whole = start <= line && line + size <= end;
        match direction {
            SyncDirection::RdmaRead => machine.clean(line),
            SyncDirection::RdmaWrite if is_invalidated(line, is_whole) => machine.invalidate(line),
            SyncDirection::RdmaWrite => machine.clean_and_invalidate(line),
        }
    }
}

const STORED: u8 = 1;
const NEIGHBOUR: u8 = 2;
const WRITTEN: u8 = 3;

/// Returns true if the processor reads the right bytes after a peer's write.
///
/// The processor stores to the whole range and to its neighbours before the first call. The peer
/// writes the range from its second quarter on.
fn write_is_seen(maintenance: Maintenance, range: core::ops::Range<usize>) -> bool {
    let machine = Machine::new();
    let (start, length) = (range.start as u64, range.len() as u64);
    machine.fill(0..MEMORY, NEIGHBOUR);
    machine.fill(range.clone(), STORED);
    let mut expected = machine.content();
    maintenance(&machine, SyncDirection::RdmaWrite, start, length);
    let written = range.start + range.len() / 4..range.end;
    // The processor reads meanwhile, which fills the cache again.
    let _looked = machine.content();
    machine.device_writes(written.clone(), WRITTEN);
    expected[written].fill(WRITTEN);
    maintenance(&machine, SyncDirection::RdmaWrite, start, length);
    let is_seen = machine.content() == expected;
    machine.evict();
    is_seen && machine.content() == expected
}

/// Returns true if a call after the peer's write keeps stores to neighbouring bytes.
fn neighbours_survive(maintenance: Maintenance, range: core::ops::Range<usize>) -> bool {
    let machine = Machine::new();
    let mut expected = machine.content();
    let neighbours = (0..MEMORY).filter(|at| !range.contains(at));
    for at in neighbours {
        machine.store(at, NEIGHBOUR);
        expected[at] = NEIGHBOUR;
    }
    let (start, length) = (range.start as u64, range.len() as u64);
    maintenance(&machine, SyncDirection::RdmaWrite, start, length);
    machine.evict();
    machine.content() == expected
}

/// Returns true if a device that reads finds the processor's stores.
fn store_is_read(maintenance: Maintenance, range: core::ops::Range<usize>) -> bool {
    let machine = Machine::new();
    machine.fill(range.clone(), STORED);
    let (start, length) = (range.start as u64, range.len() as u64);
    maintenance(&machine, SyncDirection::RdmaRead, start, length);
    let memory = machine.memory.borrow();
    memory[range].iter().all(|byte| *byte == STORED)
}

/// Returns true if all properties hold for every alignment of both ends.
fn holds(maintenance: Maintenance) -> bool {
    (LINE..2 * LINE).all(|start| {
        (start + 1..5 * LINE).all(|end| {
            write_is_seen(maintenance, start..end)
                && neighbours_survive(maintenance, start..end)
                && store_is_read(maintenance, start..end)
        })
    })
}

/// Spec: LSR-01, LSR-02, LSW-02, LSW-08, LSW-12, LSW-13, LSW-23
#[test]
fn no_byte_is_lost_in_a_cache_for_any_alignment() {
    assert!(holds(maintain));
}

/// Spec: LSW-12, LSW-13
#[test]
fn a_cache_reveals_lost_bytes_of_wrong_maintenance() {
    assert!(!neighbours_survive(partial_lines_invalidated, 20..60));
    assert!(neighbours_survive(partial_lines_invalidated, 32..64));
    assert!(!write_is_seen(whole_lines_invalidated, 32..64));
    assert!(neighbours_survive(whole_lines_invalidated, 20..60));
    assert!(!store_is_read(last_line_left_out, 32..60));
    for wrong in [
        partial_lines_invalidated,
        whole_lines_invalidated,
        last_line_left_out,
        |_: &Machine, _, _, _| {},
    ] {
        assert!(!holds(wrong));
    }
}
