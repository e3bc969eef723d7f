//! Faults as data.

use backend_mock::{Fabric, FabricOptions, Fault, FaultPlan, RemoteError};
use dat_core::backend::{
    Armed, Backend, BackendError, CompletionQueue, ControlEvent, DeviceFailure, DisconnectMode,
    SendOperation, WorkQueue,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges};

use crate::support::{
    Couple, Host, NONE, RECEIVES, REQUESTS, attributes, connect, poll_all, variety,
};

const ALL: MemoryPrivileges = MemoryPrivileges::ALL;
const SUCCESS: DtoStatus = DtoStatus::Success;
const FLUSHED: DtoStatus = DtoStatus::Flushed;

fn with(options: FabricOptions, faults: impl Into<Vec<Fault>>) -> FabricOptions {
    FabricOptions {
        faults: FaultPlan {
            faults: faults.into(),
        },
        ..options
    }
}

/// The tokens of the request completions of five sends, with this fault.
fn five_sends(options: FabricOptions, fault: Fault) -> Vec<u64> {
    let mut couple = Couple::new(with(options, [fault]));
    for token in 0..5 {
        couple.b.receive(token, &[]);
        couple.a.send(token, &[]);
    }
    couple.run();
    let received: Vec<u64> = couple.far.received().iter().map(|entry| entry.0).collect();
    assert_eq!(received, [0, 1, 2, 3, 4]);
    couple.near.sent().iter().map(|entry| entry.0).collect()
}

/// Spec: DTO-11
#[test]
fn completions_are_lost_delayed_duplicated_and_reordered() {
    let (adapter, queue, nth) = (0, REQUESTS, 1);
    for options in variety() {
        let fault = Fault::DropCompletion {
            adapter,
            queue,
            nth,
        };
        assert_eq!(five_sends(options.clone(), fault), [0, 2, 3, 4]);
        let fault = Fault::DuplicateCompletion {
            adapter,
            queue,
            nth,
        };
        assert_eq!(five_sends(options.clone(), fault), [0, 1, 1, 2, 3, 4]);
        let fault = Fault::ReorderCompletion {
            adapter,
            queue,
            nth,
        };
        assert_eq!(five_sends(options.clone(), fault), [0, 2, 1, 3, 4]);
        let fault = Fault::ReorderCompletion {
            adapter,
            queue,
            nth: 4,
        };
        assert_eq!(five_sends(options.clone(), fault), [0, 1, 2, 3, 4]);
        let fault = Fault::DelayCompletion {
            adapter,
            queue,
            nth,
            by: 500,
        };
        assert_eq!(five_sends(options, fault), [0, 2, 3, 4, 1]);
    }
}

/// Late and repeated completions of a fault take no room of a queue: one that is as deep as the
/// posts holds the other completions.
///
/// Spec: DTO-13
#[test]
fn duplicate_and_late_completions_take_no_slot_of_others() {
    for options in variety() {
        let (adapter, queue, nth) = (0, REQUESTS, 1);
        let twice = Fault::DuplicateCompletion {
            adapter,
            queue,
            nth,
        };
        let delayed = Fault::DelayCompletion {
            adapter,
            queue,
            nth,
            by: 500,
        };
        for (fault, expected) in [(twice, [0, 1, 1, 2].as_slice()), (delayed, &[0, 2, 1])] {
            let mut couple = Couple::new(with(options.clone(), vec![fault]));
            let requests = &mut couple.near.requests;
            let backend = &mut couple.near.backend;
            backend.resize_completion_queue(requests, 3).unwrap();
            for token in 0..3 {
                couple.a.write(token, &[], couple_remote());
            }
            couple.run();
            let tokens: Vec<u64> = couple.near.sent().iter().map(|entry| entry.0).collect();
            assert_eq!(tokens, expected);
        }
    }
}

/// The second of two neighbours that are to be overtaken overtakes the first: none is lost.
#[test]
fn two_reordered_completions_are_both_reported() {
    for options in variety() {
        let faults = [1, 2].map(|nth| Fault::ReorderCompletion {
            adapter: 0,
            queue: REQUESTS,
            nth,
        });
        let mut couple = Couple::new(with(options, faults.to_vec()));
        for token in 0..4 {
            couple.a.write(token, &[], couple_remote());
        }
        couple.run();
        let tokens: Vec<u64> = couple.near.sent().iter().map(|entry| entry.0).collect();
        assert_eq!(tokens, [0, 2, 1, 3]);
    }
}

/// A queue that is made smaller keeps the completions that are in it.
///
/// Spec: DTO-13, GEN-06
#[test]
fn a_smaller_completion_queue_keeps_its_completions() {
    for options in variety() {
        let mut couple = Couple::new(options);
        for token in 0..3 {
            couple.a.write(token, &[], couple_remote());
        }
        couple.run();
        let queue = &mut couple.near.requests;
        assert_eq!(
            couple.near.backend.resize_completion_queue(queue, 1),
            Ok(())
        );
        let tokens: Vec<u64> = couple.near.sent().iter().map(|entry| entry.0).collect();
        assert_eq!(tokens, [0, 1, 2]);
    }
}

/// Spec: DTO-13
#[test]
fn an_overrun_breaks_the_queue_and_its_queue_pairs() {
    for options in variety() {
        for planned in [true, false] {
            let fault = Fault::OverrunQueue {
                adapter: 0,
                queue: REQUESTS,
                nth: 2,
            };
            let faults = if planned { vec![fault] } else { Vec::new() };
            let mut couple = Couple::new(with(options.clone(), faults));
            if !planned {
                let queue = &mut couple.near.requests;
                let backend = &mut couple.near.backend;
                backend.resize_completion_queue(queue, 2).unwrap();
            }
            couple.b.receive(9, &[]);
            couple.b.receive(9, &[]);
            for token in 0..4 {
                couple.a.write(token, &[], couple_remote());
            }
            couple.run();
            let queue = &mut couple.near.requests;
            for token in 0..2 {
                assert_eq!(queue.poll().unwrap().unwrap().token, token);
            }
            let overrun = Err(DeviceFailure::CompletionQueueOverrun);
            assert_eq!(queue.poll(), overrun);
            assert_eq!(queue.arm(false), Armed::Missed);
            couple.assert_broken();
        }
    }
}

fn couple_remote() -> dat_core::backend::RemoteRange {
    dat_core::backend::RemoteRange { address: 0, key: 0 }
}

/// Spec: EVW-01
#[test]
fn a_notification_comes_at_most_once_per_arming() {
    for options in variety() {
        for lost in [false, true] {
            let fault = Fault::LoseNotification {
                adapter: 0,
                queue: REQUESTS,
                nth: 0,
            };
            let faults = if lost { vec![fault] } else { Vec::new() };
            let mut couple = Couple::new(with(options.clone(), faults));
            assert_eq!(couple.near.requests.arm(false), Armed::Armed);
            for token in 0..2 {
                couple.a.write(token, &[], couple_remote());
            }
            couple.run();
            let event = ControlEvent::Completions { queue: REQUESTS };
            let expected = if lost { Vec::new() } else { vec![event] };
            assert_eq!(couple.near.control(), expected);
            assert_eq!(couple.near.requests.arm(false), Armed::Missed);
            assert_eq!(poll_all(&mut couple.near.requests).len(), 2);
            // Unarmed: none.
            couple.a.write(3, &[], couple_remote());
            couple.run();
            assert_eq!(couple.near.control(), []);
        }
    }
}

/// Spec: EVW-01
#[test]
fn solicited_notifications() {
    for options in variety() {
        let mut couple = Couple::new(options);
        for token in 0..4 {
            couple.b.receive(token, &[]);
        }
        let event = ControlEvent::Completions { queue: RECEIVES };
        assert_eq!(couple.far.receives.arm(true), Armed::Armed);
        couple.a.send(0, &[]);
        couple.run();
        assert_eq!(couple.far.control(), []);
        let solicited = dat_core::backend::SendFlags::SOLICITED;
        couple.a.post(1, SendOperation::Send, &[], solicited);
        couple.run();
        assert_eq!(couple.far.control(), std::slice::from_ref(&event));
        assert_eq!(poll_all(&mut couple.far.receives).len(), 2);
        // So does a failure.
        assert_eq!(couple.far.receives.arm(true), Armed::Armed);
        couple
            .far
            .backend
            .disconnect(couple.b.key, DisconnectMode::Abrupt);
        assert_eq!(couple.far.control(), [event]);
    }
}

/// Spec: GEN-02, GEN-06
#[test]
fn the_nth_control_call_finds_no_resources() {
    let calls = |host: &mut Host| {
        let mut results = Vec::new();
        results.push(host.backend.create_domain().map(drop));
        results.push(host.backend.create_window(host.domain).map(drop));
        results.push(host.backend.create_completion_queue(9, 4).map(drop));
        let domain = host.domain;
        let queue = host.backend.create_shared_receive_queue(1, domain, 4, 1);
        results.push(queue.map(drop));
        let request = host.request(attributes());
        results.push(host.backend.create_queue_pair(&request).map(drop));
        results.push(host.backend.listen(1, None).map(drop));
        results
    };
    // Three calls make the host.
    for nth in 0..6 {
        let fabric = Fabric::new(with(
            FabricOptions::default(),
            [Fault::AllocationFailure {
                adapter: 0,
                nth: 3 + nth,
            }],
        ));
        let mut host = Host::new(&fabric, 1);
        let mut expected = vec![Ok(()); 6];
        expected[nth as usize] = Err(BackendError::Resources);
        assert_eq!(calls(&mut host), expected);
    }
}

/// Spec: GEN-06, EPW-26
#[test]
fn the_device_refuses_a_post() {
    for options in variety() {
        let fault = Fault::RefusePost { adapter: 0, nth: 1 };
        let mut couple = Couple::new(with(options, [fault]));
        couple.b.receive(1, &[]);
        couple.b.receive(2, &[]);
        let post = |couple: &mut Couple, token| {
            let posted = couple.a.queue(token, SendOperation::Send, &[], NONE);
            couple.a.send.ring().unwrap();
            posted.is_ok()
        };
        assert!(post(&mut couple, 1));
        assert!(!post(&mut couple, 2));
        assert!(post(&mut couple, 3));
        couple.run();
        assert_eq!(couple.near.sent(), [(1, SUCCESS), (3, SUCCESS)]);
    }
}

/// Spec: DTO-08, DTO-12
#[test]
fn a_faulty_peer_answers_with_errors() {
    let cases = [
        (RemoteError::Access, DtoStatus::RemoteAccess),
        (RemoteError::Responder, DtoStatus::RemoteResponder),
        (RemoteError::BadResponse, DtoStatus::BadResponse),
        (RemoteError::Silence, DtoStatus::Transport),
    ];
    for options in variety() {
        for (error, status) in cases {
            let fault = Fault::RemoteError {
                adapter: 0,
                nth: 1,
                error,
            };
            let mut couple = Couple::new(with(options.clone(), [fault]));
            let source = couple.near.buffer(8, ALL);
            let target = couple.far.buffer(8, ALL);
            source.fill(1);
            for token in 0..3 {
                couple
                    .a
                    .write(token, &[source.segment(token, 1)], target.remote(token));
            }
            couple.run();
            assert_eq!(
                couple.near.sent(),
                [(0, SUCCESS), (1, status), (2, FLUSHED)]
            );
            assert_eq!(target.content()[..3], [1, 0, 0]);
            couple.assert_broken();
        }
    }
}

/// Spec: EPS-04
#[test]
fn a_receiver_that_is_not_ready_delays_or_breaks() {
    for options in variety() {
        for attempts in [3, 7] {
            let fault = Fault::ReceiverNotReady {
                adapter: 1,
                nth: 1,
                attempts,
            };
            let mut couple = Couple::new(with(options.clone(), [fault]));
            for token in 0..3 {
                couple.b.receive(token, &[]);
                couple.a.send(token, &[]);
            }
            couple.run();
            let expected = if attempts == 3 {
                [(0, SUCCESS), (1, SUCCESS), (2, SUCCESS)]
            } else {
                [(0, SUCCESS), (1, DtoStatus::ReceiverNotReady), (2, FLUSHED)]
            };
            assert_eq!(couple.near.sent(), expected);
        }
    }
}

/// Spec: DTO-12, EPD-10
#[test]
fn a_short_outage_is_survived_and_a_long_one_is_not() {
    for options in variety() {
        for (duration, survives) in [(Some(300), true), (Some(100_000), false), (None, false)] {
            let mut couple = Couple::new(options.clone());
            let at = couple.fabric.now().as_micros();
            couple.fabric.inject(Fault::LinkDown {
                a: 1,
                b: 0,
                at,
                duration,
            });
            let source = couple.near.buffer(8, ALL);
            let target = couple.far.buffer(8, ALL);
            couple.a.read(1, &[source.all()], target.remote(0));
            couple.a.write(2, &[source.all()], target.remote(0));
            couple.run();
            let sent = couple.near.sent();
            if survives {
                assert_eq!(sent, [(1, SUCCESS), (2, SUCCESS)]);
                assert_eq!(couple.near.control(), []);
                continue;
            }
            assert_eq!(sent, [(1, DtoStatus::Transport), (2, FLUSHED)]);
            let queue_pair = couple.a.token;
            let broken = ControlEvent::Broken { queue_pair };
            assert_eq!(couple.near.control(), [broken]);
            // The other end learns it when the link is back, or by trying.
            if duration.is_none() {
                assert_eq!(couple.far.control(), []);
                couple.b.write(3, &[], target.remote(0));
                couple.run();
                assert_eq!(couple.far.sent(), [(3, DtoStatus::Transport)]);
            }
            let queue_pair = couple.b.token;
            let broken = ControlEvent::Broken { queue_pair };
            assert_eq!(couple.far.control(), [broken]);
        }
    }
}

/// Spec: EPB-06, DTO-12
#[test]
fn an_operation_without_an_answer_fails() {
    for options in variety() {
        let options = FabricOptions {
            latency: 5..=5,
            ..options
        };
        let mut couple = Couple::new(options);
        let local = couple.near.buffer(8, ALL);
        let source = couple.far.buffer(8, ALL);
        couple.a.read(1, &[local.all()], source.remote(0));
        couple.fabric.step();
        let at = couple.fabric.now().as_micros();
        couple.fabric.inject(Fault::LinkDown {
            a: 0,
            b: 1,
            at,
            duration: None,
        });
        couple.run();
        assert_eq!(couple.near.sent(), [(1, DtoStatus::Transport)]);
    }
}

/// Spec: EPD-10
#[test]
fn a_crash_is_reported_only_on_its_own_adapter() {
    for options in variety() {
        let mut couple = Couple::new(options);
        let at = couple.fabric.now().as_micros() + 10;
        couple.fabric.inject(Fault::Crash { adapter: 1, at });
        couple.b.receive(1, &[]);
        couple.run();
        assert_eq!(couple.near.control(), []);
        assert_eq!(couple.far.control(), [ControlEvent::DeviceFailed]);
        let receives = &mut couple.far.receives;
        assert_eq!(receives.poll().unwrap().unwrap().status, FLUSHED);
        assert_eq!(receives.poll(), Err(DeviceFailure::Broken));
        let domain = couple.far.backend.create_domain();
        assert_eq!(domain, Err(BackendError::Device));
        couple.a.send(1, &[]);
        couple.run();
        assert_eq!(couple.near.sent(), [(1, DtoStatus::Transport)]);
        let queue_pair = couple.a.token;
        let broken = ControlEvent::Broken { queue_pair };
        assert_eq!(couple.near.control(), [broken]);
    }
}

/// Spec: EPD-10
#[test]
fn a_plan_may_name_adapters_before_they_exist() {
    let fabric = Fabric::new(with(
        FabricOptions::default(),
        [Fault::LinkDown {
            a: 0,
            b: 1,
            at: 0,
            duration: Some(50),
        }],
    ));
    let mut near = Host::new(&fabric, 1);
    let mut far = Host::new(&fabric, 2);
    let a = near.end(attributes());
    far.backend.listen(1, Some(5)).unwrap();
    let request = near.connect_request(far.address, 5, b"");
    near.backend.connect(a.key, &request).unwrap();
    fabric.run_until_idle(1000);
    assert_eq!(far.control(), []);
    fabric.run_until(dat_core::time::Instant::from_micros(50));
    let (a, b) = (near.end(attributes()), far.end(attributes()));
    connect(&mut near, &a, &mut far, &b);
}

/// The fabric reports a fault once it has had an effect, with its place.
#[test]
fn a_fault_with_an_effect_is_reported() {
    let (adapter, nth) = (0, 1);
    let fault = Fault::RemoteError {
        adapter,
        nth,
        error: RemoteError::Responder,
    };
    let mut couple = Couple::new(with(FabricOptions::default(), [fault.clone()]));
    for token in 0..2 {
        assert_eq!(couple.fabric.happened(), []);
        couple.b.receive(token, &[]);
        couple.a.send(token, &[]);
        couple.run();
    }
    let happened = couple.fabric.happened();
    let end = happened.first().and_then(|it| it.connection);
    assert_eq!(happened.len(), 1);
    assert_eq!(happened[0].fault, fault);
    assert!(end.is_some_and(|end| (end.from, end.to, end.is_initiator) == (0, 1, true)));
}

/// A receiver that is ready again in time had no effect.
#[test]
fn a_fault_that_retries_survive_is_not_reported() {
    for (attempts, expected) in [(6, false), (7, true)] {
        let fault = Fault::ReceiverNotReady {
            adapter: 1,
            nth: 0,
            attempts,
        };
        let mut couple = Couple::new(FabricOptions::default());
        couple.fabric.inject_from_now(fault.clone());
        couple.b.receive(0, &[]);
        couple.a.send(0, &[]);
        couple.run();
        let faults: Vec<Fault> = couple
            .fabric
            .happened()
            .into_iter()
            .map(|it| it.fault)
            .collect();
        assert_eq!(faults, if expected { vec![fault] } else { Vec::new() });
    }
}

/// A later operation without a buffer is no effect of a fault that was over before.
#[test]
fn an_ended_fault_is_not_reported_for_later_operations() {
    let fault = Fault::ReceiverNotReady {
        adapter: 1,
        nth: 0,
        attempts: 6,
    };
    let mut couple = Couple::new(with(FabricOptions::default(), [fault]));
    couple.b.receive(0, &[]);
    for token in 0..2 {
        couple.a.send(token, &[]);
        couple.run();
    }
    assert_eq!(couple.fabric.happened(), []);
}

/// A link that is back in time had no effect.
#[test]
fn a_short_outage_is_not_reported() {
    for (duration, expected) in [(Some(600), false), (Some(900), true), (None, true)] {
        let fault = Fault::LinkDown {
            a: 0,
            b: 1,
            at: 0,
            duration,
        };
        let mut couple = Couple::new(FabricOptions::default());
        couple.fabric.inject_from_now(fault);
        couple.b.receive(0, &[]);
        couple.a.send(0, &[]);
        couple.run();
        assert_eq!(
            !couple.fabric.happened().is_empty(),
            expected,
            "{duration:?}"
        );
    }
}
