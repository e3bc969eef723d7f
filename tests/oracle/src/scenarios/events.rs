//! Scenarios of dispatchers, notification objects and waits.

use super::builders::*;
use super::run;
use crate::op::{Op, Pick, PostOp, Side};
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

fn wait_until(evd: Pick, threshold: i8) -> impl Iterator<Item = Op> {
    LIMITS
        .into_iter()
        .map(move |limit| evd_wait_until(evd, threshold, limit))
}

fn query(evd: Pick) -> Op {
    evd_query(evd, false)
}

/// Creates, queries, resizes, enables, disables and frees dispatchers, with and without events.
fn dispatchers() -> Vec<Op> {
    let mut ops = vec![evd(8, None), evd(9, None), evd_create(1, None, 6)];
    let (all, one) = (Pick::Live(5), Pick::Live(7));
    for number in 0..3 {
        ops.push(evd_post_se(one, number));
    }
    for length in [4, 1, 3, 14, 0, -3, 127] {
        ops.push(evd_resize(one, length));
    }
    for number in 0..8 {
        ops.extend([
            evd_post_se(all, number),
            evd_post_se(SOFTWARE, number),
            evd_post_se(one, number),
        ]);
    }
    for length in [1, 2, 15, 14] {
        ops.extend([
            evd_resize(all, length),
            evd_resize(SOFTWARE, length),
            query(all),
        ]);
    }
    ops.extend([evd_dequeue(all), evd_dequeue(one), evd_dequeue(SOFTWARE)]);
    for evd in [REQUESTS, SOFTWARE, all] {
        ops.extend([
            evd_disable(evd),
            evd_post_se(evd, 9),
            query(evd),
            evd_set_unwaitable(evd),
            query(evd),
            evd_wait(evd, 1),
            evd_clear_unwaitable(evd),
            evd_enable(evd),
            evd_free(evd),
        ]);
    }
    ops
}

/// Uses bad handles, illegal lengths and streams, and frees dispatchers in use.
fn refused() -> Vec<Op> {
    let mut ops = vec![evd(6, None), evd_free(Pick::Live(5))];
    for evd in BAD {
        ops.extend([
            query(evd),
            evd_modify_cno(evd, None),
            evd_modify_cno(SOFTWARE, Some(evd)),
            evd_resize(evd, 3),
            evd_enable(evd),
            evd_disable(evd),
            evd_set_unwaitable(evd),
            evd_clear_unwaitable(evd),
            evd_free(evd),
            evd_dequeue(evd),
            evd_post_se(evd, 1),
            evd_wait(evd, 1),
        ]);
        ops.extend(wait_until(evd, 1));
    }
    for evd in [ASYNC, REQUESTS, RECEIVES, CONNECTIONS] {
        ops.extend([evd_free(evd), evd_post_se(evd, 1)]);
    }
    for flags in [11, 131, 0] {
        for length in [0, -1, 127, 3] {
            ops.push(evd_create(length, None, flags));
        }
    }
    ops.push(evd_query(ASYNC, true));
    // More than the adapter has.
    ops.extend((0..8).map(|_| evd(6, None)));
    ops
}

/// Overflows dispatchers with software events, connection events and connection requests.
fn full() -> Vec<Op> {
    let mut ops = vec![evd_create(16, None, 8)];
    let one = Pick::Live(5);
    ops.push(there(ops[0].clone()));
    ops.extend((0..4).map(|number| evd_post_se(one, number)));
    // Endpoints whose connection events have no room.
    for _ in 0..2 {
        ops.push(ep_create(
            Some(FIRST),
            Some(RECEIVES),
            Some(REQUESTS),
            Some(one),
            0,
        ));
    }
    // A service point whose requests have no room.
    ops.push(there(psp_create(1, one, false)));
    ops.push(there(evd_post_se(one, 7)));
    ops.extend([
        connect(THIRD, 1),
        connect(Pick::Live(3), 2),
        connect(SECOND, 1),
    ]);
    ops.extend([
        RUN_TO_IDLE,
        evd_dequeue(ASYNC),
        evd_dequeue(one),
        evd_wait(one, 1),
    ]);
    ops.extend((0..3).map(|_| evd_dequeue(one)));
    ops.extend([evd_wait(one, 1)]);
    ops.extend(wait_until(one, 1));
    ops.extend(idle_and_drain());
    ops
}

/// Waits for software and connection events, with every limit.
fn waits() -> Vec<Op> {
    let mut ops = Vec::new();
    for threshold in [-1, 0, 1, 2, 5, 127] {
        ops.push(evd_wait(SOFTWARE, threshold));
        ops.extend(wait_until(SOFTWARE, threshold));
        ops.push(evd_post_se(SOFTWARE, 1));
    }
    ops.extend(wait_until(SOFTWARE, 3));
    ops.extend(wait_until(SOFTWARE, 1));
    ops.push(evd_set_unwaitable(SOFTWARE));
    ops.extend(wait_until(SOFTWARE, 1));
    // An answer that arrives during the wait, and one that never does.
    ops.push(connect(SECOND, 0));
    ops.extend(wait_until(CONNECTIONS, 1));
    ops.extend([RUN_TO_IDLE, there(drain()), accept(FIRST, Some(SECOND))]);
    ops.extend(wait_until(CONNECTIONS, 1));
    ops.push(ep_disconnect(SECOND, true));
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
        ops.extend([evd_wait(REQUESTS, 1), evd_wait(REQUESTS, 2)]);
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
            let op = ep_create(
                Some(FIRST),
                Some(Pick::Live(evd)),
                Some(Pick::Live(if shape == 160 { evd } else { 1 })),
                Some(CONNECTIONS),
                shape,
            );
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
            there(drain()),
            accept(FIRST, Some(which)),
        ]);
        ops.extend(idle_and_drain());
        let dispatcher = Pick::Live(number + 3);
        for flags in [0, 0x90, 200, 150] {
            ops.push(Op::Post(
                Side::A,
                PostOp::Send {
                    ep: which,
                    segments: vec![segment(FIRST, 0, 4)],
                    flags,
                },
            ));
            ops.push(there(evd_wait(dispatcher, 1)));
            ops.extend(wait_until(dispatcher, 1).map(there));
            ops.push(there(evd_wait(dispatcher, 2)));
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
            ops.push(evd_wait_meanwhile(evd, 1, call));
        }
        ops.extend([
            evd_clear_unwaitable(evd),
            evd_post_se(evd, 3),
            evd_wait_meanwhile(evd, 1, 0),
            evd_wait_now(evd, 1),
            evd_dequeue(evd),
        ]);
    }
    for evd in BAD {
        ops.extend([
            evd_wait_now(evd, 1),
            evd_dequeue(evd),
            evd_wait_meanwhile(evd, 1, 0),
        ]);
    }
    for threshold in [1, 2] {
        ops.push(write(FIRST, &[segment(FIRST, 0, 8)], remote(0)));
        ops.push(RUN_TO_IDLE);
        ops.push(evd_wait_now(REQUESTS, threshold));
        ops.push(evd_dequeue(REQUESTS));
    }
    ops
}

/// Waits on the host's clock, for microseconds.
fn clock() -> Vec<Op> {
    let mut ops = Vec::new();
    for limit in HOSTS_CLOCK.into_iter().chain(196..207) {
        for evd in [SOFTWARE, REQUESTS] {
            ops.push(evd_wait_until(evd, 1, limit));
        }
        ops.push(evd_post_se(SOFTWARE, 1));
    }
    ops
}

fn cno_wait_each(cno: Pick) -> impl Iterator<Item = Op> {
    let one = cno_wait(cno);
    let until = LIMITS.map(|limit| cno_wait_until(cno, limit));
    [one].into_iter().chain(until)
}

/// Notifies objects from one or several dispatchers.
fn notification() -> Vec<Op> {
    let mut ops = vec![
        cno_create(),
        cno_create(),
        evd(6, Some(FIRST)),
        evd(0, Some(FIRST)),
        evd_modify_cno(REQUESTS, Some(SECOND)),
    ];
    let software = Pick::Live(5);
    ops.extend(cno_wait_each(FIRST));
    ops.extend([evd_post_se(software, 1), evd_post_se(software, 2)]);
    ops.extend(cno_wait_each(FIRST));
    ops.extend(cno_wait_each(FIRST));
    ops.push(send(FIRST, &[segment(FIRST, 0, 4)]));
    ops.extend(cno_wait_each(SECOND));
    ops.push(query(software));
    for cno in [Some(SECOND), None, Some(FIRST), Some(FIRST)] {
        ops.extend([
            evd_modify_cno(software, cno),
            evd_post_se(software, 3),
            query(software),
        ]);
    }
    ops.extend([
        evd_disable(software),
        evd_post_se(software, 4),
        evd_enable(software),
        cno_free(FIRST),
        evd_free(software),
        evd_free(software),
        cno_free(FIRST),
    ]);
    // Frees a dispatcher after its notification, once as the last one and once with another
    // attached.
    ops.push(evd(6, Some(SECOND)));
    ops.extend([evd_post_se(software, 5), evd_free(software)]);
    ops.extend(cno_wait_each(SECOND));
    ops.push(evd(6, Some(SECOND)));
    for waits in [0, 1, 6, 7, 8, 9, 11] {
        ops.extend([FIRST, SECOND].map(|cno| cno_waits(cno, waits)));
    }
    for cno in BAD {
        ops.extend(cno_wait_each(cno));
        ops.push(cno_waits(cno, 1));
        ops.extend([
            cno_query(cno, false),
            cno_free(cno),
            cno_modify_agent(cno, true),
        ]);
    }
    ops.push(cno_query(FIRST, true));
    ops.extend(idle_and_drain());
    ops
}

/// Calls agents, replaces them before their call, and closes the adapter with some left.
fn agents() -> Vec<Op> {
    let query = |cno| cno_query(cno, false);
    let modify = |cno, agent| cno_modify_agent(cno, agent);
    let mut ops = vec![
        cno_create_with_agent(),
        cno_create(),
        cno_create_with_agent(),
        evd(6, Some(FIRST)),
        evd(6, Some(SECOND)),
        evd(6, Some(THIRD)),
        query(FIRST),
        query(SECOND),
    ];
    let dispatchers = [Pick::Live(1), Pick::Live(2), Pick::Live(3)];
    for number in 0..3 {
        for evd in dispatchers {
            ops.push(evd_post_se(evd, number));
        }
        ops.extend([
            modify(FIRST, true),
            modify(SECOND, number != 1),
            query(FIRST),
            query(SECOND),
        ]);
        ops.extend(cno_wait_each(FIRST));
    }
    ops.extend([
        modify(FIRST, false),
        evd_free(Pick::Live(3)),
        query(THIRD),
        cno_free(THIRD),
        modify(FIRST, true),
    ]);
    ops.extend((0..9).map(|_| cno_create_with_agent()));
    ops
}

/// Sets the consumer context of every kind of object, and of bad handles.
fn contexts() -> Vec<Op> {
    let mut ops = vec![
        cno_create(),
        there(cno_create()),
        there(rsp_create(1, None, CONNECTIONS)),
        rsp_create(2, None, CONNECTIONS),
        ep(0),
        connect(THIRD, 0),
        RUN_TO_IDLE,
        there(drain()),
    ];
    for kind in 0..12 {
        for object in [FIRST, Pick::Dead(0), Pick::Foreign(0), Pick::Null] {
            let op = context(kind, object, 77);
            ops.extend([there(op.clone()), op]);
        }
    }
    ops
}
