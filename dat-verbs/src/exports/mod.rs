//! Names and versions of the exports; `build.rs` defines the versions.

mod exit;
mod files;
mod open;

use core::ffi::{c_int, c_uint};

use crate::boundary::{Handle, Out};
use crate::context::Context;
use crate::errors::done;
use crate::query::gid_type;

/// Makes each export a jump to the function: the compiler cannot give versions.
#[cfg(target_arch = "x86_64")]
macro_rules! export {
    (@ $symbol:expr, $versioned:expr, $function:path) => {
        core::arch::global_asm!(
            concat!(".pushsection .text.", $symbol, ",\"ax\",@progbits"),
            concat!(".globl ", $symbol),
            concat!(".type ", $symbol, ",@function"),
            concat!($symbol, ":"),
            "jmp {function}",
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
        $($version:literal { $($how:ident $sign:tt $($name:ident)*;)* })*
        old { $($old:literal { $($refusal:ident : $($old_name:ident)*;)* })* }
    ) => {
        $($($(export!(@ one $version $name $sign $how);)*)*)*
        $($($(export!(
            @ concat!("exported_old_", stringify!($old_name)),
            concat!(stringify!($old_name), "@", $old),
            crate::refusals::$refusal
        );)*)*)*
    };
}

/// Makes the exports without versions, which the usual linker has no script for.
///
/// They serve references of any version, but `dlvsym` finds none.
#[cfg(target_arch = "aarch64")]
macro_rules! export {
    (@ $name:ident, $function:path) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        extern "C" fn $name() {
            core::arch::naked_asm!("b {function}", function = sym $function)
        }
    };
    (@ one $name:ident = $module:ident) => {
        export!(@ $name, crate::$module::$name);
    };
    (@ one $name:ident : $refusal:ident) => {
        export!(@ $name, crate::refusals::$refusal);
    };
    (
        $($version:literal { $($how:ident $sign:tt $($name:ident)*;)* })*
        old { $($old:literal { $($refusal:ident : $($old_name:ident)*;)* })* }
    ) => {
        $($($(export!(@ one $name $sign $how);)*)*)*
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
    done(|| {
        kind.set(gid_type(context, port, index)?);
        Ok(())
    })
}
