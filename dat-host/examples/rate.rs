//! Rates of 8-byte RDMA Writes: the core's own posts, and futures on top of them.
//!
//! 64 writes are in flight. Both ends are on mock adapters in this process, without latency.
//!
//! `cargo run --release -p dat-host --example rate [WRITES]`

use std::collections::VecDeque;
use std::error::Error;
use std::sync::atomic::AtomicU8;
use std::time::Instant;

use backend_mock::{Fabric, MockBackend, NodeOptions};
use dat_core::attributes::IaAddress;
use dat_core::endpoint::ConnectParam;
use dat_core::event::{Event, ThreadWait};
use dat_core::flags::{
    CompletionFlags, ConnectFlags, DtoStatus, EvdFlags, MemoryPrivileges, PspFlags,
    QualityOfService, TIMEOUT_INFINITE,
};
use dat_core::id::EvdId;
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, Region, RmrTriplet};
use dat_core::sync::HostLock;
use dat_host::{Access, Adapter, Endpoint, Limits, Network, Options, RemoteSlice, Zone};
use dat_storage::OwnedIa;
use futures::executor::LocalPool;
use futures::future::{join_all, select};
use futures::task::LocalSpawnExt;

type Written = dat_host::Result<()>;
type Result<T> = std::result::Result<T, Box<dyn Error>>;

const IN_FLIGHT: u64 = 64;

static SOURCE: [AtomicU8; 8] = [const { AtomicU8::new(1) }; 8];
static TARGET: [AtomicU8; 8] = [const { AtomicU8::new(0) }; 8];

/// Prints a rate and returns it, in writes per second.
fn report(name: &str, writes: u64, begin: Instant) -> f64 {
    let rate = writes as f64 / begin.elapsed().as_secs_f64();
    println!("{name:36} {:9.0} writes/s", rate);
    rate
}

/// The core's calls, as a program without futures makes them.
fn direct(writes: u64) -> Result<f64> {
    let fabric = Fabric::new(Network::options());
    let open = |number| {
        let backend = fabric.node(NodeOptions::new("direct", number));
        let ia = OwnedIa::<MockBackend, HostLock>::open(backend, &Limits::default(), 16);
        ia.map_err(|refused| refused.error)
    };
    let (near, far) = (open(1)?, open(2)?);
    let evd = |ia: &OwnedIa<_, _>| ia.evd_create(256, None, EvdFlags::DEFAULT & !EvdFlags::ASYNC);
    let (near_evd, far_evd) = (evd(&near)?, evd(&far)?);
    let register = |ia: &OwnedIa<_, _>, pz, memory| {
        ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_static(memory)),
            pz,
            privileges: MemoryPrivileges::ALL,
        })
    };
    let (near_zone, far_zone) = (near.pz_create()?, far.pz_create()?);
    let source = register(&near, near_zone, &SOURCE)?;
    let target = register(&far, far_zone, &TARGET)?;
    let endpoint = |ia: &OwnedIa<_, _>, pz, evd: EvdId| {
        let attributes = dat_core::attributes::EpAttributes {
            max_request_dtos: IN_FLIGHT as i32,
            ..dat_core::attributes::EpAttributes::DEFAULT
        };
        ia.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), Some(&attributes))
    };
    let near_end = endpoint(&near, near_zone, near_evd)?;
    let far_end = endpoint(&far, far_zone, far_evd)?;
    far.psp_create(1, far_evd, PspFlags::Consumer)?;
    let param = ConnectParam {
        address: IaAddress::Node(2),
        qualifier: 1,
        timeout: TIMEOUT_INFINITE,
        private_data: &[],
        quality: QualityOfService::BEST_EFFORT,
        flags: ConnectFlags::empty(),
    };
    near.ep_connect(near_end, &param, ThreadWait::clock())?;
    let progress = || {
        fabric.run_until(ThreadWait::clock());
        near.progress(ThreadWait::clock());
        far.progress(ThreadWait::clock());
    };
    loop {
        progress();
        if let Ok(Event::ConnectionRequest { cr, .. }) = far.evd_dequeue(far_evd) {
            far.cr_accept(cr, Some(far_end), &[])?;
        }
        if let Ok(Event::Connection { .. }) = near.evd_dequeue(near_evd) {
            break;
        }
    }
    let segment = [LmrTriplet {
        context: source.lmr_context,
        address: source.registered_address,
        length: 8,
    }];
    let remote = RmrTriplet {
        context: target.rmr_context,
        address: target.registered_address,
        length: 8,
    };
    let post = || near.post_rdma_write(near_end, &segment, 0, &remote, CompletionFlags::empty());
    let begin = Instant::now();
    let (mut posted, mut done) = (0, 0);
    while done < writes {
        while posted < writes && posted - done < IN_FLIGHT {
            post()?;
            posted += 1;
        }
        progress();
        while let Ok(event) = near.evd_dequeue(near_evd) {
            assert!(matches!(event, Event::Dto(write) if write.status == DtoStatus::Success));
            done += 1;
        }
    }
    Ok(report("posts of the core", writes, begin))
}

/// Connects two adapters; returns the endpoints and a window of 8 bytes.
async fn connect(near: &Zone, far: &Zone) -> dat_host::Result<(Endpoint, Endpoint, RemoteSlice)> {
    let listener = far.listen(1)?;
    let connecting = near.connect((far.address()?, 1)).start();
    let far_end = listener.next().await?.accept().await?;
    let near_end = connecting.await?;
    let memory = far.region(vec![0; 8])?;
    let window = memory.expose(.., Access::WRITE).to(&far_end).await?;
    let remote = window.remote();
    // The window stays until the adapter is closed.
    std::mem::forget(window);
    Ok((near_end, far_end, remote))
}

/// Writes in one task, which awaits the oldest write. Each buffer is used again.
async fn oldest_first(from: &Zone, to: &Endpoint, remote: RemoteSlice, writes: u64) -> Written {
    let mut in_flight = VecDeque::new();
    for _ in 0..IN_FLIGHT {
        in_flight.push_back(to.write(from.copy(&[1; 8])?, remote));
    }
    let mut left = writes - IN_FLIGHT;
    while let Some(oldest) = in_flight.pop_front() {
        let buffer = oldest.await?;
        if left > 0 {
            left -= 1;
            in_flight.push_back(to.write(buffer, remote));
        }
    }
    Ok(())
}

/// Writes in one task for each operation in flight. Each task uses its buffer again.
async fn task_for_each(from: &Zone, to: &Endpoint, remote: RemoteSlice, writes: u64) -> Written {
    let tasks = (0..IN_FLIGHT).map(async |_| {
        let mut buffer = from.copy(&[1; 8])?;
        for _ in 0..writes / IN_FLIGHT {
            buffer = to.write(buffer, remote).await?;
        }
        Ok(())
    });
    join_all(tasks).await.into_iter().collect()
}

/// Writes in both ways; returns the rates relative to that of the core.
async fn measure(
    near: Zone,
    far: Zone,
    writes: u64,
    driver: &str,
    core: f64,
) -> dat_host::Result<String> {
    let (near_end, _far_end, remote) = connect(&near, &far).await?;
    let begin = Instant::now();
    oldest_first(&near, &near_end, remote, writes).await?;
    let oldest = report(&format!("{driver}, oldest first"), writes, begin);
    let begin = Instant::now();
    task_for_each(&near, &near_end, remote, writes).await?;
    let tasks = report(&format!("{driver}, 64 tasks"), writes, begin);
    Ok(format!("{:.2}, {:.2}", oldest / core, tasks / core))
}

fn main() -> Result<()> {
    let writes = std::env::args().nth(1);
    let writes = writes.map_or(Ok(50_000), |count| count.parse::<u64>())?;
    let writes = writes.next_multiple_of(IN_FLIGHT);

    let core = direct(writes)?;

    let network = Network::new(Network::options());
    let open = |name| Options::new().network(&network).open_driven(name);
    let ((near, near_driver), (far, far_driver)) = (open("mock://near")?, open("mock://far")?);
    let mut pool = LocalPool::new();
    let spawner = pool.spawner();
    let drivers = async move {
        select(near_driver, far_driver).await;
    };
    spawner.spawn_local(drivers)?;
    let driver = "driver on this thread";
    let same = pool.run_until(measure(near.zone()?, far.zone()?, writes, driver, core))?;

    let network = Network::new(Network::options());
    let open = |name| -> dat_host::Result<Adapter> { Options::new().network(&network).open(name) };
    let (near, far) = (open("mock://near")?, open("mock://far")?);
    let driver = "a thread per adapter";
    let threads = pool.run_until(measure(near.zone()?, far.zone()?, writes, driver, core))?;

    println!("of the core's rate: {same}, {threads}");
    Ok(())
}
