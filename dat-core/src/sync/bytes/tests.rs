use super::*;
use core::sync::atomic::Ordering;
use std::vec::Vec;

/// Offsets that cover blocks, their ends, and each alignment in a word and cache line.
#[cfg(not(miri))]
const PLACES: [usize; 17] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
#[cfg(miri)]
const PLACES: [usize; 3] = [0, 3, 8];

#[cfg(not(miri))]
fn lengths() -> impl Iterator<Item = usize> {
    (0..=200).chain([255, 256, 511, 1000])
}
#[cfg(miri)]
fn lengths() -> impl Iterator<Item = usize> {
    [0, 1, 2, 7, 16, 33].into_iter()
}

/// Returns a byte that identifies its index and differs from `BEFORE`.
fn mark(at: usize) -> u8 {
    ((at.wrapping_mul(31) ^ (at >> 8)) % 251) as u8
}

const BEFORE: u8 = 0xFE;
/// Bytes around the copied range that must not change.
const MARGIN: usize = 80;

/// Returns memory and the offset of its first multiple of 64.
fn shared(length: usize) -> (Vec<AtomicU8>, usize) {
    let memory: Vec<AtomicU8> = (0..length + 64).map(|_| AtomicU8::new(BEFORE)).collect();
    let offset = memory.as_ptr().addr().wrapping_neg() % 64;
    (memory, offset)
}

fn values(memory: &[AtomicU8]) -> Vec<u8> {
    memory
        .iter()
        .map(|byte| byte.load(Ordering::Relaxed))
        .collect()
}

#[test]
fn bytes_go_in_and_come_out_as_far_as_they_fit() {
    let memory: [AtomicU8; 8] = core::array::from_fn(|_| AtomicU8::new(0xEE));
    assert_eq!(store_bytes(&memory, &[1, 2, 3]), 3);
    assert_eq!(store_bytes(&memory[6..], &[7, 8, 9]), 2);
    assert_eq!(store_bytes(&memory[..0], &[9]), 0);
    let mut out = [0; 10];
    assert_eq!(load_bytes(&memory, &mut out), 8);
    assert_eq!(out, [1, 2, 3, 0xEE, 0xEE, 0xEE, 7, 8, 0, 0]);
    let mut short = [0; 2];
    assert_eq!(load_bytes(&memory[1..], &mut short), 2);
    assert_eq!(short, [2, 3]);
    assert_eq!(memory[7].load(Ordering::Relaxed), 8);
}

#[test]
fn plain_memory_in_and_out_at_every_place_and_length() {
    let longest = lengths().max().unwrap();
    let plain: Vec<u8> = (0..longest + MARGIN).map(mark).collect();
    for from in PLACES {
        for to in PLACES {
            for length in lengths() {
                let (memory, start) = shared(length + 2 * MARGIN);
                let begin = start + MARGIN + to;
                store_bytes(&memory[begin..], &plain[from..from + length]);
                let mut expected = std::vec![BEFORE; memory.len()];
                expected[begin..begin + length].copy_from_slice(&plain[from..from + length]);
                assert_eq!(values(&memory), expected, "{length} from {from} to {to}");

                let mut back = std::vec![BEFORE; from + length + MARGIN];
                load_bytes(&memory[begin..], &mut back[from..from + length]);
                let mut expected = std::vec![BEFORE; back.len()];
                expected[from..from + length].copy_from_slice(&plain[from..from + length]);
                assert_eq!(back, expected, "{length} from {to} back to {from}");
            }
        }
    }
}

/// A source that is borrowed for reading, or a constant, can be copied.
///
/// Miri checks the kind of the load.
#[test]
fn bytes_that_are_lent_for_reading_are_copied() {
    static CONSTANT: [u8; 40] = [7; 40];
    let lent: [u8; 40] = core::array::from_fn(mark);
    for source in [&lent, &CONSTANT] {
        for length in [0, 1, 7, 40] {
            let mut out = [BEFORE; 40];
            let (memory, start) = shared(40);
            let to = memory[start..].as_ptr().cast::<u8>().cast_mut();
            #[expect(unsafe_code)]
            // SAFETY: both destinations have 40 bytes, one plain and one of atomics, and so has the
            // source.
            unsafe {
                copy_from_shared(source.as_ptr(), out.as_mut_ptr(), length);
                copy_shared(source.as_ptr(), to, length);
            }
            let copied = values(&memory[start..start + 40]);
            assert_eq!(out[..length], source[..length]);
            assert_eq!(copied[..length], source[..length]);
            for rest in [&out[length..], &copied[length..]] {
                assert!(rest.iter().all(|byte| *byte == BEFORE));
            }
        }
    }
}

/// Copies within one range, as an adapter does that writes to itself; compares all bytes.
fn copies_within(memory: &[AtomicU8], from: usize, to: usize, length: usize) {
    let mut expected: Vec<u8> = (0..memory.len()).map(mark).collect();
    store_bytes(memory, &expected);
    expected.copy_within(from..from + length, to);
    assert!(from.max(to) + length <= memory.len());
    let base = memory.as_ptr().cast::<u8>().cast_mut();
    #[expect(unsafe_code)]
    // SAFETY: both ranges are within the slice of atomics, as asserted.
    unsafe {
        copy_shared(base.wrapping_add(from), base.wrapping_add(to), length);
    }
    let mut now = std::vec![0; memory.len()];
    load_bytes(memory, &mut now);
    assert!(now == expected, "{length} bytes from {from} to {to}");
}

#[test]
fn overlapping_copies_arrive_as_they_were_at_every_distance_and_length() {
    for from in [PLACES[0], PLACES[1]] {
        for length in lengths().filter(|length| *length <= 200) {
            let (memory, start) = shared(length + 3 * MARGIN);
            let at = start + MARGIN + from;
            let distances = PLACES.into_iter().chain([31, 32, 33, 63, 64]);
            for distance in distances.filter(|distance| *distance <= length + 2) {
                copies_within(&memory, at, at + distance, length);
                copies_within(&memory, at, at - distance, length);
            }
        }
    }
}

#[test]
#[cfg(not(miri))]
fn large_copies_apart_and_overlapping() {
    const LARGE: usize = 1 << 18;
    let (memory, start) = shared(2 * LARGE + 8192);
    for (from, to) in [
        (0, LARGE + 4096),
        (0, LARGE + 4097),
        (1, LARGE + 4096),
        (5, LARGE + 4107),
        (0, 1),
        (1, 0),
        (0, 64),
        (64, 0),
        (0, 100),
        (100, 0),
        (0, 4096),
        (4096, 0),
        (7, LARGE / 2),
        (LARGE / 2, 7),
        (9, 9),
    ] {
        for length in [LARGE, LARGE - 77, 4096, 2047] {
            copies_within(&memory, start + from, start + to, length);
        }
    }
}

/// Bytes that the consumer changes during a copy arrive with an old or new value.
#[test]
#[cfg(not(miri))]
fn copies_race_with_byte_atomics() {
    let (memory, start) = shared(4096);
    let memory = &memory[start..start + 4096];
    let done = core::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = 0u8;
            while !done.load(Ordering::Relaxed) {
                for byte in &memory[1000..1300] {
                    byte.store(0x10 | (value & 0x0F), Ordering::Relaxed);
                }
                value = value.wrapping_add(1);
            }
        });
        let mut out = [0; 300];
        for _ in 0..2000 {
            load_bytes(&memory[1000..], &mut out);
            assert!(out.iter().all(|byte| *byte == BEFORE || byte >> 4 == 1));
        }
        done.store(true, Ordering::Relaxed);
    });
}
