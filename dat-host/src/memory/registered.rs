//! A value together with the registration of its memory.

use std::any::Any;
use std::sync::Arc;

use dat_core::ErrorKind;
use dat_core::backend::SyncDirection;
use dat_core::flags::MemoryPrivileges;
use dat_core::id::LmrId;
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet};

use super::domain::Domain;
use super::pinned::{Pinned, Stable, StableRead};
use crate::error::Failed;
use crate::flight::{AdapterState, Object};
use crate::remote::Access;

/// An owner of registered memory that a window may be bound to.
pub(crate) trait Bindable: Send + 'static {
    /// Returns the adapter of the memory.
    fn adapter(&self) -> &Arc<AdapterState>;

    /// Returns the segment of a range, which the caller has checked.
    fn segment(&self, start: usize, length: usize) -> LmrTriplet;
}

/// A value and the local region of its memory; both end together.
///
/// It is boxed once, so the value does not move while the memory is registered.
pub(crate) struct Registered<B> {
    /// `None` after `into_value`.
    value: Option<B>,
    pub(crate) memory: Pinned,
    /// Null after `deregister`.
    lmr: LmrId,
    context: u32,
    remote_context: u32,
    domain: Arc<Domain>,
}

impl<B: Stable> Registered<B> {
    /// Registers the memory of a value, without remote rights.
    pub(crate) fn new(domain: &Arc<Domain>, value: B) -> Result<Box<Self>, Failed<B>> {
        let privileges = MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE;
        Self::register(domain, value, Pinned::of, privileges)
    }

    /// Registers the memory of a value, which peers access by the context of the region itself.
    pub(crate) fn for_peers(
        domain: &Arc<Domain>,
        value: B,
        access: Access,
    ) -> Result<Box<Self>, Failed<B>> {
        if let Err(unknown) = access.check() {
            return Err(Failed::new(unknown, value));
        }
        let local = MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE;
        Self::register(domain, value, Pinned::of, local | access.privileges())
    }
}

impl<B: StableRead> Registered<B> {
    /// Registers the memory of a value for reads only, without remote rights.
    pub(crate) fn for_reads(domain: &Arc<Domain>, value: B) -> Result<Box<Self>, Failed<B>> {
        let pin = |value: &mut B| Pinned::for_reads(value);
        Self::register(domain, value, pin, MemoryPrivileges::LOCAL_READ)
    }
}

impl<B> Registered<B> {
    fn register(
        domain: &Arc<Domain>,
        value: B,
        pin: impl FnOnce(&mut B) -> Pinned,
        privileges: MemoryPrivileges,
    ) -> Result<Box<Self>, Failed<B>> {
        let mut this = Box::new(Self {
            value: None,
            memory: Pinned::EMPTY,
            lmr: LmrId::NULL,
            context: 0,
            remote_context: 0,
            domain: Arc::clone(domain),
        });
        this.memory = pin(this.value.insert(value));
        let request = LmrRequest {
            memory: LmrMemory::Virtual(this.memory.to_register()),
            pz: domain.id(),
            privileges,
        };
        match domain.adapter().interface().lmr_create(&request) {
            Ok(made) => {
                this.lmr = made.lmr;
                this.context = made.lmr_context;
                this.remote_context = made.rmr_context;
                Ok(this)
            }
            Err(error) => match this.value.take() {
                Some(value) => Err(Failed::new(error, value)),
                None => unreachable!("the value was just stored"),
            },
        }
    }

    pub(crate) const fn id(&self) -> LmrId {
        self.lmr
    }

    /// Returns the context by which peers access the memory, if it is registered for them.
    pub(crate) const fn remote_context(&self) -> u32 {
        self.remote_context
    }

    pub(crate) const fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Returns the segment of a range, which the caller has checked.
    pub(crate) fn segment(&self, start: usize, length: usize) -> LmrTriplet {
        LmrTriplet {
            context: self.context,
            address: self.memory.address().wrapping_add(start as u64),
            length: length as u64,
        }
    }

    /// Synchronises a range, which the caller has checked, where the device needs it.
    #[inline]
    pub(crate) fn synchronise(&self, direction: SyncDirection, start: usize, length: usize) {
        let segment = self.segment(start, length);
        self.domain.adapter().synchronise(direction, segment);
    }

    /// Deregisters the memory; returns the value, or `None` if the memory must stay.
    #[expect(
        clippy::boxed_local,
        reason = "the value stays in place until it is deregistered"
    )]
    pub(crate) fn into_value(mut self: Box<Self>) -> Option<B> {
        self.end()
    }

    fn end(&mut self) -> Option<B> {
        let lmr = std::mem::replace(&mut self.lmr, LmrId::NULL);
        if lmr.is_null() {
            return self.value.take();
        }
        // The value is moved only afterwards, since a move may count as an access.
        match self.domain.adapter().interface().lmr_free(lmr) {
            Ok(()) => self.value.take(),
            // The close of the adapter has deregistered it.
            Err(error) if error.kind() == ErrorKind::InvalidHandle => self.value.take(),
            // The device may still have access: the memory is never used again.
            Err(_) => {
                std::mem::forget(self.value.take());
                None
            }
        }
    }
}

impl<B> Drop for Registered<B> {
    fn drop(&mut self) {
        drop(self.end());
    }
}

impl<B: Send + 'static> Object for Registered<B> {
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }

    fn release(self: Box<Self>) {}
}

impl<B: Send + 'static> Bindable for Box<Registered<B>> {
    fn adapter(&self) -> &Arc<AdapterState> {
        self.domain.adapter()
    }

    fn segment(&self, start: usize, length: usize) -> LmrTriplet {
        Registered::segment(self, start, length)
    }
}
