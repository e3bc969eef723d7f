//! The client side of a copy to a server.

use std::time::{Duration, Instant};

use dat_core::attributes::{EpAttributes, IaAttributes};
use dat_host::{Buffer, Error, Gather, Transfer};
use twox_hash::XxHash3_128;

use super::connection::{
    Completions, Connection, Plan, ServerAddress, attributes, posted, refused,
};
use super::host_adapter::Driven;
use super::patience::Allowance;
use super::plain::{LEAST_PAIRS, Plain};
use super::protocol::{Message, Refusal, Request, Work};
use crate::failure::{During, Failure, Result};

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

/// The file to send.
pub(crate) struct Sending<'a> {
    /// The name of the copy at the server.
    pub(crate) name: &'a str,
    pub(crate) length: u64,
    pub(crate) shape: Shape,
    /// If set, each slot is written alone, and compared with a plain copy; the server works after
    /// each round of slots.
    pub(crate) plain: Option<&'a mut Plain>,
}

/// A slot that the server has not emptied yet.
enum UnderWay {
    Writing(Transfer<Gather<Buffer>>),
    Written(Vec<Buffer>),
}

impl Shape {
    /// Returns the bytes per slot.
    pub(crate) const fn slot(self) -> usize {
        self.segments * self.chunk
    }

    /// Returns the bytes of all slots.
    pub(crate) const fn bytes(self) -> u64 {
        self.depth as u64 * self.slot() as u64
    }

    /// Returns the attributes of the client's endpoint.
    fn attributes(&self, limits: &IaAttributes) -> EpAttributes {
        let depth = usize::from(self.depth);
        EpAttributes {
            max_recv_iov: 1,
            max_rdma_read_iov: 1,
            max_rdma_read_in: 0,
            max_rdma_read_out: 0,
            ..attributes(depth + 4, 4 * depth + 4, self.segments, limits)
        }
    }
}

/// The result of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) bytes: u64,
    pub(crate) writes: u64,
    pub(crate) segments: u64,
    pub(crate) checksum: u128,
    /// Time from the first write to the last slot that the server emptied; with plain copies, the
    /// time of the writes alone.
    pub(crate) moving: Duration,
}

/// Sends the bytes that `read` returns to a server, which stores them.
///
/// # Errors
/// - Those of `read` and `check`.
/// - Operation: the connection is lost, the server refused the request, or the stored data differs.
#[expect(
    clippy::too_many_lines,
    reason = "one exchange with the server, in its order"
)]
pub(crate) fn send_file(
    (adapter, drive): &mut Driven,
    server: ServerAddress<'_>,
    file: Sending<'_>,
    mut read: impl FnMut(&mut [u8]) -> Result<usize>,
    check: &dyn Fn() -> Result<()>,
) -> Result<Outcome> {
    let Sending {
        name,
        length,
        shape,
        mut plain,
    } = file;
    let depth = usize::from(shape.depth);
    let too_large = || refused(Refusal::TooLarge);
    let malformed = || refused(Refusal::Malformed);
    let request = Request {
        work: Work::Copy { length },
        depth: shape.depth,
        size: u32::try_from(shape.slot()).map_err(|_| too_large())?,
    };
    let limits = adapter.query().during("dat_ia_query")?.ia;
    let plan = Plan {
        request,
        attributes: shape.attributes(&limits),
        completions: Completions::None,
    };
    let zone = adapter.zone().during("dat_pz_create")?;
    let mut buffers = zone
        .buffers(depth * shape.segments, shape.chunk)
        .during("dat_lmr_create")?;
    // A slot holds the buffers of its segments while it is free.
    let mut free: Vec<(u16, Vec<Buffer>)> = (0..shape.depth)
        .rev()
        .map(|slot| (slot, buffers.split_off(buffers.len() - shape.segments)))
        .collect();
    let mut under_way: Vec<Option<UnderWay>> = (0..depth).map(|_| None).collect();
    let mut client = Connection::open((adapter, drive), zone, server, &plan, check)?;
    client.send(&Message::Name(name.to_owned()))?;
    match client.message()? {
        Message::Ready => {}
        _ => return Err(malformed()),
    }
    let mut hash = XxHash3_128::new();
    let (mut bytes, mut writes, mut segments) = (0_u64, 0, 0);
    let mut first = None;
    // The time of the writes, without those that are done again.
    let mut alone = Duration::ZERO;
    let mut ended = false;
    let mut filled = Vec::with_capacity(depth);
    while !ended || free.len() < depth {
        while !ended && let Some((slot, mut parts)) = free.pop() {
            check()?;
            let (count, is_last) = fill(&mut parts, length - bytes, &mut read, |offset, part| {
                if let Some(plain) = &mut plain {
                    plain.fill(usize::from(slot), offset, part);
                }
                hash.write(part);
            })?;
            ended = is_last;
            let used = parts.len();
            if parts.is_empty() {
                free.push((slot, parts));
                continue;
            }
            first.get_or_insert_with(Instant::now);
            let sent = match &mut plain {
                None => UnderWay::Writing(write(&client, &request, slot, parts)?),
                Some(plain) => {
                    // A file of few slots gives few pairs, so its first slot is written again.
                    let times = match writes {
                        0 => LEAST_PAIRS.saturating_sub(length.div_ceil(request.size.into())),
                        _ => 0,
                    };
                    for _ in 0..times {
                        (parts, _) = write_beside(plain, &mut client, &request, slot, parts)?;
                    }
                    let (parts, taken) = write_beside(plain, &mut client, &request, slot, parts)?;
                    alone += taken;
                    UnderWay::Written(parts)
                }
            };
            if let Some(place) = under_way.get_mut(usize::from(slot)) {
                *place = Some(sent);
            }
            let length = u32::try_from(count).map_err(|_| too_large())?;
            filled.push(Message::Filled { slot, length });
            // While plain copies are measured, the server waits for the whole round.
            if plain.is_none() {
                send_all(&client, &mut filled)?;
            }
            bytes += count as u64;
            writes += 1;
            segments += used as u64;
        }
        send_all(&client, &mut filled)?;
        while free.len() < depth {
            let Message::Empty { slot } = client.message()? else {
                return Err(malformed());
            };
            let sent = under_way.get_mut(usize::from(slot)).and_then(Option::take);
            let parts = match sent.ok_or_else(malformed)? {
                UnderWay::Writing(write) => client.finish(write)?.into_parts(),
                UnderWay::Written(parts) => parts,
            };
            let arrived: usize = parts.iter().map(|part| part.len()).sum();
            client.allowance.arrived(arrived as u64);
            free.push((slot, parts));
            if plain.is_none() {
                break;
            }
        }
    }
    let moving = match plain {
        Some(_) => alone,
        None => first.map_or(Duration::ZERO, |first| first.elapsed()),
    };
    if bytes != length {
        return Err(Failure::operation(
            "the transfer failed",
            "the file shrank during the copy",
        ));
    }
    let checksum = hash.finish_128();
    client.send(&Message::End { checksum })?;
    client.ended = true;
    // The server reads the file back, and brings it to the disk.
    client.allowance = Allowance::for_work(length);
    match client.message()? {
        Message::Stored {
            length,
            checksum: stored,
        } if (length, stored) == (bytes, checksum) => {}
        Message::Stored { .. } => return Err(refused(Refusal::Different)),
        _ => return Err(malformed()),
    }
    client.close();
    Ok(Outcome {
        bytes,
        writes,
        segments,
        checksum,
        moving,
    })
}

/// Fills the buffers of a slot with the next bytes of a file of which `left` bytes are left.
///
/// Keeps the buffers that are used; `take` gets each with its offset. Returns the number of bytes,
/// and true if they are the last ones.
fn fill(
    parts: &mut Vec<Buffer>,
    left: u64,
    mut read: impl FnMut(&mut [u8]) -> Result<usize>,
    mut take: impl FnMut(usize, &[u8]),
) -> Result<(usize, bool)> {
    let left = usize::try_from(left).unwrap_or(usize::MAX);
    let (mut count, mut used, mut is_last) = (0, 0, false);
    for part in parts.iter_mut() {
        let wanted = part.len();
        let got = read(part)?;
        // If the file grows meanwhile, the copy keeps the length from its start.
        part.resize(got.min(left - count));
        take(count, part);
        count += part.len();
        used += usize::from(!part.is_empty());
        is_last = got < wanted || count == left;
        if is_last {
            break;
        }
    }
    parts.truncate(used);
    Ok((count, is_last))
}

/// Tells the server that slots are filled.
fn send_all(client: &Connection<'_>, filled: &mut Vec<Message>) -> Result<()> {
    filled
        .drain(..)
        .try_for_each(|message| client.send(&message))
}

/// Writes a slot beside a plain copy; returns its buffers and the time of the write.
fn write_beside(
    plain: &mut Plain,
    client: &mut Connection<'_>,
    request: &Request,
    slot: u16,
    parts: Vec<Buffer>,
) -> Result<(Vec<Buffer>, Duration)> {
    let count = parts.iter().map(|part| part.len()).sum();
    plain.beside(usize::from(slot), count, || {
        let write = write(client, request, slot, parts)?;
        Ok(client.finish(write)?.into_parts())
    })
}

/// Posts the write of a slot.
fn write(
    client: &Connection<'_>,
    request: &Request,
    slot: u16,
    parts: Vec<Buffer>,
) -> Result<Transfer<Gather<Buffer>>> {
    let count: usize = parts.iter().map(|part| part.len()).sum();
    let start = u64::from(slot) * u64::from(request.size);
    let target = client.granted.slice(start..start + count as u64);
    let target = target.map_err(|_| refused(Refusal::Malformed))?;
    let parts = Gather::new(parts)
        .map_err(Error::from)
        .during("gathering")?;
    posted(
        client.endpoint.write(parts, target),
        "dat_ep_post_rdma_write",
    )
}
