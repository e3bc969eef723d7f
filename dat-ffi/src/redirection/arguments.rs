//! The arguments of calls: which of them are handles, and of what.

use dat_core::flags::HandleKind;
use dat_core::{Error, Result, Subtype};

use super::adapters::{self, Adapter, KNOWN, Place, provider_at};
use crate::boundary::{
    Agent, CrParam, EpParam, Event, In, Out, Passed, Provider, RegionDescription,
};
use crate::handles::CHandle;
use crate::v2::V2;

/// What a handle stands for in a call.
pub(super) trait Role {
    /// The kind of the object.
    const KIND: HandleKind;
    /// What is said of a wrong one.
    const SUBTYPE: Subtype;
    /// What is said of none.
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
    /// Where connection requests arrive.
    ArrivalEvd: Evd, InvalidHandleEvdCr;
    /// Where requests complete.
    RequestEvd: Evd, InvalidHandleEvdRequest;
    /// Where receives complete.
    ReceiveEvd: Evd, InvalidHandleEvdRecv;
    /// Where connections are told of.
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

/// Whose call it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Callee {
    pub(super) place: Place,
    pub(super) provider: Provider,
}

/// The first argument of a call, which says whose it is.
pub(super) trait First: Copy {
    /// Finds the provider, and what that calls the object.
    ///
    /// # Errors
    /// INVALID_HANDLE.
    fn callee(self) -> Result<(Callee, CHandle)>;

    /// The object is gone.
    fn gone(self, _callee: Callee) {}
}

/// A handle of an object.
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
    #[inline(always)]
    fn callee(self) -> Result<(Callee, CHandle)> {
        let found = KNOWN.find(self.0, R::KIND);
        let callee = found.and_then(|place| {
            let provider = provider_at(place)?;
            Some(Callee { place, provider })
        });
        match callee {
            Some(callee) => Ok((callee, self.0)),
            None => Err(refused::<R>(self.0)),
        }
    }

    fn gone(self, callee: Callee) {
        KNOWN.remove(self.0, R::KIND, callee.place);
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
    /// The adapter.
    ///
    /// # Errors
    /// INVALID_HANDLE (IA).
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
            place,
            provider,
            own,
        } = self.adapter()?;
        Ok((Callee { place, provider }, own))
    }
}

/// A handle of anything.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Any(CHandle);

impl First for Any {
    fn callee(self) -> Result<(Callee, CHandle)> {
        let object = KNOWN.find_any(self.0).and_then(|place| {
            let provider = provider_at(place)?;
            Some((Callee { place, provider }, self.0))
        });
        let adapter = || Ia(self.0).callee();
        object.map_or_else(adapter, Ok).map_err(|_| {
            // It is not said of what it should be.
            Error::invalid_handle(Subtype::InvalidHandle1)
        })
    }
}

/// Any other argument.
pub(super) trait Argument: Copy {
    /// What the provider gets.
    type Passed: Passed;

    /// What the provider gets.
    ///
    /// # Errors
    /// INVALID_HANDLE: it is, or has, a handle that the provider has not handed out, or that is gone.
    fn passed(self, callee: Callee) -> Result<Self::Passed>;

    /// The call has succeeded, with whatever that has changed.
    fn succeeded(self, _callee: Callee) {}
}

macro_rules! plain_arguments {
    ($($type:ty),*) => {$(
        impl Argument for $type {
            type Passed = Self;

            #[inline(always)]
            fn passed(self, _callee: Callee) -> Result<Self> {
                Ok(self)
            }
        }
    )*};
}

plain_arguments! { i32, u32, u64, usize, Agent }

/// Refuses a handle that the provider has not handed out as one of this role.
fn check<R: Role>(handle: CHandle, callee: Callee) -> Result<CHandle> {
    let place = KNOWN.find(handle, R::KIND);
    match place.and_then(provider_at) {
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

/// A handle of an object, or none; whether there has to be one, the provider says.
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

/// Where the handle of a new object goes.
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
            // If it cannot be noted, it is refused later.
            let _noted: Result<()> = KNOWN.add(made, R::KIND, callee.place);
        }
    }
}

/// `DAT_CONNECTION_REQUEST_EVENT`.
const ARRIVAL: u32 = 0x2001;

/// Where an event goes; a connection request comes in it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct EventPlace(Out<Event<V2>>);

impl Argument for EventPlace {
    type Passed = Out<Event<V2>>;

    #[inline(always)]
    fn passed(self, _callee: Callee) -> Result<Out<Event<V2>>> {
        Ok(self.0)
    }

    #[inline(always)]
    fn succeeded(self, callee: Callee) {
        if self.0.event_number() == Some(ARRIVAL)
            && let Some(event) = self.0.get()
        {
            // Each arrival is another request, also where an earlier one was and is not taken out yet. If it cannot be noted, it is
            // refused later.
            let _noted: Result<()> = KNOWN.add(event.arrived(), HandleKind::Cr, callee.place);
        }
    }
}

/// Where it goes what is known of a connection request; providers that make endpoints themselves tell of theirs there.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct RequestPlace(Out<CrParam>);

impl Argument for RequestPlace {
    type Passed = Out<CrParam>;

    fn passed(self, _callee: Callee) -> Result<Out<CrParam>> {
        Ok(self.0)
    }
}

impl RequestPlace {
    /// The provider has told what the mask asks for; whatever else is there, it has not.
    pub(super) fn told(self, mask: u32, callee: Callee) {
        /// `DAT_CR_FIELD_LOCAL_EP_HANDLE`.
        const ENDPOINT: u32 = 0x10;
        if mask & ENDPOINT != 0
            && let Some(told) = self.0.get()
        {
            KNOWN.adopt(told.ep, HandleKind::Ep, callee.place);
        }
    }
}

/// What an endpoint is changed to.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct EndpointParam(In<EpParam<V2>>);

impl EndpointParam {
    /// Refuses handles that the provider has not handed out, where the mask asks for them.
    pub(super) fn passed(self, mask: u64, callee: Callee) -> Result<In<EpParam<V2>>> {
        let Some(param) = self.0.get() else {
            // The provider says what it thinks of that.
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

/// Refuses a description with a handle that the provider has not handed out, if it is made of a region.
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
