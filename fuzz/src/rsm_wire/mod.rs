//! A peer that sends anything to the engine of remote shared memory.
//!
//! Three nodes are on a mock fabric. The second one, the victim, exports three pages: one that the
//! intruder may read and write, one that it may read, and one for the third node only. The intruder
//! is no engine but a bare endpoint on the first node. It encodes its own messages, accesses memory
//! with the keys that it received, and answers when the victim connects to it. No byte changes or
//! leaks without a grant, the third node is served, and every object is free again when the
//! controllers are released.

mod intruder;
mod pages;
mod script;
mod world;

use backend_mock::MockBackend;
use dat_core::Ia;
use dat_core::sync::SpinLock;
use dat_rsm::Rsm;
use dat_rsm::wire::{GREETING_SIZE, Greeting, MESSAGE_SIZE, Message};

pub use script::Operation;

use crate::script::decode;
use world::World;

const PAGE: usize = 4096;
const INTRUDER: u32 = 1;
const VICTIM: u32 = 2;
const FRIEND: u32 = 3;
/// The incarnation that the intruder claims.
const LIFE: u64 = 0xBAD;
/// The ids of the victim's pages, and an unknown one.
const SEGMENTS: [u32; 4] = [0x60_0000, 0x60_0001, 0x60_0002, 0x60_0003];
/// The most operations of a run.
const OPERATIONS: usize = 64;

const REGIONS: usize = 64;
/// The dispatchers of an engine, and the adapter's own; the intruder needs no more.
const DISPATCHERS: usize = 5;

type Lock = SpinLock;
type Adapter<'s> = Ia<'s, MockBackend, Lock>;
type Engine<'s> = Rsm<'s, MockBackend, Lock>;

dat_core::define_storage! {
    struct Slots for MockBackend, Lock {
        protection_zones: REGIONS,
        local_regions: REGIONS,
        remote_regions: REGIONS,
        event_dispatchers: DISPATCHERS,
        notification_objects: DISPATCHERS,
        endpoints: 16,
        shared_receive_queues: 1,
        public_service_points: 16,
        reserved_service_points: 16,
        connection_requests: 16,
        events: 1024,
        records: 2048,
    }
}

fn open(storage: &mut Slots, backend: MockBackend) -> Adapter<'_> {
    match Ia::open(backend, storage.lend(), 32) {
        Ok(ia) => ia,
        Err(refused) => panic!("{}", refused.error),
    }
}

/// Runs an input, as messages and as operations.
///
/// # Panics
/// A promise is broken.
pub fn run(input: &[u8]) {
    decode_alone(input);
    let Some((seed, rest)) = input.split_first() else {
        return;
    };
    let mut storage = [(); 3].map(|()| Box::new(Slots::default()));
    let mut world = World::new(u64::from(*seed), &mut storage);
    for operation in decode(rest, OPERATIONS) {
        world.act(operation);
    }
    world.end();
}

/// Checks that any bytes are refused, or are the exact encoding of the decoded message.
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
