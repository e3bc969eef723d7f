//! `dat devices`: the backends of this build and what their adapters and providers can do.

use std::fmt::Debug;

use backend_mock::{Fabric, FabricOptions, NodeOptions};
use clap::ValueEnum;
use dat_core::attributes::{IaAttributes, NamedAttribute, ProviderAttributes};
use dat_core::backend::Backend;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::arguments::BackendName;
use crate::failure::Result;
use crate::names::constant;
use crate::output::{CODE, HEADING, Output};

#[derive(Serialize)]
struct Device {
    backend: String,
    description: String,
    adapter: Map<String, Value>,
    provider: Map<String, Value>,
}

#[derive(Serialize)]
struct Report {
    ok: bool,
    devices: Vec<Device>,
}

/// Shows all backends.
///
/// # Errors
/// None; commands share a signature.
pub(crate) fn run(_: BackendName, output: &mut Output) -> Result<bool> {
    let mut devices = Vec::new();
    for backend in BackendName::value_variants() {
        let device = match backend {
            BackendName::Mock => mock(),
        };
        output.line(format_args!(
            "{HEADING}{}{HEADING:#}: {}",
            device.backend, device.description
        ));
        for (title, attributes) in [("adapter", &device.adapter), ("provider", &device.provider)] {
            output.line(format_args!("  {HEADING}{title}{HEADING:#}"));
            for (name, value) in attributes {
                let value = plain(value);
                output.line(format_args!("    {name:<40}{CODE}{value}{CODE:#}"));
            }
        }
        devices.push(device);
    }
    output.document(&Report { ok: true, devices });
    Ok(true)
}

fn mock() -> Device {
    let fabric = Fabric::new(FabricOptions::default());
    let backend = fabric.node(NodeOptions::new("mock0", 1));
    Device {
        backend: "mock".into(),
        description: "a network inside this process".into(),
        adapter: adapter(&backend.ia_attributes()),
        provider: provider(&backend.provider_attributes()),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) if values.is_empty() => "none".into(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(" "),
        Value::Object(values) if values.is_empty() => "none".into(),
        Value::Object(values) => values
            .iter()
            .map(|(name, value)| format!("{name}={}", plain(value)))
            .collect::<Vec<_>>()
            .join(" "),
        other => other.to_string(),
    }
}

fn named(attributes: &[NamedAttribute]) -> Value {
    attributes
        .iter()
        .map(|attribute| (attribute.name.to_owned(), Value::from(attribute.value)))
        .collect::<Map<_, _>>()
        .into()
}

fn word(value: impl Debug) -> Value {
    constant(value).into()
}

/// The names of the set bits, as `bitflags` has them.
fn bits<F: bitflags::Flags>(flags: F) -> Value {
    flags.iter_names().map(|(name, _)| name).collect()
}

/// A map of fields under their own names; `as` says how to turn a field that is no plain value.
macro_rules! fields {
    ($attributes:expr; $($field:ident $(as $with:expr)?,)*) => {{
        let attributes = $attributes;
        let mut map = Map::new();
        $(map.insert(stringify!($field).into(), fields!(@value attributes.$field $(, $with)?));)*
        map
    }};
    (@value $value:expr) => { json!($value) };
    (@value $value:expr, $with:expr) => { $with($value) };
}

fn adapter(attributes: &IaAttributes) -> Map<String, Value> {
    fields! { attributes;
        adapter_name,
        vendor_name,
        hardware_version_major,
        hardware_version_minor,
        firmware_version_major,
        firmware_version_minor,
        ia_address as |address: dat_core::attributes::IaAddress| Value::from(address.to_string()),
        max_eps,
        max_dto_per_ep,
        max_rdma_read_per_ep_in,
        max_rdma_read_per_ep_out,
        max_evds,
        max_evd_qlen,
        max_iov_segments_per_dto,
        max_lmrs,
        max_lmr_block_size,
        max_lmr_virtual_address,
        max_pzs,
        max_message_size,
        max_rdma_size,
        max_rmrs,
        max_rmr_target_address,
        max_srqs,
        max_ep_per_srq,
        max_recv_per_srq,
        max_iov_segments_per_rdma_read,
        max_iov_segments_per_rdma_write,
        max_rdma_read_in,
        max_rdma_read_out,
        max_rdma_read_per_ep_in_guaranteed,
        max_rdma_read_per_ep_out_guaranteed,
        transport_attributes as named,
        vendor_attributes as named,
    }
}

fn provider(attributes: &ProviderAttributes) -> Map<String, Value> {
    fields! { attributes;
        provider_name,
        provider_version_major,
        provider_version_minor,
        dapl_version_major,
        dapl_version_minor,
        lmr_mem_types_supported as bits,
        iov_ownership_on_return as word,
        qos_supported as bits,
        completion_flags_supported as bits,
        is_thread_safe,
        max_private_data_size,
        supports_multipath,
        ep_creator as word,
        pz_support as word,
        optimal_buffer_alignment,
        evd_stream_merging_supported as merging,
        srq_supported,
        srq_watermarks_supported,
        srq_ep_pz_difference_supported,
        srq_info_supported,
        ep_recv_info_supported,
        lmr_sync_req,
        dto_async_return_guaranteed,
        rdma_write_for_rdma_read_req,
        provider_specific_attributes as named,
    }
}

/// One row for each stream: 1 where it may share a dispatcher with software, CR, DTO, connection, bind, async.
fn merging(matrix: [[bool; 6]; 6]) -> Value {
    matrix
        .iter()
        .map(|row| {
            row.map(|merges| if merges { '1' } else { '0' })
                .iter()
                .collect::<String>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dat_core::flags::CompletionFlags;

    #[test]
    fn values_read_well() {
        let flags = bits(CompletionFlags::SUPPRESS | CompletionFlags::UNSIGNALLED);
        assert_eq!(plain(&flags), "SUPPRESS UNSIGNALLED");
        assert_eq!(plain(&bits(CompletionFlags::empty())), "none");
        let attributes = [NamedAttribute {
            name: "colour",
            value: "grey",
        }];
        assert_eq!(plain(&named(&attributes)), "colour=grey");
        assert_eq!(plain(&named(&[])), "none");
        assert_eq!(plain(&merging([[true; 6]; 6])), ["111111"; 6].join(" "));
    }
}
