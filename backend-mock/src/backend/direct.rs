//! Loads and stores on the memory of peers, which is in this process.

use dat_core::attributes::IaAddress;
use dat_core::backend::{BackendError, DirectAccess, RemoteRange};
use dat_core::flags::MemoryPrivileges;

use super::MockBackend;

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
