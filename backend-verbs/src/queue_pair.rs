//! Queue pairs as the control path knows them.

use std::sync::Arc;

use dat_core::backend::{PrivateData, QueuePairRequest};

use crate::directory::Directory;
use crate::hal::{ConnectionId, QueuePair as Device};
use crate::receive_queue::Failure;

/// How far a queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Unconnected,
    /// Active side: waits for the way to the peer's address.
    ResolvingAddress,
    /// Active side: waits for the route there.
    ResolvingRoute,
    /// Active side: brings the peer the end of long private data.
    Announcing,
    /// Active side: asked the peer.
    Connecting,
    /// Passive side: accepted, and waits for the last message of the handshake.
    Accepting,
    Connected,
    /// In error.
    Ended,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) request: QueuePairRequest,
    pub(crate) device: Arc<Device>,
    pub(crate) state: State,
    /// What its receive queue knows of that.
    pub(crate) failure: Arc<Failure>,
    /// The connection, or what is left of it.
    pub(crate) id: Option<ConnectionId>,
    /// Active side: what the request for the connection carries, packed.
    pub(crate) private_data: PrivateData,
    /// Active side: the request that goes ahead with the end of long private data, and what it carries.
    pub(crate) ahead: Option<(ConnectionId, PrivateData)>,
}

impl Pair {
    pub(crate) fn new(request: &QueuePairRequest, device: Arc<Device>) -> Self {
        Self {
            request: *request,
            device,
            state: State::Unconnected,
            failure: Arc::default(),
            id: None,
            private_data: PrivateData::new(),
            ahead: None,
        }
    }

    pub(crate) fn token(&self) -> u64 {
        self.request.token
    }

    pub(crate) fn number(&self) -> u32 {
        self.device.number()
    }

    /// Reads that may come in at once.
    pub(crate) fn reads_in(&self) -> u8 {
        depth(self.request.attributes.max_rdma_read_in)
    }

    /// Reads that may go out at once.
    pub(crate) fn reads_out(&self) -> u8 {
        depth(self.request.attributes.max_rdma_read_out)
    }

    /// Puts the queue pair in error. Later failures are no news.
    pub(crate) fn end(&mut self, directory: &Directory) {
        directory.expect_failure(self.number());
        self.state = State::Ended;
        self.ahead = None;
        self.failure.announce();
        self.device.fail();
    }

    /// Ends the connection, or what was done for one, so that the peer hears of it.
    pub(crate) fn give_up(&mut self, directory: &Directory) {
        let before = self.state;
        self.end(directory);
        match (before, &self.id) {
            (State::Connected, Some(id)) => id.disconnect(),
            (State::Unconnected | State::Ended, _) => {}
            // Giving the identifier up tells a peer that was asked.
            _ => self.id = None,
        }
    }
}

fn depth(asked: i32) -> u8 {
    u8::try_from(asked.clamp(0, i32::from(u8::MAX))).unwrap_or(u8::MAX)
}
