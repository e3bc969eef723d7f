//! The connections of a mailbox device.

use core::fmt;

use dat_core::attributes::IaAddress;
use dat_core::backend::{
    BackendError, ConnectRequest, ControlEvent, DisconnectMode, ListenerKey, PrivateData,
    RequestKey,
};
use dat_core::sync::RawLock;
use dat_core::time::Instant;

use super::connection_manager::ConnectionManager;
use crate::defs::mailbox::Command;
use crate::mailbox::{Mailbox, OtherEnd};
use crate::platform::Hal;

/// The connection manager of a mailbox device.
pub struct MailboxConnectionManager<'s, L, E, H> {
    mailbox: &'s Mailbox<'s, L, E, H>,
    address: IaAddress,
    private_data_limit: u32,
    /// Last notice for which all events were taken, if any.
    seen: Option<u32>,
}

impl<L, E, H> fmt::Debug for MailboxConnectionManager<'_, L, E, H> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "connections of {:?}", self.address)
    }
}

impl<'s, L: RawLock, E: OtherEnd, H: Hal> MailboxConnectionManager<'s, L, E, H> {
    /// Queries the address of a device.
    ///
    /// # Errors
    /// `Device`.
    pub fn new(mailbox: &'s Mailbox<'s, L, E, H>) -> Result<Self, BackendError> {
        let (address, private_data_limit): (IaAddress, u32) = mailbox.execute(&Command::Address)?;
        Ok(Self {
            mailbox,
            address,
            private_data_limit: private_data_limit.min(PrivateData::new().capacity() as u32),
            seen: None,
        })
    }

    fn execute_void(&self, command: &Command) {
        let _gone: Result<(), BackendError> = self.mailbox.execute(command);
    }
}

fn to_private_data(private_data: &[u8]) -> Result<PrivateData, BackendError> {
    PrivateData::from_slice(private_data).map_err(|_| BackendError::Resources)
}

impl<L: RawLock, E: OtherEnd, H: Hal> ConnectionManager for MailboxConnectionManager<'_, L, E, H> {
    fn address(&self) -> IaAddress {
        self.address
    }

    fn private_data_limit(&self) -> u32 {
        self.private_data_limit
    }

    fn listen(
        &mut self,
        token: u64,
        qualifier: Option<u64>,
    ) -> Result<(ListenerKey, u64), BackendError> {
        self.mailbox.execute(&Command::Listen { token, qualifier })
    }

    fn stop_listening(&mut self, listener: ListenerKey) {
        self.execute_void(&Command::StopListening { listener });
    }

    fn connect(
        &mut self,
        queue_pair: u32,
        request: &ConnectRequest<'_>,
    ) -> Result<u64, BackendError> {
        self.mailbox.execute(&Command::Connect {
            queue_pair,
            address: request.address,
            qualifier: request.qualifier,
            quality: request.quality,
            private_data: to_private_data(request.private_data)?,
        })
    }

    fn accept(
        &mut self,
        request: RequestKey,
        queue_pair: u32,
        private_data: &[u8],
    ) -> Result<(), BackendError> {
        let private_data = to_private_data(private_data)?;
        self.mailbox.execute(&Command::Accept {
            request,
            queue_pair,
            private_data,
        })
    }

    fn reject(&mut self, request: RequestKey, by_consumer: bool, private_data: &[u8]) {
        let private_data = to_private_data(private_data).unwrap_or_default();
        self.execute_void(&Command::Reject {
            request,
            by_consumer,
            private_data,
        });
    }

    fn disconnect(&mut self, queue_pair: u32, mode: DisconnectMode) {
        self.execute_void(&Command::Disconnect { queue_pair, mode });
    }

    fn poll(&mut self, _now: Instant) -> Option<ControlEvent> {
        let notice = self.mailbox.notice();
        if self.seen == Some(notice) {
            return None;
        }
        let answer: Result<Option<ControlEvent>, _> =
            self.mailbox.execute(&Command::PollConnections);
        let Ok(event) = answer else {
            // A poll cannot be refused: the other end is faulty. The control interface reports the
            // failure.
            self.mailbox.give_up();
            return None;
        };
        if event.is_none() {
            self.seen = Some(notice);
        }
        event
    }
}
