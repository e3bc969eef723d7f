//! An adapter on the mlx5 layout with an idle device; benchmarks write its completions.

use std::cell::Cell;
use std::ops::Deref;
use std::ptr::NonNull;

use backend_mmio::MappedRegisters;
use backend_mmio::defs::mlx5::CompletionKind;
use dat_core::attributes::EpAttributes;
use dat_core::sync::SpinLock;
use mlx5_idle::One;
use mlx5_idle::bed::{Bed, ENTRIES, slots};

/// A connected endpoint, and the objects to post on it.
pub(crate) struct World {
    bed: Bed<One, MappedRegisters, SpinLock>,
    requests: Cell<u16>,
    receives: Cell<u16>,
}

impl Deref for World {
    type Target = Bed<One, MappedRegisters, SpinLock>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.bed
    }
}

/// The blocks of a request with one segment.
const REQUEST_BLOCKS: u16 = 1;

impl World {
    pub(crate) fn new() -> Self {
        let window = NonNull::from(slots(512, || 0_u64)).cast::<u8>();
        // SAFETY: 4 KiB that were leaked and have no other user.
        #[expect(unsafe_code, reason = "the registers are plain memory")]
        let registers = unsafe { MappedRegisters::new(window, 4096) };
        Self {
            bed: Bed::new(registers, 1, &EpAttributes::DEFAULT),
            requests: Cell::new(0),
            receives: Cell::new(0),
        }
    }

    fn complete(&self, kind: CompletionKind, index: u16) {
        let Bed { made, memory, .. } = &self.bed;
        made.complete(memory, ENTRIES, kind, index, 8);
    }

    /// Completes the oldest request with success, as the device would.
    pub(crate) fn complete_request(&self) {
        let index = self.requests.get();
        self.complete(CompletionKind::REQUEST, index);
        self.requests.set(index.wrapping_add(REQUEST_BLOCKS));
    }

    /// Completes the oldest receive, as the device would.
    pub(crate) fn complete_receive(&self) {
        let index = self.receives.get();
        self.complete(CompletionKind::RECEIVE, index);
        self.receives.set(index.wrapping_add(1));
    }
}
