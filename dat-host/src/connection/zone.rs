//! A protection zone.

use std::fmt;
use std::sync::Arc;

use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::id::PzId;

use super::connect::Connecting;
use super::endpoint::{Dispatch, Endpoint};
use super::events::Events;
use super::listener::Listener;
use super::peer::Peer;
use super::shared_receive::SharedReceive;
use crate::error::{Failed, Result};
use crate::flight::Guard;
use crate::memory::{Buffer, Domain, Pool, ReadRegion, Region, Stable, StableRead, slots};

/// Connection requests that wait at a listener, unless another number is asked for.
pub(crate) const BACKLOG: usize = 64;

/// A protection zone (PZ): regions and endpoints made from one zone may be used together.
///
/// Clones are the same zone. The zone stays until its last region and endpoint is dropped.
///
/// ```
/// # fn main() -> dat_host::Result<()> {
/// let adapter = dat_host::Adapter::open("mock://zone")?;
/// let zone = adapter.zone()?;
/// let listener = zone.listen(7174)?;
/// let region = zone.region(vec![0_u8; 64])?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Zone {
    pub(crate) domain: Arc<Domain>,
    pool: Arc<Pool>,
    pub(crate) guard: Arc<Guard>,
}

impl Zone {
    pub(crate) fn new(guard: &Arc<Guard>) -> Result<Self> {
        let domain = Domain::new(guard.adapter())?;
        Ok(Self {
            pool: Pool::new(&domain),
            domain,
            guard: Arc::clone(guard),
        })
    }

    /// Returns the zone of the core.
    pub fn id(&self) -> PzId {
        self.domain.id()
    }

    /// Returns the address at which peers reach the adapter.
    ///
    /// # Errors
    /// [`Refused`](crate::Error::Refused) INVALID_HANDLE: the adapter is closed.
    pub fn address(&self) -> Result<IaAddress> {
        self.domain.adapter().address()
    }

    /// Registers the memory of `value`, which the region owns until it is dropped.
    ///
    /// The region has local rights only (Spec: RMB-45).
    ///
    /// # Errors
    /// Returns the value, and
    /// - [`Refused`](crate::Error::Refused) INVALID_PARAMETER (`memory`): the memory is empty, or
    ///   too long for the device.
    /// - INSUFFICIENT_RESOURCES: no region is left, in the limits or in the device.
    /// - INVALID_HANDLE: the adapter is closed.
    pub fn region<B: Stable>(&self, value: B) -> Result<Region<B>, Failed<B>> {
        Region::new(&self.domain, value)
    }

    /// Registers bytes that nobody writes, which the region and its clones own.
    ///
    /// The region has the local right to read only.
    ///
    /// # Errors
    /// Returns the value, with the errors of [`region`](Self::region). A device of
    /// libibverbs refuses memory that is not mapped for writes, such as constants, if peers may
    /// get windows on it.
    pub fn read_region<B: StableRead>(&self, value: B) -> Result<ReadRegion<B>, Failed<B>> {
        ReadRegion::new(&self.domain, value)
    }

    /// Returns a buffer of `length` bytes, which may be 0; the bytes are undefined.
    ///
    /// The memory comes from the pool of the zone, which grows in blocks of 64 KiB.
    ///
    /// # Errors
    /// [`Refused`](crate::Error::Refused) INSUFFICIENT_RESOURCES: the pool cannot grow, or
    /// `length` is above 2 GiB.
    pub fn buffer(&self, length: usize) -> Result<Buffer> {
        Ok(Buffer::new(self.pool.take(length)?, length))
    }

    /// Returns a buffer that holds a copy of `bytes`.
    ///
    /// # Errors
    /// Those of [`buffer`](Self::buffer).
    pub fn copy(&self, bytes: &[u8]) -> Result<Buffer> {
        let mut buffer = self.buffer(bytes.len())?;
        buffer.copy_from_slice(bytes);
        Ok(buffer)
    }

    /// Returns `count` buffers of `size` bytes, which are 0, in one block outside of the pool.
    ///
    /// The block is registered once, and freed with its last buffer.
    ///
    /// # Errors
    /// - [`Refused`](crate::Error::Refused) INVALID_PARAMETER (`memory`): the block is empty.
    /// - INSUFFICIENT_RESOURCES: there is no memory for the block, it is longer than the longest
    ///   region of the device, or no region is left.
    /// - INVALID_HANDLE: the adapter is closed.
    pub fn buffers(&self, count: usize, size: usize) -> Result<Vec<Buffer>> {
        let slots = slots(&self.domain, count, size)?;
        Ok(slots.map(|slot| Buffer::new(slot, size)).collect())
    }

    /// Creates an endpoint without a connection, to post receives before the peer sends.
    ///
    /// [`Connecting::start_on`] and [`Accepting::start_on`](crate::Accepting::start_on) connect it.
    /// Without attributes, it has room for as many operations as [`Connecting::attributes`] says.
    ///
    /// ```
    /// # fn main() -> dat_host::Result<()> {
    /// # let zone = dat_host::Adapter::open("mock://before")?.zone()?;
    /// let listener = zone.listen(7174)?;
    /// let client = zone.connect("before:7174").start();
    /// let request = listener.next().wait()?;
    /// let endpoint = zone.endpoint(None)?;
    /// let receive = endpoint.recv(zone.buffer(64)?);
    /// let server = request.accept().start_on(endpoint).wait()?;
    /// client.wait()?.send(zone.copy(b"at once")?).wait()?;
    /// assert_eq!(&receive.wait()?.memory[..], b"at once");
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Refused`](crate::Error::Refused) INVALID_PARAMETER (`attributes`): they are above the
    ///   limits.
    /// - INSUFFICIENT_RESOURCES: the limits or the device are exhausted.
    /// - INVALID_HANDLE: the adapter is closed.
    pub fn endpoint(&self, attributes: Option<EpAttributes>) -> Result<Endpoint> {
        Ok(Endpoint::create(self, attributes, None, Dispatch::Driver)?)
    }

    /// As [`endpoint`](Self::endpoint); the program takes the completions of requests from
    /// `requests`.
    ///
    /// Requests are Sends, Writes, Reads and binds. Completions of receives go to the driver. So a
    /// server that answers each message wakes up once for a message, and not for the end of its
    /// answer: until [`Events::next`] is first polled, the device notifies nobody of requests.
    ///
    /// ```
    /// # fn main() -> dat_host::Result<()> {
    /// # let zone = dat_host::Adapter::open("mock://requests")?.zone()?;
    /// let requests = zone.events()?;
    /// let endpoint = zone.endpoint_with_events(None, &requests)?;
    /// let question = endpoint.recv(zone.buffer(64)?);
    /// # let listener = zone.listen(7174)?;
    /// # let client = zone.connect("requests:7174").start();
    /// let server = listener.next().wait()?.accept().start_on(endpoint).wait()?;
    /// # let client = client.wait()?;
    /// # let answer = client.recv(zone.buffer(64)?);
    /// # client.send(zone.copy(b"again")?).wait()?;
    /// let sent = server.send(question.wait()?.memory);
    /// # answer.wait()?;
    /// // Later, when the buffer of the answer is needed again:
    /// let _event = requests.next().wait()?;
    /// let buffer = sent.wait()?;
    /// # assert_eq!(&buffer[..], b"again");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`endpoint`](Self::endpoint), and INVALID_HANDLE (EVD): `requests` is of another
    /// adapter.
    pub fn endpoint_with_events(
        &self,
        attributes: Option<EpAttributes>,
        requests: &Events,
    ) -> Result<Endpoint> {
        let dispatch = Dispatch::Requests(requests);
        Ok(Endpoint::create(self, attributes, None, dispatch)?)
    }

    /// Begins a connection to a peer: `HOST:PORT`, or address and connection qualifier.
    ///
    /// Nothing happens until the result is awaited or waited for. In a network of this process the
    /// host is the name of the peer's adapter.
    pub fn connect(&self, peer: impl Into<Peer>) -> Connecting {
        Connecting::new(self, peer.into())
    }

    /// Listens on a connection qualifier, with room for 64 requests that wait.
    ///
    /// # Errors
    /// Those of [`listen_with`](Self::listen_with).
    pub fn listen(&self, qualifier: u64) -> Result<Listener> {
        self.listen_with(Some(qualifier), BACKLOG)
    }

    /// Listens on a connection qualifier, or on a free one.
    ///
    /// While `backlog` requests wait, further ones are refused.
    ///
    /// # Errors
    /// - [`NotLocal`](crate::Error::NotLocal): peers of this host would not find the qualifier, and
    ///   the adapter takes no others (`path=local`).
    /// - [`Refused`](crate::Error::Refused) CONN_QUAL_IN_USE: another listener has the qualifier.
    /// - INVALID_PARAMETER (`qualifier`): the transport cannot express it.
    /// - INVALID_PARAMETER (`min_qlen`): the backlog is 0.
    /// - [`Backlog`](crate::Error::Backlog): the backlog is longer than the adapter has
    ///   connections.
    /// - CONN_QUAL_UNAVAILABLE: no qualifier is free.
    /// - INSUFFICIENT_RESOURCES: the limits or the device are exhausted.
    /// - INVALID_HANDLE: the adapter is closed.
    pub fn listen_with(&self, qualifier: Option<u64>, backlog: usize) -> Result<Listener> {
        Listener::new(self, qualifier, backlog)
    }

    /// Creates a dispatcher of raw completions, which the program takes by itself.
    ///
    /// # Errors
    /// [`Refused`](crate::Error::Refused) INSUFFICIENT_RESOURCES: the limits or the device are
    /// exhausted; INVALID_HANDLE: the adapter is closed.
    pub fn events(&self) -> Result<Events> {
        Events::new(self)
    }

    /// Creates a shared receive queue of `count` posted buffers of `size` bytes.
    ///
    /// [`SharedReceive`] tells how many buffers a server needs.
    ///
    /// # Errors
    /// - [`Refused`](crate::Error::Refused) INVALID_PARAMETER (`attributes`): `count` is 0, or
    ///   above the limit of the device.
    /// - INVALID_PARAMETER (`memory`): `size` is 0.
    /// - MODEL_NOT_SUPPORTED: the device has no shared receive queues.
    /// - INSUFFICIENT_RESOURCES: the limits or the device are exhausted, there is no memory for the
    ///   buffers, or they are together longer than the longest region of the device.
    /// - INVALID_HANDLE: the adapter is closed.
    pub fn shared_receive(&self, count: usize, size: usize) -> Result<SharedReceive> {
        SharedReceive::new(self, count, size)
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zone").field("id", &self.id()).finish()
    }
}
