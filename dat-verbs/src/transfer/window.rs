//! Memory windows of type 1.

use core::ffi::c_int;
use std::sync::Arc;

use backend_roce::{RemoteRights, WindowBind};
use dat_core::backend::WindowKey;
use nix::errno::Errno;

use super::pair::Pair;
use super::posts::{is_silent, number};
use crate::adapter::Adapter;
use crate::boundary::layout::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
    IBV_MW_TYPE_1, IBV_SEND_FENCE, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_pd, ibv_qp,
};
use crate::boundary::{Handle, In, Kind, zeroed};
use crate::errors::{Result, code, or, refused};
use crate::memory::{Domain, MemoryRegion};

/// Rights that a window can grant; that of this side is the region's.
const RIGHTS: u32 = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;

/// What belongs to a memory window.
pub(crate) struct Window {
    adapter: Arc<Adapter>,
    key: WindowKey,
    _domain_use: Arc<()>,
}

impl Kind for Window {
    type C = ibv_mw;
}

fn create(domain: Handle<Domain>, kind: ibv_mw_type) -> Result<Handle<Window>> {
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
}

/// `alloc_mw` of a context.
pub(crate) extern "C" fn alloc_mw(domain: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    or(create(Handle::at(domain), kind), Handle::NULL).pointer()
}

/// `dealloc_mw` of a context.
pub(crate) extern "C" fn dealloc_mw(window: *mut ibv_mw) -> c_int {
    let own = Handle::<Window>::at(window).end().ok_or(Errno::EINVAL);
    code(own.map(|own| own.adapter.device.destroy_window(own.key)))
}

/// `bind_mw` of a context: posts a bind, and gives the window its next key.
pub(crate) extern "C" fn bind_mw(
    pair: *mut ibv_qp,
    window: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    code((|| {
        let pair = Handle::<Pair>::at(pair);
        let own = pair.get().ok_or(Errno::EINVAL)?;
        let window = Handle::<Window>::at(window);
        let key = window.get().ok_or(Errno::EINVAL)?.key;
        let bind = In::at(bind.cast_const());
        let bind = bind.look().ok_or(Errno::EINVAL)?;
        let info = &bind.bind_info;
        let rights = info.mw_access_flags;
        let region = Handle::<MemoryRegion>::at(info.mr);
        // A window of no bytes is of no region.
        let region = match info.length {
            0 => 0,
            _ => {
                let may_bind = region
                    .get()
                    .is_some_and(|own| own.allows(IBV_ACCESS_MW_BIND));
                let c = region.read().filter(|_| may_bind);
                c.ok_or(Errno::EINVAL)?.lkey
            }
        };
        if rights & !RIGHTS != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let request = WindowBind {
            token: bind.wr_id,
            window: key,
            region,
            address: info.addr,
            length: info.length,
            rights: RemoteRights {
                read: rights & IBV_ACCESS_REMOTE_READ != 0,
                write: rights & IBV_ACCESS_REMOTE_WRITE != 0,
                atomic: false,
            },
            silent: is_silent(own, bind.send_flags),
            fence: bind.send_flags & IBV_SEND_FENCE != 0,
        };
        let posted = own
            .adapter
            .device
            .post(own.qpn, |posts| posts.bind(&request));
        let key = posted.and_then(|posted| posted);
        let key = key.map_err(|error| Errno::from_raw(number(error)))?;
        window.change(|c| c.rkey = key);
        Ok(())
    })())
}
