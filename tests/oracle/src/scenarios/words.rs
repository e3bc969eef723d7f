//! Scenarios of the adapter itself and of error texts.

use super::builders::*;
use super::run;
use crate::op::{AdapterOp, Op};
use crate::{Input, Prologue};

pub(super) fn all() -> Vec<(&'static str, Input)> {
    vec![
        ("words", run(Prologue::Empty, words(false))),
        ("words-of-2.0", run(Prologue::Empty, words(true))),
        ("codes", run(Prologue::Empty, codes())),
        ("adapter", run(Prologue::Empty, calls())),
    ]
}

/// Uses every kind, subtype and cause; the lists wrap around.
fn words(other_abi: bool) -> impl Iterator<Item = Op> {
    (0..190).map(move |number| {
        adapter(AdapterOp::Strerror {
            kind: number,
            subtype: number,
            cause: number,
            other_abi,
        })
    })
}

/// Uses success, kinds without the error class, other classes, and codes beyond the last.
fn codes() -> impl Iterator<Item = Op> {
    let codes = [
        0,
        1,
        0x0005_0000,
        0x8005_0001,
        0x8000_0000,
        0x4005_0000,
        0xC005_0000,
        0x8FFF_0000,
        0x8028_0000,
        0xBFFF_0000,
        0x8006_FFFF,
        0x8005_0026,
    ];
    codes.into_iter().flat_map(|code| {
        [false, true].map(|other_abi| adapter(AdapterOp::StrerrorOf { code, other_abi }))
    })
}

fn calls() -> Vec<Op> {
    let mut ops = Vec::new();
    for unknown_mask in [false, true] {
        for unknown_provider_mask in [false, true] {
            ops.push(adapter(AdapterOp::Query {
                unknown_mask,
                unknown_provider_mask,
            }));
        }
    }
    ops.extend([
        adapter(AdapterOp::Cramped),
        adapter(AdapterOp::Extensions),
        there(adapter(AdapterOp::Extensions)),
        adapter(AdapterOp::DirectAccess),
    ]);
    for value in [7, 9] {
        ops.push(adapter(AdapterOp::Context { value }));
        ops.push(there(adapter(AdapterOp::Context { value })));
    }
    for octets in [0, 0x7F00_0001, u64::MAX, 0xFE80_0000_0000_0001] {
        ops.push(adapter(AdapterOp::Address {
            octets,
            port: 4711,
            scope: 3,
        }));
    }
    for (times, waker) in [(0, true), (1, true), (3, false), (2, true)] {
        ops.push(adapter(AdapterOp::Interrupt { times, waker }));
    }
    ops
}
