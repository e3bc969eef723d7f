//! Reported limits and attributes, and errors of opening.

use std::format;
use std::string::ToString;

use crate::Ia;
use crate::attributes::{IaAttributes, NamedAttribute, ProviderAttributes};
use crate::flags::{IaFields, ProviderFields};
use crate::sync::NoLock;
use crate::testing::{IA_ATTRIBUTES, PROVIDER_ATTRIBUTES, TestBackend, TestStorage, open};

/// Returns attributes of a device with the same limit for each object that storage has.
fn device(many: i32) -> IaAttributes {
    IaAttributes {
        max_eps: many,
        max_dto_per_ep: many,
        max_evds: many,
        max_evd_qlen: many,
        max_lmrs: many,
        max_pzs: many,
        max_rmrs: many,
        max_srqs: many,
        max_recv_per_srq: many,
        ..IA_ATTRIBUTES
    }
}

/// Each limit is the smaller of the device's and the storage's.
///
/// Spec: IAQ-01, GEN-08
#[test]
fn an_adapter_has_what_device_and_storage_have() {
    for (many, expected) in [
        (1000, [8, 256, 8, 256, 8, 8, 8, 4, 256]),
        (4, [4; 9]),
        (100, [8, 100, 8, 100, 8, 8, 8, 4, 100]),
    ] {
        let mut storage = TestStorage::new();
        let ia = open(
            &mut storage,
            &TestBackend::new(device(many), PROVIDER_ATTRIBUTES),
        );
        let told = ia
            .ia_query(IaFields::all(), ProviderFields::all())
            .unwrap()
            .ia;
        let told = [
            told.max_eps,
            told.max_dto_per_ep,
            told.max_evds,
            told.max_evd_qlen,
            told.max_lmrs,
            told.max_pzs,
            told.max_rmrs,
            told.max_srqs,
            told.max_recv_per_srq,
        ];
        assert_eq!(told, expected);
    }
}

/// A failed open reports the error and returns the backend unused.
///
/// Spec: IAO-01
#[test]
fn an_adapter_that_cannot_be_opened_says_why() {
    let mut storage = TestStorage::new();
    let device = TestBackend::default();
    let opened = Ia::<_, NoLock>::open(device.clone(), storage.lend(), 0);
    let refused = opened.err().expect("no length is below 1");
    let why = refused.error.to_string();
    assert_eq!(
        refused.to_string(),
        format!("the interface adapter cannot be opened: {why}")
    );
    let debug = format!("{refused:?}");
    assert!(debug.contains("OpenError") && debug.contains("error"));
    assert_eq!(device.objects(), [0; 7]);
}

/// A query returns the provider's own attribute pairs, not a copy for the consumer.
///
/// Spec: IAQ-11
#[test]
fn named_attributes_stay_the_providers() {
    const fn pair(name: &'static str, value: &'static str) -> NamedAttribute {
        NamedAttribute { name, value }
    }
    static TRANSPORT: [NamedAttribute; 2] = [pair("mtu", "4096"), pair("link", "roce")];
    static VENDOR: [NamedAttribute; 1] = [pair("colour", "grey")];
    static PROVIDER: [NamedAttribute; 1] = [pair("engine", "two")];
    let adapter = IaAttributes {
        transport_attributes: &TRANSPORT,
        vendor_attributes: &VENDOR,
        ..IA_ATTRIBUTES
    };
    let provider = ProviderAttributes {
        provider_specific_attributes: &PROVIDER,
        ..PROVIDER_ATTRIBUTES
    };
    let mut storage = TestStorage::new();
    let ia = open(&mut storage, &TestBackend::new(adapter, provider));
    for _ in 0..2 {
        let told = ia.ia_query(IaFields::all(), ProviderFields::all()).unwrap();
        for (found, owned) in [
            (told.ia.transport_attributes, &TRANSPORT[..]),
            (told.ia.vendor_attributes, &VENDOR[..]),
            (told.provider.provider_specific_attributes, &PROVIDER[..]),
        ] {
            assert!(core::ptr::eq(found, owned), "{found:?}");
        }
    }
}
