//! The calls of remote shared memory, over `dat-rsm`.
//!
//! ```text
//! a C program -> librsm -> a call here -> the site of a handle -> dat-rsm -> dat-core -> a backend
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `process` | the controllers of this process, and of the processes it was forked from |
//! | `nodes`, `nodes_problem` | the file of nodes and its problems |
//! | `site` | an open controller: its engine, the thread that serves it, its waiters |
//! | `topology`, `controller`, `segment_id` | the calls for controllers and names |
//! | `export`, `import`, `map`, `barrier`, `signal`, `poll` | the calls for segments |
//! | `transfer`, `vector`, `local` | the calls that transfer bytes |
//!
//! A handle is the word of the engine's handle. A table maps it to its object, and it is never
//! dereferenced, so C may pass any value.

mod barrier;
mod controller;
mod export;
mod import;
mod local;
mod map;
mod nodes;
mod nodes_problem;
mod poll;
mod process;
mod segment_id;
mod signal;
mod site;
mod topology;
mod transfer;
mod vector;

use std::panic::{AssertUnwindSafe, catch_unwind};

use dat_rsm::{Handle, Result, RsmError};

pub use crate::boundary::{
    AccessEntry, BarrierStorage, Consumer, ControllerAttributes, IoVector, List, Out,
    ScatterGather, Text,
};
use crate::boundary::{has_memory, uncancelled};
pub use crate::handles::CHandle;
pub use barrier::{close_barrier, destroy_barrier, init_barrier, open_barrier, order_barrier};
pub use controller::{get_controller, get_controller_attributes, release_controller};
pub use export::{
    export_create, export_destroy, export_publish, export_rebind, export_republish,
    export_unpublish,
};
pub use import::{get_mode, import_connect, import_disconnect, set_mode};
pub use libc::pollfd as PollEntry;
pub use local::{create_local_memory, free_local_memory};
pub use map::{import_map, import_unmap};
pub use nodes::{NodeLine, read_nodes};
pub use poll::{get_pollfd, release_pollfd, wait_pollfd};
pub use segment_id::segment_id_range;
pub use signal::{signal_post, signal_wait};
pub use topology::{free_topology, get_topology};
pub use transfer::{get, get_items, put, put_items};
pub use vector::{getv, putv};

/// Return value of every call but one.
pub type Code = i32;

/// `RSM_SUCCESS`.
const SUCCESS: Code = 0;

/// Runs a call whose thread is not cancelled before it is over; returns its code.
///
/// Nothing unwinds into C: a panic, a bug of this library, becomes INTERNAL_ERROR.
fn code(call: impl FnOnce() -> Result<()>) -> Code {
    uncancelled(|| {
        let outcome = catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(RsmError::InternalError));
        outcome.map_or_else(RsmError::code, |()| SUCCESS)
    })
}

/// Checks that there is memory, for a call that makes an object.
///
/// Comes after the checks of handles.
///
/// # Errors
/// INSUFFICIENT_MEM: the heap is exhausted.
fn check_heap() -> Result<()> {
    has_memory()
        .then_some(())
        .ok_or(RsmError::InsufficientMemory)
}

/// Returns the engine's handle of a value from C.
fn named(handle: CHandle) -> Handle {
    Handle::from_raw(handle.address() as u64)
}

/// Returns the value of a handle for C.
fn to_c(handle: impl Into<Handle>) -> CHandle {
    // A word is as wide as an address, which the layouts assert.
    CHandle::from_address(handle.into().to_raw() as usize)
}

/// Returns the output for a result, or `missing` if the pointer is null.
///
/// # Errors
/// BAD_ADDR: nothing can be stored there; and `missing`.
fn required<T: crate::boundary::Plain>(
    out: Out<T>,
    missing: RsmError,
) -> Result<crate::boundary::Output<T>> {
    let output = out.required(1).map_err(|_| missing)?;
    if !out.is_writable() {
        return Err(RsmError::BadAddress);
    }
    Ok(output)
}

/// Stores null in the output for a handle and returns the output, or `missing`.
///
/// Spec: RSMGEN-06
fn required_handle(
    out: Out<CHandle>,
    missing: RsmError,
) -> Result<crate::boundary::Output<CHandle>> {
    let output = required(out, missing)?;
    output.put(CHandle::NULL);
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: RSMGEN-01, RSMGEN-07
    #[test]
    fn a_panic_is_an_internal_error() {
        assert_eq!(code(|| Ok(())), 0);
        assert_eq!(code(|| Err(RsmError::BadMode)), 25);
        assert_eq!(code(|| panic!("a fault of ours, for the test")), 100);
    }
}
