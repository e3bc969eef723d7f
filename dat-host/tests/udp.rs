//! Operations over RoCEv2 in software, whose device does not act within the calls of a program.

mod common;

use common::{SOON, connect};
use dat_core::event::ConnectionEventKind;
#[cfg(target_os = "linux")]
use dat_host::Access;
use dat_host::Adapter;

#[test]
fn a_disconnect_without_operations_in_flight_ends() {
    let open = |address| Adapter::open(address).unwrap().zone().unwrap();
    for near in ["roce://127.0.0.33", "roce://127.0.0.33?path=packets"] {
        let (near, far) = (open(near), open("roce://127.0.0.34"));
        let (client, server) = connect(&near, &far, None).unwrap();
        let disconnected = client.disconnect().wait_timeout(SOON);
        disconnected.expect("in time").unwrap();
        let ended = server.ended().wait_timeout(SOON).expect("in time");
        assert_eq!(ended, ConnectionEventKind::Disconnected);
        // Operations on an ended connection are flushed.
        let flushed = client.send(near.copy(b"late").unwrap()).wait_timeout(SOON);
        assert!(flushed.expect("in time").is_err());
    }
}

/// Makes these system calls of the calling thread fail with EPERM, and `setsockopt` of UDP too if
/// `options` is set. The threads that it starts have the same filter.
#[cfg(target_os = "linux")]
fn forbid(calls: &[libc::c_long], options: bool) {
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule,
    };

    // Without a rule, whatever the arguments are.
    let mut rules: std::collections::BTreeMap<_, Vec<_>> =
        calls.iter().map(|call| (*call, Vec::new())).collect();
    if options {
        let level = libc::SOL_UDP.cast_unsigned().into();
        let is_udp =
            SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, level).unwrap();
        let of_udp = SeccompRule::new(vec![is_udp]).unwrap();
        rules.insert(libc::SYS_setsockopt, vec![of_udp]);
    }
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let machine = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, machine).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

/// Writes, reads and short writes in a batch between two addresses.
#[cfg(target_os = "linux")]
fn transfer(near: &str, far: &str) {
    let open = |address| Adapter::open(address).unwrap().zone().unwrap();
    let (near, far) = (open(near), open(far));
    let (client, server) = connect(&near, &far, None).unwrap();
    let content: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    let region = far.region(vec![0_u8; content.len()]).unwrap();
    let all = Access::READ | Access::WRITE;
    let window = region.expose(.., all).to(&server).wait().unwrap();
    let remote = window.remote();
    let write = client.write(near.region(content.clone()).unwrap(), remote);
    write.wait_timeout(SOON).expect("in time").unwrap();
    let read = client.read(remote, near.region(vec![0_u8; content.len()]).unwrap());
    let read = read.wait_timeout(SOON).expect("in time").unwrap();
    assert!(read.into_inner() == content);
    let mut batch = client.batch();
    for at in 0..64 {
        let byte = near.copy(&[at]).unwrap();
        let place = u64::from(at);
        batch
            .write(byte, remote.slice(place..=place).unwrap())
            .unwrap();
    }
    for transfer in batch.post() {
        transfer.wait_timeout(SOON).expect("in time").unwrap();
    }
    let written = window.revoke().wait_timeout(SOON).expect("in time");
    assert!(written[..64].iter().copied().eq(0..64));
    assert!(written[64..] == content[64..]);
}

/// Spec: ROCE-190
#[cfg(target_os = "linux")]
#[test]
fn packets_travel_one_by_one_where_a_filter_refuses_more() {
    forbid(
        &[libc::SYS_sendmsg, libc::SYS_sendmmsg, libc::SYS_recvmmsg],
        true,
    );
    // It refuses a pair of queues, too.
    for near in ["roce://127.0.0.35", "roce://127.0.0.35?path=packets"] {
        transfer(near, "roce://127.0.0.36");
    }
}

/// A socket with several addresses, which reads joined packets one datagram at a time.
///
/// Spec: ROCE-190
#[cfg(target_os = "linux")]
#[test]
fn datagrams_are_read_one_by_one_where_a_filter_refuses_more() {
    forbid(&[libc::SYS_recvmmsg], false);
    transfer("roce://127.0.0.37", "roce://0.0.0.0?path=packets");
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        // A host without IPv6 refuses the adapter by the address.
        assert!(Adapter::open("roce://::1").is_err());
        return;
    }
    transfer("roce://::", "roce://::?path=packets");
    transfer("roce://::1", "roce://::1?path=packets");
}
