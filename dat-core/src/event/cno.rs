//! Consumer notification objects.

use core::task::Waker;

use super::{Deferred, contain_panic};
use crate::adapter::{Control, Ia};
use crate::backend::Backend;
use crate::error::{Cause, Error, Result, Subtype};
use crate::flags::{CnoFields, check_fields};
use crate::id::{CnoId, EvdId, Handle, Index};
use crate::storage::{SlotLink, VisitLink, vacant};
use crate::sync::{Guard, Mutex, RawLock};

/// Function that the next trigger of a notification object calls, once, without locks (CNC-02).
///
/// A trigger while an agent of the same object runs, on any thread, calls the next agent once the
/// running one has returned. So does a trigger in the context of a running agent of the adapter.
#[derive(Clone, Copy, Debug)]
pub struct ProxyAgent {
    /// Gets `instance_data` and the dispatcher that fired, or `None` if the waiters are released
    /// (CNW-05).
    pub function: fn(u64, Option<EvdId>),
    /// Value that the consumer chose.
    pub instance_data: u64,
}

/// Result of a notification object query (CNQ-01).
#[derive(Clone, Copy, Debug)]
pub struct CnoParam {
    /// Handle of the adapter.
    pub ia: Handle,
    /// Agent for the next trigger.
    pub agent: Option<ProxyAgent>,
}

/// An agent with the dispatcher that it is called for; `None` releases it (CNW-05).
pub(crate) type AgentCall = (ProxyAgent, Option<EvdId>);

/// Slot for one notification object.
pub struct CnoSlot<L> {
    pub(crate) main: Mutex<L, Cno>,
    /// Link in the list of notification objects with a waker.
    pub(crate) waits: VisitLink,
    /// Link in the list of a frame that calls the agent; changed under the lock of the frames.
    pub(super) calls: SlotLink,
}

impl<L: RawLock> CnoSlot<L> {
    /// A free slot.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        main: Mutex::new(Cno::EMPTY),
        waits: VisitLink::NONE,
        calls: SlotLink::NONE,
    };

    /// Clears the links of an adapter that is gone.
    pub(crate) fn clear_links(&self) {
        self.waits.clear();
        self.calls.clear();
    }

    /// Returns true if the slot holds an object.
    pub(crate) fn is_live(&self) -> bool {
        self.main.with(|object| !object.id.is_null())
    }
}

/// Number of wakers that a notification object keeps; further waiters take turns.
const WAKERS: usize = if cfg!(feature = "compact") { 4 } else { 8 };

/// Identity of a wait on a notification object.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitTicket {
    serial: u32,
    /// Value of `releases` when the wait began.
    release: u32,
}

/// Wakers removed from a notification object.
///
/// Waking and dropping them runs the consumer's code, so no lock may be held.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    /// Waker to wake.
    due: Option<Waker>,
    /// Waker to drop: its wait has ended or has another waker.
    former: Option<Waker>,
}

impl Wakers {
    /// Drops the former waker and wakes the due one; no lock may be held.
    pub(super) fn finish(self) {
        contain_panic(|| drop(self.former));
        if let Some(due) = self.due {
            contain_panic(|| due.wake());
        }
    }
}

/// Notification object, protected by its lock.
#[derive(Debug)]
pub(crate) struct Cno {
    pub(crate) id: CnoId,
    pub(crate) generation: u32,
    pub(crate) agent: Option<ProxyAgent>,
    /// Set while an agent of this object runs.
    is_calling: bool,
    /// Call to make next.
    due: Option<AgentCall>,
    /// Second call to make: that of `agent`, for this dispatcher.
    ///
    /// Set only while `due` is. A further trigger replaces the dispatcher, and a further agent
    /// takes the call over.
    is_overdue: bool,
    /// That dispatcher; null if the waiters are released.
    overdue: EvdId,
    /// Dispatcher that fired last, while a notification is pending; else null.
    triggered: EvdId,
    /// Number of untaken notifications: at most one per waiter, and one without a waiter.
    pending: u32,
    /// Number of attached dispatchers.
    dispatchers: u32,
    waiters: u32,
    /// Number of times that all waiters were released because no dispatcher was left.
    releases: u32,
    /// Number of waits begun; gives each its serial number.
    waits: u32,
    /// Serial numbers and wakers of waits, longest wait first.
    wakers: heapless::Deque<(u32, Waker), WAKERS>,
    pub(crate) context: u64,
}

impl Cno {
    pub(crate) const EMPTY: Self = Self {
        id: CnoId::NULL,
        generation: 0,
        agent: None,
        is_calling: false,
        due: None,
        is_overdue: false,
        overdue: EvdId::NULL,
        triggered: EvdId::NULL,
        pending: 0,
        dispatchers: 0,
        waiters: 0,
        releases: 0,
        waits: 0,
        wakers: heapless::Deque::new(),
        context: 0,
    };

    /// Clears the slot; keeps the generation.
    pub(crate) fn clear_slot(&mut self) {
        *self = Self {
            generation: self.generation,
            ..Self::EMPTY
        };
    }

    /// Adds a waiter.
    pub(super) fn begin_wait(&mut self) -> WaitTicket {
        self.waiters = self.waiters.saturating_add(1);
        self.waits = self.waits.wrapping_add(1);
        WaitTicket {
            serial: self.waits,
            release: self.releases,
        }
    }

    /// Returns true if the waiter was not released since it began.
    pub(super) fn is_waiting(&self, ticket: WaitTicket) -> bool {
        self.releases == ticket.release
    }

    /// Removes a waiter; passes an untaken notification on to another waiter.
    pub(super) fn end_wait(&mut self, ticket: WaitTicket) -> Wakers {
        let former = self.remove_waker(ticket);
        self.waiters = self.waiters.saturating_sub(1);
        self.pending = self.pending.min(self.waiters.max(1));
        let due = if self.pending != 0 {
            self.next_waker()
        } else {
            None
        };
        Wakers { due, former }
    }

    /// Takes a notification, if one is pending.
    pub(super) fn take_notification(&mut self) -> Option<EvdId> {
        let fired = self.triggered;
        if fired.is_null() {
            return None;
        }
        self.pending = self.pending.saturating_sub(1);
        if self.pending == 0 {
            self.triggered = EvdId::NULL;
        }
        Some(fired)
    }

    /// Stores the waker of a wait; replaces its former one.
    pub(super) fn keep_waker(&mut self, ticket: WaitTicket, waker: Waker) -> Wakers {
        let own = |entry: &&mut (u32, Waker)| entry.0 == ticket.serial;
        if let Some((_, known)) = self.wakers.iter_mut().find(own) {
            return Wakers {
                due: None,
                former: Some(core::mem::replace(known, waker)),
            };
        }
        // The longest waiter is woken, polls again and joins the end of the queue.
        let displaced = if self.wakers.is_full() {
            self.next_waker()
        } else {
            None
        };
        match self.wakers.push_back((ticket.serial, waker)) {
            Ok(()) => Wakers {
                due: displaced,
                former: None,
            },
            Err((_, waker)) => Wakers {
                due: Some(waker),
                former: displaced,
            },
        }
    }

    /// Removes all wakers, to be woken.
    pub(crate) fn take_wakers(&mut self) -> heapless::Deque<(u32, Waker), WAKERS> {
        core::mem::take(&mut self.wakers)
    }

    fn next_waker(&mut self) -> Option<Waker> {
        self.wakers.pop_front().map(|(_, waker)| waker)
    }

    /// Removes the waker of one wait; the others keep their order.
    fn remove_waker(&mut self, ticket: WaitTicket) -> Option<Waker> {
        let mut found = None;
        for _ in 0..self.wakers.len() {
            match self.wakers.pop_front() {
                Some((serial, waker)) if serial == ticket.serial => found = Some(waker),
                Some(other) => {
                    // Cannot fail: one entry was just removed.
                    let _room = self.wakers.push_back(other);
                }
                None => break,
            }
        }
        found
    }

    /// Records a notification; returns the next waker, and true if an agent is to be called.
    fn fire(&mut self, evd: EvdId) -> (Option<Waker>, bool) {
        if self.id.is_null() {
            return (None, false);
        }
        self.triggered = evd;
        self.pending = self.pending.saturating_add(1).min(self.waiters.max(1));
        (self.next_waker(), self.call_is_due(Some(evd)))
    }

    /// Notes a call of the agent, if there is one; returns true if no frame makes it yet.
    fn call_is_due(&mut self, evd: Option<EvdId>) -> bool {
        if self.agent.is_none() {
            return false;
        }
        if self.due.is_some() {
            self.is_overdue = true;
            self.overdue = evd.unwrap_or(EvdId::NULL);
        } else {
            self.due = self.agent.take().map(|agent| (agent, evd));
        }
        !self.is_calling
    }

    /// Claims the next call, unless an agent of this object runs.
    pub(super) fn begin_call(&mut self) -> Option<AgentCall> {
        if self.is_calling {
            return None;
        }
        let call = self.take_call();
        self.is_calling = call.is_some();
        call
    }

    /// Ends a call; returns true if the next one is due.
    pub(super) fn end_call(&mut self) -> bool {
        self.is_calling = false;
        self.due.is_some()
    }

    /// Removes the next call.
    fn take_call(&mut self) -> Option<AgentCall> {
        let call = self.due.take();
        if core::mem::take(&mut self.is_overdue) {
            let evd = (!self.overdue.is_null()).then_some(self.overdue);
            self.due = self.agent.take().map(|agent| (agent, evd));
        }
        call
    }

    /// Releases all waiters and the agent (CNW-05); returns true if an agent is to be called.
    fn release_all(&mut self, deferred: &mut Deferred) -> bool {
        self.releases = self.releases.wrapping_add(1);
        self.waiters = 0;
        self.pending = 0;
        self.triggered = EvdId::NULL;
        while let Some(waker) = self.next_waker() {
            deferred.wake(waker);
        }
        self.call_is_due(None)
    }
}

/// # Notification objects
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Creates a notification object, with an agent for its first notification.
    ///
    /// The agent runs in the context that caused the event, or in that of a running agent of the
    /// same object. Its calls into the adapter must take no longer than a post or a dequeue. Agents
    /// of this adapter that they cause are called after it has returned, in its context. Agents of
    /// other adapters may be called before, one of each adapter at a time.
    ///
    /// Without the feature `std`, contexts are not told apart: while an agent of the adapter runs,
    /// all agents that become due are called after it, in its context. It must not wait for them.
    ///
    /// # Errors
    /// - INSUFFICIENT_RESOURCES (MEMORY): the storage has no free slot.
    /// - INVALID_HANDLE (IA): the adapter is being closed.
    ///
    /// Spec: CNC-01..03
    pub fn cno_create(&self, agent: Option<ProxyAgent>) -> Result<CnoId> {
        self.controlled(|control| {
            control.check_open()?;
            let full =
                Error::insufficient_resources(Subtype::ResourceMemory).because(Cause::TableFull);
            let (index, slot) = self
                .shared
                .notification_objects
                .find(0, |slot| {
                    slot.main
                        .with(|object| vacant(object.id.is_null(), object.generation))
                })
                .ok_or(full)?;
            self.shared.notification_objects.claim(index);
            Ok(slot.main.with(|object| {
                let generation = object.generation.saturating_add(1);
                *object = Cno {
                    id: CnoId::new(self.shared.instance, generation, index),
                    generation,
                    agent,
                    ..Cno::EMPTY
                };
                object.id
            }))
        })
    }

    /// Replaces the agent of a notification object; `None` removes it.
    ///
    /// Returns the former agent, which is no longer called. `None` means that there was none, or
    /// that it was called or is about to be.
    ///
    /// # Errors
    /// INVALID_HANDLE (CNO): `cno` is not a live notification object of this adapter.
    ///
    /// Spec: CNM-01, CNC-02
    pub fn cno_modify_agent(
        &self,
        cno: CnoId,
        agent: Option<ProxyAgent>,
    ) -> Result<Option<ProxyAgent>> {
        self.with_cno(cno, |object| {
            if agent.is_none() {
                object.is_overdue = false;
            }
            Ok(core::mem::replace(&mut object.agent, agent))
        })
    }

    /// Queries a notification object; all fields are filled in.
    ///
    /// # Errors
    /// - INVALID_HANDLE (CNO): `cno` is not a live notification object of this adapter.
    /// - INVALID_PARAMETER (ARG2): `fields` has unknown bits.
    ///
    /// Spec: CNQ-01, GEN-08
    pub fn cno_query(&self, cno: CnoId, fields: CnoFields) -> Result<CnoParam> {
        self.with_cno(cno, |object| {
            check_fields(fields)?;
            Ok(CnoParam {
                ia: self.handle(),
                agent: object.agent,
            })
        })
    }

    /// Frees a notification object; the agent is not called.
    ///
    /// # Errors
    /// - INVALID_HANDLE (CNO): `cno` is not a live notification object of this adapter.
    /// - INVALID_STATE (CNO_IN_USE): a dispatcher is attached, or the object has a waiter.
    ///
    /// Spec: CNF-01
    pub fn cno_free(&self, cno: CnoId) -> Result<()> {
        self.controlled(|_| {
            self.with_cno(cno, |object| {
                let in_use = Error::invalid_state(Subtype::InvalidStateCnoInUse);
                if object.dispatchers != 0 {
                    return Err(in_use.because(Cause::StillReferenced));
                }
                if object.waiters != 0 {
                    return Err(in_use.because(Cause::WaiterPresent));
                }
                object.clear_slot();
                self.shared.notification_objects.give_back(cno.handle());
                Ok(())
            })
        })
    }

    /// Runs `f` on a live notification object under its lock.
    pub(super) fn with_cno<R>(
        &self,
        cno: CnoId,
        f: impl FnOnce(&mut Cno) -> Result<R>,
    ) -> Result<R> {
        f(&mut *self.lock_cno(cno)?)
    }

    /// Stores the waker of a wait; returns the wakers to wake or to drop without the lock.
    pub(super) fn keep_cno_waker(
        &self,
        object: &mut Cno,
        ticket: WaitTicket,
        waker: Waker,
    ) -> Wakers {
        let wakers = object.keep_waker(ticket, waker);
        let index = object.id.slot();
        if let Some(slot) = self.shared.notification_objects.get(usize::from(index)) {
            self.shared.waited_objects.enter(index, &slot.waits);
        }
        wakers
    }

    #[inline(never)]
    fn lock_cno(&self, cno: CnoId) -> Result<Guard<'_, L, Cno>> {
        if let Some(slot) = self.shared.notification_objects.get(cno.index()) {
            let object = slot.main.lock();
            if object.id == cno && !cno.is_null() {
                return Ok(object);
            }
        }
        Err(cno.refused(self.shared.instance))
    }

    /// Attaches a dispatcher; returns the object's index. Needs the control lock.
    pub(super) fn attach_to_cno(&self, cno: CnoId) -> Result<Index> {
        self.with_cno(cno, |object| {
            object.dispatchers = object.dispatchers.saturating_add(1);
            Ok(cno.slot())
        })
    }

    /// Detaches a dispatcher, which is freed or continues without the notification object.
    ///
    /// If the last dispatcher is freed, all waiters are released (CNW-05, EVF-04). Needs the
    /// control lock.
    pub(super) fn detach_from_cno(&self, cno: Index, freed: bool, deferred: &mut Deferred) {
        let Some(slot) = self.shared.notification_objects.get(usize::from(cno)) else {
            return;
        };
        slot.main.with(|object| {
            object.dispatchers = object.dispatchers.saturating_sub(1);
            if freed && object.dispatchers == 0 && object.release_all(deferred) {
                deferred.agents = Some(cno);
            }
        });
    }

    /// Returns the dispatcher to report for a notification: the last one that fired.
    ///
    /// If that one is freed, returns an attached dispatcher, with preference for enabled ones
    /// without a waiter and for ones with queued events. `None` if none is attached. No lock may be
    /// held.
    pub(super) fn dispatcher_to_report(&self, cno: CnoId, fired: EvdId) -> Option<EvdId> {
        let index = cno.slot();
        let dispatchers = &self.shared.event_dispatchers;
        let slot = dispatchers.get(fired.index());
        let is_live = |slot: &super::EvdSlot<_, L>| match slot.queue.lock_unparked() {
            Some(queue) => queue.id == fired,
            // A parked one may be another by now; then its next call refuses the handle.
            None => true,
        };
        if slot.is_some_and(is_live) {
            return Some(fired);
        }
        let mut best = None;
        for slot in dispatchers.made() {
            let Some(queue) = slot.queue.lock_unparked() else {
                continue;
            };
            if queue.cno != Some(index) || queue.id.is_null() {
                continue;
            }
            let notifies = queue.enabled && queue.waiter.is_none();
            let score = (notifies, queue.queued() != 0);
            if best.is_none_or(|(highest, _)| score > highest) {
                best = Some((score, queue.id));
            }
        }
        best.map(|(_, evd)| evd)
    }

    /// Returns the handle of the notification object at an index.
    pub(super) fn cno_id_at(&self, cno: Index) -> Option<CnoId> {
        let slot = self.shared.notification_objects.get(usize::from(cno))?;
        let id = slot.main.with(|object| object.id);
        (!id.is_null()).then_some(id)
    }

    /// Destroys the object at an index: waiters return ABORT, the agent is called with `None`
    /// (IAC-02).
    ///
    /// Call `run_deferred` after releasing the control lock.
    pub(crate) fn destroy_cno_at(
        &self,
        _control: &mut Control<'_, B>,
        index: Index,
        deferred: &mut Deferred,
    ) {
        if let Some(slot) = self.shared.notification_objects.get(usize::from(index)) {
            let cno = slot.main.with(|object| {
                object.release_all(deferred);
                while let Some((agent, _)) = object.take_call() {
                    deferred.release(agent);
                }
                let cno = object.id;
                object.clear_slot();
                cno
            });
            self.shared.notification_objects.give_back(cno.handle());
        }
    }

    /// Handles a notification by a dispatcher: wakes a waiter or stays pending, calls the agent.
    pub(crate) fn trigger(&self, cno: Index, evd: EvdId) {
        let Some(slot) = self.shared.notification_objects.get(usize::from(cno)) else {
            return;
        };
        let (waker, is_due) = slot.main.with(|object| object.fire(evd));
        if let Some(waker) = waker {
            contain_panic(|| waker.wake());
        }
        if is_due {
            self.call_agents(cno);
        }
    }
}
