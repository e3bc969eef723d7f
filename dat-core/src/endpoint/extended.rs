//! Posting extended operations, which DAT does not define.

use super::post::{Operation, Refusal, Request, range, send_flags};
use crate::adapter::Ia;
use crate::backend::{
    Backend, ExtendedRequest, ExtendedSend, Extensions, Rejected, RemoteRange, Segment, SendQueue,
    WorkSlot,
};
use crate::error::{Cause, Error, Parameter, Result};
use crate::event::{DtoOperation, ExtendedOperation};
use crate::flags::CompletionFlags;
use crate::id::EpId;
use crate::memory::{LmrTriplet, RmrTriplet};
use crate::record::RecordKind;
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

impl Operation for Extended {
    const RINGS: bool = true;

    fn transfer(self) -> DtoOperation {
        match self {
            Self::WriteImmediate { .. } => DtoOperation::RdmaWrite,
            Self::FetchAndAdd { .. } | Self::CompareAndSwap { .. } => DtoOperation::RdmaRead,
        }
    }

    fn kind(self) -> RecordKind {
        RecordKind::Extended(match self {
            Self::WriteImmediate { .. } => ExtendedOperation::WriteImmediate,
            Self::FetchAndAdd { .. } => ExtendedOperation::FetchAndAdd,
            Self::CompareAndSwap { .. } => ExtendedOperation::CompareAndSwap,
        })
    }

    fn reserve<Q: SendQueue>(
        queue: &mut Q,
        request: &Request<'_, Self>,
        token: u64,
    ) -> Option<impl WorkSlot> {
        let is_write = request.operation.transfer() == DtoOperation::RdmaWrite;
        Some(Gathered {
            queue,
            request: ExtendedRequest {
                token,
                operation: request.operation.at(range(request.remote)),
                length: 0,
                flags: send_flags(request.flags, is_write),
            },
            segments: heapless::Vec::new(),
        })
    }
}

/// A request whose checked segments are gathered, since the device takes it as a whole.
struct Gathered<'q, Q> {
    queue: &'q mut Q,
    request: ExtendedRequest,
    segments: heapless::Vec<Segment, MOST_SEGMENTS>,
}

impl<Q: SendQueue> WorkSlot for Gathered<'_, Q> {
    fn segment(&mut self, segment: Segment) {
        // The number of segments is checked before.
        let _ = self.segments.push(segment);
    }

    fn commit(mut self, length: u32) -> core::result::Result<(), Rejected> {
        self.request.length = length;
        self.queue.post_extended(&self.request, &self.segments)
    }
}

/// # Operations beyond DAT
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
        let extension = operation.at(range(remote)).extension();
        if !B::EXTENDS || !self.shared.extensions.contains(extension) {
            return Err(Error::not_implemented());
        }
        let is_write = operation.transfer() == DtoOperation::RdmaWrite;
        let number = RmrTriplet {
            length: NUMBER_BYTES,
            ..*remote
        };
        let request = Request {
            ep,
            segments,
            cookie,
            remote: if is_write { remote } else { &number },
            flags,
            operation,
        };
        match refused(is_write, segments, remote) {
            None => self.post_slow(&request),
            Some(error) => Err(self.explain_unfit(&request, error)),
        }
    }

    /// Returns the error of a request that failed a check which transfers do not have.
    ///
    /// The checks of transfers come first.
    #[cold]
    fn explain_unfit(&self, request: &Request<'_, Extended>, error: Error) -> Error {
        let earlier = self.explain_request(&request.as_transfer(), &Refusal::Invalid);
        match earlier.cause() {
            Cause::Contended => error,
            _ => earlier,
        }
    }
}

/// Returns the error of a request in the checks that transfers do not have, if any.
fn refused(is_write: bool, segments: &[LmrTriplet], remote: &RmrTriplet) -> Option<Error> {
    let most = if is_write { MOST_SEGMENTS } else { 1 };
    if segments.len() > most {
        return Some(
            Error::invalid_argument(2)
                .about(Parameter::Segments)
                .because(Cause::TooManySegments),
        );
    }
    if is_write {
        return None;
    }
    if remote.length < NUMBER_BYTES {
        return Some(Error::length().because(Cause::RemoteTooShort));
    }
    (!remote.address.is_multiple_of(NUMBER_BYTES)).then_some(
        Error::invalid_argument(5)
            .about(Parameter::Remote)
            .because(Cause::Misaligned),
    )
}
