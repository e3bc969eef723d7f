//! Memory windows.
//!
//! Those of type 1 are bound by a call, and get a new key. Those of type 2 are bound by a request,
//! to a key whose lowest byte the program chooses.

use core::ffi::{c_int, c_uint};
use std::sync::Arc;

use backend_roce::{Bind, Binding, Operation};
use dat_core::backend::WindowKey;
use nix::errno::Errno;

use super::pair::Pair;
use super::posts::{is_silent, untaken};
use crate::adapter::Adapter;
use crate::boundary::layout::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_ZERO_BASED, IBV_MW_TYPE_1, IBV_MW_TYPE_2, IBV_SEND_FENCE,
    ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_mw_type, ibv_pd, ibv_qp,
};
use crate::boundary::{Handle, In, Kind, zeroed};
use crate::errors::{Result, ask_for_memory, code, or, refused, require};
use crate::memory::{Domain, MemoryRegion, rights};

/// Access that a window may have; the right of this side is the region's.
const KNOWN: c_uint = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_ZERO_BASED;

/// A memory window.
pub(crate) struct Window {
    adapter: Arc<Adapter>,
    key: WindowKey,
    /// Upper bits of the keys of a window of type 2.
    prefix: Option<u32>,
    _domain_use: Arc<()>,
}

impl Kind for Window {
    type C = ibv_mw;
}

/// `alloc_mw` of a context.
pub(crate) extern "C" fn alloc_mw(domain: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    let domain = Handle::<Domain>::at(domain);
    let made = or(Handle::NULL, || {
        ask_for_memory()?;
        let own = domain.get()?;
        let device = &own.adapter.device;
        let (key, own_key) = match kind {
            IBV_MW_TYPE_1 => device.create_window(own.key).map(|key| (key, None)),
            IBV_MW_TYPE_2 => {
                let made = device.create_type_2_window(own.key);
                made.map(|(window, key)| (window, Some(key)))
            }
            _ => return Err(Errno::EINVAL),
        }
        .map_err(refused)?;
        let mut c: ibv_mw = zeroed();
        c.context = own.context.pointer();
        c.pd = domain.pointer();
        c.type_ = kind;
        c.rkey = own_key.unwrap_or(0);
        let made = Window {
            adapter: Arc::clone(&own.adapter),
            key,
            prefix: own_key.map(prefix),
            _domain_use: Arc::clone(&own.users),
        };
        Ok(Handle::new(c, made))
    });
    made.pointer()
}

/// Returns the bits of a key that the program does not choose.
const fn prefix(key: u32) -> u32 {
    key >> 8
}

/// `dealloc_mw` of a context.
pub(crate) extern "C" fn dealloc_mw(window: *mut ibv_mw) -> c_int {
    let window = Handle::<Window>::at(window);
    code(|| {
        let own = window.end()?;
        own.adapter.device.destroy_window(own.key);
        Ok(())
    })
}

/// Returns the range that a window is to open; that of no bytes is of no region.
///
/// # Errors
/// `EINVAL`: the region allows no windows, or the access is unknown.
fn binding(window: &Window, info: &ibv_mw_bind_info) -> Result<Binding> {
    let region = match info.length {
        0 => 0,
        _ => {
            let region = Handle::<MemoryRegion>::at(info.mr);
            region.get()?.key_for_windows().ok_or(Errno::EINVAL)?
        }
    };
    let has = |flag| info.mw_access_flags & flag != 0;
    require(!has(!KNOWN), Errno::EINVAL)?;
    Ok(Binding {
        window: window.key,
        region,
        address: info.addr,
        length: info.length,
        rights: rights(info.mw_access_flags),
        is_zero_based: has(IBV_ACCESS_ZERO_BASED),
    })
}

/// Returns the operation that binds a window of type 2 to a key.
///
/// # Errors
/// `EINVAL`: it is of type 1, the key is none of its own, or the range cannot be bound.
pub(super) fn bind_operation(
    window: *mut ibv_mw,
    key: u32,
    info: &ibv_mw_bind_info,
) -> Result<Operation> {
    // Not a data path: objects that have ended are refused.
    let handle = Handle::<Window>::at(window);
    let own = handle.get()?;
    let is_right = own.prefix == Some(prefix(key)) && info.length > 0;
    require(is_right, Errno::EINVAL)?;
    Ok(Operation::Bind(binding(own, info)?, key))
}

/// `bind_mw` of a context.
pub(crate) extern "C" fn bind_mw(
    pair: *mut ibv_qp,
    window: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    let (pair, window) = (Handle::<Pair>::at(pair), Handle::<Window>::at(window));
    code(|| {
        let own = pair.get()?;
        let wanted = In::at(bind).get()?;
        let known = window.get()?;
        // One of type 2 is bound by a request.
        require(known.prefix.is_none(), Errno::EINVAL)?;
        let bind = Bind {
            token: wanted.wr_id,
            binding: binding(known, &wanted.bind_info)?,
            silent: is_silent(own, wanted.send_flags),
            fence: wanted.send_flags & IBV_SEND_FENCE != 0,
        };
        let posted = own.adapter.device.post(own.qpn, |posts| posts.bind(&bind));
        let key = posted.and_then(|posted| posted).map_err(untaken)?;
        window.change(|c| c.rkey = key);
        Ok(())
    })
}
