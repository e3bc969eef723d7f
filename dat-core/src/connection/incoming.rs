//! Incoming connection requests, from a peer or by a handoff.

use crate::adapter::{Control, Ia};
use crate::attributes::IaAddress;
use crate::backend::{Backend, PrivateData, RequestKey};
use crate::connection::{CrSlot, RspSlot};
use crate::endpoint::Trigger;
use crate::error::{Cause, Error, Result, Subtype};
use crate::event::{Deferred, Event};
use crate::flags::{HandleKind, PspFlags};
use crate::id::{CrId, EpId, Handle, Index, PspId, RspId, next_generation};
use crate::storage::vacant;
use crate::sync::RawLock;

/// A connection request as the backend reports it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming<'a> {
    pub(crate) request: RequestKey,
    pub(crate) remote: &'a IaAddress,
    pub(crate) remote_port: u64,
    pub(crate) local: &'a IaAddress,
    pub(crate) private_data: &'a PrivateData,
}

/// A service point that receives requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Public(PspId),
    Reserved(RspId),
}

impl Target {
    fn from_token(token: u64) -> Option<Self> {
        let handle = Handle::from_raw(token);
        match handle.kind()? {
            HandleKind::Psp => Some(Self::Public(PspId::from_handle(handle))),
            HandleKind::Rsp => Some(Self::Reserved(RspId::from_handle(handle))),
            _ => None,
        }
    }
}

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Delivers an incoming request, or refuses it as without a listener (PSC-02).
    pub(crate) fn request_arrived(
        &self,
        control: &mut Control<'_, B>,
        listener: u64,
        incoming: &Incoming<'_>,
        deferred: &mut Deferred,
    ) {
        let request = incoming.request;
        let target = Target::from_token(listener).filter(|_| control.check_open().is_ok());
        let offered = target.is_some_and(|target| {
            let requests = &control.connection_requests;
            let found = requests.find(0, |slot| vacant(slot.id.is_null(), slot.generation));
            let Some((index, _)) = found else {
                return false;
            };
            let offered = self.offer(control, target, index, incoming, deferred);
            if offered.is_ok() {
                control.connection_requests.claim(index);
            }
            offered.is_ok()
        });
        if !offered && let Ok(backend) = control.backend() {
            backend.reject(request, false, &[]);
        }
    }

    /// Creates the connection request in slot `index`, with its event at the service point.
    ///
    /// The slot may hold the request that is handed off. An error changes nothing.
    // A frame more would be too many for the stack of a microcontroller.
    #[cfg_attr(feature = "compact", inline(always))]
    pub(super) fn offer(
        &self,
        control: &mut Control<'_, B>,
        target: Target,
        index: Index,
        incoming: &Incoming<'_>,
        deferred: &mut Deferred,
    ) -> Result<()> {
        // Two calls in sequence: the stack frame of the first is gone when the second starts.
        let (ep, made) = self.endpoint_for(control, target)?;
        let announced = self.announce(control, target, index, ep, incoming, deferred);
        if announced.is_err()
            && made
            && let Some(ep) = ep
        {
            self.forget_tentative_endpoint(ep);
        }
        announced
    }

    /// Returns the endpoint for a request, and true if this call made it.
    #[cfg_attr(feature = "compact", inline(always))]
    fn endpoint_for(
        &self,
        control: &mut Control<'_, B>,
        target: Target,
    ) -> Result<(Option<EpId>, bool)> {
        let (reserved, makes) = match target {
            Target::Public(psp) => {
                let slot = control.public_service_point(psp)?;
                (None, slot.flags == PspFlags::Provider)
            }
            Target::Reserved(rsp) => {
                let slot = control.reserved_service_point(rsp)?;
                (slot.ep, slot.ep.is_none())
            }
        };
        if makes {
            Ok((Some(self.new_tentative_endpoint(control)?), true))
        } else {
            Ok((reserved, false))
        }
    }

    /// Writes the request with its endpoint `ep`, and queues its event.
    #[cfg_attr(feature = "compact", inline(never))]
    fn announce(
        &self,
        control: &mut Control<'_, B>,
        target: Target,
        index: Index,
        ep: Option<EpId>,
        incoming: &Incoming<'_>,
        deferred: &mut Deferred,
    ) -> Result<()> {
        let (evd, qualifier) = match target {
            Target::Public(psp) => {
                let slot = control.public_service_point(psp)?;
                (slot.evd, slot.qualifier)
            }
            Target::Reserved(rsp) => {
                let slot = control.reserved_service_point(rsp)?;
                (slot.evd, slot.qualifier)
            }
        };
        let full = Error::insufficient_resources(Subtype::ResourceMemory).because(Cause::TableFull);
        let generation = control
            .connection_requests
            .get(usize::from(index))
            .ok_or(full)
            .and_then(|slot| next_generation(slot.generation))?;
        let cr = CrId::new(self.shared.instance, generation, index);
        let event = Event::ConnectionRequest {
            service_point: match target {
                Target::Public(psp) => Some(psp),
                Target::Reserved(_) => None,
            },
            qualifier,
            cr,
        };
        // The dispatcher's queue is the backlog.
        let queued = self
            .shared
            .event_dispatchers
            .get(usize::from(evd))
            .is_some_and(|slot| {
                if L::PARKS {
                    self.poll_slot(slot, deferred);
                }
                slot.queue
                    .with(|queue| queue.push(&event, &self.shared, deferred))
            });
        if !queued {
            return Err(
                Error::insufficient_resources(Subtype::ResourceTevd).because(Cause::QueueFull)
            );
        }
        if let Some(ep) = ep {
            self.note_request(ep, qualifier, incoming);
        }
        if let Some(slot) = control.connection_requests.get_mut(usize::from(index)) {
            write_request(slot, cr, qualifier, ep, incoming);
        }
        if let Target::Reserved(rsp) = target {
            // A reserved service point yields one request, which takes its endpoint (RSC-03).
            self.end_reserved(control, rsp.slot());
        }
        Ok(())
    }

    /// Stores the peer in the endpoint of a request; a reserved endpoint becomes pending (E5).
    fn note_request(&self, ep: EpId, qualifier: u64, incoming: &Incoming<'_>) {
        // The endpoint is live: it is reserved for this service point or was just made.
        let _noted = self.with_endpoint(ep, |_, endpoint| {
            endpoint.step(Trigger::Request);
            endpoint.connection.remote = Some(*incoming.remote);
            endpoint.connection.remote_port = incoming.remote_port;
            endpoint.connection.local_port = qualifier;
            Ok(())
        });
    }

    /// Ends a reserved service point and returns its endpoint, unchanged.
    pub(super) fn end_reserved(&self, control: &mut Control<'_, B>, index: Index) -> Option<EpId> {
        let points = &mut control.reserved_service_points;
        control.reserved_qualifiers.leave(points, index);
        let slot = points.get_mut(usize::from(index))?;
        if slot.id.is_null() {
            return None;
        }
        let (rsp, listener, evd, ep) = (slot.id, slot.listener, slot.evd, slot.ep);
        *slot = RspSlot {
            generation: slot.generation,
            links: slot.links,
            ..RspSlot::EMPTY
        };
        control.reserved_service_points.give_back(rsp.handle());
        if let Ok(backend) = control.backend() {
            backend.stop_listening(listener);
        }
        self.detach_stream(evd, None);
        ep
    }

    /// Returns the service point of this adapter that listens on a qualifier.
    pub(super) fn listening(control: &Control<'_, B>, qualifier: u64) -> Option<Target> {
        let points = &control.public_service_points;
        if let Some(slot) = control.public_qualifiers.find(points, qualifier) {
            return Some(Target::Public(slot.id));
        }
        let points = &control.reserved_service_points;
        let slot = control.reserved_qualifiers.find(points, qualifier)?;
        Some(Target::Reserved(slot.id))
    }
}

/// Writes a connection request over a slot.
fn write_request(
    slot: &mut CrSlot,
    cr: CrId,
    qualifier: u64,
    ep: Option<EpId>,
    incoming: &Incoming<'_>,
) {
    *slot = CrSlot {
        id: cr,
        generation: cr.handle().generation(),
        request: incoming.request,
        remote: Some(*incoming.remote),
        local: Some(*incoming.local),
        remote_port: incoming.remote_port,
        qualifier,
        private_data: incoming.private_data.clone(),
        ep,
        context: 0,
    };
}
