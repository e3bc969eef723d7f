//! The acknowledgement extended transport header and its syndromes.

use super::rnr_timer::RnrTimer;

const ACKNOWLEDGEMENT: u8 = 0b000;
const NOT_READY: u8 = 0b001;
const NEGATIVE: u8 = 0b011;

/// Credit code without end-to-end flow control (ROCE-20).
const NO_CREDITS: u8 = 0x1F;

const KIND_SHIFT: u8 = 5;
const VALUE_MASK: u8 = 0x1F;

/// The cause of a NAK (ROCE-21).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NakCode {
    /// A packet is missing.
    SequenceError,
    /// The request is not valid.
    InvalidRequest,
    /// The key, the range or the right is wrong.
    RemoteAccess,
    /// The responder failed.
    RemoteOperational,
}

impl NakCode {
    const fn code(self) -> u8 {
        match self {
            Self::SequenceError => 0,
            Self::InvalidRequest => 1,
            Self::RemoteAccess => 2,
            Self::RemoteOperational => 3,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::SequenceError),
            1 => Some(Self::InvalidRequest),
            2 => Some(Self::RemoteAccess),
            3 => Some(Self::RemoteOperational),
            _ => None,
        }
    }
}

/// Meaning of an acknowledgement (ROCE-19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// Everything up to the PSN was executed.
    Acknowledgement,
    /// No receive was there; send again after the time of the timer.
    ReceiverNotReady(RnrTimer),
    /// The request with the PSN was refused.
    Negative(NakCode),
    /// A value without a meaning here.
    Unknown(u8),
}

impl Syndrome {
    const fn encode(self) -> u8 {
        match self {
            Self::Acknowledgement => ACKNOWLEDGEMENT << KIND_SHIFT | NO_CREDITS,
            Self::ReceiverNotReady(timer) => NOT_READY << KIND_SHIFT | timer.code(),
            Self::Negative(cause) => NEGATIVE << KIND_SHIFT | cause.code(),
            Self::Unknown(byte) => byte,
        }
    }

    const fn decode(byte: u8) -> Self {
        match (byte >> KIND_SHIFT, NakCode::from_code(byte & VALUE_MASK)) {
            (ACKNOWLEDGEMENT, _) => Self::Acknowledgement,
            (NOT_READY, _) => Self::ReceiverNotReady(RnrTimer::from_code(byte)),
            (NEGATIVE, Some(cause)) => Self::Negative(cause),
            _ => Self::Unknown(byte),
        }
    }
}

/// Acknowledgement extended transport header (ROCE-12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// Meaning of the acknowledgement.
    pub syndrome: Syndrome,
    /// Number of messages that the responder executed, 24 bits (ROCE-119).
    pub msn: u32,
}

impl Aeth {
    pub(crate) fn encode(self) -> [u8; 4] {
        let [_, high, middle, low] = self.msn.to_be_bytes();
        [self.syndrome.encode(), high, middle, low]
    }

    pub(crate) fn decode([syndrome, high, middle, low]: [u8; 4]) -> Self {
        Self {
            syndrome: Syndrome::decode(syndrome),
            msn: u32::from_be_bytes([0, high, middle, low]),
        }
    }
}
