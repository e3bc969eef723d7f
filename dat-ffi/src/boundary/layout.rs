//! The structures of both editions as C has them on 64-bit machines.
//!
//! The layouts follow the tables of the project's specification of the binary interface. Tests
//! compare them with the layouts that a C compiler makes of this project's headers of DAT 1.2 and
//! the packaged headers of DAT 2.0.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

use dat_core::flags::LMR_COOKIE_SIZE;
use dat_core::memory::LmrTriplet;

use super::Agent;
use crate::calls::Form;
use crate::calls::edition::Triplet;
use crate::handles::CHandle;

/// A type that may be copied from any memory that is large enough.
///
/// # Safety
/// Every bit pattern is a value of the type, which has no owner and no references in it.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($type:ty),* $(,)?) => {$(
        // SAFETY: made of numbers, addresses and optional functions only.
        unsafe impl Plain for $type {}
    )*};
}

plain! {
    u8, i32, u32, u64, CHandle, ShortTriplet, LongTriplet, ProviderInfo, SrqAttributes, SrqParam, EvdParam, PzParam, PspParam, RspParam,
    CrParam,
}

// SAFETY: an array of values for which every bit pattern is a value.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Structures whose fields differ between editions.
macro_rules! plain_editions {
    ($($type:ident),* $(,)?) => {$(
        // SAFETY: made of numbers, addresses, optional functions, and fields of an edition, which
        // are plain.
        unsafe impl<E: Form> Plain for $type<E> {}
    )*};
}

plain_editions! { Event, IaAttributes, ProviderAttributes, EpAttributes, EpParam, LmrParam, RmrParam, CnoParam }

/// Structures that are made with all bits zero, including their padding.
macro_rules! zeroed {
    ($($type:ident),* $(,)?) => {$(
        impl<E: Form> $type<E> {
            /// Returns the structure with zero in every byte.
            pub(crate) fn zeroed() -> Self {
                // SAFETY: every bit pattern is a value, by `Plain`.
                unsafe { std::mem::zeroed() }
            }
        }
    )*};
}

zeroed! { Event, IaAttributes, ProviderAttributes, EpParam, EpAttributes }

/// `DAT_NAME_MAX_LENGTH`.
pub(crate) type Name = [u8; 256];

/// `DAT_PROVIDER_INFO`: a line of `dat.conf`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ProviderInfo {
    pub(crate) ia_name: Name,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) is_thread_safe: u32,
}

impl ProviderInfo {
    /// Makes a line; a name that is too long is cut off.
    pub(crate) fn new(name: &CStr, major: u32, minor: u32, is_thread_safe: bool) -> Self {
        Self {
            ia_name: name_of(name.to_bytes()),
            major,
            minor,
            is_thread_safe: is_thread_safe.into(),
        }
    }

    /// Returns the name, up to the first zero byte or the end of the field.
    pub(crate) fn name(&self) -> Option<CString> {
        let text = self.ia_name.split(|byte| *byte == 0).next()?;
        CString::new(text).ok()
    }
}

/// Returns a text with zero bytes after it; a text that is too long is cut off.
pub(crate) fn name_of(text: &[u8]) -> Name {
    let mut name = [0; 256];
    // The last byte stays zero.
    for (to, byte) in name.iter_mut().take(255).zip(text) {
        *to = *byte;
    }
    name
}

/// Number of functions that `DAT_PROVIDER` has in 2.0.
pub(crate) const FUNCTIONS: usize = 79;

/// Number of functions that `DAT_PROVIDER` has in 1.2, the first ones of 2.0.
pub(crate) const FUNCTIONS_1_2: usize = 68;

/// `DAT_PROVIDER`: the table that a registry calls a provider through.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct FunctionTable<const N: usize = FUNCTIONS> {
    pub(crate) device_name: *const c_char,
    pub(crate) extension: *mut c_void,
    pub(crate) functions: [*const (); N],
}

// SAFETY: a table is made once, and nothing in it changes.
unsafe impl Send for FunctionTable {}
// SAFETY: as above.
unsafe impl Sync for FunctionTable {}

/// `DAT_NAMED_ATTR`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct NamedAttribute {
    pub(crate) name: *const c_char,
    pub(crate) value: *const c_char,
}

// SAFETY: the strings that it points to live as long as the value, and their addresses stay.
unsafe impl Send for NamedAttribute {}
// SAFETY: as above.
unsafe impl Sync for NamedAttribute {}

/// `DAT_LMR_TRIPLET` and `DAT_RMR_TRIPLET` of DAT 1.2.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LongTriplet {
    pub(crate) context: u32,
    /// `pad`: unused.
    pub(crate) nothing: u32,
    pub(crate) address: u64,
    pub(crate) length: u64,
}

impl Triplet for LongTriplet {
    #[inline]
    fn parts(self) -> (u32, u64, u64) {
        (self.context, self.address, self.length)
    }

    fn of(segment: &LmrTriplet) -> Self {
        Self {
            context: segment.context,
            nothing: 0,
            address: segment.address,
            length: segment.length,
        }
    }
}

/// `DAT_LMR_TRIPLET` and `DAT_RMR_TRIPLET` of DAT 2.0.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ShortTriplet {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) context: u32,
}

impl Triplet for ShortTriplet {
    #[inline]
    fn parts(self) -> (u32, u64, u64) {
        (self.context, self.address, self.length.into())
    }

    fn of(segment: &LmrTriplet) -> Self {
        Self {
            address: segment.address,
            // The length was given in a triplet of the same width, so it fits.
            length: u32::try_from(segment.length).unwrap_or(u32::MAX),
            context: segment.context,
        }
    }
}

/// `DAT_EVENT`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Event<E: Form> {
    pub(crate) number: u32,
    pub(crate) evd: CHandle,
    pub(crate) data: EventData<E>,
    pub(crate) extension: E::Added<[u64; 8]>,
}

/// `DAT_EVENT_DATA`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union EventData<E: Form> {
    pub(crate) transfer: TransferData<E>,
    pub(crate) bind: BindData,
    pub(crate) arrival: ArrivalData<E>,
    pub(crate) connection: ConnectionData,
    pub(crate) asynchronous: AsyncData,
    pub(crate) software: u64,
}

impl<E: Form> Event<E> {
    /// Returns the connection request of its arrival.
    pub(crate) fn arrived(&self) -> CHandle {
        // SAFETY: any bits at this place are a handle, for every kind of event.
        unsafe { self.data.arrival.cr }
    }

    /// Returns the pointer of a software event.
    pub(crate) fn software_pointer(&self) -> u64 {
        // SAFETY: any bits at this place are a number, for every kind of event.
        unsafe { self.data.software }
    }
}

/// `DAT_DTO_COMPLETION_EVENT_DATA`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct TransferData<E: Form> {
    pub(crate) ep: CHandle,
    pub(crate) cookie: u64,
    pub(crate) status: u32,
    pub(crate) transferred_length: E::Length,
    pub(crate) operation: E::Added<u32>,
    pub(crate) rmr_context: E::Added<u32>,
}

/// `DAT_RMR_BIND_COMPLETION_EVENT_DATA`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BindData {
    pub(crate) rmr: CHandle,
    pub(crate) cookie: u64,
    pub(crate) status: u32,
}

/// `DAT_CR_ARRIVAL_EVENT_DATA`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ArrivalData<E: Form> {
    pub(crate) service_point: CHandle,
    pub(crate) local_address: *const c_void,
    pub(crate) qualifier: u64,
    pub(crate) cr: CHandle,
    pub(crate) truncated: E::Added<u32>,
}

/// `DAT_CONNECTION_EVENT_DATA`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ConnectionData {
    pub(crate) ep: CHandle,
    pub(crate) private_data_size: i32,
    pub(crate) private_data: *const c_void,
}

/// `DAT_ASYNCH_ERROR_EVENT_DATA`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AsyncData {
    pub(crate) handle: CHandle,
    pub(crate) reason: i32,
}

/// `DAT_IA_ATTR`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IaAttributes<E: Form> {
    pub(crate) adapter_name: Name,
    pub(crate) vendor_name: Name,
    pub(crate) hardware_version_major: u32,
    pub(crate) hardware_version_minor: u32,
    pub(crate) firmware_version_major: u32,
    pub(crate) firmware_version_minor: u32,
    pub(crate) ia_address: *const c_void,
    pub(crate) max_eps: i32,
    pub(crate) max_dto_per_ep: i32,
    pub(crate) max_rdma_read_per_ep_in: i32,
    pub(crate) max_rdma_read_per_ep_out: i32,
    pub(crate) max_evds: i32,
    pub(crate) max_evd_qlen: i32,
    pub(crate) max_iov_segments_per_dto: i32,
    pub(crate) max_lmrs: i32,
    pub(crate) max_lmr_block_size: E::Length,
    pub(crate) max_lmr_virtual_address: u64,
    pub(crate) max_pzs: i32,
    pub(crate) max_message_size: E::Length,
    pub(crate) max_rdma_size: E::Length,
    pub(crate) max_rmrs: i32,
    pub(crate) max_rmr_target_address: u64,
    pub(crate) max_srqs: i32,
    pub(crate) max_ep_per_srq: i32,
    pub(crate) max_recv_per_srq: i32,
    pub(crate) max_iov_segments_per_rdma_read: i32,
    pub(crate) max_iov_segments_per_rdma_write: i32,
    pub(crate) max_rdma_read_in: i32,
    pub(crate) max_rdma_read_out: i32,
    pub(crate) max_rdma_read_per_ep_in_guaranteed: u32,
    pub(crate) max_rdma_read_per_ep_out_guaranteed: u32,
    pub(crate) zero_based_supported: E::Added<u32>,
    pub(crate) extension_supported: E::Added<u32>,
    pub(crate) extension_version: E::Added<i32>,
    pub(crate) transport_attributes_count: i32,
    pub(crate) transport_attributes: *const NamedAttribute,
    pub(crate) vendor_attributes_count: i32,
    pub(crate) vendor_attributes: *const NamedAttribute,
}

/// `DAT_PROVIDER_ATTR`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ProviderAttributes<E: Form> {
    pub(crate) provider_name: Name,
    pub(crate) provider_version_major: u32,
    pub(crate) provider_version_minor: u32,
    pub(crate) dapl_version_major: u32,
    pub(crate) dapl_version_minor: u32,
    pub(crate) lmr_mem_types_supported: u32,
    pub(crate) iov_ownership_on_return: u32,
    pub(crate) qos_supported: u32,
    pub(crate) completion_flags_supported: u32,
    pub(crate) is_thread_safe: u32,
    pub(crate) max_private_data_size: i32,
    pub(crate) supports_multipath: u32,
    pub(crate) ep_creator: u32,
    pub(crate) pz_support: u32,
    pub(crate) optimal_buffer_alignment: u32,
    pub(crate) evd_stream_merging_supported: [[u32; 6]; 6],
    pub(crate) srq_supported: u32,
    pub(crate) srq_watermarks_supported: i32,
    pub(crate) srq_ep_pz_difference_supported: u32,
    pub(crate) srq_info_supported: i32,
    pub(crate) ep_recv_info_supported: i32,
    pub(crate) lmr_sync_req: u32,
    pub(crate) dto_async_return_guaranteed: u32,
    pub(crate) rdma_write_for_rdma_read_req: u32,
    pub(crate) rdma_read_lmr_rmr_context_exposure: E::Added<u32>,
    pub(crate) rmr_scope_supported: E::Added<u32>,
    pub(crate) is_signal_safe: E::Added<u32>,
    pub(crate) ha_supported: E::Added<u32>,
    pub(crate) ha_load_balancing: E::Added<u32>,
    pub(crate) provider_attributes_count: i32,
    pub(crate) provider_attributes: *const NamedAttribute,
}

/// `DAT_EP_ATTR`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EpAttributes<E: Form> {
    pub(crate) service_type: u32,
    pub(crate) max_message_size: E::Length,
    pub(crate) max_rdma_size: E::Length,
    pub(crate) qos: u32,
    pub(crate) recv_completion_flags: u32,
    pub(crate) request_completion_flags: u32,
    pub(crate) max_recv_dtos: i32,
    pub(crate) max_request_dtos: i32,
    pub(crate) max_recv_iov: i32,
    pub(crate) max_request_iov: i32,
    pub(crate) max_rdma_read_in: i32,
    pub(crate) max_rdma_read_out: i32,
    pub(crate) srq_soft_hw: i32,
    pub(crate) max_rdma_read_iov: i32,
    pub(crate) max_rdma_write_iov: i32,
    pub(crate) transport_attributes_count: i32,
    pub(crate) transport_attributes: *const NamedAttribute,
    pub(crate) provider_attributes_count: i32,
    pub(crate) provider_attributes: *const NamedAttribute,
}

/// `DAT_EP_PARAM`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EpParam<E: Form> {
    pub(crate) ia: CHandle,
    pub(crate) state: u32,
    /// `DAT_COMM`: domain, type, protocol.
    pub(crate) communication: E::Added<[i32; 3]>,
    pub(crate) local_address: *const c_void,
    pub(crate) local_port: u64,
    pub(crate) remote_address: *const c_void,
    pub(crate) remote_port: u64,
    pub(crate) pz: CHandle,
    pub(crate) recv_evd: CHandle,
    pub(crate) request_evd: CHandle,
    pub(crate) connect_evd: CHandle,
    pub(crate) srq: CHandle,
    pub(crate) attributes: EpAttributes<E>,
}

/// `DAT_LMR_PARAM`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LmrParam<E: Form> {
    pub(crate) ia: CHandle,
    pub(crate) memory_type: u32,
    /// An address or a handle, and the address of a cookie.
    pub(crate) region: [usize; 2],
    pub(crate) length: u64,
    pub(crate) pz: CHandle,
    pub(crate) privileges: u32,
    pub(crate) address_type: E::Added<u32>,
    pub(crate) lmr_context: u32,
    pub(crate) rmr_context: u32,
    pub(crate) registered_size: u64,
    pub(crate) registered_address: u64,
}

/// `DAT_RMR_PARAM`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RmrParam<E: Form> {
    pub(crate) ia: CHandle,
    pub(crate) pz: CHandle,
    pub(crate) segment: E::Triplet,
    pub(crate) privileges: u32,
    pub(crate) rmr_context: u32,
    pub(crate) scope: E::Added<u32>,
    pub(crate) address_type: E::Added<u32>,
}

/// `DAT_SRQ_ATTR`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SrqAttributes {
    pub(crate) max_recv_dtos: i32,
    pub(crate) max_recv_iov: i32,
    pub(crate) low_watermark: i32,
}

/// `DAT_SRQ_PARAM`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SrqParam {
    pub(crate) ia: CHandle,
    pub(crate) state: u32,
    pub(crate) pz: CHandle,
    pub(crate) max_recv_dtos: i32,
    pub(crate) max_recv_iov: i32,
    pub(crate) low_watermark: i32,
    pub(crate) available: i32,
    pub(crate) outstanding: i32,
}

/// `DAT_EVD_PARAM`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EvdParam {
    pub(crate) ia: CHandle,
    pub(crate) qlen: i32,
    pub(crate) state: u32,
    pub(crate) cno: CHandle,
    pub(crate) flags: u32,
}

/// `DAT_CNO_PARAM`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CnoParam<E: Form> {
    pub(crate) ia: CHandle,
    pub(crate) proxy_type: E::Added<u32>,
    pub(crate) agent: Agent,
}

/// `DAT_PZ_PARAM`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PzParam {
    pub(crate) ia: CHandle,
}

/// `DAT_PSP_PARAM`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PspParam {
    pub(crate) ia: CHandle,
    pub(crate) qualifier: u64,
    pub(crate) evd: CHandle,
    pub(crate) flags: u32,
}

/// `DAT_RSP_PARAM`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RspParam {
    pub(crate) ia: CHandle,
    pub(crate) qualifier: u64,
    pub(crate) evd: CHandle,
    pub(crate) ep: CHandle,
}

/// `DAT_CR_PARAM`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CrParam {
    pub(crate) remote_address: *const c_void,
    pub(crate) remote_port: u64,
    pub(crate) private_data_size: i32,
    pub(crate) private_data: *const c_void,
    pub(crate) ep: CHandle,
}

/// Returns the address of a value that C reads, or null.
pub(crate) fn lent<T>(what: Option<&T>) -> *const c_void {
    what.map_or(ptr::null(), |what| ptr::from_ref(what).cast())
}

/// Returns the address of a cookie.
pub(crate) fn cookie_address(cookie: &[u8; LMR_COOKIE_SIZE]) -> usize {
    ptr::from_ref(cookie).expose_provenance()
}
