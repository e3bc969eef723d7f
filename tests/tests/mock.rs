//! The conformance suite on the mock.
//!
//! The seed of the fabric decides whatever the rules leave open; `DAT_SEED` sets it, and a failing test prints it.

use backend_mock::{
    BufferOrder, Fabric, FabricOptions, Fault, MockBackend, NodeOptions, RemoteError,
};
use core::cell::Cell;
use dat_core::attributes::IaAddress;
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_tests::fixture::{
    FaultyTestbed, NonCoherentTestbed, RsmTestbed, Testbed, WindowlessTestbed,
};

/// A fabric of its own for each test.
struct MockBed {
    fabric: Fabric,
    nodes: Cell<u64>,
}

impl MockBed {
    fn new() -> Self {
        let seed = std::env::var("DAT_SEED").map_or(1, |seed| seed.parse().expect("a number"));
        println!("DAT_SEED={seed}");
        Self {
            fabric: Fabric::new(FabricOptions {
                seed,
                buffer_order: BufferOrder::Seeded,
                ..FabricOptions::default()
            }),
            nodes: Cell::new(0),
        }
    }

    fn node(&self, change: impl FnOnce(NodeOptions) -> NodeOptions) -> MockBackend {
        let number = self.nodes.get() + 1;
        self.nodes.set(number);
        self.fabric.node(change(NodeOptions::new("mock", number)))
    }
}

impl Testbed for MockBed {
    type Backend = MockBackend;
    type Lock = HostLock;

    fn device(&self) -> MockBackend {
        self.node(|options| options)
    }

    fn now(&self) -> Instant {
        self.fabric.now()
    }

    fn step(&self) -> bool {
        self.fabric.step()
    }

    fn advance(&self, to: Instant) {
        self.fabric.run_until(to);
    }
}

impl RsmTestbed for MockBed {
    fn device_at(&self, address: IaAddress) -> MockBackend {
        let options = NodeOptions::new("mock", 0);
        self.fabric.node(NodeOptions { address, ..options })
    }
}

impl NonCoherentTestbed for MockBed {
    fn non_coherent_device(&self) -> MockBackend {
        self.node(NodeOptions::non_coherent)
    }
}

impl WindowlessTestbed for MockBed {
    fn windowless_device(&self) -> MockBackend {
        self.node(|options| NodeOptions {
            memory_windows: false,
            ..options
        })
    }
}

impl FaultyTestbed for MockBed {
    fn crash(&self, device: u16) {
        self.fabric.inject(Fault::Crash {
            adapter: device,
            at: self.now().as_micros(),
        });
    }

    fn fail_allocation(&self, device: u16, nth: u32) {
        self.fabric.inject(Fault::AllocationFailure {
            adapter: device,
            nth,
        });
    }

    fn refuse_post(&self, device: u16, nth: u32) {
        self.fabric.inject(Fault::RefusePost {
            adapter: device,
            nth,
        });
    }

    fn fail_shared_queue(&self, device: u16, nth: u32) {
        self.fabric.inject(Fault::FailSharedReceive {
            adapter: device,
            nth,
        });
    }

    fn fail_operation(&self, device: u16, nth: u32) {
        self.fabric.inject(Fault::RemoteError {
            adapter: device,
            nth,
            error: RemoteError::Responder,
        });
    }
}

dat_tests::conformance_suite!(base, MockBed::new());
dat_tests::conformance_suite!(non_coherent, MockBed::new());
dat_tests::conformance_suite!(windowless, MockBed::new());
dat_tests::conformance_suite!(faulty, MockBed::new());
dat_tests::conformance_suite!(rsm, MockBed::new());
dat_tests::conformance_suite!(rsm_faulty, MockBed::new());
