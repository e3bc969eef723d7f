//! Connections to a peer that listens.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::endpoint::ConnectParam;
use dat_core::flags::{ConnectFlags, QualityOfService, TIMEOUT_INFINITE};

use crate::core::Core;
use crate::endpoint::{Endpoint, Setup};
use crate::error::{Error, Result};
use crate::events::Events;
use crate::peer::Peer;
use crate::shared_receive::SharedReceive;
use crate::wait::blocking;
use crate::zone::Zone;

/// Time for a connection, unless another one is asked for.
const DEADLINE: Duration = Duration::from_secs(10);

/// A connection to make; await it, or call [`wait`](Self::wait).
///
/// ```no_run
/// # async fn connect(zone: dat_host::Zone) -> dat_host::Result<()> {
/// use std::time::Duration;
///
/// let endpoint = zone
///     .connect("192.0.2.1:7174")
///     .private_data(b"version 1")
///     .deadline_in(Duration::from_secs(2))
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens until it is awaited or waited for"]
pub struct Connecting {
    zone: Zone,
    peer: Peer,
    deadline: Duration,
    setup: Setup,
}

impl Connecting {
    pub(crate) fn new(zone: &Zone, peer: Peer) -> Self {
        Self {
            zone: zone.clone(),
            peer,
            deadline: DEADLINE,
            setup: Setup::default(),
        }
    }

    /// Limits the time until the connection is made, instead of 10 seconds.
    ///
    /// From 1 microsecond to 71 minutes.
    pub const fn deadline_in(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sends bytes with the request: at most 64 over `roce://` and `verbs://`, 256 over `mock://`.
    ///
    /// [`Adapter::query`](crate::Adapter::query) has the number of every backend, in
    /// `provider.max_private_data_size`.
    pub fn private_data(mut self, data: &[u8]) -> Self {
        self.setup.private_data = data.to_vec();
        self
    }

    /// Replaces the attributes of the endpoint.
    ///
    /// Without, it has room for 64 requests and 64 receives, and for 16 RDMA Reads in each
    /// direction.
    pub const fn attributes(mut self, attributes: EpAttributes) -> Self {
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

    /// Starts the connection at once; the future only waits for its end.
    ///
    /// Names that are not numeric addresses are resolved first, which blocks. The future returns
    /// the error of a peer that is malformed or unknown. A listener learns nothing of such an
    /// attempt.
    pub fn start(self) -> Connect {
        let core = Arc::clone(self.zone.domain.core());
        Connect {
            state: State::after(self.begin(&core, None)),
            core,
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
    /// The endpoint is then dropped.
    pub fn start_on(self, endpoint: Endpoint) -> Connect {
        let core = Arc::clone(self.zone.domain.core());
        Connect {
            state: State::after(self.begin(&core, Some(endpoint))),
            core,
        }
    }

    fn begin(self, core: &Arc<Core>, given: Option<Endpoint>) -> Result<Endpoint> {
        let (address, qualifier) = self.resolve(core)?;
        let endpoint = self.setup.endpoint(core, &self.zone, given)?;
        let timeout = u32::try_from(self.deadline.as_micros()).unwrap_or(TIMEOUT_INFINITE);
        let param = ConnectParam {
            address,
            qualifier,
            timeout: timeout.min(TIMEOUT_INFINITE - 1),
            private_data: &self.setup.private_data,
            quality: QualityOfService::BEST_EFFORT,
            flags: ConnectFlags::empty(),
        };
        core.interface()
            .ep_connect(endpoint.id(), &param, Core::now())?;
        core.called();
        Ok(endpoint)
    }

    fn resolve(&self, core: &Core) -> Result<(IaAddress, u64)> {
        let network = core.network.as_ref();
        let names = network.map(|network| |name: &str| network.address(name));
        let names = names.as_ref().map(|names| names as &dyn Fn(&str) -> _);
        self.peer.resolve(names)
    }

    /// Connects, and blocks until it is done.
    ///
    /// # Errors
    /// Those of [`Connect`].
    pub fn wait(self) -> Result<Endpoint> {
        self.start().wait()
    }

    /// As [`wait`](Self::wait), for at most `timeout`.
    ///
    /// # Errors
    /// The attempt, which goes on, if it is not done in time.
    pub fn wait_timeout(self, timeout: Duration) -> std::result::Result<Result<Endpoint>, Connect> {
        self.start().wait_timeout(timeout)
    }
}

impl IntoFuture for Connecting {
    type Output = Result<Endpoint>;
    type IntoFuture = Connect;

    fn into_future(self) -> Connect {
        self.start()
    }
}

/// A connection attempt: a future of the endpoint. Dropping it ends the attempt.
///
/// # Errors
/// - [`Malformed`](Error::Malformed): the peer is not `HOST:PORT`.
/// - [`System`](Error::System): the name of the peer cannot be resolved.
/// - [`Refused`](Error::Refused) INVALID_PARAMETER (`timeout`, `private_data`, `attributes`): the
///   time is 0, the data are too long, the attributes are above the limits.
/// - INVALID_ADDRESS: the address is not one of the adapter's fabric.
/// - INSUFFICIENT_RESOURCES: the limits or the device are exhausted.
/// - INVALID_HANDLE: the adapter is closed, or the shared queue or the dispatcher is of another
///   one.
/// - [`Rejected`](Error::Rejected): the peer rejected the request, with its private data.
/// - [`Connection`](Error::Connection): `NonPeerRejected` if nobody listens, `Unreachable`,
///   `TimedOut`, `Broken`.
/// - [`Closed`](Error::Closed): the adapter was closed.
#[must_use = "dropping the future ends the attempt"]
pub struct Connect {
    core: Arc<Core>,
    state: State,
}

/// State of a connection that is made, on either side.
pub(crate) enum State {
    Refused(Error),
    Pending(Endpoint),
    Over,
}

impl State {
    /// Returns the state after the call that begins the connection.
    pub(crate) fn after(begun: Result<Endpoint>) -> Self {
        match begun {
            Ok(endpoint) => Self::Pending(endpoint),
            Err(error) => Self::Refused(error),
        }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Endpoint>> {
        if let Self::Pending(endpoint) = self
            && let Err(error) = ready!(endpoint.link().poll_connected(context))
        {
            // Frees the endpoint.
            *self = Self::Refused(error);
        }
        Poll::Ready(match std::mem::replace(self, Self::Over) {
            Self::Pending(endpoint) => Ok(endpoint),
            Self::Refused(error) => Err(error),
            Self::Over => panic!("polled after it was ready"),
        })
    }
}

impl Connect {
    const fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl Future for Connect {
    type Output = Result<Endpoint>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.state.poll(context)
    }
}

blocking!([] Connect);

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").finish_non_exhaustive()
    }
}
