//! The part of a device of verbs that has no queue pairs, over the backend for the core.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};

use backend_roce::{RoceBackend, RoceCompletionQueue, RoceOptions};
use dat_core::attributes::IaAttributes;
use dat_core::backend::{
    Backend as _, BackendError, CompletionQueue as _, ControlEvent, DeviceFailure, DomainKey,
    RegionKeys, Registration,
};
use dat_core::event::ThreadWait;
use dat_core::flags::{DtoStatus, MemoryPrivileges};
use dat_core::memory::Region;

type OnEvent = Box<dyn Fn(ControlEvent) + Send + Sync>;

/// An adapter as a device of verbs.
pub(crate) struct Device {
    backend: Mutex<RoceBackend>,
    next_queue: AtomicU32,
    /// Set if events may be there that nobody has looked for.
    has_events: AtomicBool,
    on_event: RwLock<Option<OnEvent>>,
}

/// Rights of peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RemoteRights {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) atomic: bool,
}

/// Access to a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegionAccess {
    pub(crate) local_write: bool,
    pub(crate) remote: RemoteRights,
    /// Address of the first byte in requests; that of the memory if there is none.
    pub(crate) address: Option<u64>,
}

/// A completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceCompletion {
    pub(crate) token: u64,
    pub(crate) status: DtoStatus,
    pub(crate) length: u32,
    pub(crate) qpn: u32,
    pub(crate) immediate: Option<u32>,
}

/// A completion queue.
pub(crate) struct DeviceQueue {
    number: u32,
    queue: Mutex<RoceCompletionQueue>,
}

impl DeviceQueue {
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// Arms the queue.
    pub(crate) fn arm(&self, solicited_only: bool) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let _armed = queue.arm(solicited_only);
    }
}

impl Device {
    /// Opens a device at an address of this host, with a thread that serves it.
    pub(crate) fn open(address: SocketAddr, options: RoceOptions) -> io::Result<Arc<Self>> {
        let device = Arc::new(Self {
            backend: Mutex::new(RoceBackend::open(address, options)?),
            next_queue: AtomicU32::new(0),
            has_events: AtomicBool::new(false),
            on_event: RwLock::default(),
        });
        let events = Arc::downgrade(&device);
        device.with(|backend| {
            backend.on_event(move || {
                if let Some(device) = events.upgrade() {
                    device.has_events.store(true, Ordering::Release);
                    device.tell();
                }
            });
        });
        Ok(device)
    }

    fn with<R>(&self, act: impl FnOnce(&mut RoceBackend) -> R) -> R {
        let result = act(&mut self.backend.lock().unwrap_or_else(PoisonError::into_inner));
        self.tell();
        result
    }

    /// Tells the events that are there, unless another thread holds the backend: it does so then.
    fn tell(&self) {
        while self.has_events.swap(false, Ordering::AcqRel) {
            let mut backend = match self.backend.try_lock() {
                Ok(backend) => backend,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    self.has_events.store(true, Ordering::Release);
                    return;
                }
            };
            let now = ThreadWait::clock();
            let events: Vec<_> = core::iter::from_fn(|| backend.poll_control(now)).collect();
            drop(backend);
            if let Some(on_event) = &*self.on_event.read().unwrap_or_else(PoisonError::into_inner) {
                events.into_iter().for_each(on_event);
            }
        }
    }

    /// Calls `act` with the events of the device; it makes no call on the device.
    pub(crate) fn on_event(&self, act: impl Fn(ControlEvent) + Send + Sync + 'static) {
        let mut on_event = self
            .on_event
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *on_event = Some(Box::new(act));
    }

    pub(crate) fn limits(&self) -> IaAttributes {
        self.with(|backend| backend.ia_attributes())
    }

    pub(crate) fn create_domain(&self) -> Result<DomainKey, BackendError> {
        self.with(RoceBackend::create_domain)
    }

    pub(crate) fn destroy_domain(&self, domain: DomainKey) {
        self.with(|backend| backend.destroy_domain(domain));
    }

    /// Registers memory; returns its key, for local and for remote access.
    pub(crate) fn register(
        &self,
        domain: DomainKey,
        region: &Region,
        access: RegionAccess,
    ) -> Result<u32, BackendError> {
        if access
            .address
            .is_some_and(|address| address != region.address())
        {
            return Err(BackendError::NotSupported);
        }
        let mut privileges = MemoryPrivileges::LOCAL_READ;
        privileges.set(MemoryPrivileges::LOCAL_WRITE, access.local_write);
        // The backend has no right of its own for atomics.
        let RemoteRights {
            read,
            write,
            atomic,
        } = access.remote;
        privileges.set(MemoryPrivileges::REMOTE_READ, read || atomic);
        privileges.set(MemoryPrivileges::REMOTE_WRITE, write || atomic);
        let registration = Registration::new(domain, region, privileges);
        self.with(|backend| backend.register(&registration))
            .map(|keys| keys.local)
    }

    pub(crate) fn deregister(&self, key: u32) {
        let keys = RegionKeys {
            object: 0,
            local: key,
            remote: key,
        };
        self.with(|backend| backend.deregister(keys));
    }

    pub(crate) fn create_queue(&self, depth: u32) -> Result<DeviceQueue, BackendError> {
        self.with(|backend| {
            let number = self.next_queue.fetch_add(1, Ordering::Relaxed);
            let queue = Mutex::new(backend.create_completion_queue(number, depth)?);
            Ok(DeviceQueue { number, queue })
        })
    }

    pub(crate) fn resize_queue(
        &self,
        queue: &mut DeviceQueue,
        depth: u32,
    ) -> Result<(), BackendError> {
        let queue = queue
            .queue
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        self.with(|backend| backend.resize_completion_queue(queue, depth))
    }

    pub(crate) fn destroy_queue(&self, queue: DeviceQueue) {
        let queue = queue
            .queue
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        self.with(|backend| backend.destroy_completion_queue(queue));
    }

    /// Takes at most `most` completions in order; returns how many.
    pub(crate) fn poll(
        &self,
        queue: &DeviceQueue,
        most: usize,
        mut each: impl FnMut(DeviceCompletion),
    ) -> Result<usize, DeviceFailure> {
        let mut queue = queue.queue.lock().unwrap_or_else(PoisonError::into_inner);
        for taken in 0..most {
            let Some(completion) = queue.poll()? else {
                return Ok(taken);
            };
            each(DeviceCompletion {
                token: completion.token,
                status: completion.status,
                length: completion.length,
                qpn: completion.queue_pair as u32,
                immediate: queue.immediate(),
            });
        }
        Ok(most)
    }
}
