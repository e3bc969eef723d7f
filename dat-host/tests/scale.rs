//! Many connections and operations, without growth after the first ones, and the longest transfer.

mod common;

use common::{Pair, connect, eventually};
#[cfg(feature = "pages")]
use dat_core::flags::DtoStatus;
#[cfg(feature = "pages")]
use dat_host::Pages;
use dat_host::{
    Access, Adapter, Buffer, Driver, Endpoint, Message, Region, RemoteSlice, Window, Zone,
};

/// Bytes of memory in use by this process.
#[cfg(target_os = "linux")]
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_usize) * 4096
}

/// Makes, uses and ends connections.
fn rounds(pair: &Pair, count: usize) {
    let queue = pair.far.shared_receive(16, 64).unwrap();
    for number in 0..count {
        let (near, far) = connect(&pair.near, &pair.far, Some(&queue)).unwrap();
        let text = number.to_le_bytes();
        near.send(pair.near.copy(&text).unwrap()).wait().unwrap();
        assert_eq!(&far.next_message().wait().unwrap()[..], text);
        let region = pair.far.region(vec![0_u8; 64]).unwrap();
        let window = region.expose(.., Access::WRITE).to(&far).wait().unwrap();
        near.write(pair.near.copy(&text).unwrap(), window.remote())
            .wait()
            .unwrap();
        assert_eq!(&window.revoke().wait()[..8], text);
        near.disconnect().wait().unwrap();
        far.ended().wait();
    }
    drop(queue);
    eventually("nothing is left", || {
        pair.near_adapter.in_flight() + pair.far_adapter.in_flight() == 0
    });
}

/// A tenth of the number that `connections` makes.
#[cfg(target_os = "linux")]
#[test]
fn connections_leave_no_memory_behind() {
    grow_until_flat(1000);
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "takes a minute"]
fn ten_thousand_connections_leave_no_memory_behind() {
    grow_until_flat(10_000);
}

#[cfg(target_os = "linux")]
fn grow_until_flat(connections: usize) {
    let pair = Pair::new();
    let part = connections / 5;
    rounds(&pair, part);
    rounds(&pair, part);
    let before = resident();
    for _ in 2..5 {
        rounds(&pair, part);
    }
    let growth = resident().saturating_sub(before);
    assert!(growth < 1 << 20, "{growth} bytes more");
}

#[test]
fn objects_may_be_used_by_all_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Adapter>();
    shared::<Zone>();
    shared::<Region<Vec<u8>>>();
    shared::<Buffer>();
    shared::<Window<Box<[u8]>>>();
    shared::<Endpoint>();
    shared::<Message>();
    shared::<RemoteSlice>();
    shared::<Driver>();
}

/// Many threads on one endpoint, each with its own buffers.
#[test]
fn threads_share_an_endpoint() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let region = pair.far.region(vec![0_u8; 8 * 8]).unwrap();
    let window = region.expose(.., Access::all()).to(&far).wait().unwrap();
    let remote = window.remote();
    std::thread::scope(|scope| {
        for number in 0..8_u64 {
            let (near, zone) = (&near, &pair.near);
            scope.spawn(move || {
                let own = remote.slice(number * 8..number * 8 + 8).unwrap();
                let mut buffer = zone.buffer(8).unwrap();
                for round in 0..200 {
                    let value = round << 8 | number;
                    buffer.copy_from_slice(&value.to_le_bytes());
                    buffer = near.write(buffer, own).wait().unwrap();
                    buffer.fill(0);
                    buffer = near.read(own, buffer).wait().unwrap();
                    assert_eq!(buffer[..], value.to_le_bytes());
                }
            });
        }
    });
}

/// An endpoint takes messages as long as the adapter does.
///
/// Spec: EPC-03
#[cfg(feature = "pages")]
#[test]
fn a_transfer_may_be_as_long_as_the_adapter_allows() {
    const LENGTH: usize = (1 << 30) + 4096;
    let pair = Pair::new();
    let (near, _far) = pair.connect();
    let nowhere = RemoteSlice::new(1, 4096, LENGTH as u64, Access::WRITE).unwrap();
    // The pages are never touched: the peer refuses the access.
    let pages = pair.near.region(Pages::anonymous(LENGTH).unwrap()).unwrap();
    let failed = near.write(pages, nowhere).wait().unwrap_err().error;
    assert_eq!(failed.status(), Some(DtoStatus::RemoteAccess), "{failed}");
}
