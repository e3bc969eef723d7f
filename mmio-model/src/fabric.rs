//! The devices, and what joins them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backend_mmio::mlx5::{
    CompletionQueueSlot, Limits, MmioBackend, Parts, QueuePairSlot, RequestSlot, SharedReceiveSlot,
    State, Storage, WindowSlot,
};
use backend_mock::{Fabric, FabricOptions, NodeOptions};
use dat_core::backend::BackendError;
use dat_core::time::Instant;

use crate::control::ModelControl;
use crate::device::Device;
use crate::fetch::WindowKeys;
use crate::hal::ModelHal;
use crate::lie::Lie;
use crate::memory;
use crate::sideband::ModelSideband;
use crate::window::ModelRegisters;

/// The driver on a model device.
pub type ModelBackend = MmioBackend<'static, ModelControl, ModelSideband, ModelRegisters, ModelHal>;

/// Memory that a device shares with its driver, in bytes.
const MEMORY: usize = 1 << 20;
/// Bytes of it that are given out together.
const MEMORY_GRAIN: usize = 256;
/// Descriptors that are remembered, and how many of them are given out together.
const REQUESTS: usize = 8192;
const REQUESTS_GRAIN: usize = 16;

const LIMITS: Limits = Limits {
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
};

/// The first index of a window: its keys have their highest bit set, which the fabric's do not.
const FIRST_WINDOW: u32 = 1 << 23;

/// Everything there is.
#[derive(Default)]
pub(crate) struct World {
    devices: Vec<Option<Device>>,
    window_keys: WindowKeys,
    windows: u32,
}

impl World {
    /// A device, unless it is gone, and the keys of all windows.
    pub(crate) fn device(&mut self, number: usize) -> (Option<&mut Device>, &mut WindowKeys) {
        let device = self.devices.get_mut(number).and_then(Option::as_mut);
        (device, &mut self.window_keys)
    }

    /// Takes a device off the fabric.
    pub(crate) fn remove(&mut self, number: usize) {
        if let Some(device) = self.devices.get_mut(number) {
            *device = None;
        }
    }

    /// An index that no window has.
    pub(crate) fn window_index(&mut self) -> u32 {
        let index = FIRST_WINDOW | (self.windows % FIRST_WINDOW);
        self.windows += 1;
        index
    }

    pub(crate) fn forget_window(&mut self, index: u32) {
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
}

/// What all parts of all devices share.
#[derive(Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<World>>);

impl Shared {
    pub(crate) fn enter(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out a command on a device: everything that was posted is read before, and what completed is written after.
    pub(crate) fn command<R>(
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

/// Model devices that reach each other.
pub struct ModelFabric {
    fabric: Fabric,
    shared: Shared,
}

impl ModelFabric {
    /// A fabric without devices.
    #[must_use]
    pub fn new(options: FabricOptions) -> Self {
        Self {
            fabric: Fabric::new(options),
            shared: Shared::default(),
        }
    }

    /// A device by the options of an adapter, and its driver. What they need of memory is never given back.
    #[must_use]
    pub fn device(&self, options: NodeOptions) -> ModelBackend {
        self.device_in(options, Box::leak(Box::new(State::new())))
    }

    /// The same; what is known of the device can be asked from outside.
    #[must_use]
    pub fn device_in(&self, options: NodeOptions, state: &'static State) -> ModelBackend {
        let memory = memory::shared(MEMORY);
        let backend = self.fabric.node(options);
        let device = {
            let mut world = self.shared.enter();
            world.devices.push(Some(Device::new(backend, memory)));
            world.devices.len() - 1
        };
        let shared = &self.shared;
        let limits = Limits {
            name: options.name,
            windows: if options.memory_windows {
                LIMITS.windows
            } else {
                0
            },
            ..LIMITS
        };
        let parts = Parts {
            control: ModelControl {
                shared: shared.clone(),
                device,
                limits,
            },
            sideband: ModelSideband {
                shared: shared.clone(),
                device,
            },
            registers: ModelRegisters {
                shared: shared.clone(),
                device,
            },
            hal: ModelHal,
            memory,
        };
        MmioBackend::new(parts, storage(&limits, state))
    }

    /// Lets the next thing happen: reads what was posted, moves the fabric one step, writes what completed; false if
    /// there was nothing.
    pub fn step(&self) -> bool {
        let mut world = self.shared.enter();
        world.fetch();
        let moved = self.fabric.step();
        world.complete() || moved
    }

    /// Has the device at a place, counted from 0 as they were made, write its next completion otherwise than it should.
    pub fn lie(&self, device: usize, lie: Lie) {
        if let (Some(device), _) = self.shared.enter().device(device) {
            device.lie = Some(lie);
        }
    }

    /// Lets everything happen that is due until a moment.
    pub fn run_until(&self, until: Instant) {
        let mut world = self.shared.enter();
        world.fetch();
        self.fabric.run_until(until);
        world.complete();
    }

    /// The time of the fabric.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.fabric.now()
    }
}

fn slots<T>(count: usize, empty: impl FnMut() -> T) -> &'static mut [T] {
    Vec::leak(std::iter::repeat_with(empty).take(count).collect())
}

fn storage(limits: &Limits, state: &'static State) -> Storage<'static> {
    Storage {
        state,
        queue_pairs: slots(limits.queue_pairs as usize, || QueuePairSlot::EMPTY),
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
