//! An adapter and the objects that a controller needs on it.

use alloc::vec::Vec;
use core::fmt;

use dat_core::Ia;
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::backend::Backend;
use dat_core::flags::{EvdFlags, IaFields, MemoryPrivileges, ProviderFields, PspFlags};
use dat_core::id::{CnoId, EpId, EvdId, PspId, PzId};
use dat_core::sync::RawLock;

use crate::block::Block;
use crate::error::{Result, RsmError};
use crate::id::{ControllerId, Handle, Kind, NodeId};
use crate::options::{ControllerConfig, NodeEntry, Options};
use crate::unreached::Unreached;

/// Limit of a controller's name in bytes, exclusive.
const NAME_LIMIT: usize = 256;
/// Type of the controller that reaches only the own node.
const LOOPBACK: &str = "loopback";
/// Requests that a link asks of its endpoint.
const LINK_REQUESTS: i32 = 128;
/// RDMA Reads that a link asks of its endpoint, in each direction.
const LINK_READS: i32 = 16;
/// Queue length for connection requests; importers whose request finds no place try again.
const ARRIVALS: i32 = 48;
/// Queue length of a dispatcher that only gets completions.
const NO_EVENTS: i32 = 1;
/// Most connection events in the queue; the adapter reports no more between two polls.
const MOST_ENDS: i32 = 64;

/// The name of a controller: type and instance (`Spec: RSMCT-01`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    kind: &'a str,
    instance: u32,
}

impl<'a> Name<'a> {
    /// Splits a name; `None` if the name or its instance is too long (RSMCT-05).
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        if name.len() >= NAME_LIMIT {
            return None;
        }
        let kind = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let digits = name.get(kind.len()..)?;
        let instance = match digits {
            "" => 0,
            digits => digits.parse().ok()?,
        };
        Some(Self { kind, instance })
    }

    pub(crate) fn is_loopback(&self) -> bool {
        self.kind.eq_ignore_ascii_case(LOOPBACK)
    }

    pub(crate) fn same(&self, other: &Name<'_>) -> bool {
        if self.is_loopback() || other.is_loopback() {
            return self.is_loopback() && other.is_loopback();
        }
        self.kind.eq_ignore_ascii_case(other.kind) && self.instance == other.instance
    }
}

/// An adapter and its capabilities; fixed for the life of the engine.
pub(crate) struct Port<'s, B: Backend, L: RawLock> {
    pub(crate) ia: Ia<'s, B, L>,
    pub(crate) name: &'static str,
    pub(crate) address: IaAddress,
    pub(crate) qualifier: u64,
    pub(crate) nodes: Vec<NodeEntry>,
    /// Endpoint attributes of its links.
    pub(crate) attributes: EpAttributes,
    /// Privileges that local memory needs as the target of a read.
    pub(crate) target_privileges: MemoryPrivileges,
    /// True if the backend may access the memory of peers.
    pub(crate) sees_peers: bool,
    /// True if the adapter needs the calls `dat_lmr_sync_rdma_*`.
    pub(crate) non_coherent: bool,
    /// Most bytes of one request.
    pub(crate) max_transfer: u64,
    /// Pending transfers of a link; the rest of the endpoint's requests is for messages.
    pub(crate) max_transfers: u32,
    pub(crate) max_region: u64,
    /// True if no event is to wake a call.
    polled: bool,
    /// Queue length for connection events; each link is established once and ends once.
    ends: i32,
}

impl<'s, B: Backend, L: RawLock> Port<'s, B, L> {
    pub(crate) fn new(config: ControllerConfig<'s, B, L>, options: &Options) -> Result<Self> {
        Name::parse(config.name).ok_or(RsmError::ControllerNotPresent)?;
        let all = config.ia.ia_query(IaFields::all(), ProviderFields::all())?;
        let adapter = all.ia;
        let mut attributes = EpAttributes::default_for(&adapter);
        attributes.max_recv_dtos = receives(options).min(adapter.max_dto_per_ep);
        attributes.max_request_dtos = LINK_REQUESTS.min(adapter.max_dto_per_ep);
        attributes.max_rdma_read_in = LINK_READS.min(adapter.max_rdma_read_per_ep_in);
        attributes.max_rdma_read_out = LINK_READS.min(adapter.max_rdma_read_per_ep_out);
        for segments in [
            &mut attributes.max_recv_iov,
            &mut attributes.max_request_iov,
            &mut attributes.max_rdma_read_iov,
            &mut attributes.max_rdma_write_iov,
        ] {
            *segments = 1;
        }
        if attributes.max_rdma_read_in < 1
            || attributes.max_rdma_read_out < 1
            || attributes.max_recv_dtos < receives(options)
        {
            // Only a read can show that writes are visible.
            return Err(RsmError::BadLibraryVersion);
        }
        let local = MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE;
        let target_privileges = if all.provider.rdma_write_for_rdma_read_req {
            local | MemoryPrivileges::REMOTE_WRITE
        } else {
            local
        };
        Ok(Self {
            address: adapter.ia_address,
            sees_peers: config.ia.with_direct_access(|device| device.is_some())?,
            non_coherent: all.provider.lmr_sync_req,
            max_transfer: attributes.max_rdma_size.max(1),
            max_transfers: transfers(attributes.max_request_dtos),
            max_region: adapter.max_lmr_block_size,
            ends: i32::try_from(options.limits.links.saturating_mul(2))
                .unwrap_or(MOST_ENDS)
                .clamp(1, MOST_ENDS)
                .min(adapter.max_evd_qlen),
            polled: options.polled,
            attributes,
            target_privileges,
            ia: config.ia,
            name: config.name,
            qualifier: config.qualifier,
            nodes: config.nodes,
        })
    }

    /// Returns the entry of a node.
    pub(crate) fn node(&self, node: NodeId) -> Option<&NodeEntry> {
        self.nodes.iter().find(|entry| entry.node == node)
    }

    pub(crate) fn is_loopback(&self) -> bool {
        Name::parse(self.name).is_some_and(|name| name.is_loopback())
    }

    /// Makes the objects of a controller; on an error, frees those already made.
    pub(crate) fn open(&self) -> Result<PortObjects> {
        let mut objects = PortObjects::default();
        match self.fill(&mut objects) {
            Ok(()) => Ok(objects),
            Err(error) => {
                let _nobody_used_it = self.close(objects);
                Err(error)
            }
        }
    }

    fn fill(&self, objects: &mut PortObjects) -> Result<()> {
        let ia = &self.ia;
        objects.pz = ia.pz_create()?;
        if !self.polled {
            objects.cno = Some(ia.cno_create(None)?);
        }
        let cno = objects.cno;
        objects.arrivals = ia.evd_create(ARRIVALS, cno, EvdFlags::CR)?;
        objects.connections = ia.evd_create(self.ends, cno, EvdFlags::CONNECTION)?;
        objects.receives = ia.evd_create(NO_EVENTS, cno, EvdFlags::DTO)?;
        objects.completions = ia.evd_create(NO_EVENTS, cno, EvdFlags::DTO)?;
        let remote = MemoryPrivileges::LOCAL_READ | MemoryPrivileges::REMOTE_READ;
        objects.read_back_word = Some(Block::new(ia, objects.pz, 8, remote)?);
        objects.read_back_target = Some(Block::new(ia, objects.pz, 8, self.target_privileges)?);
        if self.qualifier != 0 {
            objects.psp = ia.psp_create(self.qualifier, objects.arrivals, PspFlags::Consumer)?;
        }
        Ok(())
    }

    /// Frees the objects, in the opposite order of their creation.
    ///
    /// The core refuses the ids of objects that do not exist, without harm. Returns the zone if it
    /// still holds memory of a call that is about to end.
    pub(crate) fn close(&self, objects: PortObjects) -> Option<PzId> {
        let ia = &self.ia;
        let _never_made = ia.psp_free(objects.psp);
        for block in [objects.read_back_word, objects.read_back_target]
            .into_iter()
            .flatten()
        {
            block.free(ia);
        }
        for evd in [
            objects.completions,
            objects.receives,
            objects.connections,
            objects.arrivals,
        ] {
            let _never_made = ia.evd_free(evd);
        }
        if let Some(cno) = objects.cno {
            let _freed = ia.cno_free(cno);
        }
        (ia.pz_free(objects.pz).is_err() && objects.pz != PzId::NULL).then_some(objects.pz)
    }
}

impl<B: Backend, L: RawLock> fmt::Debug for Port<'_, B, L> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Port({})", self.name)
    }
}

/// Returns the receives that a link posts: one for each credit, two for credit messages.
pub(crate) fn receives(options: &Options) -> i32 {
    i32::from(options.credits.clamp(1, 60)).wrapping_add(2)
}

/// Returns the number of an endpoint's requests that may be transfers.
fn transfers(requests: i32) -> u32 {
    let requests = u32::try_from(requests).unwrap_or(1);
    requests.saturating_sub((requests / 4).min(8)).max(1)
}

/// The objects of an open controller.
pub(crate) struct PortObjects {
    pub(crate) pz: PzId,
    /// The object that the dispatchers notify, unless the calls poll.
    pub(crate) cno: Option<CnoId>,
    /// Connection requests of peers.
    pub(crate) arrivals: EvdId,
    /// Connection events of links.
    pub(crate) connections: EvdId,
    /// Received messages.
    pub(crate) receives: EvdId,
    /// Completions of requests.
    pub(crate) completions: EvdId,
    pub(crate) psp: PspId,
    /// Word that peers read to learn that their writes are visible.
    pub(crate) read_back_word: Option<Block>,
    /// Target of the reads of peers' words; its content is ignored.
    pub(crate) read_back_target: Option<Block>,
}

impl Default for PortObjects {
    fn default() -> Self {
        Self {
            pz: PzId::NULL,
            cno: None,
            arrivals: EvdId::NULL,
            connections: EvdId::NULL,
            receives: EvdId::NULL,
            completions: EvdId::NULL,
            psp: PspId::NULL,
            read_back_word: None,
            read_back_target: None,
        }
    }
}

/// The current state of a port.
pub(crate) struct PortState {
    id: Handle,
    instance: u16,
    index: u16,
    generation: u32,
    pub(crate) references: u32,
    pub(crate) objects: Option<PortObjects>,
    /// Set while the objects of the last opening are being freed.
    pub(crate) closing: bool,
    /// Zones of earlier openings that calls still used when they were freed.
    pub(crate) zones: Vec<PzId>,
    /// The nodes that were not reached, with the last reason.
    pub(crate) unreached: Vec<(NodeId, Unreached)>,
}

impl PortState {
    pub(crate) fn new(instance: u16, index: u16) -> Self {
        Self {
            id: Handle::NULL,
            instance,
            index,
            generation: 0,
            references: 0,
            objects: None,
            closing: false,
            zones: Vec::new(),
            unreached: Vec::new(),
        }
    }

    /// Returns the handle if the controller is open.
    pub(crate) fn controller(&self) -> Option<ControllerId> {
        (self.references != 0).then_some(ControllerId::from_handle(self.id))
    }

    /// Returns true if nothing is left of the last opening.
    pub(crate) fn is_closed(&self) -> bool {
        self.objects.is_none() && !self.closing
    }

    /// Opens the controller; handles of earlier openings become stale.
    pub(crate) fn begin(&mut self, objects: PortObjects) {
        self.generation = self.generation.wrapping_add(1);
        self.id = Handle::new(self.instance, Kind::Controller, self.generation, self.index);
        self.objects = Some(objects);
    }

    /// Returns the event dispatchers, the notification object and the zone, if the port is open.
    pub(crate) fn ids(&self) -> Option<PortIds> {
        let objects = self.objects.as_ref()?;
        Some(PortIds {
            pz: objects.pz,
            cno: objects.cno,
            arrivals: objects.arrivals,
            connections: objects.connections,
            receives: objects.receives,
            completions: objects.completions,
        })
    }
}

/// Ids of the most used objects.
#[derive(Clone, Copy)]
pub(crate) struct PortIds {
    pub(crate) pz: PzId,
    pub(crate) cno: Option<CnoId>,
    pub(crate) arrivals: EvdId,
    pub(crate) connections: EvdId,
    pub(crate) receives: EvdId,
    pub(crate) completions: EvdId,
}

impl PortIds {
    /// Creates an endpoint for a link.
    pub(crate) fn endpoint<B: Backend, L: RawLock>(&self, port: &Port<'_, B, L>) -> Result<EpId> {
        Ok(port.ia.ep_create(
            Some(self.pz),
            Some(self.receives),
            Some(self.completions),
            Some(self.connections),
            Some(&port.attributes),
        )?)
    }
}

/// Returns true if two addresses belong to the same host; ports are ignored.
pub(crate) fn same_host(one: IaAddress, other: IaAddress) -> bool {
    match (one, other) {
        (IaAddress::V4(one, _), IaAddress::V4(other, _)) => one == other,
        (IaAddress::V6(one, _, scope), IaAddress::V6(other, _, other_scope)) => {
            (one, scope) == (other, other_scope)
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(one: &str, other: &str) -> bool {
        let (one, other) = (Name::parse(one), Name::parse(other));
        one.zip(other).is_some_and(|(one, other)| one.same(&other))
    }

    /// Spec: RSMCT-01, RSMCT-05
    #[test]
    fn names_of_controllers_are_checked() {
        assert!(same("sci0", "SCI"));
        assert!(same("sci00", "sci0"));
        assert!(!same("sci0", "sci1"));
        assert!(!same("sci0", "verbs0"));
        assert!(same("loopback", "Loopback7"));
        assert!(!same("loopback", "loop0"));
        assert!(Name::parse(&"x".repeat(255)).is_some());
        assert!(Name::parse(&"x".repeat(256)).is_none());
        assert!(Name::parse("sci99999999999").is_none());
    }
}
