//! Posting.

use dat_core::flags::{CompletionFlags, HandleKind};
use dat_core::id::{EpId, SrqId};
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::{Error, Result};

use super::edition::{Edition, Triplet};
use super::result::{Code, code, named_of};
use crate::adapter::with_device;
use crate::boundary::{In, List};
use crate::handles::CHandle;

/// Where the posts of endpoints and queues have the number of segments and their list.
const SEGMENTS: (u8, u8) = (2, 3);

#[inline(always)]
fn remote<T: Triplet>(piece: In<T>) -> Result<RmrTriplet> {
    let piece = piece.get().ok_or(Error::invalid_argument(5))?;
    Ok(piece.remote())
}

/// Posts one segment as it is, and several after they were copied; `$segments` is what the post calls them.
macro_rules! posted {
    ($adapter:ident, $list:ident, $count:ident, $segments:ident, $opened:ident => $post:expr) => {
        match $list.only($count) {
            Some(only) => {
                let $segments = &[only.local()];
                with_device!($adapter, $opened => $post)
            }
            None => several($list, $count, &|$segments| with_device!($adapter, $opened => $post)),
        }
    };
}

/// Posts several segments, or none.
#[cold]
#[inline(never)]
fn several<T: Triplet>(
    list: List<T>,
    count: i32,
    post: &dyn Fn(&[LmrTriplet]) -> Result<()>,
) -> Result<()> {
    list.with(count.into(), SEGMENTS, Triplet::local, post)
}

/// Spec: EPS-01..05
pub(crate) extern "C" fn send<E: Edition>(
    ep: CHandle,
    count: i32,
    list: List<E::Triplet>,
    cookie: u64,
    flags: u32,
) -> Code {
    code::<E>((|| {
        let (adapter, id) = named_of(ep, HandleKind::Ep)?;
        let id = EpId::from_handle(id);
        let flags = CompletionFlags::from_bits_retain(flags);
        posted!(adapter, list, count, segments, opened => {
            opened.ia.post_send(id, segments, cookie, flags)
        })
    })())
}

/// Spec: EPV-01..06
pub(crate) extern "C" fn receive<E: Edition>(
    ep: CHandle,
    count: i32,
    list: List<E::Triplet>,
    cookie: u64,
    flags: u32,
) -> Code {
    code::<E>((|| {
        let (adapter, id) = named_of(ep, HandleKind::Ep)?;
        let id = EpId::from_handle(id);
        let flags = CompletionFlags::from_bits_retain(flags);
        posted!(adapter, list, count, segments, opened => {
            opened.ia.post_recv(id, segments, cookie, flags)
        })
    })())
}

/// Spec: EPB-01..07
pub(crate) extern "C" fn rdma_read<E: Edition>(
    ep: CHandle,
    count: i32,
    list: List<E::Triplet>,
    cookie: u64,
    piece: In<E::Triplet>,
    flags: u32,
) -> Code {
    code::<E>((|| {
        let (adapter, id) = named_of(ep, HandleKind::Ep)?;
        let id = EpId::from_handle(id);
        let piece = remote(piece)?;
        let flags = CompletionFlags::from_bits_retain(flags);
        posted!(adapter, list, count, segments, opened => {
            opened.ia.post_rdma_read(id, segments, cookie, &piece, flags)
        })
    })())
}

/// Spec: EPW-01..43
pub(crate) extern "C" fn rdma_write<E: Edition>(
    ep: CHandle,
    count: i32,
    list: List<E::Triplet>,
    cookie: u64,
    piece: In<E::Triplet>,
    flags: u32,
) -> Code {
    code::<E>((|| {
        let (adapter, id) = named_of(ep, HandleKind::Ep)?;
        let id = EpId::from_handle(id);
        let piece = remote(piece)?;
        let flags = CompletionFlags::from_bits_retain(flags);
        posted!(adapter, list, count, segments, opened => {
            opened.ia.post_rdma_write(id, segments, cookie, &piece, flags)
        })
    })())
}

/// Spec: SRQR-01..43
pub(crate) extern "C" fn receive_shared<E: Edition>(
    srq: CHandle,
    count: i32,
    list: List<E::Triplet>,
    cookie: u64,
) -> Code {
    code::<E>((|| {
        let (adapter, id) = named_of(srq, HandleKind::Srq)?;
        let id = SrqId::from_handle(id);
        posted!(adapter, list, count, segments, opened => {
            opened.ia.srq_post_recv(id, segments, cookie)
        })
    })())
}

/// Where the synchronising calls have the number of segments and their list.
const PIECES: (u8, u8) = (3, 2);

/// Spec: LSR-01..06
pub(crate) extern "C" fn synchronize_read<E: Edition>(
    ia: CHandle,
    pieces: List<E::Triplet>,
    count: u64,
) -> Code {
    code::<E>((|| {
        let adapter = super::result::adapter(ia)?;
        pieces.with_any_number(
            count,
            PIECES,
            Triplet::local,
            |pieces| with_device!(adapter, opened => opened.ia.lmr_sync_rdma_read(pieces)),
        )
    })())
}

/// Spec: LSW-01..31
pub(crate) extern "C" fn synchronize_write<E: Edition>(
    ia: CHandle,
    pieces: List<E::Triplet>,
    count: u64,
) -> Code {
    code::<E>((|| {
        let adapter = super::result::adapter(ia)?;
        pieces.with_any_number(
            count,
            PIECES,
            Triplet::local,
            |pieces| with_device!(adapter, opened => opened.ia.lmr_sync_rdma_write(pieces)),
        )
    })())
}
