//! Pointers that come from C.

use std::ffi::{CStr, CString, c_char, c_void};

use dat_core::{Error, Result};

use super::Plain;
use crate::handles::CHandle;

/// A value to read, or null.
#[derive(Debug)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Plain> In<T> {
    /// A copy of the value; `None` if the pointer is null.
    pub(crate) fn get(self) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: it is not null, so by the promise of the C caller it points to a `T`, of which every bit pattern is one.
        Some(unsafe { self.0.read_unaligned() })
    }
}

/// A place for a value, or null.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T: Plain> Out<T> {
    /// The place, which has to be there.
    ///
    /// # Errors
    /// INVALID_PARAMETER with the position, counted from 1, if it is null.
    pub(crate) fn required(self, position: u8) -> Result<Place<T>> {
        if self.0.is_null() {
            return Err(Error::invalid_argument(position));
        }
        Ok(Place(self.0))
    }

    /// What the caller put there, of a pointer for both ways.
    pub(crate) fn get(self) -> Option<T> {
        In(self.0.cast_const()).get()
    }

    /// Stores a value unless the caller does not want it.
    pub(crate) fn offer(self, value: T) {
        if let Ok(place) = self.required(0) {
            place.put(value);
        }
    }
}

/// A place for a value.
#[derive(Debug)]
pub(crate) struct Place<T>(*mut T);

impl<T: Plain> Place<T> {
    /// Stores the value.
    pub(crate) fn put(self, value: T) {
        // SAFETY: only made of pointers from C that are not null, so by the caller's promise there is room for a `T`.
        unsafe { self.0.write_unaligned(value) }
    }
}

/// The first of several values, or null.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct List<T>(*const T);

impl<T> Clone for List<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for List<T> {}

impl<T: Plain> List<T> {
    /// Calls `with` on a slice of what `convert` makes of the `count` values.
    ///
    /// # Errors
    /// INVALID_PARAMETER with the position of the count if it is negative or above what any device takes, with that of the list if
    /// there are values to read and the pointer is null; and those of `with`.
    #[inline(always)]
    pub(crate) fn with<U: Copy + Default, R>(
        self,
        count: i64,
        (at_count, at_list): (u8, u8),
        convert: impl Fn(T) -> U,
        with: impl FnOnce(&[U]) -> Result<R>,
    ) -> Result<R> {
        if count == 1 && !self.0.is_null() {
            // SAFETY: it is not null, so by the promise of the C caller `count` values follow.
            let only = unsafe { self.0.read_unaligned() };
            return with(&[convert(only)]);
        }
        self.with_several(count, (at_count, at_list), convert, with)
    }

    #[inline(never)]
    fn with_several<U: Copy + Default, R>(
        self,
        count: i64,
        (at_count, at_list): (u8, u8),
        convert: impl Fn(T) -> U,
        with: impl FnOnce(&[U]) -> Result<R>,
    ) -> Result<R> {
        /// More segments than that no device takes.
        const MOST: usize = 256;
        let count = usize::try_from(count)
            .ok()
            .filter(|count| *count <= MOST)
            .ok_or(Error::invalid_argument(at_count))?;
        if count != 0 && self.0.is_null() {
            return Err(Error::invalid_argument(at_list));
        }
        let mut values = [U::default(); MOST];
        for (index, value) in values.iter_mut().enumerate().take(count) {
            // SAFETY: it is not null, so by the promise of the C caller `count` values follow, and `index` is below that.
            *value = convert(unsafe { self.0.add(index).read_unaligned() });
        }
        with(values.get(..count).unwrap_or_default())
    }
}

impl List<u8> {
    /// Copies `size` bytes, but not more than there is room for; tells how many.
    ///
    /// # Errors
    /// INVALID_PARAMETER with the position of the size if it is negative, with the one behind it if the pointer is null where there
    /// are bytes to read.
    pub(crate) fn copy(self, size: i32, position: u8, into: &mut [u8]) -> Result<usize> {
        let size = usize::try_from(size).map_err(|_| Error::invalid_argument(position))?;
        if size != 0 && self.0.is_null() {
            return Err(Error::invalid_argument(position.saturating_add(1)));
        }
        let size = size.min(into.len());
        for (index, byte) in into.iter_mut().enumerate().take(size) {
            // SAFETY: it is not null, so by the promise of the C caller `size` bytes follow, and `index` is below that.
            *byte = unsafe { self.0.add(index).read() };
        }
        Ok(size)
    }
}

/// A string that ends with a zero byte, or null.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// A copy of the string, which may be in any encoding; `None` if the pointer is null.
    pub(crate) fn get(self) -> Option<CString> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: it is not null, so by the promise of the C caller it points to a string with its end.
        let text = unsafe { CStr::from_ptr(self.0) };
        Some(text.to_owned())
    }
}

/// A function of the consumer and what to call it with; the agent of a notification object.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Agent {
    instance_data: *mut c_void,
    function: Option<extern "C" fn(*mut c_void, CHandle)>,
}

// SAFETY: the consumer promises by the interface that the function may be called with its data on any thread.
unsafe impl Send for Agent {}

impl Agent {
    /// No agent.
    pub(crate) const NONE: Self = Self {
        instance_data: std::ptr::null_mut(),
        function: None,
    };

    /// Whether there is a function to call.
    pub(crate) fn is_some(self) -> bool {
        self.function.is_some()
    }

    /// Calls the function.
    pub(crate) fn call(self, evd: CHandle) {
        if let Some(function) = self.function {
            function(self.instance_data, evd);
        }
    }
}
