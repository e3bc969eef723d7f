//! Model devices and the fabric that connects them.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use backend_mmio::mailbox::defs as mailbox;
#[cfg(feature = "std")]
use backend_mmio::mailbox::{Mailbox, MailboxControl, MailboxRegisters, MailboxSideband};
use backend_mmio::mlx5::{
    CompletionQueueSlot, DeviceEvent, LentState, Limits, MmioBackend, MmioReceiveQueue,
    MmioSendQueue, Parts, QueuePairSlot, RequestSlot, SharedReceiveSlot, State, Storage,
    WindowSlot,
};
use backend_mmio::over_queues::{MmioQueueSideband, QueueSideband, SidebandStorage};
use backend_mmio::{DeviceUnit, DmaView, Sideband};
use backend_mock::{Fabric, FabricOptions, Fault, NodeOptions};
use dat_core::backend::BackendError;
use dat_core::time::Instant;

use crate::control::ModelControl;
use crate::device::Device;
use crate::fetch::WindowKeys;
use crate::hal::ModelHal;
use crate::junction::{Meetings, ModelJunction, channels};
use crate::lent::Lent;
use crate::lie::Lie;
use crate::lock::{Arc, Guard, Mutex, lock};
use crate::mailbox::{Desk, MailboxDevice, Regions};
use crate::memory;
use crate::outsider::Outsider;
#[cfg(feature = "std")]
use crate::posted::{Beside, PostedBackend, anything};
use crate::sideband::{Devices, FabricSideband};
use crate::window::ModelRegisters;

/// Connection manager of a model device.
pub type ModelSideband = FabricSideband<Shared>;

/// Driver of a model device.
pub type ModelBackend =
    MmioBackend<'static, ModelControl, ModelSideband, ModelRegisters, ModelHal<Shared>>;

/// Driver of a model device, in lent memory.
pub type LentBackend<'s> =
    MmioBackend<'s, ModelControl, ModelSideband, ModelRegisters, ModelHal<Shared>>;

/// Driver of a model device that sets up connections over its own queue pairs.
pub type SpeakingBackend = LentSpeaking<'static>;

/// [`SpeakingBackend`] in lent memory.
pub type LentSpeaking<'s> = MmioBackend<
    's,
    ModelControl,
    MmioQueueSideband<'s, ModelRegisters, ModelHal<Shared>, ModelJunction<Shared>>,
    ModelRegisters,
    ModelHal<Shared>,
>;

/// Storage of the connection manager of such a device.
pub type SpeakingStorage<'s> = SidebandStorage<
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
pub(crate) const SHARED_ROOM: u32 = 64;

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
            .filter_map(|device| device.desk)
            .for_each(Desk::notify);
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
    meetings: Meetings,
}

impl ModelFabric {
    /// Creates a fabric without devices.
    #[must_use]
    pub fn new(options: FabricOptions) -> Self {
        Self {
            fabric: Fabric::new(options),
            shared: Shared::default(),
            meetings: Meetings::default(),
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
        let sideband = self.sideband(device);
        self.driver(device, options, storage(&LIMITS, state), sideband)
    }

    /// Creates a device in lent memory, which can be lent again afterwards.
    ///
    /// Also returns the state of the device.
    #[must_use]
    pub fn device_on<'s>(
        &self,
        options: NodeOptions,
        lent: &'s mut Lent,
    ) -> (LentBackend<'s>, &'s State) {
        let device = self.add(options, false, lent.memory);
        let (storage, state) = lent.storage();
        let sideband = self.sideband(device);
        (self.driver(device, options, storage, sideband), state)
    }

    /// Creates a device whose driver reaches it only through a mailbox in this process.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn posted_device(&self, options: NodeOptions) -> PostedBackend {
        let memory = memory::shared(MEMORY);
        let mailbox = Box::leak(Box::new([const { DeviceUnit::new() }; mailbox::UNITS]));
        let device = self.mailbox_device(options, memory, mailbox, anything());
        let hal = ModelHal {
            devices: self.shared.clone(),
            device: device.control.device,
            coherent: options.coherent,
            drawn: Arc::default(),
        };
        // SAFETY: the memory is never freed, and only driver and device use it.
        #[expect(unsafe_code, reason = "the device belongs to this crate")]
        let mailbox = unsafe { Mailbox::new(mailbox, Beside::new(device)) };
        let mailbox = Box::leak(Box::new(mailbox));
        let (Ok(control), Ok(sideband)) = (
            MailboxControl::new(mailbox, options.name),
            MailboxSideband::new(mailbox),
        ) else {
            unreachable!("it answers");
        };
        let parts = Parts {
            control,
            sideband,
            registers: MailboxRegisters::new(mailbox),
            hal,
            shared_buffers: SHARED_ROOM,
            memory: memory::of_driver(memory),
        };
        MmioBackend::new(parts, storage(&LIMITS, new_state()))
    }

    fn sideband(&self, device: usize) -> ModelSideband {
        FabricSideband {
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
    pub fn speaking_device(&self, options: NodeOptions) -> SpeakingBackend {
        let device = self.add(options, true, memory::shared(MEMORY));
        let storage = storage(&LIMITS, new_state());
        self.speaking_driver(device, options, storage, channels())
    }

    /// Creates a device like [`speaking_device`](Self::speaking_device), in lent memory.
    ///
    /// The memory can be lent again once the device is dropped. `connections` bounds the channels,
    /// connections and listeners. Also returns the state of the device.
    ///
    /// # Panics
    /// If its channels cannot be opened.
    #[must_use]
    pub fn speaking_device_on<'s>(
        &self,
        options: NodeOptions,
        lent: &'s mut Lent,
        connections: SpeakingStorage<'s>,
    ) -> (LentSpeaking<'s>, &'s State) {
        let device = self.add(options, true, lent.memory);
        let (storage, state) = lent.storage();
        let driver = self.speaking_driver(device, options, storage, connections);
        (driver, state)
    }

    fn speaking_driver<'s>(
        &self,
        device: usize,
        options: NodeOptions,
        storage: Storage<'s>,
        connections: SpeakingStorage<'s>,
    ) -> LentSpeaking<'s> {
        let port = [device as u32, 0, 0, 0];
        let junction = self.junction(device, options, false);
        let sideband = QueueSideband::new(connections, junction, options.address, port);
        let mut driver = self.driver(device, options, storage, sideband);
        if let Err(error) = driver.open_channels() {
            panic!("{error:?}");
        }
        driver
    }

    /// Returns the junction of a device, which finds the peers of its channels.
    fn junction(
        &self,
        device: usize,
        options: NodeOptions,
        by_driver: bool,
    ) -> ModelJunction<Shared> {
        ModelJunction {
            devices: self.shared.clone(),
            device,
            address: options.address,
            meetings: self.meetings.clone(),
            by_driver,
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
            junction: self.junction(device, options, true),
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
        let desk = Desk(mailbox);
        if let (Some(device), _) = self.shared.enter().device(device) {
            device.desk = Some(desk);
        }
        MailboxDevice {
            control: self.control(device, options),
            sideband: self.sideband(device),
            registers: self.registers(device),
            regions,
            desk,
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
    fn add(&self, options: NodeOptions, joins: bool, memory: DmaView<'static>) -> usize {
        let mut device = Device::new(self.fabric.node(options), memory);
        device.joins = joins;
        let mut world = self.shared.enter();
        world.devices.push(Some(device));
        world.devices.len() - 1
    }

    fn driver<'s, S: Sideband>(
        &self,
        device: usize,
        options: NodeOptions,
        storage: Storage<'s>,
        sideband: S,
    ) -> MmioBackend<'s, ModelControl, S, ModelRegisters, ModelHal<Shared>> {
        let shared = &self.shared;
        let memory = match shared.enter().device(device) {
            (Some(device), _) => device.memory,
            (None, _) => memory::shared(0),
        };
        let parts = Parts {
            control: self.control(device, options),
            sideband,
            registers: self.registers(device),
            hal: ModelHal {
                devices: shared.clone(),
                device,
                coherent: options.coherent,
                drawn: Arc::default(),
            },
            shared_buffers: SHARED_ROOM,
            memory: memory::of_driver(memory),
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
    pub fn lie(&self, device: usize, lie: Lie) {
        if let (Some(device), _) = self.shared.enter().device(device) {
            device.lie = Some(lie);
        }
    }

    /// Makes a device change a word of a ring or doorbell record.
    ///
    /// `area` and `word` are taken modulo the number of areas and words.
    pub fn scrawl(&self, device: usize, area: usize, word: usize, change: impl FnOnce(u32) -> u32) {
        if let (Some(device), _) = self.shared.enter().device(device) {
            device.scrawl(area, word, change);
        }
    }

    /// Makes a device report an event, true or not.
    pub fn tell(&self, device: usize, event: DeviceEvent) {
        if let (Some(device), _) = self.shared.enter().device(device) {
            device.events.push_back(event);
        }
    }

    /// Returns the numbers of descriptors with inline data and from the doorbell register.
    #[must_use]
    pub fn taken_inline(&self, device: usize) -> (u64, u64) {
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
    Box::leak(Box::new(State::new())).lend().0
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
