//! Shared receive queues.

use backend_mock::{BufferOrder, Fabric, FabricOptions, Fault, MockReceiveQueue, NodeOptions};
use dat_core::backend::{
    Backend, BackendError, ControlEvent, DisconnectMode, SharedReceiveQueueKey, WorkQueue,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges};

use crate::support::{
    End, Host, RECEIVE_PROBE, attributes, connect, poll_all, post_receive, variety,
};

const ALL: MemoryPrivileges = MemoryPrivileges::ALL;
const SUCCESS: DtoStatus = DtoStatus::Success;
const FLUSHED: DtoStatus = DtoStatus::Flushed;
const TOKEN: u64 = 77;

/// Two senders on one host, two receivers with one queue on another.
struct Fan {
    fabric: Fabric,
    near: Host,
    far: Host,
    senders: Vec<End>,
    receivers: Vec<End>,
    key: SharedReceiveQueueKey,
    queue: MockReceiveQueue,
}

fn fan(options: FabricOptions) -> Fan {
    let fabric = Fabric::new(options);
    let mut near = Host::new(&fabric, 1);
    let mut far = Host::new(&fabric, 2);
    let made = far
        .backend
        .create_shared_receive_queue(TOKEN, far.domain, 8, 4);
    let (key, queue) = made.unwrap();
    let mut senders = Vec::new();
    let mut receivers = Vec::new();
    for _ in 0..2 {
        let a = near.end(attributes());
        let b = far.shared_end(key);
        assert!(b.receive.is_none());
        connect(&mut near, &a, &mut far, &b);
        senders.push(a);
        receivers.push(b);
    }
    Fan {
        fabric,
        near,
        far,
        senders,
        receivers,
        key,
        queue,
    }
}

impl Fan {
    fn run(&self) {
        assert!(self.fabric.run_until_idle(100_000) < 100_000, "never idle");
    }

    fn available(&self) -> Option<u32> {
        self.far.backend.shared_receive_available(self.key)
    }
}

/// Spec: SRQR-05, SRQR-06, SRQR-09, SRQR-11, SRQR-19, SRY-02
#[test]
fn one_queue_feeds_two_queue_pairs() {
    for options in variety() {
        let mut fan = fan(options);
        let source = fan.near.buffer(32, ALL);
        let target = fan.far.buffer(64, ALL);
        source.count_up(1);
        for token in 0..8 {
            let segments = [
                target.segment(token * 8, 3),
                target.segment(token * 8 + 3, 5),
            ];
            post_receive(&mut fan.queue, token, &segments);
        }
        assert!(fan.queue.reserve(&RECEIVE_PROBE, 1).is_none());
        assert_eq!(fan.available(), Some(8));
        for round in 0..4 {
            for (index, sender) in fan.senders.iter_mut().enumerate() {
                let length = 1 + round as u32 + 4 * index as u32;
                sender.send(round, &[source.segment(round, length)]);
            }
        }
        fan.run();
        assert_eq!(fan.available(), Some(0));
        let completions = poll_all(&mut fan.far.receives);
        let mut tokens: Vec<u64> = completions
            .iter()
            .map(|completion| completion.token)
            .collect();
        for (index, receiver) in fan.receivers.iter().enumerate() {
            let own = completions
                .iter()
                .filter(|completion| completion.queue_pair == receiver.token);
            // Per connection in the order of the sends, whichever buffers they got.
            let lengths: Vec<u32> = own.clone().map(|completion| completion.length).collect();
            let first = 1 + 4 * index as u32;
            assert_eq!(lengths, (first..first + 4).collect::<Vec<_>>());
            for (round, completion) in own.enumerate() {
                let start = completion.token as usize * 8;
                let end = start + completion.length as usize;
                assert_eq!(
                    target.content()[start..end],
                    source.content()[round..round + completion.length as usize]
                );
            }
        }
        tokens.sort_unstable();
        assert_eq!(tokens, (0..8).collect::<Vec<_>>());
        assert!(fan.queue.reserve(&RECEIVE_PROBE, 1).is_some());
    }
}

/// Spec: SRC-05
#[test]
fn buffers_may_be_taken_out_of_order() {
    let mut out_of_order = false;
    for (seed, buffer_order) in (0..8).flat_map(|seed| {
        [BufferOrder::Posted, BufferOrder::Seeded].map(|buffer_order| (seed, buffer_order))
    }) {
        let mut fan = fan(FabricOptions {
            seed,
            buffer_order,
            ..FabricOptions::default()
        });
        for token in 0..8 {
            post_receive(&mut fan.queue, token, &[]);
        }
        for token in 0..8 {
            fan.senders[0].send(token, &[]);
        }
        fan.run();
        let tokens: Vec<u64> = fan.far.received().iter().map(|entry| entry.0).collect();
        let in_order = tokens.is_sorted();
        assert!(in_order || buffer_order == BufferOrder::Seeded);
        out_of_order |= !in_order;
        let mut sorted = tokens;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..8).collect::<Vec<_>>());
    }
    assert!(out_of_order);
}

/// Spec: SRQR-38, SRQR-39, SRQR-40
#[test]
fn a_disconnect_flushes_only_what_was_taken() {
    for options in variety() {
        let mut fan = fan(FabricOptions {
            receive_latency: 1000..=1000,
            ..options
        });
        for token in 0..4 {
            post_receive(&mut fan.queue, token, &[]);
        }
        fan.senders[0].send(1, &[]);
        fan.senders[0].send(2, &[]);
        while fan.available() != Some(2) {
            assert!(fan.fabric.step());
        }
        fan.far
            .backend
            .disconnect(fan.receivers[0].key, DisconnectMode::Abrupt);
        assert_eq!(fan.far.received(), [(0, FLUSHED, 0), (1, FLUSHED, 0)]);
        assert_eq!(fan.available(), Some(2));
        // The other queue pair goes on.
        fan.senders[1].send(3, &[]);
        fan.run();
        assert_eq!(fan.far.received(), [(2, SUCCESS, 0)]);
        assert_eq!(fan.near.sent(), [(1, FLUSHED), (2, FLUSHED), (3, SUCCESS)]);
        assert_eq!(fan.available(), Some(1));
    }
}

/// Spec: SRQR-37
#[test]
fn only_connected_queue_pairs_take_buffers() {
    for options in variety() {
        let mut fan = fan(options);
        fan.far
            .backend
            .disconnect(fan.receivers[0].key, DisconnectMode::Abrupt);
        post_receive(&mut fan.queue, 5, &[]);
        fan.senders[0].send(1, &[]);
        fan.run();
        assert_eq!(fan.available(), Some(1));
        assert_eq!(fan.far.received(), []);
        assert_eq!(fan.near.sent(), [(1, FLUSHED)]);
    }
}

/// Spec: SRC-04, EPH-05
#[test]
fn an_empty_shared_queue_acts_like_no_receive() {
    for options in variety() {
        let mut fan = fan(options);
        fan.senders[0].send(1, &[]);
        fan.run();
        assert_eq!(fan.near.sent(), [(1, DtoStatus::ReceiverNotReady)]);
        let queue_pair = fan.receivers[0].token;
        assert_eq!(fan.far.control(), [ControlEvent::Broken { queue_pair }]);
        // The second connection is not concerned.
        post_receive(&mut fan.queue, 5, &[]);
        fan.senders[1].send(2, &[]);
        fan.run();
        assert_eq!(fan.near.sent(), [(2, SUCCESS)]);
    }
}

/// Spec: SRQR-43
#[test]
fn a_message_too_long_breaks_one_connection_only() {
    for options in variety() {
        let mut fan = fan(options);
        let source = fan.near.buffer(16, ALL);
        let target = fan.far.buffer(16, ALL);
        post_receive(&mut fan.queue, 1, &[target.segment(0, 4)]);
        post_receive(&mut fan.queue, 2, &[target.segment(8, 8)]);
        fan.senders[0].send(1, &[source.segment(0, 5)]);
        fan.run();
        assert_eq!(fan.far.received(), [(1, DtoStatus::LocalLength, 0)]);
        assert_eq!(fan.near.sent(), [(1, DtoStatus::RemoteResponder)]);
        fan.senders[1].send(2, &[source.segment(0, 8)]);
        fan.run();
        assert_eq!(fan.far.received(), [(2, SUCCESS, 8)]);
        let broken = fan.receivers[0].token;
        assert_eq!(
            fan.far.control(),
            [ControlEvent::Broken { queue_pair: broken }]
        );
    }
}

/// Spec: SRQR-28
#[test]
fn buffers_belong_to_the_domain_of_the_queue() {
    for options in variety() {
        for right in [true, false] {
            let fabric = Fabric::new(options.clone());
            let mut near = Host::new(&fabric, 1);
            let mut far = Host::new(&fabric, 2);
            let other = far.backend.create_domain().unwrap();
            let made = far.backend.create_shared_receive_queue(TOKEN, other, 8, 4);
            let (key, mut queue) = made.unwrap();
            let mut a = near.end(attributes());
            let b = far.shared_end(key);
            connect(&mut near, &a, &mut far, &b);
            let domain = if right { other } else { far.domain };
            let target = far.buffer_in(domain, 8, ALL);
            let source = near.buffer(8, ALL);
            post_receive(&mut queue, 1, &[target.all()]);
            a.send(1, &[source.all()]);
            fabric.run_until_idle(10_000);
            let expected = if right {
                (1, SUCCESS, 8)
            } else {
                (1, DtoStatus::LocalProtection, 0)
            };
            assert_eq!(far.received(), [expected]);
        }
    }
}

/// Spec: SRL-01, SRL-02, SRL-04, SRL-05
#[test]
fn the_limit_raises_one_event_per_setting() {
    for options in variety() {
        let mut fan = fan(options);
        let limit = ControlEvent::SharedReceiveLimit { queue: TOKEN };
        for token in 0..4 {
            post_receive(&mut fan.queue, token, &[]);
        }
        fan.far
            .backend
            .arm_shared_receive_limit(fan.key, 3)
            .unwrap();
        assert_eq!(fan.far.control(), []);
        fan.senders[0].send(1, &[]);
        fan.run();
        assert_eq!(fan.far.control(), []);
        fan.senders[0].send(2, &[]);
        fan.senders[0].send(3, &[]);
        fan.run();
        assert_eq!(fan.far.control(), std::slice::from_ref(&limit));
        // Set while fewer are left: at once.
        fan.far
            .backend
            .arm_shared_receive_limit(fan.key, 2)
            .unwrap();
        assert_eq!(fan.far.control(), [limit]);
        // Set anew before its event was polled: the event is withdrawn, and the caller is told so.
        let mut arm = |limit| {
            fan.far
                .backend
                .arm_shared_receive_limit(fan.key, limit)
                .unwrap()
        };
        assert!(!arm(3));
        assert!(arm(2));
        assert!(arm(1));
        assert!(!arm(0));
        assert_eq!(fan.far.control(), []);
        // Turned off.
        fan.far
            .backend
            .arm_shared_receive_limit(fan.key, 0)
            .unwrap();
        fan.senders[0].send(4, &[]);
        fan.run();
        assert_eq!(fan.far.control(), []);
    }
}

/// A queue that fails keeps what it has and takes more, and nobody gets any of it.
///
/// Spec: SRQR-42, SRC-04
#[test]
fn a_failed_queue_serves_no_receives() {
    for options in variety() {
        let mut fan = fan(options);
        fan.fabric
            .inject(Fault::FailSharedReceive { adapter: 1, nth: 1 });
        for token in 0..3 {
            post_receive(&mut fan.queue, token, &[]);
        }
        fan.far
            .backend
            .arm_shared_receive_limit(fan.key, 1)
            .unwrap();
        for (number, sender) in fan.senders.iter_mut().enumerate() {
            sender.send(number as u64, &[]);
        }
        fan.run();
        let failed = ControlEvent::SharedReceiveFailed { queue: TOKEN };
        let events = fan.far.control();
        assert_eq!(events.iter().filter(|event| **event == failed).count(), 1);
        let limit = ControlEvent::SharedReceiveLimit { queue: TOKEN };
        assert!(!events.contains(&limit));
        assert_eq!(fan.far.received().len(), 1);
        post_receive(&mut fan.queue, 3, &[]);
        fan.run();
        assert!(!fan.far.control().contains(&failed));
    }
}

/// Spec: SRZ-01, SRZ-02
#[test]
fn a_resize_loses_nothing() {
    for options in variety() {
        let mut fan = fan(options);
        for token in 0..8 {
            post_receive(&mut fan.queue, token, &[]);
        }
        let backend = &mut fan.far.backend;
        let refused = backend.resize_shared_receive_queue(fan.key, &mut fan.queue, 7);
        assert_eq!(refused, Err(BackendError::State));
        backend
            .resize_shared_receive_queue(fan.key, &mut fan.queue, 10)
            .unwrap();
        post_receive(&mut fan.queue, 8, &[]);
        post_receive(&mut fan.queue, 9, &[]);
        assert!(fan.queue.reserve(&RECEIVE_PROBE, 0).is_none());
        for token in 0..10 {
            fan.senders[0].send(token, &[]);
        }
        fan.run();
        let received = fan.far.received();
        let expected: Vec<_> = (0..10).map(|token| (token, SUCCESS, 0)).collect();
        assert_eq!(received, expected);
    }
}

/// Spec: SRY-03, EPY-02
#[test]
fn an_adapter_may_not_report_available_receives() {
    let fabric = Fabric::new(FabricOptions::default());
    let options = NodeOptions {
        shared_receive_information: false,
        receive_information: false,
        ..NodeOptions::new("silent", 1)
    };
    let mut host = Host::with(&fabric, options);
    let made = host
        .backend
        .create_shared_receive_queue(TOKEN, host.domain, 8, 4);
    let (key, queue) = made.unwrap();
    assert_eq!(host.backend.shared_receive_available(key), None);
    let end = host.end(attributes());
    let info = host.backend.receive_info(end.key);
    assert_eq!((info.allocated, info.span), (None, None));
    assert_eq!(host.backend.provider_attributes().srq_info_supported, 0);
    host.backend.destroy_shared_receive_queue(key, queue);
    host.destroy(end);
}
