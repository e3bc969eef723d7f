//! Loads and stores on the memory of peers, which is in this process.

use dat_core::attributes::IaAddress;
use dat_core::backend::{BackendError, DirectAccess, RemoteRange};
use dat_core::flags::MemoryPrivileges;

use crate::backend::MockBackend;
use crate::world::World;
use dat_core::sync::RegisteredSpan;

impl DirectAccess for MockBackend {
    fn load(
        &mut self,
        peer: IaAddress,
        range: RemoteRange,
        into: &mut [u8],
    ) -> Result<(), BackendError> {
        let (length, right) = (into.len() as u64, MemoryPrivileges::REMOTE_READ);
        self.enter(|world, adapter| {
            let span = world.seen(adapter, peer, range, length, right)?;
            span.read(into);
            Ok(())
        })
    }

    fn store(
        &mut self,
        peer: IaAddress,
        range: RemoteRange,
        from: &[u8],
    ) -> Result<(), BackendError> {
        let (length, right) = (from.len() as u64, MemoryPrivileges::REMOTE_WRITE);
        self.enter(|world, adapter| {
            let span = world.seen(adapter, peer, range, length, right)?;
            span.write(from);
            Ok(())
        })
    }
}

impl World {
    /// Returns memory of a peer, if the key permits the access.
    ///
    /// A host that is not coherent is not supported.
    fn seen(
        &self,
        adapter: usize,
        peer: IaAddress,
        range: RemoteRange,
        length: u64,
        right: MemoryPrivileges,
    ) -> Result<RegisteredSpan<'_>, BackendError> {
        let from = self.adapters[adapter].node;
        let to = self
            .node_at(peer)
            .filter(|to| self.passes(from, *to))
            .ok_or(BackendError::Address)?;
        if self.nodes[to].coherence.is_some() {
            return Err(BackendError::NotSupported);
        }
        let adapters = self.nodes[to].adapters.iter();
        adapters
            .map(|adapter| &self.adapters[*adapter].memories)
            .find_map(|memories| {
                let domain = memories.domain_of(range.key)?;
                memories.remote(range, length, domain, right)
            })
            .ok_or(BackendError::Address)
    }
}
