//! Time-outs of packets that lie unread in queues in memory (ROCE-290, ROCE-291).
//!
//! A network card acknowledges while its process is stopped. The adapter of such a process does
//! not, but the position of its reader tells that nothing is lost.

use dat_core::time::Instant;

use super::Adapter;
use crate::port::{LocalNumber, STOPPED};
use crate::proto::connection::State as LinkState;

/// Most microseconds of silence that count between two time-outs: this process may have been
/// stopped, too.
const LOOK: u64 = 10_000_000;

/// Packets that lay in the queue to a peer at a time-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unread {
    /// PSN up to which requests were acknowledged then; another one is progress.
    progress: u32,
    /// Position of the queue behind them.
    end: u32,
    /// Time of the last time-out, and of all from the first one on.
    looked: Instant,
    waited: u64,
}

/// Returns true if a time-out does not count: the peer has not read what lay in its queue at the
/// first one without progress. `known` keeps that.
fn is_unread(
    known: &mut Option<Unread>,
    [read, written]: [u32; 2],
    progress: u32,
    now: Instant,
) -> bool {
    let before = known.take().filter(|known| known.progress == progress);
    let mut unread = before.unwrap_or(Unread {
        progress,
        end: written,
        looked: now,
        waited: 0,
    });
    let left = unread.end.wrapping_sub(read);
    if left == 0 || left > written.wrapping_sub(read) {
        return false;
    }
    let passed = now.as_micros().saturating_sub(unread.looked.as_micros());
    unread.waited = unread.waited.saturating_add(passed.min(LOOK));
    unread.looked = now;
    *known = Some(unread);
    unread.waited < STOPPED
}

impl Adapter {
    fn positions(&self, number: LocalNumber) -> [u32; 2] {
        let queue = self.locals.queue(number);
        queue.map_or([0; 2], |queue| queue.positions())
    }

    /// Begins the time-out of a queue pair anew, if it has come and does not count.
    pub(super) fn postpone_pair(&mut self, key: usize) {
        let now = self.now;
        let late = self.pairs.get(key).and_then(|pair| {
            let transport = pair.transport.as_ref();
            pair.local
                .filter(|_| transport.is_some_and(|one| one.is_late(now)))
        });
        let Some(number) = late else {
            return;
        };
        let positions = self.positions(number);
        if let Some(pair) = self.pairs.get_mut(key)
            && let Some(transport) = &mut pair.transport
        {
            let (_, unacknowledged, _) = transport.progress();
            if is_unread(&mut pair.unread, positions, unacknowledged.value(), now) {
                transport.postpone(now);
            }
        }
    }

    /// Begins the time-out of a connection that is being made anew, if it has come and does not
    /// count.
    pub(super) fn postpone_link(&mut self, id: u32) {
        let now = self.now;
        let late = self.links.get(id).and_then(|link| {
            let state = link.connection.state();
            let waits = matches!(state, LinkState::RequestSent | LinkState::ReplySent);
            let deadline = link.connection.deadline().filter(|_| waits);
            link.path
                .local
                .filter(|_| deadline.is_some_and(|deadline| deadline <= now))
        });
        let Some(number) = late else {
            return;
        };
        let positions = self.positions(number);
        if let Some(link) = self.links.get_mut(id)
            && is_unread(&mut link.unread, positions, 0, now)
        {
            link.connection.postpone(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use core::net::SocketAddr;
    use core::sync::atomic::{AtomicU32, Ordering};

    use dat_core::attributes::EpAttributes;
    use dat_core::backend::{DomainKey, QueuePairRequest, SendFlags};
    use dat_core::sync::RegisteredSpan;
    use dat_queues::{Request, Segments, State, Work};

    use super::*;
    use crate::RoceOptions;
    use crate::adapter::{Pair, ReceiveAttributes, RemoteRights, SendAttributes, SendEntry};
    use crate::port::{LocalEvent, LocalQueue};
    use crate::proto::icrc::Flow;
    use crate::proto::{PathMtu, coded_time};

    const NUMBER: LocalNumber = LocalNumber { slot: 0, turn: 1 };

    /// Code of the time-out, and its retries, as perftest has them.
    const TIMEOUT: u8 = 14;
    const RETRIES: u8 = 7;

    /// A queue whose reader is the test.
    #[derive(Default)]
    struct Queue([AtomicU32; 2]);

    impl Queue {
        /// The peer reads all.
        fn read(&self) {
            let [_, written] = self.positions();
            self.0[0].store(written, Ordering::Relaxed);
        }

        /// The peer reads all, and others write a record.
        fn pass(&self) {
            self.read();
            self.0[1].fetch_add(64, Ordering::Relaxed);
        }
    }

    impl LocalQueue for Queue {
        fn room(&self, _: usize) -> usize {
            1 << 17
        }

        fn withdraw(&self) {}

        fn push(&self, _: &[u8], _: usize) {
            self.0[1].fetch_add(64, Ordering::Relaxed);
        }

        fn place(&self, _: usize, _: RegisteredSpan<'_>) -> bool {
            false
        }

        fn push_split(&self, _: &[u8], _: usize) {}

        fn take(&self, _: usize, _: RegisteredSpan<'_>) -> bool {
            false
        }

        fn ring(&self) {}

        fn has_room(&self, _: usize) -> bool {
            true
        }

        fn flow(&self) -> Flow {
            let [peer, own] = [2, 1].map(|host| SocketAddr::from(([10, 0, 0, host], 61001)));
            Flow::between(peer, own).expect("one family")
        }

        fn positions(&self) -> [u32; 2] {
            [0, 1].map(|end: usize| self.0[end].load(Ordering::Relaxed))
        }

        fn peer(&self) -> ([u8; 16], i32) {
            ([0; 16], 0)
        }
    }

    /// An adapter with an attached queue pair that has sent a request through a queue.
    struct Bed {
        adapter: Adapter,
        queue: Arc<Queue>,
        key: usize,
    }

    impl Bed {
        fn new() -> Self {
            let own = "10.0.0.1:61001".parse().unwrap();
            let mut adapter = Adapter::new(RoceOptions::new([7; 16]), own, 1).unwrap();
            // Close to the end of the positions, which wrap.
            let near = u32::MAX - 127;
            let queue = Arc::new(Queue([near, near].map(AtomicU32::new)));
            adapter.local_event(LocalEvent::Opened {
                pair: NUMBER,
                mtu: PathMtu::Bytes32768,
                queue: Arc::<Queue>::clone(&queue),
            });
            assert!(adapter.number_port(own.port()) && adapter.reserve_pair());
            let request = QueuePairRequest::new(0, DomainKey(0), EpAttributes::DEFAULT);
            let key = adapter.pairs.insert(Pair::new(&request).unwrap());
            adapter.number_pair(key).unwrap();
            let receives = ReceiveAttributes {
                local: own.ip(),
                peer: own,
                peer_qpn: adapter.pairs.get(key).unwrap().qpn.unwrap() + 1,
                expects: 5,
                mtu: PathMtu::Bytes1024,
                resources: 1,
                not_ready_timer: 1,
                rights: RemoteRights::default(),
            };
            adapter.attach(key, &receives, Some(NUMBER)).unwrap();
            let sends = SendAttributes {
                sends: 5,
                depth: 1,
                timeout: TIMEOUT,
                retries: RETRIES,
                not_ready_retries: 7,
            };
            adapter.start_requests(key, &sends).unwrap();
            let flags = SendFlags::empty();
            let request = Request::new(1, Work::Send, flags, Segments::new());
            assert!(adapter.post_attached(key, SendEntry::from(request), None, None));
            assert_eq!(adapter.end_posts(key, false), Some(1));
            adapter.transmit_local();
            Self {
                adapter,
                queue,
                key,
            }
        }

        /// Lets the next time-out come; false once the queue pair has failed.
        fn time_out(&mut self) -> bool {
            let deadline = self.adapter.deadline().expect("a timer");
            self.adapter.now = self.adapter.now.max(deadline);
            self.adapter.expire();
            self.adapter.transmit_local();
            self.adapter.pairs.get(self.key).unwrap().state == State::Connected
        }

        fn repeated(&self) -> u64 {
            self.adapter.counts().requester.retransmits
        }

        fn seconds(&self) -> u64 {
            self.adapter.now.as_micros() / 1_000_000
        }
    }

    /// A peer that reads nothing does not use the retries up; once it reads, they are as many as
    /// before.
    ///
    /// Spec: ROCE-290
    #[test]
    fn a_peer_that_is_stopped_uses_no_retries_up() {
        let mut bed = Bed::new();
        while bed.seconds() < 60 {
            assert!(bed.time_out());
        }
        assert_eq!(bed.repeated(), 0);
        for retries in 0..=u64::from(RETRIES) {
            assert_eq!(bed.repeated(), retries);
            bed.queue.read();
            assert_eq!(bed.time_out(), retries < RETRIES.into());
        }
        assert_eq!(bed.repeated(), RETRIES.into());
    }

    /// A peer that is stopped once it has read costs one repetition, which lies unread.
    ///
    /// Spec: ROCE-290
    #[test]
    fn a_peer_that_is_stopped_before_its_answer_costs_one_repetition() {
        let mut bed = Bed::new();
        bed.queue.read();
        while bed.seconds() < 60 {
            assert!(bed.time_out());
        }
        assert_eq!(bed.repeated(), 1);
    }

    /// A peer that never reads is given up in the end; time in which this side was stopped, too,
    /// counts for little.
    ///
    /// Spec: ROCE-290
    #[test]
    fn a_peer_that_stays_stopped_is_given_up() {
        for stops in [false, true] {
            let mut bed = Bed::new();
            assert!(bed.time_out());
            if stops {
                let later = bed.adapter.now.as_micros() + 10 * STOPPED;
                bed.adapter.now = Instant::from_micros(later);
            }
            let begin = bed.seconds();
            while bed.time_out() {}
            let waited = bed.seconds() - begin;
            let least = if stops { 79 } else { 89 };
            assert!((least..least + 3).contains(&waited), "{waited}");
        }
    }

    /// A peer that reads, but not this queue pair's requests, is no stopped one: other packets lie
    /// in the queue at any time.
    ///
    /// Spec: ROCE-290
    #[test]
    fn packets_of_others_do_not_hide_a_peer_that_does_not_answer() {
        let mut bed = Bed::new();
        let mut time_outs = 1;
        while bed.time_out() {
            time_outs += 1;
            bed.queue.pass();
        }
        let counted = u64::from(RETRIES) + 1;
        assert!(
            (counted..=2 * counted + 1).contains(&time_outs),
            "{time_outs}"
        );
        assert!(bed.adapter.now.as_micros() < 3 * counted * coded_time(TIMEOUT));
    }

    /// Progress between two time-outs is a new beginning.
    ///
    /// Spec: ROCE-290
    #[test]
    fn progress_begins_anew() {
        let mut known = None;
        let mut seconds = 0;
        let mut look = |positions, progress| {
            seconds += 10;
            let now = Instant::from_micros(seconds * 1_000_000);
            is_unread(&mut known, positions, progress, now)
        };
        for progress in 0..5 {
            let lies = [progress * 64, progress * 64 + 64];
            assert!((0..9).all(|_| look(lies, progress)));
        }
        assert!(!look([512, 512], 4), "all is read");
        assert!(look([512, 576], 4));
        assert!(!look([576, 640], 4), "what lay there is read");
        assert!(look([576, 640], 4));
        assert!(!look([0, 0], 4), "the pair is over");
    }
}
