//! Addresses of this host that queues in memory lead to, in a network of its own.
#![cfg(all(feature = "udp", target_os = "linux"))]

mod common;

use std::env;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::process::Command;

use backend_roce::{PathChoice, RoceOptions};
use common::devices::Side;

/// Set in the process that has the network.
const INSIDE: &str = "LOCAL_ADDRESSES";

/// Makes a network of one interface with two addresses of IPv4 and a link-local one.
const NETWORK: &str = "ip link set lo up && ip address add 10.77.0.1/24 dev lo && \
    ip address add 10.77.0.2/24 dev lo && ip address add fe80::77/64 dev lo && echo made";

const FIRST: SocketAddr = at(Ipv4Addr::new(10, 77, 0, 1));
const SECOND: SocketAddr = at(Ipv4Addr::new(10, 77, 0, 2));
const ALL: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

const fn at(ip: Ipv4Addr) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(ip), 0)
}

/// Connects queue pairs of devices at two addresses, which name themselves by `own`; all of their
/// packets go through queues.
fn meets([bound, other]: [SocketAddr; 2], own: [SocketAddr; 2], path: PathChoice) {
    let open = |address| {
        let mut options = RoceOptions::random().expect("random bytes");
        options.path = path;
        Side::open_at(address, &options)
    };
    let (one, two) = (open(bound), open(other));
    one.try_attach_at(own[0].ip(), own[1], two.qpn)
        .expect("ready");
    two.try_attach_at(own[1].ip(), own[0], one.qpn)
        .expect("ready");
    one.send_to(&two);
    for side in [&one, &two] {
        let counts = side.device.counts();
        assert!(counts.local.packets_sent > 0, "{own:?}, {path:?}");
        assert_eq!(counts.local.packets_sent, counts.packets_sent, "{own:?}");
    }
}

/// The process in the network.
#[test]
fn inside() {
    if env::var_os(INSIDE).is_none() {
        return;
    }
    // The loop-back interface is the first one.
    let link = SocketAddrV6::new("fe80::77".parse().expect("an address"), 0, 0, 1).into();
    for path in [PathChoice::Any, PathChoice::Local] {
        meets([FIRST, SECOND], [FIRST, SECOND], path);
        meets([SECOND, ALL], [SECOND, SECOND], path);
        meets([link, ALL], [link, link], path);
        meets([ALL, ALL], [link, link], path);
    }
    println!("all have met");
}

/// Further addresses of a network and link-local ones are those of this host, for both ends.
///
/// Spec: ROCE-217, ROCE-230, ROCE-282
#[test]
fn every_address_of_this_host_leads_to_queues() {
    let program = env::current_exe().expect("this program");
    let script = format!("{NETWORK} && exec \"$0\" --exact inside --nocapture");
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", "sh", "-c", &script])
        .arg(program)
        .env(INSIDE, "1")
        .output();
    let said = output.map(|output| {
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    });
    match said {
        Ok(said) if said.contains("made") => assert!(said.contains("all have met"), "{said}"),
        refused => println!("not run: this user can make no network: {refused:?}"),
    }
}
