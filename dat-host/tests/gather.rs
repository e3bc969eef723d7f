//! Operations on several pieces of memory.

mod common;

use common::Pair;
use dat_core::attributes::EpAttributes;
use dat_core::{Cause, ErrorKind};
use dat_host::{Access, Buffer, Endpoint, Gather, Zone};

/// Connects two endpoints with four segments for each operation.
fn connect(pair: &Pair) -> (Endpoint, Endpoint) {
    let attributes = EpAttributes {
        max_recv_iov: 4,
        max_request_iov: 4,
        max_rdma_read_iov: 4,
        max_rdma_write_iov: 4,
        max_rdma_read_in: 1,
        max_rdma_read_out: 1,
        ..EpAttributes::DEFAULT
    };
    let listener = pair.far.listen_with(None, 4).unwrap();
    let peer = (pair.far.address().unwrap(), listener.qualifier());
    let near = pair.near.connect(peer).attributes(attributes).start();
    let far = listener.next().wait().unwrap().accept();
    let far = far.attributes(attributes).wait().unwrap();
    (near.wait().unwrap(), far)
}

fn copies(zone: &Zone, parts: &[&[u8]]) -> Gather<Buffer> {
    let parts = parts.iter().map(|part| zone.copy(part).unwrap());
    Gather::new(parts.collect()).unwrap()
}

/// Returns the bytes of all pieces, with a bar between them.
fn joined(gather: Gather<Buffer>) -> Vec<u8> {
    let parts = gather.into_parts();
    let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
    parts.join(&b'|')
}

#[test]
fn an_operation_moves_all_pieces_in_order() {
    let pair = Pair::new();
    let (near, far) = connect(&pair);
    let window = pair.far.region(vec![b'.'; 16]).unwrap();
    let window = window.expose(.., Access::READ | Access::WRITE).to(&far);
    let window = window.wait().unwrap();
    let remote = window.remote();

    // Into pieces of 4 bytes. The last ones stay empty.
    let space = || Gather::new(pair.far.buffers(3, 4).unwrap()).unwrap();
    let receive = far.recv(space());
    let sent = near.send(copies(&pair.near, &[b"a", b"", b"bcde"]));
    assert_eq!(joined(sent.wait().unwrap()), b"a||bcde");
    let received = receive.wait().unwrap();
    assert_eq!(received.length, 5);
    assert_eq!(joined(received.memory), b"abcd|e|");

    let written = near.write(copies(&pair.near, &[b"12", b"345"]), remote);
    assert_eq!(joined(written.wait().unwrap()), b"12|345");
    let space = Gather::new(pair.near.buffers(2, 4).unwrap()).unwrap();
    let read = near.read(remote.slice(..8).unwrap(), space).wait().unwrap();
    assert_eq!(joined(read), b"1234|5...");

    let mut batch = near.batch();
    let target = remote.slice(6..).unwrap();
    batch
        .write(copies(&pair.near, &[b"x", b"y"]), target)
        .unwrap();
    let target = remote.slice(9..).unwrap();
    batch.write(copies(&pair.near, &[b"z"]), target).unwrap();
    for transfer in batch.post() {
        transfer.wait().unwrap();
    }
    assert_eq!(&window.revoke().wait()[..12], b"12345.xy.z..");
    // Dropped in flight, the pieces return to their pool.
    drop(near.send(copies(&pair.near, &[b"no receive", b"for it"])));
}

#[test]
fn pieces_that_do_not_fit_together_are_refused() {
    let pair = Pair::new();
    let (near, _far) = connect(&pair);
    let none = Gather::<Buffer>::new(Vec::new()).unwrap_err();
    assert_eq!(none.error.core().unwrap().cause(), Cause::ZeroCount);
    let (own, foreign) = (pair.near.copy(b"own"), pair.far.copy(b"foreign"));
    let mixed = Gather::new(vec![own.unwrap(), foreign.unwrap()]).unwrap_err();
    assert_eq!(mixed.error.core().unwrap().cause(), Cause::Foreign);
    assert_eq!(mixed.memory.len(), 2);
    let foreign = near.send(copies(&pair.far, &[b"foreign"])).wait();
    let foreign = foreign.unwrap_err().error.core().unwrap();
    assert_eq!(foreign.kind(), ErrorKind::InvalidHandle);
    let many = near.send(copies(&pair.near, &[b"1", b"2", b"3", b"4", b"5"]));
    let many = many.wait().unwrap_err();
    assert_eq!(
        many.error.core().unwrap().kind(),
        ErrorKind::InvalidParameter
    );
    assert_eq!(many.memory.into_parts().len(), 5);
}
