//! Calls of the C libraries with any arguments that a C program may pass.
//!
//! Integers have any value, any pointer may be null, and a handle may be of another kind, stale,
//! foreign or a plain number. A pointer that is not null leads to memory, as C requires of a
//! caller; nothing else is promised. Every call returns a value that the header names. Nothing
//! panics, hangs or writes outside the passed memory. When everything is closed, no handle is valid
//! any more.

#[expect(unsafe_code, reason = "it writes the memory of arguments")]
pub mod rsm;
#[expect(unsafe_code, reason = "it makes the arguments of calls")]
mod source;
pub mod v1;
#[expect(
    unsafe_code,
    reason = "it calls through a C table, and defines functions that a provider calls"
)]
pub mod v2;

use std::mem::MaybeUninit;

use source::Source;

/// The bytes of a call in an input: its number, and its arguments' source.
///
/// Missing bytes are zero.
pub const CALL_SIZE: usize = 24;
/// The most calls of a run.
const CALLS: usize = 64;

/// The calls of a library by name: functions that make the arguments and call it.
type CallList<C> = [(&'static str, fn(&mut Source<'_>) -> C)];

/// Parts of the return codes of DAT.
const ERROR: u32 = 0x8000_0000;
const QUEUE_EMPTY: u32 = 0x000D_0000;
const INVALID_HANDLE: u32 = 0x8005_0000;

/// Makes the calls of an input, and checks the code of each; remembers all handles at the end.
fn play<'i, C: Copy>(
    input: &'i [u8],
    source: &mut Source<'i>,
    table: &CallList<C>,
    check: impl Fn(&str, C),
) {
    for bytes in input.chunks(CALL_SIZE).take(CALLS) {
        let number = source.begin(bytes) % table.len();
        let (name, call) = table[number];
        let code = call(source);
        source.end();
        check(name, code);
    }
    source.handles.append(&mut source.former);
}

/// The calls of a version of DAT that every run needs.
struct Dat {
    table: &'static CallList<u32>,
    /// Opens an adapter; returns it and its dispatcher.
    open: fn() -> [usize; 2],
    /// Names a code.
    strerror: fn(u32, [*mut *const u8; 2]) -> u32,
    close: fn(usize) -> u32,
    handle_type: fn(usize, *mut u32) -> u32,
}

impl Dat {
    /// Runs an input on two adapters.
    fn run(&self, input: &[u8]) {
        let mut source = Source::new(b"mock0\0");
        for _ in 0..2 {
            source.handles.extend((self.open)());
        }
        play(input, &mut source, self.table, |name, code| {
            // On a dispatcher of completions this code has no error class, as polling programs
            // expect.
            let is_empty = name == "dat_evd_dequeue" && code == QUEUE_EMPTY;
            assert!(
                code == 0 || code & ERROR != 0 || is_empty,
                "{name} returned {code:#x}"
            );
            let mut texts = [MaybeUninit::<*const u8>::uninit(); 2];
            let known = (self.strerror)(code, texts.each_mut().map(MaybeUninit::as_mut_ptr));
            assert_eq!(known, 0, "{name} returned {code:#x}, which has no name");
        });
        // An adapter's objects are freed with it.
        for handle in &source.handles {
            let _gone = (self.close)(*handle);
        }
        for handle in &source.handles {
            let mut kind = 0_u32;
            let code = (self.handle_type)(*handle, &raw mut kind);
            assert_eq!(
                code & 0xFFFF_0000,
                INVALID_HANDLE,
                "{handle:#x} means something: {kind}"
            );
        }
    }
}
