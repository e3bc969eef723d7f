//! The end of a connection that is being disconnected gracefully.

use crate::backend::{Completion, ControlEvent, DisconnectMode};
use crate::event::ConnectionEventKind;
use crate::flags::{DtoStatus, EndpointState};
use crate::testing::fixture::Bench;
use crate::testing::{Call, TestStorage};
use crate::time::Instant;

/// The look that finds the last completion finds the end of the connection, too: that end counts.
///
/// Without an end, the endpoint disconnects once the completion is there. A driver that goes on
/// while `progress` returns other than 0 sees it without a further event of the device.
///
/// Spec: EPD-02, EPD-05, EPD-10
#[test]
fn an_end_beside_the_last_completion_is_the_end() {
    type End = fn(u64) -> ControlEvent;
    let broken: End = |queue_pair| ControlEvent::Broken { queue_pair };
    let left: End = |queue_pair| ControlEvent::Disconnected { queue_pair };
    for (end, kind) in [
        (None, ConnectionEventKind::Disconnected),
        (Some(left), ConnectionEventKind::Disconnected),
        (Some(broken), ConnectionEventKind::Broken),
    ] {
        let mut storage = TestStorage::new();
        let bench = Bench::new(&mut storage);
        let (ep, _) = bench.in_state(EndpointState::DisconnectPending);
        let (pair, queue_pair) = (bench.pair(ep), ep.handle().to_raw());
        bench.ia.progress(Instant::ZERO);
        let (requests, _) = bench.device.posted(pair);
        // Two completions: the unknown one makes the core look, and the last one comes meanwhile.
        let last = Completion {
            token: requests[0].work.token(),
            status: DtoStatus::Success,
            length: 0,
            queue_pair,
            solicited: false,
        };
        let unknown = Completion {
            token: u64::MAX,
            ..last
        };
        let queue = bench.data.slot().get();
        bench.device.inject(queue, unknown);
        let event = end.map(|end| end(queue_pair));
        bench.device.inject_with_event(queue, last, event);
        bench.device.take_calls();
        while bench.ia.progress(Instant::ZERO) != 0 {}
        assert_eq!(bench.state(ep), EndpointState::Disconnected);
        assert_eq!(bench.connection_events(), [(kind, ep, 0)]);
        let asked = [Call::Disconnect(pair, DisconnectMode::Graceful)];
        let expected = if end.is_some() { &[][..] } else { &asked };
        assert_eq!(bench.device.take_calls(), expected, "{kind:?}");
    }
}
