//! Two adapters on a bed, the operations on them, and a record of the results.

use std::fmt::Debug;
use std::rc::Rc;

use dat_core::Result;
use dat_core::attributes::{EpAttributes, SrqAttributes};
use dat_core::endpoint::{ConnectParam, EpStatus};
use dat_core::flags::{
    CloseFlags, CompletionFlags, ConnectFlags, EndpointState, EvdFlags, MemoryPrivileges, PspFlags,
    QualityOfService, TIMEOUT_INFINITE,
};
use dat_core::id::{CrId, EpId, EvdId, PzId, RmrId, SrqId};
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};

use super::Record;
use super::differences::{Difference, differs};
use super::operation::{Operation, PAIRS, Place, Shape};
use crate::fixture::{Adapter, Memory, Net, Testbed, granted};

mod rest;

/// Bytes of each area.
///
/// Every endpoint has four: one to receive into, one that it sends from and its peer reads, one
/// that its peer writes, one that it reads into.
const AREA: u64 = 512;
const AREAS: u64 = 4;
const RECEIVED: u64 = 0;
const SOURCE: u64 = 1;
const TARGET: u64 = 2;
const READ: u64 = 3;
/// Receives of each receive queue and of the shared receive queue.
const RECEIVES: i32 = 6;
const REQUESTS: i32 = 6;
const SEGMENTS: i32 = 3;
/// The endpoint that receives from a shared receive queue.
const SHARING: Place = Place { side: 1, pair: 1 };

/// An endpoint and its objects.
struct End {
    ep: EpId,
    /// Dispatchers of receives, of requests and of the connection.
    dispatchers: [EvdId; 3],
    /// Lengths of the pending receives, oldest first.
    waiting: Vec<u64>,
    /// The range that the peer may write through, as of the last completed bind.
    opened: Option<RmrTriplet>,
    /// The pending bind: its cookie and its range.
    opening: Option<(u64, RmrTriplet)>,
    window: Option<RmrId>,
    /// Set if a request was posted since everything was last at rest.
    busy: bool,
    /// Set if a read was posted since then.
    reads: bool,
}

struct Side<T: Testbed> {
    ia: Rc<Adapter<T>>,
    zone: PzId,
    other_zone: PzId,
    memory: Memory,
    ends: Vec<End>,
    shared: Option<SrqId>,
    arrivals: EvdId,
    software: EvdId,
    qualifier: u64,
    arrived: Option<CrId>,
}

pub(super) struct World<'b, T: Testbed> {
    net: Net<'b, T>,
    backend: &'b str,
    sides: Vec<Side<T>>,
    record: Record,
    cookie: u64,
}

fn attributes() -> EpAttributes {
    EpAttributes {
        max_message_size: 1 << 16,
        max_rdma_size: 1 << 16,
        max_recv_dtos: RECEIVES,
        max_request_dtos: REQUESTS,
        max_recv_iov: SEGMENTS,
        max_request_iov: SEGMENTS,
        max_rdma_read_in: 4,
        max_rdma_read_out: 4,
        max_rdma_read_iov: SEGMENTS,
        max_rdma_write_iov: SEGMENTS,
        ..EpAttributes::DEFAULT
    }
}

impl<'b, T: Testbed> World<'b, T> {
    pub(super) fn new(bed: &'b T, backend: &'b str, without_windows: bool) -> Self {
        let net = Net::new(bed);
        let sides = (0..2).map(|number| {
            let ia = net.adapter();
            let zone = granted(ia.pz_create());
            let length = (PAIRS as u64 * AREAS * AREA) as usize;
            let memory = Memory::register(&ia, zone, length, MemoryPrivileges::ALL);
            memory.fill(number as u8);
            let mut shared = None;
            let ends = (0..PAIRS).map(|pair| {
                let receive = granted(ia.evd_create(32, None, EvdFlags::DTO));
                let request = granted(ia.evd_create(32, None, EvdFlags::DTO | EvdFlags::RMR_BIND));
                let connect = granted(ia.evd_create(8, None, EvdFlags::CONNECTION));
                let (r, q, c) = (Some(receive), Some(request), Some(connect));
                let ep = if (Place { side: number, pair }) == SHARING {
                    let shape = SrqAttributes {
                        max_recv_dtos: RECEIVES,
                        max_recv_iov: SEGMENTS,
                        low_watermark: 0,
                    };
                    let srq = granted(ia.srq_create(zone, &shape));
                    shared = Some(srq);
                    ia.ep_create_with_srq(Some(zone), r, q, c, srq, &attributes())
                } else {
                    ia.ep_create(Some(zone), r, q, c, Some(&attributes()))
                };
                End {
                    ep: granted(ep),
                    dispatchers: [receive, request, connect],
                    waiting: Vec::new(),
                    opened: None,
                    opening: None,
                    window: (!without_windows).then(|| granted(ia.rmr_create(zone))),
                    busy: false,
                    reads: false,
                }
            });
            let ends = ends.collect();
            let arrivals = granted(ia.evd_create(8, None, EvdFlags::CR));
            let qualifier = net.qualifier();
            granted(ia.psp_create(qualifier, arrivals, PspFlags::Consumer));
            Side {
                zone,
                other_zone: granted(ia.pz_create()),
                memory,
                ends,
                shared,
                arrivals,
                software: granted(ia.evd_create(8, None, EvdFlags::SOFTWARE)),
                qualifier,
                arrived: None,
                ia,
            }
        });
        let sides = sides.collect();
        Self {
            net,
            backend,
            sides,
            record: Record::default(),
            cookie: 0,
        }
    }

    fn differs(&self, what: Difference) -> bool {
        differs(self.backend, what)
    }

    /// Carries out all operations and returns the record.
    pub(super) fn play(mut self, operations: &[Operation]) -> Record {
        for pair in 0..PAIRS {
            self.connect(Place { side: 0, pair }, 3, 5, true);
        }
        for (number, operation) in operations.iter().enumerate() {
            self.record.begin(number, operation);
            self.act(*operation);
        }
        self.record.begin(operations.len(), &"the end");
        self.rest();
        self.free();
        self.record
    }

    fn end_of(&mut self, at: Place) -> &mut End {
        &mut self.sides[at.side].ends[at.pair]
    }

    /// Returns the offset of an area of an endpoint in the memory of its side.
    fn area(at: Place, area: u64) -> u64 {
        (at.pair as u64 * AREAS + area) * AREA
    }

    /// Returns segments inside an area.
    fn segments(&self, at: Place, area: u64, shape: Shape) -> Vec<LmrTriplet> {
        let memory = &self.sides[at.side].memory;
        let base = Self::area(at, area);
        let count = u64::from(shape.segments.min(SEGMENTS as u8));
        let length = u64::from(shape.length) / 3;
        (0..count)
            .map(|number| {
                let offset = (u64::from(shape.offset) + number * 100) % (AREA - 128);
                memory.segment(base + offset, length)
            })
            .collect()
    }

    fn next_cookie(&mut self) -> u64 {
        self.cookie += 1;
        self.cookie
    }

    /// Returns true if a message of `length` bytes fits the oldest receive of the peer.
    fn finds_its_place(&self, at: Place, length: u64) -> bool {
        let to = Place {
            side: 1 - at.side,
            ..at
        };
        let waiting = &self.sides[to.side].ends[to.pair].waiting;
        waiting.first().is_some_and(|room| *room >= length)
    }

    fn returned<R: Debug>(&mut self, result: &Result<R>) {
        self.record.returned(match result {
            Ok(_) => "ok".into(),
            Err(error) => format!("{:?}/{:?}", error.kind(), error.subtype()),
        });
    }

    fn receive(&mut self, at: Place, segments: &[LmrTriplet]) {
        let cookie = self.next_cookie();
        let side = &self.sides[at.side];
        let posted = match side.shared {
            Some(shared) if at == SHARING => side.ia.srq_post_recv(shared, segments, cookie),
            _ => {
                let none = CompletionFlags::empty();
                side.ia
                    .post_recv(side.ends[at.pair].ep, segments, cookie, none)
            }
        };
        self.returned(&posted);
        if posted.is_ok() {
            let length = segments.iter().map(|segment| segment.length).sum();
            self.end_of(at).waiting.push(length);
        }
    }

    fn send(&mut self, at: Place, segments: &[LmrTriplet], flags: CompletionFlags) {
        let cookie = self.next_cookie();
        let length = segments.iter().map(|segment| segment.length).sum();
        let fits = self.finds_its_place(at, length);
        let mut arrives = true;
        if self.differs(Difference::NothingBreaks) {
            arrives = self.state(at) == EndpointState::Connected;
            if arrives && !fits {
                return;
            }
        }
        let side = &self.sides[at.side];
        let posted = side
            .ia
            .post_send(side.ends[at.pair].ep, segments, cookie, flags);
        self.returned(&posted);
        if posted.is_ok() {
            self.end_of(at).busy = true;
            let to = Place {
                side: 1 - at.side,
                ..at
            };
            let waiting = &mut self.end_of(to).waiting;
            if !arrives {
                // The message is flushed and takes no receive.
            } else if fits {
                waiting.remove(0);
            } else {
                // A failure comes to rest first, so that it breaks no other operation.
                self.rest();
            }
        }
    }

    fn act(&mut self, operation: Operation) {
        let wanted = |flags: u8| {
            // No flag here changes the order of requests.
            match flags % 8 {
                0 => CompletionFlags::SUPPRESS,
                1 => CompletionFlags::SOLICITED_WAIT,
                2 => CompletionFlags::BARRIER_FENCE,
                _ => CompletionFlags::empty(),
            }
        };
        match operation {
            Operation::Receive { at, shape } => {
                let segments = self.segments(at, RECEIVED, shape);
                self.receive(at, &segments);
            }
            Operation::Send { at, shape, flags } => {
                let segments = self.segments(at, SOURCE, shape);
                self.send(at, &segments, wanted(flags));
            }
            Operation::Message { at, length } => {
                let to = Place {
                    side: 1 - at.side,
                    ..at
                };
                let shape = Shape {
                    segments: 1,
                    offset: length,
                    length,
                };
                let into = self.segments(to, RECEIVED, shape);
                self.receive(to, &into);
                let from = self.segments(at, SOURCE, shape);
                self.send(at, &from, CompletionFlags::empty());
            }
            Operation::Write {
                at,
                shape,
                to,
                flags,
            } => {
                let segments = self.segments(at, SOURCE, shape);
                self.transfer(at, &segments, TARGET, to, wanted(flags));
            }
            Operation::Read {
                at,
                shape,
                from,
                flags,
            } => {
                if self.end_of(at).reads && self.differs(Difference::ReadsApart) {
                    self.rest();
                }
                let segments = self.segments(at, READ, shape);
                self.transfer(at, &segments, SOURCE, from, wanted(flags));
            }
            Operation::Bind {
                at,
                offset,
                length,
                writes,
            } => self.bind(at, offset, length, writes),
            Operation::WriteBound { at, length } => self.write_bound(at, length),
            Operation::Wrong { at, kind } => self.wrong(at, kind),
            Operation::Store {
                side,
                at,
                value,
                count,
            } => {
                self.rest();
                let bytes = vec![value; usize::from(count)];
                self.sides[usize::from(side)]
                    .memory
                    .store(usize::from(at) * 8, &bytes);
            }
            Operation::Sync {
                side,
                reads,
                offset,
                length,
            } => {
                let side = &self.sides[usize::from(side)];
                let segments = [side.memory.segment(offset.into(), u64::from(length) * 32)];
                let done = if reads {
                    side.ia.lmr_sync_rdma_read(&segments)
                } else {
                    side.ia.lmr_sync_rdma_write(&segments)
                };
                self.returned(&done);
            }
            Operation::Objects { side, kind, number } => self.objects(side.into(), kind, number),
            Operation::Software { side, value } => {
                let side = &self.sides[usize::from(side)];
                let posted = side.ia.evd_post_se(side.software, value.into());
                self.returned(&posted);
            }
            Operation::Status { at } => {
                self.rest();
                let side = &self.sides[at.side];
                let status = granted(side.ia.ep_get_status(side.ends[at.pair].ep));
                self.record.returned(format!("{status:?}"));
            }
            Operation::Disconnect { at, graceful } => {
                if self.differs(Difference::EndsAtRest) {
                    self.rest();
                }
                let flags = if graceful {
                    CloseFlags::Graceful
                } else {
                    CloseFlags::Abrupt
                };
                let side = &self.sides[at.side];
                let done = side.ia.ep_disconnect(side.ends[at.pair].ep, flags);
                self.returned(&done);
                self.rest();
            }
            Operation::Reset { at } => {
                self.rest();
                let side = &self.sides[at.side];
                let done = side.ia.ep_reset(side.ends[at.pair].ep);
                self.returned(&done);
            }
            Operation::Connect {
                at,
                data,
                answer,
                accepts,
            } => self.connect(at, data, answer, accepts),
            Operation::Rest => self.rest(),
        }
    }

    fn transfer(
        &mut self,
        at: Place,
        segments: &[LmrTriplet],
        area: u64,
        offset: u8,
        flags: CompletionFlags,
    ) {
        let cookie = self.next_cookie();
        let to = Place {
            side: 1 - at.side,
            ..at
        };
        let length: u64 = segments.iter().map(|segment| segment.length).sum();
        let inside = u64::from(offset) % (AREA - length.min(AREA - 1));
        let remote = self.sides[to.side]
            .memory
            .remote(Self::area(to, area) + inside, length);
        let side = &self.sides[at.side];
        let ep = side.ends[at.pair].ep;
        let posted = if area == SOURCE {
            side.ia.post_rdma_read(ep, segments, cookie, &remote, flags)
        } else {
            side.ia
                .post_rdma_write(ep, segments, cookie, &remote, flags)
        };
        self.returned(&posted);
        let end = self.end_of(at);
        end.busy |= posted.is_ok();
        end.reads |= posted.is_ok() && area == SOURCE;
    }

    fn bind(&mut self, at: Place, offset: u8, length: u8, writes: bool) {
        if self.end_of(at).opening.is_some() {
            self.rest();
        }
        let connected = self.state(at) == EndpointState::Connected;
        if !connected && self.differs(Difference::BindsConnected) {
            return;
        }
        let cookie = self.next_cookie();
        let segment = self.sides[at.side].memory.segment(
            Self::area(at, TARGET) + u64::from(offset),
            u64::from(length) / 2,
        );
        let rights = if writes {
            MemoryPrivileges::REMOTE_WRITE | MemoryPrivileges::REMOTE_READ
        } else {
            MemoryPrivileges::REMOTE_READ
        };
        let side = &self.sides[at.side];
        let end = &side.ends[at.pair];
        let Some(window) = end.window else {
            return;
        };
        // Requests of the peer that are under way use the old context.
        let (ia, ep) = (Rc::clone(&side.ia), end.ep);
        self.rest();
        let none = CompletionFlags::empty();
        let bound = ia.rmr_bind(window, &segment, rights, ep, cookie, none);
        self.returned(&bound);
        if let Ok(context) = bound {
            let end = self.end_of(at);
            end.opened = None;
            end.busy = true;
            let opened = RmrTriplet {
                context,
                address: segment.address,
                length: if writes { segment.length } else { 0 },
            };
            end.opening = Some((cookie, opened));
        }
    }

    fn write_bound(&mut self, at: Place, length: u8) {
        self.rest();
        let to = Place {
            side: 1 - at.side,
            ..at
        };
        let Some(opened) = self.end_of(to).opened.filter(|opened| opened.length != 0) else {
            return;
        };
        let cookie = self.next_cookie();
        let length = u64::from(length) % (opened.length + 1);
        let side = &self.sides[at.side];
        let segment = side.memory.segment(Self::area(at, SOURCE), length);
        let remote = RmrTriplet { length, ..opened };
        let none = CompletionFlags::empty();
        let ep = side.ends[at.pair].ep;
        let posted = side
            .ia
            .post_rdma_write(ep, &[segment], cookie, &remote, none);
        self.returned(&posted);
    }

    /// Makes a call that is invalid in every state, each kind for another reason.
    fn wrong(&mut self, at: Place, kind: u8) {
        let cookie = self.next_cookie();
        let side = &self.sides[at.side];
        let (ia, ep) = (&side.ia, side.ends[at.pair].ep);
        let (memory, none) = (&side.memory, CompletionFlags::empty());
        let good = memory.segment(0, 8);
        let remote = memory.remote(0, 8);
        let foreign = RmrTriplet {
            length: 4,
            ..remote
        };
        let result = match kind % 12 {
            0 => ia.post_send(
                ep,
                &[memory.segment(memory.len() as u64 - 4, 8)],
                cookie,
                none,
            ),
            1 => ia.post_recv(ep, &[memory.segment(u64::MAX - 3, 8)], cookie, none),
            2 => ia.post_send(ep, &[good; 9], cookie, none),
            3 => {
                let segment = LmrTriplet {
                    context: good.context ^ 0x4000_0000,
                    ..good
                };
                ia.post_rdma_write(ep, &[segment], cookie, &remote, none)
            }
            4 => ia.post_rdma_write(ep, &[good], cookie, &foreign, none),
            5 => ia.post_send(ep, &[good], cookie, CompletionFlags::from_bits_retain(0x40)),
            6 => ia.post_rdma_read(ep, &[good; 4], cookie, &remote, none),
            7 => ia.evd_free(side.ends[at.pair].dispatchers[0]),
            8 => ia.pz_free(side.zone),
            9 => ia.evd_resize(side.ends[at.pair].dispatchers[1], -1),
            10 => match side.shared {
                Some(shared) => {
                    ia.srq_post_recv(shared, &[memory.segment(memory.len() as u64, 1)], cookie)
                }
                None => Ok(()),
            },
            _ => ia.ep_set_watermark(ep, -5, -5),
        };
        self.returned(&result);
        if result.is_ok() {
            // A granted post is under way.
            self.end_of(at).busy = true;
        }
    }

    fn objects(&mut self, side: usize, kind: u8, number: u8) {
        let side = &self.sides[side];
        let ia = &side.ia;
        let memory = |privileges| LmrRequest {
            memory: LmrMemory::Virtual(Region::from_static(side.memory.block())),
            pz: side.other_zone,
            privileges,
        };
        let result = match kind % 6 {
            0 => ia.pz_create().and_then(|zone| ia.pz_free(zone)),
            1 => {
                let rights = MemoryPrivileges::from_bits_retain(u32::from(number % 64));
                let made = ia.lmr_create(&memory(rights));
                made.and_then(|made| ia.lmr_free(made.lmr))
            }
            2 => {
                let flags = EvdFlags::from_bits_retain(u32::from(number & 0xF1));
                let made = ia.evd_create(i32::from(number), None, flags);
                made.and_then(|evd| ia.evd_free(evd))
            }
            3 => {
                let [r, q, c] = side.ends[0].dispatchers;
                let changed = EpAttributes {
                    max_recv_dtos: i32::from(number) - 20,
                    ..attributes()
                };
                let made = ia.ep_create(
                    Some(side.other_zone),
                    Some(r),
                    Some(q),
                    Some(c),
                    Some(&changed),
                );
                made.and_then(|ep| ia.ep_free(ep))
            }
            4 => {
                let evd = side.ends[usize::from(number) % PAIRS].dispatchers[1];
                ia.evd_resize(evd, 32 + i32::from(number % 32))
            }
            _ => {
                let made = ia.srq_create(
                    side.other_zone,
                    &SrqAttributes {
                        max_recv_dtos: i32::from(number) - 8,
                        max_recv_iov: 2,
                        low_watermark: 0,
                    },
                );
                made.and_then(|srq| ia.srq_free(srq))
            }
        };
        self.returned(&result);
    }

    fn connect(&mut self, at: Place, data: u8, answer: u8, accepts: bool) {
        self.rest();
        let to = Place {
            side: 1 - at.side,
            ..at
        };
        let address = self.net.address(&self.sides[to.side].ia);
        let qualifier = self.sides[to.side].qualifier;
        let side = &self.sides[at.side];
        let data: Vec<u8> = (0..data % 65).collect();
        let connected = side.ia.ep_connect(
            side.ends[at.pair].ep,
            &ConnectParam {
                address,
                qualifier,
                timeout: TIMEOUT_INFINITE,
                private_data: &data,
                quality: QualityOfService::BEST_EFFORT,
                flags: ConnectFlags::empty(),
            },
            self.net.bed.now(),
        );
        self.returned(&connected);
        if connected.is_err() {
            return;
        }
        self.await_request(at);
        self.rest();
        let answer: Vec<u8> = (0..answer % 65).rev().collect();
        let side = &mut self.sides[to.side];
        let Some(request) = side.arrived.take() else {
            return self.record.returned("nobody was asked".into());
        };
        let ep = side.ends[to.pair].ep;
        let accepted = if accepts {
            side.ia.cr_accept(request, Some(ep), &answer)
        } else {
            side.ia.cr_reject(request, &answer)
        };
        if accepted.is_err() {
            let _gone = side.ia.cr_reject(request, &[]);
        }
        self.returned(&accepted);
        self.rest();
    }

    fn status(&self, at: Place) -> EpStatus {
        let side = &self.sides[at.side];
        granted(side.ia.ep_get_status(side.ends[at.pair].ep))
    }

    fn state(&self, at: Place) -> EndpointState {
        self.status(at).state
    }

    /// Frees endpoints, windows, shared queues and memory.
    fn free(&self) {
        for side in &self.sides {
            for end in &side.ends {
                granted(side.ia.ep_free(end.ep));
                if let Some(window) = end.window {
                    granted(side.ia.rmr_free(window));
                }
            }
            if let Some(shared) = side.shared {
                granted(side.ia.srq_free(shared));
            }
            granted(side.ia.lmr_free(side.memory.lmr));
        }
    }
}
