//! Connections of identifiers.

use core::ffi::c_int;

use backend_roce::Attempt;
use dat_core::backend::{ConnectFailure, ControlEvent};
use nix::errno::Errno;

use super::attributes::forget_request;
use super::channel::News;
use super::id::{Id, OtherPair, Phase, complete, raise};
use super::pair::{adopt, receive_events};
use crate::boundary::layout::{
    IBV_QPS_ERR, IBV_QPS_RTS, RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_DISCONNECTED,
    RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_UNREACHABLE, ibv_qp_state,
    rdma_conn_param,
};
use crate::boundary::{Handle, In, values};
use crate::errors::{Result, ask_for_memory, done, refused, require};

/// The reason of a rejection by the program, and of one by the system.
const BY_PROGRAM: c_int = 28;
const BY_SYSTEM: c_int = 8;
/// Reads and atomics under way without parameters of the program.
const USUAL_DEPTHS: (u8, u8) = (16, 16);
/// Most repetitions; of messages that find no receive, for ever.
const MOST_RETRIES: u8 = 7;

/// Sets the state of the queue pair of an identifier.
fn set_state(own: &Id, state: ibv_qp_state) {
    let pair = own.state().pair;
    if let Ok(known) = pair.get() {
        known.set_state(pair, state);
    }
}

/// Takes an event of the adapter about the connection of an identifier.
pub(super) fn take(id: Handle<Id>, event: &ControlEvent) {
    let Ok(own) = id.get() else {
        return;
    };
    match event {
        ControlEvent::Established { private_data, .. } => {
            let is_active = {
                let mut state = own.state();
                state.phase = Phase::Connected;
                state.confirms()
            };
            set_state(own, IBV_QPS_RTS);
            let kind = match is_active {
                true => RDMA_CM_EVENT_CONNECT_RESPONSE,
                false => RDMA_CM_EVENT_ESTABLISHED,
            };
            let terms = own.qpn().and_then(|qpn| own.adapter.device.pair_terms(qpn));
            let news = News {
                data: private_data.as_slice(),
                depths: terms.map_or((0, 0), |terms| terms.depths),
                ..News::of(kind)
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
            let other = {
                let mut state = own.state();
                state.phase = Phase::Disconnected;
                state.other.take()
            };
            match other {
                // It is as before, and the program may connect it by another identifier.
                Some(other) => own.adapter.managed.remove(other.qpn),
                None => set_state(own, IBV_QPS_ERR),
            }
            let news = News {
                status,
                data,
                ..News::of(kind)
            };
            raise(id, &news);
        }
        ControlEvent::Disconnected { queue_pair } => {
            own.adapter.managed.leave(*queue_pair as u32);
            end(id, own);
        }
        ControlEvent::Broken { .. } => {
            end(id, own);
        }
        _ => {}
    }
}

/// Tells the program once that a connection has ended; returns false if it had before.
fn end(id: Handle<Id>, own: &Id) -> bool {
    {
        let mut state = own.state();
        if state.phase != Phase::Connected {
            return false;
        }
        state.phase = Phase::Disconnected;
    }
    set_state(own, IBV_QPS_ERR);
    raise(id, &News::of(RDMA_CM_EVENT_DISCONNECTED));
    true
}

/// Parameters of a connection, and private data.
struct Asked {
    attempt: Attempt,
    data: In<u8>,
    length: usize,
}

impl Asked {
    fn of(own: &Id, own_port: u16, parameters: In<rdma_conn_param>) -> Self {
        let mut asked = Self {
            attempt: Attempt {
                own_port,
                depths: USUAL_DEPTHS,
                retries: MOST_RETRIES,
                not_ready_retries: MOST_RETRIES,
                keeps_pair: own.state().other.is_some(),
            },
            data: In::at(core::ptr::null()),
            length: 0,
        };
        if let Ok(parameters) = parameters.get() {
            // The largest number stands for as many as there can be.
            let reads = own.adapter.device.attributes().max_rdma_read_per_ep_in;
            let reads = u8::try_from(reads).unwrap_or(u8::MAX);
            let depths = (parameters.responder_resources, parameters.initiator_depth);
            asked.attempt.depths = (depths.0.min(reads), depths.1.min(reads));
            asked.attempt.retries = parameters.retry_count.min(MOST_RETRIES);
            asked.attempt.not_ready_retries = parameters.rnr_retry_count.min(MOST_RETRIES);
            asked.data = In::at(parameters.private_data.cast());
            asked.length = parameters.private_data_len.into();
        }
        asked
    }

    fn data(&self) -> &[u8] {
        values(&self.data, self.length)
    }
}

/// Returns the QPN of the queue pair that an identifier connects: its own, or that of the
/// parameters.
fn pair_for(id: Handle<Id>, parameters: In<rdma_conn_param>, is_active: bool) -> Result<u32> {
    let own = id.get()?;
    adopt(id, own);
    let pair = own.state().pair;
    if let Ok(pair) = pair.get() {
        return Ok(pair.qpn);
    }
    let qpn = parameters.get()?.qp_num;
    own.adapter.device.pair_state(qpn).map_err(refused)?;
    let life = own.adapter.managed.add(qpn);
    own.state().other = Some(OtherPair {
        qpn,
        life,
        is_active,
    });
    receive_events(id, own, qpn);
    Ok(qpn)
}

pub(crate) extern "C" fn rdma_connect(id: Handle<Id>, parameters: In<rdma_conn_param>) -> c_int {
    done(|| {
        ask_for_memory()?;
        let own = id.get()?;
        let (phase, local, peer) = {
            let state = own.state();
            (state.phase, state.local, state.remote)
        };
        let ends = local.zip(peer).filter(|_| phase == Phase::RouteResolved);
        let (local, peer) = ends.ok_or(Errno::EINVAL)?;
        let qpn = pair_for(id, parameters, true)?;
        let asked = Asked::of(own, local.port(), parameters);
        // The event of the outcome may come before the call returns.
        own.state().phase = Phase::Connecting;
        let device = &own.adapter.device;
        let connects = device.connect(qpn, peer, asked.data(), &asked.attempt);
        connects.map_err(|error| {
            own.state().phase = phase;
            refused(error)
        })?;
        complete(id)
    })
}

pub(crate) extern "C" fn rdma_accept(id: Handle<Id>, parameters: In<rdma_conn_param>) -> c_int {
    done(|| {
        ask_for_memory()?;
        let own = id.get()?;
        let phase = own.state().phase;
        let Phase::Requested(request) = phase else {
            return Err(Errno::EINVAL);
        };
        let qpn = pair_for(id, parameters, false)?;
        let device = &own.adapter.device;
        let asked = Asked::of(own, 0, parameters);
        forget_request(own);
        own.state().phase = Phase::Connecting;
        let accepts = device.accept(request, qpn, asked.data(), &asked.attempt);
        accepts.map_err(|error| {
            own.state().phase = phase;
            refused(error)
        })?;
        if let Some(tuning) = own.adapter.managed.tuning(qpn) {
            device.tune(qpn, &tuning).map_err(refused)?;
        }
        complete(id)
    })
}

/// Confirms an answer that a program has got for a queue pair that it made itself.
pub(crate) extern "C" fn rdma_establish(id: Handle<Id>) -> c_int {
    done(|| {
        let own = id.get()?;
        let state = own.state();
        let is_answered = state.confirms() && state.phase == Phase::Connected;
        require(is_answered, Errno::EINVAL)
    })
}

pub(crate) extern "C" fn rdma_reject(id: Handle<Id>, data: In<u8>, length: u8) -> c_int {
    reject(id, true, data, length)
}

/// Rejects a request for what this side does not have.
pub(crate) extern "C" fn rdma_reject_ece(id: Handle<Id>, data: In<u8>, length: u8) -> c_int {
    reject(id, false, data, length)
}

fn reject(id: Handle<Id>, by_program: bool, data: In<u8>, length: u8) -> c_int {
    done(|| {
        let own = id.get()?;
        let request = {
            let mut state = own.state();
            let Phase::Requested(request) = state.phase else {
                return Err(Errno::EINVAL);
            };
            state.phase = Phase::Disconnected;
            request
        };
        let data = values(&data, length.into());
        forget_request(own);
        own.adapter.device.reject(request, by_program, data);
        Ok(())
    })
}

/// Ends a connection; the peer may have been first, which is no error.
pub(crate) extern "C" fn rdma_disconnect(id: Handle<Id>) -> c_int {
    done(|| {
        let own = id.get()?;
        adopt(id, own);
        let qpn = own.qpn();
        let (phase, had_other) = {
            let state = own.state();
            (state.phase, state.other.is_some())
        };
        require(qpn.is_some() || had_other, Errno::EINVAL)?;
        if !matches!(phase, Phase::Connecting | Phase::Connected) {
            return Ok(());
        }
        // A queue pair that the program has destroyed has no connection.
        if let Some(qpn) = qpn {
            own.adapter.device.disconnect(qpn).map_err(refused)?;
        }
        // The adapter tells nothing about what it was asked for, also if that was not yet made.
        {
            let mut state = own.state();
            if state.phase == Phase::Connecting {
                state.phase = Phase::Connected;
            }
        }
        match end(id, own) {
            true => complete(id),
            false => Ok(()),
        }
    })
}
