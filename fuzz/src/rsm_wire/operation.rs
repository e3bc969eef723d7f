//! The operations of an input.

/// The bytes of one operation in an input.
pub const OPERATION_SIZE: usize = 6;

/// The next operation; numbers select sensible values and some others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sends a message of the intruder with these fields.
    Say {
        /// The type, modulo the number of types.
        kind: u8,
        /// The first word.
        word: u8,
        /// The second word.
        other: u8,
        /// The 32-bit fields.
        half: u8,
        /// The position of a changed byte, counted from 1.
        ///
        /// Zero or a position past the end changes none.
        bent: u8,
    },
    /// Sends these bytes of the intruder, repeated.
    Noise {
        /// The first five bytes.
        bytes: [u8; 5],
    },
    /// Reads or writes through a key.
    Access {
        /// Odd to write, even to read.
        write: u8,
        /// The key.
        key: u8,
        /// The offset.
        offset: u8,
        /// The length.
        length: u8,
        /// The base address: that of the key, or one of the victim's pages.
        place: u8,
    },
    /// Connects the intruder again.
    Greet {
        /// The variant of its greeting.
        variant: u8,
    },
    /// Makes a call of the victim.
    Victim {
        /// The call.
        call: u8,
        /// The segment.
        segment: u8,
    },
    /// Waits until everything is at rest and time has passed.
    Rest {
        /// The number of milliseconds.
        time: u8,
    },
}

impl Operation {
    /// Returns the operation as a part of an input.
    pub fn encode(self) -> [u8; OPERATION_SIZE] {
        match self {
            Self::Say {
                kind,
                word,
                other,
                half,
                bent,
            } => [0, kind, word, other, half, bent],
            Self::Noise {
                bytes: [a, b, c, d, e],
            } => [1, a, b, c, d, e],
            Self::Access {
                write,
                key,
                offset,
                length,
                place,
            } => [2, write, key, offset, length, place],
            Self::Greet { variant } => [3, variant, 0, 0, 0, 0],
            Self::Victim { call, segment } => [4, call, segment, 0, 0, 0],
            Self::Rest { time } => [5, time, 0, 0, 0, 0],
        }
    }

    pub(super) fn decode([what, a, b, c, d, e]: [u8; OPERATION_SIZE]) -> Self {
        match what % 6 {
            0 => Self::Say {
                kind: a,
                word: b,
                other: c,
                half: d,
                bent: e,
            },
            1 => Self::Noise {
                bytes: [a, b, c, d, e],
            },
            2 => Self::Access {
                write: a,
                key: b,
                offset: c,
                length: d,
                place: e,
            },
            3 => Self::Greet { variant: a },
            4 => Self::Victim {
                call: a,
                segment: b,
            },
            _ => Self::Rest { time: a },
        }
    }
}

/// Returns an input of these operations.
pub fn encode(operations: &[Operation]) -> Vec<u8> {
    let mut input = vec![0];
    for operation in operations {
        input.extend(operation.encode());
    }
    input
}
