//! The stage of the chapters: two adapters, A and B, on a network of their own.

use std::time::Duration;

use dat_core::flags::MemoryPrivileges;
use dat_core::id::{LmrId, PzId};
use dat_core::memory::{LmrMemory, LmrRequest, LmrTriplet, Region};
use dat_devices::MockBackend;
use dat_host::{
    Adapter, Endpoint, Listener, Network, Options, RemoteSlice, Result, SharedReceive, Zone,
};

use super::record::Outcome;
use crate::names::constant;
use crate::remote::host_adapter::{Core, core};

/// An adapter with a protection zone.
pub(super) struct Side {
    pub(super) adapter: Adapter,
    pub(super) zone: Zone,
}

impl Side {
    fn open(network: &Network, address: &str) -> Result<Self> {
        let adapter = Options::new().network(network).open(address)?;
        let zone = adapter.zone()?;
        Ok(Self { adapter, zone })
    }

    /// Returns the core's adapter, for queries, and for calls on objects that were created there.
    pub(super) fn core(&self) -> Result<&Core<MockBackend>> {
        core(&self.adapter).map_err(|_| dat_host::Error::Malformed("an adapter of the mock"))
    }

    /// Registers 32 bytes of new memory by the core.
    pub(super) fn register(
        &self,
        pz: PzId,
        privileges: MemoryPrivileges,
    ) -> Result<(LmrTriplet, LmrId)> {
        let region = Region::from_static(Box::leak(Box::<[_; 32]>::default()));
        let created = self.core()?.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(region),
            pz,
            privileges,
        })?;
        let segment = LmrTriplet {
            context: created.lmr_context,
            address: created.registered_address,
            length: 32,
        };
        Ok((segment, created.lmr))
    }
}

/// Two adapters, of which B listens.
pub(super) struct Stage {
    pub(super) a: Side,
    pub(super) b: Side,
    listener: Listener,
}

/// The two ends of a connection.
pub(super) struct Ends {
    pub(super) a: Endpoint,
    pub(super) b: Endpoint,
}

impl Stage {
    /// Opens both adapters.
    pub(super) fn open(network: &Network) -> Result<Self> {
        let a = Side::open(network, "mock://A")?;
        let b = Side::open(network, "mock://B")?;
        let listener = b.zone.listen(7174)?;
        Ok(Self { a, b, listener })
    }

    /// Connects a new endpoint of A with one of B, which receives from `queue` if there is one.
    pub(super) fn connect(&self, queue: Option<&SharedReceive>) -> Result<Ends> {
        let a = self.a.zone.connect("B:7174").start();
        let accepting = self.listener.next().wait()?.accept();
        let b = match queue {
            Some(queue) => accepting.receive(queue).wait()?,
            None => accepting.wait()?,
        };
        Ok(Ends { a: a.wait()?, b })
    }
}

impl Ends {
    /// Adds the events by which both sides learn that the connection has ended.
    pub(super) fn ended(&self, outcome: Outcome) -> Outcome {
        let sides = [("A", &self.a), ("B", &self.b)].into_iter();
        sides.fold(outcome, |outcome, (side, end)| {
            let kind = match end.ended().wait_timeout(Duration::from_secs(30)) {
                Ok(kind) => constant(kind),
                Err(_) => "MISSING".into(),
            };
            outcome.event(&format!("{side}: DAT_CONNECTION_EVENT_{kind}"))
        })
    }
}

/// Writes text of a zone of A to memory of B.
pub(super) fn write(ep: &Endpoint, zone: &Zone, text: &str, to: RemoteSlice) -> Result<Outcome> {
    let memory = zone.copy(text.as_bytes())?;
    Outcome::of_operation("A: RDMA Write", ep.write(memory, to).wait())
}

/// Returns bytes as text, up to the first zero byte.
pub(super) fn text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next();
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}
