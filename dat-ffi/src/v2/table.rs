//! The table that a registry calls a provider through.

use std::ffi::CString;
use std::ptr;

use super::unsupported::{model_not_supported, not_implemented};
use super::{cno, connect, context, cr, ep, evd, ia, lmr, post, psp, pz, rmr, rsp, srq};
use crate::boundary::{FUNCTIONS, Table};

/// Casts functions of whatever signature to addresses, in the order of `DAT_PROVIDER`.
macro_rules! functions {
    ($($slot:ident = $function:expr,)*) => {
        /// The names of the slots, as the headers have them without `_func`.
        #[cfg(test)]
        pub(crate) const NAMES: [&str; FUNCTIONS] = [$(stringify!($slot)),*];

        fn functions(is_thread_safe: bool) -> [*const (); FUNCTIONS] {
            let ia_open = if is_thread_safe {
                ia::open_thread_safe
            } else {
                ia::open_for_one_thread
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
    ia_open = ia::open_for_one_thread,
    ia_query = ia::query,
    ia_close = ia::close,
    set_consumer_context = context::set,
    get_consumer_context = context::get,
    get_handle_type = context::kind,
    cno_create = cno::create,
    cno_modify_agent = cno::modify_agent,
    cno_query = cno::query,
    cno_free = cno::free,
    cno_wait = cno::wait,
    cr_query = cr::query,
    cr_accept = cr::accept,
    cr_reject = cr::reject,
    cr_handoff = cr::handoff,
    evd_create = evd::create,
    evd_query = evd::query,
    evd_modify_cno = evd::modify_cno,
    evd_enable = evd::enable,
    evd_disable = evd::disable,
    evd_wait = evd::wait,
    evd_resize = evd::resize,
    evd_post_se = evd::post_software_event,
    evd_dequeue = evd::dequeue,
    evd_free = evd::free,
    ep_create = ep::create,
    ep_query = ep::query,
    ep_modify = ep::modify,
    ep_connect = connect::connect,
    ep_dup_connect = connect::duplicate,
    ep_disconnect = connect::disconnect,
    ep_post_send = post::send,
    ep_post_recv = post::receive,
    ep_post_rdma_read = post::rdma_read,
    ep_post_rdma_write = post::rdma_write,
    ep_get_status = ep::get_status,
    ep_free = ep::free,
    lmr_create = lmr::create,
    lmr_query = lmr::query,
    lmr_free = lmr::free,
    rmr_create = rmr::create,
    rmr_query = rmr::query,
    rmr_bind = rmr::bind,
    rmr_free = rmr::free,
    psp_create = psp::create,
    psp_query = psp::query,
    psp_free = psp::free,
    rsp_create = rsp::create,
    rsp_query = rsp::query,
    rsp_free = rsp::free,
    pz_create = pz::create,
    pz_query = pz::query,
    pz_free = pz::free,
    psp_create_any = psp::create_any,
    ep_reset = ep::reset,
    evd_set_unwaitable = evd::set_unwaitable,
    evd_clear_unwaitable = evd::clear_unwaitable,
    lmr_sync_rdma_read = post::synchronize_read,
    lmr_sync_rdma_write = post::synchronize_write,
    ep_create_with_srq = ep::create_with_srq,
    ep_recv_query = ep::recv_query,
    ep_set_watermark = ep::set_watermark,
    srq_create = srq::create,
    srq_free = srq::free,
    srq_post_recv = post::receive_shared,
    srq_query = srq::query,
    srq_resize = srq::resize,
    srq_set_lw = srq::set_low_watermark,
    csp_create = model_not_supported,
    csp_query = model_not_supported,
    csp_free = model_not_supported,
    ep_common_connect = model_not_supported,
    rmr_create_for_ep = model_not_supported,
    ep_post_send_with_invalidate = model_not_supported,
    ep_post_rdma_read_to_rmr = model_not_supported,
    cno_fd_create = not_implemented,
    cno_trigger = not_implemented,
    ia_ha_related = ia::ha_related,
    handle_extendedop = not_implemented,
}

/// Makes the table of a provider; it stays as long as the process, because handles lead to it.
pub(super) fn make(device_name: CString, is_thread_safe: bool) -> &'static Table {
    Box::leak(Box::new(Table {
        device_name: device_name.into_raw(),
        extension: ptr::null_mut(),
        functions: functions(is_thread_safe),
    }))
}
