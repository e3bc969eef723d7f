//! Packets: the payload of a UDP datagram, from the BTH to the ICRC (ROCE-01).

mod aeth;
mod bth;
mod extension;
mod opcode;
mod rnr_timer;

pub use aeth::{Aeth, NakCode, Syndrome};
pub use bth::Bth;
pub use extension::{AtomicEth, Deth, Extensions, Reth};
pub use opcode::{Opcode, Position};
pub use rnr_timer::RnrTimer;

use super::bytes::{Reader, Writer};

/// The UDP port of RoCEv2.
pub const UDP_PORT: u16 = 4791;

/// Length of the ICRC.
pub const ICRC_LENGTH: usize = 4;

/// Largest length of a packet of a reliable connection beside its payload.
pub const OVERHEAD_MAX: usize = Bth::LENGTH + 28 + 4 + ICRC_LENGTH;

/// Packets are padded to a multiple of this length (ROCE-07).
const ALIGNMENT: usize = 4;

/// Returns the length of what follows the headers of a packet: its payload, pad and ICRC.
pub const fn length_behind_headers(payload: usize) -> usize {
    let pad = payload.wrapping_neg() % ALIGNMENT;
    payload.saturating_add(pad).saturating_add(ICRC_LENGTH)
}

/// The reason why the bytes of a datagram are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Shorter than its headers and the ICRC (ROCE-08).
    Short,
    /// Not a multiple of 4 bytes (ROCE-07).
    Length,
    /// The opcode is unknown (ROCE-09).
    Opcode,
    /// The transport version is not 0 (ROCE-04).
    Version,
    /// The P_Key names another partition (ROCE-05).
    Partition,
    /// The QPN cannot be one of a queue pair (ROCE-06).
    Destination,
    /// The pad is longer than the payload (ROCE-07).
    Pad,
    /// The opcode has no payload (ROCE-18).
    Payload,
}

/// The headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Base transport header.
    pub bth: Bth,
    /// Extension headers of the opcode.
    pub extensions: Extensions,
}

/// A packet as received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its headers.
    pub header: Header,
    /// Its payload without the pad.
    pub payload: &'a [u8],
}

/// A packet whose headers and pad are written, and whose payload and ICRC are not.
#[derive(Debug)]
pub struct Draft<'a> {
    /// The place of the payload.
    pub payload: &'a mut [u8],
    /// Length of the whole packet from the start of the buffer, with the place of the ICRC.
    pub length: usize,
}

impl Header {
    /// Writes the headers and the pad of a packet with `payload` bytes of payload.
    ///
    /// Fails if the buffer is too short, an extension header of the opcode is missing, or the
    /// opcode has no payload.
    pub fn encode<'b>(&self, payload: usize, buffer: &'b mut [u8]) -> Option<Draft<'b>> {
        let opcode = self.bth.opcode;
        if payload > 0 && !opcode.has_payload() {
            return None;
        }
        let pad = payload.wrapping_neg() % ALIGNMENT;
        let room = buffer.len();
        let mut writer = Writer::new(buffer);
        self.bth.encode(u8::try_from(pad).ok()?, &mut writer)?;
        self.extensions.encode(opcode, &mut writer)?;
        let rest = writer.into_rest();
        let headers = room.checked_sub(rest.len())?;
        let (payload, rest) = rest.split_at_mut_checked(payload)?;
        let mut writer = Writer::new(rest);
        writer.zeros(pad.checked_add(ICRC_LENGTH)?)?;
        let length = headers
            .checked_add(payload.len())?
            .checked_add(pad)?
            .checked_add(ICRC_LENGTH)?;
        Some(Draft { payload, length })
    }

    /// Writes a packet with `payload` and returns its length, with the place of the ICRC.
    pub fn encode_with(&self, payload: &[u8], buffer: &mut [u8]) -> Option<usize> {
        let draft = self.encode(payload.len(), buffer)?;
        // Not `copy_from_slice`, which has a panic for other lengths that is not optimised away.
        for (place, byte) in draft.payload.iter_mut().zip(payload) {
            *place = *byte;
        }
        Some(draft.length)
    }
}

impl<'a> Packet<'a> {
    /// Reads a datagram, whose ICRC the caller checks before it acts on the packet.
    pub fn decode(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let length = datagram.len().checked_sub(ICRC_LENGTH);
        let body = length.and_then(|length| datagram.get(..length));
        let mut reader = Reader::new(body.ok_or(Malformed::Short)?);
        let (bth, pad) = Bth::decode(&mut reader)?;
        let opcode = bth.opcode;
        let extensions = Extensions::decode(opcode, &mut reader).ok_or(Malformed::Short)?;
        let padded = reader.rest();
        if !padded.len().is_multiple_of(ALIGNMENT) {
            return Err(Malformed::Length);
        }
        if !opcode.has_payload() && !padded.is_empty() {
            return Err(Malformed::Payload);
        }
        let length = padded.len().checked_sub(usize::from(pad));
        let payload = length.and_then(|length| padded.get(..length));
        Ok(Self {
            header: Header { bth, extensions },
            payload: payload.ok_or(Malformed::Pad)?,
        })
    }
}
