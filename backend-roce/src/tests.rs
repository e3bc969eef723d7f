//! Adapters whose clock is the test's, over ports in memory: their processes seem to be stopped.

use core::net::{Ipv4Addr, SocketAddr};
use core::sync::atomic::{AtomicU64, Ordering};
use std::boxed::Box;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_core::attributes::IaAddress;
use dat_core::backend::Backend as _;
use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, Event};
use dat_core::flags::{ConnectFlags, EndpointState, EvdFlags, PspFlags, QualityOfService};
use dat_core::id::{EpId, EvdId};
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_storage::{Limits, OwnedIa};

use crate::{RoceBackend, RoceDriver, RoceOptions};

#[expect(dead_code, unreachable_pub, reason = "for other tests, too")]
#[path = "../tests/common/wire.rs"]
mod wire;

use wire::Wire;

/// Time of the adapters, in microseconds.
static NOW: AtomicU64 = AtomicU64::new(0);

/// Held by each test.
static ALONE: Mutex<()> = Mutex::new(());

fn clock() -> Instant {
    Instant::from_micros(NOW.load(Ordering::Relaxed))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An adapter with an endpoint. Its thread never runs.
struct Side {
    ia: OwnedIa<RoceBackend, HostLock>,
    address: IaAddress,
    driver: RoceDriver,
    evd: EvdId,
    ep: EpId,
}

impl Side {
    fn open(host: u8, wire: &Wire) -> Self {
        let port = wire.port(SocketAddr::new(Ipv4Addr::new(10, 0, 0, host).into(), 4791));
        let options = RoceOptions::new([host; 16]);
        let backend = RoceBackend::new(Box::new(port), options, Some(clock), None);
        let backend = backend.expect("memory");
        let (address, driver) = (backend.ia_attributes().ia_address, backend.driver());
        let Ok(ia) = OwnedIa::open(backend, &Limits::default(), 16) else {
            panic!("no interface adapter");
        };
        let pz = ia.pz_create().expect("a zone");
        let kinds = EvdFlags::DEFAULT & !EvdFlags::ASYNC;
        let evd = ia.evd_create(16, None, kinds).expect("a queue");
        let ep = ia.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None);
        let ep = ep.expect("an endpoint");
        Self {
            ia,
            address,
            driver,
            evd,
            ep,
        }
    }

    /// Judges deadlines; returns an event if there is one.
    fn look(&self) -> Option<Event> {
        while self.ia.progress(clock()) != 0 {}
        self.ia.evd_dequeue(self.evd).ok()
    }

    fn connection_event(&self) -> Option<ConnectionEventKind> {
        self.look().map(|event| match event {
            Event::Connection { kind, .. } => kind,
            other => panic!("{other:?}"),
        })
    }
}

/// Makes two sides; the first one asks the second one for a connection, for at most 1 s.
///
/// Returns the wire between them, too.
fn ask() -> (Side, Side, Wire) {
    let wire = Wire::default();
    let [left, right] = [1, 2].map(|host| Side::open(host, &wire));
    let point = right.ia.psp_create(5_000, right.evd, PspFlags::Consumer);
    point.expect("a service point");
    let param = ConnectParam {
        address: right.address,
        qualifier: 5_000,
        timeout: 1_000_000,
        private_data: &[],
        quality: QualityOfService::BEST_EFFORT,
        flags: ConnectFlags::empty(),
    };
    left.ia
        .ep_connect(left.ep, &param, clock())
        .expect("an attempt");
    (left, right, wire)
}

/// Both processes are stopped while the acceptance is on its way: it counts, though the deadline
/// has passed before anybody could read it.
///
/// Spec: ROCE-200, EPK-06
#[test]
fn a_reply_that_came_during_a_stop_counts() {
    let _alone = lock(&ALONE);
    let (left, right, wire) = ask();
    // Its mark gets a cookie, and the request comes again with it.
    for side in [&right, &left, &right] {
        side.driver.drive(clock());
    }
    let Some(Event::ConnectionRequest { cr, .. }) = right.look() else {
        panic!("no request");
    };
    let accepted = right.ia.cr_accept(cr, Some(right.ep), &[]);
    accepted.expect("an acceptance");
    // More than are read at once, before it.
    wire.put_first(Ipv4Addr::new(10, 0, 0, 1).into(), 3_000, &[0; 8]);
    NOW.fetch_add(40_000_000, Ordering::Relaxed);
    assert_eq!(
        left.connection_event(),
        Some(ConnectionEventKind::Established)
    );
    NOW.fetch_add(40_000_000, Ordering::Relaxed);
    assert_eq!(
        right.connection_event(),
        Some(ConnectionEventKind::Established)
    );
}

/// Without an acceptance, the deadline counts after a stop, too.
///
/// Spec: ROCE-200, EPK-06
#[test]
fn an_attempt_without_a_reply_ends_after_a_stop() {
    let _alone = lock(&ALONE);
    let (left, _right, _) = ask();
    NOW.fetch_add(40_000_000, Ordering::Relaxed);
    let event = left.connection_event();
    assert!(
        matches!(
            event,
            Some(ConnectionEventKind::TimedOut | ConnectionEventKind::Unreachable)
        ),
        "{event:?}"
    );
    let state = left.ia.ep_get_status(left.ep).expect("a status").state;
    assert_eq!(state, EndpointState::Disconnected);
}
