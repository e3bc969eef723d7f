//! Protection zones.

use crate::adapter::{Control, Ia};
use crate::backend::{Backend, DomainKey, backend_refused};
use crate::error::{Cause, Error, Result, Subtype};
use crate::flags::{PzFields, check_fields};
use crate::id::{Handle, Index, PzId};
use crate::storage::vacant;
use crate::sync::RawLock;

/// Slot for one protection zone, protected by the control lock.
#[derive(Debug)]
pub struct PzSlot {
    pub(crate) id: PzId,
    pub(crate) generation: u32,
    pub(crate) domain: DomainKey,
    /// Number of regions, endpoints and shared receive queues in the zone.
    pub(crate) users: u32,
    pub(crate) context: u64,
}

impl PzSlot {
    /// A free slot.
    pub const EMPTY: Self = Self {
        id: PzId::NULL,
        generation: 0,
        domain: DomainKey(0),
        users: 0,
        context: 0,
    };
}

/// Result of a protection zone query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct PzParam {
    /// Handle of the adapter.
    pub ia: Handle,
}

/// # Protection zones
impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Creates a protection zone.
    ///
    /// # Errors
    /// - INSUFFICIENT_RESOURCES (PROTECTION_DOMAIN): storage or device resources are exhausted.
    /// - INVALID_HANDLE (IA): the adapter is being closed.
    ///
    /// Spec: PZC-01
    ///
    /// # Examples
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/pair/mod.rs"));
    /// # fn main() { apart(|fabric, a, b| {
    /// # let ia = &a.ia;
    /// let pz = ia.pz_create()?;
    /// ia.pz_free(pz)?;
    /// // The handle is stale now, whatever takes its slot.
    /// assert!(ia.pz_free(pz).is_err());
    /// # Ok(()) }) }
    /// ```
    pub fn pz_create(&self) -> Result<PzId> {
        self.controlled(|control| {
            control.check_open()?;
            let exhausted = Error::insufficient_resources(Subtype::ResourceProtectionDomain)
                .because(Cause::TableFull);
            let (index, _) = control
                .protection_zones
                .find(0, |slot| vacant(slot.id.is_null(), slot.generation))
                // An identity of a region has 16 bits for the zone.
                .filter(|(index, _)| u16::try_from(index.get()).is_ok())
                .ok_or(exhausted)?;
            let domain = control
                .backend()?
                .create_domain()
                .map_err(|error| backend_refused(error, Subtype::ResourceProtectionDomain))?;
            let slot = control
                .protection_zones
                .get_mut(usize::from(index))
                .ok_or(exhausted)?;
            let generation = slot.generation.saturating_add(1);
            *slot = PzSlot {
                id: PzId::new(self.shared.instance, generation, index),
                generation,
                domain,
                users: 0,
                context: 0,
            };
            let pz = slot.id;
            control.protection_zones.claim(index);
            Ok(pz)
        })
    }

    /// Queries a protection zone.
    ///
    /// # Errors
    /// - INVALID_HANDLE (PZ): `pz` is not a live zone of this adapter.
    /// - INVALID_PARAMETER (ARG2): `fields` has undefined bits.
    ///
    /// Spec: PZQ-01, GEN-08
    pub fn pz_query(&self, pz: PzId, fields: PzFields) -> Result<PzParam> {
        self.controlled(|control| {
            control.zone(pz)?;
            check_fields(fields)?;
            Ok(PzParam { ia: self.handle() })
        })
    }

    /// Frees a protection zone.
    ///
    /// # Errors
    /// - INVALID_HANDLE (PZ): `pz` is not a live zone of this adapter.
    /// - INVALID_STATE (PZ_IN_USE): an endpoint, region or shared receive queue is in the zone.
    ///
    /// Spec: PZF-01, PZF-02, GEN-15
    pub fn pz_free(&self, pz: PzId) -> Result<()> {
        self.controlled(|control| {
            if control.zone(pz)?.users != 0 {
                return Err(Error::invalid_state(Subtype::InvalidStatePzInUse)
                    .because(Cause::StillReferenced));
            }
            self.destroy_pz_at(control, pz.slot());
            Ok(())
        })
    }

    /// Destroys the zone in a slot, if the slot holds one, in use or not.
    pub(crate) fn destroy_pz_at(&self, control: &mut Control<'_, B>, index: Index) {
        let Some(slot) = control.protection_zones.get_mut(usize::from(index)) else {
            return;
        };
        if slot.id.is_null() {
            return;
        }
        let (domain, pz) = (slot.domain, slot.id);
        *slot = PzSlot {
            generation: slot.generation,
            ..PzSlot::EMPTY
        };
        control.protection_zones.give_back(pz.handle());
        if let Ok(backend) = control.backend() {
            backend.destroy_domain(domain);
        }
    }

    /// Adds a user to a zone; returns the zone's index.
    ///
    /// # Errors
    /// - INVALID_HANDLE (PZ): `pz` is not a live zone of this adapter.
    pub(crate) fn retain_zone(&self, control: &mut Control<'_, B>, pz: PzId) -> Result<u16> {
        let slot = control.zone(pz)?;
        slot.users = slot.users.saturating_add(1);
        Ok(pz.index() as u16)
    }

    /// Removes a user from a zone.
    pub(crate) fn release_zone(&self, control: &mut Control<'_, B>, index: u16) {
        if let Some(slot) = control.protection_zones.get_mut(usize::from(index)) {
            slot.users = slot.users.saturating_sub(1);
        }
    }

    /// Returns the handle of the zone in a slot.
    pub(crate) fn zone_at(control: &Control<'_, B>, index: u16) -> PzId {
        control
            .protection_zones
            .get(usize::from(index))
            .map_or(PzId::NULL, |slot| slot.id)
    }
}
