//! The end of a process that has not destroyed its objects (ROCE-269).

use core::time::Duration;
use std::sync::mpsc;
use std::thread;

use crate::adapter::opened;

/// Longest wait for requests that are posted.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs after the functions that the program has for its end.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = finish;

/// Ends what peers wait for.
///
/// Another thread does it: `exit` may be called by the handler of a signal that has stopped this
/// one in a call, with a lock.
extern "C" fn finish() {
    let Some(adapter) = opened() else {
        return;
    };
    let (tell, told) = mpsc::channel();
    let work = move || {
        adapter.device.finish(PATIENCE);
        tell.send(())
    };
    if thread::Builder::new().spawn(work).is_ok() {
        let _is_done = told.recv_timeout(2 * PATIENCE);
    }
}
