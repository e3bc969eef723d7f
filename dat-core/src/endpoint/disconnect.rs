//! Disconnects endpoints.

use super::{Call, Ending, Legal, Trigger, permit};
use crate::adapter::Ia;
use crate::backend::{Backend, DisconnectMode};
use crate::error::Result;
use crate::event::{ConnectionEventKind, Deferred};
use crate::flags::CloseFlags;
use crate::id::EpId;
use crate::sync::RawLock;

impl<B: Backend, L: RawLock> Ia<'_, B, L> {
    /// Ends a connection or aborts a connection attempt.
    ///
    /// An abrupt disconnect leaves the endpoint DISCONNECTED on return; outstanding work completes,
    /// flushed unless it was done. A graceful one leaves a CONNECTED endpoint DISCONNECT_PENDING
    /// until `progress` finds all requests complete. It aborts an attempt as an abrupt one does and
    /// changes nothing if the endpoint is DISCONNECT_PENDING. DISCONNECTED is queued on the
    /// connection dispatcher, after the successful completions that share it.
    ///
    /// # Errors
    /// - INVALID_HANDLE (EP): `ep` is not a live endpoint of this adapter.
    /// - INVALID_STATE (EP state): the endpoint is UNCONNECTED or RESERVED, or a passive or
    ///   tentative connection is pending.
    ///
    /// Spec: EPD-01..10
    pub fn ep_disconnect(&self, ep: EpId, flags: CloseFlags) -> Result<()> {
        let call = match flags {
            CloseFlags::Abrupt => Call::DisconnectAbrupt,
            CloseFlags::Graceful => Call::DisconnectGraceful,
        };
        let mut deferred = Deferred::default();
        let drains = self.control.with(|control| {
            self.with_endpoint(ep, |slot, endpoint| {
                match (permit(call, endpoint.state)?, call) {
                    (Legal::NoOp, _) => Ok(false),
                    (Legal::Yes, Call::DisconnectGraceful) => {
                        control.watch.add(slot, ep.slot(), None);
                        Ok(endpoint.step(Trigger::Drain))
                    }
                    _ => {
                        let ending = Ending {
                            trigger: Trigger::DisconnectAbruptly,
                            mode: Some(DisconnectMode::Abrupt),
                            kind: ConnectionEventKind::Disconnected,
                        };
                        self.end_connection(control, endpoint, ending, &mut deferred);
                        Ok(false)
                    }
                }
            })
        });
        self.run_deferred(&mut deferred);
        if drains? {
            // Usually no request is outstanding; otherwise, `progress` retries.
            self.drain(ep);
        }
        Ok(())
    }
}
