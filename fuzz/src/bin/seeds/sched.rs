//! Seeds of `sched`: threads that contend for one object each.

use dat_fuzz::sched::Operation::{self, *};
use dat_fuzz::sched::{BUFFERS, IMMEDIATE, MESSAGES, POLLS, THREADS, encode};
use dat_fuzz::script::argument::*;

use super::Seed;

/// The dispatcher of software events.
const SOFTWARE: u8 = 3;

const STEP: Operation = Step { count: 7 };
const GO: Operation = Progress;
const FREE: Operation = FreeRegion { which: 0 };
const DISCONNECT: Operation = Disconnect {
    at: 0,
    gracefully: 0,
};
const END_GRACEFULLY: Operation = Disconnect {
    at: 0,
    gracefully: 1,
};
const RESET: Operation = Reset { at: 0 };

short_forms! {
    /// Posts 64 bytes on the first endpoint.
    post(kind) = Post { kind, at: 0, how: 0x80 };
    /// Posts on the endpoint with the shared receive queue, from the other region.
    post_other(kind) = Post { kind, at: 0x11, how: 0x80 };
    /// Posts without an event for a success.
    post_silent(kind) = Post { kind, at: 0, how: 0x81 };
    take(from) = Take { from };
    wait(from) = Wait { from, threshold: 0 };
    make(kind) = Make { kind, size: 9 };
    ask(kind) = Ask { kind, which: 0 };
}

/// A scenario: its name, the conditions at the start, and the lists of the threads.
type Scenario = (&'static str, u8, [Vec<Operation>; THREADS]);

fn scenarios() -> Vec<Scenario> {
    scenarios! {
        "posts-of-all" in IMMEDIATE =>
            [post(SEND), post(WRITE), post(READ), post(RECEIVE), take(REQUESTS)],
            [post(SEND), post_silent(WRITE), post(BIND), post(RECEIVE), take(REQUESTS)],
            [STEP, take(REQUESTS), post(WRITE), STEP, take(REQUESTS), take(REQUESTS)];
        "shared-buffers" in BUFFERS | MESSAGES =>
            [post(SHARED_RECEIVE), STEP, take(RECEIVES), post(SHARED_RECEIVE), take(RECEIVES)],
            [STEP, take(RECEIVES), post(SHARED_RECEIVE), STEP, take(RECEIVES), make(5)],
            [post_other(SEND), STEP, STEP, take(RECEIVES), ask(3)];
        "freed-while-posted" in IMMEDIATE =>
            [post(WRITE), post(SEND), post(WRITE), post(READ)],
            [FREE, make(3), post(WRITE), make(3)],
            [post(RECEIVE), post(BIND), FREE, post(SHARED_RECEIVE), STEP];
        "waits" in IMMEDIATE | BUFFERS =>
            [wait(REQUESTS), EndWait, wait(SOFTWARE)],
            [post(WRITE), STEP, GO, Notify, take(SOFTWARE)],
            [take(REQUESTS), Notify, wait(RECEIVES), GO, take(SOFTWARE)];
        "woken-at-the-end" in MESSAGES | BUFFERS =>
            [wait(RECEIVES)],
            [wait(REQUESTS)],
            [post(SEND), post(WRITE), STEP, make(4)];
        "events-of-threads" =>
            [Notify, Notify, take(SOFTWARE), Notify],
            [Notify, take(SOFTWARE), Notify, take(SOFTWARE)],
            [take(SOFTWARE), take(SOFTWARE), wait(SOFTWARE), EndWait];
        "ends-while-posted" in POLLS =>
            [post(SEND), post(WRITE), post(READ), take(REQUESTS), take(REQUESTS)],
            [DISCONNECT, GO, take(CONNECTIONS), post(RECEIVE), GO],
            [post(RECEIVE), STEP, GO, ask(0), take(RECEIVES), END_GRACEFULLY];
        "ends-gracefully" =>
            [post(SEND), END_GRACEFULLY, GO, STEP, GO, take(REQUESTS)],
            [post(WRITE), post_silent(SEND), take(REQUESTS), STEP, GO],
            [GO, STEP, GO, STEP, take(CONNECTIONS), ask(1)];
        "begins-anew" in IMMEDIATE =>
            [DISCONNECT, GO, RESET, post(RECEIVE), post(SEND)],
            [post(WRITE), take(REQUESTS), STEP, take(REQUESTS), RESET],
            [take(REQUESTS), GO, post(RECEIVE), take(RECEIVES), ask(0)];
        "made-and-freed" =>
            [make(0), make(1), make(2), make(3), make(4), make(5), make(6)],
            [make(2), make(0), make(6), make(3), make(1), ask(2)],
            [make(3), make(2), make(1), make(0), post(WRITE), ask(4)];
        "windows" in IMMEDIATE =>
            [post(BIND), post(BIND), STEP, take(REQUESTS)],
            [post(BIND), take(REQUESTS), FREE, STEP, take(REQUESTS)],
            [STEP, take(REQUESTS), FREE, post_other(BIND)];
    }
}

/// Turns of one to 32 accesses; the choice of the next thread varies.
const SCHEDULE: [u8; 48] = {
    let mut bytes = [0; 48];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = (at as u8).wrapping_mul(37) & 0x7F;
        at += 1;
    }
    bytes
};

pub(crate) fn seeds() -> Vec<Seed> {
    let seed = |(name, setup, lists): Scenario| {
        let lists = lists.each_ref().map(Vec::as_slice);
        (String::from(name), encode([7, setup], lists, &SCHEDULE))
    };
    scenarios().into_iter().map(seed).collect()
}
