//! Providers of others, as a registry calls them.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::layout::{FUNCTIONS, Table};
use super::{Address, Agent, In, List, Out, RegionDescription, Text, VariableArguments};
use crate::handles::CHandle;

/// The table of a provider that has entered itself into the registry.
///
/// Only a provider makes one, which promises that the table stays until it takes itself out, and that its adapters are closed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Provider<const N: usize = FUNCTIONS>(NonNull<Table<N>>);

// SAFETY: the table is only read, and its provider changes nothing in it.
unsafe impl<const N: usize> Send for Provider<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for Provider<N> {}

/// What calls of providers take: numbers, addresses, and structures that the interface passes by value.
///
/// # Safety
/// It is passed to C as the interface says.
pub(crate) unsafe trait Passed: Copy {}

macro_rules! passed {
    ($($type:ty),*) => {$(
        // SAFETY: a number, or a structure with the layout of C.
        unsafe impl Passed for $type {}
    )*};
}

passed! { i32, u32, u64, usize, CHandle, RegionDescription, Agent, VariableArguments }

// SAFETY: an address.
unsafe impl<T> Passed for Out<T> {}
// SAFETY: an address.
unsafe impl<T> Passed for In<T> {}
// SAFETY: an address.
unsafe impl<T> Passed for List<T> {}
// SAFETY: an address.
unsafe impl Passed for Text {}
// SAFETY: an address.
unsafe impl Passed for Address {}

/// The arguments of a call.
pub(crate) trait Arguments {
    /// Calls a function with them.
    ///
    /// # Safety
    /// It is a function that takes these arguments, and returns a `DAT_RETURN`.
    unsafe fn call(self, function: *const ()) -> u32;
}

macro_rules! arguments {
    ($($name:ident)*) => {
        impl<$($name: Passed),*> Arguments for ($($name,)*) {
            #[inline(always)]
            #[expect(non_snake_case, reason = "types and values share their names")]
            unsafe fn call(self, function: *const ()) -> u32 {
                let ($($name,)*) = self;
                // SAFETY: the caller promises that it is such a function.
                let function: unsafe extern "C-unwind" fn($($name),*) -> u32 = unsafe { std::mem::transmute(function) };
                // SAFETY: as above.
                unsafe { function($($name),*) }
            }
        }
    };
}

arguments! { A }
arguments! { A B }
arguments! { A B C }
arguments! { A B C D }
arguments! { A B C D F }
arguments! { A B C D F G }
arguments! { A B C D F G H }
arguments! { A B C D F G H I }
arguments! { A B C D F G H I J }
arguments! { A B C D F G H I J K L }
arguments! { A B C D F G H I J K L M }

impl<const N: usize> Provider<N> {
    /// Where the table is.
    pub(crate) fn address(self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    /// Calls the function of a slot; `None` if the provider has none there.
    ///
    /// The arguments are those that the headers have for the slot: this is only called by the calls of the registry, each of which
    /// passes on what it is called with.
    #[inline(always)]
    pub(crate) fn call(self, slot: usize, arguments: impl Arguments) -> Option<u32> {
        // SAFETY: the table stays as long as the provider is entered or has adapters, by the contract between registry and providers.
        let function = unsafe { (*self.0.as_ptr()).functions.get(slot).copied() };
        match function {
            // SAFETY: a function of this slot has the arguments of the interface, by the same contract.
            Some(function) if !function.is_null() => Some(unsafe { arguments.call(function) }),
            _ => None,
        }
    }
}

/// Where `dat_ia_open` is.
const OPEN: usize = 0;

impl<const N: usize> Provider<N> {
    /// Opens an adapter: the dispatcher for asynchronous events and the adapter, or what the provider says against it; `None` if the
    /// provider opens none.
    pub(crate) fn open(
        self,
        name: Text,
        async_evd_min_qlen: i32,
        wanted_evd: CHandle,
    ) -> Option<Result<(CHandle, CHandle), u32>> {
        let mut evd = wanted_evd;
        let mut ia = CHandle::NULL;
        // Both places are there until the call is over, which keeps none.
        let places = (Out::to(&raw mut evd), Out::to(&raw mut ia));
        match self.call(OPEN, (name, async_evd_min_qlen, places.0, places.1))? {
            0 => Some(Ok((evd, ia))),
            refused => Some(Err(refused)),
        }
    }
}

/// A place for a provider, or none.
#[derive(Debug)]
pub(crate) struct ProviderPlace(AtomicPtr<Table>);

impl ProviderPlace {
    /// No provider.
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Option<Provider> {
        NonNull::new(self.0.load(Ordering::Acquire)).map(Provider)
    }

    pub(crate) fn set(&self, provider: Option<Provider>) {
        let table = provider.map_or(ptr::null_mut(), |provider| provider.0.as_ptr());
        self.0.store(table, Ordering::Release);
    }
}
