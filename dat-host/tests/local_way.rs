//! Futures and remote shared memory over queues in memory, whose adapters never look at the queues
//! without a doorbell while the program polls.
#![cfg(target_os = "linux")]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use backend_roce::{PathChoice, RoceBackend, RoceOptions};
use common::{SOON, connect};
use dat_host::rsm::{AccessEntry, Node, Permission, Put, VectorFlags};
use dat_host::{IaAddress, Options, Pages, Zone};
use futures::executor::block_on;

const ROUNDS: u64 = 300;

/// Opens a device at an address of the loop-back interface that no other test uses.
fn device(number: u8) -> (RoceBackend, SocketAddr) {
    let [.., high, low] = std::process::id().to_be_bytes();
    let address = SocketAddr::from(([127, 40 + number, high, low], 0));
    let mut options = RoceOptions::random().unwrap();
    options.connections = 64;
    options.keys = 256;
    options.path = PathChoice::Local;
    options.look_again = Duration::from_secs(100_000);
    let backend = RoceBackend::open(address, options).unwrap();
    (backend, address)
}

/// Sends messages in both directions, one at a time.
fn ping_pong(near: &Zone, far: &Zone) {
    let (client, server) = connect(near, far, None).unwrap();
    for round in 0..ROUNDS {
        for (from, to, zones) in [
            (&client, &server, [near, far]),
            (&server, &client, [far, near]),
        ] {
            let received = to.recv(zones[1].buffer(8).unwrap());
            let sent = from.send(zones[0].copy(&round.to_le_bytes()).unwrap());
            sent.wait_timeout(SOON).expect("in time").unwrap();
            let message = received.wait_timeout(SOON).expect("in time").unwrap();
            assert_eq!(message.length, 8);
        }
    }
}

/// Threads that wait for a future are woken, with a thread for each adapter.
///
/// Spec: ROCE-235
#[test]
fn waits_for_futures_end_by_doorbells() {
    let open = |number| {
        let (backend, _) = device(number);
        let driver = backend.driver();
        let adapter = Options::new().open_backend(backend, driver).unwrap();
        adapter.zone().unwrap()
    };
    ping_pong(&open(0), &open(1));
}

/// So is an executor, which sleeps in a way of its own.
///
/// Spec: ROCE-235
#[test]
fn executors_are_woken_by_doorbells() {
    let mut adapters = Vec::new();
    let mut open = |number| {
        let (backend, _) = device(number);
        let driver = backend.driver();
        let (adapter, driver) = Options::new().open_backend_driven(backend, driver).unwrap();
        std::thread::spawn(|| block_on(driver));
        adapters.push(adapter.clone());
        adapter.zone().unwrap()
    };
    let (near, far) = (open(2), open(3));
    ping_pong(&near, &far);
    adapters.into_iter().for_each(|adapter| adapter.close());
}

/// Puts vectors from one node to another, and signals each time.
fn put_vectors(number: u8, polls: bool) {
    let ((near, near_at), (far, far_at)) = (device(number), device(number + 1));
    let node = |number| Node::new(number).connect_timeout(SOON);
    let driver = far.driver();
    let far = node(2)
        .listen(20_184)
        .peer(1, (IaAddress::from(near_at), 0))
        .open_backend(far, driver)
        .unwrap();
    let driver = near.driver();
    let mut opening = node(1).peer(2, (IaAddress::from(far_at), 20_184));
    if polls {
        opening = opening.poll(std::thread::yield_now);
    }
    let near = opening.open_backend(near, driver).unwrap();
    let export = far.export(Pages::anonymous(1 << 16).unwrap()).unwrap();
    let access = AccessEntry {
        node: 1,
        permission: 0o666,
    };
    let id = export.publish(0, &[access]).unwrap();
    let import = near.import(2, id, Permission::all()).wait().unwrap();
    for round in 0..ROUNDS {
        let puts = (0..16).map(|number| Put {
            memory: vec![round as u8; 4096],
            offset: number * 4096,
        });
        let put = import.putv(puts.collect(), VectorFlags::IMPLICIT_SIGPOST);
        put.wait().unwrap();
        export.signaled().wait().unwrap();
        let mut last = [0];
        export.load((1 << 16) - 1, &mut last).unwrap();
        assert_eq!(last, [round as u8]);
    }
    import.disconnect().wait().unwrap();
    export.destroy().wait().unwrap();
}

/// So are the calls of nodes of remote shared memory.
///
/// Spec: ROCE-235
#[test]
fn calls_of_nodes_end_by_doorbells() {
    put_vectors(4, false);
}

/// Calls that poll need none: they look at the queues themselves.
///
/// Spec: ROCE-235
#[test]
fn calls_of_nodes_that_poll_look_at_the_queues() {
    put_vectors(6, true);
}
