//! Hosts, queue pairs and buffers for the tests, driven through the backend traits alone.

use core::sync::atomic::{AtomicU8, Ordering};

use backend_mock::{
    Fabric, FabricOptions, MockBackend, MockCompletionQueue, MockReceiveQueue, MockSendQueue,
    NodeOptions,
};
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::backend::{
    Backend, BindRequest, Completion, CompletionQueue, ConnectRequest, ControlEvent, DomainKey,
    QueuePairKey, QueuePairRequest, ReceiveRequest, RegionKeys, Registration, Rejected,
    RemoteRange, RequestKey, Segment, SendFlags, SendOperation, SendQueue, SendRequest,
    SharedReceiveQueueKey, WindowKey, WorkQueue, WorkSlot,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges, QualityOfService};
use dat_core::memory::Region;
use dat_core::sync::{load_bytes, store_bytes};
use dat_core::time::Instant;

pub(crate) const REQUESTS: u32 = 0;
pub(crate) const RECEIVES: u32 = 1;
pub(crate) const NONE: SendFlags = SendFlags::empty();
pub(crate) const FENCE: SendFlags = SendFlags::FENCE;

/// A registered buffer that lives as long as the process.
#[derive(Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) bytes: &'static [AtomicU8],
    pub(crate) keys: RegionKeys,
}

impl Buffer {
    pub(crate) fn address(&self) -> u64 {
        self.bytes.as_ptr().addr() as u64
    }

    pub(crate) fn fill(&self, byte: u8) {
        store_bytes(self.bytes, &vec![byte; self.bytes.len()]);
    }

    pub(crate) fn count_up(&self, from: u8) {
        let count = |index| from.wrapping_add(index as u8);
        let bytes: Vec<u8> = (0..self.bytes.len()).map(count).collect();
        store_bytes(self.bytes, &bytes);
    }

    pub(crate) fn content(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes.len()];
        load_bytes(self.bytes, &mut bytes);
        bytes
    }

    pub(crate) fn store(&self, at: usize, byte: u8) {
        self.bytes[at].store(byte, Ordering::Relaxed);
    }

    pub(crate) fn segment(&self, offset: u64, length: u32) -> Segment {
        Segment {
            address: self.address() + offset,
            length,
            key: self.keys.local,
        }
    }

    pub(crate) fn all(&self) -> Segment {
        self.segment(0, self.bytes.len() as u32)
    }

    pub(crate) fn remote(&self, offset: u64) -> RemoteRange {
        RemoteRange {
            address: self.address() + offset,
            key: self.keys.remote,
        }
    }
}

/// An adapter with a protection domain and two completion queues.
pub(crate) struct Host {
    pub(crate) fabric: Fabric,
    pub(crate) backend: MockBackend,
    pub(crate) domain: DomainKey,
    pub(crate) requests: MockCompletionQueue,
    pub(crate) receives: MockCompletionQueue,
    pub(crate) address: IaAddress,
    tokens: u64,
}

impl Host {
    pub(crate) fn new(fabric: &Fabric, number: u64) -> Self {
        Self::with(fabric, NodeOptions::new("test", number))
    }

    pub(crate) fn with(fabric: &Fabric, options: NodeOptions) -> Self {
        let mut backend = fabric.node(options);
        let domain = backend.create_domain().unwrap();
        let requests = backend.create_completion_queue(REQUESTS, 64).unwrap();
        let receives = backend.create_completion_queue(RECEIVES, 64).unwrap();
        Self {
            fabric: fabric.clone(),
            backend,
            domain,
            requests,
            receives,
            address: options.address,
            tokens: 100,
        }
    }

    pub(crate) fn token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    pub(crate) fn buffer(&mut self, length: usize, privileges: MemoryPrivileges) -> Buffer {
        self.buffer_in(self.domain, length, privileges)
    }

    pub(crate) fn buffer_in(
        &mut self,
        domain: DomainKey,
        length: usize,
        privileges: MemoryPrivileges,
    ) -> Buffer {
        let bytes: Vec<AtomicU8> = (0..length).map(|_| AtomicU8::new(0)).collect();
        let bytes: &'static [AtomicU8] = Vec::leak(bytes);
        let keys = self.register(bytes, domain, privileges);
        Buffer { bytes, keys }
    }

    pub(crate) fn register(
        &mut self,
        bytes: &'static [AtomicU8],
        domain: DomainKey,
        privileges: MemoryPrivileges,
    ) -> RegionKeys {
        let region = Region::from_static(bytes);
        let registration = Registration::new(domain, &region, privileges);
        self.backend.register(&registration).unwrap()
    }

    pub(crate) fn request(&mut self, attributes: EpAttributes) -> QueuePairRequest {
        let mut request = QueuePairRequest::new(self.token(), self.domain, attributes);
        request.request_queue = Some(REQUESTS);
        request.receive_queue = Some(RECEIVES);
        request
    }

    pub(crate) fn end(&mut self, attributes: EpAttributes) -> End {
        let request = self.request(attributes);
        self.end_from(&request)
    }

    pub(crate) fn shared_end(&mut self, shared: SharedReceiveQueueKey) -> End {
        let mut request = self.request(attributes());
        request.shared_receive_queue = Some(shared);
        self.end_from(&request)
    }

    pub(crate) fn end_from(&mut self, request: &QueuePairRequest) -> End {
        let pair = self.backend.create_queue_pair(request).unwrap();
        End {
            token: request.token,
            key: pair.key,
            send: pair.send,
            receive: pair.receive,
        }
    }

    pub(crate) fn destroy(&mut self, end: End) {
        self.backend
            .destroy_queue_pair(end.key, end.send, end.receive);
    }

    pub(crate) fn control(&mut self) -> Vec<ControlEvent> {
        std::iter::from_fn(|| self.backend.poll_control(Instant::ZERO)).collect()
    }

    /// Runs the fabric until this adapter has a control event.
    pub(crate) fn next_control(&mut self) -> Option<ControlEvent> {
        loop {
            if let Some(event) = self.backend.poll_control(Instant::ZERO) {
                return Some(event);
            }
            if !self.fabric.step() {
                return None;
            }
        }
    }

    /// Token, status and length of all request completions so far.
    pub(crate) fn sent(&mut self) -> Vec<(u64, DtoStatus)> {
        poll_all(&mut self.requests)
            .into_iter()
            .map(|completion| (completion.token, completion.status))
            .collect()
    }

    pub(crate) fn received(&mut self) -> Vec<(u64, DtoStatus, u32)> {
        poll_all(&mut self.receives)
            .into_iter()
            .map(|completion| (completion.token, completion.status, completion.length))
            .collect()
    }

    pub(crate) fn connect_request<'a>(
        &self,
        to: IaAddress,
        qualifier: u64,
        private_data: &'a [u8],
    ) -> ConnectRequest<'a> {
        ConnectRequest {
            address: to,
            qualifier,
            private_data,
            quality: QualityOfService::BEST_EFFORT,
        }
    }

    /// Takes the next control event, which has to be a connection request.
    pub(crate) fn next_request(&mut self) -> RequestKey {
        match self.next_control() {
            Some(ControlEvent::ConnectionRequest { request, .. }) => request,
            other => panic!("no connection request but {other:?}"),
        }
    }

    pub(crate) fn window(&mut self) -> WindowKey {
        self.backend.create_window(self.domain).unwrap()
    }
}

pub(crate) fn poll_all(queue: &mut MockCompletionQueue) -> Vec<Completion> {
    std::iter::from_fn(|| queue.poll().unwrap()).collect()
}

/// Attributes with which everything can be tried.
pub(crate) fn attributes() -> EpAttributes {
    EpAttributes {
        max_rdma_read_in: 4,
        max_rdma_read_out: 4,
        ..EpAttributes::DEFAULT
    }
}

/// A queue pair.
pub(crate) struct End {
    pub(crate) token: u64,
    pub(crate) key: QueuePairKey,
    pub(crate) send: MockSendQueue,
    pub(crate) receive: Option<MockReceiveQueue>,
}

impl End {
    pub(crate) fn post(
        &mut self,
        token: u64,
        operation: SendOperation,
        segments: &[Segment],
        flags: SendFlags,
    ) {
        self.queue(token, operation, segments, flags).unwrap();
        self.send.ring().unwrap();
    }

    /// Posts without ringing the doorbell.
    pub(crate) fn queue(
        &mut self,
        token: u64,
        operation: SendOperation,
        segments: &[Segment],
        flags: SendFlags,
    ) -> Result<(), Rejected> {
        let request = SendRequest {
            token,
            operation,
            flags,
        };
        commit(&mut self.send, &request, segments)
    }

    pub(crate) fn write(&mut self, token: u64, segments: &[Segment], to: RemoteRange) {
        self.post(token, SendOperation::RdmaWrite(to), segments, NONE);
    }

    pub(crate) fn read(&mut self, token: u64, segments: &[Segment], from: RemoteRange) {
        self.post(token, SendOperation::RdmaRead(from), segments, NONE);
    }

    pub(crate) fn send(&mut self, token: u64, segments: &[Segment]) {
        self.post(token, SendOperation::Send, segments, NONE);
    }

    pub(crate) fn receive(&mut self, token: u64, segments: &[Segment]) {
        let receive = self.receive.as_mut().expect("a shared receive queue");
        post_receive(receive, token, segments);
    }

    pub(crate) fn bind(
        &mut self,
        token: u64,
        window: WindowKey,
        buffer: &Buffer,
        (offset, length): (u64, u64),
        privileges: MemoryPrivileges,
    ) -> u32 {
        let request = BindRequest {
            token,
            window,
            region: buffer.keys,
            address: buffer.address() + offset,
            length,
            privileges,
            flags: NONE,
            is_only: true,
        };
        self.send.bind(&request).unwrap()
    }
}

pub(crate) fn post_receive(queue: &mut MockReceiveQueue, token: u64, segments: &[Segment]) {
    queue.post(&ReceiveRequest { token }, segments).unwrap();
}

/// Posts without ringing the doorbell.
fn commit<Q: WorkQueue>(
    queue: &mut Q,
    request: &Q::Request,
    segments: &[Segment],
) -> Result<(), Rejected> {
    let slot = queue.reserve(request, segments.len());
    let mut slot = slot.expect("the queue is full");
    for segment in segments {
        slot.segment(*segment);
    }
    slot.commit(segments.iter().map(|segment| segment.length).sum())
}

/// A Send that tests reserve a slot for, and drop.
pub(crate) const PROBE: SendRequest = SendRequest {
    token: 0,
    operation: SendOperation::Send,
    flags: NONE,
};

/// A receive that tests reserve a slot for, and drop.
pub(crate) const RECEIVE_PROBE: ReceiveRequest = ReceiveRequest { token: 0 };

/// Connects `a` of `from` to `b` of `to`, and takes the events of that.
pub(crate) fn connect(from: &mut Host, a: &End, to: &mut Host, b: &End) {
    let (listener, qualifier) = to.backend.listen(1, None).unwrap();
    let request = from.connect_request(to.address, qualifier, b"hello");
    from.backend.connect(a.key, &request).unwrap();
    let request = to.next_request();
    to.backend.accept(request, b.key, b"welcome").unwrap();
    to.backend.stop_listening(listener);
    loop {
        match from.next_control() {
            Some(ControlEvent::Answered { queue_pair }) => assert_eq!(queue_pair, a.token),
            Some(ControlEvent::Established {
                queue_pair,
                private_data,
            }) => {
                assert_eq!((queue_pair, &private_data[..]), (a.token, &b"welcome"[..]));
                break;
            }
            other => panic!("not established but {other:?}"),
        }
    }
    match to.next_control() {
        Some(ControlEvent::Established {
            queue_pair,
            private_data,
        }) => assert_eq!((queue_pair, private_data.len()), (b.token, 0)),
        other => panic!("not established but {other:?}"),
    }
}

/// Two hosts with a connection between them.
pub(crate) struct Couple {
    pub(crate) fabric: Fabric,
    pub(crate) near: Host,
    pub(crate) far: Host,
    pub(crate) a: End,
    pub(crate) b: End,
}

impl Couple {
    pub(crate) fn new(options: FabricOptions) -> Self {
        Self::with(options, attributes(), attributes())
    }

    pub(crate) fn with(options: FabricOptions, near: EpAttributes, far: EpAttributes) -> Self {
        let fabric = Fabric::new(options);
        Self::on(
            &fabric,
            (NodeOptions::new("near", 1), near),
            (NodeOptions::new("far", 2), far),
        )
    }

    pub(crate) fn on(
        fabric: &Fabric,
        near: (NodeOptions, EpAttributes),
        far: (NodeOptions, EpAttributes),
    ) -> Self {
        let mut near_host = Host::with(fabric, near.0);
        let mut far_host = Host::with(fabric, far.0);
        let a = near_host.end(near.1);
        let b = far_host.end(far.1);
        connect(&mut near_host, &a, &mut far_host, &b);
        Self {
            fabric: fabric.clone(),
            near: near_host,
            far: far_host,
            a,
            b,
        }
    }

    pub(crate) fn run(&self) {
        assert!(self.fabric.run_until_idle(100_000) < 100_000, "never idle");
    }

    /// Both ends have broken, and say so once.
    pub(crate) fn assert_broken(&mut self) {
        self.run();
        let (a, b) = (self.a.token, self.b.token);
        assert_eq!(
            self.near.control(),
            [ControlEvent::Broken { queue_pair: a }]
        );
        assert_eq!(self.far.control(), [ControlEvent::Broken { queue_pair: b }]);
    }
}

/// The fabrics with which a test is repeated: some seeds, and one without any delay.
pub(crate) fn variety() -> impl Iterator<Item = FabricOptions> {
    (0..16)
        .map(|seed| FabricOptions {
            seed,
            ..FabricOptions::default()
        })
        .chain([FabricOptions::immediate()])
        .inspect(|options| println!("{options:?}"))
}
