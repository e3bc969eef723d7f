//! Connection requests.

use super::Incoming;
use crate::adapter::{Control, Ia};
use crate::attributes::IaAddress;
use crate::backend::{Backend, PrivateData, RequestKey, backend_refused};
use crate::endpoint::{Call, Trigger, not_ready, permit};
use crate::error::{Cause, Error, Parameter, Result, Subtype};
use crate::event::Deferred;
use crate::flags::{CrFields, EndpointState, check_fields};
use crate::id::{CrId, EpId, Index};
use crate::sync::RawLock;

/// Slot of one connection request; protected by the control lock.
#[derive(Debug)]
pub struct CrSlot {
    pub(crate) id: CrId,
    pub(crate) generation: u32,
    pub(crate) request: RequestKey,
    pub(crate) remote: Option<IaAddress>,
    pub(crate) local: Option<IaAddress>,
    pub(crate) remote_port: u64,
    pub(crate) qualifier: u64,
    pub(crate) private_data: PrivateData,
    /// Endpoint that the service point provided.
    pub(crate) ep: Option<EpId>,
    pub(crate) context: u64,
}

impl CrSlot {
    /// A free slot.
    pub const EMPTY: Self = Self {
        id: CrId::NULL,
        generation: 0,
        request: RequestKey(0),
        remote: None,
        local: None,
        remote_port: 0,
        qualifier: 0,
        private_data: PrivateData::new(),
        ep: None,
        context: 0,
    };

    /// Clears the slot and keeps its generation.
    pub(crate) fn clear_slot(&mut self) {
        *self = Self {
            generation: self.generation,
            ..Self::EMPTY
        };
    }
}

/// Result of [`Ia::cr_query`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrParam {
    /// Address of the peer.
    pub remote_address: Option<IaAddress>,
    /// Port qualifier of the peer.
    pub remote_port: u64,
    /// Local address that received the request.
    pub local_address: Option<IaAddress>,
    /// Connection qualifier that the peer requested.
    pub qualifier: u64,
    /// Private data of the peer.
    pub private_data: PrivateData,
    /// Endpoint that the service point provided; if `None`, the accept must name one.
    pub local_ep: Option<EpId>,
}

/// Error of the private data in `cr_accept`.
const ACCEPT_DATA: Error = Error::invalid_argument(3).about(Parameter::PrivateData);
/// Error of the private data in `cr_reject`.
const REJECT_DATA: Error = Error::invalid_argument(2).about(Parameter::PrivateData);

/// # Connection requests
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Returns the parameters of a connection request.
    ///
    /// # Errors
    /// - INVALID_HANDLE (CR): `cr` is not a live connection request of this adapter.
    /// - INVALID_PARAMETER (ARG2): unknown bits in `fields`.
    ///
    /// Spec: CRQ-01, GEN-08
    pub fn cr_query(&self, cr: CrId, fields: CrFields) -> Result<CrParam> {
        self.controlled(|control| {
            let slot = control.connection_request(cr)?;
            check_fields(fields)?;
            Ok(CrParam {
                remote_address: slot.remote,
                remote_port: slot.remote_port,
                local_address: slot.local,
                qualifier: slot.qualifier,
                private_data: slot.private_data.clone(),
                local_ep: slot.ep,
            })
        })
    }

    /// Returns false if the address of a connection request may be forged.
    ///
    /// A consumer with few places may give fewer of them to such requests, until they are
    /// established. Transports that do not tell return true.
    ///
    /// # Errors
    /// - INVALID_HANDLE (CR): `cr` is not a live connection request of this adapter.
    pub fn cr_is_proven(&self, cr: CrId) -> Result<bool> {
        self.controlled(|control| {
            let request = control.connection_request(cr)?.request;
            Ok(control.backend()?.is_proven(request))
        })
    }

    /// Accepts a connection request on `ep`, or on the endpoint that its service point provided.
    ///
    /// On success the endpoint is COMPLETION_PENDING and the request ends. ESTABLISHED or
    /// ACCEPT_COMPLETION_ERROR follows on the endpoint's connection dispatcher.
    ///
    /// # Errors
    /// - INVALID_HANDLE (CR, EP): `cr` or `ep` is not a live object of this adapter, or `ep` is
    ///   missing and the request has no endpoint.
    /// - INVALID_PARAMETER (ARG2): `ep` is given and the request has its own endpoint.
    /// - INVALID_STATE (EP state): `ep` is not UNCONNECTED.
    /// - INVALID_STATE (EP_NOTREADY): the endpoint has no zone yet.
    /// - INVALID_PARAMETER (ARG3): the private data is longer than `max_private_data_size`.
    /// - INSUFFICIENT_RESOURCES (TEP), INTERNAL_ERROR: the device refused or failed.
    ///
    /// An error changes neither endpoint, request nor peer.
    ///
    /// Spec: CRA-01..05, GEN-10, GEN-06
    ///
    /// # Examples
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/pair/mod.rs"));
    /// # fn main() { apart(|fabric, a, b| {
    /// b.ia.psp_create(7, b.evd, PspFlags::Consumer)?;
    /// # let request = ConnectParam {
    /// #     address: IaAddress::Node(2),
    /// #     qualifier: 7,
    /// #     timeout: TIMEOUT_INFINITE,
    /// #     private_data: b"hello",
    /// #     quality: QualityOfService::BEST_EFFORT,
    /// #     flags: ConnectFlags::empty(),
    /// # };
    /// a.ia.ep_connect(a.ep, &request, fabric.now())?;
    /// fabric.run_until_idle(100);
    ///
    /// b.ia.progress(fabric.now());
    /// let Event::ConnectionRequest { cr, .. } = b.ia.evd_dequeue(b.evd)? else {
    ///     panic!("no request");
    /// };
    /// b.ia.cr_accept(cr, Some(b.ep), b"welcome")?;
    /// # Ok(()) }) }
    /// ```
    pub fn cr_accept(&self, cr: CrId, ep: Option<EpId>, private_data: &[u8]) -> Result<()> {
        self.controlled(|control| {
            let slot = control.connection_request(cr)?;
            let (request, own) = (slot.request, slot.ep);
            let (remote, remote_port, qualifier) = (slot.remote, slot.remote_port, slot.qualifier);
            let (ep, call) = match (own, ep) {
                (Some(own), None) => (own, Call::AcceptOwn),
                (None, Some(ep)) => (ep, Call::AcceptNamed),
                (None, None) => (EpId::NULL, Call::AcceptNamed),
                (Some(_), Some(ep)) => {
                    self.with_endpoint(ep, |_, _| Ok(()))?;
                    return Err(Error::invalid_argument(2)
                        .about(Parameter::Ep)
                        .because(Cause::FlagCombination));
                }
            };
            self.with_parked_endpoint(ep, |_, endpoint| {
                permit(call, endpoint.state)?;
                let key = endpoint.queue_pair.ok_or_else(not_ready)?;
                Self::check_private_data(control, private_data, ACCEPT_DATA)?;
                control
                    .backend()?
                    .accept(request, key, private_data)
                    .map_err(|error| backend_refused(error, Subtype::ResourceTep))?;
                endpoint.step(Trigger::Accept);
                endpoint.connection.remote = remote;
                endpoint.connection.remote_port = remote_port;
                endpoint.connection.local_port = qualifier;
                // Destination of a duplicate of this connection.
                endpoint.connection.qualifier = remote_port;
                Ok(())
            })?;
            control.forget_request(cr);
            Ok(())
        })?;
        // The device may need `progress` earlier than its caller plans to wake up.
        self.wake_progress();
        Ok(())
    }

    /// Rejects a connection request; the peer sees a rejection by the consumer.
    ///
    /// The endpoint of a reserved service point becomes UNCONNECTED. An endpoint that the provider
    /// made is destroyed.
    ///
    /// # Errors
    /// - INVALID_HANDLE (CR): `cr` is not a live connection request of this adapter.
    /// - INVALID_PARAMETER (ARG2): the private data is longer than `max_private_data_size`.
    ///
    /// Spec: CRR-01, CRR-02, GEN-10
    pub fn cr_reject(&self, cr: CrId, private_data: &[u8]) -> Result<()> {
        let mut deferred = Deferred::default();
        let outcome = self.controlled(|control| {
            let slot = control.connection_request(cr)?;
            let (request, ep) = (slot.request, slot.ep);
            Self::check_private_data(control, private_data, REJECT_DATA)?;
            control.backend()?.reject(request, true, private_data);
            control.forget_request(cr);
            self.give_back_endpoint(control, ep, &mut deferred);
            Ok(())
        });
        self.run_deferred(&mut deferred);
        outcome
    }

    /// Hands a connection request to the service point of this adapter that listens on `qualifier`.
    ///
    /// The request ends. A new one, with its event, arrives at the other service point. An endpoint
    /// of the old request is released as after a rejection.
    ///
    /// # Errors
    /// - INVALID_HANDLE (CR): `cr` is not a live connection request of this adapter.
    /// - INVALID_PARAMETER (ARG2): no service point listens on `qualifier`.
    /// - INSUFFICIENT_RESOURCES: the other service point has no room; nothing changed.
    ///
    /// Spec: CRH-01, PSC-02
    pub fn cr_handoff(&self, cr: CrId, qualifier: u64) -> Result<()> {
        let mut deferred = Deferred::default();
        let outcome = self.controlled(|control| {
            let slot = control.connection_request(cr)?;
            let ep = slot.ep;
            // The new request overwrites the slot.
            let private_data = slot.private_data.clone();
            let (Some(remote), Some(local)) = (slot.remote, slot.local) else {
                return Err(Error::internal(Cause::CorruptCompletion));
            };
            let incoming = Incoming {
                request: slot.request,
                remote: &remote,
                remote_port: slot.remote_port,
                local: &local,
                private_data: &private_data,
            };
            let target = Self::listening(control, qualifier).ok_or(
                Error::invalid_argument(2)
                    .about(Parameter::Qualifier)
                    .because(Cause::UnknownValue),
            )?;
            // The new request takes the slot of the old one, whose handle becomes stale.
            self.offer(control, target, cr.slot(), &incoming, &mut deferred)?;
            self.give_back_endpoint(control, ep, &mut deferred);
            Ok(())
        });
        self.run_deferred(&mut deferred);
        outcome
    }

    /// Refuses and clears the connection request at an index, if there is one.
    pub(crate) fn destroy_cr_at(
        &self,
        control: &mut Control<'_, B>,
        index: Index,
        deferred: &mut Deferred,
    ) {
        let Some(slot) = control.connection_requests.get(usize::from(index)) else {
            return;
        };
        let (cr, request, ep) = (slot.id, slot.request, slot.ep);
        if cr.is_null() {
            return;
        }
        if let Ok(backend) = control.backend() {
            backend.reject(request, false, &[]);
        }
        control.forget_request(cr);
        self.give_back_endpoint(control, ep, deferred);
    }

    /// Releases the endpoint of a failed request, to the consumer or the provider.
    fn give_back_endpoint(
        &self,
        control: &mut Control<'_, B>,
        ep: Option<EpId>,
        deferred: &mut Deferred,
    ) {
        let Some(ep) = ep else {
            return;
        };
        let tentative = self.with_endpoint(ep, |_, endpoint| {
            if endpoint.step(Trigger::Reject) {
                endpoint.connection.clear();
            }
            Ok(endpoint.state == EndpointState::TentativeConnectionPending)
        });
        if tentative == Ok(true) {
            self.destroy_endpoint_at(control, ep.slot(), deferred);
        }
    }

    /// Checks the length of private data; `invalid` is the error of its argument.
    pub(crate) fn check_private_data(
        control: &mut Control<'_, B>,
        private_data: &[u8],
        invalid: Error,
    ) -> Result<()> {
        let limit = control
            .backend()?
            .provider_attributes()
            .max_private_data_size;
        let limit = usize::try_from(limit)
            .unwrap_or(0)
            .min(crate::backend::PRIVATE_DATA_MAX);
        if private_data.len() > limit {
            return Err(invalid.because(Cause::PrivateDataTooLong));
        }
        Ok(())
    }
}

impl<B> Control<'_, B> {
    /// Clears a connection request and its private data (CRA-04).
    fn forget_request(&mut self, cr: CrId) {
        if let Some(slot) = self.connection_requests.get_mut(cr.index()) {
            slot.clear_slot();
            self.connection_requests.give_back(cr.handle());
        }
    }
}
