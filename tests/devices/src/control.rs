//! Objects and commands of a model device.

use core::fmt;

use backend_mmio::defs::mlx5::{Completion, CompletionKind, CompletionTail, Opcode, Syndrome};
use backend_mmio::mlx5::{
    CompletionQueueSpec, Control, CreatedQueuePair, DeviceEvent, Limits, QueuePairSpec,
    SharedReceiveQueueSpec,
};
use dat_core::attributes::EpAttributes;
use dat_core::backend::{
    Backend, BackendError, DisconnectMode, DomainKey, QueuePair, QueuePairRequest, RegionKeys,
    Registration, WindowKey,
};
use dat_core::time::Instant;

use crate::complete::put;
use crate::connection_manager::Devices;
use crate::device::{CompletionQueue, Device, Pair, Shared as SharedQueue};
use crate::fabric::Shared;
use crate::registers::SEND_DOORBELL;

/// Control path of a model device; drop removes the device from the fabric.
pub struct ModelControl {
    pub(crate) shared: Shared,
    pub(crate) device: usize,
    pub(crate) limits: Limits,
}

impl fmt::Debug for ModelControl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "commands of device {}", self.device)
    }
}

impl ModelControl {
    fn on<R>(
        &self,
        act: impl FnOnce(&mut Device) -> Result<R, BackendError>,
    ) -> Result<R, BackendError> {
        self.shared.on(self.device, act)
    }

    fn do_on(&self, act: impl FnOnce(&mut Device)) {
        let _gone = self.on(|device| {
            act(device);
            Ok(())
        });
    }

    /// Reads posted descriptors, writes completions, and notifies a remote driver of pending
    /// events.
    pub(crate) fn fetch(&self) {
        self.do_on(Device::read_arm_commands);
        let mut world = self.shared.enter();
        let (device, _) = world.device(self.device);
        let has_events = device.filter(|device| !device.events.is_empty());
        if let Some(slot) = has_events.and_then(|device| device.slot) {
            slot.notify();
        }
    }
}

impl Drop for ModelControl {
    fn drop(&mut self) {
        self.shared.enter().remove(self.device);
    }
}

/// Returns a name that no completion queue of the device has in the fabric.
fn free_name(device: &Device) -> Result<u32, BackendError> {
    let taken = |name: &u32| {
        let mut queues = device.completion_queues.values();
        queues.any(|queue| queue.name == *name)
    };
    (0..=u32::from(u16::MAX))
        .find(|name| !taken(name))
        .ok_or(BackendError::Resources)
}

fn count(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

#[expect(unsafe_code, reason = "the device belongs to this crate")]
// SAFETY: the device reaches consumer memory only through an adapter of the fabric. The adapter
// keeps the same promise and is dropped with this value. The device writes to driver memory only in
// `put`.
unsafe impl Control for ModelControl {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn create_domain(&mut self) -> Result<u32, BackendError> {
        self.on(|device| Ok(device.backend.create_domain()?.0 as u32))
    }

    fn destroy_domain(&mut self, domain: u32) {
        self.do_on(|device| device.backend.destroy_domain(DomainKey(domain as usize)));
    }

    fn register(&mut self, registration: &Registration) -> Result<RegionKeys, BackendError> {
        self.on(|device| device.backend.register(registration))
    }

    fn deregister(&mut self, region: RegionKeys) {
        self.do_on(|device| device.backend.deregister(region));
    }

    fn create_window(&mut self, domain: u32) -> Result<u32, BackendError> {
        let window = self.on(|device| device.backend.create_window(DomainKey(domain as usize)))?;
        let mut world = self.shared.enter();
        let index = world.window_index();
        if let (Some(device), _) = world.device(self.device) {
            device.windows.insert(index, window.0);
        }
        Ok(index << 8)
    }

    fn destroy_window(&mut self, key: u32) {
        self.do_on(|device| {
            if let Some(window) = device.windows.remove(&(key >> 8)) {
                device.backend.destroy_window(WindowKey(window));
            }
        });
        self.shared.enter().forget_window(key >> 8);
    }

    fn create_completion_queue(&mut self, spec: &CompletionQueueSpec) -> Result<u32, BackendError> {
        self.on(|device| {
            let name = free_name(device)?;
            let queue = device.backend.create_completion_queue(name, spec.entries)?;
            let number = device.number();
            device.completion_queues.insert(
                number,
                CompletionQueue {
                    queue,
                    name,
                    spec: *spec,
                    written: 0,
                    armed: None,
                    arm_read: None,
                },
            );
            Ok(number)
        })
    }

    fn move_completion_queue(
        &mut self,
        number: u32,
        ring: u64,
        entries: u32,
    ) -> Result<(), BackendError> {
        self.on(|device| {
            let Device {
                backend,
                memory,
                completion_queues,
                ..
            } = device;
            let queue = completion_queues.get_mut(&number);
            let queue = queue.ok_or(BackendError::State)?;
            backend.resize_completion_queue(&mut queue.queue, entries)?;
            let moved = Completion {
                user_index: 0,
                length: 0,
                syndrome: Syndrome(0),
                queue_pair: 0,
                opcode: Opcode(0),
            };
            let tail = CompletionTail::new(0, CompletionKind::MOVED, false);
            put(memory, queue, &moved, tail);
            queue.spec.ring = ring;
            queue.spec.entries = entries;
            Ok(())
        })
    }

    fn destroy_completion_queue(&mut self, number: u32) {
        self.do_on(|device| {
            if let Some(queue) = device.completion_queues.remove(&number) {
                device.backend.destroy_completion_queue(queue.queue);
            }
            let event = DeviceEvent::Completions(number);
            device.events.retain(|other| *other != event);
        });
    }

    fn create_shared_receive_queue(
        &mut self,
        spec: &SharedReceiveQueueSpec,
    ) -> Result<u32, BackendError> {
        self.on(|device| {
            let domain = DomainKey(spec.domain as usize);
            let number = device.number();
            let (key, queue) = device.backend.create_shared_receive_queue(
                u64::from(number),
                domain,
                spec.entries,
                spec.units,
            )?;
            device.shared.insert(
                number,
                SharedQueue {
                    key,
                    queue,
                    spec: *spec,
                    next_index: 0,
                    read: 0,
                },
            );
            Ok(number)
        })
    }

    fn arm_shared_receive_limit(&mut self, number: u32, limit: u32) -> Result<bool, BackendError> {
        self.on(|device| {
            let shared = device.shared.get(&number).ok_or(BackendError::State)?;
            let cancelled = device.backend.arm_shared_receive_limit(shared.key, limit)?;
            let event = DeviceEvent::SharedReceiveLimit(number);
            let was_pending = device.events.contains(&event);
            device.events.retain(|other| *other != event);
            Ok(cancelled || was_pending)
        })
    }

    fn destroy_shared_receive_queue(&mut self, number: u32) {
        self.do_on(|device| {
            if let Some(shared) = device.shared.remove(&number) {
                let Device { backend, .. } = device;
                backend.destroy_shared_receive_queue(shared.key, shared.queue);
            }
        });
    }

    fn create_queue_pair(
        &mut self,
        spec: &QueuePairSpec,
    ) -> Result<CreatedQueuePair, BackendError> {
        self.on(|device| {
            let number = device.number();
            let name = |queue: Option<u32>| match queue {
                None => Ok(None),
                Some(queue) => {
                    let queue = device.completion_queues.get(&queue);
                    queue
                        .map(|queue| Some(queue.name))
                        .ok_or(BackendError::State)
                }
            };
            let attributes = EpAttributes {
                max_request_dtos: count(spec.send_blocks),
                max_recv_dtos: count(spec.receive_entries),
                max_rdma_read_in: count(spec.reads_in),
                max_rdma_read_out: count(spec.reads_out),
                ..EpAttributes::DEFAULT
            };
            let domain = DomainKey(spec.domain as usize);
            let mut request = QueuePairRequest::new(u64::from(number), domain, attributes);
            request.request_queue = name(spec.request_queue)?;
            request.receive_queue = name(spec.receive_queue)?;
            if let Some(shared) = spec.shared_receive_queue {
                let shared = device.shared.get(&shared).ok_or(BackendError::State)?;
                request.shared_receive_queue = Some(shared.key);
            }
            let QueuePair { key, send, receive } = device.backend.create_queue_pair(&request)?;
            device.pairs.insert(
                number,
                Pair {
                    key,
                    send,
                    receive,
                    spec: *spec,
                    inline_data: None,
                    sends_read: 0,
                    receives_read: 0,
                },
            );
            Ok(CreatedQueuePair {
                number,
                doorbell: SEND_DOORBELL,
                takes_blocks: true,
            })
        })
    }

    fn destroy_queue_pair(&mut self, number: u32) {
        self.do_on(|device| {
            if let Some(pair) = device.pairs.remove(&number) {
                let Device { backend, .. } = device;
                if device.moves_pairs {
                    backend.part(pair.key);
                }
                backend.destroy_queue_pair(pair.key, pair.send, pair.receive);
                if let Some(inline_data) = pair.inline_data {
                    inline_data.give_back(backend);
                }
            }
        });
    }

    fn poll(&mut self, now: Instant) -> Option<DeviceEvent> {
        let event = self.on(|device| {
            if device.moves_pairs {
                device.failures(now);
            }
            Ok(device.events.pop_front())
        });
        event.ok().flatten()
    }

    fn halt(&mut self) {
        self.do_on(|device| {
            let Device { backend, pairs, .. } = device;
            for pair in pairs.values() {
                backend.disconnect(pair.key, DisconnectMode::Broken);
            }
            device.halted = true;
        });
    }
}
