//! Lists of work requests.

use core::ffi::{c_int, c_uint};

use backend_roce::{Data, Operation, Post, PostError, Receiver};
use dat_core::backend::{RemoteRange, Segment};
use smallvec::SmallVec;

use crate::addresses::Address;
use crate::c;
use crate::layout::*;
use crate::objects;
use crate::pairs::Pair;

/// Segments of a request; four need no allocation.
pub(crate) type Segments = SmallVec<[Segment; 4]>;

/// Data that a request brings itself, in parts.
pub(crate) type Parts<'a> = SmallVec<[&'a [u8]; 4]>;

pub(crate) const fn error_number(error: PostError) -> c_int {
    match error {
        PostError::Full => libc::ENOMEM,
        PostError::State | PostError::Invalid => libc::EINVAL,
    }
}

pub(crate) const fn segment(from: &ibv_sge) -> Segment {
    Segment {
        address: from.addr,
        length: from.length,
        key: from.lkey,
    }
}

fn list<'a>(first: *mut ibv_sge, count: c_int) -> &'a [ibv_sge] {
    c::list(first, usize::try_from(count).unwrap_or(0))
}

/// Returns the receiver of a datagram.
pub(crate) fn receiver(handle: *mut ibv_ah, qpn: u32, key: u32) -> Result<Receiver, PostError> {
    let address = objects::known::<Address>(handle).ok_or(PostError::Invalid)?;
    let (local, peer) = address.route;
    Ok(Receiver {
        local,
        peer,
        qpn,
        key,
    })
}

fn operation(request: &ibv_send_wr) -> Result<Operation, PostError> {
    let at = |(address, key): (u64, u32)| RemoteRange { address, key };
    let immediate = || Some(c::immediate(request));
    Ok(match request.opcode {
        IBV_WR_SEND => Operation::Send(None),
        IBV_WR_SEND_WITH_IMM => Operation::Send(immediate()),
        IBV_WR_RDMA_WRITE => Operation::Write(at(c::rdma(request)), None),
        IBV_WR_RDMA_WRITE_WITH_IMM => Operation::Write(at(c::rdma(request)), immediate()),
        IBV_WR_RDMA_READ => Operation::Read(at(c::rdma(request))),
        IBV_WR_ATOMIC_FETCH_AND_ADD => {
            let (address, key, add, _) = c::atomic(request);
            Operation::FetchAdd(at((address, key)), add)
        }
        IBV_WR_ATOMIC_CMP_AND_SWP => {
            let (address, key, compare, swap) = c::atomic(request);
            Operation::CompareSwap {
                remote: at((address, key)),
                compare,
                swap,
            }
        }
        _ => return Err(PostError::Invalid),
    })
}

/// Returns a request without its data.
pub(crate) fn post<'a>(
    pair: &Pair,
    token: u64,
    operation: Operation,
    flags: c_uint,
    (data, receiver): (Data<'a>, Option<Receiver>),
) -> Post<'a> {
    Post {
        token,
        operation,
        data,
        receiver,
        silent: !pair.signals_all && flags & IBV_SEND_SIGNALED == 0,
        fence: flags & IBV_SEND_FENCE != 0,
        solicited: flags & IBV_SEND_SOLICITED != 0,
    }
}

fn post_one(
    pair: &Pair,
    posts: &mut backend_roce::Posts<'_>,
    request: &ibv_send_wr,
) -> Result<(), PostError> {
    let segments = list(request.sg_list, request.num_sge);
    if segments.len() > pair.cap.max_send_sge as usize {
        return Err(PostError::Invalid);
    }
    let operation = operation(request)?;
    let receiver = match pair.kind {
        IBV_QPT_UD => {
            let (handle, qpn, key) = c::datagram(request);
            Some(receiver(handle, qpn, key)?)
        }
        _ => None,
    };
    if request.send_flags & IBV_SEND_INLINE != 0 {
        let parts = segments.iter();
        let parts: Parts<'_> = parts
            .map(|part| c::bytes(part.addr, part.length as usize))
            .collect();
        let data = Data::Inline(&parts);
        return posts.post(&post(
            pair,
            request.wr_id,
            operation,
            request.send_flags,
            (data, receiver),
        ));
    }
    let segments: Segments = segments.iter().map(segment).collect();
    let data = Data::Segments(&segments);
    posts.post(&post(
        pair,
        request.wr_id,
        operation,
        request.send_flags,
        (data, receiver),
    ))
}

/// Posts requests of a list; returns the first one that is not taken, and why.
fn post_list(pair: &Pair, first: *mut ibv_send_wr) -> Result<(), (*mut ibv_send_wr, c_int)> {
    let posted = pair.device().post(pair.qpn, |posts| {
        let mut next = first;
        while let Some(request) = c::get(next) {
            post_one(pair, posts, request).map_err(|error| (next, error_number(error)))?;
            next = request.next;
        }
        Ok(())
    });
    posted.unwrap_or_else(|error| Err((first, error_number(error))))
}

pub(crate) extern "C" fn post_send(
    qp: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let posted = match objects::known::<Pair>(qp) {
        Some(pair) => post_list(pair, first),
        None => Err((first, libc::EINVAL)),
    };
    match posted {
        Ok(()) => 0,
        Err((request, code)) => {
            c::put(bad, request);
            code
        }
    }
}

/// Posts receives of a list by `post`; of at most `most` segments each.
pub(crate) fn post_receives(
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    most: u32,
    mut post: impl FnMut(u64, &[Segment]) -> Result<(), PostError>,
) -> c_int {
    let mut next = first;
    while let Some(receive) = c::get(next) {
        let segments = list(receive.sg_list, receive.num_sge);
        let posted = if segments.len() > most as usize {
            Err(PostError::Invalid)
        } else {
            let segments: Segments = segments.iter().map(segment).collect();
            post(receive.wr_id, &segments)
        };
        if let Err(error) = posted {
            c::put(bad, next);
            return error_number(error);
        }
        next = receive.next;
    }
    0
}

pub(crate) extern "C" fn post_recv(
    qp: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let Some(pair) = objects::known::<Pair>(qp) else {
        c::put(bad, first);
        return libc::EINVAL;
    };
    let is_reset = c::with(&pair.base.0, |base| base.qp_base.state == IBV_QPS_RESET);
    if is_reset {
        c::put(bad, first);
        return libc::EINVAL;
    }
    let most = pair.cap.max_recv_sge;
    post_receives(first, bad, most, |token, segments| {
        pair.device().post_receive(pair.qpn, token, segments)
    })
}
