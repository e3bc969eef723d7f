//! An adapter, its posts, and the checks of its events.

use std::array;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::AtomicU8;
use std::task::{Context, Poll, Waker};

use dat_core::backend::Backend;
use dat_core::endpoint::{BatchOperation, BatchReceive, BatchRequest};
use dat_core::event::{AsyncEventKind, DtoOperation, Event, ExtendedOperation};
use dat_core::flags::{
    CompletionFlags, DtoStatus, EndpointState, EvdFlags, MemoryPrivileges, PspFlags,
};
use dat_core::id::{CrId, EpId, EvdId, PspId, PzId, RmrId, SrqId};
use dat_core::memory::{LmrCreated, LmrTriplet, RmrTriplet};
use dat_core::{ErrorKind, Ia, Result};

use super::{PAIRS, QUALIFIER, SUSPECT};
use crate::consumer::{
    self, Lock, SHARED, address, attributes, close, dispatchers, endpoint, is_full_of, register,
};
use crate::script::argument::*;

const PAGE: usize = 4096;
/// The most bytes of a transfer.
const SIZE: u64 = 1 << 16;
/// The requests of a batch.
const BATCH: usize = 3;

/// Guards, the suspect side's memory, guards, the honest side's memory, guards.
#[repr(align(4096))]
struct Pages([[AtomicU8; PAGE]; 5]);

static PAGES: Pages = Pages([const { [const { AtomicU8::new(0) }; PAGE] }; 5]);
pub(crate) const GUARD_BYTE: u8 = b'G';

/// Fills all pages: guards with their byte, and each side's page with its own byte.
pub(crate) fn fill() {
    for (number, page) in PAGES.0.iter().enumerate() {
        let byte = if number % 2 == 0 {
            GUARD_BYTE
        } else {
            b'0' + number as u8
        };
        consumer::fill(page, byte);
    }
}

/// Checks that no unregistered byte was written.
pub(crate) fn check_guards() {
    for guard in PAGES.0.iter().step_by(2) {
        assert!(is_full_of(guard, GUARD_BYTE), "a guard byte changed");
    }
}

/// Returns the registered page of a side.
pub(crate) fn page(side: usize) -> &'static [AtomicU8] {
    &PAGES.0[1 + 2 * side]
}

/// Returns the page of guards after it.
pub(crate) fn guards(side: usize) -> &'static [AtomicU8] {
    &PAGES.0[2 + 2 * side]
}

dat_core::define_storage! {
    pub(crate) struct Slots<B: Backend> for B, Lock {
        protection_zones: 8,
        local_regions: 8,
        remote_regions: 8,
        event_dispatchers: 8,
        notification_objects: 8,
        endpoints: 4,
        shared_receive_queues: 1,
        public_service_points: 4,
        reserved_service_points: 4,
        connection_requests: 4,
        events: 512,
        records: 256,
    }
}

/// A post; its cookie is its index.
#[derive(Clone, Copy, Debug)]
struct Posted {
    /// The index of the endpoint; `None` for a shared buffer.
    ep: Option<usize>,
    receives: bool,
    binds: bool,
    length: u64,
    /// Set if a success has no event.
    silent: bool,
    /// Set if its endpoint was reset or replaced, which drops its untaken completions.
    forgotten: bool,
    /// Set if it has completed.
    done: bool,
}

/// The endpoint that takes its buffers from the shared receive queue.
const SHARING: usize = 1;

/// An adapter with its objects.
pub(crate) struct Side<'t, B: Backend, const ENDPOINTS: usize = PAIRS> {
    pub(crate) number: usize,
    pub(crate) ia: Ia<'t, B, Lock>,
    pub(crate) zone: PzId,
    memory: LmrCreated,
    /// The dispatchers of receives, requests, connections, and connection requests.
    pub(crate) dispatchers: [EvdId; 4],
    pub(crate) endpoints: [EpId; ENDPOINTS],
    shared: Option<SrqId>,
    window: Option<RmrId>,
    point: PspId,
    posted: Vec<Posted>,
    catastrophes: usize,
    /// Set if a completion may come from any queue that the device selects.
    pub(crate) any_dispatcher: bool,
    /// Set if receives may complete with immediate data.
    pub(crate) numbers: bool,
}

/// The objects of an adapter at the start.
struct Objects<const ENDPOINTS: usize> {
    zone: PzId,
    memory: LmrCreated,
    dispatchers: [EvdId; 4],
    endpoints: [EpId; ENDPOINTS],
    shared: Option<SrqId>,
    window: Option<RmrId>,
    point: PspId,
}

impl<const ENDPOINTS: usize> Objects<ENDPOINTS> {
    fn new<B: Backend>(number: usize, ia: &Ia<'_, B, Lock>, may_lack: bool) -> Result<Self> {
        let zone = ia.pz_create()?;
        let memory = register(ia, zone, page(number), MemoryPrivileges::ALL)?;
        let dispatchers = dispatchers(ia, EvdFlags::CR)?;
        let arrivals = dispatchers[3];
        let point = ia.psp_create(QUALIFIER + number as u64, arrivals, PspFlags::Consumer)?;
        let shared = if number == SUSPECT {
            unless_unsupported(ia.srq_create(zone, &SHARED), may_lack)?
        } else {
            None
        };
        let mut endpoints = [EpId::NULL; ENDPOINTS];
        for (index, ep) in endpoints.iter_mut().enumerate() {
            let shared = shared.filter(|_| index == SHARING);
            *ep = endpoint(ia, zone, dispatchers, shared, &attributes(SIZE))?;
        }
        Ok(Self {
            zone,
            memory,
            dispatchers,
            endpoints,
            shared,
            window: unless_unsupported(ia.rmr_create(zone), may_lack)?,
            point,
        })
    }
}

/// Returns `None` for an object that the layout or the device may lack.
fn unless_unsupported<T>(made: Result<T>, may_lack: bool) -> Result<Option<T>> {
    match made {
        Ok(made) => Ok(Some(made)),
        Err(error) if may_lack || error.kind() == ErrorKind::ModelNotSupported => Ok(None),
        Err(error) => Err(error),
    }
}

impl<'t, B: Backend, const ENDPOINTS: usize> Side<'t, B, ENDPOINTS> {
    /// Creates all objects; returns `None` if a device that `may_lack` something refuses.
    ///
    /// The adapter is closed in that case.
    ///
    /// # Panics
    /// Another device refuses something, or the adapter cannot be closed.
    pub(crate) fn new(number: usize, ia: Ia<'t, B, Lock>, may_lack: bool) -> Option<Self> {
        match Objects::new(number, &ia, may_lack) {
            Ok(objects) => Some(Self {
                number,
                ia,
                zone: objects.zone,
                memory: objects.memory,
                dispatchers: objects.dispatchers,
                endpoints: objects.endpoints,
                shared: objects.shared,
                window: objects.window,
                point: objects.point,
                posted: Vec::new(),
                catastrophes: 0,
                any_dispatcher: false,
                numbers: false,
            }),
            Err(error) => {
                assert!(may_lack, "device {number} refuses: {error}");
                close(ia);
                None
            }
        }
    }

    fn segment(&self, offset: u8, length: u64) -> LmrTriplet {
        LmrTriplet {
            context: self.memory.lmr_context,
            address: address(page(self.number)) + u64::from(offset) * 16,
            length,
        }
    }

    pub(crate) fn remote(&self, offset: u8, length: u64) -> RmrTriplet {
        RmrTriplet {
            context: self.memory.rmr_context,
            address: address(page(self.number)) + u64::from(offset) * 16,
            length,
        }
    }

    /// Posts something; returns its cookie, or `None` if the interface refuses it.
    pub(crate) fn post(
        &mut self,
        to: &RmrTriplet,
        at: u8,
        kind: u8,
        offset: u8,
        length: u8,
        flags: u8,
    ) -> Option<u64> {
        let length = u64::from(length) * 8;
        let ep = usize::from(at >> 1) % ENDPOINTS;
        let endpoint = self.endpoints[ep];
        let cookie = self.posted.len() as u64;
        let single = [self.segment(offset, length)];
        let split = [
            self.segment(offset, length / 2),
            self.segment(offset, length - length / 2),
        ];
        let segments: &[LmrTriplet] = match flags >> 5 {
            0..5 => &single,
            5 => &[],
            _ => &split,
        };
        let length = segments.iter().map(|segment| segment.length).sum();
        let wanted = CompletionFlags::from_bits_truncate(u32::from(flags & 0xB));
        let kind = kind % 8;
        let receives = matches!(kind, RECEIVE | SHARED_RECEIVE | RECEIVES_AT_ONCE);
        let none = CompletionFlags::empty();
        let ia = &self.ia;
        // The number of requests that were posted.
        let mut count = 1;
        let done = match kind {
            SEND => ia.post_send(endpoint, segments, cookie, wanted),
            WRITE => ia.post_rdma_write(endpoint, segments, cookie, to, wanted),
            READ => ia.post_rdma_read(endpoint, segments, cookie, to, wanted),
            RECEIVE => ia.post_recv(endpoint, segments, cookie, none),
            SHARED_RECEIVE => match self.shared {
                Some(shared) => ia.srq_post_recv(shared, segments, cookie),
                None => return None,
            },
            BIND => match self.window {
                Some(window) => {
                    let rights = MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE;
                    let bound = ia.rmr_bind(window, &single[0], rights, endpoint, cookie, wanted);
                    bound.map(drop)
                }
                None => return None,
            },
            WRITES => {
                let operation = BatchOperation::RdmaWrite(*to);
                let requests: [_; BATCH] = std::array::from_fn(|number| BatchRequest {
                    operation,
                    segments,
                    cookie: cookie + number as u64,
                    flags: wanted,
                });
                count = ia
                    .post_batch(endpoint, &requests)
                    .map_or_else(|refused| refused.posted, |()| BATCH);
                Ok(())
            }
            _ => {
                let receives: [_; BATCH] = std::array::from_fn(|number| BatchReceive {
                    segments,
                    cookie: cookie + number as u64,
                    flags: none,
                });
                count = ia
                    .post_recv_batch(endpoint, &receives)
                    .map_or_else(|refused| refused.posted, |()| BATCH);
                Ok(())
            }
        };
        if done.is_err() {
            return None;
        }
        for _ in 0..count {
            self.posted.push(Posted {
                ep: (kind != SHARED_RECEIVE).then_some(ep),
                receives,
                binds: kind == BIND,
                length,
                silent: !receives && wanted.contains(CompletionFlags::SUPPRESS),
                forgotten: false,
                done: false,
            });
        }
        Some(cookie)
    }

    /// Returns the post with a cookie, at its first completion on an endpoint.
    fn completed(
        &mut self,
        from: usize,
        cookie: u64,
        receives: bool,
        ep: EpId,
        event: Event,
    ) -> Posted {
        let posted = self.posted.get_mut(cookie as usize);
        let posted = posted.unwrap_or_else(|| panic!("never posted: {event:?}"));
        assert!(!posted.done, "twice: {event:?}");
        posted.done = true;
        assert_eq!(
            (posted.receives, posted.binds),
            (receives, false),
            "{event:?}"
        );
        let own = usize::from(!receives);
        assert!(from == own || self.any_dispatcher, "{event:?} from {from}");
        let sharing = posted.ep.unwrap_or(SHARING);
        assert_eq!(ep, self.endpoints[sharing], "{event:?}");
        *posted
    }

    /// Checks an event; returns a connection request.
    pub(crate) fn taken(&mut self, from: usize, event: Event) -> Option<CrId> {
        match event {
            Event::Dto(done) => {
                let receives = done.operation == DtoOperation::Receive;
                let posted = self.completed(from, done.cookie, receives, done.ep, event);
                if done.status == DtoStatus::Success {
                    assert!(done.transferred_length <= posted.length, "{done:?}");
                    assert!(!posted.silent, "{done:?}");
                }
            }
            // No post asks for immediate data, but a device may report it for a receive.
            Event::Extended(done) if self.numbers => {
                let ExtendedOperation::ReceiveImmediate { immediate } = done.operation else {
                    panic!("nobody asked for {done:?}");
                };
                self.completed(from, done.cookie, true, done.ep, event);
                // The length is unchecked, because immediate data does not touch the buffer. The
                // device repeats the length as the immediate data.
                if done.status == DtoStatus::Success {
                    assert_eq!(done.transferred_length, immediate.into(), "{done:?}");
                }
            }
            Event::RmrBind(done) => {
                let posted = self.posted.get_mut(done.cookie as usize);
                let posted = posted.unwrap_or_else(|| panic!("never posted: {done:?}"));
                assert!(!posted.done && posted.binds, "{done:?}");
                posted.done = true;
            }
            Event::Async {
                kind: AsyncEventKind::IaCatastrophic,
                ..
            } => {
                self.catastrophes += 1;
                assert_eq!(self.catastrophes, 1, "told twice");
                assert_eq!(self.number, SUSPECT, "the honest device is given up");
            }
            Event::ConnectionRequest { cr, .. } => return Some(cr),
            Event::Connection { .. } | Event::Async { .. } => {}
            other => panic!("nobody asked for {other:?}"),
        }
        None
    }

    /// Dequeues an event.
    pub(crate) fn next(&self, from: usize) -> Result<Event> {
        self.ia.evd_dequeue(self.dispatchers[from])
    }

    pub(crate) fn take(&mut self, from: usize) {
        while let Ok(event) = self.next(from) {
            let arrived = self.taken(from, event);
            assert!(arrived.is_none());
        }
    }

    /// Polls a wait once, in one of three ways.
    pub(crate) fn wait(&mut self, from: usize, threshold: u8) {
        let evd = self.dispatchers[from];
        let (how, threshold) = (threshold >> 6, i32::from(threshold & 0x3F));
        let taken = match how {
            1 => self.ia.evd_wait_now(evd, threshold),
            _ => self.ia.evd_wait(evd, threshold).ok().and_then(|mut wait| {
                let polled = match how {
                    2 => pin!(wait).poll(&mut Context::from_waker(Waker::noop())),
                    _ => wait.poll(Waker::noop()),
                };
                match polled {
                    Poll::Ready(waited) => waited.ok(),
                    Poll::Pending => None,
                }
            }),
        };
        if let Some(waited) = taken {
            self.taken(from, waited.event);
        }
    }

    /// Resets an endpoint.
    pub(crate) fn reset(&mut self, pair: usize) -> Result<()> {
        self.ia.ep_reset(self.endpoints[pair])?;
        self.forget(pair);
        Ok(())
    }

    /// Frees an endpoint, and creates one like it at its index.
    pub(crate) fn replace(&mut self, index: usize) {
        let ia = &self.ia;
        ia.ep_free(self.endpoints[index]).expect("an endpoint");
        let shared = self.shared.filter(|_| index == SHARING);
        let made = endpoint(ia, self.zone, self.dispatchers, shared, &attributes(SIZE));
        self.endpoints[index] = made.expect("another endpoint");
        self.forget(index);
    }

    /// Notes that an endpoint has dropped its completions that were not taken.
    fn forget(&mut self, index: usize) {
        for posted in &mut self.posted {
            posted.forgotten |= posted.ep == Some(index);
        }
    }

    /// Creates an object or queries the device, without need for the run.
    pub(crate) fn make(&mut self, kind: u8) {
        let ia = &self.ia;
        let _refused = match kind % 7 {
            0 => ia
                .evd_create(8, None, EvdFlags::DTO)
                .and_then(|evd| ia.evd_free(evd)),
            1 => ia.pz_create().and_then(|zone| ia.pz_free(zone)),
            2 => {
                let [r, q, c, _] = self.dispatchers.map(Some);
                let made = ia.ep_create(Some(self.zone), r, q, c, None);
                made.and_then(|ep| ia.ep_free(ep))
            }
            3 => register(
                ia,
                self.zone,
                page(self.number),
                MemoryPrivileges::LOCAL_READ,
            )
            .and_then(|made| ia.lmr_free(made.lmr)),
            4 => ia.evd_resize(self.dispatchers[usize::from(kind >> 4) % 2], 96),
            5 => match self.shared {
                Some(shared) => ia.srq_set_lw(shared, 2),
                None => Ok(()),
            },
            _ => ia
                .rmr_create(self.zone)
                .and_then(|window| ia.rmr_free(window)),
        };
    }

    /// Checks the remaining events, frees all objects and closes the adapter.
    ///
    /// If the device was `caught`, the failure was reported. If it did its part (`all_done`), every
    /// post has completed.
    pub(crate) fn end(mut self, caught: bool, all_done: bool) {
        for from in 0..3 {
            self.take(from);
        }
        let async_evd = self.ia.async_evd();
        while let Ok(event) = self.ia.evd_dequeue(async_evd) {
            self.taken(4, event);
        }
        if all_done {
            // Receives stay posted on an endpoint that was not connected since.
            let is_over = |ep: usize| {
                let status = self.ia.ep_get_status(self.endpoints[ep]);
                status.expect("an endpoint").state == EndpointState::Disconnected
            };
            let over: [bool; ENDPOINTS] = array::from_fn(is_over);
            for posted in &self.posted {
                let waits =
                    posted.ep.is_none_or(|ep| !over[ep]) || posted.silent || posted.forgotten;
                assert!(
                    posted.done || waits,
                    "lost on side {}: {posted:?}",
                    self.number
                );
            }
        }
        assert!(!caught || self.catastrophes == 1, "nobody was told");
        let ia = self.ia;
        for ep in self.endpoints {
            ia.ep_free(ep).expect("an endpoint");
        }
        if let Some(shared) = self.shared {
            ia.srq_free(shared).expect("a shared queue");
        }
        if let Some(window) = self.window {
            ia.rmr_free(window).expect("a window");
        }
        ia.lmr_free(self.memory.lmr).expect("a region");
        ia.psp_free(self.point).expect("a service point");
        for evd in self.dispatchers {
            while ia.evd_dequeue(evd).is_ok() {}
            ia.evd_free(evd).expect("a dispatcher");
        }
        ia.pz_free(self.zone).expect("a zone");
        close(ia);
    }
}
