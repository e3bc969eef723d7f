//! Opening an adapter, and clean-up after a leaked one.

use core::fmt;

use crate::adapter::{Control, Driver, Ia, InstanceTag, Watch};
use crate::backend::Backend;
use crate::connection::{PspSlot, RspSlot};
use crate::endpoint::ReceiveSide;
use crate::error::{Cause, Error, Subtype};
use crate::flags::{EvdFlags, HandleKind};
use crate::id::{EvdId, Handle, Index};
use crate::lend::Storage;
use crate::memory::PzSlot;
use crate::shared::Shared;
use crate::storage::{KeyChains, RunSlot, VisitList};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicWaker};
use crate::sync::{Frames, Mutex, RawLock};

/// The error of a failed open; returns the backend.
pub struct OpenError<B> {
    /// The error.
    pub error: Error,
    /// The backend, unused.
    pub backend: B,
}

impl<B> fmt::Debug for OpenError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenError")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<B> fmt::Display for OpenError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the interface adapter cannot be opened: {}", self.error)
    }
}

impl<B> core::error::Error for OpenError<B> {}

/// # Opening
impl<'s, B: Backend, L: RawLock> Ia<'s, B, L> {
    /// Opens an adapter on a backend and creates its asynchronous event dispatcher.
    ///
    /// That dispatcher holds at least `async_evd_min_qlen` events.
    ///
    /// # Errors
    /// - INVALID_PARAMETER: `async_evd_min_qlen` is below 1.
    /// - INSUFFICIENT_RESOURCES: the storage or the device has no room for the asynchronous event
    ///   dispatcher.
    /// - INSUFFICIENT_RESOURCES (MEMORY): more adapters are open than handles can tell apart:
    ///   65,536 with the feature `std`, 256 without it.
    ///
    /// Spec: IAO-01, IAO-02, IAO-06
    ///
    /// # Examples
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/pair/mod.rs"));
    /// # fn main() -> Result<()> {
    /// # let fabric = Fabric::new(FabricOptions::default());
    /// let mut slots = Slots::new(); // of `define_storage!`
    /// let backend = fabric.node(NodeOptions::new("nic", 1));
    /// let ia = Ia::open(backend, slots.lend(), 8).map_err(|refused| refused.error)?;
    /// assert!(ia.objects_left().is_empty());
    /// # Ok(()) }
    /// ```
    pub fn open(
        backend: B,
        storage: Storage<'s, B, L>,
        async_evd_min_qlen: i32,
    ) -> core::result::Result<Self, OpenError<B>> {
        let fresh = storage.fresh;
        // The result is built in place: it is large, and each copy takes stack.
        let mut opened = Self::assemble(backend, storage);
        if let Ok(ia) = &mut opened {
            if !fresh {
                ia.forget_leftovers();
            }
            match ia.make_evd(async_evd_min_qlen, None, EvdFlags::ASYNC) {
                Ok(evd) => ia.async_evd = evd,
                // `assemble` stored the backend, and only a close takes it.
                Err(error) => {
                    let backend = ia.control.with(|control| control.backend.take());
                    if let Some(backend) = backend {
                        opened = Err(OpenError { error, backend });
                    }
                }
            }
        }
        opened
    }

    /// Builds an adapter without a dispatcher, unless too many adapters are open.
    fn assemble(
        backend: B,
        storage: Storage<'s, B, L>,
    ) -> core::result::Result<Self, OpenError<B>> {
        let Some(tag) = InstanceTag::take() else {
            return Err(OpenError {
                error: Error::insufficient_resources(Subtype::ResourceMemory)
                    .because(Cause::TableFull),
                backend,
            });
        };
        let instance = tag.get();
        let coherent = !backend.provider_attributes().lmr_sync_req;
        let extensions = backend.extensions();
        Ok(Self {
            control: Mutex::new(Control {
                backend: Some(backend),
                instance,
                protection_zones: storage.protection_zones,
                public_service_points: storage.public_service_points,
                reserved_service_points: storage.reserved_service_points,
                connection_requests: storage.connection_requests,
                public_qualifiers: KeyChains::new(),
                reserved_qualifiers: KeyChains::new(),
                cookies: 0,
                sharing: VisitList::new(),
                closing: false,
                context: 0,
                watch: Watch::new(),
            }),
            shared: Shared {
                instance,
                extensions,
                posting: VisitList::new(),
                waited_dispatchers: VisitList::new(),
                waited_objects: VisitList::new(),
                agent_frames: Frames::new(),
                coherent,
                missed: AtomicBool::new(false),
                local_regions: storage.local_regions,
                remote_regions: storage.remote_regions,
                event_dispatchers: storage.event_dispatchers,
                notification_objects: storage.notification_objects,
                endpoints: storage.endpoints,
                shared_receive_queues: storage.shared_receive_queues,
                events: storage.events,
                records: storage.records,
            },
            async_evd: EvdId::NULL,
            interrupts: AtomicU32::new(0),
            progress_waker: AtomicWaker::new(),
            driver: Driver::new(),
            catastrophe: AtomicBool::new(false),
            tells_shared_ends: AtomicBool::new(false),
            tag,
        })
    }

    /// Clears the objects that a leaked adapter left in the storage.
    ///
    /// Generations stay, so handles of that adapter stay stale.
    fn forget_leftovers(&self) {
        let shared = &self.shared;
        self.control.with(|control| {
            for slot in control.protection_zones.made_mut().iter_mut() {
                *slot = PzSlot {
                    generation: slot.generation,
                    ..PzSlot::EMPTY
                };
            }
            for slot in control.public_service_points.made_mut().iter_mut() {
                *slot = PspSlot {
                    generation: slot.generation,
                    ..PspSlot::EMPTY
                };
            }
            for slot in control.reserved_service_points.made_mut().iter_mut() {
                *slot = RspSlot {
                    generation: slot.generation,
                    ..RspSlot::EMPTY
                };
            }
            let requests = control.connection_requests.made_mut().iter_mut();
            for slot in requests.filter(|slot| !slot.id.is_null()) {
                slot.clear_slot();
            }
        });
        for slot in shared.local_regions.made() {
            slot.sharing.clear();
            slot.forget();
        }
        // Skips free slots: they are clean, and most slots are free.
        for slot in shared.remote_regions.made() {
            slot.main.with(|region| {
                if !region.id.is_null() {
                    let _leftover = region.take();
                }
            });
        }
        for slot in shared.event_dispatchers.made() {
            slot.waits.clear();
            slot.queue.with(|queue| {
                if !queue.id.is_null() {
                    queue.clear_slot();
                }
            });
        }
        for slot in shared.notification_objects.made() {
            slot.clear_links();
            slot.main.with(|object| {
                if !object.id.is_null() {
                    object.clear_slot();
                }
            });
        }
        for slot in shared.endpoints.made() {
            slot.watch.clear();
            slot.posting.clear();
            slot.main.with(|endpoint| {
                if !endpoint.id.is_null() {
                    endpoint.clear_slot(endpoint.generation);
                    slot.receive.with(|side| *side = ReceiveSide::EMPTY);
                    slot.handle.store(0);
                }
            });
        }
        for slot in shared.shared_receive_queues.made() {
            slot.forget();
        }
        for slot in shared.events.made() {
            slot.clear_owner();
        }
        for record in shared
            .records
            .made()
            .iter()
            .filter(|record| !record.is_unowned())
        {
            record.clear_owner();
        }
    }

    /// Opens a shut adapter again, on another backend, with the tables that it has.
    ///
    /// Slots stay where they are, and generations go on: handles from before stay stale. Other
    /// threads may hold addresses of slots meanwhile.
    ///
    /// # Errors
    /// Those of [`open`](Self::open): the adapter stays shut. INVALID_STATE (IA_IN_USE): it was
    /// open.
    #[doc(hidden)]
    pub fn reopen(
        &mut self,
        backend: B,
        async_evd_min_qlen: i32,
    ) -> core::result::Result<(), OpenError<B>> {
        let refused = |error, backend| Err(OpenError { error, backend });
        if self.control.with(|control| control.backend.is_some()) {
            return refused(Error::invalid_state(Subtype::InvalidStateIaInUse), backend);
        }
        let Some(tag) = InstanceTag::take() else {
            let full = Error::insufficient_resources(Subtype::ResourceMemory);
            return refused(full.because(Cause::TableFull), backend);
        };
        let instance = tag.get();
        self.shared.instance = instance;
        self.shared.coherent = !backend.provider_attributes().lmr_sync_req;
        self.shared.extensions = backend.extensions();
        self.tells_shared_ends = AtomicBool::new(false);
        self.shared.missed = AtomicBool::new(false);
        self.shared.posting = VisitList::new();
        self.shared.waited_dispatchers = VisitList::new();
        self.shared.waited_objects = VisitList::new();
        self.control.with(|control| {
            control.backend = Some(backend);
            control.instance = instance;
            control.cookies = 0;
            control.sharing = VisitList::new();
            control.closing = false;
            control.context = 0;
            control.watch = Watch::new();
        });
        self.async_evd = EvdId::NULL;
        self.interrupts = AtomicU32::new(0);
        self.progress_waker = AtomicWaker::new();
        self.driver = Driver::new();
        self.catastrophe = AtomicBool::new(false);
        self.tag = tag;
        self.forget_leftovers();
        match self.make_evd(async_evd_min_qlen, None, EvdFlags::ASYNC) {
            Ok(evd) => {
                self.async_evd = evd;
                Ok(())
            }
            Err(error) => match self.control.with(|control| control.backend.take()) {
                Some(backend) => refused(error, backend),
                // It was stored above, and only a shut takes it.
                None => Ok(()),
            },
        }
    }

    /// Returns the dispatcher of asynchronous events.
    pub fn async_evd(&self) -> EvdId {
        self.async_evd
    }

    /// Returns the adapter's own handle.
    pub fn handle(&self) -> Handle {
        Handle::new(self.shared.instance, HandleKind::Ia, 1, Index::FIRST)
    }
}
