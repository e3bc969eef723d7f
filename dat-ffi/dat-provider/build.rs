//! Sets the soname of the library and prevents its unloading.

fn main() {
    // Tables, and the cells of handles, are read through the registry after a close as well.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat_provider.so.2");
    println!("cargo::rerun-if-changed=build.rs");
}
