//! Parts of a consumer that several targets need.

use std::sync::atomic::{AtomicU8, Ordering};

use dat_core::attributes::{EpAttributes, IaAddress, SrqAttributes};
use dat_core::backend::Backend;
use dat_core::endpoint::ConnectParam;
use dat_core::flags::{
    CloseFlags, CompletionFlags, ConnectFlags, EvdFlags, MemoryPrivileges, QualityOfService,
};
use dat_core::id::{EpId, EvdId, PzId, SrqId};
use dat_core::memory::{LmrCreated, LmrMemory, LmrRequest, Region};
use dat_core::sync::SpinLock;
use dat_core::{Ia, Result};

pub(crate) type Lock = SpinLock;

/// The attributes of shared receive queues.
pub(crate) const SHARED: SrqAttributes = SrqAttributes {
    max_recv_dtos: 8,
    max_recv_iov: 2,
    low_watermark: 0,
};

/// Returns the attributes of endpoints that transfer at most `size` bytes at once.
pub(crate) fn attributes(size: u64) -> EpAttributes {
    EpAttributes {
        max_message_size: size,
        max_rdma_size: size,
        max_request_dtos: 8,
        max_recv_dtos: 8,
        max_request_iov: 2,
        max_recv_iov: 2,
        max_rdma_read_in: 4,
        max_rdma_read_out: 4,
        request_completion_flags: CompletionFlags::empty(),
        ..EpAttributes::DEFAULT
    }
}

/// Creates dispatchers of receives, requests, connections, and of `others`.
pub(crate) fn dispatchers<B: Backend>(
    ia: &Ia<'_, B, Lock>,
    others: EvdFlags,
) -> Result<[EvdId; 4]> {
    Ok([
        ia.evd_create(64, None, EvdFlags::DTO)?,
        ia.evd_create(64, None, EvdFlags::DTO | EvdFlags::RMR_BIND)?,
        ia.evd_create(32, None, EvdFlags::CONNECTION)?,
        ia.evd_create(32, None, others)?,
    ])
}

/// Creates an endpoint on the first three dispatchers, with its own receives or with shared ones.
pub(crate) fn endpoint<B: Backend>(
    ia: &Ia<'_, B, Lock>,
    zone: PzId,
    dispatchers: [EvdId; 4],
    shared: Option<SrqId>,
    attributes: &EpAttributes,
) -> Result<EpId> {
    let (zone, [r, q, c, _]) = (Some(zone), dispatchers.map(Some));
    match shared {
        Some(shared) => ia.ep_create_with_srq(zone, r, q, c, shared, attributes),
        None => ia.ep_create(zone, r, q, c, Some(attributes)),
    }
}

/// Registers a page.
pub(crate) fn register<B: Backend>(
    ia: &Ia<'_, B, Lock>,
    pz: PzId,
    page: &'static [AtomicU8],
    privileges: MemoryPrivileges,
) -> Result<LmrCreated> {
    ia.lmr_create(&LmrRequest {
        memory: LmrMemory::Virtual(Region::from_static(page)),
        pz,
        privileges,
    })
}

/// Returns the address of registered or other static memory.
pub(crate) fn address(page: &'static [AtomicU8]) -> u64 {
    Region::from_static(page).address()
}

/// Returns the parameters of a connection.
pub(crate) const fn connect_to<'d>(
    address: IaAddress,
    qualifier: u64,
    timeout: u32,
    private_data: &'d [u8],
) -> ConnectParam<'d> {
    ConnectParam {
        address,
        qualifier,
        timeout,
        private_data,
        quality: QualityOfService::BEST_EFFORT,
        flags: ConnectFlags::empty(),
    }
}

/// Closes an adapter abruptly.
///
/// # Panics
/// It cannot be closed.
pub(crate) fn close<B: Backend>(ia: Ia<'_, B, Lock>) {
    if let Err(refused) = ia.close(CloseFlags::Abrupt) {
        panic!("{}", refused.error);
    }
}

pub(crate) fn fill(page: &[AtomicU8], byte: u8) {
    for cell in page {
        cell.store(byte, Ordering::Relaxed);
    }
}

pub(crate) fn is_full_of(page: &[AtomicU8], byte: u8) -> bool {
    page.iter().all(|cell| cell.load(Ordering::Relaxed) == byte)
}
