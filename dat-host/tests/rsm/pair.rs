//! Two nodes with a segment, and memory that counts its drops.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dat_host::rsm::{
    AccessEntry, BarrierMode, BarrierScope, Export, Get, Import, LocalMemory, Node, Opening,
    Permission, Put, RsmError, VectorFlags,
};
use dat_host::{Foreign, Pages, Result};
use futures::executor::block_on;

use super::common::{self, SOON};

/// A node that waits for the answers of busy peers.
pub(super) fn node(number: u32) -> Opening {
    Node::new(number).connect_timeout(SOON)
}

/// Two nodes, a segment of 64 KiB and a connection to it.
pub(super) struct Pair {
    pub(super) near: Node,
    pub(super) far: Node,
    pub(super) export: Export<Pages>,
    pub(super) import: Import,
}

impl Pair {
    pub(super) fn new() -> Self {
        let network = common::network();
        let far = node(2).listen(7).peer(1, "near:0").network(&network);
        let near = node(1).peer(2, "far:7").network(&network);
        Self::of(
            near.open("mock://near").unwrap(),
            far.open("mock://far").unwrap(),
        )
    }

    pub(super) fn of(near: Node, far: Node) -> Self {
        let export = far.export(Pages::anonymous(1 << 16).unwrap()).unwrap();
        let id = export.publish(0, &access(0o666)).unwrap();
        let import = near.import(2, id, Permission::all()).wait().unwrap();
        Self {
            near,
            far,
            export,
            import,
        }
    }
}

pub(super) fn access(permission: u32) -> [AccessEntry; 1] {
    [AccessEntry {
        node: 1,
        permission,
    }]
}

pub(super) fn reason<T: std::fmt::Debug>(failed: Result<T>) -> RsmError {
    let error = failed.unwrap_err();
    error.rsm().unwrap_or_else(|| panic!("{error}"))
}

pub(super) fn exchange(pair: &Pair) {
    let Pair { export, import, .. } = pair;
    assert_eq!((import.length().unwrap(), export.len()), (1 << 16, 1 << 16));
    let bytes = import.put(100, b"hello".to_vec()).wait().unwrap();
    let mut read = [0; 5];
    export.load(100, &mut read).unwrap();
    assert_eq!(read[..], bytes[..]);
    export.store(200, b"answer").unwrap();
    assert_eq!(import.get(200, [0; 6]).wait().unwrap(), *b"answer");

    let puts = (0..20_u64).map(|number| Put {
        memory: vec![number as u8; 500],
        offset: number * 1000,
    });
    let puts = import.putv(puts.collect(), VectorFlags::IMPLICIT_SIGPOST);
    assert_eq!(puts.wait().unwrap()[7].memory, [7; 500]);
    export.signaled().wait().unwrap();
    assert!(!export.try_signaled().unwrap(), "one signal for the vector");
    let gets = (0..20_u64).map(|number| Get {
        memory: vec![0; 500],
        offset: number * 1000,
    });
    let gets = import
        .getv(gets.collect(), VectorFlags::empty())
        .wait()
        .unwrap();
    for (number, get) in gets.iter().enumerate() {
        assert_eq!(get.memory, vec![number as u8; 500]);
    }
    export.signal().wait().unwrap();
    import.signaled().wait().unwrap();
}

/// The vector of four parts of local memory, each of `BLOCK` bytes, from or to every second block.
pub(super) const BLOCK: usize = 3000;

pub(super) fn puts<M: dat_host::Stable>(
    local: &LocalMemory<M>,
) -> Vec<Put<dat_host::rsm::LocalSlice>> {
    let put = |index: usize| Put {
        memory: local.slice(index * BLOCK..(index + 1) * BLOCK).unwrap(),
        offset: (2 * index * BLOCK) as u64,
    };
    (0..4).map(put).collect()
}

pub(super) fn gets<M: dat_host::Stable>(
    local: &LocalMemory<M>,
) -> Vec<Get<dat_host::rsm::LocalSlice>> {
    let get = |put: Put<_>| Get {
        memory: put.memory,
        offset: put.offset,
    };
    puts(local).into_iter().map(get).collect()
}

pub(super) fn exchange_local_memory(pair: &Pair) {
    let Pair {
        near,
        export,
        import,
        ..
    } = pair;
    let none = VectorFlags::empty();
    let (from, to) = ([7_u8; 4 * BLOCK], vec![0_u8; 4 * BLOCK]);
    let from = near.local_memory(from.to_vec()).unwrap();
    let to = near.local_memory(to.into_boxed_slice()).unwrap();
    assert_eq!(from.len(), 4 * BLOCK);
    let mut all = [0; 4 * BLOCK];
    export.store(0, &[0; 8 * BLOCK]).unwrap();
    for mode in [BarrierMode::Implicit, BarrierMode::Explicit] {
        let number = 1 + mode as u8;
        from.store(0, &[number; 4 * BLOCK]).unwrap();
        let barrier = import.barrier(BarrierScope::Segment).unwrap();
        import.set_mode(mode).unwrap();
        let explicit = mode == BarrierMode::Explicit;
        let span = |act: &dyn Fn()| {
            if explicit {
                barrier.open().unwrap();
            }
            act();
            if explicit {
                barrier.close().wait().unwrap();
            }
        };
        span(&|| drop(import.putv(puts(&from), none).wait().unwrap()));
        let mut row = [0; BLOCK];
        for block in 0..4 {
            export.load(2 * block * BLOCK, &mut row).unwrap();
            assert!(row == [number; BLOCK]);
            export.load((2 * block + 1) * BLOCK, &mut row).unwrap();
            assert!(row == [0; BLOCK], "between the blocks");
        }
        to.store(0, &[0; 4 * BLOCK]).unwrap();
        span(&|| drop(import.getv(gets(&to), none).wait().unwrap()));
        to.load(0, &mut all).unwrap();
        assert!(all == [number; 4 * BLOCK]);
    }
    import.set_mode(BarrierMode::Implicit).unwrap();
    assert!(*to.free().wait().unwrap() == all);
    assert!(block_on(async { from.free().await }).unwrap() == all);
}

/// Returns true after the check that memory of a host that is not coherent cannot be mapped.
pub(super) fn is_unmapped(import: &Import) -> bool {
    if common::NON_COHERENT {
        let refused = import.map(Permission::all(), 0, 4096);
        assert_eq!(reason(refused), RsmError::MapFailed);
    }
    common::NON_COHERENT
}

/// A value that counts its drops, and says where its memory is.
pub(super) struct Owner(
    #[expect(dead_code, reason = "keeps the memory")] Pages,
    Arc<AtomicUsize>,
);

impl Drop for Owner {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

pub(super) fn counted(drops: &Arc<AtomicUsize>) -> Foreign<Owner> {
    counted_bytes(drops, 4096)
}

/// Memory at the begin of a page, with a length that is no multiple of one.
pub(super) fn short() -> Foreign<Owner> {
    counted_bytes(&Arc::default(), 100)
}

/// The first `length` bytes of a page.
#[expect(unsafe_code, reason = "an owner that counts its drops")]
pub(super) fn counted_bytes(drops: &Arc<AtomicUsize>, length: usize) -> Foreign<Owner> {
    let mut pages = Pages::anonymous(4096).unwrap();
    assert!(length <= pages.len());
    let base = std::ptr::NonNull::from(&mut *pages).cast();
    // SAFETY: the owner keeps the pages, and nothing else uses them.
    unsafe { Foreign::new(Owner(pages, Arc::clone(drops)), base, length) }
}
