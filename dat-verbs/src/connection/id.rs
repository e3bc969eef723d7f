//! Identifiers.

use core::ffi::{c_int, c_uint};
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use dat_core::backend::{ListenerKey, RequestKey};
use nix::errno::Errno;

use super::attributes::forget_request;
use super::channel::{Event, EventChannel, Events, News, acknowledge, create, next};
use super::pair::adopt;
use crate::adapter::{Adapter, Subject, adapter};
use crate::boundary::layout::{
    IBV_QPT_RC, RDMA_CM_EVENT_REJECTED, RDMA_PS_TCP, ibv_sa_path_rec, rdma_cm_id,
};
use crate::boundary::{Address, Handle, In, Kind, Out, zeroed};
use crate::completion::{Channel, Queue};
use crate::errors::{Result, ask_for_memory, done, require};
use crate::events::Unacknowledged;
use crate::locks::lock;
use crate::memory::Domain;
use crate::transfer::{Pair, Wanted};

/// An identifier of rdma_cm.
pub(crate) struct Id {
    pub(crate) adapter: Arc<Adapter>,
    state: Mutex<State>,
    way: Mutex<Way>,
    /// Token of a listener in events of the adapter.
    pub(super) token: u64,
    /// Events that the program has yet to acknowledge.
    pub(super) events: Unacknowledged,
    /// Requests that a listener takes before the program has taken one.
    pub(super) places: AtomicU32,
}

impl Kind for Id {
    type C = rdma_cm_id;
}

/// Progress of an identifier towards a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    New,
    Bound,
    AddressResolved,
    RouteResolved,
    Listening(ListenerKey),
    /// It has the request of a peer to decide about.
    Requested(RequestKey),
    /// It asked a peer, or has accepted the request of one.
    Connecting,
    Connected,
    Disconnected,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    /// Path that the structure names.
    pub(super) path: Option<Box<ibv_sa_path_rec>>,
    pub(super) options: Options,
    pub(super) pair: Handle<Pair>,
    /// A queue pair that the program made itself, in place of that one.
    pub(super) other: Option<OtherPair>,
    /// Attributes that the queue pair of its request is expected with.
    pub(super) expected: Option<(u32, u32)>,
    /// Queues that were made for the queue pair, and go with it.
    pub(super) own_queues: Vec<(Handle<Channel>, Handle<Queue>)>,
    /// Domain and attributes of the queue pairs of requests, in synchronous mode.
    pub(super) for_requests: Option<(Handle<Domain>, Wanted)>,
}

impl State {
    /// Returns true if the program confirms the answer of the peer.
    pub(super) fn confirms(&self) -> bool {
        self.other.as_ref().is_some_and(|other| other.is_active)
    }
}

/// The way of events to the program.
struct Way {
    events: Arc<Events>,
    /// The channel that the identifier has of its own, in synchronous mode.
    own_channel: Option<Handle<EventChannel>>,
    /// The event that the structure names, in synchronous mode.
    event: Option<Handle<Event>>,
}

impl Way {
    /// Returns the way to a channel, and the channel; null stands for synchronous mode.
    fn to(mut channel: Handle<EventChannel>) -> Result<(Handle<EventChannel>, Self)> {
        let mut own_channel = None;
        if channel.is_null() {
            channel = create()?;
            own_channel = Some(channel);
        }
        let way = Self {
            events: Arc::clone(&channel.get()?.events),
            own_channel,
            event: None,
        };
        Ok((channel, way))
    }
}

/// A queue pair that does not belong to its identifier.
pub(super) struct OtherPair {
    pub(super) qpn: u32,
    /// Ends with it: then another one may have the QPN.
    pub(super) life: Weak<()>,
    /// Set on the side that asked: the program confirms the answer.
    pub(super) is_active: bool,
}

/// Options that a program set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    /// Set if a bind to `::` takes no IPv4.
    pub(super) only_its_family: bool,
    /// Code of the time in which the peer acknowledges.
    pub(super) ack_timeout: Option<u8>,
}

impl Options {
    /// Returns the address at which an identifier listens that is bound to `ip`; `None` stands for
    /// all of both families.
    pub(super) fn listens_at(self, ip: IpAddr) -> Option<IpAddr> {
        let is_one = ip.is_ipv4() || !ip.is_unspecified() || self.only_its_family;
        is_one.then_some(ip)
    }
}

impl Id {
    /// Takes the place of a request; returns false if there is none.
    pub(super) fn take_place(&self) -> bool {
        let one_less = |places: u32| places.checked_sub(1);
        let relaxed = Ordering::Relaxed;
        self.places.fetch_update(relaxed, relaxed, one_less).is_ok()
    }

    /// Returns the QPN of its queue pair, or of the one that the program made itself, while that is
    /// there: later, another queue pair may have the number.
    pub(crate) fn qpn(&self) -> Option<u32> {
        let state = self.state();
        let own = state.pair.get().ok().map(|pair| pair.qpn);
        let other = state.other.as_ref();
        let other = other.filter(|other| other.life.strong_count() > 0);
        own.or(other.map(|other| other.qpn))
    }

    fn way(&self) -> MutexGuard<'_, Way> {
        lock(&self.way)
    }

    /// Returns its events, in synchronous mode.
    fn own_events(&self) -> Option<Arc<Events>> {
        let way = self.way();
        way.own_channel.map(|_| Arc::clone(&way.events))
    }

    /// Acknowledges the event that the structure names, if there is one.
    fn drop_event(&self) -> Result<()> {
        let event = self.way().event.take();
        event.map_or(Ok(()), acknowledge)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Adds an event of an identifier to its channel.
pub(super) fn raise(id: Handle<Id>, news: &News<'_>) {
    raise_about(id, id, news);
}

/// As [`raise`], about another identifier for a request.
pub(super) fn raise_about(id: Handle<Id>, about: Handle<Id>, news: &News<'_>) {
    if let Ok(own) = id.get() {
        let event = Event::new(id, about, news);
        // A migration to another channel comes before or after it.
        own.way().events.push(event);
    }
}

/// Waits for the next event of an identifier in synchronous mode.
pub(super) fn next_of(id: Handle<Id>) -> Result<Handle<Event>> {
    next(&*id.get()?.own_events().ok_or(Errno::EINVAL)?)
}

/// Keeps an event that the program took in synchronous mode in its structure.
pub(super) fn keep(id: Handle<Id>, event: Handle<Event>) {
    if let Ok(own) = id.get() {
        own.way().event = Some(event);
        id.change(|c| c.event = event.pointer());
    }
}

/// Waits for the event of a call, in synchronous mode.
///
/// # Errors
/// The status of the event, and those of the wait.
pub(super) fn complete(id: Handle<Id>) -> Result<()> {
    let own = id.get()?;
    let Some(events) = own.own_events() else {
        return Ok(());
    };
    own.drop_event()?;
    let event = next(&events)?;
    keep(id, event);
    let c = event.read()?;
    match c.status {
        0 => Ok(()),
        _ if c.event == RDMA_CM_EVENT_REJECTED => Err(Errno::ECONNREFUSED),
        status => Err(Errno::from_raw(status.saturating_abs())),
    }
}

/// Makes an identifier; a null channel stands for synchronous mode.
///
/// # Errors
/// `EOPNOTSUPP`: it is for another port space than TCP.
pub(super) fn make(
    channel: Handle<EventChannel>,
    id_context: Address,
    space: c_uint,
) -> Result<Handle<Id>> {
    require(space == RDMA_PS_TCP, Errno::EOPNOTSUPP)?;
    let adapter = adapter()?;
    ask_for_memory()?;
    let (channel, way) = Way::to(channel)?;
    let mut c: rdma_cm_id = zeroed();
    c.channel = channel.pointer();
    c.context = id_context.0;
    c.ps = space;
    c.qp_type = IBV_QPT_RC;
    let own = Id {
        token: adapter.token(),
        adapter,
        state: Mutex::default(),
        way: Mutex::new(way),
        events: Unacknowledged::default(),
        places: AtomicU32::new(0),
    };
    Ok(Handle::new(c, own))
}

pub(crate) extern "C" fn rdma_create_id(
    channel: Handle<EventChannel>,
    to: Out<Handle<Id>>,
    id_context: Address,
    space: c_uint,
) -> c_int {
    done(|| {
        to.check()?;
        to.put(make(channel, id_context, space)?)
    })
}

/// Ends an identifier, after the program has acknowledged all events that it took.
///
/// Its queue pair stays, without a connection of its own.
pub(crate) extern "C" fn rdma_destroy_id(id: Handle<Id>) -> c_int {
    done(|| {
        let own = id.get()?;
        // A queue pair that the program has moved stays connected.
        adopt(id, own);
        leave(own);
        let (events, channel) = {
            let way = own.way();
            (Arc::clone(&way.events), way.own_channel)
        };
        taken_of(&events, id).into_iter().for_each(Event::discard);
        own.drop_event()?;
        own.events.wait();
        id.end()?;
        if let Some(channel) = channel {
            let _ended = channel.end();
        }
        Ok(())
    })
}

/// Ends what the adapter does for an identifier; no events about it follow.
fn leave(own: &Id) {
    let (phase, local) = {
        let state = own.state();
        (state.phase, state.local)
    };
    let device = &own.adapter.device;
    own.adapter.leave_ports(|address| Some(*address) == local);
    match phase {
        Phase::Listening(listener) => {
            own.adapter.forget(Subject::Listener(own.token));
            device.stop_listening(listener);
        }
        Phase::Requested(request) => {
            forget_request(own);
            device.reject(request, true, &[]);
        }
        _ => {}
    }
    if let Some(qpn) = own.qpn() {
        own.adapter.forget(Subject::Connection(qpn));
        if matches!(phase, Phase::Connecting | Phase::Connected) {
            // It may have ended meanwhile.
            let _ended = device.disconnect(qpn);
        }
    }
}

fn taken_of(events: &Events, id: Handle<Id>) -> Vec<Handle<Event>> {
    events.remove(|event| event.get().is_ok_and(|event| event.id == id))
}

/// Moves an identifier and its events to another channel; null stands for synchronous mode.
pub(crate) extern "C" fn rdma_migrate_id(id: Handle<Id>, channel: Handle<EventChannel>) -> c_int {
    done(|| {
        let own = id.get()?;
        let (channel, way) = Way::to(channel)?;
        let former = {
            let mut now = own.way();
            let former = core::mem::replace(&mut *now, way);
            // Later events follow them.
            for event in taken_of(&former.events, id) {
                now.events.push(event);
            }
            former
        };
        if let Some(event) = former.event {
            acknowledge(event)?;
        }
        id.change(|c| {
            c.channel = channel.pointer();
            c.event = core::ptr::null_mut();
        });
        own.events.wait();
        if let Some(channel) = former.own_channel {
            let _ended = channel.end();
        }
        Ok(())
    })
}

/// Returns a port in network order; 0 if there is none.
fn port(address: Option<SocketAddr>) -> u16 {
    address.map_or(0, |address| address.port()).to_be()
}

pub(crate) extern "C" fn rdma_get_src_port(id: Handle<Id>) -> u16 {
    port(id.get().ok().and_then(|own| own.state().local))
}

pub(crate) extern "C" fn rdma_get_dst_port(id: Handle<Id>) -> u16 {
    port(id.get().ok().and_then(|own| own.state().remote))
}

pub(crate) extern "C" fn rdma_set_option(
    id: Handle<Id>,
    level: c_int,
    option: c_int,
    value: In<u8>,
    length: usize,
) -> c_int {
    const OF_ID: c_int = 0;
    const TYPE_OF_SERVICE: c_int = 0;
    const REUSES_ADDRESS: c_int = 1;
    const ONLY_ITS_FAMILY: c_int = 2;
    const ACK_TIMEOUT: c_int = 3;
    done(|| {
        let own = id.get()?;
        let mut state = own.state();
        let byte = || {
            require(length == 1, Errno::EINVAL)?;
            value.get()
        };
        let number = || {
            require(length == size_of::<c_int>(), Errno::EINVAL)?;
            value.cast::<c_int>().get()
        };
        match (level, option) {
            // Datagrams of the adapter have the class of its sockets.
            (OF_ID, TYPE_OF_SERVICE) => byte().map(|_| ()),
            // A port that an identifier has left is free at once.
            (OF_ID, REUSES_ADDRESS) => number().map(|_| ()),
            (OF_ID, ONLY_ITS_FAMILY) => {
                state.options.only_its_family = number()? != 0;
                Ok(())
            }
            (OF_ID, ACK_TIMEOUT) => {
                state.options.ack_timeout = Some(byte()?);
                Ok(())
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    })
}
