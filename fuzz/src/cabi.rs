//! Calls of the C library for DAT 1.2 with whatever a C program may hand over: any integers, null for any pointer, and for handles
//! those of any kind, stale ones, foreign ones and plain numbers.
//!
//! A pointer that is not null leads to memory, as C asks of whoever calls; nothing else is promised. Every call returns what the header
//! has a name for; nothing panics, hangs or is written beside a place; and when the adapters are closed no handle means anything any
//! more.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::mem::{MaybeUninit, size_of};
use std::ptr;

use dat_ffi::v1::types::*;
use dat_ffi::v1::{dat_get_handle_type, dat_ia_close, dat_ia_openv, dat_strerror};

/// Bytes of a call in an input: its number, and what its arguments are made from; behind these all are zero.
pub const CALL_SIZE: usize = 24;
/// Calls of a run.
const CALLS: usize = 64;
/// Handles that a run remembers, also when they are stale.
const HANDLES: usize = 64;
/// Memory that may be registered.
const REGISTERED: usize = 1 << 16;
/// Memory behind a pointer to several values: more than any call may read.
const LISTED: usize = 1 << 14;
/// `DAT_MEM_TYPE_VIRTUAL`, and `DAT_MEM_TYPE_LMR`, which has a handle in the place of an address.
const VIRTUAL: u32 = 0;
const OF_REGION: u32 = 1;
/// How long a call may wait, in microseconds.
const PATIENCE: u32 = 50;
const ERROR: u32 = 0x8000_0000;
const QUEUE_EMPTY: u32 = 0x000D_0000;
const INVALID_HANDLE: u32 = 0x8005_0000;

#[repr(align(4096))]
struct Memory(UnsafeCell<[u8; REGISTERED]>);

// SAFETY: its bytes are read and written by the library alone, which treats them as a device's.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; REGISTERED]));

/// What is left of a call, and what arguments are made from beside it.
struct Source<'i> {
    bytes: &'i [u8],
    handles: Vec<usize>,
    /// Those that gave their places to others.
    former: Vec<usize>,
    /// Blocks behind the pointers of a call.
    blocks: Vec<(*mut u8, Layout)>,
    /// Places for handles among them.
    places: Vec<*const usize>,
    /// The kind of memory that a call speaks of.
    memory: u32,
}

impl Source<'_> {
    fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                *first
            }
            None => 0,
        }
    }

    /// A number that a call may be meant for, or one at an edge, or any.
    fn number(&mut self) -> u64 {
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

    fn handle(&mut self) -> usize {
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
    fn block(&mut self, size: usize, align: usize) -> *mut u8 {
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

    /// Memory with numbers in its first words.
    fn filled(&mut self, size: usize, align: usize, numbers: usize) -> *mut u8 {
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
    fn end(&mut self) {
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
trait Argument: Sized {
    fn make(source: &mut Source<'_>, name: &str) -> Self;
}

/// A value of a type that C has as a pointer or a structure of words, from its bytes.
fn of_bytes<T, U>(value: U) -> T {
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
        ];
        if !place.is_null() && size_of::<T>() == size_of::<usize>() && is_handle.contains(&name) {
            source.places.push(place.cast());
        }
        of_bytes(place)
    }
}

/// Words at the begin of a structure that are no pointers.
trait Words {
    const COUNT: usize;
}

impl Words for LongTriplet {
    const COUNT: usize = 3;
}

impl Words for EpAttributes {
    const COUNT: usize = 6;
}

impl Words for SrqAttributes {
    const COUNT: usize = 2;
}

impl Words for Event {
    const COUNT: usize = 2;
}

impl Words for EpParam {
    const COUNT: usize = 0;
}

impl Words for ProviderInfo {
    const COUNT: usize = 0;
}

impl<T: Words> Argument for In<T> {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        of_bytes(source.filled(size_of::<T>(), align_of::<T>(), T::COUNT))
    }
}

impl Argument for List<LongTriplet> {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        of_bytes(source.filled(LISTED, 8, 9))
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
            0 => b"mock0\0",
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

impl Argument for Option<Guest> {
    fn make(_source: &mut Source<'_>, _name: &str) -> Self {
        None
    }
}

macro_rules! table {
    (
        providers { $($name:ident($($argument:ident: $type:ty),*) $slot:literal = $ours:path;)* }
        registry { $($own:ident($($own_argument:ident: $own_type:ty),*) = $does:path;)* }
    ) => {
        /// The calls, and their names.
        const TABLE: &[(&str, fn(&mut Source<'_>) -> u32)] = &[
            $((stringify!($name), |source| {
                $(let $argument = <$type as Argument>::make(source, stringify!($argument));)*
                dat_ffi::v1::$name($($argument),*)
            }),)*
            $((stringify!($own), |source| {
                $(let $own_argument = <$own_type as Argument>::make(source, stringify!($own_argument));)*
                dat_ffi::v1::$own($($own_argument),*)
            }),)*
        ];
    };
}

dat_ffi::calls_of_dat_1_2!(table);

/// The number of a call in inputs.
///
/// # Panics
/// There is none of that name.
#[must_use]
pub fn number_of(name: &str) -> u8 {
    let at = TABLE.iter().position(|(known, _)| *known == name);
    at.expect("a call") as u8
}

/// How many calls there are.
#[must_use]
pub const fn calls() -> usize {
    TABLE.len()
}

fn open() -> Option<[usize; 2]> {
    let (mut evd, mut ia) = (0_usize, 0_usize);
    let name: Text = of_bytes(c"mock0".as_ptr());
    let code = dat_ia_openv(
        name,
        8,
        of_bytes(&raw mut evd),
        of_bytes(&raw mut ia),
        1,
        2,
        0,
    );
    (code == 0).then_some([ia, evd])
}

/// Runs an input: for each call its number and what its arguments are made from.
///
/// # Panics
/// If a promise is broken.
pub fn run(input: &[u8]) {
    let mut source = Source {
        bytes: &[],
        handles: Vec::new(),
        former: Vec::new(),
        blocks: Vec::new(),
        places: Vec::new(),
        memory: VIRTUAL,
    };
    for _ in 0..2 {
        source.handles.extend(open().expect("an adapter"));
    }
    for bytes in input.chunks(CALL_SIZE).take(CALLS) {
        source.bytes = bytes;
        let number = usize::from(source.byte()) % TABLE.len();
        let (name, call) = TABLE[number];
        source.memory = VIRTUAL;
        let code = call(&mut source);
        source.end();
        // Which has no class where completions come, as programs expect that poll.
        let is_empty = name == "dat_evd_dequeue" && code == QUEUE_EMPTY;
        assert!(
            code == 0 || code & ERROR != 0 || is_empty,
            "{name} returned {code:#x}"
        );
        let mut texts = [MaybeUninit::<*const u8>::uninit(); 2];
        let [major, minor] = &mut texts;
        let known = dat_strerror(code, of_bytes(&raw mut *major), of_bytes(&raw mut *minor));
        assert_eq!(known, 0, "{name} returned {code:#x}, which has no name");
    }
    // Whatever there is goes with its adapter.
    source.handles.append(&mut source.former);
    for handle in &source.handles {
        let _gone = dat_ia_close(of_bytes(*handle), 0);
    }
    for handle in &source.handles {
        let mut kind = 0_u32;
        let code = dat_get_handle_type(of_bytes(*handle), of_bytes(&raw mut kind));
        assert_eq!(
            code & 0xFFFF_0000,
            INVALID_HANDLE,
            "{handle:#x} means something: {kind}"
        );
    }
}
