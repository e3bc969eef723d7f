//! The end of a process that has not destroyed its objects (ROCE-269).

use crate::adapter::opened;

/// Runs after the functions that the program has for its end.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = finish;

/// Ends what peers wait for.
///
/// `exit` may be called by the handler of a signal that has stopped this thread in any call, also
/// of the C library, with its locks: nothing here gets or frees memory.
extern "C" fn finish() {
    if let Some(adapter) = opened() {
        adapter.device.finish();
    }
}
