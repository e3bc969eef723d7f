//! Receive information of endpoints, as far as the device provides it.

use crate::attributes::{EpAttributes, ProviderAttributes, SrqAttributes};
use crate::backend::ReceiveInfo;
use crate::endpoint::RecvQuery;
use crate::error::ErrorKind;
use crate::flags::VALUE_UNKNOWN;
use crate::testing::fixture::{Bench, SMALL};
use crate::testing::{IA_ATTRIBUTES, PROVIDER_ATTRIBUTES, TestStorage};

/// A count that the device cannot tell is unknown; without both counts, the call fails.
///
/// Spec: EPY-01, EPY-02, EPY-03
#[test]
fn each_count_is_known_or_not_by_itself() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let ep = bench.endpoint();
    let told = |allocated, span| {
        bench
            .device
            .report_receives(ReceiveInfo { allocated, span });
        bench
            .ia
            .ep_recv_query(ep)
            .map(|RecvQuery { allocated, span }| (allocated, span))
    };
    assert_eq!(told(Some(3), None), Ok((3, VALUE_UNKNOWN)));
    assert_eq!(told(None, Some(5)), Ok((VALUE_UNKNOWN, 5)));
    assert_eq!(told(Some(2), Some(5)), Ok((2, 5)));
    // Each held buffer has a message number.
    assert_eq!(told(Some(4), Some(2)), Ok((4, 4)));
    assert_eq!(told(Some(u32::MAX), Some(0)), Ok((i32::MAX, i32::MAX)));
    let refused = told(None, None).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ModelNotSupported);
}

/// An endpoint without a queue pair holds no buffers, if the provider supports the query.
///
/// Spec: EPY-01, EPY-03
#[test]
fn a_bare_endpoint_holds_no_receives() {
    for (supported, expected) in [
        (0, Err(ErrorKind::ModelNotSupported)),
        (
            1,
            Ok(RecvQuery {
                allocated: 0,
                span: 0,
            }),
        ),
    ] {
        let mut storage = TestStorage::new();
        let provider = ProviderAttributes {
            ep_recv_info_supported: supported,
            ..PROVIDER_ATTRIBUTES
        };
        let bench = Bench::with(&mut storage, IA_ATTRIBUTES, provider);
        let ep = bench.ia.ep_create(None, None, None, None, None).unwrap();
        let told = bench.ia.ep_recv_query(ep).map_err(|error| error.kind());
        assert_eq!(told, expected, "{supported}");
    }
}

/// An endpoint is not idle while it holds buffers of a shared queue.
///
/// Only the device knows these buffers. For an endpoint with its own receive queue, the device's
/// count is ignored.
///
/// Spec: EPG-01
#[test]
fn buffers_that_are_held_keep_an_endpoint_from_being_idle() {
    let mut storage = TestStorage::new();
    let bench = Bench::new(&mut storage);
    let size = SrqAttributes {
        max_recv_dtos: 2,
        max_recv_iov: 1,
        low_watermark: 0,
    };
    let srq = bench.ia.srq_create(bench.pz, &size).unwrap();
    let attributes = EpAttributes {
        max_recv_dtos: 0,
        ..SMALL
    };
    let consuming_endpoint = bench
        .ia
        .ep_create_with_srq(
            Some(bench.pz),
            Some(bench.data),
            Some(bench.data),
            None,
            srq,
            &attributes,
        )
        .unwrap();
    let own = bench.endpoint();
    let idle = |ep| bench.ia.ep_get_status(ep).unwrap().recv_idle;
    for (held, expected) in [(None, true), (Some(0), true), (Some(1), false)] {
        bench.device.report_receives(ReceiveInfo {
            allocated: held,
            span: None,
        });
        assert_eq!(idle(consuming_endpoint), expected, "{held:?}");
        assert!(idle(own), "{held:?}");
    }
    bench.device.report_receives(ReceiveInfo::default());
    bench.receive(own, 1);
    assert!(!idle(own));
}
