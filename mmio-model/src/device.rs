//! The objects of a device.

use alloc::collections::{BTreeMap, VecDeque};

use backend_mmio::mlx5::defs::{ArmCommand, doorbell};
use backend_mmio::mlx5::{CompletionQueueSpec, DeviceEvent, QueuePairSpec, SharedReceiveQueueSpec};
use backend_mmio::{DeviceWord, DmaView};
use backend_mock::{MockBackend, MockCompletionQueue, MockReceiveQueue, MockSendQueue};
use dat_core::backend::{Backend, ControlEvent, QueuePairKey, SharedReceiveQueueKey};
use dat_core::time::Instant;

use crate::carried::Carried;
use crate::lie::Lie;
use crate::mailbox::Desk;
use crate::sideband::Connects;

/// A completion queue.
pub(crate) struct CompletionQueue {
    pub(crate) queue: MockCompletionQueue,
    /// Its name in the fabric.
    pub(crate) name: u16,
    pub(crate) spec: CompletionQueueSpec,
    /// Entries written since the beginning.
    pub(crate) written: u32,
    pub(crate) armed: Option<ArmCommand>,
}

/// A queue pair.
pub(crate) struct Pair {
    pub(crate) key: QueuePairKey,
    pub(crate) send: MockSendQueue,
    pub(crate) receive: Option<MockReceiveQueue>,
    pub(crate) spec: QueuePairSpec,
    /// Data of its descriptors, once there was any.
    pub(crate) carried: Option<Carried>,
    /// Blocks and receives that were read since the beginning.
    pub(crate) sends_read: u32,
    pub(crate) receives_read: u32,
}

/// A shared receive queue.
pub(crate) struct Shared {
    pub(crate) key: SharedReceiveQueueKey,
    pub(crate) queue: MockReceiveQueue,
    pub(crate) spec: SharedReceiveQueueSpec,
    /// The place that is read next, and places that were read since the beginning.
    pub(crate) place: u32,
    pub(crate) read: u32,
}

/// A device.
pub struct Device {
    pub(crate) backend: MockBackend,
    pub(crate) memory: DmaView<'static>,
    pub(crate) completion_queues: BTreeMap<u32, CompletionQueue>,
    pub(crate) pairs: BTreeMap<u32, Pair>,
    pub(crate) shared: BTreeMap<u32, Shared>,
    /// Windows of the fabric by their index here.
    pub(crate) windows: BTreeMap<u32, usize>,
    pub(crate) next_number: u32,
    pub(crate) events: VecDeque<DeviceEvent>,
    pub(crate) halted: bool,
    /// Whether its queue pairs are joined by its sideband, and not connected by the fabric.
    pub(crate) joins: bool,
    /// Where its driver is told of events, if that is elsewhere.
    pub(crate) desk: Option<Desk>,
    /// What is wrong with the next completion.
    pub(crate) lie: Option<Lie>,
    /// The block that was just written to the doorbell of a queue pair.
    pub(crate) burst: Option<(u32, [u64; 8])>,
    /// Descriptors that were taken from the register, not from memory.
    pub(crate) bursts: u64,
    /// Descriptors with their data in them.
    pub(crate) inline: u64,
}

/// The first number of an object: those below are an adapter's own.
const FIRST_NUMBER: u32 = 0x40;

impl Device {
    pub(crate) fn new(backend: MockBackend, memory: DmaView<'static>) -> Self {
        Self {
            backend,
            memory,
            completion_queues: BTreeMap::new(),
            pairs: BTreeMap::new(),
            shared: BTreeMap::new(),
            windows: BTreeMap::new(),
            next_number: FIRST_NUMBER,
            events: VecDeque::new(),
            halted: false,
            joins: false,
            desk: None,
            lie: None,
            burst: None,
            bursts: 0,
            inline: 0,
        }
    }

    /// It is taken off the fabric: what was lent for its queue pairs comes back.
    pub(crate) fn end(mut self) {
        for (_, pair) in self.pairs {
            if let Some(carried) = pair.carried {
                carried.give_back(&mut self.backend);
            }
        }
    }

    /// A number for a new object.
    pub(crate) fn number(&mut self) -> u32 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }
}

impl Connects for Device {
    fn adapter(&mut self) -> &mut MockBackend {
        &mut self.backend
    }

    fn key(&self, number: u32) -> Option<QueuePairKey> {
        self.pairs.get(&number).map(|pair| pair.key)
    }

    fn ended(&mut self, _number: u32) {}

    /// Events of the fabric about something else become events of the device.
    fn connection_event(&mut self, now: Instant) -> Option<ControlEvent> {
        loop {
            let event = match self.backend.poll_control(now)? {
                ControlEvent::SharedReceiveLimit { queue } => {
                    DeviceEvent::SharedReceiveLimit(queue as u32)
                }
                ControlEvent::SharedReceiveFailed { queue } => {
                    DeviceEvent::SharedReceiveFailed(queue as u32)
                }
                ControlEvent::DeviceFailed => DeviceEvent::Failed,
                event => return Some(event),
            };
            self.events.push_back(event);
        }
    }
}

impl Device {
    /// Takes what the fabric tells of queue pairs that it did not connect: that they failed. The rest is no news of a device.
    pub(crate) fn failures(&mut self, now: Instant) {
        while let Some(event) = self.connection_event(now) {
            if let ControlEvent::Broken { queue_pair } = event {
                let failed = DeviceEvent::QueuePairFailed(queue_pair as u32);
                self.events.push_back(failed);
            }
        }
    }
}

/// A unit of memory, at a bus address and so many units behind it.
pub(crate) fn unit(memory: &DmaView<'static>, bus: u64, place: u32) -> Option<[u32; 4]> {
    let unit = memory.seen_at(bus + u64::from(place) * 16, 1)?.first()?;
    Some(unit.each_ref().map(DeviceWord::load))
}

/// A word of the doorbell record at a bus address.
pub(crate) fn record(memory: &DmaView<'static>, bus: u64, word: usize) -> u32 {
    let unit = memory.seen_at(bus, 1).and_then(|units| units.first());
    unit.and_then(|unit| unit.get(word))
        .map_or(0, DeviceWord::load)
}

/// How many entries of a queue the driver published behind those that were read; indices have 16 bits.
pub(crate) fn published(memory: &DmaView<'static>, bus: u64, word: usize, read: u32) -> u32 {
    u32::from((record(memory, bus, word) as u16).wrapping_sub(read as u16))
}

/// The completions that the driver has taken from a queue.
pub(crate) fn consumed(memory: &DmaView<'static>, spec: &CompletionQueueSpec) -> u32 {
    record(memory, spec.record, doorbell::CONSUMER)
}
