//! The verbs backend's queues on a device that is not there.

use backend_verbs::sink::Sink;
use backend_verbs::{
    VerbsCompletionQueue, VerbsReceiveQueue, VerbsSendQueue, VerbsSharedReceiveQueue,
};
use dat_bench::Queues;
use dat_core::backend::{QueuePairRequest, RegionKeys, WindowKey};

#[derive(Clone, Copy)]
pub(crate) struct Device(pub(crate) &'static Sink);

impl Queues for Device {
    type CompletionQueue = VerbsCompletionQueue;
    type SendQueue = VerbsSendQueue;
    type ReceiveQueue = VerbsReceiveQueue;
    type SharedReceiveQueue = VerbsSharedReceiveQueue;

    const READS_AT_POST: bool = true;

    fn completion_queue(self) -> VerbsCompletionQueue {
        self.0.completion_queue()
    }

    fn send_queue(self, request: &QueuePairRequest) -> VerbsSendQueue {
        assert!(request.may_read_at_post());
        self.0.send_queue(request.token, 64, 6)
    }

    fn receive_queue(self, _request: &QueuePairRequest) -> VerbsReceiveQueue {
        self.0.receive_queue(64, 6)
    }

    fn shared_receive_queue(self, depth: u32, segments: u32) -> VerbsSharedReceiveQueue {
        self.0.shared_receive_queue(depth, segments)
    }

    fn region(self, key: u32) -> RegionKeys {
        self.0.region(key)
    }

    fn window(self) -> WindowKey {
        self.0.window()
    }
}
