//! Junctions: the peers of devices that set up connections over their own queue pairs.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::AtomicU8;

use backend_mmio::Peer;
use backend_mmio::over_queues::{CHANNEL_BYTES, Connection, Junction, Listener, SidebandStorage};
use dat_core::attributes::IaAddress;
use dat_core::backend::BackendError;

use crate::fabric::slots;
use crate::lock::{Arc, Mutex, lock};
use crate::sideband::{Connects, Devices};

/// End of a channel: device and queue pair number.
type End = (usize, u32);

/// Unpaired ends, and paired ones with the other end and its address.
#[derive(Default)]
struct Ends {
    spare: Vec<(End, IaAddress)>,
    met: BTreeMap<End, (End, IaAddress)>,
}

impl Ends {
    /// Pairs two spare ends: two of one device, or one of each of two devices.
    ///
    /// Each device has at most one channel to another one, and one to itself.
    fn pair(&mut self) {
        let found = self.spare.iter().enumerate().find_map(|(place, (one, _))| {
            let others = self.spare.iter().enumerate().skip(place + 1);
            let mut strangers = others.filter(|(_, (other, _))| {
                let known =
                    |(own, (there, _)): (&End, &(End, _))| own.0 == one.0 && there.0 == other.0;
                !self.met.iter().any(known)
            });
            strangers.next().map(|(other, _)| (place, other))
        });
        if let Some((first, second)) = found {
            let (there, there_at) = self.spare.remove(second);
            let (here, here_at) = self.spare.remove(first);
            self.met.insert(here, (there, there_at));
            self.met.insert(there, (here, here_at));
            self.pair();
        }
    }
}

/// Paired and spare channel ends of a fabric.
#[derive(Clone, Default)]
pub(crate) struct Meetings(Arc<Mutex<Ends>>);

/// Finds the peers of a device's channels.
///
/// It joins the queue pairs if the driver does not.
pub struct ModelJunction<D> {
    pub(crate) devices: D,
    pub(crate) device: usize,
    pub(crate) address: IaAddress,
    pub(crate) meetings: Meetings,
    /// True if commands of the driver join the queue pairs.
    pub(crate) by_driver: bool,
}

impl<D> fmt::Debug for ModelJunction<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "peers of device {}", self.device)
    }
}

impl<D> Drop for ModelJunction<D> {
    fn drop(&mut self) {
        let mut ends = lock(&self.meetings.0);
        let of_it = |end: &End| end.0 == self.device;
        ends.spare.retain(|(end, _)| !of_it(end));
        ends.met.retain(|end, _| !of_it(end));
    }
}

impl<D: Devices> Junction for ModelJunction<D> {
    fn meet(&mut self, queue_pair: u32) -> Option<(IaAddress, Peer)> {
        let end = (self.device, queue_pair);
        let mut ends = lock(&self.meetings.0);
        let known = ends.spare.iter().any(|(spare, _)| *spare == end);
        if !known && !ends.met.contains_key(&end) {
            ends.spare.push((end, self.address));
            ends.pair();
        }
        let ((device, number), address) = *ends.met.get(&end)?;
        let peer = Peer {
            queue_pair: number,
            address: [device as u32, 0, 0, 0],
        };
        Some((address, peer))
    }

    fn join(&mut self, queue_pair: u32, peer: Peer) -> Result<(), BackendError> {
        if self.by_driver {
            return Ok(());
        }
        let own = [self.device as u32, queue_pair];
        self.devices.on(self.device, |device| {
            let key = device.key(queue_pair).ok_or(BackendError::State)?;
            let [there, ..] = peer.address;
            device.adapter().join(key, own, [there, peer.queue_pair])
        })
    }

    fn part(&mut self, queue_pair: u32) {
        if self.by_driver {
            return;
        }
        let _gone = self.devices.on(self.device, |device| {
            let key = device.key(queue_pair).ok_or(BackendError::State)?;
            device.adapter().part(key);
            Ok(())
        });
    }
}

/// Channels, connections and listeners of a device.
const CHANNELS: usize = 8;
const CONNECTIONS: usize = 128;
const LISTENERS: usize = 64;

/// Allocates the connection storage of a device, which is never freed.
pub(crate) fn channels<S, R>() -> SidebandStorage<'static, S, R> {
    SidebandStorage {
        channels: slots(CHANNELS, || None),
        connections: slots(CONNECTIONS, Connection::default),
        listeners: slots(LISTENERS, Listener::default),
        memory: slots(CHANNELS * CHANNEL_BYTES, || AtomicU8::new(0)),
    }
}
