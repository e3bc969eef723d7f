//! Scenarios of zones, regions, windows and synchronisation.

use super::builders::*;
use super::run;
use crate::op::{Op, Pick, SegmentChoice};
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
    lmr_create(FIRST, start, length, privileges)
}

/// Privileges to request: all, read, write, none, undefined ones.
const RIGHTS: [u8; 8] = [0, 160, 176, 192, 208, 232, 240, 250];

fn regions() -> Vec<Op> {
    let mut ops = Vec::new();
    for (number, privileges) in (0..).zip(RIGHTS) {
        ops.push(region(number * 8, 16, privileges));
        ops.push(lmr_query(Pick::Live(number), false));
    }
    // Regions made from regions.
    for (source, privileges) in [(FIRST, 0), (SECOND, 160), (THIRD, 192), (Pick::Dead(0), 0)] {
        ops.push(lmr_create_from(FIRST, source, privileges));
    }
    for _ in 0..3 {
        ops.push(lmr_free(THIRD));
        ops.push(lmr_free(Pick::Live(7)));
    }
    ops.extend([
        region(40, 0, 0),
        region(40, 16, 0),
        lmr_create_from(FIRST, Pick::Dead(1), 0),
        // A zone with regions, and one without.
        pz_free(FIRST),
        pz_create(),
        pz_free(SECOND),
    ]);
    ops.extend((0..8).map(|_| pz_create()));
    ops
}

/// Shares memory under cookies, with contradictory lengths and ranges.
fn shared_regions() -> Vec<Op> {
    let share = |start, length, cookie| lmr_create_shared(FIRST, start, length, cookie, 0);
    let query = |lmr| lmr_query(lmr, false);
    let mut ops = vec![pz_create()];
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
            lmr_create_from(FIRST, FIRST, 0),
            query(Pick::Live(3)),
            share(128, 4, 9),
            share(192, 4, 10),
            share(128, 4, 9),
            region(100, 8, 0),
        ]);
        ops.extend((0..6).map(|_| lmr_free(FIRST)));
    }
    ops.extend([
        lmr_create_shared(Pick::Null, 0, 8, 1, 0),
        lmr_create_shared(FIRST, 0, 8, 1, 250),
    ]);
    ops
}

fn refused() -> Vec<Op> {
    let mut ops = vec![
        pz_create(),
        pz_free(SECOND),
        region(80, 8, 0),
        lmr_free(THIRD),
        rmr_create(FIRST),
        rmr_free(SECOND),
    ];
    for bad in BAD {
        for unknown_mask in [false, true] {
            ops.extend([
                pz_query(bad, unknown_mask),
                lmr_query(bad, unknown_mask),
                rmr_query(bad, unknown_mask),
            ]);
        }
        ops.extend([
            pz_free(bad),
            lmr_free(bad),
            rmr_free(bad),
            rmr_create(bad),
            lmr_create(bad, 0, 8, 0),
            lmr_create_from(bad, FIRST, 0),
            lmr_create_from(FIRST, bad, 0),
        ]);
    }
    ops.extend([
        pz_query(FIRST, true),
        lmr_query(FIRST, true),
        rmr_query(FIRST, true),
    ]);
    ops
}

/// Segment that unbinds a window.
const NOTHING: SegmentChoice = segment(FIRST, 0, 0);

/// Binds, uses, rebinds, unbinds and frees windows repeatedly.
fn windows() -> Vec<Op> {
    let mut ops = vec![rmr_create(FIRST)];
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
            lmr_free(FIRST),
            rmr_query(FIRST, false),
            bind(FIRST, NOTHING, FIRST),
            bind(FIRST, NOTHING, FIRST),
        ]);
        ops.extend(idle_and_drain());
    }
    ops.extend([
        bind(FIRST, segment(FIRST, 0, 20), FIRST),
        rmr_free(FIRST),
        bind(FIRST, segment(FIRST, 0, 20), FIRST),
    ]);
    // More binds than can be pending at once.
    for number in 0..6 {
        ops.push(bind(FIRST, segment(FIRST, number * 32, 8), FIRST));
    }
    ops.extend(idle_and_drain());
    ops.extend([
        bind(FIRST, segment(FIRST, 0, 20), FIRST),
        ep_disconnect(FIRST, false),
        bind(FIRST, segment(FIRST, 0, 20), FIRST),
        bind(FIRST, NOTHING, FIRST),
    ]);
    ops.extend(idle_and_drain());
    ops.extend([
        rmr_free(FIRST),
        lmr_free(FIRST),
        lmr_free(FIRST),
        pz_free(FIRST),
    ]);
    ops
}

fn bind_with(segment: SegmentChoice, privileges: u8, flags: u8) -> Op {
    rmr_bind(FIRST, segment, privileges, FIRST, flags)
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
            ops.extend([RUN_TO_IDLE, drain()]);
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
        ops.extend([RUN_TO_IDLE, drain()]);
    }
    for bad in BAD {
        ops.push(bind(bad, segment(FIRST, 0, 8), FIRST));
        ops.push(bind(FIRST, segment(FIRST, 0, 8), bad));
    }
    ops.push(bind(FIRST, segment(FIRST, 0, 8), SECOND));
    ops
}

/// Binds windows, regions and endpoints of different zones.
fn zones() -> Vec<Op> {
    let other = |start| lmr_create(SECOND, start, 16, 0);
    let mut ops = vec![
        pz_create(),
        other(0),
        rmr_create(SECOND),
        bind(SECOND, segment(FIRST, 0, 8), FIRST),
        bind(SECOND, segment(THIRD, 0, 8), FIRST),
        bind(FIRST, segment(THIRD, 0, 8), FIRST),
        bind(SECOND, NOTHING, FIRST),
        send(FIRST, &[segment(THIRD, 0, 8)]),
        read(FIRST, &[segment(THIRD, 0, 8)], remote(0)),
        receive(FIRST, &[segment(THIRD, 0, 8)]),
        pz_free(SECOND),
    ];
    for privileges in [192, 232] {
        ops.push(rmr_bind(SECOND, segment(FIRST, 0, 8), privileges, FIRST, 0));
        ops.push(bind_with(segment(THIRD, 0, 8), privileges, 0));
    }
    ops.extend([
        ep_modify_pz(SECOND, SECOND),
        ep_modify_pz(FIRST, SECOND),
        ep_modify_pz(SECOND, Pick::Null),
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
    ops.push(lmr_free(THIRD));
    for segments in lists {
        let segments = segments.to_vec();
        let before = there(sync_read(segments.clone()));
        let after = there(sync_write(segments.clone()));
        ops.extend([
            there(store(4, 9, 20)),
            before,
            read(FIRST, &[segment(FIRST, 0, 16)], remote(1)),
            write(FIRST, &[segment(FIRST, 0, 16)], remote(1)),
            after,
            sync_read(segments.clone()),
            sync_write(segments),
        ]);
        ops.extend(idle_and_drain());
    }
    ops
}
