//! Remote shared memory: a node writes rows of a table at another node, and signals it:
//! `cargo run -p dat-host --features rsm --example shared_memory [ADDRESS HOST]`

use std::time::Duration;

use dat_host::rsm::{
    AccessEntry, BarrierMode, BarrierScope, Get, Node, Permission, Put, VectorFlags,
};
use dat_host::{Pages, Result};
use futures::executor::block_on;

/// Bytes of a row.
const ROW: usize = 64;

async fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ([near_address, far_address], [near_host, far_host]) = match &arguments[..] {
        [address, host] => ([address.as_str(); 2], [host.as_str(); 2]),
        _ => (["mock://near", "mock://far"], ["near", "far"]),
    };
    let far = Node::new(2).listen(7174).peer(1, format!("{near_host}:0"));
    let far = far.open(far_address)?;
    let near = Node::new(1).peer(2, format!("{far_host}:7174"));
    // The other node may be busy for longer than the usual 2 s.
    let near = near.connect_timeout(Duration::from_secs(20));
    let near = near.open(near_address)?;

    let table = far.export(Pages::anonymous(1 << 16)?)?;
    let access = [AccessEntry {
        node: 1,
        permission: 0o666,
    }];
    let id = table.publish(0, &access)?;
    let import = near.import(2, id, Permission::all()).await?;

    // Every second row in one call, with one signal for all of them.
    let rows = (0..8_u64).map(|row| Put {
        memory: vec![row as u8 + 1; ROW],
        offset: row * 2 * ROW as u64,
    });
    let signal = VectorFlags::IMPLICIT_SIGPOST;
    import.putv(rows.collect(), signal).await?;
    table.signaled().await?;
    let mut row = [0; ROW];
    table.load(6 * ROW, &mut row)?;
    assert_eq!(row, [4; ROW]);

    // The program completes many puts by one barrier.
    import.set_mode(BarrierMode::Explicit)?;
    let barrier = import.barrier(BarrierScope::Segment)?;
    barrier.open()?;
    for row in 0..8_u64 {
        import.put((row * 2 + 1) * ROW as u64, vec![9; ROW]).await?;
    }
    barrier.close().await?;
    let rows = [1, 14].map(|row| Get {
        memory: vec![0; ROW],
        offset: row * ROW as u64,
    });
    import.set_mode(BarrierMode::Implicit)?;
    let rows = import.getv(rows.into(), VectorFlags::empty()).await?;
    println!("rows of {} and {}", rows[0].memory[0], rows[1].memory[0]);
    assert_eq!([rows[0].memory[0], rows[1].memory[0]], [9, 8]);
    import.disconnect().await?;
    let pages = table.destroy().await?;
    assert_eq!(pages[14 * ROW], 8);
    Ok(())
}

fn main() -> Result<()> {
    block_on(run())
}
