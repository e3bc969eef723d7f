//! Scenarios of endpoint states, service points and connection requests.

use super::builders::*;
use super::run;
use crate::op::{ConnectionOp, EndpointOp, EventOp, FabricOp, Op, Pick, Remote};
use crate::{Input, Prologue};

pub(super) fn all() -> Vec<(&'static str, Input)> {
    vec![
        ("to-oneself", run(Prologue::Pair, to_oneself())),
        (
            "reset-among-others",
            run(Prologue::Pair, reset_among_others()),
        ),
        ("endpoints", run(Prologue::Pair, endpoints())),
        ("endpoints-modified", run(Prologue::Pair, modified())),
        ("endpoints-refused", run(Prologue::Pair, refused())),
        (
            "connections-refused",
            run(Prologue::Pair, connections_refused()),
        ),
        ("requests", run(Prologue::Pair, requests())),
        ("reserved-service-points", run(Prologue::Pair, reserved())),
        (
            "endpoints-of-the-provider",
            run(Prologue::Pair, by_provider()),
        ),
        ("time-outs", run(Prologue::Pair, time_outs())),
        ("states", run(Prologue::Pair, states())),
        ("duplicates", run(Prologue::Pair, duplicates())),
    ]
}

fn query(ep: Pick) -> Op {
    endpoint(EndpointOp::Query {
        ep,
        unknown_mask: false,
    })
}

fn modify(ep: Pick, fields: u32, shape: u8) -> Op {
    endpoint(EndpointOp::Modify { ep, fields, shape })
}

const fn disconnect(ep: Pick, graceful: bool) -> Op {
    endpoint(EndpointOp::Disconnect { ep, graceful })
}

const fn free(ep: Pick) -> Op {
    endpoint(EndpointOp::Free { ep })
}

const fn reset(ep: Pick) -> Op {
    endpoint(EndpointOp::Reset { ep })
}

/// Creates endpoints of every shape, with and without zone and dispatchers.
fn endpoints() -> Vec<Op> {
    let mut ops = Vec::new();
    for shape in (160..=255).step_by(4).chain([173, 174, 175]) {
        ops.extend([ep(shape), query(THIRD), free(THIRD)]);
    }
    for with in 0..16_u8 {
        let when = |bit: u8, pick| (with & bit != 0).then_some(pick);
        for shape in [255, 0] {
            ops.push(endpoint(EndpointOp::Create {
                pz: when(1, FIRST),
                receive: when(2, RECEIVES),
                request: when(4, REQUESTS),
                connect: when(8, CONNECTIONS),
                shape,
            }));
            ops.push(free(THIRD));
        }
    }
    ops.extend((0..5).map(|_| ep(0)));
    ops
}

/// Modifies each field and all together, in every kind of state.
fn modified() -> Vec<Op> {
    let mut ops = vec![ep(0), ep(255)];
    for bit in 0..32 {
        ops.push(modify(THIRD, 1 << bit, 244));
    }
    ops.push(query(THIRD));
    // All attributes, including illegal shapes.
    for shape in (160..=255).step_by(4) {
        ops.push(modify(THIRD, 0x7FFF_F000, shape));
    }
    for bit in [0, 18, 19, 16, 17, 31] {
        ops.push(modify(Pick::Live(3), 1 << bit, 200));
        ops.push(modify(FIRST, 1 << bit, 200));
    }
    for ep in BAD {
        ops.push(modify(ep, 0x1000, 0));
    }
    ops.extend([
        modify(SECOND, 0x7FFF_F000, 176),
        receive(SECOND, &[segment(FIRST, 0, 4)]),
        modify(SECOND, 0x1_0000, 0),
        modify(SECOND, 0x4_0000, 200),
        // Without dispatchers there are no queues.
        endpoint(EndpointOp::Create {
            pz: Some(FIRST),
            receive: None,
            request: None,
            connect: None,
            shape: 255,
        }),
        modify(Pick::Live(4), 0x4_0000, 0),
        modify(Pick::Live(4), 0x8_0000, 0),
        modify(Pick::Live(4), 0xF_0000, 0),
        endpoint(EndpointOp::ModifyEvds {
            ep: Pick::Live(4),
            receive: RECEIVES,
            request: REQUESTS,
            connect: CONNECTIONS,
        }),
        endpoint(EndpointOp::ModifyEvds {
            ep: Pick::Live(4),
            receive: REQUESTS,
            request: RECEIVES,
            connect: CONNECTIONS,
        }),
        modify(Pick::Live(4), 0xC_0000, 200),
        modify(Pick::Live(4), 0x3_0000, 176),
        query(Pick::Live(4)),
    ]);
    // An endpoint with a shared receive queue.
    ops.extend([
        shared(crate::op::SharedReceiveOp::Create {
            pz: FIRST,
            length: 3,
            segments: 1,
            low_watermark: 0,
        }),
        endpoint(EndpointOp::CreateWithSrq {
            pz: Some(FIRST),
            receive: Some(RECEIVES),
            request: Some(REQUESTS),
            connect: Some(CONNECTIONS),
            srq: FIRST,
            shape: 0,
        }),
    ]);
    for fields in [0x400_0000, 0x4_0000, 0x7FFF_F000] {
        for shape in [244, 0] {
            ops.push(modify(Pick::Live(5), fields, shape));
        }
    }
    ops
}

fn refused() -> Vec<Op> {
    let mut ops = vec![evd(3, None), evd(6, None), ep(0), free(THIRD)];
    let create = |pz, receive, request, connect| {
        endpoint(EndpointOp::Create {
            pz: Some(pz),
            receive: Some(receive),
            request: Some(request),
            connect: Some(connect),
            shape: 0,
        })
    };
    for bad in BAD {
        ops.extend([
            create(bad, RECEIVES, REQUESTS, CONNECTIONS),
            create(FIRST, bad, REQUESTS, CONNECTIONS),
            create(FIRST, RECEIVES, bad, CONNECTIONS),
            create(FIRST, RECEIVES, REQUESTS, bad),
            query(bad),
            endpoint(EndpointOp::Query {
                ep: bad,
                unknown_mask: true,
            }),
            endpoint(EndpointOp::ModifyPz { ep: bad, pz: FIRST }),
            endpoint(EndpointOp::ModifyPz {
                ep: SECOND,
                pz: bad,
            }),
            endpoint(EndpointOp::ModifyEvds {
                ep: SECOND,
                receive: bad,
                request: REQUESTS,
                connect: CONNECTIONS,
            }),
            endpoint(EndpointOp::ModifyState { ep: bad }),
            endpoint(EndpointOp::GetStatus { ep: bad }),
            endpoint(EndpointOp::RecvQuery { ep: bad }),
            endpoint(EndpointOp::SetWatermark {
                ep: bad,
                soft: 1,
                hard: 1,
            }),
            reset(bad),
            free(bad),
            disconnect(bad, true),
        ]);
    }
    ops.extend([
        create(FIRST, CONNECTIONS, REQUESTS, CONNECTIONS),
        create(FIRST, RECEIVES, SOFTWARE, CONNECTIONS),
        create(FIRST, RECEIVES, REQUESTS, RECEIVES),
        // Streams with different wake-up conditions cannot share a dispatcher.
        ep(176),
        ep(184),
        ep(192),
        endpoint(EndpointOp::Create {
            pz: Some(FIRST),
            receive: Some(REQUESTS),
            request: Some(REQUESTS),
            connect: Some(CONNECTIONS),
            shape: 176,
        }),
        endpoint(EndpointOp::ModifyState { ep: SECOND }),
    ]);
    for (soft, hard) in [(-2, 3), (3, -2), (-1, -1), (5, 2)] {
        ops.push(endpoint(EndpointOp::SetWatermark {
            ep: FIRST,
            soft,
            hard,
        }));
    }
    ops
}

fn connect_with(ep: Pick, timeout: u8, private_data: u8, address: u8) -> Op {
    connection(ConnectionOp::Connect {
        ep,
        qualifier: 0,
        timeout,
        private_data,
        address,
    })
}

fn connections_refused() -> Vec<Op> {
    let mut ops = vec![connection(ConnectionOp::PspFree { psp: Pick::Live(9) })];
    for bad in BAD {
        ops.extend([
            connect_with(bad, 0, 0, 0),
            connection(ConnectionOp::DupConnect {
                ep: bad,
                model: FIRST,
                timeout: 0,
                private_data: 0,
            }),
            connection(ConnectionOp::DupConnect {
                ep: SECOND,
                model: bad,
                timeout: 0,
                private_data: 0,
            }),
            connection(ConnectionOp::PspCreate {
                qualifier: 1,
                evd: bad,
                by_provider: false,
            }),
            connection(ConnectionOp::PspCreateAny {
                evd: bad,
                by_provider: false,
            }),
            connection(ConnectionOp::PspQuery {
                psp: bad,
                unknown_mask: false,
            }),
            connection(ConnectionOp::PspFree { psp: bad }),
            connection(ConnectionOp::RspCreate {
                qualifier: 1,
                ep: Some(bad),
                evd: CONNECTIONS,
            }),
            connection(ConnectionOp::RspCreate {
                qualifier: 1,
                ep: None,
                evd: bad,
            }),
            connection(ConnectionOp::RspQuery {
                rsp: bad,
                unknown_mask: false,
            }),
            connection(ConnectionOp::RspFree { rsp: bad }),
            connection(ConnectionOp::CrQuery {
                cr: bad,
                unknown_mask: false,
            }),
            connection(ConnectionOp::CrReject { cr: bad }),
            connection(ConnectionOp::CrHandoff {
                cr: bad,
                qualifier: 0,
            }),
            accept(bad, Some(FIRST)),
        ]);
    }
    // Timeouts, private data, an unknown address, a connected endpoint.
    for (timeout, private_data, address) in [
        (248, 0, 0),
        (252, 0, 0),
        (253, 0, 0),
        (254, 0, 0),
        (0, 0, 248),
        (255, 0, 0),
        (0, 255, 0),
        (0, 230, 255),
        (0, 0, 255),
        (0, 0, 230),
    ] {
        ops.push(connect_with(SECOND, timeout, private_data, address));
        ops.extend(idle_and_drain());
        ops.push(reset(SECOND));
    }
    ops.extend([
        connect_with(FIRST, 0, 0, 0),
        connection(ConnectionOp::PspCreate {
            qualifier: 0,
            evd: CONNECTIONS,
            by_provider: false,
        }),
        connection(ConnectionOp::RspCreate {
            qualifier: 0,
            ep: None,
            evd: CONNECTIONS,
        }),
        connection(ConnectionOp::PspQuery {
            psp: FIRST,
            unknown_mask: true,
        }),
        connection(ConnectionOp::PspCreate {
            qualifier: 1,
            evd: RECEIVES,
            by_provider: false,
        }),
    ]);
    ops
}

/// Accepts requests with various endpoints, rejects them, hands them off, and leaves some open.
fn requests() -> Vec<Op> {
    let cr = |op| there(connection(op));
    let ask = |unknown_mask| {
        cr(ConnectionOp::CrQuery {
            cr: FIRST,
            unknown_mask,
        })
    };
    let again = [
        connect(SECOND, 0),
        RUN_TO_IDLE,
        there(event(EventOp::Drain)),
    ];
    let mut ops = vec![cr(ConnectionOp::PspCreate {
        qualifier: 1,
        evd: CONNECTIONS,
        by_provider: false,
    })];
    ops.extend(again.clone());
    ops.extend([
        ask(false),
        ask(true),
        accept(FIRST, None),
        accept(FIRST, Some(FIRST)),
    ]);
    ops.extend(BAD.map(|ep| accept(FIRST, Some(ep))));
    ops.extend([
        there(connection(ConnectionOp::CrAccept {
            cr: FIRST,
            ep: Some(SECOND),
            private_data: 255,
        })),
        cr(ConnectionOp::CrHandoff {
            cr: FIRST,
            qualifier: 2,
        }),
        cr(ConnectionOp::CrHandoff {
            cr: FIRST,
            qualifier: 1,
        }),
        there(event(EventOp::Drain)),
        ask(false),
        cr(ConnectionOp::CrReject { cr: FIRST }),
        cr(ConnectionOp::CrReject { cr: Pick::Dead(0) }),
    ]);
    ops.extend(idle_and_drain());
    ops.push(reset(SECOND));
    ops.extend(again.clone());
    ops.push(accept(FIRST, Some(SECOND)));
    ops.push(there(query(SECOND)));
    ops.extend(idle_and_drain());
    ops.extend([query(SECOND), send(SECOND, &[]), disconnect(SECOND, true)]);
    ops.extend(idle_and_drain());
    ops.extend([reset(SECOND), there(reset(SECOND))]);
    // A request left open when its service point's dispatcher, and the adapter, go.
    ops.extend([
        there(evd(3, None)),
        cr(ConnectionOp::PspCreate {
            qualifier: 2,
            evd: Pick::Live(5),
            by_provider: false,
        }),
        connect(SECOND, 2),
        RUN_TO_IDLE,
        cr(ConnectionOp::PspFree { psp: THIRD }),
        there(event(EventOp::EvdFree { evd: Pick::Live(5) })),
        RUN_TO_IDLE,
    ]);
    ops.extend(idle_and_drain());
    ops.push(reset(SECOND));
    ops.extend(again);
    ops
}

/// Creates reserved service points, with an endpoint of the consumer and without.
fn reserved() -> Vec<Op> {
    let rsp = |op| there(connection(op));
    let create = |qualifier, ep| {
        rsp(ConnectionOp::RspCreate {
            qualifier,
            ep,
            evd: CONNECTIONS,
        })
    };
    let ask = rsp(ConnectionOp::RspQuery {
        rsp: FIRST,
        unknown_mask: false,
    });
    let mut ops = vec![
        create(1, Some(SECOND)),
        ask.clone(),
        rsp(ConnectionOp::RspQuery {
            rsp: FIRST,
            unknown_mask: true,
        }),
        there(query(SECOND)),
        there(free(SECOND)),
        there(reset(SECOND)),
        there(disconnect(SECOND, true)),
        there(modify(SECOND, 0x2000, 244)),
        there(modify(SECOND, 0x8000_0000, 244)),
        there(send(SECOND, &[])),
        create(1, None),
        create(2, Some(SECOND)),
        create(2, Some(FIRST)),
        rsp(ConnectionOp::RspFree { rsp: FIRST }),
        there(query(SECOND)),
        create(1, Some(SECOND)),
        connect(SECOND, 1),
        RUN_TO_IDLE,
        there(event(EventOp::Drain)),
        ask.clone(),
        there(query(SECOND)),
        there(free(SECOND)),
        there(send(SECOND, &[])),
        rsp(ConnectionOp::CrQuery {
            cr: FIRST,
            unknown_mask: false,
        }),
        accept(FIRST, Some(FIRST)),
        accept(FIRST, None),
        there(query(SECOND)),
    ];
    ops.extend(idle_and_drain());
    ops.extend([disconnect(SECOND, false), RUN_TO_IDLE]);
    ops.extend(idle_and_drain());
    ops.extend([reset(SECOND), there(reset(SECOND))]);
    // With an endpoint of the provider: accepted, rejected, handed off, freed.
    for round in 0..3 {
        ops.extend([
            create(1, None),
            ask.clone(),
            connect(SECOND, 1),
            RUN_TO_IDLE,
            there(event(EventOp::Drain)),
        ]);
        ops.push(there(query(THIRD)));
        ops.push(there(modify(THIRD, 0x2000, 0)));
        ops.push(there(endpoint(EndpointOp::ModifyEvds {
            ep: THIRD,
            receive: RECEIVES,
            request: REQUESTS,
            connect: CONNECTIONS,
        })));
        ops.push(there(endpoint(EndpointOp::ModifyPz {
            ep: THIRD,
            pz: FIRST,
        })));
        ops.push(match round {
            0 => rsp(ConnectionOp::CrReject { cr: FIRST }),
            1 => rsp(ConnectionOp::CrHandoff {
                cr: FIRST,
                qualifier: 0,
            }),
            _ => accept(FIRST, None),
        });
        ops.extend(idle_and_drain());
        ops.extend([disconnect(SECOND, false), RUN_TO_IDLE, reset(SECOND)]);
        ops.extend(idle_and_drain());
    }
    ops.extend([
        create(1, None),
        create(2, None),
        rsp(ConnectionOp::RspFree { rsp: SECOND }),
    ]);
    ops
}

/// Creates service points whose requests bring a provider-made endpoint.
fn by_provider() -> Vec<Op> {
    let psp = |op| there(connection(op));
    let mut ops = vec![
        psp(ConnectionOp::PspCreate {
            qualifier: 1,
            evd: CONNECTIONS,
            by_provider: true,
        }),
        psp(ConnectionOp::PspCreateAny {
            evd: CONNECTIONS,
            by_provider: true,
        }),
        psp(ConnectionOp::PspCreateAny {
            evd: CONNECTIONS,
            by_provider: false,
        }),
        psp(ConnectionOp::PspQuery {
            psp: SECOND,
            unknown_mask: false,
        }),
    ];
    for round in 0..3 {
        ops.extend([
            connect(SECOND, 1),
            RUN_TO_IDLE,
            there(event(EventOp::Drain)),
        ]);
        ops.extend([
            there(query(THIRD)),
            there(free(THIRD)),
            there(send(THIRD, &[])),
            there(endpoint(EndpointOp::ModifyPz {
                ep: THIRD,
                pz: FIRST,
            })),
            there(endpoint(EndpointOp::ModifyEvds {
                ep: THIRD,
                receive: RECEIVES,
                request: REQUESTS,
                connect: CONNECTIONS,
            })),
            accept(FIRST, Some(THIRD)),
        ]);
        ops.push(match round {
            0 => psp(ConnectionOp::CrReject { cr: FIRST }),
            _ => accept(FIRST, None),
        });
        ops.extend(idle_and_drain());
        ops.extend([disconnect(SECOND, round == 1), RUN_TO_IDLE, reset(SECOND)]);
        ops.extend(idle_and_drain());
        ops.push(there(free(THIRD)));
    }
    ops.extend([
        psp(ConnectionOp::PspFree { psp: SECOND }),
        psp(ConnectionOp::PspFree { psp: SECOND }),
    ]);
    ops
}

/// Lets attempts time out, before and after an answer.
fn time_outs() -> Vec<Op> {
    let mut ops = vec![ep(0), ep(0)];
    ops.extend([
        connect_with(SECOND, 200, 4, 0),
        RUN_TO_IDLE,
        query(SECOND),
        Op::Fabric(FabricOp::Expire),
        event(EventOp::Drain),
        query(SECOND),
        there(event(EventOp::Drain)),
        accept(FIRST, Some(SECOND)),
    ]);
    ops.extend(idle_and_drain());
    ops.extend([reset(SECOND), there(reset(SECOND))]);
    ops.extend([
        connect_with(SECOND, 200, 4, 0),
        connect_with(THIRD, 200, 4, 0),
        connect_with(Pick::Live(3), 200, 4, 255),
        disconnect(THIRD, false),
        Op::Fabric(FabricOp::Step(2)),
        there(event(EventOp::Drain)),
        accept(FIRST, Some(SECOND)),
        Op::Fabric(FabricOp::Step(3)),
        Op::Fabric(FabricOp::Expire),
    ]);
    ops.extend(idle_and_drain());
    ops
}

/// Makes calls that endpoints refuse in each state.
fn states() -> Vec<Op> {
    let everything = |ep| {
        [
            query(ep),
            modify(ep, 0x2000, 0),
            endpoint(EndpointOp::ModifyPz { ep, pz: FIRST }),
            send(ep, &[]),
            reset(ep),
            connect(ep, 0),
            endpoint(EndpointOp::GetStatus { ep }),
        ]
    };
    let mut ops = Vec::new();
    ops.extend([disconnect(SECOND, true), connect(SECOND, 0)]);
    ops.extend(everything(SECOND));
    ops.extend([
        RUN_TO_IDLE,
        there(event(EventOp::Drain)),
        accept(FIRST, Some(SECOND)),
    ]);
    ops.extend(everything(SECOND).map(there));
    ops.extend(idle_and_drain());
    ops.extend(everything(SECOND));
    for _ in 0..3 {
        ops.push(write(SECOND, &[segment(FIRST, 0, 8)], remote(0)));
    }
    ops.push(disconnect(SECOND, true));
    ops.extend(everything(SECOND));
    ops.extend([disconnect(SECOND, true), disconnect(SECOND, false)]);
    ops.extend(idle_and_drain());
    ops.extend(everything(SECOND));
    ops.extend(idle_and_drain());
    // Freed while connected, with all kinds of work in progress.
    ops.extend([
        receive(FIRST, &[segment(FIRST, 0, 8)]),
        write(FIRST, &[segment(FIRST, 0, 8)], remote(0)),
        bind(FIRST, segment(FIRST, 0, 8), FIRST),
        free(FIRST),
        free(FIRST),
    ]);
    ops.extend(idle_and_drain());
    ops
}

/// Duplicates connections with `ep_dup_connect`.
fn duplicates() -> Vec<Op> {
    let duplicate = |ep, model, timeout| {
        connection(ConnectionOp::DupConnect {
            ep,
            model,
            timeout,
            private_data: 0,
        })
    };
    let mut ops = vec![
        ep(0),
        duplicate(SECOND, FIRST, 0),
        RUN_TO_IDLE,
        there(event(EventOp::Drain)),
        accept(FIRST, Some(SECOND)),
    ];
    ops.extend(idle_and_drain());
    ops.extend([
        duplicate(SECOND, FIRST, 0),
        duplicate(THIRD, THIRD, 0),
        duplicate(THIRD, FIRST, 255),
        duplicate(THIRD, SECOND, 200),
        send(SECOND, &[]),
    ]);
    ops.extend(idle_and_drain());
    ops
}

/// Connects an endpoint to another one of its adapter, and transfers within the same memory.
///
/// The ranges are the same, or the target lies ahead of the source.
fn to_oneself() -> Vec<Op> {
    let mut ops = vec![
        ep(0),
        connection(ConnectionOp::Connect {
            ep: SECOND,
            qualifier: 0,
            timeout: 0,
            private_data: 4,
            address: 224,
        }),
    ];
    ops.extend(idle_and_drain());
    ops.push(connection(ConnectionOp::CrAccept {
        cr: FIRST,
        ep: Some(THIRD),
        private_data: 8,
    }));
    ops.extend(idle_and_drain());
    for offset in [0, 1, 3, 8, 20] {
        for length in [7, 20, 23] {
            let there = Remote {
                context: 1,
                offset,
                slack: 0,
            };
            let segments = [segment(FIRST, 0, length)];
            ops.push(write(SECOND, &segments, there));
            ops.extend(idle_and_drain());
            ops.push(read(SECOND, &segments, there));
            ops.extend(idle_and_drain());
        }
    }
    ops
}

/// Resets or frees one of two endpoints whose completions share a dispatcher with other events.
fn reset_among_others() -> Vec<Op> {
    let all = Pick::Live(5);
    let software = |pointer| event(EventOp::EvdPostSe { evd: all, pointer });
    let look = event(EventOp::EvdWait {
        evd: all,
        threshold: 9,
    });
    let mut ops = vec![evd(9, None)];
    for _ in 0..2 {
        ops.push(endpoint(EndpointOp::Create {
            pz: Some(FIRST),
            receive: Some(all),
            request: Some(all),
            connect: Some(all),
            shape: 0,
        }));
    }
    ops.push(there(ep(0)));
    for (here, far) in [(THIRD, SECOND), (Pick::Live(3), THIRD)] {
        ops.push(connect(here, 0));
        ops.extend(idle_and_drain());
        ops.push(accept(FIRST, Some(far)));
        ops.extend(idle_and_drain());
    }
    for end in [
        EndpointOp::Reset { ep: THIRD },
        EndpointOp::Free { ep: THIRD },
    ] {
        for ep in [THIRD, Pick::Live(3), THIRD] {
            ops.push(write(ep, &[segment(FIRST, 0, 8)], remote(0)));
            ops.push(RUN_TO_IDLE);
            ops.push(look.clone());
            ops.push(software(7));
        }
        if let EndpointOp::Reset { .. } = end {
            ops.push(endpoint(EndpointOp::Disconnect {
                ep: THIRD,
                graceful: false,
            }));
            ops.push(RUN_TO_IDLE);
        }
        ops.push(look.clone());
        ops.push(endpoint(end));
        ops.push(software(8));
        ops.extend(idle_and_drain());
    }
    ops
}
