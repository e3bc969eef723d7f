//! Shared receive queues that serve several connections of other processes.

use std::rc::Rc;

use dat_core::event::{AsyncEventKind, DtoOperation, Event, REASON_LOW_WATERMARK};
use dat_core::flags::{DtoStatus, MemoryPrivileges, SrqFields};
use dat_core::id::SrqId;
use dat_tests::fixture::{Memory, PartyOptions, equal, granted, srq_attributes};

use crate::runner::{server_and_two_clients, two_sides};
use crate::side::{Party, Side};

/// Bytes of a buffer.
const BUFFER: u64 = 64;
/// Buffers of the queue.
const BUFFERS: u64 = 12;

/// A shared receive queue with two receivers, and memory for its buffers.
struct Pool {
    srq: SrqId,
    memory: Memory,
    receivers: [Party; 2],
}

impl Pool {
    fn new(side: &Side) -> Self {
        let ia = side.net.adapter();
        let zone = granted(ia.pz_create());
        let srq = granted(ia.srq_create(zone, &srq_attributes(BUFFERS as i32, 2, 0)));
        let options = PartyOptions::default();
        let receiver = || Party::sharing(&Rc::clone(&ia), zone, srq, None, &options);
        let receivers = [receiver(), receiver()];
        let length = (BUFFER * BUFFERS) as usize;
        let memory = Memory::register(&ia, zone, length, MemoryPrivileges::ALL);
        Self {
            srq,
            memory,
            receivers,
        }
    }

    fn post(&self, buffer: u64) {
        let ia = &self.receivers[0].ia;
        let segment = [self.memory.segment(BUFFER * buffer, BUFFER)];
        granted(ia.srq_post_recv(self.srq, &segment, buffer));
    }

    /// Returns the number of available buffers and of outstanding ones.
    fn counts(&self) -> (i32, i32) {
        let ia = &self.receivers[0].ia;
        let found = granted(ia.srq_query(self.srq, SrqFields::all()));
        (found.available, found.outstanding)
    }

    /// Takes the next message of a receiver; returns its buffer and its first byte.
    fn message(&self, side: &Side, receiver: &Party) -> (u64, u8) {
        let done = side.net.receive_completion(receiver);
        let found = (done.ep, done.status, done.operation);
        let expected = (receiver.ep, DtoStatus::Success, DtoOperation::Receive);
        assert_eq!(found, expected, "{done:?}");
        assert_eq!(done.transferred_length, BUFFER);
        let bytes = self
            .memory
            .load((BUFFER * done.cookie) as usize, BUFFER as usize);
        equal("the message", &bytes, &[bytes[0]; BUFFER as usize]);
        (done.cookie, bytes[0])
    }
}

/// Sends a message of one repeated byte.
fn send(side: &Side, party: &Party, byte: u8) {
    party.memory.store(0, &[byte; BUFFER as usize]);
    party.send_from(&[party.memory.segment(0, BUFFER)], 1);
    side.net.success(party, 1);
}

/// Buffers of a queue serve all connections; each keeps the order of its own messages.
///
/// The low watermark is reported once for each setting.
///
/// Spec: SRQR-01..05, SRQR-08, SRQR-09, SRQR-11, SRQR-19, SRQR-20, SRC-05, SRL-01..03, SRY-02,
/// DTO-11
#[test]
fn buffers_serve_two_connections() {
    const ROUNDS: u8 = 4;
    two_sides(
        |near| {
            let ends = [near.party(), near.party()];
            for party in &ends {
                near.connect(party);
            }
            for round in 0..ROUNDS {
                near.meet("buffers");
                for number in 0..4 {
                    for (end, party) in ends.iter().enumerate() {
                        send(near, party, 64 * end as u8 + 8 * round + number);
                    }
                }
                near.meet("sent");
            }
        },
        |far| {
            let pool = Pool::new(far);
            for receiver in &pool.receivers {
                far.accept(receiver);
            }
            let ia = &pool.receivers[0].ia;
            for buffer in 0..BUFFERS {
                pool.post(buffer);
            }
            let full = BUFFERS as i32;
            for round in 0..ROUNDS {
                assert_eq!(pool.counts(), (full, full));
                // Eight messages leave four buffers.
                let (watermark, fires) = [(5, true), (4, false)][usize::from(round % 2)];
                granted(ia.srq_set_lw(pool.srq, watermark));
                far.net.silent(ia, ia.async_evd());
                far.meet("buffers");
                far.meet("sent");
                if fires {
                    let event = Event::Async {
                        kind: AsyncEventKind::EpBroken,
                        handle: pool.srq.handle(),
                        reason: REASON_LOW_WATERMARK,
                    };
                    assert_eq!(far.net.event(ia, ia.async_evd()), event);
                }
                far.net.silent(ia, ia.async_evd());
                assert_eq!(pool.counts(), (full - 8, full));
                let mut taken = Vec::new();
                for number in 0..4 {
                    for (end, receiver) in pool.receivers.iter().enumerate() {
                        let (buffer, byte) = pool.message(far, receiver);
                        assert_eq!(byte, 64 * end as u8 + 8 * round + number);
                        taken.push(buffer);
                    }
                }
                assert_eq!(pool.counts(), (full - 8, full - 8));
                taken.sort_unstable();
                taken.dedup();
                assert_eq!(taken.len(), 8, "{taken:?}");
                taken.into_iter().for_each(|buffer| pool.post(buffer));
            }
            pool.receivers
                .iter()
                .for_each(|receiver| far.net.quiet(receiver));
        },
    );
}

/// A message longer than its buffer breaks only its own connection.
///
/// Spec: SRQR-21, SRQR-31, SRQR-43, EPS-04
#[test]
fn long_message_breaks_one_connection() {
    two_sides(
        |near| {
            let ends = [near.party(), near.party()];
            for party in &ends {
                near.connect(party);
            }
            near.meet("buffers");
            let [long, other] = &ends;
            long.send_from(&[long.memory.segment(0, BUFFER + 1)], 2);
            near.net.request_ends(long, 2, DtoStatus::RemoteResponder);
            near.broken(long);
            near.meet("broken");
            send(near, other, 7);
            near.meet("sent");
            near.net.quiet(other);
        },
        |far| {
            let pool = Pool::new(far);
            for receiver in &pool.receivers {
                far.accept(receiver);
            }
            for buffer in [0, 2] {
                pool.post(buffer);
            }
            far.meet("buffers");
            let [long, other] = &pool.receivers;
            let done = far.net.receive_completion(long);
            assert_eq!((done.ep, done.status), (long.ep, DtoStatus::LocalLength));
            far.broken(long);
            for behind in [1, 3] {
                let bytes = pool
                    .memory
                    .load((BUFFER * behind) as usize, BUFFER as usize);
                equal("bytes behind", &bytes, &[0; BUFFER as usize]);
            }
            far.meet("broken");
            let (buffer, byte) = pool.message(far, other);
            assert_eq!((buffer, byte), (2 - done.cookie, 7));
            far.meet("sent");
            assert_eq!(pool.counts(), (0, 0));
            far.net.quiet(other);
        },
    );
}

/// A queue serves two processes; one that is killed takes no buffer of the other one with it.
///
/// Spec: SRQR-01..05, SRQR-08, SRQR-37, SRQR-40, EPD-10
#[test]
fn buffers_serve_two_processes() {
    const COUNT: u8 = 5;
    server_and_two_clients(
        |server| {
            let pool = Pool::new(server);
            let [first, second] = &pool.receivers;
            server.accept_all(&[first, second]);
            for buffer in 0..BUFFERS {
                pool.post(buffer);
            }
            server.meet("buffers");
            server.meet("sent");
            // The order of the two requests decides which receiver has which client.
            let clients = [first, second].map(|receiver| {
                let (_, byte) = pool.message(server, receiver);
                for number in 1..COUNT {
                    assert_eq!(pool.message(server, receiver).1, byte + number);
                }
                usize::from(byte / 64)
            });
            let mut known = clients;
            known.sort_unstable();
            assert_eq!(known, [1, 2]);
            let left = (BUFFERS - 2 * u64::from(COUNT)) as i32;
            assert_eq!(pool.counts(), (left, left));
            server.kill(clients[0]);
            server.tell_to(clients[1], "alone", &[]);
            let (_, byte) = pool.message(server, second);
            assert_eq!(byte, 250);
            assert_eq!(pool.counts(), (left - 1, left - 1));
            server.net.quiet(second);
        },
        |client| {
            let party = client.party();
            client.connect_to(&party, 0);
            client.meet("buffers");
            for number in 0..COUNT {
                send(client, &party, 64 * client.number as u8 + number);
            }
            client.meet("sent");
            client.hear_from(0, "alone");
            send(client, &party, 250);
        },
    );
}
