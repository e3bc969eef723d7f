//! An echo server and its clients as tasks of tokio, without a thread of the adapters, over RoCEv2:
//! `cargo run -p dat-host --features tokio --example tokio_echo`

use dat_host::{Endpoint, Error, Listener, Options, Request, Result, SharedReceive, Zone};

/// Number of clients.
const CLIENTS: u32 = 16;
/// Largest message in bytes.
const SIZE: usize = 64;

/// Serves each client in a task of its own.
async fn serve(listener: Listener, zone: Zone, queue: SharedReceive) {
    while let Ok(request) = listener.next().await {
        tokio::spawn(echo(request, zone.clone(), queue.clone()));
    }
}

/// Sends each message back until the client disconnects.
async fn echo(request: Request, zone: Zone, queue: SharedReceive) -> Result<()> {
    let client = request.accept().receive(&queue).await?;
    while let Ok(message) = client.next_message().await {
        client.send(zone.copy(&message)?).await?;
    }
    Ok(())
}

/// Sends a number; returns the answer.
async fn ask(server: &Endpoint, zone: &Zone, number: u32) -> Result<u32> {
    let answer = server.recv(zone.buffer(4)?);
    server.send(zone.copy(&number.to_le_bytes())?).await?;
    let bytes = &answer.await?.memory[..];
    let bytes = bytes.try_into().map_err(|_| Error::Malformed("4 bytes"))?;
    Ok(u32::from_le_bytes(bytes))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let far = Options::new().open_tokio("roce://127.0.0.4")?.zone()?;
    let near = Options::new().open_tokio("roce://127.0.0.5")?.zone()?;
    let listener = far.listen(7174)?;
    let queue = far.shared_receive(2 * CLIENTS as usize, SIZE)?;
    tokio::spawn(serve(listener, far, queue));
    let clients = (0..CLIENTS).map(|number| {
        let zone = near.clone();
        tokio::spawn(async move {
            let server = zone.connect("127.0.0.4:7174").await?;
            let answer = ask(&server, &zone, number).await?;
            server.disconnect().await?;
            Ok::<u32, Error>(answer)
        })
    });
    let mut sum = 0;
    for client in clients.collect::<Vec<_>>() {
        sum += client.await.expect("a client does not panic")?;
    }
    println!("{CLIENTS} clients got answers with the sum {sum}");
    assert_eq!(sum, (0..CLIENTS).sum());
    Ok(())
}
