//! Progress: adapter events, connections that begin and end, deadlines.

use dat_core::backend::{Backend, PRIVATE_DATA_MAX};
use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, DtoCompletion, Event};
use dat_core::flags::{CloseFlags, ConnectFlags, CrFields, DtoStatus, QualityOfService};
use dat_core::id::{CrId, EpId, EvdId};
use dat_core::sync::RawLock;
use dat_core::time::Instant;

use crate::age::earliest;
use crate::engine::Rsm;
use crate::engine::state::State;
use crate::error::{Result, RsmError};
use crate::id::{Handle, NodeId};
use crate::import::{Attach, Import, ImportState};
use crate::link::{Link, LinkState, PATIENCE};
use crate::port::{Port, PortIds, same_host};
use crate::unreached::Unreached;
use crate::wire::{Body, Greeting, MESSAGE_SIZE, Rejection};

/// Most events of one dispatcher that a round handles; bounds its time.
const EVENTS_PER_CALL: usize = 64;

/// Most rounds of one call of `progress`; bounds its time.
const ROUNDS_PER_CALL: usize = 8;

/// Microseconds until messages and receives that the device refused are posted again.
const REFUSED: u32 = 1_000;

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Handles everything that happened since the last call, and everything due by `now`.
    ///
    /// Takes completions, messages and connection events, and runs deferred work. Returns the
    /// number of handled items; call it again until it returns 0.
    ///
    /// Blocking calls do the same while they wait. An exporter must keep calling it, or importers
    /// wait for their answers. If another thread is in this call, it returns 0 at once and the
    /// other thread does another round.
    pub fn progress(&self, now: Instant) -> usize {
        // The event that woke this thread may lie in a queue that the other thread has already
        // polled.
        let Some(turn) = self.turns.take() else {
            return 0;
        };
        let mut turn = Some(turn);
        let mut handled = 0_usize;
        for _ in 0..ROUNDS_PER_CALL {
            let Some(own) = turn else {
                break;
            };
            handled = handled.saturating_add(self.round(now));
            turn = own.end();
        }
        let goes_on = turn.is_some();
        drop(turn);
        // Those that asked for another round may sleep.
        if handled != 0 || goes_on {
            self.tell_change();
        }
        handled
    }

    /// Removes a link while no thread makes progress.
    pub(crate) fn remove_link_in_turn(&self, link: Handle) {
        let turn = self.turns.wait();
        self.remove_link(link);
        if turn.leave() {
            self.tell_change();
        }
    }

    fn round(&self, now: Instant) -> usize {
        let mut handled = 0_usize;
        for index in 0..self.ports.len() {
            handled = handled.saturating_add(self.port_progress(index, now));
        }
        let tidy = self
            .state
            .with(|state| state.urgent || state.due.is_some_and(|due| due <= now));
        if tidy {
            handled = handled.saturating_add(self.tidy(now));
        }
        handled
    }

    /// Returns the next time at which `progress` has work even without an event.
    pub fn next_deadline(&self) -> Option<Instant> {
        let (urgent, mut due) = self.state.with(|state| (state.urgent, state.due));
        if urgent {
            return Some(Instant::ZERO);
        }
        for port in &self.ports {
            due = earliest(due, port.ia.next_deadline());
        }
        due
    }

    fn port_progress(&self, index: usize, now: Instant) -> usize {
        let ids = self
            .state
            .with(|state| state.ports.get(index).and_then(|port| port.ids()));
        let (Some(ids), Some(port)) = (ids, self.ports.get(index)) else {
            return 0;
        };
        let mut handled = port.ia.progress(now);
        for evd in [ids.completions, ids.receives, ids.connections, ids.arrivals] {
            let taken = self.take_events(index, &ids, evd, now);
            handled = handled.saturating_add(taken);
            if taken == EVENTS_PER_CALL {
                self.state.with(|state| state.poll_again = true);
            }
        }
        handled
    }

    /// Handles events of a dispatcher, at most [`EVENTS_PER_CALL`]; returns their number.
    fn take_events(&self, index: usize, ids: &PortIds, evd: EvdId, now: Instant) -> usize {
        let mut taken = 0_usize;
        while taken < EVENTS_PER_CALL
            && let Some(port) = self.ports.get(index)
            && let Ok(event) = port.ia.evd_dequeue(evd)
        {
            taken = taken.saturating_add(1);
            if let Event::Connection { kind, ep, .. } = event
                && kind != ConnectionEventKind::Established
            {
                // The end of a connection ends only requests that were not complete before, and
                // completions may have come since the look at them.
                while self.take_events(index, ids, ids.completions, now) == EVENTS_PER_CALL {}
                self.take_messages(index, ids, self.live_link(index, ep), now);
            }
            self.take_in(index, ids, evd, &event, now);
        }
        taken
    }

    /// Handles the messages that came before the end of a connection; an ended link takes none.
    ///
    /// They may have come since the look at them, or be more than one look takes.
    fn take_messages(&self, index: usize, ids: &PortIds, ending: Option<Handle>, now: Instant) {
        if let Some(link) = ending {
            self.end_maintenance(link);
        }
        // Each link has less than `EVENTS_PER_CALL` posted receives. Later messages wait.
        for _ in 0..self.options.limits.links {
            if self.take_events(index, ids, ids.receives, now) < EVENTS_PER_CALL {
                break;
            }
        }
        // Those that waited for a maintenance.
        if let (Some(link), Some(port)) = (ending, self.ports.get(index)) {
            self.handle_messages(index, port, link, now);
        }
    }

    fn take_in(&self, index: usize, ids: &PortIds, evd: EvdId, event: &Event, now: Instant) {
        match *event {
            Event::Dto(completion) if evd == ids.receives => {
                self.message_arrived(index, &completion, now);
            }
            Event::Dto(completion) => {
                let request = Handle::from_raw(completion.cookie);
                self.state
                    .with(|state| state.request_ended(request, completion.status));
                if completion.status != DtoStatus::Success
                    && let Some(link) = self.live_link(index, completion.ep)
                {
                    // The core ends the connection after a failed request.
                    self.take_messages(index, ids, Some(link), now);
                    self.state
                        .with(|state| state.end_link(link, now, &self.options));
                }
            }
            // Only the peer can cause this event and the protocol never uses it, so the peer's
            // later messages cannot be trusted.
            Event::Extended(completion) => {
                if let Some(link) = self.live_link(index, completion.ep) {
                    self.state
                        .with(|state| state.end_link(link, now, &self.options));
                }
            }
            Event::ConnectionRequest { cr, .. } => self.arrived(index, ids, cr, now),
            Event::Connection { kind, ep, .. } => self.connection_changed(index, kind, ep, now),
            Event::Async { .. } | Event::RmrBind(_) | Event::Software { .. } => {}
        }
    }

    /// Returns the link over an endpoint that has not ended.
    fn live_link(&self, index: usize, ep: EpId) -> Option<Handle> {
        self.state.with(|state| {
            state
                .links
                .find(|link| link.port == index && link.ep == ep && link.state != LinkState::Over)
        })
    }

    /// Returns the greeting of this node on a port.
    fn greeting(&self, state: &State, index: usize) -> Option<Greeting> {
        let objects = state.ports.get(index)?.objects.as_ref()?;
        let word = objects.read_back_word.as_ref()?;
        Some(Greeting {
            node: self.options.node,
            incarnation: self.options.incarnation,
            read_back_address: word.address(),
            read_back_key: word.remote_key(),
            credits: self.options.credits.clamp(1, 60),
            big_endian: cfg!(target_endian = "big"),
            non_coherent: self.ports.get(index)?.non_coherent,
        })
    }

    /// Handles a connection request; rejects one whose address is not that of its node.
    fn arrived(&self, index: usize, ids: &PortIds, cr: CrId, now: Instant) {
        let Some(port) = self.ports.get(index) else {
            return;
        };
        if let Err(error) = self.accept(index, ids, cr, now) {
            // Fails if the request is gone; then no rejection is needed.
            let _gone = port.ia.cr_reject(cr, &Rejection { error }.encode());
        }
    }

    fn accept(&self, index: usize, ids: &PortIds, cr: CrId, now: Instant) -> Result<()> {
        let port = self.ports.get(index).ok_or(RsmError::InternalError)?;
        let request = port.ia.cr_query(cr, CrFields::all())?;
        let peer = Greeting::decode(&request.private_data).map_err(|_| RsmError::InternalError)?;
        let entry = port
            .node(peer.node)
            .ok_or(RsmError::RemoteNodeUnreachable)?;
        let known = request
            .remote_address
            .is_some_and(|address| same_host(address, entry.address));
        if !known || (port.is_loopback() && peer.node != self.options.node) {
            return Err(RsmError::RemoteNodeUnreachable);
        }
        let open = self.state.with(|state| {
            let port = state.ports.get(index);
            port.is_some_and(|port| port.references != 0)
        });
        if !open {
            return Err(RsmError::ControllerNotPresent);
        }
        self.make_room(index, &peer, now)?;
        let link = self.new_link(index, ids, peer.node, false)?;
        let prepared = self.state.with(|state| {
            let greeting = self.greeting(state, index);
            let link = state.links.get_mut(link);
            link.zip(greeting).map(|(link, greeting)| {
                link.meet(peer);
                (link.ep, greeting)
            })
        });
        let (ep, greeting) = prepared.ok_or(RsmError::InternalError)?;
        if let Err(error) = port.ia.cr_accept(cr, Some(ep), &greeting.encode()) {
            self.remove_link(link);
            return Err(error.into());
        }
        Ok(())
    }

    /// Makes room for one more link of a node within its share, or fails.
    ///
    /// Spec: RSMST-05
    fn make_room(&self, index: usize, peer: &Greeting, now: Instant) -> Result<()> {
        let former = self.attempt(|state| {
            if state.admits_link(peer.node) {
                return Ok(None);
            }
            let former = state
                .superseded_link(index, peer)
                .ok_or(RsmError::InsufficientResources)?;
            state.end_link(former, now, &self.options);
            Ok(Some(former))
        })?;
        if let Some(former) = former {
            self.remove_link(former);
        }
        Ok(())
    }

    /// Makes a link with its endpoint and memory, and posts its receives.
    fn new_link(&self, index: usize, ids: &PortIds, node: NodeId, active: bool) -> Result<Handle> {
        let port = self.ports.get(index).ok_or(RsmError::InternalError)?;
        let ep = ids.endpoint(port)?;
        let made = Link::new(index, port, ids.pz, ep, node, active, &self.options);
        let inserted = made.and_then(|mut link| {
            // The memory is registered, so it must not be dropped with a link that finds no slot.
            let mut block = link.take_block();
            let handle = self.state.with(|state| {
                let handle = state.links.insert(link)?;
                if let Some(slot) = state.links.get_mut(handle) {
                    slot.give_block(block.take());
                }
                Some(handle)
            });
            if let Some(block) = block {
                block.free(&port.ia);
            }
            handle.ok_or(RsmError::InsufficientResources)
        });
        let handle = match inserted {
            Ok(handle) => handle,
            Err(error) => {
                let _gone = port.ia.ep_free(ep);
                return Err(error);
            }
        };
        let posted = self.state.with(|state| {
            let link = state.links.get_mut(handle);
            let link = link.ok_or(RsmError::InternalError)?;
            link.post_receives(handle, port)?;
            state.urgent |= link.misses();
            Ok(())
        });
        if let Err(error) = posted {
            self.remove_link(handle);
            return Err(error);
        }
        Ok(handle)
    }

    /// Removes a link and its endpoint; its pending requests count as flushed.
    pub(crate) fn remove_link(&self, handle: Handle) {
        let found = self.state.with(|state| {
            let link = state.links.get_mut(handle)?;
            link.state = LinkState::Over;
            Some((link.port, link.ep))
        });
        let Some((index, ep)) = found else {
            return;
        };
        let Some(port) = self.ports.get(index) else {
            return;
        };
        // Fails if there is no connection.
        let _idle = port.ia.ep_disconnect(ep, CloseFlags::Abrupt);
        let _freed = port.ia.ep_free(ep);
        let block = self.state.with(|state| {
            let mut from = 0;
            while let Some((at, request)) = state
                .requests
                .find_from(from, |request| request.link == handle)
            {
                state.request_ended(request, DtoStatus::Flushed);
                from = at;
            }
            state.links.remove(handle)?.take_block()
        });
        if let Some(block) = block {
            block.free(&port.ia);
        }
    }

    fn connection_changed(&self, index: usize, kind: ConnectionEventKind, ep: EpId, now: Instant) {
        let found = self.state.with(|state| {
            let handle = state
                .links
                .find(|link| link.port == index && link.ep == ep)?;
            let link = state.links.get(handle)?;
            Some((handle, link.active, link.node, link.state))
        });
        let Some((handle, active, node, before)) = found else {
            return;
        };
        if kind != ConnectionEventKind::Established {
            let (why, reason) = self.why_rejected(index, kind, ep);
            let limit = self.options.connect_timeout;
            // Only the peer's own word ends a granted connection. A full backlog does not.
            let refused =
                kind == ConnectionEventKind::PeerRejected && why != RsmError::InsufficientResources;
            self.state.with(|state| {
                state.end_link(handle, now, &self.options);
                if active && before == LinkState::Pending {
                    if refused {
                        state.give_up_node(index, node, why, reason);
                    } else {
                        state.retry_node(index, node, why, reason, now, limit);
                    }
                }
            });
            return;
        }
        let peer = if active {
            self.peer_greeting(index, ep)
        } else {
            None
        };
        self.state.with(|state| {
            let Some(link) = state.links.get_mut(handle) else {
                return;
            };
            if let Some(peer) = peer.filter(|peer| peer.node == node) {
                link.meet(peer);
            }
            let Some(peer) = link.peer.filter(|_| link.state == LinkState::Pending) else {
                // The peer does not follow the protocol, or is another node.
                state.end_link(handle, now, &self.options);
                if active {
                    let why = RsmError::RemoteNodeUnreachable;
                    state.give_up_node(index, node, why, Unreached::Failed);
                }
                return;
            };
            link.state = LinkState::Up;
            link.probe_at = match self.options.probe_interval {
                0 => None,
                interval => now.after(interval),
            };
            // Connections to an earlier incarnation of the node do not come back (RSMST-03).
            for (_, import) in state.imports.iter_mut() {
                if active
                    && import.port == index
                    && import.node == node
                    && import.state == ImportState::Connected
                    && import.incarnation != peer.incarnation
                {
                    import.abort();
                }
            }
            state.remind(None);
        });
        if let Some(port) = self.ports.get(index) {
            self.handle_messages(index, port, handle, now);
        }
    }

    fn peer_greeting(&self, index: usize, ep: EpId) -> Option<Greeting> {
        Greeting::decode(&self.private_data(index, ep)?).ok()
    }

    /// Returns the peer's private data of an accepted or rejected connection, padded with zeros.
    pub(crate) fn private_data(&self, index: usize, ep: EpId) -> Option<[u8; PRIVATE_DATA_MAX]> {
        let port = self.ports.get(index)?;
        let mut bytes = [0; PRIVATE_DATA_MAX];
        port.ia.ep_private_data(ep, &mut bytes).ok()?;
        Some(bytes)
    }

    fn message_arrived(&self, index: usize, completion: &DtoCompletion, now: Instant) {
        let Some(port) = self.ports.get(index) else {
            return;
        };
        let DtoCompletion { ep, cookie, .. } = *completion;
        let came = self.state.with(|state| {
            let (_, handle) = state
                .links
                .find_from((cookie >> 8) as usize, |link| {
                    link.port == index && link.ep == ep
                })
                .filter(|(slot, _)| *slot as u64 == cookie >> 8)?;
            if completion.status != DtoStatus::Success {
                return None;
            }
            let link = state.links.get_mut(handle)?;
            // The rest of a shorter message would be old content of the receive buffer.
            let is_complete = completion.transferred_length == MESSAGE_SIZE as u64;
            if !is_complete || link.message_came((cookie & 0xFF) as usize).is_err() {
                state.end_link(handle, now, &self.options);
            }
            state.urgent = true;
            Some(handle)
        });
        if let Some(link) = came {
            self.handle_messages(index, port, link, now);
        }
    }

    /// Handles the messages of a link that have arrived.
    pub(crate) fn handle_messages(
        &self,
        index: usize,
        port: &Port<'_, B, L>,
        link: Handle,
        now: Instant,
    ) {
        while let Some(body) = self.next_message(link, port, now) {
            self.handle_message(index, link, body);
        }
    }

    /// Takes the next message of a link, if it has arrived.
    fn next_message(&self, handle: Handle, port: &Port<'_, B, L>, now: Instant) -> Option<Body> {
        self.state.with(|state| {
            let link = state.links.get_mut(handle)?;
            if link.state == LinkState::Over || link.maintenance.is_some() {
                return None;
            }
            // The event that establishes the connection brings the greeting; messages may come
            // first, and wait for it.
            let incarnation = link.peer?.incarnation;
            let message = match link.take_message(handle, port) {
                Ok(None) => return None,
                Ok(Some(bytes)) => crate::wire::Message::decode(&bytes).ok(),
                Err(_) => None,
            };
            let message = message.filter(|message| message.incarnation == incarnation);
            if let Some(message) = &message {
                link.account(message);
            }
            if message.is_none() || link.is_clogged(&self.options) {
                // The peer violates the protocol, so its later messages cannot be trusted.
                state.end_link(handle, now, &self.options);
                return None;
            }
            message.map(|message| message.body)
        })
    }

    /// Runs the work that the last events deferred.
    fn tidy(&self, now: Instant) -> usize {
        let mut handled = 0_usize;
        self.state.with(|state| {
            state.urgent = false;
            state.due = None;
            state.discount_absence(now, &self.options);
        });
        handled = handled.saturating_add(self.maintain(now));
        // Links that are over.
        let mut from = 0;
        loop {
            let found = self.state.with(|state| {
                state
                    .links
                    .find_from(from, |link| link.state == LinkState::Over)
            });
            let Some((at, handle)) = found else {
                break;
            };
            from = at.saturating_add(1);
            let drained = self.state.with(|state| {
                let link = state.links.get(handle)?;
                let expired = link.drain_until.is_none_or(|until| until <= now);
                let until = link.drain_until;
                if link.requests == 0 || expired {
                    return Some(());
                }
                state.remind(until);
                None
            });
            if drained.is_some() {
                self.remove_link(handle);
                handled = handled.saturating_add(1);
            }
        }
        self.state.with(|state| {
            let mut from = 0;
            while let Some((at, handle)) = state
                .importers
                .find_from(from, |importer| importer.until.is_some())
            {
                from = at.saturating_add(1);
                let until = state
                    .importers
                    .get(handle)
                    .and_then(|importer| importer.until);
                if until.is_some_and(|until| until <= now) {
                    state.importers.remove(handle);
                } else {
                    state.remind_in_steps(until, now, &self.options);
                }
            }
        });
        handled = handled.saturating_add(self.connect_imports(now));
        self.state.with(|state| {
            self.tidy_messages(state, now);
            state.prove_idle_imports(now, &self.options);
            state.watch(now, &self.options);
            if self.options.probe_interval != 0 {
                state.probe(&self.ports, now, self.options.probe_interval);
            }
        });
        self.close_ports();
        handled
    }

    /// Sends the acknowledgements, receives and messages that are due.
    fn tidy_messages(&self, state: &mut State, now: Instant) {
        let mut from = 0;
        while let Some((at, handle)) = state.imports.find_from(from, |import| {
            import
                .acknowledge
                .is_some_and(|acknowledge| import.finished >= acknowledge.after)
        }) {
            from = at.saturating_add(1);
            let acknowledge = state
                .imports
                .get_mut(handle)
                .and_then(|import| import.acknowledge.take());
            if let Some(acknowledge) = acknowledge {
                let importer = acknowledge.importer;
                let body = Body::Acknowledge { importer };
                self.tell(state, acknowledge.link, body);
            }
        }
        self.tidy_receives(state, now);
        let urgent = state.urgent;
        let mut from = 0;
        while let Some((at, handle)) = state.links.find_from(from, Link::is_up) {
            from = at.saturating_add(1);
            state.pump(&self.ports, handle, &self.options);
        }
        // A message without room waits for a pending request, whose completion sets `urgent`. If no
        // request is pending, the device refused the message; only a timer can retry it.
        state.urgent = urgent;
        let refused = |link: &Link| link.is_stuck(&self.options) && state.admits_message(link);
        if state.requests.has_room() && state.links.find(refused).is_some() {
            state.remind(now.after(REFUSED));
        }
    }

    /// Posts the receives that the device refused, and ends links that miss one too long.
    ///
    /// A link also misses a message that later ones have overtaken. After [`PATIENCE`] the link
    /// ends, unless more events may be queued (`poll_again`).
    fn tidy_receives(&self, state: &mut State, now: Instant) {
        let poll_again = core::mem::take(&mut state.poll_again);
        let mut from = 0;
        while let Some((at, handle)) = state.links.find_from(from, Link::misses) {
            from = at.saturating_add(1);
            let Some(link) = state.links.get_mut(handle) else {
                continue;
            };
            let port = self.ports.get(link.port);
            let posted = port.map(|port| link.post_receives(handle, port));
            let until = link.missing_until.or(now.after(PATIENCE));
            link.missing_until = until.filter(|_| link.misses());
            let in_vain = link.missing_until.is_some_and(|until| until <= now);
            if (in_vain && !poll_again) || posted != Some(Ok(())) {
                state.end_link(handle, now, &self.options);
            } else if link.misses() {
                state.remind(now.after(REFUSED));
            }
        }
    }

    /// Connects the imports that have no link, and starts the links that they need.
    ///
    /// Imports that were connected before go first: the exporter may give the slot of one that does
    /// not return to a new one.
    ///
    /// Spec: RSMBR-09, RSMST-05
    fn connect_imports(&self, now: Instant) -> usize {
        let again = self.connect_those(ImportState::Connected, now);
        let anew = self.connect_those(ImportState::Connecting, now);
        again.saturating_add(anew)
    }

    fn connect_those(&self, before: ImportState, now: Instant) -> usize {
        let mut handled = 0_usize;
        let mut from = 0;
        loop {
            let found = self.state.with(|state| {
                let is_candidate = |import: &Import| import.state == before && import.is_waiting();
                state.imports.find_from(from, is_candidate)
            });
            let Some((at, handle)) = found else {
                return handled;
            };
            from = at.saturating_add(1);
            let needed = self.state.with(|state| {
                let import = state.imports.get_mut(handle)?;
                if import.deadline.is_some_and(|deadline| deadline <= now) {
                    import.give_up(RsmError::RemoteNodeUnreachable);
                    let (index, node, reason) = (import.port, import.node, import.unreached);
                    state.not_reached(index, node, reason);
                    handled = handled.saturating_add(1);
                    return None;
                }
                let (index, node, deadline) = (import.port, import.node, import.deadline);
                let needs_link = import.needs_link();
                let retry_at = import.retry_at.filter(|at| *at > now);
                state.remind_in_steps(deadline, now, &self.options);
                if !needs_link {
                    return None;
                }
                if retry_at.is_some() {
                    state.remind(retry_at);
                    return None;
                }
                if let Some(link) = state.link_to(index, node) {
                    self.ask(state, link, handle);
                    handled = handled.saturating_add(1);
                    return None;
                }
                let coming = state.links.find(|link| {
                    link.port == index
                        && link.node == node
                        && link.active
                        && link.state == LinkState::Pending
                });
                coming.is_none().then_some((index, node))
            });
            if let Some((index, node)) = needed {
                handled = handled.saturating_add(1);
                if let Err(error) = self.dial(index, node, now) {
                    let limit = self.options.connect_timeout;
                    self.state.with(|state| {
                        state.retry_node(index, node, error, Unreached::NoHost, now, limit);
                    });
                }
            }
        }
    }

    /// Asks an exporter to connect an import, or to reconnect it.
    fn ask(&self, state: &mut State, link: Handle, handle: Handle) {
        let Some(import) = state.imports.get_mut(handle) else {
            return;
        };
        import.attach = Attach::Requested(link);
        let body = Body::Connect {
            import: handle.to_raw(),
            segment: import.segment,
            permission: import.permission.bits(),
            user: self.options.credentials.user,
            group: self.options.credentials.group,
            resume: import.publication,
        };
        self.tell(state, link, body);
    }

    /// Starts a link to a node.
    fn dial(&self, index: usize, node: NodeId, now: Instant) -> Result<()> {
        let port = self.ports.get(index).ok_or(RsmError::InternalError)?;
        let entry = port.node(node).ok_or(RsmError::RemoteNodeUnreachable)?;
        let prepared = self.state.with(|state| {
            let ids = state.ports.get(index).and_then(|port| port.ids());
            ids.zip(self.greeting(state, index))
        });
        let (ids, greeting) = prepared.ok_or(RsmError::ControllerNotPresent)?;
        let link = self.new_link(index, &ids, node, true)?;
        let ep = self
            .state
            .with(|state| state.links.get(link).map(|link| link.ep));
        let started = port.ia.ep_connect(
            ep.ok_or(RsmError::InternalError)?,
            &ConnectParam {
                address: entry.address,
                qualifier: entry.qualifier,
                timeout: self.options.connect_timeout.max(1),
                private_data: &greeting.encode(),
                quality: QualityOfService::BEST_EFFORT,
                flags: ConnectFlags::empty(),
            },
            now,
        );
        if let Err(error) = started {
            self.remove_link(link);
            return Err(error.into());
        }
        Ok(())
    }

    /// Frees the objects of released controllers whose links are gone.
    fn close_ports(&self) {
        for (index, port) in self.ports.iter().enumerate() {
            let objects = self.state.with(|state| {
                let linked = state.links.find(|link| link.port == index).is_some();
                let slot = state.ports.get_mut(index)?;
                if slot.references != 0 || linked {
                    return None;
                }
                let objects = slot.objects.take();
                slot.closing = objects.is_some();
                objects
            });
            if let Some(objects) = objects {
                let zone = port.close(objects);
                self.state.with(|state| {
                    let Some(slot) = state.ports.get_mut(index) else {
                        return;
                    };
                    slot.closing = false;
                    // Without memory for this entry, the zone stays until the adapter closes.
                    if let Some(zone) = zone
                        && slot.zones.try_reserve(1).is_ok()
                    {
                        slot.zones.push(zone);
                    }
                });
                self.tell_change();
            }
        }
    }
}
