//! Connections between nodes, which all segments share.

pub(crate) mod block;
mod heard;
pub mod wire;

use alloc::collections::VecDeque;

use dat_core::backend::Backend;
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use dat_core::id::{EpId, PzId};
use dat_core::sync::{RawLock, load_bytes, store_bytes};
use dat_core::time::Instant;

use crate::controller::port::{Port, receives};
use crate::engine::state::State;
use crate::error::{Result, RsmError};
use crate::id::Handle;
use crate::import::Attach;
use crate::link::block::Block;
use crate::link::wire::{Body, Greeting, MESSAGE_SIZE, Message};
use crate::options::{NodeId, Options};
use crate::transfer::flight::{Owner, Request, Step};

/// Answers that may wait for credits. A peer that asks and lets more gather does not speak the protocol.
const ANSWERS_LIMIT: usize = 256;

/// The life of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// Asked for, or accepted, but not established.
    Pending,
    /// In use.
    Up,
    /// Over; requests may still come back.
    Over,
}

/// A message that waits for a credit.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    body: Body,
    import: Handle,
    /// The call that wants to know when it ended.
    told: Handle,
    /// How often it is to be said.
    times: u32,
}

/// A connection to a node.
pub(crate) struct Link {
    pub(crate) port: usize,
    pub(crate) node: NodeId,
    pub(crate) state: LinkState,
    pub(crate) ep: EpId,
    /// Whether this side asked for it.
    pub(crate) active: bool,
    /// What the peer said of itself; always there when the link is up.
    pub(crate) peer: Option<Greeting>,
    /// Requests on the way, messages included.
    pub(crate) requests: u32,
    /// When it is tried whether the peer is there; `None` is never.
    pub(crate) probe_at: Option<Instant>,
    /// When an ended link is taken apart though requests are missing.
    pub(crate) drain_until: Option<Instant>,
    /// Messages and nothing else, received ones first.
    block: Option<Block>,
    slots: usize,
    /// Messages that may be sent.
    credits: u32,
    /// Messages taken in that the peer has not been told of.
    owed: u16,
    /// Places in which a message is that was not taken in.
    arrived: u64,
    /// The place of the next message: the device fills them in turn.
    next: usize,
    /// Places before that one, in turn, which the device has not got.
    unposted: usize,
    /// When a message that others have overtaken, or a place for one, has been missing too long.
    pub(crate) missing_until: Option<Instant>,
    /// Places for messages to be sent.
    free: u64,
    outbox: VecDeque<Waiting>,
}

impl Link {
    /// A link over an endpoint; its receives are to be posted.
    pub(crate) fn new<B: Backend, L: RawLock>(
        index: usize,
        port: &Port<'_, B, L>,
        pz: PzId,
        ep: EpId,
        node: NodeId,
        active: bool,
        options: &Options,
    ) -> Result<Self> {
        let slots = usize::try_from(receives(options)).unwrap_or(1);
        let local = MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE;
        let block = Block::new(&port.ia, pz, slots.saturating_mul(2 * MESSAGE_SIZE), local)?;
        Ok(Self {
            port: index,
            node,
            state: LinkState::Pending,
            ep,
            active,
            peer: None,
            requests: 0,
            probe_at: None,
            drain_until: None,
            block: Some(block),
            slots,
            credits: 0,
            owed: 0,
            arrived: 0,
            next: 0,
            unposted: slots,
            missing_until: None,
            free: u64::MAX >> 64_usize.saturating_sub(slots).min(63),
            outbox: VecDeque::new(),
        })
    }

    pub(crate) fn is_up(&self) -> bool {
        self.state == LinkState::Up
    }

    /// What the peer says of itself is known from here on.
    pub(crate) fn meet(&mut self, peer: Greeting) {
        self.credits = u32::from(peer.credits);
        self.peer = Some(peer);
    }

    fn post_receive<B: Backend, L: RawLock>(
        &self,
        link: Handle,
        slot: usize,
        port: &Port<'_, B, L>,
    ) -> Result<()> {
        let block = self.block.as_ref().ok_or(RsmError::InternalError)?;
        let piece = block.piece(slot.wrapping_mul(MESSAGE_SIZE), MESSAGE_SIZE);
        let cookie = (link.index() as u64) << 8 | slot as u64;
        Ok(port
            .ia
            .post_recv(self.ep, &[piece], cookie, CompletionFlags::empty())?)
    }

    /// A message is in a place. The device may tell of it before those that were sent earlier.
    pub(crate) fn message_came(&mut self, slot: usize) -> Result<()> {
        let place = 1_u64.checked_shl(slot as u32).filter(|_| slot < self.slots);
        let place = place.ok_or(RsmError::InternalError)?;
        self.arrived |= place;
        Ok(())
    }

    /// Copies the next message out, in the order in which they were sent, and posts its place again if the device takes it; `None` if it has
    /// not come.
    pub(crate) fn take_message<B: Backend, L: RawLock>(
        &mut self,
        link: Handle,
        port: &Port<'_, B, L>,
    ) -> Result<Option<[u8; MESSAGE_SIZE]>> {
        let place = 1_u64.checked_shl(self.next as u32).unwrap_or(0);
        if self.arrived & place == 0 {
            return Ok(None);
        }
        let block = self.block.as_ref().ok_or(RsmError::InternalError)?;
        let mut bytes = [0; MESSAGE_SIZE];
        let from = block.bytes().get(self.next.wrapping_mul(MESSAGE_SIZE)..);
        load_bytes(from.unwrap_or_default(), &mut bytes);
        self.arrived &= !place;
        self.next = self.in_turn(1);
        self.missing_until = None;
        self.unposted = self.unposted.saturating_add(1);
        self.post_receives(link, port)?;
        Ok(Some(bytes))
    }

    /// The place so many behind the next one.
    fn in_turn(&self, behind: usize) -> usize {
        let place = self.next.saturating_add(behind);
        place.checked_rem(self.slots).unwrap_or(0)
    }

    /// Posts the places in which no message is, as far as the device takes them; `link` is where this lives.
    pub(crate) fn post_receives<B: Backend, L: RawLock>(
        &mut self,
        link: Handle,
        port: &Port<'_, B, L>,
    ) -> Result<()> {
        while self.unposted != 0 {
            let first = self.in_turn(self.slots.saturating_sub(self.unposted));
            match self.post_receive(link, first, port) {
                Ok(()) => self.unposted = self.unposted.saturating_sub(1),
                Err(RsmError::InsufficientResources) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether a message has not come that others have overtaken, or the device has not got all places.
    pub(crate) fn misses(&self) -> bool {
        self.state != LinkState::Over && (self.arrived != 0 || self.unposted != 0)
    }

    /// Counts what a message says of credits, and what it took.
    pub(crate) fn account(&mut self, message: &Message) {
        self.credits = self.credits.saturating_add(u32::from(message.credits));
        if message.body != Body::Credit {
            self.owed = self.owed.saturating_add(1);
        }
    }

    /// Messages that the peer may be told it can send again: for each one there is a place. A missing place for a message without a credit holds
    /// one back as well; where there is none to hold back, the device of the peer asks again.
    fn returns(&self) -> u16 {
        let unposted = u16::try_from(self.unposted).unwrap_or(u16::MAX);
        self.owed.saturating_sub(unposted)
    }

    /// Whether the endpoint takes a transfer more; the last places are for messages.
    pub(crate) fn takes_transfer(&self, most: u32) -> bool {
        self.is_up() && self.requests < most
    }

    /// Whether a message would go out at once.
    pub(crate) fn has_room(&self) -> bool {
        self.is_up() && self.outbox.is_empty() && self.credits > 0 && self.free != 0
    }

    /// Whether the peer may be told something, and nothing is on the way there whose end would remind of it.
    pub(crate) fn is_stuck(&self, options: &Options) -> bool {
        let says = self.credits > 0 && !self.outbox.is_empty();
        self.is_up() && self.requests == 0 && (says || self.returns() >= low(options))
    }

    /// Whether more answers wait than any peer that keeps the protocol lets gather. What this side says by itself is
    /// bounded by its own tables, and is no fault of the peer.
    pub(crate) fn is_clogged(&self, options: &Options) -> bool {
        let (mut answers, mut ends) = (0_usize, 0_usize);
        for waiting in &self.outbox {
            match waiting.body {
                Body::Accept { .. } | Body::Refuse { .. } | Body::Acknowledge { .. } => {
                    answers = answers.saturating_add(1);
                }
                // Said to answer what nobody asked for, and for each connection that ends.
                Body::Disconnect { .. } => ends = ends.saturating_add(1),
                _ => {}
            }
        }
        answers > ANSWERS_LIMIT || ends > options.limits.imports.saturating_add(ANSWERS_LIMIT)
    }

    /// Puts a message with others that wait, so that no more gather than there are connections: signals to all
    /// importers of a publication are counted, and of the bindings of a connection only the last matters.
    fn gather(&mut self, waiting: Waiting) {
        let place = self.outbox.iter_mut().find(|other| match other.body {
            Body::SignalImporters { .. } => other.body == waiting.body,
            Body::Rebind { importer, .. } => {
                matches!(waiting.body, Body::Rebind { importer: same, .. } if same == importer)
            }
            _ => false,
        });
        match place {
            Some(place) if place.body == waiting.body => {
                if matches!(place.body, Body::SignalImporters { .. }) {
                    place.times = place.times.saturating_add(1);
                }
            }
            Some(place) => place.body = waiting.body,
            None => self.outbox.push_back(waiting),
        }
    }

    /// Messages on the way.
    pub(crate) fn messages(&self) -> usize {
        self.slots.saturating_sub(self.free.count_ones() as usize)
    }

    /// A place for messages is free again.
    pub(crate) fn release(&mut self, slot: u8) {
        self.free |= 1_u64.checked_shl(u32::from(slot)).unwrap_or(0);
    }

    /// Gives a link its memory.
    pub(crate) fn give_block(&mut self, block: Option<Block>) {
        self.block = block;
    }

    /// Takes the memory of a link.
    pub(crate) fn take_block(&mut self) -> Option<Block> {
        self.block.take()
    }
}

impl State {
    /// Says something to a peer, as soon as it may be said. `told` is the call that wants to know of the end.
    pub(crate) fn say<B: Backend, L: RawLock>(
        &mut self,
        ports: &[Port<'_, B, L>],
        link: Handle,
        body: Body,
        import: Handle,
        told: Handle,
        options: &Options,
    ) {
        // A peer may speak before the connection is reported here; the answer waits for that.
        let over = LinkState::Over;
        let Some(place) = self.links.get_mut(link).filter(|link| link.state != over) else {
            return;
        };
        place.gather(Waiting {
            body,
            import,
            told,
            times: 1,
        });
        self.pump(ports, link, options);
    }

    /// Sends what may be sent.
    pub(crate) fn pump<B: Backend, L: RawLock>(
        &mut self,
        ports: &[Port<'_, B, L>],
        handle: Handle,
        options: &Options,
    ) {
        loop {
            let Some(link) = self.links.get(handle).filter(|link| link.is_up()) else {
                return;
            };
            let Some(port) = ports.get(link.port) else {
                return;
            };
            let waiting = if link.credits > 0 {
                link.outbox.front().copied()
            } else {
                None
            };
            // Credits go with whatever is sent, or alone when the peer might run out.
            let waiting = match waiting {
                Some(waiting) => waiting,
                None if link.returns() >= low(options) => Waiting {
                    body: Body::Credit,
                    import: Handle::NULL,
                    told: Handle::NULL,
                    times: 1,
                },
                None => return,
            };
            if link.free == 0 || !self.requests.has_room() || !self.admits_message(link) {
                self.urgent = true;
                return;
            }
            let slot = link.free.trailing_zeros() as u8;
            let credits = link.returns();
            let message = Message {
                incarnation: options.incarnation,
                credits,
                body: waiting.body,
            };
            let place = link
                .slots
                .saturating_add(usize::from(slot))
                .wrapping_mul(MESSAGE_SIZE);
            let Some(block) = link.block.as_ref() else {
                return;
            };
            store_bytes(
                block.bytes().get(place..).unwrap_or_default(),
                &message.encode(),
            );
            let piece = block.piece(place, MESSAGE_SIZE);
            let (ep, is_credit) = (link.ep, waiting.body == Body::Credit);
            let Some(request) = self.requests.insert(Request {
                owner: Owner::Message { slot },
                link: handle,
                import: waiting.import,
                local: None,
                told: waiting.told,
            }) else {
                return;
            };
            // Behind a fence: a signal must not overtake reads that its vector began.
            let flags = CompletionFlags::BARRIER_FENCE;
            let posted = port.ia.post_send(ep, &[piece], request.to_raw(), flags);
            if posted.is_err() {
                // No room among the requests: when one comes back, this is tried again.
                self.requests.remove(request);
                self.urgent = true;
                return;
            }
            let Some(link) = self.links.get_mut(handle) else {
                return;
            };
            link.free &= !(1_u64.checked_shl(u32::from(slot)).unwrap_or(0));
            link.owed = link.owed.saturating_sub(credits);
            link.requests = link.requests.saturating_add(1);
            if !is_credit {
                link.credits = link.credits.saturating_sub(1);
                if let Some(first) = link.outbox.front_mut() {
                    first.times = first.times.saturating_sub(1);
                }
                if link.outbox.front().is_some_and(|first| first.times == 0) {
                    link.outbox.pop_front();
                }
            }
            if let Some(flight) = self.flights.get_mut(waiting.told) {
                flight.pending = flight.pending.saturating_add(1);
            }
        }
    }

    /// A link is over: nobody uses it any more, and whoever was connected through it has to be connected again.
    ///
    /// Spec: RSMBR-09
    pub(crate) fn end_link(&mut self, handle: Handle, now: Instant, options: &Options) {
        let Some(link) = self.links.get_mut(handle) else {
            return;
        };
        if link.state == LinkState::Over {
            return;
        }
        link.state = LinkState::Over;
        link.drain_until = now.after(DRAIN);
        let unsaid = core::mem::take(&mut link.outbox);
        let due = link.drain_until;
        for waiting in unsaid {
            if let Some(flight) = self.flights.get_mut(waiting.told) {
                flight.step = Step::Failed(DtoStatus::Flushed);
            }
        }
        let limit = now.after(options.connect_timeout);
        for (_, import) in self.imports.iter_mut() {
            if import.attach.link() == Some(handle) {
                import.attach = Attach::Detached;
                import.deadline = import.deadline.or(limit);
                import.error_epoch = import.error_epoch.wrapping_add(1);
                import.acknowledge = None;
            }
        }
        // Connections to what this node exports are remembered for as long as their importers may take to come back.
        let until = now.after(options.connect_timeout.saturating_mul(2));
        for (_, importer) in self.importers.iter_mut() {
            if importer.link == handle {
                importer.link = Handle::NULL;
                importer.awaited = false;
                importer.until = until;
            }
        }
        self.remind(until);
        self.remind(None);
        self.remind(due);
    }

    /// A request came back, or will not come back.
    pub(crate) fn request_ended(&mut self, cookie: Handle, status: DtoStatus) {
        let Some(request) = self.requests.remove(cookie) else {
            return;
        };
        if let Some(link) = self.links.get_mut(request.link) {
            link.requests = link.requests.saturating_sub(1);
            if let Owner::Message { slot } = request.owner {
                link.release(slot);
            }
            if status != DtoStatus::Success || link.state == LinkState::Over {
                self.urgent = true;
            }
            // What a peer asked for may wait on its other links for the end of a message on this one.
            if !link.active || !link.outbox.is_empty() || link.owed > 0 {
                self.urgent = true;
            }
        }
        if let Some(local) = request.local
            && let Some(local) = self.locals.get_mut(local.handle())
        {
            local.users = local.users.saturating_sub(1);
        }
        let is_transfer = !matches!(request.owner, Owner::Message { .. });
        if is_transfer && let Some(import) = self.imports.get_mut(request.import) {
            import.finished = import.finished.wrapping_add(1);
            if status != DtoStatus::Success {
                import.error_epoch = import.error_epoch.wrapping_add(1);
                import.failures = import.failures.wrapping_add(1);
            }
            if import.acknowledge.is_some() {
                self.urgent = true;
            }
        }
        match request.owner {
            Owner::Entry {
                flight,
                index,
                last,
            } => {
                if let Some(flight) = self.flights.get_mut(flight) {
                    flight.ended(index, last, status);
                }
            }
            Owner::Flush { flight, covers } => {
                if status == DtoStatus::Success
                    && let Some(import) = self.imports.get_mut(request.import)
                {
                    import.flushed = import.flushed.max(covers);
                }
                if let Some(flight) = self.flights.get_mut(flight) {
                    flight.stepped(status);
                }
            }
            Owner::Message { .. } => {
                if let Some(flight) = self.flights.get_mut(request.told) {
                    flight.stepped(status);
                }
            }
            Owner::Span | Owner::Probe => {}
        }
    }
}

/// Messages taken in that the peer is told of by themselves, if nothing else is said.
fn low(options: &Options) -> u16 {
    options.credits.clamp(1, 60).div_ceil(2)
}

/// Microseconds that an ended link waits for its requests to come back.
const DRAIN: u32 = 50_000;

/// Microseconds after which what a link misses will not come.
pub(crate) const PATIENCE: u32 = 50_000;
