//! Objects of a device.

use alloc::collections::{BTreeMap, VecDeque};

use backend_mmio::defs::mlx5::{ArmCommand, doorbell};
use backend_mmio::mlx5::{CompletionQueueSpec, DeviceEvent, QueuePairSpec, SharedReceiveQueueSpec};
use backend_mmio::{DeviceWord, DmaView};
use backend_mock::{MockBackend, MockCompletionQueue, MockReceiveQueue, MockSendQueue};
use dat_core::backend::{Backend, ControlEvent, QueuePairKey, SharedReceiveQueueKey};
use dat_core::time::Instant;

use crate::bad_cqe::BadCqe;
use crate::connection_manager::CmDevice;
use crate::inline_memory::InlineMemory;
use crate::mailbox_device::MailboxSlot;

/// A completion queue.
pub(crate) struct CompletionQueue {
    pub(crate) queue: MockCompletionQueue,
    /// Name in the fabric.
    pub(crate) name: u32,
    pub(crate) spec: CompletionQueueSpec,
    /// Entries written since creation.
    pub(crate) written: u32,
    pub(crate) armed: Option<ArmCommand>,
    /// Word of the last arm command that was read from the record, if any.
    pub(crate) arm_read: Option<u32>,
}

/// A queue pair.
pub(crate) struct Pair {
    pub(crate) key: QueuePairKey,
    pub(crate) send: MockSendQueue,
    pub(crate) receive: Option<MockReceiveQueue>,
    pub(crate) spec: QueuePairSpec,
    /// Memory for inline data, once a descriptor had some.
    pub(crate) inline_data: Option<InlineMemory>,
    /// Blocks and receives read since creation.
    pub(crate) sends_read: u32,
    pub(crate) receives_read: u32,
}

/// A shared receive queue.
pub(crate) struct Shared {
    pub(crate) key: SharedReceiveQueueKey,
    pub(crate) queue: MockReceiveQueue,
    pub(crate) spec: SharedReceiveQueueSpec,
    /// Index of the next buffer to read; number of buffers read since creation.
    pub(crate) next_index: u32,
    pub(crate) read: u32,
}

/// A device.
pub struct Device {
    pub(crate) backend: MockBackend,
    pub(crate) memory: DmaView<'static>,
    pub(crate) completion_queues: BTreeMap<u32, CompletionQueue>,
    pub(crate) pairs: BTreeMap<u32, Pair>,
    pub(crate) shared: BTreeMap<u32, Shared>,
    /// Windows in the fabric, by their index in this device.
    pub(crate) windows: BTreeMap<u32, usize>,
    pub(crate) next_number: u32,
    pub(crate) events: VecDeque<DeviceEvent>,
    pub(crate) halted: bool,
    /// True if its connection manager joins its queue pairs; otherwise the fabric connects them.
    pub(crate) moves_pairs: bool,
    /// Mailbox in which a remote driver is notified of events.
    pub(crate) slot: Option<MailboxSlot>,
    /// Error that the next completion gets.
    pub(crate) bad_cqe: Option<BadCqe>,
    /// Block just written to a doorbell, with the number of its queue pair.
    pub(crate) burst: Option<(u32, [u64; 8])>,
    /// Descriptors read from the doorbell register instead of memory.
    pub(crate) bursts: u64,
    /// Descriptors read that held inline data.
    pub(crate) inline: u64,
}

/// First number of an object; lower ones are reserved for the adapter.
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
            moves_pairs: false,
            slot: None,
            bad_cqe: None,
            burst: None,
            bursts: 0,
            inline: 0,
        }
    }

    /// Removes the device from the fabric and returns the inline memory of its queue pairs.
    pub(crate) fn end(mut self) {
        for (_, pair) in self.pairs {
            if let Some(inline_data) = pair.inline_data {
                inline_data.give_back(&mut self.backend);
            }
        }
    }

    /// Returns a number for a new object.
    pub(crate) fn number(&mut self) -> u32 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }
}

impl CmDevice for Device {
    fn adapter(&mut self) -> &mut MockBackend {
        &mut self.backend
    }

    fn key(&self, number: u32) -> Option<QueuePairKey> {
        self.pairs.get(&number).map(|pair| pair.key)
    }

    fn ended(&mut self, _number: u32) {}

    /// Returns the next connection event; other events of the fabric become device events.
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
    /// Turns broken queue pairs of the fabric into device events.
    ///
    /// The device joined these queue pairs itself; it has no use for other connection events.
    pub(crate) fn failures(&mut self, now: Instant) {
        while let Some(event) = self.connection_event(now) {
            if let ControlEvent::Broken { queue_pair } = event {
                let failed = DeviceEvent::QueuePairFailed(queue_pair as u32);
                self.events.push_back(failed);
            }
        }
    }
}

/// Loads a unit of memory; `index` counts units from the bus address.
pub(crate) fn unit(memory: &DmaView<'static>, bus: u64, index: u32) -> Option<[u32; 4]> {
    let unit = memory.seen_at(bus + u64::from(index) * 16, 1)?.first()?;
    Some(unit.each_ref().map(DeviceWord::load))
}

/// Loads a word of the doorbell record at a bus address.
pub(crate) fn record(memory: &DmaView<'static>, bus: u64, word: usize) -> u32 {
    let unit = memory.seen_at(bus, 1).and_then(|units| units.first());
    unit.and_then(|unit| unit.get(word))
        .map_or(0, DeviceWord::load)
}

/// Returns the number of published entries that were not read; indices have 16 bits.
pub(crate) fn published(memory: &DmaView<'static>, bus: u64, word: usize, read: u32) -> u32 {
    u32::from((record(memory, bus, word) as u16).wrapping_sub(read as u16))
}

/// Returns the number of completions that the driver consumed from a queue.
pub(crate) fn consumed(memory: &DmaView<'static>, spec: &CompletionQueueSpec) -> u32 {
    record(memory, spec.record, doorbell::CONSUMER)
}

/// Returns the word of the last arm command in a record.
pub(crate) fn arm_word(memory: &DmaView<'static>, spec: &CompletionQueueSpec) -> u32 {
    record(memory, spec.record, doorbell::ARM)
}
