//! The calls under their C names; each goes to the provider of its first argument's handle.
//!
//! The files of the folder `manual` document each call, and the manual pages are made of them too.

use dat_core::Error;

use super::types::*;
use super::{by_backend, foreign, forms, registry};
use crate::boundary::{
    Address as IaAddressPtr, LongTriplet as LmrTriplet, LongTriplet as RmrTriplet,
};
use crate::calls::result::code;
use crate::calls::{
    cno, connect, context, cr, ep, evd, ia, lmr, post, psp, pz, rmr, rsp, srq, text,
};
use crate::calls_of_dat;
use crate::list::types::*;
use crate::redirection::roles::*;

/// A return value.
pub type Code = u32;

/// The type of a handle in DAT 1.2, of every role: only the registry of 2.0 tells roles apart.
pub trait Named {
    /// The type of a handle.
    type Handle;
}

impl<R> Named for R {
    type Handle = CHandle;
}

type Ia = CHandle;
type Any = CHandle;
type Object<R> = <R as Named>::Handle;
type Maybe<R> = <R as Named>::Handle;
type Made<R> = Out<<R as Named>::Handle>;
type EventOut = Out<Event>;
type RequestOut = Out<CrParam>;
type EndpointParam = In<EpParam>;
type PrivateData = List<u8>;

macro_rules! function {
    (forms $function:ident) => {
        forms::$function
    };
    (by_backend $function:ident) => {
        by_backend::$function
    };
    ($module:ident $function:ident) => {
        $module::$function::<V1>
    };
}

// A thread that is cancelled in a wait unwinds through these functions, which have nothing to drop.
macro_rules! define {
    (
        calls {
            $($name:ident($first:ident: $kind:ty $(, $argument:ident: $type:ty)*)
                $(/ ($($later:ident: $later_type:ty),*))? $($gone:ident)? $slot:literal = $module:ident::$function:ident;)*
        }
        later { $($none:tt)* }
        table { $($table:tt)* }
        registry {
            $($own:ident($($own_argument:ident: $own_type:ty),*) = $does:path;)*
        }
    ) => {
        $(
            #[doc = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/manual/", stringify!($name), ".md"))]
            pub extern "C-unwind" fn $name($first: $kind $(, $argument: $type)*) -> Code {
                match foreign::provider_of($first) {
                    None => function!($module $function)($first $(, $argument)*),
                    Some(guest) => {
                        let called = guest.call($slot, ($first, $($argument,)*));
                        called.unwrap_or_else(|| code::<V1>(Err(Error::not_implemented())))
                    }
                }
            }
        )*
        $(
            #[doc = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/manual/", stringify!($own), ".md"))]
            pub extern "C-unwind" fn $own($($own_argument: $own_type),*) -> Code {
                $does($($own_argument),*)
            }
        )*

        /// Slots of the table, and the calls that use them.
        #[cfg(test)]
        pub(crate) const SLOTS: &[(usize, &str)] = &[$(($slot, stringify!($name))),*];
    };
}

calls_of_dat!(define);
