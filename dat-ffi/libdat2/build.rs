//! Sets soname and export version of the library, and prevents its unloading.

use std::env;

fn main() {
    let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo says where the package is");
    // The assembler says which symbols have the version; the compiler's own list has no others.
    // LLD, Rust's own linker, accepts both lists.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={folder}/libdat2.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat2.so.2");
    // Providers call the library until the process ends.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=libdat2.map");
}
