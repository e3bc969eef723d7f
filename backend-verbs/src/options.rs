//! Options of a device.

use std::ffi::CStr;
use std::io;
use std::thread;

use crate::hal::WindowType;
use crate::shared_device::{OF_PROCESS, OpenDevices};

/// Kind of memory window, the device object of a remote region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKind {
    /// Type 1: open to all queue pairs of its domain, as the interface defines it.
    Domain,
    /// Type 2: open to the peer of the queue pair on which it was bound.
    QueuePair,
}

impl WindowKind {
    /// Returns the type for a device with type 1 (`one`), type 2 (`two`) or both.
    pub(crate) fn of_device(self, (one, two): (bool, bool)) -> Option<WindowType> {
        match (one, two, self) {
            (false, false, _) => None,
            (true, false, _) | (true, true, Self::Domain) => Some(WindowType::One),
            (false, true, _) | (true, true, Self::QueuePair) => Some(WindowType::Two),
        }
    }
}

/// Options for opening a device and for its connections; the defaults suit most programs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VerbsOptions {
    /// Time limit in milliseconds for each of two steps: address resolution and route resolution.
    pub resolve_timeout: u32,
    /// Longest time for a peer's device to acknowledge a packet, as verbs encodes it.
    ///
    /// 4.096 µs times two to this power, at most 31; the connection manager may choose less.
    pub longest_acknowledgement: u8,
    /// Repetitions of a packet without acknowledgement, at most 6.
    ///
    /// Soft-RoCE repeats for ever with 7, which would hide a peer that vanished.
    pub retries: u8,
    /// Repetitions of a message that found no receive: 0 to 6, or 7 for ever.
    pub not_ready_retries: u8,
    /// Wait of a peer whose message found no receive here, as verbs encodes it.
    ///
    /// 20 is 10.24 ms.
    pub not_ready_timer: u8,
    /// Most bytes that a Send or an RDMA Write carries inline; 0 for none.
    ///
    /// They are copied during the post. The device may grant more or less.
    pub inline: u32,
    /// Kind of window on devices that have both kinds.
    pub windows: WindowKind,
    /// Meaning of a connection qualifier above 65,535, the highest port.
    pub long_qualifiers: LongQualifiers,
    /// Open devices that adapters share; the default is one for the process.
    pub devices: &'static OpenDevices,
    /// Function that starts the thread of a device.
    ///
    /// The default starts a thread of the standard library, which ends the process if the heap is
    /// exhausted.
    pub start_thread: StartThread,
}

/// Function that starts a detached thread with this name.
pub type StartThread = fn(name: &'static CStr, body: Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// Starts a thread of the standard library.
fn start_thread(name: &'static CStr, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    let name = name.to_string_lossy().into_owned();
    thread::Builder::new().name(name).spawn(body).map(drop)
}

/// Meaning of connection qualifiers above the highest port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LongQualifiers {
    /// Refuses them.
    #[default]
    Refused,
    /// Uses their low 16 bits as the port, as OFA's provider does.
    ///
    /// So programs agree on longer qualifiers. Two with the same low bits are the same port: the
    /// second listener finds it in use.
    Shortened,
}

impl Default for VerbsOptions {
    fn default() -> Self {
        Self {
            resolve_timeout: 2000,
            longest_acknowledgement: 16,
            retries: 6,
            not_ready_retries: 6,
            not_ready_timer: 20,
            inline: 256,
            windows: WindowKind::Domain,
            long_qualifiers: LongQualifiers::Refused,
            devices: &OF_PROCESS,
            start_thread,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_type_is_one_of_the_device() {
        let (one, two) = (Some(WindowType::One), Some(WindowType::Two));
        for (has, domain, queue_pair) in [
            ((false, false), None, None),
            ((true, false), one, one),
            ((false, true), two, two),
            ((true, true), one, two),
        ] {
            assert_eq!(WindowKind::Domain.of_device(has), domain);
            assert_eq!(WindowKind::QueuePair.of_device(has), queue_pair);
        }
    }
}
