//! Memory that processor and device do not see alike: what goes wrong without the two synchronising calls, and right with them.
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
    // The device of B looks past the cache of B's processor, as in many small machines.
    let options = NodeOptions::new("b", 2).non_coherent();
    let b = Node::open(&fabric, options, &mut storage_b)?;
    let (ep_a, ep_b) = (a.endpoint()?, b.endpoint()?);
    connect((&a, ep_a), (&b, ep_b), 7)?;
    let of_a = a.register(&OF_A, MemoryPrivileges::ALL)?;
    let of_b = b.register(&OF_B, MemoryPrivileges::ALL)?;

    // A program asks its own provider whether it has to make the calls.
    assert!(!needs_sync(&a)?);
    assert!(needs_sync(&b)?);

    // A writes into B's memory; a message behind the write says that it has arrived.
    store_bytes(&OF_A, b"a letter from A.");
    b.ia.post_recv(ep_b, &[], 1, NONE)?;
    a.ia.post_rdma_write(ep_a, &[piece(&of_a)], 2, &remote(&of_b), NONE)?;
    a.ia.post_send(ep_a, &[], 3, NONE)?;
    expect(&a, ep_a, DtoOperation::RdmaWrite)?;
    expect(&a, ep_a, DtoOperation::Send)?;
    expect(&b, ep_b, DtoOperation::Receive)?;

    // Wrong: all is done, and B's processor reads from its cache what was there before.
    println!("B reads, without the call: {:?}", text(&OF_B));
    assert_eq!(text(&OF_B), "\0".repeat(SIZE));
    // Right: behind the message and before the first look.
    b.ia.lmr_sync_rdma_write(&[piece(&of_b)])?;
    println!("B reads, after lmr_sync_rdma_write: {:?}", text(&OF_B));
    assert_eq!(text(&OF_B), "a letter from A.");

    // The other way round B stores something for A to fetch.
    let fetch = || {
        store_bytes(&OF_A, &[b'?'; SIZE]);
        let to = [piece(&of_a)];
        a.ia.post_rdma_read(ep_a, &to, 4, &remote(&of_b), NONE)?;
        expect(&a, ep_a, DtoOperation::RdmaRead)
    };
    store_bytes(&OF_B, b"B's answer to A.");
    // Wrong: the store is in the cache, and B's device sends what the memory holds.
    fetch()?;
    println!("A fetches, without the call: {:?}", text(&OF_A));
    assert_eq!(text(&OF_A), "a letter from A.");
    // Right: behind the stores, and before A is told that it may fetch.
    b.ia.lmr_sync_rdma_read(&[piece(&of_b)])?;
    fetch()?;
    println!("A fetches, after lmr_sync_rdma_read: {:?}", text(&OF_A));
    assert_eq!(text(&OF_A), "B's answer to A.");
    Ok(())
}

/// Whether a program on this adapter has to synchronise what peers write and read.
fn needs_sync(node: &Node<'_>) -> Result<bool> {
    let known = node
        .ia
        .ia_query(IaFields::empty(), ProviderFields::LMR_SYNC_REQ)?;
    Ok(known.provider.lmr_sync_req)
}

/// Waits for the next event, which has to be the end of an operation of this kind.
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

/// All of a region, for calls of the side that has it.
fn piece(region: &LmrCreated) -> LmrTriplet {
    LmrTriplet {
        context: region.lmr_context,
        address: region.registered_address,
        length: SIZE as u64,
    }
}

/// The same for its peer.
fn remote(region: &LmrCreated) -> RmrTriplet {
    RmrTriplet {
        context: region.rmr_context,
        address: region.registered_address,
        length: SIZE as u64,
    }
}

/// What the processor of a side reads.
fn text(memory: &[AtomicU8; SIZE]) -> String {
    let mut bytes = [0; SIZE];
    load_bytes(memory, &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}
