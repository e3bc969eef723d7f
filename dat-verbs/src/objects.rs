//! Objects that programs hold.

use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::c;

/// Kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Context,
    Domain,
    Region,
    Channel,
    Queue,
    SharedQueue,
    Pair,
    Address,
    EventChannel,
    Event,
    Id,
}

/// An object whose first part is a structure that the program knows.
pub(crate) trait Object: Sized {
    /// That structure.
    type C;
    const KIND: Kind;

    /// Counts the objects that use this one.
    fn users(&self) -> &Users;
}

/// Number of objects that use an object.
#[derive(Debug, Default)]
pub(crate) struct Users(AtomicUsize);

impl Users {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn remove(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Live objects by address.
static LIVE: Mutex<Option<HashMap<usize, Kind>>> = Mutex::new(None);

fn live_objects() -> MutexGuard<'static, Option<HashMap<usize, Kind>>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands an object to the program.
pub(crate) fn publish<T: Object>(object: Box<T>) -> *mut T::C {
    let pointer = c::give(object);
    let mut live = live_objects();
    let table = live.get_or_insert_default();
    table.insert(pointer as usize, T::KIND);
    pointer.cast()
}

/// Returns a live object.
///
/// # Errors
/// `EINVAL`: there is none of this kind.
pub(crate) fn find<'a, T: Object>(pointer: *mut T::C) -> Result<&'a T, c_int> {
    let is_live = live_objects()
        .as_ref()
        .is_some_and(|table| table.get(&(pointer as usize)) == Some(&T::KIND));
    let object = is_live.then(|| known(pointer)).flatten();
    object.ok_or(libc::EINVAL)
}

/// Returns an object without a look at the table, for posts and polls; `None` for null.
pub(crate) fn known<'a, T: Object>(pointer: *mut T::C) -> Option<&'a T> {
    c::get(pointer.cast::<T>())
}

/// Takes an object back from the program.
///
/// # Errors
/// - `EINVAL`: there is none of this kind.
/// - `EBUSY`: others use it.
pub(crate) fn retire<T: Object>(pointer: *mut T::C) -> Result<Box<T>, c_int> {
    let mut live = live_objects();
    let table = live.get_or_insert_default();
    let address = pointer as usize;
    if table.get(&address) != Some(&T::KIND) {
        return Err(libc::EINVAL);
    }
    let object: &T = known(pointer).ok_or(libc::EINVAL)?;
    if object.users().0.load(Ordering::Acquire) > 0 {
        return Err(libc::EBUSY);
    }
    table.remove(&address);
    Ok(c::take(pointer.cast::<T>()))
}
