//! Ports in memory, joined by a wire that may lose packets; time is the test's.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::vec::Vec;

use backend_roce::port::{Arrival, ClaimError, Port, Route};
use backend_roce::proto::PathMtu;
use backend_roce::proto::icrc::Flow;
use dat_core::backend::BackendError;
use fastrand::Rng;

/// Packets on their way, by the address that they go to.
#[derive(Default)]
struct State {
    queues: HashMap<IpAddr, VecDeque<(Flow, Vec<u8>)>>,
    /// Packets of a thousand that are lost.
    lost: u32,
    random: Rng,
}

/// A wire.
#[derive(Clone, Default)]
pub struct Wire(Arc<Mutex<State>>);

impl Wire {
    /// Loses so many packets of a thousand from now on.
    pub fn lose(&self, lost: u32, seed: u64) {
        let mut state = self.0.lock().expect("not poisoned");
        state.lost = lost;
        state.random = Rng::with_seed(seed);
    }

    /// Returns a port at an address.
    pub fn port(&self, address: SocketAddr) -> WirePort {
        WirePort {
            address,
            wire: self.clone(),
        }
    }

    /// Puts a packet on its way.
    pub fn put(&self, flow: Flow, packet: Vec<u8>) {
        let mut state = self.0.lock().expect("not poisoned");
        let to = flow.destination().ip();
        state
            .queues
            .entry(to)
            .or_default()
            .push_back((flow, packet));
    }

    /// Puts `count` packets before those on their way to an address, by the flow of these.
    pub fn put_first(&self, to: IpAddr, count: usize, packet: &[u8]) {
        let mut state = self.0.lock().expect("not poisoned");
        let queue = state.queues.get_mut(&to).expect("packets");
        let (flow, _) = *queue.front().expect("a packet");
        for _ in 0..count {
            queue.push_front((flow, packet.to_vec()));
        }
    }

    /// Returns copies of the packets on their way to an address.
    pub fn packets_to(&self, address: IpAddr) -> Vec<(Flow, Vec<u8>)> {
        let mut state = self.0.lock().expect("not poisoned");
        let queue = state.queues.entry(address).or_default();
        queue.iter().cloned().collect()
    }
}

/// A port on a wire.
pub struct WirePort {
    address: SocketAddr,
    wire: Wire,
}

impl Port for WirePort {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn route(&self, _: SocketAddr) -> Result<Route, BackendError> {
        Ok(Route {
            source: self.address.ip(),
            mtu: PathMtu::Bytes1024,
        })
    }

    fn claim(&self, _: u16) -> Result<(), ClaimError> {
        Ok(())
    }

    fn release(&self, _: u16) {}

    fn send(&self, flow: &Flow, packets: &[u8], segment: usize) {
        for packet in packets.chunks(segment) {
            let is_lost = {
                let mut state = self.wire.0.lock().expect("not poisoned");
                let lost = state.lost;
                state.random.u32(..1000) < lost
            };
            if !is_lost {
                self.wire.put(*flow, packet.to_vec());
            }
        }
    }

    fn receive(&self, buffer: &mut [u8]) -> Option<Arrival> {
        let mut state = self.wire.0.lock().expect("not poisoned");
        let (flow, packet) = state.queues.get_mut(&self.address.ip())?.pop_front()?;
        buffer[..packet.len()].copy_from_slice(&packet);
        Some(Arrival {
            flow,
            length: packet.len(),
            segment: packet.len(),
            local: None,
            is_split: false,
        })
    }
}
