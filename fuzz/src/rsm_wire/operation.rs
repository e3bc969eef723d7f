//! What an input says that happens.

/// Bytes of one operation in an input.
pub const OPERATION_SIZE: usize = 6;

/// What happens next. Numbers choose from what makes sense, and from some things that do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The intruder says a message of this type, with these fields.
    Say {
        /// The type, modulo the number of types.
        kind: u8,
        /// The first word.
        word: u8,
        /// The second word.
        other: u8,
        /// The numbers of 32 bits.
        half: u8,
        /// A byte of the message that is changed, if it is one.
        bent: u8,
    },
    /// The intruder sends these bytes, repeated.
    Noise {
        /// The first five bytes.
        bytes: [u8; 5],
    },
    /// The intruder reads or writes through a key.
    Access {
        /// Odd writes, even reads.
        write: u8,
        /// Which key.
        key: u8,
        /// Where.
        offset: u8,
        /// How much.
        length: u8,
        /// Whose address: what came with the key, or one of the victim's pages.
        place: u8,
    },
    /// The intruder connects anew.
    Greet {
        /// What it says of itself.
        variant: u8,
    },
    /// The victim calls something.
    Victim {
        /// What.
        call: u8,
        /// Of which segment.
        segment: u8,
    },
    /// Everything comes to rest, or time passes.
    Rest {
        /// Milliseconds.
        time: u8,
    },
}

impl Operation {
    /// The operation as a part of an input.
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

/// An input of these operations.
pub fn encode(operations: &[Operation]) -> Vec<u8> {
    let mut input = vec![0];
    for operation in operations {
        input.extend(operation.encode());
    }
    input
}
