//! Objects of a device.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use backend_mmio::defs::pvrdma::{Notice, PAGE, SharedRegion, notice};
use backend_mmio::pvrdma::{Message, MessageWords};
use backend_mock::{MockBackend, MockCompletionQueue, MockReceiveQueue, MockSendQueue};
use dat_core::backend::{Backend, ControlEvent, QueuePairKey, RegionKeys, SharedReceiveQueueKey};
use dat_core::time::Instant;

use super::bad_cqe::PvrdmaBadCqe;
use super::memory::{Bus, Ring};
use super::quirks::PvrdmaQuirks;

/// A completion queue.
pub(crate) struct CompletionQueue {
    pub(crate) queue: MockCompletionQueue,
    /// Name in the fabric.
    pub(crate) name: u32,
    pub(crate) ring: Ring,
    /// Set if armed; true if armed for solicited completions only.
    pub(crate) armed: Option<bool>,
}

/// A queue pair.
pub(crate) struct Pair {
    pub(crate) key: QueuePairKey,
    pub(crate) send: MockSendQueue,
    pub(crate) receive: Option<MockReceiveQueue>,
    pub(crate) requests: Ring,
    pub(crate) receives: Ring,
    /// State set by the last command.
    pub(crate) state: u32,
    /// Set once the fabric has ended its connection.
    pub(crate) ended: bool,
    /// Set once the device has read an invalid descriptor of it.
    pub(crate) has_invalid_descriptor: bool,
}

/// A shared receive queue.
pub(crate) struct Shared {
    pub(crate) key: SharedReceiveQueueKey,
    pub(crate) queue: MockReceiveQueue,
    pub(crate) ring: Ring,
    pub(crate) segments: u32,
}

/// Fields of a descriptor that its completion repeats.
#[derive(Clone, Copy)]
pub(crate) struct Read {
    pub(crate) token: u64,
    pub(crate) opcode: u32,
}

/// State of a device that has started.
pub(crate) struct Started {
    pub(crate) region: SharedRegion,
    pub(crate) events: Ring,
    pub(crate) notices: Ring,
}

/// A device.
pub struct Device {
    pub(crate) backend: MockBackend,
    pub(crate) bus: Bus,
    /// Low half of the shared region's address; the region, once the high half was written.
    pub(crate) low: u32,
    pub(crate) started: Option<Started>,
    /// Value of the error register.
    pub(crate) error: u32,
    pub(crate) halted: bool,
    /// Number of the device if commands join its queue pairs; otherwise the fabric connects them.
    pub(crate) moves_pairs: Option<u32>,
    pub(crate) regions: BTreeMap<u32, RegionKeys>,
    pub(crate) completion_queues: BTreeMap<u32, CompletionQueue>,
    pub(crate) pairs: BTreeMap<u32, Pair>,
    pub(crate) shared: BTreeMap<u32, Shared>,
    /// Descriptors read, by their tokens in the fabric.
    pub(crate) reads: BTreeMap<u64, Read>,
    pub(crate) next_read: u64,
    pub(crate) next_number: u32,
    /// Events and notices that wait for room in their rings.
    pub(crate) events: VecDeque<Notice>,
    pub(crate) notices: VecDeque<u32>,
    /// Pending events of the connection manager.
    pub(crate) connections: VecDeque<ControlEvent>,
    /// Error that the next completion gets.
    pub(crate) bad_cqe: Option<PvrdmaBadCqe>,
    /// Word of the next answer to corrupt, and the bits to invert.
    pub(crate) answer_corruption: Option<(u32, u32)>,
    /// Words that interrupts write to, interrupt mask, bits to invert in the next value.
    pub(crate) words: &'static MessageWords,
    pub(crate) masked: bool,
    pub(crate) message_corruption: u32,
    /// Reads of the error register since a corrupted answer; `None` if there was none.
    pub(crate) error_reads: Option<u32>,
    /// Number of register reads.
    pub(crate) register_reads: u64,
    /// Set once the device is off its bus.
    pub(crate) unplugged: bool,
    pub(crate) quirks: PvrdmaQuirks,
    /// Numbers of destroyed queue pairs.
    pub(crate) free_numbers: Vec<u32>,
}

/// Interface version.
const VERSION: u32 = 18;
/// Value of the error register until the device is activated.
const NOT_ACTIVE: u32 = 0xFFFF;
/// First number of an object.
const FIRST_NUMBER: u32 = 0x10;

impl Device {
    pub(crate) fn new(
        backend: MockBackend,
        bus: Bus,
        words: &'static MessageWords,
        quirks: PvrdmaQuirks,
    ) -> Self {
        Self {
            backend,
            bus,
            low: 0,
            started: None,
            error: NOT_ACTIVE,
            halted: false,
            moves_pairs: None,
            regions: BTreeMap::new(),
            completion_queues: BTreeMap::new(),
            pairs: BTreeMap::new(),
            shared: BTreeMap::new(),
            reads: BTreeMap::new(),
            next_read: 0,
            next_number: FIRST_NUMBER,
            events: VecDeque::new(),
            notices: VecDeque::new(),
            connections: VecDeque::new(),
            bad_cqe: None,
            answer_corruption: None,
            words,
            masked: true,
            message_corruption: 0,
            error_reads: None,
            register_reads: 0,
            unplugged: false,
            quirks,
            free_numbers: Vec::new(),
        }
    }

    /// Returns a number for a new object.
    pub(crate) fn number(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number
    }

    /// Returns a number for a new queue pair; the last destroyed one's first.
    pub(crate) fn pair_number(&mut self) -> u32 {
        let free = self.free_numbers.pop();
        free.unwrap_or_else(|| self.number())
    }

    /// Records a descriptor; returns its token in the fabric.
    pub(crate) fn remember(&mut self, read: Read) -> u64 {
        self.next_read += 1;
        self.reads.insert(self.next_read, read);
        self.next_read
    }

    /// Returns the interface version.
    pub(crate) fn version(&self) -> u32 {
        self.quirks.version.unwrap_or(VERSION)
    }

    /// Writes completions if the device does so only when polled.
    pub(crate) fn poll(&mut self) {
        if self.quirks.polled && !self.halted && !self.unplugged {
            self.complete();
        }
    }

    /// Does all pending work: reads descriptors, writes completions and events.
    ///
    /// Returns true if a completion was written or the fabric had an event.
    pub(crate) fn work(&mut self) -> bool {
        if self.halted || self.unplugged || self.started.is_none() {
            return false;
        }
        self.fetch();
        let any = !self.quirks.polled && self.complete();
        self.deliver_events() || any
    }

    /// Takes events of the fabric; writes those of objects to the rings.
    ///
    /// Connection events go to the connection manager.
    fn deliver_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.backend.poll_control(Instant::ZERO) {
            any = true;
            let (kind, handle) = match event {
                ControlEvent::SharedReceiveLimit { queue } => (notice::SHARED_LIMIT, queue as u32),
                ControlEvent::SharedReceiveFailed { queue } => {
                    (notice::SHARED_FAILED, queue as u32)
                }
                ControlEvent::DeviceFailed => (notice::DEVICE_FAILED, 0),
                ControlEvent::Broken { queue_pair } if self.moves_pairs.is_some() => {
                    (*notice::QUEUE_PAIR_FAILED.start(), queue_pair as u32)
                }
                _ if self.moves_pairs.is_some() => continue,
                event => {
                    self.connections.push_back(event);
                    continue;
                }
            };
            self.events.push_back(Notice { kind, handle });
        }
        let Self {
            started: Some(started),
            bus,
            events,
            notices,
            ..
        } = self
        else {
            return any;
        };
        let (mut wrote_events, mut wrote_notices) = (false, false);
        while started.events.has_room(*bus)
            && let Some(event) = events.pop_front()
        {
            started.events.write(*bus, &event);
            wrote_events = true;
        }
        while started.notices.has_room(*bus)
            && let Some(number) = notices.pop_front()
        {
            started.notices.write(*bus, &number);
            wrote_notices = true;
        }
        if wrote_events {
            self.send(Message::Events);
        }
        if wrote_notices {
            self.send(Message::Completions);
        }
        any
    }

    /// Sends an interrupt: writes the message's value to its address.
    pub(crate) fn send(&mut self, message: Message) {
        let sent = self.quirks.messages.sent_for(message);
        let table = self.words.table();
        let entry = sent.and_then(|sent| table.get(sent as usize));
        if let Some((word, value)) = entry.filter(|_| !self.masked) {
            let value = value ^ core::mem::take(&mut self.message_corruption);
            word.store(value.swap_bytes());
        }
    }

    /// Drops the pending connection events of a queue pair.
    pub(crate) fn forget_connection(&mut self, number: u32) {
        let is_of_pair = |token: &u64| *token as u32 == number;
        self.connections.retain(|event| match event {
            ControlEvent::Answered { queue_pair }
            | ControlEvent::Established { queue_pair, .. }
            | ControlEvent::ConnectFailed { queue_pair, .. }
            | ControlEvent::Disconnected { queue_pair }
            | ControlEvent::Broken { queue_pair } => !is_of_pair(queue_pair),
            _ => true,
        });
    }

    /// Returns an event ring as the shared region describes it.
    pub(crate) fn event_ring(&self, directory: u64, pages: u32, stride: u32) -> Option<Ring> {
        let pages = self.bus.pages(directory, pages);
        let (state, pages) = pages.split_first()?;
        Some(Ring {
            state: *state,
            at: backend_mmio::defs::pvrdma::ring_state::RECEIVE,
            pages: pages.to_vec(),
            stride,
            entries: (pages.len() as u32 * PAGE as u32 / stride).next_power_of_two(),
            done: 0,
        })
    }
}
