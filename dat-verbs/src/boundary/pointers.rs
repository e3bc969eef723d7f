//! Pointers from C.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;

use nix::errno::Errno;

use super::layout::{ibv_async_event, ibv_qp_init_attr, ibv_wc};
use super::objects::Handle;
use crate::errors::{Result, require};

/// A value that a program lends for the call, or null.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct In<T>(*const T);

/// Room for a value, or null.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Out<T>(*mut T);

/// Room for bytes whose number the call says, or null.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Room(*mut c_void);

/// A text, or null.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

/// An address of the program that is not followed here.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address(pub(crate) *mut c_void);

// SAFETY: it is not followed.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

// SAFETY: its addresses are not followed; handles of them are looked up first.
unsafe impl Send for ibv_qp_init_attr {}
// SAFETY: as above.
unsafe impl Sync for ibv_qp_init_attr {}

impl<T: Copy> In<T> {
    /// Returns the value that a pointer of the same call names.
    pub(crate) const fn at(pointer: *const T) -> Self {
        Self(pointer)
    }

    /// Returns the same value as one of another type, which the call names.
    pub(crate) const fn cast<U>(self) -> In<U> {
        In(self.0.cast())
    }

    /// Returns the value; `None` for null.
    pub(crate) fn look(&self) -> Option<&T> {
        // SAFETY: the program passes null or such a value, which it does not change during the
        // call.
        unsafe { self.0.as_ref() }
    }

    pub(super) const fn pointer(&self) -> *const T {
        self.0
    }

    /// Returns a copy of the value.
    ///
    /// # Errors
    /// `EINVAL` for null.
    pub(crate) fn get(self) -> Result<T> {
        // SAFETY: the program passes null or such a value, of which any bits are valid.
        unsafe { self.0.as_ref() }.copied().ok_or(Errno::EINVAL)
    }
}

impl<T: Copy> Out<T> {
    /// Returns the room that a pointer of the same call names.
    pub(crate) const fn at(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// Returns the same room as one of another type, which begins it.
    pub(crate) const fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    pub(super) const fn pointer(self) -> *mut T {
        self.0
    }

    /// Returns the room behind this one.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Stores a value, except for null.
    pub(crate) fn set(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the program passes null or room for such a value.
            unsafe { self.0.write(value) };
        }
    }

    /// Stores a value.
    ///
    /// # Errors
    /// `EINVAL` for null.
    pub(crate) fn put(self, value: T) -> Result<()> {
        self.set(value);
        self.check()
    }

    /// Checks that there is room.
    ///
    /// # Errors
    /// `EINVAL` for null.
    pub(crate) fn check(self) -> Result<()> {
        require(!self.0.is_null(), Errno::EINVAL)
    }

    /// Returns a copy of the value that the program has there.
    ///
    /// # Errors
    /// `EINVAL` for null.
    pub(crate) fn get(self) -> Result<T> {
        // SAFETY: the program passes null or such a value, of which any bits are valid.
        unsafe { self.0.as_ref() }.copied().ok_or(Errno::EINVAL)
    }
}

impl Room {
    /// Returns the room that a pointer of the same call names.
    pub(crate) const fn at<T>(pointer: *mut T) -> Self {
        Self(pointer.cast())
    }

    /// Stores what fits of a value, and zeros behind it.
    ///
    /// # Errors
    /// `EINVAL` for null.
    pub(crate) fn put<T: Copy>(self, value: T, room: usize) -> Result<()> {
        require(!self.0.is_null(), Errno::EINVAL)?;
        let length = room.min(size_of::<T>());
        // SAFETY: the program passes null or as many bytes as it says, and the value has `length`.
        unsafe {
            self.0.cast::<u8>().write_bytes(0, room);
            core::ptr::copy_nonoverlapping((&raw const value).cast(), self.0, length);
        }
        Ok(())
    }

    /// Stores bytes; the program says that it has room for them.
    pub(crate) fn set_bytes(self, bytes: &[u8]) {
        if !self.0.is_null() {
            // SAFETY: as the caller says.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.cast(), bytes.len()) };
        }
    }

    /// Returns the same place, some bytes further.
    pub(crate) const fn behind(self, bytes: usize) -> Self {
        Self(self.0.wrapping_byte_add(bytes))
    }
}

impl Text {
    pub(crate) const NONE: Self = Self(core::ptr::null());

    /// Returns the text; `None` for null.
    pub(crate) fn get(&self) -> Option<&CStr> {
        // SAFETY: the program passes null or a text that it keeps during the call.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) })
    }

    pub(crate) const fn of(text: &'static CStr) -> Self {
        Self(text.as_ptr())
    }

    /// Returns the text in an array of an object that the program has.
    pub(crate) const fn at(first: *const c_char) -> Self {
        Self(first)
    }
}

/// Returns a list of pointers that ends with null and is freed by [`free_list`]; null without
/// memory.
pub(crate) fn list_of<T>(pointers: &[*mut T]) -> *mut *mut T {
    // SAFETY: the arguments are numbers.
    let list = unsafe { libc::calloc(pointers.len() + 1, size_of::<*mut T>()) }.cast::<*mut T>();
    if list.is_null() {
        return null_mut();
    }
    for (index, pointer) in pointers.iter().enumerate() {
        // SAFETY: the list has one pointer more.
        unsafe { list.add(index).write(*pointer) };
    }
    list
}

/// Frees a list of [`list_of`], or null.
pub(crate) fn free_list<T>(list: *mut *mut T) {
    // SAFETY: the program passes what it got, once.
    unsafe { libc::free(list.cast()) };
}

/// Returns a layout without content.
pub(crate) fn zeroed<T: Copy>() -> T {
    // SAFETY: the layouts consist of numbers, addresses and functions that may be missing.
    unsafe { core::mem::zeroed() }
}

/// Returns the object that an asynchronous event names.
pub(crate) const fn element_of<K>(event: &ibv_async_event) -> Handle<K> {
    // SAFETY: all members are addresses or numbers; of a number nothing is made before its kind is
    // compared.
    Handle::at(unsafe { event.element.cq })
}

/// Returns the immediate data of a completion.
pub(crate) const fn immediate_of(completion: &ibv_wc) -> u32 {
    // SAFETY: both members are numbers of 32 bits.
    unsafe { completion.__bindgen_anon_1.imm_data }
}
