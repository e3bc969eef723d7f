//! An adapter together with its storage.

use std::fmt;
use std::ops::Deref;

use dat_core::backend::Backend;
use dat_core::sync::RawLock;
use dat_core::{Ia, OpenError};

use crate::limits::Limits;
use crate::reservation::Reservation;

/// An open adapter that owns its storage.
///
/// It can be moved, and dropping it closes the adapter abruptly. With a lock that is `Sync` and a
/// backend that is `Send`, threads can share it.
pub struct OwnedIa<B: Backend + 'static, L: RawLock + 'static> {
    /// Dropped first: fields are dropped in this order. No method gives it away, and none lends it
    /// mutably, so that it cannot leave its reservation.
    ia: Ia<'static, B, L>,
    pub(crate) reservation: Reservation<B, L>,
}

impl<B: Backend + 'static, L: RawLock + 'static> OwnedIa<B, L> {
    /// Opens an adapter with tables that start with `limits`, as [`Ia::open`].
    ///
    /// # Errors
    /// - Those of [`Reservation::new`].
    /// - Those of [`Ia::open`].
    pub fn open(
        backend: B,
        limits: &Limits,
        async_evd_min_qlen: i32,
    ) -> Result<Self, OpenError<B>> {
        match Reservation::new(limits) {
            Ok(reservation) => Self::open_in(reservation, backend, async_evd_min_qlen),
            Err(error) => Err(OpenError { error, backend }),
        }
    }

    /// Opens an adapter in a reservation, as [`Ia::open`].
    ///
    /// # Errors
    /// Those of [`Ia::open`]; the address space is then returned.
    pub fn open_in(
        reservation: Reservation<B, L>,
        backend: B,
        async_evd_min_qlen: i32,
    ) -> Result<Self, OpenError<B>> {
        #[expect(unsafe_code)]
        // SAFETY: only the adapter gets the storage. It is dropped before the reservation: in
        // `Ia::open` if that fails or panics, else as the first field of the same structure. Its
        // methods lend nothing that lives longer than a reference to it.
        let storage = unsafe { reservation.lend_unbounded() };
        let ia = Ia::open(backend, storage, async_evd_min_qlen)?;
        Ok(Self { ia, reservation })
    }

    /// Opens an adapter that was shut again, in the same storage, as [`Ia::reopen`].
    ///
    /// # Errors
    /// Those of [`Ia::reopen`].
    pub fn reopen(
        this: &mut Self,
        backend: B,
        async_evd_min_qlen: i32,
    ) -> Result<(), OpenError<B>> {
        this.ia.reopen(backend, async_evd_min_qlen)
    }

    /// Returns the sizes up to which the tables grow.
    pub const fn limits(this: &Self) -> &Limits {
        this.reservation.limits()
    }
}

impl<B: Backend + 'static, L: RawLock + 'static> Deref for OwnedIa<B, L> {
    type Target = Ia<'static, B, L>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.ia
    }
}

impl<B: Backend + 'static, L: RawLock + 'static> fmt::Debug for OwnedIa<B, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedIa")
            .field("reservation", &self.reservation)
            .finish_non_exhaustive()
    }
}
