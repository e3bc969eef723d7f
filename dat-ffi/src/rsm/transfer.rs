//! Transfers of single buffers and items.

use std::sync::atomic::AtomicU8;

use dat_core::event::Wait;
use dat_core::sync::{HostLock, load_bytes, store_bytes};
use dat_rsm::{ImportId, Item, Result, Rsm, RsmError};

use super::process::{site_of, with_site};
use super::{Code, code, named};
use crate::adapter::Openable;
use crate::boundary::{Access, Consumer, has_access};
use crate::handles::CHandle;

type Engine<B> = Rsm<'static, B, HostLock>;

/// Bytes of items that are transferred at a time.
const CHUNK: usize = 512;

/// Returns true if the memory of a call can be used.
///
/// `looked_at`: the system is asked, because no device checks the memory.
pub(super) fn usable(
    looked_at: bool,
    memory: Consumer,
    (offset, length): (usize, usize),
    needed: Access,
) -> bool {
    let address = memory.address().wrapping_add(offset);
    !memory.is_null() && (!looked_at || has_access(address, length, needed))
}

/// Finds the reason why a device refused memory, where the device only reports a failure.
pub(super) fn refused(
    error: RsmError,
    memory: Consumer,
    part: (usize, usize),
    needed: Access,
) -> RsmError {
    match error {
        RsmError::InsufficientResources if !usable(true, memory, part, needed) => {
            RsmError::BadAddress
        }
        error => error,
    }
}

/// Returns the memory of a single access that lies within the segment, or the error.
///
/// Memory that the processor itself reads or writes must be looked at, with any controller.
fn buffer<'m, B: Openable, W: Wait>(
    (engine, import, wait): (&Engine<B>, ImportId, &mut W),
    offset: u64,
    memory: &'m Consumer,
    length: Option<usize>,
    needed: Access,
    looked_at: bool,
) -> Result<&'m [AtomicU8]> {
    let segment = engine.import_length(import)?;
    let inside = length.filter(|length| {
        let end = offset.checked_add(*length as u64);
        end.is_some_and(|end| end <= segment)
    });
    if memory.is_null() {
        return Err(RsmError::BadAddress);
    }
    let Some(length) = inside else {
        // All other errors come first, except that of a missing barrier. This transfer has no
        // bytes.
        let result = match needed {
            Access::Write => engine.get_shared(import, offset, &[], wait),
            _ => engine.put_shared(import, offset, &[], wait),
        };
        return Err(match result {
            Ok(()) | Err(RsmError::BarrierUninitialized) => RsmError::BadLength,
            Err(error) => error,
        });
    };
    if !usable(looked_at, *memory, (0, length), needed) {
        return Err(RsmError::BadAddress);
    }
    memory.bytes(0, length).ok_or(RsmError::BadAddress)
}

/// `rsm_memseg_import_put`.
///
/// Spec: RSMGP-01, RSMGP-02, RSMGP-05, RSMGP-07
pub fn put(import: CHandle, offset: i64, source: Consumer, length: usize) -> Code {
    code(|| {
        let import = named(import);
        let opened = site_of(import, RsmError::BadSegmentHandle)?;
        let import = ImportId::from_handle(import);
        // A negative offset lies past every end.
        let offset = offset as u64;
        with_site!(opened, site => site.sleeping(|wait| {
            let parts = (&site.engine, import, &mut *wait);
            let bytes = buffer(parts, offset, &source, Some(length), Access::Read, !site.pins_memory())?;
            let put = site.engine.put_shared(import, offset, bytes, wait);
            put.map_err(|error| refused(error, source, (0, length), Access::Read))
        }))
    })
}

/// `rsm_memseg_import_get`.
///
/// Spec: RSMGP-01, RSMGP-02, RSMGP-05, RSMGP-07
pub fn get(import: CHandle, offset: i64, target: Consumer, length: usize) -> Code {
    code(|| {
        let import = named(import);
        let opened = site_of(import, RsmError::BadSegmentHandle)?;
        let import = ImportId::from_handle(import);
        let offset = offset as u64;
        with_site!(opened, site => site.sleeping(|wait| {
            let parts = (&site.engine, import, &mut *wait);
            let bytes = buffer(parts, offset, &target, Some(length), Access::Write, !site.pins_memory())?;
            let got = site.engine.get_shared(import, offset, bytes, wait);
            got.map_err(|error| refused(error, target, (0, length), Access::Write))
        }))
    })
}

/// Checks that segment offset and memory are aligned for items of `T`.
fn check_alignment<T: Item>(offset: u64, memory: Consumer) -> Result<()> {
    let aligned = offset.is_multiple_of(T::SIZE as u64) && memory.address().is_multiple_of(T::SIZE);
    if aligned || memory.is_null() {
        Ok(())
    } else {
        Err(RsmError::BadMemoryAlignment)
    }
}

/// `rsm_memseg_import_put8` and so on, for the size of `T`.
///
/// Spec: RSMGP-01..04, RSMGP-07
pub fn put_items<T: Item + Default>(
    import: CHandle,
    offset: i64,
    source: Consumer,
    count: u64,
) -> Code {
    code(|| {
        let import = named(import);
        let opened = site_of(import, RsmError::BadSegmentHandle)?;
        let import = ImportId::from_handle(import);
        let offset = offset as u64;
        let length = usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(T::SIZE));
        with_site!(opened, site => site.sleeping(|wait| {
            site.engine.import_state(import)?;
            check_alignment::<T>(offset, source)?;
            let parts = (&site.engine, import, &mut *wait);
            let bytes = buffer(parts, offset, &source, length, Access::Read, true)?;
            if bytes.is_empty() {
                return site.engine.put_items::<T, _>(import, offset, &[], wait);
            }
            let mut position = offset;
            for some in bytes.chunks(CHUNK) {
                let mut chunk = [0; CHUNK];
                load_bytes(some, &mut chunk);
                let mut items = [T::default(); CHUNK];
                let count = some.len() / T::SIZE;
                for (item, bytes) in items.iter_mut().zip(chunk.chunks_exact(T::SIZE)) {
                    *item = T::load(false, bytes);
                }
                let items = items.get(..count).unwrap_or_default();
                site.engine.put_items(import, position, items, wait)?;
                position = position.saturating_add(some.len() as u64);
            }
            Ok(())
        }))
    })
}

/// `rsm_memseg_import_get8` and so on, for the size of `T`.
///
/// Spec: RSMGP-01..04, RSMGP-07
pub fn get_items<T: Item + Default>(
    import: CHandle,
    offset: i64,
    target: Consumer,
    count: u64,
) -> Code {
    code(|| {
        let import = named(import);
        let opened = site_of(import, RsmError::BadSegmentHandle)?;
        let import = ImportId::from_handle(import);
        let offset = offset as u64;
        let length = usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(T::SIZE));
        with_site!(opened, site => site.sleeping(|wait| {
            site.engine.import_state(import)?;
            check_alignment::<T>(offset, target)?;
            let parts = (&site.engine, import, &mut *wait);
            let bytes = buffer(parts, offset, &target, length, Access::Write, true)?;
            if bytes.is_empty() {
                return site.engine.get_items::<T, _>(import, offset, &mut [], wait);
            }
            let mut position = offset;
            for some in bytes.chunks(CHUNK) {
                let mut items = [T::default(); CHUNK];
                let count = some.len() / T::SIZE;
                let items = items.get_mut(..count).unwrap_or_default();
                site.engine.get_items(import, position, items, wait)?;
                let mut chunk = [0; CHUNK];
                for (item, bytes) in items.iter().zip(chunk.chunks_exact_mut(T::SIZE)) {
                    item.store(false, bytes);
                }
                store_bytes(some, &chunk);
                position = position.saturating_add(some.len() as u64);
            }
            Ok(())
        }))
    })
}
