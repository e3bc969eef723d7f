//! Beds of devices in the test's own process, over a fabric of the mock.
//!
//! The fabric's seed decides everything that the rules leave open. `DAT_SEED` sets it; a failing
//! test prints it.

use backend_mock::{BufferOrder, FabricOptions, Fault, NodeOptions, RemoteError};
use core::cell::Cell;
use dat_core::attributes::IaAddress;
use dat_core::backend::Backend;
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_tests::fixture::{
    ExtendedTestbed, FaultyTestbed, NonCoherentTestbed, RsmTestbed, Testbed, WindowlessTestbed,
};

/// A network of devices that reach each other.
pub(crate) trait Network {
    /// The backend of a device.
    type Device: Backend<
            CompletionQueue: 'static,
            SendQueue: 'static,
            ReceiveQueue: 'static,
            SharedReceiveQueue: 'static,
        > + 'static;

    /// Name of the devices.
    const NAME: &'static str;

    /// Makes a network without devices.
    fn begin(options: FabricOptions) -> Self;

    fn device(&self, options: NodeOptions) -> Self::Device;

    fn now(&self) -> Instant;

    fn step(&self) -> bool;

    fn run_until(&self, until: Instant);

    fn inject(&self, fault: Fault);

    /// Returns true if memory of this process is the same on all hosts.
    fn hosts_share_memory() -> bool {
        true
    }

    /// Returns the reason why the network cannot run a test of the suite, if any.
    fn skip_reason(test: &str) -> Option<String>;
}

/// Implements `Network` for a fabric type, or for a type that holds one.
///
/// The calls of all fabrics have the same names, except the one that makes a device, `$make`.
/// `$wrap` and `$inner` convert to and from a type that holds a fabric.
macro_rules! network {
    ($fabric:ty, $device:ty, $name:literal, $make:ident, $skip_reason:expr) => {
        $crate::bed::network!(
            $fabric,
            $device,
            $name,
            $make,
            $skip_reason,
            Self::new,
            core::convert::identity
        );
    };
    ($fabric:ty, $device:ty, $name:literal, $make:ident, $skip_reason:expr, $wrap:expr, $inner:expr) => {
        impl $crate::bed::Network for $fabric {
            type Device = $device;

            const NAME: &'static str = $name;

            fn begin(options: backend_mock::FabricOptions) -> Self {
                $wrap(options)
            }

            fn device(&self, options: backend_mock::NodeOptions) -> $device {
                $inner(self).$make(options)
            }

            fn now(&self) -> dat_core::time::Instant {
                $inner(self).now()
            }

            fn step(&self) -> bool {
                $inner(self).step()
            }

            fn run_until(&self, until: dat_core::time::Instant) {
                let _steps = $inner(self).run_until(until);
            }

            fn inject(&self, fault: backend_mock::Fault) {
                $inner(self).inject(fault);
            }

            fn skip_reason(test: &str) -> Option<String> {
                let reason: fn(&str) -> Option<String> = $skip_reason;
                reason(test)
            }
        }
    };
}

pub(crate) use network;

/// A bed with its own fabric, new for each test.
pub(crate) struct Bed<N> {
    pub(crate) fabric: N,
    nodes: Cell<u64>,
}

impl<N: Network> Bed<N> {
    pub(crate) fn new() -> Self {
        Self::over(seeded_options())
    }

    /// Makes a bed over a fabric with these options.
    pub(crate) fn over(options: FabricOptions) -> Self {
        Self {
            fabric: N::begin(options),
            nodes: Cell::new(0),
        }
    }

    /// Returns the options of the next device.
    pub(crate) fn options(&self) -> NodeOptions {
        let number = self.nodes.get() + 1;
        self.nodes.set(number);
        NodeOptions::new(N::NAME, number)
    }
}

impl<N: Network> Testbed for Bed<N> {
    type Backend = N::Device;
    type Lock = HostLock;

    fn device(&self) -> N::Device {
        self.fabric.device(self.options())
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

    fn skip_reason(&self, test: &str) -> Option<String> {
        N::skip_reason(test)
    }
}

impl<N: Network> RsmTestbed for Bed<N> {
    fn device_at(&self, address: IaAddress) -> N::Device {
        let options = self.options();
        self.fabric.device(NodeOptions { address, ..options })
    }

    fn hosts_share_memory(&self) -> bool {
        N::hosts_share_memory()
    }
}

impl<N: Network> NonCoherentTestbed for Bed<N> {
    fn non_coherent_device(&self) -> N::Device {
        self.fabric.device(self.options().non_coherent())
    }
}

impl<N: Network> WindowlessTestbed for Bed<N> {
    fn windowless_device(&self) -> N::Device {
        let options = self.options();
        self.fabric.device(NodeOptions {
            memory_windows: false,
            ..options
        })
    }
}

impl<N: Network> ExtendedTestbed for Bed<N> {
    fn extended_device(&self) -> N::Device {
        self.fabric.device(self.options().extended())
    }

    fn extended_non_coherent_device(&self) -> N::Device {
        let options = self.options().non_coherent();
        self.fabric.device(options.extended())
    }
}

impl<N: Network> FaultyTestbed for Bed<N> {
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

/// Returns options with the seed from `DAT_SEED`, or 1, and prints the seed.
///
/// RDMA Reads may take longer than the requests after them, so that a missing fence shows.
pub(crate) fn seeded_options() -> FabricOptions {
    let seed = std::env::var("DAT_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    println!("DAT_SEED={seed}");
    FabricOptions {
        seed,
        buffer_order: BufferOrder::Seeded,
        read_latency: 0..=30,
        ..FabricOptions::default()
    }
}
