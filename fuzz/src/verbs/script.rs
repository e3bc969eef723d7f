//! What a run does: the operations of an input, and their bytes.

/// Bytes of one operation in an input.
pub const OPERATION_SIZE: usize = 8;
/// What comes before the operations: in what the device is not as others, and three numbers for that.
pub const SETUP_SIZE: usize = 4;

/// The device has windows of type 2 alone.
pub const SECOND_WINDOWS: u8 = 1;
/// It says otherwise what it has.
pub const BOASTS: u8 = 2;
/// It numbers queue pairs otherwise.
pub const MISNUMBERS: u8 = 4;

/// What happens next. Numbers choose from what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Something is posted.
    Post {
        /// Above the lowest bit: on which endpoint.
        at: u8,
        /// What: Send, RDMA Write, RDMA Read, receive, shared receive, bind, a batch of RDMA Writes, a batch of receives.
        kind: u8,
        /// Where in the page, in units of 16 bytes.
        offset: u8,
        /// How many bytes, in units of 8.
        length: u8,
        /// The flags, and above them whether it is in two pieces.
        flags: u8,
    },
    /// Events are taken.
    Take {
        /// From which dispatcher; in the highest bit whether into a sink.
        from: u8,
    },
    /// Somebody begins to wait, and looks once.
    Wait {
        /// For which dispatcher.
        from: u8,
        /// For how many events; in the upper two bits whether only now, or as a future.
        threshold: u8,
    },
    /// The adapter goes on.
    Go {
        /// So often.
        rounds: u8,
    },
    /// The device has carried out what was posted.
    CarryOut {
        /// On which queue pair; in the lowest bit whether receives.
        pair: u8,
        /// How many.
        count: u8,
        /// How many bytes each has moved at most, in units of 8.
        length: u8,
    },
    /// The device completes what it likes.
    Forge {
        /// On which queue.
        queue: u8,
        /// Which request.
        which: u8,
        /// In what that is not so.
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
    /// The next poll is answered with nonsense.
    Answer {
        /// Of which queue.
        queue: u8,
        /// Which nonsense.
        number: u8,
    },
    /// What follows from the calls on an identifier happens.
    Follow {
        /// Which identifier.
        which: u8,
        /// What data it brings.
        data: u8,
    },
    /// Something happens to an identifier that need not follow.
    Lie {
        /// Which identifier.
        which: u8,
        /// What.
        kind: u8,
        /// With which status.
        status: u8,
        /// What data it brings.
        data: u8,
        /// How much of it.
        length: u8,
        /// Reads that the peer wants and grants.
        depths: u8,
        /// Whose peer.
        peer: u8,
    },
    /// The device tells of something that need not have happened.
    Tell {
        /// What.
        kind: u8,
        /// Of which object.
        which: u8,
    },
    /// The next calls are refused.
    Refuse {
        /// How many.
        count: u8,
        /// Why.
        error: u8,
    },
    /// A connection begins, ends, or is answered.
    Connection {
        /// Of which endpoint.
        pair: u8,
        /// How.
        how: u8,
        /// Which request; how much private data.
        which: u8,
    },
    /// Something is made and freed again.
    Make {
        /// What.
        kind: u8,
    },
    /// A queue notifies of nothing.
    Notify {
        /// Which.
        queue: u8,
    },
    /// From here on nothing is flushed.
    Keep,
}

impl Operation {
    /// The operation as a part of an input.
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

/// An input of these operations.
pub fn encode(setup: [u8; SETUP_SIZE], operations: &[Operation]) -> Vec<u8> {
    let mut input = setup.to_vec();
    for operation in operations {
        input.extend(operation.encode());
    }
    input
}
