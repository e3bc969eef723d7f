//! Children of `fork`: what is pending in them ends, and adapters of their own have deadlines.
#![cfg(target_os = "linux")]

mod common;
#[cfg(feature = "rsm")]
#[path = "forks/nodes.rs"]
mod nodes;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::time::Duration;

use backend_mock::FabricOptions;
use common::{Pair, connect};
use dat_host::{Access, Adapter, Driver, Endpoint, Error, Network, Options, Zone};
use futures::executor::block_on;
use futures::future::{self, Either};

/// Forks; the child runs `act` and exits, or is killed after a minute.
#[expect(unsafe_code, reason = "the subject of these tests")]
fn in_child(act: impl FnOnce()) {
    // SAFETY: the C library keeps its heap usable in the child, and `act` takes no lock of a thread
    // that the child does not have.
    let child = match unsafe { libc::fork() } {
        0 => {
            // SAFETY: as above; `alarm` has no other effect.
            unsafe { libc::alarm(60) };
            let ended = catch_unwind(AssertUnwindSafe(act));
            // SAFETY: it ends the process, without the destructors of the parent.
            unsafe { libc::_exit(i32::from(ended.is_err())) }
        }
        child => child,
    };
    let mut status = 0;
    // SAFETY: the status is a variable of the stack.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0), "the child fails or hangs");
}

/// Sends a message from an endpoint to another one, each with its zone.
fn exchange(near: (&Endpoint, &Zone), far: (&Endpoint, &Zone)) {
    let receive = far.0.recv(far.1.buffer(8).unwrap());
    near.0.send(near.1.copy(b"on").unwrap()).wait().unwrap();
    assert_eq!(&receive.wait().unwrap().memory[..], b"on");
}

/// Uses everything of two connected zones in a child, and drops it there.
fn end_in_child(near: &Adapter, far: &Adapter) {
    let (near_zone, far_zone) = (near.zone().unwrap(), far.zone().unwrap());
    let (near_end, far_end) = connect(&near_zone, &far_zone, None).unwrap();
    let queue = far_zone.shared_receive(4, 64).unwrap();
    let (_other_end, shared_end) = connect(&near_zone, &far_zone, Some(&queue)).unwrap();
    let listener = far_zone.listen_with(None, 4).unwrap();
    let receive = far_end.recv(far_zone.region(vec![7_u8; 8]).unwrap());
    let waited = far_end.recv(far_zone.buffer(8).unwrap());
    let dropped = far_end.recv(far_zone.buffer(8).unwrap());
    let connecting = near_zone.connect((far.address().unwrap(), listener.qualifier()));
    let connecting = connecting.start();
    let window = far_zone.region(vec![4_u8; 8]).unwrap();
    let window = window.expose(.., Access::READ).to(&far_end).wait().unwrap();
    let (message, ended) = (shared_end.next_message(), near_end.ended());
    let objects = (
        near_zone, far_zone, near_end, far_end, shared_end, queue, window,
    );
    in_child(move || {
        let (near_zone, far_zone, near_end, far_end, shared_end, queue, window) = objects;
        // What was pending before the fork ends, and gives its memory back.
        let failed = block_on(receive).unwrap_err();
        assert!(matches!(failed.error, Error::Closed));
        assert_eq!(failed.memory.into_inner(), [7; 8]);
        assert!(matches!(waited.wait().unwrap_err().error, Error::Closed));
        drop(dropped);
        assert!(matches!(block_on(connecting), Err(Error::Closed)));
        assert!(matches!(block_on(message), Err(Error::Closed)));
        block_on(ended);
        // What begins in the child is refused.
        assert!(matches!(block_on(listener.next()), Err(Error::Closed)));
        assert!(matches!(listener.next().wait(), Err(Error::Closed)));
        near_end.ended().wait();
        assert!(near_end.disconnect().wait().is_err());
        assert!(far_zone.buffer(8).is_err());
        assert!(far_zone.region(vec![0_u8; 8]).is_err());
        assert!(near_zone.endpoint(None).is_err());
        assert!(near_zone.listen(7).is_err());
        for peer in ["127.0.0.1:9", "far:9"] {
            assert!(matches!(near_zone.connect(peer).wait(), Err(Error::Closed)));
        }
        drop((near_end, far_end, shared_end, queue, window, listener));
        drop((near_zone, far_zone));
    });
}

#[test]
fn what_is_pending_ends_in_a_child() {
    for _ in 0..10 {
        let pair = Pair::new();
        end_in_child(&pair.near_adapter, &pair.far_adapter);
        // The parent has lost nothing.
        let (near, far) = pair.connect();
        exchange((&near, &pair.near), (&far, &pair.far));
    }
}

/// Exposed memory stays the child's, but no call for it reaches the adapter of the parent.
///
/// Spec: LSR-01, LSW-02
#[test]
fn a_child_does_not_synchronise_the_memory_of_its_parent() {
    let network = Network::new(Network::options()).non_coherent();
    let open = || Options::new().network(&network).open("mock://one").unwrap();
    let adapter = open();
    let zone = adapter.zone().unwrap();
    let (near, far) = connect(&zone, &zone, None).unwrap();
    let both = Access::READ | Access::WRITE;
    let region = zone.region(vec![3_u8; 8]).unwrap();
    let window = region.expose(.., both).to(&far).wait().unwrap();
    let zone_window = zone.window(vec![4_u8; 8], both).unwrap();
    // The peer's bytes show after the next synchronisation, which a child does not make.
    let write = near.write(zone.copy(&[5; 8]).unwrap(), zone_window.remote());
    write.wait().unwrap();
    in_child(|| {
        assert!(adapter.address().is_err());
        let ranges = [
            window.exposed(..).unwrap(),
            zone_window.exposed(..).unwrap(),
        ];
        assert!(matches!(
            adapter.sync_rdma_read(&ranges),
            Err(Error::Closed)
        ));
        assert!(matches!(
            adapter.sync_rdma_write(&ranges),
            Err(Error::Closed)
        ));
        let mut bytes = [0; 8];
        zone_window.load(0, &mut bytes).unwrap();
        assert_eq!(bytes, [4; 8]);
        zone_window.store(0, &[6; 8]).unwrap();
        assert_eq!(zone_window.into_inner(), [6; 8]);
        window.store(0, &[6; 8]).unwrap();
        window.load(0, &mut bytes).unwrap();
        assert_eq!(bytes, [6; 8]);
        drop(window.revoke());
    });
}

#[cfg(feature = "roce")]
#[test]
fn what_is_pending_on_sockets_ends_in_a_child() {
    for number in 1..=10 {
        let [_, low, mid, high] = std::process::id().to_be_bytes();
        let address = |side: u8| format!("roce://127.{}.{mid}.{high}", 64 + (low ^ side) + number);
        let open = |side| Adapter::open(&address(side)).unwrap();
        end_in_child(&open(0), &open(32));
    }
}

/// Runs a future beside the driver of its adapter, on an executor without a clock.
fn drive<F: Future>(driver: Driver, future: F) -> F::Output {
    block_on(async {
        match future::select(pin!(future), pin!(driver)).await {
            Either::Left((output, _)) => output,
            Either::Right(_) => panic!("the driver has ended"),
        }
    })
}

/// Sends a message over a network whose messages take time, so that the driver needs a timer.
fn send_late() {
    let network = Network::new(FabricOptions {
        latency: 2_000..=2_000,
        ..Network::options()
    });
    let open = || {
        Options::new()
            .network(&network)
            .open_driven("mock://both")
            .unwrap()
    };
    let (adapter, driver) = open();
    let zone: Zone = adapter.zone().unwrap();
    drive(driver, async {
        let listener = zone.listen(9).unwrap();
        let (near, far) = future::join(zone.connect("both:9").start(), async {
            listener.next().await.unwrap().accept().await
        })
        .await;
        let (near, far) = (near.unwrap(), far.unwrap());
        let receive = far.recv(zone.buffer(8).unwrap());
        near.send(zone.copy(b"late").unwrap()).await.unwrap();
        assert_eq!(&receive.await.unwrap().memory[..], b"late");
    });
}

/// The parent has a thread for deadlines when it forks, and the child's child, too.
#[test]
fn an_adapter_of_a_child_has_deadlines() {
    send_late();
    in_child(|| {
        send_late();
        in_child(send_late);
    });
}

/// A child opens the network of `mock://` addresses that its parent was using.
#[test]
fn a_child_has_a_network_of_its_own() {
    let parent = Adapter::open("mock://parent").unwrap();
    let listener = parent.zone().unwrap().listen(5).unwrap();
    in_child(|| {
        let zone = Adapter::open("mock://child").unwrap().zone().unwrap();
        let connecting = zone.connect("parent:5").deadline_in(Duration::from_secs(1));
        assert!(matches!(connecting.wait(), Err(Error::Connection(_))));
        let (near, far) = connect(&zone, &zone, None).unwrap();
        exchange((&near, &zone), (&far, &zone));
    });
    drop(listener);
}

/// A child that finds the table of operations locked for ever panics; it never waits.
#[test]
fn a_fork_amid_operations_ends_what_is_pending() {
    let pair = Pair::new();
    let (_near, far) = pair.connect();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let (near, far) = pair.connect();
                for _ in 0..1_000 {
                    exchange((&near, &pair.near), (&far, &pair.far));
                }
            });
        }
        for _ in 0..12 {
            let receive = far.recv(pair.far.region(vec![7_u8; 8]).unwrap());
            in_child(move || {
                let ended = catch_unwind(AssertUnwindSafe(|| block_on(receive)));
                match ended {
                    Ok(ended) => {
                        let failed = ended.unwrap_err();
                        assert!(matches!(failed.error, Error::Closed));
                        assert_eq!(failed.memory.into_inner(), [7; 8]);
                    }
                    Err(panic) => {
                        let words = panic.downcast_ref::<String>().unwrap();
                        assert!(words.contains("idle when the process forked"), "{words}");
                    }
                }
            });
        }
    });
}
