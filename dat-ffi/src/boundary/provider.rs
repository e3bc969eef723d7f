//! Providers outside of this library, as a registry calls them.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::layout::{FUNCTIONS, FunctionTable};
use super::{Address, Agent, In, List, Out, RegionDescription, Text, VariableArguments};
use crate::handles::CHandle;

/// The table of a provider that has registered itself.
///
/// Only a provider makes one. It promises that the table stays until it removes itself, and that
/// its adapters are closed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Provider<const N: usize = FUNCTIONS>(NonNull<FunctionTable<N>>);

// SAFETY: the table is only read, and its provider changes nothing in it.
unsafe impl<const N: usize> Send for Provider<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for Provider<N> {}

/// An argument of a provider's call: a number, an address, or a structure passed by value.
///
/// # Safety
/// The type is passed to C as the interface says.
pub(crate) unsafe trait Passed: Copy {}

macro_rules! passed {
    ($($type:ty),*) => {$(
        // SAFETY: a number, or a structure with the layout of C.
        unsafe impl Passed for $type {}
    )*};
}

passed! { i32, u32, u64, usize, CHandle, RegionDescription, Agent, VariableArguments }

// SAFETY: it is an address.
unsafe impl<T> Passed for Out<T> {}
// SAFETY: it is an address.
unsafe impl<T> Passed for In<T> {}
// SAFETY: it is an address.
unsafe impl<T> Passed for List<T> {}
// SAFETY: it is an address.
unsafe impl Passed for Text {}
// SAFETY: it is an address.
unsafe impl Passed for Address {}

/// The arguments of a call.
pub(crate) trait Arguments {
    /// Calls a function with the arguments.
    ///
    /// # Safety
    /// The function takes these arguments and returns a `DAT_RETURN`.
    unsafe fn call(self, function: *const ()) -> u32;
}

macro_rules! arguments {
    ($($name:ident)*) => {
        impl<$($name: Passed),*> Arguments for ($($name,)*) {
            #[inline]
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
    /// Returns the address of the table.
    pub(crate) fn address(self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    /// Calls the function of a slot; `None` if the provider has none there.
    ///
    /// The arguments are those that the headers have for the slot. Only the calls of the registry
    /// use this function, and each passes on its own arguments.
    #[inline]
    pub(crate) fn call(self, slot: usize, arguments: impl Arguments) -> Option<u32> {
        // SAFETY: the table stays as long as the provider is registered or has adapters, by the
        // contract between registry and providers.
        let function = unsafe { (*self.0.as_ptr()).functions.get(slot).copied() };
        match function {
            // SAFETY: a function of this slot has the arguments of the interface, by the same
            // contract.
            Some(function) if !function.is_null() => Some(unsafe { arguments.call(function) }),
            _ => None,
        }
    }
}

/// Slot of `dat_ia_open`.
const OPEN: usize = 0;

impl<const N: usize> Provider<N> {
    /// Opens an adapter; returns its asynchronous event dispatcher and the adapter, or the
    /// provider's error.
    ///
    /// `None` if the provider has no function for this.
    pub(crate) fn open(
        self,
        name: Text,
        async_evd_min_qlen: i32,
        wanted_evd: CHandle,
    ) -> Option<Result<(CHandle, CHandle), u32>> {
        let mut evd = wanted_evd;
        let mut ia = CHandle::NULL;
        // Both outputs outlive the call, which keeps neither.
        let outputs = (Out::to(&raw mut evd), Out::to(&raw mut ia));
        match self.call(OPEN, (name, async_evd_min_qlen, outputs.0, outputs.1))? {
            0 => Some(Ok((evd, ia))),
            refused => Some(Err(refused)),
        }
    }
}

/// An optional provider, read and stored atomically.
#[derive(Debug)]
pub(crate) struct AtomicProvider(AtomicPtr<FunctionTable>);

impl AtomicProvider {
    /// Makes one without a provider.
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<Provider> {
        NonNull::new(self.0.load(Ordering::Acquire)).map(Provider)
    }

    pub(crate) fn set(&self, provider: Option<Provider>) {
        let table = provider.map_or(ptr::null_mut(), |provider| provider.0.as_ptr());
        self.0.store(table, Ordering::Release);
    }
}
