//! The arguments of calls: the handles among them, and their kinds.

use std::cell::Cell;

use dat_core::flags::HandleKind;
use dat_core::{Error, Result, Subtype};

use super::adapters::{self, KNOWN, ProviderAdapter, SlotIndex, provider_at};
use super::roles::*;
use crate::boundary::{
    Address, Agent, CrParam, EpParam, Event, In, List, Out, Passed, Provider, RegionDescription,
};
use crate::handles::CHandle;
use crate::v2::V2;

/// The provider that a call goes to, and the slot of the adapter.
#[derive(Debug)]
pub(super) struct Callee {
    pub(super) slot: SlotIndex,
    pub(super) provider: Provider,
    /// The number that was passed last: a mask or a type says which handles the next argument has.
    last: Cell<u64>,
}

impl Callee {
    #[inline]
    const fn new(slot: SlotIndex, provider: Provider) -> Self {
        Self {
            slot,
            provider,
            last: Cell::new(0),
        }
    }
}

/// The first argument of a call, which determines the provider.
pub(super) trait First: Copy {
    /// Returns the provider, and the provider's handle of the object.
    ///
    /// # Errors
    /// INVALID_HANDLE: the handle is none of this kind, or is gone.
    fn callee(self) -> Result<(Callee, CHandle)>;

    /// Notes that the object is gone.
    fn gone(self, _callee: &Callee) {}
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
            Some(Callee::new(slot, provider))
        });
        match callee {
            Some(callee) => Ok((callee, self.0)),
            None => Err(refused::<R>(self.0)),
        }
    }

    fn gone(self, callee: &Callee) {
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
    pub(super) fn adapter(self) -> Result<ProviderAdapter> {
        adapters::find(self.0).ok_or(Error::invalid_handle(Subtype::InvalidHandleIa))
    }

    pub(super) const fn number(self) -> CHandle {
        self.0
    }
}

impl First for Ia {
    fn callee(self) -> Result<(Callee, CHandle)> {
        let ProviderAdapter {
            slot,
            provider,
            own,
        } = self.adapter()?;
        Ok((Callee::new(slot, provider), own))
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
            Some((Callee::new(slot, provider), self.0))
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
    fn passed(self, callee: &Callee) -> Result<Self::Passed>;

    /// Notes the results of a call that succeeded.
    fn succeeded(self, _callee: &Callee) {}
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Argument for $type {
            type Passed = Self;

            #[inline]
            fn passed(self, callee: &Callee) -> Result<Self> {
                callee.last.set(self as u64);
                Ok(self)
            }
        }
    )*};
}

numbers! { i32, u32, u64 }

/// Arguments that are passed on unchanged.
macro_rules! unchanged {
    ($([$($generic:ident)?] $type:ty,)*) => {$(
        impl$(<$generic>)? Argument for $type {
            type Passed = Self;

            #[inline]
            fn passed(self, _callee: &Callee) -> Result<Self> {
                Ok(self)
            }
        }
    )*};
}

unchanged! { [] Agent, [] Address, [T] In<T>, [T] Out<T>, [T] List<T>, }

/// Checks that the provider has returned a handle for this role.
fn check<R: Role>(handle: CHandle, callee: &Callee) -> Result<CHandle> {
    let slot = KNOWN.find(handle, R::KIND);
    match slot.and_then(provider_at) {
        Some(provider) if provider == callee.provider => Ok(handle),
        _ => Err(Error::invalid_handle(R::SUBTYPE)),
    }
}

impl<R: Role> Argument for Object<R> {
    type Passed = CHandle;

    fn passed(self, callee: &Callee) -> Result<CHandle> {
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

    fn passed(self, callee: &Callee) -> Result<CHandle> {
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

    fn passed(self, _callee: &Callee) -> Result<Out<CHandle>> {
        Ok(self.0)
    }

    fn succeeded(self, callee: &Callee) {
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
    fn passed(self, _callee: &Callee) -> Result<Out<Event<V2>>> {
        Ok(self.0)
    }

    #[inline]
    fn succeeded(self, callee: &Callee) {
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

    fn passed(self, _callee: &Callee) -> Result<Out<CrParam>> {
        Ok(self.0)
    }

    /// Notes the endpoint if the mask selects it; the provider has not stored other fields.
    fn succeeded(self, callee: &Callee) {
        /// `DAT_CR_FIELD_LOCAL_EP_HANDLE`.
        const ENDPOINT: u64 = 0x10;
        if callee.last.get() & ENDPOINT != 0
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

impl Argument for EndpointParam {
    type Passed = In<EpParam<V2>>;

    /// Checks that the provider has returned the handles that the mask selects.
    fn passed(self, callee: &Callee) -> Result<In<EpParam<V2>>> {
        let mask = callee.last.get();
        let Some(param) = self.0.get() else {
            // The provider returns its error for this.
            return Ok(self.0);
        };
        let checked =
            |bit: u64, handle: CHandle, check: fn(CHandle, &Callee) -> Result<CHandle>| {
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

impl Argument for RegionDescription {
    type Passed = Self;

    /// Checks the handle in the description of a region that is made of another one.
    fn passed(self, callee: &Callee) -> Result<Self> {
        /// `DAT_MEM_TYPE_LMR`.
        const REGION: u64 = 1;
        if callee.last.get() == REGION {
            check::<Lmr>(self.handle(), callee)?;
        }
        Ok(self)
    }
}
