//! Writes the seeds of the target `verbs`.
//!
//! In each scenario the device or the connection manager does one wrong thing.

use std::path::Path;

use dat_fuzz::verbs::{BOASTS, MISNUMBERS, Operation, SECOND_WINDOWS, SETUP_SIZE, encode};

/// Endpoints: with its own receives, and with the shared receive queue.
const OWN: u8 = 0;
const SHARING: u8 = 2;
/// Kinds of posts.
const SEND: u8 = 0;
const WRITE: u8 = 1;
const READ: u8 = 2;
const RECEIVE: u8 = 3;
const SHARED_RECEIVE: u8 = 4;
const BIND: u8 = 5;
const WRITES: u8 = 6;
const RECEIVES_AT_ONCE: u8 = 7;
/// Queues of the device, and the dispatchers over them.
const RECEIVES: u8 = 0;
const REQUESTS: u8 = 1;
const CONNECTIONS: u8 = 2;
const ARRIVALS: u8 = 3;
/// The index of the talk's first receive among the outstanding requests, after six requests.
const FIRST_RECEIVE: u8 = 6;
/// The index of the opcode of a receive that a write with immediate data completed.
const NUMBERED: u8 = 6;
/// Kinds of changes of a connection.
const DISCONNECT: u8 = 0;
const RESET: u8 = 1;
const CONNECT: u8 = 2;
const ACCEPT: u8 = 3;
const REJECT: u8 = 4;
const SETTLE: u8 = 5;
/// Events of the connection manager.
const ARRIVED: u8 = 4;
const UNREACHABLE: u8 = 7;
const REJECTED: u8 = 8;
const ESTABLISHED: u8 = 9;
const DISCONNECTED: u8 = 10;
const REMOVED: u8 = 11;

const PLAIN: [u8; SETUP_SIZE] = [0, 0, 0, 0];
const GO: Operation = Operation::Go { rounds: 7 };

/// Sets a low watermark above the number of shared buffers, which is reported at once.
const LOW_WATERMARK: Operation = Operation::Make { kind: 5 };

const fn post(at: u8, kind: u8) -> Operation {
    Operation::Post {
        at,
        kind,
        offset: 4,
        length: 4,
        flags: 0,
    }
}

const fn in_pieces(at: u8, kind: u8) -> Operation {
    Operation::Post {
        at,
        kind,
        offset: 4,
        length: 4,
        flags: 6 << 5,
    }
}

const fn take(from: u8) -> Operation {
    Operation::Take { from }
}

/// Bits of the dispatcher and of the threshold that select the call.
const INTO: u8 = 0x80;
const NOW: u8 = 0x40;
const FUTURE: u8 = 0x80;

const fn wait(from: u8, threshold: u8) -> Operation {
    Operation::Wait { from, threshold }
}

const fn carry_out(pair: u8) -> Operation {
    Operation::CarryOut {
        pair,
        count: 8,
        length: 2,
    }
}

const fn connection(pair: u8, how: u8, which: u8) -> Operation {
    Operation::Connection { pair, how, which }
}

const fn forge(queue: u8, which: u8, how: u8, status: u8, opcode: u8) -> Operation {
    Operation::Forge {
        queue,
        which,
        how,
        status,
        opcode,
        length: 1,
        pair: 0,
    }
}

const fn lie(which: u8, kind: u8, data: u8, length: u8) -> Operation {
    Operation::Lie {
        which,
        kind,
        status: 0,
        data,
        length,
        depths: 0x44,
        peer: 3,
    }
}

const fn tell(kind: u8) -> Operation {
    Operation::Tell { kind, which: 0 }
}

/// The consumer's posts at the start.
const TALK: &[Operation] = &[
    post(OWN, RECEIVE),
    post(OWN, RECEIVE),
    post(OWN, SHARED_RECEIVE),
    post(OWN, SHARED_RECEIVE),
    post(OWN, SEND),
    post(OWN, WRITE),
    post(OWN, READ),
    post(OWN, BIND),
    post(SHARING, SEND),
    post(SHARING, WRITE),
];

/// The scenarios: a name, the oddities, and the operations between the posts and the dequeues.
const SCENARIOS: &[(&str, [u8; SETUP_SIZE], &[Operation])] = &[
    (
        "honest",
        PLAIN,
        &[carry_out(0), carry_out(1), carry_out(2), carry_out(3), GO],
    ),
    (
        "flushed",
        PLAIN,
        &[
            connection(0, DISCONNECT, 0),
            connection(1, DISCONNECT, 0),
            GO,
        ],
    ),
    (
        "windows-of-type-2",
        [SECOND_WINDOWS, 0, 0, 0],
        &[carry_out(0), post(OWN, BIND), carry_out(0)],
    ),
    (
        "connected-anew",
        PLAIN,
        &[
            connection(0, DISCONNECT, 0),
            take(REQUESTS),
            take(RECEIVES),
            take(CONNECTIONS),
            connection(0, RESET, 0),
            connection(0, CONNECT, 4),
            connection(0, SETTLE, 100),
            post(OWN, SEND),
            carry_out(0),
        ],
    ),
    (
        "twice",
        PLAIN,
        &[forge(REQUESTS, 0, 0, 0, 0), forge(REQUESTS, 0, 0, 0, 0)],
    ),
    (
        "with-a-number",
        PLAIN,
        &[
            forge(RECEIVES, FIRST_RECEIVE, 0, 0, NUMBERED),
            forge(RECEIVES, FIRST_RECEIVE, 0, 10, NUMBERED),
            GO,
        ],
    ),
    (
        "of-another-kind",
        PLAIN,
        &[forge(REQUESTS, 0, 0, 0, 5), forge(RECEIVES, 0, 0, 0, 0)],
    ),
    (
        "a-bit",
        PLAIN,
        &[
            forge(REQUESTS, 1, 0x80 | 3, 0, 0),
            forge(REQUESTS, 1, 0x80 | 40, 0, 0),
        ],
    ),
    (
        "failed",
        PLAIN,
        &[forge(REQUESTS, 1, 0, 10, 0), GO, take(CONNECTIONS)],
    ),
    (
        "nonsense",
        PLAIN,
        &[
            Operation::Answer {
                queue: 1,
                number: 1,
            },
            take(REQUESTS),
            GO,
        ],
    ),
    (
        "negative",
        PLAIN,
        &[
            Operation::Answer {
                queue: 0,
                number: 0,
            },
            take(RECEIVES),
            GO,
        ],
    ),
    (
        "keeps",
        PLAIN,
        &[
            Operation::Keep,
            connection(0, DISCONNECT, 0),
            connection(1, DISCONNECT, 0),
        ],
    ),
    (
        "notifies-of-nothing",
        PLAIN,
        &[
            Operation::Wait {
                from: REQUESTS,
                threshold: 1,
            },
            Operation::Notify { queue: 1 },
            GO,
            Operation::Wait {
                from: RECEIVES,
                threshold: 3,
            },
            carry_out(1),
            GO,
        ],
    ),
    (
        "waits",
        PLAIN,
        &[
            carry_out(0),
            carry_out(1),
            wait(REQUESTS, 1),
            wait(REQUESTS, NOW | 1),
            wait(REQUESTS, FUTURE | 1),
            take(INTO | REQUESTS),
            wait(REQUESTS, 1),
            wait(REQUESTS, NOW | 1),
            wait(REQUESTS, FUTURE | 1),
            wait(RECEIVES, 1),
            wait(RECEIVES, NOW | 1),
            take(INTO | RECEIVES),
            take(INTO | RECEIVES),
            carry_out(2),
            wait(REQUESTS, NOW | 1),
            take(INTO | REQUESTS),
            carry_out(3),
            wait(REQUESTS, FUTURE | 2),
            GO,
            wait(REQUESTS, FUTURE | 1),
            take(INTO | REQUESTS),
        ],
    ),
    (
        "waits-for-bound-windows",
        PLAIN,
        &[
            carry_out(0),
            take(REQUESTS),
            post(OWN, BIND),
            carry_out(0),
            wait(REQUESTS, 1),
            wait(REQUESTS, 1),
            post(OWN, BIND),
            carry_out(0),
            wait(REQUESTS, NOW | 1),
            wait(REQUESTS, 1),
            post(OWN, BIND),
            carry_out(0),
            take(INTO | REQUESTS),
        ],
    ),
    (
        "asked",
        PLAIN,
        &[
            connection(1, DISCONNECT, 0),
            connection(1, RESET, 0),
            lie(0, ARRIVED, 1, 56),
            GO,
            take(ARRIVALS),
            connection(1, ACCEPT, 0),
            connection(1, SETTLE, 100),
            lie(0, ARRIVED, 1, 200),
            GO,
            take(ARRIVALS),
            connection(1, REJECT, 0),
        ],
    ),
    (
        "long-data-comes-back",
        PLAIN,
        &[
            connection(0, DISCONNECT, 0),
            connection(0, RESET, 0),
            connection(0, CONNECT, 4),
            connection(0, SETTLE, 2),
            lie(0, ARRIVED, 2 | 8, 0),
            lie(0, ARRIVED, 2 | 12, 0),
            lie(0, ARRIVED, 3 | 12, 9),
            GO,
            take(ARRIVALS),
        ],
    ),
    (
        "all-events-at-every-step",
        PLAIN,
        &[
            connection(0, DISCONNECT, 0),
            connection(0, RESET, 0),
            connection(0, CONNECT, 0),
            lie(4, ESTABLISHED, 0, 0),
            lie(4, REJECTED, 1, 100),
            lie(4, UNREACHABLE, 0, 0),
            lie(3, DISCONNECTED, 0, 0),
            lie(3, REMOVED, 0, 0),
            lie(2, REMOVED, 0, 0),
            GO,
            take(CONNECTIONS),
        ],
    ),
    (
        "the-device-tells",
        PLAIN,
        &[
            tell(4),
            tell(1),
            tell(15),
            tell(14),
            tell(0),
            tell(16),
            tell(0xFF),
            GO,
            tell(8),
            GO,
        ],
    ),
    (
        "refuses",
        PLAIN,
        &[
            Operation::Refuse { count: 3, error: 0 },
            post(OWN, SEND),
            post(OWN, RECEIVE),
            post(OWN, BIND),
            Operation::Refuse { count: 2, error: 2 },
            Operation::Make { kind: 2 },
            Operation::Make { kind: 3 },
            Operation::Refuse { count: 7, error: 1 },
            connection(0, DISCONNECT, 0),
            connection(0, RESET, 0),
        ],
    ),
    (
        "no-room-for-the-failure",
        PLAIN,
        &[
            carry_out(3),
            take(RECEIVES),
            LOW_WATERMARK,
            LOW_WATERMARK,
            LOW_WATERMARK,
            LOW_WATERMARK,
            LOW_WATERMARK,
            LOW_WATERMARK,
            LOW_WATERMARK,
            LOW_WATERMARK,
            LOW_WATERMARK,
            Operation::Answer {
                queue: REQUESTS,
                number: 1,
            },
        ],
    ),
    (
        "refuses-posts-of-two-pieces",
        PLAIN,
        &[
            Operation::Refuse { count: 1, error: 0 },
            in_pieces(OWN, SEND),
            Operation::Refuse { count: 1, error: 0 },
            in_pieces(OWN, WRITE),
            Operation::Refuse { count: 1, error: 0 },
            in_pieces(OWN, READ),
            Operation::Refuse { count: 1, error: 0 },
            in_pieces(OWN, RECEIVE),
            Operation::Refuse { count: 1, error: 0 },
            in_pieces(OWN, SHARED_RECEIVE),
            in_pieces(OWN, SEND),
            in_pieces(OWN, RECEIVE),
            in_pieces(OWN, SHARED_RECEIVE),
            carry_out(0),
            carry_out(1),
            GO,
        ],
    ),
    (
        "refuses-batches",
        PLAIN,
        &[
            Operation::Refuse { count: 1, error: 0 },
            post(OWN, WRITES),
            Operation::Refuse { count: 1, error: 0 },
            post(OWN, RECEIVES_AT_ONCE),
            post(OWN, WRITES),
            post(OWN, RECEIVES_AT_ONCE),
            carry_out(0),
            carry_out(1),
            GO,
        ],
    ),
    (
        "refuses-a-bind-like-the-one-before",
        PLAIN,
        &[
            carry_out(0),
            take(REQUESTS),
            Operation::Refuse { count: 1, error: 0 },
            post(OWN, BIND),
            post(OWN, BIND),
            carry_out(0),
            GO,
        ],
    ),
    ("has-nothing", [BOASTS, 0, 0, 0], &[]),
    ("has-less-than-none", [BOASTS, 5, 6, 0], &[]),
    (
        "one-number-for-all",
        [MISNUMBERS, 0, 0, 9],
        &[carry_out(0), carry_out(3), GO],
    ),
    ("impossible-numbers", [MISNUMBERS, 0, 0, 0xFF], &[GO]),
];

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds/verbs");
    std::fs::create_dir_all(&folder).expect("a folder");
    for (name, setup, operations) in SCENARIOS {
        let mut all = TALK.to_vec();
        all.extend_from_slice(operations);
        all.extend([GO, take(REQUESTS), take(RECEIVES), take(CONNECTIONS)]);
        std::fs::write(folder.join(name), encode(*setup, &all)).expect("a seed");
    }
}
