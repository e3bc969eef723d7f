//! A peer of `rping`, the ping of librdmacm: its server, and its client.
//!
//! ```sh
//! cargo run -p dat-host --example rdma_ping -- serve roce://127.0.0.1
//! cargo run -p dat-host --example rdma_ping -- ping roce://127.0.0.1 127.0.0.1:7174 10
//! ```
//!
//! Either side may be `rping` at an RDMA device of another host: `rping -s -V`,
//! `rping -c -V -a IP`. Without arguments, both are threads of one process.
//!
//! In each round the client names its text, which the server reads. The client then names a second
//! buffer, into which the server writes the text. Each message has 16 bytes, also the answers of
//! the server, whose content is not used.

use dat_host::{Access, Adapter, Endpoint, Error, RemoteSlice, Result, Window, Zone};

/// The connection qualifier of `rping`.
const PORT: u64 = 7174;
/// Bytes of a message.
const MESSAGE: usize = 16;
/// Bytes of a text, as in `rping`.
const SIZE: usize = 64;
/// Longest text that the server reads.
const LONGEST: u64 = 1 << 20;

/// Encodes address, key and length, each with the high byte first.
fn encode(memory: RemoteSlice) -> [u8; MESSAGE] {
    let mut bytes = [0; MESSAGE];
    bytes[..8].copy_from_slice(&memory.address().to_be_bytes());
    bytes[8..12].copy_from_slice(&memory.context().to_be_bytes());
    bytes[12..].copy_from_slice(&(memory.len() as u32).to_be_bytes());
    bytes
}

fn decode(bytes: &[u8], access: Access) -> Result<RemoteSlice> {
    let bytes: &[u8; MESSAGE] = bytes.try_into().map_err(|_| Error::Malformed("16 bytes"))?;
    let (address, rest) = bytes.split_at(8);
    let (key, length) = rest.split_at(4);
    let word = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |word, &byte| word << 8 | u64::from(byte))
    };
    if word(length) > LONGEST {
        return Err(Error::Malformed("a text of at most 1 MiB"));
    }
    RemoteSlice::new(word(key) as u32, word(address), word(length), access)
}

/// Answers one client; returns the number of rounds.
fn serve(zone: &Zone, client: &Endpoint) -> Result<u64> {
    let answer = || Ok::<_, Error>(client.send(zone.copy(&[0; MESSAGE])?).wait()?);
    let mut rounds = 0;
    loop {
        let source = match client.next_message().wait() {
            Ok(message) => decode(&message, Access::READ)?,
            Err(Error::Connection(_)) => return Ok(rounds),
            Err(error) => return Err(error),
        };
        let text = zone.buffer(source.len() as usize)?;
        let text = client.read(source, text).wait()?;
        answer()?;
        let target = decode(&client.next_message().wait()?, Access::WRITE)?;
        let length = target.len().min(text.len() as u64);
        client.write(text, target.slice(..length)?).wait()?;
        answer()?;
        rounds += 1;
    }
}

/// Names memory to the server, and waits for its answer.
fn offer(zone: &Zone, server: &Endpoint, memory: &Window<Vec<u8>>) -> Result<()> {
    server.send(zone.copy(&encode(memory.remote()))?).wait()?;
    server.next_message().wait().map(drop)
}

fn ping(zone: &Zone, server: &Endpoint, rounds: u64) -> Result<()> {
    let expose = |access| {
        let memory = zone.region(vec![0; SIZE])?;
        Ok::<_, Error>(memory.expose(.., access).to(server).wait()?)
    };
    let (source, target) = (expose(Access::READ)?, expose(Access::WRITE)?);
    for round in 0..rounds {
        let mut text = format!("rdma-ping-{round}: ").into_bytes();
        text.extend(
            (b'A'..=b'z')
                .cycle()
                .skip(round as usize % 58)
                .take(SIZE - 1 - text.len()),
        );
        text.push(0);
        source.store(0, &text)?;
        offer(zone, server, &source)?;
        offer(zone, server, &target)?;
        let mut echo = [0; SIZE];
        target.load(0, &mut echo)?;
        assert_eq!(echo[..], text, "round {round}");
    }
    server.disconnect().wait()
}

fn run_server(address: &str) -> Result<()> {
    let zone = Adapter::open(address)?.zone()?;
    let listener = zone.listen(PORT)?;
    println!("serving at {}, qualifier {PORT}", zone.address()?);
    let queue = zone.shared_receive(2, MESSAGE)?;
    let client = listener.next().wait()?.accept().receive(&queue).wait()?;
    println!("{} rounds served", serve(&zone, &client)?);
    Ok(())
}

fn run_client(address: &str, peer: &str, rounds: &str) -> Result<()> {
    let rounds = rounds
        .parse()
        .map_err(|_| Error::Malformed("a number of rounds"))?;
    let zone = Adapter::open(address)?.zone()?;
    let queue = zone.shared_receive(2, MESSAGE)?;
    let server = zone.connect(peer).receive(&queue).wait()?;
    ping(&zone, &server, rounds)?;
    println!("{rounds} rounds, each with its text back");
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => {
            let zone = Adapter::open("mock://server")?.zone()?;
            let listener = zone.listen(PORT)?;
            let queue = zone.shared_receive(2, MESSAGE)?;
            let client = std::thread::spawn(|| run_client("mock://client", "server:7174", "10"));
            let peer = listener.next().wait()?.accept().receive(&queue).wait()?;
            assert_eq!(serve(&zone, &peer)?, 10);
            client.join().map_err(|_| Error::Closed)?
        }
        ["serve", address] => run_server(address),
        ["ping", address, peer, rounds] => run_client(address, peer, rounds),
        _ => Err(Error::Malformed(
            "`serve ADDRESS` or `ping ADDRESS HOST:PORT ROUNDS`",
        )),
    }
}
