//! Writes the seeds of the target `device`.
//!
//! In each scenario a device does one wrong thing.

use std::path::Path;

use dat_fuzz::device::{Operation, SETUP_SIZE, encode};

/// Values of `at`: the suspect device, the honest one, and the second connection of each.
const SUSPECT: u8 = 0;
const HONEST: u8 = 1;
const SUSPECT_SHARING: u8 = 2;
const HONEST_OTHER: u8 = 3;
/// Kinds of posts.
const SEND: u8 = 0;
const WRITE: u8 = 1;
const READ: u8 = 2;
const RECEIVE: u8 = 3;
const SHARED_RECEIVE: u8 = 4;
const BIND: u8 = 5;
/// Dispatchers.
const RECEIVES: u8 = 0;
const REQUESTS: u8 = 1;
/// Kinds of changes of a connection.
const DISCONNECT: u8 = 0;
const RESET: u8 = 1;
const CONNECT: u8 = 2;
/// Layouts, and quirks of a paravirtual device.
const MLX5: [u8; SETUP_SIZE] = [1, 0, 0, 0];
const PVRDMA: [u8; SETUP_SIZE] = [1, 1, 0, 0];
const KEEPING: [u8; SETUP_SIZE] = [1, 1 | 2, 0, 0];
const REFUSING: [u8; SETUP_SIZE] = [1, 1 | 1 << 2, 0, 0];
const MISNUMBERING: [u8; SETUP_SIZE] = [1, 1 | 3 << 2, 0, 0x12];
/// Reports queues without a limit.
const BOASTING: [u8; SETUP_SIZE] = [1, 1 | 4 << 2, 20 << 2 | 2, 1];

const GO: Operation = Operation::Go { steps: 255 };

const fn post(at: u8, kind: u8) -> Operation {
    Operation::Post {
        at,
        kind,
        offset: 4,
        length: 2,
        flags: 0,
    }
}

const fn take(at: u8, dispatcher: u8) -> Operation {
    Operation::Take { at, dispatcher }
}

/// Bits of `at` and of `threshold` that select the call.
const INTO: u8 = 0x80;
const NOW: u8 = 0x40;
const FUTURE: u8 = 0x80;

const fn wait(at: u8, dispatcher: u8, threshold: u8) -> Operation {
    Operation::Wait {
        at,
        dispatcher,
        threshold,
    }
}

const fn connection(at: u8, how: u8) -> Operation {
    Operation::Connection { at, how }
}

/// The posts of both sides at the start of each scenario.
const TALK: &[Operation] = &[
    post(SUSPECT, RECEIVE),
    post(HONEST, RECEIVE),
    post(SUSPECT_SHARING, SHARED_RECEIVE),
    post(HONEST_OTHER, RECEIVE),
    post(SUSPECT, SEND),
    post(HONEST, SEND),
    post(HONEST_OTHER, SEND),
    post(SUSPECT_SHARING, WRITE),
    post(SUSPECT, READ),
    post(SUSPECT, BIND),
];

/// The scenarios: a name, and the operations between the posts and the dequeues.
const SCENARIOS: &[(&str, &[Operation])] = &[
    ("honest", &[GO]),
    (
        "connected-anew",
        &[
            GO,
            connection(SUSPECT, DISCONNECT),
            GO,
            connection(SUSPECT, RESET),
            connection(HONEST, RESET),
            connection(SUSPECT, CONNECT),
            post(HONEST, RECEIVE),
            post(SUSPECT, SEND),
            GO,
        ],
    ),
    (
        "waits",
        &[
            GO,
            wait(SUSPECT, REQUESTS, 1),
            wait(SUSPECT, REQUESTS, NOW | 1),
            wait(SUSPECT, REQUESTS, FUTURE | 1),
            wait(HONEST, RECEIVES, FUTURE | 1),
            take(INTO | SUSPECT, REQUESTS),
            take(INTO | HONEST, RECEIVES),
            wait(SUSPECT, RECEIVES, 1),
            wait(SUSPECT, RECEIVES, NOW | 1),
            post(SUSPECT, BIND),
            GO,
            wait(SUSPECT, REQUESTS, 1),
            post(SUSPECT, BIND),
            GO,
            wait(SUSPECT, REQUESTS, NOW | 1),
            wait(SUSPECT, REQUESTS, 1),
            post(SUSPECT, WRITE),
            GO,
            take(INTO | SUSPECT, REQUESTS),
        ],
    ),
    ("index", &[Operation::Lie { kind: 0, bit: 0 }, GO]),
    ("name", &[Operation::Lie { kind: 1, bit: 0 }, GO]),
    ("length", &[Operation::Lie { kind: 4, bit: 0 }, GO]),
    ("phase", &[Operation::Lie { kind: 6, bit: 0 }, GO]),
    ("bit", &[Operation::Lie { kind: 8, bit: 50 }, GO]),
    ("noise", &[Operation::Lie { kind: 9, bit: 7 }, GO]),
    (
        "completions-before-there-are-any",
        &[
            Operation::Scrawl {
                area: 0,
                word: [15, 0],
                how: 1,
                value: 0,
            },
            Operation::Scrawl {
                area: 2,
                word: [15, 0],
                how: 1,
                value: 0,
            },
            take(SUSPECT, RECEIVES),
            take(SUSPECT, REQUESTS),
            GO,
        ],
    ),
    (
        "records",
        &[
            Operation::Scrawl {
                area: 1,
                word: [0, 0],
                how: 2,
                value: 0,
            },
            Operation::Scrawl {
                area: 6,
                word: [0, 0],
                how: 3,
                value: 9,
            },
            Operation::Scrawl {
                area: 6,
                word: [1, 0],
                how: 3,
                value: 9,
            },
            GO,
        ],
    ),
    (
        "indices",
        &[
            Operation::Scrawl {
                area: 2,
                word: [2, 0],
                how: 3,
                value: 1,
            },
            Operation::Scrawl {
                area: 6,
                word: [2, 0],
                how: 3,
                value: 1,
            },
            take(SUSPECT, REQUESTS),
            GO,
        ],
    ),
    (
        "reports-of-nothing",
        &[
            Operation::Wait {
                at: SUSPECT,
                dispatcher: REQUESTS,
                threshold: 1,
            },
            Operation::Tell { kind: 0, number: 1 },
            Operation::Tell { kind: 1, number: 5 },
            Operation::Tell {
                kind: 4,
                number: 0xFF,
            },
            Operation::Tell {
                kind: 15,
                number: 3,
            },
            Operation::Tell {
                kind: 21,
                number: 0,
            },
            GO,
        ],
    ),
    (
        "reported-failure",
        &[
            Operation::Tell { kind: 5, number: 0 },
            Operation::Tell { kind: 8, number: 0 },
            GO,
        ],
    ),
    (
        "answers",
        &[
            Operation::Answer { word: 0, bit: 0 },
            Operation::Make {
                at: SUSPECT,
                kind: 0,
            },
            Operation::Make {
                at: SUSPECT,
                kind: 2,
            },
            Operation::Make {
                at: SUSPECT,
                kind: 3,
            },
            GO,
        ],
    ),
    (
        "objects-with-impossible-names",
        &[
            Operation::Answer { word: 4, bit: 32 },
            Operation::Make {
                at: SUSPECT,
                kind: 2,
            },
            Operation::Answer { word: 4, bit: 32 },
            Operation::Make {
                at: SUSPECT,
                kind: 3,
            },
            Operation::Answer { word: 4, bit: 1 },
            Operation::Make {
                at: SUSPECT,
                kind: 4,
            },
            GO,
        ],
    ),
    (
        "waited-for-once",
        &[
            Operation::Tell {
                kind: 21,
                number: 0,
            },
            Operation::Make {
                at: SUSPECT,
                kind: 2,
            },
        ],
    ),
    (
        "unplugged",
        &[
            Operation::Unplug,
            Operation::Make {
                at: SUSPECT,
                kind: 3,
            },
            GO,
            take(SUSPECT, REQUESTS),
        ],
    ),
];

/// Scenarios whose device has quirks from the start.
const MANNERS: &[(&str, [u8; SETUP_SIZE])] = &[
    ("keeps-what-is-flushed", KEEPING),
    ("does-not-fail", REFUSING),
    ("numbers-that-come-again", MISNUMBERING),
    ("says-that-it-has-more-than-can-be", BOASTING),
];

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds/device");
    std::fs::create_dir_all(&folder)?;
    let write = |name: String, setup, between: &[Operation]| {
        let mut operations = TALK.to_vec();
        operations.extend(between);
        operations.extend([take(SUSPECT, RECEIVES), take(SUSPECT, REQUESTS)]);
        std::fs::write(folder.join(name), encode(setup, &operations))
    };
    for (name, between) in SCENARIOS {
        write(format!("{name}-mlx5"), MLX5, between)?;
        write(format!("{name}-pvrdma"), PVRDMA, between)?;
    }
    for (name, setup) in MANNERS {
        write((*name).into(), *setup, &[GO])?;
    }
    Ok(())
}
