//! Queue pairs on the control path.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_core::backend::{BackendError, PrivateData, QueuePairKey, QueuePairRequest};
use dat_core::flags::CompletionFlags;

use crate::backend::{VerbsBackend, count};
use crate::completion_room::Reservations;
use crate::directory::Directory;
use crate::hal::{
    ConnectionId, QueuePair as HalPair, QueuePairPlan, ReceiveList, SendList, WindowType,
};
use crate::receive_queue::{Failing, Failure, VerbsReceiveQueue};
use crate::send_queue::VerbsSendQueue;

/// Connection state of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Unconnected,
    /// Active side: waits for the resolution of the peer's address.
    ResolvingAddress,
    /// Active side: waits for the resolution of the route.
    ResolvingRoute,
    /// Active side: sends the tail of long private data ahead.
    Announcing,
    /// Active side: sent the connection request.
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
    pub(crate) device: Arc<HalPair>,
    pub(crate) state: State,
    /// Failure state that the receive queue shares.
    pub(crate) failure: Arc<Failure>,
    /// Identifier of the connection; may remain after its end.
    pub(crate) id: Option<ConnectionId>,
    /// Active side: private data of the connection request, packed.
    pub(crate) private_data: PrivateData,
    /// Active side: request that goes ahead with the tail of long private data.
    pub(crate) ahead: Option<(ConnectionId, PrivateData)>,
    /// Room for its completions.
    pub(crate) reservations: Reservations,
}

impl Pair {
    pub(crate) fn new(
        request: &QueuePairRequest,
        device: Arc<HalPair>,
        reservations: Reservations,
    ) -> Self {
        Self {
            request: *request,
            device,
            state: State::Unconnected,
            failure: Arc::default(),
            id: None,
            private_data: PrivateData::new(),
            ahead: None,
            reservations,
        }
    }

    pub(crate) fn token(&self) -> u64 {
        self.request.token
    }

    pub(crate) fn number(&self) -> u32 {
        self.device.number()
    }

    /// Returns the most concurrent incoming reads.
    pub(crate) fn reads_in(&self) -> u8 {
        depth(self.request.attributes.max_rdma_read_in)
    }

    /// Returns the most concurrent outgoing reads.
    pub(crate) fn reads_out(&self) -> u8 {
        depth(self.request.attributes.max_rdma_read_out)
    }

    /// Moves the queue pair to the error state; later failures are not reported.
    pub(crate) fn end(&mut self, directory: &Directory) {
        directory.expect_failure(self.number());
        self.state = State::Ended;
        self.ahead = None;
        self.failure.announce();
        self.device.fail();
    }

    /// Ends the connection or the attempt, so that the peer learns of it.
    pub(crate) fn give_up(&mut self, directory: &Directory) {
        let before = self.state;
        if before == State::Ended {
            // Already in error. On soft-RoCE, another move there takes a fifth of the time of a
            // destruction.
            return;
        }
        self.end(directory);
        match (before, &self.id) {
            (State::Connected, Some(id)) => id.disconnect(),
            (State::Unconnected, _) => {}
            // The drop of the identifier informs a peer that got a request.
            _ => self.id = None,
        }
    }
}

impl VerbsBackend {
    /// Forgets a queue pair of the device that was made for `request`.
    pub(crate) fn forget_pair(&self, request: &QueuePairRequest, number: u32) {
        self.directory.leave(number);
        for queue in [request.receive_queue, request.request_queue] {
            if let Some(queue) = self.known_queue(queue) {
                queue.marks.detach();
            }
        }
        self.objects.forget_queue_pair(number);
    }

    /// Creates the device's queue pair for a request, with room for its completions.
    ///
    /// `replaced` are the reservations of the queue pair that it replaces.
    pub(crate) fn make_pair(
        &mut self,
        key: usize,
        request: &QueuePairRequest,
        replaced: &Reservations,
    ) -> Result<(Arc<HalPair>, Reservations), BackendError> {
        let attributes = &request.attributes;
        let (shared, receives) = match request.shared_receive_queue {
            None => (None, count(attributes.max_recv_dtos)),
            Some(key) => {
                let queue = self.shared_queues.get(key.0).ok_or(BackendError::State)?;
                (Some(Arc::clone(&queue.device)), queue.depth)
            }
        };
        let completed = self.completions_of(count(attributes.max_request_dtos));
        let reservations = Reservations {
            requests: self.reserve(request.request_queue, completed, replaced)?,
            receives: self.reserve(request.receive_queue, receives, replaced)?,
        };
        let request_queue = self.queue_of(reservations.requests.as_ref())?;
        let receive_queue = self.queue_of(reservations.receives.as_ref())?;
        let requests = slots(
            count(attributes.max_request_dtos),
            self.window_type(),
            self.port.limits.work_requests,
        );
        let device = HalPair::new(&QueuePairPlan {
            number: self.object_number(key),
            domain: self.domain(request.domain)?,
            request_queue: &request_queue,
            receive_queue: &receive_queue,
            shared: shared.as_ref(),
            requests,
            receives: count(attributes.max_recv_dtos),
            request_segments: count(attributes.max_request_iov),
            receive_segments: count(attributes.max_recv_iov),
            inline: if request.may_read_at_post() && attributes.max_request_dtos > 0 {
                self.options.inline
            } else {
                0
            },
            port: self.port.number,
            one_partition: self.port.has_one_partition(),
            atomics: self.port.limits.atomics,
        })?;
        if !self.directory.enter(device.number(), request.token) {
            return Err(BackendError::Device);
        }
        let solicited = attributes.recv_completion_flags == CompletionFlags::SOLICITED_WAIT;
        if let Some(queue) = self.known_queue(request.receive_queue) {
            if shared.is_some() {
                queue.marks.serves_shared.store(true, Ordering::Release);
            }
            queue.marks.attach(&queue.device, solicited);
        }
        if let Some(queue) = self.known_queue(request.request_queue) {
            queue.marks.attach(&queue.device, false);
        }
        Ok((Arc::new(device), reservations))
    }

    pub(crate) fn send_list(
        &self,
        device: &Arc<HalPair>,
        request: &QueuePairRequest,
    ) -> Result<SendList, BackendError> {
        let attributes = &request.attributes;
        SendList::new(
            Arc::clone(device),
            count(attributes.max_request_dtos),
            count(attributes.max_request_iov),
        )
    }

    pub(crate) fn receive_list(
        &self,
        device: &Arc<HalPair>,
        request: &QueuePairRequest,
    ) -> Result<ReceiveList, BackendError> {
        let attributes = &request.attributes;
        ReceiveList::for_queue_pair(
            Arc::clone(device),
            count(attributes.max_recv_dtos),
            count(attributes.max_recv_iov),
        )
    }

    /// Replaces the device's queue pair by a new one.
    pub(crate) fn replace(
        &mut self,
        key: QueuePairKey,
        send: &mut VerbsSendQueue,
        receive: Option<&mut VerbsReceiveQueue>,
        request: &QueuePairRequest,
        keep_receives: bool,
    ) -> Result<(), BackendError> {
        let old = self.pairs.get_mut(key.0).ok_or(BackendError::State)?;
        let replaced = std::mem::take(&mut old.reservations);
        let made = self.make_pair(key.0, request, &replaced);
        if let Some(old) = self.pairs.get_mut(key.0) {
            old.reservations = replaced;
        }
        let (device, reservations) = made?;
        let undo = |backend: &Self, error| {
            backend.forget_pair(request, device.number());
            error
        };
        let send_list = self
            .send_list(&device, request)
            .map_err(|error| undo(self, error))?;
        let mut receive_list = match &receive {
            None => None,
            Some(_) => Some(
                self.receive_list(&device, request)
                    .map_err(|error| undo(self, error))?,
            ),
        };
        if let (Some(old), Some(new), true) = (&receive, &mut receive_list, keep_receives) {
            old.list.repeat_on(new).map_err(|error| undo(self, error))?;
        }
        let pair = Pair::new(request, Arc::clone(&device), reservations);
        send.list = send_list;
        send.number = device.number();
        if let (Some(queue), Some(list)) = (receive, receive_list) {
            queue.list = list;
            queue.owner = Some(Failing {
                pair: Arc::clone(&device),
                failure: Arc::clone(&pair.failure),
            });
        }
        if let Some(slot) = self.pairs.get_mut(key.0) {
            let old = std::mem::replace(slot, pair);
            self.forget_pair(&old.request, old.number());
        }
        Ok(())
    }
}

fn depth(wanted: i32) -> u8 {
    u8::try_from(wanted.clamp(0, i32::from(u8::MAX))).unwrap_or(u8::MAX)
}

/// Returns the slots for `requests` requests, and for their completions.
///
/// A bind of a type 2 window is two requests, and both complete if they are flushed. The result is
/// at most the device's limit, but never less than `requests`.
pub(crate) fn slots(requests: u32, windows: Option<WindowType>, most: i32) -> u32 {
    match windows {
        Some(WindowType::Two) => requests.saturating_mul(2).min(count(most)).max(requests),
        _ => requests,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: DTO-13, RMB-22
    #[test]
    fn a_bind_of_two_requests_takes_two_slots() {
        let (one, two) = (Some(WindowType::One), Some(WindowType::Two));
        for (requests, windows, most, there_are) in [
            (8, None, 100, 8),
            (8, one, 100, 8),
            (8, two, 100, 16),
            (0, two, 100, 0),
            (8, two, 10, 10),
            (8, two, 4, 8),
            (8, two, -1, 8),
            (u32::MAX, two, i32::MAX, u32::MAX),
        ] {
            assert_eq!(slots(requests, windows, most), there_are);
        }
    }
}
