//! The engine of a node without the type of its backend, and the sleep of its calls.

use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use dat_core::backend::{Backend, SyncDirection};
use dat_core::event::{ThreadWait, Wait, WakeReason};
use dat_core::memory::Region;
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_rsm::{
    AccessEntry, AccessFault, BarrierId, BarrierMode, BarrierScope, ControllerId, ExportFlags,
    ExportId, GetEntry, ImportId, LocalAccess, LocalMemoryId, NodeId, Permission, PutEntry, Rsm,
    RsmError, SegmentHandle, SegmentId, SignalFlags, Unreached, VectorError, VectorFlags,
};
use dat_storage::{Reservation, forks};

use crate::drive::thread_waker;
use crate::flight::{POLL_MICROS, first};
use crate::wake::{Device, DriverWakers};

type Result<T, E = RsmError> = std::result::Result<T, E>;

/// An engine and its storage.
pub(super) struct Owned<B: Backend + 'static> {
    /// Dropped first: fields are dropped in this order. No method gives it away.
    pub(super) rsm: Rsm<'static, B, HostLock>,
    pub(super) _reservation: Reservation<B, HostLock>,
}

/// The engine of a node that a parent of this process opened; refuses every call.
pub(super) struct Inherited;

/// The error of a node that a parent of this process opened.
pub(super) const INHERITED: RsmError = RsmError::BadControllerHandle;

/// The result of a call that [`Inherited`] refuses.
trait Refusal {
    fn refusal() -> Self;
}

impl<T> Refusal for Result<T> {
    fn refusal() -> Self {
        Err(INHERITED)
    }
}

impl<T> Refusal for Option<T> {
    fn refusal() -> Self {
        None
    }
}

/// Declares [`Engine`], and implements it for the engines of all backends.
macro_rules! engine {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
        /// The engine of any backend; each call is that of [`dat_rsm::Rsm`].
        pub(super) trait Engine: Send + Sync {
            $(fn $name(&self, $($argument: $type),*) -> $result;)*

            /// Makes progress until the controller is released.
            fn serve(&self, controller: ControllerId, wait: &mut Sleep) -> Result<()>;

            /// Waits for a signal until a deadline and takes it.
            fn signal_wait(
                &self,
                segment: SegmentHandle,
                deadline: Option<Instant>,
                wait: &mut Sleep,
            ) -> Result<()>;

            fn putv(
                &self,
                import: ImportId,
                entries: &[PutEntry<'_>],
                flags: VectorFlags,
                wait: &mut Sleep,
            ) -> Result<(), VectorError>;

            fn getv(
                &self,
                import: ImportId,
                entries: &mut [GetEntry<'_>],
                flags: VectorFlags,
                wait: &mut Sleep,
            ) -> Result<(), VectorError>;
        }

        impl<B: Backend + 'static> Engine for Owned<B>
        where
            Self: Send + Sync,
        {
            $(
                fn $name(&self, $($argument: $type),*) -> $result {
                    self.rsm.$name($($argument),*)
                }
            )*

            fn serve(&self, controller: ControllerId, wait: &mut Sleep) -> Result<()> {
                self.rsm.serve(controller, wait, || {})
            }

            fn signal_wait(
                &self,
                segment: SegmentHandle,
                deadline: Option<Instant>,
                wait: &mut Sleep,
            ) -> Result<()> {
                self.rsm.signal_wait(segment, deadline, wait)
            }

            fn putv(
                &self,
                import: ImportId,
                entries: &[PutEntry<'_>],
                flags: VectorFlags,
                wait: &mut Sleep,
            ) -> Result<(), VectorError> {
                self.rsm.putv(import, entries, flags, wait)
            }

            fn getv(
                &self,
                import: ImportId,
                entries: &mut [GetEntry<'_>],
                flags: VectorFlags,
                wait: &mut Sleep,
            ) -> Result<(), VectorError> {
                self.rsm.getv(import, entries, flags, wait)
            }
        }

        impl Engine for Inherited {
            $(
                fn $name(&self, $(_: $type),*) -> $result {
                    Refusal::refusal()
                }
            )*

            fn serve(&self, _: ControllerId, _: &mut Sleep) -> Result<()> {
                Refusal::refusal()
            }

            fn signal_wait(
                &self,
                _: SegmentHandle,
                _: Option<Instant>,
                _: &mut Sleep,
            ) -> Result<()> {
                Refusal::refusal()
            }

            fn putv(
                &self,
                _: ImportId,
                entries: &[PutEntry<'_>],
                _: VectorFlags,
                _: &mut Sleep,
            ) -> Result<(), VectorError> {
                Err(all_left(entries.len()))
            }

            fn getv(
                &self,
                _: ImportId,
                entries: &mut [GetEntry<'_>],
                _: VectorFlags,
                _: &mut Sleep,
            ) -> Result<(), VectorError> {
                Err(all_left(entries.len()))
            }
        }
    };
}

engine! {
    fn release_controller(controller: ControllerId, wait: &mut Sleep) -> Result<()>;
    fn export_create(
        controller: ControllerId,
        memory: Region,
        flags: ExportFlags,
    ) -> Result<ExportId>;
    fn export_publish(
        export: ExportId,
        id: SegmentId,
        access: &[AccessEntry],
    ) -> Result<SegmentId>;
    fn access_fault(export: ExportId, access: &[AccessEntry]) -> Option<AccessFault>;
    fn export_unpublish(export: ExportId, wait: &mut Sleep) -> Result<()>;
    fn export_destroy(export: ExportId, wait: &mut Sleep) -> Result<()>;
    fn export_sync(
        export: ExportId,
        direction: SyncDirection,
        offset: u64,
        length: u64,
    ) -> Result<()>;
    fn import_connect(
        controller: ControllerId,
        node: NodeId,
        segment: SegmentId,
        permission: Permission,
        wait: &mut Sleep,
    ) -> Result<ImportId>;
    fn unreached(controller: ControllerId, node: NodeId) -> Option<Unreached>;
    fn import_disconnect(import: ImportId, wait: &mut Sleep) -> Result<()>;
    fn import_length(import: ImportId) -> Result<u64>;
    fn import_map(
        import: ImportId,
        permission: Permission,
        offset: u64,
        length: u64,
    ) -> Result<()>;
    fn import_unmap(import: ImportId) -> Result<()>;
    fn set_mode(import: ImportId, mode: BarrierMode) -> Result<()>;
    fn create_local_memory(
        controller: ControllerId,
        memory: Region,
        access: LocalAccess,
    ) -> Result<LocalMemoryId>;
    fn free_local_memory(
        controller: ControllerId,
        local: LocalMemoryId,
        wait: &mut Sleep,
    ) -> Result<()>;
    fn put(import: ImportId, offset: u64, source: &[u8], wait: &mut Sleep) -> Result<()>;
    fn get(import: ImportId, offset: u64, target: &mut [u8], wait: &mut Sleep) -> Result<()>;
    fn init_barrier(import: ImportId, scope: BarrierScope) -> Result<BarrierId>;
    fn open_barrier(barrier: BarrierId) -> Result<()>;
    fn order_barrier(barrier: BarrierId, wait: &mut Sleep) -> Result<()>;
    fn close_barrier(barrier: BarrierId, wait: &mut Sleep) -> Result<()>;
    fn destroy_barrier(barrier: BarrierId) -> Result<()>;
    fn signal_post(segment: SegmentHandle, flags: SignalFlags, wait: &mut Sleep) -> Result<()>;
    fn signal_take(segment: SegmentHandle) -> Result<bool>;
}

/// Returns the error of a vector of a node that a parent of this process opened.
const fn all_left(count: usize) -> VectorError {
    VectorError {
        error: INHERITED,
        residual: count,
        count,
    }
}

/// Microseconds after which a sleeping call asks again if the program interrupts it.
const TICK: u64 = 200_000;

/// A function that a program lends to a node.
pub(super) type Hook<R> = Arc<dyn Fn() -> R + Send + Sync>;

/// The device of a node, and the wakers of those that wait for its events.
pub(super) struct Sleepers {
    pub(super) device: Box<dyn Device>,
    pub(super) wakers: DriverWakers,
    /// True if events of the device wake the calls.
    pub(super) reports_events: bool,
    /// Called instead of sleeping, if the node polls.
    pub(super) idle: Option<Hook<()>>,
    /// Returns true if the program interrupts its calls.
    pub(super) interrupts: Option<Hook<bool>>,
    /// [`forks::generation`] of the process that opened the node.
    pub(super) process: usize,
}

impl Sleepers {
    /// Returns true if a parent of this process opened the node.
    ///
    /// Its locks may be held for ever, so none is taken.
    pub(super) fn is_inherited(&self) -> bool {
        self.process != forks::generation()
    }
}

/// The reason that interrupts a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupt {
    /// Nothing.
    Never,
    /// The program interrupts its calls.
    Program,
}

/// The sleep of one call on the current thread.
pub(super) struct Sleep {
    sleepers: Arc<Sleepers>,
    waker: Waker,
    interrupt: Interrupt,
}

impl Sleep {
    pub(super) fn new(sleepers: &Arc<Sleepers>, interrupt: Interrupt) -> Self {
        Self {
            sleepers: Arc::clone(sleepers),
            waker: thread_waker(),
            interrupt,
        }
    }

    /// Lets events wake this thread; it must look for events before it sleeps.
    fn enlist(&self) {
        if self.sleepers.idle.is_none() {
            self.sleepers.wakers.add(&self.waker);
        }
    }

    fn is_interrupted(&self) -> bool {
        match self.interrupt {
            Interrupt::Never => false,
            Interrupt::Program => self.sleepers.interrupts.as_ref().is_some_and(|is| is()),
        }
    }

    fn sleep(&self, until: Option<Instant>) -> WakeReason {
        if self.is_interrupted() {
            return WakeReason::Interrupted;
        }
        let now = self.sleepers.device.now();
        let activity = self.sleepers.device.act(now);
        if activity.acted {
            return WakeReason::Woken;
        }
        if until.is_some_and(|until| until <= now) {
            return WakeReason::TimedOut;
        }
        if let Some(idle) = &self.sleepers.idle {
            idle();
            return WakeReason::Woken;
        }
        if self.sleepers.device.before_sleep() {
            return WakeReason::Woken;
        }
        let asks = self.interrupt == Interrupt::Program && self.sleepers.interrupts.is_some();
        let poll = match self.sleepers.reports_events {
            true => asks.then(|| now.as_micros().saturating_add(TICK)),
            false => Some(now.as_micros().saturating_add(POLL_MICROS)),
        };
        let next = first(until, activity.next);
        match first(next, poll.map(Instant::from_micros)) {
            Some(next) => thread::park_timeout(Duration::from_micros(
                next.as_micros().saturating_sub(now.as_micros()),
            )),
            None => thread::park(),
        }
        WakeReason::Woken
    }
}

impl Drop for Sleep {
    /// Performs the actions that the last posts of the call asked for.
    ///
    /// A call that has its outcome does not sleep again, and the other calls may all sleep.
    fn drop(&mut self) {
        if self.sleepers.is_inherited() {
            return;
        }
        let Sleepers {
            device,
            wakers,
            idle,
            ..
        } = &*self.sleepers;
        if idle.is_none() {
            wakers.remove(&self.waker);
        }
        if device.acts_after_posts() && device.act(device.now()).acted {
            wakers.wake_all();
        }
    }
}

impl Wait for Sleep {
    fn now(&mut self) -> Instant {
        match self.sleepers.is_inherited() {
            true => ThreadWait::clock(),
            false => self.sleepers.device.now(),
        }
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn begin(&mut self) {
        self.enlist();
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        let reason = self.sleep(until);
        // The caller looks for events before it sleeps again.
        self.enlist();
        reason
    }
}
