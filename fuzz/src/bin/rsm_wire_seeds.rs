//! Writes the seeds of the target `rsm_wire`: scenarios that reach deep states.

use std::path::Path;

use dat_fuzz::rsm_wire::{Operation, encode};

/// Types of messages, in the target's order.
const CREDIT: u8 = 0;
const CONNECT: u8 = 1;
const REFUSE: u8 = 3;
const DISCONNECT: u8 = 4;
const REVOKE: u8 = 5;
const REBIND: u8 = 6;
const ACKNOWLEDGE: u8 = 7;
const SIGNAL: u8 = 8;
const SIGNAL_IMPORTERS: u8 = 9;
/// Calls of the victim.
const IMPORT: u8 = 0;
const UNPUBLISH: u8 = 1;
const PUBLISH: u8 = 2;
const PUT: u8 = 3;
const GET: u8 = 4;
const POST: u8 = 5;
const POST_ALL: u8 = 6;
const LEAVE: u8 = 7;
/// Values of `half` in a connect request: the open, the readable and the secret page.
const OPEN: u8 = 2 << 2;
const READABLE: u8 = 1;
const SECRET: u8 = 2;

const HELLO: Operation = Operation::Greet { variant: 0 };
const REST: Operation = Operation::Rest { time: 0 };

const fn say(kind: u8, word: u8, other: u8, half: u8) -> Operation {
    Operation::Say {
        kind,
        word,
        other,
        half,
        bent: 0,
    }
}

const fn victim(call: u8) -> Operation {
    Operation::Victim { call, segment: 0 }
}

const fn access(write: bool, offset: u8) -> Operation {
    Operation::Access {
        write: write as u8,
        key: 0,
        offset,
        length: 0,
        place: 5,
    }
}

/// The scenarios: a name, and the operations.
const SCENARIOS: &[(&str, &[Operation])] = &[
    (
        "granted-and-used",
        &[
            HELLO,
            say(CONNECT, 0, 0, OPEN),
            access(true, 0),
            access(false, 1),
            say(SIGNAL, 0, 0, 0),
            say(DISCONNECT, 0, 0, 0),
        ],
    ),
    (
        "beyond-the-end",
        &[HELLO, say(CONNECT, 0, 0, OPEN), access(true, 3), HELLO],
    ),
    (
        "write-with-a-key-for-reading",
        &[
            HELLO,
            say(CONNECT, 0, 0, READABLE),
            access(false, 0),
            access(true, 0),
        ],
    ),
    (
        "not-in-the-list",
        &[HELLO, say(CONNECT, 0, 0, SECRET), access(false, 0)],
    ),
    (
        "revoked-and-not-acknowledged",
        &[
            HELLO,
            say(CONNECT, 0, 0, OPEN),
            victim(UNPUBLISH),
            access(true, 0),
            victim(PUBLISH),
            HELLO,
            say(CONNECT, 0, 0, OPEN),
        ],
    ),
    (
        "revoked-and-acknowledged",
        &[
            HELLO,
            say(CONNECT, 0, 0, OPEN),
            victim(POST_ALL),
            victim(UNPUBLISH),
            say(ACKNOWLEDGE, 0, 0, 0),
            say(ACKNOWLEDGE, 0, 0, 0),
            Operation::Rest { time: 200 },
        ],
    ),
    (
        "resumed-without-right",
        &[
            HELLO,
            say(CONNECT, 0, 0x80, OPEN),
            say(CONNECT, 1, 0x81, OPEN),
        ],
    ),
    (
        "guessed-words",
        &[
            HELLO,
            say(CONNECT, 0, 0, OPEN),
            say(SIGNAL, 0x80, 0, 0),
            say(DISCONNECT, 0xC0, 0, 0),
            say(SIGNAL_IMPORTERS, 1, 0, 1),
            say(REVOKE, 0, 1, 0),
            say(REBIND, 0, 1, 2),
            say(REFUSE, 0, 0, 3),
        ],
    ),
    (
        "the-victim-imports",
        &[
            HELLO,
            victim(IMPORT),
            victim(PUT),
            victim(GET),
            victim(POST),
            victim(LEAVE),
        ],
    ),
    (
        "the-victim-is-refused",
        &[
            HELLO,
            Operation::Victim {
                call: IMPORT,
                segment: 0x40 | 6,
            },
        ],
    ),
    (
        "the-victim-is-lied-to",
        &[
            // A segment without an end, at an address outside the intruder's memory.
            Operation::Victim {
                call: IMPORT,
                segment: 2 << 2 | 2,
            },
            victim(PUT),
            victim(GET),
            say(REVOKE, 0, 1, 0),
            victim(PUT),
            say(REBIND, 1, 1, 0),
            victim(POST),
        ],
    ),
    (
        "other-greetings",
        &[
            Operation::Greet { variant: 1 },
            Operation::Greet { variant: 2 },
            Operation::Greet { variant: 9 },
            Operation::Greet { variant: 6 },
            say(CREDIT, 0, 0, 3),
            Operation::Greet { variant: 5 },
        ],
    ),
    (
        "noise",
        &[
            HELLO,
            Operation::Noise { bytes: [0; 5] },
            HELLO,
            Operation::Noise {
                bytes: [1, 2, 3, 4, 5],
            },
            HELLO,
            Operation::Say {
                kind: CONNECT,
                word: 0,
                other: 0,
                half: OPEN,
                bent: 64,
            },
            REST,
        ],
    ),
    (
        "more-links-than-there-is-room-for",
        &[HELLO, HELLO, HELLO, HELLO, HELLO, HELLO, victim(IMPORT)],
    ),
    (
        "who-does-not-listen",
        &[
            Operation::Greet { variant: 4 },
            say(CONNECT, 0, 0, OPEN),
            say(CONNECT, 1, 0, OPEN),
            say(CONNECT, 2, 0, OPEN),
            victim(UNPUBLISH),
        ],
    ),
];

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds/rsm_wire");
    std::fs::create_dir_all(&folder)?;
    for (name, operations) in SCENARIOS {
        std::fs::write(folder.join(name), encode(operations))?;
    }
    Ok(())
}
