//! Other processes of tests.

use std::fs;

/// Returns true if all threads of a process are stopped.
pub fn is_stopped(process: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("a process");
    let mut states = tasks.map(|task| {
        let status = task.expect("a thread").path().join("stat");
        fs::read_to_string(status).expect("its state")
    });
    states.all(|state| state.contains(") T "))
}
