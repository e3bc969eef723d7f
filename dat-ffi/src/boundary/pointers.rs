//! Pointers that come from C.

use std::ffi::{CStr, CString, c_char, c_void};

use dat_core::{Error, Result, Subtype};

use super::{
    Access, Event, Pages, Plain, ScatterGather, TransferData, all_allow, has_access, page_size,
};
use crate::calls::edition::Form;
use crate::handles::CHandle;

/// A pointer to a value to read, or null.
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
    /// Wraps an address that is an argument from C, read from its list.
    pub(super) const fn at(address: *const T) -> Self {
        Self(address)
    }
}

impl<T: Plain> In<T> {
    /// Returns a copy of the value; `None` if the pointer is null.
    pub(crate) fn get(self) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the pointer is not null, so the C caller promises that it points to a `T`. Every
        // bit pattern is a `T`.
        Some(unsafe { self.0.read_unaligned() })
    }
}

/// A pointer to room for a value, or null.
#[derive(Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

// SAFETY: it is an address.
unsafe impl<T: Copy> Plain for Out<T> {}

impl<T> Out<T> {
    /// Wraps memory of this library, for a call that ends before the memory does.
    pub(super) const fn to(target: *mut T) -> Self {
        Self(target)
    }

    /// A null pointer, for tests.
    #[cfg(test)]
    pub(crate) const fn none() -> Self {
        Self(std::ptr::null_mut())
    }

    /// Wraps a variable of a test, which outlives the call.
    #[cfg(test)]
    pub(crate) const fn of(target: &mut T) -> Self {
        Self(target)
    }
}

impl<E: Form> Out<Event<E>> {
    /// Returns the number of the stored event; `None` if the pointer is null.
    #[inline]
    pub(crate) fn event_number(self) -> Option<u32> {
        // SAFETY: it is null, or the C caller promises that it points to an event. An event begins
        // with its number.
        (!self.0.is_null()).then(|| unsafe { (&raw const (*self.0).number).read_unaligned() })
    }
}

impl<T: Plain> Out<T> {
    /// Returns the output, or an error if the pointer is null.
    ///
    /// # Errors
    /// INVALID_PARAMETER with `position`, counted from 1: the pointer is null.
    pub(crate) fn required(self, position: u8) -> Result<Output<T>> {
        if self.0.is_null() {
            return Err(Error::invalid_argument(position));
        }
        Ok(Output(self.0))
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns true if the pointer is not null and, as far as the system tells, a value can be
    /// stored there.
    pub(crate) fn is_writable(self) -> bool {
        self.allows(1, Access::Write)
    }

    /// Returns true if the pointer is not null, and there are `count` values with this access.
    pub(crate) fn allows(self, count: usize, needed: Access) -> bool {
        let allows = |pages: Pages| pages.allow(needed);
        !self.0.is_null() && self.pages(count).is_some_and(allows)
    }

    /// Returns the pages of `count` values; `None` if there cannot be so many.
    pub(crate) fn pages(self, count: usize) -> Option<Pages> {
        Pages::of(self.0.addr(), count.checked_mul(size_of::<T>())?)
    }

    /// Returns the value that the caller stored, for a pointer used in both directions.
    pub(crate) fn get(self) -> Option<T> {
        In(self.0.cast_const()).get()
    }

    /// Stores a value if the pointer is not null.
    pub(crate) fn offer(self, value: T) {
        if let Ok(output) = self.required(0) {
            output.put(value);
        }
    }
}

/// Room for a value; the pointer is not null.
#[derive(Debug)]
pub(crate) struct Output<T>(*mut T);

impl<T> Clone for Output<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Output<T> {}

impl<T: Plain> Output<T> {
    /// Stores the value.
    pub(crate) fn put(self, value: T) {
        // SAFETY: outputs are made only of pointers from C that are not null, so the caller
        // promises room for a `T`.
        unsafe { self.0.write_unaligned(value) }
    }
}

impl<E: Form> Output<Event<E>> {
    /// Stores the event of a transfer.
    ///
    /// Writes only the fields that have a meaning for a transfer.
    #[inline]
    pub(crate) fn put_transfer(self, number: u32, evd: CHandle, transfer: TransferData<E>) {
        // SAFETY: as in `put`; all three are parts of the event that there is room for.
        unsafe {
            (&raw mut (*self.0).number).write_unaligned(number);
            (&raw mut (*self.0).evd).write_unaligned(evd);
            (&raw mut (*self.0).data.transfer).write_unaligned(transfer);
        }
    }
}

/// A pointer to the first of several values, or null.
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
    /// Wraps an address that is an argument from C, read from its list.
    pub(super) const fn at(address: *const T) -> Self {
        Self(address)
    }
}

/// Maximum number of values that are kept on the stack. No device takes more segments in one
/// request.
const MOST: usize = 256;
/// Number of values that most requests do not exceed.
const FEW: usize = 8;

/// Returns true if an object in memory can have `bytes` bytes.
fn is_possible(bytes: usize) -> bool {
    isize::try_from(bytes).is_ok()
}

impl<T: Plain> List<T> {
    /// Converts `count` values and calls `with` on a slice of the results.
    ///
    /// # Errors
    /// - INVALID_PARAMETER with the position of the count: it is negative, or above the number that
    ///   any device takes.
    /// - INVALID_PARAMETER with the position of the list: the pointer is null, and `count` is not
    ///   0.
    /// - Those of `with`.
    #[inline(never)]
    pub(crate) fn with<U: Copy + Default, R>(
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
        // A small array for few values, because the whole array is cleared.
        if count <= FEW {
            let mut values = [U::default(); FEW];
            with(self.converted(count, convert, &mut values))
        } else {
            let mut values = [U::default(); MOST];
            with(self.converted(count, convert, &mut values))
        }
    }

    /// Returns the value if `count` is 1 and the pointer is not null.
    #[inline]
    pub(crate) fn only(self, count: i32) -> Option<T> {
        // SAFETY: the pointer is not null, so the C caller promises that `count` values follow.
        (count == 1 && !self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }

    /// Converts values as `with` does, with no limit but that of memory.
    ///
    /// Values that are too many for the stack are kept on the heap.
    ///
    /// # Errors
    /// As `with`; INSUFFICIENT_RESOURCES (MEMORY): there is no memory for the results.
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
            // SAFETY: the pointer is not null, so the C caller promises that `count` values follow.
            // `index` is below `count`.
            values.push(convert(unsafe { self.0.add(index).read_unaligned() }));
        }
        with(&values)
    }

    /// Stores the first `count` values, converted, in `target`, which has room for them.
    fn converted<U>(self, count: usize, convert: impl Fn(T) -> U, target: &mut [U]) -> &[U] {
        for (index, value) in target.iter_mut().enumerate().take(count) {
            // SAFETY: the pointer is not null if `count` is not 0, so the C caller promises that
            // `count` values follow. `index` is below `count`.
            *value = convert(unsafe { self.0.add(index).read_unaligned() });
        }
        target.get(..count).unwrap_or_default()
    }
}

impl<T: Plain> List<T> {
    /// Returns the value at `index`; `None` if the pointer is null.
    ///
    /// The caller promises that the list has more than `index` values.
    pub(crate) fn nth(self, index: usize) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the pointer is not null, so the C caller promises as many values as the call
        // says.
        Some(unsafe { self.0.add(index).read_unaligned() })
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns true if the pointer is not null and, as far as the system tells, `count` values can
    /// be read.
    pub(crate) fn is_readable(self, count: usize) -> bool {
        self.is_readable_beside(count, Pages::NONE)
    }

    /// As `is_readable`; asks the system about pages other than `known` ones only.
    pub(crate) fn is_readable_beside(self, count: usize, known: Pages) -> bool {
        let allows = |pages| all_allow(&mut [pages], known, Access::Read);
        !self.0.is_null() && Out(self.0.cast_mut()).pages(count).is_some_and(allows)
    }
}

impl<T: Plain> Out<T> {
    /// Stores one of several values if the pointer is not null.
    ///
    /// The caller of the C function said that there is room for more than `index` values.
    pub(crate) fn put_at(self, index: usize, value: T) {
        if !self.0.is_null() {
            // SAFETY: the pointer is not null, so the C caller promises room for several values,
            // this one among them.
            unsafe { self.0.wrapping_add(index).write_unaligned(value) }
        }
    }

    /// Returns the values as a list of values to read.
    pub(crate) fn list(self) -> List<T> {
        List(self.0.cast_const())
    }
}

impl Out<ScatterGather> {
    /// Stores the number of entries that are left, and touches no other field.
    pub(crate) fn put_residual(self, residual: u64) {
        if !self.0.is_null() {
            // SAFETY: the pointer is not null, so the C caller promises that it points to the
            // structure.
            unsafe { (&raw mut (*self.0).residual_count).write_unaligned(residual) }
        }
    }
}

impl List<u8> {
    /// Copies `size` bytes, or as many as `into` has room for; returns their number.
    ///
    /// # Errors
    /// - INVALID_PARAMETER with the position of the size: it is negative.
    /// - INVALID_PARAMETER with the next position: the pointer is null, and `size` is not 0.
    pub(crate) fn copy(self, size: i32, position: u8, into: &mut [u8]) -> Result<usize> {
        let size = usize::try_from(size).map_err(|_| Error::invalid_argument(position))?;
        if size != 0 && self.0.is_null() {
            return Err(Error::invalid_argument(position.saturating_add(1)));
        }
        let size = size.min(into.len());
        for (index, byte) in into.iter_mut().enumerate().take(size) {
            // SAFETY: the pointer is not null, so the C caller promises that `size` bytes follow.
            // `index` is below `size`.
            *byte = unsafe { self.0.add(index).read() };
        }
        Ok(size)
    }
}

/// A pointer to a string that ends with a zero byte, or null.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// Returns a copy of the string, in any encoding; `None` if the pointer is null.
    pub(crate) fn get(self) -> Option<CString> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the pointer is not null, so the C caller promises that it points to a string with
        // its end.
        let text = unsafe { CStr::from_ptr(self.0) };
        Some(text.to_owned())
    }

    /// Returns true if the pointer is null or, as far as the system tells, the string can be read
    /// up to its end.
    pub(crate) fn is_readable(self) -> bool {
        let mut next = self.0;
        while !next.is_null() {
            let left = page_size() - next.addr() % page_size();
            if !has_access(next.addr(), left, Access::Read) {
                return false;
            }
            for offset in 0..left {
                let byte = next.wrapping_add(offset);
                // SAFETY: the system says that the page can be read. If it cannot tell, the C
                // caller promises a string with its end, and no byte follows a zero one.
                if unsafe { byte.read() } == 0 {
                    return true;
                }
            }
            next = next.wrapping_add(left);
        }
        self.0.is_null()
    }
}

/// Text for C that stays as long as the process.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct StaticText(*const c_char);

// SAFETY: it is an address, or null.
unsafe impl Plain for StaticText {}

impl StaticText {
    /// Returns the address of a text.
    pub(crate) const fn new(text: &'static CStr) -> Self {
        Self(text.as_ptr())
    }

    /// Leaks a text and returns its address; null for `None`.
    pub(crate) fn kept(text: Option<CString>) -> Self {
        Self(text.map_or(std::ptr::null(), |text| text.into_raw().cast_const()))
    }
}

/// A function of the consumer with its argument: the agent of a notification object.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Agent {
    instance_data: *mut c_void,
    function: Option<extern "C" fn(*mut c_void, CHandle)>,
}

// SAFETY: by the interface, the consumer promises that the function may be called with its data on
// any thread.
unsafe impl Send for Agent {}

impl Agent {
    /// The absence of an agent.
    pub(crate) const NONE: Self = Self {
        instance_data: std::ptr::null_mut(),
        function: None,
    };

    /// Makes an agent whose argument is null.
    #[cfg(test)]
    pub(crate) const fn of(function: extern "C" fn(*mut c_void, CHandle)) -> Self {
        Self {
            instance_data: std::ptr::null_mut(),
            function: Some(function),
        }
    }

    /// Returns true if there is a function to call.
    pub(crate) fn is_some(self) -> bool {
        self.function.is_some()
    }

    /// Calls the function, if there is one.
    pub(crate) fn call(self, evd: CHandle) {
        if let Some(function) = self.function {
            function(self.instance_data, evd);
        }
    }
}
