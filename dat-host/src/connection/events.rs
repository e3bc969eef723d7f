//! Dispatchers of completions that the program takes by itself.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use dat_core::event::Event;
use dat_core::flags::{DtoStatus, EvdFlags};
use dat_core::id::EvdId;

use super::zone::Zone;
use crate::drive::blocking;
use crate::error::{Error, Result};
use crate::flight::{AdapterState, Guard, Offers};
use crate::lock::lock;
use crate::wake::{Wakers, poll_state};

/// A dispatcher (EVD) of raw completions of endpoints, which the program takes by itself.
///
/// Endpoints use it if they are made with [`Connecting::events`](crate::Connecting::events) or
/// [`Accepting::events`](crate::Accepting::events). Their operations then end when the program
/// takes their events, and not before: the driver leaves them alone. A program that polls
/// [`try_next`](Self::try_next) reads the device's queue directly, without a wake-up in between.
/// Endpoints of [`Zone::endpoint_with_events`] use it for all but their receives.
///
/// The event of an operation has its [cookie](crate::Transfer::cookie). From then on its future is
/// ready, and gives the memory back. So nobody may wait for a future of these endpoints on the
/// only thread that takes events. Receives of a [`SharedReceive`](crate::SharedReceive) and
/// connections are not among the events.
///
/// Clones are the same dispatcher, which stays until its last endpoint is dropped.
///
/// ```
/// # fn main() -> dat_host::Result<()> {
/// use dat_host::Event;
///
/// let zone = dat_host::Adapter::open("mock://events")?.zone()?;
/// let events = zone.events()?;
/// let listener = zone.listen(7174)?;
/// let client = zone.connect("events:7174").events(&events).start();
/// let server = listener.next().wait()?.accept().wait()?;
/// let client = client.wait()?;
/// let receive = server.recv(zone.buffer(5)?);
///
/// let sent = client.send(zone.copy(b"hello")?);
/// let Event::Dto(completion) = events.next().wait()? else {
///     unreachable!("only a Send was posted");
/// };
/// assert_eq!(Some(completion.cookie), sent.cookie());
/// let buffer = sent.wait()?; // does not block
/// assert_eq!((&buffer[..], &receive.wait()?.memory[..]), (&b"hello"[..], &b"hello"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Events {
    pub(crate) queue: Arc<EventQueue>,
    _guard: Arc<Guard>,
}

impl Events {
    pub(crate) fn new(zone: &Zone) -> Result<Self> {
        let adapter = Arc::clone(zone.domain.adapter());
        let streams = EvdFlags::DTO | EvdFlags::RMR_BIND;
        let evd = adapter.interface().evd_create(1, None, streams)?;
        let queue = Arc::new(EventQueue {
            adapter,
            evd,
            futures: AtomicUsize::new(0),
            is_armed: AtomicBool::new(false),
            unarmed: AtomicBool::new(true),
            waiting: Mutex::default(),
        });
        queue
            .adapter
            .add_offers(Arc::<EventQueue>::downgrade(&queue));
        Ok(Self {
            queue,
            _guard: Arc::clone(&zone.guard),
        })
    }

    /// Returns the event dispatcher of the core.
    pub fn id(&self) -> EvdId {
        self.queue.evd
    }

    /// Takes the next event, if there is one.
    ///
    /// Wakers of the operation's future run on the calling thread.
    pub fn try_next(&self) -> Option<Event> {
        if self.queue.adapter.is_inherited() {
            return None;
        }
        let event = {
            let mut waiting = lock(&self.queue.waiting);
            waiting.taken.take().or_else(|| self.queue.dequeue())
        };
        event.inspect(|event| self.queue.complete(event))
    }

    /// Returns the next event.
    ///
    /// Dropping the future loses no event.
    ///
    /// # Errors
    /// [`Closed`](Error::Closed): the adapter was closed.
    pub fn next(&self) -> NextEvent<'_> {
        self.queue.futures.fetch_add(1, Ordering::Relaxed);
        NextEvent(self)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("id", &self.id()).finish()
    }
}

/// The dispatcher, which its endpoints keep.
pub(crate) struct EventQueue {
    adapter: Arc<AdapterState>,
    evd: EvdId,
    /// Number of futures of events.
    futures: AtomicUsize,
    /// Set once a future has waited: the device's queue is armed from then on.
    is_armed: AtomicBool,
    /// Set if the driver has to arm the device's queue: an event was taken without it.
    unarmed: AtomicBool,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// An event that the driver took to see that there is one.
    taken: Option<Event>,
    wakers: Wakers,
}

impl EventQueue {
    pub(crate) const fn id(&self) -> EvdId {
        self.evd
    }

    pub(crate) const fn adapter(&self) -> &Arc<AdapterState> {
        &self.adapter
    }

    fn dequeue(&self) -> Option<Event> {
        let event = self.adapter.interface().evd_dequeue(self.evd).ok();
        if event.is_some() {
            self.unarmed.store(true, Ordering::Release);
        }
        event
    }

    /// Completes the operation of an event.
    ///
    /// A failure ends the connection, which the device need not report by itself.
    fn complete(&self, event: &Event) {
        self.adapter.complete(event);
        let failed = |status| !matches!(status, DtoStatus::Success | DtoStatus::Flushed);
        if matches!(event, Event::Dto(done) if failed(done.status)) {
            self.adapter.wake_driver();
        }
    }

    /// Lets the device notify the driver of events.
    ///
    /// A program that only calls `try_next` needs no notifications, which cost a wake-up each.
    fn arm(&self) {
        if !self.is_armed.swap(true, Ordering::AcqRel) {
            let interface = self.adapter.interface();
            // Fails only if the adapter is closed.
            let _ = interface.evd_modify_cno(self.evd, Some(self.adapter.arming));
            // Events that came before may have been moved without a notification.
            self.adapter.wake_driver();
        }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<Event>> {
        if self.adapter.is_inherited() {
            return Poll::Ready(Err(Error::Closed));
        }
        self.arm();
        let futures = self.futures.load(Ordering::Relaxed);
        let polled = poll_state(
            &self.waiting,
            context,
            futures,
            |waiting| &mut waiting.wakers,
            |waiting| match waiting.taken.take().or_else(|| self.dequeue()) {
                Some(event) => Some(Ok(event)),
                None => self.adapter.is_closed().then_some(Err(Error::Closed)),
            },
        );
        match &polled {
            Poll::Ready(Ok(event)) => self.complete(event),
            Poll::Ready(Err(_)) => {}
            // Once only: a thread that drives while it waits would wake itself for ever.
            Poll::Pending if self.unarmed.swap(false, Ordering::AcqRel) => {
                self.adapter.wake_driver()
            }
            Poll::Pending => {}
        }
        polled
    }
}

impl Offers for EventQueue {
    fn offer(&self) {
        let wakers = {
            let mut waiting = lock(&self.waiting);
            if waiting.wakers.is_empty() {
                return;
            }
            waiting.taken = waiting.taken.take().or_else(|| self.dequeue());
            if waiting.taken.is_none() && !self.adapter.is_closed() {
                return;
            }
            waiting.wakers.take()
        };
        wakers.wake();
    }
}

impl Drop for EventQueue {
    fn drop(&mut self) {
        // Fails only if the adapter is closed: endpoints keep the dispatcher.
        let _ = self.adapter.interface().evd_free(self.evd);
    }
}

/// A future of the next event; see [`Events::next`].
#[must_use = "futures do nothing unless polled"]
pub struct NextEvent<'a>(&'a Events);

impl NextEvent<'_> {
    fn adapter(&self) -> &Arc<AdapterState> {
        &self.0.queue.adapter
    }
}

impl Drop for NextEvent<'_> {
    fn drop(&mut self) {
        self.0.queue.futures.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Future for NextEvent<'_> {
    type Output = Result<Event>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.queue.poll(context)
    }
}

blocking!(['a] NextEvent<'a>);

impl fmt::Debug for NextEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NextEvent").field(&self.0).finish()
    }
}
