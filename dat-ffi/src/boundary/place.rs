//! Objects by the addresses of their slots, for posts and dequeues.
//!
//! # Why a call needs no count of the calls in its adapter
//!
//! A place has the address of a slot of the core, the handle of the object in it, and the address
//! of its adapter. It may be out of date: the object is freed, the adapter is closed, the cell has
//! another object by now, all while a call reads it. Four rules make its use sound:
//!
//! 1. Slots that a place names stay: the tables of a [`Kept`] adapter are never unmapped, and the
//!    next adapter with them goes on with the same slots. A slot is changed under its lock only.
//! 2. The low bits of a slot's address say which type the slot has, so one load tells both.
//! 3. A call locks the slot, and the core compares the object there with the handle. If they are
//!    the same, the object is live, and it stays so until the call unlocks. Only the holder of the
//!    lock ends an object, and no handle is given twice while a cell has it.
//! 4. An adapter is dropped after `Ia::shut`, which ends all of its objects. So an adapter with a
//!    live object stays until the slot is unlocked.
//!
//! The address of the adapter is read under the lock, after the comparison, and is that of the live
//! object's adapter. It is not older, since it is stored before the handle that was read (release
//! and acquire). It is not newer: a cell gets another object after the former one has ended, which
//! happens under the lock, and that comes after this call has unlocked. It is null if the cell was
//! given to an object without an address ([`Placed::nowhere`]) that has the slot of the former one.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use dat_core::endpoint::{EndpointSlot, SrqSlot};
use dat_core::event::{DtoCompletion, DtoOperation, EvdSlot};
use dat_core::flags::{CloseFlags, CompletionFlags, HandleKind};
use dat_core::id::{EpId, EvdId, Handle, SrqId};
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::sync::HostLock;
use dat_core::{First, Ia, Result};
use dat_storage::{Limits, OwnedIa, Zeroed};

use super::{Entered, PerProcess};
use crate::adapter::{Adapter, Openable, with_device};
use crate::handles::{Cell, Cells};

type StaticIa<B> = Ia<'static, B, HostLock>;
type EndpointOf<B> = EndpointSlot<
    <B as dat_core::backend::Backend>::SendQueue,
    <B as dat_core::backend::Backend>::ReceiveQueue,
    HostLock,
>;
type EvdOf<B> = EvdSlot<<B as dat_core::backend::Backend>::CompletionQueue, HostLock>;
type SrqOf<B> = SrqSlot<<B as dat_core::backend::Backend>::SharedReceiveQueue, HostLock>;

/// A backend with a number of its own.
///
/// # Safety
/// No other backend has this number, which is below [`ENDPOINT`].
pub(crate) unsafe trait Numbered {
    const NUMBER: usize;
}

/// Implements [`Numbered`] for each backend.
macro_rules! number {
    ({} $($name:ident = $type:ty,)+) => {
        /// The number of each backend.
        #[repr(usize)]
        enum Number {
            $($name,)+
        }

        $(
            const _: () = assert!((Number::$name as usize) < ENDPOINT);

            // SAFETY: each variant has a value of its own, which is compared above.
            unsafe impl Numbered for $type {
                const NUMBER: usize = Number::$name as usize;
            }
        )+
    };
}
dat_devices::backends! { [number] {} }

/// The type of a slot, in the low bits of its address: one of these, and the number of the backend.
const ENDPOINT: usize = 4;
const EVD: usize = 8;
const SRQ: usize = 12;
/// Alignment of slots, at least.
const ALIGNMENT: usize = 16;

/// The adapters of a backend that are shut, for the next ones that are opened.
pub(crate) type Shut<B> = PerProcess<Mutex<Vec<OwnedIa<B, HostLock>>>>;

/// An adapter of the core whose slots stay where they are as long as the process.
///
/// Dropping it shuts the adapter and keeps its tables for the next one.
#[derive(Debug)]
pub(crate) struct Kept<B: Openable>(ManuallyDrop<OwnedIa<B, HostLock>>);

impl<B: Openable> Kept<B> {
    /// Opens an adapter, with the tables of one that is shut if there is one.
    ///
    /// # Errors
    /// Those of `OwnedIa::open`.
    pub(crate) fn open(backend: B, async_evd_min_qlen: i32) -> Result<Self> {
        let shut = shut::<B>().pop();
        let Some(ia) = shut else {
            let ia = OwnedIa::open(backend, &Limits::default(), async_evd_min_qlen);
            return Ok(Self(ManuallyDrop::new(
                ia.map_err(|refused| refused.error)?,
            )));
        };
        let mut kept = Self(ManuallyDrop::new(ia));
        match OwnedIa::reopen(&mut kept.0, backend, async_evd_min_qlen) {
            Ok(()) => Ok(kept),
            Err(refused) => Err(refused.error),
        }
    }

    /// Returns the sizes up to which the tables grow.
    pub(crate) fn limits(&self) -> Limits {
        *OwnedIa::limits(&self.0)
    }

    /// Returns the address of an object's slot with its type; null if no call uses the address.
    fn slot_of(&self, object: Handle) -> *mut () {
        fn address<T>(slot: Option<&T>, kind: usize, backend: usize) -> *mut () {
            const { assert!(align_of::<T>() >= ALIGNMENT) };
            slot.map_or(ptr::null_mut(), |slot| {
                let address = ptr::from_ref(slot).cast_mut().cast::<()>();
                address.map_addr(|address| address | kind | backend)
            })
        }
        let backend = B::NUMBER;
        match object.kind() {
            Some(HandleKind::Ep) => {
                let slot = self.slot_of_endpoint(EpId::from_handle(object));
                address(slot, ENDPOINT, backend)
            }
            Some(HandleKind::Evd) => {
                address(self.slot_of_evd(EvdId::from_handle(object)), EVD, backend)
            }
            Some(HandleKind::Srq) => {
                address(self.slot_of_srq(SrqId::from_handle(object)), SRQ, backend)
            }
            _ => ptr::null_mut(),
        }
    }
}

fn shut<B: Openable>() -> std::sync::MutexGuard<'static, Vec<OwnedIa<B, HostLock>>> {
    let shut = B::shut().this().lock();
    shut.unwrap_or_else(PoisonError::into_inner)
}

impl<B: Openable> Deref for Kept<B> {
    type Target = StaticIa<B>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<B: Openable> Drop for Kept<B> {
    fn drop(&mut self) {
        // Fails if it was shut before, as a rule.
        let _shut_before = self.0.shut(CloseFlags::Abrupt);
        // SAFETY: it is taken once, as this value is dropped.
        let ia = unsafe { ManuallyDrop::take(&mut self.0) };
        shut::<B>().push(ia);
    }
}

/// An object, and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    object: Handle,
    /// Null if no call uses the address.
    slot: *mut (),
    /// Null if `slot` is.
    adapter: *mut Adapter,
}

impl Placed {
    /// Returns an object by its handle only.
    pub(crate) const fn nowhere(object: Handle) -> Self {
        Self {
            object,
            slot: ptr::null_mut(),
            adapter: ptr::null_mut(),
        }
    }

    /// Returns an object of an adapter.
    pub(crate) fn of(adapter: &Entered<'static, Adapter>, object: Handle) -> Self {
        Self {
            object,
            slot: with_device!(adapter, opened => opened.ia.slot_of(object)),
            adapter: adapter.address(),
        }
    }

    /// Returns the handle of the object.
    pub(crate) const fn object(&self) -> Handle {
        self.object
    }
}

// SAFETY: it has atomic integers and pointers, which may all be zero.
unsafe impl Zeroed for Cell {}

/// A word that leads to a cell, or to none if it is zero.
#[derive(Debug)]
pub(crate) struct ToCell(AtomicPtr<Cell>);

// SAFETY: it is an address, and null is a value.
unsafe impl Zeroed for ToCell {}

impl ToCell {
    /// Returns the cell.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static Cell> {
        // SAFETY: it is null, or `set` stored a reference for ever.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Changes the cell; returns the former one.
    pub(crate) fn set(&self, cell: Option<&'static Cell>) -> Option<&'static Cell> {
        let cell = cell.map_or(ptr::null_mut(), |cell| ptr::from_ref(cell).cast_mut());
        let former = self.0.swap(cell, Ordering::AcqRel);
        // SAFETY: as in `get`.
        unsafe { former.as_ref() }
    }
}

/// The object of a cell or else the former one, and where it is; all zero at first.
#[derive(Debug)]
pub(crate) struct Place {
    object: AtomicU64,
    /// Address of the slot with its type, or null.
    slot: AtomicPtr<()>,
    adapter: AtomicPtr<Adapter>,
}

impl Place {
    /// Replaces an object that has ended.
    pub(crate) fn set(&self, placed: Placed) {
        self.adapter.store(placed.adapter, Ordering::Relaxed);
        self.object.store(placed.object.to_raw(), Ordering::Release);
        self.slot.store(placed.slot, Ordering::Release);
    }

    /// Forgets where the object is, in a forked process: its slot is the parent's.
    pub(crate) fn abandon(&self) {
        // Most cells have none: their pages stay shared with the parent.
        if !self.slot.load(Ordering::Relaxed).is_null() {
            self.slot.store(ptr::null_mut(), Ordering::Relaxed);
        }
    }

    /// Returns the word with the handle of the object.
    #[inline]
    pub(crate) const fn object(&self) -> &AtomicU64 {
        &self.object
    }

    /// Returns true if the object has an address, and is of this backend.
    pub(crate) fn is_of<B: Openable>(&self) -> bool {
        let kind = self.slot.load(Ordering::Relaxed).addr() % ALIGNMENT;
        kind >= ENDPOINT && kind % ENDPOINT == B::NUMBER
    }

    /// Returns the slot of an object and its handle, which is not null; `None` for another kind.
    ///
    /// # Safety
    /// `T` is the type of slots of `kind`, which includes the backend.
    #[inline(always)]
    unsafe fn find<T>(&self, kind: usize) -> Option<(&'static T, Handle)> {
        let slot = self.slot.load(Ordering::Acquire);
        if slot.addr() % ALIGNMENT != kind {
            return None;
        }
        let object = Handle::from_raw(self.object.load(Ordering::Acquire));
        // SAFETY: `slot_of` stored the address of a slot of this type, by rule 2, and added `kind`.
        // By rule 1 the slot is there, and shared access is all that anybody has.
        Some((unsafe { &*slot.byte_sub(kind).cast::<T>() }, object))
    }

    /// Returns the adapter of an object.
    ///
    /// # Safety
    /// The caller has the lock of the object's slot, and the slot holds the object that `find`
    /// returned for this backend. It uses the result only as long as it has the lock.
    #[inline(always)]
    unsafe fn adapter<'a, B: Openable>(&self) -> Option<(&'a StaticIa<B>, &'a Cells)> {
        // SAFETY: it is null, or by rule 4, and since the address is that of the object's adapter,
        // as the head of this file shows.
        let adapter: &'a Adapter = unsafe { self.adapter.load(Ordering::Relaxed).as_ref()? };
        Some((&B::of(adapter)?.ia, &adapter.cells))
    }

    /// Posts a request with one segment to an endpoint; `None` if nothing was posted.
    ///
    /// `arguments` is called under the lock, late, since its results fill many registers.
    #[inline(always)]
    pub(crate) fn post<B: Openable>(
        &self,
        operation: DtoOperation,
        cookie: u64,
        flags: CompletionFlags,
        arguments: impl FnOnce() -> Option<(LmrTriplet, RmrTriplet)>,
    ) -> Option<Result<()>> {
        // SAFETY: it is the type.
        let (slot, object) = unsafe { self.find::<EndpointOf<B>>(ENDPOINT | B::NUMBER)? };
        let ep = EpId::from_handle(object);
        StaticIa::<B>::post_at(slot, ep, operation, cookie, flags, || {
            let (segment, remote) = arguments()?;
            // SAFETY: this is called under the lock, while the slot holds the object.
            Some((unsafe { self.adapter::<B>()?.0 }, segment, remote))
        })
    }

    /// Posts a receive with one segment to an endpoint, as `post`.
    #[inline(always)]
    pub(crate) fn receive<B: Openable>(
        &self,
        cookie: u64,
        flags: CompletionFlags,
        argument: impl FnOnce() -> Option<LmrTriplet>,
    ) -> Option<Result<()>> {
        // SAFETY: it is the type.
        let (slot, object) = unsafe { self.find::<EndpointOf<B>>(ENDPOINT | B::NUMBER)? };
        StaticIa::<B>::post_recv_at(slot, EpId::from_handle(object), cookie, flags, || {
            let segment = argument()?;
            // SAFETY: this is called under a lock without which no endpoint ends, while the slot
            // holds the object.
            Some((unsafe { self.adapter::<B>()?.0 }, segment))
        })
    }

    /// Posts a buffer of one segment to a shared queue, as `post`.
    #[inline(always)]
    pub(crate) fn receive_shared<B: Openable>(
        &self,
        cookie: u64,
        argument: impl FnOnce() -> Option<LmrTriplet>,
    ) -> Option<Result<()>> {
        // SAFETY: it is the type.
        let (slot, object) = unsafe { self.find::<SrqOf<B>>(SRQ | B::NUMBER)? };
        StaticIa::<B>::srq_post_recv_at(slot, SrqId::from_handle(object), cookie, || {
            let segment = argument()?;
            // SAFETY: this is called under the lock, while the slot holds the object.
            Some((unsafe { self.adapter::<B>()?.0 }, segment))
        })
    }

    /// Takes the first event of a dispatcher if it is a successful plain transfer.
    ///
    /// `convert` is called under the dispatcher's lock. `None` if the dispatcher may have another
    /// event, or is gone.
    #[inline(always)]
    pub(crate) fn dequeue<B: Openable, T>(
        &self,
        convert: impl FnOnce(&Cells, &DtoCompletion) -> T,
    ) -> Option<First<T>> {
        // SAFETY: it is the type.
        let (slot, object) = unsafe { self.find::<EvdOf<B>>(EVD | B::NUMBER)? };
        // SAFETY: it is called under the lock, while the slot holds the object.
        let adapter = || unsafe { self.adapter::<B>() };
        let evd = EvdId::from_handle(object);
        StaticIa::<B>::evd_dequeue_at(slot, evd, adapter, convert)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::thread;
    use std::time::{Duration, Instant};

    use dat_core::flags::EvdFlags;

    use super::*;
    use crate::adapter::Registered;
    use crate::boundary::{Event, List, Out, ShortTriplet};
    use crate::calls::{evd, post};
    use crate::handles::CHandle;
    use crate::v2::V2;
    use dat_devices::{DeviceAddress, MockBackend};

    const ROUNDS: usize = 400;
    /// `DAT_INVALID_HANDLE`, the type of it.
    const INVALID_HANDLE: u32 = 0x5;

    fn open(name: &std::ffi::CStr) -> Entered<'static, Adapter> {
        let registered = Registered {
            major: 2,
            minor: 0,
            is_thread_safe: true,
            provider: 64,
        };
        Adapter::open(&DeviceAddress::new("mock", "9"), name, registered, false, 8).expect("opens")
    }

    /// Makes an endpoint and its dispatcher, and returns their handles.
    fn objects(adapter: &Entered<'static, Adapter>) -> (CHandle, CHandle) {
        let (ep, evd) = with_device!(adapter, opened => {
            let pz = opened.ia.pz_create().expect("a zone");
            let evd = opened.ia.evd_create(8, None, EvdFlags::DTO).expect("a dispatcher");
            let ep = opened.ia.ep_create(Some(pz), Some(evd), Some(evd), None, None);
            (ep.expect("an endpoint"), evd)
        });
        let publish = |kind, object| {
            let cell = adapter.cells.reserve(kind).expect("a cell");
            Adapter::publish(adapter, cell, object)
        };
        let ep = publish(HandleKind::Ep, ep.into());
        (ep, publish(HandleKind::Evd, evd.into()))
    }

    /// Posts a receive whose region is unknown, and dequeues; returns the codes.
    fn call(ep: CHandle, evd: CHandle) -> [u32; 2] {
        let segment = [0_u64; 2];
        let mut event = Event::<V2>::zeroed();
        [
            post::receive::<V2, MockBackend>(
                ep,
                1,
                List::<ShortTriplet>::at(segment.as_ptr().cast()),
                0,
                0,
            ),
            evd::dequeue::<V2, MockBackend>(evd, Out::to(&raw mut event)),
        ]
    }

    fn is_invalid(code: u32) -> bool {
        code >> 16 & 0x3FFF == INVALID_HANDLE
    }

    /// Spec: GEN-03, IAC-01
    #[test]
    fn slots_of_a_closed_adapter_hold_no_object_of_its_handles() {
        let adapter = open(c"first");
        let (ep, evd) = objects(&adapter);
        assert!(call(ep, evd).iter().all(|code| !is_invalid(*code)));
        Adapter::close(&adapter, CloseFlags::Abrupt).expect("closes");
        drop(adapter);
        assert!(call(ep, evd).iter().all(|code| is_invalid(*code)));
        // The next adapter may have the tables of the first.
        let adapter = open(c"second");
        let (next_ep, next_evd) = objects(&adapter);
        assert!(call(ep, evd).iter().all(|code| is_invalid(*code)));
        assert!(
            call(next_ep, next_evd)
                .iter()
                .all(|code| !is_invalid(*code))
        );
        Adapter::close(&adapter, CloseFlags::Abrupt).expect("closes");
    }

    /// Rule 3: the adapter of an object that has ended is not asked for, since it may be gone.
    #[test]
    fn the_adapter_of_an_ended_object_is_not_used() {
        type Mock = StaticIa<MockBackend>;
        let adapter = open(c"ended");
        let (ep, evd) = objects(&adapter);
        let (ep, evd) = (
            EpId::from_handle(ep.named()),
            EvdId::from_handle(evd.named()),
        );
        let opened = MockBackend::of(&adapter).expect("a mock");
        let endpoint = opened.ia.slot_of_endpoint(ep).expect("its slot");
        let dispatcher = opened.ia.slot_of_evd(evd).expect("its slot");
        let asked = |post: &dyn Fn(&AtomicBool)| {
            let asked = AtomicBool::new(false);
            post(&asked);
            asked.into_inner()
        };
        let receive = |asked: &AtomicBool| {
            let none = CompletionFlags::empty();
            let posted = Mock::post_recv_at(endpoint, ep, 0, none, || {
                asked.store(true, Ordering::Relaxed);
                None
            });
            assert!(posted.is_none());
        };
        let send = |asked: &AtomicBool| {
            let none = CompletionFlags::empty();
            let posted = Mock::post_at(endpoint, ep, DtoOperation::Send, 0, none, || {
                asked.store(true, Ordering::Relaxed);
                None
            });
            assert!(posted.is_none());
        };
        let dequeue = |asked: &AtomicBool| {
            let find = || {
                asked.store(true, Ordering::Relaxed);
                None::<(&Mock, ())>
            };
            assert!(Mock::evd_dequeue_at(dispatcher, evd, find, |(), _| ()).is_none());
        };
        // The endpoint is not connected.
        let calls: [&dyn Fn(&AtomicBool); 3] = [&receive, &dequeue, &send];
        assert_eq!(calls.map(asked), [true, true, false]);
        opened.ia.ep_free(ep).expect("is freed");
        opened.ia.evd_free(evd).expect("is freed");
        assert_eq!(calls.map(asked), [false; 3]);
        objects(&adapter);
        assert_eq!(calls.map(asked), [false; 3]);
        Adapter::close(&adapter, CloseFlags::Abrupt).expect("closes");
    }

    /// Objects of other types are not taken for endpoints and dispatchers.
    ///
    /// Spec: GEN-03
    #[test]
    fn a_handle_of_another_kind_is_invalid() {
        let adapter = open(c"kinds");
        let (ep, evd) = objects(&adapter);
        assert!(call(evd, ep).iter().all(|code| is_invalid(*code)));
        assert!(
            call(adapter.handle, adapter.handle)
                .iter()
                .all(|code| is_invalid(*code))
        );
        Adapter::close(&adapter, CloseFlags::Abrupt).expect("closes");
    }

    /// Threads post and dequeue while their adapter is closed and another takes its tables.
    ///
    /// The test crashes if the tables of a closed adapter are unmapped.
    ///
    /// Spec: GEN-03, IAC-01
    #[test]
    fn calls_meet_closes() {
        let handles = [const { AtomicUsize::new(0) }; 2];
        let done = AtomicBool::new(false);
        let valid = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let [ep, evd] = handles
                            .each_ref()
                            .map(|handle| CHandle::from_address(handle.load(Ordering::Relaxed)));
                        let codes = call(ep, evd);
                        let fine = codes.iter().filter(|code| !is_invalid(**code));
                        valid.fetch_add(fine.count(), Ordering::Relaxed);
                    }
                });
            }
            // On a busy machine the threads may start late.
            let end = Instant::now() + Duration::from_secs(60);
            let is_idle = || valid.load(Ordering::Relaxed) == 0 && Instant::now() < end;
            let mut rounds = 0;
            while rounds < ROUNDS || is_idle() {
                rounds += 1;
                let adapter = open(c"closed");
                let (ep, evd) = objects(&adapter);
                let [for_ep, for_evd] = &handles;
                for_ep.store(ep.address(), Ordering::Relaxed);
                for_evd.store(evd.address(), Ordering::Relaxed);
                thread::yield_now();
                Adapter::close(&adapter, CloseFlags::Abrupt).expect("closes");
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(valid.load(Ordering::Relaxed) > 0);
    }
}
