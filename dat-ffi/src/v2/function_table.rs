//! The table that a registry calls a provider through.

use std::ffi::CString;
use std::ptr;

use dat_devices::{ByAddress, DeviceAddress};

use super::edition::V2;
use super::{extension, forms, unsupported};
use crate::adapter::Openable;
use crate::boundary::{FUNCTIONS, FunctionTable};
use crate::calls::{cno, connect, context, cr, ep, evd, ia, lmr, post, psp, pz, rmr, rsp, srq};
use crate::calls_of_dat;

macro_rules! function {
    (by_backend dequeue) => {
        evd::dequeue::<V2, B>
    };
    (by_backend $function:ident) => {
        post::$function::<V2, B>
    };
    (forms $function:ident) => {
        forms::$function
    };
    (unsupported $function:ident) => {
        unsupported::$function
    };
    (extension $function:ident) => {
        extension::$function
    };
    ($module:ident $function:ident) => {
        $module::$function::<V2>
    };
}

macro_rules! table {
    (
        calls {
            $($name:ident($($argument:tt)*) $(/ ($($later_argument:tt)*))? $($gone:ident)?
                $slot:literal = $module:ident::$function:ident;)*
        }
        later { $($later:tt)* }
        table { $($table:tt)* }
        registry { $($none:tt)* }
    ) => {
        table! { @ $($name $slot $module $function;)* => $($later)* $($table)* }
    };
    (
        @ $($name:ident $slot:literal $module:ident $function:ident;)* =>
        $($more:ident($($argument:tt)*) $at:literal = $of:ident::$called:ident;)*
    ) => {
        /// The slots, and the names of their calls.
        #[cfg(test)]
        pub(crate) const SLOTS: &[(usize, &str)] = &[
            $(($slot, stringify!($name)),)*
            $(($at, stringify!($more)),)*
        ];

        /// Returns the addresses of the functions for a backend, in the order of `DAT_PROVIDER`.
        fn functions<B: Openable>(is_thread_safe: bool) -> [*const (); FUNCTIONS] {
            let mut functions = [ptr::null(); FUNCTIONS];
            $(functions[$slot] = function!($module $function) as *const ();)*
            $(functions[$at] = function!($of $called) as *const ();)*
            if !is_thread_safe {
                functions[0] = forms::open_for_one_thread as *const ();
            }
            functions
        }
    };
}

calls_of_dat!(table);

/// Returns the functions of the backend with a scheme; those of the last one serve all others.
macro_rules! by_scheme {
    ({ $scheme:expr, $safe:expr } $last:ident = $type:ty,) => {
        functions::<$type>($safe)
    };
    ({ $scheme:expr, $safe:expr } $first:ident = $type:ty, $($others:tt)+) => {
        match $scheme {
            <$type as ByAddress>::SCHEME => functions::<$type>($safe),
            _ => by_scheme! { { $scheme, $safe } $($others)+ },
        }
    };
}

/// Makes the table of a provider; it stays as long as the process, because handles lead to it.
///
/// Its posts and dequeues are those of the device's backend. They take objects of another one too,
/// but slowly.
pub(super) fn make(
    device_name: CString,
    is_thread_safe: bool,
    device: &DeviceAddress,
) -> &'static FunctionTable {
    Box::leak(Box::new(FunctionTable {
        device_name: device_name.into_raw(),
        extension: ptr::null_mut(),
        functions: dat_devices::backends! { [by_scheme] { device.scheme(), is_thread_safe } },
    }))
}
