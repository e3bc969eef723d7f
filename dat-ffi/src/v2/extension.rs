//! The extensions for InfiniBand that are supported: RDMA Writes with immediate data, atomics.

use dat_core::Error;
use dat_core::backend::Extensions;
use dat_core::endpoint::Extended;
use dat_core::event::{ExtendedCompletion, ExtendedOperation};
use dat_core::flags::{CompletionFlags, DtoStatus, HandleKind};
use dat_core::id::EpId;

use super::edition::V2;
use crate::adapter::with_device;
use crate::boundary::{In, List, ShortTriplet, VariableArguments};
use crate::calls::edition::Triplet;
use crate::calls::result::{Code, adapter_of, code};
use crate::handles::CHandle;

/// `DAT_IB_OP`.
const FETCH_AND_ADD: u32 = 0;
const COMPARE_AND_SWAP: u32 = 1;
const WRITE_IMMEDIATE: u32 = 2;

/// Runs a call of `dat_extension_op`; reads arguments only of operations that the device has.
///
/// Spec: DTO-04..07
pub(super) extern "C" fn operation(
    handle: CHandle,
    operation: u32,
    arguments: VariableArguments,
) -> Code {
    code::<V2>((|| {
        let adapter = adapter_of(handle, HandleKind::Ep)?;
        let needed = match operation {
            FETCH_AND_ADD => Extensions::FETCH_AND_ADD,
            COMPARE_AND_SWAP => Extensions::COMPARE_AND_SWAP,
            WRITE_IMMEDIATE => Extensions::WRITE_IMMEDIATE,
            _ => return Err(Error::not_implemented()),
        };
        let known = with_device!(adapter, opened => opened.ia.extensions());
        if !known.contains(needed) {
            return Err(Error::not_implemented());
        }
        let mut count = 1;
        let mut extended = match operation {
            FETCH_AND_ADD => Extended::FetchAndAdd {
                add: arguments.number(),
            },
            COMPARE_AND_SWAP => Extended::CompareAndSwap {
                compare: arguments.number(),
                swap: arguments.number(),
            },
            _ => {
                count = arguments.number() as i32;
                Extended::WriteImmediate { immediate: 0 }
            }
        };
        let segments: List<ShortTriplet> = arguments.list();
        let cookie = arguments.number();
        let remote: In<ShortTriplet> = arguments.address();
        if let Extended::WriteImmediate { immediate } = &mut extended {
            *immediate = arguments.number() as u32;
        }
        let flags = CompletionFlags::from_bits_retain(arguments.number() as u32);
        let remote = remote.get().ok_or(Error::invalid_argument(5))?.remote();
        let ep = EpId::from_handle(handle.named());
        segments.with(count.into(), (2, 3), Triplet::local, |segments| {
            with_device!(adapter, opened => {
                opened.posting(|| {
                    opened.ia.post_extended(ep, extended, segments, cookie, &remote, flags)
                })
            })
        })
    })())
}

/// Returns the data of an extended event: `DAT_IB_DTOS` and `DAT_IB_EXTENSION_EVENT_DATA`.
pub(crate) fn event_fields(completion: &ExtendedCompletion) -> (u32, [u64; 8]) {
    let (operation, kind, number) = match completion.operation {
        ExtendedOperation::WriteImmediate => (8, 2, 0),
        ExtendedOperation::ReceiveImmediate { immediate } => (9, 3, immediate),
        ExtendedOperation::FetchAndAdd => (10, 0, 0),
        ExtendedOperation::CompareAndSwap => (11, 1, 0),
    };
    let failed = u64::from(completion.status != DtoStatus::Success);
    let mut data = [0; 8];
    data[0] = failed << 32 | kind;
    data[1] = number.into();
    (operation, data)
}
