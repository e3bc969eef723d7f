//! A device that writes anything, under the driver of raw adapters, in both layouts.
//!
//! Two model devices on a fabric: one that is suspect, and an honest one at the other end of two connections. The consumer makes
//! legitimate calls on both; between them the suspect one lies about completions, changes words of rings, records and slots, reports
//! what did not happen, answers commands wrongly, and leaves its bus. Whatever it does, nothing panics or hangs, no byte changes that
//! is not registered, whatever was posted completes once at most, and once where the device was caught, everything can be freed, and the
//! honest end has lost nothing.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Poll, Waker};

use backend_mmio::mlx5::{DeviceEvent, State};
use backend_mmio::pvrdma::defs::Notice;
use backend_mock::{BufferOrder, FabricOptions, NodeOptions};
use dat_core::attributes::{EpAttributes, SrqAttributes};
use dat_core::backend::Backend;
use dat_core::endpoint::ConnectParam;
use dat_core::event::{AsyncEventKind, DtoOperation, Event};
use dat_core::flags::{
    CloseFlags, CompletionFlags, ConnectFlags, DtoStatus, EndpointState, EvdFlags,
    MemoryPrivileges, PspFlags, QualityOfService, TIMEOUT_INFINITE,
};
use dat_core::id::{EpId, EvdId, PspId, PzId, RmrId, SrqId};
use dat_core::memory::{LmrCreated, LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::sync::SpinLock;
use dat_core::time::Instant;
use dat_core::{Ia, IaStorage, Result};
use mmio_model::pvrdma::{
    LentPvrdma, Numbers, PvrdmaFabric, PvrdmaLent, PvrdmaLie, PvrdmaManner, Refusal,
};
use mmio_model::{Lent, LentBackend, Lie, ModelFabric};

const PAGE: usize = 4096;
/// Operations of a run.
const OPERATIONS: usize = 48;
/// Rounds in which everything comes to rest, unless the device never does.
const ROUNDS: usize = 400;
/// Where the honest end listens.
const QUALIFIER: u64 = 4000;
/// Connections.
const PAIRS: usize = 2;
/// The place of the suspect device, and that of the honest one.
const SUSPECT: usize = 0;
const HONEST: usize = 1;

/// Bytes of one operation in an input.
pub const OPERATION_SIZE: usize = 6;

/// What happens next. Numbers choose from what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Something is posted.
    Post {
        /// The lowest bit: on which device; the next one: on which endpoint.
        at: u8,
        /// What: Send, RDMA Write, RDMA Read, receive, shared receive, bind.
        kind: u8,
        /// Where in the page, in units of 16 bytes.
        offset: u8,
        /// How many bytes, in units of 8.
        length: u8,
        /// The flags, and above them whether it is in two pieces.
        flags: u8,
    },
    /// Events are taken.
    Take {
        /// On which device.
        at: u8,
        /// From which dispatcher.
        dispatcher: u8,
    },
    /// Somebody begins to wait, and looks once.
    Wait {
        /// On which device.
        at: u8,
        /// For which dispatcher.
        dispatcher: u8,
        /// For how many events.
        threshold: u8,
    },
    /// The fabric and the adapters go on.
    Go {
        /// Steps.
        steps: u8,
    },
    /// The suspect device changes a word that it shares with its driver.
    Scrawl {
        /// In which area.
        area: u8,
        /// Which word, the lower half and the upper one.
        word: [u8; 2],
        /// What becomes of it.
        how: u8,
        /// A number for that.
        value: u8,
    },
    /// Its next completion is not so.
    Lie {
        /// In what.
        kind: u8,
        /// Which bit, or what noise is drawn from.
        bit: u8,
    },
    /// It reports what did not happen.
    Tell {
        /// What.
        kind: u8,
        /// Of which object.
        number: u8,
    },
    /// Its next answer to a command is not so.
    Answer {
        /// Which word of it.
        word: u8,
        /// Which bit; above 31 all of them.
        bit: u8,
    },
    /// It leaves its bus.
    Unplug,
    /// A connection is ended, or made anew.
    Connection {
        /// On which device, and which one.
        at: u8,
        /// How.
        how: u8,
    },
    /// An object is made and freed again.
    Make {
        /// On which device.
        at: u8,
        /// What.
        kind: u8,
    },
}

impl Operation {
    /// The operation as a part of an input.
    pub const fn encode(self) -> [u8; OPERATION_SIZE] {
        match self {
            Self::Post {
                at,
                kind,
                offset,
                length,
                flags,
            } => [0, at, kind, offset, length, flags],
            Self::Take { at, dispatcher } => [1, at, dispatcher, 0, 0, 0],
            Self::Wait {
                at,
                dispatcher,
                threshold,
            } => [2, at, dispatcher, threshold, 0, 0],
            Self::Go { steps } => [3, steps, 0, 0, 0, 0],
            Self::Scrawl {
                area,
                word: [low, high],
                how,
                value,
            } => [4, area, low, high, how, value],
            Self::Lie { kind, bit } => [5, kind, bit, 0, 0, 0],
            Self::Tell { kind, number } => [6, kind, number, 0, 0, 0],
            Self::Answer { word, bit } => [7, word, bit, 0, 0, 0],
            Self::Unplug => [8, 0, 0, 0, 0, 0],
            Self::Connection { at, how } => [9, at, how, 0, 0, 0],
            Self::Make { at, kind } => [10, at, kind, 0, 0, 0],
        }
    }

    fn decode([what, a, b, c, d, e]: [u8; OPERATION_SIZE]) -> Self {
        match what % 11 {
            0 => Self::Post {
                at: a,
                kind: b,
                offset: c,
                length: d,
                flags: e,
            },
            1 => Self::Take {
                at: a,
                dispatcher: b,
            },
            2 => Self::Wait {
                at: a,
                dispatcher: b,
                threshold: c,
            },
            3 => Self::Go { steps: a },
            4 => Self::Scrawl {
                area: a,
                word: [b, c],
                how: d,
                value: e,
            },
            5 => Self::Lie { kind: a, bit: b },
            6 => Self::Tell { kind: a, number: b },
            7 => Self::Answer { word: a, bit: b },
            8 => Self::Unplug,
            9 => Self::Connection { at: a, how: b },
            _ => Self::Make { at: a, kind: b },
        }
    }
}

/// What comes before the operations: the seed of the fabric; the layout, odd for the paravirtual one, and above it in what the device
/// is not as others; two numbers for that.
pub const SETUP_SIZE: usize = 4;

/// An input of these operations.
pub fn encode(setup: [u8; SETUP_SIZE], operations: &[Operation]) -> Vec<u8> {
    let mut input = setup.to_vec();
    for operation in operations {
        input.extend(operation.encode());
    }
    input
}

thread_local! {
    /// What devices have of memory, in both layouts.
    static LENT: RefCell<[Lent; 2]> = RefCell::default();
    static PVRDMA_LENT: RefCell<[PvrdmaLent; 2]> = RefCell::default();
}

/// Runs an input.
///
/// # Panics
/// If a promise is broken.
pub fn run(input: &[u8]) {
    let Some((setup, rest)) = input.split_first_chunk::<SETUP_SIZE>() else {
        return;
    };
    let operations = rest.as_chunks().0.iter().take(OPERATIONS);
    let operations: Vec<Operation> = operations.copied().map(Operation::decode).collect();
    let [seed, layout, ..] = *setup;
    let options = FabricOptions {
        seed: u64::from(seed),
        buffer_order: BufferOrder::Seeded,
        ..FabricOptions::default()
    };
    if layout & 1 == 0 {
        LENT.with_borrow_mut(|lent| play(&ModelFabric::new(options), lent, setup, &operations));
    } else {
        let fabric = PvrdmaFabric::new(options);
        PVRDMA_LENT.with_borrow_mut(|lent| play(&fabric, lent, setup, &operations));
    }
}

/// Devices of one layout.
trait Layout {
    type Lent;
    type Driver<'s>: Backend;

    /// A device, if it could be brought into operation; a suspect one by the setup.
    fn device<'s>(
        &self,
        options: NodeOptions,
        suspect: Option<&[u8; SETUP_SIZE]>,
        lent: &'s mut Self::Lent,
    ) -> Option<(Self::Driver<'s>, &'s State)>;

    fn step(&self) -> bool;

    fn now(&self) -> Instant;

    fn scrawl(&self, area: usize, word: usize, change: impl FnOnce(u32) -> u32);

    fn lie(&self, kind: u8, bit: u8);

    fn tell(&self, kind: u8, number: u8);

    fn answer(&self, word: u8, bits: u32);

    fn unplug(&self);
}

impl Layout for ModelFabric {
    type Lent = Lent;
    type Driver<'s> = LentBackend<'s>;

    fn device<'s>(
        &self,
        options: NodeOptions,
        _suspect: Option<&[u8; SETUP_SIZE]>,
        lent: &'s mut Lent,
    ) -> Option<(LentBackend<'s>, &'s State)> {
        Some(self.device_on(options, lent))
    }

    fn step(&self) -> bool {
        self.step()
    }

    fn now(&self) -> Instant {
        self.now()
    }

    fn scrawl(&self, area: usize, word: usize, change: impl FnOnce(u32) -> u32) {
        self.scrawl(SUSPECT, area, word, change);
    }

    fn lie(&self, kind: u8, bit: u8) {
        let lie = match kind % 10 {
            0 => Lie::Index,
            1 => Lie::QueuePair,
            2 => Lie::UserIndex,
            3 => Lie::Kind,
            4 => Lie::Length,
            5 => Lie::Syndrome,
            6 => Lie::Phase,
            7 => Lie::AllOnes,
            8 => Lie::Bit(u32::from(bit) % Lie::BITS),
            _ => Lie::Noise(u64::from(bit)),
        };
        self.lie(SUSPECT, lie);
    }

    fn tell(&self, kind: u8, number: u8) {
        // Numbers of objects begin behind those of an adapter's own.
        let number = match number {
            0xFF => u32::MAX,
            number => 0x40 + u32::from(number % 16),
        };
        let event = match kind % 6 {
            0 => DeviceEvent::Completions(number),
            1 => DeviceEvent::SharedReceiveLimit(number),
            2 => DeviceEvent::SharedReceiveFailed(number),
            3 => DeviceEvent::CompletionsLost(number),
            4 => DeviceEvent::QueuePairFailed(number),
            _ => DeviceEvent::Failed,
        };
        self.tell(SUSPECT, event);
    }

    /// Its commands are calls.
    fn answer(&self, _word: u8, _bits: u32) {}

    /// No register of it is read.
    fn unplug(&self) {}
}

impl Layout for PvrdmaFabric {
    type Lent = PvrdmaLent;
    type Driver<'s> = LentPvrdma<'s>;

    fn device<'s>(
        &self,
        options: NodeOptions,
        suspect: Option<&[u8; SETUP_SIZE]>,
        lent: &'s mut PvrdmaLent,
    ) -> Option<(LentPvrdma<'s>, &'s State)> {
        let mut manner = PvrdmaManner::default();
        if let Some([_, layout, which, value]) = suspect {
            manner.keeps = layout & 2 != 0;
            match layout >> 2 & 7 {
                1 => manner.refuses = Refusal::Error,
                2 => manner.refuses = Refusal::CompletionQueue,
                3 => manner.numbers = Numbers::Always(u32::from(*value)),
                4 | 5 => {
                    let value = [
                        u32::from(*value),
                        u32::from(*value) << 24,
                        u32::MAX >> (value % 32),
                        1 << (value % 32),
                    ];
                    manner.claims = Some((u32::from(which >> 2), value[usize::from(which % 4)]));
                }
                _ => {}
            }
        }
        self.device_on(options, manner, lent).ok()
    }

    fn step(&self) -> bool {
        self.step()
    }

    fn now(&self) -> Instant {
        self.now()
    }

    fn scrawl(&self, area: usize, word: usize, change: impl FnOnce(u32) -> u32) {
        self.scrawl(SUSPECT, area, word, change);
    }

    fn lie(&self, kind: u8, bit: u8) {
        let lie = match kind % 6 {
            0 => PvrdmaLie::Token(u32::from(bit) % 64),
            1 => PvrdmaLie::QueuePair,
            2 => PvrdmaLie::Length,
            3 => PvrdmaLie::Status,
            4 => PvrdmaLie::Index,
            _ => PvrdmaLie::AllOnes,
        };
        self.lie(SUSPECT, lie);
    }

    fn tell(&self, kind: u8, number: u8) {
        let number = match number {
            0xFF => u32::MAX,
            number => 0x10 + u32::from(number % 16),
        };
        match kind {
            0..20 => self.tell(
                SUSPECT,
                Notice {
                    kind: u32::from(kind),
                    handle: number,
                },
            ),
            20 => self.tell(
                SUSPECT,
                Notice {
                    kind: u32::MAX,
                    handle: number,
                },
            ),
            _ => self.tell_of_completions(SUSPECT, number),
        }
    }

    fn answer(&self, word: u8, bits: u32) {
        self.lie_in_answer(SUSPECT, u32::from(word), bits);
    }

    fn unplug(&self) {
        self.unplug(SUSPECT);
    }
}

/// A page of guards, the suspect side's memory, guards, the honest side's, guards.
#[repr(align(4096))]
struct Pages([[AtomicU8; PAGE]; 5]);

static PAGES: Pages = Pages([const { [const { AtomicU8::new(0) }; PAGE] }; 5]);
const GUARD_BYTE: u8 = b'G';

fn page(side: usize) -> &'static [AtomicU8] {
    &PAGES.0[1 + 2 * side]
}

type Lock = SpinLock;
type Slots<B> = IaStorage<B, Lock, 4, 8, 1, 8, 512, 256>;

/// Something that was posted; its cookie is its place.
#[derive(Clone, Copy, Debug)]
struct Posted {
    /// The endpoint, by its place; none of a shared buffer.
    ep: Option<usize>,
    receives: bool,
    binds: bool,
    length: u64,
    /// Whether a success is not told.
    silent: bool,
    /// Whether a reset has ended the life of its endpoint, with which completions nobody took are gone.
    forgotten: bool,
    /// Whether it has completed.
    done: bool,
}

/// An adapter with what is on it.
struct Side<'t, B: Backend> {
    number: usize,
    ia: Ia<'t, B, Lock>,
    zone: PzId,
    memory: LmrCreated,
    /// Of receives, requests, connections, and requests for them.
    dispatchers: [EvdId; 4],
    endpoints: [EpId; PAIRS],
    shared: Option<SrqId>,
    window: Option<RmrId>,
    point: PspId,
    posted: Vec<Posted>,
    catastrophes: usize,
}

fn open<B: Backend>(storage: &mut Slots<B>, backend: B) -> Option<Ia<'_, B, Lock>> {
    Ia::open(backend, storage.lend(), 8).ok()
}

impl<'t, B: Backend> Side<'t, B> {
    /// Makes everything; a suspect device may refuse.
    fn new(number: usize, ia: Ia<'t, B, Lock>) -> Result<Self> {
        let zone = ia.pz_create()?;
        let memory = ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_static(page(number))),
            pz: zone,
            privileges: MemoryPrivileges::ALL,
        })?;
        let receive = ia.evd_create(64, None, EvdFlags::DTO)?;
        let request = ia.evd_create(64, None, EvdFlags::DTO | EvdFlags::RMR_BIND)?;
        let connect = ia.evd_create(32, None, EvdFlags::CONNECTION)?;
        let arrivals = ia.evd_create(32, None, EvdFlags::CR)?;
        let point = ia.psp_create(QUALIFIER + number as u64, arrivals, PspFlags::Consumer)?;
        let attributes = EpAttributes {
            max_message_size: 1 << 16,
            max_rdma_size: 1 << 16,
            max_request_dtos: 8,
            max_recv_dtos: 8,
            max_request_iov: 2,
            max_recv_iov: 2,
            max_rdma_read_in: 4,
            max_rdma_read_out: 4,
            request_completion_flags: CompletionFlags::empty(),
            ..EpAttributes::DEFAULT
        };
        let shape = SrqAttributes {
            max_recv_dtos: 8,
            max_recv_iov: 2,
            low_watermark: 0,
        };
        let shared = if number == SUSPECT {
            ia.srq_create(zone, &shape).ok()
        } else {
            None
        };
        let (r, q, c) = (Some(receive), Some(request), Some(connect));
        let own = ia.ep_create(Some(zone), r, q, c, Some(&attributes))?;
        let other = match shared {
            Some(shared) => ia.ep_create_with_srq(Some(zone), r, q, c, shared, &attributes)?,
            None => ia.ep_create(Some(zone), r, q, c, Some(&attributes))?,
        };
        let window = ia.rmr_create(zone).ok();
        Ok(Self {
            number,
            ia,
            zone,
            memory,
            dispatchers: [receive, request, connect, arrivals],
            endpoints: [own, other],
            shared,
            window,
            point,
            posted: Vec::new(),
            catastrophes: 0,
        })
    }

    fn piece(&self, offset: u8, length: u64) -> LmrTriplet {
        LmrTriplet {
            context: self.memory.lmr_context,
            address: Region::from_static(page(self.number)).address() + u64::from(offset) * 16,
            length,
        }
    }

    fn remote(&self, offset: u8, length: u64) -> RmrTriplet {
        RmrTriplet {
            context: self.memory.rmr_context,
            address: Region::from_static(page(self.number)).address() + u64::from(offset) * 16,
            length,
        }
    }

    fn post(&mut self, to: &RmrTriplet, at: u8, kind: u8, offset: u8, length: u8, flags: u8) {
        let length = u64::from(length) * 8;
        let ep = usize::from(at >> 1) % PAIRS;
        let endpoint = self.endpoints[ep];
        let cookie = self.posted.len() as u64;
        let whole = [self.piece(offset, length)];
        let halves = [
            self.piece(offset, length / 2),
            self.piece(offset, length - length / 2),
        ];
        let pieces: &[LmrTriplet] = match flags >> 5 {
            0..5 => &whole,
            5 => &[],
            _ => &halves,
        };
        let length = pieces.iter().map(|piece| piece.length).sum();
        let wanted = CompletionFlags::from_bits_truncate(u32::from(flags & 0xB));
        let receives = matches!(kind % 6, 3 | 4);
        let none = CompletionFlags::empty();
        let ia = &self.ia;
        let done = match kind % 6 {
            0 => ia.post_send(endpoint, pieces, cookie, wanted),
            1 => ia.post_rdma_write(endpoint, pieces, cookie, to, wanted),
            2 => ia.post_rdma_read(endpoint, pieces, cookie, to, wanted),
            3 => ia.post_recv(endpoint, pieces, cookie, none),
            4 => match self.shared {
                Some(shared) => ia.srq_post_recv(shared, pieces, cookie),
                None => return,
            },
            _ => match self.window {
                Some(window) => {
                    let rights = MemoryPrivileges::REMOTE_READ | MemoryPrivileges::REMOTE_WRITE;
                    let bound = ia.rmr_bind(window, &whole[0], rights, endpoint, cookie, wanted);
                    bound.map(drop)
                }
                None => return,
            },
        };
        if done.is_ok() {
            self.posted.push(Posted {
                ep: (kind % 6 != 4).then_some(ep),
                receives,
                binds: kind % 6 == 5,
                length,
                silent: !receives && wanted.contains(CompletionFlags::SUPPRESS),
                forgotten: false,
                done: false,
            });
        }
    }

    /// An event was taken; connection requests come back.
    fn taken(&mut self, from: usize, event: Event) -> Option<dat_core::id::CrId> {
        match event {
            Event::Dto(done) => {
                let posted = self.posted.get_mut(done.cookie as usize);
                let posted = posted.unwrap_or_else(|| panic!("never posted: {done:?}"));
                assert!(!posted.done, "twice: {done:?}");
                posted.done = true;
                let receives = done.operation == DtoOperation::Receive;
                assert_eq!(
                    (posted.receives, posted.binds),
                    (receives, false),
                    "{done:?}"
                );
                assert_eq!(from, usize::from(!receives), "{done:?}");
                let ep = posted.ep.unwrap_or(1);
                assert_eq!(done.ep, self.endpoints[ep], "{done:?}");
                if done.status == DtoStatus::Success {
                    assert!(done.transferred_length <= posted.length, "{done:?}");
                    assert!(!posted.silent, "{done:?}");
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

    fn take(&mut self, from: usize) {
        while let Ok(event) = self.ia.evd_dequeue(self.dispatchers[from]) {
            let arrived = self.taken(from, event);
            assert!(arrived.is_none());
        }
    }

    fn wait(&mut self, from: usize, threshold: u8) {
        let taken = match self
            .ia
            .evd_wait(self.dispatchers[from], i32::from(threshold))
        {
            Ok(mut wait) => match wait.poll(Waker::noop()) {
                Poll::Ready(Ok(waited)) => waited.event,
                _ => return,
            },
            Err(_) => return,
        };
        self.taken(from, taken);
    }

    /// Begins another life of an endpoint.
    fn reset(&mut self, pair: usize) -> Result<()> {
        self.ia.ep_reset(self.endpoints[pair])?;
        for posted in self
            .posted
            .iter_mut()
            .filter(|posted| posted.ep == Some(pair))
        {
            posted.forgotten = true;
        }
        Ok(())
    }

    /// Something is made, or asked of the device, that the run does not need.
    fn make(&mut self, kind: u8) {
        let ia = &self.ia;
        let _refused = match kind % 7 {
            0 => ia
                .evd_create(8, None, EvdFlags::DTO)
                .and_then(|evd| ia.evd_free(evd)),
            1 => ia.pz_create().and_then(|zone| ia.pz_free(zone)),
            2 => {
                let made = ia.ep_create(
                    Some(self.zone),
                    Some(self.dispatchers[0]),
                    Some(self.dispatchers[1]),
                    Some(self.dispatchers[2]),
                    None,
                );
                made.and_then(|ep| ia.ep_free(ep))
            }
            3 => {
                let made = ia.lmr_create(&LmrRequest {
                    memory: LmrMemory::Virtual(Region::from_static(page(self.number))),
                    pz: self.zone,
                    privileges: MemoryPrivileges::LOCAL_READ,
                });
                made.and_then(|made| ia.lmr_free(made.lmr))
            }
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

    /// Ends everything that is on the adapter, and the adapter.
    fn end(mut self, caught: bool) {
        for from in 0..4 {
            if from != 3 {
                self.take(from);
            }
        }
        let async_evd = self.ia.async_evd();
        while let Ok(event) = self.ia.evd_dequeue(async_evd) {
            self.taken(4, event);
        }
        if caught || self.number == HONEST {
            // Receives wait on an endpoint that was not connected since.
            let is_over = |ep: usize| {
                let status = self.ia.ep_get_status(self.endpoints[ep]);
                status.expect("an endpoint").state == EndpointState::Disconnected
            };
            let over = [is_over(0), is_over(1)];
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
        if let Err(refused) = ia.close(CloseFlags::Abrupt) {
            panic!("{}", refused.error);
        }
    }
}

/// All of a run.
struct World<'w, 't, 'u, L: Layout, A: Backend, B: Backend> {
    fabric: &'w L,
    suspect: Side<'t, A>,
    honest: Side<'u, B>,
    /// The endpoint of the honest side that is connected next.
    wanted: Option<usize>,
}

fn play<L: Layout>(
    fabric: &L,
    [first, second]: &mut [L::Lent; 2],
    setup: &[u8; SETUP_SIZE],
    operations: &[Operation],
) {
    for (number, page) in PAGES.0.iter().enumerate() {
        let byte = if number % 2 == 0 {
            GUARD_BYTE
        } else {
            b'0' + number as u8
        };
        for cell in page {
            cell.store(byte, Ordering::Relaxed);
        }
    }
    let coherent = |mut options: NodeOptions| {
        options.coherent = setup[1] & 0x80 == 0;
        options
    };
    let suspect = fabric.device(coherent(NodeOptions::new("suspect", 1)), Some(setup), first);
    let Some((suspect, state)) = suspect else {
        return;
    };
    let honest = fabric.device(coherent(NodeOptions::new("honest", 2)), None, second);
    let (honest, honest_state) = honest.expect("an honest device");
    let (mut near, mut far) = (Box::new(Slots::default()), Box::new(Slots::default()));
    let Some(ia) = open(&mut near, suspect) else {
        return;
    };
    let suspect = match Side::new(SUSPECT, ia) {
        Ok(suspect) => suspect,
        // Only one that is not as others lacks anything.
        Err(error) => return assert_ne!(setup[1] & 0x1D, setup[1] & 1, "{error}"),
    };
    let ia = open(&mut far, honest).expect("an adapter");
    let honest = Side::new(HONEST, ia).expect("objects of an honest device");
    let mut world = World {
        fabric,
        suspect,
        honest,
        wanted: None,
    };
    for pair in 0..PAIRS {
        world.connect(pair);
    }
    for operation in operations {
        world.act(*operation);
    }
    // Whatever has been written is seen now, if it ever is.
    world.suspect.take(0);
    world.suspect.take(1);
    for pair in 0..PAIRS {
        let _anything = world
            .suspect
            .ia
            .ep_disconnect(world.suspect.endpoints[pair], CloseFlags::Abrupt);
        let _anything = world
            .honest
            .ia
            .ep_disconnect(world.honest.endpoints[pair], CloseFlags::Abrupt);
    }
    for _ in 0..4 {
        world.settle(ROUNDS);
        for from in 0..3 {
            world.suspect.take(from);
            world.honest.take(from);
        }
    }
    world.check();
    assert_eq!(honest_state.fault(), None, "of the honest device");
    let World {
        suspect, honest, ..
    } = world;
    suspect.end(state.fault().is_some());
    honest.end(false);
}

impl<L: Layout, A: Backend, B: Backend> World<'_, '_, '_, L, A, B> {
    fn act(&mut self, operation: Operation) {
        match operation {
            Operation::Post {
                at,
                kind,
                offset,
                length,
                flags,
            } => {
                // Legitimate is what the interface allows: it refuses the rest.
                let there = u64::from(length) * 8;
                if at & 1 == 0 {
                    let to = self.honest.remote(offset, there);
                    self.suspect.post(&to, at, kind, offset, length, flags);
                } else {
                    let to = self.suspect.remote(offset, there);
                    self.honest.post(&to, at, kind, offset, length, flags);
                }
            }
            Operation::Take { at, dispatcher } => {
                let from = usize::from(dispatcher) % 3;
                if at & 1 == 0 {
                    self.suspect.take(from);
                } else {
                    self.honest.take(from);
                }
            }
            Operation::Wait {
                at,
                dispatcher,
                threshold,
            } => {
                let from = usize::from(dispatcher) % 3;
                if at & 1 == 0 {
                    self.suspect.wait(from, threshold);
                } else {
                    self.honest.wait(from, threshold);
                }
            }
            Operation::Go { steps } => self.settle(usize::from(steps)),
            Operation::Scrawl {
                area,
                word,
                how,
                value,
            } => {
                let value = u32::from(value);
                let change = |word: u32| match how % 8 {
                    0 => word ^ 1 << (value % 32),
                    1 => value,
                    2 => u32::MAX,
                    3 => word.wrapping_add(value),
                    4 => word.wrapping_sub(value),
                    5 => value << 24,
                    6 => word ^ value << 8,
                    _ => word.swap_bytes(),
                };
                self.fabric
                    .scrawl(area.into(), u16::from_le_bytes(word).into(), change);
            }
            Operation::Lie { kind, bit } => self.fabric.lie(kind, bit),
            Operation::Tell { kind, number } => self.fabric.tell(kind, number),
            Operation::Answer { word, bit } => {
                let bits = if bit < 32 { 1 << bit } else { u32::MAX };
                self.fabric.answer(word, bits);
            }
            Operation::Unplug => self.fabric.unplug(),
            Operation::Connection { at, how } => self.connection(at, how),
            Operation::Make { at, kind } => {
                if at & 1 == 0 {
                    self.suspect.make(kind);
                } else {
                    self.honest.make(kind);
                }
            }
        }
    }

    fn connection(&mut self, at: u8, how: u8) {
        let pair = usize::from(at >> 1) % PAIRS;
        let flags = [CloseFlags::Abrupt, CloseFlags::Graceful][usize::from(how >> 2) % 2];
        let (near, far) = (self.suspect.endpoints[pair], self.honest.endpoints[pair]);
        let _anything = match (how % 4, at & 1) {
            (0, 0) => self.suspect.ia.ep_disconnect(near, flags),
            (0, _) => self.honest.ia.ep_disconnect(far, flags),
            (1, 0) => self.suspect.reset(pair),
            (1, _) => self.honest.reset(pair),
            _ => {
                self.connect(pair);
                Ok(())
            }
        };
    }

    /// Connects two endpoints, if they are ready for it and the device lets them.
    fn connect(&mut self, pair: usize) {
        self.wanted = Some(pair);
        let asked = self.suspect.ia.ep_connect(
            self.suspect.endpoints[pair],
            &ConnectParam {
                address: NodeOptions::new("", 2).address,
                qualifier: QUALIFIER + HONEST as u64,
                timeout: TIMEOUT_INFINITE,
                private_data: &[],
                quality: QualityOfService::BEST_EFFORT,
                flags: ConnectFlags::empty(),
            },
            self.fabric.now(),
        );
        if asked.is_ok() {
            self.settle(ROUNDS);
        }
    }

    /// Lets everything go on until it rests, or for so many rounds.
    fn settle(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let now = self.fabric.now();
            let handled = self.suspect.ia.progress(now) + self.honest.ia.progress(now);
            let arrivals = self.honest.dispatchers[3];
            while let Ok(event) = self.honest.ia.evd_dequeue(arrivals) {
                let Some(request) = self.honest.taken(3, event) else {
                    continue;
                };
                let ia = &self.honest.ia;
                let accepted = self.wanted.take().is_some_and(|pair| {
                    ia.cr_accept(request, Some(self.honest.endpoints[pair]), &[])
                        .is_ok()
                });
                if !accepted {
                    let _gone = ia.cr_reject(request, &[]);
                }
            }
            if !self.fabric.step() && handled == 0 {
                return;
            }
        }
    }

    /// No byte was written that is not registered.
    fn check(&self) {
        for guard in PAGES.0.iter().step_by(2) {
            let intact = guard
                .iter()
                .all(|cell| cell.load(Ordering::Relaxed) == GUARD_BYTE);
            assert!(intact, "a guard is hurt");
        }
    }
}
