//! The client side of a copy to a server.

use std::time::{Duration, Instant};

use dat_core::event::Wait;
use dat_core::flags::{CompletionFlags, MemoryPrivileges};
use dat_core::memory::LmrTriplet;
use twox_hash::XxHash3_128;

use super::client::{Arrival, Client, Plan, ServerAddress, refused};
use super::open_adapter::{OpenAdapter, part_of};
use super::protocol::{Message, Refusal, Request, Work};
use crate::failure::{During, Failure, Result};
use crate::host::{HostBackend, Memory};

/// The shape of the buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Number of slots.
    pub(crate) depth: u16,
    /// Segments per slot.
    pub(crate) segments: usize,
    /// Bytes per segment.
    pub(crate) chunk: usize,
}

/// The result of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) bytes: u64,
    pub(crate) writes: u64,
    pub(crate) segments: u64,
    pub(crate) checksum: u128,
    /// Time from the first write to the last slot that the server emptied.
    pub(crate) moving: Duration,
}

/// Sends `length` bytes from `read` to a server, which stores them under `name`.
///
/// # Errors
/// - Those of `read` and `check`.
/// - Operation: the connection is lost, the server refused the request, or the stored data differs.
pub(crate) fn send_file<B: HostBackend, W: Wait>(
    adapter: &mut OpenAdapter<B, W>,
    server: ServerAddress<'_>,
    name: &str,
    length: u64,
    shape: Shape,
    mut read: impl FnMut(&mut [u8]) -> Result<usize>,
    check: &dyn Fn() -> Result<()>,
) -> Result<Outcome> {
    let depth = usize::from(shape.depth);
    let size = shape.segments * shape.chunk;
    let too_large = || refused(Refusal::TooLarge);
    let request = Request {
        work: Work::Copy { length },
        depth: shape.depth,
        size: u32::try_from(size).map_err(|_| too_large())?,
    };
    let memory = Memory::new(depth * size);
    let slots = adapter
        .register(memory, MemoryPrivileges::LOCAL_READ)
        .during("dat_lmr_create")?;
    let plan = Plan {
        request,
        receives: depth + 4,
        message_receives: depth + 4,
        requests: 4 * depth + 4,
        segments: shape.segments,
        reads: 0,
    };
    let mut client = Client::connect(adapter, server, plan, |_, _| Ok(()))?;
    client.send(depth + 1, &Message::Name(name.to_owned()))?;
    match client.message(check)? {
        Message::Ready => {}
        _ => return Err(refused(Refusal::Malformed)),
    }
    let mut staging = vec![0; size];
    let mut hash = XxHash3_128::new();
    let mut free: Vec<u16> = (0..shape.depth).rev().collect();
    let (mut bytes, mut writes, mut segments) = (0_u64, 0, 0);
    let mut first = None;
    let mut ended = false;
    while !ended || free.len() < depth {
        while !ended && let Some(slot) = free.pop() {
            check()?;
            let count = read(&mut staging)?;
            let data = staging.get(..count).unwrap_or_default();
            // If the file grows meanwhile, the copy keeps the length from its start.
            let left = usize::try_from(length - bytes).unwrap_or(usize::MAX);
            let data = data.get(..left.min(count)).unwrap_or_default();
            ended = count < size || data.len() as u64 + bytes == length;
            if data.is_empty() {
                free.push(slot);
                continue;
            }
            first.get_or_insert_with(Instant::now);
            let start = usize::from(slot) * size;
            memory.store(start, data);
            hash.write(data);
            let local: Vec<LmrTriplet> = (0..data.len())
                .step_by(shape.chunk)
                .map(|at| slots.segment(start + at, shape.chunk.min(data.len() - at)))
                .collect();
            client
                .adapter
                .ia
                .post_rdma_write(
                    client.ep,
                    &local,
                    u64::from(slot),
                    &part_of(&client.granted, start, data.len()),
                    CompletionFlags::SUPPRESS,
                )
                .during("dat_ep_post_rdma_write")?;
            let length = u32::try_from(data.len()).map_err(|_| too_large())?;
            client.send(usize::from(slot), &Message::Filled { slot, length })?;
            bytes += data.len() as u64;
            writes += 1;
            segments += local.len() as u64;
        }
        if free.len() == depth {
            break;
        }
        match client.arrival(true, check)? {
            Some(Arrival::Message(Message::Empty { slot }))
                if slot < shape.depth && !free.contains(&slot) =>
            {
                free.push(slot);
            }
            Some(Arrival::Message(_)) => return Err(refused(Refusal::Malformed)),
            Some(Arrival::Done(_)) | None => {}
        }
    }
    let moving = first.map_or(Duration::ZERO, |first| first.elapsed());
    if bytes != length {
        return Err(Failure::operation(
            "the transfer failed",
            "the file shrank during the copy",
        ));
    }
    let checksum = hash.finish_128();
    client.send(depth, &Message::End { checksum })?;
    match client.message(check)? {
        Message::Stored {
            length,
            checksum: stored,
        } if (length, stored) == (bytes, checksum) => {}
        Message::Stored { .. } => return Err(refused(Refusal::Different)),
        _ => return Err(refused(Refusal::Malformed)),
    }
    client.close(&[slots])?;
    Ok(Outcome {
        bytes,
        writes,
        segments,
        checksum,
        moving,
    })
}
