//! Connections of identifiers.

use core::ffi::{c_int, c_void};

use backend_roce::RoceDevice;
use dat_core::backend::{ConnectFailure, ControlEvent};
use nix::errno::Errno;

use super::channel::News;
use super::id::{Id, Phase, complete, raise};
use crate::boundary::layout::{
    IBV_QPS_ERR, IBV_QPS_RTS, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_UNREACHABLE, ibv_qp_state, rdma_conn_param,
};
use crate::boundary::{Handle, In, values};
use crate::errors::{Result, done, refused};

/// The reason of a rejection by the program, and of one by the system.
const BY_PROGRAM: c_int = 28;
const BY_SYSTEM: c_int = 8;
/// Reads and atomics under way without parameters of the program.
const USUAL_DEPTHS: (u8, u8) = (16, 16);

/// Sets the state of the queue pair of an identifier.
fn set_state(own: &Id, state: ibv_qp_state) {
    let pair = own.state().pair;
    if let Some(known) = pair.get() {
        known.set_state(pair, state);
    }
}

/// Takes an event of the adapter about the connection of an identifier.
pub(super) fn take(id: Handle<Id>, event: &ControlEvent) {
    let Some(own) = id.get() else {
        return;
    };
    match event {
        ControlEvent::Established { private_data, .. } => {
            own.state().phase = Phase::Connected;
            set_state(own, IBV_QPS_RTS);
            let news = News {
                data: private_data.as_slice(),
                ..News::of(RDMA_CM_EVENT_ESTABLISHED)
            };
            raise(id, &news);
        }
        ControlEvent::ConnectFailed { failure, .. } => {
            let (kind, status, data) = match failure {
                ConnectFailure::PeerRejected(data) => {
                    (RDMA_CM_EVENT_REJECTED, BY_PROGRAM, data.as_slice())
                }
                ConnectFailure::NonPeerRejected => (RDMA_CM_EVENT_REJECTED, BY_SYSTEM, &[][..]),
                _ => (RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT, &[][..]),
            };
            own.state().phase = Phase::Disconnected;
            set_state(own, IBV_QPS_ERR);
            let news = News {
                status,
                data,
                ..News::of(kind)
            };
            raise(id, &news);
        }
        ControlEvent::Disconnected { .. } | ControlEvent::Broken { .. } => {
            end(id, own);
        }
        _ => {}
    }
}

/// Tells the program once that a connection has ended; returns false if it had before.
fn end(id: Handle<Id>, own: &Id) -> bool {
    let was_connected = {
        let mut state = own.state();
        let was_connected = state.phase == Phase::Connected;
        if was_connected {
            state.phase = Phase::Disconnected;
        }
        was_connected
    };
    if was_connected {
        set_state(own, IBV_QPS_ERR);
        raise(id, &News::of(RDMA_CM_EVENT_DISCONNECTED));
    }
    was_connected
}

/// What a program asks of a connection: depths of this side, and private data.
struct Asked {
    depths: (u8, u8),
    data: In<u8>,
    length: usize,
}

impl Asked {
    fn of(device: &RoceDevice, parameters: In<rdma_conn_param>) -> Self {
        let Some(parameters) = parameters.get() else {
            return Self {
                depths: USUAL_DEPTHS,
                data: In::at(core::ptr::null()),
                length: 0,
            };
        };
        // The largest number stands for as many as there can be.
        let reads = u8::try_from(device.limits().reads).unwrap_or(u8::MAX);
        let depths = (parameters.responder_resources, parameters.initiator_depth);
        Self {
            depths: (depths.0.min(reads), depths.1.min(reads)),
            data: In::at(parameters.private_data.cast()),
            length: parameters.private_data_len.into(),
        }
    }
}

/// Returns the QPN of the queue pair of an identifier.
fn qpn(own: &Id) -> Result<u32> {
    let pair = own.state().pair;
    Ok(pair.get().ok_or(Errno::EINVAL)?.qpn)
}

pub(crate) extern "C" fn rdma_connect(id: Handle<Id>, parameters: In<rdma_conn_param>) -> c_int {
    done((|| {
        let own = id.get().ok_or(Errno::EINVAL)?;
        let qpn = qpn(own)?;
        let (phase, peer) = {
            let state = own.state();
            (state.phase, state.remote)
        };
        let peer = peer.filter(|_| phase == Phase::RouteResolved);
        let peer = peer.ok_or(Errno::EINVAL)?;
        let device = &own.adapter.device;
        let asked = Asked::of(device, parameters);
        // The event of the outcome may come before the call returns.
        own.state().phase = Phase::Connecting;
        let data = values(&asked.data, asked.length);
        let connects = device.connect(qpn, peer, data, asked.depths);
        connects.map_err(|error| {
            own.state().phase = phase;
            refused(error)
        })?;
        complete(id)
    })())
}

pub(crate) extern "C" fn rdma_accept(id: Handle<Id>, parameters: In<rdma_conn_param>) -> c_int {
    done((|| {
        let own = id.get().ok_or(Errno::EINVAL)?;
        let phase = own.state().phase;
        let Phase::Requested(request) = phase else {
            return Err(Errno::EINVAL);
        };
        let qpn = qpn(own)?;
        let device = &own.adapter.device;
        let asked = Asked::of(device, parameters);
        own.state().phase = Phase::Connecting;
        let data = values(&asked.data, asked.length);
        let accepts = device.accept(request, qpn, data, asked.depths);
        accepts.map_err(|error| {
            own.state().phase = phase;
            refused(error)
        })?;
        complete(id)
    })())
}

pub(crate) extern "C" fn rdma_reject(id: Handle<Id>, data: In<c_void>, length: u8) -> c_int {
    done((|| {
        let own = id.get().ok_or(Errno::EINVAL)?;
        let request = {
            let mut state = own.state();
            let Phase::Requested(request) = state.phase else {
                return Err(Errno::EINVAL);
            };
            state.phase = Phase::Disconnected;
            request
        };
        let data = data.cast();
        let data = values(&data, length.into());
        own.adapter.device.reject(request, data);
        Ok(())
    })())
}

/// Ends a connection; the peer may have been first, which is no error.
pub(crate) extern "C" fn rdma_disconnect(id: Handle<Id>) -> c_int {
    done((|| {
        let own = id.get().ok_or(Errno::EINVAL)?;
        let qpn = qpn(own)?;
        if own.state().phase != Phase::Connected {
            return Ok(());
        }
        let ends = own.adapter.device.disconnect(qpn);
        ends.map_err(refused)?;
        // The adapter tells nothing about what it was asked for.
        match end(id, own) {
            true => complete(id),
            false => Ok(()),
        }
    })())
}
