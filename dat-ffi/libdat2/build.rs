//! Names the library and the version of what it exports, and keeps it in the process that has loaded it once.

use std::env;

fn main() {
    let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo says where the package is");
    // Which symbols have the version, the assembler says; the compiler's own list has the rest, which is nothing. Two lists can be
    // had with LLD, the linker that comes with Rust.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={folder}/libdat2.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat2.so.2");
    // Providers call it until the process ends.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=libdat2.map");
}
