//! Paravirtual devices and the fabric that connects them.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;

use backend_mmio::DmaView;
use backend_mmio::cm::PeerResolver;
use backend_mmio::cm::{PvrdmaQueueConnectionManager, QueueConnectionManager};
use backend_mmio::defs::pvrdma::{Notice, register};
use backend_mmio::pvrdma::{
    LentMessages, MessageWords, OpenFailure, PairState, Parts, PvrdmaBackend, RegionSlot, Storage,
};
use backend_mmio::ring::{
    CompletionQueueSlot, DeviceState, LentState, QueuePairSlot, RequestSlot, SharedReceiveSlot,
};
use backend_mock::{Fabric, FabricOptions, Fault, NodeOptions};
use dat_core::time::Instant;

use super::bad_cqe::PvrdmaBadCqe;
use super::connection_manager::PvrdmaConnectionManager;
use super::device::Device;
use super::lent::PvrdmaLent;
use super::memory::Bus;
use super::quirks::{Messages, PvrdmaQuirks};
use super::region::Identity;
use super::registers::{PvrdmaRegisters, Window};
use crate::fabric::{SHARED_CAPACITY, new_state, slots};
use crate::hal::{ModelHal, as_device};
use crate::lock::{Arc, Guard, Mutex, lock};
use crate::memory;
use crate::network::{ChannelEnds, ModelNetwork, channels};

/// Driver of a model device.
pub type PvrdmaModel =
    PvrdmaBackend<'static, PvrdmaRegisters, Identity, PvrdmaConnectionManager, ModelHal<Shared>>;

/// Driver of a model device, in lent memory.
pub type LentPvrdma<'s> =
    PvrdmaBackend<'s, PvrdmaRegisters, Identity, PvrdmaConnectionManager, ModelHal<Shared>>;

/// Driver of a model device that sets up connections over its own queue pairs.
pub type OverQueuesPvrdma = PvrdmaBackend<
    'static,
    PvrdmaRegisters,
    Identity,
    PvrdmaQueueConnectionManager<'static, PvrdmaRegisters, ModelHal<Shared>, ModelNetwork<Shared>>,
    ModelHal<Shared>,
>;

/// Size of the memory that device and driver share, in pages.
const PAGES: usize = 4096;
const PAGE: usize = 4096;
/// Request slots, and the number of them in an allocation unit.
const REQUESTS: usize = 8192;
const REQUESTS_GRAIN: usize = 16;

/// All devices.
#[derive(Default)]
pub(crate) struct World {
    devices: Vec<Option<Device>>,
    /// Devices that were activated and not reset since, on the fabric or not.
    pub(crate) active: BTreeSet<usize>,
}

impl World {
    /// Returns a device, or `None` if it was removed.
    pub(crate) fn device(&mut self, number: usize) -> Option<&mut Device> {
        self.devices.get_mut(number).and_then(Option::as_mut)
    }

    /// Removes a device from the fabric.
    pub(crate) fn remove(&mut self, number: usize) {
        if let Some(device) = self.devices.get_mut(number) {
            *device = None;
        }
    }

    fn work(&mut self) -> bool {
        let mut any = false;
        for device in self.devices.iter_mut().flatten() {
            any |= device.work();
        }
        any
    }
}

/// State that all parts of all devices share.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<World>>);

impl Shared {
    pub(crate) fn enter(&self) -> Guard<'_, World> {
        lock(&self.0)
    }
}

/// Paravirtual devices on one fabric.
pub struct PvrdmaFabric {
    fabric: Fabric,
    shared: Shared,
    channel_ends: ChannelEnds,
}

impl fmt::Debug for PvrdmaFabric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PvrdmaFabric")
            .finish_non_exhaustive()
    }
}

impl PvrdmaFabric {
    /// Creates a fabric without devices.
    #[must_use]
    pub fn new(options: FabricOptions) -> Self {
        Self {
            fabric: Fabric::new(options),
            shared: Shared::default(),
            channel_ends: ChannelEnds::default(),
        }
    }

    /// Creates a device without windows and its driver; their memory is never freed.
    #[must_use]
    pub fn device(&self, options: NodeOptions) -> PvrdmaModel {
        self.device_in(options, new_state())
    }

    /// Creates a device like [`device`](Self::device), with device state that the caller lends.
    ///
    /// # Panics
    /// If the driver refuses the device.
    #[must_use]
    pub fn device_in(&self, options: NodeOptions, state: LentState<'static>) -> PvrdmaModel {
        match self.device_with_quirks(options, state, PvrdmaQuirks::default()) {
            Ok(backend) => backend,
            Err(failure) => panic!("{failure:?}"),
        }
    }

    /// Creates a device that drops completions of flushed requests and sends no interrupts.
    ///
    /// # Panics
    /// If the driver refuses the device.
    #[must_use]
    pub fn device_without_flush(&self, options: NodeOptions) -> PvrdmaModel {
        let quirks = PvrdmaQuirks {
            drops_flushed: true,
            messages: Messages::Unwanted,
            ..PvrdmaQuirks::default()
        };
        match self.device_with_quirks(options, new_state(), quirks) {
            Ok(backend) => backend,
            Err(failure) => panic!("{failure:?}"),
        }
    }

    /// Creates a device like [`device_in`](Self::device_in), with quirks.
    ///
    /// # Errors
    /// Those of [`PvrdmaBackend::open`].
    pub fn device_with_quirks(
        &self,
        options: NodeOptions,
        state: LentState<'static>,
        quirks: PvrdmaQuirks,
    ) -> Result<PvrdmaModel, OpenFailure> {
        let (messages, words) = words();
        let device = self.add(options, quirks, false, memory::shared(PAGES * PAGE), words);
        let cm = self.cm(device);
        self.driver(device, options, storage(state), quirks, messages, cm)
    }

    /// Creates a device in lent memory, which can be lent again afterwards.
    ///
    /// Also returns the state of the device.
    ///
    /// # Errors
    /// Those of [`PvrdmaBackend::open`].
    pub fn device_on<'s>(
        &self,
        options: NodeOptions,
        quirks: PvrdmaQuirks,
        lent: &'s mut PvrdmaLent,
    ) -> Result<(LentPvrdma<'s>, &'s DeviceState), OpenFailure> {
        let device = self.add(options, quirks, false, lent.memory, lent.words);
        let (storage, messages, state) = lent.storage();
        let cm = self.cm(device);
        let driver = self.driver(device, options, storage, quirks, messages, cm)?;
        Ok((driver, state))
    }

    fn cm(&self, device: usize) -> PvrdmaConnectionManager {
        PvrdmaConnectionManager {
            devices: self.shared.clone(),
            device,
        }
    }

    /// Creates a device that sets up connections over its own queue pairs.
    ///
    /// It reaches all other devices of this kind.
    ///
    /// # Panics
    /// If the driver refuses the device.
    #[must_use]
    pub fn over_queues_device(&self, options: NodeOptions) -> OverQueuesPvrdma {
        let quirks = PvrdmaQuirks::default();
        let (messages, words) = words();
        let device = self.add(options, quirks, true, memory::shared(PAGES * PAGE), words);
        let network = ModelNetwork {
            devices: self.shared.clone(),
            device,
            address: options.address,
            channel_ends: self.channel_ends.clone(),
            driver_moves_pairs: true,
        };
        let port = [device as u32, 0, 0, 0];
        let cm = QueueConnectionManager::new(channels(), network, options.address, port);
        let storage = storage(new_state());
        let driver = self.driver(device, options, storage, quirks, messages, cm);
        let opened = driver.map(|mut driver| driver.open_channels().map(|()| driver));
        match opened {
            Ok(Ok(driver)) => driver,
            Ok(Err(error)) => panic!("{error:?}"),
            Err(failure) => panic!("{failure:?}"),
        }
    }

    /// Adds a device to the fabric; returns its number.
    fn add(
        &self,
        options: NodeOptions,
        quirks: PvrdmaQuirks,
        moves_pairs: bool,
        memory: DmaView<'static>,
        words: &'static MessageWords,
    ) -> usize {
        let mut device = Device::new(
            self.fabric.node(as_device(options)),
            Bus(memory),
            words,
            quirks,
        );
        let mut world = self.shared.enter();
        let number = world.devices.len();
        device.moves_pairs = moves_pairs.then_some(number as u32);
        world.devices.push(Some(device));
        number
    }

    fn driver<'s, S: PeerResolver>(
        &self,
        device: usize,
        options: NodeOptions,
        storage: Storage<'s>,
        quirks: PvrdmaQuirks,
        messages: LentMessages<'s>,
        cm: S,
    ) -> Result<PvrdmaBackend<'s, PvrdmaRegisters, Identity, S, ModelHal<Shared>>, OpenFailure>
    {
        let shared = &self.shared;
        let memory = match shared.enter().device(device) {
            Some(device) => device.bus.0,
            None => memory::shared(0),
        };
        let registers = |window| PvrdmaRegisters {
            shared: shared.clone(),
            device,
            window,
        };
        let parts = Parts {
            name: options.name,
            registers: registers(Window::Registers),
            doorbells: registers(Window::Doorbells),
            doorbell_page: 1,
            mapping: Identity {
                shared: shared.clone(),
                device,
            },
            cm,
            hal: ModelHal {
                devices: shared.clone(),
                device,
                coherent: options.coherent,
                drawn: Arc::default(),
            },
            address: [device as u32, 0, 0, 0],
            segments: u32::MAX,
            completions: 1024,
            shared_buffers: SHARED_CAPACITY,
            flushes: !quirks.drops_flushed,
            messages: (quirks.messages != Messages::Unwanted).then_some(messages),
            memory: memory::dma_memory(memory),
        };
        PvrdmaBackend::open(parts, storage)
    }

    /// Returns the number of devices that were activated and not reset since.
    #[must_use]
    pub fn active(&self) -> usize {
        self.shared.enter().active.len()
    }

    /// Adds a fault to the plan of the fabric.
    pub fn inject(&self, fault: Fault) {
        self.fabric.inject(fault);
    }

    /// Reads posted descriptors, moves the fabric one step, and writes completions.
    ///
    /// Returns false if nothing happened.
    pub fn step(&self) -> bool {
        let mut world = self.shared.enter();
        world.work();
        let moved = self.fabric.step();
        world.work() || moved
    }

    /// Makes a device write its next completion with an error; devices count from 0.
    pub fn forge_completion(&self, device: usize, bad_cqe: PvrdmaBadCqe) {
        if let Some(device) = self.shared.enter().device(device) {
            device.bad_cqe = Some(bad_cqe);
        }
    }

    /// Makes a device change a word of the memory that it shares with its driver.
    ///
    /// `area` selects a slot of commands or answers, a page of a ring or a ring's indices; `area`
    /// and `word` are taken modulo the number of areas and words.
    pub fn corrupt(
        &self,
        device: usize,
        area: usize,
        word: usize,
        change: impl FnOnce(u32) -> u32,
    ) {
        if let Some(device) = self.shared.enter().device(device) {
            device.corrupt(area, word, change);
        }
    }

    /// Makes a device report an event, true or not.
    pub fn report_event(&self, device: usize, notice: Notice) {
        if let Some(device) = self.shared.enter().device(device) {
            device.events.push_back(notice);
        }
    }

    /// Makes a device report completions of a queue, armed or not.
    pub fn report_completions(&self, device: usize, queue: u32) {
        if let Some(device) = self.shared.enter().device(device) {
            device.notices.push_back(queue);
        }
    }

    /// Makes a device invert bits in a word of its next answer.
    ///
    /// A driver that waits for the correct answer finds the device gone after 1000 reads of the
    /// error register.
    pub fn corrupt_answer(&self, device: usize, word: u32, bits: u32) {
        if let Some(device) = self.shared.enter().device(device) {
            device.answer_corruption = Some((word, bits));
        }
    }

    /// Returns the words that a device's interrupts write to, if the device exists.
    #[must_use]
    pub fn messages(&self, device: usize) -> Option<&'static MessageWords> {
        let mut world = self.shared.enter();
        world.device(device).map(|device| device.words)
    }

    /// Makes a device invert bits in the value of its next interrupt.
    pub fn corrupt_message(&self, device: usize, bits: u32) {
        if let Some(device) = self.shared.enter().device(device) {
            device.message_corruption = bits;
        }
    }

    /// Returns the number of regions of a device.
    #[must_use]
    pub fn regions(&self, device: usize) -> usize {
        let mut world = self.shared.enter();
        world
            .device(device)
            .map_or(0, |device| device.regions.len())
    }

    /// Returns the number of register reads of a device.
    #[must_use]
    pub fn register_reads(&self, device: usize) -> u64 {
        let mut world = self.shared.enter();
        world
            .device(device)
            .map_or(0, |device| device.register_reads)
    }

    /// Removes a device from its bus: its registers read as ones, and it stops.
    pub fn unplug(&self, device: usize) {
        if let Some(device) = self.shared.enter().device(device) {
            device.control(register::RESET);
            device.unplugged = true;
        }
    }

    /// Runs all events that are due until a point in time.
    pub fn run_until(&self, until: Instant) {
        let mut world = self.shared.enter();
        world.work();
        self.fabric.run_until(until);
        world.work();
    }

    /// Returns the time of the fabric.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.fabric.now()
    }
}

/// Allocates the interrupt words of a device, which are never freed.
fn words() -> (LentMessages<'static>, &'static MessageWords) {
    Box::leak(Box::new(MessageWords::new())).lend()
}

fn storage(state: LentState<'static>) -> Storage<'static> {
    Storage {
        state,
        queue_pairs: slots(128, || QueuePairSlot::EMPTY),
        pair_states: slots(64, PairState::default),
        completion_queues: slots(128, || CompletionQueueSlot::EMPTY),
        shared_receive_queues: slots(8, || SharedReceiveSlot::EMPTY),
        regions: slots(1024, RegionSlot::default),
        requests: slots(REQUESTS, || RequestSlot::EMPTY),
        requests_taken: slots(REQUESTS / REQUESTS_GRAIN, || false),
        pages_taken: slots(PAGES, || false),
    }
}
