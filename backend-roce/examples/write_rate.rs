//! Time of an RDMA Write between two adapters of this process.
//!
//! `cargo run --release -p backend-roce --features udp --example write_rate -- ARGUMENTS`
//!
//! The arguments are IP MODE DEPTH [WRITES [BYTES [IDLE]]]. MODE is `polled` for adapters that this
//! thread moves, or `threads` for adapters with threads of their own; their packets go through
//! sockets. `local-polled` and `local-threads` are the same through queues in memory, and
//! `local-both` has a thread that moves the far adapter. DEPTH writes are under way. IDLE further
//! connections are made first, and stay idle.
//!
//! Prints nanoseconds of a write with its completion, and on standard error the memory of an idle
//! connection.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use backend_roce::{PathChoice, RoceBackend, RoceOptions};
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::backend::Backend as _;
use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, Event, ThreadWait};
use dat_core::flags::{
    CompletionFlags, ConnectFlags, DtoStatus, EvdFlags, MemoryPrivileges, PspFlags,
    QualityOfService,
};
use dat_core::id::{EpId, EvdId, PzId};
use dat_core::memory::{LmrCreated, LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::sync::HostLock;
use dat_storage::{Limits, OwnedIa};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const QUALIFIER: u64 = 7175;
const BYTES_MAX: usize = 1 << 20;
/// Attempts to connect.
const ATTEMPTS: u32 = 10;
/// Time between two calls of `progress`, which run the timers.
const PROGRESS: Duration = Duration::from_millis(10);

static SOURCE: [AtomicU8; BYTES_MAX] = [const { AtomicU8::new(1) }; BYTES_MAX];
static TARGET: [AtomicU8; BYTES_MAX] = [const { AtomicU8::new(0) }; BYTES_MAX];

/// An adapter with the objects of one end.
struct End {
    address: IaAddress,
    ia: OwnedIa<RoceBackend, HostLock>,
    pz: PzId,
    evd: EvdId,
    memory: LmrCreated,
}

impl End {
    /// Opens an adapter: for one connection with `depth` requests, and for others with one request.
    fn open(
        ip: IpAddr,
        (polled, path): (bool, PathChoice),
        (depth, connections): (i32, i32),
        memory: &'static [AtomicU8],
    ) -> Result<Self> {
        let mut options = RoceOptions::random()?;
        options.polled = polled;
        options.path = path;
        // Some stay unused: a sixteenth.
        options.connections = 2 * connections.unsigned_abs() as usize;
        let backend = RoceBackend::open(SocketAddr::new(ip, 0), options)?;
        let address = backend.ia_attributes().ia_address;
        let ia = OwnedIa::open(backend, &Limits::default(), 16).map_err(|refused| refused.error)?;
        let pz: PzId = ia.pz_create()?;
        let length = 2 * (depth + connections) + 16;
        let evd = ia.evd_create(length, None, EvdFlags::DEFAULT & !EvdFlags::ASYNC)?;
        let memory = ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_static(memory)),
            pz,
            privileges: MemoryPrivileges::ALL,
        })?;
        Ok(Self {
            address,
            ia,
            pz,
            evd,
            memory,
        })
    }

    fn endpoint(&self, depth: i32) -> Result<EpId> {
        let attributes = EpAttributes {
            max_request_dtos: depth,
            max_recv_dtos: 1,
            ..EpAttributes::DEFAULT
        };
        let evd = Some(self.evd);
        Ok(self
            .ia
            .ep_create(Some(self.pz), evd, evd, evd, Some(&attributes))?)
    }
}

/// Connects two new endpoints with `depth` requests; returns the near one.
///
/// Tries again: under a profiler the first attempt takes longer than queues may take to be made.
fn connect(near: &End, far: &End, depth: i32) -> Result<EpId> {
    let mut attempts = (0..ATTEMPTS).map(|_| attempt(near, far, depth));
    let connected = attempts.find_map(Result::transpose);
    connected.unwrap_or_else(|| Err("the adapters cannot connect".into()))
}

/// Connects once; `None` if that failed.
fn attempt(near: &End, far: &End, depth: i32) -> Result<Option<EpId>> {
    let (near_ep, far_ep) = (near.endpoint(depth)?, far.endpoint(depth)?);
    let param = ConnectParam {
        address: far.address,
        qualifier: QUALIFIER,
        timeout: 10_000_000,
        private_data: &[],
        quality: QualityOfService::BEST_EFFORT,
        flags: ConnectFlags::empty(),
    };
    near.ia.ep_connect(near_ep, &param, ThreadWait::clock())?;
    let mut established = 0;
    while established < 2 {
        for end in [near, far] {
            end.ia.progress(ThreadWait::clock());
            match end.ia.evd_dequeue(end.evd) {
                Ok(Event::ConnectionRequest { cr, .. }) => {
                    far.ia.cr_accept(cr, Some(far_ep), &[])?;
                }
                Ok(Event::Connection { kind, .. }) => match kind {
                    ConnectionEventKind::Established => established += 1,
                    _ => return Ok(None),
                },
                _ => std::thread::yield_now(),
            }
        }
    }
    Ok(Some(near_ep))
}

/// Returns the memory of this process, in bytes.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next());
    Ok(kibibytes.ok_or("no VmRSS")?.parse::<u64>()? * 1024)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [ip, mode, rest @ ..] = &arguments[..] else {
        return Err("IP MODE DEPTH [WRITES [BYTES [IDLE]]]".into());
    };
    let number = |index: usize, default: u64| {
        let given = rest.get(index).map(|text| text.parse::<u64>());
        given.unwrap_or(Ok(default))
    };
    let (depth, writes) = (number(0, 1)?, number(1, 20_000)?);
    let (bytes, idle) = (number(2, 8)?.min(BYTES_MAX as u64), number(3, 0)?);
    let (polled, path) = match mode.as_str() {
        "polled" => (true, PathChoice::Packets),
        "threads" => (false, PathChoice::Packets),
        "local-polled" | "local-both" => (true, PathChoice::Local),
        "local-threads" => (false, PathChoice::Local),
        _ => {
            return Err(
                "MODE is polled, threads, local-polled, local-threads or local-both".into(),
            );
        }
    };
    let both = mode == "local-both";
    let ip: IpAddr = ip.parse()?;
    let sizes = (i32::try_from(depth)?, i32::try_from(idle + 1)?);
    let open = |memory| End::open(ip, (polled, path), sizes, memory);
    let (near, far) = (open(&SOURCE)?, open(&TARGET)?);
    far.ia.psp_create(QUALIFIER, far.evd, PspFlags::Consumer)?;
    let before = resident()?;
    for _ in 0..idle {
        connect(&near, &far, 1)?;
    }
    if let Some(each) = resident()?.saturating_sub(before).checked_div(idle) {
        eprintln!("{each} bytes for both ends of an idle connection");
    }
    let ep = connect(&near, &far, sizes.0)?;

    let segment = [LmrTriplet {
        context: near.memory.lmr_context,
        address: near.memory.registered_address,
        length: bytes,
    }];
    let remote = RmrTriplet {
        context: far.memory.rmr_context,
        address: far.memory.registered_address,
        length: bytes,
    };
    let ends = (segment, remote);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if both {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let _ = far.ia.evd_dequeue(far.evd);
                }
            });
        }
        let nanoseconds = counted::write(
            &near,
            (polled && !both).then_some(&far),
            ep,
            &ends,
            (depth, writes),
        );
        is_done.store(true, Ordering::Relaxed);
        println!("{}", nanoseconds?);
        Ok(())
    })
}

/// The functions that callgrind counts.
mod counted {
    use super::*;

    /// Writes `writes` times and polls the far end, too, if there is one; returns the nanoseconds
    /// of each write.
    #[inline(never)]
    pub(super) fn write(
        near: &End,
        far: Option<&End>,
        ep: EpId,
        (segment, remote): &([LmrTriplet; 1], RmrTriplet),
        (depth, writes): (u64, u64),
    ) -> Result<u128> {
        let none = CompletionFlags::empty();
        let begin = Instant::now();
        let (mut posted, mut done, mut progressed) = (0, 0, begin);
        while done < writes {
            while posted < writes && posted - done < depth {
                near.ia.post_rdma_write(ep, segment, posted, remote, none)?;
                posted += 1;
            }
            let before = done;
            if let Some(far) = far {
                // The far end has no completions; its poll takes the packets and answers.
                if let Ok(event) = far.ia.evd_dequeue(far.evd) {
                    return Err(format!("the far end has {event:?}").into());
                }
            }
            while done < posted
                && let Ok(event) = near.ia.evd_dequeue(near.evd)
            {
                let succeeded =
                    matches!(&event, Event::Dto(write) if write.status == DtoStatus::Success);
                if !succeeded {
                    return Err(format!("a write ended with {event:?}").into());
                }
                done += 1;
            }
            if progressed.elapsed() > PROGRESS {
                progressed = Instant::now();
                near.ia.progress(ThreadWait::clock());
                if let Some(far) = far {
                    far.ia.progress(ThreadWait::clock());
                }
            }
            if far.is_none() && done == before {
                std::thread::yield_now();
            }
        }
        Ok(begin.elapsed().as_nanos() / u128::from(writes))
    }
}
