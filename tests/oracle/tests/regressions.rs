//! Operations that once revealed defects of the core, found by random runs.

use backend_mock::{Fault, FaultPlan};
use dat_oracle::{
    ConnectionOp, EndpointOp, EventOp, FabricOp, MemoryOp, Op, Pick, PostOp, Prologue, Remote,
    SegmentChoice, Setup, SharedReceiveOp, Side, run,
};

fn check(prologue: Prologue, ops: &[Op]) {
    for seed in 0..8 {
        check_seed(seed, prologue, ops);
    }
}

fn check_seed(seed: u64, prologue: Prologue, ops: &[Op]) {
    let setup = Setup {
        seed,
        prologue,
        ..Setup::default()
    };
    if let Err(mismatch) = run(&setup, ops) {
        panic!("seed {seed}: {mismatch}");
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
    let segment = SegmentChoice {
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

/// The device's event of one setting counted for the next setting.
///
/// The call had reported it already.
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

/// A bind counted as lost although the device had carried it out.
///
/// Its endpoint was freed before a poll.
///
/// The region could then be freed although the window was bound to it.
///
/// Spec: RMB-42, LMF-01, EPF-02
#[test]
fn a_completed_bind_outlives_its_endpoint() {
    check(
        Prologue::Shared,
        &[
            bind(Side::A),
            Op::Fabric(FabricOp::RunToIdle),
            Op::Endpoint(Side::A, EndpointOp::Free { ep: FIRST }),
            Op::Memory(Side::A, MemoryOp::LmrFree { lmr: FIRST }),
            Op::Memory(Side::A, MemoryOp::RmrFree { rmr: FIRST }),
            Op::Memory(Side::A, MemoryOp::LmrFree { lmr: FIRST }),
        ],
    );
}

/// Freeing a dispatcher dropped the notification of another one that had fired earlier.
///
/// After the last dispatcher is freed, that is allowed.
///
/// Spec: CNW-01, CNW-05, EVF-04
#[test]
fn a_notification_survives_the_free_of_other_dispatchers() {
    // Indices after the prologue's objects.
    let (cno, one, two) = (Pick::Live(0), Pick::Live(5), Pick::Live(6));
    let event = |op| Op::Event(Side::A, op);
    let wait = || event(EventOp::CnoWaits { cno, waits: 0 });
    let mut ops = vec![event(EventOp::CnoCreate)];
    for _ in [one, two] {
        ops.push(event(EventOp::EvdCreate {
            length: 9,
            cno: Some(cno),
            flags: 6,
        }));
    }
    for evd in [one, two] {
        ops.push(event(EventOp::EvdPostSe { evd, pointer: 3 }));
    }
    ops.extend([event(EventOp::EvdFree { evd: two }), wait()]);
    ops.extend([
        event(EventOp::EvdPostSe {
            evd: one,
            pointer: 4,
        }),
        event(EventOp::EvdFree { evd: one }),
        wait(),
    ]);
    check(Prologue::Pair, &ops);
}

/// The null handle equalled the mark of an endpoint that takes no posts.
///
/// It therefore posted on the endpoint in slot 0.
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

/// Dequeues the events of a reset endpoint, in both orders.
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

fn segment(region: u8, offset: u8, length: u8) -> SegmentChoice {
    SegmentChoice {
        region: Pick::Live(region),
        offset,
        length,
    }
}

/// A message's data may be placed after a later RDMA Write acts.
///
/// If both write a byte, either may be last.
///
/// Spec: EPW-43, DTO-11
#[test]
fn a_write_may_overtake_the_data_of_a_send_before_it() {
    let ep = Pick::Live(2);
    let write = PostOp::RdmaWrite {
        ep,
        segments: vec![segment(4, 0, 0), segment(4, 0, 1)],
        remote: Remote {
            context: 104,
            offset: 0,
            slack: 0,
        },
        flags: 0,
    };
    let message = PostOp::Send {
        ep,
        segments: vec![segment(3, 0, 7)],
        flags: 0,
    };
    check_seed(
        12_966_848_072_954_641_349,
        Prologue::Pair,
        &[
            Op::Post(Side::B, message),
            Op::Post(Side::B, write),
            send(Side::A, SECOND),
        ],
    );
}

/// Answers to RDMA Reads of one endpoint arrive in any order.
///
/// Where their buffers overlap, either may be last.
///
/// Spec: EPB-01, DTO-11
#[test]
fn reads_into_one_buffer_are_answered_in_any_order() {
    let read = |segment, context, slack| {
        let read = PostOp::RdmaRead {
            ep: FIRST,
            segments: vec![segment],
            remote: Remote {
                context,
                offset: 0,
                slack,
            },
            flags: 0,
        };
        Op::Post(Side::B, read)
    };
    check_seed(
        3_264_206_402_638_389_018,
        Prologue::Pair,
        &[
            Op::Post(
                Side::A,
                PostOp::RdmaWrite {
                    ep: Pick::Live(6),
                    segments: Vec::new(),
                    remote: Remote {
                        context: 0,
                        offset: 0,
                        slack: 0,
                    },
                    flags: 0,
                },
            ),
            Op::Connection(
                Side::A,
                ConnectionOp::Connect {
                    ep: Pick::Live(3),
                    qualifier: 0,
                    timeout: 0,
                    private_data: 0,
                    address: 0,
                },
            ),
            read(segment(0, 90, 20), 215, 168),
            read(segment(6, 74, 23), 8, 128),
        ],
    );
}

/// A bind flushed at once leaves an earlier one that is pending on another endpoint.
///
/// Spec: RMB-42, LMF-01
#[test]
fn a_flushed_unbind_leaves_the_bind_before_it() {
    let bind = |segment, ep| {
        let bind = PostOp::Bind {
            rmr: FIRST,
            segment,
            privileges: 0,
            ep,
            flags: 0,
        };
        Op::Post(Side::A, bind)
    };
    let disconnect = EndpointOp::Disconnect {
        ep: Pick::Live(7),
        graceful: false,
    };
    check(
        Prologue::Shared,
        &[
            Op::Endpoint(Side::A, disconnect),
            bind(segment(1, 0, 1), FIRST),
            bind(segment(0, 0, 0), Pick::Live(3)),
            Op::Event(Side::A, EventOp::Drain),
            Op::Memory(Side::A, MemoryOp::LmrFree { lmr: SECOND }),
        ],
    );
}

/// Rejecting a request also removes its endpoint, after faults as well.
///
/// Spec: CRR-01, EPG-01
#[test]
fn a_rejected_request_frees_its_endpoint() {
    // After the prologue's receives.
    let fault = Fault::RefusePost { adapter: 0, nth: 2 };
    let setup = Setup {
        faults: FaultPlan {
            faults: vec![fault],
        },
        prologue: Prologue::Pair,
        ..Setup::default()
    };
    let ops = [
        send(Side::A, FIRST),
        Op::Connection(
            Side::B,
            ConnectionOp::RspCreate {
                qualifier: 142,
                ep: None,
                evd: Pick::Live(3),
            },
        ),
        Op::Connection(
            Side::A,
            ConnectionOp::Connect {
                ep: Pick::Live(7),
                qualifier: 112,
                timeout: 0,
                private_data: 0,
                address: 0,
            },
        ),
        Op::Fabric(FabricOp::RunToIdle),
        Op::Event(Side::B, EventOp::Drain),
        Op::Connection(Side::B, ConnectionOp::CrReject { cr: FIRST }),
    ];
    if let Err(mismatch) = run(&setup, &ops) {
        panic!("{mismatch}");
    }
}
