//! Memory that processor and device see differently: with and without the two synchronising calls.
//!
//! `cargo run -p backend-mock --example non_coherent`

mod pair;

use std::sync::atomic::AtomicU8;

use backend_mock::{Fabric, FabricOptions, NodeOptions};
use dat_core::event::{DtoOperation, Event};
use dat_core::flags::{CompletionFlags, DtoStatus, IaFields, MemoryPrivileges, ProviderFields};
use dat_core::id::EpId;
use dat_core::memory::{LmrCreated, LmrTriplet, RmrTriplet};
use dat_core::sync::{load_bytes, store_bytes};
use pair::{Node, Result, Storage, connect};

const SIZE: usize = 16;
static OF_A: [AtomicU8; SIZE] = [const { AtomicU8::new(0) }; SIZE];
static OF_B: [AtomicU8; SIZE] = [const { AtomicU8::new(0) }; SIZE];
const NONE: CompletionFlags = CompletionFlags::empty();

fn main() -> Result<()> {
    let fabric = Fabric::new(FabricOptions::default());
    let (mut storage_a, mut storage_b) = (Storage::new(), Storage::new());
    let a = Node::open(&fabric, NodeOptions::new("a", 1), &mut storage_a)?;
    // The device of B bypasses the cache of B's processor, as in many small machines.
    let options = NodeOptions::new("b", 2).non_coherent();
    let b = Node::open(&fabric, options, &mut storage_b)?;
    let (ep_a, ep_b) = (a.endpoint()?, b.endpoint()?);
    connect((&a, ep_a), (&b, ep_b), 7)?;
    let of_a = a.register(&OF_A, MemoryPrivileges::ALL)?;
    let of_b = b.register(&OF_B, MemoryPrivileges::ALL)?;

    // A program asks its own provider if it has to make the calls.
    assert!(!needs_sync(&a)?);
    assert!(needs_sync(&b)?);

    // A writes into B's memory. A message after the write tells B that it has arrived.
    store_bytes(&OF_A, b"a letter from A.");
    b.ia.post_recv(ep_b, &[], 1, NONE)?;
    a.ia.post_rdma_write(ep_a, &[segment(&of_a)], 2, &remote(&of_b), NONE)?;
    a.ia.post_send(ep_a, &[], 3, NONE)?;
    expect(&a, ep_a, DtoOperation::RdmaWrite)?;
    expect(&a, ep_a, DtoOperation::Send)?;
    expect(&b, ep_b, DtoOperation::Receive)?;

    // Wrong: the write is complete, but B's processor reads old bytes from its cache.
    println!("B reads, without the call: {:?}", text(&OF_B));
    assert_eq!(text(&OF_B), "\0".repeat(SIZE));
    // Right: the call comes after the message and before the first load.
    b.ia.lmr_sync_rdma_write(&[segment(&of_b)])?;
    println!("B reads, after lmr_sync_rdma_write: {:?}", text(&OF_B));
    assert_eq!(text(&OF_B), "a letter from A.");

    // In the other direction, B stores bytes and A reads them.
    let fetch = || {
        store_bytes(&OF_A, &[b'?'; SIZE]);
        let to = [segment(&of_a)];
        a.ia.post_rdma_read(ep_a, &to, 4, &remote(&of_b), NONE)?;
        expect(&a, ep_a, DtoOperation::RdmaRead)
    };
    store_bytes(&OF_B, b"B's answer to A.");
    // Wrong: the store is in the cache, and B's device sends the content of the memory.
    fetch()?;
    println!("A fetches, without the call: {:?}", text(&OF_A));
    assert_eq!(text(&OF_A), "a letter from A.");
    // Right: the call comes after the stores, and before A is told to read.
    b.ia.lmr_sync_rdma_read(&[segment(&of_b)])?;
    fetch()?;
    println!("A fetches, after lmr_sync_rdma_read: {:?}", text(&OF_A));
    assert_eq!(text(&OF_A), "B's answer to A.");
    Ok(())
}

/// Returns true if a program on this adapter has to synchronise its memory.
fn needs_sync(node: &Node<'_>) -> Result<bool> {
    let known = node
        .ia
        .ia_query(IaFields::empty(), ProviderFields::LMR_SYNC_REQ)?;
    Ok(known.provider.lmr_sync_req)
}

/// Waits for the next event, which must be a successful completion of this kind.
fn expect(node: &Node<'_>, ep: EpId, operation: DtoOperation) -> Result<()> {
    match node.next()? {
        Event::Dto(done) => {
            let expected = (ep, operation, DtoStatus::Success);
            assert_eq!((done.ep, done.operation, done.status), expected);
            Ok(())
        }
        other => Err(format!("{other:?} instead of {operation:?}").into()),
    }
}

/// Returns the whole region as a segment for its own side.
fn segment(region: &LmrCreated) -> LmrTriplet {
    LmrTriplet {
        context: region.lmr_context,
        address: region.registered_address,
        length: SIZE as u64,
    }
}

/// Returns the whole region as a remote range for the peer.
fn remote(region: &LmrCreated) -> RmrTriplet {
    RmrTriplet {
        context: region.rmr_context,
        address: region.registered_address,
        length: SIZE as u64,
    }
}

/// Returns the text that the processor of a side reads.
fn text(memory: &[AtomicU8; SIZE]) -> String {
    let mut bytes = [0; SIZE];
    load_bytes(memory, &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}
