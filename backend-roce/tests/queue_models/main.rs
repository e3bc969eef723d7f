//! A queue in shared memory in all interleavings of its ends, on the model checker.
//!
//! The code is the product's own, over the atomics of the checker. Each model must fail once the
//! code is changed, or it would prove nothing.

#![cfg(not(miri))]

mod memory;
#[path = "../../src/local/queue.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    reason = "a part of the crate"
)]
mod queue;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use backend_roce::proto;
use loom::sync::Notify;
use loom::thread;

use memory::{Change, Memory, PAYLOAD, RegisteredSpan, WRITES, set_change};
use queue::{FIRST, Label, Reader, SPLIT, Writer};

/// Bytes of the queue: four records, or two split ones.
const LENGTH: usize = 256;

/// Bytes of a line.
const LINE: usize = 64;

/// Most bytes of a record.
const LONGEST: usize = FIRST + PAYLOAD;

/// A queue and the doorbells of its ends.
struct Bench {
    /// Set if payloads go between the queue and registered memory.
    is_split: bool,
    memory: Memory,
    writer: Writer,
    reader: Reader,
    /// Rings for the reader.
    record: Notify,
    /// Rings for the writer.
    room: Notify,
}

impl Bench {
    fn new(is_split: bool) -> Self {
        Self {
            is_split,
            memory: Memory::new(LENGTH),
            writer: Writer::default(),
            reader: Reader::default(),
            record: Notify::new(),
            room: Notify::new(),
        }
    }

    /// Writes a record that holds a number; sleeps while there is no room.
    fn write(&self, number: u8) {
        let lane = self.memory.lane();
        // A record takes as many.
        let need = LINE * (1 + usize::from(self.is_split));
        while !self.try_write(number) {
            if self.writer.room(lane, need).unwrap() < need {
                self.room.wait();
                self.writer.withdraw(lane);
            }
        }
        if self.writer.wakes_reader(lane) {
            self.record.notify();
        }
    }

    fn try_write(&self, number: u8) -> bool {
        let lane = self.memory.lane();
        let label = Label {
            segment: 12,
            kind: if self.is_split { SPLIT } else { 1 },
            source_port: 1,
            destination_port: number.into(),
        };
        if !self.is_split {
            return self.writer.try_write(lane, label, &[number; 12]).unwrap();
        }
        let payload = Cell::new([number; PAYLOAD]);
        let headers = [number; 12];
        self.writer.place(lane, 0, RegisteredSpan(&payload))
            && self
                .writer
                .try_split(lane, label, &headers, PAYLOAD)
                .unwrap()
    }

    fn let_write(&self) {
        if self.reader.wakes_writer(self.memory.lane()) {
            self.room.notify();
        }
    }

    /// Reads a record that holds a number; sleeps while there is none.
    fn read(&self, number: u8) {
        let lane = self.memory.lane();
        let mut buffer = [0; LONGEST];
        loop {
            if let Some(record) = self.reader.read(lane, &mut buffer).unwrap() {
                let payload = Cell::new([number; PAYLOAD]);
                if self.is_split {
                    payload.set([0; PAYLOAD]);
                    assert!(self.reader.take(lane, 0, RegisteredSpan(&payload)));
                    self.reader.release(lane);
                }
                self.let_write();
                assert_eq!(record.label.destination_port, number.into());
                assert_eq!(buffer[..12], [number; 12]);
                assert_eq!(payload.get(), [number; PAYLOAD]);
                return;
            }
            let sleeps = self.reader.arm(lane);
            self.let_write();
            if sleeps {
                self.record.wait();
            }
        }
    }
}

/// Writes and reads records at once, of which some lie in the queue before.
///
/// `interruptions` bounds those of a thread that could go on; `None` tries all.
fn run(is_split: bool, before: u8, count: u8, interruptions: Option<usize>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = interruptions;
    builder.check(move || {
        // Threads of the checker are on one thread of the system.
        let bench = Rc::new(Bench::new(is_split));
        (0..before).for_each(|number| bench.write(number));
        let other = Rc::clone(&bench);
        let writer = thread::spawn(move || {
            WRITES.with(|writes: &Cell<bool>| writes.set(true));
            (before..count).for_each(|number| other.write(number));
        });
        (0..count).for_each(|number| bench.read(number));
        writer.join().unwrap();
    });
}

/// Runs a model, which holds unless the code is changed.
fn prove(changes: &[Change], model: impl Fn()) {
    set_change(None);
    model();
    for change in changes {
        set_change(Some(*change));
        let outcome = catch_unwind(AssertUnwindSafe(&model));
        assert!(outcome.is_err(), "nothing notices {change:?}");
    }
    set_change(None);
}

/// A record is read whole, and its reader does not sleep on.
///
/// Spec: ROCE-213
#[test]
fn nobody_sleeps_beside_a_record() {
    let changes = [Change::WriterFences, Change::ReaderFences, Change::Tail];
    prove(&changes, || run(false, 0, 2, Some(4)));
}

/// A record that waits for room is written, over records that were read.
///
/// Spec: ROCE-214
#[test]
fn nobody_sleeps_beside_room() {
    let changes = [Change::WriterFences, Change::ReaderFences, Change::Head];
    prove(&changes, || run(false, 4, 5, Some(2)));
}

/// A payload is read whole, and its room is not used again before.
///
/// Spec: ROCE-212, ROCE-214
#[test]
fn nobody_writes_over_a_payload_that_is_being_read() {
    let changes = [
        Change::WriterFences,
        Change::ReaderFences,
        Change::Tail,
        Change::Head,
    ];
    prove(&changes, || run(true, 2, 3, Some(2)));
}
