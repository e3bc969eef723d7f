//! Tests that a backend cannot pass, with the reasons, from `tests/suite/backends.toml`.

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

/// The reasons, by name of test.
type Reasons = HashMap<String, String>;

/// Returns the reasons of a backend.
pub(crate) fn exceptions(backend: &str) -> &'static Reasons {
    static EXCEPTIONS: OnceLock<HashMap<String, Reasons>> = OnceLock::new();
    let all = EXCEPTIONS.get_or_init(|| {
        let known: Backends =
            toml::from_str(include_str!("../../backends.toml")).expect("backends");
        let reasons = |backend: &Backend| {
            let tests = backend.except.iter().flat_map(|exception| {
                let test = |test: &String| (test.clone(), exception.reason.clone());
                exception.tests.iter().map(test)
            });
            tests.collect()
        };
        let named = |backend: &Backend| (backend.name.clone(), reasons(backend));
        known.backend.iter().map(named).collect()
    });
    all.get(backend).expect("a known backend")
}
