//! `dat devices`: the backends of this build and the RDMA devices of this host.

use std::fmt::Debug;
use std::iter;

use dat_core::attributes::{IaAddress, IaAttributes, NamedAttribute, ProviderAttributes};
use dat_core::backend::HostBackend;
use dat_core::flags::{MemoryTypes, QualityOfService};
use dat_devices::{
    DeviceAddress, Found, Listed, Network, OpenError, OpenErrorKind, Options, Visitor,
};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::arguments::DevicesArguments;
use crate::failure::Result;
use crate::limits;
use crate::names::constant;
use crate::output::{CODE, FAINT, HEADING, Output};
use crate::remote::device::{BUILD, MOCK};
use crate::remote::transport::{is_anywhere, not_opened, text};
use crate::size::size;

/// A device, or a backend without device names.
#[derive(Serialize)]
struct Device {
    backend: String,
    /// The name of the device for `--device`.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    description: String,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    port: Option<Port>,
    #[serde(serialize_with = "as_map")]
    adapter: Vec<Attribute>,
    #[serde(serialize_with = "as_map")]
    provider: Vec<Attribute>,
}

impl Device {
    /// Returns the name of the device, or else that of its backend.
    fn title(&self) -> &str {
        self.name.as_ref().unwrap_or(&self.backend)
    }

    fn state(&self) -> &'static str {
        match &self.port {
            Some(port) if !port.active => "down",
            _ => "up",
        }
    }

    /// Returns where peers are and how much fits, or why the device cannot be opened.
    fn facts(&self) -> String {
        let place = match &self.port {
            Some(Port {
                closed: Some(why), ..
            }) => return format!("cannot be opened: {why}"),
            Some(port) => port.place(),
            None => "in this process".into(),
        };
        let value = |name| {
            let mut attributes = self.adapter.iter();
            attributes
                .find(|attribute| attribute.name == name)
                .map_or("", |attribute| &attribute.text)
        };
        format!(
            "{place}; {} endpoints, messages of up to {}",
            value("max_eps"),
            value("max_message_size")
        )
    }

    /// Prints the device with all attributes.
    fn print(&self, output: &mut Output) {
        output.line(format_args!(
            "{HEADING}{}{HEADING:#}: {}",
            self.title(),
            self.description
        ));
        if let Some(port) = &self.port {
            output.line(format_args!("  port {}, {}", self.state(), port.place()));
            if let Some(why) = &port.closed {
                output.line(format_args!("  it cannot be opened: {why}"));
                return;
            }
        }
        // Longer values extend beyond their column; they are few.
        let width = self
            .adapter
            .iter()
            .chain(&self.provider)
            .map(|one| one.text.chars().count())
            .filter(|width| *width <= 24)
            .max()
            .unwrap_or(0);
        for (title, attributes) in [
            (
                "adapter attributes: limits shared by all its users",
                &self.adapter,
            ),
            ("provider attributes: behaviour of calls", &self.provider),
        ] {
            output.line(format_args!("  {HEADING}{title}{HEADING:#}"));
            for Attribute {
                name,
                text,
                meaning,
                ..
            } in attributes
            {
                output.line(format_args!(
                    "    {name:<36} {CODE}{text:>width$}{CODE:#}  {FAINT}{meaning}{FAINT:#}"
                ));
            }
        }
    }
}

/// The attributes of a port that are known even if it cannot be opened.
#[derive(Clone, Debug, Serialize)]
struct Port {
    active: bool,
    addresses: Vec<String>,
    /// The reason why the port cannot be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    closed: Option<String>,
}

impl Port {
    fn place(&self) -> String {
        format!("addresses {}", or_none(self.addresses.clone()))
    }
}

#[derive(Serialize)]
struct Report {
    ok: bool,
    devices: Vec<Device>,
}

/// One attribute, with its name in the interface.
struct Attribute {
    name: &'static str,
    /// The value for programs.
    value: Value,
    /// The value for people, with its unit.
    text: String,
    /// The meaning of the attribute, or the objects that it counts.
    meaning: &'static str,
}

fn as_map<S: Serializer>(
    attributes: &[Attribute],
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_map(attributes.iter().map(|one| (one.name, &one.value)))
}

/// Prints all backends, and all ports of RDMA devices: a line for each, or all attributes.
///
/// # Errors
/// None; all commands share this signature.
pub(crate) fn run(arguments: &DevicesArguments, output: &mut Output) -> Result<bool> {
    let kinds = dat_devices::devices();
    let note = note(&kinds);
    let kinds = kinds.into_iter().rev();
    let kinds = kinds.filter(|kind| kind.scheme != MOCK);
    let there = kinds.flat_map(|kind| kind.found.unwrap_or_default());
    let devices: Vec<Device> = iter::once(mock()).chain(there.map(describe)).collect();
    let longest = |text: fn(&Device) -> &str| {
        let lengths = devices.iter().map(|device| text(device).len());
        lengths.max().unwrap_or(0)
    };
    let names = longest(Device::title);
    let backends = longest(|device| &device.backend);
    for device in &devices {
        if arguments.verbose {
            device.print(output);
            continue;
        }
        output.line(format_args!(
            "{HEADING}{:names$}{HEADING:#}  {:backends$}  {:4}  {}",
            device.title(),
            device.backend,
            device.state(),
            device.facts()
        ));
    }
    if let Some(note) = note {
        output.line(format_args!("{FAINT}{note}{FAINT:#}"));
    }
    output.document(&Report { ok: true, devices });
    Ok(true)
}

fn mock() -> Device {
    let mut options = Options::new();
    options.network = Some(Network::new(Network::options()));
    let opened = attributes(&DeviceAddress::new(MOCK, "mock0"), &options);
    let (adapter, provider) = opened.unwrap_or_default();
    Device {
        backend: MOCK.into(),
        name: None,
        description: "an in-process network".into(),
        port: None,
        adapter,
        provider,
    }
}

/// The attributes of an adapter, and those of its provider.
type Attributes = (Vec<Attribute>, Vec<Attribute>);

/// Opens a device, and returns its attributes.
///
/// # Errors
/// Those of [`dat_devices::open`].
fn attributes(
    address: &DeviceAddress,
    options: &Options,
) -> std::result::Result<Attributes, OpenError> {
    struct Reads;
    impl Visitor for Reads {
        type Output = Attributes;

        fn visit<B: HostBackend>(self, backend: B, _driver: B::Driver) -> Attributes {
            let adapter = adapter(&backend.ia_attributes());
            (adapter, provider(&backend.provider_attributes()))
        }
    }
    dat_devices::open(address, options, Reads)
}

/// Describes a device, with its attributes if it can be opened.
fn describe(found: Found) -> Device {
    let scheme = found.address.scheme();
    let (name, address) = match is_anywhere(&found) {
        true => (scheme.to_owned(), DeviceAddress::new(scheme, "127.0.0.1")),
        false => (found.name.clone(), found.address.clone()),
    };
    let opened = attributes(&address, &Options::new());
    let failure = |error| not_opened(&address, &name, error).why;
    let addresses = found
        .addresses
        .iter()
        .filter_map(|own| own.socket_address());
    let port = Port {
        active: found.is_active,
        addresses: addresses.map(text).collect(),
        closed: opened.as_ref().err().map(failure),
    };
    let (adapter, provider) = opened.unwrap_or_default();
    Device {
        backend: scheme.to_owned(),
        name: Some(name),
        description: found.description,
        port: Some(port),
        adapter,
        provider,
    }
}

/// Returns the note on a kind of device of which none is listed.
fn note(kinds: &[Listed]) -> Option<String> {
    let has_none = |kind: &&Listed| !kind.found.as_ref().is_ok_and(|all| !all.is_empty());
    match &kinds.iter().find(has_none)?.found {
        Err(error) if matches!(error.kind(), OpenErrorKind::NotBuiltIn { .. }) => {
            Some(format!("this build does not support RDMA devices; {BUILD}"))
        }
        _ => {
            let why = limits::descriptors();
            let why = why.map_or("this host has no RDMA device".into(), |reached| reached.why);
            Some(format!("RDMA devices: {why}"))
        }
    }
}

/// A value for programs, and the same value for people.
type Shown = (Value, String);

/// Shows a name, a number or a word.
fn plain<T: ToString + Into<Value>>(value: T) -> Shown {
    let text = value.to_string();
    (value.into(), text)
}

fn yes(value: bool) -> Shown {
    (value.into(), if value { "yes" } else { "no" }.into())
}

fn bytes(value: u64) -> Shown {
    let text = match value {
        u64::MAX => "no limit".into(),
        value => size(value),
    };
    (value.into(), text)
}

fn highest(address: u64) -> Shown {
    let text = match address {
        u64::MAX => "no limit".into(),
        address => format!("{address:#x}"),
    };
    (address.into(), text)
}

fn address(address: IaAddress) -> Shown {
    plain(address.to_string())
}

fn word(value: impl Debug) -> Shown {
    plain(constant(value))
}

fn named(attributes: &[NamedAttribute]) -> Shown {
    let text: Vec<String> = attributes
        .iter()
        .map(|attribute| format!("{}={}", attribute.name, attribute.value))
        .collect();
    let map = attributes
        .iter()
        .map(|attribute| (attribute.name.to_owned(), Value::from(attribute.value)));
    (Value::Object(map.collect()), or_none(text))
}

/// Shows the names of the set bits, as `bitflags` has them.
fn bits<F: bitflags::Flags>(flags: F) -> Shown {
    names(flags.iter_names().map(|(name, _)| name))
}

/// Shows the qualities of service; best effort has no bit.
fn qualities(flags: QualityOfService) -> Shown {
    names(
        ["BEST_EFFORT"]
            .into_iter()
            .chain(flags.iter_names().map(|(name, _)| name)),
    )
}

/// Shows the memory types; virtual memory has no bit.
fn memory_types(flags: MemoryTypes) -> Shown {
    names(
        ["VIRTUAL"]
            .into_iter()
            .chain(flags.iter_names().map(|(name, _)| name)),
    )
}

fn names(names: impl Iterator<Item = &'static str>) -> Shown {
    let names: Vec<String> = names.map(str::to_owned).collect();
    (names.clone().into(), or_none(names))
}

fn or_none(words: Vec<String>) -> String {
    if words.is_empty() {
        "none".into()
    } else {
        words.join(" ")
    }
}

/// Shows a row per stream, with a 1 for each stream that shares dispatchers.
fn merging(matrix: [[bool; 6]; 6]) -> Shown {
    let rows: Vec<String> = matrix
        .iter()
        .map(|row| {
            let digits = row.map(|merges| if merges { '1' } else { '0' });
            digits.iter().collect()
        })
        .collect();
    let text = if matrix == ProviderAttributes::MERGE_ALL {
        "all".into()
    } else {
        rows.join(" ")
    };
    (rows.into(), text)
}

/// Lists fields under their own names, each with its display function and its meaning.
macro_rules! fields {
    ($attributes:expr; $($field:ident $show:ident $meaning:literal,)*) => {{
        let attributes = $attributes;
        vec![$({
            let (value, text) = $show(attributes.$field);
            Attribute { name: stringify!($field), value, text, meaning: $meaning }
        },)*]
    }};
}

fn adapter(attributes: &IaAttributes) -> Vec<Attribute> {
    fields! { attributes;
        adapter_name plain "its name",
        vendor_name plain "its maker",
        hardware_version_major plain "hardware version, major number",
        hardware_version_minor plain "second number",
        firmware_version_major plain "firmware version, major number",
        firmware_version_minor plain "second number",
        ia_address address "address of the adapter for peers",
        max_eps plain "endpoints",
        max_dto_per_ep plain "outstanding transfers per endpoint and direction",
        max_rdma_read_per_ep_in plain "outstanding incoming RDMA Reads per endpoint",
        max_rdma_read_per_ep_out plain "outstanding outgoing RDMA Reads per endpoint",
        max_evds plain "event dispatchers",
        max_evd_qlen plain "events per dispatcher",
        max_iov_segments_per_dto plain "segments per transfer",
        max_lmrs plain "local memory regions",
        max_lmr_block_size bytes "length of a local memory region",
        max_lmr_virtual_address highest "highest address of a local memory region",
        max_pzs plain "protection zones",
        max_message_size bytes "length of a message",
        max_rdma_size bytes "length of an RDMA Read or Write",
        max_rmrs plain "remote memory regions",
        max_rmr_target_address highest "highest address of a remote memory region",
        max_srqs plain "shared receive queues",
        max_ep_per_srq plain "endpoints per shared receive queue",
        max_recv_per_srq plain "buffers per shared receive queue",
        max_iov_segments_per_rdma_read plain "segments per RDMA Read",
        max_iov_segments_per_rdma_write plain "segments per RDMA Write",
        max_rdma_read_in plain "outstanding incoming RDMA Reads of all endpoints",
        max_rdma_read_out plain "outstanding outgoing RDMA Reads of all endpoints",
        max_rdma_read_per_ep_in_guaranteed yes "each endpoint is guaranteed its incoming RDMA Reads",
        max_rdma_read_per_ep_out_guaranteed yes "each endpoint is guaranteed its outgoing RDMA Reads",
        transport_attributes named "transport-specific attributes",
        vendor_attributes named "vendor-specific attributes",
    }
}

fn provider(attributes: &ProviderAttributes) -> Vec<Attribute> {
    fields! { attributes;
        provider_name plain "its name",
        provider_version_major plain "provider version, major number",
        provider_version_minor plain "second number",
        dapl_version_major plain "interface version, major number",
        dapl_version_minor plain "second number",
        lmr_mem_types_supported memory_types "memory types that can be registered",
        iov_ownership_on_return word "owner of a segment list after the post returns",
        qos_supported qualities "supported qualities of service",
        completion_flags_supported bits "supported completion flags",
        is_thread_safe yes "calls are safe from several threads",
        max_private_data_size private_data "bytes of private data in a connection request or reply",
        supports_multipath yes "multipath connections are supported",
        ep_creator word "the creator of endpoints for service points",
        pz_support word "use of protection zones by endpoints",
        optimal_buffer_alignment alignment "optimal buffer alignment",
        evd_stream_merging_supported merging "event streams that can share a dispatcher",
        srq_supported yes "shared receive queues are supported",
        srq_watermarks_supported plain "supported watermarks of a shared receive queue",
        srq_ep_pz_difference_supported yes "an endpoint and its shared receive queue can be in different zones",
        srq_info_supported counts "queries return the buffer counts of a shared receive queue",
        ep_recv_info_supported counts "queries return the buffer counts of an endpoint",
        lmr_sync_req yes "memory must be synchronised before and after RDMA",
        dto_async_return_guaranteed yes "remote errors are reported by events, never by the call",
        rdma_write_for_rdma_read_req yes "the local buffer of an RDMA Read needs the remote write privilege",
        provider_specific_attributes named "provider-specific attributes",
    }
}

fn private_data(length: i32) -> Shown {
    (length.into(), size(length.max(0) as u64))
}

fn alignment(length: u32) -> Shown {
    (length.into(), size(length.into()))
}

/// Shows whether any count is supported; 0 means none.
fn counts(supported: i32) -> Shown {
    yes(supported != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dat_core::flags::CompletionFlags;
    use serde_json::json;

    #[test]
    fn values_are_printed_readably() {
        let flags = CompletionFlags::SUPPRESS | CompletionFlags::UNSIGNALLED;
        let expected = json!(["SUPPRESS", "UNSIGNALLED"]);
        assert_eq!(bits(flags), (expected, "SUPPRESS UNSIGNALLED".into()));
        assert_eq!(bits(CompletionFlags::empty()), (json!([]), "none".into()));
        assert_eq!(qualities(QualityOfService::BEST_EFFORT).1, "BEST_EFFORT");
        assert_eq!(memory_types(MemoryTypes::LMR).1, "VIRTUAL LMR");
        let attributes = [NamedAttribute {
            name: "colour",
            value: "grey",
        }];
        assert_eq!(
            named(&attributes),
            (json!({"colour": "grey"}), "colour=grey".into())
        );
        assert_eq!(named(&[]), (json!({}), "none".into()));
        assert_eq!(bytes(1 << 31), (json!(1_u64 << 31), "2 GiB".into()));
        assert_eq!(bytes(u64::MAX), (json!(u64::MAX), "no limit".into()));
        assert_eq!(highest(0xFFFF), (json!(0xFFFF), "0xffff".into()));
        let mut matrix = ProviderAttributes::MERGE_ALL;
        assert_eq!(merging(matrix).1, "all");
        matrix[0][5] = false;
        let rows = "111110 111111 111111 111111 111111 111111";
        let as_words: Vec<&str> = rows.split(' ').collect();
        assert_eq!(merging(matrix), (json!(as_words), rows.into()));
    }
}
