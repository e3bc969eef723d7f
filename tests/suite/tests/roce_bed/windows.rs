//! Keys of windows below the core: what they open, and when.

use dat_core::backend::{
    Backend as _, BindRequest, RegionKeys, RemoteRange, Segment, SendFlags, SendOperation,
    SendQueue as _, SendRequest, WindowKey, WorkQueue as _,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges};

use crate::network::RoceBed;
use crate::node::{Node, connect};

/// Memory of a node that windows open.
struct Opened {
    bytes: &'static mut [u8],
    segment: Segment,
    region: RegionKeys,
}

impl Opened {
    fn new(node: &mut Node) -> Self {
        let (bytes, segment, remote) = node.memory(vec![0; 64]);
        Self {
            bytes,
            segment,
            region: RegionKeys {
                object: 0,
                local: segment.key,
                remote,
            },
        }
    }

    /// Posts a bind of a window to the whole memory; returns the new key.
    fn bind(&self, node: &mut Node, window: WindowKey) -> u32 {
        let request = BindRequest {
            token: 3,
            window,
            region: self.region,
            address: self.segment.address,
            length: self.segment.length.into(),
            privileges: MemoryPrivileges::REMOTE_WRITE,
            flags: SendFlags::empty(),
            is_only: true,
        };
        node.pair.send.bind(&request).unwrap()
    }

    fn range(&self, key: u32) -> RemoteRange {
        RemoteRange {
            address: self.segment.address,
            key,
        }
    }
}

pub(crate) fn post_write(node: &mut Node, source: Segment, remote: RemoteRange) {
    let request = SendRequest {
        token: 1,
        operation: SendOperation::RdmaWrite(remote),
        flags: SendFlags::empty(),
    };
    node.pair.send.post(&request, &[source]).unwrap();
}

/// The key of a window opens nothing once the window is destroyed, whatever took its place.
///
/// Spec: ROCE-110, ROCE-128
#[test]
fn a_key_of_a_destroyed_window_opens_no_other_window() {
    let bed = RoceBed::new();
    let (mut left, mut right) = connect(&bed, 7174);
    let (_, source, _) = left.memory(vec![7; 64]);
    let opened = Opened::new(&mut right);
    let first = right.device.create_window(right.domain).unwrap();
    let old = opened.bind(&mut right, first);
    assert_eq!(right.status(&bed), DtoStatus::Success);
    right.device.destroy_window(first);
    let second = right.device.create_window(right.domain).unwrap();
    assert_eq!(second, first, "the slot of the first window");
    let new = opened.bind(&mut right, second);
    assert_eq!(right.status(&bed), DtoStatus::Success);
    post_write(&mut left, source, opened.range(new));
    assert_eq!(left.status(&bed), DtoStatus::Success);
    assert_eq!(opened.bytes[..], [7; 64]);
    opened.bytes.fill(0);
    post_write(&mut left, source, opened.range(old));
    assert_eq!(left.status(&bed), DtoStatus::RemoteAccess);
    assert_eq!(opened.bytes[..], [0; 64]);
}

/// The key of a bind opens nothing before the bind is carried out, also of a window that is bound.
///
/// Spec: ROCE-91, ROCE-128
#[test]
fn a_key_of_a_pending_bind_opens_nothing() {
    for is_early in [false, true] {
        let bed = RoceBed::new();
        let (mut left, mut right) = connect(&bed, 7174);
        let (_, source, key) = left.memory(vec![7; 64]);
        let there = RemoteRange {
            address: source.address,
            key,
        };
        let opened = Opened::new(&mut right);
        let window = right.device.create_window(right.domain).unwrap();
        opened.bind(&mut right, window);
        assert_eq!(right.status(&bed), DtoStatus::Success);
        // The bind waits for the acknowledgement of an earlier request.
        post_write(&mut right, opened.segment, there);
        let pending = opened.bind(&mut right, window);
        if is_early {
            post_write(&mut left, source, opened.range(pending));
            bed.deliver_one();
            bed.deliver_one();
            assert_eq!(left.status(&bed), DtoStatus::RemoteAccess);
            assert_eq!(opened.bytes[..], [0; 64]);
        } else {
            assert_eq!(right.status(&bed), DtoStatus::Success);
            assert_eq!(right.status(&bed), DtoStatus::Success);
            post_write(&mut left, source, opened.range(pending));
            assert_eq!(left.status(&bed), DtoStatus::Success);
            assert_eq!(opened.bytes[..], [0; 64], "what was written there before");
        }
    }
}
