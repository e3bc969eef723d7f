//! An engine together with the storage of its adapter.

use dat_core::Ia;
use dat_core::sync::HostLock;
use dat_rsm::{ControllerConfig, Options, Rsm, RsmError};
use dat_storage::{Limits, Reservation};

use crate::adapter::Openable;

/// Makes an engine on an adapter that is opened for it.
///
/// If the engine is made, its storage stays as long as the process; otherwise it is unmapped.
///
/// # Errors
/// - INSUFFICIENT_MEM: there is no address space for the storage.
/// - CTLR_NOT_PRESENT: the adapter cannot be opened.
/// - Those of `Rsm::new`.
pub(crate) fn engine_of<B: Openable>(
    backend: B,
    limits: &Limits,
    async_evd_min_qlen: i32,
    options: Options,
    config: impl FnOnce(Ia<'static, B, HostLock>) -> ControllerConfig<'static, B, HostLock>,
) -> Result<Rsm<'static, B, HostLock>, RsmError> {
    let reservation = Reservation::new(limits).map_err(|_| RsmError::InsufficientMemory)?;
    let make = |storage| {
        let ia = Ia::open(backend, storage, async_evd_min_qlen)
            .map_err(|_| RsmError::ControllerNotPresent)?;
        Rsm::new(options, vec![config(ia)])
    };
    // SAFETY: if this fails, no adapter was made, or it was dropped with the configuration of the
    // engine that was not made. `config` puts it into that configuration: it has nothing else to
    // return.
    unsafe { reservation.leak_if_ok(make) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use backend_mock::{Fabric, FabricOptions, NodeOptions};

    use super::*;

    /// Returns the address space of this process, in bytes.
    fn address_space() -> usize {
        let status = fs::read_to_string("/proc/self/status").expect("the status");
        let line = status.lines().find(|line| line.starts_with("VmSize:"));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        number
            .and_then(|number| number.parse().ok())
            .map_or(0, |kilobytes: usize| kilobytes << 10)
    }

    /// Spec: RSMCT-01
    #[test]
    fn an_engine_that_cannot_be_made_keeps_no_storage() {
        const TIMES: usize = 100;
        let fabric = Fabric::new(FabricOptions::default());
        let length = Reservation::<backend_mock::MockBackend, HostLock>::new(&Limits::default())
            .expect("address space")
            .length();
        let before = address_space();
        for number in 0..TIMES {
            let backend = fabric.node(NodeOptions::new("node", number as u64));
            let config = |ia| ControllerConfig {
                // No controller has such a number.
                name: "node99999999999",
                ia,
                qualifier: 0,
                nodes: Vec::new(),
            };
            let made = engine_of(backend, &Limits::default(), 16, Options::new(1, 1), config);
            assert_eq!(made.err(), Some(RsmError::ControllerNotPresent));
        }
        // Other tests open adapters at the same time, but not as many.
        assert!(address_space() < before + TIMES / 2 * length);
    }
}
