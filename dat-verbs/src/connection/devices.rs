//! Devices as librdmacm lists them: the context that all identifiers share.

use core::ffi::c_int;

use crate::boundary::layout::ibv_context;
use crate::boundary::{Handle, Out, free_list, list_of};
use crate::context::Context;
use crate::device::device;
use crate::errors::{Result, or};
use crate::locks::OfProcess;
use crate::memory::{Domain, allocate};
use crate::opening::open;

/// The context of all identifiers, and the domain that they have unless the program names one.
#[derive(Clone, Copy)]
pub(super) struct Shared {
    pub(super) context: Handle<Context>,
    pub(super) domain: Handle<Domain>,
}

/// Returns the context and the domain of all identifiers, which the first call makes.
pub(super) fn shared() -> Result<Shared> {
    static SHARED: OfProcess<Option<Shared>> = OfProcess::new();
    // A program may have ended them, as it may any others.
    let is_usable = |shared: &Shared| shared.context.get().is_ok() && shared.domain.get().is_ok();
    SHARED.with(|shared| {
        if let Some(shared) = shared.filter(is_usable) {
            return Ok(shared);
        }
        let context = open(device())?;
        let domain = allocate(context)?;
        Ok(*shared.insert(Shared { context, domain }))
    })
}

pub(crate) extern "C" fn rdma_get_devices(count: Out<c_int>) -> *mut *mut ibv_context {
    or(core::ptr::null_mut(), || {
        let context = shared()?.context;
        count.set(1);
        Ok(list_of(&[context.pointer::<ibv_context>()]))
    })
}

pub(crate) extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    free_list(list);
}
