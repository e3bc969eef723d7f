//! Consumer notification objects.

use core::task::Waker;

use crate::backend::Backend;
use crate::error::Result;
use crate::ia::Ia;
use crate::id::{CnoId, EvdId};
use crate::sync::{Mutex, RawLock};

/// Called once when a notification object is triggered, after every lock is released (CNC-02).
#[derive(Clone, Copy, Debug)]
pub struct ProxyAgent {
    /// Called with `instance_data` and the dispatcher that fired, or `None` when the object dies (CNW-05).
    pub function: fn(u64, Option<EvdId>),
    /// The consumer's value.
    pub instance_data: u64,
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
}

/// A notification object behind its lock.
#[derive(Debug)]
pub(crate) struct Cno {
    pub(crate) id: CnoId,
    pub(crate) generation: u32,
    pub(crate) agent: Option<ProxyAgent>,
    /// A notification that nobody has waited for yet.
    pub(crate) triggered: Option<EvdId>,
    /// Dispatchers attached.
    pub(crate) dispatchers: u32,
    pub(crate) waiters: u32,
    pub(crate) wakers: heapless::Vec<Waker, 4>,
    pub(crate) context: u64,
}

impl Cno {
    pub(crate) const EMPTY: Self = Self {
        id: CnoId::NULL,
        generation: 0,
        agent: None,
        triggered: None,
        dispatchers: 0,
        waiters: 0,
        wakers: heapless::Vec::new(),
        context: 0,
    };
}

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Attaches a dispatcher that is being made; tells the index to keep.
    pub(super) fn attach_to_cno(&self, cno: CnoId) -> Result<u16> {
        let refused = || cno.refused(self.shared.instance);
        let slot = self
            .shared
            .notification_objects
            .get(cno.index())
            .ok_or_else(refused)?;
        slot.main.with(|object| {
            if object.id != cno || cno.is_null() {
                return Err(refused());
            }
            object.dispatchers = object.dispatchers.saturating_add(1);
            Ok(cno.index() as u16)
        })
    }

    /// A dispatcher fired: one waiter is released, or the trigger is kept; the agent runs once.
    pub(crate) fn trigger(&self, cno: u16, evd: EvdId) {
        let Some(slot) = self.shared.notification_objects.get(usize::from(cno)) else {
            return;
        };
        let (waker, agent) = slot.main.with(|object| {
            object.triggered = Some(evd);
            (object.wakers.pop(), object.agent.take())
        });
        if let Some(waker) = waker {
            waker.wake();
        }
        if let Some(agent) = agent {
            (agent.function)(agent.instance_data, Some(evd));
        }
    }
}
