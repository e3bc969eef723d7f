//! Nodes of remote shared memory in children of `fork`.

use dat_host::rsm::{
    AccessEntry, BarrierScope, Export, Import, Node, Opening, Permission, Put, RsmError,
    VectorFlags,
};
use dat_host::{Error, Network, Pages};
use futures::executor::block_on;

use super::common::SOON;
use super::in_child;

fn node(number: u32) -> Opening {
    Node::new(number).connect_timeout(SOON)
}

/// Makes a segment of the far node and connects the near one to it.
fn import(near: &Node, far: &Node) -> (Export<Pages>, Import) {
    let export = far.export(Pages::anonymous(1 << 16).unwrap()).unwrap();
    let access = [AccessEntry {
        node: 1,
        permission: 0o666,
    }];
    let id = export.publish(0, &access).unwrap();
    (
        export,
        near.import(2, id, Permission::all()).wait().unwrap(),
    )
}

/// Puts bytes and signals, which the exporter waits for.
fn exchange((export, import): (&Export<Pages>, &Import)) {
    import.put(100, *b"bytes").wait().unwrap();
    import.signal().wait().unwrap();
    export.signaled().wait().unwrap();
    let mut bytes = [0; 5];
    export.load(100, &mut bytes).unwrap();
    assert_eq!(bytes, *b"bytes");
}

#[track_caller]
fn refused<T>(outcome: Result<T, impl Into<Error>>) {
    let error = outcome.err().expect("refused").into();
    assert_eq!(error.rsm(), Some(RsmError::BadControllerHandle), "{error}");
}

/// Ends calls in a child, and refuses the child's own; the parent loses nothing.
fn end_in_child(near: &Node, far: &Node) {
    let (export, import) = import(near, far);
    let local = near.local_memory(vec![1_u8; 64]).unwrap();
    let barrier = import.barrier(BarrierScope::Segment).unwrap();
    let pending = [import.signaled().start(), import.signaled().start()];
    in_child(|| {
        for call in pending {
            refused(block_on(call));
        }
        refused(import.signaled().wait());
        refused(block_on(export.signaled_within(SOON).start()));
        let failed = import.put(0, vec![3; 8]).wait().unwrap_err();
        assert_eq!(failed.memory, [3; 8]);
        refused::<()>(Err(failed));
        let puts = [0, 8].map(|offset| Put {
            memory: local.slice(..8).unwrap(),
            offset,
        });
        let none = VectorFlags::empty();
        let failed = block_on(import.putv(puts.into(), none).start()).unwrap_err();
        assert_eq!((failed.entries.len(), failed.error.residual), (2, 2));
        refused::<()>(Err(failed));
        refused(barrier.order().wait());
        refused(export.publish(0, &[]));
        refused(near.import(2, 1, Permission::READ).wait());
        let failed = far.export(Pages::anonymous(4096).unwrap()).unwrap_err();
        assert_eq!(failed.memory.len(), 4096);
        refused(near.clone().close().wait());
        // Memory that peers use stays as it is, and what the child drops stays the parent's.
        export.store(0, &[5]).unwrap();
    });
    exchange((&export, &import));
    // The same objects, dropped in a child.
    let objects = (near.clone(), far.clone(), export, import, local, barrier);
    in_child(move || drop(objects));
    let (export, import) = self::import(near, far);
    exchange((&export, &import));
}

#[test]
fn calls_of_a_node_end_in_a_child() {
    for polls in [false, true] {
        let network = Network::new(Network::options());
        let far = node(2).listen(7).peer(1, "near:0").network(&network);
        let near = node(1).peer(2, "far:7").network(&network);
        let near = match polls {
            true => near.poll(std::thread::yield_now),
            false => near,
        };
        let far = far.open("mock://far").unwrap();
        let near = near.open("mock://near").unwrap();
        end_in_child(&near, &far);
    }
}

#[cfg(feature = "roce")]
#[test]
fn calls_of_a_node_on_sockets_end_in_a_child() {
    let far = node(2).listen(7179).peer(1, "127.0.0.43:0");
    let near = node(1).peer(2, "127.0.0.44:7179");
    let far = far.open("roce://127.0.0.44").unwrap();
    end_in_child(&near.open("roce://127.0.0.43").unwrap(), &far);
}

/// A child may open nodes of its own, whatever its parent has open.
#[test]
fn a_child_has_nodes_of_its_own() {
    let network = Network::new(Network::options());
    let _parents = node(1).network(&network).open("mock://near").unwrap();
    in_child(|| {
        let network = Network::new(Network::options());
        let far = node(2).listen(7).peer(1, "near:0").network(&network);
        let near = node(1).peer(2, "far:7").network(&network);
        let far = far.open("mock://far").unwrap();
        let near = near.open("mock://near").unwrap();
        let (export, import) = import(&near, &far);
        exchange((&export, &import));
        import.disconnect().wait().unwrap();
        near.close().wait().unwrap();
    });
}
