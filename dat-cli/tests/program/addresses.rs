//! Addresses of servers and of devices: link-local ones, all of a host, and unusable ones.

use std::fs;
use std::net::Ipv6Addr;

use super::between::{Other, address, name};
use super::{dat, json, refused, text};

/// Returns a link-local address of this host and its interface, if it has one.
fn link_local() -> Option<(Ipv6Addr, String)> {
    let interfaces = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    interfaces.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, _, _, scope, _, interface] = words[..] else {
            return None;
        };
        let address = u128::from_str_radix(address, 16).ok()?;
        (scope == "20").then(|| (Ipv6Addr::from_bits(address), interface.to_owned()))
    })
}

/// Each command takes the address in the form that the remedy advises.
///
/// Spec: ROCE-188
#[test]
fn a_link_local_address_is_used_with_its_interface() {
    let Some((ip, interface)) = link_local() else {
        // A host without one refuses the interface by its name.
        refused(&["serve", "--listen", "fe80::1%none"], 2, &["none"]);
        return;
    };
    let own = format!("{ip}%{interface}");
    let folder = tempfile::tempdir().unwrap();
    let (source, stored) = (folder.path().join("source"), folder.path().join("stored"));
    fs::create_dir(&stored).unwrap();
    fs::write(&source, [7; 5000]).unwrap();
    let port = (9_000 + std::process::id() % 900).to_string();
    let at = ["--listen", &own, "--port", &port, "--into", name(&stored)];
    let server = Other::start(&[&["serve"], &at[..]].concat());
    let peer = format!("[{own}]:{port}");
    json(&["copy", name(&source), "copy", "--connect", &peer], 0);
    assert_eq!(fs::read(stored.join("copy")).unwrap(), [7; 5000]);
    let report = json(&["perf", "write", "-n", "20", "--connect", &peer], 0);
    assert_eq!(report["points"][0]["verified"], true, "{report}");
    server.end();
    let device = format!("roce://{own}");
    let both = ["perf", "read", "-n", "20", "--device", &device];
    json(&both, 0);
    json(&["rsm", "put", name(&source), "--device", &device], 0);
    let importer = ["--importer", &own, "--port", &port];
    let export = ["rsm", "export", name(&source), "--device", &device];
    let exporter = Other::start(&[&export[..], &importer].concat());
    json(&["rsm", "put", name(&source), "--connect", &peer], 0);
    exporter.end();
    // Without its interface, the address is refused with the form to use.
    let without = format!("[{ip}]:{port}");
    let words = ["link-local", "%INTERFACE]"];
    refused(&["perf", "write", "--connect", &without], 2, &words);
    refused(
        &["serve", "--listen", &ip.to_string()],
        2,
        &["fe80::1%eth0"],
    );
}

/// Commands with both ends in this process work on a device at all addresses, and on a fixed port.
#[test]
fn both_ends_are_on_any_device() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    fs::write(&source, [7; 5000]).unwrap();
    let fixed = format!("roce://{}?udp=4899", address(23));
    for (number, device) in ["roce://0.0.0.0", "roce://::", &fixed].iter().enumerate() {
        if number == 1 && std::net::UdpSocket::bind("[::1]:0").is_err() {
            continue;
        }
        let target = folder.path().join(format!("copy{number}"));
        json(
            &["copy", name(&source), name(&target), "--device", device],
            0,
        );
        for operation in ["write", "bind"] {
            let perf = ["perf", operation, "-n", "20", "--device", device];
            let report = json(&perf, 0);
            assert_eq!(report["points"][0]["verified"], true, "{report}");
        }
        json(&["rsm", "put", name(&source), "--device", device], 0);
    }
}

/// An address that cannot be reached is told with its cause, and not as a fault of the program.
#[test]
fn an_unusable_address_is_told_with_its_cause() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    fs::write(&source, "data").unwrap();
    let loopback = ["--device", "roce://127.0.0.1"];
    for (peer, code, words) in [
        ("192.0.2.9", 1, ["no route", "network interface is up"]),
        ("::1", 1, ["family", "another --device"]),
        ("224.0.0.1", 2, ["many hosts", "address of one host"]),
        ("255.255.255.255", 2, ["many hosts", "address of one host"]),
    ] {
        for command in [&["copy", name(&source), "copy"][..], &["perf", "write"]] {
            let output = dat(&[command, &["--connect", peer], &loopback].concat());
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{peer}: {said}");
            for word in words {
                assert!(said.contains(word), "{peer}: no {word:?} in {said}");
            }
            assert!(!said.contains("report this"), "{peer}: {said}");
        }
        let rsm = ["rsm", "put", name(&source), "--connect", peer];
        let output = dat(&[&rsm[..], &loopback].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{peer}: {said}");
        assert!(!said.contains("report this"), "{peer}: {said}");
    }
}
