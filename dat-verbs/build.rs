//! Gives the library the version nodes of libibverbs and librdmacm.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo's variable");
    println!("cargo::rerun-if-changed=verbs.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={folder}/verbs.map");
    // Programs keep pointers to its functions after `dlclose`.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
