//! Names the library as programs look for it, and the version of what it exports.

use std::env;

fn main() {
    let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo says where the package is");
    // Which symbols have the version, the assembler says. Beside the compiler's own list there can be this one with LLD, the linker
    // that comes with Rust.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={folder}/libdat.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat.so.1");
    // The mock's thread may run when somebody unloads it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=libdat.map");
}
