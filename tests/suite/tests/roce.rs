//! The conformance suite on RoCEv2 in software, over a network in memory.
//!
//! `tests/suite/backends.toml` lists the tests that it cannot pass, with reasons.

use network::RoceBed;

#[path = "roce_bed/adapters.rs"]
mod adapters;
#[path = "roce_bed/asking.rs"]
mod asking;
mod bed;
#[path = "roce_bed/connections.rs"]
mod connections;
#[path = "roce_bed/crowd.rs"]
mod crowd;
#[path = "roce_bed/differential.rs"]
mod differential;
mod exceptions;
#[path = "roce_bed/following.rs"]
mod following;
#[path = "roce_bed/half_open.rs"]
mod half_open;
#[path = "lists/in_order.rs"]
mod in_order;
#[path = "roce_bed/late_replies.rs"]
mod late_replies;
mod lists;
#[path = "roce_bed/lossy.rs"]
mod lossy;
#[expect(unreachable_pub, reason = "a file of the tests of backend-roce")]
#[path = "../../../backend-roce/tests/common/million.rs"]
mod million;
#[path = "roce_bed/network.rs"]
mod network;
#[path = "roce_bed/node.rs"]
mod node;
#[path = "roce_bed/shared_buffers.rs"]
mod shared_buffers;
#[path = "roce_bed/slow_peers.rs"]
mod slow_peers;
#[path = "roce_bed/stranger.rs"]
mod stranger;
#[path = "roce_bed/windows.rs"]
mod windows;

dat_tests::conformance_suite!(base, RoceBed::new());
dat_tests::conformance_suite!(extended, RoceBed::new());
dat_tests::conformance_suite!(rsm, RoceBed::new());
