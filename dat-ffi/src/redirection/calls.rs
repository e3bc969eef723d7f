//! The calls that are passed on to the provider of their first handle.
//!
//! The files of the folder `manual` document each call, and the manual pages are made of them too.

use dat_core::{Abi, Error, Result};

use super::arguments::{
    Any, Argument, ArrivalEvd, Callee, Cno, ConnectionEvd, Cr, EndpointParam, Ep, Evd, EventOut,
    First, Ia, Lmr, Made, Maybe, Object, Psp, Pz, ReceiveEvd, RequestEvd, RequestOut, Rmr, Rsp,
    Srq, check_description,
};
use crate::boundary::{Agent, Out, RegionDescription, StaticText, uncancelled};
use crate::calls::text;
use crate::v2::V2;

/// `DAT_RETURN`.
pub type Code = u32;

/// An address that is passed on unchanged.
type Address = usize;

#[cold]
pub(super) fn code(error: Error) -> Code {
    error.code(Abi::V2_0)
}

/// Returns true for slots whose calls handle cancellation in the provider.
///
/// These are waits, dequeues, posts, binds and synchronising calls.
const fn is_of_data(slot: usize) -> bool {
    matches!(slot, 10 | 20 | 23 | 31..=34 | 42 | 57 | 58 | 64)
}

/// Calls whose arguments are passed on one by one: handles are checked, adapters converted.
///
/// `gone` marks calls that end their first object. A thread that is cancelled in a wait unwinds
/// through these functions, which have nothing to drop.
macro_rules! redirected {
    ($($name:ident = $slot:literal ($first:ident: $object:ty $(, $argument:ident: $type:ty)*) $($gone:ident)?;)*) => {$(
        #[doc = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/manual/", stringify!($name), ".md"))]
        pub extern "C-unwind" fn $name($first: $object $(, $argument: $type)*) -> Code {
            let call = || -> Result<Code> {
                let (callee, own) = $first.callee()?;
                let arguments = (own, $($argument.passed(callee)?,)*);
                let code = callee.provider.call($slot, arguments).ok_or(Error::not_implemented())?;
                if code == 0 {
                    $($argument.succeeded(callee);)*
                    $($first.$gone(callee);)?
                }
                Ok(code)
            };
            let called = if is_of_data($slot) { call() } else { uncancelled(call) };
            called.unwrap_or_else(code)
        }
    )*};
}

redirected! {
    dat_ia_query = 1(ia: Ia, evd: Address, ia_mask: u64, attributes: Address, provider_mask: u64, provider: Address);
    dat_set_consumer_context = 3(handle: Any, context: u64);
    dat_get_consumer_context = 4(handle: Any, context: Address);
    dat_get_handle_type = 5(handle: Any, kind: Address);
    dat_cno_create = 6(ia: Ia, agent: Agent, cno: Made<Cno>);
    dat_cno_modify_agent = 7(cno: Object<Cno>, agent: Agent);
    dat_cno_query = 8(cno: Object<Cno>, mask: u32, param: Address);
    dat_cno_free = 9(cno: Object<Cno>) gone;
    dat_cno_wait = 10(cno: Object<Cno>, timeout: u32, evd: Address);
    dat_cr_accept = 12(cr: Object<Cr>, ep: Maybe<Ep>, size: i32, data: Address) gone;
    dat_cr_reject = 13(cr: Object<Cr>, size: i32, data: Address) gone;
    dat_cr_handoff = 14(cr: Object<Cr>, qualifier: u64) gone;
    dat_evd_create = 15(ia: Ia, length: i32, cno: Maybe<Cno>, flags: u32, evd: Made<Evd>);
    dat_evd_query = 16(evd: Object<Evd>, mask: u32, param: Address);
    dat_evd_modify_cno = 17(evd: Object<Evd>, cno: Maybe<Cno>);
    dat_evd_enable = 18(evd: Object<Evd>);
    dat_evd_disable = 19(evd: Object<Evd>);
    dat_evd_wait = 20(evd: Object<Evd>, timeout: u32, threshold: i32, event: EventOut, more: Address);
    dat_evd_resize = 21(evd: Object<Evd>, length: i32);
    dat_evd_post_se = 22(evd: Object<Evd>, event: Address);
    dat_evd_dequeue = 23(evd: Object<Evd>, event: EventOut);
    dat_evd_free = 24(evd: Object<Evd>) gone;
    dat_ep_create = 25(
        ia: Ia, pz: Maybe<Pz>, receives: Maybe<ReceiveEvd>, requests: Maybe<RequestEvd>, connections: Maybe<ConnectionEvd>,
        attributes: Address, ep: Made<Ep>
    );
    dat_ep_query = 26(ep: Object<Ep>, mask: u64, param: Address);
    dat_ep_connect = 28(
        ep: Object<Ep>, address: Address, qualifier: u64, timeout: u32, size: i32, data: Address, quality: u32, flags: u32
    );
    dat_ep_dup_connect = 29(
        ep: Object<Ep>, other: Object<Ep>, timeout: u32, size: i32, data: Address, quality: u32
    );
    dat_ep_disconnect = 30(ep: Object<Ep>, flags: u32);
    dat_ep_post_send = 31(ep: Object<Ep>, count: i32, segments: Address, cookie: u64, flags: u32);
    dat_ep_post_recv = 32(ep: Object<Ep>, count: i32, segments: Address, cookie: u64, flags: u32);
    dat_ep_post_rdma_read = 33(ep: Object<Ep>, count: i32, segments: Address, cookie: u64, remote: Address, flags: u32);
    dat_ep_post_rdma_write = 34(ep: Object<Ep>, count: i32, segments: Address, cookie: u64, remote: Address, flags: u32);
    dat_ep_get_status = 35(ep: Object<Ep>, state: Address, receives: Address, requests: Address);
    dat_ep_free = 36(ep: Object<Ep>) gone;
    dat_lmr_query = 38(lmr: Object<Lmr>, mask: u32, param: Address);
    dat_lmr_free = 39(lmr: Object<Lmr>) gone;
    dat_rmr_create = 40(pz: Object<Pz>, rmr: Made<Rmr>);
    dat_rmr_query = 41(rmr: Object<Rmr>, mask: u32, param: Address);
    dat_rmr_bind = 42(
        rmr: Object<Rmr>, lmr: Maybe<Lmr>, segment: Address, privileges: u32, kind: u32, ep: Object<Ep>, cookie: u64, flags: u32,
        context: Address
    );
    dat_rmr_free = 43(rmr: Object<Rmr>) gone;
    dat_psp_create = 44(ia: Ia, qualifier: u64, evd: Object<ArrivalEvd>, flags: u32, psp: Made<Psp>);
    dat_psp_query = 45(psp: Object<Psp>, mask: u32, param: Address);
    dat_psp_free = 46(psp: Object<Psp>) gone;
    dat_rsp_create = 47(ia: Ia, qualifier: u64, ep: Maybe<Ep>, evd: Object<ArrivalEvd>, rsp: Made<Rsp>);
    dat_rsp_query = 48(rsp: Object<Rsp>, mask: u32, param: Address);
    dat_rsp_free = 49(rsp: Object<Rsp>) gone;
    dat_pz_create = 50(ia: Ia, pz: Made<Pz>);
    dat_pz_query = 51(pz: Object<Pz>, mask: u32, param: Address);
    dat_pz_free = 52(pz: Object<Pz>) gone;
    dat_psp_create_any = 53(ia: Ia, qualifier: Address, evd: Object<ArrivalEvd>, flags: u32, psp: Made<Psp>);
    dat_ep_reset = 54(ep: Object<Ep>);
    dat_evd_set_unwaitable = 55(evd: Object<Evd>);
    dat_evd_clear_unwaitable = 56(evd: Object<Evd>);
    dat_lmr_sync_rdma_read = 57(ia: Ia, segments: Address, count: u64);
    dat_lmr_sync_rdma_write = 58(ia: Ia, segments: Address, count: u64);
    dat_ep_create_with_srq = 59(
        ia: Ia, pz: Maybe<Pz>, receives: Maybe<ReceiveEvd>, requests: Maybe<RequestEvd>, connections: Maybe<ConnectionEvd>,
        srq: Object<Srq>, attributes: Address, ep: Made<Ep>
    );
    dat_ep_recv_query = 60(ep: Object<Ep>, buffers: Address, span: Address);
    dat_ep_set_watermark = 61(ep: Object<Ep>, soft: i32, hard: i32);
    dat_srq_create = 62(ia: Ia, pz: Object<Pz>, attributes: Address, srq: Made<Srq>);
    dat_srq_free = 63(srq: Object<Srq>) gone;
    dat_srq_post_recv = 64(srq: Object<Srq>, count: i32, segments: Address, cookie: u64);
    dat_srq_query = 65(srq: Object<Srq>, mask: u32, param: Address);
    dat_srq_resize = 66(srq: Object<Srq>, length: i32);
    dat_srq_set_lw = 67(srq: Object<Srq>, low_watermark: i32);
}

#[doc = include_str!("../../manual/dat_cr_query.md")]
pub extern "C-unwind" fn dat_cr_query(cr: Object<Cr>, mask: u32, param: RequestOut) -> Code {
    let called: Result<Code> = uncancelled(|| {
        let (callee, own) = cr.callee()?;
        let arguments = (own, mask, param.passed(callee)?);
        let called = callee.provider.call(11, arguments);
        let code = called.ok_or(Error::not_implemented())?;
        if code == 0 {
            param.note_endpoint(mask, callee);
        }
        Ok(code)
    });
    called.unwrap_or_else(code)
}

#[doc = include_str!("../../manual/dat_ep_modify.md")]
pub extern "C-unwind" fn dat_ep_modify(ep: Object<Ep>, mask: u64, param: EndpointParam) -> Code {
    let called: Result<Code> = uncancelled(|| {
        let (callee, own) = ep.callee()?;
        let param = param.passed(mask, callee)?;
        let called = callee.provider.call(27, (own, mask, param));
        called.ok_or(Error::not_implemented())
    });
    called.unwrap_or_else(code)
}

#[doc = include_str!("../../manual/dat_lmr_create.md")]
pub extern "C-unwind" fn dat_lmr_create(
    ia: Ia,
    memory_type: u32,
    description: RegionDescription,
    length: u64,
    pz: Object<Pz>,
    privileges: u32,
    address_type: u32,
    lmr: Made<Lmr>,
    lmr_context: Address,
    rmr_context: Address,
    registered_size: Address,
    registered_address: Address,
) -> Code {
    let called: Result<Code> = uncancelled(|| {
        let (callee, own): (Callee, _) = ia.callee()?;
        check_description(memory_type, description, callee)?;
        let arguments = (
            own,
            memory_type,
            description,
            length,
            pz.passed(callee)?,
            privileges,
            address_type,
            lmr.passed(callee)?,
            lmr_context,
            rmr_context,
            registered_size,
            registered_address,
        );
        let called = callee.provider.call(37, arguments);
        let code = called.ok_or(Error::not_implemented())?;
        if code == 0 {
            lmr.succeeded(callee);
        }
        Ok(code)
    });
    called.unwrap_or_else(code)
}

#[doc = include_str!("../../manual/dat_strerror.md")]
pub extern "C" fn dat_strerror(value: u32, major: Out<StaticText>, minor: Out<StaticText>) -> Code {
    text::named::<V2>(value, major, minor)
}
