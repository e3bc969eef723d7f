//! The conformance suite on the ring device.

use core::cell::Cell;

use dat_bench::{RingBackend, Wire};
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_tests::fixture::{Testbed, WindowlessTestbed};

/// A wire with its clock, new for each test.
struct RingBed {
    wire: Wire,
    now: Cell<Instant>,
}

impl RingBed {
    fn new() -> Self {
        Self {
            wire: Wire::new(),
            now: Cell::new(Instant::ZERO),
        }
    }
}

impl Testbed for RingBed {
    type Backend = RingBackend;
    type Lock = HostLock;

    fn device(&self) -> RingBackend {
        self.wire.device()
    }

    fn now(&self) -> Instant {
        self.now.get()
    }

    fn step(&self) -> bool {
        self.wire.step()
    }

    fn advance(&self, to: Instant) {
        while self.wire.step() {}
        self.now.set(to);
    }

    fn skip_reason(&self, test: &str) -> Option<String> {
        let lacks = if NEED_WINDOWS.contains(&test) {
            "memory windows"
        } else if NEED_SHARED_QUEUES.contains(&test) {
            "shared receive queues"
        } else {
            return None;
        };
        Some(format!("the device has no {lacks}"))
    }
}

impl WindowlessTestbed for RingBed {
    fn windowless_device(&self) -> RingBackend {
        self.wire.device()
    }
}

dat_tests::conformance_suite!(base, RingBed::new());
dat_tests::conformance_suite!(windowless, RingBed::new());

/// Tests that need memory windows.
const NEED_WINDOWS: &[&str] = &[
    "devices_get_binds_as_posted",
    "a_window_keeps_a_context",
    "abrupt_close_ends_windows",
    "graceful_close_needs_every_window_freed",
    "windows_are_finite",
    "binds_end_with_their_endpoint",
    "freed_window_is_not_written_by_requests_under_way",
    "bound_window_holds_its_region",
    "zone_is_held_by_a_window",
    "bind_follows_the_endpoint_state",
    "bind_opens_a_range_for_the_peer",
    "binds_and_transfers_report_their_own_kind",
    "bind_post_does_not_wait",
    "bound_range_is_enforced",
    "binds_share_the_request_queue",
    "context_sent_after_the_bind_is_always_usable",
    "bound_rights_are_enforced",
    "context_written_after_the_bind_is_always_usable",
    "early_use_succeeds_or_breaks",
    "late_bind_failure_breaks_the_connection",
    "fenced_bind_waits_for_reads",
    "no_context_opens_a_window_again",
    "suppressed_bind_reports_failure_only",
    "operations_after_a_bind_complete_after_it",
    "bind_checks_come_in_the_specified_order",
    "unsignalled_bind_needs_configuration",
    "bind_flags_are_checked_bit_by_bit",
    "bind_needs_one_zone",
    "bind_needs_matching_local_rights",
    "bind_privileges_are_checked_bit_by_bit",
    "bind_refuses_bad_handles",
    "bind_range_stays_inside_its_region",
    "binds_polled_in_any_order_leave_the_last",
    "empty_bind_unbinds",
    "binds_under_way_are_of_one_endpoint",
    "flushed_rebind_keeps_the_old_binding",
    "rmr_free_unbinds",
    "rmr_query_follows_the_binding",
    "rebind_kills_the_old_context",
    "binds_by_state",
];

/// Tests that need shared receive queues, or their watermarks.
const NEED_SHARED_QUEUES: &[&str] = &[
    "devices_get_both_high_watermarks",
    "devices_get_no_empty_segment",
    "false_lengths_of_devices_are_bounded",
    "zones_differ_only_if_the_provider_supports_it",
    "shared_buffers_belong_to_the_zone_of_their_queue",
    "bad_attributes_are_refused_on_a_shared_queue",
    "an_endpoint_holds_several_shared_buffers",
    "read_segments_and_depth_go_together",
    "every_object_keeps_a_context",
    "shared_buffers_outlive_their_endpoint",
    "depths_above_the_device_are_refused",
    "bad_low_watermarks_are_refused",
    "bad_shared_queues_are_refused",
    "low_watermark_fires_at_once_if_passed",
    "low_watermark_fires_once_per_setting",
    "resized_shared_queue_keeps_its_buffers",
    "query_describes_a_new_shared_queue",
    "shared_queue_counts_are_known_as_announced",
    "shared_queue_counts_follow_the_buffers",
    "shared_queue_does_not_shrink_below_its_use",
    "shared_queues_are_finite",
    "shared_queue_is_held_by_its_endpoints",
    "empty_shared_queue_breaks_the_connection",
    "shared_buffer_fills_in_list_order",
    "own_receives_are_refused_on_a_shared_queue",
    "shared_buffer_list_may_change_after_the_post",
    "shared_buffers_take_any_alignment",
    "shared_post_checks_come_in_the_specified_order",
    "shared_post_checks_its_segments",
    "shared_post_does_not_wait",
    "shared_buffers_serve_any_endpoint",
    "shared_post_refuses_bad_queues",
    "shared_receives_keep_the_order_of_each_connection",
    "taken_buffers_come_back_at_the_disconnect",
    "endpoint_flags_decide_about_the_notification",
    "shared_queue_has_its_exact_size",
    "threshold_decides_about_the_wake_up",
    "unconnected_endpoints_take_no_buffers",
    "too_short_shared_buffer_breaks_one_connection",
    "soft_high_watermark_fires_once_per_setting",
    "hard_high_watermark_breaks_the_connection",
    "receive_query_follows_the_messages",
];
