//! The processor time of nodes without work; alone in its process, which it measures.

use std::time::Duration;

use dat_host::rsm::{AccessEntry, Node, Permission};
use dat_host::{Network, Pages};
use futures::executor::block_on;

/// Returns the processor time of this process.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    // utime and stime in ticks of 10 ms, the 14th and 15th field of the line.
    let ticks = [fields[11], fields[12]].map(|ticks| ticks.parse::<u64>().unwrap());
    Duration::from_millis(10 * ticks.iter().sum::<u64>())
}

#[test]
fn nodes_that_wait_for_signals_sleep() {
    let network = Network::new(Network::options());
    let far = Node::new(2).listen(7).peer(1, "near:0").network(&network);
    let far = far.open("mock://far").unwrap();
    let near = Node::new(1).peer(2, "far:7").network(&network);
    let near = near.open("mock://near").unwrap();
    let export = far.export(Pages::anonymous(4096).unwrap()).unwrap();
    let access = AccessEntry {
        node: 1,
        permission: 0o666,
    };
    let id = export.publish(0, &[access]).unwrap();
    let import = near.import(2, id, Permission::all()).wait().unwrap();
    let (importing, exporting) = (import.signaled().start(), export.signaled().start());
    let before = processor_time();
    std::thread::sleep(Duration::from_secs(1));
    let used = processor_time() - before;
    assert!(used < Duration::from_millis(300), "{used:?} in a second");
    import.signal().wait().unwrap();
    export.signal().wait().unwrap();
    block_on(async {
        importing.await.unwrap();
        exporting.await.unwrap();
    });
}
