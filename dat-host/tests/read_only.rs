//! Regions of shared and read-only buffers.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use common::Pair;
use dat_core::ErrorKind;
use dat_core::flags::DtoStatus;
use dat_host::{Access, RemoteSlice};

/// An owner of bytes that counts its drops.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_shared_buffer_is_sent_and_written_while_others_read_it() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let bytes = Bytes::from(b"0123456789".to_vec());
    let region = pair.near.read_region(bytes.clone()).unwrap();
    let receive = far.recv(pair.far.buffer(10).unwrap());
    let window = pair.far.region(vec![0_u8; 10]).unwrap();
    let window = window.expose(.., Access::WRITE).to(&far).wait().unwrap();
    let sent = near.send(region.clone());
    let written = near.write(region.slice(4..8).unwrap(), window.remote());
    assert_eq!(region[..], bytes[..]);
    assert_eq!(receive.wait().unwrap().memory[..], bytes[..]);
    drop((sent.wait().unwrap(), written.wait().unwrap()));
    assert_eq!(window.revoke().wait()[..4], *b"4567");
    assert!(region.slice(4..11).is_err());
    let returned = region.into_inner().unwrap();
    assert_eq!(returned.as_ptr(), bytes.as_ptr(), "nothing was copied");
}

#[test]
fn peers_read_a_shared_buffer_and_cannot_write_it() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let bytes = Bytes::from_static(b"read only");
    let region = pair.far.read_region(bytes).unwrap();
    let window = region.clone().expose(5..).to(&far).wait().unwrap();
    let remote = window.remote();
    assert_eq!((remote.access(), remote.len()), (Access::READ, 4));
    let read = near.read(remote, pair.near.buffer(4).unwrap()).wait();
    assert_eq!(&read.unwrap()[..], b"only");
    // The value says so, and it is refused at once.
    let refused = near.write(pair.near.copy(b"lies").unwrap(), remote).wait();
    let kind = refused.unwrap_err().error.core().map(|error| error.kind());
    assert_eq!(kind, Some(ErrorKind::PrivilegesViolation));
    // A peer that claims the right is refused by the target.
    let forged = Access::READ | Access::WRITE;
    let forged = RemoteSlice::new(remote.context(), remote.address(), 4, forged).unwrap();
    let failed = near.write(pair.near.copy(b"lies").unwrap(), forged).wait();
    assert_eq!(
        failed.unwrap_err().error.status(),
        Some(DtoStatus::RemoteAccess)
    );
    assert_eq!(&region[..], b"read only");
    assert_eq!(&window[..], b"only");
}

#[test]
fn several_windows_share_one_region_until_they_are_revoked() {
    let pair = Pair::new();
    let ends = [pair.connect(), pair.connect()];
    let shared: Arc<[u8]> = Arc::from(*b"shared bytes");
    let region = pair.far.read_region(Arc::clone(&shared)).unwrap();
    let windows = ends.each_ref().map(|(_, far)| {
        let exposed = region.clone().expose(..6).to(far);
        exposed.wait().unwrap()
    });
    for ((near, _), window) in ends.iter().zip(&windows) {
        let read = near.read(window.remote(), pair.near.buffer(6).unwrap());
        assert_eq!(&read.wait().unwrap()[..], b"shared");
    }
    let region = region.into_inner().unwrap_err();
    let [first, second] = windows;
    drop(first);
    let revoked = second.revoke().wait();
    assert_eq!(revoked.len(), 12, "the whole region comes back");
    drop(region);
    assert_eq!(Arc::strong_count(&shared), 2);
    drop(revoked.into_inner().unwrap());
    assert_eq!(Arc::strong_count(&shared), 1);
}

#[test]
fn a_revoked_window_is_not_readable() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let region = pair.far.read_region(&b"constant"[..]).unwrap();
    let window = region.expose(..).to(&far).wait().unwrap();
    let remote = window.remote();
    let region = window.revoke().wait();
    let read = near.read(remote, pair.near.buffer(8).unwrap()).wait();
    assert_eq!(
        read.unwrap_err().error.status(),
        Some(DtoStatus::RemoteAccess)
    );
    assert_eq!(region.into_inner().unwrap(), b"constant");
}

#[test]
fn the_owner_is_dropped_after_its_last_use() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let drops = Arc::new(AtomicUsize::new(0));
    let owner = Counted(vec![7; 32], Arc::clone(&drops));
    let region = pair.near.read_region(Bytes::from_owner(owner)).unwrap();
    let window = region.clone().expose(..).to(&near).wait().unwrap();
    // The Send waits for a receive, and its future is dropped.
    drop(near.send(region.clone()));
    drop(region);
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    drop(window);
    assert_eq!(drops.load(Ordering::SeqCst), 0, "the Send is in flight");
    let received = far.recv(pair.far.buffer(32).unwrap()).wait().unwrap();
    assert_eq!(received.memory[..], [7; 32]);
    common::eventually("the owner is dropped", || drops.load(Ordering::SeqCst) == 1);
}

#[test]
fn empty_and_foreign_memory_is_refused() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let refused = pair.near.read_region(Bytes::new()).unwrap_err();
    assert_eq!(
        refused.error.core().map(|error| error.kind()),
        Some(ErrorKind::InvalidParameter)
    );
    let region = pair.near.read_region(Bytes::from_static(b"near")).unwrap();
    let sent = far.send(region.clone()).wait().unwrap_err();
    let kind = sent.error.core().map(|error| error.kind());
    assert_eq!(kind, Some(ErrorKind::InvalidHandle));
    let exposed = region.clone().expose(..).to(&far).wait().unwrap_err();
    assert_eq!(&exposed.memory[..], b"near");
    let exposed = region.clone().expose(2..2).to(&near).wait().unwrap_err();
    let kind = exposed.error.core().map(|error| error.kind());
    assert_eq!(kind, Some(ErrorKind::InvalidParameter));
    assert!(region.expose(..5).to(&near).wait().is_err());
}
