//! Bytes from the network, as the decoders of RoCEv2 take them.

use backend_roce::proto::connection::{MAD_LENGTH, Mad, decode_packet};
use backend_roce::proto::packet::{Bth, Header, ICRC_LENGTH, Opcode, Packet, Syndrome};

/// Most bytes of an input that count: a packet of the largest path MTU.
const MOST: usize = 4096 + 48;

/// Decodes an input as a packet, and as a message of connection management.
///
/// # Panics
/// If a decoder panics, or what it accepted is not encoded to the same bytes.
pub fn run(input: &[u8]) {
    let input = &input[..input.len().min(MOST)];
    if let Ok(packet) = Packet::decode(input) {
        let mut again = vec![0xAA; input.len()];
        let length = packet.header.encode_with(packet.payload, &mut again);
        assert_eq!(length, Some(input.len()), "{packet:?}");
        assert_eq!(again, canonical(input, &packet), "{packet:?}");
        assert_eq!(Packet::decode(&again), Ok(packet));
        // A buffer that is shorter by a byte is refused, whatever it would lack.
        let short = &mut again[1..];
        assert_eq!(packet.header.encode_with(packet.payload, short), None);
        if let Some(mad) = decode_packet(&packet) {
            message(mad);
        }
    }
    if let Some(mad) = input.first_chunk() {
        message(mad);
    }
}

/// Returns the bytes of a packet with those that receivers ignore as senders write them.
fn canonical(input: &[u8], packet: &Packet<'_>) -> Vec<u8> {
    /// SE, and the length of the pad, without the MigReq bit and the version, which is 0.
    const FLAGS: u8 = 0b1011_0000;
    /// BECN, which marks a notification.
    const CONGESTED: u8 = 0b0100_0000;
    /// An acknowledgement without credits.
    const NO_CREDITS: u8 = 0x1F;
    let Header { bth, extensions } = packet.header;
    let mut bytes = input.to_vec();
    bytes[1] &= FLAGS;
    bytes[2..4].fill(0xFF);
    bytes[4] = match bth.opcode {
        Opcode::CongestionNotification => CONGESTED,
        _ => 0,
    };
    bytes[8] &= 0x80;
    let mut at = Bth::LENGTH;
    if extensions.deth.is_some() {
        bytes[at + 4] = 0;
        at += 8;
    }
    if extensions.reth.is_some() {
        at += 16;
    }
    if extensions.atomic.is_some() {
        if bth.opcode == Opcode::FetchAdd {
            bytes[at + 20..at + 28].fill(0);
        }
        at += 28;
    }
    if let Some(aeth) = extensions.aeth
        && aeth.syndrome == Syndrome::Acknowledgement
    {
        bytes[at] = NO_CREDITS;
    }
    let end = bytes.len() - ICRC_LENGTH;
    let pad = usize::from(bytes[1] >> 4 & 0b11);
    bytes[end - pad..].fill(0);
    bytes
}

/// Decodes a message; an accepted one is the same after it is encoded and decoded again.
fn message(bytes: &[u8; MAD_LENGTH]) {
    let Some(mad) = Mad::decode(bytes) else {
        return;
    };
    let again = mad.encode();
    assert_eq!(Mad::decode(&again), Some(mad));
    assert_eq!(again, mad.encode());
}
