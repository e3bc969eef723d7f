//! How connections come about and end.

use backend_mock::{Fabric, FabricOptions, Fault, Limits, NodeOptions};
use dat_core::attributes::IaAddress;
use dat_core::backend::{
    Backend, BackendError, ConnectFailure, ControlEvent, DisconnectMode, PrivateData,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges};

use crate::support::{Couple, End, Host, RECEIVE_PROBE, attributes, connect, variety};

const FLUSHED: DtoStatus = DtoStatus::Flushed;

fn pair(options: FabricOptions) -> (Fabric, Host, Host) {
    let fabric = Fabric::new(options);
    let near = Host::new(&fabric, 1);
    let far = Host::new(&fabric, 2);
    (fabric, near, far)
}

/// Starts to connect to qualifier 5 at `address`.
fn call(host: &mut Host, end: &End, address: IaAddress) -> u64 {
    let request = host.connect_request(address, 5, b"hello");
    host.backend.connect(end.key, &request).unwrap()
}

fn idle(fabric: &Fabric) {
    assert!(fabric.run_until_idle(100_000) < 100_000, "never idle");
}

fn failed(end: &End, failure: ConnectFailure) -> ControlEvent {
    ControlEvent::ConnectFailed {
        queue_pair: end.token,
        failure,
    }
}

fn answered(end: &End) -> ControlEvent {
    ControlEvent::Answered {
        queue_pair: end.token,
    }
}

/// Spec: EPK-02, EPK-06, CRQ-01, GEN-10
#[test]
fn request_and_answer_carry_private_data() {
    for options in variety() {
        let (fabric, mut near, mut far) = pair(options);
        let a = near.end(attributes());
        let b = far.end(attributes());
        let (_, qualifier) = far.backend.listen(33, Some(5)).unwrap();
        assert_eq!(qualifier, 5);
        let data: Vec<u8> = (0..=255).collect();
        let request = near.connect_request(far.address, 5, &data);
        let port = near.backend.connect(a.key, &request).unwrap();
        let Some(ControlEvent::ConnectionRequest {
            listener,
            request,
            remote,
            remote_port,
            local,
            private_data,
        }) = far.next_control()
        else {
            panic!("no request");
        };
        assert_eq!((listener, remote_port), (33, port));
        assert_eq!((remote, local), (near.address, far.address));
        assert_eq!(private_data[..], data[..]);
        far.backend.accept(request, b.key, &data).unwrap();
        idle(&fabric);
        let private_data = PrivateData::from_slice(&data).unwrap();
        let established = ControlEvent::Established {
            queue_pair: a.token,
            private_data,
        };
        assert_eq!(near.control(), [answered(&a), established]);
        let established = ControlEvent::Established {
            queue_pair: b.token,
            private_data: PrivateData::new(),
        };
        assert_eq!(far.control(), [established]);
    }
}

/// Spec: GEN-10, GEN-06
#[test]
fn too_much_private_data_is_refused_without_effect() {
    let fabric = Fabric::new(FabricOptions::default());
    let limits = Limits {
        private_data: 64,
        ..Limits::default()
    };
    let options = NodeOptions {
        limits,
        ..NodeOptions::new("short", 1)
    };
    let mut host = Host::with(&fabric, options);
    assert_eq!(host.backend.provider_attributes().max_private_data_size, 64);
    let end = host.end(attributes());
    let request = host.connect_request(host.address, 5, &[0; 65]);
    let refused = host.backend.connect(end.key, &request);
    assert_eq!(refused, Err(BackendError::Resources));
    let request = host.connect_request(host.address, 5, &[0; 64]);
    host.backend.connect(end.key, &request).unwrap();
}

/// Spec: EPK-07, CRR-01, EPK-11
#[test]
fn a_reject_carries_its_data_and_flushes() {
    for options in variety() {
        let (fabric, mut near, mut far) = pair(options);
        let mut a = near.end(attributes());
        a.receive(9, &[]);
        far.backend.listen(33, Some(5)).unwrap();
        call(&mut near, &a, far.address);
        let request = far.next_request();
        far.backend.reject(request, true, b"no");
        idle(&fabric);
        let data = PrivateData::from_slice(b"no").unwrap();
        assert_eq!(
            near.control(),
            [answered(&a), failed(&a, ConnectFailure::PeerRejected(data))]
        );
        assert_eq!(near.received(), [(9, FLUSHED, 0)]);
        // Not twice.
        assert!(far.backend.accept(request, a.key, b"").is_err());
    }
}

/// Spec: EPK-08, PSF-01, PSC-02
#[test]
fn a_connect_without_a_listener_is_rejected() {
    for options in variety() {
        for case in 0..3 {
            let (fabric, mut near, mut far) = pair(options.clone());
            let a = near.end(attributes());
            let listener = far.backend.listen(33, Some(5)).unwrap().0;
            match case {
                0 => far.backend.stop_listening(listener),
                1 => {}
                _ => drop(std::mem::replace(&mut far, Host::new(&fabric, 2))),
            }
            call(&mut near, &a, far.address);
            if case == 1 {
                let request = far.next_request();
                far.backend.reject(request, false, b"ignored");
            }
            idle(&fabric);
            let mut events = near.control();
            assert_eq!(
                events.pop(),
                Some(failed(&a, ConnectFailure::NonPeerRejected)),
                "case {case}"
            );
            assert_eq!(events.len(), usize::from(case == 1));
        }
    }
}

/// Spec: PSC-02, EPK-08
#[test]
fn the_backlog_is_limited() {
    for options in variety() {
        let fabric = Fabric::new(options);
        let mut near = Host::new(&fabric, 1);
        let limits = Limits {
            backlog: 2,
            ..Limits::default()
        };
        let node = NodeOptions {
            limits,
            ..NodeOptions::new("far", 2)
        };
        let mut far = Host::with(&fabric, node);
        let ends: Vec<End> = (0..3).map(|_| near.end(attributes())).collect();
        far.backend.listen(33, Some(5)).unwrap();
        for end in &ends {
            call(&mut near, end, far.address);
        }
        idle(&fabric);
        assert_eq!(far.control().len(), 2);
        let refused: Vec<_> = near
            .control()
            .into_iter()
            .filter(|event| matches!(event, ControlEvent::ConnectFailed { .. }))
            .collect();
        assert_eq!(refused.len(), 1);
    }
}

/// Spec: EPK-05, EPK-09
#[test]
fn a_connect_to_an_unknown_address_fails() {
    for options in variety() {
        let (fabric, mut near, _far) = pair(options);
        let a = near.end(attributes());
        let nowhere = IaAddress::V4([192, 0, 2, 1], 0);
        let request = near.connect_request(nowhere, 5, b"");
        let refused = near.backend.connect(a.key, &request);
        assert_eq!(refused, Err(BackendError::Address));
        call(&mut near, &a, IaAddress::Node(99));
        idle(&fabric);
        assert_eq!(near.control(), [failed(&a, ConnectFailure::Unreachable)]);
    }
}

/// Spec: EPK-10
#[test]
fn a_connect_to_a_silent_host_times_out() {
    for options in variety() {
        let (fabric, mut near, mut far) = pair(options);
        far.backend.listen(33, Some(5)).unwrap();
        fabric.inject(Fault::LinkDown {
            a: 0,
            b: 1,
            at: 0,
            duration: None,
        });
        let mut a = near.end(attributes());
        a.receive(1, &[]);
        call(&mut near, &a, far.address);
        idle(&fabric);
        assert_eq!(near.control(), []);
        assert_eq!(far.control(), []);
        // The attempt is given up.
        near.backend.disconnect(a.key, DisconnectMode::Abrupt);
        assert_eq!(near.received(), [(1, FLUSHED, 0)]);
        assert_eq!(near.control(), []);
    }
}

/// Spec: CRA-03, EPD-08
#[test]
fn an_accept_after_the_active_side_gave_up_fails() {
    for options in variety() {
        for destroyed in [false, true] {
            let (fabric, mut near, mut far) = pair(options.clone());
            let a = near.end(attributes());
            let mut b = far.end(attributes());
            b.receive(4, &[]);
            far.backend.listen(33, Some(5)).unwrap();
            call(&mut near, &a, far.address);
            let request = far.next_request();
            near.backend.disconnect(a.key, DisconnectMode::Abrupt);
            if destroyed {
                near.destroy(a);
            }
            idle(&fabric);
            far.backend.accept(request, b.key, b"").unwrap();
            idle(&fabric);
            assert_eq!(far.control(), [failed(&b, ConnectFailure::NonPeerRejected)]);
            assert_eq!(far.received(), [(4, FLUSHED, 0)]);
            assert_eq!(near.control(), []);
        }
    }
}

/// Spec: CRA-03
#[test]
fn an_accept_that_never_arrives_times_out() {
    for options in variety() {
        let (fabric, mut near, mut far) = pair(options);
        let a = near.end(attributes());
        let b = far.end(attributes());
        far.backend.listen(33, Some(5)).unwrap();
        call(&mut near, &a, far.address);
        let request = far.next_request();
        fabric.inject(Fault::Crash { adapter: 0, at: 0 });
        far.backend.accept(request, b.key, b"").unwrap();
        idle(&fabric);
        assert_eq!(far.control(), [failed(&b, ConnectFailure::TimedOut)]);
    }
}

/// Spec: PSC-04, PSA-01
#[test]
fn qualifiers_are_of_the_host() {
    let fabric = Fabric::new(FabricOptions::default());
    let limits = Limits {
        dynamic_qualifiers: 2,
        ..Limits::default()
    };
    let options = NodeOptions {
        limits,
        ..NodeOptions::new("one", 1)
    };
    let mut first = Host::with(&fabric, options);
    let mut second = Host::with(&fabric, options);
    let mut other_host = Host::new(&fabric, 2);
    let (listener, _) = first.backend.listen(1, Some(5)).unwrap();
    let taken = Err(BackendError::QualifierInUse);
    assert_eq!(second.backend.listen(2, Some(5)), taken);
    assert!(other_host.backend.listen(2, Some(5)).is_ok());
    first.backend.stop_listening(listener);
    assert!(second.backend.listen(2, Some(5)).is_ok());
    let (_, any) = first.backend.listen(3, None).unwrap();
    let (other, another) = second.backend.listen(4, None).unwrap();
    assert_ne!(any, another);
    let none = Err(BackendError::QualifierUnavailable);
    assert_eq!(first.backend.listen(5, None), none);
    second.backend.stop_listening(other);
    assert_eq!(
        first.backend.listen(5, None).map(|made| made.1),
        Ok(another)
    );
}

/// Spec: EPK-06
#[test]
fn two_adapters_of_one_host_can_connect() {
    for options in variety() {
        let fabric = Fabric::new(options);
        let mut first = Host::new(&fabric, 1);
        let mut second = Host::new(&fabric, 1);
        let mut a = first.end(attributes());
        let b = second.end(attributes());
        connect(&mut first, &a, &mut second, &b);
        let source = first.buffer(16, MemoryPrivileges::ALL);
        let target = second.buffer(16, MemoryPrivileges::ALL);
        source.count_up(3);
        a.write(1, &[source.all()], target.remote(0));
        idle(&fabric);
        assert_eq!(target.content(), source.content());
    }
}

/// Spec: EPD-02, EPD-05, EPD-10
#[test]
fn a_disconnect_reaches_the_peer_after_the_data() {
    for options in variety() {
        for mode in [
            DisconnectMode::Graceful,
            DisconnectMode::Abrupt,
            DisconnectMode::Broken,
        ] {
            let mut couple = Couple::new(options.clone());
            couple.b.receive(1, &[]);
            couple.b.receive(2, &[]);
            couple.a.send(1, &[]);
            while couple.near.sent().is_empty() {
                assert!(couple.fabric.step());
            }
            couple.near.backend.disconnect(couple.a.key, mode);
            couple.run();
            assert_eq!(couple.near.control(), []);
            let queue_pair = couple.b.token;
            let expected = if mode == DisconnectMode::Broken {
                ControlEvent::Broken { queue_pair }
            } else {
                ControlEvent::Disconnected { queue_pair }
            };
            assert_eq!(couple.far.control(), [expected]);
            assert_eq!(
                couple.far.received(),
                [(1, DtoStatus::Success, 0), (2, FLUSHED, 0)]
            );
        }
    }
}

/// Spec: EPD-07, EPR-02
#[test]
fn a_disconnect_takes_back_the_events_of_the_connection() {
    for options in variety() {
        let mut couple = Couple::new(options);
        couple
            .near
            .backend
            .disconnect(couple.a.key, DisconnectMode::Abrupt);
        couple.run();
        // The far side has not looked yet.
        let far = &mut couple.far.backend;
        far.disconnect(couple.b.key, DisconnectMode::Abrupt);
        assert_eq!(couple.far.control(), []);
        // On an unconnected queue pair it does nothing.
        let mut fresh = couple.far.end(attributes());
        fresh.receive(3, &[]);
        let far = &mut couple.far.backend;
        far.disconnect(fresh.key, DisconnectMode::Abrupt);
        assert_eq!(couple.far.received(), []);
    }
}

/// Spec: EPR-01, EPR-02
#[test]
fn a_reset_queue_pair_connects_again() {
    for options in variety() {
        let mut couple = Couple::new(options);
        let backend = &mut couple.near.backend;
        let refused =
            backend.reset_queue_pair(couple.a.key, &mut couple.a.send, couple.a.receive.as_mut());
        assert_eq!(refused, Err(BackendError::State));
        couple.a.receive(1, &[]);
        let backend = &mut couple.near.backend;
        backend.disconnect(couple.a.key, DisconnectMode::Abrupt);
        couple.run();
        let queue_pair = couple.b.token;
        let event = ControlEvent::Disconnected { queue_pair };
        assert_eq!(couple.far.control(), [event]);
        couple.b.receive(2, &[]);
        for (host, end) in [
            (&mut couple.near, &mut couple.a),
            (&mut couple.far, &mut couple.b),
        ] {
            host.backend
                .reset_queue_pair(end.key, &mut end.send, end.receive.as_mut())
                .unwrap();
            assert_eq!(host.received(), []);
        }
        connect(&mut couple.near, &couple.a, &mut couple.far, &couple.b);
        couple.b.receive(3, &[]);
        couple.a.send(4, &[]);
        couple.run();
        assert_eq!(couple.near.sent(), [(4, DtoStatus::Success)]);
        assert_eq!(couple.far.received(), [(3, DtoStatus::Success, 0)]);
    }
}

/// Spec: EPV-03, EPM-01
#[test]
fn receives_stay_when_a_queue_pair_is_modified() {
    for options in variety() {
        let fabric = Fabric::new(options);
        let mut near = Host::new(&fabric, 1);
        let mut far = Host::new(&fabric, 2);
        let mut a = near.end(attributes());
        let mut b = far.end(attributes());
        let buffer = far.buffer(8, MemoryPrivileges::ALL);
        b.receive(1, &[buffer.all()]);
        b.receive(2, &[buffer.all()]);
        let mut request = far.request(attributes());
        request.token = b.token;
        request.attributes.max_recv_dtos = 1;
        let backend = &mut far.backend;
        let refused = backend.modify_queue_pair(b.key, &mut b.send, b.receive.as_mut(), &request);
        assert_eq!(refused, Err(BackendError::State));
        request.attributes.max_recv_dtos = 3;
        backend
            .modify_queue_pair(b.key, &mut b.send, b.receive.as_mut(), &request)
            .unwrap();
        b.receive(3, &[]);
        let receive = b.receive.as_mut().unwrap();
        assert!(dat_core::backend::WorkQueue::reserve(receive, &RECEIVE_PROBE, 1).is_none());
        connect(&mut near, &a, &mut far, &b);
        let backend = &mut far.backend;
        let refused = backend.modify_queue_pair(b.key, &mut b.send, b.receive.as_mut(), &request);
        assert_eq!(refused, Err(BackendError::State));
        for token in 1..=3 {
            a.send(token, &[]);
        }
        idle(&fabric);
        let tokens: Vec<u64> = far.received().iter().map(|entry| entry.0).collect();
        assert_eq!(tokens, [1, 2, 3]);
    }
}

/// Spec: IAC-03, EPD-10
#[test]
fn a_closed_adapter_ends_its_connections() {
    for options in variety() {
        for complete in [false, true] {
            let mut couple = Couple::new(options.clone());
            couple.b.receive(1, &[]);
            let Couple {
                fabric,
                mut near,
                mut far,
                a,
                b,
            } = couple;
            let region = near.buffer(8, MemoryPrivileges::ALL);
            if complete {
                drop(near);
            } else {
                near.destroy(a);
            }
            idle(&fabric);
            let queue_pair = b.token;
            assert_eq!(far.control(), [ControlEvent::Disconnected { queue_pair }]);
            assert_eq!(far.received(), [(1, FLUSHED, 0)]);
            assert_eq!(region.content(), [0; 8]);
        }
    }
}

/// Spec: EPK-02
#[test]
fn data_may_arrive_before_the_connection_event() {
    for options in variety() {
        let (fabric, mut near, mut far) = pair(options);
        let mut a = near.end(attributes());
        let mut b = far.end(attributes());
        b.receive(2, &[]);
        far.backend.listen(33, Some(5)).unwrap();
        call(&mut near, &a, far.address);
        let request = far.next_request();
        far.backend.accept(request, b.key, b"").unwrap();
        loop {
            match near.next_control() {
                Some(ControlEvent::Answered { .. }) => {}
                Some(ControlEvent::Established { .. }) => break,
                other => panic!("{other:?}"),
            }
        }
        a.send(1, &[]);
        loop {
            let events = far.control();
            if !events.is_empty() {
                break;
            }
            // No completion before the connection stands.
            assert_eq!(far.received(), []);
            assert!(fabric.step());
        }
        idle(&fabric);
        assert_eq!(far.received(), [(2, DtoStatus::Success, 0)]);
    }
}

/// Spec: CRA-03
#[test]
fn an_answered_request_leaves_no_timeout() {
    for options in variety() {
        let couple = Couple::new(options.clone());
        couple.run();
        assert!(couple.fabric.now().as_micros() < options.handshake_timeout);
        assert_eq!(couple.fabric.next_due(), None);
    }
}
