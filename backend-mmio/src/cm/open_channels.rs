//! Opening of channels, and driver support for connections over queues.

use core::sync::atomic::AtomicU8;

use dat_core::attributes::EpAttributes;
use dat_core::backend::{
    Backend, BackendError, CompletionQueue, QueuePair, QueuePairKey, QueuePairRequest,
    ReceiveRequest, Registration, RequestKey, SendRequest, WorkQueue,
};
use dat_core::flags::MemoryPrivileges;
use dat_core::memory::Region;

use super::channel::{CHANNEL_BYTES, Channel, DEPTH};
use super::connection_manager::{Peer, PeerResolver};
use super::over_queues::{Network, QueueConnectionManager};
use crate::mlx5::{Control, MmioBackend, MmioCompletionQueue, MmioReceiveQueue, MmioSendQueue};
use crate::platform::{Hal, RegisterIo, RegisterWords};
use crate::pvrdma::{
    Mapping, PvrdmaBackend, PvrdmaCompletionQueue, PvrdmaReceiveQueue, PvrdmaSendQueue,
};

/// Connection manager over the queues of an adapter with the mlx5 data path.
pub type MmioQueueConnectionManager<'s, R, H, J> = QueueConnectionManager<
    's,
    MmioCompletionQueue<'s, H, R>,
    MmioSendQueue<'s, H, R>,
    MmioReceiveQueue<'s, H>,
    J,
>;

/// Connection manager over the queues of a paravirtual adapter.
pub type PvrdmaQueueConnectionManager<'s, W, H, J> = QueueConnectionManager<
    's,
    PvrdmaCompletionQueue<'s, H, W>,
    PvrdmaSendQueue<'s, H, W>,
    PvrdmaReceiveQueue<'s, H, W>,
    J,
>;

/// Creates a queue pair per channel; all complete on one completion queue.
fn open<B: Backend>(
    backend: &mut B,
    channels: &mut [Option<Channel<B::SendQueue, B::ReceiveQueue>>],
    memory: &'static [AtomicU8],
    name: usize,
    number: impl Fn(&B, QueuePairKey) -> Result<u32, BackendError>,
) -> Result<B::CompletionQueue, BackendError> {
    let name = u32::try_from(name).map_err(|_| BackendError::Resources)?;
    let count = u32::try_from(channels.len()).map_err(|_| BackendError::Resources)?;
    let domain = backend.create_domain()?;
    let both = MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE;
    let keys = backend.register(&Registration::new(
        domain,
        &Region::from_static(memory),
        both,
    ))?;
    let depth = count.saturating_mul(2).saturating_mul(DEPTH);
    let completions = backend.create_completion_queue(name, depth)?;
    let attributes = EpAttributes {
        max_request_dtos: DEPTH as i32,
        max_recv_dtos: DEPTH as i32,
        max_request_iov: 1,
        max_recv_iov: 1,
        max_rdma_read_iov: 1,
        max_rdma_write_iov: 1,
        max_rdma_read_in: 0,
        max_rdma_read_out: 0,
        ..EpAttributes::DEFAULT
    };
    let mut rest = memory;
    for (index, channel) in channels.iter_mut().enumerate() {
        let (own, after) = rest
            .split_at_checked(CHANNEL_BYTES)
            .ok_or(BackendError::Resources)?;
        rest = after;
        let mut request = QueuePairRequest::new(index as u64, domain, attributes);
        request.request_queue = Some(name);
        request.receive_queue = Some(name);
        let QueuePair { key, send, receive } = backend.create_queue_pair(&request)?;
        let number = number(backend, key)?;
        let receive = receive.ok_or(BackendError::Resources)?;
        let opened = Channel::new(number, send, receive, own, keys.local);
        *channel = Some(opened.ok_or(BackendError::Resources)?);
    }
    Ok(completions)
}

impl<'s, C, S, R, J> QueueConnectionManager<'s, C, S, R, J>
where
    C: CompletionQueue,
    S: WorkQueue<Request = SendRequest>,
    R: WorkQueue<Request = ReceiveRequest>,
    J: Network,
{
    /// Installs the channels.
    fn opened(
        &mut self,
        channels: &'s mut [Option<Channel<S, R>>],
        completions: Result<C, BackendError>,
    ) -> Result<(), BackendError> {
        self.storage.channels = channels;
        self.completions = Some(completions?);
        // The other ends may wait for this one.
        self.resolve_peers();
        Ok(())
    }
}

/// Defines the call that opens the channels, for the drivers of both layouts.
macro_rules! open_channels {
    () => {
        /// Opens the channels of the connection manager.
        ///
        /// Call it once, before any other call. The channels take a domain, a region, the last slot
        /// for completion queues, and one queue pair each. So there must be one such slot more than
        /// event dispatchers.
        ///
        /// # Errors
        /// `Resources` if one of these is missing, `Device`. Drop the driver after an error.
        pub fn open_channels(&mut self) -> Result<(), BackendError> {
            let channels = core::mem::take(&mut self.cm.storage.channels);
            let memory = core::mem::take(&mut self.cm.storage.memory);
            let name = self.tables.completion_queues.len().saturating_sub(1);
            let opened = open(self, channels, memory, name, |backend, key| {
                backend.number(key)
            });
            self.cm.opened(channels, opened)
        }
    };
}

impl<'s, C: Control, R: RegisterIo, H: Hal, J: Network>
    MmioBackend<'s, C, MmioQueueConnectionManager<'s, R, H, J>, R, H>
{
    open_channels!();
}

impl<'s, W: RegisterWords, M: Mapping, H: Hal, J: Network>
    PvrdmaBackend<'s, W, M, PvrdmaQueueConnectionManager<'s, W, H, J>, H>
{
    open_channels!();
}

impl<C, S, R, J> PeerResolver for QueueConnectionManager<'_, C, S, R, J>
where
    C: CompletionQueue,
    S: WorkQueue<Request = SendRequest>,
    R: WorkQueue<Request = ReceiveRequest>,
    J: Network,
{
    fn peer(&self, queue_pair: u32) -> Option<Peer> {
        self.peer_of(queue_pair)
    }

    fn requester(&self, _request: RequestKey) -> Option<Peer> {
        // The queue pair must not receive before the connection is established here.
        None
    }
}
