//! Writes the seeds of the target `sched`: threads that contend for one object each.

use std::path::Path;

use dat_fuzz::sched::{
    BUFFERS, IMMEDIATE, MESSAGES, Operation, POLLS, RECEIVE, SETUP_SIZE, SHARED_RECEIVE, THREADS,
    encode,
};

/// Kinds of posts.
const SEND: u8 = 0;
const WRITE: u8 = 1;
const READ: u8 = 2;
const BIND: u8 = 5;
/// Dispatchers.
const RECEIVES: u8 = 0;
const REQUESTS: u8 = 1;
const CONNECTIONS: u8 = 2;
const SOFTWARE: u8 = 3;

const STEP: Operation = Operation::Step { count: 7 };
const GO: Operation = Operation::Progress;

/// Posts 64 bytes on the first endpoint.
const fn post(kind: u8) -> Operation {
    Operation::Post {
        kind,
        at: 0,
        how: 0x80,
    }
}

/// Posts on the endpoint with the shared receive queue, from the other region.
const fn post_other(kind: u8) -> Operation {
    Operation::Post {
        kind,
        at: 0x11,
        how: 0x80,
    }
}

/// Posts without an event for a success.
const fn post_silent(kind: u8) -> Operation {
    Operation::Post {
        kind,
        at: 0,
        how: 0x81,
    }
}

const fn take(from: u8) -> Operation {
    Operation::Take { from }
}

const fn wait(from: u8) -> Operation {
    Operation::Wait { from, threshold: 0 }
}

const fn make(kind: u8) -> Operation {
    Operation::Make { kind, size: 9 }
}

const fn ask(kind: u8) -> Operation {
    Operation::Ask { kind, which: 0 }
}

const FREE: Operation = Operation::FreeRegion { which: 0 };
const DISCONNECT: Operation = Operation::Disconnect {
    at: 0,
    gracefully: 0,
};
const END_GRACEFULLY: Operation = Operation::Disconnect {
    at: 0,
    gracefully: 1,
};
const RESET: Operation = Operation::Reset { at: 0 };

/// A scenario: its name, the conditions at the start, and the lists of the threads.
type Scenario = (&'static str, u8, [&'static [Operation]; THREADS]);

const SCENARIOS: &[Scenario] = &[
    (
        "posts-of-all",
        IMMEDIATE,
        [
            &[
                post(SEND),
                post(WRITE),
                post(READ),
                post(RECEIVE),
                take(REQUESTS),
            ],
            &[
                post(SEND),
                post_silent(WRITE),
                post(BIND),
                post(RECEIVE),
                take(REQUESTS),
            ],
            &[
                STEP,
                take(REQUESTS),
                post(WRITE),
                STEP,
                take(REQUESTS),
                take(REQUESTS),
            ],
        ],
    ),
    (
        "shared-buffers",
        BUFFERS | MESSAGES,
        [
            &[
                post(SHARED_RECEIVE),
                STEP,
                take(RECEIVES),
                post(SHARED_RECEIVE),
                take(RECEIVES),
            ],
            &[
                STEP,
                take(RECEIVES),
                post(SHARED_RECEIVE),
                STEP,
                take(RECEIVES),
                make(5),
            ],
            &[post_other(SEND), STEP, STEP, take(RECEIVES), ask(3)],
        ],
    ),
    (
        "freed-while-posted",
        IMMEDIATE,
        [
            &[post(WRITE), post(SEND), post(WRITE), post(READ)],
            &[FREE, make(3), post(WRITE), make(3)],
            &[post(RECEIVE), post(BIND), FREE, post(SHARED_RECEIVE), STEP],
        ],
    ),
    (
        "waits",
        IMMEDIATE | BUFFERS,
        [
            &[wait(REQUESTS), Operation::EndWait, wait(SOFTWARE)],
            &[post(WRITE), STEP, GO, Operation::Notify, take(SOFTWARE)],
            &[
                take(REQUESTS),
                Operation::Notify,
                wait(RECEIVES),
                GO,
                take(SOFTWARE),
            ],
        ],
    ),
    (
        "woken-at-the-end",
        MESSAGES | BUFFERS,
        [
            &[wait(RECEIVES)],
            &[wait(REQUESTS)],
            &[post(SEND), post(WRITE), STEP, make(4)],
        ],
    ),
    (
        "events-of-threads",
        0,
        [
            &[
                Operation::Notify,
                Operation::Notify,
                take(SOFTWARE),
                Operation::Notify,
            ],
            &[
                Operation::Notify,
                take(SOFTWARE),
                Operation::Notify,
                take(SOFTWARE),
            ],
            &[
                take(SOFTWARE),
                take(SOFTWARE),
                wait(SOFTWARE),
                Operation::EndWait,
            ],
        ],
    ),
    (
        "ends-while-posted",
        POLLS,
        [
            &[
                post(SEND),
                post(WRITE),
                post(READ),
                take(REQUESTS),
                take(REQUESTS),
            ],
            &[DISCONNECT, GO, take(CONNECTIONS), post(RECEIVE), GO],
            &[
                post(RECEIVE),
                STEP,
                GO,
                ask(0),
                take(RECEIVES),
                END_GRACEFULLY,
            ],
        ],
    ),
    (
        "ends-gracefully",
        0,
        [
            &[post(SEND), END_GRACEFULLY, GO, STEP, GO, take(REQUESTS)],
            &[post(WRITE), post_silent(SEND), take(REQUESTS), STEP, GO],
            &[GO, STEP, GO, STEP, take(CONNECTIONS), ask(1)],
        ],
    ),
    (
        "begins-anew",
        IMMEDIATE,
        [
            &[DISCONNECT, GO, RESET, post(RECEIVE), post(SEND)],
            &[post(WRITE), take(REQUESTS), STEP, take(REQUESTS), RESET],
            &[take(REQUESTS), GO, post(RECEIVE), take(RECEIVES), ask(0)],
        ],
    ),
    (
        "made-and-freed",
        0,
        [
            &[
                make(0),
                make(1),
                make(2),
                make(3),
                make(4),
                make(5),
                make(6),
            ],
            &[make(2), make(0), make(6), make(3), make(1), ask(2)],
            &[make(3), make(2), make(1), make(0), post(WRITE), ask(4)],
        ],
    ),
    (
        "windows",
        IMMEDIATE,
        [
            &[post(BIND), post(BIND), STEP, take(REQUESTS)],
            &[post(BIND), take(REQUESTS), FREE, STEP, take(REQUESTS)],
            &[STEP, take(REQUESTS), FREE, post_other(BIND)],
        ],
    ),
];

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

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds/sched");
    std::fs::create_dir_all(&folder).expect("a folder");
    for (name, setup, lists) in SCENARIOS {
        let setup: [u8; SETUP_SIZE] = [7, *setup];
        std::fs::write(folder.join(name), encode(setup, *lists, &SCHEDULE)).expect("a seed");
    }
}
