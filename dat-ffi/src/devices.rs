//! Devices by their names in `dat.conf`.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;

use dat_core::{Error, ErrorKind, Result, Subtype};
use dat_devices::{
    ByAddress, Cause, DeviceAddress, Found, OpenError, OpenErrorKind, Options, is_built_in, missing,
};
use dat_storage::Limits;

use crate::adapter::{OpenDevice, Openable, Opened, Opening};
use crate::boundary::{In, ProviderInfo, StaticText, Text, start_thread};
use crate::diagnostic::report;

/// Returns the options that the libraries open devices with.
///
/// Qualifiers are shortened as OFA's provider does. A peer without receives ends its connection.
pub(crate) fn options() -> Options {
    let mut options = Options::new();
    options.numbered = true;
    options.shortened_qualifiers = true;
    options.limits_not_ready = true;
    options.start_thread = Some(start_thread);
    options
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
    unknown(&DeviceAddress::from_configuration(
        &instance_data.to_string_lossy(),
        &name.to_string_lossy(),
    ))
}

/// Explains why no device has a name; `None` if one has.
fn unknown(named: &DeviceAddress) -> Option<String> {
    let name = named.device();
    let is_of_others = named.scheme() == "verbs";
    if is_of_others && (name == "mock" || name.starts_with("mock:")) {
        return missing(&DeviceAddress::new("mock", "0"));
    }
    if is_of_others && !is_built_in(named.scheme()) {
        return Some(format!(
            "`{name}` is not a mock device, and this build of the library does not support RDMA devices"
        ));
    }
    missing(named)
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
pub(crate) fn found() -> Result<Vec<Found>> {
    let mut all = Vec::new();
    for listed in dat_devices::devices() {
        match listed.found {
            Ok(found) => all.extend(found),
            Err(error) if matches!(error.kind(), OpenErrorKind::NotBuiltIn { .. }) => {}
            Err(_) => return Err(Error::insufficient_resources(Subtype::ResourceDevice)),
        }
    }
    Ok(all)
}

/// Returns the lines of `dat.conf` for this host: the name and the instance data of each device.
///
/// Returns the reason too if RDMA devices are not among them.
pub fn devices() -> (Vec<(String, String)>, Option<String>) {
    let mut lines = Vec::new();
    let mut missing = None;
    for listed in dat_devices::devices().into_iter().rev() {
        match listed.found {
            Ok(found) if found.is_empty() => {
                missing = Some("RDMA devices: this host has no RDMA device");
            }
            Ok(found) => lines.extend(found.into_iter().map(|device| {
                let data = match device.address.device() {
                    "" => listed.scheme.to_owned(),
                    _ => instance_data(&device.name),
                };
                (device.name, data)
            })),
            Err(error) => {
                missing = Some(match error.kind() {
                    OpenErrorKind::NotBuiltIn { .. } => NOT_BUILT_IN,
                    _ => {
                        "RDMA devices: this process has no file descriptors left to list them with"
                    }
                });
            }
        }
    }
    (lines, missing.map(str::to_owned))
}

/// The reason why no RDMA device is listed by a build without them.
const NOT_BUILT_IN: &str = "this build does not support RDMA devices; on Linux with the headers of \
    rdma-core (Debian: libibverbs-dev librdmacm-dev libclang-dev pkg-config), build with --features \
    verbs";

/// Returns the instance data that names a port: the device and the port's number.
fn instance_data(name: &str) -> String {
    let (device, port) = name.rsplit_once(':').unwrap_or((name, "1"));
    format!("{device} {port}")
}

/// Opens a device by the backend of its scheme.
macro_rules! open_by_scheme {
    ({ $named:expr, $qlen:expr } $($name:ident = $type:ty,)+) => {
        match $named.scheme() {
            $(<$type as ByAddress>::SCHEME => open::<$type>($named, $qlen),)+
            _ => Err(not_there($named)),
        }
    };
}

impl Opening for DeviceAddress {
    fn open(&self, async_evd_min_qlen: i32) -> Result<(OpenDevice, Limits)> {
        dat_devices::backends! { [open_by_scheme] { self, async_evd_min_qlen } }
    }
}

fn open<B: Openable>(
    named: &DeviceAddress,
    async_evd_min_qlen: i32,
) -> Result<(OpenDevice, Limits)> {
    let backend = <B as ByAddress>::open(named.device(), &options());
    let backend = backend.map_err(|error| refused(named, &error))?;
    let opened = Opened::open(backend, async_evd_min_qlen)?;
    let limits = opened.ia.limits();
    Ok((B::device(opened), limits))
}

/// Reports why a device is not opened; returns the error of the call.
fn refused(named: &DeviceAddress, error: &OpenError) -> Error {
    let is_exhausted = matches!(
        error.kind(),
        OpenErrorKind::Resources | OpenErrorKind::Descriptors | OpenErrorKind::System
    );
    if let Cause::System(why) = error.cause() {
        let (scheme, device) = (named.scheme(), named.device());
        report("dat", format_args!("{scheme} {device}: {why}"));
    } else if !is_exhausted {
        return not_there(named);
    }
    match is_exhausted {
        true => Error::insufficient_resources(Subtype::ResourceDevice),
        false => Error::new(ErrorKind::ProviderNotFound, Subtype::NameNotRegistered),
    }
}

/// Reports why there is no device of a name; returns the error of the call.
fn not_there(named: &DeviceAddress) -> Error {
    if let Some(why) = unknown(named) {
        report("dat", why);
    }
    Error::new(ErrorKind::ProviderNotFound, Subtype::NameNotRegistered)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The instance data of a port names the same port when the provider reads it.
    #[test]
    fn lines_name_device_and_port() {
        for (name, data) in [("rxe0", "rxe0 1"), ("mlx5_0:2", "mlx5_0 2")] {
            assert_eq!(instance_data(name), data);
            // A device with one port is listed without the port's number.
            let port = if name.contains(':') {
                name.to_owned()
            } else {
                format!("{name}:1")
            };
            let named = DeviceAddress::from_configuration(data, "");
            assert_eq!(named, DeviceAddress::new("verbs", &port));
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
}
