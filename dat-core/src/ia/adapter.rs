//! Opening an interface adapter.

use core::fmt;

use super::Control;
use super::driver::Driver;
use super::tag::InstanceTag;
use crate::backend::Backend;
use crate::error::{Cause, Error, Subtype};
use crate::flags::{EvdFlags, HandleKind};
use crate::id::{EvdId, Handle};
use crate::shared::Shared;
use crate::storage::Storage;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicWaker};
use crate::sync::{Mutex, RawLock};

/// An open interface adapter: owner of every object made from it, and of the backend.
///
/// All calls take `&self`; with a lock that is `Sync` and a backend that is `Send` they may come
/// from any thread. Dropping it closes it abruptly.
pub struct Ia<'s, B: Backend, L: RawLock> {
    pub(crate) control: Mutex<L::Control, Control<'s, B>>,
    pub(crate) shared: Shared<'s, B, L>,
    pub(crate) async_evd: EvdId,
    /// Interrupts that `take_interrupts` has not told of yet.
    pub(crate) interrupts: AtomicU32,
    /// The waker of a consumer who drives `progress`.
    pub(crate) progress_waker: AtomicWaker,
    /// The blocking wait that drives `progress`.
    pub(crate) driver: Driver,
    /// The failure of the device was reported.
    pub(crate) catastrophe: AtomicBool,
    /// Keeps other adapters from `shared.instance` for as long as this one is open.
    _tag: InstanceTag,
}

/// An adapter that could not be opened; the backend comes back.
pub struct OpenError<B> {
    /// Why.
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

impl<'s, B: Backend, L: RawLock> Ia<'s, B, L> {
    /// Opens an adapter on a backend, with an asynchronous event dispatcher of its own.
    ///
    /// `async_evd_min_qlen` is the least number of events that dispatcher holds.
    ///
    /// # Errors
    /// As `evd_create`: INVALID_PARAMETER for a length below 1, INSUFFICIENT_RESOURCES if the
    /// storage or the device has no room for the asynchronous event dispatcher; and INSUFFICIENT_RESOURCES
    /// (MEMORY) if more adapters are open than handles can tell apart: 65,536 with the feature `std`, 256
    /// without it.
    ///
    /// Spec: IAO-01, IAO-02, IAO-06
    pub fn open(
        backend: B,
        storage: Storage<'s, B, L>,
        async_evd_min_qlen: i32,
    ) -> core::result::Result<Self, OpenError<B>> {
        let fresh = storage.fresh;
        // One value from here on, where the caller wants it: it is long, and each copy takes its stack.
        let mut opened = Self::assemble(backend, storage);
        if let Ok(ia) = &mut opened {
            if !fresh {
                ia.forget_leftovers();
            }
            match ia.make_evd(async_evd_min_qlen, None, EvdFlags::ASYNC) {
                Ok(evd) => ia.async_evd = evd,
                // The backend was put there above, and nothing takes it but a close.
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

    /// An adapter without a dispatcher, unless too many are open.
    #[inline(never)]
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
                reached: 0,
                closing: false,
                context: 0,
                watching: false,
                earliest: None,
                looks: 0,
            }),
            shared: Shared {
                instance,
                extensions,
                tells_shared_ends: AtomicBool::new(false),
                coherent,
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
            _tag: tag,
        })
    }

    /// The dispatcher of asynchronous events.
    pub fn async_evd(&self) -> EvdId {
        self.async_evd
    }

    /// The adapter's own handle.
    pub fn handle(&self) -> Handle {
        Handle::new(self.shared.instance, HandleKind::Ia, 1, 0)
    }
}
