//! Bad input: errors that name the cause, and no panic.

mod common;

use std::time::Duration;

use common::{Pair, connect};
use dat_core::attributes::{EpAttributes, IaAddress};
use dat_core::{Cause, ErrorKind};
use dat_host::{Access, Adapter, Error, Limits, Options};

fn kind(error: &Error) -> ErrorKind {
    match error.core() {
        Some(error) => error.kind(),
        None => panic!("{error} is not of the core"),
    }
}

#[test]
fn addresses_without_a_form_or_a_scheme_are_refused() {
    for wrong in ["", "mock", "mock://", "://a"] {
        assert!(
            matches!(Adapter::open(wrong), Err(Error::Malformed(_))),
            "{wrong}"
        );
    }
    let error = Adapter::open("verbs://nothing").unwrap_err();
    let part = match cfg!(feature = "verbs") {
        true => "`nothing`",
        false => "feature `verbs`",
    };
    assert!(error.to_string().contains(part), "{error}");
    let error = Adapter::open("smoke://signal").unwrap_err();
    assert!(error.to_string().contains("`smoke://`"), "{error}");
    assert!(matches!(error, Error::NotBuiltIn { feature: None, .. }));
}

/// The error names the values that are allowed.
#[cfg(feature = "roce")]
#[test]
fn a_path_mtu_is_one_of_five() {
    for mtu in [256, 512, 1024, 2048, 4096] {
        Adapter::open(&format!("roce://127.0.0.41?mtu={mtu}")).expect("an adapter");
    }
    for wrong in ["", "0", "128", "1500", "8192", "1k", "1024&mtu=1024"] {
        let error = Adapter::open(&format!("roce://127.0.0.41?mtu={wrong}")).unwrap_err();
        assert!(matches!(error, Error::Malformed(_)), "{wrong}");
        let text = error.to_string();
        assert!(text.contains("mtu=256|512|1024|2048|4096"), "{text}");
    }
}

/// Spec: EPK-05
#[test]
fn peers_without_a_form_or_a_place_are_refused() {
    let pair = Pair::new();
    for wrong in ["", "far", "far:", ":1", "far:x", "far:-1", "far:1:x"] {
        let refused = pair.near.connect(wrong).wait();
        assert!(matches!(refused, Err(Error::Malformed(_))), "{wrong}");
    }
    let elsewhere = IaAddress::V4([192, 0, 2, 1], 0);
    let refused = pair.near.connect((elsewhere, 1)).wait().unwrap_err();
    assert_eq!(kind(&refused), ErrorKind::InvalidAddress);
    // A name that nobody opened.
    let refused = pair.near.connect("nobody:1").wait().unwrap_err();
    assert!(matches!(refused, Error::Connection(_)), "{refused}");
}

/// Spec: GEN-09, GEN-10
#[test]
fn parameters_of_connections_are_checked() {
    let pair = Pair::new();
    let _listener = pair.far.listen(1).unwrap();
    let refused = pair.near.connect("far:1").deadline_in(Duration::ZERO);
    let refused = refused.wait().unwrap_err();
    assert_eq!(kind(&refused), ErrorKind::InvalidParameter);
    assert!(refused.to_string().contains("`timeout`"), "{refused}");
    let refused = pair.near.connect("far:1").private_data(&[0; 1000]);
    let refused = refused.wait().unwrap_err();
    assert!(refused.to_string().contains("`private_data`"), "{refused}");
    let attributes = EpAttributes {
        max_request_dtos: -1,
        ..EpAttributes::DEFAULT
    };
    let refused = pair.near.connect("far:1").attributes(attributes);
    let refused = refused.wait().unwrap_err();
    assert!(refused.to_string().contains("`attributes`"), "{refused}");
    assert_eq!(refused.core().unwrap().cause(), Cause::MaxRequestDtos);
}

/// Spec: GEN-10
#[test]
fn an_answer_that_is_refused_rejects_the_request() {
    let pair = Pair::new();
    let listener = pair.far.listen(1).unwrap();
    let connecting = pair.near.connect("far:1").start();
    let request = listener.next().wait().unwrap();
    let refused = request.accept().private_data(&[0; 1000]).wait();
    assert_eq!(kind(&refused.unwrap_err()), ErrorKind::InvalidParameter);
    assert!(matches!(connecting.wait(), Err(Error::Rejected(_))));
    let connecting = pair.near.connect("far:1").start();
    let request = listener.next().wait().unwrap();
    assert_eq!(
        kind(&request.reject(&[0; 1000]).unwrap_err()),
        ErrorKind::InvalidParameter
    );
    assert!(matches!(connecting.wait(), Err(Error::Rejected(_))));
}

/// Spec: PSC-04
#[test]
fn a_qualifier_has_one_listener() {
    let pair = Pair::new();
    let first = pair.far.listen(1).unwrap();
    let refused = pair.far.listen(1).unwrap_err();
    assert_eq!(kind(&refused), ErrorKind::ConnQualInUse);
    drop(first);
    let _again = pair.far.listen(1).unwrap();
    let refused = pair.far.listen_with(None, 0).unwrap_err();
    assert!(refused.to_string().contains("`min_qlen`"), "{refused}");
}

/// Spec: PSC-02, EPK-08
#[test]
fn more_requests_than_the_backlog_are_refused() {
    let pair = Pair::new();
    let listener = pair.far.listen_with(Some(1), 2).unwrap();
    let [first, second, third] = [(); 3].map(|()| pair.near.connect("far:1").start());
    assert!(third.wait().is_err());
    for attempt in [first, second] {
        let waits = attempt.wait_timeout(Duration::ZERO);
        assert!(waits.is_err(), "nobody has answered it");
    }
    drop(listener);
}

/// A listener has the backlog that was asked for, or none.
///
/// Spec: PSC-02
#[test]
fn a_backlog_is_granted_or_refused() {
    let devices: &[&str] = match cfg!(feature = "roce") {
        true => &["mock://backlog", "roce://127.0.0.51"],
        false => &["mock://backlog"],
    };
    for address in devices {
        let adapter = Adapter::open(address).unwrap();
        let most = usize::try_from(adapter.query().unwrap().ia.max_eps).unwrap();
        let zone = adapter.zone().unwrap();
        let refused = zone.listen_with(None, most + 1).unwrap_err().to_string();
        let (asked, most) = ((most + 1).to_string(), most.to_string());
        assert!(refused.contains(&asked), "{refused}");
        assert!(refused.contains(&most), "{refused}");
        assert!(refused.contains("max_eps"), "{refused}");
    }
}

/// An adapter over UDP keeps as many requests as the backlog of its listener.
///
/// Spec: PSC-02
#[cfg(feature = "roce")]
#[test]
fn a_long_backlog_is_kept() {
    const REQUESTS: usize = 1_100;
    let open = |address| Adapter::open(address).unwrap().zone().unwrap();
    let (near, far) = (open("roce://127.0.0.52"), open("roce://127.0.0.53"));
    let listener = far.listen_with(None, REQUESTS).unwrap();
    let peer = format!("127.0.0.53:{}", listener.qualifier());
    let attempts: Vec<_> = (0..REQUESTS)
        .map(|_| {
            let connecting = near.connect(&peer).deadline_in(Duration::from_secs(600));
            connecting.start()
        })
        .collect();
    // None is answered before all have come.
    let requests: Vec<_> = (0..REQUESTS)
        .map(|_| listener.next().wait().unwrap())
        .collect();
    drop(requests);
    for attempt in attempts {
        let rejected = attempt.wait().unwrap_err();
        assert!(matches!(
            rejected,
            Error::Connection(_) | Error::Rejected(_)
        ));
    }
}

/// Spec: LMC-10
#[test]
fn memory_without_bytes_is_refused_where_it_has_no_meaning() {
    let pair = Pair::new();
    let failed = pair.near.region(Vec::new()).unwrap_err();
    assert_eq!(kind(&failed.error), ErrorKind::InvalidParameter);
    assert!(failed.to_string().contains("`memory`"), "{failed}");
    assert_eq!(failed.memory, Vec::<u8>::new());
    assert_eq!(pair.near.buffer(0).unwrap().len(), 0);
    assert_eq!(
        kind(&pair.near.buffer(usize::MAX).unwrap_err()),
        ErrorKind::InsufficientResources
    );
    for (count, size) in [(0, 8), (8, 0), (usize::MAX, 8), (8, usize::MAX)] {
        assert!(pair.near.shared_receive(count, size).is_err());
    }
    // More than the address space has.
    let refused = pair.near.shared_receive(1, isize::MAX as usize);
    assert_eq!(
        kind(&refused.unwrap_err()),
        ErrorKind::InsufficientResources
    );
    // A transfer of no bytes is one.
    let (near, far) = pair.connect();
    let region = pair.far.region(vec![1_u8; 8]).unwrap();
    let window = region.expose(.., Access::all()).to(&far).wait().unwrap();
    let nothing = window.remote().slice(..0).unwrap();
    near.write(pair.near.buffer(0).unwrap(), nothing)
        .wait()
        .unwrap();
    near.read(nothing, pair.near.buffer(0).unwrap())
        .wait()
        .unwrap();
    assert_eq!(window.revoke().wait().into_inner(), [1; 8]);
}

#[test]
fn windows_check_their_bounds() {
    let pair = Pair::new();
    let (_near, far) = pair.connect();
    let region = pair.far.region(vec![1_u8; 8]).unwrap();
    let window = region.expose(2..6, Access::READ).to(&far).wait().unwrap();
    let mut bytes = [0; 4];
    window.load(0, &mut bytes).unwrap();
    for offset in [1, 5, usize::MAX] {
        let refused = window.load(offset, &mut bytes);
        assert!(matches!(refused, Err(Error::OutOfRange { length: 4, .. })));
        let refused = window.store(offset, &bytes);
        assert!(matches!(refused, Err(Error::OutOfRange { length: 4, .. })));
    }
    assert_eq!(bytes, [1; 4]);
}

/// Spec: GEN-10
#[test]
fn unknown_rights_are_refused() {
    let pair = Pair::new();
    let (_near, far) = pair.connect();
    let region = pair.far.region(vec![1_u8; 8]).unwrap();
    let exposing = region.expose(.., Access::from_bits_retain(5));
    let failed = exposing.to(&far).wait().unwrap_err();
    assert_eq!(kind(&failed.error), ErrorKind::InvalidParameter);
    assert_eq!(failed.error.core().unwrap().cause(), Cause::UnknownFlags);
    assert!(failed.to_string().contains("`privileges`"), "{failed}");
    assert_eq!(failed.memory.into_inner(), [1; 8]);
}

#[test]
fn limits_of_zero_are_errors_of_the_first_call_that_needs_more() {
    let open = |limits: Limits| {
        let network = common::network();
        Options::new()
            .network(&network)
            .limits(limits)
            .open("mock://a")
    };
    let all = Limits::default();
    for limits in [
        Limits {
            dispatchers: 0,
            ..all
        },
        Limits {
            dispatchers: 2,
            ..all
        },
        Limits {
            notification_objects: 0,
            ..all
        },
        Limits { events: 0, ..all },
    ] {
        // The tables grow, unless a limit is 0.
        let opened = open(limits);
        let is_zero = limits.dispatchers * limits.notification_objects * limits.events == 0;
        assert_eq!(opened.is_err(), is_zero, "{limits:?}");
        if let Err(error) = opened {
            assert_eq!(kind(&error), ErrorKind::InsufficientResources);
        }
    }
    let exhausted = |error: Error| assert_eq!(kind(&error), ErrorKind::InsufficientResources);
    let zones = open(Limits { zones: 0, ..all }).unwrap();
    exhausted(zones.zone().unwrap_err());
    let zone = |limits| open(limits).unwrap().zone().unwrap();
    let none = zone(Limits {
        local_regions: 0,
        ..all
    });
    exhausted(none.region(vec![0_u8; 8]).unwrap_err().error);
    exhausted(none.buffer(8).unwrap_err());
    // The attributes are checked against the limits first.
    let none = zone(Limits {
        shared_receive_queues: 0,
        ..all
    });
    assert!(none.shared_receive(1, 8).is_err());
    let none = zone(Limits {
        service_points: 0,
        ..all
    });
    exhausted(none.listen(1).unwrap_err());
    let none = zone(Limits {
        endpoints: 0,
        ..all
    });
    exhausted(none.connect("a:1").wait().unwrap_err());
    let none = zone(Limits {
        remote_regions: 0,
        ..all
    });
    let (_near, far) = connect(&none, &none, None).unwrap();
    let region = none.region(vec![0_u8; 8]).unwrap();
    let failed = region.expose(.., Access::READ).to(&far).wait().unwrap_err();
    exhausted(failed.error);
}

#[test]
fn tables_grow_beyond_the_limits() {
    let network = common::network();
    let limits = Limits {
        endpoints: 1,
        local_regions: 1,
        connection_requests: 1,
        records: 1,
        ..Limits::default()
    };
    let options = Options::new().network(&network).limits(limits);
    let zone = options.open("mock://a").unwrap().zone().unwrap();
    let pairs: Vec<_> = (0..100)
        .map(|_| connect(&zone, &zone, None).unwrap())
        .collect();
    for (near, far) in &pairs {
        let receive = far.recv(zone.buffer(8).unwrap());
        near.send(zone.copy(b"grown").unwrap()).wait().unwrap();
        assert_eq!(&receive.wait().unwrap().memory[..], b"grown");
    }
}
