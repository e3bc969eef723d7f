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
use super::message::{Kind, MESSAGE, Message};
use super::sideband::{Connection, Junction, Listener, QueueSideband, SidebandStorage};
use crate::sideband::{Peer, Sideband};

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
    joined: Vec<u32>,
    parted: Vec<u32>,
}

struct One(Rc<RefCell<Log>>);

const PEER: Peer = Peer {
    queue_pair: 77,
    address: [9; 4],
};

impl Junction for One {
    fn meet(&mut self, _queue_pair: u32) -> Option<(IaAddress, Peer)> {
        Some((IaAddress::Node(2), PEER))
    }

    fn join(&mut self, queue_pair: u32, _peer: Peer) -> Result<(), BackendError> {
        self.0.borrow_mut().joined.push(queue_pair);
        Ok(())
    }

    fn part(&mut self, queue_pair: u32) {
        self.0.borrow_mut().parted.push(queue_pair);
    }
}

type Tested = QueueSideband<'static, Completions, Sends, Receives, One>;

/// A connection manager with one channel, whose other end is the test.
struct Bench {
    wire: Shared,
    log: Rc<RefCell<Log>>,
    memory: &'static [AtomicU8],
    sideband: Tested,
}

/// Number of the channel's own queue pair.
const CHANNEL: u32 = 5;
const PLACES: usize = 8;

impl Bench {
    fn new() -> Self {
        let (wire, log) = (Shared::default(), Rc::<RefCell<Log>>::default());
        let memory: Vec<AtomicU8> = (0..CHANNEL_BYTES).map(|_| AtomicU8::new(0)).collect();
        let memory: &'static [AtomicU8] = Vec::leak(memory);
        let storage = SidebandStorage {
            channels: Vec::leak(std::vec![None]),
            connections: Vec::leak((0..PLACES).map(|_| Connection::default()).collect()),
            listeners: Box::leak(Box::new([Listener::default(); 2])),
            memory: &mut [],
        };
        let junction = One(Rc::clone(&log));
        let mut sideband = QueueSideband::new(storage, junction, IaAddress::Node(1), [1; 4]);
        let queues = (Sends(Rc::clone(&wire)), Receives(Rc::clone(&wire)));
        let channel = Channel::new(CHANNEL, queues.0, queues.1, memory, 3);
        sideband.storage.channels[0] = channel;
        sideband.completions = Some(Completions(Rc::clone(&wire)));
        let mut bench = Self {
            wire,
            log,
            memory,
            sideband,
        };
        let up = bench.poll();
        assert!(
            matches!(up, Some(ControlEvent::Established { queue_pair, .. }) if queue_pair == u64::from(CHANNEL))
        );
        bench
    }

    fn poll(&mut self) -> Option<ControlEvent> {
        self.sideband.poll(Instant::ZERO)
    }

    /// Returns the bytes of a segment in the memory of the channel.
    fn at(&self, segment: Segment) -> &'static [AtomicU8] {
        let first = segment.address as usize - self.memory.as_ptr().addr();
        &self.memory[first..][..segment.length as usize]
    }

    /// Sends bytes as the peer; returns false if it has no free slot.
    fn say(&self, bytes: &[u8]) -> bool {
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
    fn tell(&self, message: &Message) -> bool {
        let message = Message {
            address: PEER.address,
            ..message.clone()
        };
        self.say(&message.bytes().collect::<Vec<u8>>())
    }

    /// Returns the messages sent to the peer since the last call.
    fn heard(&self) -> Vec<Message> {
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
        self.sideband
            .connect(queue_pair, &request)
            .expect("a place");
    }

    /// Establishes a connection of a queue pair; returns its local name.
    fn connected(&mut self, queue_pair: u32) -> u32 {
        self.connect(queue_pair, 2);
        let asked = self.heard().pop().expect("a request");
        assert_eq!((asked.kind, asked.queue_pair), (Kind::Request, queue_pair));
        let accepted = Message::new(Kind::Accepted, 1000 + queue_pair, asked.from);
        assert!(self.tell(&accepted));
        let event = self.poll();
        assert!(
            matches!(event, Some(ControlEvent::Established { .. })),
            "{event:?}"
        );
        assert_eq!(self.poll(), None);
        let ready = self.heard().pop().expect("word that it stands");
        assert_eq!((ready.kind, ready.to), (Kind::Ready, 1000 + queue_pair));
        asked.from
    }

    fn is_given_up(&self) -> bool {
        let channel = self.sideband.storage.channels[0].as_ref();
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
        assert!(self.log.borrow().parted.contains(&connected));
        self.heard();
        self.connect(99, 2);
        let failed = ControlEvent::ConnectFailed {
            queue_pair: 99,
            failure: ConnectFailure::Unreachable,
        };
        assert_eq!(self.poll(), Some(failed));
        self.tell(&Message::new(Kind::Places, 0, 0));
        assert_eq!(self.poll(), None);
        assert!(self.heard().is_empty());
    }
}

#[test]
fn what_is_no_message_ends_the_channel() {
    let good: Vec<u8> = Message::new(Kind::Places, 0, 0).bytes().collect();
    let mut other_version = good.clone();
    other_version[4] += 1;
    for bytes in [&[][..], &good[1..], &other_version, &[0xFF; MESSAGE]] {
        let mut bench = Bench::new();
        bench.connected(7);
        assert!(bench.say(bytes));
        bench.is_down(7);
    }
}

#[test]
fn places_that_were_not_taken_cannot_be_given_back() {
    for places in [DEPTH, u32::MAX] {
        let mut bench = Bench::new();
        bench.connected(7);
        let places = Message {
            places,
            ..Message::new(Kind::Places, 0, 0)
        };
        assert!(bench.tell(&places));
        bench.is_down(7);
    }
}

#[test]
fn who_sends_without_a_place_loses_the_channel() {
    let mut bench = Bench::new();
    bench.connected(7);
    // The peer returns no slots, so soon no message with free slots can be sent to it. Then it uses
    // up its own.
    let (mut sent, mut places) = (0, DEPTH);
    let nothing = Message::new(Kind::Places, 0, 0);
    while !bench.is_given_up() {
        assert!(sent <= places, "{sent} messages for {places} places");
        assert!(bench.tell(&nothing));
        sent += 1;
        assert_eq!(bench.sideband.of_messages(), None);
        if sent <= places {
            assert_eq!(bench.poll(), None);
            let said = bench.heard();
            places += said.iter().map(|message| message.places).sum::<u32>();
        }
    }
    assert_eq!(sent, places + 1);
    bench.is_down(7);
}

#[test]
fn names_of_nobody_are_passed_over() {
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
            assert!(bench.tell(&Message::new(kind, 1, wrong)));
            assert_eq!(bench.poll(), None, "{kind:?} {wrong:#x}");
        }
    }
    // A second acceptance is ignored.
    assert!(bench.tell(&Message::new(Kind::Accepted, 1, name)));
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.log.borrow().joined, [CHANNEL, 7]);
    assert!(bench.tell(&Message::new(Kind::Ended, 1, name)));
    assert_eq!(
        bench.poll(),
        Some(ControlEvent::Disconnected { queue_pair: 7 })
    );
    assert!(bench.tell(&Message::new(Kind::Ended, 1, name)));
    assert_eq!(bench.poll(), None);
}

#[test]
fn more_requests_than_may_wait_end_the_channel() {
    let mut bench = Bench::new();
    bench.connected(7);
    bench.sideband.listen(3, Some(50)).expect("a listener");
    let ask = |bench: &Bench, name| {
        let request = Message {
            qualifier: 50,
            ..Message::new(Kind::Request, name, 0)
        };
        assert!(bench.tell(&request));
    };
    // All at once, so that none can be answered in between.
    for name in 0..=REQUESTS {
        ask(&bench, name);
    }
    for _ in 0..REQUESTS {
        let event = bench.sideband.of_messages();
        assert!(matches!(
            event,
            Some(ControlEvent::ConnectionRequest { .. })
        ));
    }
    assert_eq!(bench.sideband.of_messages(), None);
    bench.is_down(7);
}

#[test]
fn a_request_that_was_given_up_is_withdrawn_when_it_is_accepted() {
    let mut bench = Bench::new();
    bench.connect(7, 2);
    let asked = bench.heard().pop().expect("a request");
    bench.sideband.disconnect(7, DisconnectMode::Abrupt);
    assert!(bench.tell(&Message::new(Kind::Accepted, 55, asked.from)));
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.poll(), None);
    let withdrawn = bench.heard().pop().expect("an answer");
    assert_eq!((withdrawn.kind, withdrawn.to), (Kind::Withdrawn, 55));
    // The slot is free again.
    for queue_pair in 10..10 + PLACES as u32 {
        bench.connect(queue_pair, 3);
    }
}

#[test]
fn what_was_given_up_before_it_was_sent_is_never_sent() {
    let mut bench = Bench::new();
    for queue_pair in 10..10 + REQUESTS {
        bench.connect(queue_pair, 2);
    }
    let asked = bench.heard();
    assert_eq!(asked.len(), REQUESTS as usize);
    bench.connect(50, 2);
    bench.sideband.disconnect(50, DisconnectMode::Abrupt);
    for request in &asked {
        assert!(bench.tell(&Message::new(Kind::Rejected, 1, request.from)));
        assert!(bench.poll().is_some());
    }
    assert_eq!(bench.poll(), None);
    let said = bench.heard();
    assert!(
        said.iter().all(|message| message.kind == Kind::Places),
        "{said:?}"
    );
    // There is room for another request.
    bench.connected(51);
}

#[test]
fn places_of_requests_that_were_given_up_come_back() {
    let late = Instant::from_micros(3 * u64::from(u32::MAX));
    for is_taken_up in [true, false] {
        let mut bench = Bench::new();
        bench.connect(7, 2);
        let asked = bench.heard().pop().expect("a request");
        if is_taken_up {
            assert!(bench.tell(&Message::new(Kind::Answered, 55, asked.from)));
            assert!(bench.poll().is_some());
        }
        bench.sideband.disconnect(7, DisconnectMode::Abrupt);
        assert_eq!(bench.sideband.next_deadline(), Some(Instant::ZERO));
        assert_eq!(bench.poll(), None);
        let until = bench.sideband.next_deadline().expect("a deadline");
        assert!(until > Instant::ZERO && until < late);
        assert_eq!(bench.sideband.poll(late), None);
        // A peer that does not even acknowledge a request gets no further one.
        bench.connect(8, 2);
        let unreachable = ControlEvent::ConnectFailed {
            queue_pair: 8,
            failure: ConnectFailure::Unreachable,
        };
        let event = bench.sideband.poll(late);
        assert_eq!(event, (!is_taken_up).then_some(unreachable));
        for queue_pair in 10..9 + PLACES as u32 {
            bench.connect(queue_pair, 3);
        }
    }
}

#[test]
fn connections_end_where_their_channel_does() {
    for (queue_pair, address) in [(55, [8; 4]), (0x100_0000, PEER.address)] {
        for kind in [Kind::Request, Kind::Accepted] {
            let mut bench = Bench::new();
            bench.connected(7);
            bench.connect(8, 2);
            let asked = bench.heard().pop().expect("a request");
            bench.sideband.listen(3, Some(50)).expect("a listener");
            let message = Message {
                queue_pair,
                address,
                qualifier: 50,
                ..Message::new(kind, 1, asked.from)
            };
            assert!(bench.say(&message.bytes().collect::<Vec<u8>>()));
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
fn random_messages_cause_nothing_that_cannot_be() {
    for first in 0..300 {
        println!("seed {first}");
        let mut seed = first;
        let mut bench = Bench::new();
        bench.sideband.listen(3, Some(50)).expect("a listener");
        let mut live = Vec::new();
        for step in 0..200_u32 {
            if draw(&mut seed).is_multiple_of(4) {
                let request = ConnectRequest {
                    address: IaAddress::Node(2),
                    qualifier: 1,
                    private_data: &[],
                    quality: QualityOfService::BEST_EFFORT,
                };
                if bench.sideband.connect(step, &request).is_ok() {
                    live.push(u64::from(step));
                }
            }
            let message = Message {
                places: draw(&mut seed) % 2,
                qualifier: 50,
                ..Message::new(
                    Kind::ALL[draw(&mut seed) as usize % Kind::ALL.len()],
                    draw(&mut seed) % 8,
                    ((draw(&mut seed) % 4) << 16) | (draw(&mut seed) % PLACES as u32),
                )
            };
            bench.tell(&message);
            while let Some(event) = bench.poll() {
                match event {
                    ControlEvent::ConnectionRequest { request, .. } => {
                        let number = 10_000 + step;
                        match draw(&mut seed) % 3 {
                            0 => bench.sideband.reject(request, true, b"no"),
                            1 if bench.sideband.accept(request, number, &[]).is_ok() => {
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
                        let place = live.iter().position(|one| *one == queue_pair);
                        live.swap_remove(place.expect("one that ends once"));
                        let parted = queue_pair as u32;
                        assert!(bench.log.borrow().parted.contains(&parted));
                    }
                    other => panic!("{other:?}"),
                }
            }
            bench.heard();
        }
    }
}
