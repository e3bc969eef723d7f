//! Names the library, and keeps it in the process that has loaded it once.

fn main() {
    // Tables, and the cells that handles point to, are asked through the registry after a close as well.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat_provider.so.2");
    println!("cargo::rerun-if-changed=build.rs");
}
