//! The stage of the chapters: two adapters, A and B, on one network.

use backend_mock::NodeOptions;
use dat_core::attributes::EpAttributes;
use dat_core::event::Event;
use dat_core::flags::EpFields;
use dat_core::id::{EpId, EvdId};

use super::step::{Happening, Outcome};
use crate::failure::{During, Failure, Result};
use crate::host::{self, HostBackend, Network, Node};
use crate::names::constant;

/// Maximum network steps for the effects of one call.
const PATIENCE: usize = 10_000;

/// Two nodes and the names of their endpoints.
pub(crate) struct Stage<N: Network> {
    network: N,
    pub(crate) a: Node<N::Backend>,
    pub(crate) b: Node<N::Backend>,
    names: Vec<(EpId, &'static str)>,
}

impl<N: Network> Stage<N> {
    /// Opens both nodes; unless `coherent`, B's device does not see the processor's caches.
    pub(crate) fn open(coherent: bool) -> Result<Self> {
        let network = N::in_steps();
        let (a, b) = (NodeOptions::new("A", 1), NodeOptions::new("B", 2));
        let b = if coherent { b } else { b.non_coherent() };
        Ok(Self {
            a: Node::open(&network, a, &host::LIMITS)?,
            b: Node::open(&network, b, &host::LIMITS)?,
            network,
            names: Vec::new(),
        })
    }

    /// Returns the attributes of the tour's endpoints.
    pub(crate) fn attributes() -> EpAttributes {
        EpAttributes {
            max_rdma_read_in: 1,
            max_rdma_read_out: 1,
            ..EpAttributes::DEFAULT
        }
    }

    /// Gives an endpoint a name in reports.
    pub(crate) fn name(&mut self, endpoint: EpId, name: &'static str) {
        self.names.push((endpoint, name));
    }

    /// Connects an endpoint of A with one of B.
    pub(crate) fn connect(&self, a: EpId, b: EpId) -> Result<()> {
        host::connect(&self.network, (&self.a, a), (&self.b, b))
    }

    /// Resets two disconnected endpoints and connects them again.
    pub(crate) fn reconnect(&self, a: EpId, b: EpId) -> Result<()> {
        self.a.ia.ep_reset(a).during("dat_ep_reset")?;
        self.b.ia.ep_reset(b).during("dat_ep_reset")?;
        self.connect(a, b)
    }

    /// Runs all effects of a call, without dequeuing events.
    pub(crate) fn go_on(&self) {
        for _ in 0..PATIENCE {
            self.progress();
            if !self.network.step() {
                break;
            }
        }
        self.progress();
    }

    fn progress(&self) {
        let now = self.network.now();
        self.a.ia.progress(now);
        self.b.ia.progress(now);
    }

    /// Runs all effects of a call; returns its outcome with the events of both nodes.
    pub(crate) fn outcome_of(&self, result: dat_core::Result<()>) -> Result<Outcome> {
        let mut dispatchers = Vec::new();
        for (name, node) in [("A", &self.a), ("B", &self.b)] {
            for evd in [
                node.requests,
                node.receives,
                node.connections,
                node.arrivals,
                node.ia.async_evd(),
            ] {
                dispatchers.push((name, node, evd, Vec::new()));
            }
        }
        for round in 0.. {
            self.progress();
            let mut found = false;
            for (name, node, evd, events) in &mut dispatchers {
                while let Some(event) = self.dequeue(name, node, *evd)? {
                    events.push(event);
                    found = true;
                }
            }
            if !self.network.step() && !found {
                break;
            }
            if round > PATIENCE {
                return Err(Failure::operation(
                    "the network did not become idle",
                    "an operation does not end",
                ));
            }
        }
        let events = dispatchers.into_iter().flat_map(|(.., events)| events);
        Ok(Outcome::of(result).events(events.collect()))
    }

    fn dequeue(
        &self,
        node_name: &'static str,
        node: &Node<N::Backend>,
        evd: EvdId,
    ) -> Result<Option<Happening>> {
        let endpoint = |ep| {
            let named = self.names.iter().find(|(id, _)| *id == ep);
            named.map_or(node_name, |(_, name)| name)
        };
        Ok(host::dequeue(&node.ia, evd)?.map(|event| match event {
            Event::Dto(done) => Happening::Transfer {
                endpoint: endpoint(done.ep),
                operation: done.operation,
                status: done.status,
                length: if done.status == dat_core::flags::DtoStatus::Success {
                    done.transferred_length
                } else {
                    0
                },
                cookie: done.cookie,
            },
            Event::RmrBind(done) => Happening::Bind {
                node: node_name,
                status: done.status,
                cookie: done.cookie,
            },
            Event::Connection { kind, ep, .. } => Happening::Connection {
                endpoint: endpoint(ep),
                kind,
            },
            Event::Async {
                kind,
                handle,
                reason,
            } => Happening::Async {
                node: node_name,
                kind,
                about: handle.kind(),
                reason,
            },
            other => Happening::Other(format!("{node_name}: {other:?}")),
        }))
    }
}

/// Returns the state of an endpoint, as the name of its constant.
pub(crate) fn state<B: HostBackend>(node: &Node<B>, endpoint: EpId) -> Result<String> {
    let status = node
        .ia
        .ep_query(endpoint, EpFields::STATE)
        .during("dat_ep_query")?;
    Ok(format!("DAT_EP_STATE_{}", constant(status.state)))
}
