//! Posts.

use dat_core::flags::{CompletionFlags, HandleKind};
use dat_core::id::{EpId, SrqId};
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::{Error, Result};

use super::edition::{Edition, Triplet};
use super::result::{Code, code, found, named_of};
use crate::adapter::{aside, with_device, with_device_first};
use crate::boundary::{In, List};
use crate::handles::CHandle;

/// Argument positions of the number of segments and their list, in posts.
const SEGMENTS: (u8, u8) = (2, 3);

#[inline(always)]
fn remote<T: Triplet>(piece: In<T>) -> Result<RmrTriplet> {
    let piece = piece.get().ok_or(Error::invalid_argument(5))?;
    Ok(piece.remote())
}

/// Posts one segment directly, and several from a copy; the post calls them `$segments`.
macro_rules! posted {
    ($adapter:ident, $list:expr, $count:expr, $segments:ident, $opened:ident => $post:expr) => {
        match $list.only($count) {
            Some(only) => {
                let $segments = &[only.local()];
                with_device!($adapter, $opened => {
                    $opened.check_post()?;
                    $post
                })
            }
            None => several($list, $count, &|$segments| with_device!($adapter, $opened => {
                $opened.check_post()?;
                $post
            })),
        }
    };
}

/// The arguments of a post to an endpoint.
///
/// They are in memory, so that the fast path, which does not need them there, has all registers.
struct Asked<E: Edition, P = ()> {
    ep: CHandle,
    count: i32,
    list: List<E::Triplet>,
    cookie: u64,
    piece: P,
    flags: CompletionFlags,
}

/// Tries the fast path: one segment, and an endpoint and a device in their usual state.
///
/// It takes the fewest instructions. If it does not apply, nothing was posted.
macro_rules! try_first {
    ($asked:ident, |$opened:ident, $id:ident, $segment:ident $(, $remote:ident of $piece:ident)?| $post:expr) => {
        if let Some((adapter, id, _)) = found($asked.ep)
            && let Some(only) = $asked.list.only($asked.count)
            $(&& let Some($remote) = $piece.get())?
        {
            let $id = EpId::from_handle(id);
            let $segment = only.local();
            $(let $remote = $remote.remote();)?
            if with_device_first!(adapter, $opened => $opened.may_post() && $post) {
                return 0;
            }
            aside(move || drop(adapter));
        }
    };
}

/// Posts several segments, or none, from a copy.
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
    let asked = Asked::<E, _> {
        ep,
        count,
        list,
        cookie,
        piece: (),
        flags: CompletionFlags::from_bits_retain(flags),
    };
    try_first!(asked, |opened, id, segment| {
        opened.ia.try_post_send(id, &segment, cookie, asked.flags)
    });
    send_unusual(&asked)
}

/// Posts any send, with all checks.
#[cold]
#[inline(never)]
fn send_unusual<E: Edition>(asked: &Asked<E>) -> Code {
    code::<E>((|| {
        let (adapter, id) = named_of(asked.ep, HandleKind::Ep)?;
        let id = EpId::from_handle(id);
        posted!(adapter, asked.list, asked.count, segments, opened => {
            opened.ia.post_send(id, segments, asked.cookie, asked.flags)
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
    let asked = Asked::<E, _> {
        ep,
        count,
        list,
        cookie,
        piece: (),
        flags: CompletionFlags::from_bits_retain(flags),
    };
    try_first!(asked, |opened, id, segment| {
        opened.ia.try_post_recv(id, &segment, cookie, asked.flags)
    });
    receive_unusual(&asked)
}

/// Posts any receive, with all checks.
#[cold]
#[inline(never)]
fn receive_unusual<E: Edition>(asked: &Asked<E>) -> Code {
    code::<E>((|| {
        let (adapter, id) = named_of(asked.ep, HandleKind::Ep)?;
        let id = EpId::from_handle(id);
        posted!(adapter, asked.list, asked.count, segments, opened => {
            opened.ia.post_recv(id, segments, asked.cookie, asked.flags)
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
    let asked = Asked::<E, _> {
        ep,
        count,
        list,
        cookie,
        piece,
        flags: CompletionFlags::from_bits_retain(flags),
    };
    try_first!(asked, |opened, id, segment, remote of piece| {
        opened.ia.try_post_rdma_read(id, &segment, cookie, &remote, asked.flags)
    });
    rdma_read_unusual(&asked)
}

/// Posts any RDMA Read, with all checks.
#[cold]
#[inline(never)]
fn rdma_read_unusual<E: Edition>(asked: &Asked<E, In<E::Triplet>>) -> Code {
    code::<E>((|| {
        let (adapter, id) = named_of(asked.ep, HandleKind::Ep)?;
        let id = EpId::from_handle(id);
        let piece = remote(asked.piece)?;
        posted!(adapter, asked.list, asked.count, segments, opened => {
            opened.ia.post_rdma_read(id, segments, asked.cookie, &piece, asked.flags)
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
    let asked = Asked::<E, _> {
        ep,
        count,
        list,
        cookie,
        piece,
        flags: CompletionFlags::from_bits_retain(flags),
    };
    try_first!(asked, |opened, id, segment, remote of piece| {
        opened.ia.try_post_rdma_write(id, &segment, cookie, &remote, asked.flags)
    });
    rdma_write_unusual(&asked)
}

/// Posts any RDMA Write, with all checks.
#[cold]
#[inline(never)]
fn rdma_write_unusual<E: Edition>(asked: &Asked<E, In<E::Triplet>>) -> Code {
    code::<E>((|| {
        let (adapter, id) = named_of(asked.ep, HandleKind::Ep)?;
        let id = EpId::from_handle(id);
        let piece = remote(asked.piece)?;
        posted!(adapter, asked.list, asked.count, segments, opened => {
            opened.ia.post_rdma_write(id, segments, asked.cookie, &piece, asked.flags)
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

/// Argument positions of the number of segments and their list, in synchronising calls.
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
