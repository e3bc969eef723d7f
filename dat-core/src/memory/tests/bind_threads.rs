//! Refused binds while another thread frees the region that they name.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::bind::PEERS;
use super::threads::connected;
use super::*;
use crate::sync::HostLock;
use crate::testing::Slots;

/// A refused bind never counts a window, not even for a moment.
///
/// So a region that was never bound can be freed at any time.
///
/// Spec: LMF-01, GEN-06, RMB-39
#[test]
fn a_refused_bind_keeps_no_region_from_being_freed() {
    const ROUNDS: u32 = 10_000;
    let device = TestBackend::default();
    let mut storage = Slots::<HostLock>::new();
    let ia = Ia::open(device.clone(), storage.lend(), 4).unwrap();
    let (pz, ep) = connected(&ia, &device);
    let rmr = ia.rmr_create(pz).unwrap();

    let context = AtomicU32::new(0);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let binder = scope.spawn(|| {
            let mut refused = 0_u32;
            // The thread may start late, on a busy machine.
            let given_up = Instant::now() + Duration::from_secs(60);
            while !over.load(Ordering::Relaxed) || refused == 0 && Instant::now() < given_up {
                let named = context.load(Ordering::Relaxed);
                // The region lacks a privilege that the bind needs, or it has been freed.
                let part = LmrTriplet {
                    context: named,
                    address: BASE as u64,
                    length: 8,
                };
                let outcome = ia.rmr_bind(rmr, &part, PEERS, ep, 1, CompletionFlags::empty());
                assert_eq!(outcome.unwrap_err().kind(), ErrorKind::PrivilegesViolation);
                refused += 1;
            }
            refused
        });
        let mut freed = 0;
        for _ in 0..ROUNDS {
            let made = ia
                .lmr_create(&LmrRequest {
                    memory: LmrMemory::Virtual(Region::from_addresses(BASE, LENGTH)),
                    pz,
                    privileges: MemoryPrivileges::LOCAL_READ,
                })
                .unwrap();
            context.store(made.lmr_context, Ordering::Relaxed);
            if ia.lmr_free(made.lmr).is_ok() {
                freed += 1;
            } else {
                while ia.lmr_free(made.lmr).is_err() {
                    thread::yield_now();
                }
            }
        }
        over.store(true, Ordering::Relaxed);
        assert!(binder.join().unwrap() != 0);
        assert_eq!(freed, ROUNDS);
    });
    assert_eq!(
        device.posted(device.pair(ep.handle().to_raw()).unwrap()).0,
        []
    );
}
