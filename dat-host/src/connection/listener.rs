//! Listeners, and the connection requests that they receive.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use dat_core::event::Event;
use dat_core::flags::{EvdFlags, PspFlags};
use dat_core::id::{CrId, EvdId, PspId};

use super::request::Request;
use super::zone::{BACKLOG, Zone};
use crate::drive::blocking;
use crate::error::{Error, Result};
use crate::flight::{AdapterState, Offers};
use crate::lock::lock;
use crate::wake::{Wakers, poll_state};

/// A listener on a connection qualifier (PSP).
///
/// Threads may share it: each request goes to one of them.
///
/// Dropping it refuses the requests that wait. Endpoints of accepted requests stay.
///
/// ```
/// # fn main() -> dat_host::Result<()> {
/// # let zone = dat_host::Adapter::open("mock://listener")?.zone()?;
/// let listener = zone.listen(7174)?;
/// let client = zone.connect("listener:7174").private_data(b"name").start();
/// let request = listener.next().wait()?;
/// assert_eq!(&request.private_data()[..4], b"name");
/// let server = request.accept().wait()?;
/// let client = client.wait()?;
/// # Ok(())
/// # }
/// ```
pub struct Listener {
    requests: Arc<Requests>,
    zone: Zone,
}

impl Listener {
    pub(crate) fn new(zone: &Zone, qualifier: Option<u64>, backlog: usize) -> Result<Self> {
        let adapter = zone.domain.adapter();
        let interface = adapter.interface();
        // Each request that waits is one of the adapter's connections.
        let most = usize::try_from(interface.limits()?.max_eps).unwrap_or(0);
        if backlog > most.max(BACKLOG) {
            return Err(Error::Backlog {
                asked: backlog,
                most,
            });
        }
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        let evd = interface.evd_create(backlog, None, EvdFlags::CR)?;
        let listening = match qualifier {
            Some(qualifier) => interface
                .psp_create(qualifier, evd, PspFlags::Consumer)
                .map(|psp| (psp, qualifier)),
            None => interface.psp_create_any(evd, PspFlags::Consumer),
        };
        let (psp, qualifier) = listening.map_err(|error| {
            // Nothing feeds the dispatcher.
            let _ = interface.evd_free(evd);
            adapter
                .device()
                .not_local()
                .map_or(error.into(), Error::NotLocal)
        })?;
        let requests = Arc::new(Requests {
            adapter: Arc::clone(adapter),
            psp,
            qualifier,
            evd,
            futures: AtomicUsize::new(0),
            waiting: Mutex::default(),
        });
        adapter.add_offers(Arc::<Requests>::downgrade(&requests));
        Ok(Self {
            requests,
            zone: zone.clone(),
        })
    }

    /// Returns the public service point of the core.
    pub fn id(&self) -> PspId {
        self.requests.psp
    }

    /// Returns the connection qualifier.
    pub fn qualifier(&self) -> u64 {
        self.requests.qualifier
    }

    /// Returns the next connection request.
    ///
    /// It waits as long as no request comes. A client that failed before its request arrived leaves
    /// none, so use `wait_timeout` if you expect one. A client that gave up later leaves a request
    /// that cannot be accepted. Dropping the future loses no request.
    ///
    /// # Errors
    /// [`Closed`](Error::Closed): the adapter was closed.
    pub fn next(&self) -> NextRequest<'_> {
        self.requests.futures.fetch_add(1, Ordering::Relaxed);
        NextRequest(self)
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("id", &self.id())
            .field("qualifier", &self.qualifier())
            .finish()
    }
}

/// The requests of a listener that wait in its dispatcher.
pub(crate) struct Requests {
    adapter: Arc<AdapterState>,
    psp: PspId,
    qualifier: u64,
    evd: EvdId,
    /// Number of futures of requests.
    futures: AtomicUsize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// A request that the driver took to see that there is one.
    taken: Option<CrId>,
    wakers: Wakers,
}

impl Requests {
    fn dequeue(&self) -> Option<CrId> {
        match self.adapter.interface().evd_dequeue(self.evd) {
            Ok(Event::ConnectionRequest { cr, .. }) => Some(cr),
            _ => None,
        }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<CrId>> {
        if self.adapter.is_inherited() {
            return Poll::Ready(Err(Error::Closed));
        }
        let futures = self.futures.load(Ordering::Relaxed);
        poll_state(
            &self.waiting,
            context,
            futures,
            |waiting| &mut waiting.wakers,
            |waiting| match waiting.taken.take().or_else(|| self.dequeue()) {
                Some(cr) => Some(Ok(cr)),
                None => self.adapter.is_closed().then_some(Err(Error::Closed)),
            },
        )
    }
}

impl Offers for Requests {
    fn offer(&self) {
        let wakers = {
            let mut waiting = lock(&self.waiting);
            if waiting.wakers.is_empty() {
                return;
            }
            waiting.taken = waiting.taken.or_else(|| self.dequeue());
            if waiting.taken.is_none() && !self.adapter.is_closed() {
                return;
            }
            waiting.wakers.take()
        };
        wakers.wake();
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        if self.adapter.is_inherited() {
            return;
        }
        let interface = self.adapter.interface();
        // These fail only if the adapter is closed.
        let _ = interface.psp_free(self.psp);
        if let Some(cr) = lock(&self.waiting).taken.take() {
            let _ = interface.cr_reject(cr, &[]);
        }
        let _ = interface.evd_free(self.evd);
        self.adapter.called();
    }
}

/// A future of the next connection request; see [`Listener::next`].
#[must_use = "futures do nothing unless polled"]
pub struct NextRequest<'a>(&'a Listener);

impl NextRequest<'_> {
    fn adapter(&self) -> &Arc<AdapterState> {
        &self.0.requests.adapter
    }
}

impl Drop for NextRequest<'_> {
    fn drop(&mut self) {
        self.0.requests.futures.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Future for NextRequest<'_> {
    type Output = Result<Request>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let listener = self.0;
        match listener.requests.poll(context) {
            Poll::Ready(Ok(cr)) => Poll::Ready(Request::new(&listener.zone, cr)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }
}

blocking!(['a] NextRequest<'a>);

impl fmt::Debug for NextRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NextRequest").field(&self.0).finish()
    }
}
