//! What can be chosen about a device.

use std::ffi::CStr;
use std::io;
use std::thread;

use crate::hal::WindowType;

/// The two kinds of memory windows, which remote regions are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowKind {
    /// Type 1: opens to all queue pairs of its domain, as the interface has it.
    Domain,
    /// Type 2: opens to peers of the queue pair on which it was bound.
    QueuePair,
}

impl WindowKind {
    /// Which type to ask a device for that has type 1, or 2, or both.
    pub(crate) fn of_device(self, (one, two): (bool, bool)) -> Option<WindowType> {
        match (one, two, self) {
            (false, false, _) => None,
            (true, false, _) | (true, true, Self::Domain) => Some(WindowType::One),
            (false, true, _) | (true, true, Self::QueuePair) => Some(WindowType::Two),
        }
    }
}

/// How a device is opened and its connections behave; the defaults suit most.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VerbsOptions {
    /// How long the network may take to tell where a peer is, in milliseconds, for each of two questions.
    pub resolve_timeout: u32,
    /// The longest time that a peer's device has to acknowledge a packet, as verbs encodes it: 4.096 µs times two to
    /// this power, at most 31; the connection manager may ask for less.
    pub longest_acknowledgement: u8,
    /// How often a packet without an acknowledgement is repeated, at most 6: soft-RoCE takes 7 for ever, so that nobody
    /// would learn of a peer that is gone without a word.
    pub retries: u8,
    /// How often a message is repeated that found no receive, at most 6; 7 is for ever.
    pub not_ready_retries: u8,
    /// How long a peer waits with a message that found no receive here, as verbs encodes it: 20 is 10.24 ms.
    pub not_ready_timer: u8,
    /// The bytes that a Send or an RDMA Write carries in its request, copied while it is posted, if there are no more and
    /// the device lets it; 0: none ever does. A device may grant more than this, or less.
    pub inline: u32,
    /// Which windows to use where the device has both kinds; else it is the kind that it has.
    pub windows: WindowKind,
    /// What a connection qualifier beyond 65,535 is, which is the highest port.
    pub long_qualifiers: LongQualifiers,
    /// Starts the thread of the backend; by default one of the standard library, whose start ends the process where the heap is exhausted.
    pub start_thread: StartThread,
}

/// Starts a thread of a name that nobody joins.
pub type StartThread = fn(name: &'static CStr, body: Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// Starts a thread of the standard library.
fn start_thread(name: &'static CStr, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    let name = name.to_string_lossy().into_owned();
    thread::Builder::new().name(name).spawn(body).map(drop)
}

/// What connection qualifiers are that no port can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LongQualifiers {
    /// Refused.
    #[default]
    Refused,
    /// The port of their last 16 bits, as OFA's provider has it, with which programs agree on longer ones. Two that end
    /// alike are the same port, and the second to listen finds it in use.
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
            start_thread,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_of_the_type_that_the_device_has() {
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
