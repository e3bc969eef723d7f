//! The control path.
#![expect(
    unsafe_code,
    reason = "what the other end promises is the promise of the control path"
)]

use core::fmt;

use dat_core::backend::{BackendError, RegionKeys, Registration};
use dat_core::sync::RawLock;
use dat_core::time::Instant;

use super::defs::Command;
use super::exchange::{Mailbox, OtherEnd};
use crate::hal::Hal;
use crate::mlx5::{
    CompletionQueueSpec, Control, DeviceEvent, Limits, MadeQueuePair, QueuePairSpec,
    SharedReceiveQueueSpec,
};

/// The control path of a device behind a mailbox.
pub struct MailboxControl<'s, L: RawLock, E: OtherEnd, H: Hal> {
    mailbox: &'s Mailbox<'s, L, E, H>,
    limits: Limits,
    /// The notice of which all events were taken, if any.
    seen: Option<u32>,
    /// Whether it was reported that the other end is of no use.
    told: bool,
}

impl<L: RawLock, E: OtherEnd, H: Hal> fmt::Debug for MailboxControl<'_, L, E, H> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "commands of {}", self.limits.name)
    }
}

impl<'s, L: RawLock, E: OtherEnd, H: Hal> MailboxControl<'s, L, E, H> {
    /// Asks a device what it has, and gives it a name.
    ///
    /// # Errors
    /// `Device`.
    pub fn new(
        mailbox: &'s Mailbox<'s, L, E, H>,
        name: &'static str,
    ) -> Result<Self, BackendError> {
        let limits: Limits = mailbox.ask(&Command::Limits)?;
        Ok(Self {
            mailbox,
            limits: Limits { name, ..limits },
            seen: None,
            told: false,
        })
    }

    /// A command that nothing comes of. One that is not done because the other end is of no use is done all the same: it does nothing
    /// any more.
    fn tell(&self, command: &Command) {
        let _gone: Result<(), BackendError> = self.mailbox.ask(command);
    }
}

/// Has the device touch nothing any more: what was registered through this control path is its driver's alone again.
impl<L: RawLock, E: OtherEnd, H: Hal> Drop for MailboxControl<'_, L, E, H> {
    fn drop(&mut self) {
        self.tell(&Command::Halt);
        self.mailbox.give_up();
    }
}

// SAFETY: as `OtherEnd` promises: every one of these calls is a command to it, and returns when it was answered or the other end was cut off; dropping
// this does both.
// That an event is withdrawn with its object is the other end's part: nothing is kept here.
unsafe impl<L: RawLock, E: OtherEnd, H: Hal> Control for MailboxControl<'_, L, E, H> {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn create_domain(&mut self) -> Result<u32, BackendError> {
        self.mailbox.ask(&Command::CreateDomain)
    }

    fn destroy_domain(&mut self, domain: u32) {
        self.tell(&Command::DestroyDomain { domain });
    }

    fn register(&mut self, registration: &Registration) -> Result<RegionKeys, BackendError> {
        self.mailbox.ask(&Command::Register {
            domain: registration.domain().0 as u32,
            address: registration.base().expose_provenance() as u64,
            length: registration.length() as u64,
            privileges: registration.privileges(),
        })
    }

    fn deregister(&mut self, region: RegionKeys) {
        self.tell(&Command::Deregister { region });
    }

    fn create_window(&mut self, domain: u32) -> Result<u32, BackendError> {
        self.mailbox.ask(&Command::CreateWindow { domain })
    }

    fn destroy_window(&mut self, key: u32) {
        self.tell(&Command::DestroyWindow { key });
    }

    fn create_completion_queue(&mut self, spec: &CompletionQueueSpec) -> Result<u32, BackendError> {
        self.mailbox
            .ask(&Command::CreateCompletionQueue { spec: *spec })
    }

    fn move_completion_queue(
        &mut self,
        number: u32,
        ring: u64,
        entries: u32,
    ) -> Result<(), BackendError> {
        self.mailbox.ask(&Command::MoveCompletionQueue {
            number,
            ring,
            entries,
        })
    }

    fn destroy_completion_queue(&mut self, number: u32) {
        self.tell(&Command::DestroyCompletionQueue { number });
    }

    fn create_shared_receive_queue(
        &mut self,
        spec: &SharedReceiveQueueSpec,
    ) -> Result<u32, BackendError> {
        self.mailbox
            .ask(&Command::CreateSharedReceiveQueue { spec: *spec })
    }

    fn arm_shared_receive_limit(&mut self, number: u32, limit: u32) -> Result<bool, BackendError> {
        self.mailbox
            .ask(&Command::ArmSharedReceiveLimit { number, limit })
    }

    fn destroy_shared_receive_queue(&mut self, number: u32) {
        self.tell(&Command::DestroySharedReceiveQueue { number });
    }

    fn create_queue_pair(&mut self, spec: &QueuePairSpec) -> Result<MadeQueuePair, BackendError> {
        self.mailbox.ask(&Command::CreateQueuePair { spec: *spec })
    }

    fn destroy_queue_pair(&mut self, number: u32) {
        self.tell(&Command::DestroyQueuePair { number });
    }

    fn poll(&mut self, _now: Instant) -> Option<DeviceEvent> {
        if self.mailbox.is_closed() {
            return (!core::mem::replace(&mut self.told, true)).then_some(DeviceEvent::Failed);
        }
        let notice = self.mailbox.notice();
        if self.seen == Some(notice) {
            return None;
        }
        match self.mailbox.ask(&Command::PollDevice) {
            Ok(Some(event)) => Some(event),
            Ok(None) => {
                self.seen = Some(notice);
                None
            }
            Err(_) => {
                // There is nothing to refuse.
                self.mailbox.give_up();
                self.told = true;
                Some(DeviceEvent::Failed)
            }
        }
    }

    fn halt(&mut self) {
        self.tell(&Command::Halt);
    }
}
