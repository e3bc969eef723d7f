//! Prepared binds of a window to the region of its last bind.
//!
//! Only token, flags, range, rights and keys change.

use core::ptr::{self, NonNull};
use std::sync::Arc;

use dat_core::backend::{BindRequest, Rejected, SendFlags};
use rdma_sys::{bind_mw_t, ibv_mw_bind, ibv_mw_bind_info, ibv_send_wr, ibv_wr_opcode};

use super::send_list::{NotBound, SIGNALLED, SendList, blank, flags};
use super::{Access, Region, Window};

/// Arguments of a bind of a type 1 window.
pub(crate) struct CallAgain {
    bind: ibv_mw_bind,
    /// Owner of the region that `bind` points to.
    _region: Arc<Region>,
}

// SAFETY: the pointer in the arguments leads to the kept region, which any thread may use.
unsafe impl Send for CallAgain {}

impl core::fmt::Debug for CallAgain {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("CallAgain").finish_non_exhaustive()
    }
}

impl CallAgain {
    /// Prepares binds to a region whose last bind began at `address`.
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

    /// Returns the address of the last bind.
    pub(crate) fn address(&self) -> u64 {
        self.bind.bind_info.addr
    }
}

/// Requests of a bind that first closes the open window (type 2).
pub(crate) struct RequestsAgain {
    /// The request that closes and the one that opens, reached only through this pointer.
    both: NonNull<[ibv_send_wr; 2]>,
    /// Owner of the region that the requests point to.
    _region: Arc<Region>,
}

// SAFETY: the pointers in it lead to its own requests, and to the kept region, which any thread may
// use.
unsafe impl Send for RequestsAgain {}

impl core::fmt::Debug for RequestsAgain {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("RequestsAgain")
            .finish_non_exhaustive()
    }
}

impl RequestsAgain {
    /// Prepares binds to a region whose last bind began at `address` and got `key`.
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
        // SAFETY: the requests were just made and do not move. The link to the second one derives
        // from `both`, as do all accesses.
        unsafe {
            let open = &raw mut (*both.as_ptr())[1];
            (*both.as_ptr())[0].next = open;
        }
        Self {
            both,
            _region: region,
        }
    }

    /// Returns the address of the last bind.
    pub(crate) fn address(&self) -> u64 {
        // SAFETY: the requests live as long as `self`, and the second one is a bind.
        unsafe {
            (*self.both.as_ptr())[1]
                .bind_mw_tso_union
                .bind_mw
                .bind_info
                .addr
        }
    }

    /// Returns the key of the last bind.
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

/// Returns the flags of a bind.
#[inline(always)]
fn flags_of(request: &BindRequest) -> u32 {
    flags(request.flags & SendFlags::FENCE)
}

impl SendList {
    /// Binds a type 1 window again to the kept region.
    ///
    /// The length must not be 0.
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
        // SAFETY: `again` keeps the region in the arguments.
        unsafe { self.call(window, to) }
    }

    /// Binds a type 2 window again to its region, under the next key.
    ///
    /// The length must not be 0. The caller stores the new key in the window.
    ///
    /// # Errors
    /// The device's refusal; the window is not bound then.
    #[inline(always)]
    pub(crate) fn requests_again(
        &mut self,
        window: &Window,
        again: &mut RequestsAgain,
        request: &BindRequest,
    ) -> Result<(), NotBound> {
        let flags = flags_of(request);
        let both = again.both.as_ptr();
        // SAFETY: the requests live as long as `again`, and only the first one's link refers to
        // them: the device copied the earlier posts. They are written through the pointer from
        // which the link derives.
        let (first, second) = unsafe {
            (*both)[0].wr_id = request.token;
            // Only the bind signals a completion. If the close fails, both requests complete, the
            // close first, and the core ignores the second completion as unknown.
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

/// Advances a key of a type 2 window in place, as `next_key` does.
#[inline(always)]
fn step(key: &mut u32) {
    let lowest = if cfg!(target_endian = "little") { 0 } else { 3 };
    let mut bytes = key.to_ne_bytes();
    bytes[lowest] = bytes[lowest].wrapping_add(1);
    *key = u32::from_ne_bytes(bytes);
}
