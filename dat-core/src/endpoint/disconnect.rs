//! Ending a connection.

use super::{Call, Ending, Legal, Trigger, permit};
use crate::backend::{Backend, DisconnectMode};
use crate::error::Result;
use crate::event::{Aftermath, ConnectionEventKind};
use crate::flags::CloseFlags;
use crate::ia::Ia;
use crate::id::EpId;
use crate::sync::RawLock;

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Ends a connection, or gives an attempt up.
    ///
    /// Abruptly the endpoint is DISCONNECTED on return and everything outstanding completes,
    /// flushed unless it was done. Gracefully it is DISCONNECT_PENDING until all requests have completed,
    /// which `progress` sees to; outside of CONNECTED both mean the same. DISCONNECTED is raised on
    /// the connection dispatcher, behind the successful completions that share it.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): not a live endpoint of this adapter.
    /// - INVALID_STATE (EP state): UNCONNECTED, RESERVED, or a passive or tentative connection is pending.
    ///
    /// Spec: EPD-01..10
    pub fn ep_disconnect(&self, ep: EpId, flags: CloseFlags) -> Result<()> {
        let call = match flags {
            CloseFlags::Abrupt => Call::DisconnectAbrupt,
            CloseFlags::Graceful => Call::DisconnectGraceful,
        };
        let mut aftermath = Aftermath::default();
        let drains = self.control.with(|control| {
            self.with_endpoint(ep, |_, endpoint| {
                match (permit(call, endpoint.state)?, call) {
                    (Legal::NoOp, _) => Ok(false),
                    (Legal::Yes, Call::DisconnectGraceful) => {
                        control.watch(None);
                        Ok(endpoint.step(Trigger::Drain))
                    }
                    _ => {
                        let ending = Ending {
                            trigger: Trigger::DisconnectAbruptly,
                            mode: Some(DisconnectMode::Abrupt),
                            kind: ConnectionEventKind::Disconnected,
                        };
                        self.end_connection(control, endpoint, ending, &mut aftermath);
                        Ok(false)
                    }
                }
            })
        });
        self.settle(&mut aftermath);
        if drains? {
            // Most often nothing is outstanding; else `progress` tries again.
            self.drain(ep);
        }
        Ok(())
    }
}
