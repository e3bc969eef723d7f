//! Memory windows of type 1.

use core::ffi::c_int;
use std::sync::Arc;

use backend_roce::{Bind, PostError, RemoteRights};
use dat_core::backend::WindowKey;
use nix::errno::Errno;

use super::pair::Pair;
use super::posts::number;
use crate::adapter::Adapter;
use crate::boundary::layout::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_MW_TYPE_1, IBV_SEND_FENCE, IBV_SEND_SIGNALED, ibv_mw, ibv_mw_bind,
    ibv_mw_type, ibv_pd, ibv_qp,
};
use crate::boundary::{Handle, In, Kind, zeroed};
use crate::errors::{Result, code, or, refused};
use crate::memory::{Domain, MemoryRegion};

/// What belongs to a window.
pub(crate) struct Window {
    adapter: Arc<Adapter>,
    key: WindowKey,
    _domain_use: Arc<()>,
}

impl Kind for Window {
    type C = ibv_mw;
}

/// `alloc_mw` of a context.
pub(crate) extern "C" fn alloc_mw(domain: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    let domain = Handle::<Domain>::at(domain);
    let made: Result<Handle<Window>> = (|| {
        let own = domain.get().ok_or(Errno::EINVAL)?;
        if kind != IBV_MW_TYPE_1 {
            return Err(Errno::EOPNOTSUPP);
        }
        let key = own.adapter.device.create_window(own.key).map_err(refused)?;
        let mut c: ibv_mw = zeroed();
        c.context = domain.read().ok_or(Errno::EINVAL)?.context;
        c.pd = domain.pointer();
        c.type_ = kind;
        let made = Window {
            adapter: Arc::clone(&own.adapter),
            key,
            _domain_use: Arc::clone(&own.users),
        };
        Ok(Handle::new(c, made))
    })();
    or(made, Handle::NULL).pointer()
}

/// `dealloc_mw` of a context.
pub(crate) extern "C" fn dealloc_mw(window: *mut ibv_mw) -> c_int {
    let window = Handle::<Window>::at(window);
    code(window.end().ok_or(Errno::EINVAL).map(|own| {
        own.adapter.device.destroy_window(own.key);
    }))
}

/// `bind_mw` of a context.
pub(crate) extern "C" fn bind_mw(
    pair: *mut ibv_qp,
    window: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    let (pair, window) = (Handle::<Pair>::at(pair), Handle::<Window>::at(window));
    let bound = (|| {
        let invalid = PostError::Invalid;
        let own = pair.trusted().ok_or(PostError::State)?;
        let wanted = In::at(bind.cast_const()).get().ok_or(invalid)?;
        let info = wanted.bind_info;
        let region = match info.length {
            0 => 0,
            _ => {
                let region = Handle::<MemoryRegion>::at(info.mr);
                let region = region.get().and_then(MemoryRegion::key_for_windows);
                region.ok_or(invalid)?
            }
        };
        let has = |flag| info.mw_access_flags & flag != 0;
        // The right of this side is the region's.
        let known = IBV_ACCESS_LOCAL_WRITE
            | IBV_ACCESS_REMOTE_READ
            | IBV_ACCESS_REMOTE_WRITE
            | IBV_ACCESS_REMOTE_ATOMIC;
        if info.mw_access_flags & !known != 0 {
            return Err(invalid);
        }
        let bind = Bind {
            token: wanted.wr_id,
            window: window.trusted().ok_or(invalid)?.key,
            region,
            address: info.addr,
            length: info.length,
            rights: RemoteRights {
                read: has(IBV_ACCESS_REMOTE_READ),
                write: has(IBV_ACCESS_REMOTE_WRITE),
                atomic: has(IBV_ACCESS_REMOTE_ATOMIC),
            },
            silent: !own.signals_all && wanted.send_flags & IBV_SEND_SIGNALED == 0,
            fence: wanted.send_flags & IBV_SEND_FENCE != 0,
        };
        let posted = own.adapter.device.post(own.qpn, |posts| posts.bind(&bind));
        posted.and_then(|posted| posted)
    })();
    match bound {
        Ok(key) => {
            window.change(|c| c.rkey = key);
            0
        }
        Err(error) => number(error),
    }
}
