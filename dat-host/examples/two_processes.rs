//! A message, an answer and an RDMA Read between two processes, without an RDMA device.
//!
//! In two terminals:
//!
//! ```sh
//! cargo run -p dat-host --example two_processes -- serve
//! cargo run -p dat-host --example two_processes -- ask 127.0.0.1:7174
//! ```
//!
//! Without arguments, both are threads of one process.

use dat_host::{Access, Adapter, Error, RemoteSlice, Result};

/// The connection qualifier of the server.
const PORT: u64 = 7174;

/// Serves one client; calls `ready` when it can connect.
fn serve(address: &str, ready: impl FnOnce()) -> Result<()> {
    let adapter = Adapter::open(address)?;
    let zone = adapter.zone()?;
    let listener = zone.listen(PORT)?;
    println!("serving at {}, qualifier {PORT}", adapter.address()?);
    ready();
    let client = listener.next().wait()?.accept().wait()?;
    let text = zone.region(b"memory of the server, read by the client".to_vec())?;
    let window = text.expose(.., Access::READ).to(&client).wait()?;
    client
        .send(zone.copy(&window.remote().to_bytes())?)
        .wait()?;
    client.ended().wait();
    Ok(())
}

fn ask(peer: &str) -> Result<()> {
    let zone = Adapter::open("roce://127.0.0.1")?.zone()?;
    // The receive is there before the server can send.
    let endpoint = zone.endpoint(None)?;
    let told = endpoint.recv(zone.buffer(RemoteSlice::ENCODED)?);
    let server = zone.connect(peer).start_on(endpoint).wait()?;
    let remote = RemoteSlice::from_bytes(&told.wait()?.memory)?;
    let bytes = server
        .read(remote, zone.buffer(remote.len() as usize)?)
        .wait()?;
    println!("{}", String::from_utf8_lossy(&bytes));
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => {
            let (ready, is_ready) = std::sync::mpsc::channel();
            let server = std::thread::spawn(move || {
                serve("roce://127.0.0.2", || {
                    ready.send(()).expect("the main thread waits");
                })
            });
            // If the server fails first, this ends too, and the client reports that nobody listens.
            let _ended = is_ready.recv();
            ask("127.0.0.2:7174")?;
            server.join().map_err(|_| Error::Closed)?
        }
        ["serve"] => serve("roce://127.0.0.1", || ()),
        ["serve", ip] => serve(&format!("roce://{ip}"), || ()),
        ["ask", peer] => ask(peer),
        _ => Err(Error::Malformed("`serve [IP]` or `ask HOST:PORT`")),
    }
}
