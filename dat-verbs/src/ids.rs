//! Ids of rdma_cm: their addresses, and their life.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::ptr::null_mut;
use std::collections::HashMap;
use std::net::UdpSocket;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use dat_core::backend::{ListenerKey, RequestKey};

use crate::c::{self, Shared};
use crate::devices;
use crate::events::{self, Event, EventChannel, News};
use crate::layout::*;
use crate::objects::{self, Kind, Object, Users};
use crate::process::{self, Process, error_number};
use crate::regions;

/// State of an id that the program does not see.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) listener: Option<ListenerKey>,
    /// The request that the program decides about.
    pub(crate) request: Option<RequestKey>,
    /// Set from the establishment of the connection until its end.
    pub(crate) is_connected: bool,
    /// Events that the program has taken and not acknowledged.
    unacknowledged: usize,
    /// Addresses of channels and completion queues that were made for the program, and go with
    /// the queue pair.
    pub(crate) own: Vec<(usize, usize)>,
    /// Domain and attributes of the queue pairs of requests.
    pub(crate) passive: Option<(usize, ibv_qp_init_attr)>,
}

/// An id.
#[repr(C)]
pub(crate) struct Id {
    pub(crate) base: Shared<rdma_cm_id>,
    pub(crate) process: &'static Process,
    state: Mutex<State>,
    acknowledged: Condvar,
    users: Users,
}

impl Object for Id {
    type C = rdma_cm_id;
    const KIND: Kind = Kind::Id;

    fn users(&self) -> &Users {
        &self.users
    }
}

/// Addresses of ids that listen, by token.
static LISTENERS: Mutex<Option<HashMap<u64, usize>>> = Mutex::new(None);

pub(crate) fn listeners() -> MutexGuard<'static, Option<HashMap<u64, usize>>> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the context and the protection domain that ids have unless the program has its own.
fn common() -> Result<(*mut ibv_context, *mut ibv_pd), c_int> {
    static COMMON: OnceLock<Result<(usize, usize), c_int>> = OnceLock::new();
    let made = COMMON.get_or_init(|| {
        let list = devices::get_device_list(null_mut());
        // The list has one device.
        let device = c::list(list, 1).first().copied().unwrap_or(null_mut());
        devices::free_device_list(list);
        let context = devices::open_device(device);
        let domain = regions::alloc_pd(context);
        if domain.is_null() {
            return Err(libc::ENODEV);
        }
        Ok((context as usize, domain as usize))
    });
    let (context, domain) = (*made)?;
    Ok((
        core::ptr::with_exposed_provenance_mut(context),
        core::ptr::with_exposed_provenance_mut(domain),
    ))
}

impl Id {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut rdma_cm_id) -> R) -> R {
        c::with(&self.base.0, change)
    }

    pub(crate) fn pointer(&self) -> *mut rdma_cm_id {
        self.base.0.get()
    }

    pub(crate) fn count_taken(&self) {
        self.state().unacknowledged += 1;
    }

    pub(crate) fn count_acknowledged(&self) {
        let mut state = self.state();
        state.unacknowledged = state.unacknowledged.saturating_sub(1);
        self.acknowledged.notify_all();
    }

    /// Makes an id; one without a channel waits for its events within each call.
    pub(crate) fn create(
        channel: *mut rdma_event_channel,
        context: *mut c_void,
    ) -> Result<*mut rdma_cm_id, c_int> {
        let process = process::open()?;
        let channel = match channel.is_null() {
            true => EventChannel::create()?,
            false => channel,
        };
        objects::find::<EventChannel>(channel)?.users().add();
        let mut base: rdma_cm_id = c::zeroed();
        base.channel = channel;
        base.context = context;
        base.ps = RDMA_PS_TCP;
        base.qp_type = IBV_QPT_RC;
        let id = Box::new(Self {
            base: Shared(UnsafeCell::new(base)),
            process,
            state: Mutex::default(),
            acknowledged: Condvar::new(),
            users: Users::default(),
        });
        Ok(objects::publish(id))
    }

    /// Binds the id to the device, at an address of this side.
    pub(crate) fn bind_device(&self, own: SocketAddr) -> Result<(), c_int> {
        let (context, domain) = common()?;
        self.with(|base| {
            base.verbs = context;
            base.port_num = crate::ports::PORT;
            base.pd = domain;
            base.route.addr.__bindgen_anon_1.src_storage = c::storage(own);
        });
        Ok(())
    }

    pub(crate) fn own_address(&self) -> SocketAddr {
        let unspecified = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let known = self.with(|base| c::own_address(base));
        known.unwrap_or(unspecified)
    }

    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        self.with(|base| c::peer_address(base))
    }

    /// Tells the program of news about the id.
    pub(crate) fn tell(&'static self, news: &News<'_>) {
        self.tell_of(self.pointer(), null_mut(), news);
    }

    /// As [`tell`](Self::tell), about another id.
    pub(crate) fn tell_of(
        &'static self,
        subject: *mut rdma_cm_id,
        listener: *mut rdma_cm_id,
        news: &News<'_>,
    ) {
        let event = Event::new(self, subject, listener, news);
        let channel = self.with(|base| base.channel);
        if let Some(channel) = objects::known::<EventChannel>(channel) {
            channel.tell(event);
        }
    }
}

pub(crate) fn find<'a>(id: *mut rdma_cm_id) -> Result<&'a Id, c_int> {
    objects::find(id)
}

/// Returns 0, or -1 with the error number.
pub(crate) fn code(done: Result<(), c_int>) -> c_int {
    match done {
        Ok(()) => 0,
        Err(code) => c::fails(code),
    }
}

/// Ids whose calls wait for their events, as those without a channel do.
static WAITING: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn waiting_ids() -> MutexGuard<'static, Vec<usize>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the event of a call if the id has no channel of the program's.
pub(crate) fn complete(id: *mut rdma_cm_id) -> Result<(), c_int> {
    if !waiting_ids().contains(&(id as usize)) {
        return Ok(());
    }
    let known = find(id)?;
    let (channel, before) = known.with(|base| (base.channel, base.event));
    if !before.is_null() {
        events::ack_cm_event(before);
        known.with(|base| base.event = null_mut());
    }
    let event = objects::find::<EventChannel>(channel)?.take()?;
    known.with(|base| base.event = event);
    match events::outcome(event) {
        Some((RDMA_CM_EVENT_REJECTED, _)) => Err(libc::ECONNREFUSED),
        Some((_, status)) if status != 0 => Err(status.abs()),
        Some(_) => Ok(()),
        None => Err(libc::EINVAL),
    }
}

/// Makes an id; `is_waiting` is set for one whose calls wait.
pub(crate) fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
) -> Result<*mut rdma_cm_id, c_int> {
    let id = Id::create(channel, context)?;
    if channel.is_null() {
        waiting_ids().push(id as usize);
    }
    Ok(id)
}

pub(crate) extern "C" fn create_id(
    channel: *mut rdma_event_channel,
    out: *mut *mut rdma_cm_id,
    context: *mut c_void,
    space: rdma_port_space,
) -> c_int {
    if space != RDMA_PS_TCP {
        return c::fails(libc::EOPNOTSUPP);
    }
    code(create(channel, context).map(|id| {
        c::put(out, id);
    }))
}

fn destroy(pointer: *mut rdma_cm_id) -> Result<(), c_int> {
    let id = find(pointer)?;
    if id.with(|base| !base.qp.is_null()) {
        return Err(libc::EBUSY);
    }
    let (listener, request) = {
        let mut state = id.state();
        (state.listener.take(), state.request.take())
    };
    if let Some(listener) = listener {
        if let Some(listeners) = listeners().as_mut() {
            listeners.retain(|_, address| *address != pointer as usize);
        }
        id.process.device.stop_listening(listener);
    }
    if let Some(request) = request {
        id.process.device.reject(request, &[]);
    }
    let (channel, event) = id.with(|base| (base.channel, base.event));
    let was_waiting = {
        let mut all = waiting_ids();
        let before = all.len();
        all.retain(|one| *one != pointer as usize);
        all.len() != before
    };
    if was_waiting && !event.is_null() {
        events::ack_cm_event(event);
    }
    let channel_of = objects::find::<EventChannel>(channel)?;
    drop(channel_of.withdraw(id));
    // The manual promises to wait for the events that the program has taken.
    let mut state = id.state();
    while state.unacknowledged > 0 {
        let woken = id.acknowledged.wait(state);
        state = woken.unwrap_or_else(PoisonError::into_inner);
    }
    drop(state);
    let id = objects::retire::<Id>(pointer)?;
    channel_of.users().remove();
    if was_waiting {
        events::destroy_event_channel(channel);
    }
    drop(id);
    Ok(())
}

pub(crate) extern "C" fn destroy_id(id: *mut rdma_cm_id) -> c_int {
    code(destroy(id))
}

/// Returns an address with a port: one that no socket has, if it has none.
fn with_port(mut address: SocketAddr) -> Result<SocketAddr, c_int> {
    if address.port() == 0 {
        let system = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EADDRINUSE);
        let socket = UdpSocket::bind(address).map_err(system)?;
        address.set_port(socket.local_addr().map_err(system)?.port());
    }
    Ok(address)
}

/// Returns true if the device has an address.
fn has_address(process: &Process, ip: IpAddr) -> bool {
    // Loop-back addresses are of every device, as in the kernel.
    ip.is_loopback() || process.addresses.iter().any(|one| one.address.ip() == ip)
}

fn bind(id: &Id, own: SocketAddr) -> Result<(), c_int> {
    let own = with_port(own)?;
    if own.ip().is_unspecified() {
        id.with(|base| base.route.addr.__bindgen_anon_1.src_storage = c::storage(own));
        return Ok(());
    }
    if !has_address(id.process, own.ip()) {
        return Err(libc::ENODEV);
    }
    id.bind_device(own)
}

pub(crate) extern "C" fn bind_addr(id: *mut rdma_cm_id, own: *mut libc::sockaddr) -> c_int {
    let own = c::socket_address(own).ok_or(libc::EINVAL);
    code(find(id).and_then(|id| bind(id, own?)))
}

fn resolve(id: &'static Id, own: Option<SocketAddr>, peer: SocketAddr) -> Result<(), c_int> {
    let route = id.process.device.route(peer).map_err(error_number)?;
    let bound = own.or_else(|| Some(id.own_address()).filter(|own| own.port() != 0));
    let mut source = bound.unwrap_or(SocketAddr::new(route.source, 0));
    if source.ip().is_unspecified() {
        source.set_ip(route.source);
    }
    id.bind_device(with_port(source)?)?;
    id.with(|base| base.route.addr.__bindgen_anon_2.dst_storage = c::storage(peer));
    id.tell(&News::of(RDMA_CM_EVENT_ADDR_RESOLVED));
    Ok(())
}

pub(crate) extern "C" fn resolve_addr(
    id: *mut rdma_cm_id,
    own: *mut libc::sockaddr,
    peer: *mut libc::sockaddr,
    _timeout: c_int,
) -> c_int {
    let peer = c::socket_address(peer).ok_or(libc::EINVAL);
    let resolved = find(id).and_then(|id| resolve(id, c::socket_address(own), peer?));
    code(resolved.and_then(|()| complete(id)))
}

pub(crate) extern "C" fn resolve_route(id: *mut rdma_cm_id, _timeout: c_int) -> c_int {
    let resolve = |id: &'static Id| {
        id.peer_address().ok_or(libc::EINVAL)?;
        id.tell(&News::of(RDMA_CM_EVENT_ROUTE_RESOLVED));
        Ok(())
    };
    code(find(id).and_then(resolve).and_then(|()| complete(id)))
}

pub(crate) extern "C" fn listen(id: *mut rdma_cm_id, _backlog: c_int) -> c_int {
    let listen = |known: &Id| {
        let own = with_port(known.own_address())?;
        if known.state().listener.is_some() {
            return Err(libc::EINVAL);
        }
        // Before the first request can come.
        let token = id as u64;
        listeners()
            .get_or_insert_default()
            .insert(token, id as usize);
        let listens = known.process.device.listen(token, own.port());
        match listens {
            Ok(listener) => {
                known.with(|base| {
                    base.route.addr.__bindgen_anon_1.src_storage = c::storage(own);
                });
                known.state().listener = Some(listener);
                Ok(())
            }
            Err(error) => {
                if let Some(listeners) = listeners().as_mut() {
                    listeners.remove(&token);
                }
                Err(match error {
                    dat_core::backend::BackendError::QualifierInUse => libc::EADDRINUSE,
                    error => error_number(error),
                })
            }
        }
    };
    code(find(id).and_then(listen))
}

pub(crate) extern "C" fn migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    let migrate = |known: &'static Id| {
        let is_own = channel.is_null();
        let next = match is_own {
            true => EventChannel::create()?,
            false => channel,
        };
        let next_channel = objects::find::<EventChannel>(next)?;
        let before = known.with(|base| core::mem::replace(&mut base.channel, next));
        let before_channel = objects::find::<EventChannel>(before)?;
        next_channel.users().add();
        for event in before_channel.withdraw(known) {
            next_channel.tell(event);
        }
        before_channel.users().remove();
        let mut waiting = waiting_ids();
        let count = waiting.len();
        waiting.retain(|one| *one != id as usize);
        if waiting.len() != count {
            events::destroy_event_channel(before);
        }
        if is_own {
            waiting.push(id as usize);
        }
        Ok(())
    };
    code(find(id).and_then(migrate))
}

pub(crate) extern "C" fn get_src_port(id: *mut rdma_cm_id) -> u16 {
    find(id).map_or(0, |id| id.own_address().port().to_be())
}

pub(crate) extern "C" fn get_dst_port(id: *mut rdma_cm_id) -> u16 {
    let peer = find(id).ok().and_then(Id::peer_address);
    peer.map_or(0, |peer| peer.port().to_be())
}

/// Options change the service, the reuse of addresses and the like: nothing that matters here.
pub(crate) extern "C" fn set_option(
    id: *mut rdma_cm_id,
    _level: c_int,
    _name: c_int,
    _value: *mut c_void,
    _length: usize,
) -> c_int {
    code(find(id).map(|_| ()))
}

pub(crate) extern "C" fn get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    match common() {
        Ok((context, _)) => {
            c::put(count, 1);
            c::give(Box::new([context, null_mut()])).cast()
        }
        Err(code) => c::fail(code),
    }
}

pub(crate) extern "C" fn free_devices(list: *mut *mut ibv_context) {
    if !list.is_null() {
        drop(c::take(list.cast::<[*mut ibv_context; 2]>()));
    }
}
