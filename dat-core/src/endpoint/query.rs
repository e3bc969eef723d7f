//! Queries of endpoints.

use super::{Call, permit};
use crate::adapter::{Ia, busy};
use crate::attributes::{EpAttributes, IaAddress};
use crate::backend::Backend;
use crate::error::{Cause, Error, Result, Subtype};
use crate::flags::{EndpointState, EpFields, VALUE_UNKNOWN, check_fields};
use crate::id::{EpId, EvdId, Handle, PzId, SrqId};
use crate::record::{self, Owner};
use crate::sync::RawLock;

/// Parameters of an endpoint, to query and to modify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct EpParam {
    /// Handle of the adapter.
    pub ia: Handle,
    /// State of the endpoint.
    pub state: EndpointState,
    /// Address of the adapter.
    pub local_address: IaAddress,
    /// Local port qualifier, in states that have one (EPQ-03).
    pub local_port: Option<u64>,
    /// Address of the peer, in states that have one (EPQ-02).
    pub remote_address: Option<IaAddress>,
    /// Port qualifier of the peer, in states that have one (EPQ-02).
    pub remote_port: Option<u64>,
    /// Protection zone.
    pub pz: Option<PzId>,
    /// Dispatcher for receive completions.
    pub recv_evd: Option<EvdId>,
    /// Dispatcher for request and bind completions.
    pub request_evd: Option<EvdId>,
    /// Dispatcher for connection events.
    pub connect_evd: Option<EvdId>,
    /// Shared receive queue.
    pub srq: Option<SrqId>,
    /// Attributes; a queue's depth takes effect once the queue has a dispatcher.
    pub attributes: EpAttributes,
}

/// State and queues of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct EpStatus {
    /// State of the endpoint.
    pub state: EndpointState,
    /// Set if no receive is outstanding.
    pub recv_idle: bool,
    /// Set if no request is outstanding.
    pub request_idle: bool,
}

/// Receive buffers that an endpoint holds for arriving messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RecvQuery {
    /// Number of buffers held; [`VALUE_UNKNOWN`] if the provider cannot tell.
    pub allocated: i32,
    /// Distance in messages from the newest completed one to the newest with a buffer.
    ///
    /// [`VALUE_UNKNOWN`] if the provider cannot tell.
    pub span: i32,
}

/// # State of endpoints
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Returns the parameters of an endpoint.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): `ep` is not a live endpoint of this adapter.
    /// - INVALID_PARAMETER (ARG2): `fields` has unknown bits.
    ///
    /// Spec: EPQ-01..03, GEN-08
    pub fn ep_query(&self, ep: EpId, fields: EpFields) -> Result<EpParam> {
        self.controlled(|control| {
            let local_address = control
                .backend()
                .map(|backend| backend.ia_attributes().ia_address);
            let (zone, srq, evds, param) = self.with_endpoint(ep, |_, endpoint| {
                permit(Call::Inspect, endpoint.state)?;
                check_fields(fields)?;
                let (local, remote) = known_addresses(endpoint.state);
                let connection = &endpoint.connection;
                let param = EpParam {
                    ia: self.handle(),
                    state: endpoint.state,
                    pz: None,
                    recv_evd: None,
                    request_evd: None,
                    connect_evd: None,
                    srq: None,
                    local_address: local_address?,
                    local_port: local.then_some(connection.local_port),
                    remote_address: connection.remote.filter(|_| remote),
                    remote_port: remote.then_some(connection.remote_port),
                    attributes: endpoint.attributes,
                };
                let receives = endpoint.receive_evd;
                let evds = [receives, endpoint.request_evd, endpoint.connect_evd];
                Ok((endpoint.zone, endpoint.srq, evds, param))
            })?;
            // The control lock keeps these objects.
            let zone = zone.and_then(|zone| control.protection_zones.get(usize::from(zone)));
            let srq = srq.and_then(|srq| self.shared.shared_receive_queues.get(usize::from(srq)));
            let [recv_evd, request_evd, connect_evd] =
                evds.map(|evd| evd.map(|evd| self.evd_id_at(evd)));
            Ok(EpParam {
                pz: zone.map(|zone| zone.id),
                recv_evd,
                request_evd,
                connect_evd,
                srq: srq.map(|slot| slot.main.with(|queue| queue.id)),
                ..param
            })
        })
    }

    /// Returns the state of an endpoint and the idleness of its queues.
    ///
    /// Work counts as complete once its completion can be polled, dequeued or not.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): `ep` is not a live endpoint of this adapter.
    ///
    /// Spec: EPG-01
    pub fn ep_get_status(&self, ep: EpId) -> Result<EpStatus> {
        let (receive_evd, request_evd) = self.with_endpoint(ep, |_, endpoint| {
            Ok((endpoint.receive_evd, endpoint.request_evd))
        })?;
        for evd in [receive_evd, request_evd].into_iter().flatten() {
            self.poll_at(evd);
        }
        // Only the device knows the buffers taken from a shared queue.
        let of_shared = || {
            self.with_endpoint(ep, |_, endpoint| {
                Ok(endpoint.queue_pair.filter(|_| endpoint.srq.is_some()))
            })
        };
        let held = match of_shared()? {
            Some(_) => self.controlled(|control| {
                Ok(match of_shared()? {
                    Some(key) => control.backend()?.receive_info(key).allocated.unwrap_or(0),
                    None => 0,
                })
            })?,
            None => 0,
        };
        let (state, ring, reach) = self.with_endpoint(ep, |slot, endpoint| {
            permit(Call::Inspect, endpoint.state)?;
            let side = slot.receive.lock_unparked();
            let reach = side.ok_or(busy(Subtype::ResourceTep))?.reach;
            Ok((endpoint.state, endpoint.ring, reach))
        })?;
        let records = &self.shared.records;
        // Receives posted before the queue changed its depth keep their old records.
        let received = !record::all_of(records, reach, Owner::Receives(ep))
            .any(|(_, record)| record.is_posted());
        Ok(EpStatus {
            state,
            recv_idle: received && held == 0,
            request_idle: ring.is_idle(records),
        })
    }

    /// Returns the number of receive buffers that an endpoint holds for arriving messages.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): `ep` is not a live endpoint of this adapter.
    /// - MODEL_NOT_SUPPORTED: the provider can tell neither value.
    ///
    /// Spec: EPY-01..03
    pub fn ep_recv_query(&self, ep: EpId) -> Result<RecvQuery> {
        self.controlled(|control| {
            let key = self.with_endpoint(ep, |_, endpoint| {
                permit(Call::Inspect, endpoint.state)?;
                Ok(endpoint.queue_pair)
            })?;
            let backend = control.backend()?;
            let unsupported = || Err(Error::model_not_supported().because(Cause::Unsupported));
            let Some(key) = key else {
                // Without a queue pair, no message arrives.
                if backend.provider_attributes().ep_recv_info_supported == 0 {
                    return unsupported();
                }
                return Ok(RecvQuery {
                    allocated: 0,
                    span: 0,
                });
            };
            let info = backend.receive_info(key);
            if info.allocated.is_none() && info.span.is_none() {
                return unsupported();
            }
            let value = |known: Option<u32>| {
                known.map_or(VALUE_UNKNOWN, |value| {
                    i32::try_from(value).unwrap_or(i32::MAX)
                })
            };
            let allocated = value(info.allocated);
            let span = value(info.span.map(|span| span.max(info.allocated.unwrap_or(0))));
            Ok(RecvQuery { allocated, span })
        })
    }

    /// Copies the private data that came with the connection or with its rejection.
    ///
    /// Copies as much as fits into `into` and returns the full length in bytes. The data stays
    /// until the endpoint is freed or UNCONNECTED again.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): `ep` is not a live endpoint of this adapter.
    ///
    /// Spec: EPK-06, GEN-10, EVW-13
    pub fn ep_private_data(&self, ep: EpId, into: &mut [u8]) -> Result<usize> {
        self.with_endpoint(ep, |_, endpoint| {
            let data = &endpoint.connection.private_data;
            for (to, from) in into.iter_mut().zip(data) {
                *to = *from;
            }
            Ok(data.len())
        })
    }
}

/// Returns two flags: the state has a local port; it has a peer.
fn known_addresses(state: EndpointState) -> (bool, bool) {
    match state {
        EndpointState::Unconnected | EndpointState::Disconnected => (false, false),
        EndpointState::Reserved => (true, false),
        EndpointState::PassiveConnectionPending
        | EndpointState::TentativeConnectionPending
        | EndpointState::ActiveConnectionPending
        | EndpointState::CompletionPending
        | EndpointState::Connected
        | EndpointState::DisconnectPending => (true, true),
    }
}
