//! The tests that a backend cannot carry, with the reasons, as `tests/backends.toml` lists them.

use serde::Deserialize;
use std::collections::HashMap;
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
    reason: String,
}

/// Those of a backend; a test target is of one backend.
pub(crate) fn exceptions(backend: &str) -> &'static HashMap<String, String> {
    static EXCEPTIONS: OnceLock<HashMap<String, String>> = OnceLock::new();
    EXCEPTIONS.get_or_init(|| {
        let known: Backends =
            toml::from_str(include_str!("../../backends.toml")).expect("backends");
        let own = known.backend.into_iter().filter(|one| one.name == backend);
        own.flat_map(|backend| backend.except)
            .flat_map(|exception| {
                let reason = exception.reason;
                exception
                    .tests
                    .into_iter()
                    .map(move |test| (test, reason.clone()))
            })
            .collect()
    })
}
