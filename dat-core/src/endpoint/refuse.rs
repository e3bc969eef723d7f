//! Errors of refused posts, determined after the refusal in the order of DTO-07.

use super::post::{Refusal, Request};
use super::receive::Receive;
use crate::adapter::{Ia, busy};
use crate::backend::Backend;
use crate::error::{Cause, Error, Parameter, Subtype};
use crate::event::DtoOperation;
use crate::flags::{CompletionFlags, EndpointState};
use crate::id::SrqId;
use crate::memory::{LmrTriplet, LocalAccess, explain};
use crate::sync::RawLock;

/// Error of the segment count in every post call.
const COUNT: Error = Error::invalid_argument(2).about(Parameter::Segments);
/// Error of an endpoint that posts no reads: the code of a segment count.
const NO_READS: Error = Error::invalid_argument(2).about(Parameter::Ep);

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    #[cold]
    pub(super) fn explain_request(&self, request: &Request<'_>, refusal: &Refusal) -> Error {
        let Some(slot) = self.shared.endpoints.get(request.ep.index()) else {
            return request.ep.refused(self.shared.instance);
        };
        let Some(endpoint) = slot.main.lock_unparked() else {
            return busy(Subtype::ResourceTep);
        };
        if endpoint.id != request.ep || request.ep.is_null() {
            return request.ep.refused(self.shared.instance);
        }
        if !matches!(
            endpoint.state,
            EndpointState::Connected | EndpointState::Disconnected
        ) {
            return endpoint.state.forbids();
        }
        if endpoint.send.is_none() {
            return not_ready();
        }
        let (flags_argument, limit) = match request.operation {
            DtoOperation::RdmaWrite => (6, endpoint.limits.write_segments),
            DtoOperation::RdmaRead => (6, endpoint.limits.read_segments),
            DtoOperation::Send | DtoOperation::Receive => (5, endpoint.limits.send_segments),
        };
        if let Some(error) = refused_flags(request.flags, endpoint.refused_flags, flags_argument) {
            return error;
        }
        if request.operation == DtoOperation::RdmaRead && endpoint.reads_nothing() {
            return NO_READS.because(Cause::NoReads);
        }
        let access = LocalAccess {
            zone_seal: endpoint.zone_seal,
            writes: request.operation == DtoOperation::RdmaRead,
        };
        if let Some(error) = self.refused_segments(request.segments, limit, access) {
            return error;
        }
        let total = total(request.segments);
        let remote = request.remote.length;
        let too_long = || COUNT.because(Cause::MessageTooLong);
        match request.operation {
            DtoOperation::RdmaWrite if total > endpoint.limits.write_size.get() => {
                return too_long();
            }
            DtoOperation::RdmaWrite if total > remote => {
                return Error::length().because(Cause::RemoteTooShort);
            }
            DtoOperation::RdmaRead if remote > total => {
                return Error::length().because(Cause::LocalTooShort);
            }
            DtoOperation::RdmaRead if remote > endpoint.limits.read_size.get() => {
                return too_long();
            }
            DtoOperation::Send if total > endpoint.limits.send_size.get() => {
                return too_long();
            }
            _ => {}
        }
        drop(endpoint);
        self.no_room(refusal, Subtype::ResourceTep)
    }

    /// As `out_of_room`. No lock may be held.
    fn no_room(&self, refusal: &Refusal, resource: Subtype) -> Error {
        // A device that cannot be interrupted refuses work while the interrupted context calls it.
        if L::PARKS && *refusal == Refusal::Device && self.try_control().is_none() {
            return busy(resource);
        }
        out_of_room(refusal, resource)
    }

    #[cold]
    pub(super) fn explain_receive(&self, receive: &Receive<'_>, refusal: &Refusal) -> Error {
        let Receive {
            ep,
            segments,
            flags,
            ..
        } = *receive;
        let Some(slot) = self.shared.endpoints.get(ep.index()) else {
            return ep.refused(self.shared.instance);
        };
        let Some(endpoint) = slot.main.lock_unparked() else {
            return busy(Subtype::ResourceTep);
        };
        let identity = if endpoint.id != ep || ep.is_null() {
            Some(ep.refused(self.shared.instance))
        } else if endpoint.srq.is_some() {
            Some(
                Error::invalid_state(Subtype::InvalidStateSrqInUse)
                    .because(Cause::SharedReceiveQueue),
            )
        } else {
            None
        };
        drop(endpoint);
        if let Some(error) = identity {
            return error;
        }
        let Some(side) = slot.receive.lock_unparked() else {
            return busy(Subtype::ResourceTep);
        };
        if side.queue.is_none() {
            return not_ready();
        }
        if let Some(error) = refused_flags(flags, side.refused_flags, 5) {
            return error;
        }
        let refused = self.refused_buffer(segments, side.max_segments, side.zone_seal);
        drop(side);
        refused.unwrap_or_else(|| self.no_room(refusal, Subtype::ResourceTep))
    }

    #[cold]
    pub(super) fn explain_shared_receive(
        &self,
        srq: SrqId,
        segments: &[LmrTriplet],
        refusal: &Refusal,
    ) -> Error {
        let Some(slot) = self.shared.shared_receive_queues.get(srq.index()) else {
            return srq.refused(self.shared.instance);
        };
        let Some(queue) = slot.main.lock_unparked() else {
            return busy(Subtype::ResourceSrq);
        };
        if queue.id != srq || srq.is_null() {
            return srq.refused(self.shared.instance);
        }
        let refused = self.refused_buffer(segments, queue.max_segments, queue.zone_seal);
        drop(queue);
        refused.unwrap_or_else(|| self.no_room(refusal, Subtype::ResourceSrq))
    }

    /// Returns the error of a receive buffer, if any.
    fn refused_buffer(
        &self,
        segments: &[LmrTriplet],
        limit: usize,
        zone_seal: u64,
    ) -> Option<Error> {
        let access = LocalAccess {
            zone_seal,
            writes: true,
        };
        self.refused_segments(segments, limit, access).or_else(|| {
            (total(segments) > u64::from(u32::MAX)).then_some(COUNT.because(Cause::MessageTooLong))
        })
    }

    /// Returns the error of a segment list, if any: its length first, then segments in order.
    fn refused_segments(
        &self,
        segments: &[LmrTriplet],
        limit: usize,
        access: LocalAccess,
    ) -> Option<Error> {
        if segments.len() > limit {
            return Some(COUNT.because(Cause::TooManySegments));
        }
        segments
            .iter()
            .find_map(|segment| explain(self.shared.local_regions.made(), segment, access))
    }
}

/// Returns the error of a post's flags, if any.
pub(crate) fn refused_flags(
    flags: CompletionFlags,
    refused: CompletionFlags,
    argument: u8,
) -> Option<Error> {
    if !flags.intersects(refused) {
        return None;
    }
    let cause = if flags.intersects(refused.difference(CompletionFlags::UNSIGNALLED)) {
        Cause::UnknownFlags
    } else {
        Cause::UnsignalledNotConfigured
    };
    Some(
        Error::invalid_argument(argument)
            .about(Parameter::Flags)
            .because(cause),
    )
}

/// Returns the error for an endpoint without a zone (EPC-09).
pub(crate) fn not_ready() -> Error {
    Error::invalid_state(Subtype::InvalidStateEpNotReady).because(Cause::ZoneMissing)
}

/// Returns the error of a valid request that was refused.
pub(crate) fn out_of_room(refusal: &Refusal, subtype: Subtype) -> Error {
    Error::insufficient_resources(subtype).because(match refusal {
        Refusal::Full => Cause::QueueFull,
        Refusal::Device => Cause::DeviceRefused,
        Refusal::Outstanding => Cause::BindsOutstanding,
        // The failed check now passes: another context changed the objects meanwhile.
        Refusal::Invalid => Cause::Contended,
    })
}

/// As `out_of_room`, for a refusal by the device.
#[cold]
pub(crate) fn refused_by_device(subtype: Subtype) -> Error {
    out_of_room(&Refusal::Device, subtype)
}

fn total(segments: &[LmrTriplet]) -> u64 {
    segments
        .iter()
        .fold(0, |sum, segment| sum.saturating_add(segment.length))
}
