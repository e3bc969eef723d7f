//! Comparison of all written bytes and read fields with the vendor's definitions.
//!
//! The definitions come with the vendor's user library. A C program fills the vendor's structures
//! by its inline builders, or field by field where none exist. The tests are built with the feature
//! `vendor-header` only, and fail without the header or a compiler.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use backend_mmio::defs::mlx5::{
    Completion, CompletionKind, CompletionTail, Control as ControlUnit, Data, KeyUpdate, Opcode,
    RemoteAddress, Syndrome,
};
use backend_mmio::mlx5::Limits;
use backend_mmio::{DeviceWord, RegisterIo};
use dat_core::attributes::EpAttributes;
use dat_core::backend::{
    Backend, BindRequest, CompletionQueue, DomainKey, Peek, QueuePairRequest, ReceiveRequest,
    RegionKeys, RemoteRange, Segment, SendFlags, SendOperation, SendQueue, SendRequest, WorkQueue,
};
use dat_core::flags::{CompletionFlags, MemoryPrivileges};
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::sync::NoLock;
use mlx5_idle::bed::{Bed, driver};
use mlx5_idle::{Kind, LIMITS, Made};

const REQUESTS: usize = 10_000;
const RECEIVES: usize = 2_000;
const COMPLETIONS: usize = 2_000;
const SEGMENTS: u32 = 30;
const INLINE: u32 = 156;
/// Serializes the tests, which share the doorbells.
static TURN: Mutex<()> = Mutex::new(());
/// The last block written to a doorbell.
static BLOCK: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

/// Records the last doorbell.
#[derive(Clone, Copy)]
struct Doorbell;

static RUNG: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];

impl RegisterIo for Doorbell {
    fn write(&self, offset: u32, value: u64) {
        let written = [offset, (value >> 32) as u32, value as u32];
        for (word, value) in RUNG.iter().zip(written) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn copy(&self, offset: u32, block: [u64; 8]) {
        self.write(offset, block[0]);
        for (word, value) in BLOCK.iter().zip(block) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

fn hex(words: impl IntoIterator<Item = u32>) -> String {
    words.into_iter().fold(String::new(), |mut text, word| {
        write!(text, "{word:08x}").expect("a string takes everything");
        text
    })
}

/// Returns the C program.
///
/// It is compiled once: a running program cannot be overwritten.
///
/// # Panics
/// If there is no header or no compiler: nothing would be compared.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let header = Path::new("/usr/include/infiniband/mlx5dv.h");
        assert!(header.exists(), "{} is not there", header.display());
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vendor/build.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vendor");
        let compiled = Command::new("cc")
            .args(["-O1", "-Wall", "-Werror", "-o"])
            .arg(&program)
            .arg(source)
            .status();
        let compiled = compiled.expect("a C compiler");
        assert!(compiled.success(), "{source} does not compile");
        program
    })
}

/// Returns the vendor's encoding of `lines`.
fn vendor(lines: &str) -> String {
    let mut child = Command::new(program())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut input = child.stdin.take().expect("its input");
    let lines = lines.to_owned();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("its output");
    writer.join().expect("a thread").expect("its input is read");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("hexadecimal numbers")
}

fn random_segments(random: &mut fastrand::Rng, most: u32) -> Vec<Segment> {
    (0..random.u32(0..=most))
        .map(|_| Segment {
            address: random.u64(..),
            length: random.u32(1..1 << 31),
            key: random.u32(..),
        })
        .collect()
}

fn listed(segments: &[Segment]) -> String {
    segments.iter().fold(String::new(), |mut text, segment| {
        write!(
            text,
            " {} {} {}",
            segment.length, segment.key, segment.address
        )
        .expect("a string takes everything");
        text
    })
}

/// A device whose requests carry no data.
struct Plain;

impl Kind for Plain {
    const LIMITS: Limits = Limits {
        segments: SEGMENTS,
        ..LIMITS
    };
}

/// A device whose requests carry up to `INLINE` bytes.
struct Carrying;

impl Kind for Carrying {
    const LIMITS: Limits = Limits {
        inline: INLINE,
        ..Plain::LIMITS
    };
}

/// Number of the first object of a device, so that numbers use all 24 bits.
const FIRST: u32 = 0xAB_CDEF;

/// Inline data that the core posts equals the vendor's structures.
///
/// A descriptor of one block goes to the doorbell whole.
///
/// Spec: EPS-01, EPW-04
#[test]
fn inline_data_equals_the_vendors_byte_for_byte() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let attributes = EpAttributes {
        max_request_dtos: 60,
        ..EpAttributes::DEFAULT
    };
    let bed = Bed::<Carrying, _, NoLock>::new(Doorbell, FIRST, &attributes);
    let Bed {
        ia,
        ep,
        bytes,
        memory,
        made,
        ..
    } = &bed;
    let (rings, number) = (made.rings(), made.queue_pair());
    let receives = u64::from(rings.receive_units.next_multiple_of(4));
    let (mut lines, mut ours, mut head) = (String::new(), Vec::new(), 0_u32);
    for cookie in 0..50 {
        let send = random.bool();
        let length = random.u32(1..=INLINE);
        let (offset, first) = (random.usize(0..2000), random.u8(..));
        for (index, byte) in bytes[offset..][..length as usize].iter().enumerate() {
            byte.store(
                (index as u8).wrapping_mul(7).wrapping_add(first),
                Ordering::Relaxed,
            );
        }
        let segment = LmrTriplet {
            context: bed.segments[0].context,
            address: bed.segments[0].address + offset as u64,
            length: u64::from(length),
        };
        let remote = RmrTriplet {
            context: random.u32(..),
            address: random.u64(..),
            length: 4096,
        };
        let none = CompletionFlags::empty();
        let posted = if send {
            ia.post_send(*ep, &[segment], cookie, none)
        } else {
            ia.post_rdma_write(*ep, &[segment], cookie, &remote, none)
        };
        posted.expect("room");
        let opcode = if send { 0x0A } else { 0x08 };
        writeln!(
            lines,
            "carried {head} {opcode} {number} 8 {} {} {length} {first}",
            remote.address, remote.context
        )
        .expect("a string");
        let units = 1 + u32::from(!send) + (length + 4).div_ceil(16);
        let unit = |index: u32| {
            let index = (head * 4 + index) % (rings.send_blocks * 4);
            let bus = rings.address + (receives + u64::from(index)) * 16;
            memory.seen_at(bus, 1).expect("a unit")[0]
                .each_ref()
                .map(DeviceWord::load)
        };
        let words: Vec<u32> = (0..units).flat_map(unit).collect();
        if units <= 4 {
            let block = BLOCK.iter().flat_map(|word| {
                let word = word.load(Ordering::Relaxed);
                [(word >> 32) as u32, word as u32]
            });
            let block: Vec<u32> = block.take(words.len()).collect();
            assert_eq!(block, words, "the doorbell takes it whole");
        }
        ours.push(hex(words));
        head += units.div_ceil(4);
    }
    let theirs = vendor(&lines);
    assert_eq!(theirs.lines().count(), ours.len());
    for ((ours, theirs), line) in ours.iter().zip(theirs.lines()).zip(lines.lines()) {
        assert_eq!(ours, theirs, "{line}");
    }
}

/// Spec: EPW-04, EPW-06, RMB-18
#[test]
fn descriptors_equal_the_vendors_byte_for_byte() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let made: &'static Made = Box::leak(Box::new(Made::new(FIRST)));
    let (mut backend, memory, state) = driver::<Plain, _>(Doorbell, made);
    let mut completions = backend.create_completion_queue(0, 31).expect("a queue");
    let mut window = backend.create_window(DomainKey(1)).expect("a window");
    let attributes = EpAttributes {
        max_request_iov: SEGMENTS as i32,
        max_recv_iov: SEGMENTS as i32,
        max_request_dtos: 13,
        max_recv_dtos: 4,
        ..EpAttributes::DEFAULT
    };
    let mut request = QueuePairRequest::new(1, DomainKey(1), attributes);
    (request.request_queue, request.receive_queue) = (Some(0), Some(0));
    let mut pair = backend.create_queue_pair(&request).expect("a queue pair");
    let receive = pair.receive.as_mut().expect("a receive queue");

    let (ring, number) = (made.rings().address, made.queue_pair());
    // 4 slots of 32 units, then 13 requests of 8 blocks, rounded up to a power of two.
    let (slots, slot_units, blocks) = (4_u32, 32_u32, 128_u32);
    let word_of = |bus: u64| {
        memory.seen_at(bus, 1).expect("a unit")[0]
            .each_ref()
            .map(DeviceWord::load)
    };
    let mut complete = |kind: CompletionKind, index: u16, length: u32, token: u64| {
        made.complete(&memory, 32, kind, index, length);
        let length = if kind == CompletionKind::REQUEST {
            u32::MAX
        } else {
            length
        };
        assert_eq!(completions.peek(), Peek::Success { token, length });
        completions.skip();
    };

    let mut lines = String::new();
    let mut ours = Vec::new();
    let (mut head, mut key, mut behind_bind) = (0_u32, made.window(), false);
    for token in 0..REQUESTS as u64 {
        let fenced = random.bool();
        let fence = match (fenced, behind_bind) {
            (true, _) => 4 << 5,
            (false, true) => 1 << 5,
            (false, false) => 0,
        };
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::FENCE, fenced);
        let index = head & 0xFFFF;
        let units = if random.u8(0..5) == 0 {
            let binds = random.bool();
            let bind = BindRequest {
                token,
                window,
                region: RegionKeys {
                    local: random.u32(..),
                    ..RegionKeys::default()
                },
                address: random.u64(..),
                length: if binds { random.u64(1..1 << 31) } else { 0 },
                privileges: MemoryPrivileges::from_bits_truncate(random.u32(..) as _),
                flags,
                is_only: true,
            };
            let rights = [
                MemoryPrivileges::REMOTE_READ,
                MemoryPrivileges::REMOTE_WRITE,
            ];
            let [reads, writes] = rights.map(|right| u8::from(bind.privileges.contains(right)));
            let new = pair.send.bind(&bind).unwrap_or_else(|_| {
                // The window ran out of keys.
                assert!(backend.needs_renewal(window, false));
                backend.destroy_window(window);
                window = backend.create_window(DomainKey(1)).expect("another one");
                key = made.window();
                let bind = BindRequest { window, ..bind };
                pair.send.bind(&bind).expect("a new key")
            });
            assert_eq!(new >> 8, made.window() >> 8);
            writeln!(
                lines,
                "bind {index} {number} {} {key} {} {} {} {} {} {reads} {writes}",
                8 | fence,
                new & 0xFF,
                u8::from(binds),
                bind.address,
                bind.length,
                bind.region.local
            )
            .expect("a string");
            (key, behind_bind) = (new, true);
            if binds { 12 } else { 8 }
        } else {
            let solicited = random.bool();
            flags.set(SendFlags::SOLICITED, solicited);
            let segments = random_segments(&mut random, SEGMENTS);
            let range = RemoteRange {
                address: random.u64(..),
                key: random.u32(..),
            };
            let (opcode, operation) = match random.u8(0..3) {
                0 => (0x0A, SendOperation::Send),
                1 => (0x08, SendOperation::RdmaWrite(range)),
                _ => (0x10, SendOperation::RdmaRead(range)),
            };
            writeln!(
                lines,
                "request {index} {opcode} {number} {} {} {} {}{}",
                8 | fence | u32::from(solicited) << 1,
                segments.len(),
                range.address,
                range.key,
                listed(&segments)
            )
            .expect("a string");
            let request = SendRequest {
                token,
                operation,
                flags,
            };
            pair.send.post(&request, &segments).expect("taken");
            behind_bind = false;
            1 + u32::from(opcode != 0x0A) + segments.len() as u32
        };
        let send_ring = ring + u64::from(slots * slot_units) * 16;
        let unit = |index: u32| {
            let index = (head * 4 + index) & (blocks * 4 - 1);
            word_of(send_ring + u64::from(index) * 16)
        };
        let words: Vec<u32> = (0..units).flat_map(unit).collect();
        let [offset, first, second] = RUNG.each_ref().map(|word| word.load(Ordering::Relaxed));
        assert_eq!(
            (first, second),
            (words[0], words[1]),
            "the doorbell repeats the beginning"
        );
        assert_eq!(
            offset,
            0x800 | (token as u32 & 1) << 8,
            "the doorbells take turns"
        );
        ours.push(hex(words));
        complete(CompletionKind::REQUEST, index as u16, 0, token);
        head = head.wrapping_add(units.div_ceil(4));
        let record = word_of(send_ring + u64::from(blocks) * 64);
        assert_eq!(record[1], head & 0xFFFF, "the doorbell record");
    }
    for token in 0..RECEIVES as u64 {
        let segments = random_segments(&mut random, SEGMENTS);
        writeln!(
            lines,
            "receive {} {slot_units}{}",
            segments.len(),
            listed(&segments)
        )
        .expect("a string");
        let request = ReceiveRequest { token };
        receive.post(&request, &segments).expect("taken");
        let first = (token as u32 & (slots - 1)) * slot_units;
        let used = (segments.len() as u32 + 1).min(slot_units);
        let units = (first..first + used).map(|unit| ring + u64::from(unit) * 16);
        ours.push(hex(units.flat_map(word_of)));
        let length = segments.first().map_or(0, |segment| segment.length);
        complete(CompletionKind::RECEIVE, token as u16, length, token);
    }
    assert_eq!(state.fault(), None);

    let theirs = vendor(&lines);
    assert_eq!(theirs.lines().count(), REQUESTS + RECEIVES);
    for ((ours, theirs), line) in ours.iter().zip(theirs.lines()).zip(lines.lines()) {
        assert_eq!(ours, theirs, "{line}");
    }
}

/// Fields that the vendor's definitions wrote are read back, and descriptors decode as encoded.
///
/// Spec: DTO-03
#[test]
fn fields_are_read_where_the_vendor_writes_them() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut lines = String::new();
    let mut written = Vec::new();
    for _ in 0..COMPLETIONS {
        let kind = CompletionKind([0, 2, 13, 14][random.usize(0..4)]);
        let failed = kind.0 > 2;
        let entry = Completion {
            user_index: random.u32(0..1 << 24),
            length: random.u32(..),
            syndrome: Syndrome(if failed { random.u8(..) } else { 0 }),
            queue_pair: random.u32(0..1 << 24),
            opcode: Opcode(random.u8(..)),
        };
        let (solicited, lap) = (random.bool(), random.bool());
        let tail = CompletionTail::new(random.u16(..), kind, solicited).in_lap(lap);
        writeln!(
            lines,
            "completion {} {} {} {} {} {} {} {} {}",
            entry.user_index,
            entry.length,
            entry.syndrome.0,
            entry.queue_pair,
            entry.opcode.0,
            tail.index(),
            kind.0,
            u8::from(solicited),
            u8::from(lap)
        )
        .expect("a string");
        written.push((entry, tail));
    }
    let output = vendor(&lines);
    assert_eq!(output.lines().count(), COMPLETIONS);
    for (line, (entry, tail)) in output.lines().zip(written) {
        let word = |index: usize| u32::from_str_radix(&line[index * 8..][..8], 16).expect("a word");
        assert_eq!(
            Completion::decode(std::array::from_fn(word)),
            entry,
            "{line}"
        );
        assert_eq!(CompletionTail(word(Completion::TAIL)), tail, "{line}");
        assert_eq!(entry.encode(), std::array::from_fn(word), "{line}");
    }

    let mut units = || std::array::from_fn::<u32, 4, _>(|_| random.u32(..));
    for _ in 0..1000 {
        let read = RemoteAddress::decode(units());
        assert_eq!(RemoteAddress::decode(read.encode()), read);
        let read = Data::decode(units());
        assert_eq!(Data::decode(read.encode()), read);
        let read = ControlUnit::decode(units());
        let kept = ControlUnit::decode(read.encode());
        assert_eq!(kept, read);
        // Random words are not a key update, or one that is encoded the same way.
        if let Some(read) = KeyUpdate::decode(std::array::from_fn(|_| units())) {
            assert_eq!(KeyUpdate::decode(read.encode()), Some(read));
        }
    }
}
