//! Model devices and the fabric that connects them.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use backend_mmio::cm::ConnectionManager;
#[cfg(feature = "std")]
use backend_mmio::cm::MailboxConnectionManager;
use backend_mmio::cm::{ConnectionStorage, MmioQueueConnectionManager, QueueConnectionManager};
use backend_mmio::defs::mailbox;
#[cfg(feature = "std")]
use backend_mmio::mailbox::{Mailbox, MailboxControl, MailboxRegisters};
use backend_mmio::mlx5::{
    DeviceEvent, Limits, MmioBackend, MmioReceiveQueue, MmioSendQueue, Parts, Storage, WindowSlot,
};
use backend_mmio::ring::{
    CompletionQueueSlot, DeviceState, LentState, QueuePairSlot, RequestSlot, SharedReceiveSlot,
};
use backend_mmio::{DeviceUnit, DmaView};
use backend_mock::{Fabric, FabricOptions, Fault, NodeOptions};
use dat_core::backend::BackendError;
use dat_core::time::Instant;

use crate::bad_cqe::BadCqe;
use crate::connection_manager::{Devices, FabricConnectionManager};
use crate::control::ModelControl;
use crate::device::Device;
use crate::fetch::WindowKeys;
use crate::hal::{ModelHal, as_device};
use crate::lent::Lent;
use crate::lock::{Arc, Guard, Mutex, lock};
#[cfg(feature = "std")]
use crate::mailbox_backend::{InProcessEnd, ModelMailboxBackend, any_region};
use crate::mailbox_device::{MailboxDevice, MailboxSlot, Regions};
use crate::memory;
use crate::network::{ChannelEnds, ModelNetwork, channels};
use crate::outsider::Outsider;
use crate::registers::ModelRegisters;

/// Connection manager of a model device.
pub type ModelConnectionManager = FabricConnectionManager<Shared>;

/// Driver of a model device.
pub type ModelBackend =
    MmioBackend<'static, ModelControl, ModelConnectionManager, ModelRegisters, ModelHal<Shared>>;

/// Driver of a model device, in lent memory.
pub type LentBackend<'s> =
    MmioBackend<'s, ModelControl, ModelConnectionManager, ModelRegisters, ModelHal<Shared>>;

/// Driver of a model device that sets up connections over its own queue pairs.
pub type OverQueuesBackend = LentOverQueues<'static>;

/// [`OverQueuesBackend`] in lent memory.
pub type LentOverQueues<'s> = MmioBackend<
    's,
    ModelControl,
    MmioQueueConnectionManager<'s, ModelRegisters, ModelHal<Shared>, ModelNetwork<Shared>>,
    ModelRegisters,
    ModelHal<Shared>,
>;

/// Storage of the connection manager of such a device.
pub type OverQueuesStorage<'s> = ConnectionStorage<
    's,
    MmioSendQueue<'s, ModelHal<Shared>, ModelRegisters>,
    MmioReceiveQueue<'s, ModelHal<Shared>>,
>;

/// Size of the memory that device and driver share, in bytes.
const MEMORY: usize = 1 << 20;
/// Allocation unit of that memory, in bytes.
const MEMORY_GRAIN: usize = 256;
/// Request slots, and the number of them in an allocation unit.
const REQUESTS: usize = 8192;
const REQUESTS_GRAIN: usize = 16;

/// Limit to which shared receive queues may grow, in buffers.
pub(crate) const SHARED_CAPACITY: u32 = 64;

pub(crate) const LIMITS: Limits = Limits {
    name: "model",
    domains: 64,
    regions: 1024,
    windows: 64,
    completion_queues: 128,
    completions: 2048,
    queue_pairs: 64,
    work_requests: 256,
    segments: 30,
    shared_receive_queues: 8,
    shared_buffers: 512,
    rdma_reads: 16,
    transfer: 1 << 31,
    inline: 156,
};

/// First index of a window.
///
/// Window keys have the highest bit set, which keys of the fabric do not.
const FIRST_WINDOW: u32 = 1 << 23;

/// All devices and windows.
#[derive(Default)]
pub(crate) struct World {
    devices: Vec<Option<Device>>,
    window_keys: WindowKeys,
    /// Indices of the windows of all devices; a new window gets the lowest free one.
    windows: BTreeSet<u32>,
}

impl World {
    /// Returns a device, or `None` if it was removed, and the keys of all windows.
    pub(crate) fn device(&mut self, number: usize) -> (Option<&mut Device>, &mut WindowKeys) {
        let device = self.devices.get_mut(number).and_then(Option::as_mut);
        (device, &mut self.window_keys)
    }

    /// Removes a device from the fabric.
    pub(crate) fn remove(&mut self, number: usize) {
        if let Some(device) = self.devices.get_mut(number).and_then(Option::take) {
            device.end();
        }
    }

    /// Reserves an index that no window has.
    pub(crate) fn window_index(&mut self) -> u32 {
        let free = (FIRST_WINDOW..2 * FIRST_WINDOW).find(|index| self.windows.insert(*index));
        free.unwrap_or(FIRST_WINDOW)
    }

    pub(crate) fn forget_window(&mut self, index: u32) {
        self.windows.remove(&index);
        self.window_keys.retain(|key, _| key >> 8 != index);
    }

    fn fetch(&mut self) {
        for device in self.devices.iter_mut().flatten() {
            device.fetch(&mut self.window_keys);
        }
    }

    fn complete(&mut self) -> bool {
        let mut any = false;
        for device in self.devices.iter_mut().flatten() {
            any |= device.complete();
        }
        any
    }

    /// Notifies remote drivers that something happened.
    fn notify(&self) {
        let devices = self.devices.iter().flatten();
        devices
            .filter_map(|device| device.slot)
            .for_each(MailboxSlot::notify);
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

impl Devices for Shared {
    type Device = Device;

    /// Reads posted descriptors first, and writes completions afterwards.
    fn on<R>(
        &self,
        device: usize,
        act: impl FnOnce(&mut Device) -> Result<R, BackendError>,
    ) -> Result<R, BackendError> {
        let mut world = self.enter();
        let (device, windows) = world.device(device);
        let device = device.ok_or(BackendError::Device)?;
        device.fetch(windows);
        let result = act(device);
        device.complete();
        result
    }
}

/// Model devices on one fabric.
pub struct ModelFabric {
    fabric: Fabric,
    shared: Shared,
    channel_ends: ChannelEnds,
}

impl ModelFabric {
    /// Creates a fabric without devices.
    #[must_use]
    pub fn new(options: FabricOptions) -> Self {
        Self {
            fabric: Fabric::new(options),
            shared: Shared::default(),
            channel_ends: ChannelEnds::default(),
        }
    }

    /// Creates a device and its driver; their memory is never freed.
    #[must_use]
    pub fn device(&self, options: NodeOptions) -> ModelBackend {
        self.device_in(options, new_state())
    }

    /// Creates a device like [`device`](Self::device), with device state that the caller lends.
    #[must_use]
    pub fn device_in(&self, options: NodeOptions, state: LentState<'static>) -> ModelBackend {
        let device = self.add(options, false, memory::shared(MEMORY));
        let cm = self.cm(device);
        self.driver(device, options, storage(&LIMITS, state), cm)
    }

    /// Creates a device in lent memory, which can be lent again afterwards.
    ///
    /// Also returns the state of the device.
    #[must_use]
    pub fn device_on<'s>(
        &self,
        options: NodeOptions,
        lent: &'s mut Lent,
    ) -> (LentBackend<'s>, &'s DeviceState) {
        let device = self.add(options, false, lent.memory);
        let (storage, state) = lent.storage();
        let cm = self.cm(device);
        (self.driver(device, options, storage, cm), state)
    }

    /// Creates a device whose driver reaches it only through a mailbox in this process.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn device_by_mailbox(&self, options: NodeOptions) -> ModelMailboxBackend {
        let memory = memory::shared(MEMORY);
        let mailbox = Box::leak(Box::new([const { DeviceUnit::new() }; mailbox::UNITS]));
        let device = self.mailbox_device(options, memory, mailbox, any_region());
        let hal = ModelHal {
            devices: self.shared.clone(),
            device: device.control.device,
            coherent: options.coherent,
            drawn: Arc::default(),
        };
        // SAFETY: the memory is never freed, and only driver and device use it.
        #[expect(unsafe_code, reason = "the device belongs to this crate")]
        let mailbox = unsafe { Mailbox::new(mailbox, InProcessEnd::new(device)) };
        let mailbox = Box::leak(Box::new(mailbox));
        let (Ok(control), Ok(cm)) = (
            MailboxControl::new(mailbox, options.name),
            MailboxConnectionManager::new(mailbox),
        ) else {
            unreachable!("it answers");
        };
        let parts = Parts {
            control,
            cm,
            registers: MailboxRegisters::new(mailbox),
            hal,
            shared_buffers: SHARED_CAPACITY,
            memory: memory::dma_memory(memory),
        };
        MmioBackend::new(parts, storage(&LIMITS, new_state()))
    }

    fn cm(&self, device: usize) -> ModelConnectionManager {
        FabricConnectionManager {
            devices: self.shared.clone(),
            device,
        }
    }

    /// Creates a device that sets up connections over its own queue pairs.
    ///
    /// It reaches all other devices of this kind.
    ///
    /// # Panics
    /// If its channels cannot be opened.
    #[must_use]
    pub fn over_queues_device(&self, options: NodeOptions) -> OverQueuesBackend {
        let device = self.add(options, true, memory::shared(MEMORY));
        let storage = storage(&LIMITS, new_state());
        self.over_queues_driver(device, options, storage, channels())
    }

    /// Creates a device like [`over_queues_device`](Self::over_queues_device), in lent memory.
    ///
    /// The memory can be lent again once the device is dropped. `connections` bounds the channels,
    /// connections and listeners. Also returns the state of the device.
    ///
    /// # Panics
    /// If its channels cannot be opened.
    #[must_use]
    pub fn over_queues_device_on<'s>(
        &self,
        options: NodeOptions,
        lent: &'s mut Lent,
        connections: OverQueuesStorage<'s>,
    ) -> (LentOverQueues<'s>, &'s DeviceState) {
        let device = self.add(options, true, lent.memory);
        let (storage, state) = lent.storage();
        let driver = self.over_queues_driver(device, options, storage, connections);
        (driver, state)
    }

    fn over_queues_driver<'s>(
        &self,
        device: usize,
        options: NodeOptions,
        storage: Storage<'s>,
        connections: OverQueuesStorage<'s>,
    ) -> LentOverQueues<'s> {
        let port = [device as u32, 0, 0, 0];
        let network = self.network(device, options, false);
        let cm = QueueConnectionManager::new(connections, network, options.address, port);
        let mut driver = self.driver(device, options, storage, cm);
        if let Err(error) = driver.open_channels() {
            panic!("{error:?}");
        }
        driver
    }

    /// Returns the network of a device, which finds the peers of its channels.
    fn network(
        &self,
        device: usize,
        options: NodeOptions,
        driver_moves_pairs: bool,
    ) -> ModelNetwork<Shared> {
        ModelNetwork {
            devices: self.shared.clone(),
            device,
            address: options.address,
            channel_ends: self.channel_ends.clone(),
            driver_moves_pairs,
        }
    }

    /// Creates an adapter without a driver, which sends arbitrary messages to other devices.
    ///
    /// Its peers are devices that set up connections over their own queue pairs.
    #[must_use]
    pub fn outsider(&self, options: NodeOptions) -> Outsider {
        let mut world = self.shared.enter();
        // The number is taken, and stands for no device.
        let device = world.devices.len();
        world.devices.push(None);
        drop(world);
        Outsider {
            adapter: self.fabric.node(options),
            network: self.network(device, options, true),
        }
    }

    /// Creates a device for a remote driver.
    ///
    /// Device and driver share `memory` at addresses that both use, and the `mailbox`, which is
    /// separate memory. `regions` finds the consumer memory that the device may reach.
    #[must_use]
    pub fn mailbox_device(
        &self,
        options: NodeOptions,
        memory: DmaView<'static>,
        mailbox: &'static [DeviceUnit; mailbox::UNITS],
        regions: Regions,
    ) -> MailboxDevice {
        let device = self.add(options, false, memory);
        let slot = MailboxSlot(mailbox);
        if let (Some(device), _) = self.shared.enter().device(device) {
            device.slot = Some(slot);
        }
        MailboxDevice {
            control: self.control(device, options),
            cm: self.cm(device),
            regions,
            slot,
        }
    }

    fn registers(&self, device: usize) -> ModelRegisters {
        ModelRegisters {
            shared: self.shared.clone(),
            device,
        }
    }

    fn control(&self, device: usize, options: NodeOptions) -> ModelControl {
        let windows = match options.memory_windows {
            true => LIMITS.windows,
            false => 0,
        };
        let limits = Limits {
            name: options.name,
            windows,
            ..LIMITS
        };
        ModelControl {
            shared: self.shared.clone(),
            device,
            limits,
        }
    }

    /// Adds a device to the fabric; returns its number.
    fn add(&self, options: NodeOptions, moves_pairs: bool, memory: DmaView<'static>) -> usize {
        let mut device = Device::new(self.fabric.node(as_device(options)), memory);
        device.moves_pairs = moves_pairs;
        let mut world = self.shared.enter();
        world.devices.push(Some(device));
        world.devices.len() - 1
    }

    fn driver<'s, S: ConnectionManager>(
        &self,
        device: usize,
        options: NodeOptions,
        storage: Storage<'s>,
        cm: S,
    ) -> MmioBackend<'s, ModelControl, S, ModelRegisters, ModelHal<Shared>> {
        let shared = &self.shared;
        let memory = match shared.enter().device(device) {
            (Some(device), _) => device.memory,
            (None, _) => memory::shared(0),
        };
        let parts = Parts {
            control: self.control(device, options),
            cm,
            registers: self.registers(device),
            hal: ModelHal {
                devices: shared.clone(),
                device,
                coherent: options.coherent,
                drawn: Arc::default(),
            },
            shared_buffers: SHARED_CAPACITY,
            memory: memory::dma_memory(memory),
        };
        MmioBackend::new(parts, storage)
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
        world.fetch();
        let moved = self.fabric.step() | world.complete();
        if moved {
            world.notify();
        }
        moved
    }

    /// Makes a device write its next completion with an error; devices count from 0.
    pub fn forge_completion(&self, device: usize, bad_cqe: BadCqe) {
        if let (Some(device), _) = self.shared.enter().device(device) {
            device.bad_cqe = Some(bad_cqe);
        }
    }

    /// Makes a device change a word of a ring or doorbell record.
    ///
    /// `area` and `word` are taken modulo the number of areas and words.
    pub fn corrupt(
        &self,
        device: usize,
        area: usize,
        word: usize,
        change: impl FnOnce(u32) -> u32,
    ) {
        if let (Some(device), _) = self.shared.enter().device(device) {
            device.corrupt(area, word, change);
        }
    }

    /// Makes a device report an event, true or not.
    pub fn report_event(&self, device: usize, event: DeviceEvent) {
        if let (Some(device), _) = self.shared.enter().device(device) {
            device.events.push_back(event);
        }
    }

    /// Returns the numbers of descriptors with inline data and from the doorbell register.
    #[must_use]
    pub fn inline_counts(&self, device: usize) -> (u64, u64) {
        let mut world = self.shared.enter();
        let (device, _) = world.device(device);
        device.map_or((0, 0), |device| (device.inline, device.bursts))
    }

    /// Runs all events that are due until a point in time.
    pub fn run_until(&self, until: Instant) {
        let mut world = self.shared.enter();
        world.fetch();
        self.fabric.run_until(until);
        world.complete();
        world.notify();
    }

    /// Returns the time of the fabric.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.fabric.now()
    }
}

pub(crate) fn slots<T>(count: usize, empty: impl FnMut() -> T) -> &'static mut [T] {
    Vec::leak(core::iter::repeat_with(empty).take(count).collect())
}

/// Allocates the state of a device, which is never freed.
pub(crate) fn new_state() -> LentState<'static> {
    Box::leak(Box::new(DeviceState::new())).lend().0
}

fn storage(limits: &Limits, state: LentState<'static>) -> Storage<'static> {
    Storage {
        state,
        queue_pairs: slots(2 * limits.queue_pairs as usize, || QueuePairSlot::EMPTY),
        completion_queues: slots(limits.completion_queues as usize, || {
            CompletionQueueSlot::EMPTY
        }),
        shared_receive_queues: slots(limits.shared_receive_queues as usize, || {
            SharedReceiveSlot::EMPTY
        }),
        requests: slots(REQUESTS, || RequestSlot::EMPTY),
        requests_taken: slots(REQUESTS / REQUESTS_GRAIN, || false),
        windows: slots(limits.windows as usize, || WindowSlot::EMPTY),
        memory_taken: slots(MEMORY / MEMORY_GRAIN, || false),
    }
}
