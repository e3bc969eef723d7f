//! The base transport header.

use super::Malformed;
use super::opcode::Opcode;
use crate::proto::Psn;
use crate::proto::bytes::{Reader, Writer};

/// The P_Key of the default partition, full member (ROCE-05).
const PARTITION: u16 = 0xFFFF;

/// The bits of a P_Key that name the partition.
const PARTITION_MASK: u16 = 0x7FFF;

const SOLICITED: u8 = 1 << 7;
const PAD_SHIFT: u8 = 4;
const PAD_MASK: u8 = 0b11;
const VERSION_MASK: u8 = 0xF;
const CONGESTED: u8 = 1 << 6;
const ACKNOWLEDGE: u8 = 1 << 7;

/// QPNs that no queue pair of the consumer has (ROCE-06).
const MULTICAST_QPN: u32 = 0xFF_FFFF;

/// The base transport header: what all packets begin with (ROCE-02).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Kind of the packet.
    pub opcode: Opcode,
    /// Set if the message solicits an event at its receiver.
    pub solicited: bool,
    /// QPN of the receiver, 24 bits.
    pub destination: u32,
    /// Set if the sender asks for an acknowledgement.
    pub acknowledge: bool,
    /// Sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Length on the wire.
    pub const LENGTH: usize = 12;

    /// Writes the header of a packet with `pad` bytes of pad.
    pub(crate) fn encode(&self, pad: u8, writer: &mut Writer<'_>) -> Option<()> {
        let solicited = if self.solicited { SOLICITED } else { 0 };
        let congested = match self.opcode {
            Opcode::CongestionNotification => CONGESTED,
            _ => 0,
        };
        writer.u8(self.opcode.code())?;
        writer.u8(solicited | (pad & PAD_MASK) << PAD_SHIFT)?;
        writer.u16(PARTITION)?;
        writer.u8(congested)?;
        writer.u24(self.destination)?;
        writer.u8(if self.acknowledge { ACKNOWLEDGE } else { 0 })?;
        writer.u24(self.psn.value())
    }

    /// Reads the header and the length of the pad.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<(Self, u8), Malformed> {
        let bytes: [u8; Self::LENGTH] = reader.array().ok_or(Malformed::Short)?;
        let [
            code,
            flags,
            key_high,
            key_low,
            _,
            q2,
            q1,
            q0,
            request,
            p2,
            p1,
            p0,
        ] = bytes;
        let opcode = Opcode::from_code(code).ok_or(Malformed::Opcode)?;
        if flags & VERSION_MASK != 0 {
            return Err(Malformed::Version);
        }
        if u16::from_be_bytes([key_high, key_low]) & PARTITION_MASK != PARTITION_MASK {
            return Err(Malformed::Partition);
        }
        let destination = u32::from_be_bytes([0, q2, q1, q0]);
        if destination == 0 || destination == MULTICAST_QPN {
            return Err(Malformed::Destination);
        }
        let header = Self {
            opcode,
            solicited: flags & SOLICITED != 0,
            destination,
            acknowledge: request & ACKNOWLEDGE != 0,
            psn: Psn::new(u32::from_be_bytes([0, p2, p1, p0])),
        };
        Ok((header, flags >> PAD_SHIFT & PAD_MASK))
    }
}
