//! A skeleton of firmware (`device.rs`) on a simulated board, and a host as its peer.
//!
//! `cargo run -p backend-mock --example firmware`

mod device;

use std::error::Error;

use backend_mock::{Fabric, FabricOptions, MockBackend, NodeOptions};
use dat_core::attributes::IaAddress;
use dat_core::endpoint::ConnectParam;
use dat_core::event::{ConnectionEventKind, DtoOperation, Event};
use dat_core::flags::{
    CloseFlags, CompletionFlags, ConnectFlags, DtoStatus, EvdFlags, QualityOfService,
    TIMEOUT_INFINITE,
};
use dat_core::id::{EpId, EvdId};
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_core::{Ia, Result};

const MESSAGES: u32 = 3;

dat_core::define_storage! {
    /// Storage of the host's adapter.
    struct Slots for MockBackend, HostLock {
        protection_zones: 1,
        local_regions: 1,
        remote_regions: 1,
        event_dispatchers: 2,
        notification_objects: 2,
        endpoints: 1,
        shared_receive_queues: 0,
        public_service_points: 1,
        reserved_service_points: 1,
        connection_requests: 1,
        events: 20,
        records: 32,
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let fabric = Fabric::new(FabricOptions::default());
    let mut storage = Slots::new();
    let ia = Ia::open(fabric.node(NodeOptions::new("host", 1)), storage.lend(), 4)?;
    let pz = ia.pz_create()?;
    let evd = ia.evd_create(16, None, EvdFlags::DEFAULT)?;
    let ep = ia.ep_create(Some(pz), Some(evd), Some(evd), Some(evd), None)?;
    let host = Host {
        ia,
        evd,
        ep,
        connecting: false,
        sent: 0,
    };
    let driver = fabric.node(NodeOptions::new("device", 2));
    let answered = device::serve(driver, &mut MadeUpBoard { fabric, host })?;
    println!("the device answered {answered} messages");
    assert_eq!(answered, MESSAGES);
    Ok(())
}

/// A simulated board.
///
/// A sleep lets the host and the fabric act, then interrupts the device.
struct MadeUpBoard<'s> {
    fabric: Fabric,
    host: Host<'s>,
}

impl device::Board for MadeUpBoard<'_> {
    fn micros(&mut self) -> u64 {
        self.fabric.now().as_micros()
    }

    fn sleep(&mut self, _until: Option<u64>) {
        self.host.act(self.fabric.now()).expect("the host goes on");
        self.fabric.step();
        device::adapter_interrupt();
    }
}

/// A host that connects, sends each message after the last answer, and disconnects.
struct Host<'s> {
    ia: Ia<'s, MockBackend, HostLock>,
    evd: EvdId,
    ep: EpId,
    connecting: bool,
    sent: u32,
}

impl Host<'_> {
    fn act(&mut self, now: Instant) -> Result<()> {
        if !self.connecting {
            self.connecting = true;
            let request = ConnectParam {
                address: IaAddress::Node(2),
                qualifier: 7,
                timeout: TIMEOUT_INFINITE,
                private_data: &[],
                quality: QualityOfService::BEST_EFFORT,
                flags: ConnectFlags::empty(),
            };
            self.ia.ep_connect(self.ep, &request, now)?;
        }
        self.ia.progress(now);
        while let Ok(event) = self.ia.evd_dequeue(self.evd) {
            match event {
                Event::Connection {
                    kind: ConnectionEventKind::Established,
                    ..
                } => self.send()?,
                Event::Dto(done)
                    if done.operation == DtoOperation::Receive
                        && done.status == DtoStatus::Success =>
                {
                    self.send()?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        if self.sent == MESSAGES {
            return self.ia.ep_disconnect(self.ep, CloseFlags::Graceful);
        }
        self.sent += 1;
        let flags = CompletionFlags::empty();
        self.ia.post_recv(self.ep, &[], 0, flags)?;
        self.ia.post_send(self.ep, &[], 0, flags)
    }
}
