//! Remote calls: a server answers many clients from one shared receive queue.
//!
//! Each connection is a task. All of them, of clients and server, run on one thread; the adapters
//! have their own.
//!
//! `cargo run -p dat-host --example rpc [CLIENTS [ADDRESS]]`

use std::cell::Cell;
use std::rc::Rc;

use dat_core::attributes::IaAddress;
use dat_host::{Adapter, Error, Listener, Request, Result, SharedReceive, Zone};
use futures::executor::{LocalPool, LocalSpawner};
use futures::task::LocalSpawnExt;

/// Calls of each client.
const CALLS: u64 = 10;
/// Largest message in bytes.
const SIZE: usize = 64;
/// Buffers of the server, for all its clients together.
const BUFFERS: usize = 128;

/// Starts a session for each client, until the adapter is closed.
async fn serve(zone: Zone, listener: Listener, spawner: LocalSpawner) -> Result<()> {
    let queue = zone.shared_receive(BUFFERS, SIZE)?;
    loop {
        match listener.next().await {
            Ok(request) => {
                let session = answer(zone.clone(), request, queue.clone());
                spawner.spawn_local(session).expect("the pool still runs");
            }
            Err(Error::Closed) => return Ok(()),
            // The client gave up.
            Err(_) => {}
        }
    }
}

/// Accepts a client; answers each call with the square of its number.
///
/// The session ends when the client disconnects, or makes a call of a wrong length. No client ends
/// the server.
async fn answer(zone: Zone, request: Request, queue: SharedReceive) {
    let Ok(client) = request.accept().receive(&queue).await else {
        return;
    };
    while let Ok(call) = client.next_message().await {
        let Ok(number) = call[..].try_into().map(u64::from_le_bytes) else {
            return;
        };
        // The buffer goes back to the queue.
        drop(call);
        let square = number.wrapping_mul(number).to_le_bytes();
        let Ok(reply) = zone.copy(&square) else {
            return;
        };
        if client.send(reply).await.is_err() {
            return;
        }
    }
}

/// The side of the clients.
#[derive(Clone)]
struct Near {
    zone: Zone,
    queue: SharedReceive,
    /// Address and qualifier of the server.
    server: (IaAddress, u64),
}

/// Makes some calls; counts the right answers.
async fn call(near: Near, client: u64, right: Rc<Cell<u64>>) -> Result<()> {
    let Near { zone, queue, .. } = &near;
    let server = zone.connect(near.server).receive(queue).await?;
    for number in (1..=CALLS).map(|call| client * CALLS + call) {
        server.send(zone.copy(&number.to_le_bytes())?).await?;
        let reply = server.next_message().await?;
        if reply[..] == number.wrapping_mul(number).to_le_bytes() {
            right.set(right.get() + 1);
        }
    }
    server.disconnect().await
}

/// Makes a call of a wrong length, and waits until the server ends the session.
async fn wrong_call(near: Near) -> Result<()> {
    let server = near.zone.connect(near.server).await?;
    server.send(near.zone.copy(b"three")?).await?;
    server.ended().await;
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let clients = arguments.next();
    let clients = clients.map_or(100, |count| count.parse().expect("a number of clients"));
    let address = arguments.next();
    let open = |mock| Adapter::open(address.as_deref().unwrap_or(mock))?.zone();
    let (server, zone) = (open("mock://server")?, open("mock://clients")?);
    let near = Near {
        queue: zone.shared_receive(BUFFERS, SIZE)?,
        server: (server.address()?, 7174),
        zone,
    };

    let mut pool = LocalPool::new();
    let spawner = pool.spawner();
    let listener = server.listen_with(Some(7174), 1024)?;
    let serving = serve(server, listener, spawner.clone());
    let serving = async { drop(serving.await) };
    spawner.spawn_local(serving).expect("the pool still runs");
    pool.run_until(wrong_call(near.clone()))?;
    let right = Rc::new(Cell::new(0));
    let calling = futures::future::try_join_all(
        (0..clients).map(|client| call(near.clone(), client, Rc::clone(&right))),
    );
    pool.run_until(calling)?;
    println!("{clients} clients got {} right answers", right.get());
    assert_eq!(right.get(), clients * CALLS);
    Ok(())
}
