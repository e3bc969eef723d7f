//! Calls of the C library for DAT 1.2.

use std::mem::MaybeUninit;

use dat_ffi::v1::types::*;
use dat_ffi::v1::{dat_get_handle_type, dat_ia_close, dat_ia_openv, dat_strerror};

use super::source::{Argument, LISTED, Source, Words, of_bytes};
use super::{CALL_SIZE, CALLS, ERROR, INVALID_HANDLE, QUEUE_EMPTY};

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

impl Argument for List<LongTriplet> {
    fn make(source: &mut Source<'_>, _name: &str) -> Self {
        of_bytes(source.filled(LISTED, 8, 9))
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
        /// The calls by name.
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

/// Returns the number of a call in inputs.
///
/// # Panics
/// No call has this name.
#[must_use]
pub fn number_of(name: &str) -> u8 {
    let at = TABLE.iter().position(|(known, _)| *known == name);
    at.expect("a call") as u8
}

/// Returns the number of calls.
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

/// Runs an input: the number of each call, and the source of its arguments.
///
/// # Panics
/// A promise is broken.
pub fn run(input: &[u8]) {
    let mut source = Source::new(b"mock0\0");
    for _ in 0..2 {
        source.handles.extend(open().expect("an adapter"));
    }
    for bytes in input.chunks(CALL_SIZE).take(CALLS) {
        let number = source.begin(bytes) % TABLE.len();
        let (name, call) = TABLE[number];
        let code = call(&mut source);
        source.end();
        // On a dispatcher of completions this code has no error class, as polling programs expect.
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
    // An adapter's objects are freed with it.
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
