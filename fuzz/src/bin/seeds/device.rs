//! Seeds of `device`: a device that does one wrong thing.

use dat_fuzz::device::Operation::{self, *};
use dat_fuzz::device::SETUP_SIZE;
use dat_fuzz::script::argument::*;
use dat_fuzz::script::encode;

use super::{Scenario, Seed};

/// Values of `at`: the suspect device, the honest one, and the second connection of each.
const SUSPECT: u8 = 0;
const HONEST: u8 = 1;
const SUSPECT_SHARING: u8 = 2;
const HONEST_OTHER: u8 = 3;
/// Kinds of changes of a connection.
const DISCONNECT: u8 = 0;
const RESET: u8 = 1;
const CONNECT: u8 = 2;
/// Layouts, and quirks of a paravirtual device.
const MLX5: [u8; SETUP_SIZE] = [1, 0, 0, 0];
const PVRDMA: [u8; SETUP_SIZE] = [1, 1, 0, 0];
const KEEPING: [u8; SETUP_SIZE] = [1, 1 | 2, 0, 0];
const REFUSING: [u8; SETUP_SIZE] = [1, 1 | 1 << 2, 0, 0];
const SAME_NUMBERS: [u8; SETUP_SIZE] = [1, 1 | 3 << 2, 0, 0x12];
/// Reports queues without a limit.
const FAKE_CAPABILITY: [u8; SETUP_SIZE] = [1, 1 | 4 << 2, 20 << 2 | 2, 1];

const GO: Operation = Advance { steps: 255 };

short_forms! {
    post(at, kind) = Post { at, kind, offset: 4, length: 2, flags: 0 };
    take(at, dispatcher) = Take { at, dispatcher };
    wait(at, dispatcher, threshold) = Wait { at, dispatcher, threshold };
    connection(at, how) = Connection { at, how };
    corrupt(area, low, how, value) = Corrupt { area, low, high: 0, how, value };
    bad_cqe(kind, bit) = BadCqe { kind, bit };
    report(kind, number) = FalseEvent { kind, number };
    falsify(word, bit) = FalseAnswer { word, bit };
    make(kind) = Make { at: SUSPECT, kind };
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
/// The dequeues at the end.
const ENDS: &[Operation] = &[take(SUSPECT, RECEIVES), take(SUSPECT, REQUESTS)];

/// Scenarios of both layouts.
fn scenarios() -> Vec<Scenario<(), Operation>> {
    scenarios! {
        "honest" => GO;
        "connected-anew" => GO, connection(SUSPECT, DISCONNECT), GO, connection(SUSPECT, RESET),
            connection(HONEST, RESET), connection(SUSPECT, CONNECT), post(HONEST, RECEIVE),
            post(SUSPECT, SEND), GO;
        "waits" => GO, wait(SUSPECT, REQUESTS, 1), wait(SUSPECT, REQUESTS, NOW | 1),
            wait(SUSPECT, REQUESTS, FUTURE | 1), wait(HONEST, RECEIVES, FUTURE | 1),
            take(INTO | SUSPECT, REQUESTS), take(INTO | HONEST, RECEIVES),
            wait(SUSPECT, RECEIVES, 1), wait(SUSPECT, RECEIVES, NOW | 1), post(SUSPECT, BIND), GO,
            wait(SUSPECT, REQUESTS, 1), post(SUSPECT, BIND), GO, wait(SUSPECT, REQUESTS, NOW | 1),
            wait(SUSPECT, REQUESTS, 1), post(SUSPECT, WRITE), GO, take(INTO | SUSPECT, REQUESTS);
        "index" => bad_cqe(0, 0), GO;
        "name" => bad_cqe(1, 0), GO;
        "length" => bad_cqe(4, 0), GO;
        "phase" => bad_cqe(6, 0), GO;
        "bit" => bad_cqe(8, 50), GO;
        "noise" => bad_cqe(9, 7), GO;
        "completions-before-there-are-any" => corrupt(0, 15, 1, 0), corrupt(2, 15, 1, 0),
            take(SUSPECT, RECEIVES), take(SUSPECT, REQUESTS), GO;
        "records" => corrupt(1, 0, 2, 0), corrupt(6, 0, 3, 9), corrupt(6, 1, 3, 9), GO;
        "indices" => corrupt(2, 2, 3, 1), corrupt(6, 2, 3, 1), take(SUSPECT, REQUESTS), GO;
        "reports-of-nothing" => wait(SUSPECT, REQUESTS, 1), report(0, 1), report(1, 5),
            report(4, 0xFF), report(15, 3), report(21, 0), GO;
        "reported-failure" => report(5, 0), report(8, 0), GO;
        "answers" => falsify(0, 0), make(0), make(2), make(3), GO;
        "objects-with-impossible-names" => falsify(4, 32), make(2), falsify(4, 32), make(3),
            falsify(4, 1), make(4), GO;
        "waited-for-once" => report(21, 0), make(2);
        "unplugged" => Unplug, make(3), GO, take(SUSPECT, REQUESTS);
    }
}

/// Scenarios whose device has quirks from the start.
fn quirks() -> Vec<Scenario<[u8; SETUP_SIZE], Operation>> {
    scenarios! {
        "keeps-what-is-flushed" in KEEPING => GO;
        "does-not-fail" in REFUSING => GO;
        "numbers-that-come-again" in SAME_NUMBERS => GO;
        "says-that-it-has-more-than-can-be" in FAKE_CAPABILITY => GO;
    }
}

pub(crate) fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut add = |name, setup: [u8; SETUP_SIZE], between: &[Operation]| {
        seeds.push((name, encode(&setup, &[TALK, between, ENDS].concat())));
    };
    for (name, (), between) in scenarios() {
        add(format!("{name}-mlx5"), MLX5, &between);
        add(format!("{name}-pvrdma"), PVRDMA, &between);
    }
    for (name, setup, between) in quirks() {
        add(name.into(), setup, &between);
    }
    seeds
}
