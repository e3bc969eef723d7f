//! Calls of the C library for DAT 1.2.

use dat_ffi::v1::types::*;
use dat_ffi::v1::{dat_get_handle_type, dat_ia_close, dat_ia_openv, dat_strerror};

use super::source::{Argument, LISTED, Source, Words, of_bytes, words};
use super::{CallList, Dat};

words! {
    LongTriplet: 3; EpAttributes: 6; SrqAttributes: 2; Event: 2; EpParam: 0; ProviderInfo: 0;
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
        calls {
            $($name:ident($($argument:ident: $type:ty),*) $(/ ($($later:ident: $later_type:ty),*))?
                $($gone:ident)? $slot:literal = $ours:path;)*
        }
        later { $($none:tt)* }
        table { $($table:tt)* }
        registry { $($own:ident($($own_argument:ident: $own_type:ty),*) = $does:path;)* }
    ) => {
        /// The calls by name.
        const TABLE: &CallList<u32> = &[
            $((stringify!($name), |source| {
                $(let $argument = Argument::make(source, stringify!($argument));)*
                dat_ffi::v1::$name($($argument),*)
            }),)*
            $((stringify!($own), |source| {
                $(let $own_argument = Argument::make(source, stringify!($own_argument));)*
                dat_ffi::v1::$own($($own_argument),*)
            }),)*
        ];
    };
}

dat_ffi::calls_of_dat!(table);

/// Returns the names of the calls, in the order of their numbers in inputs.
#[must_use]
pub fn names() -> Vec<&'static str> {
    TABLE.iter().map(|(name, _)| *name).collect()
}

fn open() -> [usize; 2] {
    let (mut evd, mut ia) = (0_usize, 0_usize);
    let name: Text = of_bytes(c"mock0".as_ptr());
    let pointers = (of_bytes(&raw mut evd), of_bytes(&raw mut ia));
    let code = dat_ia_openv(name, 8, pointers.0, pointers.1, 1, 2, 0);
    assert_eq!(code, 0, "an adapter");
    [ia, evd]
}

/// Runs an input: the number of each call, and the source of its arguments.
///
/// # Panics
/// A promise is broken.
pub fn run(input: &[u8]) {
    let library = Dat {
        table: TABLE,
        open,
        strerror: |code, [major, minor]| dat_strerror(code, of_bytes(major), of_bytes(minor)),
        close: |ia| dat_ia_close(of_bytes(ia), 0),
        handle_type: |handle, kind| dat_get_handle_type(of_bytes(handle), of_bytes(kind)),
    };
    library.run(input);
}
