//! Remote shared memory between two processes, without an RDMA device.
//!
//! In two terminals:
//!
//! ```sh
//! cargo run -p dat-host --features rsm --example shared_memory_processes -- export
//! cargo run -p dat-host --features rsm --example shared_memory_processes -- import
//! ```
//!
//! On two hosts, the address of the own host and that of the other one follow. Without arguments,
//! both nodes are in one process.

use dat_host::rsm::{AccessEntry, Export, Node, NodeId, Permission, SegmentId};
use dat_host::{Pages, Result};

// What both processes know of each other.
const EXPORTER: NodeId = 1;
const IMPORTER: NodeId = 2;
const QUALIFIER: u64 = 7174;
/// The first id that is free for applications.
const SEGMENT: SegmentId = 0x40_0000;

/// Exports a page that the other host may read and write.
fn export(own: &str, other: &str) -> Result<(Node, Export<Pages>)> {
    let node = Node::new(EXPORTER).listen(QUALIFIER);
    let node = node.peer(IMPORTER, format!("{other}:0"));
    let node = node.open(&format!("roce://{own}"))?;
    let export = node.export(Pages::anonymous(4096)?)?;
    let access = [AccessEntry {
        node: IMPORTER,
        permission: 0o666,
    }];
    export.publish(SEGMENT, &access)?;
    println!("node {EXPORTER} exports segment {SEGMENT:#x} at {own}");
    Ok((node, export))
}

/// Waits for the importer, and prints what it wrote.
fn finish((node, export): (Node, Export<Pages>)) -> Result<()> {
    export.signaled().wait()?;
    let page = export.destroy().wait()?;
    println!("{}", String::from_utf8_lossy(&page[..11]));
    node.close().wait()
}

fn import(own: &str, other: &str) -> Result<()> {
    let node = Node::new(IMPORTER).peer(EXPORTER, format!("{other}:{QUALIFIER}"));
    let node = node.open(&format!("roce://{own}"))?;
    let import = node.import(EXPORTER, SEGMENT, Permission::all()).wait()?;
    import.put(0, b"hello, page".to_vec()).wait()?;
    import.signal().wait()?;
    import.disconnect().wait()?;
    node.close().wait()
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let here = "127.0.0.1";
    match words[..] {
        ["export"] => finish(export(here, here)?),
        ["export", own, other] => finish(export(own, other)?),
        ["import"] => import(here, here),
        ["import", own, other] => import(own, other),
        [] => {
            let exported = export(here, here)?;
            import(here, here)?;
            finish(exported)
        }
        _ => panic!("`export` or `import` is needed, and both addresses or none"),
    }
}
