//! Seeds of `cm_wire`: correct messages of a peer, and one wrong one.

use dat_fuzz::cm_wire::Operation::{self, *};
use dat_fuzz::script::argument::*;
use dat_fuzz::script::encode;

use super::{Scenario, Seed};

/// Kinds of messages, in the target's order.
const REQUEST: u8 = 0;
const ANSWERED: u8 = 1;
const ACCEPTED: u8 = 2;
const REJECTED: u8 = 3;
const REFUSED: u8 = 4;
const READY: u8 = 5;
const WITHDRAWN: u8 = 6;
const ENDED: u8 = 7;
const BROKEN: u8 = 8;
const SLOTS: u8 = 9;
/// The slots that a message returns, in the upper bits of `kind`.
const NONE: u8 = 3 << 5;
const ONE: u8 = 4 << 5;
const TOO_MANY: u8 = 6 << 5;
const COUNTLESS: u8 = 7 << 5;
/// Values of `to`: the victim's name, the newest name (0 at first), and false names.
const ITS_NAME: u8 = 1;
const NOBODY: u8 = 0;
const OTHER_SLOT: u8 = 4 << 5 | ITS_NAME;
const OTHER_GENERATION: u8 = 5 << 5 | ITS_NAME;
const EARLIER_GENERATION: u8 = 6 << 5 | ITS_NAME;
/// The qualifier and address of a message, in the upper bits of `from`.
const SECOND_SERVICE: u8 = 1 << 3;
const NO_SERVICE: u8 = 2 << 3;
const AS_VICTIM: u8 = 6 << 5;
const ELSEWHERE: u8 = 7 << 5;
/// Values of `pair`: the channel's, the highest number, one too high, and the victim's.
const CHANNEL: u8 = 8;
const LAST: u8 = 10;
const BEHIND_LAST: u8 = 11;
const THE_VICTIMS: u8 = 13;
/// Kinds of answers to requests.
const REJECT: u8 = 0;
const ACCEPT: u8 = 1;
/// Addresses for the intruder's reads and writes.
const OPEN: u8 = 0;
const SECRET: u8 = 1;
const CHANNEL_MEMORY: u8 = 2;
/// The channel's queue pair, as a value of `pair` in a transfer.
const ON_CHANNEL: u8 = 4;

const GO: Operation = Advance { steps: 100 };
/// Advances the others while the victim sleeps.
const ALONE: Operation = Advance { steps: 0xE0 };
const JOIN: Operation = Join { pair: 0, to: 0 };
const REQUESTED: Operation = send_of(REQUEST, 0, NOBODY, 0);

short_forms! {
    send(kind, from, to) = SendMessage { kind, from, to, pair: 0, data: 0 };
    send_of(kind, from, to, pair) = SendMessage { kind, from, to, pair, data: 9 };
    alter(how, offset, value) = Alter { how, offset, value };
    connect(ep) = Connect { ep, data: 5, timeout: 0 };
    answer(how, ep) = Answer { which: 0, how, ep, data: 6 };
    disconnect(ep) = Disconnect { ep, how: 0 };
    reset(ep) = Reset { ep };
    post(ep, kind) = Post { ep, kind, offset: 64, length: 8, flags: 0 };
    transfer(pair, kind, target, key) = Transfer { pair, kind, target, key, length: 8 };
    take(dispatcher) = Take { dispatcher };
}

fn scenarios() -> Vec<Scenario<(), Operation>> {
    scenarios! {
        "silence" => connect(0), GO, AdvanceTime { seconds: 15 }, disconnect(0);
        "connects" => post(0, RECEIVE), connect(0), GO, send(ANSWERED, 1, ITS_NAME), GO,
            send_of(ACCEPTED, 1, ITS_NAME, 0), JOIN, GO, transfer(0, SEND, OPEN, 0), post(0, SEND),
            GO, take(0), take(1), send(ENDED, 1, 3), GO, take(2), reset(0), Exchange;
        "accepts" => REQUESTED, GO, take(3), answer(ACCEPT, 1), GO, JOIN, send(READY, 0, ITS_NAME),
            GO, post(1, RECEIVE), transfer(0, SEND, OPEN, 0), GO, Disconnect { ep: 1, how: 1 }, GO,
            Reconnect;
        "rejects-and-is-rejected" => REQUESTED, GO, answer(REJECT, 0), connect(0), GO,
            send_of(REJECTED, 0, ITS_NAME, 0), GO, take(2), reset(0), connect(0), GO,
            send(REFUSED, 0, ITS_NAME), GO;
        "other-names" => connect(0), GO, send(ACCEPTED, 1, OTHER_SLOT),
            send(ACCEPTED, 1, OTHER_GENERATION), send(ACCEPTED, 1, EARLIER_GENERATION),
            send(REJECTED, 1, NOBODY), GO, send(ACCEPTED, 1, ITS_NAME), GO, send(ACCEPTED, 1, 3),
            send(ENDED, 1, 3 | 5 << 5), send(BROKEN, 1, 3), send(ENDED, 1, 3), GO;
        "said-again" => connect(0), GO, send(ACCEPTED, 1, ITS_NAME), GO, Repeat { which: 0 }, GO,
            disconnect(0), GO, reset(0), connect(0), Repeat { which: 0 }, GO;
        "names-of-the-friend" => send(ENDED, 0, 4 << 5), send(BROKEN, 0, 5 << 5), connect(0), GO,
            send(ENDED, 0, OTHER_SLOT), send(BROKEN, 0, OTHER_SLOT),
            send(ENDED, 0, 6 << 5 | ITS_NAME), GO, Exchange;
        "requests-without-end" => send(REQUEST, 0, NOBODY), send(REQUEST, 1, NOBODY),
            send(REQUEST, 2, NOBODY), send(REQUEST, 3, NOBODY), GO, send(REQUEST, 4, NOBODY),
            send(REQUEST, 5, NOBODY), send(REQUEST, 6, NOBODY), send(REQUEST, 7, NOBODY), GO,
            take(3), send(REQUEST, 0, NOBODY), send(REQUEST, 1, NOBODY), send(REQUEST, 2, NOBODY),
            GO, Reconnect;
        "no-place-given-back" => send(NONE | REQUEST, 0, NOBODY), send(NONE | REQUEST, 1, NOBODY),
            send(NONE | REQUEST, 2, NOBODY), GO, answer(REJECT, 0), answer(REJECT, 0),
            answer(ACCEPT, 0), GO, send(NONE | REQUEST, 3, NOBODY), send(NONE | REQUEST, 4, NOBODY),
            GO, answer(REJECT, 0), answer(REJECT, 0), connect(1), GO, send(ONE | SLOTS, 0, NOBODY),
            GO, AdvanceTime { seconds: 15 }, GO, Reconnect;
        "requests-that-cannot-be-answered" => send(NONE | REQUEST, 0, NOBODY),
            send(NONE | REQUEST, 1, NOBODY), send(NONE | REQUEST, 2, NOBODY),
            send(NONE | REQUEST, 3, NOBODY), GO, send(NONE | REQUEST, 4, NOBODY),
            send(NONE | REQUEST, 5, NOBODY), send(NONE | REQUEST, 6, NOBODY), GO, Exchange,
            send(NONE | REQUEST, 0, NOBODY), send(NONE | REQUEST, 1, NOBODY),
            send(NONE | REQUEST, 2, NOBODY), send(NONE | REQUEST, 3, NOBODY), GO, Exchange,
            send(NONE | REQUEST, 4, NOBODY), send(NONE | REQUEST, 5, NOBODY), GO, Exchange;
        // More requests than there are slots. The consumer answers the earlier ones, but the victim
        // has no slot to send the answers.
        "answers-that-cannot-be-said" => send(NONE | REQUEST, 0, NOBODY),
            send(NONE | REQUEST, 1, NOBODY), send(NONE | REQUEST, 2, NOBODY), GO, answer(REJECT, 0),
            answer(REJECT, 0), answer(REJECT, 0), GO, send(NONE | REQUEST, 3, NOBODY),
            send(NONE | REQUEST, 4, NOBODY), send(NONE | REQUEST, 5, NOBODY), GO, answer(REJECT, 0),
            answer(REJECT, 0), answer(REJECT, 0), GO, send(NONE | REQUEST, 6, NOBODY),
            send(NONE | REQUEST, 7, NOBODY), send(NONE | REQUEST, 0, NOBODY), GO, answer(REJECT, 0),
            answer(REJECT, 0), answer(REJECT, 0), GO, send(NONE | REQUEST, 1, NOBODY),
            send(NONE | REQUEST, 2, NOBODY), send(NONE | REQUEST, 3, NOBODY), GO, answer(REJECT, 0),
            answer(REJECT, 0), answer(REJECT, 0), GO, Exchange;
        "places-that-there-are-not" => connect(0), GO, send(TOO_MANY | SLOTS, 0, NOBODY), GO,
            Exchange, connect(1), GO;
        "countless-places" => connect(0), GO, send(COUNTLESS | ANSWERED, 0, ITS_NAME), GO, Exchange,
            connect(1), GO;
        "flood" => send(SLOTS, 0, NOBODY), send(SLOTS, 0, NOBODY), send(SLOTS, 0, NOBODY),
            send(SLOTS, 0, NOBODY), send(SLOTS, 0, NOBODY), send(SLOTS, 0, NOBODY),
            send(SLOTS, 0, NOBODY), send(SLOTS, 0, NOBODY), send(SLOTS, 0, NOBODY),
            send(SLOTS, 0, NOBODY), ALONE, AdvanceTime { seconds: 1 }, GO, connect(0), GO;
        "deaf" => Listen { deaf: 1 }, connect(0), connect(1), GO, disconnect(0), reset(0),
            connect(0), GO, disconnect(0), reset(0), connect(0), GO, disconnect(1), reset(1),
            connect(1), GO, disconnect(1), reset(1), connect(1), GO, AdvanceTime { seconds: 15 },
            GO;
        "bytes-too-few" => connect(0), GO, alter(0, 40, 0), send(ACCEPTED, 1, ITS_NAME), GO;
        "bytes-too-many" => connect(0), GO, alter(1, 7, 0x41), send(ACCEPTED, 1, ITS_NAME), GO;
        "longer-than-any" => alter(1, 127, 0x41), send_of(REQUEST, 0, NOBODY, 0), GO, connect(0);
        "other-version" => alter(2, 4, 2), REQUESTED, GO;
        "other-kind" => alter(2, 5, 11), REQUESTED, GO;
        "more-private-data-than-there-is" => alter(2, 7, 64), REQUESTED, GO;
        "noise" => Noise { length: 56, seed: 3, head: 2 }, GO, connect(0), GO;
        "nothing-at-all" => Noise { length: 0, seed: 0, head: 0 }, GO;
        "from-elsewhere" => send_of(REQUEST, ELSEWHERE, NOBODY, 0), GO, Reconnect, connect(0), GO;
        "as-the-victim" => connect(0), GO, send_of(ACCEPTED, AS_VICTIM, ITS_NAME, 0), GO;
        "queue-pairs-that-are-not-its-own" => connect(0), connect(1), GO,
            send_of(ACCEPTED, 1, 3, CHANNEL), send_of(ACCEPTED, 2, ITS_NAME, THE_VICTIMS), GO,
            send_of(REQUEST, 3, NOBODY, LAST), GO, send_of(REQUEST, 3, NOBODY, BEHIND_LAST), GO;
        "services" => send(REQUEST, SECOND_SERVICE, NOBODY), send(REQUEST, NO_SERVICE, NOBODY), GO,
            Service, send(REQUEST, SECOND_SERVICE, NOBODY), GO, Service, answer(ACCEPT, 0), GO;
        "withdrawn" => REQUESTED, GO, send(WITHDRAWN, 0, ITS_NAME), GO, answer(ACCEPT, 0), GO,
            send(WITHDRAWN, 0, ITS_NAME), GO;
        "accepted-too-late" => connect(0), GO, disconnect(0), Replace { ep: 0 }, connect(0),
            send_of(ACCEPTED, 1, ITS_NAME, 0), GO, send_of(ACCEPTED, 2, 3, 0), GO;
        "never-ready" => REQUESTED, GO, answer(ACCEPT, 0), GO, AdvanceTime { seconds: 11 }, GO,
            send(READY, 0, ITS_NAME), GO;
        "time-runs-out" => Connect { ep: 0, data: 64, timeout: 5 }, GO, AdvanceTime { seconds: 1 },
            GO, send_of(ACCEPTED, 1, ITS_NAME, 0), GO;
        "memory" => connect(0), GO, send_of(ACCEPTED, 1, ITS_NAME, 0), JOIN, GO,
            transfer(0, WRITE, OPEN, 0), transfer(0, READ, OPEN, 0), GO,
            transfer(0, READ, SECRET, 1), GO, transfer(ON_CHANNEL, WRITE, CHANNEL_MEMORY, 3), GO;
        "reads-over-the-channel" => transfer(ON_CHANNEL, READ, SECRET, 1), GO, connect(0), GO,
            Reconnect;
    }
}

pub(crate) fn seeds() -> Vec<Seed> {
    let seed = |(name, (), operations): Scenario<(), _>| (name.into(), encode(&[1], &operations));
    scenarios().into_iter().map(seed).collect()
}
