//! Which nodes can be reached from where.

use alloc::vec::Vec;

use dat_core::attributes::IaAddress;
use dat_core::backend::Backend;
use dat_core::sync::RawLock;

use crate::engine::Rsm;
use crate::error::{Result, RsmError};
use crate::options::NodeId;

/// The state of a path (`Spec: RSMTP-03`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ConnectionState {
    /// Not in use: nobody asked for a connection yet, or it broke.
    Down = 1,
    /// Being connected.
    Up = 2,
    /// Going down.
    GoingDown = 4,
    /// In use, or, for a path that nobody asked for yet, ready to be.
    Active = 3,
}

/// A controller of a node at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteController {
    /// The node.
    pub node: NodeId,
    /// The name of its controller.
    pub name: &'static str,
    /// Its address.
    pub address: IaAddress,
    /// Whether the path may be used.
    pub state: ConnectionState,
}

/// A controller of this node, and what it reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalController {
    /// Its name.
    pub name: &'static str,
    /// Its address.
    pub address: IaAddress,
    /// What it reaches.
    pub remotes: Vec<RemoteController>,
}

/// A picture of the interconnect as it was when it was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// This node.
    pub node: NodeId,
    /// Its controllers.
    pub controllers: Vec<LocalController>,
}

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Takes a picture of the interconnect: this node, its controllers, and what each reaches.
    ///
    /// A path counts as active unless its last connection is failing: paths are connected when they are needed.
    ///
    /// # Errors
    /// INSUFFICIENT_MEM: no memory for it.
    ///
    /// Spec: RSMTP-01, RSMTP-02, RSMTP-03
    pub fn topology(&self) -> Result<Topology> {
        let no_memory = |_| RsmError::InsufficientMemory;
        let mut controllers = Vec::new();
        controllers
            .try_reserve_exact(self.ports.len())
            .map_err(no_memory)?;
        for (index, port) in self.ports.iter().enumerate() {
            let mut remotes = Vec::new();
            remotes
                .try_reserve_exact(port.nodes.len())
                .map_err(no_memory)?;
            let own = self.options.node;
            for entry in &port.nodes {
                if port.is_loopback() && entry.node != own {
                    continue;
                }
                let failing = self.state.with(|state| {
                    let of_path =
                        |link: &crate::link::Link| link.port == index && link.node == entry.node;
                    state.link_to(index, entry.node).is_none()
                        && state
                            .links
                            .find(|link| {
                                of_path(link) && link.state == crate::link::LinkState::Over
                            })
                            .is_some()
                });
                remotes.push(RemoteController {
                    node: entry.node,
                    name: entry.controller,
                    address: entry.address,
                    state: if failing {
                        ConnectionState::GoingDown
                    } else {
                        ConnectionState::Active
                    },
                });
            }
            controllers.push(LocalController {
                name: port.name,
                address: port.address,
                remotes,
            });
        }
        Ok(Topology {
            node: self.options.node,
            controllers,
        })
    }
}
