//! A backend from outside: two adapters with the mlx5 data path, on models of devices in this
//! process
//!
//! `cargo run -p dat-host --example model [BYTES]`
//!
//! The driver is that of firmware, `backend-mmio`. The devices read its descriptors in memory, move
//! the bytes and write completions. A backend opens so on this crate: as a value, with a
//! [`HostDriver`] that says when its adapter has something to do.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use backend_mock::{FabricOptions, NodeOptions};
use dat_core::time::Instant;
use dat_host::{
    Access, Activity, Adapter, BackendError, DtoStatus, EpAttributes, Error, Gather, HostDriver,
    Options, Result, ThreadWait,
};
use mmio_model::ModelFabric;

/// Bytes of a segment, and the segments of a write: those that fit in one work queue entry.
const SEGMENT: usize = 1000;
const SEGMENTS: usize = 30;
/// Writes that are under way at a time.
const DEPTH: usize = 60;

/// Devices that reach each other, and the wakers of their adapters.
struct Devices {
    fabric: ModelFabric,
    wakers: Mutex<Vec<Waker>>,
}

impl Devices {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            fabric: ModelFabric::new(FabricOptions::immediate()),
            wakers: Mutex::default(),
        })
    }

    /// Opens an adapter on a new device.
    fn open(self: &Arc<Self>, name: &'static str, number: u64) -> Result<Adapter> {
        let backend = self.fabric.device(NodeOptions::new(name, number));
        Options::new().open_backend(backend, Model(Arc::clone(self)))
    }
}

/// The side of a device that wakes its adapter.
#[derive(Clone)]
struct Model(Arc<Devices>);

impl HostDriver for Model {
    type Wait = ThreadWait;

    /// A device of this process has nothing to sleep on.
    fn wait(&self) -> std::result::Result<ThreadWait, BackendError> {
        Err(BackendError::NotSupported)
    }

    fn wake_on_events(&self, waker: Waker) -> bool {
        let mut wakers = self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.push(waker);
        true
    }

    /// Lets the devices work, and wakes both adapters if they did.
    fn act(&self, _now: Instant) -> Activity {
        let acted = self.0.fabric.step();
        if acted {
            let wakers = self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner);
            let wakers = wakers.clone();
            wakers.iter().for_each(Waker::wake_by_ref);
        }
        Activity { acted, next: None }
    }

    fn acts_after_posts(&self) -> bool {
        true
    }
}

/// Moves bytes by RDMA Writes of many segments; returns what arrived.
fn moved(bytes: &[u8]) -> Result<Vec<u8>> {
    let devices = Devices::new();
    let (near, far) = (devices.open("near", 1)?, devices.open("far", 2)?);
    let (near, far) = (near.zone()?, far.zone()?);
    let listener = far.listen(7174)?;
    let client = near.endpoint(Some(EpAttributes {
        max_request_dtos: DEPTH as i32,
        max_request_iov: SEGMENTS as i32,
        max_rdma_write_iov: SEGMENTS as i32,
        ..EpAttributes::DEFAULT
    }))?;
    let peer = (far.address()?, 7174);
    let client = near.connect(peer).start_on(client);
    let server = listener.next().wait()?.accept().wait()?;
    let client = client.wait()?;
    let memory = far.region(vec![0; bytes.len().max(1)])?;
    let window = memory.expose(.., Access::WRITE).to(&server).wait()?;
    let remote = window.remote();
    let mut writes = std::collections::VecDeque::new();
    for (number, part) in bytes.chunks(SEGMENT * SEGMENTS).enumerate() {
        if writes.len() == DEPTH {
            writes.pop_front().map_or(Ok(()), finished)?;
        }
        let parts: Result<Vec<_>> = part.chunks(SEGMENT).map(|part| near.copy(part)).collect();
        let start = (number * SEGMENT * SEGMENTS) as u64;
        writes.push_back(client.write(Gather::new(parts?)?, remote.slice(start..)?));
    }
    writes.into_iter().try_for_each(finished)?;
    let mut memory = window.revoke().wait().into_inner();
    memory.truncate(bytes.len());
    // The device refuses the stale context, and the connection breaks.
    let late = client.write(near.copy(b"!")?, remote).wait();
    let error = late.err().map(|failed| failed.error);
    assert!(matches!(
        error,
        Some(Error::Failed(DtoStatus::RemoteAccess))
    ));
    println!("the end of the connection: {:?}", client.ended().wait());
    Ok(memory)
}

fn finished<M: dat_host::Memory>(write: dat_host::Transfer<M>) -> Result<()> {
    Ok(write.wait().map(drop)?)
}

fn main() -> Result<()> {
    let length = std::env::args().nth(1).and_then(|bytes| bytes.parse().ok());
    let bytes: Vec<u8> = (0..length.unwrap_or(10_000_000))
        .map(|at: u32| at as u8)
        .collect();
    assert!(moved(&bytes)? == bytes);
    println!("{} bytes arrived", bytes.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_of_every_length_arrive() -> super::Result<()> {
        for length in [0, 1, 2001, 300_003, 2_000_001] {
            let bytes: Vec<u8> = (0..length).map(|at: u32| (at ^ at >> 8) as u8).collect();
            assert!(super::moved(&bytes)? == bytes, "{length}");
        }
        Ok(())
    }
}
