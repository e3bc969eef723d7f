//! The other end of a load: a server, or another adapter of this process.

use std::collections::VecDeque;
use std::pin::pin;
use std::thread;
use std::time::Instant;

use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::backend::HostBackend;
use dat_core::id::EpId;
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_host::{Adapter, Endpoint, Events, RemoteSlice, Zone};
use futures_util::FutureExt;
use futures_util::future::try_join;

use super::inbox::{Buffers, Inbox, Queue};
use super::load::{Load, Shape, UNSIGNALLED};
use crate::arguments::Operation;
use crate::failure::{During, Failure, Result};
use crate::remote::connection::{
    CONNECTING, Completions, Connection, Plan, ServerAddress, attributes, count, refused,
};
use crate::remote::data::fill;
use crate::remote::host_adapter::{Core, Drive, Driven, core};
use crate::remote::patience::{Limit, Patience};
use crate::remote::protocol::{Refusal, Request, Work};
use crate::remote::registered::Registered;
use crate::remote::session::triplet;

/// Seed of the data to move.
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;
/// Receives for messages of a server that sends no echoes.
const MESSAGES: usize = 4;

/// The other end of a load.
pub(super) enum Peer<'a, B: HostBackend> {
    Server(Server<'a>),
    Here(Here<'a, B>),
}

/// A server, in another process or on another thread.
pub(super) struct Server<'a> {
    pub(super) client: Connection<'a>,
    /// True if the server sends the messages back, which keeps the connection alive.
    echoes: bool,
    /// Number of looks for completions.
    pub(super) taken: u64,
}

impl Server<'_> {
    /// Tells the server that this client is there, if it is time.
    pub(super) fn keep_alive(&mut self) -> Result<()> {
        match self.echoes {
            true => Ok(()),
            false => self.client.keep_alive(Instant::now()),
        }
    }
}

/// Another adapter of this process, which the thread of the load drives too.
pub(super) struct Here<'a, B: HostBackend> {
    pub(super) core: &'a Core<B>,
    pub(super) drive: &'a mut Drive,
    near_drive: &'a mut Drive,
    pub(super) endpoints: Vec<Endpoint>,
    _near_endpoints: Vec<Endpoint>,
    /// Completions at the other end.
    pub(super) events: Events,
    /// Looks that found nothing, before the thread yields.
    yield_after: u32,
    looks: u32,
}

impl<B: HostBackend> Here<'_, B> {
    /// Counts a look that found nothing.
    ///
    /// # Errors
    /// - Operation: nothing has completed for too long.
    pub(super) fn look_again(&mut self, silent: &mut Option<Patience>) -> Result<()> {
        self.looks += 1;
        if self.looks < self.yield_after {
            return Ok(());
        }
        self.looks = 0;
        let now = Instant::now();
        if silent
            .get_or_insert_with(|| Patience::begin(now))
            .is_over(now)
        {
            return Err(Failure::operation(
                "the measurement stalled",
                "outstanding operations do not complete",
            ));
        }
        self.near_drive.pass();
        self.drive.pass();
        thread::yield_now();
        Ok(())
    }
}

impl<'a, B: HostBackend> Load<'a, B> {
    /// Connects to a server, with new memory for the data, and for that of replies.
    ///
    /// # Errors
    /// - Usage: the operation cannot be measured against a server.
    /// - Operation: the server refused the request, or a call failed.
    pub(crate) fn to_server(
        (adapter, drive): &'a mut Driven,
        server: ServerAddress<'_>,
        shape: Shape,
    ) -> Result<Self> {
        let adapter: &'a Adapter = adapter;
        let depth = shape.depth;
        let work = match shape.operation {
            Operation::Write => Work::Write,
            Operation::Read => Work::Read,
            Operation::Send => Work::Echo,
            Operation::Bind | Operation::Srq => {
                return Err(not_to_server(shape.operation, "remove --connect"));
            }
        };
        let is_echo = work == Work::Echo;
        let (Ok(narrow_depth), Ok(size)) = (u16::try_from(depth), u32::try_from(shape.size)) else {
            return Err(refused(Refusal::TooLarge));
        };
        let core = core::<B>(adapter)?;
        let limits = adapter.query().during("dat_ia_query")?.ia;
        let zone = adapter.zone().during("dat_pz_create")?;
        let events = zone.events().during("dat_evd_create")?;
        let near = Registered::new(core, &zone, shape.bytes())?;
        // Reads start with zeroed memory, so that their data is seen to arrive.
        if work != Work::Read {
            fill(near.window.atomics(), SEED);
        }
        let replies = is_echo.then(|| Registered::new(core, &zone, shape.bytes()));
        let receives = if is_echo { depth } else { MESSAGES };
        let reads = count(depth).min(limits.max_rdma_read_per_ep_out);
        let plan = Plan {
            request: Request {
                work,
                depth: narrow_depth,
                size,
            },
            attributes: EpAttributes {
                max_rdma_read_out: if work == Work::Read { reads } else { 0 },
                ..attributes(
                    receives,
                    2 * depth + 2 * UNSIGNALLED,
                    shape.segments,
                    &limits,
                )
            },
            completions: match is_echo {
                true => Completions::All(&events),
                false => Completions::Requests(&events),
            },
        };
        let far = replies.transpose()?;
        let client = Connection::open((adapter, drive), zone, server, &plan, &|| Ok(()))?;
        let (ep, granted) = (client.endpoint.id(), client.granted);
        let server = Server {
            client,
            echoes: is_echo,
            taken: 0,
        };
        let peer = Peer::Server(server);
        let mut this = Self::new(shape, core, (vec![ep], events), peer, (near, far));
        if is_echo {
            // The server sends nothing by itself, so the receives are in time.
            this.receive_at(core, ep)?;
        } else {
            let remote = remote_slots(granted, shape);
            this.remote = remote.map_err(|_| refused(Refusal::Malformed))?;
        }
        Ok(this)
    }

    /// Connects two adapters of this process; `address` is that of the second one.
    ///
    /// # Errors
    /// - Operation: a call failed.
    pub(crate) fn here(
        near: &'a mut Driven,
        far: &'a mut Driven,
        address: IaAddress,
        yield_after: u32,
        shape: Shape,
    ) -> Result<Self> {
        let operation = shape.operation;
        let (near_drive, near) = (&mut near.1, End::<B>::open(&near.0, shape)?);
        let (drive, far) = (&mut far.1, End::<B>::open(&far.0, shape)?);
        let near_memory = Registered::new(near.core, &near.zone, shape.bytes())?;
        let far_memory = (operation != Operation::Srq)
            .then(|| Registered::new(far.core, &far.zone, shape.bytes()))
            .transpose()?;
        // Half of the buffers have the last messages of the slots.
        let queue = (operation == Operation::Srq)
            .then(|| far.zone.shared_receive(2 * shape.depth, shape.size))
            .transpose()
            .during("dat_srq_create")?;
        let listener = far.zone.listen_with(None, 2).during("dat_psp_create_any")?;
        let (mut near_endpoints, mut endpoints) = (Vec::new(), Vec::new());
        for _ in 0..if queue.is_some() { 2 } else { 1 } {
            let connecting = near
                .zone
                .connect((address, listener.qualifier()))
                .attributes(near.attributes)
                .events(&near.events)
                .start();
            let accepting = async {
                let accepting = listener.next().await?.accept();
                let accepting = accepting.attributes(far.attributes).events(&far.events);
                match &queue {
                    Some(queue) => accepting.receive(queue).start().await,
                    None => accepting.start().await,
                }
            };
            let connected = together(near_drive, drive, try_join(connecting, accepting))?;
            let (near_end, far_end) = connected.during("connecting")?;
            near_endpoints.push(near_end);
            endpoints.push(far_end);
        }
        let source = match (operation, &far_memory) {
            (Operation::Read | Operation::Bind, Some(far)) => far,
            _ => &near_memory,
        };
        fill(source.window.atomics(), SEED);
        let ids = near_endpoints.iter().map(Endpoint::id).collect();
        let receiver = endpoints.first().map_or(EpId::NULL, Endpoint::id);
        let remote = far_memory.as_ref().map(|far| far.window.remote());
        let remote = remote.map(|remote| remote_slots(remote, shape)).transpose();
        let peer = Peer::Here(Here {
            core: far.core,
            drive,
            near_drive,
            endpoints,
            _near_endpoints: near_endpoints,
            events: far.events,
            yield_after,
            looks: 0,
        });
        let memory = (near_memory, far_memory);
        let mut this = Self::new(shape, near.core, (ids, near.events), peer, memory);
        this.remote = remote.during("slicing the memory")?.unwrap_or_default();
        match operation {
            Operation::Srq => this.inbox = Some(Inbox::Queue(Queue::new(shape.depth))),
            Operation::Send => this.receive_at(far.core, receiver)?,
            Operation::Bind => {
                let create = || {
                    near.core
                        .rmr_create(near.zone.id())
                        .during("dat_rmr_create")
                };
                let windows = (0..shape.depth).map(|_| Ok((create()?, 0)));
                this.windows = windows.collect::<Result<_>>()?;
            }
            Operation::Write | Operation::Read => {}
        }
        Ok(this)
    }

    fn new(
        shape: Shape,
        core: &'a Core<B>,
        (endpoints, events): (Vec<EpId>, Events),
        peer: Peer<'a, B>,
        (near, far): (Registered, Option<Registered>),
    ) -> Self {
        Self {
            shape,
            core,
            sent: vec![VecDeque::new(); endpoints.len()],
            endpoints,
            events,
            peer,
            segments: slot_segments(&near, shape),
            near,
            far,
            remote: Vec::new(),
            windows: Vec::new(),
            inbox: None,
            half_done: vec![false; shape.depth],
            count: 0,
            silent: None,
        }
    }

    /// Posts receives for messages at an endpoint.
    fn receive_at(&mut self, core: &'a Core<B>, ep: EpId) -> Result<()> {
        let depth = self.shape.depth;
        self.inbox = Some(Inbox::Buffers(Buffers::new(core, ep, depth)));
        (0..depth).try_for_each(|buffer| self.post_receive(buffer))
    }
}

/// Objects of one of two adapters of this process, for a load.
struct End<'a, B: HostBackend> {
    core: &'a Core<B>,
    zone: Zone,
    events: Events,
    attributes: EpAttributes,
}

impl<'a, B: HostBackend> End<'a, B> {
    fn open(adapter: &'a Adapter, shape: Shape) -> Result<Self> {
        let core = core::<B>(adapter)?;
        let limits = adapter.query().during("dat_ia_query")?.ia;
        let zone = adapter.zone().during("dat_pz_create")?;
        let reads = match shape.operation {
            Operation::Read => count(shape.depth).min(limits.max_rdma_read_per_ep_out),
            // Every device supports one.
            _ => 1,
        };
        Ok(Self {
            core,
            events: zone.events().during("dat_evd_create")?,
            zone,
            attributes: EpAttributes {
                max_rdma_read_in: reads,
                max_rdma_read_out: reads,
                ..attributes(shape.depth, shape.depth, shape.segments, &limits)
            },
        })
    }
}

/// Returns the failure of an operation that has no server.
pub(super) fn not_to_server(operation: Operation, remedy: &str) -> Failure {
    Failure::usage(
        format!("{} cannot be measured against a server", operation.name()),
        "with --connect, only write, read and send can be measured",
        remedy,
    )
}

/// Drives two adapters on this thread until a future is ready.
///
/// # Errors
/// - Operation: it is not ready in time.
fn together<F: Future>(near: &mut Drive, far: &mut Drive, future: F) -> Result<F::Output> {
    let mut future = pin!(future);
    let (begin, mut limit) = (Instant::now(), Limit::default());
    loop {
        near.pass();
        far.pass();
        if let Some(done) = future.as_mut().now_or_never() {
            return Ok(done);
        }
        if limit.is_over(begin.elapsed() > CONNECTING) {
            return Err(Failure::operation("connecting failed", "nothing happens"));
        }
        thread::yield_now();
    }
}

/// Returns the remote memory of all slots.
fn remote_slots(all: RemoteSlice, shape: Shape) -> dat_host::Result<Vec<RmrTriplet>> {
    let size = shape.size as u64;
    let slots = (0..shape.depth as u64).map(|slot| all.slice(slot * size..(slot + 1) * size));
    slots.map(|slot| slot.map(triplet)).collect()
}

/// Returns the segments of all slots.
///
/// The segments of a slot have equal lengths; the last one takes the rest as well.
fn slot_segments(near: &Registered, shape: Shape) -> Vec<LmrTriplet> {
    let Shape { size, segments, .. } = shape;
    let length = size / segments;
    let segment = |number| {
        let (slot, segment) = (number / segments, number % segments);
        let from = segment * length;
        let to = if segment + 1 == segments {
            size
        } else {
            from + length
        };
        near.segment(slot * size + from, to - from)
    };
    (0..shape.depth * segments).map(segment).collect()
}
