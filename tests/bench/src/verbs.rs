//! The queues of the verbs backend, on a fake device.

use backend_verbs::sink::Sink;
use backend_verbs::{
    VerbsCompletionQueue, VerbsReceiveQueue, VerbsSendQueue, VerbsSharedReceiveQueue,
};
use dat_core::backend::{QueuePairRequest, RegionKeys, WindowKey};

use crate::loopback::Queues;

impl Queues for &'static Sink {
    type CompletionQueue = VerbsCompletionQueue;
    type SendQueue = VerbsSendQueue;
    type ReceiveQueue = VerbsReceiveQueue;
    type SharedReceiveQueue = VerbsSharedReceiveQueue;

    const READS_AT_POST: bool = true;

    fn completion_queue(self) -> VerbsCompletionQueue {
        Sink::completion_queue(self)
    }

    fn send_queue(self, request: &QueuePairRequest) -> VerbsSendQueue {
        // The device copies the data of short requests at the post.
        assert!(request.may_read_at_post());
        let attributes = &request.attributes;
        let (depth, segments) = (attributes.max_request_dtos, attributes.max_request_iov);
        Sink::send_queue(self, request.token, depth as u32, segments as u32)
    }

    fn receive_queue(self, request: &QueuePairRequest) -> VerbsReceiveQueue {
        let attributes = &request.attributes;
        let (depth, segments) = (attributes.max_recv_dtos, attributes.max_recv_iov);
        Sink::receive_queue(self, depth as u32, segments as u32)
    }

    fn shared_receive_queue(self, depth: u32, segments: u32) -> VerbsSharedReceiveQueue {
        Sink::shared_receive_queue(self, depth, segments)
    }

    fn region(self, key: u32) -> RegionKeys {
        Sink::region(self, key)
    }

    fn window(self) -> WindowKey {
        Sink::window(self)
    }

    fn needs_renewal(self, window: WindowKey, missed: bool) -> bool {
        Sink::needs_renewal(self, window, missed)
    }

    fn free_window(self, window: WindowKey) {
        Sink::free_window(self, window);
    }

    fn complete_all(self) {
        Sink::complete_all(self);
    }
}
