//! A peer that says whatever a fuzzer likes to the engine of remote shared memory.
//!
//! Three nodes on a mock fabric. The second one, the victim, exports three pages: one that the intruder may read and
//! write, one that it may read, one that is for the third node alone. The intruder is no engine but a bare endpoint on the
//! first node; it speaks by hand, accesses memory with the keys it heard, and answers when the victim connects to it.
//! Whatever it does, no byte changes or leaks that it was not granted, the third node is served, and when the
//! controllers are released every object is free again.

mod intruder;
mod operation;
mod pages;
mod world;

use backend_mock::MockBackend;
use dat_core::sync::SpinLock;
use dat_core::{Ia, IaStorage};
use dat_rsm::Rsm;
use dat_rsm::wire::{GREETING_SIZE, Greeting, MESSAGE_SIZE, Message};

pub use operation::{OPERATION_SIZE, Operation, encode};

use world::World;

const PAGE: usize = 4096;
const INTRUDER: u32 = 1;
const VICTIM: u32 = 2;
const FRIEND: u32 = 3;
/// The life that the intruder claims to be in.
const LIFE: u64 = 0xBAD;
/// The ids of the victim's pages, and one that nobody has.
const SEGMENTS: [u32; 4] = [0x60_0000, 0x60_0001, 0x60_0002, 0x60_0003];
/// Operations of a run.
const OPERATIONS: usize = 64;

const REGIONS: usize = 64;
/// What an engine needs, and the adapter's own; the intruder needs no more.
const DISPATCHERS: usize = 5;

type Lock = SpinLock;
type Adapter<'s> = Ia<'s, MockBackend, Lock>;
type Engine<'s> = Rsm<'s, MockBackend, Lock>;
type Slots = IaStorage<MockBackend, Lock, 16, DISPATCHERS, 1, REGIONS, 1024, 2048>;

fn open(storage: &mut Slots, backend: MockBackend) -> Adapter<'_> {
    match Ia::open(backend, storage.lend(), 32) {
        Ok(ia) => ia,
        Err(refused) => panic!("{}", refused.error),
    }
}

/// Runs an input: the bytes as messages, and as operations.
///
/// # Panics
/// If a promise is broken.
pub fn run(input: &[u8]) {
    decode_alone(input);
    let Some((seed, rest)) = input.split_first() else {
        return;
    };
    let mut storage = [(); 3].map(|()| Box::new(Slots::default()));
    let mut world = World::new(u64::from(*seed), &mut storage);
    for bytes in rest.as_chunks().0.iter().take(OPERATIONS) {
        world.act(Operation::decode(*bytes));
    }
    world.end();
}

/// Whatever bytes come, they are refused, or are exactly what the message that they are read as is written as.
fn decode_alone(input: &[u8]) {
    for bytes in input.windows(MESSAGE_SIZE).step_by(7).take(64) {
        let bytes: &[u8; MESSAGE_SIZE] = bytes.first_chunk().expect("of this size");
        for magic in [false, true] {
            let mut bytes = *bytes;
            if magic {
                bytes[..4].copy_from_slice(b"RSM\x01");
                bytes[4] %= 12;
                bytes[5] = 0;
            }
            if let Ok(message) = Message::decode(&bytes) {
                assert_eq!(message.encode(), bytes, "{message:?}");
            }
            if let Ok(greeting) = Greeting::decode(&bytes) {
                assert_eq!(greeting.encode(), bytes[..GREETING_SIZE], "{greeting:?}");
            }
        }
    }
    if let Ok(greeting) = Greeting::decode(input) {
        assert_eq!(Some(&greeting.encode()), input.first_chunk());
    }
}
