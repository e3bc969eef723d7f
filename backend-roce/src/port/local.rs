//! Queues in memory to adapters of this host, in place of datagrams.

use alloc::sync::Arc;
use core::net::{IpAddr, SocketAddr};

use dat_core::backend::NotLocal;
use dat_core::sync::RegisteredSpan;
use dat_core::time::Instant;

use super::Arrival;
use crate::proto::PathMtu;
use crate::proto::icrc::Flow;

/// Number of a pair of queues. A port never uses one again (ROCE-231).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalNumber {
    /// Place in the tables of the port and of its adapter.
    pub slot: u16,
    /// Number of earlier pairs, which tells pairs of one slot apart.
    pub turn: u32,
}

/// The way of an attempt: a pair of queues, sockets if `None`, or nowhere with the reason.
#[cfg(feature = "std")]
pub(crate) type LocalWay = Result<Option<LocalNumber>, NotLocal>;

/// Time for which a peer that is there, and does nothing, counts as stopped, in microseconds.
#[cfg(feature = "std")]
pub(crate) const STOPPED: u64 = 90_000_000;

/// The queue to the peer of a pair. The adapter writes to it, under its lock.
pub trait LocalQueue: Send + Sync {
    /// Returns the room for packets, in bytes.
    ///
    /// If it is less than `least`, [`LocalEvent::Room`] follows once it is not.
    /// The first call of several decides, until [`withdraw`](Self::withdraw). 0 asks for no event,
    /// and looks anew.
    fn room(&self, least: usize) -> usize;

    /// Returns true if there is room for `bytes` bytes of packets; no event follows.
    fn has_room(&self, bytes: usize) -> bool;

    /// Waits for room no longer.
    fn withdraw(&self);

    /// Copies `packets` to the queue, of `segment` bytes each but the last, which may be shorter.
    ///
    /// Takes their bytes and at most [`RECORD_OVERHEAD`] bytes of the room. Without room, or after
    /// the end of the pair, drops them.
    fn push(&self, packets: &[u8], segment: usize);

    /// Copies a part of a payload to the place where [`push_split`](Self::push_split) leaves it;
    /// false without room.
    fn place(&self, offset: usize, from: RegisteredSpan<'_>) -> bool;

    /// As [`push`](Self::push), for a packet of which `payload` bytes were placed and the `headers`
    /// take at most [`OVERHEAD_MAX`](crate::proto::packet::OVERHEAD_MAX) bytes.
    fn push_split(&self, headers: &[u8], payload: usize);

    /// Copies a part of the payload of a [split](Arrival::is_split) arrival; false if it does not
    /// have these bytes.
    fn take(&self, offset: usize, into: RegisteredSpan<'_>) -> bool;

    /// Wakes the peer if it sleeps. Follows a push.
    fn ring(&self);

    /// Returns the positions of the peer's reader and of the next record: what lies between them is
    /// not read.
    ///
    /// They count bytes and wrap. After the end of the pair, both are the same.
    fn positions(&self) -> [u32; 2];

    /// Returns the addresses of packets that come from the peer.
    fn flow(&self) -> Flow;

    /// Returns the name of the adapter that the pair leads to, and the number of its process.
    fn peer(&self) -> ([u8; 16], i32);
}

/// Most bytes of the room of a queue that a push takes beside those of the packets.
pub const RECORD_OVERHEAD: usize = 128;

/// A change of a pair.
#[derive(Clone)]
pub enum LocalEvent {
    /// Both ends have the pair. The event comes before its packets.
    Opened {
        /// The pair.
        pair: LocalNumber,
        /// Payload of a full packet, for both ends.
        mtu: PathMtu,
        /// The queue to the peer.
        queue: Arc<dyn LocalQueue>,
    },
    /// A set-up has found no pair.
    Failed(LocalNumber, NotLocal),
    /// A set-up has found a pair, which is open.
    Known {
        /// The set-up.
        asked: LocalNumber,
        /// The pair.
        pair: LocalNumber,
    },
    /// The queue of the pair has room again.
    Room(LocalNumber),
    /// The peer has gone, and its packets are taken.
    Ended(LocalNumber),
}

/// The pairs whose peers may have gone, as far as the system has reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gone {
    /// None of them.
    #[default]
    None,
    /// The pair of a slot.
    One(u16),
    /// Any pair.
    Any,
}

/// Pairs of queues to adapters of this host. All calls return at once.
pub trait LocalQueues: Send + Sync {
    /// Begins the set-up of a pair to the adapter with an address, from an address of this side.
    ///
    /// `waits` is set if the peer finds a way of its own, which has to be the same: a peer that is
    /// stopped is waited for then.
    ///
    /// Returns the number of the set-up, or of one that is on its way to that address. Its
    /// [`Known`](LocalEvent::Known) or [`Failed`](LocalEvent::Failed) comes later, but not before
    /// [`dialled`](Self::dialled) was called as often.
    ///
    /// # Errors
    /// There is none to be had, in most cases because no such adapter is on this host.
    fn dial(&self, source: IpAddr, peer: SocketAddr, waits: bool) -> Result<LocalNumber, NotLocal>;

    /// Tells that the adapter knows the set-up.
    fn dialled(&self, number: LocalNumber);

    /// Returns the next event. One thread at a time calls it and [`receive`](Self::receive).
    fn event(&self) -> Option<LocalEvent>;

    /// Takes packets of one pair into `buffer`; `None` if there are none.
    ///
    /// A [split](Arrival::is_split) one is to be [released](Self::release).
    fn receive(&self, buffer: &mut [u8]) -> Option<Arrival>;

    /// Gives the room of a payload back that was received from a pair.
    fn release(&self, number: LocalNumber);

    /// Returns true if there are pairs, set-ups or events.
    fn is_used(&self) -> bool;

    /// Returns the time of the next look at pairs that are being made, if there are any.
    fn next_look(&self) -> Option<Instant>;

    /// Goes on with new pairs and looks for peers that have gone, by calls of the system.
    fn attend(&self, gone: Gone);

    /// As [`attend`](Self::attend) for any peer, by one call of the system: the next call does the
    /// next part.
    fn attend_next(&self);

    /// Ends all pairs and set-ups, without events. Peers read what was written.
    fn close(&self);

    /// Returns the number of doorbells that were rung.
    fn doorbells(&self) -> u64;

    /// Asks peers to wake this side; returns true if packets or events have come meanwhile.
    fn arm(&self) -> bool;
}
