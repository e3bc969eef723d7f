//! Scenes of the machine.

use core::sync::atomic::{AtomicU8, Ordering};

use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::endpoint::ConnectParam;
use dat_core::error::Cause;
use dat_core::event::Event;
use dat_core::flags::{
    CloseFlags, CompletionFlags, ConnectFlags, DtoStatus, EvdFlags, MemoryPrivileges,
    QualityOfService, TIMEOUT_INFINITE,
};
use dat_core::id::{EpId, EvdId, PzId, RmrId};
use dat_core::memory::{LmrCreated, LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::sync::NoLock;
use dat_core::time::Instant;
use dat_core::{Error, Ia, Result};
use static_cell::StaticCell;

use crate::platform::{self, BYTES, Backend, DISPATCHERS, PAIRS};

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
        events: 128,
        records: 64,
    }
}

static STORAGE: StaticCell<Storage> = StaticCell::new();

/// Address and connection qualifier of the process.
const PROCESS: IaAddress = IaAddress::Node(1);
const QUALIFIER: u64 = 7;
const NOTHING: CompletionFlags = CompletionFlags::empty();

/// Offsets in this side's memory: data to send, receive buffers, opened range, data read.
const SOURCE: usize = 0;
const TARGET: usize = 256;
const OPENED: usize = 1024;
const READ: usize = 2048;
/// Lengths in bytes of a message, of the opened range, and of the process's memory.
const MESSAGE: u64 = 64;
const OPENED_LENGTH: u64 = 512;
const THEIR_LENGTH: u64 = 256;

fn unexpected() -> Error {
    Error::internal(Cause::EndpointState)
}

struct Stage {
    ia: Ia<'static, Backend, NoLock>,
    bytes: &'static [AtomicU8; BYTES],
    pz: PzId,
    memory: LmrCreated,
    window: RmrId,
    ep: EpId,
    requests: EvdId,
    receives: EvdId,
    connections: EvdId,
}

/// Runs all scenes.
pub(crate) fn all() -> Result<()> {
    let stage = open()?;
    let remote = stage.connect()?;
    stage.write(remote)?;
    stage.open_window()?;
    let end = stage.message()?;
    stage.read(remote)?;
    stage.refusals(remote)?;
    stage.last_message()?;
    if end == *b"leave" {
        defmt::info!("ends without a disconnect");
        return Ok(());
    }
    stage.device_lost()
}

fn open() -> Result<Stage> {
    let (backend, bytes) = match platform::open() {
        None => {
            defmt::error!("no shared memory found");
            return Err(unexpected());
        }
        Some(Err(error)) => {
            defmt::error!("no device process answers: {}", error);
            return Err(unexpected());
        }
        Some(Ok(opened)) => opened,
    };
    let storage = STORAGE.init_with(Storage::new);
    let ia = Ia::open(backend, storage.lend(), 4).map_err(|refused| refused.error)?;
    let pz = ia.pz_create()?;
    let memory = ia.lmr_create(&LmrRequest {
        memory: LmrMemory::Virtual(Region::from_static(bytes)),
        pz,
        privileges: MemoryPrivileges::ALL,
    })?;
    let window = ia.rmr_create(pz)?;
    let requests = ia.evd_create(8, None, EvdFlags::DTO | EvdFlags::RMR_BIND)?;
    let receives = ia.evd_create(8, None, EvdFlags::DTO)?;
    let connections = ia.evd_create(8, None, EvdFlags::CONNECTION)?;
    let attributes = EpAttributes {
        max_recv_dtos: 4,
        max_request_dtos: 4,
        max_rdma_read_in: 1,
        max_rdma_read_out: 1,
        ..EpAttributes::DEFAULT
    };
    let ep = ia.ep_create(
        Some(pz),
        Some(receives),
        Some(requests),
        Some(connections),
        Some(&attributes),
    )?;
    defmt::info!("ia_open, pz_create, lmr_create, rmr_create, evd_create, ep_create");
    Ok(Stage {
        ia,
        bytes,
        pz,
        memory,
        window,
        ep,
        requests,
        receives,
        connections,
    })
}

impl Stage {
    /// Waits for the next event of a dispatcher.
    fn wait(&self, evd: EvdId) -> Result<Event> {
        loop {
            self.ia.progress(Instant::ZERO);
            if let Ok(event) = self.ia.evd_dequeue(evd) {
                return Ok(event);
            }
            platform::sleep();
        }
    }

    /// Logs the next completion of a dispatcher.
    fn completion(&self, evd: EvdId) -> Result<()> {
        match self.wait(evd)? {
            Event::Dto(done) if done.status == DtoStatus::Success => defmt::info!(
                "  gets {} {=u64}: {=u64} bytes",
                done.operation,
                done.cookie,
                done.transferred_length
            ),
            Event::Dto(done) => defmt::info!(
                "  gets {} {=u64}: {}",
                done.operation,
                done.cookie,
                done.status
            ),
            Event::RmrBind(done) => {
                defmt::info!("  gets bind {=u64}: {}", done.cookie, done.status);
            }
            _ => return Err(unexpected()),
        }
        Ok(())
    }

    /// Logs the next event of the connection.
    fn connection(&self) -> Result<()> {
        let Event::Connection { kind, .. } = self.wait(self.connections)? else {
            return Err(unexpected());
        };
        defmt::info!("  gets {}", kind);
        Ok(())
    }

    fn segment(&self, offset: usize, length: u64) -> LmrTriplet {
        LmrTriplet {
            context: self.memory.lmr_context,
            address: self.memory.registered_address + offset as u64,
            length,
        }
    }

    fn put(&self, offset: usize, bytes: impl IntoIterator<Item = u8>) {
        for (to, from) in self.bytes.iter().skip(offset).zip(bytes) {
            to.store(from, Ordering::Relaxed);
        }
    }

    /// Logs the text at an offset, up to a zero byte.
    fn show(&self, offset: usize) {
        let mut copy = [0; 32];
        let mut length = 0;
        for (to, from) in copy.iter_mut().zip(self.bytes.iter().skip(offset)) {
            *to = from.load(Ordering::Relaxed);
            if *to == 0 {
                break;
            }
            length += 1;
        }
        match copy.get(..length).map(core::str::from_utf8) {
            Some(Ok(text)) => defmt::info!("  reads \"{=str}\"", text),
            _ => defmt::info!("  reads no text"),
        }
    }

    /// Connects; the process's answer says where its memory is.
    fn connect(&self) -> Result<RmrTriplet> {
        let Self { ia, ep, .. } = self;
        for cookie in 1..=3 {
            let offset = TARGET + 64 * cookie as usize;
            ia.post_recv(*ep, &[self.segment(offset, MESSAGE)], cookie, NOTHING)?;
        }
        let request = ConnectParam {
            address: PROCESS,
            qualifier: QUALIFIER,
            timeout: TIMEOUT_INFINITE,
            private_data: b"from a bare machine",
            quality: QualityOfService::BEST_EFFORT,
            flags: ConnectFlags::empty(),
        };
        defmt::info!("post_recv, ep_connect");
        ia.ep_connect(*ep, &request, Instant::ZERO)?;
        self.connection()?;
        let mut answer = [0; 12];
        if ia.ep_private_data(*ep, &mut answer)? != answer.len() {
            return Err(unexpected());
        }
        let [a, b, c, d, e, f, g, h, context @ ..] = answer;
        Ok(RmrTriplet {
            context: u32::from_be_bytes(context),
            address: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            length: THEIR_LENGTH,
        })
    }

    /// Writes to the process's memory.
    fn write(&self, remote: RmrTriplet) -> Result<()> {
        let text = "written by the machine";
        self.put(SOURCE, text.bytes().chain([0]));
        let source = [self.segment(SOURCE, text.len() as u64 + 1)];
        defmt::info!("post_rdma_write");
        self.ia
            .post_rdma_write(self.ep, &source, 10, &remote, NOTHING)?;
        self.completion(self.requests)
    }

    /// Opens a range of this side's memory, and sends its address to the process.
    fn open_window(&self) -> Result<()> {
        let opened = self.segment(OPENED, OPENED_LENGTH);
        let privileges = MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE;
        self.put(OPENED + 256, "to be read from the machine\0".bytes());
        let context = self
            .ia
            .rmr_bind(self.window, &opened, privileges, self.ep, 11, NOTHING)?;
        defmt::info!("rmr_bind");
        self.completion(self.requests)?;
        let address = opened.address.to_be_bytes().into_iter();
        self.put(SOURCE, address.chain(context.to_be_bytes()));
        defmt::info!("post_send");
        self.ia
            .post_send(self.ep, &[self.segment(SOURCE, 12)], 12, NOTHING)?;
        self.completion(self.requests)
    }

    /// Waits for the process's message; returns its first word, which says how to continue.
    fn message(&self) -> Result<[u8; 5]> {
        self.completion(self.receives)?;
        self.show(OPENED);
        let mut word = [0; 5];
        for (to, from) in word.iter_mut().zip(self.bytes.iter().skip(TARGET + 64)) {
            *to = from.load(Ordering::Relaxed);
        }
        self.show(TARGET + 64);
        Ok(word)
    }

    /// Reads from the process's memory.
    fn read(&self, remote: RmrTriplet) -> Result<()> {
        let from = RmrTriplet {
            address: remote.address + 128,
            length: 32,
            ..remote
        };
        defmt::info!("post_rdma_read");
        self.ia
            .post_rdma_read(self.ep, &[self.segment(READ, 32)], 13, &from, NOTHING)?;
        self.completion(self.requests)?;
        self.show(READ);
        Ok(())
    }

    /// Posts requests that the core refuses, so the process never sees them.
    fn refusals(&self, remote: RmrTriplet) -> Result<()> {
        for (what, segment) in [
            ("a segment beyond its region", self.segment(BYTES - 2, 3)),
            (
                "no region",
                LmrTriplet {
                    context: 0x1234,
                    ..self.segment(0, 8)
                },
            ),
        ] {
            match self
                .ia
                .post_rdma_write(self.ep, &[segment], 9, &remote, NOTHING)
            {
                Ok(()) => return Err(unexpected()),
                Err(error) => defmt::info!(
                    "post_rdma_write of {=str}: {}, {}",
                    what,
                    error.kind(),
                    error.subtype()
                ),
            }
        }
        Ok(())
    }

    /// Sends the last message of this side.
    ///
    /// The status of its completion is not logged: if the process ends at once, it may not have
    /// reported the send.
    fn last_message(&self) -> Result<()> {
        self.put(SOURCE, "farewell\0".bytes());
        defmt::info!("post_send");
        self.ia
            .post_send(self.ep, &[self.segment(SOURCE, 9)], 14, NOTHING)?;
        self.wait(self.requests)?;
        Ok(())
    }

    /// Runs after the process ended: posted requests are flushed, connection and adapter are
    /// broken.
    fn device_lost(self) -> Result<()> {
        let Self { ia, ep, .. } = &self;
        self.connection()?;
        self.completion(self.receives)?;
        self.completion(self.receives)?;
        let Event::Async { kind, .. } = self.wait(ia.async_evd())? else {
            return Err(unexpected());
        };
        defmt::info!("  gets {}", kind);
        defmt::info!("  is {}", ia.ep_get_status(*ep)?.state);
        defmt::info!("post_send after the disconnect");
        ia.post_send(*ep, &[self.segment(SOURCE, 8)], 15, NOTHING)?;
        self.completion(self.requests)?;
        let more = ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_static(self.bytes)),
            pz: self.pz,
            privileges: MemoryPrivileges::LOCAL_READ,
        });
        match more {
            Ok(_) => return Err(unexpected()),
            Err(error) => defmt::info!("lmr_create: {}, {}", error.kind(), error.subtype()),
        }
        let _backend = self
            .ia
            .close(CloseFlags::Abrupt)
            .map_err(|refused| refused.error)?;
        defmt::info!("ia_close");
        Ok(())
    }
}
