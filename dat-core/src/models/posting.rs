//! Posts that read a region's memory while the region is freed.

use loom::thread;
use std::sync::Arc;

use super::prove;
use crate::id::Index;
use crate::storage::{VisitLink, VisitList};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::loom_sync::{Accesses, set_under_way};

/// An endpoint: set while it posts without entering the list, and its link.
struct Endpoint {
    resumed: loom::sync::Mutex<bool>,
    link: VisitLink,
}

struct Bench {
    list: VisitList,
    endpoints: [Endpoint; 2],
    /// Set while the region is registered.
    is_live: AtomicU32,
    memory: Accesses,
}

impl Bench {
    fn new() -> Arc<Self> {
        let endpoint = || Endpoint {
            resumed: loom::sync::Mutex::new(false),
            link: VisitLink::NONE,
        };
        let bench = Self {
            list: VisitList::new(),
            endpoints: [endpoint(), endpoint()],
            is_live: AtomicU32::new(1),
            memory: Accesses::new(),
        };
        // The first thread to use an object makes it.
        assert!(bench.list.take().is_none());
        bench.is_live.store(1, Ordering::Relaxed);
        bench.memory.write();
        for endpoint in &bench.endpoints {
            endpoint.link.clear();
        }
        set_under_way(true);
        Arc::new(bench)
    }

    /// Posts a request of an endpoint, which reads the memory of the region if it is registered.
    fn post(&self, index: usize) {
        let endpoint = &self.endpoints[index];
        let mut resumed = endpoint.resumed.lock().unwrap();
        if !*resumed {
            self.list.enter(Index::new(index).unwrap(), &endpoint.link);
            *resumed = true;
        }
        if self.is_live.load(Ordering::Relaxed) != 0 {
            self.memory.read();
        }
    }

    /// Frees the region, as `Ia::lmr_free` does.
    fn free(&self) -> usize {
        self.is_live.store(0, Ordering::Relaxed);
        let mut next = self.list.take();
        let mut waited = 0;
        while let Some(index) = next {
            let endpoint = &self.endpoints[usize::from(index)];
            let mut resumed = endpoint.resumed.lock().unwrap();
            next = VisitList::next(index, &endpoint.link);
            *resumed = false;
            waited += 1;
        }
        self.memory.write();
        waited
    }
}

/// The memory of a freed region is read by no post, whether its endpoint posts often or first.
///
/// Spec: LMF-03
#[test]
fn no_post_reads_a_freed_region() {
    prove(None, || {
        let bench = Bench::new();
        bench.post(0);
        let other = bench.clone();
        let thread = thread::spawn(move || {
            other.post(0);
            other.post(1);
        });
        assert!(bench.free() >= 1);
        thread.join().unwrap();
    });
}

/// Endpoints that enter the list at the same time are all found in it.
///
/// Spec: LMF-03
#[test]
fn each_posting_endpoint_is_waited_for() {
    prove(None, || {
        let bench = Bench::new();
        let (first, second) = (bench.clone(), bench.clone());
        let threads = [
            thread::spawn(move || first.post(0)),
            thread::spawn(move || second.post(1)),
        ];
        let early = bench.free();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(early + bench.free(), 2);
    });
}
