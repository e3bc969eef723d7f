//! The list of backends.

/// The schemes of all backends, each of which is also the feature that builds it in.
///
/// The mock's is the first. [`devices`](crate::devices) lists the last one first.
pub const SCHEMES: [&str; 3] = ["mock", "roce", "verbs"];

/// Calls a macro with the backends of this build.
///
/// `backends! { [path::to::call] { tokens } }` becomes
/// `path::to::call! { { tokens } NAME = TYPE, ... }`, with a name and a type for each backend. So a
/// caller makes an enum, a match or an implementation for each of them, and names none.
#[macro_export]
macro_rules! backends {
    ([$($call:tt)+] { $($tokens:tt)* }) => {
        $crate::__verbs! { [$($call)+] { $($tokens)* } }
    };
}

// For each backend a macro that adds it to the list if its feature is on, and calls the next one.
// Only macros that no macro declares can be called by path.

#[cfg(feature = "verbs")]
#[doc(hidden)]
#[macro_export]
macro_rules! __verbs {
    ($call:tt $tokens:tt $($list:tt)*) => {
        $crate::__roce! { $call $tokens $($list)* Verbs = $crate::VerbsBackend, }
    };
}

#[cfg(not(feature = "verbs"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __verbs {
    ($($all:tt)*) => {
        $crate::__roce! { $($all)* }
    };
}

#[cfg(feature = "roce")]
#[doc(hidden)]
#[macro_export]
macro_rules! __roce {
    ($call:tt $tokens:tt $($list:tt)*) => {
        $crate::__mock! { $call $tokens $($list)* Roce = $crate::RoceBackend, }
    };
}

#[cfg(not(feature = "roce"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __roce {
    ($($all:tt)*) => {
        $crate::__mock! { $($all)* }
    };
}

#[cfg(feature = "mock")]
#[doc(hidden)]
#[macro_export]
macro_rules! __mock {
    ($call:tt $tokens:tt $($list:tt)*) => {
        $crate::__end! { $call $tokens $($list)* Mock = $crate::MockBackend, }
    };
}

#[cfg(not(feature = "mock"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __mock {
    ($($all:tt)*) => {
        $crate::__end! { $($all)* }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __end {
    ([$($call:tt)+] $tokens:tt $($list:tt)*) => {
        $($call)+! { $tokens $($list)* }
    };
}
