//! Connections and rejections with the most private data, also of a peer on librdmacm.
//!
//! The peer of the ignored tests is `xtask/vm/programs/rdmacm_private_data.c`, with the same
//! patterns. Every byte is checked. Each connection exchanges a message and its answer, and is
//! ended by its client and its server in turn.

mod common;

use common::SOON;
use dat_core::event::ConnectionEventKind;
use dat_host::{Adapter, Endpoint, Error, Listener, SharedReceive, Zone};

/// Bytes of private data that librdmacm carries in a request, an acceptance and a rejection.
const REQUEST: usize = 56;
const ACCEPTANCE: usize = 196;
const REJECTION: usize = 148;
/// Bytes of private data that the provider accepts for an answer.
const OWN: usize = 64;
const MESSAGE: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    ClientEnds,
    ServerEnds,
    Rejected,
}

impl Outcome {
    fn of(attempt: usize) -> Self {
        match attempt {
            _ if attempt % 5 == 4 => Self::Rejected,
            _ if attempt.is_multiple_of(2) => Self::ClientEnds,
            _ => Self::ServerEnds,
        }
    }
}

/// Returns the pattern of a kind: `q` request, `a` acceptance, `j` rejection, `m` message, `r`
/// answer.
fn pattern(kind: u8, attempt: usize, length: usize) -> Vec<u8> {
    let byte = |index| usize::from(kind) + 31 * attempt + 7 * index;
    (0..length).map(|index| byte(index) as u8).collect()
}

fn check(data: &[u8], kind: u8, attempt: usize, length: usize) {
    assert_eq!(data, pattern(kind, attempt, length), "attempt {attempt}");
}

fn receive(endpoint: &Endpoint, kind: u8, attempt: usize) {
    let message = endpoint.next_message().wait_timeout(SOON);
    let message = message.expect("in time").unwrap();
    assert_eq!(message[..], pattern(kind, attempt, MESSAGE));
}

fn send(zone: &Zone, endpoint: &Endpoint, kind: u8, attempt: usize) {
    let message = zone.copy(&pattern(kind, attempt, MESSAGE)).unwrap();
    let sent = endpoint.send(message).wait_timeout(SOON);
    sent.expect("in time").unwrap();
}

/// Ends the connection, or waits until the peer ends it.
fn end(endpoint: &Endpoint, is_own: bool) {
    if is_own {
        let disconnected = endpoint.disconnect().wait_timeout(SOON);
        disconnected.expect("in time").unwrap();
    } else {
        let ended = endpoint.ended().wait_timeout(SOON).expect("in time");
        assert_eq!(ended, ConnectionEventKind::Disconnected);
    }
}

fn serve_one(zone: &Zone, listener: &Listener, queue: &SharedReceive, attempt: usize) {
    let request = listener.next().wait_timeout(SOON);
    let request = request.expect("in time").unwrap();
    check(request.private_data(), b'q', attempt, REQUEST);
    let outcome = Outcome::of(attempt);
    if outcome == Outcome::Rejected {
        return request.reject(&pattern(b'j', attempt, OWN)).unwrap();
    }
    let data = pattern(b'a', attempt, OWN);
    let accepting = request.accept().private_data(&data).receive(queue);
    let client = accepting.start().wait_timeout(SOON);
    let client = client.expect("in time").unwrap();
    receive(&client, b'm', attempt);
    send(zone, &client, b'r', attempt);
    end(&client, outcome == Outcome::ServerEnds);
}

/// Makes one attempt; `answers` are the lengths of an acceptance and a rejection of the peer.
fn connect_one(
    zone: &Zone,
    peer: &str,
    queue: &SharedReceive,
    attempt: usize,
    answers: [usize; 2],
) {
    let [acceptance, rejection] = answers;
    let data = pattern(b'q', attempt, REQUEST);
    let connecting = zone.connect(peer).private_data(&data).receive(queue);
    let connected = connecting.start().wait_timeout(SOON).expect("in time");
    let outcome = Outcome::of(attempt);
    let server = match connected {
        Err(Error::Rejected(data)) if outcome == Outcome::Rejected => {
            return check(&data, b'j', attempt, rejection);
        }
        Ok(server) if outcome != Outcome::Rejected => server,
        other => panic!("attempt {attempt}: {:?}", other.err()),
    };
    check(&server.private_data(), b'a', attempt, acceptance);
    send(zone, &server, b'm', attempt);
    receive(&server, b'r', attempt);
    end(&server, outcome == Outcome::ClientEnds);
}

fn serve_all(address: &str, qualifier: u64, attempts: usize) {
    let zone = Adapter::open(address).unwrap().zone().unwrap();
    let queue = zone.shared_receive(2, MESSAGE).unwrap();
    let listener = zone.listen(qualifier).unwrap();
    println!("listening");
    for attempt in 0..attempts {
        serve_one(&zone, &listener, &queue, attempt);
    }
}

fn connect_all(address: &str, peer: &str, attempts: usize) {
    let zone = Adapter::open(address).unwrap().zone().unwrap();
    let queue = zone.shared_receive(2, MESSAGE).unwrap();
    for attempt in 0..attempts {
        connect_one(&zone, peer, &queue, attempt, [ACCEPTANCE, REJECTION]);
    }
}

#[test]
fn two_adapters_exchange_the_private_data_of_every_outcome() {
    const ATTEMPTS: usize = 10;
    exchange_private_data("roce://127.0.0.37", ATTEMPTS);
    exchange_private_data("roce://127.0.0.37?path=packets", ATTEMPTS);
}

fn exchange_private_data(near: &str, attempts: usize) {
    let open = |address| Adapter::open(address).unwrap().zone().unwrap();
    let (near, far) = (open(near), open("roce://127.0.0.38"));
    let listener = far.listen_with(None, 4).unwrap();
    let peer = format!("127.0.0.38:{}", listener.qualifier());
    let client = std::thread::spawn(move || {
        let queue = near.shared_receive(2, MESSAGE).unwrap();
        for attempt in 0..attempts {
            connect_one(&near, &peer, &queue, attempt, [OWN; 2]);
        }
    });
    let queue = far.shared_receive(2, MESSAGE).unwrap();
    for attempt in 0..attempts {
        serve_one(&far, &listener, &queue, attempt);
    }
    client.join().unwrap();
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("set {name}"))
}

#[test]
#[ignore = "needs a client on librdmacm"]
fn serves() {
    let number = |name| variable(name).parse().expect("a number");
    serve_all(
        &variable("ADDRESS"),
        number("PORT") as u64,
        number("ATTEMPTS"),
    );
}

#[test]
#[ignore = "needs a server on librdmacm"]
fn connects() {
    let attempts = variable("ATTEMPTS").parse().expect("a number");
    connect_all(&variable("ADDRESS"), &variable("SERVER"), attempts);
}
