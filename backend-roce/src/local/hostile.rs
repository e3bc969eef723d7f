//! Peers that write what no honest peer writes (ROCE-212).

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::vec;
use std::vec::Vec;
use std::{println, thread};

use super::*;

const LABEL: Label = Label {
    segment: 12,
    kind: 7,
    source_port: 1,
    destination_port: 2,
};

/// Bytes of a queue of these tests, which also begins with the words of a usual one.
const LENGTH: usize = 1 << 18;

/// A queue in memory of the test, which may do all that a peer can.
struct Shared {
    words: Words,
    bytes: Vec<AtomicU8>,
}

impl Shared {
    fn new() -> Self {
        let mut bytes = Vec::new();
        bytes.resize_with(LENGTH, AtomicU8::default);
        Self {
            words: Words::default(),
            bytes,
        }
    }

    fn lane(&self) -> Lane<'_> {
        Lane::new(&self.words, &self.bytes).unwrap()
    }

    /// Writes words of 4 bytes at a position.
    fn put(&self, position: usize, words: &[u32]) {
        let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
        for (offset, byte) in bytes.enumerate() {
            self.bytes[(position + offset) % LENGTH].store(byte, Ordering::Relaxed);
        }
    }
}

/// Spec: ROCE-212
#[test]
fn a_writers_position_only_goes_forward_to_what_it_can_have_written() {
    let mut buffer = vec![0; PAYLOAD_MAX];
    // The reader is at 64.
    for tail in [
        0,
        1,
        63,
        65,
        96,
        64 + LENGTH as u32 + 64,
        1 << 31,
        u32::MAX - 63,
        u32::MAX,
    ] {
        let shared = Shared::new();
        // Each line would be a record.
        for line in 0..LENGTH / 64 {
            shared.put(line * 64, &[12, 12, 0, 0]);
        }
        let (writer, reader) = (Writer::default(), Reader::default());
        assert_eq!(writer.try_write(shared.lane(), LABEL, &[5; 12]), Ok(true));
        assert!(reader.read(shared.lane(), &mut buffer).unwrap().is_some());
        shared.words.tail.store(tail, Ordering::Relaxed);
        for _ in 0..3 {
            let read = reader.read(shared.lane(), &mut buffer);
            assert_eq!(read, Err(Corrupt), "{tail}");
        }
    }
}

/// Spec: ROCE-212
#[test]
fn a_readers_position_only_goes_forward_to_what_was_written() {
    let shared = Shared::new();
    let lane = shared.lane();
    let writer = Writer::default();
    let long = vec![0; PAYLOAD_MAX];
    let mut tail = 0;
    while writer.try_write(lane, LABEL, &long).unwrap() {
        tail = shared.words.tail.load(Ordering::Relaxed);
    }
    // The reader has read two thirds; then it lies.
    let honest = tail / 3 / 64 * 128;
    shared.words.head.store(honest, Ordering::Relaxed);
    while writer.try_write(lane, LABEL, &long).unwrap() {
        tail = shared.words.tail.load(Ordering::Relaxed);
    }
    for head in [
        0,
        honest - 64,
        honest + 1,
        tail + 64,
        tail.wrapping_sub(1),
        u32::MAX - 63,
    ] {
        shared.words.head.store(head, Ordering::Relaxed);
        assert_eq!(writer.try_write(lane, LABEL, &long), Err(Corrupt), "{head}");
        assert_eq!(writer.room(lane, LENGTH / 2), Err(Corrupt), "{head}");
        assert_eq!(
            shared.words.tail.load(Ordering::Relaxed),
            tail,
            "nothing is written"
        );
    }
    shared.words.head.store(tail, Ordering::Relaxed);
    assert_eq!(writer.try_write(lane, LABEL, &long), Ok(true));
}

/// Spec: ROCE-210, ROCE-212
#[test]
fn headers_that_lie_end_the_pair() {
    let most = PAYLOAD_MAX as u32;
    for (length, segment, published) in [
        (0, 0, 64),
        (0, 12, 64),
        (11, 11, 64),
        (12, 0, 64),
        (12, 11, 64),
        (12, 13, 64),
        (12, u32::MAX, 64),
        (49, 12, 64),
        (most, 12, most / 64 * 64),
        (most + 1, 12, 1 << 17),
        (1 << 18, 12, 1 << 18),
        (u32::MAX, 12, 1 << 18),
        (u32::MAX - 15, 12, 1 << 18),
        (u32::MAX - 79, 12, 1 << 18),
    ] {
        let shared = Shared::new();
        let reader = Reader::default();
        let mut buffer = vec![0xAA; PAYLOAD_MAX];
        shared.put(0, &[length, segment, 0, 0]);
        shared.words.tail.store(published, Ordering::Relaxed);
        for _ in 0..3 {
            let read = reader.read(shared.lane(), &mut buffer);
            assert_eq!(read, Err(Corrupt), "{length} {segment} {published}");
        }
        assert!(buffer.iter().all(|byte| *byte == 0xAA), "nothing is copied");
    }
    // The headers of a split packet are on the first line.
    for (length, segment) in [(47, 12), (48, 11), (48, 49), (4096, 49), (most, most)] {
        let shared = Shared::new();
        shared.put(0, &[length, segment, SPLIT, 0]);
        shared.words.tail.store(1 << 17, Ordering::Relaxed);
        let read = Reader::default().read(shared.lane(), &mut vec![0; PAYLOAD_MAX]);
        assert_eq!(read, Err(Corrupt), "{length} {segment}");
    }
    // The longest and the shortest are read.
    for length in [12, most] {
        let shared = Shared::new();
        shared.put(0, &[length, 12, 0, 0]);
        shared.words.tail.store(1 << 17, Ordering::Relaxed);
        let read = Reader::default().read(shared.lane(), &mut vec![0; PAYLOAD_MAX]);
        assert_eq!(read.unwrap().unwrap().length, length as usize);
    }
}

/// Spec: ROCE-214
#[test]
fn a_queue_that_nobody_reads_takes_what_it_has_room_for() {
    let shared = Shared::new();
    let (lane, writer) = (shared.lane(), Writer::default());
    let mut written = 0;
    while writer.try_write(lane, LABEL, &[0; 12]).unwrap() {
        written += 1;
    }
    assert_eq!(written, LENGTH / 64);
    for _ in 0..1000 {
        assert_eq!(writer.try_write(lane, LABEL, &[0; 12]), Ok(false));
        assert_eq!(writer.room(lane, 64), Ok(0));
    }
    // Flags that are cleared tell of no room.
    shared.words.waits.store(0, Ordering::Relaxed);
    assert_eq!(writer.try_write(lane, LABEL, &[0; 12]), Ok(false));
}

/// Records that nobody could read are not written.
///
/// Spec: ROCE-210
#[test]
fn a_writer_refuses_records_that_no_reader_takes() {
    let shared = Shared::new();
    let writer = Writer::default();
    for (segment, length) in [(12, PAYLOAD_MAX + 1), (12, 11), (11, 12), (13, 12), (12, 0)] {
        let label = Label { segment, ..LABEL };
        let written = writer.try_write(shared.lane(), label, &vec![0; length]);
        assert_eq!(written, Err(Corrupt), "{segment} {length}");
    }
    assert_eq!(shared.words.tail.load(Ordering::Relaxed), 0);
}

/// Another thread changes words and bytes while both ends are at work.
///
/// Spec: ROCE-212
#[test]
fn nothing_goes_wrong_while_a_peer_scribbles() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let shared = Shared::new();
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(seed);
            while !ends.load(Ordering::Relaxed) {
                scribble(&shared, &mut random);
            }
        });
        let mut random = fastrand::Rng::with_seed(seed + 1);
        let mut records = 0;
        let mut buffer = vec![0xAA; PAYLOAD_MAX + 64];
        let long = vec![1; PAYLOAD_MAX];
        let mut ends_of_it = (Writer::default(), Reader::default());
        for _ in 0..100_000 {
            let (writer, reader) = &ends_of_it;
            let length = random.usize(12..=2000);
            let written = writer.try_write(shared.lane(), LABEL, &long[..length]);
            let room = writer.room(shared.lane(), length);
            let read = reader.read(shared.lane(), &mut buffer[..PAYLOAD_MAX]);
            let _ = (
                reader.wakes_writer(shared.lane()),
                reader.arm(shared.lane()),
            );
            let _ = writer.wakes_reader(shared.lane());
            if let Ok(Some(record)) = read {
                assert!(record.length <= PAYLOAD_MAX);
                assert!((12..=record.length).contains(&record.label.segment));
                records += 1;
            }
            assert!(buffer[PAYLOAD_MAX..].iter().all(|byte| *byte == 0xAA));
            if written.is_err() || room.is_err() || read.is_err() {
                ends_of_it = Default::default();
            }
        }
        ends.store(true, Ordering::Relaxed);
        println!("{records} records");
    });
}

/// Changes a word or a header, to something that is almost right or to anything.
fn scribble(shared: &Shared, random: &mut fastrand::Rng) {
    let value = match random.u8(..3) {
        0 => random.u32(..),
        1 => random.u32(..2 * LENGTH as u32) / 64 * 64,
        _ => random.u32(..32) * 64,
    };
    let words = &shared.words;
    match random.u8(..8) {
        0 => words.tail.store(value, Ordering::Relaxed),
        1 => words.head.store(value, Ordering::Relaxed),
        2 => words.sleeps.store(value, Ordering::Relaxed),
        3 => words.waits.store(value, Ordering::Relaxed),
        _ => shared.put(random.usize(..64) * 64, &[value, random.u32(..100)]),
    }
}
