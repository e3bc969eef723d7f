//! Junctions: the peers of devices that set up connections over their own queue pairs.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::AtomicU8;

use backend_mmio::cm::Peer;
use backend_mmio::cm::{CHANNEL_BYTES, Connection, ConnectionStorage, Listener, Network};
use dat_core::attributes::IaAddress;
use dat_core::backend::BackendError;

use crate::connection_manager::{CmDevice, Devices};
use crate::fabric::slots;
use crate::lock::{Arc, Mutex, lock};

/// End of a channel: device and queue pair number.
type End = (usize, u32);

/// Unpaired ends, and paired ones with the other end and its address.
#[derive(Default)]
struct Ends {
    unpaired_ends: Vec<(End, IaAddress)>,
    paired: BTreeMap<End, (End, IaAddress)>,
}

impl Ends {
    /// Pairs two spare ends: two of one device, or one of each of two devices.
    ///
    /// Each device has at most one channel to another one, and one to itself.
    fn pair(&mut self) {
        let found = self
            .unpaired_ends
            .iter()
            .enumerate()
            .find_map(|(index, (one, _))| {
                let others = self.unpaired_ends.iter().enumerate().skip(index + 1);
                let mut unpaired = others.filter(|(_, (other, _))| {
                    let known = |(own, (remote, _)): (&End, &(End, _))| {
                        own.0 == one.0 && remote.0 == other.0
                    };
                    !self.paired.iter().any(known)
                });
                unpaired.next().map(|(other, _)| (index, other))
            });
        if let Some((first, second)) = found {
            let (remote, remote_address) = self.unpaired_ends.remove(second);
            let (local, local_address) = self.unpaired_ends.remove(first);
            self.paired.insert(local, (remote, remote_address));
            self.paired.insert(remote, (local, local_address));
            self.pair();
        }
    }
}

/// Paired and spare channel ends of a fabric.
#[derive(Clone, Default)]
pub(crate) struct ChannelEnds(Arc<Mutex<Ends>>);

/// Finds the peers of a device's channels.
///
/// It joins the queue pairs if the driver does not.
pub struct ModelNetwork<D> {
    pub(crate) devices: D,
    pub(crate) device: usize,
    pub(crate) address: IaAddress,
    pub(crate) channel_ends: ChannelEnds,
    /// True if commands of the driver join the queue pairs.
    pub(crate) driver_moves_pairs: bool,
}

impl<D> fmt::Debug for ModelNetwork<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "peers of device {}", self.device)
    }
}

impl<D> Drop for ModelNetwork<D> {
    fn drop(&mut self) {
        let mut ends = lock(&self.channel_ends.0);
        let is_of_device = |end: &End| end.0 == self.device;
        ends.unpaired_ends.retain(|(end, _)| !is_of_device(end));
        ends.paired.retain(|end, _| !is_of_device(end));
    }
}

impl<D: Devices> Network for ModelNetwork<D> {
    fn channel_peer(&mut self, queue_pair: u32) -> Option<(IaAddress, Peer)> {
        let end = (self.device, queue_pair);
        let mut ends = lock(&self.channel_ends.0);
        let known = ends
            .unpaired_ends
            .iter()
            .any(|(unpaired_ends, _)| *unpaired_ends == end);
        if !known && !ends.paired.contains_key(&end) {
            ends.unpaired_ends.push((end, self.address));
            ends.pair();
        }
        let ((device, number), address) = *ends.paired.get(&end)?;
        let peer = Peer {
            queue_pair: number,
            address: [device as u32, 0, 0, 0],
        };
        Some((address, peer))
    }

    fn make_ready(&mut self, queue_pair: u32, peer: Peer) -> Result<(), BackendError> {
        if self.driver_moves_pairs {
            return Ok(());
        }
        let own = [self.device as u32, queue_pair];
        self.devices.on(self.device, |device| {
            let key = device.key(queue_pair).ok_or(BackendError::State)?;
            let [remote, ..] = peer.address;
            device.adapter().join(key, own, [remote, peer.queue_pair])
        })
    }

    fn make_failed(&mut self, queue_pair: u32) {
        if self.driver_moves_pairs {
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
pub(crate) fn channels<S, R>() -> ConnectionStorage<'static, S, R> {
    ConnectionStorage {
        channels: slots(CHANNELS, || None),
        connections: slots(CONNECTIONS, Connection::default),
        listeners: slots(LISTENERS, Listener::default),
        memory: slots(CHANNELS * CHANNEL_BYTES, || AtomicU8::new(0)),
    }
}
