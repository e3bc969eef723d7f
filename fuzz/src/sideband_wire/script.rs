//! What a run does: the operations of an input, and their bytes.

/// Bytes of one operation in an input.
pub const OPERATION_SIZE: usize = 6;

/// What happens next. Numbers choose from what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The intruder says a message.
    Say {
        /// Which kind, and above that how many places it says it has free again.
        kind: u8,
        /// What it calls the connection, and above that what it says of its port and of the qualifier.
        from: u8,
        /// What the victim calls it: a name that was heard, the newest first, and above that in what it is not that.
        to: u8,
        /// Its queue pair.
        pair: u8,
        /// Bytes of private data.
        data: u8,
    },
    /// Its next message is not so.
    Bend {
        /// In what way.
        how: u8,
        /// Where, or how many bytes.
        place: u8,
        /// What stands there.
        value: u8,
    },
    /// It says noise.
    Noise {
        /// Bytes.
        length: u8,
        /// What the noise is drawn from.
        seed: u8,
        /// Whether it begins as messages do.
        head: u8,
    },
    /// It says again what it said, the newest first.
    Repeat {
        /// What.
        which: u8,
    },
    /// It has places for messages of the victim, or has none any more.
    Listen {
        /// Whether it has none.
        deaf: u8,
    },
    /// It joins one of its queue pairs to one of the victim's.
    Join {
        /// Which.
        pair: u8,
        /// To which of those that it heard of, the newest first.
        to: u8,
    },
    /// It transfers data.
    Transfer {
        /// On which of its queue pairs; above them on the channel's.
        pair: u8,
        /// What: Send, RDMA Write, RDMA Read.
        kind: u8,
        /// To where in the victim's memory.
        target: u8,
        /// With which key.
        key: u8,
        /// How many bytes, in units of 8.
        length: u8,
    },
    /// The victim connects to the intruder.
    Connect {
        /// Which endpoint.
        ep: u8,
        /// Bytes of private data.
        data: u8,
        /// How long it waits at most, in tenths of a second; 0 for ever.
        timeout: u8,
    },
    /// The victim answers a request of the intruder.
    Answer {
        /// Which one, the oldest first.
        which: u8,
        /// How.
        how: u8,
        /// For which endpoint.
        ep: u8,
        /// Bytes of private data.
        data: u8,
    },
    /// The victim ends a connection, or an attempt.
    Disconnect {
        /// Of which endpoint.
        ep: u8,
        /// How.
        how: u8,
    },
    /// The victim resets an endpoint.
    Reset {
        /// Which one.
        ep: u8,
    },
    /// The victim frees an endpoint, and makes another one.
    Replace {
        /// Which one.
        ep: u8,
    },
    /// The victim posts something.
    Post {
        /// On which endpoint.
        ep: u8,
        /// What: Send, RDMA Write, RDMA Read, receive, shared receive, bind.
        kind: u8,
        /// Where in its page, in units of 16 bytes.
        offset: u8,
        /// How many bytes, in units of 8.
        length: u8,
        /// The flags, and above them whether it is in two pieces.
        flags: u8,
    },
    /// The victim takes events.
    Take {
        /// From which dispatcher.
        dispatcher: u8,
    },
    /// The victim begins to listen on a second qualifier, or stops.
    Service,
    /// Everybody goes on.
    Go {
        /// Steps, and above them whether the victim sleeps.
        steps: u8,
    },
    /// Time passes.
    Later {
        /// Seconds.
        seconds: u8,
    },
    /// The victim and its friend send each other something.
    Exchange,
    /// The friend connects anew.
    Meet,
}

impl Operation {
    /// The operation as a part of an input.
    pub const fn encode(self) -> [u8; OPERATION_SIZE] {
        match self {
            Self::Say {
                kind,
                from,
                to,
                pair,
                data,
            } => [0, kind, from, to, pair, data],
            Self::Bend { how, place, value } => [1, how, place, value, 0, 0],
            Self::Noise { length, seed, head } => [2, length, seed, head, 0, 0],
            Self::Repeat { which } => [3, which, 0, 0, 0, 0],
            Self::Listen { deaf } => [4, deaf, 0, 0, 0, 0],
            Self::Join { pair, to } => [5, pair, to, 0, 0, 0],
            Self::Transfer {
                pair,
                kind,
                target,
                key,
                length,
            } => [6, pair, kind, target, key, length],
            Self::Connect { ep, data, timeout } => [7, ep, data, timeout, 0, 0],
            Self::Answer {
                which,
                how,
                ep,
                data,
            } => [8, which, how, ep, data, 0],
            Self::Disconnect { ep, how } => [9, ep, how, 0, 0, 0],
            Self::Reset { ep } => [10, ep, 0, 0, 0, 0],
            Self::Replace { ep } => [11, ep, 0, 0, 0, 0],
            Self::Post {
                ep,
                kind,
                offset,
                length,
                flags,
            } => [12, ep, kind, offset, length, flags],
            Self::Take { dispatcher } => [13, dispatcher, 0, 0, 0, 0],
            Self::Service => [14, 0, 0, 0, 0, 0],
            Self::Go { steps } => [15, steps, 0, 0, 0, 0],
            Self::Later { seconds } => [16, seconds, 0, 0, 0, 0],
            Self::Exchange => [17, 0, 0, 0, 0, 0],
            Self::Meet => [18, 0, 0, 0, 0, 0],
        }
    }

    pub(super) fn decode([what, a, b, c, d, e]: [u8; OPERATION_SIZE]) -> Self {
        match what % 19 {
            0 => Self::Say {
                kind: a,
                from: b,
                to: c,
                pair: d,
                data: e,
            },
            1 => Self::Bend {
                how: a,
                place: b,
                value: c,
            },
            2 => Self::Noise {
                length: a,
                seed: b,
                head: c,
            },
            3 => Self::Repeat { which: a },
            4 => Self::Listen { deaf: a },
            5 => Self::Join { pair: a, to: b },
            6 => Self::Transfer {
                pair: a,
                kind: b,
                target: c,
                key: d,
                length: e,
            },
            7 => Self::Connect {
                ep: a,
                data: b,
                timeout: c,
            },
            8 => Self::Answer {
                which: a,
                how: b,
                ep: c,
                data: d,
            },
            9 => Self::Disconnect { ep: a, how: b },
            10 => Self::Reset { ep: a },
            11 => Self::Replace { ep: a },
            12 => Self::Post {
                ep: a,
                kind: b,
                offset: c,
                length: d,
                flags: e,
            },
            13 => Self::Take { dispatcher: a },
            14 => Self::Service,
            15 => Self::Go { steps: a },
            16 => Self::Later { seconds: a },
            17 => Self::Exchange,
            _ => Self::Meet,
        }
    }
}

/// An input of these operations: the seed of the fabric comes before them.
pub fn encode(seed: u8, operations: &[Operation]) -> Vec<u8> {
    let mut input = vec![seed];
    for operation in operations {
        input.extend(operation.encode());
    }
    input
}
