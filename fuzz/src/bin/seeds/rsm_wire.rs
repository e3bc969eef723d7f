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
const REST: Operation = Rest { time: 0 };

short_forms! {
    say(kind, word, other, half) = Say { kind, word, other, half, bent: 0 };
    noise(first, second, third, fourth, fifth) = Noise { first, second, third, fourth, fifth };
    victim(call) = Victim { call, segment: 0 };
    write(offset) = Access { write: 1, key: 0, offset, length: 0, place: 5 };
    read(offset) = Access { write: 0, key: 0, offset, length: 0, place: 5 };
}

fn scenarios() -> Vec<Scenario<[u8; 1], Operation>> {
    scenarios! {
        "granted-and-used" => HELLO, say(CONNECT, 0, 0, OPEN), write(0), read(1),
            say(SIGNAL, 0, 0, 0), say(DISCONNECT, 0, 0, 0);
        "beyond-the-end" => HELLO, say(CONNECT, 0, 0, OPEN), write(3), HELLO;
        "write-with-a-key-for-reading" => HELLO, say(CONNECT, 0, 0, READABLE), read(0), write(0);
        "not-in-the-list" => HELLO, say(CONNECT, 0, 0, SECRET), read(0);
        "revoked-and-not-acknowledged" => HELLO, say(CONNECT, 0, 0, OPEN), victim(UNPUBLISH),
            write(0), victim(PUBLISH), HELLO, say(CONNECT, 0, 0, OPEN);
        "revoked-and-acknowledged" => HELLO, say(CONNECT, 0, 0, OPEN), victim(POST_ALL),
            victim(UNPUBLISH), say(ACKNOWLEDGE, 0, 0, 0), say(ACKNOWLEDGE, 0, 0, 0),
            Rest { time: 200 };
        "resumed-without-right" => HELLO, say(CONNECT, 0, 0x80, OPEN), say(CONNECT, 1, 0x81, OPEN);
        "guessed-words" => HELLO, say(CONNECT, 0, 0, OPEN), say(SIGNAL, 0x80, 0, 0),
            say(DISCONNECT, 0xC0, 0, 0), say(SIGNAL_IMPORTERS, 1, 0, 1), say(REVOKE, 0, 1, 0),
            say(REBIND, 0, 1, 2), say(REFUSE, 0, 0, 3);
        "the-victim-imports" => HELLO, victim(IMPORT), victim(PUT), victim(GET), victim(POST),
            victim(LEAVE);
        "the-victim-is-refused" => HELLO, Victim { call: IMPORT, segment: 0x40 | 6 };
        // A segment without an end, at an address outside the intruder's memory.
        "the-victim-is-lied-to" => Victim { call: IMPORT, segment: 2 << 2 | 2 }, victim(PUT),
            victim(GET), say(REVOKE, 0, 1, 0), victim(PUT), say(REBIND, 1, 1, 0), victim(POST);
        "other-greetings" => Greet { variant: 1 }, Greet { variant: 2 }, Greet { variant: 9 },
            Greet { variant: 6 }, say(CREDIT, 0, 0, 3), Greet { variant: 5 };
        "noise" => HELLO, noise(0, 0, 0, 0, 0), HELLO, noise(1, 2, 3, 4, 5), HELLO,
            Say { kind: CONNECT, word: 0, other: 0, half: OPEN, bent: 64 }, REST;
        "more-links-than-there-is-room-for" => HELLO, HELLO, HELLO, HELLO, HELLO, HELLO,
            victim(IMPORT);
        "who-does-not-listen" => Greet { variant: 4 }, say(CONNECT, 0, 0, OPEN),
            say(CONNECT, 1, 0, OPEN), say(CONNECT, 2, 0, OPEN), victim(UNPUBLISH);
    }
}

pub(crate) fn seeds() -> Vec<Seed> {
    let seed = |(name, setup, operations): Scenario<[u8; 1], _>| {
        (String::from(name), encode(&setup, &operations))
    };
    scenarios().into_iter().map(seed).collect()
}
