//! Scenarios of endpoint states, service points and connection requests.

use super::builders::*;
use super::run;
use crate::op::{EndpointOp, FabricOp, Op, Pick, Remote};
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
    ep_query(ep, false)
}

/// Creates endpoints of every shape, with and without zone and dispatchers.
fn endpoints() -> Vec<Op> {
    let mut ops = Vec::new();
    for shape in (160..=255).step_by(4).chain([173, 174, 175]) {
        ops.extend([ep(shape), query(THIRD), ep_free(THIRD)]);
    }
    for with in 0..16_u8 {
        let when = |bit: u8, pick| (with & bit != 0).then_some(pick);
        for shape in [255, 0] {
            ops.push(ep_create(
                when(1, FIRST),
                when(2, RECEIVES),
                when(4, REQUESTS),
                when(8, CONNECTIONS),
                shape,
            ));
            ops.push(ep_free(THIRD));
        }
    }
    ops.extend((0..5).map(|_| ep(0)));
    ops
}

/// Modifies each field and all together, in every kind of state.
fn modified() -> Vec<Op> {
    let mut ops = vec![ep(0), ep(255)];
    for bit in 0..32 {
        ops.push(ep_modify(THIRD, 1 << bit, 244));
    }
    ops.push(query(THIRD));
    // All attributes, including illegal shapes.
    for shape in (160..=255).step_by(4) {
        ops.push(ep_modify(THIRD, 0x7FFF_F000, shape));
    }
    for bit in [0, 18, 19, 16, 17, 31] {
        ops.push(ep_modify(Pick::Live(3), 1 << bit, 200));
        ops.push(ep_modify(FIRST, 1 << bit, 200));
    }
    for ep in BAD {
        ops.push(ep_modify(ep, 0x1000, 0));
    }
    ops.extend([
        ep_modify(SECOND, 0x7FFF_F000, 176),
        receive(SECOND, &[segment(FIRST, 0, 4)]),
        ep_modify(SECOND, 0x1_0000, 0),
        ep_modify(SECOND, 0x4_0000, 200),
        // Without dispatchers there are no queues.
        ep_create(Some(FIRST), None, None, None, 255),
        ep_modify(Pick::Live(4), 0x4_0000, 0),
        ep_modify(Pick::Live(4), 0x8_0000, 0),
        ep_modify(Pick::Live(4), 0xF_0000, 0),
        ep_modify_evds(Pick::Live(4), RECEIVES, REQUESTS, CONNECTIONS),
        ep_modify_evds(Pick::Live(4), REQUESTS, RECEIVES, CONNECTIONS),
        ep_modify(Pick::Live(4), 0xC_0000, 200),
        ep_modify(Pick::Live(4), 0x3_0000, 176),
        query(Pick::Live(4)),
    ]);
    // An endpoint with a shared receive queue.
    ops.extend([srq_create(FIRST, 3, 1, 0), ep_with_srq(FIRST, FIRST, 0)]);
    for fields in [0x400_0000, 0x4_0000, 0x7FFF_F000] {
        for shape in [244, 0] {
            ops.push(ep_modify(Pick::Live(5), fields, shape));
        }
    }
    ops
}

fn refused() -> Vec<Op> {
    let mut ops = vec![evd(3, None), evd(6, None), ep(0), ep_free(THIRD)];
    let create = |pz, receive, request, connect| {
        ep_create(Some(pz), Some(receive), Some(request), Some(connect), 0)
    };
    for bad in BAD {
        ops.extend([
            create(bad, RECEIVES, REQUESTS, CONNECTIONS),
            create(FIRST, bad, REQUESTS, CONNECTIONS),
            create(FIRST, RECEIVES, bad, CONNECTIONS),
            create(FIRST, RECEIVES, REQUESTS, bad),
            query(bad),
            ep_query(bad, true),
            ep_modify_pz(bad, FIRST),
            ep_modify_pz(SECOND, bad),
            ep_modify_evds(SECOND, bad, REQUESTS, CONNECTIONS),
            ep_modify_state(bad),
            ep_get_status(bad),
            ep_recv_query(bad),
            ep_set_watermark(bad, 1, 1),
            ep_reset(bad),
            ep_free(bad),
            ep_disconnect(bad, true),
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
        ep_create(
            Some(FIRST),
            Some(REQUESTS),
            Some(REQUESTS),
            Some(CONNECTIONS),
            176,
        ),
        ep_modify_state(SECOND),
    ]);
    for (soft, hard) in [(-2, 3), (3, -2), (-1, -1), (5, 2)] {
        ops.push(ep_set_watermark(FIRST, soft, hard));
    }
    ops
}

fn connect_with(ep: Pick, timeout: u8, private_data: u8, address: u8) -> Op {
    ep_connect(ep, 0, timeout, private_data, address)
}

fn connections_refused() -> Vec<Op> {
    let mut ops = vec![psp_free(Pick::Live(9))];
    for bad in BAD {
        ops.extend([
            connect_with(bad, 0, 0, 0),
            ep_dup_connect(bad, FIRST, 0, 0),
            ep_dup_connect(SECOND, bad, 0, 0),
            psp_create(1, bad, false),
            psp_create_any(bad, false),
            psp_query(bad, false),
            psp_free(bad),
            rsp_create(1, Some(bad), CONNECTIONS),
            rsp_create(1, None, bad),
            rsp_query(bad, false),
            rsp_free(bad),
            cr_query(bad, false),
            cr_reject(bad),
            cr_handoff(bad, 0),
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
        ops.push(ep_reset(SECOND));
    }
    ops.extend([
        connect_with(FIRST, 0, 0, 0),
        psp_create(0, CONNECTIONS, false),
        rsp_create(0, None, CONNECTIONS),
        psp_query(FIRST, true),
        psp_create(1, RECEIVES, false),
    ]);
    ops
}

/// Accepts requests with various endpoints, rejects them, hands them off, and leaves some open.
fn requests() -> Vec<Op> {
    let ask = |unknown_mask| there(cr_query(FIRST, unknown_mask));
    let again = [connect(SECOND, 0), RUN_TO_IDLE, there(drain())];
    let mut ops = vec![there(psp_create(1, CONNECTIONS, false))];
    ops.extend(again.clone());
    ops.extend([
        ask(false),
        ask(true),
        accept(FIRST, None),
        accept(FIRST, Some(FIRST)),
    ]);
    ops.extend(BAD.map(|ep| accept(FIRST, Some(ep))));
    ops.extend([
        there(cr_accept(FIRST, Some(SECOND), 255)),
        there(cr_handoff(FIRST, 2)),
        there(cr_handoff(FIRST, 1)),
        there(drain()),
        ask(false),
        there(cr_reject(FIRST)),
        there(cr_reject(Pick::Dead(0))),
    ]);
    ops.extend(idle_and_drain());
    ops.push(ep_reset(SECOND));
    ops.extend(again.clone());
    ops.push(accept(FIRST, Some(SECOND)));
    ops.push(there(query(SECOND)));
    ops.extend(idle_and_drain());
    ops.extend([
        query(SECOND),
        send(SECOND, &[]),
        ep_disconnect(SECOND, true),
    ]);
    ops.extend(idle_and_drain());
    ops.extend([ep_reset(SECOND), there(ep_reset(SECOND))]);
    // A request left open when its service point's dispatcher, and the adapter, go.
    ops.extend([
        there(evd(3, None)),
        there(psp_create(2, Pick::Live(5), false)),
        connect(SECOND, 2),
        RUN_TO_IDLE,
        there(psp_free(THIRD)),
        there(evd_free(Pick::Live(5))),
        RUN_TO_IDLE,
    ]);
    ops.extend(idle_and_drain());
    ops.push(ep_reset(SECOND));
    ops.extend(again);
    ops
}

/// Creates reserved service points, with an endpoint of the consumer and without.
fn reserved() -> Vec<Op> {
    let create = |qualifier, ep| there(rsp_create(qualifier, ep, CONNECTIONS));
    let ask = there(rsp_query(FIRST, false));
    let mut ops = vec![
        create(1, Some(SECOND)),
        ask.clone(),
        there(rsp_query(FIRST, true)),
        there(query(SECOND)),
        there(ep_free(SECOND)),
        there(ep_reset(SECOND)),
        there(ep_disconnect(SECOND, true)),
        there(ep_modify(SECOND, 0x2000, 244)),
        there(ep_modify(SECOND, 0x8000_0000, 244)),
        there(send(SECOND, &[])),
        create(1, None),
        create(2, Some(SECOND)),
        create(2, Some(FIRST)),
        there(rsp_free(FIRST)),
        there(query(SECOND)),
        create(1, Some(SECOND)),
        connect(SECOND, 1),
        RUN_TO_IDLE,
        there(drain()),
        ask.clone(),
        there(query(SECOND)),
        there(ep_free(SECOND)),
        there(send(SECOND, &[])),
        there(cr_query(FIRST, false)),
        accept(FIRST, Some(FIRST)),
        accept(FIRST, None),
        there(query(SECOND)),
    ];
    ops.extend(idle_and_drain());
    ops.extend([ep_disconnect(SECOND, false), RUN_TO_IDLE]);
    ops.extend(idle_and_drain());
    ops.extend([ep_reset(SECOND), there(ep_reset(SECOND))]);
    // With an endpoint of the provider: accepted, rejected, handed off, freed.
    for round in 0..3 {
        ops.extend([
            create(1, None),
            ask.clone(),
            connect(SECOND, 1),
            RUN_TO_IDLE,
            there(drain()),
        ]);
        ops.push(there(query(THIRD)));
        ops.push(there(ep_modify(THIRD, 0x2000, 0)));
        ops.push(there(ep_modify_evds(
            THIRD,
            RECEIVES,
            REQUESTS,
            CONNECTIONS,
        )));
        ops.push(there(ep_modify_pz(THIRD, FIRST)));
        ops.push(match round {
            0 => there(cr_reject(FIRST)),
            1 => there(cr_handoff(FIRST, 0)),
            _ => accept(FIRST, None),
        });
        ops.extend(idle_and_drain());
        ops.extend([ep_disconnect(SECOND, false), RUN_TO_IDLE, ep_reset(SECOND)]);
        ops.extend(idle_and_drain());
    }
    ops.extend([create(1, None), create(2, None), there(rsp_free(SECOND))]);
    ops
}

/// Creates service points whose requests bring a provider-made endpoint.
fn by_provider() -> Vec<Op> {
    let mut ops = vec![
        there(psp_create(1, CONNECTIONS, true)),
        there(psp_create_any(CONNECTIONS, true)),
        there(psp_create_any(CONNECTIONS, false)),
        there(psp_query(SECOND, false)),
    ];
    for round in 0..3 {
        ops.extend([connect(SECOND, 1), RUN_TO_IDLE, there(drain())]);
        ops.extend([
            there(query(THIRD)),
            there(ep_free(THIRD)),
            there(send(THIRD, &[])),
            there(ep_modify_pz(THIRD, FIRST)),
            there(ep_modify_evds(THIRD, RECEIVES, REQUESTS, CONNECTIONS)),
            accept(FIRST, Some(THIRD)),
        ]);
        ops.push(match round {
            0 => there(cr_reject(FIRST)),
            _ => accept(FIRST, None),
        });
        ops.extend(idle_and_drain());
        ops.extend([
            ep_disconnect(SECOND, round == 1),
            RUN_TO_IDLE,
            ep_reset(SECOND),
        ]);
        ops.extend(idle_and_drain());
        ops.push(there(ep_free(THIRD)));
    }
    ops.extend([there(psp_free(SECOND)), there(psp_free(SECOND))]);
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
        drain(),
        query(SECOND),
        there(drain()),
        accept(FIRST, Some(SECOND)),
    ]);
    ops.extend(idle_and_drain());
    ops.extend([ep_reset(SECOND), there(ep_reset(SECOND))]);
    ops.extend([
        connect_with(SECOND, 200, 4, 0),
        connect_with(THIRD, 200, 4, 0),
        connect_with(Pick::Live(3), 200, 4, 255),
        ep_disconnect(THIRD, false),
        Op::Fabric(FabricOp::Step(2)),
        there(drain()),
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
            ep_modify(ep, 0x2000, 0),
            ep_modify_pz(ep, FIRST),
            send(ep, &[]),
            ep_reset(ep),
            connect(ep, 0),
            ep_get_status(ep),
        ]
    };
    let mut ops = Vec::new();
    ops.extend([ep_disconnect(SECOND, true), connect(SECOND, 0)]);
    ops.extend(everything(SECOND));
    ops.extend([RUN_TO_IDLE, there(drain()), accept(FIRST, Some(SECOND))]);
    ops.extend(everything(SECOND).map(there));
    ops.extend(idle_and_drain());
    ops.extend(everything(SECOND));
    for _ in 0..3 {
        ops.push(write(SECOND, &[segment(FIRST, 0, 8)], remote(0)));
    }
    ops.push(ep_disconnect(SECOND, true));
    ops.extend(everything(SECOND));
    ops.extend([ep_disconnect(SECOND, true), ep_disconnect(SECOND, false)]);
    ops.extend(idle_and_drain());
    ops.extend(everything(SECOND));
    ops.extend(idle_and_drain());
    // Freed while connected, with all kinds of work in progress.
    ops.extend([
        receive(FIRST, &[segment(FIRST, 0, 8)]),
        write(FIRST, &[segment(FIRST, 0, 8)], remote(0)),
        bind(FIRST, segment(FIRST, 0, 8), FIRST),
        ep_free(FIRST),
        ep_free(FIRST),
    ]);
    ops.extend(idle_and_drain());
    ops
}

/// Duplicates connections with `ep_dup_connect`.
fn duplicates() -> Vec<Op> {
    let duplicate = |ep, model, timeout| ep_dup_connect(ep, model, timeout, 0);
    let mut ops = vec![
        ep(0),
        duplicate(SECOND, FIRST, 0),
        RUN_TO_IDLE,
        there(drain()),
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
    let mut ops = vec![ep(0), ep_connect(SECOND, 0, 0, 4, 224)];
    ops.extend(idle_and_drain());
    ops.push(cr_accept(FIRST, Some(THIRD), 8));
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
    let software = |pointer| evd_post_se(all, pointer);
    let look = evd_wait(all, 9);
    let mut ops = vec![evd(9, None)];
    for _ in 0..2 {
        ops.push(ep_create(Some(FIRST), Some(all), Some(all), Some(all), 0));
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
            ops.push(ep_disconnect(THIRD, false));
            ops.push(RUN_TO_IDLE);
        }
        ops.push(look.clone());
        ops.push(endpoint(end));
        ops.push(software(8));
        ops.extend(idle_and_drain());
    }
    ops
}
