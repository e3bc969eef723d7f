//! Disconnecting, breaking, resetting and freeing endpoints.

use std::vec::Vec;

use crate::backend::{
    BackendError, Completion, ConnectFailure, ControlEvent, DisconnectMode, QueuePairKey,
};
use crate::error::{Cause, ErrorKind, Subtype};
use crate::event::{AsyncEventKind, ConnectionEventKind, Event, REASON_SOFT_HIGH_WATERMARK};
use crate::flags::{CloseFlags, CompletionFlags, DtoStatus, EndpointState, EvdFlags};
use crate::id::{EpId, EvdId};
use crate::testing::fixture::{Bench, SMALL};
use crate::testing::{Call, TestStorage};
use crate::time::Instant;

pub(super) fn disconnects(bench: &Bench<'_>) -> Vec<(QueuePairKey, DisconnectMode)> {
    let calls = bench.device.take_calls().into_iter();
    calls
        .filter_map(|call| match call {
            Call::Disconnect(key, mode) => Some((key, mode)),
            _ => None,
        })
        .collect()
}

/// Dequeues all completions of a dispatcher; returns their cookies and statuses.
pub(super) fn completions(bench: &Bench<'_>, evd: EvdId) -> Vec<(u64, DtoStatus)> {
    core::iter::from_fn(|| match bench.ia.evd_dequeue(evd) {
        Ok(Event::Dto(completion)) => Some((completion.cookie, completion.status)),
        Ok(other) => panic!("{other:?} is no completion"),
        Err(_) => None,
    })
    .collect()
}

/// An abrupt disconnect is complete on return.
///
/// On a shared dispatcher, earlier successful completions precede its event; flushed ones come in
/// any order.
///
/// Spec: EPD-01, EPD-05, EPD-06, EPD-07, DTO-04, DTO-10
#[test]
fn an_abrupt_disconnect_is_over_at_once() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let all = EvdFlags::DTO | EvdFlags::CONNECTION;
    let evd = bench.ia.evd_create(8, None, all).unwrap();
    let ep = bench
        .ia
        .ep_create(
            Some(bench.pz),
            Some(evd),
            Some(evd),
            Some(evd),
            Some(&SMALL),
        )
        .unwrap();
    bench.connect(ep);
    bench.establish(ep);
    bench.send(ep, 1);
    let suppress = CompletionFlags::SUPPRESS;
    bench.ia.post_send(ep, &[], 2, suppress).unwrap();
    bench.receive(ep, 3);
    let pair = bench.pair(ep);
    assert!(bench.device.complete_request(pair, DtoStatus::Success));
    bench.device.take_calls();
    bench.ia.ep_disconnect(ep, CloseFlags::Abrupt).unwrap();
    assert_eq!(disconnects(&bench), [(pair, DisconnectMode::Abrupt)]);
    assert_eq!(bench.state(ep), EndpointState::Disconnected);
    // Posts after the disconnect are flushed at once; nothing is sent.
    bench.send(ep, 4);
    let events: Vec<_> = core::iter::from_fn(|| bench.ia.evd_dequeue(evd).ok()).collect();
    let place = |wanted: &dyn Fn(&Event) -> bool| events.iter().position(wanted).unwrap();
    let completion = |cookie, status| {
        place(
            &move |event: &Event| matches!(event, Event::Dto(c) if c.cookie == cookie && c.status == status),
        )
    };
    let told = |wanted| {
        place(
            &move |event: &Event| matches!(event, Event::Connection { kind, .. } if *kind == wanted),
        )
    };
    let over = told(ConnectionEventKind::Disconnected);
    assert!(told(ConnectionEventKind::Established) < completion(1, DtoStatus::Success));
    assert!(completion(1, DtoStatus::Success) < over);
    // A suppressed request is reported because it failed.
    assert!(completion(2, DtoStatus::Flushed) < completion(4, DtoStatus::Flushed));
    completion(3, DtoStatus::Flushed);
    assert_eq!(events.len(), 6);
    // A second disconnect changes nothing.
    bench.ia.ep_disconnect(ep, CloseFlags::Graceful).unwrap();
    assert_eq!(disconnects(&bench), []);
    assert!(bench.ia.evd_dequeue(evd).is_err());
}

/// ESTABLISHED precedes the data of its connection on a shared dispatcher.
///
/// Spec: EPK-06, DTO-11
#[test]
fn established_precedes_the_data() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let all = EvdFlags::DTO | EvdFlags::CONNECTION;
    let evd = bench.ia.evd_create(8, None, all).unwrap();
    let ep = bench
        .ia
        .ep_create(
            Some(bench.pz),
            Some(evd),
            Some(evd),
            Some(evd),
            Some(&SMALL),
        )
        .unwrap();
    bench.receive(ep, 1);
    bench.connect(ep);
    let pair = bench.pair(ep);
    assert!(
        bench
            .device
            .complete_receive(pair, DtoStatus::Success, 0, false)
    );
    bench.establish(ep);
    let first = bench.ia.evd_dequeue(evd).unwrap();
    assert_eq!(first.number(), ConnectionEventKind::Established as u32);
    assert!(matches!(bench.ia.evd_dequeue(evd), Ok(Event::Dto(c)) if c.cookie == 1));
}

/// A graceful disconnect waits for the requests, refuses new ones, and tells the peer last.
///
/// Spec: EPD-02, EPD-03, EPD-05, EPS-02
#[test]
fn a_graceful_disconnect_drains() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.connected();
    let pair = bench.pair(ep);
    bench.receive(ep, 9);
    bench.send(ep, 1);
    bench.send(ep, 2);
    bench.device.take_calls();
    bench.ia.ep_disconnect(ep, CloseFlags::Graceful).unwrap();
    assert_eq!(bench.state(ep), EndpointState::DisconnectPending);
    let none = CompletionFlags::empty();
    let refused = bench.ia.post_send(ep, &[], 3, none).unwrap_err();
    assert_eq!(refused.subtype(), Subtype::InvalidStateEpDiscPending);
    bench.ia.ep_disconnect(ep, CloseFlags::Graceful).unwrap();
    assert!(bench.device.complete_request(pair, DtoStatus::Success));
    // The drain armed the completion queue, so the device raises an event.
    bench.ia.progress(Instant::ZERO);
    assert_eq!(bench.state(ep), EndpointState::DisconnectPending);
    assert_eq!(disconnects(&bench), []);
    assert!(bench.device.complete_request(pair, DtoStatus::Success));
    bench.ia.progress(Instant::ZERO);
    assert_eq!(disconnects(&bench), [(pair, DisconnectMode::Graceful)]);
    assert_eq!(bench.state(ep), EndpointState::Disconnected);
    assert_eq!(
        bench.connection_events(),
        [(ConnectionEventKind::Disconnected, ep, 0)]
    );
    let (success, flushed) = (DtoStatus::Success, DtoStatus::Flushed);
    assert_eq!(
        completions(&bench, bench.data),
        [(1, success), (2, success), (9, flushed)]
    );
    // With nothing outstanding, the endpoint is disconnected on return.
    let ep = bench.connected();
    bench.ia.ep_disconnect(ep, CloseFlags::Graceful).unwrap();
    assert_eq!(bench.state(ep), EndpointState::Disconnected);
    assert_eq!(bench.connection_events().len(), 1);
    // Completions that the consumer dequeues count as drained too.
    let ep = bench.connected();
    bench.send(ep, 5);
    bench.ia.ep_disconnect(ep, CloseFlags::Graceful).unwrap();
    bench.device.complete_request(bench.pair(ep), success);
    assert_eq!(completions(&bench, bench.data), [(5, success)]);
    bench.ia.progress(Instant::ZERO);
    assert_eq!(bench.state(ep), EndpointState::Disconnected);
}

/// An abrupt disconnect, the peer or a broken connection cuts a drain short.
///
/// Spec: EPD-03, EPD-10
#[test]
fn a_drain_can_be_cut_short() {
    let token = |ep: EpId| ep.handle().to_raw();
    type Cut = fn(&Bench<'_>, EpId, u64);
    let cuts: [(Cut, ConnectionEventKind); 3] = [
        (
            |bench, ep, _| bench.ia.ep_disconnect(ep, CloseFlags::Abrupt).unwrap(),
            ConnectionEventKind::Disconnected,
        ),
        (
            |bench, _, queue_pair| bench.raise(ControlEvent::Disconnected { queue_pair }),
            ConnectionEventKind::Disconnected,
        ),
        (
            |bench, _, queue_pair| bench.raise(ControlEvent::Broken { queue_pair }),
            ConnectionEventKind::Broken,
        ),
    ];
    for (cut, kind) in cuts {
        let mut storage = TestStorage::new();
        let bench = Bench::new(&mut storage);
        let (ep, _) = bench.in_state(EndpointState::DisconnectPending);
        cut(&bench, ep, token(ep));
        assert_eq!(bench.state(ep), EndpointState::Disconnected);
        assert_eq!(bench.connection_events(), [(kind, ep, 0)]);
        bench.ia.progress(Instant::ZERO);
        assert_eq!(bench.connection_events(), []);
    }
}

/// Both sides can abort a connection attempt; later events of the device are ignored.
///
/// Spec: EPD-04, EPD-08, EPD-09
#[test]
fn attempts_are_given_up() {
    for state in [
        EndpointState::ActiveConnectionPending,
        EndpointState::CompletionPending,
    ] {
        for flags in [CloseFlags::Abrupt, CloseFlags::Graceful] {
            let mut storage = TestStorage::new();
            let bench = Bench::new(&mut storage);
            let (ep, _) = bench.in_state(state);
            bench.receive(ep, 1);
            bench.device.take_calls();
            bench.ia.ep_disconnect(ep, flags).unwrap();
            assert_eq!(
                disconnects(&bench),
                [(bench.pair(ep), DisconnectMode::Abrupt)]
            );
            let over = (ConnectionEventKind::Disconnected, ep, 0);
            assert_eq!(bench.connection_events(), [over]);
            assert_eq!(completions(&bench, bench.data), [(1, DtoStatus::Flushed)]);
            bench.establish(ep);
            bench.fail_attempt(ep, ConnectFailure::TimedOut);
            assert_eq!(bench.state(ep), EndpointState::Disconnected);
            assert_eq!(bench.connection_events(), []);
        }
    }
}

/// A failed operation breaks the connection once.
///
/// The core disconnects at the device, unless the device reported the break.
///
/// Spec: DTO-12, RMB-22, EPD-10
#[test]
fn a_failure_breaks_the_connection_once() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let broken = |ep| (ConnectionEventKind::Broken, ep, 0);
    let ep = bench.connected();
    bench.device.take_calls();
    bench.ia.connection_failed(ep);
    bench.ia.connection_failed(ep);
    assert_eq!(
        disconnects(&bench),
        [(bench.pair(ep), DisconnectMode::Broken)]
    );
    assert_eq!(bench.connection_events(), [broken(ep)]);
    let ep = bench.connected();
    bench.device.take_calls();
    bench.raise(ControlEvent::Broken {
        queue_pair: ep.handle().to_raw(),
    });
    bench.ia.connection_failed(ep);
    assert_eq!(disconnects(&bench), []);
    assert_eq!(bench.connection_events(), [broken(ep)]);
    bench.ia.ep_free(ep).unwrap();
    bench.ia.connection_failed(ep);
    assert_eq!(bench.connection_events(), []);
}

/// A free ends the connection without an event, drops completions and frees all resources.
///
/// Later events of the device for the endpoint are ignored.
///
/// Spec: EPF-01..03, GEN-03
#[test]
fn a_freed_endpoint_is_gone() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let survivor = bench.connected();
    let ep = bench.connected();
    let pair = bench.pair(ep);
    bench.receive(ep, 1);
    bench.send(ep, 2);
    bench.send(survivor, 3);
    bench.device.complete_request(pair, DtoStatus::Success);
    bench
        .device
        .complete_request(bench.pair(survivor), DtoStatus::Success);
    // One completion is polled, the other is still at the device.
    assert!(bench.ia.ep_get_status(ep).unwrap().request_idle);
    bench.device.take_calls();
    bench.ia.ep_free(ep).unwrap();
    assert!(
        bench
            .device
            .take_calls()
            .contains(&Call::DestroyQueuePair(pair))
    );
    assert_eq!(completions(&bench, bench.data), [(3, DtoStatus::Success)]);
    assert_eq!(bench.connection_events(), []);
    let again = bench.endpoint();
    assert_eq!((again.index(), again == ep), (ep.index(), false));
    for event in [
        ControlEvent::Broken {
            queue_pair: ep.handle().to_raw(),
        },
        ControlEvent::Disconnected { queue_pair: 0 },
        ControlEvent::SoftHighWatermark {
            queue_pair: u64::MAX,
        },
        ControlEvent::Answered {
            queue_pair: bench.pz.handle().to_raw(),
        },
        ControlEvent::Completions { queue: 999 },
        ControlEvent::SharedReceiveLimit { queue: 12 },
    ] {
        bench.raise(event);
    }
    assert_eq!(bench.state(again), EndpointState::Unconnected);
    assert!(bench.ia.evd_dequeue(bench.ia.async_evd()).is_err());
    let stale = bench.ia.ep_free(ep).unwrap_err();
    assert_eq!(stale.subtype(), Subtype::InvalidHandleEp);
    assert_eq!(stale.cause(), Cause::Stale);
    bench.ia.ep_free(again).unwrap();
    bench.ia.ep_free(survivor).unwrap();
    bench.ia.evd_free(bench.data).unwrap();
    bench.ia.evd_free(bench.connections).unwrap();
    bench.ia.pz_free(bench.pz).unwrap();
}

/// A reset empties both queues, drops undequeued completions and makes the endpoint usable again.
///
/// On an UNCONNECTED endpoint, posted receives stay posted.
///
/// Spec: EPR-01..03, EPG-01
#[test]
fn a_reset_starts_anew() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.connected();
    for cookie in 1..=4 {
        bench.receive(ep, cookie);
        bench.send(ep, 10 + cookie);
    }
    bench.ia.ep_disconnect(ep, CloseFlags::Abrupt).unwrap();
    bench.connection_events();
    // The marker technique: a request posted now is flushed after all earlier ones.
    assert!(completions(&bench, bench.data).contains(&(14, DtoStatus::Flushed)));
    bench.send(ep, 77);
    assert_eq!(completions(&bench, bench.data), [(77, DtoStatus::Flushed)]);
    bench.send(ep, 78);
    bench.receive(ep, 79);
    bench.device.refuse_next(BackendError::Device);
    let refused = bench.ia.ep_reset(ep).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InternalError);
    assert_eq!(bench.state(ep), EndpointState::Disconnected);
    bench.ia.ep_reset(ep).unwrap();
    assert_eq!(bench.state(ep), EndpointState::Unconnected);
    assert_eq!(completions(&bench, bench.data), []);
    let status = bench.ia.ep_get_status(ep).unwrap();
    assert!(status.recv_idle && status.request_idle);
    for cookie in 1..=4 {
        bench.receive(ep, cookie);
    }
    bench.ia.ep_reset(ep).unwrap();
    assert!(!bench.ia.ep_get_status(ep).unwrap().recv_idle);
    bench.connect(ep);
    bench.establish(ep);
    bench.connection_events();
    for cookie in 1..=4 {
        bench.send(ep, 20 + cookie);
        bench
            .device
            .complete_request(bench.pair(ep), DtoStatus::Success);
        bench
            .device
            .complete_receive(bench.pair(ep), DtoStatus::Success, 0, false);
    }
    assert_eq!(completions(&bench, bench.data).len(), 8);
}

/// A failed device raises one asynchronous event and ends every connection and attempt.
///
/// Spec: EPD-10, EPK-08, CRA-03
#[test]
fn a_dead_device_ends_everything() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let idle = bench.endpoint();
    let connected = bench.connected();
    let (connecting, _) = bench.in_state(EndpointState::ActiveConnectionPending);
    let (completing, _) = bench.in_state(EndpointState::CompletionPending);
    bench.raise(ControlEvent::DeviceFailed);
    assert!(matches!(
        bench.ia.evd_dequeue(bench.ia.async_evd()),
        Ok(Event::Async { kind: AsyncEventKind::IaCatastrophic, handle, reason: 0 })
            if handle == bench.ia.handle()
    ));
    let events = bench.connection_events();
    assert_eq!(events.len(), 3);
    for told in [
        (ConnectionEventKind::Broken, connected, 0),
        (ConnectionEventKind::NonPeerRejected, connecting, 0),
        (ConnectionEventKind::AcceptCompletionError, completing, 0),
    ] {
        assert!(events.contains(&told));
    }
    assert_eq!(bench.state(idle), EndpointState::Unconnected);
}

/// Exceeding the soft high watermark raises an asynchronous event of the endpoint.
///
/// Spec: EPH-02
#[test]
fn the_soft_watermark_is_reported() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.connected();
    bench.raise(ControlEvent::SoftHighWatermark {
        queue_pair: ep.handle().to_raw(),
    });
    assert_eq!(
        bench.ia.evd_dequeue(bench.ia.async_evd()),
        Ok(Event::Async {
            kind: AsyncEventKind::EpBroken,
            handle: ep.handle(),
            reason: REASON_SOFT_HIGH_WATERMARK,
        })
    );
    assert_eq!(bench.state(ep), EndpointState::Connected);
}

/// Dequeuing a failed completion breaks the connection; dequeuing a flushed one does not.
///
/// Spec: DTO-12, EPS-04, EPV-04
#[test]
fn a_failed_completion_breaks_the_connection() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    for failure in DtoStatus::ALL {
        let ep = bench.connected();
        bench.send(ep, 1);
        bench.device.complete_request(bench.pair(ep), *failure);
        assert_eq!(completions(&bench, bench.data), [(1, *failure)]);
        let breaks = !matches!(failure, DtoStatus::Success | DtoStatus::Flushed);
        let told = (ConnectionEventKind::Broken, ep, 0);
        let expected: &[_] = if breaks { &[told] } else { &[] };
        assert_eq!(bench.connection_events(), expected, "{failure:?}");
        assert_eq!(bench.state(ep) == EndpointState::Disconnected, breaks);
        bench.ia.ep_free(ep).unwrap();
    }
}

/// Unpolled flushed receives free their completion queue entries with a reset or a free.
///
/// The completion queue is no deeper than the attached streams need.
///
/// Spec: EPR-01, EPF-02, DTO-13
#[test]
fn flushed_receives_free_their_queue_entries_with_a_reset() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let receives = bench.ia.evd_create(1, None, EvdFlags::DTO).unwrap();
    let make = || {
        bench
            .ia
            .ep_create(
                Some(bench.pz),
                Some(receives),
                Some(bench.data),
                Some(bench.connections),
                Some(&SMALL),
            )
            .unwrap()
    };
    let live_and_end = |ep: EpId| {
        for cookie in 0..4 {
            bench.receive(ep, cookie);
        }
        bench.connect(ep);
        bench.establish(ep);
        bench.ia.ep_disconnect(ep, CloseFlags::Abrupt).unwrap();
        bench.connection_events();
    };
    let ep = make();
    live_and_end(ep);
    bench.ia.ep_reset(ep).unwrap();
    live_and_end(ep);
    bench.ia.ep_free(ep).unwrap();
    let ep = make();
    live_and_end(ep);
    let flushed = |cookie| (cookie, DtoStatus::Flushed);
    assert_eq!(completions(&bench, receives), [0, 1, 2, 3].map(flushed));
    assert!(bench.ia.evd_dequeue(bench.ia.async_evd()).is_err());
}

/// A drain retries arming if completions arrive meanwhile, so the last completion raises an event.
///
/// Spec: EPD-02, EPD-05
#[test]
fn a_drain_hears_of_the_last_completion() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.connected();
    bench.send(ep, 1);
    bench.send(ep, 2);
    let pair = bench.pair(ep);
    let (requests, _) = bench.device.posted(pair);
    let queue = bench.data.slot();
    bench.device.inject_before_arming(
        queue.get(),
        Completion {
            token: requests[0].work.token(),
            status: DtoStatus::Success,
            length: 0,
            queue_pair: ep.handle().to_raw(),
            solicited: false,
        },
    );
    bench.ia.ep_disconnect(ep, CloseFlags::Graceful).unwrap();
    assert_eq!(bench.state(ep), EndpointState::DisconnectPending);
    assert_eq!(bench.device.armed(queue.get()), Some(false));
}

/// A drain that cannot arm a busy completion queue wakes the progress driver at once.
///
/// Otherwise no event would announce the last completion. Once the queue is armed, nothing is
/// woken.
///
/// Spec: EPD-02, EPD-05
#[test]
fn a_drain_that_is_too_busy_is_not_slept_over() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ia = &bench.ia;
    let (ep, _) = bench.in_state(EndpointState::DisconnectPending);
    let queue = bench.data.slot();
    let unknown = Completion {
        token: u64::MAX,
        status: DtoStatus::Success,
        length: 0,
        queue_pair: ep.handle().to_raw(),
        solicited: false,
    };
    // One completion disarms the queue, and others arrive during each attempt to arm it.
    bench.device.inject(queue.get(), unknown);
    for _ in 0..40 {
        bench.device.inject_before_arming(queue.get(), unknown);
    }
    let (wakes, waker) = crate::testing::WakeCount::new();
    let look = || {
        ia.register_progress_waker(&waker);
        ia.progress(Instant::ZERO);
        wakes.take()
    };
    let mut looks = 0;
    while look() != 0 {
        looks += 1;
        assert_eq!(bench.device.armed(queue.get()), None);
        assert!(looks < 40, "it never gets armed");
    }
    assert!(looks > 1);
    assert_eq!(bench.device.armed(queue.get()), Some(false));
    assert!(
        bench
            .device
            .complete_request(bench.pair(ep), DtoStatus::Success)
    );
    assert_eq!(look(), 0);
    assert_eq!(bench.state(ep), EndpointState::Disconnected);
}

/// A dequeue during a free on another thread returns events with the endpoint's handle.
///
/// It may also find none.
///
/// Spec: DTO-03, EPF-02
#[cfg(feature = "std")]
#[test]
fn events_of_a_dying_endpoint_name_it() {
    use crate::adapter::Ia;
    use crate::sync::HostLock;
    use crate::testing::{Slots, TestBackend};
    use std::sync::mpsc;

    let (asks, asked) = mpsc::channel();
    let (answers, answered) = mpsc::channel();
    let device = TestBackend::default();
    let mut storage = std::boxed::Box::new(Slots::<HostLock>::new());
    let ia = Ia::open(device.clone(), storage.lend(), 1).unwrap();
    let pz = ia.pz_create().unwrap();
    let evd = ia.evd_create(8, None, EvdFlags::DTO).unwrap();
    let ep = ia
        .ep_create(Some(pz), Some(evd), Some(evd), None, Some(&SMALL))
        .unwrap();
    for cookie in 0..2 {
        ia.post_recv(ep, &[], cookie, CompletionFlags::empty())
            .unwrap();
    }
    let pair = device.pair(ep.handle().to_raw()).unwrap();
    // One completion is polled, the other is not.
    assert!(device.complete_receive(pair, DtoStatus::Success, 0, false));
    assert!(ia.ep_get_status(ep).is_ok());
    device.before_destroy({
        let device = device.clone();
        move || {
            assert!(device.complete_receive(pair, DtoStatus::Success, 0, false));
            asks.send(()).unwrap();
            answered.recv().unwrap();
        }
    });
    std::thread::scope(|scope| {
        let ia = &ia;
        let other = scope.spawn(move || {
            asked.recv().unwrap();
            let events: Vec<_> = core::iter::from_fn(|| ia.evd_dequeue(evd).ok()).collect();
            answers.send(()).unwrap();
            events
        });
        ia.ep_free(ep).unwrap();
        for event in other.join().unwrap() {
            assert!(
                matches!(event, Event::Dto(completion) if completion.ep == ep),
                "{event:?}"
            );
        }
    });
    assert!(ia.evd_dequeue(evd).is_err());
}

/// A broken device's completion in a foreign queue is dropped with its endpoint.
///
/// The next post that uses its record produces no event of the earlier one.
///
/// Spec: EPF-02, EPR-01
#[test]
fn a_misplaced_completion_goes_with_its_endpoint() {
    for reset in [false, true] {
        let mut storage = TestStorage::new();
        let bench = Bench::new(&mut storage);
        let elsewhere = bench.ia.evd_create(1, None, EvdFlags::DTO).unwrap();
        let other = bench
            .ia
            .ep_create(Some(bench.pz), None, Some(elsewhere), None, None)
            .unwrap();
        let ep = bench.connected();
        bench.send(ep, 1);
        let (requests, _) = bench.device.posted(bench.pair(ep));
        let completion = Completion {
            token: requests[0].work.token(),
            status: DtoStatus::Success,
            length: 0,
            queue_pair: ep.handle().to_raw(),
            solicited: false,
        };
        bench.device.inject(elsewhere.index() as u32, completion);
        // The completion is polled and not yet dequeued.
        bench.ia.ep_get_status(other).unwrap();
        bench.ia.ep_disconnect(ep, CloseFlags::Abrupt).unwrap();
        bench.connection_events();
        let next = if reset {
            bench.ia.ep_reset(ep).unwrap();
            bench.connect(ep);
            bench.establish(ep);
            ep
        } else {
            bench.ia.ep_free(ep).unwrap();
            bench.connected()
        };
        bench.send(next, 2);
        assert_eq!(completions(&bench, elsewhere), []);
        let status = bench.ia.ep_get_status(next).unwrap();
        assert!(!status.request_idle);
    }
}

/// ESTABLISHED precedes earlier polled data of its connection, but no data of other connections.
///
/// Spec: EPK-06, DTO-11
#[test]
fn established_precedes_data_that_was_polled_before() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let all = EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::SOFTWARE;
    let evd = bench.ia.evd_create(8, None, all).unwrap();
    let make = || {
        let every = Some(evd);
        let ep = bench
            .ia
            .ep_create(Some(bench.pz), every, every, every, Some(&SMALL))
            .unwrap();
        bench.receive(ep, ep.index() as u64);
        bench.connect(ep);
        ep
    };
    let (one, two) = (make(), make());
    for ep in [one, two] {
        let pair = bench.pair(ep);
        let success = DtoStatus::Success;
        assert!(bench.device.complete_receive(pair, success, 0, false));
    }
    // Polls both completions; the software event is queued after them.
    bench.ia.evd_post_se(evd, 9).unwrap();
    bench.establish(two);
    bench.establish(one);
    let order: Vec<_> = core::iter::from_fn(|| match bench.ia.evd_dequeue(evd).ok()? {
        Event::Connection { ep, .. } => Some(('e', ep.index())),
        Event::Dto(completion) => Some(('d', completion.ep.index())),
        _ => Some(('s', 0)),
    })
    .collect();
    assert_eq!(order, [('e', 0), ('d', 0), ('e', 1), ('d', 1), ('s', 0)]);
}

/// A free ends a running connection or attempt at the device, without an event.
///
/// Without a connection or attempt, the device gets no disconnect.
///
/// Spec: EPF-01, EPF-02
#[test]
fn a_free_ends_at_the_device_what_is_under_way() {
    for (state, ends) in [
        (EndpointState::Unconnected, false),
        (EndpointState::ActiveConnectionPending, true),
        (EndpointState::CompletionPending, true),
        (EndpointState::Connected, true),
        (EndpointState::DisconnectPending, true),
        (EndpointState::Disconnected, false),
    ] {
        let mut storage = TestStorage::new();
        let bench = Bench::new(&mut storage);
        let (ep, _) = bench.in_state(state);
        let pair = bench.pair(ep);
        bench.device.take_calls();
        bench.ia.ep_free(ep).unwrap();
        let expected: Vec<_> = ends
            .then_some((pair, DisconnectMode::Abrupt))
            .into_iter()
            .collect();
        assert_eq!(disconnects(&bench), expected, "{state:?}");
        assert_eq!(bench.connection_events(), [], "{state:?}");
    }
}
