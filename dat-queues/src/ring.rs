//! Completion queues of an adapter.

use alloc::collections::VecDeque;
use core::hash::Hash;
use core::sync::atomic::{AtomicUsize, Ordering};

use dat_core::backend::{Armed, Completion, DeviceFailure, Peek};
use dat_core::flags::DtoStatus;
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::arc::Arc;

/// Most completions taken that count for later requests.
const TAKEN_MAX: u32 = 128;

/// Kind of work that completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request.
    Request,
    /// A receive of a queue pair.
    Receive,
    /// A receive of a shared queue.
    SharedReceive,
}

/// Operation that completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A message was sent.
    Send,
    /// An RDMA Write, with immediate data or without.
    Write,
    /// An RDMA Read.
    Read,
    /// A number was compared and replaced.
    CompareSwap,
    /// A number was added.
    FetchAdd,
    /// A window was bound.
    Bind,
    /// A key of this side was invalidated.
    Invalidate,
    /// A message came.
    Receive,
    /// The immediate data of an RDMA Write came.
    ReceiveWrite,
}

/// Further detail of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Nothing.
    None,
    /// The peer failed for reasons of its own.
    PeerFailed,
    /// It is of a datagram over IPv4.
    Ipv4,
    /// The message invalidated a key, which stands in the place of immediate data.
    Invalidated,
}

/// A completion and its queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Entry<K> {
    /// The queue pair.
    pub owner: K,
    /// The completion, as the core polls it.
    pub completion: Completion,
    /// Immediate data of a receive.
    pub immediate: Option<u32>,
    /// Kind of work that completed.
    pub kind: Kind,
    /// Operation that completed.
    pub opcode: Opcode,
    /// Number of the queue pair that sent a datagram; 0 for others.
    pub source: u32,
    /// Further detail.
    pub detail: Detail,
    /// True if it needs no place, as a duplicate: another completion may have that place.
    pub extra: bool,
}

impl<K> Entry<K> {
    /// Returns true if it wakes a waiter for solicited completions.
    fn is_notable(&self) -> bool {
        self.completion.solicited || self.completion.status != DtoStatus::Success
    }

    /// Returns the entry as the head of a queue.
    fn peek(&self) -> Peek {
        let token = self.completion.token;
        let length = match self.kind {
            Kind::Request => u32::MAX,
            Kind::Receive if self.immediate.is_none() => self.completion.length,
            Kind::Receive | Kind::SharedReceive => return Peek::Other,
        };
        if self.completion.status == DtoStatus::Success {
            Peek::Success { token, length }
        } else {
            Peek::Other
        }
    }
}

/// Effect of a new completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Effect {
    /// None.
    None,
    /// The queue was armed for it, and is not any more.
    Notify,
    /// There was no room; the queue failed.
    Overrun,
}

/// An entry in a queue; the entries of one queue pair are a chain.
#[derive(Debug)]
struct Queued<K> {
    entry: Entry<K>,
    /// Number of the previous entry of the same queue pair; 0 if there was none.
    previous: u64,
}

/// A completion queue of an adapter.
///
/// A completion that finds no place fails the queue.
#[derive(Debug)]
pub struct CompletionRing<K> {
    /// Queued completions, and gaps where completions were forgotten; none at either end.
    entries: VecDeque<Option<Queued<K>>>,
    /// Number of the first place in `entries`; the places count up.
    first: u64,
    /// Completions in `entries`, and those of them that need no place.
    queued: usize,
    extras: usize,
    /// Queue pairs that complete here, each with the number of its last completion.
    users: IndexMap<K, u64, FxBuildHasher>,
    depth: usize,
    /// Set if armed; true for solicited completions only.
    armed: Option<bool>,
    failure: Option<DeviceFailure>,
    /// Completions of requests that were taken, less the requests posted since.
    ///
    /// At most `TAKEN_MAX`.
    taken: u32,
    /// Number of polls that return an entry or the failure; read without the lock.
    ready: Arc<AtomicUsize>,
    /// Number of places looked at.
    #[cfg(test)]
    steps: usize,
}

impl<K: Copy + Eq + Hash> CompletionRing<K> {
    /// Makes a queue, which publishes in `ready` how many polls return something.
    pub fn new(depth: u32, ready: Arc<AtomicUsize>) -> Self {
        Self {
            entries: VecDeque::new(),
            first: 1,
            queued: 0,
            extras: 0,
            users: IndexMap::default(),
            depth: depth as usize,
            armed: None,
            failure: None,
            taken: 0,
            ready,
            #[cfg(test)]
            steps: 0,
        }
    }

    /// Makes room for `depth` completions; false if there is no memory for them.
    pub fn reserve(&mut self, depth: u32) -> bool {
        let more = (depth as usize).saturating_sub(self.entries.len());
        self.entries.try_reserve(more).is_ok()
    }

    /// Changes the depth, at least to the number of queued completions.
    pub fn resize(&mut self, depth: u32) {
        self.depth = (self.queued - self.extras).max(depth as usize);
    }

    /// Returns true if a completion has a place.
    pub fn has_room(&self) -> bool {
        self.queued - self.extras < self.depth
    }

    /// Makes room for one more user; false if there is no memory for it.
    pub fn reserve_user(&mut self) -> bool {
        self.users.try_reserve(1).is_ok()
    }

    /// Adds a queue pair that completes here.
    pub fn add_user(&mut self, user: K) {
        self.users.entry(user).or_insert(0);
    }

    /// Removes a queue pair, whose completions are forgotten or stay.
    pub fn remove_user(&mut self, user: K) {
        self.users.swap_remove(&user);
    }

    /// Returns a queue pair that completes here, by its index.
    pub fn user(&self, index: usize) -> Option<K> {
        self.users.get_index(index).map(|(user, _)| *user)
    }

    /// Queues a completion, unless the queue failed.
    pub fn push(&mut self, entry: Entry<K>) -> Effect {
        if self.failure.is_some() {
            return Effect::None;
        }
        if !(entry.extra || self.has_room()) {
            self.fail(DeviceFailure::CompletionQueueOverrun);
            return Effect::Overrun;
        }
        self.make_place();
        let number = self.first + self.entries.len() as u64;
        let last = self.users.get_mut(&entry.owner);
        let previous = last.map_or(0, |last| core::mem::replace(last, number));
        self.entries.push_back(Some(Queued { entry, previous }));
        self.queued += 1;
        self.extras += usize::from(entry.extra);
        self.publish();
        let wakes = |solicited_only: &mut bool| entry.is_notable() || !*solicited_only;
        match self.armed.take_if(wakes) {
            Some(_) => Effect::Notify,
            None => Effect::None,
        }
    }

    /// Takes the first completion, or else returns the failure of the queue.
    ///
    /// # Errors
    /// The queue failed, and all of its completions are taken.
    pub fn take(&mut self) -> Result<Option<Entry<K>>, DeviceFailure> {
        match (self.pop(), self.failure) {
            (None, Some(failure)) => Err(failure),
            (entry, _) => Ok(entry),
        }
    }

    /// Returns the head without taking it.
    pub fn peek(&self) -> Peek {
        match (self.head(), self.failure) {
            (Some(entry), _) => entry.peek(),
            (None, Some(_)) => Peek::Other,
            (None, None) => Peek::Empty,
        }
    }

    /// Takes the head if it is the success of `token`, as the last peek returned it.
    pub fn skip(&mut self, token: u64) {
        if let Some(Peek::Success { token: head, .. }) = self.head().map(Entry::peek)
            && head == token
        {
            self.pop();
        }
    }

    /// Returns true if a request that is posted now may wait for its consumer (ROCE-185).
    ///
    /// Completions of requests are here, and their consumer has taken earlier ones. Each of these
    /// counts for one request, so the requests of a consumer that takes none do not wait.
    pub fn is_being_taken(&mut self) -> bool {
        let more = self.head().map(|entry| entry.kind) == Some(Kind::Request);
        let left = self.taken.checked_sub(1);
        self.taken = left.unwrap_or(0);
        more && left.is_some()
    }

    /// Arms the queue for the next completion.
    pub fn arm(&mut self, solicited_only: bool) -> Armed {
        if self.queued > 0 || self.failure.is_some() {
            return Armed::Missed;
        }
        self.armed = Some(solicited_only);
        Armed::Armed
    }

    /// Arms the queue for the next completion, even if others wait; once for all completions, it
    /// stays so.
    pub fn arm_for_next(&mut self, solicited_only: bool) {
        self.armed = Some(solicited_only && self.armed != Some(false));
    }

    /// Disarms the queue; returns true if it was armed.
    pub fn disarm(&mut self) -> bool {
        self.armed.take().is_some()
    }

    /// Returns true if the queue failed.
    pub fn is_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Fails the queue for good; queued completions can still be polled.
    pub fn fail(&mut self, failure: DeviceFailure) {
        self.failure.get_or_insert(failure);
        self.publish();
    }

    /// Removes the completions of a queue pair; looks at no others.
    pub fn forget(&mut self, user: K) {
        let mut number = self.users.get_mut(&user).map_or(0, core::mem::take);
        while let Some(place) = self.place(number)
            && let Some(gone) = place.take_if(|queued| queued.entry.owner == user)
        {
            self.count_out(&gone.entry);
            number = gone.previous;
        }
        self.trim_front();
        while let Some(None) = self.entries.back() {
            self.step();
            self.entries.pop_back();
        }
        self.publish();
    }

    #[inline]
    fn head(&self) -> Option<&Entry<K>> {
        self.entries.front()?.as_ref().map(|queued| &queued.entry)
    }

    #[inline]
    fn pop(&mut self) -> Option<Entry<K>> {
        let entry = self.entries.pop_front()??.entry;
        self.first += 1;
        self.count_out(&entry);
        self.trim_front();
        self.publish();
        if entry.kind == Kind::Request {
            self.taken = self.taken.saturating_add(1).min(TAKEN_MAX);
        }
        Some(entry)
    }

    /// Counts a completion that left the queue.
    fn count_out(&mut self, entry: &Entry<K>) {
        self.queued -= 1;
        self.extras -= usize::from(entry.extra);
    }

    fn publish(&self) {
        let ready = self.queued + usize::from(self.failure.is_some());
        self.ready.store(ready, Ordering::Release);
    }

    fn place(&mut self, number: u64) -> Option<&mut Option<Queued<K>>> {
        self.step();
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.entries.get_mut(index)
    }

    /// Removes the gaps before the first completion.
    #[inline]
    fn trim_front(&mut self) {
        while let Some(None) = self.entries.front() {
            self.step();
            self.entries.pop_front();
            self.first += 1;
        }
    }

    /// Makes a place at the end, if gaps have taken those that were reserved.
    ///
    /// It closes the gaps if they are half of the places, so that a completion costs the same on
    /// average, or if there is no memory for more places.
    fn make_place(&mut self) {
        let gaps = self.entries.len() - self.queued;
        if gaps > 0
            && self.entries.len() == self.entries.capacity()
            && (gaps >= self.queued || self.entries.try_reserve(1).is_err())
        {
            self.close_gaps();
        }
    }

    /// Removes all gaps; the completions have new numbers then.
    fn close_gaps(&mut self) {
        self.entries.retain(Option::is_some);
        self.users.values_mut().for_each(|last| *last = 0);
        for (number, queued) in (self.first..).zip(self.entries.iter_mut().flatten()) {
            let last = self.users.get_mut(&queued.entry.owner);
            queued.previous = last.map_or(0, |last| core::mem::replace(last, number));
        }
    }

    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "counts in tests"))]
    fn step(&mut self) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
