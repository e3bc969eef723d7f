//! Vectors that succeed.

use crate::fixture::RsmTestbed;
use dat_rsm::{GetEntry, PutEntry, Source, Target, VectorFlags};

use crate::fixture::nodes::{Nodes, load, pattern, put, put_handle};

/// Spec: RSMPV-01, RSMPV-02, RSMPV-03, RSMPV-04, RSMPV-05, RSMPV-06, RSMPV-07, RSMPV-20, RSMPV-30, RSMPV-53
pub fn bytes_are_gathered_and_gaps_are_left<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let (_, import, memory) = nodes.segment(1);
    let (local, source) = nodes.local(0, 300, 3);
    let bytes = pattern(9, 50);
    let entries = [
        put_handle(local, 7, 1001, 101),
        PutEntry {
            local_offset: 3,
            length: 40,
            ..put(&bytes, 10)
        },
        PutEntry {
            local: Source::Shared(source),
            ..put_handle(local, 299, 4095, 1)
        },
    ];
    nodes
        .engine(0)
        .putv(import, &entries, VectorFlags::empty(), &mut nodes.wait(0))
        .expect("a vector");
    let mut expected = vec![0; 4096];
    let source = load(source);
    expected[1001..1102].copy_from_slice(&source[7..108]);
    expected[10..50].copy_from_slice(&bytes[3..43]);
    expected[4095] = source[299];
    assert!(load(memory) == expected);
}

/// Spec: RSMPV-01, RSMPV-02, RSMPV-03, RSMPV-04, RSMPV-05, RSMPV-06, RSMPV-30, RSMPV-53
pub fn getv_scatters_what_putv_gathered<T: RsmTestbed>(bed: &T) {
    let nodes = Nodes::two(bed);
    let (_, import, memory) = nodes.segment(1);
    crate::fixture::nodes::store(memory, 0, &pattern(4, 4096));
    let (local, target) = nodes.local(0, 300, 3);
    let mut bytes = [0; 50];
    let mut entries = [
        GetEntry {
            local: Target::Handle(local),
            local_offset: 7,
            remote_offset: 1001,
            length: 101,
        },
        GetEntry {
            local: Target::Bytes(&mut bytes),
            local_offset: 3,
            remote_offset: 10,
            length: 40,
        },
        GetEntry {
            local: Target::Shared(target),
            local_offset: 299,
            remote_offset: 4095,
            length: 1,
        },
    ];
    nodes
        .engine(0)
        .getv(
            import,
            &mut entries,
            VectorFlags::empty(),
            &mut nodes.wait(0),
        )
        .expect("a vector");
    let remote = pattern(4, 4096);
    let mut expected = pattern(3, 300);
    expected[7..108].copy_from_slice(&remote[1001..1102]);
    expected[299] = remote[4095];
    assert!(load(target) == expected);
    assert_eq!(bytes[..3], [0; 3]);
    assert_eq!(bytes[3..43], remote[10..50]);
    assert_eq!(bytes[43..], [0; 7]);
}
