//! Settings that `dat run` gives the library, by variables of the environment.

use core::net::SocketAddr;
use std::io::Write as _;
use std::{env, io};

use backend_roce::{PathChoice, parse_ip, wildcard};
use nix::errno::Errno;

use crate::errors::Result;

/// Address of the device; all addresses of the host without it.
pub(crate) const ADDRESS: &str = "DAT_VERBS_ADDRESS";
/// Way to the peers: `any`, `local` or `packets`.
pub(crate) const PATH: &str = "DAT_VERBS_PATH";

/// Settings of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) address: SocketAddr,
    pub(crate) path: PathChoice,
}

impl Settings {
    /// Reads the settings of this process.
    ///
    /// # Errors
    /// `EINVAL`: a variable has another value.
    pub(crate) fn read() -> Result<Self> {
        Self::of(value(ADDRESS).as_deref(), value(PATH).as_deref())
    }

    fn of(address: Option<&str>, path: Option<&str>) -> Result<Self> {
        Ok(Self {
            address: match address {
                None => wildcard(),
                Some(text) => parse_ip(text).map_err(|_| Errno::EINVAL)?,
            },
            path: match path {
                None => PathChoice::default(),
                Some(text) => text.parse().map_err(|_| Errno::EINVAL)?,
            },
        })
    }
}

fn value(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Tells why settings give no device, as rdma-core tells its own; the interface has only a number.
///
/// Without settings, nobody asks for the device of this library by its name.
pub(crate) fn tell(error: Errno) {
    for name in [ADDRESS, PATH] {
        if let Some(value) = value(name) {
            let why = error.desc();
            // There is nobody to tell if this fails.
            let _told = writeln!(
                io::stderr(),
                "libdat_verbs: no device with {name}={value}: {why}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_defaults_and_refuse_other_values() {
        let settings = Settings::of(None, None).expect("defaults");
        assert!(settings.address.ip().is_unspecified());
        assert_eq!(settings.path, PathChoice::Any);
        let settings = Settings::of(Some("127.0.0.1"), Some("packets")).expect("values");
        assert_eq!(settings.address.to_string(), "127.0.0.1:0");
        assert_eq!(settings.path, PathChoice::Packets);
        for (address, path) in [(Some("lo"), None), (None, Some("Local"))] {
            assert_eq!(Settings::of(address, path), Err(Errno::EINVAL));
        }
    }
}
