//! A peer whose process is killed while its connection is idle.
#![cfg(feature = "roce")]

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use dat_host::{Adapter, ConnectionEventKind, DtoStatus};

/// Limit of the wait for the end; the options of the adapter allow 3 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// Peer of the child process, in its environment.
const PEER: &str = "DAT_VANISHED_PEER";

/// A child that is killed when the test ends, however it ends.
struct Killed(Child);

impl Killed {
    fn kill(&mut self) {
        // It may have ended by itself.
        let _sent = self.0.kill();
        self.0.wait().expect("a child of this process");
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Connects, and keeps the connection until the process is killed.
#[test]
#[ignore = "the child of the other test"]
fn child() {
    let peer = std::env::var(PEER).expect("the other test sets it");
    let zone = Adapter::open("roce://127.0.0.36").unwrap().zone().unwrap();
    let connection = zone.connect(&peer).wait().unwrap();
    connection.ended().wait();
}

/// Kills the idle peer of an adapter; returns the time until the connection breaks.
fn time_to_break(host: &str, options: &str) -> Duration {
    let adapter = Adapter::open(&format!("roce://{host}{options}")).unwrap();
    let zone = adapter.zone().unwrap();
    let qualifier = 30_000 + u64::from(std::process::id() % 10_000);
    let listener = zone.listen(qualifier).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(PEER, format!("{host}:{qualifier}"))
        .spawn();
    let mut child = Killed(child.unwrap());
    let connection = listener.next().wait().unwrap().accept().wait().unwrap();
    let receive = connection.recv(zone.buffer(8).unwrap());
    child.kill();
    let begin = Instant::now();
    let ended = connection.ended().wait_timeout(PATIENCE);
    assert_eq!(ended.expect("in time"), ConnectionEventKind::Broken);
    let took = begin.elapsed();
    let flushed = receive.wait().unwrap_err().error;
    assert_eq!(flushed.status(), Some(DtoStatus::Flushed));
    took
}

/// With `keep-alive` in its address, an adapter notices the end of an idle peer over packets.
///
/// Nothing is posted, so without the option `ended` would wait for ever.
#[test]
fn an_idle_peer_that_is_killed_breaks_the_connection() {
    let took = time_to_break("127.0.0.35", "?keep-alive=1&path=packets");
    // Not before the peer had its time: seven repetitions, each after 268 ms.
    assert!(took >= Duration::from_secs(1));
}

/// Through shared memory, the system tells of the end of a peer.
///
/// Spec: ROCE-236
#[test]
fn an_idle_peer_of_this_host_that_is_killed_breaks_the_connection() {
    time_to_break("127.0.0.37", "");
}
