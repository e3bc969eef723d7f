//! Processes that are killed or stopped, and what their peers make of it.

use std::thread;
use std::time::Duration;

use dat_core::Error;
use dat_core::event::ConnectionEventKind;
use dat_core::flags::{
    CloseFlags, CompletionFlags, DtoStatus, EvdFlags, MemoryPrivileges, PspFlags,
};
use dat_tests::fixture::{PartyOptions, equal, granted, refused};

use crate::runner::{server_and_two_clients, two_sides};
use crate::side::{Party, numbers_of, part, range_of};

const DEFAULT: CompletionFlags = CompletionFlags::empty();

/// The death of a peer breaks the connection; each request and receive ends exactly once.
///
/// The requests end in order: some succeeded before, one fails, the others are flushed. The
/// endpoint can be connected again, and the dead process's qualifier is free.
///
/// Spec: EPD-10, DTO-11, DTO-12, EPV-06, E22, E23, ROCE-44, ROCE-82, ROCE-85, ROCE-86
#[test]
fn killed_peer_breaks_the_connection() {
    const WRITES: u64 = 8;
    const REQUESTS: u64 = WRITES + 4;
    two_sides(
        |near| {
            let party = near.alert_party();
            for cookie in 0..4 {
                party.receive_into(&[], 100 + cookie);
            }
            near.connect(&party);
            let remote = near.offered("memory");
            let segment = [party.memory.segment(0, 4096)];
            for cookie in 0..WRITES {
                party.write(&segment, cookie, &remote, DEFAULT);
            }
            // The far side has no receive, so these are under way when it dies.
            for cookie in WRITES..REQUESTS {
                party.send(&segment, cookie, CompletionFlags::SUPPRESS);
            }
            let statuses: Vec<_> = (0..REQUESTS)
                .map(|cookie| {
                    let done = near.net.request_completion(&party);
                    assert_eq!((done.ep, done.cookie), (party.ep, cookie));
                    if cookie == 0 {
                        near.kill(near.other());
                        near.step("the other side is dead");
                    }
                    done.status
                })
                .collect();
            let failed = statuses.iter().position(|one| *one != DtoStatus::Success);
            let failed = failed.expect("a request that failed");
            assert!(failed as u64 <= WRITES, "{statuses:?}");
            assert_eq!(statuses[failed], DtoStatus::Transport);
            let flushed = &statuses[failed + 1..];
            assert_eq!(flushed, vec![DtoStatus::Flushed; flushed.len()]);
            near.broken(&party);
            for cookie in 0..4 {
                near.net
                    .receive_ends(&party, 100 + cookie, DtoStatus::Flushed);
            }
            near.net.quiet(&party);
            near.reset(&party);
            let heir = Party::in_zone(&party.ia, party.zone, &PartyOptions::default());
            let requests = granted(party.ia.evd_create(8, None, EvdFlags::CR));
            let qualifier = near.qualifier(near.other());
            granted(party.ia.psp_create(qualifier, requests, PspFlags::Consumer));
            let wanted = near.parameters(near.other(), &[]);
            granted(near.try_connect(&party, &wanted));
            let cr = near.net.request(&party.ia, requests);
            granted(party.ia.cr_accept(cr, Some(heir.ep), &[]));
            near.net.established(&party, &heir);
            near.net.check_transfer(&party, &heir);
        },
        |far| {
            let party = far.alert_party();
            far.accept(&party);
            far.offer("memory", &party.memory.remote(0, 4096));
            far.wait_to_be_killed();
        },
    );
}

/// The side that listened survives the death of the one that connected, by the same rules.
///
/// Spec: EPD-10, DTO-12, EPV-06, E22, ROCE-82, ROCE-86
#[test]
fn killed_caller_breaks_the_connection() {
    two_sides(
        |near| {
            let party = near.alert_party();
            near.connect(&party);
            near.offer("memory", &party.memory.remote(0, 64));
            near.wait_to_be_killed();
        },
        |far| {
            let party = far.alert_party();
            party.receive_into(&[], 9);
            far.accept(&party);
            let remote = far.offered("memory");
            let segment = [party.memory.segment(0, 64)];
            // The near side has no receive, so these are under way when it dies.
            party.send(&segment, 1, CompletionFlags::SUPPRESS);
            party.read(&segment, 2, &remote, DEFAULT);
            party.write(&segment, 3, &remote, DEFAULT);
            far.kill(far.other());
            far.net.request_ends(&party, 1, DtoStatus::Transport);
            for cookie in [2, 3] {
                far.net.request_ends(&party, cookie, DtoStatus::Flushed);
            }
            far.broken(&party);
            far.net.receive_ends(&party, 9, DtoStatus::Flushed);
            far.net.quiet(&party);
        },
    );
}

/// A side without requests notices the death of its peer by its probes, if it asked for them.
///
/// Spec: EPD-10, EPV-06, E22, ROCE-53
#[test]
fn idle_side_notices_the_death() {
    two_sides(
        |near| {
            let device = near.net.bed.device_with(|options| {
                options.keep_alive = Some(Duration::from_millis(100));
                options.timeout = 16;
                options.retries = 6;
                options.response_timeout = 16;
            });
            let party = near.party_on(device);
            party.receive_into(&[], 1);
            near.connect(&party);
            near.meet("connected");
            near.kill(near.other());
            near.broken(&party);
            near.net.receive_ends(&party, 1, DtoStatus::Flushed);
            near.net.quiet(&party);
        },
        |far| {
            let party = far.party();
            far.accept(&party);
            far.meet("connected");
            far.wait_to_be_killed();
        },
    );
}

/// The death of one client leaves the other client of the same server alone.
///
/// Spec: EPD-10, DTO-12, EPW-41
#[test]
fn killed_client_leaves_the_other_one() {
    const ROUNDS: u8 = 20;
    server_and_two_clients(
        |server| {
            let first = server.party();
            let second = Party::in_zone(&first.ia, first.zone, &PartyOptions::default());
            server.accept_all(&[&first, &second]);
            for client in [1, 2] {
                let range = first.memory.remote(1024 * client as u64, 1024);
                server.tell_to(client, "memory", &numbers_of(&range));
            }
            server.hear_from(2, "halfway");
            server.kill(1);
            server.tell_to(2, "go on", &[]);
            server.hear_from(2, "all");
            let pattern = first.more_memory(1024, MemoryPrivileges::ALL);
            pattern.fill(ROUNDS - 1);
            let found = first.memory.load(2048, 1024);
            equal("the survivor's bytes", &found, &pattern.content());
        },
        |client| {
            let party = client.party();
            client.connect_to(&party, 0);
            let remote = range_of(&client.hear_from(0, "memory"));
            let write = |round| {
                party.memory.fill(round);
                let segment = [party.memory.segment(0, 1024)];
                party.write(&segment, 1, &part(&remote, 0, 1024), DEFAULT);
                client.net.success(&party, 1);
            };
            if client.number == 1 {
                loop {
                    write(0);
                }
            }
            (0..ROUNDS / 2).for_each(write);
            client.tell_to(0, "halfway", &[]);
            client.hear_from(0, "go on");
            (ROUNDS / 2..ROUNDS).for_each(write);
            client.tell_to(0, "all", &[]);
        },
    );
}

/// Requests survive a peer that is stopped for a while: each completes once, successfully.
///
/// Spec: DTO-11, EPW-41, ROCE-81, ROCE-83, ROCE-85, ROCE-88
#[test]
fn stopped_peer_delays_requests() {
    const REQUESTS: u64 = 8;
    two_sides(
        |near| {
            let party = near.party();
            near.connect(&party);
            let remote = near.offered("memory");
            party.memory.fill(1);
            near.meet("posted receives");
            near.pause(near.other());
            let segment = |cookie| [party.memory.segment(64 * cookie, 64)];
            for cookie in 0..REQUESTS {
                if cookie % 2 == 0 {
                    party.write(
                        &segment(cookie),
                        cookie,
                        &part(&remote, 64 * cookie, 64),
                        DEFAULT,
                    );
                } else {
                    party.send_from(&segment(cookie), cookie);
                }
            }
            thread::sleep(Duration::from_millis(100));
            near.net.progress();
            let early = party.ia.evd_dequeue(party.request);
            refused(early, Error::queue_empty());
            near.resume(near.other());
            for cookie in 0..REQUESTS {
                near.net.success(&party, cookie);
            }
            near.meet("resumed");
            near.net.quiet(&party);
        },
        |far| {
            let party = far.party();
            far.accept(&party);
            party.memory.fill(1);
            let source = party.memory.content();
            party.memory.store(0, &[0; 4096]);
            far.offer("memory", &party.memory.remote(0, 4096));
            for cookie in (1..REQUESTS).step_by(2) {
                party.receive_into(&[party.memory.segment(64 * cookie, 64)], cookie);
            }
            far.meet("posted receives");
            for cookie in (1..REQUESTS).step_by(2) {
                far.net.receive_ends(&party, cookie, DtoStatus::Success);
            }
            far.meet("resumed");
            let length = 64 * REQUESTS as usize;
            equal(
                "the memory",
                &party.memory.load(0, length),
                &source[..length],
            );
            far.net.quiet(&party);
        },
    );
}

/// An adapter closes though its peer is stopped, which finds the disconnect when it goes on.
///
/// Spec: IAC-05, EPD-10, EPV-06, E21, E27, ROCE-178
#[test]
fn closing_does_not_wait_for_a_stopped_peer() {
    two_sides(
        |near| {
            let party = near.party();
            near.connect(&party);
            near.meet("connected");
            near.pause(near.other());
            let Party { ia, .. } = party;
            let closed = near.net.release(ia).close(CloseFlags::Abrupt);
            granted(closed.map(drop).map_err(|refused| refused.error));
            near.resume(near.other());
            near.hear("disconnected");
        },
        |far| {
            let party = far.party();
            party.receive_into(&[], 1);
            far.accept(&party);
            far.meet("connected");
            far.ends(&party, ConnectionEventKind::Disconnected);
            far.net.receive_ends(&party, 1, DtoStatus::Flushed);
            far.net.quiet(&party);
            far.tell("disconnected", &[]);
        },
    );
}
