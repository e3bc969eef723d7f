//! The targets by name, for programs that run inputs without the fuzzer.

use arbitrary::{Arbitrary, Unstructured};

use crate::{
    cabi, cm_wire, config, device, roce_packet, roce_queue, roce_session, roce_wire, rsm_wire,
    sched, serve_wire, verbs,
};

/// Returns the function that runs an input of a target; it panics if a promise is broken.
#[must_use]
pub fn find(target: &str) -> Option<fn(&[u8])> {
    Some(match target {
        "ops" => ops,
        "rsm_ops" => rsm_ops,
        "rsm_wire" => rsm_wire::run,
        "cm_wire" => cm_wire::run,
        "config" => config::run,
        "cabi" => cabi::v1::run,
        "cabi2" => cabi::v2::run,
        "cabi_rsm" => cabi::rsm::run,
        "device" => device::run,
        "sched" => sched::run,
        "roce_packet" => roce_packet::run,
        "roce_queue" => roce_queue::run,
        "roce_session" => roce_session::run,
        "roce_wire" => roce_wire::run,
        "serve_wire" => serve_wire::run,
        "verbs" => verbs::run,
        _ => return None,
    })
}

fn ops(input: &[u8]) {
    let input = dat_oracle::Input::arbitrary_take_rest(Unstructured::new(input));
    if let Err(mismatch) = input.expect("an input").run() {
        panic!("{mismatch}");
    }
}

fn rsm_ops(input: &[u8]) {
    let input = dat_oracle::rsm::Input::arbitrary_take_rest(Unstructured::new(input));
    if let Err(mismatch) = input.expect("an input").run() {
        panic!("{mismatch}");
    }
}
