//! Pointers that come from C.

use std::ffi::{CStr, CString, c_char, c_void};

use dat_core::{Error, Result, Subtype};

use super::{Event, Plain, ScatterGather, TransferData};
use crate::calls::edition::Form;
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

impl<T> In<T> {
    /// Of an address that came from C among others.
    pub(super) const fn at(address: *const T) -> Self {
        Self(address)
    }
}

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
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

// SAFETY: an address.
unsafe impl<T: Copy> Plain for Out<T> {}

impl<T> Out<T> {
    /// A place of ours, for a call that is over before the place is gone.
    pub(super) const fn to(place: *mut T) -> Self {
        Self(place)
    }
}

impl<E: Form> Out<Event<E>> {
    /// The number of the event there.
    #[inline(always)]
    pub(crate) fn event_number(self) -> Option<u32> {
        // SAFETY: it is null, or by the promise of the C caller there is an event, which begins with its number.
        (!self.0.is_null()).then(|| unsafe { (&raw const (*self.0).number).read_unaligned() })
    }
}

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

impl<T> Clone for Place<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Place<T> {}

impl<T: Plain> Place<T> {
    /// Stores the value.
    pub(crate) fn put(self, value: T) {
        // SAFETY: only made of pointers from C that are not null, so by the caller's promise there is room for a `T`.
        unsafe { self.0.write_unaligned(value) }
    }
}

impl<E: Form> Place<Event<E>> {
    /// Stores the event of a transfer. Of an event's data only as much as that is has a meaning, and nothing else is written.
    #[inline(always)]
    pub(crate) fn put_transfer(self, number: u32, evd: CHandle, transfer: TransferData<E>) {
        // SAFETY: as in `put`; all three are parts of what there is room for.
        unsafe {
            (&raw mut (*self.0).number).write_unaligned(number);
            (&raw mut (*self.0).evd).write_unaligned(evd);
            (&raw mut (*self.0).data.transfer).write_unaligned(transfer);
        }
    }
}

/// The first of several values, or null.
#[derive(Debug)]
#[repr(transparent)]
pub struct List<T>(*const T);

impl<T> Clone for List<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for List<T> {}

impl<T> List<T> {
    /// Of an address that came from C among others.
    pub(super) const fn at(address: *const T) -> Self {
        Self(address)
    }
}

/// Values that are kept on the stack. More segments than that no device takes in one request.
const MOST: usize = 256;
/// Values that a request has at most, most of the time.
const FEW: usize = 8;

/// Whether memory can have so many bytes.
fn is_possible(bytes: usize) -> bool {
    isize::try_from(bytes).is_ok()
}

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

    /// The value, if there is one only.
    #[inline(always)]
    pub(crate) fn only(self, count: i32) -> Option<T> {
        // SAFETY: it is not null, so by the promise of the C caller `count` values follow.
        (count == 1 && !self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }

    /// As `with`, but for as many values as memory can have: what is too much for a stack is kept on the heap.
    ///
    /// # Errors
    /// As `with`; INSUFFICIENT_RESOURCES (MEMORY): there is no memory for so many.
    pub(crate) fn with_any_number<U: Copy + Default, R>(
        self,
        count: u64,
        (at_count, at_list): (u8, u8),
        convert: impl Fn(T) -> U,
        with: impl FnOnce(&[U]) -> Result<R>,
    ) -> Result<R> {
        let possible = |count: &usize| count.checked_mul(size_of::<T>()).is_some_and(is_possible);
        let number = usize::try_from(count).ok().filter(possible);
        let number = number.ok_or(Error::invalid_argument(at_count))?;
        if number <= MOST {
            return self.with(number as i64, (at_count, at_list), convert, with);
        }
        if self.0.is_null() {
            return Err(Error::invalid_argument(at_list));
        }
        let mut values = Vec::new();
        values
            .try_reserve_exact(number)
            .map_err(|_| Error::insufficient_resources(Subtype::ResourceMemory))?;
        for index in 0..number {
            // SAFETY: it is not null, so by the promise of the C caller `count` values follow, and `index` is below that.
            values.push(convert(unsafe { self.0.add(index).read_unaligned() }));
        }
        with(&values)
    }

    #[inline(never)]
    fn with_several<U: Copy + Default, R>(
        self,
        count: i64,
        (at_count, at_list): (u8, u8),
        convert: impl Fn(T) -> U,
        with: impl FnOnce(&[U]) -> Result<R>,
    ) -> Result<R> {
        let count = usize::try_from(count)
            .ok()
            .filter(|count| *count <= MOST)
            .ok_or(Error::invalid_argument(at_count))?;
        if count != 0 && self.0.is_null() {
            return Err(Error::invalid_argument(at_list));
        }
        // Few take little room, which is cleared for them.
        if count <= FEW {
            let mut values = [U::default(); FEW];
            with(self.converted(count, convert, &mut values))
        } else {
            let mut values = [U::default(); MOST];
            with(self.converted(count, convert, &mut values))
        }
    }

    /// The first `count` values, in a place that has room for them.
    fn converted<U>(self, count: usize, convert: impl Fn(T) -> U, place: &mut [U]) -> &[U] {
        for (index, value) in place.iter_mut().enumerate().take(count) {
            // SAFETY: the pointer is not null if `count` is not 0, so by the promise of the C caller `count` values follow, and `index`
            // is below that.
            *value = convert(unsafe { self.0.add(index).read_unaligned() });
        }
        place.get(..count).unwrap_or_default()
    }
}

impl<T: Plain> List<T> {
    /// One of the values, of which the caller has promised more than `index`; `None` if the pointer is null.
    pub(crate) fn nth(self, index: usize) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: it is not null, so by the promise of the C caller there are as many values as the call says.
        Some(unsafe { self.0.add(index).read_unaligned() })
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl<T: Plain> Out<T> {
    /// Stores one of several values, if the pointer is not null. The caller of the C function said that there is room for more than so
    /// many.
    pub(crate) fn put_at(self, index: usize, value: T) {
        if !self.0.is_null() {
            // SAFETY: it is not null, so by the promise of the C caller there is room for several values, this one among them.
            unsafe { self.0.wrapping_add(index).write_unaligned(value) }
        }
    }

    /// The same place, for several values to read.
    pub(crate) fn list(self) -> List<T> {
        List(self.0.cast_const())
    }
}

impl Out<ScatterGather> {
    /// Stores the number of entries that are left, and touches nothing else.
    pub(crate) fn put_residual(self, residual: u64) {
        if !self.0.is_null() {
            // SAFETY: it is not null, so by the promise of the C caller the structure is there.
            unsafe { (&raw mut (*self.0).residual_count).write_unaligned(residual) }
        }
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

/// Text that is given to C, and stays as long as the process.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct StaticText(*const c_char);

// SAFETY: an address, or null.
unsafe impl Plain for StaticText {}

impl StaticText {
    /// The address of a text.
    pub(crate) const fn new(text: &'static CStr) -> Self {
        Self(text.as_ptr())
    }

    /// The address of a text that is kept from now on; null for none.
    pub(crate) fn kept(text: Option<CString>) -> Self {
        Self(text.map_or(std::ptr::null(), |text| text.into_raw().cast_const()))
    }
}

/// A function of the consumer and what to call it with; the agent of a notification object.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Agent {
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

    /// A function that is called with nothing.
    #[cfg(test)]
    pub(crate) const fn of(function: extern "C" fn(*mut c_void, CHandle)) -> Self {
        Self {
            instance_data: std::ptr::null_mut(),
            function: Some(function),
        }
    }

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
