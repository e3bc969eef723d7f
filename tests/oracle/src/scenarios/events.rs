//! Scenarios of dispatchers, notification objects and waits.

use super::builders::*;
use super::run;
use crate::op::{ConnectionOp, EndpointOp, EventOp, Op, Pick, Side};
use crate::{Input, Prologue};

/// Limits of waits: a poll, some time, as long as anything happens.
const LIMITS: [u8; 3] = [0, 100, 255];
/// Limits of waits on the host's clock, one for each kind of sleep.
const HOSTS_CLOCK: [u8; 4] = [192, 193, 194, 195];

pub(super) fn all() -> Vec<(&'static str, Input)> {
    vec![
        ("dispatchers", run(Prologue::Pair, dispatchers())),
        ("dispatchers-refused", run(Prologue::Pair, refused())),
        ("queues-that-are-full", run(Prologue::Pair, full())),
        ("waits", run(Prologue::Pair, waits())),
        ("waits-for-transfers", run(Prologue::Pair, transfers())),
        (
            "waits-for-what-is-solicited",
            run(Prologue::Pair, selective()),
        ),
        ("waits-meanwhile", run(Prologue::Pair, meanwhile())),
        ("waits-on-the-clock", run(Prologue::Pair, clock())),
        ("notification", run(Prologue::Pair, notification())),
        ("agents", run(Prologue::Empty, agents())),
        ("contexts", run(Prologue::Shared, contexts())),
    ]
}

fn post_se(evd: Pick, pointer: u32) -> Op {
    event(EventOp::EvdPostSe { evd, pointer })
}

fn wait(evd: Pick, threshold: i8) -> Op {
    event(EventOp::EvdWait { evd, threshold })
}

fn wait_until(evd: Pick, threshold: i8) -> impl Iterator<Item = Op> {
    LIMITS.into_iter().map(move |limit| {
        event(EventOp::EvdWaitUntil {
            evd,
            threshold,
            limit,
        })
    })
}

fn dequeue(evd: Pick) -> Op {
    event(EventOp::EvdDequeue { evd })
}

fn query(evd: Pick) -> Op {
    event(EventOp::EvdQuery {
        evd,
        unknown_mask: false,
    })
}

/// Creates, queries, resizes, enables, disables and frees dispatchers, with and without events.
fn dispatchers() -> Vec<Op> {
    let mut ops = vec![
        evd(8, None),
        evd(9, None),
        event(EventOp::EvdCreate {
            length: 1,
            cno: None,
            flags: 6,
        }),
    ];
    let (all, one) = (Pick::Live(5), Pick::Live(7));
    for number in 0..3 {
        ops.push(post_se(one, number));
    }
    for length in [4, 1, 3, 14, 0, -3, 127] {
        ops.push(event(EventOp::EvdResize { evd: one, length }));
    }
    for number in 0..8 {
        ops.extend([
            post_se(all, number),
            post_se(SOFTWARE, number),
            post_se(one, number),
        ]);
    }
    for length in [1, 2, 15, 14] {
        ops.extend([
            event(EventOp::EvdResize { evd: all, length }),
            event(EventOp::EvdResize {
                evd: SOFTWARE,
                length,
            }),
            query(all),
        ]);
    }
    ops.extend([dequeue(all), dequeue(one), dequeue(SOFTWARE)]);
    for evd in [REQUESTS, SOFTWARE, all] {
        ops.extend([
            event(EventOp::EvdDisable { evd }),
            post_se(evd, 9),
            query(evd),
            event(EventOp::EvdSetUnwaitable { evd }),
            query(evd),
            wait(evd, 1),
            event(EventOp::EvdClearUnwaitable { evd }),
            event(EventOp::EvdEnable { evd }),
            event(EventOp::EvdFree { evd }),
        ]);
    }
    ops
}

/// Uses bad handles, illegal lengths and streams, and frees dispatchers in use.
fn refused() -> Vec<Op> {
    let mut ops = vec![evd(6, None), event(EventOp::EvdFree { evd: Pick::Live(5) })];
    for evd in BAD {
        ops.extend([
            query(evd),
            event(EventOp::EvdModifyCno { evd, cno: None }),
            event(EventOp::EvdModifyCno {
                evd: SOFTWARE,
                cno: Some(evd),
            }),
            event(EventOp::EvdResize { evd, length: 3 }),
            event(EventOp::EvdEnable { evd }),
            event(EventOp::EvdDisable { evd }),
            event(EventOp::EvdSetUnwaitable { evd }),
            event(EventOp::EvdClearUnwaitable { evd }),
            event(EventOp::EvdFree { evd }),
            dequeue(evd),
            post_se(evd, 1),
            wait(evd, 1),
        ]);
        ops.extend(wait_until(evd, 1));
    }
    for evd in [ASYNC, REQUESTS, RECEIVES, CONNECTIONS] {
        ops.extend([event(EventOp::EvdFree { evd }), post_se(evd, 1)]);
    }
    for flags in [11, 131, 0] {
        for length in [0, -1, 127, 3] {
            ops.push(event(EventOp::EvdCreate {
                length,
                cno: None,
                flags,
            }));
        }
    }
    ops.push(event(EventOp::EvdQuery {
        evd: ASYNC,
        unknown_mask: true,
    }));
    // More than the adapter has.
    ops.extend((0..8).map(|_| evd(6, None)));
    ops
}

/// Overflows dispatchers with software events, connection events and connection requests.
fn full() -> Vec<Op> {
    let mut ops = vec![event(EventOp::EvdCreate {
        length: 16,
        cno: None,
        flags: 8,
    })];
    let one = Pick::Live(5);
    ops.push(there(ops[0].clone()));
    ops.extend((0..4).map(|number| post_se(one, number)));
    // Endpoints whose connection events have no room.
    for _ in 0..2 {
        ops.push(endpoint(EndpointOp::Create {
            pz: Some(FIRST),
            receive: Some(RECEIVES),
            request: Some(REQUESTS),
            connect: Some(one),
            shape: 0,
        }));
    }
    // A service point whose requests have no room.
    ops.push(there(connection(ConnectionOp::PspCreate {
        qualifier: 1,
        evd: one,
        by_provider: false,
    })));
    ops.push(there(post_se(one, 7)));
    ops.extend([
        connect(THIRD, 1),
        connect(Pick::Live(3), 2),
        connect(SECOND, 1),
    ]);
    ops.extend([RUN_TO_IDLE, dequeue(ASYNC), dequeue(one), wait(one, 1)]);
    ops.extend((0..3).map(|_| dequeue(one)));
    ops.extend([wait(one, 1)]);
    ops.extend(wait_until(one, 1));
    ops.extend(idle_and_drain());
    ops
}

/// Waits for software and connection events, with every limit.
fn waits() -> Vec<Op> {
    let mut ops = Vec::new();
    for threshold in [-1, 0, 1, 2, 5, 127] {
        ops.push(wait(SOFTWARE, threshold));
        ops.extend(wait_until(SOFTWARE, threshold));
        ops.push(post_se(SOFTWARE, 1));
    }
    ops.extend(wait_until(SOFTWARE, 3));
    ops.extend(wait_until(SOFTWARE, 1));
    ops.push(event(EventOp::EvdSetUnwaitable { evd: SOFTWARE }));
    ops.extend(wait_until(SOFTWARE, 1));
    // An answer that arrives during the wait, and one that never does.
    ops.push(connect(SECOND, 0));
    ops.extend(wait_until(CONNECTIONS, 1));
    ops.extend([
        RUN_TO_IDLE,
        there(event(EventOp::Drain)),
        accept(FIRST, Some(SECOND)),
    ]);
    ops.extend(wait_until(CONNECTIONS, 1));
    ops.push(endpoint(EndpointOp::Disconnect {
        ep: SECOND,
        graceful: true,
    }));
    ops.extend(wait_until(CONNECTIONS, 2));
    ops.extend(wait_until(CONNECTIONS, 1).map(there));
    ops
}

/// Waits for completions that are present, arrive during the wait, or never arrive.
fn transfers() -> Vec<Op> {
    let mut ops = Vec::new();
    for round in 0..4 {
        ops.extend([
            receive(FIRST, &[segment(SECOND, 0, 16)]),
            there(receive(FIRST, &[segment(SECOND, 64, 16)])),
        ]);
        ops.push(send(FIRST, &[segment(FIRST, 0, 8)]));
        ops.push(write(FIRST, &[segment(FIRST, 0, 8)], remote(0)));
        if round % 2 == 1 {
            ops.push(RUN_TO_IDLE);
        }
        ops.extend([wait(REQUESTS, 1), wait(REQUESTS, 2)]);
        ops.extend(wait_until(REQUESTS, if round < 2 { 1 } else { 2 }));
        ops.extend(wait_until(RECEIVES, 1).map(there));
    }
    // The last write fails.
    ops.push(write(FIRST, &[segment(FIRST, 0, 8)], remote(255)));
    ops.extend(wait_until(REQUESTS, 1));
    ops.extend(wait_until(RECEIVES, 1).map(there));
    ops.extend(wait_until(CONNECTIONS, 1));
    ops.extend(idle_and_drain());
    ops
}

/// Creates endpoints whose receives wake only for solicited completions, or never.
fn selective() -> Vec<Op> {
    let mut ops = Vec::new();
    for side in [Side::A, Side::B] {
        // Dispatchers 5 and 6, endpoints 2 and 3.
        for op in [evd(0, None), evd(0, None)] {
            ops.push(if side == Side::A { op } else { there(op) });
        }
        for (evd, shape) in [(5, 176), (6, 160)] {
            let op = endpoint(EndpointOp::Create {
                pz: Some(FIRST),
                receive: Some(Pick::Live(evd)),
                request: Some(Pick::Live(if shape == 160 { evd } else { 1 })),
                connect: Some(CONNECTIONS),
                shape,
            });
            ops.push(if side == Side::A { op } else { there(op) });
        }
    }
    for number in [2, 3] {
        let which = Pick::Live(number);
        for _ in 0..3 {
            ops.push(there(receive(which, &[segment(SECOND, 32 * number, 16)])));
        }
        ops.extend([
            connect(which, 0),
            RUN_TO_IDLE,
            there(event(EventOp::Drain)),
            accept(FIRST, Some(which)),
        ]);
        ops.extend(idle_and_drain());
        let dispatcher = Pick::Live(number + 3);
        for flags in [0, 0x90, 200, 150] {
            ops.push(Op::Post(
                Side::A,
                crate::op::PostOp::Send {
                    ep: which,
                    segments: vec![segment(FIRST, 0, 4)],
                    flags,
                },
            ));
            ops.push(there(wait(dispatcher, 1)));
            ops.extend(wait_until(dispatcher, 1).map(there));
            ops.push(there(wait(dispatcher, 2)));
            ops.push(there(query(dispatcher)));
        }
    }
    ops.extend(idle_and_drain());
    ops
}

/// Makes calls during a wait, on every dispatcher.
fn meanwhile() -> Vec<Op> {
    let mut ops = vec![evd(6, None)];
    for evd in [SOFTWARE, Pick::Live(5), REQUESTS, CONNECTIONS, ASYNC] {
        for call in 0..6 {
            ops.push(event(EventOp::EvdWaitMeanwhile {
                evd,
                threshold: 1,
                call,
            }));
        }
        ops.extend([
            event(EventOp::EvdClearUnwaitable { evd }),
            post_se(evd, 3),
            event(EventOp::EvdWaitMeanwhile {
                evd,
                threshold: 1,
                call: 0,
            }),
            event(EventOp::EvdWaitNow { evd, threshold: 1 }),
            dequeue(evd),
        ]);
    }
    for evd in BAD {
        ops.extend([
            event(EventOp::EvdWaitNow { evd, threshold: 1 }),
            dequeue(evd),
            event(EventOp::EvdWaitMeanwhile {
                evd,
                threshold: 1,
                call: 0,
            }),
        ]);
    }
    for threshold in [1, 2] {
        ops.push(write(FIRST, &[segment(FIRST, 0, 8)], remote(0)));
        ops.push(RUN_TO_IDLE);
        ops.push(event(EventOp::EvdWaitNow {
            evd: REQUESTS,
            threshold,
        }));
        ops.push(dequeue(REQUESTS));
    }
    ops
}

/// Waits on the host's clock, for microseconds.
fn clock() -> Vec<Op> {
    let mut ops = Vec::new();
    for limit in HOSTS_CLOCK.into_iter().chain(196..207) {
        for evd in [SOFTWARE, REQUESTS] {
            ops.push(event(EventOp::EvdWaitUntil {
                evd,
                threshold: 1,
                limit,
            }));
        }
        ops.push(post_se(SOFTWARE, 1));
    }
    ops
}

fn cno_wait(cno: Pick) -> impl Iterator<Item = Op> {
    let one = event(EventOp::CnoWait { cno });
    let until = LIMITS.map(|limit| event(EventOp::CnoWaitUntil { cno, limit }));
    [one].into_iter().chain(until)
}

/// Notifies objects from one or several dispatchers.
fn notification() -> Vec<Op> {
    let mut ops = vec![
        event(EventOp::CnoCreate),
        event(EventOp::CnoCreate),
        evd(6, Some(FIRST)),
        evd(0, Some(FIRST)),
        event(EventOp::EvdModifyCno {
            evd: REQUESTS,
            cno: Some(SECOND),
        }),
    ];
    let software = Pick::Live(5);
    ops.extend(cno_wait(FIRST));
    ops.extend([post_se(software, 1), post_se(software, 2)]);
    ops.extend(cno_wait(FIRST));
    ops.extend(cno_wait(FIRST));
    ops.push(send(FIRST, &[segment(FIRST, 0, 4)]));
    ops.extend(cno_wait(SECOND));
    ops.push(query(software));
    for cno in [Some(SECOND), None, Some(FIRST), Some(FIRST)] {
        ops.extend([
            event(EventOp::EvdModifyCno { evd: software, cno }),
            post_se(software, 3),
            query(software),
        ]);
    }
    ops.extend([
        event(EventOp::EvdDisable { evd: software }),
        post_se(software, 4),
        event(EventOp::EvdEnable { evd: software }),
        event(EventOp::CnoFree { cno: FIRST }),
        event(EventOp::EvdFree { evd: software }),
        event(EventOp::EvdFree { evd: software }),
        event(EventOp::CnoFree { cno: FIRST }),
    ]);
    // Frees a dispatcher after its notification, once as the last one and once with another
    // attached.
    ops.push(evd(6, Some(SECOND)));
    ops.extend([
        post_se(software, 5),
        event(EventOp::EvdFree { evd: software }),
    ]);
    ops.extend(cno_wait(SECOND));
    ops.push(evd(6, Some(SECOND)));
    for waits in [0, 1, 6, 7, 8, 9, 11] {
        ops.extend([FIRST, SECOND].map(|cno| event(EventOp::CnoWaits { cno, waits })));
    }
    for cno in BAD {
        ops.extend(cno_wait(cno));
        ops.push(event(EventOp::CnoWaits { cno, waits: 1 }));
        ops.extend([
            event(EventOp::CnoQuery {
                cno,
                unknown_mask: false,
            }),
            event(EventOp::CnoFree { cno }),
            event(EventOp::CnoModifyAgent { cno, agent: true }),
        ]);
    }
    ops.push(event(EventOp::CnoQuery {
        cno: FIRST,
        unknown_mask: true,
    }));
    ops.extend(idle_and_drain());
    ops
}

/// Calls agents, replaces them before their call, and closes the adapter with some left.
fn agents() -> Vec<Op> {
    let query = |cno| {
        event(EventOp::CnoQuery {
            cno,
            unknown_mask: false,
        })
    };
    let modify = |cno, agent| event(EventOp::CnoModifyAgent { cno, agent });
    let mut ops = vec![
        event(EventOp::CnoCreateWithAgent),
        event(EventOp::CnoCreate),
        event(EventOp::CnoCreateWithAgent),
        evd(6, Some(FIRST)),
        evd(6, Some(SECOND)),
        evd(6, Some(THIRD)),
        query(FIRST),
        query(SECOND),
    ];
    let dispatchers = [Pick::Live(1), Pick::Live(2), Pick::Live(3)];
    for number in 0..3 {
        for evd in dispatchers {
            ops.push(post_se(evd, number));
        }
        ops.extend([
            modify(FIRST, true),
            modify(SECOND, number != 1),
            query(FIRST),
            query(SECOND),
        ]);
        ops.extend(cno_wait(FIRST));
    }
    ops.extend([
        modify(FIRST, false),
        event(EventOp::EvdFree { evd: Pick::Live(3) }),
        query(THIRD),
        event(EventOp::CnoFree { cno: THIRD }),
        modify(FIRST, true),
    ]);
    ops.extend((0..9).map(|_| event(EventOp::CnoCreateWithAgent)));
    ops
}

/// Sets the consumer context of every kind of object, and of bad handles.
fn contexts() -> Vec<Op> {
    let mut ops = vec![
        event(EventOp::CnoCreate),
        there(event(EventOp::CnoCreate)),
        there(connection(ConnectionOp::RspCreate {
            qualifier: 1,
            ep: None,
            evd: CONNECTIONS,
        })),
        connection(ConnectionOp::RspCreate {
            qualifier: 2,
            ep: None,
            evd: CONNECTIONS,
        }),
        ep(0),
        connect(THIRD, 0),
        RUN_TO_IDLE,
        there(event(EventOp::Drain)),
    ];
    for kind in 0..12 {
        for object in [FIRST, Pick::Dead(0), Pick::Foreign(0), Pick::Null] {
            let op = event(EventOp::Context {
                kind,
                object,
                value: 77,
            });
            ops.extend([there(op.clone()), op]);
        }
    }
    ops
}
