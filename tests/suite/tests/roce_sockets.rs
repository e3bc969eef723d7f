//! The conformance suite on RoCEv2 in software with threads, over sockets of the loop-back
//! interface and over queues in shared memory.
//!
//! In real time: a thread of each adapter moves its packets. A busy machine can make tests fail
//! that expect nothing to happen, so the target needs a feature: `cargo test -p dat-tests
//! --features sockets --test roce_sockets`.

#[path = "roce_bed/crowd.rs"]
mod crowd;
mod exceptions;
#[path = "roce_bed/sockets.rs"]
mod sockets;

mod packets {
    use crate::sockets::SocketBed;
    use backend_roce::PathChoice::Packets;

    dat_tests::conformance_suite!(base, SocketBed::over(Packets));
    dat_tests::conformance_suite!(rsm, SocketBed::over(Packets));
}

mod local {
    use crate::sockets::SocketBed;
    use backend_roce::PathChoice::Local;

    dat_tests::conformance_suite!(base, SocketBed::over(Local));
    dat_tests::conformance_suite!(rsm, SocketBed::over(Local));
}
