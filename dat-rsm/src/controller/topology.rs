//! Topology: the nodes that each controller reaches.

use alloc::vec::Vec;

use dat_core::attributes::IaAddress;
use dat_core::backend::Backend;
use dat_core::sync::RawLock;

use crate::engine::Rsm;
use crate::error::{Result, RsmError};
use crate::id::NodeId;

/// State of a path (`Spec: RSMTP-03`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ConnectionState {
    /// Not in use: no connection was asked for yet, or it broke.
    Down = 1,
    /// Connecting.
    Up = 2,
    /// Going down.
    GoingDown = 4,
    /// In use, or ready for its first use.
    Active = 3,
}

/// A controller of a remote node, at the other end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteController {
    /// The node.
    pub node: NodeId,
    /// Name of the controller.
    pub name: &'static str,
    /// Address of the controller.
    pub address: IaAddress,
    /// State of the path; only an active one may be used.
    pub state: ConnectionState,
}

/// A controller of this node, and the controllers that it reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalController {
    /// Name of the controller.
    pub name: &'static str,
    /// Address of the controller.
    pub address: IaAddress,
    /// Paths of the controller.
    pub remotes: Vec<RemoteController>,
}

/// A snapshot of the interconnect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// This node.
    pub node: NodeId,
    /// Controllers of this node.
    pub controllers: Vec<LocalController>,
}

impl<B: Backend, L: RawLock> Rsm<'_, B, L> {
    /// Takes a snapshot of this node, its controllers, and the nodes that each reaches.
    ///
    /// Links are established on demand. A path is [`Active`](ConnectionState::Active) unless its
    /// last link has failed and is not removed yet; then it is
    /// [`GoingDown`](ConnectionState::GoingDown).
    ///
    /// # Errors
    /// INSUFFICIENT_MEM: memory for the snapshot is missing.
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
