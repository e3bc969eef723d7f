//! Ends of connections: graceful and abrupt, by either process and by both.

use dat_core::event::ConnectionEventKind;
use dat_core::flags::{CloseFlags, CompletionFlags, DtoStatus, EndpointState};
use dat_core::{Error, Subtype};
use dat_tests::fixture::{equal, granted, refused};

use crate::runner::two_sides;
use crate::side::{Party, Side, part};

const DEFAULT: CompletionFlags = CompletionFlags::empty();
const DISCONNECTED: ConnectionEventKind = ConnectionEventKind::Disconnected;

/// Receives that either side has posted at the end.
const RECEIVES: u64 = 4;

/// Connects a party that has posted receives.
fn connected(side: &Side) -> Party {
    let party = side.party();
    for cookie in 0..RECEIVES {
        party.receive_into(&[party.memory.segment(8 * cookie, 8)], 100 + cookie);
    }
    if side.number == 0 {
        side.connect(&party);
    } else {
        side.accept(&party);
    }
    party
}

/// Expects that the connection ended by a disconnect and that each receive was flushed once.
fn disconnected(side: &Side, party: &Party) {
    side.ends(party, DISCONNECTED);
    for cookie in 0..RECEIVES {
        side.net
            .receive_ends(party, 100 + cookie, DtoStatus::Flushed);
    }
    assert!(party.status().recv_idle && party.status().request_idle);
    side.meet("disconnected");
    side.net.quiet(party);
}

/// A graceful disconnect lets every posted request succeed, at the side that calls it.
///
/// Spec: EPD-02, EPD-05, EPD-10, EPV-06, DTO-10, E17, E18, E21, ROCE-170
#[test]
fn graceful_disconnect_completes_requests() {
    const COUNT: u64 = 12;
    const BYTES: u64 = 4096 / 16;
    two_sides(
        |near| {
            let party = connected(near);
            let remote = near.offered("memory");
            party.memory.fill(3);
            for cookie in 0..COUNT {
                let segment = party.memory.segment(BYTES * cookie, BYTES);
                let range = part(&remote, BYTES * cookie, BYTES);
                party.write(&[segment], cookie, &range, DEFAULT);
            }
            granted(party.ia.ep_disconnect(party.ep, CloseFlags::Graceful));
            for cookie in 0..COUNT {
                near.net.success(&party, cookie);
            }
            disconnected(near, &party);
            party.send_from(&[], 9);
            near.net.request_ends(&party, 9, DtoStatus::Flushed);
            party.receive_into(&[], 10);
            near.net.receive_ends(&party, 10, DtoStatus::Flushed);
        },
        |far| {
            let party = connected(far);
            party.memory.fill(3);
            let written = (COUNT * BYTES) as usize;
            let expected = party.memory.load(0, written);
            party.memory.fill(4);
            far.offer("memory", &party.memory.remote(0, 4096));
            disconnected(far, &party);
            equal(
                "what was written",
                &party.memory.load(0, written),
                &expected,
            );
        },
    );
}

/// A graceful disconnect waits for a request that the peer delays, and takes no other meanwhile.
///
/// Spec: EPD-02, EPD-03, E17, E18, E20
#[test]
fn graceful_disconnect_waits() {
    two_sides(
        |near| {
            let party = near.party();
            near.connect(&party);
            // Without a receive at the far side it neither succeeds nor fails soon.
            party.send_from(&[party.memory.segment(0, 8)], 1);
            granted(party.ia.ep_disconnect(party.ep, CloseFlags::Graceful));
            assert_eq!(party.state(), EndpointState::DisconnectPending);
            let pending = Error::invalid_state(Subtype::InvalidStateEpDiscPending);
            refused(party.ia.post_send(party.ep, &[], 2, DEFAULT), pending);
            granted(party.ia.ep_disconnect(party.ep, CloseFlags::Graceful));
            near.tell("pending", &[]);
            near.net.success(&party, 1);
            near.ends(&party, DISCONNECTED);
            near.meet("disconnected");
            near.net.quiet(&party);
        },
        |far| {
            let party = far.party();
            far.accept(&party);
            far.hear("pending");
            party.receive_into(&[party.memory.segment(0, 8)], 7);
            far.net.receive_ends(&party, 7, DtoStatus::Success);
            far.ends(&party, DISCONNECTED);
            far.meet("disconnected");
            far.net.quiet(&party);
        },
    );
}

/// Posts requests that cannot complete: a message for which the peer has no receive comes first.
fn stuck(party: &Party, remote: &dat_core::memory::RmrTriplet) -> u64 {
    const COUNT: u64 = 6;
    party.send_from(&[party.memory.segment(0, 8)], 0);
    for cookie in 1..COUNT {
        let segment = [party.memory.segment(0, 64)];
        match cookie % 3 {
            0 => party.send(&segment, cookie, CompletionFlags::SUPPRESS),
            1 => party.write(&segment, cookie, remote, CompletionFlags::SUPPRESS),
            _ => party.read(&segment, cookie, remote, DEFAULT),
        }
    }
    COUNT
}

/// An abrupt disconnect flushes the requests of its own side, each once and in order.
///
/// Suppressed ones are no exception. The peer's receives are flushed, and no byte is written.
///
/// Spec: EPD-01, EPD-05, EPD-10, DTO-04, DTO-11, EPV-06, E16, E21, ROCE-86
#[test]
fn abrupt_disconnect_flushes_requests() {
    two_sides(
        |near| {
            let party = near.party();
            for cookie in 0..RECEIVES {
                party.receive_into(&[], 100 + cookie);
            }
            near.connect(&party);
            let remote = near.offered("memory");
            party.memory.fill(5);
            let before = party.memory.content();
            let count = stuck(&party, &remote);
            granted(party.ia.ep_disconnect(party.ep, CloseFlags::Abrupt));
            for cookie in 0..count {
                near.net.request_ends(&party, cookie, DtoStatus::Flushed);
            }
            equal("the memory", &party.memory.content(), &before);
            disconnected(near, &party);
        },
        |far| {
            let party = far.party();
            far.accept(&party);
            far.offer("memory", &party.memory.remote(0, 64));
            far.ends(&party, DISCONNECTED);
            far.meet("disconnected");
            equal("the memory", &party.memory.content(), &[0; 4096]);
            far.net.quiet(&party);
        },
    );
}

/// An abrupt disconnect of the peer flushes the requests and receives of this side once each.
///
/// Spec: EPD-01, EPD-10, DTO-04, DTO-11, EPV-06, E16, E21, ROCE-86
#[test]
fn disconnect_of_the_peer_flushes_requests() {
    two_sides(
        |near| {
            let party = near.party();
            for cookie in 0..RECEIVES {
                party.receive_into(&[], 100 + cookie);
            }
            near.connect(&party);
            let remote = near.offered("memory");
            let count = stuck(&party, &remote);
            near.tell("posted", &[]);
            for cookie in 0..count {
                near.net.request_ends(&party, cookie, DtoStatus::Flushed);
            }
            disconnected(near, &party);
        },
        |far| {
            let party = far.party();
            far.accept(&party);
            far.offer("memory", &party.memory.remote(0, 64));
            far.hear("posted");
            granted(party.ia.ep_disconnect(party.ep, CloseFlags::Abrupt));
            far.ends(&party, DISCONNECTED);
            far.meet("disconnected");
            equal("the memory", &party.memory.content(), &[0; 4096]);
            far.net.quiet(&party);
        },
    );
}

/// Both processes disconnect at the same time: each has one event and can connect again.
///
/// Spec: EPD-05, EPD-07, EPD-10, E16, E21, E23, E25, ROCE-170, ROCE-172
#[test]
fn both_disconnect() {
    const ROUNDS: [CloseFlags; 4] = [
        CloseFlags::Abrupt,
        CloseFlags::Graceful,
        CloseFlags::Abrupt,
        CloseFlags::Graceful,
    ];
    fn part(side: &Side, party: &Party, flags: CloseFlags) {
        side.meet("connected");
        granted(party.ia.ep_disconnect(party.ep, flags));
        side.ends(party, DISCONNECTED);
        side.meet("disconnected");
        side.net.quiet(party);
        granted(party.ia.ep_disconnect(party.ep, flags));
        side.net.quiet(party);
        side.reset(party);
    }
    two_sides(
        |near| {
            let party = near.party();
            for flags in ROUNDS {
                near.connect(&party);
                part(near, &party, flags);
            }
        },
        |far| {
            let party = far.party();
            for flags in ROUNDS {
                far.accept(&party);
                part(far, &party, flags);
            }
        },
    );
}

/// Connections that were made, used and ended leave no descriptor behind, and no kilobytes.
///
/// Spec: PSC-02, EPD-05, EPD-10, EPR-01, DTO-11, E21
#[test]
fn thousand_connections_leave_nothing() {
    const CONNECTIONS: u64 = 1000;
    /// Connections after which tables and buffers have their size.
    const FIRST: u64 = 200;
    /// Growth that the allocator may have by itself, in bytes; 1.3 kB for each connection.
    const SPARE: usize = 1 << 20;
    let ends = |side: &Side, party: &Party| {
        side.ends(party, DISCONNECTED);
        side.reset(party);
    };
    two_sides(
        move |near| {
            let party = near.party();
            near.hear("the listener");
            let mut before = None;
            for cookie in 0..CONNECTIONS {
                if cookie == FIRST {
                    before = Some(resources());
                }
                let wanted = near.parameters(near.other(), &[]);
                granted(near.try_connect(&party, &wanted));
                near.established(&party);
                party.send_from(&[party.memory.segment(0, 8)], cookie);
                near.net.success(&party, cookie);
                granted(party.ia.ep_disconnect(party.ep, CloseFlags::Graceful));
                ends(near, &party);
            }
            near.net.quiet(&party);
            check_growth(before, SPARE);
        },
        move |far| {
            let party = far.party();
            let service = far.listen(&party);
            let mut before = None;
            for cookie in 0..CONNECTIONS {
                if cookie == FIRST {
                    before = Some(resources());
                }
                party.receive_into(&[party.memory.segment(0, 8)], cookie);
                let cr = far.request(&party, &service);
                granted(party.ia.cr_accept(cr, Some(party.ep), &[]));
                far.established(&party);
                far.net.receive_ends(&party, cookie, DtoStatus::Success);
                ends(far, &party);
            }
            far.net.quiet(&party);
            check_growth(before, SPARE);
        },
    );
}

/// Returns the bytes of memory and the number of descriptors of this process.
fn resources() -> (usize, usize) {
    let text = std::fs::read_to_string("/proc/self/statm").expect("/proc");
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("/proc").count();
    (pages.unwrap_or(0_usize) * 4096, descriptors)
}

/// Expects as many descriptors as before, and at most `spare` bytes more.
fn check_growth(before: Option<(usize, usize)>, spare: usize) {
    let (bytes, descriptors) = before.expect("an earlier count");
    let after = resources();
    // The adapter's thread may have looked for a route at the time of the earlier count.
    assert!(after.1 <= descriptors, "{descriptors} descriptors grew");
    assert!(
        after.0 <= bytes + spare,
        "{bytes} bytes grew to {}",
        after.0
    );
}

/// The end of an adapter ends its connections in the other process, as a disconnect.
///
/// Spec: IAC-01, IAC-05, EPD-10, EPV-06, E21, E27
#[test]
fn closed_adapter_disconnects() {
    two_sides(
        |near| {
            let party = near.party();
            near.connect(&party);
            near.meet("connected");
            let Party { ia, .. } = party;
            let closed = near.net.release(ia).close(CloseFlags::Abrupt);
            granted(closed.map(drop).map_err(|refused| refused.error));
            near.hear("disconnected");
        },
        |far| {
            let party = connected_receiver(far);
            far.meet("connected");
            far.ends(&party, DISCONNECTED);
            far.net.receive_ends(&party, 1, DtoStatus::Flushed);
            far.net.quiet(&party);
            far.tell("disconnected", &[]);
        },
    );
}

/// Accepts a connection with one receive posted.
fn connected_receiver(far: &Side) -> Party {
    let party = far.party();
    party.receive_into(&[], 1);
    far.accept(&party);
    party
}
