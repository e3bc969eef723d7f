//! Sets soname and export version of the library, and prevents its unloading.

use std::env;

fn main() {
    let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo says where the package is");
    // The assembler says which symbols have the version. LLD, Rust's own linker, accepts this
    // script in addition to the compiler's list.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={folder}/libdat.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat.so.1");
    // The mock's thread may run when a program unloads the library.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=libdat.map");
}
