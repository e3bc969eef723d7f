//! Inline requests: memory is read while it is registered, and not afterwards.
#![cfg(feature = "verbs")]

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use backend_verbs::WindowKind;
use dat_bench::{VerbsQueues, World, WorldMemory};
use dat_core::flags::{CompletionFlags, EpFields, MemoryPrivileges};
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, Region};
use dat_core::sync::HostLock;
use verbs_model::{Found, SCRIPTED, Script};

/// The content of memory while it is registered, and while its owner has it.
const REGISTERED: u8 = 0xA5;
const OWN: u8 = 0x11;
/// Bytes of a memory block.
const BLOCK: usize = 32;

static RIGHT: AtomicU32 = AtomicU32::new(0);
static WRONG: AtomicU32 = AtomicU32::new(0);

fn look(data: &[u8]) {
    let right = data.iter().all(|&byte| byte == REGISTERED);
    let counter = if right { &RIGHT } else { &WRONG };
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Looks at the data of the posted requests, and completes them.
fn complete_all(device: &Script) {
    for posted in device.take_requests().1 {
        look(&posted.data.expect("short requests carry their data"));
        device.complete(Found {
            token: posted.token,
            status: 0,
            opcode: 0,
            length: 0,
            pair: 0,
        });
    }
}

/// No request carries data of a block that is not registered.
///
/// Two blocks are registered in turn, while threads post from the last registered one and from
/// contexts that they guess.
///
/// Spec: EPS-03, EPW-27, LMF-02
#[test]
fn requests_carry_registered_memory_alone() {
    const ROUNDS: u32 = 10_000;
    static MEMORY: [[AtomicU8; BLOCK]; 2] = [const { [const { AtomicU8::new(OWN) }; BLOCK] }; 2];
    let queues = VerbsQueues::open(SCRIPTED, WindowKind::Domain);
    let memory = Box::leak(Box::new(WorldMemory::new()));
    let world: World<VerbsQueues, HostLock> =
        World::new(queues, memory, false).expect("a fresh world");
    let (ia, ep, evd) = (&world.ia, world.ep, world.evd);
    let param = ia.ep_query(ep, EpFields::all()).expect("it lives");
    let pz = param.pz.expect("it has a zone");
    let newest = AtomicU32::new(0);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for poster in 0..2_u32 {
            let (newest, over) = (&newest, &over);
            let device = &world.device;
            scope.spawn(move || {
                let mut turn = 0_u32;
                while !over.load(Ordering::Relaxed) {
                    turn = turn.wrapping_add(1);
                    // The slots are used in turn, and each new context of a slot has the next
                    // generation.
                    let guess = 0x1_0000 * (turn & poster);
                    let context = newest.load(Ordering::Relaxed).wrapping_add(guess);
                    let segment = LmrTriplet {
                        context,
                        address: MEMORY[turn as usize % 2].as_ptr() as u64,
                        length: BLOCK as u64,
                    };
                    if ia
                        .post_send(ep, &[segment], 1, CompletionFlags::empty())
                        .is_ok()
                    {
                        complete_all(device);
                        while ia.evd_dequeue(evd).is_ok() {}
                    }
                }
            });
        }
        // On a busy machine the threads may start late.
        let end = Instant::now() + Duration::from_secs(60);
        let is_idle = || RIGHT.load(Ordering::Relaxed) == 0 && Instant::now() < end;
        let mut round = 0;
        while round < ROUNDS || is_idle() {
            round += 1;
            let block = &MEMORY[round as usize % 2];
            fill(block, REGISTERED);
            let made = ia
                .lmr_create(&LmrRequest {
                    memory: LmrMemory::Virtual(Region::from_static(block)),
                    pz,
                    privileges: MemoryPrivileges::LOCAL_READ,
                })
                .expect("there is room");
            newest.store(made.lmr_context, Ordering::Relaxed);
            if round % 8 == 0 {
                thread::yield_now();
            }
            ia.lmr_free(made.lmr).expect("nothing is bound to it");
            fill(block, OWN);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_ne!(RIGHT.load(Ordering::Relaxed), 0);
    assert_eq!(WRONG.load(Ordering::Relaxed), 0);
}

fn fill(block: &[AtomicU8], value: u8) {
    for byte in block {
        byte.store(value, Ordering::Relaxed);
    }
}
