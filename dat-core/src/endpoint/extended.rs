//! Posting what is beyond the interface.

use super::endpoint::Endpoint;
use super::post::{Refusal, Request, add_segments};
use super::send_flags;
use crate::backend::{
    Backend, ExtendedRequest, ExtendedSend, Extensions, Rejected, RemoteRange, Segment, SendQueue,
    WorkSlot,
};
use crate::error::{Cause, Error, Result};
use crate::event::{DtoOperation, ExtendedOperation};
use crate::flags::CompletionFlags;
use crate::ia::Ia;
use crate::id::EpId;
use crate::memory::{LmrTriplet, LocalAccess, RmrTriplet};
use crate::record::{Posting, RecordKind, Report};
use crate::sync::RawLock;

/// Most segments of a request beyond the interface.
const MOST_SEGMENTS: usize = 32;
/// Bytes of the numbers that atomic operations are about.
const NUMBER_BYTES: u64 = 8;

/// What to do beyond the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// As an RDMA Write, which takes a receive at the peer as well and completes it with the number.
    WriteImmediate {
        /// The number; its bytes arrive as they are in memory.
        immediate: u32,
    },
    /// Adds to a 64-bit number at the peer; what was there comes into the segment.
    FetchAndAdd {
        /// What is added, modulo 2^64.
        add: u64,
    },
    /// Stores a 64-bit number at the peer if the expected one is there; what was there comes into the segment.
    CompareAndSwap {
        /// What is expected.
        compare: u64,
        /// What is stored then.
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

/// Segments on their way to the device.
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
    /// The operations beyond the interface that the device has.
    pub fn extensions(&self) -> Extensions {
        self.shared.extensions
    }

    /// Posts an operation beyond the interface. It keeps its place among the requests of the endpoint, and completes with
    /// [`Event::Extended`](crate::event::Event::Extended) as they do with theirs; peers may do atomic operations where they may both
    /// read and write.
    ///
    /// # Errors
    /// - NOT_IMPLEMENTED: the device has no such operation.
    /// - INVALID_PARAMETER (ARG2): more than 32 segments, or more than one for an atomic operation.
    /// - INVALID_PARAMETER (ARG5): the number of an atomic operation is not at a multiple of 8.
    /// - LENGTH_ERROR: there are fewer than 8 bytes of the number.
    /// - As `post_rdma_write` for a write, as `post_rdma_read` for an atomic operation.
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
        let is_write = request.operation == DtoOperation::RdmaWrite;
        let limits = &endpoint.limits;
        let (most, room) = if is_write {
            (limits.write_segments.min(MOST_SEGMENTS), limits.write_size)
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
        let regions = self.shared.local_regions;
        // An empty segment names nothing.
        let segments = request
            .segments
            .iter()
            .filter(|segment| segment.length != 0);
        // Bytes after the number that an atomic operation brings stay untouched.
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

    /// Why it was refused. `remote` is what the consumer named; the request is about the number in it.
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
        // What transfers are refused for is not it.
        if request.operation == DtoOperation::RdmaWrite || request.segments.len() > 1 {
            Error::invalid_argument(2).because(Cause::TooManySegments)
        } else if remote.length < NUMBER_BYTES {
            Error::length().because(Cause::RemoteTooShort)
        } else if !is_number(remote) {
            Error::invalid_argument(5).because(Cause::Misaligned)
        } else {
            otherwise
        }
    }
}

/// Whether a number for an atomic operation can be there.
fn is_number(remote: &RmrTriplet) -> bool {
    remote.length >= NUMBER_BYTES && remote.address.is_multiple_of(NUMBER_BYTES)
}
