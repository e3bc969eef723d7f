//! The conformance suite, written once and run on every backend.
//!
//! A backend implements [`Testbed`](fixture::Testbed) and the sub-traits that it supports. Each
//! test target passes the bed to `conformance_suite!` once for each group of tests. A test that
//! needs a trait which its backend lacks cannot be instantiated, and the conformance matrix shows
//! the gap.

pub mod differential;
pub mod fixture;
pub mod slow_exporters;
pub mod suite;
