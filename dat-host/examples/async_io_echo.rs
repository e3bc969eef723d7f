//! Two adapters on the reactor of async-io, driven by the tasks of one thread:
//! `cargo run -p dat-host --features async-io --example async_io_echo`

use dat_host::{Options, Result};
use futures::executor::LocalPool;
use futures::task::LocalSpawnExt;

fn main() -> Result<()> {
    let (near, near_driver) = Options::new().open_descriptor("mock://near")?;
    let (far, far_driver) = Options::new().open_descriptor("mock://far")?;
    let mut pool = LocalPool::new();
    for driver in [near_driver, far_driver] {
        let driving = async { driver.run_async_io().await.expect("the reactor works") };
        let spawned = pool.spawner().spawn_local(driving);
        spawned.expect("the pool still runs");
    }
    let (near, far) = (near.zone()?, far.zone()?);
    pool.run_until(async {
        let listener = far.listen(7174)?;
        let connecting = near.connect("far:7174").start();
        let server = listener.next().await?.accept().await?;
        let client = connecting.await?;
        let receive = server.recv(far.buffer(16)?);
        let answer = client.recv(near.buffer(16)?);
        client.send(near.copy(b"hello")?).await?;
        let received = receive.await?;
        server.send(received.memory).await?;
        let answer = answer.await?;
        println!("answer: {}", String::from_utf8_lossy(&answer.memory));
        assert_eq!(&answer.memory[..], b"hello");
        client.disconnect().await
    })
}
