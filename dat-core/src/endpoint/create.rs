//! Creates endpoints.

use super::ReceiveSide;
use super::configure::{Wanted, receive_report, set_limits};
use super::endings::{EndpointOf, SlotOf};
use super::limits::check_attributes;
use super::modify::soft_watermark;
use crate::adapter::{Control, Ia};
use crate::attributes::EpAttributes;
use crate::backend::Backend;
use crate::error::{Cause, Error, Parameter, Result, Subtype};
use crate::flags::{EndpointState, EvdFlags};
use crate::id::{EpId, EvdId, Index, PzId, SrqId, next_generation};
use crate::storage::vacant;
use crate::sync::RawLock;

/// Error of the attributes in `ep_create`.
const ATTRIBUTES: Error = Error::invalid_argument(6).about(Parameter::Attributes);
/// Error of the attributes in `ep_create_with_srq`.
const ATTRIBUTES_WITH_SRQ: Error = Error::invalid_argument(7).about(Parameter::Attributes);
/// Error of the zone in both.
const ZONE: Error = Error::invalid_argument(2).about(Parameter::Pz);

/// # Endpoints
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Creates an unconnected endpoint.
    ///
    /// Receive completions go to `receive`, request and bind completions to `request`, connection
    /// events to `connect`. Without a dispatcher, those events are not reported; without `receive`
    /// or `request`, nothing can be posted to that queue. A request dispatcher without the bind
    /// stream takes transfers, but binds are refused. `None` for `attributes` means the adapter's
    /// defaults; `ep_modify` can set the attributes and a missing zone later.
    ///
    /// # Errors
    /// - INVALID_HANDLE (PZ, EVD_RECV, EVD_REQUEST, EVD_CONN): a handle is not live on this
    ///   adapter, or the dispatcher lacks the stream.
    /// - INVALID_PARAMETER (ARG6): an attribute is negative, illegal or above the adapter's limit,
    ///   or a queue without a dispatcher has a depth above 0.
    /// - INVALID_PARAMETER (no subtype): the streams may not share a dispatcher.
    /// - MODEL_NOT_SUPPORTED: the provider lacks the quality of service.
    /// - INSUFFICIENT_RESOURCES (TEP, TEVD): storage or device resources are exhausted.
    /// - INVALID_HANDLE (IA): the adapter is being closed.
    ///
    /// Spec: EPC-01..10, DTO-01, DTO-02, GEN-06, GEN-07
    ///
    /// # Examples
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/pair/mod.rs"));
    /// # fn main() { apart(|fabric, a, b| {
    /// # let (ia, pz, evd) = (&a.ia, a.pz, a.evd);
    /// // RDMA Reads need room: by default an endpoint has none.
    /// let reads = EpAttributes {
    ///     max_rdma_read_in: 1,
    ///     max_rdma_read_out: 1,
    ///     ..EpAttributes::DEFAULT
    /// };
    /// let ep = ia.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), Some(&reads))?;
    /// assert_eq!(ia.ep_get_status(ep)?.state, EndpointState::Unconnected);
    /// # Ok(()) }) }
    /// ```
    pub fn ep_create(
        &self,
        pz: Option<PzId>,
        receive: Option<EvdId>,
        request: Option<EvdId>,
        connect: Option<EvdId>,
        attributes: Option<&EpAttributes>,
    ) -> Result<EpId> {
        let wanted = Wanted {
            pz,
            receive,
            request,
            connect,
            attributes: attributes.unwrap_or(&EpAttributes::DEFAULT),
        };
        self.controlled(|control| {
            self.check_handles(control, &wanted)?;
            let state = EndpointState::Unconnected;
            if attributes.is_none() {
                return self.new_default_endpoint(control, wanted, state);
            }
            let asked = wanted.attributes;
            self.check_asked(control, asked, false, ATTRIBUTES)?;
            if wanted.receive.is_none() && asked.max_recv_dtos != 0
                || wanted.request.is_none() && asked.max_request_dtos != 0
            {
                return Err(ATTRIBUTES.because(Cause::DispatcherMissing));
            }
            self.new_endpoint(control, &wanted, None, state)
        })
    }

    /// Creates an unconnected endpoint that takes its receive buffers from a shared receive queue.
    ///
    /// The endpoint keeps the queue until it is freed. `max_recv_iov` is ignored; a soft high
    /// watermark of 0 or infinity is off.
    ///
    /// # Errors
    /// As `ep_create`, with the attributes at ARG7; and
    /// - INVALID_HANDLE (SRQ): `srq` is not a live shared receive queue of this adapter.
    /// - INVALID_PARAMETER (ARG2): the zone differs from the queue's, and the provider requires
    ///   equality.
    ///
    /// Spec: EPX-01..07, EPX-09, SRQR-33..36, GEN-06
    pub fn ep_create_with_srq(
        &self,
        pz: Option<PzId>,
        receive: Option<EvdId>,
        request: Option<EvdId>,
        connect: Option<EvdId>,
        srq: SrqId,
        attributes: &EpAttributes,
    ) -> Result<EpId> {
        let wanted = Wanted {
            pz,
            receive,
            request,
            connect,
            attributes,
        };
        self.controlled(|control| {
            self.check_handles(control, &wanted)?;
            self.check_srq(srq)?;
            let asked = wanted.attributes;
            self.check_asked(control, asked, true, ATTRIBUTES_WITH_SRQ)?;
            if wanted.request.is_none() && asked.max_request_dtos != 0 {
                return Err(ATTRIBUTES_WITH_SRQ.because(Cause::DispatcherMissing));
            }
            self.new_endpoint(control, &wanted, Some(srq), EndpointState::Unconnected)
        })
    }

    /// Checks requested attributes against the limits of the adapter and the provider.
    pub(super) fn check_asked(
        &self,
        control: &mut Control<'_, B>,
        asked: &EpAttributes,
        shared: bool,
        invalid: Error,
    ) -> Result<()> {
        let adapter = self.limits(control)?;
        let provider = control.backend()?.provider_attributes();
        check_attributes(asked, &adapter, &provider, shared, invalid)
    }

    /// Creates the endpoint of a connection request at a public service point (PSC-03).
    ///
    /// It has no zone and no dispatchers, so it needs neither device objects nor records.
    pub(crate) fn new_tentative_endpoint(&self, control: &mut Control<'_, B>) -> Result<EpId> {
        let (index, slot) = self.free_slot(control)?;
        self.with_parked_slot(slot, |endpoint, side| {
            let before = endpoint.generation;
            let state = EndpointState::TentativeConnectionPending;
            let id = self.occupy_slot(slot, endpoint, index, state, None)?;
            if let Err(error) = self.default_attributes(control, &mut endpoint.attributes) {
                slot.handle.store(0);
                endpoint.clear_slot(before);
                return Err(error);
            }
            set_limits(endpoint, side, None);
            slot.set_shared_receive_report(receive_report(&endpoint.attributes));
            self.shared.endpoints.claim(index);
            Ok(id)
        })
    }

    /// Frees an endpoint that was created for a request and never reported to the consumer.
    #[cold]
    pub(crate) fn forget_tentative_endpoint(&self, ep: EpId) {
        if let Some(slot) = self.shared.endpoints.get(ep.index()) {
            slot.handle.store(0);
            self.with_parked_slot(slot, |endpoint, side| {
                endpoint.clear_slot(endpoint.generation);
                *side = ReceiveSide::EMPTY;
            });
            self.shared.endpoints.give_back(ep.handle());
        }
    }

    /// Creates an endpoint with default attributes.
    fn new_default_endpoint(
        &self,
        control: &mut Control<'_, B>,
        wanted: Wanted<'_>,
        state: EndpointState,
    ) -> Result<EpId> {
        let mut attributes = EpAttributes::DEFAULT;
        self.default_attributes(control, &mut attributes)?;
        let wanted = Wanted {
            attributes: &attributes,
            ..wanted
        };
        self.new_endpoint(control, &wanted, None, state)
    }

    /// Writes the default attributes.
    fn default_attributes(
        &self,
        control: &mut Control<'_, B>,
        attributes: &mut EpAttributes,
    ) -> Result<()> {
        let zones = control.protection_zones.len();
        // As `limits`, without copying its result.
        let mut adapter = control.backend()?.ia_attributes();
        self.lower(&mut adapter, zones);
        *attributes = EpAttributes::default_for(&adapter);
        Ok(())
    }

    /// Checks the handles of a call and the streams of its dispatchers (EVC-05).
    ///
    /// This comes before the check of any other argument.
    pub(super) fn check_handles(
        &self,
        control: &mut Control<'_, B>,
        wanted: &Wanted<'_>,
    ) -> Result<()> {
        if let Some(pz) = wanted.pz {
            control.zone(pz)?;
        }
        let check = |evd: Option<EvdId>, role, stream| match evd {
            Some(evd) => self.check_dispatcher(evd, role, stream),
            None => Ok(()),
        };
        check(wanted.receive, Subtype::InvalidHandleEvdRecv, EvdFlags::DTO)?;
        check(
            wanted.request,
            Subtype::InvalidHandleEvdRequest,
            EvdFlags::DTO,
        )?;
        check(
            wanted.connect,
            Subtype::InvalidHandleEvdConn,
            EvdFlags::CONNECTION,
        )
    }

    /// Checks that a dispatcher is live and has a stream; `role` is the error's subtype.
    pub(crate) fn check_dispatcher(
        &self,
        evd: EvdId,
        role: Subtype,
        stream: EvdFlags,
    ) -> Result<()> {
        let flags = self
            .shared
            .event_dispatchers
            .get(evd.index())
            .and_then(|slot| {
                slot.queue
                    .with(|queue| (queue.id == evd && !evd.is_null()).then_some(queue.flags))
            });
        match flags {
            Some(flags) if flags.contains(stream) => Ok(()),
            Some(_) => Err(Error::invalid_handle(role).because(Cause::FlagNotAllowed)),
            None => Err(evd.refused_as(self.shared.instance, role)),
        }
    }

    fn check_srq(&self, srq: SrqId) -> Result<()> {
        let live = self
            .shared
            .shared_receive_queues
            .get(srq.index())
            .is_some_and(|slot| slot.main.with(|queue| queue.id == srq && !srq.is_null()));
        if live {
            Ok(())
        } else {
            Err(srq.refused(self.shared.instance))
        }
    }

    /// Returns a free slot and its index.
    fn free_slot(&self, control: &mut Control<'_, B>) -> Result<(Index, &SlotOf<B, L>)> {
        control.check_open()?;
        let full = || Error::insufficient_resources(Subtype::ResourceTep).because(Cause::TableFull);
        self.shared
            .endpoints
            .find(0, |slot| {
                slot.main
                    .with(|endpoint| vacant(endpoint.id.is_null(), endpoint.generation))
            })
            .ok_or_else(full)
    }

    /// Puts a new endpoint into a free slot, optionally with a shared receive queue.
    fn occupy_slot(
        &self,
        slot: &SlotOf<B, L>,
        endpoint: &mut EndpointOf<B>,
        index: Index,
        state: EndpointState,
        srq: Option<Index>,
    ) -> Result<EpId> {
        let generation = next_generation(endpoint.generation)?;
        let id = EpId::new(self.shared.instance, generation, index);
        endpoint.clear_slot(generation);
        endpoint.id = id;
        endpoint.state = state;
        endpoint.srq = srq;
        slot.set_taken_queue(srq);
        slot.handle.store(id.handle().to_raw());
        Ok(id)
    }

    fn new_endpoint(
        &self,
        control: &mut Control<'_, B>,
        wanted: &Wanted<'_>,
        srq: Option<SrqId>,
        state: EndpointState,
    ) -> Result<EpId> {
        let (index, slot) = self.free_slot(control)?;
        let tied = srq
            .map(|srq| self.attach_endpoint_to_srq(srq))
            .transpose()?
            .map(|(srq, ..)| srq);
        let outcome = self.with_parked_slot(slot, |endpoint, side| {
            let before = endpoint.generation;
            let id = self.occupy_slot(slot, endpoint, index, state, tied)?;
            if srq.is_some() {
                endpoint.soft_high_watermark = soft_watermark(wanted.attributes.srq_soft_hw);
            }
            match self.configure(control, slot, endpoint, side, wanted, ZONE) {
                Ok(()) => Ok(id),
                Err(error) => {
                    slot.handle.store(0);
                    endpoint.clear_slot(before);
                    *side = ReceiveSide::EMPTY;
                    Err(error)
                }
            }
        });
        match (&outcome, tied) {
            (Ok(_), tied) => {
                self.shared.endpoints.claim(index);
                if let Some(srq) = tied {
                    self.list_endpoint_on_srq(srq, index);
                }
            }
            (Err(_), Some(srq)) => {
                self.detach_endpoint_from_srq(srq);
            }
            (Err(_), None) => {}
        }
        outcome
    }
}
