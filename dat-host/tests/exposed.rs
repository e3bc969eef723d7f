//! Accesses of a program and its peers to exposed memory; `non_coherent` has the same tests where
//! the device looks past the caches.

mod common;

use std::sync::atomic::{AtomicU8, Ordering};

use common::Pair;
use dat_core::ErrorKind;
use dat_host::{Access, Endpoint, Error, RemoteSlice};

const BOTH: Access = Access::all();

/// Writes bytes, and returns once a message behind them has come.
#[track_caller]
fn write(pair: &Pair, (near, far): (&Endpoint, &Endpoint), bytes: &[u8], remote: RemoteSlice) {
    let receive = far.recv(pair.far.buffer(4).unwrap());
    let written = near.write(pair.near.copy(bytes).unwrap(), remote);
    near.send(pair.near.copy(b"done").unwrap()).wait().unwrap();
    written.wait().unwrap();
    assert_eq!(&receive.wait().unwrap().memory[..], b"done");
}

#[track_caller]
fn read(pair: &Pair, near: &Endpoint, remote: RemoteSlice) -> Vec<u8> {
    let buffer = pair.near.buffer(remote.len() as usize).unwrap();
    near.read(remote, buffer).wait().unwrap().to_vec()
}

fn bytes_of(atomics: &[AtomicU8]) -> Vec<u8> {
    let loads = atomics.iter().map(|byte| byte.load(Ordering::Relaxed));
    loads.collect()
}

/// Stores and writes of the same bytes take turns; stores beside a write survive.
///
/// Spec: LSW-12..14, LSW-22, LSR-02
#[test]
fn loads_and_stores_take_turns_with_a_peer() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let mut region = pair.far.region(vec![0; 256]).unwrap();
    region.fill(1);
    let window = region.expose(64..192, BOTH).to(&far).wait().unwrap();
    let zone_window = pair.far.window(vec![0; 256], BOTH).unwrap();
    let (remote, zone_remote) = (window.remote(), zone_window.remote());
    assert_eq!(
        read(&pair, &near, remote),
        [1; 128],
        "stores before the bind"
    );
    for round in 2..8 {
        let mut seen = [0; 128];
        window.store(0, &[round; 128]).unwrap();
        zone_window.store(0, &[round; 256]).unwrap();
        assert_eq!(read(&pair, &near, remote), [round; 128]);
        assert_eq!(read(&pair, &near, zone_remote), [round; 256]);
        let part = remote.slice(20..100).unwrap();
        write(&pair, (&near, &far), &[round + 100; 80], part);
        let part = zone_remote.slice(20..100).unwrap();
        write(&pair, (&near, &far), &[round + 100; 80], part);
        window.load(0, &mut seen).unwrap();
        assert_eq!(seen[..20], [round; 20]);
        assert_eq!(seen[20..100], [round + 100; 80]);
        assert_eq!(seen[100..], [round; 28]);
        zone_window.load(0, &mut seen).unwrap();
        assert_eq!(seen[20..100], [round + 100; 80]);
        assert_eq!(seen[100..], [round; 28]);
        window.store(50, b"now").unwrap();
        zone_window.store(50, b"now").unwrap();
        for remote in [remote, zone_remote] {
            assert_eq!(read(&pair, &near, remote.slice(50..53).unwrap()), b"now");
        }
    }
}

/// Memory that no peer reaches any longer holds what peers wrote before their last message.
///
/// Spec: LSW-05, LSW-08
#[test]
fn memory_comes_back_with_the_writes_of_peers() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let region = pair.far.region(vec![3; 100]).unwrap();
    let window = region.expose(10..60, BOTH).to(&far).wait().unwrap();
    write(
        &pair,
        (&near, &far),
        b"first",
        window.remote().slice(..5).unwrap(),
    );
    let region = window.revoke().wait();
    assert_eq!(&region[10..17], b"first\x03\x03");
    // Without a connection the window is freed instead.
    let window = region.expose(.., BOTH).to(&far).wait().unwrap();
    write(
        &pair,
        (&near, &far),
        b"second",
        window.remote().slice(..6).unwrap(),
    );
    drop(near);
    far.ended().wait();
    let region = window.revoke().wait();
    assert_eq!(&region[..17], b"second\x03\x03\x03\x03first\x03\x03");
    assert_eq!(&region.into_inner()[..6], b"second");

    let (near, far) = pair.connect();
    let window = pair.far.window(vec![0; 100], BOTH).unwrap();
    write(
        &pair,
        (&near, &far),
        b"third",
        window.remote().slice(..5).unwrap(),
    );
    assert_eq!(&window.into_inner()[..6], b"third\0");

    let region = pair.far.region(vec![0; 100]).unwrap();
    let window = region.expose(.., BOTH).to(&far).wait().unwrap();
    write(
        &pair,
        (&near, &far),
        b"last",
        window.remote().slice(..4).unwrap(),
    );
    pair.far_adapter.close();
    assert_eq!(&window.revoke().wait()[..5], b"last\0");
}

/// The two calls of DAT, for programs that use the atomics of windows.
///
/// Spec: LSW-02, LSW-09, LSW-10, LSR-01, LSR-03
#[test]
fn atomics_are_synchronised_by_the_program() {
    let pair = Pair::new();
    let adapter = &pair.far_adapter;
    let needed = adapter.query().unwrap().provider.lmr_sync_req;
    assert_eq!(needed, common::NON_COHERENT);
    let (near, far) = pair.connect();
    let region = pair.far.region(vec![0; 256]).unwrap();
    let window = region.expose(100.., BOTH).to(&far).wait().unwrap();
    let zone_window = pair.far.window(vec![0; 256], BOTH).unwrap();
    let ends = (&near, &far);
    write(
        &pair,
        ends,
        &[1; 20],
        window.remote().slice(30..50).unwrap(),
    );
    write(
        &pair,
        ends,
        &[2; 20],
        zone_window.remote().slice(60..80).unwrap(),
    );
    let (one, other) = (&window.atomics()[30..50], &zone_window.atomics()[60..80]);
    if needed {
        assert_eq!((bytes_of(one), bytes_of(other)), (vec![0; 20], vec![0; 20]));
    }
    let ranges = [
        window.exposed(30..50).unwrap(),
        zone_window.exposed(60..80).unwrap(),
    ];
    adapter.sync_rdma_write(&ranges).unwrap();
    assert_eq!((bytes_of(one), bytes_of(other)), (vec![1; 20], vec![2; 20]));
    for byte in one.iter().chain(other) {
        byte.store(9, Ordering::Relaxed);
    }
    let remotes = [
        window.remote().slice(30..50).unwrap(),
        zone_window.remote().slice(60..80).unwrap(),
    ];
    if needed {
        assert_eq!(read(&pair, &near, remotes[0]), [1; 20]);
    }
    adapter.sync_rdma_read(&ranges).unwrap();
    for remote in remotes {
        assert_eq!(read(&pair, &near, remote), [9; 20]);
    }
    // More ranges than one call of the core gets.
    let many: Vec<_> = (0..50)
        .map(|at| zone_window.exposed(at..at + 1).unwrap())
        .collect();
    write(
        &pair,
        ends,
        &[7; 50],
        zone_window.remote().slice(..50).unwrap(),
    );
    adapter.sync_rdma_write(&many).unwrap();
    assert_eq!(bytes_of(&zone_window.atomics()[..50]), [7; 50]);
    adapter.sync_rdma_write(&[]).unwrap();
}

/// Spec: LSW-18, LSW-19
#[test]
fn ranges_of_other_memory_and_adapters_are_refused() {
    let pair = Pair::new();
    let window = pair.far.window(vec![0; 64], BOTH).unwrap();
    let (near, far) = pair.connect();
    let region = pair.far.region(vec![0; 64]).unwrap();
    let bound = region.expose(8..16, BOTH).to(&far).wait().unwrap();
    for range in [0..65, 65..65, usize::MAX..usize::MAX] {
        assert!(window.exposed(range).is_err());
    }
    for range in [0..9, 9..9, 8..16] {
        assert!(bound.exposed(range).is_err());
    }
    let whole = [window.exposed(..).unwrap(), bound.exposed(..).unwrap()];
    pair.far_adapter.sync_rdma_write(&whole).unwrap();
    let kind = |outcome: dat_host::Result<()>| {
        let error = outcome.unwrap_err();
        error.core().map(|error| error.kind())
    };
    let invalid = Some(ErrorKind::InvalidHandle);
    assert_eq!(kind(pair.near_adapter.sync_rdma_write(&whole)), invalid);
    assert_eq!(kind(pair.near_adapter.sync_rdma_read(&whole[1..])), invalid);
    pair.far_adapter.close();
    let closed = pair.far_adapter.sync_rdma_read(&whole);
    assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
    // Copies go on: nobody else has the memory.
    window.store(0, b"late").unwrap();
    let mut bytes = [0; 4];
    window.load(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"late");
    drop(near);
}
