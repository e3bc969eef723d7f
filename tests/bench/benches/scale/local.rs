//! Connections of RoCEv2 through queues in memory: data on one beside many idle ones.

use std::net::Ipv4Addr;

use backend_roce::{PathChoice, RoceBackend, RoceOptions};
use dat_core::Result;
use dat_core::attributes::IaAddress;
use dat_core::backend::Backend as _;
use dat_core::event::Event;
use dat_core::flags::{CompletionFlags, PspFlags};
use dat_core::id::EpId;
use dat_core::time::Instant;

use crate::bed::Bed;
use crate::count::Counter;

/// Most connections of the measurement; an adapter has room for twice as many.
const MOST: usize = 10_000;

const QUALIFIER: u64 = 20_184;

type Side = Bed<RoceBackend>;

/// Opens an adapter without a thread; returns its address, too.
fn open(last: u8) -> (Side, IaAddress) {
    let mut options = RoceOptions::random().expect("random bytes");
    options.polled = true;
    options.path = PathChoice::Local;
    options.connections = 2 * MOST;
    let [.., high, low] = std::process::id().to_be_bytes();
    let ip = Ipv4Addr::new(127, last, high, low);
    let backend = RoceBackend::open((ip, 0).into(), options).expect("an adapter");
    let address = backend.ia_attributes().ia_address;
    (Bed::open(backend), address)
}

/// Polls for an event of a connection.
fn connected(side: &Side) -> Result<Event> {
    side.ia.progress(Instant::ZERO);
    side.ia.evd_dequeue(side.connections)
}

/// Connects an endpoint of either side.
fn connect(near: &Side, far: &Side, address: IaAddress) -> [EpId; 2] {
    let ends = [near, far].map(Side::endpoint);
    near.connect(ends[0], address, QUALIFIER);
    let mut made = 0;
    while made < 2 {
        made += usize::from(connected(near).is_ok());
        match connected(far) {
            Ok(Event::ConnectionRequest { cr, .. }) => {
                let accepted = far.ia.cr_accept(cr, Some(ends[1]), &[]);
                accepted.expect("an acceptance");
            }
            other => made += usize::from(other.is_ok()),
        }
    }
    ends
}

/// Polls both sides until one has a completion.
fn complete(from: &Side, other: &Side) {
    while from.ia.evd_dequeue(from.data).is_err() {
        let _ = other.ia.evd_dequeue(other.data);
    }
}

/// Counts data on one connection beside `number` idle ones.
pub(crate) fn count(number: usize, counter: &Counter) {
    let ((near, _), (far, address)) = (open(77), open(78));
    let listened = far
        .ia
        .psp_create(QUALIFIER, far.connections, PspFlags::Consumer);
    listened.expect("a service point");
    for _ in 0..number.min(MOST) {
        connect(&near, &far, address);
    }
    let [from, to] = connect(&near, &far, address);
    let none = CompletionFlags::empty();
    counter.start("local way");
    counter.row(
        "write by the local way, both sides",
        || {},
        |()| {
            let (local, remote) = (near.segment(), far.target());
            let posted = near.ia.post_rdma_write(from, &local, 1, &remote, none);
            posted.expect("there is room");
            complete(&near, &far);
        },
        drop,
    );
    counter.row(
        "message by the local way, both sides",
        || {
            let received = far.ia.post_recv(to, &far.segment(), 2, none);
            received.expect("there is room");
        },
        |()| {
            let posted = near.ia.post_send(from, &near.segment(), 3, none);
            posted.expect("there is room");
            complete(&far, &near);
        },
        // Its acknowledgement, or that of the call before.
        |()| complete(&near, &far),
    );
    counter.stop("local way");
}
