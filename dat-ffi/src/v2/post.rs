//! Posting.

use dat_core::flags::{CompletionFlags, HandleKind};
use dat_core::id::{EpId, SrqId};
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::{Error, Result};

use super::result::{Code, adapter_of, code};
use crate::adapter::with_device;
use crate::boundary::{self, In, List};
use crate::handles::CHandle;

/// Where the posts of endpoints and queues have the number of segments and their list.
const SEGMENTS: (u8, u8) = (2, 3);

#[inline(always)]
fn local(piece: boundary::LmrTriplet) -> LmrTriplet {
    LmrTriplet {
        context: piece.context,
        address: piece.address,
        length: piece.length.into(),
    }
}

#[inline(always)]
fn remote(piece: In<boundary::RmrTriplet>) -> Result<RmrTriplet> {
    let piece = piece.get().ok_or(Error::invalid_argument(5))?;
    Ok(RmrTriplet {
        context: piece.context,
        address: piece.address,
        length: piece.length.into(),
    })
}

/// Spec: EPS-01..05
pub(super) extern "C" fn send(
    ep: CHandle,
    count: i32,
    segments: List<boundary::LmrTriplet>,
    cookie: u64,
    flags: u32,
) -> Code {
    code((|| {
        let adapter = adapter_of(ep, HandleKind::Ep)?;
        let id = EpId::from_handle(ep.named());
        let flags = CompletionFlags::from_bits_retain(flags);
        segments.with(count.into(), SEGMENTS, local, |segments| {
            with_device!(adapter, opened => opened.ia.post_send(id, segments, cookie, flags))
        })
    })())
}

/// Spec: EPV-01..06
pub(super) extern "C" fn receive(
    ep: CHandle,
    count: i32,
    segments: List<boundary::LmrTriplet>,
    cookie: u64,
    flags: u32,
) -> Code {
    code((|| {
        let adapter = adapter_of(ep, HandleKind::Ep)?;
        let id = EpId::from_handle(ep.named());
        let flags = CompletionFlags::from_bits_retain(flags);
        segments.with(count.into(), SEGMENTS, local, |segments| {
            with_device!(adapter, opened => opened.ia.post_recv(id, segments, cookie, flags))
        })
    })())
}

/// Spec: EPB-01..07
pub(super) extern "C" fn rdma_read(
    ep: CHandle,
    count: i32,
    segments: List<boundary::LmrTriplet>,
    cookie: u64,
    piece: In<boundary::RmrTriplet>,
    flags: u32,
) -> Code {
    code((|| {
        let adapter = adapter_of(ep, HandleKind::Ep)?;
        let id = EpId::from_handle(ep.named());
        let piece = remote(piece)?;
        let flags = CompletionFlags::from_bits_retain(flags);
        segments.with(count.into(), SEGMENTS, local, |segments| {
            with_device!(adapter, opened => {
                opened.ia.post_rdma_read(id, segments, cookie, &piece, flags)
            })
        })
    })())
}

/// Spec: EPW-01..43
pub(super) extern "C" fn rdma_write(
    ep: CHandle,
    count: i32,
    segments: List<boundary::LmrTriplet>,
    cookie: u64,
    piece: In<boundary::RmrTriplet>,
    flags: u32,
) -> Code {
    code((|| {
        let adapter = adapter_of(ep, HandleKind::Ep)?;
        let id = EpId::from_handle(ep.named());
        let piece = remote(piece)?;
        let flags = CompletionFlags::from_bits_retain(flags);
        segments.with(count.into(), SEGMENTS, local, |segments| {
            with_device!(adapter, opened => {
                opened.ia.post_rdma_write(id, segments, cookie, &piece, flags)
            })
        })
    })())
}

/// Spec: SRQR-01..43
pub(super) extern "C" fn receive_shared(
    srq: CHandle,
    count: i32,
    segments: List<boundary::LmrTriplet>,
    cookie: u64,
) -> Code {
    code((|| {
        let adapter = adapter_of(srq, HandleKind::Srq)?;
        let id = SrqId::from_handle(srq.named());
        segments.with(count.into(), SEGMENTS, local, |segments| {
            with_device!(adapter, opened => opened.ia.srq_post_recv(id, segments, cookie))
        })
    })())
}

/// Where the synchronising calls have the number of segments and their list.
const PIECES: (u8, u8) = (3, 2);

/// The number of segments, which is unsigned here; what is too much stays so.
fn count_of(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Spec: LSR-01..06
pub(super) extern "C" fn synchronize_read(
    ia: CHandle,
    pieces: List<boundary::LmrTriplet>,
    count: u64,
) -> Code {
    code((|| {
        let adapter = super::result::adapter(ia)?;
        pieces.with(
            count_of(count),
            PIECES,
            local,
            |pieces| with_device!(adapter, opened => opened.ia.lmr_sync_rdma_read(pieces)),
        )
    })())
}

/// Spec: LSW-01..31
pub(super) extern "C" fn synchronize_write(
    ia: CHandle,
    pieces: List<boundary::LmrTriplet>,
    count: u64,
) -> Code {
    code((|| {
        let adapter = super::result::adapter(ia)?;
        pieces.with(
            count_of(count),
            PIECES,
            local,
            |pieces| with_device!(adapter, opened => opened.ia.lmr_sync_rdma_write(pieces)),
        )
    })())
}
