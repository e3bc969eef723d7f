//! Growth of shared receive queues on devices that cannot enlarge them.
//!
//! Such queues grow within the room that they were made with.

use dat_core::Subtype;
use dat_core::attributes::SrqAttributes;
use dat_core::error::Error;
use dat_core::flags::SrqFields;
use dat_tests::fixture::{Net, Testbed, granted, refused, srq_attributes};

/// A shared receive queue grows up to its room; a larger resize is refused.
///
/// The refused queue keeps its size and its buffers.
pub(crate) fn shared_queues_grow_within_their_room<T: Testbed>(bed: &T, room: i32) {
    let (_net, ia) = Net::with_adapter(bed);
    let zone = granted(ia.pz_create());
    let shape = srq_attributes(4, 2, 0);
    let srq = granted(ia.srq_create(zone, &shape));
    let full = Error::insufficient_resources(Subtype::ResourceSrq);
    let mut posted = 0;
    for size in [5, room / 2, room] {
        granted(ia.srq_resize(srq, size));
        for cookie in posted..size {
            granted(ia.srq_post_recv(srq, &[], cookie as u64));
        }
        posted = size;
        refused(ia.srq_post_recv(srq, &[], 99), full);
    }
    let before = granted(ia.srq_query(srq, SrqFields::all()));
    assert_eq!((before.available, before.outstanding), (room, room));
    for beyond in [room + 1, 2 * room] {
        refused(ia.srq_resize(srq, beyond), full);
        assert_eq!(granted(ia.srq_query(srq, SrqFields::all())), before);
        refused(ia.srq_post_recv(srq, &[], 99), full);
    }
    granted(ia.srq_free(srq));
    // A queue can be created larger than the room.
    let max_recv_dtos = 3 * room;
    let large = SrqAttributes {
        max_recv_dtos,
        ..shape
    };
    let srq = granted(ia.srq_create(zone, &large));
    for cookie in 0..max_recv_dtos {
        granted(ia.srq_post_recv(srq, &[], cookie as u64));
    }
}
