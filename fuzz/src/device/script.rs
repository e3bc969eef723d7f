//! What a run does: the operations of an input, and their bytes.

/// Bytes of one operation in an input.
pub const OPERATION_SIZE: usize = 6;

/// What happens next. Numbers choose from what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Something is posted.
    Post {
        /// The lowest bit: on which device; the next one: on which endpoint.
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
        /// On which device.
        at: u8,
        /// From which dispatcher.
        dispatcher: u8,
    },
    /// Somebody begins to wait, and looks once.
    Wait {
        /// On which device.
        at: u8,
        /// For which dispatcher.
        dispatcher: u8,
        /// For how many events.
        threshold: u8,
    },
    /// The fabric and the adapters go on.
    Go {
        /// Steps.
        steps: u8,
    },
    /// The suspect device changes a word that it shares with its driver.
    Scrawl {
        /// In which area.
        area: u8,
        /// Which word, the lower half and the upper one.
        word: [u8; 2],
        /// What becomes of it.
        how: u8,
        /// A number for that.
        value: u8,
    },
    /// Its next completion is not so.
    Lie {
        /// In what.
        kind: u8,
        /// Which bit, or what noise is drawn from.
        bit: u8,
    },
    /// It reports what did not happen.
    Tell {
        /// What.
        kind: u8,
        /// Of which object.
        number: u8,
    },
    /// Its next answer to a command is not so.
    Answer {
        /// Which word of it.
        word: u8,
        /// Which bit; above 31 all of them.
        bit: u8,
    },
    /// It leaves its bus.
    Unplug,
    /// A connection is ended, or made anew.
    Connection {
        /// On which device, and which one.
        at: u8,
        /// How.
        how: u8,
    },
    /// An object is made and freed again.
    Make {
        /// On which device.
        at: u8,
        /// What.
        kind: u8,
    },
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
            } => [0, at, kind, offset, length, flags],
            Self::Take { at, dispatcher } => [1, at, dispatcher, 0, 0, 0],
            Self::Wait {
                at,
                dispatcher,
                threshold,
            } => [2, at, dispatcher, threshold, 0, 0],
            Self::Go { steps } => [3, steps, 0, 0, 0, 0],
            Self::Scrawl {
                area,
                word: [low, high],
                how,
                value,
            } => [4, area, low, high, how, value],
            Self::Lie { kind, bit } => [5, kind, bit, 0, 0, 0],
            Self::Tell { kind, number } => [6, kind, number, 0, 0, 0],
            Self::Answer { word, bit } => [7, word, bit, 0, 0, 0],
            Self::Unplug => [8, 0, 0, 0, 0, 0],
            Self::Connection { at, how } => [9, at, how, 0, 0, 0],
            Self::Make { at, kind } => [10, at, kind, 0, 0, 0],
        }
    }

    pub(super) fn decode([what, a, b, c, d, e]: [u8; OPERATION_SIZE]) -> Self {
        match what % 11 {
            0 => Self::Post {
                at: a,
                kind: b,
                offset: c,
                length: d,
                flags: e,
            },
            1 => Self::Take {
                at: a,
                dispatcher: b,
            },
            2 => Self::Wait {
                at: a,
                dispatcher: b,
                threshold: c,
            },
            3 => Self::Go { steps: a },
            4 => Self::Scrawl {
                area: a,
                word: [b, c],
                how: d,
                value: e,
            },
            5 => Self::Lie { kind: a, bit: b },
            6 => Self::Tell { kind: a, number: b },
            7 => Self::Answer { word: a, bit: b },
            8 => Self::Unplug,
            9 => Self::Connection { at: a, how: b },
            _ => Self::Make { at: a, kind: b },
        }
    }
}

/// What comes before the operations: the seed of the fabric; the layout, odd for the paravirtual one, and above it in what the device
/// is not as others; two numbers for that.
pub const SETUP_SIZE: usize = 4;

/// An input of these operations.
pub fn encode(setup: [u8; SETUP_SIZE], operations: &[Operation]) -> Vec<u8> {
    let mut input = setup.to_vec();
    for operation in operations {
        input.extend(operation.encode());
    }
    input
}
