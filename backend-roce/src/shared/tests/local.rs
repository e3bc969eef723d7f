//! Tests of local queues that a test feeds.

use alloc::collections::VecDeque;
use alloc::vec;

use dat_core::backend::NotLocal;
use dat_core::sync::RegisteredSpan;

use super::*;
use crate::port::{Gone, LocalEvent, LocalNumber, LocalQueue};
use crate::proto::connection::{Ids, Mad, Message, encode_packet};
use crate::proto::{PathMtu, Psn};

const PAIR: LocalNumber = LocalNumber { slot: 0, turn: 1 };

/// Events that a hostile peer has before the test gives up.
const ENDLESS: usize = 1 << 20;

/// Queues of a test, in both directions.
#[derive(Default)]
struct Queues {
    events: Mutex<VecDeque<LocalEvent>>,
    packets: Mutex<VecDeque<Vec<u8>>>,
    /// Set if the peer reports room again and again.
    has_endless_room: bool,
    /// Events and packets that were taken.
    taken: AtomicUsize,
    /// Ports that were given back.
    released: Mutex<Vec<u16>>,
    /// Records that were written, and rings.
    pushed: AtomicUsize,
    rung: AtomicUsize,
}

impl LocalQueues for Queues {
    fn dial(&self, _: IpAddr, _: SocketAddr, _: bool) -> Result<LocalNumber, NotLocal> {
        Err(NotLocal::System)
    }

    fn dialled(&self, _: LocalNumber) {}

    fn event(&self) -> Option<LocalEvent> {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        assert!(taken < ENDLESS, "without end");
        let room = self.has_endless_room.then_some(LocalEvent::Room(PAIR));
        lock(&self.events).pop_front().or(room)
    }

    fn receive(&self, buffer: &mut [u8]) -> Option<Arrival> {
        let packet = lock(&self.packets).pop_front()?;
        self.taken.fetch_add(1, Ordering::Relaxed);
        buffer[..packet.len()].copy_from_slice(&packet);
        Some(Arrival {
            flow: Flow::between(ClosedPort.address(), ClosedPort.address())?,
            length: packet.len(),
            segment: packet.len(),
            local: Some(PAIR),
            is_split: false,
        })
    }

    fn release(&self, _: LocalNumber) {}

    fn is_used(&self) -> bool {
        true
    }

    fn next_look(&self) -> Option<Instant> {
        None
    }

    fn attend(&self, _: Gone) {}

    fn attend_next(&self) {}

    fn close(&self) {}

    fn doorbells(&self) -> u64 {
        0
    }

    fn arm(&self) -> bool {
        false
    }
}

impl LocalQueue for Queues {
    fn room(&self, _: usize) -> usize {
        1 << 16
    }

    fn has_room(&self, _: usize) -> bool {
        true
    }

    fn withdraw(&self) {}

    fn push(&self, _: &[u8], _: usize) {
        self.pushed.fetch_add(1, Ordering::Relaxed);
    }

    fn place(&self, _: usize, _: RegisteredSpan<'_>) -> bool {
        false
    }

    fn push_split(&self, _: &[u8], _: usize) {}

    fn take(&self, _: usize, _: RegisteredSpan<'_>) -> bool {
        false
    }

    fn ring(&self) {
        self.rung.fetch_add(1, Ordering::Relaxed);
    }

    fn positions(&self) -> [u32; 2] {
        [0; 2]
    }

    fn flow(&self) -> Flow {
        Flow::between(ClosedPort.address(), ClosedPort.address()).expect("one family")
    }

    fn peer(&self) -> ([u8; 16], i32) {
        ([0; 16], 0)
    }
}

/// A port without sockets, beside which there are queues.
struct QueuesOnly(Arc<Queues>);

impl Half for QueuesOnly {
    fn local(&self) -> Option<Arc<dyn LocalQueues>> {
        Some(Arc::<Queues>::clone(&self.0))
    }

    fn release(&self, port: u16) {
        lock(&self.0.released).push(port);
    }
}

/// Makes an adapter with a pair of these queues.
fn adapter(queues: &Arc<Queues>) -> Shared {
    lock(&queues.events).push_back(LocalEvent::Opened {
        pair: PAIR,
        mtu: PathMtu::Bytes32768,
        queue: Arc::<Queues>::clone(queues),
    });
    let port = QueuesOnly(Arc::clone(queues));
    let adapter = Adapter::new(RoceOptions::new([0; 16]), port.address(), 1).unwrap();
    Shared::new(adapter, Box::new(port), None, None).unwrap()
}

/// Returns a message about a connection that there is not.
fn stranger() -> Vec<u8> {
    let message = Message::DisconnectRequest {
        ids: Ids {
            local: 7,
            remote: 8,
        },
        qpn: 9,
        broken: false,
    };
    let mad = Mad {
        transaction: 1,
        message,
    };
    let mut packet = vec![0; 512];
    let length = encode_packet(&mad.encode(), Psn::new(0), &mut packet).unwrap();
    packet.truncate(length);
    packet
}

/// A peer that reports room without end keeps nobody from packets, or the thread from the rest.
///
/// Spec: ROCE-233, ROCE-234
#[test]
fn room_without_end_ends_a_look() {
    let queues = Arc::new(Queues {
        has_endless_room: true,
        packets: Mutex::new([stranger()].into()),
        ..Queues::default()
    });
    let shared = adapter(&queues);
    let driven = shared.drive_local(|| false);
    assert!(driven.more && driven.found);
    assert_eq!(shared.enter(|adapter| adapter.counts()).packets, 1);
    let taken = queues.taken.load(Ordering::Relaxed);
    assert!(taken <= 2048, "{taken}");
}

/// An answer that is written outside of a turn of queue pairs wakes its peer, too.
///
/// Spec: ROCE-213
#[test]
fn a_packet_outside_of_a_turn_rings() {
    let queues = Arc::new(Queues::default());
    let shared = adapter(&queues);
    shared.drive_local(|| false);
    lock(&queues.packets).push_back(stranger());
    shared.drive_local(|| false);
    let counts = [&queues.pushed, &queues.rung].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counts, [1, 1]);
}

/// Ports are given back beside datagrams that want queues.
///
/// Spec: ROCE-280
#[test]
fn wanted_queues_keep_no_ports() {
    let queues = Arc::new(Queues::default());
    let shared = adapter(&queues);
    let own = ClosedPort.address();
    shared.enter(|adapter| {
        adapter.unused_ports.extend([5, 6]);
        adapter.ways.want((own.ip(), own));
        adapter.has_chores = true;
    });
    assert!(shared.send_pending());
    let mut released = lock(&queues.released).clone();
    released.sort_unstable();
    assert_eq!(released, [5, 6]);
}
