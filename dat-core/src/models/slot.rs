//! Objects that are destroyed while other threads look them up.

use loom::thread;
use std::sync::Arc;

use super::bench::Bench;
use super::prove;
use crate::error::ErrorKind;
use crate::event::Event;
use crate::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use crate::memory::{LmrMemory, LmrRequest, LmrTriplet, Region};
use crate::sync::loom_sync::set_under_way;

const BASE: usize = 0x1000;

/// A post races with freeing its endpoint: it is refused, or goes to that endpoint.
///
/// It never goes to the endpoint that takes the slot.
///
/// Spec: EPF-01, GEN-06
#[test]
fn a_post_meets_the_endpoint_that_it_names() {
    prove(None, || {
        let bench = Arc::new(Bench::new());
        let evd = bench.dispatcher();
        let flags = CompletionFlags::empty();
        // One of the two slots is left.
        bench.connected(evd);
        let ep = bench.connected(evd);
        let other = bench.clone();
        set_under_way(true);
        let thread = thread::spawn(move || {
            other.ia.ep_free(ep).unwrap();
            other.connected(evd)
        });
        if let Err(error) = bench.ia.post_send(ep, &[], 5, flags) {
            assert_eq!(error.kind(), ErrorKind::InvalidHandle);
        }
        let next = thread.join().unwrap();
        assert_eq!(next.index(), ep.index());
        let pair = bench.device.pair(next.handle().to_raw()).unwrap();
        assert_eq!(bench.device.posted(pair).0, []);
        // The record that the late post may have taken is free for the next generation.
        bench.ia.post_send(next, &[], 6, flags).unwrap();
    });
}

/// A completion that races with freeing its endpoint belongs to that endpoint, or is dropped.
///
/// The next endpoint in the slot never gets it.
///
/// Spec: EPF-01, DTO-12
#[test]
fn a_completion_does_not_outlive_its_endpoint() {
    prove(None, || {
        let bench = Arc::new(Bench::new());
        let evd = bench.dispatcher();
        bench.connected(evd);
        let ep = bench.connected(evd);
        let flags = CompletionFlags::empty();
        bench.ia.post_send(ep, &[], 5, flags).unwrap();
        let pair = bench.device.pair(ep.handle().to_raw()).unwrap();
        assert!(bench.device.complete_request(pair, DtoStatus::Success));
        let other = bench.clone();
        set_under_way(true);
        let thread = thread::spawn(move || {
            other.ia.ep_free(ep).unwrap();
            let next = other.connected(evd);
            other.ia.post_send(next, &[], 6, flags).unwrap();
            next
        });
        if let Ok(Event::Dto(completion)) = bench.ia.evd_dequeue(evd) {
            assert_eq!((completion.ep, completion.cookie), (ep, 5));
        }
        let next = thread.join().unwrap();
        assert!(bench.ia.evd_dequeue(evd).is_err());
        let pair = bench.device.pair(next.handle().to_raw()).unwrap();
        assert!(bench.device.complete_request(pair, DtoStatus::Success));
        let Ok(Event::Dto(completion)) = bench.ia.evd_dequeue(evd) else {
            panic!("the next endpoint's request completes");
        };
        assert_eq!((completion.ep, completion.cookie), (next, 6));
    });
}

/// With a device that reads data at post, freeing the region waits for the post.
///
/// The test device refuses to read with a dead key.
///
/// Spec: LMF-03
#[test]
fn a_region_outlasts_the_posts_that_read_it() {
    prove(None, || {
        let bench = Arc::new(Bench::new());
        let evd = bench.dispatcher();
        let ep = bench.connected(evd);
        let made = bench
            .ia
            .lmr_create(&LmrRequest {
                memory: LmrMemory::Virtual(Region::from_addresses(BASE, 64)),
                pz: bench.pz,
                privileges: MemoryPrivileges::LOCAL_READ,
            })
            .unwrap();
        let other = bench.clone();
        set_under_way(true);
        let thread = thread::spawn(move || other.ia.lmr_free(made.lmr).unwrap());
        let segment = LmrTriplet {
            context: made.lmr_context,
            address: BASE as u64,
            length: 8,
        };
        let flags = CompletionFlags::empty();
        if let Err(error) = bench.ia.post_send(ep, &[segment], 5, flags) {
            assert_eq!(error.kind(), ErrorKind::PrivilegesViolation);
        }
        thread.join().unwrap();
        let late = bench.ia.post_send(ep, &[segment], 5, flags).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::PrivilegesViolation);
    });
}
