//! The operations of a run, and their encoding.

/// The bytes of one operation in an input.
pub const OPERATION_SIZE: usize = 6;

/// The next operation; numbers select an object modulo their count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Posts something.
    Post {
        /// The device in the lowest bit, the endpoint in the next one.
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
        /// The device, in the lowest bit.
        at: u8,
        /// The dispatcher.
        dispatcher: u8,
    },
    /// Starts a wait and polls it once.
    Wait {
        /// The device.
        at: u8,
        /// The dispatcher.
        dispatcher: u8,
        /// The number of events; the upper two bits select `evd_wait_now`, a future, or a poll.
        threshold: u8,
    },
    /// Advances the fabric and the adapters.
    Go {
        /// The number of steps.
        steps: u8,
    },
    /// Changes a word that the suspect device shares with its driver.
    Scrawl {
        /// The memory area.
        area: u8,
        /// The index of the word, low byte first.
        word: [u8; 2],
        /// The kind of change.
        how: u8,
        /// The operand of the change.
        value: u8,
    },
    /// Forges the next completion of the suspect device.
    Lie {
        /// The false field.
        kind: u8,
        /// The bit to flip, or the seed of noise.
        bit: u8,
    },
    /// Reports a false event of the suspect device.
    Tell {
        /// The kind of event.
        kind: u8,
        /// The number of the object.
        number: u8,
    },
    /// Falsifies the suspect device's next answer to a command.
    Answer {
        /// The word of the answer.
        word: u8,
        /// The bit; a value above 31 selects all bits.
        bit: u8,
    },
    /// Removes the suspect device from its bus.
    Unplug,
    /// Ends a connection, or makes it again.
    Connection {
        /// The device in the lowest bit, the connection above it.
        at: u8,
        /// The kind of change.
        how: u8,
    },
    /// Creates and frees an object.
    Make {
        /// The device.
        at: u8,
        /// The kind of object.
        kind: u8,
    },
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

/// The bytes before the operations.
///
/// They are: the seed of the fabric; the layout, odd for the paravirtual one, with the device's
/// quirks above the lowest bit; and two numbers for the quirks.
pub const SETUP_SIZE: usize = 4;

/// Returns an input of these operations.
pub fn encode(setup: [u8; SETUP_SIZE], operations: &[Operation]) -> Vec<u8> {
    let mut input = setup.to_vec();
    for operation in operations {
        input.extend(operation.encode());
    }
    input
}
