//! Devices as librdmacm lists them: the context that all identifiers share.

use core::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

use crate::adapter::adapter;
use crate::boundary::layout::ibv_context;
use crate::boundary::{Handle, Out, free_list, list_of};
use crate::context::Context;
use crate::device::device;
use crate::errors::{Result, or};
use crate::opening::open;

/// Returns the context of all identifiers, which the first call opens.
pub(super) fn shared_context() -> Result<Handle<Context>> {
    static SHARED: Mutex<Option<Handle<Context>>> = Mutex::new(None);
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let adapter = adapter()?;
    // A program may have closed it, as it may any other. That of a parent process has another
    // adapter.
    let is_usable = |context: &Handle<Context>| {
        let own = context.get();
        own.is_some_and(|own| Arc::ptr_eq(&own.adapter, &adapter))
    };
    if let Some(context) = shared.filter(is_usable) {
        return Ok(context);
    }
    let context = open(device())?;
    *shared = Some(context);
    Ok(context)
}

pub(crate) extern "C" fn rdma_get_devices(count: Out<c_int>) -> *mut *mut ibv_context {
    let list = shared_context().map(|context| {
        count.set(1);
        list_of(&[context.pointer::<ibv_context>()])
    });
    or(list, core::ptr::null_mut())
}

pub(crate) extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    free_list(list);
}
