//! Seeds of `verbs`: a device or a connection manager that does one wrong thing.

use dat_fuzz::script::argument::*;
use dat_fuzz::script::encode;
use dat_fuzz::verbs::Operation::{self, *};
use dat_fuzz::verbs::{FALSE_ATTRIBUTE, ODD_NUMBERS, SECOND_WINDOWS, SETUP_SIZE};

use super::{Scenario, Seed};

/// Endpoints: with its own receives, and with the shared receive queue.
const OWN: u8 = 0;
const SHARING: u8 = 2;
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

const GO: Operation = Advance { rounds: 7 };
/// Sets a low watermark above the number of shared buffers, which is reported at once.
const LOW_WATERMARK: Operation = Make { kind: 5 };
/// Refuses the next call.
const REFUSE: Operation = Refuse { count: 1, error: 0 };

short_forms! {
    post(at, kind) = Post { at, kind, offset: 4, length: 4, flags: 0 };
    in_pieces(at, kind) = Post { at, kind, offset: 4, length: 4, flags: 6 << 5 };
    take(from) = Take { from };
    wait(from, threshold) = Wait { from, threshold };
    carry_out(pair) = CarryOut { pair, count: 8, length: 2 };
    connection(pair, how, which) = Connection { pair, how, which };
    forge(queue, which, how, status, opcode) =
        Forge { queue, which, how, status, opcode, length: 1, pair: 0 };
    lie(which, kind, data, length) =
        FalseCmEvent { which, kind, status: 0, data, length, depths: 0x44, peer: 3 };
    tell(kind) = FalseEvent { kind, which: 0 };
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
/// Progress and dequeues at the end.
const ENDS: &[Operation] = &[GO, take(REQUESTS), take(RECEIVES), take(CONNECTIONS)];

fn scenarios() -> Vec<Scenario<[u8; SETUP_SIZE], Operation>> {
    scenarios! {
        "honest" => carry_out(0), carry_out(1), carry_out(2), carry_out(3), GO;
        "flushed" => connection(0, DISCONNECT, 0), connection(1, DISCONNECT, 0), GO;
        "windows-of-type-2" in [SECOND_WINDOWS, 0, 0, 0] => carry_out(0), post(OWN, BIND),
            carry_out(0);
        "connected-anew" => connection(0, DISCONNECT, 0), take(REQUESTS), take(RECEIVES),
            take(CONNECTIONS), connection(0, RESET, 0), connection(0, CONNECT, 4),
            connection(0, SETTLE, 100), post(OWN, SEND), carry_out(0);
        "twice" => forge(REQUESTS, 0, 0, 0, 0), forge(REQUESTS, 0, 0, 0, 0);
        "with-a-number" => forge(RECEIVES, FIRST_RECEIVE, 0, 0, NUMBERED),
            forge(RECEIVES, FIRST_RECEIVE, 0, 10, NUMBERED), GO;
        "of-another-kind" => forge(REQUESTS, 0, 0, 0, 5), forge(RECEIVES, 0, 0, 0, 0);
        "a-bit" => forge(REQUESTS, 1, 0x80 | 3, 0, 0), forge(REQUESTS, 1, 0x80 | 40, 0, 0);
        "failed" => forge(REQUESTS, 1, 0, 10, 0), GO, take(CONNECTIONS);
        "nonsense" => Answer { queue: 1, number: 1 }, take(REQUESTS), GO;
        "negative" => Answer { queue: 0, number: 0 }, take(RECEIVES), GO;
        "keeps" => Keep, connection(0, DISCONNECT, 0), connection(1, DISCONNECT, 0);
        "notifies-of-nothing" => wait(REQUESTS, 1), Notify { queue: 1 }, GO, wait(RECEIVES, 3),
            carry_out(1), GO;
        "waits" => carry_out(0), carry_out(1), wait(REQUESTS, 1), wait(REQUESTS, NOW | 1),
            wait(REQUESTS, FUTURE | 1), take(INTO | REQUESTS), wait(REQUESTS, 1),
            wait(REQUESTS, NOW | 1), wait(REQUESTS, FUTURE | 1), wait(RECEIVES, 1),
            wait(RECEIVES, NOW | 1), take(INTO | RECEIVES), take(INTO | RECEIVES), carry_out(2),
            wait(REQUESTS, NOW | 1), take(INTO | REQUESTS), carry_out(3),
            wait(REQUESTS, FUTURE | 2), GO, wait(REQUESTS, FUTURE | 1), take(INTO | REQUESTS);
        "waits-for-bound-windows" => carry_out(0), take(REQUESTS), post(OWN, BIND), carry_out(0),
            wait(REQUESTS, 1), wait(REQUESTS, 1), post(OWN, BIND), carry_out(0),
            wait(REQUESTS, NOW | 1), wait(REQUESTS, 1), post(OWN, BIND), carry_out(0),
            take(INTO | REQUESTS);
        "asked" => connection(1, DISCONNECT, 0), connection(1, RESET, 0), lie(0, ARRIVED, 1, 56),
            GO, take(ARRIVALS), connection(1, ACCEPT, 0), connection(1, SETTLE, 100),
            lie(0, ARRIVED, 1, 200), GO, take(ARRIVALS), connection(1, REJECT, 0);
        "long-data-comes-back" => connection(0, DISCONNECT, 0), connection(0, RESET, 0),
            connection(0, CONNECT, 4), connection(0, SETTLE, 2), lie(0, ARRIVED, 2 | 8, 0),
            lie(0, ARRIVED, 2 | 12, 0), lie(0, ARRIVED, 3 | 12, 9), GO, take(ARRIVALS);
        "all-events-at-every-step" => connection(0, DISCONNECT, 0), connection(0, RESET, 0),
            connection(0, CONNECT, 0), lie(4, ESTABLISHED, 0, 0), lie(4, REJECTED, 1, 100),
            lie(4, UNREACHABLE, 0, 0), lie(3, DISCONNECTED, 0, 0), lie(3, REMOVED, 0, 0),
            lie(2, REMOVED, 0, 0), GO, take(CONNECTIONS);
        "the-device-tells" => tell(4), tell(1), tell(15), tell(14), tell(0), tell(16), tell(0xFF),
            GO, tell(8), GO;
        "refuses" => Refuse { count: 3, error: 0 }, post(OWN, SEND), post(OWN, RECEIVE),
            post(OWN, BIND), Refuse { count: 2, error: 2 }, Make { kind: 2 }, Make { kind: 3 },
            Refuse { count: 7, error: 1 }, connection(0, DISCONNECT, 0), connection(0, RESET, 0);
        "no-room-for-the-failure" => carry_out(3), take(RECEIVES), LOW_WATERMARK, LOW_WATERMARK,
            LOW_WATERMARK, LOW_WATERMARK, LOW_WATERMARK, LOW_WATERMARK, LOW_WATERMARK,
            LOW_WATERMARK, LOW_WATERMARK, Answer { queue: REQUESTS, number: 1 };
        "refuses-posts-of-two-pieces" => REFUSE, in_pieces(OWN, SEND), REFUSE,
            in_pieces(OWN, WRITE), REFUSE, in_pieces(OWN, READ), REFUSE, in_pieces(OWN, RECEIVE),
            REFUSE, in_pieces(OWN, SHARED_RECEIVE), in_pieces(OWN, SEND), in_pieces(OWN, RECEIVE),
            in_pieces(OWN, SHARED_RECEIVE), carry_out(0), carry_out(1), GO;
        "refuses-batches" => REFUSE, post(OWN, WRITES), REFUSE, post(OWN, RECEIVES_AT_ONCE),
            post(OWN, WRITES), post(OWN, RECEIVES_AT_ONCE), carry_out(0), carry_out(1), GO;
        "refuses-a-bind-like-the-one-before" => carry_out(0), take(REQUESTS), REFUSE,
            post(OWN, BIND), post(OWN, BIND), carry_out(0), GO;
        "has-nothing" in [FALSE_ATTRIBUTE, 0, 0, 0] =>;
        "has-less-than-none" in [FALSE_ATTRIBUTE, 5, 6, 0] =>;
        "one-number-for-all" in [ODD_NUMBERS, 0, 0, 9] => carry_out(0), carry_out(3), GO;
        "impossible-numbers" in [ODD_NUMBERS, 0, 0, 0xFF] => GO;
    }
}

pub(crate) fn seeds() -> Vec<Seed> {
    let seed = |(name, setup, between): Scenario<[u8; SETUP_SIZE], _>| {
        (
            String::from(name),
            encode(&setup, &[TALK, &between, ENDS].concat()),
        )
    };
    scenarios().into_iter().map(seed).collect()
}
