//! Memory windows.

use backend_mock::{Fabric, FabricOptions, NodeOptions};
use dat_core::backend::{
    Backend, BackendError, BindRequest, RemoteRange, SendOperation, SendQueue, WorkQueue,
};
use dat_core::flags::{DtoStatus, MemoryPrivileges};

use crate::support::{Buffer, Couple, Host, NONE, variety};

const ALL: MemoryPrivileges = MemoryPrivileges::ALL;
const SUCCESS: DtoStatus = DtoStatus::Success;

fn range(buffer: &Buffer, offset: u64, key: u32) -> RemoteRange {
    RemoteRange {
        address: buffer.address() + offset,
        key,
    }
}

/// The far side lets the near side in through a window over 16..48 of a region of 64 bytes.
fn bound(options: FabricOptions, privileges: MemoryPrivileges) -> (Couple, Buffer, u32) {
    let mut couple = Couple::new(options);
    let rights = MemoryPrivileges::LOCAL_READ | MemoryPrivileges::LOCAL_WRITE;
    let buffer = couple.far.buffer(64, rights);
    let window = couple.far.window();
    let key = couple.b.bind(1, window, &buffer, (16, 32), privileges);
    couple.run();
    assert_eq!(couple.far.sent(), [(1, SUCCESS)]);
    (couple, buffer, key)
}

/// Spec: RMB-11, RMB-13, RMB-14, RMB-45
#[test]
fn a_window_grants_access_to_its_range() {
    for options in variety() {
        let (mut couple, buffer, key) = bound(options, ALL);
        let local = couple.near.buffer(64, ALL);
        local.count_up(1);
        couple
            .a
            .write(2, &[local.segment(0, 32)], range(&buffer, 16, key));
        couple
            .a
            .read(3, &[local.segment(32, 8)], range(&buffer, 40, key));
        couple.run();
        assert_eq!(couple.near.sent(), [(2, SUCCESS), (3, SUCCESS)]);
        assert_eq!(buffer.content()[16..48], local.content()[..32]);
        assert_eq!(local.content()[32..40], local.content()[24..32]);
    }
}

/// Spec: RMB-24, RMB-35, EPW-41
#[test]
fn a_window_grants_no_access_outside_its_range() {
    let read = MemoryPrivileges::REMOTE_READ;
    let write = MemoryPrivileges::REMOTE_WRITE;
    let cases = [
        (ALL, 15, 1, true),
        (ALL, 48, 1, true),
        (ALL, 16, 33, true),
        (ALL, 40, 9, false),
        (read, 16, 8, true),
        (write, 16, 8, false),
        (MemoryPrivileges::empty(), 16, 8, true),
    ];
    for options in variety() {
        for (privileges, offset, length, writes) in cases {
            let (mut couple, buffer, key) = bound(options.clone(), privileges);
            let local = couple.near.buffer(64, ALL);
            local.fill(9);
            let segments = [local.segment(0, length)];
            let remote = range(&buffer, offset, key);
            if writes {
                couple.a.write(2, &segments, remote);
            } else {
                couple.a.read(2, &segments, remote);
            }
            couple.run();
            assert_eq!(couple.near.sent(), [(2, DtoStatus::RemoteAccess)]);
            assert_eq!(buffer.content(), [0; 64]);
            assert_eq!(local.content(), [9; 64]);
            couple.assert_broken();
        }
    }
}

/// Spec: RMB-21, RMB-42
#[test]
fn the_next_bind_invalidates_the_old_key() {
    for options in variety() {
        let (mut couple, buffer, old) = bound(options, ALL);
        let window = couple.far.window();
        let first = couple.b.bind(2, window, &buffer, (0, 64), ALL);
        let second = couple.b.bind(3, window, &buffer, (0, 64), ALL);
        assert!(old != first && first != second && second != old);
        couple.run();
        let local = couple.near.buffer(8, ALL);
        couple.a.write(1, &[local.all()], range(&buffer, 16, old));
        couple.a.write(2, &[local.all()], range(&buffer, 0, second));
        couple.a.write(3, &[local.all()], range(&buffer, 0, first));
        couple.run();
        assert_eq!(
            couple.near.sent(),
            [(1, SUCCESS), (2, SUCCESS), (3, DtoStatus::RemoteAccess)]
        );
        couple.assert_broken();
    }
}

/// Spec: RMB-27
#[test]
fn an_unbind_closes_the_window() {
    for options in variety() {
        let mut couple = Couple::new(options);
        let buffer = couple.far.buffer(64, ALL);
        let window = couple.far.window();
        let key = couple.b.bind(1, window, &buffer, (0, 64), ALL);
        couple.b.bind(2, window, &buffer, (0, 0), ALL);
        couple.run();
        assert_eq!(couple.far.sent(), [(1, SUCCESS), (2, SUCCESS)]);
        let local = couple.near.buffer(8, ALL);
        couple.a.write(1, &[local.all()], range(&buffer, 0, key));
        couple.run();
        assert_eq!(couple.near.sent(), [(1, DtoStatus::RemoteAccess)]);
    }
}

/// Spec: RMF-01, RMF-02
#[test]
fn a_freed_window_is_closed_at_once() {
    for options in variety() {
        let mut couple = Couple::new(options);
        let buffer = couple.far.buffer(64, ALL);
        let window = couple.far.window();
        let key = couple.b.bind(1, window, &buffer, (0, 64), ALL);
        couple.run();
        couple.far.backend.destroy_window(window);
        let local = couple.near.buffer(8, ALL);
        couple.a.write(1, &[local.all()], range(&buffer, 0, key));
        couple.run();
        assert_eq!(couple.near.sent(), [(1, DtoStatus::RemoteAccess)]);
    }
}

/// Spec: RMB-15
#[test]
fn a_key_grants_no_access_before_its_bind_completes() {
    let mut too_early = false;
    for options in variety() {
        let options = FabricOptions {
            bind_latency: 50..=60,
            ..options
        };
        let mut couple = Couple::new(options);
        let buffer = couple.far.buffer(64, ALL);
        let window = couple.far.window();
        let key = couple.b.bind(1, window, &buffer, (0, 64), ALL);
        let local = couple.near.buffer(8, ALL);
        couple.a.write(1, &[local.all()], range(&buffer, 0, key));
        couple.run();
        too_early |= couple.near.sent() == [(1, DtoStatus::RemoteAccess)];
    }
    assert!(too_early);
}

/// Spec: RMB-17, RMB-18, RMB-19
#[test]
fn requests_after_a_bind_start_after_it() {
    for options in variety() {
        let options = FabricOptions {
            bind_latency: 0..=40,
            ..options
        };
        let mut couple = Couple::new(options);
        let buffer = couple.far.buffer(64, ALL);
        let carrier = couple.far.buffer(4, ALL);
        let inbox = couple.near.buffer(4, ALL);
        couple.a.receive(5, &[inbox.all()]);
        let window = couple.far.window();
        let key = couple.b.bind(1, window, &buffer, (0, 64), ALL);
        for (index, byte) in key.to_le_bytes().into_iter().enumerate() {
            carrier.store(index, byte);
        }
        couple.b.send(2, &[carrier.all()]);
        while couple.near.received().is_empty() {
            assert!(couple.fabric.step());
        }
        // The peer uses the key the moment it has it.
        let bytes = inbox.content();
        let key = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let local = couple.near.buffer(8, ALL);
        couple.a.write(3, &[local.all()], range(&buffer, 0, key));
        couple.run();
        assert_eq!(couple.near.sent(), [(3, SUCCESS)]);
        assert_eq!(couple.far.sent(), [(1, SUCCESS), (2, SUCCESS)]);
    }
}

/// Spec: RMB-22, RMB-25, RMB-26, RMB-41
#[test]
fn a_bind_that_fails_breaks_the_connection() {
    for options in variety() {
        for case in 0..6 {
            let mut couple = Couple::new(options.clone());
            let rights = match case {
                0 => MemoryPrivileges::LOCAL_READ,
                1 => MemoryPrivileges::LOCAL_WRITE,
                _ => ALL,
            };
            let other = couple.far.backend.create_domain().unwrap();
            let region_domain = if case == 2 { other } else { couple.far.domain };
            let buffer = couple.far.buffer_in(region_domain, 64, rights);
            let window_domain = if case == 3 { other } else { couple.far.domain };
            let window = couple.far.backend.create_window(window_domain).unwrap();
            let length = if case == 4 { 65 } else { 64 };
            if case == 5 {
                couple.far.backend.deregister(buffer.keys);
            }
            let key = couple.b.bind(1, window, &buffer, (0, length), ALL);
            couple.b.bind(2, window, &buffer, (0, 64), ALL);
            couple.run();
            assert_eq!(
                couple.far.sent(),
                [(1, DtoStatus::RmrOperationFailed), (2, DtoStatus::Flushed)],
                "case {case}"
            );
            couple.assert_broken();
            assert_ne!(key, 0);
        }
    }
}

/// Spec: RMB-42, RMB-32
#[test]
fn a_flushed_bind_does_not_change_the_window() {
    for options in variety() {
        let (mut couple, buffer, key) = bound(options, ALL);
        let window = couple.far.window();
        let kept = couple.b.bind(2, window, &buffer, (0, 64), ALL);
        couple.run();
        couple.far.sent();
        let far = &mut couple.far.backend;
        far.disconnect(couple.b.key, dat_core::backend::DisconnectMode::Abrupt);
        let lost = couple.b.bind(3, window, &buffer, (0, 64), ALL);
        couple.run();
        assert_eq!(couple.far.sent(), [(3, DtoStatus::Flushed)]);
        assert_ne!(kept, lost);
        // Over another connection in the same domain the old keys still work, the new one does not.
        let mut a = couple.near.end(crate::support::attributes());
        let b = couple.far.end(crate::support::attributes());
        couple.near.control();
        crate::support::connect(&mut couple.near, &a, &mut couple.far, &b);
        couple.near.sent();
        let local = couple.near.buffer(8, ALL);
        for (token, key) in [(1, key), (2, kept), (3, lost)] {
            a.write(token, &[local.all()], range(&buffer, 16, key));
        }
        couple.run();
        assert_eq!(
            couple.near.sent(),
            [(1, SUCCESS), (2, SUCCESS), (3, DtoStatus::RemoteAccess)]
        );
    }
}

/// Spec: EPW-32
#[test]
fn a_window_of_another_domain_grants_no_access() {
    for options in variety() {
        let (mut couple, buffer, key) = bound(options, ALL);
        let far = &mut couple.far;
        let other = far.backend.create_domain().unwrap();
        let mut request = far.request(crate::support::attributes());
        request.domain = other;
        let b = far.end_from(&request);
        let mut a = couple.near.end(crate::support::attributes());
        crate::support::connect(&mut couple.near, &a, &mut couple.far, &b);
        let local = couple.near.buffer(8, ALL);
        a.write(1, &[local.all()], range(&buffer, 16, key));
        couple.run();
        assert_eq!(couple.near.sent(), [(1, DtoStatus::RemoteAccess)]);
    }
}

/// Spec: RMB-38
#[test]
fn an_adapter_may_have_no_windows() {
    let fabric = Fabric::new(FabricOptions::default());
    let options = NodeOptions {
        memory_windows: false,
        ..NodeOptions::new("plain", 1)
    };
    let mut host = Host::with(&fabric, options);
    let refused = host.backend.create_window(host.domain);
    assert_eq!(refused, Err(BackendError::NotSupported));
    assert_eq!(host.backend.ia_attributes().max_rmrs, 0);
}

/// Spec: RMB-34, GEN-06
#[test]
fn a_bind_needs_a_window_and_room() {
    let mut couple = Couple::new(FabricOptions::default());
    let buffer = couple.far.buffer(64, ALL);
    let window = couple.far.window();
    let request = BindRequest {
        token: 1,
        window,
        region: buffer.keys,
        address: buffer.address(),
        length: 64,
        privileges: ALL,
        flags: NONE,
        is_only: true,
    };
    let depth = crate::support::attributes().max_request_dtos as usize;
    for _ in 0..depth {
        couple.b.send.bind(&request).unwrap();
    }
    assert!(couple.b.send.bind(&request).is_err());
    assert!(couple.b.send.reserve(&crate::support::PROBE, 1).is_none());
    couple.run();
    assert_eq!(couple.far.sent().len(), depth);
    assert!(couple.b.send.bind(&request).is_ok());
    couple.run();
    couple.far.sent();
    couple.far.backend.destroy_window(window);
    assert!(couple.b.send.bind(&request).is_err());
    couple.run();
    assert_eq!(couple.far.sent(), []);
    let operation = SendOperation::Send;
    couple.b.queue(9, operation, &[], NONE).unwrap();
}
