//! The arguments of a C program, made from the bytes of an input.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::mem::size_of;
use std::ptr;

use dat_ffi::v1::types::{
    Address, Agent, CHandle, In, List, Out, ProviderInfo, RegionDescription, Text,
};

/// The most handles that a run remembers, including stale ones.
pub(super) const HANDLES: usize = 64;
/// The bytes of memory that may be registered.
pub(super) const REGISTERED: usize = 1 << 16;
/// The bytes at a pointer to several values: more than any call may read.
pub(super) const LISTED: usize = 1 << 14;
/// `DAT_MEM_TYPE_VIRTUAL`, and `DAT_MEM_TYPE_LMR`, which has a handle in place of an address.
const VIRTUAL: u32 = 0;
const OF_REGION: u32 = 1;
/// The offset of a connection request's handle in `DAT_EVENT`.
const EVENT_REQUEST: usize = 40;
/// The longest wait of a call, in microseconds.
const PATIENCE: u32 = 50;

#[repr(align(4096))]
pub(super) struct Memory(pub(super) UnsafeCell<[u8; REGISTERED]>);

// SAFETY: only the library reads and writes its bytes, and treats them as shared with a device.
unsafe impl Sync for Memory {}

pub(super) static MEMORY: Memory = Memory(UnsafeCell::new([0; REGISTERED]));

/// The remaining bytes of a call, and the state that its arguments are made from.
pub(super) struct Source<'i> {
    pub(super) bytes: &'i [u8],
    pub(super) handles: Vec<usize>,
    /// Handles that were replaced by newer ones.
    pub(super) former: Vec<usize>,
    /// The memory blocks at the pointers of a call.
    blocks: Vec<(*mut u8, Layout)>,
    /// The pointers to handles in these blocks.
    handle_pointers: Vec<*const usize>,
    /// The kind of memory that a call names.
    memory: u32,
    /// A name that can be opened.
    known: &'static [u8],
}

impl<'i> Source<'i> {
    /// Returns an empty source; `known` is a name that can be opened, with its zero.
    pub(super) fn new(known: &'static [u8]) -> Self {
        Self {
            bytes: &[],
            handles: Vec::new(),
            former: Vec::new(),
            blocks: Vec::new(),
            handle_pointers: Vec::new(),
            memory: VIRTUAL,
            known,
        }
    }

    /// Starts a call whose arguments are made from `bytes`; returns its number, the first byte.
    pub(super) fn begin(&mut self, bytes: &'i [u8]) -> usize {
        self.bytes = bytes;
        self.memory = VIRTUAL;
        usize::from(self.byte())
    }

    pub(super) fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                *first
            }
            None => 0,
        }
    }

    /// Returns a plausible number, a boundary value, or any number.
    pub(super) fn number(&mut self) -> u64 {
        let how = self.byte();
        match how {
            0..=127 => u64::from(how),
            128..=191 => 1 << (how % 64),
            192..=199 => u64::from(self.byte()) << 8 | u64::from(self.byte()),
            200..=207 => u64::from(u32::MAX) - u64::from(how - 200),
            208..=215 => u64::MAX - u64::from(how - 208),
            216..=223 => i32::MAX as u64 - u64::from(how - 216),
            224..=231 => 1 << 31 | u64::from(how - 224),
            _ => {
                let mut bytes = [0; 8];
                bytes.fill_with(|| self.byte());
                u64::from_le_bytes(bytes)
            }
        }
    }

    pub(super) fn handle(&mut self) -> usize {
        let which = self.byte();
        let known = self.handles.get(usize::from(which & 0x7F) % HANDLES);
        match (known.copied(), which) {
            (_, 0) => 0,
            (Some(handle), 0..=0xDF) => handle,
            // A value near the handle, inside its object or next to it.
            (Some(handle), _) => handle.wrapping_add(self.byte() as i8 as usize),
            (None, _) => self.number() as usize,
        }
    }

    /// Returns memory of this size, all zero, or sometimes null.
    pub(super) fn block(&mut self, size: usize, align: usize) -> *mut u8 {
        if self.byte() == 0xFF {
            return ptr::null_mut();
        }
        let layout = Layout::from_size_align(size.max(1), align).expect("a layout");
        // SAFETY: the size is not zero.
        let block = unsafe { std::alloc::alloc_zeroed(layout) };
        assert!(!block.is_null(), "memory");
        self.blocks.push((block, layout));
        block
    }

    /// Returns memory of this size for words, never null.
    pub(super) fn required(&mut self, size: usize) -> *mut u8 {
        let kept = std::mem::replace(&mut self.bytes, &[0]);
        let block = self.block(size, 8);
        self.bytes = kept;
        block
    }

    /// Returns memory with numbers in its first words.
    pub(super) fn filled(&mut self, size: usize, align: usize, numbers: usize) -> *mut u8 {
        let block = self.block(size, align);
        if !block.is_null() {
            for at in 0..numbers.min(size / 8) {
                let number = self.number();
                // SAFETY: inside the block.
                unsafe { block.cast::<u64>().add(at).write_unaligned(number) };
            }
        }
        block
    }

    /// Ends a call: remembers new handles, and frees its memory.
    pub(super) fn end(&mut self) {
        for pointer in self.handle_pointers.drain(..) {
            // SAFETY: in a block of this call.
            let handle = unsafe { pointer.read() };
            if handle != 0 {
                match self.handles.len() {
                    0..HANDLES => self.handles.push(handle),
                    _ => {
                        let slot = &mut self.handles[(handle >> 4) % HANDLES];
                        self.former.push(std::mem::replace(slot, handle));
                    }
                }
            }
        }
        for (block, layout) in self.blocks.drain(..) {
            // SAFETY: made by `block` with this layout.
            unsafe { std::alloc::dealloc(block, layout) };
        }
    }
}

/// An argument of a call; its name selects the promises of C about it.
pub(super) trait Argument: Sized {
    fn make(source: &mut Source<'_>, name: &str) -> Self;
}

/// Converts a value to a C pointer or structure of words of the same size.
pub(super) fn of_bytes<T, U>(value: U) -> T {
    assert_eq!(size_of::<T>(), size_of::<U>());
    // SAFETY: the sizes are equal, and C passes such values.
    unsafe { std::mem::transmute_copy(&value) }
}

impl Argument for u32 {
    fn make(source: &mut Source<'_>, name: &str) -> Self {
        let number = source.number() as Self;
        match name {
            "timeout" => number.min(PATIENCE),
            "memory_type" | "mem_type" => {
                source.memory = number;
                number
            }
            _ => number,
        }
    }
}

impl Argument for i32 {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        source.number() as Self
    }
}

impl Argument for u64 {
    fn make(source: &mut Source<'_>, name: &str) -> Self {
        let number = source.number();
        match name {
            // The pointer's memory has this many entries.
            "count" | "num_segments" => number % 64,
            "length" if source.memory != OF_REGION => number.min(REGISTERED as Self),
            _ => number,
        }
    }
}

impl Argument for CHandle {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        of_bytes(source.handle())
    }
}

impl<T> Argument for Out<T> {
    fn make(source: &mut Source<'_>, name: &str) -> Self {
        let pointer = source.block(size_of::<T>(), align_of::<T>());
        let is_handle = "ia async_evd cno evd ep lmr rmr psp rsp pz srq controller segment import \
                         local topology"
            .split(' ')
            .any(|handle| Some(handle) == name.strip_suffix("_handle").or(Some(name)));
        if !pointer.is_null() && size_of::<T>() == size_of::<usize>() && is_handle {
            source.handle_pointers.push(pointer.cast());
        }
        if !pointer.is_null() && name == "event" {
            // SAFETY: the handle of a connection request is inside the event.
            source
                .handle_pointers
                .push(unsafe { pointer.add(EVENT_REQUEST) }.cast());
        }
        of_bytes(pointer)
    }
}

/// The number of words at the start of a structure that are no pointers.
pub(super) trait Words {
    const COUNT: usize;
}

/// Gives structures of C their numbers of words.
macro_rules! words {
    ($($name:ident: $count:literal;)*) => {$(
        impl Words for $name {
            const COUNT: usize = $count;
        }
    )*};
}
pub(super) use words;

impl<T: Words> Argument for In<T> {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        of_bytes(source.filled(size_of::<T>(), align_of::<T>(), T::COUNT))
    }
}

impl Argument for List<u8> {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        of_bytes(source.filled(LISTED, 8, 2))
    }
}

impl Argument for List<Out<ProviderInfo>> {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        // As many places as there can be entries, some of them null.
        let list = source.block(LISTED, 8);
        if !list.is_null() {
            for at in 0..LISTED / size_of::<usize>() {
                let pointer = match at {
                    0..8 => source.block(size_of::<ProviderInfo>(), 8),
                    _ => ptr::null_mut(),
                };
                // SAFETY: inside the block.
                unsafe { list.cast::<*mut u8>().add(at).write(pointer) };
            }
        }
        of_bytes(list)
    }
}

impl Argument for Address {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        // The largest address has 28 bytes.
        let pointer = source.block(32, 8);
        if !pointer.is_null() {
            let family: u16 = [2, 10, 0, 7][usize::from(source.byte() % 4)];
            let host = [127, 0, 0, source.byte() % 4];
            // SAFETY: inside the block.
            unsafe {
                pointer.cast::<u16>().write(family);
                pointer.add(4).cast::<[u8; 4]>().write(host);
            }
        }
        of_bytes(pointer)
    }
}

impl Argument for RegionDescription {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        let second = source.block(40, 8) as usize;
        let first = match source.memory {
            OF_REGION => source.handle(),
            _ => MEMORY.0.get() as usize,
        };
        of_bytes([first, second])
    }
}

extern "C" fn agent(_data: *mut std::ffi::c_void, _evd: CHandle) {}

impl Argument for Agent {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        let called: extern "C" fn(*mut std::ffi::c_void, CHandle) = agent;
        let function = match source.byte() % 2 {
            0 => 0,
            _ => called as usize,
        };
        of_bytes([0, function])
    }
}

impl Argument for Text {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        let text: &[u8] = match source.byte() % 4 {
            0 => source.known,
            1 => b"nobody\0",
            2 => b"\0",
            _ => &[b'x'; 300],
        };
        let pointer = source.block(text.len() + 1, 1);
        if !pointer.is_null() {
            // SAFETY: inside the block, whose last byte stays zero.
            unsafe { ptr::copy_nonoverlapping(text.as_ptr(), pointer, text.len()) };
        }
        of_bytes(pointer)
    }
}
