//! Remote memory regions: creation, queries, freeing.

use super::lookup::zone_of_seal;
use crate::adapter::{Control, Ia};
use crate::backend::{BINDS_UNDER_WAY, Backend, WindowKey, backend_refused};
use crate::error::{Cause, Error, Result, Subtype};
use crate::flags::{MemoryPrivileges, RmrFields, check_fields};
use crate::id::{Handle, Index, PzId, RmrId};
use crate::memory::{LmrTriplet, zone_seal};
use crate::storage::vacant;
use crate::sync::{Guard, Mutex, RawLock};

/// Sequence number that stands for no bind.
pub(crate) const NO_BIND: u32 = 0;

/// Last sequence number of a region whose last bind was flushed or failed.
///
/// Its window may need renewal.
pub(crate) const MISSED: u32 = u32::MAX;

/// Slot for one remote memory region.
///
/// Its lock is the last in the lock order: no other lock is taken while it is held. Freeing also
/// takes the control lock.
pub struct RmrSlot<L> {
    pub(crate) main: Mutex<L, RemoteRegion>,
}

impl<L: RawLock> RmrSlot<L> {
    /// A free slot.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to build arrays from"
    )]
    pub const EMPTY: Self = Self {
        main: Mutex::new(RemoteRegion::EMPTY),
    };

    /// Returns true if the slot holds an object.
    pub(crate) fn is_live(&self) -> bool {
        self.main.with(|region| !region.id.is_null())
    }
}

/// Remote memory region, protected by its lock.
#[derive(Debug)]
pub(crate) struct RemoteRegion {
    pub(crate) id: RmrId,
    pub(crate) generation: u32,
    /// `zone_seal` of its zone.
    pub(crate) zone_seal: u64,
    pub(crate) window: WindowKey,
    /// Result of the last completed bind; length 0 means unbound.
    pub(crate) bound: Binding,
    /// Accepted binds without a known completion, all of one endpoint.
    ///
    /// Each counts as a window on its region.
    pub(crate) pending: [Binding; BINDS_UNDER_WAY],
    /// Sequence number of the newest pending bind; otherwise `NO_BIND` or `MISSED`.
    pub(crate) sequence: u32,
    pub(crate) context: u64,
}

impl RemoteRegion {
    pub(crate) const EMPTY: Self = Self {
        id: RmrId::NULL,
        generation: 0,
        zone_seal: 0,
        window: WindowKey(0),
        bound: Binding::NONE,
        pending: [Binding::NONE; BINDS_UNDER_WAY],
        sequence: NO_BIND,
        context: 0,
    };

    /// Takes the content and leaves a free slot with its generation.
    pub(crate) fn take(&mut self) -> Self {
        let generation = self.generation;
        core::mem::replace(
            self,
            Self {
                generation,
                ..Self::EMPTY
            },
        )
    }

    /// Returns the pending binds.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = &Binding> {
        self.pending
            .iter()
            .filter(|binding| binding.sequence != NO_BIND)
    }

    /// Returns the last bind that was requested and not reported as failed.
    fn latest(&self) -> Binding {
        self.under_way()
            .find(|binding| binding.sequence == self.sequence)
            .copied()
            .unwrap_or(self.bound)
    }
}

/// Segment of a local region in a binding or in a pending bind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    /// LMR context, address and length; length 0 means unbound.
    pub(crate) segment: LmrTriplet,
    pub(crate) rmr_context: u32,
    /// Sequence number of the bind while it is pending; otherwise `NO_BIND`.
    pub(crate) sequence: u32,
    /// Index of the endpoint that the bind was posted to.
    pub(crate) endpoint: Index,
    pub(crate) privileges: MemoryPrivileges,
}

impl Binding {
    pub(crate) const NONE: Self = Self {
        segment: LmrTriplet {
            context: 0,
            address: 0,
            length: 0,
        },
        rmr_context: 0,
        sequence: NO_BIND,
        endpoint: Index::FIRST,
        privileges: MemoryPrivileges::empty(),
    };
}

/// Binding of a remote memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RmrBinding {
    /// Segment of a local region.
    pub lmr_triplet: LmrTriplet,
    /// Privileges as requested.
    pub privileges: MemoryPrivileges,
    /// Context for peers, valid once the bind has completed.
    pub rmr_context: u32,
}

/// Result of a remote memory region query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct RmrParam {
    /// Handle of the adapter.
    pub ia: Handle,
    /// Protection zone.
    pub pz: PzId,
    /// Binding of the last accepted or completed bind; `None` if unbound.
    pub binding: Option<RmrBinding>,
}

/// # Remote memory regions
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Creates an unbound remote memory region.
    ///
    /// # Errors
    /// - INVALID_HANDLE (PZ): `pz` is not a live zone of this adapter.
    /// - MODEL_NOT_SUPPORTED: the device has no memory windows (RMB-38).
    /// - INSUFFICIENT_RESOURCES (MEMORY_REGION): storage or device resources are exhausted.
    /// - INVALID_HANDLE (IA): the adapter is being closed.
    ///
    /// Spec: RMC-01, RMB-38
    pub fn rmr_create(&self, pz: PzId) -> Result<RmrId> {
        self.controlled(|control| {
            control.check_open()?;
            let domain = control.zone(pz)?.domain;
            let exhausted = Error::insufficient_resources(Subtype::ResourceMemoryRegion)
                .because(Cause::TableFull);
            let (index, slot) = self
                .shared
                .remote_regions
                .find(0, |slot| {
                    slot.main
                        .with(|region| vacant(region.id.is_null(), region.generation))
                })
                .ok_or(exhausted)?;
            if !serves_window(control.backend()?, index) {
                return Err(exhausted);
            }
            let window = control
                .backend()?
                .create_window(domain)
                .map_err(|error| backend_refused(error, Subtype::ResourceMemoryRegion))?;
            let zone = self.retain_zone(control, pz)?;
            self.shared.remote_regions.claim(index);
            Ok(slot.main.with(|region| {
                let generation = region.generation.saturating_add(1);
                *region = RemoteRegion {
                    id: RmrId::new(self.shared.instance, generation, index),
                    generation,
                    zone_seal: zone_seal(zone),
                    window,
                    ..RemoteRegion::EMPTY
                };
                region.id
            }))
        })
    }

    /// Queries a remote memory region; all fields are filled in.
    ///
    /// # Errors
    /// - INVALID_HANDLE (RMR): `rmr` is not a live region of this adapter.
    /// - INVALID_PARAMETER (ARG2): `fields` has undefined bits.
    ///
    /// Spec: RMQ-01, GEN-08
    pub fn rmr_query(&self, rmr: RmrId, fields: RmrFields) -> Result<RmrParam> {
        self.controlled(|control| {
            let (zone, latest) = self.with_remote_region(rmr, |region| {
                (zone_of_seal(region.zone_seal), region.latest())
            })?;
            check_fields(fields)?;
            Ok(RmrParam {
                ia: self.handle(),
                pz: Self::zone_at(control, zone),
                binding: (latest.segment.length != 0).then_some(RmrBinding {
                    lmr_triplet: latest.segment,
                    privileges: latest.privileges,
                    rmr_context: latest.rmr_context,
                }),
            })
        })
    }

    /// Frees a remote memory region; if it is bound, its context is invalid at once.
    ///
    /// # Errors
    /// - INVALID_HANDLE (RMR): `rmr` is not a live region of this adapter.
    ///
    /// Spec: RMF-01, RMF-02
    pub fn rmr_free(&self, rmr: RmrId) -> Result<()> {
        self.controlled(|control| {
            self.with_remote_region(rmr, |_| ())?;
            self.destroy_rmr_at(control, rmr.slot());
            Ok(())
        })
    }

    /// Destroys the remote region in a slot, if the slot holds one.
    pub(crate) fn destroy_rmr_at(&self, control: &mut Control<'_, B>, index: Index) {
        let Some(slot) = self.shared.remote_regions.get(usize::from(index)) else {
            return;
        };
        let region = slot.main.with(RemoteRegion::take);
        if region.id.is_null() {
            return;
        }
        if let Ok(backend) = control.backend() {
            backend.destroy_window(region.window);
        }
        // Local regions may be freed only after the device has destroyed the window.
        self.shared.release_binding(&region.bound);
        for binding in region.under_way() {
            self.shared.release_binding(binding);
        }
        self.shared.remote_regions.give_back(region.id.handle());
        self.release_zone(control, zone_of_seal(region.zone_seal));
    }

    /// Runs `f` on a live remote region under its lock.
    ///
    /// # Errors
    /// - INVALID_HANDLE (RMR): `rmr` is not a live region of this adapter.
    pub(crate) fn with_remote_region<R>(
        &self,
        rmr: RmrId,
        f: impl FnOnce(&mut RemoteRegion) -> R,
    ) -> Result<R> {
        Ok(f(&mut *self.lock_remote_region(rmr)?))
    }

    fn lock_remote_region(&self, rmr: RmrId) -> Result<Guard<'_, L, RemoteRegion>> {
        if let Some(slot) = self.shared.remote_regions.get(rmr.index()) {
            let region = slot.main.lock();
            if region.id == rmr && !rmr.is_null() {
                return Ok(region);
            }
        }
        Err(rmr.refused(self.shared.instance))
    }
}

/// Returns true if the device serves a remote region with this index.
///
/// A device may keep windows beyond its `max_rmrs`, to replace those whose keys are used up. One
/// without windows refuses to make one.
fn serves_window<B: Backend>(backend: &B, index: Index) -> bool {
    let most = backend.ia_attributes().max_rmrs;
    most == 0 || i32::try_from(index.get()).is_ok_and(|index| index < most)
}
