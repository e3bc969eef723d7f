//! Scenes of the two endpoints.

use core::cell::Cell;
use core::sync::atomic::{AtomicU8, Ordering};
use core::task::Waker;

use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::endpoint::ConnectParam;
use dat_core::error::Cause;
use dat_core::event::{Event, Wait, WakeReason};
use dat_core::flags::{
    CloseFlags, CompletionFlags, ConnectFlags, DtoStatus, EvdFlags, MemoryPrivileges, PspFlags,
    QualityOfService, TIMEOUT_INFINITE,
};
use dat_core::id::{CrId, EpId, EvdId};
use dat_core::memory::{LmrCreated, LmrMemory, LmrRequest, LmrTriplet, Region};
use dat_core::sync::NoLock;
use dat_core::time::Instant;
use dat_core::{Error, Ia, Result};
use static_cell::StaticCell;

use crate::platform::{self, Backend, DISPATCHERS, PAIRS};
use backend_mmio::pvrdma::MessageWords;

dat_core::define_storage! {
    struct Storage for Backend, NoLock {
        protection_zones: 4,
        local_regions: 4,
        remote_regions: 4,
        event_dispatchers: DISPATCHERS,
        notification_objects: DISPATCHERS,
        endpoints: PAIRS,
        shared_receive_queues: 0,
        public_service_points: PAIRS,
        reserved_service_points: PAIRS,
        connection_requests: PAIRS,
        events: 256,
        records: 64,
    }
}

static STORAGE: StaticCell<Storage> = StaticCell::new();

/// Consumer memory, more than a page, so that the region's page list has two.
///
/// It starts at a page: QEMU's device refuses a region that spans more pages than its length
/// requires.
#[repr(align(4096))]
struct Bytes([AtomicU8; 8192]);

static BYTES: Bytes = Bytes([const { AtomicU8::new(0) }; 8192]);
/// Offsets of sent and received messages; the received ones cross the end of a page.
const SOURCE: usize = 16;
const TARGET: usize = 4090;

const QUALIFIER: u64 = 7;
const NOTHING: CompletionFlags = CompletionFlags::empty();
/// Polls of the words before a wait ends without an interrupt.
///
/// QEMU's adapter loses an interrupt now and then. It puts a completion into its queue, and then
/// checks without a barrier whether the queue is armed. It also drops an arming that comes while it
/// reports the previous completion.
const MOST_POLLS: u32 = 2_000_000;
/// Waits in a row that may end without an interrupt.
///
/// More than 64, so that the driver also reads the event rings, which it does in every 64th poll
/// without an interrupt. Many, because QEMU's adapter may have to wait for a processor of a busy
/// host, and few enough that a run without interrupts fails.
const ROUNDS: u32 = 500;

fn unexpected() -> Error {
    Error::internal(Cause::EndpointState)
}

/// Message to send while its receiver sleeps.
#[derive(Clone, Copy)]
struct Message<'a> {
    text: &'a str,
    cookie: u64,
}

/// Wait for an interrupt word of the adapter.
///
/// Fewer than `ROUNDS` waits in a row end without one.
struct Words<'a> {
    stage: &'a Stage,
    /// Posted once, when the wait sleeps: no earlier poll finds its completion.
    message: Option<Message<'a>>,
    /// Result of that post.
    refused: Result<()>,
}

impl Wait for Words<'_> {
    fn now(&mut self) -> Instant {
        Instant::ZERO
    }

    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }

    fn wait(&mut self, deadline: Option<Instant>) -> WakeReason {
        if deadline.is_some() {
            // Time never advances here, so no deadline is ahead.
            return WakeReason::TimedOut;
        }
        if let Some(message) = self.message.take() {
            self.refused = self.stage.send(message);
            if self.refused.is_err() {
                return WakeReason::Interrupted;
            }
        }
        let Stage {
            messages,
            ended,
            timeouts,
            ..
        } = self.stage;
        for _ in 0..MOST_POLLS {
            if !messages.is_silent() {
                ended.set(ended.get() + 1);
                timeouts.set(0);
                return WakeReason::Woken;
            }
            core::hint::spin_loop();
        }
        timeouts.set(timeouts.get() + 1);
        if timeouts.get() < ROUNDS {
            WakeReason::Woken
        } else {
            WakeReason::Interrupted
        }
    }
}

/// Endpoint with a dispatcher for each kind of event.
struct Side {
    name: &'static str,
    ep: EpId,
    requests: EvdId,
    receives: EvdId,
    connections: EvdId,
}

struct Stage {
    ia: Ia<'static, Backend, NoLock>,
    messages: &'static MessageWords,
    memory: LmrCreated,
    near: Side,
    far: Side,
    /// Waits that an interrupt ended.
    ended: Cell<u32>,
    /// Waits that ended without an interrupt since one last ended a wait.
    timeouts: Cell<u32>,
}

/// Runs all scenes.
pub(crate) fn all() -> Result<()> {
    let stage = open()?;
    stage.connect()?;
    stage.message("bare metal")?;
    stage.many_messages()?;
    stage.synchronised()?;
    stage.refusals()?;
    stage.failure()?;
    stage.reconnect()?;
    stage.message("once more")?;
    stage.end()
}

fn attributes() -> EpAttributes {
    EpAttributes {
        max_recv_dtos: 4,
        max_request_dtos: 4,
        max_recv_iov: 2,
        max_request_iov: 2,
        max_rdma_read_iov: 2,
        max_rdma_write_iov: 2,
        ..EpAttributes::DEFAULT
    }
}

fn open() -> Result<Stage> {
    let (backend, messages) = match platform::open() {
        None => {
            defmt::error!("no adapter found");
            return Err(unexpected());
        }
        Some(Err(_)) => {
            defmt::error!("the adapter does not start");
            return Err(unexpected());
        }
        Some(Ok(opened)) => opened,
    };
    let storage = STORAGE.init_with(Storage::new);
    let ia = Ia::open(backend, storage.lend(), 4).map_err(|refused| refused.error)?;
    let pz = ia.pz_create()?;
    let memory = ia.lmr_create(&LmrRequest {
        memory: LmrMemory::Virtual(Region::from_static(&BYTES.0)),
        pz,
        privileges: MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE,
    })?;
    let side = |name| -> Result<Side> {
        let requests = ia.evd_create(8, None, EvdFlags::DTO)?;
        let receives = ia.evd_create(8, None, EvdFlags::DTO)?;
        let connections = ia.evd_create(8, None, EvdFlags::CONNECTION | EvdFlags::CR)?;
        let ep = ia.ep_create(
            Some(pz),
            Some(receives),
            Some(requests),
            Some(connections),
            Some(&attributes()),
        )?;
        Ok(Side {
            name,
            ep,
            requests,
            receives,
            connections,
        })
    };
    let (near, far) = (side("A")?, side("B")?);
    defmt::info!("ia_open, pz_create, lmr_create, evd_create, ep_create");
    Ok(Stage {
        ia,
        messages,
        memory,
        near,
        far,
        ended: Cell::new(0),
        timeouts: Cell::new(0),
    })
}

impl Stage {
    /// Takes the next event of a dispatcher.
    fn wait(&self, evd: EvdId) -> Result<Event> {
        self.wait_sending(evd, None)
    }

    /// Takes the next event of a dispatcher; posts `message` when the wait sleeps.
    fn wait_sending(&self, evd: EvdId, message: Option<Message<'_>>) -> Result<Event> {
        let mut words = Words {
            stage: self,
            message,
            refused: Ok(()),
        };
        let waited = self.ia.evd_wait_until(evd, 1, None, &mut words);
        words.refused?;
        if waited.is_err() {
            defmt::error!("an expected event did not arrive");
        }
        Ok(waited?.event)
    }

    /// Logs the next completion of a dispatcher.
    fn completion(&self, side: &Side, evd: EvdId) -> Result<()> {
        let Event::Dto(done) = self.wait(evd)? else {
            return Err(unexpected());
        };
        let (name, operation, cookie) = (side.name, done.operation, done.cookie);
        match done.status {
            DtoStatus::Success => defmt::info!(
                "  {=str} gets {} {=u64}: {=u64} bytes",
                name,
                operation,
                cookie,
                done.transferred_length
            ),
            status => defmt::info!(
                "  {=str} gets {} {=u64}: {}",
                name,
                operation,
                cookie,
                status
            ),
        }
        Ok(())
    }

    /// Logs the next connection event; returns the request if it is one.
    fn connection(&self, side: &Side) -> Result<Option<CrId>> {
        match self.wait(side.connections)? {
            Event::ConnectionRequest { cr, qualifier, .. } => {
                defmt::info!("  {=str} gets a request for {=u64}", side.name, qualifier);
                Ok(Some(cr))
            }
            Event::Connection { kind, .. } => {
                defmt::info!("  {=str} gets {}", side.name, kind);
                Ok(None)
            }
            _ => Err(unexpected()),
        }
    }

    fn connect(&self) -> Result<()> {
        let Self { ia, near, far, .. } = self;
        let psp = ia.psp_create(QUALIFIER, far.connections, PspFlags::Consumer)?;
        let request = ConnectParam {
            address: IaAddress::Node(1),
            qualifier: QUALIFIER,
            timeout: TIMEOUT_INFINITE,
            private_data: b"hello",
            quality: QualityOfService::BEST_EFFORT,
            flags: ConnectFlags::empty(),
        };
        defmt::info!("psp_create, ep_connect");
        ia.ep_connect(near.ep, &request, Instant::ZERO)?;
        let cr = self.connection(far)?.ok_or(unexpected())?;
        defmt::info!("cr_accept");
        ia.cr_accept(cr, Some(far.ep), &[])?;
        self.connection(near)?;
        self.connection(far)?;
        ia.psp_free(psp)
    }

    fn segment(&self, offset: usize, length: u64) -> LmrTriplet {
        LmrTriplet {
            context: self.memory.lmr_context,
            address: self.memory.registered_address + offset as u64,
            length,
        }
    }

    /// Posts a receive buffer for a text.
    ///
    /// The driver does not maintain caches: the sync before the post makes the stores visible.
    fn receive(&self, text: &str, cookie: u64) -> Result<()> {
        let Self { ia, far, .. } = self;
        for index in 0..text.len() {
            BYTES.0[TARGET + index].store(0, Ordering::Relaxed);
        }
        let target = [self.segment(TARGET, 32)];
        ia.lmr_sync_rdma_write(&target)?;
        ia.post_recv(far.ep, &target, cookie, NOTHING)
    }

    /// Sends a text in two segments.
    fn send(&self, Message { text, cookie }: Message<'_>) -> Result<()> {
        let Self { ia, near, .. } = self;
        for (index, byte) in text.bytes().enumerate() {
            BYTES.0[SOURCE + index].store(byte, Ordering::Relaxed);
        }
        let rest = text.len() as u64 - 3;
        let segments = [self.segment(SOURCE, 3), self.segment(SOURCE + 3, rest)];
        ia.lmr_sync_rdma_read(&segments)?;
        ia.post_send(near.ep, &segments, cookie, NOTHING)
    }

    /// Makes the adapter's writes visible, and checks that they are the text.
    fn arrived(&self, text: &str) -> Result<()> {
        self.ia.lmr_sync_rdma_write(&[self.segment(TARGET, 32)])?;
        let matches =
            |(index, byte): (usize, u8)| BYTES.0[TARGET + index].load(Ordering::Relaxed) == byte;
        if text.bytes().enumerate().all(matches) {
            Ok(())
        } else {
            defmt::error!("another text arrived");
            Err(unexpected())
        }
    }

    fn message(&self, text: &str) -> Result<()> {
        let Self { near, far, .. } = self;
        self.receive(text, 1)?;
        self.send(Message { text, cookie: 2 })?;
        defmt::info!("post_recv, post_send");
        self.completion(far, far.receives)?;
        self.completion(near, near.requests)?;
        self.arrived(text)?;
        defmt::info!("  B reads \"{=str}\"", text);
        Ok(())
    }

    /// Sends many more messages than the rings have slots, each while its receiver sleeps.
    fn many_messages(&self) -> Result<()> {
        const COUNT: u64 = 100;
        for cookie in 0..COUNT {
            let text = if cookie & 1 == 0 { "ping" } else { "pongpong" };
            self.receive(text, cookie)?;
            let message = Message { text, cookie };
            let received = self.wait_sending(self.far.receives, Some(message))?;
            for done in [received, self.wait(self.near.requests)?] {
                if !matches!(done, Event::Dto(done) if done.status == DtoStatus::Success) {
                    return Err(unexpected());
                }
            }
            self.arrived(text)?;
        }
        defmt::info!("{=u64} more messages", COUNT);
        if self.ended.get() == 0 {
            return Err(unexpected());
        }
        defmt::info!("the adapter ended waits by words of memory");
        Ok(())
    }

    /// Checks that cache maintenance changes no byte of a range or its neighbours.
    ///
    /// The ranges are aligned with cache lines or not.
    fn synchronised(&self) -> Result<()> {
        const LENGTHS: [u64; 6] = [1, 16, 63, 64, 65, 4096];
        let byte = |index: usize| index as u8 ^ (index >> 8) as u8;
        for (index, to) in BYTES.0.iter().enumerate() {
            to.store(byte(index), Ordering::Relaxed);
        }
        for start in 2048..2048 + 64 {
            for length in LENGTHS {
                let segment = [self.segment(start, length)];
                self.ia.lmr_sync_rdma_write(&segment)?;
                self.ia.lmr_sync_rdma_read(&segment)?;
            }
        }
        let is_unchanged =
            |(index, of): (usize, &AtomicU8)| of.load(Ordering::Relaxed) == byte(index);
        if !BYTES.0.iter().enumerate().all(is_unchanged) {
            defmt::error!("a synchronised byte changed");
            return Err(unexpected());
        }
        let beyond = [self.segment(8190, 3)];
        if self.ia.lmr_sync_rdma_write(&beyond).is_ok() {
            return Err(unexpected());
        }
        defmt::info!("lmr_sync_rdma_write, lmr_sync_rdma_read: no byte changed");
        Ok(())
    }

    /// Posts requests that the core refuses, so the device never sees them.
    fn refusals(&self) -> Result<()> {
        let Self { ia, near, .. } = self;
        for (what, segment) in [
            ("a segment beyond its region", self.segment(8190, 3)),
            (
                "no region",
                LmrTriplet {
                    context: 0x1234,
                    ..self.segment(0, 8)
                },
            ),
        ] {
            match ia.post_send(near.ep, &[segment], 9, NOTHING) {
                Ok(()) => return Err(unexpected()),
                Err(error) => defmt::info!(
                    "post_send of {=str}: {}, {}",
                    what,
                    error.kind(),
                    error.subtype()
                ),
            }
        }
        Ok(())
    }

    /// Breaks the connection by a message that exceeds its buffer; the other requests are flushed.
    fn failure(&self) -> Result<()> {
        let Self { ia, near, far, .. } = self;
        ia.post_recv(far.ep, &[self.segment(TARGET, 8)], 20, NOTHING)?;
        ia.post_recv(far.ep, &[self.segment(TARGET, 8)], 21, NOTHING)?;
        ia.post_recv(near.ep, &[self.segment(TARGET, 8)], 22, NOTHING)?;
        ia.post_send(near.ep, &[self.segment(SOURCE, 32)], 23, NOTHING)?;
        defmt::info!("post_send of more than the buffer holds");
        self.completion(far, far.receives)?;
        self.completion(near, near.requests)?;
        self.completion(far, far.receives)?;
        self.completion(near, near.receives)?;
        self.connection(near)?;
        self.connection(far)?;
        ia.post_send(near.ep, &[self.segment(SOURCE, 8)], 24, NOTHING)?;
        defmt::info!("post_send after the disconnect");
        self.completion(near, near.requests)
    }

    fn reconnect(&self) -> Result<()> {
        for side in [&self.near, &self.far] {
            self.ia.ep_reset(side.ep)?;
        }
        defmt::info!("ep_reset of both");
        self.connect()
    }

    fn end(self) -> Result<()> {
        let Self { ia, near, far, .. } = &self;
        ia.post_recv(far.ep, &[], 30, NOTHING)?;
        defmt::info!("post_recv, ep_disconnect");
        ia.ep_disconnect(near.ep, CloseFlags::Graceful)?;
        self.connection(near)?;
        self.completion(far, far.receives)?;
        self.connection(far)?;
        for side in [near, far] {
            ia.ep_free(side.ep)?;
            for evd in [side.requests, side.receives, side.connections] {
                ia.evd_free(evd)?;
            }
        }
        ia.lmr_free(self.memory.lmr)?;
        defmt::info!("ep_free, evd_free, lmr_free");
        let backend = self
            .ia
            .close(CloseFlags::Abrupt)
            .map_err(|refused| refused.error)?;
        drop(backend);
        defmt::info!("ia_close");
        Ok(())
    }
}
