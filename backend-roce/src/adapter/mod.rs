//! An adapter: its objects, and the packets that change them.
//!
//! One lock protects the whole adapter ([`crate::backend`]). So a packet looks up its region, and
//! copies, under the lock that deregistration takes (ROCE-125).

mod attached;
mod attempts;
mod buffers;
mod completions;
mod cookies;
mod datagrams;
mod deadlines;
mod endings;
mod link_events;
mod link_table;
mod links;
mod locals;
mod management;
mod memories;
mod outcomes;
mod packets;
mod port_numbers;
mod posts;
mod private_data;
mod probes;
mod queue_pair;
mod random;
mod refusals;
mod requests;
mod service_points;
mod slab;
mod timers;
mod unread;
mod ways;

pub use attached::{
    Attempt, ConnectionTerms, ReceiveAttributes, RemoteRights, SendAttributes, Tuning,
};
pub(crate) use completions::Completions;
pub use datagrams::Receiver;
pub(crate) use memories::{Memories, Opening};
pub(crate) use port_numbers::PORTS;
pub(crate) use private_data::{PrivateForm, private_size};
pub(crate) use queue_pair::{Beside, Drain, Pair, SEGMENTS, SendEntry};
pub(crate) use service_points::port_of;
pub(crate) use slab::Slab;
pub(crate) use ways::Ends;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::AtomicBool;

use dat_core::backend::{ControlEvent, NotLocal};
use dat_core::time::Instant;
use dat_queues::{RingTable, SharedReceives};

use crate::counts::{AdapterCounts, ConnectionCounts};
use crate::options::RoceOptions;
use crate::port::Outbox;
use crate::proto::numbers::{NumberKind, NumberSlot, NumberTable};
use crate::proto::queue_pair::QueuePair;
use crate::reserve::{Reserve, Secret, Table, reserved, zeros};
use buffers::{BufferAddress, SocketBuffer};
use cookies::Cookies;
use deadlines::{Deadlines, Timer};
use link_table::LinkTable;
use locals::Locals;
use port_numbers::PortNumbers;
use random::Random;
use refusals::COMMON_SERVICES_MAX;
use requests::{Arrived, Parked};
use service_points::{Listener, Service};
use ways::Ways;

/// Bytes of the outbox.
pub(crate) const OUTBOX: usize = 256 << 10;

/// Most events of a queue pair at a time: an answer, the connection, its end and a watermark.
const PAIR_EVENTS: usize = 4;

/// Stands in the table of QPNs for a queue pair whose connection has ended.
const ENDED: usize = usize::MAX;

pub(crate) struct Adapter {
    pub(crate) options: RoceOptions,
    pub(crate) address: SocketAddr,
    pub(crate) now: Instant,
    /// Time up to which all packets that had come are taken, for an adapter with a thread.
    pub(crate) seen_at: Instant,
    random: Random,
    /// GUID of this adapter.
    guid: u64,
    pub(crate) domains: Slab<()>,
    pub(crate) memories: Memories,
    pub(crate) pairs: Slab<Pair>,
    /// Queue pairs by QPN.
    qpns: NumberTable<'static, usize>,
    /// Queue pairs by QPNs that name a port.
    port_numbers: PortNumbers,
    pub(crate) shared_receives: Slab<SharedReceives>,
    pub(crate) completion_queues: RingTable<Completions>,
    pub(crate) listeners: Slab<Listener>,
    /// Listeners by service id.
    services: Table<Service, usize>,
    /// Peers with services that have answered at port 4791, the newest last.
    common_services: VecDeque<(IpAddr, u64)>,
    /// Connections by communication id.
    links: LinkTable,
    /// Communication ids of incoming requests, by GUID and communication id of the peer.
    incoming: Table<(u64, u32), u32>,
    /// Communication ids of incoming connections, by GUID and QPN of the peer.
    peers: Table<(u64, u32), u32>,
    cookies: Cookies,
    /// New requests to connect whose paths are to be looked up.
    unrouted: VecDeque<Arrived>,
    /// Requests that wait for a place of a service point, the newest last.
    parked: VecDeque<Parked>,
    /// Connection requests that the consumer has not answered.
    waiting: usize,
    /// Claimed UDP ports with the number of their users.
    ports: Table<u16, usize>,
    /// Ports without a user, to be given back.
    pub(crate) unused_ports: Vec<u16>,
    /// Set if ports are to be given back, or datagrams want queues.
    pub(crate) has_chores: bool,
    /// Peers that have not answered in time, or have asked again, since the port was told; with
    /// the length of the longest packet that may be lost.
    pub(crate) unanswered: Vec<(SocketAddr, usize)>,
    /// Socket buffers that queue pairs share.
    buffers: Slab<SocketBuffer>,
    buffers_by_address: Table<BufferAddress, usize>,
    /// Addresses of peers that do not respond promptly, at any port: set if they are slow and not
    /// just far, and until when they count as such.
    slow_peers: Table<IpAddr, (bool, Instant)>,
    deadlines: Deadlines,
    ready_pairs: VecDeque<usize>,
    /// Queue pairs whose requests wait for the consumer.
    gathering: VecDeque<usize>,
    /// Set if there are any; read without the lock.
    pub(crate) gathers: Arc<AtomicBool>,
    ready_links: VecDeque<u32>,
    outbox: Outbox,
    pub(crate) locals: Locals,
    pub(crate) ways: Ways,
    /// Why the last attempt found no queues, if it may take no other way (ROCE-252).
    pub(crate) not_local: Option<NotLocal>,
    control: VecDeque<ControlEvent>,
    /// Set by a control event, until its caller has told the consumer.
    pub(crate) raised: bool,
    pub(crate) private_form: PrivateForm,
    pub(crate) counts: AdapterCounts,
}

/// Makes a table of numbers; `None` if there is no memory for it.
fn numbers<T>(kind: NumberKind, secret: [u8; 16], count: usize) -> Option<NumberTable<'static, T>> {
    let mut slots = reserved(count)?;
    slots.extend((0..count).map(|_| NumberSlot::EMPTY));
    NumberTable::new(kind, secret, slots)
}

impl Adapter {
    /// Makes an adapter without objects; `None` if there is no memory for its tables.
    pub(crate) fn new(options: RoceOptions, address: SocketAddr, run_packets: u16) -> Option<Self> {
        let mut random = Random::new(options.secret);
        let connections = options.connections.clamp(64, 1 << 15).next_power_of_two();
        let keys = options.keys.clamp(256, 1 << 24).next_power_of_two();
        let outbox = Outbox::new(zeros(OUTBOX)?, run_packets);
        let names = Secret::new(random.secret());
        let mut deadlines = Deadlines::default();
        if !(outbox.has_room(OUTBOX) && deadlines.has_room(Timer::Gathered)) {
            return None;
        }
        Some(Self {
            address,
            now: Instant::ZERO,
            seen_at: Instant::ZERO,
            // Locally administered, and marked as ours (ROCE-48).
            guid: links::guid(random.next() as u32),
            domains: Slab::new(),
            memories: Memories::new(random.secret(), keys)?,
            pairs: Slab::new(),
            port_numbers: PortNumbers::default(),
            qpns: numbers(NumberKind::Qpn, random.secret(), connections)?,
            shared_receives: Slab::new(),
            completion_queues: RingTable::default(),
            listeners: Slab::new(),
            services: Table::with_hasher(names),
            common_services: reserved(COMMON_SERVICES_MAX)?.into(),
            links: LinkTable::new(random.secret(), connections)?,
            incoming: Table::with_hasher(names),
            peers: Table::with_hasher(names),
            cookies: Cookies::new(random.secret()),
            unrouted: VecDeque::new(),
            parked: VecDeque::new(),
            waiting: 0,
            ports: Table::with_hasher(names),
            unused_ports: Vec::new(),
            has_chores: false,
            unanswered: Vec::new(),
            buffers: Slab::new(),
            buffers_by_address: Table::with_hasher(names),
            slow_peers: Table::with_hasher(names),
            deadlines,
            ready_pairs: VecDeque::new(),
            gathering: VecDeque::new(),
            gathers: Arc::new(AtomicBool::new(false)),
            ready_links: VecDeque::new(),
            outbox,
            locals: Locals::new(),
            ways: Ways::new(names),
            not_local: None,
            control: VecDeque::new(),
            raised: false,
            private_form: PrivateForm::Packed,
            counts: AdapterCounts::default(),
            random,
            options,
        })
    }

    /// Makes room for the events of all objects and one more; false if there is no memory.
    ///
    /// So an event always has a place.
    pub(crate) fn has_room_for_events(&mut self) -> bool {
        let pairs = self.pairs.len().saturating_mul(PAIR_EVENTS);
        let queues = self.completion_queues.count() + self.shared_receives.len();
        let objects = self.waiting.saturating_add(pairs).saturating_add(queues);
        self.control
            .has_room_for(objects.saturating_add(PAIR_EVENTS))
    }

    /// Makes room for one more queue pair and all that it may wait for; false if there is no
    /// memory.
    pub(crate) fn reserve_pair(&mut self) -> bool {
        let pairs = self.pairs.len().saturating_add(1);
        let has_room = self.pairs.has_room();
        let key = self.pairs.vacant_key();
        has_room
            && self.deadlines.has_room(Timer::Pair(key))
            && self.deadlines.has_room(Timer::Probe(key))
            && self.ready_pairs.has_room_for(pairs)
            && self.gathering.has_room_for(pairs)
            && self.reserve_buffers()
            && self.has_room_for_events()
    }

    pub(crate) fn raise(&mut self, event: ControlEvent) {
        self.control.push_back(event);
        self.raised = true;
    }

    pub(crate) fn next_event(&mut self) -> Option<ControlEvent> {
        let event = self.control.pop_front();
        if self.control.is_empty() {
            // Begins at the start again: room that is never needed takes no memory.
            self.control.clear();
        }
        if let Some(ControlEvent::Completions { queue }) = event
            && let Some(queue) = self.completion_queue(queue)
        {
            queue.is_told = false;
        }
        event
    }

    /// Withdraws the events that are of the subject; returns true if there were any.
    pub(crate) fn withdraw(&mut self, is_of: impl Fn(&ControlEvent) -> bool) -> bool {
        let before = self.control.len();
        self.control.retain(|event| !is_of(event));
        self.control.len() != before
    }

    /// Withdraws the events about the connection of a queue pair.
    fn withdraw_connection(&mut self, token: u64) {
        self.withdraw(|event| match *event {
            ControlEvent::Answered { queue_pair }
            | ControlEvent::Established { queue_pair, .. }
            | ControlEvent::ConnectFailed { queue_pair, .. }
            | ControlEvent::Disconnected { queue_pair }
            | ControlEvent::Broken { queue_pair }
            | ControlEvent::SoftHighWatermark { queue_pair } => queue_pair == token,
            _ => false,
        });
    }

    /// Returns how many connections can be there at a time.
    pub(crate) fn connection_capacity(&self) -> usize {
        self.qpns.capacity()
    }

    /// Returns the counts of the adapter and of all its connections.
    pub(crate) fn counts(&self) -> AdapterCounts {
        let mut counts = self.counts;
        let transports = self
            .pairs
            .iter()
            .filter_map(|(_, pair)| pair.transport.as_ref());
        for (requester, responder) in transports.map(QueuePair::counts) {
            counts.requester += requester;
            counts.responder += responder;
        }
        counts
    }

    /// Returns the counts of each connection that has not ended.
    pub(crate) fn connection_counts(&self) -> impl Iterator<Item = ConnectionCounts> {
        let open = self.pairs.iter().filter(|(_, pair)| pair.is_open());
        open.filter_map(|(_, pair)| {
            let (requester, responder) = pair.transport.as_ref()?.counts();
            Some(ConnectionCounts {
                is_local: pair.local.is_some(),
                peer: pair.path?.wire.destination(),
                requester,
                responder,
            })
        })
    }

    /// Ends all connections, and drops all regions.
    pub(crate) fn close(&mut self) {
        for key in 0..self.pairs.bound() {
            self.destroy_pair(key);
        }
        for key in 0..self.listeners.bound() {
            self.stop_listening(key);
        }
        self.refuse_waiting();
        self.memories.deregister_all();
    }
}
