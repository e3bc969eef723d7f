//! Two nodes of remote shared memory in this process, on the mock, driven by one thread.

use std::task::Waker;

use backend_mock::{Fabric, FabricOptions, MockBackend, NodeOptions};
use dat_core::event::{Wait, WakeReason};
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_rsm::{ControllerConfig, ControllerId, DEFAULT_QUALIFIER, NodeEntry, NodeId, Options, Rsm};
use dat_storage::Limits;

use crate::failure::Result;
use crate::host;
use crate::rsm::failure::DuringRsm;

/// An engine that lives as long as the program.
pub(crate) type Engine = Rsm<'static, MockBackend, HostLock>;

/// The name of the controllers.
const CONTROLLER: &str = "dat0";

/// The sizes that an adapter starts with that carries remote shared memory to a few nodes.
const LIMITS: Limits = Limits {
    endpoints: 8,
    connection_requests: 8,
    zones: 10,
    local_regions: 256,
    remote_regions: 256,
    records: 2048,
    ..host::LIMITS
};

/// One of the two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    A,
    B,
}

impl End {
    /// Returns the number of the node in the interface.
    pub(crate) const fn node(self) -> NodeId {
        match self {
            Self::A => 1,
            Self::B => 2,
        }
    }
}

/// Two nodes on one fabric, each with an open controller.
pub(crate) struct Pair {
    fabric: Fabric,
    a: (Engine, ControllerId),
    b: (Engine, ControllerId),
}

impl Pair {
    /// Creates both nodes.
    pub(crate) fn open() -> Result<Self> {
        let fabric = Fabric::new(FabricOptions::default());
        let nodes = [End::A, End::B].map(|end| {
            let options = NodeOptions::new("rsm", u64::from(end.node()));
            let entry = NodeEntry {
                node: end.node(),
                controller: CONTROLLER,
                address: options.address,
                qualifier: DEFAULT_QUALIFIER,
            };
            (options, entry)
        });
        let table: Vec<NodeEntry> = nodes.iter().map(|(_, entry)| entry.clone()).collect();
        let [a, b] = nodes.map(|(options, entry)| {
            let ia = host::open_static(fabric.node(options), &LIMITS)?;
            let config = ControllerConfig {
                name: CONTROLLER,
                ia,
                qualifier: DEFAULT_QUALIFIER,
                nodes: table.clone(),
            };
            let engine = Rsm::new(Options::new(entry.node, 1), vec![config])
                .during_rsm("creating the RSM engine")?;
            let controller = engine
                .get_controller(Some(CONTROLLER))
                .during_rsm("rsm_get_controller")?;
            Ok((engine, controller))
        });
        Ok(Self {
            fabric,
            a: a?,
            b: b?,
        })
    }

    fn side(&self, end: End) -> &(Engine, ControllerId) {
        match end {
            End::A => &self.a,
            End::B => &self.b,
        }
    }

    /// Returns the engine of a node.
    pub(crate) fn engine(&self, end: End) -> &Engine {
        &self.side(end).0
    }

    /// Returns the controller of a node.
    pub(crate) fn controller(&self, end: End) -> ControllerId {
        self.side(end).1
    }

    /// Returns a wait for a node's calls; it drives the other node and the fabric.
    pub(crate) fn wait(&self, end: End) -> PairWait<'_> {
        let other = match end {
            End::A => End::B,
            End::B => End::A,
        };
        PairWait { pair: self, other }
    }

    /// Returns the time of the fabric.
    pub(crate) fn now(&self) -> Instant {
        self.fabric.now()
    }

    /// Drives both nodes and the fabric until nothing is left to do.
    pub(crate) fn run_until_idle(&self) {
        loop {
            let now = self.now();
            let handled = self.a.0.progress(now) + self.b.0.progress(now);
            if !self.fabric.step() && handled == 0 {
                return;
            }
        }
    }
}

/// Waits by driving the other node and the fabric.
pub(crate) struct PairWait<'p> {
    pair: &'p Pair,
    other: End,
}

impl Wait for PairWait<'_> {
    fn now(&mut self) -> Instant {
        self.pair.now()
    }

    fn waker(&self) -> Waker {
        Waker::noop().clone()
    }

    fn wait(&mut self, until: Option<Instant>) -> WakeReason {
        let now = self.now();
        if self.pair.engine(self.other).progress(now) != 0 || self.pair.fabric.step() {
            return WakeReason::Woken;
        }
        match until {
            Some(until) => {
                self.pair.fabric.run_until(until.max(now));
                WakeReason::TimedOut
            }
            // Nothing is left to happen on the fabric, so no event would end this wait.
            None => WakeReason::Interrupted,
        }
    }
}
