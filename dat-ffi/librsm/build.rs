//! Sets the soname of the library and prevents its unloading.

fn main() {
    // Threads of the library run as long as the process.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The soname of the interface's original library, whose symbols have no versions either.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librsm.so.2");
    // Hides C functions of dependencies, which builds of the whole workspace link in.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    println!("cargo::rerun-if-changed=build.rs");
}
