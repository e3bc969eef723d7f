//! Operations that once led the core astray, found by random runs.

use dat_model::{
    EndpointOp, EventOp, FabricOp, MemoryOp, Op, Pick, PostOp, Prologue, Remote, Segment, Setup,
    SharedReceiveOp, Side, run,
};

fn check(prologue: Prologue, ops: &[Op]) {
    for seed in 0..8 {
        let setup = Setup {
            seed,
            prologue,
            ..Setup::default()
        };
        if let Err(mismatch) = run(&setup, ops) {
            panic!("seed {seed}: {mismatch}");
        }
    }
}

const FIRST: Pick = Pick::Live(0);
const SECOND: Pick = Pick::Live(1);

fn send(side: Side, ep: Pick) -> Op {
    let segments = Vec::new();
    Op::Post(
        side,
        PostOp::Send {
            ep,
            segments,
            flags: 0,
        },
    )
}

fn bind(side: Side) -> Op {
    let segment = Segment {
        region: FIRST,
        offset: 0,
        length: 1,
    };
    Op::Post(
        side,
        PostOp::Bind {
            rmr: FIRST,
            segment,
            privileges: 0,
            ep: FIRST,
            flags: 0,
        },
    )
}

/// The device's event of a setting that the call itself had reported was taken for one of the next setting.
///
/// Spec: SRL-02
#[test]
fn a_low_watermark_set_twice_is_reported_once() {
    let set = |mark| {
        Op::SharedReceive(
            Side::B,
            SharedReceiveOp::SetLowWatermark { srq: FIRST, mark },
        )
    };
    check(Prologue::Shared, &[set(4), set(1)]);
}

/// A bind that the device had carried out counted as lost when its endpoint was freed before anybody polled: the region could then be
/// freed under the window.
///
/// Spec: RMB-42, LMF-01, EPF-02
#[test]
fn a_bind_that_was_carried_out_outlives_its_endpoint() {
    check(
        Prologue::Shared,
        &[
            bind(Side::A),
            Op::Fabric(FabricOp::Settle),
            Op::Endpoint(Side::A, EndpointOp::Free { ep: FIRST }),
            Op::Memory(Side::A, MemoryOp::LmrFree { lmr: FIRST }),
            Op::Memory(Side::A, MemoryOp::RmrFree { rmr: FIRST }),
            Op::Memory(Side::A, MemoryOp::LmrFree { lmr: FIRST }),
        ],
    );
}

/// The null handle equalled the mark of an endpoint that takes no posts, so that it posted on the endpoint in slot 0.
///
/// Spec: GEN-03, EPS-02, EPD-02
#[test]
fn the_null_handle_never_posts() {
    let remote = Remote {
        context: 0,
        offset: 0,
        slack: 0,
    };
    let segments = Vec::new;
    let mut ops = vec![
        send(Side::A, FIRST),
        Op::Endpoint(
            Side::A,
            EndpointOp::Disconnect {
                ep: FIRST,
                graceful: true,
            },
        ),
        send(Side::A, Pick::Null),
        Op::Post(
            Side::A,
            PostOp::RdmaWrite {
                ep: Pick::Null,
                segments: segments(),
                remote,
                flags: 0,
            },
        ),
        Op::Post(
            Side::A,
            PostOp::RdmaRead {
                ep: Pick::Null,
                segments: segments(),
                remote,
                flags: 0,
            },
        ),
        Op::Post(
            Side::A,
            PostOp::Receive {
                ep: Pick::Null,
                segments: segments(),
                flags: 0,
            },
        ),
    ];
    check(Prologue::Pair, &ops);
    ops.rotate_left(2);
    check(Prologue::Pair, &ops);
}

/// Dequeuing what a reset endpoint left, in both orders.
///
/// Spec: EPR-01, EPD-05
#[test]
fn a_reset_endpoint_is_as_new() {
    check(
        Prologue::Pair,
        &[
            Op::Endpoint(
                Side::A,
                EndpointOp::Disconnect {
                    ep: FIRST,
                    graceful: false,
                },
            ),
            send(Side::A, FIRST),
            Op::Endpoint(Side::A, EndpointOp::Reset { ep: FIRST }),
            Op::Event(Side::A, EventOp::EvdDequeue { evd: SECOND }),
            Op::Post(
                Side::A,
                PostOp::Receive {
                    ep: FIRST,
                    segments: Vec::new(),
                    flags: 0,
                },
            ),
            send(Side::A, FIRST),
        ],
    );
}
