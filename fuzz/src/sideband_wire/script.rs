//! The operations of a run, and their encoding.

/// The bytes of one operation in an input.
pub const OPERATION_SIZE: usize = 6;

/// The next operation; numbers select an object modulo their count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sends a message of the intruder.
    Say {
        /// The kind; the upper bits select the number of slots that the message returns.
        kind: u8,
        /// The intruder's name of the connection; the upper bits select qualifier and address.
        from: u8,
        /// The victim's name: a received one, newest first; the upper bits select a falsification.
        to: u8,
        /// The queue pair.
        pair: u8,
        /// The bytes of private data.
        data: u8,
    },
    /// Changes the intruder's next message.
    Bend {
        /// The kind of change.
        how: u8,
        /// The offset, or the number of bytes.
        place: u8,
        /// The new byte.
        value: u8,
    },
    /// Sends noise.
    Noise {
        /// The number of bytes.
        length: u8,
        /// The seed of the noise.
        seed: u8,
        /// Selects a start like that of a message.
        head: u8,
    },
    /// Sends an earlier message again, counted from the newest.
    Repeat {
        /// The message.
        which: u8,
    },
    /// Posts receives for the victim's messages, or stops doing so.
    Listen {
        /// Set to stop.
        deaf: u8,
    },
    /// Connects one of the intruder's queue pairs to one of the victim's.
    Join {
        /// The intruder's queue pair.
        pair: u8,
        /// The received number of the victim's queue pair, newest first.
        to: u8,
    },
    /// Transfers data of the intruder.
    Transfer {
        /// The queue pair; one number past the last selects the channel's.
        pair: u8,
        /// The kind: Send, RDMA Write, RDMA Read.
        kind: u8,
        /// The address in the victim's memory.
        target: u8,
        /// The key.
        key: u8,
        /// The length, in units of 8 bytes.
        length: u8,
    },
    /// Connects the victim to the intruder.
    Connect {
        /// The endpoint.
        ep: u8,
        /// The bytes of private data.
        data: u8,
        /// The timeout in tenths of a second; 0 for none.
        timeout: u8,
    },
    /// Answers a request of the intruder.
    Answer {
        /// The request, oldest first.
        which: u8,
        /// The kind of answer.
        how: u8,
        /// The endpoint.
        ep: u8,
        /// The bytes of private data.
        data: u8,
    },
    /// Ends a connection or an attempt of the victim.
    Disconnect {
        /// The endpoint.
        ep: u8,
        /// The kind of end.
        how: u8,
    },
    /// Resets an endpoint of the victim.
    Reset {
        /// The endpoint.
        ep: u8,
    },
    /// Frees an endpoint of the victim, and creates another one.
    Replace {
        /// The endpoint.
        ep: u8,
    },
    /// Posts something on the victim.
    Post {
        /// The endpoint.
        ep: u8,
        /// The kind of post.
        ///
        /// Send, RDMA Write, RDMA Read, receive, shared receive, bind, a batch of RDMA Writes, a
        /// batch of receives.
        kind: u8,
        /// The offset in the page, in units of 16 bytes.
        offset: u8,
        /// The length, in units of 8 bytes.
        length: u8,
        /// The flags; the upper bits select no, one or two segments.
        flags: u8,
    },
    /// Dequeues events of the victim.
    Take {
        /// The dispatcher, in the lowest bits.
        dispatcher: u8,
    },
    /// Starts or stops listening on a second qualifier of the victim.
    Service,
    /// Advances all sides.
    Go {
        /// The number of rounds; the highest bit makes the victim sleep.
        steps: u8,
    },
    /// Advances the time.
    Later {
        /// The number of seconds.
        seconds: u8,
    },
    /// Exchanges messages between the victim and its friend.
    Exchange,
    /// Connects the friend again.
    Meet,
}

impl Operation {
    /// Returns the operation as a part of an input.
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

/// Returns an input of these operations, after the seed of the fabric.
pub fn encode(seed: u8, operations: &[Operation]) -> Vec<u8> {
    let mut input = vec![seed];
    for operation in operations {
        input.extend(operation.encode());
    }
    input
}
