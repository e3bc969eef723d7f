//! Remote shared memory between processes: segments, vectors, barriers, signals, refusals, deaths.

use dat_rsm::{
    AccessEntry, BarrierMode, BarrierScope, GetEntry, ImportState, Permission, PutEntry, RsmError,
    SignalFlags, Source, Target, VectorError, VectorFlags,
};

use crate::node::{Node, PAGE, SEGMENT, load, node_number, pattern, put};
use crate::runner::{server_and_two_clients, two_sides};

const NONE: VectorFlags = VectorFlags::empty();
const PAGES: usize = 4;
const BYTES: usize = PAGES * PAGE;

/// Expects that a vector failed with this error and this number of entries left.
#[track_caller]
fn left(outcome: Result<(), VectorError>, error: RsmError, residual: usize) {
    let failure = outcome.expect_err("a failure");
    let found = (failure.error, failure.residual);
    assert_eq!(found, (error, residual), "{failure}");
}

/// Expects that a segment has exactly these bytes.
#[track_caller]
fn same(found: &[u8], expected: &[u8]) {
    dat_tests::fixture::equal("the segment", found, expected);
}

/// Vectors of registered memory, and of bytes, go to another process and come back.
///
/// Spec: RSMPV-01..07, RSMPV-11, RSMPV-12, RSMPV-20, RSMPV-21, RSMPV-30, RSMPV-53, RSMLH-01,
/// RSMLH-10, RSMMD-01
#[test]
fn vectors_cross() {
    two_sides(
        |near| {
            let node = Node::new(near, 2);
            let (engine, wait) = (&node.engine, &mut Node::wait());
            near.hear("the segment");
            let import = node.import(1, SEGMENT, Permission::all());
            let import = import.expect("connected");
            assert_eq!(engine.mode(import), Ok(BarrierMode::Implicit));
            assert_eq!(engine.import_length(import), Ok(BYTES as u64));
            let (local, source) = node.local(300, 3);
            let bytes = pattern(9, 50);
            let entries = [
                put(local, 7, 1001, 101),
                PutEntry {
                    local: Source::Bytes(&bytes),
                    ..put(local, 3, 10, 40)
                },
                PutEntry {
                    local: Source::Shared(source),
                    ..put(local, 299, BYTES as u64 - 1, 1)
                },
            ];
            engine.putv(import, &entries, NONE, wait).expect("a vector");
            near.meet("put");
            let (target, memory) = node.local(300, 4);
            let mut expected = load(memory);
            let mut back = [0; 40];
            let entry = |local, local_offset, remote_offset, length| GetEntry {
                local,
                local_offset,
                remote_offset,
                length,
            };
            let mut entries = [
                entry(Target::Handle(target), 0, 1001, 101),
                entry(Target::Bytes(&mut back), 0, 10, 40),
                entry(Target::Shared(memory), 299, BYTES as u64 - 1, 1),
            ];
            engine
                .getv(import, &mut entries, NONE, wait)
                .expect("a vector");
            expected[..101].copy_from_slice(&load(source)[7..108]);
            expected[299] = load(source)[299];
            same(&load(memory), &expected);
            same(&back, &bytes[3..43]);
            for local in [local, target] {
                let freed = engine.free_local_memory(node.controller, local, wait);
                assert_eq!(freed, Ok(()));
            }
            let freed = engine.putv(import, &[put(local, 0, 0, 1)], NONE, wait);
            left(freed, RsmError::BadScatterGather, 1);
            assert_eq!(engine.import_disconnect(import, wait), Ok(()));
        },
        |far| {
            let node = Node::new(far, 2);
            let (_, memory) = node.export(PAGES, SEGMENT, &[]);
            far.tell("the segment", &[]);
            far.meet("put");
            let mut expected = vec![0; BYTES];
            let source = pattern(3, 300);
            expected[1001..1102].copy_from_slice(&source[7..108]);
            expected[10..50].copy_from_slice(&pattern(9, 50)[3..43]);
            expected[BYTES - 1] = source[299];
            same(&load(memory), &expected);
        },
    );
}

/// In explicit mode the close of a barrier completes all transfers, and an order separates them.
///
/// Spec: RSMPV-40, RSMPV-41, RSMPV-43, RSMBR-01..05, RSMBR-07, RSMBR-08, RSMMD-02
#[test]
fn barriers_complete_transfers() {
    const ROUNDS: u8 = 8;
    two_sides(
        |near| {
            let node = Node::new(near, 2);
            let (engine, wait) = (&node.engine, &mut Node::wait());
            near.hear("the segment");
            let import = node.import(1, SEGMENT, Permission::all());
            let import = import.expect("connected");
            assert_eq!(engine.set_mode(import, BarrierMode::Explicit), Ok(()));
            let barrier = engine.init_barrier(import, BarrierScope::default());
            let barrier = barrier.expect("a barrier");
            let not_opened = Err(RsmError::BarrierNotOpened);
            assert_eq!(engine.close_barrier(barrier, wait), not_opened);
            for round in 0..ROUNDS {
                let (local, _) = node.local(BYTES, round);
                assert_eq!(engine.open_barrier(barrier), Ok(()));
                for page in 0..PAGES {
                    let page = (page * PAGE) as u64;
                    let entries: Vec<_> = (0..16)
                        .map(|at| put(local, page + at * 256, page + at * 256, 256))
                        .collect();
                    engine.putv(import, &entries, NONE, wait).expect("begun");
                    if page == PAGE as u64 {
                        assert_eq!(engine.order_barrier(barrier, wait), Ok(()));
                        near.meet("ordered");
                    }
                }
                assert_eq!(engine.close_barrier(barrier, wait), Ok(()));
                near.meet("closed");
                let freed = engine.free_local_memory(node.controller, local, wait);
                assert_eq!(freed, Ok(()));
                near.meet("seen");
            }
            assert_eq!(engine.destroy_barrier(barrier), Ok(()));
        },
        |far| {
            let node = Node::new(far, 2);
            let (_, memory) = node.export(PAGES, SEGMENT, &[]);
            far.tell("the segment", &[]);
            for round in 0..ROUNDS {
                let expected = pattern(round, BYTES);
                far.meet("ordered");
                same(&load(&memory[..2 * PAGE]), &expected[..2 * PAGE]);
                far.meet("closed");
                same(&load(memory), &expected);
                far.meet("seen");
            }
        },
    );
}

/// Signals go both ways, and one that a vector raises comes behind the bytes of the vector.
///
/// Spec: RSMPV-70, RSMPV-71, RSMPV-73, RSMPV-74, RSMSG-01, RSMSG-03, RSMSG-06, RSMSG-07
#[test]
fn signals_go_both_ways() {
    const ROUNDS: u8 = 16;
    two_sides(
        |near| {
            let node = Node::new(near, 2);
            let (engine, wait) = (&node.engine, &mut Node::wait());
            near.hear("the segment");
            let import = node.import(1, SEGMENT, Permission::all());
            let import = import.expect("connected");
            for round in 0..ROUNDS {
                near.step(&format!("round {round}"));
                let (local, _) = node.local(PAGE, round);
                let signal = VectorFlags::IMPLICIT_SIGPOST;
                let entries = [put(local, 0, 0, PAGE as u64)];
                engine
                    .putv(import, &entries, signal, wait)
                    .expect("a vector");
                assert_eq!(engine.signal_wait(import, None, wait), Ok(()));
                let freed = engine.free_local_memory(node.controller, local, wait);
                assert_eq!(freed, Ok(()));
            }
            let flags = SignalFlags::empty();
            assert_eq!(engine.signal_post(import, flags, wait), Ok(()));
            near.meet("signalled");
            assert_eq!(engine.signal_take(import), Ok(false));
        },
        |far| {
            let node = Node::new(far, 2);
            let (engine, wait) = (&node.engine, &mut Node::wait());
            let (export, memory) = node.export(1, SEGMENT, &[]);
            far.tell("the segment", &[]);
            for round in 0..ROUNDS {
                assert_eq!(engine.signal_wait(export, None, wait), Ok(()));
                same(&load(memory), &pattern(round, PAGE));
                let flags = SignalFlags::empty();
                assert_eq!(engine.signal_post(export, flags, wait), Ok(()));
            }
            assert_eq!(engine.signal_wait(export, None, wait), Ok(()));
            far.meet("signalled");
            assert_eq!(engine.signal_take(export), Ok(false));
        },
    );
}

/// The exporter's process decides who may connect and for what; the importer's checks the rest.
///
/// Spec: RSMIM-01, RSMIM-02, RSMPB-03, RSMPV-50..52, RSMPV-54, RSMPV-58, RSMPV-81, RSMPV-E04..E07
#[test]
fn access_is_refused() {
    const READABLE: u32 = SEGMENT + 1;
    const FOREIGN: u32 = SEGMENT + 2;
    two_sides(
        |near| {
            let node = Node::new(near, 2);
            let (engine, wait) = (&node.engine, &mut Node::wait());
            near.hear("the segments");
            for (id, permission, error) in [
                (READABLE, Permission::WRITE, RsmError::PermissionDenied),
                (READABLE, Permission::all(), RsmError::PermissionDenied),
                (
                    FOREIGN,
                    Permission::READ,
                    RsmError::SegmentNotPublishedToNode,
                ),
                (SEGMENT + 3, Permission::READ, RsmError::SegmentNotPublished),
            ] {
                assert_eq!(node.import(1, id, permission), Err(error), "{id:#x}");
            }
            let import = node.import(1, SEGMENT, Permission::all());
            let import = import.expect("connected");
            let reader = node.import(1, READABLE, Permission::READ);
            let reader = reader.expect("connected to read");
            let (local, _) = node.local(100, 1);
            let good = put(local, 0, 0, 16);
            let denied = engine.putv(reader, &[good; 2], NONE, wait);
            left(denied, RsmError::PermissionDenied, 2);
            let page = PAGE as u64;
            for (bad, error) in [
                (put(local, 101, 0, 0), RsmError::BadOffset),
                (put(local, 0, page + 1, 0), RsmError::BadOffset),
                (put(local, 1, 0, 100), RsmError::BadLength),
                (put(local, 0, page - 5, 6), RsmError::BadLength),
                (put(local, 0, 5, u64::MAX - 2), RsmError::BadLength),
            ] {
                // What comes before the bad entry is written, nothing behind it.
                let entries = [good, bad, put(local, 0, 500, 16)];
                left(engine.putv(import, &entries, NONE, wait), error, 2);
            }
            // The connections live.
            let mut bytes = [0; 16];
            let mut entries = [GetEntry {
                local: Target::Bytes(&mut bytes),
                local_offset: 0,
                remote_offset: 0,
                length: 16,
            }];
            let outcome = engine.getv(reader, &mut entries, NONE, wait);
            assert_eq!(outcome, Ok(()));
            assert_eq!(bytes, [7; 16]);
            near.meet("refused");
        },
        |far| {
            let node = Node::new(far, 2);
            let (_, memory) = node.export(1, SEGMENT, &[]);
            let only = |side, permission| AccessEntry {
                node: node_number(side),
                permission,
            };
            let (_, readable) = node.export(1, READABLE, &[only(0, 0o444)]);
            let (_, foreign) = node.export(1, FOREIGN, &[only(1, 0o666)]);
            for cell in readable {
                cell.store(7, std::sync::atomic::Ordering::Relaxed);
            }
            far.tell("the segments", &[]);
            far.meet("refused");
            let mut expected = vec![0; PAGE];
            expected[..16].copy_from_slice(&pattern(1, 16));
            same(&load(memory), &expected);
            same(&load(readable), &[7; PAGE]);
            same(&load(foreign), &[0; PAGE]);
        },
    );
}

/// The end of a segment aborts the importer's connection; its memory is not reached any more.
///
/// A new segment under the same id is another connection.
///
/// Spec: RSMST-01, RSMST-03, RSMPB-20, RSMPV-84, RSMPV-E09
#[test]
fn ended_segment_aborts_the_import() {
    two_sides(
        |near| {
            let node = Node::new(near, 2);
            let (engine, wait) = (&node.engine, &mut Node::wait());
            let (local, _) = node.local(16, 1);
            let entries = [put(local, 0, 0, 16)];
            near.hear("the segment");
            let import = || {
                let import = node.import(1, SEGMENT, Permission::all());
                import.expect("connected")
            };
            let ended = import();
            assert_eq!(engine.putv(ended, &entries, NONE, wait), Ok(()));
            near.meet("put");
            near.meet("ended");
            let outcome = engine.putv(ended, &entries, NONE, wait);
            left(outcome, RsmError::ConnectionAborted, 1);
            assert_eq!(engine.import_state(ended), Ok(ImportState::Aborted));
            near.meet("aborted");
            near.hear("the second segment");
            let second = import();
            assert_eq!(engine.putv(second, &entries, NONE, wait), Ok(()));
            let outcome = engine.putv(ended, &entries, NONE, wait);
            left(outcome, RsmError::ConnectionAborted, 1);
            near.meet("put again");
            for import in [ended, second] {
                assert_eq!(engine.import_disconnect(import, wait), Ok(()));
            }
        },
        |far| {
            let node = Node::new(far, 2);
            let (engine, wait) = (&node.engine, &mut Node::wait());
            let (export, memory) = node.export(1, SEGMENT, &[]);
            far.tell("the segment", &[]);
            far.meet("put");
            same(&load(&memory[..16]), &pattern(1, 16));
            assert_eq!(engine.export_unpublish(export, wait), Ok(()));
            assert_eq!(engine.export_destroy(export, wait), Ok(()));
            for cell in memory {
                cell.store(0xEE, std::sync::atomic::Ordering::Relaxed);
            }
            far.meet("ended");
            far.meet("aborted");
            same(&load(memory), &[0xEE; PAGE]);
            let (_, second) = node.export(1, SEGMENT, &[]);
            far.tell("the second segment", &[]);
            far.meet("put again");
            same(&load(&second[..16]), &pattern(1, 16));
            same(&load(memory), &[0xEE; PAGE]);
        },
    );
}

/// The death of the exporter fails the vectors of its importer, which can be freed.
///
/// Spec: RSMST-01, RSMPV-E09, RSMGEN-04
#[test]
fn killed_exporter_aborts_the_import() {
    two_sides(
        |near| {
            let node = Node::alert(near, 2);
            let (engine, wait) = (&node.engine, &mut Node::wait());
            near.hear("the segment");
            let import = node.import(1, SEGMENT, Permission::all());
            let import = import.expect("connected");
            let (local, _) = node.local(16, 1);
            let entries = [put(local, 0, 0, 16)];
            // A busy exporter may break the connection, which is made anew, but not for ever.
            let put = (0..10).any(|_| engine.putv(import, &entries, NONE, wait).is_ok());
            assert!(put, "the exporter lives");
            near.kill(near.other());
            near.step("the exporter is dead");
            let outcome = engine.putv(import, &entries, NONE, wait);
            let failure = outcome.expect_err("a failure");
            let error = failure.error;
            assert!(
                [RsmError::ConnectionAborted, RsmError::RemoteNodeUnreachable].contains(&error),
                "{failure}"
            );
            assert_eq!(failure.residual, 1);
            assert_eq!(engine.import_disconnect(import, wait), Ok(()));
            let again = node.import(1, SEGMENT, Permission::all());
            assert_eq!(again, Err(RsmError::RemoteNodeUnreachable));
        },
        |far| {
            let node = Node::alert(far, 2);
            node.export(1, SEGMENT, &[]);
            far.tell("the segment", &[]);
            far.wait_to_be_killed();
        },
    );
}

/// One exporter serves two importers with different rights; a signal reaches both.
///
/// Spec: RSMIM-02, RSMPB-03, RSMSG-01, RSMSG-03, RSMSG-06, RSMPV-01, RSMPV-E07
#[test]
fn one_exporter_serves_two_processes() {
    server_and_two_clients(
        |server| {
            let node = Node::new(server, 3);
            let (engine, wait) = (&node.engine, &mut Node::wait());
            let only = |side, permission| AccessEntry {
                node: node_number(side),
                permission,
            };
            let access = [only(1, 0o666), only(2, 0o444)];
            let (export, memory) = node.export(1, SEGMENT, &access);
            server.meet("the segment");
            server.meet("connected");
            assert_eq!(engine.signal_wait(export, None, wait), Ok(()));
            same(&load(memory), &pattern(1, PAGE));
            let flags = SignalFlags::empty();
            assert_eq!(engine.signal_post(export, flags, wait), Ok(()));
            server.meet("done");
            same(&load(memory), &pattern(1, PAGE));
        },
        |client| {
            let node = Node::new(client, 3);
            let (engine, wait) = (&node.engine, &mut Node::wait());
            let permission = if client.number == 1 {
                Permission::all()
            } else {
                Permission::READ
            };
            client.meet("the segment");
            let import = node.import(0, SEGMENT, permission).expect("connected");
            let (local, _) = node.local(PAGE, client.number as u8);
            let entries = [put(local, 0, 0, PAGE as u64)];
            client.meet("connected");
            let signal = VectorFlags::IMPLICIT_SIGPOST;
            let outcome = engine.putv(import, &entries, signal, wait);
            if client.number == 1 {
                assert_eq!(outcome, Ok(()));
            } else {
                left(outcome, RsmError::PermissionDenied, 1);
            }
            assert_eq!(engine.signal_wait(import, None, wait), Ok(()));
            let (target, memory) = node.local(PAGE, 9);
            let mut entries = [GetEntry {
                local: Target::Handle(target),
                local_offset: 0,
                remote_offset: 0,
                length: PAGE as u64,
            }];
            assert_eq!(engine.getv(import, &mut entries, NONE, wait), Ok(()));
            same(&load(memory), &pattern(1, PAGE));
            client.meet("done");
        },
    );
}
