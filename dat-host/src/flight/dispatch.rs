//! The dispatch of events: to operations, and to objects of the adapter.

use std::sync::Weak;

use dat_core::event::{AsyncEventKind, ConnectionEventKind, Event, REASON_PRIMARY};
use dat_core::flags::{CloseFlags, DtoStatus, HandleKind};
use dat_core::id::{EpId, SrqId};

use super::adapter_state::AdapterState;
use super::lent::Lent;
use super::table::{Effects, Outcome};
use crate::lock::lock;

/// Completions that one look takes, so that a flood of them does not keep the driver.
const COMPLETIONS_OF_A_LOOK: usize = 256;

/// Events that [`AdapterState::dispatch`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Those that come from the device's queue directly.
    Completions,
    All,
}

impl AdapterState {
    /// Takes the events of the adapter's dispatchers; returns false if there are none.
    ///
    /// One thread at a time does so, so events of an endpoint stay in order. A call meanwhile, also
    /// one from a waker, makes it look once more, for all events.
    pub(crate) fn dispatch(&self, mut scope: Scope) -> bool {
        if self.is_inherited() {
            return false;
        }
        let Some(mut turn) = self.turns.take() else {
            return false;
        };
        let mut found = false;
        loop {
            let taken = self.take_completions(COMPLETIONS_OF_A_LOOK);
            found |= taken != 0;
            if scope == Scope::All {
                found |= self.take_connection_events();
                found |= self.take_async_events();
                self.offer();
                self.free_dropped();
            }
            turn = match turn.end() {
                Some(turn) => turn,
                None => {
                    if taken == COMPLETIONS_OF_A_LOOK {
                        // This thread may not be the driver.
                        self.drivers.wake_all();
                    }
                    return found;
                }
            };
            scope = Scope::All;
        }
    }

    /// Takes at most so many completions; returns their number.
    pub(super) fn take_completions(&self, most: usize) -> usize {
        let interface = self.interface();
        for taken in 0..most {
            match interface.evd_dequeue(self.completions) {
                Ok(event) => self.complete(&event),
                Err(_) => return taken,
            }
        }
        most
    }

    /// Ends the operation of a completion.
    // A call would cost as much as its work, for each completion.
    #[inline(always)]
    pub(crate) fn complete(&self, event: &Event) {
        match event {
            Event::Dto(done) => {
                let length = usize::try_from(done.transferred_length).unwrap_or(0);
                let outcome = Outcome::Completed(done.status, length);
                let effects = self.table.complete(done.cookie, outcome);
                match effects {
                    Effects {
                        memory: Some(memory),
                        queue: Some(queue),
                        ..
                    } => self.received((done.ep, queue), memory, done.status, length),
                    effects => effects.run(),
                }
            }
            Event::RmrBind(done) => {
                let outcome = Outcome::Completed(done.status, 0);
                self.table.complete(done.cookie, outcome).run();
            }
            _ => {}
        }
    }

    /// Delivers a message to the endpoint that took a buffer of a shared receive queue.
    fn received(&self, (ep, queue): (EpId, SrqId), memory: Lent, status: DtoStatus, length: usize) {
        if status == DtoStatus::Success
            && let Some(endpoint) = self.endpoint(ep)
            && endpoint.queue() == Some(queue)
        {
            return endpoint.received(memory, length);
        }
        let known = lock(&self.queues)
            .iter()
            .find(|(srq, _)| *srq == queue)
            .and_then(|(_, buffers)| buffers.upgrade());
        if let Some(queue) = known {
            queue.post_again(memory);
        }
    }

    fn take_connection_events(&self) -> bool {
        let mut found = false;
        while let Ok(event) = self.interface().evd_dequeue(self.connections) {
            found = true;
            if let Event::Connection { kind, ep, .. } = event
                && let Some(endpoint) = self.endpoint(ep)
            {
                if kind != ConnectionEventKind::Established {
                    // Messages that arrived before the end come first.
                    self.take_completions(usize::MAX);
                }
                endpoint.changed(kind);
            }
        }
        found
    }

    fn take_async_events(&self) -> bool {
        let mut found = false;
        let evd = self.interface().async_evd();
        while let Ok(event) = self.interface().evd_dequeue(evd) {
            found = true;
            let Event::Async {
                kind,
                handle,
                reason,
            } = event
            else {
                continue;
            };
            match kind {
                // Events are lost, so operations might wait for ever.
                AsyncEventKind::IaCatastrophic | AsyncEventKind::EvdOverflow => self.close(),
                AsyncEventKind::EpBroken
                    if handle.kind() == Some(HandleKind::Srq) && reason == REASON_PRIMARY =>
                {
                    self.disconnect_users(SrqId::from_handle(handle));
                }
                _ => {}
            }
        }
        found
    }

    /// Disconnects the endpoints of a shared receive queue that failed: they receive no more.
    fn disconnect_users(&self, queue: SrqId) {
        let users: Vec<EpId> = lock(&self.endpoints)
            .iter()
            .flatten()
            .filter(|endpoint| endpoint.queue() == Some(queue))
            .map(|endpoint| endpoint.id())
            .collect();
        for ep in users {
            // Fails if there is no connection.
            let _ = self.interface().ep_disconnect(ep, CloseFlags::Abrupt);
        }
        self.called();
    }

    /// Wakes the futures of objects for which events have arrived.
    pub(super) fn offer(&self) {
        let mut index = 0;
        loop {
            let offers = lock(&self.offers).get(index).map(Weak::upgrade);
            match offers {
                None => return,
                Some(Some(offers)) => offers.offer(),
                Some(None) => {}
            }
            index += 1;
        }
    }
}
