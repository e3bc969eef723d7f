//! The peer that sends and does anything that an input selects.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU8, Ordering};

use backend_mmio::cm::DEPTH;
use backend_mmio::cm::Peer;
use backend_mmio::cm::message::{Kind, MESSAGE, Message};
use backend_mock::{MockCompletionQueue, MockReceiveQueue, MockSendQueue, NodeOptions};
use dat_core::attributes::EpAttributes;
use dat_core::backend::{
    Backend, CompletionQueue, PrivateData, QueuePair, QueuePairKey, QueuePairRequest,
    ReceiveRequest, Registration, RemoteRange, Segment, SendFlags, SendOperation, SendRequest,
    WorkQueue,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges};
use dat_core::memory::Region;
use mmio_model::{ModelFabric, Outsider};

use super::script::Operation;
use super::{INTRUDER, QUALIFIERS};

/// The number of its queue pairs besides that of the channel.
pub(super) const PAIRS: usize = 4;
/// The number of the channel's queue pair; the other numbers follow it.
const CHANNEL: u32 = 0x40;
/// The most messages under way.
const SENDS: usize = 16;
/// The bytes of a message slot, more than a message has.
const SLOT_BYTES: usize = 256;
/// The most bytes of a read or write.
const DATA: usize = 2048;
/// The bit that marks tokens of Sends.
const SENT: u64 = 1 << 32;
/// The byte that fills its own data.
const OWN_BYTE: u8 = b'i';

/// The intruder's memory: messages to send, received messages, data to write, and data it read.
struct Memory {
    /// One slot more than messages under way, so that no slot is written while sent.
    sent: [[AtomicU8; SLOT_BYTES]; SENDS + 1],
    received: [[AtomicU8; SLOT_BYTES]; DEPTH as usize],
    written: [AtomicU8; DATA],
    read: [AtomicU8; DATA],
}

static MEMORY: Memory = Memory {
    sent: [const { [const { AtomicU8::new(0) }; SLOT_BYTES] }; SENDS + 1],
    received: [const { [const { AtomicU8::new(0) }; SLOT_BYTES] }; DEPTH as usize],
    written: [const { AtomicU8::new(0) }; DATA],
    read: [const { AtomicU8::new(0) }; DATA],
};

/// A queue pair.
struct Pair {
    key: QueuePairKey,
    number: u32,
    send: MockSendQueue,
    receive: MockReceiveQueue,
}

/// The addresses and keys of the victim's memory that the intruder may know.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) addresses: [u64; 3],
    pub(super) keys: [u32; 3],
}

/// The intruder.
pub(super) struct Intruder {
    outsider: Outsider,
    completions: MockCompletionQueue,
    channel: Pair,
    pairs: [Pair; PAIRS],
    /// The other end of the channel.
    victim: Peer,
    key: [u32; 4],
    /// The messages it sent as bytes; of valid ones, also kind and private data.
    sent_messages: Vec<Vec<u8>>,
    promised: Vec<(Kind, PrivateData)>,
    sent: usize,
    /// The receives that the channel lacks.
    missing: VecDeque<u64>,
    deaf: bool,
    /// The connection names and queue pair numbers that it received.
    names: Vec<u32>,
    numbers: Vec<u32>,
    /// The slots it used since it last returned any, and those left to the victim.
    taken: u32,
    left: u64,
    /// The victim's names of connections whose request it reported as delivered or answered.
    ///
    /// A request that the victim itself refuses gets no name and reaches no consumer.
    pub(super) answered: BTreeSet<u32>,
    /// Set if it sent a message that condemns the channel; `silenced`: set once that arrived.
    ///
    /// The victim must give up a condemned channel.
    condemned: bool,
    silenced: bool,
    /// Set if the channel has failed; messages may then be lost.
    failed: bool,
    bends: Vec<[u8; 3]>,
}

fn segment(memory: &'static [AtomicU8], length: usize, key: u32) -> Segment {
    Segment {
        address: memory.as_ptr().addr() as u64,
        length: length as u32,
        key,
    }
}

/// Returns an entry by its distance from the newest one.
fn nth_newest(of: &[u32], choice: u8) -> u32 {
    let index = usize::from(choice) % of.len();
    of[of.len() - 1 - index]
}

/// Returns true if no peer at this port sends the message.
///
/// It reports more slots than exist, names an impossible queue pair, or gives another address.
fn is_impossible(message: &Message, port: [u32; 4]) -> bool {
    message.credits > DEPTH
        || message.queue_pair > 0xFF_FFFF
        || matches!(message.kind, Kind::Request | Kind::Accepted) && message.address != port
}

impl Intruder {
    /// Returns an intruder at the other end of a channel of the fabric's first device.
    pub(super) fn new(fabric: &ModelFabric) -> Self {
        for cell in &MEMORY.written {
            cell.store(OWN_BYTE, Ordering::Relaxed);
        }
        for cell in &MEMORY.read {
            cell.store(0, Ordering::Relaxed);
        }
        let mut outsider = fabric.outsider(NodeOptions::new("intruder", INTRUDER));
        let adapter = &mut outsider.adapter;
        let domain = adapter.create_domain().expect("a domain");
        let mut key = |memory: &'static [AtomicU8]| {
            let region = Region::from_static(memory);
            let registration = Registration::new(domain, &region, MemoryPrivileges::ALL);
            adapter.register(&registration).expect("memory").local
        };
        let key = [
            key(MEMORY.sent.as_flattened()),
            key(MEMORY.received.as_flattened()),
            key(&MEMORY.written),
            key(&MEMORY.read),
        ];
        let completions = adapter.create_completion_queue(0, 512).expect("a queue");
        let mut pair = |number: u32| {
            let attributes = EpAttributes {
                max_request_dtos: SENDS as i32,
                max_recv_dtos: DEPTH as i32,
                max_rdma_read_in: 4,
                max_rdma_read_out: 4,
                ..EpAttributes::DEFAULT
            };
            let mut request = QueuePairRequest::new(u64::from(number), domain, attributes);
            request.request_queue = Some(0);
            request.receive_queue = Some(0);
            let QueuePair { key, send, receive } =
                adapter.create_queue_pair(&request).expect("a queue pair");
            Pair {
                key,
                number,
                send,
                receive: receive.expect("a receive queue"),
            }
        };
        let channel = pair(CHANNEL);
        let pairs = [1, 2, 3, 4].map(|index| pair(CHANNEL + index));
        let victim = outsider
            .channel_peer(CHANNEL)
            .expect("a channel that nobody is at yet");
        outsider
            .join(channel.key, CHANNEL, victim)
            .expect("a queue pair that is not connected");
        let mut intruder = Self {
            outsider,
            completions,
            channel,
            pairs,
            victim,
            key,
            sent_messages: Vec::new(),
            promised: Vec::new(),
            sent: 0,
            missing: (0..u64::from(DEPTH)).collect(),
            deaf: false,
            names: vec![0],
            numbers: vec![victim.queue_pair],
            taken: 0,
            left: u64::from(DEPTH),
            answered: BTreeSet::new(),
            condemned: false,
            silenced: false,
            failed: false,
            bends: Vec::new(),
        };
        intruder.listen();
        intruder
    }

    fn listen(&mut self) {
        if self.deaf {
            return;
        }
        while let Some(token) = self.missing.pop_front() {
            let slot = &MEMORY.received[token as usize];
            let segment = segment(slot, MESSAGE, self.key[1]);
            let request = ReceiveRequest { token };
            let _over = self.channel.receive.post(&request, &[segment]);
        }
    }

    /// Handles received messages; returns true if there was a completion.
    ///
    /// Checks that the victim sends valid messages only, has a slot for each, and that its private
    /// data comes from its consumer.
    pub(super) fn progress(&mut self, given: &[Vec<u8>]) -> bool {
        let mut any = false;
        while let Ok(Some(completion)) = self.completions.poll() {
            any = true;
            let on_channel = completion.queue_pair == u64::from(CHANNEL);
            self.failed |= on_channel && completion.status != DtoStatus::Success;
            if completion.token & SENT != 0 || completion.token >= u64::from(DEPTH) {
                continue;
            }
            let token = completion.token;
            if completion.status != DtoStatus::Success {
                continue;
            }
            let bytes = &MEMORY.received[token as usize][..completion.length as usize];
            let bytes = bytes.iter().map(|cell| cell.load(Ordering::Relaxed));
            let message = Message::read(bytes).expect("the victim says messages");
            assert!(!self.silenced, "over a channel given up: {message:?}");
            assert_eq!(message.address, self.victim.address, "{message:?}");
            assert!(message.credits <= DEPTH, "{message:?}");
            let data = message.private_data.as_slice();
            assert!(
                data.is_empty() || given.iter().any(|one| one == data),
                "a message that nobody sent: {message:?}"
            );
            self.left = self.left.checked_sub(1).expect("a place for a message");
            self.taken += 1;
            self.names.extend([message.from, message.to]);
            if message.queue_pair != 0 {
                self.numbers.push(message.queue_pair);
            }
            let is_answer = matches!(
                message.kind,
                Kind::Answered | Kind::Accepted | Kind::Rejected | Kind::Refused
            );
            if is_answer && message.from != 0 {
                self.answered.insert(message.from);
            }
            self.missing.push_back(token);
        }
        self.listen();
        let now = dat_core::time::Instant::ZERO;
        while self.outsider.adapter.poll_control(now).is_some() {}
        any
    }

    /// Notes that nothing is under way; returns true if the victim could send everything.
    ///
    /// A message that condemns the channel has arrived by then.
    pub(super) fn is_idle(&mut self) -> bool {
        self.silenced |= self.condemned;
        !self.deaf && !self.failed
    }

    /// Returns true if it sent a message of this kind with this private data.
    pub(super) fn promised(&self, kind: Kind, data: &[u8]) -> bool {
        let mut promised = self.promised.iter();
        promised.any(|(of, sent)| *of == kind && sent.as_slice() == data)
    }

    /// Returns true if it has read a byte of the secret.
    pub(super) fn knows(&self, secret: u8) -> bool {
        let mut read = MEMORY.read.iter();
        read.any(|cell| cell.load(Ordering::Relaxed) == secret)
    }

    fn send(&mut self, bytes: Vec<u8>) {
        let slot = &MEMORY.sent[self.sent % (SENDS + 1)];
        let bytes = &bytes[..bytes.len().min(SLOT_BYTES)];
        let segment = segment(slot, bytes.len(), self.key[0]);
        for (cell, byte) in slot.iter().zip(bytes) {
            cell.store(*byte, Ordering::Relaxed);
        }
        let request = SendRequest {
            token: SENT,
            operation: SendOperation::Send,
            flags: SendFlags::empty(),
        };
        if self.channel.send.post(&request, &[segment]).is_err() {
            return;
        }
        self.sent += 1;
        self.condemned |= Message::read(bytes.iter().copied())
            .is_none_or(|message| is_impossible(&message, self.outsider.port()));
        if let Some(message) = Message::read(bytes.iter().copied()) {
            self.left = self.left.saturating_add(u64::from(message.credits));
            self.promised.push((message.kind, message.private_data));
        }
        self.sent_messages.push(bytes.to_vec());
    }

    fn send_message(&mut self, kind: u8, from: u8, to: u8, pair: u8, data: u8) {
        let places = match kind >> 5 {
            0..3 => core::mem::take(&mut self.taken),
            3 => 0,
            4 => 1,
            5 => DEPTH,
            6 => DEPTH + 1,
            _ => u32::MAX,
        };
        let kind = Kind::ALL[usize::from(kind & 0x1F) % Kind::ALL.len()];
        let name = nth_newest(&self.names, to & 0x1F);
        let to = match to >> 5 {
            0..4 => name,
            4 => name.wrapping_add(1),
            5 => name.wrapping_add(1 << 16),
            6 => name.wrapping_sub(1 << 16),
            _ => u32::MAX,
        };
        let number = match pair & 0x1F {
            index @ 0..8 => self.pairs[usize::from(index) % PAIRS].number,
            8 => CHANNEL,
            9 => 0,
            10 => 0xFF_FFFF,
            11 => 0x100_0000,
            12 => u32::MAX,
            index => nth_newest(&self.numbers, index - 13),
        };
        let mut private_data = PrivateData::new();
        for _ in 0..usize::from(data) % 65 {
            let _fits = private_data.push(data | 0x80);
        }
        let mut address = self.outsider.port();
        match from >> 5 {
            6 => address = self.victim.address,
            7 => address[3] = 1,
            _ => {}
        }
        let message = Message {
            queue_pair: number,
            credits: places,
            qualifier: QUALIFIERS[usize::from(from >> 3) % QUALIFIERS.len()],
            port: u64::from(from),
            address,
            private_data,
            ..Message::new(kind, u32::from(from & 7) + 1, to)
        };
        let mut bytes: Vec<u8> = message.bytes().collect();
        for [how, offset, value] in core::mem::take(&mut self.bends) {
            let at = usize::from(offset);
            match how % 4 {
                0 => bytes.truncate(at),
                1 => bytes.extend((0..at % 128).map(|_| value)),
                how => {
                    let length = bytes.len().max(1);
                    if let Some(byte) = bytes.get_mut(at % length) {
                        *byte = if how == 2 { value } else { *byte ^ value };
                    }
                }
            }
        }
        self.send(bytes);
    }

    fn noise(&mut self, length: u8, seed: u8, head: u8) {
        let mut bytes: Vec<u8> = match head % 3 {
            0 => Vec::new(),
            1 => Message::new(Kind::Request, 1, 0).bytes().take(4).collect(),
            _ => Message::new(Kind::Request, 1, 0).bytes().take(6).collect(),
        };
        let mut state = u32::from(seed);
        while bytes.len() < usize::from(length) {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            bytes.push((state >> 24) as u8);
        }
        self.send(bytes);
    }

    fn join(&mut self, pair: u8, to: u8) {
        let to = Peer {
            queue_pair: nth_newest(&self.numbers, to),
            address: self.victim.address,
        };
        let Outsider { adapter, .. } = &mut self.outsider;
        let pair = &mut self.pairs[usize::from(pair) % PAIRS];
        adapter.part(pair.key);
        adapter
            .reset_queue_pair(pair.key, &mut pair.send, Some(&mut pair.receive))
            .expect("a queue pair in error");
        let joined = self.outsider.join(pair.key, pair.number, to);
        joined.expect("a queue pair that is not connected");
        for _ in 0..DEPTH {
            let token = u64::from(DEPTH);
            let segment = segment(&MEMORY.read, DATA, self.key[3]);
            let _full = pair.receive.post(&ReceiveRequest { token }, &[segment]);
        }
    }

    fn transfer(
        &mut self,
        known: &Known,
        [pair, kind, target, key, length]: [u8; OPERATION_NUMBERS],
    ) {
        let length = usize::from(length) * 8;
        let remote = RemoteRange {
            address: known.addresses[usize::from(target) % 3],
            key: match key {
                0..3 => known.keys[usize::from(key)],
                _ => u32::from(key - 3),
            },
        };
        let (operation, memory, own) = match kind % 3 {
            0 => (SendOperation::Send, &MEMORY.written, self.key[2]),
            1 => (
                SendOperation::RdmaWrite(remote),
                &MEMORY.written,
                self.key[2],
            ),
            _ => (SendOperation::RdmaRead(remote), &MEMORY.read, self.key[3]),
        };
        let request = SendRequest {
            token: SENT,
            operation,
            flags: SendFlags::empty(),
        };
        let segment = segment(memory, length, own);
        let pair = match self.pairs.get_mut(usize::from(pair) % (PAIRS + 1)) {
            Some(pair) => pair,
            None => &mut self.channel,
        };
        let _refused = pair.send.post(&request, &[segment]);
    }

    /// Performs an operation of the intruder.
    pub(super) fn act(&mut self, operation: Operation, known: &Known) {
        match operation {
            Operation::SendMessage {
                kind,
                from,
                to,
                pair,
                data,
            } => self.send_message(kind, from, to, pair, data),
            Operation::Alter { how, offset, value } => self.bends.push([how, offset, value]),
            Operation::Noise { length, seed, head } => self.noise(length, seed, head),
            Operation::Repeat { which } => {
                let index = usize::from(which) % self.sent_messages.len().max(1);
                if let Some(bytes) = self.sent_messages.iter().rev().nth(index) {
                    self.send(bytes.clone());
                }
            }
            Operation::Listen { deaf } => {
                self.deaf = deaf & 1 != 0;
                self.listen();
            }
            Operation::Join { pair, to } => self.join(pair, to),
            Operation::Transfer {
                pair,
                kind,
                target,
                key,
                length,
            } => self.transfer(known, [pair, kind, target, key, length]),
            _ => unreachable!("the victim does that"),
        }
    }
}

/// The number of values in an operation.
const OPERATION_NUMBERS: usize = 5;
