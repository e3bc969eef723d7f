//! Devices by their names in `dat.conf`.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;

use std::sync::{Mutex, PoisonError};

use backend_mock::{Fabric, FabricOptions, FabricThread, NodeOptions};
use backend_roce::{RoceAddress, RoceBackend, RoceOptions};
use dat_core::attributes::IaAddress;
use dat_core::{Error, ErrorKind, Result, Subtype};

use crate::adapter::{Device, Opened, Opening};
use crate::boundary::{In, PerProcess, ProviderInfo, StaticText, Text, start_thread};
use crate::diagnostic::report;

/// A device, as a line of `dat.conf` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// A host of the fabric in this process.
    Mock(Host),
    /// RoCEv2 in software, at an address or interface of this host; empty for all addresses.
    Roce(String),
    /// An RDMA device: its name, its network interface's name or an address, with an optional port.
    Verbs(String),
}

/// A host of the mock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    number: u8,
    /// True if the host has the extended operations.
    is_extended: bool,
    /// True if processor and device see the same memory without `dat_lmr_sync_rdma_*`.
    is_coherent: bool,
}

impl Host {
    const fn new(number: u8) -> Self {
        Self {
            number,
            is_extended: false,
            is_coherent: true,
        }
    }

    /// Parses the words after the number; `None` if one is unknown.
    fn with<'w>(self, mut words: impl Iterator<Item = &'w str>) -> Option<Self> {
        words.try_fold(self, |host, word| match word {
            "extended" => Some(Self {
                is_extended: true,
                ..host
            }),
            "non-coherent" => Some(Self {
                is_coherent: false,
                ..host
            }),
            _ => None,
        })
    }
}

impl Named {
    /// Parses the instance data of a line, or its name if the data is empty.
    ///
    /// Examples: `mock`, `mock 7`, `mock 7 extended`, `mock 7 non-coherent`, `roce`, `roce eth0`,
    /// `roce 10.9.0.1?udp=5000`, `rxe0`, `mlx5_0 2`, `eth2 0`, `10.9.0.1`.
    pub(crate) fn parse(instance_data: &str, ia_name: &str) -> Self {
        let mut words = instance_data.split_whitespace();
        let device = words.next().unwrap_or(ia_name);
        let number = words.next();
        if let "roce" | "roce0" = device
            && words.next().is_none()
        {
            return Self::Roce(number.unwrap_or_default().to_owned());
        }
        if let ("mock", Ok(host @ 1..=254)) = (device, number.unwrap_or("1").parse())
            && let Some(host) = Host::new(host).with(words)
        {
            return Self::Mock(host);
        }
        Self::Verbs(match number {
            // Port 0 stands for any port.
            None | Some("0") => device.to_owned(),
            Some(port) => format!("{device}:{port}"),
        })
    }
}

/// Returns the text of [`explain`] for C.
pub(crate) fn explanation(ours: u32, info: In<ProviderInfo>, instance_data: Text) -> StaticText {
    let info = info.get();
    let words = instance_data.get().unwrap_or_default();
    let text = info.and_then(|info| explain(ours, &info, &words));
    StaticText::kept(text.and_then(|text| CString::new(text).ok()))
}

/// Explains why a line of `dat.conf` with this library opens no adapter.
///
/// `None` if it may open one.
pub(crate) fn explain(ours: u32, info: &ProviderInfo, instance_data: &CStr) -> Option<String> {
    if info.major != ours {
        let (library, other) = match ours {
            1 => ("this library", "use libdat_provider.so.2 for version 2"),
            _ => ("this provider", "use libdat.so.1 for version 1"),
        };
        let requested = info.major;
        return Some(format!(
            "the line requests interface version {requested}, but {library} implements {ours}; {other}"
        ));
    }
    let name = info.name()?;
    match Named::parse(&instance_data.to_string_lossy(), &name.to_string_lossy()) {
        Named::Mock(_) => None,
        Named::Roce(address) => roce_address(&address).err().map(|why| why.to_string()),
        Named::Verbs(name) => unknown(&name),
    }
}

/// Returns the address of an adapter; that of none stands for all addresses.
fn roce_address(text: &str) -> io::Result<RoceAddress> {
    if text.is_empty() {
        return Ok(backend_roce::wildcard().into());
    }
    backend_roce::parse_address(text)
}

/// Explains why no RDMA device has a name; `None` if one has.
fn unknown(name: &str) -> Option<String> {
    if name == "mock" || name.starts_with("mock:") {
        return Some("a mock device needs a host number from 1 to 254, optionally followed by `extended` and \
        `non-coherent`".into());
    }
    if cfg!(not(feature = "verbs")) {
        return Some(format!(
            "`{name}` is not a mock device, and this build of the library does not support RDMA devices"
        ));
    }
    let known: Vec<String> = found()
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(name, device)| matches!(device, Named::Verbs(_)).then_some(name))
        .collect();
    if is_known(name, &known) {
        return None;
    }
    let there = match known.is_empty() {
        true => "the host has none".to_owned(),
        false => format!("the host has {}", known.join(", ")),
    };
    Some(format!(
        "`{name}` is not an RDMA device of this host, nor the network interface or address of one; {there}"
    ))
}

/// Returns true if a name is that of a port, or leads to one.
fn is_known(name: &str, ports: &[String]) -> bool {
    // A device with one port is listed without the port's number.
    let (device, port) = name.rsplit_once(':').unwrap_or((name, "1"));
    let is_meant = |known: &String| {
        let (other, number) = known.rsplit_once(':').unwrap_or((known, "1"));
        (device, port) == (other, number)
    };
    ports.iter().any(is_meant) || leads_to_one(name, device)
}

/// Returns true for an interface or an address, which determines the port by itself.
#[cfg(feature = "verbs")]
fn leads_to_one(name: &str, device: &str) -> bool {
    let leads = |name: &str| {
        let port = backend_verbs::device_of(name);
        // `device_of` returns names of devices unchanged, with any port.
        port.is_some_and(|port| port != name)
    };
    leads(name) || leads(device)
}

#[cfg(not(feature = "verbs"))]
const fn leads_to_one(_name: &str, _device: &str) -> bool {
    false
}

/// Returns true if this process can open no file (`RLIMIT_NOFILE`).
///
/// This explains why a library was not loaded, because the loader opens one file at a time.
pub(crate) fn may_open_nothing() -> bool {
    File::open("/dev/null").is_err_and(|error| is_for_descriptors(&error))
}

/// Returns true if a file cannot be opened for lack of descriptors.
pub(crate) fn is_for_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Lists the devices of this host by names that open them: RDMA devices, RoCEv2 in software, then
/// the mock.
///
/// # Errors
/// INSUFFICIENT_RESOURCES (DEVICE): there are no descriptors to list the devices with.
#[cfg_attr(
    not(feature = "verbs"),
    expect(clippy::unnecessary_wraps, reason = "it fails only with RDMA devices")
)]
pub(crate) fn found() -> Result<Vec<(String, Named)>> {
    let first = Named::Mock(Host::new(1));
    let software = [
        ("roce0".to_owned(), Named::Roce(String::new())),
        ("mock0".to_owned(), first),
    ];
    #[cfg(feature = "verbs")]
    let rdma = {
        let unknown = |_| Error::insufficient_resources(Subtype::ResourceDevice);
        let ports = backend_verbs::find_devices().map_err(unknown)?.into_iter();
        ports.map(|port| (port.name.clone(), Named::Verbs(port.name)))
    };
    #[cfg(not(feature = "verbs"))]
    let rdma = std::iter::empty();
    Ok(rdma.chain(software).collect())
}

/// Returns the lines of `dat.conf` for this host: the name and the instance data of each device.
///
/// Returns the reason too if RDMA devices are not among them.
pub fn devices() -> (Vec<(String, String)>, Option<String>) {
    let software = ["mock", "roce"].map(|device| (format!("{device}0"), device.to_owned()));
    let found = found();
    let is_listed = found.is_ok();
    let ports: Vec<_> = found
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(name, device)| matches!(device, Named::Verbs(_)).then_some(name))
        .map(|name| {
            let data = instance_data(&name);
            (name, data)
        })
        .collect();
    let missing = if cfg!(not(feature = "verbs")) {
        Some(
            "this build does not support RDMA devices; on Linux with the headers of rdma-core (Debian: \
            libibverbs-dev librdmacm-dev libclang-dev pkg-config), build with --features verbs",
        )
    } else if !is_listed {
        Some("RDMA devices: this process has no file descriptors left to list them with")
    } else if ports.is_empty() {
        Some("RDMA devices: this host has no RDMA device")
    } else {
        None
    };
    let lines = software.into_iter().chain(ports).collect();
    (lines, missing.map(str::to_owned))
}

/// Returns the instance data that names a port: the device and the port's number.
fn instance_data(name: &str) -> String {
    let (device, port) = name.rsplit_once(':').unwrap_or((name, "1"));
    format!("{device} {port}")
}

impl Opening for Named {
    fn open(&self, async_evd_min_qlen: i32) -> Result<Device> {
        match self {
            Self::Mock(host) => mock(*host, async_evd_min_qlen),
            Self::Roce(address) => roce(address, async_evd_min_qlen),
            Self::Verbs(name) => verbs(name, async_evd_min_qlen).inspect_err(|error| {
                if error.kind() == ErrorKind::ProviderNotFound
                    && let Some(why) = unknown(name)
                {
                    report("dat", why);
                }
            }),
        }
    }
}

/// The fabric of this process with its thread. Both stay as long as the process.
struct Running {
    fabric: Fabric,
    _thread: FabricThread,
}

fn fabric() -> Result<Fabric> {
    static RUNNING: PerProcess<Mutex<Option<Running>>> = PerProcess::new();
    let mut running = RUNNING
        .this()
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = running.as_ref() {
        return Ok(running.fabric.clone());
    }
    let fabric = Fabric::new(FabricOptions::default());
    let thread = fabric
        .drive_with(|drive| start_thread(c"fabric", drive))
        .map_err(|_| Error::insufficient_resources(Subtype::NoSubtype))?;
    *running = Some(Running {
        fabric: fabric.clone(),
        _thread: thread,
    });
    Ok(fabric)
}

fn mock(host: Host, async_evd_min_qlen: i32) -> Result<Device> {
    let fabric = fabric()?;
    let mut options = NodeOptions::new("mock", host.number.into());
    options.address = IaAddress::V4([127, 0, 0, host.number], 0);
    if host.is_extended {
        options = options.extended();
    }
    if !host.is_coherent {
        options = options.non_coherent();
    }
    let backend = fabric.node(options);
    Opened::open(backend, fabric, async_evd_min_qlen).map(Device::Mock)
}

fn roce(address: &str, async_evd_min_qlen: i32) -> Result<Device> {
    let not_there = |error: io::Error| {
        report("dat", format_args!("roce {address}: {error}"));
        match error.kind() {
            io::ErrorKind::InvalidInput
            | io::ErrorKind::AddrNotAvailable
            | io::ErrorKind::AddrInUse => {
                Error::new(ErrorKind::ProviderNotFound, Subtype::NameNotRegistered)
            }
            _ => Error::insufficient_resources(Subtype::ResourceDevice),
        }
    };
    let at = roce_address(address).map_err(not_there)?;
    let mut options = RoceOptions::random().map_err(not_there)?;
    at.apply_to(&mut options);
    options.start_thread = start_thread;
    let backend = RoceBackend::open(at.socket, options).map_err(not_there)?;
    let driver = backend.driver();
    Opened::open(backend, driver, async_evd_min_qlen).map(Device::Roce)
}

/// Returns the options of RDMA devices, whose adapters in this process share them.
#[cfg(feature = "verbs")]
pub(crate) fn verbs_options() -> backend_verbs::VerbsOptions {
    static OPEN: PerProcess<backend_verbs::OpenDevices> = PerProcess::new();
    let mut options = backend_verbs::VerbsOptions::default();
    options.devices = OPEN.this();
    options.start_thread = start_thread;
    options
}

#[cfg(feature = "verbs")]
fn verbs(name: &str, async_evd_min_qlen: i32) -> Result<Device> {
    use backend_verbs::{LongQualifiers, VerbsBackend};
    use dat_core::backend::BackendError;

    let refused = |error| match error {
        BackendError::Resources | BackendError::Descriptors => {
            Error::insufficient_resources(Subtype::ResourceDevice)
        }
        _ => Error::new(ErrorKind::ProviderNotFound, Subtype::NameNotRegistered),
    };
    let known = backend_verbs::device_of(name).or_else(|| {
        // An interface or an address determines the port by itself.
        let (interface, _port) = name.rsplit_once(':')?;
        backend_verbs::device_of(interface)
    });
    let name = known.unwrap_or_else(|| name.to_owned());
    let mut options = verbs_options();
    options.long_qualifiers = LongQualifiers::Shortened;
    let backend = VerbsBackend::open(&name, options).map_err(refused)?;
    let waits = backend.waits();
    Opened::open(backend, waits, async_evd_min_qlen).map(Device::Verbs)
}

#[cfg(not(feature = "verbs"))]
fn verbs(_name: &str, _async_evd_min_qlen: i32) -> Result<Device> {
    Err(Error::new(
        ErrorKind::ProviderNotFound,
        Subtype::NameNotRegistered,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The instance data of a port names the same port when the provider reads it.
    #[test]
    fn lines_name_device_and_port() {
        for (name, data) in [("rxe0", "rxe0 1"), ("mlx5_0:2", "mlx5_0 2")] {
            assert_eq!(instance_data(name), data);
            let Named::Verbs(port) = Named::parse(data, "") else {
                panic!("{data}");
            };
            assert!(is_known(&port, &[name.to_owned()]));
        }
    }

    #[test]
    fn lines_that_open_nothing_are_explained() {
        let explained = |ours, major, instance_data: &CStr| {
            let info = ProviderInfo::new(c"x", major, 0, false);
            explain(ours, &info, instance_data)
        };
        assert_eq!(explained(2, 2, c"mock 7"), None);
        assert_eq!(explained(2, 2, c"mock 7 extended"), None);
        assert_eq!(explained(2, 2, c"mock 7 non-coherent"), None);
        assert_eq!(explained(1, 1, c"mock"), None);
        let text = |ours, major, instance_data| {
            explained(ours, major, instance_data).expect("it opens nothing")
        };
        assert!(text(2, 1, c"mock").contains("use libdat.so.1 for version 1"));
        assert!(text(1, 2, c"mock").contains("libdat_provider.so.2"));
        assert!(text(2, 2, c"mock 255").contains("1 to 254"));
        assert!(text(2, 2, c"mock 7 more").contains("followed by `extended`"));
        assert!(text(2, 2, c"no-such-device 1").contains("`no-such-device:1`"));
        assert!(text(2, 2, c"").contains("`x`"));
    }

    #[test]
    fn ports_are_known_by_device_and_number() {
        let ports = ["rxe0".to_owned(), "mlx5_0:1".into(), "mlx5_0:2".into()];
        for (name, expected) in [
            ("rxe0", true),
            ("rxe0:1", true),
            ("rxe0:2", false),
            ("mlx5_0", true),
            ("mlx5_0:2", true),
            ("mlx5_0:3", false),
            ("mlx5_1", false),
        ] {
            assert_eq!(is_known(name, &ports), expected, "{name}");
        }
    }

    #[test]
    fn instance_data_names_devices() {
        let verbs = |name: &str| Named::Verbs(name.to_owned());
        let roce = |address: &str| Named::Roce(address.to_owned());
        let mock = |host| Named::Mock(Host::new(host));
        let host = Host::new(7);
        let extended = Host {
            is_extended: true,
            ..host
        };
        let apart = Host {
            is_coherent: false,
            ..host
        };
        let both = Named::Mock(Host {
            is_coherent: false,
            ..extended
        });
        for (instance_data, name, expected) in [
            ("mock", "x", mock(1)),
            ("", "mock", mock(1)),
            ("mock 7", "x", mock(7)),
            ("mock 7 extended", "x", Named::Mock(extended)),
            ("mock 7 non-coherent", "x", Named::Mock(apart)),
            ("mock 7 extended non-coherent", "x", both.clone()),
            ("mock 7 non-coherent extended", "x", both),
            ("mock 7 non-coherent more", "x", verbs("mock:7")),
            ("mock 7 more", "x", verbs("mock:7")),
            ("mock 0", "x", verbs("mock")),
            ("mock 255", "x", verbs("mock:255")),
            ("", "roce0", roce("")),
            ("roce", "x", roce("")),
            ("roce eth0", "x", roce("eth0")),
            ("roce ::1?udp=5", "x", roce("::1?udp=5")),
            ("roce eth0 1", "x", verbs("roce:eth0")),
            ("", "rxe0", verbs("rxe0")),
            (" rxe0 ", "x", verbs("rxe0")),
            ("eth2 0", "x", verbs("eth2")),
            ("mlx5_0 2", "x", verbs("mlx5_0:2")),
        ] {
            assert_eq!(Named::parse(instance_data, name), expected);
        }
    }
}
