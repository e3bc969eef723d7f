//! Posting extended operations, which DAT does not define.

use super::endpoint::Endpoint;
use super::post::{Refusal, Request, add_segments};
use super::send_flags;
use crate::backend::{
    Backend, ExtendedRequest, ExtendedSend, Extensions, Rejected, RemoteRange, Segment, SendQueue,
    WorkSlot,
};
use crate::error::{Cause, Error, Parameter, Result};
use crate::event::{DtoOperation, ExtendedOperation};
use crate::flags::CompletionFlags;
use crate::ia::Ia;
use crate::id::EpId;
use crate::memory::{LmrTriplet, LocalAccess, RmrTriplet};
use crate::record::{Posting, RecordKind, Report};
use crate::sync::RawLock;

/// Maximum segments of an extended request.
const MOST_SEGMENTS: usize = 32;
/// Size of the operand of an atomic operation, in bytes.
const NUMBER_BYTES: u64 = 8;

/// An extended operation to post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// As an RDMA Write, and completes a receive of the peer with the immediate value.
    WriteImmediate {
        /// Immediate value; its bytes arrive in memory order.
        immediate: u32,
    },
    /// Adds to a 64-bit number at the peer; returns its old value in the segment.
    FetchAndAdd {
        /// Addend, modulo 2^64.
        add: u64,
    },
    /// Replaces a 64-bit number at the peer if it equals `compare`.
    ///
    /// Returns its old value in the segment.
    CompareAndSwap {
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
}

impl Extended {
    const fn kind(self) -> ExtendedOperation {
        match self {
            Self::WriteImmediate { .. } => ExtendedOperation::WriteImmediate,
            Self::FetchAndAdd { .. } => ExtendedOperation::FetchAndAdd,
            Self::CompareAndSwap { .. } => ExtendedOperation::CompareAndSwap,
        }
    }

    const fn at(self, remote: RemoteRange) -> ExtendedSend {
        match self {
            Self::WriteImmediate { immediate } => {
                ExtendedSend::WriteImmediate { remote, immediate }
            }
            Self::FetchAndAdd { add } => ExtendedSend::FetchAndAdd { remote, add },
            Self::CompareAndSwap { compare, swap } => ExtendedSend::CompareAndSwap {
                remote,
                compare,
                swap,
            },
        }
    }
}

/// Checked segments for the device.
struct Gathered {
    segments: [Segment; MOST_SEGMENTS],
    count: usize,
}

impl WorkSlot for &mut Gathered {
    fn segment(&mut self, segment: Segment) {
        if let Some(slot) = self.segments.get_mut(self.count) {
            *slot = segment;
            self.count = self.count.saturating_add(1);
        }
    }

    fn commit(self, _length: u32) -> core::result::Result<(), Rejected> {
        Ok(())
    }
}

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Returns the extended operations of the device.
    pub fn extensions(&self) -> Extensions {
        self.shared.extensions
    }

    /// Posts an extended operation.
    ///
    /// It is ordered like the endpoint's other requests and completes with
    /// [`Event::Extended`](crate::event::Event::Extended). Atomic operations need both remote read
    /// and remote write privileges at the peer.
    ///
    /// # Errors
    /// - NOT_IMPLEMENTED: the device lacks the operation.
    /// - INVALID_PARAMETER (ARG2): more than 32 segments, or more than one for an atomic operation.
    /// - INVALID_PARAMETER (ARG5): the address of an atomic operation is not a multiple of 8.
    /// - LENGTH_ERROR: the segment or the remote range of an atomic operation has fewer than 8
    ///   bytes.
    /// - Those of `post_rdma_write` for a write, of `post_rdma_read` for an atomic operation.
    ///
    /// Spec: DTO-04..07, DTO-10
    pub fn post_extended(
        &self,
        ep: EpId,
        operation: Extended,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()> {
        let range = RemoteRange {
            address: remote.address,
            key: remote.context,
        };
        let operation = (operation.kind(), operation.at(range));
        if !self.shared.extensions.contains(operation.1.extension()) {
            return Err(Error::not_implemented());
        }
        let is_write = operation.0 == ExtendedOperation::WriteImmediate;
        let mut request = Request {
            ep,
            segments,
            cookie,
            remote,
            flags,
            operation: DtoOperation::RdmaWrite,
        };
        let number;
        if !is_write {
            number = RmrTriplet {
                length: NUMBER_BYTES,
                ..*remote
            };
            request.operation = DtoOperation::RdmaRead;
            request.remote = &number;
        }
        let fits = is_write || is_number(remote);
        let mut outcome = self.try_extended(&request, operation, fits);
        if outcome == Err(Refusal::Full) && self.reclaim_requests(ep) {
            outcome = self.try_extended(&request, operation, fits);
        }
        outcome.map_err(|refusal| self.explain_extended(&request, remote, &refusal))
    }

    fn try_extended(
        &self,
        request: &Request<'_>,
        operation: (ExtendedOperation, ExtendedSend),
        fits: bool,
    ) -> core::result::Result<(), Refusal> {
        let slot = self.shared.endpoints.get(request.ep.index());
        let slot = slot.ok_or(Refusal::Invalid)?;
        let endpoint: &mut Endpoint<B::SendQueue> = &mut slot.main.lock();
        self.resume_posts(endpoint);
        let is_write = request.operation == DtoOperation::RdmaWrite;
        let limits = &endpoint.limits;
        let (most, room) = if is_write {
            let most = limits.write_segments.min(MOST_SEGMENTS);
            (most, limits.write_size.get())
        } else {
            (limits.read_segments.min(1), NUMBER_BYTES)
        };
        if endpoint.postable != request.ep
            || request.flags.intersects(endpoint.refused_flags)
            || request.segments.len() > most
            || !fits
        {
            return Err(Refusal::Invalid);
        }
        let queue = endpoint.send.as_mut().ok_or(Refusal::Invalid)?;
        let mut gathered = Gathered {
            segments: [Segment {
                address: 0,
                length: 0,
                key: 0,
            }; MOST_SEGMENTS],
            count: 0,
        };
        let access = LocalAccess {
            zone_seal: endpoint.zone_seal,
            writes: !is_write,
        };
        let regions = self.shared.local_regions.made();
        // Skips empty segments: their contexts are not checked.
        let segments = request
            .segments
            .iter()
            .filter(|segment| segment.length != 0);
        // An atomic operation fills 8 bytes; the rest of the segment stays unchanged.
        let slot = &mut &mut gathered;
        let total = add_segments(slot, segments, regions, access, Some(room))?;
        let total = if is_write {
            let longest = room.min(request.remote.length);
            Some(total).filter(|total| *total <= longest)
        } else {
            Some(NUMBER_BYTES).filter(|bytes| *bytes <= total)
        };
        let total = total.ok_or(Refusal::Invalid)?;
        let length = u32::try_from(total).map_err(|_| Refusal::Invalid)?;
        let free = endpoint.ring.next(&self.shared.records);
        let free = free.ok_or(Refusal::Full)?;
        let kind = RecordKind::Extended(operation.0);
        let posting = Posting::new(kind, Report::of_request(request.flags));
        let asked = ExtendedRequest {
            token: free.post(posting, request.cookie, length),
            operation: operation.1,
            length,
            flags: send_flags(request.flags, is_write),
        };
        let segments = gathered.segments.get(..gathered.count).unwrap_or_default();
        if queue.post_extended(&asked, segments).is_err() {
            free.rollback();
            return Err(Refusal::Device);
        }
        endpoint.ring.advance();
        Ok(())
    }

    /// Returns the error of a refused request.
    ///
    /// `remote` is the consumer's range; for an atomic operation, the request's own range is the
    /// number.
    #[cold]
    fn explain_extended(
        &self,
        request: &Request<'_>,
        remote: &RmrTriplet,
        refusal: &Refusal,
    ) -> Error {
        let otherwise = self.explain_request(request, refusal);
        if otherwise.cause() != Cause::Contended {
            return otherwise;
        }
        // The request passes the checks of transfers, so an extended check failed.
        if request.operation == DtoOperation::RdmaWrite || request.segments.len() > 1 {
            Error::invalid_argument(2)
                .about(Parameter::Segments)
                .because(Cause::TooManySegments)
        } else if remote.length < NUMBER_BYTES {
            Error::length().because(Cause::RemoteTooShort)
        } else if !is_number(remote) {
            Error::invalid_argument(5)
                .about(Parameter::Remote)
                .because(Cause::Misaligned)
        } else {
            otherwise
        }
    }
}

/// Returns true if an atomic operation can use this range: 8 bytes, at a multiple of 8.
fn is_number(remote: &RmrTriplet) -> bool {
    remote.length >= NUMBER_BYTES && remote.address.is_multiple_of(NUMBER_BYTES)
}
