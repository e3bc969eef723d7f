//! The provider for `libdat2`, the registry of DAT 2.0: a shared library with the two functions that the registry calls,
//! and one that says what is wrong with a line.
//!
//! Everything else is in `dat-ffi`. Which lines of `dat.conf` load it is written in `docs/c-libraries.md`.

use dat_ffi::v2::{In, ProviderInfo, StaticText, Text};

/// Carries calls to their end when the heap is exhausted.
#[global_allocator]
static HEAP: dat_ffi::Heap = dat_ffi::Heap;

#[doc = include_str!("../../manual/dat_provider_init.md")]
#[expect(unsafe_code, reason = "the registry looks the function up by its name")]
#[unsafe(no_mangle)]
pub extern "C" fn dat_provider_init(info: In<ProviderInfo>, instance_data: Text) {
    dat_ffi::v2::register(info, instance_data);
}

/// Takes the provider of a line of `dat.conf` out of the registry; see [`dat_provider_init`].
#[expect(unsafe_code, reason = "the registry looks the function up by its name")]
#[unsafe(no_mangle)]
pub extern "C" fn dat_provider_fini(info: In<ProviderInfo>) {
    dat_ffi::v2::unregister(info);
}

/// Why a line of `dat.conf` opens no adapter; null if it may open one. `dat registry --check` asks.
#[expect(unsafe_code, reason = "it is looked up by its name")]
#[unsafe(no_mangle)]
pub extern "C" fn dat_provider_explain(info: In<ProviderInfo>, instance_data: Text) -> StaticText {
    dat_ffi::v2::explain(info, instance_data)
}
