//! The table that a registry calls a provider through.

use std::ffi::CString;
use std::ptr;

use dat_devices::{ByAddress, DeviceAddress};

use super::edition::V2;
use super::unsupported::{model_not_supported, not_implemented};
use super::{extension, forms};
use crate::adapter::Openable;
use crate::boundary::{FUNCTIONS, FunctionTable};
use crate::calls::{cno, connect, context, cr, ep, evd, ia, lmr, post, psp, pz, rmr, rsp, srq};

/// Casts functions of any signature to addresses, in the order of `DAT_PROVIDER`.
///
/// `B` is the backend.
macro_rules! functions {
    ($($slot:ident = $function:expr,)*) => {
        /// Names of the slots in the headers, without `_func`.
        #[cfg(test)]
        pub(crate) const NAMES: [&str; FUNCTIONS] = [$(stringify!($slot)),*];

        fn functions<B: Openable>(is_thread_safe: bool) -> [*const (); FUNCTIONS] {
            let ia_open = if is_thread_safe {
                forms::open_thread_safe
            } else {
                forms::open_for_one_thread
            };
            let mut functions = [$($function as *const ()),*];
            if let Some(first) = functions.first_mut() {
                *first = ia_open as *const ();
            }
            functions
        }
    };
}

functions! {
    ia_open = forms::open_for_one_thread,
    ia_query = ia::query::<V2>,
    ia_close = ia::close::<V2>,
    set_consumer_context = context::set::<V2>,
    get_consumer_context = context::get::<V2>,
    get_handle_type = context::kind::<V2>,
    cno_create = cno::create::<V2>,
    cno_modify_agent = cno::modify_agent::<V2>,
    cno_query = cno::query::<V2>,
    cno_free = cno::free::<V2>,
    cno_wait = cno::wait::<V2>,
    cr_query = cr::query::<V2>,
    cr_accept = cr::accept::<V2>,
    cr_reject = forms::cr_reject,
    cr_handoff = cr::handoff::<V2>,
    evd_create = evd::create::<V2>,
    evd_query = evd::query::<V2>,
    evd_modify_cno = evd::modify_cno::<V2>,
    evd_enable = evd::enable::<V2>,
    evd_disable = evd::disable::<V2>,
    evd_wait = evd::wait::<V2>,
    evd_resize = evd::resize::<V2>,
    evd_post_se = evd::post_software_event::<V2>,
    evd_dequeue = evd::dequeue::<V2, B>,
    evd_free = evd::free::<V2>,
    ep_create = ep::create::<V2>,
    ep_query = ep::query::<V2>,
    ep_modify = ep::modify::<V2>,
    ep_connect = connect::connect::<V2>,
    ep_dup_connect = connect::duplicate::<V2>,
    ep_disconnect = connect::disconnect::<V2>,
    ep_post_send = post::send::<V2, B>,
    ep_post_recv = post::receive::<V2, B>,
    ep_post_rdma_read = post::rdma_read::<V2, B>,
    ep_post_rdma_write = post::rdma_write::<V2, B>,
    ep_get_status = ep::get_status::<V2>,
    ep_free = ep::free::<V2>,
    lmr_create = forms::lmr_create,
    lmr_query = lmr::query::<V2>,
    lmr_free = lmr::free::<V2>,
    rmr_create = rmr::create::<V2>,
    rmr_query = rmr::query::<V2>,
    rmr_bind = forms::rmr_bind,
    rmr_free = rmr::free::<V2>,
    psp_create = psp::create::<V2>,
    psp_query = psp::query::<V2>,
    psp_free = psp::free::<V2>,
    rsp_create = rsp::create::<V2>,
    rsp_query = rsp::query::<V2>,
    rsp_free = rsp::free::<V2>,
    pz_create = pz::create::<V2>,
    pz_query = pz::query::<V2>,
    pz_free = pz::free::<V2>,
    psp_create_any = psp::create_any::<V2>,
    ep_reset = ep::reset::<V2>,
    evd_set_unwaitable = evd::set_unwaitable::<V2>,
    evd_clear_unwaitable = evd::clear_unwaitable::<V2>,
    lmr_sync_rdma_read = post::synchronize_read::<V2>,
    lmr_sync_rdma_write = post::synchronize_write::<V2>,
    ep_create_with_srq = ep::create_with_srq::<V2>,
    ep_recv_query = ep::recv_query::<V2>,
    ep_set_watermark = ep::set_watermark::<V2>,
    srq_create = srq::create::<V2>,
    srq_free = srq::free::<V2>,
    srq_post_recv = post::receive_shared::<V2, B>,
    srq_query = srq::query::<V2>,
    srq_resize = srq::resize::<V2>,
    srq_set_lw = srq::set_low_watermark::<V2>,
    csp_create = model_not_supported,
    csp_query = model_not_supported,
    csp_free = model_not_supported,
    ep_common_connect = model_not_supported,
    rmr_create_for_ep = model_not_supported,
    ep_post_send_with_invalidate = model_not_supported,
    ep_post_rdma_read_to_rmr = model_not_supported,
    cno_fd_create = not_implemented,
    cno_trigger = not_implemented,
    ia_ha_related = forms::ha_related,
    handle_extendedop = extension::operation,
}

/// Returns the functions of the backend with a scheme; those of the last one serve all others.
macro_rules! by_scheme {
    ({ $scheme:expr, $safe:expr } $last:ident = $type:ty,) => {
        functions::<$type>($safe)
    };
    ({ $scheme:expr, $safe:expr } $first:ident = $type:ty, $($others:tt)+) => {
        match $scheme {
            <$type as ByAddress>::SCHEME => functions::<$type>($safe),
            _ => by_scheme! { { $scheme, $safe } $($others)+ },
        }
    };
}

/// Makes the table of a provider; it stays as long as the process, because handles lead to it.
///
/// Its posts and dequeues are those of the device's backend. They take objects of another one too,
/// but slowly.
pub(super) fn make(
    device_name: CString,
    is_thread_safe: bool,
    device: &DeviceAddress,
) -> &'static FunctionTable {
    Box::leak(Box::new(FunctionTable {
        device_name: device_name.into_raw(),
        extension: ptr::null_mut(),
        functions: dat_devices::backends! { [by_scheme] { device.scheme(), is_thread_safe } },
    }))
}
