//! Two endpoints, a write, a bind and a shared receive queue, by the thread of the adapter:
//! `cargo run -p dat-host --example pair [ADDRESS]`

use dat_host::{Access, Adapter, RemoteSlice, Result};

fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    let open = |mock| Adapter::open(address.as_deref().unwrap_or(mock))?.zone();
    let (near, far) = (open("mock://near")?, open("mock://far")?);
    let (listener, near_queue) = (far.listen(7174)?, near.shared_receive(4, 64)?);
    let client = near
        .connect((far.address()?, 7174))
        .receive(&near_queue)
        .start();
    let queue = far.shared_receive(16, 64)?;
    let server = listener.next().wait()?.accept().receive(&queue).wait()?;
    let client = client.wait()?;

    let memory = far.region(vec![0_u8; 4096])?;
    let window = memory.expose(..64, Access::WRITE).to(&server).wait()?;
    server.send(far.copy(&window.remote().to_bytes())?).wait()?;

    let remote = RemoteSlice::from_bytes(&client.next_message().wait()?)?;
    let source = near.region(b"through a window".to_vec())?;
    client.write(source, remote.slice(..16)?).wait()?;
    client.send(near.copy(b"written")?).wait()?;

    assert_eq!(&server.next_message().wait()?[..], b"written");
    let memory = window.revoke().wait().into_inner();
    println!("{}", String::from_utf8_lossy(&memory[..16]));
    assert_eq!(&memory[..16], b"through a window");
    Ok(())
}
