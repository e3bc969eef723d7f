//! An adapter: its objects, and the packets that change them.
//!
//! One lock protects the whole adapter ([`crate::backend`]). So a packet looks up its region, and
//! copies, under the lock that deregistration takes (ROCE-125).

mod attempts;
mod buffers;
mod completions;
mod cookies;
mod endings;
mod link_events;
mod links;
mod management;
mod memories;
mod outcomes;
mod packets;
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

pub(crate) use completions::CompletionRing;
pub(crate) use memories::Memories;
pub(crate) use private_data::private_size;
pub(crate) use queue_pair::{
    Pair, ReceiveEntry, SEGMENTS, Segments, SendEntry, SharedReceives, State, Work,
};
pub(crate) use service_points::port_of;
pub(crate) use slab::Slab;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::AtomicBool;

use dat_core::backend::ControlEvent;
use dat_core::time::Instant;

use crate::counts::{AdapterCounts, ConnectionCounts};
use crate::options::RoceOptions;
use crate::port::Outbox;
use crate::proto::numbers::{NumberKind, NumberSlot, NumberTable};
use crate::proto::queue_pair::QueuePair;
use crate::reserve::{reserved, zeros};
use buffers::{BufferAddress, SocketBuffer};
use cookies::Cookies;
use links::Link;
use random::Random;
use requests::{Arrived, Parked};
use service_points::Listener;
use timers::Timer;

/// Bytes of the outbox.
pub(crate) const OUTBOX: usize = 256 << 10;

/// Stands in the table of QPNs for a queue pair whose connection has ended.
const ENDED: usize = usize::MAX;

pub(crate) struct Adapter {
    pub(crate) options: RoceOptions,
    pub(crate) address: SocketAddr,
    pub(crate) now: Instant,
    random: Random,
    /// GUID of this adapter.
    guid: u64,
    pub(crate) domains: Slab<()>,
    pub(crate) memories: Memories,
    pub(crate) pairs: Slab<Pair>,
    /// Queue pairs by QPN.
    qpns: NumberTable<'static, usize>,
    pub(crate) shared_receives: Slab<SharedReceives>,
    completion_queues: Vec<Option<CompletionRing>>,
    pub(crate) completion_queue_count: usize,
    pub(crate) listeners: Slab<Listener>,
    /// Listeners by service id.
    services: BTreeMap<u64, usize>,
    /// Peers with services that have answered at port 4791, the newest last.
    common_services: VecDeque<(IpAddr, u64)>,
    /// Connections by communication id.
    links: NumberTable<'static, Box<Link>>,
    /// Communication ids of incoming requests, by GUID and communication id of the peer.
    incoming: BTreeMap<(u64, u32), u32>,
    /// Communication ids of incoming connections, by GUID and QPN of the peer.
    peers: BTreeMap<(u64, u32), u32>,
    cookies: Cookies,
    /// New requests to connect whose paths are to be looked up.
    unrouted: VecDeque<Arrived>,
    /// Requests that wait for a place of a service point, the newest last.
    parked: VecDeque<Parked>,
    /// Connection requests that the consumer has not answered.
    waiting: usize,
    /// Claimed UDP ports with the number of their users.
    ports: BTreeMap<u16, usize>,
    /// Ports without a user, to be given back.
    pub(crate) unused_ports: Vec<u16>,
    /// Peers that have not answered in time, or have asked again, since the port was told; with
    /// the length of the longest packet that may be lost.
    pub(crate) unanswered: Vec<(SocketAddr, usize)>,
    /// Socket buffers that queue pairs share.
    buffers: Slab<SocketBuffer>,
    buffers_by_address: BTreeMap<BufferAddress, usize>,
    /// Addresses of peers that do not respond promptly, at any port: set if they are slow and not
    /// just far, and until when they count as such.
    slow_peers: BTreeMap<IpAddr, (bool, Instant)>,
    timers: BTreeSet<(Instant, Timer)>,
    ready_pairs: VecDeque<usize>,
    /// Queue pairs whose requests wait for the consumer.
    gathering: Vec<usize>,
    /// Set if there are any; read without the lock.
    pub(crate) gathers: Arc<AtomicBool>,
    /// Time at which they leave in any case.
    gathered_at: Option<Instant>,
    ready_links: VecDeque<u32>,
    outbox: Outbox,
    control: VecDeque<ControlEvent>,
    /// Set by a control event, until its caller has told the consumer.
    pub(crate) raised: bool,
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
        Some(Self {
            address,
            now: Instant::ZERO,
            // Locally administered, and marked as ours (ROCE-48).
            guid: links::guid(random.next() as u32),
            domains: Slab::new(),
            memories: Memories::new(random.secret(), keys)?,
            pairs: Slab::new(),
            qpns: numbers(NumberKind::Qpn, random.secret(), connections)?,
            shared_receives: Slab::new(),
            completion_queues: Vec::new(),
            completion_queue_count: 0,
            listeners: Slab::new(),
            services: BTreeMap::new(),
            common_services: VecDeque::new(),
            links: numbers(NumberKind::Word, random.secret(), connections)?,
            incoming: BTreeMap::new(),
            peers: BTreeMap::new(),
            cookies: Cookies::new(random.secret()),
            unrouted: VecDeque::new(),
            parked: VecDeque::new(),
            waiting: 0,
            ports: BTreeMap::new(),
            unused_ports: Vec::new(),
            unanswered: Vec::new(),
            buffers: Slab::new(),
            buffers_by_address: BTreeMap::new(),
            slow_peers: BTreeMap::new(),
            timers: BTreeSet::new(),
            ready_pairs: VecDeque::new(),
            gathering: Vec::new(),
            gathers: Arc::new(AtomicBool::new(false)),
            gathered_at: None,
            ready_links: VecDeque::new(),
            outbox: Outbox::new(zeros(OUTBOX)?, run_packets),
            control: VecDeque::new(),
            raised: false,
            counts: AdapterCounts::default(),
            random,
            options,
        })
    }

    pub(crate) fn raise(&mut self, event: ControlEvent) {
        self.control.push_back(event);
        self.raised = true;
    }

    pub(crate) fn next_event(&mut self) -> Option<ControlEvent> {
        self.control.pop_front()
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
                peer: self.links.get(pair.link?)?.path.wire.destination(),
                requester,
                responder,
            })
        })
    }

    /// Ends all connections, and drops all regions.
    pub(crate) fn close(&mut self) {
        let pairs: Vec<usize> = self.pairs.iter().map(|(key, _)| key).collect();
        for key in pairs {
            self.destroy_pair(key);
        }
        let listeners: Vec<usize> = self.listeners.iter().map(|(key, _)| key).collect();
        for key in listeners {
            self.stop_listening(key);
        }
        self.refuse_waiting();
        self.memories.deregister_all();
    }
}
