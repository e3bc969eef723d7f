//! Time of an RDMA Write between two adapters of this process, on one thread.
//!
//! `cargo run --release -p backend-roce --features udp --example write_rate -- ARGUMENTS`
//!
//! The arguments are IP MODE DEPTH [WRITES [BYTES [IDLE]]]. MODE is `polled` for adapters that this
//! thread moves, or `threads` for adapters with threads of their own. DEPTH writes are under way.
//! IDLE further connections are made first, and stay idle. Prints nanoseconds of a write with its
//! completion, and on standard error the memory of an idle connection.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU8;
use std::time::{Duration, Instant};

use backend_roce::{RoceBackend, RoceOptions};
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::backend::Backend as _;
use dat_core::endpoint::ConnectParam;
use dat_core::event::{Event, ThreadWait};
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
        polled: bool,
        (depth, connections): (i32, i32),
        memory: &'static [AtomicU8],
    ) -> Result<Self> {
        let mut options = RoceOptions::random()?;
        options.polled = polled;
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
fn connect(near: &End, far: &End, depth: i32) -> Result<EpId> {
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
                Ok(Event::Connection { .. }) => established += 1,
                _ => std::thread::yield_now(),
            }
        }
    }
    Ok(near_ep)
}

/// Returns the memory of this process, in bytes.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next());
    Ok(kibibytes.ok_or("no VmRSS")?.parse::<u64>()? * 1024)
}

/// Writes, and the connection that carries them.
struct Stream<'a> {
    near: &'a End,
    far: &'a End,
    ep: EpId,
    segment: [LmrTriplet; 1],
    remote: RmrTriplet,
    depth: u64,
    writes: u64,
    polled: bool,
}

/// What callgrind counts.
mod counted {
    use super::{CompletionFlags, DtoStatus, Event, Instant, PROGRESS, Result, Stream, ThreadWait};

    /// Posts all writes and takes their completions.
    #[inline(never)]
    pub(super) fn writes(stream: &Stream<'_>) -> Result<()> {
        let Stream {
            near,
            far,
            ep,
            segment,
            remote,
            depth,
            writes,
            polled,
        } = *stream;
        let none = CompletionFlags::empty();
        let (mut posted, mut done, mut progressed) = (0, 0, Instant::now());
        while done < writes {
            while posted < writes && posted - done < depth {
                near.ia
                    .post_rdma_write(ep, &segment, posted, &remote, none)?;
                posted += 1;
            }
            let before = done;
            if polled {
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
                far.ia.progress(ThreadWait::clock());
            }
            if !polled && done == before {
                std::thread::yield_now();
            }
        }
        Ok(())
    }
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
    let polled = match mode.as_str() {
        "polled" => true,
        "threads" => false,
        _ => return Err("MODE is `polled` or `threads`".into()),
    };
    let ip: IpAddr = ip.parse()?;
    let sizes = (i32::try_from(depth)?, i32::try_from(idle + 1)?);
    let open = |memory| End::open(ip, polled, sizes, memory);
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
    let begin = Instant::now();
    counted::writes(&Stream {
        near: &near,
        far: &far,
        ep,
        segment,
        remote,
        depth,
        writes,
        polled,
    })?;
    let nanoseconds = begin.elapsed().as_nanos() / u128::from(writes);
    println!("{nanoseconds}");
    Ok(())
}
