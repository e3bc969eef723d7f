//! Both ends of a pair of queues in shared memory, and a peer that writes anything into them.
//!
//! The product has the reader of one queue and the writer of the other; an honest peer has the
//! other two ends. Until the peer lies, records arrive in order and as they were written, and who
//! asked for a doorbell gets it. Once it lies, what is read is within the bounds of a record, and a
//! queue is at its end after twice as many records as it has room for. The payload of a split
//! record goes to the bytes of registered memory that are asked for, and to no others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};

use backend_roce::local::{Corrupt, FIRST, Label, Lane, Reader, Record, SPLIT, Words, Writer};
use dat_core::backend::{DomainKey, Registration};
use dat_core::flags::MemoryPrivileges;
use dat_core::memory::Region;
use dat_core::sync::{RegisteredMemory, RegisteredSpan};

use crate::script::{decode, operations};

/// Bytes of each queue: 16 short records, or one and a half of the longest.
const LENGTH: usize = 1024;
/// Most bytes of a record with its header.
const LONGEST: usize = LENGTH / 2;
const HEADER: usize = 16;
/// Least bytes that a record takes.
const LINE: usize = 64;
/// Bytes of the shortest record: those of a BTH.
const SHORTEST: usize = 12;
/// Most operations of an input.
const MOST: usize = 128;

operations! {
    /// An operation of an end, or a lie of the peer.
    enum Operation % 14, 4 bytes {
        /// The peer writes a record.
        0 | 10 => Write {
            /// Its length above the shortest.
            length,
            /// The length of its packets above the shortest, modulo.
            segment,
        }
        /// The product reads.
        1 | 11 => Read
        /// The product writes a record.
        2 => Answer {
            /// As in `Write`.
            length,
            /// As in `Write`.
            segment,
        }
        /// The peer reads.
        3 => Take
        /// The product asks for a doorbell for a record.
        4 => Sleep
        /// The product asks for a doorbell for room.
        5 => Wait {
            /// Its length above the shortest.
            length,
        }
        /// The peer asks for a doorbell for a record.
        6 => PeerSleep
        /// The peer changes a word.
        7 => Word {
            /// Tail, head, and the flags, of either queue.
            word,
            /// Lines, or bytes in the upper half, that are added.
            lines,
            /// Set to take them away.
            backwards,
        }
        /// The peer changes a byte of a queue.
        8 => Byte {
            /// The line, and the queue in the upper half.
            line,
            /// The byte in the line.
            offset,
            /// Its new value.
            value,
        }
        /// The peer changes a word to anything.
        9 => Any {
            /// As in `Word`.
            word,
            /// The low byte.
            low,
            /// The other bytes.
            high,
        }
        /// The peer writes a split record.
        12 => Split {
            /// The length of its payload.
            payload,
            /// The length of its headers above the shortest, modulo.
            headers,
        }
        /// The product writes one.
        13 => AnswerSplit {
            /// As in `Split`.
            payload,
            /// As in `Split`.
            headers,
        }
    }
}

/// Value of bytes that nobody is to write.
const KEPT: u8 = 0xAA;

thread_local! {
    /// Memory for the payloads of split records, of all runs.
    static REGISTERED: RegisteredMemory = registered();
}

#[expect(unsafe_code, reason = "registered memory without a backend")]
fn registered() -> RegisteredMemory {
    let bytes = (0..LENGTH).map(|_| AtomicU8::default());
    let region = Region::from_static(bytes.collect::<Vec<_>>().leak());
    let registration = Registration::new(DomainKey(0), &region, MemoryPrivileges::ALL);
    // SAFETY: the bytes stay for ever.
    unsafe { RegisteredMemory::new(&registration) }
}

/// Calls `act` with all registered memory, whose bytes are the same.
fn with_memory<T>(value: u8, act: impl FnOnce(RegisteredSpan<'_>) -> T) -> T {
    REGISTERED.with(|memory| {
        let all = memory.span(memory.address(), memory.length());
        let all = all.expect("all of it");
        all.write(&[value; LENGTH]);
        act(all)
    })
}

/// A queue, and what an honest peer knows of it.
#[derive(Default)]
struct Queue {
    words: Words,
    bytes: Vec<AtomicU8>,
    writer: Writer,
    reader: Reader,
    /// Records that were written and not yet read.
    records: VecDeque<(Label, Vec<u8>)>,
    /// Number of the next record.
    next: u8,
    /// Set while the reader sleeps.
    sleeps: bool,
    /// Set while the writer sleeps.
    waits: bool,
}

impl Queue {
    fn new() -> Self {
        let mut queue = Self::default();
        queue.bytes.resize_with(LENGTH, AtomicU8::default);
        queue
    }

    fn lane(&self) -> Lane<'_> {
        Lane::new(&self.words, &self.bytes).expect("a power of two")
    }

    /// Writes a record, and rings the reader.
    fn write(&mut self, is_honest: bool, length: u8, segment: u8) -> Result<(), Corrupt> {
        let length = SHORTEST + usize::from(length);
        let label = Label {
            segment: SHORTEST + usize::from(segment) % (length - SHORTEST + 1),
            // No split record.
            kind: 256 + u32::from(self.next),
            source_port: 4791,
            destination_port: u16::from(self.next) << 8,
        };
        let bytes = vec![self.next; length];
        let is_written = self.writer.try_write(self.lane(), label, &bytes)?;
        let wakes = self.writer.wakes_reader(self.lane());
        if is_honest {
            let used = |length: usize| (HEADER + length).next_multiple_of(64);
            let all: usize = self
                .records
                .iter()
                .map(|(_, bytes)| used(bytes.len()))
                .sum();
            assert_eq!(is_written, all + used(length) <= LENGTH, "{all} {length}");
            assert_eq!(wakes, self.sleeps);
            self.sleeps = false;
            if is_written {
                self.records.push_back((label, bytes));
            }
        }
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Writes a split record, and rings the reader.
    fn write_split(&mut self, is_honest: bool, payload: u8, headers: u8) -> Result<(), Corrupt> {
        let payload = usize::from(payload);
        let headers = SHORTEST + usize::from(headers) % (FIRST - SHORTEST + 1);
        let label = Label {
            segment: headers,
            kind: SPLIT,
            source_port: 4791,
            destination_port: u16::from(self.next),
        };
        let is_placed = with_memory(self.next, |memory| {
            // In two parts, the second one first.
            let (start, rest) = (payload / 3, payload - payload / 3);
            [(start, rest), (0, start)].into_iter().all(|(at, length)| {
                let part = memory.part(at, length).expect("a part");
                self.writer.place(self.lane(), at, part)
            })
        });
        let mut bytes = vec![self.next; headers];
        let is_written = is_placed && {
            let lane = self.lane();
            self.writer.try_split(lane, label, &bytes, payload)?
        };
        let wakes = self.writer.wakes_reader(self.lane());
        if is_honest {
            assert_eq!(wakes, self.sleeps);
            self.sleeps = false;
            if is_written {
                bytes.resize(FIRST, 0);
                bytes.resize(FIRST + payload, self.next);
                self.records.push_back((label, bytes));
            }
        }
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Takes the payload of a split record into `bytes`, which have its length.
    fn take(&self, bytes: &mut [u8]) {
        /// Bytes before the payload that are not asked for.
        const BEFORE: usize = 100;
        with_memory(KEPT, |memory| {
            let target = memory.part(BEFORE, bytes.len()).expect("a part");
            assert!(self.reader.take(self.lane(), 0, target));
            let line = (FIRST + HEADER + bytes.len()).next_multiple_of(64) - 64;
            let beyond = memory.part(0, 1).expect("a part");
            assert!(!self.reader.take(self.lane(), line, beyond));
            let mut all = [0; LENGTH];
            memory.read(&mut all);
            let (before, rest) = all.split_at(BEFORE);
            let (taken, behind) = rest.split_at(bytes.len());
            let mut others = before.iter().chain(behind);
            assert!(others.all(|byte| *byte == KEPT));
            bytes.copy_from_slice(taken);
        });
        self.reader.release(self.lane());
    }

    /// Reads a record, and rings the writer; true if there was one.
    fn read(&mut self, is_honest: bool) -> Result<bool, Corrupt> {
        let mut buffer = [KEPT; LENGTH];
        let read = self.reader.read(self.lane(), &mut buffer[..LONGEST])?;
        if let Some(record) = read.filter(|record| record.label.kind == SPLIT) {
            self.take(&mut buffer[FIRST..record.length]);
        }
        let wakes = self.reader.wakes_writer(self.lane());
        if is_honest {
            let expected = self.records.pop_front();
            let read = read.map(|Record { length, label }| (label, buffer[..length].to_vec()));
            assert_eq!(read, expected);
            assert!(!wakes || self.waits);
            self.waits &= !wakes;
            assert!(
                !self.waits || !self.records.is_empty(),
                "a writer sleeps on"
            );
        }
        let Some(Record { length, label }) = read else {
            return Ok(false);
        };
        assert!((SHORTEST..=LONGEST).contains(&length), "{length}");
        assert!((SHORTEST..=length).contains(&label.segment), "{label:?}");
        assert!(buffer[length..].iter().all(|byte| *byte == KEPT));
        Ok(true)
    }

    /// Asks for a doorbell for a record.
    fn sleep(&mut self, is_honest: bool) {
        let sleeps = self.reader.arm(self.lane());
        if is_honest {
            assert_eq!(sleeps, self.records.is_empty());
            // Who does not sleep has asked nevertheless.
            self.sleeps = true;
        }
    }

    /// Asks for a doorbell for room, or writes a record if there is some.
    fn wait(&mut self, is_honest: bool, length: u8) -> Result<(), Corrupt> {
        let need = (HEADER + SHORTEST + usize::from(length)).next_multiple_of(64);
        if self.writer.room(self.lane(), need)? < need {
            self.waits = true;
            return Ok(());
        }
        self.writer.withdraw(self.lane());
        self.waits = false;
        if is_honest {
            let before = self.records.len();
            self.write(true, length, 0)?;
            assert_eq!(self.records.len(), before + 1, "there was room");
        }
        Ok(())
    }

    fn change(&self, word: u8, change: impl FnOnce(u32) -> u32) {
        let words = &self.words;
        let all = [&words.tail, &words.head, &words.sleeps, &words.waits];
        let word = all[usize::from(word % 4)];
        word.store(change(word.load(Ordering::Relaxed)), Ordering::Relaxed);
    }
}

/// Runs an input.
///
/// # Panics
/// If an end breaks a promise.
pub fn run(input: &[u8]) {
    // The peer writes the first one.
    let mut queues = [Queue::new(), Queue::new()];
    let mut is_honest = true;
    for operation in decode::<Operation>(input, MOST) {
        // An end that finds a lie gives the pair up.
        if step(&mut queues, &mut is_honest, operation).is_err() {
            assert!(!is_honest, "nobody lied");
            return;
        }
    }
    let [queue, _] = &mut queues;
    // A lie publishes a whole queue once more, behind the records that the reader knows of.
    for _ in 0..=2 * LENGTH / LINE {
        match queue.read(is_honest) {
            Ok(true) => {}
            Ok(false) => return,
            Err(Corrupt) => {
                assert!(!is_honest, "nobody lied");
                return;
            }
        }
    }
    panic!("more records than there is room for");
}

fn step(
    queues: &mut [Queue; 2],
    is_honest: &mut bool,
    operation: Operation,
) -> Result<(), Corrupt> {
    let honest = *is_honest;
    let [incoming, outgoing] = queues;
    match operation {
        Operation::Write { length, segment } => {
            // What the honest half of a liar finds is of no interest.
            let written = incoming.write(honest, length, segment);
            written.or_else(|corrupt| if honest { Err(corrupt) } else { Ok(()) })?;
        }
        Operation::Split { payload, headers } => {
            let written = incoming.write_split(honest, payload, headers);
            written.or_else(|corrupt| if honest { Err(corrupt) } else { Ok(()) })?;
        }
        Operation::Read => {
            incoming.read(honest)?;
        }
        Operation::Answer { length, segment } => outgoing.write(honest, length, segment)?,
        Operation::AnswerSplit { payload, headers } => {
            outgoing.write_split(honest, payload, headers)?;
        }
        Operation::Take => {
            if honest {
                outgoing.read(true)?;
            }
        }
        Operation::Sleep => incoming.sleep(honest),
        Operation::Wait { length } => outgoing.wait(honest, length)?,
        Operation::PeerSleep => outgoing.sleep(honest),
        Operation::Word {
            word,
            lines,
            backwards,
        } => {
            *is_honest = false;
            let bytes = match lines {
                0..128 => u32::from(lines) * 64,
                _ => u32::from(lines - 128),
            };
            let queue = if word & 4 == 0 { incoming } else { outgoing };
            queue.change(word, |before| match backwards % 2 {
                0 => before.wrapping_add(bytes),
                _ => before.wrapping_sub(bytes),
            });
        }
        Operation::Byte {
            line,
            offset,
            value,
        } => {
            *is_honest = false;
            let queue = if line < 128 { incoming } else { outgoing };
            let at = (usize::from(line) * 64 + usize::from(offset) % 64) % LENGTH;
            queue.bytes[at].store(value, Ordering::Relaxed);
        }
        Operation::Any { word, low, high } => {
            *is_honest = false;
            let queue = if word & 4 == 0 { incoming } else { outgoing };
            queue.change(word, |_| u32::from_be_bytes([high, high, high, low]));
        }
    }
    Ok(())
}
