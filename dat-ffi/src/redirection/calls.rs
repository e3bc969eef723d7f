//! The calls that are passed on to the provider of their first handle.
//!
//! The files of the folder `manual` document each call, and the manual pages are made of them too.

use dat_core::{Abi, Error, Result};

use super::arguments::{
    Any, Argument, EndpointParam, EventOut, First, Ia, Made, Maybe, Object, RequestOut,
};
use super::roles::*;
use crate::boundary::{
    Address as IaAddressPtr, ShortTriplet as LmrTriplet, ShortTriplet as RmrTriplet, StaticText,
    uncancelled,
};
use crate::calls::text;
use crate::calls_of_dat;
use crate::list::types::*;
use crate::v2::V2;
use crate::v2::types::{
    CnoParam, EpAttributes, EpParam, EvdParam, Event, IaAttributes, LmrParam, ProviderAttributes,
    PspParam, PzParam, RmrParam, RspParam, SrqAttributes, SrqParam,
};

/// `DAT_RETURN`.
pub type Code = u32;

type PrivateData = List<u8>;

#[cold]
pub(super) fn code(error: Error) -> Code {
    error.code(Abi::V2_0)
}

/// Returns true for slots whose calls handle cancellation in the provider.
///
/// These are waits, dequeues, posts, binds and synchronising calls.
const fn is_of_data(slot: usize) -> bool {
    matches!(slot, 10 | 20 | 23 | 31..=34 | 42 | 57 | 58 | 64)
}

/// Defines the calls: handles are checked, adapters converted, other arguments passed on.
macro_rules! redirected {
    (
        calls {
            $($name:ident($($argument:ident: $type:ty),*) $(/ ($($later:ident: $later_type:ty),*))?
                $($gone:ident)? $slot:literal = $module:ident::$function:ident;)*
        }
        later { $($none:tt)* }
        table { $($table:tt)* }
        registry { $($own:tt)* }
    ) => {
        $(redirected! { @ $name $slot [$($gone)?] ($($argument: $type),*) $(($($later: $later_type),*))? })*
    };
    (@ $name:ident $slot:literal $gone:tt $former:tt $later:tt) => {
        redirected! { @ $name $slot $gone $later }
    };
    // A thread that is cancelled in a wait unwinds through these functions, which have nothing to
    // drop.
    (@ $name:ident $slot:literal [$($gone:ident)?] ($first:ident: $object:ty $(, $argument:ident: $type:ty)*)) => {
        #[doc = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/manual/", stringify!($name), ".md"))]
        pub extern "C-unwind" fn $name($first: $object $(, $argument: $type)*) -> Code {
            let call = || -> Result<Code> {
                let (callee, own) = $first.callee()?;
                let arguments = (own, $($argument.passed(&callee)?,)*);
                let code = callee.provider.call($slot, arguments).ok_or(Error::not_implemented())?;
                if code == 0 {
                    $($argument.succeeded(&callee);)*
                    $($first.$gone(&callee);)?
                }
                Ok(code)
            };
            let called = if is_of_data($slot) { call() } else { uncancelled(call) };
            called.unwrap_or_else(code)
        }
    };
}

calls_of_dat!(redirected);

#[doc = include_str!("../../manual/dat_strerror.md")]
pub extern "C" fn dat_strerror(value: u32, major: Out<StaticText>, minor: Out<StaticText>) -> Code {
    text::named::<V2>(value, major, minor)
}
