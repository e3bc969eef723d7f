//! Barriers in storage of the caller.

use dat_rsm::{BarrierId, BarrierScope, Handle, ImportId, Result, RsmError};

use super::process::{Opened, site_of, with_site};
use super::{Code, check_heap, code, named, to_c};
use crate::boundary::{Access, BarrierStorage, Out};
use crate::handles::CHandle;

/// Mark of storage in which a barrier was made.
const MARK: u16 = 0x5242;

/// Returns the barrier in storage of the caller; finds it in a table, so any contents are safe.
///
/// # Errors
/// - BAD_BARRIER_PTR: the pointer is null, or the storage does not allow the access.
/// - BARRIER_UNINITIALIZED: the storage has no barrier.
fn barrier_in(
    storage: Out<BarrierStorage>,
    needed: Access,
) -> Result<(&'static Opened, BarrierId)> {
    let found = match storage.allows(1, needed) {
        true => storage.get(),
        false => None,
    };
    let found = found.ok_or(RsmError::BadBarrierPointer)?;
    let none = RsmError::BarrierUninitialized;
    if found.mark != MARK {
        return Err(none);
    }
    let barrier = named(found.barrier);
    Ok((site_of(barrier, none)?, BarrierId::from_handle(barrier)))
}

/// `rsm_memseg_import_init_barrier`.
///
/// Spec: RSMBR-01, RSMBR-02, RSMBR-03
pub fn init_barrier(import: CHandle, _kind: u32, storage: Out<BarrierStorage>) -> Code {
    code(|| {
        let segment = named(import);
        let opened = site_of(segment, RsmError::BadSegmentHandle)?;
        let connection = ImportId::from_handle(segment);
        with_site!(opened, site => {
            site.engine.import_state(connection)?;
            if !storage.is_writable() {
                return Err(RsmError::BadBarrierPointer);
            }
            check_heap()?;
            // The default scope covers as much as the widest type.
            let made = site.engine.init_barrier(connection, BarrierScope::default())?;
            storage.offer(BarrierStorage {
                segment: import,
                mark: MARK,
                barrier: to_c(made),
            });
            Ok(())
        })
    })
}

/// `rsm_memseg_import_open_barrier`.
///
/// Spec: RSMBR-04
pub fn open_barrier(storage: Out<BarrierStorage>) -> Code {
    code(|| {
        let (opened, barrier) = barrier_in(storage, Access::Read)?;
        with_site!(opened, site => site.engine.open_barrier(barrier))
    })
}

/// `rsm_memseg_import_order_barrier`.
///
/// Spec: RSMBR-07, RSMBR-11
pub fn order_barrier(storage: Out<BarrierStorage>) -> Code {
    code(|| {
        let (opened, barrier) = barrier_in(storage, Access::Read)?;
        with_site!(opened, site => site.sleeping(|wait| site.engine.order_barrier(barrier, wait)))
    })
}

/// `rsm_memseg_import_close_barrier`.
///
/// Spec: RSMBR-05, RSMBR-11
pub fn close_barrier(storage: Out<BarrierStorage>) -> Code {
    code(|| {
        let (opened, barrier) = barrier_in(storage, Access::Read)?;
        with_site!(opened, site => site.sleeping(|wait| site.engine.close_barrier(barrier, wait)))
    })
}

/// `rsm_memseg_import_destroy_barrier`.
///
/// Spec: RSMBR-10
pub fn destroy_barrier(storage: Out<BarrierStorage>) -> Code {
    code(|| {
        let (opened, barrier) = barrier_in(storage, Access::Write)?;
        with_site!(opened, site => site.engine.destroy_barrier(barrier))?;
        let none = to_c(Handle::NULL);
        storage.offer(BarrierStorage {
            segment: none,
            mark: 0,
            barrier: none,
        });
        Ok(())
    })
}
