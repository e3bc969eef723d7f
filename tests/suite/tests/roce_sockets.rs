//! The conformance suite on RoCEv2 in software, over sockets of the loop-back interface.
//!
//! In real time: a thread of each adapter moves its packets. A busy machine can make tests fail
//! that expect nothing to happen, so the target needs a feature: `cargo test -p dat-tests
//! --features sockets --test roce_sockets`.

use sockets::SocketBed;

#[path = "roce_bed/crowd.rs"]
mod crowd;
mod exceptions;
#[path = "roce_bed/sockets.rs"]
mod sockets;

dat_tests::conformance_suite!(base, SocketBed::new());
dat_tests::conformance_suite!(rsm, SocketBed::new());
