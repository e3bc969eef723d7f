//! Writes into the memory of a peer: `cargo run -p dat-host --example first_write [ADDRESS]`

use dat_host::{Access, Adapter, Result};

fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    let open = |mock| Adapter::open(address.as_deref().unwrap_or(mock))?.zone();
    let (near, far) = (open("mock://near")?, open("mock://far")?);
    let listener = far.listen(7174)?;
    let client = near.connect((far.address()?, 7174)).start();
    let server = listener.next().wait()?.accept().wait()?;
    let client = client.wait()?;

    let memory = far.region(vec![0; 64])?;
    let window = memory.expose(.., Access::WRITE).to(&server).wait()?;
    client.write(near.copy(b"hello")?, window.remote()).wait()?;
    let memory = window.revoke().wait();
    println!("the peer wrote: {}", String::from_utf8_lossy(&memory[..5]));
    assert_eq!(&memory[..5], b"hello");
    Ok(())
}
