//! A connection request, to accept or to reject.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::flags::CrFields;
use dat_core::id::CrId;

use super::connect::State;
use super::endpoint::{Endpoint, Setup};
use super::events::Events;
use super::shared_receive::SharedReceive;
use super::zone::Zone;
use crate::drive::blocking;
use crate::error::Result;
use crate::flight::AdapterState;

/// A connection request of a peer (CR); dropping it rejects it without private data.
pub struct Request {
    zone: Zone,
    /// `None` once it is answered.
    cr: Option<CrId>,
    id: CrId,
    remote: Option<IaAddress>,
    local: Option<IaAddress>,
    is_proven: bool,
    private_data: Vec<u8>,
}

impl Request {
    pub(crate) fn new(zone: &Zone, cr: CrId) -> Result<Self> {
        let mut this = Self {
            zone: zone.clone(),
            cr: Some(cr),
            id: cr,
            remote: None,
            local: None,
            is_proven: false,
            private_data: Vec::new(),
        };
        let interface = this.zone.domain.adapter().interface();
        let param = interface.cr_query(cr, CrFields::empty())?;
        this.remote = param.remote_address;
        this.local = param.local_address;
        this.is_proven = interface.cr_is_proven(cr)?;
        this.private_data = param.private_data.to_vec();
        Ok(this)
    }

    /// Returns the connection request of the core.
    pub const fn id(&self) -> CrId {
        self.id
    }

    /// Returns the address of the peer, if the transport knows it.
    pub const fn remote_address(&self) -> Option<IaAddress> {
        self.remote
    }

    /// Returns the address of this host that the peer connects to, if the transport knows it.
    ///
    /// A device may have several.
    pub const fn local_address(&self) -> Option<IaAddress> {
        self.local
    }

    /// Returns false if the address of the peer may be forged.
    ///
    /// Such a request may be one of a flood that never connects: hold little for it until it is
    /// established. Transports that do not tell return true.
    pub const fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Returns the private data of the peer.
    ///
    /// Some transports fill it up with zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Accepts the request, on a new endpoint in the zone of the listener.
    ///
    /// Nothing happens until the result is awaited or waited for.
    pub fn accept(self) -> Accepting {
        Accepting {
            request: self,
            setup: Setup::default(),
        }
    }

    /// Rejects the request with private data.
    ///
    /// # Errors
    /// [`Refused`](crate::Error::Refused) INVALID_PARAMETER (`private_data`): more bytes than
    /// [`Connecting`](crate::Connecting::private_data) names. The request is then rejected without
    /// data.
    pub fn reject(mut self, private_data: &[u8]) -> Result<()> {
        let adapter = self.zone.domain.adapter();
        adapter.interface().cr_reject(self.id, private_data)?;
        adapter.called();
        self.cr = None;
        Ok(())
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(cr) = self.cr.take() {
            let adapter = self.zone.domain.adapter();
            // Fails only if the adapter is closed.
            let _ = adapter.interface().cr_reject(cr, &[]);
            adapter.called();
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("id", &self.id)
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}

/// A request to accept; await it, or call [`wait`](Self::wait). Dropping it rejects the request.
#[derive(Debug)]
#[must_use = "dropping it rejects the request"]
pub struct Accepting {
    request: Request,
    setup: Setup,
}

impl Accepting {
    /// Sends bytes with the answer, at most as many as
    /// [`Connecting`](crate::Connecting::private_data) names.
    pub fn private_data(mut self, data: &[u8]) -> Self {
        self.setup.private_data = data.to_vec();
        self
    }

    /// Replaces the attributes of the endpoint, as for
    /// [`Connecting`](crate::Connecting::attributes).
    pub fn attributes(mut self, attributes: EpAttributes) -> Self {
        self.setup.attributes = Some(attributes);
        self
    }

    /// Lets the endpoint receive from a shared queue, by [`Endpoint::next_message`].
    pub fn receive(mut self, queue: &SharedReceive) -> Self {
        self.setup.queue = Some(queue.clone());
        self
    }

    /// Lets the program take the completions of the endpoint by itself.
    pub fn events(mut self, events: &Events) -> Self {
        self.setup.events = Some(events.clone());
        self
    }

    /// Accepts at once; the future only waits until the connection is made.
    pub fn start(self) -> Accept {
        let adapter = Arc::clone(self.request.zone.domain.adapter());
        Accept {
            state: State::after(self.begin(&adapter, None)),
            adapter,
        }
    }

    /// As [`start`](Self::start), on an endpoint of [`Zone::endpoint`], of any zone of the adapter.
    ///
    /// The attributes and queues of the endpoint are its own.
    ///
    /// # Errors
    /// Those of the future, and
    /// - [`NotApplicable`](crate::Error::NotApplicable): [`attributes`](Self::attributes),
    ///   [`receive`](Self::receive) or [`events`](Self::events) was called.
    /// - INVALID_HANDLE (EP): the endpoint is of another adapter.
    /// - INVALID_STATE: the endpoint has a connection.
    ///
    /// The endpoint is then dropped, and the request rejected.
    pub fn start_on(self, endpoint: Endpoint) -> Accept {
        let adapter = Arc::clone(self.request.zone.domain.adapter());
        Accept {
            state: State::after(self.begin(&adapter, Some(endpoint))),
            adapter,
        }
    }

    fn begin(mut self, adapter: &Arc<AdapterState>, given: Option<Endpoint>) -> Result<Endpoint> {
        let endpoint = self.setup.endpoint(adapter, &self.request.zone, given)?;
        let (interface, data) = (adapter.interface(), &self.setup.private_data);
        interface.cr_accept(self.request.id, Some(endpoint.id()), data)?;
        self.request.cr = None;
        adapter.called();
        Ok(endpoint)
    }

    /// Accepts, and blocks until the connection is made.
    ///
    /// # Errors
    /// Those of [`Accept`].
    pub fn wait(self) -> Result<Endpoint> {
        self.start().wait()
    }

    /// As [`wait`](Self::wait), for at most `timeout`.
    ///
    /// # Errors
    /// The accepted request, which goes on, if it is not done in time.
    pub fn wait_timeout(self, timeout: Duration) -> std::result::Result<Result<Endpoint>, Accept> {
        self.start().wait_timeout(timeout)
    }
}

impl IntoFuture for Accepting {
    type Output = Result<Endpoint>;
    type IntoFuture = Accept;

    fn into_future(self) -> Accept {
        self.start()
    }
}

/// An accepted request: a future of the endpoint. Dropping it ends the connection.
///
/// # Errors
/// The request is rejected if it cannot be accepted:
/// - [`Refused`](crate::Error::Refused) INVALID_PARAMETER (`private_data`, `attributes`): the data
///   are too long, or the attributes are above the limits.
/// - INVALID_HANDLE (CR): the peer has given up.
/// - INVALID_HANDLE: the shared queue or the dispatcher is of another adapter.
/// - INSUFFICIENT_RESOURCES: the limits or the device are exhausted.
/// - [`Connection`](crate::Error::Connection) `AcceptCompletionError`: the peer is gone.
/// - [`Closed`](crate::Error::Closed): the adapter was closed.
#[must_use = "dropping the future ends the connection"]
pub struct Accept {
    adapter: Arc<AdapterState>,
    state: State,
}

impl Accept {
    const fn adapter(&self) -> &Arc<AdapterState> {
        &self.adapter
    }
}

impl Future for Accept {
    type Output = Result<Endpoint>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.state.poll(context)
    }
}

blocking!([] Accept);

impl fmt::Debug for Accept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accept").finish_non_exhaustive()
    }
}
