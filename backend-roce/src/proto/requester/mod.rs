//! The requester: sends requests, repeats them by go-back-N and completes them in order.
//!
//! Positions count posted requests and never wrap: `taken <= open <= assigned <= posted`. A request
//! gets its PSNs when its first packet is sent.

mod request;
mod response;
mod slot;
mod transmit;
mod window;

pub use request::{Completion, Operation, PostError, Request, Status};
pub use slot::RequestSlot;

use dat_core::time::Instant;

use super::memory::LocalError;
use super::path_mtu::{MESSAGE_MAX, PACKETS_MAX};
use super::time::later;
use super::{BufferRoom, Earliest, PathMtu, Psn, Slots, coded_time};
use window::Window;

/// A retry count that never ends, for RNR NAKs (ROCE-79).
const FOREVER: u8 = 7;

/// Longest request that waits for others: 64 packets of this length fit a datagram.
const SHORT: u32 = 960;

/// Length of the requests that fill a send, without their headers.
const FULL: u32 = 60_000;

/// Requests under way from which on short ones wait for others.
///
/// A small group, such as data and the message after it, leaves at once.
const BUSY: u64 = 4;

/// Length of the memory that an Atomic changes and returns.
const ATOMIC_LENGTH: u32 = 8;

/// Values that both ends agreed on when they connected.
#[derive(Clone, Copy, Debug)]
pub struct RequesterOptions {
    /// QPN of the peer.
    pub destination: u32,
    /// PSN that the peer expects first (ROCE-61).
    pub first: Psn,
    /// Path MTU.
    pub mtu: PathMtu,
    /// Reads and Atomics that may be under way (ROCE-70).
    pub initiator_depth: u8,
    /// Limit of the window, in packets (ROCE-66).
    pub window: u32,
    /// Packets that may leave in one send; short requests gather if it is above 1 (ROCE-184).
    pub run: u16,
    /// Code of the time-out; 0 means never (ROCE-81).
    pub timeout: u8,
    /// Set if the way loses no packets: there is no time-out then (ROCE-237).
    pub is_lossless: bool,
    /// Time-outs without progress that are accepted (ROCE-82).
    pub retry_count: u8,
    /// RNR NAKs without progress that are accepted; 7 means any number (ROCE-79).
    pub rnr_retry_count: u8,
}

/// Counts of a requester since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequesterCounts {
    /// Requests posted, probes of the peer included.
    pub posts: u64,
    /// Bytes of the requests posted.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets sent again.
    pub retransmits: u64,
    /// Time-outs.
    pub timeouts: u64,
    /// RNR NAKs.
    pub not_ready: u64,
    /// NAKs of a missing packet, and lost responses.
    pub losses: u64,
}

impl core::ops::AddAssign for RequesterCounts {
    fn add_assign(&mut self, other: Self) {
        self.posts = self.posts.saturating_add(other.posts);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.packets = self.packets.saturating_add(other.packets);
        self.retransmits = self.retransmits.saturating_add(other.retransmits);
        self.timeouts = self.timeouts.saturating_add(other.timeouts);
        self.not_ready = self.not_ready.saturating_add(other.not_ready);
        self.losses = self.losses.saturating_add(other.losses);
    }
}

/// The buffer that has no room for the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// That of the peer's socket, for requests.
    Requests,
    /// That of the socket of this side, for responses.
    Responses,
}

/// Why requests do not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// They begin.
    None,
    /// The caller is about to post more.
    More,
    /// The send queue drains (ROCE-278).
    Drain,
}

/// The place of the next packet: a request and a packet of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor {
    position: u64,
    packet: u32,
}

/// The half of a queue pair that sends requests.
#[derive(Debug)]
pub struct Requester<'s> {
    options: RequesterOptions,
    slots: Slots<'s, RequestSlot>,
    /// Position of the oldest request whose completion is not taken.
    taken: u64,
    /// Position of the oldest request that is not complete.
    open: u64,
    /// Position of the oldest request without PSNs.
    assigned: u64,
    /// Position of the next request to post.
    posted: u64,
    /// Position before which no request waits for more of them.
    released: u64,
    /// Length of the requests from there on.
    gathered: u32,
    /// Set if one of them is not short.
    has_long: bool,
    wait: Wait,
    cursor: Cursor,
    /// Oldest PSN that is not acknowledged.
    unacknowledged: Psn,
    /// PSN after the last one that was ever sent.
    sent: Psn,
    /// Reads and Atomics among the requests with PSNs that are not complete.
    reading: u8,
    /// Packets since the last one that asked for an acknowledgement.
    unasked: u32,
    /// Set if the next packet asks for an acknowledgement.
    must_ask: bool,
    window: Window,
    /// Room of all requests with PSNs so far, modulo 2^32.
    total: BufferRoom,
    /// Most room of the packets under way.
    limit: BufferRoom,
    /// The buffer without room for the next packet.
    held: Option<Held>,
    /// Time at which a lack of progress becomes a time-out.
    deadline: Option<Instant>,
    /// End of the wait after an RNR NAK.
    resume: Option<Instant>,
    timeouts_left: u8,
    not_ready_left: u8,
    /// Set from a loss until there is progress, so that one loss is repaired once (ROCE-73).
    repairing: bool,
    /// The request that failed, unless the queue pair was ended from outside.
    failure: Option<(u64, Status)>,
    /// Set in error.
    ended: bool,
    counts: RequesterCounts,
}

impl<'s> Requester<'s> {
    /// Makes a requester with room for as many requests as there are slots.
    ///
    /// It uses a power of two of them, and leaves the others.
    pub fn new(options: RequesterOptions, slots: impl Into<Slots<'s, RequestSlot>>) -> Self {
        let mut slots = slots.into();
        let used = slots.len().checked_ilog2().map_or(0, |bits| 1 << bits);
        slots.truncate(used);
        Self {
            slots,
            taken: 0,
            open: 0,
            assigned: 0,
            posted: 0,
            released: 0,
            gathered: 0,
            has_long: false,
            wait: Wait::None,
            cursor: Cursor {
                position: 0,
                packet: 0,
            },
            unacknowledged: options.first,
            sent: options.first,
            reading: 0,
            unasked: 0,
            must_ask: false,
            window: Window::new(options.window),
            total: BufferRoom::default(),
            limit: BufferRoom::UNLIMITED,
            held: None,
            deadline: None,
            resume: None,
            timeouts_left: options.retry_count,
            not_ready_left: options.rnr_retry_count,
            repairing: false,
            failure: None,
            ended: false,
            counts: RequesterCounts::default(),
            options,
        }
    }

    /// Posts a request; in error it completes as flushed.
    pub fn post(&mut self, request: Request) -> Result<(), PostError> {
        let packets = self.options.mtu.packets(request.length);
        let atomic = matches!(request.operation, Operation::Atomic { .. });
        if request.length > MESSAGE_MAX
            || packets > PACKETS_MAX
            || atomic && request.length != ATOMIC_LENGTH
        {
            return Err(PostError::Length);
        }
        if request.operation.returns_data() && self.options.initiator_depth == 0 {
            return Err(PostError::Depth);
        }
        let used = self.posted.saturating_sub(self.taken);
        if used >= self.slots.len() as u64 {
            return Err(PostError::Full);
        }
        let slot = self.slot_mut(self.posted).ok_or(PostError::Full)?;
        *slot = RequestSlot {
            request,
            packets,
            ..RequestSlot::EMPTY
        };
        self.posted = self.posted.saturating_add(1);
        self.has_long |= request.length > SHORT;
        self.gathered = self.gathered.saturating_add(request.length);
        self.counts.posts = self.counts.posts.saturating_add(1);
        self.counts.bytes = self.counts.bytes.saturating_add(request.length.into());
        Ok(())
    }

    /// Takes the next completion, in the order of posting (ROCE-85).
    pub fn poll(&mut self) -> Option<Completion> {
        let position = self.taken;
        let status = match self.failure {
            _ if position < self.open => Status::Success,
            Some((failed, status)) if position == failed => status,
            _ if self.ended && position < self.posted => Status::Flushed,
            _ => return None,
        };
        let token = self.slot(position)?.request.token;
        self.taken = self.taken.saturating_add(1);
        self.open = self.open.max(self.taken);
        Some(Completion { token, status })
    }

    /// Returns true if the requests that are not sent wait for more of them (ROCE-184).
    ///
    /// A short request costs a dozen times as much in a datagram of its own as in one with others.
    /// Each request under way brings an acknowledgement or a time-out, which ends the wait.
    pub fn gathers(&self) -> bool {
        let under_way = self.assigned.saturating_sub(self.open);
        let unsent = self.posted.saturating_sub(self.assigned);
        let run = self.options.run.into();
        if self.assigned < self.released {
            return false;
        }
        match self.wait {
            Wait::None => {
                // Without a time-out, a request may have to leave to show that others are lost.
                let ends = self.options.timeout != 0 || self.options.is_lossless;
                ends && under_way >= BUSY && !self.has_long && unsent < under_way.min(run)
            }
            Wait::More => unsent < run && self.gathered < FULL,
            Wait::Drain => true,
        }
    }

    /// Tells whether the caller is about to post more: requests then gather for a full send.
    pub const fn expect_more(&mut self, more: bool) {
        self.wait = match (self.wait, more) {
            (Wait::Drain, _) => Wait::Drain,
            (_, true) => Wait::More,
            (_, false) => Wait::None,
        };
    }

    /// Lets no request begin until [`resume`](Self::resume) (ROCE-278).
    pub const fn drain(&mut self) {
        self.wait = Wait::Drain;
        // Nor do those that were to leave next.
        self.released = self.assigned;
    }

    /// Lets requests begin again.
    pub const fn resume(&mut self) {
        self.wait = Wait::None;
    }

    /// Returns true if every request that has begun is complete.
    pub const fn has_drained(&self) -> bool {
        self.open == self.assigned
    }

    /// Sets how many Reads and Atomics may be under way; false if none may, and one is posted.
    pub fn set_depth(&mut self, depth: u8) -> bool {
        let mut waiting = (self.assigned..self.posted).filter_map(|position| self.slot(position));
        if depth == 0 && waiting.any(|slot| slot.request.operation.returns_data()) {
            return false;
        }
        self.options.initiator_depth = depth;
        true
    }

    /// Returns true if [`transmit`](Self::transmit) may have a packet to send, or a local operation
    /// may have its turn.
    pub fn has_output(&self) -> bool {
        let repeats = self.cursor.position < self.assigned;
        let begins = self.assigned < self.posted && !self.gathers();
        !self.ended && (repeats || begins)
    }

    /// Returns the token of a local operation whose turn has come (ROCE-91).
    ///
    /// Nothing is sent until [`finish_local`](Self::finish_local) has its outcome.
    pub fn next_local(&self) -> Option<u64> {
        let is_next = self.open == self.assigned && self.assigned < self.posted;
        if self.ended || !is_next || self.wait == Wait::Drain {
            return None;
        }
        let slot = self.slot(self.assigned)?;
        let is_local = slot.request.operation == Operation::Local;
        is_local.then_some(slot.request.token)
    }

    /// Completes the local operation whose turn has come; an error fails it.
    pub fn finish_local(&mut self, outcome: Result<(), LocalError>) {
        if self.next_local().is_none() {
            return;
        }
        if outcome.is_err() {
            self.fail(self.open, Status::LocalProtection);
            return;
        }
        self.open = self.open.saturating_add(1);
        self.assigned = self.open;
        self.cursor = Cursor {
            position: self.open,
            packet: 0,
        };
    }

    /// Puts the requester in error: requests without an outcome are flushed (ROCE-86).
    pub fn end(&mut self) {
        self.ended = true;
        self.deadline = None;
        self.resume = None;
    }

    /// Returns true if the requester is in error.
    pub const fn is_ended(&self) -> bool {
        self.ended
    }

    /// Returns the PSN of the oldest packet that is not acknowledged.
    pub const fn unacknowledged(&self) -> Psn {
        self.unacknowledged
    }

    /// Returns true if every posted request is complete.
    pub const fn is_idle(&self) -> bool {
        self.open == self.posted
    }

    /// Returns the counts.
    pub const fn counts(&self) -> RequesterCounts {
        self.counts
    }

    /// Returns the path MTU.
    pub const fn mtu(&self) -> PathMtu {
        self.options.mtu
    }

    /// Returns the window, in packets.
    pub const fn window(&self) -> u32 {
        self.window.size()
    }

    /// Returns the room of the packets under way, and of the responses that they ask for
    /// (ROCE-183).
    pub fn under_way(&self) -> BufferRoom {
        if self.ended {
            return BufferRoom::default();
        }
        let oldest = self.slot(self.open);
        let packet = oldest.map_or(0, |slot| self.unacknowledged.since(slot.first));
        let Cursor {
            position,
            packet: next,
        } = self.cursor;
        let sent = self.room_before(position, next);
        sent.minus(self.room_before(self.open, packet))
    }

    /// Returns the longest payload of the requests under way.
    ///
    /// A loop over all of them: for a time-out, which repeats them.
    pub fn longest_payload(&self) -> u32 {
        let slots = (self.open..self.assigned).filter_map(|position| self.slot(position));
        let sent = slots.filter(|slot| !slot.request.operation.returns_data());
        let longest = sent.map(|slot| slot.request.length).max();
        longest.unwrap_or(0).min(self.options.mtu.bytes())
    }

    /// Returns the room of all packets before one, modulo 2^32.
    fn room_before(&self, position: u64, packet: u32) -> BufferRoom {
        let slot = self.slot(position).filter(|_| position < self.assigned);
        slot.map_or(self.total, |slot| {
            slot.before.plus(slot.room(self.options.mtu, packet))
        })
    }

    /// Sets the code of the time-out, and the repetitions that are accepted from now on.
    pub const fn set_patience(&mut self, timeout: u8, retries: u8, not_ready_retries: u8) {
        self.options.timeout = timeout;
        self.options.retry_count = retries;
        self.options.rnr_retry_count = not_ready_retries;
        (self.timeouts_left, self.not_ready_left) = (retries, not_ready_retries);
    }

    /// Returns the code of the time-out.
    pub const fn timeout(&self) -> u8 {
        self.options.timeout
    }

    /// Returns how many RNR NAKs without progress are accepted.
    pub const fn not_ready_retries(&self) -> u8 {
        self.options.rnr_retry_count
    }

    /// Returns how many Reads and Atomics may be under way.
    pub const fn depth(&self) -> u8 {
        self.options.initiator_depth
    }

    /// Sets the most room of the packets under way.
    ///
    /// A part of a Read that was asked for is asked for again whatever the limit.
    pub const fn set_limit(&mut self, limit: BufferRoom) {
        self.limit = limit;
    }

    /// Lets the next packet ask for an acknowledgement.
    ///
    /// For a caller that may stop after it: packets that nobody acknowledges keep their room.
    pub const fn ask(&mut self) {
        self.must_ask = true;
    }

    /// Returns the buffer that stopped the last `transmit`; that of requests if both did.
    pub const fn held(&self) -> Option<Held> {
        self.held
    }

    /// Returns when [`expire`](Self::expire) has work to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline.earliest(self.resume)
    }

    /// Ends a wait, or takes lack of progress for a loss, if its time has come (ROCE-81).
    pub fn expire(&mut self, now: Instant) {
        if self.resume.is_some_and(|resume| resume <= now) {
            self.resume = None;
        }
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        self.counts.timeouts = self.counts.timeouts.saturating_add(1);
        let Some(left) = self.timeouts_left.checked_sub(1) else {
            self.fail(self.open, Status::RetryExceeded);
            return;
        };
        self.timeouts_left = left;
        self.window.shrink();
        self.repairing = false;
        self.go_back(self.unacknowledged);
        self.start_timer(now);
    }

    /// Returns true if lack of progress becomes a time-out by `now`.
    pub fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Gives the peer the whole time once more.
    pub fn postpone(&mut self, now: Instant) {
        self.start_timer(now);
    }

    /// Fails the oldest request, if there is one: the peer has gone (ROCE-216).
    pub fn lose_peer(&mut self) {
        if !self.is_idle() {
            self.fail(self.open, Status::RetryExceeded);
        }
    }

    /// Restarts the timer, or stops it if nothing is under way.
    fn start_timer(&mut self, now: Instant) {
        let is_off = self.options.timeout == 0 || self.options.is_lossless;
        let never = is_off || self.unacknowledged == self.sent;
        let deadline = later(now, coded_time(self.options.timeout));
        self.deadline = (!never).then_some(deadline);
    }

    fn fail(&mut self, position: u64, status: Status) {
        self.failure = Some((position, status));
        self.end();
    }

    /// Makes `psn`, which is under way, the next one to send, unless an earlier one is.
    fn go_back(&mut self, psn: Psn) {
        let ahead = self.cursor_psn().since(self.unacknowledged);
        if psn.since(self.unacknowledged) < ahead {
            self.cursor = self.find(psn);
        }
    }

    /// Returns the PSN of the next packet.
    fn cursor_psn(&self) -> Psn {
        let slot = self.slot(self.cursor.position);
        let assigned = slot.filter(|_| self.cursor.position < self.assigned);
        assigned.map_or(self.sent, |slot| slot.first.plus(self.cursor.packet))
    }

    /// Finds a PSN among the requests under way; the first request without PSNs if it is not there.
    fn find(&self, psn: Psn) -> Cursor {
        let holds = |position: &u64| {
            let slot = self.slot(*position);
            slot.is_some_and(|slot| psn.since(slot.first) < slot.packets)
        };
        let Some(position) = (self.open..self.assigned).find(holds) else {
            return Cursor {
                position: self.assigned,
                packet: 0,
            };
        };
        let packet = self.slot(position).map(|slot| psn.since(slot.first));
        Cursor {
            position,
            packet: packet.unwrap_or_default(),
        }
    }

    /// Returns the index of a position; the number of slots is a power of two.
    fn index(&self, position: u64) -> usize {
        // The low bits are the same in any integer.
        position as usize & self.slots.len().wrapping_sub(1)
    }

    fn slot(&self, position: u64) -> Option<&RequestSlot> {
        self.slots.get(self.index(position))
    }

    fn slot_mut(&mut self, position: u64) -> Option<&mut RequestSlot> {
        let index = self.index(position);
        self.slots.get_mut(index)
    }
}
