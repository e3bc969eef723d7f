//! Calls look at the same number of places beside few objects and beside many.

#[expect(dead_code, reason = "the helpers of other tests")]
#[path = "../tests/fabric/support.rs"]
mod support;

use dat_core::attributes::EpAttributes;
use dat_core::backend::{
    Backend, CompletionQueue, ControlEvent, DisconnectMode, SyncDirection, WorkQueue,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges};
use dat_core::time::Instant;

use self::support::{Buffer, End, Host, attributes, connect, poll_all};
use crate::options::{FabricOptions, Limits, NodeOptions};
use crate::steps::steps_of;
use crate::{Fabric, MockCompletionQueue};

const ALL: MemoryPrivileges = MemoryPrivileges::ALL;
/// Few objects, and many; tables grow between them and not beyond.
const COUNTS: [usize; 2] = [10, 5000];
/// Number of a completion queue that all queue pairs of a crowd share.
const SHARED: u32 = 2;
/// Qualifier of a listener whose requests nobody answers.
const UNANSWERED: u64 = 5;

/// Two hosts with as many objects of each kind as asked for.
struct Crowd {
    near: Host,
    far: Host,
    source: Buffer,
    target: Buffer,
    shared: MockCompletionQueue,
    connections: Vec<(End, End)>,
    callers: Vec<End>,
}

impl Crowd {
    fn new(count: usize) -> Self {
        let fabric = Fabric::new(FabricOptions::immediate());
        let limits = Limits {
            backlog: u32::MAX,
            ..Limits::default()
        };
        let host = |name, number| {
            let options = NodeOptions::new(name, number);
            Host::with(&fabric, NodeOptions { limits, ..options })
        };
        let (mut near, mut far) = (host("near", 1), host("far", 2));
        let source = near.buffer(64, ALL);
        let target = far.buffer(64, ALL);
        let shared = near.backend.create_completion_queue(SHARED, 1 << 16);
        let connections = (0..count)
            .map(|_| {
                let a = shared_end(&mut near);
                let b = far.end(attributes());
                connect(&mut near, &a, &mut far, &b);
                (a, b)
            })
            .collect();
        far.backend.listen(0, Some(UNANSWERED)).unwrap();
        let callers = (0..count).map(|_| call(&mut near, &far)).collect();
        for number in 0..count {
            near.register(source.bytes, near.domain, ALL);
            near.window();
            let number = 10 + number as u32;
            near.backend.create_completion_queue(number, 8).unwrap();
            far.backend.listen(0, None).unwrap();
        }
        Self {
            near,
            far,
            source,
            target,
            shared: shared.unwrap(),
            connections,
            callers,
        }
    }

    fn run(&self) {
        while self.near.fabric.step() {}
    }

    /// Lets all active sides post a write that nobody polls the completion of.
    fn write_all(&mut self) {
        for ((a, _), token) in self.connections.iter_mut().zip(0..) {
            a.write(token, &[self.source.all()], self.target.remote(0));
        }
        self.run();
    }
}

fn shared_end(host: &mut Host) -> End {
    let mut request = host.request(attributes());
    request.request_queue = Some(SHARED);
    host.end_from(&request)
}

/// Asks for a connection; the request arrives and is not polled.
fn call(near: &mut Host, far: &Host) -> End {
    let end = near.end(attributes());
    let request = near.connect_request(far.address, UNANSWERED, b"");
    near.backend.connect(end.key, &request).unwrap();
    while near.fabric.step() {}
    end
}

/// Asserts that each measurement gives the same number of steps beside few and many objects.
fn assert_same(measure: impl Fn(&mut Crowd) -> Vec<(&'static str, u64)>) {
    let [few, many] = COUNTS.map(|count| measure(&mut Crowd::new(count)));
    assert_eq!(few, many);
    assert!(
        few.iter()
            .all(|(call, steps)| *steps < 200 && !call.is_empty()),
        "{few:?}"
    );
}

#[test]
fn the_cost_of_an_object_does_not_depend_on_their_number() {
    assert_same(|crowd| {
        let Crowd {
            near, far, source, ..
        } = crowd;
        let domain = near.domain;
        vec![
            (
                "queue pair",
                steps_of(|| {
                    let end = near.end(attributes());
                    near.destroy(end);
                }),
            ),
            (
                "modify",
                steps_of(|| {
                    let mut end = near.end(attributes());
                    let request = near.request(EpAttributes::DEFAULT);
                    let (send, receive) = (&mut end.send, end.receive.as_mut());
                    near.backend
                        .modify_queue_pair(end.key, send, receive, &request)
                        .unwrap();
                    near.destroy(end);
                }),
            ),
            (
                "region",
                steps_of(|| {
                    let keys = near.register(source.bytes, domain, ALL);
                    near.backend.deregister(keys);
                }),
            ),
            (
                "window",
                steps_of(|| {
                    let window = near.window();
                    near.backend.destroy_window(window);
                }),
            ),
            (
                "completion queue",
                steps_of(|| {
                    let queue = near
                        .backend
                        .create_completion_queue(u32::MAX >> 12, 8)
                        .unwrap();
                    near.backend.destroy_completion_queue(queue);
                }),
            ),
            (
                "listener",
                steps_of(|| {
                    let (listener, _) = far.backend.listen(0, None).unwrap();
                    far.backend.stop_listening(listener);
                }),
            ),
        ]
    });
}

#[test]
fn the_cost_of_a_connection_does_not_depend_on_their_number() {
    assert_same(|crowd| {
        // All events of the crowd stay unpolled but one, which has to be the oldest.
        let Crowd {
            near, far, callers, ..
        } = crowd;
        let oldest = far.backend.poll_control(Instant::ZERO);
        let Some(ControlEvent::ConnectionRequest { request, .. }) = oldest else {
            panic!("no connection request but {oldest:?}");
        };
        let passive = far.end(attributes());
        let mut steps = vec![
            ("connect", steps_of(|| callers.push(call(near, far)))),
            (
                "accept",
                steps_of(|| {
                    far.backend.accept(request, passive.key, b"").unwrap();
                    while far
                        .fabric
                        .next_due()
                        .is_some_and(|due| due == far.fabric.now())
                    {
                        far.fabric.step();
                    }
                }),
            ),
        ];
        let oldest = far.backend.poll_control(Instant::ZERO);
        let Some(ControlEvent::ConnectionRequest { request, .. }) = oldest else {
            panic!("no connection request but {oldest:?}");
        };
        steps.push((
            "reject",
            steps_of(|| {
                far.backend.reject(request, true, b"");
                while far.fabric.step() {}
            }),
        ));
        steps.push((
            "disconnect",
            steps_of(|| {
                far.backend.disconnect(passive.key, DisconnectMode::Abrupt);
                while far.fabric.step() {}
            }),
        ));
        steps.push((
            "destroy",
            steps_of(|| {
                near.destroy(callers.swap_remove(0));
                far.destroy(passive);
            }),
        ));
        steps
    });
}

#[test]
fn the_cost_of_a_message_does_not_depend_on_idle_connections() {
    assert_same(|crowd| {
        let window = crowd.near.window();
        let (source, target) = (crowd.source, crowd.target);
        let (mut a, mut b) = crowd.connections.swap_remove(5);
        let steps = vec![
            (
                "write",
                steps_of(|| {
                    a.write(1, &[source.all()], target.remote(0));
                    crowd.run();
                    assert_eq!(poll_all(&mut crowd.shared).len(), 1);
                }),
            ),
            (
                "message",
                steps_of(|| {
                    b.receive(1, &[target.all()]);
                    a.send(1, &[source.all()]);
                    crowd.run();
                    assert_eq!(poll_all(&mut crowd.shared).len(), 1);
                    assert_eq!(crowd.far.received().len(), 1);
                }),
            ),
            (
                "bind",
                steps_of(|| {
                    a.bind(1, window, &source, (0, 8), ALL);
                    crowd.run();
                    assert_eq!(poll_all(&mut crowd.shared).len(), 1);
                }),
            ),
            (
                "notification",
                steps_of(|| {
                    crowd.near.control();
                    crowd.shared.arm(false);
                    a.write(1, &[source.all()], target.remote(0));
                    crowd.run();
                    let event = ControlEvent::Completions { queue: SHARED };
                    assert_eq!(crowd.near.control(), [event]);
                    assert_eq!(poll_all(&mut crowd.shared).len(), 1);
                }),
            ),
            (
                "nothing",
                steps_of(|| {
                    assert_eq!(crowd.near.backend.poll_control(Instant::ZERO), None);
                    assert_eq!(crowd.shared.poll(), Ok(None));
                }),
            ),
        ];
        assert!(a.send.ring().is_ok());
        steps
    });
}

#[test]
fn a_destroyed_queue_pair_removes_only_its_completions() {
    assert_same(|crowd| {
        crowd.write_all();
        let last = crowd.connections.len() as u64 - 1;
        let gone = crowd.connections.swap_remove(3);
        let steps = steps_of(|| crowd.near.destroy(gone.0));
        let one = steps_of(|| assert_eq!(crowd.shared.poll().unwrap().unwrap().token, 0));
        let left: Vec<u64> = poll_all(&mut crowd.shared)
            .iter()
            .map(|completion| completion.token)
            .collect();
        let expected: Vec<u64> = (1..=last).filter(|token| *token != 3).collect();
        assert_eq!(left, expected);
        vec![("destroy", steps), ("poll", one)]
    });
}

/// The end of a queue's gap leaves the numbers of other completions as they are.
#[test]
fn completions_are_removed_in_any_order() {
    let mut crowd = Crowd::new(4);
    crowd.write_all();
    crowd.write_all();
    for (index, left) in [(3, 6), (0, 4)] {
        let (gone, _) = crowd.connections.swap_remove(index);
        crowd.near.destroy(gone);
        assert!(
            matches!(crowd.shared.arm(false), dat_core::backend::Armed::Missed),
            "{left}"
        );
    }
    crowd.write_all();
    // The third took the place of the first in the list, and has posted first since.
    let left: Vec<u64> = poll_all(&mut crowd.shared)
        .iter()
        .map(|completion| completion.token)
        .collect();
    assert_eq!(left, [1, 2, 1, 2, 0, 1]);
}

/// An overrun breaks only those who use the queue.
#[test]
fn an_overrun_breaks_only_the_queue_pairs_of_the_queue() {
    assert_same(|crowd| {
        let Crowd {
            near,
            far,
            source,
            target,
            ..
        } = crowd;
        near.control();
        far.control();
        near.backend.create_completion_queue(3, 1).unwrap();
        let mut request = near.request(attributes());
        request.request_queue = Some(3);
        let (mut a, b) = (near.end_from(&request), far.end(attributes()));
        connect(near, &a, far, &b);
        let steps = steps_of(|| {
            for token in 0..2 {
                a.write(token, &[source.all()], target.remote(0));
            }
            while near.fabric.step() {}
        });
        let broken = ControlEvent::Broken {
            queue_pair: a.token,
        };
        assert_eq!(near.control(), [broken]);
        vec![("overrun", steps)]
    });
}

/// A byte of many registrations stays known to the device until the last one ends.
///
/// Spec: LSW-01
#[test]
fn any_number_of_regions_may_overlap() {
    let fabric = Fabric::new(FabricOptions::immediate());
    let mut near = Host::new(&fabric, 1);
    let mut far = Host::with(&fabric, NodeOptions::new("far", 2).non_coherent());
    let source = near.buffer(64, ALL);
    let target = far.buffer(64, ALL);
    source.fill(7);
    let (mut a, b) = (near.end(attributes()), far.end(attributes()));
    connect(&mut near, &a, &mut far, &b);
    let inner: Vec<_> = (0..66_000)
        .map(|number| far.register(&target.bytes[number % 32..][..8], far.domain, ALL))
        .collect();
    a.write(1, &[source.all()], target.remote(0));
    while fabric.step() {}
    assert_eq!(near.sent(), [(1, DtoStatus::Success)]);
    let steps = steps_of(|| {
        let backend = &mut far.backend;
        backend.sync(SyncDirection::RdmaWrite, target.address() + 40, 24);
    });
    // At most one for each place where regions start, in each of two pages.
    assert!(steps < 100, "{steps} steps");
    assert_eq!(target.content()[39..42], [0, 7, 7]);
    for keys in inner {
        far.backend.deregister(keys);
    }
    far.backend
        .sync(SyncDirection::RdmaWrite, target.address(), 64);
    assert_eq!(target.content(), [7; 64]);
    target.fill(9);
    far.backend
        .sync(SyncDirection::RdmaRead, target.address(), 64);
    a.read(2, &[source.all()], target.remote(0));
    while fabric.step() {}
    assert_eq!(near.sent(), [(2, DtoStatus::Success)]);
    assert_eq!(source.content(), [9; 64]);
}
