//! Sends and receives.

use backend_mock::FabricOptions;
use dat_core::backend::{
    Backend, ControlEvent, DisconnectMode, ReceiveInfo, SendFlags, SendOperation, WorkQueue,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges};

use crate::support::{Couple, NONE, PROBE, RECEIVE_PROBE, poll_all, variety};

const ALL: MemoryPrivileges = MemoryPrivileges::ALL;
const SUCCESS: DtoStatus = DtoStatus::Success;
const FLUSHED: DtoStatus = DtoStatus::Flushed;

/// Spec: EPS-01, EPV-02, DTO-03, DTO-11
#[test]
fn messages_fill_buffers_in_order() {
    for options in variety() {
        let mut couple = Couple::new(options);
        let source = couple.near.buffer(64, ALL);
        let target = couple.far.buffer(64, ALL);
        source.count_up(1);
        let first = [target.segment(0, 10), target.segment(20, 10)];
        couple.b.receive(11, &first);
        couple.b.receive(12, &[target.segment(40, 20)]);
        couple.b.receive(13, &[]);
        let segments = [source.segment(0, 4), source.segment(4, 9)];
        couple.a.send(1, &segments);
        couple.a.send(2, &[source.segment(13, 20)]);
        couple.a.send(3, &[]);
        couple.run();
        let bytes = source.content();
        let mut expected = vec![0; 64];
        expected[0..10].copy_from_slice(&bytes[0..10]);
        expected[20..23].copy_from_slice(&bytes[10..13]);
        expected[40..60].copy_from_slice(&bytes[13..33]);
        assert_eq!(target.content(), expected);
        assert_eq!(
            couple.far.received(),
            [(11, SUCCESS, 13), (12, SUCCESS, 20), (13, SUCCESS, 0)]
        );
        let expected: Vec<_> = (1..=3).map(|token| (token, SUCCESS)).collect();
        assert_eq!(couple.near.sent(), expected);
    }
}

/// Spec: LSW-22, EPW-43
#[test]
fn a_write_is_placed_before_a_later_send_completes() {
    for options in variety() {
        let mut couple = Couple::new(options);
        let source = couple.near.buffer(64, ALL);
        let target = couple.far.buffer(64, ALL);
        couple.b.receive(1, &[]);
        couple.b.receive(2, &[]);
        let mut seen = 0;
        for round in 1..=2 {
            source.fill(round);
            couple
                .a
                .write(u64::from(round), &[source.all()], target.remote(0));
            couple.a.send(10 + u64::from(round), &[]);
            while seen < usize::from(round) {
                assert!(couple.fabric.step());
                seen += couple.far.received().len();
            }
            assert_eq!(target.content(), [round; 64]);
            couple.run();
        }
        // Writes among themselves: the last one stays.
        for value in 0..8_u8 {
            let segment = source.segment(u64::from(value) * 8, 8);
            source.store(usize::from(value) * 8, value);
            couple.a.write(20, &[segment], target.remote(0));
        }
        couple.run();
        assert_eq!(target.content()[0], 7);
    }
}

/// Spec: DTO-04, SRQR-34
#[test]
fn the_solicited_flag_reaches_the_receiver() {
    for options in variety() {
        let mut couple = Couple::new(options);
        couple.b.receive(1, &[]);
        couple.b.receive(2, &[]);
        couple.a.send(1, &[]);
        couple
            .a
            .post(2, SendOperation::Send, &[], SendFlags::SOLICITED);
        couple.run();
        let solicited: Vec<bool> = poll_all(&mut couple.far.receives)
            .iter()
            .map(|completion| completion.solicited)
            .collect();
        assert_eq!(solicited, [false, true]);
    }
}

/// Spec: EPV-04, EPS-04, DTO-12
#[test]
fn a_message_longer_than_the_buffer_breaks_both_ends() {
    for options in variety() {
        let mut couple = Couple::new(options);
        let source = couple.near.buffer(64, ALL);
        let target = couple.far.buffer(64, ALL);
        source.fill(7);
        couple.b.receive(1, &[target.segment(0, 16)]);
        couple
            .b
            .receive(2, &[target.segment(16, 7), target.segment(30, 8)]);
        couple.b.receive(3, &[target.segment(40, 16)]);
        for token in 1..=3 {
            couple.a.send(token, &[source.segment(0, 16)]);
        }
        couple.a.write(4, &[source.all()], target.remote(0));
        couple.run();
        assert_eq!(
            couple.far.received(),
            [
                (1, SUCCESS, 16),
                (2, DtoStatus::LocalLength, 0),
                (3, FLUSHED, 0)
            ]
        );
        assert_eq!(
            couple.near.sent(),
            [
                (1, SUCCESS),
                (2, DtoStatus::RemoteResponder),
                (3, FLUSHED),
                (4, FLUSHED)
            ]
        );
        // What came after the failure did nothing.
        assert_eq!(target.content()[40..], [0; 24]);
        couple.assert_broken();
    }
}

/// Spec: EPV-05, LMF-02
#[test]
fn a_receive_buffer_is_checked_by_the_device() {
    for options in variety() {
        for case in 0..3 {
            let mut couple = Couple::new(options.clone());
            let source = couple.near.buffer(8, ALL);
            let rights = if case == 0 {
                MemoryPrivileges::LOCAL_READ
            } else {
                ALL
            };
            let domain = if case == 1 {
                couple.far.backend.create_domain().unwrap()
            } else {
                couple.far.domain
            };
            let target = couple.far.buffer_in(domain, 8, rights);
            couple.b.receive(1, &[target.all()]);
            if case == 2 {
                couple.far.backend.deregister(target.keys);
            }
            source.fill(1);
            couple.a.send(1, &[source.all()]);
            couple.run();
            assert_eq!(couple.far.received(), [(1, DtoStatus::LocalProtection, 0)]);
            assert_eq!(couple.near.sent(), [(1, DtoStatus::RemoteResponder)]);
            assert_eq!(target.content(), [0; 8]);
            couple.assert_broken();
        }
    }
}

/// Spec: EPH-05, EPS-04
#[test]
fn a_message_without_a_receive_is_tried_again_and_then_breaks() {
    for options in variety() {
        let mut couple = Couple::new(options.clone());
        couple.a.send(1, &[]);
        for _ in 0..4 {
            couple.fabric.step();
        }
        couple.b.receive(1, &[]);
        couple.run();
        assert_eq!(couple.near.sent(), [(1, SUCCESS)]);
        assert_eq!(couple.far.received(), [(1, SUCCESS, 0)]);

        let before = couple.fabric.now().as_micros();
        couple.a.send(2, &[]);
        couple.a.send(3, &[]);
        couple.run();
        assert_eq!(
            couple.near.sent(),
            [(2, DtoStatus::ReceiverNotReady), (3, FLUSHED)]
        );
        let patience =
            options.receiver_not_ready_interval * u64::from(options.receiver_not_ready_retries);
        assert!(couple.fabric.now().as_micros() >= before + patience);
        couple.assert_broken();
    }
}

/// Spec: EPD-01, DTO-10, EPW-24, EPV-03
#[test]
fn a_disconnect_flushes_both_queues_and_later_posts() {
    for options in variety() {
        let mut couple = Couple::new(options);
        let source = couple.near.buffer(64, ALL);
        couple.a.receive(21, &[]);
        couple.b.receive(31, &[]);
        // Without a receive for the second one, it cannot have ended.
        couple.a.send(1, &[]);
        couple.a.send(2, &[]);
        couple.a.write(3, &[source.all()], source.remote(0));
        for _ in 0..3 {
            couple.fabric.step();
        }
        let backend = &mut couple.near.backend;
        backend.disconnect(couple.a.key, DisconnectMode::Abrupt);
        couple.a.send(4, &[]);
        couple.a.receive(22, &[]);
        couple.a.write(5, &[], source.remote(0));
        let sent = couple.near.sent();
        let tokens: Vec<u64> = sent.iter().map(|(token, _)| *token).collect();
        assert_eq!(tokens, [1, 2, 3, 4, 5]);
        assert!(sent[1..].iter().all(|(_, status)| *status == FLUSHED));
        assert_eq!(couple.near.received(), [(21, FLUSHED, 0), (22, FLUSHED, 0)]);
        assert_eq!(couple.near.control(), []);
        couple.run();
        assert_eq!(couple.near.control(), []);
        let queue_pair = couple.b.token;
        assert_eq!(
            couple.far.control(),
            [ControlEvent::Disconnected { queue_pair }]
        );
        assert_eq!(couple.far.received().len(), 1);
        couple.b.receive(32, &[]);
        assert_eq!(couple.far.received(), [(32, FLUSHED, 0)]);
    }
}

/// Spec: EPD-01, DTO-12
#[test]
fn after_the_first_failure_of_a_direction_all_fail() {
    let mut statuses = Vec::new();
    for options in variety() {
        for steps in 0..40 {
            let mut couple = Couple::new(options.clone());
            let local = couple.near.buffer(64, ALL);
            let remote = couple.far.buffer(64, ALL);
            for token in 0..12 {
                match token % 3 {
                    0 => couple.a.read(token, &[local.all()], remote.remote(0)),
                    1 => couple.a.write(token, &[local.all()], remote.remote(0)),
                    _ => {
                        couple.b.receive(token, &[]);
                        couple.a.send(token, &[]);
                    }
                }
            }
            for _ in 0..steps {
                couple.fabric.step();
            }
            let backend = &mut couple.near.backend;
            backend.disconnect(couple.a.key, DisconnectMode::Abrupt);
            let sent = couple.near.sent();
            let tokens: Vec<u64> = sent.iter().map(|(token, _)| *token).collect();
            assert_eq!(tokens, (0..12).collect::<Vec<_>>());
            let good = sent.iter().take_while(|(_, status)| *status == SUCCESS);
            let good = good.count();
            assert!(sent[good..].iter().all(|(_, status)| *status == FLUSHED));
            statuses.push(good);
            couple.run();
            // What the sender was told is there, has arrived.
            let received = couple.far.received();
            assert_eq!(received.len(), 4);
            let arrived = received.iter().filter(|entry| entry.1 == SUCCESS).count();
            assert!(arrived >= good / 3);
        }
    }
    statuses.sort_unstable();
    statuses.dedup();
    assert!(statuses.len() > 4, "{statuses:?}");
}

/// Spec: EPY-01, EPH-02
#[test]
fn buffers_in_use_are_counted_and_raise_watermark_events() {
    for options in variety() {
        let options = FabricOptions {
            receive_latency: 1000..=1000,
            ..options
        };
        let mut couple = Couple::new(options);
        let far = &mut couple.far;
        far.backend
            .set_high_watermarks(couple.b.key, Some(2), None)
            .unwrap();
        for token in 0..6 {
            couple.b.receive(token, &[]);
            couple.a.send(token, &[]);
        }
        while far.backend.receive_info(couple.b.key).allocated != Some(3) {
            assert_eq!(far.control(), []);
            assert!(couple.fabric.step());
        }
        let info = ReceiveInfo {
            allocated: Some(3),
            span: Some(3),
        };
        assert_eq!(far.backend.receive_info(couple.b.key), info);
        let queue_pair = couple.b.token;
        let event = ControlEvent::SoftHighWatermark { queue_pair };
        assert_eq!(far.control(), std::slice::from_ref(&event));
        // Set again while exceeded: at once.
        far.backend
            .set_high_watermarks(couple.b.key, Some(1), None)
            .unwrap();
        assert_eq!(far.control(), [event]);
        couple.run();
        assert_eq!(couple.far.control(), []);
        assert_eq!(couple.far.received().len(), 6);
        let idle = ReceiveInfo {
            allocated: Some(0),
            span: Some(0),
        };
        assert_eq!(couple.far.backend.receive_info(couple.b.key), idle);
    }
}

/// Spec: EPH-03
#[test]
fn the_hard_watermark_breaks_the_connection() {
    for options in variety() {
        for during_the_call in [false, true] {
            let options = FabricOptions {
                receive_latency: 1000..=1000,
                ..options.clone()
            };
            let mut couple = Couple::new(options);
            let far = &mut couple.far.backend;
            if !during_the_call {
                far.set_high_watermarks(couple.b.key, None, Some(1))
                    .unwrap();
            }
            for token in 0..2 {
                couple.b.receive(token, &[]);
                couple.a.send(token, &[]);
            }
            if during_the_call {
                while couple.far.backend.receive_info(couple.b.key).allocated != Some(2) {
                    assert!(couple.fabric.step());
                }
                let far = &mut couple.far.backend;
                far.set_high_watermarks(couple.b.key, None, Some(1))
                    .unwrap();
            }
            couple.assert_broken();
            let expected: Vec<_> = (0..2).map(|token| (token, FLUSHED, 0)).collect();
            assert_eq!(couple.far.received(), expected);
            let expected: Vec<_> = (0..2).map(|token| (token, FLUSHED)).collect();
            assert_eq!(couple.near.sent(), expected);
        }
    }
}

/// Spec: EPH-01, EPH-03
#[test]
fn usage_at_the_watermarks_is_allowed() {
    for options in variety() {
        let options = FabricOptions {
            receive_latency: 1000..=1000,
            ..options
        };
        let mut couple = Couple::new(options);
        let far = &mut couple.far.backend;
        far.set_high_watermarks(couple.b.key, Some(2), Some(2))
            .unwrap();
        for token in 0..2 {
            couple.b.receive(token, &[]);
            couple.a.send(token, &[]);
        }
        couple.run();
        assert_eq!(couple.far.control(), []);
        assert_eq!(couple.far.received(), [(0, SUCCESS, 0), (1, SUCCESS, 0)]);
    }
}

/// Spec: DTO-07, EPW-26
#[test]
fn queues_have_the_requested_depth() {
    for options in variety() {
        let mut couple = Couple::new(options);
        let depth = crate::support::attributes().max_request_dtos;
        for token in 0..depth as u64 {
            couple.b.receive(token, &[]);
            couple
                .a
                .queue(token, SendOperation::Send, &[], NONE)
                .unwrap();
        }
        assert!(couple.a.send.reserve(&PROBE, 0).is_none());
        assert!(
            couple
                .b
                .receive
                .as_mut()
                .unwrap()
                .reserve(&RECEIVE_PROBE, 0)
                .is_none()
        );
        couple.a.send.ring().unwrap();
        assert!(couple.a.send.reserve(&PROBE, 0).is_none());
        couple.run();
        assert!(couple.a.send.reserve(&PROBE, 0).is_some());
        assert!(
            couple
                .b
                .receive
                .as_mut()
                .unwrap()
                .reserve(&RECEIVE_PROBE, 0)
                .is_some()
        );
    }
}

/// Spec: GEN-06
#[test]
fn a_dropped_slot_leaves_no_trace() {
    for options in variety() {
        let mut couple = Couple::new(options);
        let local = couple.near.buffer(64, ALL);
        local.count_up(0);
        let target = couple.far.buffer(64, ALL);
        {
            let mut slot = couple.a.send.reserve(&PROBE, 1).unwrap();
            dat_core::backend::WorkSlot::segment(&mut slot, local.all());
        }
        couple.a.send.ring().unwrap();
        couple.run();
        assert_eq!(couple.near.sent(), []);
        couple.a.write(1, &[local.segment(8, 8)], target.remote(0));
        couple.run();
        assert_eq!(target.content()[..9], [8, 9, 10, 11, 12, 13, 14, 15, 0]);
    }
}

/// Spec: DTO-11
#[test]
fn nothing_starts_before_the_doorbell() {
    for options in variety() {
        let mut couple = Couple::new(options);
        couple.b.receive(1, &[]);
        couple.a.queue(1, SendOperation::Send, &[], NONE).unwrap();
        couple.run();
        assert_eq!(couple.near.sent(), []);
        couple.a.send.ring().unwrap();
        couple.run();
        assert_eq!(couple.near.sent(), [(1, SUCCESS)]);
    }
}
