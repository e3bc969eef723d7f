//! Posts and dequeues of objects of any backend.
//!
//! They jump to the function of the object's backend. (A provider of DAT 2.0 has those functions in
//! the table that its handles begin with.)

use super::types::{Event, In, List, LongTriplet, Out, V1};
use crate::calls::result::Code;
use crate::calls::{evd, post};
use crate::handles::CHandle;

/// Returns the call of the backend of a handle; the last backend refuses all other handles.
macro_rules! call {
    ({ $module:ident $name:ident $handle:ident $arguments:tt } $last:ident = $type:ty,) => {
        $module::$name::<V1, $type> $arguments
    };
    ({ $($given:tt)* } $first:ident = $type:ty, $($others:tt)+) => {
        call! { @is { $($given)* } $type }
        call! { { $($given)* } $($others)+ }
    };
    (@is { $module:ident $name:ident $handle:ident $arguments:tt } $type:ty) => {
        if $handle.is_of::<$type>() {
            return $module::$name::<V1, $type> $arguments;
        }
    };
}

macro_rules! by_backend {
    ($($name:ident($first:ident: CHandle $(, $argument:ident: $type:ty)*) = $module:ident;)*) => {$(
        pub(crate) extern "C" fn $name($first: CHandle $(, $argument: $type)*) -> Code {
            dat_devices::backends! { [call] { $module $name $first ($first $(, $argument)*) } }
        }
    )*};
}

by_backend! {
    send(ep: CHandle, count: i32, segments: List<LongTriplet>, cookie: u64, flags: u32) = post;
    receive(ep: CHandle, count: i32, segments: List<LongTriplet>, cookie: u64, flags: u32) = post;
    rdma_read(ep: CHandle, count: i32, segments: List<LongTriplet>, cookie: u64, remote: In<LongTriplet>, flags: u32) = post;
    rdma_write(ep: CHandle, count: i32, segments: List<LongTriplet>, cookie: u64, remote: In<LongTriplet>, flags: u32) = post;
    receive_shared(srq: CHandle, count: i32, segments: List<LongTriplet>, cookie: u64) = post;
    dequeue(evd: CHandle, event: Out<Event>) = evd;
}
