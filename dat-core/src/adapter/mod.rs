//! An open adapter: the backend and the tables of all objects.

mod busy;
mod control;
mod driver;
mod tag;
mod watch;

pub(crate) use busy::busy;
pub(crate) use control::Control;
pub(crate) use driver::Driver;
pub(crate) use tag::InstanceTag;
pub(crate) use watch::Watch;

use crate::backend::Backend;
use crate::id::EvdId;
use crate::shared::Shared;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicWaker};
use crate::sync::{Mutex, RawLock};

/// Maximum control events per call, which bounds its time.
pub(crate) const EVENTS_PER_CALL: usize = 64;

/// An open interface adapter; owns its backend and all objects created from it.
///
/// All calls take `&self`. With a lock that is `Sync` and a backend that is `Send`, any thread may
/// make them. Dropping the adapter closes it abruptly.
///
/// # The calls, in the order in which a program needs them
/// 1. Open: [`open`](Self::open).
/// 2. Make a zone: [`pz_create`](Self::pz_create).
/// 3. Make event dispatchers: [`evd_create`](Self::evd_create), and
///    [`cno_create`](Self::cno_create) to wait for several of them.
/// 4. Register memory: [`lmr_create`](Self::lmr_create).
/// 5. Make endpoints: [`ep_create`](Self::ep_create).
/// 6. Connect: [`ep_connect`](Self::ep_connect) on one side, [`psp_create`](Self::psp_create) and
///    [`cr_accept`](Self::cr_accept) on the other.
/// 7. Post: [`post_recv`](Self::post_recv), [`post_send`](Self::post_send),
///    [`post_rdma_write`](Self::post_rdma_write), [`post_rdma_read`](Self::post_rdma_read), and
///    several at once with [`post_batch`](Self::post_batch).
/// 8. Take completions: [`evd_dequeue`](Self::evd_dequeue), or
///    [`evd_wait_until`](Self::evd_wait_until). Between them, [`progress`](Self::progress) moves
///    connections.
/// 9. Open a part of a region to a peer: [`rmr_create`](Self::rmr_create) and
///    [`rmr_bind`](Self::rmr_bind).
/// 10. Share receives: [`srq_create`](Self::srq_create) and
///     [`srq_post_recv`](Self::srq_post_recv).
/// 11. Query: [`ep_query`](Self::ep_query), [`ia_query`](Self::ia_query) and their like.
/// 12. End: [`ep_disconnect`](Self::ep_disconnect), the calls that free, and
///     [`close`](Self::close).
pub struct Ia<'s, B: Backend, L: RawLock> {
    pub(crate) control: Mutex<L::Control, Control<'s, B>>,
    pub(crate) shared: Shared<'s, B, L>,
    pub(crate) async_evd: EvdId,
    /// Interrupts since the last `take_interrupts`.
    pub(crate) interrupts: AtomicU32,
    /// Waker of a consumer that drives `progress`.
    pub(crate) progress_waker: AtomicWaker,
    /// Selection of the blocking wait that drives `progress`.
    pub(crate) driver: Driver,
    /// Set once the failure of the device is reported.
    pub(crate) catastrophe: AtomicBool,
    /// Set if the end of a connection with shared receives also raises an asynchronous event.
    pub(crate) tells_shared_ends: AtomicBool,
    /// Keeps other open adapters from `shared.instance`.
    pub(crate) tag: InstanceTag,
}
