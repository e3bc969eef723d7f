//! What a C program may hand over, made from the bytes of an input.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::mem::size_of;
use std::ptr;

use dat_ffi::v1::types::{
    Address, Agent, CHandle, In, List, Out, ProviderInfo, RegionDescription, Text,
};

/// Handles that a run remembers, also when they are stale.
pub(super) const HANDLES: usize = 64;
/// Memory that may be registered.
pub(super) const REGISTERED: usize = 1 << 16;
/// Memory behind a pointer to several values: more than any call may read.
pub(super) const LISTED: usize = 1 << 14;
/// `DAT_MEM_TYPE_VIRTUAL`, and `DAT_MEM_TYPE_LMR`, which has a handle in the place of an address.
const VIRTUAL: u32 = 0;
const OF_REGION: u32 = 1;
/// Where in `DAT_EVENT` the handle of a connection request is.
const EVENT_REQUEST: usize = 40;
/// How long a call may wait, in microseconds.
const PATIENCE: u32 = 50;

#[repr(align(4096))]
pub(super) struct Memory(pub(super) UnsafeCell<[u8; REGISTERED]>);

// SAFETY: its bytes are read and written by the library alone, which treats them as a device's.
unsafe impl Sync for Memory {}

pub(super) static MEMORY: Memory = Memory(UnsafeCell::new([0; REGISTERED]));

/// What is left of a call, and what arguments are made from beside it.
pub(super) struct Source<'i> {
    pub(super) bytes: &'i [u8],
    pub(super) handles: Vec<usize>,
    /// Those that gave their places to others.
    pub(super) former: Vec<usize>,
    /// Blocks behind the pointers of a call.
    blocks: Vec<(*mut u8, Layout)>,
    /// Places for handles among them.
    places: Vec<*const usize>,
    /// The kind of memory that a call speaks of.
    memory: u32,
    /// A name that something is opened by.
    known: &'static [u8],
}

impl<'i> Source<'i> {
    /// Nothing yet; `known` is a name that something is opened by, with its zero byte.
    pub(super) fn new(known: &'static [u8]) -> Self {
        Self {
            bytes: &[],
            handles: Vec::new(),
            former: Vec::new(),
            blocks: Vec::new(),
            places: Vec::new(),
            memory: VIRTUAL,
            known,
        }
    }

    /// A call begins, whose arguments are made from these bytes; its number comes first.
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

    /// A number that a call may be meant for, or one at an edge, or any.
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
            // Inside of what it stands for, and close by.
            (Some(handle), _) => handle.wrapping_add(self.byte() as i8 as usize),
            (None, _) => self.number() as usize,
        }
    }

    /// Memory of this size, all zero; null now and then.
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

    /// Memory of this size for words, which is there.
    pub(super) fn required(&mut self, size: usize) -> *mut u8 {
        let kept = std::mem::replace(&mut self.bytes, &[0]);
        let block = self.block(size, 8);
        self.bytes = kept;
        block
    }

    /// Memory with numbers in its first words.
    pub(super) fn filled(&mut self, size: usize, align: usize, numbers: usize) -> *mut u8 {
        let block = self.block(size, align);
        if !block.is_null() {
            for at in 0..numbers.min(size / 8) {
                let number = self.number();
                // SAFETY: inside of the block.
                unsafe { block.cast::<u64>().add(at).write_unaligned(number) };
            }
        }
        block
    }

    /// The end of a call: new handles are remembered, and its memory goes.
    pub(super) fn end(&mut self) {
        for place in self.places.drain(..) {
            // SAFETY: a block of this call.
            let handle = unsafe { place.read() };
            if handle != 0 {
                match self.handles.len() {
                    0..HANDLES => self.handles.push(handle),
                    _ => {
                        let place = &mut self.handles[(handle >> 4) % HANDLES];
                        self.former.push(std::mem::replace(place, handle));
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

/// An argument of a call; its name says what C promises of it.
pub(super) trait Argument: Sized {
    fn make(source: &mut Source<'_>, name: &str) -> Self;
}

/// A value of a type that C has as a pointer or a structure of words, from its bytes.
pub(super) fn of_bytes<T, U>(value: U) -> T {
    assert_eq!(size_of::<T>(), size_of::<U>());
    // SAFETY: of the same size, and as C would hand it over.
    unsafe { std::mem::transmute_copy(&value) }
}

impl Argument for u32 {
    fn make(source: &mut Source<'_>, name: &str) -> Self {
        let number = source.number() as Self;
        match name {
            "timeout" => number.min(PATIENCE),
            "memory_type" => {
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
            // So many there are behind the pointer.
            "count" => number % 64,
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
        let place = source.block(size_of::<T>(), align_of::<T>());
        let is_handle = [
            "ia",
            "async_evd",
            "cno",
            "evd",
            "ep",
            "lmr",
            "rmr",
            "psp",
            "rsp",
            "pz",
            "srq",
            "controller",
            "segment",
            "import",
            "local",
            "topology",
        ];
        if !place.is_null() && size_of::<T>() == size_of::<usize>() && is_handle.contains(&name) {
            source.places.push(place.cast());
        }
        if !place.is_null() && name == "event" {
            // Where the handle of a connection request is.
            // SAFETY: inside of an event.
            source
                .places
                .push(unsafe { place.add(EVENT_REQUEST) }.cast());
        }
        of_bytes(place)
    }
}

/// Words at the begin of a structure that are no pointers.
pub(super) trait Words {
    const COUNT: usize;
}

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
                let place = match at {
                    0..8 => source.block(size_of::<ProviderInfo>(), 8),
                    _ => ptr::null_mut(),
                };
                // SAFETY: inside of the block.
                unsafe { list.cast::<*mut u8>().add(at).write(place) };
            }
        }
        of_bytes(list)
    }
}

impl Argument for Address {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        // The largest address has 28 bytes.
        let place = source.block(32, 8);
        if !place.is_null() {
            let family: u16 = [2, 10, 0, 7][usize::from(source.byte() % 4)];
            let host = [127, 0, 0, source.byte() % 4];
            // SAFETY: inside of the block.
            unsafe {
                place.cast::<u16>().write(family);
                place.add(4).cast::<[u8; 4]>().write(host);
            }
        }
        of_bytes(place)
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
        let place = source.block(text.len() + 1, 1);
        if !place.is_null() {
            // SAFETY: inside of the block, whose last byte stays zero.
            unsafe { ptr::copy_nonoverlapping(text.as_ptr(), place, text.len()) };
        }
        of_bytes(place)
    }
}
