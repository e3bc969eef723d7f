//! Adapters that carry the interface, and those that do not.

mod fixture;

use backend_mock::{Fabric, FabricOptions, Limits, NodeOptions};
use dat_core::Ia;
use dat_core::attributes::IaAddress;
use dat_core::sync::HostLock;
use dat_rsm::{ControllerConfig, NodeEntry, Options, Rsm, RsmError};
use fixture::storage;

/// An adapter is looked at before anything is made on it.
///
/// Spec: RSMCT-04
#[test]
fn an_adapter_without_the_needed_features_is_refused() {
    let enough = NodeOptions::new("mock", 1).limits;
    let credits = 16;
    let none = Limits {
        rdma_reads: 0,
        ..enough
    };
    let few = Limits {
        work_requests: credits + 1,
        ..enough
    };
    let just_enough = Limits {
        work_requests: credits + 2,
        rdma_reads: 1,
        ..enough
    };
    let bad = Err(RsmError::BadLibraryVersion);
    for (limits, expected) in [
        (enough, Ok(())),
        (just_enough, Ok(())),
        (none, bad),
        (few, bad),
    ] {
        let fabric = Fabric::new(FabricOptions::default());
        let device = fabric.node(NodeOptions {
            limits,
            ..NodeOptions::new("mock", 1)
        });
        let ia = Ia::open(device, storage::<HostLock>(), 8).expect("an adapter");
        let node = NodeEntry {
            node: 1,
            controller: "rsm0",
            address: IaAddress::Node(1),
            qualifier: 7,
        };
        let config = ControllerConfig {
            name: "rsm0",
            ia,
            qualifier: 7,
            nodes: vec![node],
        };
        let options = Options {
            credits: credits as u16,
            ..Options::new(1, 1)
        };
        let opened = Rsm::new(options, vec![config]).and_then(|engine| {
            engine.get_controller(Some("rsm0"))?;
            Ok(())
        });
        assert_eq!(opened, expected, "{limits:?}");
    }
}
