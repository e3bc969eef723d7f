//! Lists of requests and receives.

use core::ffi::{c_int, c_uint};

use backend_roce::{Data, Operation, Post, PostError, Posts, Receiver};
use dat_core::backend::Segment;
use nix::errno::Errno;
use smallvec::SmallVec;

use super::address::AddressHandle;
use super::pair::Pair;
use super::shared::SharedQueue;
use super::window::bind_operation;
use crate::boundary::layout::{
    IBV_QPT_UD, IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_WRITE, IBV_WR_BIND_MW,
    IBV_WR_DRIVER1, IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV,
    IBV_WR_TSO, ibv_ah, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq,
};
use crate::boundary::{Handle, In, Out, segments};
use crate::errors::{Result, code, require};

/// Segments of a request; four need no allocation.
pub(super) type Segments = SmallVec<[Segment; 4]>;

/// Returns the error of the system for a request that is not taken.
pub(super) const fn untaken(error: PostError) -> Errno {
    match error {
        PostError::Full => Errno::ENOMEM,
        PostError::State | PostError::Invalid => Errno::EINVAL,
    }
}

pub(super) const fn segment(from: &ibv_sge) -> Segment {
    Segment {
        address: from.addr,
        length: from.length,
        key: from.lkey,
    }
}

/// Returns the receiver of a datagram.
pub(super) fn receiver((address, qpn, key): (*mut ibv_ah, u32, u32)) -> Result<Receiver> {
    let handle = Handle::<AddressHandle>::at(address);
    let (local, peer) = handle.trusted()?.route;
    Ok(Receiver {
        local,
        peer,
        qpn,
        key,
    })
}

fn operation(request: &ibv_send_wr) -> Result<Operation> {
    let immediate = || Some(request.immediate());
    let (word, compare_add, swap) = request.atomic();
    Ok(match request.opcode {
        IBV_WR_SEND => Operation::Send(None),
        IBV_WR_SEND_WITH_IMM => Operation::Send(immediate()),
        IBV_WR_RDMA_WRITE => Operation::Write(request.remote(), None),
        IBV_WR_RDMA_WRITE_WITH_IMM => Operation::Write(request.remote(), immediate()),
        IBV_WR_RDMA_READ => Operation::Read(request.remote()),
        IBV_WR_ATOMIC_FETCH_AND_ADD => Operation::FetchAdd(word, compare_add),
        IBV_WR_ATOMIC_CMP_AND_SWP => Operation::CompareSwap {
            remote: word,
            compare: compare_add,
            swap,
        },
        IBV_WR_SEND_WITH_INV => Operation::SendInvalidate(request.invalidated()),
        IBV_WR_LOCAL_INV => Operation::Invalidate(request.invalidated()),
        IBV_WR_BIND_MW => {
            let (window, key, info) = request.binding();
            bind_operation(window, key, &info)?
        }
        IBV_WR_TSO | IBV_WR_DRIVER1 | IBV_WR_ATOMIC_WRITE => return Err(Errno::EOPNOTSUPP),
        _ => return Err(Errno::EINVAL),
    })
}

/// Returns true if no completion tells of the success of a request.
pub(super) const fn is_silent(pair: &Pair, flags: c_uint) -> bool {
    pair.init.sq_sig_all == 0 && flags & IBV_SEND_SIGNALED == 0
}

/// Returns true if data has at most `most` bytes.
fn fits(data: &Data<'_>, most: u32) -> bool {
    let length = match data {
        Data::Segments(segments) => segments.iter().map(|part| u64::from(part.length)).sum(),
        Data::Inline(parts) => parts.iter().map(|part| part.len() as u64).sum::<u64>(),
    };
    length <= u64::from(most)
}

/// Returns a request as the device takes it.
///
/// A datagram is refused if it does not fit into a packet of every interface.
pub(super) fn post<'a>(
    pair: &Pair,
    token: u64,
    flags: c_uint,
    (operation, receiver): (Operation, Option<Receiver>),
    data: Data<'a>,
) -> Result<Post<'a>> {
    let fits = receiver.is_none() || fits(&data, pair.adapter.interfaces.mtu.bytes());
    require(fits, Errno::EINVAL)?;
    Ok(Post {
        token,
        operation,
        data,
        receiver,
        silent: is_silent(pair, flags),
        fence: flags & IBV_SEND_FENCE != 0,
        solicited: flags & IBV_SEND_SOLICITED != 0,
    })
}

fn post_one(pair: &Pair, posts: &mut Posts<'_>, request: &ibv_send_wr) -> Result<()> {
    let (first, most) = (In::at(request.sg_list), pair.init.cap.max_send_sge);
    let segments = segments(&first, request.num_sge, most).ok_or(Errno::EINVAL)?;
    let receiver = match pair.init.qp_type {
        IBV_QPT_UD => Some(receiver(request.receiver())?),
        _ => None,
    };
    let what = (operation(request)?, receiver);
    let flags = request.send_flags;
    let (parts, list): (SmallVec<[&[u8]; 4]>, Segments);
    let data = if flags & IBV_SEND_INLINE != 0 {
        parts = segments.iter().map(|part| part.bytes()).collect();
        Data::Inline(&parts)
    } else {
        list = segments.iter().map(segment).collect();
        Data::Segments(&list)
    };
    let one = post(pair, request.wr_id, flags, what, data)?;
    posts.post(&one).map_err(untaken)
}

/// `post_send` of a context.
pub(crate) extern "C" fn post_send(
    pair: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let handle = Handle::<Pair>::at(pair);
    let mut next = first;
    code(|| {
        let posted = handle.trusted().and_then(|own| {
            let posted = own.adapter.device.post(own.qpn, |posts| {
                while let Some(request) = In::at(next).look() {
                    post_one(own, posts, request)?;
                    next = request.next;
                }
                Ok(())
            });
            posted.map_err(untaken)?
        });
        posted.inspect_err(|_| Out::at(bad).set(next))
    })
}

/// Posts receives of a list by `post`, of at most `most` segments each.
fn post_receives(
    mut next: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    most: u32,
    mut post: impl FnMut(u64, &[Segment]) -> core::result::Result<(), PostError>,
) -> Result<()> {
    while let Some(receive) = In::at(next).look() {
        let list = In::at(receive.sg_list);
        let posted = segments(&list, receive.num_sge, most).ok_or(PostError::Invalid);
        let posted = posted.and_then(|segments| {
            let segments: Segments = segments.iter().map(segment).collect();
            post(receive.wr_id, &segments)
        });
        posted.map_err(|error| {
            Out::at(bad).set(next);
            untaken(error)
        })?;
        next = receive.next;
    }
    Ok(())
}

/// `post_recv` of a context.
pub(crate) extern "C" fn post_recv(
    pair: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let handle = Handle::<Pair>::at(pair);
    code(|| {
        let own = handle.trusted().and_then(|own| {
            require(!own.is_reset(), Errno::EINVAL)?;
            Ok(own)
        });
        let own = own.inspect_err(|_| Out::at(bad).set(first))?;
        post_receives(first, bad, own.init.cap.max_recv_sge, |token, segments| {
            own.adapter.device.post_receive(own.qpn, token, segments)
        })
    })
}

/// `post_srq_recv` of a context.
pub(crate) extern "C" fn post_srq_recv(
    queue: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let handle = Handle::<SharedQueue>::at(queue);
    code(|| {
        let own = handle.trusted();
        let own = own.inspect_err(|_| Out::at(bad).set(first))?;
        post_receives(first, bad, own.segments, |token, segments| {
            own.adapter.device.post_shared(own.key, token, segments)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_fits_up_to_the_last_byte() {
        let segment = |length| Segment {
            address: 0,
            length,
            key: 0,
        };
        for (lengths, expected) in [([1000, 24], true), ([1000, 25], false)] {
            let segments = lengths.map(segment);
            assert_eq!(fits(&Data::Segments(&segments), 1024), expected);
            let bytes = [7; 1000];
            let parts = lengths.map(|length| &bytes[..length as usize]);
            assert_eq!(fits(&Data::Inline(&parts), 1024), expected);
        }
        let long = [u32::MAX; 2].map(segment);
        assert!(!fits(&Data::Segments(&long), 4096));
    }
}
