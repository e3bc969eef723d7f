//! Requests of programs, and the data that they name.

use core::ffi::c_int;

use dat_core::backend::RemoteRange;

use super::layout::{
    ibv_ah, ibv_cq_ex, ibv_data_buf, ibv_gid, ibv_mw, ibv_mw_bind_info, ibv_qp_ex,
    ibv_qp_init_attr, ibv_send_wr, ibv_sge, ibv_wc_status,
};
use super::objects::{Handle, Kind};
use super::pointers::{In, Out};

/// Returns `count` values from the first one on.
///
/// # Safety
/// They are valid as long as the owner of the pointer.
unsafe fn list<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if first.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: as the caller says.
    unsafe { core::slice::from_raw_parts(first, count) }
}

/// Returns the segments of a request; `None` if they are more than `most`, or no list.
pub(crate) fn segments(first: &In<ibv_sge>, count: c_int, most: u32) -> Option<&[ibv_sge]> {
    let count = u32::try_from(count).ok().filter(|count| *count <= most)?;
    let is_list = count == 0 || !first.pointer().is_null();
    is_list.then(|| values(first, count as usize))
}

impl ibv_sge {
    /// Returns the data that a request brings itself.
    pub(crate) fn bytes(&self) -> &[u8] {
        let first = core::ptr::with_exposed_provenance(self.addr as usize);
        // SAFETY: a request with inline data names it by addresses of the program.
        unsafe { list(first, self.length as usize) }
    }
}

impl ibv_data_buf {
    /// Returns the data that a request brings itself.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: as above.
        unsafe { list(self.addr.cast_const().cast(), self.length) }
    }
}

impl ibv_send_wr {
    /// Returns the address and the key of an RDMA request.
    pub(crate) const fn remote(&self) -> RemoteRange {
        // SAFETY: all fields are numbers, and null or a pointer.
        let rdma = unsafe { self.wr.rdma };
        RemoteRange {
            address: rdma.remote_addr,
            key: rdma.rkey,
        }
    }

    /// Returns the address, the key and both operands of an atomic request.
    pub(crate) const fn atomic(&self) -> (RemoteRange, u64, u64) {
        // SAFETY: as above.
        let atomic = unsafe { self.wr.atomic };
        let remote = RemoteRange {
            address: atomic.remote_addr,
            key: atomic.rkey,
        };
        (remote, atomic.compare_add, atomic.swap)
    }

    /// Returns the address handle, the QPN and the key of the receiver of a datagram.
    pub(crate) const fn receiver(&self) -> (*mut ibv_ah, u32, u32) {
        // SAFETY: as above; the pointer is not followed here.
        let datagram = unsafe { self.wr.ud };
        (datagram.ah, datagram.remote_qpn, datagram.remote_qkey)
    }

    /// Returns the immediate data, in the order of the wire.
    pub(crate) const fn immediate(&self) -> u32 {
        // SAFETY: both fields are numbers of 4 bytes.
        unsafe { self.__bindgen_anon_1.imm_data }
    }

    /// Returns the key that a request invalidates.
    pub(crate) const fn invalidated(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.__bindgen_anon_1.invalidate_rkey }
    }

    /// Returns the window, its new key and its range.
    pub(crate) const fn binding(&self) -> (*mut ibv_mw, u32, ibv_mw_bind_info) {
        // SAFETY: all fields are numbers and pointers, which are not followed here.
        let bind = unsafe { self.__bindgen_anon_2.bind_mw };
        (bind.mw, bind.rkey, bind.bind_info)
    }
}

/// Returns the list that a call names by its first value.
pub(crate) fn values<T: Copy>(first: &In<T>, count: usize) -> &[T] {
    // SAFETY: the program says how many there are, and keeps them during the call.
    unsafe { list(first.pointer(), count) }
}

/// Returns the bytes of a GID.
pub(crate) const fn gid_bytes(gid: ibv_gid) -> [u8; 16] {
    // SAFETY: all fields are 16 bytes.
    unsafe { gid.raw }
}

/// Returns the name and the flags of the request that a program is about to begin.
pub(crate) fn next_request<K: Kind<C = ibv_qp_ex>>(pair: &Handle<K>) -> (u64, u32) {
    let c: *const ibv_qp_ex = pair.pointer();
    // SAFETY: the program passes a live queue pair, in whose turn it is; nobody else writes these
    // fields.
    unsafe {
        (
            (&raw const (*c).wr_id).read(),
            (&raw const (*c).wr_flags).read(),
        )
    }
}

/// Shows a completion to the thread in whose turn the queue is.
pub(crate) fn show_completion<K: Kind<C = ibv_cq_ex>>(
    queue: Handle<K>,
    wr_id: u64,
    status: ibv_wc_status,
) {
    let c: *mut ibv_cq_ex = queue.pointer();
    // SAFETY: the program passes a live queue; nobody else has a reference to these fields, which
    // belong to the turn.
    unsafe {
        (&raw mut (*c).wr_id).write(wr_id);
        (&raw mut (*c).status).write(status);
    }
}

/// Tells a program what it got for what it wanted, without the bytes between the fields: programs
/// have further fields there.
pub(crate) fn tell_made(to: Out<ibv_qp_init_attr>, made: &ibv_qp_init_attr) {
    let c = to.pointer();
    if c.is_null() {
        return;
    }
    // SAFETY: the program passes null or such a structure.
    unsafe {
        (&raw mut (*c).send_cq).write(made.send_cq);
        (&raw mut (*c).recv_cq).write(made.recv_cq);
        (&raw mut (*c).cap).write(made.cap);
    }
}
