//! The arguments of calls: the handles among them, and their kinds.

use dat_core::flags::HandleKind;
use dat_core::{Error, Result, Subtype};

use super::adapters::{self, Adapter, KNOWN, SlotIndex, provider_at};
use crate::boundary::{
    Agent, CrParam, EpParam, Event, In, Out, Passed, Provider, RegionDescription,
};
use crate::handles::CHandle;
use crate::v2::V2;

/// The role of a handle in a call.
pub(super) trait Role {
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

/// The provider that a call goes to, and the slot of the adapter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Callee {
    pub(super) slot: SlotIndex,
    pub(super) provider: Provider,
}

/// The first argument of a call, which determines the provider.
pub(super) trait First: Copy {
    /// Returns the provider, and the provider's handle of the object.
    ///
    /// # Errors
    /// INVALID_HANDLE: the handle is none of this kind, or is gone.
    fn callee(self) -> Result<(Callee, CHandle)>;

    /// Notes that the object is gone.
    fn gone(self, _callee: Callee) {}
}

/// The handle of an object.
#[derive(Debug)]
#[repr(transparent)]
pub struct Object<R>(CHandle, std::marker::PhantomData<R>);

impl<R> Clone for Object<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Object<R> {}

impl<R: Role> First for Object<R> {
    #[inline]
    fn callee(self) -> Result<(Callee, CHandle)> {
        let found = KNOWN.find(self.0, R::KIND);
        let callee = found.and_then(|slot| {
            let provider = provider_at(slot)?;
            Some(Callee { slot, provider })
        });
        match callee {
            Some(callee) => Ok((callee, self.0)),
            None => Err(refused::<R>(self.0)),
        }
    }

    fn gone(self, callee: Callee) {
        KNOWN.remove(self.0, R::KIND, callee.slot);
    }
}

#[cold]
fn refused<R: Role>(handle: CHandle) -> Error {
    Error::invalid_handle(if handle.is_null() {
        R::NONE
    } else {
        R::SUBTYPE
    })
}

/// The number of an adapter.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Ia(CHandle);

impl Ia {
    /// Returns the adapter.
    ///
    /// # Errors
    /// INVALID_HANDLE (IA): no open adapter has this number.
    pub(super) fn adapter(self) -> Result<Adapter> {
        adapters::find(self.0).ok_or(Error::invalid_handle(Subtype::InvalidHandleIa))
    }

    pub(super) const fn number(self) -> CHandle {
        self.0
    }
}

impl First for Ia {
    fn callee(self) -> Result<(Callee, CHandle)> {
        let Adapter {
            slot,
            provider,
            own,
        } = self.adapter()?;
        Ok((Callee { slot, provider }, own))
    }
}

/// A handle of any kind.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Any(CHandle);

impl First for Any {
    fn callee(self) -> Result<(Callee, CHandle)> {
        let object = KNOWN.find_any(self.0).and_then(|slot| {
            let provider = provider_at(slot)?;
            Some((Callee { slot, provider }, self.0))
        });
        let adapter = || Ia(self.0).callee();
        object.map_or_else(adapter, Ok).map_err(|_| {
            // The call does not say which kind the handle should have.
            Error::invalid_handle(Subtype::InvalidHandle1)
        })
    }
}

/// Any argument but the first.
pub(super) trait Argument: Copy {
    /// Type of the argument for the provider.
    type Passed: Passed;

    /// Returns the argument for the provider.
    ///
    /// # Errors
    /// INVALID_HANDLE: the argument is or has a handle that the provider has not returned, or that
    /// is gone.
    fn passed(self, callee: Callee) -> Result<Self::Passed>;

    /// Notes the results of a call that succeeded.
    fn succeeded(self, _callee: Callee) {}
}

macro_rules! plain_arguments {
    ($($type:ty),*) => {$(
        impl Argument for $type {
            type Passed = Self;

            #[inline]
            fn passed(self, _callee: Callee) -> Result<Self> {
                Ok(self)
            }
        }
    )*};
}

plain_arguments! { i32, u32, u64, usize, Agent }

/// Checks that the provider has returned a handle for this role.
fn check<R: Role>(handle: CHandle, callee: Callee) -> Result<CHandle> {
    let slot = KNOWN.find(handle, R::KIND);
    match slot.and_then(provider_at) {
        Some(provider) if provider == callee.provider => Ok(handle),
        _ => Err(Error::invalid_handle(R::SUBTYPE)),
    }
}

impl<R: Role> Argument for Object<R> {
    type Passed = CHandle;

    fn passed(self, callee: Callee) -> Result<CHandle> {
        check::<R>(self.0, callee)
    }
}

/// The handle of an object, or null; the provider decides whether null is allowed.
#[derive(Debug)]
#[repr(transparent)]
pub struct Maybe<R>(CHandle, std::marker::PhantomData<R>);

impl<R> Clone for Maybe<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Maybe<R> {}

impl<R: Role> Argument for Maybe<R> {
    type Passed = CHandle;

    fn passed(self, callee: Callee) -> Result<CHandle> {
        match self.0.is_null() {
            true => Ok(self.0),
            false => check::<R>(self.0, callee),
        }
    }
}

/// The output for the handle of a new object.
#[derive(Debug)]
#[repr(transparent)]
pub struct Made<R>(Out<CHandle>, std::marker::PhantomData<R>);

impl<R> Clone for Made<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Made<R> {}

impl<R: Role> Argument for Made<R> {
    type Passed = Out<CHandle>;

    fn passed(self, _callee: Callee) -> Result<Out<CHandle>> {
        Ok(self.0)
    }

    fn succeeded(self, callee: Callee) {
        if let Some(made) = self.0.get() {
            // A handle that cannot be noted is refused later.
            let _noted: Result<()> = KNOWN.add(made, R::KIND, callee.slot);
        }
    }
}

/// `DAT_CONNECTION_REQUEST_EVENT`.
const ARRIVAL: u32 = 0x2001;

/// The output for an event, which may carry a connection request.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct EventOut(Out<Event<V2>>);

impl Argument for EventOut {
    type Passed = Out<Event<V2>>;

    #[inline]
    fn passed(self, _callee: Callee) -> Result<Out<Event<V2>>> {
        Ok(self.0)
    }

    #[inline]
    fn succeeded(self, callee: Callee) {
        if self.0.event_number() == Some(ARRIVAL)
            && let Some(event) = self.0.get()
        {
            // Each arrival is a new request, even if the handle of an earlier one is not removed
            // yet. A handle that cannot be noted is refused later.
            let _noted: Result<()> = KNOWN.add(event.arrived(), HandleKind::Cr, callee.slot);
        }
    }
}

/// The output for the parameters of a connection request.
///
/// Providers that make endpoints themselves store the endpoint there.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct RequestOut(Out<CrParam>);

impl Argument for RequestOut {
    type Passed = Out<CrParam>;

    fn passed(self, _callee: Callee) -> Result<Out<CrParam>> {
        Ok(self.0)
    }
}

impl RequestOut {
    /// Notes the endpoint if the mask selects it; the provider has not stored other fields.
    pub(super) fn note_endpoint(self, mask: u32, callee: Callee) {
        /// `DAT_CR_FIELD_LOCAL_EP_HANDLE`.
        const ENDPOINT: u32 = 0x10;
        if mask & ENDPOINT != 0
            && let Some(param) = self.0.get()
        {
            KNOWN.adopt(param.ep, HandleKind::Ep, callee.slot);
        }
    }
}

/// The new parameters of an endpoint.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct EndpointParam(In<EpParam<V2>>);

impl EndpointParam {
    /// Checks that the provider has returned the handles that the mask selects.
    pub(super) fn passed(self, mask: u64, callee: Callee) -> Result<In<EpParam<V2>>> {
        let Some(param) = self.0.get() else {
            // The provider returns its error for this.
            return Ok(self.0);
        };
        let checked = |bit: u64, handle: CHandle, check: fn(CHandle, Callee) -> Result<CHandle>| {
            if mask & bit == 0 || handle.is_null() {
                return Ok(());
            }
            check(handle, callee).map(drop)
        };
        checked(0x80, param.pz, check::<Pz>)?;
        checked(0x100, param.recv_evd, check::<ReceiveEvd>)?;
        checked(0x200, param.request_evd, check::<RequestEvd>)?;
        checked(0x400, param.connect_evd, check::<ConnectionEvd>)?;
        checked(0x800, param.srq, check::<Srq>)?;
        Ok(self.0)
    }
}

/// Checks the handle in the description of a region that is made of another one.
pub(super) fn check_description(
    memory_type: u32,
    description: RegionDescription,
    callee: Callee,
) -> Result<()> {
    /// `DAT_MEM_TYPE_LMR`.
    const REGION: u32 = 1;
    match memory_type {
        REGION => check::<Lmr>(description.handle(), callee).map(drop),
        _ => Ok(()),
    }
}
