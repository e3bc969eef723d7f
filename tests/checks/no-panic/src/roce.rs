//! The protocol of RoCEv2 on bytes of a peer, as a backend calls it.

use backend_roce::proto::connection::{Connection, ConnectionEvent, Mad, answer_unknown};
use backend_roce::proto::connection::{MAD_LENGTH, decode_packet};
use backend_roce::proto::icrc::{Flow, Verdict};
use backend_roce::proto::memory::{
    AccessError, AtomicOperation, LocalError, Receive, ReceiveQueue, RemoteAddress, RemoteMemory,
    RequestMemory, Right,
};
use backend_roce::proto::numbers::NumberTable;
use backend_roce::proto::packet::{Malformed, Packet};
use backend_roce::proto::requester::{Completion, PostError, Request, Requester};
use backend_roce::proto::responder::{ReceiveCompletion, Responder};
use dat_core::time::Instant;

/// Memory that grants everything and holds nothing.
#[derive(Debug)]
pub struct Nothing;

impl RequestMemory for Nothing {
    fn gather(&mut self, _: u64, _: u32, bytes: &mut [u8]) -> Result<(), LocalError> {
        bytes.fill(0);
        Ok(())
    }

    fn scatter(&mut self, _: u64, _: u32, _: &[u8]) -> Result<(), LocalError> {
        Ok(())
    }
}

impl ReceiveQueue for Nothing {
    fn take(&mut self) -> Option<Receive> {
        let (token, length) = core::hint::black_box((1, 64));
        Some(Receive { token, length })
    }

    fn place(&mut self, _: u64, _: u32, _: &[u8]) -> Result<(), LocalError> {
        core::hint::black_box(Ok(()))
    }
}

impl RemoteMemory for Nothing {
    fn check(&mut self, _: RemoteAddress, _: u32, _: Right) -> Result<(), AccessError> {
        core::hint::black_box(Ok(()))
    }

    fn read(&mut self, _: RemoteAddress, bytes: &mut [u8]) -> Result<(), AccessError> {
        bytes.fill(0);
        core::hint::black_box(Ok(()))
    }

    fn write(&mut self, _: RemoteAddress, _: &[u8]) -> Result<(), AccessError> {
        core::hint::black_box(Ok(()))
    }

    fn atomic(&mut self, _: RemoteAddress, _: AtomicOperation) -> Result<u64, AccessError> {
        core::hint::black_box(Ok(0))
    }
}

/// Checks the ICRC of a datagram.
#[unsafe(no_mangle)]
pub fn entry_roce_verify(flow: &Flow, datagram: &[u8]) -> Verdict {
    flow.verify(datagram)
}

/// Seals a datagram.
#[unsafe(no_mangle)]
pub fn entry_roce_seal(flow: &Flow, datagram: &mut [u8]) -> Option<()> {
    flow.seal(0, datagram)
}

/// Decodes a datagram.
#[unsafe(no_mangle)]
pub fn entry_roce_decode(datagram: &[u8]) -> Result<Packet<'_>, Malformed> {
    Packet::decode(datagram)
}

/// Posts a request.
#[unsafe(no_mangle)]
pub fn entry_roce_post(requester: &mut Requester<'_>, request: Request) -> Result<(), PostError> {
    requester.post(request)
}

/// Gives a response to a requester, and takes what it sends and completes.
#[unsafe(no_mangle)]
pub fn entry_roce_requester(
    requester: &mut Requester<'_>,
    now: Instant,
    packet: &Packet<'_>,
    buffer: &mut [u8],
) -> (Option<usize>, Option<Completion>) {
    requester.receive(now, packet, &mut Nothing);
    requester.expire(now);
    let length = requester.transmit(now, &mut Nothing, buffer);
    (length, requester.poll())
}

/// Gives a request to a responder, and takes what it sends and completes.
#[unsafe(no_mangle)]
pub fn entry_roce_responder(
    responder: &mut Responder<'_>,
    packet: &Packet<'_>,
    buffer: &mut [u8],
) -> (Option<ReceiveCompletion>, Option<usize>) {
    let done = responder.receive(packet, &mut Nothing, &mut Nothing);
    (done, responder.transmit(&mut Nothing, buffer))
}

/// Gives a message to a connection, and takes what it sends.
#[unsafe(no_mangle)]
pub fn entry_roce_connection(
    connection: &mut Connection,
    packet: &Packet<'_>,
    now: Instant,
) -> Option<(Option<ConnectionEvent>, [u8; MAD_LENGTH])> {
    let mad = Mad::decode(decode_packet(packet)?)?;
    let event = connection.receive(&mad, now).or(connection.expire(now));
    let answer = connection.transmit().or(answer_unknown(&mad))?;
    Some((event, answer.encode()))
}

/// Draws a number, looks it up and ends another.
#[unsafe(no_mangle)]
pub fn entry_roce_numbers(table: &mut NumberTable<'_, u64>, number: u32) -> Option<(u64, u64)> {
    let drawn = table.draw(1)?;
    let found = *table.get(drawn)?;
    Some((found, table.remove(number)?))
}
