//! The posting and polling calls on ring device and mmio queues, and the protocol of RoCEv2, for
//! the panic check.
//!
//! `cargo xtask no-panic` builds this library with the profile `bare` and walks from every
//! `entry_*` function along the relocations. It refuses panics, allocation and calls to anything
//! outside the library.
#![expect(
    unsafe_code,
    reason = "the entries keep their names in the library; nothing links it"
)]

pub mod mmio;
pub mod roce;

use core::task::{Poll, Waker};

use dat_bench::RingDevice;
use dat_core::event::{Event, Waited};
use dat_core::flags::{CompletionFlags, MemoryPrivileges};
use dat_core::id::{EpId, EvdId, RmrId, SrqId};
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::sync::SpinLock;
use dat_core::{Ia, Result};

/// The adapter type that instantiates the calls.
pub type Adapter = Ia<'static, RingDevice, SpinLock>;

/// [`Ia::post_send`].
#[unsafe(no_mangle)]
pub fn entry_post_send(
    ia: &Adapter,
    ep: EpId,
    segments: &[LmrTriplet],
    cookie: u64,
    flags: CompletionFlags,
) -> Result<()> {
    ia.post_send(ep, segments, cookie, flags)
}

/// [`Ia::post_recv`].
#[unsafe(no_mangle)]
pub fn entry_post_recv(
    ia: &Adapter,
    ep: EpId,
    segments: &[LmrTriplet],
    cookie: u64,
    flags: CompletionFlags,
) -> Result<()> {
    ia.post_recv(ep, segments, cookie, flags)
}

/// [`Ia::post_rdma_read`].
#[unsafe(no_mangle)]
pub fn entry_post_rdma_read(
    ia: &Adapter,
    ep: EpId,
    segments: &[LmrTriplet],
    cookie: u64,
    remote: &RmrTriplet,
    flags: CompletionFlags,
) -> Result<()> {
    ia.post_rdma_read(ep, segments, cookie, remote, flags)
}

/// [`Ia::post_rdma_write`].
#[unsafe(no_mangle)]
pub fn entry_post_rdma_write(
    ia: &Adapter,
    ep: EpId,
    segments: &[LmrTriplet],
    cookie: u64,
    remote: &RmrTriplet,
    flags: CompletionFlags,
) -> Result<()> {
    ia.post_rdma_write(ep, segments, cookie, remote, flags)
}

/// [`Ia::srq_post_recv`].
#[unsafe(no_mangle)]
pub fn entry_srq_post_recv(
    ia: &Adapter,
    srq: SrqId,
    segments: &[LmrTriplet],
    cookie: u64,
) -> Result<()> {
    ia.srq_post_recv(srq, segments, cookie)
}

/// [`Ia::rmr_bind`].
#[unsafe(no_mangle)]
pub fn entry_rmr_bind(
    ia: &Adapter,
    rmr: RmrId,
    segment: &LmrTriplet,
    privileges: MemoryPrivileges,
    ep: EpId,
    cookie: u64,
    flags: CompletionFlags,
) -> Result<u32> {
    ia.rmr_bind(rmr, segment, privileges, ep, cookie, flags)
}

/// [`Ia::evd_dequeue`].
#[unsafe(no_mangle)]
pub fn entry_evd_dequeue(ia: &Adapter, evd: EvdId) -> Result<Event> {
    ia.evd_dequeue(evd)
}

/// [`Ia::evd_post_se`].
#[unsafe(no_mangle)]
pub fn entry_evd_post_se(ia: &Adapter, evd: EvdId, pointer: u64) -> Result<()> {
    ia.evd_post_se(evd, pointer)
}

/// [`Ia::evd_wait`], polled once.
#[unsafe(no_mangle)]
pub fn entry_evd_wait(
    ia: &Adapter,
    evd: EvdId,
    threshold: i32,
    waker: &Waker,
) -> Poll<Result<Waited>> {
    match ia.evd_wait(evd, threshold) {
        Ok(mut wait) => wait.poll(waker),
        Err(error) => Poll::Ready(Err(error)),
    }
}
