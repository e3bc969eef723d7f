//! Scenes of the device process.

use std::cell::RefCell;
use std::error::Error;
use std::sync::atomic::{AtomicU8, Ordering};

use backend_mock::NodeOptions;
use dat_core::Ia;
use dat_core::attributes::EpAttributes;
use dat_core::event::{DtoCompletion, Event};
use dat_core::flags::{
    CloseFlags, CompletionFlags, CrFields, DtoStatus, EvdFlags, MemoryPrivileges, PspFlags,
};
use dat_core::id::{CrId, EpId, EvdId};
use dat_core::memory::{LmrCreated, LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::sync::HostLock;
use mmio_model::ModelBackend;
use rustix::process::{Signal, getpid, kill_process};

use crate::world::World;

type Outcome<T> = Result<T, Box<dyn Error>>;

const QUALIFIER: u64 = 7;
const NOTHING: CompletionFlags = CompletionFlags::empty();
const BYTES: usize = 4096;
/// Offsets in the memory of this process: the opened range, the source, the receive buffers.
const OPENED: usize = 0;
const OPENED_LENGTH: usize = 256;
const SOURCE: usize = 1024;
const TARGET: usize = 2048;
/// Length of the range that the machine opens.
const THEIR_LENGTH: u64 = 512;

static MEMORY: [AtomicU8; BYTES] = [const { AtomicU8::new(0) }; BYTES];

/// Runs until the machine leaves without a disconnect.
pub(crate) fn until_the_machine_leaves(socket: &str) -> Outcome<()> {
    let world = RefCell::new(World::join(socket)?);
    let mut storage = Storage::new();
    let side = Side::open(&world, &mut storage)?;
    side.exchange("leave without a disconnect")?;
    side.connection()?;
    for _ in 0..2 {
        side.completion(side.receives)?;
    }
    println!("is {:?}", side.ia.ep_get_status(side.ep)?.state);
    side.ia
        .post_send(side.ep, &[side.segment(SOURCE, 8)], 30, NOTHING)?;
    println!("post_send after the disconnect");
    side.completion(side.requests)?;
    side.ia
        .close(CloseFlags::Abrupt)
        .map_err(|refused| refused.error)?;
    println!("ia_close");
    Ok(())
}

/// Ends this process without a disconnect.
pub(crate) fn leave_the_machine(socket: &str) -> Outcome<()> {
    let world = RefCell::new(World::join(socket)?);
    let mut storage = Storage::new();
    Side::open(&world, &mut storage)?.exchange("stay behind")?;
    println!("ends without a disconnect");
    kill_process(getpid(), Signal::KILL)?;
    Err("it goes on all the same".into())
}

dat_core::define_storage! {
    struct Storage for ModelBackend, HostLock {
        protection_zones: 1,
        local_regions: 1,
        remote_regions: 1,
        event_dispatchers: 4,
        notification_objects: 4,
        endpoints: 1,
        shared_receive_queues: 0,
        public_service_points: 1,
        reserved_service_points: 1,
        connection_requests: 1,
        events: 64,
        records: 64,
    }
}

/// Endpoint of this process and its objects.
struct Side<'s> {
    world: &'s RefCell<World>,
    ia: Ia<'s, ModelBackend, HostLock>,
    memory: LmrCreated,
    ep: EpId,
    requests: EvdId,
    receives: EvdId,
    connections: EvdId,
}

impl<'s> Side<'s> {
    fn open(world: &'s RefCell<World>, storage: &'s mut Storage) -> Outcome<Self> {
        let device = world.borrow().fabric.device(NodeOptions::new("process", 1));
        let ia = Ia::open(device, storage.lend(), 4).map_err(|refused| refused.error)?;
        let pz = ia.pz_create()?;
        let memory = ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_static(&MEMORY)),
            pz,
            privileges: MemoryPrivileges::ALL,
        })?;
        let requests = ia.evd_create(8, None, EvdFlags::DTO)?;
        let receives = ia.evd_create(8, None, EvdFlags::DTO)?;
        let connections = ia.evd_create(8, None, EvdFlags::CONNECTION | EvdFlags::CR)?;
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
        let _listening = ia.psp_create(QUALIFIER, connections, PspFlags::Consumer)?;
        println!("listens");
        Ok(Self {
            world,
            ia,
            memory,
            ep,
            requests,
            receives,
            connections,
        })
    }

    /// Waits for the next event of a dispatcher.
    fn wait(&self, evd: EvdId) -> Outcome<Event> {
        loop {
            let mut world = self.world.borrow_mut();
            let any = world.act()?;
            self.ia.progress(world.fabric.now());
            if let Ok(event) = self.ia.evd_dequeue(evd) {
                // Carries out the posts of this side, and shows the machine the effects of the
                // event.
                world.act()?;
                return Ok(event);
            }
            if !any {
                world.sleep()?;
            }
        }
    }

    fn completion(&self, evd: EvdId) -> Outcome<DtoCompletion> {
        let Event::Dto(done) = self.wait(evd)? else {
            return Err("unexpected event".into());
        };
        match done.status {
            DtoStatus::Success => println!(
                "  gets {:?} {}: {} bytes",
                done.operation, done.cookie, done.transferred_length
            ),
            status => println!("  gets {:?} {}: {status:?}", done.operation, done.cookie),
        }
        Ok(done)
    }

    /// Waits for the next connection event; returns the request if it is one.
    fn connection(&self) -> Outcome<Option<CrId>> {
        match self.wait(self.connections)? {
            Event::ConnectionRequest { cr, .. } => Ok(Some(cr)),
            Event::Connection { kind, .. } => {
                println!("  gets {kind:?}");
                Ok(None)
            }
            _ => Err("unexpected event".into()),
        }
    }

    fn segment(&self, offset: usize, length: u64) -> LmrTriplet {
        LmrTriplet {
            context: self.memory.lmr_context,
            address: self.memory.registered_address + offset as u64,
            length,
        }
    }

    /// Exchanges writes, reads and messages; the last message tells the machine how to continue.
    fn exchange(&self, then: &str) -> Outcome<()> {
        let Self { ia, ep, .. } = self;
        let cr = self
            .connection()?
            .ok_or("unexpected connection event instead of a request")?;
        let request = ia.cr_query(cr, CrFields::all())?;
        let private_data = String::from_utf8_lossy(&request.private_data);
        println!("  gets a request \"{private_data}\"");
        for cookie in 1..=4 {
            let offset = TARGET + 64 * cookie as usize;
            ia.post_recv(*ep, &[self.segment(offset, 64)], cookie, NOTHING)?;
        }
        put(OPENED + 128, "to be read from the process");
        let at = self.segment(OPENED, OPENED_LENGTH as u64);
        let mut answer = at.address.to_be_bytes().to_vec();
        answer.extend(self.memory.rmr_context.to_be_bytes());
        ia.cr_accept(cr, Some(*ep), &answer)?;
        println!("post_recv, cr_accept");
        self.connection()?;

        self.completion(self.receives)?;
        println!("  reads \"{}\"", text(OPENED));
        let message: Vec<u8> = bytes(TARGET + 64, 12);
        let (address, context) = message.split_at(8);
        let theirs = RmrTriplet {
            context: u32::from_be_bytes(context.try_into()?),
            address: u64::from_be_bytes(address.try_into()?),
            length: THEIR_LENGTH,
        };
        put(SOURCE, "written by the process");
        ia.post_rdma_write(*ep, &[self.segment(SOURCE, 32)], 20, &theirs, NOTHING)?;
        println!("post_rdma_write");
        self.completion(self.requests)?;
        let from = RmrTriplet {
            address: theirs.address + 256,
            length: 32,
            ..theirs
        };
        ia.post_rdma_read(*ep, &[self.segment(TARGET, 32)], 21, &from, NOTHING)?;
        println!("post_rdma_read");
        self.completion(self.requests)?;
        println!("  reads \"{}\"", text(TARGET));
        put(SOURCE, then);
        let length = then.len() as u64 + 1;
        ia.post_send(*ep, &[self.segment(SOURCE, length)], 22, NOTHING)?;
        println!("post_send");
        self.completion(self.requests)?;
        self.completion(self.receives)?;
        println!("  reads \"{}\"", text(TARGET + 128));
        Ok(())
    }
}

fn put(offset: usize, text: &str) {
    for (to, from) in MEMORY[offset..].iter().zip(text.bytes().chain([0])) {
        to.store(from, Ordering::Relaxed);
    }
}

fn bytes(offset: usize, length: usize) -> Vec<u8> {
    let bytes = MEMORY[offset..].iter().take(length);
    bytes.map(|byte| byte.load(Ordering::Relaxed)).collect()
}

/// Returns the text at an offset, up to a zero byte.
fn text(offset: usize) -> String {
    let bytes = bytes(offset, 64).into_iter().take_while(|byte| *byte != 0);
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}
