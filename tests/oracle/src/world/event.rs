//! Event dispatchers: a list per stream, merged in any order that the catalogue allows.

use std::collections::{BTreeMap, VecDeque};

use dat_core::error::{ErrorKind, Subtype};
use dat_core::event::{AsyncEventKind, ConnectionEventKind, DtoOperation, ExtendedOperation};
use dat_core::flags::{CompletionFlags, DtoStatus, EvdFlags, HandleKind};

use super::{DISPATCHERS, Key, World};
use crate::expect::{Checks, Verdict};
use crate::op::Side;

/// Limit on the queue length of an adapter.
pub(crate) const LONGEST_QUEUE: i32 = 32;

/// Stream of events: ordered within the stream, in any order to other streams (EVW-09).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stream {
    /// Request completions of an endpoint.
    Requests(Key),
    /// Receive completions of an endpoint.
    Receives(Key),
    /// Connection events of an endpoint.
    Connection(Key),
    /// Connection request.
    ConnectionRequest(Key),
    /// Software events of the consumer.
    Software,
    /// Asynchronous events of one object.
    Async(Key),
}

impl Stream {
    const fn is_completion(self) -> bool {
        matches!(self, Self::Requests(_) | Self::Receives(_))
    }
}

/// Operation that a completion reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Dto(DtoOperation),
    Extended(ExtendedOperation),
}

impl Operation {
    fn is_receive(self) -> bool {
        matches!(
            self,
            Self::Dto(DtoOperation::Receive)
                | Self::Extended(ExtendedOperation::ReceiveImmediate { .. })
        )
    }
}

/// Event as the consumer saw it, in the oracle's keys; unknown handles are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Completion {
        ep: Option<Key>,
        cookie: u64,
        status: DtoStatus,
        length: u64,
        operation: Operation,
    },
    Bind {
        rmr: Option<Key>,
        cookie: u64,
        status: DtoStatus,
    },
    /// `attempt` is read from the private data of the new connection request.
    Request {
        service_point: Option<Key>,
        qualifier: u64,
        attempt: Option<usize>,
    },
    Connection {
        kind: ConnectionEventKind,
        ep: Option<Key>,
        private_data: Vec<u8>,
    },
    Async {
        kind: AsyncEventKind,
        object: Option<Key>,
        reason: u32,
    },
    Software {
        pointer: u64,
    },
}

/// Legal completion statuses of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Is(DtoStatus),
    /// EPS-04 only says that the sender's completion is an error too.
    AnyFault,
}

impl Status {
    fn allows(self, status: DtoStatus) -> bool {
        match self {
            Self::Is(expected) => status == expected,
            Self::AnyFault => !matches!(status, DtoStatus::Success | DtoStatus::Flushed),
        }
    }

    pub(crate) fn is_success(self) -> bool {
        self == Self::Is(DtoStatus::Success)
    }
}

/// Event that is or will be queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Completion {
        ep: Key,
        cookie: u64,
        status: Status,
        length: u64,
        operation: Operation,
    },
    Bind {
        rmr: Key,
        cookie: u64,
        status: Status,
    },
    Request {
        service_point: Option<Key>,
        qualifier: u64,
        attempt: usize,
    },
    /// `kinds`: EPK-10 leaves the choice between TIMED_OUT and UNREACHABLE to the transport.
    Connection {
        kinds: Vec<ConnectionEventKind>,
        ep: Key,
        private_data: Vec<u8>,
    },
    Async {
        kind: AsyncEventKind,
        object: Key,
        reason: u32,
    },
    Software {
        pointer: u64,
    },
}

impl Expected {
    fn allows(&self, seen: &Seen) -> bool {
        match (self, seen) {
            (
                Self::Completion {
                    ep,
                    cookie,
                    status,
                    length,
                    operation,
                },
                Seen::Completion {
                    ep: e,
                    cookie: c,
                    status: s,
                    length: l,
                    operation: o,
                },
            ) => {
                // The length is defined for successes only (DTO-03).
                Some(*ep) == *e
                    && cookie == c
                    && status.allows(*s)
                    && operation == o
                    && (*s != DtoStatus::Success || length == l)
            }
            (
                Self::Bind {
                    rmr,
                    cookie,
                    status,
                },
                Seen::Bind {
                    rmr: r,
                    cookie: c,
                    status: s,
                },
            ) => Some(*rmr) == *r && cookie == c && status.allows(*s),
            (
                Self::Request {
                    service_point,
                    qualifier,
                    attempt,
                },
                Seen::Request {
                    service_point: p,
                    qualifier: q,
                    attempt: a,
                },
            ) => service_point == p && qualifier == q && Some(*attempt) == *a,
            (
                Self::Connection {
                    kinds,
                    ep,
                    private_data,
                },
                Seen::Connection {
                    kind,
                    ep: e,
                    private_data: data,
                },
            ) => kinds.contains(kind) && Some(*ep) == *e && private_data == data,
            (
                Self::Async {
                    kind,
                    object,
                    reason,
                },
                Seen::Async {
                    kind: k,
                    object: o,
                    reason: r,
                },
            ) => kind == k && Some(*object) == *o && reason == r,
            (Self::Software { pointer }, Seen::Software { pointer: p }) => pointer == p,
            _ => false,
        }
    }

    fn success_of(&self, endpoint: Key) -> bool {
        matches!(self, Self::Completion { ep, status, .. } if *ep == endpoint && status.is_success())
    }

    fn established(&self) -> bool {
        matches!(self, Self::Connection { kinds, .. } if kinds.contains(&ConnectionEventKind::Established))
    }
}

/// Queued event with its status.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub(crate) event: Expected,
    /// Set if it has certainly arrived.
    pub(crate) sure: bool,
    /// Set if it may have been lost (EPR-01, EPF-02, overflow).
    pub(crate) optional: bool,
    /// Post whose slot in a work queue the event holds.
    pub(crate) post: u64,
    stamp: u64,
}

/// An event dispatcher.
#[derive(Clone, Debug)]
pub(crate) struct Evd {
    pub(crate) side: Side,
    pub(crate) flags: EvdFlags,
    pub(crate) length: u32,
    pub(crate) enabled: bool,
    pub(crate) waitable: bool,
    pub(crate) cno: Option<Key>,
    pub(crate) streams: BTreeMap<Stream, VecDeque<Queued>>,
    overflowed: bool,
}

impl Evd {
    pub(super) fn mark_arrived(&mut self) {
        for queued in self.streams.values_mut().flatten() {
            queued.sure = true;
        }
    }

    fn queued(&self, wanted: impl Fn(&Stream, &Queued) -> bool) -> usize {
        let streams = self.streams.iter();
        streams
            .flat_map(|(stream, events)| events.iter().map(move |event| (stream, event)))
            .filter(|(stream, event)| wanted(stream, event))
            .count()
    }

    /// Returns the numbers of events that are certainly queued, and of those that may be.
    pub(crate) fn bounds(&self) -> (usize, usize) {
        (
            self.queued(|_, e| e.sure && !e.optional),
            self.queued(|_, _| true),
        )
    }

    /// Returns the same bounds without completions, which have slots of their own.
    fn ring_bounds(&self) -> (usize, usize) {
        let ring = |stream: &Stream| !stream.is_completion();
        (
            self.queued(|s, e| ring(s) && e.sure && !e.optional),
            self.queued(|s, _| ring(s)),
        )
    }

    /// Marks the queued events of a stream as possibly lost.
    pub(super) fn may_lose(&mut self, stream: Stream) {
        for queued in self.streams.get_mut(&stream).into_iter().flatten() {
            queued.optional = true;
        }
    }

    /// Returns true if another event must come out first.
    ///
    /// A success precedes the end of its connection (EPD-06), and ESTABLISHED precedes data (state
    /// machines, 1.5).
    fn is_held_back(&self, stream: Stream, candidate: &Queued) -> bool {
        let earlier = |stream: Stream, wanted: &dyn Fn(&Expected) -> bool| {
            self.streams
                .get(&stream)
                .into_iter()
                .flatten()
                .any(|queued| {
                    queued.stamp < candidate.stamp && !queued.optional && wanted(&queued.event)
                })
        };
        match stream {
            Stream::Connection(ep) => {
                earlier(Stream::Requests(ep), &|event| event.success_of(ep))
                    || earlier(Stream::Receives(ep), &|event| event.success_of(ep))
            }
            Stream::Requests(ep) | Stream::Receives(ep) => {
                earlier(Stream::Connection(ep), &Expected::established)
            }
            _ => false,
        }
    }

    /// Removes the event that was seen; returns `None` if it must not come now.
    pub(crate) fn take(&mut self, seen: &Seen) -> Option<Queued> {
        let mut found = None;
        for (&stream, events) in &self.streams {
            for (index, queued) in events.iter().enumerate() {
                if queued.event.allows(seen) && !self.is_held_back(stream, queued) {
                    found = Some((stream, index));
                    break;
                }
                if !queued.optional {
                    break;
                }
            }
            if found.is_some() {
                break;
            }
        }
        let (stream, index) = found?;
        let events = self.streams.get_mut(&stream)?;
        let taken = events.drain(..=index).next_back();
        if events.is_empty() {
            self.streams.remove(&stream);
        }
        taken
    }

    /// Drops the events that may have been lost: the dispatcher reported that it is empty.
    pub(crate) fn found_empty(&mut self) {
        for events in self.streams.values_mut() {
            events.retain(|queued| !(queued.optional && queued.sure));
        }
        self.streams.retain(|_, events| !events.is_empty());
    }
}

/// Consumer notification object.
#[derive(Clone, Debug)]
pub(crate) struct Cno {
    /// Set if a notification certainly came since the last wait.
    pub(crate) triggered: bool,
    /// Set if a notification may have come.
    pub(crate) touched: bool,
    /// Agent that the next notification calls.
    pub(crate) agent: Option<Agent>,
}

/// Agent of a notification object, not yet called.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    pub(crate) data: u64,
    /// Set if a notification certainly came since the agent was set.
    pub(crate) sure: bool,
    /// Set if a notification may have come.
    pub(crate) possible: bool,
}

impl Agent {
    pub(crate) const fn new(data: u64) -> Self {
        Self {
            data,
            sure: false,
            possible: false,
        }
    }
}

/// Condition under which completions of a dispatcher wake a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Config {
    Notify,
    Solicited,
    Threshold,
}

impl Config {
    pub(crate) fn of(flags: CompletionFlags) -> Self {
        if flags == CompletionFlags::UNSIGNALLED {
            Self::Notify
        } else if flags == CompletionFlags::SOLICITED_WAIT {
            Self::Solicited
        } else {
            Self::Threshold
        }
    }
}

impl World {
    /// Checks `evd_create` (EVC-02 to EVC-04); `length` is the requested one.
    pub(crate) fn check_evd_create(
        &self,
        side: Side,
        length: i32,
        cno: Option<Option<Key>>,
        flags: EvdFlags,
    ) -> Verdict {
        let mut checks = Checks::default();
        self.check_optional(&mut checks, side, HandleKind::Cno, cno);
        checks.parameter(length <= 0, 2);
        checks.parameter(
            flags.is_empty() || EvdFlags::from_bits(flags.bits()).is_none(),
            4,
        );
        checks.resource(length > LONGEST_QUEUE);
        checks.resource(self.count(side, HandleKind::Evd) >= DISPATCHERS);
        checks.verdict()
    }

    pub(crate) fn evd_create(
        &mut self,
        side: Side,
        length: u32,
        cno: Option<Key>,
        flags: EvdFlags,
    ) -> Key {
        let key = self.add(side, HandleKind::Evd, true);
        let evd = Evd {
            side,
            flags,
            length,
            enabled: true,
            waitable: true,
            cno,
            streams: BTreeMap::new(),
            overflowed: false,
        };
        self.evds.insert(key, evd);
        key
    }

    /// Checks `evd_free` (EVF-02).
    pub(crate) fn check_evd_free(&self, side: Side, evd: Option<Key>) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Evd, evd);
        let used = evd.is_some()
            && (self
                .eps
                .values()
                .any(|ep| [ep.receive, ep.request, ep.connect].contains(&evd))
                || self.psps.values().any(|psp| Some(psp.evd) == evd)
                || self.rsps.values().any(|rsp| Some(rsp.evd) == evd)
                || Some(self.async_evds[side.index()]) == evd);
        checks.state(used, Subtype::InvalidStateEvdInUse);
        checks.verdict()
    }

    pub(crate) fn evd_free(&mut self, key: Key) {
        let evd = self.evds.remove(&key);
        self.mark_dead(key);
        // EVF-03: nobody sees the connection requests in it.
        let streams = evd.iter().flat_map(|evd| evd.streams.keys());
        for stream in streams {
            if let Stream::ConnectionRequest(cr) = stream {
                self.refuse(*cr);
            }
        }
        let cno = evd.and_then(|evd| evd.cno);
        // CNW-05: freeing the last dispatcher releases waiters. Only then is it open if a trigger
        // is kept.
        self.touch_cno(cno, false);
        if !self.evds.values().any(|evd| evd.cno == cno)
            && let Some(cno) = cno.and_then(|key| self.cnos.get_mut(&key))
        {
            cno.triggered = false;
        }
    }

    /// Checks `evd_resize` (EVZ-01).
    pub(crate) fn check_evd_resize(&self, side: Side, key: Option<Key>, length: i32) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Evd, key);
        checks.parameter(length <= 0, 2);
        checks.resource(length > LONGEST_QUEUE);
        if let Some(evd) = key.and_then(|key| self.evds.get(&key)) {
            let (sure, possible) = evd.bounds();
            let length = usize::try_from(length).unwrap_or(0);
            if length != 0 {
                checks.state(sure > length, None);
                if possible > length {
                    checks.possible(ErrorKind::InvalidState);
                }
            }
        }
        checks.verdict()
    }

    /// Checks `evd_post_se` (EVS-01 to EVS-03).
    ///
    /// The queue is full when the number of queued events equals its length. Some providers give
    /// completions separate slots, so a queue with completions may be full or not.
    pub(crate) fn check_post_software(&self, side: Side, key: Option<Key>) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Evd, key);
        let Some(evd) = key.and_then(|key| self.evds.get(&key)) else {
            return checks.verdict();
        };
        checks.parameter(!evd.flags.contains(EvdFlags::SOFTWARE), 0);
        if !evd.flags.contains(EvdFlags::SOFTWARE) {
            return checks.verdict();
        }
        let length = evd.length as usize;
        if evd.ring_bounds().0 >= length {
            return Verdict::refused(ErrorKind::QueueFull, None);
        }
        if evd.bounds().1 >= length {
            checks.possible(ErrorKind::QueueFull);
        }
        checks.verdict()
    }

    /// Checks the arguments and the state of a wait (EVW-02, EVW-03, EVW-05).
    pub(crate) fn check_evd_wait(&self, side: Side, key: Option<Key>, threshold: i32) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Evd, key);
        if let Some(evd) = key.and_then(|key| self.evds.get(&key)) {
            let too_long = u32::try_from(threshold).is_ok_and(|value| value > evd.length);
            checks.parameter(threshold < 1 || too_long, 3);
            checks.state(!evd.waitable, Subtype::InvalidStateEvdUnwaitable);
            let selective = key
                .and_then(|key| self.config_of(key))
                .is_some_and(|config| config != Config::Threshold);
            checks.state(threshold != 1 && selective, None);
            if evd.overflowed {
                // State machines, section 2: an overflowed dispatcher is in error once it is
                // drained.
                checks.possible(ErrorKind::InvalidState);
            }
        }
        checks.verdict()
    }

    /// Returns the configuration that endpoint streams gave a dispatcher (EPC-04).
    pub(crate) fn config_of(&self, evd: Key) -> Option<Config> {
        self.eps.values().find_map(|ep| {
            if ep.receive == Some(evd) {
                Some(Config::of(ep.shape.receive_flags))
            } else if ep.request == Some(evd) {
                Some(Config::of(ep.shape.request_flags))
            } else {
                None
            }
        })
    }

    /// Checks `cno_free` (CNF-01).
    pub(crate) fn check_cno_free(&self, side: Side, cno: Option<Key>) -> Verdict {
        let mut checks = self.check_handle(side, HandleKind::Cno, cno);
        let used = self
            .evds
            .values()
            .any(|evd| evd.cno.is_some() && evd.cno == cno);
        checks.state(used, Subtype::InvalidStateCnoInUse);
        checks.verdict()
    }

    pub(crate) fn cno_create(&mut self, side: Side, agent: Option<Agent>) -> Key {
        let key = self.add(side, HandleKind::Cno, true);
        let cno = Cno {
            triggered: false,
            touched: false,
            agent,
        };
        self.cnos.insert(key, cno);
        key
    }

    pub(crate) fn touch_cno(&mut self, cno: Option<Key>, surely: bool) {
        if let Some(cno) = cno.and_then(|key| self.cnos.get_mut(&key)) {
            cno.triggered |= surely;
            cno.touched = true;
            if let Some(agent) = &mut cno.agent {
                agent.sure |= surely;
                agent.possible = true;
            }
        }
    }

    /// Queues a completion; a stream without a dispatcher drops it (DTO-02).
    pub(crate) fn complete(
        &mut self,
        evd: Option<Key>,
        stream: Stream,
        post: u64,
        event: Expected,
    ) {
        let stamp = self.stamp();
        let Some(queue) = evd.and_then(|key| self.evds.get_mut(&key)) else {
            return;
        };
        let cno = queue.cno;
        queue.streams.entry(stream).or_default().push_back(Queued {
            event,
            sure: false,
            optional: false,
            post,
            stamp,
        });
        self.touch_cno(cno, false);
    }

    /// Queues any other event if there is room.
    ///
    /// See state machines, section 2: arrival of one event.
    pub(crate) fn raise(&mut self, evd: Option<Key>, stream: Stream, event: Expected) {
        let stamp = self.stamp();
        let Some((key, queue)) = evd.and_then(|key| Some((key, self.evds.get_mut(&key)?))) else {
            return;
        };
        let (sure, possible) = queue.ring_bounds();
        let (side, cno, length) = (queue.side, queue.cno, queue.length as usize);
        let full = sure >= length;
        let maybe_full = possible >= length;
        let again = queue.overflowed;
        queue.overflowed |= maybe_full;
        if !full {
            queue.streams.entry(stream).or_default().push_back(Queued {
                event,
                sure: false,
                optional: maybe_full,
                post: 0,
                stamp,
            });
            self.touch_cno(cno, false);
        }
        let async_evd = self.async_evds[side.index()];
        if maybe_full && key != async_evd {
            self.raise_overflow(async_evd, key, !full || again);
        }
    }

    fn raise_overflow(&mut self, async_evd: Key, evd: Key, optional: bool) {
        let stamp = self.stamp();
        let Some(queue) = self.evds.get_mut(&async_evd) else {
            return;
        };
        let optional = optional || queue.ring_bounds().1 >= queue.length as usize;
        queue
            .streams
            .entry(Stream::Async(evd))
            .or_default()
            .push_back(Queued {
                event: Expected::Async {
                    kind: AsyncEventKind::EvdOverflow,
                    object: evd,
                    reason: 0,
                },
                sure: false,
                optional,
                post: 0,
                stamp,
            });
    }

    /// Returns true if a connection request has room (PSC-02).
    pub(crate) fn has_room(&self, evd: Key) -> bool {
        let evd = self.evds.get(&evd);
        evd.is_some_and(|evd| evd.ring_bounds().1 < evd.length as usize)
    }

    pub(crate) fn post_software(&mut self, key: Key, pointer: u64) {
        let stamp = self.stamp();
        let Some(evd) = self.evds.get_mut(&key) else {
            return;
        };
        evd.streams
            .entry(Stream::Software)
            .or_default()
            .push_back(Queued {
                event: Expected::Software { pointer },
                sure: true,
                optional: false,
                post: 0,
                stamp,
            });
        let (cno, enabled) = (evd.cno, evd.enabled);
        // EVN-02: a disabled dispatcher does not affect the object.
        if enabled {
            self.touch_cno(cno, true);
        }
    }

    /// Frees the work queue slot of a dequeued event.
    pub(crate) fn dequeued(&mut self, queued: &Queued) {
        match queued.event {
            Expected::Completion { ep, operation, .. } if operation.is_receive() => {
                self.free_receive(ep, queued.post);
            }
            Expected::Completion { ep, .. } => self.free_request(ep, queued.post),
            Expected::Bind { .. } => {
                let eps: Vec<Key> = self.eps.keys().copied().collect();
                for ep in eps {
                    self.free_request(ep, queued.post);
                }
            }
            Expected::Request { attempt, .. } => self.reveal_request(attempt),
            _ => {}
        }
    }

    /// Returns true if a bind failed and its completion was not dequeued.
    pub(crate) fn has_failed_bind(&self) -> bool {
        self.evds
            .values()
            .flat_map(|evd| evd.streams.values().flatten())
            .any(|queued| matches!(queued.event, Expected::Bind { status, .. } if !status.is_success()))
    }

    /// Returns the private data of the next ESTABLISHED event of an endpoint.
    pub(crate) fn private_data_of(&self, key: Option<Key>) -> Vec<u8> {
        let events = self
            .evds
            .values()
            .filter_map(|evd| evd.streams.get(&Stream::Connection(key?)))
            .flatten();
        events
            .filter(|queued| queued.event.established())
            .find_map(|queued| match &queued.event {
                Expected::Connection { private_data, .. } => Some(private_data.clone()),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// Lists the possible events, for the report of an impossible one.
    pub(crate) fn describe(&self, evd: Key) -> String {
        let mut lines = String::new();
        if let Some(evd) = self.evds.get(&evd) {
            for (stream, events) in &evd.streams {
                for queued in events {
                    lines += &format!(
                        "\n    {stream:?}: {:?}{}{}",
                        queued.event,
                        if queued.sure { "" } else { " (on its way)" },
                        if queued.optional {
                            " (may be lost)"
                        } else {
                            ""
                        },
                    );
                }
            }
        }
        lines
    }
}
