//! Roles of the handles in arguments.

use dat_core::Subtype;
use dat_core::flags::HandleKind;

/// The role of a handle in a call.
pub(crate) trait Role {
    /// Kind of the object.
    const KIND: HandleKind;
    /// Subtype of the error for a wrong handle.
    const SUBTYPE: Subtype;
    /// Subtype of the error for a null handle.
    const NONE: Subtype = Self::SUBTYPE;
}

macro_rules! roles {
    ($($(#[$doc:meta])* $name:ident: $kind:ident, $subtype:ident $(, $none:ident)?;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $name {}

        impl Role for $name {
            const KIND: HandleKind = HandleKind::$kind;
            const SUBTYPE: Subtype = Subtype::$subtype;
            $(const NONE: Subtype = Subtype::$none;)?
        }
    )*};
}

roles! {
    /// An endpoint.
    Ep: Ep, InvalidHandleEp;
    /// An event dispatcher.
    Evd: Evd, InvalidHandle1, InvalidHandleEvdRequest;
    /// A dispatcher for connection requests.
    ArrivalEvd: Evd, InvalidHandleEvdCr;
    /// A dispatcher for completions of requests.
    RequestEvd: Evd, InvalidHandleEvdRequest;
    /// A dispatcher for completions of receives.
    ReceiveEvd: Evd, InvalidHandleEvdRecv;
    /// A dispatcher for connection events.
    ConnectionEvd: Evd, InvalidHandleEvdConn;
    /// A local region.
    Lmr: Lmr, InvalidHandleLmr;
    /// A remote region.
    Rmr: Rmr, InvalidHandleRmr;
    /// A protection zone.
    Pz: Pz, InvalidHandlePz;
    /// A public service point.
    Psp: Psp, InvalidHandlePsp;
    /// A reserved service point.
    Rsp: Rsp, InvalidHandleRsp;
    /// A connection request.
    Cr: Cr, InvalidHandleCr;
    /// A notification object.
    Cno: Cno, InvalidHandleCno;
    /// A shared receive queue.
    Srq: Srq, InvalidHandleSrq;
}
