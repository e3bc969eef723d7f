//! One shared receive queue for two endpoints, so that the server needs fewer buffers.
//!
//! `cargo run -p backend-mock --example shared_receive`

mod pair;

use std::sync::atomic::AtomicU8;

use backend_mock::{Fabric, FabricOptions, NodeOptions};
use dat_core::attributes::{EpAttributes, SrqAttributes};
use dat_core::event::{DtoOperation, Event};
use dat_core::flags::{CompletionFlags, DtoStatus, MemoryPrivileges, SrqFields};
use dat_core::memory::LmrTriplet;
use dat_core::sync::{load_bytes, store_bytes};
use pair::{Node, Result, Storage, connect};

/// Bytes of a receive buffer.
const SIZE: usize = 32;
/// Buffers in the shared queue, for both endpoints together.
const BUFFERS: usize = 3;

static BUFFER: [AtomicU8; SIZE * BUFFERS] = [const { AtomicU8::new(0) }; SIZE * BUFFERS];
static TEXT: [AtomicU8; SIZE] = [const { AtomicU8::new(0) }; SIZE];

fn main() -> Result<()> {
    let fabric = Fabric::new(FabricOptions::default());
    let (mut storage_a, mut storage_b) = (Storage::new(), Storage::new());
    let clients = Node::open(&fabric, NodeOptions::new("clients", 1), &mut storage_a)?;
    let server = Node::open(&fabric, NodeOptions::new("server", 2), &mut storage_b)?;

    // The queue, and two endpoints that take their receive buffers from it.
    let attributes = SrqAttributes {
        max_recv_dtos: BUFFERS as i32,
        max_recv_iov: 1,
        low_watermark: 0,
    };
    let queue = server.ia.srq_create(server.zone, &attributes)?;
    let (zone, evd) = (Some(server.zone), Some(server.evd));
    let endpoint = || {
        let attributes = EpAttributes::DEFAULT;
        let ia = &server.ia;
        ia.ep_create_with_srq(zone, evd, evd, evd, queue, &attributes)
    };
    let near = [clients.endpoint()?, clients.endpoint()?];
    let far = [endpoint()?, endpoint()?];
    for (number, (from, to)) in near.into_iter().zip(far).enumerate() {
        connect((&clients, from), (&server, to), 7 + number as u64)?;
    }

    // Buffers are posted to the queue, not to an endpoint; the cookie is the buffer's number.
    let memory = server.register(&BUFFER, MemoryPrivileges::LOCAL_WRITE)?;
    let post = |buffer: usize| {
        let segment = LmrTriplet {
            context: memory.lmr_context,
            address: memory.registered_address + (buffer * SIZE) as u64,
            length: SIZE as u64,
        };
        server.ia.srq_post_recv(queue, &[segment], buffer as u64)
    };
    for buffer in 0..BUFFERS {
        post(buffer)?;
    }

    // Six messages through three buffers. Each event names the endpoint and, by its cookie, the
    // buffer.
    let text = clients.register(&TEXT, MemoryPrivileges::LOCAL_READ)?;
    for message in 0..6 {
        let sender = usize::from(message % 3 == 0);
        let words = format!("message {message} of client {sender}");
        store_bytes(&TEXT, words.as_bytes());
        let segment = LmrTriplet {
            context: text.lmr_context,
            address: text.registered_address,
            length: words.len() as u64,
        };
        let flags = CompletionFlags::SUPPRESS;
        clients.ia.post_send(near[sender], &[segment], 0, flags)?;
        let Event::Dto(done) = server.next()? else {
            return Err("something else than a message".into());
        };
        assert_eq!(done.operation, DtoOperation::Receive);
        assert_eq!((done.ep, done.status), (far[sender], DtoStatus::Success));
        let buffer = done.cookie as usize;
        let mut bytes = vec![0; done.transferred_length as usize];
        load_bytes(&BUFFER[buffer * SIZE..], &mut bytes);
        println!("{} (in buffer {buffer})", String::from_utf8_lossy(&bytes));
        assert_eq!(bytes, words.as_bytes());
        post(buffer)?;
    }
    let state = server.ia.srq_query(queue, SrqFields::AVAILABLE)?;
    assert_eq!(state.available, BUFFERS as i32);
    Ok(())
}
