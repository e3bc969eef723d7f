//! Posts.

use dat_core::Error;
use dat_core::Result;
use dat_core::event::DtoOperation;
use dat_core::flags::{CompletionFlags, HandleKind};
use dat_core::id::{EpId, Handle, SrqId};
use dat_core::memory::{LmrTriplet, RmrTriplet};

use super::edition::{Edition, Triplet};
use super::result::{Code, code, named_of};
use crate::adapter::{Adapter, Openable, Opened, with_device};
use crate::boundary::{In, List, Place, Uncancelled, has_memory};
use crate::handles::CHandle;

/// Argument positions of the number of segments and their list, in posts.
const POST_SEGMENTS: (u8, u8) = (2, 3);

/// The operation of a post; those on remote memory have its range.
#[derive(Clone, Copy)]
enum Operation<T> {
    Send,
    RdmaWrite(In<T>),
    RdmaRead(In<T>),
    Receive,
    SharedReceive,
}

/// The arguments of a post.
struct Request<E: Edition> {
    operation: Operation<E::Triplet>,
    /// The endpoint, or the shared receive queue.
    queue: CHandle,
    count: i32,
    list: List<E::Triplet>,
    cookie: u64,
    /// No flags for a shared receive queue.
    flags: CompletionFlags,
}

impl<E: Edition> Request<E> {
    /// Returns the kind of the handle.
    fn kind(&self) -> HandleKind {
        match self.operation {
            Operation::SharedReceive => HandleKind::Srq,
            _ => HandleKind::Ep,
        }
    }

    /// Returns the remote range; an empty one for operations on local memory.
    ///
    /// # Errors
    /// INVALID_PARAMETER (ARG5): the pointer is null.
    #[inline(always)]
    fn remote(&self) -> Result<RmrTriplet> {
        match self.operation {
            Operation::RdmaWrite(range) | Operation::RdmaRead(range) => {
                let range = range.get().ok_or(Error::invalid_argument(5))?;
                Ok(range.remote())
            }
            _ => Ok(RmrTriplet::default()),
        }
    }

    /// Posts one segment at a place; `None` if nothing was posted.
    #[inline(always)]
    fn post_at<B: Openable>(&self, place: &Place) -> Option<Result<()>> {
        if B::POSTS_ALLOCATE && !has_memory() {
            return None;
        }
        let (cookie, flags) = (self.cookie, self.flags);
        let segment = || Some(self.list.only(self.count)?.local());
        let operation = match self.operation {
            Operation::Send => DtoOperation::Send,
            Operation::RdmaWrite(_) => DtoOperation::RdmaWrite,
            Operation::RdmaRead(_) => DtoOperation::RdmaRead,
            Operation::Receive => return place.receive::<B>(cookie, flags, segment),
            Operation::SharedReceive => return place.receive_shared::<B>(cookie, segment),
        };
        place.post::<B>(operation, cookie, flags, || {
            Some((segment()?, self.remote().ok()?))
        })
    }

    /// Posts the request with its converted segments.
    #[inline(always)]
    fn post<B: Openable>(
        &self,
        opened: &Opened<B>,
        queue: Handle,
        segments: &[LmrTriplet],
        remote: &RmrTriplet,
    ) -> Result<()> {
        let (ia, ep, cookie) = (&opened.ia, EpId::from_handle(queue), self.cookie);
        match self.operation {
            Operation::Send => ia.post_send(ep, segments, cookie, self.flags),
            Operation::RdmaWrite(_) => ia.post_rdma_write(ep, segments, cookie, remote, self.flags),
            Operation::RdmaRead(_) => ia.post_rdma_read(ep, segments, cookie, remote, self.flags),
            Operation::Receive => ia.post_recv(ep, segments, cookie, self.flags),
            Operation::SharedReceive => {
                ia.srq_post_recv(SrqId::from_handle(queue), segments, cookie)
            }
        }
    }
}

/// Posts one segment at the place of the queue; leaves all else to `post_slow`.
#[inline(always)]
fn post<E: Edition, B: Openable>(request: Request<E>) -> Code {
    if request.count == 1
        && let Some(cell) = request.queue.cell()
    {
        let uncancelled = B::DATA_CALLS_ARE_CANCELLED.then(Uncancelled::new);
        let posted = request.post_at::<B>(cell.place());
        drop(uncancelled);
        if let Some(posted) = posted {
            return code::<E>(posted);
        }
    }
    // The block copies `request`, so that only the slow way needs it in memory.
    post_slow(&{ request })
}

/// Posts any number of segments, from a copy, with all checks of the arguments.
#[cold]
#[inline(never)]
fn post_slow<E: Edition>(request: &Request<E>) -> Code {
    code::<E>((|| {
        let (adapter, queue) = named_of(request.queue, request.kind())?;
        let remote = request.remote()?;
        request.list.with(
            request.count.into(),
            POST_SEGMENTS,
            Triplet::local,
            |segments| {
                with_device!(adapter, opened => {
                    opened.posting(|| request.post(opened, queue, segments, &remote))
                })
            },
        )
    })())
}

/// Spec: EPS-01..05
pub(crate) extern "C" fn send<E: Edition, B: Openable>(
    ep: CHandle,
    count: i32,
    list: List<E::Triplet>,
    cookie: u64,
    flags: u32,
) -> Code {
    post::<E, B>(Request {
        operation: Operation::Send,
        queue: ep,
        count,
        list,
        cookie,
        flags: CompletionFlags::from_bits_retain(flags),
    })
}

/// Spec: EPV-01..06
pub(crate) extern "C" fn receive<E: Edition, B: Openable>(
    ep: CHandle,
    count: i32,
    list: List<E::Triplet>,
    cookie: u64,
    flags: u32,
) -> Code {
    post::<E, B>(Request {
        operation: Operation::Receive,
        queue: ep,
        count,
        list,
        cookie,
        flags: CompletionFlags::from_bits_retain(flags),
    })
}

/// Spec: EPB-01..07
pub(crate) extern "C" fn rdma_read<E: Edition, B: Openable>(
    ep: CHandle,
    count: i32,
    list: List<E::Triplet>,
    cookie: u64,
    segment: In<E::Triplet>,
    flags: u32,
) -> Code {
    post::<E, B>(Request {
        operation: Operation::RdmaRead(segment),
        queue: ep,
        count,
        list,
        cookie,
        flags: CompletionFlags::from_bits_retain(flags),
    })
}

/// Spec: EPW-01..43
pub(crate) extern "C" fn rdma_write<E: Edition, B: Openable>(
    ep: CHandle,
    count: i32,
    list: List<E::Triplet>,
    cookie: u64,
    segment: In<E::Triplet>,
    flags: u32,
) -> Code {
    post::<E, B>(Request {
        operation: Operation::RdmaWrite(segment),
        queue: ep,
        count,
        list,
        cookie,
        flags: CompletionFlags::from_bits_retain(flags),
    })
}

/// Spec: SRQR-01..43
pub(crate) extern "C" fn receive_shared<E: Edition, B: Openable>(
    srq: CHandle,
    count: i32,
    list: List<E::Triplet>,
    cookie: u64,
) -> Code {
    post::<E, B>(Request {
        operation: Operation::SharedReceive,
        queue: srq,
        count,
        list,
        cookie,
        flags: CompletionFlags::empty(),
    })
}

#[inline(always)]
fn synchronize<E: Edition>(
    ia: CHandle,
    segments: List<E::Triplet>,
    count: u64,
    call: impl FnOnce(&Adapter, &[LmrTriplet]) -> Result<()>,
) -> Code {
    /// Argument positions of the number of segments and of their list.
    const SEGMENTS: (u8, u8) = (3, 2);
    code::<E>((|| {
        let adapter = super::result::adapter(ia)?;
        segments.with_any_number(count, SEGMENTS, Triplet::local, |segments| {
            call(&adapter, segments)
        })
    })())
}

/// Spec: LSR-01..06
pub(crate) extern "C" fn synchronize_read<E: Edition>(
    ia: CHandle,
    segments: List<E::Triplet>,
    count: u64,
) -> Code {
    synchronize::<E>(
        ia,
        segments,
        count,
        |adapter, segments| with_device!(adapter, opened => opened.ia.lmr_sync_rdma_read(segments)),
    )
}

/// Spec: LSW-01..31
pub(crate) extern "C" fn synchronize_write<E: Edition>(
    ia: CHandle,
    segments: List<E::Triplet>,
    count: u64,
) -> Code {
    synchronize::<E>(
        ia,
        segments,
        count,
        |adapter, segments| with_device!(adapter, opened => opened.ia.lmr_sync_rdma_write(segments)),
    )
}
