//! The provider for `libdat2`, the registry of DAT 2.0: a library with three functions.
//!
//! The registry calls two of them, and one explains the problem of a line. All code is in
//! `dat-ffi`. `docs/c-libraries.md` says which lines of `dat.conf` load the library.

use dat_ffi::v2::{In, ProviderInfo, StaticText, Text};

/// Carries calls to their end if the heap is exhausted.
#[global_allocator]
static HEAP: dat_ffi::Heap = dat_ffi::Heap;

#[doc = include_str!("../manual/dat_provider_init.md")]
#[expect(unsafe_code, reason = "the registry looks the function up by its name")]
#[unsafe(no_mangle)]
pub extern "C" fn dat_provider_init(info: In<ProviderInfo>, instance_data: Text) {
    dat_ffi::v2::register(info, instance_data);
}

/// Removes the provider of a line of `dat.conf` from the registry; see [`dat_provider_init`].
#[expect(unsafe_code, reason = "the registry looks the function up by its name")]
#[unsafe(no_mangle)]
pub extern "C" fn dat_provider_fini(info: In<ProviderInfo>) {
    dat_ffi::v2::unregister(info);
}

/// Explains why a line of `dat.conf` opens no adapter, for `dat-registry --check`.
///
/// Null if it may open one.
#[expect(unsafe_code, reason = "it is looked up by its name")]
#[unsafe(no_mangle)]
pub extern "C" fn dat_provider_explain(info: In<ProviderInfo>, instance_data: Text) -> StaticText {
    dat_ffi::v2::explain(info, instance_data)
}
