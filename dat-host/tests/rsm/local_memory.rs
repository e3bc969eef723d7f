//! Local memory in vectors.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dat_host::Error;
use dat_host::rsm::{FailedVector, Put, RsmError, VectorFlags};

use super::common;
use super::pair::{Pair, counted, exchange_local_memory, node, reason};

#[test]
fn vectors_use_local_memory_in_place() {
    exchange_local_memory(&Pair::new());
}

#[cfg(feature = "roce")]
#[test]
fn vectors_use_local_memory_in_place_over_udp() {
    let far = node(2).listen(7177).peer(1, "127.0.0.39:0");
    let near = node(1).peer(2, "127.0.0.40:7177");
    let far = far.open("roce://127.0.0.40").unwrap();
    exchange_local_memory(&Pair::of(near.open("roce://127.0.0.39").unwrap(), far));
}

#[test]
fn local_memory_is_refused_where_it_is_not_the_nodes() {
    let pair = Pair::new();
    let import = &pair.import;
    let none = VectorFlags::empty();
    let refused = |failed: FailedVector<Put<_>>| {
        assert_eq!((failed.entries.len(), failed.error.residual), (1, 1));
        failed.error.error
    };
    let put = |memory| vec![Put { memory, offset: 0 }];
    let local = pair.near.local_memory(vec![1_u8; 64]).unwrap();
    assert!(matches!(
        local.slice(32..65),
        Err(Error::OutOfRange { end: 65, .. })
    ));
    let slice = local.slice(8..16).unwrap();
    assert_eq!((slice.len(), slice.is_empty()), (8, false));
    import.putv(put(slice), none).wait().unwrap();
    local.free().wait().unwrap();
    let failed = import.putv(put(slice), none).wait().unwrap_err();
    assert_eq!(refused(failed), RsmError::BadScatterGather);
    let foreign = pair.far.local_memory(vec![1_u8; 64]).unwrap();
    let slice = foreign.slice(..).unwrap();
    let failed = import.putv(put(slice), none).wait().unwrap_err();
    assert_eq!(refused(failed), RsmError::BadScatterGather);
    let empty = pair.near.local_memory(Vec::new()).unwrap_err();
    assert_eq!(reason(Err::<(), _>(empty.error)), RsmError::BadLength);
}

#[test]
fn dropped_local_memory_returns_once_and_outlives_no_node() {
    let pair = Pair::new();
    let drops = Arc::new(AtomicUsize::new(0));
    drop(pair.near.local_memory(counted(&drops)).unwrap());
    common::eventually("the memory is dropped", || {
        drops.load(Ordering::SeqCst) == 1
    });
    // A call that is never made, and one after the node is closed.
    drop(pair.near.local_memory(counted(&drops)).unwrap().free());
    common::eventually("the memory is dropped", || {
        drops.load(Ordering::SeqCst) == 2
    });
    let local = pair.near.local_memory(counted(&drops)).unwrap();
    pair.near.clone().close().wait().unwrap();
    assert!(local.free().wait().is_err());
    assert_eq!(drops.load(Ordering::SeqCst), 2, "the engine may use it");
    drop(pair);
    common::eventually("the memory is dropped", || {
        drops.load(Ordering::SeqCst) == 3
    });
}
