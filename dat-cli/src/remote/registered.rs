//! Memory of `dat-host` whose segments the core's own calls post.

use std::sync::atomic::AtomicU8;

use dat_core::backend::HostBackend;
use dat_core::flags::LmrFields;
use dat_core::memory::LmrTriplet;
use dat_host::{Access, Pages, Zone, ZoneWindow};

use super::host_adapter::Core;
use crate::failure::{During, Result};

/// Registered memory whose segments the core posts.
pub(crate) struct Registered {
    pub(crate) window: ZoneWindow<Pages>,
    context: u32,
}

impl Registered {
    /// Registers `length` bytes, which are 0.
    ///
    /// # Errors
    /// - Operation: a call failed.
    pub(crate) fn new<B: HostBackend>(core: &Core<B>, zone: &Zone, length: usize) -> Result<Self> {
        let pages = Pages::anonymous(length).during("allocating the buffers")?;
        let window = zone.window(pages, Access::READ | Access::WRITE);
        let window = window.map_err(dat_host::Error::from);
        let window = window.during("dat_lmr_create")?;
        let region = core.lmr_query(window.id(), LmrFields::all());
        Ok(Self {
            window,
            context: region.during("dat_lmr_query")?.lmr_context,
        })
    }

    /// Returns a segment; does not check its bounds.
    pub(crate) fn segment(&self, offset: usize, length: usize) -> LmrTriplet {
        LmrTriplet {
            context: self.context,
            address: self.window.remote().address().wrapping_add(offset as u64),
            length: length as u64,
        }
    }

    /// Returns the bytes of a slot; none if it is out of range.
    pub(crate) fn slot(&self, slot: usize, size: usize) -> &[AtomicU8] {
        let rest = self.window.atomics().get(slot * size..);
        rest.and_then(|rest| rest.get(..size)).unwrap_or_default()
    }
}
