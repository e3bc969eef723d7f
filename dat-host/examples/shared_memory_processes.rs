//! Remote shared memory between two processes, without an RDMA device.
//!
//! In two terminals, the exporter first, each with its own address and that of the other:
//!
//! ```sh
//! cargo run -p dat-host -F rsm --example shared_memory_processes -- export 127.0.0.1 127.0.0.2
//! cargo run -p dat-host -F rsm --example shared_memory_processes -- import 127.0.0.2 127.0.0.1
//! ```
//!
//! Without arguments, both nodes are in one process.

use std::time::Duration;

use dat_host::rsm::{Node, NodeId, Permission, SegmentId};
use dat_host::{Error, Pages, Result};

// What both processes know of each other; 0x40_0000 is the first id that programs may choose.
const EXPORTER: NodeId = 1;
const IMPORTER: NodeId = 2;
const QUALIFIER: u64 = 7174;
const SEGMENT: SegmentId = 0x40_0000;

/// Exports a page, calls `act`, waits for the importer's signal, and prints what it wrote.
fn export(own: &str, other: &str, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let node = Node::new(EXPORTER).listen(QUALIFIER);
    let node = node.peer(IMPORTER, format!("{other}:0"));
    let node = node.open(&format!("roce://{own}"))?;
    let export = node.export(Pages::anonymous(4096)?)?;
    // Without an access list, all nodes may read, and processes of the same user may write.
    export.publish(SEGMENT, &[])?;
    println!("node {EXPORTER} exports segment {SEGMENT:#x} at {own}");
    act()?;
    export.signaled().wait()?;
    let page = export.destroy().wait()?;
    println!("{}", String::from_utf8_lossy(&page[..11]));
    node.close().wait()
}

/// Writes to the page of the exporter, and signals it.
fn import(own: &str, other: &str) -> Result<()> {
    let node = Node::new(IMPORTER).peer(EXPORTER, format!("{other}:{QUALIFIER}"));
    // The exporter may be busy for longer than the usual 2 s.
    let node = node.connect_timeout(Duration::from_secs(20));
    let node = node.open(&format!("roce://{own}"))?;
    let import = node.import(EXPORTER, SEGMENT, Permission::all()).wait()?;
    import.put(0, b"hello, page".to_vec()).wait()?;
    import.signal().wait()?;
    import.disconnect().wait()?;
    node.close().wait()
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => export("127.0.0.1", "127.0.0.2", || {
            import("127.0.0.2", "127.0.0.1")
        }),
        ["export", own, other] => export(own, other, || Ok(())),
        ["import", own, other] => import(own, other),
        _ => Err(Error::Malformed("`export OWN OTHER` or `import OWN OTHER`")),
    }
}
