//! Faults of a device that the driver detected.

use core::sync::atomic::{AtomicU32, Ordering};

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        /// The reason why the driver gave up on the device.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        #[repr(u32)]
        pub enum DeviceFault {
            $($(#[$doc])* $name = $value,)*
        }

        impl DeviceFault {
            const fn from_value(value: u32) -> Option<Self> {
                match value {
                    $($value => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

faults! {
    /// The device reported its own failure.
    Reported = 1,
    /// The device wrote a completion of a kind that no queue here requests.
    UnknownKind = 2,
    /// The device wrote a completion of a queue pair that does not exist.
    UnknownQueuePair = 3,
    /// The device wrote a completion to the wrong completion queue.
    WrongQueue = 4,
    /// The device completed a request other than the oldest posted one, or with none posted.
    WrongIndex = 5,
    /// The device reported more bytes than the buffer holds.
    ImpossibleLength = 6,
    /// The device wrote a completion after an entry that it left unwritten.
    PhaseJump = 7,
    /// The device's completion consists of ones.
    AllOnes = 8,
    /// The device lost completions because a completion queue was full.
    Overrun = 10,
    /// The device sent an interrupt message or an answer with invalid content.
    WrongMessage = 11,
    /// The device did not answer a command, or answered another one.
    Silent = 32,
}

/// The first fault of a device, if any.
#[derive(Debug)]
pub(crate) struct FaultCell(AtomicU32);

impl FaultCell {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Returns true if the driver gave up on the device.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Returns the first fault; either one if two were found concurrently.
    pub(crate) fn get(&self) -> Option<DeviceFault> {
        DeviceFault::from_value(self.0.load(Ordering::Acquire))
    }

    /// Removes the fault before a device starts.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Records a fault unless one is set; returns true if it did.
    #[cold]
    pub(crate) fn set(&self, fault: DeviceFault) -> bool {
        let first = !self.is_set();
        if first {
            self.0.store(fault as u32, Ordering::Release);
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fault_stays() {
        let cell = FaultCell::new();
        assert_eq!((cell.is_set(), cell.get()), (false, None));
        assert!(cell.set(DeviceFault::PhaseJump));
        assert!(!cell.set(DeviceFault::AllOnes));
        assert_eq!(
            (cell.is_set(), cell.get()),
            (true, Some(DeviceFault::PhaseJump))
        );
        cell.clear();
        assert_eq!(cell.get(), None);
    }
}
