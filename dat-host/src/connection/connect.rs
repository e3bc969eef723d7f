//! Connections to a peer that listens.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use dat_core::ErrorKind;
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::endpoint::ConnectParam;
use dat_core::event::ConnectionEventKind;
use dat_core::flags::{ConnectFlags, QualityOfService, TIMEOUT_INFINITE};

use super::endpoint::{Endpoint, Setup};
use super::events::Events;
use super::peer::Peer;
use super::shared_receive::SharedReceive;
use super::zone::Zone;
use crate::drive::blocking;
use crate::error::{Error, Result};
use crate::flight::AdapterState;

/// Time for a connection, unless another one is asked for.
const DEADLINE: Duration = Duration::from_secs(10);
/// Longest time for a connection; the core counts microseconds in 32 bits.
const LONGEST: Duration = Duration::from_micros(TIMEOUT_INFINITE as u64 - 1);

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

    /// Starts the connection at once; the future waits for its end.
    ///
    /// Names that are not numeric addresses are resolved first, which blocks. The future returns
    /// the error of a peer that is malformed or unknown. A listener learns nothing of such an
    /// attempt.
    ///
    /// A peer with several addresses is tried at each, in order, until one answers. An answer that
    /// rejects the connection ends the attempt, too. The first attempt starts at once, and a later
    /// one when the future is polled. The addresses share the time.
    pub fn start(self) -> Connect {
        self.start_with(None)
    }

    /// As [`start`](Self::start), on an endpoint of [`Zone::endpoint`], of any zone of the adapter.
    ///
    /// The attributes and queues of the endpoint are its own. Its posted receives are for one
    /// attempt, so only the first address that the adapter can use is tried.
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
        self.start_with(Some(endpoint))
    }

    fn start_with(self, given: Option<Endpoint>) -> Connect {
        let adapter = Arc::clone(self.zone.domain.adapter());
        let is_given = given.is_some();
        let addresses = match self.resolve(&adapter) {
            Ok(addresses) => addresses.into_iter(),
            Err(error) => {
                return Connect {
                    adapter,
                    state: State::Refused(error),
                    rest: None,
                };
            }
        };
        let end = Instant::now() + self.deadline.min(LONGEST);
        let mut rest = Rest {
            connecting: self,
            addresses,
            end,
        };
        let state = State::after(rest.begin(&adapter, given));
        let rest = (!is_given && rest.addresses.len() > 0).then(|| Box::new(rest));
        Connect {
            adapter,
            state,
            rest,
        }
    }

    fn resolve(&self, adapter: &AdapterState) -> Result<Vec<(IaAddress, u64)>> {
        if adapter.is_inherited() {
            // The names of the parent's network have a lock, too.
            return Err(Error::Closed);
        }
        let network = adapter.network.as_ref();
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
/// - [`NotLocal`](Error::NotLocal): the adapter or the peer has `path=local`, and there is no way
///   through shared memory.
/// - [`Closed`](Error::Closed): the adapter was closed.
#[must_use = "dropping the future ends the attempt"]
pub struct Connect {
    adapter: Arc<AdapterState>,
    state: State,
    /// The addresses of the peer that are not tried yet, if there are any.
    rest: Option<Box<Rest>>,
}

/// The addresses of a peer that are not tried yet.
struct Rest {
    connecting: Connecting,
    addresses: std::vec::IntoIter<(IaAddress, u64)>,
    /// End of the time for all of them.
    end: Instant,
}

impl Rest {
    /// Starts an attempt at the next address that the adapter can use.
    ///
    /// # Errors
    /// That of the last address, or an error that all addresses have.
    fn begin(&mut self, adapter: &Arc<AdapterState>, given: Option<Endpoint>) -> Result<Endpoint> {
        let Connecting {
            zone,
            setup,
            deadline,
            ..
        } = &self.connecting;
        let endpoint = setup.endpoint(adapter, zone, given)?;
        let count = u32::try_from(self.addresses.len())
            .unwrap_or(u32::MAX)
            .max(1);
        loop {
            let Some((address, qualifier)) = self.addresses.next() else {
                return Err(Error::Malformed("an address"));
            };
            // A time of 0 is refused with its cause.
            let time = match deadline.is_zero() {
                true => Duration::ZERO,
                false => {
                    let left = self.end.saturating_duration_since(Instant::now());
                    (left / count).max(Duration::from_micros(1))
                }
            };
            let timeout = u32::try_from(time.as_micros()).unwrap_or(TIMEOUT_INFINITE - 1);
            let param = ConnectParam {
                address,
                qualifier,
                timeout,
                private_data: &setup.private_data,
                quality: QualityOfService::BEST_EFFORT,
                flags: ConnectFlags::empty(),
            };
            let interface = adapter.interface();
            match interface.ep_connect(endpoint.id(), &param, adapter.now()) {
                Ok(()) => {
                    adapter.called();
                    return Ok(endpoint);
                }
                // A refused call has no effect on the endpoint.
                Err(error)
                    if error.kind() == ErrorKind::InvalidAddress && self.addresses.len() > 0 => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Returns true if another address of the peer may be reached after this error.
const fn is_elsewhere(error: &Error) -> bool {
    match error {
        Error::Connection(kind) => matches!(
            kind,
            ConnectionEventKind::NonPeerRejected
                | ConnectionEventKind::Unreachable
                | ConnectionEventKind::TimedOut
        ),
        Error::Refused(error) => matches!(error.kind(), ErrorKind::InvalidAddress),
        _ => false,
    }
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
            && let Err(error) = ready!(endpoint.state().poll_connected(context))
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
    const fn adapter(&self) -> &Arc<AdapterState> {
        &self.adapter
    }
}

impl Future for Connect {
    type Output = Result<Endpoint>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            adapter,
            state,
            rest,
        } = &mut *self;
        loop {
            let done = ready!(state.poll(context));
            match (&done, &mut *rest) {
                (Err(error), Some(others)) if is_elsewhere(error) && others.addresses.len() > 0 => {
                    *state = State::after(others.begin(adapter, None));
                }
                (Err(error), _) if is_elsewhere(error) => {
                    let reason = adapter.device().not_local();
                    return Poll::Ready(reason.map_or(done, |reason| Err(Error::NotLocal(reason))));
                }
                _ => return Poll::Ready(done),
            }
        }
    }
}

blocking!([] Connect);

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").finish_non_exhaustive()
    }
}
