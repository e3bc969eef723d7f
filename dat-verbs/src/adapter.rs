//! The adapter of this process.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};

use backend_roce::{RoceDevice, RoceOptions};
use dat_core::backend::ControlEvent;
use dat_storage::threads::start_thread;

use crate::errors::{Result, ask_for_memory, of_system};
use crate::gids::Interfaces;
use crate::locks::{OfProcess, lock};
use crate::managed::ManagedPairs;
use crate::settings::{self, Settings};

/// Subject of events of the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// Completions of a queue, by its number.
    Queue(u32),
    /// The limit of a shared receive queue, by its token.
    SharedQueue(u64),
    /// The peer, the failure, or the end of the requests under way, of a queue pair, by its QPN.
    Pair(u32),
    /// The connection of a queue pair, by its QPN.
    Connection(u32),
    /// Requests at a listener, by its token.
    Listener(u64),
}

/// Receives the events about a subject.
///
/// It calls of the device only what reads: the thread may be in another call.
pub(crate) type Notify = Box<dyn Fn(&ControlEvent) + Send + Sync>;

type Receivers = Mutex<HashMap<Subject, Notify>>;

/// The adapter, which all contexts of the process use.
pub(crate) struct Adapter {
    pub(crate) device: RoceDevice,
    /// Address that it was opened at, which may be a wildcard.
    pub(crate) address: SocketAddr,
    pub(crate) interfaces: Interfaces,
    /// Keeps the ports of identifiers until one listens there.
    pub(crate) reserved: Mutex<HashMap<SocketAddr, UdpSocket>>,
    /// Queue pairs of programs that rdma_cm connects.
    pub(crate) managed: ManagedPairs,
    receivers: Arc<Receivers>,
    /// Token of the next subject that has one.
    next_token: AtomicU64,
}

/// The adapter that this process has opened.
static PROCESS: OfProcess<Option<Arc<Adapter>>> = OfProcess::new();

/// Returns the adapter, which the first call of a process opens.
///
/// A child of `fork` opens its own one; objects of its parent stay with that.
///
/// # Errors
/// Those of the system; `EINVAL` for settings that nobody can have.
pub(crate) fn adapter() -> Result<Arc<Adapter>> {
    PROCESS.with(|process| {
        if let Some(adapter) = process {
            return Ok(Arc::clone(adapter));
        }
        ask_for_memory()?;
        let opened = Settings::read().and_then(Adapter::open);
        let adapter = opened.inspect_err(|error| settings::tell(*error))?;
        Ok(Arc::clone(process.insert(Arc::new(adapter))))
    })
}

/// Returns the adapter if this process has one and no thread opens one now; never waits.
pub(crate) fn opened() -> Option<Arc<Adapter>> {
    PROCESS.look(Clone::clone).flatten()
}

/// Returns what an event is about.
fn subjects(event: &ControlEvent) -> [Option<Subject>; 2] {
    match *event {
        ControlEvent::Completions { queue } | ControlEvent::SolicitedCompletions { queue } => {
            [Some(Subject::Queue(queue)), None]
        }
        ControlEvent::SharedReceiveLimit { queue } => [Some(Subject::SharedQueue(queue)), None],
        ControlEvent::ConnectionRequest { listener, .. } => {
            [Some(Subject::Listener(listener)), None]
        }
        ControlEvent::Broken { queue_pair } | ControlEvent::Established { queue_pair, .. } => {
            // The token of a queue pair is its QPN.
            let qpn = queue_pair as u32;
            [Some(Subject::Pair(qpn)), Some(Subject::Connection(qpn))]
        }
        ControlEvent::Answered { queue_pair } => [Some(Subject::Pair(queue_pair as u32)), None],
        ControlEvent::ConnectFailed { queue_pair, .. }
        | ControlEvent::Disconnected { queue_pair } => {
            [Some(Subject::Connection(queue_pair as u32)), None]
        }
        _ => [None; 2],
    }
}

/// Gives an event to the receivers of its subjects.
fn tell(receivers: &Receivers, event: &ControlEvent) {
    let receivers = lock(receivers);
    for subject in subjects(event).into_iter().flatten() {
        if let Some(notify) = receivers.get(&subject) {
            notify(event);
        }
    }
}

impl Adapter {
    /// Tells of an event, as the device does.
    #[cfg(test)]
    pub(crate) fn tell(&self, event: &ControlEvent) {
        tell(&self.receivers, event);
    }

    fn open(settings: Settings) -> Result<Self> {
        let mut options = RoceOptions::random().map_err(of_system)?;
        options.path = settings.path;
        options.start_thread = start_thread;
        let device = RoceDevice::open(settings.address, &options);
        let device = device.map_err(of_system)?;
        let receivers = Arc::<Receivers>::default();
        let told = Arc::clone(&receivers);
        device.on_event(move |event| tell(&told, &event));
        Ok(Self {
            device,
            address: settings.address,
            interfaces: Interfaces::of(settings.address)?,
            reserved: Mutex::default(),
            managed: ManagedPairs::default(),
            receivers,
            next_token: AtomicU64::new(0),
        })
    }

    /// Leaves the reserved ports that `is_left` names.
    pub(crate) fn leave_ports(&self, is_left: impl Fn(&SocketAddr) -> bool) {
        lock(&self.reserved).retain(|address, _| !is_left(address));
    }

    /// Sets the receiver of the events about a subject.
    pub(crate) fn receive(&self, subject: Subject, notify: Notify) {
        lock(&self.receivers).insert(subject, notify);
    }

    /// Removes the receiver; it does not run any more.
    pub(crate) fn forget(&self, subject: Subject) {
        lock(&self.receivers).remove(&subject);
    }

    /// Returns a token for a subject.
    pub(crate) fn token(&self) -> u64 {
        self.next_token.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns true if the adapter serves an address of this host.
    ///
    /// Loop-back addresses are of every device, as in the kernel.
    pub(crate) fn serves(&self, address: SocketAddr) -> bool {
        let mut gids = self.interfaces.gids.iter();
        address.ip().to_canonical().is_loopback() || gids.any(|gid| gid.is_at(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_adapter_of_the_process_is_known() {
        let adapter = adapter().expect("an adapter");
        // Another thread may look, too.
        let found = core::iter::repeat_with(opened).find_map(|found| found);
        assert!(Arc::ptr_eq(&adapter, &found.expect("the adapter")));
    }
}
