//! The list of all tests.

/// Makes a `#[test]` of each test of a group: `conformance_suite!(base, MyBed::new())`.
///
/// | group | trait that the bed implements |
/// |---|---|
/// | `base` | [`Testbed`](crate::fixture::Testbed) |
/// | `non_coherent` | [`NonCoherentTestbed`](crate::fixture::NonCoherentTestbed) |
/// | `windowless` | [`WindowlessTestbed`](crate::fixture::WindowlessTestbed) |
/// | `extended` | [`ExtendedTestbed`](crate::fixture::ExtendedTestbed) |
/// | `faulty` | [`FaultyTestbed`](crate::fixture::FaultyTestbed) |
/// | `rsm` | [`RsmTestbed`](crate::fixture::RsmTestbed) |
/// | `rsm_faulty` | [`FaultyRsmTestbed`](crate::fixture::FaultyRsmTestbed) |
#[macro_export]
macro_rules! conformance_suite {
    (base, $bed:expr) => {
        mod base {
            use super::*;
            $crate::conformance_suite! { @each $bed;
                batch:
                    batch_does_what_its_posts_do
                    batch_ends_at_the_first_refused_post
                    batch_of_receives_fills_the_queue
                    batch_is_flushed_where_nobody_is_connected;
                cno:
                    query_describes_a_new_notification_object
                    agent_is_called_once_per_association
                    agents_that_call_themselves_do_not_nest
                    agents_of_a_long_chain_do_not_nest
                    agents_that_are_due_wait_for_the_running_one
                    notification_is_remembered_for_a_later_wait
                    one_notification_releases_one_waiter
                    an_abandoned_wait_takes_nothing
                    notification_object_is_held_by_its_users
                    freeing_the_last_dispatcher_releases_all_waiters;
                connection:
                    connection_carries_private_data_both_ways
                    private_data_is_limited
                    requests_beyond_the_backlog_are_refused
                    service_points_own_their_qualifier
                    freed_service_point_leaves_its_requests
                    reserved_service_point_serves_once
                    reserved_service_point_may_bring_an_endpoint
                    bad_accepts_have_no_effect
                    rejection_reaches_the_active_side
                    nobody_listening_refuses
                    unanswered_request_times_out
                    bad_connects_have_no_effect
                    duplicate_connects_to_the_same_peer
                    request_can_be_handed_off
                    read_depths_are_agreed_at_the_connection
                    adapters_connect_to_themselves;
                device:
                    devices_get_the_flags_of_each_request
                    devices_get_no_empty_segment
                    devices_get_binds_as_posted
                    false_lengths_of_devices_are_bounded
                    devices_get_both_high_watermarks
                    devices_end_connections_as_asked;
                disconnect:
                    graceful_disconnect_drains_the_requests
                    shared_dispatcher_keeps_the_order_of_the_connection
                    accept_after_the_caller_left_fails_late;
                dto:
                    fenced_send_forwards_what_a_read_fetches
                    streams_keep_their_order_in_a_shared_dispatcher
                    requests_complete_in_posting_order
                    everything_after_a_failure_is_flushed_in_order
                    completions_always_have_a_place
                    segments_may_overlap
                    disconnect_completes_everything_exactly_once
                    completions_name_their_endpoint;
                endpoint:
                    query_describes_a_new_endpoint
                    default_attributes_make_a_working_endpoint
                    bad_attributes_are_refused
                    bad_attributes_are_refused_on_a_shared_queue
                    new_endpoint_names_its_bad_handle
                    queue_without_dispatcher_takes_nothing
                    endpoint_without_zone_waits_for_one
                    shared_dispatchers_need_agreement
                    zones_differ_only_if_the_provider_supports_it
                    shared_buffers_belong_to_the_zone_of_their_queue
                    read_segments_and_depth_go_together;
                endpoint_life:
                    modified_endpoint_behaves_by_its_new_parameters
                    modification_is_all_or_nothing
                    receive_flags_are_fixed_by_the_first_receive
                    freed_endpoint_ends_its_connection
                    endpoint_is_reused_after_a_reset
                    receive_query_of_an_idle_endpoint
                    receive_query_follows_the_messages
                    watermarks_are_granted_or_not_supported
                    soft_high_watermark_fires_once_per_setting
                    hard_high_watermark_breaks_the_connection;
                epw:
                    write_gathers_segments_in_list_order
                    lists_of_every_length_are_checked_to_their_end
                    suppressed_write_reports_failure_only
                    unsignalled_write_needs_configuration
                    fenced_write_forwards_what_a_read_fetches
                    segment_list_may_change_after_the_post
                    write_post_does_not_wait
                    write_cookies_come_back_untouched
                    write_follows_the_endpoint_state
                    write_queue_has_its_exact_size
                    remote_faults_of_a_write_break_the_connection
                    write_takes_any_alignment
                    empty_write_checks_nothing_remote
                    writes_are_placed_before_a_later_send_arrives;
                epw_refusals:
                    write_segments_stay_inside_their_region
                    write_refuses_bad_endpoints
                    write_needs_a_long_enough_remote_range
                    write_refuses_regions_of_other_zones
                    write_refuses_dead_and_unreadable_regions
                    write_flags_are_checked_bit_by_bit
                    write_segment_count_is_limited
                    write_total_is_limited
                    write_checks_come_in_the_specified_order;
                evd:
                    query_describes_a_new_dispatcher
                    bad_dispatchers_are_refused
                    dispatchers_take_only_their_streams
                    bad_dispatcher_handles_are_refused
                    software_events_are_queued_or_refused
                    wait_ends_at_its_threshold
                    a_waiter_owns_the_dispatcher
                    expired_wait_counts_fewer_than_its_threshold
                    unwaitable_ends_waits
                    unsignalled_completions_do_not_end_a_wait
                    thresholds_count_completions
                    failures_always_notify
                    resized_dispatcher_keeps_its_events
                    disabled_dispatcher_notifies_nobody
                    a_waiter_goes_before_the_notification_object
                    notification_object_can_be_changed
                    dispatcher_is_held_by_its_streams
                    overflow_is_reported_once;
                ia:
                    adapters_have_their_own_handles
                    adapter_attributes_follow_the_rules
                    attributes_are_the_same_for_every_open
                    requests_bring_endpoints_as_ep_creator_says
                    every_object_keeps_a_context
                    a_window_keeps_a_context
                    graceful_close_needs_an_empty_adapter
                    graceful_close_needs_every_window_freed
                    abrupt_close_destroys_everything
                    abrupt_close_ends_windows
                    dropped_adapter_is_closed
                    bad_async_queue_returns_the_device
                    objects_are_finite
                    windows_are_finite;
                lifecycles:
                    binds_end_with_their_endpoint
                    shared_buffers_outlive_their_endpoint
                    private_data_lasts_until_the_reset
                    late_answers_do_not_reach_a_new_attempt
                    new_endpoint_inherits_nothing
                    infinite_timeouts_never_run_out
                    request_without_room_for_its_endpoint_is_refused
                    freed_region_is_not_written_by_posted_receives
                    freed_window_is_not_written_by_requests_under_way
                    undequeued_events_survive_a_disconnect;
                memory:
                    zones_live_until_freed
                    zone_is_held_by_what_is_in_it
                    zone_is_held_by_a_window
                    registration_tells_what_it_did
                    remote_context_needs_a_remote_right
                    bad_registrations_are_refused
                    region_of_a_region_stands_on_its_own
                    shared_memory_goes_by_its_whole_cookie
                    remote_context_lives_as_long_as_the_region
                    region_is_gone_once_freed
                    bound_window_holds_its_region
                    transfers_in_flight_survive_the_end_of_their_region;
                post:
                    send_fills_the_receive_in_list_order
                    empty_messages_take_a_receive
                    send_flags_are_checked_bit_by_bit
                    unsignalled_messages_notify_nobody
                    suppressed_failure_notifies
                    solicited_wait_of_a_send_notifies_the_receiver
                    send_follows_the_endpoint_state
                    send_checks_its_segments
                    send_checks_come_in_the_specified_order
                    receive_checks_come_in_the_specified_order
                    message_longer_than_its_receive_breaks
                    message_without_a_receive_breaks
                    send_total_is_limited
                    receive_flags_are_checked_bit_by_bit
                    receives_outlive_the_states_before_the_connection
                    receive_checks_its_segments;
                read:
                    read_scatters_in_list_order
                    read_needs_enough_local_room
                    read_flags_are_checked_bit_by_bit
                    fenced_read_fetches_what_an_earlier_one_brought
                    read_follows_the_endpoint_state
                    read_checks_its_segments
                    remote_faults_of_a_read_break_the_connection
                    reads_beyond_the_depth_wait_their_turn
                    read_checks_come_in_the_specified_order
                    reads_without_a_depth_are_refused_in_order;
                refusals:
                    backend_refuses_as_its_trait_states
                    depths_above_the_device_are_refused
                    queues_refuse_as_their_traits_state;
                rmb:
                    bind_opens_a_range_for_the_peer
                    bound_rights_are_enforced
                    bound_range_is_enforced
                    context_sent_after_the_bind_is_always_usable
                    context_written_after_the_bind_is_always_usable
                    operations_after_a_bind_complete_after_it
                    early_use_succeeds_or_breaks
                    no_context_opens_a_window_again
                    suppressed_bind_reports_failure_only
                    unsignalled_bind_needs_configuration
                    fenced_bind_waits_for_reads
                    late_bind_failure_breaks_the_connection
                    bind_follows_the_endpoint_state
                    binds_share_the_request_queue
                    bind_post_does_not_wait
                    binds_and_transfers_report_their_own_kind;
                rmb_refusals:
                    bind_flags_are_checked_bit_by_bit
                    bind_needs_matching_local_rights
                    bind_range_stays_inside_its_region
                    bind_refuses_bad_handles
                    bind_needs_one_zone
                    bind_privileges_are_checked_bit_by_bit
                    bind_checks_come_in_the_specified_order;
                rmr:
                    rmr_query_follows_the_binding
                    rmr_free_unbinds
                    flushed_rebind_keeps_the_old_binding
                    binds_polled_in_any_order_leave_the_last
                    binds_under_way_are_of_one_endpoint
                    rebind_kills_the_old_context
                    empty_bind_unbinds;
                srq:
                    query_describes_a_new_shared_queue
                    bad_shared_queues_are_refused
                    shared_queues_are_finite
                    shared_queue_is_held_by_its_endpoints
                    shared_queue_counts_follow_the_buffers
                    shared_queue_counts_are_known_as_announced
                    resized_shared_queue_keeps_its_buffers
                    shared_queue_does_not_shrink_below_its_use
                    low_watermark_fires_once_per_setting
                    low_watermark_fires_at_once_if_passed
                    bad_low_watermarks_are_refused;
                srqr:
                    shared_buffers_serve_any_endpoint
                    an_endpoint_holds_several_shared_buffers
                    shared_buffer_fills_in_list_order
                    shared_buffer_list_may_change_after_the_post
                    shared_post_does_not_wait
                    shared_receives_keep_the_order_of_each_connection
                    endpoint_flags_decide_about_the_notification
                    threshold_decides_about_the_wake_up
                    shared_post_refuses_bad_queues
                    shared_post_checks_come_in_the_specified_order
                    shared_queue_has_its_exact_size
                    shared_post_checks_its_segments
                    shared_buffers_take_any_alignment
                    unconnected_endpoints_take_no_buffers
                    taken_buffers_come_back_at_the_disconnect
                    too_short_shared_buffer_breaks_one_connection
                    own_receives_are_refused_on_a_shared_queue
                    empty_shared_queue_breaks_the_connection;
                states:
                    connecting_calls_by_state
                    ending_calls_by_state
                    request_posts_by_state
                    binds_by_state
                    receive_posts_by_state
                    inspecting_calls_by_state
                    modifications_by_state
                    endpoints_of_requests_are_accepted_or_rejected
                    peer_events_end_a_pending_disconnect
                    abrupt_close_by_state;
                sync:
                    coherent_memory_needs_no_call
                    sync_checks_its_segments;
                wait:
                    blocking_wait_returns_with_the_event
                    blocking_wait_times_out
                    signals_interrupt_waits
                    blocking_notification_wait;
            }
        }
    };
    (non_coherent, $bed:expr) => {
        mod non_coherent {
            use super::*;
            $crate::conformance_suite! { @each $bed;
                sync:
                    sync_checks_its_segments_where_it_matters
                    sync_makes_writes_visible
                    one_sync_covers_several_writes
                    refused_sync_does_not_spoil_a_later_one
                    stores_before_a_write_survive_beside_it
                    stores_after_a_write_survive_beside_it
                    sync_makes_stores_readable
                    send_after_a_write_announces_it
                    posted_buffers_need_no_call
                    shared_buffers_need_no_call
                    devices_synchronise_what_is_named;
            }
        }
    };
    (windowless, $bed:expr) => {
        mod windowless {
            use super::*;
            $crate::conformance_suite! { @each $bed;
                rmb_refusals:
                    bind_needs_windows;
            }
        }
    };
    (extended, $bed:expr) => {
        mod extended {
            use super::*;
            $crate::conformance_suite! { @each $bed;
                device:
                    devices_get_extended_operations_as_posted;
                extended:
                    write_with_immediate_completes_a_receive
                    fenced_extended_operations_wait_for_reads
                    solicited_write_with_immediate_notifies_the_receiver
                    atomic_operations_fetch_the_old_value
                    write_with_immediate_fails_on_a_shared_queue
                    write_with_immediate_waits_for_a_receive
                    write_with_immediate_without_a_receive_breaks
                    atomic_operations_beyond_the_read_depth_wait
                    extended_operations_need_the_sync_calls
                    atomic_operations_need_both_rights
                    refused_extended_operations_have_no_effect;
            }
        }
    };
    (faulty, $bed:expr) => {
        mod faulty {
            use super::*;
            $crate::conformance_suite! { @each $bed;
                disconnect:
                    silent_host_is_unreachable
                    dead_host_breaks_the_connection
                    failed_operation_breaks_the_connection;
                ia:
                    refused_allocations_leave_nothing_behind
                    refused_windows_leave_nothing_behind
                    refused_posts_leave_nothing_behind;
                srq:
                    failed_shared_queue_keeps_its_buffers;
            }
        }
    };
    (rsm, $bed:expr) => {
        mod rsm {
            use super::*;
            $crate::conformance_suite! { @each $bed;
                rsm_barrier:
                    imports_begin_in_implicit_mode
                    a_barrier_is_made_opened_closed_and_destroyed
                    in_explicit_mode_the_close_completes_all_transfers
                    in_explicit_mode_bad_entries_are_still_refused_at_once
                    order_separates_writes_before_from_writes_after
                    implicit_vectors_need_no_barrier_and_leave_open_ones_alone;
                rsm_failure:
                    an_interrupted_vector_leaves_nothing_on_the_way
                    an_exporter_that_begins_again_is_another_one;
                rsm_hostile:
                    false_greetings_are_rejected
                    messages_for_other_connections_are_ignored
                    a_connection_that_was_never_granted_is_not_resumed
                    a_key_opens_only_what_is_granted
                    keys_of_an_earlier_incarnation_open_nothing
                    noise_ends_the_connection_that_it_came_by
                    stale_bytes_of_a_message_are_not_processed
                    a_peer_without_receives_is_cut_off
                    one_node_has_its_share_of_importers
                    one_node_has_its_share_of_links
                    messages_to_a_peer_without_receives_leave_room;
                rsm_impostor:
                    a_transfer_that_the_device_refuses_ends_the_vector_at_its_entry
                    the_mode_decides_which_call_reports_a_failed_transfer
                    a_vector_with_a_failed_entry_posts_no_signal
                    a_connection_that_breaks_in_a_span_fails_its_close
                    writes_count_when_they_are_known_to_be_visible
                    a_signal_that_cannot_be_delivered_leaves_nothing_to_do
                    a_read_back_waits_for_a_connection_that_is_over
                    a_signal_waits_for_data_of_a_connection_that_is_over
                    in_explicit_mode_entries_count_when_they_are_done
                    a_grant_whose_range_wraps_connects_nothing
                    a_connection_comes_back_to_the_same_segment_only;
                rsm_limits:
                    a_grant_that_breaks_at_once_gains_no_time
                    an_idle_connection_that_breaks_again_and_again_ends
                    withheld_credits_hold_no_signal
                    traffic_hides_no_withheld_credit
                    a_question_without_an_answer_holds_no_call
                    a_peer_that_takes_no_message_holds_no_call
                    an_importer_that_is_stopped_keeps_its_connection
                    calls_to_one_node_leave_room_for_others
                    links_of_others_hold_no_read_back
                    requests_of_strangers_end_no_connection
                    a_connection_waits_for_an_exporter_that_comes_later
                    a_new_connection_waits_for_a_listener_as_long_as_it_is_told
                    a_close_without_a_call_slot_keeps_its_span
                    a_lasting_interruption_leaves_the_link_to_others
                    changes_by_others_do_not_keep_an_interruption_out
                    a_flood_does_not_keep_an_interruption_out;
                rsm_local:
                    a_handle_is_used_again_and_its_content_is_live
                    handles_of_any_address_and_length_may_overlap
                    empty_and_too_long_memory_is_refused
                    a_freed_handle_is_refused
                    a_handle_of_another_controller_is_not_freed
                    freeing_waits_for_the_vectors_that_use_the_handle
                    freeing_waits_for_entries_that_are_not_begun
                    nonblocking_vectors_delay_no_other
                    borrowed_memory_is_registered_for_a_closure
                    a_vector_may_be_polled_and_longer_than_sixteen;
                rsm_map:
                    controllers_report_if_segments_can_be_mapped
                    a_mapping_is_loaded_from_and_stored_to
                    puts_and_gets_through_a_mapping_overtake_nothing
                    mappings_are_refused_in_order
                    a_mapping_survives_its_segment_without_reaching_it
                    accesses_map_nothing_by_themselves;
                rsm_refusal:
                    an_empty_vector_is_refused
                    only_a_live_import_takes_vectors
                    handles_of_another_engine_are_refused
                    a_released_controller_has_its_own_error
                    each_direction_needs_its_right
                    a_bad_entry_ends_the_vector_at_its_index
                    a_bad_entry_ends_a_getv_at_its_index
                    empty_entries_are_done_without_moving_anything
                    a_handle_of_another_controller_is_refused
                    a_call_too_many_moves_nothing
                    a_call_without_memory_moves_nothing;
                rsm_revocation:
                    a_segment_is_cut_off_in_the_middle_of_a_vector
                    an_aborted_connection_does_not_come_back_with_the_id
                    the_end_of_one_segment_is_not_the_end_of_another
                    acknowledged_entries_of_an_aborted_vector_do_not_count
                    a_rebind_that_fails_leaves_the_old_memory_bound
                    rebound_segments_keep_their_importers
                    rebinding_is_refused_in_order;
                rsm_segment:
                    controllers_are_counted
                    a_controller_needs_its_qualifier
                    releasing_a_controller_releases_its_objects
                    the_end_of_a_process_releases_everything
                    controllers_report_their_attributes
                    the_topology_names_every_path
                    segments_are_made_of_whole_pages
                    ids_are_published_and_free_again
                    access_lists_decide_who_may_connect
                    a_node_imports_from_itself_as_from_others
                    each_reason_fails_a_connect_with_its_error;
                rsm_signal:
                    a_vector_signals_once_and_only_if_it_succeeds
                    signals_accumulate_unless_flagged
                    data_is_visible_when_its_signal_is_taken
                    an_export_signals_all_of_its_importers
                    waits_end_by_a_signal_by_time_or_by_the_end_of_the_segment
                    a_signal_that_fails_after_the_data_leaves_nothing_to_do
                    a_signal_does_not_overtake_the_reads_of_its_vector
                    several_segments_are_waited_for_at_once
                    poll_references_only_delay_the_end
                    a_burst_of_signals_arrives_as_a_whole;
                rsm_single:
                    put_bytes_come_back_by_get
                    single_accesses_are_refused_in_order
                    items_of_every_size_come_back_by_get;
                rsm_synchronise:
                    stores_and_transfers_take_turns
                    a_signal_shows_the_writes_before_it
                    memory_that_is_taken_back_holds_the_writes
                    an_exporter_looks_for_itself
                    a_reader_does_not_show_the_writes_of_others
                    a_stopped_exporter_holds_no_call
                    questions_leave_other_links_their_turn
                    a_signal_waits_for_the_question_before_it
                    a_call_takes_its_question_back;
                rsm_vector:
                    bytes_are_gathered_and_gaps_are_left
                    getv_scatters_what_putv_gathered
                    of_overlapping_entries_the_later_one_wins
                    any_number_of_entries_is_one_vector
                    empty_entries_do_not_delay_others
                    entries_of_ones_own_segment_take_turns
                    many_entries_of_ones_own_segment_become_visible_meanwhile
                    random_entries_of_ones_own_segment_take_turns
                    entries_wait_for_those_they_depend_on_and_no_others
                    an_entry_reads_what_is_known_to_be_visible;
            }
        }
    };
    (rsm_faulty, $bed:expr) => {
        mod rsm_faulty {
            use super::*;
            $crate::conformance_suite! { @each $bed;
                rsm_failure:
                    a_failed_entry_ends_the_vector_and_the_connection_comes_back
                    a_failed_entry_ends_a_getv
                    in_explicit_mode_the_close_reports_failures
                    an_implicit_failure_in_a_span_fails_its_close_too
                    the_death_of_the_exporter_aborts_at_any_time
                    probes_find_a_dead_peer_of_an_idle_connection
                    memory_that_cannot_be_registered_ends_the_vector
                    memory_that_cannot_be_registered_has_no_handle
                    in_explicit_mode_a_failure_does_not_hold_up_immediate_entries
                    a_close_reads_back_writes_of_every_kind
                    many_connections_come_back_together;
            }
        }
    };
    (@each $bed:expr; $($module:ident: $($test:ident)*;)*) => {
        $(mod $module {
            use super::*;
            $(
                #[test]
                fn $test() {
                    let bed = $bed;
                    if $crate::fixture::is_skipped(&bed, stringify!($test)) {
                        return;
                    }
                    $crate::suite::$module::$test(&bed);
                }
            )*
        })*
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Yields the tests in a file of the suite: public functions, generic over a bed.
    fn tests_of(source: &str) -> impl Iterator<Item = (&str, &str)> {
        source
            .lines()
            .filter_map(|line| line.strip_prefix("pub fn ")?.split_once("<T: "))
    }

    /// Returns the tests of a module in a group of the list above.
    fn listed<'a>(list: &'a str, group: &str, module: &str) -> BTreeSet<&'a str> {
        let start = format!("    ({group}, $bed:expr) => {{");
        let Some((_, group)) = list.split_once(&start) else {
            return BTreeSet::new();
        };
        let group = group.split("\n    };").next().unwrap_or_default();
        let Some((_, names)) = group.split_once(&format!("\n                {module}:")) else {
            return BTreeSet::new();
        };
        let names = names.split(';').next().unwrap_or_default();
        names.split_whitespace().collect()
    }

    #[test]
    fn every_test_is_listed_and_has_a_unique_name() {
        let list = include_str!("list.rs");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/suite");
        let mut names = BTreeSet::new();
        for entry in std::fs::read_dir(folder).expect("the suite") {
            let path = entry.expect("an entry").path();
            let module = path.file_stem().and_then(|stem| stem.to_str());
            let module = module.expect("a name");
            if ["mod", "list"].contains(&module) {
                continue;
            }
            let source = std::fs::read_to_string(&path).expect("a source");
            for (name, rest) in tests_of(&source) {
                let group = match rest.split_once('>').expect("generics").0 {
                    "Testbed" => "base",
                    "NonCoherentTestbed" => "non_coherent",
                    "WindowlessTestbed" => "windowless",
                    "ExtendedTestbed" => "extended",
                    "FaultyTestbed" => "faulty",
                    "RsmTestbed" => "rsm",
                    "FaultyRsmTestbed" => "rsm_faulty",
                    other => panic!("{name}: no group for {other}"),
                };
                assert!(
                    listed(list, group, module).contains(name),
                    "{module}::{name} is not in the list of group {group}"
                );
                assert!(names.insert(name.to_owned()), "two tests are called {name}");
            }
        }
        assert!(names.len() > 50);
    }
}
