//! Read-backs, and waits until no request is pending.

use dat_core::backend::Backend;
use dat_core::event::Wait;
use dat_core::flags::{CloseFlags, CompletionFlags};
use dat_core::memory::RmrTriplet;
use dat_core::sync::RawLock;
use dat_core::time::Instant;

use crate::engine::Rsm;
use crate::engine::state::State;
use crate::error::{Result, RsmError};
use crate::flight::{Flight, Owner, Request, Step};
use crate::id::{Handle, ImportId, NodeId};
use crate::import::{Attach, ImportState};
use crate::link::LinkState;
use crate::port::Port;

/// Bytes that a read-back reads.
const READ_BACK_SIZE: u64 = 8;

impl State {
    /// Counts a posted request in its objects.
    pub(crate) fn count_posted(&mut self, request: &Request) {
        if let Some(link) = self.links.get_mut(request.link) {
            link.requests = link.requests.saturating_add(1);
            link.bytes = link.bytes.saturating_add(request.bytes);
        }
        self.peer_owes(request.link);
        if let Some(import) = self.imports.get_mut(request.import) {
            import.posted = import.posted.wrapping_add(1);
        }
        let local = request.local.map(|local| local.handle());
        if let Some(local) = local.and_then(|local| self.locals.get_mut(local)) {
            local.users = local.users.saturating_add(1);
        }
        if let Owner::Entry { flight, .. } | Owner::ReadBack { flight, .. } = request.owner
            && let Some(flight) = self.flights.get_mut(flight)
        {
            flight.pending = flight.pending.saturating_add(1);
        }
    }

    /// Returns true if a broken link of a port to a node may still be writing.
    ///
    /// Reads and messages on another link may overtake such writes. Only the links that this side
    /// asked for carry transfers, so no other process of the node has an influence.
    pub(crate) fn drains(&self, port: usize, node: NodeId) -> bool {
        self.links.iter().any(|(_, link)| {
            link.state == LinkState::Over
                && link.active
                && (link.port, link.node) == (port, node)
                && link.has_transfers()
        })
    }

    /// Posts the read that shows that earlier writes are visible, if there is room.
    ///
    /// The writes may be pending. The read-back reads a word of the exporter's node and not of the
    /// segment, which the connection may have no right to read. The responder executes a read after
    /// the writes before it, and its answer cannot overtake them between the memory and the link.
    pub(crate) fn post_read_back<B: Backend, L: RawLock>(
        &mut self,
        port: &Port<'_, B, L>,
        import: ImportId,
        flight: Handle,
    ) {
        let Some(slot) = self.imports.get(import.handle()) else {
            return;
        };
        let Attach::Attached(link_handle) = slot.attach else {
            return;
        };
        let (index, covers) = (slot.port, slot.posted);
        if self.drains(index, slot.node) {
            return;
        }
        let request = Request {
            owner: Owner::ReadBack { flight, covers },
            link: link_handle,
            import: import.handle(),
            local: None,
            flight: Handle::NULL,
            bytes: READ_BACK_SIZE,
        };
        if self.read_word(port, index, request)
            && let Some(flight) = self.flights.get_mut(flight)
        {
            flight.step = Step::Posted;
        }
    }

    /// Posts a read on each idle link whose probe is due.
    pub(crate) fn probe<B: Backend, L: RawLock>(
        &mut self,
        ports: &[Port<'_, B, L>],
        now: Instant,
        interval: u32,
    ) {
        let mut from = 0;
        while let Some((at, handle)) = self
            .links
            .find_from(from, |link| link.is_up() && link.probe_at.is_some())
        {
            from = at.saturating_add(1);
            let Some(link) = self.links.get_mut(handle) else {
                continue;
            };
            if link.probe_at.is_some_and(|at| at > now) {
                let at = link.probe_at;
                self.remind(at);
                continue;
            }
            link.probe_at = now.after(interval);
            let (at, index, idle) = (link.probe_at, link.port, link.requests == 0);
            self.remind(at);
            if let Some(port) = ports.get(index).filter(|_| idle) {
                let request = Request {
                    owner: Owner::Probe,
                    link: handle,
                    import: Handle::NULL,
                    local: None,
                    flight: Handle::NULL,
                    bytes: READ_BACK_SIZE,
                };
                // Without room, the next probe tries again.
                let _posted = self.read_word(port, index, request);
            }
        }
    }

    /// Posts a read of the peer's word; returns false if there is no room.
    fn read_word<B: Backend, L: RawLock>(
        &mut self,
        port: &Port<'_, B, L>,
        index: usize,
        request: Request,
    ) -> bool {
        let Some(link) = self
            .links
            .get(request.link)
            .filter(|link| link.takes_transfer(port.max_transfers))
        else {
            return false;
        };
        let target = self
            .ports
            .get(index)
            .and_then(|port| port.objects.as_ref())
            .and_then(|objects| objects.read_back_target.as_ref());
        let (Some(peer), Some(target)) = (link.peer, target) else {
            return false;
        };
        let ep = link.ep;
        let triplet = target.triplet(0, READ_BACK_SIZE as usize);
        let Some(cookie) = self.requests.insert(request) else {
            return false;
        };
        let remote = RmrTriplet {
            context: peer.read_back_key,
            address: peer.read_back_address,
            length: READ_BACK_SIZE,
        };
        let flags = CompletionFlags::empty();
        let posted = port
            .ia
            .post_rdma_read(ep, &[triplet], cookie.to_raw(), &remote, flags);
        if posted.is_err() {
            self.requests.remove(cookie);
            return false;
        }
        self.count_posted(&request);
        true
    }
}

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Waits until all requests posted on a connection have completed and are visible.
    ///
    /// If its link broke, also waits until the exporter has reconnected or is given up.
    pub(crate) fn quiet<W: Wait>(&self, import: ImportId, wait: &mut W) -> Result<()> {
        let (controller, posted, flight) = self.attempt(|state| {
            let slot = state.imports.get(import.handle());
            let node = slot.ok_or(RsmError::BadSegmentHandle)?.node;
            let flight = state.begin_flight(Flight::new(node))?;
            let slot = state.imports.get_mut(import.handle());
            let slot = slot.ok_or(RsmError::InternalError)?;
            slot.calls = slot.calls.saturating_add(1);
            Ok((slot.controller, slot.posted, flight))
        })?;
        let outcome = self.wait_for(Some(controller), None, wait, |_| {
            self.state
                .with(|state| self.look_quiet(state, import, posted, flight))
        });
        self.state.with(|state| {
            state.end_flight(flight);
            if let Some(slot) = state.imports.get_mut(import.handle()) {
                slot.calls = slot.calls.saturating_sub(1);
            }
        });
        self.tell_change();
        outcome
    }

    fn look_quiet(
        &self,
        state: &mut State,
        import: ImportId,
        posted: u64,
        flight: Handle,
    ) -> Option<Result<()>> {
        let slot = state.imports.get(import.handle())?;
        let over = slot.finished >= posted;
        if over && slot.state == ImportState::Aborted {
            return Some(Ok(()));
        }
        let Attach::Attached(_) = slot.attach else {
            return None;
        };
        let (index, unseen) = (slot.port, slot.written > slot.visible);
        match state.flights.get(flight)?.step {
            // A failure is counted in the connection's `error_epoch`.
            Step::Done | Step::Failed(_) => over.then_some(Ok(())),
            Step::Posted => None,
            Step::Idle if !unseen => over.then_some(Ok(())),
            // Posted at once after the writes: it completes after them.
            Step::Idle => {
                let port = self.ports.get(index)?;
                self.read_back(state, port, import, flight);
                None
            }
        }
    }

    /// Ends the links of a call's pending requests; other users of these links restart.
    ///
    /// Spec: RSMPV-83
    pub(crate) fn sever(&self, flight: Handle, now: Instant) {
        loop {
            let found =
                self.state.with(|state| {
                    let (_, request) = state.requests.iter().find(|(_, request)| match request
                        .owner
                    {
                        Owner::Entry { flight: other, .. }
                        | Owner::ReadBack { flight: other, .. } => other == flight,
                        _ => false,
                    })?;
                    let link = request.link;
                    state.end_link(link, now, &self.options);
                    let slot = state.links.get(link)?;
                    Some((link, slot.port, slot.ep))
                });
            let Some((link, port, ep)) = found else {
                return;
            };
            if let Some(port) = self.ports.get(port) {
                let _over = port.ia.ep_disconnect(ep, CloseFlags::Abrupt);
            }
            self.remove_link_in_turn(link);
        }
    }
}
