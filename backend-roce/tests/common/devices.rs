//! Devices with sockets, and a queue pair each.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use backend_roce::proto::PathMtu;
use backend_roce::{
    Data, DeviceCompletion, DeviceQueue, Operation, PairOptions, PathChoice, Post,
    ReceiveAttributes, Receiver, RegionAccess, RemoteRights, RoceDevice, RoceOptions,
    SendAttributes,
};
use dat_core::backend::{BackendError, DomainKey, Segment};
use dat_core::flags::DtoStatus;
use dat_core::memory::Region;

pub const LENGTH: usize = 100_000;

pub const PATIENCE: Duration = Duration::from_secs(60);

/// A device with a queue pair and memory.
pub struct Side {
    pub device: RoceDevice,
    pub queue: DeviceQueue,
    pub domain: DomainKey,
    pub qpn: u32,
    pub bytes: &'static [AtomicU8],
    pub segment: Segment,
}

impl Side {
    pub fn open(address: IpAddr, path: PathChoice) -> Self {
        let mut options = RoceOptions::random().expect("random bytes");
        options.path = path;
        Self::open_with(address, &options)
    }

    pub fn open_with(address: IpAddr, options: &RoceOptions) -> Self {
        Self::open_at(SocketAddr::new(address, 0), options)
    }

    pub fn open_at(address: SocketAddr, options: &RoceOptions) -> Self {
        let device = RoceDevice::open(address, options).expect("a device");
        let domain = device.create_domain().expect("a domain");
        let queue = device.create_queue(16).expect("a queue");
        let options = PairOptions {
            domain,
            sends: &queue,
            receives: &queue,
            shared: None,
            send_depth: 4,
            receive_depth: 4,
            inline: 0,
        };
        let qpn = device.create_pair(&options).expect("a pair");
        let bytes: Vec<AtomicU8> = (0..LENGTH).map(|_| AtomicU8::new(0)).collect();
        let bytes: &'static [AtomicU8] = bytes.leak();
        let access = RegionAccess {
            local_write: true,
            ..RegionAccess::default()
        };
        let key = device.register(domain, &Region::from_static(bytes), access);
        Self {
            device,
            queue,
            domain,
            qpn,
            bytes,
            segment: Segment {
                address: bytes.as_ptr() as u64,
                length: LENGTH as u32,
                key: key.expect("a region"),
            },
        }
    }

    pub fn attach(&self, own: IpAddr, peer: IpAddr, peer_qpn: u32) {
        self.try_attach(own, peer, peer_qpn).expect("ready");
    }

    pub fn try_attach(&self, own: IpAddr, peer: IpAddr, peer_qpn: u32) -> Result<(), BackendError> {
        self.try_attach_at(own, SocketAddr::new(peer, 0), peer_qpn)
    }

    /// As `try_attach`, with the interface of a link-local peer.
    pub fn try_attach_at(
        &self,
        own: IpAddr,
        peer: SocketAddr,
        peer_qpn: u32,
    ) -> Result<(), BackendError> {
        let receives = ReceiveAttributes {
            local: own,
            peer,
            peer_qpn,
            expects: 5,
            mtu: PathMtu::Bytes4096,
            resources: 1,
            not_ready_timer: 1,
            rights: RemoteRights::default(),
        };
        let sends = SendAttributes {
            sends: 5,
            depth: 1,
            timeout: 14,
            retries: 7,
            not_ready_retries: 7,
        };
        let done = self.device.ready_to_receive(self.qpn, &receives);
        done.and_then(|()| self.device.ready_to_send(self.qpn, &sends))
    }

    pub fn send(&self) {
        self.post(Operation::Send(None), &[self.segment]);
    }

    pub fn post(&self, operation: Operation, segments: &[Segment]) {
        self.post_to(None, operation, segments);
    }

    /// Posts a datagram to a queue pair of another device, whose key is 1.
    pub fn post_datagram(&self, own: IpAddr, (peer, qpn): (IpAddr, u32), segments: &[Segment]) {
        let receiver = Receiver {
            local: own,
            peer: SocketAddr::new(peer, 0),
            qpn,
            key: 1,
        };
        self.post_to(Some(receiver), Operation::Send(None), segments);
    }

    fn post_to(&self, receiver: Option<Receiver>, operation: Operation, segments: &[Segment]) {
        let posted = self.device.post(self.qpn, |posts| {
            posts.post(&Post {
                token: 2,
                operation,
                data: Data::Segments(segments),
                receiver,
                silent: false,
                fence: false,
                solicited: false,
            })
        });
        posted.expect("a pair that sends").expect("a request");
    }

    /// Sends a message to another side, which takes it.
    pub fn send_to(&self, two: &Self) {
        self.bytes[LENGTH - 1].store(9, Ordering::Relaxed);
        let posted = two.device.post_receive(two.qpn, 1, &[two.segment]);
        posted.expect("a receive");
        self.send();
        let (sent, received) = (self.wait(), two.wait());
        assert_eq!((sent.token, sent.status), (2, DtoStatus::Success));
        assert_eq!((received.token, received.status), (1, DtoStatus::Success));
        assert_eq!(received.length as usize, LENGTH);
        assert_eq!(two.bytes[LENGTH - 1].load(Ordering::Relaxed), 9);
    }

    pub fn wait(&self) -> DeviceCompletion {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut found = None;
            let polled = self.device.poll(&self.queue, 1, |done| found = Some(done));
            polled.expect("a queue that works");
            if let Some(done) = found {
                return done;
            }
            assert!(Instant::now() < end, "no completion");
        }
    }
}
