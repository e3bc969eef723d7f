//! Low watermarks of shared receive queues.

use super::*;

/// Spec: SRL-01..04
#[test]
fn the_low_watermark_fires_once_per_setting() {
    with_setting(|on| {
        for cookie in 0..3 {
            on.post(cookie).unwrap();
        }
        on.backend.take_calls();
        on.ia.srq_set_lw(on.srq, 3).unwrap();
        assert_eq!(on.backend.take_calls(), [Call::ArmSharedLimit(on.key(), 3)]);
        assert!(!on.alarm());
        on.arrive(&on.consuming_endpoint, 0);
        let limit = ControlEvent::SharedReceiveLimit {
            queue: on.srq.handle().to_raw(),
        };
        on.backend.push_control(limit.clone());
        on.ia.progress(Instant::ZERO);
        assert!(on.alarm());
        // One event, even if the device repeats itself.
        on.backend.push_control(limit);
        on.ia.progress(Instant::ZERO);
        assert!(!on.alarm());
        // Raised by the call itself, as only two buffers are left; the limit is then disarmed.
        on.ia.srq_set_lw(on.srq, 3).unwrap();
        assert!(on.alarm());
        assert_eq!(
            on.backend.take_calls().last(),
            Some(&Call::ArmSharedLimit(on.key(), 0))
        );
        on.post(9).unwrap();
        on.ia.srq_set_lw(on.srq, 3).unwrap();
        assert!(!on.alarm());
        let param = on.ia.srq_query(on.srq, SrqFields::LOW_WATERMARK).unwrap();
        assert_eq!(param.low_watermark, 3);
    });
}

/// A late event of an earlier setting leaves the next setting armed.
///
/// Spec: SRL-02
#[test]
fn a_late_alarm_leaves_the_next_setting_armed() {
    with_setting(|on| {
        for cookie in 0..3 {
            on.post(cookie).unwrap();
        }
        let limit = ControlEvent::SharedReceiveLimit {
            queue: on.srq.handle().to_raw(),
        };
        on.ia.srq_set_lw(on.srq, 3).unwrap();
        on.arrive(&on.consuming_endpoint, 0);
        on.backend.push_control(limit.clone());
        // Before the event is polled, buffers are posted and the watermark is set again.
        on.post(3).unwrap();
        on.ia.srq_set_lw(on.srq, 3).unwrap();
        assert!(on.alarm());
        on.ia.progress(Instant::ZERO);
        assert!(!on.alarm());
        on.arrive(&on.consuming_endpoint, 0);
        on.backend.push_control(limit.clone());
        on.ia.progress(Instant::ZERO);
        assert!(on.alarm());
        on.backend.push_control(limit);
        on.ia.progress(Instant::ZERO);
        assert!(!on.alarm());
    });
}

/// A call that turns the watermark off raises the pending event.
///
/// The event is never taken for one of a later setting.
///
/// Spec: SRL-02, SRL-05
#[test]
fn a_late_alarm_is_not_one_of_a_later_setting() {
    with_setting(|on| {
        for cookie in 0..4 {
            on.post(cookie).unwrap();
        }
        let limit = ControlEvent::SharedReceiveLimit {
            queue: on.srq.handle().to_raw(),
        };
        on.ia.srq_set_lw(on.srq, 4).unwrap();
        on.arrive(&on.consuming_endpoint, 0);
        on.backend.push_control(limit.clone());
        on.ia.srq_set_lw(on.srq, 0).unwrap();
        assert!(on.alarm());
        // Three buffers are left, enough for the next setting.
        on.ia.srq_set_lw(on.srq, 2).unwrap();
        on.ia.progress(Instant::ZERO);
        assert!(!on.alarm());
        for _ in 0..2 {
            on.arrive(&on.consuming_endpoint, 0);
        }
        on.backend.push_control(limit.clone());
        on.ia.progress(Instant::ZERO);
        assert!(on.alarm());
        // One event each for the earlier setting and for the present one, which is passed already.
        on.post(9).unwrap();
        on.post(10).unwrap();
        on.ia.srq_set_lw(on.srq, 3).unwrap();
        on.arrive(&on.consuming_endpoint, 0);
        on.backend.push_control(limit);
        on.ia.srq_set_lw(on.srq, 3).unwrap();
        assert!(on.alarm() && on.alarm());
        on.ia.progress(Instant::ZERO);
        assert!(!on.alarm());
    });
}

/// Spec: SRL-05
#[test]
fn the_low_watermark_can_be_off_or_wrong_or_missing() {
    with_setting(|on| {
        for (low, cause) in [
            (-1, Cause::NegativeCount),
            (i32::MIN, Cause::NegativeCount),
            (11, Cause::AboveLimit),
        ] {
            assert_eq!(
                refusal(on.ia.srq_set_lw(on.srq, low)),
                (ErrorKind::InvalidParameter, Subtype::InvalidArg2, cause)
            );
        }
        on.ia.srq_set_lw(on.srq, 10).unwrap();
        assert!(on.alarm());
        on.ia.srq_set_lw(on.srq, 0).unwrap();
        assert!(!on.alarm());
        on.backend.push_control(ControlEvent::SharedReceiveLimit {
            queue: on.srq.handle().to_raw(),
        });
        on.ia.progress(Instant::ZERO);
        assert!(!on.alarm());
        on.backend.refuse_next(BackendError::NotSupported);
        assert_eq!(
            refusal(on.ia.srq_set_lw(on.srq, 1)).0,
            ErrorKind::ModelNotSupported
        );
        let param = on.ia.srq_query(on.srq, SrqFields::LOW_WATERMARK).unwrap();
        assert_eq!(param.low_watermark, 0);
        on.backend.refuse_next(BackendError::NotSupported);
        assert_eq!(on.ia.srq_set_lw(on.srq, 0), Ok(()));
    });
}

/// The device is armed with the limit, or 0 if the call raises the event.
///
/// Spec: SRL-02, SRL-04
#[test]
fn the_device_tells_only_what_the_call_does_not() {
    with_setting(|on| {
        for cookie in 0..3 {
            on.post(cookie).unwrap();
        }
        for (low, armed, told) in [(2, 2, false), (3, 3, false), (4, 0, true), (0, 0, false)] {
            on.backend.take_calls();
            on.ia.srq_set_lw(on.srq, low).unwrap();
            assert_eq!(
                on.backend.take_calls(),
                [Call::ArmSharedLimit(on.key(), armed)],
                "{low}"
            );
            assert_eq!(on.alarm(), told, "{low}");
            // One event per setting.
            assert!(!on.alarm(), "{low}");
        }
    });
}

/// A device that cannot count is armed first, then disarmed if few buffers are left.
///
/// Spec: SRL-02, SRL-04
#[test]
fn a_device_that_cannot_count_is_armed_first() {
    with_setting(|on| {
        on.backend.count_no_shared();
        for cookie in 0..3 {
            on.post(cookie).unwrap();
        }
        let armed = |low| Call::ArmSharedLimit(on.key(), low);
        on.backend.take_calls();
        on.ia.srq_set_lw(on.srq, 3).unwrap();
        assert_eq!(on.backend.take_calls(), [armed(3)]);
        assert!(!on.alarm());
        // The buffer completed; the completion is not polled.
        on.arrive(&on.consuming_endpoint, 0);
        on.ia.srq_set_lw(on.srq, 3).unwrap();
        assert_eq!(on.backend.take_calls(), [armed(3), armed(0)]);
        assert!(on.alarm());
        assert!(!on.alarm());
    });
}

/// Device events without an armed setting are ignored.
///
/// The setting either raised its event already or never existed.
///
/// Spec: SRL-02, SRL-05
#[test]
fn device_events_without_an_armed_setting_are_ignored() {
    with_setting(|on| {
        let limit = ControlEvent::SharedReceiveLimit {
            queue: on.srq.handle().to_raw(),
        };
        on.backend.push_control(limit.clone());
        on.post(0).unwrap();
        on.ia.srq_set_lw(on.srq, 1).unwrap();
        assert!(!on.alarm());
        on.ia.srq_set_lw(on.srq, 2).unwrap();
        assert!(on.alarm());
        on.backend.push_control(limit);
        on.ia.progress(Instant::ZERO);
        assert!(!on.alarm());
    });
}
