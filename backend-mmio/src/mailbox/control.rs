//! The control interface of a mailbox device.
#![expect(unsafe_code, reason = "`Control` rests on the contract of `OtherEnd`")]

use core::fmt;

use dat_core::backend::{BackendError, RegionKeys, Registration};
use dat_core::sync::RawLock;
use dat_core::time::Instant;

use super::exchange::{Mailbox, OtherEnd};
use crate::defs::mailbox::Command;
use crate::mlx5::{
    CompletionQueueSpec, Control, CreatedQueuePair, DeviceEvent, Limits, QueuePairSpec,
    SharedReceiveQueueSpec,
};
use crate::platform::Hal;

/// The control interface of a mailbox device.
pub struct MailboxControl<'s, L: RawLock, E: OtherEnd, H: Hal> {
    mailbox: &'s Mailbox<'s, L, E, H>,
    limits: Limits,
    /// Last notice for which all events were taken, if any.
    seen: Option<u32>,
    /// Set once the failure of the other end was reported.
    failure_reported: bool,
}

impl<L: RawLock, E: OtherEnd, H: Hal> fmt::Debug for MailboxControl<'_, L, E, H> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "commands of {}", self.limits.name)
    }
}

impl<'s, L: RawLock, E: OtherEnd, H: Hal> MailboxControl<'s, L, E, H> {
    /// Queries the limits of the device and names it.
    ///
    /// # Errors
    /// `Device`.
    pub fn new(
        mailbox: &'s Mailbox<'s, L, E, H>,
        name: &'static str,
    ) -> Result<Self, BackendError> {
        let limits: Limits = mailbox.execute(&Command::Limits)?;
        Ok(Self {
            mailbox,
            limits: Limits { name, ..limits },
            seen: None,
            failure_reported: false,
        })
    }

    /// Executes a command that has no result.
    ///
    /// Errors need no handling: any answer ends the access to the object, and without an answer the
    /// other end was cut off.
    fn execute_void(&self, command: &Command) {
        let _gone: Result<(), BackendError> = self.mailbox.execute(command);
    }
}

/// Stops the device, which then accesses none of the memory registered here.
impl<L: RawLock, E: OtherEnd, H: Hal> Drop for MailboxControl<'_, L, E, H> {
    fn drop(&mut self) {
        self.execute_void(&Command::Halt);
        self.mailbox.give_up();
    }
}

// SAFETY: `OtherEnd` guarantees it. Each call is a command, and returns after the answer or after
// the other end was cut off; dropping this value does both. The other end withdraws the events of a
// destroyed object: nothing is kept here.
unsafe impl<L: RawLock, E: OtherEnd, H: Hal> Control for MailboxControl<'_, L, E, H> {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn create_domain(&mut self) -> Result<u32, BackendError> {
        self.mailbox.execute(&Command::CreateDomain)
    }

    fn destroy_domain(&mut self, domain: u32) {
        self.execute_void(&Command::DestroyDomain { domain });
    }

    fn register(&mut self, registration: &Registration) -> Result<RegionKeys, BackendError> {
        self.mailbox.execute(&Command::Register {
            domain: registration.domain().0 as u32,
            address: registration.base().expose_provenance() as u64,
            length: registration.length() as u64,
            privileges: registration.privileges(),
        })
    }

    fn deregister(&mut self, region: RegionKeys) {
        self.execute_void(&Command::Deregister { region });
    }

    fn create_window(&mut self, domain: u32) -> Result<u32, BackendError> {
        self.mailbox.execute(&Command::CreateWindow { domain })
    }

    fn destroy_window(&mut self, key: u32) {
        self.execute_void(&Command::DestroyWindow { key });
    }

    fn create_completion_queue(&mut self, spec: &CompletionQueueSpec) -> Result<u32, BackendError> {
        self.mailbox
            .execute(&Command::CreateCompletionQueue { spec: *spec })
    }

    fn move_completion_queue(
        &mut self,
        number: u32,
        ring: u64,
        entries: u32,
    ) -> Result<(), BackendError> {
        self.mailbox.execute(&Command::MoveCompletionQueue {
            number,
            ring,
            entries,
        })
    }

    fn destroy_completion_queue(&mut self, number: u32) {
        self.execute_void(&Command::DestroyCompletionQueue { number });
    }

    fn create_shared_receive_queue(
        &mut self,
        spec: &SharedReceiveQueueSpec,
    ) -> Result<u32, BackendError> {
        self.mailbox
            .execute(&Command::CreateSharedReceiveQueue { spec: *spec })
    }

    fn arm_shared_receive_limit(&mut self, number: u32, limit: u32) -> Result<bool, BackendError> {
        self.mailbox
            .execute(&Command::ArmSharedReceiveLimit { number, limit })
    }

    fn destroy_shared_receive_queue(&mut self, number: u32) {
        self.execute_void(&Command::DestroySharedReceiveQueue { number });
    }

    fn create_queue_pair(
        &mut self,
        spec: &QueuePairSpec,
    ) -> Result<CreatedQueuePair, BackendError> {
        self.mailbox
            .execute(&Command::CreateQueuePair { spec: *spec })
    }

    fn destroy_queue_pair(&mut self, number: u32) {
        self.execute_void(&Command::DestroyQueuePair { number });
    }

    fn poll(&mut self, _now: Instant) -> Option<DeviceEvent> {
        if self.mailbox.is_closed() {
            return (!core::mem::replace(&mut self.failure_reported, true))
                .then_some(DeviceEvent::Failed);
        }
        let notice = self.mailbox.notice();
        if self.seen == Some(notice) {
            return None;
        }
        match self.mailbox.execute(&Command::PollDevice) {
            Ok(Some(event)) => Some(event),
            Ok(None) => {
                self.seen = Some(notice);
                None
            }
            Err(_) => {
                // A poll cannot be refused: the other end is faulty.
                self.mailbox.give_up();
                self.failure_reported = true;
                Some(DeviceEvent::Failed)
            }
        }
    }

    fn halt(&mut self) {
        self.execute_void(&Command::Halt);
    }
}
