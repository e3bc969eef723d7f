//! Datagrams in and out: what the adapter needs of sockets, of a network card or of a simulation.

mod batch;

pub use batch::{Batch, RUN_BYTES_MAX, RUN_PACKETS_MAX};

use crate::proto::icrc::Flow;

/// The port takes no more datagrams now; nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortFull;

/// Received packets of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Addresses of the packets.
    pub flow: Flow,
    /// Their length in sum.
    pub length: usize,
    /// Length of each packet but the last, which may be shorter.
    pub segment: usize,
}

impl Arrival {
    /// Returns the packets, which are in the first bytes of `buffer`.
    pub fn packets<'b>(&self, buffer: &'b [u8]) -> impl Iterator<Item = &'b [u8]> + use<'b> {
        let used = buffer.get(..self.length).unwrap_or_default();
        used.chunks(self.segment.max(1))
    }
}

/// A way for datagrams.
pub trait Port {
    /// Sends `packets`, of `segment` bytes each but the last, which may be shorter (ROCE-57).
    ///
    /// Packet k leaves with identification k, and its ICRC is right for that (ROCE-38). A datagram
    /// that is lost is no error: the transport repeats it.
    fn send(&mut self, flow: &Flow, packets: &[u8], segment: usize) -> Result<(), PortFull>;

    /// Receives packets of one flow into `buffer`; `None` if there are none.
    fn receive(&mut self, buffer: &mut [u8]) -> Option<Arrival>;
}
