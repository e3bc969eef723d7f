//! The calls that build requests one by one: `ibv_wr_*`.

use core::ffi::{c_int, c_uint, c_void};

use backend_roce::{Data, Operation, Post, Receiver};
use dat_core::backend::RemoteRange;
use nix::errno::Errno;

use super::pair::Pair;
use super::posts::{Segments, post, receiver, segment, untaken};
use super::window::bind_operation;
use crate::boundary::layout::{
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_BIND_MW,
    IBV_QP_EX_WITH_LOCAL_INV, IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE,
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM,
    IBV_QP_EX_WITH_SEND_WITH_INV, IBV_QPT_UD, ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info,
    ibv_qp_cap, ibv_qp_create_send_ops_flags, ibv_qp_ex, ibv_sge,
};
use crate::boundary::{Handle, In, next_request, values};
use crate::errors::{Result, code, require};

/// Operations that the calls can build.
pub(super) const OPERATIONS: u64 = (PLAIN | IBV_QP_EX_WITH_BIND_MW) as u64;

/// A request that was begun.
pub(super) struct Begun {
    token: u64,
    flags: c_uint,
    operation: Operation,
    receiver: Option<Receiver>,
    segments: Segments,
    /// Data in place of segments.
    inline: Option<Vec<u8>>,
    /// Error if it cannot be posted; its data is not kept then.
    refusal: Option<Errno>,
}

/// Gives a queue pair these calls.
pub(super) fn fill(c: &mut ibv_qp_ex) {
    fill_plain(c);
    c.wr_bind_mw = Some(wr_bind_mw);
    c.wr_set_inline_data = Some(set_inline_data);
    c.wr_set_inline_data_list = Some(set_inline_data_list);
    c.wr_set_sge = Some(set_sge);
    c.wr_set_sge_list = Some(set_sge_list);
    c.wr_set_ud_addr = Some(set_ud_addr);
    c.wr_start = Some(start);
    c.wr_complete = Some(complete);
    c.wr_abort = Some(abort);
}

/// Makes calls that only begin a request, by a line for each: its operation as programs ask for
/// it, the call with its arguments, and the operation of the device.
macro_rules! plain {
    ($($flag:ident $call:ident($($argument:ident: $kind:ty),*) => $operation:expr;)*) => {
        $(extern "C" fn $call(pair: *mut ibv_qp_ex $(, $argument: $kind)*) {
            begin(pair, $operation);
        })*

        /// The operations of these calls.
        const PLAIN: ibv_qp_create_send_ops_flags = $($flag)|*;

        fn fill_plain(c: &mut ibv_qp_ex) {
            $(c.$call = Some($call);)*
        }
    };
}

plain! {
    IBV_QP_EX_WITH_SEND wr_send() => Operation::Send(None);
    IBV_QP_EX_WITH_SEND_WITH_IMM wr_send_imm(data: u32) => Operation::Send(Some(data));
    IBV_QP_EX_WITH_SEND_WITH_INV wr_send_inv(key: u32) => Operation::SendInvalidate(key);
    IBV_QP_EX_WITH_LOCAL_INV wr_local_inv(key: u32) => Operation::Invalidate(key);
    IBV_QP_EX_WITH_RDMA_WRITE wr_rdma_write(key: u32, address: u64) =>
        Operation::Write(RemoteRange { address, key }, None);
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM wr_rdma_write_imm(key: u32, address: u64, data: u32) =>
        Operation::Write(RemoteRange { address, key }, Some(data));
    IBV_QP_EX_WITH_RDMA_READ wr_rdma_read(key: u32, address: u64) =>
        Operation::Read(RemoteRange { address, key });
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD wr_atomic_fetch_add(key: u32, address: u64, add: u64) =>
        Operation::FetchAdd(RemoteRange { address, key }, add);
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        wr_atomic_cmp_swp(key: u32, address: u64, compare: u64, swap: u64) =>
        Operation::CompareSwap { remote: RemoteRange { address, key }, compare, swap };
}

/// Begins a request.
fn begin(pair: *mut ibv_qp_ex, operation: Operation) {
    let handle = Handle::<Pair>::at(pair);
    let Ok(own) = handle.trusted() else {
        return;
    };
    let (token, flags) = next_request(&handle);
    let begun = Begun {
        token,
        flags,
        operation,
        receiver: None,
        segments: Segments::new(),
        inline: None,
        refusal: None,
    };
    own.turns.with(|requests| requests.push(begun));
}

/// Changes the request that was begun last.
fn change(pair: *mut ibv_qp_ex, change: impl FnOnce(&mut Begun, &ibv_qp_cap)) {
    if let Ok(own) = Handle::<Pair>::at(pair).trusted() {
        own.turns.with(|requests| {
            if let Some(last) = requests.last_mut() {
                change(last, &own.init.cap);
            }
        });
    }
}

impl Begun {
    fn refuse_if(&mut self, is_long: bool) {
        if is_long {
            self.refusal = self.refusal.or(Some(Errno::EINVAL));
        }
    }

    /// Adds segments, if it may have as many.
    fn add(&mut self, segments: &[ibv_sge], most: &ibv_qp_cap) {
        let count = self.segments.len().saturating_add(segments.len());
        self.refuse_if(count > most.max_send_sge as usize);
        if self.refusal.is_none() {
            self.segments.extend(segments.iter().map(segment));
        }
    }

    /// Sets the data, if it may have as much.
    fn set_data(&mut self, parts: &[ibv_data_buf], most: &ibv_qp_cap) {
        let lengths = parts.iter().map(|part| part.length);
        let length = lengths.fold(0, usize::saturating_add);
        self.refuse_if(length > most.max_inline_data as usize);
        if self.refusal.is_none() {
            let bytes = parts.iter().flat_map(|part| part.bytes());
            self.inline = Some(bytes.copied().collect());
        }
    }
}

extern "C" fn start(pair: *mut ibv_qp_ex) {
    if let Ok(own) = Handle::<Pair>::at(pair).trusted() {
        own.turns.begin();
        own.turns.with(Vec::clear);
    }
}

extern "C" fn abort(pair: *mut ibv_qp_ex) {
    if let Ok(own) = Handle::<Pair>::at(pair).trusted() {
        own.turns.close(Vec::clear);
    }
}

/// Acts on a request as the device takes it.
///
/// # Errors
/// `EINVAL`: the device refuses it; others as its parts were refused.
fn with_post(own: &Pair, one: &Begun, act: impl FnOnce(&Post<'_>) -> Result<()>) -> Result<()> {
    let sends = matches!(one.operation, Operation::Send(_));
    let has_no_data = matches!(
        one.operation,
        Operation::Bind(..) | Operation::Invalidate(_)
    );
    let is_datagram = own.init.qp_type == IBV_QPT_UD;
    let is_wrong = one.inline.is_some() && !one.operation.may_be_inline()
        || has_no_data && !one.segments.is_empty()
        || is_datagram && !sends
        || is_datagram != one.receiver.is_some();
    if let Some(refusal) = one.refusal.or(is_wrong.then_some(Errno::EINVAL)) {
        return Err(refusal);
    }
    let parts = [one.inline.as_deref().unwrap_or_default()];
    let data = match one.inline {
        Some(_) => Data::Inline(&parts),
        None => Data::Segments(&one.segments),
    };
    let what = (one.operation, one.receiver);
    act(&post(own, one.token, one.flags, what, data)?)
}

/// Posts all requests of the turn, or none.
fn post_all(own: &Pair, requests: &[Begun]) -> Result<()> {
    for one in requests {
        with_post(own, one, |_| Ok(()))?;
    }
    let posted = own.adapter.device.post(own.qpn, |posts| {
        require(posts.room() >= requests.len(), Errno::ENOMEM)?;
        for one in requests {
            with_post(own, one, |one| posts.post(one).map_err(untaken))?;
        }
        Ok(())
    });
    posted.map_err(untaken)?
}

extern "C" fn complete(pair: *mut ibv_qp_ex) -> c_int {
    let handle = Handle::<Pair>::at(pair);
    code(|| {
        let own = handle.trusted()?;
        let posted = own.turns.close(|requests| {
            let posted = post_all(own, requests);
            requests.clear();
            posted
        });
        posted.unwrap_or(Err(Errno::EINVAL))
    })
}

extern "C" fn wr_bind_mw(
    pair: *mut ibv_qp_ex,
    window: *mut ibv_mw,
    key: u32,
    info: *const ibv_mw_bind_info,
) {
    let info = In::at(info).get();
    match info.and_then(|info| bind_operation(window, key, &info)) {
        Ok(operation) => begin(pair, operation),
        Err(error) => {
            begin(pair, Operation::Invalidate(0));
            change(pair, |one, _| one.refusal = Some(error));
        }
    }
}

extern "C" fn set_ud_addr(pair: *mut ibv_qp_ex, address: *mut ibv_ah, qpn: u32, key: u32) {
    let receiver = receiver((address, qpn, key)).ok();
    change(pair, |one, _| one.receiver = receiver);
}

extern "C" fn set_sge(pair: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let from = ibv_sge { addr, length, lkey };
    change(pair, |one, most| one.add(&[from], most));
}

extern "C" fn set_sge_list(pair: *mut ibv_qp_ex, count: usize, first: *const ibv_sge) {
    let first = In::at(first);
    change(pair, |one, most| {
        one.refuse_if(count > most.max_send_sge as usize);
        if one.refusal.is_none() {
            one.add(values(&first, count), most);
        }
    });
}

extern "C" fn set_inline_data(pair: *mut ibv_qp_ex, first: *mut c_void, length: usize) {
    let data = ibv_data_buf {
        addr: first,
        length,
    };
    change(pair, |one, most| one.set_data(&[data], most));
}

extern "C" fn set_inline_data_list(pair: *mut ibv_qp_ex, count: usize, first: *const ibv_data_buf) {
    let first = In::at(first);
    change(pair, |one, most| one.set_data(values(&first, count), most));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::zeroed;
    use crate::tests::posts::Bed;

    fn room(bed: &Bed) -> usize {
        let own = bed.pair.get().expect("a pair");
        let room = own.adapter.device.post(own.qpn, |posts| posts.room());
        room.expect("a pair")
    }

    #[test]
    fn a_turn_posts_all_of_its_requests_or_none() {
        let bed = Bed::new();
        let pair = bed.pair.pointer();
        let mut bytes = [7_u8; 8];
        let first: *mut c_void = (&raw mut bytes).cast();
        let before = room(&bed);
        // A Read has no inline data.
        start(pair);
        wr_send(pair);
        wr_rdma_read(pair, 0, 0);
        set_inline_data(pair, first, 8);
        assert_eq!((complete(pair), room(&bed)), (libc::EINVAL, before));
        start(pair);
        wr_send(pair);
        assert_eq!((complete(pair), room(&bed)), (0, before - 1));
        // A turn ends once, and nothing of it is left.
        let over = (libc::EINVAL, before - 1);
        assert_eq!((complete(pair), room(&bed)), over);
        start(pair);
        wr_send(pair);
        abort(pair);
        assert_eq!((complete(pair), room(&bed)), over);
        start(pair);
        assert_eq!((complete(pair), room(&bed)), (0, before - 1));
        bed.close();
    }

    #[test]
    fn operations_without_data_refuse_it() {
        let bed = Bed::new();
        let pair = bed.pair.pointer();
        let before = room(&bed);
        let info: ibv_mw_bind_info = zeroed();
        let refused = (libc::EINVAL, before);
        start(pair);
        wr_bind_mw(pair, core::ptr::null_mut(), 0, &raw const info);
        assert_eq!((complete(pair), room(&bed)), refused, "no window");
        start(pair);
        wr_bind_mw(pair, core::ptr::null_mut(), 0, core::ptr::null());
        assert_eq!((complete(pair), room(&bed)), refused, "no range");
        start(pair);
        wr_local_inv(pair, 7);
        set_sge(pair, 0, 0, 0);
        assert_eq!((complete(pair), room(&bed)), refused, "a segment");
        start(pair);
        wr_local_inv(pair, 7);
        assert_eq!(complete(pair), 0);
        // The key was wrong: the queue pair is in error.
        start(pair);
        wr_send_inv(pair, 7);
        let byte: *mut c_void = (&raw mut *Box::new(7_u8)).cast();
        set_inline_data(pair, byte, 1);
        assert_eq!(complete(pair), 0);
        bed.close();
    }

    #[test]
    fn too_much_is_refused_and_not_read() {
        let bed = Bed::new();
        let pair = bed.pair.pointer();
        let before = room(&bed);
        let mut byte = 7_u8;
        let data = [ibv_data_buf {
            addr: (&raw mut byte).cast(),
            length: usize::MAX,
        }; 2];
        let segments = [ibv_sge {
            addr: 0,
            length: 0,
            lkey: 0,
        }];
        for kind in 0..4 {
            start(pair);
            wr_send(pair);
            match kind {
                0 => set_inline_data(pair, data[0].addr, 1 << 40),
                1 => set_inline_data_list(pair, 2, data.as_ptr()),
                2 => set_sge_list(pair, usize::MAX, segments.as_ptr()),
                _ => (0..3).for_each(|_| set_sge(pair, 0, 0, 0)),
            }
            let done = (complete(pair), room(&bed));
            assert_eq!(done, (libc::EINVAL, before), "{kind}");
        }
        bed.close();
    }
}
