//! Tests that a backend cannot pass, with the reasons, from `tests/suite/backends.toml`.

use serde::Deserialize;
use std::sync::OnceLock;

#[derive(Deserialize)]
struct Backends {
    backend: Vec<Backend>,
}

#[derive(Deserialize)]
struct Backend {
    name: String,
    #[serde(default)]
    except: Vec<Exception>,
}

#[derive(Deserialize)]
struct Exception {
    tests: Vec<String>,
    /// Vendor name of the only devices with the exception; `None` for all devices.
    vendor: Option<String>,
    reason: String,
}

/// Returns the reason why a device of this backend and vendor cannot pass a test, if it cannot.
pub(crate) fn exception(backend: &str, vendor: &str, test: &str) -> Option<String> {
    static BACKENDS: OnceLock<Backends> = OnceLock::new();
    let all = BACKENDS
        .get_or_init(|| toml::from_str(include_str!("../../backends.toml")).expect("backends"));
    let named = all.backend.iter().find(|known| known.name == backend);
    let mut exceptions = named.expect("a known backend").except.iter();
    let found = exceptions.find(|exception| {
        exception.tests.iter().any(|name| name == test)
            && exception
                .vendor
                .as_deref()
                .is_none_or(|only| only == vendor)
    });
    found.map(|exception| exception.reason.clone())
}
