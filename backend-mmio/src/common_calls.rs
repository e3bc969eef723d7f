//! Code that the drivers of all layouts share.

use dat_core::backend::ControlEvent;

/// Implements the `Backend` calls that are the same in every layout.
///
/// Connection calls go to the connection manager and `sync` to the platform. The driver must have
/// the fields `tables`, `cm` and `hal` and a method `number` that maps a key to the device's queue
/// pair number.
macro_rules! common_calls {
    () => {
        fn sync(&mut self, direction: SyncDirection, address: u64, length: u64) {
            self.hal.synchronise(direction, address, length);
        }

        fn listen(
            &mut self,
            token: u64,
            qualifier: Option<u64>,
        ) -> Result<(ListenerKey, u64), BackendError> {
            self.tables.alive()?;
            self.cm.listen(token, qualifier)
        }

        fn stop_listening(&mut self, listener: ListenerKey) {
            self.cm.stop_listening(listener);
        }

        fn connect(
            &mut self,
            key: QueuePairKey,
            request: &ConnectRequest<'_>,
        ) -> Result<u64, BackendError> {
            self.tables.alive()?;
            let number = self.number(key)?;
            self.cm.connect(number, request)
        }

        fn reject(&mut self, request: RequestKey, by_consumer: bool, private_data: &[u8]) {
            self.cm.reject(request, by_consumer, private_data);
        }
    };
}

pub(crate) use common_calls;

/// Replaces the queue pair number in a connection event by the core's token.
pub(crate) fn with_token(
    event: ControlEvent,
    token: impl FnOnce(u32) -> Option<u64>,
) -> Option<ControlEvent> {
    let mut event = event;
    match &mut event {
        ControlEvent::Answered { queue_pair }
        | ControlEvent::Established { queue_pair, .. }
        | ControlEvent::ConnectFailed { queue_pair, .. }
        | ControlEvent::Disconnected { queue_pair }
        | ControlEvent::Broken { queue_pair } => *queue_pair = token(*queue_pair as u32)?,
        ControlEvent::ConnectionRequest { .. } => {}
        // A connection manager reports no other events.
        _ => return None,
    }
    Some(event)
}
