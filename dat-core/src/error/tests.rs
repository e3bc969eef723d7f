//! Compares the numbers of both ABIs with tables of literals.

use super::*;
use core::mem::size_of;

/// Subtype, 1.2 number, 2.0 number.
const SUBTYPES: &[(Subtype, Option<u16>, u16)] = &[
    (Subtype::NoSubtype, Some(0), 0),
    (Subtype::SubInterrupted, Some(1), 1),
    (Subtype::ResourceMemory, Some(2), 2),
    (Subtype::ResourceDevice, Some(3), 3),
    (Subtype::ResourceTep, Some(4), 4),
    (Subtype::ResourceTevd, Some(5), 5),
    (Subtype::ResourceProtectionDomain, Some(6), 6),
    (Subtype::ResourceMemoryRegion, Some(7), 7),
    (Subtype::ResourceErrorHandler, Some(8), 8),
    (Subtype::ResourceCredits, Some(9), 9),
    (Subtype::ResourceSrq, Some(10), 10),
    (Subtype::InvalidHandleIa, Some(11), 11),
    (Subtype::InvalidHandleEp, Some(12), 12),
    (Subtype::InvalidHandleLmr, Some(13), 13),
    (Subtype::InvalidHandleRmr, Some(14), 14),
    (Subtype::InvalidHandlePz, Some(15), 15),
    (Subtype::InvalidHandlePsp, Some(16), 16),
    (Subtype::InvalidHandleRsp, Some(17), 17),
    (Subtype::InvalidHandleCr, Some(18), 18),
    (Subtype::InvalidHandleCno, Some(19), 19),
    (Subtype::InvalidHandleEvdCr, Some(20), 20),
    (Subtype::InvalidHandleEvdRequest, Some(21), 21),
    (Subtype::InvalidHandleEvdRecv, Some(22), 22),
    (Subtype::InvalidHandleEvdConn, Some(23), 23),
    (Subtype::InvalidHandleEvdAsync, Some(24), 24),
    (Subtype::InvalidHandleSrq, Some(25), 25),
    (Subtype::InvalidHandleCsp, None, 26),
    (Subtype::InvalidHandle1, Some(26), 27),
    (Subtype::InvalidHandle2, Some(27), 28),
    (Subtype::InvalidHandle3, Some(28), 29),
    (Subtype::InvalidHandle4, Some(29), 30),
    (Subtype::InvalidHandle5, Some(30), 31),
    (Subtype::InvalidHandle6, Some(31), 32),
    (Subtype::InvalidHandle7, Some(32), 33),
    (Subtype::InvalidHandle8, Some(33), 34),
    (Subtype::InvalidHandle9, Some(34), 35),
    (Subtype::InvalidHandle10, Some(35), 36),
    (Subtype::InvalidArg1, Some(36), 37),
    (Subtype::InvalidArg2, Some(37), 38),
    (Subtype::InvalidArg3, Some(38), 39),
    (Subtype::InvalidArg4, Some(39), 40),
    (Subtype::InvalidArg5, Some(40), 41),
    (Subtype::InvalidArg6, Some(41), 42),
    (Subtype::InvalidArg7, Some(42), 43),
    (Subtype::InvalidArg8, Some(43), 44),
    (Subtype::InvalidArg9, Some(44), 45),
    (Subtype::InvalidArg10, Some(45), 46),
    (Subtype::InvalidStateEpUnconnected, Some(46), 47),
    (Subtype::InvalidStateEpActConnPending, Some(47), 48),
    (Subtype::InvalidStateEpPassConnPending, Some(48), 49),
    (Subtype::InvalidStateEpTentConnPending, Some(49), 50),
    (Subtype::InvalidStateEpConnected, Some(50), 51),
    (Subtype::InvalidStateEpDisconnected, Some(51), 52),
    (Subtype::InvalidStateEpReserved, Some(52), 53),
    (Subtype::InvalidStateEpComplPending, Some(53), 54),
    (Subtype::InvalidStateEpDiscPending, Some(54), 55),
    (Subtype::InvalidStateEpProviderControl, Some(55), 56),
    (Subtype::InvalidStateEpNotReady, Some(56), 57),
    (Subtype::InvalidStateEpRecvWatermark, Some(57), 58),
    (Subtype::InvalidStateEpPz, Some(58), 59),
    (Subtype::InvalidStateEpEvdRequest, Some(59), 60),
    (Subtype::InvalidStateEpEvdRecv, Some(60), 61),
    (Subtype::InvalidStateEpEvdConnect, Some(61), 62),
    (Subtype::InvalidStateEpUnconfigured, Some(62), 63),
    (Subtype::InvalidStateEpUnconfReserved, Some(63), 64),
    (Subtype::InvalidStateEpUnconfPassive, Some(64), 65),
    (Subtype::InvalidStateEpUnconfTentative, Some(65), 66),
    (Subtype::InvalidStateCnoInUse, Some(66), 67),
    (Subtype::InvalidStateCnoDead, Some(67), 68),
    (Subtype::InvalidStateEvdOpen, Some(68), 69),
    (Subtype::InvalidStateEvdEnabled, Some(69), 70),
    (Subtype::InvalidStateEvdDisabled, Some(70), 71),
    (Subtype::InvalidStateEvdWaitable, Some(71), 72),
    (Subtype::InvalidStateEvdUnwaitable, Some(72), 73),
    (Subtype::InvalidStateEvdInUse, Some(73), 74),
    (Subtype::InvalidStateEvdConfigNotify, Some(74), 75),
    (Subtype::InvalidStateEvdConfigSolicited, Some(75), 76),
    (Subtype::InvalidStateEvdConfigThreshold, Some(76), 77),
    (Subtype::InvalidStateEvdWaiter, Some(77), 78),
    (Subtype::InvalidStateEvdAsync, Some(78), 79),
    (Subtype::InvalidStateIaInUse, Some(79), 80),
    (Subtype::InvalidStateLmrInUse, Some(80), 81),
    (Subtype::InvalidStateLmrFree, Some(81), 82),
    (Subtype::InvalidStatePzInUse, Some(82), 83),
    (Subtype::InvalidStatePzFree, Some(83), 84),
    (Subtype::InvalidStateSrqOperational, Some(84), 85),
    (Subtype::InvalidStateSrqError, Some(85), 86),
    (Subtype::InvalidStateSrqInUse, Some(86), 87),
    (Subtype::InvalidStateSrqShutdown, None, 88),
    (Subtype::PrivilegesRead, Some(87), 89),
    (Subtype::PrivilegesWrite, Some(88), 90),
    (Subtype::PrivilegesRdmaRead, Some(89), 91),
    (Subtype::PrivilegesRdmaWrite, Some(90), 92),
    (Subtype::ProtectionRead, Some(91), 93),
    (Subtype::ProtectionWrite, Some(92), 94),
    (Subtype::ProtectionRdmaRead, Some(93), 95),
    (Subtype::ProtectionRdmaWrite, Some(94), 96),
    (Subtype::InvalidAddressUnsupported, Some(95), 97),
    (Subtype::InvalidAddressUnreachable, Some(96), 98),
    (Subtype::InvalidAddressMalformed, Some(97), 99),
    (Subtype::NameNotRegistered, Some(98), 100),
    (Subtype::MajorNotFound, Some(99), 101),
    (Subtype::MinorNotFound, Some(100), 102),
    (Subtype::ThreadSafetyNotFound, Some(101), 103),
];

/// Kind, 1.2 type, 2.0 type.
const KINDS: &[(ErrorKind, Option<u32>, u32)] = &[
    (ErrorKind::Abort, Some(0x0001_0000), 0x0001_0000),
    (ErrorKind::ConnQualInUse, Some(0x0002_0000), 0x0002_0000),
    (
        ErrorKind::InsufficientResources,
        Some(0x0003_0000),
        0x0003_0000,
    ),
    (ErrorKind::InternalError, Some(0x0004_0000), 0x0004_0000),
    (ErrorKind::InvalidHandle, Some(0x0005_0000), 0x0005_0000),
    (ErrorKind::InvalidParameter, Some(0x0006_0000), 0x0006_0000),
    (ErrorKind::InvalidState, Some(0x0007_0000), 0x0007_0000),
    (ErrorKind::LengthError, Some(0x0008_0000), 0x0008_0000),
    (ErrorKind::ModelNotSupported, Some(0x0009_0000), 0x0009_0000),
    (ErrorKind::ProviderNotFound, Some(0x000A_0000), 0x000A_0000),
    (
        ErrorKind::PrivilegesViolation,
        Some(0x000B_0000),
        0x000B_0000,
    ),
    (
        ErrorKind::ProtectionViolation,
        Some(0x000C_0000),
        0x000C_0000,
    ),
    (ErrorKind::QueueEmpty, Some(0x000D_0000), 0x000D_0000),
    (ErrorKind::QueueFull, Some(0x000E_0000), 0x000E_0000),
    (ErrorKind::TimeoutExpired, Some(0x000F_0000), 0x000F_0000),
    (
        ErrorKind::ProviderAlreadyRegistered,
        Some(0x0010_0000),
        0x0010_0000,
    ),
    (ErrorKind::ProviderInUse, Some(0x0011_0000), 0x0011_0000),
    (ErrorKind::InvalidAddress, Some(0x0012_0000), 0x0012_0000),
    (ErrorKind::InterruptedCall, Some(0x0013_0000), 0x0013_0000),
    (
        ErrorKind::ConnQualUnavailable,
        Some(0x0014_0000),
        0x0014_0000,
    ),
    (ErrorKind::ReservedLmr, None, 0x0015_0000),
    (ErrorKind::PortInUse, None, 0x0016_0000),
    (ErrorKind::CommNotSupported, None, 0x0017_0000),
    (ErrorKind::NotImplemented, Some(0x0FFF_0000), 0x3FFF_0000),
];

#[test]
fn an_error_takes_four_bytes() {
    assert_eq!(size_of::<Error>(), 4);
    assert_eq!(size_of::<Result<()>>(), 4);
}

/// Spec: GEN-01
#[test]
fn codes_are_those_of_the_headers() {
    assert_eq!(SUBTYPES.len(), Subtype::ALL.len());
    assert_eq!(KINDS.len(), ErrorKind::ALL.len());
    for &(kind, type_1_2, type_2_0) in KINDS {
        for &(subtype, subtype_1_2, subtype_2_0) in SUBTYPES {
            let error = Error::new(kind, subtype);
            if let (Some(type_1_2), Some(subtype_1_2)) = (type_1_2, subtype_1_2) {
                let code = 0x8000_0000 | type_1_2 | u32::from(subtype_1_2);
                assert_eq!(error.code(Abi::V1_2), code);
                assert_eq!(Error::from_code(code, Abi::V1_2), Some(Err(error)));
            }
            let code = 0x8000_0000 | type_2_0 | u32::from(subtype_2_0);
            assert_eq!(error.code(Abi::V2_0), code);
            assert_eq!(Error::from_code(code, Abi::V2_0), Some(Err(error)));
            assert_eq!(error.because(Cause::Stale).code(Abi::V2_0), code);
        }
    }
}

/// Spec: GEN-01
#[test]
fn codes_of_2_0_are_translated_for_1_2() {
    let cases = [
        (
            Error::invalid_handle(Subtype::InvalidHandleCsp),
            0x8005_0000,
        ),
        (
            Error::invalid_state(Subtype::InvalidStateSrqShutdown),
            0x8007_0000,
        ),
        (
            Error::new(ErrorKind::ReservedLmr, Subtype::NoSubtype),
            0x800B_0000,
        ),
        (
            Error::new(ErrorKind::PortInUse, Subtype::NoSubtype),
            0x8002_0000,
        ),
        (
            Error::new(ErrorKind::CommNotSupported, Subtype::NoSubtype),
            0x8009_0000,
        ),
    ];
    for (error, code) in cases {
        assert_eq!(error.code(Abi::V1_2), code, "{error:?}");
    }
}

/// Spec: GEN-01
#[test]
fn success_is_zero_and_a_missing_class_bit_is_forgiven() {
    for abi in [Abi::V1_2, Abi::V2_0] {
        assert_eq!(Error::from_code(0, abi), Some(Ok(())));
        assert_eq!(
            Error::from_code(0x000D_0000, abi),
            Some(Err(Error::queue_empty()))
        );
        assert_eq!(
            Error::from_code(0x800D_0000, abi),
            Some(Err(Error::queue_empty()))
        );
    }
}

/// Spec: GEN-01, STR-02
#[test]
fn undefined_codes_are_refused() {
    for abi in [Abi::V1_2, Abi::V2_0] {
        // A class without type, a subtype without type, warnings, both class bits, undefined types
        // and undefined subtypes.
        for code in [
            0x8000_0000,
            1,
            0x8000_0001,
            0x4005_0000,
            0xC005_0000,
            0x8018_0000,
            0x9000_0000,
            0x8005_0068,
            0x8005_00F0,
            0x8005_00F1,
            0x8005_0100,
            0x8005_FFFF,
            u32::MAX,
        ] {
            assert_eq!(Error::from_code(code, abi), None, "{code:#010x} {abi:?}");
        }
    }
    // Each is defined in the other ABI only.
    for (code, undefined) in [
        (0x8005_0066, Abi::V1_2),
        (0x8005_0067, Abi::V1_2),
        (0x8015_0000, Abi::V1_2),
        (0x8016_0000, Abi::V1_2),
        (0x8017_0000, Abi::V1_2),
        (0xBFFF_0000, Abi::V1_2),
        (0x8FFF_0000, Abi::V2_0),
    ] {
        let other = if undefined == Abi::V1_2 {
            Abi::V2_0
        } else {
            Abi::V1_2
        };
        assert_eq!(Error::from_code(code, undefined), None, "{code:#010x}");
        assert!(Error::from_code(code, other).is_some(), "{code:#010x}");
    }
}

/// Spec: GEN-01
#[test]
fn every_subtype_number_has_at_most_one_meaning() {
    for abi in [Abi::V1_2, Abi::V2_0] {
        let defined = (0..=u16::MAX)
            .filter_map(|number| Subtype::from_number(number, abi).map(|found| (number, found)));
        let mut count: usize = 0;
        for (number, found) in defined {
            assert_eq!(found.number(abi), number);
            count = count.saturating_add(1);
        }
        assert_eq!(count, if abi == Abi::V1_2 { 102 } else { 104 });
    }
}

/// Spec: GEN-04
#[test]
fn an_argument_error_names_its_position() {
    for position in 1..=10_u8 {
        let error = Error::invalid_argument(position);
        assert_eq!(
            error.code(Abi::V1_2),
            0x8006_0000 | u32::from(position.saturating_add(35))
        );
        assert_eq!(
            error.code(Abi::V2_0),
            0x8006_0000 | u32::from(position.saturating_add(36))
        );
    }
    for position in [0, 11, u8::MAX] {
        assert_eq!(
            Error::invalid_argument(position).subtype(),
            Subtype::NoSubtype
        );
    }
}

#[test]
fn constructors_set_their_kind() {
    let none = Subtype::NoSubtype;
    for (error, kind, subtype) in [
        (Error::abort(), ErrorKind::Abort, none),
        (
            Error::insufficient_resources(Subtype::ResourceTevd),
            ErrorKind::InsufficientResources,
            Subtype::ResourceTevd,
        ),
        (
            Error::internal(Cause::DeviceGone),
            ErrorKind::InternalError,
            none,
        ),
        (
            Error::invalid_handle(Subtype::InvalidHandleEp),
            ErrorKind::InvalidHandle,
            Subtype::InvalidHandleEp,
        ),
        (
            Error::invalid_state(Subtype::InvalidStatePzInUse),
            ErrorKind::InvalidState,
            Subtype::InvalidStatePzInUse,
        ),
        (Error::length(), ErrorKind::LengthError, none),
        (
            Error::model_not_supported(),
            ErrorKind::ModelNotSupported,
            none,
        ),
        (Error::not_implemented(), ErrorKind::NotImplemented, none),
        (
            Error::privileges_violation(Subtype::PrivilegesRead),
            ErrorKind::PrivilegesViolation,
            Subtype::PrivilegesRead,
        ),
        (
            Error::protection_violation(Subtype::ProtectionWrite),
            ErrorKind::ProtectionViolation,
            Subtype::ProtectionWrite,
        ),
        (Error::queue_empty(), ErrorKind::QueueEmpty, none),
        (Error::queue_full(), ErrorKind::QueueFull, none),
        (Error::timeout_expired(), ErrorKind::TimeoutExpired, none),
    ] {
        assert_eq!((error.kind(), error.subtype()), (kind, subtype));
    }
    assert_eq!(
        Error::internal(Cause::DeviceGone).cause(),
        Cause::DeviceGone
    );
}

#[test]
fn the_cause_counts_for_equality_but_not_for_the_code() {
    let plain = Error::invalid_handle(Subtype::InvalidHandleEp);
    let stale = plain.because(Cause::Stale);
    assert_ne!(plain, stale);
    assert!(plain.same_code(stale));
    assert!(!plain.same_code(Error::invalid_handle(Subtype::InvalidHandleIa)));
    assert!(!plain.same_code(Error::new(
        ErrorKind::InvalidState,
        Subtype::InvalidHandleEp
    )));
    for &cause in Cause::ALL {
        assert_eq!(Cause::from_number(cause as u8), Some(cause));
    }
    assert_eq!(Cause::from_number(u8::MAX), None);
}
