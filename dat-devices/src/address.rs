//! Names of devices: addresses, lines of `dat.conf`, and arguments.

use std::fmt;

use crate::error::OpenError;
use crate::list::SCHEMES;
use crate::numbered::NumberedHost;

/// Form of an address.
const FORM: &str = "`SCHEME://DEVICE`";

/// The scheme of names that no other backend has.
const OTHERS: &str = "verbs";

/// Name of a device: the scheme of its backend, and the backend's name for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAddress {
    scheme: String,
    device: String,
}

impl DeviceAddress {
    /// Creates the name of a device of a backend; an empty `device` stands for the usual one.
    pub fn new(scheme: &str, device: &str) -> Self {
        Self {
            scheme: scheme.to_owned(),
            device: device.to_owned(),
        }
    }

    /// Parses an address, `SCHEME://DEVICE`; the scheme need not be known.
    ///
    /// # Errors
    /// `Malformed`: the text has another form.
    pub fn parse(address: &str) -> Result<Self, OpenError> {
        match address.split_once("://") {
            Some((scheme, device)) if !scheme.is_empty() && !device.is_empty() => {
                Ok(Self::new(scheme, device))
            }
            _ => Err(OpenError::malformed(FORM)),
        }
    }

    /// Parses a name as an argument has it: an address, a scheme, or the name of an RDMA device.
    pub fn from_argument(name: &str) -> Self {
        match Self::parse(name) {
            Ok(address) => address,
            Err(_) if SCHEMES.contains(&name) => Self::new(name, ""),
            Err(_) => Self::new(OTHERS, name),
        }
    }

    /// Parses the instance data of a line of `dat.conf`, or its name if the data is empty.
    ///
    /// Examples: `mock`, `mock 7`, `mock 7 extended`, `mock 7 non-coherent`, `roce`, `roce eth0`,
    /// `roce 10.9.0.1?udp=5000`, `rxe0`, `mlx5_0 2`, `eth2 0`, `10.9.0.1`.
    pub fn from_configuration(instance_data: &str, name: &str) -> Self {
        let mut words: Vec<&str> = instance_data.split_whitespace().collect();
        if words.is_empty() {
            words.push(name);
        }
        let (first, rest) = words.split_first().unwrap_or((&name, &[]));
        if *first == "mock" && NumberedHost::parse(rest).is_some() {
            return Self::new("mock", &rest.join(" "));
        }
        let is_named = |scheme: &&&str| first.strip_suffix('0').unwrap_or(first) == **scheme;
        let known = SCHEMES[1..].iter().find(is_named);
        match (known, rest) {
            (Some(&scheme), []) if scheme != OTHERS => Self::new(scheme, ""),
            (Some(&scheme), [device]) if scheme != OTHERS => Self::new(scheme, device),
            // Port 0 stands for any port.
            (_, [] | ["0", ..]) => Self::new(OTHERS, first),
            (_, [port, ..]) => Self::new(OTHERS, &format!("{first}:{port}")),
        }
    }

    /// Returns the address with one more option, as in `roce://127.0.0.1?mtu=1024&path=packets`.
    #[must_use]
    pub fn with_option(mut self, name: &str, value: &str) -> Self {
        let mark = if self.device.contains('?') { '&' } else { '?' };
        self.device = format!("{}{mark}{name}={value}", self.device);
        self
    }

    /// Returns the scheme.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Returns the backend's name of the device.
    pub fn device(&self) -> &str {
        &self.device
    }
}

impl fmt::Display for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::OpenErrorKind;

    #[test]
    fn addresses_have_a_scheme_and_a_device() {
        let address = DeviceAddress::parse("mock://a").unwrap();
        assert_eq!((address.scheme(), address.device()), ("mock", "a"));
        assert_eq!(address.to_string(), "mock://a");
        for wrong in ["", "mock", "mock:/a", "://a", "mock://"] {
            let error = DeviceAddress::parse(wrong).unwrap_err();
            assert!(
                matches!(error.kind(), OpenErrorKind::Malformed(_)),
                "{wrong}"
            );
        }
    }

    #[test]
    fn options_are_added_to_those_that_an_address_has() {
        for (address, expected) in [
            ("roce://::1", "roce://::1?path=local"),
            ("roce://::1?udp=5", "roce://::1?udp=5&path=local"),
        ] {
            let address = DeviceAddress::parse(address).unwrap();
            let with = address.with_option("path", "local");
            assert_eq!(with.to_string(), expected);
        }
    }

    #[test]
    fn arguments_are_addresses_schemes_or_rdma_devices() {
        for (argument, scheme, device) in [
            ("roce", "roce", ""),
            ("roce://fe80::1%eth0?udp=5", "roce", "fe80::1%eth0?udp=5"),
            ("verbs://roce", "verbs", "roce"),
            ("rxe0", "verbs", "rxe0"),
            ("mlx5_0:2", "verbs", "mlx5_0:2"),
            ("other://x", "other", "x"),
        ] {
            let expected = DeviceAddress::new(scheme, device);
            assert_eq!(DeviceAddress::from_argument(argument), expected);
        }
    }

    #[test]
    fn instance_data_names_devices() {
        for (instance_data, name, scheme, device) in [
            ("mock", "x", "mock", ""),
            ("", "mock", "mock", ""),
            ("mock 7", "x", "mock", "7"),
            ("mock 7 extended", "x", "mock", "7 extended"),
            ("mock 7 non-coherent", "x", "mock", "7 non-coherent"),
            (
                "mock 7  extended non-coherent",
                "x",
                "mock",
                "7 extended non-coherent",
            ),
            ("mock 7 non-coherent more", "x", "verbs", "mock:7"),
            ("mock 7 more", "x", "verbs", "mock:7"),
            ("mock 0", "x", "verbs", "mock"),
            ("mock 255", "x", "verbs", "mock:255"),
            ("", "roce0", "roce", ""),
            ("roce", "x", "roce", ""),
            ("roce eth0", "x", "roce", "eth0"),
            ("roce ::1?udp=5", "x", "roce", "::1?udp=5"),
            ("roce fe80::1%eth0", "x", "roce", "fe80::1%eth0"),
            ("roce ::?path=packets", "x", "roce", "::?path=packets"),
            ("roce eth0 1", "x", "verbs", "roce:eth0"),
            ("", "rxe0", "verbs", "rxe0"),
            (" rxe0 ", "x", "verbs", "rxe0"),
            ("eth2 0", "x", "verbs", "eth2"),
            ("mlx5_0 2", "x", "verbs", "mlx5_0:2"),
            ("verbs 2", "x", "verbs", "verbs:2"),
        ] {
            let named = DeviceAddress::from_configuration(instance_data, name);
            assert_eq!(named, DeviceAddress::new(scheme, device), "{instance_data}");
        }
    }
}
