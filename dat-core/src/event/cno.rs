//! Consumer notification objects.

use core::task::Waker;

use super::Aftermath;
use crate::backend::Backend;
use crate::error::{Cause, Error, Result, Subtype};
use crate::flags::CnoFields;
use crate::ia::{Control, Ia};
use crate::id::{CnoId, EvdId, Handle, next_generation};
use crate::storage::find_slot;
use crate::sync::{Guard, Mutex, RawLock};

/// Called once when a notification object is triggered, after every lock is released (CNC-02).
#[derive(Clone, Copy, Debug)]
pub struct ProxyAgent {
    /// Called with `instance_data` and the dispatcher that fired, or `None` when the object dies (CNW-05).
    pub function: fn(u64, Option<EvdId>),
    /// The consumer's value.
    pub instance_data: u64,
}

/// What a query of a notification object tells (CNQ-01).
#[derive(Clone, Copy, Debug)]
pub struct CnoParam {
    /// The adapter it belongs to.
    pub ia: Handle,
    /// The agent that the next trigger will call.
    pub agent: Option<ProxyAgent>,
}

/// Place for one notification object.
pub struct CnoSlot<L> {
    pub(crate) main: Mutex<L, Cno>,
}

impl<L: RawLock> CnoSlot<L> {
    /// A free slot.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        main: Mutex::new(Cno::EMPTY),
    };

    /// Whether an object lives here.
    pub(crate) fn is_live(&self) -> bool {
        self.main.with(|object| !object.id.is_null())
    }
}

/// Wakers a notification object keeps; further waiters take turns.
const WAKERS: usize = if cfg!(feature = "compact") { 4 } else { 8 };

/// Names one wait on a notification object.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitTicket {
    serial: u32,
    /// How often waiters had been released when it began.
    release: u32,
}

/// Wakers that leave a notification object. To wake and to drop them runs the consumer's code, which
/// no lock may be held for.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    /// To be woken.
    due: Option<Waker>,
    /// Of nobody any more: a wait that is over or has another one now.
    former: Option<Waker>,
}

impl Wakers {
    /// Wakes whoever is due; no lock may be held.
    pub(super) fn settle(self) {
        drop(self.former);
        if let Some(due) = self.due {
            due.wake();
        }
    }
}

/// A notification object behind its lock.
#[derive(Debug)]
pub(crate) struct Cno {
    pub(crate) id: CnoId,
    pub(crate) generation: u32,
    pub(crate) agent: Option<ProxyAgent>,
    /// The dispatcher that fired last, while a notification is pending.
    triggered: Option<EvdId>,
    /// Notifications that no waiter has taken yet: one is remembered, and one for each waiter.
    pending: u32,
    /// Dispatchers attached.
    dispatchers: u32,
    waiters: u32,
    /// How often all waiters were released because no dispatcher was left.
    releases: u32,
    /// Waits that ever began; tells them apart.
    waits: u32,
    /// The waits with a waker, longest wait first.
    wakers: heapless::Deque<(u32, Waker), WAKERS>,
    pub(crate) context: u64,
}

impl Cno {
    pub(crate) const EMPTY: Self = Self {
        id: CnoId::NULL,
        generation: 0,
        agent: None,
        triggered: None,
        pending: 0,
        dispatchers: 0,
        waiters: 0,
        releases: 0,
        waits: 0,
        wakers: heapless::Deque::new(),
        context: 0,
    };

    /// Frees the slot; its generation stays.
    pub(crate) fn vacate(&mut self) {
        *self = Self {
            generation: self.generation,
            ..Self::EMPTY
        };
    }

    /// One more waits.
    pub(super) fn begin_wait(&mut self) -> WaitTicket {
        self.waiters = self.waiters.saturating_add(1);
        self.waits = self.waits.wrapping_add(1);
        WaitTicket {
            serial: self.waits,
            release: self.releases,
        }
    }

    /// Whether a waiter was not released since it began.
    pub(super) fn is_waiting(&self, ticket: WaitTicket) -> bool {
        self.releases == ticket.release
    }

    /// One waiter leaves; a notification it was woken for and did not take goes to another one.
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

    /// Takes one notification, if one is pending.
    pub(super) fn take_notification(&mut self) -> Option<EvdId> {
        let fired = self.triggered?;
        self.pending = self.pending.saturating_sub(1);
        if self.pending == 0 {
            self.triggered = None;
        }
        Some(fired)
    }

    /// Keeps the waker of a wait, in place of its former one.
    pub(super) fn keep_waker(&mut self, ticket: WaitTicket, waker: Waker) -> Wakers {
        let own = |entry: &&mut (u32, Waker)| entry.0 == ticket.serial;
        if let Some((_, known)) = self.wakers.iter_mut().find(own) {
            return Wakers {
                due: None,
                former: Some(core::mem::replace(known, waker)),
            };
        }
        // Whoever waited longest looks again and comes to the end of the line.
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

    /// Takes all wakers out: whoever waits looks again.
    pub(crate) fn take_wakers(&mut self) -> heapless::Deque<(u32, Waker), WAKERS> {
        core::mem::take(&mut self.wakers)
    }

    fn next_waker(&mut self) -> Option<Waker> {
        self.wakers.pop_front().map(|(_, waker)| waker)
    }

    /// Takes the waker of one wait out; the others keep their order.
    fn remove_waker(&mut self, ticket: WaitTicket) -> Option<Waker> {
        let mut found = None;
        for _ in 0..self.wakers.len() {
            match self.wakers.pop_front() {
                Some((serial, waker)) if serial == ticket.serial => found = Some(waker),
                Some(other) => {
                    // One was taken out just before.
                    let _room = self.wakers.push_back(other);
                }
                None => break,
            }
        }
        found
    }

    /// A dispatcher fired: one more waiter may go on, and the agent is due.
    fn fire(&mut self, evd: EvdId) -> (Option<Waker>, Option<ProxyAgent>) {
        if self.id.is_null() {
            return (None, None);
        }
        self.triggered = Some(evd);
        self.pending = self.pending.saturating_add(1).min(self.waiters.max(1));
        (self.next_waker(), self.agent.take())
    }

    /// Lets every waiter and the agent go (CNW-05).
    fn release_all(&mut self, aftermath: &mut Aftermath) {
        self.releases = self.releases.wrapping_add(1);
        self.waiters = 0;
        self.pending = 0;
        self.triggered = None;
        while let Some(waker) = self.next_waker() {
            aftermath.wake(waker);
        }
        if let Some(agent) = self.agent.take() {
            aftermath.release(agent);
        }
    }
}

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Makes a notification object, with an agent that the first notification calls.
    ///
    /// The agent runs in whatever context caused the event, and must not call back into the adapter
    /// for longer than posting or dequeueing takes.
    ///
    /// # Errors
    /// - INSUFFICIENT_RESOURCES (MEMORY): the storage has no free slot.
    /// - INVALID_HANDLE (IA): the adapter is being closed.
    ///
    /// Spec: CNC-01..03
    pub fn cno_create(&self, agent: Option<ProxyAgent>) -> Result<CnoId> {
        self.control.with(|control| {
            control.may_make()?;
            let full =
                Error::insufficient_resources(Subtype::ResourceMemory).because(Cause::TableFull);
            let index = find_slot(
                &self.shared.notification_objects,
                &mut control.reached,
                |slot| {
                    slot.main.with(|object| {
                        object.id.is_null() && next_generation(object.generation).is_ok()
                    })
                },
            )
            .ok_or(full)?;
            let slot = self
                .shared
                .notification_objects
                .get(usize::from(index))
                .ok_or(full)?;
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

    /// Replaces the agent of a notification object; `None` dissociates it. Returns the former one, which is not called any more: none if it was called, or is about
    /// to be.
    ///
    /// # Errors
    /// INVALID_HANDLE (CNO): not a live notification object of this adapter.
    ///
    /// Spec: CNM-01, CNC-02
    pub fn cno_modify_agent(
        &self,
        cno: CnoId,
        agent: Option<ProxyAgent>,
    ) -> Result<Option<ProxyAgent>> {
        self.with_cno(cno, |object| {
            Ok(core::mem::replace(&mut object.agent, agent))
        })
    }

    /// Tells what a notification object is; all fields are filled in.
    ///
    /// # Errors
    /// - INVALID_HANDLE (CNO): not a live notification object of this adapter.
    /// - INVALID_PARAMETER (ARG2): unknown bits in the mask.
    ///
    /// Spec: CNQ-01, GEN-08
    pub fn cno_query(&self, cno: CnoId, fields: CnoFields) -> Result<CnoParam> {
        self.with_cno(cno, |object| {
            if CnoFields::from_bits(fields.bits()).is_none() {
                return Err(Error::invalid_argument(2).because(Cause::UnknownMask));
            }
            Ok(CnoParam {
                ia: self.handle(),
                agent: object.agent,
            })
        })
    }

    /// Frees a notification object; the agent is not called.
    ///
    /// # Errors
    /// - INVALID_HANDLE (CNO): not a live notification object of this adapter.
    /// - INVALID_STATE (CNO_IN_USE): a dispatcher is attached, or somebody waits.
    ///
    /// Spec: CNF-01
    pub fn cno_free(&self, cno: CnoId) -> Result<()> {
        self.control.with(|_| {
            self.with_cno(cno, |object| {
                let in_use = Error::invalid_state(Subtype::InvalidStateCnoInUse);
                if object.dispatchers != 0 {
                    return Err(in_use.because(Cause::StillReferenced));
                }
                if object.waiters != 0 {
                    return Err(in_use.because(Cause::WaiterPresent));
                }
                object.vacate();
                Ok(())
            })
        })
    }

    /// Runs `f` on a live notification object.
    pub(super) fn with_cno<R>(
        &self,
        cno: CnoId,
        f: impl FnOnce(&mut Cno) -> Result<R>,
    ) -> Result<R> {
        f(&mut *self.hold_cno(cno)?)
    }

    #[inline(never)]
    fn hold_cno(&self, cno: CnoId) -> Result<Guard<'_, L, Cno>> {
        if let Some(slot) = self.shared.notification_objects.get(cno.index()) {
            let object = slot.main.hold();
            if object.id == cno && !cno.is_null() {
                return Ok(object);
            }
        }
        Err(cno.refused(self.shared.instance))
    }

    /// Attaches a dispatcher; tells the index to keep. Called under the control lock.
    pub(super) fn attach_to_cno(&self, cno: CnoId) -> Result<u16> {
        self.with_cno(cno, |object| {
            object.dispatchers = object.dispatchers.saturating_add(1);
            Ok(cno.index() as u16)
        })
    }

    /// Detaches a dispatcher that goes on without the notification object, or is freed: if it was
    /// the last one then, all that wait are released (CNW-05, EVF-04). Called under the control lock.
    pub(super) fn detach_from_cno(
        &self,
        cno: u16,
        evd: EvdId,
        freed: bool,
        aftermath: &mut Aftermath,
    ) {
        let Some(slot) = self.shared.notification_objects.get(usize::from(cno)) else {
            return;
        };
        let was_last_to_fire = freed && slot.main.with(|object| object.triggered == Some(evd));
        let other = was_last_to_fire
            .then(|| self.evd_attached_to(cno))
            .flatten();
        slot.main.with(|object| {
            object.dispatchers = object.dispatchers.saturating_sub(1);
            // Others may have fired before it did, of which nobody has heard: who waits has to look (CNW-03).
            if other.is_some() && object.triggered == Some(evd) {
                object.triggered = other;
            }
            if freed && object.dispatchers == 0 {
                object.release_all(aftermath);
            }
        });
    }

    /// A dispatcher that is attached to the notification object at an index. Called under the control lock.
    fn evd_attached_to(&self, cno: u16) -> Option<EvdId> {
        let mut slots = self.shared.event_dispatchers.made().iter();
        slots.find_map(|slot| {
            slot.queue.with(|queue| {
                let attached = queue.cno == Some(cno) && !queue.id.is_null();
                attached.then_some(queue.id)
            })
        })
    }

    /// The handle of the notification object that lives at an index.
    pub(super) fn cno_id_at(&self, cno: u16) -> Option<CnoId> {
        let slot = self.shared.notification_objects.get(usize::from(cno))?;
        let id = slot.main.with(|object| object.id);
        (!id.is_null()).then_some(id)
    }

    /// Destroys whatever lives at an index: waiters return ABORT, the agent is called with `None`
    /// (IAC-02). Settle `aftermath` when the control lock is released.
    pub(crate) fn destroy_cno_at(
        &self,
        _control: &mut Control<'_, B>,
        index: u16,
        aftermath: &mut Aftermath,
    ) {
        if let Some(slot) = self.shared.notification_objects.get(usize::from(index)) {
            slot.main.with(|object| {
                object.release_all(aftermath);
                object.vacate();
            });
        }
    }

    /// A dispatcher fired: one waiter is released, or the trigger is kept; the agent runs once.
    pub(crate) fn trigger(&self, cno: u16, evd: EvdId) {
        let Some(slot) = self.shared.notification_objects.get(usize::from(cno)) else {
            return;
        };
        let (waker, agent) = slot.main.with(|object| object.fire(evd));
        if let Some(waker) = waker {
            waker.wake();
        }
        if let Some(agent) = agent {
            (agent.function)(agent.instance_data, Some(evd));
        }
    }
}
