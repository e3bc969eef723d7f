//! Links: connections between nodes, shared by all segments.

pub(crate) mod maintenance;
pub(crate) mod receive;

use alloc::collections::VecDeque;

use dat_core::backend::Backend;
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use dat_core::id::{EpId, PzId};
use dat_core::sync::{RawLock, load_bytes, store_bytes};
use dat_core::time::Instant;

use self::maintenance::{LastQuestions, Maintenance};
use crate::age::{Watch, looks_for};
use crate::block::Block;
use crate::engine::state::State;
use crate::error::{Result, RsmError};
use crate::flight::{Owner, Request, Step};
use crate::id::{Handle, NodeId};
use crate::import::Attach;
use crate::options::Options;
use crate::port::{Port, receives};
use crate::wire::{Body, Greeting, MESSAGE_SIZE, Message};

/// Most answers that may wait for credits; a peer that causes more violates the protocol.
const ANSWERS_LIMIT: usize = 256;

/// State of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// Requested or accepted, not established.
    Pending,
    /// In use.
    Up,
    /// Ended; requests may still complete.
    Over,
}

/// A message that waits for a credit.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Number among the queued messages of the link.
    number: u64,
    body: Body,
    import: Handle,
    /// Flight to notify of the completion; null for none.
    flight: Handle,
    /// Number of times to send it.
    times: u32,
}

/// A link: a connection to a node.
pub(crate) struct Link {
    pub(crate) port: usize,
    pub(crate) node: NodeId,
    pub(crate) state: LinkState,
    pub(crate) ep: EpId,
    /// True if this side asked for the link.
    pub(crate) active: bool,
    /// Greeting of the peer; always present while the link is up.
    pub(crate) peer: Option<Greeting>,
    /// Pending requests, including messages.
    pub(crate) requests: u32,
    /// Bytes of the pending transfers.
    pub(crate) bytes: u64,
    /// Number of requests that have ended, of messages queued, and of those sent.
    ended: u64,
    queued: u64,
    sent: u64,
    /// Watches the requests.
    request_watch: Watch,
    /// Number of requests that were posted up to the last message that took a credit.
    last_message: u64,
    /// Set if a call's signal waits for a credit.
    pub(crate) is_wanted: bool,
    /// Watches the credits that messages and signals wait for.
    credit_watch: Watch,
    /// Time of the next probe; `None` is never.
    pub(crate) probe_at: Option<Instant>,
    /// Time at which an ended link is removed even with pending requests.
    pub(crate) drain_until: Option<Instant>,
    /// Message buffers: those of the receives, then those of the sends.
    block: Option<Block>,
    slots: usize,
    /// Messages that this side may send.
    credits: u32,
    /// Messages taken whose credits the peer does not have back yet.
    pending_credits: u16,
    /// Receive slots with a message that is not taken yet, as bits.
    arrived: u64,
    /// Slot of the next message; the device fills the slots in ring order.
    next: usize,
    /// Number of slots before `next`, in ring order, that are not posted.
    unposted: usize,
    /// Time limit for an overtaken message or an unposted slot; then the link ends.
    pub(crate) missing_until: Option<Instant>,
    /// Range of a segment here that is synchronised before the next message is taken.
    pub(crate) maintenance: Option<Maintenance>,
    /// Questions among the last messages; `None` until the link ends.
    pub(crate) last_questions: Option<LastQuestions>,
    /// Free send slots, as bits.
    free: u64,
    outbox: VecDeque<Waiting>,
}

impl Link {
    /// Makes a link over an endpoint; the caller must post its receives.
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
            bytes: 0,
            ended: 0,
            queued: 0,
            sent: 0,
            request_watch: Watch::default(),
            last_message: 0,
            is_wanted: false,
            credit_watch: Watch::default(),
            probe_at: None,
            drain_until: None,
            block: Some(block),
            slots,
            credits: 0,
            pending_credits: 0,
            arrived: 0,
            next: 0,
            unposted: slots,
            missing_until: None,
            maintenance: None,
            last_questions: None,
            free: u64::MAX >> 64_usize.saturating_sub(slots).min(63),
            outbox: VecDeque::new(),
        })
    }

    pub(crate) fn is_up(&self) -> bool {
        self.state == LinkState::Up
    }

    /// Stores the peer's greeting and its credits.
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
        let triplet = block.triplet(slot.wrapping_mul(MESSAGE_SIZE), MESSAGE_SIZE);
        let cookie = (link.index() as u64) << 8 | slot as u64;
        Ok(port
            .ia
            .post_recv(self.ep, &[triplet], cookie, CompletionFlags::empty())?)
    }

    /// Notes a message in a slot; the device may report it before earlier ones.
    pub(crate) fn message_came(&mut self, slot: usize) -> Result<()> {
        let bit = 1_u64.checked_shl(slot as u32).filter(|_| slot < self.slots);
        let bit = bit.ok_or(RsmError::InternalError)?;
        self.arrived |= bit;
        Ok(())
    }

    /// Copies out the next message in sending order; `None` if it has not arrived.
    ///
    /// Then posts its slot again, if the device accepts it.
    pub(crate) fn take_message<B: Backend, L: RawLock>(
        &mut self,
        link: Handle,
        port: &Port<'_, B, L>,
    ) -> Result<Option<[u8; MESSAGE_SIZE]>> {
        let bit = 1_u64.checked_shl(self.next as u32).unwrap_or(0);
        if self.arrived & bit == 0 {
            return Ok(None);
        }
        let block = self.block.as_ref().ok_or(RsmError::InternalError)?;
        let mut bytes = [0; MESSAGE_SIZE];
        let from = block.bytes().get(self.next.wrapping_mul(MESSAGE_SIZE)..);
        load_bytes(from.unwrap_or_default(), &mut bytes);
        self.arrived &= !bit;
        self.next = self.in_turn(1);
        self.missing_until = None;
        self.unposted = self.unposted.saturating_add(1);
        self.post_receives(link, port)?;
        Ok(Some(bytes))
    }

    /// Returns the slot at a distance after the next one, in ring order.
    fn in_turn(&self, offset: usize) -> usize {
        let slot = self.next.saturating_add(offset);
        slot.checked_rem(self.slots).unwrap_or(0)
    }

    /// Posts the empty receive slots until the device refuses one.
    ///
    /// `link` is the handle of this link.
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

    /// Returns true if an overtaken message is missing or a receive slot is not posted.
    pub(crate) fn misses(&self) -> bool {
        let waits = self.state == LinkState::Over || self.maintenance.is_some();
        !waits && (self.arrived != 0 || self.unposted != 0)
    }

    /// Counts the credits that a message brings and the one that it used.
    pub(crate) fn account(&mut self, message: &Message) {
        self.credits = self.credits.saturating_add(u32::from(message.credits));
        if message.body != Body::Credit {
            self.pending_credits = self.pending_credits.saturating_add(1);
        }
    }

    /// Counts a message that was posted in a slot with these credits; a queued one is taken.
    fn count_message(&mut self, slot: u8, credits: u16, is_credit: bool) {
        self.free &= !(1_u64.checked_shl(u32::from(slot)).unwrap_or(0));
        self.pending_credits = self.pending_credits.saturating_sub(credits);
        self.requests = self.requests.saturating_add(1);
        if is_credit {
            return;
        }
        self.credits = self.credits.saturating_sub(1);
        self.last_message = self.posted();
        if let Some(first) = self.outbox.front_mut() {
            first.times = first.times.saturating_sub(1);
        }
        if self.outbox.front().is_some_and(|first| first.times == 0) {
            self.outbox.pop_front();
            self.sent = self.sent.wrapping_add(1);
        }
    }

    /// Returns the credits to give back to the peer; each has a posted receive.
    ///
    /// Each unposted receive holds back a credit, even one of the two for messages without a
    /// credit. If there is no credit to hold back, a message may find no receive, and the peer's
    /// device retries.
    fn returns(&self) -> u16 {
        let unposted = u16::try_from(self.unposted).unwrap_or(u16::MAX);
        self.pending_credits.saturating_sub(unposted)
    }

    /// Returns true if the endpoint has room for a transfer; the rest is for messages.
    pub(crate) fn takes_transfer(&self, most: u32) -> bool {
        self.is_up() && self.requests < most
    }

    /// Returns true if the peer has something to complete or to make room for.
    pub(crate) fn is_owed(&self) -> bool {
        self.requests != 0 || !self.outbox.is_empty() || self.is_wanted
    }

    /// Looks at what the peer owes; returns true if it owes something for too long.
    pub(crate) fn owes_too_long(&mut self, period: u32) -> bool {
        let most = looks_for(self.bytes, period);
        let is_owed = self.requests != 0;
        let requests = self.request_watch.is_overdue(is_owed, self.ended, most);
        // A peer cannot return the credit of a message that lies behind transfers.
        let is_owed = self.ended >= self.last_message
            && (self.is_wanted || !self.outbox.is_empty())
            // The caller may have left its call alone.
            && !self.has_room();
        let credits = self.credit_watch.is_overdue(is_owed, self.sent, most);
        requests || credits
    }

    /// Returns the number of requests posted so far.
    pub(crate) fn posted(&self) -> u64 {
        self.ended.wrapping_add(u64::from(self.requests))
    }

    /// Returns the number of messages queued so far.
    pub(crate) fn queued(&self) -> u64 {
        self.queued
    }

    /// Returns true if all queued messages up to this number have left the outbox.
    pub(crate) fn has_sent(&self, number: u64) -> bool {
        let front = self.outbox.front();
        front.is_none_or(|waiting| waiting.number > number)
    }

    /// Takes the question of a call out of the outbox; returns false if it is not there.
    pub(crate) fn take_back(&mut self, call: u64) -> bool {
        let before = self.outbox.len();
        self.outbox.retain(
            |waiting| !matches!(waiting.body, Body::Synchronise { call: asks, .. } if asks == call),
        );
        self.outbox.len() != before
    }

    /// Returns true if so many requests have ended.
    pub(crate) fn has_ended(&self, posted: u64) -> bool {
        self.ended >= posted
    }

    /// Returns true if a message would be sent at once.
    pub(crate) fn has_room(&self) -> bool {
        self.is_up() && self.outbox.is_empty() && self.credits > 0 && self.free != 0
    }

    /// Returns true if a send is due and no pending request causes a retry.
    pub(crate) fn is_stuck(&self, options: &Options) -> bool {
        let has_message = self.credits > 0 && !self.outbox.is_empty();
        self.is_up() && self.requests == 0 && (has_message || self.returns() >= low(options))
    }

    /// Returns true if more answers wait than the protocol allows.
    ///
    /// Messages of this side's own are limited by its tables, and are no fault of the peer.
    pub(crate) fn is_clogged(&self, options: &Options) -> bool {
        let (mut answers, mut ends) = (0_usize, 0_usize);
        for waiting in &self.outbox {
            match waiting.body {
                Body::Accept { .. }
                | Body::Refuse { .. }
                | Body::Acknowledge { .. }
                | Body::Synchronised { .. } => answers = answers.saturating_add(1),
                // Sent for a grant without a request, and for each connection that ends.
                Body::Disconnect { .. } => ends = ends.saturating_add(1),
                _ => {}
            }
        }
        answers > ANSWERS_LIMIT || ends > options.limits.imports.saturating_add(ANSWERS_LIMIT)
    }

    /// Queues a message, or merges it with a waiting one.
    ///
    /// So the queue needs no more room than there are connections. Signals to all importers of a
    /// publication are counted. Of the rebinds of a connection, only the last is kept.
    fn gather(&mut self, waiting: Waiting) {
        let queued = self.outbox.iter_mut().find(|other| match other.body {
            Body::SignalImporters { .. } => other.body == waiting.body,
            Body::Rebind { importer, .. } => {
                matches!(waiting.body, Body::Rebind { importer: same, .. } if same == importer)
            }
            _ => false,
        });
        match queued {
            Some(queued) if queued.body == waiting.body => {
                if matches!(queued.body, Body::SignalImporters { .. }) {
                    queued.times = queued.times.saturating_add(1);
                }
            }
            Some(queued) => queued.body = waiting.body,
            None => {
                self.queued = self.queued.wrapping_add(1);
                self.outbox.push_back(Waiting {
                    number: self.queued,
                    ..waiting
                });
            }
        }
    }

    /// Returns the number of pending messages.
    pub(crate) fn messages(&self) -> usize {
        self.slots.saturating_sub(self.free.count_ones() as usize)
    }

    /// Returns true if transfers are pending, not only messages.
    pub(crate) fn has_transfers(&self) -> bool {
        self.requests as usize > self.messages()
    }

    /// Frees a send slot.
    pub(crate) fn release(&mut self, slot: u8) {
        self.free |= 1_u64.checked_shl(u32::from(slot)).unwrap_or(0);
    }

    /// Stores the memory of a link.
    pub(crate) fn give_block(&mut self, block: Option<Block>) {
        self.block = block;
    }

    /// Takes the memory of a link.
    pub(crate) fn take_block(&mut self) -> Option<Block> {
        self.block.take()
    }
}

impl State {
    /// Queues a message to a peer and sends it once possible.
    ///
    /// The completion is reported to the flight `flight`.
    pub(crate) fn say<B: Backend, L: RawLock>(
        &mut self,
        ports: &[Port<'_, B, L>],
        link: Handle,
        body: Body,
        import: Handle,
        flight: Handle,
        options: &Options,
    ) {
        // A peer may send before the connection event arrives here; the answer waits for that
        // event.
        let over = LinkState::Over;
        let Some(slot) = self.links.get_mut(link).filter(|link| link.state != over) else {
            return;
        };
        slot.gather(Waiting {
            number: 0,
            body,
            import,
            flight,
            times: 1,
        });
        self.peer_owes(link);
        self.pump(ports, link, options);
    }

    /// Sends the messages and credits that may be sent.
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
            // Each message carries credits; a credit message is sent only when the peer might run
            // out.
            let waiting = match waiting {
                Some(waiting) => waiting,
                None if link.returns() >= low(options) => Waiting {
                    number: 0,
                    body: Body::Credit,
                    import: Handle::NULL,
                    flight: Handle::NULL,
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
            let start = link
                .slots
                .saturating_add(usize::from(slot))
                .wrapping_mul(MESSAGE_SIZE);
            let Some(block) = link.block.as_ref() else {
                return;
            };
            store_bytes(
                block.bytes().get(start..).unwrap_or_default(),
                &message.encode(),
            );
            let triplet = block.triplet(start, MESSAGE_SIZE);
            let (ep, is_credit) = (link.ep, waiting.body == Body::Credit);
            let Some(request) = self.requests.insert(Request {
                owner: Owner::Message { slot },
                link: handle,
                import: waiting.import,
                local: None,
                flight: waiting.flight,
                bytes: 0,
            }) else {
                return;
            };
            // The fence keeps a signal from overtaking reads of its vector.
            let flags = CompletionFlags::BARRIER_FENCE;
            let posted = port.ia.post_send(ep, &[triplet], request.to_raw(), flags);
            if posted.is_err() {
                // The endpoint has no room. The next completion causes a retry.
                self.requests.remove(request);
                self.urgent = true;
                return;
            }
            let Some(link) = self.links.get_mut(handle) else {
                return;
            };
            link.count_message(slot, credits, is_credit);
            if let Some(flight) = self.flights.get_mut(waiting.flight) {
                flight.pending = flight.pending.saturating_add(1);
            }
            self.peer_owes(handle);
        }
    }

    /// Ends a link; the connections on it have to reconnect.
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
        link.maintenance = None;
        let unsaid = core::mem::take(&mut link.outbox);
        let due = link.drain_until;
        for waiting in unsaid {
            if let Some(flight) = self.flights.get_mut(waiting.flight) {
                flight.step = Step::Failed(DtoStatus::Flushed);
            }
        }
        self.fail_questions(handle);
        let limit = now.after(options.connect_timeout);
        for (_, import) in self.imports.iter_mut() {
            if import.attach.link() == Some(handle) {
                import.attach = Attach::Detached;
                import.deadline = import.deadline.or(limit);
                import.retry_later(now, options.connect_timeout);
                import.error_epoch = import.error_epoch.wrapping_add(1);
                import.acknowledge = None;
            }
        }
        // Importers may reconnect to this node's exports within this time.
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

    /// Removes a request that completed, or never will, and counts it.
    pub(crate) fn request_ended(&mut self, cookie: Handle, status: DtoStatus) {
        let Some(request) = self.requests.remove(cookie) else {
            return;
        };
        if let Some(link) = self.links.get_mut(request.link) {
            link.requests = link.requests.saturating_sub(1);
            link.ended = link.ended.wrapping_add(1);
            link.bytes = link.bytes.saturating_sub(request.bytes);
            if let Owner::Message { slot } = request.owner {
                link.release(slot);
            }
            if status != DtoStatus::Success || link.state == LinkState::Over {
                self.urgent = true;
            }
            // Messages on the peer's other links may wait for the share that this one used.
            if !link.active || !link.outbox.is_empty() || link.pending_credits > 0 {
                self.urgent = true;
            }
        }
        if let Some(local) = request.local
            && let Some(local) = self.locals.get_mut(local.handle())
        {
            local.users = local.users.saturating_sub(1);
        }
        let is_transfer = !matches!(request.owner, Owner::Message { .. });
        if let Some(import) = self.imports.get_mut(request.import) {
            if is_transfer {
                import.finished = import.finished.wrapping_add(1);
            }
            if is_transfer && status != DtoStatus::Success {
                import.error_epoch = import.error_epoch.wrapping_add(1);
                import.failures = import.failures.wrapping_add(1);
            }
            if status == DtoStatus::Success && import.attach == Attach::Attached(request.link) {
                import.prove();
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
            Owner::ReadBack { flight, covers } => {
                if status == DtoStatus::Success
                    && let Some(import) = self.imports.get_mut(request.import)
                {
                    import.visible = import.visible.max(covers);
                }
                if let Some(flight) = self.flights.get_mut(flight) {
                    flight.stepped(status);
                }
            }
            Owner::Message { .. } => {
                if let Some(flight) = self.flights.get_mut(request.flight) {
                    flight.stepped(status);
                }
            }
            Owner::Span | Owner::Probe => {}
        }
    }
}

/// Returns the number of owed credits at which a credit message is sent.
fn low(options: &Options) -> u16 {
    options.credits.clamp(1, 60).div_ceil(2)
}

/// Microseconds that an ended link waits for its requests to complete.
const DRAIN: u32 = 50_000;

/// Microseconds after which an overtaken message or an unposted receive ends the link.
pub(crate) const PATIENCE: u32 = 50_000;
