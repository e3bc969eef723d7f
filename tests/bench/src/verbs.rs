//! The queues of the verbs backend, on a device of the model of its libraries.

use alloc::boxed::Box;
use alloc::sync::Arc;

use backend_verbs::{
    OpenDevices, VerbsBackend, VerbsCompletionQueue, VerbsOptions, VerbsReceiveQueue,
    VerbsSendQueue, VerbsSharedReceiveQueue, WindowKind,
};
use dat_core::backend::{
    Backend, BackendError, DomainKey, QueuePair, QueuePairRequest, RegionKeys, Registration,
    SharedReceiveQueueKey, WindowKey,
};
use verbs_model::{Script, opened};

use crate::loopback::Queues;

/// The verbs backend on a device of its own.
#[derive(Debug)]
pub struct VerbsQueues {
    backend: VerbsBackend,
    script: Arc<Script>,
}

impl VerbsQueues {
    /// Opens a device of the model.
    ///
    /// # Panics
    /// The model has no such device, or no descriptors are left.
    #[must_use]
    pub fn open(name: &str, windows: WindowKind) -> Self {
        let mut options = VerbsOptions::default();
        options.devices = Box::leak(Box::new(OpenDevices::new()));
        options.windows = windows;
        Self {
            backend: VerbsBackend::open(name, options).expect("a device of the model"),
            script: opened(),
        }
    }
}

impl Queues for VerbsQueues {
    type CompletionQueue = VerbsCompletionQueue;
    type SendQueue = VerbsSendQueue;
    type ReceiveQueue = VerbsReceiveQueue;
    type SharedReceiveQueue = VerbsSharedReceiveQueue;
    type Device = Arc<Script>;

    const READS_AT_POST: bool = VerbsBackend::READS_AT_POST;

    fn device(&self) -> Arc<Script> {
        Arc::clone(&self.script)
    }

    fn complete_all(device: &Arc<Script>) {
        device.complete_all();
    }

    fn domain(&mut self) -> Result<DomainKey, BackendError> {
        self.backend.create_domain()
    }

    fn completion_queue(
        &mut self,
        number: u32,
        depth: u32,
    ) -> Result<VerbsCompletionQueue, BackendError> {
        self.backend.create_completion_queue(number, depth)
    }

    fn queue_pair(
        &mut self,
        request: &QueuePairRequest,
    ) -> Result<QueuePair<VerbsSendQueue, VerbsReceiveQueue>, BackendError> {
        // The device copies the data of short requests at the post.
        assert!(request.may_read_at_post());
        self.backend.create_queue_pair(request)
    }

    fn shared_receive_queue(
        &mut self,
        token: u64,
        domain: DomainKey,
        depth: u32,
        segments: u32,
    ) -> Result<(SharedReceiveQueueKey, VerbsSharedReceiveQueue), BackendError> {
        self.backend
            .create_shared_receive_queue(token, domain, depth, segments)
    }

    fn region(
        &mut self,
        _number: u32,
        registration: &Registration,
    ) -> Result<RegionKeys, BackendError> {
        self.backend.register(registration)
    }

    fn free_region(&mut self, region: RegionKeys) {
        self.backend.deregister(region);
    }

    fn window(&mut self, domain: DomainKey) -> Result<WindowKey, BackendError> {
        self.backend.create_window(domain)
    }

    fn needs_renewal(&self, window: WindowKey, missed: bool) -> bool {
        self.backend.needs_renewal(window, missed)
    }

    fn free_window(&mut self, window: WindowKey) {
        self.backend.destroy_window(window);
    }
}
