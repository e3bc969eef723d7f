//! The answers to a REQ, and the messages that end a connection.

use super::private_data::PrivateData;
use crate::proto::Psn;
use crate::proto::bytes::{Reader, Writer};

/// Private data of the consumer in a REP.
pub const REPLY_PRIVATE: usize = 196;

/// Private data of the consumer in a REJ.
pub const REJECT_PRIVATE: usize = 148;

/// Length of the additional information in a REJ.
const INFORMATION: usize = 72;

/// Length of a GUID or a cookie.
const WORD: usize = 8;

/// Code of the time in which a responder acknowledges; the one that soft-RoCE gives.
const ACK_DELAY: u8 = 15;

/// The communication ids of a message, as its sender sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Ids {
    /// Id of the sender; 0 if it has none.
    pub local: u32,
    /// Id of the receiver.
    pub remote: u32,
}

impl Ids {
    pub(super) fn encode(self, writer: &mut Writer<'_>) -> Option<()> {
        writer.u32(self.local)?;
        writer.u32(self.remote)
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let local = reader.u32()?;
        let remote = reader.u32()?;
        Some(Self { local, remote })
    }
}

/// The acceptance of a REQ: REP (ROCE-145).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectReply {
    /// Communication ids.
    pub ids: Ids,
    /// QPN of the passive side.
    pub qpn: u32,
    /// PSN at which the passive side receives.
    pub starting_psn: Psn,
    /// Reads and Atomics that the passive side can answer.
    pub responder_resources: u8,
    /// Reads and Atomics that the passive side will have under way.
    pub initiator_depth: u8,
    /// RNR NAKs that the passive side asks the active side to accept.
    pub rnr_retry_count: u8,
    /// Set if the passive side has a shared receive queue.
    pub shared_receive_queue: bool,
    /// GUID of the passive side's adapter.
    pub guid: u64,
    /// Private data of the consumer.
    pub private_data: PrivateData<REPLY_PRIVATE>,
}

impl ConnectReply {
    pub(super) fn encode(&self, writer: &mut Writer<'_>) -> Option<()> {
        self.ids.encode(writer)?;
        writer.zeros(4)?;
        writer.u24(self.qpn)?;
        writer.zeros(5)?;
        writer.u24(self.starting_psn.value())?;
        writer.u8(0)?;
        writer.u8(self.responder_resources)?;
        writer.u8(self.initiator_depth)?;
        writer.u8(ACK_DELAY << 3)?;
        writer.u8(self.rnr_retry_count << 5 | u8::from(self.shared_receive_queue) << 4)?;
        writer.u64(self.guid)?;
        writer.put(self.private_data.bytes())
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let ids = Ids::decode(reader)?;
        reader.skip(4)?;
        let qpn = reader.u24()?;
        reader.skip(5)?;
        let starting_psn = Psn::new(reader.u24()?);
        reader.skip(1)?;
        let responder_resources = reader.u8()?;
        let initiator_depth = reader.u8()?;
        reader.skip(1)?;
        let flags = reader.u8()?;
        Some(Self {
            ids,
            qpn,
            starting_psn,
            responder_resources,
            initiator_depth,
            rnr_retry_count: flags >> 5,
            shared_receive_queue: flags & 1 << 4 != 0,
            guid: reader.u64()?,
            private_data: PrivateData::from_wire(reader.array()?),
        })
    }
}

/// The message that an MRA or REJ answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// REQ.
    Request,
    /// REP.
    Reply,
    /// Any other.
    Other,
}

impl Answered {
    const fn code(self) -> u8 {
        match self {
            Self::Request => 0,
            Self::Reply => 1,
            Self::Other => 2,
        }
    }

    const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Request,
            1 => Self::Reply,
            _ => Self::Other,
        }
    }
}

/// The receipt of a message whose answer takes time: MRA (ROCE-147).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Communication ids.
    pub ids: Ids,
    /// The message that was received.
    pub answered: Answered,
    /// Code of the time that the answer may take.
    pub service_timeout: u8,
}

impl Receipt {
    pub(super) fn encode(&self, writer: &mut Writer<'_>) -> Option<()> {
        self.ids.encode(writer)?;
        writer.u8(self.answered.code() << 6)?;
        writer.u8(self.service_timeout << 3)
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            ids: Ids::decode(reader)?,
            answered: Answered::from_code(reader.u8()? >> 6),
            service_timeout: reader.u8()? >> 3,
        })
    }
}

/// The reason of a REJ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason(pub u16);

impl Reason {
    /// The passive side has no resources left.
    pub const NO_RESOURCES: Self = Self(3);
    /// An answer did not come in time, or the attempt was cancelled.
    pub const TIMEOUT: Self = Self(4);
    /// A communication id is unknown.
    pub const INVALID_ID: Self = Self(6);
    /// Nobody listens.
    pub const INVALID_SERVICE: Self = Self(8);
    /// The transport is not the reliable connection.
    pub const INVALID_TRANSPORT: Self = Self(9);
    /// The queue pair of the active side is in use.
    pub const STALE: Self = Self(10);
    /// The path MTU cannot be carried.
    pub const INVALID_MTU: Self = Self(26);
    /// The consumer refused.
    pub const CONSUMER: Self = Self(28);
    /// The active side is to prove its address by the cookie (ROCE-194); none of InfiniBand's.
    pub const COOKIE: Self = Self(0xDA7C);
    /// The passive side takes connections through local queues only (ROCE-251); none of
    /// InfiniBand's.
    pub const LOCAL_ONLY: Self = Self(0xDA7D);
}

/// Additional information of a REJ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Information {
    /// None.
    None,
    /// With [`Reason::INVALID_MTU`], the code of the path MTU that can be carried.
    Mtu(u8),
    /// With [`Reason::TIMEOUT`], the GUID of the active side, which takes its REQ back (ROCE-176).
    ///
    /// The passive side finds the REQ by it if the sender does not know the communication id there.
    Guid(u64),
    /// With [`Reason::COOKIE`], what the active side repeats in its REQ (ROCE-194).
    Cookie(u64),
}

/// A refusal: REJ (ROCE-148).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// Communication ids.
    pub ids: Ids,
    /// The message that is refused.
    pub answered: Answered,
    /// Reason of the refusal.
    pub reason: Reason,
    /// Additional information, which depends on the reason.
    pub information: Information,
    /// Private data of the consumer.
    pub private_data: PrivateData<REJECT_PRIVATE>,
}

impl Reject {
    pub(super) fn encode(&self, writer: &mut Writer<'_>) -> Option<()> {
        self.ids.encode(writer)?;
        writer.u8(self.answered.code() << 6)?;
        let (length, information) = match self.information {
            Information::None => (0, [0; WORD]),
            Information::Mtu(code) => (1, [code << 4, 0, 0, 0, 0, 0, 0, 0]),
            Information::Guid(word) | Information::Cookie(word) => (WORD as u8, word.to_be_bytes()),
        };
        writer.u8(length << 1)?;
        writer.u16(self.reason.0)?;
        writer.put(&information)?;
        writer.zeros(INFORMATION - WORD)?;
        writer.put(self.private_data.bytes())
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let ids = Ids::decode(reader)?;
        let answered = Answered::from_code(reader.u8()? >> 6);
        let length = usize::from(reader.u8()? >> 1);
        let reason = Reason(reader.u16()?);
        let word: [u8; WORD] = reader.array()?;
        let [code, ..] = word;
        reader.skip(INFORMATION - WORD)?;
        let information = match reason {
            Reason::INVALID_MTU if length > 0 => Information::Mtu(code >> 4),
            Reason::TIMEOUT if length >= WORD => Information::Guid(u64::from_be_bytes(word)),
            Reason::COOKIE if length >= WORD => Information::Cookie(u64::from_be_bytes(word)),
            _ => Information::None,
        };
        Some(Self {
            ids,
            answered,
            reason,
            information,
            private_data: PrivateData::from_wire(reader.array()?),
        })
    }
}
