//! The objects of a device.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use backend_mmio::pvrdma::defs::{Notice, PAGE, SharedRegion, notice};
use backend_mmio::pvrdma::{Message, MessageWords};
use backend_mock::{MockBackend, MockCompletionQueue, MockReceiveQueue, MockSendQueue};
use dat_core::backend::{Backend, ControlEvent, QueuePairKey, RegionKeys, SharedReceiveQueueKey};
use dat_core::time::Instant;

use super::lie::PvrdmaLie;
use super::manner::PvrdmaManner;
use super::memory::{Bus, Ring};

/// A completion queue.
pub(crate) struct CompletionQueue {
    pub(crate) queue: MockCompletionQueue,
    /// Its name in the fabric.
    pub(crate) name: u16,
    pub(crate) ring: Ring,
    /// Whether it is armed, and then whether for solicited completions alone.
    pub(crate) armed: Option<bool>,
}

/// A queue pair.
pub(crate) struct Pair {
    pub(crate) key: QueuePairKey,
    pub(crate) send: MockSendQueue,
    pub(crate) receive: Option<MockReceiveQueue>,
    pub(crate) requests: Ring,
    pub(crate) receives: Ring,
    /// As of the last command.
    pub(crate) state: u32,
    /// Whether the fabric has ended its connection.
    pub(crate) ended: bool,
    /// Whether it has a descriptor that nobody can make sense of.
    pub(crate) senseless: bool,
}

/// A shared receive queue.
pub(crate) struct Shared {
    pub(crate) key: SharedReceiveQueueKey,
    pub(crate) queue: MockReceiveQueue,
    pub(crate) ring: Ring,
    pub(crate) segments: u32,
}

/// A descriptor that was read: what its completion says of it.
#[derive(Clone, Copy)]
pub(crate) struct Read {
    pub(crate) token: u64,
    pub(crate) opcode: u32,
}

/// What a device does once it began.
pub(crate) struct Begun {
    pub(crate) region: SharedRegion,
    pub(crate) events: Ring,
    pub(crate) notices: Ring,
}

/// A device.
pub struct Device {
    pub(crate) backend: MockBackend,
    pub(crate) bus: Bus,
    /// The low half of where the shared region is, and the region once the other half was written.
    pub(crate) low: u32,
    pub(crate) begun: Option<Begun>,
    /// What the register of errors holds.
    pub(crate) error: u32,
    pub(crate) halted: bool,
    /// Its number, if commands join its queue pairs, and the fabric does not connect them.
    pub(crate) joins: Option<u32>,
    pub(crate) regions: BTreeMap<u32, RegionKeys>,
    pub(crate) completion_queues: BTreeMap<u32, CompletionQueue>,
    pub(crate) pairs: BTreeMap<u32, Pair>,
    pub(crate) shared: BTreeMap<u32, Shared>,
    /// Descriptors by the tokens that they have in the fabric.
    pub(crate) reads: BTreeMap<u64, Read>,
    pub(crate) next_read: u64,
    pub(crate) next_number: u32,
    /// What the rings had no room for yet.
    pub(crate) events: VecDeque<Notice>,
    pub(crate) notices: VecDeque<u32>,
    /// What the sideband has to tell.
    pub(crate) connections: VecDeque<ControlEvent>,
    /// What is wrong with the next completion.
    pub(crate) lie: Option<PvrdmaLie>,
    /// A word of the next answer, and its bits that are the other way round.
    pub(crate) answer_lie: Option<(u32, u32)>,
    /// The words that its interrupts write into, whether it may, and bits of the next one that are the other way round.
    pub(crate) words: &'static MessageWords,
    pub(crate) masked: bool,
    pub(crate) message_lie: u32,
    /// How often its register was looked at since it lied in an answer; none if it did not.
    pub(crate) looks: Option<u32>,
    /// How often a register of it was read.
    pub(crate) register_reads: u64,
    /// Whether it is off its bus.
    pub(crate) unplugged: bool,
    pub(crate) manner: PvrdmaManner,
    /// Numbers of queue pairs that were destroyed.
    pub(crate) free_numbers: Vec<u32>,
}

/// The version of the interface.
const VERSION: u32 = 18;
/// Before it was activated.
const NOT_ACTIVE: u32 = 0xFFFF;
/// The first number of an object.
const FIRST_NUMBER: u32 = 0x10;

impl Device {
    pub(crate) fn new(
        backend: MockBackend,
        bus: Bus,
        words: &'static MessageWords,
        manner: PvrdmaManner,
    ) -> Self {
        Self {
            backend,
            bus,
            low: 0,
            begun: None,
            error: NOT_ACTIVE,
            halted: false,
            joins: None,
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
            lie: None,
            answer_lie: None,
            words,
            masked: true,
            message_lie: 0,
            looks: None,
            register_reads: 0,
            unplugged: false,
            manner,
            free_numbers: Vec::new(),
        }
    }

    /// A number for a new object.
    pub(crate) fn number(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number
    }

    /// A number for a new queue pair.
    pub(crate) fn pair_number(&mut self) -> u32 {
        let free = self.free_numbers.pop();
        free.unwrap_or_else(|| self.number())
    }

    /// A descriptor was read: its token in the fabric.
    pub(crate) fn remember(&mut self, read: Read) -> u64 {
        self.next_read += 1;
        self.reads.insert(self.next_read, read);
        self.next_read
    }

    /// The version of its interface.
    pub(crate) fn version(&self) -> u32 {
        self.manner.version.unwrap_or(VERSION)
    }

    /// Writes what completed, if that waits for a poll.
    pub(crate) fn poll(&mut self) {
        if self.manner.polled && !self.halted && !self.unplugged {
            self.complete();
        }
    }

    /// Does all that there is to do: reads what was posted, writes what completed and what happened; whether there was anything
    /// to write.
    pub(crate) fn work(&mut self) -> bool {
        if self.halted || self.unplugged || self.begun.is_none() {
            return false;
        }
        self.fetch();
        let any = !self.manner.polled && self.complete();
        self.tell() || any
    }

    /// Takes what the fabric tells: events of objects for the rings, those of connections for the sideband.
    fn tell(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.backend.poll_control(Instant::ZERO) {
            any = true;
            let (kind, handle) = match event {
                ControlEvent::SharedReceiveLimit { queue } => (notice::SHARED_LIMIT, queue as u32),
                ControlEvent::SharedReceiveFailed { queue } => {
                    (notice::SHARED_FAILED, queue as u32)
                }
                ControlEvent::DeviceFailed => (notice::DEVICE_FAILED, 0),
                ControlEvent::Broken { queue_pair } if self.joins.is_some() => {
                    (*notice::QUEUE_PAIR_FAILED.start(), queue_pair as u32)
                }
                _ if self.joins.is_some() => continue,
                event => {
                    self.connections.push_back(event);
                    continue;
                }
            };
            self.events.push_back(Notice { kind, handle });
        }
        let Self {
            begun: Some(begun),
            bus,
            events,
            notices,
            ..
        } = self
        else {
            return any;
        };
        let (mut of_events, mut of_completions) = (false, false);
        while begun.events.has_room(*bus)
            && let Some(event) = events.pop_front()
        {
            begun.events.write(*bus, &event);
            of_events = true;
        }
        while begun.notices.has_room(*bus)
            && let Some(number) = notices.pop_front()
        {
            begun.notices.write(*bus, &number);
            of_completions = true;
        }
        if of_events {
            self.send(Message::Events);
        }
        if of_completions {
            self.send(Message::Completions);
        }
        any
    }

    /// Sends an interrupt: writes what it was told to write where it was told to.
    pub(crate) fn send(&mut self, message: Message) {
        let sent = self.manner.messages.sent_for(message);
        let table = self.words.table();
        let entry = sent.and_then(|sent| table.get(sent as usize));
        if let Some((word, value)) = entry.filter(|_| !self.masked) {
            let value = value ^ core::mem::take(&mut self.message_lie);
            word.store(value.swap_bytes());
        }
    }

    /// What the sideband was to tell of a queue pair means nothing any more.
    pub(crate) fn forget_connection(&mut self, number: u32) {
        let of_it = |token: &u64| *token as u32 == number;
        self.connections.retain(|event| match event {
            ControlEvent::Answered { queue_pair }
            | ControlEvent::Established { queue_pair, .. }
            | ControlEvent::ConnectFailed { queue_pair, .. }
            | ControlEvent::Disconnected { queue_pair }
            | ControlEvent::Broken { queue_pair } => !of_it(queue_pair),
            _ => true,
        });
    }

    /// A ring of events, as the shared region names it.
    pub(crate) fn ring_of_events(&self, directory: u64, pages: u32, stride: u32) -> Option<Ring> {
        let pages = self.bus.pages(directory, pages);
        let (state, pages) = pages.split_first()?;
        Some(Ring {
            state: *state,
            at: backend_mmio::pvrdma::defs::ring_state::RECEIVE,
            pages: pages.to_vec(),
            stride,
            entries: (pages.len() as u32 * PAGE as u32 / stride).next_power_of_two(),
            done: 0,
        })
    }
}
