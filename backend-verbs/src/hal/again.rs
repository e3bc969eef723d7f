//! What binds a window once more to the region that it was bound to last, but for the place there.

use core::ptr::{self, NonNull};
use std::sync::Arc;

use dat_core::backend::{BindRequest, Rejected, SendFlags};
use rdma_sys::{bind_mw_t, ibv_mw_bind, ibv_mw_bind_info, ibv_send_wr, ibv_wr_opcode};

use super::send_list::{NotBound, SIGNALLED, SendList, blank, flags};
use super::{Access, Region, Window};

/// The arguments of a bind by a call.
pub(crate) struct CallAgain {
    bind: ibv_mw_bind,
    /// The region in it.
    _region: Arc<Region>,
}

// SAFETY: the pointer in the arguments leads to the region that is kept, which any thread may use.
unsafe impl Send for CallAgain {}

impl core::fmt::Debug for CallAgain {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("CallAgain").finish_non_exhaustive()
    }
}

impl CallAgain {
    /// For a region, of which the last bind began at this address.
    pub(crate) fn new(region: Arc<Region>, address: u64) -> Self {
        Self {
            bind: ibv_mw_bind {
                wr_id: 0,
                send_flags: 0,
                bind_info: opening(&region, address),
            },
            _region: region,
        }
    }

    /// The address of the last bind.
    pub(crate) fn address(&self) -> u64 {
        self.bind.bind_info.addr
    }
}

/// The requests of a bind that closes what is open first.
pub(crate) struct RequestsAgain {
    /// The one that closes and the one that opens; both are reached by this alone.
    both: NonNull<[ibv_send_wr; 2]>,
    /// The region in them.
    _region: Arc<Region>,
}

// SAFETY: the pointers in it lead to what it owns, and to the region that is kept, which any thread may use.
unsafe impl Send for RequestsAgain {}

impl core::fmt::Debug for RequestsAgain {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("RequestsAgain")
            .finish_non_exhaustive()
    }
}

impl RequestsAgain {
    /// For a region, of which the last bind began at this address, and has this key.
    pub(crate) fn new(region: Arc<Region>, address: u64, key: u32) -> Self {
        let request = |opcode| ibv_send_wr { opcode, ..blank() };
        let mut both = Box::new([
            request(ibv_wr_opcode::IBV_WR_LOCAL_INV),
            request(ibv_wr_opcode::IBV_WR_BIND_MW),
        ]);
        let [_, open] = &mut *both;
        open.bind_mw_tso_union.bind_mw = bind_mw_t {
            mw: ptr::null_mut(),
            rkey: key,
            bind_info: opening(&region, address),
        };
        let both = NonNull::from(Box::leak(both));
        // SAFETY: they were just made, and stay where they are; the pointer to the second one leads through the first's owner, as all do.
        unsafe {
            let open = &raw mut (*both.as_ptr())[1];
            (*both.as_ptr())[0].next = open;
        }
        Self {
            both,
            _region: region,
        }
    }

    /// The address of the last bind.
    pub(crate) fn address(&self) -> u64 {
        // SAFETY: they live as long as `self`, and it says how the second one binds.
        unsafe {
            (*self.both.as_ptr())[1]
                .bind_mw_tso_union
                .bind_mw
                .bind_info
                .addr
        }
    }

    /// The key of the last bind.
    #[inline(always)]
    pub(crate) fn key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.both.as_ptr())[1].bind_mw_tso_union.bind_mw.rkey }
    }
}

impl Drop for RequestsAgain {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and dropped once.
        drop(unsafe { Box::from_raw(self.both.as_ptr()) });
    }
}

fn opening(region: &Region, address: u64) -> ibv_mw_bind_info {
    ibv_mw_bind_info {
        mr: region.raw(),
        addr: address,
        length: 0,
        mw_access_flags: 0,
    }
}

/// The flags of a bind.
#[inline(always)]
fn flags_of(request: &BindRequest) -> u32 {
    flags(request.flags & SendFlags::FENCE)
}

impl SendList {
    /// Binds a window of type 1 to a region that it was bound to before; not to no bytes.
    #[inline(always)]
    pub(crate) fn call_again(
        &mut self,
        window: &Window,
        again: &mut CallAgain,
        request: &BindRequest,
    ) -> Result<u32, Rejected> {
        let to = &mut again.bind;
        to.wr_id = request.token;
        to.send_flags = flags_of(request);
        to.bind_info.addr = request.address;
        to.bind_info.length = request.length;
        to.bind_info.mw_access_flags = Access::of_window(request.privileges).0;
        // SAFETY: the region in the arguments is kept.
        unsafe { self.call(window, to) }
    }

    /// Binds a window of type 2 to a region that it is open to, under the next key; not to no bytes. The window is to be
    /// told that key.
    ///
    /// # Errors
    /// What the device refused; it is not bound.
    #[inline(always)]
    pub(crate) fn requests_again(
        &mut self,
        window: &Window,
        again: &mut RequestsAgain,
        request: &BindRequest,
    ) -> Result<(), NotBound> {
        let flags = flags_of(request);
        let both = again.both.as_ptr();
        // SAFETY: they live as long as `again`, and nothing but the first one's link refers to them: the device copied what they were
        // before. They are written through this pointer, from which the link was made.
        let (first, second) = unsafe {
            (*both)[0].wr_id = request.token;
            // One completion for both, that of the bind; if the close fails both complete, that first, and the core takes
            // the second for none of its own.
            (*both)[0].send_flags = flags & !SIGNALLED;
            (*both)[1].wr_id = request.token;
            (*both)[1].send_flags = flags;
            let bind = &raw mut (*both)[1].bind_mw_tso_union.bind_mw;
            (*both)[0].imm_data_invalidated_rkey_union.invalidated_rkey = (*bind).rkey;
            step(&mut (*bind).rkey);
            (*bind).mw = window.raw();
            (*bind).bind_info.addr = request.address;
            (*bind).bind_info.length = request.length;
            (*bind).bind_info.mw_access_flags = Access::of_window(request.privileges).0;
            (&raw mut (*both)[0], &raw mut (*both)[1])
        };
        // SAFETY: window and region live.
        unsafe { self.post_bind(first, second) }.inspect_err(|_| {
            // SAFETY: as above.
            unsafe {
                (*second).bind_mw_tso_union.bind_mw.rkey =
                    (*first).imm_data_invalidated_rkey_union.invalidated_rkey;
            }
        })
    }
}

/// Goes on to the next key of a window of type 2, as `next_key` says it, where the key is.
#[inline(always)]
fn step(key: &mut u32) {
    let lowest = if cfg!(target_endian = "little") { 0 } else { 3 };
    let mut bytes = key.to_ne_bytes();
    bytes[lowest] = bytes[lowest].wrapping_add(1);
    *key = u32::from_ne_bytes(bytes);
}
