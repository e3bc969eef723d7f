//! Seeds of `rsm_wire`: a peer's messages that reach deep states.

use dat_fuzz::rsm_wire::Operation::{self, *};
use dat_fuzz::script::encode;

use super::{Scenario, Seed};

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

const HELLO: Operation = Greet { variant: 0 };
const RUN_TO_IDLE: Operation = RunToIdle { time: 0 };

short_forms! {
    send(kind, word, other, half) = SendMessage { kind, word, other, half, bent: 0 };
    noise(first, second, third, fourth, fifth) = Noise { first, second, third, fourth, fifth };
    victim(call) = Victim { call, segment: 0 };
    write(offset) = Access { write: 1, key: 0, offset, length: 0, target: 5 };
    read(offset) = Access { write: 0, key: 0, offset, length: 0, target: 5 };
}

fn scenarios() -> Vec<Scenario<[u8; 1], Operation>> {
    scenarios! {
        "granted-and-used" => HELLO, send(CONNECT, 0, 0, OPEN), write(0), read(1),
            send(SIGNAL, 0, 0, 0), send(DISCONNECT, 0, 0, 0);
        "beyond-the-end" => HELLO, send(CONNECT, 0, 0, OPEN), write(3), HELLO;
        "write-with-a-key-for-reading" => HELLO, send(CONNECT, 0, 0, READABLE), read(0), write(0);
        "not-in-the-list" => HELLO, send(CONNECT, 0, 0, SECRET), read(0);
        "revoked-and-not-acknowledged" => HELLO, send(CONNECT, 0, 0, OPEN), victim(UNPUBLISH),
            write(0), victim(PUBLISH), HELLO, send(CONNECT, 0, 0, OPEN);
        "revoked-and-acknowledged" => HELLO, send(CONNECT, 0, 0, OPEN), victim(POST_ALL),
            victim(UNPUBLISH), send(ACKNOWLEDGE, 0, 0, 0), send(ACKNOWLEDGE, 0, 0, 0),
            RunToIdle { time: 200 };
        "resumed-without-right" => HELLO, send(CONNECT, 0, 0x80, OPEN),
            send(CONNECT, 1, 0x81, OPEN);
        "guessed-words" => HELLO, send(CONNECT, 0, 0, OPEN), send(SIGNAL, 0x80, 0, 0),
            send(DISCONNECT, 0xC0, 0, 0), send(SIGNAL_IMPORTERS, 1, 0, 1), send(REVOKE, 0, 1, 0),
            send(REBIND, 0, 1, 2), send(REFUSE, 0, 0, 3);
        "the-victim-imports" => HELLO, victim(IMPORT), victim(PUT), victim(GET), victim(POST),
            victim(LEAVE);
        "the-victim-is-refused" => HELLO, Victim { call: IMPORT, segment: 0x40 | 6 };
        // A segment without an end, at an address outside the intruder's memory.
        "the-victim-is-lied-to" => Victim { call: IMPORT, segment: 2 << 2 | 2 }, victim(PUT),
            victim(GET), send(REVOKE, 0, 1, 0), victim(PUT), send(REBIND, 1, 1, 0), victim(POST);
        "other-greetings" => Greet { variant: 1 }, Greet { variant: 2 }, Greet { variant: 9 },
            Greet { variant: 6 }, send(CREDIT, 0, 0, 3), Greet { variant: 5 };
        "noise" => HELLO, noise(0, 0, 0, 0, 0), HELLO, noise(1, 2, 3, 4, 5), HELLO,
            SendMessage { kind: CONNECT, word: 0, other: 0, half: OPEN, bent: 64 }, RUN_TO_IDLE;
        "more-links-than-there-is-room-for" => HELLO, HELLO, HELLO, HELLO, HELLO, HELLO,
            victim(IMPORT);
        "who-does-not-listen" => Greet { variant: 4 }, send(CONNECT, 0, 0, OPEN),
            send(CONNECT, 1, 0, OPEN), send(CONNECT, 2, 0, OPEN), victim(UNPUBLISH);
    }
}

pub(crate) fn seeds() -> Vec<Seed> {
    let seed = |(name, setup, operations): Scenario<[u8; 1], _>| {
        (String::from(name), encode(&setup, &operations))
    };
    scenarios().into_iter().map(seed).collect()
}
