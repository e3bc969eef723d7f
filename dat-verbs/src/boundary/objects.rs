//! Objects of programs: a structure that C sees, and what belongs to it behind that.

use core::any::TypeId;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::marker::PhantomData;
use core::ptr::null_mut;
use std::collections::HashMap;

use nix::errno::Errno;

use crate::errors::{Result, require};
use crate::locks::OfProcess;

/// State of an object, which lies behind its structure for C.
pub(crate) trait Kind: Send + Sync + Sized + 'static {
    /// The structure.
    type C: Copy + 'static;
    /// Offset in the structure of the place that programs name.
    const OFFSET: usize = 0;
}

#[repr(C)]
struct Object<K: Kind> {
    c: UnsafeCell<K::C>,
    own: K,
}

/// An object by its address, as programs have it; null for none.
#[repr(transparent)]
pub(crate) struct Handle<K>(*mut c_void, PhantomData<K>);

impl<K> Clone for Handle<K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Handle<K> {}
impl<K> Default for Handle<K> {
    fn default() -> Self {
        Self::NULL
    }
}
impl<K> core::fmt::Debug for Handle<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}
impl<K> PartialEq for Handle<K> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
// SAFETY: it is an address; what it names may be used by any thread, as `Kind` demands.
unsafe impl<K> Send for Handle<K> {}
// SAFETY: as above.
unsafe impl<K> Sync for Handle<K> {}

/// Kinds of the objects that have not ended, by address.
///
/// Those of its parent are none of a child of `fork`.
static LIVE: OfProcess<HashMap<usize, TypeId>> = OfProcess::new();
/// Held while a structure changes.
static CHANGES: OfProcess<()> = OfProcess::new();

impl<K> Handle<K> {
    pub(crate) const NULL: Self = Self(null_mut(), PhantomData);

    /// Returns the handle for a pointer in a structure.
    pub(crate) const fn at<T>(pointer: *mut T) -> Self {
        Self(pointer.cast(), PhantomData)
    }

    /// Returns the pointer for a structure.
    pub(crate) const fn pointer<T>(self) -> *mut T {
        self.0.cast()
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl<K: Kind> Handle<K> {
    /// Makes an object.
    pub(crate) fn new(c: K::C, own: K) -> Self {
        let c = UnsafeCell::new(c);
        let object = Box::into_raw(Box::new(Object { c, own }));
        let handle = Self(object.wrapping_byte_add(K::OFFSET).cast(), PhantomData);
        LIVE.with(|live| live.insert(handle.0.addr(), TypeId::of::<K>()));
        handle
    }

    fn object(self) -> *mut Object<K> {
        self.0.wrapping_byte_sub(K::OFFSET).cast()
    }

    fn is_live(self) -> bool {
        LIVE.with(|live| self.is_in(live))
    }

    fn is_in(self, live: &HashMap<usize, TypeId>) -> bool {
        live.get(&self.0.addr()) == Some(&TypeId::of::<K>())
    }

    /// Returns what belongs to the object.
    ///
    /// # Errors
    /// `EINVAL`: there is no such object.
    pub(crate) fn get(&self) -> Result<&K> {
        require(self.is_live(), Errno::EINVAL)?;
        // SAFETY: an object is freed by `end` alone, which a program calls when no other call uses
        // the object, as the interface demands.
        Ok(unsafe { &(*self.object()).own })
    }

    /// As [`get`](Self::get); `None` for null.
    pub(crate) fn optional(&self) -> Result<Option<&K>> {
        match self.is_null() {
            true => Ok(None),
            false => self.get().map(Some),
        }
    }

    /// Looks at what belongs to the object, which no other thread ends meanwhile; `look` makes no
    /// call.
    ///
    /// For calls that wait, during which the object may end.
    ///
    /// # Errors
    /// `EINVAL`: there is no such object.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&K) -> R) -> Result<R> {
        LIVE.with(|live| {
            require(self.is_in(live), Errno::EINVAL)?;
            // SAFETY: `end` takes the object from the table, under this lock, before it frees it.
            Ok(look(unsafe { &(*self.object()).own }))
        })
    }

    /// As [`get`](Self::get), for calls that the interface has programs make on live objects only.
    #[inline]
    pub(crate) fn trusted(&self) -> Result<&K> {
        require(!self.0.is_null(), Errno::EINVAL)?;
        // SAFETY: as above; the program passes null or a live object of this kind.
        Ok(unsafe { &(*self.object()).own })
    }

    /// Returns a copy of the structure.
    ///
    /// # Errors
    /// `EINVAL`: there is no such object.
    pub(crate) fn read(self) -> Result<K::C> {
        CHANGES.with(|()| {
            require(self.is_live(), Errno::EINVAL)?;
            // SAFETY: as in `get`; changes of this side hold the lock.
            Ok(unsafe { *(*self.object()).c.get() })
        })
    }

    /// Changes the structure of a live object; `change` makes no call.
    pub(crate) fn change(self, change: impl FnOnce(&mut K::C)) {
        CHANGES.with(|()| {
            if self.is_live() {
                // SAFETY: as in `get`; nobody else on this side has a reference, by the lock.
                change(unsafe { &mut *(*self.object()).c.get() });
            }
        });
    }

    /// Ends an object; returns what belonged to it.
    ///
    /// # Errors
    /// `EINVAL`: there is no such object.
    pub(crate) fn end(self) -> Result<K> {
        let was_live = LIVE.with(|live| self.is_in(live) && live.remove(&self.0.addr()).is_some());
        require(was_live, Errno::EINVAL)?;
        // SAFETY: `new` made it, and it was live until now: it is freed once.
        let object = unsafe { Box::from_raw(self.object()) };
        Ok(object.own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing(u8);
    impl Kind for Thing {
        type C = [u64; 4];
        const OFFSET: usize = 16;
    }
    struct Other;
    impl Kind for Other {
        type C = u8;
    }

    #[test]
    fn an_object_is_known_until_it_ends() {
        let handle = Handle::new([1, 2, 3, 4], Thing(7));
        assert_eq!(handle.get().map(|thing| thing.0), Ok(7));
        handle.change(|c| c[2] = 9);
        assert_eq!(handle.read(), Ok([1, 2, 9, 4]));
        let inside: *mut u64 = handle.pointer();
        assert!(Handle::<Thing>::at(inside) == handle);
        assert!(Handle::<Other>::at(inside).get().is_err(), "another kind");
        assert_eq!(handle.look(|thing| thing.0), Ok(7));
        assert_eq!(handle.end().map(|thing| thing.0), Ok(7));
        assert_eq!(handle.look(|thing| thing.0), Err(Errno::EINVAL));
        assert!(handle.end().is_err(), "it ended");
        assert!(handle.get().is_err() && handle.read().is_err());
        assert!(Handle::<Thing>::NULL.get().is_err());
        assert!(
            Handle::<Thing>::NULL
                .optional()
                .is_ok_and(|thing| thing.is_none())
        );
    }
}
