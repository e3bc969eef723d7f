//! Names and versions of the exports; `build.rs` defines the versions.

mod exit;
mod files;
mod open;

use core::ffi::{c_int, c_uint};

use crate::boundary::{Handle, Out};
use crate::context::Context;
use crate::errors::done;
use crate::query::gid_type;

/// Makes an export a jump to the function: the compiler cannot give versions.
#[cfg(target_arch = "x86_64")]
macro_rules! export {
    ($at:literal $version:literal $name:ident $function:path) => {
        export!(
            concat!("exported_", stringify!($name), "_", $version),
            concat!(stringify!($name), $at, $version),
            $function
        );
    };
    ($symbol:expr, $versioned:expr, $function:path) => {
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
}

/// Makes an export without a version, which the usual linker has no script for.
///
/// It serves references of any version, but `dlvsym` finds none. There are no old forms.
#[cfg(target_arch = "aarch64")]
macro_rules! export {
    ("@@" $version:literal $name:ident $function:path) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        extern "C" fn $name() {
            core::arch::naked_asm!("b {function}", function = sym $function)
        }
    };
    ("@" $version:literal $name:ident $function:path) => {};
}

/// Makes the exports of the list.
macro_rules! exports {
    (@ $version:literal $name:ident = $module:ident) => {
        export!("@@" $version $name crate::$module::$name);
    };
    (@ $version:literal $name:ident : $refusal:ident) => {
        export!("@@" $version $name crate::refusals::$refusal);
    };
    (
        $($version:literal { $($how:ident $sign:tt $($name:ident)*;)* })*
        old { $($old:literal { $($refusal:ident : $($old_name:ident)*;)* })* }
    ) => {
        $($($(exports!(@ $version $name $sign $how);)*)*)*
        $($($(export!("@" $old $old_name crate::refusals::$refusal);)*)*)*
    };
}

crate::list::calls_of_verbs!(exports);

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
