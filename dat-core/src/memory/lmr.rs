//! Local memory regions: creation, queries, freeing.

use core::ptr;

use super::lookup::zone_of;
use super::lookup::zone_part;
use super::{LmrSlot, Region};
use crate::adapter::{Control, Ia};
use crate::attributes::{IaAttributes, ProviderAttributes};
use crate::backend::{Backend, RegionKeys, Registration, backend_refused};
use crate::error::{Cause, Error, Parameter, Result, Subtype};
use crate::flags::{
    LMR_COOKIE_SIZE, LmrFields, MemoryPrivileges, MemoryType, MemoryTypes, check_fields,
};
use crate::id::{Handle, INDEX_BITS, Index, LmrId, PzId, next_generation};
use crate::storage::VisitList;
use crate::sync::RawLock;
use crate::sync::atomic::{Ordering, fence};

/// Memory to create a local memory region from.
#[derive(Debug)]
#[non_exhaustive]
pub enum LmrMemory {
    /// A range of memory.
    Virtual(Region),
    /// The memory of an existing region, with another zone or other privileges.
    Lmr(LmrId),
    /// Memory shared with others, who register it under the same cookie.
    SharedVirtual(Region, [u8; LMR_COOKIE_SIZE]),
}

impl LmrMemory {
    /// Returns the DAT memory type.
    pub const fn memory_type(&self) -> MemoryType {
        match self {
            Self::Virtual(_) => MemoryType::Virtual,
            Self::Lmr(_) => MemoryType::Lmr,
            Self::SharedVirtual(..) => MemoryType::SharedVirtual,
        }
    }
}

/// Parameters of a local memory region to create.
#[derive(Debug)]
pub struct LmrRequest {
    /// Memory of the region.
    pub memory: LmrMemory,
    /// Zone whose endpoints and shared receive queues may use the region.
    pub pz: PzId,
    /// Privileges of local and remote access.
    pub privileges: MemoryPrivileges,
}

/// Result of creating a local memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct LmrCreated {
    /// Handle of the region.
    pub lmr: LmrId,
    /// Context for local segments and binds; never 0.
    pub lmr_context: u32,
    /// Context for peers; 0 without a remote privilege (LMC-05).
    pub rmr_context: u32,
    /// Address of the first registered byte.
    pub registered_address: u64,
    /// Number of registered bytes.
    pub registered_size: u64,
}

/// Memory that a region was created from, as a query reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum LmrSource {
    /// A range of memory.
    Virtual {
        /// Address of the first byte.
        address: u64,
    },
    /// The memory of another region, which may have been freed since (LMF-04).
    Lmr(LmrId),
    /// Shared memory.
    SharedVirtual {
        /// Address of the first byte.
        address: u64,
        /// Cookie of the shared memory.
        cookie: [u8; LMR_COOKIE_SIZE],
    },
}

impl LmrSource {
    /// Returns the DAT memory type.
    pub const fn memory_type(&self) -> MemoryType {
        match self {
            Self::Virtual { .. } => MemoryType::Virtual,
            Self::Lmr(_) => MemoryType::Lmr,
            Self::SharedVirtual { .. } => MemoryType::SharedVirtual,
        }
    }
}

/// Result of a local memory region query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct LmrParam {
    /// Handle of the adapter.
    pub ia: Handle,
    /// Memory that the region was created from.
    pub source: LmrSource,
    /// Length in bytes, as requested.
    pub length: u64,
    /// Protection zone.
    pub pz: PzId,
    /// Privileges of local and remote access.
    pub privileges: MemoryPrivileges,
    /// Context for local segments and binds.
    pub lmr_context: u32,
    /// Context for peers; 0 without a remote privilege.
    pub rmr_context: u32,
    /// Number of registered bytes.
    pub registered_size: u64,
    /// Address of the first registered byte.
    pub registered_address: u64,
}

/// Set in a slot's `windows` while it takes no binds.
///
/// Its region is being freed, or it holds none. The bits below may count binds that have not seen
/// it yet.
const CLOSED: u32 = 1 << 31;
/// Set in a slot's `generation` while it holds a cookie instead of a region.
const HOLDS_COOKIE: u32 = 1 << 31;

/// Decoded `source` word of a region's slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Virtual,
    Lmr(LmrId),
    /// Shared memory; the slot of this index holds the cookie.
    Cookie(Index),
}

impl Origin {
    /// Encodes the origin. Handles are above all cookie indices, because their kind is never 0.
    const fn to_word(self) -> u64 {
        match self {
            Self::Virtual => 0,
            Self::Lmr(lmr) => lmr.handle().to_raw(),
            Self::Cookie(index) => (index.get() as u64).wrapping_add(1),
        }
    }

    fn from_word(word: u64) -> Self {
        match word.checked_sub(1).map(u32::try_from) {
            None => Self::Virtual,
            Some(Ok(index)) => Self::Cookie(Index::from_word(index)),
            Some(Err(_)) => Self::Lmr(LmrId::from_handle(Handle::from_raw(word))),
        }
    }
}

/// Part of the slot that only the holder of the control lock changes.
///
/// The window count is an exception. Binds read this part too.
impl LmrSlot {
    /// Returns true if the slot holds a region.
    pub(crate) fn is_live(&self) -> bool {
        self.identity.is_live()
    }

    /// Returns true if the slot holds the region `lmr`.
    pub(crate) fn is(&self, lmr: LmrId, instance: u16) -> bool {
        self.is_live() && self.id(instance, lmr.slot()) == lmr
    }

    /// Frees the slot without a call to the device: its adapter is gone.
    pub(crate) fn forget(&self) {
        self.windows.store(CLOSED, Ordering::SeqCst);
        self.identity.clear();
        self.forget_cookie();
    }

    /// Returns the consumer's context word of the region.
    pub(crate) fn consumer_context(&self) -> u64 {
        self.context.load()
    }

    /// Replaces the consumer's context word of the region.
    pub(crate) fn set_consumer_context(&self, context: u64) {
        self.context.store(context);
    }

    /// Returns true if `context` names the region in the slot.
    pub(crate) fn is_named(&self, context: u32) -> bool {
        // Orders earlier reads of the region's fields before this check.
        fence(Ordering::Acquire);
        context != 0 && self.identity.context() == context
    }

    /// Counts a window on the region that `context` names; false if the slot no longer holds it.
    ///
    /// While the window is counted, the region cannot be freed, so its fields do not change. Values
    /// read since `context` was last seen in the slot are valid.
    #[inline]
    pub(crate) fn retain_window(&self, context: u32) -> bool {
        let is_open = (self.windows.fetch_add(1, Ordering::SeqCst) as i32) >= 0;
        if is_open && self.is_named(context) {
            return true;
        }
        self.release_window();
        false
    }

    /// Closes the slot for binds; returns false and changes nothing if a window is counted.
    pub(super) fn close(&self) -> bool {
        self.windows
            .compare_exchange(0, CLOSED, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Releases a window.
    pub(crate) fn release_window(&self) {
        let _changed = self
            .windows
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| {
                (count & !CLOSED != 0).then_some(count.wrapping_sub(1))
            });
    }

    fn id(&self, instance: u16, index: Index) -> LmrId {
        LmrId::new(instance, self.generation.load(Ordering::Relaxed), index)
    }

    pub(crate) fn region_keys(&self) -> RegionKeys {
        RegionKeys {
            object: self.object.load(Ordering::Relaxed),
            local: self.local_key.load(Ordering::Relaxed),
            remote: self.remote_key.load(Ordering::Relaxed),
        }
    }

    fn origin(&self) -> Origin {
        Origin::from_word(self.source.load())
    }

    /// Returns the generation if the slot can take another region.
    fn free_generation(&self) -> Option<u32> {
        let generation = self.generation.load(Ordering::Relaxed);
        (!self.is_live() && generation & HOLDS_COOKIE == 0 && next_generation(generation).is_ok())
            .then_some(generation)
    }

    /// Writes a region to a free slot without publishing it.
    pub(super) fn fill(&self, generation: u32, region: &Registered) {
        // A reader that sees any of the new fields also sees that the identity was cleared.
        fence(Ordering::Release);
        self.generation.store(generation, Ordering::Relaxed);
        self.base.store(region.base, Ordering::Relaxed);
        self.length.store(region.length, Ordering::Relaxed);
        self.local_key.store(region.keys.local, Ordering::Relaxed);
        self.remote_key.store(region.keys.remote, Ordering::Relaxed);
        self.object.store(region.keys.object, Ordering::Relaxed);
        self.source.store(region.origin.to_word());
        self.context.store(0);
    }

    /// Makes the written region valid under its context.
    pub(super) fn publish(&self, context: u32, region: &Registered) {
        self.identity
            .set(context, zone_part(region.zone) | region.privileges.bits());
        // A slot that was never used is already open, and a bind with a stale context may be
        // counting a window now.
        self.windows.fetch_and(!CLOSED, Ordering::SeqCst);
    }

    /// Stores a cookie in a free slot.
    ///
    /// The fields of a region, without those that distinguish it from a free slot, have room for
    /// exactly the ten words of a cookie, even if addresses have 32 bits.
    pub(super) fn store_cookie(&self, index: Index, cookie: &[u8; LMR_COOKIE_SIZE]) {
        // As in `fill`.
        fence(Ordering::Release);
        let mut words = cookie.chunks_exact(4).map(|bytes| {
            bytes
                .iter()
                .fold(0_u32, |word, &byte| word << 8 | u32::from(byte))
        });
        let mut next = || words.next().unwrap_or_default();
        // The word grants no privilege, whatever its value: this context names another slot.
        self.identity.set(index.get() ^ 1, next());
        self.local_key.store(next(), Ordering::Relaxed);
        self.remote_key.store(next(), Ordering::Relaxed);
        self.base.store(next() as usize, Ordering::Relaxed);
        self.length.store(next() as usize, Ordering::Relaxed);
        self.object.store(next() as usize, Ordering::Relaxed);
        for pair in [&self.source, &self.context] {
            let upper = u64::from(next());
            pair.store(upper << 32 | u64::from(next()));
        }
        self.windows.store(CLOSED, Ordering::SeqCst);
        self.generation.fetch_or(HOLDS_COOKIE, Ordering::Relaxed);
    }

    /// Returns the cookie if the slot holds one.
    fn cookie(&self) -> Option<[u8; LMR_COOKIE_SIZE]> {
        if self.generation.load(Ordering::Relaxed) & HOLDS_COOKIE == 0 {
            return None;
        }
        let (source, context) = (self.source.load(), self.context.load());
        let words = [
            self.identity.meta(),
            self.local_key.load(Ordering::Relaxed),
            self.remote_key.load(Ordering::Relaxed),
            self.base.load(Ordering::Relaxed) as u32,
            self.length.load(Ordering::Relaxed) as u32,
            self.object.load(Ordering::Relaxed) as u32,
            (source >> 32) as u32,
            source as u32,
            (context >> 32) as u32,
            context as u32,
        ];
        let mut cookie = [0; LMR_COOKIE_SIZE];
        for (bytes, word) in cookie.chunks_exact_mut(4).zip(words) {
            for (byte, value) in bytes.iter_mut().zip(word.to_be_bytes()) {
                *byte = value;
            }
        }
        Some(cookie)
    }

    pub(super) fn forget_cookie(&self) {
        self.generation.fetch_and(!HOLDS_COOKIE, Ordering::Relaxed);
    }
}

/// Fields of a region for its slot.
pub(super) struct Registered {
    pub(super) zone: u16,
    pub(super) privileges: MemoryPrivileges,
    pub(super) base: usize,
    pub(super) length: usize,
    pub(super) keys: RegionKeys,
    pub(super) origin: Origin,
}

/// Number of bits of the generation in a context.
const CONTEXT_GENERATION_BITS: u32 = u32::BITS - INDEX_BITS;

/// Number of slots that stay free in a table that grows, so that a context is not used again soon.
const KEPT_FREE: u32 = 1 << 16;

/// Returns the context of a region: the generation folded to the upper bits but 0, then the index.
///
/// In a table that grows, the slot that was free longest is used, and `KEPT_FREE` stay free. With
/// indices of 20 bits, a context repeats after 4,095 registrations in each of these slots, which
/// are more than 2^28 registrations. In another table, the least used slot is used. With indices
/// of 16 bits, a context repeats after 65,535 registrations in its slot and in every other free
/// one.
fn context_of(generation: u32, index: Index) -> u32 {
    let folded = generation
        .saturating_sub(1)
        .checked_rem((1 << CONTEXT_GENERATION_BITS) - 1)
        .unwrap_or_default();
    folded.wrapping_add(1) << INDEX_BITS | index.get()
}

/// # Local memory regions
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Registers memory, with a zone and privileges.
    ///
    /// Registers exactly the requested memory. A region made from another one gets all of its
    /// memory, whatever the other's zone and privileges, and stays valid without it (LMF-04). Each
    /// cookie in use takes one more slot of the storage.
    ///
    /// Shared memory is refused (INVALID_STATE) if this adapter can see that the sharers mean
    /// different memory. Then a range under one cookie overlaps a range under another, or one
    /// cookie has two lengths. One cookie may have several addresses, because memory can be mapped
    /// more than once. All 40 bytes of a cookie count.
    ///
    /// # Errors
    /// - INVALID_HANDLE (PZ): the zone is not a live zone of this adapter.
    /// - INVALID_HANDLE (LMR): the source region is not a live region of this adapter.
    /// - MODEL_NOT_SUPPORTED: the provider does not support this type of memory.
    /// - INVALID_PARAMETER (ARG6): privilege bits outside 0x33.
    /// - INVALID_PARAMETER (ARG4): the length is 0 or above `max_lmr_block_size`, or the end is
    ///   beyond the address space.
    /// - INVALID_PARAMETER (ARG3): the end is above `max_lmr_virtual_address`.
    /// - INVALID_STATE: the memory conflicts with that of another sharer or cookie.
    /// - INSUFFICIENT_RESOURCES (MEMORY_REGION): storage or device resources are exhausted.
    /// - INVALID_HANDLE (IA): the adapter is being closed.
    ///
    /// Spec: LMC-01..11
    ///
    /// # Examples
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/pair/mod.rs"));
    /// # fn main() { apart(|fabric, a, b| {
    /// # let (ia, pz) = (&a.ia, a.pz);
    /// static MEMORY: [AtomicU8; 64] = [const { AtomicU8::new(0) }; 64];
    ///
    /// let region = ia.lmr_create(&LmrRequest {
    ///     memory: LmrMemory::Virtual(Region::from_static(&MEMORY)),
    ///     pz,
    ///     privileges: MemoryPrivileges::LOCAL_READ | MemoryPrivileges::REMOTE_WRITE,
    /// })?;
    /// // This names the first 16 bytes in requests of this side.
    /// let local = LmrTriplet {
    ///     context: region.lmr_context,
    ///     address: region.registered_address,
    ///     length: 16,
    /// };
    /// // A peer gets this instead.
    /// let remote = RmrTriplet {
    ///     context: region.rmr_context,
    ///     address: region.registered_address,
    ///     length: 16,
    /// };
    /// # let _ = (local, remote);
    /// # Ok(()) }) }
    /// ```
    pub fn lmr_create(&self, request: &LmrRequest) -> Result<LmrCreated> {
        self.controlled(|control| {
            control.check_open()?;
            control.zone(request.pz)?;
            let (base, length) = match &request.memory {
                LmrMemory::Virtual(region) | LmrMemory::SharedVirtual(region, _) => {
                    (region.base().expose_provenance(), region.len())
                }
                LmrMemory::Lmr(source) => {
                    let slot = self.live_region(*source)?;
                    (
                        slot.base.load(Ordering::Relaxed),
                        slot.length.load(Ordering::Relaxed),
                    )
                }
            };
            let backend = control.backend()?;
            check_type(&request.memory, &backend.provider_attributes())?;
            if MemoryPrivileges::from_bits(request.privileges.bits()).is_none() {
                return Err(Error::invalid_argument(6)
                    .about(Parameter::Privileges)
                    .because(Cause::UnknownFlags));
            }
            check_range(base, length, &backend.ia_attributes())?;
            let origin = match &request.memory {
                LmrMemory::Virtual(_) => Origin::Virtual,
                LmrMemory::Lmr(source) => Origin::Lmr(*source),
                LmrMemory::SharedVirtual(_, cookie) => {
                    self.check_sharing(control, base, length, cookie)?;
                    Origin::Cookie(self.hold_cookie(control, cookie)?)
                }
            };
            let made = self.register(control, request, base, length, origin);
            if made.is_err() {
                self.release_cookie(control, origin);
            }
            made
        })
    }

    /// Registers a checked range of memory.
    fn register(
        &self,
        control: &mut Control<'_, B>,
        request: &LmrRequest,
        base: usize,
        length: usize,
        origin: Origin,
    ) -> Result<LmrCreated> {
        let (index, slot) = self.free_region_slot()?;
        let (zone, domain) = (request.pz.index() as u16, control.zone(request.pz)?.domain);
        let keys = control
            .backend()?
            .register(&Registration::of(
                domain,
                // The registration exposed the memory's provenance.
                ptr::with_exposed_provenance_mut(base),
                length,
                request.privileges,
            ))
            .map_err(|error| backend_refused(error, Subtype::ResourceMemoryRegion))?;
        self.retain_zone(control, request.pz)?;
        self.shared.local_regions.claim(index);
        let generation = slot.generation.load(Ordering::Relaxed).saturating_add(1);
        let lmr_context = context_of(generation, index);
        let region = Registered {
            zone,
            privileges: request.privileges,
            base,
            length,
            keys,
            origin,
        };
        slot.fill(generation, &region);
        // A post that guessed the context may have read the slot's former fields.
        self.wait_for_posts();
        slot.publish(lmr_context, &region);
        if matches!(origin, Origin::Cookie(_)) {
            control.sharing.enter(index, &slot.sharing);
        }
        Ok(LmrCreated {
            lmr: slot.id(self.shared.instance, index),
            lmr_context,
            rmr_context: remote_context(request.privileges, keys.remote),
            registered_address: base as u64,
            registered_size: length as u64,
        })
    }

    /// Queries a local memory region; all fields are filled in.
    ///
    /// # Errors
    /// - INVALID_HANDLE (LMR): `lmr` is not a live region of this adapter.
    /// - INVALID_PARAMETER (ARG2): `fields` has undefined bits.
    ///
    /// Spec: LMQ-01, GEN-08
    pub fn lmr_query(&self, lmr: LmrId, fields: LmrFields) -> Result<LmrParam> {
        self.controlled(|control| {
            let slot = self.live_region(lmr)?;
            check_fields(fields)?;
            let meta = slot.identity.meta();
            let address = slot.base.load(Ordering::Relaxed) as u64;
            let length = slot.length.load(Ordering::Relaxed) as u64;
            let privileges = MemoryPrivileges::from_bits_truncate(meta);
            Ok(LmrParam {
                ia: self.handle(),
                source: match slot.origin() {
                    Origin::Virtual => LmrSource::Virtual { address },
                    Origin::Lmr(source) => LmrSource::Lmr(source),
                    Origin::Cookie(index) => LmrSource::SharedVirtual {
                        address,
                        cookie: self.cookie_at(index).unwrap_or([0; LMR_COOKIE_SIZE]),
                    },
                },
                length,
                pz: Self::zone_at(control, zone_of(meta)),
                privileges,
                lmr_context: slot.identity.context(),
                rmr_context: remote_context(privileges, slot.remote_key.load(Ordering::Relaxed)),
                registered_size: length,
                registered_address: address,
            })
        })
    }

    /// Frees a local memory region.
    ///
    /// On return, its contexts are invalid and its memory is the caller's again. Transfers that use
    /// it may fail. Later local use is a PRIVILEGES_VIOLATION; later remote use fails at the peer
    /// with REMOTE_ACCESS.
    ///
    /// # Errors
    /// - INVALID_HANDLE (LMR): `lmr` is not a live region of this adapter.
    /// - INVALID_STATE (LMR_IN_USE): a remote memory region is bound to the region, or a posted
    ///   bind may still bind or unbind it.
    ///
    /// Spec: LMF-01..04, GEN-15
    pub fn lmr_free(&self, lmr: LmrId) -> Result<()> {
        match self.try_lmr_free(lmr) {
            Err(error) if error.kind() == crate::error::ErrorKind::InvalidState => {
                // The bind that releases the region may have completed without being polled.
                self.poll_binds();
                self.try_lmr_free(lmr)
            }
            outcome => outcome,
        }
    }

    fn try_lmr_free(&self, lmr: LmrId) -> Result<()> {
        self.controlled(|control| {
            let slot = self.live_region(lmr)?;
            if !slot.close() {
                return Err(Error::invalid_state(Subtype::InvalidStateLmrInUse)
                    .because(Cause::StillReferenced));
            }
            self.destroy_lmr_at(control, lmr.slot());
            Ok(())
        })
    }

    /// Destroys the region in a slot, if the slot holds one, bound or not.
    pub(crate) fn destroy_lmr_at(&self, control: &mut Control<'_, B>, index: Index) {
        let Some(slot) = self.shared.local_regions.get(usize::from(index)) else {
            return;
        };
        if !slot.is_live() {
            return;
        }
        slot.windows.fetch_or(CLOSED, Ordering::SeqCst);
        let zone = zone_of(slot.identity.meta());
        slot.identity.clear();
        self.wait_for_posts();
        if let Ok(backend) = control.backend() {
            backend.deregister(slot.region_keys());
        }
        self.release_zone(control, zone);
        let (instance, origin) = (self.shared.instance, slot.origin());
        let lmr = slot.id(instance, index);
        self.shared.local_regions.give_back(lmr.handle());
        self.release_cookie(control, origin);
    }

    /// Waits for the posts in progress, if the backend reads segments at post. Needs the control
    /// lock.
    ///
    /// A post holds its endpoint's lock from its check of the region table until the device has the
    /// work request. Its endpoint is in the list of those that may be posting. This function locks
    /// each endpoint in the list once. A post that took the lock before has ended, and one that
    /// takes it afterwards sees all earlier writes to the table. So does one whose endpoint enters
    /// the list later. No post mixes the fields of a region with those of the slot's next one, and
    /// no post that saw a region alive still reads its memory.
    ///
    /// The cost is that of the endpoints that have posted since the last call.
    fn wait_for_posts(&self) {
        if !B::READS_AT_POST {
            return;
        }
        let mut next = self.shared.posting.take();
        while let Some(index) = next
            && let Some(slot) = self.shared.endpoints.get(index.into())
        {
            let mut endpoint = slot.main.lock();
            next = VisitList::next(index, &slot.posting);
            endpoint.suspend_posts();
        }
    }

    /// Returns the slot of a live region; the control lock keeps the region alive.
    fn live_region(&self, lmr: LmrId) -> Result<&LmrSlot> {
        match self.shared.local_regions.get(lmr.index()) {
            Some(slot) if slot.is(lmr, self.shared.instance) => Ok(slot),
            _ => Err(lmr.refused(self.shared.instance)),
        }
    }

    fn cookie_at(&self, index: Index) -> Option<[u8; LMR_COOKIE_SIZE]> {
        self.shared.local_regions.get(usize::from(index))?.cookie()
    }

    /// Visits the regions with a cookie and the slots that hold the cookies.
    ///
    /// Others leave the list, so the cost is that of the shared regions.
    fn visit_sharing(&self, control: &mut Control<'_, B>, mut visit: impl FnMut(Index, &LmrSlot)) {
        let mut next = control.sharing.take();
        while let Some(index) = next
            && let Some(slot) = self.shared.local_regions.get(usize::from(index))
        {
            next = VisitList::next(index, &slot.sharing);
            let is_shared = slot.is_live() && matches!(slot.origin(), Origin::Cookie(_));
            if is_shared || slot.cookie().is_some() {
                visit(index, slot);
                control.sharing.enter(index, &slot.sharing);
            }
        }
    }

    /// Checks a cookie against those of this adapter's other shared regions.
    fn check_sharing(
        &self,
        control: &mut Control<'_, B>,
        base: usize,
        length: usize,
        cookie: &[u8; LMR_COOKIE_SIZE],
    ) -> Result<()> {
        let mut refused = false;
        self.visit_sharing(control, |_, slot| {
            let Origin::Cookie(index) = slot.origin() else {
                return;
            };
            if slot.cookie().is_some() {
                return;
            }
            let other_base = slot.base.load(Ordering::Relaxed);
            let other_length = slot.length.load(Ordering::Relaxed);
            refused |= if self.cookie_at(index).as_ref() == Some(cookie) {
                other_length != length
            } else {
                // Neither range wraps: `check_range` refuses such ranges.
                base < other_base.saturating_add(other_length)
                    && other_base < base.saturating_add(length)
            };
        });
        if refused {
            return Err(
                Error::invalid_state(Subtype::NoSubtype).because(Cause::SharedMemoryRefused)
            );
        }
        Ok(())
    }

    /// Finds a slot for a region or a cookie.
    fn free_region_slot(&self) -> Result<(Index, &LmrSlot)> {
        let exhausted =
            Error::insufficient_resources(Subtype::ResourceMemoryRegion).because(Cause::TableFull);
        self.shared
            .local_regions
            .find(KEPT_FREE, LmrSlot::free_generation)
            .ok_or(exhausted)
    }

    /// Returns the index of the slot that holds a cookie; stores it in a free slot if none does.
    fn hold_cookie(
        &self,
        control: &mut Control<'_, B>,
        cookie: &[u8; LMR_COOKIE_SIZE],
    ) -> Result<Index> {
        let mut holder = None;
        self.visit_sharing(control, |index, slot| {
            if slot.cookie().as_ref() == Some(cookie) {
                holder = Some(index);
            }
        });
        if let Some(index) = holder {
            return Ok(index);
        }
        let (index, slot) = self.free_region_slot()?;
        slot.store_cookie(index, cookie);
        self.shared.local_regions.claim(index);
        control.cookies = control.cookies.saturating_add(1);
        control.sharing.enter(index, &slot.sharing);
        Ok(index)
    }

    /// Frees the slot of a region's cookie if no region uses it.
    fn release_cookie(&self, control: &mut Control<'_, B>, origin: Origin) {
        let Origin::Cookie(index) = origin else {
            return;
        };
        let mut is_used = false;
        self.visit_sharing(control, |_, slot| {
            is_used |= slot.is_live() && slot.origin() == origin;
        });
        if is_used {
            return;
        }
        if let Some(holder) = self.shared.local_regions.get(usize::from(index)) {
            holder.forget_cookie();
            let slot = holder.id(self.shared.instance, index);
            self.shared.local_regions.give_back(slot.handle());
            control.cookies = control.cookies.saturating_sub(1);
        }
    }
}

fn check_type(memory: &LmrMemory, provider: &ProviderAttributes) -> Result<()> {
    let needed = match memory {
        LmrMemory::Virtual(_) => MemoryTypes::empty(),
        LmrMemory::Lmr(_) => MemoryTypes::LMR,
        LmrMemory::SharedVirtual(..) => MemoryTypes::SHARED_VIRTUAL,
    };
    if provider.lmr_mem_types_supported.contains(needed) {
        Ok(())
    } else {
        Err(Error::model_not_supported().because(Cause::Unsupported))
    }
}

/// Error of the address of a registration.
const ADDRESS: Error = Error::invalid_argument(3).about(Parameter::Memory);
/// Error of its length.
const LENGTH: Error = Error::invalid_argument(4).about(Parameter::Memory);

fn check_range(base: usize, length: usize, adapter: &IaAttributes) -> Result<()> {
    if length == 0 {
        return Err(LENGTH.because(Cause::ZeroCount));
    }
    if length as u64 > adapter.max_lmr_block_size {
        return Err(LENGTH.because(Cause::AboveLimit));
    }
    // The last byte of the address space is excluded, so that ends of ranges are addresses too.
    let Some(end) = base.checked_add(length) else {
        return Err(LENGTH.because(Cause::AddressOverflow));
    };
    if end.saturating_sub(1) as u64 > adapter.max_lmr_virtual_address {
        return Err(ADDRESS.because(Cause::AboveLimit));
    }
    Ok(())
}

fn remote_context(privileges: MemoryPrivileges, key: u32) -> u32 {
    let remote = MemoryPrivileges::REMOTE_READ.union(MemoryPrivileges::REMOTE_WRITE);
    if privileges.intersects(remote) {
        key
    } else {
        0
    }
}
