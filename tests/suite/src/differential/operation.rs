//! Random lists of operations.

use fastrand::Rng;

/// An operation; its numbers are reduced to the valid range when it is carried out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    /// Posts a receive on an endpoint, or on its shared receive queue.
    Receive {
        at: Place,
        shape: Shape,
    },
    Send {
        at: Place,
        shape: Shape,
        flags: u8,
    },
    Write {
        at: Place,
        shape: Shape,
        to: u8,
        flags: u8,
    },
    Read {
        at: Place,
        shape: Shape,
        from: u8,
        flags: u8,
    },
    /// Binds a window to a part of the area that the peer may write.
    Bind {
        at: Place,
        offset: u8,
        length: u8,
        writes: bool,
    },
    /// Writes through the window that the peer bound last.
    WriteBound {
        at: Place,
        length: u8,
    },
    /// Makes a call that must be refused.
    Wrong {
        at: Place,
        kind: u8,
    },
    /// Posts a receive at the peer and sends it a message.
    Message {
        at: Place,
        length: u8,
    },
    Store {
        side: u8,
        at: u8,
        value: u8,
        count: u8,
    },
    Sync {
        side: u8,
        reads: bool,
        offset: u8,
        length: u8,
    },
    Objects {
        side: u8,
        kind: u8,
        number: u8,
    },
    Software {
        side: u8,
        value: u8,
    },
    Status {
        at: Place,
    },
    Disconnect {
        at: Place,
        graceful: bool,
    },
    Reset {
        at: Place,
    },
    /// Connects an end to its other end, which accepts or rejects.
    Connect {
        at: Place,
        data: u8,
        answer: u8,
        accepts: bool,
    },
    /// Waits until everything is at rest, and takes all events.
    Rest,
}

/// An endpoint: its side and its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) side: usize,
    pub(super) pair: usize,
}

/// The segments of a request: their number, first offset and length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) segments: u8,
    pub(super) offset: u8,
    pub(super) length: u8,
}

/// Number of connections.
pub(super) const PAIRS: usize = 2;

/// Draws `count` operations from a seed.
pub(super) fn list(seed: u64, count: usize) -> Vec<Operation> {
    let mut random = Rng::with_seed(seed);
    (0..count).map(|_| one(&mut random)).collect()
}

fn one(random: &mut Rng) -> Operation {
    let at = Place {
        side: random.usize(..2),
        pair: random.usize(..PAIRS),
    };
    let side = at.side as u8;
    let shape = Shape {
        segments: random.u8(..4),
        offset: random.u8(..),
        length: random.u8(..),
    };
    let [a, b, c] = [(); 3].map(|()| random.u8(..));
    let often = random.bool();
    match random.u8(..64) {
        0..6 => Operation::Receive { at, shape },
        6..12 => Operation::Send {
            at,
            shape,
            flags: a,
        },
        12..18 => Operation::Write {
            at,
            shape,
            to: a,
            flags: b,
        },
        18..23 => Operation::Read {
            at,
            shape,
            from: a,
            flags: b,
        },
        23..26 => Operation::Bind {
            at,
            offset: a,
            length: b,
            writes: often,
        },
        26..28 => Operation::WriteBound { at, length: a },
        28..33 => Operation::Wrong { at, kind: a },
        33..38 => Operation::Message { at, length: a },
        38..40 => Operation::Store {
            side,
            at: a,
            value: b,
            count: c,
        },
        40..42 => Operation::Sync {
            side,
            reads: often,
            offset: a,
            length: b,
        },
        42..47 => Operation::Objects {
            side,
            kind: a,
            number: b,
        },
        47 => Operation::Software { side, value: a },
        48..50 => Operation::Status { at },
        50..52 => Operation::Disconnect {
            at,
            graceful: often,
        },
        52..54 => Operation::Reset { at },
        54..58 => Operation::Connect {
            at,
            data: a,
            answer: b,
            accepts: c < 200,
        },
        _ => Operation::Rest,
    }
}
