//! A remote memory region: B binds a window on its memory for A, twice.
//!
//! The second bind revokes the context of the first, and the region stays registered.
//!
//! `cargo run -p backend-mock --example bind`

mod pair;

use std::sync::atomic::AtomicU8;

use backend_mock::{Fabric, FabricOptions, NodeOptions};
use dat_core::event::{ConnectionEventKind, Event};
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges};
use dat_core::memory::{LmrTriplet, RmrTriplet};
use dat_core::sync::{load_bytes, store_bytes};
use pair::{Node, Result, Storage, connect};

static SOURCE: [AtomicU8; 16] = [const { AtomicU8::new(0) }; 16];
static TARGET: [AtomicU8; 64] = [const { AtomicU8::new(0) }; 64];
const NONE: CompletionFlags = CompletionFlags::empty();

fn main() -> Result<()> {
    let fabric = Fabric::new(FabricOptions::default());
    let (mut storage_a, mut storage_b) = (Storage::new(), Storage::new());
    let a = Node::open(&fabric, NodeOptions::new("a", 1), &mut storage_a)?;
    let b = Node::open(&fabric, NodeOptions::new("b", 2), &mut storage_b)?;
    let (ep_a, ep_b) = (a.endpoint()?, b.endpoint()?);
    connect((&a, ep_a), (&b, ep_b), 7)?;

    // B's region grants peers no rights; only a window gives access.
    let local = MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE;
    let source = a.register(&SOURCE, local)?;
    let target = b.register(&TARGET, local)?;
    assert_eq!(target.rmr_context, 0);
    store_bytes(&SOURCE, b"through a window");
    let text = [LmrTriplet {
        context: source.lmr_context,
        address: source.registered_address,
        length: 16,
    }];

    // A bind is posted like a transfer and completes with an event. The peer uses its context.
    let rmr = b.ia.rmr_create(b.zone)?;
    let window = LmrTriplet {
        context: target.lmr_context,
        address: target.registered_address + 32,
        length: 16,
    };
    let bind = |segment: &LmrTriplet, cookie| -> Result<u32> {
        let privileges = MemoryPrivileges::REMOTE_WRITE;
        let context =
            b.ia.rmr_bind(rmr, segment, privileges, ep_b, cookie, NONE)?;
        let event = b.next()?;
        assert!(matches!(event, Event::RmrBind(done) if done.status == DtoStatus::Success));
        Ok(context)
    };
    let write = |context, cookie| -> Result<DtoStatus> {
        let remote = RmrTriplet {
            context,
            address: window.address,
            length: window.length,
        };
        a.ia.post_rdma_write(ep_a, &text, cookie, &remote, NONE)?;
        match a.next()? {
            Event::Dto(done) if done.cookie == cookie => Ok(done.status),
            other => Err(format!("{other:?} instead of the completion").into()),
        }
    };
    let first = bind(&window, 1)?;
    assert_eq!(write(first, 2)?, DtoStatus::Success);
    let mut arrived = [0; 16];
    load_bytes(&TARGET[32..], &mut arrived);
    println!("B reads: {}", String::from_utf8_lossy(&arrived));
    assert_eq!(&arrived, b"through a window");

    // A second bind gives a new context. The old one is invalid from then on, even for the same
    // memory.
    let second = bind(&window, 3)?;
    assert_ne!(first, second);
    assert_eq!(write(second, 4)?, DtoStatus::Success);
    let stale = write(first, 5)?;
    println!("with the stale context: {stale:?}");
    assert_eq!(stale, DtoStatus::RemoteAccess);

    // An access without a right breaks the connection, on both sides.
    for node in [&a, &b] {
        let event = node.next()?;
        let broken = ConnectionEventKind::Broken;
        assert!(matches!(event, Event::Connection { kind, .. } if kind == broken));
    }
    Ok(())
}
