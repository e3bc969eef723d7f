//! Invalid messages of a peer.

use core::cell::RefCell;
use core::sync::atomic::{AtomicU8, Ordering};
use std::boxed::Box;
use std::collections::VecDeque;
use std::println;
use std::rc::Rc;
use std::vec::Vec;

use dat_core::attributes::IaAddress;
use dat_core::backend::{
    Armed, BackendError, Completion, CompletionQueue, ConnectFailure, ConnectRequest, ControlEvent,
    DeviceFailure, DisconnectMode, ReceiveRequest, Rejected, Segment, SendRequest, WorkQueue,
    WorkSlot,
};
use dat_core::flags::{DtoStatus, QualityOfService};
use dat_core::time::Instant;

use super::channel::{CHANNEL_BYTES, Channel, DEPTH, REQUESTS, State};
use super::connection_manager::{ConnectionManager, Peer};
use super::connection_storage::{Connection, ConnectionStorage, Listener};
use super::message::{Kind, MESSAGE, Message};
use super::over_queues::{Network, QueueConnectionManager};

/// State of the device: posted receives, Sends and completions.
#[derive(Default)]
struct Wire {
    receives: VecDeque<(u64, Segment)>,
    sent: Vec<Segment>,
    completions: VecDeque<Completion>,
}

type Shared = Rc<RefCell<Wire>>;

struct Completions(Shared);

impl CompletionQueue for Completions {
    fn poll(&mut self) -> Result<Option<Completion>, DeviceFailure> {
        Ok(self.0.borrow_mut().completions.pop_front())
    }

    fn arm(&mut self, _solicited_only: bool) -> Armed {
        Armed::Armed
    }
}

struct Sends(Shared);
struct Receives(Shared);

struct Slot<'a, T> {
    queue: &'a mut T,
    token: u64,
    segment: Option<Segment>,
}

fn completion(token: u64, length: u32) -> Completion {
    Completion {
        token,
        status: DtoStatus::Success,
        length,
        queue_pair: 0,
        solicited: false,
    }
}

impl WorkSlot for Slot<'_, Sends> {
    fn segment(&mut self, segment: Segment) {
        self.segment = Some(segment);
    }

    fn commit(self, _length: u32) -> Result<(), Rejected> {
        let mut wire = self.queue.0.borrow_mut();
        wire.sent.extend(self.segment);
        wire.completions.push_back(completion(self.token, 0));
        Ok(())
    }
}

impl WorkSlot for Slot<'_, Receives> {
    fn segment(&mut self, segment: Segment) {
        self.segment = Some(segment);
    }

    fn commit(self, _length: u32) -> Result<(), Rejected> {
        let mut wire = self.queue.0.borrow_mut();
        wire.receives
            .extend(self.segment.map(|segment| (self.token, segment)));
        Ok(())
    }
}

macro_rules! queue {
    ($queue:ty, $request:ty) => {
        impl WorkQueue for $queue {
            type Request = $request;
            type Slot<'a> = Slot<'a, $queue>;

            fn reserve(
                &mut self,
                request: &$request,
                _segments: usize,
            ) -> Option<Slot<'_, $queue>> {
                Some(Slot {
                    queue: self,
                    token: request.token,
                    segment: None,
                })
            }

            fn ring(&mut self) -> Result<(), u32> {
                Ok(())
            }
        }
    };
}

queue!(Sends, SendRequest);
queue!(Receives, ReceiveRequest);

/// Queue pairs that were joined and parted; the one peer is at `Node(2)`.
#[derive(Default)]
struct Log {
    ready_pairs: Vec<u32>,
    failed_pairs: Vec<u32>,
}

struct OnePeer(Rc<RefCell<Log>>);

const PEER: Peer = Peer {
    queue_pair: 77,
    address: [9; 4],
};

impl Network for OnePeer {
    fn channel_peer(&mut self, _queue_pair: u32) -> Option<(IaAddress, Peer)> {
        Some((IaAddress::Node(2), PEER))
    }

    fn make_ready(&mut self, queue_pair: u32, _peer: Peer) -> Result<(), BackendError> {
        self.0.borrow_mut().ready_pairs.push(queue_pair);
        Ok(())
    }

    fn make_failed(&mut self, queue_pair: u32) {
        self.0.borrow_mut().failed_pairs.push(queue_pair);
    }
}

type Manager = QueueConnectionManager<'static, Completions, Sends, Receives, OnePeer>;

/// A connection manager with one channel, whose other end is the test.
struct Bench {
    wire: Shared,
    log: Rc<RefCell<Log>>,
    memory: &'static [AtomicU8],
    cm: Manager,
}

/// Number of the channel's own queue pair.
const CHANNEL: u32 = 5;
const CONNECTIONS: usize = 8;

impl Bench {
    fn new() -> Self {
        let (wire, log) = (Shared::default(), Rc::<RefCell<Log>>::default());
        let memory: Vec<AtomicU8> = (0..CHANNEL_BYTES).map(|_| AtomicU8::new(0)).collect();
        let memory: &'static [AtomicU8] = Vec::leak(memory);
        let storage = ConnectionStorage {
            channels: Vec::leak(std::vec![None]),
            connections: Vec::leak((0..CONNECTIONS).map(|_| Connection::default()).collect()),
            listeners: Box::leak(Box::new([Listener::default(); 2])),
            memory: &mut [],
        };
        let network = OnePeer(Rc::clone(&log));
        let mut cm = QueueConnectionManager::new(storage, network, IaAddress::Node(1), [1; 4]);
        let queues = (Sends(Rc::clone(&wire)), Receives(Rc::clone(&wire)));
        let channel = Channel::new(CHANNEL, queues.0, queues.1, memory, 3);
        cm.storage.channels[0] = channel;
        cm.completions = Some(Completions(Rc::clone(&wire)));
        let mut bench = Self {
            wire,
            log,
            memory,
            cm,
        };
        let up = bench.poll();
        assert!(
            matches!(up, Some(ControlEvent::Established { queue_pair, .. }) if queue_pair == u64::from(CHANNEL))
        );
        bench
    }

    fn poll(&mut self) -> Option<ControlEvent> {
        self.cm.poll(Instant::ZERO)
    }

    /// Returns the bytes of a segment in the memory of the channel.
    fn at(&self, segment: Segment) -> &'static [AtomicU8] {
        let first = segment.address as usize - self.memory.as_ptr().addr();
        &self.memory[first..][..segment.length as usize]
    }

    /// Sends bytes as the peer; returns false if it has no free slot.
    fn send_bytes(&self, bytes: &[u8]) -> bool {
        let mut wire = self.wire.borrow_mut();
        let Some((token, segment)) = wire.receives.pop_front() else {
            return false;
        };
        for (to, byte) in self.at(segment).iter().zip(bytes) {
            to.store(*byte, Ordering::Relaxed);
        }
        let length = bytes.len() as u32;
        wire.completions.push_back(completion(token, length));
        true
    }

    /// Sends a message as the peer of the channel.
    fn send(&self, message: &Message) -> bool {
        let message = Message {
            address: PEER.address,
            ..message.clone()
        };
        self.send_bytes(&message.bytes().collect::<Vec<u8>>())
    }

    /// Returns the messages sent to the peer since the last call.
    fn take_sent(&self) -> Vec<Message> {
        let sent = core::mem::take(&mut self.wire.borrow_mut().sent);
        let read = |segment| {
            let bytes = self.at(segment).iter();
            Message::read(bytes.map(|byte| byte.load(Ordering::Relaxed))).expect("a message")
        };
        sent.into_iter().map(read).collect()
    }

    fn connect(&mut self, queue_pair: u32, to: u64) {
        let request = ConnectRequest {
            address: IaAddress::Node(to),
            qualifier: 40,
            private_data: b"hello",
            quality: QualityOfService::BEST_EFFORT,
        };
        self.cm
            .connect(queue_pair, &request)
            .expect("a connection slot");
    }

    /// Establishes a connection of a queue pair; returns its local name.
    fn connected(&mut self, queue_pair: u32) -> u32 {
        self.connect(queue_pair, 2);
        let request = self.take_sent().pop().expect("a request");
        assert_eq!(
            (request.kind, request.queue_pair),
            (Kind::Request, queue_pair)
        );
        let accepted = Message::new(Kind::Accepted, 1000 + queue_pair, request.from);
        assert!(self.send(&accepted));
        let event = self.poll();
        assert!(
            matches!(event, Some(ControlEvent::Established { .. })),
            "{event:?}"
        );
        assert_eq!(self.poll(), None);
        let ready = self.take_sent().pop().expect("a ready message");
        assert_eq!((ready.kind, ready.to), (Kind::Ready, 1000 + queue_pair));
        request.from
    }

    fn is_closed(&self) -> bool {
        let channel = self.cm.storage.channels[0].as_ref();
        channel.is_some_and(|channel| channel.state == State::Down)
    }

    /// Checks that the channel is down.
    ///
    /// An established connection breaks, an attempt fails, and no message is sent or read.
    fn is_down(&mut self, connected: u32) {
        let broken = u64::from(connected);
        let mut events = Vec::new();
        while let Some(event) = self.poll() {
            events.push(event);
        }
        assert!(
            events.contains(&ControlEvent::Broken { queue_pair: broken }),
            "{events:?}"
        );
        assert!(self.log.borrow().failed_pairs.contains(&connected));
        self.take_sent();
        self.connect(99, 2);
        let failed = ControlEvent::ConnectFailed {
            queue_pair: 99,
            failure: ConnectFailure::Unreachable,
        };
        assert_eq!(self.poll(), Some(failed));
        self.send(&Message::new(Kind::Credits, 0, 0));
        assert_eq!(self.poll(), None);
        assert!(self.take_sent().is_empty());
    }
}

#[test]
fn an_invalid_message_closes_the_channel() {
    let good: Vec<u8> = Message::new(Kind::Credits, 0, 0).bytes().collect();
    let mut other_version = good.clone();
    other_version[4] += 1;
    for bytes in [&[][..], &good[1..], &other_version, &[0xFF; MESSAGE]] {
        let mut bench = Bench::new();
        bench.connected(7);
        assert!(bench.send_bytes(bytes));
        bench.is_down(7);
    }
}

#[test]
fn returning_unused_credits_closes_the_channel() {
    for credits in [DEPTH, u32::MAX] {
        let mut bench = Bench::new();
        bench.connected(7);
        let credits = Message {
            credits,
            ..Message::new(Kind::Credits, 0, 0)
        };
        assert!(bench.send(&credits));
        bench.is_down(7);
    }
}

#[test]
fn sending_without_a_credit_closes_the_channel() {
    let mut bench = Bench::new();
    bench.connected(7);
    // The peer returns no slots, so soon no message with free slots can be sent to it. Then it uses
    // up its own.
    let (mut sent, mut credits) = (0, DEPTH);
    let nothing = Message::new(Kind::Credits, 0, 0);
    while !bench.is_closed() {
        assert!(sent <= credits, "{sent} messages for {credits} credits");
        assert!(bench.send(&nothing));
        sent += 1;
        assert_eq!(bench.cm.poll_messages(), None);
        if sent <= credits {
            assert_eq!(bench.poll(), None);
            let messages = bench.take_sent();
            credits += messages.iter().map(|message| message.credits).sum::<u32>();
        }
    }
    assert_eq!(sent, credits + 1);
    bench.is_down(7);
}

#[test]
fn messages_with_unknown_names_are_ignored() {
    let mut bench = Bench::new();
    let name = bench.connected(7);
    for wrong in [name + 1, name ^ 1 << 16, 0, u32::MAX] {
        for kind in [
            Kind::Accepted,
            Kind::Rejected,
            Kind::Ready,
            Kind::Ended,
            Kind::Broken,
        ] {
            assert!(bench.send(&Message::new(kind, 1, wrong)));
            assert_eq!(bench.poll(), None, "{kind:?} {wrong:#x}");
        }
    }
    // A second acceptance is ignored.
    assert!(bench.send(&Message::new(Kind::Accepted, 1, name)));
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.log.borrow().ready_pairs, [CHANNEL, 7]);
    assert!(bench.send(&Message::new(Kind::Ended, 1, name)));
    assert_eq!(
        bench.poll(),
        Some(ControlEvent::Disconnected { queue_pair: 7 })
    );
    assert!(bench.send(&Message::new(Kind::Ended, 1, name)));
    assert_eq!(bench.poll(), None);
}

#[test]
fn too_many_pending_requests_close_the_channel() {
    let mut bench = Bench::new();
    bench.connected(7);
    bench.cm.listen(3, Some(50)).expect("a listener");
    let ask = |bench: &Bench, name| {
        let request = Message {
            qualifier: 50,
            ..Message::new(Kind::Request, name, 0)
        };
        assert!(bench.send(&request));
    };
    // All at once, so that none can be answered in between.
    for name in 0..=REQUESTS {
        ask(&bench, name);
    }
    for _ in 0..REQUESTS {
        let event = bench.cm.poll_messages();
        assert!(matches!(
            event,
            Some(ControlEvent::ConnectionRequest { .. })
        ));
    }
    assert_eq!(bench.cm.poll_messages(), None);
    bench.is_down(7);
}

#[test]
fn an_abandoned_request_is_cancelled_when_accepted() {
    let mut bench = Bench::new();
    bench.connect(7, 2);
    let request = bench.take_sent().pop().expect("a request");
    bench.cm.disconnect(7, DisconnectMode::Abrupt);
    assert!(bench.send(&Message::new(Kind::Accepted, 55, request.from)));
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.poll(), None);
    let cancelled = bench.take_sent().pop().expect("an answer");
    assert_eq!((cancelled.kind, cancelled.to), (Kind::Cancelled, 55));
    // The slot is free again.
    for queue_pair in 10..10 + CONNECTIONS as u32 {
        bench.connect(queue_pair, 3);
    }
}

#[test]
fn a_request_abandoned_before_it_was_sent_is_never_sent() {
    let mut bench = Bench::new();
    for queue_pair in 10..10 + REQUESTS {
        bench.connect(queue_pair, 2);
    }
    let request = bench.take_sent();
    assert_eq!(request.len(), REQUESTS as usize);
    bench.connect(50, 2);
    bench.cm.disconnect(50, DisconnectMode::Abrupt);
    for request in &request {
        assert!(bench.send(&Message::new(Kind::Rejected, 1, request.from)));
        assert!(bench.poll().is_some());
    }
    assert_eq!(bench.poll(), None);
    let messages = bench.take_sent();
    assert!(
        messages.iter().all(|message| message.kind == Kind::Credits),
        "{messages:?}"
    );
    // There is room for another request.
    bench.connected(51);
}

#[test]
fn slots_of_abandoned_requests_are_freed() {
    let late = Instant::from_micros(3 * u64::from(u32::MAX));
    for is_acknowledged in [true, false] {
        let mut bench = Bench::new();
        bench.connect(7, 2);
        let request = bench.take_sent().pop().expect("a request");
        if is_acknowledged {
            assert!(bench.send(&Message::new(Kind::Answered, 55, request.from)));
            assert!(bench.poll().is_some());
        }
        bench.cm.disconnect(7, DisconnectMode::Abrupt);
        assert_eq!(bench.cm.next_deadline(), Some(Instant::ZERO));
        assert_eq!(bench.poll(), None);
        let deadline = bench.cm.next_deadline().expect("a deadline");
        assert!(deadline > Instant::ZERO && deadline < late);
        assert_eq!(bench.cm.poll(late), None);
        // A peer that does not even acknowledge a request gets no further one.
        bench.connect(8, 2);
        let unreachable = ControlEvent::ConnectFailed {
            queue_pair: 8,
            failure: ConnectFailure::Unreachable,
        };
        let event = bench.cm.poll(late);
        assert_eq!(event, (!is_acknowledged).then_some(unreachable));
        for queue_pair in 10..9 + CONNECTIONS as u32 {
            bench.connect(queue_pair, 3);
        }
    }
}

#[test]
fn a_message_must_name_a_host_of_its_channel() {
    for (queue_pair, address) in [(55, [8; 4]), (0x100_0000, PEER.address)] {
        for kind in [Kind::Request, Kind::Accepted] {
            let mut bench = Bench::new();
            bench.connected(7);
            bench.connect(8, 2);
            let request = bench.take_sent().pop().expect("a request");
            bench.cm.listen(3, Some(50)).expect("a listener");
            let message = Message {
                queue_pair,
                address,
                qualifier: 50,
                ..Message::new(kind, 1, request.from)
            };
            assert!(bench.send_bytes(&message.bytes().collect::<Vec<u8>>()));
            bench.is_down(7);
        }
    }
}

fn draw(seed: &mut u64) -> u32 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as u32
}

#[test]
fn random_messages_cause_only_valid_events() {
    for first in 0..300 {
        println!("seed {first}");
        let mut seed = first;
        let mut bench = Bench::new();
        bench.cm.listen(3, Some(50)).expect("a listener");
        let mut live = Vec::new();
        for step in 0..200_u32 {
            if draw(&mut seed).is_multiple_of(4) {
                let request = ConnectRequest {
                    address: IaAddress::Node(2),
                    qualifier: 1,
                    private_data: &[],
                    quality: QualityOfService::BEST_EFFORT,
                };
                if bench.cm.connect(step, &request).is_ok() {
                    live.push(u64::from(step));
                }
            }
            let message = Message {
                credits: draw(&mut seed) % 2,
                qualifier: 50,
                ..Message::new(
                    Kind::ALL[draw(&mut seed) as usize % Kind::ALL.len()],
                    draw(&mut seed) % 8,
                    ((draw(&mut seed) % 4) << 16) | (draw(&mut seed) % CONNECTIONS as u32),
                )
            };
            bench.send(&message);
            while let Some(event) = bench.poll() {
                match event {
                    ControlEvent::ConnectionRequest { request, .. } => {
                        let number = 10_000 + step;
                        match draw(&mut seed) % 3 {
                            0 => bench.cm.reject(request, true, b"no"),
                            1 if bench.cm.accept(request, number, &[]).is_ok() => {
                                live.push(u64::from(number));
                            }
                            _ => {}
                        }
                    }
                    ControlEvent::Established { queue_pair, .. }
                    | ControlEvent::Answered { queue_pair } => {
                        assert!(live.contains(&queue_pair), "{queue_pair}");
                    }
                    ControlEvent::ConnectFailed { queue_pair, .. }
                    | ControlEvent::Disconnected { queue_pair }
                    | ControlEvent::Broken { queue_pair } => {
                        let index = live.iter().position(|one| *one == queue_pair);
                        live.swap_remove(index.expect("a live connection"));
                        let failed = queue_pair as u32;
                        assert!(bench.log.borrow().failed_pairs.contains(&failed));
                    }
                    other => panic!("{other:?}"),
                }
            }
            bench.take_sent();
        }
    }
}
