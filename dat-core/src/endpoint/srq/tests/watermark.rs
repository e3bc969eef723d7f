//! The low watermark.

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
        on.arrive(&on.taker, 0);
        let limit = ControlEvent::SharedReceiveLimit {
            queue: on.srq.handle().to_raw(),
        };
        on.backend.push_control(limit.clone());
        on.ia.progress(Instant::ZERO);
        assert!(on.alarm());
        // Once only, even if the device repeats itself.
        on.backend.push_control(limit);
        on.ia.progress(Instant::ZERO);
        assert!(!on.alarm());
        // At once, because only two are left; and then it is disarmed.
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

/// What the device told of an earlier setting and nobody took in yet does not use the next one up.
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
        on.arrive(&on.taker, 0);
        on.backend.push_control(limit.clone());
        // It is on its way; meanwhile there are enough buffers again, and the watermark is set anew.
        on.post(3).unwrap();
        on.ia.srq_set_lw(on.srq, 3).unwrap();
        assert!(on.alarm());
        on.ia.progress(Instant::ZERO);
        assert!(!on.alarm());
        on.arrive(&on.taker, 0);
        on.backend.push_control(limit.clone());
        on.ia.progress(Instant::ZERO);
        assert!(on.alarm());
        on.backend.push_control(limit);
        on.ia.progress(Instant::ZERO);
        assert!(!on.alarm());
    });
}

/// An alarm that nobody took in before the watermark was turned off is told by that call, and never taken
/// for one of a later setting.
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
        on.arrive(&on.taker, 0);
        on.backend.push_control(limit.clone());
        on.ia.srq_set_lw(on.srq, 0).unwrap();
        assert!(on.alarm());
        // Three are left, which is enough for the next setting.
        on.ia.srq_set_lw(on.srq, 2).unwrap();
        on.ia.progress(Instant::ZERO);
        assert!(!on.alarm());
        for _ in 0..2 {
            on.arrive(&on.taker, 0);
        }
        on.backend.push_control(limit.clone());
        on.ia.progress(Instant::ZERO);
        assert!(on.alarm());
        // An earlier setting and the one that is set now, which is passed already: one event each.
        on.post(9).unwrap();
        on.post(10).unwrap();
        on.ia.srq_set_lw(on.srq, 3).unwrap();
        on.arrive(&on.taker, 0);
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

/// The device is armed with what it shall tell, and with nothing where the call tells already.
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
            // One setting, one event.
            assert!(!on.alarm(), "{low}");
        }
    });
}

/// Where the device cannot count it is armed first, and disarmed if too few are left by what completed.
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
        // It completed, and nobody looked.
        on.arrive(&on.taker, 0);
        on.ia.srq_set_lw(on.srq, 3).unwrap();
        assert_eq!(on.backend.take_calls(), [armed(3), armed(0)]);
        assert!(on.alarm());
        assert!(!on.alarm());
    });
}

/// A watermark that was passed when it was set is told of: the device has nothing to add. Nor has one that was never set.
///
/// Spec: SRL-02, SRL-05
#[test]
fn what_no_setting_waits_for_is_told_by_nobody() {
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
