//! A peer of the same user that has a connection of queues, and writes records of split packets
//! that no honest peer writes.
#![cfg(all(feature = "udp", target_os = "linux"))]

mod common;

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use backend_roce::local::{FIRST, Label, QUEUE_BYTES};
use backend_roce::proto::packet::{Bth, ICRC_LENGTH, Opcode};
use common::between::{Between, Taken};
use common::end::SLOT;
use common::process::until;
use dat_core::endpoint::Extended;
use dat_core::event::{ConnectionEventKind, Event};
use dat_core::flags::{CompletionFlags, MemoryPrivileges};
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use rustix::io::{pread, pwrite};

const NONE: CompletionFlags = CompletionFlags::empty();

/// Slots of the second end's memory that the peer may reach.
const GRANTED: std::ops::Range<usize> = 40..50;

/// Bytes of a packet of the peer, which its own adapter writes whole.
const LENGTH: usize = FOOTPRINT - 64;

/// Bytes of its record.
const FOOTPRINT: usize = 1024;

/// Headers of a Write, and the place of its length.
const HEADERS: usize = Bth::LENGTH + 16;
const LENGTH_AT: usize = Bth::LENGTH + 12;

/// Bytes before the queues in the shared memory.
const WORDS: u64 = 4096;

/// A connection whose first end is hostile, and the memory that the second one grants.
struct Bench {
    between: Between,
    granted: LmrTriplet,
    target: RmrTriplet,
}

impl Bench {
    /// Connects two adapters at addresses that no other test uses.
    fn new(number: u8) -> Self {
        let between = Between::new(number);
        between.connect();
        let right = &between.right;
        right.fill(1);
        let bytes = &right.bytes[GRANTED.start * SLOT..GRANTED.end * SLOT];
        let request = LmrRequest {
            memory: LmrMemory::Virtual(Region::from_static(bytes)),
            pz: right.pz,
            privileges: MemoryPrivileges::ALL,
        };
        let region = right.ia.lmr_create(&request).expect("a region");
        let granted = LmrTriplet {
            context: region.lmr_context,
            address: region.registered_address,
            length: LENGTH as u64,
        };
        let target = RmrTriplet {
            context: region.rmr_context,
            address: region.registered_address,
            length: LENGTH as u64,
        };
        Self {
            between,
            granted,
            target,
        }
    }

    /// Returns a Write of the first end, split.
    fn write(&self) -> Taken {
        let left = &self.between.left;
        let local = left.local(0, LENGTH);
        let posted = left
            .ia
            .post_rdma_write(left.ep, &local, 1, &self.target, NONE);
        posted.expect("a post");
        self.between.next().split(HEADERS)
    }

    /// Gives the second end a record; returns true if its connection goes on.
    fn give(&self, record: &Taken) -> bool {
        let Between { right, far, .. } = &self.between;
        if !far.write(record.0, &record.1) {
            return false;
        }
        far.ring();
        let mut is_broken = false;
        let mut look = || match right.look() {
            Some(Event::Connection { kind, .. }) => {
                assert_eq!(kind, ConnectionEventKind::Broken);
                is_broken = true;
                true
            }
            Some(Event::Dto(_) | Event::Extended(_)) => true,
            Some(other) => panic!("{other:?}"),
            None => false,
        };
        until(|| {
            look();
            let is_over = right.driver.counts().local.pairs == 0;
            (is_over || far.room(QUEUE_BYTES) == QUEUE_BYTES).then_some(())
        });
        while look() {}
        !is_broken && right.driver.counts().local.pairs > 0
    }

    /// Panics if a byte has changed that the peer may not reach.
    fn is_untouched(&self) {
        let bytes = &self.between.right.bytes;
        let (before, rest) = bytes.split_at(GRANTED.start * SLOT);
        let (_, behind) = rest.split_at(GRANTED.len() * SLOT);
        let mut others = before.iter().chain(behind);
        assert!(others.all(|byte| byte.load(Ordering::Relaxed) == 1));
    }

    /// Returns true if the granted memory holds no byte of the peer.
    fn is_unwritten(&self) -> bool {
        let mut granted = self.between.right.bytes[GRANTED.start * SLOT..].iter();
        granted.all(|byte| byte.load(Ordering::Relaxed) == 1)
    }
}

/// Ends the scribbling, also after a failure.
struct Ends<'s>(&'s AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn with_segment(record: &Taken, segment: usize) -> Taken {
    let Taken(label, bytes) = record.clone();
    Taken(Label { segment, ..label }, bytes)
}

/// Returns the record with another length behind its first line.
fn with_payload(record: &Taken, payload: usize) -> Taken {
    let mut changed = record.clone();
    changed.1.resize(FIRST + payload, 9);
    changed
}

/// Returns the record with another length of the message in its headers.
fn with_length(record: &Taken, length: usize) -> Taken {
    let mut changed = record.clone();
    changed.1[LENGTH_AT..HEADERS].copy_from_slice(&(length as u32).to_be_bytes());
    changed
}

/// Headers and payloads of other lengths than the record says: the connection breaks, and nothing
/// is written.
///
/// Spec: ROCE-212
#[test]
fn lengths_that_do_not_agree_break_the_connection() {
    type Change = fn(&Taken) -> Taken;
    let changes: [(&str, Change); 8] = [
        ("headers are said to be longer", |record| {
            with_segment(record, FIRST)
        }),
        ("and a little", |record| with_segment(record, HEADERS + 4)),
        ("headers are said to be shorter", |record| {
            with_segment(record, HEADERS - 4)
        }),
        ("as short as a BTH", |record| {
            with_segment(record, Bth::LENGTH)
        }),
        ("no payload", |record| with_payload(record, 0)),
        ("a shorter payload", |record| {
            with_payload(record, LENGTH - 4)
        }),
        ("a longer payload", |record| {
            with_payload(record, LENGTH + 4)
        }),
        ("more than a packet", |record| {
            with_length(&with_payload(record, 60_000), 60_000)
        }),
    ];
    for (what, change) in changes {
        let bench = Bench::new(11);
        let record = change(&bench.write());
        assert!(!bench.give(&record), "{what}");
        bench.is_untouched();
        assert!(bench.is_unwritten(), "{what}");
    }
}

/// The payload of headers that are longer than the record is what lies on its lines, or nothing.
///
/// Spec: ROCE-212
#[test]
fn a_payload_has_no_more_bytes_than_its_record() {
    for payload in [0, 4, 16, 64, LENGTH] {
        let bench = Bench::new(14);
        let record = with_payload(&with_segment(&bench.write(), FIRST), payload);
        // The rest of the first line counts as payload.
        let said = payload + FIRST - HEADERS;
        let there = (64 + payload).next_multiple_of(64) - 64;
        let goes_on = bench.give(&with_length(&record, said));
        assert_eq!(goes_on, said <= there, "{payload}");
        bench.is_untouched();
    }
}

/// The old value of an atomic operation is in the headers. A split record has none there, and what
/// it has in place of it stays within the memory of the operation.
///
/// Spec: ROCE-212
#[test]
fn an_answer_of_an_atomic_operation_is_not_split() {
    for payload in [0, 4, 8, 64] {
        let bench = Bench::new(17);
        let Between {
            left,
            right,
            near,
            far,
            ..
        } = &bench.between;
        let result = LmrTriplet {
            length: 8,
            ..bench.granted
        };
        let posted = right.ia.post_extended(
            right.ep,
            Extended::FetchAndAdd { add: 1 },
            &[result],
            2,
            &left.remote(0, 8),
            NONE,
        );
        posted.expect("a post");
        let request = until(|| {
            assert_eq!(right.look(), None);
            Taken::from(far)
        });
        request.put(near);
        let answer = bench.between.next();
        assert_eq!(answer.1[0], Opcode::AtomicAcknowledge as u8);
        let split = answer.split(answer.1.len() - ICRC_LENGTH);
        bench.give(&with_payload(&split, payload));
        bench.is_untouched();
    }
}

/// Any change of a split record: the peer breaks its connection, and nothing else.
///
/// Spec: ROCE-212
#[test]
fn split_records_of_any_form_change_nothing_that_is_not_granted() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut records, mut broken) = (0, 0);
    for _ in 0..20 {
        let bench = Bench::new(20);
        let right = &bench.between.right;
        let receive = || {
            let posted = right.ia.post_recv(right.ep, &[bench.granted], 3, NONE);
            posted.is_ok()
        };
        while receive() {}
        let honest = bench.write();
        let mut goes_on = true;
        for _ in 0..40 {
            let mut record = honest.clone();
            for _ in 0..random.usize(..3) {
                record.1[random.usize(..FIRST)] = random.u8(..);
            }
            if random.bool() {
                record.1[0] = *random.choice(Opcode::ALL).expect("an opcode") as u8;
            }
            let payload = random.choice([0, 1, 4, LENGTH, 4096, 30_000]).expect("one");
            record = with_payload(&record, payload);
            if random.bool() {
                record = with_length(&record, payload);
            }
            record = with_segment(&record, random.usize(Bth::LENGTH..=FIRST));
            records += 1;
            goes_on = bench.give(&record);
            if !goes_on {
                broken += 1;
                break;
            }
        }
        if goes_on && bench.give(&honest) {
            bench.between.complete();
        }
        bench.is_untouched();
    }
    println!("{records} records, {broken} of 20 connections broken");
    assert!(broken > 0);
}

/// A connection that fails beside a queue that nobody reads is broken at once.
///
/// Spec: ROCE-234
#[test]
fn a_failure_beside_a_full_queue_is_told() {
    let bench = Bench::new(26);
    let Between {
        left, right, far, ..
    } = &bench.between;
    let forged = bench.write();
    for cookie in 0..40 {
        let (local, remote) = (right.local(0, SLOT), left.remote(0, SLOT));
        let posted = right
            .ia
            .post_rdma_write(right.ep, &local, cookie, &remote, NONE);
        posted.expect("a post");
    }
    assert!(right.driver.counts().local.full > 0);
    // Its key is another one.
    let mut forged = forged;
    forged.1[Bth::LENGTH + 8] ^= 1;
    assert!(far.write(forged.0, &forged.1));
    let mut flushed = 0;
    let kind = until(|| match right.look() {
        Some(Event::Dto(_)) => {
            flushed += 1;
            None
        }
        Some(Event::Connection { kind, .. }) => Some(kind),
        _ => None,
    });
    assert_eq!(kind, ConnectionEventKind::Broken);
    until(|| {
        flushed += usize::from(right.look().is_some());
        (flushed == 40).then_some(())
    });
}

/// A peer that reads nothing, and asks for connections that are refused, takes no place for ever.
///
/// Spec: ROCE-233
#[test]
fn refusals_that_nobody_reads_leave_no_connection() {
    /// Places in a request of its communication id, its transaction and its QPN.
    const BODY: usize = Bth::LENGTH + 8 + 24;
    let between = Between::new(29);
    let Between { right, far, .. } = &between;
    let request = between.next();
    let begin = dat_core::event::ThreadWait::clock().as_micros();
    // More than the queue has room for, and connections that there can be at a time.
    for number in 0..2_000_u32 {
        let mut other = request.clone();
        other.1[BODY..BODY + 4].copy_from_slice(&(number + 1).to_be_bytes());
        other.1[BODY + 32..BODY + 35].copy_from_slice(&(number + 2).to_be_bytes()[1..]);
        other.1[BODY - 16..BODY - 12].copy_from_slice(&number.to_be_bytes());
        other.put(far);
        let now = dat_core::time::Instant::from_micros(begin + u64::from(number) * 1_000_000);
        let cr = until(|| match right.look_at(now) {
            Some(Event::ConnectionRequest { cr, .. }) => Some(cr),
            None => None,
            other => panic!("{other:?}"),
        });
        right.ia.cr_reject(cr, &[]).expect("a refusal");
    }
    assert!(right.driver.counts().local.full > 0);
}

/// Bytes that change while they are copied arrive somehow, and nowhere else; a queue that changes
/// beside them ends its pair.
///
/// Spec: ROCE-212
#[test]
fn a_payload_that_changes_while_it_is_copied_stays_in_its_range() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    for lines in [1, 0, 0, 0] {
        let bench = Bench::new(23);
        let scribbles = AtomicBool::new(true);
        let file = bench.between.file.as_fd();
        let mut tail = [0; 4];
        assert_eq!(pread(file, &mut tail, 0), Ok(4));
        let first = u32::from_ne_bytes(tail) as usize % FOOTPRINT;
        thread::scope(|scope| {
            let _ends = Ends(&scribbles);
            scope.spawn(|| {
                let mut random = fastrand::Rng::with_seed(seed);
                while scribbles.load(Ordering::Relaxed) {
                    // All lines of a record, or those of its payload only.
                    let record = first + random.usize(..QUEUE_BYTES / FOOTPRINT) * FOOTPRINT;
                    let at = (record + random.usize(lines * 64..FOOTPRINT)) % QUEUE_BYTES;
                    let written = pwrite(file, &[random.u8(..)], WORDS + at as u64);
                    assert_eq!(written, Ok(1));
                }
            });
            if lines == 0 {
                // The same one again: what has become another one is not acknowledged.
                let record = bench.write();
                let mut count = 0;
                while count < 5_000 && bench.between.far.write(record.0, &record.1) {
                    count += 1;
                    if count % 200 == 0 && !bench.give(&record) {
                        break;
                    }
                }
                println!("{count} records");
            } else {
                for _ in 0..500 {
                    assert!(bench.give(&bench.write()), "payload is no reason to break");
                    bench.between.complete();
                }
            }
        });
        bench.is_untouched();
    }
}
