//! Queue pairs for unreliable datagrams.

use core::net::{IpAddr, SocketAddr};

use dat_core::backend::{BackendError, SendFlags};
use dat_core::flags::DtoStatus;
use dat_queues::{Detail, State};

use super::packets::PACKET_MAX;
use super::port_numbers::port_of_qpn;
use super::queue_pair::{Drain, Receives};
use super::ways::Exit;
use super::{Adapter, Pair, SendEntry};
use crate::options::PathChoice;
use crate::port::{Arrival, Path};
use crate::proto::Psn;
use crate::proto::icrc::{Addresses, Flow, Verdict};
use crate::proto::memory::{LocalError, ReceiveQueue as _, RequestMemory as _};
use crate::proto::packet::{Bth, Deth, Extensions, Header, Opcode, Packet};

/// Length of the place of the network header in a receive (ROCE-270).
const NETWORK_HEADER: u32 = 40;

/// Datagrams of a queue pair in one lock section.
const TURN: usize = 128;

/// The receiver of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// Address of this side.
    pub local: IpAddr,
    /// Address of the receiver, with the interface of a link-local one; its port does not matter.
    pub peer: SocketAddr,
    /// QPN of the receiver.
    pub qpn: u32,
    /// Key of the receiver (Q_Key).
    pub key: u32,
}

/// Returns the network header of a datagram of `length` bytes, as verbs lay it out: that of IPv6,
/// or 20 bytes of zero and that of IPv4.
fn network_header(flow: &Flow, length: usize) -> [u8; NETWORK_HEADER as usize] {
    let mut header = [0; NETWORK_HEADER as usize];
    let mut put = |at: usize, bytes: &[u8]| {
        for (place, byte) in header.iter_mut().skip(at).zip(bytes) {
            *place = *byte;
        }
    };
    let length = |headers: usize| {
        let length = u16::try_from(length + headers).unwrap_or(u16::MAX);
        length.to_be_bytes()
    };
    match flow.addresses {
        Addresses::V4 {
            source,
            destination,
        } => {
            put(20, &[0x45]);
            put(22, &length(28));
            put(28, &[64, 17]);
            put(32, &source.octets());
            put(36, &destination.octets());
            // Readers tell IPv4 from IPv6 by the checksum.
            let words = header.chunks(2).skip(10);
            let sum: u32 = words
                .map(|word| word.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
                .sum();
            let folded = (sum & 0xFFFF) + (sum >> 16);
            let [high, low] = (!(folded as u16)).to_be_bytes();
            (header[30], header[31]) = (high, low);
        }
        Addresses::V6 {
            source,
            destination,
        } => {
            put(0, &[0x60]);
            put(4, &length(8));
            put(6, &[17, 64]);
            put(8, &source.octets());
            put(24, &destination.octets());
        }
    }
    header
}

impl Adapter {
    /// Makes a queue pair for datagrams with this key ready to receive.
    ///
    /// # Errors
    /// - `State`: it is not new, and was not reset.
    /// - `Resources`: there is no memory.
    pub(crate) fn attach_datagrams(&mut self, key: usize, own: u32) -> Result<(), BackendError> {
        let pair = self.pair_in(key, State::Unconnected)?;
        let room = pair.receivers.try_reserve(pair.setup.request_depth);
        room.map_err(|_| BackendError::Resources)?;
        pair.datagrams = Some(own);
        pair.state = State::Accepting;
        Ok(())
    }

    /// Makes a queue pair for datagrams ready to send, too.
    ///
    /// # Errors
    /// `State`: it is not ready to receive, or it is none for datagrams.
    pub(crate) fn start_datagrams(&mut self, key: usize) -> Result<(), BackendError> {
        let pair = self.pair_in(key, State::Accepting)?;
        let has_key = pair.datagrams.is_some();
        has_key.then_some(()).ok_or(BackendError::State)?;
        pair.state = State::Connected;
        Ok(())
    }

    /// Changes the key of a queue pair for datagrams.
    pub(crate) fn set_datagram_key(&mut self, key: usize, own: u32) {
        if let Some(pair) = self.pairs.get_mut(key) {
            pair.datagrams = pair.datagrams.map(|_| own);
        }
    }

    /// As [`end_posts`](Self::end_posts), of a device: datagrams leave in the same lock section.
    pub(crate) fn end_device_posts(&mut self, key: usize, is_behind: bool) {
        let pair = self.pairs.get(key);
        let sends_datagrams = pair.is_some_and(|pair| {
            let is_ready = pair.state == State::Connected;
            is_ready && !pair.receivers.is_empty()
        });
        if !sends_datagrams || self.write_datagrams(key) {
            self.end_posts(key, is_behind);
        }
    }

    /// Writes datagrams of a queue pair, and completes them; false if there are none left that may
    /// leave now.
    pub(super) fn write_datagrams(&mut self, key: usize) -> bool {
        for _ in 0..TURN {
            if !self.outbox.has_room(PACKET_MAX) {
                return true;
            }
            let Some((entry, status)) = self.write_datagram(key) else {
                return false;
            };
            self.complete_request(key, &entry, status);
        }
        true
    }

    /// Writes the next datagram of a queue pair; returns its request, and the status.
    fn write_datagram(&mut self, key: usize) -> Option<(SendEntry, DtoStatus)> {
        let pair = self.pairs.get(key)?;
        if pair.drain != Drain::No {
            return None;
        }
        let receiver = *pair.receivers.front()?;
        let (mut path, header) = draft(pair, &receiver)?;
        let exit = self.exit(&path, receiver.local);
        let Self {
            outbox,
            locals,
            memories,
            pairs,
            counts,
            ..
        } = self;
        let outbox = match exit {
            Exit::Later => return None,
            Exit::Nowhere => None,
            Exit::Socket => Some(outbox),
            Exit::Queue(number) => {
                path.local = Some(number);
                Some(&mut locals.outbox)
            }
        };
        let pair = pairs.get_mut(key)?;
        let length = pair.sends.front()?.request.length as usize;
        let mut access = pair.memory(memories);
        let mut gathered = Ok(());
        match outbox {
            None => counts.dropped += 1,
            Some(outbox) => {
                outbox.add(&path, |buffer| {
                    let draft = header.encode(length, buffer)?;
                    gathered = access.gather(access.first, 0, draft.payload);
                    gathered.is_ok().then_some(draft.length)
                });
            }
        }
        let status = match gathered {
            Ok(()) => DtoStatus::Success,
            Err(LocalError) => DtoStatus::LocalProtection,
        };
        pair.receivers.pop_front();
        let entry = pair.sends.pop_front()?;
        pair.first += 1;
        if let Some(number) = path.local {
            self.push_local(number, 0);
        }
        Some((entry, status))
    }

    /// Returns true if a datagram may come on the way of an arrival (ROCE-282, ROCE-283).
    fn takes_datagrams_of(&self, arrival: &Arrival) -> bool {
        let flow = &arrival.flow;
        match arrival.local {
            Some(_) => !arrival.is_split,
            None if self.options.path != PathChoice::Local => true,
            None => self.is_own(&(flow.destination().ip(), flow.source())),
        }
    }

    /// Takes a datagram for a queue pair with its key; drops and counts others.
    // Within `receive`, it takes registers from every packet: 100 instructions of a write.
    #[inline(never)]
    pub(super) fn receive_datagram(
        &mut self,
        arrival: &Arrival,
        index: u16,
        datagram: &[u8],
        packet: &Packet<'_>,
    ) {
        let bth = packet.header.bth;
        let named = packet.header.extensions.deth.and_then(|deth| {
            let key = self.port_numbers.get(bth.destination)?;
            let pair = self.pairs.get(key)?;
            let receives = matches!(pair.state, State::Accepting | State::Connected);
            let own = pair.datagrams.filter(|_| receives)?;
            Some((key, deth)).filter(|_| own == deth.queue_key && self.takes_datagrams_of(arrival))
        });
        let Some((key, deth)) = named else {
            self.counts.dropped += 1;
            return;
        };
        let is_checked = arrival.local.is_none();
        if is_checked && arrival.flow.verify_segment(index, datagram) == Verdict::Wrong {
            self.counts.bad_icrc += 1;
            return;
        }
        let Some(pair) = self.pairs.get_mut(key) else {
            return;
        };
        let shared_key = pair.setup.shared;
        let shared = shared_key.and_then(|key| self.shared_receives.get_mut(key.0));
        let setup = pair.setup;
        let mut queue = Receives {
            memories: &self.memories,
            domain: shared.as_ref().map_or(setup.domain, |shared| shared.domain),
            own: &mut pair.receives,
            shared,
            current: &mut pair.current,
            queue: None,
        };
        let Some(receive) = queue.take() else {
            self.counts.dropped += 1;
            return;
        };
        let length = (packet.payload.len() as u32).saturating_add(NETWORK_HEADER);
        let header = network_header(&arrival.flow, datagram.len());
        let status = if length > receive.length {
            DtoStatus::LocalLength
        } else if queue.place(receive.token, 0, &header).is_err()
            || queue
                .place(receive.token, NETWORK_HEADER, packet.payload)
                .is_err()
        {
            DtoStatus::LocalProtection
        } else {
            DtoStatus::Success
        };
        pair.current = None;
        self.give_back(shared_key);
        let mut entry = setup.receive_done(key, receive.token, status, length);
        entry.completion.solicited = bth.solicited;
        entry.immediate = packet.header.extensions.immediate.map(u32::from_ne_bytes);
        entry.source = deth.source;
        if arrival.flow.source().is_ipv4() {
            entry.detail = Detail::Ipv4;
        }
        self.add_completion(setup.receive_queue, entry);
        if let Some(shared) = shared_key {
            self.check_limit(shared.0);
        }
    }
}

/// Returns the path and the headers of the next datagram of a queue pair.
fn draft(pair: &Pair, to: &Receiver) -> Option<(Path, Header)> {
    let entry = pair.sends.front()?;
    let qpn = pair.qpn?;
    let (port, is_ours) = port_of_qpn(to.qpn);
    let mut peer = to.peer;
    peer.set_port(port);
    let flow = Flow::between(SocketAddr::new(to.local, port_of_qpn(qpn).0), peer)?;
    let immediate = entry.immediate();
    // A key with this bit stands for that of the sender's queue pair.
    let queue_key = match to.key >> 31 {
        0 => to.key,
        _ => pair.datagrams?,
    };
    let header = Header {
        bth: Bth {
            opcode: match immediate {
                None => Opcode::DatagramSendOnly,
                Some(_) => Opcode::DatagramSendOnlyImmediate,
            },
            solicited: entry.request.flags.contains(SendFlags::SOLICITED),
            destination: to.qpn,
            acknowledge: false,
            psn: Psn::new(pair.first as u32),
        },
        extensions: Extensions {
            deth: Some(Deth {
                queue_key,
                source: qpn,
            }),
            immediate,
            ..Extensions::default()
        },
    };
    let path = Path {
        single: !is_ours,
        ..Path::from(flow)
    };
    Some((path, header))
}
