//! The conformance suite on RoCEv2 in software, over sockets of the loop-back interface.
//!
//! In real time: a thread of each adapter moves its packets.

use sockets::SocketBed;

mod exceptions;
#[path = "roce_bed/sockets.rs"]
mod sockets;

dat_tests::conformance_suite!(base, SocketBed::new());
dat_tests::conformance_suite!(rsm, SocketBed::new());
