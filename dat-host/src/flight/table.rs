//! The operations in flight of an adapter, which own their memory.

use std::task::{Context, Poll, Waker};

use dat_core::event::contain_panic;
use dat_core::flags::DtoStatus;
use dat_core::id::{EpId, SrqId};
use dat_core::sync::{HostLock, Mutex};

use super::lent::Lent;
use super::trace::{Ended, Span};

/// Name of an operation: the cookie of its post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    pub(crate) const fn to_cookie(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    const fn of_cookie(cookie: u64) -> Self {
        Self {
            index: cookie as u32,
            generation: (cookie >> 32) as u32,
        }
    }
}

/// End of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It completed, with the number of bytes that it moved.
    Completed(DtoStatus, usize),
    /// The adapter was closed.
    Closed,
}

/// Owner of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Endpoint(EpId),
    /// A buffer of a shared receive queue, which no future waits for.
    Shared(SrqId),
}

enum State {
    Free {
        next: Option<u32>,
    },
    /// In flight. Without a future, the memory is released when it completes.
    Pending {
        has_future: bool,
    },
    Done(Outcome),
}

/// Result of a poll under the lock.
enum Polled {
    Ended,
    Pending,
    NeedsWaker,
}

struct Entry {
    generation: u32,
    state: State,
    owner: Owner,
    memory: Option<Lent>,
    waker: Option<Waker>,
    /// Ends with the operation.
    span: Span,
}

#[derive(Default)]
struct Entries {
    all: Vec<Entry>,
    free: Option<u32>,
    /// Number of pending operations by index of the endpoint.
    of_endpoint: Vec<u32>,
}

/// A table of operations; entries are reused, so that no operation allocates once it has grown.
pub(crate) struct Table {
    entries: Mutex<HostLock, Entries>,
}

/// Effects of a completion, to be run without locks.
#[derive(Default)]
pub(crate) struct Effects {
    /// Waker of the future.
    pub(crate) waker: Option<Waker>,
    /// Memory that nobody waits for.
    pub(crate) memory: Option<Lent>,
    /// Shared receive queue that owns the memory.
    pub(crate) queue: Option<SrqId>,
    /// Span of the operation, with its end.
    pub(crate) span: Ended,
}

impl Effects {
    /// Wakes the future, releases the memory and ends the span.
    pub(crate) fn run(self) {
        drop(self.memory);
        self.span.report();
        if let Some(waker) = self.waker {
            contain_panic(|| waker.wake());
        }
    }
}

impl Table {
    pub(crate) fn new() -> Self {
        Self {
            entries: Mutex::new(Entries::default()),
        }
    }

    /// Adds an operation that is about to be posted.
    pub(crate) fn insert(&self, owner: Owner, memory: Lent, span: Span) -> Key {
        self.entries.with(|entries| {
            entries.count(owner, true);
            let state = State::Pending {
                has_future: matches!(owner, Owner::Endpoint(_)),
            };
            if let Some(index) = entries.free
                && let Some(entry) = entries.all.get_mut(index as usize)
                && let State::Free { next } = entry.state
            {
                entries.free = next;
                entry.state = state;
                entry.owner = owner;
                entry.memory = Some(memory);
                entry.span = span;
                return Key {
                    index,
                    generation: entry.generation,
                };
            }
            let index = entries.all.len() as u32;
            entries.all.push(Entry {
                generation: 1,
                state,
                owner,
                memory: Some(memory),
                waker: None,
                span,
            });
            Key {
                index,
                generation: 1,
            }
        })
    }

    /// Ends an operation by its cookie; does nothing if it has ended before.
    #[inline]
    pub(crate) fn complete(&self, cookie: u64, outcome: Outcome) -> Effects {
        let key = Key::of_cookie(cookie);
        self.entries.with(|entries| entries.complete(key, outcome))
    }

    /// Removes an operation that was refused; returns its memory.
    pub(crate) fn refuse(&self, key: Key, error: dat_core::Error) -> Option<Lent> {
        let (memory, span) = self.entries.with(|entries| {
            let span = entries.get(key).map(Entry::take_span);
            (entries.remove(key), span)
        });
        if let Some(span) = span {
            span.refused(error);
        }
        memory
    }

    /// Removes an operation; returns its memory.
    ///
    /// `None` if there is no such operation, or the table is locked.
    pub(crate) fn try_remove(&self, key: Key) -> Option<Lent> {
        self.entries.try_with(|entries| entries.remove(key))?
    }

    /// Returns the end of an operation and its memory, or stores the waker.
    ///
    /// `None` if there is no such operation. `is_new` is true for its first poll, which seldom
    /// finds it ended.
    #[inline]
    pub(crate) fn poll(
        &self,
        key: Key,
        context: &mut Context<'_>,
        is_new: bool,
    ) -> Poll<Option<(Outcome, Lent)>> {
        // Cloning and dropping a waker runs code of the executor, so both happen without the lock.
        let mut waker = is_new.then(|| context.waker().clone());
        loop {
            // Written in place, because it is large.
            let mut ended = None;
            let polled = self.entries.with(|entries| {
                let free = entries.free;
                let Some(entry) = entries.get(key) else {
                    return Polled::Ended;
                };
                if let State::Done(outcome) = entry.state {
                    ended = entry.free(free).map(|memory| (outcome, memory));
                    entries.free = Some(key.index);
                    return Polled::Ended;
                }
                match (&mut entry.waker, &mut waker) {
                    (Some(known), _) if known.will_wake(context.waker()) => {}
                    (known, Some(_)) => std::mem::swap(known, &mut waker),
                    (_, None) => return Polled::NeedsWaker,
                }
                Polled::Pending
            });
            match polled {
                Polled::Ended => return Poll::Ready(ended),
                Polled::Pending => return Poll::Pending,
                Polled::NeedsWaker => waker = Some(context.waker().clone()),
            }
        }
    }

    /// Lets an operation go on without its future; releases the memory of one that has ended.
    pub(crate) fn abandon(&self, key: Key) {
        let left = self.entries.with(|entries| {
            let entry = entries.get(key)?;
            let waker = entry.waker.take();
            let memory = match &mut entry.state {
                State::Pending { has_future } => {
                    *has_future = false;
                    None
                }
                _ => entries.remove(key),
            };
            Some((waker, memory))
        });
        // Outside of the lock: both run code of others.
        drop(left);
    }

    /// Ends all pending operations of an owner, or of all; `run` gets the effects, without locks.
    pub(crate) fn end_all(
        &self,
        owner: Option<Owner>,
        outcome: Outcome,
        mut run: impl FnMut(Effects),
    ) {
        if let Some(Owner::Endpoint(ep)) = owner {
            let index = ep.handle().index();
            let pending = self
                .entries
                .with(|entries| entries.of_endpoint.get(index).copied().unwrap_or_default());
            if pending == 0 {
                return;
            }
        }
        let mut index = 0;
        while let Some(effects) = self.entries.with(|entries| {
            while let Some(entry) = entries.all.get(index) {
                let is_meant = owner.is_none_or(|owner| owner == entry.owner);
                let generation = entry.generation;
                let key = Key {
                    index: index as u32,
                    generation,
                };
                index += 1;
                if is_meant && matches!(entry.state, State::Pending { .. }) {
                    return Some(entries.complete(key, outcome));
                }
            }
            None
        }) {
            run(effects);
        }
    }

    /// Returns the number of operations that are pending, or whose end nobody has taken.
    pub(crate) fn len(&self) -> usize {
        self.entries.with(|entries| {
            let used = |entry: &&Entry| !matches!(entry.state, State::Free { .. });
            entries.all.iter().filter(used).count()
        })
    }
}

impl Entries {
    #[inline]
    fn get(&mut self, key: Key) -> Option<&mut Entry> {
        self.all.get_mut(key.index as usize).filter(|entry| {
            entry.generation == key.generation && !matches!(entry.state, State::Free { .. })
        })
    }

    /// Counts a pending operation of an endpoint, or its end.
    #[inline]
    fn count(&mut self, owner: Owner, begins: bool) {
        let Owner::Endpoint(ep) = owner else {
            return;
        };
        let index = ep.handle().index();
        if index >= self.of_endpoint.len() {
            self.of_endpoint.resize(index + 1, 0);
        }
        let pending = &mut self.of_endpoint[index];
        *pending = match begins {
            true => pending.wrapping_add(1),
            false => pending.wrapping_sub(1),
        };
    }

    fn complete(&mut self, key: Key, outcome: Outcome) -> Effects {
        let mut effects = Effects::default();
        if let Some(entry) = self.get(key)
            && let State::Pending { has_future } = entry.state
        {
            let owner = entry.owner;
            effects.waker = entry.waker.take();
            effects.span = entry.take_span().ended(outcome);
            entry.state = State::Done(outcome);
            self.count(owner, false);
            if !has_future {
                effects.memory = self.remove(key);
            }
            if let Owner::Shared(queue) = owner {
                effects.queue = Some(queue);
            }
        }
        effects
    }

    fn remove(&mut self, key: Key) -> Option<Lent> {
        let free = self.free;
        let entry = self.get(key)?;
        let was_pending = matches!(entry.state, State::Pending { .. });
        let owner = entry.owner;
        let memory = entry.free(free);
        self.free = Some(key.index);
        if was_pending {
            self.count(owner, false);
        }
        memory
    }
}

impl Entry {
    #[inline]
    const fn take_span(&mut self) -> Span {
        std::mem::replace(&mut self.span, Span::none())
    }

    /// Frees the entry, before the free entry `next`; returns its memory.
    #[inline]
    fn free(&mut self, next: Option<u32>) -> Option<Lent> {
        self.state = State::Free { next };
        // Not 0, so that no cookie is that of an entry that never was.
        self.generation = self.generation.wrapping_add(1).max(1);
        self.memory.take()
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::sync::Arc;

    use dat_core::id::Handle;

    use super::*;
    use crate::flight::Object;

    /// Memory that tells by its count whether it was released.
    struct Probe(#[expect(dead_code, reason = "only counted")] Arc<()>);

    impl Object for Probe {
        fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
            self
        }

        fn release(self: Box<Self>) {}
    }

    const OWNER: Owner = Owner::Endpoint(EpId::from_handle(Handle::from_raw(3)));
    const OTHER: Owner = Owner::Endpoint(EpId::from_handle(Handle::from_raw(4)));
    const DONE: Outcome = Outcome::Completed(DtoStatus::Success, 5);

    fn lend(count: &Arc<()>) -> Lent {
        Lent::new(Box::new(Probe(Arc::clone(count))), 0, 0)
    }

    fn poll(table: &Table, key: Key) -> Poll<Option<Outcome>> {
        let mut context = Context::from_waker(Waker::noop());
        let polled = table.poll(key, &mut context, false);
        polled.map(|ended| ended.map(|(outcome, _)| outcome))
    }

    #[test]
    fn a_cookie_ends_its_own_operation_once() {
        let (table, count) = (Table::new(), Arc::new(()));
        let first = table.insert(OWNER, lend(&count), Span::none());
        assert!(poll(&table, first).is_pending());
        table.complete(first.to_cookie(), DONE).run();
        table.complete(first.to_cookie(), Outcome::Closed).run();
        assert_eq!(poll(&table, first), Poll::Ready(Some(DONE)));
        // The entry is used again; the old cookie names nothing.
        let second = table.insert(OWNER, lend(&count), Span::none());
        assert_eq!((second.index, table.len()), (first.index, 1));
        table.complete(first.to_cookie(), DONE).run();
        assert!(poll(&table, second).is_pending());
        assert_eq!(poll(&table, first), Poll::Ready(None));
        for cookie in [0, u64::MAX, 1 << 32 | 1] {
            table.complete(cookie, DONE).run();
        }
        assert!(poll(&table, second).is_pending());
        drop(table.refuse(second, dat_core::Error::abort()));
        assert_eq!((table.len(), Arc::strong_count(&count)), (0, 1));
    }

    #[test]
    fn a_locked_table_returns_no_memory() {
        let (table, count) = (Table::new(), Arc::new(()));
        let pending = table.insert(OWNER, lend(&count), Span::none());
        // As a child of `fork` finds it while a thread of its parent changes it.
        table
            .entries
            .with(|_| assert!(table.try_remove(pending).is_none()));
        assert!(table.try_remove(pending).is_some());
    }

    #[test]
    fn abandoned_operations_release_their_memory_when_they_end() {
        let (table, count) = (Table::new(), Arc::new(()));
        let pending = table.insert(OWNER, lend(&count), Span::none());
        let ended = table.insert(OWNER, lend(&count), Span::none());
        table.complete(ended.to_cookie(), DONE).run();
        table.abandon(pending);
        table.abandon(ended);
        assert_eq!((table.len(), Arc::strong_count(&count)), (1, 2));
        table.complete(pending.to_cookie(), DONE).run();
        assert_eq!((table.len(), Arc::strong_count(&count)), (0, 1));
    }

    #[test]
    fn the_operations_of_one_owner_end_together() {
        let (table, count) = (Table::new(), Arc::new(()));
        let own: Vec<Key> = (0..3)
            .map(|_| table.insert(OWNER, lend(&count), Span::none()))
            .collect();
        let other = table.insert(OTHER, lend(&count), Span::none());
        table.abandon(own[2]);
        table.end_all(Some(OWNER), DONE, Effects::run);
        assert_eq!(poll(&table, own[0]), Poll::Ready(Some(DONE)));
        assert!(poll(&table, other).is_pending());
        table.end_all(None, Outcome::Closed, Effects::run);
        assert_eq!(poll(&table, own[1]), Poll::Ready(Some(DONE)));
        assert_eq!(poll(&table, other), Poll::Ready(Some(Outcome::Closed)));
        assert_eq!((table.len(), Arc::strong_count(&count)), (0, 1));
    }
}
