//! The objects of a device.

use std::collections::{BTreeMap, VecDeque};

use backend_mmio::mlx5::defs::{ArmCommand, doorbell};
use backend_mmio::mlx5::{CompletionQueueSpec, DeviceEvent, QueuePairSpec, SharedReceiveQueueSpec};
use backend_mmio::{DeviceWord, DmaMemory};
use backend_mock::{MockBackend, MockCompletionQueue, MockReceiveQueue, MockSendQueue};
use dat_core::backend::{QueuePairKey, SharedReceiveQueueKey};

use crate::lie::Lie;

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
pub(crate) struct Device {
    pub(crate) backend: MockBackend,
    pub(crate) memory: DmaMemory<'static>,
    pub(crate) completion_queues: BTreeMap<u32, CompletionQueue>,
    pub(crate) pairs: BTreeMap<u32, Pair>,
    pub(crate) shared: BTreeMap<u32, Shared>,
    /// Windows of the fabric by their index here.
    pub(crate) windows: BTreeMap<u32, usize>,
    pub(crate) next_number: u32,
    pub(crate) events: VecDeque<DeviceEvent>,
    pub(crate) halted: bool,
    /// What is wrong with the next completion.
    pub(crate) lie: Option<Lie>,
}

/// The first number of an object: those below are an adapter's own.
const FIRST_NUMBER: u32 = 0x40;

impl Device {
    pub(crate) fn new(backend: MockBackend, memory: DmaMemory<'static>) -> Self {
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
            lie: None,
        }
    }

    /// A number for a new object.
    pub(crate) fn number(&mut self) -> u32 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }
}

/// A unit of memory, at a bus address and so many units behind it.
pub(crate) fn unit(memory: &DmaMemory<'static>, bus: u64, place: u32) -> Option<[u32; 4]> {
    let unit = memory.seen_at(bus + u64::from(place) * 16, 1)?.first()?;
    Some(unit.each_ref().map(DeviceWord::load))
}

/// A word of the doorbell record at a bus address.
pub(crate) fn record(memory: &DmaMemory<'static>, bus: u64, word: usize) -> u32 {
    let unit = memory.seen_at(bus, 1).and_then(|units| units.first());
    unit.and_then(|unit| unit.get(word))
        .map_or(0, DeviceWord::load)
}

/// How many entries of a queue the driver published behind those that were read; indices have 16 bits.
pub(crate) fn published(memory: &DmaMemory<'static>, bus: u64, word: usize, read: u32) -> u32 {
    u32::from((record(memory, bus, word) as u16).wrapping_sub(read as u16))
}

/// The completions that the driver has taken from a queue.
pub(crate) fn consumed(memory: &DmaMemory<'static>, spec: &CompletionQueueSpec) -> u32 {
    record(memory, spec.record, doorbell::CONSUMER)
}
