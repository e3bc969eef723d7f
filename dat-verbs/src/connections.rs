//! Connections of rdma_cm.

use core::ffi::{c_int, c_void};
use core::net::{Ipv4Addr, SocketAddr};
use core::ptr::null_mut;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_core::attributes::IaAddress;
use dat_core::backend::{ConnectFailure, ControlEvent, RequestKey};

use crate::c;
use crate::channels;
use crate::events::{EventChannel, News};
use crate::ids::{self, Id, code, complete, find};
use crate::layout::*;
use crate::objects;
use crate::pairs::{self, Pair};
use crate::process::{Process, error_number};
use crate::queues;

/// The reason of a rejection by the program, and of one by the system.
const BY_PROGRAM: c_int = 28;
const BY_SYSTEM: c_int = 8;

/// Addresses of ids by the QPN of their queue pair.
static CONNECTED: Mutex<Option<HashMap<u32, usize>>> = Mutex::new(None);

fn connected() -> MutexGuard<'static, Option<HashMap<u32, usize>>> {
    CONNECTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Acts on the id of a queue pair, which does not go meanwhile.
fn with_id(queue_pair: u64, act: impl FnOnce(&'static Id)) {
    let connected = connected();
    let address = connected
        .as_ref()
        .and_then(|ids| ids.get(&(queue_pair as u32)).copied());
    let pointer = address.map(core::ptr::with_exposed_provenance_mut);
    if let Some(id) = pointer.and_then(objects::known::<Id>) {
        act(id);
    }
}

/// Sets the state of the queue pair of an id.
fn set_state(id: &Id, state: ibv_qp_state) {
    let pair = id.with(|base| base.qp);
    if let Some(pair) = objects::known::<Pair>(pair) {
        pair.set_state(state);
    }
}

/// Takes an event of the device about a connection.
pub(crate) fn take(process: &'static Process, event: &ControlEvent) {
    match event {
        ControlEvent::ConnectionRequest {
            listener,
            request,
            remote,
            local,
            private_data,
            ..
        } => requested(
            process,
            *listener,
            *request,
            (*local, *remote),
            private_data.as_slice(),
        ),
        ControlEvent::Established {
            queue_pair,
            private_data,
        } => with_id(*queue_pair, |id| {
            id.state().is_connected = true;
            set_state(id, IBV_QPS_RTS);
            id.tell(&News {
                data: private_data.as_slice(),
                ..News::of(RDMA_CM_EVENT_ESTABLISHED)
            });
        }),
        ControlEvent::ConnectFailed {
            queue_pair,
            failure,
        } => with_id(*queue_pair, |id| {
            let (kind, status, data) = match failure {
                ConnectFailure::PeerRejected(data) => {
                    (RDMA_CM_EVENT_REJECTED, BY_PROGRAM, data.as_slice())
                }
                ConnectFailure::NonPeerRejected => (RDMA_CM_EVENT_REJECTED, BY_SYSTEM, &[][..]),
                _ => (RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT, &[][..]),
            };
            set_state(id, IBV_QPS_ERR);
            id.tell(&News {
                status,
                data,
                ..News::of(kind)
            });
        }),
        ControlEvent::Disconnected { queue_pair } | ControlEvent::Broken { queue_pair } => {
            with_id(*queue_pair, ended);
        }
        _ => {}
    }
}

/// Tells the program once that a connection has ended.
fn ended(id: &'static Id) {
    set_state(id, IBV_QPS_ERR);
    if core::mem::take(&mut id.state().is_connected) {
        id.tell(&News::of(RDMA_CM_EVENT_DISCONNECTED));
    }
}

/// Makes the id of a request, and tells of it.
fn requested(
    process: &'static Process,
    listener: u64,
    request: RequestKey,
    (local, remote): (IaAddress, IaAddress),
    data: &[u8],
) {
    let listeners = ids::listeners();
    let address = listeners
        .as_ref()
        .and_then(|ids| ids.get(&listener).copied());
    let pointer = address.map(core::ptr::with_exposed_provenance_mut);
    let Some(listening) = pointer.and_then(objects::known::<Id>) else {
        return;
    };
    let (channel, context) = listening.with(|base| (base.channel, base.context));
    let made = Id::create(channel, context).and_then(|made| {
        let id = find(made)?;
        let unspecified = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let mut own = local.socket_address().unwrap_or(unspecified);
        own.set_port(listening.own_address().port());
        id.bind_device(own)?;
        let peer = remote.socket_address().unwrap_or(unspecified);
        id.with(|base| base.route.addr.__bindgen_anon_2.dst_storage = c::storage(peer));
        id.state().request = Some(request);
        Ok(made)
    });
    // Without memory or descriptors, the peer's attempt ends by time.
    if let Ok(made) = made {
        let depths = process.device.request_depths(request);
        let news = News {
            data,
            depths: depths.unwrap_or((0, 0)),
            ..News::of(RDMA_CM_EVENT_CONNECT_REQUEST)
        };
        listening.tell_of(made, listening.pointer(), &news);
    }
}

/// Makes a completion queue for an id, with a channel.
fn make_queue(
    context: *mut ibv_context,
    depth: u32,
    user: *mut c_void,
) -> Result<(*mut ibv_comp_channel, *mut ibv_cq), c_int> {
    let channel = channels::create_comp_channel(context);
    let depth = c_int::try_from(depth.max(1)).unwrap_or(c_int::MAX);
    let queue = queues::create_cq(context, depth, user, channel, 0);
    if channel.is_null() || queue.is_null() {
        channels::destroy_comp_channel(channel);
        return Err(libc::ENOMEM);
    }
    Ok((channel, queue))
}

fn create(
    id: *mut rdma_cm_id,
    domain: *mut ibv_pd,
    init: &mut ibv_qp_init_attr,
) -> Result<(), c_int> {
    let known = find(id)?;
    let (context, own_domain, has_pair) =
        known.with(|base| (base.verbs, base.pd, !base.qp.is_null()));
    if context.is_null() || has_pair || init.qp_type != IBV_QPT_RC {
        return Err(libc::EINVAL);
    }
    let domain = if domain.is_null() { own_domain } else { domain };
    // As librdmacm makes those that the program leaves out.
    if init.send_cq.is_null() {
        let (channel, queue) = make_queue(context, init.cap.max_send_wr, id.cast())?;
        init.send_cq = queue;
        known.with(|base| (base.send_cq_channel, base.send_cq) = (channel, queue));
        known.state().own.push((channel as usize, queue as usize));
    }
    if init.recv_cq.is_null() {
        let (channel, queue) = make_queue(context, init.cap.max_recv_wr, id.cast())?;
        init.recv_cq = queue;
        known.with(|base| (base.recv_cq_channel, base.recv_cq) = (channel, queue));
        known.state().own.push((channel as usize, queue as usize));
    }
    let made = pairs::create_qp(domain, init);
    let Some(pair) = objects::known::<Pair>(made) else {
        destroy_own(known);
        return Err(c::last_error());
    };
    pair.set_state(IBV_QPS_INIT);
    known.with(|base| {
        (base.qp, base.pd) = (made, domain);
        (base.send_cq, base.recv_cq) = (init.send_cq, init.recv_cq);
    });
    connected()
        .get_or_insert_default()
        .insert(pair.qpn, id as usize);
    Ok(())
}

pub(crate) extern "C" fn create_qp(
    id: *mut rdma_cm_id,
    domain: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    let init = c::get_mut(init).ok_or(libc::EINVAL);
    code(init.and_then(|init| create(id, domain, init)))
}

pub(crate) extern "C" fn create_qp_ex(
    id: *mut rdma_cm_id,
    init: *mut ibv_qp_init_attr_ex,
) -> c_int {
    let Some(init) = c::get_mut(init) else {
        return c::fails(libc::EINVAL);
    };
    if init.comp_mask & !IBV_QP_INIT_ATTR_PD != 0 {
        return c::fails(libc::EOPNOTSUPP);
    }
    let domain = match init.comp_mask & IBV_QP_INIT_ATTR_PD {
        0 => null_mut(),
        _ => init.pd,
    };
    let mut plain = ibv_qp_init_attr {
        qp_context: init.qp_context,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        cap: init.cap,
        qp_type: init.qp_type,
        sq_sig_all: init.sq_sig_all,
    };
    let made = create(id, domain, &mut plain);
    (init.send_cq, init.recv_cq) = (plain.send_cq, plain.recv_cq);
    init.cap = plain.cap;
    code(made)
}

/// Destroys the queues that were made for an id.
fn destroy_own(id: &Id) {
    let own = core::mem::take(&mut id.state().own);
    for (channel, queue) in own {
        queues::destroy_cq(core::ptr::with_exposed_provenance_mut(queue));
        channels::destroy_comp_channel(core::ptr::with_exposed_provenance_mut(channel));
    }
}

pub(crate) extern "C" fn destroy_qp(id: *mut rdma_cm_id) {
    let Ok(known) = find(id) else {
        return;
    };
    let pair = known.with(|base| core::mem::replace(&mut base.qp, null_mut()));
    if let Some(pair) = objects::known::<Pair>(pair) {
        let qpn = pair.qpn;
        if let Some(ids) = connected().as_mut() {
            ids.remove(&qpn);
        }
    }
    if !pair.is_null() {
        pairs::destroy_qp(pair);
    }
    known.state().is_connected = false;
    destroy_own(known);
}

/// What a program asks of a connection: private data, and depths of this side.
fn wanted<'a>(param: *mut rdma_conn_param) -> (&'a [u8], (u8, u8)) {
    // Without parameters, and for the largest number, as many as there can be.
    let most = |depth: u8| depth.min(128);
    let Some(param) = c::get(param) else {
        return (&[], (16, 16));
    };
    let data = c::list(param.private_data.cast(), param.private_data_len.into());
    let depths = (most(param.responder_resources), most(param.initiator_depth));
    (data, depths)
}

/// Returns the QPN of an id's queue pair.
fn qpn(id: &Id) -> Result<u32, c_int> {
    let pair = id.with(|base| base.qp);
    let pair = objects::known::<Pair>(pair).ok_or(libc::EINVAL)?;
    Ok(pair.qpn)
}

pub(crate) extern "C" fn connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let connect = |known: &Id| {
        let peer = known.peer_address().ok_or(libc::EINVAL)?;
        let (data, depths) = wanted(param);
        let device = &known.process.device;
        let connects = device.connect(qpn(known)?, peer, data, depths);
        connects.map_err(error_number)
    };
    code(find(id).and_then(connect).and_then(|()| complete(id)))
}

pub(crate) extern "C" fn accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let accept = |known: &Id| {
        let request = known.state().request.ok_or(libc::EINVAL)?;
        let (data, depths) = wanted(param);
        let device = &known.process.device;
        let accepts = device.accept(request, qpn(known)?, data, depths);
        accepts.map_err(error_number)?;
        known.state().request = None;
        Ok(())
    };
    code(find(id).and_then(accept).and_then(|()| complete(id)))
}

pub(crate) extern "C" fn reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int {
    let reject = |known: &Id| {
        let request = known.state().request.take().ok_or(libc::EINVAL)?;
        let data = c::list(data.cast::<u8>(), length.into());
        known.process.device.reject(request, data);
        Ok(())
    };
    code(find(id).and_then(reject))
}

pub(crate) extern "C" fn disconnect(id: *mut rdma_cm_id) -> c_int {
    let disconnect = |known: &'static Id| {
        let qpn = qpn(known)?;
        // The peer may have been first: that is no error.
        let is_connected = known.state().is_connected;
        if is_connected {
            let ends = known.process.device.disconnect(qpn);
            ends.map_err(error_number)?;
            // The device tells nothing about what it was asked for.
            ended(known);
        }
        Ok(is_connected)
    };
    match find(id).and_then(disconnect) {
        Ok(true) => code(complete(id)),
        Ok(false) => 0,
        Err(number) => c::fails(number),
    }
}

/// Waits for a request at an id whose calls wait.
pub(crate) extern "C" fn get_request(
    listening: *mut rdma_cm_id,
    out: *mut *mut rdma_cm_id,
) -> c_int {
    let get = |known: &Id| {
        let channel = known.with(|base| base.channel);
        let event = objects::find::<EventChannel>(channel)?.take()?;
        let subject = crate::events::subject(event);
        let kind = crate::events::outcome(event).map(|(kind, _)| kind);
        if kind != Some(RDMA_CM_EVENT_CONNECT_REQUEST) {
            crate::events::ack_cm_event(event);
            return Err(libc::EINVAL);
        }
        // Its calls wait, too, and its event stays with it.
        if ids::migrate_id(subject, null_mut()) != 0 {
            return Err(c::last_error());
        }
        find(subject)?.with(|base| base.event = event);
        let passive = known.state().passive;
        if let Some((domain, mut init)) = passive {
            let domain = core::ptr::with_exposed_provenance_mut(domain);
            create(subject, domain, &mut init)?;
        }
        c::put(out, subject);
        Ok(())
    };
    code(find(listening).and_then(get))
}
