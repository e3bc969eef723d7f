//! The conformance suite on RoCEv2 in software, over a network in memory.

use roce_bed::RoceBed;

mod roce_bed;

dat_tests::conformance_suite!(base, RoceBed::new());
dat_tests::conformance_suite!(extended, RoceBed::new());
dat_tests::conformance_suite!(rsm, RoceBed::new());
