//! Scenarios of zones, regions, windows and synchronisation.

use super::builders::*;
use super::run;
use crate::op::{EndpointOp, MemoryOp, Op, Pick, PostOp, SegmentChoice};
use crate::{Input, Prologue};

pub(super) fn all() -> Vec<(&'static str, Input)> {
    vec![
        ("regions", run(Prologue::Pair, regions())),
        ("regions-shared", run(Prologue::Empty, shared_regions())),
        ("regions-refused", run(Prologue::Pair, refused())),
        ("windows", run(Prologue::Pair, windows())),
        ("binds-refused", run(Prologue::Pair, binds_refused())),
        ("windows-of-other-zones", run(Prologue::Pair, zones())),
        ("synchronisation", run(Prologue::Pair, synchronisation())),
    ]
}

fn region(start: u8, length: u8, privileges: u8) -> Op {
    memory(MemoryOp::LmrCreate {
        pz: FIRST,
        start,
        length,
        privileges,
    })
}

/// Privileges to request: all, read, write, none, undefined ones.
const RIGHTS: [u8; 8] = [0, 160, 176, 192, 208, 232, 240, 250];

fn regions() -> Vec<Op> {
    let mut ops = Vec::new();
    for (number, privileges) in (0..).zip(RIGHTS) {
        ops.push(region(number * 8, 16, privileges));
        ops.push(memory(MemoryOp::LmrQuery {
            lmr: Pick::Live(number),
            unknown_mask: false,
        }));
    }
    // Regions made from regions.
    for (source, privileges) in [(FIRST, 0), (SECOND, 160), (THIRD, 192), (Pick::Dead(0), 0)] {
        ops.push(memory(MemoryOp::LmrCreateFrom {
            pz: FIRST,
            source,
            privileges,
        }));
    }
    for _ in 0..3 {
        ops.push(memory(MemoryOp::LmrFree { lmr: THIRD }));
        ops.push(memory(MemoryOp::LmrFree { lmr: Pick::Live(7) }));
    }
    ops.extend([
        region(40, 0, 0),
        region(40, 16, 0),
        memory(MemoryOp::LmrCreateFrom {
            pz: FIRST,
            source: Pick::Dead(1),
            privileges: 0,
        }),
        // A zone with regions, and one without.
        memory(MemoryOp::PzFree { pz: FIRST }),
        memory(MemoryOp::PzCreate),
        memory(MemoryOp::PzFree { pz: SECOND }),
    ]);
    ops.extend((0..8).map(|_| memory(MemoryOp::PzCreate)));
    ops
}

/// Shares memory under cookies, with contradictory lengths and ranges.
fn shared_regions() -> Vec<Op> {
    let share = |start, length, cookie| {
        memory(MemoryOp::LmrCreateShared {
            pz: FIRST,
            start,
            length,
            cookie,
            privileges: 0,
        })
    };
    let query = |lmr| {
        memory(MemoryOp::LmrQuery {
            lmr,
            unknown_mask: false,
        })
    };
    let mut ops = vec![memory(MemoryOp::PzCreate)];
    for round in 0..3 {
        ops.extend([
            share(0, 16, 1),
            share(0, 16, 1),
            share(0, 8, 1),
            share(8, 16, 2),
            share(64, 16, 2 + round),
            share(32, 0, 3),
            query(FIRST),
            query(SECOND),
            query(THIRD),
            memory(MemoryOp::LmrCreateFrom {
                pz: FIRST,
                source: FIRST,
                privileges: 0,
            }),
            query(Pick::Live(3)),
            share(128, 4, 9),
            share(192, 4, 10),
            share(128, 4, 9),
            region(100, 8, 0),
        ]);
        ops.extend((0..6).map(|_| memory(MemoryOp::LmrFree { lmr: FIRST })));
    }
    ops.extend([
        memory(MemoryOp::LmrCreateShared {
            pz: Pick::Null,
            start: 0,
            length: 8,
            cookie: 1,
            privileges: 0,
        }),
        memory(MemoryOp::LmrCreateShared {
            pz: FIRST,
            start: 0,
            length: 8,
            cookie: 1,
            privileges: 250,
        }),
    ]);
    ops
}

fn refused() -> Vec<Op> {
    let mut ops = vec![
        memory(MemoryOp::PzCreate),
        memory(MemoryOp::PzFree { pz: SECOND }),
        region(80, 8, 0),
        memory(MemoryOp::LmrFree { lmr: THIRD }),
        memory(MemoryOp::RmrCreate { pz: FIRST }),
        memory(MemoryOp::RmrFree { rmr: SECOND }),
    ];
    for bad in BAD {
        for unknown_mask in [false, true] {
            ops.extend([
                memory(MemoryOp::PzQuery {
                    pz: bad,
                    unknown_mask,
                }),
                memory(MemoryOp::LmrQuery {
                    lmr: bad,
                    unknown_mask,
                }),
                memory(MemoryOp::RmrQuery {
                    rmr: bad,
                    unknown_mask,
                }),
            ]);
        }
        ops.extend([
            memory(MemoryOp::PzFree { pz: bad }),
            memory(MemoryOp::LmrFree { lmr: bad }),
            memory(MemoryOp::RmrFree { rmr: bad }),
            memory(MemoryOp::RmrCreate { pz: bad }),
            memory(MemoryOp::LmrCreate {
                pz: bad,
                start: 0,
                length: 8,
                privileges: 0,
            }),
            memory(MemoryOp::LmrCreateFrom {
                pz: bad,
                source: FIRST,
                privileges: 0,
            }),
            memory(MemoryOp::LmrCreateFrom {
                pz: FIRST,
                source: bad,
                privileges: 0,
            }),
        ]);
    }
    ops.extend([
        memory(MemoryOp::PzQuery {
            pz: FIRST,
            unknown_mask: true,
        }),
        memory(MemoryOp::LmrQuery {
            lmr: FIRST,
            unknown_mask: true,
        }),
        memory(MemoryOp::RmrQuery {
            rmr: FIRST,
            unknown_mask: true,
        }),
    ]);
    ops
}

/// Segment that unbinds a window.
const NOTHING: SegmentChoice = segment(FIRST, 0, 0);

/// Binds, uses, rebinds, unbinds and frees windows repeatedly.
fn windows() -> Vec<Op> {
    let mut ops = vec![memory(MemoryOp::RmrCreate { pz: FIRST })];
    for round in 0..3 {
        ops.extend([
            bind(FIRST, segment(FIRST, 0, 20), FIRST),
            bind(SECOND, segment(SECOND, 64, 16), FIRST),
            bind(FIRST, segment(SECOND, 32, 8), FIRST),
        ]);
        ops.extend(idle_and_drain());
        for context in 0..3 {
            ops.push(there(write(
                FIRST,
                &[segment(FIRST, 0, 4)],
                remote(context),
            )));
            if context == round {
                break;
            }
        }
        ops.extend([
            memory(MemoryOp::LmrFree { lmr: FIRST }),
            memory(MemoryOp::RmrQuery {
                rmr: FIRST,
                unknown_mask: false,
            }),
            bind(FIRST, NOTHING, FIRST),
            bind(FIRST, NOTHING, FIRST),
        ]);
        ops.extend(idle_and_drain());
    }
    ops.extend([
        bind(FIRST, segment(FIRST, 0, 20), FIRST),
        memory(MemoryOp::RmrFree { rmr: FIRST }),
        bind(FIRST, segment(FIRST, 0, 20), FIRST),
    ]);
    // More binds than can be pending at once.
    for number in 0..6 {
        ops.push(bind(FIRST, segment(FIRST, number * 32, 8), FIRST));
    }
    ops.extend(idle_and_drain());
    ops.extend([
        bind(FIRST, segment(FIRST, 0, 20), FIRST),
        endpoint(EndpointOp::Disconnect {
            ep: FIRST,
            graceful: false,
        }),
        bind(FIRST, segment(FIRST, 0, 20), FIRST),
        bind(FIRST, NOTHING, FIRST),
    ]);
    ops.extend(idle_and_drain());
    ops.extend([
        memory(MemoryOp::RmrFree { rmr: FIRST }),
        memory(MemoryOp::LmrFree { lmr: FIRST }),
        memory(MemoryOp::LmrFree { lmr: FIRST }),
        memory(MemoryOp::PzFree { pz: FIRST }),
    ]);
    ops
}

fn bind_with(segment: SegmentChoice, privileges: u8, flags: u8) -> Op {
    post(PostOp::Bind {
        rmr: FIRST,
        segment,
        privileges,
        ep: FIRST,
        flags,
    })
}

/// Binds with missing rights, bad ranges, illegal flags and unconnected endpoints.
fn binds_refused() -> Vec<Op> {
    // Regions 2 to 9 with all kinds of rights.
    let mut ops: Vec<Op> = (0..)
        .zip(RIGHTS)
        .map(|(at, right)| region(at * 8, 16, right))
        .collect();
    for lmr in 0..8 {
        for privileges in RIGHTS {
            ops.push(bind_with(segment(Pick::Live(lmr), 0, 8), privileges, 0));
        }
        if lmr % 2 == 1 {
            ops.extend([RUN_TO_IDLE, event_drain()]);
        }
    }
    for segment in [
        segment(FIRST, 0, 255),
        segment(FIRST, 255, 254),
        segment(FIRST, 255, 20),
    ] {
        for privileges in [0, 192] {
            ops.push(bind_with(segment, privileges, 0));
        }
    }
    for lmr in BAD {
        for privileges in [0, 192, 232] {
            ops.push(bind_with(segment(lmr, 0, 8), privileges, 0));
        }
    }
    for flags in [150, 200, 210, 228, 240, 245, 255] {
        ops.push(bind_with(segment(FIRST, 0, 8), 0, flags));
        ops.extend([RUN_TO_IDLE, event_drain()]);
    }
    for bad in BAD {
        ops.push(bind(bad, segment(FIRST, 0, 8), FIRST));
        ops.push(bind(FIRST, segment(FIRST, 0, 8), bad));
    }
    ops.push(bind(FIRST, segment(FIRST, 0, 8), SECOND));
    ops
}

fn event_drain() -> Op {
    event(crate::op::EventOp::Drain)
}

/// Binds windows, regions and endpoints of different zones.
fn zones() -> Vec<Op> {
    let other = |start| {
        memory(MemoryOp::LmrCreate {
            pz: SECOND,
            start,
            length: 16,
            privileges: 0,
        })
    };
    let mut ops = vec![
        memory(MemoryOp::PzCreate),
        other(0),
        memory(MemoryOp::RmrCreate { pz: SECOND }),
        bind(SECOND, segment(FIRST, 0, 8), FIRST),
        bind(SECOND, segment(THIRD, 0, 8), FIRST),
        bind(FIRST, segment(THIRD, 0, 8), FIRST),
        bind(SECOND, NOTHING, FIRST),
        send(FIRST, &[segment(THIRD, 0, 8)]),
        read(FIRST, &[segment(THIRD, 0, 8)], remote(0)),
        receive(FIRST, &[segment(THIRD, 0, 8)]),
        memory(MemoryOp::PzFree { pz: SECOND }),
    ];
    for privileges in [192, 232] {
        ops.push(post(PostOp::Bind {
            rmr: SECOND,
            segment: segment(FIRST, 0, 8),
            privileges,
            ep: FIRST,
            flags: 0,
        }));
        ops.push(bind_with(segment(THIRD, 0, 8), privileges, 0));
    }
    ops.extend([
        endpoint(EndpointOp::ModifyPz {
            ep: SECOND,
            pz: SECOND,
        }),
        endpoint(EndpointOp::ModifyPz {
            ep: FIRST,
            pz: SECOND,
        }),
        endpoint(EndpointOp::ModifyPz {
            ep: SECOND,
            pz: Pick::Null,
        }),
    ]);
    ops
}

/// Stores locally and writes remotely, before and after synchronisation.
fn synchronisation() -> Vec<Op> {
    let mut ops = Vec::new();
    let lists: [&[SegmentChoice]; 7] = [
        &[segment(FIRST, 0, 16)],
        &[segment(FIRST, 0, 16), segment(SECOND, 32, 8)],
        &[],
        &[segment(FIRST, 0, 255)],
        &[segment(FIRST, 255, 254)],
        &[segment(Pick::Dead(0), 0, 4)],
        &[segment(Pick::Null, 0, 4)],
    ];
    ops.push(region(100, 8, 0));
    ops.push(memory(MemoryOp::LmrFree { lmr: THIRD }));
    for segments in lists {
        let segments = segments.to_vec();
        let before = there(memory(MemoryOp::SyncRead {
            segments: segments.clone(),
        }));
        let after = there(memory(MemoryOp::SyncWrite {
            segments: segments.clone(),
        }));
        ops.extend([
            there(memory(MemoryOp::Store {
                at: 4,
                value: 9,
                count: 20,
            })),
            before,
            read(FIRST, &[segment(FIRST, 0, 16)], remote(1)),
            write(FIRST, &[segment(FIRST, 0, 16)], remote(1)),
            after,
            memory(MemoryOp::SyncRead {
                segments: segments.clone(),
            }),
            memory(MemoryOp::SyncWrite { segments }),
        ]);
        ops.extend(idle_and_drain());
    }
    ops
}
