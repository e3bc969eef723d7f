//! A connected endpoint.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dat_core::attributes::EpAttributes;
use dat_core::flags::{CloseFlags, CompletionFlags};
use dat_core::id::EpId;
use dat_core::memory::LmrTriplet;
use dat_core::{Cause, Error as CoreError, ErrorKind, Parameter, Subtype};

use super::batch::Batch;
use super::endpoint_state::EndpointState;
use super::events::Events;
use super::message::Message;
use super::shared_receive::SharedReceive;
use super::transfer::{Posted, Receive, Transfer};
use super::zone::Zone;
use crate::drive::blocking;
use crate::error::{Error, Failed, Result};
use crate::flight::{AdapterState, EndpointEvents, Guard, Interface, Operation, Owner};
use crate::memory::{Lend, Memory, MemoryMut, check_same_adapter, total};
use crate::remote::{Access, RemoteSlice};

/// Requests, and receives, that an endpoint may have in flight, unless attributes say otherwise.
const DEPTH: i32 = 64;
/// RDMA Reads in flight, in each direction.
const READS: i32 = 16;

/// One end of a connection, made or still to be made (EP).
///
/// Each operation takes its memory and returns a future that gives it back. The operation is posted
/// at once, and goes on if the future is dropped. Up to 64 operations may be in flight, unless the
/// endpoint was made with other attributes.
///
/// Operations of an endpoint act in the order of the calls, except that later ones may overtake an
/// RDMA Read. If a message tells the peer that it may reuse memory that you read, await the read
/// before you send it.
///
/// # Completed operations
/// | operation | its completion proves | it does not prove |
/// |---|---|---|
/// | [`send`](Self::send) | the peer's device has put the message into a receive | the peer's program has taken it |
/// | [`write`](Self::write) | the peer's device has taken all bytes | the peer's program knows of them |
/// | [`read`](Self::read) | the bytes are in the memory of the caller | the peer's program knows of the read |
/// | [`recv`](Self::recv) | the message is in the memory, and so is all that the peer wrote before it sent the message | |
///
/// So a program that must know that its peer has acted waits for a message of the peer. A Send
/// waits while the peer has no receive posted.
///
/// # Vanished peers
/// If the host or the process of a peer vanishes, a Send, Write or Read in flight fails
/// (`Transport`) and the connection ends (`Broken`): over `roce://` after 1.9 seconds, over
/// `verbs://` after the retries of the device. Nothing else notices it. Without such an operation,
/// [`recv`](Self::recv), [`next_message`](Self::next_message) and [`ended`](Self::ended) wait
/// without limit.
///
/// An adapter that is opened with `keep-alive`, such as `roce://192.0.2.1?keep-alive=10`, probes
/// silent peers. The connection then ends 1.9 seconds after the period: receives fail with the
/// status `Flushed`, `next_message` fails with `Connection(Broken)`. A server over `roce://` should
/// set it. The side that connects sets the number of retries for both sides; 1.9 seconds are those
/// of this crate.
///
/// Dropping the endpoint ends the connection abruptly and flushes its operations. The thread of the
/// adapter frees it shortly afterwards.
///
/// ```
/// # use dat_host::{Adapter, Endpoint, Result};
/// # fn connected(zone: &dat_host::Zone) -> Result<(Endpoint, Endpoint)> {
/// #     let listener = zone.listen_with(None, 1)?;
/// #     let near = zone.connect((zone.address()?, listener.qualifier())).start();
/// #     let far = listener.next().wait()?.accept().wait()?;
/// #     Ok((near.wait()?, far))
/// # }
/// # fn main() -> Result<()> {
/// # let zone = Adapter::open("mock://endpoint")?.zone()?;
/// # let (near, far) = connected(&zone)?;
/// let receive = far.recv(zone.buffer(64)?);
/// near.send(zone.copy(b"hello")?).wait()?;
/// let message = receive.wait()?;
/// assert_eq!(&message.memory[..], b"hello");
/// # Ok(())
/// # }
/// ```
pub struct Endpoint {
    state: Arc<EndpointState>,
    _guard: Arc<Guard>,
}

/// The dispatchers of an endpoint's completions.
#[derive(Clone, Copy)]
pub(crate) enum Dispatch<'a> {
    /// The driver takes all.
    Driver,
    /// The program takes those of requests, and the driver those of receives.
    Requests(&'a Events),
    /// The program takes all.
    All(&'a Events),
}

/// Private data for the peer, and the options of a new endpoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    pub(crate) private_data: Vec<u8>,
    pub(crate) attributes: Option<EpAttributes>,
    pub(crate) queue: Option<SharedReceive>,
    pub(crate) events: Option<Events>,
}

impl Setup {
    /// Returns the endpoint that is given, or a new one in `zone`.
    ///
    /// # Errors
    /// - Those of [`Endpoint::create`].
    /// - [`Error::NotApplicable`]: an option is set for an endpoint that is given.
    /// - INVALID_HANDLE (EP): the endpoint that is given is of another adapter.
    pub(crate) fn endpoint(
        &self,
        adapter: &Arc<AdapterState>,
        zone: &Zone,
        given: Option<Endpoint>,
    ) -> Result<Endpoint> {
        let Some(endpoint) = given else {
            let events = Dispatch::all(self.events.as_ref());
            let queue = self.queue.as_ref();
            return Ok(Endpoint::create(zone, self.attributes, queue, events)?);
        };
        let options = [
            ("attributes", self.attributes.is_some()),
            ("receive", self.queue.is_some()),
            ("events", self.events.is_some()),
        ];
        if let Some((option, _)) = options.into_iter().find(|(_, is_set)| *is_set) {
            return Err(Error::NotApplicable(option));
        }
        endpoint.check_adapter(adapter)?;
        Ok(endpoint)
    }
}

impl<'a> Dispatch<'a> {
    /// Returns the dispatchers of an endpoint whose completions the program takes from `events`.
    pub(crate) fn all(events: Option<&'a Events>) -> Self {
        events.map_or(Self::Driver, Self::All)
    }
}

impl Endpoint {
    /// Creates an unconnected endpoint.
    pub(crate) fn create(
        zone: &Zone,
        attributes: Option<EpAttributes>,
        queue: Option<&SharedReceive>,
        dispatch: Dispatch<'_>,
    ) -> dat_core::Result<Self> {
        let domain = &zone.domain;
        let adapter = domain.adapter();
        let interface = adapter.interface();
        let attributes = match attributes {
            Some(attributes) => attributes,
            None => default_attributes(interface)?,
        };
        let events = match dispatch {
            Dispatch::Driver => None,
            Dispatch::Requests(events) | Dispatch::All(events) => Some(events),
        };
        if let Some(events) = events
            && !Arc::ptr_eq(adapter, events.queue.adapter())
        {
            let foreign = CoreError::invalid_handle(Subtype::InvalidHandleEvdRequest);
            return Err(foreign.because(Cause::Foreign));
        }
        adapter.make_room()?;
        let (pz, shared) = (Some(domain.id()), Some(adapter.completions));
        let requests = events.map_or(shared, |events| Some(events.queue.id()));
        // The driver delivers messages of shared queues.
        let receives = match (dispatch, queue) {
            (Dispatch::All(_), None) => requests,
            _ => shared,
        };
        let connections = Some(adapter.connections);
        let attributes = &attributes;
        let made = match queue {
            None => interface.ep_create(pz, receives, requests, connections, Some(attributes)),
            Some(queue) => interface.ep_create_with_srq(
                pz,
                receives,
                requests,
                connections,
                queue.id(),
                attributes,
            ),
        };
        let id = made.inspect_err(|_| adapter.give_room_back())?;
        let queue = queue.map(|queue| Arc::clone(&queue.buffers));
        let events = events.map(|events| Arc::clone(&events.queue));
        let state = Arc::new(EndpointState::new(id, domain, queue, events));
        adapter.add_endpoint(Arc::<EndpointState>::clone(&state));
        Ok(Self {
            state,
            _guard: Arc::clone(&zone.guard),
        })
    }

    pub(crate) const fn state(&self) -> &Arc<EndpointState> {
        &self.state
    }

    fn adapter(&self) -> &Arc<AdapterState> {
        self.state.adapter()
    }

    /// Checks that the endpoint is of an adapter.
    ///
    /// # Errors
    /// INVALID_HANDLE (EP): it is of another one.
    pub(crate) fn check_adapter(&self, adapter: &Arc<AdapterState>) -> dat_core::Result<()> {
        match Arc::ptr_eq(self.adapter(), adapter) {
            true => Ok(()),
            false => {
                let foreign = CoreError::invalid_handle(Subtype::InvalidHandleEp);
                Err(foreign.because(Cause::Foreign))
            }
        }
    }

    /// Returns the endpoint of the core.
    pub fn id(&self) -> EpId {
        self.state.id()
    }

    /// Returns the private data that the peer sent with its request or its answer.
    ///
    /// Some transports fill it up with zeros.
    pub fn private_data(&self) -> Vec<u8> {
        self.state.private_data()
    }

    /// Sends the memory as one message; the peer needs a receive for it.
    ///
    /// The future is ready when the peer's device has put the message into a receive. The peer's
    /// program may not have looked at it. While the peer has no receive posted, the Send waits.
    ///
    /// A message that is longer than the receive fails with the status `RemoteResponder`, and
    /// breaks the connection.
    ///
    /// # Errors
    /// [`Transfer`] names the errors after the post; once the connection has ended, each operation
    /// fails with the status `Flushed` (Spec: DTO-10). [`Refused`](crate::Error::Refused) has
    /// - INVALID_STATE: a disconnect has begun.
    /// - PROTECTION_VIOLATION: the memory is of another zone.
    /// - INVALID_HANDLE: the memory is of another adapter, or the adapter is closed.
    /// - INSUFFICIENT_RESOURCES: as many operations as the endpoint may have are in flight.
    pub fn send<M: Memory>(&self, memory: M) -> Transfer<M> {
        let segments = memory.segments();
        let ep = self.id();
        Transfer::new(
            self.post("send", segments, memory, |interface, segments, cookie| {
                interface.post_send(ep, segments, cookie, CompletionFlags::empty())
            }),
        )
    }

    /// Writes the memory to the start of a peer's memory (RDMA Write).
    ///
    /// The future is ready when the peer's device has taken all bytes. The peer's program learns
    /// nothing of the write. A message that is sent after the write arrives after its bytes
    /// (Spec: EPW-43), so send one to tell the peer.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), and as [`Refused`](crate::Error::Refused):
    /// - LENGTH_ERROR: `remote` is shorter than the memory.
    /// - PRIVILEGES_VIOLATION (`remote`): `remote` lacks [`Access::WRITE`].
    ///
    /// A window that the peer has revoked fails with the status `RemoteAccess`.
    pub fn write<M: Memory>(&self, memory: M, remote: RemoteSlice) -> Transfer<M> {
        let segments = memory.segments();
        let ep = self.id();
        Transfer::new(
            self.post("write", segments, memory, |interface, segments, cookie| {
                check_write(remote)?;
                let flags = CompletionFlags::empty();
                interface.post_rdma_write(ep, segments, cookie, &remote.triplet(), flags)
            }),
        )
    }

    /// Reads all of a peer's memory to the start of the memory (RDMA Read).
    ///
    /// The future is ready when the bytes are in the memory. Memory that is longer than `remote`
    /// keeps its length, and the rest of its bytes. The peer's program learns nothing of the read.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), and as [`Refused`](crate::Error::Refused):
    /// - LENGTH_ERROR: the memory is shorter than `remote`.
    /// - PRIVILEGES_VIOLATION (`remote`): `remote` lacks [`Access::READ`].
    /// - INVALID_PARAMETER: the endpoint was made with attributes that allow no reads.
    ///
    /// A window that the peer has revoked fails with the status `RemoteAccess`.
    pub fn read<M: MemoryMut>(&self, remote: RemoteSlice, memory: M) -> Transfer<M> {
        let segments = memory.segments();
        let ep = self.id();
        Transfer::new(
            self.post("read", segments, memory, |interface, segments, cookie| {
                check_read(remote)?;
                let flags = CompletionFlags::empty();
                interface.post_rdma_read(ep, segments, cookie, &remote.triplet(), flags)
            }),
        )
    }

    /// Receives the next message into the memory.
    ///
    /// A sender waits for a receive on `mock://`, `roce://` and `verbs://`; with another backend it
    /// may fail.
    /// [`Zone::endpoint`] makes an endpoint to post them before there is a connection.
    ///
    /// The future may wait without limit for a peer that has [vanished](Self#vanished-peers).
    ///
    /// # Errors
    /// Those of [`send`](Self::send), and as [`Refused`](crate::Error::Refused) INVALID_STATE
    /// (SRQ_IN_USE): the endpoint receives from a shared queue. Use
    /// [`next_message`](Self::next_message).
    pub fn recv<M: MemoryMut>(&self, memory: M) -> Receive<M> {
        let segments = memory.segments();
        let ep = self.id();
        Receive::new(self.post(
            "receive",
            segments,
            memory,
            |interface, segments, cookie| {
                interface.post_recv(ep, segments, cookie, CompletionFlags::empty())
            },
        ))
    }

    /// Begins a batch of operations, which one doorbell posts together.
    pub const fn batch<M: Memory>(&self) -> Batch<'_, M> {
        Batch::new(self)
    }

    /// Returns the next message that the endpoint received from its shared queue.
    ///
    /// Nothing is posted: dropping the future loses no message.
    ///
    /// The future may wait without limit for a peer that has [vanished](Self#vanished-peers).
    ///
    /// # Errors
    /// - [`Refused`](crate::Error::Refused) INVALID_STATE: the endpoint has no shared queue.
    /// - [`Connection`](crate::Error::Connection): the connection has ended, and all messages were
    ///   returned.
    /// - [`Closed`](crate::Error::Closed): the adapter was closed.
    pub fn next_message(&self) -> NextMessage {
        NextMessage(Arc::clone(&self.state))
    }

    /// Ends the connection after the operations in flight, without receives, which are flushed.
    ///
    /// Returns at once if the connection has ended. The peer sees `Disconnected`. If the peer posts
    /// no receive for a Send in flight, the future may wait without limit; dropping the endpoint
    /// ends the connection at once.
    ///
    /// # Errors
    /// [`Refused`](crate::Error::Refused) INVALID_HANDLE: the adapter is closed.
    pub fn disconnect(&self) -> Disconnect {
        let interface = self.adapter().interface();
        let begun = interface.ep_disconnect(self.id(), CloseFlags::Graceful);
        // The core itself reports the end if nothing is in flight, so no device wakes the driver.
        self.adapter().wake_driver();
        Disconnect {
            state: Arc::clone(&self.state),
            refused: begun.err(),
        }
    }

    /// Waits until either side has ended the connection; returns how.
    ///
    /// [`Error::Connection`] of the result has a text to print; the kind itself has only `Debug`.
    ///
    /// The future may wait without limit for a peer that has [vanished](Self#vanished-peers).
    pub fn ended(&self) -> Ended {
        Ended(Arc::clone(&self.state))
    }

    /// Posts an operation that owns `memory`.
    #[inline]
    fn post<M: Memory>(
        &self,
        kind: &'static str,
        segments: M::Segments,
        memory: M,
        post: impl FnOnce(&dyn Interface, &[LmrTriplet], u64) -> dat_core::Result<()>,
    ) -> Posted<M> {
        let adapter = self.adapter();
        if let Err(foreign) = check_adapter(adapter, &memory) {
            return Posted::Refused(Arc::clone(adapter), Some(Failed::new(foreign, memory)));
        }
        let segments = segments.as_ref();
        let span = self.state.span().operation(kind, total(segments));
        let post = |interface: &dyn Interface, cookie| post(interface, segments, cookie);
        match adapter.post(Owner::Endpoint(self.id()), memory.lend(), span, post) {
            Ok(key) => Posted::InFlight(Operation::new(Arc::clone(adapter), key)),
            Err((error, Some(lent))) => {
                let failed = Failed::new(error, M::take_back(lent));
                Posted::Refused(Arc::clone(adapter), Some(failed))
            }
            Err((_, None)) => unreachable!("the table keeps memory until it is taken"),
        }
    }
}

/// Checks that memory is of an adapter, as the core cannot: contexts of adapters may be equal.
///
/// # Errors
/// INVALID_HANDLE (LMR): it is of another one.
pub(crate) fn check_adapter<M: Lend>(
    adapter: &Arc<AdapterState>,
    memory: &M,
) -> dat_core::Result<()> {
    check_same_adapter(adapter, memory.adapter())
}

/// Checks the right for an RDMA Write.
pub(crate) fn check_write(remote: RemoteSlice) -> dat_core::Result<()> {
    check_right(remote, Access::WRITE, Subtype::PrivilegesWrite)
}

/// Checks the right for an RDMA Read.
pub(crate) fn check_read(remote: RemoteSlice) -> dat_core::Result<()> {
    check_right(remote, Access::READ, Subtype::PrivilegesRead)
}

/// Checks a right that the remote slice must have.
fn check_right(remote: RemoteSlice, right: Access, subtype: Subtype) -> dat_core::Result<()> {
    match remote.access().contains(right) {
        true => Ok(()),
        false => Err(CoreError::new(ErrorKind::PrivilegesViolation, subtype)
            .about(Parameter::Remote)
            .because(Cause::MissingPrivilege)),
    }
}

/// Returns the attributes of an endpoint without any.
fn default_attributes(interface: &dyn Interface) -> dat_core::Result<EpAttributes> {
    let limits = interface.limits()?;
    Ok(EpAttributes {
        max_recv_dtos: DEPTH.min(limits.max_dto_per_ep),
        max_request_dtos: DEPTH.min(limits.max_dto_per_ep),
        max_rdma_read_in: READS.min(limits.max_rdma_read_per_ep_in),
        max_rdma_read_out: READS.min(limits.max_rdma_read_per_ep_out),
        max_message_size: limits.max_message_size,
        max_rdma_size: limits.max_rdma_size,
        ..EpAttributes::default_for(&limits)
    })
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Fails if there is no connection. Afterwards the peer consumes no buffers.
        let interface = self.adapter().interface();
        let _ = interface.ep_disconnect(self.id(), CloseFlags::Abrupt);
        self.adapter()
            .drop_endpoint(Arc::<EndpointState>::clone(&self.state));
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("id", &self.id()).finish()
    }
}

/// A future of the next message; see [`Endpoint::next_message`].
#[must_use = "futures do nothing unless polled"]
pub struct NextMessage(Arc<EndpointState>);

impl NextMessage {
    fn adapter(&self) -> &Arc<AdapterState> {
        self.0.adapter()
    }
}

impl Future for NextMessage {
    type Output = Result<Message>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.0.queue().is_none() {
            let refused =
                CoreError::invalid_state(Subtype::NoSubtype).because(Cause::NoSharedReceiveQueue);
            return Poll::Ready(Err(refused.into()));
        }
        self.0.poll_message(context)
    }
}

blocking!([] NextMessage);

/// A future of the end of a graceful disconnect; see [`Endpoint::disconnect`].
#[must_use = "the disconnect has begun, but nobody learns of its end"]
pub struct Disconnect {
    state: Arc<EndpointState>,
    refused: Option<CoreError>,
}

impl Disconnect {
    fn adapter(&self) -> &Arc<AdapterState> {
        self.state.adapter()
    }
}

impl Future for Disconnect {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.refused {
            Some(error) => Poll::Ready(Err(error.into())),
            None if self.adapter().is_inherited() => Poll::Ready(Err(Error::Closed)),
            None => self.state.poll_ended(context).map(|_| Ok(())),
        }
    }
}

blocking!([] Disconnect);

/// A future of the end of a connection; see [`Endpoint::ended`].
#[must_use = "futures do nothing unless polled"]
pub struct Ended(Arc<EndpointState>);

impl Ended {
    fn adapter(&self) -> &Arc<AdapterState> {
        self.0.adapter()
    }
}

impl Future for Ended {
    type Output = dat_core::event::ConnectionEventKind;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_ended(context)
    }
}

blocking!([] Ended);

/// Declares `Debug` for futures that have nothing to show.
macro_rules! opaque {
    ($($name:ident)*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}

opaque!(NextMessage Disconnect Ended);
