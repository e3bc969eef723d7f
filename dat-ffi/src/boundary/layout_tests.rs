//! Layouts, values and the order of the tables, compared with those that a C compiler makes of the
//! headers.
//!
//! The headers are this project's; for DAT 2.0 also the packaged ones.

use std::mem::{offset_of, size_of};
use std::process::Command;
use std::{env, fs};

use super::layout::*;
use crate::calls::Form;
use crate::v1::calls::SLOTS;
use crate::v1::types::V1;
use crate::v2::V2;
use crate::v2::function_table;

/// Lines of Rust's numbers, and the C statements that print the same lines.
#[derive(Default)]
pub(super) struct Both {
    rust: String,
    c: String,
}

impl Both {
    /// Adds a number and the C expression for it.
    pub(super) fn same(&mut self, name: &str, rust: u64, c: &str) {
        self.rust += &format!("{name} {rust}\n");
        self.c += &format!("    printf(\"{name} %llu\\n\", (unsigned long long)({c}));\n");
    }

    fn size(&mut self, name: &str, rust: usize, c: &str) {
        self.same(name, rust as u64, c);
    }

    /// Compiles the C statements with this project's headers and runs them.
    pub(super) fn check(&self, includes: &[&str]) {
        self.check_with(
            &[concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include")],
            includes,
        );
    }

    /// Compiles the C statements with the headers of the system and runs them.
    fn check_packaged(&self, includes: &[&str]) {
        self.check_with(&[], includes);
    }

    fn check_with(&self, options: &[&str], includes: &[&str]) {
        let folder = tempfile::TempDir::new().expect("a folder");
        let source = folder.path().join("layout.c");
        let program = folder.path().join("layout");
        let includes: String = includes
            .iter()
            .map(|name| format!("#include <{name}>\n"))
            .collect();
        let text = format!(
            "{includes}#include <stddef.h>\n#include <stdio.h>\nint main(void)\n{{\n{}    return 0;\n}}\n",
            self.c
        );
        fs::write(&source, text).expect("the source");
        let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
        let compiled = Command::new(compiler)
            .args(options)
            .arg("-o")
            .args([&program, &source])
            .status();
        assert!(compiled.expect("a C compiler").success());
        let printed = Command::new(&program).output().expect("the program runs");
        let printed = String::from_utf8(printed.stdout).expect("text");
        for (c, rust) in printed.lines().zip(self.rust.lines()) {
            assert_eq!(rust, c);
        }
        assert_eq!(printed, self.rust);
    }
}

macro_rules! layouts {
    ($both:ident: $($rust:ty = $c:ident { $($field:ident = $c_field:ident),* })*) => {$(
        let c = stringify!($c);
        $both.size(c, size_of::<$rust>(), &format!("sizeof({c})"));
        $(
            let field = stringify!($c_field);
            $both.size(&format!("{c}.{field}"), offset_of!($rust, $field), &format!("offsetof({c}, {field})"));
        )*
    )*};
}

/// Adds the structures that an edition has under the same name as the other.
fn common<E: Form>() -> Both {
    let mut both = Both::default();
    layouts! { both:
    ProviderInfo = DAT_PROVIDER_INFO { ia_name = ia_name, major = dapl_version_major, minor = dapl_version_minor, is_thread_safe = is_thread_safe }
    NamedAttribute = DAT_NAMED_ATTR { name = name, value = value }
    Event<E> = DAT_EVENT { number = event_number, evd = evd_handle, data = event_data }
    TransferData<E> = DAT_DTO_COMPLETION_EVENT_DATA { ep = ep_handle, cookie = user_cookie, status = status, transferred_length = transfered_length }
    BindData = DAT_RMR_BIND_COMPLETION_EVENT_DATA { rmr = rmr_handle, cookie = user_cookie, status = status }
    ArrivalData<E> = DAT_CR_ARRIVAL_EVENT_DATA { service_point = sp_handle, local_address = local_ia_address_ptr, qualifier = conn_qual, cr = cr_handle }
    ConnectionData = DAT_CONNECTION_EVENT_DATA { ep = ep_handle, private_data_size = private_data_size, private_data = private_data }
    AsyncData = DAT_ASYNCH_ERROR_EVENT_DATA { handle = dat_handle, reason = reason }
    EpAttributes<E> = DAT_EP_ATTR { service_type = service_type, max_message_size = max_message_size, max_rdma_size = max_rdma_size, qos = qos, recv_completion_flags = recv_completion_flags, request_completion_flags = request_completion_flags, max_recv_dtos = max_recv_dtos, max_request_dtos = max_request_dtos, max_recv_iov = max_recv_iov, max_request_iov = max_request_iov, max_rdma_read_in = max_rdma_read_in, max_rdma_read_out = max_rdma_read_out, srq_soft_hw = srq_soft_hw, max_rdma_read_iov = max_rdma_read_iov, max_rdma_write_iov = max_rdma_write_iov, transport_attributes_count = ep_transport_specific_count, transport_attributes = ep_transport_specific, provider_attributes_count = ep_provider_specific_count, provider_attributes = ep_provider_specific }
    EpParam<E> = DAT_EP_PARAM { ia = ia_handle, state = ep_state, local_address = local_ia_address_ptr, local_port = local_port_qual, remote_address = remote_ia_address_ptr, remote_port = remote_port_qual, pz = pz_handle, recv_evd = recv_evd_handle, request_evd = request_evd_handle, connect_evd = connect_evd_handle, srq = srq_handle, attributes = ep_attr }
    LmrParam<E> = DAT_LMR_PARAM { ia = ia_handle, memory_type = mem_type, region = region_desc, length = length, pz = pz_handle, privileges = mem_priv, lmr_context = lmr_context, rmr_context = rmr_context, registered_size = registered_size, registered_address = registered_address }
    RmrParam<E> = DAT_RMR_PARAM { ia = ia_handle, pz = pz_handle, segment = lmr_triplet, privileges = mem_priv, rmr_context = rmr_context }
    SrqAttributes = DAT_SRQ_ATTR { max_recv_dtos = max_recv_dtos, max_recv_iov = max_recv_iov, low_watermark = low_watermark }
    SrqParam = DAT_SRQ_PARAM { ia = ia_handle, state = srq_state, pz = pz_handle, max_recv_dtos = max_recv_dtos, max_recv_iov = max_recv_iov, low_watermark = low_watermark, available = available_dto_count, outstanding = outstanding_dto_count }
    EvdParam = DAT_EVD_PARAM { ia = ia_handle, qlen = evd_qlen, state = evd_state, cno = cno_handle, flags = evd_flags }
    CnoParam<E> = DAT_CNO_PARAM { ia = ia_handle }
    PzParam = DAT_PZ_PARAM { ia = ia_handle }
    PspParam = DAT_PSP_PARAM { ia = ia_handle, qualifier = conn_qual, evd = evd_handle, flags = psp_flags }
    RspParam = DAT_RSP_PARAM { ia = ia_handle, qualifier = conn_qual, evd = evd_handle, ep = ep_handle }
    CrParam = DAT_CR_PARAM { remote_address = remote_ia_address_ptr, remote_port = remote_port_qual, private_data_size = private_data_size, private_data = private_data, ep = local_ep_handle }
    IaAttributes<E> = DAT_IA_ATTR { adapter_name = adapter_name, vendor_name = vendor_name, hardware_version_major = hardware_version_major, hardware_version_minor = hardware_version_minor, firmware_version_major = firmware_version_major, firmware_version_minor = firmware_version_minor, ia_address = ia_address_ptr, max_eps = max_eps, max_dto_per_ep = max_dto_per_ep, max_rdma_read_per_ep_in = max_rdma_read_per_ep_in, max_rdma_read_per_ep_out = max_rdma_read_per_ep_out, max_evds = max_evds, max_evd_qlen = max_evd_qlen, max_iov_segments_per_dto = max_iov_segments_per_dto, max_lmrs = max_lmrs, max_lmr_block_size = max_lmr_block_size, max_lmr_virtual_address = max_lmr_virtual_address, max_pzs = max_pzs, max_message_size = max_message_size, max_rdma_size = max_rdma_size, max_rmrs = max_rmrs, max_rmr_target_address = max_rmr_target_address, max_srqs = max_srqs, max_ep_per_srq = max_ep_per_srq, max_recv_per_srq = max_recv_per_srq, max_iov_segments_per_rdma_read = max_iov_segments_per_rdma_read, max_iov_segments_per_rdma_write = max_iov_segments_per_rdma_write, max_rdma_read_in = max_rdma_read_in, max_rdma_read_out = max_rdma_read_out, max_rdma_read_per_ep_in_guaranteed = max_rdma_read_per_ep_in_guaranteed, max_rdma_read_per_ep_out_guaranteed = max_rdma_read_per_ep_out_guaranteed, transport_attributes_count = num_transport_attr, transport_attributes = transport_attr, vendor_attributes_count = num_vendor_attr, vendor_attributes = vendor_attr }
    ProviderAttributes<E> = DAT_PROVIDER_ATTR { provider_name = provider_name, provider_version_major = provider_version_major, provider_version_minor = provider_version_minor, dapl_version_major = dapl_version_major, dapl_version_minor = dapl_version_minor, lmr_mem_types_supported = lmr_mem_types_supported, iov_ownership_on_return = iov_ownership_on_return, qos_supported = dat_qos_supported, completion_flags_supported = completion_flags_supported, is_thread_safe = is_thread_safe, max_private_data_size = max_private_data_size, supports_multipath = supports_multipath, ep_creator = ep_creator, pz_support = pz_support, optimal_buffer_alignment = optimal_buffer_alignment, evd_stream_merging_supported = evd_stream_merging_supported, srq_supported = srq_supported, srq_watermarks_supported = srq_watermarks_supported, srq_ep_pz_difference_supported = srq_ep_pz_difference_supported, srq_info_supported = srq_info_supported, ep_recv_info_supported = ep_recv_info_supported, lmr_sync_req = lmr_sync_req, dto_async_return_guaranteed = dto_async_return_guaranteed, rdma_write_for_rdma_read_req = rdma_write_for_rdma_read_req, provider_attributes_count = num_provider_specific_attr, provider_attributes = provider_specific_attr }
    }
    both.size(
        "event data",
        size_of::<EventData<E>>(),
        "sizeof(DAT_EVENT_DATA)",
    );
    both.size(
        "agent",
        size_of::<super::Agent>(),
        "sizeof(DAT_OS_WAIT_PROXY_AGENT)",
    );
    both.size(
        "description",
        size_of::<super::RegionDescription>(),
        "sizeof(DAT_REGION_DESCRIPTION)",
    );
    both
}

/// Adds the table, with its slots by their names in C.
fn table<const N: usize>(both: &mut Both, slots: impl Iterator<Item = (usize, String)>) {
    both.size(
        "DAT_PROVIDER",
        size_of::<FunctionTable<N>>(),
        "sizeof(DAT_PROVIDER)",
    );
    let first = offset_of!(FunctionTable<N>, functions);
    for (slot, name) in slots {
        let c = format!("offsetof(DAT_PROVIDER, {name}_func)");
        both.size(&name, first + slot * size_of::<*const ()>(), &c);
    }
}

#[test]
fn layouts_are_those_of_our_headers_of_1_2() {
    let mut both = common::<V1>();
    layouts! { both:
    LongTriplet = DAT_LMR_TRIPLET { context = lmr_context, nothing = pad, address = virtual_address, length = segment_length }
    LongTriplet = DAT_RMR_TRIPLET { context = rmr_context, nothing = pad, address = target_address, length = segment_length }
    CnoParam<V1> = DAT_CNO_PARAM { agent = agent }
    }
    let own = [(0, "ia_open"), (2, "ia_close")];
    let calls = own.iter().chain(SLOTS).map(|(slot, name)| {
        let name = name.strip_prefix("dat_").unwrap_or(name);
        (*slot, name.to_owned())
    });
    assert_eq!(own.len() + SLOTS.len(), FUNCTIONS_1_2);
    table::<FUNCTIONS_1_2>(&mut both, calls);
    both.check(&["dat/udat.h", "dat/dat_registry.h"]);
}

#[test]
fn layouts_are_those_of_our_headers_of_2_0_and_of_the_packaged_ones() {
    let mut both = common::<V2>();
    layouts! { both:
    ShortTriplet = DAT_LMR_TRIPLET { address = virtual_address, length = segment_length, context = lmr_context }
    ShortTriplet = DAT_RMR_TRIPLET { address = virtual_address, length = segment_length, context = rmr_context }
    Event<V2> = DAT_EVENT { extension = event_extension_data }
    TransferData<V2> = DAT_DTO_COMPLETION_EVENT_DATA { operation = operation, rmr_context = rmr_context }
    ArrivalData<V2> = DAT_CR_ARRIVAL_EVENT_DATA { truncated = truncate_flag }
    EpParam<V2> = DAT_EP_PARAM { communication = comm }
    LmrParam<V2> = DAT_LMR_PARAM { address_type = va_type }
    RmrParam<V2> = DAT_RMR_PARAM { scope = rmr_scope, address_type = va_type }
    CnoParam<V2> = DAT_CNO_PARAM { proxy_type = proxy_type, agent = proxy }
    IaAttributes<V2> = DAT_IA_ATTR { zero_based_supported = zb_supported, extension_supported = extension_supported, extension_version = extension_version }
    ProviderAttributes<V2> = DAT_PROVIDER_ATTR { rdma_read_lmr_rmr_context_exposure = rdma_read_lmr_rmr_context_exposure, rmr_scope_supported = rmr_scope_supported, is_signal_safe = is_signal_safe, ha_supported = ha_supported, ha_load_balancing = ha_loadbalancing }
    }
    let mut slots = function_table::SLOTS.to_vec();
    slots.sort_unstable();
    assert!(slots.iter().map(|(slot, _)| *slot).eq(0..FUNCTIONS));
    let names = slots
        .iter()
        .map(|(slot, name)| (*slot, name.replacen("dat_", "", 1)));
    table::<FUNCTIONS>(&mut both, names);
    let includes = ["dat2/udat.h", "dat2/dat_registry.h"];
    both.check(&includes);
    both.check_packaged(&includes);
}
