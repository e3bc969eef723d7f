//! Exports the functions of the registry, as a program with the library does.
//!
//! Providers of DAT 2.0 look for the registry among the symbols that the process exports.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_C").is_none() {
        return;
    }
    for name in [
        "dat_registry_add_provider",
        "dat_registry_remove_provider",
        "dats_get_ia_handle",
    ] {
        println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol={name}");
    }
}
