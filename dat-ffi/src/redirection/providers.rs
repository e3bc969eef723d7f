//! Providers of the registry: those of `dat.conf`, and those that registered themselves.

use dat_core::{Error, Result};

use super::calls::{Code, code};
use crate::boundary::{FUNCTIONS, In, List, Out, Provider, ProviderInfo, uncancelled};
use crate::registry::{Configuration, Entry, Found, Providers, Rules, Wanted};

/// Providers of other versions have other tables and structures.
const MAJOR: u32 = 2;

static PROVIDERS: Providers<FUNCTIONS> = Providers::new(Rules {
    library: c"libdat2.so.2",
    paths: &[Configuration::USUAL],
    // Programs ask for either entry.
    default: "mock0 u2.0 nonthreadsafe default libdat_provider.so.2 dat.0.1 \"mock\" \"\"\n\
              mock0 u2.0 threadsafe default libdat_provider.so.2 dat.0.1 \"mock\" \"\"\n",
    concerns: |entry| Entry::is_usable(entry) && entry.major == MAJOR,
    devices: None,
});

pub(super) type Used = crate::registry::Used<FUNCTIONS>;

/// Finds a provider, and loads it if needed; it stays until it is released.
///
/// # Errors
/// PROVIDER_NOT_FOUND, with the missing part; INSUFFICIENT_RESOURCES for lack of descriptors or
/// memory.
///
/// Spec: IAO-06, REGL-05
pub(super) fn find(wanted: Wanted<'_>) -> Result<Used> {
    match PROVIDERS.find(wanted)? {
        Found::Used(used) => Ok(used),
        // The rules have no devices.
        Found::Device(..) => Err(Error::not_implemented()),
    }
}

/// Releases a provider whose adapter is closed or could not be opened.
///
/// Spec: IAO-07, IAC-07
pub(super) fn release(used: Used) {
    PROVIDERS.release(used.number);
}

#[doc = include_str!("../../manual/dat_registry_add_provider.md")]
pub extern "C-unwind" fn dat_registry_add_provider(
    provider: Option<Provider>,
    info: In<ProviderInfo>,
) -> Code {
    if info.get().is_some_and(|info| info.major != MAJOR) {
        return code(Error::invalid_argument(2));
    }
    uncancelled(|| PROVIDERS.add(provider, info)).map_or_else(code, |()| 0)
}

#[doc = include_str!("../../manual/dat_registry_remove_provider.md")]
pub extern "C-unwind" fn dat_registry_remove_provider(
    provider: Option<Provider>,
    info: In<ProviderInfo>,
) -> Code {
    uncancelled(|| PROVIDERS.remove(provider, info)).map_or_else(code, |()| 0)
}

#[doc = include_str!("../../manual/dat_registry_list_providers.md")]
pub extern "C-unwind" fn dat_registry_list_providers(
    most: i32,
    count: Out<i32>,
    list: List<Out<ProviderInfo>>,
) -> Code {
    let outcome = uncancelled(|| PROVIDERS.list(most, count, list));
    outcome.map_or_else(code, |()| 0)
}
