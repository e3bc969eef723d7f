//! The client side of a copy to a server.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use dat_core::attributes::{EpAttributes, IaAttributes};
use dat_core::flags::DtoStatus;
use dat_host::{
    Access, Adapter, Buffer, Endpoint, Error, Gather, Memory, Receive, RemoteSlice, Transfer, Zone,
};
use twox_hash::XxHash3_128;

use super::client::{
    CONNECTING, SILENCE, ServerAddress, TICK, cannot_connect, lost, not_connected, refused,
    rejected, why_ended, why_failed,
};
use super::protocol::{
    MESSAGE, Message, Proof, Refusal, Request, Work, decode_answer, decode_challenge,
};
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

impl Shape {
    /// Returns the attributes of the client's endpoint.
    fn attributes(&self, limits: &IaAttributes) -> EpAttributes {
        let count = |number| i32::try_from(number).unwrap_or(i32::MAX);
        let depth = usize::from(self.depth);
        EpAttributes {
            max_recv_dtos: count(depth + 4),
            max_request_dtos: count(4 * depth + 4),
            max_recv_iov: 1,
            max_request_iov: count(self.segments),
            max_rdma_write_iov: count(self.segments),
            max_rdma_read_in: 0,
            max_rdma_read_out: 0,
            ..EpAttributes::default_for(limits)
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
    /// Time from the first write to the last slot that the server emptied.
    pub(crate) moving: Duration,
}

/// Sends `length` bytes from `read` to a server, which stores them under `name`.
///
/// # Errors
/// - Those of `read` and `check`.
/// - Operation: the connection is lost, the server refused the request, or the stored data differs.
pub(crate) fn send_file(
    adapter: &Adapter,
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
    let malformed = || refused(Refusal::Malformed);
    let request = Request {
        work: Work::Copy { length },
        depth: shape.depth,
        size: u32::try_from(size).map_err(|_| too_large())?,
    };
    let limits = adapter.query().during("dat_ia_query")?.ia;
    let attributes = shape.attributes(&limits);
    let zone = adapter.zone().during("dat_pz_create")?;
    let mut buffers = zone
        .buffers(depth * shape.segments, shape.chunk)
        .during("dat_lmr_create")?;
    // A slot holds the buffers of its segments while it is free.
    let mut free: Vec<(u16, Vec<Buffer>)> = (0..shape.depth)
        .rev()
        .map(|slot| (slot, buffers.split_off(buffers.len() - shape.segments)))
        .collect();
    let mut under_way: Vec<Option<Transfer<Gather<Buffer>>>> = (0..depth).map(|_| None).collect();
    let mut client = Connection::open(zone, server, &request, &attributes, check)?;
    client.send(&Message::Name(name.to_owned()))?;
    match client.message()? {
        Message::Ready => {}
        _ => return Err(malformed()),
    }
    let mut hash = XxHash3_128::new();
    let (mut bytes, mut writes, mut segments) = (0_u64, 0, 0);
    let mut first = None;
    let mut ended = false;
    while !ended || free.len() < depth {
        while !ended && let Some((slot, mut parts)) = free.pop() {
            check()?;
            let (mut count, mut used) = (0, 0);
            for part in &mut parts {
                let got = read(part)?;
                // If the file grows meanwhile, the copy keeps the length from its start.
                let left = usize::try_from(length - bytes).unwrap_or(usize::MAX) - count;
                part.resize(got.min(left));
                hash.write(part);
                count += part.len();
                used += usize::from(!part.is_empty());
                ended = got < shape.chunk || count as u64 + bytes == length;
                if ended {
                    break;
                }
            }
            parts.truncate(used);
            if parts.is_empty() {
                free.push((slot, parts));
                continue;
            }
            first.get_or_insert_with(Instant::now);
            let start = u64::from(slot) * u64::from(request.size);
            let target = client.granted.slice(start..start + count as u64);
            let target = target.map_err(|_| malformed())?;
            let parts = Gather::new(parts).map_err(Error::from);
            let write = client.endpoint.write(parts.during("gathering")?, target);
            let write = posted(write, "dat_ep_post_rdma_write")?;
            if let Some(place) = under_way.get_mut(usize::from(slot)) {
                *place = Some(write);
            }
            let length = u32::try_from(count).map_err(|_| too_large())?;
            client.send(&Message::Filled { slot, length })?;
            bytes += count as u64;
            writes += 1;
            segments += used as u64;
        }
        if free.len() == depth {
            break;
        }
        let Message::Empty { slot } = client.message()? else {
            return Err(malformed());
        };
        let write = under_way.get_mut(usize::from(slot)).and_then(Option::take);
        let parts = client.finish(write.ok_or_else(malformed)?)?;
        free.push((slot, parts.into_parts()));
    }
    let moving = first.map_or(Duration::ZERO, |first| first.elapsed());
    if bytes != length {
        return Err(Failure::operation(
            "the transfer failed",
            "the file shrank during the copy",
        ));
    }
    let checksum = hash.finish_128();
    client.send(&Message::End { checksum })?;
    client.ended = true;
    match client.message()? {
        Message::Stored {
            length,
            checksum: stored,
        } if (length, stored) == (bytes, checksum) => {}
        Message::Stored { .. } => return Err(refused(Refusal::Different)),
        _ => return Err(malformed()),
    }
    // The server may be the first to end the connection.
    let _ = client.endpoint.disconnect().wait_timeout(TICK);
    Ok(Outcome {
        bytes,
        writes,
        segments,
        checksum,
        moving,
    })
}

/// Returns a transfer, or the error of its post.
fn posted<M: Memory>(transfer: Transfer<M>, call: &str) -> Result<Transfer<M>> {
    if transfer.cookie().is_some() {
        return Ok(transfer);
    }
    let refused = transfer.wait().map_err(Error::from).during(call);
    Err(refused.map_or_else(
        |failure| failure,
        |_| Failure::operation(call, "the post was refused"),
    ))
}

/// A connection to a server, for a copy.
struct Connection<'a> {
    zone: Zone,
    endpoint: Endpoint,
    /// Posted receives, in the order of the messages.
    receives: VecDeque<Receive<Buffer>>,
    /// The server's memory for the data.
    granted: RemoteSlice,
    check: &'a dyn Fn() -> Result<()>,
    /// True once [`Message::End`] is sent: the server may have stored the file since.
    ended: bool,
}

impl<'a> Connection<'a> {
    /// Connects, a second time with a proof if the server requires one.
    ///
    /// # Errors
    /// - Operation: nobody listens at the address, or the server refused the request.
    fn open(
        zone: Zone,
        server: ServerAddress<'_>,
        request: &Request,
        attributes: &EpAttributes,
        check: &'a dyn Fn() -> Result<()>,
    ) -> Result<Self> {
        let (mut outcome, mut receives) = attempt(&zone, server, request, attributes, None)?;
        if let (Err(Error::Rejected(data)), Some(token)) = (&outcome, server.token)
            && let Some(challenge) = decode_challenge(data)
        {
            let proof = token.prove(&challenge, request);
            (outcome, receives) = attempt(&zone, server, request, attributes, Some(&proof))?;
        }
        let endpoint = match outcome {
            Ok(endpoint) => endpoint,
            Err(Error::Rejected(data)) => return Err(rejected(&data)),
            Err(Error::Connection(kind)) => return Err(not_connected(kind)),
            Err(error) => Err(error).during("dat_ep_connect")?,
        };
        let (granted, _) = decode_answer(&endpoint.private_data(), request).map_err(refused)?;
        let (context, address, length) = (granted.context, granted.address, granted.length);
        let granted = RemoteSlice::new(context, address, length, Access::WRITE);
        Ok(Self {
            zone,
            endpoint,
            receives,
            granted: granted.map_err(|_| refused(Refusal::Malformed))?,
            check,
            ended: false,
        })
    }

    fn send(&self, message: &Message) -> Result<()> {
        let buffer = self.zone.copy(&message.encode()).during("dat_lmr_create")?;
        // The buffer returns to its pool when the message has arrived.
        posted(self.endpoint.send(buffer), "dat_ep_post_send").map(drop)
    }

    /// Waits for the next message.
    fn message(&mut self) -> Result<Message> {
        let mut silent = Instant::now();
        loop {
            let Some(next) = self.receives.pop_front() else {
                return Err(refused(Refusal::Malformed));
            };
            match next.wait_timeout(TICK) {
                Ok(Ok(received)) => {
                    let mut buffer = received.memory;
                    let message = Message::decode(&buffer);
                    buffer.resize(MESSAGE);
                    self.receives.push_back(self.endpoint.recv(buffer));
                    match message {
                        None => return Err(refused(Refusal::Malformed)),
                        Some(Message::Refused(refusal)) => return Err(refused(refusal)),
                        Some(Message::Here) => silent = Instant::now(),
                        Some(message) => return Ok(message),
                    }
                }
                Ok(Err(failed)) => return Err(self.lost(failed.error)),
                Err(pending) => {
                    self.receives.push_front(pending);
                    self.tick(silent)?;
                }
            }
        }
    }

    /// Waits until a transfer is complete; returns its memory.
    fn finish<M: Memory>(&self, mut transfer: Transfer<M>) -> Result<M> {
        let begin = Instant::now();
        loop {
            match transfer.wait_timeout(TICK) {
                Ok(done) => return done.map_err(|failed| self.lost(failed.error)),
                Err(pending) => transfer = pending,
            }
            self.tick(begin)?;
        }
    }

    /// Checks for signals, and for a server that is silent for too long.
    fn tick(&self, silent: Instant) -> Result<()> {
        (self.check)()?;
        if silent.elapsed() > SILENCE {
            let seconds = SILENCE.as_secs();
            let why = format!("the server did not respond for {seconds} s");
            return Err(lost(why, self.ended));
        }
        Ok(())
    }

    /// Builds the failure of a connection on which an operation failed.
    fn lost(&self, error: Error) -> Failure {
        let why = match error {
            Error::Failed(DtoStatus::Flushed) => match self.endpoint.ended().wait_timeout(TICK) {
                Ok(kind) => why_ended(kind),
                Err(_) => "outstanding operations were flushed".into(),
            },
            Error::Failed(status) => why_failed(status),
            error => error.to_string(),
        };
        lost(why, self.ended)
    }
}

/// The outcome of a connection request, and the receives of its endpoint.
type Attempt = (dat_host::Result<Endpoint>, VecDeque<Receive<Buffer>>);

/// Sends a connection request, and waits for the answer.
fn attempt(
    zone: &Zone,
    server: ServerAddress<'_>,
    request: &Request,
    attributes: &EpAttributes,
    proof: Option<&Proof>,
) -> Result<Attempt> {
    let endpoint = zone.endpoint(Some(*attributes)).during("dat_ep_create")?;
    let receives = usize::try_from(attributes.max_recv_dtos).unwrap_or(0);
    let buffers = zone.buffers(receives, MESSAGE).during("dat_lmr_create")?;
    let receives = buffers.into_iter().map(|buffer| endpoint.recv(buffer));
    let receives = receives.collect();
    let connecting = zone
        .connect((server.address, server.qualifier))
        .deadline_in(CONNECTING)
        .private_data(&request.encode(proof));
    // The adapter's own timeout should come first.
    match connecting.start_on(endpoint).wait_timeout(2 * CONNECTING) {
        Ok(outcome) => Ok((outcome, receives)),
        Err(_) => Err(cannot_connect(
            "nothing answers",
            "check that the device is up",
        )),
    }
}
