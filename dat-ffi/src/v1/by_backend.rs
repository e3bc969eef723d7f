//! Posts and dequeues of objects of any backend.
//!
//! They jump to the function of the object's backend. (A provider of DAT 2.0 has those functions in
//! the table that its handles begin with.)

use super::types::{Event, In, List, LongTriplet, Out, V1};
use crate::calls::result::Code;
use crate::calls::{evd, post};
use crate::handles::CHandle;

macro_rules! by_backend {
    ($($name:ident($first:ident: CHandle $(, $argument:ident: $type:ty)*) = $module:ident;)*) => {$(
        pub(crate) extern "C" fn $name($first: CHandle $(, $argument: $type)*) -> Code {
            #[cfg(feature = "verbs")]
            if $first.is_of::<backend_verbs::VerbsBackend>() {
                return $module::$name::<V1, backend_verbs::VerbsBackend>($first $(, $argument)*);
            }
            if $first.is_of::<backend_roce::RoceBackend>() {
                return $module::$name::<V1, backend_roce::RoceBackend>($first $(, $argument)*);
            }
            $module::$name::<V1, backend_mock::MockBackend>($first $(, $argument)*)
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
