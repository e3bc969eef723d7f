//! State exploration of two endpoints over a network that loses and repeats messages.
//!
//! Explores every order of calls and deliveries up to a depth. The core's state cannot be copied,
//! so a state is the list of steps that leads to it, run again from the start. Two lists are one
//! state if their results look the same. A message arrives as the control event that a backend
//! would raise. The device keeps the contract of a backend: events concern the current connection
//! of the queue pair, and none follows a disconnect.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::format;
use std::string::String;
use std::vec::Vec;

use crate::backend::{ConnectFailure, ControlEvent, DisconnectMode, PrivateData, RequestKey};
use crate::endpoint::{ConnectParam, Trigger, next};
use crate::error::{ErrorKind, Result};
use crate::event::ConnectionEventKind::{
    self, AcceptCompletionError, Broken, Disconnected, Established, NonPeerRejected, PeerRejected,
    TimedOut, Unreachable,
};
use crate::flags::{CloseFlags, CompletionFlags, DtoStatus, EndpointState as State};
use crate::id::{CrId, EpId, Handle, RspId};
use crate::testing::fixture::{Bench, PEER, QUALIFIER};
use crate::testing::{Call as Asked, TestStorage};
use crate::time::Instant;

/// Index of the side that connects; the other side accepts.
const ACTIVE: usize = 0;
const PASSIVE: usize = 1;
/// Timeout of an attempt, in microseconds.
const PATIENCE: u32 = 1000;

/// Source of the accepting side's endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listener {
    /// The consumer names it in the accept.
    Consumer,
    /// A reserved service point provides it.
    Reserved,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Word {
    Request,
    Reply,
    Ready,
    Refusal { by_consumer: bool },
    Bye,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Message {
    to: usize,
    attempt: u32,
    word: Word,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Connect,
    Accept,
    Reject,
    Reserve,
    Unreserve,
    Disconnect(usize, CloseFlags),
    Reset(usize),
    Post(usize),
    Complete(usize),
    Deliver(usize),
    Repeat(usize),
    Lose(usize),
    /// The device reports a broken connection.
    Break(usize),
    /// The device gives up an accepted connection.
    GiveUp,
    /// The timeout of the attempt passes.
    Wait,
}

/// Limits on attempts, faults and posts.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    attempts: u32,
    repeats: u32,
    losses: u32,
    breaks: u32,
    posts: u32,
}

/// Default limits.
const ALLOWED: Allowed = Allowed {
    attempts: 2,
    repeats: 1,
    losses: 1,
    breaks: 1,
    posts: 1,
};

struct Side<'s> {
    bench: Bench<'s>,
    ep: EpId,
    /// Current attempt of the queue pair, as the device knows it.
    attempt: Option<u32>,
    /// Set if that attempt has ended, as the device knows it.
    over: bool,
    /// Connection events since the last reset of the endpoint.
    events: Vec<ConnectionEventKind>,
    posted: u32,
    completed: u32,
}

struct TwoPeers<'s> {
    sides: [Side<'s>; 2],
    listener: Listener,
    now: Instant,
    messages: Vec<Message>,
    left: Allowed,
    attempts: u32,
    /// Attempt of each request that the device offered.
    requests: BTreeMap<usize, u32>,
    /// Requests without an answer.
    waiting: VecDeque<(CrId, u32)>,
    service_point: Option<Handle>,
    reserved: Option<RspId>,
    /// Attempts with a lost message or a failure.
    disturbed: BTreeSet<u32>,
    /// State changes so far.
    changes: BTreeSet<(String, String)>,
    /// Steps so far.
    taken: Vec<Step>,
}

impl Drop for TwoPeers<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::println!("{:?}: {:?}", self.listener, self.taken);
        }
    }
}

impl<'s> TwoPeers<'s> {
    fn new(storages: &'s mut [TestStorage; 2], listener: Listener, allowed: Allowed) -> Self {
        let [first, second] = storages;
        let sides = [first, second].map(|storage| {
            let bench = Bench::new(storage);
            let ep = bench.endpoint();
            bench.device.take_calls();
            Side {
                bench,
                ep,
                attempt: None,
                over: false,
                events: Vec::new(),
                posted: 0,
                completed: 0,
            }
        });
        let mut world = Self {
            sides,
            listener,
            now: Instant::ZERO,
            messages: Vec::new(),
            left: allowed,
            attempts: 0,
            requests: BTreeMap::new(),
            waiting: VecDeque::new(),
            service_point: None,
            reserved: None,
            disturbed: BTreeSet::new(),
            changes: BTreeSet::new(),
            taken: Vec::new(),
        };
        if listener == Listener::Consumer {
            let bench = &world.sides[PASSIVE].bench;
            let psp = bench.listen(QUALIFIER);
            bench.device.take_calls();
            world.service_point = Some(psp.handle());
        }
        world
    }

    fn state(&self, side: usize) -> State {
        let side = &self.sides[side];
        side.bench.state(side.ep)
    }

    /// Returns all possible next steps.
    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.left.attempts != 0 {
            steps.push(Step::Connect);
        }
        if !self.waiting.is_empty() {
            steps.extend([Step::Accept, Step::Reject]);
        }
        if self.listener == Listener::Reserved {
            steps.push(if self.reserved.is_none() {
                Step::Reserve
            } else {
                Step::Unreserve
            });
        }
        for side in [ACTIVE, PASSIVE] {
            steps.push(Step::Disconnect(side, CloseFlags::Abrupt));
            steps.push(Step::Disconnect(side, CloseFlags::Graceful));
            steps.push(Step::Reset(side));
            if self.left.posts != 0 && self.state(side) == State::Connected {
                steps.push(Step::Post(side));
            }
            if self.outstanding(side) {
                steps.push(Step::Complete(side));
            }
            if self.left.breaks != 0 && self.sides[side].attempt.is_some() {
                steps.push(Step::Break(side));
            }
        }
        for at in 0..self.messages.len() {
            steps.push(Step::Deliver(at));
            if self.left.repeats != 0 {
                steps.push(Step::Repeat(at));
            }
            if self.left.losses != 0 {
                steps.push(Step::Lose(at));
            }
        }
        if self.state(PASSIVE) == State::CompletionPending {
            steps.push(Step::GiveUp);
        }
        if self.state(ACTIVE) == State::ActiveConnectionPending {
            steps.push(Step::Wait);
        }
        steps
    }

    fn outstanding(&self, side: usize) -> bool {
        let side = &self.sides[side];
        let pair = side.bench.pair(side.ep);
        !side.bench.device.posted(pair).0.is_empty()
    }

    /// Runs a step and checks the invariants; only the state may refuse a call.
    fn take(&mut self, step: Step) {
        let before = [ACTIVE, PASSIVE].map(|side| self.state(side));
        let (seen, kept) = (self.look(), self.kept());
        self.taken.push(step);
        if let Err(error) = self.try_step(step) {
            assert_eq!(error.kind(), ErrorKind::InvalidState, "{step:?}");
            assert_eq!(
                (self.look(), self.kept()),
                (seen, kept),
                "{step:?} was refused and changed something"
            );
            for side in &self.sides {
                assert_eq!(side.bench.device.take_calls(), [], "{step:?} was refused");
            }
        }
        self.run_until_quiet();
        for (side, before) in [ACTIVE, PASSIVE].into_iter().zip(before) {
            let after = self.state(side);
            if before != after {
                self.note_change(before, after);
            }
        }
        self.check();
    }

    fn try_step(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Connect => {
                let side = &self.sides[ACTIVE];
                let param = ConnectParam {
                    timeout: PATIENCE,
                    ..side.bench.param()
                };
                side.bench.ia.ep_connect(side.ep, &param, self.now)?;
                self.left.attempts -= 1;
            }
            Step::Accept => {
                let side = &self.sides[PASSIVE];
                let &(cr, _) = self.waiting.front().unwrap();
                let named = (self.listener == Listener::Consumer).then_some(side.ep);
                side.bench.ia.cr_accept(cr, named, b"welcome")?;
                self.waiting.pop_front();
            }
            Step::Reject => {
                let (cr, _) = self.waiting.pop_front().unwrap();
                self.sides[PASSIVE].bench.ia.cr_reject(cr, b"no")?;
            }
            Step::Reserve => {
                let side = &self.sides[PASSIVE];
                let requests = side.bench.requests;
                let rsp = side
                    .bench
                    .ia
                    .rsp_create(QUALIFIER, Some(side.ep), requests)?;
                self.reserved = Some(rsp);
                self.service_point = Some(rsp.handle());
            }
            Step::Unreserve => {
                let rsp = self.reserved.take().unwrap();
                self.sides[PASSIVE].bench.ia.rsp_free(rsp)?;
                self.service_point = None;
            }
            Step::Disconnect(side, how) => {
                let side = &self.sides[side];
                side.bench.ia.ep_disconnect(side.ep, how)?;
            }
            Step::Reset(at) => {
                let side = &mut self.sides[at];
                let lives = side.bench.state(side.ep) != State::Unconnected;
                side.bench.ia.ep_reset(side.ep)?;
                if lives {
                    side.events.clear();
                    side.attempt = None;
                    (side.posted, side.completed) = (0, 0);
                }
            }
            Step::Post(side) => {
                let side = &mut self.sides[side];
                let flags = CompletionFlags::empty();
                side.bench.ia.post_send(side.ep, &[], 7, flags)?;
                side.posted += 1;
                self.left.posts -= 1;
            }
            Step::Complete(side) => {
                let side = &self.sides[side];
                let pair = side.bench.pair(side.ep);
                side.bench.device.complete_request(pair, DtoStatus::Success);
            }
            Step::Deliver(at) => {
                let message = self.messages.remove(at);
                self.deliver(message);
            }
            Step::Repeat(at) => {
                self.left.repeats -= 1;
                self.deliver(self.messages[at]);
            }
            Step::Lose(at) => {
                self.left.losses -= 1;
                let message = self.messages.remove(at);
                self.disturbed.insert(message.attempt);
            }
            Step::Break(side) => {
                self.left.breaks -= 1;
                let side = &mut self.sides[side];
                self.disturbed.extend(side.attempt);
                side.over = true;
                side.bench.device.break_pair(side.bench.pair(side.ep));
                side.bench.device.push_control(ControlEvent::Broken {
                    queue_pair: side.ep.handle().to_raw(),
                });
            }
            Step::GiveUp => {
                let side = &mut self.sides[PASSIVE];
                self.disturbed.extend(side.attempt);
                side.over = true;
                side.bench.device.push_control(ControlEvent::ConnectFailed {
                    queue_pair: side.ep.handle().to_raw(),
                    failure: ConnectFailure::TimedOut,
                });
            }
            Step::Wait => {
                self.now = self.now.after(PATIENCE).unwrap();
            }
        }
        Ok(())
    }

    /// Delivers a message to the device of its receiver.
    fn deliver(&mut self, message: Message) {
        let Message { to, attempt, word } = message;
        let side = &mut self.sides[to];
        let queue_pair = side.ep.handle().to_raw();
        let concerns = side.attempt == Some(attempt);
        let stands = concerns && !side.over;
        side.over |= concerns && matches!(word, Word::Refusal { .. } | Word::Bye);
        let device = &side.bench.device;
        let answer = |word| Message {
            to: 1 - to,
            attempt,
            word,
        };
        match word {
            Word::Request => match self.service_point {
                Some(listener) => {
                    let request = RequestKey(100 + self.requests.len());
                    self.requests.insert(request.0, attempt);
                    device.push_control(ControlEvent::ConnectionRequest {
                        listener: listener.to_raw(),
                        request,
                        remote: PEER,
                        remote_port: 5,
                        local: PEER,
                        private_data: PrivateData::new(),
                    });
                }
                None => self
                    .messages
                    .push(answer(Word::Refusal { by_consumer: false })),
            },
            // A reply to an attempt that has ended is answered with Bye.
            Word::Reply if !stands => self.messages.push(answer(Word::Bye)),
            Word::Reply | Word::Ready if stands => {
                device.push_control(ControlEvent::Established {
                    queue_pair,
                    private_data: PrivateData::new(),
                });
                if word == Word::Reply {
                    self.messages.push(answer(Word::Ready));
                }
            }
            Word::Refusal { by_consumer } if concerns => {
                device.push_control(ControlEvent::ConnectFailed {
                    queue_pair,
                    failure: if by_consumer {
                        ConnectFailure::PeerRejected(PrivateData::new())
                    } else {
                        ConnectFailure::NonPeerRejected
                    },
                });
            }
            Word::Bye if concerns => {
                device.break_pair(side.bench.pair(side.ep));
                device.push_control(ControlEvent::Disconnected { queue_pair });
            }
            _ => {}
        }
    }

    /// Runs both cores until they have no events and no messages left.
    fn run_until_quiet(&mut self) {
        loop {
            let mut busy = false;
            for at in [ACTIVE, PASSIVE] {
                busy |= self.sides[at].bench.ia.progress(self.now) != 0;
                self.hear(at);
                busy |= self.speak(at);
            }
            if !busy {
                return;
            }
        }
    }

    /// Dequeues the events of one side.
    fn hear(&mut self, at: usize) {
        let side = &mut self.sides[at];
        for (kind, ep, _) in side.bench.connection_events() {
            assert_eq!(ep, side.ep);
            side.events.push(kind);
        }
        while side.bench.ia.evd_dequeue(side.bench.data).is_ok() {
            side.completed += 1;
        }
        while let Some(cr) = side.bench.request_event() {
            let latest = *self.requests.values().last().unwrap();
            self.waiting.push_back((cr, latest));
            if self.listener == Listener::Reserved {
                // Its service point has ended.
                self.reserved = None;
                self.service_point = None;
            }
        }
    }

    /// Turns the core's device calls into messages; returns true if there were any.
    fn speak(&mut self, at: usize) -> bool {
        let mut spoke = false;
        let side = &mut self.sides[at];
        for call in side.bench.device.take_calls() {
            let (attempt, word) = match call {
                Asked::Connect { .. } => {
                    self.attempts += 1;
                    (side.attempt, side.over) = (Some(self.attempts), false);
                    (self.attempts, Word::Request)
                }
                Asked::Accept { request, .. } => {
                    let attempt = self.requests[&request.0];
                    (side.attempt, side.over) = (Some(attempt), false);
                    (attempt, Word::Reply)
                }
                Asked::Reject {
                    request,
                    by_consumer,
                    ..
                } => (self.requests[&request.0], Word::Refusal { by_consumer }),
                Asked::Disconnect(_, mode) => {
                    let Some(attempt) = side.attempt.take() else {
                        continue;
                    };
                    if mode == DisconnectMode::Broken {
                        self.disturbed.insert(attempt);
                    }
                    (attempt, Word::Bye)
                }
                _ => continue,
            };
            spoke = true;
            self.messages.push(Message {
                to: 1 - at,
                attempt,
                word,
            });
        }
        spoke
    }

    /// Returns the text that identifies this state.
    fn look(&self) -> String {
        let sides = [ACTIVE, PASSIVE].map(|at| {
            let side = &self.sides[at];
            (
                side.bench.state(side.ep),
                &side.events,
                (side.attempt, side.over),
                side.posted,
                side.completed,
                self.outstanding(at),
            )
        });
        let mut messages = self.messages.clone();
        messages.sort();
        let waiting: Vec<u32> = self.waiting.iter().map(|&(_, attempt)| attempt).collect();
        format!(
            "{sides:?} {messages:?} {waiting:?} {} {:?} {:?} {:?}",
            self.attempts,
            self.left,
            self.reserved.is_some(),
            self.disturbed
        )
    }

    /// Returns further values that a refused call must not change: deadlines and device objects.
    fn kept(&self) -> [(Option<Instant>, [usize; 7]); 2] {
        [ACTIVE, PASSIVE].map(|at| {
            let bench = &self.sides[at].bench;
            (bench.ia.next_deadline(), bench.device.objects())
        })
    }

    fn note_change(&mut self, from: State, to: State) {
        let leads = |from| TRIGGERS.iter().filter_map(move |&by| next(from, by));
        // A graceful disconnect without pending requests drains at once; a Bye and its answer may
        // arrive together.
        let lawful = leads(from).any(|one| one == to || leads(one).any(|two| two == to));
        assert!(lawful, "{from:?} became {to:?}");
        self.changes
            .insert((format!("{from:?}"), format!("{to:?}")));
    }

    /// Checks the invariants of every state.
    fn check(&self) {
        for at in [ACTIVE, PASSIVE] {
            let state = self.state(at);
            let side = &self.sides[at];
            let lawful = match side.events[..] {
                [] => matches!(
                    state,
                    State::Unconnected
                        | State::ActiveConnectionPending
                        | State::CompletionPending
                        | State::Reserved
                        | State::PassiveConnectionPending
                ),
                [Established] => matches!(state, State::Connected | State::DisconnectPending),
                [PeerRejected | NonPeerRejected | Unreachable | TimedOut] => {
                    at == ACTIVE && state == State::Disconnected
                }
                [AcceptCompletionError] => at == PASSIVE && state == State::Disconnected,
                // Disconnected by the consumer, or ended once after ESTABLISHED.
                [Disconnected] | [Established, Disconnected | Broken] => {
                    state == State::Disconnected
                }
                _ => false,
            };
            assert!(lawful, "side {at} is {state:?} behind {:?}", side.events);
            assert!(side.completed <= side.posted, "a request completed twice");
            if state == State::Disconnected {
                assert_eq!(side.completed, side.posted, "a request is lost");
            }
        }
        self.check_ends();
    }

    /// Checks that both sides agree about a connection without losses and pending messages.
    fn check_ends(&self) {
        for at in [ACTIVE, PASSIVE] {
            let Some(attempt) = self.sides[at].attempt else {
                continue;
            };
            let under_way = self
                .messages
                .iter()
                .any(|message| message.attempt == attempt)
                || self.waiting.iter().any(|&(_, waiting)| waiting == attempt);
            if under_way || self.disturbed.contains(&attempt) {
                continue;
            }
            let other = &self.sides[1 - at];
            let is_in = |state| matches!(state, State::Connected | State::DisconnectPending);
            let connected = is_in(self.state(at));
            let others = other.attempt == Some(attempt) && is_in(self.state(1 - at));
            assert_eq!(
                connected, others,
                "side {at} got no event for the end of {attempt}"
            );
            assert!(
                !matches!(
                    self.state(at),
                    State::ActiveConnectionPending | State::CompletionPending
                ),
                "side {at} waits forever"
            );
        }
    }

    /// From any state, both sides return to UNCONNECTED and all objects can be freed.
    fn finish(mut self) {
        while !self.waiting.is_empty() {
            self.take(Step::Reject);
        }
        if self.reserved.is_some() {
            self.take(Step::Unreserve);
        }
        for at in [ACTIVE, PASSIVE] {
            if self.state(at) != State::Unconnected {
                self.take(Step::Disconnect(at, CloseFlags::Abrupt));
                assert_eq!(self.state(at), State::Disconnected);
            }
            self.take(Step::Reset(at));
            assert_eq!(self.state(at), State::Unconnected);
        }
        for side in &self.sides {
            side.bench.ia.ep_free(side.ep).unwrap();
            let [_, _, _, _, pairs, ..] = side.bench.device.objects();
            assert_eq!(pairs, 0);
        }
    }
}

const TRIGGERS: [Trigger; 14] = [
    Trigger::Reserve,
    Trigger::Unreserve,
    Trigger::Request,
    Trigger::Accept,
    Trigger::Reject,
    Trigger::Connect,
    Trigger::Establish,
    Trigger::AttemptFailure,
    Trigger::DisconnectAbruptly,
    Trigger::Drain,
    Trigger::Drained,
    Trigger::PeerDisconnect,
    Trigger::Break,
    Trigger::Reset,
];

/// Result of an exploration.
struct Explored {
    states: usize,
    steps: u64,
    /// Set if no step was left to try.
    complete: bool,
    changes: BTreeSet<(String, String)>,
}

/// Explores all lists of at most `depth` steps after `first`, skipping known states.
fn explore(listener: Listener, allowed: Allowed, first: &[Step], depth: usize) -> Explored {
    let mut explored = Explored {
        states: 0,
        steps: 0,
        complete: true,
        changes: BTreeSet::new(),
    };
    let mut met = HashSet::new();
    let mut front: VecDeque<Vec<Step>> = VecDeque::from([first.to_vec()]);
    let mut storages = [TestStorage::new(), TestStorage::new()];
    while let Some(steps) = front.pop_front() {
        let mut world = TwoPeers::new(&mut storages, listener, allowed);
        for &step in &steps {
            world.take(step);
        }
        explored.changes.append(&mut world.changes);
        explored.steps += 1;
        if !met.insert(world.look()) {
            continue;
        }
        let following = world.steps();
        world.finish();
        if steps.len() == first.len() + depth {
            explored.complete = false;
            continue;
        }
        front.extend(following.into_iter().map(|step| {
            let mut longer = steps.clone();
            longer.push(step);
            longer
        }));
    }
    explored.states = met.len();
    explored
}

/// Returns the depth of exploration, from the environment if set there.
fn depth(usual: usize) -> usize {
    std::env::var("DAT_CORE_DEPTH")
        .ok()
        .map_or(usual, |depth| depth.parse().expect("a number of steps"))
}

fn report(name: &str, depth: usize, explored: &Explored) {
    std::println!(
        "explored: {name}: {} states, {} steps, {depth} deep, {}",
        explored.states,
        explored.steps,
        if explored.complete {
            "complete"
        } else {
            "cut off"
        }
    );
}

/// The two peers agree in every state, despite losses and repetitions.
///
/// No event comes twice or in an unlawful order, and no disconnect is lost. No request completes
/// twice or never. Refused calls change nothing, and every state leads back to the start.
///
/// Spec: EPK-06, EPK-11, CRA-03, EPD-01, EPD-02, EPD-05, EPD-10, EPR-01, GEN-06
#[test]
fn two_peers_agree_whatever_the_network_does() {
    let depth = depth(6);
    let explored = explore(Listener::Consumer, ALLOWED, &[], depth);
    report("the consumer names the endpoint", depth, &explored);
    assert!(explored.states > 100);
    let led = |from: &str, to: &str| explored.changes.contains(&(from.into(), to.into()));
    assert!(led("ActiveConnectionPending", "Connected"));
    assert!(led("Connected", "Disconnected"));
    assert!(led("CompletionPending", "Connected"));
}

/// The same for a second connection, while messages of the first are still in flight.
///
/// Spec: EPK-06, EPK-11, CRA-03, EPD-01, EPD-05, EPR-01
#[test]
fn two_peers_agree_on_their_next_connection() {
    let depth = depth(6);
    let first = [
        Step::Connect,
        Step::Deliver(0),
        Step::Accept,
        Step::Deliver(0),
        Step::Deliver(0),
        Step::Disconnect(ACTIVE, CloseFlags::Abrupt),
        Step::Reset(ACTIVE),
    ];
    let explored = explore(Listener::Consumer, ALLOWED, &first, depth);
    report("behind a first connection", depth, &explored);
    assert!(explored.states > 100);
    let led = |from: &str, to: &str| explored.changes.contains(&(from.into(), to.into()));
    assert!(led("Unconnected", "ActiveConnectionPending"));
    assert!(led("Connected", "Disconnected"));
    assert!(led("Disconnected", "Unconnected"));
}

/// The same with an endpoint that is reserved for the service point.
///
/// Spec: RSC-03, RSF-01, CRR-01, CRA-03, EPD-01, EPR-01
#[test]
fn two_peers_agree_with_a_reserved_endpoint() {
    let depth = depth(6);
    let allowed = Allowed {
        breaks: 0,
        posts: 0,
        ..ALLOWED
    };
    let explored = explore(Listener::Reserved, allowed, &[], depth);
    report("the endpoint is reserved", depth, &explored);
    assert!(explored.states > 50);
    let led = |from: &str, to: &str| explored.changes.contains(&(from.into(), to.into()));
    assert!(led("Reserved", "PassiveConnectionPending"));
    assert!(led("PassiveConnectionPending", "CompletionPending"));
}
