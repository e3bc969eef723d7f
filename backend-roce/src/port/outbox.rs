//! Packets on their way out, in runs that leave in one send each.

use alloc::vec::Vec;

use super::{LocalNumber, LocalQueue, Port, RECORD_OVERHEAD};
use crate::proto::icrc::Flow;
use crate::proto::packet::{Bth, ICRC_LENGTH, length_behind_headers};

/// Most packets of a run: what the segmentation of a socket takes.
pub const RUN_PACKETS_MAX: u16 = 64;

/// Longest run in bytes: the payload of the largest datagram.
pub const RUN_BYTES_MAX: usize = 65_507;

/// Runs that an outbox has room for from the beginning.
const RUNS: usize = 64;

/// Length of the shortest packet: a BTH and an ICRC.
const PACKET_MIN: usize = Bth::LENGTH + ICRC_LENGTH;

/// Addresses of a datagram: those on the wire, and those that its ICRC covers (ROCE-49).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Addresses on the wire.
    pub wire: Flow,
    /// Addresses that both ends agreed on; the same unless addresses are translated under way.
    pub view: Flow,
    /// Set if each packet leaves in a send of its own, with identification 0.
    ///
    /// For kernels, which do not recover the identification of segments: those of a device without
    /// segmentation have none.
    pub single: bool,
    /// The pair of queues that they go through, if no socket.
    pub local: Option<LocalNumber>,
}

#[cfg(feature = "std")]
impl Path {
    /// Returns the addresses that the ICRC of a packet from the peer covers.
    ///
    /// A kernel sends from any port; only our own ends agree on addresses.
    pub(crate) fn received(&self, wire: &Flow) -> Flow {
        if self.single {
            *wire
        } else {
            self.view.reversed()
        }
    }

    /// Returns true if a packet comes from the peer; a kernel sends from any port.
    pub(crate) fn is_from_peer(&self, wire: &Flow) -> bool {
        let (peer, source) = (self.wire.destination(), wire.source());
        let own = self.wire.source().ip() == wire.destination().ip();
        own && peer.ip() == source.ip() && (self.single || peer.port() == source.port())
    }
}

impl From<Flow> for Path {
    /// Returns a path without translation.
    fn from(flow: Flow) -> Self {
        Self {
            wire: flow,
            view: flow,
            single: false,
            local: None,
        }
    }
}

/// Packets of one path and one length, but for the last one, which may be shorter.
#[derive(Clone, Copy, Debug)]
struct Run {
    path: Path,
    start: usize,
    length: usize,
    /// Length of each packet but the last.
    segment: usize,
    packets: u16,
    /// Set once a shorter packet ended the run.
    ends: bool,
}

impl Run {
    /// Returns true if packets of a path may follow: those of a pair of queues, whatever their
    /// addresses.
    fn joins(&self, path: &Path) -> bool {
        match path.local {
            Some(_) => self.path.local == path.local,
            None => self.path == *path,
        }
    }

    /// Adds a packet; false if it begins another run.
    fn add(&mut self, path: &Path, length: usize, most: u16) -> bool {
        let total = self.length.saturating_add(length);
        let fits = !self.ends
            && !path.single
            && self.joins(path)
            && length <= self.segment
            && self.packets < most
            && total <= RUN_BYTES_MAX;
        if fits {
            self.ends = length < self.segment;
            self.length = total;
            self.packets = self.packets.saturating_add(1);
        }
        fits
    }
}

/// Packets that wait to be sent, in order.
///
/// Packets of several queue pairs to one peer share a run (ROCE-57).
#[derive(Debug)]
pub struct Outbox {
    buffer: Vec<u8>,
    runs: Vec<Run>,
    used: usize,
    /// Most packets of a run.
    run_packets: u16,
}

impl Outbox {
    /// Makes an empty outbox in a buffer, for runs of at most `run_packets` packets.
    #[must_use]
    pub fn new(buffer: Vec<u8>, run_packets: u16) -> Self {
        let mut runs = Vec::new();
        // Without memory, the outbox has no room.
        let _ = runs.try_reserve(RUNS);
        Self {
            buffer,
            runs,
            used: 0,
            run_packets: run_packets.min(RUN_PACKETS_MAX),
        }
    }

    /// Returns how many packets of a path may leave in one send.
    #[must_use]
    pub fn run_packets(&self, path: &Path) -> u16 {
        if path.single { 1 } else { self.run_packets }
    }

    /// Returns true if no packet waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the numbers of waiting packets and of their bytes.
    #[must_use]
    pub fn totals(&self) -> (u64, u64) {
        let packets = self.runs.iter().map(|run| u64::from(run.packets)).sum();
        (packets, self.used as u64)
    }

    /// Returns true if there is room for a packet of `bytes` bytes.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.room() >= bytes
    }

    fn room(&self) -> usize {
        // The next packet may begin a run.
        if self.runs.len() == self.runs.capacity() {
            return 0;
        }
        self.buffer.len().saturating_sub(self.used)
    }

    /// Adds a packet that `write` writes and whose length it returns.
    ///
    /// `write` gets the rest of the buffer, nothing if there is no memory for another run. False
    /// means that it had nothing to write.
    pub fn add(&mut self, path: &Path, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        let (start, room) = (self.used, self.room());
        let end = start.saturating_add(room);
        let rest = self.buffer.get_mut(start..end).unwrap_or_default();
        let Some(length) = write(rest).filter(|length| (PACKET_MIN..=room).contains(length)) else {
            return false;
        };
        let mut identification = 0;
        let joins = self.runs.last_mut().is_some_and(|run| {
            let joins = run.add(path, length, self.run_packets);
            identification = run.packets.saturating_sub(1);
            joins
        });
        if !joins {
            identification = 0;
            self.runs.push(Run {
                path: *path,
                start,
                length,
                segment: length,
                packets: 1,
                ends: false,
            });
            // For the next run. Without memory, the outbox is full.
            let _ = self.runs.try_reserve(1);
        }
        self.used = start.saturating_add(length);
        if let Some(packet) = self.buffer.get_mut(start..self.used) {
            if path.local.is_none() {
                // Long enough, as was checked.
                let _ = path.view.seal(identification, packet);
            } else if let Some(place) = packet.last_chunk_mut::<ICRC_LENGTH>() {
                // Memory has no errors that a CRC finds (ROCE-232).
                *place = [0; ICRC_LENGTH];
            }
        }
        true
    }

    /// Returns the room that the packets need in a local queue.
    #[must_use]
    pub fn local_bytes(&self) -> usize {
        self.used + self.runs.len() * RECORD_OVERHEAD
    }

    /// Puts all packets, which are for one pair, into its queue, and empties the outbox.
    ///
    /// The caller has looked for the room.
    pub fn push(&mut self, queue: &dyn LocalQueue) {
        for run in self.runs.drain(..) {
            let end = run.start.saturating_add(run.length);
            let packets = self.buffer.get(run.start..end).unwrap_or_default();
            queue.push(packets, run.segment);
        }
        self.used = 0;
    }

    /// As [`push`](Self::push), for one packet whose payload of `payload` bytes was placed there.
    pub fn push_split(&mut self, queue: &dyn LocalQueue, payload: usize) {
        let headers = self.used.checked_sub(length_behind_headers(payload));
        if let Some(headers) = headers.and_then(|length| self.buffer.get(..length)) {
            queue.push_split(headers, payload);
        }
        self.clear();
    }

    /// Drops all packets.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.used = 0;
    }

    /// Sends all packets and empties the outbox.
    ///
    /// A port that takes no more drops the others, as a network may: the transport repeats them.
    pub fn send(&mut self, port: &(impl Port + ?Sized)) {
        for run in self.runs.drain(..) {
            let end = run.start.saturating_add(run.length);
            let packets = self.buffer.get(run.start..end).unwrap_or_default();
            port.send(&run.path.wire, packets, run.segment);
        }
        self.used = 0;
    }
}
