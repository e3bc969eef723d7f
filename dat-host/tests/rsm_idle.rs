//! The wake-ups of nodes without work; alone in its process, whose threads it counts.

mod common;

use std::fs;
use std::time::Duration;

use common::{SOON, eventually};
use dat_host::Pages;
use dat_host::rsm::{AccessEntry, Node, Permission};
use futures::executor::block_on;

/// Returns how often the threads of this process have gone to sleep.
fn sleeps() -> u64 {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let sleeps = threads.map(|thread| {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let line = |line: &str| {
            line.strip_prefix("voluntary_ctxt_switches:")?
                .trim()
                .parse()
                .ok()
        };
        status.lines().find_map(line).unwrap_or(0_u64)
    });
    sleeps.sum()
}

#[test]
fn nodes_that_wait_for_signals_sleep() {
    let network = common::network();
    let node = |number| Node::new(number).connect_timeout(SOON);
    let far = node(2).listen(7).peer(1, "near:0").network(&network);
    let far = far.open("mock://far").unwrap();
    let near = node(1).peer(2, "far:7").network(&network);
    let near = near.open("mock://near").unwrap();
    let export = far.export(Pages::anonymous(4096).unwrap()).unwrap();
    let access = AccessEntry {
        node: 1,
        permission: 0o666,
    };
    let id = export.publish(0, &[access]).unwrap();
    let import = near.import(2, id, Permission::all()).wait().unwrap();
    let (importing, exporting) = (import.signaled().start(), export.signaled().start());
    // The sleep of this thread is one; a call that polled would go to sleep a thousand times. One
    // that begins, and the thread of the node, may look some times more.
    eventually("fewer than 10 sleeps in a second", || {
        let before = sleeps();
        std::thread::sleep(Duration::from_secs(1));
        sleeps() - before < 10
    });
    import.signal().wait().unwrap();
    export.signal().wait().unwrap();
    block_on(async {
        importing.await.unwrap();
        exporting.await.unwrap();
    });
}
