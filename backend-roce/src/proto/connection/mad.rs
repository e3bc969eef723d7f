//! Management datagrams: the header, and how it travels.

use crate::proto::Psn;
use crate::proto::bytes::{Reader, Writer};
use crate::proto::packet::{Bth, Deth, Extensions, Header, Opcode, Packet};

/// Length of a management datagram.
pub const MAD_LENGTH: usize = 256;

/// QPN of the queue pair of management datagrams.
pub const MANAGEMENT_QPN: u32 = 1;

/// Its Q_Key (ROCE-140).
const QUEUE_KEY: u32 = 0x8001_0000;

const BASE_VERSION: u8 = 1;
const CLASS: u8 = 7;
const CLASS_VERSION: u8 = 2;
const METHOD_SEND: u8 = 3;

/// The message that a management datagram carries (ROCE-142).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Attribute {
    Request = 0x10,
    Receipt = 0x11,
    Reject = 0x12,
    Reply = 0x13,
    Ready = 0x14,
    DisconnectRequest = 0x15,
    DisconnectReply = 0x16,
}

impl Attribute {
    const fn from_code(code: u16) -> Option<Self> {
        match code {
            0x10 => Some(Self::Request),
            0x11 => Some(Self::Receipt),
            0x12 => Some(Self::Reject),
            0x13 => Some(Self::Reply),
            0x14 => Some(Self::Ready),
            0x15 => Some(Self::DisconnectRequest),
            0x16 => Some(Self::DisconnectReply),
            _ => None,
        }
    }

    /// Writes the header of a MAD, 24 bytes (ROCE-141).
    pub(super) fn encode(self, transaction: u64, writer: &mut Writer<'_>) -> Option<()> {
        writer.put(&[BASE_VERSION, CLASS, CLASS_VERSION, METHOD_SEND])?;
        writer.zeros(4)?;
        writer.u64(transaction)?;
        writer.u16(self as u16)?;
        writer.zeros(6)
    }

    /// Reads the header of a MAD; returns its attribute and transaction id.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<(Self, u64)> {
        let [base, class, version, method] = reader.array()?;
        let status = reader.u16()?;
        let known = (base, class, version) == (BASE_VERSION, CLASS, CLASS_VERSION)
            && method == METHOD_SEND
            && status == 0;
        reader.skip(2)?;
        let transaction = reader.u64()?;
        let attribute = Self::from_code(reader.u16()?)?;
        reader.skip(6)?;
        known.then_some((attribute, transaction))
    }
}

/// Writes the packet that carries a MAD and returns its length, with the place of the ICRC.
pub fn encode_packet(mad: &[u8; MAD_LENGTH], psn: Psn, buffer: &mut [u8]) -> Option<usize> {
    let bth = Bth {
        opcode: Opcode::DatagramSendOnly,
        solicited: false,
        destination: MANAGEMENT_QPN,
        acknowledge: false,
        psn,
    };
    let deth = Deth {
        queue_key: QUEUE_KEY,
        source: MANAGEMENT_QPN,
    };
    let extensions = Extensions {
        deth: Some(deth),
        ..Extensions::default()
    };
    Header { bth, extensions }.encode_with(mad, buffer)
}

/// Returns the MAD of a packet; `None` if the packet carries none (ROCE-140).
pub fn decode_packet<'a>(packet: &Packet<'a>) -> Option<&'a [u8; MAD_LENGTH]> {
    let Header { bth, extensions } = packet.header;
    let deth = extensions.deth?;
    let carries = bth.opcode == Opcode::DatagramSendOnly
        && bth.destination == MANAGEMENT_QPN
        && deth.queue_key == QUEUE_KEY
        && deth.source == MANAGEMENT_QPN;
    packet.payload.try_into().ok().filter(|_| carries)
}
