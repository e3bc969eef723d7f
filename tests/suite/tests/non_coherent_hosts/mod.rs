//! Remote shared memory on the mock, between hosts whose devices bypass the caches.
//!
//! The tests call no `dat_lmr_sync_rdma_*`: the engine does.

use crate::bed::{Bed, Network};
use backend_mock::{Fabric, FabricOptions, Fault, MockBackend, NodeOptions};
use core::cell::RefCell;
use core::marker::PhantomData;
use dat_core::attributes::IaAddress;
use dat_core::time::Instant;

/// A network of the mock.
///
/// In most tests the first host of each two is the importer, the second the exporter. The rule
/// tells which of them are not coherent.
struct NonCoherent<R> {
    fabric: Fabric,
    hosts: RefCell<Vec<IaAddress>>,
    rule: PhantomData<R>,
}

trait Rule {
    /// True if the exporter is not coherent.
    const EXPORTER: bool;
    /// True if the importer is not coherent.
    const IMPORTER: bool;
}

struct All;

impl Rule for All {
    const EXPORTER: bool = true;
    const IMPORTER: bool = true;
}

struct Exporter;

impl Rule for Exporter {
    const EXPORTER: bool = true;
    const IMPORTER: bool = false;
}

struct Importer;

impl Rule for Importer {
    const EXPORTER: bool = false;
    const IMPORTER: bool = true;
}

/// Tests in which the importer exports, too.
const OF_ONESELF: &[&str] = &[
    "entries_wait_for_those_they_depend_on_and_no_others",
    "an_entry_reads_what_is_known_to_be_visible",
];

/// Tests that a non-coherent exporter cannot pass, with the reason.
const EXCEPT: [(&str, &[&str]); 5] = [
    (
        "the memory of a non-coherent host is not mapped: accesses of a peer would bypass its caches",
        &[
            "a_mapping_is_loaded_from_and_stored_to",
            "accesses_map_nothing_by_themselves",
            "controllers_report_if_segments_can_be_mapped",
            "puts_and_gets_through_a_mapping_overtake_nothing",
            "mappings_are_refused_in_order",
            "a_mapping_survives_its_segment_without_reaching_it",
        ],
    ),
    (
        "the impostor is a coherent exporter: it does not synchronise its memory",
        &[
            "a_transfer_that_the_device_refuses_ends_the_vector_at_its_entry",
            "the_mode_decides_which_call_reports_a_failed_transfer",
            "a_connection_that_breaks_in_a_span_fails_its_close",
            "writes_count_when_they_are_known_to_be_visible",
            "a_signal_that_cannot_be_delivered_leaves_nothing_to_do",
            "a_read_back_waits_for_a_connection_that_is_over",
            "a_signal_waits_for_data_of_a_connection_that_is_over",
            "in_explicit_mode_entries_count_when_they_are_done",
            "a_peer_that_takes_no_message_holds_no_call",
        ],
    ),
    (
        "the exporter is stopped: if it is not coherent, no call moves data without its answer",
        &["a_signal_that_fails_after_the_data_leaves_nothing_to_do"],
    ),
    (
        "the first poll of a call asks the exporter and posts no entry; a call that is dropped \
         leaves its writes to the synchronisation of a later one",
        OF_ONESELF,
    ),
    (
        "counts the operations of a call; questions to the exporter are further ones",
        &[
            "a_close_reads_back_writes_of_every_kind",
            "many_connections_come_back_together",
        ],
    ),
];

impl<R: Rule> Network for NonCoherent<R> {
    type Device = MockBackend;

    const NAME: &'static str = "mock";

    fn begin(options: FabricOptions) -> Self {
        Self {
            fabric: Fabric::new(options),
            hosts: RefCell::default(),
            rule: PhantomData,
        }
    }

    fn device(&self, options: NodeOptions) -> MockBackend {
        let mut hosts = self.hosts.borrow_mut();
        let known = hosts.iter().position(|known| *known == options.address);
        let host = known.unwrap_or_else(|| {
            hosts.push(options.address);
            hosts.len() - 1
        });
        let coherent = match host % 2 {
            0 => !R::IMPORTER,
            _ => !R::EXPORTER,
        };
        self.fabric.node(NodeOptions {
            coherent,
            ..options
        })
    }

    fn now(&self) -> Instant {
        self.fabric.now()
    }

    fn step(&self) -> bool {
        self.fabric.step()
    }

    fn run_until(&self, until: Instant) {
        let _steps = self.fabric.run_until(until);
    }

    fn inject(&self, fault: Fault) {
        self.fabric.inject(fault);
    }

    fn hosts_share_memory() -> bool {
        !R::EXPORTER && !R::IMPORTER
    }

    fn skip_reason(test: &str) -> Option<String> {
        EXCEPT
            .iter()
            .find(|(_, tests)| tests.contains(&test))
            .filter(|(_, tests)| R::EXPORTER || *tests == OF_ONESELF)
            .map(|(reason, _)| (*reason).to_owned())
    }
}

/// No host is coherent.
mod all {
    use super::*;

    dat_tests::conformance_suite!(rsm, Bed::<NonCoherent<All>>::new());
    dat_tests::conformance_suite!(rsm_faulty, Bed::<NonCoherent<All>>::new());
}

mod exporter {
    use super::*;

    dat_tests::conformance_suite!(rsm, Bed::<NonCoherent<Exporter>>::new());
    dat_tests::conformance_suite!(rsm_faulty, Bed::<NonCoherent<Exporter>>::new());
}

mod importer {
    use super::*;

    dat_tests::conformance_suite!(rsm, Bed::<NonCoherent<Importer>>::new());
    dat_tests::conformance_suite!(rsm_faulty, Bed::<NonCoherent<Importer>>::new());
}
