//! Devices with sockets on the loop-back interface.

#![cfg(feature = "udp")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use backend_roce::proto::PathMtu;
use backend_roce::{
    Data, DeviceCompletion, DeviceQueue, Operation, PairOptions, Post, ReceiveAttributes,
    RegionAccess, RemoteRights, RoceDevice, RoceOptions, SendAttributes,
};
use dat_core::backend::Segment;
use dat_core::flags::DtoStatus;
use dat_core::memory::Region;

const LENGTH: usize = 100_000;

const PATIENCE: Duration = Duration::from_secs(60);

/// A device with a queue pair and memory.
struct Side {
    device: RoceDevice,
    queue: DeviceQueue,
    qpn: u32,
    bytes: &'static [AtomicU8],
    segment: Segment,
}

impl Side {
    fn open(address: IpAddr) -> Self {
        let options = RoceOptions::random().expect("random bytes");
        let device = RoceDevice::open(SocketAddr::new(address, 0), &options).expect("a device");
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
            qpn,
            bytes,
            segment: Segment {
                address: bytes.as_ptr() as u64,
                length: LENGTH as u32,
                key: key.expect("a region"),
            },
        }
    }

    fn attach(&self, own: IpAddr, peer: IpAddr, peer_qpn: u32) {
        let receives = ReceiveAttributes {
            local: own,
            peer: SocketAddr::new(peer, 0),
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
            timeout: 20,
            retries: 7,
            not_ready_retries: 7,
        };
        let done = self.device.ready_to_receive(self.qpn, &receives);
        done.and_then(|()| self.device.ready_to_send(self.qpn, &sends))
            .expect("ready");
    }

    fn wait(&self) -> DeviceCompletion {
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

/// Devices at one address, and at several of a host, have ports of their own.
///
/// Spec: ROCE-260, ROCE-261, ROCE-262
#[test]
fn devices_of_one_address_reach_each_other() {
    let address = Ipv4Addr::new(127, 88, 1, 1).into();
    let other = Ipv4Addr::new(127, 88, 1, 2).into();
    for peer in [address, other] {
        let (one, two) = (Side::open(address), Side::open(peer));
        let ports = [one.qpn, two.qpn].map(|qpn| (qpn >> 11) + 57_344);
        assert!(ports.iter().all(|port| *port >= 61_000), "{ports:?}");
        assert!(peer != address || ports[0] != ports[1], "{ports:?}");
        one.attach(address, peer, two.qpn);
        two.attach(peer, address, one.qpn);
        one.bytes[LENGTH - 1].store(9, Ordering::Relaxed);
        let posted = two.device.post_receive(two.qpn, 1, &[two.segment]);
        posted.expect("a receive");
        let posted = one.device.post(one.qpn, |posts| {
            posts.post(&Post {
                token: 2,
                operation: Operation::Send(None),
                data: Data::Segments(&[one.segment]),
                receiver: None,
                silent: false,
                fence: false,
                solicited: false,
            })
        });
        posted.expect("a pair that sends").expect("a request");
        let (sent, received) = (one.wait(), two.wait());
        assert_eq!((sent.token, sent.status), (2, DtoStatus::Success));
        assert_eq!((received.token, received.status), (1, DtoStatus::Success));
        assert_eq!(received.length as usize, LENGTH);
        assert_eq!(two.bytes[LENGTH - 1].load(Ordering::Relaxed), 9);
    }
}
