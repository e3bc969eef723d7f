//! The conformance suite: written once, run on every backend.
//!
//! A backend offers a [`Testbed`](fixture::Testbed), and the sub-traits of it that it can carry; each test target names the
//! bed and the groups of tests with `conformance_suite!`. A test that needs a trait its backend does not implement cannot be
//! instantiated there, and the conformance matrix shows the gap.

pub mod differential;
pub mod fixture;
pub mod suite;
