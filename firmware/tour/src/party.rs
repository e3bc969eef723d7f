//! One side: an adapter, and the log of its events.

use core::sync::atomic::{AtomicU8, Ordering};

use dat_core::event::{DtoCompletion, Event};
use dat_core::flags::{DtoStatus, EvdFlags, MemoryPrivileges};
use dat_core::id::{EpId, EvdId, LmrId, PzId};
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::sync::{ContextLock, CriticalSectionLock, SplitLock};
use dat_core::{Ia, Result};
use mmio_model::{ModelBackend, ModelFabric};

/// Data calls mask interrupts, control calls do not.
type Lock = SplitLock<CriticalSectionLock, ContextLock>;

dat_core::define_storage! {
    /// Storage of an adapter; one dispatcher is the adapter's own.
    pub(crate) struct Storage for ModelBackend, Lock {
        protection_zones: 4,
        local_regions: 4,
        remote_regions: 4,
        event_dispatchers: 2,
        notification_objects: 2,
        endpoints: 4,
        shared_receive_queues: 1,
        public_service_points: 4,
        reserved_service_points: 4,
        connection_requests: 4,
        events: 64,
        records: 96,
    }
}

pub(crate) type Adapter = Ia<'static, ModelBackend, Lock>;

/// Length of a buffer in bytes.
pub(crate) const LENGTH: usize = 64;
/// Buffer for a region.
pub(crate) type Bytes = [AtomicU8; LENGTH];

/// Creates a buffer of zeros.
pub(crate) const fn zeros() -> Bytes {
    [const { AtomicU8::new(0) }; LENGTH]
}

/// Region with its buffer.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    bytes: &'static Bytes,
    pub(crate) lmr: LmrId,
    context: u32,
    pub(crate) remote_context: u32,
}

impl Memory {
    /// Writes a text at an offset.
    pub(crate) fn put(&self, offset: usize, text: &str) {
        for (byte, value) in self.bytes.iter().skip(offset).zip(text.bytes()) {
            byte.store(value, Ordering::Relaxed);
        }
    }

    /// Logs the text at an offset.
    pub(crate) fn show(&self, whose: &str, offset: usize, length: usize) {
        let mut copy = [0; LENGTH];
        let source = self.bytes.iter().skip(offset).take(length);
        let mut copied = 0;
        for (to, from) in copy.iter_mut().zip(source) {
            *to = from.load(Ordering::Relaxed);
            copied += 1;
        }
        let text = copy.get(..copied).map(core::str::from_utf8);
        match text {
            Some(Ok(text)) => defmt::info!("  {=str} reads \"{=str}\"", whose, text),
            _ => defmt::info!("  {=str} reads no text", whose),
        }
    }

    /// Returns a segment, which may exceed the region.
    pub(crate) fn segment(&self, offset: usize, length: u64) -> LmrTriplet {
        LmrTriplet {
            context: self.context,
            address: self.address().wrapping_add(offset as u64),
            length,
        }
    }

    /// Returns the buffer as a peer names it.
    ///
    /// `context` belongs to the region or to a window.
    pub(crate) fn remote(&self, context: u32, length: u64) -> RmrTriplet {
        RmrTriplet {
            context,
            address: self.address(),
            length,
        }
    }

    fn address(&self) -> u64 {
        self.bytes.as_ptr().addr() as u64
    }
}

/// Adapter with a protection zone and one dispatcher for all events.
pub(crate) struct Party {
    pub(crate) name: &'static str,
    pub(crate) ia: Adapter,
    pub(crate) pz: PzId,
    pub(crate) events: EvdId,
}

impl Party {
    /// Opens an adapter.
    pub(crate) fn open(
        name: &'static str,
        device: ModelBackend,
        storage: &'static mut Storage,
    ) -> Result<Self> {
        let ia = Ia::open(device, storage.lend(), 4).map_err(|refused| refused.error)?;
        let pz = ia.pz_create()?;
        let events = ia.evd_create(32, None, EvdFlags::DEFAULT)?;
        defmt::info!("{=str}: ia_open, pz_create, evd_create", name);
        Ok(Self {
            name,
            ia,
            pz,
            events,
        })
    }

    /// Registers memory.
    pub(crate) fn register(
        &self,
        pz: PzId,
        bytes: &'static Bytes,
        privileges: MemoryPrivileges,
    ) -> Result<Memory> {
        let created = self.ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_static(bytes)),
            pz,
            privileges,
        })?;
        defmt::info!("{=str}: lmr_create({})", self.name, privileges);
        Ok(Memory {
            bytes,
            lmr: created.lmr,
            context: created.lmr_context,
            remote_context: created.rmr_context,
        })
    }

    /// Takes the next event; the caller has run the fabric until it is idle.
    fn next(&self, fabric: &ModelFabric) -> Option<Event> {
        self.ia.progress(fabric.now());
        let dispatchers = [self.events, self.ia.async_evd()];
        let mut events = dispatchers.into_iter().map(|evd| self.ia.evd_dequeue(evd));
        events.find_map(Result::ok)
    }

    /// Logs an event.
    fn log(&self, event: &Event) {
        match event {
            Event::Dto(DtoCompletion {
                cookie,
                status: DtoStatus::Success,
                transferred_length,
                operation,
                ..
            }) => defmt::info!(
                "  {=str} gets {} {=u64}: {=u64} bytes",
                self.name,
                operation,
                cookie,
                transferred_length
            ),
            Event::Dto(failed) => defmt::info!(
                "  {=str} gets {} {=u64}: {}",
                self.name,
                failed.operation,
                failed.cookie,
                failed.status
            ),
            Event::RmrBind(done) => defmt::info!(
                "  {=str} gets bind {=u64}: {}",
                self.name,
                done.cookie,
                done.status
            ),
            Event::Extended(done) => defmt::info!("  {=str} gets {}", self.name, done),
            Event::Connection {
                kind,
                private_data_size,
                ..
            } => defmt::info!(
                "  {=str} gets {}, {=u16} bytes of private data",
                self.name,
                kind,
                private_data_size
            ),
            Event::ConnectionRequest { qualifier, .. } => {
                defmt::info!("  {=str} gets a request for {=u64}", self.name, qualifier);
            }
            Event::Async { kind, reason, .. } => {
                defmt::info!("  {=str} gets {} ({=u32})", self.name, kind, reason);
            }
            Event::Software { pointer } => {
                defmt::info!("  {=str} gets its own {=u64}", self.name, pointer);
            }
        }
    }

    /// Takes and logs all events; returns the last connection request.
    pub(crate) fn take_all(&self, fabric: &ModelFabric) -> Option<dat_core::id::CrId> {
        let mut request = None;
        while let Some(event) = self.next(fabric) {
            self.log(&event);
            if let Event::ConnectionRequest { cr, .. } = event {
                request = Some(cr);
            }
        }
        request
    }

    /// Logs the result of a call.
    pub(crate) fn answer<T>(&self, call: &str, answer: Result<T>) -> Option<T> {
        match answer {
            Ok(value) => {
                defmt::info!("{=str}: {=str}: success", self.name, call);
                Some(value)
            }
            Err(error) => {
                let (kind, subtype) = (error.kind(), error.subtype());
                defmt::info!("{=str}: {=str}: {}, {}", self.name, call, kind, subtype);
                None
            }
        }
    }

    /// Logs the state of an endpoint.
    pub(crate) fn state(&self, ep: EpId) -> Result<()> {
        let status = self.ia.ep_get_status(ep)?;
        defmt::info!("  {=str} is {}", self.name, status.state);
        Ok(())
    }
}
