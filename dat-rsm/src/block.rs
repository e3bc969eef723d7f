//! Registered memory of the engine.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU8;

use dat_core::Ia;
use dat_core::backend::Backend;
use dat_core::flags::MemoryPrivileges;
use dat_core::id::PzId;
use dat_core::memory::{LmrCreated, LmrMemory, LmrRequest, LmrTriplet};
use dat_core::sync::RawLock;

use crate::borrow;
use crate::error::{Result, RsmError};

/// Bytes on the heap, and their registration.
///
/// Free it, or close its adapter, before it is dropped; the engine drops its adapters before its
/// blocks.
pub(crate) struct Block {
    bytes: Box<[AtomicU8]>,
    made: LmrCreated,
}

impl Block {
    /// Allocates and registers `length` zero bytes.
    pub(crate) fn new<B: Backend, L: RawLock>(
        ia: &Ia<'_, B, L>,
        pz: PzId,
        length: usize,
        privileges: MemoryPrivileges,
    ) -> Result<Self> {
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(length)
            .map_err(|_| RsmError::InsufficientMemory)?;
        bytes.resize_with(length, AtomicU8::default);
        let bytes = bytes.into_boxed_slice();
        let made = ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(borrow::shared(&bytes)),
            pz,
            privileges,
        })?;
        Ok(Self { bytes, made })
    }

    /// Ends the registration and frees the memory.
    pub(crate) fn free<B: Backend, L: RawLock>(self, ia: &Ia<'_, B, L>) {
        if ia.lmr_free(self.made.lmr).is_err() {
            // Fails only if the adapter is closed. The memory is leaked in case the device still
            // writes to it.
            core::mem::forget(self.bytes);
        }
    }

    pub(crate) fn bytes(&self) -> &[AtomicU8] {
        &self.bytes
    }

    pub(crate) fn address(&self) -> u64 {
        self.made.registered_address
    }

    pub(crate) fn remote_key(&self) -> u32 {
        self.made.rmr_context
    }

    pub(crate) fn triplet(&self, offset: usize, length: usize) -> LmrTriplet {
        LmrTriplet {
            context: self.made.lmr_context,
            address: self.made.registered_address.wrapping_add(offset as u64),
            length: length as u64,
        }
    }
}
