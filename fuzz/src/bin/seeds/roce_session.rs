//! Seeds of `roce_session`: requests of each kind over a network with each fault, and connections.

use dat_fuzz::roce_session::OPERATION;

use super::Seed;

type Operation = [u8; OPERATION];

/// The choices of an input: a requester and a responder, or two sides of a connection.
const EXCHANGE: u8 = 0;
const HANDSHAKE: u8 = 1;

const fn operation(kind: u8, a: u8, b: u8, wide: u16, more: [u8; 3]) -> Operation {
    let [high, low] = wide.to_be_bytes();
    let [c, d, e] = more;
    [kind, a, b, high, low, c, d, e]
}

const fn post(kind: u8, length: u16, flags: u8) -> Operation {
    operation(0, kind, 10, length, [flags, 0, 0])
}

const fn receive(length: u16) -> Operation {
    operation(2, 0, 0, length, [0; 3])
}

const fn simple(kind: u8, direction: u8) -> Operation {
    operation(kind, direction, 0, 0, [0; 3])
}

const SEND: u8 = 0;
const WRITE: u8 = 1;
const READ: u8 = 2;
const ADD: u8 = 3;
const LOCAL: u8 = 4;

const REQUESTS: Operation = simple(3, 0);
const RESPONSES: Operation = simple(4, 0);
const TO_RESPONDER: Operation = simple(5, 0);
const TO_REQUESTER: Operation = simple(5, 1);
const LOSE_REQUEST: Operation = simple(7, 0);
const LOSE_RESPONSE: Operation = simple(7, 1);
const REPEAT_REQUEST: Operation = simple(8, 0);
const EXPIRE: Operation = simple(10, 0);
const END_REQUESTER: Operation = simple(13, 0);
const END_RESPONDER: Operation = simple(13, 1);

/// Returns the seeds.
pub(super) fn seeds() -> Vec<Seed> {
    let all = vec![
        receive(700),
        post(SEND, 600, 0),
        post(WRITE, 700, 0),
        post(READ, 800, 0),
        post(ADD, 5, 0),
        post(LOCAL, 0, 1),
        post(WRITE, 0, 1),
        REQUESTS,
    ];
    let with = |more: &[Operation]| [&all[..], more].concat();
    let exchanges: [(&str, Vec<Operation>); 10] = [
        ("all-kinds", all.clone()),
        ("lost-request", with(&[LOSE_REQUEST])),
        (
            "repeated-request",
            with(&[REPEAT_REQUEST, TO_RESPONDER, TO_RESPONDER, RESPONSES]),
        ),
        (
            "lost-response",
            with(&[TO_RESPONDER, TO_RESPONDER, RESPONSES, LOSE_RESPONSE, EXPIRE]),
        ),
        (
            "time-outs",
            with(&[
                LOSE_REQUEST,
                EXPIRE,
                REQUESTS,
                EXPIRE,
                REQUESTS,
                EXPIRE,
                EXPIRE,
            ]),
        ),
        (
            "no-receive",
            vec![
                post(SEND, 10, 4),
                REQUESTS,
                TO_RESPONDER,
                RESPONSES,
                TO_REQUESTER,
                EXPIRE,
            ],
        ),
        ("short-receive", vec![receive(5), post(SEND, 10, 0)]),
        ("end-of-the-requester", with(&[TO_RESPONDER, END_REQUESTER])),
        ("end-of-the-responder", with(&[TO_RESPONDER, END_RESPONDER])),
        (
            "foreign-packets",
            with(&[
                operation(11, 0, 0x04, 100, [0, 3, 4]),
                operation(11, 0, 0x0A, 100, [0, 3, 4]),
                operation(11, 1, 0x11, 0, [1, 0, 1]),
                operation(11, 1, 0x10, 64, [2, 0, 1]),
            ]),
        ),
    ];
    const ACCEPT: Operation = simple(0, 0);
    const REJECT: Operation = simple(1, 0);
    const ACTIVE: Operation = simple(2, 0);
    const PASSIVE: Operation = simple(2, 1);
    const TO_ACTIVE: Operation = simple(4, 0);
    const TO_PASSIVE: Operation = simple(4, 1);
    const DISCONNECT: Operation = simple(8, 0);
    const EXPIRE_PASSIVE: Operation = simple(10, 1);
    let handshakes: [(&str, u8, Vec<Operation>); 6] = [
        (
            "accepted",
            0,
            vec![ACCEPT, PASSIVE, TO_ACTIVE, ACTIVE, TO_PASSIVE],
        ),
        ("rejected", 0, vec![REJECT, PASSIVE, TO_ACTIVE]),
        (
            "accepted-too-late",
            0,
            vec![
                EXPIRE,
                EXPIRE,
                EXPIRE,
                EXPIRE,
                ACCEPT,
                EXPIRE_PASSIVE,
                PASSIVE,
                TO_ACTIVE,
            ],
        ),
        (
            "disconnected",
            1,
            vec![DISCONNECT, ACTIVE, TO_PASSIVE, PASSIVE, TO_ACTIVE],
        ),
        // A request that the peer has forgotten while the consumer decides.
        (
            "forgotten-request",
            0,
            vec![
                ACTIVE,
                TO_PASSIVE,
                simple(8, 1),
                ACCEPT,
                PASSIVE,
                EXPIRE,
                ACTIVE,
                TO_PASSIVE,
            ],
        ),
        (
            "foreign-messages",
            1,
            vec![
                operation(11, 0, 1, 1, [0, 0, 0]),
                operation(11, 0, 4, 3, [0, 0, 0]),
                operation(11, 1, 4, 0, [0, 0, 0]),
                TO_ACTIVE,
                TO_ACTIVE,
                TO_PASSIVE,
            ],
        ),
    ];
    let short = [post(WRITE, 8, 0); 4];
    let gathered = [
        &[post(WRITE, 8, 0), REQUESTS][..],
        &short,
        &[REQUESTS],
        &short,
        &[REQUESTS, TO_RESPONDER, RESPONSES, TO_REQUESTER, REQUESTS],
    ];
    let exchanges = exchanges
        .into_iter()
        .map(|(name, operations)| (name, EXCHANGE, 8, operations))
        .chain([("gathered", EXCHANGE, 0x28, gathered.concat())]);
    let handshakes = handshakes
        .into_iter()
        .map(|(name, setup, operations)| (name, HANDSHAKE, setup, operations));
    exchanges
        .chain(handshakes)
        .map(|(name, choice, setup, operations)| {
            let input = [&[choice, setup], operations.as_flattened()].concat();
            (name.to_owned(), input)
        })
        .collect()
}
