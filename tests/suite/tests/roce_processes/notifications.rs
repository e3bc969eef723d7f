//! Events and notifications of requests whose other end is another process.

use dat_core::event::Event;
use dat_core::flags::{CompletionFlags, DtoStatus};
use dat_tests::fixture::{PartyOptions, granted};

use crate::runner::two_sides;
use crate::side::{Party, part};

const DEFAULT: CompletionFlags = CompletionFlags::empty();
const SUPPRESS: CompletionFlags = CompletionFlags::SUPPRESS;
const SOLICITED: CompletionFlags = CompletionFlags::SOLICITED_WAIT;
const UNSIGNALLED: CompletionFlags = CompletionFlags::UNSIGNALLED;

/// SOLICITED_WAIT on the receiver lets each Send of the other process decide if it notifies.
///
/// Spec: EPS-01, DTO-04, EVW-11
#[test]
fn solicited_messages_notify() {
    const ROUNDS: [(CompletionFlags, bool); 4] = [
        (DEFAULT, false),
        (SOLICITED, true),
        (DEFAULT, false),
        (SOLICITED, true),
    ];
    two_sides(
        |near| {
            let party = near.party();
            near.connect(&party);
            for (flags, _) in ROUNDS {
                near.meet("receive");
                party.send(&[], 2, flags);
                near.net.success(&party, 2);
                near.meet("sent");
            }
        },
        |far| {
            let options = PartyOptions::with(|wanted| wanted.recv_completion_flags = SOLICITED);
            let ia = far.net.adapter();
            let cno = granted(ia.cno_create(None));
            let party = Party::notifying(&ia, cno, &options);
            far.accept(&party);
            for (flags, notifies) in ROUNDS {
                party.receive_into(&[], 1);
                far.meet("receive");
                far.meet("sent");
                far.net.run_to_idle();
                let found = far.net.triggered(&ia, cno);
                assert_eq!(found, notifies.then_some(party.receive), "{flags:?}");
                far.net.receive_ends(&party, 1, DtoStatus::Success);
            }
        },
    );
}

/// UNSIGNALLED requests and receives raise their events and notify nobody.
///
/// Spec: EPS-01, EPV-01, DTO-04, DTO-05
#[test]
fn unsignalled_messages_notify_nobody() {
    const ROUNDS: [(CompletionFlags, bool); 2] = [(UNSIGNALLED, false), (DEFAULT, true)];
    two_sides(
        |near| {
            let options = PartyOptions::with(|wanted| {
                wanted.request_completion_flags = UNSIGNALLED;
            });
            let ia = near.net.adapter();
            let cno = granted(ia.cno_create(None));
            let party = Party::notifying(&ia, cno, &options);
            near.connect(&party);
            for (flags, notifies) in ROUNDS {
                near.meet("receive");
                party.send(&[], 2, flags);
                near.net.run_to_idle();
                let found = near.net.triggered(&ia, cno);
                assert_eq!(found, notifies.then_some(party.request));
                near.net.success(&party, 2);
                near.meet("sent");
            }
        },
        |far| {
            let options = PartyOptions::with(|wanted| {
                wanted.recv_completion_flags = UNSIGNALLED;
            });
            let ia = far.net.adapter();
            let cno = granted(ia.cno_create(None));
            let party = Party::notifying(&ia, cno, &options);
            far.accept(&party);
            for (flags, notifies) in ROUNDS {
                party.receive(&[], 1, flags);
                far.meet("receive");
                far.meet("sent");
                far.net.run_to_idle();
                let found = far.net.triggered(&ia, cno);
                assert_eq!(found, notifies.then_some(party.receive));
                far.net.receive_ends(&party, 1, DtoStatus::Success);
            }
        },
    );
}

/// A suppressed request that succeeds raises no event; one that the other process refuses does.
///
/// Spec: DTO-04, DTO-08, EPW-34
#[test]
fn suppressed_requests_report_failure_only() {
    two_sides(
        |near| {
            let options = PartyOptions::with(|wanted| {
                wanted.request_completion_flags = UNSIGNALLED;
            });
            let ia = near.net.adapter();
            let cno = granted(ia.cno_create(None));
            let party = Party::notifying(&ia, cno, &options);
            near.connect(&party);
            let remote = near.offered("memory");
            let segment = [party.memory.segment(0, 8)];
            party.write(&segment, 1, &remote, SUPPRESS);
            party.read(&segment, 2, &remote, SUPPRESS);
            party.send(&[], 3, SUPPRESS);
            near.net.silent(&ia, party.request);
            assert_eq!(near.net.triggered(&ia, cno), None);
            near.hear("the message");
            party.write(&segment, 4, &part(&remote, 1, 8), SUPPRESS);
            let notification = || near.net.triggered(&ia, cno);
            let fired = near.net.until("a notification", notification);
            assert_eq!(fired, party.request);
            near.net.request_ends(&party, 4, DtoStatus::RemoteAccess);
            near.broken(&party);
            near.net.quiet(&party);
        },
        |far| {
            let party = far.party();
            far.accept(&party);
            party.receive_into(&[], 7);
            let memory = party.more_memory(8, dat_core::flags::MemoryPrivileges::ALL);
            far.offer("memory", &memory.remote(0, 8));
            far.net.receive_ends(&party, 7, DtoStatus::Success);
            far.tell("the message", &[]);
            far.broken(&party);
            far.net.quiet(&party);
        },
    );
}

/// Threads that sleep on a dispatcher and on a notification object wake by another process.
///
/// The dispatcher wakes its waiter with the third message only, as its threshold says.
///
/// Spec: EVW-01, EVW-07, EVW-11, CNW-01, CNW-03
#[test]
fn sleepers_wake_by_the_other_process() {
    const THRESHOLD: u64 = 3;
    two_sides(
        |near| {
            let party = near.party();
            near.connect(&party);
            for round in ["dispatcher", "notification object"] {
                near.hear(round);
                for cookie in 0..THRESHOLD {
                    party.send_from(&[], cookie);
                    near.net.success(&party, cookie);
                }
                near.meet("awake");
            }
        },
        |far| {
            let options = PartyOptions::with(|wanted| {
                wanted.recv_completion_flags = CompletionFlags::EVD_THRESHOLD;
            });
            let ia = far.net.adapter();
            let cno = granted(ia.cno_create(None));
            let waited = Party::new(&ia, &options);
            far.accept(&waited);
            for cookie in 0..THRESHOLD {
                waited.receive_into(&[], cookie);
            }
            far.tell("dispatcher", &[]);
            let mut sleep = far.net.bed.wait();
            let found = ia.evd_wait_until(waited.receive, THRESHOLD as i32, None, &mut sleep);
            let found = granted(found);
            let Event::Dto(first) = found.event else {
                panic!("{found:?}");
            };
            assert_eq!((first.cookie, first.status), (0, DtoStatus::Success));
            assert_eq!(u64::from(found.more), THRESHOLD - 1);
            for cookie in 1..THRESHOLD {
                far.net.receive_ends(&waited, cookie, DtoStatus::Success);
            }
            far.meet("awake");
            granted(ia.evd_modify_cno(waited.receive, Some(cno)));
            for cookie in 0..THRESHOLD {
                waited.receive_into(&[], cookie);
            }
            far.tell("notification object", &[]);
            let fired = granted(ia.cno_wait_until(cno, None, &mut sleep));
            assert_eq!(fired, Some(waited.receive));
            for cookie in 0..THRESHOLD {
                far.net.receive_ends(&waited, cookie, DtoStatus::Success);
            }
            far.meet("awake");
        },
    );
}
