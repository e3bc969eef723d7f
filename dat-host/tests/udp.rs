//! Operations over RoCEv2 in software, whose device does not act within the calls of a program.

mod common;

use common::{SOON, connect};
use dat_core::event::ConnectionEventKind;
use dat_host::Adapter;

#[test]
fn a_disconnect_without_operations_in_flight_ends() {
    let open = |address| Adapter::open(address).unwrap().zone().unwrap();
    let (near, far) = (open("roce://127.0.0.33"), open("roce://127.0.0.34"));
    let (client, server) = connect(&near, &far, None).unwrap();
    let disconnected = client.disconnect().wait_timeout(SOON);
    disconnected.expect("in time").unwrap();
    let ended = server.ended().wait_timeout(SOON).expect("in time");
    assert_eq!(ended, ConnectionEventKind::Disconnected);
    // Operations on an ended connection are flushed.
    let flushed = client.send(near.copy(b"late").unwrap()).wait_timeout(SOON);
    assert!(flushed.expect("in time").is_err());
}
