//! What happens by itself: events of the adapters, connections that come and go, deadlines.

use dat_core::backend::{Backend, PRIVATE_DATA_MAX};
use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, DtoCompletion, Event};
use dat_core::flags::{CloseFlags, ConnectFlags, CrFields, DtoStatus, QualityOfService};
use dat_core::id::{CrId, EpId, EvdId};
use dat_core::sync::RawLock;
use dat_core::time::Instant;
use portable_atomic::Ordering;

use crate::controller::port::{Port, PortIds, same_host};
use crate::engine::Rsm;
use crate::engine::state::State;
use crate::engine::wait::earliest;
use crate::error::{Result, RsmError};
use crate::id::Handle;
use crate::import::{Attach, Import, ImportState};
use crate::link::wire::{Body, Greeting, MESSAGE_SIZE, Rejection};
use crate::link::{Link, LinkState, PATIENCE};
use crate::options::NodeId;

/// Events of one dispatcher that one call handles, so that its time is bounded.
const EVENTS_PER_CALL: usize = 64;

/// Rounds that one call makes for others that came meanwhile, so that its time is bounded.
const ROUNDS_PER_CALL: usize = 8;

/// Microseconds after which what the device refused is posted again, messages and places for them.
const REFUSED: u32 = 1_000;

/// Nobody makes progress.
pub(crate) const IDLE: u8 = 0;
/// Somebody does.
const UNDER_WAY: u8 = 1;
/// Somebody does, or is about to, and has to look at everything once more.
const ASKED_AGAIN: u8 = 2;

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Takes in what happened since the last call: transfers that ended, messages, connections that came and went, and
    /// what is due by `now`. Says how many things it did; call it again while that is not 0.
    ///
    /// Blocking calls do so themselves while they wait. Whoever exports must see to it that somebody does so all the
    /// time, or importers wait for an answer. If another thread is at it this returns 0 at once, and that
    /// thread looks at everything once more.
    pub fn progress(&self, now: Instant) -> usize {
        // Whoever finds another at it may have been woken by what that one has passed already.
        if self.turn.swap(ASKED_AGAIN, Ordering::AcqRel) != IDLE {
            return 0;
        }
        let mut handled = 0_usize;
        for _ in 0..ROUNDS_PER_CALL {
            // Before the look: it sees what was there for whoever asked until now.
            self.turn.swap(UNDER_WAY, Ordering::AcqRel);
            handled = handled.saturating_add(self.round(now));
            if self.turn.load(Ordering::Acquire) == UNDER_WAY {
                break;
            }
        }
        self.end_turn();
        if handled != 0 {
            self.tell_change();
        }
        handled
    }

    /// Waits until nobody else makes progress, and keeps others from it until [`end_turn`](Self::end_turn).
    pub(crate) fn begin_turn(&self) {
        let begins = || {
            self.turn
                .compare_exchange(IDLE, UNDER_WAY, Ordering::AcqRel, Ordering::Acquire)
        };
        while begins().is_err() {
            core::hint::spin_loop();
        }
    }

    /// Lets others make progress; those who found no turn and sleep by now look again.
    pub(crate) fn end_turn(&self) {
        if self.turn.swap(IDLE, Ordering::AcqRel) == ASKED_AGAIN {
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

    /// When `progress` has something to do even if nothing else happens.
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
        // Ends of transfers before ends of connections, so that a failed entry is known by its own status.
        for evd in [ids.completions, ids.receives, ids.connections, ids.arrivals] {
            let mut taken = 0;
            while taken < EVENTS_PER_CALL
                && let Ok(event) = port.ia.evd_dequeue(evd)
            {
                taken = taken.saturating_add(1);
                self.take_in(index, &ids, evd, &event, now);
            }
            handled = handled.saturating_add(taken);
            if taken == EVENTS_PER_CALL {
                self.state.with(|state| state.behind = true);
            }
        }
        handled
    }

    fn take_in(&self, index: usize, ids: &PortIds, evd: EvdId, event: &Event, now: Instant) {
        match *event {
            Event::Dto(completion) if evd == ids.receives => {
                self.message_arrived(index, &completion, now);
            }
            Event::Dto(completion) => self.state.with(|state| {
                let request = Handle::from_raw(completion.cookie);
                state.request_ended(request, completion.status);
                if completion.status != DtoStatus::Success {
                    // The core ends the connection; nobody posts to it any more.
                    let link = state
                        .links
                        .find(|link| link.port == index && link.ep == completion.ep);
                    if let Some(link) = link {
                        state.end_link(link, now, &self.options);
                    }
                }
            }),
            // Only the peer can bring that about, and the protocol has no such thing: nothing it says later can be trusted.
            Event::Extended(completion) => self.state.with(|state| {
                let link = state
                    .links
                    .find(|link| link.port == index && link.ep == completion.ep);
                if let Some(link) = link {
                    state.end_link(link, now, &self.options);
                }
            }),
            Event::ConnectionRequest { cr, .. } => self.arrived(index, ids, cr, now),
            Event::Connection { kind, ep, .. } => self.connection_changed(index, kind, ep, now),
            Event::Async { .. } | Event::RmrBind(_) | Event::Software { .. } => {}
        }
    }

    /// What this node says of itself through a port.
    fn greeting(&self, state: &State, index: usize) -> Option<Greeting> {
        let objects = state.ports.get(index)?.objects.as_ref()?;
        let word = objects.flush_word.as_ref()?;
        Some(Greeting {
            node: self.options.node,
            incarnation: self.options.incarnation,
            flush_address: word.address(),
            flush_key: word.remote_key(),
            credits: self.options.credits.clamp(1, 60),
            big_endian: cfg!(target_endian = "big"),
        })
    }

    /// A node asks for a connection: it is who it says it is, by its address, or it is refused.
    fn arrived(&self, index: usize, ids: &PortIds, cr: CrId, now: Instant) {
        let Some(port) = self.ports.get(index) else {
            return;
        };
        if let Err(error) = self.accept(index, ids, cr, now) {
            // A request that is gone needs no refusal.
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

    /// Sees to it that a node has room for a link within its share.
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

    /// Makes a link with its endpoint and its memory, and posts the receives.
    fn new_link(&self, index: usize, ids: &PortIds, node: NodeId, active: bool) -> Result<Handle> {
        let port = self.ports.get(index).ok_or(RsmError::InternalError)?;
        let ep = ids.endpoint(port)?;
        let made = Link::new(index, port, ids.pz, ep, node, active, &self.options);
        let inserted = made.and_then(|mut link| {
            // Its memory is registered: it must not go with a link that finds no place.
            let mut block = link.take_block();
            let handle = self.state.with(|state| {
                let handle = state.links.insert(link)?;
                if let Some(place) = state.links.get_mut(handle) {
                    place.give_block(block.take());
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

    /// Takes a link apart. Its requests that have not come back never will.
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
        // Refused where there is nothing to disconnect.
        let _idle = port.ia.ep_disconnect(ep, CloseFlags::Abrupt);
        let _freed = port.ia.ep_free(ep);
        let block = self.state.with(|state| {
            let mut place = 0;
            while let Some((at, request)) = state
                .requests
                .find_from(place, |request| request.link == handle)
            {
                state.request_ended(request, DtoStatus::Flushed);
                place = at;
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
            let why = self.why_rejected(index, kind, ep);
            self.state.with(|state| {
                state.end_link(handle, now, &self.options);
                if active && before == LinkState::Pending {
                    give_up_node(state, index, node, why);
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
                // Whoever answered does not speak the protocol, or is another node.
                state.end_link(handle, now, &self.options);
                if active {
                    give_up_node(state, index, node, RsmError::RemoteNodeUnreachable);
                }
                return;
            };
            link.state = LinkState::Up;
            link.probe_at = match self.options.probe_interval {
                0 => None,
                interval => now.after(interval),
            };
            // Connections to an earlier life of the node do not come back (RSMST-03).
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
    }

    fn peer_greeting(&self, index: usize, ep: EpId) -> Option<Greeting> {
        Greeting::decode(&self.private_data(index, ep)?).ok()
    }

    /// Why a link that was asked for did not come to be: the node has no room for it, or cannot be reached.
    fn why_rejected(&self, index: usize, kind: ConnectionEventKind, ep: EpId) -> RsmError {
        let said = match kind {
            ConnectionEventKind::PeerRejected => self.private_data(index, ep),
            _ => None,
        };
        let rejection = said.and_then(|said| Rejection::decode(&said).ok());
        match rejection {
            Some(Rejection {
                error: RsmError::InsufficientResources,
            }) => RsmError::InsufficientResources,
            _ => RsmError::RemoteNodeUnreachable,
        }
    }

    /// What a peer said when it accepted or rejected a connection, and zeros.
    fn private_data(&self, index: usize, ep: EpId) -> Option<[u8; PRIVATE_DATA_MAX]> {
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
                .filter(|(place, _)| *place as u64 == cookie >> 8)?;
            if completion.status != DtoStatus::Success {
                return None;
            }
            let link = state.links.get_mut(handle)?;
            // Of a shorter message the rest would be what came to its place before.
            let is_whole = completion.transferred_length == MESSAGE_SIZE as u64;
            if !is_whole || link.message_came((cookie & 0xFF) as usize).is_err() {
                state.end_link(handle, now, &self.options);
            }
            state.urgent = true;
            Some(handle)
        });
        while let Some((link, body)) =
            came.and_then(|link| Some((link, self.next_message(link, port, now)?)))
        {
            self.heard(index, link, body);
        }
    }

    /// Takes in the next message of a link, if it has come.
    fn next_message(&self, handle: Handle, port: &Port<'_, B, L>, now: Instant) -> Option<Body> {
        self.state.with(|state| {
            let link = state.links.get_mut(handle)?;
            if link.state == LinkState::Over {
                return None;
            }
            let incarnation = link.peer.map(|peer| peer.incarnation);
            let message = match link.take_message(handle, port) {
                Ok(None) => return None,
                Ok(Some(bytes)) => crate::link::wire::Message::decode(&bytes).ok(),
                Err(_) => None,
            };
            let message = message.filter(|message| Some(message.incarnation) == incarnation);
            if let Some(message) = &message {
                link.account(message);
            }
            if message.is_none() || link.is_clogged(&self.options) {
                // The peer does not keep to the protocol: nothing it says later can be trusted.
                state.end_link(handle, now, &self.options);
                return None;
            }
            message.map(|message| message.body)
        })
    }

    /// Puts in order what the last events left behind.
    fn tidy(&self, now: Instant) -> usize {
        let mut handled = 0_usize;
        self.state.with(|state| {
            state.urgent = false;
            state.due = None;
        });
        // Links that are over.
        let mut place = 0;
        loop {
            let found = self.state.with(|state| {
                state
                    .links
                    .find_from(place, |link| link.state == LinkState::Over)
            });
            let Some((at, handle)) = found else {
                break;
            };
            place = at.saturating_add(1);
            let drained = self.state.with(|state| {
                let link = state.links.get(handle)?;
                let late = link.drain_until.is_none_or(|until| until <= now);
                let until = link.drain_until;
                if link.requests == 0 || late {
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
            let mut place = 0;
            while let Some((at, handle)) = state
                .importers
                .find_from(place, |importer| importer.until.is_some())
            {
                place = at.saturating_add(1);
                let until = state
                    .importers
                    .get(handle)
                    .and_then(|importer| importer.until);
                if until.is_some_and(|until| until <= now) {
                    state.importers.remove(handle);
                } else {
                    state.remind(until);
                }
            }
        });
        handled = handled.saturating_add(self.connect_imports(now));
        self.state.with(|state| {
            self.tidy_messages(state, now);
            if self.options.probe_interval != 0 {
                state.probe(&self.ports, now, self.options.probe_interval);
            }
        });
        self.close_ports();
        handled
    }

    /// Says what is due to be said.
    fn tidy_messages(&self, state: &mut State, now: Instant) {
        let mut place = 0;
        while let Some((at, handle)) = state.imports.find_from(place, |import| {
            import
                .acknowledge
                .is_some_and(|acknowledge| import.finished >= acknowledge.after)
        }) {
            place = at.saturating_add(1);
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
        let mut place = 0;
        while let Some((at, handle)) = state.links.find_from(place, Link::is_up) {
            place = at.saturating_add(1);
            state.pump(&self.ports, handle, &self.options);
        }
        // A message that finds no room waits for a request to come back, which is a reminder of its own. Where none is on
        // the way the device refused it, and nothing else would remind of it.
        state.urgent = urgent;
        let refused = |link: &Link| link.is_stuck(&self.options) && state.admits_message(link);
        if state.requests.has_room() && state.links.find(refused).is_some() {
            state.remind(now.after(REFUSED));
        }
    }

    /// Posts places for messages that the device did not take. A link that misses one, or a message that others have overtaken, for too long
    /// will not hear of it any more, and is over; unless it is only that nobody has looked at all there is.
    fn tidy_receives(&self, state: &mut State, now: Instant) {
        let behind = core::mem::take(&mut state.behind);
        let mut place = 0;
        while let Some((at, handle)) = state.links.find_from(place, Link::misses) {
            place = at.saturating_add(1);
            let Some(link) = state.links.get_mut(handle) else {
                continue;
            };
            let port = self.ports.get(link.port);
            let posted = port.map(|port| link.post_receives(handle, port));
            let until = link.missing_until.or(now.after(PATIENCE));
            link.missing_until = until.filter(|_| link.misses());
            let in_vain = link.missing_until.is_some_and(|until| until <= now);
            if (in_vain && !behind) || posted != Some(Ok(())) {
                state.end_link(handle, now, &self.options);
            } else if link.misses() {
                state.remind(now.after(REFUSED));
            }
        }
    }

    /// Asks for connections that are on no link, and for links for them. Those that were connected before come first: the
    /// exporter may give the place of one that does not come back to a new one.
    ///
    /// Spec: RSMBR-09, RSMST-05
    fn connect_imports(&self, now: Instant) -> usize {
        let again = self.connect_those(ImportState::Connected, now);
        let anew = self.connect_those(ImportState::Connecting, now);
        again.saturating_add(anew)
    }

    fn connect_those(&self, before: ImportState, now: Instant) -> usize {
        let mut handled = 0_usize;
        let mut place = 0;
        loop {
            let found = self.state.with(|state| {
                let wanted = |import: &Import| import.state == before && import.is_waiting();
                state.imports.find_from(place, wanted)
            });
            let Some((at, handle)) = found else {
                return handled;
            };
            place = at.saturating_add(1);
            let needed = self.state.with(|state| {
                let import = state.imports.get_mut(handle)?;
                if import.deadline.is_some_and(|deadline| deadline <= now) {
                    import.give_up(RsmError::RemoteNodeUnreachable);
                    handled = handled.saturating_add(1);
                    return None;
                }
                let (index, node, deadline) = (import.port, import.node, import.deadline);
                let looking = import.is_looking();
                state.remind(deadline);
                if !looking {
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
                    self.state
                        .with(|state| give_up_node(state, index, node, error));
                }
            }
        }
    }

    /// Asks an exporter to be connected, or connected again.
    fn ask(&self, state: &mut State, link: Handle, handle: Handle) {
        let Some(import) = state.imports.get_mut(handle) else {
            return;
        };
        import.attach = Attach::Asked(link);
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

    /// Frees what released controllers had, once their links are gone.
    fn close_ports(&self) {
        for (index, port) in self.ports.iter().enumerate() {
            let objects = self.state.with(|state| {
                let linked = state.links.find(|link| link.port == index).is_some();
                let place = state.ports.get_mut(index)?;
                if place.references != 0 || linked {
                    return None;
                }
                let objects = place.objects.take();
                place.closing = objects.is_some();
                objects
            });
            if let Some(objects) = objects {
                let zone = port.close(objects);
                self.state.with(|state| {
                    let Some(place) = state.ports.get_mut(index) else {
                        return;
                    };
                    place.closing = false;
                    // Without memory to remember it the zone goes with the adapter.
                    if let Some(zone) = zone
                        && place.zones.try_reserve(1).is_ok()
                    {
                        place.zones.push(zone);
                    }
                });
                self.tell_change();
            }
        }
    }
}

/// A node cannot be reached: whoever waits to be connected to it does so in vain.
fn give_up_node(state: &mut State, index: usize, node: NodeId, why: RsmError) {
    for (_, import) in state.imports.iter_mut() {
        if import.port == index && import.node == node && import.is_looking() {
            import.give_up(why);
        }
    }
}
