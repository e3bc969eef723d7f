//! Identifiers of connections, and their events.

use core::ffi::c_void;
use std::collections::VecDeque;

use rdma_sys::{ibv_qp_attr, rdma_cm_id, rdma_conn_param, rdma_event_channel, rdma_port_space};

use super::{
    Context, Event, Object, State, counter, destroy_with, free, pick, raise, set_error, state,
    zeroed,
};

/// The event that follows from a call, unless a false one is delivered.
#[derive(Clone, Copy, Debug)]
enum Next {
    AddressResolved,
    RouteResolved,
    Response,
    Established,
    Disconnected,
}

#[derive(Debug)]
pub(super) struct Id {
    pub(super) order: u64,
    pub(super) channel: usize,
    fd: i32,
    port: u16,
    listens: bool,
    next: VecDeque<Next>,
}

/// The content of an event.
#[derive(Clone, Debug, Default)]
pub struct CmEvent {
    /// The kind, as the library numbers them.
    pub kind: u32,
    /// The status.
    pub status: i32,
    /// The private data.
    pub data: Vec<u8>,
    /// The numbers of RDMA reads, four bits each.
    pub depths: u8,
    /// The peer's address in a connection request.
    pub peer: u8,
}

const ADDRESS_RESOLVED: u32 = 0;
const ROUTE_RESOLVED: u32 = 2;
const REQUEST: u32 = 4;
const RESPONSE: u32 = 5;
const ESTABLISHED: u32 = 9;
const DISCONNECTED: u32 = 10;

fn answered(state: &mut State, id: *mut rdma_cm_id) -> Option<i32> {
    state.id(id as usize);
    state.refuses().map(|_| -1)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    let channel = zeroed::<rdma_event_channel>();
    let fd = counter();
    // SAFETY: just made.
    unsafe { (*channel).fd = fd };
    state().insert(channel as usize, Object::EventChannel { fd });
    channel
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    let mut state = state();
    assert!(state.connections.is_empty(), "events of nobody");
    // SAFETY: made by `rdma_create_event_channel`, with a descriptor.
    unsafe { destroy_with(&mut state, channel, (*channel).fd) };
}

fn make(
    state: &mut State,
    channel: *mut rdma_event_channel,
    number: *mut c_void,
) -> *mut rdma_cm_id {
    let Some(Object::EventChannel { fd }) = state.objects.get(&(channel as usize)) else {
        panic!("used as a channel of events");
    };
    let fd = *fd;
    let id = zeroed::<rdma_cm_id>();
    // SAFETY: just made.
    unsafe {
        (*id).channel = channel;
        (*id).context = number;
    }
    let order = state.count();
    let known = Id {
        order,
        channel: channel as usize,
        fd,
        port: 0,
        listens: false,
        next: VecDeque::new(),
    };
    state.insert(id as usize, Object::Id(known));
    id
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    number: *mut c_void,
    _space: rdma_port_space::Type,
) -> i32 {
    let mut state = state();
    if state.refuses().is_some() {
        return -1;
    }
    let made = make(&mut state, channel, number);
    // SAFETY: there is room for the answer.
    unsafe { *id = made };
    0
}

fn destroy(state: &mut State, id: *mut rdma_cm_id) {
    state.remove(id as usize);
    // Pending events are freed with their identifier. Those of a listener also free the identifiers
    // that they carry.
    let mut rest = VecDeque::new();
    let mut private_data = Vec::new();
    for event in std::mem::take(&mut state.connections) {
        let raw = event as *mut Event;
        // SAFETY: it was made, and is still pending.
        let (about, listener) = unsafe { ((*raw).id, (*raw).listen_id) };
        if about == id || listener == id {
            if listener == id {
                private_data.push(about);
            }
            forget(state, event);
        } else {
            rest.push_back(event);
        }
    }
    state.connections = rest;
    for child in private_data {
        destroy(state, child);
    }
    // SAFETY: made by `make`, and taken out.
    unsafe { free(id) };
}

/// Frees an event.
fn forget(state: &mut State, event: usize) {
    let data = state.carried.remove(&event);
    assert!(data.is_some(), "acknowledged: {event:#x} is no event");
    // SAFETY: made by `happen`, and taken out.
    unsafe { free(event as *mut Event) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> i32 {
    destroy(&mut state(), id);
    0
}

/// Writes an IPv4 socket address.
///
/// # Safety
/// There is room for one at `target`.
unsafe fn put_address(target: *mut libc::sockaddr_in, host: [u8; 4], port: u16) {
    // SAFETY: as the caller promised.
    unsafe {
        (*target).sin_family = libc::AF_INET as u16;
        (*target).sin_port = port.to_be();
        (*target).sin_addr.s_addr = u32::from_ne_bytes(host);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, address: *mut libc::sockaddr) -> i32 {
    let mut state = state();
    if let Some(refused) = answered(&mut state, id) {
        return refused;
    }
    // SAFETY: the address is there; ports are at the same offset in both families.
    let port_wanted = unsafe { u16::from_be((*address.cast::<libc::sockaddr_in>()).sin_port) };
    let taken =
        |object: &&Object| matches!(object, Object::Id(id) if id.listens && id.port == port_wanted);
    if port_wanted != 0 && state.objects.values().filter(taken).count() > 1 {
        set_error(libc::EADDRINUSE);
        return -1;
    }
    let port = if port_wanted == 0 {
        state.last_port += 1;
        state.last_port
    } else {
        port_wanted
    };
    state.id(id as usize).port = port;
    // SAFETY: the identifier lives.
    unsafe {
        let target = &raw mut (*id).route.addr.src_addr_union;
        put_address(target.cast(), [127, 0, 0, 1], port);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, _backlog: i32) -> i32 {
    let mut state = state();
    if let Some(refused) = answered(&mut state, id) {
        return refused;
    }
    state.id(id as usize).listens = true;
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    _level: i32,
    _name: i32,
    _value: *mut c_void,
    _length: usize,
) -> i32 {
    answered(&mut state(), id).unwrap_or(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    state().id(id as usize).port.to_be()
}

fn leads_to(id: *mut rdma_cm_id, next: Next) -> i32 {
    let mut state = state();
    if let Some(refused) = answered(&mut state, id) {
        return refused;
    }
    state.id(id as usize).next.push_back(next);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    _source: *mut libc::sockaddr,
    _target: *mut libc::sockaddr,
    _milliseconds: i32,
) -> i32 {
    leads_to(id, Next::AddressResolved)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, _milliseconds: i32) -> i32 {
    leads_to(id, Next::RouteResolved)
}

/// Records the private data of a call.
///
/// # Safety
/// `wanted` is valid, and so is its data.
unsafe fn remember(wanted: *const rdma_conn_param) {
    // SAFETY: as the caller promised.
    let data = unsafe {
        let wanted = &*wanted;
        let length = usize::from(wanted.private_data_len);
        std::slice::from_raw_parts(wanted.private_data.cast::<u8>(), length).to_vec()
    };
    state().sent.push(data);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_connect(id: *mut rdma_cm_id, wanted: *mut rdma_conn_param) -> i32 {
    // SAFETY: the caller passes valid parameters.
    unsafe { remember(wanted) };
    leads_to(id, Next::Response)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_accept(id: *mut rdma_cm_id, wanted: *mut rdma_conn_param) -> i32 {
    // SAFETY: the caller passes valid parameters.
    unsafe { remember(wanted) };
    leads_to(id, Next::Established)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> i32 {
    answered(&mut state(), id).unwrap_or(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> i32 {
    leads_to(id, Next::Disconnected)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> i32 {
    state().id(id as usize);
    if length != 0 {
        // SAFETY: the caller passes valid data.
        let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length.into()) };
        state().sent.push(data.to_vec());
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    _data: *const c_void,
    _length: u8,
) -> i32 {
    state().id(id as usize);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    _attributes: *mut ibv_qp_attr,
    mask: *mut i32,
) -> i32 {
    let mut state = state();
    if let Some(refused) = answered(&mut state, id) {
        return refused;
    }
    // SAFETY: there is room for the answer.
    unsafe { *mask = 1 };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut Event,
) -> i32 {
    let mut state = state();
    state.is(channel as usize, |object| {
        matches!(object, Object::EventChannel { .. })
    });
    let Some(next) = state.connections.pop_front() else {
        set_error(libc::EAGAIN);
        return -1;
    };
    // SAFETY: there is room for the answer.
    unsafe { *event = next as *mut Event };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_ack_cm_event(event: *mut Event) -> i32 {
    forget(&mut state(), event as usize);
    0
}

/// Delivers an event of an identifier.
fn deliver(state: &mut State, id: usize, reported: CmEvent) -> i32 {
    let known = state.id(id);
    let (fd, channel) = (known.fd, known.channel);
    let event = zeroed::<Event>();
    let CmEvent {
        kind,
        status,
        data,
        depths,
        peer,
    } = reported;
    // SAFETY: just made; the identifier lives.
    unsafe {
        let listener = id as *mut rdma_cm_id;
        (*event).id = listener;
        if kind == REQUEST {
            let child = make(
                state,
                channel as *mut rdma_event_channel,
                (*listener).context,
            );
            (*child).verbs = state.context() as *mut Context;
            let route = &raw mut (*child).route.addr;
            put_address((&raw mut (*route).src_addr_union).cast(), [127, 0, 0, 1], 1);
            if peer != u8::MAX {
                let target = (&raw mut (*route).dst_addr_union).cast();
                put_address(target, [127, 0, 0, peer], 1000 + u16::from(peer));
            }
            (*event).id = child;
            (*event).listen_id = listener;
        }
        (&raw mut (*event).event).cast::<u32>().write(kind);
        (*event).status = status;
        let mut conn: rdma_conn_param = std::mem::zeroed();
        conn.private_data = if data.is_empty() {
            std::ptr::null()
        } else {
            data.as_ptr().cast()
        };
        conn.private_data_len = data.len() as u8;
        conn.responder_resources = depths;
        conn.initiator_depth = depths.rotate_left(4);
        (*event).param.conn = conn;
    }
    state.carried.insert(event as usize, data);
    state.connections.push_back(event as usize);
    fd
}

/// Delivers the event that follows from an identifier's calls; returns false if none does.
pub fn follow(which: usize, data: Vec<u8>) -> bool {
    let fd = {
        let mut state = state();
        let Some(address) = pick(&state.ids(), which) else {
            return false;
        };
        let Some(next) = state.id(address).next.pop_front() else {
            return false;
        };
        let mut event = CmEvent {
            depths: 0x44,
            ..CmEvent::default()
        };
        event.kind = match next {
            Next::AddressResolved => {
                // SAFETY: the identifier lives.
                unsafe { (*(address as *mut rdma_cm_id)).verbs = state.context() as *mut Context };
                ADDRESS_RESOLVED
            }
            Next::RouteResolved => ROUTE_RESOLVED,
            Next::Response => {
                event.data = data;
                RESPONSE
            }
            Next::Established => ESTABLISHED,
            Next::Disconnected => DISCONNECTED,
        };
        deliver(&mut state, address, event)
    };
    raise(fd);
    true
}

/// Delivers an event without a cause; connection requests go to a listener.
pub fn report_cm_event(which: usize, event: CmEvent) {
    let fd = {
        let mut state = state();
        let mut ids = state.ids();
        if event.kind == REQUEST {
            ids.retain(|id| state.id(*id).listens);
        }
        let Some(address) = pick(&ids, which) else {
            return;
        };
        deliver(&mut state, address, event)
    };
    raise(fd);
}
