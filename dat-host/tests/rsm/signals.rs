//! Signals and waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dat_host::Pages;
use dat_host::rsm::{Node, Permission, Put, RsmError, VectorFlags};
use futures::executor::block_on;

use super::common::{self, SOON};
use super::pair::{Pair, access, node, reason};

#[test]
fn waits_for_signals_end_in_time_and_by_the_program() {
    let network = common::network();
    let ends = Arc::new(AtomicBool::new(false));
    let far = node(2).listen(7).peer(1, "near:0").network(&network);
    let near = node(1).peer(2, "far:7").network(&network);
    let asked = Arc::clone(&ends);
    let near = near.interrupt(move || asked.load(Ordering::SeqCst));
    let far = far.open("mock://far").unwrap();
    let pair = Pair::of(near.open("mock://near").unwrap(), far);
    let short = Duration::from_millis(20);
    assert!(!pair.import.signaled_within(short).wait().unwrap());
    assert!(!pair.export.signaled_within(short).wait().unwrap());
    pair.import.signal().wait().unwrap();
    assert!(pair.export.signaled_within(SOON).wait().unwrap());
    assert!(!pair.export.signaled_within(Duration::ZERO).wait().unwrap());
    let waits = pair.import.signaled().start();
    ends.store(true, Ordering::SeqCst);
    assert_eq!(reason(block_on(waits)), RsmError::Interrupted);
    // Calls that free an object go on.
    let local = pair.near.local_memory(vec![7_u8; 64]).unwrap();
    assert_eq!(local.free().wait().unwrap(), [7; 64]);
    pair.import.disconnect().wait().unwrap();
    pair.near.close().wait().unwrap();
    pair.export.destroy().wait().unwrap();
}

/// The exporter may end on the last signal.
fn signal_the_end(listening: &str, open: impl Fn(bool) -> Node) {
    for number in 0..20 {
        let (near, far) = (open(false), open(true));
        let export = far.export(Pages::anonymous(4096).unwrap()).unwrap();
        let id = export.publish(0, &access(0o666)).unwrap();
        let import = near.import(2, id, Permission::all()).wait().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                export.signaled().wait().unwrap();
                let pages = export.destroy().wait().unwrap();
                assert_eq!(pages[..8], [7; 8]);
                far.close().wait().unwrap();
            });
            let put = Put {
                memory: [7_u8; 8],
                offset: 0,
            };
            match number % 2 {
                0 => {
                    import.put(0, [7_u8; 8]).wait().unwrap();
                    import.signal().wait().expect(listening);
                }
                _ => {
                    let put = import.putv(vec![put], VectorFlags::IMPLICIT_SIGPOST);
                    drop(put.wait().expect(listening));
                }
            }
        });
        // The import may be aborted by now.
        let _ = import.disconnect().wait();
        near.close().wait().unwrap();
    }
}

#[test]
fn the_last_signal_has_arrived() {
    let network = common::network();
    signal_the_end("mock", |listens| {
        let opening = match listens {
            true => node(2).listen(7).peer(1, "near:0").network(&network),
            false => node(1).peer(2, "far:7").network(&network),
        };
        let name = if listens { "far" } else { "near" };
        opening.open(&format!("mock://{name}")).unwrap()
    });
}

#[cfg(feature = "roce")]
#[test]
fn the_last_signal_has_arrived_over_udp() {
    signal_the_end("roce", |listens| {
        let opening = match listens {
            true => node(2).listen(7178).peer(1, "127.0.0.41:0"),
            false => node(1).peer(2, "127.0.0.42:7178"),
        };
        let address = if listens { "127.0.0.42" } else { "127.0.0.41" };
        opening.open(&format!("roce://{address}")).unwrap()
    });
}
