//! What a device was caught at.

use core::sync::atomic::{AtomicU32, Ordering};

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        /// Why the driver gave up on the device.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
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
    /// It said so itself.
    Reported = 1,
    /// A completion of a kind that no queue here asks for.
    UnknownKind = 2,
    /// A completion of a queue pair that does not exist.
    UnknownQueuePair = 3,
    /// A completion of a queue that does not complete there.
    WrongQueue = 4,
    /// A completion of a request that is not the oldest one posted, or of none.
    WrongIndex = 5,
    /// A completion of more bytes than the buffer has.
    ImpossibleLength = 6,
    /// A completion behind a place where none is.
    PhaseJump = 7,
    /// A completion of ones.
    AllOnes = 8,
    /// It had completions and no room for them, so that some are lost.
    Overrun = 10,
    /// An interrupt that wrote something else than it was told to.
    WrongMessage = 11,
    /// It did not answer a command, or answered another one.
    Silent = 32,
}

/// The first fault of a device, once there is one.
#[derive(Debug)]
pub(crate) struct FaultCell(AtomicU32);

impl FaultCell {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Whether the device is given up.
    #[inline(always)]
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// The fault that was noticed first; of two that are noticed at once it is either.
    pub(crate) fn get(&self) -> Option<DeviceFault> {
        DeviceFault::from_value(self.0.load(Ordering::Acquire))
    }

    /// No fault, of a device that begins.
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Keeps a fault if it is the first; says whether it was.
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
