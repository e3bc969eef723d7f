//! The operations of a run, and their encoding.

/// The bytes of one operation in an input.
pub const OPERATION_SIZE: usize = 8;
/// The bytes before the operations: the device's oddities, and three numbers for them.
pub const SETUP_SIZE: usize = 4;

/// The device has only windows of type 2.
pub const SECOND_WINDOWS: u8 = 1;
/// The device misreports an attribute.
pub const BOASTS: u8 = 2;
/// The device numbers queue pairs unusually.
pub const MISNUMBERS: u8 = 4;

/// The next operation; numbers select an object modulo their count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Posts something.
    Post {
        /// The endpoint, above the lowest bit.
        at: u8,
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
    /// Dequeues events.
    Take {
        /// The dispatcher, in the lowest bits.
        from: u8,
    },
    /// Starts a wait and polls it once.
    Wait {
        /// The dispatcher.
        from: u8,
        /// The number of events; the upper two bits select `evd_wait_now`, a future, or a poll.
        threshold: u8,
    },
    /// Advances the adapter.
    Go {
        /// The number of rounds.
        rounds: u8,
    },
    /// Completes posted requests as carried out.
    CarryOut {
        /// The queue pair; the lowest bit selects receives.
        pair: u8,
        /// The number of requests.
        count: u8,
        /// The most bytes of each, in units of 8.
        length: u8,
    },
    /// Forges a completion.
    Forge {
        /// The completion queue.
        queue: u8,
        /// The request.
        which: u8,
        /// The false part of the token, if any.
        how: u8,
        /// The status.
        status: u8,
        /// The operation code.
        opcode: u8,
        /// The length.
        length: u8,
        /// The number of the queue pair.
        pair: u8,
    },
    /// Answers the next poll with nonsense.
    Answer {
        /// The completion queue.
        queue: u8,
        /// The kind of nonsense.
        number: u8,
    },
    /// Delivers the event that follows from the calls on an identifier.
    Follow {
        /// The identifier.
        which: u8,
        /// The private data of the event.
        data: u8,
    },
    /// Delivers a false event on an identifier.
    Lie {
        /// The identifier.
        which: u8,
        /// The kind of event.
        kind: u8,
        /// The status.
        status: u8,
        /// The private data of the event.
        data: u8,
        /// The length of the private data.
        length: u8,
        /// The RDMA Reads that the peer requests and grants.
        depths: u8,
        /// The address of the peer.
        peer: u8,
    },
    /// Delivers a false asynchronous event of the device.
    Tell {
        /// The kind of event.
        kind: u8,
        /// The object.
        which: u8,
    },
    /// Refuses the next calls.
    Refuse {
        /// The number of calls.
        count: u8,
        /// The error.
        error: u8,
    },
    /// Starts, ends or answers a connection.
    Connection {
        /// The endpoint.
        pair: u8,
        /// The kind of change.
        how: u8,
        /// The connection request; also selects the length of private data.
        which: u8,
    },
    /// Creates and frees an object.
    Make {
        /// The kind of object.
        kind: u8,
    },
    /// Notifies without a completion.
    Notify {
        /// The completion queue.
        queue: u8,
    },
    /// Stops flushing from here on.
    Keep,
}

impl Operation {
    /// Returns the operation as a part of an input.
    pub const fn encode(self) -> [u8; OPERATION_SIZE] {
        match self {
            Self::Post {
                at,
                kind,
                offset,
                length,
                flags,
            } => [0, at, kind, offset, length, flags, 0, 0],
            Self::Take { from } => [1, from, 0, 0, 0, 0, 0, 0],
            Self::Wait { from, threshold } => [2, from, threshold, 0, 0, 0, 0, 0],
            Self::Go { rounds } => [3, rounds, 0, 0, 0, 0, 0, 0],
            Self::CarryOut {
                pair,
                count,
                length,
            } => [4, pair, count, length, 0, 0, 0, 0],
            Self::Forge {
                queue,
                which,
                how,
                status,
                opcode,
                length,
                pair,
            } => [5, queue, which, how, status, opcode, length, pair],
            Self::Answer { queue, number } => [6, queue, number, 0, 0, 0, 0, 0],
            Self::Follow { which, data } => [7, which, data, 0, 0, 0, 0, 0],
            Self::Lie {
                which,
                kind,
                status,
                data,
                length,
                depths,
                peer,
            } => [8, which, kind, status, data, length, depths, peer],
            Self::Tell { kind, which } => [9, kind, which, 0, 0, 0, 0, 0],
            Self::Refuse { count, error } => [10, count, error, 0, 0, 0, 0, 0],
            Self::Connection { pair, how, which } => [11, pair, how, which, 0, 0, 0, 0],
            Self::Make { kind } => [12, kind, 0, 0, 0, 0, 0, 0],
            Self::Notify { queue } => [13, queue, 0, 0, 0, 0, 0, 0],
            Self::Keep => [14, 0, 0, 0, 0, 0, 0, 0],
        }
    }

    pub(super) const fn decode([what, a, b, c, d, e, f, g]: [u8; OPERATION_SIZE]) -> Self {
        match what % 15 {
            0 => Self::Post {
                at: a,
                kind: b,
                offset: c,
                length: d,
                flags: e,
            },
            1 => Self::Take { from: a },
            2 => Self::Wait {
                from: a,
                threshold: b,
            },
            3 => Self::Go { rounds: a },
            4 => Self::CarryOut {
                pair: a,
                count: b,
                length: c,
            },
            5 => Self::Forge {
                queue: a,
                which: b,
                how: c,
                status: d,
                opcode: e,
                length: f,
                pair: g,
            },
            6 => Self::Answer {
                queue: a,
                number: b,
            },
            7 => Self::Follow { which: a, data: b },
            8 => Self::Lie {
                which: a,
                kind: b,
                status: c,
                data: d,
                length: e,
                depths: f,
                peer: g,
            },
            9 => Self::Tell { kind: a, which: b },
            10 => Self::Refuse { count: a, error: b },
            11 => Self::Connection {
                pair: a,
                how: b,
                which: c,
            },
            12 => Self::Make { kind: a },
            13 => Self::Notify { queue: a },
            _ => Self::Keep,
        }
    }
}

/// Returns an input of these operations.
pub fn encode(setup: [u8; SETUP_SIZE], operations: &[Operation]) -> Vec<u8> {
    let mut input = setup.to_vec();
    for operation in operations {
        input.extend(operation.encode());
    }
    input
}
