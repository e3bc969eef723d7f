//! Names and versions of the exports.
//!
//! The compiler cannot give versions, so each export is a jump to the function. `build.rs` defines
//! the versions.

mod files;
mod open;

use core::ffi::{c_int, c_uint};

use crate::boundary::{Handle, Out};
use crate::context::Context;
use crate::errors::done;
use crate::query::gid_type;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the exports are assembler for x86-64 and AArch64");

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {function}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {function}"
    };
}

macro_rules! export {
    (@ $symbol:expr, $versioned:expr, $function:path) => {
        core::arch::global_asm!(
            concat!(".pushsection .text.", $symbol, ",\"ax\",%progbits"),
            concat!(".globl ", $symbol),
            concat!(".type ", $symbol, ",%function"),
            concat!($symbol, ":"),
            jump!(),
            concat!(".size ", $symbol, ", . - ", $symbol),
            concat!(".symver ", $symbol, ", ", $versioned),
            ".popsection",
            function = sym $function,
        );
    };
    (@ one $version:literal $name:ident = $module:ident) => {
        export!(
            @ concat!("exported_", stringify!($name)),
            concat!(stringify!($name), "@@", $version),
            crate::$module::$name
        );
    };
    (@ one $version:literal $name:ident : $refusal:ident) => {
        export!(
            @ concat!("exported_", stringify!($name)),
            concat!(stringify!($name), "@@", $version),
            crate::refusals::$refusal
        );
    };
    (
        $($version:literal { $($name:ident $sign:tt $how:ident;)* })*
        old { $($old:literal $old_name:ident : $refusal:ident;)* }
    ) => {
        $($(export!(@ one $version $name $sign $how);)*)*
        $(export!(
            @ concat!("exported_old_", stringify!($old_name)),
            concat!(stringify!($old_name), "@", $old),
            crate::refusals::$refusal
        );)*
    };
}

crate::list::calls_of_verbs!(export);

/// Stores the kind of a GID.
///
/// Its version in libibverbs differs between releases; without one it serves them all.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_query_gid_type(
    context: Handle<Context>,
    port: u8,
    index: c_uint,
    kind: Out<c_int>,
) -> c_int {
    done(gid_type(context, port, index).map(|found| {
        kind.set(found);
    }))
}
