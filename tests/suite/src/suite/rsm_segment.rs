//! Controllers, and the lifetimes of segments and connections.

use dat_core::memory::Region;
use dat_rsm::{
    AccessEntry, ConnectionState, ControllerConfig, ControllerId, Credentials, ExportFlags,
    ExportId, ImportId, ImportState, Options, Permission, Rsm, RsmError, VectorFlags,
};

use crate::fixture::nodes::{
    Nodes, PAGE, SEGMENT, impatient, left, load, node_number, pages_of, put,
};
use crate::fixture::{RsmTestbed, open};

const NONE: VectorFlags = VectorFlags::empty();

/// Spec: RSMCT-01, RSMCT-02, RSMCT-03, RSMCT-05, RSMCT-10, RSMCT-11
pub fn controllers_are_counted<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::with_controllers(bed, 1, &["rsm0", "loopback"], |options| options);
    let engine = nodes.engine(0);
    let wait = &mut nodes.wait(0);
    let first = nodes.controller(0);
    assert_eq!(engine.get_controller(Some("RSM")), Ok(first));
    let loopback = engine.get_controller(None).expect("loopback");
    assert_ne!(loopback, first);
    assert_eq!(engine.get_controller(Some("loopback3")), Ok(loopback));
    for absent in ["rsm1", "", "mock0", &"r".repeat(300)] {
        assert_eq!(
            engine.get_controller(Some(absent)),
            Err(RsmError::ControllerNotPresent)
        );
    }
    assert_eq!(engine.release_controller(first, wait), Ok(()));
    assert!(
        engine.controller_attributes(first).is_ok(),
        "one user is left"
    );
    assert_eq!(engine.release_controller(first, wait), Ok(()));
    let freed = Err(RsmError::BadControllerHandle);
    assert_eq!(engine.release_controller(first, wait), freed);
    assert_eq!(engine.release_controller(ControllerId::NULL, wait), freed);
    assert_eq!(
        engine.controller_attributes(first),
        Err(RsmError::BadControllerHandle)
    );
    assert_eq!(
        engine.export_create(
            first,
            Region::from_static(pages_of(1)),
            ExportFlags::empty()
        ),
        Err(RsmError::BadControllerHandle)
    );
    let again = engine.get_controller(Some("rsm0")).expect("open again");
    assert_ne!(again, first, "the old handle stays dead");
    assert_eq!(engine.release_controller(first, wait), freed);
}

/// Spec: RSMCT-06
pub fn a_controller_needs_its_qualifier<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::with(bed, 1, |options| options);
    let node = nodes.node_entries[0].clone();
    let config = ControllerConfig {
        name: node.controller,
        ia: open::<T>(bed.device_at(node.address)),
        qualifier: node.qualifier,
        nodes: nodes.node_entries.clone(),
    };
    let engine = Rsm::new(Options::new(node.node, 1), vec![config]).expect("an engine");
    // Often enough to use up a table, if an attempt left its objects.
    for _ in 0..100 {
        let refused = engine.get_controller(Some(node.controller));
        assert_eq!(refused, Err(RsmError::InsufficientResources));
    }
    nodes.run_to_idle();
    drop(nodes);
    let opened = engine.get_controller(Some(node.controller));
    assert!(opened.is_ok(), "{opened:?}");
}

/// Spec: RSMCT-11, RSMLH-10, RSMGEN-04
pub fn releasing_a_controller_releases_its_objects<T: RsmTestbed>(bed: &T) {
    let (nodes, (export, import, memory)) = Nodes::with_segment(bed, 1);
    let (local, _) = nodes.local(1, 100, 1);
    let (exporter, wait) = (nodes.engine(1), &mut nodes.wait(1));
    exporter
        .release_controller(nodes.controller(1), wait)
        .expect("released");
    assert_eq!(
        exporter.export_unpublish(export, wait),
        Err(RsmError::BadSegmentHandle)
    );
    let again = exporter.get_controller(Some("rsm0")).expect("open again");
    assert_eq!(
        exporter.free_local_memory(again, local, wait),
        Err(RsmError::BadLocalMemoryHandle)
    );
    left(
        nodes
            .engine(0)
            .putv(import, &[put(&[1], 0)], NONE, &mut nodes.wait(0)),
        RsmError::ConnectionAborted,
        1,
    );
    assert_eq!(load(memory)[0], 0);
    // The node can be reached again.
    let made = exporter.export_create(again, Region::from_static(memory), ExportFlags::empty());
    let made = made.expect("a segment");
    exporter
        .export_publish(made, SEGMENT, &[])
        .expect("published");
    let import = nodes.import(0, 1, SEGMENT);
    nodes
        .engine(0)
        .putv(import, &[put(&[1], 0)], NONE, &mut nodes.wait(0))
        .expect("a vector");
}

/// Spec: RSMGEN-04
pub fn the_end_of_a_process_releases_everything<T: RsmTestbed>(bed: &T) {
    let mut nodes = Nodes::with(bed, 2, impatient);
    let (_, import, memory) = nodes.segment(1);
    nodes
        .engine(0)
        .putv(import, &[put(&[1], 0)], NONE, &mut nodes.wait(0))
        .expect("a vector");
    drop(nodes.nodes.pop());
    left(
        nodes
            .engine(0)
            .putv(import, &[put(&[2], 0)], NONE, &mut nodes.wait(0)),
        RsmError::ConnectionAborted,
        1,
    );
    assert_eq!(load(memory)[0], 1);
    assert_eq!(
        nodes
            .engine(0)
            .import_disconnect(import, &mut nodes.wait(0)),
        Ok(())
    );
    assert_eq!(
        nodes.import_as(0, 1, SEGMENT, Permission::READ),
        Err(RsmError::RemoteNodeUnreachable)
    );
}

/// Spec: RSMCT-20, RSMCT-21
pub fn controllers_report_their_attributes<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::with(bed, 1, |mut options| {
        options.limits.exports = 3;
        options.limits.exported_bytes = 5 * PAGE as u64;
        options.limits.segment_bytes = 4 * PAGE as u64;
        options
    });
    let attributes = nodes
        .engine(0)
        .controller_attributes(nodes.controller(0))
        .expect("attributes");
    let sizes = if attributes.mapping { 1 | 2 | 4 | 8 } else { 1 };
    assert_eq!(attributes.direct_access_sizes, sizes);
    assert_eq!(attributes.atomic_sizes, 0);
    assert_eq!(attributes.page_size, PAGE as u64);
    assert_eq!(attributes.max_export_segments, 3);
    assert_eq!(attributes.total_export_segment_size, 5 * PAGE as u64);
    assert_eq!(attributes.max_export_segment_size, 4 * PAGE as u64);
}

/// Spec: RSMTP-01, RSMTP-03
pub fn the_topology_names_every_path<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::with_controllers(bed, 3, &["rsm0", "loopback"], |options| options);
    let topology = nodes.engine(1).topology().expect("a topology");
    assert_eq!(topology.node, node_number(1));
    let names: Vec<_> = topology
        .controllers
        .iter()
        .map(|controller| controller.name)
        .collect();
    assert_eq!(names, ["rsm0", "loopback"]);
    let of = |index: usize| -> Vec<_> {
        let remotes = &topology.controllers[index].remotes;
        assert!(
            remotes
                .iter()
                .all(|remote| remote.state == ConnectionState::Active)
        );
        remotes
            .iter()
            .map(|remote| (remote.node, remote.name))
            .collect()
    };
    assert_eq!(of(0), [(1, "rsm0"), (2, "rsm0"), (3, "rsm0")]);
    assert_eq!(of(1), [(2, "loopback")]);
}

/// Spec: RSMEX-01, RSMEX-02, RSMEX-03, RSMST-05
pub fn segments_are_made_of_whole_pages<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::with(bed, 1, |mut options| {
        options.limits.exports = 3;
        options.limits.exported_bytes = 6 * PAGE as u64;
        options.limits.segment_bytes = 3 * PAGE as u64;
        options
    });
    let (engine, controller) = (nodes.engine(0), nodes.controller(0));
    let memory = pages_of(8);
    let make = |controller, from: usize, length: usize| {
        let region = Region::from_static(&memory[from..from + length]);
        engine.export_create(controller, region, ExportFlags::from_bits_retain(0xF0))
    };
    assert_eq!(
        make(ControllerId::NULL, 1, 0),
        Err(RsmError::BadControllerHandle)
    );
    assert_eq!(make(controller, 1, 0), Err(RsmError::BadLength));
    assert_eq!(make(controller, 1, PAGE), Err(RsmError::BadMemoryAlignment));
    assert_eq!(
        make(controller, 0, PAGE + 1),
        Err(RsmError::BadMemoryAlignment)
    );
    assert_eq!(make(controller, 0, 4 * PAGE), Err(RsmError::BadLength));
    let first = make(controller, 0, 3 * PAGE).expect("a segment");
    assert_eq!(engine.export_length(first), Ok(3 * PAGE as u64));
    let second = make(controller, 0, 2 * PAGE).expect("the same memory again");
    assert_eq!(
        make(controller, 0, 2 * PAGE),
        Err(RsmError::InsufficientMemory)
    );
    make(controller, 0, PAGE).expect("a segment");
    let wait = &mut nodes.wait(0);
    engine.export_destroy(second, wait).expect("destroyed");
    assert_eq!(
        engine.export_destroy(second, wait),
        Err(RsmError::BadSegmentHandle)
    );
    make(controller, 0, PAGE).expect("its bytes and its slot are free");
    assert_eq!(
        make(controller, 0, PAGE),
        Err(RsmError::InsufficientResources)
    );
    assert_eq!(engine.export_destroy(first, wait), Ok(()));
    assert_eq!(engine.export_length(first), Err(RsmError::BadSegmentHandle));
}

/// Spec: RSMPB-01, RSMPB-02, RSMPB-03, RSMPB-05, RSMPB-06, RSMPB-20, RSMEX-03, RSMPB-04
pub fn ids_are_published_and_free_again<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let (engine, controller) = (nodes.engine(1), nodes.controller(1));
    let wait = &mut nodes.wait(1);
    let make = |flags| {
        let region = Region::from_static(pages_of(1));
        engine
            .export_create(controller, region, flags)
            .expect("a segment")
    };
    let (first, second) = (make(ExportFlags::empty()), make(ExportFlags::empty()));
    assert_eq!(
        engine.export_publish(ExportId::NULL, 0, &[]),
        Err(RsmError::BadSegmentHandle)
    );
    assert_eq!(
        engine.export_unpublish(first, wait),
        Err(RsmError::SegmentNotPublished)
    );
    assert_eq!(
        engine.export_republish(first, &[]),
        Err(RsmError::SegmentNotPublished)
    );
    for reserved in [1, 0x3F_FFFF, 0x8000_0000, u32::MAX] {
        assert_eq!(
            engine.export_publish(first, reserved, &[]),
            Err(RsmError::ReservedSegmentId)
        );
    }
    let entry = |node, permission| AccessEntry { node, permission };
    for bad in [
        &[entry(99, 0o666)][..],
        &[entry(1, 0o777)],
        &[entry(1, 0o666), entry(2, 0o666), entry(1, 0o666)],
    ] {
        assert_eq!(
            engine.export_publish(first, SEGMENT, bad),
            Err(RsmError::BadAccessList)
        );
    }
    // None of these calls published the segment.
    assert_eq!(
        nodes.import_as(0, 1, SEGMENT, Permission::READ),
        Err(RsmError::SegmentNotPublished)
    );
    assert_eq!(engine.export_publish(first, SEGMENT, &[]), Ok(SEGMENT));
    // The state is checked before the id.
    assert_eq!(
        engine.export_publish(first, 1, &[]),
        Err(RsmError::SegmentAlreadyPublished)
    );
    assert_eq!(
        engine.export_publish(second, SEGMENT, &[]),
        Err(RsmError::SegmentIdInUse)
    );
    let chosen = engine.export_publish(second, 0, &[]).expect("an id");
    assert_eq!(chosen, 0x8000_0000);
    nodes.import(0, 1, chosen);
    engine.export_unpublish(second, wait).expect("unpublished");
    assert_eq!(
        engine.export_publish(second, 0, &[]),
        Ok(0x8000_0001),
        "not used again"
    );
    engine.export_unpublish(first, wait).expect("unpublished");
    engine.export_unpublish(second, wait).expect("unpublished");
    assert_eq!(
        engine.export_publish(second, SEGMENT, &[]),
        Ok(SEGMENT),
        "free again"
    );
    let locked = make(ExportFlags::LOCK_OPERATIONS);
    assert_eq!(
        engine.export_publish(locked, SEGMENT + 1, &[]),
        Err(RsmError::LocksNotSupported)
    );
}

/// Spec: RSMIM-01, RSMIM-02, RSMIM-03, RSMPB-03, RSMPB-10, RSMEX-04
pub fn access_lists_decide_who_may_connect<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::with(bed, 3, |options| Options {
        // Node 1 has the exporter's user, node 3 only its group.
        credentials: match options.node {
            3 => Credentials { user: 3, group: 20 },
            _ => Credentials { user: 1, group: 20 },
        },
        default_access: 0o420,
        ..options
    });
    let entry = |node, permission| AccessEntry { node, permission };
    let list = [entry(1, 0o600), entry(1, 0o666)];
    let (export, _) = nodes.export_with(1, 1, SEGMENT, ExportFlags::empty(), &list);
    let connect = |node, permission| nodes.import_as(node, 1, SEGMENT, permission);
    let denied = Err(RsmError::PermissionDenied);
    let owner = connect(0, Permission::all()).expect("the owner");
    assert_eq!(connect(0, Permission::empty()), denied);
    assert_eq!(connect(0, Permission::from_bits_retain(0o700)), denied);
    let elsewhere = Err(RsmError::SegmentNotPublishedToNode);
    assert_eq!(connect(2, Permission::READ), elsewhere);
    let exporter = nodes.engine(1);
    let bad = [entry(1, 0o600), entry(9, 0o600)];
    assert_eq!(
        exporter.export_republish(export, &bad),
        Err(RsmError::BadAccessList)
    );
    assert_eq!(
        connect(2, Permission::READ),
        elsewhere,
        "the old list stands"
    );
    exporter
        .export_republish(export, &[entry(3, 0o040)])
        .expect("republished");
    assert!(connect(2, Permission::READ).is_ok());
    assert_eq!(connect(2, Permission::WRITE), denied);
    assert_eq!(connect(0, Permission::READ), elsewhere);
    // An existing connection keeps its rights.
    let engine = nodes.engine(0);
    assert_eq!(engine.import_permission(owner), Ok(Permission::all()));
    engine
        .putv(owner, &[put(&[1], 0)], NONE, &mut nodes.wait(0))
        .expect("a vector");
    exporter.export_republish(export, &[]).expect("republished");
    assert!(connect(0, Permission::READ).is_ok());
    assert_eq!(
        connect(0, Permission::WRITE),
        denied,
        "the owner's default has no write"
    );
    assert!(connect(2, Permission::WRITE).is_ok());
    assert_eq!(connect(2, Permission::READ), denied);
}

/// Spec: RSMIM-03, RSMIM-04, RSMIM-05, RSMIM-06, RSMIM-10, RSMPV-82, RSMGEN-08
pub fn a_node_imports_from_itself_as_from_others<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::with_controllers(bed, 2, &["rsm0", "loopback"], |options| options);
    let engine = nodes.engine(0);
    let loopback = engine.get_controller(None).expect("loopback");
    let wait = &mut nodes.wait(0);
    for controller in [nodes.controller(0), loopback] {
        let memory = pages_of(2);
        let export = engine
            .export_create(
                controller,
                Region::from_static(memory),
                ExportFlags::empty(),
            )
            .expect("a segment");
        let id = engine.export_publish(export, 0, &[]).expect("published");
        let all = Permission::all();
        let import = engine
            .import_connect(controller, 1, id, all, wait)
            .expect("connected");
        let other = engine
            .import_connect(controller, 1, id, all, wait)
            .expect("connected");
        assert_ne!(import, other);
        assert_eq!(engine.import_length(import), Ok(2 * PAGE as u64));
        engine
            .putv(import, &[put(&[1, 2, 3], 5000)], NONE, wait)
            .expect("a vector");
        assert_eq!(load(&memory[5000..5003]), [1, 2, 3]);
        engine
            .import_disconnect(import, wait)
            .expect("disconnected");
        assert_eq!(
            engine.import_disconnect(import, wait),
            Err(RsmError::BadSegmentHandle)
        );
        engine
            .putv(other, &[put(&[4], 0)], NONE, wait)
            .expect("the other one stays");
        engine.export_destroy(export, wait).expect("destroyed");
        left(
            engine.putv(other, &[put(&[4], 0)], NONE, wait),
            RsmError::ConnectionAborted,
            1,
        );
    }
    // Loopback reaches no other node, and its access list names none.
    nodes.engine(1).get_controller(None).expect("loopback");
    let elsewhere = engine.import_connect(loopback, 2, SEGMENT, Permission::READ, wait);
    assert_eq!(elsewhere, Err(RsmError::ControllerNotPresent));
    let export = engine
        .export_create(
            loopback,
            Region::from_static(pages_of(1)),
            ExportFlags::empty(),
        )
        .expect("a segment");
    let foreign = [AccessEntry {
        node: 2,
        permission: 0o666,
    }];
    assert_eq!(
        engine.export_publish(export, 0, &foreign),
        Err(RsmError::BadAccessList)
    );
    // A segment is reached only through the controller that it was created on.
    let id = engine.export_publish(export, 0, &[]).expect("published");
    let import = engine.import_connect(nodes.controller(0), 1, id, Permission::READ, wait);
    assert_eq!(import, Err(RsmError::SegmentNotPublished));
}

/// Spec: RSMIM-01, RSMGEN-05, RSMST-03
pub fn each_reason_fails_a_connect_with_its_error<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    nodes.export(1, 1, SEGMENT);
    let (engine, wait) = (nodes.engine(0), &mut nodes.wait(0));
    let controller = nodes.controller(0);
    let read = Permission::READ;
    let mut connect =
        |controller, node, id| engine.import_connect(controller, node, id, read, wait);
    assert_eq!(
        connect(ControllerId::NULL, 2, SEGMENT),
        Err(RsmError::BadControllerHandle)
    );
    assert_eq!(
        connect(controller, 77, SEGMENT),
        Err(RsmError::RemoteNodeUnreachable)
    );
    assert_eq!(
        connect(controller, 2, SEGMENT + 1),
        Err(RsmError::SegmentNotPublished)
    );
    let import = connect(controller, 2, SEGMENT).expect("connected");
    assert_eq!(engine.import_state(import), Ok(ImportState::Connected));
    assert_eq!(
        engine.import_state(ImportId::NULL),
        Err(RsmError::BadSegmentHandle)
    );
    // A connect that is interrupted at any moment leaves nothing.
    for sleeps in 0..12 {
        let fresh = Nodes::two(bed);
        fresh.export(1, 1, SEGMENT);
        let mut wait = fresh.interrupted_after(0, sleeps);
        let outcome =
            fresh
                .engine(0)
                .import_connect(fresh.controller(0), 2, SEGMENT, read, &mut wait);
        if let Err(error) = outcome {
            assert_eq!(error, RsmError::Interrupted);
        }
        fresh.run_to_idle();
        fresh.import(0, 1, SEGMENT);
    }
}
